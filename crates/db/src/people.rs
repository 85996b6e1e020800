//! People as administrators see and change them: one page of the list, changes that never
//! take the last administrator, and the removal of an account that nobody ever used. The
//! account itself, as sign-in reads it, is in `users`.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, FromRow, query::QueryAs, query_as, query_scalar};

use super::{
    Db, Error, Result,
    audit::{ChangedBy, append_audit},
    expiry,
    idempotency::{self, IdempotentRequest},
    reading,
    search::{Named, by_parts, fold, pattern},
    settings::RAISE_GENERATION,
    transaction,
    tx::Tx,
    types::parse,
    users::{COLUMNS, NewUser, Row, SignIn},
};
use lyceum_model::{
    Role, Timestamp, User, UserId,
    user::{ExpiryChange, State},
};

/// Which people to list.
#[derive(Clone, Debug)]
pub struct PeopleFilter {
    /// A part of the name or the display name, in whatever case; empty for everybody.
    pub find: String,
    pub role: Option<Role>,
    pub state: Option<State>,
    /// Those alone that expire before this moment.
    pub expires_before: Option<Timestamp>,
    /// `local` or `ldap`.
    pub source: Option<String>,
    pub sort: Sort,
    /// The last one of the page before.
    pub after: Option<PeoplePosition>,
    pub limit: i64,
}

/// The order of a list of people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Name,
    NameDown,
    /// Those first who were seen longest ago, or never.
    Seen,
    SeenDown,
}

/// Identifies a position in the sorted list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeoplePosition {
    Name(String),
    Seen(i64, UserId),
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUser {
    pub user: User,
    /// How many of their sessions have not ended.
    pub sessions: i64,
}

/// What an administrator changes of an account; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct UserChange<'a> {
    pub display_name: Option<&'a str>,
    /// What is given here; a directory may still give more.
    pub role: Option<Role>,
    pub disabled: Option<bool>,
    pub expires_at: ExpiryChange,
    pub password_hash: Option<&'a str>,
}

/// What a change is compared with.
#[derive(FromRow)]
struct PreviousUser {
    name: String,
    display_name: String,
    role: String,
    directory_role: Option<String>,
    disabled: bool,
    expires_at: Option<i64>,
}

