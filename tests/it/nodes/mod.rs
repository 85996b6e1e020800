//! Sessions on other nodes: the real agent as a second user of this machine, who listens on
//! an address of the loopback that stands for a node, or calls the portal; through the portal's
//! own proxy and gateway, by each transport alike.

mod restarts;
mod strangers;
mod ways;
mod world;
