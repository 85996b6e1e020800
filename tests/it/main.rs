//! The one integration-test crate: everything that needs more than one module, a process, a
//! database or the repository itself. One file (or folder) a subject; one `mod` line each.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as the tests themselves do")]

mod accounts;
mod agent;
mod announcements;
mod architecture;
mod checks;
mod cluster;
mod command_line;
mod containers;
mod contrib;
mod corpora;
mod curves;
mod datasets;
mod db;
mod demo;
mod directory;
mod environments;
mod faults;
mod files;
mod gateway;
mod gpus;
mod helper;
mod identity;
mod idleness;
mod images;
mod kernel_limits;
mod licences;
mod life;
mod lifetimes;
mod lists;
mod local;
mod long_lists;
mod modules;
mod monitoring;
mod needs;
mod networks;
mod nodes;
mod notifications;
mod pages;
mod people;
mod portal;
mod presets;
mod proxy;
mod quota_pages;
mod quotas;
mod retention;
mod runs;
mod site;
mod site_apps;
mod slurm;
mod start;
mod toasts;
mod usage;
mod wait;
