//! Sessions as a person in a shell reads them: a table, one sentence each, and ids cut to as
//! few characters of their ends as tell them apart. Pure: the moment is handed in. Text from the portal is
//! made harmless, because names and logs are other people's and a terminal obeys escapes.

use serde_json::Value;

use super::{
    api::{Job, Reason, Session},
    gpus::Gpu,
    quota::{Answer, Effective},
    sweeps::Sweep,
    usage::{Answer as UsageAnswer, UsageRow},
};
use lyceum_model::{
    EndReason, Resources, SessionState, Timestamp,
    quota::Field,
    size::human_size,
    time::{human_duration, human_hours},
};

/// Fewer characters of an id look like a number.
const MIN_ID_LENGTH: usize = 8;

pub fn sessions(sessions: &[Session], now: Timestamp) -> String {
    if sessions.is_empty() {
        return "no sessions; `lyceum session start jupyter --wait` starts one\n".to_owned();
    }
    let several_owners = sessions.iter().any(|session| session.owner != sessions[0].owner);
    let length = id_length(sessions.iter().map(|session| session.id.to_string()).collect());
    let mut rows = vec![["ID", "NAME", "APP", "STATE", "SIZE", "TIME", "OWNER"].map(str::to_owned).to_vec()];
    for session in sessions {
        rows.push(vec![
            short(&session.id.to_string(), length),
            harmless(session.name.as_deref().unwrap_or("-")),
            harmless(&session.app),
            state(session),
            size(&session.resources),
            left(session, now),
            harmless(&session.owner),
        ]);
    }
    if !several_owners {
        for row in &mut rows {
            row.truncate(6);
        }
    }
    columns(&rows)
}

pub fn jobs(jobs: &[Job], now: Timestamp) -> String {
    if jobs.is_empty() {
        return "no jobs; `lyceum job submit -- COMMAND` submits one\n".to_owned();
    }
    let several_owners = jobs.iter().any(|job| job.owner != jobs[0].owner);
    let length = id_length(jobs.iter().map(|job| job.id.to_string()).collect());
    let mut rows = vec![["ID", "NAME", "STATE", "SIZE", "RAN", "OWNER"].map(str::to_owned).to_vec()];
    for job in jobs {
        let ran = job.started_at.map(|at| human_duration(job.ended_at.unwrap_or(now).seconds_since(at)));
        rows.push(vec![
            short(&job.id.to_string(), length),
            harmless(&job.name),
            outcome(job),
            size(&job.resources),
            ran.unwrap_or_else(|| "-".to_owned()),
            harmless(&job.owner),
        ]);
    }
    if !several_owners {
        for row in &mut rows {
            row.truncate(5);
        }
    }
    columns(&rows)
}

pub fn sweeps(sweeps: &[Sweep]) -> String {
    if sweeps.is_empty() {
        return "no sweeps; `lyceum sweep submit --param lr=0.1,0.01 -- COMMAND` starts one\n".to_owned();
    }
    let length = id_length(sweeps.iter().map(|sweep| sweep.id.clone()).collect());
    let mut rows = vec![["ID", "NAME", "STATE", "BEGUN"].map(str::to_owned).to_vec()];
    for sweep in sweeps {
        let id = short(&sweep.id, length);
        let begun = format!("{} of {}", sweep.released, sweep.tasks);
        rows.push(vec![harmless(&id), harmless(&sweep.name), harmless(&sweep.state), begun]);
    }
    columns(&rows)
}

/// One sweep with its tasks.
pub fn sweep(sweep: &Sweep) -> String {
    let mut lines = vec![format!(
        "{} {} {}: {} of {} tasks submitted",
        harmless(&sweep.id),
        harmless(&sweep.name),
        harmless(&sweep.state),
        sweep.released,
        sweep.tasks
    )];
    lines.extend(sweep.detail.as_deref().map(harmless));
    if let (Some(metric), Some(best)) = (&sweep.metric, &sweep.best) {
        let value = best.best.map(|value| value.to_string()).unwrap_or_default();
        lines.push(format!("best {}: {value} by task {}", harmless(&metric.tag), best.index));
    }
    lines.push(String::new());
    let told = lines.join("\n");
    let Some(items) = sweep.items.as_ref().filter(|items| !items.is_empty()) else { return told };
    let mut rows = vec![["TASK", "STATE", "BEST", "VALUES", "JOB"].map(str::to_owned).to_vec()];
    for task in items {
        let values: Vec<String> = task.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let number = if task.repeat == 0 { task.index.to_string() } else { format!("{}.{}", task.index, task.repeat) };
        rows.push(vec![
            number,
            harmless(&task.state),
            task.best.map_or_else(|| "-".to_owned(), |best| best.to_string()),
            harmless(&values.join(" ")),
            harmless(task.job.as_deref().unwrap_or("-")),
        ]);
    }
    told + &columns(&rows)
}

