//! What a declaration changes of a state: steps in an order in which each can be made, every change in words, and every
//! fault with its place in the file. Pure. What may be changed is asked of the functions that judge the single changes.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    NewInvitation,
    declared::{Declared, Limits, Section, SiteGroup, SiteUser},
    limits::{self, Difference},
};
use crate::{
    admission::slurm_limits::READ_ONLY,
    announcements::audit_detail,
    auth::{
        Principal, groups,
        people::{OWN_ACCOUNT, PersonChange, display_name, objection},
        welcome,
    },
    sessions::Profile,
};
use lyceum_db::{
    limits::{GroupFlags, LevelChange},
    quotas::{Level, SetLimit},
    site::{SiteGroupState, SiteState, Step},
};
use lyceum_model::{
    Announcement, AnnouncementId, FieldError, GroupId, Timestamp, User, UserId, Username,
    announcement::Draft,
    group::parse_names,
    quota::{Change, Kind},
    user::{ExpiryChange, canonical_name},
};

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SiteAction)]
pub enum Action {
    Add,
    Change,
    Remove,
}

/// One change of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SiteChange)]
pub struct PlannedChange {
    /// What is done: `add`, `change` or `remove`.
    pub action: Action,
    /// `user`, `group`, `member`, `manager`, `quota`, `profile` or `announcement`.
    pub kind: &'static str,
    /// The name of the user, group or profile, `default` or `cluster`, or the text of the announcement.
    pub name: String,
    /// The group, for its members, managers and quotas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The values, such as `gpus=2, was 1`. Empty for a member, a manager or a removal.
    pub detail: String,
}

/// What the plan is made by.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub actor: &'a Principal,
    pub now: Timestamp,
    pub prune: bool,
    /// Accounts also come from a directory or by a proxy's header.
    pub has_outside_accounts: bool,
    pub slurm_keeps_limits: bool,
    /// The profiles of the configuration file.
    pub configured: &'a [Profile],
}

/// The steps from a state to a declaration.
#[derive(Debug)]
pub struct Plan<'a> {
    pub steps: Vec<Step>,
    /// The place in the file of each step.
    pub places: Vec<String>,
    pub changes: Vec<PlannedChange>,
    /// What is stored beside what is declared, and stays because `prune` was not asked for.
    pub unlisted: Vec<PlannedChange>,
    pub invitations: Vec<NewInvitation>,
    pub faults: Vec<FieldError>,
    pub(super) rules: Rules<'a>,
    pub(super) state: &'a SiteState,
    /// Whoever has a name, once all steps are made.
    users: HashMap<String, UserId>,
    names: HashMap<UserId, String>,
    /// Changes that take something away, made after those that give.
    lowering: Vec<(Step, String)>,
}

impl<'a> Plan<'a> {
    #[must_use]
    pub fn new(declared: &Declared, state: &'a SiteState, rules: Rules<'a>) -> Self {
        let mut plan = Self {
            steps: Vec::new(),
            places: Vec::new(),
            changes: Vec::new(),
            unlisted: Vec::new(),
            invitations: Vec::new(),
            faults: Vec::new(),
            rules,
            state,
            users: state.users.iter().map(|user| (user.name.to_string(), user.id)).collect(),
            names: state.users.iter().map(|user| (user.id, user.name.to_string())).collect(),
            lowering: Vec::new(),
        };
        let quotas = &declared.quotas;
        if let Some(limits) = &quotas.default {
            let place = "quotas.default";
            plan.limits((Level::Default, "default"), &[(limits, Kind::Each, place)], GroupFlags::default(), place);
        }
        if let Some(limits) = &quotas.cluster {
            let place = "quotas.cluster";
            plan.limits((Level::Cluster, "cluster"), &[(limits, Kind::Total, place)], GroupFlags::default(), place);
        }
        plan.all_users(declared);
        plan.all_groups(declared);
        plan.profiles(declared);
        plan.announcements(declared);
        for (step, place) in std::mem::take(&mut plan.lowering) {
            plan.step(step, &place);
        }
        plan
    }

