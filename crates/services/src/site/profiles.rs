//! What a declaration changes of the profiles: each is compared with the stored one of its name, and checked by the rules
//! of the single change. Those of the configuration file cannot be declared, because they are declared there.

use std::collections::HashSet;

use super::{
    declared::{Declared, Section, SiteProfile},
    plan::{Action, Plan},
};
use crate::sessions::profiles::{Error, MAX_POSITION, NewProfile, checked, told};
use lyceum_db::{profiles::ProfileRow, site::Step};
use lyceum_model::{
    FieldError, Resources,
    size::{exact_size, parse_size},
    time::{exact_duration, parse_duration},
};

/// How long sessions of a new profile last where the file says nothing (seconds).
const USUAL_DURATION: i64 = 8 * 3600;

impl Plan<'_> {
    pub(super) fn profiles(&mut self, declared: &Declared) {
        let state = self.state;
        let configured = self.rules.configured;
        let positions = configured.iter().map(|one| one.position).chain(state.profiles.iter().map(|one| one.position));
        let mut last = positions.max().unwrap_or_default();
        let mut seen = HashSet::new();
        for (place, profile) in &declared.profiles {
            if !seen.insert(profile.name.as_str()) {
                self.fault(format!("{place}.name"), "duplicate", format!("‘{}’ is listed twice.", profile.name));
            } else if configured.iter().any(|one| one.name == profile.name) {
                let message = format!("‘{}’ is in the configuration file. Change it there.", profile.name);
                self.fault(format!("{place}.name"), "not_allowed", message);
            } else {
                let stored = state.profiles.iter().find(|one| one.name == profile.name);
                last = self.profile(place, profile, stored, last);
            }
        }
        if declared.complete.contains(&Section::Profiles) {
            for one in state.profiles.iter().filter(|one| !seen.contains(one.name.as_str())) {
                self.remove(Step::RemoveProfile(one.name.clone()), "profile", &one.name, None, "complete");
            }
        }
    }

    /// Plans one profile, and returns the largest position so far.
    fn profile(&mut self, place: &str, wanted: &SiteProfile, stored: Option<&ProfileRow>, last: i64) -> i64 {
        let before = self.faults.len();
        let usual = stored.map(|row| row.resources.clone());
        let is_new = usual.is_none();
        let usual = usual.unwrap_or_default();
        if is_new {
            for (field, is_missing) in [("cpus", wanted.cpus.is_none()), ("memory", wanted.memory.is_none())] {
                if is_missing {
                    self.fault(format!("{place}.{field}"), "required", "A new profile needs this.");
                }
            }
        }
        let memory_bytes = wanted.memory.as_ref().map_or(Some(usual.memory_bytes), |text| parse_size(text));
        let duration = stored.map_or(USUAL_DURATION, |row| row.duration_seconds);
        let duration_seconds = wanted.duration.as_ref().map_or(Some(duration), |text| parse_duration(text));
        if memory_bytes.is_none() {
            self.fault(format!("{place}.memory"), "invalid_value", "must be a size such as 48GiB");
        }
        if duration_seconds.is_none() {
            self.fault(format!("{place}.duration"), "invalid_value", "must be a time such as 8h");
        }
        let (Some(memory_bytes), Some(duration_seconds)) = (memory_bytes, duration_seconds) else { return last };
        let gpus = wanted.gpus.unwrap_or(usual.gpus);
        let new = NewProfile {
            name: wanted.name.clone(),
            title: wanted.title.clone().or_else(|| stored.map(|row| row.title.clone())).unwrap_or_default(),
            resources: Resources {
                gpus,
                // The model of GPUs that are no longer asked for goes with them.
                gpu_model: wanted.gpu_model.clone().or(usual.gpu_model.filter(|_| gpus != 0)),
                cpus: wanted.cpus.unwrap_or(usual.cpus),
                memory_bytes,
            },
            duration_seconds,
            groups: wanted.groups.clone().or_else(|| stored.map(|row| row.groups.clone())).unwrap_or_default(),
            position: wanted.position.or(stored.map(|row| row.position)),
        };
        let row = match checked(new) {
            Ok(new) => {
                let by = stored.map_or(self.rules.actor.user.name.as_str(), |row| row.added_by.as_str());
                let at = stored.map_or(self.rules.now, |row| row.added_at);
                new.row(last.saturating_add(10).min(MAX_POSITION), by, at)
            }
            Err(Error::Invalid(faults)) => {
                self.faults.extend(faults.into_iter().map(|fault| placed(place, fault)));
                return last;
            }
            Err(error) => {
                self.fault(place.to_owned(), "invalid_value", error.to_string());
                return last;
            }
        };
        if before == self.faults.len() && stored != Some(&row) {
            let detail = told(&row);
            let action = if is_new { Action::Add } else { Action::Change };
            let shown = stored.map_or_else(|| detail.clone(), |stored| differences(stored, &row));
            self.add(action, "profile", &row.name, None, shown);
            let step = if is_new { Step::AddProfile } else { Step::ChangeProfile };
            self.step(step(row.clone(), detail), place);
        }
        last.max(row.position)
    }
}

/// The fault with the words of the file for its field.
fn placed(place: &str, fault: FieldError) -> FieldError {
    let field = match fault.field.as_str() {
        "resources.memory_bytes" => "memory",
        "duration_seconds" => "duration",
        field => field.strip_prefix("resources.").unwrap_or(field),
    };
    FieldError { field: format!("{place}.{field}"), ..fault }
}

/// What differs, such as `cpus=16, was 8; memory=96 GiB, was 48 GiB`.
fn differences(before: &ProfileRow, after: &ProfileRow) -> String {
    let words = |row: &ProfileRow| {
        let size = &row.resources;
        [
            ("title", row.title.clone()),
            ("gpus", size.gpus.to_string()),
            ("gpu_model", size.gpu_model.clone().unwrap_or_else(|| "any".to_owned())),
            ("cpus", size.cpus.to_string()),
            ("memory", exact_size(size.memory_bytes)),
            ("duration", exact_duration(row.duration_seconds)),
            ("groups", if row.groups.is_empty() { "all".to_owned() } else { row.groups.join(" ") }),
            ("position", row.position.to_string()),
        ]
    };
    let pairs = words(before).into_iter().zip(words(after)).filter(|(was, is)| was != is);
    pairs.map(|((field, was), (_, is))| format!("{field}={is}, was {was}")).collect::<Vec<_>>().join("; ")
}
