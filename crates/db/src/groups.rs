//! Groups, who is in them and who manages them. What a directory says of its groups is
//! written in `directory`; here they are read, and those that were made here are changed. A
//! change of who is where raises the access generation in the same transaction.

use sqlx::{AssertSqlSafe, FromRow, query, query::QueryAs, query_as, query_scalar};

use super::{
    Db, Error, Result,
    audit::{ChangedBy, append_audit},
    idempotency::IdempotentRequest,
    people::{places, remember},
    reading,
    search::{fold, pattern},
    sessions,
    settings::RAISE_GENERATION,
    transaction,
    tx::Tx,
    types::parse,
};
use lyceum_model::{Group, GroupId, GroupName, Session, Timestamp, UserId, Username, user::State};

/// Which groups to list, by name.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// A part of the name, in whatever case; empty for all.
    pub find: String,
    /// Only those that this person manages.
    pub manager: Option<UserId>,
    /// Name and id of the last one of the page before; names may stand twice.
    pub after: Option<(String, GroupId)>,
    pub limit: i64,
}

/// One line of the list of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub group: Group,
    pub members: i64,
    /// The names of who manages it, in order.
    pub managers: Vec<String>,
}

/// Somebody in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: UserId,
    pub name: Username,
    pub display_name: String,
    pub state: State,
    pub last_seen_at: Option<Timestamp>,
    /// An operator or administrator.
    pub is_staff: bool,
}

/// Who looks at what a group's people do: its managers see nothing of operators and administrators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Staff,
    Managers,
}

/// Describes a user's membership in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub group: Group,
    pub is_member: bool,
    pub is_manager: bool,
}

#[derive(FromRow)]
pub(super) struct Row {
    id: String,
    source: String,
    subject: String,
    name: String,
    created_at: Option<i64>,
    absent_since: Option<i64>,
}

impl Row {
    pub(super) fn group(self) -> Result<Group> {
        Ok(Group {
            id: parse(&self.id, "group id")?,
            name: self.name,
            source: self.source,
            subject: self.subject,
            created_at: self.created_at.map(Timestamp),
            absent_since: self.absent_since.map(Timestamp),
        })
    }
}

#[derive(FromRow)]
struct MemberRow {
    id: String,
    name: String,
    display_name: String,
    disabled: bool,
    expired_at: Option<i64>,
    dormant_at: Option<i64>,
    absent_since: Option<i64>,
    last_seen_at: Option<i64>,
    is_staff: bool,
}

impl MemberRow {
    fn member(self) -> Result<Member> {
        Ok(Member {
            id: parse(&self.id, "user id")?,
            name: Username::parse(&self.name).map_err(|_err| Error::Stored("user name"))?,
            display_name: self.display_name,
            state: State::of(
                self.disabled,
                self.expired_at.map(Timestamp),
                self.dormant_at.map(Timestamp),
                self.absent_since.map(Timestamp),
            ),
            last_seen_at: self.last_seen_at.map(Timestamp),
            is_staff: self.is_staff,
        })
    }
}

const COLUMNS: &str = "groups.id, groups.source, groups.subject, groups.name, groups.created_at, groups.absent_since";

/// `$1` the id of a group that was made here.
const OUR_NAME: &str = "SELECT name FROM groups WHERE id = $1 AND source = 'local'";

/// `$1` a group that was made here, `$2` who is taken out of it.
const REMOVE_MEMBER: &str = "DELETE FROM group_members WHERE user_id = $2
     AND group_id = (SELECT id FROM groups WHERE id = $1 AND source = 'local')";

/// The text that lists: `$1` pattern, `$2` manager, `$3` name and `$4` id before, `$5` how many.
pub(super) fn list(filter: &GroupFilter) -> String {
    let find = if filter.find.is_empty() { "$1 = ''" } else { "folded_name LIKE $1 ESCAPE '!'" };
    let manager = match filter.manager {
        Some(_) => "id IN (SELECT group_id FROM group_managers WHERE user_id = $2)",
        None => "$2 = ''",
    };
    let after = if filter.after.is_some() { "name >= $3 AND (name > $3 OR id > $4)" } else { "$3 = '' AND $4 = ''" };
    format!("SELECT {COLUMNS} FROM groups WHERE {find} AND {manager} AND {after} ORDER BY name, id LIMIT $5")
}

/// `$1` group, `$2` the name before, `$3` how many.
pub(super) const MEMBERS: &str =
    "SELECT users.id, users.name, display_name, disabled, expired_at, dormant_at, absent_since,
         last_seen_at, role <> 'user' OR COALESCE(directory_role, 'user') <> 'user' AS is_staff FROM users
     JOIN group_members ON user_id = users.id WHERE group_id = $1 AND users.name > $2 ORDER BY users.name LIMIT $3";

