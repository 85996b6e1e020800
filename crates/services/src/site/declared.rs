//! The file of a site as types: what can be declared, and nothing of what it means. The OpenAPI document and the JSON
//! Schema of the file are made from these. Lists are read item by item, so that one fault does not hide the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use lyceum_model::{Role, Timestamp, announcement::Level, user::ExpiryChange};

/// The declared state of a site. Everything that is omitted stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// The sections that list everything: `users`, `groups`, `profiles`, `announcements`. With `prune`, what such a section does
    /// not list is removed. Accounts that were used, which cannot be removed, are disabled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub complete: Vec<Section>,
    /// The limits for everybody and for all together.
    #[serde(skip_serializing_if = "SiteQuotas::is_empty")]
    #[schema(required = false)]
    pub quotas: SiteQuotas,
    /// The users that are declared.
    #[schema(required = false)]
    pub users: Vec<SiteUser>,
    #[schema(required = false)]
    pub groups: Vec<SiteGroup>,
    /// The named sizes of sessions and jobs that are declared, beside those of the configuration file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub profiles: Vec<SiteProfile>,
    /// The announcements that are declared.
    #[schema(required = false)]
    pub announcements: Vec<SiteAnnouncement>,
}

/// A section of a site's file that can be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SiteSection)]
pub enum Section {
    Users,
    Groups,
    Profiles,
    Announcements,
}

/// Limits by quota field, such as `gpus`: a number, -1 for unlimited, or an object with `value`, `expires_at` and
/// `note`.
pub type Limits = BTreeMap<String, Value>;

/// The limits for everybody and for all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SiteQuotas {
    /// The limits of each user, by quota field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, SiteLimit>>)]
    pub default: Option<Limits>,
    /// The totals of the cluster, by quota field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, SiteLimit>>)]
    pub cluster: Option<Limits>,
}

impl SiteQuotas {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A limit: a number, -1 for unlimited, or a number with an end and a note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SiteLimit {
    Plain(i64),
    Terms(SiteTerms),
}

/// A limit with an end and a note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteTerms {
    /// -1 is unlimited.
    pub value: i64,
    /// When the limit ends. Omitted: it does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    /// Why it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub note: Option<String>,
}

/// A user.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteUser {
    #[schema(min_length = 1, max_length = 32)]
    pub name: String,
    /// Where the account comes from: `local`, `service`, `ldap` or `header`. An account that does not exist is created if
    /// this is `local`, or `service` for a service account, which uses tokens and cannot sign in.
    /// Required for new accounts where accounts also come from a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For local and service accounts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub display_name: Option<String>,
    /// The role that is set in the portal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Role>,
    /// Whether the account is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// When the account expires. Omitted: as it is. Null: it does not expire.
    #[serde(default, skip_serializing_if = "ExpiryChange::is_keep")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: ExpiryChange,
    /// The limits that are set for this user alone, by quota field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, SiteLimit>>)]
    pub quota: Option<Limits>,
}

/// A group.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteGroup {
    /// The name, or the id if several groups of the directory have the name.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// `local` or `ldap`. A group that does not exist is created if it is `local`, the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The names of the members. For local groups only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// The names of the managers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managers: Option<Vec<String>>,
    /// The limits of each member, by quota field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, SiteLimit>>)]
    pub each: Option<Limits>,
    /// The totals of the group, by quota field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, SiteLimit>>)]
    pub total: Option<Limits>,
    /// Whether sessions can be charged to the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chargeable: Option<bool>,
    /// Whether members get at most this group's limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restrictive: Option<bool>,
}

/// A named size of sessions and jobs. What is omitted stays as it is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteProfile {
    #[schema(min_length = 1, max_length = 32)]
    pub name: String,
    /// Shown in forms. A new profile without a title shows its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 60)]
    pub title: Option<String>,
    /// A new profile has none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub gpus: Option<i64>,
    /// The GPU model, as the nodes page spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// The cores. A new profile needs them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cpus: Option<i64>,
    /// The memory with its unit, such as `48GiB`. A new profile needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// How long sessions and jobs last that name no time, such as `8h`, which is the default of a new profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The names of the groups that may use it. Empty: all users.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 50)]
    pub groups: Option<Vec<String>>,
    /// The place in lists. A new profile is the last one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub position: Option<i64>,
}

/// An announcement. It is recognized by its text.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteAnnouncement {
    /// One line of plain text.
    #[schema(min_length = 1, max_length = 500)]
    pub text: String,
    #[serde(default = "usual")]
    #[schema(default = "info")]
    pub level: Level,
    /// Omitted: it stays as it is, and a new announcement begins now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub from: Option<Timestamp>,
    /// Omitted: it is shown until it is ended. An announcement that is over is not created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub to: Option<Timestamp>,
    /// Whether it is also shown on the sign-in page.
    #[serde(default)]
    pub on_login: bool,
    /// The names of the groups whose members see it. Empty: all users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

fn usual() -> Level {
    Level::Info
}

/// A declaration as far as it could be read, each item with its place in the file, such as `users.3`.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    pub complete: Vec<Section>,
    pub quotas: SiteQuotas,
    pub users: Vec<(String, SiteUser)>,
    pub groups: Vec<(String, SiteGroup)>,
    pub profiles: Vec<(String, SiteProfile)>,
    pub announcements: Vec<(String, SiteAnnouncement)>,
}
