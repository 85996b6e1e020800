//! The table of limits: one row a level, kind and field. No row means *inherit*, -1 unlimited.
//! Which row wins is `model::quota`'s business. Groups are marked here as those that can be
//! charged and those that restrict; who is in them is `directory`'s.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Error, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::parse,
};
use crate::model::{
    GroupId, Timestamp, UserId,
    quota::{Field, Limit, LimitRow, Scope},
};

/// Where limits are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Default,
    User(UserId),
    Group(GroupId),
    Cluster,
}

/// For each person, or for all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Each,
    Total,
}

/// One field's change: no value removes the row, so that the field is inherited again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: Kind,
    pub field: Field,
    pub value: Option<i64>,
}

/// Who changed limits, when, until when and why.
#[derive(Clone, Copy, Debug)]
pub struct ChangeNote<'a> {
    pub by: &'a str,
    pub at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub note: Option<&'a str>,
}

impl ChangeNote<'_> {
    /// The change in words, for the audit log: `gpus=2 total.cpus=inherit chargeable=yes until … (why)`.
    fn told(&self, changes: &[Change], marks: Marks) -> String {
        let change = |Change { kind, field, value }: &Change| {
            let prefix = if *kind == Kind::Total { "total." } else { "" };
            let value = match value {
                None => "inherit".to_owned(),
                Some(-1) => "unlimited".to_owned(),
                Some(value) => value.to_string(),
            };
            format!("{prefix}{}={value}", field.name())
        };
        let mark =
            |(name, mark): (&str, Option<bool>)| mark.map(|is| format!("{name}={}", if is { "yes" } else { "no" }));
        let marks = [("chargeable", marks.chargeable), ("restrictive", marks.restrictive)].into_iter().filter_map(mark);
        let end = self.expires_at.map(|end| format!("until {end}"));
        let why = self.note.map(|note| format!("({note})"));
        changes.iter().map(change).chain(marks).chain(end).chain(why).collect::<Vec<_>>().join(" ")
    }
}

/// How a group counts; `None` leaves a mark as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub chargeable: Option<bool>,
    pub restrictive: Option<bool>,
}

/// A limit as it was set at some level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetLimit {
    pub kind: Kind,
    pub field: Field,
    pub value: i64,
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
    pub by: String,
    pub at: Timestamp,
}

/// A group as quotas see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaGroup {
    pub id: GroupId,
    pub name: String,
    pub chargeable: bool,
    pub restrictive: bool,
}

/// What somebody's sessions can be charged to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purse {
    /// Their chargeable groups, by name.
    pub groups: Vec<QuotaGroup>,
    /// The one that was chosen last, if it is still among them.
    pub chosen: Option<GroupId>,
}

impl Purse {
    /// What is charged where nothing is said: the one that was chosen last, or the only one.
    #[must_use]
    pub fn default_group(&self) -> Option<GroupId> {
        let only = if let [only] = self.groups.as_slice() { Some(only.id) } else { None };
        self.chosen.or(only)
    }
}

#[derive(FromRow)]
pub(super) struct Row {
    scope: String,
    name: String,
    restrictive: bool,
    pub(super) field: String,
    value: i64,
    expires_at: Option<i64>,
    note: Option<String>,
}

impl Row {
    pub(super) fn limit(self) -> Result<LimitRow> {
        let scope = match self.scope.as_str() {
            "default" => Scope::Default,
            "user" => Scope::User,
            "group" => Scope::Group { name: self.name, restrictive: self.restrictive },
            _ => return Err(Error::Stored("scope of a limit")),
        };
        let (expires_at, note) = (self.expires_at.map(Timestamp), self.note);
        Ok(LimitRow { scope, field: field(&self.field)?, value: self.value, expires_at, note })
    }
}

#[derive(FromRow)]
pub(super) struct TotalRow {
    pub(super) scope: String,
    pub(super) field: String,
    value: i64,
}

impl TotalRow {
    pub(super) fn limit(&self) -> Result<(Field, Limit)> {
        Ok((field(&self.field)?, Limit::of(self.value)))
    }
}

#[derive(FromRow)]
struct SetRow {
    kind: String,
    field: String,
    value: i64,
    expires_at: Option<i64>,
    note: Option<String>,
    updated_by: String,
    updated_at: i64,
}

#[derive(FromRow)]
struct GroupRow {
    id: String,
    name: String,
    chargeable: bool,
    restrictive: bool,
}

