//! Images from a real registry (Debian's `docker-registry`), from one that misbehaves, and from files; compared
//! with what `umoci` unpacks of the same. Each test has registry, store and server of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as the tests themselves do")]

mod collect;
mod content;
mod disk;
mod faults;
mod faulty;
mod hostile;
mod import;
mod kill;
#[expect(dead_code, reason = "the portal's tests have more needs")]
#[path = "../../../../tests/it/needs.rs"]
mod needs;
mod pull;
mod real;
mod signature;
mod umoci;
mod wait;
