//! In which groups' totals something counts. What is charged to a group counts there. In a group that
//! sets totals and is not chargeable, everything counts that its members hold, whatever it is charged
//! to, and what was admitted while its owner was a member: so a total holds however people come and go.

use std::collections::BTreeMap;

use super::{Result, tx::Tx, types::parse};
use lyceum_model::{GroupId, SessionId, UserId};

/// The groups `g` in whose totals members count.
macro_rules! counts_members {
    () => {
        "NOT g.chargeable AND g.absent_since IS NULL
             AND g.id IN (SELECT scope_id FROM quota_limits WHERE scope = 'group' AND kind = 'total')"
    };
}

/// Who counts in which of these groups: `$1`, and those who hold something or wait.
pub(super) const MEMBERS: &str = concat!(
    "SELECT m.user_id, m.group_id FROM groups g JOIN group_members m ON m.group_id = g.id WHERE ",
    counts_members!(),
    " AND (m.user_id = $1 OR m.user_id IN (SELECT owner FROM sessions WHERE state <> 'ended')
         OR m.user_id IN (SELECT owner FROM intervals WHERE session_id IS NULL AND ended_at IS NULL))"
);

/// What was admitted while its owner was a member, and lives.
pub(super) const SESSIONS: &str = concat!(
    "SELECT c.session_id, c.group_id FROM sessions s JOIN counted_sessions c ON c.session_id = s.id
         JOIN groups g ON g.id = c.group_id WHERE s.state <> 'ended' AND ",
    counts_members!()
);

/// Notes where the session `$1` of `$2` counts, when it is admitted.
pub(super) const ADMIT: &str = concat!(
    "INSERT INTO counted_sessions (group_id, session_id)
         SELECT g.id, $1 FROM groups g JOIN group_members m ON m.group_id = g.id WHERE m.user_id = $2 AND ",
    counts_members!(),
    " ON CONFLICT (group_id, session_id) DO NOTHING"
);

/// A session `s` that counts in the group `$1`.
macro_rules! session_counts {
    () => {
        "(s.charged_group = $1 OR EXISTS (SELECT 1 FROM groups g WHERE g.id = $1 AND NOT g.chargeable
             AND (s.owner IN (SELECT user_id FROM group_members WHERE group_id = $1)
                 OR s.id IN (SELECT session_id FROM counted_sessions WHERE group_id = $1))))"
    };
}
pub(super) use session_counts;

/// In which groups people and workloads count that is not charged to them.
#[derive(Clone, Debug, Default, Hash)]
pub struct CountedGroups {
    members: BTreeMap<UserId, Vec<GroupId>>,
    sessions: BTreeMap<SessionId, Vec<GroupId>>,
}

impl CountedGroups {
    pub(super) fn of(members: &[(String, String)], sessions: &[(String, String)]) -> Result<Self> {
        let mut together = Self::default();
        for (user, group) in members {
            let groups = together.members.entry(parse(user, "user id")?).or_default();
            groups.push(parse(group, "group id")?);
        }
        for (session, group) in sessions {
            let groups = together.sessions.entry(parse(session, "session id")?).or_default();
            groups.push(parse(group, "group id")?);
        }
        Ok(together)
    }

    /// Whether all counts in this group that somebody holds.
    #[must_use]
    pub fn has_member(&self, group: GroupId, user: UserId) -> bool {
        self.members_groups(user).contains(&group)
    }

    /// The groups in which all counts that somebody holds.
    #[must_use]
    pub fn members_groups(&self, user: UserId) -> &[GroupId] {
        self.members.get(&user).map_or(&[], Vec::as_slice)
    }

    /// The groups in which something counts: of this owner, charged to this group, and a session that is
    /// admitted already, if it is one.
    #[must_use]
    pub fn groups(&self, owner: UserId, charged: Option<GroupId>, session: Option<SessionId>) -> Vec<GroupId> {
        let admitted = session.and_then(|id| self.sessions.get(&id)).map_or(&[][..], Vec::as_slice);
        let all = charged.iter().chain(self.members_groups(owner)).chain(admitted);
        let mut groups: Vec<GroupId> = all.copied().collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// Reads the groups for decisions about an owner (an id; empty for none).
pub(super) async fn together(tx: impl Into<Tx<'_>>, owner: &str) -> Result<CountedGroups> {
    let mut tx = tx.into();
    let members: Vec<(String, String)> = tx.query(MEMBERS).bind(owner).all().await?;
    let sessions: Vec<(String, String)> = tx.query(SESSIONS).all().await?;
    CountedGroups::of(&members, &sessions)
}
