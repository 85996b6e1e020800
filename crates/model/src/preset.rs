//! Presets: requests that users save under a name, for themselves or for a group. What a request contains is not known
//! here; a preset stores it as text.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{GroupId, PresetId, Timestamp, UserId};

/// What a preset starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PresetKind {
    Session,
    Job,
}

impl PresetKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Job => "job",
        }
    }
}

/// The text does not name a kind of preset.
#[derive(Debug, thiserror::Error)]
#[error("the kind of a preset must be session or job")]
pub struct UnknownPresetKind;

impl FromStr for PresetKind {
    type Err = UnknownPresetKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Session, Self::Job].into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownPresetKind)
    }
}

/// Whose preset it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresetHolder {
    User(UserId),
    /// A group, with its name at the time of reading.
    Group(GroupId, String),
}

/// A stored preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    pub id: PresetId,
    pub holder: PresetHolder,
    pub kind: PresetKind,
    pub name: String,
    /// JSON: the request, as the API accepts it.
    pub request: String,
    /// The name of the user who saved it.
    pub saved_by: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}
