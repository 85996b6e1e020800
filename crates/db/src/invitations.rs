//! Invitations into groups that were made here: one row for a group and a person, pending until the
//! person accepts or declines, somebody withdraws it, or it expires. A decline stays for a while, so
//! that managers do not invite the same person again and again. Operators and administrators are
//! never invited, and an invitation of somebody who became one counts for nothing.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{ChangedBy, append_audit},
    reading,
    settings::RAISE_GENERATION,
    transaction,
    types::parse,
};
use lyceum_model::{
    GroupId, Invitation, Timestamp, UserId,
    group::{INVITATION_LIFETIME, REINVITATION_DELAY},
};

/// Reports the outcome of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvitationOutcome {
    Made(Invitation),
    /// The person was invited before, and has not answered.
    Pending(Invitation),
    IsMember,
    /// The person declined, and is not invited again before this moment.
    Declined {
        until: Timestamp,
    },
    /// Nobody of this name can be invited: whether somebody is called so stays untold.
    Nobody,
}

#[derive(FromRow)]
struct Row {
    group_id: String,
    group_name: String,
    name: String,
    invited_by: String,
    created_at: i64,
    expires_at: i64,
}

impl Row {
    fn invitation(self) -> Result<Invitation> {
        Ok(Invitation {
            group: parse(&self.group_id, "group id")?,
            group_name: self.group_name,
            name: self.name,
            invited_by: self.invited_by,
            created_at: Timestamp(self.created_at),
            expires_at: Timestamp(self.expires_at),
        })
    }
}

/// Pending invitations at `$2`, of whomever they are.
macro_rules! pending {
    ($which:literal) => {
        concat!(
            "SELECT groups.id AS group_id, groups.name AS group_name, users.name AS name, invited_by,
                 group_invitations.created_at AS created_at, group_invitations.expires_at AS expires_at
             FROM group_invitations JOIN groups ON groups.id = group_id JOIN users ON users.id = user_id
             WHERE declined_at IS NULL AND group_invitations.expires_at > $2
                 AND role = 'user' AND COALESCE(directory_role, 'user') = 'user' AND ",
            $which
        )
    };
}

/// Of the group `$1`.
pub(super) const OF_GROUP: &str = pending!("group_id = $1 ORDER BY users.name");
/// Of the person `$1`.
pub(super) const OF_PERSON: &str = pending!("user_id = $1 ORDER BY groups.name, groups.id");
/// Of the person `$1` into the group `$3`.
const ONE: &str = pending!("user_id = $1 AND group_id = $3");

/// `$1` a name: whoever can be invited.
const INVITABLE: &str =
    "SELECT id FROM users WHERE name = $1 AND role = 'user' AND COALESCE(directory_role, 'user') = 'user'";

