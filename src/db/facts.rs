//! What a decision is made from: everything that is held, by whom and until when, and who
//! waits. It is read inside admission's transaction; those who only look take the sums of
//! `standing`.

use std::collections::{HashMap, HashSet};

use sqlx::{FromRow, query_as};

use super::{
    Db, Json, Result, quotas, reading,
    standing::{Bounds, Sums},
    types::parse,
};
use crate::model::{
    Gpu, GroupId, Maintenance, Resources, Role, Timestamp, UserId,
    quota::{Class, Held, Interval, Reason, Request, Share, Spent, Usage, Waiter, Window},
};

/// What is true at the moment of the decision.
#[derive(Clone, Debug)]
pub struct Facts {
    pub owner: UserId,
    /// The group that is charged.
    pub group: Option<GroupId>,
    /// Limits and use, the request that is decided again left out.
    pub sums: Sums,
    /// UUIDs of the GPUs that admitted workloads hold.
    pub gpus_taken: HashSet<String>,
    /// The names and GPUs of the person's own live sessions, for the sentence that says what to stop.
    pub own: Vec<(String, i64)>,
    /// What is held, and until when.
    pub held: Vec<Held>,
    /// Who else waits.
    pub waiting: Vec<Waiter>,
    /// What groups, and all people, may use together.
    pub shares: Vec<Share>,
    /// What the person used of GPUs lately, for the order among those that wait.
    pub recent_gpu_seconds: i64,
    /// When this request was made.
    pub since: Timestamp,
    pub maintenance: Option<Maintenance>,
    pub is_admin: bool,
}

/// What people hold now.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// Those who hold something or wait, by name.
    pub by_user: Vec<(UserId, String, Usage)>,
    pub by_group: HashMap<GroupId, Usage>,
    pub all: Usage,
    pub waiting: Vec<Waiting>,
}

/// Somebody's request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub owner: UserId,
    pub name: String,
    pub group: Option<GroupId>,
    pub request: Request,
}

/// What something that is admitted may still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub owner: UserId,
    pub group: Option<GroupId>,
    pub spent: Spent,
}

/// Over how long GPU-hours count for the order among those that wait (seconds).
pub(super) const LATELY: i64 = 7 * 86_400;

#[derive(FromRow)]
pub(super) struct Live {
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

/// GPUs × milliseconds since `$1` of those who wait, and of `$2`; of what has ended.
pub(super) const RECENT: &str =
    "SELECT owner, CAST(SUM(gpus * (ended_at - CASE WHEN started_at < $1 THEN $1 ELSE started_at END)) AS BIGINT)
     FROM intervals WHERE ended_at > $1 AND gpus > 0 AND (owner = $2 OR owner IN
         (SELECT owner FROM sessions WHERE state <> 'ended' AND admitted_at IS NULL))
     GROUP BY owner";

/// `$1` whoever asks: the role that was given here, the one that the directory gives, and
/// maintenance, if any.
pub(super) const ASKER: &str =
    "SELECT role, directory_role, (SELECT value FROM settings WHERE name = 'maintenance') FROM users WHERE id = $1";

pub(super) type Asker = (String, Option<String>, Option<String>);

/// What was read, before it is summed up.
pub(super) struct Rows {
    pub at: Timestamp,
    pub window: Window,
    pub live: Vec<Live>,
    pub bounds: Bounds,
    pub recent: Vec<(String, i64)>,
    pub shares: Vec<quotas::ShareRow>,
    pub asker: Asker,
}

impl Db {
    /// What everybody holds now, without hours.
    pub async fn holdings(&self) -> Result<Holdings> {
        let (live, names): (Vec<Live>, Vec<(String, String)>) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            (
                query_as(LIVE).fetch_all(&mut *tx).await?,
                query_as("SELECT id, name FROM users WHERE id IN (SELECT owner FROM sessions WHERE state <> 'ended')")
                    .fetch_all(&mut *tx).await?,
            )
        });
        let mut holdings = Holdings::default();
        let mut by_user: HashMap<String, Usage> = HashMap::new();
        for row in live {
            let usage = by_user.entry(row.owner.clone()).or_default();
            if row.admitted_at.is_none() {
                usage.pending += 1;
                holdings.all.pending += 1;
                holdings.waiting.push(Waiting {
                    owner: parse(&row.owner, "user id")?,
                    group: group_id(row.charged_group.as_deref())?,
                    request: request(&row),
                    name: row.name,
                });
                continue;
            }
            let gpus: Vec<Gpu> = Json::read(&row.gpu_list, "session's GPUs")?;
            let resources = request(&row).resources;
            let class = class(&row);
            usage.add(&resources, class);
            usage.hold(&gpus);
            holdings.all.add(&resources, class);
            holdings.all.hold(&gpus);
            if let Some(group) = &row.charged_group {
                let of_group = holdings.by_group.entry(parse(group, "group id")?).or_default();
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
        Ok(holdings)
    }

    /// What all that is admitted may use of a period from now to its end: each person's, with the
    /// group that is charged.
    pub async fn committed(&self, window: Window, at: Timestamp) -> Result<Vec<Committed>> {
        let (live, from_shell): (Vec<Live>, Vec<Running>) = reading!(self, pool => {
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
                spent: Spent {
                    gpu_milliseconds: milliseconds.saturating_mul(gpus),
                    cpu_milliseconds: milliseconds.saturating_mul(cpus),
                },
            })
        };
        own.chain(from_shell).map(rest).collect()
    }

