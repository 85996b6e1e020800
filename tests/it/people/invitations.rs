//! Invitations over the running portal: what a manager may do to whom, what they see before and after
//! somebody agrees, what they set, and how people come and go.

use lyceum::model::Role;
use serde_json::{Value, json};

use super::audit;
use crate::{
    gateway::world::World,
    portal::{Caller, TestPortal},
    proxy::app::App,
};

async fn status(caller: &Caller, method: &str, path: &str) -> u16 {
    caller.request(method, &format!("/api/v1/{path}")).send().await.unwrap().status().as_u16()
}

async fn invite(caller: &Caller, name: &str) -> (u16, Value) {
    let answer = caller.post("/api/v1/groups/lab/invitations", &json!({ "name": name })).await;
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

async fn get(caller: &Caller, path: &str) -> Value {
    caller.get(&format!("/api/v1/{path}")).await.json().await.unwrap()
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
    items.iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
}

/// Chief, an administrator, has made `lab`, which Mia manages.
async fn lab(portal: &TestPortal) -> (Caller, Caller) {
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("mia", Role::User).await;
    let (chief, mia) = (portal.sign_in("chief").await, portal.sign_in("mia").await);
    assert_eq!(chief.post("/api/v1/groups", &json!({ "name": "lab" })).await.status(), 201);
    assert_eq!(status(&chief, "PUT", "groups/lab/managers/mia").await, 204);
    (chief, mia)
}

#[tokio::test]
async fn a_manager_sees_nothing_of_people_who_have_not_agreed() {
    let (world, app) = (World::new().await, App::start());
    let portal = &world.portal;
    let (chief, mia) = lab(portal).await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    world.session(alice, &app).await;
    let of_bob = world.session(bob, &app).await;
    let (alice, bob) = (portal.sign_in("alice").await, portal.sign_in("bob").await);

    let (code, made) = invite(&mia, "alice").await;
    assert_eq!(
        (code, &made["name"], &made["invited_by"], &made["group"]),
        (201, &json!("alice"), &json!("mia"), &json!("lab"))
    );
    let (code, again) = invite(&mia, "alice").await;
    assert_eq!((code, again), (201, made), "twice is one");
    assert_eq!(names(&get(&mia, "groups/lab/invitations").await, "name"), ["alice"]);
    assert_eq!(names(&get(&alice, "me/invitations").await, "group"), ["lab"]);
    assert_eq!(names(&get(&bob, "me/invitations").await, "group"), [""; 0]);
    let nothing = async || {
        assert_eq!(names(&get(&mia, "groups/lab/members").await, "name"), [""; 0]);
        assert_eq!(names(&get(&mia, "groups/lab/sessions").await, "owner"), [""; 0]);
        let page = mia.visit("/admin/groups/lab").await.text().await.unwrap();
        assert!(page.contains("No members.") && page.contains("Nothing is running"), "{page}");
    };
    nothing().await;
    for (method, path) in
        [("GET", "groups/lab"), ("GET", "groups/lab/invitations"), ("PUT", "groups/lab/members/alice")]
    {
        assert_eq!(status(&alice, method, path).await, 403, "{method} {path}: being invited is no right");
    }
    assert_eq!(status(&bob, "PUT", "me/invitations/lab").await, 404, "of somebody else");

    let home = alice.visit("/").await.text().await.unwrap();
    assert!(home.contains("invites you to the group") && home.contains("Accept: lab") && home.contains("Decline: lab"));
    assert_eq!(status(&alice, "DELETE", "me/invitations/lab").await, 204);
    nothing().await;
    let (code, problem) = invite(&mia, "alice").await;
    assert!(
        code == 409 && problem["detail"].as_str().unwrap().contains("declined this invitation"),
        "{code} {problem}"
    );
    assert_eq!(invite(&chief, "alice").await.0, 201, "an administrator may");

    assert_eq!(status(&alice, "PUT", "me/invitations/lab").await, 204);
    assert_eq!(names(&get(&mia, "groups/lab/members").await, "name"), ["alice"]);
    assert_eq!(names(&get(&mia, "groups/lab/sessions").await, "owner"), ["alice"]);
    assert_eq!(get(&alice, "me").await["groups"], json!(["lab"]));

    // She leaves when she likes, and nobody else can make her.
    assert_eq!(status(&bob, "DELETE", "groups/lab/members/alice").await, 403);
    assert_eq!(status(&alice, "DELETE", "groups/lab/members/bob").await, 403);
    assert_eq!(status(&alice, "DELETE", "groups/lab/members/alice").await, 204);
    assert_eq!(status(&alice, "DELETE", "groups/lab/members/alice").await, 404);
    assert_eq!(get(&alice, "me").await["groups"], json!([]));
    nothing().await;
    assert_eq!(status(&mia, "DELETE", "groups/lab/invitations/alice").await, 204, "there is none");
    assert_eq!(status(&mia, "DELETE", "groups/lab/invitations/no-such-user").await, 204, "as of nobody");
    assert_eq!(
        audit(portal, 5).await,
        [
            "alice group.leave lab alice",
            "alice group.invitation_accept lab alice, invited by chief",
            "chief group.invite lab alice",
            "alice group.invitation_decline lab alice, invited by mia",
            "mia group.invite lab alice",
        ]
    );

    // By forms, as somebody without a script.
    invite(&chief, "bob").await;
    let to = bob.post_form("/invitations/lab/accept", &[("a", "b")]).await;
    assert_eq!(
        (to.status().as_u16(), &to.headers()["location"]),
        (303, &"/settings?done=accepted#groups".parse().unwrap())
    );
    let page = bob.visit("/settings?done=accepted").await.text().await.unwrap();
    assert!(page.contains("You have joined the group.") && page.contains("Leave: lab"));
    assert_eq!(names(&get(&mia, "groups/lab/sessions").await, "id"), [of_bob.to_string()]);
    assert_eq!(bob.post_form("/settings/groups/lab/leave", &[("a", "b")]).await.status(), 303);
    assert_eq!(names(&get(&mia, "groups/lab/members").await, "name"), [""; 0]);
}

#[tokio::test]
async fn a_manager_has_no_power_over_staff() {
    let (world, app) = (World::new().await, App::start());
    let portal = &world.portal;
    let (chief, mia) = lab(portal).await;
    portal.add_user("olga", Role::Operator).await;
    let alice = world.user("alice").await;
    world.session(alice, &app).await;

    // One answer for staff and for nobody.
    let refused = invite(&mia, "nobody-here").await;
    assert_eq!((refused.0, &refused.1["errors"][0]["field"]), (422, &json!("name")));
    for name in ["chief", "olga", "Alice", "alice\0", "", "root"] {
        let (code, problem) = invite(&mia, name).await;
        assert_eq!((code, &problem["errors"]), (422, &refused.1["errors"]), "{name}");
    }
    assert_eq!(invite(&chief, "olga").await.0, 422, "an administrator puts staff in");
    assert_eq!(status(&chief, "PUT", "groups/lab/members/olga").await, 204);
    assert_eq!(status(&mia, "DELETE", "groups/lab/members/olga").await, 403);

    // Alice agreed; then she becomes staff.
    invite(&mia, "alice").await;
    let caller = portal.sign_in("alice").await;
    assert_eq!(status(&caller, "PUT", "me/invitations/lab").await, 204);
    assert_eq!(names(&get(&mia, "groups/lab/sessions").await, "owner"), ["alice"]);
    let role = async |role: &str| {
        let answer = chief.request("PATCH", "/api/v1/users/alice").json(&json!({ "role": role })).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    };
    role("operator").await;
    assert_eq!(names(&get(&mia, "groups/lab/sessions").await, "owner"), [""; 0]);
    let members = get(&mia, "groups/lab/members").await;
    let shown: Vec<_> =
        members["items"].as_array().unwrap().iter().map(|one| (&one["sessions"], &one["last_seen_at"])).collect();
    assert_eq!(shown, [(&json!(0), &Value::Null), (&json!(0), &Value::Null)]);
    assert!(!mia.visit("/admin/groups/lab").await.text().await.unwrap().contains("Running"));
    assert_eq!(names(&get(&chief, "groups/lab/sessions").await, "owner"), ["alice"], "administrators see them");
    assert_eq!(status(&mia, "DELETE", "groups/lab/members/alice").await, 403);
    let caller = portal.sign_in("alice").await;
    assert_eq!(status(&caller, "DELETE", "groups/lab/members/alice").await, 204, "she leaves by herself");

    // An invitation from before she became staff counts for nothing, and again once she is not.
    role("user").await;
    assert_eq!(invite(&mia, "alice").await.0, 201);
    role("admin").await;
    assert_eq!(names(&get(&mia, "groups/lab/invitations").await, "name"), [""; 0]);
    let caller = portal.sign_in("alice").await;
    assert_eq!(names(&get(&caller, "me/invitations").await, "group"), [""; 0]);
    assert_eq!(status(&caller, "PUT", "me/invitations/lab").await, 404);
}

#[tokio::test]
async fn who_may_invite_and_withdraw() {
    let portal = TestPortal::start().await;
    let (chief, mia) = lab(&portal).await;
    portal.add_user("olga", Role::Operator).await;
    portal.add_user("alice", Role::User).await;
    super::of_directory(&portal, "dora", Role::User, &["staff"]).await;
    let olga = portal.sign_in("olga").await;
    assert_eq!(invite(&olga, "alice").await.0, 403, "operators change nothing");
    assert_eq!(invite(&mia, "alice").await.0, 201);
    assert_eq!(names(&get(&olga, "groups/lab/invitations").await, "name"), ["alice"]);
    assert_eq!(status(&olga, "DELETE", "groups/lab/invitations/alice").await, 403);
    assert_eq!(status(&mia, "DELETE", "groups/lab/invitations/alice").await, 204);
    let alice = portal.sign_in("alice").await;
    assert_eq!(status(&alice, "PUT", "me/invitations/lab").await, 404, "it is withdrawn");
    // A directory's group is the directory's, also where it has a manager here.
    assert_eq!(status(&chief, "PUT", "groups/staff/managers/mia").await, 204);
    let answer = mia.post("/api/v1/groups/staff/invitations", &json!({ "name": "alice" })).await;
    assert_eq!(answer.status(), 409);
    let dora = portal.db().find_user_by_name("dora").await.unwrap().unwrap().user.id;
    let cookie = format!("lyceum_login={}", portal.new_login(dora).await);
    let dora = portal.anybody().with("cookie", &cookie).with("origin", &portal.url);
    assert_eq!(status(&dora, "DELETE", "groups/staff/members/dora").await, 409, "she leaves it in the directory");
    // An administrator accepts for somebody by putting them in.
    invite(&mia, "alice").await;
    assert_eq!(status(&chief, "PUT", "groups/lab/members/alice").await, 204);
    assert_eq!(names(&get(&mia, "groups/lab/invitations").await, "name"), [""; 0]);
    assert_eq!(invite(&mia, "alice").await.0, 409, "she is in it");
    assert_eq!(
        mia.post("/api/v1/groups/lab/invitations", &json!({ "name": "alice", "role": "x" })).await.status(),
        422
    );
}

/// What a manager sets gives more, and never less; and only what is charged to the group has it.
#[tokio::test]
async fn a_managers_limits_only_raise() {
    let portal = TestPortal::start().await;
    let (chief, mia) = lab(&portal).await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let patch = async |who: &Caller, path: &str, body: Value| {
        let answer = who.request("PATCH", &format!("/api/v1/quotas/{path}")).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    assert_eq!(status(&chief, "PUT", "groups/lab/members/alice").await, 204);
    patch(&chief, "default", json!({ "jobs": 2, "cpus": 2 })).await;
    patch(&chief, "groups/lab", json!({ "total": { "jobs": 5, "cpus": 4 } })).await;
    let limit = async |field: &str| {
        let me = get(&alice, "me").await;
        let found = &me["quota"][field];
        (found["limit"].as_i64().unwrap_or_else(|| panic!("{me}")), found["source"].as_str().unwrap().to_owned())
    };
    let default = |value| (value, "default".to_owned());
    // Nothing is charged to it: a manager gives nothing.
    let (code, problem) = patch(&mia, "groups/lab", json!({ "each": { "jobs": 0 } })).await;
    assert_eq!((code, &problem["errors"][0]["field"]), (422, &json!("each.jobs")));
    patch(&chief, "groups/lab", json!({ "chargeable": true })).await;
    for value in [0, 1, 2] {
        assert_eq!(patch(&mia, "groups/lab", json!({ "each": { "jobs": value } })).await.0, 200);
        assert_eq!(limit("jobs").await, default(2), "{value} lowers nobody");
    }
    let (_, quota) = patch(&mia, "groups/lab", json!({ "each": { "jobs": 4 } })).await;
    assert_eq!(quota["raised"]["jobs"]["value"], 4);
    assert_eq!(limit("jobs").await, (4, "group lab".to_owned()));
    // Whatever changes later: the default, an override, the mark.
    patch(&chief, "default", json!({ "jobs": 6 })).await;
    assert_eq!(limit("jobs").await, default(6));
    patch(&chief, "default", json!({ "jobs": 2 })).await;
    patch(&chief, "users/alice", json!({ "jobs": 1 })).await;
    assert_eq!(limit("jobs").await, (1, "override".to_owned()));
    patch(&chief, "users/alice", json!({ "jobs": null })).await;
    patch(&chief, "groups/lab", json!({ "chargeable": false })).await;
    assert_eq!(limit("jobs").await, default(2));
    patch(&chief, "groups/lab", json!({ "chargeable": true })).await;
    assert_eq!(limit("jobs").await, (4, "group lab".to_owned()));
    // What an administrator set for the group stands beside it, and restricts where the group does.
    let (_, quota) = patch(&chief, "groups/lab", json!({ "each": { "cpus": 1 }, "restrictive": true })).await;
    assert_eq!(quota["each"]["cpus"]["value"], 1);
    assert_eq!(patch(&mia, "groups/lab", json!({ "each": { "cpus": 4 } })).await.0, 200);
    assert_eq!(limit("cpus").await, (1, "group lab".to_owned()));
    assert_eq!(patch(&mia, "groups/lab", json!({ "each": { "cpus": null } })).await.0, 200);
    assert_eq!(limit("cpus").await, (1, "group lab".to_owned()), "she takes back what is hers alone");

    // Under another group's totals it does not count.
    chief.post("/api/v1/groups", &json!({ "name": "rich" })).await;
    assert_eq!(status(&chief, "PUT", "groups/rich/members/alice").await, 204);
    patch(&chief, "groups/rich", json!({ "chargeable": true })).await;
    let would = async |group: &str| {
        let answer = alice.post("/api/v1/jobs/admission", &json!({ "script": "true", "group": group })).await;
        answer.json::<Value>().await.unwrap()
    };
    patch(&chief, "default", json!({ "jobs": 0 })).await;
    let (own, other) = (would("lab").await, would("rich").await);
    assert!(!own.to_string().contains("quota.jobs"), "{own}");
    assert!(other.to_string().contains("quota.jobs.user"), "{other}");
}