/// How many tasks of a sweep are in which state, in a line.
pub fn sweep_progress(sweep: &Value) -> String {
    let states = sweep["states"].as_object().into_iter().flatten();
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {}", harmless(state))).collect();
    let counts = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    state_line(sweep) + &counts
}

/// The state of a sweep, a dataset or a model with its reason, in a line that begins with the id.
pub fn state_line(item: &Value) -> String {
    let text = |key: &str| harmless(item[key].as_str().unwrap_or_default());
    let detail = Some(text("detail")).filter(|detail| !detail.is_empty());
    let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{} {} is {}{detail}", text("id"), text("name"), text("state"))
}

/// Each dataset or model in a row: its columns are named as people name them, and as the API does.
pub fn items(items: &[Value], shown: &[(&str, &str)]) -> String {
    let length = id_length(items.iter().map(super::api::id_of).collect());
    let head = shown.iter().map(|(head, _)| (*head).to_owned()).collect();
    let cell = |item: &Value, key: &str| match &item[key] {
        Value::String(id) if key == "id" => short(id, length),
        value => word(value).unwrap_or_else(|| "-".to_owned()),
    };
    let rows = items.iter().map(|item| shown.iter().map(|(_, key)| cell(item, key)).collect());
    columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// What else is known of a job: a line for each of its properties that it has.
pub fn facts(job: &Value) -> String {
    const SHOWN: [&str; 19] = [
        "owner",
        "command",
        "script",
        "variables",
        "profile",
        "environment",
        "image",
        "image_digest",
        "modules",
        "group",
        "working_directory",
        "log_directory",
        "time_limit_seconds",
        "attempt",
        "created_at",
        "ended_at",
        "tags",
        "visibility",
        "notes",
    ];
    let shown = SHOWN.iter().filter_map(|key| Some((*key, word(&job[*key])?)));
    let starred = (job["starred"] == true).then(|| ("starred", "yes".to_owned()));
    let lines: Vec<String> =
        shown.chain(starred).map(|(key, word)| format!("  {}: {word}\n", key.replace('_', " "))).collect();
    lines.concat()
}

/// A value of the API's in a line; `None` where it says nothing.
pub fn word(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) if text.is_empty() => return None,
        Value::Array(items) if items.is_empty() => return None,
        Value::Object(fields) if fields.is_empty() => return None,
        Value::String(text) => harmless(text).replace('\n', "\n    "),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            harmless(&items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        other => harmless(&other.to_string()),
    })
}

pub fn runs(runs: &[Value]) -> String {
    if runs.is_empty() {
        return "no runs; `lyceum run add DIRECTORY` adds one\n".to_owned();
    }
    let text = |run: &Value, key: &str| word(&run[key]).unwrap_or_else(|| "-".to_owned());
    let length = id_length(runs.iter().map(|run| text(run, "id")).collect());
    let mut rows = vec![["ID", "NAME", "OWNER", "POINTS", "CURVES", "DIRECTORY"].map(str::to_owned).to_vec()];
    for run in runs {
        let id = short(&text(run, "id"), length);
        rows.push(
            [vec![id], ["name", "owner", "points", "curves", "directory"].map(|key| text(run, key)).to_vec()].concat(),
        );
    }
    columns(&rows)
}

/// What each metric of a run came to.
pub fn metrics(metrics: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut rows = vec![["RUN", "TAG", "POINTS", "LAST", "AT", "LEAST", "GREATEST"].map(str::to_owned).to_vec()];
    for run in list(&metrics["runs"]) {
        for tag in list(&run["tags"]) {
            let keys = ["tag", "count", "last", "last_step", "min", "max"];
            let cells = keys.map(|key| word(&tag[key]).unwrap_or_else(|| "-".to_owned()));
            rows.push([vec![word(&run["run"]).unwrap_or_default()], cells.to_vec()].concat());
        }
    }
    if rows.len() == 1 { "no curves yet\n".to_owned() } else { columns(&rows) }
}