    pub(super) fn step(&mut self, step: Step, place: &str) {
        self.steps.push(step);
        self.places.push(place.to_owned());
    }

    pub(super) fn fault(&mut self, place: String, code: &str, message: impl Into<String>) {
        self.faults.push(FieldError::new(place, code, message));
    }

    pub(super) fn add(&mut self, action: Action, kind: &'static str, name: &str, group: Option<&str>, detail: String) {
        let group = group.map(str::to_owned);
        self.changes.push(PlannedChange { action, kind, name: name.to_owned(), group, detail });
    }

    /// Plans a removal of what is not listed; without `prune` it is only said.
    pub(super) fn remove(&mut self, step: Step, kind: &'static str, name: &str, group: Option<&str>, place: &str) {
        let group = group.map(str::to_owned);
        let removed =
            PlannedChange { action: Action::Remove, kind, name: name.to_owned(), group, detail: String::new() };
        if self.rules.prune {
            self.changes.push(removed);
            self.lowering.push((step, place.to_owned()));
        } else {
            self.unlisted.push(removed);
        }
    }

    fn all_users(&mut self, declared: &Declared) {
        let mut seen = HashSet::new();
        for (place, user) in &declared.users {
            let name = canonical_name(&user.name);
            if !seen.insert(name.clone()) {
                self.fault(format!("{place}.name"), "duplicate", format!("‘{name}’ is listed twice."));
                continue;
            }
            let state = self.state;
            match state.users.iter().find(|stored| stored.name.as_str() == name) {
                Some(stored) => self.known_user(place, user, stored),
                None => self.new_user(place, user),
            }
        }
        if !declared.complete.contains(&Section::Users) {
            return;
        }
        let state = self.state;
        for user in state.users.iter().filter(|user| user.is_kept_here() && !seen.contains(user.name.as_str())) {
            let name = user.name.as_str();
            if state.unused.contains(&user.id) && user.id != self.rules.actor.id() {
                self.remove(Step::RemoveUser(user.id), "user", name, None, "complete");
            } else if !user.disabled {
                self.disable_unlisted(user);
            }
        }
    }

    /// An account that was used cannot be removed.
    fn disable_unlisted(&mut self, user: &User) {
        let disables = PersonChange { disabled: Some(true), ..PersonChange::default() };
        if self.rules.prune && objection(self.rules.actor.id(), user, &disables).is_some() {
            self.fault("complete".to_owned(), "own_account", format!("{OWN_ACCOUNT}. List ‘{}’.", user.name));
            return;
        }
        let step = Step::ChangeUser {
            id: user.id,
            display_name: None,
            role: None,
            disabled: Some(true),
            expires_at: ExpiryChange::Keep,
        };
        let (action, name) = (Action::Change, user.name.to_string());
        let change = PlannedChange { action, kind: "user", name, group: None, detail: "disabled=yes, was no".into() };
        if self.rules.prune {
            self.changes.push(change);
            self.lowering.push((step, "complete".to_owned()));
        } else {
            self.unlisted.push(change);
        }
    }