/// `$1` group, `$2` how many. Asked of each live session, so that no history is read.
pub(super) fn sessions(db: &Db, audience: Audience) -> String {
    let theirs = match audience {
        Audience::Staff => "EXISTS (SELECT 1 FROM group_members WHERE group_id = $1 AND user_id = s.owner)",
        Audience::Managers => {
            "EXISTS (SELECT 1 FROM group_members JOIN users ON users.id = user_id
                 WHERE group_id = $1 AND user_id = s.owner
                     AND role = 'user' AND COALESCE(directory_role, 'user') = 'user')"
        }
    };
    format!("{} WHERE s.state <> 'ended' AND {theirs} ORDER BY s.id DESC LIMIT $2", sessions::select(db))
}

impl Db {
    /// One page of groups, with how many are in them and who manages them.
    pub async fn list_groups(&self, filter: &GroupFilter) -> Result<Vec<ListedGroup>> {
        let (sql, find) = (list(filter), pattern(&filter.find));
        let manager = filter.manager.map(|id| id.to_string()).unwrap_or_default();
        let (name, id) = filter.after.clone().map(|(name, id)| (name, id.to_string())).unwrap_or_default();
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(&find).bind(&manager).bind(&name).bind(&id).bind(filter.limit).fetch_all(pool).await)?;
        let groups = rows.into_iter().map(Row::group).collect::<Result<Vec<_>>>()?;
        self.with_people(groups).await
    }

    /// The group of an id, or those of a name: a directory may have several that are called alike.
    pub async fn find_groups(&self, id_or_name: &str) -> Result<Vec<ListedGroup>> {
        // PostgreSQL refuses such a text, and nothing is called so.
        if id_or_name.contains('\0') {
            return Ok(Vec::new());
        }
        let column = if id_or_name.parse::<GroupId>().is_ok() { "id" } else { "name" };
        let sql = format!("SELECT {COLUMNS} FROM groups WHERE {column} = $1 ORDER BY id");
        let rows: Vec<Row> =
            reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(id_or_name).fetch_all(pool).await)?;
        let groups = rows.into_iter().map(Row::group).collect::<Result<Vec<_>>>()?;
        self.with_people(groups).await
    }

    async fn with_people(&self, groups: Vec<Group>) -> Result<Vec<ListedGroup>> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = groups.iter().map(|group| group.id.to_string()).collect();
        let places = places(ids.len());
        let count =
            format!("SELECT group_id, COUNT(*) FROM group_members WHERE group_id IN ({places}) GROUP BY group_id");
        let managers = format!(
            "SELECT group_id, name FROM group_managers JOIN users ON users.id = user_id WHERE group_id IN ({places})"
        );
        let counts: Vec<(String, i64)> = reading!(self, pool => {
            let question = query_as(AssertSqlSafe(count));
            ids.iter().fold(question, QueryAs::bind).fetch_all(pool).await
        })?;
        let managers: Vec<(String, String)> = reading!(self, pool => {
            let question = query_as(AssertSqlSafe(managers));
            ids.iter().fold(question, QueryAs::bind).fetch_all(pool).await
        })?;
        let one = |(group, id): (Group, &String)| {
            let mut names: Vec<String> =
                managers.iter().filter(|(of, _)| of == id).map(|(_, name)| name.clone()).collect();
            names.sort();
            let members = counts.iter().find(|(of, _)| of == id).map_or(0, |(_, count)| *count);
            ListedGroup { group, members, managers: names }
        };
        Ok(groups.into_iter().zip(&ids).map(one).collect())
    }

    /// Some of a group's people by name, after one when given.
    pub async fn group_members(&self, group: GroupId, after: Option<&str>, limit: i64) -> Result<Vec<Member>> {
        let group = group.to_string();
        let rows: Vec<MemberRow> = reading!(self, pool => query_as(MEMBERS)
            .bind(&group).bind(after.unwrap_or_default()).bind(limit).fetch_all(pool).await)?;
        rows.into_iter().map(MemberRow::member).collect()
    }

    /// The live sessions of a group's people, newest first.
    pub async fn group_sessions(&self, group: GroupId, audience: Audience, limit: i64) -> Result<Vec<Session>> {
        let group = group.to_string();
        let rows: Vec<String> = reading!(self, pool =>
            query_scalar(AssertSqlSafe(sessions(self, audience))).bind(&group).bind(limit).fetch_all(pool).await)?;
        rows.iter().map(|row| sessions::session(row)).collect()
    }

    /// Every group that somebody is in or manages, by name.
    pub async fn belongings(&self, user: UserId) -> Result<Vec<Membership>> {
        let sql = |table: &str| {
            format!("SELECT {COLUMNS} FROM groups JOIN {table} ON groups.id = group_id WHERE user_id = $1")
        };
        let user = user.to_string();
        let (members, managers) = (sql("group_members"), sql("group_managers"));
        let member_of: Vec<Row> =
            reading!(self, pool => query_as(AssertSqlSafe(members)).bind(&user).fetch_all(pool).await)?;
        let manager_of: Vec<Row> =
            reading!(self, pool => query_as(AssertSqlSafe(managers)).bind(&user).fetch_all(pool).await)?;
        let mut all = Vec::new();
        for row in member_of {
            all.push(Membership { group: row.group()?, is_member: true, is_manager: false });
        }
        for row in manager_of {
            let group = row.group()?;
            match all.iter_mut().find(|belonging| belonging.group.id == group.id) {
                Some(belonging) => belonging.is_manager = true,
                None => all.push(Membership { group, is_member: false, is_manager: true }),
            }
        }
        all.sort_by(|a, b| (&a.group.name, a.group.id).cmp(&(&b.group.name, b.group.id)));
        Ok(all)
    }

    /// The names of the groups that somebody manages, in order.
    pub async fn managed_by(&self, user: UserId) -> Result<Vec<String>> {
        let user = user.to_string();
        let mut names: Vec<String> = reading!(self, pool => query_scalar(
            "SELECT DISTINCT name FROM group_managers JOIN groups ON groups.id = group_id WHERE user_id = $1")
            .bind(&user).fetch_all(pool).await)?;
        names.sort();
        Ok(names)
    }

    pub async fn is_manager(&self, group: GroupId, user: UserId) -> Result<bool> {
        let (group, user) = (group.to_string(), user.to_string());
        let count: i64 = reading!(self, pool => query_scalar(
            "SELECT COUNT(*) FROM group_managers WHERE group_id = $1 AND user_id = $2")
            .bind(&group).bind(&user).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Makes a group here; [`Error::Unique`] where any group has the name, or the key was used.
    pub async fn add_group(
        &self,
        name: &GroupName,
        once: Option<IdempotentRequest<'_>>,
        by: ChangedBy<'_>,
    ) -> Result<GroupId> {
        let id = GroupId::new();
        transaction!(self, tx => add(Tx::from(&mut *tx), id, name, once, by).await?);
        Ok(id)
    }

    /// Gives a group that was made here another name; false where there is no such group.
    pub async fn rename_group(&self, group: GroupId, name: &GroupName, by: ChangedBy<'_>) -> Result<bool> {
        let group = group.to_string();
        let renamed = transaction!(self, tx => {
            let before: Option<String> = query_scalar(OUR_NAME).bind(&group).fetch_optional(&mut *tx).await?;
            let Some(before) = before else { return Ok(false) };
            let taken: i64 = query_scalar("SELECT COUNT(*) FROM groups WHERE name = $1 AND id <> $2")
                .bind(name.as_str()).bind(&group).fetch_one(&mut *tx).await?;
            if taken > 0 {
                return Err(Error::Unique);
            }
            query("UPDATE groups SET name = $2, folded_name = $3 WHERE id = $1")
                .bind(&group).bind(name.as_str()).bind(fold(name.as_str())).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            append_audit(&mut *tx, &by.did("group.rename", name.as_str(), &format!("was {before}"))).await?;
            true
        });
        Ok(renamed)
    }

    /// Removes a group that was made here, or that its directory no longer has, with its limits; its people stay.
    pub async fn remove_group(&self, group: GroupId, by: ChangedBy<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => remove(Tx::from(&mut *tx), group, by).await?))
    }

    /// Puts somebody into a group that was made here, or takes them out; whether that changed anything.
    pub async fn set_member(&self, group: GroupId, user: UserId, is: bool, by: ChangedBy<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => set_member(Tx::from(&mut *tx), group, user, is, by).await?))
    }

    /// Takes somebody out of a group that was made here, by their own wish; whether they were in it.
    pub async fn leave_group(&self, group: GroupId, user: UserId, by: ChangedBy<'_>) -> Result<bool> {
        Ok(transaction!(self, tx =>
            change_people(Tx::from(&mut *tx), "group.leave", REMOVE_MEMBER, (group, user), by).await?))
    }

    /// Makes somebody a manager of a group of any source, or ends it; whether that changed anything.
    pub async fn set_manager(&self, group: GroupId, user: UserId, is: bool, by: ChangedBy<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => set_manager(Tx::from(&mut *tx), group, user, is, by).await?))
    }
}

