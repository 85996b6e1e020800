//! `/models` as pages: the list, the form of a training, one model with its curves, measures and
//! snapshots, and the pictures behind a cell of its confusion. The same service as the API's; what a
//! model is asked about is in `ask`.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use serde_json::Value;

use super::{NOT_MEASURED, PredictionParameters, form, precisions::PrecisionsView};
use crate::{
    datasets::{self, Contents},
    db::models::{ModelFilter, SORT_COLUMNS},
    jobs::JobRequest,
    model::{Dataset, DatasetId, DescriptionChanges, Model, ModelId, Sweep, trained::ModelState},
    models::{self, NewModel, Prediction},
    sessions::program_notes,
    sweeps::SweepRequest,
    web::{
        Portal, columns,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id, Query},
            href::href,
            paging::Paging,
            sorting::Sorting,
        },
        jobs::{several, why_it_waits},
        page::{Nav, Page},
        selection,
        views::{
            self, Drawing, ImportForm, LayerTable, LegendLine, LineageRows, MeasuredSplit, ModelForm, ModelInside,
            ModelPage, ModelRow, ModelsPage, Moment, NewModelPage, PrecisionsPart, PredictionCard, PredictionsPage,
            ScalingTable, TestRow,
        },
    },
};

/// How many models, and how many pictures, one page shows.
const PAGE_SIZE: i64 = 50;
const PICTURES: usize = 120;
/// How many of its worst mistakes the page of a model shows.
const MAX_MISTAKES: usize = 8;

/// The address of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageParams {
    search: String,
    sort: String,
    cursor: Option<String>,
    done: Option<String>,
    failed: String,
}

/// `/models`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    Ok(Page(list_view(&portal, &user, visit, ImportForm::default()).await?).into_response())
}

/// The page; a form of an import that was rejected comes back with its faults.
pub async fn list_view(
    portal: &Portal,
    user: &CurrentUser,
    visit: PageParams,
    import: ImportForm,
) -> Result<ModelsPage> {
    let now = portal.clock.now();
    let cursor = visit.cursor.clone().filter(|cursor| !cursor.is_empty());
    let sorting = Sorting::of_page(&SORT_COLUMNS, &visit.sort);
    let position = sorting.position(&Paging::new(Some(PAGE_SIZE), cursor.clone()))?;
    let filter = ModelFilter {
        viewer: user.id(),
        own: false,
        dataset: None,
        parent: None,
        find: &visit.search,
        sort: sorting.sort(&position),
        before: position.before,
        limit: PAGE_SIZE + 1,
    };
    let page = sorting.listed(portal.models.list(filter).await?, PAGE_SIZE, |one: &Model| one.id);
    let address = |sort: &str, cursor: &str| {
        href("/models", [("search", visit.search.as_str()), ("sort", sort), ("cursor", cursor)])
    };
    let columns = columns::MODELS.shown(portal, user).await?;
    let frame = sorting.frame(columns, address, cursor.as_deref(), page.next_cursor.as_deref());
    let frame = selection::told(frame, visit.done.as_deref().unwrap_or_default(), &visit.failed, "model");
    Ok(ModelsPage {
        import,
        layout: portal.layout_of(&user.0, Nav::Models),
        notice: (visit.done.as_deref() == Some("removed")).then(|| "The model was removed.".to_owned()),
        rows: page.items.iter().map(|one| ModelRow::new(one, Moment::ago(one.created_at, now), user.id())).collect(),
        frame,
        search: visit.search,
    })
}

/// What the form begins with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prefill {
    dataset: String,
    /// A snapshot to go on from.
    pretrained: String,
    /// A model whose training was asked for in the same way.
    like: String,
}

