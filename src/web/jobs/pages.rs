//! One job as a page, with the forms that act on it. The list is in `list` and the form for a new one in `form`; the rules
//! are the service's, as for the API.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::terminal_url;
use crate::{
    jobs::{Changes, Error as JobError, JobEvent},
    model::{Job, JobId, SessionState, job::JobProgram, time::human_duration},
    sessions::program_notes,
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id, Query},
            href::href,
        },
        markdown::Markdown,
        page::{Nav, Page},
        sessions::{
            cards::{self, unused_gpus},
            hardware,
        },
        views::{
            self, FieldError, FollowedJob, JobForm, JobTab, LoggedOverview, Moment, SentenceContext, ShowJob,
            ShowSession, TimelineLine, sentence,
        },
    },
};

/// How much of the log the page brings along (bytes).
const LOG_WINDOW: u64 = 32 * 1024;

/// How much of the log the overview is made from (bytes), and how many of its last lines it shows.
const TAIL_WINDOW: u64 = 4 * 1024;
const TAIL_LINES: usize = 12;

/// The address of one job.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ShowParams {
    tab: String,
}

/// `/jobs/{id}`
pub async fn show(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    Query(visit): Query<ShowParams>,
) -> Result<Response> {
    let job = portal.jobs.find(user.actor(), id).await?;
    let typed = JobForm {
        name: job.name.clone(),
        notes: job.notes.clone(),
        tags: job.tags.join(", "),
        visibility: job.visibility.to_string(),
    };
    let tab = JobTab::parse(&visit.tab);
    Ok(Page(view(&portal, &user, job, typed, Vec::new(), tab).await?).into_response())
}

async fn view(
    portal: &Portal,
    user: &CurrentUser,
    job: Job,
    typed: JobForm,
    errors: Vec<FieldError>,
    tab: JobTab,
) -> Result<ShowJob> {
    let now = portal.clock.now();
    let (is_own, is_live) = (job.owner == user.id(), job.latest.state.is_live());
    let task = portal.jobs.task(&job).await?;
    let log = match tab {
        JobTab::Overview => portal.jobs.log_tail(&job, None, TAIL_WINDOW).await?,
        JobTab::Log => portal.jobs.log_tail(&job, None, LOG_WINDOW).await?,
        JobTab::Metrics | JobTab::System | JobTab::Config => Vec::new(),
    };
    let log = String::from_utf8_lossy(&log);
    let log = if tab == JobTab::Overview { last_lines(&log) } else { &log };
    let logged = portal.runs.progress_of_jobs(&[job.id]).await?.remove(&job.id).unwrap_or_default();
    // What an earlier attempt did is done already: how fast the latest is cannot be told from the whole.
    let began = job.latest.ready_at.filter(|_| job.attempt == 1);
    let logged = LoggedOverview::new(logged, is_live, began.map(|began| now.seconds_since(began)));
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
    let is_of_system = |label: &str| ["Size", "GPUs", "Node", "Runs as", "Limits", "Used"].contains(&label);
    let system = facts.iter().filter(|(label, _)| is_of_system(label)).cloned().collect();
    let follows = if is_own { portal.jobs.dependencies(&job).await? } else { Vec::new() };
    let moments = ShowSession::moments(&job.latest, now);
    let sweep = portal.sweeps.of_job(job.id).await?.filter(|_| is_own || cards::is_operator(user));
    let (is_script, program) = match task.work {
        JobProgram::Command(argv) => (false, quoted(&argv)),
        JobProgram::Script(text) => (true, text),
    };
    Ok(ShowJob {
        layout: portal.layout_of(&user.0, Nav::Jobs),
        tab,
        logged,
        system,
        id: job.id.to_string(),
        class,
        word,
        sentence: sentence(&job.latest, &around),
        attempt: job.attempt,
        earlier: (1..job.attempt).rev().take(5).collect(),
        several: 1 < job.attempt,
        caveats: ShowSession::caveats(&job.latest, &portal.sessions.scheduler.stock().inventory()),
        is_helper: job.is_helper,
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
        log: (!log.is_empty()).then(|| views::plain_log(log)),
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

/// The last lines of a log.
fn last_lines(log: &str) -> &str {
    let text = log.trim_end_matches('\n');
    let begin = text.rmatch_indices('\n').nth(TAIL_LINES - 1).map_or(0, |(at, _)| at + 1);
    &text[begin..]
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
    let drawn = view(&portal, &user, job, typed, told.collect(), JobTab::Overview).await?;
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
    let from = portal.clock.now();
    portal.jobs.delete(user.actor(), id).await?;
    let deleted = format!("{}-{}", from.0, portal.clock.now().0);
    Ok(Redirect::to(&href("/jobs", [("done", "delete-1"), ("deleted", &deleted)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_shows_the_last_lines() {
        let log: String = (1..=20).fold(String::new(), |log, line| format!("{log}line {line}\n"));
        let last = last_lines(&log);
        assert!(last.starts_with("line 9\n") && last.ends_with("line 20"), "{last}");
        assert_eq!((last_lines("one\ntwo"), last_lines(""), last_lines("\n")), ("one\ntwo", "", ""));
    }
}
