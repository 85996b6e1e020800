//! What runs beside the portal: the helper, which runs as root, and the agent, which runs as the user. No library for
//! SQL, LDAP, e-mail, templates or web requests is among the dependencies, so that root's code cannot do what they do.

pub mod agent;
pub mod apps;
pub mod container;
pub mod helper;
pub mod inherited;
pub mod overlay;