/// `/models/new`
pub async fn new(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(prefill): Query<Prefill>,
) -> Result<Response> {
    let Ok(id) = prefill.dataset.parse::<DatasetId>() else {
        // A training begins with what is learnt from.
        return Ok(Redirect::to("/datasets").into_response());
    };
    let dataset = portal.datasets.find(user.actor(), id).await?;
    let key = uuid::Uuid::new_v4().simple().to_string();
    let mut form = if let Ok(like) = prefill.like.parse::<ModelId>() {
        let like = portal.models.find(user.actor(), like).await?;
        form::typed(portal.models.asked_for(user.actor(), &like, id).await?, key)
    } else {
        let mut form = ModelForm::usual(key, dataset.name.chars().take(56).collect());
        form.set("task", dataset.kind.clone());
        form
    };
    if !prefill.pretrained.is_empty() {
        form.set("network.name", form::GOES_ON.to_owned());
        form.set("network.pretrained", prefill.pretrained);
    }
    Ok(Page(new_view(&portal, &user, &dataset, form, Vec::new())).into_response())
}

fn new_view(
    portal: &Portal,
    user: &CurrentUser,
    dataset: &Dataset,
    form: ModelForm,
    errors: Vec<views::FieldError>,
) -> NewModelPage {
    NewModelPage {
        layout: portal.layout_of(&user.0, Nav::Models),
        dataset: (dataset.id.to_string(), dataset.name.clone()),
        kind: dataset.kind.clone(),
        environments: crate::web::sessions::form::environments(portal, user)
            .into_iter()
            .map(|one| (one.name, one.title))
            .collect(),
        groups: user.user.groups.iter().map(ToString::to_string).collect(),
        on_cluster: portal.sessions.scheduler.has_queue(),
        form,
        errors,
    }
}

/// `POST /models`
pub async fn create(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let id: DatasetId = form.get("dataset").parse().map_err(|_err| Error::not_found())?;
    let dataset = portal.datasets.find(user.actor(), id).await?;
    let typed = ModelForm::read(|name| form.get(name).to_owned());
    let key = Some(typed.idempotency_key.clone()).filter(|key| (1..=255).contains(&key.len()));
    let hash = format!("{id} {typed:?}");
    let once = key.as_deref().map(|key| (key, hash.as_str()));
    let new = form::request(&typed, id);
    let started = if typed.several.is_asked() {
        start_sweep(&portal, &user, &typed, new).await.map(|made| format!("/sweeps/{}", made.id))
    } else {
        let made = portal.models.train(user.actor(), &dataset, new, once).await;
        made.map(|made| format!("/models/{}", made.id)).map_err(Error::from)
    };
    match started {
        Ok(address) => Ok(Redirect::to(&address).into_response()),
        Err(error) => refused(&portal, &user, id, typed, error).await,
    }
}

/// Starts the trainings that the form asks for together.
async fn start_sweep(portal: &Portal, user: &CurrentUser, typed: &ModelForm, new: NewModel) -> Result<Sweep> {
    let asked = several::request(&typed.several, JobRequest::default()).map_err(Error::invalid)?;
    let key = Some(typed.idempotency_key.as_str()).filter(|key| (1..=255).contains(&key.len()));
    Ok(portal.sweeps.submit(user.actor(), SweepRequest { training: Some(new), ..asked }, key).await?)
}

/// `POST /models/customize`: the form again, with the chosen network as the text of a custom one.
pub async fn customize(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let id: DatasetId = form.get("dataset").parse().map_err(|_err| Error::not_found())?;
    let mut typed = ModelForm::read(|name| form.get(name).to_owned());
    let Some(program) = models::network_code::of(typed.value("network.name")) else {
        let error =
            Error::field("config.network.name", "invalid_value", "Only a built-in network can be opened as code.");
        return refused(&portal, &user, id, typed, error).await;
    };
    let dataset = portal.datasets.find(user.actor(), id).await?;
    typed.program = program;
    typed.set("network.name", form::OWN_NETWORK.to_owned());
    Ok(Page(new_view(&portal, &user, &dataset, typed, Vec::new())).into_response())
}

