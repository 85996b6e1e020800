//! Quotas over REST: what binds somebody and where it comes from, and changes at the default,
//! for one person or some, for a group and for all together. One field can change alone;
//! `null` inherits, -1 is unlimited. Operators read; a group's manager shares out what the
//! group has. What a change would mean is `preview`'s, the list of people `table`'s; the
//! pages over the same are `pages`, `groups` and `selection`.

mod change;
mod draw;
mod form;
pub mod groups;
pub mod pages;
mod preview;
pub mod selection;
#[expect(unused_qualifications, reason = "written by utoipa's macro for the parameters of a list")]
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    extract::{Path, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use change::{GroupQuotaChange, QuotaChange};
pub use preview::{__path_preview, preview};
pub use table::{__path_table, download, page, table};

use super::{
    Portal,
    http::{
        error::{Error, Result},
        extract::{Admin, GroupReader, Json, Operator},
    },
};
use crate::{
    admission::{ChangePreview, QuotaStatus, slurm_limits::READ_ONLY},
    auth::Principal,
    db::{
        limits::{Author, LevelChange, Outcome},
        quotas::{Level, QuotaGroup, SetLimit, Version},
        refusals::Refusal,
    },
    model::{
        FieldError, Resources, Role, SessionId, Timestamp, User,
        quota::{Field, Kind, Limit, Reason, Usage},
    },
};
use change::ParsedChange;

/// A limit and where it comes from.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Effective {
    /// -1 is unlimited.
    pub limit: i64,
    /// `override`, `override until …`, `group vision`, `default` or `machine`.
    pub source: String,
}

/// The effective limits of a user, the overrides, and the current usage.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserQuota {
    pub user: String,
    /// The effective limits, by field.
    pub effective: BTreeMap<String, Effective>,
    /// The fields that are set for this user alone.
    pub overrides: BTreeMap<String, Override>,
    pub usage: Usage,
    /// Recently rejected requests, latest first.
    pub refusals: Vec<RefusalView>,
}

/// A request that was rejected.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Refusal)]
pub struct RefusalView {
    pub app: String,
    pub name: String,
    pub resources: Resources,
    pub duration_seconds: i64,
    pub reasons: Vec<Reason>,
    #[schema(value_type = String, format = "date-time")]
    pub at: Timestamp,
    /// The session or attempt, if the request was queued first.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub session: Option<SessionId>,
}

/// A field that is set at one level.
#[derive(Debug, Serialize, ToSchema)]
pub struct Override {
    /// -1 is unlimited.
    pub value: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
    /// The user who set it last.
    pub updated_by: String,
    #[schema(value_type = String, format = "date-time")]
    pub updated_at: Timestamp,
}

/// The fields that an administrator set at one level. All other fields are inherited.
#[derive(Debug, Serialize, ToSchema)]
pub struct LevelQuota {
    pub fields: BTreeMap<String, Override>,
}

/// The totals of the cluster, and the usage of all users together.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterQuota {
    pub fields: BTreeMap<String, Override>,
    pub usage: Usage,
}

/// The limits that a group gives its members, its totals, and what counts in them.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupQuota {
    pub group: String,
    /// The limits of each member: the administrators' value, else the managers'.
    pub each: BTreeMap<String, Override>,
    /// The limits to which managers raise each member. A value applies if it is more than the member's other limits,
    /// in a chargeable group, to what is charged to it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub raised: BTreeMap<String, Override>,
    pub total: BTreeMap<String, Override>,
    /// Whether sessions can be charged to the group.
    pub chargeable: bool,
    /// Whether members get at most this group's limits. Overrides can set more.
    pub restrictive: bool,
    /// The time since when the directory no longer has the group. Its limits are not applied until the directory has
    /// it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub absent_since: Option<Timestamp>,
    /// If Slurm keeps the limits: the limits of the group's account in Slurm.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slurm: BTreeMap<String, Effective>,
    /// The usage that counts in the group: what is charged to it. If it sets totals and is not chargeable: everything
    /// that its members hold. Includes the hours of the period if they are limited.
    pub usage: Usage,
}

/// The limits at every level except those of single users.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllQuotas {
    pub strip: table::ClusterSummary,
    pub default: LevelQuota,
    pub cluster: ClusterQuota,
    pub groups: Vec<GroupQuota>,
}

/// One change for several users. It applies to all of them or to none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeveralChange {
    /// 1 to 500 user names, each once.
    names: Vec<String>,
    change: QuotaChange,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SeveralChanged {
    /// The names of the users whose limits were changed.
    changed: Vec<String>,
}

/// So many of somebody's refusals are told: as many as are kept.
const REFUSALS: i64 = 20;

/// More are not changed at once.
const MAX_CHANGES: usize = 500;