/// One job in a sentence, beginning with its id.
pub fn job(job: &Job, now: Timestamp) -> String {
    let detail = job.detail.as_deref().map(harmless).filter(|detail| !detail.is_empty());
    let told = match job.state {
        SessionState::Queued => waits(&job.reasons, job.waiting_since, job.estimated_start, now),
        SessionState::Running => {
            let since = job.started_at.map(|at| format!(" for {}", human_duration(now.seconds_since(at))));
            format!("is running{}", since.unwrap_or_default())
        }
        SessionState::Starting => "is starting".to_owned(),
        SessionState::Stopping => "is stopping".to_owned(),
        SessionState::Ended => match detail {
            Some(detail) => format!("{}: {detail}", outcome(job)),
            None => outcome(job),
        },
    };
    format!("{} {} {told}", job.id, harmless(&job.name))
}

fn outcome(job: &Job) -> String {
    match (job.state, job.end_reason) {
        (SessionState::Ended, Some(EndReason::Exited)) => {
            format!("ended: exit code {}", job.exit_code.unwrap_or_default())
        }
        (SessionState::Ended, Some(EndReason::Signal)) => {
            job.signal.map_or_else(|| "ended by a signal".to_owned(), |signal| format!("ended: signal {signal}"))
        }
        (SessionState::Ended, Some(EndReason::StoppedByOwner)) => "cancelled".to_owned(),
        (SessionState::Ended, Some(EndReason::StoppedByAdmin)) => "cancelled by an administrator".to_owned(),
        (SessionState::Ended, reason) => reason.map_or("ended", why_ended).to_owned(),
        (state, _) => state.to_string(),
    }
}

/// What was used by each; `by` heads the names.
pub fn usage(by: &str, answer: &UsageAnswer) -> String {
    let rows = &answer.items;
    if rows.is_empty() {
        return "no usage in this period\n".to_owned();
    }
    let hours = |seconds: i64| human_hours(seconds.saturating_mul(1000));
    let head = by.split(',').map(|word| word.to_uppercase().replace('_', " "));
    let head = head.chain(["GPU-HOURS", "CORE-HOURS", "SESSIONS"].map(str::to_owned)).collect();
    let row = |row: &UsageRow| {
        let name = |name: &str| if name.is_empty() { "-".to_owned() } else { harmless(name) };
        let numbers = [hours(row.gpu_seconds), hours(row.cpu_seconds), row.sessions.to_string()];
        let group = by.contains(',').then(|| row.group.as_deref().unwrap_or_default());
        group.into_iter().chain([row.name.as_str()]).map(name).chain(numbers).collect()
    };
    let mut text = columns(&std::iter::once(head).chain(rows.iter().map(row)).collect::<Vec<_>>());
    let shell = &answer.from_shell;
    if shell.jobs > 0 {
        let (gpus, cpus) = (hours(shell.gpu_seconds), hours(shell.cpu_seconds));
        let which = if shell.jobs == 1 { "one job".to_owned() } else { format!("{} jobs", shell.jobs) };
        let line = format!("including {gpus} GPU-hours and {cpus} core-hours from a shell, in {which}\n");
        text.push_str(&line);
    }
    text
}

/// What became of something that was to be stopped with a group.
pub fn stopped(item: &Value, dry_run: bool) -> String {
    let text = |key: &str| word(&item[key]).unwrap_or_default();
    let stopped = if dry_run { "would be stopped" } else { "was stopped" };
    let outcome =
        word(&item["error"]).map_or_else(|| stopped.to_owned(), |error| format!("could not be stopped: {error}"));
    format!("{} {} of {} {outcome}", text("kind"), text("id"), text("owner"))
}

