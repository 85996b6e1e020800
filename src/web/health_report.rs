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
    http::{
        error::{Error, Problem, Result},
        extract::Admin,
    },
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
        alert::AlertMemory,
        finding::{self, Level},
        gpus::Condition,
        health::{self, worst},
        loops::Rounds,
        machines::MachineState,
    },
    scheduler::run_space,
};

/// What the report looks at besides the services.
#[derive(Clone, Default)]
pub struct ReportContext {
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

/// The health of the portal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub struct Report {
    /// The worst level of all findings and loops.
    level: Level,
    version: &'static str,
    #[schema(value_type = String, format = "date-time")]
    started_at: Timestamp,
    uptime_seconds: i64,
    findings: Vec<Finding>,
    loops: Vec<LoopReport>,
}

/// A background loop of the portal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HealthLoop)]
struct LoopReport {
    #[serde(flatten)]
    finding: Finding,
    /// The time between two runs; null if the loop waits for events.
    every_seconds: Option<f64>,
    #[schema(value_type = Option<String>, format = "date-time")]
    /// When the current run started; null between runs.
    busy_since: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    /// When the last run ended.
    last_at: Option<Timestamp>,
    /// How long the last run took.
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

/// Returns the health of the portal and its components, with a fix for each problem.
#[utoipa::path(get, path = "/health", tag = "health",
    responses((status = 200, body = Report), (status = 403, description = "Not an administrator", body = Problem)))]
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
    let ReportContext { loops, directory, certificate, mirror, reader } = &portal.surroundings;
    let database = portal.db.health().await.inspect_err(|err| {
        tracing::warn!(error = err as &dyn std::error::Error, "database health check failed");
    });
    let database = database.ok();
    let is_locked = database.is_some() && matches!(portal.db.can_write(super::health::LOCKED).await, Ok(false));
    let mut findings = vec![if is_locked { health::locked() } else { health::database(database.as_ref()) }];
    findings.extend(database.as_ref().and_then(|facts| health::backup(facts, now)));
    findings.push(scheduler(portal, now));
    let scheduler = &portal.sessions.scheduler;
    let faults = scheduler.faults().into_iter();
    findings.extend(faults.map(|(command, why)| health::unreadable(scheduler.cluster(), command, &why)));
    findings.extend(directory.as_ref().map(|ldap| health::directory(ldap.servers(), &ldap.contact(), now)));
    findings.extend(directory.as_ref().and_then(|ldap| health::unjudged(&ldap.unjudged())));
    findings.extend(mirror.as_ref().map(|mirror| mirror.finding()));
    findings.extend(reader.as_ref().map(|reader| reader.finding()));
    let groups = portal.db.quota_groups().await.inspect_err(|err| {
        tracing::warn!(
            error = err as &dyn std::error::Error,
            "failed to look up groups that are gone from the directory"
        );
    });
    let absent = groups.unwrap_or_default().into_iter().filter(|group| group.absent_since.is_some());
    findings.extend(health::absent_groups(&absent.map(|group| group.name).collect::<Vec<_>>()));
    findings.extend(gpus(portal));
    findings.extend(nodes(portal).await);
    findings.extend(portal.sessions.environments.list().into_iter().map(environment));
    findings.push(free_space(portal));
    let run_directory = portal.sessions.scheduler.run_directory(SessionId::new());
    findings.extend(run_directory.parent().and_then(run_space::judge));
    findings.extend(certificate.as_ref().map(|certificate| {
        let until = certificate.ends().map(|ends| Timestamp(ends.saturating_mul(1000)));
        finding::certificate_until(until, now)
    }));
    findings.extend(orphans(portal));
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

fn gpus(portal: &Portal) -> Option<Finding> {
    let view = portal.cluster.view();
    let down = view.gpus.iter().filter_map(|one| match &one.condition {
        Condition::Down(why) => Some((format!("GPU {}", one.gpu.index), why.clone())),
        _ => None,
    });
    health::gpus(view.gpus.len(), &down.collect::<Vec<_>>())
}

async fn nodes(portal: &Portal) -> Option<Finding> {
    let machines = portal.sessions.scheduler.machines().await?.machines;
    let down = machines.iter().filter(|one| one.state == MachineState::Down);
    health::nodes(machines.len(), &down.map(|one| (one.name.clone(), one.reason.clone())).collect::<Vec<_>>())
}

/// Sends administrators new warnings and faults of the report, and the ends of earlier ones.
pub async fn alert(portal: &Portal, memory: &mut AlertMemory) -> Result<(), String> {
    let report = gather(portal).await;
    let of_loops = report.loops.into_iter().map(|LoopReport { finding, .. }| {
        let name = format!("loop {}", finding.name);
        Finding { name: name.into(), ..finding }
    });
    let findings: Vec<Finding> = report.findings.into_iter().chain(of_loops).collect();
    let open = portal.db.open_alerts().await.map_err(|err| err.to_string())?;
    let mut outcome = Ok(());
    for news in memory.decide(&open, &findings, portal.clock.now()) {
        // What cannot be stored now is found again at the next check.
        if let Err(err) = portal.notifications.alert(&news).await {
            outcome = Err(err.to_string());
        }
    }
    outcome
}

fn environment(environment: Environment) -> Finding {
    let name = format!("environment {}", environment.name);
    match environment.state {
        Building::Ready { .. } => {
            let version = environment.python_version.unwrap_or_default();
            match environment.note {
                Some(note) => Finding::new(name, Level::Warning, note),
                None => Finding::new(name, Level::Ok, format!("ready, Python {version}")),
            }
        }
        Building::Building { percent, step, .. } => {
            Finding::new(name, Level::Note, format!("is being built: {percent} %, {step}"))
        }
        Building::Failed { what, command, .. } => Finding::new(name, Level::Fault, as_sentence(&what)).fix(command),
        Building::Missing => Finding::new(name, Level::Warning, "it is missing; sessions that use it wait")
            .fix("environments.build = \"auto\", or an entry in [[environments.list]]"),
    }
}

fn free_space(portal: &Portal) -> Finding {
    let place = portal.config.private.display().to_string();
    match rustix::fs::statvfs(&portal.config.private) {
        Ok(disk) => {
            let free = i64::try_from(disk.f_bavail.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX);
            finding::free_space(free, &place)
        }
        Err(_) => Finding::new("free space", Level::Warning, format!("the free space of {place} is unknown")),
    }
}

/// What runs and has no row.
fn orphans(portal: &Portal) -> Option<Finding> {
    let orphans = portal.sessions.last_run().orphans;
    let what = format!(
        "{} running sessions are not in the database, for example because an older backup was restored",
        orphans.len()
    );
    (!orphans.is_empty()).then(|| {
        Finding::new("strangers", Level::Warning, what)
            .fix("the portal's log lists each with its process; end one with `kill PID`")
    })
}