/// The form again with what is wrong with it; what is no fault of a field stays an error.
pub async fn refused(
    portal: &Portal,
    user: &CurrentUser,
    dataset: DatasetId,
    typed: ModelForm,
    error: Error,
) -> Result<Response> {
    if error.field_errors().is_empty() {
        return Err(error);
    }
    let dataset = portal.datasets.find(user.actor(), dataset).await?;
    let of_form = |fault| {
        let mut fault = views::FieldError::from(fault);
        // There is one field for all of them.
        if let Some(name) = fault.field.strip_prefix("parameters.") {
            fault.message = format!("{name}: {}", fault.message);
            "parameters".clone_into(&mut fault.field);
        }
        fault
    };
    let errors = error.field_errors().iter().map(of_form).collect();
    Ok(error.with_page(Page(new_view(portal, user, &dataset, typed, errors))))
}

/// `?picture=` the path of an image to predict on, as the page of a file writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelVisit {
    picture: String,
}

/// `/models/{id}`
pub async fn show(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(visit): Query<ModelVisit>,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    let view = show_view(&portal, &user, &model, (visit.picture, Vec::new())).await?;
    Ok(Page(view).into_response())
}

/// The page; what was typed for a picture comes back with its faults.
pub async fn show_view(
    portal: &Portal,
    user: &CurrentUser,
    model: &Model,
    (picture, errors): (String, Vec<views::FieldError>),
) -> Result<ModelPage> {
    let now = portal.clock.now();
    // It may have been removed, or be no longer shown.
    let dataset = match model.dataset {
        Some(id) => portal.datasets.find(user.actor(), id).await.ok(),
        None => None,
    };
    let config = portal.models.config(model).await?;
    let (inside, unreachable) = match inside(portal, user, model, &config).await {
        Ok(inside) => (inside, None),
        Err(error @ models::Error::Files(_)) => (ModelInside::default(), Some(Error::from(error).detail().to_owned())),
        Err(error) => return Err(error.into()),
    };
    let tests = portal.models.model_tests(&user.user, model).await?;
    let row = |test: &crate::model::ModelTest| TestRow {
        href: format!("/models/{}/tests/{}", model.id, test.id),
        picture: test.picture.rsplit('/').next().unwrap_or_default().to_owned(),
        snapshot: test.snapshot.clone(),
        when: Moment::ago(test.created_at, now),
    };
    let lineage = portal.models.lineage(user.actor(), model).await?;
    let scaling = portal.models.scaling(user.actor(), model).await?;
    let (worst, legend) = worst(portal, user, model, &inside).await?;
    let like_href = dataset.as_ref().map(|dataset| {
        href("/models/new", [("dataset", dataset.id.to_string().as_str()), ("like", model.id.to_string().as_str())])
    });
    let program_notes = match model.job.filter(|_| model.state == ModelState::Training) {
        Some(job) => {
            let latest = portal.jobs.find(user.actor(), job).await.map(|job| job.latest.id);
            let status = latest.ok().and_then(|id| portal.sessions.live(id).status);
            status.iter().flat_map(program_notes).collect()
        }
        None => Vec::new(),
    };
    Ok(ModelPage {
        layout: portal.layout_of(&user.0, Nav::Models),
        like_href,
        row: ModelRow::new(model, Moment::ago(model.created_at, now), user.id()),
        dataset: dataset.map(|dataset| (dataset.id.to_string(), dataset.name)),
        facts: match config["imported"].as_str() {
            Some(path) => vec![("Imported from", path.to_owned())],
            None => views::facts_of(&config),
        },
        config: serde_json::to_string_pretty(&config).unwrap_or_default(),
        directory: model.directory.clone(),
        files_href: format!("/files?path={}", crate::model::files::RawPath::from(model.directory.as_str()).encoded()),
        bundle_href: inside
            .has_bundle
            .then(|| format!("/files/download?path={}&archive=tar", super::bundle_of(model, None).encoded())),
        detail: model.detail.clone(),
        program_notes,
        notes: model.notes.clone(),
        visibility: model.visibility.as_str(),
        lineage: LineageRows::new(lineage),
        scaling: ScalingTable::new(&scaling),
        worst,
        legend,
        progress: portal.models.training_progress(user.actor(), model).await?,
        waits: why_it_waits(portal, user, model.job).await,
        unreachable,
        inside,
        tests: tests.iter().map(row).collect(),
        picture,
        errors,
    })
}

