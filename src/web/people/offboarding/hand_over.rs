//! `POST /users/{name}/hand-over`: gives jobs, sweeps, runs, datasets and models of a disabled account to somebody else.
//! No file is copied here: whether the new owner can read a dataset or a model is found out by reading it as them, where
//! it is or where the request says that it was copied to.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::{
    named,
    stop::{StopParameters, reason},
};
use crate::{
    auth::Principal,
    db::{
        self,
        datasets::DatasetFilter,
        hand_over::{Between, HandedOver},
        models::ModelFilter,
    },
    model::{Dataset, DatasetState, Model, User, moves::Moves, trained::ModelState},
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{Admin, Json as Body, Query},
        },
    },
};

/// The new owner, and where copied files are.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOverRequest {
    /// The name of the new owner.
    #[schema(min_length = 1, max_length = 200)]
    pub to: String,
    /// Folders that were copied or moved. Without them, directories stay where they are.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub directories: Vec<MovedFolder>,
}

/// A folder that was copied or moved.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MovedFolder {
    /// The former folder, such as `/home/ada`.
    #[schema(min_length = 1, max_length = 4095)]
    pub from: String,
    /// The present folder, such as `/home/bo/ada`.
    #[schema(min_length = 1, max_length = 4095)]
    pub to: String,
}

/// What has another owner now, or would have.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HandOver)]
pub struct HandOverView {
    /// The name of the new owner.
    pub to: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The number of sweeps.
    pub sweeps: u64,
    /// The number of runs.
    pub runs: u64,
    /// The datasets and models.
    pub items: Vec<HandOverItem>,
    /// The number of datasets and models that cannot be handed over.
    pub failed: usize,
}

/// A dataset or a model.
#[derive(Debug, Serialize, ToSchema)]
pub struct HandOverItem {
    pub kind: HandOverKind,
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    /// Where its files are by now.
    pub directory: String,
    /// Whether it has the new owner; false in a dry run.
    pub done: bool,
    /// Why it keeps its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What is handed over one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandOverKind {
    Dataset,
    Model,
}

