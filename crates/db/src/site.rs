//! What a site's file declares, as it is stored, and its changes as one transaction: the state is read, a plan is
//! made from it, and its steps are written, under the one write lock. Each step is the function that the single
//! change uses, with its rules and its row in the audit log. What the plan says is `lyceum-services`' business.

use std::collections::{HashMap, HashSet};

use super::{
    Db, Error, Result, account_invitations,
    account_invitations::AccountInvitation,
    announcements,
    audit::ChangedBy,
    groups, limits,
    limits::{Author, LevelChange, Outcome},
    people,
    people::UserChange,
    profiles,
    profiles::ProfileRow,
    quotas::{Level, SetLimit, SetRow},
    reading, transaction,
    tx::Tx,
    types::parse,
    users,
    users::{NewUser, SignIn},
};
use lyceum_model::{
    Announcement, Group, GroupId, GroupName, Role, Timestamp, User, UserId, Username, user::ExpiryChange,
};

/// Everything that a file can declare.
#[derive(Clone, Debug, Default)]
pub struct SiteState {
    /// By name, without their groups.
    pub users: Vec<User>,
    /// The local accounts that nobody ever used, which can be removed.
    pub unused: HashSet<UserId>,
    /// By name.
    pub groups: Vec<SiteGroupState>,
    /// Those that administrators added, in the order of lists.
    pub profiles: Vec<ProfileRow>,
    /// Those that are not over, in the order in which they were made.
    pub announcements: Vec<Announcement>,
    pub default_limits: Vec<SetLimit>,
    pub cluster_limits: Vec<SetLimit>,
    pub user_limits: HashMap<UserId, Vec<SetLimit>>,
}

/// A group with its people and limits.
#[derive(Clone, Debug)]
pub struct SiteGroupState {
    pub group: Group,
    pub chargeable: bool,
    pub restrictive: bool,
    pub members: HashSet<UserId>,
    pub managers: HashSet<UserId>,
    pub limits: Vec<SetLimit>,
}

/// One change of a plan.
#[derive(Clone, Debug)]
pub enum Step {
    AddUser {
        id: UserId,
        name: Username,
        display_name: String,
        role: Role,
        /// None: it is a service account.
        invitation: Option<AccountInvitation>,
    },
    ChangeUser {
        id: UserId,
        display_name: Option<String>,
        role: Option<Role>,
        disabled: Option<bool>,
        expires_at: ExpiryChange,
    },
    RemoveUser(UserId),
    AddGroup(GroupId, GroupName),
    RemoveGroup(GroupId),
    SetMember(GroupId, UserId, bool),
    SetManager(GroupId, UserId, bool),
    Limits(LevelChange),
    /// A profile, and the audit log's words for it.
    AddProfile(ProfileRow, String),
    ChangeProfile(ProfileRow, String),
    RemoveProfile(String),
    AddAnnouncement(Announcement, String),
    ChangeAnnouncement {
        before: Announcement,
        after: Announcement,
        detail: String,
    },
    RemoveAnnouncement(Announcement),
}

/// What to do with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Make the changes.
    Yes,
    /// Make them and take all of them back: what fails is known then.
    DryRun,
}

/// What became of a plan. Nothing is written unless it is `Done`.
#[derive(Debug)]
pub enum SiteOutcome {
    Done,
    /// As it was wanted: there was no plan, or this was a dry run.
    RolledBack,
    /// The step of this number cannot be made.
    Refused(usize, Error),
}

/// Everything that a file can declare: users, groups, who is in them, limits.
const USERS: &str = "SELECT id, source, name, display_name, unix_name, directory_unix_name, role, directory_role,
         disabled, expires_at, expired_at, dormant_at, absent_since, uid_number, password_hash, theme, created_at, last_seen_at FROM users ORDER BY id";
const GROUPS: &str = "SELECT id, source, subject, name, created_at, absent_since FROM groups ORDER BY name, id";
const MARKS: &str = "SELECT id, chargeable, restrictive FROM groups";
const MEMBERS: &str = "SELECT group_id, user_id FROM group_members";
const MANAGERS: &str = "SELECT group_id, user_id FROM group_managers";
const LIMITS: &str = "SELECT scope, scope_id, kind, field, value, expires_at, note, updated_by, updated_at
     FROM quota_limits ORDER BY field, kind";

