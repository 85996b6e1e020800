//! The table of limits as it is read: one row a level, kind and field. No row means *inherit*,
//! -1 unlimited. Which row wins is `model::quota`'s business. Groups are marked as those that
//! can be charged and those that restrict; who is in them is `directory`'s. What changes them
//! is in `limits`.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};
use sqlx::{FromRow, query, query_as};

use super::{Db, Error, Json, Result, reading, types::parse};
use lyceum_model::{
    GroupId, Timestamp, UserId,
    quota::{Field, GroupShare, Kind, Limit, LimitRow, Scope, Terms},
};

/// Where limits are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Default,
    User(UserId),
    Group(GroupId),
    Cluster,
}

/// A limit as it was set at some level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetLimit {
    pub kind: Kind,
    pub field: Field,
    pub terms: Terms,
    pub by: String,
    pub at: Timestamp,
}

/// Which limits, and of a group which marks, somebody saw at a level: every change makes another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

impl Version {
    /// Of what is set at a level, in the order of [`Db::limits_at`].
    #[must_use]
    pub fn of(limits: &[SetLimit], group: Option<&QuotaGroup>) -> Self {
        let marks = group.map(|group| (group.chargeable, group.restrictive));
        let digest = Sha256::digest(Json::write(&(limits, marks)));
        Self(hex::encode(&digest[..8]))
    }
}

impl From<&str> for Version {
    /// What a client says that it saw. Where that was never there, it is nobody's version.
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A group as quotas see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaGroup {
    pub id: GroupId,
    pub name: String,
    pub chargeable: bool,
    pub restrictive: bool,
    /// Since when its directory no longer has it: what is set for it binds nobody.
    pub absent_since: Option<Timestamp>,
}

/// Lists the groups that a user's sessions can be charged to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BillingGroups {
    /// Their chargeable groups, by name.
    pub groups: Vec<QuotaGroup>,
    /// The one that was chosen last, if it is still among them.
    pub chosen: Option<GroupId>,
}

impl BillingGroups {
    /// What is charged where nothing is said: the one that was chosen last, or the only one.
    #[must_use]
    pub fn default_group(&self) -> Option<GroupId> {
        let only = if let [only] = self.groups.as_slice() { Some(only.id) } else { None };
        self.chosen.or(only)
    }
}

#[derive(Clone, Debug, FromRow, Hash)]
pub(super) struct Row {
    scope: String,
    kind: String,
    /// Of a group's row: its id, its name, and how it counts.
    group_id: String,
    name: String,
    restrictive: bool,
    chargeable: bool,
    pub(super) field: String,
    value: i64,
    expires_at: Option<i64>,
    note: Option<String>,
}

impl Row {
    pub(super) fn limit(&self) -> Result<LimitRow> {
        let scope = match self.scope.as_str() {
            "default" => Scope::Default,
            "user" => Scope::User,
            "group" if self.kind == Kind::Raised.as_str() => Scope::Raised {
                group: parse(&self.group_id, "group id")?,
                name: self.name.clone(),
                chargeable: self.chargeable,
            },
            "group" => Scope::Group { name: self.name.clone(), restrictive: self.restrictive },
            _ => return Err(Error::Stored("scope of a limit")),
        };
        let (expires_at, note) = (self.expires_at.map(Timestamp), self.note.clone());
        Ok(LimitRow { scope, field: field(&self.field)?, value: self.value, expires_at, note })
    }
}

#[derive(Debug, FromRow, Hash)]
pub(super) struct ShareRow {
    scope: String,
    scope_id: String,
    field: String,
    value: i64,
}

impl ShareRow {
    /// An amount that is limited; hours and what is unlimited are none.
    pub(super) fn share(&self) -> Result<Option<GroupShare>> {
        let group = if self.scope == "group" { Some(parse(&self.scope_id, "group id")?) } else { None };
        let Limit::AtMost(limit) = Limit::of(self.value) else { return Ok(None) };
        let is_amount = !counts_hours(&self.field);
        Ok(is_amount.then_some(GroupShare { group, field: field(&self.field)?, limit }))
    }

    /// Whether it is this group's; without one, the cluster's.
    pub(super) fn is_of(&self, group: Option<&str>) -> bool {
        group.map_or(self.scope == "cluster", |group| self.scope == "group" && self.scope_id == group)
    }