async fn inside(portal: &Portal, user: &CurrentUser, model: &Model, config: &Value) -> models::Result<ModelInside> {
    let snapshots = portal.models.snapshots(&user.user, model).await?.unwrap_or_default();
    let mut splits = Vec::new();
    for split in models::SPLITS {
        if let Some(found) = portal.models.evaluation(&user.user, model, split).await? {
            let curves = portal.models.curves(&user.user, model, split).await?;
            splits.push(MeasuredSplit::new(Some(model.id), &found, curves.as_ref()));
        }
    }
    let has_bundle = portal.models.has_bundle(&user.user, model).await?;
    let exports = portal.models.exported(&user.user, model).await?;
    let layers = portal.models.layers(&user.user, model).await?;
    let program = portal.models.program(&user.user, model, config).await?;
    let precisions = precisions(portal, user, model, snapshots.best.is_some()).await?;
    let layers = layers.as_ref().map(LayerTable::new);
    Ok(ModelInside { snapshots, splits, has_bundle, exports, layers, precisions, program })
}

/// The model in fewer bits; its owner can have that measured.
async fn precisions(
    portal: &Portal,
    user: &CurrentUser,
    model: &Model,
    has_snapshot: bool,
) -> models::Result<Option<PrecisionsPart>> {
    if !has_snapshot {
        return Ok(None);
    }
    let found = portal.models.precisions(user.actor(), model).await?;
    let is_own = model.owner == user.id();
    let found = PrecisionsView::new(model.precisions_job, found);
    if found.state == "none" && !is_own {
        return Ok(None);
    }
    let mut environments = Vec::new();
    if is_own {
        let its = portal.models.environment(&user.user, model).await?;
        let listed = crate::web::sessions::form::environments(portal, user);
        environments =
            listed.into_iter().map(|one| (one.name == its, one)).map(|(is, one)| (one.name, one.title, is)).collect();
        // One of the person's own, by its path.
        if !environments.iter().any(|(_, _, is_its)| *is_its) {
            environments.insert(0, (its.clone(), its, true));
        }
    }
    Ok(Some(PrecisionsPart::new(&model.id.to_string(), found, environments)))
}

type Drawn = (Vec<PredictionCard>, Vec<LegendLine>);

/// What was judged worst of validation, drawn where the dataset can be looked at.
async fn worst(portal: &Portal, user: &CurrentUser, model: &Model, inside: &ModelInside) -> Result<Drawn> {
    if inside.splits.is_empty() {
        return Ok(Drawn::default());
    }
    let listed = portal.models.worst(&user.user, model, models::SPLITS[0], MAX_MISTAKES).await?;
    cards(portal, user, model, models::SPLITS[0], listed).await
}

/// Predictions with their pictures, and the colours of the classes in them.
async fn cards(
    portal: &Portal,
    user: &CurrentUser,
    model: &Model,
    split: &str,
    mut listed: Vec<Prediction>,
) -> Result<Drawn> {
    if listed.is_empty() {
        return Ok(Drawn::default());
    }
    for one in &mut listed {
        super::address_mask(one, model.id, split);
    }
    let contents = contents(portal, user, model).await?;
    let classes = contents.as_ref().map(|(_, contents)| contents.document.classes.clone()).unwrap_or_default();
    let pictures = contents.as_ref().map(|(dataset, contents)| Pictures::new(dataset, contents, &listed));
    let legend = if pictures.is_some() { views::legend_of(&listed, &classes) } else { Vec::new() };
    let card = |one: Prediction| {
        let picture = pictures.as_ref().and_then(|pictures| pictures.of(one.path()));
        PredictionCard::new(one, picture, &classes)
    };
    Ok((listed.into_iter().map(card).collect(), legend))
}