impl PreviousUser {
    fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at.map(Timestamp)
    }

    /// What a change does, as action and detail for the audit log; what is so already is no deed.
    fn deeds(&self, change: &UserChange<'_>) -> Vec<(&'static str, String)> {
        let display_name = change.display_name.filter(|name| *name != self.display_name);
        let role = change.role.map(Role::as_str).filter(|role| *role != self.role);
        let disabled = change.disabled.filter(|disabled| *disabled != self.disabled);
        let (before, after) = (self.expires_at(), change.expires_at.upon(self.expires_at()));
        let moment = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        [
            display_name.map(|name| ("user.display_name", name.to_owned())),
            role.map(|role| ("user.role", format!("{} → {role}", self.role))),
            // Before it is enabled, as the reader of the log expects.
            (before != after).then(|| ("user.expiry", format!("{} → {}", moment(before), moment(after)))),
            disabled.map(|disabled| (if disabled { "user.disable" } else { "user.enable" }, String::new())),
            change.password_hash.map(|_| ("user.password", String::new())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// An administrator who can sign in, and whose account does not expire: whoever has no password of ours has one elsewhere.
const STANDING_ADMIN: &str = "(role = 'admin' OR directory_role = 'admin') AND NOT disabled AND absent_since IS NULL
     AND expires_at IS NULL AND source <> 'service' AND (source <> 'local' OR password_hash IS NOT NULL)";

/// Counted here: to group them, SQLite would read the whole history by its owners.
pub(super) const LIVE_OWNERS: &str = "SELECT owner FROM sessions WHERE state <> 'ended'";

/// The text that lists: `$1` pattern, `$2` source, `$3` and `$4` the place after which it goes
/// on, `$5` how many, `$6` the expression of the few names where `is_few`, `$7` the moment before which they expire. A condition is there only when it is asked
/// for, so that an index serves the order and nothing is sorted.
pub(super) fn list(filter: &PeopleFilter, is_few: bool) -> String {
    let find = if filter.find.is_empty() {
        "$1 = ''"
    } else {
        "(name LIKE $1 ESCAPE '!' OR folded_display_name LIKE $1 ESCAPE '!')"
    };
    let parts = by_parts("users.id", Named::User, "$6", is_few);
    let source = if filter.source.is_some() { "source = $2" } else { "$2 = ''" };
    // The first words are those of the index `users_raised`, in which there are few.
    let role = match filter.role {
        None => "",
        Some(Role::Admin) => {
            "AND (role <> 'user' OR directory_role <> 'user')
             AND (role = 'admin' OR directory_role = 'admin')"
        }
        Some(Role::Operator) => {
            "AND (role <> 'user' OR directory_role <> 'user')
             AND (role = 'operator' OR directory_role = 'operator') AND role <> 'admin'
             AND (directory_role IS NULL OR directory_role <> 'admin')"
        }
        Some(Role::User) => "AND role = 'user' AND (directory_role IS NULL OR directory_role = 'user')",
    };
    let state = match filter.state {
        None => "",
        Some(State::Active) => "AND NOT disabled AND absent_since IS NULL",
        Some(State::Disabled) => "AND disabled AND expired_at IS NULL AND dormant_at IS NULL",
        Some(State::Expired) => "AND disabled AND expired_at IS NOT NULL",
        Some(State::Dormant) => "AND disabled AND dormant_at IS NOT NULL AND expired_at IS NULL",
        Some(State::Absent) => "AND NOT disabled AND absent_since IS NOT NULL",
    };
    let expires = match filter.expires_before {
        None => "$7 = 0",
        Some(_) => "expires_at IS NOT NULL AND expires_at < $7",
    };
    let seen = "COALESCE(last_seen_at, 0)";
    let after = match (&filter.after, filter.sort) {
        (Some(PeoplePosition::Name(_)), Sort::NameDown) => "name < $3 AND $4 = 0".to_owned(),
        (Some(PeoplePosition::Name(_)), _) => "name > $3 AND $4 = 0".to_owned(),
        (Some(PeoplePosition::Seen(..)), Sort::SeenDown) => format!("{seen} <= $4 AND ({seen} < $4 OR id < $3)"),
        (Some(PeoplePosition::Seen(..)), _) => format!("{seen} >= $4 AND ({seen} > $4 OR id > $3)"),
        (None, _) => "$3 = '' AND $4 = 0".to_owned(),
    };
    let order = match filter.sort {
        Sort::Name => "name".to_owned(),
        Sort::NameDown => "name DESC".to_owned(),
        Sort::Seen => format!("{seen}, id"),
        Sort::SeenDown => format!("{seen} DESC, id DESC"),
    };
    format!(
        "SELECT {COLUMNS} FROM users WHERE {find} {parts} AND {source} {role} {state} AND {expires} AND {after} ORDER BY {order} LIMIT $5"
    )
}

/// `$1, $2, …`
pub(super) fn places(count: usize) -> String {
    (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

impl Db {
    /// One page of people, with their groups and how many sessions they have.
    pub async fn list_people(&self, filter: &PeopleFilter) -> Result<Vec<ListedUser>> {
        let few = self.few_with_part(Named::User, &filter.find).await?;
        let (sql, find) = (list(filter, !few.is_empty()), pattern(&filter.find));
        let source = filter.source.clone().unwrap_or_default();
        let (text, number) = match &filter.after {
            None => (String::new(), 0),
            Some(PeoplePosition::Name(name)) => (name.clone(), 0),
            Some(PeoplePosition::Seen(at, id)) => (id.to_string(), *at),
        };
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(&find).bind(&source).bind(&text).bind(number).bind(filter.limit).bind(&few)
            .bind(filter.expires_before.unwrap_or_default().0)
            .fetch_all(pool).await)?;
        let users = rows.into_iter().map(|row| Ok(row.account()?.user)).collect::<Result<Vec<_>>>()?;
        let ids: Vec<UserId> = users.iter().map(|user| user.id).collect();
        let (mut groups, live) = (self.groups_of_some(&ids).await?, self.live_by_owner().await?);
        Ok(users
            .into_iter()
            .map(|mut user| {
                user.groups = groups.remove(&user.id).unwrap_or_default();
                let sessions = live.get(&user.id).copied().unwrap_or_default();
                ListedUser { user, sessions }
            })
            .collect())
    }

    /// How many live sessions everybody has who has some.
    pub async fn live_by_owner(&self) -> Result<HashMap<UserId, i64>> {
        let owners: Vec<String> = reading!(self, pool => query_scalar(LIVE_OWNERS).fetch_all(pool).await)?;
        let mut live = HashMap::new();
        for owner in owners {
            *live.entry(parse(&owner, "user id")?).or_default() += 1;
        }
        Ok(live)
    }

    /// The names of the groups of some people, in order.
    async fn groups_of_some(&self, users: &[UserId]) -> Result<HashMap<UserId, Vec<String>>> {
        let mut groups = HashMap::<UserId, Vec<String>>::new();
        if users.is_empty() {
            return Ok(groups);
        }
        let sql = format!(
            "SELECT DISTINCT user_id, name FROM group_members JOIN groups ON groups.id = group_id WHERE user_id IN ({})",
            places(users.len())
        );
        let ids: Vec<String> = users.iter().map(UserId::to_string).collect();
        let rows: Vec<(String, String)> = reading!(self, pool => {
            let question = query_as(AssertSqlSafe(sql));
            ids.iter().fold(question, QueryAs::bind).fetch_all(pool).await
        })?;
        for (user, name) in rows {
            groups.entry(parse(&user, "user id")?).or_default().push(name);
        }
        for names in groups.values_mut() {
            names.sort();
        }
        Ok(groups)
    }

    /// As [`Db::add_user`], and remembers the Idempotency-Key of its request, both or neither;
    /// [`Error::Unique`] when the name is taken or the key was used.
    pub async fn add_person(
        &self,
        new: NewUser<'_>,
        once: Option<IdempotentRequest<'_>>,
        by: ChangedBy<'_>,
    ) -> Result<UserId> {
        let id = UserId::new();
        transaction!(self, tx => add(Tx::from(&mut *tx), id, new, once, by).await?);
        Ok(id)
    }

    /// Changes an account, all or nothing; disabling it and a new password end its logins at
    /// once. Answers whether anything was not as it should be before.
    /// [`Error::LastAdmin`] when nobody would be left who can sign in as administrator and does not
    /// expire; [`Error::Expired`] when an account is to be enabled that has expired.
    pub async fn change_user(&self, id: UserId, change: &UserChange<'_>, by: ChangedBy<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => change_account(Tx::from(&mut *tx), id, change, by).await?))
    }

    /// Removes a local account that was never used, with its tokens, groups and limits. False
    /// where it was used, so that its history has to stay; [`Error::LastAdmin`] as above.
    pub async fn remove_user(&self, id: UserId, by: ChangedBy<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => remove_account(Tx::from(&mut *tx), id, by).await?))
    }
}

/// Adds an account inside a transaction.
pub(super) async fn add(
    mut tx: Tx<'_>,
    id: UserId,
    new: NewUser<'_>,
    once: Option<IdempotentRequest<'_>>,
    by: ChangedBy<'_>,
) -> Result<()> {
    let text = id.to_string();
    tx.query(
        "INSERT INTO users
             (id, source, subject, name, display_name, unix_name, role, disabled, password_hash, theme, created_at,
                 folded_display_name)
             VALUES ($1, $10, $1, $2, $3, $4, $5, $6, $7, 'system', $8, $9)",
    )
    .bind(&text)
    .bind(new.name.as_str())
    .bind(new.display_name)
    .bind(new.unix_name)
    .bind(new.role.as_str())
    .bind(false)
    .bind(new.sign_in.password_hash())
    .bind(by.at.0)
    .bind(fold(new.display_name))
    .bind(new.sign_in.source())
    .execute()
    .await?;
    if let Some(once) = once {
        remember(tx.again(), once, &text, by).await?;
    }
    let kind = if matches!(new.sign_in, SignIn::Never) { ", service account" } else { "" };
    append_audit(tx, &by.did("user.add", new.name.as_str(), &format!("{}{kind}", new.role.as_str()))).await
}

/// Remembers the Idempotency-Key of a request and the id that it made.
pub(super) async fn remember(mut tx: Tx<'_>, once: IdempotentRequest<'_>, made: &str, by: ChangedBy<'_>) -> Result<()> {
    let added = tx.query(idempotency::ADD).bind(once.user.to_string()).bind(once.key).bind(once.request_hash);
    added.bind(made).bind(by.at.0).execute().await.map(drop)
}

/// [`Db::change_user`] inside a transaction, which an error has to roll back.
pub(super) async fn change_account(
    mut tx: Tx<'_>,
    id: UserId,
    change: &UserChange<'_>,
    by: ChangedBy<'_>,
) -> Result<bool> {
    let id = id.to_string();
    let before: Option<PreviousUser> = tx
        .query("SELECT name, display_name, role, directory_role, disabled, expires_at FROM users WHERE id = $1")
        .bind(&id)
        .first()
        .await?;
    let Some(mut before) = before else { return Ok(false) };
    let expired = |end: Option<Timestamp>| end.filter(|end| *end <= by.at);
    if !before.disabled && expired(before.expires_at()).is_some() {
        // The change meets an account that has expired, whether or not that was written down yet.
        expiry::expire(tx.again(), &id, by.at).await?;
        before.disabled = true;
    }
    if change.disabled == Some(false)
        && let Some(end) = expired(change.expires_at.upon(before.expires_at()))
    {
        return Err(Error::Expired(end));
    }
    let deeds = before.deeds(change);
    if deeds.is_empty() {
        return Ok(false);
    }
    let stays = before.directory_role.as_deref() == Some(Role::Admin.as_str());
    let lowered = change.role.is_some_and(|role| role < Role::Admin) && !stays;
    let ends = change.disabled == Some(true) || matches!(change.expires_at, ExpiryChange::At(_));
    if ends || lowered {
        let they = standing_admins(tx.again(), &id, "=").await?;
        let others = standing_admins(tx.again(), &id, "<>").await?;
        if they > 0 && others == 0 {
            return Err(Error::LastAdmin);
        }
    }
    tx.query(
        "UPDATE users SET display_name = COALESCE($2, display_name), role = COALESCE($3, role),
             disabled = COALESCE($4, disabled), password_hash = COALESCE($5, password_hash),
             folded_display_name = COALESCE($6, folded_display_name), expires_at = $7,
             expired_at = CASE WHEN $8 THEN NULL ELSE expired_at END,
             dormant_at = CASE WHEN $8 THEN NULL ELSE dormant_at END,
             enabled_at = CASE WHEN $8 THEN $9 ELSE enabled_at END WHERE id = $1",
    )
    .bind(&id)
    .bind(change.display_name)
    .bind(change.role.map(Role::as_str))
    .bind(change.disabled)
    .bind(change.password_hash)
    .bind(change.display_name.map(fold))
    .bind(change.expires_at.upon(before.expires_at()).map(|end| end.0))
    .bind(change.disabled == Some(false))
    .bind(by.at.0)
    .execute()
    .await?;
    if change.disabled == Some(true) || change.password_hash.is_some() {
        tx.query("DELETE FROM logins WHERE user_id = $1").bind(&id).execute().await?;
        // A link by which the password could be changed once more.
        tx.query("DELETE FROM account_invitations WHERE user_id = $1").bind(&id).execute().await?;
    }
    tx.query(RAISE_GENERATION).execute().await?;
    for (action, detail) in &deeds {
        append_audit(tx.again(), &by.did(action, &before.name, detail)).await?;
    }
    Ok(true)
}

/// Counts the administrators who can sign in and whose id compares to this one so.
async fn standing_admins(mut tx: Tx<'_>, id: &str, comparison: &str) -> Result<i64> {
    let sql = format!("SELECT COUNT(*) FROM users WHERE {STANDING_ADMIN} AND id {comparison} $1");
    let (count,): (i64,) = tx.query(AssertSqlSafe(sql)).bind(id).one().await?;
    Ok(count)
}

/// An account of this portal that nobody ever used.
pub(super) const UNUSED: &str = "source IN ('local', 'service') AND last_seen_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM sessions WHERE owner = users.id)
     AND NOT EXISTS (SELECT 1 FROM tokens WHERE user_id = users.id AND last_used_at IS NOT NULL)";

/// [`Db::remove_user`] inside a transaction, which an error has to roll back.
pub(super) async fn remove_account(mut tx: Tx<'_>, id: UserId, by: ChangedBy<'_>) -> Result<bool> {
    let id = id.to_string();
    let unused = format!("SELECT name FROM users WHERE id = $1 AND {UNUSED}");
    let unused: Option<(String,)> = tx.query(AssertSqlSafe(unused)).bind(&id).first().await?;
    let Some((name,)) = unused else { return Ok(false) };
    if standing_admins(tx.again(), &id, "<>").await? == 0 {
        return Err(Error::LastAdmin);
    }
    let theirs = [
        "logins",
        "tokens",
        "idempotency",
        "group_members",
        "group_managers",
        "group_invitations",
        "account_invitations",
        "announcement_dismissals",
        "notification_wishes",
        "notifications",
        "notification_events",
        "registry_credentials",
        "presets",
    ];
    for table in theirs {
        let sql = format!("DELETE FROM {table} WHERE user_id = $1");
        tx.query(AssertSqlSafe(sql)).bind(&id).execute().await?;
    }
    tx.query("DELETE FROM quota_limits WHERE scope = 'user' AND scope_id = $1").bind(&id).execute().await?;
    tx.query("DELETE FROM users WHERE id = $1").bind(&id).execute().await?;
    tx.query(RAISE_GENERATION).execute().await?;
    append_audit(tx, &by.did("user.remove", &name, "")).await?;
    Ok(true)
}
