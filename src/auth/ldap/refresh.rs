//! Another look at everybody who is in: whoever the directory has removed, locked or put out
//! of the allowed groups loses logins, tokens and live sockets; new groups and roles take
//! hold. Groups for which something is set are asked about too: one that is no longer there
//! binds nobody. A directory that does not answer, or suddenly knows nobody, changes nothing.

use std::collections::HashSet;

use ldap3::Scope;

use super::{Error, Found, Ldap, Result, connection::Connection, entry, filter, groups};
use crate::{
    db::directory::{Known, WatchedGroup},
    model::UserId,
};

/// From so many people on, all of them gone at once is a fault of the directory.
const SUSPICIOUS: usize = 3;

impl Ldap {
    pub async fn refresh(&self) -> Result<()> {
        let people = self.db.people_in(super::SOURCE).await?;
        let watched = self.db.watched_groups(super::SOURCE).await?;
        if (people.is_empty() && watched.is_empty()) || !self.settings.can_search() {
            return Ok(());
        }
        let mut connection = self.connect().await?;
        let mut there = Vec::new();
        let mut gone: Vec<(UserId, String)> = Vec::new();
        for person in &people {
            match self.look_again(&mut connection, person).await? {
                Ok(found) => there.push(found),
                Err(because) => gone.push((person.id, because)),
            }
        }
        if there.is_empty() && SUSPICIOUS <= gone.len() {
            return Err(Error::Emptied(gone.len()));
        }
        for found in &there {
            self.admit(found).await?;
        }
        for (id, because) in gone {
            if self.db.leave(id, &because, self.clock.now()).await? {
                let name = people.iter().find(|person| person.id == id).map_or("", |person| person.name.as_str());
                tracing::warn!(user = name, because, "somebody lost access");
            }
        }
        let seen: HashSet<&str> =
            there.iter().flat_map(|one| &one.groups).map(|group| group.subject.as_str()).collect();
        self.look_at_groups(&mut connection, &watched, &seen).await
    }

    /// Which groups are no longer there, and which are again. Those of somebody who was just seen are.
    async fn look_at_groups(
        &self,
        connection: &mut Connection,
        watched: &[WatchedGroup],
        seen: &HashSet<&str>,
    ) -> Result<()> {
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for group in watched {
            let is_there = seen.contains(group.subject.as_str()) || connection.has(&group.subject).await?;
            if is_there { there.push(group) } else { gone.push(group) }
        }
        if there.is_empty() && SUSPICIOUS <= gone.len() && gone.iter().any(|group| !group.is_absent) {
            return Err(Error::NoGroups(gone.len()));
        }
        let now = self.clock.now();
        for group in there.iter().filter(|group| group.is_absent) {
            self.db.group_back(group.id, now).await?;
        }
        for group in gone {
            if self.db.group_gone(group.id, now).await? {
                tracing::warn!(group = group.subject, "the directory no longer has a group for which limits are set");
            }
        }
        Ok(())
    }

    /// What the directory says of somebody today; the inner `Err` says why they may not be in.
    async fn look_again(
        &self,
        connection: &mut Connection,
        person: &Known,
    ) -> Result<std::result::Result<Found, String>> {
        let Some((attribute, value)) = entry::id_of_subject(&person.subject) else {
            return Ok(Err(format!("{:?} is no id of a directory", person.subject)));
        };
        let filter = filter::person_of_id(&self.settings, attribute, &value);
        let entry = match self.read(connection, &self.settings.user_base, Scope::Subtree, &filter).await? {
            Ok(entry) => entry,
            Err(because) => return Ok(Err(because)),
        };
        if let Some(closed) = entry.closed {
            return Ok(Err(format!("{} is {closed}", entry.dn)));
        }
        let groups = groups::of_person(connection, &self.settings, &entry).await?;
        Ok(self.judge(entry, groups))
    }
}
