//! People and what belongs to them: users, logins, tokens, limits, settings, keys and the
//! audit table, each function on both databases with what it promises.

use lyceum::{
    db::{
        Error,
        directory::{ArrivalOutcome, Group, Person, WatchedGroup},
        idempotency::{EarlierResult, IdempotentRequest},
        limits::GroupFlags,
        limits_and_usage::Requester,
        logins::Login,
        quotas::Level,
        tokens::Token,
        users::{NewUser, SignIn},
    },
    model::{
        GroupName, LoginId, Role, Timestamp, TokenId, UserId, Username,
        quota::{Change, Field, Kind, Period},
    },
};

use super::{BY, NOTED, START, add_user, each, on_both, set_limits};

#[tokio::test]
async fn users() {
    on_both(async |house| {
        let db = &house.db;
        assert_eq!(db.count_users().await.unwrap(), 0);
        assert!(db.single_user_mode().await.unwrap());
        assert!(db.find_user(UserId::new()).await.unwrap().is_none());
        assert!(db.find_user_by_name("x' OR '1'='1").await.unwrap().is_none());
        assert!(db.find_user_by_name("zoe\0").await.unwrap().is_none());

        let name = Username::parse("zoe").unwrap();
        let new = NewUser {
            name: &name,
            display_name: "Zoë “Z” O'Neill <img>\n\u{1f600}",
            unix_name: Some("zoe7"),
            role: Role::Operator,
            sign_in: SignIn::Password("$hash"),
        };
        let id = db.add_user(new.clone(), BY).await.unwrap();
        assert!(matches!(db.add_user(new.clone(), BY).await, Err(Error::Unique)));
        assert!(db.single_user_mode().await.unwrap());
        let account = db.find_user(id).await.unwrap().unwrap();
        assert_eq!(account.user, db.find_user_by_name("zoe").await.unwrap().unwrap().user);
        let found = Some((id, "zoe".to_owned()));
        assert_eq!(db.owner_of_account("zoe7").await.unwrap(), found);
        assert_eq!(db.owner_of_account("zoe").await.unwrap(), None, "that is somebody else's account");
        let user = account.user;
        assert_eq!((user.id, user.name.as_str(), user.display_name.as_str()), (id, "zoe", new.display_name));
        assert_eq!(
            (user.unix_name.as_deref(), user.role, user.source.as_str()),
            (Some("zoe7"), Role::Operator, "local")
        );
        assert_eq!((user.disabled, user.created_at, user.last_seen_at), (false, START, None));
        assert_eq!((account.password_hash.as_deref(), account.theme.as_str()), (Some("$hash"), "system"));

        for other in ["b_a", "b.a", "b-a", "ba", "b0", "_z"] {
            add_user(db, other).await;
        }
        let names: Vec<String> =
            db.list_users().await.unwrap().into_iter().map(|user| user.name.as_str().to_owned()).collect();
        assert_eq!(names, ["_z", "b-a", "b.a", "b0", "b_a", "ba", "zoe"], "in one order everywhere");
        assert_eq!(db.count_users().await.unwrap(), 7);
        assert!(!db.single_user_mode().await.unwrap());

        db.set_theme(id, "dark").await.unwrap();
        let login = Login { created_at: START.plus_seconds(5), ..login(id) };
        db.add_login(&login, "hash", &NOTED).await.unwrap();
        let account = db.find_user(id).await.unwrap().unwrap();
        assert_eq!((account.theme.as_str(), account.user.last_seen_at), ("dark", Some(START.plus_seconds(5))));
    })
    .await;
}

