//! `/admin/users/{name}/offboard`: what ends access and work, what can be handed over and how that went, and what remains.

use askama::Template;

use super::{FieldError, StateBadge};
use crate::{
    model::user,
    web::page::{Layout, filters},
};

/// The page.
#[derive(Debug, Template)]
#[template(path = "admin/offboard.html")]
pub struct OffboardPage {
    pub layout: Layout,
    pub name: String,
    pub state: user::State,
    pub is_oneself: bool,
    /// What a form did.
    pub notice: Option<String>,
    /// Why a form was refused, where no field is wrong.
    pub error: Option<String>,
    /// What ending access and work would do; empty: it is done.
    pub ahead: Vec<StepRow>,
    /// How many steps are not shown.
    pub more_ahead: usize,
    /// Steps that failed.
    pub failed: Vec<StepRow>,
    /// How many sessions, jobs and sweeps have not ended.
    pub live: i64,
    /// What can be handed over, with how much there is of it.
    pub made: Vec<(&'static str, i64)>,
    pub form: HandOverForm,
    pub outcome: Option<HandOverOutcome>,
    /// The folders of the user's files, the home directory first.
    pub folders: Vec<String>,
    pub groups: Vec<String>,
    pub presets: i64,
}

/// A step, as `Revoke the token` and its name.
#[derive(Clone, Debug)]
pub struct StepRow {
    pub what: &'static str,
    pub name: String,
    /// Why it was not done.
    pub error: Option<String>,
}

/// The form of a hand-over, as it was typed.
#[derive(Clone, Debug, Default)]
pub struct HandOverForm {
    pub to: String,
    pub from_folder: String,
    pub to_folder: String,
    pub errors: Vec<FieldError>,
}

/// What was handed over, or would be.
#[derive(Clone, Debug)]
pub struct HandOverOutcome {
    /// Nothing was changed.
    pub is_check: bool,
    pub to: String,
    /// Each as `12 jobs`.
    pub counts: Vec<String>,
    /// How many datasets and models keep their owner.
    pub failed: usize,
    pub rows: Vec<HandOverRow>,
    /// How many datasets and models are not shown.
    pub more_rows: usize,
}

/// A dataset or a model.
#[derive(Clone, Debug)]
pub struct HandOverRow {
    pub kind: &'static str,
    pub name: String,
    pub directory: String,
    /// Why it keeps its owner.
    pub error: Option<String>,
}

impl HandOverForm {
    fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// The folder that the command copies, where it is known.
    fn copied(&self) -> &str {
        if self.from_folder.is_empty() { "FORMER_FOLDER" } else { &self.from_folder }
    }
}

impl OffboardPage {
    fn badge(&self) -> StateBadge {
        self.state.into()
    }

    fn is_active(&self) -> bool {
        self.state == user::State::Active
    }

    /// Whether things can be handed over.
    fn is_closed(&self) -> bool {
        !self.is_active() && self.live == 0
    }

    fn has_made_something(&self) -> bool {
        self.made.iter().any(|(_, count)| *count > 0)
    }
}
