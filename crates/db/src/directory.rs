//! People of a directory and their groups, as the directory said last. A person is found by
//! the directory's own id; their role and groups are replaced as a whole, and a change of
//! what they may do raises the access generation in the same transaction.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{ChangedBy, append_audit},
    reading,
    search::fold,
    settings::RAISE_GENERATION,
    transaction,
    types::parse,
    usage,
};
use lyceum_model::{GroupId, Role, Timestamp, UserId, Username};

/// What a directory says of somebody.
#[derive(Clone, Debug)]
pub struct Person<'a> {
    pub source: &'a str,
    /// The directory's own id.
    pub subject: &'a str,
    pub name: &'a Username,
    pub display_name: &'a str,
    pub mail: Option<&'a str>,
    pub uid_number: Option<u32>,
    /// The name as the directory spells it, where that differs from `name`.
    pub unix_name: Option<&'a str>,
    /// `None` leaves it as it is.
    pub role: Option<Role>,
    pub groups: &'a [Group],
}

/// A group of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The directory's own id.
    pub subject: String,
    pub name: String,
}

/// Reports how recording a sign-in ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalOutcome {
    /// They are this user, new or as before.
    Known(UserId),
    /// An administrator has disabled them here, or the account has expired.
    Disabled,
    /// Somebody else has the name, which inherits nothing.
    NameTaken,
}

/// Somebody who has a login or a token.
#[derive(Clone, Debug)]
pub struct Known {
    pub id: UserId,
    pub subject: String,
    pub name: String,
}

/// A group that a look at the directory asks about: something is set for it, or it was gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedGroup {
    pub id: GroupId,
    pub subject: String,
    pub is_absent: bool,
}

/// `$1` source, `$2` subject of a group that the directory has again.
const BACK: &str =
    "UPDATE groups SET absent_since = NULL WHERE source = $1 AND subject = $2 AND absent_since IS NOT NULL";

#[derive(FromRow)]
struct PreviousAccount {
    id: String,
    name: String,
    directory_role: Option<String>,
    disabled: bool,
    expires_at: Option<i64>,
    absent_since: Option<i64>,
}

