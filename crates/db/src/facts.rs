//! What a decision is made from: everything that is held, by whom and until when, and who
//! waits. It is read inside admission's transaction; those who only look take the sums of
//! `standing`.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use sqlx::{FromRow, query_as};

use super::{
    Db, Json, Result,
    counted_groups::{CountedGroups, together},
    limits_and_usage::{BoundGroup, Bounds, HeldUsage, LimitsAndUsage},
    quotas, reading,
    types::parse,
};
use lyceum_model::{
    Gpu, GroupId, Maintenance, Resources, Role, SessionId, Timestamp, UserId,
    quota::{
        Class, ConsumedTime, GroupShare, HeldResources, Interval, Queue, Reason, Request, Usage, WaitingRequest,
        Window, waits_for_room,
    },
};

/// What is true at the moment of the decision.
#[derive(Clone, Debug)]
pub struct Facts {
    pub owner: UserId,
    /// The group that is charged.
    pub group: Option<GroupId>,
    /// The groups in which it counts.
    pub groups: Vec<GroupId>,
    /// Limits and use, the request that is decided again left out.
    pub sums: LimitsAndUsage,
    /// The names and GPUs of the person's own live sessions, for the sentence that says what to stop.
    pub own: Vec<(String, i64)>,
    pub common: Arc<SharedFacts>,
    /// What the person used of GPUs lately, for the order among those that wait.
    pub recent_gpu_seconds: i64,
    /// When this request was made.
    pub since: Timestamp,
    pub maintenance: Option<Maintenance>,
    pub is_admin: bool,
}

/// Holds the part of the facts that is equal for all users.
#[derive(Debug, Default)]
pub struct SharedFacts {
    /// UUIDs of the GPUs that admitted workloads hold.
    pub gpus_taken: HashSet<String>,
    /// What is held, and until when.
    pub held: Vec<HeldResources>,
    /// Who waits; the one that is decided about is among them.
    pub waiting: Vec<WaitingRequest>,
    /// What groups, and all people, may use together.
    pub shares: Vec<GroupShare>,
    /// Made of them by the first who asks.
    pub queue: OnceLock<Queue>,
}

/// What people hold now.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// Those who hold something or wait, by name.
    pub by_user: Vec<(UserId, String, Usage)>,
    /// What counts in each group.
    pub by_group: HashMap<GroupId, Usage>,
    pub all: Usage,
    pub waiting: Vec<WaitingWorkload>,
    pub together: CountedGroups,
}

/// Describes a waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingWorkload {
    pub owner: UserId,
    pub name: String,
    /// The groups in which it counts.
    pub groups: Vec<GroupId>,
    pub request: Request,
}

/// What something that is admitted may still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub owner: UserId,
    pub group: Option<GroupId>,
    pub spent: ConsumedTime,
}

/// Over how long GPU-hours count for the order among those that wait (seconds).
pub(super) const FAIR_SHARE_SECONDS: i64 = 7 * 86_400;

#[derive(FromRow, Hash)]
pub(super) struct LiveWorkload {
    pub id: String,
    owner: String,
    name: String,
    pub state: String,
    created_at: i64,
    pub admitted_at: Option<i64>,
    expires_at: Option<i64>,
    duration_seconds: i64,
    gpus: i64,
    gpu_model: Option<String>,
    cpus: i64,
    memory_bytes: i64,
    light: bool,
    job_id: Option<String>,
    gpu_list: String,
    reasons: String,
    pub charged_group: Option<String>,
    /// Since when it is really held, and what of it; `None` while a scheduler's own queue has it.
    held_from: Option<i64>,
    held_gpus: i64,
    held_cpus: i64,
}

pub(super) const LIVE: &str =
    "SELECT s.id, s.owner, name, state, created_at, admitted_at, expires_at, duration_seconds, s.gpus,
         gpu_model, s.cpus, s.memory_bytes, light, job_id, s.gpu_list, reasons, s.charged_group,
         i.started_at AS held_from, COALESCE(i.gpus, s.gpus) AS held_gpus, COALESCE(i.cpus, s.cpus) AS held_cpus
     FROM sessions s LEFT JOIN intervals i ON i.session_id = s.id AND i.ended_at IS NULL WHERE s.state <> 'ended'";

