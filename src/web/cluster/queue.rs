//! `/queue`: what waits and runs in the batch system's own queue, also what was handed in on a
//! shell, and the end of a job of one's own; the same as data. Operators see everybody's.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

use std::{collections::HashMap, sync::Arc};

use axum::{Json as Answer, extract::State, response::Redirect};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    auth::Principal,
    cluster::{Error as QueueError, QueueFilter, VisibleQueue},
    model::{JobId, QueueId, Resources, Session, SessionId, Timestamp, queue::QueuedJob, time::human_duration},
    scheduler,
    web::{
        Portal,
        http::{
            error::{Accepted, Error, Problem, Result},
            extract::{CurrentUser, Id, Query},
            paging::{Listed, Paging},
        },
        page::{Nav, Page},
        sessions::cards::is_operator,
        views::{Moment, QueuePage, QueueRow, Show, StateBadge, resources_line},
    },
};

/// How many a page shows.
const PAGE_SIZE: i64 = 100;

/// What everybody's is called in addresses.
const ALL_OWNERS: &str = "*";

/// `?owner=`, `?cursor=` and what a redirect of ours says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    owner: String,
    cursor: Option<String>,
    done: String,
}

/// `/queue`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Page<QueuePage>> {
    let now = portal.clock.now();
    let sees_all = sees_all(&user);
    // An address that somebody else was given shows one's own.
    let whose = if sees_all { whose(Some(&visit.owner)) } else { QueueFilter::Own };
    let layout = portal.layout_of(&user.0, Nav::Queue);
    let mut view = QueuePage {
        layout,
        cluster: portal.sessions.scheduler.cluster().to_owned(),
        has_queue: false,
        notice: (visit.done == "cancel").then_some("Slurm was asked to cancel the job."),
        seen: None,
        trouble: None,
        no_account: None,
        sees_all,
        everybody: whose != QueueFilter::Own,
        running: 0,
        waiting: 0,
        rows: Vec::new(),
        first_href: None,
        next_href: None,
    };
    let Some(VisibleQueue { queue, own }) = portal.cluster.queue(&user.user, whose).await? else {
        return Ok(Page(view));
    };
    let ours = ours(&portal, &queue.jobs).await?;
    view.running = queue.jobs.iter().filter(|job| job.runs).count();
    view.waiting = queue.jobs.iter().filter(|job| !job.runs).map(|job| job.count()).sum();
    let paged = visit.cursor.is_some();
    let listed = listed(queue.jobs, &Paging::new(Some(PAGE_SIZE), visit.cursor))?;
    let row = |job: &Arc<QueuedJob>| row(job, own.as_ref().ok(), &ours, now);
    view.rows = listed.items.iter().map(row).collect();
    view.first_href = paged.then(|| address(view.everybody, None));
    view.next_href = listed.next_cursor.map(|cursor| address(view.everybody, Some(&cursor)));
    (view.has_queue, view.trouble, view.no_account) = (true, queue.trouble, own.err());
    view.seen = queue.at.map(|at| Moment::ago(at, now));
    Ok(Page(view))
}

/// `POST /queue/{id}/cancel`
pub async fn cancel_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<QueueId>,
) -> Result<Redirect> {
    portal.cluster.cancel_queued(&user.user, id).await?;
    Ok(Redirect::to("/queue?done=cancel"))
}

/// The address of a page of the list.
fn address(everybody: bool, cursor: Option<&str>) -> String {
    let owner = if everybody { format!("owner={ALL_OWNERS}") } else { String::new() };
    let cursor = cursor.map(|cursor| format!("cursor={cursor}")).unwrap_or_default();
    let query: Vec<String> = [owner, cursor].into_iter().filter(|part| !part.is_empty()).collect();
    if query.is_empty() { "/queue".to_owned() } else { format!("/queue?{}", query.join("&")) }
}

