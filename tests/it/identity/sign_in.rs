//! Signing in and out, passwords, the login's ends, and the first account.

use std::{
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use lyceum::{
    auth::first::ensure_first_admin,
    db,
    db::Db,
    model::Role,
    web::{ClientHeader, http::forwarded::parse_network},
};
use serde_json::{Value, json};

use crate::portal::{Caller, TestPortal, cookie, password};

#[tokio::test]
async fn in_and_out_by_the_api() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let answer = portal.try_sign_in("alice", &password("alice")).await;
    assert_eq!(answer.status(), 200);
    let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(set.starts_with("lyceum_login="), "{set}");
    for attribute in ["; Path=/", "; HttpOnly", "; SameSite=Lax"] {
        assert!(set.contains(attribute), "{set} lacks {attribute}");
    }
    assert!(!set.contains("Secure") && !set.contains("Domain"), "{set}");
    assert_eq!(cookie(&answer, "lyceum_login").unwrap().len(), 22, "128 random bits");

    let alice = portal.sign_in("alice").await;
    let me: Value = alice.get("/api/v1/me").await.json().await.unwrap();
    assert_eq!((&me["name"], &me["role"], &me["groups"]), (&json!("alice"), &json!("user"), &json!([])));
    let out = alice.post("/api/v1/logout", &json!({})).await;
    assert_eq!(out.status(), 204);
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(alice.get("/api/v1/me").await.status(), 401, "the login has ended on the server");

    let actions: Vec<String> = portal.db().list_audit(10).await.unwrap().into_iter().map(|row| row.action).collect();
    assert_eq!(actions, ["sign_out", "sign_in", "sign_in", "user.add"]);
}

#[tokio::test]
async fn in_and_out_by_the_page() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let visit = portal.anybody().visit("/settings").await;
    assert_eq!(
        (visit.status().as_u16(), visit.headers()["location"].to_str().unwrap()),
        (303, "/login?next=%2Fsettings")
    );

    let page = portal.anybody().visit("/login?next=%2Fsettings").await;
    assert_eq!(page.status(), 200);
    let form_cookie = cookie(&page, "lyceum_form").unwrap();
    let csrf_token = field(&page.text().await.unwrap(), "csrf_token");
    let browser = portal.anybody().with("cookie", &format!("lyceum_form={form_cookie}"));
    let right = password("alice");
    let fields =
        [("username", "alice"), ("password", right.as_str()), ("next", "/settings"), ("csrf_token", &csrf_token)];
    let answer = browser.post_form("/login", &fields).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/settings"));
    let alice = portal.anybody().with("cookie", &format!("lyceum_login={}", cookie(&answer, "lyceum_login").unwrap()));
    let settings = alice.visit("/settings").await;
    assert_eq!(settings.status(), 200);
    let csrf_token = field(&settings.text().await.unwrap(), "csrf_token");
    assert_eq!(alice.visit("/login?next=//evil.example").await.headers()["location"], "/", "already signed in");

    let out = alice.post_form("/logout", &[("csrf_token", &csrf_token)]).await;
    assert_eq!((out.status().as_u16(), out.headers()["location"].to_str().unwrap()), (303, "/login?signed_out=1"));
    assert_eq!(alice.visit("/settings").await.status(), 303);

    let wrong = [("username", "alice"), ("password", "wrong"), ("next", "/settings")];
    let answer = portal.anybody().with("origin", &portal.url).post_form("/login", &wrong).await;
    assert_eq!(answer.status(), 401);
    let page = answer.text().await.unwrap();
    assert!(page.contains("The user name or password is wrong."), "{page}");
    assert_eq!((field(&page, "username"), field(&page, "next")), ("alice".to_owned(), "/settings".to_owned()));
    assert!(!page.contains("wrong\""), "the password is not kept");
}

/// Through the form; the table of addresses is beside `safe_next`.
#[tokio::test]
async fn open_redirect_by_the_form() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let right = password("alice");
    for next in ["//evil.example", "https://evil.example", "/\\evil.example", "/.//evil.example", "javascript:alert(1)"]
    {
        let fields = [("username", "alice"), ("password", right.as_str()), ("next", next)];
        let answer = portal.anybody().with("origin", &portal.url).post_form("/login", &fields).await;
        assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/"), "{next}");
    }
}

