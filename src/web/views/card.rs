//! The card of a session: its state as shape, word and colour, its sentence, what it holds
//! and the buttons for what a person wants next. Home lists cards as rows, a session's page
//! opens with one, and `GET /sessions/{id}/card` answers one alone for live updates.

use askama::{Template, filters::HtmlSafe};

use super::{
    Meter, Moment, Unit,
    sentence::{self, Sentence, SentenceContext, again_with_memory},
};
use crate::{
    model::{
        EndReason, Gpu, Outcome, Resources, Session, SessionState,
        ending::Deadline,
        gpus::labels,
        session::Placement,
        size::{GIB, MIB, human_size},
        time::human_duration,
    },
    protocol::Sample,
    web::page::filters,
};

/// A card, ready to be drawn, alone or within a page. Make it with [`Card::new`].
#[derive(Clone, Debug, Template)]
#[template(path = "parts/card.html")]
pub struct Card {
    pub id: String,
    pub name: String,
    /// `JupyterLab`, `Terminal` …
    pub app: String,
    pub icon: String,
    /// The state's class in the stylesheet: a state's name, `failed` or `unknown`.
    pub class: &'static str,
    /// The state's word: `Waiting`, `Running`, `Failed` …
    pub word: &'static str,
    pub sentence: Sentence,
    /// Somebody asks whether its GPUs are still needed: who, and when.
    pub ask: Option<(String, Moment)>,
    /// Its GPUs rest: for how long, and what that has cost.
    pub idle_gpus: Option<String>,
    /// Whether the reader is the one who is asked.
    pub is_own: bool,
    /// True where the sentence is a warning: little time left, idle, no contact.
    pub warns: bool,
    /// Chips beside the name: where it runs, whose it is.
    pub chips: Vec<String>,
    /// Short facts under the sentence.
    pub facts: Vec<String>,
    /// What it uses now, of what it asked for.
    pub meters: Vec<Meter>,
    pub actions: Vec<Action>,
    pub csrf_token: String,
}

/// Its own template escapes what it holds, so that a page writes `{{ card }}`.
impl HtmlSafe for Card {}

/// What a card needs to know besides the session.
#[derive(Clone, Debug, Default)]
pub struct CardContext {
    pub around: SentenceContext,
    /// What the app is called: `JupyterLab`.
    pub app_title: String,
    /// Where a person's browser goes to use it (`open_url` of the API).
    pub open_url: String,
    /// How many seconds one extension adds; `None` where no more are allowed, or it is not the reader's to extend.
    pub extend_seconds: Option<i64>,
    /// Its app listens on a port, which everybody on its node can reach.
    pub visible_on_node: bool,
    /// It holds GPUs, and nothing keeps it from those of others.
    pub gpus_are_counted: bool,
    /// The last measurement of what it uses.
    pub sample: Option<Sample>,
    /// What is said of its GPUs if they rest.
    pub idle_gpus: Option<String>,
    pub csrf_token: String,
}

/// A button of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub label: String,
    pub look: ButtonStyle,
    pub target: Target,
    /// Asked before a script sends it; without a script it is sent at once.
    pub confirm: Option<String>,
}

impl Action {
    pub(super) fn open(context: &CardContext, label: &str, look: ButtonStyle) -> Self {
        Self { label: label.to_owned(), look, target: Target::Tab(context.open_url.clone()), confirm: None }
    }

    pub(super) fn keep(session: &Session) -> Self {
        Self::post(session, "Keep".to_owned(), ButtonStyle::Plain, "keep", "", String::new())
    }

    pub(super) fn extend(session: &Session, seconds: i64) -> Self {
        let label = format!("Extend {}", human_duration(seconds));
        Self::post(session, label, ButtonStyle::Plain, "extend", "seconds", seconds.to_string())
    }

    /// What happened to a job has been seen.
    pub(super) fn dismiss(job: String) -> Self {
        let target = Target::Post { path: "/me/notifications/seen".to_owned(), field: "job", value: job };
        Self { label: "Dismiss".to_owned(), look: ButtonStyle::Quiet, target, confirm: None }
    }

    fn post(
        session: &Session,
        label: String,
        look: ButtonStyle,
        verb: &str,
        field: &'static str,
        value: String,
    ) -> Self {
        let path = format!("/sessions/{}/{verb}", session.id);
        Self { label, look, target: Target::Post { path, field, value }, confirm: None }
    }
}

