//! `/sessions/{id}`: one session with everything that is known of it.

use std::collections::BTreeMap;

use askama::Template;

use super::{Card, Moment, resources_line, sentence::capitalised, slurm_facts};
use crate::{
    model::{GpuInventory, Session, SessionState, Timestamp, session::Placement, time::human_duration},
    web::page::{Layout, filters},
};

/// The page of one session.
#[derive(Debug, Template)]
#[template(path = "sessions/show.html")]
pub struct ShowSession {
    pub layout: Layout,
    /// A sentence after a form, as on the home page.
    pub notice: Option<String>,
    pub card: Card,
    /// The way to a running session; see [`ShowSession::steps`]. Empty once it runs.
    pub steps: Vec<Step>,
    /// What its agent wants its owner to know; see [`notes`].
    pub notes: Vec<String>,
    /// Label and value, in the order of the page; see [`ShowSession::facts`].
    pub facts: Vec<(&'static str, String)>,
    /// Label and moment: asked for, started, ended …; see [`ShowSession::moments`].
    pub moments: Vec<(&'static str, Moment)>,
    /// What happened, oldest first.
    pub history: Vec<HistoryEntry>,
    /// The end of its log as the workload wrote it; `None` before there is one.
    pub log: Option<String>,
    /// What is not held on this machine, a sentence each; see [`ShowSession::caveats`].
    pub caveats: Vec<&'static str>,
    /// A smaller request that would have sufficed, as a sentence; after the end.
    pub advice: Option<String>,
    /// False once ended: the log is no longer followed.
    pub is_live: bool,
    /// Whether the viewer owns it: only then a form to change and start again is offered.
    pub is_own: bool,
}

/// One step on the way to a running session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub label: String,
    pub progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    Now,
    Ahead,
}

impl Progress {
    pub fn class(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Now => "now",
            Self::Ahead => "ahead",
        }
    }

    /// For those who do not see the drawing.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Now => "now",
            Self::Ahead => "pending",
        }
    }
}

/// One line of the history.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    pub at: Moment,
    /// “running”, “extended by 8 h by alice”.
    pub text: String,
}

impl ShowSession {
    /// The steps of a session that does not run yet; `doing` is what its agent says.
    #[must_use]
    pub fn steps(session: &Session, doing: Option<&str>) -> Vec<Step> {
        let at = match session.state {
            SessionState::Queued if !session.is_admitted() => 1,
            SessionState::Queued => 2,
            SessionState::Starting if session.placement.is_none() => 2,
            SessionState::Starting => 3,
            SessionState::Running | SessionState::Stopping | SessionState::Ended => return Vec::new(),
        };
        let doing = doing.filter(|doing| !doing.trim().is_empty() && at == 3).map(capitalised);
        let third = match session.state {
            SessionState::Queued if session.spec.image.is_some() => "Image ready",
            SessionState::Queued if session.spec.environment.is_some() => "Environment ready",
            _ => "Program started",
        };
        let labels = ["Requested", "Resources allocated", third, doing.as_deref().unwrap_or("App ready")];
        let step = |(index, label): (usize, &str)| Step {
            label: label.to_owned(),
            progress: match index.cmp(&at) {
                std::cmp::Ordering::Less => Progress::Done,
                std::cmp::Ordering::Equal => Progress::Now,
                std::cmp::Ordering::Greater => Progress::Ahead,
            },
        };
        labels.into_iter().enumerate().map(step).collect()
    }

    /// What there is to know, with an empty line for nothing.
    #[must_use]
    pub fn facts(session: &Session, app_title: &str) -> Vec<(&'static str, String)> {
        let gpus: Vec<String> =
            session.gpus.iter().map(|gpu| format!("{}: {} ({})", gpu.label(), gpu.model, gpu.uuid)).collect();
        let placement = session.placement.as_ref();
        [
            ("Program", Some(app_title.to_owned())),
            ("Size", session.spec_is_whole.then(|| resources_line(&session.spec.resources, &session.gpus))),
            ("Profile", session.spec.profile.clone()),
            ("GPUs", (!gpus.is_empty()).then(|| gpus.join(", "))),
            ("Environment", session.spec.environment.clone()),
            ("Image", session.spec.image.clone()),
            ("Image digest", session.image_digest.clone()),
            ("Modules", (!session.spec.modules.is_empty()).then(|| session.spec.modules.join(" "))),
            ("Working directory", session.spec.working_directory.clone()),
            ("Log folder", session.spec.log_directory.clone()),
            ("Runs", names(&session.spec.log_directories)),
            ("Charged to", session.spec.group.clone()),
            (
                "Time limit",
                Some(if session.spec_is_whole {
                    human_duration(session.spec.duration_seconds)
                } else {
                    "the request can no longer be read in full".to_owned()
                }),
            ),
            ("Extensions", (session.extensions > 0).then(|| session.extensions.to_string())),
            ("Node", placement.map(|placement| placement.node.clone())),
            ("Runs as", placement.map(|placement| placement.unix_name.clone())),
            ("Limits", placement.map(|placement| how_limits_are_held(&placement.limits))),
        ]
        .into_iter()
        .chain(slurm_facts(&session.spec.slurm))
        .chain([
            ("Exit code", session.exit_code.map(|code| code.to_string())),
            ("Signal", session.signal.map(|signal| signal.to_string())),
        ])
        .filter_map(|(label, value)| value.map(|value| (label, value)))
        .collect()
    }