/// Each limit with what is used of it; where one is no amount that can be used, a dash.
pub fn quota(answer: &Answer) -> String {
    let head = ["FIELD", "USED", "LIMIT", "SOURCE"].map(str::to_owned);
    let row = |(name, effective): (&String, &Effective)| {
        let field = Field::parse(name);
        let said = |value| field.as_ref().map_or_else(|| format!("{value}"), |field| field.write(value));
        let used = field.as_ref().filter(|field| field.is_used()).map(|field| field.write(answer.usage.of(field)));
        vec![
            harmless(name),
            used.unwrap_or_else(|| "-".to_owned()),
            if effective.limit < 0 { "unlimited".to_owned() } else { said(effective.limit) },
            harmless(&effective.source),
        ]
    };
    columns(&std::iter::once(head.to_vec()).chain(answer.quota.iter().map(row)).collect::<Vec<_>>())
}

/// Each GPU with what it does.
pub fn gpus(gpus: &[Gpu]) -> String {
    if gpus.is_empty() {
        return "no GPUs\n".to_owned();
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let head = ["GPU", "MODEL", "STATE", "LOAD", "MEMORY", "TEMPERATURE", "OWNER", "UUID"].map(str::to_owned);
    let row = |gpu: &Gpu| {
        let memory = gpu.memory_used_bytes.zip(gpu.memory_total_bytes);
        vec![
            gpu.slice.map_or_else(|| gpu.index.to_string(), |slice| format!("{}:{slice}", gpu.index)),
            harmless(&gpu.model),
            harmless(&gpu.state).replace('_', " "),
            or_dash(gpu.utilisation_percent.map(|percent| format!("{percent} %"))),
            or_dash(memory.map(|(used, total)| format!("{} of {}", human_size(used), human_size(total)))),
            or_dash(gpu.temperature_celsius.map(|celsius| format!("{celsius} °C"))),
            or_dash(gpu.owner.as_deref().map(harmless)),
            harmless(&gpu.uuid),
        ]
    };
    columns(&std::iter::once(head.to_vec()).chain(gpus.iter().map(row)).collect::<Vec<_>>())
}

/// Each node with what of it is allocated, and why it accepts no work.
pub fn nodes(nodes: &[Value]) -> String {
    if nodes.is_empty() {
        return "no nodes\n".to_owned();
    }
    let head = ["NODE", "STATE", "GPUS", "CORES", "MEMORY", "DETAIL"].map(str::to_owned);
    let row = |node: &Value| {
        let number = |field: &str| node[field].as_i64().unwrap_or_default();
        let text = |field: &str| harmless(node[field].as_str().unwrap_or("-"));
        let memory = [number("memory_held_bytes"), number("memory_bytes")].map(human_size);
        vec![
            text("name"),
            text("state"),
            format!("{} of {}", number("gpus_held"), number("gpus")),
            format!("{} of {}", number("cpus_held"), number("cpus")),
            memory.join(" of "),
            text("detail"),
        ]
    };
    columns(&std::iter::once(head.to_vec()).chain(nodes.iter().map(row)).collect::<Vec<_>>())
}

/// Each image with how far it is.
pub fn images(images: &[Value]) -> String {
    if images.is_empty() {
        return "no images\n".to_owned();
    }
    let head = ["NAME", "STATE", "SIZE", "REFERENCE"].map(str::to_owned);
    let row = |image: &Value| {
        vec![
            harmless(image["name"].as_str().unwrap_or_default()),
            image_state(image),
            image["size_bytes"].as_i64().map_or_else(|| "-".to_owned(), human_size),
            harmless(image["reference"].as_str().unwrap_or_default()),
        ]
    };
    columns(&std::iter::once(head.to_vec()).chain(images.iter().map(row)).collect::<Vec<_>>())
}

/// The presets that one can use.
pub fn presets(presets: &[Value]) -> String {
    if presets.is_empty() {
        return "no presets\n".to_owned();
    }
    let head = ["NAME", "KIND", "GROUP", "ID"].map(str::to_owned);
    let row =
        |one: &Value| ["name", "kind", "group", "id"].map(|key| harmless(one[key].as_str().unwrap_or("-"))).to_vec();
    columns(&std::iter::once(head.to_vec()).chain(presets.iter().map(row)).collect::<Vec<_>>())
}

/// The registries that one has saved credentials for.
pub fn registry_credentials(saved: &[Value]) -> String {
    if saved.is_empty() {
        return "no registry credentials\n".to_owned();
    }
    let head = ["REGISTRY", "USER", "SAVED"].map(str::to_owned);
    let row = |one: &Value| {
        ["registry", "user", "saved_at"].map(|key| harmless(one[key].as_str().unwrap_or_default())).to_vec()
    };
    columns(&std::iter::once(head.to_vec()).chain(saved.iter().map(row)).collect::<Vec<_>>())
}

/// The images that can be added by their name, with those that are no longer developed marked.
pub fn image_suggestions(images: &[Value]) -> String {
    let text = |image: &Value, key: &str| harmless(image[key].as_str().unwrap_or_default());
    let head = ["NAME", "TITLE", "REFERENCE", ""].map(str::to_owned);
    let row = |image: &Value| {
        let mark = if image["legacy"] == true { "legacy" } else { "" };
        vec![text(image, "name"), text(image, "title"), text(image, "reference"), mark.to_owned()]
    };
    columns(&std::iter::once(head.to_vec()).chain(images.iter().map(row)).collect::<Vec<_>>())
}

/// What takes room in the store of images, the largest first.
pub fn image_storage(storage: &Value) -> String {
    let text = |item: &Value, key: &str| harmless(item[key].as_str().unwrap_or_default());
    let size = |value: &Value| value.as_i64().map_or_else(|| "-".to_owned(), human_size);
    let head = ["SIZE", "NEEDED BY", "LAST USE", "NAME", "DIGEST"].map(str::to_owned);
    let row = |item: &Value| {
        let digest: String = text(item, "digest").chars().take(19).collect();
        vec![size(&item["bytes"]), text(item, "used_by"), text(item, "used_at"), text(item, "name"), digest]
    };
    let items = storage["items"].as_array().into_iter().flatten().map(row);
    let rows = columns(&std::iter::once(head.to_vec()).chain(items).collect::<Vec<_>>());
    format!("{rows}{} of {}\n", size(&storage["bytes"]), size(&storage["budget"]))
}

/// The state of an image, with how far a pull is.
fn image_state(image: &Value) -> String {
    let state = harmless(image["state"].as_str().unwrap_or_default());
    match (image["bytes"].as_i64(), image["total"].as_i64()) {
        (Some(bytes), Some(total)) => format!("{state} {} of {}", human_size(bytes), human_size(total)),
        _ => state,
    }
}

/// One image in a line, beginning with its name.
pub fn image_line(image: &Value) -> String {
    let name = harmless(image["name"].as_str().unwrap_or_default());
    let failure = image["failure"].as_str().map(|reason| format!(": {}", harmless(reason))).unwrap_or_default();
    format!("{name} {}{failure}", image_state(image))
}

/// What is known of an image: a line for each of its properties that it has.
pub fn image(image: &Value) -> String {
    const SHOWN: [&str; 10] = [
        "title",
        "reference",
        "digest",
        "platform",
        "groups",
        "private",
        "pulled_at",
        "added_by",
        "size_bytes",
        "failure",
    ];
    const INSIDE: [&str; 5] = ["entrypoint", "command", "working_directory", "require_cuda", "python"];
    let lines = |of: &Value, keys: &[&str]| -> String {
        let shown = keys.iter().filter_map(|key| Some((key, word(&of[*key])?)));
        shown.map(|(key, word)| format!("  {}: {word}\n", key.replace('_', " "))).collect::<Vec<_>>().concat()
    };
    let first = format!("{} {}\n", harmless(image["name"].as_str().unwrap_or_default()), image_state(image));
    let packages = image["inside"]["packages"].as_object();
    let packages: Vec<String> = packages
        .into_iter()
        .flatten()
        .map(|(name, version)| harmless(&format!("{name} {}", version.as_str().unwrap_or_default())))
        .collect();
    let packages = if packages.is_empty() { String::new() } else { format!("  packages: {}\n", packages.join(", ")) };
    first + &lines(image, &SHOWN) + &lines(&image["inside"], &INSIDE) + &packages
}

/// One session in a sentence or two, beginning with its id.
pub fn sentence(session: &Session, now: Timestamp) -> String {
    let name = session.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&session.app);
    let mut text = format!("{} {} {}", session.id, harmless(name), status_note(session, now));
    if let Some(since) = session.unknown_since {
        let silent = human_duration(now.seconds_since(since));
        text = format!("{text} (state unknown for {silent})");
    }
    if let Some(since) = session.suspended_since {
        text = format!("{text} (suspended for {})", human_duration(now.seconds_since(since)));
    }
    text
}