/// Gives the jobs, sweeps, runs, datasets and models of a disabled account to another user.
///
/// Files are not copied. A dataset or model is only handed over if the new owner can read its directory, where it is or
/// where `directories` says. With `dry_run`, nothing is changed. Past usage stays with the former owner.
#[utoipa::path(post, path = "/users/{name}/hand-over", tag = "users", request_body = HandOverRequest,
    params(("name" = String, Path), StopParameters),
    responses((status = 200, body = HandOverView),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "The account is not disabled, or its work has not ended", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn hand_over(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(StopParameters { dry_run }): Query<StopParameters>,
    Body(request): Body<HandOverRequest>,
) -> Result<Json<HandOverView>> {
    let user = named(&portal, &name).await?;
    Ok(Json(carry_out(&portal, &admin, &user, request, dry_run).await?))
}

/// Hands over, or says what would be.
pub(super) async fn carry_out(
    portal: &Portal,
    admin: &Principal,
    from: &User,
    request: HandOverRequest,
    is_dry_run: bool,
) -> Result<HandOverView> {
    let pairs = request.directories.into_iter().map(|folder| (folder.from, folder.to));
    let moves = Moves::parse(pairs).map_err(Error::invalid)?;
    let to = new_owner(portal, from, &request.to).await?;
    let contents = portal.db.account_contents(from.id).await?;
    if !from.is_closed() || contents.live() > 0 {
        let why = if from.is_closed() { "its work has not ended yet" } else { "it is not disabled" };
        return Err(Error::conflict(format!(
            "The account `{}` cannot be handed over: {why}. Offboard it first.",
            from.name
        )));
    }
    let by = db::audit::ChangedBy { actor: admin.user.name.as_str(), at: portal.clock.now() };
    let between = Between { from, to: &to, moves: &moves, by };
    let work = if is_dry_run {
        let [jobs, sweeps, runs] = [contents.jobs, contents.sweeps, contents.runs].map(i64::unsigned_abs);
        HandedOver { jobs, sweeps, runs }
    } else {
        let done = portal.db.hand_over_work(between).await?;
        done.ok_or_else(|| Error::conflict(format!("Work of `{}` began in the meantime. Try again.", from.name)))?
    };
    let HandedOver { jobs, sweeps, runs } = work;
    let mut result = HandOverView { to: to.name.to_string(), jobs, sweeps, runs, items: Vec::new(), failed: 0 };
    for dataset in datasets(portal, from).await? {
        let outcome = hand_over_dataset(portal, &dataset, between, is_dry_run).await;
        let (kind, id, name) = (HandOverKind::Dataset, dataset.id.to_string(), dataset.name);
        result.add(
            HandOverItem { kind, id, name, directory: moves.path(&dataset.directory), done: false, error: None },
            outcome,
        );
    }
    for model in models(portal, from).await? {
        let outcome = hand_over_model(portal, &model, between, is_dry_run).await;
        let (kind, id, name) = (HandOverKind::Model, model.id.to_string(), model.name);
        result.add(
            HandOverItem { kind, id, name, directory: moves.path(&model.directory), done: false, error: None },
            outcome,
        );
    }
    if !is_dry_run {
        let items = result.items.len();
        tracing::info!(
            user.name = %admin.user.name, from = %from.name, to = %to.name, jobs, sweeps, runs, items,
            failed = result.failed, "handed over a user's work"
        );
    }
    Ok(result)
}

impl HandOverView {
    fn add(&mut self, item: HandOverItem, outcome: Result<bool>) {
        let (done, error) = match outcome {
            Ok(done) => (done, None),
            Err(error) => (false, Some(reason(&error))),
        };
        self.failed += usize::from(error.is_some());
        self.items.push(HandOverItem { done, error, ..item });
    }
}

/// The user of this name, who can take something over.
async fn new_owner(portal: &Portal, from: &User, name: &str) -> Result<User> {
    let fault = |code, message: String| Err(Error::field("to", code, message));
    let Some(found) = portal.db.find_user_by_name(name.trim()).await? else {
        return fault("not_found", "There is no such user.".to_owned());
    };
    let to = found.user;
    if to.id == from.id {
        return fault("invalid_value", "Must be another user.".to_owned());
    }
    if to.is_closed() {
        return fault("invalid_value", format!("The account `{}` is not active.", to.name));
    }
    Ok(to)
}

/// Datasets that were built. Others have no files that show whose they are, and stay.
async fn datasets(portal: &Portal, owner: &User) -> Result<Vec<Dataset>> {
    let filter =
        DatasetFilter { viewer: owner.id, own: true, state: None, find: "", sort: None, before: None, limit: i64::MAX };
    let listed = portal.datasets.list(filter).await?.into_iter().map(|(dataset, _)| dataset);
    Ok(listed.filter(|dataset| dataset.state == DatasetState::Ready).collect())
}

/// Models that have checkpoints, or of which nobody could see yet whether they have.
async fn models(portal: &Portal, owner: &User) -> Result<Vec<Model>> {
    let filter = ModelFilter {
        viewer: owner.id,
        own: true,
        dataset: None,
        parent: None,
        find: "",
        sort: None,
        before: None,
        limit: i64::MAX,
    };
    let listed = portal.models.list(filter).await?.into_iter().map(|(model, _)| model);
    let is_trained = |model: &Model| matches!(model.state, ModelState::Trained | ModelState::Training);
    Ok(listed.filter(|model| is_trained(model) || model.snapshots > 0).collect())
}

async fn hand_over_dataset(portal: &Portal, dataset: &Dataset, between: Between<'_>, is_dry_run: bool) -> Result<bool> {
    let present = Dataset { directory: between.moves.path(&dataset.directory), ..dataset.clone() };
    match portal.datasets.document(between.to, &present).await? {
        Some(document) if document.manifest_sha256 == dataset.manifest_sha256 => {}
        Some(_) => return Err(Error::conflict(format!("Another dataset is in {}.", present.directory))),
        None => return Err(unreadable(between.to, &present.directory)),
    }
    if is_dry_run {
        return Ok(false);
    }
    shared(portal.db.hand_over_dataset(dataset, between).await, &present.directory)
}

async fn hand_over_model(portal: &Portal, model: &Model, between: Between<'_>, is_dry_run: bool) -> Result<bool> {
    let present = Model { directory: between.moves.path(&model.directory), ..model.clone() };
    let found = portal.models.snapshots(between.to, &present).await?;
    if found.is_none_or(|found| found.snapshots.is_empty()) {
        return Err(unreadable(between.to, &present.directory));
    }
    if is_dry_run {
        return Ok(false);
    }
    shared(portal.db.hand_over_model(model, between).await, &present.directory)
}

fn shared(done: db::Result<bool>, directory: &str) -> Result<bool> {
    match done {
        Err(db::Error::Unique) => Err(Error::conflict(format!("Another dataset or model is in {directory}."))),
        done => Ok(done?),
    }
}

fn unreadable(to: &User, directory: &str) -> Error {
    Error::conflict(format!("`{}` finds no files in {directory}. Copy them, and name the folders.", to.name))
}
