//! `/users` and its pages: making, finding, changing and removing accounts.

use lyceum::{
    db::sessions::Ending,
    model::{EndReason, Role},
};
use serde_json::{Value, json};

use super::{audit, of_directory, outcome};
use crate::{
    db::{execute, running},
    portal::{TestPortal, password},
};

#[tokio::test]
async fn accounts_are_made_changed_and_removed() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let chief = portal.sign_in("chief").await;
    let body = json!({ "name": "zoe", "display_name": " Zoë ", "password": "zoe-has-a-password" });
    let keyed = chief.clone().with("idempotency-key", "one");
    let answer = keyed.post("/api/v1/users", &body).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["location"], "/api/v1/users/zoe");
    let made: Value = answer.json().await.unwrap();
    assert_eq!(
        (made["display_name"].as_str(), made["role"].as_str(), made["state"].as_str(), made["logins"].as_i64()),
        (Some("Zoë"), Some("user"), Some("active"), Some(0))
    );
    let again: Value = keyed.post("/api/v1/users", &body).await.json().await.unwrap();
    assert_eq!(again["id"], made["id"], "the same request makes nothing new");
    let other = json!({ "name": "yan" });
    assert_eq!(outcome(keyed.post("/api/v1/users", &other).await).await, (422, "Idempotency-Key reused".to_owned()));
    assert_eq!(audit(&portal, 1).await, ["chief user.add zoe user"], "once");

    for (body, expected) in [
        (json!({ "name": "zoe" }), "name taken"),
        (json!({ "name": "Zoe" }), "name invalid_value"),
        (json!({ "name": "root" }), "name invalid_value"),
        (json!({ "name": "x", "role": "king" }), "role invalid_value"),
        (json!({ "name": "x", "password": "short" }), "password too_short"),
        (json!({ "name": "x", "display_name": "a\nb" }), "display_name invalid_value"),
        (json!({ "name": "x", "unix_name": "root" }), "unix_name unknown_field"),
        (json!({}), "name missing_field"),
    ] {
        let (status, error) = outcome(chief.post("/api/v1/users", &body).await).await;
        assert_eq!((status, error.as_str()), (422, expected), "{body}");
    }
    assert_eq!(portal.db().count_users().await.unwrap(), 2);

    let answer = chief.get("/api/v1/users/zoe").await;
    let version = answer.headers()["etag"].to_str().unwrap().to_owned();
    let change = async |body: &Value, version: &str| {
        chief.request("PATCH", "/api/v1/users/zoe").header("if-match", version).json(body).send().await.unwrap()
    };
    let answer = change(&json!({ "role": "operator", "display_name": "Zoë O." }), &version).await;
    assert_eq!(answer.status(), 200);
    let newer = answer.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(answer.json::<Value>().await.unwrap()["role"], "operator");
    assert_eq!(change(&json!({ "disabled": true }), &version).await.status(), 412, "somebody else was faster");
    assert_eq!(change(&json!({ "disabled": false }), &newer).await.status(), 200);
    assert_eq!(
        audit(&portal, 2).await,
        ["chief user.role zoe user → operator", "chief user.display_name zoe Zoë O."],
        "what changed nothing is not told"
    );
    assert_eq!(outcome(change(&json!({ "admin": true }), "*").await).await, (422, "admin unknown_field".to_owned()));

    // One that is half wrong changes nothing.
    let answer = change(&json!({ "role": "admin", "password": "short" }), "*").await;
    assert_eq!(answer.status(), 422);
    let now: Value = chief.get("/api/v1/users/zoe").await.json().await.unwrap();
    assert_eq!(now["role"], "operator");

    assert_eq!(chief.delete("/api/v1/users/zoe").await.status(), 204);
    assert_eq!(chief.get("/api/v1/users/zoe").await.status(), 404);
    assert_eq!(audit(&portal, 1).await, ["chief user.remove zoe "]);
    assert_eq!(chief.delete("/api/v1/users/chief").await.status(), 403);
}