/// A limit and the level that it is set at.
#[derive(sqlx::FromRow)]
struct LevelRow {
    scope: String,
    scope_id: String,
    #[sqlx(flatten)]
    limit: SetRow,
}

impl Db {
    /// Reads everything that a file can declare.
    pub async fn site_state(&self, now: Timestamp) -> Result<SiteState> {
        reading!(self, pool => {
            let mut tx = pool.begin().await?;
            read(Tx::from(&mut *tx), now).await
        })
    }

    /// Reads the state, has a plan made of it, and carries it out: all of it or nothing. Without a plan nothing is
    /// done. Others who change anything wait meanwhile.
    pub async fn apply_site(
        &self,
        commit: Commit,
        by: ChangedBy<'_>,
        plan: impl FnOnce(&SiteState) -> Option<Vec<Step>> + Send,
    ) -> Result<SiteOutcome> {
        Ok(transaction!(self, tx => {
            let state = read(Tx::from(&mut *tx), by.at).await?;
            let Some(steps) = plan(&state) else { return Ok(SiteOutcome::RolledBack) };
            for (number, step) in steps.iter().enumerate() {
                match make(Tx::from(&mut *tx), step, by).await {
                    Ok(()) => {}
                    Err(error @ (Error::LastAdmin | Error::Expired(_) | Error::Unique)) => {
                        return Ok(SiteOutcome::Refused(number, error));
                    }
                    Err(error) => return Err(error),
                }
            }
            if commit == Commit::DryRun {
                return Ok(SiteOutcome::RolledBack);
            }
            SiteOutcome::Done
        }))
    }
}

async fn read(mut tx: Tx<'_>, now: Timestamp) -> Result<SiteState> {
    let rows: Vec<users::Row> = tx.query(USERS).all().await?;
    let mut all = rows.into_iter().map(|row| Ok(row.account()?.user)).collect::<Result<Vec<_>>>()?;
    // Here, because PostgreSQL sorts text by the language that the database was made for.
    all.sort_by(|one: &User, other| one.name.cmp(&other.name));
    let unused = format!("SELECT id FROM users WHERE {}", people::UNUSED);
    let unused: Vec<(String,)> = tx.query(sqlx::AssertSqlSafe(unused)).all().await?;
    let unused = unused.iter().map(|(id,)| parse(id, "user id")).collect::<Result<_>>()?;
    let mut members = pairs(tx.again(), MEMBERS).await?;
    let mut managers = pairs(tx.again(), MANAGERS).await?;
    let marks: Vec<(String, bool, bool)> = tx.query(MARKS).all().await?;
    let marks: HashMap<String, (bool, bool)> =
        marks.into_iter().map(|(id, chargeable, restrictive)| (id, (chargeable, restrictive))).collect();
    let mut limits = limits_by_level(tx.again()).await?;
    let mut of = |scope: &str, id: String| limits.remove(&(scope.to_owned(), id)).unwrap_or_default();
    let rows: Vec<groups::Row> = tx.query(GROUPS).all().await?;
    let mut all_groups = Vec::new();
    for row in rows {
        let group = row.group()?;
        let id = group.id.to_string();
        let (chargeable, restrictive) = marks.get(&id).copied().unwrap_or_default();
        let (members, managers) =
            (members.remove(&group.id).unwrap_or_default(), managers.remove(&group.id).unwrap_or_default());
        all_groups.push(SiteGroupState { group, chargeable, restrictive, members, managers, limits: of("group", id) });
    }
    all_groups.sort_by(|one, other| (&one.group.name, one.group.id).cmp(&(&other.group.name, other.group.id)));
    let (default_limits, cluster_limits) = (of("default", String::new()), of("cluster", String::new()));
    let user_limits = all.iter().map(|user| (user.id, of("user", user.id.to_string()))).collect();
    let profiles = profiles::all(tx.again()).await?;
    let announcements = announcements::current(tx, now).await?;
    Ok(SiteState {
        users: all,
        unused,
        groups: all_groups,
        profiles,
        announcements,
        default_limits,
        cluster_limits,
        user_limits,
    })
}