/// Jobs from a shell that are over at some time: when, whose, which group is charged, and what they hold.
pub(super) const RUNNING: &str = "SELECT ends_by, owner, charged_group, gpus, cpus FROM intervals
     WHERE session_id IS NULL AND ended_at IS NULL AND ends_by IS NOT NULL";

type Running = (i64, String, Option<String>, i64, i64);

/// GPUs × milliseconds since `$1` of those who wait, and of `$2`: of what has ended; and of everybody's jobs from
/// a shell, up to `$3`, now.
pub(super) const RECENT: &str = "SELECT owner, CAST(SUM(part) AS BIGINT) FROM (
         SELECT owner, gpus * (ended_at - CASE WHEN started_at < $1 THEN $1 ELSE started_at END) AS part
             FROM intervals WHERE ended_at > $1 AND gpus > 0 AND (owner = $2 OR owner IN
                 (SELECT owner FROM sessions WHERE state <> 'ended' AND admitted_at IS NULL))
         UNION ALL
         SELECT owner, gpus * ($3 - CASE WHEN started_at < $1 THEN $1 ELSE started_at END) AS part
             FROM intervals WHERE session_id IS NULL AND ended_at IS NULL AND gpus > 0 AND started_at < $3) AS parts
     GROUP BY owner";

/// `$1` whoever asks: the role that was given here, the one that the directory gives, and
/// maintenance, if any.
pub(super) const ASKER: &str =
    "SELECT role, directory_role, (SELECT value FROM settings WHERE name = 'maintenance') FROM users WHERE id = $1";

pub(super) type RequesterKey = (String, Option<String>, Option<String>);

/// Everything that lives at a moment, taken apart once: decisions about many are made from one look.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub at: Timestamp,
    pub window: Window,
    workloads: HashMap<SessionId, Workload>,
    /// GPUs × seconds lately.
    recent: HashMap<UserId, i64>,
    together: Arc<CountedGroups>,
    tallies: HeldAndWaiting,
    common: Arc<SharedFacts>,
}

/// What is held and what waits, and the hours to the end of what is held.
#[derive(Debug, Default)]
struct HeldAndWaiting {
    people: HashMap<UserId, HeldUsage>,
    groups: HashMap<GroupId, HeldUsage>,
    all: HeldUsage,
    /// The names and GPUs of what each person could stop.
    stoppable: HashMap<UserId, Vec<(String, i64)>>,
}

#[derive(Debug)]
struct Workload {
    id: SessionId,
    owner: UserId,
    /// Which group is charged.
    group: Option<GroupId>,
    name: String,
    created_at: Timestamp,
    request: Request,
    stand: QueueState,
}

/// How something that lives stands to admission.
#[derive(Debug)]
enum QueueState {
    /// Whether shared room alone is missing.
    Waits {
        lacks_room: bool,
        is_queued: bool,
    },
    Holds {
        gpus: Vec<Gpu>,
        interval: Interval,
    },
}

/// Who asks, and what binds them and the groups in which it counts.
#[derive(Debug)]
pub(super) struct Applicant {
    pub owner: UserId,
    /// Which group is charged.
    pub group: Option<GroupId>,
    pub bounds: Bounds,
    pub asker: RequesterKey,
}

