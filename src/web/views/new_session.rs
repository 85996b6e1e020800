//! `/sessions/new`: choose a program and a size, see at once whether it starts now, waits
//! or cannot be. The same struct draws the form again with its input and errors.

use askama::Template;
use serde::Deserialize;

use super::{Meter, PresetForm, SlurmFields};
use crate::{
    images::{Entry, State},
    model::{
        Resources, SlurmOptions,
        size::{GIB, MIB, human_size},
    },
    web::page::{Layout, filters},
};

/// The start form.
#[derive(Debug, Template)]
#[template(path = "sessions/new.html")]
pub struct NewSession {
    pub layout: Layout,
    pub apps: Vec<AppTile>,
    pub sizes: Vec<SizeTile>,
    /// Bounds of the custom size; `None` leaves that tile out.
    pub custom: Option<Sliders>,
    /// GPU models to choose from, as the inventory spells them; one or none asks nothing.
    pub gpu_models: Vec<String>,
    /// Groups that can be charged; one or none asks nothing.
    pub groups: Vec<String>,
    pub environments: Vec<EnvironmentChoice>,
    /// Container images; none asks nothing.
    pub images: Vec<ImageChoice>,
    /// Paths of environments of their own that somebody used before, the latest first.
    pub own_environments: Vec<String>,
    /// The site's modules: name, what to ask for, description. `None` where it has none.
    pub modules: Option<Vec<(String, String, String)>>,
    /// Offered durations in seconds: see [`NewSession::durations`].
    pub durations: Vec<i64>,
    pub meters: Vec<Meter>,
    pub slurm_fields: SlurmFields,
    /// The size that programs without one of their own start with: a profile's name, or `custom`.
    pub usual_size: String,
    /// What is filled in: defaults at first, and what was typed after an error.
    pub form: NewSessionForm,
    pub errors: Vec<FieldError>,
    /// What `admission` says of the form as it stands; the script refreshes it.
    pub verdict: Option<AdmissionPreview>,
    /// The session that this one repeats, by name.
    pub copy_of: Option<String>,
    pub presets: PresetForm,
    /// The portal's own address, for “Show as curl”.
    pub base_url: String,
}

/// Everything the form posts to `POST /sessions`, and keeps after an error. A size is either
/// a profile's name or `custom`, and then `gpus`, `cpus` and `memory` count.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NewSessionForm {
    pub csrf_token: String,
    /// One value a drawn form: a double click starts one session.
    pub idempotency_key: String,
    pub app: String,
    pub profile: String,
    pub gpus: String,
    pub gpu_model: String,
    pub cpus: String,
    /// A size as people write it: `4 GiB`.
    pub memory: String,
    pub name: String,
    pub environment: String,
    /// The path of an environment of their own; it wins.
    pub own_environment: String,
    /// The name of an image; empty for none.
    pub image: String,
    /// Seconds.
    pub duration: String,
    /// Names with blanks between them.
    pub modules: String,
    pub working_directory: String,
    pub log_directory: String,
    /// Which group is charged.
    pub group: String,
    /// Where on a Slurm cluster it runs.
    #[serde(skip)]
    pub slurm: SlurmOptions,
    /// Whether the browser goes to the app, where a page shows its start until it is ready.
    pub opens: bool,
}

/// A program to choose.
#[derive(Clone, Debug, Default)]
pub struct AppTile {
    /// As in `{"app": …}`.
    pub name: String,
    pub title: String,
    pub description: String,
    /// Whether it runs in an environment, so that one can be chosen.
    pub uses_environment: bool,
    /// Whether it wants a folder of logs, as `tensorboard` does.
    pub wants_log_directory: bool,
    /// Whether the site added it by configuration.
    pub by_site: bool,
    /// The small size that it starts with, where it has one.
    pub own_size: Option<Resources>,
}

impl AppTile {
    pub fn icon(&self) -> &'static str {
        super::card::icon(&self.name)
    }
}

/// A size to choose.
#[derive(Clone, Debug)]
pub struct SizeTile {
    /// The profile's name.
    pub name: String,
    pub title: String,
    pub resources: Resources,
    pub fit: Fit,
    /// “4 free now”, “waits: 0 of 4 GPUs are free”, “your limit is 1 GPU (default)”.
    pub note: String,
}

impl SizeTile {
    /// `8 cores · 48 GiB`, with the GPUs where the title does not begin with them.
    pub fn detail(&self) -> String {
        let mut rest = self.resources.clone();
        if self.title.starts_with(&format!("{} GPU", rest.gpus)) {
            rest.gpus = 0;
        }
        super::resources_line(&rest, &[])
    }
}

/// Whether a size could start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Now,
    Waits,
    /// Greyed, cannot be chosen, with the reason.
    Never,
}

/// The bounds of a custom size.
#[derive(Clone, Copy, Debug)]
pub struct Sliders {
    pub gpus: Slider,
    pub cpus: Slider,
    /// In bytes; steps of [`Sliders::memory_step`].
    pub memory: Slider,
}

/// What one slider may choose.
#[derive(Clone, Copy, Debug)]
pub struct Slider {
    pub least: i64,
    /// What is left now: as far as the slider goes.
    pub left: i64,
    /// The most that could ever be asked for: as far as the number beside it goes.
    pub most: i64,
}

