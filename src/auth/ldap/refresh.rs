//! Another look at everybody who is in: whoever the directory has removed, locked or put out
//! of the allowed groups loses logins, tokens and live sockets; new groups and roles take
//! hold. A directory that does not answer, or suddenly knows nobody, changes nothing.

use ldap3::Scope;

use super::{Error, Found, Ldap, Result, connection::Connection, entry, filter, groups};
use crate::{db::directory::Known, model::UserId};

/// From so many people on, all of them gone at once is a fault of the directory.
const SUSPICIOUS: usize = 3;

impl Ldap {
    pub async fn refresh(&self) -> Result<()> {
        let people = self.db.people_in(super::SOURCE).await?;
        if people.is_empty() || !self.settings.can_search() {
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
