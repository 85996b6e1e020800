//! Accounts that expire, on both databases: the moment, what it ends, who may be enabled again, who must stay, and the
//! work that is left.

use lyceum::{
    db::{
        Db, Error,
        directory::{ArrivalOutcome, Person},
        expiry::LeftWork,
        logins::Login,
        people::UserChange,
    },
    model::{
        LoginId, Role, SweepState, Timestamp, UserId, Username,
        user::{ExpiryChange, State},
    },
};

use super::{BY, NOTED, START, add_user, begun, new_attempt, on_both, running};
use lyceum::db::audit::ChangedBy;

const END: Timestamp = START.plus_seconds(3600);

fn ends(at: Timestamp) -> UserChange<'static> {
    UserChange { expires_at: ExpiryChange::At(at), ..UserChange::default() }
}

fn enables() -> UserChange<'static> {
    UserChange { disabled: Some(false), ..UserChange::default() }
}

fn at(moment: Timestamp) -> ChangedBy<'static> {
    ChangedBy { at: moment, ..BY }
}

async fn state(db: &Db, id: UserId) -> (State, Option<Timestamp>) {
    let user = db.find_user(id).await.unwrap().unwrap().user;
    (user.state(), user.expires_at)
}

async fn last_row(db: &Db) -> String {
    let row = db.list_audit(1).await.unwrap().remove(0);
    format!("{} {} {} {}", row.actor, row.action, row.subject, row.detail)
}

#[tokio::test]
async fn an_account_ends_at_its_moment() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let login = Login {
            id: LoginId::new(),
            user: ada,
            created_at: START,
            last_seen_at: START,
            expires_at: END.plus_seconds(60),
            address: "::1".to_owned(),
        };
        db.add_login(&login, "a login", &NOTED).await.unwrap();
        assert!(db.change_user(ada, &ends(END), BY).await.unwrap());
        assert_eq!(last_row(db).await, format!("a user.expiry ada never → {END}"));
        assert!(!db.change_user(ada, &ends(END), BY).await.unwrap(), "it is so already");
        let before = END.plus_seconds(-1);
        assert!(db.accounts_to_expire(before).await.unwrap().is_empty());
        assert!(!db.expire_account(ada, before).await.unwrap());
        assert_eq!(state(db, ada).await, (State::Active, Some(END)));

        let generation = db.access_generation().await.unwrap();
        assert_eq!(db.accounts_to_expire(END).await.unwrap(), [ada]);
        assert!(db.expire_account(ada, END).await.unwrap());
        assert!(!db.expire_account(ada, END).await.unwrap(), "once");
        assert_eq!(state(db, ada).await, (State::Expired, Some(END)));
        assert_eq!(last_row(db).await, format!("portal user.expire ada the account expired at {END}"));
        assert!(db.accounts_to_expire(END).await.unwrap().is_empty());
        assert!(db.list_logins(ada).await.unwrap().is_empty());
        assert!(generation < db.access_generation().await.unwrap());

        // Enabling needs an end that is not past, and an end alone enables nothing.
        let later = END.plus_seconds(7200);
        let refused = db.change_user(ada, &enables(), at(END)).await;
        assert!(matches!(refused, Err(Error::Expired(END))), "{refused:?}");
        db.change_user(ada, &ends(later), at(END)).await.unwrap();
        assert_eq!(state(db, ada).await, (State::Expired, Some(later)));
        db.change_user(ada, &enables(), at(END)).await.unwrap();
        assert_eq!(state(db, ada).await, (State::Active, Some(later)));
        let both = UserChange { expires_at: ExpiryChange::Never, ..enables() };
        assert!(db.expire_account(ada, later).await.unwrap());
        db.change_user(ada, &both, at(later)).await.unwrap();
        assert_eq!(state(db, ada).await, (State::Active, None));
    })
    .await;
}

/// Whoever changes an account that is due, before the loop has seen it, meets one that has expired.
#[tokio::test]
async fn a_later_end_comes_too_late() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        db.change_user(ada, &ends(END), BY).await.unwrap();
        let later = END.plus_seconds(60);
        assert!(matches!(db.change_user(ada, &enables(), at(END)).await, Err(Error::Expired(END))));
        db.change_user(ada, &ends(later), at(END)).await.unwrap();
        assert_eq!(state(db, ada).await, (State::Expired, Some(later)));

        // An administrator's word stays.
        let bob = add_user(db, "bob").await;
        db.change_user(bob, &ends(END), BY).await.unwrap();
        db.set_disabled(bob, true, BY).await.unwrap();
        assert!(db.accounts_to_expire(later).await.unwrap().is_empty());
        assert_eq!(state(db, bob).await.0, State::Disabled);
    })
    .await;
}

