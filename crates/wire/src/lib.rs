//! What the portal, its helper and its agents say to one another: the protocol, connections with the check of the
//! peer, agents on other nodes by their keys, and the files of a workload, which are read without trust.

pub mod dial;
pub mod nodes;
pub mod protocol;
pub mod run_directory;