    fn new_user(&mut self, place: &str, user: &SiteUser) {
        match user.source.as_deref() {
            Some(lyceum_model::user::LOCAL | lyceum_model::user::SERVICE) => {}
            None if !self.rules.has_outside_accounts => {}
            None => {
                let message = "There is no user with this name. Accounts also come from outside, when their owners \
                               first sign in. To create a local account, write `source: local`.";
                return self.fault(format!("{place}.name"), "unknown_user", message);
            }
            Some(_) => {
                let message = "There is no such user. Accounts of a directory are created when their owners first \
                               sign in, not by a file.";
                return self.fault(format!("{place}.name"), "unknown_user", message);
            }
        }
        let name = match Username::for_made_account(&user.name) {
            Ok(name) => name,
            Err(bad) => return self.fault(format!("{place}.name"), "invalid_value", bad.to_string()),
        };
        let Some(shown) = self.display_name(place, user.display_name.as_deref().unwrap_or_default()) else { return };
        let (id, role) = (UserId::new(), user.role.unwrap_or(lyceum_model::Role::User));
        let is_service = user.source.as_deref() == Some(lyceum_model::user::SERVICE);
        let invited = (!is_service).then(|| welcome::invitation(self.rules.now));
        self.users.insert(name.to_string(), id);
        self.names.insert(id, name.to_string());
        let mut told = if shown.is_empty() { String::new() } else { format!("; display_name={shown}") };
        if is_service {
            told += "; source=service";
        }
        let disabled = user.disabled == Some(true);
        let end = user.expires_at.upon(None);
        if let Some(fault) = user.expires_at.fault(None, self.rules.now) {
            self.fault(format!("{place}.expires_at"), "invalid_value", fault);
        }
        let expiry = end.map(|end| format!("; expires_at={end}")).unwrap_or_default();
        let detail = format!("role={}{told}{}{expiry}", role.as_str(), if disabled { "; disabled=yes" } else { "" });
        self.add(Action::Add, "user", name.as_str(), None, detail);
        let shown_name = name.to_string();
        if let Some((secret, invitation)) = invited.as_ref().filter(|_| !disabled) {
            let (name, expires_at) = (shown_name.clone(), invitation.expires_at);
            self.invitations.push(NewInvitation { name, secret: secret.clone(), expires_at });
        }
        let invitation = invited.map(|(_, invitation)| invitation);
        self.step(Step::AddUser { id, name, display_name: shown, role, invitation }, place);
        if disabled || end.is_some() {
            let (disabled, expires_at) = (disabled.then_some(true), user.expires_at);
            self.step(Step::ChangeUser { id, display_name: None, role: None, disabled, expires_at }, place);
        }
        self.user_limits(place, user, id, &shown_name);
    }

