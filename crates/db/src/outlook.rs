//! The outlook: everything that decisions about waiting requests depend on, read in a few statements however many wait.
//! Most decisions change nothing and need no transaction. Nothing is reserved here: a request that is to be admitted or
//! refused is decided again by `admit`, under its lock. Only new reasons are written from the outlook.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    hash::{DefaultHasher, Hash, Hasher},
};

use sqlx::{AssertSqlSafe, FromRow, query_as, query_scalar};

use super::{
    Db, Json, Result,
    counted_groups::together,
    facts::{Applicant, FAIR_SHARE_SECONDS, Facts, LIVE, LiveWorkload, RECENT, Snapshot},
    limits_and_usage::{
        BoundGroup, Bounds, CLOSED, CLOSED_OF_GROUP, CLOSED_OF_MEMBERS, FROM_SHELL, FromShell, of_cluster,
    },
    quotas::{self, SHARES, ShareRow, of_a_group, of_nobody},
    reading, transaction,
    types::parse,
};
use lyceum_model::{
    GroupId, SessionId, Timestamp, UserId,
    quota::{Period, Reason},
};

/// What decisions about those who wait would be made from at one moment.
#[derive(Debug)]
pub struct Outlook {
    snapshot: Snapshot,
    parties: HashMap<(UserId, Option<GroupId>), Applicant>,
    /// The same for two moments at which the same rows were found.
    pub digest: u64,
}

impl Outlook {
    /// For one that waits; `None` where it did not wait at that moment.
    pub fn facts(&self, owner: UserId, id: SessionId) -> Result<Option<Facts>> {
        if !self.snapshot.waits(id) {
            return Ok(None);
        }
        let party = self.parties.get(&(owner, self.snapshot.group_of(id)));
        party.map(|party| self.snapshot.facts(party, Some(id))).transpose()
    }
}

/// Those who have something that waits.
macro_rules! waiting {
    () => {
        "(SELECT owner FROM sessions WHERE state <> 'ended' AND admitted_at IS NULL)"
    };
}

/// The rows that bear on those who wait: the defaults, which are of nobody, their groups' and their own.
pub(super) const LIMITS: &str = concat!(
    "SELECT '' AS owner, ",
    of_nobody!(),
    " FROM quota_limits WHERE scope = 'default' AND scope_id = '' AND kind = 'each'
     UNION ALL SELECT scope_id AS owner, ",
    of_nobody!(),
    " FROM quota_limits WHERE scope = 'user' AND kind = 'each' AND scope_id IN ",
    waiting!(),
    " UNION ALL SELECT user_id AS owner, ",
    of_a_group!(),
    " WHERE user_id IN ",
    waiting!(),
    " ORDER BY name, scope, field, kind"
);

#[derive(FromRow, Hash)]
struct LimitOf {
    owner: String,
    #[sqlx(flatten)]
    row: quotas::Row,
}

