//! `/nodes/{name}`: one node with its state, its GPUs, what runs there and when it is reserved.

use askama::Template;

use super::{Calendar, Meter, Moment, StateBadge};
use crate::web::page::{Layout, filters};

/// The page of a node.
#[derive(Debug, Template)]
#[template(path = "node.html")]
pub struct NodePage {
    pub layout: Layout,
    pub name: String,
    pub cluster: String,
    pub state: StateBadge,
    /// Why it accepts no work.
    pub why: Option<String>,
    pub partitions: Vec<String>,
    /// Cores, memory and GPUs that are allocated.
    pub meters: Vec<Meter>,
    pub facts: Vec<String>,
    pub gpus: Vec<GpuTile>,
    pub work: Vec<NodeWork>,
    /// What others hold of it, where their work is not listed: `3 cores · 1 GPU`.
    pub others: Option<String>,
    pub calendar: Option<Calendar>,
    /// What the reader may do about its accepting work.
    pub drain: Option<DrainAction>,
    /// When all of this was true.
    pub seen: Option<Moment>,
    /// Why nothing newer is known.
    pub trouble: Option<String>,
}

/// What keeps new work from a node, or lets it accept work again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAction {
    Drain,
    Resume,
}

/// A GPU.
#[derive(Clone, Debug)]
pub struct GpuTile {
    /// Its number; empty where the batch system tells none.
    pub label: String,
    pub model: String,
    pub state: StateBadge,
    /// What it computes now.
    pub percent: Option<i64>,
    pub memory: Option<Meter>,
    /// Who holds it, as far as the reader may know.
    pub holder: Option<String>,
}

/// A session, a job, or a job from a shell.
#[derive(Clone, Debug)]
pub struct NodeWork {
    /// `None`: the reader may not know.
    pub name: Option<String>,
    pub kind: &'static str,
    /// `None`: the reader.
    pub owner: Option<String>,
    pub size: String,
    pub since: Option<Moment>,
    pub href: Option<String>,
}
