//! What a change of limits would mean, asked before it is made: who would hold more than they
//! may. The same is told by the pages before anything is saved.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    GroupQuotaChange, QuotaChange, SeveralChange, change::Read, find, find_group, foretold, several, writable,
};
use crate::{
    admission::{Foretold, Over, Refused},
    db::{
        limits::{Author, LevelChange},
        quotas::Level,
    },
    model::quota::{Kind, Reason},
    web::{
        Portal,
        error::{Error, Result},
        extract::{GroupReader, Json},
    },
};

/// A change that is only looked at. One of the five is named; a manager names a group of theirs.
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
    users: Option<SeveralChange>,
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

/// Who would hold, or has used, more than they may. Nothing is stopped for that: they start nothing
/// more until they are below.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewAnswer {
    pub over: Vec<OverLimit>,
    /// Requests that wait, could never start any more, and would be ended as refused.
    pub refused: Vec<RefusedRequest>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedRequest {
    pub user: String,
    /// What its owner calls it.
    pub name: String,
    /// What its owner would read.
    pub reason: Reason,
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

/// Who would be over if this were saved. Nothing is written.
#[utoipa::path(post, path = "/quotas/preview", tag = "quotas", request_body = Preview,
    responses((status = 200, body = PreviewAnswer)))]
pub async fn preview(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Json(preview): Json<Preview>,
) -> Result<axum::Json<PreviewAnswer>> {
    writable(&portal)?;
    let now = portal.clock.now();
    let one = |level, Read { changes, marks }| vec![LevelChange { level, changes, marks, seen: None }];
    let is_admin = reader.is_admin();
    let changes = match preview {
        Preview { default: None, cluster: None, user: None, users: None, group: Some(named) } => {
            let group = find_group(&portal, &reader, &named.name).await?;
            let author = Author { name: reader.user.name.as_str(), at: now, is_manager: !is_admin };
            one(Level::Group(group.id), named.change.read(now)?).iter().map(|change| change.by(&author)).collect()
        }
        _ if !is_admin => return Err(Error::forbidden("This is for administrators.")),
        Preview { default: Some(change), cluster: None, user: None, users: None, group: None } => {
            one(Level::Default, change.read(Kind::Each, now)?)
        }
        Preview { default: None, cluster: Some(change), user: None, users: None, group: None } => {
            one(Level::Cluster, change.read(Kind::Total, now)?)
        }
        Preview { default: None, cluster: None, user: Some(named), users: None, group: None } => {
            one(Level::User(find(&portal, &named.name).await?.id), named.change.read(Kind::Each, now)?)
        }
        Preview { default: None, cluster: None, user: None, users: Some(asked), group: None } => {
            several(&portal, &asked.names, asked.change).await?
        }
        _ => {
            return Err(Error::field("default", "one_level", "Name one of default, cluster, user, users and group."));
        }
    };
    let Foretold { over, refused } = foretold(&portal, &reader, &changes).await?;
    let ended = |Refused { user, name, reason }: Refused| RefusedRequest { user, name, reason };
    let shown = |over: Over| OverLimit {
        user: over.user,
        scope: over.scope,
        field: over.field.name().into_owned(),
        used: over.used,
        limit: over.limit,
    };
    let (over, refused) = (over.into_iter().map(shown).collect(), refused.into_iter().map(ended).collect());
    Ok(axum::Json(PreviewAnswer { over, refused }))
}
