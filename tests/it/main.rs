//! The one integration-test crate: everything that needs more than one module, a process, a
//! database or the repository itself. One file (or folder) a subject; one `mod` line each.

mod architecture;
mod licences;
