//! What a reader may see of who holds a GPU. That one is taken is everybody's to know; by whom,
//! operators', the managers' of a group that the holder is in, and one's own.

use std::collections::HashSet;

use crate::{
    auth::Principal,
    db::groups::{Audience, GroupFilter},
    model::{SessionId, UserId},
    web::{Portal, http::error::Result, sessions::cards::is_operator},
};

/// More groups than anybody manages.
const GROUPS: i64 = 200;

/// The live sessions of a group that are looked at.
const SESSIONS: i64 = 1000;

/// Decides whose holdings a user may see.
pub(super) struct Visibility {
    me: UserId,
    pub everybody: bool,
    /// The sessions of people whom they manage.
    managed: HashSet<SessionId>,
}

/// Describes a holder of GPUs as a reader may see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VisibleHolder {
    Own,
    /// With the way to their session.
    Other(String),
    /// By name alone.
    Managed(String),
    Somebody,
}

impl Visibility {
    pub async fn of(portal: &Portal, principal: &Principal) -> Result<Self> {
        // A token that lies on some dashboard tells nothing of others.
        let is_limited = principal.scopes().is_some_and(|scopes| !scopes.is_empty());
        let everybody = is_operator(principal) && !is_limited;
        let mut managed = HashSet::new();
        if !everybody && !is_limited && !principal.user.manages.is_empty() {
            let filter = GroupFilter { manager: Some(principal.id()), limit: GROUPS, ..GroupFilter::default() };
            for listed in portal.db.list_groups(&filter).await? {
                let sessions = portal.db.group_sessions(listed.group.id, Audience::Managers, SESSIONS).await?;
                managed.extend(sessions.into_iter().map(|session| session.id));
            }
        }
        Ok(Self { me: principal.id(), everybody, managed })
    }

    /// How the holder of a session shows.
    pub fn of_holder(&self, session: SessionId, owner: UserId, name: &str) -> VisibleHolder {
        if owner == self.me {
            VisibleHolder::Own
        } else if self.everybody {
            VisibleHolder::Other(name.to_owned())
        } else if self.managed.contains(&session) {
            VisibleHolder::Managed(name.to_owned())
        } else {
            VisibleHolder::Somebody
        }
    }
}

impl VisibleHolder {
    /// The holder's name, where it is to be seen; `own` is the reader's.
    pub fn name(&self, own: &str) -> Option<String> {
        match self {
            Self::Own => Some(own.to_owned()),
            Self::Other(name) | Self::Managed(name) => Some(name.clone()),
            Self::Somebody => None,
        }
    }

    /// Whether the reader may open the session.
    pub fn may_open(&self) -> bool {
        matches!(self, Self::Own | Self::Other(_))
    }
}
