//! The integration tests: one crate, so that it links once.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod agent;
