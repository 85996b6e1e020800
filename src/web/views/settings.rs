//! `/settings`: password, API tokens, sign-ins, appearance.

use askama::Template;

use super::{FieldError, InvitationRow, Moment, More, NotificationForm, PresetList};
use crate::web::page::{Layout, Theme, filters};

/// The settings of the viewer.
#[derive(Debug, Template)]
#[template(path = "settings.html")]
pub struct Settings {
    pub layout: Layout,
    /// What a form did: “Your password is changed.”
    pub notice: Option<String>,
    /// Fields: `current_password`, `new_password`, `repeat_password`, `token_name`, `scopes`,
    /// `expires`.
    pub errors: Vec<FieldError>,
    /// False for people whose password a directory keeps: then a line says where.
    pub has_local_password: bool,
    /// Newest first; revoked ones are left out by the handler.
    pub tokens: Vec<TokenRow>,
    pub more_tokens: More,
    /// What a new token may be allowed; posted as `scopes`, none ticked is everything.
    pub scopes: Vec<ScopeChoice>,
    /// What was typed for a new token, kept after an error.
    pub token_name: String,
    /// The token just made: the only time its secret is shown.
    pub new_token: Option<NewToken>,
    /// How many browsers are signed in, this one included.
    pub logins: i64,
    pub told: NotificationForm,
    /// Absent for users who may not add images and have saved no credentials.
    pub registries: Option<RegistriesForm>,
    /// The viewer's presets and those of their groups.
    pub presets: PresetList,
    /// Groups that the viewer is invited into and has not answered.
    pub invitations: Vec<InvitationRow>,
    /// Groups that the viewer is in, by name.
    pub groups: Vec<OwnGroup>,
    pub more_groups: More,
}

/// Credentials for registries, and the form that saves some.
#[derive(Clone, Debug)]
pub struct RegistriesForm {
    pub rows: Vec<RegistryRow>,
    /// Whether the viewer may add images, and so has a use for more.
    pub may_add: bool,
    /// What was typed, kept after an error; never the password.
    pub registry: String,
    pub user: String,
}

/// A registry that the viewer has saved credentials for.
#[derive(Clone, Debug)]
pub struct RegistryRow {
    pub registry: String,
    pub user: String,
    pub saved: Moment,
}

/// A group that the viewer is in.
#[derive(Clone, Debug)]
pub struct OwnGroup {
    pub id: String,
    pub name: String,
    /// “local”, “directory”.
    pub source: &'static str,
    /// A directory's group is left there.
    pub may_leave: bool,
}

#[derive(Clone, Debug)]
pub struct TokenRow {
    pub id: String,
    pub name: String,
    /// Empty: everything its owner may do.
    pub scopes: Vec<String>,
    pub created: Moment,
    /// `None`: never used.
    pub last_used: Option<Moment>,
    /// `None`: it does not expire.
    pub expires: Option<Moment>,
    pub is_expired: bool,
}

#[derive(Clone, Debug)]
pub struct ScopeChoice {
    /// `sessions:read`.
    pub name: String,
    pub description: String,
    pub chosen: bool,
}

#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub secret: String,
}

/// The form on a service account's page for a new token, with what was typed in it.
#[derive(Clone, Debug)]
pub struct TokenForm {
    pub name: String,
    pub scopes: Vec<ScopeChoice>,
    /// Fields: `token_name`, `scopes`, `expires`.
    pub errors: Vec<FieldError>,
}

impl TokenForm {
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }
}

/// Lifetimes to offer for a token: seconds (posted as `expires`) and words.
pub(super) const LIFETIMES: [(i64, &str); 4] =
    [(7 * 86_400, "7 days"), (30 * 86_400, "30 days"), (90 * 86_400, "90 days"), (365 * 86_400, "1 year")];

impl Settings {
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    fn themes(&self) -> [(&'static str, &'static str, bool); 3] {
        Theme::ALL.map(|theme| (theme.as_str(), theme.label(), theme == self.layout.theme))
    }

    fn lifetimes() -> [(i64, &'static str); 4] {
        LIFETIMES
    }
}
