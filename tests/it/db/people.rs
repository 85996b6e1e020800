//! People and groups as administrators keep them: lists in pages and orders, changes that
//! never take the last administrator, memberships and managers, on both databases.

use lyceum::{
    db::{
        Db, Error,
        directory::{ArrivalOutcome, Group, Person},
        groups::{GroupFilter, ListedGroup},
        idempotency::IdempotentRequest,
        limits::GroupFlags,
        logins::Login,
        people::{PeopleFilter, PeoplePosition, Sort, UserChange},
        quotas::Level,
        tokens::Token,
        users::{NewUser, SignIn},
    },
    model::{GroupId, GroupName, LoginId, Role, Timestamp, TokenId, UserId, Username, quota::Field, user::State},
};

use super::{BY, House, NOTED, START, add_user, each, number, on_both, running, set_limits};

/// Somebody was here at this moment.
async fn see(db: &Db, user: UserId, at: Timestamp) {
    let (id, address) = (LoginId::new(), "::1".to_owned());
    let login = Login { id, user, created_at: at, last_seen_at: at, expires_at: at.plus_seconds(60), address };
    db.add_login(&login, &id.to_string(), &NOTED).await.unwrap();
}

fn everybody() -> PeopleFilter {
    PeopleFilter {
        find: String::new(),
        role: None,
        state: None,
        expires_before: None,
        source: None,
        sort: Sort::Name,
        after: None,
        limit: 100,
    }
}

/// Somebody who can sign in as administrator.
pub async fn admin(house: &House, name: &str) -> UserId {
    let new = NewUser {
        name: &Username::parse(name).unwrap(),
        display_name: "Chief",
        unix_name: None,
        role: Role::Admin,
        sign_in: SignIn::Password("$hash"),
    };
    house.db.add_person(new, None, BY).await.unwrap()
}

async fn names(house: &House, filter: PeopleFilter) -> Vec<String> {
    let mut names: Vec<String> = house
        .db
        .list_people(&filter)
        .await
        .unwrap()
        .into_iter()
        .map(|listed| listed.user.name.as_str().to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn people_in_pages_and_orders() {
    on_both(async |house| {
        let db = &house.db;
        let mut all = Vec::new();
        for number in 0..25 {
            let id = add_user(db, &format!("p{number}.x-y_{}", number % 3)).await;
            // Some were never seen, some at one moment.
            if number % 2 == 0 {
                see(db, id, START.plus_seconds(number / 4)).await;
            }
            all.push(id);
        }
        for sort in [Sort::Name, Sort::NameDown, Sort::Seen, Sort::SeenDown] {
            let whole: Vec<UserId> = db
                .list_people(&PeopleFilter { sort, ..everybody() })
                .await
                .unwrap()
                .into_iter()
                .map(|listed| listed.user.id)
                .collect();
            assert_eq!(whole.len(), 25);
            let (mut paged, mut after) = (Vec::new(), None);
            loop {
                let page = db.list_people(&PeopleFilter { sort, after, limit: 7, ..everybody() }).await.unwrap();
                let Some(last) = page.last().map(|listed| listed.user.clone()) else { break };
                paged.extend(page.iter().map(|listed| listed.user.id));
                after = Some(match sort {
                    Sort::Name | Sort::NameDown => PeoplePosition::Name(last.name.to_string()),
                    Sort::Seen | Sort::SeenDown => {
                        PeoplePosition::Seen(last.last_seen_at.unwrap_or_default().0, last.id)
                    }
                });
            }
            assert_eq!(paged, whole, "{sort:?}: pages follow one another");
            let other = match sort {
                Sort::Name => Sort::NameDown,
                Sort::NameDown => Sort::Name,
                Sort::Seen => Sort::SeenDown,
                Sort::SeenDown => Sort::Seen,
            };
            let mut reversed: Vec<UserId> = db
                .list_people(&PeopleFilter { sort: other, ..everybody() })
                .await
                .unwrap()
                .into_iter()
                .map(|listed| listed.user.id)
                .collect();
            reversed.reverse();
            assert_eq!(reversed, whole, "{sort:?}");
        }
        let seen = db.list_people(&PeopleFilter { sort: Sort::SeenDown, limit: 1, ..everybody() }).await.unwrap();
        assert_eq!(seen[0].user.last_seen_at, Some(START.plus_seconds(6)));
    })
    .await;
}

#[tokio::test]
async fn people_are_found() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (admin(house, "ada").await, add_user(db, "bob_50").await);
        add_user(db, "bobx50").await;
        let name = Username::parse("carol").unwrap();
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &name,
            display_name: "Carol Ångström",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: Some(Role::Operator),
            groups: &[Group { subject: "cn=lab".to_owned(), name: "lab".to_owned() }],
        };
        let ArrivalOutcome::Known(carol) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        db.set_disabled(bob, true, BY).await.unwrap();
        running(db, ada).await;
        running(db, ada).await;

        let find = |find: &str| PeopleFilter { find: find.to_owned(), ..everybody() };
        assert_eq!(names(house, find("BOB")).await, ["bob_50", "bobx50"]);
        assert_eq!(names(house, find("b_5")).await, ["bob_50"], "a line is no wildcard");
        for nobody in ["%", "!", "b%x", "\0", "' OR 1=1 --"] {
            assert!(names(house, find(nobody)).await.is_empty(), "{nobody:?}");
        }
        assert_eq!(names(house, find("Ångs")).await, ["carol"]);
        assert_eq!(names(house, find("chief")).await, ["ada"]);
        let role = |role| PeopleFilter { role: Some(role), ..everybody() };
        assert_eq!(names(house, role(Role::Admin)).await, ["ada"]);
        assert_eq!(names(house, role(Role::Operator)).await, ["carol"]);
        assert_eq!(names(house, role(Role::User)).await, ["bob_50", "bobx50"]);
        let state = |state| PeopleFilter { state: Some(state), ..everybody() };
        assert_eq!(names(house, state(State::Disabled)).await, ["bob_50"]);
        assert_eq!(names(house, state(State::Active)).await, ["ada", "bobx50", "carol"]);
        db.leave(carol, "gone", START).await.unwrap();
        assert_eq!(names(house, state(State::Absent)).await, ["carol"]);
        let local = PeopleFilter { source: Some("local".to_owned()), role: Some(Role::User), ..everybody() };
        assert_eq!(names(house, local).await, ["bob_50", "bobx50"]);

        let listed = db.list_people(&everybody()).await.unwrap();
        let of = |name: &str| listed.iter().find(|one| one.user.name.as_str() == name).unwrap();
        assert_eq!((of("ada").sessions, of("bobx50").sessions), (2, 0));
        assert_eq!(of("carol").user.groups, ["lab"]);
        assert_eq!(db.live_by_owner().await.unwrap().get(&ada), Some(&2));
    })
    .await;
}

