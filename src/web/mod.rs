//! Pages and API: everything that speaks HTTP with people and their programs.
//! `page` holds what all pages share, `views` the pages themselves as plain structs.

pub mod page;
pub mod views;
