//! The portal's health for administrators, over REST and as a page: facts are gathered here,
//! `model::health` judges them. Nothing that the configuration keeps secret is among them.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Portal,
    error::{Error, Problem, Result},
    extract::Admin,
    page::{Nav, Page},
    views::{HealthPage, LoopLine, Moment, Show, as_sentence},
};
use crate::{
    associations::{Mirror, Reader},
    auth::Ldap,
    environments::{Environment, State as Building},
    listen::Certificate,
    model::{
        Finding, Loops, SessionId, Timestamp,
        finding::{self, Level},
        health::{self, worst},
        loops::Rounds,
    },
    scheduler::room,
};

/// What the report looks at besides the services.
#[derive(Clone, Default)]
pub struct Surroundings {
    pub loops: Loops,
    /// Where passwords are kept, where that is a directory.
    pub directory: Option<Arc<Ldap>>,
    /// Where the portal itself speaks HTTPS.
    pub certificate: Option<Arc<Certificate>>,
    /// Where limits are written into Slurm's accounting.
    pub mirror: Option<Arc<Mirror>>,
    /// Where Slurm keeps the limits itself.
    pub reader: Option<Arc<Reader>>,
}

/// How well the portal is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub struct Report {
    /// The worst of everything below.
    level: Level,
    version: &'static str,
    #[schema(value_type = String, format = "date-time")]
    started_at: Timestamp,
    uptime_seconds: i64,
    findings: Vec<Finding>,
    loops: Vec<LoopReport>,
}

/// What the portal does by itself, again and again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HealthLoop)]
struct LoopReport {
    #[serde(flatten)]
    finding: Finding,
    /// From one round to the next; null where it waits for something to happen.
    every_seconds: Option<f64>,
    #[schema(value_type = Option<String>, format = "date-time")]
    busy_since: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    last_at: Option<Timestamp>,
    /// Of the last round.
    took_seconds: f64,
    #[schema(value_type = Option<String>, format = "date-time")]
    last_error_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl LoopReport {
    fn new(name: &'static str, rounds: Rounds, now: Timestamp) -> Self {
        let finding = health::of_loop(name, &rounds, now);
        let (last_error_at, last_error) = rounds.last_error.unzip();
        Self {
            finding,
            every_seconds: rounds.every.map(|every| every.as_secs_f64()),
            busy_since: rounds.busy_since,
            last_at: rounds.last_at,
            took_seconds: rounds.took.as_secs_f64(),
            last_error_at,
            last_error,
        }
    }
}

/// How well the portal and its parts are, and what to do about what is not.
#[utoipa::path(get, path = "/health", tag = "health",
    responses((status = 200, body = Report), (status = 403, description = "For administrators", body = Problem)))]
pub async fn report(_: Admin, State(portal): State<Arc<Portal>>) -> axum::Json<Report> {
    axum::Json(gather(&portal).await)
}

/// `/admin/health`
pub async fn page(Admin(admin): Admin, State(portal): State<Arc<Portal>>) -> Result<Response, Error> {
    let now = portal.clock.now();
    let report = gather(&portal).await;
    let line = |one: LoopReport| LoopLine {
        last: one.last_at.map(|at| Moment::ago(at, now)),
        took: format!("{:.0} ms", one.took_seconds * 1000.0),
        error: one.last_error_at.map(|at| Moment::ago(at, now)).zip(one.last_error),
        finding: one.finding,
    };
    Ok(Page(HealthPage {
        layout: portal.layout_of(&admin, Nav::Administration),
        worst: report.level,
        since: Moment { at: report.started_at, show: Show::Since, now },
        findings: report.findings,
        loops: report.loops.into_iter().map(line).collect(),
    })
    .into_response())
}

