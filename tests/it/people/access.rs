//! Roles and what ends access: nobody raises themselves, the last administrator stays, a token
//! is worth what its owner is now, and who is disabled is out within seconds.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lyceum::model::Role;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{audit, of_directory};
use crate::{
    gateway::world::{World, socket},
    portal::{Caller, TestPortal},
    proxy::app::App,
};

const WITHIN: Duration = Duration::from_secs(5);

async fn patch(caller: &Caller, name: &str, body: &Value) -> u16 {
    caller.request("PATCH", &format!("/api/v1/users/{name}")).json(body).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn disabling_cuts_logins_tokens_and_sockets() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    world.portal.add_user("chief", Role::Admin).await;
    let (chief, hers) = (world.portal.sign_in("chief").await, world.portal.sign_in("alice").await);
    let id = world.session(alice, &app).await;
    let made: Value = hers.post("/api/v1/tokens", &json!({ "name": "live" })).await.json().await.unwrap();
    let bearer = format!("Bearer {}", made["secret"].as_str().unwrap());
    let token = world.portal.anybody().with("authorization", &bearer);
    let mut by_token = socket(&format!("{}/s/{id}/ws", world.portal.url), &[("authorization", &bearer)]).await.unwrap();
    let mut browser = world.browser("alice").await;
    assert_eq!(browser.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    let cookie = browser.cookie("lyceum_app_").unwrap();
    let headers = [("cookie", cookie.as_str()), ("origin", &world.apps)];
    let mut by_cookie = socket(&format!("{}/s/{id}/ws", world.apps), &headers).await.unwrap();

    let began = Instant::now();
    assert_eq!(patch(&chief, "alice", &json!({ "disabled": true })).await, 200);
    for socket in [&mut by_token, &mut by_cookie] {
        let ended = timeout(WITHIN, socket.next()).await.expect("cut in time");
        assert!(!matches!(ended, Some(Ok(_))), "{ended:?}");
    }
    assert!(began.elapsed() < WITHIN);
    assert_eq!(token.get("/api/v1/me").await.status(), 401);
    assert_eq!(hers.get("/api/v1/me").await.status(), 401);
    assert_eq!(world.portal.try_sign_in("alice", "alice-has-a-password").await.status(), 401);
    let session: Value = chief.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
    assert_eq!(session["state"], "running", "what runs goes on");

    // From her page the administrator stops it and comes back there.
    let stop = chief.clone().with("referer", &format!("{}/admin/users/alice?done=disabled", world.portal.url));
    let answer = stop.post_form(&format!("/sessions/{id}/stop"), &[]).await;
    assert_eq!(answer.headers()["location"], "/admin/users/alice");

    assert_eq!(patch(&chief, "alice", &json!({ "disabled": false })).await, 200);
    assert_eq!(hers.get("/api/v1/me").await.status(), 401, "the login is gone for good");
    assert_eq!(token.get("/api/v1/me").await.status(), 200, "the token rested");
    let told = audit(&world.portal, 3).await;
    assert!(told.contains(&"chief user.enable alice ".to_owned()), "{told:?}");
}

#[tokio::test]
async fn signing_somebody_out_and_revoking_their_tokens() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let (chief, alice) = (portal.sign_in("chief").await, portal.sign_in("alice").await);
    let token = portal.token(&alice, &["read"]).await;
    let list: Value = chief.get("/api/v1/users/alice/tokens").await.json().await.unwrap();
    let id = list["items"][0]["id"].as_str().unwrap();
    assert_eq!((list["items"][0]["scopes"][0].as_str(), list["items"][0].get("secret")), (Some("read"), None));
    assert_eq!(chief.post("/api/v1/users/alice/sign-out", &Value::Null).await.status(), 204);
    assert_eq!(alice.get("/api/v1/me").await.status(), 401);
    assert_eq!(token.get("/api/v1/me").await.status(), 200);
    assert_eq!(chief.delete(&format!("/api/v1/users/bob/tokens/{id}")).await.status(), 404, "it is not bob's");
    assert_eq!(chief.delete(&format!("/api/v1/users/alice/tokens/{id}")).await.status(), 204);
    assert_eq!(token.get("/api/v1/me").await.status(), 401);
    assert_eq!(
        audit(&portal, 2).await,
        [format!("chief token.revoke {id} of alice"), "chief user.sign_out alice ".to_owned()]
    );
    // A new password ends the sign-ins that the old one made.
    let alice = portal.sign_in("alice").await;
    assert_eq!(patch(&chief, "alice", &json!({ "password": "another-long-password" })).await, 200);
    assert_eq!(alice.get("/api/v1/me").await.status(), 401);
    portal.sign_in_with("alice", "another-long-password").await;
}

