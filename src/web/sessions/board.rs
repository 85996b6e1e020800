//! `POST /tensorboard`: from anything that logs to the TensorBoard that shows it, by one press. A board of the user that
//! runs on the same folders is used again; else one is started. The answer leads to the board's own address, where a page
//! shows its start and goes in when it is ready. `GET` is what a link may do, as JupyterLab's: it leads to a running
//! board, or asks whether one is to be started.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Query, State},
    http::{HeaderMap, Uri},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    db::sessions::Filter,
    model::{JobId, Run, RunId, Session, SessionState, SweepId},
    sessions::{MAX_LOG_DIRECTORIES, Options, StartRequest},
    web::{
        Listener, Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form},
        },
        page::{Nav, Page},
        views::BoardPage,
    },
};

/// The number of live boards of a user that are looked at.
const MAX_BOARDS: i64 = 200;

/// The longest name of a session (characters), less a few for what stands before it.
const MAX_NAME: usize = 60;

/// `POST /tensorboard`: with `run` (several), `job`, `sweep`, or `directory`.
pub async fn show(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Redirect> {
    let (name, options) = what(&portal, &user, &form).await?;
    let session = open(&portal, &user, name, options).await?;
    Ok(Redirect::to(&portal.open_url(&headers, session.id)))
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    directory: String,
}

/// `GET /tensorboard?directory=…`: the running board of this folder, or a page that starts one.
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Result<Response> {
    let directory = asked.directory.trim().to_owned();
    if directory.is_empty() {
        return Ok(Redirect::to("/sessions/new?app=tensorboard").into_response());
    }
    let (_, options) = of_directory(&directory);
    if let Some(board) = running(&portal, &user, &options).await? {
        return Ok(Redirect::to(&portal.open_url(&headers, board.id)).into_response());
    }
    let layout = portal.layout_of(&user.0, Nav::Sessions);
    Ok(Page(BoardPage { layout, directory }).into_response())
}

/// `GET /tensorboard` on the apps' origin, where a link in JupyterLab leads: the portal's own page.
pub async fn from_apps(State(portal): State<Arc<Portal>>, headers: HeaderMap, uri: Uri) -> Redirect {
    let address = uri.path_and_query().map_or("/tensorboard", |whole| whole.as_str());
    Redirect::to(&format!("{}{address}", portal.portal_seen_from(Listener::Apps, &headers)))
}

/// Returns the name and the folder of a board.
fn of_directory(directory: &str) -> (String, Options) {
    let name = directory.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let options = Options { log_directory: Some(directory.to_owned()), ..Options::default() };
    (name.chars().take(MAX_NAME).collect(), options)
}

/// Returns the name and the folders of what the form asks for.
async fn what(portal: &Portal, user: &CurrentUser, form: &Form) -> Result<(String, Options)> {
    let directory = form.get("directory").trim();
    if !directory.is_empty() {
        return Ok(of_directory(directory));
    }
    let mut runs = Vec::new();
    if let Ok(job) = form.get("job").parse::<JobId>() {
        let job = portal.jobs.find(user.actor(), job).await?;
        runs.extend(portal.runs.of_job(job.id).await?);
        if runs.is_empty() {
            return Err(Error::conflict("This job has not logged any curves yet. Try again when it has."));
        }
    }
    if let Ok(sweep) = form.get("sweep").parse::<SweepId>() {
        let sweep = portal.sweeps.find(user.actor(), sweep).await?;
        let (_, standings) = portal.sweeps.standings(&sweep).await?;
        for job in standings.into_iter().filter_map(|standing| standing.job) {
            runs.extend(portal.runs.of_job(job.id).await?);
            if runs.len() == MAX_LOG_DIRECTORIES {
                break;
            }
        }
        if runs.is_empty() {
            return Err(Error::conflict("No task of this sweep has logged any curves yet. Try again later."));
        }
    }
    for id in form.all("run") {
        let id: RunId = id.parse().map_err(|_err| Error::not_found())?;
        runs.push(portal.runs.find(&user.user, id).await?);
    }
    if runs.is_empty() {
        return Err(Error::field("run", "missing_field", "Select the runs to show first."));
    }
    Ok(of_runs(&runs))
}

/// Returns the name of a board of these runs, and its folders.
pub(in crate::web) fn of_runs(runs: &[Run]) -> (String, Options) {
    let name = match runs {
        [one] => one.name.chars().take(MAX_NAME).collect(),
        runs => format!("{} runs", runs.len()),
    };
    (name, Options { log_directories: named(runs), ..Options::default() })
}

/// Finds the user's live board of these folders, or starts one.
pub(in crate::web) async fn open(
    portal: &Portal,
    user: &CurrentUser,
    name: String,
    options: Options,
) -> Result<Session> {
    if let Some(board) = running(portal, user, &options).await? {
        return Ok(board);
    }
    let request = StartRequest { app: "tensorboard".to_owned(), name: Some(name), options, ..StartRequest::default() };
    Ok(portal.sessions.start(user.actor(), request, None).await?)
}

/// Finds the user's live board of these folders.
async fn running(portal: &Portal, user: &CurrentUser, options: &Options) -> Result<Option<Session>> {
    let boards = Filter {
        owner: Some(user.id()),
        app: Some("tensorboard"),
        live_only: true,
        sessions_only: true,
        limit: MAX_BOARDS,
        ..Filter::default()
    };
    let same = |board: &Session| {
        board.state != SessionState::Stopping
            && board.spec.log_directories == options.log_directories
            && board.spec.log_directory == options.log_directory
    };
    Ok(portal.sessions.list(boards).await?.into_iter().find(same))
}

/// The directories of runs by names that are no two alike and can be names of files.
fn named(runs: &[Run]) -> BTreeMap<String, String> {
    let mut named = BTreeMap::new();
    for run in runs {
        let plain = |c: char| if matches!(c, '/' | '=' | ',' | ':') || c.is_control() { '_' } else { c };
        let short: String = run.name.chars().take(40).map(plain).collect();
        let id = run.id.to_string();
        let name = if matches!(short.trim(), "" | "." | "..") || named.contains_key(&short) {
            format!("{short} {}", &id[id.len() - 6..])
        } else {
            short
        };
        named.insert(name, run.directory.clone());
    }
    named
}
