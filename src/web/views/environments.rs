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
    /// Fields: `name`, `title`, `packages`.
    pub errors: Vec<FieldError>,
    pub rows: Vec<EnvironmentRow>,
    /// What can be added with one click, without names that exist.
    pub suggestions: Vec<&'static Suggestion>,
    pub form: EnvironmentForm,
}

/// What was typed, kept after an error.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentForm {
    pub name: String,
    pub title: String,
    /// A package a line.
    pub packages: String,
    /// It was typed for the environment of this name, not for a new one.
    pub changes: bool,
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
    /// `ada`, `configuration file` or `portal`.
    pub from: String,
    /// What an administrator listed; only then it can be changed here.
    pub packages: Option<Vec<String>>,
    /// The portal builds it, so that there is a log.
    pub has_log: bool,
}

impl EnvironmentRow {
    pub fn new(environment: Environment, now: Timestamp) -> Self {
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
        Self {
            has_log: has_log || packages.is_some(),
            name: environment.name,
            title: environment.title,
            class,
            word,
            progress,
            failure,
            note: environment.note,
            python: environment.python_version,
            frameworks: environment.frameworks.into_iter().map(|one| (one.name, one.uses_gpus)).collect(),
            from,
            packages,
        }
    }
}

impl EnvironmentsPage {
    /// What is wrong with a field of the form that adds one.
    pub fn error(&self, field: &str) -> Option<&str> {
        if self.form.changes { None } else { self.message(field) }
    }

    fn message(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// Whether this row's form was refused.
    fn is_refused(&self, row: &EnvironmentRow) -> bool {
        self.form.changes && self.form.name == row.name && !self.errors.is_empty()
    }

    /// The packages in this row's form, a line each.
    fn packages(&self, row: &EnvironmentRow) -> String {
        if self.is_refused(row) {
            self.form.packages.clone()
        } else {
            row.packages.clone().unwrap_or_default().join("\n")
        }
    }

    fn title<'a>(&'a self, row: &'a EnvironmentRow) -> &'a str {
        if self.is_refused(row) { &self.form.title } else { &row.title }
    }

    fn new_title(&self) -> &str {
        if self.form.changes { "" } else { &self.form.title }
    }

    fn new_packages(&self) -> &str {
        if self.form.changes { "" } else { &self.form.packages }
    }

    fn row_error(&self, row: &EnvironmentRow, field: &str) -> Option<&str> {
        self.message(field).filter(|_| self.is_refused(row))
    }
}
