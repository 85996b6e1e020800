//! Quotas over REST: what binds somebody and where it comes from, and an administrator's
//! changes at the default, for one person, for a group and for all together. One field can
//! change alone; `null` inherits, -1 is unlimited. What a change would mean can be asked
//! before it is made.

mod change;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use change::{GroupQuotaChange, QuotaChange};

use super::{
    Portal,
    error::{Error, Result},
    extract::{Admin, Json},
    versions::{check_version, tagged},
};
use crate::{
    admission::{Over, Standing},
    db::quotas::{ChangeNote, Kind, Level, QuotaGroup, SetLimit},
    model::{
        Timestamp, User,
        quota::{Field, Usage},
    },
};
use change::Read;

/// A limit and where it comes from.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Effective {
    /// -1 is unlimited.
    pub limit: i64,
    /// `override`, `override until …`, `group vision`, `default`, `machine`.
    pub source: String,
}

/// What binds somebody, what they set, and what they use.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserQuota {
    pub user: String,
    /// Every field as it binds.
    pub effective: BTreeMap<String, Effective>,
    /// The fields that are set for this person alone.
    pub overrides: BTreeMap<String, Override>,
    pub usage: Usage,
}

/// A field that is set at one level.
#[derive(Debug, Serialize, ToSchema)]
pub struct Override {
    /// -1 is unlimited.
    pub value: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
    /// Who set it last, and when.
    pub updated_by: String,
    #[schema(value_type = String, format = "date-time")]
    pub updated_at: Timestamp,
}

/// The fields that an administrator set at one level; the others are inherited.
#[derive(Debug, Serialize, ToSchema)]
pub struct LevelQuota {
    pub fields: BTreeMap<String, Override>,
}

/// What all people together may use, and use.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterQuota {
    pub fields: BTreeMap<String, Override>,
    pub usage: Usage,
}

/// What a group gives each member, and what is charged to it.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupQuota {
    pub group: String,
    pub each: BTreeMap<String, Override>,
    pub total: BTreeMap<String, Override>,
    /// Sessions can be charged to it.
    pub chargeable: bool,
    /// Nobody in it gets more than it gives.
    pub restrictive: bool,
    /// What is charged to it now.
    pub usage: Usage,
}

/// What is set at every level but for single people.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllQuotas {
    pub default: LevelQuota,
    pub cluster: ClusterQuota,
    pub groups: Vec<GroupQuota>,
}

/// What a change would mean, asked before it is made. Of the four levels one is named.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preview {
    #[serde(default)]
    default: Option<QuotaChange>,
    #[serde(default)]
    cluster: Option<QuotaChange>,
    #[serde(default)]
    user: Option<Named<QuotaChange>>,
    #[serde(default)]
    group: Option<Named<GroupQuotaChange>>,
}

/// Whose change it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Named<T> {
    name: String,
    change: T,
}

/// Who would hold more than they may. Nothing is stopped for that: they start nothing more
/// until they are below.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewAnswer {
    pub over: Vec<OverLimit>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct OverLimit {
    /// A person's name; null where a total would be exceeded.
    pub user: Option<String>,
    /// `override`, `group vision`, `default`, `cluster` …
    pub scope: String,
    pub field: String,
    pub used: i64,
    pub limit: i64,
}

#[utoipa::path(get, path = "/quotas", tag = "quotas", responses((status = 200, body = AllQuotas)))]
pub async fn all(_: Admin, State(portal): State<Arc<Portal>>) -> Result<axum::Json<AllQuotas>> {
    let mut groups = Vec::new();
    for group in portal.db.quota_groups().await? {
        groups.push(group_quota(&portal, group).await?);
    }
    let default = level_quota(&portal, Level::Default).await?;
    Ok(axum::Json(AllQuotas { default, cluster: cluster_quota(&portal).await?, groups }))
}

#[utoipa::path(get, path = "/quotas/users/{name}", tag = "quotas", params(("name" = String, Path)),
    responses((status = 200, body = UserQuota)))]
pub async fn of_user(_: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = find(&portal, &name).await?;
    Ok(tagged(&user_quota(&portal, &user).await?, &PASSING))
}