#[tokio::test]
async fn the_list_is_searched_sorted_and_paged() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let chief = portal.sign_in("chief").await;
    for number in 0..5 {
        assert_eq!(chief.post("/api/v1/users", &json!({ "name": format!("u{number}") })).await.status(), 201);
    }
    of_directory(&portal, "dora", Role::Operator, &["lab", "staff"]).await;
    let names = async |query: &str| {
        let (mut names, mut path) = (Vec::new(), format!("/api/v1/users?limit=3&{query}"));
        loop {
            let page: Value = chief.get(&path).await.json().await.unwrap();
            let items = page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page}"));
            names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/api/v1/users?limit=3&{query}&cursor={cursor}"),
                None => return names,
            }
        }
    };
    assert_eq!(names("").await, ["chief", "dora", "u0", "u1", "u2", "u3", "u4"]);
    assert_eq!(names("sort=-name").await, ["u4", "u3", "u2", "u1", "u0", "dora", "chief"]);
    assert_eq!(names("sort=-seen").await[0], "chief", "who has just signed in");
    assert_eq!(names("sort=seen").await.len(), 7);
    assert_eq!(names("find=u&role=user&state=active&source=local").await, ["u0", "u1", "u2", "u3", "u4"]);
    assert_eq!(names("source=ldap").await, ["dora"]);
    let dora: Value = chief.get("/api/v1/users/dora").await.json().await.unwrap();
    assert_eq!(dora["groups"], json!(["lab", "staff"]));
    assert_eq!((dora["role"].as_str(), dora["given_role"].as_str()), (Some("operator"), Some("user")));

    let first: Value = chief.get("/api/v1/users?limit=1").await.json().await.unwrap();
    let cursor = first["next_cursor"].as_str().unwrap();
    for (query, field) in [
        (format!("sort=-seen&cursor={cursor}"), "cursor"),
        ("cursor=zzz".to_owned(), "cursor"),
        ("sort=password_hash".to_owned(), "sort"),
        ("role=king".to_owned(), "role"),
        ("state=dead".to_owned(), "state"),
        ("limit=0".to_owned(), "limit"),
        ("offset=1".to_owned(), "offset"),
    ] {
        let (status, error) = outcome(chief.get(&format!("/api/v1/users?{query}")).await).await;
        assert_eq!((status, error.split(' ').next()), (422, Some(field)), "{query}");
    }
    let page = chief.visit("/admin/users?find=u3&sort=-seen").await.text().await.unwrap();
    assert!(page.contains("/admin/users/u3") && !page.contains("/admin/users/u2"));
    assert!(page.contains("aria-sort=\"descending\""));
    let page = chief.visit("/admin/users?role=king&sort=nonsense").await;
    assert_eq!(page.status(), 200, "a link that is half wrong shows the list");
}

#[tokio::test]
async fn forms_say_what_was_wrong_and_what_they_did() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let chief = portal.sign_in("chief").await.with("accept", "text/html");
    let bad =
        chief.post_form("/admin/users", &[("name", "No Name"), ("password", "short"), ("role", "operator")]).await;
    assert_eq!(bad.status(), 422);
    let bad = bad.text().await.unwrap();
    assert!(bad.contains("name-error") && bad.contains("value=\"No Name\""), "what was typed is kept");
    assert!(!bad.contains("short\""), "but never a password");
    let made = chief.post_form("/admin/users", &[("name", "zoe"), ("password", "zoe-has-a-password")]).await;
    assert_eq!(made.headers()["location"], "/admin/users/zoe?done=added");
    let answer = chief.post_form("/admin/users/zoe/role", &[("role", "admin")]).await;
    assert_eq!(answer.headers()["location"], "/admin/users/zoe?done=role");
    let page = chief.visit("/admin/users/zoe?done=role").await.text().await.unwrap();
    assert!(page.contains("Role changed."));

    let own = chief.post_form("/admin/users/chief/disable", &[]).await;
    assert_eq!(own.status(), 403);
    assert!(own.text().await.unwrap().contains("another administrator"));
    let removed = chief.post_form("/admin/users/zoe/remove", &[]).await;
    assert_eq!(removed.headers()["location"], "/admin/users?done=removed");
    portal.sign_in("chief").await;
    let used = portal.add_user("used", Role::User).await;
    portal.new_login(used).await;
    let kept = chief.post_form("/admin/users/used/remove", &[]).await;
    assert_eq!(kept.status(), 409);
    assert!(kept.text().await.unwrap().contains("disable it instead"));
}

/// Somebody's page and their session are shown with what can be told.
#[tokio::test]
async fn a_specification_that_cannot_be_read_hides_nothing() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let alice = portal.add_user("alice", Role::User).await;
    let torn = running(portal.db(), alice).await;
    execute(portal.db(), "UPDATE sessions SET spec = '{\"profile\": \"tiny\"'").await;
    let chief = portal.sign_in("chief").await.with("accept", "text/html");
    let owner = portal.sign_in("alice").await.with("accept", "text/html");
    for (who, page) in [
        (&chief, "/admin/users/alice".to_owned()),
        (&chief, format!("/sessions/{torn}")),
        (&owner, "/".to_owned()),
        (&owner, format!("/sessions/{torn}")),
    ] {
        let answer = who.visit(&page).await;
        assert_eq!(answer.status(), 200, "{page}");
        let text = answer.text().await.unwrap();
        assert!(text.contains(&torn.to_string()), "{page}");
        assert_eq!(text.contains("can no longer be read"), page.starts_with("/sessions"), "{page}");
    }
}