#[tokio::test]
async fn nobody_learns_which_names_there_are() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let carol = portal.add_user("carol", Role::User).await;
    portal.db().set_disabled(carol, true, portal.by()).await.unwrap();
    let right = password("carol");
    let attempts = [
        ("alice", "wrong-password"),
        ("nobody", "wrong-password"),
        ("carol", right.as_str()),
        ("alice", ""),
        ("a\0b", "x"),
    ];
    for (name, secret) in attempts {
        let answer = portal.try_sign_in(name, secret).await;
        assert_eq!(answer.status(), 401, "{name}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["detail"], "The user name or password is wrong.", "{name}");
    }
    let mut rows = portal.db().list_audit(10).await.unwrap();
    rows.retain(|row| row.action == "sign_in.failed");
    assert_eq!(rows.len(), attempts.len());
    // A password is often enough typed where the name belongs.
    let targets: Vec<&str> = rows.iter().rev().map(|row| row.subject.as_str()).collect();
    assert_eq!(targets, ["alice", "(unknown name)", "carol", "alice", "(unknown name)"]);
}

#[tokio::test]
async fn spellings_of_a_local_name_are_one_name() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    for typed in ["ALICE", " alice ", "\u{3000}Alice", "ａｌｉｃｅ"] {
        assert_eq!(portal.try_sign_in(typed, &password("alice")).await.status(), 200, "{typed:?}");
    }
    for typed in ["аlice", "alice\u{200b}", "ali ce", "alice\0"] {
        assert_eq!(portal.try_sign_in(typed, &password("alice")).await.status(), 401, "{typed:?}");
    }
    for blanks in 0..5 {
        let typed = format!("{}ALICE", " ".repeat(blanks));
        assert_eq!(portal.try_sign_in(&typed, "wrong-password").await.status(), 401);
    }
    let row = portal.db().list_audit(1).await.unwrap().remove(0);
    assert_eq!(row.subject, "alice", "the audit log has the one name");
    assert_eq!(portal.try_sign_in("aLice", "wrong-password").await.status(), 429, "one count for all spellings");
}

/// Guessing slows down and never locks out.
#[tokio::test]
async fn login_throttle() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("bob", Role::User).await;
    for _ in 0..5 {
        assert_eq!(portal.try_sign_in("alice", "wrong-password").await.status(), 401);
    }
    let answer = portal.try_sign_in("alice", &password("alice")).await;
    assert_eq!(answer.status(), 429, "also for the right password");
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(portal.try_sign_in("bob", &password("bob")).await.status(), 200, "others are not held up");
    for round in 0..20 {
        portal.clock.advance(60);
        assert_eq!(portal.try_sign_in("alice", "wrong-password").await.status(), 401, "round {round}");
    }
    portal.clock.advance(60);
    assert_eq!(portal.try_sign_in("alice", &password("alice")).await.status(), 200, "never for good");
    assert_eq!(portal.try_sign_in("nobody", "wrong-password").await.status(), 401);
}

#[tokio::test]
async fn a_flood_of_guesses_is_bounded() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let guesses = (0..60).map(|_| portal.try_sign_in("alice", "wrong-password"));
    let answers = futures_util::future::join_all(guesses).await;
    let looked_at = answers.iter().filter(|answer| answer.status() == 401).count();
    assert!((5..=9).contains(&looked_at), "{looked_at} of 60 guesses at once were looked at");
}

#[tokio::test]
async fn fifty_sign_ins_at_once() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let right = password("alice");
    let answers = futures_util::future::join_all((0..50).map(|_| portal.try_sign_in("alice", &right))).await;
    assert!(answers.iter().all(|answer| answer.status() == 200));
}

#[tokio::test]
async fn a_new_password_ends_all_other_logins() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let (here, elsewhere) = (portal.sign_in("alice").await, portal.sign_in("alice").await);
    let change = async |caller: &Caller, current: &str, new: &str| {
        caller.post("/api/v1/me/password", &json!({ "current_password": current, "new_password": new })).await
    };
    for (current, new, field) in [
        ("wrong-password", "a new password", "current_password"),
        (&*password("alice"), "too short", "new_password"),
        (&*password("alice"), &"x".repeat(1025), "new_password"),
    ] {
        let answer = change(&here, current, new).await;
        assert_eq!(answer.status(), 422);
        assert_eq!(answer.json::<Value>().await.unwrap()["errors"][0]["field"], field);
    }
    assert_eq!(change(&here, &password("alice"), "a new password").await.status(), 204);
    assert_eq!(here.get("/api/v1/me").await.status(), 200);
    assert_eq!(elsewhere.get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.try_sign_in("alice", &password("alice")).await.status(), 401);
    assert_eq!(portal.try_sign_in("alice", "a new password").await.status(), 200);

    let fields = [
        ("current_password", "a new password"),
        ("new_password", "one more password"),
        ("repeat_password", "another password"),
    ];
    let refused = here.post_form("/settings/password", &fields).await;
    assert_eq!(refused.status(), 422);
    assert!(refused.text().await.unwrap().contains("repeat_password-error"));
    let fields = [
        ("current_password", "a new password"),
        ("new_password", "one more password"),
        ("repeat_password", "one more password"),
    ];
    assert_eq!(here.post_form("/settings/password", &fields).await.headers()["location"], "/settings?done=password");
    assert_eq!(portal.try_sign_in("alice", "one more password").await.status(), 200);
}

