//! Curves of training: event files and lines of JSON are read as they grow, every point is
//! kept, and questions about millions of them are answered from what each stretch comes to,
//! with its least and its greatest. What a job is, who may see it, and how curves are drawn
//! belongs to others.

mod columns;
pub mod demo;
pub mod event;
mod growth;
mod hparams;
mod lines;
pub mod log;
mod order;
pub mod reader;
pub mod record;
pub mod run;
pub mod series;
pub mod smooth;
pub mod store;
pub mod tail;
mod whole_files;
mod wire;
pub mod write;

pub use reader::Item;
pub use run::{Run, Runs};
pub use series::{Bucket, Extent, Point, Series};
pub use store::Store;
pub use tail::Tail;