/// [`Db::add_group`] inside a transaction, which an error has to roll back.
pub(super) async fn add(
    mut tx: Tx<'_>,
    id: GroupId,
    name: &GroupName,
    once: Option<IdempotentRequest<'_>>,
    by: ChangedBy<'_>,
) -> Result<()> {
    let text = id.to_string();
    let (taken,): (i64,) = tx.query("SELECT COUNT(*) FROM groups WHERE name = $1").bind(name.as_str()).one().await?;
    if taken > 0 {
        return Err(Error::Unique);
    }
    tx.query(
        "INSERT INTO groups (id, source, subject, name, created_at, folded_name)
             VALUES ($1, 'local', $1, $2, $3, $4)",
    )
    .bind(&text)
    .bind(name.as_str())
    .bind(by.at.0)
    .bind(fold(name.as_str()))
    .execute()
    .await?;
    if let Some(once) = once {
        remember(tx.again(), once, &text, by).await?;
    }
    append_audit(tx, &by.did("group.add", name.as_str(), "")).await
}

/// [`Db::remove_group`] inside a transaction.
pub(super) async fn remove(mut tx: Tx<'_>, group: GroupId, by: ChangedBy<'_>) -> Result<bool> {
    let group = group.to_string();
    let name: Option<(String,)> = tx
        .query("SELECT name FROM groups WHERE id = $1 AND (source = 'local' OR absent_since IS NOT NULL)")
        .bind(&group)
        .first()
        .await?;
    let Some((name,)) = name else { return Ok(false) };
    for table in ["group_members", "group_managers", "group_invitations", "counted_sessions", "presets"] {
        let sql = format!("DELETE FROM {table} WHERE group_id = $1");
        tx.query(AssertSqlSafe(sql)).bind(&group).execute().await?;
    }
    tx.query("DELETE FROM quota_limits WHERE scope = 'group' AND scope_id = $1").bind(&group).execute().await?;
    tx.query("DELETE FROM groups WHERE id = $1").bind(&group).execute().await?;
    tx.query(RAISE_GENERATION).execute().await?;
    append_audit(tx, &by.did("group.remove", &name, "")).await?;
    Ok(true)
}

