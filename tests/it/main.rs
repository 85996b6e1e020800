//! The one integration-test crate: real peers, no mocks, no sleeps.
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed, and says where")]

mod proxy;