    fn known_user(&mut self, place: &str, user: &SiteUser, stored: &User) {
        if user.source.as_ref().is_some_and(|source| *source != stored.source) {
            let message = format!("‘{}’ is an account of the source `{}`.", stored.name, stored.source);
            return self.fault(format!("{place}.source"), "other_source", message);
        }
        let shown = user.display_name.as_deref().filter(|name| *name != stored.display_name);
        let shown = match shown.map(|name| self.display_name(place, name)) {
            Some(None) => return,
            Some(Some(name)) => Some(name).filter(|name| *name != stored.display_name),
            None => None,
        };
        let role = user.role.filter(|role| *role != stored.given_role);
        let disabled = user.disabled.filter(|disabled| *disabled != stored.disabled);
        let expiry = user.expires_at.upon(stored.expires_at);
        let expires_at = if expiry == stored.expires_at { ExpiryChange::Keep } else { user.expires_at };
        let none = PersonChange::default;
        // One by one, so that each objection names its field.
        let singles = [
            ("display_name", PersonChange { display_name: shown.clone(), ..none() }),
            ("role", PersonChange { role, ..none() }),
            ("disabled", PersonChange { disabled, ..none() }),
            ("expires_at", PersonChange { expires_at, ..none() }),
        ];
        let before = self.faults.len();
        for (field, change) in singles {
            if let Some(error) = objection(self.rules.actor.id(), stored, &change) {
                self.fault(format!("{place}.{field}"), "not_allowed", error.to_string());
            }
        }
        if let Some(fault) = expires_at.fault(stored.expires_at, self.rules.now) {
            self.fault(format!("{place}.expires_at"), "invalid_value", fault);
        }
        if disabled == Some(false)
            && let Some(end) = expiry.filter(|end| *end <= self.rules.now)
        {
            self.fault(format!("{place}.disabled"), "not_allowed", lyceum_db::Error::Expired(end).to_string());
        }
        let changes = shown.is_some() || role.is_some() || disabled.is_some() || !expires_at.is_keep();
        if before == self.faults.len() && changes {
            let moment = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| at.to_string());
            let words = [
                shown.as_ref().map(|name| format!("display_name={name}, was {}", stored.display_name)),
                role.map(|role| format!("role={}, was {}", role.as_str(), stored.given_role.as_str())),
                disabled.map(|disabled| format!("disabled={}, was {}", word(disabled), word(!disabled))),
                (!expires_at.is_keep())
                    .then(|| format!("expires_at={}, was {}", moment(expiry), moment(stored.expires_at))),
            ];
            let detail = words.into_iter().flatten().collect::<Vec<_>>().join("; ");
            self.add(Action::Change, "user", stored.name.as_str(), None, detail);
            let ends = disabled == Some(true) || matches!(expires_at, ExpiryChange::At(_));
            let lowers = ends || role.is_some_and(|role| role < stored.given_role);
            let step = Step::ChangeUser { id: stored.id, display_name: shown, role, disabled, expires_at };
            if lowers {
                self.lowering.push((step, place.to_owned()));
            } else {
                self.step(step, place);
            }
        }
        self.user_limits(place, user, stored.id, stored.name.as_str());
    }

    fn display_name(&mut self, place: &str, text: &str) -> Option<String> {
        match display_name(text) {
            Ok(name) => Some(name),
            Err(error) => {
                self.fault(format!("{place}.display_name"), "invalid_value", error.to_string());
                None
            }
        }
    }

    fn user_limits(&mut self, place: &str, user: &SiteUser, id: UserId, name: &str) {
        if let Some(limits) = &user.quota {
            let place = format!("{place}.quota");
            self.limits((Level::User(id), name), &[(limits, Kind::Each, &place)], GroupFlags::default(), &place);
        }
    }

    /// Plans what changes at a level, which is that of a user or a group of this name. `place` is that of the level.
    fn limits(
        &mut self,
        (level, name): (Level, &str),
        declared: &[(&Limits, Kind, &str)],
        marks: GroupFlags,
        place: &str,
    ) {
        let state = self.state;
        let mut set: Vec<SetLimit> = state.limits_at(level).to_vec();
        set.retain(|limit| !self.rules.slurm_keeps_limits || !limit.field.is_slurms());
        let mut changes = Vec::new();
        for (limits, kind, at) in declared {
            let Difference { changes: different, unlisted, faults } =
                limits::compare(limits, *kind, &set, at, self.rules.now);
            self.faults.extend(faults);
            if self.rules.slurm_keeps_limits && !different.is_empty() {
                self.fault((*at).to_owned(), "read_only", READ_ONLY);
            }
            changes.extend(different);
            if self.rules.prune {
                changes.extend(unlisted);
            } else {
                let told = unlisted.iter().map(|change| told(change, &set, level, name));
                self.unlisted.extend(told);
            }
        }
        let group = state.groups.iter().find(|group| Level::Group(group.group.id) == level);
        let flags = [
            ("chargeable", marks.chargeable, group.is_some_and(|group| group.chargeable)),
            ("restrictive", marks.restrictive, group.is_some_and(|group| group.restrictive)),
        ];
        let told: Vec<_> = changes.iter().map(|change| told(change, &set, level, name)).collect();
        self.changes.extend(told);
        let mut marks = GroupFlags::default();
        for (flag, wanted, was) in flags {
            let Some(is) = wanted.filter(|is| *is != was) else { continue };
            if flag == "chargeable" {
                marks.chargeable = Some(is);
            } else {
                marks.restrictive = Some(is);
            }
            self.add(Action::Change, "group", name, None, format!("{flag}={}, was {}", word(is), word(was)));
        }
        if !changes.is_empty() || marks != GroupFlags::default() {
            let change = LevelChange { level, changes, marks, seen: None };
            self.step(Step::Limits(change), place);
        }
    }

    fn all_groups(&mut self, declared: &Declared) {
        let mut seen: HashSet<GroupId> = HashSet::new();
        let mut names = HashSet::new();
        for (place, group) in &declared.groups {
            let state = self.state;
            let mut called = state
                .groups
                .iter()
                .filter(|stored| stored.group.name == group.name || stored.group.id.to_string() == group.name);
            let stored = called.next();
            if called.next().is_some() {
                let message = "Several groups of the directory have this name. Write the id of one.";
                self.fault(format!("{place}.name"), "ambiguous", message);
                continue;
            }
            if !names.insert(group.name.clone()) || stored.is_some_and(|stored| !seen.insert(stored.group.id)) {
                self.fault(format!("{place}.name"), "duplicate", format!("‘{}’ is listed twice.", group.name));
                continue;
            }
            let Some(id) = self.group_id(place, group, stored) else { continue };
            let name = stored.map_or(group.name.as_str(), |stored| stored.group.name.as_str());
            let marks = GroupFlags { chargeable: group.chargeable, restrictive: group.restrictive };
            let (each, total) = (format!("{place}.each"), format!("{place}.total"));
            let limits = [(group.each.as_ref(), Kind::Each, &each), (group.total.as_ref(), Kind::Total, &total)];
            let limits: Vec<(&Limits, Kind, &str)> =
                limits.into_iter().filter_map(|(limits, kind, place)| Some((limits?, kind, place.as_str()))).collect();
            self.limits((Level::Group(id), name), &limits, marks, place);
            self.people(place, group, stored, id, name);
        }
        if declared.complete.contains(&Section::Groups) {
            let state = self.state;
            for stored in state.groups.iter().filter(|stored| stored.group.is_local()) {
                if !seen.contains(&stored.group.id) {
                    let step = Step::RemoveGroup(stored.group.id);
                    self.remove(step, "group", &stored.group.name, None, "complete");
                }
            }
        }
    }

    /// The group's id: of a new one where there is none of this name.
    fn group_id(&mut self, place: &str, group: &SiteGroup, stored: Option<&SiteGroupState>) -> Option<GroupId> {
        if let Some(stored) = stored {
            if group.source.as_ref().is_some_and(|source| *source != stored.group.source) {
                let message = format!("‘{}’ is a group of the source `{}`.", group.name, stored.group.source);
                self.fault(format!("{place}.source"), "other_source", message);
                return None;
            }
            if let (Some(_), Err(error)) = (&group.members, groups::made_here(&stored.group)) {
                self.fault(format!("{place}.members"), "not_allowed", error.to_string());
            }
            return Some(stored.group.id);
        }
        if group.source.as_deref().is_some_and(|source| source != lyceum_model::user::LOCAL) {
            let message = "There is no such group. Groups of a directory appear when their members sign in.";
            self.fault(format!("{place}.name"), "unknown_group", message);
            return None;
        }
        match groups::parsed(&group.name) {
            Ok(name) => {
                let id = GroupId::new();
                self.add(Action::Add, "group", name.as_str(), None, String::new());
                self.step(Step::AddGroup(id, name), place);
                Some(id)
            }
            Err(error) => {
                self.fault(format!("{place}.name"), "invalid_value", error.to_string());
                None
            }
        }
    }

    fn people(&mut self, place: &str, group: &SiteGroup, stored: Option<&SiteGroupState>, id: GroupId, name: &str) {
        let nobody = HashSet::new();
        let is_local = stored.is_none_or(|stored| stored.group.is_local());
        if let Some(members) = group.members.as_ref().filter(|_| is_local) {
            let before = stored.map_or(&nobody, |stored| &stored.members);
            self.list("member", &format!("{place}.members"), members, before, (id, name));
        }
        if let Some(managers) = &group.managers {
            let before = stored.map_or(&nobody, |stored| &stored.managers);
            self.list("manager", &format!("{place}.managers"), managers, before, (id, name));
        }
    }

    fn list(
        &mut self,
        kind: &'static str,
        place: &str,
        names: &[String],
        before: &HashSet<UserId>,
        (group, group_name): (GroupId, &str),
    ) {
        let step = |user, is| match kind {
            "member" => Step::SetMember(group, user, is),
            _ => Step::SetManager(group, user, is),
        };
        let mut listed = HashSet::new();
        for (number, name) in names.iter().enumerate() {
            let place = format!("{place}.{number}");
            let Some(user) = self.users.get(&canonical_name(name)).copied() else {
                self.fault(place, "unknown_user", format!("There is no user ‘{name}’, here or in the file."));
                continue;
            };
            if !listed.insert(user) {
                self.fault(place, "duplicate", format!("‘{name}’ is listed twice."));
            } else if !before.contains(&user) {
                let name = self.names.get(&user).cloned().unwrap_or_default();
                self.add(Action::Add, kind, &name, Some(group_name), String::new());
                self.step(step(user, true), &place);
            }
        }
        let unlisted = before.iter().filter(|user| !listed.contains(*user));
        let mut unlisted: Vec<(String, UserId)> =
            unlisted.map(|user| (self.names.get(user).cloned().unwrap_or_default(), *user)).collect();
        unlisted.sort();
        for (name, user) in unlisted {
            self.remove(step(user, false), kind, &name, Some(group_name), place);
        }
    }

    fn announcements(&mut self, declared: &Declared) {
        let (now, by) = (self.rules.now, self.rules.actor.user.name.to_string());
        let state = self.state;
        let mut left: BTreeMap<usize, &Announcement> = state.announcements.iter().enumerate().collect();
        for (place, wanted) in &declared.announcements {
            if wanted.to.is_some_and(|to| to <= now) && wanted.from.is_none_or(|from| wanted.to > Some(from)) {
                continue;
            }
            let text = wanted.text.trim();
            let same = || left.iter().filter(|(_, stored)| stored.text == text);
            let exact = same().find(|(_, stored)| wanted.from.is_none_or(|from| from == stored.window.from));
            let found = exact.or_else(|| same().next()).map(|(number, _)| *number);
            let stored = found.and_then(|number| left.remove(&number));
            let draft = Draft {
                level: wanted.level,
                text: wanted.text.clone(),
                from: wanted.from.or(stored.map(|stored| stored.window.from)),
                to: wanted.to,
                on_login: wanted.on_login,
                groups: parse_names(&wanted.groups).unwrap_or_else(|_odd| wanted.groups.clone()),
            };
            if stored.is_some_and(|stored| Draft::from(stored) == Draft { text: text.to_owned(), ..draft.clone() }) {
                continue;
            }
            let id = stored.map_or_else(AnnouncementId::new, |stored| stored.id);
            match draft.check(id, &by, now) {
                Err(faults) => {
                    let placed = faults
                        .into_iter()
                        .map(|fault| FieldError { field: format!("{place}.{}", fault.field), ..fault });
                    self.faults.extend(placed);
                }
                Ok(after) => {
                    let action = if stored.is_some() { Action::Change } else { Action::Add };
                    self.add(action, "announcement", &after.text, None, terms(&after, wanted.from.is_some()));
                    let detail = audit_detail(&after);
                    let step = match stored {
                        Some(before) => Step::ChangeAnnouncement { before: before.clone(), after, detail },
                        None => Step::AddAnnouncement(after, detail),
                    };
                    self.step(step, place);
                }
            }
        }
        if declared.complete.contains(&Section::Announcements) {
            for stored in left.into_values() {
                self.remove(Step::RemoveAnnouncement(stored.clone()), "announcement", &stored.text, None, "complete");
            }
        }
    }
}

