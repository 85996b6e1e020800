//! `authz_matrix`: every route of the router against everybody who may come. A route without
//! a row fails, and so does a row without a route.

use std::collections::BTreeSet;

use lyceum::web::{self, Route};

use super::scene::Scene;
use crate::portal::FORM;

/// Who comes, in the order of the columns. "other" is another user than the owner of `{id}`.
const PEOPLE: [&str; 7] = ["anonymous", "user", "other", "admin", "read-only token", "expired token", "disabled user"];

struct Row {
    method: &'static str,
    path: &'static str,
    /// JSON for the API, a form for pages; empty for none.
    body: &'static str,
    statuses: [u16; 7],
}

const fn row(method: &'static str, path: &'static str, body: &'static str, statuses: [u16; 7]) -> Row {
    Row { method, path, body, statuses }
}

/// `{id}` is the id of one of the user's things: see [`Scene::thing`].
const MATRIX: &[Row] = &[
    row("POST", "/api/v1/login", "{}", [422, 422, 422, 422, 422, 401, 422]),
    row("POST", "/api/v1/logout", "", [401, 204, 204, 204, 403, 401, 401]),
    row("GET", "/api/v1/me", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/me/password", "{}", [401, 422, 422, 422, 403, 401, 401]),
    // Nobody has had a session yet, so nothing is looked for.
    row("GET", "/api/v1/me/environments", "", [401, 200, 200, 200, 200, 401, 401]),
    row("DELETE", "/api/v1/me/environments/{name}", "", [401, 404, 404, 404, 403, 401, 401]),
    row("GET", "/settings/packages", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/settings/packages/{name}/reset", "a=b", [401, 404, 404, 404, 403, 401, 401]),
    row("GET", "/api/v1/tokens", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/tokens", r#"{"name": "x"}"#, [401, 201, 201, 201, 403, 401, 401]),
    row("DELETE", "/api/v1/tokens/{id}", "", [401, 204, 404, 404, 403, 401, 401]),
    row("GET", "/api/v1/profiles", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/environments", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/modules", "", [401, 200, 200, 200, 200, 401, 401]),
    // There is no image of this name.
    row("GET", "/api/v1/images", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/images", r#"{"name": "X", "reference": "x"}"#, [401, 403, 403, 422, 403, 401, 401]),
    row("GET", "/api/v1/image-storage", "", [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/image-storage/clean", r#"{"unused_days": -1}"#, [401, 403, 403, 422, 403, 401, 401]),
    row("GET", "/api/v1/image-suggestions", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/images/{name}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("DELETE", "/api/v1/images/{name}", "", [401, 403, 403, 404, 403, 401, 401]),
    row("POST", "/api/v1/images/{name}/pull", "", [401, 403, 403, 404, 403, 401, 401]),
    row("POST", "/api/v1/admission", r#"{"app": "terminal"}"#, [401, 200, 200, 200, 403, 401, 401]),
    row("GET", "/api/v1/sessions", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/sessions", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/api/v1/sessions/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/sessions/{id}", r#"{"name": "x"}"#, [401, 200, 404, 404, 403, 401, 401]),
    row("DELETE", "/api/v1/sessions/{id}", "", [401, 202, 404, 202, 403, 401, 401]),
    // It does not run: whoever may extend it hears of the conflict.
    row("POST", "/api/v1/sessions/{id}/extend", "{}", [401, 409, 404, 409, 403, 401, 401]),
    row("POST", "/api/v1/sessions/{id}/keep", "{}", [401, 409, 404, 404, 403, 401, 401]),
    row("GET", "/api/v1/sessions/{id}/log", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/sessions/{id}/hardware", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/sessions/{id}/events", "", [401, 200, 404, 200, 200, 401, 401]),
    // The user is invited, and a member where a group is left.
    row("GET", "/api/v1/me/invitations", "", [401, 200, 200, 200, 200, 401, 401]),
    row("PUT", "/api/v1/me/invitations/{group}", "", [401, 204, 404, 404, 403, 401, 401]),
    row("DELETE", "/api/v1/me/invitations/{group}", "", [401, 204, 404, 404, 403, 401, 401]),
    row("POST", "/invitations/{group}/accept", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/invitations/{group}/decline", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/settings/groups/{group}/leave", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    row("GET", "/api/v1/me/notifications", "", [401, 200, 200, 200, 200, 401, 401]),
    row("PUT", "/api/v1/me/notifications", r#"{"events": ["test"]}"#, [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/api/v1/me/notifications/seen", "{}", [401, 204, 204, 204, 403, 401, 401]),
    row("POST", "/api/v1/me/notifications/test", "", [401, 409, 409, 409, 403, 401, 401]),
    row("GET", "/api/v1/jobs", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/jobs", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/api/v1/jobs/admission", r#"{"script": "x"}"#, [401, 200, 200, 200, 403, 401, 401]),
    row("GET", "/api/v1/jobs/queue", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/jobs/queue/pause", r#"{"everybody": true}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/jobs/queue/resume", r#"{"everybody": true}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/sweeps", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/sweeps", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/api/v1/sweeps/preview", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/api/v1/sweeps/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("DELETE", "/api/v1/sweeps/{id}", "", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/api/v1/sweeps/{id}/pause", "", [401, 202, 404, 202, 403, 401, 401]),
    row("POST", "/api/v1/sweeps/{id}/resume", "", [401, 202, 404, 202, 403, 401, 401]),
    row("POST", "/api/v1/sweeps/{id}/stop", "", [401, 202, 404, 202, 403, 401, 401]),
    row("GET", "/api/v1/jobs/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/jobs/{id}", r#"{"name": "x"}"#, [401, 200, 404, 404, 403, 401, 401]),
    // It waits: whoever may delete or resume it hears of the conflict.
    row("DELETE", "/api/v1/jobs/{id}", "", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/api/v1/jobs/{id}/cancel", "", [401, 202, 404, 202, 403, 401, 401]),
    row("POST", "/api/v1/jobs/{id}/resume", "", [401, 409, 404, 404, 403, 401, 401]),
    // What can be seen can be copied; the copy is whoever asked for it.
    row("POST", "/api/v1/jobs/{id}/clone", "{}", [401, 202, 404, 202, 403, 401, 401]),
    row("GET", "/api/v1/jobs/{id}/log", "", [401, 200, 404, 200, 200, 401, 401]),
    // Nobody has read its logs.
    row("GET", "/api/v1/jobs/{id}/run", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/jobs/{id}/hardware", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/jobs/{id}/metrics", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/jobs/{id}/metrics/{tag}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/jobs/{id}/events", "", [401, 200, 404, 200, 200, 401, 401]),
    // There is no helper behind this portal: who may come hears that files cannot be reached.
    row("GET", "/api/v1/files", "", [401, 503, 503, 503, 403, 401, 401]),
    row("PATCH", "/api/v1/files", r#"{"path": "x"}"#, [401, 503, 503, 503, 403, 401, 401]),
    row("DELETE", "/api/v1/files", "", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/api/v1/files/roots", "", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/api/v1/files/info", "", [401, 503, 503, 503, 403, 401, 401]),
    row("POST", "/api/v1/files/folders", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/api/v1/files/content", "", [401, 503, 503, 503, 403, 401, 401]),
    row("POST", "/api/v1/files/uploads", "{}", [401, 422, 422, 422, 403, 401, 401]),
    // An id gives no right: with anybody's, everybody comes to their own files alone.
    row("GET", "/api/v1/files/uploads/{id}", "", [401, 503, 503, 503, 403, 401, 401]),
    row("PATCH", "/api/v1/files/uploads/{id}", "x", [401, 422, 422, 422, 403, 401, 401]),
    row("DELETE", "/api/v1/files/uploads/{id}", "", [401, 503, 503, 503, 403, 401, 401]),
    row("POST", "/api/v1/files/uploads/{id}/finish", "", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/api/v1/quotas/default", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/quotas/default", "{}", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/usage", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/quotas", "", [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/quotas/preview", r#"{"default": {}}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/quotas/cluster", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/quotas/cluster", "{}", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/quotas/groups/{group}", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/quotas/groups/{group}", "{}", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/quotas/users", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/quotas/users", r#"{"names": ["third"], "change": {}}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/quotas/users/{name}", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/quotas/users/{name}", "{}", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/nodes", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/partitions", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/reservations", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/offers", "", [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/api/v1/queue", "", [401, 200, 200, 200, 200, 401, 401]),
    // This portal does not use a batch system.
    row("DELETE", "/api/v1/queue/{id}", "", [401, 404, 404, 404, 403, 401, 401]),
    row("GET", "/api/v1/gpus", "", [401, 200, 200, 200, 200, 401, 401]),
    // There is none here.
    row("GET", "/api/v1/gpus/{uuid}/history", "", [401, 404, 404, 404, 404, 401, 401]),
    // It holds no GPUs that could rest.
    row("POST", "/api/v1/sessions/{id}/ask", "", [401, 403, 403, 409, 403, 401, 401]),
    // Nobody's files can be reached here.
    row("GET", "/api/v1/datasets", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/datasets", "{}", [401, 503, 503, 503, 403, 401, 401]),
    row("POST", "/api/v1/dataset-preview", "{}", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/api/v1/datasets/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/datasets/{id}", r#"{"notes": "x"}"#, [401, 200, 404, 404, 403, 401, 401]),
    row("DELETE", "/api/v1/datasets/{id}", "", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/api/v1/datasets/{id}/cancel", "", [401, 202, 404, 404, 403, 401, 401]),
    row("POST", "/api/v1/datasets/{id}/build", "", [401, 409, 404, 404, 403, 401, 401]),
    // It is being built: there is nothing to see yet.
    row("GET", "/api/v1/datasets/{id}/items", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/datasets/{id}/items/{row}/picture", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/datasets/{id}/items/{row}/mask", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/datasets/{id}/mean", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/dataset-example", "", [401, 422, 422, 422, 422, 401, 401]),
    // What no job trains has left nothing.
    row("GET", "/api/v1/models", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/models", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/api/v1/models/learning-rate", "{}", [401, 200, 200, 200, 403, 401, 401]),
    // An id of a model is none of a job.
    row("POST", "/api/v1/models/previews", "{}", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/api/v1/models/previews/{id}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/models/previews/{id}/{drawing}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/models/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/models/{id}", r#"{"notes": "x"}"#, [401, 200, 404, 404, 403, 401, 401]),
    row("DELETE", "/api/v1/models/{id}", "", [401, 409, 404, 404, 403, 401, 401]),
    row("GET", "/api/v1/models/{id}/snapshots", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/models/{id}/evaluation", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/models/{id}/predictions", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/models/{id}/thresholds", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/models/{id}/curves", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/models/{id}/masks/{split}/{number}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/models/{id}/layers", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/models/{id}/lineage", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/models/{id}/scaling", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/models/{id}/exports", "", [401, 200, 404, 200, 200, 401, 401]),
    row("POST", "/api/v1/models/{id}/exports", r#"{"snapshot": "x.keras"}"#, [401, 422, 404, 404, 403, 401, 401]),
    row("POST", "/api/v1/models/imports", r#"{"name": "x", "path": ""}"#, [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/api/v1/models/{id}/bundle", "", [401, 409, 404, 409, 409, 401, 401]),
    row("GET", "/api/v1/models/{id}/precisions", "", [401, 200, 404, 200, 200, 401, 401]),
    row("POST", "/api/v1/models/{id}/precisions", "{}", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/api/v1/models/{id}/infer", r#"{"path": "/x"}"#, [401, 409, 404, 409, 403, 401, 401]),
    row("GET", "/api/v1/models/{id}/tests", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/models/{id}/tests/{test}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/models/{id}/tests/{test}/{drawing}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/models", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/models", "a=b", [401, 404, 404, 404, 403, 401, 401]),
    row("GET", "/models/new", "", [303, 303, 303, 303, 303, 401, 303]),
    row("POST", "/models/preview", "a=b", [401, 404, 404, 404, 403, 401, 401]),
    row("GET", "/models/previews/{id}", "", [303, 404, 404, 404, 404, 401, 303]),
    row("GET", "/models/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/models/{id}/change", "name=x", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/models/{id}/remove", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/models/{id}/precisions", "environment=", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/models/imports", "name=x&path=", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/models/{id}/exports", "snapshot=x.keras", [401, 422, 404, 404, 403, 401, 401]),
    row("POST", "/models/{id}/infer", "path=x", [401, 409, 404, 409, 403, 401, 401]),
    row("GET", "/models/{id}/predictions", "", [303, 409, 404, 409, 409, 401, 303]),
    row("GET", "/models/{id}/tests/{test}", "", [303, 404, 404, 404, 404, 401, 303]),
    row("GET", "/models/{id}/tests/{test}/table", "", [303, 404, 404, 404, 404, 401, 303]),
    // There is no such GPU.
    row("PUT", "/api/v1/gpus/{uuid}/hold", r#"{"reason": "x"}"#, [401, 403, 403, 404, 403, 401, 401]),
    row("DELETE", "/api/v1/gpus/{uuid}/hold", "", [401, 403, 403, 404, 403, 401, 401]),
    row("POST", "/cluster/gpus/{uuid}/hold", "reason=x", [401, 403, 403, 404, 403, 401, 401]),
    row("POST", "/cluster/gpus/{uuid}/release", "a=b", [401, 403, 403, 404, 403, 401, 401]),
    row("GET", "/api/v1/diagnostics", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/diagnostics", r#"{"gpus": 0}"#, [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/api/v1/diagnostics/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("POST", "/api/v1/diagnostics/{id}/cancel", "", [401, 202, 404, 202, 403, 401, 401]),
    row("GET", "/diagnostics", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/diagnostics", "gpus=x", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/diagnostics/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/diagnostics/{id}/cancel", "a=b", [401, 303, 404, 303, 403, 401, 401]),
    row("GET", "/datasets", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/datasets", "a=b", [401, 503, 503, 503, 403, 401, 401]),
    row("POST", "/datasets/preview", "a=b", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/datasets/new", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/datasets/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/datasets/{id}/cancel", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/datasets/{id}/build", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/datasets/{id}/change", "name=x", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/datasets/{id}/remove", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("GET", "/cluster", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/images", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/images", "name=X", [401, 403, 403, 422, 403, 401, 401]),
    row("POST", "/images/clean", "unused_days=-1", [401, 403, 403, 422, 403, 401, 401]),
    row("POST", "/images/{name}/pull", "a=b", [401, 403, 403, 404, 403, 401, 401]),
    row("POST", "/images/{name}/remove", "a=b", [401, 403, 403, 404, 403, 401, 401]),
    row("GET", "/queue", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/queue/{id}/cancel", "a=b", [401, 404, 404, 404, 403, 401, 401]),
    row("POST", "/cluster/sessions/{id}/ask", "a=b", [401, 403, 403, 409, 403, 401, 401]),
    // `{id}` is an announcement that everybody reads.
    row("GET", "/api/v1/announcements", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/announcements", r#"{"text": "x"}"#, [401, 403, 403, 201, 403, 401, 401]),
    row("GET", "/api/v1/announcements/{id}", "", [401, 200, 200, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/announcements/{id}", r#"{"text": "y"}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("DELETE", "/api/v1/announcements/{id}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("POST", "/api/v1/announcements/{id}/dismiss", "", [401, 204, 204, 204, 403, 401, 401]),
    row("GET", "/api/v1/maintenance", "", [401, 200, 200, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/maintenance", r#"{"mode": "off"}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/api/v1/health", "", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/announcements/strip", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/announcements/{id}/dismiss", "a=b", [401, 303, 303, 303, 403, 401, 401]),
    row("GET", "/admin/announcements", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/announcements", "text=x", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/announcements/{id}", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/announcements/{id}", "text=y", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/announcements/{id}/end", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/announcements/{id}/remove", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/maintenance", "", [303, 403, 403, 200, 403, 401, 303]),
    // It is over before the next row asks for a session.
    row("POST", "/admin/maintenance", "mode=no_new_sessions", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/maintenance/off", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/health", "", [303, 403, 403, 200, 403, 401, 303]),
    // `{id}` is a run of the user's that nobody else sees but administrators. The scheduler of this
    // portal knows nobody's home.
    row("GET", "/api/v1/runs", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/runs", r#"{"directory": "x"}"#, [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/api/v1/runs/{id}", "", [401, 200, 404, 200, 200, 401, 401]),
    row("PATCH", "/api/v1/runs/{id}", r#"{"name": "y"}"#, [401, 200, 404, 403, 403, 401, 401]),
    row("DELETE", "/api/v1/runs/{id}", "", [401, 204, 404, 403, 403, 401, 401]),
    row("GET", "/api/v1/runs/{id}/metrics", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/runs/{id}/metrics/{tag}", "", [401, 404, 404, 404, 404, 401, 401]),
    row("GET", "/api/v1/runs/{id}/events", "", [401, 200, 404, 200, 200, 401, 401]),
    row("GET", "/api/v1/results", "", [401, 200, 200, 200, 200, 401, 401]),
    row("POST", "/api/v1/curves", r#"{"runs": [], "tags": []}"#, [401, 200, 200, 200, 200, 401, 401]),
    row("GET", "/runs", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/runs", "directory=x", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/runs/compare", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/runs/selection", "do=compare", [401, 303, 303, 303, 403, 401, 401]),
    row("GET", "/runs/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/runs/{id}", "name=y", [401, 303, 404, 403, 403, 401, 401]),
    row("POST", "/runs/{id}/remove", "a=b", [401, 303, 404, 403, 403, 401, 401]),
    row("GET", "/api/v1/audit", "", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/admin/audit", "", [303, 403, 403, 200, 403, 401, 303]),
    row("GET", "/admin/audit/table", "", [303, 403, 403, 200, 403, 401, 303]),
    row("GET", "/api/v1/openapi.json", "", [200, 200, 200, 200, 200, 401, 200]),
    row("GET", "/login", "", [200, 303, 303, 303, 200, 401, 200]),
    row("POST", "/login", "username=nobody&password=x", [401, 401, 401, 401, 401, 401, 401]),
    row("POST", "/logout", "", [303, 303, 303, 303, 303, 401, 303]),
    row("GET", "/", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/events", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/notices", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/search", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/tensorboard", "run=", [401, 404, 404, 404, 403, 401, 401]),
    row("GET", "/sessions", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/sessions/new", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/sessions", "app=nothing", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/sessions/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("GET", "/sessions/{id}/card", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/sessions/{id}/stop", "a=b", [401, 303, 404, 303, 403, 401, 401]),
    row("POST", "/sessions/{id}/extend", "a=b", [401, 409, 404, 409, 403, 401, 401]),
    row("POST", "/sessions/{id}/keep", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/sessions/{id}/start-again", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    // It waits; a program is told to try again. Not the administrator's: 404.
    row("ANY", "/s/{*rest}", "", [401, 503, 404, 404, 403, 401, 401]),
    // For whoever knows the portal's key.
    row("GET", "/check", "", [404, 404, 404, 404, 404, 401, 404]),
    row("GET", "/check/echo", "", [404, 404, 404, 404, 404, 401, 404]),
    row("GET", "/check/events", "", [404, 404, 404, 404, 404, 401, 404]),
    row("GET", "/jobs", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/jobs", "work=command", [401, 422, 422, 422, 403, 401, 401]),
    row("GET", "/jobs/new", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/jobs/selection", "do=star", [401, 303, 303, 303, 403, 401, 401]),
    row("POST", "/jobs/queue", "do=resume", [401, 303, 303, 303, 403, 401, 401]),
    row("GET", "/sweeps", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/sweeps/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/sweeps/{id}/pause", "a=b", [401, 303, 404, 303, 403, 401, 401]),
    row("POST", "/sweeps/{id}/resume", "a=b", [401, 303, 404, 303, 403, 401, 401]),
    row("POST", "/sweeps/{id}/stop", "a=b", [401, 303, 404, 303, 403, 401, 401]),
    row("POST", "/sweeps/{id}/delete", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("GET", "/jobs/{id}", "", [303, 200, 404, 200, 200, 401, 303]),
    row("POST", "/jobs/{id}", "name=x&visibility=private", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/jobs/{id}/cancel", "a=b", [401, 303, 404, 303, 403, 401, 401]),
    row("POST", "/jobs/{id}/resume", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("POST", "/jobs/{id}/star", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/jobs/{id}/delete", "a=b", [401, 409, 404, 404, 403, 401, 401]),
    row("GET", "/files", "", [303, 503, 503, 503, 403, 401, 303]),
    row("GET", "/files/item", "", [303, 503, 503, 503, 403, 401, 303]),
    row("GET", "/files/download", "", [303, 503, 503, 503, 403, 401, 303]),
    row("POST", "/files/folder", "a=b", [401, 503, 503, 503, 403, 401, 401]),
    row("POST", "/files/rename", "a=b", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/files/delete", "a=b", [401, 503, 503, 503, 403, 401, 401]),
    row("GET", "/usage", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/usage/table", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/usage/compare", "", [303, 403, 403, 200, 403, 401, 303]),
    row("GET", "/usage/compare/table", "", [303, 403, 403, 200, 403, 401, 303]),
    row("GET", "/settings", "", [303, 200, 200, 200, 200, 401, 303]),
    row("POST", "/settings/notifications", "mail=x", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/settings/notifications/test", "a=b", [401, 409, 409, 409, 403, 401, 401]),
    row("POST", "/settings/password", "a=b", [401, 422, 422, 422, 403, 401, 401]),
    row("POST", "/settings/tokens", "name=x", [401, 200, 200, 200, 403, 401, 401]),
    row("POST", "/settings/tokens/{id}/revoke", "a=b", [401, 303, 404, 404, 403, 401, 401]),
    row("POST", "/settings/sign-out-everywhere", "a=b", [401, 303, 303, 303, 403, 401, 401]),
    row("POST", "/settings/theme", "theme=dark", [401, 303, 303, 303, 403, 401, 401]),
    // These are about "third", who was here before: such an account is not removed.
    row("GET", "/api/v1/users", "", [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/users", r#"{"name": "fresh"}"#, [401, 403, 403, 201, 403, 401, 401]),
    row("GET", "/api/v1/users/{name}", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/users/{name}", r#"{"disabled": false}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("DELETE", "/api/v1/users/{name}", "", [401, 403, 403, 409, 403, 401, 401]),
    row("POST", "/api/v1/users/{name}/sign-out", "", [401, 403, 403, 204, 403, 401, 401]),
    row("GET", "/api/v1/users/{name}/tokens", "", [401, 403, 403, 200, 403, 401, 401]),
    row("DELETE", "/api/v1/users/{name}/tokens/{id}", "", [401, 403, 403, 204, 403, 401, 401]),
    // Managers of groups, for whom these are too, are in tests/it/people.
    row("GET", "/api/v1/groups", "", [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/groups", r#"{"name": "made"}"#, [401, 403, 403, 201, 403, 401, 401]),
    row("GET", "/api/v1/groups/{group}", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PATCH", "/api/v1/groups/{group}", r#"{"name": "renamed"}"#, [401, 403, 403, 200, 403, 401, 401]),
    row("DELETE", "/api/v1/groups/{group}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("GET", "/api/v1/groups/{group}/members", "", [401, 403, 403, 200, 403, 401, 401]),
    row("PUT", "/api/v1/groups/{group}/members/{name}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("DELETE", "/api/v1/groups/{group}/members/{name}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("PUT", "/api/v1/groups/{group}/managers/{name}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("DELETE", "/api/v1/groups/{group}/managers/{name}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("GET", "/api/v1/groups/{group}/invitations", "", [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/groups/{group}/invitations", r#"{"name": "third"}"#, [401, 403, 403, 201, 403, 401, 401]),
    row("DELETE", "/api/v1/groups/{group}/invitations/{name}", "", [401, 403, 403, 204, 403, 401, 401]),
    row("GET", "/api/v1/groups/{group}/sessions", "", [401, 403, 403, 200, 403, 401, 401]),
    row("POST", "/api/v1/groups/{group}/stop", "", [401, 403, 403, 202, 403, 401, 401]),
    // Before "third" becomes an operator, whom nobody invites.
    row("POST", "/admin/groups/{group}/invitations", "name=third", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/groups/{group}/invitations/{name}/withdraw", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/users", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/users", "name=by_form", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/users/{name}", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/users/{name}/role", "role=operator", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/users/{name}/disable", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/users/{name}/enable", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/users/{name}/sign-out", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/users/{name}/password", "password=a-long-one-of-course", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/users/{name}/remove", "a=b", [401, 403, 403, 409, 403, 401, 401]),
    row("POST", "/admin/users/{name}/tokens/{id}/revoke", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/groups", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/groups", "name=by_form", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/groups/{group}", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/groups/{group}/rename", "name=renamed_by_form", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/groups/{group}/remove", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/groups/{group}/members", "name=third", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/groups/{group}/members/{name}/remove", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/groups/{group}/managers", "name=third", [401, 403, 403, 303, 403, 401, 401]),
    row("POST", "/admin/groups/{group}/managers/{name}/remove", "a=b", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/quotas", "", [303, 403, 403, 200, 403, 401, 303]),
    row("GET", "/admin/quotas/table", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/quotas/selection", "user=third&step=choose", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/admin/quotas/users/{name}", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/quotas/users/{name}", "step=save", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/quotas/groups", "", [303, 403, 403, 200, 403, 401, 303]),
    row("GET", "/admin/quotas/groups/{group}", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/quotas/groups/{group}", "step=save", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/quotas/default", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/quotas/default", "step=save", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/admin/quotas/cluster", "", [303, 403, 403, 200, 403, 401, 303]),
    row("POST", "/admin/quotas/cluster", "step=save", [401, 403, 403, 303, 403, 401, 401]),
    row("GET", "/docs/api", "", [303, 200, 200, 200, 200, 401, 303]),
    row("GET", "/problems/{kind}", "", [200, 200, 200, 200, 200, 401, 200]),
    row("GET", "/healthz", "", [200, 200, 200, 200, 200, 200, 200]),
    // Nobody looks at the sessions here while the clock goes on; that is told to everybody.
    row("GET", "/readyz", "", [503, 503, 503, 503, 503, 503, 503]),
    // Passed on by a proxy: from this machine itself anybody may read the numbers.
    row("GET", "/metrics", "", [401, 403, 403, 200, 403, 401, 401]),
    row("GET", "/static/{*path}", "", [200, 200, 200, 200, 200, 200, 200]),
    row("GET", "/favicon.ico", "", [200, 200, 200, 200, 200, 200, 200]),
];

#[test]
fn authz_matrix_has_a_row_for_each_route() {
    let routes: BTreeSet<Route> = web::all_routes().into_iter().collect();
    let rows: BTreeSet<Route> =
        MATRIX.iter().map(|row| Route { method: row.method.to_owned(), path: row.path.to_owned() }).collect();
    assert_eq!(routes.difference(&rows).collect::<Vec<_>>(), Vec::<&Route>::new(), "routes without a row");
    assert_eq!(rows.difference(&routes).collect::<Vec<_>>(), Vec::<&Route>::new(), "rows without a route");
    assert_eq!(rows.len(), MATRIX.len(), "a row stands twice");
}

#[tokio::test]
async fn authz_matrix() {
    let scene = Scene::set().await;
    let mut faults = Vec::new();
    for row in MATRIX {
        for (person, expected) in PEOPLE.into_iter().zip(row.statuses) {
            let path = scene.path(row.path).await;
            let caller = scene.caller(person).await.with("x-forwarded-for", "192.0.2.1");
            let method = if row.method == "ANY" { "GET" } else { row.method };
            let mut request = caller.request(method, &path);
            if !row.body.is_empty() {
                let kind = if row.path.starts_with("/api/") { "application/json" } else { FORM };
                request = request.header("content-type", kind).body(row.body);
            }
            let answer = request.send().await.unwrap();
            if answer.status().as_u16() != expected {
                let (status, text) = (answer.status(), answer.text().await.unwrap());
                faults.push(format!("{} {} as {person}: {status}, not {expected}: {text:.200}", row.method, row.path));
            }
            // A sign-in that fails makes the next one wait; rows are about something else.
            scene.portal.clock.advance(60);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
