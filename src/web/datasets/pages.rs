//! `/datasets` as pages: the list, the form for a new one, and one with its classes, pictures
//! and faults. The same service as the API's.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::items::{ItemParameters, ItemView, items};
use crate::{
    datasets::{self, Contents, NewDataset, browse},
    db::datasets::{DatasetFilter, SORT_COLUMNS},
    model::{Dataset, DatasetId, DatasetState, DescriptionChanges, Resources},
    web::{
        Portal, columns,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id, Query},
            href::href,
            paging::Paging,
            sorting::Sorting,
        },
        jobs::why_it_waits,
        page::{Nav, Page},
        selection,
        views::{
            self, ClassBar, DatasetForm, DatasetInside, DatasetPage, DatasetRow, DatasetsPage, ItemCard, ItemFilter,
            Moment, NewDatasetPage, SideBar,
        },
    },
};

/// How many datasets, and how many pictures, one page shows.
const PAGE_SIZE: i64 = 50;
const PICTURES: usize = 60;
/// How many classes are drawn; the rest is in one line.
const BARS: usize = 40;

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

/// `/datasets`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let now = portal.clock.now();
    let cursor = visit.cursor.clone().filter(|cursor| !cursor.is_empty());
    let sorting = Sorting::of_page(&SORT_COLUMNS, &visit.sort);
    let position = sorting.position(&Paging::new(Some(PAGE_SIZE), cursor.clone()))?;
    let filter = DatasetFilter {
        viewer: user.id(),
        own: false,
        state: None,
        find: &visit.search,
        sort: sorting.sort(&position),
        before: position.before,
        limit: PAGE_SIZE + 1,
    };
    let page = sorting.listed(portal.datasets.list(filter).await?, PAGE_SIZE, |one: &Dataset| one.id);
    let address = |sort: &str, cursor: &str| {
        href("/datasets", [("search", visit.search.as_str()), ("sort", sort), ("cursor", cursor)])
    };
    let columns = columns::DATASETS.shown(&portal, &user).await?;
    let frame = sorting.frame(columns, address, cursor.as_deref(), page.next_cursor.as_deref());
    let frame = selection::told(frame, visit.done.as_deref().unwrap_or_default(), &visit.failed, "dataset");
    let view = DatasetsPage {
        layout: portal.layout_of(&user.0, Nav::Datasets),
        notice: (visit.done.as_deref() == Some("removed")).then(|| "The dataset was removed.".to_owned()),
        rows: page.items.iter().map(|one| DatasetRow::new(one, Moment::ago(one.created_at, now), user.id())).collect(),
        frame,
        search: visit.search,
    };
    Ok(Page(view).into_response())
}

