//! `/groups` and its pages: those that are made here, the directory's, and their managers.

use lyceum::model::Role;
use serde_json::{Value, json};

use super::{audit, of_directory, outcome};
use crate::{gateway::world::World, portal::TestPortal, proxy::app::App};

#[tokio::test]
async fn groups_are_made_renamed_and_removed() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("alice", Role::User).await;
    of_directory(&portal, "dora", Role::User, &["lab"]).await;
    let chief = portal.sign_in("chief").await;
    let keyed = chief.clone().with("idempotency-key", "one");
    let answer = keyed.post("/api/v1/groups", &json!({ "name": "vision" })).await;
    assert_eq!(answer.status(), 201);
    let made: Value = answer.json().await.unwrap();
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!((made["source"].as_str(), made["members"].as_i64()), (Some("local"), Some(0)));
    let again: Value = keyed.post("/api/v1/groups", &json!({ "name": "vision" })).await.json().await.unwrap();
    assert_eq!(again["id"], made["id"]);
    for (body, expected) in [
        (json!({ "name": "vision" }), "name taken"),
        (json!({ "name": "lab" }), "name taken"),
        (json!({ "name": "Big Lab" }), "name invalid_value"),
        (json!({ "name": id }), "name invalid_value"),
        (json!({ "name": "x", "members": [] }), "members unknown_field"),
    ] {
        let (status, error) = outcome(chief.post("/api/v1/groups", &body).await).await;
        assert_eq!((status, error.as_str()), (422, expected), "{body}");
    }

    let put = async |path: &str| chief.request("PUT", &format!("/api/v1/groups/{path}")).send().await.unwrap().status();
    assert_eq!(put("vision/members/alice").await, 204);
    assert_eq!(put("vision/members/alice").await, 204, "again is fine");
    assert_eq!(put("vision/members/nobody").await, 404);
    assert_eq!(put("nothing/members/alice").await, 404);
    assert_eq!(put("lab/members/alice").await, 409, "the directory's");
    assert_eq!(put("lab/managers/alice").await, 204, "which may have a manager here");
    let me: Value = chief.get("/api/v1/users/alice").await.json().await.unwrap();
    assert_eq!(me["groups"], json!(["vision"]));
    assert_eq!(
        me["belongings"][0],
        json!({ "id": me["belongings"][0]["id"], "group": "lab", "source": "ldap", "member": false, "manager": true })
    );

    let answer = chief.get("/api/v1/groups/vision").await;
    let version = answer.headers()["etag"].to_str().unwrap().to_owned();
    let rename = async |name: &str, body: &Value, version: &str| {
        let request = chief.request("PATCH", &format!("/api/v1/groups/{name}")).header("if-match", version);
        request.json(body).send().await.unwrap().status()
    };
    assert_eq!(rename("vision", &json!({ "name": "seeing" }), &version).await, 200);
    assert_eq!(rename("seeing", &json!({ "name": "vision" }), &version).await, 412);
    assert_eq!(rename("lab", &json!({ "name": "x" }), "*").await, 409);
    assert_eq!(chief.delete("/api/v1/groups/lab").await.status(), 409);
    assert_eq!(chief.delete(&format!("/api/v1/groups/{id}")).await.status(), 204);
    assert_eq!(chief.get("/api/v1/groups/seeing").await.status(), 404);
    assert_eq!(
        audit(&portal, 5).await,
        [
            "chief group.remove seeing ",
            "chief group.rename seeing was vision",
            "chief group.manager_add lab alice",
            "chief group.member_add vision alice",
            "chief group.add vision ",
        ]
    );
}

