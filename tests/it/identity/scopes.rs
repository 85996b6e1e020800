//! Tokens with scopes: which routes each scope opens, asked of the router itself and then over
//! HTTP, and that none of them is a way to become more.

use std::collections::BTreeMap;

use lyceum::{auth::scopes::Scope, model::Role, web};
use serde_json::{Value, json};

use super::{routes_by_scope::ROUTES, scene::Scene};
use crate::portal::{Caller, TestPortal, password};

/// What a route needs, as the table writes it.
fn told(needs: &web::RequiredScopes, method: &str) -> String {
    let needed = needs.of(method);
    match needed.len() {
        all if all == Scope::ALL.len() && needs.change == needs.look => "*".to_owned(),
        all if all == Scope::ALL.len() => "any".to_owned(),
        _ => needed.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" "),
    }
}

fn sorted(scopes: &str) -> Vec<&str> {
    let mut words: Vec<&str> = scopes.split(' ').collect();
    words.sort_unstable();
    words
}

#[test]
fn every_route_says_which_scopes_open_it() {
    let mut table = BTreeMap::new();
    for (scopes, routes) in ROUTES {
        for route in *routes {
            assert!(table.insert((*route).to_owned(), *scopes).is_none(), "{route} stands twice");
        }
    }
    for (route, needs) in web::declared() {
        let name = format!("{} {}", route.method, route.path);
        let declared = told(needs, &route.method);
        let expected = table.remove(&name).unwrap_or_else(|| panic!("{name} needs `{declared}` and has no entry"));
        assert_eq!(sorted(&declared), sorted(expected), "{name}");
    }
    assert!(table.is_empty(), "entries without a route: {table:?}");
}

/// Whether a token was refused for its scopes.
fn is_refused(status: u16, text: &str) -> bool {
    status == 403 && text.contains("scopes do not allow")
}

