//! Announcements, and who has put which of them aside. Each change writes its row of the audit
//! log in its own transaction; what the words mean is `model::announcement`'s business.

use sqlx::{FromRow, query, query_as};

use super::{
    Db, Result,
    audit::{ChangedBy, Entry, append_audit},
    idempotency::IdempotentRequest,
    people::remember,
    reading, transaction,
    tx::Tx,
    types::{Json, parse},
};
use lyceum_model::{Announcement, AnnouncementId, Phase, Timestamp, UserId, Window, announcement::Level};

/// Which announcements to list, the newest first.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// `None`: in any phase.
    pub phase: Option<Phase>,
    /// Phases are judged as of this moment.
    pub now: Timestamp,
    /// The last one of the page before.
    pub before: Option<AnnouncementId>,
    pub limit: i64,
}

#[derive(FromRow)]
struct Row {
    id: String,
    level: String,
    text: String,
    starts_at: i64,
    ends_at: Option<i64>,
    on_login: bool,
    user_groups: String,
    changed_by: String,
    changed_at: i64,
}

impl Row {
    fn announcement(self) -> Result<Announcement> {
        Ok(Announcement {
            id: parse(&self.id, "announcement id")?,
            level: parse::<Level>(&self.level, "announcement's level")?,
            text: self.text,
            window: Window { from: Timestamp(self.starts_at), to: self.ends_at.map(Timestamp) },
            on_login: self.on_login,
            groups: Json::read(&self.user_groups, "announcement's groups")?,
            changed_by: self.changed_by,
            changed_at: Timestamp(self.changed_at),
        })
    }
}

const COLUMNS: &str = "SELECT id, level, text, starts_at, ends_at, on_login, user_groups, changed_by, changed_at
     FROM announcements";

/// `$1` now.
const NOT_OVER: &str = "(ends_at IS NULL OR ends_at > $1)";

impl Db {
    /// Some announcements, the newest first.
    pub async fn list_announcements(&self, filter: &Filter) -> Result<Vec<Announcement>> {
        let phase = match filter.phase {
            None => "$1 = $1",
            Some(Phase::Coming) => "starts_at > $1 AND (ends_at IS NULL OR ends_at > $1)",
            Some(Phase::Active) => "starts_at <= $1 AND (ends_at IS NULL OR ends_at > $1)",
            Some(Phase::Past) => "ends_at <= $1",
        };
        let sql = format!("{COLUMNS} WHERE {phase} AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3");
        let before = filter.before.map(|id| id.to_string()).unwrap_or_default();
        let rows: Vec<Row> = reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql))
            .bind(filter.now.0).bind(&before).bind(filter.limit).fetch_all(pool).await)?;
        rows.into_iter().map(Row::announcement).collect()
    }

    /// All that are not over yet, in the order in which they were made.
    pub async fn current_announcements(&self, now: Timestamp) -> Result<Vec<Announcement>> {
        let sql = format!("{COLUMNS} WHERE {NOT_OVER} ORDER BY id");
        let rows: Vec<Row> =
            reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql)).bind(now.0).fetch_all(pool).await)?;
        rows.into_iter().map(Row::announcement).collect()
    }

    /// The members of the groups with this name: a directory may have several.
    pub async fn members_by_group_name(&self, name: &str) -> Result<Vec<UserId>> {
        let sql =
            "SELECT DISTINCT user_id FROM group_members JOIN groups ON groups.id = group_id WHERE groups.name = $1";
        let ids: Vec<String> = reading!(self, pool => sqlx::query_scalar(sql).bind(name).fetch_all(pool).await)?;
        ids.iter().map(|id| parse(id, "user id")).collect()
    }

    pub async fn find_announcement(&self, id: AnnouncementId) -> Result<Option<Announcement>> {
        let sql = format!("{COLUMNS} WHERE id = $1");
        let row: Option<Row> = reading!(self, pool =>
            query_as(sqlx::AssertSqlSafe(sql)).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(Row::announcement).transpose()
    }

    /// Writes a new one; [`super::Error::Unique`] when another request with its key was faster.
    pub async fn add_announcement(
        &self,
        new: &Announcement,
        once: Option<IdempotentRequest<'_>>,
        noted: &Entry<'_>,
    ) -> Result<()> {
        transaction!(self, tx => add(Tx::from(&mut *tx), new, once, noted).await?);
        Ok(())
    }

    /// Changes one if it still is as `before`; false where it is not. With other words, or
    /// another level, whoever had put it aside sees it again.
    pub async fn change_announcement(
        &self,
        before: &Announcement,
        after: &Announcement,
        noted: &Entry<'_>,
    ) -> Result<bool> {
        Ok(transaction!(self, tx => change(Tx::from(&mut *tx), before, after, noted).await?))
    }

    /// Removes one; false where there is none.
    pub async fn remove_announcement(&self, id: AnnouncementId, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => remove(Tx::from(&mut *tx), id, noted).await?))
    }

    /// Somebody does not want to see it any more; false where it is gone.
    pub async fn dismiss_announcement(&self, id: AnnouncementId, user: UserId) -> Result<bool> {
        let (id, user) = (id.to_string(), user.to_string());
        Ok(transaction!(self, tx => {
            let there: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM announcements WHERE id = $1")
                .bind(&id).fetch_one(&mut *tx).await?;
            if there == 0 {
                return Ok(false);
            }
            query("INSERT INTO announcement_dismissals (announcement_id, user_id) VALUES ($1, $2)
                 ON CONFLICT (announcement_id, user_id) DO NOTHING")
                .bind(&id).bind(&user).execute(&mut *tx).await?;
            true
        }))
    }

    /// Who has put aside what is not over yet.
    pub async fn announcement_dismissals(&self, now: Timestamp) -> Result<Vec<(AnnouncementId, UserId)>> {
        let sql = format!(
            "SELECT announcement_id, user_id FROM announcement_dismissals
             WHERE announcement_id IN (SELECT id FROM announcements WHERE {NOT_OVER})"
        );
        let rows: Vec<(String, String)> =
            reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql)).bind(now.0).fetch_all(pool).await)?;
        let read = |(id, user): (String, String)| Ok((parse(&id, "announcement id")?, parse(&user, "user id")?));
        rows.into_iter().map(read).collect()
    }

    /// Forgets what was over before `before`; returns how many.
    pub async fn forget_announcements(&self, before: Timestamp) -> Result<usize> {
        let gone = transaction!(self, tx => {
            query("DELETE FROM announcement_dismissals
                 WHERE announcement_id IN (SELECT id FROM announcements WHERE ends_at < $1)")
                .bind(before.0).execute(&mut *tx).await?;
            query("DELETE FROM announcements WHERE ends_at < $1").bind(before.0).execute(&mut *tx).await?.rows_affected()
        });
        Ok(usize::try_from(gone).unwrap_or(usize::MAX))
    }
}