#[tokio::test]
async fn a_token_is_worth_what_its_owner_is_now() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("deputy", Role::Admin).await;
    portal.add_user("alice", Role::User).await;
    let (chief, deputy) = (portal.sign_in("chief").await, portal.sign_in("deputy").await);
    let all = portal.token(&deputy, &[]).await;
    let users = portal.token(&deputy, &["admin:users"]).await;
    let read = portal.token(&deputy, &["read"]).await;
    for token in [&all, &users] {
        assert_eq!(patch(token, "alice", &json!({ "display_name": "A" })).await, 200);
    }
    assert_eq!(read.get("/api/v1/users").await.status(), 403, "other people's affairs need more than `read`");
    assert_eq!(read.get("/api/v1/quotas/default").await.status(), 403);
    assert_eq!(users.request("PATCH", "/api/v1/quotas/default").json(&json!({})).send().await.unwrap().status(), 403);

    assert_eq!(patch(&chief, "deputy", &json!({ "role": "operator" })).await, 200);
    for token in [&all, &users] {
        assert_eq!(patch(token, "alice", &json!({ "role": "admin" })).await, 403, "demoted");
        assert_eq!(token.get("/api/v1/users").await.status(), 200, "an operator still sees");
    }
    assert_eq!(patch(&all, "deputy", &json!({ "role": "admin" })).await, 403, "nobody raises themselves");
    assert_eq!(patch(&chief, "deputy", &json!({ "role": "user" })).await, 200);
    for token in [&all, &users] {
        assert_eq!(token.get("/api/v1/users").await.status(), 403);
    }
    assert_eq!(all.get("/api/v1/me").await.status(), 200);
}

#[tokio::test]
async fn nobody_raises_themselves_and_the_last_administrator_stays() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("watch", Role::Operator).await;
    portal.add_user("alice", Role::User).await;
    let (chief, watch) = (portal.sign_in("chief").await, portal.sign_in("watch").await);
    let alice = portal.sign_in("alice").await;
    for caller in [&watch, &alice] {
        for name in ["watch", "alice", "chief"] {
            assert_eq!(patch(caller, name, &json!({ "role": "admin" })).await, 403, "{name}");
            assert_eq!(patch(caller, name, &json!({ "disabled": true })).await, 403, "{name}");
        }
    }
    assert_eq!(watch.get("/api/v1/users/alice").await.status(), 200, "operators see");
    assert_eq!(watch.visit("/admin/users").await.status(), 200);
    let page = watch.visit("/admin/users/alice").await.text().await.unwrap();
    assert!(!page.contains("/admin/users/alice/"), "and have no forms");

    for body in [json!({ "role": "user" }), json!({ "role": "operator" }), json!({ "disabled": true })] {
        assert_eq!(patch(&chief, "chief", &body).await, 403, "{body}");
    }
    assert_eq!(patch(&chief, "chief", &json!({ "password": "a-new-long-password" })).await, 403);

    // Two administrators, of whom one cannot sign in: the other one is the last.
    assert_eq!(chief.post("/api/v1/users", &json!({ "name": "ghost", "role": "admin" })).await.status(), 201);
    let ghost = portal.db().find_user_by_name("ghost").await.unwrap().unwrap().user.id;
    let secret = portal.new_login(ghost).await;
    let ghost = portal.anybody().with("cookie", &format!("lyceum_login={secret}")).with("origin", &portal.url);
    for body in [json!({ "role": "user" }), json!({ "disabled": true })] {
        assert_eq!(patch(&ghost, "chief", &body).await, 409, "{body}");
    }
    let page = ghost.clone().with("accept", "text/html").post_form("/admin/users/chief/disable", &[]).await;
    assert_eq!(page.status(), 409);
    assert!(page.text().await.unwrap().contains("make another user an administrator first"));
    let chief: Value = chief.get("/api/v1/users/chief").await.json().await.unwrap();
    assert_eq!((chief["role"].as_str(), chief["state"].as_str()), (Some("admin"), Some("active")));
}

#[tokio::test]
async fn what_the_directory_gives_only_the_directory_takes() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    of_directory(&portal, "dora", Role::Admin, &["admins"]).await;
    let chief = portal.sign_in("chief").await;
    assert_eq!(patch(&chief, "dora", &json!({ "role": "user" })).await, 409);
    assert_eq!(patch(&chief, "dora", &json!({ "password": "a-long-password" })).await, 409);
    assert_eq!(patch(&chief, "dora", &json!({ "display_name": "D" })).await, 409);
    let page = crate::pages::markup::one_line(&chief.visit("/admin/users/dora").await.text().await.unwrap());
    assert!(page.contains("from a group of the directory") && !page.contains("/admin/users/dora/role"));
    let list = crate::pages::markup::one_line(&chief.visit("/admin/users").await.text().await.unwrap());
    assert!(list.contains("by directory"));
    assert_eq!(patch(&chief, "dora", &json!({ "disabled": true })).await, 200, "but here she can be kept out");
}
