//! Accounts that expire, over the running portal: what administrators set, what ends at the moment and what the loop
//! does then, what the person sees before, and the way back.

use lyceum::{
    expiry::Expiry,
    model::{Loops, Role, SessionState, Timestamp},
};
use serde_json::{Value, json};

use super::{audit, of_directory, outcome};
use crate::{
    db::running,
    portal::{Caller, TestPortal},
};

const DAY: i64 = 86_400;

async fn patch(caller: &Caller, name: &str, body: &Value) -> reqwest::Response {
    caller.request("PATCH", &format!("/api/v1/users/{name}")).json(body).send().await.unwrap()
}

/// One round of the loop.
async fn look(portal: &TestPortal) {
    let expiry = of(portal);
    let round = Loops::new(portal.clock.clone()).begin("expiry", None);
    let looked = expiry.look(&round).await;
    round.end(&looked);
    looked.unwrap();
}

/// The loop, for accounts that nobody uses for 30 days.
pub fn of(portal: &TestPortal) -> Expiry {
    Expiry {
        db: portal.db().clone(),
        clock: portal.clock.clone(),
        access: portal.portal.access.clone(),
        sessions: portal.portal.sessions.clone(),
        dormant_after: Some(30 * DAY),
    }
}

fn in_days(portal: &TestPortal, days: i64) -> Timestamp {
    portal.clock.now().plus_seconds(days * DAY)
}

#[tokio::test]
async fn an_account_ends_with_its_sign_ins_tokens_and_sessions() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let ada = portal.add_user("ada", Role::User).await;
    let bob = portal.add_user("bob", Role::User).await;
    let token = portal.token(&portal.sign_in("ada").await, &[]).await;
    let chief = portal.token(&portal.sign_in("chief").await, &[]).await;
    // Sign-ins end by themselves after eight hours: the end is near.
    let end = portal.clock.now().plus_seconds(3600);
    let hers = portal.sign_in("ada").await;
    let (session, theirs) = (running(portal.db(), ada).await, running(portal.db(), bob).await);
    let answer = patch(&chief, "ada", &json!({ "expires_at": end })).await;
    assert_eq!(answer.status(), 200);
    let shown: Value = answer.json().await.unwrap();
    assert_eq!((&shown["expires_at"], shown["state"].as_str()), (&json!(end), Some("active")));
    let me: Value = token.get("/api/v1/me").await.json().await.unwrap();
    assert_eq!(me["expires_at"], json!(end));
    let page = hers.visit("/").await.text().await.unwrap();
    assert!(page.contains("account-expiry"), "she is warned");
    assert!(!chief.get("/api/v1/me").await.text().await.unwrap().contains(&end.to_string()));

    portal.clock.advance(3599);
    assert_eq!(token.get("/api/v1/me").await.status(), 200);
    portal.clock.advance(1);
    // To the moment, before the loop has looked.
    let rejected = token.get("/api/v1/me").await;
    assert_eq!(rejected.status(), 401);
    let why: Value = rejected.json().await.unwrap();
    let why = why["detail"].as_str().unwrap();
    assert!(why.contains(&format!("expired at {end}")) && why.contains("Ask an administrator"), "{why}");
    assert_eq!(hers.get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.try_sign_in("ada", "ada-has-a-password").await.status(), 401);

    look(&portal).await;
    look(&portal).await;
    let rows = audit(&portal, 20).await;
    let rows: Vec<_> = rows.iter().filter(|row| row.contains("user.expire ada")).collect();
    assert_eq!(rows, [&format!("portal user.expire ada the account expired at {end}")], "once");
    let stopped = portal.db().find_session(session).await.unwrap().unwrap();
    assert_eq!((stopped.state, stopped.detail.as_deref()), (SessionState::Stopping, Some("The account expired")));
    assert_eq!(portal.db().find_session(theirs).await.unwrap().unwrap().state, SessionState::Running);
    let shown: Value = chief.get("/api/v1/users/ada").await.json().await.unwrap();
    assert_eq!(shown["state"], "expired");
    let failed = portal.try_sign_in("ada", "ada-has-a-password").await;
    assert_eq!(failed.status(), 401);
    assert_eq!(audit(&portal, 1).await, ["ada sign_in.failed ada the account expired"]);

    // The way back: an end that is not past, and enabling.
    let refused = patch(&chief, "ada", &json!({ "disabled": false })).await;
    assert_eq!(refused.status(), 409);
    let why: Value = refused.json().await.unwrap();
    let why = why["detail"].as_str().unwrap();
    assert!(why.contains("set a later end or remove it"), "{why}");
    let later = in_days(&portal, 30);
    let shown: Value = patch(&chief, "ada", &json!({ "expires_at": later })).await.json().await.unwrap();
    assert_eq!((shown["state"].as_str(), &shown["expires_at"]), (Some("expired"), &json!(later)));
    assert_eq!(token.get("/api/v1/me").await.status(), 401, "a later end enables nothing");
    let shown: Value =
        patch(&chief, "ada", &json!({ "disabled": false, "expires_at": null })).await.json().await.unwrap();
    assert_eq!((shown["state"].as_str(), &shown["expires_at"]), (Some("active"), &Value::Null));
    assert_eq!(token.get("/api/v1/me").await.status(), 200);
    assert_eq!(hers.get("/api/v1/me").await.status(), 401, "a sign-in that ended stays ended");
}

