//! Tokens with scopes: which routes each scope opens, asked of the router itself and then over
//! HTTP, and that none of them is a way to become more.

use std::collections::BTreeMap;

use lyceum::{auth::scopes::Scope, model::Role, web};
use serde_json::{Value, json};

use super::scene::Scene;
use crate::portal::{Caller, TestPortal, password};

/// Scopes, and every route that needs one of them. `*`: open to everybody; `any`: every token
/// may; nothing: no token with scopes may.
const ROUTES: &[(&str, &[&str])] = &[
    (
        "*",
        &[
            "POST /api/v1/login",
            "GET /api/v1/openapi.json",
            "GET /login",
            "POST /login",
            "GET /welcome",
            "POST /welcome",
            "POST /logout",
            "GET /check",
            "GET /check/echo",
            "GET /check/events",
            "GET /problems/{kind}",
            "GET /healthz",
            "GET /readyz",
            "GET /favicon.ico",
            "GET /static/{*path}",
        ],
    ),
    (
        "",
        &[
            "POST /api/v1/logout",
            "POST /api/v1/me/password",
            "PUT /api/v1/me/registry-credentials/{registry}",
            "DELETE /api/v1/me/registry-credentials/{registry}",
            "DELETE /api/v1/me/environments/{name}",
            "POST /settings/packages/{name}/reset",
            "POST /api/v1/tokens",
            "DELETE /api/v1/tokens/{id}",
            "PUT /api/v1/me/notifications",
            "POST /api/v1/me/notifications/seen",
            "POST /api/v1/me/notifications/test",
            "POST /models",
            "POST /models/preview",
            "POST /models/{id}/change",
            "POST /models/{id}/remove",
            "POST /models/{id}/precisions",
            "POST /models/{id}/exports",
            "POST /models/imports",
            "POST /models/{id}/infer",
            "PUT /api/v1/gpus/{uuid}/hold",
            "DELETE /api/v1/gpus/{uuid}/hold",
            "POST /cluster/gpus/{uuid}/hold",
            "POST /cluster/gpus/{uuid}/release",
            "POST /diagnostics",
            "POST /diagnostics/{id}/cancel",
            "POST /datasets",
            "POST /datasets/preview",
            "POST /datasets/{id}/cancel",
            "POST /datasets/{id}/build",
            "POST /datasets/{id}/change",
            "POST /datasets/{id}/remove",
            "POST /queue/{id}/cancel",
            "POST /images",
            "POST /images/clean",
            "POST /images/{name}/pull",
            "POST /images/{name}/remove",
            "POST /cluster/sessions/{id}/ask",
            "POST /announcements/{id}/dismiss",
            "GET /admin/announcements",
            "POST /admin/announcements",
            "GET /admin/announcements/{id}",
            "POST /admin/announcements/{id}",
            "POST /admin/announcements/{id}/end",
            "POST /admin/announcements/{id}/remove",
            "GET /admin/maintenance",
            "POST /admin/maintenance",
            "POST /admin/maintenance/off",
            "GET /admin/health",
            "POST /runs",
            "POST /runs/selection",
            "POST /tensorboard",
            "POST /runs/{id}",
            "POST /runs/{id}/remove",
            "GET /admin/audit",
            "GET /admin/audit/table",
            "POST /sessions",
            "POST /sessions/{id}/stop",
            "POST /sessions/{id}/extend",
            "POST /sessions/{id}/keep",
            "POST /sessions/{id}/start-again",
            "POST /jobs",
            "POST /jobs/selection",
            "POST /jobs/queue",
            "POST /sweeps/{id}/pause",
            "POST /sweeps/{id}/resume",
            "POST /sweeps/{id}/stop",
            "POST /sweeps/{id}/delete",
            "POST /jobs/{id}",
            "POST /jobs/{id}/cancel",
            "POST /jobs/{id}/resume",
            "POST /jobs/{id}/star",
            "POST /jobs/{id}/delete",
            "GET /usage/compare",
            "GET /usage/compare/table",
            "POST /settings/registry-credentials",
            "POST /settings/registry-credentials/{registry}/remove",
            "POST /settings/notifications",
            "POST /settings/notifications/test",
            "POST /settings/password",
            "POST /settings/tokens",
            "POST /settings/tokens/{id}/revoke",
            "POST /settings/sign-out-everywhere",
            "POST /settings/theme",
            "GET /admin/users",
            "POST /admin/users",
            "GET /admin/users/{name}",
            "POST /admin/users/{name}/role",
            "POST /admin/users/{name}/disable",
            "POST /admin/users/{name}/enable",
            "POST /admin/users/{name}/sign-out",
            "POST /admin/users/{name}/password",
            "POST /admin/users/{name}/remove",
            "POST /admin/users/{name}/tokens/{id}/revoke",
            "GET /admin/groups",
            "POST /admin/groups",
            "GET /admin/groups/{group}",
            "POST /admin/groups/{group}/rename",
            "POST /admin/groups/{group}/remove",
            "POST /admin/groups/{group}/members",
            "POST /admin/groups/{group}/members/{name}/remove",
            "POST /admin/groups/{group}/invitations",
            "POST /admin/groups/{group}/invitations/{name}/withdraw",
            "POST /settings/groups/{group}/leave",
            "POST /invitations/{group}/accept",
            "POST /invitations/{group}/decline",
            "POST /api/v1/groups/{group}/stop",
            "GET /api/v1/site",
            "POST /api/v1/site/apply",
            "PUT /api/v1/me/invitations/{group}",
            "DELETE /api/v1/me/invitations/{group}",
            "POST /admin/groups/{group}/managers",
            "POST /admin/groups/{group}/managers/{name}/remove",
            "GET /admin/quotas",
            "GET /admin/quotas/table",
            "POST /admin/quotas/selection",
            "GET /admin/quotas/users/{name}",
            "POST /admin/quotas/users/{name}",
            "GET /admin/quotas/groups",
            "GET /admin/quotas/groups/{group}",
            "POST /admin/quotas/groups/{group}",
            "GET /admin/quotas/default",
            "POST /admin/quotas/default",
            "GET /admin/quotas/cluster",
            "POST /admin/quotas/cluster",
        ],
    ),
    ("any", &["GET /api/v1/me"]),
    (
        "read jobs",
        &[
            "GET /api/v1/me/environments",
            "GET /api/v1/me/notifications",
            "GET /api/v1/me/invitations",
            "GET /api/v1/jobs",
            "GET /api/v1/jobs/queue",
            "GET /api/v1/sweeps",
            "GET /api/v1/sweeps/{id}",
            "GET /api/v1/jobs/{id}",
            "GET /api/v1/jobs/{id}/log",
            "GET /api/v1/jobs/{id}/run",
            "GET /api/v1/jobs/{id}/hardware",
            "GET /api/v1/jobs/{id}/metrics",
            "GET /api/v1/jobs/{id}/metrics/{tag}",
            "GET /api/v1/jobs/{id}/events",
            "GET /api/v1/queue",
            "GET /api/v1/diagnostics",
            "GET /api/v1/diagnostics/{id}",
            "GET /api/v1/datasets",
            "GET /api/v1/datasets/{id}",
            "GET /api/v1/datasets/{id}/items",
            "GET /api/v1/datasets/{id}/items/{row}/picture",
            "GET /api/v1/datasets/{id}/items/{row}/mask",
            "GET /api/v1/datasets/{id}/mean",
            "GET /api/v1/dataset-example",
            "GET /api/v1/models",
            "GET /api/v1/models/previews/{id}",
            "GET /api/v1/models/previews/{id}/{drawing}",
            "GET /api/v1/models/{id}",
            "GET /api/v1/models/{id}/snapshots",
            "GET /api/v1/models/{id}/evaluation",
            "GET /api/v1/models/{id}/predictions",
            "GET /api/v1/models/{id}/thresholds",
            "GET /api/v1/models/{id}/curves",
            "GET /api/v1/models/{id}/masks/{split}/{number}",
            "GET /api/v1/models/{id}/exports",
            "GET /api/v1/models/{id}/layers",
            "GET /api/v1/models/{id}/lineage",
            "GET /api/v1/models/{id}/scaling",
            "GET /api/v1/models/{id}/bundle",
            "GET /api/v1/models/{id}/precisions",
            "GET /api/v1/models/{id}/tests",
            "GET /api/v1/models/{id}/tests/{test}",
            "GET /api/v1/models/{id}/tests/{test}/{drawing}",
            "GET /api/v1/runs",
            "GET /api/v1/runs/{id}",
            "GET /api/v1/runs/{id}/metrics",
            "GET /api/v1/runs/{id}/metrics/{tag}",
            "GET /api/v1/runs/{id}/events",
            "GET /api/v1/results",
            "POST /api/v1/curves",
        ],
    ),
    (
        "read",
        &[
            "GET /settings/packages",
            "GET /api/v1/me/registry-credentials",
            "GET /api/v1/tokens",
            "GET /api/v1/usage",
            "GET /api/v1/nodes",
            "GET /api/v1/partitions",
            "GET /api/v1/reservations",
            "GET /api/v1/offers",
            "GET /api/v1/gpus",
            "GET /api/v1/gpus/{uuid}/history",
            "GET /models",
            "GET /models/new",
            "GET /models/previews/{id}",
            "GET /models/{id}",
            "GET /models/{id}/predictions",
            "GET /models/{id}/tests/{test}",
            "GET /models/{id}/tests/{test}/table",
            "GET /diagnostics",
            "GET /diagnostics/{id}",
            "GET /datasets",
            "GET /datasets/new",
            "GET /datasets/{id}",
            "GET /cluster",
            "GET /queue",
            "GET /images",
            "GET /announcements/strip",
            "GET /runs",
            "GET /runs/compare",
            "GET /runs/{id}",
            "GET /",
            "GET /events",
            "GET /notices",
            "GET /search",
            "GET /sessions",
            "GET /sessions/new",
            "GET /sessions/{id}",
            "GET /sessions/{id}/card",
            "GET /jobs",
            "GET /jobs/new",
            "GET /sweeps",
            "GET /sweeps/{id}",
            "GET /jobs/{id}",
            "GET /usage",
            "GET /usage/table",
            "GET /settings",
            "GET /docs/api",
        ],
    ),
    ("metrics", &["GET /metrics"]),
    (
        "read sessions jobs admin:site",
        &[
            "GET /api/v1/profiles",
            "GET /api/v1/environments",
            "GET /api/v1/modules",
            "GET /api/v1/image-storage",
            "GET /api/v1/image-suggestions",
            "GET /api/v1/images",
            "GET /api/v1/images/{name}",
        ],
    ),
    ("sessions jobs", &["POST /api/v1/admission"]),
    (
        "read sessions",
        &[
            "GET /api/v1/sessions",
            "GET /api/v1/sessions/{id}",
            "GET /api/v1/sessions/{id}/log",
            "GET /api/v1/sessions/{id}/events",
            "GET /api/v1/sessions/{id}/hardware",
        ],
    ),
    (
        "sessions",
        &[
            "POST /api/v1/sessions",
            "PATCH /api/v1/sessions/{id}",
            "DELETE /api/v1/sessions/{id}",
            "POST /api/v1/sessions/{id}/extend",
            "POST /api/v1/sessions/{id}/keep",
            "POST /api/v1/sessions/{id}/ask",
        ],
    ),
    (
        "jobs",
        &[
            "POST /api/v1/jobs",
            "POST /api/v1/jobs/admission",
            "POST /api/v1/jobs/queue/pause",
            "POST /api/v1/jobs/queue/resume",
            "POST /api/v1/sweeps",
            "POST /api/v1/sweeps/preview",
            "DELETE /api/v1/sweeps/{id}",
            "POST /api/v1/sweeps/{id}/pause",
            "POST /api/v1/sweeps/{id}/resume",
            "POST /api/v1/sweeps/{id}/stop",
            "PATCH /api/v1/jobs/{id}",
            "DELETE /api/v1/jobs/{id}",
            "POST /api/v1/jobs/{id}/cancel",
            "POST /api/v1/jobs/{id}/resume",
            "POST /api/v1/jobs/{id}/clone",
            "DELETE /api/v1/queue/{id}",
            "POST /api/v1/diagnostics",
            "POST /api/v1/diagnostics/{id}/cancel",
            "POST /api/v1/datasets",
            "POST /api/v1/dataset-preview",
            "PATCH /api/v1/datasets/{id}",
            "DELETE /api/v1/datasets/{id}",
            "POST /api/v1/datasets/{id}/cancel",
            "POST /api/v1/datasets/{id}/build",
            "POST /api/v1/models",
            "POST /api/v1/models/learning-rate",
            "POST /api/v1/models/previews",
            "POST /api/v1/models/imports",
            "POST /api/v1/models/{id}/exports",
            "PATCH /api/v1/models/{id}",
            "DELETE /api/v1/models/{id}",
            "POST /api/v1/models/{id}/precisions",
            "POST /api/v1/models/{id}/infer",
            "POST /api/v1/runs",
            "PATCH /api/v1/runs/{id}",
            "DELETE /api/v1/runs/{id}",
        ],
    ),
    (
        "files files:read",
        &[
            "GET /api/v1/files",
            "GET /api/v1/files/roots",
            "GET /api/v1/files/info",
            "GET /api/v1/files/content",
            "GET /api/v1/files/uploads/{id}",
            "GET /files",
            "GET /files/item",
            "GET /files/download",
        ],
    ),
    (
        "files",
        &[
            "PATCH /api/v1/files",
            "DELETE /api/v1/files",
            "POST /api/v1/files/folders",
            "POST /api/v1/files/uploads",
            "PATCH /api/v1/files/uploads/{id}",
            "DELETE /api/v1/files/uploads/{id}",
            "POST /api/v1/files/uploads/{id}/finish",
            "POST /files/folder",
            "POST /files/rename",
            "POST /files/delete",
        ],
    ),
    (
        "admin:quotas",
        &[
            "GET /api/v1/quotas/default",
            "PATCH /api/v1/quotas/default",
            "GET /api/v1/quotas",
            "POST /api/v1/quotas/preview",
            "GET /api/v1/quotas/cluster",
            "PATCH /api/v1/quotas/cluster",
            "GET /api/v1/quotas/groups/{group}",
            "PATCH /api/v1/quotas/groups/{group}",
            "GET /api/v1/quotas/users",
            "PATCH /api/v1/quotas/users",
            "GET /api/v1/quotas/users/{name}",
            "PATCH /api/v1/quotas/users/{name}",
        ],
    ),
    ("read admin:site", &["GET /api/v1/announcements", "GET /api/v1/announcements/{id}", "GET /api/v1/maintenance"]),
    (
        "admin:site",
        &[
            "POST /api/v1/image-storage/clean",
            "POST /api/v1/images",
            "DELETE /api/v1/images/{name}",
            "POST /api/v1/images/{name}/pull",
            "POST /api/v1/announcements",
            "PATCH /api/v1/announcements/{id}",
            "DELETE /api/v1/announcements/{id}",
            "POST /api/v1/announcements/{id}/dismiss",
            "PATCH /api/v1/maintenance",
            "GET /api/v1/health",
        ],
    ),
    ("admin:audit", &["GET /api/v1/audit"]),
    ("sessions:connect", &["ANY /s/{*rest}"]),
    (
        "admin:users",
        &[
            "GET /api/v1/users",
            "POST /api/v1/users",
            "GET /api/v1/users/{name}",
            "PATCH /api/v1/users/{name}",
            "DELETE /api/v1/users/{name}",
            "POST /api/v1/users/{name}/sign-out",
            "GET /api/v1/users/{name}/tokens",
            "DELETE /api/v1/users/{name}/tokens/{id}",
            "GET /api/v1/groups",
            "POST /api/v1/groups",
            "GET /api/v1/groups/{group}",
            "PATCH /api/v1/groups/{group}",
            "DELETE /api/v1/groups/{group}",
            "GET /api/v1/groups/{group}/members",
            "PUT /api/v1/groups/{group}/members/{name}",
            "DELETE /api/v1/groups/{group}/members/{name}",
            "PUT /api/v1/groups/{group}/managers/{name}",
            "DELETE /api/v1/groups/{group}/managers/{name}",
            "GET /api/v1/groups/{group}/invitations",
            "POST /api/v1/groups/{group}/invitations",
            "DELETE /api/v1/groups/{group}/invitations/{name}",
            "GET /api/v1/groups/{group}/sessions",
        ],
    ),
];

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
