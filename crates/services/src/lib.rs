//! The services behind the pages and the API: who may come in, what is admitted, what runs and how it ends, and what is
//! kept of it. They know no HTTP; they return values, or an error that says what happened.

pub mod admission;
pub mod announcements;
pub mod associations;
pub mod auth;
pub mod cluster;
pub mod datasets;
pub mod diagnostics;
pub mod environments;
pub mod events;
pub mod expiry;
pub mod files;
pub mod gpu;
pub mod images;
pub mod jobs;
pub mod journal;
pub mod lifecycle;
pub mod models;
pub mod notifications;
pub mod presets;
pub mod retention;
pub mod runs;
pub mod scheduler;
pub mod sessions;
pub mod site;
pub mod sweeps;
pub mod telemetry;
pub mod trash;