/// [`Db::set_member`] inside a transaction.
pub(super) async fn set_member(tx: Tx<'_>, group: GroupId, user: UserId, is: bool, by: ChangedBy<'_>) -> Result<bool> {
    let (action, sql) = if is {
        (
            "group.member_add",
            "INSERT INTO group_members (group_id, user_id)
             SELECT id, $2 FROM groups WHERE id = $1 AND source = 'local' ON CONFLICT (group_id, user_id) DO NOTHING",
        )
    } else {
        ("group.member_remove", REMOVE_MEMBER)
    };
    change_people(tx, action, sql, (group, user), by).await
}

/// [`Db::set_manager`] inside a transaction.
pub(super) async fn set_manager(tx: Tx<'_>, group: GroupId, user: UserId, is: bool, by: ChangedBy<'_>) -> Result<bool> {
    let (action, sql) = if is {
        (
            "group.manager_add",
            "INSERT INTO group_managers (group_id, user_id) VALUES ($1, $2) ON CONFLICT (group_id, user_id) DO NOTHING",
        )
    } else {
        ("group.manager_remove", "DELETE FROM group_managers WHERE group_id = $1 AND user_id = $2")
    };
    change_people(tx, action, sql, (group, user), by).await
}

async fn change_people(
    mut tx: Tx<'_>,
    action: &str,
    sql: &'static str,
    (group, user): (GroupId, UserId),
    by: ChangedBy<'_>,
) -> Result<bool> {
    let (group, user) = (group.to_string(), user.to_string());
    let changed = tx.query(sql).bind(&group).bind(&user).execute().await?;
    if action == "group.member_add" {
        // Whoever is in it is invited no longer, and nothing that was declined is held against anybody.
        tx.query("DELETE FROM group_invitations WHERE group_id = $1 AND user_id = $2")
            .bind(&group)
            .bind(&user)
            .execute()
            .await?;
    }
    if changed > 0 {
        tx.query(RAISE_GENERATION).execute().await?;
        let (group, user): (String, String) = tx
            .query("SELECT groups.name, users.name FROM groups, users WHERE groups.id = $1 AND users.id = $2")
            .bind(&group)
            .bind(&user)
            .one()
            .await?;
        append_audit(tx, &by.did(action, &group, &user)).await?;
    }
    Ok(changed > 0)
}