impl Db {
    /// What everybody holds now, without hours.
    pub async fn holdings(&self) -> Result<Holdings> {
        let (together, live, names): (CountedGroups, Vec<LiveWorkload>, Vec<(String, String)>) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            (
                together(&mut *tx, "").await?,
                query_as(LIVE).fetch_all(&mut *tx).await?,
                query_as("SELECT id, name FROM users WHERE id IN (SELECT owner FROM sessions WHERE state <> 'ended')")
                    .fetch_all(&mut *tx).await?,
            )
        });
        let mut holdings = Holdings::default();
        let mut by_user: HashMap<String, Usage> = HashMap::new();
        for row in live {
            let (owner, id) = (parse(&row.owner, "user id")?, parse(&row.id, "session id")?);
            let groups = together.groups(owner, group_id(row.charged_group.as_deref())?, Some(id));
            let usage = by_user.entry(row.owner.clone()).or_default();
            if row.admitted_at.is_none() {
                usage.pending += 1;
                holdings.all.pending += 1;
                holdings.waiting.push(WaitingWorkload { owner, groups, request: request(&row), name: row.name });
                continue;
            }
            let gpus: Vec<Gpu> = Json::read_or_default(&row.gpu_list);
            let resources = request(&row).resources;
            let class = class(&row);
            usage.add(&resources, class);
            usage.hold(&gpus);
            holdings.all.add(&resources, class);
            holdings.all.hold(&gpus);
            for group in groups {
                let of_group = holdings.by_group.entry(group).or_default();
                of_group.add(&resources, class);
                of_group.hold(&gpus);
            }
        }
        for (id, name) in names {
            if let Some(usage) = by_user.remove(&id) {
                holdings.by_user.push((parse(&id, "user id")?, name, usage));
            }
        }
        holdings.by_user.sort_by(|one, other| one.1.cmp(&other.1));
        holdings.together = together;
        Ok(holdings)
    }

    /// What all that is admitted may use of a period from now to its end: each person's, with the
    /// group that is charged.
    pub async fn committed(&self, window: Window, at: Timestamp) -> Result<Vec<Committed>> {
        let (live, from_shell): (Vec<LiveWorkload>, Vec<Running>) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            (query_as(LIVE).fetch_all(&mut *tx).await?, query_as(RUNNING).fetch_all(&mut *tx).await?)
        });
        let own = live.into_iter().filter(|row| row.admitted_at.is_some()).map(|row| {
            let began = row.held_from.map_or(at, Timestamp);
            let ends = row.expires_at.map_or(began.plus_seconds(row.duration_seconds), Timestamp);
            (began, ends.0, row.owner, row.charged_group, row.held_gpus, row.held_cpus)
        });
        let from_shell = from_shell.into_iter().map(|row| (at, row.0, row.1, row.2, row.3, row.4));
        let rest = |(began, ends, owner, group, gpus, cpus): (Timestamp, i64, String, Option<String>, i64, i64)| {
            let milliseconds = window.part(began.max(at), Timestamp(ends));
            Ok(Committed {
                owner: parse(&owner, "user id")?,
                group: group_id(group.as_deref())?,
                spent: ConsumedTime {
                    gpu_milliseconds: milliseconds.saturating_mul(gpus),
                    cpu_milliseconds: milliseconds.saturating_mul(cpus),
                },
            })
        };
        own.chain(from_shell).map(rest).collect()
    }

    /// What those who wait used of GPUs lately (GPUs × seconds), for the order among them.
    pub async fn recent_gpu_seconds(&self, at: Timestamp) -> Result<HashMap<UserId, i64>> {
        let (live, recent): (Vec<LiveWorkload>, Vec<(String, i64)>) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            (
                query_as(LIVE).fetch_all(&mut *tx).await?,
                query_as(RECENT).bind(at.plus_seconds(-FAIR_SHARE_SECONDS).0).bind("").bind(at.0).fetch_all(&mut *tx).await?,
            )
        });
        let workloads: Vec<Workload> = live.into_iter().map(|row| workload(row, at)).collect::<Result<_>>()?;
        recently(recent, &workloads, at)
    }
}

