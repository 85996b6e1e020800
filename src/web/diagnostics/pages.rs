//! `/diagnostics`: the forms that test GPUs and storage, the list of tests, and one with its verdicts, tables and
//! history. The same service as the API's.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    db::datasets::DatasetFilter,
    diagnostics::{NewDiagnostics, NewStorageTest, PastRun},
    model::{
        DatasetState, DiagnosticsId,
        diagnostics::{Diagnostics, Installed, Level, Measured, RunState, StorageSubject, Subject},
        size::parse_size,
    },
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id, Query},
            href::href,
            paging::{Listed, Paging},
        },
        jobs::why_it_waits,
        page::{Nav, Page},
        sessions::cards::is_operator,
        views::{
            self, DiagnosticsForm, DiagnosticsPage, DiagnosticsRow, DiagnosticsTables, Remedy, RunningTest,
            ShowDiagnostics, ShowStorage, StorageForm, TestedStorage,
        },
    },
};

/// How many runs one page shows.
const PAGE_SIZE: i64 = 50;
/// How many datasets can be chosen.
const MAX_DATASETS: i64 = 200;

/// The address of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageParams {
    cursor: Option<String>,
}

/// `/diagnostics`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    Ok(Page(view(&portal, &user, visit.cursor, untouched(), untouched_storage(), Vec::new()).await?).into_response())
}

fn untouched() -> DiagnosticsForm {
    DiagnosticsForm { level: Level::Medium.to_string(), gpus: "1".to_owned(), group: String::new() }
}

fn untouched_storage() -> StorageForm {
    StorageForm { directory: "~".to_owned(), ..StorageForm::default() }
}

async fn view(
    portal: &Portal,
    user: &CurrentUser,
    cursor: Option<String>,
    form: DiagnosticsForm,
    storage: StorageForm,
    errors: Vec<views::FieldError>,
) -> Result<DiagnosticsPage> {
    let now = portal.clock.now();
    let paging = Paging::new(Some(PAGE_SIZE), cursor.filter(|cursor| !cursor.is_empty()));
    let before = paging.after()?;
    let found = portal.diagnostics.list(user.actor(), before, PAGE_SIZE + 1).await?;
    let page = Listed::new(found, PAGE_SIZE, |one: &Diagnostics| one.id);
    let ready = DatasetFilter {
        viewer: user.id(),
        own: false,
        state: Some(DatasetState::Ready),
        find: "",
        sort: None,
        before: None,
        limit: MAX_DATASETS,
    };
    let datasets = portal.datasets.list(ready).await?.into_iter().map(|(one, _)| (one.id.to_string(), one.name));
    Ok(DiagnosticsPage {
        layout: portal.layout_of(&user.0, Nav::Cluster),
        groups: user.user.groups.iter().map(ToString::to_string).collect(),
        most: portal.sessions.scheduler.largest().gpus,
        form,
        storage,
        datasets: datasets.collect(),
        errors,
        rows: page.items.iter().map(|run| DiagnosticsRow::new(run, now)).collect(),
        names_owners: is_operator(&user.0),
        first_href: before.map(|_| "/diagnostics".to_owned()),
        next_href: page.next_cursor.as_deref().map(|cursor| href("/diagnostics", [("cursor", cursor)])),
    })
}