/// Who is in which group, or manages it.
async fn pairs(mut tx: Tx<'_>, sql: &'static str) -> Result<HashMap<GroupId, HashSet<UserId>>> {
    let rows: Vec<(String, String)> = tx.query(sql).all().await?;
    let mut pairs = HashMap::<GroupId, HashSet<UserId>>::new();
    for (group, user) in rows {
        pairs.entry(parse(&group, "group id")?).or_default().insert(parse(&user, "user id")?);
    }
    Ok(pairs)
}

/// What is set at each level, by its scope and id.
async fn limits_by_level(mut tx: Tx<'_>) -> Result<HashMap<(String, String), Vec<SetLimit>>> {
    let rows: Vec<LevelRow> = tx.query(LIMITS).all().await?;
    let mut all = HashMap::<(String, String), Vec<SetLimit>>::new();
    for LevelRow { scope, scope_id, limit } in rows {
        all.entry((scope, scope_id)).or_default().push(limit.limit()?);
    }
    Ok(all)
}

async fn make(mut tx: Tx<'_>, step: &Step, by: ChangedBy<'_>) -> Result<()> {
    match step {
        Step::AddUser { id, name, display_name, role, invitation } => {
            let sign_in = if invitation.is_some() { SignIn::NotYet } else { SignIn::Never };
            let new = NewUser { name, display_name, unix_name: None, role: *role, sign_in };
            people::add(tx.again(), *id, new, None, by).await?;
            match invitation {
                Some(invitation) => account_invitations::add(tx, *id, invitation).await,
                None => Ok(()),
            }
        }
        Step::ChangeUser { id, display_name, role, disabled, expires_at } => {
            let display_name = display_name.as_deref();
            let (role, disabled, expires_at) = (*role, *disabled, *expires_at);
            let change = UserChange { display_name, role, disabled, expires_at, password_hash: None };
            people::change_account(tx, *id, &change, by).await.map(drop)
        }
        Step::RemoveUser(id) => people::remove_account(tx, *id, by).await.map(drop),
        Step::AddGroup(id, name) => groups::add(tx, *id, name, None, by).await,
        Step::RemoveGroup(id) => groups::remove(tx, *id, by).await.map(drop),
        Step::SetMember(group, user, is) => groups::set_member(tx, *group, *user, *is, by).await.map(drop),
        Step::SetManager(group, user, is) => groups::set_manager(tx, *group, *user, *is, by).await.map(drop),
        Step::Limits(change) => {
            let author = Author::administrator(by.actor, by.at);
            match limits::change(tx, std::slice::from_ref(change), &author).await? {
                Outcome::Done => Ok(()),
                Outcome::Gone(_) | Outcome::Stale(_) | Outcome::Refused(_) => Err(Error::Stored("level of limits")),
            }
        }
        Step::AddProfile(new, detail) => profiles::add(tx, new, &by.did("profile.add", &new.name, detail)).await,
        Step::ChangeProfile(new, detail) => {
            profiles::change(tx, new, &by.did("profile.change", &new.name, detail)).await.map(drop)
        }
        Step::RemoveProfile(name) => profiles::remove(tx, name, &by.did("profile.remove", name, "")).await.map(drop),
        Step::AddAnnouncement(new, detail) => {
            let subject = new.id.to_string();
            announcements::add(tx, new, None, &by.did("announcement.make", &subject, detail)).await
        }
        Step::ChangeAnnouncement { before, after, detail } => {
            let subject = after.id.to_string();
            let noted = by.did("announcement.change", &subject, detail);
            announcements::change(tx, before, after, &noted).await.map(drop)
        }
        Step::RemoveAnnouncement(gone) => {
            let subject = gone.id.to_string();
            let noted = by.did("announcement.remove", &subject, "");
            announcements::remove(tx, gone.id, &noted).await.map(drop)
        }
    }
}

impl SiteState {
    /// What is set at a level.
    #[must_use]
    pub fn limits_at(&self, level: Level) -> &[SetLimit] {
        match level {
            Level::Default => &self.default_limits,
            Level::Cluster => &self.cluster_limits,
            Level::User(id) => self.user_limits.get(&id).map_or(&[], Vec::as_slice),
            Level::Group(id) => {
                self.groups.iter().find(|group| group.group.id == id).map_or(&[], |group| group.limits.as_slice())
            }
        }
    }
}
