//! Somebody's groups: those that list them, those that their entry names, and the groups of
//! these groups, loops and all. What follows from them is decided by `auth::rules`.

use std::collections::BTreeMap;

use ldap3::Scope;

use super::{
    Result,
    connection::Connection,
    entry::Entry,
    filter,
    settings::{Nested, Settings},
};
use crate::db::directory::Group;

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
