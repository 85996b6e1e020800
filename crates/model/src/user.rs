//! People and what they may do. A user is keyed by id; the name is an attribute that the
//! directory may change. Names that could be taken for options, paths or system accounts
//! never become a [`Username`].

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use super::{Timestamp, UserId};

/// What somebody may do in the portal, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Their own things.
    User,
    /// Sees everything and may stop it.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        [Self::User, Self::Operator, Self::Admin].into_iter().find(|role| role.as_str() == text).ok_or(UnknownRole)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a role must be user, operator or admin")]
pub struct UnknownRole;

/// Whether somebody may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Active,
    /// By an administrator.
    Disabled,
    /// Disabled at the moment that an administrator set.
    Expired,
    /// Disabled because nobody used it for as long as the site allows.
    Dormant,
    /// The directory does not list them any more, or has locked them.
    Absent,
}

impl State {
    pub const ALL: [Self; 5] = [Self::Active, Self::Disabled, Self::Expired, Self::Dormant, Self::Absent];

    /// The state of an account that is disabled or not, and since when it is expired, dormant and absent.
    pub fn of(
        disabled: bool,
        expired_at: Option<Timestamp>,
        dormant_at: Option<Timestamp>,
        absent_since: Option<Timestamp>,
    ) -> Self {
        match (disabled, expired_at, dormant_at, absent_since) {
            (true, Some(_), _, _) => Self::Expired,
            (true, None, Some(_), _) => Self::Dormant,
            (true, None, None, _) => Self::Disabled,
            (false, _, _, Some(_)) => Self::Absent,
            (false, _, _, None) => Self::Active,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Expired => "expired",
            Self::Dormant => "dormant",
            Self::Absent => "absent",
        }
    }
}

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(UnknownState)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a state must be active, disabled, expired, dormant or absent")]
pub struct UnknownState;

/// A Unix account, as the host's name service tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub unix_name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    pub shell: String,
}

/// A sign-in name: `[a-z0-9_][a-z0-9_.-]{0,31}` with a letter or `_` in it, never one that systems reserve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Username(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUsername {
    #[error(
        "a name must have 1 to 32 characters: first a lowercase letter, a digit or `_`, then lowercase letters, \
         digits, `_`, `.` or `-`, and not only digits"
    )]
    Characters,
    #[error(
        "the name of a local account must have at most {MAX_MADE_NAME_LENGTH} characters, because its Unix account \
         `ly-NAME` can have at most 32"
    )]
    TooLongForAccount,
    #[error("`{0}` is the name of a system account")]
    Reserved(String),
}

/// System accounts that must never be signed in as, whatever a directory says.
const RESERVED: [&str; 14] = [
    "root",
    "daemon",
    "bin",
    "sys",
    "sync",
    "mail",
    "nobody",
    "slurm",
    "munge",
    "systemd-network",
    "messagebus",
    "sshd",
    "www-data",
    "lyceum",
];

/// The longest name of a local account, for which the host may have to make `ly-NAME`.
const MAX_MADE_NAME_LENGTH: usize = 29;

