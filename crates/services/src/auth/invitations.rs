//! Invitations into groups that were made here: managers and administrators invite and withdraw, the
//! invited person accepts or declines, and whoever is in such a group leaves it. A manager has no
//! power over anybody who has not agreed, and none over operators and administrators.

use super::{Access, Error, Principal, Result, groups::made_here};
use lyceum_db::invitations::InvitationOutcome;
use lyceum_model::{Group, GroupId, Invitation};

/// The same where nobody is called so and where somebody cannot be invited: a manager learns from it
/// no more than which names can be invited.
const NOT_INVITABLE: &str = "there is no user with this name who can be invited";

/// What inviting came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InviteOutcome {
    /// There is a new invitation.
    Invited(Invitation),
    /// The one from before is still pending.
    Again(Invitation),
}

impl Access {
    /// Invites somebody into a group. An administrator also invites who declined lately.
    pub async fn invite(&self, actor: &Principal, group: &Group, name: &str) -> Result<InviteOutcome> {
        self.keeps_members(actor, group).await?;
        made_here(group)?;
        let fault = |code, message: String| Err(Error::Field { field: "name", code, message });
        match self.db.invite(group.id, name.trim(), actor.is_admin(), self.by(actor)).await? {
            InvitationOutcome::Made(invitation) => Ok(InviteOutcome::Invited(invitation)),
            InvitationOutcome::Pending(invitation) => Ok(InviteOutcome::Again(invitation)),
            InvitationOutcome::IsMember => {
                Err(Error::Conflict(format!("`{}` is already a member of the group", name.trim())))
            }
            InvitationOutcome::Declined { until } => Err(Error::Conflict(format!(
                "the user declined this invitation; a manager can invite them again from {until}"
            ))),
            InvitationOutcome::Nobody if actor.is_admin() => fault(
                "unknown_user",
                format!("{NOT_INVITABLE}; administrators add operators and administrators directly"),
            ),
            InvitationOutcome::Nobody => fault("unknown_user", NOT_INVITABLE.to_owned()),
        }
    }

    /// Withdraws an invitation; fine where there is none. An administrator also lifts what a decline
    /// keeps managers from.
    pub async fn withdraw_invitation(&self, actor: &Principal, group: &Group, name: &str) -> Result<()> {
        self.keeps_members(actor, group).await?;
        self.db.withdraw_invitation(group.id, name, actor.is_admin(), self.by(actor)).await?;
        Ok(())
    }

    /// Who is invited into a group and has not answered.
    pub async fn invitations_into(&self, group: GroupId) -> Result<Vec<Invitation>> {
        Ok(self.db.invitations_into(group, self.clock.now()).await?)
    }

    /// What somebody is invited into and has not answered.
    pub async fn invitations_of(&self, person: &Principal) -> Result<Vec<Invitation>> {
        // Nobody invites them, and an invitation from before they became it counts for nothing.
        if person.is_operator() {
            return Ok(Vec::new());
        }
        Ok(self.db.invitations_of(person.id(), self.clock.now()).await?)
    }

    /// Accepts or declines an invitation into the group of an id or a name; false where none is pending.
    pub async fn answer_invitation(&self, person: &Principal, id_or_name: &str, accepts: bool) -> Result<bool> {
        let mut pending = self.invitations_of(person).await?;
        pending.retain(|one| one.group_name == id_or_name || one.group.to_string() == id_or_name);
        // What was made here has a name of its own.
        let Some(invitation) = pending.pop() else { return Ok(false) };
        let done = self.db.answer_invitation(invitation.group, person.id(), accepts, self.by(person)).await?;
        if done && accepts {
            self.poll().await?;
        }
        Ok(done)
    }

    /// Takes somebody out of a group by their own wish; false where they are in no such group.
    pub async fn leave_group(&self, person: &Principal, id_or_name: &str) -> Result<bool> {
        let belongings = self.db.belongings(person.id()).await?;
        let is_it = |group: &Group| group.name == id_or_name || group.id.to_string() == id_or_name;
        let mut theirs: Vec<Group> =
            belongings.into_iter().filter(|one| one.is_member && is_it(&one.group)).map(|one| one.group).collect();
        // A directory may call several alike; of those that can be left there is one of a name.
        theirs.sort_by_key(Group::is_local);
        let Some(group) = theirs.pop() else { return Ok(false) };
        made_here(&group)?;
        if self.db.leave_group(group.id, person.id(), self.by(person)).await? {
            self.poll().await?;
        }
        Ok(true)
    }

    /// Whether somebody may invite people into a group and take them out.
    pub(super) async fn keeps_members(&self, actor: &Principal, group: &Group) -> Result<()> {
        if actor.is_admin() || self.db.is_manager(group.id, actor.id()).await? {
            return Ok(());
        }
        Err(Error::NotAllowed("only administrators and managers of the group can do this"))
    }
}