/// Where a button leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A link in the same tab.
    Link(String),
    /// A link in a tab of its own.
    Tab(String),
    /// A form with one hidden field (its name is empty where it needs none).
    Post { path: String, field: &'static str, value: String },
}

/// Selects the style of a button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ButtonStyle {
    Primary,
    Plain,
    Quiet,
}

impl ButtonStyle {
    pub fn class(self) -> &'static str {
        match self {
            Self::Primary => "btn primary",
            Self::Plain => "btn",
            Self::Quiet => "btn quiet",
        }
    }
}

impl Card {
    #[must_use]
    pub fn new(session: &Session, context: &CardContext) -> Self {
        let around = &context.around;
        let (class, word) = badge(session);
        let idle = sentence::idle(session, around).is_some();
        let running = session.state == SessionState::Running;
        let drain = around.drained_at.and_then(|at| Deadline::maintenance(session, at));
        let mut ends = Deadline::time_limit(session).into_iter().chain(drain);
        let ends_soon = running && ends.any(|end| end.lead(around.now).is_some());
        Self {
            id: session.id.to_string(),
            name: session.name.clone(),
            app: context.app_title.clone(),
            icon: icon(&session.app).to_owned(),
            class,
            word,
            sentence: sentence::sentence(session, around),
            ask: session
                .asked
                .as_ref()
                .filter(|_| running)
                .map(|asked| (asked.by.clone(), Moment::ago(asked.at, around.now))),
            idle_gpus: context.idle_gpus.clone(),
            is_own: around.is_own,
            warns: class == "unknown" || idle || ends_soon,
            chips: chips(session, context),
            facts: facts(session, context.gpus_are_counted),
            meters: context.sample.filter(|_| running).map_or_else(Vec::new, |sample| meters(session, sample)),
            actions: actions(session, context, idle || session.asked.is_some()),
            csrf_token: context.csrf_token.clone(),
        }
    }
}

/// What a workload holds, in one line: `2 × A100 · 16 cores · 96 GiB`.
#[must_use]
pub fn resources_line(resources: &Resources, gpus: &[Gpu]) -> String {
    let model = gpus.first().map(|gpu| gpu.model.as_str()).or(resources.gpu_model.as_deref());
    let gpu = match (resources.gpus, model.filter(|model| !["", "GPU"].contains(model))) {
        (0, _) => None,
        (n, Some(model)) => Some(format!("{n} × {model}")),
        (1, None) => Some("1 GPU".to_owned()),
        (n, None) => Some(format!("{n} GPUs")),
    };
    let cores = if resources.cpus == 1 { "1 core".to_owned() } else { format!("{} cores", resources.cpus) };
    // A number stays with its unit where a line is broken.
    let parts = gpu.into_iter().chain([cores, human_size(resources.memory_bytes)]);
    parts.map(|part| part.replace(' ', "\u{a0}")).collect::<Vec<_>>().join(" · ")
}

/// The class and the word of a session's state.
pub fn badge(session: &Session) -> (&'static str, &'static str) {
    if session.state.is_live() && session.unknown_since.is_some() {
        return ("unknown", "No contact");
    }
    if session.state.is_live() && session.suspended_since.is_some() {
        return ("outside", "Suspended");
    }
    match session.state {
        SessionState::Queued => ("queued", "Pending"),
        SessionState::Starting => ("starting", "Starting"),
        SessionState::Running => ("running", "Running"),
        SessionState::Stopping => ("stopping", "Stopping"),
        SessionState::Ended => match session.outcome() {
            Some(Outcome::Failed) => ("failed", "Failed"),
            Some(Outcome::OutOfMemory) => ("out-of-memory", "Out of memory"),
            Some(Outcome::TimedOut) if session.end_reason == Some(EndReason::Idle) => ("timed-out", "Idle timeout"),
            Some(Outcome::TimedOut) => ("timed-out", "Timed out"),
            // A session is there to be stopped, and a job to come to its end.
            Some(Outcome::Cancelled) if session.job.is_none() => ("ended", "Stopped"),
            Some(Outcome::Cancelled) => ("cancelled", "Cancelled"),
            Some(Outcome::Succeeded) if session.job.is_some() => ("succeeded", "Succeeded"),
            Some(Outcome::Succeeded) | None => ("ended", "Ended"),
        },
    }
}

/// The drawing of an app; apps that a site added share one.
pub(super) fn icon(app: &str) -> &'static str {
    match app {
        "jupyter" => "notebook",
        "tensorboard" => "chart",
        "model" => "model",
        "terminal" => "terminal",
        _ => "app",
    }
}