#[tokio::test]
async fn a_manager_sees_and_keeps_their_own_group() {
    let (world, app) = (World::new().await, App::start());
    let portal = &world.portal;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("mia", Role::User).await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let chief = portal.sign_in("chief").await;
    for name in ["vision", "speech"] {
        assert_eq!(chief.post("/api/v1/groups", &json!({ "name": name })).await.status(), 201);
    }
    let mia = portal.sign_in("mia").await;
    assert_eq!(mia.get("/api/v1/groups").await.status(), 403, "she manages nothing yet");
    assert_eq!(mia.visit("/admin/groups").await.status(), 403);
    let set = async |caller: &crate::portal::Caller, method: &str, path: &str| {
        caller.request(method, &format!("/api/v1/groups/{path}")).send().await.unwrap().status().as_u16()
    };
    assert_eq!(set(&chief, "PUT", "vision/managers/mia").await, 204);
    let list: Value = mia.get("/api/v1/groups").await.json().await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(mia.get("/api/v1/groups/speech").await.status(), 404, "the others are not there");
    assert_eq!(set(&mia, "PUT", "speech/members/alice").await, 404);
    for name in ["alice", "nobody", "mia", "chief"] {
        assert_eq!(set(&mia, "PUT", &format!("vision/members/{name}")).await, 403, "{name}: a manager invites");
    }
    for name in ["alice", "bob"] {
        assert_eq!(set(&chief, "PUT", &format!("vision/members/{name}")).await, 204);
    }
    assert_eq!(set(&mia, "DELETE", "vision/members/bob").await, 204);
    world.session(alice, &app).await;
    world.session(bob, &app).await;
    let sessions: Value = mia.get("/api/v1/groups/vision/sessions").await.json().await.unwrap();
    let owners: Vec<_> = sessions["items"].as_array().unwrap().iter().map(|one| one["owner"].clone()).collect();
    assert_eq!(owners, ["alice"], "of the group's people alone");
    assert!(sessions["items"][0].get("url").is_none() && sessions["items"][0].get("name").is_none());
    let members: Value = mia.get("/api/v1/groups/vision/members").await.json().await.unwrap();
    assert_eq!(
        (members["items"][0]["name"].as_str(), members["items"][0]["sessions"].as_i64()),
        (Some("alice"), Some(1))
    );

    // Rights are not hers to give.
    for (method, path) in [("PUT", "vision/managers/alice"), ("DELETE", "vision/managers/mia"), ("DELETE", "vision")] {
        assert_eq!(set(&mia, method, path).await, 403, "{method} {path}");
    }
    assert_eq!(mia.post("/api/v1/groups", &json!({ "name": "own" })).await.status(), 403);
    assert_eq!(mia.get("/api/v1/users").await.status(), 403);
    assert_eq!(mia.get("/api/v1/users/alice").await.status(), 403);
    let hers: Value = sessions["items"][0]["id"].clone();
    assert_eq!(mia.get(&format!("/api/v1/sessions/{}", hers.as_str().unwrap())).await.status(), 404);

    // The page has what she may do and nothing else.
    let page = mia.visit("/admin/groups/vision").await.text().await.unwrap();
    assert!(page.contains("Remove: alice") && page.contains("Invite a user") && !page.contains("Add a member"));
    for absent in ["/managers\"", "/rename", "/admin/users", "/sessions/0"] {
        assert!(!page.contains(absent), "{absent}");
    }
    let home = mia.visit("/").await.text().await.unwrap();
    assert!(home.contains("href=\"/admin/groups\"") && !home.contains("/admin/users"));
    let id = list["items"][0]["id"].as_str().unwrap();
    let wrong = mia.clone().with("accept", "text/html");
    let wrong = wrong.post_form(&format!("/admin/groups/{id}/invitations"), &[("name", "no<body")]).await;
    assert_eq!(wrong.status(), 422);
    assert!(wrong.text().await.unwrap().contains("There is no user with this name who can be invited."));

    let token = portal.token(&mia, &["admin:users"]).await;
    let ask = async |who: &crate::portal::Caller| {
        who.post("/api/v1/groups/vision/invitations", &json!({ "name": "bob" })).await.status().as_u16()
    };
    assert_eq!(ask(&token).await, 201, "with that scope her token may as well");
    assert_eq!(ask(&portal.token(&mia, &["read", "sessions"]).await).await, 403);
    assert_eq!(set(&chief, "DELETE", "vision/managers/mia").await, 204);
    assert_eq!(mia.get("/api/v1/groups/vision").await.status(), 403, "at once");
    assert_eq!(token.get("/api/v1/groups/vision").await.status(), 403);
}

#[tokio::test]
async fn large_groups_come_in_pages() {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let chief = portal.sign_in("chief").await;
    chief.post("/api/v1/groups", &json!({ "name": "all" })).await;
    let group = portal.db().find_groups("all").await.unwrap().remove(0).group;
    for number in 0..103 {
        let name = format!("u{number:03}");
        assert_eq!(chief.post("/api/v1/users", &json!({ "name": name })).await.status(), 201);
        let user = portal.db().find_user_by_name(&name).await.unwrap().unwrap().user.id;
        portal.db().set_member(group.id, user, true, portal.by()).await.unwrap();
    }
    let first = chief.visit("/admin/groups/all").await.text().await.unwrap();
    assert!(first.contains("u000") && first.contains("u099") && !first.contains("u100"));
    let next = first.split("href=\"").find(|part| part.contains("rel=\"next\"")).unwrap().split('"').next().unwrap();
    let second = chief.visit(next).await.text().await.unwrap();
    assert!(second.contains("u100") && second.contains("u102") && !second.contains("u099"));
    let (mut seen, mut path) = (0, "/api/v1/groups/all/members?limit=50".to_owned());
    loop {
        let page: Value = chief.get(&path).await.json().await.unwrap();
        seen += page["items"].as_array().unwrap().len();
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/groups/all/members?limit=50&cursor={cursor}");
    }
    assert_eq!(seen, 103);
}
