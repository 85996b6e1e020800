//! What administrators tell everybody for a while, and the checks of what they wrote. All
//! faults of a draft are told at once, each with its field.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    AnnouncementId, FieldError, Timestamp, Window, group, line,
    session::{UnknownWord, words},
};

/// The longest text, in characters.
pub const MAX_LENGTH: usize = 500;

words!(
    /// The severity of an announcement, in ascending order.
    #[derive(PartialOrd, Ord)]
    Level as "AnnouncementLevel" {
        Info = "info",
        Warning = "warning",
        /// Cannot be dismissed.
        Critical = "critical",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub id: AnnouncementId,
    pub level: Level,
    /// One line, see [`line::parse`].
    pub text: String,
    pub window: Window,
    /// Whoever has not signed in sees it too.
    pub on_login: bool,
    /// Names of the groups whose members see it; empty: everybody.
    pub groups: Vec<String>,
    /// Who changed it last: a user's name, or `unix:NAME` for the command line.
    pub changed_by: String,
    pub changed_at: Timestamp,
}

/// An announcement as somebody writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub level: Level,
    pub text: String,
    /// `None`: from now on.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub on_login: bool,
    /// Names of groups, see [`group::parse_names`]; empty: for everybody.
    pub groups: Vec<String>,
}

impl Draft {
    /// The announcement that this becomes, or every fault of it.
    pub fn check(self, id: AnnouncementId, by: &str, now: Timestamp) -> Result<Announcement, Vec<FieldError>> {
        let text = line::parse("text", &self.text, MAX_LENGTH).and_then(|text| match text.as_str() {
            "" => Err(FieldError::new("text", "missing_field", "Enter a text.")),
            _ => Ok(text),
        });
        let window = Window::parse(self.from.unwrap_or(now), self.to, now);
        let groups = group::parse_names(&self.groups).and_then(|groups| {
            if self.on_login && !groups.is_empty() {
                let message = "The sign-in page is for all users: leave out the groups, or do not show it there.";
                return Err(FieldError::new("groups", "not_on_login", message));
            }
            Ok(groups)
        });
        match (text, window, groups) {
            (Ok(text), Ok(window), Ok(groups)) => Ok(Announcement {
                id,
                level: self.level,
                text,
                window,
                on_login: self.on_login,
                groups,
                changed_by: by.to_owned(),
                changed_at: now,
            }),
            (text, window, groups) => Err([text.err(), window.err(), groups.err()].into_iter().flatten().collect()),
        }
    }
}

impl From<&Announcement> for Draft {
    fn from(announcement: &Announcement) -> Self {
        let Announcement { level, text, window, on_login, groups, .. } = announcement.clone();
        Self { level, text, from: Some(window.from), to: window.to, on_login, groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_told_at_once() {
        let now = Timestamp(1_000_000);
        let draft = Draft {
            level: Level::Info,
            text: " The disks are full ".to_owned(),
            from: None,
            to: None,
            on_login: false,
            groups: Vec::new(),
        };
        let id = AnnouncementId::new();
        let made = draft.clone().check(id, "ada", now).unwrap();
        assert_eq!((made.text.as_str(), made.window), ("The disks are full", Window { from: now, to: None }));
        assert_eq!(Draft::from(&made).check(id, "ada", now).unwrap(), made);
        let bad = Draft { text: "\u{202e}x".to_owned(), to: Some(Timestamp(5)), ..draft.clone() };
        let faults = bad.check(id, "ada", now).unwrap_err();
        let faults: Vec<_> = faults.iter().map(|fault| (fault.field.as_str(), fault.code.as_str())).collect();
        assert_eq!(faults, [("text", "characters"), ("to", "before_from")]);
        let empty = Draft { text: " ".to_owned(), ..draft.clone() }.check(id, "ada", now).unwrap_err();
        assert_eq!(empty[0].code, "missing_field");
        let of_groups =
            |on_login| Draft { groups: vec![" lab ".to_owned(), "course".to_owned()], on_login, ..draft.clone() };
        assert_eq!(of_groups(false).check(id, "ada", now).unwrap().groups, ["course", "lab"]);
        assert_eq!(of_groups(true).check(id, "ada", now).unwrap_err()[0].code, "not_on_login");
        let long = Draft { text: "ä".repeat(MAX_LENGTH + 1), ..draft }.check(id, "ada", now).unwrap_err();
        assert_eq!(long[0].code, "too_long");
    }
}
