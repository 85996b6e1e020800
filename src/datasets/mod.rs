//! Datasets of pictures: what a training reads. `build` makes one out of a person's files and
//! knows nothing of the portal; it runs as that person, in a workload of theirs.

pub mod build;
