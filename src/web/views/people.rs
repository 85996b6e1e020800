//! `/admin/users` and one person's page: who may come in, what they may do and what they run,
//! with the forms by which administrators change it. Operators see the same without forms.

use askama::Template;

use super::{Card, Column, FieldError, Moment, More, NewToken, TokenForm, TokenRow, settings::LIFETIMES};
use crate::{
    model::{Role, user},
    web::{
        page::{Layout, filters},
        people::EXPIRING,
    },
};

/// One page of the list of people.
#[derive(Debug, Template)]
#[template(path = "admin/users.html")]
pub struct UsersPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// What was wrong with a new account. Fields: `name`, `display_name`, `role`, `password`.
    pub errors: Vec<FieldError>,
    /// What is looked for, as it was typed.
    pub search: UserSearch,
    pub columns: Vec<Column>,
    pub rows: Vec<UserRow>,
    /// How many people there are in all.
    pub total: i64,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    /// Whether the reader makes accounts.
    pub may_change: bool,
    pub form: NewUserForm,
}

/// What the list is narrowed to; empty is everything.
#[derive(Clone, Debug, Default)]
pub struct UserSearch {
    pub find: String,
    pub role: String,
    pub state: String,
    pub source: String,
    pub sort: String,
}

impl UserSearch {
    /// Whether it leaves anybody out.
    pub fn narrows(&self) -> bool {
        [&self.find, &self.role, &self.state, &self.source].iter().any(|part| !part.is_empty())
    }
}

/// What was typed for a new account, kept after an error; never its password.
#[derive(Clone, Debug, Default)]
pub struct NewUserForm {
    pub name: String,
    pub display_name: String,
    pub role: String,
    /// A service account.
    pub is_service: bool,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct UserRow {
    pub name: String,
    pub display_name: String,
    /// “local”, “service account”, “directory”.
    pub source: &'static str,
    pub role: &'static str,
    /// A group of the directory gives the role.
    pub is_directorys_role: bool,
    pub state: StateBadge,
    /// When an active account expires, if that is soon.
    pub expires: Option<Moment>,
    /// `None`: never.
    pub seen: Option<Moment>,
    /// Some of the groups, and how many more there are.
    pub groups: Vec<String>,
    pub more_groups: usize,
    pub sessions: i64,
}

/// A state as the pages draw it: the class in the stylesheet and the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBadge {
    pub class: &'static str,
    pub word: &'static str,
}

impl From<user::State> for StateBadge {
    fn from(state: user::State) -> Self {
        let (class, word) = match state {
            user::State::Active => ("running", "Active"),
            user::State::Disabled => ("failed", "Disabled"),
            user::State::Expired => ("failed", "Expired"),
            user::State::Dormant => ("failed", "Dormant"),
            user::State::Absent => ("unknown", "Not in directory"),
        };
        Self { class, word }
    }
}

/// Where an account or a group comes from, for people.
#[must_use]
pub fn source_word(source: &str) -> &'static str {
    match source {
        user::LOCAL => "local",
        user::SERVICE => "service account",
        _ => "directory",
    }
}

/// The sources that the list is narrowed to, with their words.
pub const SOURCES: [(&str, &str); 4] =
    [(user::LOCAL, "Local"), (user::SERVICE, "Service account"), ("ldap", "Directory"), ("header", "Reverse proxy")];