impl From<Refusal> for RefusalView {
    fn from(refusal: Refusal) -> Self {
        let Refusal { id, app, name, resources, duration_seconds, reasons, at, waited } = refusal;
        Self { app, name, resources, duration_seconds, reasons, at, session: waited.then_some(id) }
    }
}

/// Returns the limits of the default, the cluster and all groups, with a summary of the cluster.
#[utoipa::path(get, path = "/quotas", tag = "quotas", responses((status = 200, body = AllQuotas)))]
pub async fn all(_: Operator, State(portal): State<Arc<Portal>>) -> Result<axum::Json<AllQuotas>> {
    let mut groups = Vec::new();
    for group in portal.db.quota_groups().await? {
        groups.push(group_quota(&portal, group).await?.1);
    }
    let default = level_quota(&portal).await?.1;
    let strip = table::ClusterSummary::of(&portal).await?;
    Ok(axum::Json(AllQuotas { strip, default, cluster: cluster_quota(&portal).await?.1, groups }))
}

/// Returns a user's effective limits, overrides, usage and recently rejected requests.
#[utoipa::path(get, path = "/quotas/users/{name}", tag = "quotas", params(("name" = String, Path)),
    responses((status = 200, body = UserQuota)))]
pub async fn of_user(_: Operator, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = find(&portal, &name).await?;
    Ok(tagged(user_quota(&portal, &user).await?))
}

/// Changes the limits of one user.
///
/// Fields that are not named keep their values.
#[utoipa::path(patch, path = "/quotas/users/{name}", tag = "quotas", params(("name" = String, Path)),
    request_body = QuotaChange, responses((status = 200, body = UserQuota)))]
pub async fn change_user(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    let user = find(&portal, &name).await?;
    let read = change.read(Kind::Each, portal.clock.now())?;
    write(&portal, &admin.0, Level::User(user.id), read, &headers).await?;
    Ok(tagged(user_quota(&portal, &user).await?))
}

/// Makes the same change to the limits of several users.
///
/// The change applies to all of them or to none.
#[utoipa::path(patch, path = "/quotas/users", tag = "quotas", request_body = SeveralChange,
    responses((status = 200, body = SeveralChanged)))]
pub async fn change_several(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Json(asked): Json<SeveralChange>,
) -> Result<axum::Json<SeveralChanged>> {
    let SeveralChange { names, change } = asked;
    let changes = several(&portal, &names, change).await?;
    settled(save(&portal, &admin.0, &changes).await?)?;
    Ok(axum::Json(SeveralChanged { changed: names }))
}

/// Returns the default limits.
#[utoipa::path(get, path = "/quotas/default", tag = "quotas", responses((status = 200, body = LevelQuota)))]
pub async fn defaults(_: Operator, State(portal): State<Arc<Portal>>) -> Result<Response> {
    Ok(tagged(level_quota(&portal).await?))
}

/// Changes the default limits.
///
/// Fields that are not named keep their values.
#[utoipa::path(patch, path = "/quotas/default", tag = "quotas", request_body = QuotaChange,
    responses((status = 200, body = LevelQuota)))]
pub async fn change_defaults(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    let read = change.read(Kind::Each, portal.clock.now())?;
    write(&portal, &admin.0, Level::Default, read, &headers).await?;
    Ok(tagged(level_quota(&portal).await?))
}

/// Returns the totals of the cluster and their usage.
#[utoipa::path(get, path = "/quotas/cluster", tag = "quotas", responses((status = 200, body = ClusterQuota)))]
pub async fn cluster(_: Operator, State(portal): State<Arc<Portal>>) -> Result<Response> {
    Ok(tagged(cluster_quota(&portal).await?))
}

/// Changes the totals of the cluster.
///
/// Fields that are not named keep their values.
#[utoipa::path(patch, path = "/quotas/cluster", tag = "quotas", request_body = QuotaChange,
    responses((status = 200, body = ClusterQuota)))]
pub async fn change_cluster(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    let read = change.read(Kind::Total, portal.clock.now())?;
    write(&portal, &admin.0, Level::Cluster, read, &headers).await?;
    Ok(tagged(cluster_quota(&portal).await?))
}

/// Returns the limits and the usage of a group, by its name or id.
///
/// Managers of the group can read it too.
#[utoipa::path(get, path = "/quotas/groups/{group}", tag = "quotas", params(("group" = String, Path)),
    responses((status = 200, body = GroupQuota)))]
pub async fn of_group(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(group): Path<String>,
) -> Result<Response> {
    let group = find_group(&portal, &reader, &group).await?;
    Ok(tagged(group_quota(&portal, group).await?))
}