fn status_note(session: &Session, now: Timestamp) -> String {
    let detail = session.detail.as_deref().map(harmless).filter(|detail| !detail.is_empty());
    match session.state {
        SessionState::Queued => waits(&session.reasons, session.waiting_since, session.estimated_start, now),
        SessionState::Starting => {
            detail.map_or_else(|| "is starting".to_owned(), |detail| format!("is starting: {detail}"))
        }
        SessionState::Running => {
            let node = session.node.as_deref().map(|node| format!(" on {}", harmless(node))).unwrap_or_default();
            let gpus: Vec<String> = session.gpus.iter().map(|gpu| gpu.index.to_string()).collect();
            let gpus = if gpus.is_empty() { String::new() } else { format!(", GPU {}", gpus.join(", ")) };
            format!("is running{node}{gpus}, {}", left(session, now))
        }
        SessionState::Stopping => "is stopping".to_owned(),
        SessionState::Ended => {
            let why = session.end_reason.map_or("ended", why_ended);
            detail.map_or_else(|| why.to_owned(), |detail| format!("{why}: {detail}"))
        }
    }
}

/// For how long, why, and until when at the latest, as far as the portal says.
fn waits(reasons: &[Reason], since: Option<Timestamp>, start: Option<Timestamp>, now: Timestamp) -> String {
    let reasons: Vec<String> = reasons.iter().map(|reason| harmless(&reason.hint)).collect();
    let long = since.map(|since| format!(" for {}", human_duration(now.seconds_since(since)))).unwrap_or_default();
    let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(" ")) };
    let start = start.map(|at| format!(" (expected to start by {at})")).unwrap_or_default();
    format!("is queued{long}{why}{start}")
}

