//! `/queue`: the jobs that wait and run in a batch system's own queue.

use askama::Template;

use super::{Moment, StateBadge};
use crate::web::page::{Layout, filters};

/// The page of the queue.
#[derive(Debug, Template)]
#[template(path = "queue.html")]
pub struct QueuePage {
    pub layout: Layout,
    /// The cluster's name.
    pub cluster: String,
    /// False where the portal runs everything itself.
    pub has_queue: bool,
    pub notice: Option<&'static str>,
    /// When all of this was true; `None` before the first answer.
    pub seen: Option<Moment>,
    /// Why nothing newer is known.
    pub trouble: Option<String>,
    /// Why the reader has no account on the cluster.
    pub no_account: Option<String>,
    /// Whether the reader may see everybody's.
    pub sees_all: bool,
    /// Whether these are.
    pub everybody: bool,
    pub running: usize,
    pub waiting: usize,
    pub rows: Vec<QueueRow>,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

/// A job that waits or runs.
#[derive(Clone, Debug)]
pub struct QueueRow {
    pub id: String,
    /// `12_[1-4]`
    pub label: String,
    pub name: String,
    /// The account that it runs as.
    pub user: String,
    pub state: StateBadge,
    pub since: Option<Moment>,
    /// Why it waits.
    pub why: String,
    pub place: Option<i64>,
    pub starts: Option<Moment>,
    /// `2 × a100 · 4 cores · 8 GiB`
    pub size: String,
    pub partitions: String,
    /// Where it runs.
    pub nodes: String,
    pub longest: String,
    /// Where the portal has a page for it.
    pub href: Option<String>,
    pub may_cancel: bool,
}
