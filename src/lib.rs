//! Lyceum: the web portal of a deep-learning machine room.
//!
//! Read in this order: `model` (the words), `db` (the only SQL), `admission` (decide and
//! reserve), `sessions` (the service and its reconcile loop), `scheduler` with `helper` and
//! `agent` (who starts what as whom), `proxy` (the way to the apps), `web` (pages and API).
//! ARCHITECTURE.md draws the picture and says who may use whom.

pub mod admin;
pub mod admission;
pub mod agent;
pub mod announcements;
pub mod app;
pub mod apps;
pub mod associations;
pub mod auth;
pub mod check;
pub mod client;
pub mod cluster;
pub mod config;
pub mod curves;
pub mod datasets;
pub mod db;
pub mod demo;
pub mod dial;
pub mod environments;
pub mod files;
pub mod gpu;
pub mod helper;
pub mod inherited;
pub mod jobs;
pub mod journal;
pub mod lifecycle;
pub mod listen;
pub mod model;
pub mod models;
pub mod nodes;
pub mod notifications;
pub mod overlay;
pub mod protocol;
pub mod proxy;
pub mod retention;
pub mod run_directory;
pub mod runs;
pub mod scheduler;
pub mod sessions;
pub mod start;
pub mod sweeps;
pub mod telemetry;
pub mod web;