#[tokio::test]
async fn one_administrator_has_no_end() {
    on_both(async |house| {
        let db = &house.db;
        let mut chiefs = Vec::new();
        for name in ["ada", "bob"] {
            let id = add_user(db, name).await;
            let admin = UserChange { role: Some(Role::Admin), password_hash: Some("$x"), ..UserChange::default() };
            db.change_user(id, &admin, BY).await.unwrap();
            chiefs.push(id);
        }
        db.change_user(chiefs[0], &ends(END), BY).await.unwrap();
        for change in [ends(END), UserChange { disabled: Some(true), ..UserChange::default() }] {
            let refused = db.change_user(chiefs[1], &change, BY).await;
            assert!(matches!(refused, Err(Error::LastAdmin)), "{refused:?}");
        }
        assert_eq!(state(db, chiefs[1]).await, (State::Active, None));
    })
    .await;
}

#[tokio::test]
async fn a_directory_opens_no_account_that_has_ended() {
    on_both(async |house| {
        let db = &house.db;
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &Username::parse("carol").unwrap(),
            display_name: "",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: None,
            groups: &[],
        };
        let ArrivalOutcome::Known(carol) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        db.change_user(carol, &ends(END), BY).await.unwrap();
        assert_eq!(db.arrive(&person, START).await.unwrap(), ArrivalOutcome::Known(carol));
        assert_eq!(db.arrive(&person, END).await.unwrap(), ArrivalOutcome::Disabled, "to the moment");
        assert!(db.expire_account(carol, END).await.unwrap());
        assert_eq!(db.arrive(&person, END).await.unwrap(), ArrivalOutcome::Disabled);
        assert_eq!(state(db, carol).await.0, State::Expired);
    })
    .await;
}

#[tokio::test]
async fn work_is_left_by_those_alone_who_have_expired() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let (session, theirs) = (running(db, ada).await, running(db, bob).await);
        let attempt = new_attempt(ada, "train", None);
        begun(db, &attempt).await;
        let retried = super::holds::failed_job(db, ada, "retried").await;
        let sweeps = super::sweeps::of_every_kind(db, ada).await;
        assert_eq!(db.work_of_expired_accounts().await.unwrap(), LeftWork::default());
        for user in [ada, bob] {
            db.change_user(user, &ends(if user == ada { START } else { END }), BY).await.unwrap();
        }
        assert!(db.expire_account(ada, START).await.unwrap());
        let left = db.work_of_expired_accounts().await.unwrap();
        assert!(left.sessions.contains(&session) && left.sessions.contains(&attempt.id), "{left:?}");
        assert!(!left.sessions.contains(&theirs), "{left:?}");
        assert!(left.jobs.contains(&retried.job), "{left:?}");
        let open: Vec<_> = left.sweeps.iter().map(|(id, _)| *id).collect();
        assert_eq!(open.len(), 3, "that which has ended is not left: {left:?}");
        assert!(!open.contains(&sweeps[3]));
        for id in open {
            let from = [SweepState::Running, SweepState::Paused];
            db.set_sweep_state(id, &from, (SweepState::Stopping, ""), None).await.unwrap();
        }
        db.settle_job(retried.job).await.unwrap();
        let left = db.work_of_expired_accounts().await.unwrap();
        assert!(left.sweeps.is_empty() && !left.jobs.contains(&retried.job), "{left:?}");
    })
    .await;
}

/// Twenty who change, disable and expire one account at once leave it in one of the two states, with one row for it.
#[tokio::test]
async fn twenty_at_once() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        db.change_user(ada, &ends(END), BY).await.unwrap();
        let outcomes = futures_util::future::join_all((0..20).map(|number| async move {
            if number % 2 == 0 {
                db.expire_account(ada, END).await.unwrap()
            } else {
                db.change_user(ada, &ends(END.plus_seconds(60)), at(END)).await.unwrap();
                false
            }
        }))
        .await;
        assert!(outcomes.iter().filter(|expired| **expired).count() <= 1);
        assert_eq!(state(db, ada).await, (State::Expired, Some(END.plus_seconds(60))));
        let rows = db.list_audit(100).await.unwrap();
        assert_eq!(rows.iter().filter(|row| row.action == "user.expire").count(), 1);
    })
    .await;
}
