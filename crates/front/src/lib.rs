//! What stands between browsers and apps: the accept loop and its limits, and the proxy, which streams.

pub mod listen;
pub mod proxy;