pub(super) fn sees_all(principal: &Principal) -> bool {
    // A token that lies on some dashboard tells nothing of others.
    is_operator(principal) && principal.scopes().is_none_or(<[String]>::is_empty)
}

fn whose(owner: Option<&str>) -> QueueFilter<'_> {
    match owner.unwrap_or_default() {
        "" => QueueFilter::Own,
        ALL_OWNERS => QueueFilter::Everybody,
        name => QueueFilter::Account(name),
    }
}

/// The newest first.
fn listed(mut jobs: Vec<Arc<QueuedJob>>, paging: &Paging) -> Result<Listed<Arc<QueuedJob>>> {
    let limit = paging.limit()?;
    let after: Option<QueueId> = paging.after()?;
    jobs.retain(|job| after.is_none_or(|after| job.id < after));
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    Ok(Listed::new(jobs, limit, |job| job.id))
}

/// What of the portal's these are.
pub(super) async fn ours(portal: &Portal, jobs: &[Arc<QueuedJob>]) -> Result<HashMap<SessionId, Session>> {
    if jobs.iter().all(|job| job.session.is_none()) {
        return Ok(HashMap::new());
    }
    let live = portal.db.live_sessions().await?;
    Ok(live.into_iter().map(|session| (session.id, session)).collect())
}

fn row(job: &QueuedJob, own: Option<&u32>, ours: &HashMap<SessionId, Session>, now: Timestamp) -> QueueRow {
    let session = job.session.and_then(|session| ours.get(&session));
    let href = session.map(|session| match session.job {
        Some(attempt) => format!("/jobs/{}", attempt.job),
        None => format!("/sessions/{}", session.id),
    });
    let mut size = resources_line(&job.resources, &[]);
    if job.nodes > 1 {
        size = format!("{size} · {}\u{a0}nodes", job.nodes);
    }
    let since = if job.runs { job.started_at } else { job.submitted_at };
    QueueRow {
        id: job.id.to_string(),
        label: job.label.clone(),
        name: job.name.clone(),
        user: job.user.clone(),
        state: if job.is_suspended {
            StateBadge { class: "outside", word: "Suspended" }
        } else if job.runs {
            StateBadge { class: "running", word: "Running" }
        } else {
            StateBadge { class: "queued", word: "Pending" }
        },
        since: since.map(|at| Moment { at, show: Show::Since, now }),
        why: job.why.clone(),
        place: job.place,
        starts: job.estimated_start.map(|at| Moment::clock(at, now)),
        size,
        partitions: job.partitions.join(", "),
        nodes: job.node_names.clone(),
        longest: job.limit_seconds.map_or_else(|| "no limit".to_owned(), human_duration),
        may_cancel: own == Some(&job.uid) && job.session.is_none(),
        href,
    }
}

/// Filter and paging of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct QueueQuery {
    /// For operators: the name of an account on the cluster, or `*` for all accounts. By default, your own jobs are
    /// listed.
    #[param(value_type = Option<String>)]
    owner: Option<String>,
    #[param(value_type = Option<i64>, minimum = 1, maximum = 500)]
    limit: Option<i64>,
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
}

/// A job in the queue of the batch system.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueuedJob)]
pub struct QueuedJobView {
    /// The job number; `12_3` for one task of an array, `12_waiting` for its pending tasks.
    id: String,
    /// The id as the batch system writes it: `12_[4-9]`.
    label: String,
    name: String,
    /// The Unix account that it runs as.
    unix_name: String,
    /// `waiting`, `running` or `suspended` (it has its nodes, and its time limit is paused).
    state: &'static str,
    /// Why it is pending.
    detail: Option<String>,
    /// Position in the queue, from 1. Null if it is pending for another reason than its turn.
    place: Option<i64>,
    #[schema(value_type = Option<String>, format = "date-time")]
    estimated_start: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    submitted_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    started_at: Option<Timestamp>,
    /// Null: no time limit.
    time_limit_seconds: Option<i64>,
    /// Resources of all nodes together.
    resources: Resources,
    nodes: i64,
    /// The nodes that it runs on, such as `node[1-2]`.
    node: Option<String>,
    partitions: Vec<String>,
    /// The session of the portal that it belongs to; null if it was submitted outside the portal.
    #[schema(value_type = Option<String>, format = "uuid")]
    session: Option<SessionId>,
    /// The job of the portal that it is an attempt of.
    #[schema(value_type = Option<String>, format = "uuid")]
    job: Option<JobId>,
    /// When the batch system reported this.
    #[schema(value_type = Option<String>, format = "date-time")]
    at: Option<Timestamp>,
}