#[tokio::test]
async fn sign_out_everywhere() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let (here, elsewhere, bob) =
        (portal.sign_in("alice").await, portal.sign_in("alice").await, portal.sign_in("bob").await);
    assert_eq!(here.post_form("/settings/sign-out-everywhere", &[]).await.status(), 303);
    assert_eq!(here.get("/api/v1/me").await.status(), 401);
    assert_eq!(elsewhere.get("/api/v1/me").await.status(), 401);
    assert_eq!(bob.get("/api/v1/me").await.status(), 200);
}

#[tokio::test]
async fn logins_end_by_idleness_and_by_age() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let (used, unused) = (portal.sign_in("alice").await, portal.sign_in("alice").await);
    for hour in 0..7 * 24 {
        assert_eq!(used.get("/api/v1/me").await.status(), 200, "after {hour} hours");
        if hour == 7 {
            assert_eq!(unused.get("/api/v1/me").await.status(), 200, "idle for less than 8 hours");
        }
        portal.clock.advance(3600);
    }
    assert_eq!(used.get("/api/v1/me").await.status(), 401, "7 days are the end");
    assert_eq!(unused.get("/api/v1/me").await.status(), 401);
    let idle = portal.sign_in("alice").await;
    portal.clock.advance(8 * 3600);
    assert_eq!(idle.get("/api/v1/me").await.status(), 401);
}

#[tokio::test]
async fn a_sign_in_replaces_the_browsers_login() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let before = portal.sign_in("alice").await;
    let body = json!({ "username": "alice", "password": password("alice") });
    let answer = before.post("/api/v1/login", &body).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(before.get("/api/v1/me").await.status(), 401, "the old secret is worth nothing");
}

/// A browser sends no login with another site's form, and would take its removal from us.
#[tokio::test]
async fn another_sites_form_signs_nobody_out() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let foreign = portal.anybody().with("origin", "https://evil.example").with("sec-fetch-site", "cross-site");
    let answer = foreign.post_form("/logout", &[("a", "b")]).await;
    assert_eq!((answer.status().as_u16(), answer.headers().get("set-cookie")), (303, None));
    let alice = portal.sign_in("alice").await;
    let answer = alice.post_form("/logout", &[("a", "b")]).await;
    assert!(answer.headers()["set-cookie"].to_str().unwrap().starts_with("lyceum_login=; "), "{answer:?}");
    assert_eq!(alice.get("/api/v1/me").await.status(), 401);
}

/// The address in the audit is the one by which guesses are slowed down.
#[tokio::test]
async fn trusted_proxies_alone_say_where_somebody_is() {
    let networks = |texts: &[&str]| texts.iter().map(|text| parse_network(text).unwrap()).collect();
    for (trusted, header, believed) in [
        (&[][..], ClientHeader::XForwardedFor, "127.0.0.1"),
        (&["10.0.0.0/8"], ClientHeader::XForwardedFor, "127.0.0.1"),
        (&["127.0.0.0/8", "10.0.0.0/8"], ClientHeader::XForwardedFor, "192.0.2.7"),
        (&["127.0.0.0/8", "10.0.0.0/8"], ClientHeader::Forwarded, "192.0.2.9"),
    ] {
        let portal = TestPortal::start_with(|config| {
            config.trusted_proxies = networks(trusted);
            config.client_header = header;
        })
        .await;
        portal.add_user("alice", Role::User).await;
        let sent = portal.anybody().with("origin", &portal.url);
        let sent = sent.with("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.1.1.1").with("x-real-ip", "6.6.6.6");
        let sent = sent.with("forwarded", "for=6.6.6.6, for=\"192.0.2.9:80\"").with("x-client-ip", "6.6.6.6");
        let body = json!({ "username": "alice", "password": "wrong" });
        assert_eq!(sent.post("/api/v1/login", &body).await.status(), 401);
        let told = portal.db().list_audit(1).await.unwrap().remove(0);
        assert!(told.action == "sign_in.failed" && told.address == believed, "{trusted:?} {header:?}: {told:?}");
    }
}