/// `/models/{id}/predictions`
pub async fn predictions(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<PredictionParameters>,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    let split = asked.split()?;
    let found = portal.models.predictions(&user.user, &model, split, asked.wanted(PICTURES)?).await?;
    let found = found.ok_or_else(|| Error::conflict(NOT_MEASURED))?;
    let total = found.total;
    let (cards, legend) = cards(&portal, &user, &model, split, found.items).await?;
    let view = PredictionsPage {
        layout: portal.layout_of(&user.0, Nav::Models),
        model: (model.id.to_string(), model.name.clone()),
        kind: model.kind.clone(),
        split: split.to_owned(),
        label: asked.label.clone(),
        predicted: asked.predicted.clone(),
        wrong: asked.wrong,
        total,
        cards,
        legend,
    };
    Ok(Page(view).into_response())
}

/// What is in the dataset of a model, where this person may look; pictures are then drawn beside answers.
async fn contents(portal: &Portal, user: &CurrentUser, model: &Model) -> Result<Option<(Dataset, Arc<Contents>)>> {
    let Some(id) = model.dataset else { return Ok(None) };
    let dataset = match portal.datasets.find(user.actor(), id).await {
        Ok(dataset) => dataset,
        Err(datasets::Error::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match portal.datasets.contents(&user.user, &dataset).await {
        Ok(contents) => Ok(Some((dataset, contents))),
        Err(datasets::Error::Files(_) | datasets::Error::Wrong(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Where the pictures of some paths are.
struct Pictures {
    base: String,
    version: String,
    size: (u32, u32),
    has_masks: bool,
    rows: HashMap<String, u32>,
}

impl Pictures {
    fn new(dataset: &Dataset, contents: &Contents, wanted: &[Prediction]) -> Self {
        let paths = wanted.iter().map(Prediction::path).collect();
        let document = &contents.document;
        Self {
            base: format!("/api/v1/datasets/{}/items", dataset.id),
            version: dataset.manifest_sha256.chars().take(8).collect(),
            size: (document.image.width, document.image.height),
            has_masks: dataset.kind == "segmentation",
            rows: if document.cache.is_some() { contents.index.rows_of(&paths) } else { HashMap::new() },
        }
    }

    /// A picture with nothing drawn over it, and where its true mask is.
    fn of(&self, path: &str) -> Option<(Drawing, Option<String>)> {
        let (row, version) = (self.rows.get(path)?, &self.version);
        let drawing = Drawing {
            picture: format!("{}/{row}/picture?v={version}", self.base),
            alt: path.to_owned(),
            width: self.size.0,
            height: self.size.1,
            ..Drawing::default()
        };
        Some((drawing, self.has_masks.then(|| format!("{}/{row}/mask?v={version}", self.base))))
    }
}

/// `POST /models/{id}/change`
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    form: Form,
) -> Result<Redirect> {
    let changes = DescriptionChanges {
        name: Some(form.get("name").to_owned()),
        notes: Some(form.get("notes").to_owned()),
        visibility: form.get("visibility").parse().ok(),
    };
    portal.models.change(user.actor(), id, changes).await?;
    Ok(Redirect::to(&format!("/models/{id}")))
}

/// `POST /models/{id}/remove`
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    form: Form,
) -> Result<Redirect> {
    portal.models.remove(user.actor(), id, form.get("files") == "yes").await?;
    Ok(Redirect::to("/models?done=removed"))
}
