//! What all pages and the API stand on. A request passes `front`, `request_scope`, `forwarded`, `guard` and `routes` on
//! its way to a handler; handlers read it with `extract`, `paging` and `sorting`, and answer with `error`, `json`, `csv`
//! and `streams`.

pub(super) mod assets;
pub(super) mod csv;
pub mod error;
pub(super) mod error_mapping;
pub mod extract;
pub mod forwarded;
pub(super) mod front;
pub mod guard;
pub(super) mod href;
pub(super) mod json;
pub(super) mod live_requests;
pub(super) mod paging;
pub(super) mod request_scope;
pub(super) mod routes;
pub(super) mod sorting;
pub(super) mod streams;
pub(super) mod versions;