/// `POST /diagnostics`
pub async fn start(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let text = |name: &str| form.get(name).trim().chars().take(255).collect::<String>();
    let typed = DiagnosticsForm { level: text("level"), gpus: text("gpus"), group: text("group") };
    // What is not a number is as wrong as none.
    let level = match typed.level.parse() {
        Ok(level) => Some(level),
        Err(_unknown) if typed.level.is_empty() => None,
        Err(_unknown) => return Err(Error::field("level", "invalid_value", "Must be `quick`, `medium` or `long`.")),
    };
    let new = NewDiagnostics {
        level,
        gpus: Some(typed.gpus.parse().unwrap_or(0)),
        group: Some(typed.group.clone()),
        ..NewDiagnostics::default()
    };
    let error = match portal.diagnostics.start(user.actor(), new).await.map_err(Error::from) {
        Ok(run) => return Ok(Redirect::to(&format!("/diagnostics/{}", run.id)).into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let mut errors: Vec<views::FieldError> = error.field_errors().iter().map(views::FieldError::from).collect();
    if !errors.iter().any(|error| ["level", "gpus", "group"].contains(&error.field.as_str())) {
        let message = errors.first().map_or_else(|| error.detail().to_owned(), |first| first.message.clone());
        errors.push(views::FieldError { field: "gpus".to_owned(), message });
    }
    let view = view(&portal, &user, None, typed, untouched_storage(), errors).await?;
    Ok(error.with_page(Page(view)))
}

/// `POST /diagnostics/storage`
pub async fn start_storage(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let text = |name: &str| form.get(name).trim().chars().take(4096).collect::<String>();
    let typed = StorageForm { directory: text("directory"), dataset: text("dataset"), size: text("size") };
    let dataset = match typed.dataset.parse() {
        Ok(id) => Some(id),
        Err(_unknown) if typed.dataset.is_empty() => None,
        Err(_unknown) => return Err(Error::field("dataset", "invalid_value", "This is not the id of a dataset.")),
    };
    let new = NewStorageTest {
        directory: Some(typed.directory.clone()),
        dataset,
        // What is not a size is as wrong as none.
        size_bytes: Some(parse_size(&typed.size).unwrap_or(0)).filter(|_| !typed.size.is_empty()),
        ..NewStorageTest::default()
    };
    let error = match portal.diagnostics.start_storage(user.actor(), new).await.map_err(Error::from) {
        Ok(run) => return Ok(Redirect::to(&format!("/diagnostics/{}", run.id)).into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let mut errors: Vec<views::FieldError> = error.field_errors().iter().map(views::FieldError::from).collect();
    if !errors.iter().any(|error| ["directory", "dataset", "size_bytes"].contains(&error.field.as_str())) {
        let message = errors.first().map_or_else(|| error.detail().to_owned(), |first| first.message.clone());
        errors.push(views::FieldError { field: "directory".to_owned(), message });
    }
    let view = view(&portal, &user, None, untouched(), typed, errors).await?;
    Ok(error.with_page(Page(view)))
}

/// `/diagnostics/{id}`
pub async fn show(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<DiagnosticsId>) -> Result<Response> {
    let run = portal.diagnostics.find(user.actor(), id).await?;
    let now = portal.clock.now();
    let running = if run.state == RunState::Running {
        Some(match portal.diagnostics.progress(&run).await? {
            Some((part, done, of)) => RunningTest { part, done, of, waits: None },
            None => RunningTest { waits: why_it_waits(&portal, &user, run.job).await, ..RunningTest::default() },
        })
    } else {
        None
    };
    if let Subject::Storage(subject) = &run.subject {
        let view = storage(&portal, &user, &run, subject.clone(), running).await?;
        return Ok(Page(view).into_response());
    }
    let gpus: Vec<_> = run.judgement.iter().flat_map(|judged| &judged.gpus).map(|one| one.gpu.clone()).collect();
    let past: BTreeMap<String, Vec<PastRun>> = portal.diagnostics.past(&gpus, Some(run.id)).await?;
    let results = portal.diagnostics.results(user.actor(), &run).await?;
    let measured = results.as_ref().and_then(|results| Measured::deserialize(&results["measured"]).ok());
    let installed = results.as_ref().and_then(|results| Installed::deserialize(&results["installed"]).ok());
    let view = ShowDiagnostics {
        layout: portal.layout_of(&user.0, Nav::Cluster),
        row: DiagnosticsRow::new(&run, now),
        detail: run.detail.clone(),
        running,
        remedy: is_operator(&user.0).then_some(match portal.sessions.scheduler.machines().await {
            None => Remedy::Hold,
            Some(machines) if machines.may_drain => Remedy::Drain,
            Some(_) => Remedy::Command,
        }),
        tables: DiagnosticsTables::new(&run, measured.as_ref(), installed.as_ref(), &past),
        has_results: results.is_some(),
        judgement: run.judgement,
    };
    Ok(Page(view).into_response())
}

async fn storage(
    portal: &Portal,
    user: &CurrentUser,
    run: &Diagnostics,
    subject: StorageSubject,
    running: Option<RunningTest>,
) -> Result<ShowStorage> {
    let now = portal.clock.now();
    let tested = match &run.judgement {
        Some(judged) => {
            let id = judged.storage.as_ref().map(|storage| storage.file_system.id.as_str()).unwrap_or_default();
            TestedStorage::new(judged, &portal.diagnostics.past_storage(id, Some(run.id)).await?, now)
        }
        None => None,
    };
    Ok(ShowStorage {
        layout: portal.layout_of(&user.0, Nav::Cluster),
        row: DiagnosticsRow::new(run, now),
        subject,
        detail: run.detail.clone(),
        running,
        has_results: tested.is_some(),
        tested,
    })
}

/// `POST /diagnostics/{id}/cancel`
pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DiagnosticsId>,
) -> Result<Redirect> {
    portal.diagnostics.cancel(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/diagnostics/{id}")))
}