/// [`Db::add_announcement`] inside a transaction.
pub(super) async fn add(
    mut tx: Tx<'_>,
    new: &Announcement,
    once: Option<IdempotentRequest<'_>>,
    noted: &Entry<'_>,
) -> Result<()> {
    let id = new.id.to_string();
    tx.query(
        "INSERT INTO announcements (id, level, text, starts_at, ends_at, on_login, user_groups, changed_by, changed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(&id)
    .bind(new.level.as_str())
    .bind(&new.text)
    .bind(new.window.from.0)
    .bind(new.window.to.map(|to| to.0))
    .bind(new.on_login)
    .bind(Json::write(&new.groups))
    .bind(&new.changed_by)
    .bind(new.changed_at.0)
    .execute()
    .await?;
    if let Some(once) = once {
        remember(tx.again(), once, &id, ChangedBy { actor: noted.actor, at: new.changed_at }).await?;
    }
    append_audit(tx, noted).await
}

/// [`Db::change_announcement`] inside a transaction.
pub(super) async fn change(
    mut tx: Tx<'_>,
    before: &Announcement,
    after: &Announcement,
    noted: &Entry<'_>,
) -> Result<bool> {
    let id = before.id.to_string();
    let sql = format!("{COLUMNS} WHERE id = $1");
    let row: Option<Row> = tx.query(sqlx::AssertSqlSafe(sql)).bind(&id).first().await?;
    if row.map(Row::announcement).transpose()?.as_ref() != Some(before) {
        return Ok(false);
    }
    tx.query(
        "UPDATE announcements SET level = $2, text = $3, starts_at = $4, ends_at = $5, on_login = $6,
             user_groups = $7, changed_by = $8, changed_at = $9 WHERE id = $1",
    )
    .bind(&id)
    .bind(after.level.as_str())
    .bind(&after.text)
    .bind(after.window.from.0)
    .bind(after.window.to.map(|to| to.0))
    .bind(after.on_login)
    .bind(Json::write(&after.groups))
    .bind(&after.changed_by)
    .bind(after.changed_at.0)
    .execute()
    .await?;
    if (before.level, &before.text) != (after.level, &after.text) {
        tx.query("DELETE FROM announcement_dismissals WHERE announcement_id = $1").bind(&id).execute().await?;
    }
    append_audit(tx, noted).await?;
    Ok(true)
}

/// [`Db::remove_announcement`] inside a transaction.
pub(super) async fn remove(mut tx: Tx<'_>, id: AnnouncementId, noted: &Entry<'_>) -> Result<bool> {
    let id = id.to_string();
    tx.query("DELETE FROM announcement_dismissals WHERE announcement_id = $1").bind(&id).execute().await?;
    if tx.query("DELETE FROM announcements WHERE id = $1").bind(&id).execute().await? == 0 {
        return Ok(false);
    }
    append_audit(tx, noted).await?;
    Ok(true)
}

/// Reads all that are not over yet inside a transaction, in the order in which they were made.
pub(super) async fn current(mut tx: Tx<'_>, now: Timestamp) -> Result<Vec<Announcement>> {
    let sql = format!("{COLUMNS} WHERE {NOT_OVER} ORDER BY id");
    let rows: Vec<Row> = tx.query(sqlx::AssertSqlSafe(sql)).bind(now.0).all().await?;
    rows.into_iter().map(Row::announcement).collect()
}