/// One that waits ends with the reason, and those behind it have their turn.
#[tokio::test]
async fn a_waiting_session_whose_specification_cannot_be_read_ends_and_holds_up_nobody() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let mut ids = Vec::new();
    for name in ["first", "torn", "behind"] {
        let body = json!({ "app": "terminal", "name": name, "resources": { "cpus": 4 } });
        let session: Value = alice.post("/api/v1/sessions", &body).await.json().await.unwrap();
        ids.push(session["id"].as_str().unwrap().to_owned());
    }
    let told = async |id: &str| -> Value { alice.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap() };
    assert_eq!(told(&ids[1]).await["reasons"][0]["code"], "capacity.cpus");
    let spec = "{\"profile\": \"tiny\", \"environment\": \"default\"";
    execute(portal.db(), &format!("UPDATE sessions SET spec = '{spec}' WHERE id = '{}'", ids[1])).await;
    let text = alice.visit(&format!("/sessions/{}", ids[1])).await.text().await.unwrap();
    assert!(text.contains("can no longer be read"), "{text}");
    for page in ["/", "/sessions/new", "/usage"] {
        assert_eq!(alice.visit(page).await.status(), 200, "{page}");
    }
    portal.portal.sessions.reconcile().await;
    let torn = told(&ids[1]).await;
    assert_eq!((&torn["state"], &torn["end_reason"]), (&json!("ended"), &json!("launch_failed")), "{torn}");
    assert!(torn["detail"].as_str().unwrap().contains("start it again"), "{torn}");
    assert_eq!(told(&ids[2]).await["state"], "queued");
    let ending = Ending {
        reason: EndReason::Exited,
        exit_code: Some(0),
        signal: None,
        at: portal.clock.now(),
        detail: String::new(),
    };
    assert!(portal.db().end_session(ids[0].parse().unwrap(), &ending).await.unwrap());
    portal.portal.sessions.reconcile().await;
    assert_eq!(told(&ids[2]).await["reasons"], json!([]), "its turn has come");
}

/// A forgotten password: the administrator creates a link, and never knows what the user chose.
#[tokio::test]
async fn a_link_sets_a_new_password() {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    portal.add_user("ada", Role::User).await;
    let boss = portal.sign_in("boss").await;
    let ada = portal.sign_in("ada").await;
    let links = async |name: &str| boss.post(&format!("/api/v1/users/{name}/password-link"), &json!({})).await;
    let first: Value = links("ada").await.json().await.unwrap();
    let (before, code) = first["url"].as_str().unwrap().split_once('#').unwrap();
    assert_eq!((before, &first["name"]), (format!("{}/welcome", portal.url).as_str(), &json!("ada")), "{first}");
    let set = async |code: &str| {
        let chosen = "ada-chose-another";
        let fields = [("code", code), ("password", chosen), ("password_again", chosen)];
        portal.anybody().with("origin", &portal.url).post_form("/welcome", &fields).await.status()
    };

    // The page shows a link too, and the newest one is valid.
    let page = boss.post_form("/admin/users/ada/password-link", &[]).await;
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    let (_, newest) = page.split_once(&format!("{}/welcome#", portal.url)).unwrap();
    let (newest, _) = newest.split_once('<').unwrap();
    assert_eq!(set(code).await, 422, "only the newest link is valid");
    portal.sign_in("ada").await;
    assert_eq!(ada.get("/api/v1/me").await.status(), 200, "nothing has changed yet");
    assert_eq!(set(newest).await, 303);
    assert_eq!(ada.get("/api/v1/me").await.status(), 401, "signed out");
    assert_eq!(portal.try_sign_in("ada", &password("ada")).await.status(), 401);
    portal.sign_in_with("ada", "ada-chose-another").await;
    assert_eq!(set(newest).await, 422, "it is used up");

    // Not for oneself, for programs, or for an account that is disabled; and not later than in three days.
    assert_eq!(links("boss").await.status(), 403);
    assert_eq!(boss.post("/api/v1/users", &json!({ "name": "svc", "source": "service" })).await.status(), 201);
    assert_eq!(links("svc").await.status(), 409);
    let last: Value = links("ada").await.json().await.unwrap();
    let (_, code) = last["url"].as_str().unwrap().split_once('#').unwrap();
    portal.clock.advance(3 * 86_400);
    assert_eq!(set(code).await, 422, "it has expired");
    let boss = portal.sign_in("boss").await;
    assert_eq!(
        boss.request("PATCH", "/api/v1/users/ada").json(&json!({ "disabled": true })).send().await.unwrap().status(),
        200
    );
    let refused = boss.post("/api/v1/users/ada/password-link", &json!({})).await;
    assert_eq!(refused.status(), 409);
    assert!(refused.text().await.unwrap().contains("enable it first"));
}
