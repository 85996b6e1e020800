//! Writes a site's state as the file that declares it, in a stable order: users and groups by name, profiles and
//! announcements in the order in which they were made. Applied to the same state, it changes nothing. What Unix accounts, passwords and
//! tokens there are is not part of it, nor what managers raised.

use std::collections::HashMap;

use serde_json::Value;

use super::declared::{Limits, Site, SiteAnnouncement, SiteGroup, SiteProfile, SiteQuotas, SiteTerms, SiteUser};
use lyceum_db::{
    profiles::ProfileRow,
    quotas::{Level, SetLimit},
    site::{SiteGroupState, SiteState},
};
use lyceum_model::{UserId, quota::Kind, size::exact_size, time::exact_duration, user::ExpiryChange};

/// The file that declares this state.
#[must_use]
pub fn export(state: &SiteState) -> Site {
    let names: HashMap<UserId, &str> = state.users.iter().map(|user| (user.id, user.name.as_str())).collect();
    let users = state.users.iter().map(|user| SiteUser {
        name: user.name.to_string(),
        source: (!user.is_local()).then(|| user.source.clone()),
        display_name: (user.is_kept_here() && !user.display_name.is_empty()).then(|| user.display_name.clone()),
        role: Some(user.given_role),
        disabled: Some(user.disabled),
        expires_at: user.expires_at.map_or(ExpiryChange::Keep, ExpiryChange::At),
        quota: limits(state.limits_at(Level::User(user.id)), Kind::Each),
    });
    let groups = state.groups.iter().filter_map(|group| exported(group, state, &names));
    let announcements = state.announcements.iter().map(|one| SiteAnnouncement {
        text: one.text.clone(),
        level: one.level,
        from: Some(one.window.from),
        to: one.window.to,
        on_login: one.on_login,
        groups: one.groups.clone(),
    });
    Site {
        complete: Vec::new(),
        quotas: SiteQuotas {
            default: limits(&state.default_limits, Kind::Each),
            cluster: limits(&state.cluster_limits, Kind::Total),
        },
        users: users.collect(),
        groups: groups.collect(),
        profiles: state.profiles.iter().map(profile).collect(),
        announcements: announcements.collect(),
    }
}

fn profile(row: &ProfileRow) -> SiteProfile {
    SiteProfile {
        name: row.name.clone(),
        title: Some(row.title.clone()),
        gpus: Some(row.resources.gpus),
        gpu_model: row.resources.gpu_model.clone(),
        cpus: Some(row.resources.cpus),
        memory: Some(exact_size(row.resources.memory_bytes)),
        duration: Some(exact_duration(row.duration_seconds)),
        groups: Some(row.groups.clone()),
        position: Some(row.position),
    }
}

/// A group, if there is anything to say of it: a directory's has its members from there.
fn exported(group: &SiteGroupState, state: &SiteState, names: &HashMap<UserId, &str>) -> Option<SiteGroup> {
    let is_local = group.group.is_local();
    let is_marked = group.chargeable || group.restrictive;
    let (each, total) = (limits(&group.limits, Kind::Each), limits(&group.limits, Kind::Total));
    if !is_local && group.managers.is_empty() && each.is_none() && total.is_none() && !is_marked {
        return None;
    }
    let sorted = |people: &std::collections::HashSet<UserId>| {
        let mut people: Vec<String> =
            people.iter().filter_map(|id| names.get(id)).map(|name| (*name).to_owned()).collect();
        people.sort();
        people
    };
    let is_ambiguous = state.groups.iter().filter(|other| other.group.name == group.group.name).count() > 1;
    Some(SiteGroup {
        name: if is_ambiguous { group.group.id.to_string() } else { group.group.name.clone() },
        source: (!is_local).then(|| group.group.source.clone()),
        members: is_local.then(|| sorted(&group.members)),
        managers: (is_local || !group.managers.is_empty()).then(|| sorted(&group.managers)),
        each,
        total,
        chargeable: (is_local || is_marked).then_some(group.chargeable),
        restrictive: (is_local || is_marked).then_some(group.restrictive),
    })
}

/// The limits of a kind; nothing where none is set.
fn limits(set: &[SetLimit], kind: Kind) -> Option<Limits> {
    let one = |limit: &SetLimit| {
        let terms = limit.terms.clone();
        let value = if terms.expires_at.is_none() && terms.note.is_none() {
            Value::from(terms.value)
        } else {
            let terms = SiteTerms { value: terms.value, expires_at: terms.expires_at, note: terms.note };
            serde_json::to_value(terms).unwrap_or_default()
        };
        (limit.field.name().into_owned(), value)
    };
    let limits: Limits = set.iter().filter(|limit| limit.kind == kind).map(one).collect();
    (!limits.is_empty()).then_some(limits)
}