    pub(super) fn counts_hours(&self) -> bool {
        counts_hours(&self.field)
    }

    pub(super) fn limit(&self) -> Result<(Field, Limit)> {
        Ok((field(&self.field)?, Limit::of(self.value)))
    }
}

#[derive(FromRow)]
pub(super) struct SetRow {
    kind: String,
    field: String,
    value: i64,
    expires_at: Option<i64>,
    note: Option<String>,
    updated_by: String,
    updated_at: i64,
}

impl SetRow {
    pub(super) fn limit(self) -> Result<SetLimit> {
        Ok(SetLimit {
            kind: Kind::parse(&self.kind).ok_or(Error::Stored("kind of a limit"))?,
            field: field(&self.field)?,
            terms: Terms { value: self.value, expires_at: self.expires_at.map(Timestamp), note: self.note },
            by: self.updated_by,
            at: Timestamp(self.updated_at),
        })
    }
}

#[derive(FromRow)]
pub(super) struct GroupRow {
    id: String,
    name: String,
    chargeable: bool,
    restrictive: bool,
    absent_since: Option<i64>,
}

impl GroupRow {
    pub(super) fn group(self) -> Result<QuotaGroup> {
        let Self { id, name, chargeable, restrictive, absent_since } = self;
        let (id, absent_since) = (parse(&id, "group id")?, absent_since.map(Timestamp));
        Ok(QuotaGroup { id, name, chargeable, restrictive, absent_since })
    }
}

/// The columns of a row of no group's.
macro_rules! of_nobody {
    () => {
        "scope, kind, '' AS group_id, '' AS name, FALSE AS restrictive, FALSE AS chargeable, field, value, expires_at, note"
    };
}

/// The columns of the rows of people's groups, and where they stand.
macro_rules! of_a_group {
    () => {
        "scope, kind, group_id, groups.name AS name, restrictive, chargeable, field, value, expires_at, note
         FROM group_members JOIN groups ON groups.id = group_id
         JOIN quota_limits ON scope = 'group' AND scope_id = group_id AND kind IN ('each', 'raised')"
    };
}
pub(super) use {of_a_group, of_nobody};

/// The rows that bear on one person: the defaults, their groups' and their own.
pub(super) const OF_PERSON: &str = concat!(
    "SELECT ",
    of_nobody!(),
    " FROM quota_limits WHERE scope = 'default' AND scope_id = '' AND kind = 'each'
     UNION ALL SELECT ",
    of_nobody!(),
    " FROM quota_limits WHERE scope = 'user' AND scope_id = $1 AND kind = 'each'
     UNION ALL SELECT ",
    of_a_group!(),
    " WHERE user_id = $1
     ORDER BY name, scope, field, kind"
);

/// What the cluster and every group may use together, as it holds at `$1`. A group that the directory no
/// longer has binds nobody.
pub(super) const SHARES: &str = "SELECT scope, scope_id, field, value FROM quota_limits
     WHERE scope IN ('cluster', 'group') AND kind = 'total' AND (expires_at IS NULL OR expires_at > $1)
         AND NOT EXISTS (SELECT 1 FROM groups WHERE id = scope_id AND absent_since IS NOT NULL)
     ORDER BY scope, scope_id, field";

/// What is set at the level `$1`, `$2`.
pub(super) const AT_LEVEL: &str =
    "SELECT kind, field, value, expires_at, note, updated_by, updated_at FROM quota_limits
     WHERE scope = $1 AND scope_id = $2 ORDER BY field, kind";

pub(super) const GROUP: &str = "SELECT id, name, chargeable, restrictive, absent_since FROM groups WHERE id = $1";
/// What the group `$1` is called, and whether it counts what is charged to it alone.
pub(super) const GROUP_COUNTS: &str = "SELECT name, chargeable FROM groups WHERE id = $1";

/// Whether hours of a period are counted for this field.
pub(super) fn counts_hours(field: &str) -> bool {
    [Field::GpuHours, Field::CpuHours].iter().any(|hours| hours.name() == field)
}

