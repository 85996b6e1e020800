//! The way into apps, as browsers and programs take it: both listeners with their real
//! routers, the loops that end what may live no longer, and apps on sockets of their own.

mod cuts;
mod entry;
mod handover;
mod heartbeats;
mod jupyter_origin;
mod live;
mod names;
pub mod terminal;
pub mod world;
