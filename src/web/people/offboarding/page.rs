//! `/admin/users/{name}/offboard`: the three parts of an offboarding with what each would do, what it did, and what remains.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    Offboarding, Step, StepKind, contents_of, end_access,
    hand_over::{HandOverItem, HandOverKind, HandOverRequest, HandOverView, MovedFolder, carry_out},
    named,
};
use crate::{
    auth::Principal,
    model::User,
    web::{
        Portal,
        http::{
            error::Result,
            extract::{Admin, Form, Query},
        },
        page::{Nav, Page},
        people::navigation::{done, refusal},
        views::{self, HandOverForm, HandOverOutcome, HandOverRow, OffboardPage, StepRow},
    },
};

/// How many steps, datasets or models a list of the page shows.
const SHOWN: usize = 100;

fn step_row(step: Step) -> StepRow {
    let what = match step.kind {
        StepKind::Account => "Disable the account",
        StepKind::Token => "Revoke the token",
        StepKind::Sweep => "Stop the sweep",
        StepKind::Job => "Cancel the job",
        StepKind::Session => "Stop the session",
        StepKind::Member => "Remove from the group",
        StepKind::Manager => "Remove as manager of the group",
    };
    StepRow { what, name: step.name, error: step.error }
}

/// What a form did.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    done: Option<String>,
}

/// `/admin/users/{name}/offboard`
pub async fn show(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    let mut view = view(&portal, &admin.0, &user).await?;
    let ended = "Access ended. Work that was running is being stopped.";
    view.notice = (visit.done.as_deref() == Some("ended")).then(|| ended.to_owned());
    Ok(Page(view).into_response())
}

/// `POST /admin/users/{name}/offboard`
pub async fn end(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    let Offboarding { steps, failed } = match end_access(&portal, &admin.0, &user, false).await {
        Ok(result) => result,
        Err(error) => {
            let (error, why) = refusal(error)?;
            let mut view = view(&portal, &admin.0, &user).await?;
            view.error = Some(why);
            return Ok(error.with_page(Page(view)));
        }
    };
    if failed == 0 {
        return Ok(done(&format!("/admin/users/{}/offboard", user.name), "ended"));
    }
    let user = named(&portal, &name).await?;
    let mut view = view(&portal, &admin.0, &user).await?;
    view.failed = steps.into_iter().filter(|step| step.error.is_some()).take(SHOWN).map(step_row).collect();
    Ok(Page(view).into_response())
}

/// `POST /admin/users/{name}/hand-over`: the button *Check* changes nothing.
pub async fn hand_over(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    fields: Form,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    let mut form = HandOverForm {
        to: fields.get("to").trim().chars().take(200).collect(),
        from_folder: fields.get("from_folder").trim().to_owned(),
        to_folder: fields.get("to_folder").trim().to_owned(),
        errors: Vec::new(),
    };
    let folder = MovedFolder { from: form.from_folder.clone(), to: form.to_folder.clone() };
    // Without a present folder nothing was copied.
    let directories = if form.to_folder.is_empty() { Vec::new() } else { vec![folder] };
    let is_check = fields.get("do") == "check";
    let request = HandOverRequest { to: form.to.clone(), directories };
    match carry_out(&portal, &admin.0, &user, request, is_check).await {
        Ok(result) => {
            let mut view = view(&portal, &admin.0, &user).await?;
            view.outcome = Some(outcome(result, is_check));
            view.form = form;
            Ok(Page(view).into_response())
        }
        Err(error) if error.field_errors().is_empty() => {
            let (error, why) = refusal(error)?;
            let mut view = view(&portal, &admin.0, &user).await?;
            (view.error, view.form) = (Some(why), form);
            Ok(error.with_page(Page(view)))
        }
        Err(error) => {
            form.errors =
                error.field_errors().iter().map(|fault| in_the_form(views::FieldError::from(fault))).collect();
            let mut view = view(&portal, &admin.0, &user).await?;
            view.form = form;
            Ok(error.with_page(Page(view)))
        }
    }
}

/// The form has one folder.
fn in_the_form(fault: views::FieldError) -> views::FieldError {
    let field = match fault.field.as_str() {
        "directories.0.from" => "from_folder".to_owned(),
        "directories.0.to" => "to_folder".to_owned(),
        _ => return fault,
    };
    views::FieldError { field, ..fault }
}

fn outcome(result: HandOverView, is_check: bool) -> HandOverOutcome {
    let HandOverView { to, jobs, sweeps, runs, mut items, failed } = result;
    let made = u64::try_from(items.len() - failed).unwrap_or(u64::MAX);
    // What needs somebody's attention comes first.
    items.sort_by_key(|item| item.error.is_none());
    let more_rows = items.len().saturating_sub(SHOWN);
    items.truncate(SHOWN);
    let counts = vec![
        counted(jobs, "job", "jobs"),
        counted(sweeps, "sweep", "sweeps"),
        counted(runs, "run", "runs"),
        counted(made, "dataset or model", "datasets and models"),
    ];
    let row = |item: HandOverItem| {
        let kind = match item.kind {
            HandOverKind::Dataset => "Dataset",
            HandOverKind::Model => "Model",
        };
        HandOverRow { kind, name: item.name, directory: item.directory, error: item.error }
    };
    HandOverOutcome { is_check, to, counts, failed, rows: items.into_iter().map(row).collect(), more_rows }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{count} {word}")
}

async fn view(portal: &Portal, reader: &Arc<Principal>, user: &User) -> Result<OffboardPage> {
    let is_oneself = reader.id() == user.id;
    let mut ahead = if is_oneself { Vec::new() } else { end_access(portal, reader, user, true).await?.steps };
    let more_ahead = ahead.len().saturating_sub(SHOWN);
    ahead.truncate(SHOWN);
    let contents = contents_of(portal, user).await?;
    let from_folder = contents.folders.first().cloned().unwrap_or_default();
    Ok(OffboardPage {
        layout: portal.layout_of(reader, Nav::Administration),
        name: user.name.to_string(),
        state: user.state(),
        is_oneself,
        notice: None,
        error: None,
        ahead: ahead.into_iter().map(step_row).collect(),
        more_ahead,
        failed: Vec::new(),
        live: contents.live_sessions + contents.live_jobs + contents.live_sweeps,
        made: vec![
            ("Jobs", contents.jobs),
            ("Sweeps", contents.sweeps),
            ("Runs", contents.runs),
            ("Datasets", contents.datasets),
            ("Models", contents.models),
        ],
        form: HandOverForm { from_folder, ..HandOverForm::default() },
        outcome: None,
        folders: contents.folders,
        groups: contents.groups,
        presets: contents.presets,
    })
}
