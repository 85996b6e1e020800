//! How near GPUs are to one another: the words of `nvidia-smi topo -m`, ordered from far to
//! near, and a table of them. Who reads it from the driver is `gpu`'s business.

use std::collections::BTreeMap;

use super::Gpu;

/// What lies between two GPUs, the farthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// Nobody tells.
    Unknown,
    /// Across NUMA nodes.
    System,
    /// Several host bridges of one NUMA node.
    Node,
    /// One host bridge.
    HostBridge,
    /// Several PCIe switches.
    Bridges,
    /// One PCIe switch.
    Switch,
    /// The same board, or slices of one GPU.
    Board,
    /// So many NVLinks, bonded.
    NvLink(u32),
}

impl Link {
    /// The abbreviation of `nvidia-smi topo -m`.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Unknown => "?".to_owned(),
            Self::System => "SYS".to_owned(),
            Self::Node => "NODE".to_owned(),
            Self::HostBridge => "PHB".to_owned(),
            Self::Bridges => "PXB".to_owned(),
            Self::Switch => "PIX".to_owned(),
            Self::Board => "PSB".to_owned(),
            Self::NvLink(count) => format!("NV{count}"),
        }
    }

    /// The abbreviation in words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Unknown => "not reported by the driver",
            Self::System => "across the processors of the machine",
            Self::Node => "several host bridges of one processor",
            Self::HostBridge => "one host bridge of a processor",
            Self::Bridges => "several PCIe switches",
            Self::Switch => "one PCIe switch",
            Self::Board => "the same board",
            Self::NvLink(_) => "number of NVLink connections",
        }
    }

    /// How much nearness is worth where several are added up: an NVLink outweighs any way
    /// over PCIe, more of them are better, and each step on PCIe counts a little.
    #[must_use]
    pub fn worth(self) -> i64 {
        match self {
            Self::Unknown => 0,
            Self::System => 1,
            Self::Node => 2,
            Self::HostBridge => 3,
            Self::Bridges => 5,
            Self::Switch => 7,
            Self::Board => 8,
            Self::NvLink(count) => 20 + 4 * i64::from(count.min(32)),
        }
    }
}

/// The links that are known, by pairs of UUIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(BTreeMap<(String, String), Link>);

impl Topology {
    pub fn set(&mut self, one: &str, other: &str, link: Link) {
        self.0.insert(key(one, other), link);
    }

    /// What lies between two of these GPUs.
    #[must_use]
    pub fn link(&self, one: &Gpu, other: &Gpu) -> Link {
        self.0.get(&key(&one.uuid, &other.uuid)).copied().unwrap_or(Link::Unknown)
    }

    /// Whether the driver told anything.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.values().any(|link| *link != Link::Unknown)
    }
}

fn key(one: &str, other: &str) -> (String, String) {
    let (first, second) = if one <= other { (one, other) } else { (other, one) };
    (first.to_owned(), second.to_owned())
}