/// Changes the limits of a group and how it counts.
///
/// Fields that are not named keep their values. If the group is chargeable, its managers can raise the limits of
/// members within its totals.
#[utoipa::path(patch, path = "/quotas/groups/{group}", tag = "quotas", params(("group" = String, Path)),
    request_body = GroupQuotaChange, responses((status = 200, body = GroupQuota)))]
pub async fn change_group(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(group): Path<String>,
    headers: HeaderMap,
    Json(change): Json<GroupQuotaChange>,
) -> Result<Response> {
    let group = find_group(&portal, &reader, &group).await?;
    if !may_change_group(&portal, &reader, &group).await? {
        return Err(Error::forbidden("Only administrators and managers of the group can do this."));
    }
    let read = change.read(portal.clock.now())?;
    write(&portal, &reader, Level::Group(group.id), read, &headers).await?;
    let group = find_group(&portal, &reader, &group.id.to_string()).await?;
    Ok(tagged(group_quota(&portal, group).await?))
}

/// Every field as it binds, for `/me` too.
pub(super) fn effective(standing: &QuotaStatus) -> BTreeMap<String, Effective> {
    let row = |(field, effective): (&Field, &crate::model::quota::Effective)| {
        let shown = Effective { limit: effective.limit.value(), source: effective.source.to_string() };
        (field.name().into_owned(), shown)
    };
    standing.limits.iter().map(row).collect()
}

async fn user_quota(portal: &Portal, user: &User) -> Result<(Version, UserQuota)> {
    let standing = portal.sessions.standing(user.id).await?;
    let set = set_at(portal, Level::User(user.id)).await?;
    let refused = portal.sessions.admission.refusals(user.id, REFUSALS).await?;
    let quota = UserQuota {
        refusals: refused.into_iter().map(RefusalView::from).collect(),
        user: user.name.to_string(),
        effective: effective(&standing),
        overrides: set_for(&set, Kind::Each),
        usage: standing.usage,
    };
    Ok((Version::of(&set, None), quota))
}

async fn level_quota(portal: &Portal) -> Result<(Version, LevelQuota)> {
    let set = set_at(portal, Level::Default).await?;
    Ok((Version::of(&set, None), LevelQuota { fields: set_for(&set, Kind::Each) }))
}

async fn cluster_quota(portal: &Portal) -> Result<(Version, ClusterQuota)> {
    let set = set_at(portal, Level::Cluster).await?;
    let usage = portal.sessions.admission.used_together(None).await?;
    Ok((Version::of(&set, None), ClusterQuota { fields: set_for(&set, Kind::Total), usage }))
}

async fn group_quota(portal: &Portal, group: QuotaGroup) -> Result<(Version, GroupQuota)> {
    let set = set_at(portal, Level::Group(group.id)).await?;
    let usage = portal.sessions.admission.used_together(Some(group.id)).await?;
    let version = Version::of(&set, Some(&group));
    let kept = portal.sessions.admission.slurm_limits.as_ref().and_then(|kept| kept.together(group.id));
    let slurm = kept.iter().flat_map(|kept| {
        let shown = |limit: &Limit| Effective { limit: limit.value(), source: kept.source.to_string() };
        kept.limits.iter().map(move |(field, limit)| (field.name().into_owned(), shown(limit)))
    });
    let quota = GroupQuota {
        group: group.name,
        each: set_for(&set, Kind::Raised).into_iter().chain(set_for(&set, Kind::Each)).collect(),
        raised: set_for(&set, Kind::Raised),
        total: set_for(&set, Kind::Total),
        chargeable: group.chargeable,
        restrictive: group.restrictive,
        absent_since: group.absent_since,
        slurm: slurm.collect(),
        usage,
    };
    Ok((version, quota))
}

fn set_for(set: &[SetLimit], kind: Kind) -> BTreeMap<String, Override> {
    let shown = |limit: &SetLimit| {
        let terms = limit.terms.clone();
        let shown = Override {
            value: terms.value,
            expires_at: terms.expires_at,
            note: terms.note,
            updated_by: limit.by.clone(),
            updated_at: limit.at,
        };
        (limit.field.name().into_owned(), shown)
    };
    set.iter().filter(|limit| limit.kind == kind).map(shown).collect()
}

/// Answers with the version of what somebody set; use changes by itself and is no part of it.
fn tagged<T: Serialize>((version, body): (Version, T)) -> Response {
    ([(header::ETAG, format!("\"{version}\""))], axum::Json(body)).into_response()
}

async fn find(portal: &Portal, name: &str) -> Result<User> {
    Ok(portal.db.find_user_by_name(name).await?.ok_or_else(Error::not_found)?.user)
}

/// The group, if this reader may see it.
async fn find_group(portal: &Portal, reader: &Principal, id_or_name: &str) -> Result<QuotaGroup> {
    let found = portal.access.group_for(reader, id_or_name).await?.ok_or_else(Error::not_found)?;
    portal.db.find_quota_group(&found.group.id.to_string()).await?.ok_or_else(Error::not_found)
}

