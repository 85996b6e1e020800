//! The machines of a cluster at one moment, as whoever looks after them tells: what of each is
//! taken, which take no work and why, and what would start this very minute. All of it is
//! pure; who is asked for it is the scheduler's business, who sees it the pages'.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::{Capacity, Reservation, Resources, Timestamp};

/// All machines and the partitions that they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    /// When this was true; `None` before the first answer.
    pub at: Option<Timestamp>,
    /// Why nothing newer is known.
    pub trouble: Option<String>,
    pub machines: Vec<Machine>,
    pub partitions: Vec<Partition>,
    /// In the order in which they begin.
    pub reservations: Vec<Reservation>,
    /// How much more time the batch system is asked for than a user asks for (seconds).
    pub margin_seconds: i64,
    pub hides: HiddenDetails,
    /// Whether the batch system lets the portal's account drain nodes.
    pub may_drain: bool,
}

/// What the site shows to its operators alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenDetails {
    pub machines: bool,
    pub jobs: bool,
    pub reservations: bool,
}

/// So much of so much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub used: i64,
    pub all: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub name: String,
    pub partitions: Vec<String>,
    pub state: MachineState,
    /// The batch system's own word for that.
    pub word: String,
    /// Why it takes no work, in its administrator's words.
    pub reason: Option<String>,
    pub cpus: Share,
    pub memory_bytes: Share,
    /// By model.
    pub gpus: Vec<(String, Share)>,
}

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// No jobs run on it.
    Idle,
    /// Jobs run on it, and it has free resources.
    Mixed,
    /// All its resources are allocated.
    Full,
    /// It finishes its running jobs and does not accept new ones.
    Draining,
    /// An administrator has closed it for jobs.
    Drained,
    Down,
    /// The batch system reports a state that this version does not support.
    Unknown,
}

/// Machines that are asked for by one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub name: String,
    /// Whether what the portal starts goes there.
    pub is_ours: bool,
    /// Whether it takes jobs.
    pub is_up: bool,
    /// How long a job may run there (seconds); `None`: for ever.
    pub most_seconds: Option<i64>,
    /// Everybody's jobs.
    pub running: i64,
    pub waiting: i64,
}

/// A node that is reserved sooner is not offered (seconds).
const SHORT: i64 = 60;

/// The largest workload of its kind that would start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub partition: String,
    pub machine: String,
    pub resources: Resources,
    pub most_seconds: Option<i64>,
}

impl Share {
    pub fn free(self) -> i64 {
        (self.all - self.used).max(0)
    }
}

impl MachineState {
    /// Whether something new could start there.
    pub fn takes_work(self) -> bool {
        matches!(self, Self::Idle | Self::Mixed)
    }
}

impl Machine {
    /// Its GPUs of all models.
    pub fn all_gpus(&self) -> Share {
        let sum = |all: Share, one: &Share| Share { used: all.used + one.used, all: all.all + one.all };
        self.gpus.iter().map(|(_, share)| share).fold(Share::default(), sum)
    }

    fn free_gpus(&self, model: Option<&str>) -> i64 {
        self.gpus.iter().find(|(name, _)| Some(name.as_str()) == model).map_or(0, |(_, share)| share.free())
    }
}

impl Machines {
    /// The machines of a partition.
    pub fn of<'a>(&'a self, partition: &'a str) -> impl Iterator<Item = &'a Machine> {
        self.machines.iter().filter(move |machine| machine.partitions.iter().any(|name| name == partition))
    }

    /// What somebody could get now, within what they may still have in all (`left`) and of each
    /// model: with GPUs of each model, and without any. One machine is offered for each.
    /// A node is offered until its next reservation begins. Only partitions that `may_use` accepts are looked at.
    pub fn offers(
        &self,
        left: &Capacity,
        left_of: impl Fn(&str) -> i64,
        may_use: impl Fn(&Partition) -> bool,
        now: Timestamp,
    ) -> Vec<Offer> {
        let models: BTreeSet<&str> =
            self.machines.iter().flat_map(|machine| &machine.gpus).map(|(model, _)| model.as_str()).collect();
        let kinds = models.into_iter().map(Some).chain([None]);
        kinds.filter_map(|model| self.best(model, left, &left_of, &may_use, now)).collect()
    }

    /// For how long each reserved node can still be used (seconds); less than nothing where its reservation has begun.
    fn seconds_left(&self, now: Timestamp) -> HashMap<&str, i64> {
        let mut left = HashMap::new();
        for reservation in self.reservations.iter().filter(|one| now < one.to && !one.is_ours) {
            let until = reservation.from.seconds_since(now).saturating_sub(self.margin_seconds);
            for node in &reservation.nodes {
                left.entry(&**node).and_modify(|left: &mut i64| *left = until.min(*left)).or_insert(until);
            }
        }
        left
    }

