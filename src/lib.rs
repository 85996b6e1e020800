//! Lyceum: the web portal of a deep-learning machine room.
//!
//! Read in this order: `model` (the words), `db` (the only SQL), `admission` (decide and
//! reserve), `sessions` (the service and its reconcile loop), `scheduler` with `helper` and
//! `agent` (who starts what as whom), `proxy` (the way to the apps), `web` (pages and API).
//! ARCHITECTURE.md draws the picture and says who may use whom.

pub mod auth;
pub mod db;
pub mod model;
pub mod protocol;
pub mod scheduler;
pub mod web;