/// Every route with a token of each scope: an administrator's, so that no role is in the way.
#[tokio::test]
async fn a_scope_opens_what_it_says_and_nothing_else() {
    let scene = Scene::set().await;
    let portal = &scene.portal;
    let chief = portal.sign_in("chief").await;
    let mut tokens = Vec::new();
    for scope in Scope::ALL {
        tokens.push((scope, portal.token(&chief, &[scope.as_str()]).await));
    }
    let mut faults = Vec::new();
    for (scopes, routes) in ROUTES {
        for route in *routes {
            let (method, template) = route.split_once(' ').unwrap();
            let method = if method == "ANY" { "GET" } else { method };
            let path = scene.path(template).await;
            for (scope, token) in &tokens {
                let opens = matches!(*scopes, "*" | "any") || scopes.split(' ').any(|one| one == scope.as_str());
                let answer = token.request(method, &path).send().await.unwrap();
                let status = answer.status().as_u16();
                // A stream that has begun has no end.
                let text = if status == 403 { answer.text().await.unwrap() } else { String::new() };
                if is_refused(status, &text) == opens {
                    faults.push(format!("{} on {route}: {status} {text:.200}", scope.as_str()));
                }
            }
            // A change that went through may have ended something.
            portal.clock.advance(1);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn the_document_says_the_scopes() {
    let portal = TestPortal::start().await;
    let document: Value = portal.anybody().get("/api/v1/openapi.json").await.json().await.unwrap();
    for (scopes, routes) in ROUTES.iter().filter(|(scopes, _)| *scopes != "*") {
        for route in routes.iter().filter(|route| route.contains(" /api/v1/")) {
            let (method, path) = route.split_once(' ').unwrap();
            let operation = &document["paths"][path][method.to_lowercase()];
            let told: Vec<&str> =
                operation["x-scopes"].as_array().unwrap().iter().map(|scope| scope.as_str().unwrap()).collect();
            let words = operation["description"].as_str().unwrap();
            match *scopes {
                "any" => assert_eq!(told.len(), Scope::ALL.len(), "{route}"),
                "" => {
                    assert!(told.is_empty() && words.contains("Tokens with scopes cannot be used"), "{route}: {words}");
                }
                some => {
                    assert_eq!(sorted(&told.join(" ")), sorted(some), "{route}");
                    assert!(told.iter().all(|scope| words.contains(&format!("`{scope}`"))), "{route}: {words}");
                }
            }
        }
    }
}

async fn ask(caller: &Caller, method: &str, path: &str, body: &Value) -> u16 {
    caller.request(method, &format!("/api/v1{path}")).json(body).send().await.unwrap().status().as_u16()
}

/// A token with scopes gives no role and no password that would make more of it.
#[tokio::test]
async fn a_token_with_scopes_cannot_become_more() {
    let portal = TestPortal::start().await;
    for (name, role) in [
        ("chief", Role::Admin),
        ("deputy", Role::Admin),
        ("watch", Role::Operator),
        ("keeper", Role::User),
        ("plain", Role::User),
    ] {
        portal.add_user(name, role).await;
    }
    let chief = portal.sign_in("chief").await;
    assert_eq!(ask(&chief, "POST", "/groups", &json!({ "name": "lab" })).await, 201);
    assert_eq!(ask(&chief, "PUT", "/groups/lab/managers/keeper", &Value::Null).await, 204);
    let deputy = portal.sign_in("deputy").await;
    let theirs: Value = deputy.post("/api/v1/tokens", &json!({ "name": "theirs" })).await.json().await.unwrap();
    let theirs = theirs["id"].as_str().unwrap();

    let scoped = portal.token(&chief, &["admin:users"]).await;
    let everything: Vec<&str> = Scope::ALL.into_iter().map(Scope::as_str).collect();
    let wide = portal.token(&chief, &everything).await;
    let secret = "a password of some length";
    for token in [&scoped, &wide] {
        for role in ["admin", "operator"] {
            let new = json!({ "name": "evil", "password": secret, "role": role });
            assert_eq!(ask(token, "POST", "/users", &new).await, 403, "{role}");
            assert_eq!(ask(token, "PATCH", "/users/plain", &json!({ "role": role })).await, 403, "{role}");
        }
        for name in ["chief", "deputy", "watch", "keeper", "DEPUTY"] {
            for change in [
                json!({ "password": secret }),
                json!({ "disabled": true }),
                json!({ "disabled": false }),
                json!({ "role": "user" }),
                json!({ "display_name": "x" }),
            ] {
                assert_eq!(ask(token, "PATCH", &format!("/users/{name}"), &change).await, 403, "{name} {change}");
            }
            assert_eq!(ask(token, "DELETE", &format!("/users/{name}"), &Value::Null).await, 403, "{name}");
            assert_eq!(ask(token, "POST", &format!("/users/{name}/sign-out"), &Value::Null).await, 403, "{name}");
        }
        assert_eq!(ask(token, "DELETE", &format!("/users/deputy/tokens/{theirs}"), &Value::Null).await, 403);
        for name in ["plain", "chief"] {
            assert_eq!(ask(token, "PUT", &format!("/groups/lab/managers/{name}"), &Value::Null).await, 403, "{name}");
        }
        assert_eq!(ask(token, "POST", "/tokens", &json!({ "name": "more" })).await, 403);
        let own = json!({ "current_password": password("chief"), "new_password": secret });
        assert_eq!(ask(token, "POST", "/me/password", &own).await, 403);
    }
    assert_eq!(portal.try_sign_in("evil", secret).await.status(), 401, "nobody was made");
    assert_eq!(portal.try_sign_in("deputy", &password("deputy")).await.status(), 200, "nothing was changed");

    // What the scope is for goes on.
    let new = json!({ "name": "fresh", "password": secret });
    assert_eq!(ask(&scoped, "POST", "/users", &new).await, 201);
    assert_eq!(ask(&scoped, "PATCH", "/users/fresh", &json!({ "display_name": "Fresh" })).await, 200);
    assert_eq!(ask(&scoped, "PATCH", "/users/plain", &json!({ "disabled": true })).await, 200);
    assert_eq!(ask(&scoped, "PUT", "/groups/lab/members/fresh", &Value::Null).await, 204);
    // A token without scopes is all that its owner is.
    let whole = portal.token(&chief, &[]).await;
    assert_eq!(ask(&whole, "PATCH", "/users/fresh", &json!({ "role": "operator" })).await, 200);
    assert_eq!(ask(&scoped, "PATCH", "/users/fresh", &json!({ "disabled": true })).await, 403, "now with a role");
}
