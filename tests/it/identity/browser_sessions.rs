//! The sessions of browsers: ids that change at each sign-in, hashes in the database, ends by the clock
//! and in other processes, and what the store that tower-sessions writes to accepts.

use std::{sync::Arc, time::Duration};

use lyceum::{
    auth::{
        Access, Local, Logins,
        access::{ABSOLUTE_SECONDS, IDLE_SECONDS},
    },
    db::{self, Db},
    model::{LoginId, Role},
};
use serde_json::json;
use tower_sessions::{
    Session, SessionStore,
    session::{Id, Record},
};

use crate::portal::{START, TestPortal, cookie, password, sha256};

async fn portal() -> TestPortal {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal
}

/// The id of a new session of alice's.
async fn session_of_alice(portal: &TestPortal) -> String {
    cookie(&portal.try_sign_in("alice", &password("alice")).await, "lyceum_login").unwrap()
}

async fn status(portal: &TestPortal, cookies: &str) -> u16 {
    portal.anybody().with("cookie", cookies).get("/api/v1/me").await.status().as_u16()
}

#[tokio::test]
async fn a_sign_in_gets_a_new_session_id() {
    let portal = portal().await;
    let planted = Id::default().to_string();
    let mut before = planted.clone();
    // An id that somebody else has chosen, then one of the portal's own.
    for known in [false, true] {
        let browser = portal.anybody().with("origin", &portal.url).with("cookie", &format!("lyceum_login={before}"));
        let wrong = browser.post("/api/v1/login", &json!({ "username": "alice", "password": "wrong" })).await;
        assert_eq!((wrong.status().as_u16(), wrong.headers().get("set-cookie")), (401, None));
        assert_eq!(status(&portal, &format!("lyceum_login={before}")).await, if known { 200 } else { 401 });
        let right = json!({ "username": "alice", "password": password("alice") });
        let answer = browser.post("/api/v1/login", &right).await;
        let after = cookie(&answer, "lyceum_login").unwrap();
        assert_ne!(after, before);
        assert_eq!(status(&portal, &format!("lyceum_login={before}")).await, 401, "the old id is worth nothing");
        assert_eq!(status(&portal, &format!("lyceum_login={after}")).await, 200);
        before = after;
    }
    assert_eq!(status(&portal, &format!("lyceum_login={planted}")).await, 401);
    let mut actions: Vec<_> = portal.db().list_audit(10).await.unwrap().into_iter().map(|row| row.action).collect();
    actions.retain(|action| action != "sign_in.failed");
    assert_eq!(actions, ["sign_in", "sign_out", "sign_in", "user.add"], "the login that was replaced has its end");
}

#[tokio::test]
async fn a_copy_of_the_database_signs_nobody_in() {
    let portal = portal().await;
    let id = session_of_alice(&portal).await;
    assert_eq!(status(&portal, &format!("lyceum_login={id}")).await, 200);
    let hash = sha256(&id);
    let files = std::fs::read_dir(portal.directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<u8> = files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).unwrap()).collect();
    let holds = |text: &str| kept.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds(&hash) && !holds(&id), "the database has the hash alone");
    let first = i128::from_str_radix(&hash[..31], 16).unwrap();
    for made_of_it in [hash.clone(), hash[..22].to_owned(), Id(first).to_string()] {
        assert_eq!(status(&portal, &format!("lyceum_login={made_of_it}")).await, 401, "{made_of_it}");
    }
}

#[tokio::test]
async fn sign_out_everywhere_ends_sessions_of_another_process() {
    let portal = portal().await;
    let (here, there) = (session_of_alice(&portal).await, session_of_alice(&portal).await);
    let db = Db::open(&db::Config::default(), portal.directory.path()).await.unwrap();
    let local = Arc::new(Local::new(db.clone()).await.unwrap());
    let other = Access::new(db, portal.clock.clone(), [7; 32], portal.directory.path(), local);
    let alice = other.by_cookie(&there).await.unwrap().expect("both read one table");
    for id in [&here, &there] {
        assert_eq!(status(&portal, &format!("lyceum_login={id}")).await, 200);
    }
    let mut changes = portal.portal.access.changes();
    changes.mark_unchanged();
    other.log_out_everywhere(&alice).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.expect("within five seconds").unwrap();
    for id in [&here, &there] {
        assert_eq!(status(&portal, &format!("lyceum_login={id}")).await, 401);
        assert!(other.by_cookie(id).await.unwrap().is_none());
    }
}

/// The session layer reads names with their percent signs decoded; the portal does not.
#[tokio::test]
async fn an_encoded_cookie_name_is_not_ours() {
    let portal = portal().await;
    let (own, tossed) = (session_of_alice(&portal).await, session_of_alice(&portal).await);
    assert_eq!(status(&portal, &format!("%6Cyceum_login={tossed}")).await, 401);
    let cookies = format!("lyceum_login={own}; %6Cyceum_login={tossed}; a=b");
    assert_eq!(status(&portal, &cookies).await, 200);
    let browser = portal.anybody().with("origin", &portal.url).with("cookie", &cookies);
    assert_eq!(browser.post("/api/v1/logout", &json!({})).await.status(), 204);
    assert_eq!(status(&portal, &format!("lyceum_login={own}")).await, 401, "this one has signed out");
    assert_eq!(status(&portal, &format!("lyceum_login={tossed}")).await, 200, "and not this one");
}

