//! `/admin/profiles`: the named sizes of sessions and jobs, what each offers, and the forms that add and change them.

use askama::Template;

use super::{FieldError, resources_line};
use crate::{
    model::{
        size::exact_size,
        time::{exact_duration, human_duration},
    },
    sessions::{Profile, profiles::Origin},
    web::page::{Layout, filters},
};

/// The list of profiles.
#[derive(Debug, Template)]
#[template(path = "admin/profiles.html")]
pub struct ProfilesPage {
    pub layout: Layout,
    /// What a form did.
    pub notice: Option<String>,
    /// Why a form was refused, where no field is wrong.
    pub error: Option<String>,
    pub rows: Vec<ProfileRow>,
    /// The rows are what the portal calculates from the hardware.
    pub are_shipped: bool,
    /// What the portal would calculate, without names that exist: a row and the form's values for each.
    pub suggestions: Vec<(ProfileRow, ProfileForm)>,
    pub form: ProfileForm,
}

/// One profile.
#[derive(Clone, Debug)]
pub struct ProfileRow {
    pub name: String,
    pub title: String,
    /// `2 × A100 · 16 cores · 96 GiB`
    pub size: String,
    /// `8 h`
    pub lasts: String,
    /// The groups that may use it, each with whether such a group exists; empty: all users.
    pub groups: Vec<(String, bool)>,
    pub position: i64,
    /// How many fit now.
    pub free: i64,
    /// Why none can ever start.
    pub objection: Option<String>,
    /// `ada`, `configuration file` or `hardware`.
    pub from: String,
    /// The form that changes it, where it can be changed here.
    pub form: Option<ProfileForm>,
}

/// A form with what was typed, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct ProfileForm {
    pub name: String,
    pub title: String,
    pub gpus: String,
    pub gpu_model: String,
    pub cpus: String,
    pub memory: String,
    pub duration: String,
    pub groups: String,
    pub position: String,
    /// Fields: the names of the inputs.
    pub errors: Vec<FieldError>,
}

/// An input of the form.
#[derive(Debug)]
pub struct Input<'a> {
    pub name: &'static str,
    pub label: &'static str,
    pub value: &'a str,
    pub hint: &'static str,
    pub example: &'static str,
    pub is_required: bool,
    pub error: Option<&'a str>,
}

impl ProfileRow {
    /// `free` is how many fit now.
    pub fn new(profile: Profile, free: i64, objection: Option<String>, exists: impl Fn(&str) -> bool) -> Self {
        let form = matches!(profile.origin, Origin::Added { .. }).then(|| ProfileForm::of(&profile));
        Self {
            size: resources_line(&profile.resources, &[]),
            lasts: human_duration(profile.duration_seconds),
            groups: profile.groups.into_iter().map(|group| (group.clone(), exists(&group))).collect(),
            position: profile.position,
            free,
            objection,
            from: match profile.origin {
                Origin::Shipped => "hardware".to_owned(),
                Origin::File => "configuration file".to_owned(),
                Origin::Added { by } => by,
            },
            form,
            name: profile.name,
            title: profile.title,
        }
    }
}

impl ProfileForm {
    /// Filled in with the values of a profile.
    pub fn of(profile: &Profile) -> Self {
        let size = &profile.resources;
        Self {
            name: profile.name.clone(),
            title: profile.title.clone(),
            gpus: size.gpus.to_string(),
            gpu_model: size.gpu_model.clone().unwrap_or_default(),
            cpus: size.cpus.to_string(),
            memory: exact_size(size.memory_bytes),
            duration: exact_duration(profile.duration_seconds),
            groups: profile.groups.join(", "),
            position: profile.position.to_string(),
            errors: Vec::new(),
        }
    }

    /// Returns the inputs in their order, without the name.
    pub fn inputs(&self) -> Vec<Input<'_>> {
        let input = |name, label, value, hint, example, is_required| {
            let error = self.error(name);
            Input { name, label, value, hint, example, is_required, error }
        };
        vec![
            input("title", "Title", self.title.as_str(), "shown in forms; empty for the name", "1 GPU", false),
            input("gpus", "GPUs", &self.gpus, "0 for none", "1", true),
            input(
                "gpu_model",
                "GPU model",
                &self.gpu_model,
                "as the nodes page spells it; empty for any",
                "A100",
                false,
            ),
            input("cpus", "Cores", &self.cpus, "at least 1", "8", true),
            input("memory", "Memory", &self.memory, "with its unit", "48 GiB", true),
            input("duration", "Time", &self.duration, "how long it runs unless users choose a time", "8h", true),
            input("groups", "Groups", &self.groups, "who may use it; empty for all users", "vision, speech", false),
            input("position", "Order", &self.position, "smaller numbers come first", "20", false),
        ]
    }

    /// Returns what is wrong with an input.
    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == name).map(|error| error.message.as_str())
    }
}