impl Db {
    /// Writes down what a directory says of somebody who has proved who they are, or who is in.
    pub async fn arrive(&self, person: &Person<'_>, at: Timestamp) -> Result<ArrivalOutcome> {
        let fresh_id = UserId::new().to_string();
        let uid = person.uid_number.map(i64::from);
        let arrival = transaction!(self, tx => {
            let known: Option<PreviousAccount> = query_as(
                "SELECT id, name, directory_role, disabled, expires_at, absent_since FROM users WHERE source = $1 AND subject = $2")
                .bind(person.source).bind(person.subject).fetch_optional(&mut *tx).await?;
            let linked: Option<PreviousAccount> = query_as(
                "SELECT id, name, directory_role, disabled, expires_at, absent_since FROM users WHERE source = $1 AND name = $2 AND subject = $3")
                .bind(person.source).bind(person.name.as_str()).bind(linked_to(person.name.as_str()))
                .fetch_optional(&mut *tx).await?;
            let before = known.or(linked);
            let holder: Option<String> = query_scalar("SELECT id FROM users WHERE name = $1")
                .bind(person.name.as_str()).fetch_optional(&mut *tx).await?;
            let id = before.as_ref().map_or(fresh_id.as_str(), |before| before.id.as_str());
            if holder.is_some_and(|holder| holder != id) {
                return Ok(ArrivalOutcome::NameTaken);
            }
            match &before {
                Some(before) if before.disabled || before.expires_at.is_some_and(|end| end <= at.0) => {
                    return Ok(ArrivalOutcome::Disabled);
                }
                Some(before) => {
                    if before.name != person.name.as_str() {
                        query(usage::RAISE_GENERATION).execute(&mut *tx).await?;
                    }
                    query("UPDATE users SET name = $2, display_name = $3, mail = $4, uid_number = $5,
                         directory_role = COALESCE($6, directory_role),
                         subject = $7, absent_since = NULL, folded_display_name = $8, directory_unix_name = $9 WHERE id = $1")
                        .bind(id).bind(person.name.as_str()).bind(person.display_name).bind(person.mail).bind(uid)
                        .bind(person.role.map(Role::as_str)).bind(person.subject).bind(fold(person.display_name))
                        .bind(person.unix_name).execute(&mut *tx).await?;
                }
                None => {
                    query("INSERT INTO users (id, source, subject, name, display_name, mail, uid_number, role,
                         directory_role, disabled, theme, created_at, folded_display_name, directory_unix_name)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, 'user', $8, $9, 'system', $10, $11, $12)")
                        .bind(id).bind(person.source).bind(person.subject).bind(person.name.as_str())
                        .bind(person.display_name).bind(person.mail).bind(uid)
                        .bind(person.role.unwrap_or(Role::User).as_str())
                        .bind(false).bind(at.0).bind(fold(person.display_name)).bind(person.unix_name).execute(&mut *tx).await?;
                }
            }
            let mut old: Vec<String> = query_scalar(
                "SELECT subject FROM group_members JOIN groups ON groups.id = group_id WHERE user_id = $1 AND source = $2")
                .bind(id).bind(person.source).fetch_all(&mut *tx).await?;
            old.sort();
            let mut new: Vec<&str> = person.groups.iter().map(|group| group.subject.as_str()).collect();
            new.sort_unstable();
            let moved = old != new;
            if moved {
                query("DELETE FROM group_members WHERE user_id = $1 AND group_id IN
                     (SELECT id FROM groups WHERE source = $2)")
                    .bind(id).bind(person.source).execute(&mut *tx).await?;
                for group in person.groups {
                    query("INSERT INTO groups (id, source, subject, name, folded_name) VALUES ($1, $2, $3, $4, $5)
                         ON CONFLICT (source, subject)
                         DO UPDATE SET name = excluded.name, folded_name = excluded.folded_name")
                        .bind(UserId::new().to_string()).bind(person.source).bind(&group.subject).bind(&group.name)
                        .bind(fold(&group.name)).execute(&mut *tx).await?;
                    let back = query(BACK).bind(person.source).bind(&group.subject).execute(&mut *tx).await?;
                    if back.rows_affected() > 0 {
                        append_audit(&mut *tx, &ChangedBy { actor: "directory", at }.did("group.back", &group.name, &group.subject)).await?;
                    }
                    query("INSERT INTO group_members (group_id, user_id)
                         SELECT id, $3 FROM groups WHERE source = $1 AND subject = $2")
                        .bind(person.source).bind(&group.subject).bind(id).execute(&mut *tx).await?;
                }
            }
            let changed = before.as_ref().is_some_and(|before| {
                person.role.is_some_and(|role| before.directory_role.as_deref() != Some(role.as_str()))
                    || before.name != person.name.as_str()
                    || before.absent_since.is_some() || moved
            });
            if changed {
                query(RAISE_GENERATION).execute(&mut *tx).await?;
            }
            ArrivalOutcome::Known(parse(id, "user id")?)
        });
        Ok(arrival)
    }

    /// Notes that the directory no longer lists somebody: their logins end at once and their
    /// tokens rest. `because` is for the audit log. Answers whether that is news.
    pub async fn leave(&self, id: UserId, because: &str, at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let news = transaction!(self, tx => {
            let done = query("UPDATE users SET absent_since = $2 WHERE id = $1 AND absent_since IS NULL")
                .bind(&id).bind(at.0).execute(&mut *tx).await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            query("DELETE FROM logins WHERE user_id = $1").bind(&id).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            let name: String = query_scalar("SELECT name FROM users WHERE id = $1").bind(&id).fetch_one(&mut *tx).await?;
            append_audit(&mut *tx, &ChangedBy { actor: "directory", at }.did("access.lost", &name, because)).await?;
            true
        });
        Ok(news)
    }

    /// The groups of a source whose going would leave something behind.
    pub async fn watched_groups(&self, source: &str) -> Result<Vec<WatchedGroup>> {
        let rows: Vec<(String, String, bool)> = reading!(self, pool => query_as(
            "SELECT id, subject, absent_since IS NOT NULL FROM groups WHERE source = $1
                 AND (chargeable OR restrictive OR absent_since IS NOT NULL
                   OR id IN (SELECT scope_id FROM quota_limits WHERE scope = 'group'))
             ORDER BY id")
            .bind(source).fetch_all(pool).await)?;
        let group = |(id, subject, is_absent): (String, String, bool)| {
            Ok(WatchedGroup { id: parse(&id, "group id")?, subject, is_absent })
        };
        rows.into_iter().map(group).collect()
    }

    /// Notes that the directory no longer has a group: nobody is in it, and what is set for it
    /// rests. Answers whether that is news.
    pub async fn group_gone(&self, id: GroupId, at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let news = transaction!(self, tx => {
            let done = query("UPDATE groups SET absent_since = $2
                 WHERE id = $1 AND source <> 'local' AND absent_since IS NULL")
                .bind(&id).bind(at.0).execute(&mut *tx).await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            query("DELETE FROM group_members WHERE group_id = $1").bind(&id).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            let (name, subject): (String, String) = query_as("SELECT name, subject FROM groups WHERE id = $1")
                .bind(&id).fetch_one(&mut *tx).await?;
            append_audit(&mut *tx, &ChangedBy { actor: "directory", at }.did("group.gone", &name, &subject)).await?;
            true
        });
        Ok(news)
    }

    /// Notes that the directory has a group again, whoever is in it. Answers whether that is news.
    pub async fn group_back(&self, id: GroupId, at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let news = transaction!(self, tx => {
            let found: Option<(String, String, String)> = query_as(
                "SELECT source, name, subject FROM groups WHERE id = $1").bind(&id).fetch_optional(&mut *tx).await?;
            let Some((source, name, subject)) = found else { return Ok(false) };
            let done = query(BACK).bind(&source).bind(&subject).execute(&mut *tx).await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, &ChangedBy { actor: "directory", at }.did("group.back", &name, &subject)).await?;
            true
        });
        Ok(news)
    }

    /// Everybody of a source who could be in: with a login or a token, and not disabled.
    pub async fn people_in(&self, source: &str) -> Result<Vec<Known>> {
        let rows: Vec<(String, String, String)> = reading!(self, pool => query_as(
            "SELECT id, subject, name FROM users WHERE source = $1 AND NOT disabled
                 AND (EXISTS (SELECT 1 FROM logins WHERE user_id = users.id)
                   OR EXISTS (SELECT 1 FROM tokens WHERE user_id = users.id))
             ORDER BY id")
            .bind(source).fetch_all(pool).await)?;
        rows.into_iter().map(|(id, subject, name)| Ok(Known { id: parse(&id, "user id")?, subject, name })).collect()
    }

    /// The names of somebody's groups, in order.
    pub async fn groups_of(&self, user: UserId) -> Result<Vec<String>> {
        let user = user.to_string();
        let mut names: Vec<String> = reading!(self, pool => query_scalar(
            "SELECT DISTINCT name FROM group_members JOIN groups ON groups.id = group_id WHERE user_id = $1")
            .bind(&user).fetch_all(pool).await)?;
        names.sort();
        Ok(names)
    }

    /// The names of everybody's groups, in order: those that they are in (`group_members`) or
    /// manage (`group_managers`).
    pub(super) async fn groups_of_everybody(&self, table: &'static str) -> Result<HashMap<UserId, Vec<String>>> {
        let sql = format!("SELECT DISTINCT user_id, name FROM {table} JOIN groups ON groups.id = group_id");
        let rows: Vec<(String, String)> = reading!(self, pool => query_as(AssertSqlSafe(sql)).fetch_all(pool).await)?;
        let mut groups = HashMap::<UserId, Vec<String>>::new();
        for (user, name) in rows {
            groups.entry(parse(&user, "user id")?).or_default().push(name);
        }
        for names in groups.values_mut() {
            names.sort();
        }
        Ok(groups)
    }

    /// Gives the account of a name to whoever the directory calls so: they take it over, with
    /// all that it has, at their next sign-in. Its password and logins end. Answers whether
    /// there is such an account; service accounts cannot be linked.
    pub async fn link_user(&self, name: &Username, source: &str, by: ChangedBy<'_>) -> Result<bool> {
        let subject = linked_to(name.as_str());
        let found = transaction!(self, tx => {
            let done = query("UPDATE users SET source = $2, subject = $3, password_hash = NULL WHERE name = $1 AND source <> 'service'")
                .bind(name.as_str()).bind(source).bind(&subject).execute(&mut *tx).await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            query("DELETE FROM logins WHERE user_id IN (SELECT id FROM users WHERE name = $1)")
                .bind(name.as_str()).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            append_audit(&mut *tx, &by.did("user.link", name.as_str(), source)).await?;
            true
        });
        Ok(found)
    }
}

/// The subject of an account that waits for its owner of the directory. No directory gives
/// such an id: those are `attribute=value`.
fn linked_to(name: &str) -> String {
    format!("linked {name}")
}
