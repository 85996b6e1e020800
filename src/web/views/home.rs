//! `/`: one's own sessions, quota bars, and how far the software is built.

use askama::Template;

use super::{Card, InvitationRow, JobRow, Meter, Moment, More, PresetStart, StorageNote};
use crate::web::page::{Layout, filters};

/// The first page after sign-in.
#[derive(Debug, Template)]
#[template(path = "home.html")]
pub struct Home {
    pub layout: Layout,
    /// A sentence of thanks or of regret after a form: “Stopping ‘resnet’.”
    pub notice: Option<String>,
    /// Groups that the viewer is invited into and has not answered.
    pub invitations: Vec<InvitationRow>,
    /// The viewer's quotas; empty draws nothing.
    pub meters: Vec<Meter>,
    /// What of it came from a shell.
    pub elsewhere: Option<String>,
    /// How full the file systems of the viewer's folders are, and the folders that do not answer.
    pub spaces: Vec<(Meter, String)>,
    pub silent: Vec<String>,
    /// Where little is left of the viewer's storage.
    pub storage: Option<StorageNote>,
    /// `Some(unix account)` where the portal is not root and serves one person only.
    pub single_user: Option<String>,
    /// The environment that is being built, or could not be.
    pub environment: Option<EnvironmentBanner>,
    /// The idempotency key of the terminal that one click starts; `None` where the viewer cannot start any.
    pub terminal: Option<String>,
    /// Presets of sessions, each to start with one click.
    pub presets: Vec<PresetStart>,
    /// Live sessions, newest first.
    pub live: Vec<Card>,
    pub more_live: More,
    /// Live jobs, newest first.
    pub jobs: Vec<JobRow>,
    /// Whether there are more live jobs than these.
    pub has_more_jobs: bool,
    /// Ended lately, newest first; the handler bounds how many.
    pub ended: Vec<Card>,
}

/// How far an environment is. It is redrawn on every `environment` message of `/events`.
#[derive(Clone, Debug)]
pub enum EnvironmentBanner {
    Building {
        name: String,
        /// “installing 42 of 118 packages”.
        step: String,
        /// Hundredths, where they are known.
        percent: Option<i64>,
        /// Told as `Show::Since`.
        started: Moment,
    },
    Failed {
        name: String,
        /// What is missing, in a sentence.
        message: String,
        /// The exact command that mends it.
        command: Option<String>,
    },
}
