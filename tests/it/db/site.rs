//! A site's file in the database: the state that it declares, steps as one transaction, nothing of them where one
//! cannot be made or where it is a dry run, and the links by which new accounts are opened.

use lyceum::{
    db::{
        Db, Error,
        account_invitations::AccountInvitation,
        chain::ChainCheck,
        limits::{GroupFlags, LevelChange},
        people::UserChange,
        quotas::Level,
        site::{Commit, SiteOutcome, Step},
        users::{NewUser, SignIn},
    },
    model::{
        Announcement, AnnouncementId, GroupId, GroupName, Role, UserId, Username, Window, announcement,
        quota::{Change, Field, Kind},
        user::ExpiryChange,
    },
};

use super::{BY, NOTED, START, add_user, on_both};

fn new_user(name: &str, role: Role) -> (UserId, Step) {
    let id = UserId::new();
    let invitation = Some(AccountInvitation { hash: format!("hash of {name}"), expires_at: START.plus_seconds(60) });
    let name = Username::parse(name).unwrap();
    (id, Step::AddUser { id, name, display_name: String::new(), role, invitation })
}

async fn apply(db: &Db, commit: Commit, steps: Vec<Step>) -> SiteOutcome {
    db.apply_site(commit, BY, |_| Some(steps)).await.unwrap()
}

/// A new account with a link that nobody has used.
pub async fn invite_into_account(db: &Db, name: &str) -> UserId {
    let (id, step) = new_user(name, Role::User);
    assert!(matches!(apply(db, Commit::Yes, vec![step]).await, SiteOutcome::Done));
    id
}

/// One step of each kind.
fn steps() -> Vec<Step> {
    let ((ada, add_ada), (bob, add_bob)) = (new_user("ada", Role::User), new_user("bob", Role::User));
    let (vision, gone) = (GroupId::new(), GroupId::new());
    let announcement = Announcement {
        id: AnnouncementId::new(),
        level: announcement::Level::Info,
        text: "text".to_owned(),
        window: Window { from: START, to: None },
        on_login: false,
        groups: Vec::new(),
        changed_by: "a".to_owned(),
        changed_at: START,
    };
    let limits = vec![Change::new(Kind::Each, Field::Gpus, Some(1)), Change::new(Kind::Total, Field::Gpus, Some(8))];
    let marks = GroupFlags { chargeable: Some(true), restrictive: None };
    let after = Announcement { text: "another text".to_owned(), ..announcement.clone() };
    vec![
        add_ada,
        add_bob,
        Step::AddGroup(vision, GroupName::parse("vision").unwrap()),
        Step::AddGroup(gone, GroupName::parse("gone").unwrap()),
        Step::ChangeUser {
            id: ada,
            display_name: Some("Ada".to_owned()),
            role: None,
            disabled: Some(true),
            expires_at: ExpiryChange::At(START.plus_seconds(60)),
        },
        Step::Limits(LevelChange { level: Level::Group(vision), changes: limits, marks, seen: None }),
        Step::Limits(LevelChange::new(Level::User(ada), vec![Change::new(Kind::Each, Field::Cpus, Some(4))])),
        Step::SetMember(vision, ada, true),
        Step::SetMember(vision, bob, true),
        Step::SetMember(vision, bob, false),
        Step::SetManager(vision, ada, true),
        Step::AddAnnouncement(announcement.clone(), "detail".to_owned()),
        Step::ChangeAnnouncement { before: announcement, after: after.clone(), detail: String::new() },
        Step::RemoveAnnouncement(after),
        Step::RemoveGroup(gone),
        Step::RemoveUser(bob),
    ]
}

#[tokio::test]
async fn all_steps_are_made_or_none() {
    on_both(async |house| {
        let db = &house.db;
        // Somebody who administrates stays: else no account could be removed.
        let name = &Username::parse("chief").unwrap();
        let (role, sign_in) = (Role::Admin, SignIn::Password("hash"));
        let chief = NewUser { name, display_name: "", unix_name: None, role, sign_in };
        db.add_user(chief, BY).await.unwrap();
        let before = format!("{:?} {}", db.site_state(START).await.unwrap(), db.list_audit(100).await.unwrap().len());
        let unchanged = async || {
            let now = format!("{:?} {}", db.site_state(START).await.unwrap(), db.list_audit(100).await.unwrap().len());
            assert_eq!(now, before);
        };
        assert!(matches!(apply(db, Commit::DryRun, steps()).await, SiteOutcome::RolledBack));
        unchanged().await;
        assert!(matches!(db.apply_site(Commit::Yes, BY, |_| None).await.unwrap(), SiteOutcome::RolledBack));
        unchanged().await;
        // The last of them cannot be made: the name is taken by the first.
        let twice: Vec<Step> = steps().into_iter().chain([new_user("ada", Role::User).1]).collect();
        assert!(matches!(apply(db, Commit::Yes, twice).await, SiteOutcome::Refused(16, Error::Unique)));
        unchanged().await;

        let rows = db.list_audit(1).await.unwrap()[0].number;
        assert!(matches!(apply(db, Commit::Yes, steps()).await, SiteOutcome::Done));
        let state = db.site_state(START).await.unwrap();
        let names: Vec<_> = state.users.iter().map(|user| (user.name.as_str(), user.disabled)).collect();
        assert_eq!(names, [("ada", true), ("chief", false)]);
        let [group] = &state.groups[..] else { panic!("{:?}", state.groups) };
        let ada = state.users[0].id;
        assert!(group.members.contains(&ada) && group.members.len() == 1 && group.managers.contains(&ada));
        assert!(group.chargeable && !group.restrictive && group.limits.len() == 2);
        assert_eq!(state.limits_at(Level::User(ada)).len(), 1);
        assert_eq!(state.limits_at(Level::Group(group.group.id)), group.limits);
        assert!(state.announcements.is_empty() && state.unused.contains(&ada));
        let told: Vec<_> = db.audit_after(rows, 100).await.unwrap();
        let told: Vec<_> = told.iter().map(|row| format!("{} {}", row.action, row.subject)).collect();
        assert_eq!(told.len(), 18, "{told:?}");
        assert!(told.contains(&"quota.change group vision".to_owned()), "{told:?}");
        assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Whole { .. }));
    })
    .await;
}