/// Changes one person's limits; the fields that are not named stay.
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
    check_version(&headers, &user_quota(&portal, &user).await?, &PASSING)?;
    let read = change.read(Kind::Each, portal.clock.now())?;
    write(&portal, &admin, Level::User(user.id), read).await?;
    Ok(tagged(&user_quota(&portal, &user).await?, &PASSING))
}

#[utoipa::path(get, path = "/quotas/default", tag = "quotas", responses((status = 200, body = LevelQuota)))]
pub async fn defaults(_: Admin, State(portal): State<Arc<Portal>>) -> Result<Response> {
    Ok(tagged(&level_quota(&portal, Level::Default).await?, &PASSING))
}

/// Changes the defaults; the fields that are not named stay.
#[utoipa::path(patch, path = "/quotas/default", tag = "quotas", request_body = QuotaChange,
    responses((status = 200, body = LevelQuota)))]
pub async fn change_defaults(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    check_version(&headers, &level_quota(&portal, Level::Default).await?, &PASSING)?;
    let read = change.read(Kind::Each, portal.clock.now())?;
    write(&portal, &admin, Level::Default, read).await?;
    Ok(tagged(&level_quota(&portal, Level::Default).await?, &PASSING))
}

#[utoipa::path(get, path = "/quotas/cluster", tag = "quotas", responses((status = 200, body = ClusterQuota)))]
pub async fn cluster(_: Admin, State(portal): State<Arc<Portal>>) -> Result<Response> {
    Ok(tagged(&cluster_quota(&portal).await?, &PASSING))
}

/// Changes what all together may use; the fields that are not named stay.
#[utoipa::path(patch, path = "/quotas/cluster", tag = "quotas", request_body = QuotaChange,
    responses((status = 200, body = ClusterQuota)))]
pub async fn change_cluster(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    check_version(&headers, &cluster_quota(&portal).await?, &PASSING)?;
    let read = change.read(Kind::Total, portal.clock.now())?;
    write(&portal, &admin, Level::Cluster, read).await?;
    Ok(tagged(&cluster_quota(&portal).await?, &PASSING))
}

/// A group is named by its name or its id.
#[utoipa::path(get, path = "/quotas/groups/{group}", tag = "quotas", params(("group" = String, Path)),
    responses((status = 200, body = GroupQuota)))]
pub async fn of_group(_: Admin, State(portal): State<Arc<Portal>>, Path(group): Path<String>) -> Result<Response> {
    let group = find_group(&portal, &group).await?;
    Ok(tagged(&group_quota(&portal, group).await?, &PASSING))
}

/// Changes a group's limits and how it counts; what is not named stays.
#[utoipa::path(patch, path = "/quotas/groups/{group}", tag = "quotas", params(("group" = String, Path)),
    request_body = GroupQuotaChange, responses((status = 200, body = GroupQuota)))]
pub async fn change_group(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(group): Path<String>,
    headers: HeaderMap,
    Json(change): Json<GroupQuotaChange>,
) -> Result<Response> {
    let group = find_group(&portal, &group).await?;
    check_version(&headers, &group_quota(&portal, group.clone()).await?, &PASSING)?;
    let read = change.read(portal.clock.now())?;
    write(&portal, &admin, Level::Group(group.id), read).await?;
    let group = find_group(&portal, &group.id.to_string()).await?;
    Ok(tagged(&group_quota(&portal, group).await?, &PASSING))
}

/// Who would be over if this were saved. Nothing is written.
#[utoipa::path(post, path = "/quotas/preview", tag = "quotas", request_body = Preview,
    responses((status = 200, body = PreviewAnswer)))]