fn chips(session: &Session, context: &CardContext) -> Vec<String> {
    let visible = (context.visible_on_node && session.state.is_live()).then(|| "visible on this node".to_owned());
    let owner = (!context.around.is_own).then(|| session.owner_name.clone());
    let placed = |placement: &&Placement| session.state.is_live() && !placement.node.is_empty();
    let place = session.placement.as_ref().filter(placed).map(|placement| {
        // Which GPUs of a node a job has, the cluster decides.
        if session.gpus.is_empty() || placement.is_of_a_cluster() {
            placement.node.clone()
        } else {
            format!("{} · GPU {}", placement.node, labels(&session.gpus))
        }
    });
    owner.into_iter().chain(place).chain(visible).collect()
}

fn facts(session: &Session, counted: bool) -> Vec<String> {
    let ran = sentence::lived(session).map(|seconds| format!("ran {}", human_duration(seconds)));
    let what = if session.app == "model" { "model" } else { "logs" };
    session
        .spec_is_whole
        .then(|| resources_line(&session.spec.resources, &session.gpus))
        .into_iter()
        .chain((counted && session.state.is_live()).then(|| "GPUs by count only".to_owned()))
        .chain(session.spec.environment.clone().filter(|name| name != crate::environments::DEFAULT))
        .chain(session.spec.log_directory.as_ref().map(|path| format!("{what} in {path}")))
        .chain(ran)
        .collect()
}

fn meters(session: &Session, sample: Sample) -> Vec<Meter> {
    let asked = &session.spec.resources;
    #[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes the largest integer")]
    let cores = (sample.cpus * 1000.0) as i64;
    vec![
        Meter {
            field: "memory",
            label: "memory".to_owned(),
            used: sample.memory_bytes,
            limit: Some(asked.memory_bytes),
            unit: Unit::Bytes,
            ..Meter::default()
        },
        Meter {
            field: "cpus",
            label: if asked.cpus == 1 { "core busy" } else { "cores busy" }.to_owned(),
            used: cores.max(0),
            limit: Some(asked.cpus.saturating_mul(1000)),
            unit: Unit::Milli,
            ..Meter::default()
        },
    ]
}

fn actions(session: &Session, context: &CardContext, idle: bool) -> Vec<Action> {
    let open = |label: &str, look| Action::open(context, label, look);
    let post = |label: String, look, verb: &str, field, value| Action::post(session, label, look, verb, field, value);
    let stop = |label: &str, question: &str| Action {
        confirm: Some(question.to_owned()),
        ..post(label.to_owned(), ButtonStyle::Quiet, "stop", "", String::new())
    };
    let log = Action {
        label: "Log".to_owned(),
        look: ButtonStyle::Quiet,
        target: Target::Link(format!("/sessions/{}#log", session.id)),
        confirm: None,
    };
    let cancel = stop("Cancel", "Cancel this session? It has not started yet.");
    let own = context.around.is_own;
    match session.state {
        SessionState::Queued => vec![cancel],
        SessionState::Starting if own => vec![open("Open when ready", ButtonStyle::Plain), log, cancel],
        SessionState::Starting => vec![log, cancel],
        SessionState::Running => {
            let keep = (idle && own).then(|| Action::keep(session));
            let extend = context.extend_seconds.map(|seconds| Action::extend(session, seconds));
            let stop = stop("Stop", "Stop this session? Unsaved work is lost.");
            own.then(|| open("Open", ButtonStyle::Primary))
                .into_iter()
                .chain(keep)
                .chain(extend)
                .chain([stop])
                .collect()
        }
        SessionState::Ended if own => {
            let again = match again_with_memory(session, context.around.most_memory_bytes) {
                Some(bytes) => post(
                    format!("Start again with {}", human_size(bytes)),
                    ButtonStyle::Plain,
                    "start-again",
                    "memory",
                    form_size(bytes),
                ),
                None => post("Start again".to_owned(), ButtonStyle::Plain, "start-again", "", String::new()),
            };
            vec![again, log]
        }
        SessionState::Stopping | SessionState::Ended => vec![log],
    }
}

/// A size as forms take it, exact to the mebibyte: `4G`, `1536M`.
pub(super) fn form_size(bytes: i64) -> String {
    if bytes % GIB == 0 { format!("{}G", bytes / GIB) } else { format!("{}M", bytes / MIB) }
}