/// Lists your pending and running jobs in the queue of the batch system, newest first.
///
/// Includes jobs that you submitted in a shell. Empty if the portal does not use a batch system.
#[utoipa::path(get, path = "/queue", tag = "cluster", params(QueueQuery),
    responses((status = 200, body = Listed<QueuedJobView>),
        (status = 403, description = "Only operators can see other users' jobs", body = Problem),
        (status = 503, description = "The batch system does not respond", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(query): Query<QueueQuery>,
) -> Result<Answer<Listed<QueuedJobView>>> {
    let whose = whose(query.owner.as_deref());
    if whose != QueueFilter::Own && !sees_all(&user) {
        return Err(Error::forbidden("Only operators and administrators can see other users' jobs."));
    }
    let paging = Paging::new(query.limit, query.cursor);
    let Some(VisibleQueue { queue, .. }) = portal.cluster.queue(&user.user, whose).await? else {
        paging.limit()?;
        return Ok(Answer(Listed { items: Vec::new(), next_cursor: None }));
    };
    if let Some(trouble) = queue.trouble {
        return Err(scheduler::Error::Unavailable(trouble).into());
    }
    let ours = ours(&portal, &queue.jobs).await?;
    let Listed { items, next_cursor } = listed(queue.jobs, &paging)?;
    let view = |job: QueuedJob| QueuedJobView {
        id: job.id.to_string(),
        label: job.label,
        name: job.name,
        unix_name: job.user,
        state: match (job.runs, job.is_suspended) {
            (_, true) => "suspended",
            (true, false) => "running",
            (false, false) => "waiting",
        },
        detail: Some(job.why).filter(|why| !why.is_empty()),
        place: job.place,
        estimated_start: job.estimated_start,
        submitted_at: job.submitted_at,
        started_at: job.started_at,
        time_limit_seconds: job.limit_seconds,
        resources: job.resources,
        nodes: job.nodes,
        node: Some(job.node_names).filter(|node| !node.is_empty()),
        partitions: job.partitions,
        job: job.session.and_then(|session| ours.get(&session)?.job).map(|attempt| attempt.job),
        session: job.session,
        at: queue.at,
    };
    Ok(Answer(Listed { items: items.into_iter().map(Arc::unwrap_or_clone).map(view).collect(), next_cursor }))
}

/// A job that is being cancelled.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueCancelled {
    id: String,
}

/// Cancels a job of yours that was not started by the portal.
#[utoipa::path(delete, path = "/queue/{id}", tag = "cluster", params(("id" = String, Path)),
    responses((status = 202, body = QueueCancelled),
        (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "It is a session or job of the portal, or Slurm rejected the \
                                      request", body = Problem),
        (status = 503, description = "The batch system does not respond", body = Problem)))]
pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<QueueId>,
) -> Result<Accepted<QueueCancelled>> {
    portal.cluster.cancel_queued(&user.user, id).await?;
    Ok(Accepted(QueueCancelled { id: id.to_string() }))
}

impl From<QueueError> for Error {
    fn from(err: QueueError) -> Self {
        match err {
            QueueError::NotFound => Self::not_found(),
            QueueError::StartedHere(_) => Self::conflict("It was started in the portal: stop it on its own page."),
            QueueError::Scheduler(err) => err.into(),
            QueueError::Db(err) => err.into(),
        }
    }
}