async fn gather(portal: &Portal) -> Report {
    let now = portal.clock.now();
    let Surroundings { loops, directory, certificate, mirror, reader } = &portal.surroundings;
    let database = portal.db.health().await.inspect_err(|err| {
        tracing::warn!(error = err as &dyn std::error::Error, "asking the database how it is");
    });
    let database = database.ok();
    let is_locked = database.is_some() && matches!(portal.db.can_write(super::health::LOCKED).await, Ok(false));
    let mut findings = vec![if is_locked { health::locked() } else { health::database(database.as_ref()) }];
    findings.extend(database.as_ref().and_then(|facts| health::backup(facts, now)));
    findings.push(scheduler(portal, now));
    findings.extend(directory.as_ref().map(|ldap| health::directory(ldap.servers(), &ldap.contact(), now)));
    findings.extend(directory.as_ref().and_then(|ldap| health::unjudged(&ldap.unjudged())));
    findings.extend(mirror.as_ref().map(|mirror| mirror.finding()));
    findings.extend(reader.as_ref().map(|reader| reader.finding()));
    let groups = portal.db.quota_groups().await.inspect_err(|err| {
        tracing::warn!(error = err as &dyn std::error::Error, "asking for groups that are gone");
    });
    let absent = groups.unwrap_or_default().into_iter().filter(|group| group.absent_since.is_some());
    findings.extend(health::absent_groups(&absent.map(|group| group.name).collect::<Vec<_>>()));
    findings.extend(portal.sessions.environments.list().into_iter().map(environment));
    findings.push(free_space(portal));
    let run_directory = portal.sessions.scheduler.run_directory(SessionId::new());
    findings.extend(run_directory.parent().and_then(room::judge));
    findings.extend(certificate.as_ref().map(|certificate| {
        let until = certificate.ends().map(|ends| Timestamp(ends.saturating_mul(1000)));
        finding::certificate_until(until, now)
    }));
    findings.extend(strangers(portal));
    let loops: Vec<_> = loops.list().into_iter().map(|(name, rounds)| LoopReport::new(name, rounds, now)).collect();
    Report {
        level: worst(findings.iter().chain(loops.iter().map(|one| &one.finding))),
        version: env!("CARGO_PKG_VERSION"),
        started_at: portal.since,
        uptime_seconds: now.seconds_since(portal.since),
        findings,
        loops,
    }
}

fn scheduler(portal: &Portal, now: Timestamp) -> Finding {
    let scheduler = &portal.sessions.scheduler;
    let (trouble, account) = (scheduler.trouble(), portal.single_user.as_deref());
    health::scheduler(scheduler.cluster(), trouble.as_ref(), scheduler.has_queue(), account, now)
}

fn environment(environment: Environment) -> Finding {
    let name = format!("environment {}", environment.name);
    match environment.state {
        Building::Ready { .. } => {
            let version = environment.python_version.unwrap_or_default();
            Finding::new(name, Level::Ok, format!("ready, Python {version}"))
        }
        Building::Building { percent, step, .. } => {
            Finding::new(name, Level::Note, format!("is being built: {percent} %, {step}"))
        }
        Building::Failed { what, command, .. } => Finding::new(name, Level::Fault, as_sentence(&what)).mend(command),
        Building::Missing => Finding::new(name, Level::Warning, "it is not there: what uses it waits")
            .mend("environments.build = \"auto\", or an entry in [[environments.list]]"),
    }
}

fn free_space(portal: &Portal) -> Finding {
    let place = portal.config.private.display().to_string();
    match rustix::fs::statvfs(&portal.config.private) {
        Ok(disk) => {
            let free = i64::try_from(disk.f_bavail.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX);
            finding::free_space(free, &place)
        }
        Err(_) => Finding::new("free space", Level::Warning, format!("{place} does not tell")),
    }
}

/// What runs and has no row.
fn strangers(portal: &Portal) -> Option<Finding> {
    let strangers = portal.sessions.last_run().strangers;
    let what = format!(
        "{} sessions run that the database does not know, as after an older backup was restored",
        strangers.len()
    );
    (!strangers.is_empty()).then(|| {
        Finding::new("strangers", Level::Warning, what)
            .mend("the log of the portal names each with its process; `kill PID` ends one")
    })
}