/// The terms of an announcement. When a new one begins is not said where that is now: it would differ between the
/// plan that is shown and the one that is made.
fn terms(one: &Announcement, says_from: bool) -> String {
    let from = if says_from { format!("; from={}", one.window.from) } else { String::new() };
    let to = one.window.to.map(|to| format!("; to={to}")).unwrap_or_default();
    let groups = if one.groups.is_empty() { String::new() } else { format!("; groups={}", one.groups.join(" ")) };
    format!("level={}{from}{to}; on_login={}{groups}", one.level, word(one.on_login))
}

/// A change of a limit, in words.
fn told(change: &Change, set: &[SetLimit], level: Level, name: &str) -> PlannedChange {
    let before = set.iter().find(|limit| (limit.kind, &limit.field) == (change.kind, &change.field));
    let action = match (before, &change.to) {
        (_, None) => Action::Remove,
        (None, Some(_)) => Action::Add,
        (Some(_), Some(_)) => Action::Change,
    };
    let was = before.map(|before| format!(", was {}", Change::value_in_words(Some(&before.terms)))).unwrap_or_default();
    let group = matches!(level, Level::Group(_)).then(|| name.to_owned());
    PlannedChange { action, kind: "quota", name: name.to_owned(), group, detail: format!("{change}{was}") }
}

fn word(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}
