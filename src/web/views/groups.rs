//! `/admin/groups` and one group's page: its people, who manages it, and what they run. A
//! directory's group is shown as the directory has it; one that was made here has forms.

use askama::Template;

use super::{FieldError, Moment, StateBadge};
use crate::{
    model::{Invitation, Timestamp},
    web::page::{Layout, filters},
};

/// One page of the list of groups.
#[derive(Debug, Template)]
#[template(path = "admin/groups.html")]
pub struct GroupsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// What was wrong with a new group. Field: `name`.
    pub errors: Vec<FieldError>,
    pub find: String,
    pub rows: Vec<GroupRow>,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    /// Whether the reader makes groups.
    pub may_change: bool,
    /// What was typed for a new group, kept after an error.
    pub new_name: String,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct GroupRow {
    pub id: String,
    pub name: String,
    /// “local”, “directory”.
    pub source: &'static str,
    pub members: i64,
    pub managers: Vec<String>,
}

/// One group.
#[derive(Debug, Template)]
#[template(path = "admin/group.html")]
pub struct GroupPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// Why a form was refused, in a sentence.
    pub error: Option<String>,
    pub id: String,
    pub name: String,
    pub source: &'static str,
    /// The directory's own id of it.
    pub subject: Option<String>,
    /// Since when the directory no longer has it.
    pub gone: Option<Moment>,
    pub member_count: i64,
    pub members: Vec<MemberRow>,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    pub managers: Vec<String>,
    /// Who is invited and has not answered.
    pub invitations: Vec<InvitationRow>,
    /// An administrator: names managers, renames, removes.
    pub may_change: bool,
    /// Invites people and takes them out.
    pub may_change_members: bool,
    /// Whether people's own pages can be opened.
    pub sees_people: bool,
    /// What was typed into the form that was refused.
    pub typed: String,
    /// What they use together now: “3 sessions”, “4 GPUs”.
    pub uses: Vec<String>,
    /// Live sessions of its people, newest first.
    pub sessions: Vec<GroupSessionRow>,
}

/// Somebody in the group.
#[derive(Clone, Debug)]
pub struct MemberRow {
    pub name: String,
    pub display_name: String,
    pub state: StateBadge,
    pub seen: Option<Moment>,
    /// `None` where the reader does not see what they run.
    pub sessions: Option<i64>,
}

/// A pending invitation.
#[derive(Clone, Debug)]
pub struct InvitationRow {
    /// The id of the group.
    pub group: String,
    pub group_name: String,
    pub name: String,
    pub invited_by: String,
    pub invited: Moment,
    pub expires: Moment,
}

impl InvitationRow {
    pub fn new(invitation: Invitation, now: Timestamp) -> Self {
        Self {
            group: invitation.group.to_string(),
            group_name: invitation.group_name,
            name: invitation.name,
            invited_by: invitation.invited_by,
            invited: Moment::ago(invitation.created_at, now),
            expires: Moment::clock(invitation.expires_at, now),
        }
    }
}

/// What a member runs or waits for.
#[derive(Clone, Debug)]
pub struct GroupSessionRow {
    pub id: String,
    pub owner: String,
    pub app: String,
    pub class: &'static str,
    pub word: &'static str,
    pub resources: String,
    pub since: Moment,
}

impl GroupsPage {
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }
}

impl GroupPage {
    fn is_local(&self) -> bool {
        self.subject.is_none()
    }
}
