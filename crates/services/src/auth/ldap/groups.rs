//! Somebody's groups: those that list them, those that their entry names, and the groups of
//! these groups, loops and all. What follows from them is decided by `auth::rules`.

use std::collections::BTreeMap;

use ldap3::Scope;

use super::{
    Error, Result,
    connection::Connection,
    entry::Entry,
    filter,
    settings::{Nested, Settings},
};
use lyceum_db::directory::Group;

/// Steps from group to group, and groups in all: beyond, a directory is confused.
const MAX_DEPTH: usize = 16;
const MAX_GROUPS: usize = 5000;
/// Groups in one question.
const BATCH_SIZE: usize = 50;

/// All groups of somebody.
pub async fn of_person(connection: &mut Connection, settings: &Settings, person: &Entry) -> Result<Vec<Group>> {
    let mut found = Found::new();
    let mut asking = GroupQueries { connection, settings, dn: &person.dn };
    for dn in &person.member_of {
        if let Some(name) = filter::first_value(dn) {
            found.insert(filter::normalise(dn), (dn.clone(), name));
        }
    }
    if !settings.group_base.is_empty() {
        let first = filter::groups_of_person(settings, &person.dn, person.name.as_str(), person.gid_number.as_deref());
        asking.add(&first, &mut found).await?;
        if settings.nested == Nested::Walk {
            asking.walk_up(&mut found).await?;
        }
    }
    Ok(found.into_iter().map(|(subject, (_, name))| Group { subject, name }).collect())
}

/// Normalised DN → the DN as the directory writes it, and the group's name.
type Found = BTreeMap<String, (String, String)>;

/// Questions about the groups of one person.
struct GroupQueries<'a> {
    connection: &'a mut Connection,
    settings: &'a Settings,
    dn: &'a str,
}

impl GroupQueries<'_> {
    async fn walk_up(&mut self, found: &mut Found) -> Result<()> {
        let mut fresh: Vec<String> = found.values().map(|(dn, _)| dn.clone()).collect();
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for some in fresh.chunks(BATCH_SIZE) {
                let parents = filter::groups_of_groups(self.settings, some.iter().map(String::as_str));
                next.extend(self.add(&parents, found).await?);
            }
            if next.is_empty() {
                break;
            }
            fresh = next;
        }
        Ok(())
    }

    /// Adds what a filter finds; answers with the DNs that were not known. Where the directory
    /// gives no more in one answer, it is asked for the rest: for what has none of the names that
    /// were given, and then for what else has one of them.
    async fn add(&mut self, filter: &str, found: &mut Found) -> Result<Vec<String>> {
        let (mut fresh, mut names) = (Vec::new(), Vec::new());
        let mut is_complete = self.some(filter, found, &mut fresh, &mut names).await?;
        if is_complete {
            return Ok(fresh);
        }
        let in_one_answer = names.len();
        while !is_complete {
            let known = names.len();
            let rest = filter::by_names(filter, &self.settings.group_name_attribute, &names, false);
            is_complete = self.some(&rest, found, &mut fresh, &mut names).await?;
            if !is_complete && names.len() == known {
                return Err(self.too_many(found));
            }
        }
        for some in names.clone().chunks((in_one_answer / 2).clamp(1, BATCH_SIZE)) {
            let namesakes = filter::by_names(filter, &self.settings.group_name_attribute, some, true);
            if !self.some(&namesakes, found, &mut fresh, &mut names).await? {
                return Err(self.too_many(found));
            }
        }
        Ok(fresh)
    }

    /// One answer; whether it is all that there is.
    async fn some(
        &mut self,
        filter: &str,
        found: &mut Found,
        fresh: &mut Vec<String>,
        names: &mut Vec<String>,
    ) -> Result<bool> {
        let attribute = self.settings.group_name_attribute.as_str();
        let answer = self.connection.search(&self.settings.group_base, Scope::Subtree, filter, &[attribute]).await?;
        for entry in answer.entries {
            let values =
                entry.attrs.iter().find(|(name, _)| name.eq_ignore_ascii_case(attribute)).map(|(_, values)| values);
            let own = values.and_then(|values| values.first().cloned());
            names.extend(own.clone());
            let Some(name) = own.or_else(|| filter::first_value(&entry.dn)) else { continue };
            let before = found.insert(filter::normalise(&entry.dn), (entry.dn.clone(), name));
            if before.is_none() {
                fresh.push(entry.dn);
            }
        }
        if found.len() > MAX_GROUPS { Err(self.too_many(found)) } else { Ok(answer.is_complete) }
    }

    fn too_many(&self, found: &Found) -> Error {
        Error::ManyGroups(self.dn.to_owned(), found.len())
    }
}
