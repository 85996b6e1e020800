//! Groups of people: a directory's, which only the directory changes, and those that are made
//! here. A group is keyed by id; its name is what people and settings call it.

use std::fmt;

use serde::Serialize;

use super::{FieldError, GroupId, Timestamp, line, user::LOCAL};

/// A group, without its people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub id: GroupId,
    pub name: String,
    /// Where it comes from: `local` or `ldap`.
    pub source: String,
    /// The source's own id; for a directory the group's DN.
    pub subject: String,
    /// `None` for a directory's.
    pub created_at: Option<Timestamp>,
    /// Since when the directory no longer has it, though something is set for it.
    pub absent_since: Option<Timestamp>,
}

impl Group {
    /// Whether its people are chosen here.
    pub fn is_local(&self) -> bool {
        self.source == LOCAL
    }
}

/// The largest number of groups that something can be for.
const MAX_GROUPS: usize = 50;

/// Reads the field `groups`, which names the groups that may use something: without space around a name, in order, each
/// once.
///
/// # Errors
///
/// There are more than 50, or one can be no group's name. A group need not exist: a directory's appears with its members.
pub fn parse_names(names: &[String]) -> Result<Vec<String>, FieldError> {
    let wrong = |code, message: &str| Err(FieldError::new("groups", code, message));
    let mut names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    if MAX_GROUPS < names.len() {
        return wrong("too_many", "must have at most 50 groups");
    }
    match names.iter().find(|name| name.chars().any(line::is_misleading) || MAX_NAME_LENGTH < name.len()) {
        Some(odd) => {
            let shown: String = odd.escape_debug().take(60).collect();
            wrong("invalid_value", &format!("`{shown}` cannot be the name of a group"))
        }
        None => Ok(names),
    }
}

/// The longest name of a group, in bytes; a directory may have long ones.
const MAX_NAME_LENGTH: usize = 256;

/// An invitation that nobody accepted expires after so long (seconds).
pub const INVITATION_LIFETIME: i64 = 14 * 86_400;

/// Somebody who declined is not invited again by a manager for so long (seconds).
pub const REINVITATION_DELAY: i64 = 7 * 86_400;

/// A pending invitation into a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Invitation {
    pub group: GroupId,
    pub group_name: String,
    /// Who is invited.
    pub name: String,
    pub invited_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The name of a group that is made here: `[a-z0-9_][a-z0-9_.-]{0,63}`, and no id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct GroupName(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a group's name must have 1 to 64 characters: first a lowercase letter, a digit or `_`, then also `.` and `-`; it \
     must not look like an id"
)]
pub struct BadGroupName;

impl GroupName {
    pub fn parse(text: &str) -> Result<Self, BadGroupName> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-');
        let starts_well = text.bytes().next().is_some_and(|first| good(first) && !matches!(first, b'.' | b'-'));
        // In addresses a name stands where an id may stand.
        let is_id = text.parse::<GroupId>().is_ok();
        if starts_well && text.bytes().all(good) && text.len() <= 64 && !is_id {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadGroupName)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["vision", "2030-course", "a.b_c", "_x", &"a".repeat(64)] {
            assert!(GroupName::parse(name).is_ok(), "{name}");
        }
        let id = GroupId::new().to_string();
        for name in ["", "-x", ".", "..", "A", "a b", "a/b", "é", "a\n", "<b>", &"a".repeat(65), &id] {
            assert_eq!(GroupName::parse(name), Err(BadGroupName), "{name}");
        }
    }
}
