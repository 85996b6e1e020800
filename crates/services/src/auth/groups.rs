//! Who keeps which group: administrators make, rename and remove groups, name managers and put
//! people in; a manager invites people (`invitations`) into a group that was made here, takes them
//! out, and sees what its people run. What a directory says of its groups is changed in the directory alone.

use super::{
    Access, Error, Principal, Result,
    people::{Key, administrator, giver_of_rights},
};
use lyceum_db::{self as db, groups::ListedGroup, idempotency::IdempotentRequest};
use lyceum_model::{Group, GroupId, GroupName, Role, User};

impl Access {
    /// The group of an id or a name, if this person may see it; `None` also where it is not theirs.
    pub async fn group_for(&self, reader: &Principal, id_or_name: &str) -> Result<Option<ListedGroup>> {
        let mut seen = Vec::new();
        for found in self.db.find_groups(id_or_name).await? {
            if reader.is_operator() || self.db.is_manager(found.group.id, reader.id()).await? {
                seen.push(found);
            }
        }
        single(seen)
    }

    /// Makes a group; asked twice with one key it is the same group.
    pub async fn make_group(&self, actor: &Principal, name: &str, key: Key<'_>) -> Result<GroupId> {
        administrator(actor)?;
        if let Some(id) = self.made_earlier(actor, key).await? {
            return id.parse().map_err(|_err| db::Error::Stored("group id").into());
        }
        let name = parsed(name)?;
        let once = key.map(|(key, request_hash)| IdempotentRequest { user: actor.id(), key, request_hash });
        match self.db.add_group(&name, once, self.by(actor)).await {
            Ok(id) => Ok(id),
            Err(db::Error::Unique) => match self.made_earlier(actor, key).await? {
                Some(id) => id.parse().map_err(|_err| db::Error::Stored("group id").into()),
                None => Err(taken(&name)),
            },
            Err(err) => Err(err.into()),
        }
    }

    pub async fn rename_group(&self, actor: &Principal, group: &Group, name: &str) -> Result<()> {
        administrator(actor)?;
        made_here(group)?;
        let name = parsed(name)?;
        if name.as_str() == group.name {
            return Ok(());
        }
        match self.db.rename_group(group.id, &name, self.by(actor)).await {
            Ok(_) => {}
            Err(db::Error::Unique) => return Err(taken(&name)),
            Err(err) => return Err(err.into()),
        }
        self.poll().await?;
        Ok(())
    }

    /// Removes a group that was made here, or one that its directory no longer has.
    pub async fn remove_group(&self, actor: &Principal, group: &Group) -> Result<()> {
        administrator(actor)?;
        if group.absent_since.is_none() {
            made_here(group)?;
        }
        self.db.remove_group(group.id, self.by(actor)).await?;
        self.poll().await?;
        Ok(())
    }

    /// Puts somebody into a group that was made here, without asking them: administrators alone do this.
    pub async fn add_member(&self, actor: &Principal, group: &Group, user: &User) -> Result<()> {
        self.may_add_members(actor)?;
        made_here(group)?;
        if self.db.set_member(group.id, user.id, true, self.by(actor)).await? {
            self.poll().await?;
        }
        Ok(())
    }

    /// Whether somebody may put people into groups; asked before it is looked who they are.
    pub fn may_add_members(&self, actor: &Principal) -> Result<()> {
        if actor.is_admin() {
            return Ok(());
        }
        Err(Error::NotAllowed(
            "only administrators can add members directly; managers send invitations, and users join by accepting them",
        ))
    }

    /// Takes somebody out of a group that was made here.
    pub async fn remove_member(&self, actor: &Principal, group: &Group, user: &User) -> Result<()> {
        self.keeps_members(actor, group).await?;
        made_here(group)?;
        if !actor.is_admin() && Role::Operator <= user.role && actor.id() != user.id {
            return Err(Error::NotAllowed("only administrators can remove operators and administrators from a group"));
        }
        if self.db.set_member(group.id, user.id, false, self.by(actor)).await? {
            self.poll().await?;
        }
        Ok(())
    }

    /// Makes somebody a manager of a group, or ends it. It is a right, so administrators alone do this.
    pub async fn set_manager(&self, actor: &Principal, group: &Group, user: &User, is: bool) -> Result<()> {
        giver_of_rights(actor)?;
        if self.db.set_manager(group.id, user.id, is, self.by(actor)).await? {
            self.poll().await?;
        }
        Ok(())
    }
}

/// Of those that were found by a name the only one, if any.
pub fn single(mut found: Vec<ListedGroup>) -> Result<Option<ListedGroup>> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        many => {
            let ids: Vec<String> = found.iter().map(|found| found.group.id.to_string()).collect();
            Err(Error::Conflict(format!("{many} groups have this name; use the id: {}", ids.join(", "))))
        }
    }
}

/// A directory's group is not for us to change.
pub fn made_here(group: &Group) -> Result<()> {
    if group.is_local() {
        return Ok(());
    }
    Err(Error::Conflict(format!("the group `{}` belongs to the directory; change it there", group.name)))
}

/// A new group's name.
pub fn parsed(name: &str) -> Result<GroupName> {
    GroupName::parse(name.trim()).map_err(|bad| Error::Field {
        field: "name",
        code: "invalid_value",
        message: bad.to_string(),
    })
}

/// Another group has the name.
pub fn taken(name: &GroupName) -> Error {
    Error::Field { field: "name", code: "taken", message: format!("there is already a group `{name}`") }
}