    /// The moments of its life that have come, and its end to come.
    #[must_use]
    pub fn moments(session: &Session, now: Timestamp) -> Vec<(&'static str, Moment)> {
        let ends = if session.state.is_live() { session.expires_at } else { None };
        [
            ("Created", Some(session.created_at)),
            ("Started", session.started_at),
            ("Ready", session.ready_at),
            ("Last used", session.last_activity_at),
            ("Ends", ends),
            ("Ended", session.ended_at),
        ]
        .into_iter()
        .filter_map(|(label, at)| at.map(|at| (label, Moment::clock(at, now))))
        .collect()
    }

    /// What a session is not held to, or not kept from, on the machine that it runs on.
    #[must_use]
    pub fn caveats(session: &Session, inventory: &GpuInventory) -> Vec<&'static str> {
        let Some(placement) = session.placement.as_ref().filter(|_| session.state.is_live()) else { return Vec::new() };
        if placement.is_of_a_cluster() {
            return Vec::new();
        }
        let watched = placement.limits == "sampled";
        let holds = !session.gpus.is_empty();
        let closes = closes_gpus(placement, inventory);
        let in_slices = session.gpus.iter().any(|gpu| gpu.slice.is_some());
        [
            (watched, LIMITS_ARE_WATCHED),
            (inventory.driver && !closes, GPUS_ARE_OPEN),
            (!inventory.driver && holds, GPUS_ARE_COUNTED),
            (inventory.driver && closes && in_slices, SLICES_ARE_OPEN),
        ]
        .into_iter()
        .filter_map(|(so, sentence)| so.then_some(sentence))
        .collect()
    }
}

/// Whether nothing but its own good will keeps a session that holds GPUs from those of others.
#[must_use]
pub fn gpus_are_counted(session: &Session, inventory: &GpuInventory) -> bool {
    let placement = session.placement.as_ref();
    let is_open = |placement: &Placement| !placement.is_of_a_cluster() && !closes_gpus(placement, inventory);
    !session.gpus.is_empty() && placement.is_some_and(is_open)
}

/// Several folders of logs, by their names.
fn names(folders: &BTreeMap<String, String>) -> Option<String> {
    let names: Vec<&str> = folders.keys().map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn closes_gpus(placement: &Placement, inventory: &GpuInventory) -> bool {
    ["systemd", "cgroup-v1"].contains(&placement.limits.as_str()) && !inventory.devices.is_empty()
}

const LIMITS_ARE_WATCHED: &str = "On this machine, the limits of this session are monitored, not enforced by the \
                                  kernel. If it uses more memory than requested, it is ended within a second. It can \
                                  use more cores than requested, but they are not reserved for it.";

const GPUS_ARE_OPEN: &str = "GPUs are not isolated on this machine: programs see only the GPUs of this session, but a \
                             program that ignores CUDA_VISIBLE_DEVICES can use all GPUs.";

const GPUS_ARE_COUNTED: &str = "The GPUs of this machine are allocated by count only: there is no driver, and programs \
                                are not restricted to the GPUs of their session.";

const SLICES_ARE_OPEN: &str = "This session holds a slice of a GPU. Only CUDA_VISIBLE_DEVICES separates it from the \
                               other slices of that GPU.";

fn how_limits_are_held(limits: &str) -> String {
    match limits {
        "sampled" => "monitored every second".to_owned(),
        "systemd" => "enforced by the kernel (cgroup-v2, created by systemd)".to_owned(),
        "cgroup-v1" | "cgroup-v2" => format!("enforced by the kernel ({limits})"),
        "cgroup-v1-without-devices" => "enforced by the kernel (cgroup-v1)".to_owned(),
        other => other.to_owned(),
    }
}

/// Sentences of an agent's, which is its user's: bounded, and on one line each.
#[must_use]
pub fn notes(told: &[String]) -> Vec<String> {
    let plain = |note: &String| note.chars().filter(|c| !c.is_control()).take(2000).collect();
    told.iter().take(5).map(plain).collect()
}

/// A log as text to be read: without the escape sequences of terminals and other control
/// characters, and with only the last of what was written over itself on one line. A line that is
/// about to be written over still shows.
#[must_use]
pub fn plain_log(log: &str) -> String {
    let mut text = String::with_capacity(log.len());
    let mut line_start = 0;
    let mut is_redrawn = false;
    let mut characters = log.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\r' => is_redrawn = true,
            '\n' => {
                text.push('\n');
                line_start = text.len();
                is_redrawn = false;
            }
            '\u{8}' if line_start < text.len() => _ = text.pop(),
            control if control.is_control() && control != '\t' => {}
            other => {
                if std::mem::take(&mut is_redrawn) {
                    text.truncate(line_start);
                }
                text.push(other);
            }
        }
    }
    text
}

/// Passes over what follows an ESC: CSI up to its final byte, OSC up to BEL or ESC `\`, else
/// one character.
fn skip_escape(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match characters.next() {
        Some('[') => while characters.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
        Some(']') => {
            while let Some(c) = characters.next() {
                if c == '\u{7}' || (c == '\u{1b}' && characters.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_read_as_text() {
        for (raw, read) in [
            ("\u{1b}[32mok\u{1b}[0m\n", "ok\n"),
            ("10 %\r50 %\r100 %\nnext", "100 %\nnext"),
            ("dos\r\nline", "dos\nline"),
            ("50 %\r100 %\r", "100 %"),
            ("50 %\r100 %\r\r\nnext", "100 %\nnext"),
            ("10 %\u{8}\u{8}\u{8}\u{8}20 %\n\u{8}", "20 %\n"),
            ("\u{1b}]0;title\u{7}shell", "shell"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("bell\u{7}\u{0}\u{9b}", "bell"),
            ("cut \u{1b}[", "cut "),
            ("<b>&</b>", "<b>&</b>"),
        ] {
            assert_eq!(plain_log(raw), read, "{raw:?}");
        }
    }
}