/// Returns the one spelling of a name that was typed: compatibility forms, letter case and
/// blanks around it make no other name. Whatever is counted, looked up or asked about by a
/// typed name goes by this.
pub fn canonical_name(typed: &str) -> String {
    let folded: String = typed.nfkc().collect::<String>().to_lowercase();
    folded.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Username {
    pub fn parse(text: &str) -> Result<Self, BadUsername> {
        let first = text.bytes().next().ok_or(BadUsername::Characters)?;
        let is_letter = |b: u8| b.is_ascii_lowercase() || b == b'_';
        let starts_well = is_letter(first) || first.is_ascii_digit();
        let goes_on_well = text.bytes().all(|b| is_letter(b) || b.is_ascii_digit() || matches!(b, b'.' | b'-'));
        // Programs take digits alone for a uid.
        if !starts_well || !goes_on_well || !text.bytes().any(is_letter) || text.len() > 32 {
            return Err(BadUsername::Characters);
        }
        if RESERVED.contains(&text) {
            return Err(BadUsername::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Reads the name of a local account to be made, for which the host makes a Unix account on first need.
    pub fn for_made_account(text: &str) -> Result<Self, BadUsername> {
        let name = Self::parse(text)?;
        if text.len() > MAX_MADE_NAME_LENGTH { Err(BadUsername::TooLongForAccount) } else { Ok(name) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Username {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How long before an account expires its owner is warned (seconds).
pub const EXPIRY_WARNING_SECONDS: i64 = 14 * 86_400;

/// What a change says of the moment at which an account expires. In JSON: not named, null, or a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryChange {
    #[default]
    Keep,
    Never,
    At(Timestamp),
}

impl ExpiryChange {
    /// Returns the moment after this change, where `before` was set.
    #[must_use]
    pub fn upon(self, before: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::Keep => before,
            Self::Never => None,
            Self::At(moment) => Some(moment),
        }
    }

    pub fn is_keep(&self) -> bool {
        *self == Self::Keep
    }

    /// Returns what is wrong with the moment, if it is another one than `before`.
    #[must_use]
    pub fn fault(self, before: Option<Timestamp>, now: Timestamp) -> Option<&'static str> {
        match self {
            Self::At(moment) if before != Some(moment) && moment <= now => {
                Some("This must be in the future. To end access now, disable the account.")
            }
            _ => None,
        }
    }
}

impl From<Option<Timestamp>> for ExpiryChange {
    fn from(moment: Option<Timestamp>) -> Self {
        moment.map_or(Self::Never, Self::At)
    }
}

impl Serialize for ExpiryChange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.upon(None).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExpiryChange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::from)
    }
}

/// The source of accounts and groups that this portal keeps itself.
pub const LOCAL: &str = "local";

/// The source of service accounts, which programs use: they have tokens, and never a password.
pub const SERVICE: &str = "service";

/// Somebody who may sign in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    pub id: UserId,
    pub name: Username,
    pub display_name: String,
    /// Where the account comes from: `local`, `service`, `ldap` or `header`.
    pub source: String,
    /// The Unix account their workloads run as, where an administrator named one.
    pub unix_name: Option<String>,
    /// The name as the directory spells it, where that differs: the host may spell the account so too.
    pub directory_unix_name: Option<String>,
    /// What they may do: the greater of what was given here and what the directory gives.
    pub role: Role,
    /// What an administrator gave them here.
    pub given_role: Role,
    /// By an administrator, or because the account expired.
    pub disabled: bool,
    /// When the account is disabled by itself, or was.
    pub expires_at: Option<Timestamp>,
    /// When it was disabled because it had expired.
    pub expired_at: Option<Timestamp>,
    /// When the account was disabled because nobody used it.
    pub dormant_at: Option<Timestamp>,
    /// Since when the directory does not list them any more, or has locked them.
    pub absent_since: Option<Timestamp>,
    /// The Unix uid that the directory gives them.
    pub uid_number: Option<u32>,
    /// The names of their groups, in order.
    pub groups: Vec<String>,
    /// The names of the groups that they manage, in order.
    pub manages: Vec<String>,
    pub created_at: Timestamp,
    pub last_seen_at: Option<Timestamp>,
}

impl User {
    /// Whether the account, with its password, is this portal's own.
    pub fn is_local(&self) -> bool {
        self.source == LOCAL
    }

    /// Whether this is a service account, which cannot sign in.
    pub fn is_service(&self) -> bool {
        self.source == SERVICE
    }

    /// Whether they may use what is for these groups: everybody where none is named, else their members and administrators.
    pub fn may_use(&self, groups: &[String]) -> bool {
        groups.is_empty() || self.role == Role::Admin || self.groups.iter().any(|group| groups.contains(group))
    }

    /// Whether the account is kept in this portal, not in a directory.
    pub fn is_kept_here(&self) -> bool {
        self.is_local() || self.is_service()
    }

    /// Whether their role is the directory's doing: only there it can be lowered.
    pub fn has_directorys_role(&self) -> bool {
        self.given_role < self.role
    }

    pub fn state(&self) -> State {
        State::of(self.disabled, self.expired_at, self.dormant_at, self.absent_since)
    }

    /// Returns the moment at which the account expired, if that is past.
    pub fn expired_before(&self, now: Timestamp) -> Option<Timestamp> {
        self.expires_at.filter(|end| *end <= now)
    }

    /// Returns the moment at which an account that is active expires, if that is soon.
    pub fn expires_soon(&self, now: Timestamp) -> Option<Timestamp> {
        let is_soon = |end: &Timestamp| *end < now.plus_seconds(EXPIRY_WARNING_SECONDS);
        self.expires_at.filter(is_soon).filter(|_| !self.is_closed())
    }

    /// Whether nobody may be this user now.
    pub fn is_closed(&self) -> bool {
        self.state() != State::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["alice", "_a", "a.b-c_1", "x", "1a", "2130509g", "0_", &"a".repeat(32)] {
            assert!(Username::parse(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "-x",
            ".x",
            "Alice",
            "a b",
            "a/b",
            "..",
            "../x",
            "é",
            "a\n",
            "1",
            "2130509",
            "1.5",
            "1-2",
            &"a".repeat(33),
            "root",
            "slurm",
        ] {
            assert!(Username::parse(name).is_err(), "{name}");
        }
        assert!(Username::for_made_account(&"a".repeat(29)).is_ok());
        assert_eq!(Username::for_made_account(&"a".repeat(30)), Err(BadUsername::TooLongForAccount));
    }

    #[test]
    fn changes_of_expiry() {
        let (before, now) = (Some(Timestamp(5)), Timestamp(10));
        let read = |text| serde_json::from_str::<ExpiryChange>(text).unwrap();
        assert_eq!(read("null"), ExpiryChange::Never);
        let moment = read("\"2027-10-01T00:00:00+02:00\"");
        assert_eq!(serde_json::to_string(&moment).unwrap(), "\"2027-09-30T22:00:00Z\"");
        for (change, after, is_fault) in [
            (ExpiryChange::Keep, before, false),
            (ExpiryChange::Never, None, false),
            (ExpiryChange::At(Timestamp(11)), Some(Timestamp(11)), false),
            (ExpiryChange::At(Timestamp(10)), Some(Timestamp(10)), true),
            (ExpiryChange::At(Timestamp(5)), before, false),
        ] {
            assert_eq!(change.upon(before), after, "{change:?}");
            assert_eq!(change.fault(before, now).is_some(), is_fault, "{change:?}");
        }
    }

    #[test]
    fn spellings_of_one_name() {
        for typed in ["alice", "ALICE", " aLice\t", "\u{a0}alice\u{3000}", "ａｌｉｃｅ", "ＡLICE", "ⓐlice", "𝐚lice"]
        {
            assert_eq!(canonical_name(typed), "alice", "{typed:?}");
        }
        assert_eq!(canonical_name(" Jane  DOE "), "jane doe");
        for other in ["аlice", "alice\u{200b}", "al\u{ad}ice", "ali ce", "alicé", "alice\0"] {
            assert!(Username::parse(&canonical_name(other)).is_err(), "{other:?}");
        }
    }
}