    /// What those who wait used of GPUs lately (GPUs × seconds), for the order among them.
    pub async fn recent_gpu_seconds(&self, at: Timestamp) -> Result<HashMap<UserId, i64>> {
        let (live, closed): (Vec<Live>, Vec<(String, i64)>) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            (
                query_as(LIVE).fetch_all(&mut *tx).await?,
                query_as(RECENT).bind(at.plus_seconds(-LATELY).0).bind("").fetch_all(&mut *tx).await?,
            )
        });
        recently(closed, &live, at)
            .into_iter()
            .map(|(owner, seconds)| Ok((parse(&owner, "user id")?, seconds)))
            .collect()
    }
}

/// GPUs × seconds of each person lately: of what has ended, and of what is held up to now.
fn recently(closed: Vec<(String, i64)>, live: &[Live], at: Timestamp) -> HashMap<String, i64> {
    let mut recent: HashMap<String, i64> = closed.into_iter().collect();
    let begin = at.plus_seconds(-LATELY).0;
    for row in live {
        let held = row.held_from.map_or(0, |from| at.0.saturating_sub(from.max(begin)).max(0));
        let part = recent.entry(row.owner.clone()).or_default();
        *part = part.saturating_add(held.saturating_mul(row.held_gpus));
    }
    recent.into_iter().map(|(owner, part)| (owner, part / 1000)).collect()
}

/// Sums up the live rows, leaving out the one that is being reconsidered.
pub(super) fn facts(owner_id: UserId, reconsidered: Option<&str>, group: Option<&str>, rows: Rows) -> Result<Facts> {
    let owner = &*owner_id.to_string();
    let Rows { at, window, live, bounds, recent, shares, asker } = rows;
    let recent = recently(recent, &live, at);
    let (mut gpus_taken, mut since) = (HashSet::new(), at);
    let (mut own, mut held, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    // The person's, the group's, everybody's: what is held now, and the hours of it to its end.
    let mut usages: [Usage; 3] = Default::default();
    let mut open: [Vec<Interval>; 3] = Default::default();
    for row in live {
        if Some(row.id.as_str()) == reconsidered {
            since = Timestamp(row.created_at);
            continue;
        }
        let counts = [row.owner == owner, group.is_some() && row.charged_group.as_deref() == group, true];
        if row.admitted_at.is_none() {
            for (_, usage) in counts.into_iter().zip(&mut usages).filter(|(counts, _)| *counts) {
                usage.pending += 1;
            }
            waiting.push(waiter(&row, &recent)?);
            continue;
        }
        let gpus: Vec<Gpu> = Json::read(&row.gpu_list, "session's GPUs")?;
        // What a queue elsewhere has uses nothing yet, and may use all that it asked for.
        let started_at = row.held_from.map_or(at, Timestamp);
        let ends_by = row.expires_at.map_or(started_at.plus_seconds(row.duration_seconds), Timestamp);
        let interval = Interval { gpus: row.held_gpus, cpus: row.held_cpus, started_at, ended_at: None, ends_by };
        let request = request(&row);
        for ((_, usage), open) in counts.into_iter().zip(&mut usages).zip(&mut open).filter(|((counts, _), _)| *counts)
        {
            usage.add(&request.resources, request.class);
            usage.hold(&gpus);
            open.push(interval);
        }
        if row.owner == owner {
            own.push((row.name, row.gpus));
        }
        let models = gpus.iter().map(|gpu| gpu.model.clone()).collect();
        held.push(Held { request, group: group_id(row.charged_group.as_deref())?, gpus: models, ends_by });
        gpus_taken.extend(gpus.into_iter().map(|gpu| gpu.uuid));
    }
    let open = open.map(|intervals| {
        let spent = window.spent(intervals, at);
        (spent.gpu_milliseconds, spent.cpu_milliseconds)
    });
    let recent_gpu_seconds = recent.get(owner).copied().unwrap_or(0);
    let sums = bounds.sums(at, window, usages, open)?;
    let (role, directory_role, maintenance) = asker;
    let is_admin = [Some(role), directory_role].into_iter().flatten().any(|role| role == Role::Admin.as_str());
    let maintenance = super::maintenance::read(maintenance.as_deref())?;
    Ok(Facts {
        owner: owner_id,
        group: group_id(group)?,
        sums,
        gpus_taken,
        own,
        held,
        waiting,
        shares: shares
            .into_iter()
            .map(quotas::ShareRow::share)
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect(),
        recent_gpu_seconds,
        since,
        maintenance,
        is_admin,
    })
}

fn waiter(row: &Live, recent: &HashMap<String, i64>) -> Result<Waiter> {
    let reasons: Vec<Reason> = Json::read(&row.reasons, "session's reasons")?;
    Ok(Waiter {
        owner: parse(&row.owner, "user id")?,
        group: group_id(row.charged_group.as_deref())?,
        request: request(row),
        recent_gpu_seconds: recent.get(&row.owner).copied().unwrap_or(0),
        since: Timestamp(row.created_at),
        lacks_room: !reasons.is_empty() && reasons.iter().all(Reason::is_about_room),
    })
}

fn group_id(text: Option<&str>) -> Result<Option<GroupId>> {
    text.map(|text| parse(text, "group id")).transpose()
}

fn request(row: &Live) -> Request {
    let resources =
        Resources { gpus: row.gpus, gpu_model: row.gpu_model.clone(), cpus: row.cpus, memory_bytes: row.memory_bytes };
    Request { resources, duration_seconds: row.duration_seconds, class: class(row) }
}

fn class(row: &Live) -> Class {
    Class::of(row.light, row.job_id.is_some())
}
