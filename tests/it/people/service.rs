//! Service accounts: nobody signs in to one, administrators keep its tokens, and it counts for nothing where somebody
//! who can sign in is needed.

use std::process::Command;

use futures_util::future::join_all;
use lyceum::{
    db::directory::{ArrivalOutcome, Person},
    model::{Role, Username},
};
use serde_json::{Value, json};

use super::{audit, outcome};
use crate::portal::{Caller, TestPortal};

async fn with_service() -> (TestPortal, Caller) {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let chief = portal.sign_in("chief").await;
    let body = json!({ "name": "svc-ci", "display_name": "Nightly builds", "source": "service" });
    let answer = chief.post("/api/v1/users", &body).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.json::<Value>().await.unwrap()["source"], "service");
    (portal, chief)
}

async fn made(answer: reqwest::Response) -> (String, String) {
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    let made: Value = answer.json().await.unwrap();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn tokens_of_a_program_are_made_rotated_and_revoked_by_administrators() {
    let (portal, chief) = with_service().await;
    let tokens = "/api/v1/users/svc-ci/tokens";
    let body = json!({ "name": "nightly", "scopes": ["jobs", "read"], "expires_in_seconds": 3600 });
    let answer = chief.post(tokens, &body).await;
    assert_eq!(answer.status(), 201);
    let address = answer.headers()["location"].to_str().unwrap().to_owned();
    let (id, secret) = made(answer).await;
    assert_eq!(address, format!("{tokens}/{id}"));
    assert!(audit(&portal, 1).await[0].starts_with(&format!("chief token.make {id} of svc-ci: nightly (jobs read)")));

    let program = portal.bearer(&secret);
    let me: Value = program.get("/api/v1/me").await.json().await.unwrap();
    assert_eq!((me["name"].as_str(), me["token"]["id"].as_str()), (Some("svc-ci"), Some(id.as_str())));
    assert_eq!(program.get("/api/v1/users").await.status(), 403, "it is a plain user, with scopes");

    let (same, newer) = made(chief.post(&format!("{tokens}/{id}/rotate"), &Value::Null).await).await;
    assert_eq!(same, id);
    assert_eq!(program.get("/api/v1/me").await.status(), 401, "the old secret");
    let program = portal.bearer(&newer);
    assert_eq!(program.get("/api/v1/jobs").await.status(), 200);
    assert_eq!(audit(&portal, 1).await, [format!("chief token.rotate {id} of svc-ci")]);

    let listed: Value = chief.get(tokens).await.json().await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(listed["items"][0].get("secret").is_none());
    assert_eq!(chief.delete(&format!("{tokens}/{id}")).await.status(), 204);
    assert_eq!(program.get("/api/v1/me").await.status(), 401);
    assert_eq!(chief.post(&format!("{tokens}/{id}/rotate"), &Value::Null).await.status(), 404);
    for (body, expected) in [
        (json!({ "name": "" }), "name invalid_value"),
        (json!({ "name": "x", "scopes": ["everything"] }), "scopes unknown_scope"),
        (json!({ "name": "x", "expires_in_seconds": 0 }), "expires_in_seconds out_of_range"),
    ] {
        assert_eq!(outcome(chief.post(tokens, &body).await).await, (422, expected.to_owned()), "{body}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_told_again() {
    let (portal, chief) = with_service().await;
    let tokens = "/api/v1/users/svc-ci/tokens";
    let keyed = chief.clone().with("idempotency-key", "build-17");
    let body = json!({ "name": "nightly" });
    let answers = join_all((0..20).map(|_| async { made(keyed.post(tokens, &body).await).await })).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "twenty at once make one token");
    let other = json!({ "name": "another" });
    assert_eq!(outcome(keyed.post(tokens, &other).await).await, (422, "Idempotency-Key reused".to_owned()));
    let body_of_other = json!({ "name": "svc-two", "source": "service" });
    assert_eq!(chief.post("/api/v1/users", &body_of_other).await.status(), 201);
    let elsewhere = outcome(keyed.post("/api/v1/users/svc-two/tokens", &body).await).await;
    assert_eq!(elsewhere, (422, "Idempotency-Key reused".to_owned()), "for another account it is another request");

    let (id, first) = answers[0].clone();
    let rotation = chief.clone().with("idempotency-key", "rotation-1");
    let rotate = format!("{tokens}/{id}/rotate");
    let answers = join_all((0..20).map(|_| async { made(rotation.post(&rotate, &Value::Null).await).await })).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "twenty at once rotate to one secret");
    assert_eq!(portal.bearer(&first).get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.bearer(&answers[0].1).get("/api/v1/me").await.status(), 200);
    // An earlier secret never comes back.
    let newest = made(chief.post(&rotate, &Value::Null).await).await;
    assert_eq!(outcome(rotation.post(&rotate, &Value::Null).await).await, (422, "Idempotency-Key reused".to_owned()));
    assert_eq!(portal.bearer(&answers[0].1).get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.bearer(&newest.1).get("/api/v1/me").await.status(), 200);
    assert_eq!(outcome(keyed.post(&rotate, &Value::Null).await).await.0, 422, "that key has made a token");
    // One's own token as well.
    let own = chief.clone().with("idempotency-key", "own-1");
    let (id, _) = made(chief.post("/api/v1/tokens", &body).await).await;
    let once = made(own.post(&format!("/api/v1/tokens/{id}/rotate"), &Value::Null).await).await;
    assert_eq!(made(own.post(&format!("/api/v1/tokens/{id}/rotate"), &Value::Null).await).await, once);
}

#[tokio::test]
async fn nobody_signs_in_to_a_service_account() {
    let (portal, chief) = with_service().await;
    for password in ["", "svc-ci-has-a-password", "x"] {
        let answer = portal.try_sign_in("svc-ci", password).await;
        assert!(answer.status().is_client_error(), "{password:?}: {}", answer.status());
    }
    let rows = audit(&portal, 10).await;
    assert!(rows.contains(&"svc-ci sign_in.failed svc-ci service accounts cannot sign in".to_owned()), "{rows:?}");

    let with_password = json!({ "name": "svc-x", "source": "service", "password": "a-long-password-it-is" });
    assert_eq!(
        outcome(chief.post("/api/v1/users", &with_password).await).await,
        (422, "password not_allowed".to_owned())
    );
    let patch = async |body: &Value| {
        let answer = chief.request("PATCH", "/api/v1/users/svc-ci").json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, why) = patch(&json!({ "password": "a-long-password-it-is" })).await;
    assert_eq!(status, 409);
    assert!(why.contains("ervice accounts have no password"), "{why}");
    assert_eq!(patch(&json!({ "display_name": "CI", "role": "admin" })).await.0, 200);

    // Whoever a directory calls so does not become the program, and the program is no administrator who can sign in.
    let person = Person {
        source: "ldap",
        subject: "entryUUID=svc-ci",
        name: &Username::parse("svc-ci").unwrap(),
        display_name: "",
        mail: None,
        uid_number: None,
        unix_name: None,
        role: None,
        groups: &[],
    };
    let arrival = portal.db().arrive(&person, portal.clock.now()).await.unwrap();
    assert!(matches!(arrival, ArrivalOutcome::NameTaken));
    assert!(!portal.db().link_user(person.name, "ldap", portal.by()).await.unwrap());
    portal.add_user("second", Role::Admin).await;
    let second = portal.sign_in("second").await;
    let disable = json!({ "disabled": true });
    let answer = second.request("PATCH", "/api/v1/users/chief").json(&disable).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (_, secret) = made(second.post("/api/v1/users/svc-ci/tokens", &json!({ "name": "root" })).await).await;
    let program = portal.bearer(&secret);
    let answer = program.request("PATCH", "/api/v1/users/second").json(&disable).send().await.unwrap();
    assert_eq!(answer.status(), 409, "the last administrator who can sign in");
}

#[tokio::test]
async fn people_make_their_own_tokens() {
    let (portal, chief) = with_service().await;
    portal.add_user("ada", Role::User).await;
    portal.add_user("olga", Role::Operator).await;
    let (ada, olga) = (portal.sign_in("ada").await, portal.sign_in("olga").await);
    let body = json!({ "name": "x" });
    let answer = chief.post("/api/v1/users/ada/tokens", &body).await;
    assert_eq!(answer.status(), 409);
    assert!(answer.text().await.unwrap().contains("only its owner can create and rotate its tokens"));
    let (id, secret) = made(ada.post("/api/v1/tokens", &body).await).await;
    assert_eq!(chief.post(&format!("/api/v1/users/ada/tokens/{id}/rotate"), &Value::Null).await.status(), 409);
    assert_eq!(portal.bearer(&secret).get("/api/v1/me").await.status(), 200, "it is as it was");
    for caller in [&ada, &olga] {
        assert_eq!(caller.post("/api/v1/users/svc-ci/tokens", &body).await.status(), 403);
    }
    // With a scope it would make a token that has none.
    let scoped = portal.token(&chief, &["admin:users", "token:rotate"]).await;
    assert_eq!(scoped.post("/api/v1/users/svc-ci/tokens", &body).await.status(), 403);
    let new = json!({ "name": "svc-two", "source": "service" });
    assert_eq!(scoped.post("/api/v1/users", &new).await.status(), 201, "a plain one");
    assert_eq!(scoped.post("/api/v1/users/svc-two/tokens", &body).await.status(), 403);
}

#[tokio::test]
async fn the_page_of_a_service_account_makes_and_rotates_tokens() {
    let (portal, chief) = with_service().await;
    let page = chief.get("/admin/users/svc-ci").await.text().await.unwrap();
    assert!(page.contains("Service accounts cannot sign in") && page.contains("New token"));
    assert!(!page.contains("New password") && !page.contains("Sign out everywhere"));
    for form in ["role", "expiry", "disable", "remove"] {
        assert!(page.contains(&format!("action=\"/admin/users/svc-ci/{form}\"")), "{form}");
    }
    let secret_of = |page: &str| {
        let begin = page.find("id=\"token-secret\">").expect("the secret is shown") + 18;
        page[begin..].split('<').next().unwrap().to_owned()
    };
    let fields = [("name", "nightly"), ("scopes", "jobs"), ("expires", "604800")];
    let answer = chief.post_form("/admin/users/svc-ci/tokens", &fields).await;
    assert_eq!(answer.status(), 200);
    let secret = secret_of(&answer.text().await.unwrap());
    assert_eq!(portal.bearer(&secret).get("/api/v1/jobs").await.status(), 200);
    let page = chief.get("/admin/users/svc-ci").await.text().await.unwrap();
    assert!(page.contains("nightly") && !page.contains(&secret), "it is shown once");

    let listed: Value = chief.get("/api/v1/users/svc-ci/tokens").await.json().await.unwrap();
    let id = listed["items"][0]["id"].as_str().unwrap();
    let answer = chief.post_form(&format!("/admin/users/svc-ci/tokens/{id}/rotate"), &[]).await;
    let newer = secret_of(&answer.text().await.unwrap());
    assert_eq!(portal.bearer(&secret).get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.bearer(&newer).get("/api/v1/me").await.status(), 200);

    let answer = chief.post_form("/admin/users/svc-ci/tokens", &[("name", " "), ("scopes", "jobs")]).await;
    assert_eq!(answer.status(), 422);
    let page = answer.text().await.unwrap();
    assert!(page.contains("token_name-error") && page.contains("value=\"jobs\" checked"), "what was typed stays");

    let answer = chief.post_form("/admin/users", &[("name", "svc-form"), ("source", "service")]).await;
    assert_eq!(answer.headers()["location"], "/admin/users/svc-form?done=added");
    let list = chief.get("/admin/users?source=service").await.text().await.unwrap();
    assert!(list.contains("svc-form") && list.contains("service account") && !list.contains("/admin/users/chief"));
}

#[tokio::test]
async fn service_accounts_are_declared_in_a_file() {
    let (portal, chief) = with_service().await;
    let site = json!({ "users": [
        { "name": "svc-ci", "source": "service", "display_name": "Nightly builds" },
        { "name": "svc-new", "source": "service", "role": "operator" },
    ] });
    let applied: Value = chief.post("/api/v1/site/apply", &site).await.json().await.unwrap();
    assert_eq!(applied["changes"].as_array().unwrap().len(), 1, "{applied}");
    assert_eq!(applied["changes"][0]["detail"], "role=operator; source=service");
    assert_eq!(applied["invitations"].as_array().map_or(0, Vec::len), 0, "nobody is invited into it");
    let again: Value = chief.post("/api/v1/site/apply", &site).await.json().await.unwrap();
    assert_eq!(again["changes"].as_array().unwrap().len(), 0, "{again}");
    let exported: Value = chief.get("/api/v1/site").await.json().await.unwrap();
    let users = exported["users"].as_array().unwrap();
    let program = users.iter().find(|user| user["name"] == "svc-ci").unwrap();
    assert_eq!((&program["source"], &program["display_name"]), (&json!("service"), &json!("Nightly builds")));
    let other = json!({ "users": [{ "name": "svc-ci", "source": "local" }] });
    assert_eq!(
        outcome(chief.post("/api/v1/site/apply", &other).await).await,
        (422, "users.0.source other_source".to_owned())
    );

    // As the administrator's shell has it.
    let (_, secret) = made(chief.post("/api/v1/tokens", &json!({ "name": "shell" })).await).await;
    let run = async |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words.split(' ')).env_clear().env("LYCEUM_URL", &portal.url).env("LYCEUM_TOKEN", &secret);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, first, _) = run("token create nightly --user svc-ci --scope jobs").await;
    assert_eq!(code, Some(0));
    let (_, second, _) = run("token rotate nightly --user svc-ci").await;
    assert_eq!(portal.bearer(first.trim()).get("/api/v1/me").await.status(), 401);
    assert_eq!(portal.bearer(second.trim()).get("/api/v1/me").await.status(), 200);
    assert!(run("token list --user svc-ci").await.1.contains("nightly"));
    let (code, _, why) = run("token create x --user chief-not").await;
    assert_eq!(code, Some(66), "{why}");
    let (code, _, why) = run("token rotate --user svc-ci").await;
    assert!(code == Some(2) && why.contains("name the token to rotate"), "{why}");
    assert_eq!(run("token revoke nightly --user svc-ci").await.0, Some(0));
    assert_eq!(portal.bearer(second.trim()).get("/api/v1/me").await.status(), 401);
}
