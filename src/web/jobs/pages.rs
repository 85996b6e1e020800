//! `/jobs` and one job as pages, with the forms that act on one or on several. The form for a
//! new one is in `form`; the rules are the service's, as for the API.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::terminal_url;
use crate::{
    db::jobs::JobFilter,
    jobs::{Changes, Error as JobError, JobEvent},
    model::{Job, JobId, Role, SessionState, hold::Pause, job::JobProgram, time::human_duration},
    sessions::program_notes,
    web::{
        Portal,
        error::{Error, Result},
        extract::{CurrentUser, Form, Id, Query},
        href::href,
        markdown::Markdown,
        page::{Nav, Page},
        paging::{Listed, Paging},
        sessions::{
            cards::{self, unused_gpus},
            form as session_form, hardware,
        },
        views::{
            self, FieldError, FollowedJob, JobForm, JobRow, JobSearch, JobsPage, Moment, SentenceContext, ShowJob,
            ShowSession, TimelineLine, sentence,
        },
    },
};

/// How many a page of the list shows.
const PAGE_SIZE: i64 = 50;

/// How much of the log the page brings along (bytes).
const LOG_WINDOW: u64 = 32 * 1024;

/// The address of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    find: String,
    state: String,
    tag: String,
    group: String,
    starred: String,
    all: String,
    cursor: Option<String>,
    done: String,
    failed: String,
}

impl PageParams {
    /// The address of a page of this list.
    fn address(&self, cursor: Option<&str>) -> String {
        let pairs = [
            ("find", self.find.as_str()),
            ("state", &self.state),
            ("tag", &self.tag),
            ("group", &self.group),
            ("starred", &self.starred),
            ("all", &self.all),
            ("cursor", cursor.unwrap_or_default()),
        ];
        href("/jobs", pairs)
    }
}

/// `/jobs`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let now = portal.clock.now();
    let search = JobSearch {
        find: visit.find.trim().chars().take(200).collect(),
        // A word that is no state narrows to nothing in particular.
        state: visit.state.clone(),
        tag: visit.tag.trim().to_owned(),
        group: visit.group.trim().to_owned(),
        starred: !visit.starred.is_empty(),
        all: !visit.all.is_empty(),
    };
    let paging = Paging::new(Some(PAGE_SIZE), visit.cursor.clone());
    let filter = JobFilter {
        reader: (user.user.role < Role::Operator).then(|| user.id()),
        owner: (!search.all).then(|| user.id()),
        state: search.state.parse().ok(),
        live_only: search.state == "live",
        tag: Some(search.tag.as_str()).filter(|tag| !tag.is_empty()),
        group: Some(search.group.as_str()).filter(|group| !group.is_empty()),
        starred: search.starred,
        find: &search.find,
        id: None,
        before: paging.after()?,
        limit: PAGE_SIZE + 1,
    };
    let Listed { items, next_cursor } = Listed::new(portal.jobs.list(filter).await?, PAGE_SIZE, |job: &Job| job.id);
    let try_key = (items.is_empty() && !search.narrows()).then(session_form::new_key);
    let rows = items.into_iter().map(|job| {
        let is_own = job.owner == user.id();
        JobRow::new(job, is_own, now)
    });
    let pauses = portal.jobs.pauses(user.id()).await?;
    let billing_groups = portal.db.billing_groups_of(user.id()).await?;
    let view = JobsPage {
        pauses: pauses.iter().map(Pause::sentence).collect(),
        is_paused: pauses.iter().any(|pause| !pause.of_everybody),
        all_is_paused: pauses.iter().any(|pause| pause.of_everybody),
        layout: portal.layout_of(&user.0, Nav::Jobs),
        notice: notice(&visit.done),
        error: (!visit.failed.is_empty())
            .then(|| "Some jobs were not changed, because their state does not allow it.".to_owned()),
        rows: rows.collect(),
        groups: billing_groups.groups.into_iter().map(|group| group.name).collect(),
        try_key,
        has_queue: portal.sessions.scheduler.has_queue(),
        here: visit.address(visit.cursor.as_deref()),
        first_href: visit.cursor.is_some().then(|| visit.address(None)),
        next_href: next_cursor.map(|cursor| visit.address(Some(&cursor))),
        search,
    };
    Ok(Page(view).into_response())
}

fn notice(done: &str) -> Option<String> {
    let (what, count) = done.split_once('-')?;
    let count: u32 = count.parse().ok()?;
    let jobs = if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    Some(match what {
        "cancel" => format!("Cancelling {jobs}."),
        "delete" => format!("{jobs} deleted."),
        "star" => format!("{jobs} starred."),
        "tag" => format!("{jobs} tagged."),
        _ => return None,
    })
}

