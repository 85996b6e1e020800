//! `/cluster` in front of several machines: what could be had now, partitions, nodes.

use askama::Template;

use super::{Calendar, Meter, Moment, StateBadge};
use crate::web::page::{Layout, filters};

/// The page of a cluster's machines.
#[derive(Debug, Template)]
#[template(path = "machines.html")]
pub struct MachinesPage {
    pub layout: Layout,
    /// The cluster's name.
    pub cluster: String,
    /// When all of this was true; `None` before the first answer.
    pub seen: Option<Moment>,
    /// Why nothing newer is known.
    pub trouble: Option<String>,
    /// What the reader could get now.
    pub offers: Vec<OfferRow>,
    pub partitions: Vec<PartitionRow>,
    pub reservations: Vec<ReservationRow>,
    pub calendar: Option<Calendar>,
    /// `None`: the site shows them to operators alone.
    pub nodes: Option<NodeTable>,
}

/// The largest workload of its kind that would start now.
#[derive(Clone, Debug)]
pub struct OfferRow {
    /// `2 × a100`, or `no GPU`.
    pub gpus: String,
    /// `4 cores · 8 GiB`
    pub rest: String,
    pub longest: String,
    pub partition: String,
    /// The machine, where the reader may see it.
    pub node: Option<String>,
    /// What leads into a form with this place and size: `?partition=gpu&gpus=2…`.
    pub query: String,
}

#[derive(Clone, Debug)]
pub struct PartitionRow {
    pub name: String,
    /// Sessions and jobs of the portal go there.
    pub is_ours: bool,
    pub state: StateBadge,
    pub nodes: usize,
    pub cores: Meter,
    /// `None` where it has none.
    pub gpus: Option<Meter>,
    pub longest: String,
    /// Everybody's jobs that run and that wait; `None`: the site shows them to operators alone.
    pub jobs: Option<(i64, i64)>,
}

/// Nodes that are kept for some users, or for maintenance.
#[derive(Clone, Debug)]
pub struct ReservationRow {
    pub name: String,
    pub state: StateBadge,
    pub from: Moment,
    pub to: Moment,
    pub nodes: usize,
    /// The first of them by name.
    pub names: String,
    /// Users and accounts that may use it; empty for none.
    pub who: String,
    pub is_maintenance: bool,
}

/// A page of the nodes.
#[derive(Clone, Debug)]
pub struct NodeTable {
    pub rows: Vec<MachineRow>,
    /// The places of the first and the last among all of them, from 1.
    pub first: usize,
    pub last: usize,
    pub all: usize,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

#[derive(Clone, Debug)]
pub struct MachineRow {
    pub name: String,
    /// `debug, gpu`
    pub partitions: String,
    pub state: StateBadge,
    /// Slurm's own word, where it says more.
    pub word: Option<String>,
    /// Why it takes no work.
    pub why: Option<String>,
    pub cores: Meter,
    pub memory: Meter,
    /// Of each model.
    pub gpus: Vec<Meter>,
}