#[tokio::test]
async fn the_last_administrator_stays() {
    on_both(async |house| {
        let db = &house.db;
        let chief = add_user(db, "chief").await;
        let admin = UserChange { role: Some(Role::Admin), password_hash: Some("x"), ..UserChange::default() };
        assert!(db.change_user(chief, &admin, BY).await.unwrap());
        // A new administrator has no password yet, and could not take the place of the last one.
        let lower = Step::ChangeUser {
            id: chief,
            display_name: None,
            role: Some(Role::User),
            disabled: None,
            expires_at: ExpiryChange::Keep,
        };
        let steps = vec![new_user("next", Role::Admin).1, lower];
        assert!(matches!(apply(db, Commit::Yes, steps).await, SiteOutcome::Refused(1, Error::LastAdmin)));
        assert!(db.find_user_by_name("next").await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_link_opens_its_account_once_and_in_time() {
    on_both(async |house| {
        let db = &house.db;
        let ada = invite_into_account(db, "ada").await;
        let (hash, end) = ("hash of ada", START.plus_seconds(60));
        assert_eq!(db.invited_account(hash, START).await.unwrap().as_deref(), Some("ada"));
        assert_eq!(db.invited_account("another", START).await.unwrap(), None);
        assert_eq!(db.accept_account_invitation(hash, "p", end).await.unwrap(), None, "it has expired");
        assert_eq!(db.accept_account_invitation(hash, "p", START).await.unwrap().as_deref(), Some("ada"));
        assert_eq!(db.accept_account_invitation(hash, "q", START).await.unwrap(), None, "it is used up");
        assert_eq!(db.find_user(ada).await.unwrap().unwrap().password_hash.as_deref(), Some("p"));
        let row = &db.list_audit(1).await.unwrap()[0];
        assert_eq!((row.actor.as_str(), row.action.as_str(), row.subject.as_str()), ("ada", "password.change", "ada"));

        // Another link changes the password, ends sign-ins, and is gone once the password is changed otherwise.
        let account = db.find_user_by_name("ada").await.unwrap().unwrap().user;
        let link = |hash: &str| AccountInvitation { hash: hash.to_owned(), expires_at: end };
        db.invite_account(&account, &link("first"), BY).await.unwrap();
        db.invite_account(&account, &link("second"), BY).await.unwrap();
        assert_eq!(db.invited_account("first", START).await.unwrap(), None, "the newest one is valid");
        db.add_login(&super::accounts::login(ada), "s", &NOTED).await.unwrap();
        assert_eq!(db.accept_account_invitation("second", "q", START).await.unwrap().as_deref(), Some("ada"));
        assert_eq!(db.list_logins(ada).await.unwrap().len(), 0);
        db.invite_account(&account, &link("third"), BY).await.unwrap();
        db.set_password(ada, "r", None, &NOTED).await.unwrap();
        assert_eq!(db.invited_account("third", START).await.unwrap(), None);
        db.invite_account(&account, &link("fourth"), BY).await.unwrap();
        let change = UserChange { password_hash: Some("s"), ..UserChange::default() };
        db.change_user(ada, &change, BY).await.unwrap();
        assert_eq!(db.invited_account("fourth", START).await.unwrap(), None);

        // An account that is disabled, or has a password by now, is not opened.
        for (name, change) in [
            ("bob", UserChange { disabled: Some(true), ..UserChange::default() }),
            ("eve", UserChange { password_hash: Some("x"), ..UserChange::default() }),
        ] {
            let id = invite_into_account(db, name).await;
            assert!(db.change_user(id, &change, BY).await.unwrap());
            assert_eq!(db.invited_account(&format!("hash of {name}"), START).await.unwrap(), None, "{name}");
        }
    })
    .await;
}