impl Slider {
    /// What would wait is reached by typing, so that a slide never makes one wait by chance.
    pub fn end(&self) -> i64 {
        self.left.clamp(self.least, self.most.max(self.least))
    }
}

impl Sliders {
    /// 1 GiB, or 256 MiB where there is little.
    pub fn memory_step(&self) -> i64 {
        if self.memory.most < 16 * GIB { 256 * MIB } else { GIB }
    }
}

/// Software to choose.
#[derive(Clone, Debug)]
pub struct EnvironmentChoice {
    pub name: String,
    /// `Python 3.11 · Keras 3.15 · JAX`.
    pub title: String,
    pub ready: bool,
}

/// An image to choose.
#[derive(Clone, Debug)]
pub struct ImageChoice {
    pub name: String,
    /// `torch · PyTorch 26.10 · pulled at the first start`
    pub label: String,
    /// Whether it can be chosen.
    pub works: bool,
}

impl From<&Entry> for ImageChoice {
    fn from(entry: &Entry) -> Self {
        let note = match entry.state() {
            _ if entry.stored.is_some() => "",
            State::Missing => " · pulled at the first start",
            State::Failed => " · could not be pulled",
            State::Pulling | State::Unpacking | State::Ready => " · being pulled",
        };
        let title = if entry.title.is_empty() { entry.source.to_string() } else { entry.title.clone() };
        let works = entry.state() != State::Failed;
        Self { label: format!("{} · {title}{note}", entry.name), name: entry.name.clone(), works }
    }
}

/// What is wrong with one field (`name`, `memory`, `working_directory` …); an empty field
/// name is about the form as a whole.
#[derive(Clone, Debug)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

impl From<&crate::model::FieldError> for FieldError {
    fn from(error: &crate::model::FieldError) -> Self {
        Self { field: error.field.clone(), message: error.message.clone() }
    }
}

/// The live answer under the button.
#[derive(Clone, Debug)]
pub struct AdmissionPreview {
    pub fit: Fit,
    /// The reasons' hints, as one line.
    pub text: String,
}

impl AdmissionPreview {
    pub fn class(&self) -> &'static str {
        match self.fit {
            Fit::Now => "admit",
            Fit::Waits => "wait",
            Fit::Never => "refuse",
        }
    }

    pub fn headline(&self) -> &'static str {
        match self.fit {
            Fit::Now => "Starts now",
            Fit::Waits => "Will wait",
            Fit::Never => "Cannot start",
        }
    }
}

impl NewSession {
    /// Describes the size of the programs that have one of their own: `shares idle cores · 1 to 2 GiB · no GPU`.
    pub fn own_size(&self) -> Option<String> {
        let bytes = || self.apps.iter().filter_map(|app| app.own_size.as_ref()).map(|size| size.memory_bytes);
        let (least, most) = (bytes().min()?, bytes().max()?);
        let memory =
            if least == most { human_size(most) } else { format!("{} to {}", human_size(least), human_size(most)) };
        Some(format!("shares idle cores · {memory} · no GPU"))
    }

    /// What is wrong with a field, for the line beside it.
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// Returns whether the fields of Slurm are unfolded: something is chosen there, or wrong.
    pub fn shows_slurm(&self) -> bool {
        !self.form.slurm.is_empty() || self.slurm_fields.0.iter().any(|field| self.error(field.name).is_some())
    }

    /// Durations to offer: the usual ones below the longest, the longest, and the chosen one.
    #[must_use]
    pub fn durations(longest: i64, chosen: i64) -> Vec<i64> {
        let usual = [1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800, 604_800];
        let mut all: Vec<i64> = usual.into_iter().filter(|seconds| *seconds < longest).chain([longest]).collect();
        if chosen > 0 && chosen <= longest {
            all.push(chosen);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the id and the label of a field, for the link in the summary of what is wrong.
    pub(super) fn place(field: &str) -> (&str, &str) {
        let label = match field {
            "app" => "Program",
            "preset_name" => "Name of the preset",
            "preset_group" => "Share with",
            "profile" => "Size",
            "gpus" => "GPUs",
            "gpu_model" => "GPU model",
            "cpus" => "Cores",
            "memory" => "Memory",
            "name" => "Name",
            "environment" => "Environment",
            "own_environment" => "Your own environment",
            "image" => "Image",
            "group" => "Charged to",
            "duration" => "Time limit",
            "modules" => "Modules",
            "working_directory" => "Working directory",
            "log_directory" => "Log folder",
            other => SlurmFields::label(other).unwrap_or_default(),
        };
        (field, label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_hold_the_longest_and_the_chosen() {
        assert_eq!(NewSession::durations(28_800, 28_800), [1800, 3600, 7200, 14_400, 28_800]);
        assert_eq!(NewSession::durations(5400, 600), [600, 1800, 3600, 5400]);
        assert_eq!(NewSession::durations(3600, 999_999), [1800, 3600], "never longer than allowed");
    }

    #[test]
    fn sliders_never_turn_inside_out() {
        let end = |least, left, most| Slider { least, left, most }.end();
        assert_eq!(end(1, 3, 8), 3);
        assert_eq!(end(1, -2, 8), 1);
        assert_eq!(end(1, 99, 8), 8);
        assert_eq!(end(1, 0, 0), 1);
    }
}