pub async fn preview(
    _: Admin,
    State(portal): State<Arc<Portal>>,
    Json(preview): Json<Preview>,
) -> Result<axum::Json<PreviewAnswer>> {
    let now = portal.clock.now();
    let (level, read) = match preview {
        Preview { default: Some(change), cluster: None, user: None, group: None } => {
            (Level::Default, change.read(Kind::Each, now)?)
        }
        Preview { default: None, cluster: Some(change), user: None, group: None } => {
            (Level::Cluster, change.read(Kind::Total, now)?)
        }
        Preview { default: None, cluster: None, user: Some(named), group: None } => {
            (Level::User(find(&portal, &named.name).await?.id), named.change.read(Kind::Each, now)?)
        }
        Preview { default: None, cluster: None, user: None, group: Some(named) } => {
            (Level::Group(find_group(&portal, &named.name).await?.id), named.change.read(now)?)
        }
        _ => {
            let message = "Name one of default, cluster, user and group.";
            return Err(Error::invalid(vec![super::error::FieldError::new("default", "one_level", message)]));
        }
    };
    let over = portal.sessions.admission.preview(level, &read.changes, read.marks).await?;
    let shown = |over: Over| OverLimit {
        user: over.user,
        scope: over.scope,
        field: over.field.name().into_owned(),
        used: over.used,
        limit: over.limit,
    };
    Ok(axum::Json(PreviewAnswer { over: over.into_iter().map(shown).collect() }))
}

/// Usage changes by itself.
const PASSING: [&str; 1] = ["usage"];

/// Every field as it binds, for `/me` too.
pub(super) fn effective(standing: &Standing) -> BTreeMap<String, Effective> {
    let row = |(field, effective): (&Field, &crate::model::quota::Effective)| {
        let shown = Effective { limit: effective.limit.value(), source: effective.source.to_string() };
        (field.name().into_owned(), shown)
    };
    standing.limits.iter().map(row).collect()
}

async fn user_quota(portal: &Portal, user: &User) -> Result<UserQuota> {
    let standing = portal.sessions.standing(user.id).await?;
    let set = portal.db.limits_at(Level::User(user.id)).await?;
    Ok(UserQuota {
        user: user.name.to_string(),
        effective: effective(&standing),
        overrides: set_for(set, Kind::Each).collect(),
        usage: standing.usage,
    })
}

async fn level_quota(portal: &Portal, level: Level) -> Result<LevelQuota> {
    Ok(LevelQuota { fields: set_for(portal.db.limits_at(level).await?, Kind::Each).collect() })
}

async fn cluster_quota(portal: &Portal) -> Result<ClusterQuota> {
    let set = portal.db.limits_at(Level::Cluster).await?;
    let usage = portal.sessions.admission.holdings().await?.all;
    Ok(ClusterQuota { fields: set_for(set, Kind::Total).collect(), usage })
}

async fn group_quota(portal: &Portal, group: QuotaGroup) -> Result<GroupQuota> {
    let set = portal.db.limits_at(Level::Group(group.id)).await?;
    let mut holdings = portal.sessions.admission.holdings().await?;
    Ok(GroupQuota {
        group: group.name,
        each: set_for(set.clone(), Kind::Each).collect(),
        total: set_for(set, Kind::Total).collect(),
        chargeable: group.chargeable,
        restrictive: group.restrictive,
        usage: holdings.by_group.remove(&group.id).unwrap_or_default(),
    })
}

fn set_for(set: Vec<SetLimit>, kind: Kind) -> impl Iterator<Item = (String, Override)> {
    set.into_iter().filter(move |limit| limit.kind == kind).map(|limit| {
        let shown = Override {
            value: limit.value,
            expires_at: limit.expires_at,
            note: limit.note,
            updated_by: limit.by,
            updated_at: limit.at,
        };
        (limit.field.name().into_owned(), shown)
    })
}

async fn find(portal: &Portal, name: &str) -> Result<User> {
    Ok(portal.db.find_user_by_name(name).await?.ok_or_else(Error::not_found)?.user)
}

async fn find_group(portal: &Portal, id_or_name: &str) -> Result<QuotaGroup> {
    portal.db.find_quota_group(id_or_name).await?.ok_or_else(Error::not_found)
}

async fn write(portal: &Portal, admin: &Admin, level: Level, read: Read) -> Result<()> {
    let by = admin.0.user.name.as_str();
    let now = portal.clock.now();
    let about = ChangeNote { by, at: now, expires_at: read.expires_at, note: read.note.as_deref() };
    portal.db.set_limits(level, &read.changes, read.marks, &about).await?;
    // Raising a limit lets waiters in at once.
    portal.sessions.wake();
    Ok(())
}
