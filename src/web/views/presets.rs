//! Presets on the pages: the choices above and below the forms, the buttons of the home page, and the list of the
//! settings page.

/// A preset that the viewer can use.
#[derive(Clone, Debug)]
pub struct PresetRow {
    pub id: String,
    pub is_job: bool,
    pub name: String,
    /// The group that it is shared with, by name.
    pub group: Option<String>,
    /// Empty for the viewer's own.
    pub group_id: String,
    pub may_change: bool,
}

impl PresetRow {
    /// The form that it fills.
    pub fn href(&self) -> String {
        let form = if self.is_job { "jobs" } else { "sessions" };
        format!("/{form}/new?preset={}", self.id)
    }

    /// The group that it is shared with, or nothing.
    pub fn group_name(&self) -> &str {
        self.group.as_deref().unwrap_or_default()
    }

    /// Whether it belongs to a group that is not among these.
    pub fn is_elsewhere(&self, groups: &[(String, String)]) -> bool {
        !self.group_id.is_empty() && groups.iter().all(|(id, _)| *id != self.group_id)
    }
}

/// What a form shows of presets.
#[derive(Clone, Debug, Default)]
pub struct PresetForm {
    pub rows: Vec<PresetRow>,
    /// The id of the one that filled the form; empty without one.
    pub chosen: String,
    /// Groups that the viewer can share one with: id and name.
    pub groups: Vec<(String, String)>,
    /// What was typed as the name of a new one, kept after an error.
    pub name: String,
}

/// A session that the home page starts with one click.
#[derive(Clone, Debug)]
pub struct PresetStart {
    pub row: PresetRow,
    /// A double click starts one session.
    pub idempotency_key: String,
}

/// The presets of the settings page.
#[derive(Clone, Debug, Default)]
pub struct PresetList {
    pub rows: Vec<PresetRow>,
    /// Groups that the viewer can share one with: id and name.
    pub groups: Vec<(String, String)>,
}