/// GPUs and cores × milliseconds since `$1` of what has ended, by owner.
pub(super) const CLOSED_OF_WAITING: &str = concat!(
    "SELECT owner, CAST(SUM(gpus * part) AS BIGINT), CAST(SUM(cpus * part) AS BIGINT)
     FROM (SELECT owner, gpus, cpus, ended_at - CASE WHEN started_at < $1 THEN $1 ELSE started_at END AS part
           FROM intervals WHERE ended_at > $1 AND owner IN ",
    waiting!(),
    ") AS parts GROUP BY owner"
);

/// The groups in which something counts that waits.
pub(super) const GROUPS: &str = "SELECT id, name, chargeable FROM groups
     WHERE id IN (SELECT charged_group FROM sessions WHERE state <> 'ended' AND admitted_at IS NULL)
         OR id IN (SELECT scope_id FROM quota_limits WHERE scope = 'group' AND kind = 'total')";

pub(super) const PEOPLE: &str = concat!("SELECT id, role, directory_role FROM users WHERE id IN ", waiting!());

/// So many reasons are written by one statement; each takes two of its parameters.
const ROWS: usize = 400;

/// What the statements found, before it is made anybody's.
struct OutlookRows {
    limits: Vec<LimitOf>,
    shares: Vec<ShareRow>,
    closed: HashMap<String, (i64, i64)>,
    closed_of_all: (i64, i64),
    groups: HashMap<GroupId, BoundGroup>,
    from_shell: Vec<FromShell>,
    people: HashMap<String, (String, Option<String>)>,
    maintenance: Option<String>,
}

impl Db {
    /// Looks at everybody who waits, in one moment.
    pub async fn outlook(&self, period: &Period, at: Timestamp) -> Result<Outlook> {
        let window = period.window(at);
        let (from, end) = (window.from.0, window.to.map_or(i64::MAX, |to| to.0));
        let (snapshot, digest, found) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let live: Vec<LiveWorkload> = query_as(LIVE).fetch_all(&mut *tx).await?;
            let recent: Vec<(String, i64)> = query_as(RECENT).bind(at.plus_seconds(-FAIR_SHARE_SECONDS).0).bind("").bind(at.0).fetch_all(&mut *tx).await?;
            let shares: Vec<ShareRow> = query_as(SHARES).bind(at.0).fetch_all(&mut *tx).await?;
            // Whoever waits is among those who are told of.
            let together = together(&mut *tx, "").await?;
            let limits: Vec<LimitOf> = query_as(LIMITS).fetch_all(&mut *tx).await?;
            let closed: Vec<(String, i64, i64)> = if limits.iter().any(|one| quotas::counts_hours(&one.row.field)) {
                query_as(CLOSED_OF_WAITING).bind(from).fetch_all(&mut *tx).await?
            } else {
                Vec::new()
            };
            let closed_of_all = if shares.iter().any(|row| row.is_of(None) && row.counts_hours()) {
                query_as(CLOSED).bind(from).fetch_one(&mut *tx).await?
            } else {
                (0, 0)
            };
            let rows: Vec<(String, String, bool)> = query_as(GROUPS).fetch_all(&mut *tx).await?;
            let (mut groups, mut hours) = (HashMap::new(), Vec::new());
            for (text, name, chargeable) in &rows {
                let totals = shares.iter().filter(|row| row.is_of(Some(text)));
                let mut besides = (0, 0);
                if totals.clone().any(ShareRow::counts_hours) {
                    let sql = if *chargeable { CLOSED_OF_GROUP } else { CLOSED_OF_MEMBERS };
                    besides = query_as(sql).bind(from).bind(text).fetch_one(&mut *tx).await?;
                }
                hours.push(besides);
                let (id, name, totals) = (parse(text, "group id")?, name.clone(), totals.map(ShareRow::limit).collect::<Result<_>>()?);
                groups.insert(id, BoundGroup { id, name, is_charged: false, totals, besides });
            }
            let from_shell: Vec<FromShell> = query_as(FROM_SHELL).bind(at.0).bind(from).bind(end).fetch_all(&mut *tx).await?;
            let people: Vec<(String, String, Option<String>)> = query_as(PEOPLE).fetch_all(&mut *tx).await?;
            let maintenance: Option<String> =
                query_scalar("SELECT value FROM settings WHERE name = 'maintenance'").fetch_optional(&mut *tx).await?;
            // A calendar period is identified by its end; a rolling period begins at another moment in each look.
            let found = (
                (&live, &recent, &shares, &together), (&limits, &closed, closed_of_all), (&rows, &hours), (&from_shell, &people),
                &maintenance, end,
            );
            let digest = digest(found);
            let snapshot = Snapshot::of(at, window, live, recent, &shares, together)?;
            let closed = closed.into_iter().map(|(owner, gpus, cpus)| (owner, (gpus, cpus))).collect();
            let people = people.into_iter().map(|(id, role, given)| (id, (role, given))).collect();
            (snapshot, digest, OutlookRows { limits, shares, closed, closed_of_all, groups, from_shell, people, maintenance })
        });
        let parties = parties(&snapshot, found)?;
        Ok(Outlook { snapshot, parties, digest })
    }

    /// Writes new reasons of some that wait, in one transaction; which of them waited still, for something else.
    pub async fn note_reasons(&self, reasons: &[(SessionId, Vec<Reason>)]) -> Result<HashSet<SessionId>> {
        let rows: Vec<(String, String)> =
            reasons.iter().map(|(id, reasons)| (id.to_string(), Json::write(reasons))).collect();
        let changed: Vec<String> = transaction!(self, tx => {
            let mut changed = Vec::new();
            for rows in rows.chunks(ROWS) {
                let sql = set_reasons(rows.len());
                let mut statement = query_scalar(AssertSqlSafe(sql));
                for (id, reasons) in rows {
                    statement = statement.bind(id).bind(reasons);
                }
                let some: Vec<String> = statement.fetch_all(&mut *tx).await?;
                changed.extend(some);
            }
            changed
        });
        changed.iter().map(|id| parse(id, "session id")).collect()
    }
}

/// Hashes what was read, to compare it with what was read before in the same process.
pub fn digest(read: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    read.hash(&mut hasher);
    hasher.finish()
}

/// Both databases call the columns of `VALUES` alike.
pub(super) fn set_reasons(count: usize) -> String {
    let mut sql = "UPDATE sessions SET reasons = said.column2 FROM (VALUES ".to_owned();
    for row in 0..count {
        let comma = if row == 0 { "" } else { ", " };
        // Writing to a text does not fail.
        let _ = write!(sql, "{comma}(${}, ${})", 2 * row + 1, 2 * row + 2);
    }
    sql + ") AS said WHERE id = said.column1 AND state = 'queued' AND admitted_at IS NULL
        AND reasons <> said.column2 RETURNING id"
}

/// What binds each of those who wait.
fn parties(snapshot: &Snapshot, found: OutlookRows) -> Result<HashMap<(UserId, Option<GroupId>), Applicant>> {
    let OutlookRows { limits, shares, closed, closed_of_all, groups, from_shell, people, maintenance } = found;
    let (mut defaults, mut own) = (Vec::new(), HashMap::<String, Vec<quotas::Row>>::new());
    for LimitOf { owner, row } in limits {
        if owner.is_empty() { defaults.push(row) } else { own.entry(owner).or_default().push(row) }
    }
    let cluster = of_cluster(&shares)?;
    let mut parties = HashMap::new();
    for (owner, charged) in snapshot.parties() {
        let id = owner.to_string();
        let Some((role, given)) = people.get(&id) else { continue };
        let limits = defaults.iter().chain(own.get(&id).into_iter().flatten()).cloned().collect();
        let counts_in = snapshot.counts_in(owner, charged);
        let groups = counts_in.iter().filter_map(|id| groups.get(id));
        let groups =
            groups.map(|group| BoundGroup { is_charged: charged == Some(group.id), ..group.clone() }).collect();
        let of_person = closed.get(&id).copied().unwrap_or_default();
        let mut bounds = Bounds { limits, groups, cluster: cluster.clone(), of_person, of_all: closed_of_all };
        bounds.add_from_shell(&id, &from_shell, snapshot.together())?;
        let asker = (role.clone(), given.clone(), maintenance.clone());
        parties.insert((owner, charged), Applicant { owner, group: charged, bounds, asker });
    }
    Ok(parties)
}
