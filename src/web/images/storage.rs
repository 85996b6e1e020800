//! What takes room in the store of container images, over REST, and the request that makes room. Both are for
//! administrators; what may be removed is the service's to decide.

use std::{sync::Arc, time::Duration};

use axum::{Json as Answer, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    images::{Storage, StoredItem},
    model::{FieldError, Timestamp},
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{Admin, Json},
        },
    },
};

/// What the store of container images contains.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageStorage)]
pub struct StorageView {
    /// Bytes of everything.
    bytes: u64,
    /// Bytes above which layers and earlier versions are removed after a pull.
    budget: u64,
    /// The largest first.
    items: Vec<ItemView>,
}

/// One thing that takes room.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageStorageItem)]
pub struct ItemView {
    /// Names in the catalogue, or the name that the image was stored by. Empty for a layer.
    name: String,
    /// The digest of the image or the layer.
    digest: String,
    /// Its size on disk, in bytes.
    bytes: u64,
    /// When a workload last started with it, or when it was stored.
    #[schema(value_type = String, format = "date-time")]
    used_at: Timestamp,
    /// What needs it: `workloads` that have not ended, or the `catalogue`; `nothing` for an earlier version. Layers are
    /// `layer`, incomplete downloads `partial`.
    used_by: &'static str,
}

impl From<Storage> for StorageView {
    fn from(storage: Storage) -> Self {
        let item = |item: StoredItem| ItemView {
            name: item.name,
            digest: item.digest,
            bytes: item.bytes,
            used_at: item.used_at,
            used_by: item.used_by.as_str(),
        };
        Self { bytes: storage.bytes, budget: storage.budget, items: storage.items.into_iter().map(item).collect() }
    }
}

/// Returns what takes room in the store of container images.
#[utoipa::path(get, path = "/image-storage", tag = "catalogue", responses((status = 200, body = StorageView),
    (status = 403, description = "Not an administrator", body = Problem)))]
pub async fn find(Admin(_admin): Admin, State(portal): State<Arc<Portal>>) -> Result<Answer<StorageView>> {
    Ok(Answer(portal.sessions.images.storage().await?.into()))
}

/// What is to be removed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ImageCleaning)]
pub struct CleanRequest {
    /// Also removes what is stored of images that no session or job has used for this number of days. They stay in
    /// the catalogue, and are pulled again when they are needed.
    #[serde(default)]
    unused_days: Option<i64>,
}

/// What was removed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageCleaned)]
pub struct CleanedView {
    /// Bytes that became free.
    bytes: u64,
    items: usize,
}

/// Removes layers, incomplete downloads and earlier versions of container images that nothing needs.
///
/// What a session or job names that has not ended is never removed.
#[utoipa::path(post, path = "/image-storage/clean", tag = "catalogue", request_body = CleanRequest,
    responses((status = 200, body = CleanedView),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "The number of days is invalid", body = Problem)))]
pub async fn clean(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Json(wanted): Json<CleanRequest>,
) -> Result<Answer<CleanedView>> {
    let unused = wanted.unused_days.map(days).transpose()?;
    let cleaned = portal.sessions.images.clean(admin.user.name.as_str(), unused).await?;
    Ok(Answer(CleanedView { bytes: cleaned.bytes, items: cleaned.items }))
}

/// Returns a number of days as a time.
pub(super) fn days(days: i64) -> Result<Duration> {
    match u64::try_from(days) {
        Ok(days) if days <= 3650 => Ok(Duration::from_secs(days * 86_400)),
        _ => Err(Error::invalid(vec![FieldError::new("unused_days", "out_of_range", "must be between 0 and 3650")])),
    }
}