#[tokio::test]
async fn two_cookies_are_nobody_and_end_no_session() {
    let portal = portal().await;
    let (one, other) = (session_of_alice(&portal).await, session_of_alice(&portal).await);
    let both = format!("lyceum_login={one}; lyceum_login={other}");
    assert_eq!(status(&portal, &both).await, 401);
    let browser = portal.anybody().with("origin", &portal.url).with("cookie", &both);
    assert_eq!(browser.post_form("/logout", &[]).await.status(), 303);
    let right = json!({ "username": "alice", "password": password("alice") });
    let fresh = cookie(&browser.post("/api/v1/login", &right).await, "lyceum_login").unwrap();
    for id in [one, other, fresh] {
        assert_eq!(status(&portal, &format!("lyceum_login={id}")).await, 200);
    }
}

/// Browsers ignore a cookie whose name begins with `__Host-` and that is not `Secure`.
#[tokio::test]
async fn by_https_signing_out_removes_the_cookie() {
    let portal =
        TestPortal::start_with(|config| config.public_url = Some("https://portal.example.org".parse().unwrap())).await;
    portal.add_user("alice", Role::User).await;
    let caller = portal.anybody().with("origin", "https://portal.example.org");
    let right = json!({ "username": "alice", "password": password("alice") });
    let id = cookie(&caller.post("/api/v1/login", &right).await, "__Host-lyceum_login").unwrap();
    let browser = caller.with("cookie", &format!("__Host-lyceum_login={id}"));
    for (path, expected) in [("/settings/sign-out-everywhere", 303), ("/logout", 303)] {
        let answer = browser.post_form(path, &[]).await;
        assert_eq!(answer.status(), expected, "{path}");
        let set: Vec<_> = answer.headers().get_all("set-cookie").iter().map(|set| set.to_str().unwrap()).collect();
        assert_eq!(set.len(), 1, "{path}: {set:?}");
        assert!(set[0].starts_with("__Host-lyceum_login=; ") && set[0].contains("; Secure"), "{path}: {set:?}");
    }
}

/// The store of the portal, and a record of alice's as it loads it.
async fn stored(portal: &TestPortal) -> (Logins, Record) {
    let store = Logins::new(portal.portal.access.clone());
    let id = session_of_alice(portal).await.parse().unwrap();
    let record = store.load(&id).await.unwrap().expect("it has just begun");
    (store, record)
}

#[tokio::test]
async fn a_session_ends_by_idleness_and_by_age() {
    let portal = portal().await;
    let (store, record) = stored(&portal).await;
    let seconds = |record: &Record| record.expiry_date.unix_timestamp() - START.0 / 1000;
    assert_eq!(seconds(&record), IDLE_SECONDS);
    portal.clock.advance(IDLE_SECONDS - 1);
    let used = store.load(&record.id).await.unwrap().expect("it was idle for not quite so long");
    assert_eq!(seconds(&used), 2 * IDLE_SECONDS - 1, "its use moves the end");
    for _ in 0..ABSOLUTE_SECONDS / IDLE_SECONDS - 1 {
        portal.clock.advance(IDLE_SECONDS - 1);
        store.load(&record.id).await.unwrap().expect("it is used");
    }
    let last = store.load(&record.id).await.unwrap().unwrap();
    assert_eq!(seconds(&last), ABSOLUTE_SECONDS, "but not for ever");
    portal.clock.advance(IDLE_SECONDS - 1);
    assert_eq!(store.load(&record.id).await.unwrap(), None);
    let (store, record) = stored(&portal).await;
    portal.clock.advance(IDLE_SECONDS);
    assert_eq!(store.load(&record.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_session_id_that_is_taken_is_refused() {
    let portal = portal().await;
    let (store, record) = stored(&portal).await;
    let rows = portal.db().list_audit(10).await.unwrap().len();
    let mut second = record.clone();
    let login = second.data.get_mut("login").unwrap();
    login["id"] = json!(LoginId::new());
    second.data.insert("sign_in".to_owned(), json!({ "name": "alice", "how": "" }));
    assert!(store.create(&mut second).await.is_err());
    assert_eq!(store.load(&record.id).await.unwrap().unwrap().data, record.data, "whose it is keeps it");
    assert_eq!(portal.db().list_audit(10).await.unwrap().len(), rows, "no row without its sign-in");
    second.id = Id::default();
    store.create(&mut second).await.unwrap();
    assert_eq!(portal.db().list_audit(10).await.unwrap().len(), rows + 1);
}

#[tokio::test]
async fn a_session_holds_a_login_and_nothing_else() {
    let portal = portal().await;
    let (store, record) = stored(&portal).await;
    store.save(&record).await.unwrap();
    let session = |id| Session::new(id, Arc::new(store.clone()), None);
    let with_more = session(Some(record.id));
    with_more.insert("colour", "red").await.unwrap();
    assert!(with_more.save().await.is_err(), "what would not be kept");
    assert!(session(None).save().await.is_err(), "a session of nobody");
    let mut unaudited = Record { id: Id::default(), ..record.clone() };
    assert!(store.create(&mut unaudited).await.is_err(), "a sign-in without its row");
    let mut others = record.clone();
    others.data.get_mut("login").unwrap()["user"] = json!(lyceum::model::UserId::new());
    assert!(store.save(&others).await.is_err(), "a session never becomes somebody else's");
    store.delete(&record.id).await.unwrap();
    store.delete(&record.id).await.unwrap();
    store.save(&record).await.unwrap();
    assert_eq!(store.load(&record.id).await.unwrap(), None, "saving brings nothing back");
    let ends = portal.db().list_audit(10).await.unwrap().into_iter().filter(|row| row.action == "sign_out").count();
    assert_eq!(ends, 1);
}