    fn best(
        &self,
        model: Option<&str>,
        left: &Capacity,
        left_of: &impl Fn(&str) -> i64,
        may_use: &impl Fn(&Partition) -> bool,
        now: Timestamp,
    ) -> Option<Offer> {
        let held: HashMap<&str, i64> = self.seconds_left(now);
        let open = self.partitions.iter().filter(|partition| partition.is_up && may_use(partition));
        let places = open.flat_map(|partition| self.of(&partition.name).map(move |machine| (partition, machine)));
        let offer = |(partition, machine): (&Partition, &Machine)| {
            let mut gpus = 0;
            if let Some(model) = model {
                gpus = machine.free_gpus(Some(model)).min(left.gpus).min(left_of(model));
                if gpus <= 0 {
                    return None;
                }
            }
            let cpus = machine.cpus.free().min(left.cpus);
            let memory_bytes = machine.memory_bytes.free().min(left.memory_bytes);
            let left = held.get(&*machine.name).copied();
            let is_open = machine.state.takes_work() && left.is_none_or(|left| left >= SHORT);
            let is_something = is_open && cpus > 0 && memory_bytes > 0;
            is_something.then(|| Offer {
                partition: partition.name.clone(),
                machine: machine.name.clone(),
                resources: Resources { gpus, gpu_model: model.map(str::to_owned), cpus, memory_bytes },
                most_seconds: left.into_iter().chain(partition.most_seconds).min(),
            })
        };
        let size = |offer: &Offer| {
            let Resources { gpus, cpus, memory_bytes, .. } = offer.resources;
            (gpus, cpus, memory_bytes, offer.most_seconds.unwrap_or(i64::MAX))
        };
        // Of equals the first, so that the answer does not change by itself.
        places.filter_map(offer).reduce(|best, next| if size(&best) < size(&next) { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::GIB;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const MUCH: Capacity = Capacity { gpus: i64::MAX, cpus: i64::MAX, memory_bytes: i64::MAX };

    fn machine(name: &str, state: MachineState, cpus: i64, gpus: &[(&str, i64, i64)]) -> Machine {
        Machine {
            name: name.to_owned(),
            partitions: vec!["gpu".to_owned()],
            state,
            word: String::new(),
            reason: None,
            cpus: Share { used: cpus, all: 8 },
            memory_bytes: Share { used: cpus * GIB, all: 8 * GIB },
            gpus: gpus.iter().map(|&(model, used, all)| (model.to_owned(), Share { used, all })).collect(),
        }
    }

    fn room() -> Machines {
        use MachineState::{Drained, Idle, Mixed};
        let partition = |name: &str, is_ours| Partition {
            name: name.to_owned(),
            is_ours,
            is_up: true,
            most_seconds: Some(3600),
            running: 0,
            waiting: 0,
        };
        let elsewhere = Machine { partitions: vec!["others".to_owned()], ..machine("n9", Idle, 0, &[("h100", 0, 8)]) };
        Machines {
            machines: vec![
                machine("n1", Mixed, 4, &[("a100", 1, 2), ("h100", 0, 1)]),
                machine("n2", Mixed, 6, &[("a100", 0, 2)]),
                machine("n3", Drained, 0, &[("a100", 0, 4)]),
                elsewhere,
            ],
            partitions: vec![partition("gpu", true), partition("others", false)],
            ..Machines::default()
        }
    }

    fn ours(partition: &Partition) -> bool {
        partition.is_ours
    }

    #[test]
    fn what_would_start_now() {
        let offers = room().offers(&MUCH, |_| i64::MAX, ours, NOW);
        let told: Vec<_> = offers.iter().map(|o| (o.machine.as_str(), o.resources.gpus, o.resources.cpus)).collect();
        assert_eq!(told, [("n2", 2, 2), ("n1", 1, 4), ("n1", 0, 4)], "the most GPUs, and without any the most cores");
        assert_eq!(offers[0].resources.memory_bytes, 2 * GIB);
        assert_eq!(offers[0].most_seconds, Some(3600));
    }

    #[test]
    fn within_what_somebody_may_have() {
        let left = Capacity { gpus: 1, cpus: 1, memory_bytes: GIB };
        let offers = room().offers(&left, |model| if model == "h100" { 0 } else { 5 }, ours, NOW);
        let told: Vec<_> =
            offers.iter().map(|o| (o.resources.gpu_model.as_deref(), o.resources.gpus, o.resources.cpus)).collect();
        assert_eq!(told, [(Some("a100"), 1, 1), (None, 0, 1)]);
        let mut down = room();
        down.partitions[0].is_up = false;
        assert_eq!(down.offers(&MUCH, |_| i64::MAX, ours, NOW), []);
        assert_eq!(room().offers(&Capacity { cpus: 0, ..MUCH }, |_| i64::MAX, ours, NOW), []);
    }

    #[test]
    fn a_reserved_node_is_offered_until_then() {
        let reserved = |from: i64| Machines {
            reservations: vec![Reservation {
                name: "maint".to_owned(),
                from: NOW.plus_seconds(from),
                to: NOW.plus_seconds(7200),
                nodes: vec!["n1".to_owned(), "n2".to_owned()],
                partition: None,
                users: Vec::new(),
                accounts: Vec::new(),
                is_maintenance: true,
                is_ours: false,
            }],
            ..room()
        };
        let most = |from| {
            reserved(from).offers(&MUCH, |_| i64::MAX, ours, NOW).iter().map(|o| o.most_seconds).collect::<Vec<_>>()
        };
        assert_eq!(most(600), [Some(600), Some(600), Some(600)], "ten minutes");
        let close = Machines { margin_seconds: 300, ..reserved(600) };
        assert_eq!(
            close.offers(&MUCH, |_| i64::MAX, ours, NOW)[0].most_seconds,
            Some(300),
            "five are asked for besides"
        );
        assert_eq!(most(-5), [], "it has begun");
        assert_eq!(most(5000), [Some(3600); 3], "the partition allows less");
        let past =
            Machines { reservations: vec![Reservation { to: NOW, ..reserved(-50).reservations.remove(0) }], ..room() };
        assert_eq!(past.offers(&MUCH, |_| i64::MAX, ours, NOW).len(), 3);
    }
}