/// A second cookie signs out.
#[tokio::test]
async fn cookie_tossing() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let secret = cookie(&portal.try_sign_in("alice", &password("alice")).await, "lyceum_login").unwrap();
    for cookies in [
        format!("lyceum_login={secret}; lyceum_login=tossed"),
        format!("lyceum_login=tossed; lyceum_login={secret}"),
        format!("lyceum_login={secret}; lyceum_login={secret}"),
        format!("__Host-lyceum_login={secret}"),
    ] {
        let caller = portal.anybody().with("cookie", &cookies);
        assert_eq!(caller.get("/api/v1/me").await.status(), 401, "{cookies}");
    }
    let tossed = portal.anybody().with("cookie", "lyceum_login=tossed; lyceum_login=x");
    assert!(tossed.visit("/login").await.text().await.unwrap().contains("two sign-in cookies"));
}

#[tokio::test]
async fn https_has_a_cookie_of_this_host_alone() {
    let portal =
        TestPortal::start_with(|config| config.public_url = Some("https://portal.example.org".parse().unwrap())).await;
    portal.add_user("alice", Role::User).await;
    let caller = portal.anybody().with("origin", "https://portal.example.org");
    let body = json!({ "username": "alice", "password": password("alice") });
    let answer = caller.post("/api/v1/login", &body).await;
    let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(set.starts_with("__Host-lyceum_login=") && set.contains("; Secure") && set.contains("; Path=/;"), "{set}");
    let secret = cookie(&answer, "__Host-lyceum_login").unwrap();
    assert_eq!(
        portal.anybody().with("cookie", &format!("__Host-lyceum_login={secret}")).get("/api/v1/me").await.status(),
        200
    );
    assert_eq!(
        portal.anybody().with("cookie", &format!("lyceum_login={secret}")).get("/api/v1/me").await.status(),
        401
    );
}

#[tokio::test]
async fn another_process_can_end_access_within_a_second() {
    let portal = TestPortal::start().await;
    let id = portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let token = portal.token(&alice, &[]).await;
    assert_eq!(
        (alice.get("/api/v1/me").await.status(), token.get("/api/v1/me").await.status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    let mut changes = portal.portal.access.changes();
    changes.mark_unchanged();

    let other = Db::open(&db::Config::default(), portal.directory.path()).await.unwrap();
    let started = Instant::now();
    other.set_disabled(id, true, portal.by()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.expect("the change is told").unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(alice.get("/api/v1/me").await.status(), 401);
    assert_eq!(token.get("/api/v1/me").await.status(), 401);
    other.set_disabled(id, false, portal.by()).await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(alice.get("/api/v1/me").await.status(), 401, "its logins are gone for good");
    assert_eq!(token.get("/api/v1/me").await.status(), 200, "tokens live again with their owner");
}

#[tokio::test]
async fn the_first_account_and_its_password() {
    let portal = TestPortal::start().await;
    let private = portal.directory.path();
    let file = ensure_first_admin(portal.db(), &portal.clock, private).await.unwrap().expect("there was no account");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(ensure_first_admin(portal.db(), &portal.clock, private).await.unwrap(), None);
    let login = portal.anybody().visit("/login").await.text().await.unwrap();
    assert!(login.contains("first-password"), "a local visitor reads where the password is");
    let forwarded = portal.anybody().with("x-forwarded-for", "192.0.2.1").visit("/login").await.text().await.unwrap();
    assert!(!forwarded.contains("first-password"));

    let first = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(10 <= first.len() && !login.contains(&first));
    assert_eq!(portal.try_sign_in("admin", "wrong-password").await.status(), 401);
    assert!(file.exists());
    assert_eq!(portal.try_sign_in("admin", &first).await.status(), 200);
    assert!(!file.exists(), "it goes with the first sign-in");
}

/// The value of a form's field in a page.
fn field(page: &str, name: &str) -> String {
    let from = page.find(&format!("name=\"{name}\"")).unwrap_or_else(|| panic!("no field {name} in {page}"));
    page[from..].split("value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}
