//! `/runs` as pages: the table with the form that registers a directory, and one run. The rules are
//! the API's.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use serde_json::Value;

use super::{address::Address, table};
use crate::{
    auth::Principal,
    model::{
        Run, RunId, Timestamp,
        run::{Source, Visibility},
    },
    runs::{Change, Draft, Metrics, Selection, Table, Tag, Tags, metrics},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id, Query},
        },
        page::{Nav, Page},
        sessions::board,
        trash,
        views::{
            self, CurveRow, Moment, RunForm, RunPage, RunPart, RunRow, RunState, RunsCompared, RunsPage, TrashPanel,
            number, passed_over,
        },
    },
};

/// How many curves a page shows.
const MAX_CURVES_SHOWN: usize = 500;

/// More lines than this nobody tells apart: ten colours, five kinds of dashes.
const MAX_COMPARED: usize = 50;

/// The address of one run.
#[derive(Default, Deserialize)]
pub struct PageParams {
    done: Option<String>,
}

/// `/runs`: the table of results.
pub async fn list(user: CurrentUser, State(portal): State<Arc<Portal>>, RawQuery(query): RawQuery) -> Result<Response> {
    let (form, query) = (empty_form(&user), query.unwrap_or_default());
    let address = match Address::read(&query, true) {
        Ok(address) => address,
        Err(error) => return list_with(&portal, &user.0, Address::default(), form, &error).await,
    };
    let table = match portal.runs.results(&user.user, &address.of, &address.asked).await.map_err(Error::from) {
        Ok(table) => table,
        Err(error) if error.field_errors().is_empty() => return Err(error),
        Err(error) => return list_with(&portal, &user.0, address, form, &error).await,
    };
    let mut view = list_view(&portal, &user.0, &address, table, form);
    view.notice = address.done.as_deref().and_then(notice).map(str::to_owned);
    view.removed = address.removed.map(|id| id.to_string());
    view.trash = trash::panel(&portal, &user, None).await?;
    Ok(Page(view).into_response())
}

/// The page with what is wrong with its address, and with all the runs that it is about.
async fn list_with(
    portal: &Portal,
    user: &Arc<Principal>,
    address: Address,
    form: RunForm,
    error: &Error,
) -> Result<Response> {
    let plain = Address { of: address.of.clone(), ..Address::default() };
    let table = portal.runs.results(&user.user, &plain.of, &plain.asked).await?;
    let mut view = list_view(portal, user, &plain, table, form);
    view.table.filter.clone_from(&address.asked.filter);
    view.table.wrong = error.field_errors().first().map(|fault| fault.message.clone());
    Ok(error.with_page(Page(view)))
}

fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "changed" => "The run was changed.",
        "removed" => "The run was removed. Its log files are kept.",
        "restored" => "The run was restored.",
        _ => return None,
    })
}

/// `POST /runs`
pub async fn create(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let typed = read(&form, &user);
    let draft = Draft {
        directory: typed.directory.clone(),
        name: Some(typed.name.clone()),
        session: None,
        visibility: typed.visibility,
        group: group_of(&typed),
    };
    match portal.runs.add(&user.user, draft, None).await.map_err(Error::from) {
        Ok(made) => Ok(Redirect::to(&format!("/runs/{}", made.id)).into_response()),
        Err(error) if error.field_errors().is_empty() => Err(error),
        Err(error) => {
            let address = Address::default();
            let table = portal.runs.results(&user.user, &address.of, &address.asked).await?;
            let mut view = list_view(&portal, &user.0, &address, table, typed);
            view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
            Ok(error.with_page(Page(view)))
        }
    }
}

