//! What a change of limits would mean, asked before it is made: who would hold more than they
//! may. The same is told by the pages before anything is saved.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    GroupQuotaChange, QuotaChange, SeveralChange, change::ParsedChange, find, find_group, foretold, several, writable,
};
use crate::{
    admission::{ChangePreview, ExceededLimit, ImpossibleRequest},
    db::{
        limits::{Author, LevelChange},
        quotas::Level,
    },
    model::quota::{Kind, Reason},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{GroupReader, Json},
        },
    },
};

/// A change to preview. Give exactly one of the five fields. Managers can only give a group that they manage.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preview {
    #[serde(default)]
    default: Option<QuotaChange>,
    #[serde(default)]
    cluster: Option<QuotaChange>,
    #[serde(default)]
    user: Option<NamedChange<QuotaChange>>,
    #[serde(default)]
    users: Option<SeveralChange>,
    #[serde(default)]
    group: Option<NamedChange<GroupQuotaChange>>,
}

/// A change, and the name of the user or group.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedChange<T> {
    name: String,
    change: T,
}

/// The users and totals that would exceed a limit. Nothing is stopped for that, but these users cannot start more
/// until they are below the limit.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewAnswer {
    pub over: Vec<OverLimit>,
    /// Queued requests that could never start and would end as rejected.
    pub refused: Vec<RefusedRequest>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedRequest {
    pub user: String,
    /// The name of the request, as its owner set it.
    pub name: String,
    /// The reason that its owner would see.
    pub reason: Reason,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct OverLimit {
    /// A user's name, or null if a total would be exceeded.
    pub user: Option<String>,
    /// The source of the limit: `override`, `group vision`, `default`, `cluster` …
    pub scope: String,
    pub field: String,
    pub used: i64,
    pub limit: i64,
}

/// Returns the users and totals that would exceed a limit after a change, and the requests that would be rejected.
///
/// Nothing is saved.
#[utoipa::path(post, path = "/quotas/preview", tag = "quotas", request_body = Preview,
    responses((status = 200, body = PreviewAnswer)))]
pub async fn preview(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Json(preview): Json<Preview>,
) -> Result<axum::Json<PreviewAnswer>> {
    writable(&portal)?;
    let now = portal.clock.now();
    let one = |level, ParsedChange { changes, marks }| vec![LevelChange { level, changes, marks, seen: None }];
    let is_admin = reader.is_admin();
    let changes = match preview {
        Preview { default: None, cluster: None, user: None, users: None, group: Some(named) } => {
            let group = find_group(&portal, &reader, &named.name).await?;
            let author = Author { name: reader.user.name.as_str(), at: now, is_manager: !is_admin };
            one(Level::Group(group.id), named.change.read(now)?).iter().map(|change| change.by(&author)).collect()
        }
        _ if !is_admin => return Err(Error::forbidden("Only administrators can do this.")),
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
            return Err(Error::field(
                "default",
                "one_level",
                "Give exactly one of default, cluster, user, users and group.",
            ));
        }
    };
    let ChangePreview { over, refused } = foretold(&portal, &reader, &changes).await?;
    let ended = |ImpossibleRequest { user, name, reason }: ImpossibleRequest| RefusedRequest { user, name, reason };
    let shown = |over: ExceededLimit| OverLimit {
        user: over.user,
        scope: over.source.to_string(),
        field: over.field.name().into_owned(),
        used: over.used,
        limit: over.limit,
    };
    let (over, refused) = (over.into_iter().map(shown).collect(), refused.into_iter().map(ended).collect());
    Ok(axum::Json(PreviewAnswer { over, refused }))
}
