//! Another look at everybody who is in. Whom the directory has removed, locked or put out
//! of the allowed groups loses logins, tokens and live sockets; new groups and roles take
//! hold. Groups for which something is set are asked about too: one that is no longer there
//! binds nobody. A directory that does not answer, or suddenly knows nobody, changes nothing; an
//! entry that cannot be read, or a question that fails, changes nothing for that one alone.

use std::collections::HashSet;

use ldap3::Scope;

use super::{DirectoryUser, Error, Ldap, Result, chain, connection::Connection, entry, filter, groups};
use lyceum_db::directory::{ArrivalOutcome, Known, WatchedGroup};
use lyceum_model::health::UnresolvedEntry;

/// From so many people on, all of them gone at once is a fault of the directory.
const SUSPICIOUS: usize = 3;
/// After so many questions in a row that nobody answered, nobody will.
const MAX_FAILURES: usize = 3;

/// How the directory sees somebody today.
enum DirectoryStatus {
    In(Box<DirectoryUser>),
    /// Why they may not be in.
    Out(String),
    /// Why that cannot be told.
    Unclear(String),
}

impl Ldap {
    pub async fn refresh(&self) -> Result<()> {
        let people = self.db.people_in(super::SOURCE).await?;
        let watched = self.db.watched_groups(super::SOURCE).await?;
        if (people.is_empty() && watched.is_empty()) || !self.settings.can_search() {
            self.unjudged.lock().clear();
            return Ok(());
        }
        let mut connection = self.connect().await?;
        let mut unjudged = Vec::new();
        let mut there = Vec::new();
        let mut gone: Vec<(&Known, String)> = Vec::new();
        let mut silences = 0;
        for person in &people {
            let standing = self.look_again(&mut connection, person).await;
            silences = if standing.as_ref().is_err_and(Error::is_outage) { silences + 1 } else { 0 };
            match standing {
                Ok(DirectoryStatus::In(found)) => there.push((person, found)),
                Ok(DirectoryStatus::Out(because)) => gone.push((person, because)),
                Ok(DirectoryStatus::Unclear(because)) => unjudged.push(skipped(&person.name, because)),
                Err(err) if silences == MAX_FAILURES || silences == people.len() => return Err(err),
                Err(err) => {
                    unjudged.push(skipped(&person.name, chain(&err)));
                    if silences != 0 {
                        connection = self.connect().await?;
                    }
                }
            }
        }
        if there.is_empty() && gone.len() >= SUSPICIOUS {
            return Err(Error::Emptied(gone.len()));
        }
        let seen: HashSet<String> =
            there.iter().flat_map(|(_, one)| &one.groups).map(|group| group.subject.clone()).collect();
        for (person, found) in &there {
            match self.admit(found).await {
                Ok(ArrivalOutcome::Known(_) | ArrivalOutcome::Disabled) => {}
                Ok(ArrivalOutcome::NameTaken) => {
                    let because = format!("the name {} belongs to another user of the portal", found.entry.name);
                    unjudged.push(skipped(&person.name, because));
                }
                Err(err) => unjudged.push(skipped(&person.name, chain(&err))),
            }
        }
        for (person, because) in gone {
            match self.db.leave(person.id, &because, self.clock.now()).await {
                Ok(true) => tracing::warn!(user = person.name, because, "user lost access"),
                Ok(false) => {}
                Err(err) => unjudged.push(skipped(&person.name, chain(&err))),
            }
        }
        let groups = self.look_at_groups(&mut connection, &watched, &seen, &mut unjudged).await;
        *self.unjudged.lock() = unjudged;
        groups
    }

    /// Which groups are no longer there, and which are again. Those of somebody who was just seen are.
    async fn look_at_groups(
        &self,
        connection: &mut Connection,
        watched: &[WatchedGroup],
        seen: &HashSet<String>,
        unjudged: &mut Vec<UnresolvedEntry>,
    ) -> Result<()> {
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for group in watched {
            let is_there = if seen.contains(&group.subject) { Ok(true) } else { connection.has(&group.subject).await };
            match is_there {
                Ok(true) => there.push(group),
                Ok(false) => gone.push(group),
                Err(err) if err.is_outage() => return Err(err),
                Err(err) => unjudged.push(skipped(&group.subject, chain(&err))),
            }
        }
        if there.is_empty() && gone.len() >= SUSPICIOUS && gone.iter().any(|group| !group.is_absent) {
            return Err(Error::NoGroups(gone.len()));
        }
        let now = self.clock.now();
        for group in there.iter().filter(|group| group.is_absent) {
            if let Err(err) = self.db.group_back(group.id, now).await {
                unjudged.push(skipped(&group.subject, chain(&err)));
            }
        }
        for group in gone {
            match self.db.group_gone(group.id, now).await {
                Ok(true) => {
                    tracing::warn!(group = group.subject, "directory no longer has a group with limits");
                }
                Ok(false) => {}
                Err(err) => unjudged.push(skipped(&group.subject, chain(&err))),
            }
        }
        Ok(())
    }

    /// What the directory says of somebody today.
    async fn look_again(&self, connection: &mut Connection, person: &Known) -> Result<DirectoryStatus> {
        let Some((attribute, value)) = entry::id_of_subject(&person.subject) else {
            return Ok(DirectoryStatus::Out(format!("{:?} is not a directory id", person.subject)));
        };
        let filter = filter::person_of_id(&self.settings, attribute, &value);
        let wanted = entry::attributes(&self.settings);
        let found = connection.search(&self.settings.user_base, Scope::Subtree, &filter, &wanted).await?.entries;
        let found = match found.as_slice() {
            [] => return Ok(DirectoryStatus::Out("the directory has no matching user".to_owned())),
            [one] => one,
            many => return Ok(DirectoryStatus::Unclear(super::several(many))),
        };
        let now = self.clock.now();
        if let Some(closed) = entry::closed(found, now) {
            return Ok(DirectoryStatus::Out(format!("{} is {closed}", found.dn)));
        }
        let entry = match entry::read(found, &self.settings, now) {
            Ok(entry) => entry,
            Err(because) => return Ok(DirectoryStatus::Unclear(because)),
        };
        let groups = groups::of_person(connection, &self.settings, &entry).await?;
        Ok(match self.judge(entry, groups) {
            Ok(found) => DirectoryStatus::In(Box::new(found)),
            Err(because) => DirectoryStatus::Out(because),
        })
    }
}

/// Somebody, or a group, that stays as it is; the log names them at each look.
fn skipped(name: &str, because: String) -> UnresolvedEntry {
    tracing::warn!(name, because, "directory refresh skipped an entry; it is unchanged");
    UnresolvedEntry { name: name.to_owned(), because }
}
