//! Lyceum: the web portal of a deep-learning machine room.
//!
//! Read in this order: `model` (the words), `db` (the only SQL), `admission` (decide and
//! reserve), `sessions` (the service and its reconcile loop), `scheduler` with `helper` and
//! `agent` (who starts what as whom), `proxy` (the way to the apps), `web` (pages and API).
//! ARCHITECTURE.md draws the picture.

pub mod admin;
pub mod app;
pub mod check;
pub mod config;
pub mod start;
pub mod web;

// What stands on its own is a crate of its own, below `crates/`.
pub use lyceum_client as client;
pub use lyceum_curves::{self as curves, demo};
pub use lyceum_db as db;
pub use lyceum_front::{listen, proxy};
pub use lyceum_model as model;
pub use lyceum_node::{agent, apps, container, helper, inherited, overlay};
pub use lyceum_services::{
    admission, announcements, associations, auth, cluster, datasets, diagnostics, environments, events, expiry, files,
    gpu, images, jobs, journal, lifecycle, models, notifications, presets, retention, runs, scheduler, sessions, site,
    sweeps, telemetry, trash,
};
pub use lyceum_wire::{dial, nodes, protocol, run_directory};