/// `POST /jobs/selection`: one deed with several jobs.
pub async fn selection(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let actor = user.actor();
    let deed = form.get("do");
    if !["cancel", "delete", "star", "tag"].contains(&deed) {
        return Err(Error::field("do", "invalid_value", "Must be cancel, delete, star or tag."));
    }
    let (mut done, mut failed) = (0, 0);
    for id in form.all("job").take(500).filter_map(|id| id.parse::<JobId>().ok()) {
        let outcome = match deed {
            "cancel" => portal.jobs.cancel(actor, id).await.map(drop),
            "delete" => portal.jobs.delete(actor, id).await,
            "star" => {
                let changes = Changes { starred: Some(true), ..Changes::default() };
                portal.jobs.change(actor, id, changes).await.map(drop)
            }
            _ => {
                let job = portal.jobs.own(actor, id).await?;
                let tags = job.tags.into_iter().chain([form.get("tag").to_owned()]).collect();
                portal.jobs.change(actor, id, Changes { tags: Some(tags), ..Changes::default() }).await.map(drop)
            }
        };
        match outcome {
            Ok(()) => done += 1,
            // Somebody else may have been faster, and one that lives is not deleted.
            Err(JobError::Conflict(_) | JobError::NotFound) => failed += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let is_ours = |back: &&str| {
        (*back == "/jobs" || back.starts_with("/jobs?")) && back.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let back = Some(form.get("back")).filter(is_ours).unwrap_or("/jobs");
    let joint = if back.contains('?') { '&' } else { '?' };
    let failed = if failed == 0 { "" } else { "&failed=yes" };
    Ok(Redirect::to(&format!("{back}{joint}done={deed}-{done}{failed}")))
}

/// `/jobs/{id}`
pub async fn show(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<JobId>) -> Result<Response> {
    let job = portal.jobs.find(user.actor(), id).await?;
    let typed = JobForm {
        name: job.name.clone(),
        notes: job.notes.clone(),
        tags: job.tags.join(", "),
        visibility: job.visibility.to_string(),
    };
    Ok(Page(view(&portal, &user, job, typed, Vec::new()).await?).into_response())
}

async fn view(
    portal: &Portal,
    user: &CurrentUser,
    job: Job,
    typed: JobForm,
    errors: Vec<FieldError>,
) -> Result<ShowJob> {
    let now = portal.clock.now();
    let (is_own, is_live) = (job.owner == user.id(), job.latest.state.is_live());
    let task = portal.jobs.task(&job).await?;
    let log = portal.jobs.log_tail(&job, None, LOG_WINDOW).await?;
    let live = portal.sessions.live(job.latest.id);
    let around = SentenceContext {
        now,
        step: live.status.as_ref().map(|status| status.step.clone()),
        is_own,
        drained_at: portal.sessions.drained_at(&job.latest),
        estimated_start: live.estimated_start,
        ..SentenceContext::default()
    };
    let (class, word) = views::session_badge(&job.latest);
    let mut facts = ShowSession::facts(&job.latest, "Job");
    facts.retain(|(label, _)| !["Program", "Extensions"].contains(label));
    if job.retries_left > 0 && is_live {
        let wait = match task.retry_wait_seconds {
            0 => String::new(),
            seconds => format!(", after {}", human_duration(seconds)),
        };
        let times = if job.retries_left == 1 { "once".to_owned() } else { format!("up to {} times", job.retries_left) };
        facts.push(("Retries after a failure", format!("{times}{wait}")));
    }
    if !task.start.arguments.is_empty() {
        facts.push(("Arguments", quoted(&task.start.arguments)));
    }
    if task.start.login_shell {
        facts.push(("Environment of", "a login shell".to_owned()));
    }
    let measured = portal.sessions.hardware_of(job.latest.id).await?;
    let efficiency = measured.and_then(|measured| hardware::efficiency(&job.latest, &measured, &task.shape));
    let requested = task.shape.share(job.latest.spec.resources.clone());
    if let Some(efficiency) = &efficiency {
        facts.push(("Used", efficiency.summary(&requested)));
    }
    let follows = if is_own { portal.jobs.dependencies(&job).await? } else { Vec::new() };
    let moments = ShowSession::moments(&job.latest, now);
    let sweep = portal.sweeps.of_job(job.id).await?.filter(|_| is_own || cards::is_operator(user));
    let (is_script, program) = match task.work {
        JobProgram::Command(argv) => (false, quoted(&argv)),
        JobProgram::Script(text) => (true, text),
    };
    Ok(ShowJob {
        layout: portal.layout_of(&user.0, Nav::Jobs),
        id: job.id.to_string(),
        class,
        word,
        sentence: sentence(&job.latest, &around),
        attempt: job.attempt,
        earlier: (1..job.attempt).rev().take(5).collect(),
        several: 1 < job.attempt,
        caveats: ShowSession::caveats(&job.latest, &portal.sessions.scheduler.stock().inventory()),
        ask: job.latest.asked.as_ref().filter(|_| is_live).map(|asked| (asked.by.clone(), Moment::ago(asked.at, now))),
        program_notes: live.status.iter().filter(|_| is_live).flat_map(program_notes).collect(),
        idle_gpus: unused_gpus(portal, &job.latest),
        advice: efficiency.and_then(|efficiency| efficiency.advice(&requested)),
        is_own,
        is_live,
        terminal: terminal_url(&job, user.id()),
        may_cancel: is_live && job.latest.state != SessionState::Stopping && (is_own || cards::is_operator(user)),
        may_resume: is_own && !is_live,
        may_delete: is_own && !is_live,
        timeline: timeline(portal.jobs.events(&job, (0, 0)).await?, now),
        log: (!log.is_empty()).then(|| views::plain_log(&String::from_utf8_lossy(&log))),
        is_script,
        program,
        variables: if is_own { task.variables.into_iter().collect() } else { Vec::new() },
        facts,
        sweep: sweep.map(|(sweep, _)| (sweep.id.to_string(), sweep.name)),
        follows: follows.into_iter().map(FollowedJob::from).collect(),
        moments: moments.into_iter().filter(|(label, _)| *label != "Last used").collect(),
        notes: Markdown::new(&job.notes),
        name: job.name,
        owner: job.owner_name,
        starred: job.starred,
        tags: job.tags,
        typed,
        errors,
    })
}

/// Words as one types them in a shell.
fn quoted(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_nul| words.join(" "))
}

/// The latest line first; each with how long its state lasted.
fn timeline(happened: Vec<JobEvent>, now: crate::model::Timestamp) -> Vec<TimelineLine> {
    let next: Vec<_> =
        happened.iter().skip(1).map(|next| (next.attempt, next.event.at)).map(Some).chain([None]).collect();
    let lines = happened.into_iter().zip(next).map(|(JobEvent { attempt, event }, next)| TimelineLine {
        at: Moment::clock(event.at, now),
        attempt,
        state: event.state.as_str(),
        lasted: next
            .filter(|(of, at)| *of == attempt && event.at < *at)
            .map(|(_, at)| human_duration(at.seconds_since(event.at))),
        text: event.message,
    });
    let mut lines: Vec<_> = lines.collect();
    lines.reverse();
    lines
}

/// `POST /jobs/{id}`: name, notes, tags, who may look.
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    form: Form,
) -> Result<Response> {
    let job = portal.jobs.own(user.actor(), id).await?;
    let tags = form.get("tags").split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned);
    let visibility = form.get("visibility");
    let words = "Must be private, group or everybody.";
    let changes = Changes {
        name: Some(form.get("name").to_owned()),
        notes: Some(form.get("notes").to_owned()),
        tags: Some(tags.collect()),
        starred: None,
        visibility: Some(visibility.parse().map_err(|_err| Error::field("visibility", "invalid_value", words))?),
    };
    let faults = match portal.jobs.change(user.actor(), id, changes).await {
        Ok(_) => return Ok(Redirect::to(&format!("/jobs/{id}#notes")).into_response()),
        Err(JobError::Invalid(faults)) => faults,
        Err(error) => return Err(error.into()),
    };
    let typed = JobForm {
        name: form.get("name").to_owned(),
        notes: form.get("notes").to_owned(),
        tags: form.get("tags").to_owned(),
        visibility: visibility.to_owned(),
    };
    let told = faults.iter().map(|fault| FieldError {
        field: fault.field.clone(),
        message: views::as_sentence(&format!("{} {}", fault.field, fault.message)),
    });
    let drawn = view(&portal, &user, job, typed, told.collect()).await?;
    Ok(Error::invalid(faults).with_page(Page(drawn)).into_response())
}

pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<JobId>,
) -> Result<Redirect> {
    portal.jobs.cancel(user.actor(), id).await?;
    let referer = headers.get("referer").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let home = url::Url::parse(referer).is_ok_and(|url| url.path() == "/");
    Ok(Redirect::to(&if home { "/".to_owned() } else { format!("/jobs/{id}") }))
}

pub async fn resume(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<JobId>) -> Result<Redirect> {
    portal.jobs.resume(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/jobs/{id}")))
}

pub async fn star(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    form: Form,
) -> Result<Redirect> {
    let starred = Some(form.get("starred") != "no");
    portal.jobs.change(user.actor(), id, Changes { starred, ..Changes::default() }).await?;
    Ok(Redirect::to(&format!("/jobs/{id}")))
}

pub async fn delete(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<JobId>) -> Result<Redirect> {
    portal.jobs.delete(user.actor(), id).await?;
    Ok(Redirect::to("/jobs?done=delete-1"))
}