/// `/runs/{id}`
pub async fn show(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let run = portal.runs.find(&user.user, id).await?;
    let mut view = view(&portal, &user.0, &run).await?;
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

/// `/runs/compare?id=…&id=…`, as a form with boxes sends it: the page's script asks for the curves
/// and reads the rest of the address, which is how they are looked at.
pub async fn compare(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let mut ids: Vec<RunId> = Vec::new();
    let query = query.unwrap_or_default();
    for (_, id) in url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "id") {
        let id = id.parse().map_err(|_err| Error::not_found())?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if ids.len() > MAX_COMPARED {
        return Err(Error::field("id", "too_many", format!("At most {MAX_COMPARED} runs can be compared.")));
    }
    let mut runs = Vec::with_capacity(ids.len());
    for id in ids {
        runs.push((id.to_string(), portal.runs.find(&user.user, id).await?.name));
    }
    Ok(Page(RunsCompared { layout: portal.layout_of(&user.0, Nav::Runs), runs }).into_response())
}

/// `POST /runs/selection`: the curves of some runs together, or in TensorBoard.
pub async fn selection(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Redirect> {
    let mut ids: Vec<RunId> = Vec::new();
    for id in form.all("id") {
        let id = id.parse().map_err(|_err| Error::not_found())?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if ids.len() > MAX_COMPARED {
        return Err(Error::field("id", "too_many", format!("At most {MAX_COMPARED} runs can be compared.")));
    }
    match form.get("do") {
        "compare" => {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            for id in &ids {
                query.append_pair("id", &id.to_string());
            }
            Ok(Redirect::to(&format!("/runs/compare?{}", query.finish())))
        }
        "tensorboard" if ids.is_empty() => Err(Error::field("id", "missing_field", "Select the runs to show first.")),
        "tensorboard" => {
            let mut runs = Vec::with_capacity(ids.len());
            for id in ids {
                runs.push(portal.runs.find(&user.user, id).await?);
            }
            let (name, options) = board::of_runs(&runs);
            let session = board::open(&portal, &user, name, options).await?;
            Ok(Redirect::to(&portal.open_url(&headers, session.id)))
        }
        _ => Err(Error::field("do", "invalid_value", "Must be compare or tensorboard.")),
    }
}

/// `POST /runs/{id}`
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
    form: Form,
) -> Result<Response> {
    let run = portal.runs.find(&user.user, id).await?;
    let typed = read(&form, &user);
    let change = Change { name: Some(typed.name.clone()), visibility: Some(typed.visibility), group: group_of(&typed) };
    match portal.runs.change(&user.user, id, change).await.map_err(Error::from) {
        Ok(_) => Ok(Redirect::to(&format!("/runs/{id}?done=changed")).into_response()),
        Err(error) if error.field_errors().is_empty() => Err(error),
        Err(error) => {
            let mut view = view(&portal, &user.0, &run).await?;
            view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
            view.form = typed;
            Ok(error.with_page(Page(view)))
        }
    }
}

/// `POST /runs/{id}/remove`
pub async fn remove(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<RunId>) -> Result<Redirect> {
    portal.runs.remove(&user.user, id).await?;
    Ok(Redirect::to(&format!("/runs?done=removed&removed={id}")))
}

/// `POST /runs/{id}/restore`
pub async fn restore(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<RunId>) -> Result<Redirect> {
    portal.runs.restore(&user.user, id).await?;
    Ok(Redirect::to(&format!("/runs/{id}?done=restored")))
}

fn empty_form(user: &CurrentUser) -> RunForm {
    RunForm {
        directory: String::new(),
        name: String::new(),
        visibility: Visibility::Private,
        group: String::new(),
        groups: user.user.groups.clone(),
    }
}

fn read(form: &Form, user: &CurrentUser) -> RunForm {
    RunForm {
        directory: form.get("directory").to_owned(),
        name: form.get("name").to_owned(),
        visibility: form.get("visibility").parse().unwrap_or(Visibility::Private),
        group: form.get("group").to_owned(),
        groups: user.user.groups.clone(),
    }
}

/// The chooser of groups stands beside every visibility.
fn group_of(form: &RunForm) -> Option<String> {
    (form.visibility == Visibility::Group).then(|| form.group.clone())
}

fn list_view(portal: &Portal, user: &Arc<Principal>, address: &Address, table: Table, form: RunForm) -> RunsPage {
    RunsPage {
        layout: portal.layout_of(user, Nav::Runs),
        notice: None,
        removed: None,
        trash: TrashPanel::default(),
        errors: Vec::new(),
        table: table::view(address, table, |run| row(run, user, portal.clock.now())),
        form,
    }
}

fn row(run: &Run, user: &Principal, now: Timestamp) -> RunRow {
    RunRow {
        id: run.id.to_string(),
        name: run.name.clone(),
        owner: (run.owner != user.user.id).then(|| run.owner_name.clone()),
        directory: run.directory.clone(),
        is_helper: run.is_helper,
        state: RunState::of(&run.reading, run.source == Source::External),
        points: run.reading.points,
        curves: run.reading.curves,
        grown: run.reading.grown_at.map(|at| Moment::ago(at, now)),
    }
}

async fn view(portal: &Portal, user: &Arc<Principal>, run: &Run) -> Result<RunPage> {
    let now = portal.clock.now();
    let complete = run.reading.complete;
    let selection = Selection { limit: MAX_CURVES_SHOWN, ..Selection::default() };
    let found = portal.runs.look(run.id, move |store| metrics(store, complete, &selection)).await?;
    let (revision, truncated) = (found.revision, found.truncated);
    Ok(RunPage {
        layout: portal.layout_of(user, Nav::Runs),
        notice: None,
        errors: Vec::new(),
        row: row(run, user, now),
        is_owner: run.owner == user.user.id,
        complete,
        revision,
        error: run.reading.error.clone(),
        passed_over: passed_over(&run.reading.skipped),
        form: RunForm {
            directory: run.directory.clone(),
            name: run.name.clone(),
            visibility: run.visibility,
            group: run.group.as_ref().and_then(|(_, name)| name.clone()).unwrap_or_default(),
            groups: user.user.groups.clone(),
        },
        parts: parts(run.id, found),
        truncated,
    })
}

fn parts(id: RunId, found: Metrics) -> Vec<RunPart> {
    let part = |tags: Tags| {
        let curve = |tag: &Tag| CurveRow {
            tag: tag.tag.clone(),
            count: tag.count,
            last: number(tag.last),
            min: number(tag.min),
            max: number(tag.max),
            csv: address(id, &tags.run, &tag.tag),
        };
        RunPart {
            curves: tags.tags.iter().map(curve).collect(),
            hparams: tags.hparams.iter().map(|(name, value)| (name.clone(), shown(value))).collect(),
            name: (tags.run != ".").then(|| tags.run.clone()),
        }
    };
    found.runs.into_iter().map(part).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().take(500).collect(),
        other => other.to_string(),
    }
}

/// Where every point of a curve is to be had.
fn address(id: RunId, run: &str, tag: &str) -> String {
    let tag = percent_encoding::utf8_percent_encode(tag, percent_encoding::NON_ALPHANUMERIC);
    let query: String = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("run", run)
        .append_pair("format", "csv")
        .finish();
    format!("/api/v1/runs/{id}/metrics/{tag}?{query}")
}