/// One person.
#[derive(Debug, Template)]
#[template(path = "admin/user.html")]
#[expect(clippy::struct_excessive_bools, reason = "each is a question that the template asks")]
pub struct UserPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// Why a form was refused, in a sentence.
    pub error: Option<String>,
    pub name: String,
    pub display_name: String,
    /// `local`, or a directory's.
    pub source: String,
    pub state: user::State,
    pub role: Role,
    pub given_role: Role,
    /// The reader's own account: others change its role.
    pub is_oneself: bool,
    pub may_change: bool,
    /// Nobody ever used it, so that it can be removed.
    pub is_unused: bool,
    /// The end as the form has it, and as the page tells it.
    pub expiry: Option<(String, Moment)>,
    /// The end is past: the account cannot be enabled before it is moved.
    pub is_expired: bool,
    pub facts: Vec<(&'static str, String)>,
    pub moments: Vec<(&'static str, Moment)>,
    pub groups: Vec<BelongingRow>,
    pub more_groups: More,
    pub tokens: Vec<TokenRow>,
    pub more_tokens: More,
    /// The token just made: the only time its secret is shown.
    pub new_token: Option<NewToken>,
    /// The link just created: the only time it is shown.
    pub password_link: Option<PasswordLink>,
    /// For administrators on a service account's page.
    pub token_form: Option<TokenForm>,
    pub logins: i64,
    /// Live sessions, newest first.
    pub live: Vec<Card>,
    pub more_live: More,
    /// Ended lately, newest first.
    pub ended: Vec<Card>,
}

/// A link by which the user sets a new password.
#[derive(Clone, Debug)]
pub struct PasswordLink {
    pub url: String,
    pub expires: Moment,
}

/// A group that somebody is in or manages.
#[derive(Clone, Debug)]
pub struct BelongingRow {
    pub id: String,
    pub name: String,
    pub source: &'static str,
    pub is_member: bool,
    pub is_manager: bool,
}

/// The roles with what they are for, and the words for people.
pub(super) const ROLES: [(Role, &str, &str); 3] = [
    (Role::User, "User", "manages their own work"),
    (Role::Operator, "Operator", "can see everything, and stop sessions and jobs"),
    (Role::Admin, "Administrator", "full access"),
];

/// What people call a role.
#[must_use]
pub fn role_word(role: Role) -> &'static str {
    ROLES.iter().find(|(known, ..)| *known == role).map_or("", |(_, word, _)| word)
}

impl UsersPage {
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// Value, word and whether it is chosen, for the choices of the search.
    fn roles(&self) -> Vec<(&'static str, &'static str, bool)> {
        ROLES.iter().map(|(role, word, _)| (role.as_str(), *word, self.search.role == role.as_str())).collect()
    }

    fn states(&self) -> Vec<(&'static str, &'static str, bool)> {
        let mut states: Vec<_> =
            user::State::ALL.map(|state| (state.as_str(), StateBadge::from(state).word)).into_iter().collect();
        states.push((EXPIRING, "Expires within 14 days"));
        states.into_iter().map(|(value, word)| (value, word, self.search.state == value)).collect()
    }

    fn sources(&self) -> [(&'static str, &'static str, bool); 4] {
        SOURCES.map(|(value, word)| (value, word, self.search.source == value))
    }

    fn new_roles(&self) -> Vec<(&'static str, &'static str, &'static str, bool)> {
        let chosen = if self.form.role.is_empty() { "user" } else { &self.form.role };
        ROLES.iter().map(|(role, word, what)| (role.as_str(), *word, *what, chosen == role.as_str())).collect()
    }
}

impl UserPage {
    fn called(&self) -> &str {
        if self.display_name.trim().is_empty() { &self.name } else { &self.display_name }
    }

    fn badge(&self) -> StateBadge {
        self.state.into()
    }

    fn is_disabled(&self) -> bool {
        matches!(self.state, user::State::Disabled | user::State::Expired | user::State::Dormant)
    }

    /// The account and its password are kept here.
    fn is_local(&self) -> bool {
        self.source == user::LOCAL
    }

    fn is_dormant(&self) -> bool {
        self.state == user::State::Dormant
    }

    /// It is a service account.
    fn is_service(&self) -> bool {
        self.source == user::SERVICE
    }

    /// Where the form for a new token goes.
    fn tokens_address(&self) -> String {
        format!("/admin/users/{}/tokens", self.name)
    }

    fn lifetimes() -> [(i64, &'static str); 4] {
        LIFETIMES
    }

    fn role_word(&self) -> &'static str {
        role_word(self.role)
    }

    fn is_directorys_role(&self) -> bool {
        self.given_role < self.role
    }

    fn may_change_role(&self) -> bool {
        self.may_change && !self.is_oneself && !self.is_directorys_role()
    }

    fn roles(&self) -> Vec<(&'static str, &'static str, &'static str, bool)> {
        ROLES.iter().map(|(role, word, what)| (role.as_str(), *word, *what, self.given_role == *role)).collect()
    }
}