/// `/datasets/new`
pub async fn new(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Response> {
    let form = DatasetForm::usual(uuid::Uuid::new_v4().simple().to_string());
    Ok(Page(new_view(&portal, &user, form, Vec::new())).into_response())
}

fn new_view(portal: &Portal, user: &CurrentUser, form: DatasetForm, errors: Vec<views::FieldError>) -> NewDatasetPage {
    NewDatasetPage {
        layout: portal.layout_of(&user.0, Nav::Datasets),
        groups: user.user.groups.iter().map(ToString::to_string).collect(),
        form,
        errors,
        preview: None,
        is_preview: false,
    }
}

/// `POST /datasets`
pub async fn create(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let typed = DatasetForm::read(|name| form.get(name).chars().take(4096).collect()).completed();
    let key = Some(typed.idempotency_key.clone()).filter(|key| (1..=255).contains(&key.len()));
    let hash = format!("{typed:?}");
    let once = key.as_deref().map(|key| (key, hash.as_str()));
    let error = match portal.datasets.make(user.actor(), request(&typed), once).await {
        Ok(made) => return Ok(Redirect::to(&format!("/datasets/{}", made.id)).into_response()),
        Err(error) => Error::from(error),
    };
    if error.field_errors().is_empty() {
        return Err(error);
    }
    let errors = error.field_errors().iter().map(views::FieldError::from).collect();
    Ok(error.with_page(Page(new_view(&portal, &user, typed, errors))))
}

/// `POST /datasets/preview`: the form again, with what its source would be read as.
pub async fn preview(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let typed = DatasetForm::read(|name| form.get(name).chars().take(4096).collect()).completed();
    let found = portal.datasets.inspect(&user.user, request(&typed)).await;
    match found {
        Ok(found) => {
            let view = NewDatasetPage { preview: Some(found), ..new_view(&portal, &user, typed, Vec::new()) };
            Ok(Page(view).into_response())
        }
        Err(error) => {
            let error = Error::from(error);
            if error.field_errors().is_empty() {
                return Err(error);
            }
            let errors = error.field_errors().iter().map(views::FieldError::from).collect();
            let view = NewDatasetPage { is_preview: true, ..new_view(&portal, &user, typed, errors) };
            Ok(error.with_page(Page(view)))
        }
    }
}

/// What was typed, in the API's words. What is no number stays text, and is told as a fault.
fn request(typed: &DatasetForm) -> NewDataset {
    let text = |value: &str| Some(value.trim().to_owned()).filter(|value| !value.is_empty());
    let number = |value: &str| match value.trim().parse::<i64>() {
        Ok(number) => json!(number),
        Err(_) => json!(value),
    };
    let mut source = Map::from_iter([("kind".to_owned(), json!(typed.source))]);
    for (field, value) in typed.source_fields() {
        if let Some(value) = text(value) {
            source.insert(field.to_owned(), if field == "count" { number(&value) } else { json!(value) });
        }
    }
    let mut spec = Map::from_iter([
        ("kind".to_owned(), json!(typed.kind())),
        ("source".to_owned(), Value::Object(source)),
        ("resize".to_owned(), json!(typed.resize)),
        ("duplicates".to_owned(), json!(if typed.keep_duplicates { "keep" } else { "drop" })),
        ("licence".to_owned(), json!(typed.licence)),
    ]);
    match typed.splits.as_str() {
        "" | "auto" => {}
        "folders" => {
            let entries = |value: &str| -> Vec<String> {
                value.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
            };
            let folders = json!({
                "train": entries(&typed.split_train),
                "val": entries(&typed.split_val),
                "test": entries(&typed.split_test),
            });
            spec.insert("splits".to_owned(), folders);
        }
        word => drop(spec.insert("splits".to_owned(), json!(word))),
    }
    for (field, value) in [
        ("width", &typed.width),
        ("height", &typed.height),
        ("channels", &typed.channels),
        ("seed", &typed.seed),
        ("validation_percent", &typed.validation_percent),
        ("test_percent", &typed.test_percent),
        ("min_per_class", &typed.min_per_class),
        ("max_per_class", &typed.max_per_class),
    ] {
        if let Some(value) = text(value) {
            spec.insert(field.to_owned(), number(&value));
        }
    }
    let cpus = typed.cpus.trim().parse().unwrap_or(2);
    NewDataset {
        name: typed.name.clone(),
        spec: Value::Object(spec),
        directory: text(&typed.directory),
        group: text(&typed.group),
        resources: Some(Resources { cpus, memory_bytes: cpus.clamp(1, 64) << 30, ..Resources::default() }),
        profile: None,
        time_limit_seconds: None,
    }
}

/// `/datasets/{id}`
pub async fn show(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    Query(visit): Query<ItemParameters>,
) -> Result<Response> {
    let dataset = portal.datasets.find(user.actor(), id).await?;
    let now = portal.clock.now();
    let mut view = DatasetPage {
        layout: portal.layout_of(&user.0, Nav::Datasets),
        row: DatasetRow::new(&dataset, Moment::ago(dataset.created_at, now), user.id()),
        directory: dataset.directory.clone(),
        files_href: format!("/files?path={}", crate::model::files::RawPath::from(dataset.directory.as_str()).encoded()),
        detail: dataset.detail.clone(),
        notes: dataset.notes.clone(),
        visibility: dataset.visibility.as_str(),
        job: dataset.job.filter(|_| user.id() == dataset.owner),
        progress: None,
        unreachable: None,
        inside: None,
    };
    match dataset.state {
        DatasetState::Ready => match portal.datasets.contents(&user.user, &dataset).await {
            Ok(contents) => view.inside = Some(inside(&dataset, &contents, &visit)?),
            Err(error @ (datasets::Error::Files(_) | datasets::Error::Wrong(_))) => {
                view.unreachable = Some(Error::from(error).detail().to_owned());
            }
            Err(error) => return Err(error.into()),
        },
        DatasetState::Building => {
            let progress = portal.datasets.progress(&user.user, &dataset).await.ok().flatten();
            view.progress = Some(if let Some(progress) = progress {
                (progress.done, progress.total, progress.to_string())
            } else {
                let why = why_it_waits(&portal, &user, dataset.job).await;
                (0, 0, why.unwrap_or_else(|| "The build starts in a moment.".to_owned()))
            });
        }
        DatasetState::Failed | DatasetState::Cancelled => {}
    }
    Ok(Page(view).into_response())
}

fn inside(dataset: &Dataset, contents: &Contents, visit: &ItemParameters) -> Result<DatasetInside> {
    let document = &contents.document;
    let part = items(contents, &visit.wanted(PICTURES)?);
    let version: String = dataset.manifest_sha256.chars().take(8).collect();
    let has_pictures = document.cache.is_some();
    let address = |cursor: Option<&str>, split: &str, label: &str| {
        let sort = match visit.sort {
            browse::SortKey::Path => "",
            browse::SortKey::Size => "size",
            browse::SortKey::Pixels => "pixels",
        };
        let descending = if visit.descending { "true" } else { "" };
        let words = [
            ("label", label),
            ("split", split),
            ("search", &visit.search),
            ("sort", sort),
            ("descending", descending),
            ("cursor", cursor.unwrap_or_default()),
        ];
        href(&format!("/datasets/{}", dataset.id), words) + "#pictures"
    };
    let card = |item: ItemView| ItemCard::new(dataset.id, item, has_pictures, document, &version);
    let bars = browse::histogram(document);
    let most = bars.iter().map(|(_, counts)| counts.iter().sum::<u64>()).max().unwrap_or_default();
    let rest = bars.len().saturating_sub(BARS);
    let bars = bars.into_iter().take(BARS).map(|(name, counts)| {
        let href = address(None, "", &name);
        ClassBar::new(name, href, counts, most)
    });
    let sides = contents.index.sides();
    let largest = sides.iter().map(|(_, count)| *count).max().unwrap_or_default();
    Ok(DatasetInside {
        counts: document.counts,
        seed: document.seed,
        image: document.image.clone(),
        licence: document.licence.clone(),
        manifest_sha256: dataset.manifest_sha256.clone(),
        means: document.mean.clone().unwrap_or_default().iter().map(|mean| format!("{mean:.1}")).collect(),
        deviations: document.deviation.clone().unwrap_or_default().iter().map(|one| format!("{one:.1}")).collect(),
        mean_href: has_pictures.then(|| format!("/api/v1/datasets/{}/mean?v={version}", dataset.id)),
        bars: bars.collect(),
        bars_rest: rest,
        sides: sides.into_iter().map(|(side, count)| SideBar::new(side, count, largest)).collect(),
        classes: document.classes.iter().take(1000).cloned().collect(),
        filter: ItemFilter {
            label: visit.label.clone(),
            split: visit.split.clone(),
            search: visit.search.clone(),
            sort: match visit.sort {
                browse::SortKey::Path => "path",
                browse::SortKey::Size => "size",
                browse::SortKey::Pixels => "pixels",
            },
            descending: visit.descending,
        },
        total: part.total,
        next_href: part.next_cursor.as_deref().map(|cursor| address(Some(cursor), &visit.split, &visit.label)),
        broken_href: address(None, "none", ""),
        cards: part.items.into_iter().map(card).collect(),
        has_pictures,
    })
}

/// `POST /datasets/{id}/cancel`
pub async fn cancel(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<DatasetId>) -> Result<Redirect> {
    portal.datasets.cancel(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/datasets/{id}")))
}

/// `POST /datasets/{id}/build`
pub async fn build(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<DatasetId>) -> Result<Redirect> {
    portal.datasets.build_again(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/datasets/{id}")))
}

/// `POST /datasets/{id}/change`
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    form: Form,
) -> Result<Redirect> {
    let changes = DescriptionChanges {
        name: Some(form.get("name").to_owned()),
        notes: Some(form.get("notes").to_owned()),
        visibility: form.get("visibility").parse().ok(),
    };
    portal.datasets.change(user.actor(), id, changes).await?;
    Ok(Redirect::to(&format!("/datasets/{id}")))
}

/// `POST /datasets/{id}/remove`
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    form: Form,
) -> Result<Redirect> {
    portal.datasets.remove(user.actor(), id, form.get("files") == "yes").await?;
    Ok(Redirect::to("/datasets?done=removed"))
}