impl Snapshot {
    /// `recent` and `shares` may be left out where nobody is put in an order.
    pub fn of(
        at: Timestamp,
        window: Window,
        live: Vec<LiveWorkload>,
        recent: Vec<(String, i64)>,
        shares: &[quotas::ShareRow],
        together: CountedGroups,
    ) -> Result<Self> {
        let workloads: Vec<Workload> = live.into_iter().map(|row| workload(row, at)).collect::<Result<_>>()?;
        let shares = shares.iter().map(quotas::ShareRow::share).collect::<Result<Vec<_>>>()?;
        let recent = recently(recent, &workloads, at)?;
        let mut common = SharedFacts { shares: shares.into_iter().flatten().collect(), ..SharedFacts::default() };
        let mut tallies = HeldAndWaiting::default();
        for one in &workloads {
            let groups = together.groups(one.owner, one.group, Some(one.id));
            tallies.add(one, &groups, window, at);
            match &one.stand {
                QueueState::Waits { lacks_room, .. } => common.waiting.push(WaitingRequest {
                    owner: one.owner,
                    groups,
                    request: one.request.clone(),
                    recent_gpu_seconds: recent.get(&one.owner).copied().unwrap_or(0),
                    since: one.created_at,
                    lacks_room: *lacks_room,
                }),
                QueueState::Holds { gpus, interval } => {
                    common.gpus_taken.extend(gpus.iter().map(|gpu| gpu.uuid.clone()));
                    common.held.push(HeldResources {
                        request: one.request.clone(),
                        groups,
                        gpus: gpus.iter().map(|gpu| gpu.model.clone()).collect(),
                        ends_by: interval.ends_by,
                    });
                }
            }
        }
        let workloads = workloads.into_iter().map(|one| (one.id, one)).collect();
        Ok(Self { at, window, workloads, recent, together: Arc::new(together), tallies, common: Arc::new(common) })
    }

    /// What a decision for somebody is made from. One that waits and is decided about again does not count as
    /// one that waits.
    pub fn facts(&self, party: &Applicant, reconsidered: Option<SessionId>) -> Result<Facts> {
        let HeldAndWaiting { people, groups, all, stoppable } = &self.tallies;
        let mut own = people.get(&party.owner).cloned().unwrap_or_default();
        let of_group = |group: &BoundGroup| groups.get(&group.id).cloned().unwrap_or_default();
        let mut of_groups: Vec<HeldUsage> = party.bounds.groups.iter().map(of_group).collect();
        let mut all = all.clone();
        let again = reconsidered.and_then(|id| self.workloads.get(&id));
        if let Some(one) = again.filter(|one| matches!(one.stand, QueueState::Waits { .. })) {
            let counted = self.groups_of(one);
            let of_group = party.bounds.groups.iter().zip(&mut of_groups);
            let of_group = of_group.filter(|(group, _)| counted.contains(&group.id)).map(|(_, tally)| tally);
            of_group.chain([&mut own, &mut all]).for_each(|tally| tally.usage.pending -= 1);
        }
        let (role, directory_role, maintenance) = &party.asker;
        let is_admin =
            [Some(role), directory_role.as_ref()].into_iter().flatten().any(|role| role == Role::Admin.as_str());
        Ok(Facts {
            owner: party.owner,
            group: party.group,
            groups: party.bounds.groups.iter().map(|group| group.id).collect(),
            sums: party.bounds.sums(self.at, self.window, (own, of_groups, all), Arc::clone(&self.together))?,
            own: stoppable.get(&party.owner).cloned().unwrap_or_default(),
            common: Arc::clone(&self.common),
            recent_gpu_seconds: self.recent.get(&party.owner).copied().unwrap_or(0),
            since: again.map_or(self.at, |one| one.created_at),
            maintenance: super::maintenance::read(maintenance.as_deref())?,
            is_admin,
        })
    }

    /// Whether one waits to be decided about.
    pub fn waits(&self, id: SessionId) -> bool {
        self.workloads.get(&id).is_some_and(|one| matches!(one.stand, QueueState::Waits { is_queued: true, .. }))
    }

    /// The group that one is charged to.
    pub fn group_of(&self, id: SessionId) -> Option<GroupId> {
        self.workloads.get(&id).and_then(|one| one.group)
    }

    /// The groups in which a request of somebody's counts that is charged to this group.
    pub fn counts_in(&self, owner: UserId, charged: Option<GroupId>) -> Vec<GroupId> {
        self.together.groups(owner, charged, None)
    }

    /// The groups in which one counts.
    pub fn groups_of_session(&self, id: SessionId) -> Vec<GroupId> {
        self.workloads.get(&id).map(|one| self.groups_of(one)).unwrap_or_default()
    }

    fn groups_of(&self, one: &Workload) -> Vec<GroupId> {
        self.together.groups(one.owner, one.group, Some(one.id))
    }