fn state(session: &Session) -> String {
    match (session.state, session.unknown_since, session.suspended_since) {
        (SessionState::Ended, ..) => session.end_reason.map_or("ended", why_ended).to_owned(),
        (state, Some(_), _) => format!("{state}, unknown"),
        (_, None, Some(_)) => "suspended".to_owned(),
        (state, None, None) => state.to_string(),
    }
}

fn why_ended(reason: EndReason) -> &'static str {
    match reason {
        EndReason::StoppedByOwner => "stopped",
        EndReason::StoppedByAdmin => "stopped by an administrator",
        EndReason::Idle => "stopped: idle",
        EndReason::TimeLimit => "ended: time limit reached",
        EndReason::OutOfMemory => "ended: out of memory",
        EndReason::Exited => "exited",
        EndReason::Signal => "ended by a signal",
        EndReason::NodeFailure => "ended: its node failed",
        EndReason::HostRebooted => "ended: its machine was restarted",
        EndReason::Preempted => "ended: preempted",
        EndReason::LaunchFailed => "could not be started",
        EndReason::Refused => "rejected",
        EndReason::Lost => "lost",
    }
}

fn left(session: &Session, now: Timestamp) -> String {
    match session.expires_at {
        Some(end) if session.state.is_live() => format!("{} left", human_duration(end.seconds_since(now))),
        _ => "-".to_owned(),
    }
}

fn size(resources: &Resources) -> String {
    let gpus = match (resources.gpus, resources.gpu_model.as_deref()) {
        (0, _) => String::new(),
        (count, Some(model)) => format!("{count} {}, ", harmless(model)),
        (count, None) => format!("{count} GPU, "),
    };
    let cores = if resources.cpus == 1 { "core" } else { "cores" };
    format!("{gpus}{} {cores}, {}", resources.cpus, human_size(resources.memory_bytes))
}

/// How many characters of their ends tell these ids apart: their beginnings are moments, which those that were made
/// within a minute share.
pub fn id_length(ids: Vec<String>) -> usize {
    let mut ends: Vec<String> = ids.into_iter().map(|id| id.chars().rev().collect()).collect();
    ends.sort();
    let same = ends.windows(2).map(|pair| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count());
    same.max().map_or(MIN_ID_LENGTH, |same| (same + 1).max(MIN_ID_LENGTH)).min(36)
}

/// The end of an id.
pub fn short(id: &str, length: usize) -> String {
    id.chars().skip(id.chars().count().saturating_sub(length)).collect()
}

/// The text without control characters, except for tabs and line ends.
pub fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// A log without control characters, except for what a progress bar is drawn with.
pub fn harmless_log(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r')).collect()
}

pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
