//! `/admin/import`: users from a CSV file. What the file would change is shown before it is done, its faults by their
//! lines, and afterwards the links by which new users set their passwords.

use askama::Template;

use crate::{
    model::FieldError,
    site::{Action, PlannedChange},
    web::page::{Layout, filters},
};

/// So many changes are listed; the others are counted.
const MAX_CHANGES: usize = 200;

/// So many faults are listed.
const MAX_FAULTS: usize = 100;

#[derive(Debug, Template)]
#[template(path = "admin/import.html")]
pub struct ImportPage {
    pub layout: Layout,
    /// The table, as it was sent.
    pub table: String,
    /// What else accounts come from: new local ones need their source in the table.
    pub has_outside_accounts: bool,
    pub faults: Vec<ImportFault>,
    pub more_faults: usize,
    /// Columns that mean nothing here.
    pub ignored: Vec<String>,
    /// What the table changes, before it is imported.
    pub plan: Option<ImportPlan>,
    /// The plan that was shown before is no longer the right one.
    pub is_stale: bool,
    /// What was changed, and the links of the new users.
    pub done: Option<(ImportPlan, Vec<ImportLink>)>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportFault {
    pub line: String,
    pub column: String,
    pub message: String,
}

impl ImportFault {
    /// Of `lines.3.role`; a fault of no line has none.
    fn new(fault: &FieldError) -> Self {
        let mut parts = fault.field.strip_prefix("lines.").unwrap_or_default().split('.').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { line: next(), column: next(), message: fault.message.clone() }
    }

    /// Lists faults in the order of their lines, and counts those beyond the first hundred.
    #[must_use]
    pub fn list(faults: &[FieldError]) -> (Vec<Self>, usize) {
        // A member whose own line is wrong is unknown to the group too.
        let follows = |fault: &&FieldError| {
            fault.code == "unknown_user" && [".members.", ".managers."].iter().any(|part| fault.field.contains(part))
        };
        let mut listed: Vec<Self> = faults.iter().filter(|fault| !follows(fault)).map(Self::new).collect();
        listed.sort_by_key(|fault| fault.line.parse::<u64>().unwrap_or(0));
        let more = listed.len().saturating_sub(MAX_FAULTS);
        listed.truncate(MAX_FAULTS);
        (listed, more)
    }
}

/// The changes of a table.
#[derive(Clone, Debug, Default)]
pub struct ImportPlan {
    /// Identifies the plan.
    pub version: String,
    /// Such as “12 new users”.
    pub counts: Vec<String>,
    pub rows: Vec<ImportRow>,
    pub more: usize,
}

/// A change.
#[derive(Clone, Debug)]
pub struct ImportRow {
    pub what: &'static str,
    pub name: String,
    pub group: Option<String>,
    pub detail: String,
}

/// The link by which a new user sets the first password.
#[derive(Clone, Debug)]
pub struct ImportLink {
    pub name: String,
    pub url: String,
}

impl ImportPlan {
    #[must_use]
    pub fn new(version: String, changes: &[PlannedChange]) -> Self {
        let kinds = [
            ("new user", "new users", Action::Add, "user"),
            ("changed user", "changed users", Action::Change, "user"),
            ("new group", "new groups", Action::Add, "group"),
            ("new member of a group", "new members of groups", Action::Add, "member"),
            ("new manager of a group", "new managers of groups", Action::Add, "manager"),
        ];
        let count = |(one, many, action, kind): (&str, &str, Action, &str)| {
            let count = changes.iter().filter(|change| (change.action, change.kind) == (action, kind)).count();
            (0 < count).then(|| format!("{count} {}", if count == 1 { one } else { many }))
        };
        Self {
            version,
            counts: kinds.into_iter().filter_map(count).collect(),
            rows: changes.iter().take(MAX_CHANGES).map(ImportRow::new).collect(),
            more: changes.len().saturating_sub(MAX_CHANGES),
        }
    }
}

impl ImportRow {
    fn new(change: &PlannedChange) -> Self {
        let what = match (change.action, change.kind) {
            (Action::Add, "user") => "New user",
            (Action::Add, "group") => "New group",
            (Action::Add, "member") => "New member",
            (Action::Add, "manager") => "New manager",
            _ => "Change",
        };
        let PlannedChange { name, group, detail, .. } = change.clone();
        Self { what, name, group, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_listed_by_their_lines() {
        let fault = |field: &str, code: &str| FieldError::new(field, code, "odd");
        let all = [
            fault("lines.12.role", "invalid_value"),
            fault("lines.2.groups.members.1", "unknown_user"),
            fault("lines.3.groups.name", "invalid_value"),
            fault("lines.1", "required"),
        ];
        let (listed, more) = ImportFault::list(&all);
        let places: Vec<_> = listed.iter().map(|one| (one.line.as_str(), one.column.as_str())).collect();
        assert_eq!((places, more), (vec![("1", ""), ("3", "groups"), ("12", "role")], 0));
        let many: Vec<_> = (0..150).map(|line| fault(&format!("lines.{line}.name"), "required")).collect();
        let (listed, more) = ImportFault::list(&many);
        assert_eq!((listed.len(), more), (100, 50));
    }

    #[test]
    fn changes_are_counted_in_words() {
        let change = |action, kind, name: &str| PlannedChange {
            action,
            kind,
            name: name.to_owned(),
            group: None,
            detail: String::new(),
        };
        let mut changes = vec![change(Action::Add, "group", "vision"), change(Action::Change, "user", "ada")];
        changes.extend((0..300).map(|number| change(Action::Add, "user", &format!("u{number}"))));
        let plan = ImportPlan::new("v".to_owned(), &changes);
        assert_eq!(plan.counts, ["300 new users", "1 changed user", "1 new group"]);
        assert_eq!((plan.rows.len(), plan.more, plan.rows[0].what), (200, 102, "New group"));
    }
}
