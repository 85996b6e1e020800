//! What a token may do: one table from method and route to the scope that is needed. A token
//! without scopes may do all that its owner may; scopes only ever take away.

/// A scope with the sentence that the settings page shows.
pub const SCOPES: [(&str, &str); 10] = [
    ("read", "See what is yours, your files apart: sessions, quota, usage, tokens. Change nothing."),
    ("sessions", "Start, change and stop your sessions."),
    ("sessions:connect", "Open your running sessions, terminals included."),
    ("jobs", "Start, change and stop your jobs."),
    ("files:read", "See and download your files."),
    ("files", "See, download, upload, rename and delete your files."),
    ("admin:quotas", "See quotas and change them, as far as your role reaches."),
    ("admin:users", "See people and groups and change them, as far as your role reaches."),
    ("admin:audit", "Read the audit log, as an administrator."),
    (
        "admin:site",
        "Manage profiles, environments, announcements and maintenance, and see the portal's health, as an administrator.",
    ),
];

/// Whether there is such a scope.
pub fn is_scope(name: &str) -> bool {
    SCOPES.iter().any(|(scope, _)| *scope == name)
}

/// Whether these scopes include a request. `route` is the router's template, as
/// `/api/v1/sessions/{id}`. Roles are judged separately: a scope never adds a right.
pub fn allow(scopes: &[String], method: &str, route: &str) -> bool {
    if scopes.is_empty() {
        return true;
    }
    let reading = matches!(method, "GET" | "HEAD");
    let has = |scope: &str| scopes.iter().any(|have| have == scope);
    if route.starts_with("/s/") {
        return has("sessions:connect");
    }
    // Files hold more than the portal knows, so that reading them is a scope of its own.
    if route.starts_with("/files") || route.starts_with("/api/v1/files") {
        return has("files") || (reading && has("files:read"));
    }
    // Many curves are asked for in a body; nothing is changed by that.
    let reading = reading || route == "/api/v1/curves";
    let area = match route.strip_prefix("/api/v1/") {
        Some(below) => below.split('/').next().unwrap_or_default(),
        None => "",
    };
    let writers: &[&str] = match area {
        "sessions" => &["sessions"],
        "admission" => &["sessions", "jobs"],
        "jobs" | "queue" | "runs" | "curves" | "sweeps" | "datasets" | "models" => &["jobs"],
        "quotas" => &["admin:quotas"],
        "users" | "groups" => &["admin:users"],
        "audit" => &["admin:audit"],
        "profiles" | "environments" | "announcements" | "maintenance" | "health" => &["admin:site"],
        // Tokens, passwords, pages: only a token without scopes.
        _ => &[],
    };
    // What one needs to see in order to use the others.
    let common = matches!(area, "me" | "profiles" | "environments" | "openapi.json");
    // Other people's affairs: a token that lies on some dashboard does not tell them.
    let of_others = matches!(area, "users" | "groups" | "quotas" | "audit" | "health")
        || route.starts_with("/admin")
        || route.starts_with("/usage/compare");
    writers.iter().any(|scope| has(scope)) || (reading && ((has("read") && !of_others) || common))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_scope_allows() {
        let table: [(&str, &str, &str, bool); 41] = [
            ("read", "GET", "/api/v1/sessions", true),
            ("read", "GET", "/settings", true),
            ("read", "POST", "/api/v1/sessions", false),
            ("read", "DELETE", "/api/v1/tokens/{id}", false),
            ("read", "POST", "/api/v1/tokens", false),
            ("read", "GET", "/s/{id}/{*path}", false),
            ("sessions", "GET", "/s/{id}/{*path}", false),
            ("read", "GET", "/api/v1/files/content", false),
            ("read", "GET", "/files", false),
            ("files:read", "GET", "/api/v1/files/content", true),
            ("files:read", "PATCH", "/api/v1/files/uploads/{id}", false),
            ("files", "DELETE", "/api/v1/files", true),
            ("files", "GET", "/api/v1/sessions", false),
            ("sessions", "POST", "/api/v1/sessions", true),
            ("sessions", "GET", "/api/v1/sessions/{id}", true),
            ("sessions", "POST", "/api/v1/admission", true),
            ("sessions", "GET", "/api/v1/me", true),
            ("sessions", "GET", "/api/v1/tokens", false),
            ("sessions", "POST", "/api/v1/me/password", false),
            ("sessions", "POST", "/api/v1/jobs", false),
            ("sessions", "GET", "/", false),
            ("sessions:connect", "GET", "/s/{id}/{*path}", true),
            ("sessions:connect", "POST", "/s/{id}/{*path}", true),
            ("sessions:connect", "GET", "/api/v1/sessions", false),
            ("jobs", "POST", "/api/v1/jobs/{id}/cancel", true),
            ("jobs", "POST", "/api/v1/runs", true),
            ("read", "POST", "/api/v1/curves", true),
            ("read", "POST", "/api/v1/runs", false),
            ("admin:quotas", "PATCH", "/api/v1/quotas/users/{u}", true),
            ("admin:quotas", "PATCH", "/api/v1/users/{name}", false),
            ("admin:users", "PATCH", "/api/v1/users/{name}", true),
            ("admin:users", "PUT", "/api/v1/groups/{group}/members/{name}", true),
            ("admin:users", "PATCH", "/api/v1/quotas/default", false),
            ("admin:audit", "GET", "/api/v1/audit", true),
            ("admin:site", "GET", "/api/v1/audit", false),
            ("read", "GET", "/api/v1/users", false),
            ("read", "GET", "/api/v1/quotas/default", false),
            ("read", "GET", "/api/v1/audit", false),
            ("read", "GET", "/admin/users", false),
            ("read", "GET", "/usage", true),
            ("read", "GET", "/usage/compare", false),
        ];
        for (scope, method, route, allowed) in table {
            assert_eq!(allow(&[scope.to_owned()], method, route), allowed, "{scope} {method} {route}");
            assert!(allow(&[], method, route), "without scopes everything: {method} {route}");
        }
        assert!(is_scope("sessions:connect") && !is_scope("admin:*") && !is_scope(""));
    }
}
