//! Somebody's groups: those that list them, those that their entry names, and the groups of
//! these groups, loops and all. What follows from them (who may sign in, who is an
//! administrator) is decided here too, by pure functions.

use std::collections::BTreeMap;

use ldap3::Scope;

use super::{
    Result,
    connection::Connection,
    entry::Entry,
    filter,
    settings::{Nested, Settings},
};
use crate::{db::directory::Group, model::Role};

/// Steps from group to group, and groups in all: beyond, a directory is confused.
const DEEPEST: usize = 16;
const MOST: usize = 1000;
/// Groups in one question.
const AT_ONCE: usize = 50;

/// All groups of somebody.
pub async fn of_person(connection: &mut Connection, settings: &Settings, person: &Entry) -> Result<Vec<Group>> {
    let mut found = BTreeMap::new();
    for dn in &person.member_of {
        if let Some(name) = filter::first_value(dn) {
            found.insert(filter::normalise(dn), (dn.clone(), name));
        }
    }
    if !settings.group_base.is_empty() {
        let first = filter::groups_of_person(settings, &person.dn, person.name.as_str(), person.gid_number.as_deref());
        add(connection, settings, &first, &mut found).await?;
        if settings.nested == Nested::Walk {
            walk_up(connection, settings, &mut found).await?;
        }
    }
    Ok(found.into_iter().map(|(subject, (_, name))| Group { subject, name }).collect())
}

/// Normalised DN → the DN as the directory writes it, and the group's name.
type Found = BTreeMap<String, (String, String)>;

async fn walk_up(connection: &mut Connection, settings: &Settings, found: &mut Found) -> Result<()> {
    let mut fresh: Vec<String> = found.values().map(|(dn, _)| dn.clone()).collect();
    for _ in 0..DEEPEST {
        let mut next = Vec::new();
        for some in fresh.chunks(AT_ONCE) {
            let parents = filter::groups_of_groups(settings, some.iter().map(String::as_str));
            next.extend(add(connection, settings, &parents, found).await?);
        }
        if next.is_empty() || MOST <= found.len() {
            break;
        }
        fresh = next;
    }
    Ok(())
}

/// Adds what a filter finds; answers with the DNs that were not known.
async fn add(connection: &mut Connection, settings: &Settings, filter: &str, found: &mut Found) -> Result<Vec<String>> {
    let attribute = settings.group_name_attribute.as_str();
    let entries = connection.search(&settings.group_base, Scope::Subtree, filter, &[attribute]).await?;
    let mut fresh = Vec::new();
    for entry in entries {
        let values =
            entry.attrs.iter().find(|(name, _)| name.eq_ignore_ascii_case(attribute)).map(|(_, values)| values);
        let name = values.and_then(|values| values.first().cloned()).or_else(|| filter::first_value(&entry.dn));
        let Some(name) = name else { continue };
        let before = found.insert(filter::normalise(&entry.dn), (entry.dn.clone(), name));
        if before.is_none() {
            fresh.push(entry.dn);
        }
    }
    Ok(fresh)
}

/// What the groups make of somebody.
pub fn role(groups: &[Group], settings: &Settings) -> Role {
    if is_in(groups, &settings.admin_groups) {
        Role::Admin
    } else if is_in(groups, &settings.operator_groups) {
        Role::Operator
    } else {
        Role::User
    }
}

/// Whether members of these groups may sign in; `Err` says why not.
pub fn may_enter(groups: &[Group], settings: &Settings) -> Result<(), &'static str> {
    if is_in(groups, &settings.deny_groups) {
        return Err("is in one of auth.ldap.deny_groups");
    }
    if settings.allow_groups.iter().any(|group| group == "*") || is_in(groups, &settings.allow_groups) {
        return Ok(());
    }
    Err("is in none of auth.ldap.allow_groups")
}

fn is_in(groups: &[Group], wanted: &[String]) -> bool {
    wanted.iter().any(|wanted| {
        let dn = filter::normalise(wanted);
        groups.iter().any(|group| group.name.eq_ignore_ascii_case(wanted) || group.subject == dn)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_groups_make_of_somebody() {
        let group = |name: &str| Group { subject: format!("cn={name},ou=groups"), name: name.to_owned() };
        let groups = [group("admins"), group("lab")];
        let settings = |allow: &[&str], deny: &[&str], admins: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Settings {
                allow_groups: owned(allow),
                deny_groups: owned(deny),
                admin_groups: owned(admins),
                ..Settings::default()
            }
        };
        assert!(may_enter(&groups, &settings(&["*"], &[], &[])).is_ok());
        assert!(may_enter(&[], &settings(&["*"], &[], &[])).is_ok());
        assert!(may_enter(&groups, &settings(&["LAB"], &[], &[])).is_ok());
        assert!(may_enter(&groups, &settings(&["CN=Lab, OU=Groups"], &[], &[])).is_ok());
        assert!(may_enter(&groups, &settings(&["other"], &[], &[])).is_err());
        assert!(may_enter(&groups, &settings(&["*"], &["lab"], &[])).is_err());
        assert_eq!(role(&groups, &settings(&[], &[], &["Admins"])), Role::Admin);
        assert_eq!(role(&groups, &settings(&[], &[], &["*"])), Role::User, "nobody makes everybody an administrator");
    }
}