#[tokio::test]
async fn what_cannot_be_an_end() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("second", Role::Admin).await;
    portal.add_user("ada", Role::User).await;
    let chief = portal.sign_in("chief").await;
    let past = in_days(&portal, -1);
    for (body, expected) in [
        (json!({ "expires_at": past }), "expires_at invalid_value"),
        (json!({ "expires_at": portal.clock.now() }), "expires_at invalid_value"),
        (json!({ "expires_at": "soon" }), "expires_at invalid_value"),
        (json!({ "expires_at": "2030-01-31" }), "expires_at invalid_value"),
        (json!({ "expires_at": 7 }), "expires_at invalid_type"),
    ] {
        let (status, error) = outcome(patch(&chief, "ada", &body).await).await;
        assert_eq!((status, error.as_str()), (422, expected), "{body}");
    }
    // Half wrong changes nothing.
    let body = json!({ "display_name": "Ada", "expires_at": past });
    assert_eq!(patch(&chief, "ada", &body).await.status(), 422);
    let shown: Value = chief.get("/api/v1/users/ada").await.json().await.unwrap();
    assert_ne!(shown["display_name"], "Ada");
    // A moment of another time zone is that moment.
    let body = json!({ "expires_at": "2099-10-01T00:00:00+05:30" });
    let shown: Value = patch(&chief, "ada", &body).await.json().await.unwrap();
    assert_eq!(shown["expires_at"], "2099-09-30T18:30:00Z");

    let later = in_days(&portal, 1);
    assert_eq!(patch(&chief, "chief", &json!({ "expires_at": later })).await.status(), 403, "not one's own");
    assert_eq!(patch(&chief, "second", &json!({ "expires_at": later })).await.status(), 200);
    let second = portal.sign_in("second").await;
    let last = patch(&second, "chief", &json!({ "expires_at": later })).await;
    assert_eq!(last.status(), 409, "somebody must stay");
    assert_eq!(patch(&portal.sign_in("ada").await, "ada", &json!({ "expires_at": null })).await.status(), 403);
}

#[tokio::test]
async fn lists_show_who_has_expired_and_who_will() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    for name in ["gone", "soon", "later", "never", "closed"] {
        portal.add_user(name, Role::User).await;
    }
    of_directory(&portal, "dora", Role::User, &["lab"]).await;
    let chief = portal.sign_in("chief").await;
    let ends = [("gone", 3600), ("soon", 14 * DAY - 1), ("later", 15 * DAY), ("closed", 7200), ("dora", 7200)];
    for (name, seconds) in ends {
        let end = portal.clock.now().plus_seconds(seconds);
        assert_eq!(patch(&chief, name, &json!({ "expires_at": end })).await.status(), 200, "{name}");
    }
    assert_eq!(patch(&chief, "closed", &json!({ "disabled": true })).await.status(), 200);
    portal.clock.advance(3600);
    look(&portal).await;
    let names = async |query: &str| {
        let page: Value = chief.get(&format!("/api/v1/users?{query}")).await.json().await.unwrap();
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{query}: {page}"));
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("state=expired").await, ["gone"]);
    assert_eq!(names("state=expiring").await, ["dora", "soon"]);
    assert_eq!(names("state=disabled").await, ["closed"]);
    assert_eq!(names("state=expiring&source=ldap").await, ["dora"]);
    assert_eq!(names("state=expiring&sort=-name&limit=1").await, ["soon"]);
    let page = chief.visit("/admin/users?state=expiring").await.text().await.unwrap();
    assert!(page.contains("/admin/users/soon") && !page.contains("/admin/users/later"));
    let page = chief.visit("/admin/users?state=expired").await.text().await.unwrap();
    assert!(page.contains("/admin/users/gone") && page.contains("Expired"));
    // A person of the directory is no exception.
    portal.clock.advance(3600);
    look(&portal).await;
    assert_eq!(names("state=expired").await, ["dora", "gone"]);
}

#[tokio::test]
async fn the_page_sets_an_end() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("ada", Role::User).await;
    let chief = portal.sign_in("chief").await.with("accept", "text/html");
    let set = async |until: &str| chief.post_form("/admin/users/ada/expiry", &[("until", until)]).await;
    let shown = async || {
        let shown: Value = chief.get("/api/v1/users/ada").await.json().await.unwrap();
        shown["expires_at"].clone()
    };
    assert_eq!(set(" 2099-01-31 ").await.headers()["location"], "/admin/users/ada?done=expiry");
    assert_eq!(shown().await, "2099-01-31T00:00:00Z");
    assert_eq!(set("2099-01-31 12:30").await.status(), 303);
    assert_eq!(shown().await, "2099-01-31T12:30:00Z");
    for wrong in ["31.1.2099", "<script>", "2001-01-31", "2099-13-01", "\u{202e}2099-01-31"] {
        let answer = set(wrong).await;
        assert_eq!(answer.status(), 422, "{wrong}");
        let page = answer.text().await.unwrap();
        assert!(page.contains("id=\"summary\"") && !page.contains("<script>2"), "{wrong}");
    }
    let page = chief.visit("/admin/users/ada").await.text().await.unwrap();
    assert!(page.contains("value=\"2099-01-31 12:30\""), "what was wrong changed nothing");
    assert_eq!(set("").await.status(), 303);
    assert_eq!(shown().await, Value::Null);
}