#[tokio::test]
async fn what_ends_access_raises_the_generation() {
    on_both(async |house| {
        let db = &house.db;
        let (user, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let mut generation = db.access_generation().await.unwrap();
        assert_eq!(generation, 0);
        let mut raised = async || {
            let before = std::mem::replace(&mut generation, db.access_generation().await.unwrap());
            generation - before
        };

        let (kept, gone, others) = (login(user), login(user), login(other));
        for login in [&kept, &gone, &others] {
            db.add_login(login, &format!("hash of {}", login.id), &NOTED).await.unwrap();
        }
        assert_eq!(raised().await, 0);
        db.set_password(user, "$new", Some(kept.id), &NOTED).await.unwrap();
        assert_eq!(raised().await, 1);
        assert_eq!(db.find_user(user).await.unwrap().unwrap().password_hash.as_deref(), Some("$new"));
        assert_eq!(db.list_logins(user).await.unwrap(), std::slice::from_ref(&kept));
        db.set_password(other, "$new", None, &NOTED).await.unwrap();
        assert_eq!((raised().await, db.list_logins(other).await.unwrap().len()), (1, 0));

        db.set_disabled(user, true, BY).await.unwrap();
        assert_eq!((raised().await, db.list_logins(user).await.unwrap().len()), (1, 0));
        assert!(db.find_user(user).await.unwrap().unwrap().user.disabled);
        db.set_disabled(user, false, BY).await.unwrap();
        assert_eq!(raised().await, 1);
        assert!(!db.find_user(user).await.unwrap().unwrap().user.disabled);

        let token = token(user);
        db.add_token(&token, "hash", None, &NOTED).await.unwrap();
        assert_eq!(raised().await, 0);
        assert!(!db.remove_token(other, token.id, &NOTED).await.unwrap(), "somebody else's");
        assert_eq!(db.rotate_token(other, token.id, "theirs", None, &NOTED).await.unwrap(), None, "somebody else's");
        raised().await;
        let once = Some(IdempotentRequest { user, key: "rotation", request_hash: "hash" });
        assert_eq!(db.rotate_token(user, TokenId::new(), "none", once, &NOTED).await.unwrap(), None);
        assert_eq!(db.find_idempotent(user, "rotation").await.unwrap(), None, "nothing was done");
        let rotated = db.rotate_token(user, token.id, "another", once, &NOTED).await.unwrap().unwrap();
        let twice = db.rotate_token(user, token.id, "a third", once, &NOTED).await;
        assert!(matches!(twice, Err(Error::Unique)));
        assert_eq!((raised().await, &rotated.name, rotated.last_used_at), (1, &token.name, None));
        assert_eq!(rotated.created_at, NOTED.at);
        assert_eq!(
            rotated.expires_at.seconds_since(rotated.created_at),
            token.expires_at.seconds_since(token.created_at)
        );
        assert_eq!(db.find_token("hash").await.unwrap(), None);
        assert_eq!(db.find_token("another").await.unwrap(), Some(rotated));
        assert!(db.remove_token(user, token.id, &NOTED).await.unwrap());
        assert_eq!(raised().await, 1);
        assert!(!db.remove_token(user, token.id, &NOTED).await.unwrap());
    })
    .await;
}

pub fn login(user: UserId) -> Login {
    Login {
        id: LoginId::new(),
        user,
        created_at: START,
        last_seen_at: START,
        expires_at: START.plus_seconds(100),
        address: "2001:db8::1".to_owned(),
    }
}

#[tokio::test]
async fn logins() {
    on_both(async |house| {
        let db = &house.db;
        let user = add_user(db, "a").await;
        let all = [login(user), login(user), login(user)];
        for login in &all {
            db.add_login(login, &login.id.to_string(), &NOTED).await.unwrap();
        }
        assert!(matches!(db.add_login(&login(user), &all[0].id.to_string(), &NOTED).await, Err(Error::Unique)));
        assert!(
            matches!(db.add_login(&login(UserId::new()), "x", &NOTED).await, Err(Error::Query(_))),
            "a login of nobody"
        );
        assert_eq!(db.find_login("nothing").await.unwrap(), None);
        assert_eq!(db.find_login(&all[0].id.to_string()).await.unwrap().as_ref(), Some(&all[0]));
        assert_eq!(db.find_login_by_id(all[1].id).await.unwrap().as_ref(), Some(&all[1]));
        let listed: Vec<_> = db.list_logins(user).await.unwrap().into_iter().map(|login| login.id).collect();
        assert_eq!(listed, [all[2].id, all[1].id, all[0].id]);

        db.touch_login(all[0].id, START.plus_seconds(50)).await.unwrap();
        assert_eq!(db.find_login_by_id(all[0].id).await.unwrap().unwrap().last_seen_at, START.plus_seconds(50));
        assert_eq!(db.purge_logins(START.plus_seconds(60), START.plus_seconds(-1)).await.unwrap(), 0);
        assert_eq!(db.purge_logins(START.plus_seconds(60), START.plus_seconds(10)).await.unwrap(), 2, "the idle ones");
        db.remove_login(all[0].id, &NOTED).await.unwrap();
        assert_eq!(db.find_login_by_id(all[0].id).await.unwrap(), None);
        let before = (db.access_generation().await.unwrap(), db.list_audit(100).await.unwrap().len());
        db.remove_login(all[0].id, &NOTED).await.unwrap();
        let after = (db.access_generation().await.unwrap(), db.list_audit(100).await.unwrap().len());
        assert_eq!(after, before, "what has ended does not end again");

        for login in &all {
            db.add_login(login, &login.id.to_string(), &NOTED).await.unwrap();
        }
        assert_eq!(
            db.purge_logins(START.plus_seconds(100), START.plus_seconds(-1)).await.unwrap(),
            3,
            "the expired ones"
        );
        db.add_login(&all[0], "hash", &NOTED).await.unwrap();
        db.remove_logins_of(user, &NOTED).await.unwrap();
        assert_eq!(db.list_logins(user).await.unwrap(), []);
    })
    .await;
}

fn token(user: UserId) -> Token {
    Token {
        id: TokenId::new(),
        user,
        name: "Übung \"1\"".to_owned(),
        scopes: vec!["sessions:read".to_owned(), "sessions:connect".to_owned()],
        created_at: START,
        expires_at: START.plus_seconds(100),
        last_used_at: None,
    }
}

#[tokio::test]
async fn tokens() {
    on_both(async |house| {
        let db = &house.db;
        let (user, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let all: Vec<Token> = (0..4).map(|_| token(user)).collect();
        for token in &all {
            db.add_token(token, &token.id.to_string(), None, &NOTED).await.unwrap();
        }
        db.add_token(&token(other), "other's", None, &NOTED).await.unwrap();
        assert_eq!(db.find_token("nothing").await.unwrap(), None);
        assert_eq!(db.find_token(&all[0].id.to_string()).await.unwrap().as_ref(), Some(&all[0]));
        assert_eq!(db.find_token_by_id(all[1].id).await.unwrap().as_ref(), Some(&all[1]));
        assert_eq!(db.find_token_by_id(TokenId::new()).await.unwrap(), None);
        let first = db.list_tokens(user, None, 3).await.unwrap();
        assert_eq!(first, [all[3].clone(), all[2].clone(), all[1].clone()]);
        assert_eq!(db.list_tokens(user, Some(first[2].id), 3).await.unwrap(), [all[0].clone()]);
        db.touch_token(all[0].id, START.plus_seconds(9)).await.unwrap();
        assert_eq!(db.find_token_by_id(all[0].id).await.unwrap().unwrap().last_used_at, Some(START.plus_seconds(9)));

        // A key that was used before: neither token nor key is written.
        let once = |key| Some(IdempotentRequest { user: other, key, request_hash: "hash" });
        db.add_token(&token(user), "with a key", once("key"), &NOTED).await.unwrap();
        let twice = db.add_token(&token(user), "with it again", once("key"), &NOTED).await;
        assert!(matches!(twice, Err(Error::Unique)));
        assert_eq!(db.find_token("with it again").await.unwrap(), None);
        // And the other way about: a token that cannot be written leaves no key.
        let twice = db.add_token(&token(user), "with a key", once("new key"), &NOTED).await;
        assert!(matches!(twice, Err(Error::Unique)));
        assert_eq!(db.find_idempotent(other, "new key").await.unwrap(), None);

        assert!(db.remove_token(user, all[0].id, &NOTED).await.unwrap());
        assert_eq!(db.find_token_by_id(all[0].id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn settings_keys_and_audit() {
    on_both(async |house| {
        let db = &house.db;
        db.ping().await.unwrap();
        assert_eq!(db.setting("x").await.unwrap(), None);
        db.set_setting("x", "1").await.unwrap();
        db.set_setting("x", "2").await.unwrap();
        assert_eq!(db.setting("x").await.unwrap().as_deref(), Some("2"));
        assert_eq!(db.setting_or("x", "3").await.unwrap(), "2");
        assert_eq!(db.setting_or("y", "3").await.unwrap(), "3");

        let (user, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let earlier = EarlierResult { request_hash: "h".to_owned(), created_id: "id".to_owned() };
        db.add_idempotent(user, "key", &earlier, START).await.unwrap();
        assert!(matches!(db.add_idempotent(user, "key", &earlier, START).await, Err(Error::Unique)));
        db.add_idempotent(other, "key", &earlier, START.plus_seconds(1)).await.unwrap();
        assert_eq!(db.find_idempotent(user, "key").await.unwrap(), Some(earlier.clone()));
        db.purge_idempotent(START.plus_seconds(1)).await.unwrap();
        assert_eq!(db.find_idempotent(user, "key").await.unwrap(), None);
        assert_eq!(db.find_idempotent(other, "key").await.unwrap(), Some(earlier));

        for number in 0..5 {
            db.add_audit(Timestamp(number), "unix:root", "quota", "a", &format!("detail {number}")).await.unwrap();
        }
        let rows = db.list_audit(2).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.at.0).collect::<Vec<_>>(), [4, 3], "newest first");
        assert_eq!((rows[0].actor.as_str(), rows[0].detail.as_str()), ("unix:root", "detail 4"));
        assert_eq!((rows[0].action.as_str(), rows[0].subject.as_str()), ("quota", "a"));
    })
    .await;
}

#[tokio::test]
async fn people_of_a_directory() {
    on_both(async |house| {
        let db = &house.db;
        let (alice, alison) = (Username::parse("alice").unwrap(), Username::parse("alison").unwrap());
        let group = |name: &str| Group { subject: format!("cn={name}"), name: name.to_owned() };
        let groups = [group("lab"), group("admins")];
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &alice,
            display_name: "Alice",
            mail: Some("alice@example.org"),
            uid_number: Some(20_001),
            unix_name: None,
            role: Some(Role::Admin),
            groups: &groups,
        };
        let ArrivalOutcome::Known(id) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        let generation = db.access_generation().await.unwrap();
        assert_eq!(db.arrive(&person, START).await.unwrap(), ArrivalOutcome::Known(id), "she is who she was");
        assert_eq!(db.access_generation().await.unwrap(), generation, "and nothing has changed");
        let user = db.find_user(id).await.unwrap().unwrap().user;
        assert_eq!((user.source.as_str(), user.uid_number, user.role), ("ldap", Some(20_001), Role::Admin));
        assert_eq!(user.groups, ["admins", "lab"]);
        assert_eq!(db.groups_of(id).await.unwrap(), ["admins", "lab"]);
        assert_eq!(db.list_users().await.unwrap()[0].groups, ["admins", "lab"]);

        let fewer = Person { name: &alison, role: Some(Role::User), groups: &groups[..1], ..person.clone() };
        assert_eq!(db.arrive(&fewer, START).await.unwrap(), ArrivalOutcome::Known(id), "a new name is no new person");
        assert_eq!(db.access_generation().await.unwrap(), generation + 1);
        let user = db.find_user_by_name("alison").await.unwrap().unwrap().user;
        assert_eq!((user.id, user.role, user.groups), (id, Role::User, vec!["lab".to_owned()]));

        let heir = Person { subject: "entryUUID=2", name: &alison, ..person.clone() };
        assert_eq!(db.arrive(&heir, START).await.unwrap(), ArrivalOutcome::NameTaken, "a name inherits nothing");
        assert!(db.link_user(&alison, "ldap", BY).await.unwrap());
        assert!(!db.link_user(&Username::parse("nobody_such").unwrap(), "ldap", BY).await.unwrap());
        assert_eq!(
            db.arrive(&heir, START).await.unwrap(),
            ArrivalOutcome::Known(id),
            "unless somebody gave it to them"
        );
        assert_eq!(db.arrive(&heir, START).await.unwrap(), ArrivalOutcome::Known(id));

        assert!(db.people_in("ldap").await.unwrap().is_empty(), "nobody has a login");
        let login = Login {
            id: LoginId::new(),
            user: id,
            created_at: START,
            last_seen_at: START,
            expires_at: START.plus_seconds(60),
            address: "::1".to_owned(),
        };
        db.add_login(&login, "hash", &NOTED).await.unwrap();
        let people = db.people_in("ldap").await.unwrap();
        assert_eq!((people[0].id, people[0].subject.as_str(), people[0].name.as_str()), (id, "entryUUID=2", "alison"));
        assert!(
            db.leave(id, "gone", START).await.unwrap() && !db.leave(id, "gone", START).await.unwrap(),
            "it is news once"
        );
        assert!(db.find_login("hash").await.unwrap().is_none());
        assert_eq!(db.find_user(id).await.unwrap().unwrap().user.absent_since, Some(START));
        assert_eq!(db.arrive(&heir, START).await.unwrap(), ArrivalOutcome::Known(id));
        assert_eq!(db.find_user(id).await.unwrap().unwrap().user.absent_since, None, "she is back");
        let chief = Username::parse("chief").unwrap();
        let another = NewUser {
            name: &chief,
            display_name: "",
            unix_name: None,
            role: Role::Admin,
            sign_in: SignIn::Password("$h"),
        };
        db.add_user(another, BY).await.unwrap();
        db.set_disabled(id, true, BY).await.unwrap();
        assert_eq!(db.arrive(&heir, START).await.unwrap(), ArrivalOutcome::Disabled);
    })
    .await;
}

/// Its limits rest with it, bind nobody, and hold again when it is back; an administrator may remove it.
#[tokio::test]
async fn groups_that_a_directory_no_longer_has() {
    on_both(async |house| {
        let db = &house.db;
        let name = Username::parse("alice").unwrap();
        let group = |name: &str| Group { subject: format!("cn={name}"), name: name.to_owned() };
        let groups = [group("lab"), group("plain")];
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &name,
            display_name: "",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: None,
            groups: &groups,
        };
        let ArrivalOutcome::Known(alice) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        assert_eq!(db.watched_groups("ldap").await.unwrap(), [], "what has no limits may go unseen");
        let lab = db.find_quota_group("lab").await.unwrap().unwrap();
        let chargeable = GroupFlags { chargeable: Some(true), restrictive: None };
        let mut set = each([(Field::Gpus, Some(2))]).to_vec();
        set.push(Change::new(Kind::Total, Field::Cpus, Some(8)));
        set_limits(db, Level::Group(lab.id), &set, chargeable).await;
        let watched = |is_absent| [WatchedGroup { id: lab.id, subject: "cn=lab".to_owned(), is_absent }];
        assert_eq!(db.watched_groups("ldap").await.unwrap(), watched(false));
        assert_eq!((db.limits_of(alice).await.unwrap().len(), db.watched_groups("local").await.unwrap().len()), (1, 0));
        let asking =
            Requester { owner: alice, group: Some(lab.id), period: &Period::Rolling { days: 30 }, holds_at_once: true };
        let of_lab = async || db.usage(&asking, START).await.unwrap().totals[0].limits.len();
        assert_eq!(of_lab().await, 1);

        let generation = db.access_generation().await.unwrap();
        let at = START.plus_seconds(60);
        assert!(db.group_gone(lab.id, at).await.unwrap() && !db.group_gone(lab.id, at).await.unwrap(), "news once");
        assert_eq!(db.access_generation().await.unwrap(), generation + 1);
        assert_eq!(db.limits_of(alice).await.unwrap(), [], "they bind nobody");
        assert_eq!((of_lab().await, db.billing_groups_of(alice).await.unwrap().groups), (0, Vec::new()));
        assert!(db.membership(alice, lab.id).await.unwrap().is_none());
        assert_eq!(db.limits_at(Level::Group(lab.id)).await.unwrap().len(), 2, "and nothing of them is lost");
        assert_eq!(db.quota_groups().await.unwrap()[0].absent_since, Some(at));
        assert_eq!(db.find_groups("lab").await.unwrap()[0].group.absent_since, Some(at));
        assert_eq!(db.watched_groups("ldap").await.unwrap(), watched(true));

        assert!(db.group_back(lab.id, at).await.unwrap() && !db.group_back(lab.id, at).await.unwrap());
        assert_eq!((of_lab().await, db.quota_groups().await.unwrap()[0].absent_since), (1, None));
        assert!(db.group_gone(lab.id, at).await.unwrap());
        assert_eq!(db.arrive(&person, at).await.unwrap(), ArrivalOutcome::Known(alice), "somebody comes with it");
        assert_eq!((db.limits_of(alice).await.unwrap().len(), of_lab().await), (1, 1));
        let audit = db.list_audit(3).await.unwrap();
        let deeds: Vec<_> = audit.iter().map(|row| (row.actor.as_str(), row.action.as_str(), &*row.subject)).collect();
        let mode = |action| ("directory", action, "lab");
        assert_eq!(deeds, [mode("group.back"), mode("group.gone"), mode("group.back")]);

        assert!(!db.remove_group(lab.id, BY).await.unwrap(), "the directory has it");
        assert!(db.group_gone(lab.id, at).await.unwrap());
        assert!(db.remove_group(lab.id, BY).await.unwrap());
        assert_eq!(db.limits_at(Level::Group(lab.id)).await.unwrap(), []);
        assert!(!db.group_gone(lab.id, at).await.unwrap() && !db.group_back(lab.id, at).await.unwrap());
        let ours = db.add_group(&GroupName::parse("ours").unwrap(), None, BY).await.unwrap();
        assert!(!db.group_gone(ours, at).await.unwrap(), "no directory has or has not what was made here");
    })
    .await;
}