impl GroupRow {
    fn group(self) -> Result<QuotaGroup> {
        let Self { id, name, chargeable, restrictive } = self;
        Ok(QuotaGroup { id: parse(&id, "group id")?, name, chargeable, restrictive })
    }
}

/// The rows that bear on one person: the defaults, their groups' and their own.
pub(super) const OF_PERSON: &str = "SELECT scope, '' AS name, FALSE AS restrictive, field, value, expires_at, note
         FROM quota_limits WHERE scope = 'default' AND scope_id = '' AND kind = 'each'
     UNION ALL SELECT scope, '' AS name, FALSE AS restrictive, field, value, expires_at, note
         FROM quota_limits WHERE scope = 'user' AND scope_id = $1 AND kind = 'each'
     UNION ALL SELECT scope, groups.name AS name, restrictive, field, value, expires_at, note
         FROM group_members JOIN groups ON groups.id = group_id
         JOIN quota_limits ON scope = 'group' AND scope_id = group_id AND kind = 'each'
         WHERE user_id = $1
     ORDER BY name, scope, field";

/// What all together may use: the cluster's, and those of the group `$1`, as they hold at `$2`.
pub(super) const TOTALS: &str = "SELECT scope, field, value FROM quota_limits
     WHERE kind = 'total' AND ((scope = 'cluster' AND scope_id = '') OR (scope = 'group' AND scope_id = $1))
         AND (expires_at IS NULL OR expires_at > $2)
     ORDER BY scope, field";

const USER_NAME: &str = "SELECT name FROM users WHERE id = $1";
pub(super) const GROUP_NAME: &str = "SELECT name FROM groups WHERE id = $1";

/// Whether hours of a period are counted for this field.
pub(super) fn counts_hours(field: &str) -> bool {
    [Field::GpuHours, Field::CpuHours].iter().any(|hours| hours.name() == field)
}

impl Db {
    /// The rows that bear on one person.
    pub async fn limits_of(&self, user: UserId) -> Result<Vec<LimitRow>> {
        let user = user.to_string();
        reading!(self, pool => query_as::<_, Row>(OF_PERSON).bind(&user).fetch_all(pool).await)?
            .into_iter()
            .map(Row::limit)
            .collect()
    }

