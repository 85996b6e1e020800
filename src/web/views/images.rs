//! `/images`: the container images, how far their pulls are, and what is inside.

use askama::Template;

use super::{FieldError, Moment};
use crate::{
    images::{Entry, State, Storage, Suggestion, Use},
    model::{Timestamp, User, size::human_size},
    web::page::{Layout, filters},
};

/// The list of images.
#[derive(Debug, Template)]
#[template(path = "images.html")]
pub struct ImagesPage {
    pub layout: Layout,
    /// What a form did.
    pub notice: Option<String>,
    pub rows: Vec<ImageRow>,
    pub may_add: bool,
    /// What an administrator can add by a click, without what was added.
    pub suggestions: Vec<&'static Suggestion>,
    /// What takes room; administrators only.
    pub storage: Option<StorageView>,
    /// What was typed into the form that makes room.
    pub unused_days: String,
    pub form: ImageForm,
    pub errors: Vec<FieldError>,
}

/// What was typed into the form that adds an image.
#[derive(Clone, Debug, Default)]
pub struct ImageForm {
    pub name: String,
    pub title: String,
    pub reference: String,
    /// Names with blanks or commas between them.
    pub groups: String,
    /// For the one who adds it alone.
    pub is_private: bool,
}

/// What takes room in the store of images.
#[derive(Clone, Debug)]
pub struct StorageView {
    /// `12 GiB of 200 GiB`
    pub total: String,
    pub rows: Vec<StorageRow>,
}

/// One thing that takes room.
#[derive(Clone, Debug)]
pub struct StorageRow {
    pub name: String,
    pub size: String,
    pub used: Moment,
    /// What needs it.
    pub need: &'static str,
}

impl StorageView {
    pub fn new(storage: &Storage, now: Timestamp) -> Self {
        let size = |bytes: u64| human_size(i64::try_from(bytes).unwrap_or(i64::MAX));
        let (parts, images): (Vec<_>, Vec<_>) =
            storage.items.iter().partition(|item| matches!(item.used_by, Use::Layer | Use::Partial));
        let mut rows: Vec<StorageRow> = images
            .iter()
            .map(|item| StorageRow {
                name: item.name.clone(),
                size: size(item.bytes),
                used: Moment::ago(item.used_at, now),
                need: match item.used_by {
                    Use::Workloads => "sessions or jobs",
                    Use::Catalogue => "the catalogue",
                    _ => "nothing: an earlier version",
                },
            })
            .collect();
        // Hundreds of layers say no more than their sum.
        if let Some(latest) = parts.iter().map(|item| item.used_at).max() {
            rows.push(StorageRow {
                name: match parts.len() {
                    1 => "1 downloaded layer".to_owned(),
                    count => format!("{count} downloaded layers"),
                },
                size: size(parts.iter().map(|item| item.bytes).sum()),
                used: Moment::ago(latest, now),
                need: "nothing, but makes the next pull faster",
            });
        }
        Self { total: format!("{} of {}", size(storage.bytes), size(storage.budget)), rows }
    }
}

/// One image.
#[derive(Clone, Debug)]
pub struct ImageRow {
    pub name: String,
    pub title: String,
    pub reference: String,
    /// Class and word of the badge.
    pub class: &'static str,
    pub word: &'static str,
    pub progress: Option<PullProgress>,
    /// Why the last pull failed.
    pub failure: Option<String>,
    /// The first digits of the digest, and all of it.
    pub digest: Option<(String, String)>,
    pub size: Option<String>,
    pub pulled: Option<Moment>,
    /// Who may use it: names, or nothing for everybody.
    pub groups: String,
    /// Who alone may use it: “you”, or a name.
    pub private_to: Option<String>,
    /// Whether the viewer may pull and remove it.
    pub may_change: bool,
    /// Whether it is in the configuration file.
    pub is_read_only: bool,
    /// What the image says about itself, without empty lines.
    pub inside: Vec<(&'static str, String)>,
}

/// How far a pull is.
#[derive(Clone, Debug)]
pub struct PullProgress {
    pub percent: Option<u64>,
    /// `1.2 GiB of 8 GiB`
    pub text: String,
}

impl ImageRow {
    pub fn new(entry: &Entry, viewer: &User, now: Timestamp) -> Self {
        let (class, word) = match entry.state() {
            State::Missing => ("ended", "Not pulled yet"),
            State::Pulling => ("starting", "Pulling"),
            State::Unpacking => ("starting", "Unpacking"),
            State::Ready => ("running", "Ready"),
            State::Failed => ("failed", "Failed"),
        };
        let size = |bytes: u64| human_size(i64::try_from(bytes).unwrap_or(i64::MAX));
        let progress = entry.amount().map(|amount| PullProgress {
            percent: amount.percent(),
            text: match amount.total {
                Some(total) => format!("{} of {}", size(amount.bytes), size(total)),
                None => "asking the registry".to_owned(),
            },
        });
        let stored = entry.stored.as_ref();
        let digest = stored.map(|image| image.digest.to_string());
        let config = stored.and_then(|image| image.config.clone()).unwrap_or_default();
        let contents = stored.and_then(|image| image.contents.clone()).unwrap_or_default();
        let packages = contents.packages.iter().map(|(name, version)| format!("{name} {version}"));
        let inside = [
            ("Python", contents.python.clone().unwrap_or_default()),
            ("Packages", packages.collect::<Vec<_>>().join(", ")),
            ("Requires", config.require_cuda.unwrap_or_default()),
            ("Platform", stored.map(|image| image.platform.to_string()).unwrap_or_default()),
            ("Entrypoint", config.entrypoint.join(" ")),
            ("Command", config.cmd.join(" ")),
            ("Working directory", config.working_dir),
            ("Variables", config.env.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")),
        ];
        Self {
            name: entry.name.clone(),
            title: entry.title.clone(),
            reference: entry.source.to_string(),
            class,
            word,
            progress,
            failure: entry.failure().map(str::to_owned),
            digest: digest.map(|whole| (whole.chars().skip(7).take(12).collect(), whole)),
            size: stored.map(|image| size(image.bytes)),
            pulled: entry.pulled_at.map(|at| Moment::ago(at, now)),
            groups: entry.groups.join(", "),
            private_to: entry.owner.map(|owner| {
                if owner == viewer.id { "you".to_owned() } else { entry.added_by.clone().unwrap_or_default() }
            }),
            may_change: entry.may_change(viewer),
            is_read_only: entry.added_by.is_none(),
            inside: inside.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// What is asked before it is removed.
    pub fn question(&self) -> String {
        format!("Remove the image ‘{}’ and what is stored of it? It can be added and pulled again.", self.name)
    }
}

impl ImagesPage {
    /// What a reference can be, for the line below the field.
    pub fn reference_hint(&self) -> &'static str {
        if self.layout.is_admin() {
            "registry, repository and tag, or file:// and a path on this machine"
        } else {
            "registry, repository and tag"
        }
    }

    /// What is wrong with a field, for the line beside it.
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }
}
