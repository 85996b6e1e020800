//! `/admin/environments`: the software environments, the progress of their builds, and their packages.

use askama::Template;

use super::{FieldError, Moment, Show};
use crate::{
    environments::{Environment, Origin, State, Suggestion},
    model::Timestamp,
    web::page::{Layout, filters},
};

/// The list of environments.
#[derive(Debug, Template)]
#[template(path = "admin/environments.html")]
pub struct EnvironmentsPage {
    pub layout: Layout,
    /// What a form did.
    pub notice: Option<String>,
    /// Why a form was refused, where no field is wrong.
    pub error: Option<String>,
    pub rows: Vec<EnvironmentRow>,
    /// What can be added with one click, without names that exist.
    pub suggestions: Vec<&'static Suggestion>,
    pub form: EnvironmentForm,
}

/// A form with what was typed, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentForm {
    pub name: String,
    pub title: String,
    /// A package a line.
    pub packages: String,
    pub groups: String,
    pub position: String,
    pub errors: Vec<FieldError>,
}

impl EnvironmentForm {
    /// Returns what is wrong with an input.
    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == name).map(|error| error.message.as_str())
    }
}

/// One environment.
#[derive(Clone, Debug)]
pub struct EnvironmentRow {
    pub name: String,
    pub title: String,
    /// The class of the badge, and its word.
    pub class: &'static str,
    pub word: &'static str,
    /// While it is built: percent, step, since when.
    pub progress: Option<(u8, String, Moment)>,
    /// What went wrong and the command that fixes it.
    pub failure: Option<(String, String)>,
    pub note: Option<String>,
    pub python: Option<String>,
    /// The frameworks, with whether they can use GPUs.
    pub frameworks: Vec<(String, bool)>,
    /// The groups that may use it, each with whether such a group exists; empty: all users.
    pub groups: Vec<(String, bool)>,
    pub position: i64,
    /// `ada`, `configuration file` or `portal`.
    pub from: String,
    /// The form that changes it, where it can be changed here.
    pub form: Option<EnvironmentForm>,
    /// The portal builds it, so that there is a log.
    pub has_log: bool,
}

impl EnvironmentRow {
    /// `exists` tells whether there is a group of this name.
    pub fn new(environment: Environment, now: Timestamp, exists: impl Fn(&str) -> bool) -> Self {
        let (class, word) = match environment.state {
            State::Building { .. } => ("starting", "Building"),
            State::Ready { .. } => ("done", "Ready"),
            State::Failed { .. } => ("failed", "Failed"),
            State::Missing => ("unknown", "Missing"),
        };
        let (mut progress, mut failure, mut has_log) = (None, None, false);
        match environment.state {
            State::Building { percent, step, since } => {
                progress = Some((percent, step, Moment { at: since, show: Show::Since, now }));
            }
            State::Failed { what, command, log, .. } => {
                failure = Some((what, command));
                has_log = log.is_some();
            }
            State::Ready { .. } | State::Missing => {}
        }
        let (from, packages) = match environment.origin {
            Origin::Shipped => ("portal".to_owned(), None),
            Origin::File => ("configuration file".to_owned(), None),
            Origin::Added { packages, by } => (by, Some(packages)),
        };
        let form = packages.map(|packages| EnvironmentForm {
            name: environment.name.clone(),
            title: environment.title.clone(),
            packages: packages.join("\n"),
            groups: environment.groups.join(", "),
            position: environment.position.to_string(),
            errors: Vec::new(),
        });
        Self {
            has_log: has_log || form.is_some(),
            name: environment.name,
            title: environment.title,
            class,
            word,
            progress,
            failure,
            note: environment.note,
            python: environment.python_version,
            groups: environment.groups.into_iter().map(|group| (group.clone(), exists(&group))).collect(),
            position: environment.position,
            frameworks: environment.frameworks.into_iter().map(|one| (one.name, one.uses_gpus)).collect(),
            from,
            form,
        }
    }
}
