//! Presets: a row per saved request, of a user or of a group. Each change writes its row of the audit log in its own
//! transaction. Who may change a group's presets is decided by the service.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Error, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::{parse, readable},
};
use lyceum_model::{
    PresetId, Timestamp, UserId,
    preset::{Preset, PresetHolder},
};

#[derive(FromRow)]
struct Row {
    id: String,
    user_id: Option<String>,
    group_id: Option<String>,
    group_name: Option<String>,
    kind: String,
    name: String,
    request: String,
    saved_by: String,
    created_at: i64,
    changed_at: i64,
}

impl Row {
    fn preset(self) -> Result<Preset> {
        let holder = match (self.user_id, self.group_id) {
            (Some(user), _) => PresetHolder::User(parse(&user, "user id")?),
            (None, Some(group)) => PresetHolder::Group(parse(&group, "group id")?, self.group_name.unwrap_or_default()),
            (None, None) => return Err(Error::Stored("preset")),
        };
        Ok(Preset {
            id: parse(&self.id, "preset id")?,
            holder,
            kind: parse(&self.kind, "kind of preset")?,
            name: self.name,
            request: self.request,
            saved_by: self.saved_by,
            created_at: Timestamp(self.created_at),
            changed_at: Timestamp(self.changed_at),
        })
    }
}

/// The columns of the holder.
fn columns(holder: &PresetHolder) -> (Option<String>, Option<String>) {
    match holder {
        PresetHolder::User(user) => (Some(user.to_string()), None),
        PresetHolder::Group(group, _) => (None, Some(group.to_string())),
    }
}

/// How a preset was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    Saved,
    /// The holder already has as many as it may have.
    Full,
    /// It does not exist any more, or was changed since it was read.
    Stale,
}

impl Db {
    /// Returns the presets that a user can use: their own, and those of groups that they are in or manage; with
    /// `of_all_groups` those of every group. By name, a user's own before those of groups.
    pub async fn presets(&self, user: UserId, of_all_groups: bool) -> Result<Vec<Preset>> {
        let user = user.to_string();
        let rows: Vec<Row> = reading!(self, pool => query_as(
            "SELECT presets.id, user_id, group_id, groups.name AS group_name, kind, presets.name, request, saved_by,
                 presets.created_at, changed_at FROM presets LEFT JOIN groups ON groups.id = group_id
                 WHERE user_id = $1 OR group_id IN (SELECT group_id FROM group_members WHERE user_id = $1)
                 OR group_id IN (SELECT group_id FROM group_managers WHERE user_id = $1)
                 OR ($2 AND group_id IS NOT NULL)")
            .bind(&user).bind(of_all_groups).fetch_all(pool).await)?;
        let mut presets = readable(rows.into_iter().map(Row::preset));
        let order = |preset: &Preset| match &preset.holder {
            PresetHolder::User(_) => (preset.name.clone(), String::new(), preset.id),
            PresetHolder::Group(_, group) => (preset.name.clone(), group.clone(), preset.id),
        };
        presets.sort_by_key(order);
        Ok(presets)
    }

    /// Adds a preset, unless its holder has `most` already; [`Error::Unique`] where the holder has one of this name.
    pub async fn add_preset(&self, new: &Preset, most: i64, noted: &Entry<'_>) -> Result<SaveOutcome> {
        let (user, group) = columns(&new.holder);
        Ok(transaction!(self, tx => {
            let count: i64 = query_scalar("SELECT COUNT(*) FROM presets WHERE user_id = $1 OR group_id = $2")
                .bind(&user).bind(&group).fetch_one(&mut *tx).await?;
            if count >= most {
                return Ok(SaveOutcome::Full);
            }
            query("INSERT INTO presets
                     (id, user_id, group_id, kind, name, request, saved_by, created_at, changed_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
                .bind(new.id.to_string()).bind(&user).bind(&group).bind(new.kind.as_str()).bind(&new.name)
                .bind(&new.request).bind(&new.saved_by).bind(new.created_at.0).bind(new.changed_at.0)
                .execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
            SaveOutcome::Saved
        }))
    }

    /// Changes the name, the request and the holder of a preset that still is what it was when it was read.
    pub async fn change_preset(
        &self,
        before: &Preset,
        after: &Preset,
        most: i64,
        noted: &Entry<'_>,
    ) -> Result<SaveOutcome> {
        let (user, group) = columns(&after.holder);
        let id = after.id.to_string();
        Ok(transaction!(self, tx => {
            let others: i64 = query_scalar(
                "SELECT COUNT(*) FROM presets WHERE (user_id = $1 OR group_id = $2) AND id <> $3")
                .bind(&user).bind(&group).bind(&id).fetch_one(&mut *tx).await?;
            if others >= most {
                return Ok(SaveOutcome::Full);
            }
            let changed = query("UPDATE presets SET user_id = $2, group_id = $3, name = $4, request = $5,
                     saved_by = $6, changed_at = $7 WHERE id = $1 AND name = $8 AND request = $9 AND changed_at = $10")
                .bind(&id).bind(&user).bind(&group).bind(&after.name).bind(&after.request).bind(&after.saved_by)
                .bind(after.changed_at.0).bind(&before.name).bind(&before.request).bind(before.changed_at.0)
                .execute(&mut *tx).await?;
            if changed.rows_affected() == 0 {
                return Ok(SaveOutcome::Stale);
            }
            append_audit(&mut *tx, noted).await?;
            SaveOutcome::Saved
        }))
    }

    /// Removes a preset. Returns false where it does not exist.
    pub async fn remove_preset(&self, id: PresetId, noted: &Entry<'_>) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => {
            let removed = query("DELETE FROM presets WHERE id = $1").bind(&id).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }
}