/// In whatever case and script, and after each change of a name.
#[tokio::test]
async fn names_are_found_in_any_case() {
    on_both(async |house| {
        let db = &house.db;
        let ada = admin(house, "ada").await;
        let carol = Username::parse("carol").unwrap();
        let arrive = async |display_name: &str, groups: &[Group]| {
            let (source, subject) = ("ldap", "entryUUID=1");
            let person = Person {
                source,
                subject,
                name: &carol,
                display_name,
                mail: None,
                uid_number: None,
                unix_name: None,
                role: None,
                groups,
            };
            db.arrive(&person, START).await.unwrap();
        };
        let found = async |words: &str| names(house, PeopleFilter { find: words.to_owned(), ..everybody() }).await;
        let groups = async |words: &str| {
            let filter = GroupFilter { find: words.to_owned(), limit: 10, ..GroupFilter::default() };
            db.list_groups(&filter).await.unwrap().len()
        };
        for (name, spellings) in [
            ("Łukasz", ["łUKASZ", "ŁUKASZ", "kasz"]),
            ("ÅSA", ["åsa", "A\u{30a}sa", "Ås"]),
            ("Große Straße", ["STRASSE", "straße", "GROẞE"]),
        ] {
            let change = UserChange { display_name: Some(name), ..UserChange::default() };
            db.change_user(ada, &change, BY).await.unwrap();
            let group = [Group { subject: "cn=one".to_owned(), name: name.to_owned() }];
            // Who is in other groups than before is put into all of them again.
            arrive(name, &[]).await;
            arrive(name, &group).await;
            for words in spellings {
                assert_eq!(found(words).await, ["ada", "carol"], "{words}");
                assert_eq!(groups(words).await, 1, "{words}");
            }
            for before in ["chief", "lukasz", "asa"] {
                assert!(found(before).await.is_empty() && groups(before).await == 0, "{name}: {before}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_last_administrator_stays() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, user) = (admin(house, "ada").await, add_user(db, "bob").await);
        let lower = UserChange { role: Some(Role::Operator), ..UserChange::default() };
        let disable = UserChange { disabled: Some(true), ..UserChange::default() };
        let last = async |change: &UserChange<'_>| {
            assert!(matches!(db.change_user(ada, change, BY).await, Err(Error::LastAdmin)), "{change:?}");
            let user = db.find_user(ada).await.unwrap().unwrap().user;
            assert_eq!((user.role, user.disabled, user.display_name.as_str()), (Role::Admin, false, "Chief"));
        };
        let generation = db.access_generation().await.unwrap();
        let with_name = UserChange { display_name: Some("Nobody"), ..lower };
        for change in [&lower, &disable, &with_name] {
            last(change).await;
        }
        assert!(matches!(db.set_disabled(ada, true, BY).await, Err(Error::LastAdmin)));
        assert_eq!(db.access_generation().await.unwrap(), generation, "nothing has happened");

        // Who is an administrator and cannot sign in is nobody's rescue.
        db.change_user(user, &UserChange { role: Some(Role::Admin), ..UserChange::default() }, BY).await.unwrap();
        last(&disable).await;
        db.set_password(user, "$hash", None, &NOTED).await.unwrap();
        db.set_disabled(user, true, BY).await.unwrap();
        last(&lower).await;
        db.set_disabled(user, false, BY).await.unwrap();
        db.change_user(ada, &with_name, BY).await.unwrap();
        let account = db.find_user(ada).await.unwrap().unwrap().user;
        assert_eq!((account.role, account.display_name.as_str()), (Role::Operator, "Nobody"));
        assert!(matches!(db.set_disabled(user, true, BY).await, Err(Error::LastAdmin)), "now it is the other one");

        // Two at once, each about the other: one of them stays.
        db.change_user(ada, &UserChange { role: Some(Role::Admin), ..UserChange::default() }, BY).await.unwrap();
        let [first, second, _] = house.three().await;
        let both = tokio::join!(first.change_user(ada, &disable, BY), second.change_user(user, &lower, BY));
        assert!(
            matches!(both, (Ok(true), Err(Error::LastAdmin)) | (Err(Error::LastAdmin), Ok(true))),
            "one and not both: {both:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_the_directory_gives_and_what_is_given_here() {
    on_both(async |house| {
        let db = &house.db;
        admin(house, "ada").await;
        let name = Username::parse("carol").unwrap();
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &name,
            display_name: "",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: Some(Role::Admin),
            groups: &[],
        };
        let ArrivalOutcome::Known(carol) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        let user = async || db.find_user(carol).await.unwrap().unwrap().user;
        assert!(user().await.has_directorys_role());
        assert_eq!((user().await.role, user().await.given_role), (Role::Admin, Role::User));
        let give = async |role| {
            let change = UserChange { role: Some(role), ..UserChange::default() };
            db.change_user(carol, &change, BY).await.unwrap();
        };
        give(Role::Operator).await;
        assert_eq!((user().await.role, user().await.given_role), (Role::Admin, Role::Operator));
        db.arrive(&Person { role: Some(Role::User), ..person.clone() }, START).await.unwrap();
        assert_eq!(user().await.role, Role::Operator, "what was given here outlasts a refresh");
        assert!(!user().await.has_directorys_role());
        give(Role::User).await;
        assert_eq!(user().await.role, Role::User);
        db.arrive(&person, START).await.unwrap();
        assert_eq!(user().await.role, Role::Admin);
    })
    .await;
}

#[tokio::test]
async fn accounts_come_once_and_go_unused() {
    on_both(async |house| {
        let db = &house.db;
        let chief = admin(house, "ada").await;
        let name = Username::parse("zoe").unwrap();
        let new = NewUser {
            name: &name,
            display_name: "",
            unix_name: None,
            role: Role::User,
            sign_in: SignIn::Password("$h"),
        };
        let once = IdempotentRequest { user: chief, key: "k", request_hash: "h" };
        let id = db.add_person(new.clone(), Some(once), BY).await.unwrap();
        assert_eq!(db.find_idempotent(chief, "k").await.unwrap().unwrap().created_id, id.to_string());
        assert!(matches!(db.add_person(new.clone(), Some(once), BY).await, Err(Error::Unique)));
        let other = Username::parse("yan").unwrap();
        let second = NewUser { name: &other, ..new.clone() };
        assert!(matches!(db.add_person(second, Some(once), BY).await, Err(Error::Unique)), "the key was used");
        assert!(db.find_user_by_name("yan").await.unwrap().is_none(), "and nothing was made");

        let change = UserChange { password_hash: Some("$other"), display_name: Some("Zoë"), ..UserChange::default() };
        db.change_user(id, &change, BY).await.unwrap();
        let account = db.find_user(id).await.unwrap().unwrap();
        assert_eq!((account.password_hash.as_deref(), account.user.display_name.as_str()), (Some("$other"), "Zoë"));

        let group = db.add_group(&GroupName::parse("lab").unwrap(), None, BY).await.unwrap();
        db.set_member(group, id, true, BY).await.unwrap();
        db.set_manager(group, id, true, BY).await.unwrap();
        set_limits(db, Level::User(id), &each([(Field::Gpus, Some(1))]), GroupFlags::default()).await;
        let token = Token {
            id: TokenId::new(),
            user: id,
            name: "t".to_owned(),
            scopes: Vec::new(),
            created_at: START,
            expires_at: START,
            last_used_at: None,
        };
        db.add_token(&token, "secret", None, &NOTED).await.unwrap();
        assert!(db.remove_user(id, BY).await.unwrap());
        assert!(db.find_user(id).await.unwrap().is_none());
        assert_eq!(number(db, "SELECT COUNT(*) FROM quota_limits").await, 0);
        assert!(!db.remove_user(id, BY).await.unwrap(), "it is gone");
        assert!(matches!(db.remove_user(chief, BY).await, Err(Error::LastAdmin)));

        for used in ["seen", "session", "token"] {
            let id = add_user(db, used).await;
            match used {
                "seen" => see(db, id, START).await,
                "session" => drop(running(db, id).await),
                _ => {
                    let token = Token { id: TokenId::new(), user: id, ..token.clone() };
                    db.add_token(&token, used, None, &NOTED).await.unwrap();
                    db.touch_token(token.id, START).await.unwrap();
                    assert_eq!(db.find_user(id).await.unwrap().unwrap().user.last_seen_at, Some(START));
                }
            }
            assert!(!db.remove_user(id, BY).await.unwrap(), "{used}: its history stays");
        }
    })
    .await;
}

/// All groups, on pages of one.
async fn one_by_one(db: &Db) -> Vec<ListedGroup> {
    let mut paged: Vec<ListedGroup> = Vec::new();
    loop {
        let after = paged.last().map(|last| (last.group.name.clone(), last.group.id));
        let page = db.list_groups(&GroupFilter { limit: 1, after, ..GroupFilter::default() }).await.unwrap();
        if page.is_empty() {
            return paged;
        }
        paged.extend(page);
    }
}

#[tokio::test]
async fn groups_their_people_and_their_managers() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let name = |text: &str| GroupName::parse(text).unwrap();
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &Username::parse("carol").unwrap(),
            display_name: "",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: Some(Role::User),
            groups: &[
                Group { subject: "cn=lab,ou=a".to_owned(), name: "lab".to_owned() },
                Group { subject: "cn=lab,ou=b".to_owned(), name: "lab".to_owned() },
            ],
        };
        let ArrivalOutcome::Known(carol) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        let labs = db.find_groups("lab").await.unwrap();
        assert_eq!(labs.len(), 2, "a directory may call two groups alike");
        let directorys = labs[0].group.id;
        assert_eq!(db.find_groups(&directorys.to_string()).await.unwrap()[0], labs[0]);
        for nothing in ["", "nope", "a\0b", &GroupId::new().to_string()] {
            assert!(db.find_groups(nothing).await.unwrap().is_empty(), "{nothing:?}");
        }

        assert!(matches!(db.add_group(&name("lab"), None, BY).await, Err(Error::Unique)), "it would be a third");
        let once = IdempotentRequest { user: ada, key: "k", request_hash: "h" };
        let vision = db.add_group(&name("vision"), Some(once), BY).await.unwrap();
        assert_eq!(db.find_idempotent(ada, "k").await.unwrap().unwrap().created_id, vision.to_string());
        assert!(matches!(db.add_group(&name("speech"), Some(once), BY).await, Err(Error::Unique)));
        assert!(matches!(db.rename_group(vision, &name("lab"), BY).await, Err(Error::Unique)));

        let mut generation = db.access_generation().await.unwrap();
        let mut raised = async || {
            let before = std::mem::replace(&mut generation, db.access_generation().await.unwrap());
            generation - before
        };
        assert!(
            db.set_member(vision, ada, true, BY).await.unwrap() && !db.set_member(vision, ada, true, BY).await.unwrap()
        );
        assert_eq!(raised().await, 1, "once for the one change");
        assert!(db.set_member(vision, bob, true, BY).await.unwrap());
        assert!(!db.set_member(directorys, ada, true, BY).await.unwrap(), "the directory's is the directory's");
        assert!(!db.set_member(directorys, carol, false, BY).await.unwrap());
        assert_eq!(raised().await, 1);
        assert!(
            db.set_manager(vision, bob, true, BY).await.unwrap()
                && !db.set_manager(vision, bob, true, BY).await.unwrap()
        );
        assert!(db.set_manager(directorys, bob, true, BY).await.unwrap());
        assert_eq!(raised().await, 2);
        let user = db.find_user(bob).await.unwrap().unwrap().user;
        assert_eq!(
            (user.groups, user.manages),
            (vec!["vision".to_owned()], vec!["lab".to_owned(), "vision".to_owned()])
        );
        assert_eq!(db.managed_by(bob).await.unwrap(), ["lab", "vision"]);
        assert!(db.is_manager(vision, bob).await.unwrap() && !db.is_manager(vision, ada).await.unwrap());
        let listed = db.list_users().await.unwrap();
        assert_eq!(listed.iter().find(|user| user.id == bob).unwrap().manages, ["lab", "vision"]);

        // What the directory says of its own groups leaves ours alone, and our managers.
        db.set_member(vision, carol, true, BY).await.unwrap();
        db.arrive(&Person { groups: &person.groups[..1], ..person.clone() }, START).await.unwrap();
        assert_eq!(db.groups_of(carol).await.unwrap(), ["lab", "vision"]);
        assert!(db.is_manager(directorys, bob).await.unwrap());

        let all = db.list_groups(&GroupFilter { limit: 10, ..GroupFilter::default() }).await.unwrap();
        let facts: Vec<_> = all.iter().map(|one| (one.group.name.as_str(), one.members)).collect();
        assert_eq!(facts.iter().filter(|(name, _)| *name == "lab").map(|(_, count)| count).sum::<i64>(), 1);
        assert_eq!(facts.last(), Some(&("vision", 3)));
        assert_eq!(all.last().unwrap().managers, ["bob"]);
        assert_eq!(one_by_one(db).await, all);
        let mine = GroupFilter { manager: Some(bob), limit: 10, ..GroupFilter::default() };
        assert_eq!(db.list_groups(&mine).await.unwrap().len(), 2);
        let found = GroupFilter { find: "VIS".to_owned(), limit: 10, ..GroupFilter::default() };
        assert_eq!(db.list_groups(&found).await.unwrap().len(), 1);

        let members = db.group_members(vision, None, 2).await.unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["ada", "bob"]);
        let rest = db.group_members(vision, Some("bob"), 2).await.unwrap();
        assert_eq!((rest.len(), rest[0].id, rest[0].state), (1, carol, State::Active));
        let (hers, _) = (running(db, ada).await, running(db, add_user(db, "stranger").await).await);
        let sessions = db.group_sessions(vision, lyceum::db::groups::Audience::Staff, 10).await.unwrap();
        assert_eq!(sessions.iter().map(|session| session.id).collect::<Vec<_>>(), [hers]);

        let belongings = db.belongings(bob).await.unwrap();
        let belongings: Vec<_> =
            belongings.iter().map(|one| (one.group.name.as_str(), one.is_member, one.is_manager)).collect();
        assert_eq!(belongings, [("lab", false, true), ("vision", true, true)]);

        assert!(db.rename_group(vision, &name("vision-2"), BY).await.unwrap());
        assert!(!db.rename_group(directorys, &name("x"), BY).await.unwrap());
        assert!(!db.remove_group(directorys, BY).await.unwrap());
        assert!(
            db.set_member(vision, ada, false, BY).await.unwrap()
                && !db.set_member(vision, ada, false, BY).await.unwrap()
        );
        assert!(db.set_manager(vision, bob, false, BY).await.unwrap());
        assert!(db.remove_group(vision, BY).await.unwrap() && !db.remove_group(vision, BY).await.unwrap());
        assert_eq!(db.groups_of(carol).await.unwrap(), ["lab"]);
    })
    .await;
}