/// Whether this reader may change something of a group; how far is looked at when it is written.
async fn may_change_group(portal: &Portal, reader: &Principal, group: &QuotaGroup) -> Result<bool> {
    Ok(reader.is_admin() || portal.db.is_manager(group.id, reader.id()).await?)
}

/// The same change for each of some people.
async fn several(portal: &Portal, names: &[String], change: QuotaChange) -> Result<Vec<LevelChange>> {
    let users = find_several(portal, names).await?;
    let ParsedChange { changes, .. } = change.read(Kind::Each, portal.clock.now())?;
    Ok(users.iter().map(|user| LevelChange::new(Level::User(user.id), changes.clone())).collect())
}

/// People by their names; everything that is wrong with the list is told at once.
async fn find_several(portal: &Portal, names: &[String]) -> Result<Vec<User>> {
    if names.is_empty() || names.len() > MAX_CHANGES {
        return Err(Error::field("names", "out_of_range", format!("Name 1 to {MAX_CHANGES} users.")));
    }
    let (mut users, mut faults) = (Vec::<User>::new(), Vec::new());
    for (index, name) in names.iter().enumerate() {
        let place = format!("names.{index}");
        if names[..index].contains(name) {
            faults.push(FieldError::new(place, "duplicate", format!("‘{name}’ is listed twice.")));
            continue;
        }
        match portal.db.find_user_by_name(name).await? {
            Some(found) => users.push(found.user),
            None => faults.push(FieldError::new(place, "unknown_user", format!("There is no user ‘{name}’."))),
        }
    }
    if faults.is_empty() { Ok(users) } else { Err(Error::invalid(faults)) }
}

async fn write(
    portal: &Portal,
    author: &Principal,
    level: Level,
    read: ParsedChange,
    headers: &HeaderMap,
) -> Result<()> {
    let ParsedChange { changes, marks } = read;
    let change = LevelChange { level, changes, marks, seen: seen(headers) };
    settled(save(portal, author, &[change]).await?)
}

/// The version that a change is of, as `If-Match` names it. Where it names none, or any, the
/// last change wins.
fn seen(headers: &HeaderMap) -> Option<Version> {
    let named = headers.get(header::IF_MATCH).filter(|version| *version != "*")?;
    Some(Version::from(named.to_str().unwrap_or_default().trim_matches('"')))
}

/// What is set at a level, as far as it binds anybody: not what Slurm keeps itself.
async fn set_at(portal: &Portal, level: Level) -> Result<Vec<SetLimit>> {
    let mut set = portal.db.limits_at(level).await?;
    set.retain(|limit| portal.sessions.admission.slurm_limits.is_none() || !limit.field.is_slurms());
    Ok(set)
}

/// Where Slurm keeps the limits, nobody changes them here.
fn writable(portal: &Portal) -> Result<()> {
    match portal.sessions.admission.slurm_limits {
        Some(_) => Err(Error::conflict(READ_ONLY)),
        None => Ok(()),
    }
}

/// Makes changes, all or none.
async fn save(portal: &Portal, author: &Principal, changes: &[LevelChange]) -> Result<Outcome> {
    writable(portal)?;
    let author = Author { name: author.user.name.as_str(), at: portal.clock.now(), is_manager: !author.is_admin() };
    let outcome = portal.db.change_limits(changes, &author).await?;
    if outcome == Outcome::Done {
        // Raising a limit lets waiters in at once.
        portal.sessions.wake();
    }
    Ok(outcome)
}

/// What changes would mean, as this reader may see it: a manager sees nothing of operators and administrators.
async fn foretold(portal: &Portal, reader: &Principal, changes: &[LevelChange]) -> Result<ChangePreview> {
    let mut told = portal.sessions.admission.preview(changes).await?;
    if reader.is_operator() {
        return Ok(told);
    }
    let over = told.over.iter().filter_map(|over| over.user.clone());
    let names: BTreeSet<String> = over.chain(told.refused.iter().map(|refused| refused.user.clone())).collect();
    let mut staff = BTreeSet::new();
    for name in names {
        let found = portal.db.find_user_by_name(&name).await?;
        if found.is_some_and(|found| Role::Operator <= found.user.role) {
            staff.insert(name);
        }
    }
    told.over.retain(|over| over.user.as_ref().is_none_or(|user| !staff.contains(user)));
    told.refused.retain(|refused| !staff.contains(&refused.user));
    Ok(told)
}

/// What became of a change, for a program.
fn settled(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Stale(_) => Err(Error::stale()),
        Outcome::Gone(_) => Err(Error::not_found()),
        Outcome::Refused(faults) => Err(Error::invalid(faults)),
    }
}