    /// In which groups what people hold counts.
    pub fn together(&self) -> &CountedGroups {
        &self.together
    }

    /// Those who wait, each with the group that is charged, once.
    pub fn parties(&self) -> HashSet<(UserId, Option<GroupId>)> {
        let waiting = self.workloads.values().filter(|one| matches!(one.stand, QueueState::Waits { .. }));
        waiting.map(|one| (one.owner, one.group)).collect()
    }
}

impl HeldAndWaiting {
    fn add(&mut self, one: &Workload, groups: &[GroupId], window: Window, at: Timestamp) {
        let mut count = |add: &dyn Fn(&mut HeldUsage)| {
            add(&mut self.all);
            add(self.people.entry(one.owner).or_default());
            for group in groups {
                add(self.groups.entry(*group).or_default());
            }
        };
        let (gpus, interval) = match &one.stand {
            QueueState::Waits { .. } => return count(&|tally| tally.usage.pending += 1),
            QueueState::Holds { gpus, interval } => (gpus, interval),
        };
        let spent = window.spent([*interval], at);
        count(&|tally| {
            tally.usage.add(&one.request.resources, one.request.class);
            tally.usage.hold(gpus);
            tally.spent.0 = tally.spent.0.saturating_add(spent.gpu_milliseconds);
            tally.spent.1 = tally.spent.1.saturating_add(spent.cpu_milliseconds);
        });
        let stoppable = self.stoppable.entry(one.owner).or_default();
        stoppable.push((one.name.clone(), one.request.resources.gpus));
    }
}

fn workload(row: LiveWorkload, at: Timestamp) -> Result<Workload> {
    let request = request(&row);
    let stand = if row.admitted_at.is_none() {
        let reasons: Vec<Reason> = Json::read_or_default(&row.reasons);
        QueueState::Waits { lacks_room: waits_for_room(&reasons), is_queued: row.state == "queued" }
    } else {
        // What a queue elsewhere has uses nothing yet, and may use all that it asked for.
        let started_at = row.held_from.map_or(at, Timestamp);
        let ends_by = row.expires_at.map_or(started_at.plus_seconds(row.duration_seconds), Timestamp);
        let interval = Interval { gpus: row.held_gpus, cpus: row.held_cpus, started_at, ended_at: None, ends_by };
        QueueState::Holds { gpus: Json::read_or_default(&row.gpu_list), interval }
    };
    Ok(Workload {
        id: parse(&row.id, "session id")?,
        owner: parse(&row.owner, "user id")?,
        group: group_id(row.charged_group.as_deref())?,
        name: row.name,
        created_at: Timestamp(row.created_at),
        request,
        stand,
    })
}

/// GPUs × seconds of each person lately: of what is known to be used, and of what is held up to now.
fn recently(known: Vec<(String, i64)>, live: &[Workload], at: Timestamp) -> Result<HashMap<UserId, i64>> {
    let known = known.into_iter().map(|(owner, part)| Ok((parse(&owner, "user id")?, part)));
    let mut recent: HashMap<UserId, i64> = known.collect::<Result<_>>()?;
    let begin = at.plus_seconds(-FAIR_SHARE_SECONDS);
    for one in live {
        let part = recent.entry(one.owner).or_default();
        if let QueueState::Holds { interval, .. } = &one.stand {
            let held = at.0.saturating_sub(interval.started_at.max(begin).0).max(0);
            *part = part.saturating_add(held.saturating_mul(interval.gpus));
        }
    }
    Ok(recent.into_iter().map(|(owner, part)| (owner, part / 1000)).collect())
}

fn group_id(text: Option<&str>) -> Result<Option<GroupId>> {
    text.map(|text| parse(text, "group id")).transpose()
}

fn request(row: &LiveWorkload) -> Request {
    let resources =
        Resources { gpus: row.gpus, gpu_model: row.gpu_model.clone(), cpus: row.cpus, memory_bytes: row.memory_bytes };
    Request { resources, duration_seconds: row.duration_seconds, class: class(row) }
}

fn class(row: &LiveWorkload) -> Class {
    Class::of(row.light, row.job_id.is_some())
}
