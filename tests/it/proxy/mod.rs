//! The proxy between real peers: an app on a socket of its own, the accept loop in front, and
//! clients that speak bytes where it matters what exactly is said.

pub mod app;
mod front;
mod hygiene;
mod limits;
mod peers;
pub mod smuggling;
mod streams;
mod tunnels;
