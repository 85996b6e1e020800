//! Accounts that nobody uses: what counts as use, what ends with the account, who is left alone, and the way back.

use lyceum::model::{Loops, Role, UserId};
use serde_json::{Value, json};

use super::{audit, expiry, of_directory};
use crate::{
    db::running,
    portal::{Caller, TestPortal},
};

const DAY: i64 = 86_400;

/// One round of the loop, for accounts that nobody uses for 30 days.
async fn look(portal: &TestPortal) {
    let round = Loops::new(portal.clock.clone()).begin("expiry", None);
    let looked = expiry::of(portal).look_for_unused(&round).await;
    round.end(&looked);
    looked.unwrap();
}

async fn state(caller: &Caller, name: &str) -> String {
    let shown: Value = caller.get(&format!("/api/v1/users/{name}")).await.json().await.unwrap();
    shown["state"].as_str().unwrap().to_owned()
}

async fn names(caller: &Caller, query: &str) -> Vec<String> {
    let listed: Value = caller.get(&format!("/api/v1/users?{query}")).await.json().await.unwrap();
    listed["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

async fn in_the_portal(portal: &TestPortal, name: &str) -> UserId {
    portal.db().find_user_by_name(name).await.unwrap().unwrap().user.id
}

#[tokio::test]
async fn an_account_that_nobody_uses_is_disabled() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("idle-chief", Role::Admin).await;
    for name in ["ada", "bob", "cleo", "dora", "unused"] {
        portal.add_user(name, Role::User).await;
    }
    of_directory(&portal, "lea", Role::Operator, &[]).await;
    let ada = portal.token(&portal.sign_in("ada").await, &[]).await;
    let bob = portal.token(&portal.sign_in("bob").await, &[]).await;
    // A session of hers that runs for months.
    running(portal.db(), in_the_portal(&portal, "cleo").await).await;
    let work = portal.db().set_password(in_the_portal(&portal, "dora").await, "$x", None, &crate::db::NOTED).await;
    work.unwrap();

    portal.clock.advance(29 * DAY);
    look(&portal).await;
    assert_eq!(names(&portal.sign_in("chief").await, "state=dormant").await, Vec::<String>::new());
    // A token is use, of an account that has no sign-in left.
    assert_eq!(bob.get("/api/v1/me").await.status(), 200);
    portal.portal.access.poll().await.unwrap();
    portal.clock.advance(DAY);
    // Twenty rounds at once disable each once.
    futures_util::future::join_all((0..20).map(|_| look(&portal))).await;
    let chief = portal.token(&portal.sign_in("chief").await, &[]).await;
    assert_eq!(names(&chief, "state=dormant").await, ["ada", "dora", "lea", "unused"]);
    for (name, expected) in [("bob", "active"), ("cleo", "active"), ("chief", "active"), ("idle-chief", "active")] {
        assert_eq!(state(&chief, name).await, expected, "{name}");
    }
    assert_eq!(names(&chief, "state=disabled").await, Vec::<String>::new());
    assert_eq!(ada.get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.try_sign_in("ada", "ada-has-a-password").await.status(), 401);
    let rows = audit(&portal, 20).await;
    assert_eq!(rows[0], "ada sign_in.failed ada the account is dormant");
    let mut dormant: Vec<&String> = rows.iter().filter(|row| row.contains(" user.dormant ")).collect();
    dormant.sort();
    assert_eq!(dormant.len(), 4, "{rows:?}");
    assert!(dormant[0].starts_with("portal user.dormant ada last used at "), "{dormant:?}");
    assert_eq!(dormant[3], "portal user.dormant unused never used");

    // The way back: an administrator enables it, and its time counts again.
    let page = portal.sign_in("chief").await.get("/admin/users/ada").await.text().await.unwrap();
    assert!(page.contains("Dormant") && page.contains("for as long as this site allows"), "{page}");
    let enable = chief.request("PATCH", "/api/v1/users/ada").json(&json!({ "disabled": false })).send().await.unwrap();
    assert_eq!(enable.json::<Value>().await.unwrap()["state"], "active");
    look(&portal).await;
    assert_eq!(state(&chief, "ada").await, "active");
    portal.clock.advance(29 * DAY);
    look(&portal).await;
    assert_eq!(state(&chief, "ada").await, "active");
    portal.clock.advance(DAY);
    look(&portal).await;
    let chief = portal.sign_in("chief").await;
    assert_eq!(state(&chief, "ada").await, "dormant");
    // An administrator who disables it by hand says so.
    chief.request("PATCH", "/api/v1/users/ada").json(&json!({ "disabled": false })).send().await.unwrap();
    chief.request("PATCH", "/api/v1/users/ada").json(&json!({ "disabled": true })).send().await.unwrap();
    assert_eq!(state(&chief, "ada").await, "disabled");
}