impl Db {
    /// The rows that bear on one person.
    pub async fn limits_of(&self, user: UserId) -> Result<Vec<LimitRow>> {
        let user = user.to_string();
        reading!(self, pool => query_as::<_, Row>(OF_PERSON).bind(&user).fetch_all(pool).await)?
            .iter()
            .map(Row::limit)
            .collect()
    }

    /// What was set at one level, by field.
    pub async fn limits_at(&self, level: Level) -> Result<Vec<SetLimit>> {
        let (scope, id) = level.key();
        let rows: Vec<SetRow> = reading!(self, pool => query_as(AT_LEVEL).bind(scope).bind(&id).fetch_all(pool).await)?;
        rows.into_iter().map(SetRow::limit).collect()
    }

    /// A group by its id or its name. Of several that are called the same, the first that was made.
    pub async fn find_quota_group(&self, id_or_name: &str) -> Result<Option<QuotaGroup>> {
        let row: Option<GroupRow> = reading!(self, pool => query_as(
            "SELECT id, name, chargeable, restrictive, absent_since FROM groups WHERE id = $1 OR name = $1 ORDER BY id LIMIT 1")
            .bind(id_or_name).fetch_optional(pool).await)?;
        row.map(GroupRow::group).transpose()
    }

    /// The groups for which something is set, by name.
    pub async fn quota_groups(&self) -> Result<Vec<QuotaGroup>> {
        let rows: Vec<GroupRow> = reading!(self, pool => query_as(
            "SELECT id, name, chargeable, restrictive, absent_since FROM groups
             WHERE chargeable OR restrictive OR id IN (SELECT scope_id FROM quota_limits WHERE scope = 'group')
             ORDER BY name, id")
            .fetch_all(pool).await)?;
        rows.into_iter().map(GroupRow::group).collect()
    }

    /// The group, if somebody is in it.
    pub async fn membership(&self, user: UserId, group: GroupId) -> Result<Option<QuotaGroup>> {
        let (user, group) = (user.to_string(), group.to_string());
        let row: Option<GroupRow> = reading!(self, pool => query_as(
            "SELECT id, name, chargeable, restrictive, absent_since FROM groups JOIN group_members ON group_id = id
             WHERE user_id = $1 AND group_id = $2")
            .bind(&user).bind(&group).fetch_optional(pool).await)?;
        row.map(GroupRow::group).transpose()
    }

    /// Lists the groups that a user's sessions can be charged to.
    pub async fn billing_groups_of(&self, user: UserId) -> Result<BillingGroups> {
        let user = user.to_string();
        let (rows, chosen): (Vec<GroupRow>, Option<(Option<String>,)>) = reading!(self, pool => (
            query_as("SELECT id, name, chargeable, restrictive, absent_since FROM groups JOIN group_members ON group_id = id
                 WHERE user_id = $1 AND chargeable ORDER BY name, id")
                .bind(&user).fetch_all(pool).await?,
            query_as("SELECT charged_group FROM users WHERE id = $1").bind(&user).fetch_optional(pool).await?,
        ));
        let groups: Vec<QuotaGroup> = rows.into_iter().map(GroupRow::group).collect::<Result<_>>()?;
        let chosen = chosen.and_then(|(chosen,)| chosen);
        let chosen = groups.iter().map(|group| group.id).find(|id| chosen.as_deref() == Some(&id.to_string()));
        Ok(BillingGroups { groups, chosen })
    }

    /// Remembers which group somebody chose.
    pub async fn choose_charged_group(&self, user: UserId, group: GroupId) -> Result<()> {
        let (user, group) = (user.to_string(), group.to_string());
        super::writing!(self, pool => query("UPDATE users SET charged_group = $2 WHERE id = $1")
            .bind(&user).bind(&group).execute(pool).await.map(drop))?;
        Ok(())
    }
}

impl Level {
    /// As the table names it: its scope, and whose it is.
    pub(super) fn key(self) -> (&'static str, String) {
        match self {
            Self::Default => ("default", String::new()),
            Self::User(user) => ("user", user.to_string()),
            Self::Group(group) => ("group", group.to_string()),
            Self::Cluster => ("cluster", String::new()),
        }
    }
}

fn field(text: &str) -> Result<Field> {
    Field::parse(text).ok_or(Error::Stored("field of a limit"))
}