impl Db {
    /// Invites somebody into a group that was made here; `insists` also where they declined lately.
    pub async fn invite(
        &self,
        group: GroupId,
        name: &str,
        insists: bool,
        by: ChangedBy<'_>,
    ) -> Result<InvitationOutcome> {
        // PostgreSQL refuses such a text, and nobody is called so.
        if name.contains('\0') {
            return Ok(InvitationOutcome::Nobody);
        }
        let group = group.to_string();
        let invited = transaction!(self, tx => 'invite: {
            let user: Option<String> = query_scalar(INVITABLE).bind(name).fetch_optional(&mut *tx).await?;
            let called: Option<String> = query_scalar("SELECT name FROM groups WHERE id = $1 AND source = 'local'")
                .bind(&group).fetch_optional(&mut *tx).await?;
            let (Some(user), Some(called)) = (user, called) else { break 'invite InvitationOutcome::Nobody };
            let is_member: i64 = query_scalar("SELECT COUNT(*) FROM group_members WHERE group_id = $1 AND user_id = $2")
                .bind(&group).bind(&user).fetch_one(&mut *tx).await?;
            if is_member > 0 {
                break 'invite InvitationOutcome::IsMember;
            }
            // What is over, or overruled, makes room for a new one.
            let answered_before = if insists { i64::MAX } else { by.at.plus_seconds(-REINVITATION_DELAY).0 };
            query("DELETE FROM group_invitations WHERE group_id = $1 AND user_id = $2
                     AND ((declined_at IS NULL AND expires_at <= $3) OR declined_at <= $4)")
                .bind(&group).bind(&user).bind(by.at.0).bind(answered_before).execute(&mut *tx).await?;
            let declined_at: Option<(Option<i64>,)> = query_as(
                "SELECT declined_at FROM group_invitations WHERE group_id = $1 AND user_id = $2")
                .bind(&group).bind(&user).fetch_optional(&mut *tx).await?;
            if let Some((Some(declined_at),)) = declined_at {
                break 'invite InvitationOutcome::Declined { until: Timestamp(declined_at).plus_seconds(REINVITATION_DELAY) };
            }
            if declined_at.is_none() {
                query("INSERT INTO group_invitations (group_id, user_id, invited_by, created_at, expires_at)
                     VALUES ($1, $2, $3, $4, $5)")
                    .bind(&group).bind(&user).bind(by.actor).bind(by.at.0)
                    .bind(by.at.plus_seconds(INVITATION_LIFETIME).0).execute(&mut *tx).await?;
                append_audit(&mut *tx, &by.did("group.invite", &called, name)).await?;
            }
            let row: Row = query_as(ONE).bind(&user).bind(by.at.0).bind(&group).fetch_one(&mut *tx).await?;
            let invitation = row.invitation()?;
            if declined_at.is_none() { InvitationOutcome::Made(invitation) } else { InvitationOutcome::Pending(invitation) }
        });
        Ok(invited)
    }

    /// Who is invited into a group and has not answered, by name.
    pub async fn invitations_into(&self, group: GroupId, at: Timestamp) -> Result<Vec<Invitation>> {
        let group = group.to_string();
        let rows: Vec<Row> = reading!(self, pool => query_as(OF_GROUP).bind(&group).bind(at.0).fetch_all(pool).await)?;
        rows.into_iter().map(Row::invitation).collect()
    }

    /// What somebody is invited into and has not answered, by the group's name.
    pub async fn invitations_of(&self, user: UserId, at: Timestamp) -> Result<Vec<Invitation>> {
        let user = user.to_string();
        let rows: Vec<Row> = reading!(self, pool => query_as(OF_PERSON).bind(&user).bind(at.0).fetch_all(pool).await)?;
        rows.into_iter().map(Row::invitation).collect()
    }

    /// Accepts or declines; false where nothing is pending any more, and nothing is done then.
    pub async fn answer_invitation(
        &self,
        group: GroupId,
        user: UserId,
        accepts: bool,
        by: ChangedBy<'_>,
    ) -> Result<bool> {
        let (group, user) = (group.to_string(), user.to_string());
        let done = transaction!(self, tx => {
            let row: Option<Row> =
                query_as(ONE).bind(&user).bind(by.at.0).bind(&group).fetch_optional(&mut *tx).await?;
            let Some(invitation) = row else { return Ok(false) };
            let action = if accepts {
                query("DELETE FROM group_invitations WHERE group_id = $1 AND user_id = $2")
                    .bind(&group).bind(&user).execute(&mut *tx).await?;
                query("INSERT INTO group_members (group_id, user_id) VALUES ($1, $2)
                     ON CONFLICT (group_id, user_id) DO NOTHING")
                    .bind(&group).bind(&user).execute(&mut *tx).await?;
                query(RAISE_GENERATION).execute(&mut *tx).await?;
                "group.invitation_accept"
            } else {
                query("UPDATE group_invitations SET declined_at = $3 WHERE group_id = $1 AND user_id = $2")
                    .bind(&group).bind(&user).bind(by.at.0).execute(&mut *tx).await?;
                "group.invitation_decline"
            };
            let detail = format!("{}, invited by {}", invitation.name, invitation.invited_by);
            append_audit(&mut *tx, &by.did(action, &invitation.group_name, &detail)).await?;
            true
        });
        Ok(done)
    }

    /// Withdraws a pending invitation; `lifts` also what keeps somebody who declined from another one.
    /// Answers whether there was one.
    pub async fn withdraw_invitation(
        &self,
        group: GroupId,
        name: &str,
        lifts: bool,
        by: ChangedBy<'_>,
    ) -> Result<bool> {
        if name.contains('\0') {
            return Ok(false);
        }
        let group = group.to_string();
        let withdrawn = transaction!(self, tx => {
            let gone = query("DELETE FROM group_invitations WHERE group_id = $1
                     AND user_id IN (SELECT id FROM users WHERE name = $2) AND (declined_at IS NULL OR $3)")
                .bind(&group).bind(name).bind(lifts).execute(&mut *tx).await?.rows_affected();
            if gone > 0 {
                let called: String =
                    query_scalar("SELECT name FROM groups WHERE id = $1").bind(&group).fetch_one(&mut *tx).await?;
                append_audit(&mut *tx, &by.did("group.invitation_withdraw", &called, name)).await?;
            }
            gone
        });
        Ok(withdrawn > 0)
    }
}