    /// What was set at one level, by field.
    pub async fn limits_at(&self, level: Level) -> Result<Vec<SetLimit>> {
        let (scope, id) = level.key();
        let rows: Vec<SetRow> = reading!(self, pool => query_as(
            "SELECT kind, field, value, expires_at, note, updated_by, updated_at FROM quota_limits
             WHERE scope = $1 AND scope_id = $2 ORDER BY field, kind")
            .bind(scope).bind(&id).fetch_all(pool).await)?;
        let set = |row: SetRow| {
            Ok(SetLimit {
                kind: if row.kind == "total" { Kind::Total } else { Kind::Each },
                field: field(&row.field)?,
                value: row.value,
                expires_at: row.expires_at.map(Timestamp),
                note: row.note,
                by: row.updated_by,
                at: Timestamp(row.updated_at),
            })
        };
        rows.into_iter().map(set).collect()
    }

    /// Changes fields, and of a group its marks, all or none, and leaves a row in the audit log.
    pub async fn set_limits(
        &self,
        level: Level,
        changes: &[Change],
        marks: Marks,
        about: &ChangeNote<'_>,
    ) -> Result<()> {
        let (scope, scope_id) = level.key();
        let detail = about.told(changes, marks);
        transaction!(self, tx => {
            for Change { kind, field, value } in changes {
                let name = field.name();
                match value {
                    Some(value) => query("INSERT INTO quota_limits
                         (scope, scope_id, kind, field, value, expires_at, note, updated_by, updated_at)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                         ON CONFLICT (scope, scope_id, kind, field) DO UPDATE SET value = excluded.value,
                             expires_at = excluded.expires_at, note = excluded.note,
                             updated_by = excluded.updated_by, updated_at = excluded.updated_at")
                        .bind(scope).bind(&scope_id).bind(kind.as_str()).bind(&*name).bind(value)
                        .bind(about.expires_at.map(|at| at.0)).bind(about.note).bind(about.by).bind(about.at.0)
                        .execute(&mut *tx).await?,
                    None => query("DELETE FROM quota_limits
                         WHERE scope = $1 AND scope_id = $2 AND kind = $3 AND field = $4")
                        .bind(scope).bind(&scope_id).bind(kind.as_str()).bind(&*name)
                        .execute(&mut *tx).await?,
                };
            }
            if let Level::Group(_) = level {
                query("UPDATE groups SET chargeable = COALESCE($2, chargeable), restrictive = COALESCE($3, restrictive)
                     WHERE id = $1")
                    .bind(&scope_id).bind(marks.chargeable).bind(marks.restrictive)
                    .execute(&mut *tx).await?;
            }
            let name: Option<String> = match level {
                Level::User(_) => query_scalar(USER_NAME).bind(&scope_id).fetch_optional(&mut *tx).await?,
                Level::Group(_) => query_scalar(GROUP_NAME).bind(&scope_id).fetch_optional(&mut *tx).await?,
                Level::Default | Level::Cluster => None,
            };
            let subject = match (&name, level) {
                (Some(name), Level::Group(_)) => format!("group {name}"),
                (Some(name), _) => name.clone(),
                (None, _) => scope.to_owned(),
            };
            let entry = Entry { at: about.at, actor: about.by, action: "quota.change", subject: &subject, detail: &detail };
            append_audit!(tx, &entry);
        });
        Ok(())
    }

    /// A group by its id or its name. Of several that are called the same, the first that was made.
    pub async fn find_quota_group(&self, id_or_name: &str) -> Result<Option<QuotaGroup>> {
        let row: Option<GroupRow> = reading!(self, pool => query_as(
            "SELECT id, name, chargeable, restrictive FROM groups WHERE id = $1 OR name = $1 ORDER BY id LIMIT 1")
            .bind(id_or_name).fetch_optional(pool).await)?;
        row.map(GroupRow::group).transpose()
    }

    /// The groups for which something is set, by name.
    pub async fn quota_groups(&self) -> Result<Vec<QuotaGroup>> {
        let rows: Vec<GroupRow> = reading!(self, pool => query_as(
            "SELECT id, name, chargeable, restrictive FROM groups
             WHERE chargeable OR restrictive OR id IN (SELECT scope_id FROM quota_limits WHERE scope = 'group')
             ORDER BY name, id")
            .fetch_all(pool).await)?;
        rows.into_iter().map(GroupRow::group).collect()
    }

    /// The group, if somebody is in it.
    pub async fn membership(&self, user: UserId, group: GroupId) -> Result<Option<QuotaGroup>> {
        let (user, group) = (user.to_string(), group.to_string());
        let row: Option<GroupRow> = reading!(self, pool => query_as(
            "SELECT id, name, chargeable, restrictive FROM groups JOIN group_members ON group_id = id
             WHERE user_id = $1 AND group_id = $2")
            .bind(&user).bind(&group).fetch_optional(pool).await)?;
        row.map(GroupRow::group).transpose()
    }

    /// What somebody's sessions can be charged to.
    pub async fn purse_of(&self, user: UserId) -> Result<Purse> {
        let user = user.to_string();
        let (rows, chosen): (Vec<GroupRow>, Option<(Option<String>,)>) = reading!(self, pool => (
            query_as("SELECT id, name, chargeable, restrictive FROM groups JOIN group_members ON group_id = id
                 WHERE user_id = $1 AND chargeable ORDER BY name, id")
                .bind(&user).fetch_all(pool).await?,
            query_as("SELECT charged_group FROM users WHERE id = $1").bind(&user).fetch_optional(pool).await?,
        ));
        let groups: Vec<QuotaGroup> = rows.into_iter().map(GroupRow::group).collect::<Result<_>>()?;
        let chosen = chosen.and_then(|(chosen,)| chosen);
        let chosen = groups.iter().map(|group| group.id).find(|id| chosen.as_deref() == Some(&id.to_string()));
        Ok(Purse { groups, chosen })
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
    fn key(self) -> (&'static str, String) {
        match self {
            Self::Default => ("default", String::new()),
            Self::User(user) => ("user", user.to_string()),
            Self::Group(group) => ("group", group.to_string()),
            Self::Cluster => ("cluster", String::new()),
        }
    }
}

impl Kind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Each => "each",
            Self::Total => "total",
        }
    }
}

fn field(text: &str) -> Result<Field> {
    Field::parse(text).ok_or(Error::Stored("field of a limit"))
}
