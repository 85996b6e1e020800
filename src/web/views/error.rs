//! Pages for when something went wrong: what happened, what to do, and ways on. `explain`
//! is the text behind `/problems/{kind}`, the address in every problem document's `type`.

use askama::Template;

use crate::web::page::{Layout, filters};

/// Any error, for a person.
#[derive(Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    pub layout: Layout,
    pub status: u16,
    /// “Not found”.
    pub title: String,
    /// What happened, and what to do: one or two sentences, never a cause from inside.
    pub detail: String,
    /// The kind that `/problems/{kind}` explains.
    pub kind: String,
    pub request_id: String,
    /// The first one is the button; empty offers the home page.
    pub ways: Vec<ErrorLink>,
}

/// Links from an error page to a next step.
#[derive(Clone, Debug)]
pub struct ErrorLink {
    pub href: String,
    pub label: String,
}

/// `/problems/{kind}`.
#[derive(Debug, Template)]
#[template(path = "problem.html")]
pub struct Problem {
    pub layout: Layout,
    pub kind: String,
    pub explanation: Explanation,
}

/// What a kind of problem means, and who can do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub status: u16,
    pub title: &'static str,
    pub meaning: &'static str,
    pub user: &'static str,
    pub administrator: &'static str,
}

/// The explanation of a kind, if there is such a kind.
#[must_use]
pub fn explain(kind: &str) -> Option<Explanation> {
    EXPLANATIONS.iter().find(|(name, _)| *name == kind).map(|(_, explanation)| *explanation)
}

const EXPLANATIONS: [(&str, Explanation); 17] = [
    (
        "malformed",
        Explanation {
            status: 400,
            title: "Malformed request",
            meaning: "The body is not valid JSON, a parameter has the wrong type, or the address is invalid.",
            user: "The detail names the place. The API page shows what each route expects.",
            administrator: "Nothing to do, unless a reverse proxy changes requests.",
        },
    ),
    (
        "not-signed-in",
        Explanation {
            status: 401,
            title: "Not signed in",
            meaning: "The sign-in has expired or ended, or the token is unknown, revoked or expired.",
            user: "Sign in again, or create a new token on the settings page.",
            administrator: "The audit log shows when the login or token ended, and whether the account is disabled.",
        },
    ),
    (
        "forbidden",
        Explanation {
            status: 403,
            title: "Not allowed",
            meaning: "You are signed in, but your role or the token's scopes do not include this action.",
            user: "Use a token with the scope that the detail names, or ask an administrator.",
            administrator: "Set roles with ‘lyceum admin user’. Scopes are selected when a token is created.",
        },
    ),
    (
        "not-same-origin",
        Explanation {
            status: 403,
            title: "The request did not come from the portal's own pages",
            meaning: "A change must come from one of the portal's own pages. The proof of that was missing or did not \
                      match.",
            user: "Go back, reload the page and try again. Programs should use a token, which needs no such proof.",
            administrator: "Behind a reverse proxy, set ‘public_url’ to the address that users type, and pass the Host \
                            header on.",
        },
    ),
    (
        "not-found",
        Explanation {
            status: 404,
            title: "Not found",
            meaning: "It does not exist, or it is not yours. The portal does not reveal which.",
            user: "Check the address, and that you are signed in with the right account.",
            administrator: "Some resources are visible only to their owner. Administrators also get this error for \
                            them, on purpose.",
        },
    ),
    (
        "method-not-allowed",
        Explanation {
            status: 405,
            title: "Method not allowed",
            meaning: "The address exists, but it does not support this method.",
            user: "The API page lists the methods of each route.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "conflict",
        Explanation {
            status: 409,
            title: "Conflict with the current state",
            meaning: "The action is not possible in the current state. For example, an ended session cannot be \
                      extended, and a running job cannot be deleted.",
            user: "Check the current state. The detail says what is possible.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "over-quota",
        Explanation {
            status: 409,
            title: "Over your quota",
            meaning: "The request exceeds your limits, or the size of the largest machine, so it can never start. \
                      Requests that could start later wait instead.",
            user: "Request less. Each reason lists the usage, the requested amount and the limit, and what to do.",
            administrator: "Set limits with ‘lyceum admin quota’, for all users or for one user, optionally with an \
                            end date.",
        },
    ),
    (
        "ended",
        Explanation {
            status: 410,
            title: "The session has ended",
            meaning: "Its program has stopped and its address no longer works. Files in the home directory are not \
                      affected.",
            user: "The session's page shows why it ended. You can start it again there.",
            administrator: "Its history and its log are kept until they are cleaned up.",
        },
    ),
    (
        "stale",
        Explanation {
            status: 412,
            title: "Changed by another request",
            meaning: "Your change is based on a version that is no longer current.",
            user: "Reload it and repeat your change.",
            administrator: "The audit log shows who changed it.",
        },
    ),
    (
        "too-large",
        Explanation {
            status: 413,
            title: "Too large",
            meaning: "The request is larger than this address accepts. Nothing was stored.",
            user: "Send less. The detail states the limit.",
            administrator: "The limit for requests protects the portal's memory. The limit for uploaded files is \
                            ‘files.max_upload’.",
        },
    ),
    (
        "unsatisfiable",
        Explanation {
            status: 416,
            title: "Range not satisfiable",
            meaning: "The requested part of the file begins after the end of the file.",
            user: "Nothing is left to download, or the file has become shorter. Download it again.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "invalid-fields",
        Explanation {
            status: 422,
            title: "Some fields are invalid",
            meaning: "The request is well-formed, but a value is missing, unknown or out of range. Nothing was \
                      changed.",
            user: "Each entry of ‘errors’ names a field and what it accepts.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "too-many-requests",
        Explanation {
            status: 429,
            title: "Too many requests",
            meaning: "Too many requests or sign-in attempts arrived in a short time. The block is temporary.",
            user: "Wait for the time in Retry-After, then try again.",
            administrator: "The audit log lists repeated failed sign-ins with their addresses.",
        },
    ),
    (
        "internal",
        Explanation {
            status: 500,
            title: "Internal error",
            meaning: "An error occurred in the portal. Running sessions are not affected.",
            user: "Try again. If it persists, give your administrator the request id shown on the page.",
            administrator: "The log has the cause under the same request id.",
        },
    ),
    (
        "unavailable",
        Explanation {
            status: 503,
            title: "Temporarily unavailable",
            meaning: "The directory, the database or the scheduler does not respond. Running sessions continue.",
            user: "Try again in a moment.",
            administrator: "‘lyceum check’ shows which part does not respond and how to fix it.",
        },
    ),
    (
        "maintenance",
        Explanation {
            status: 503,
            title: "No starts during maintenance",
            meaning: "An administrator has announced maintenance. Pending sessions and jobs keep their position and \
                      start afterwards.",
            user: "Try again after maintenance. The detail says when it ends, and ‘Retry-After’ gives the seconds \
                   until then.",
            administrator: "End it under Admin, Maintenance, or with ‘lyceum admin maintenance off’.",
        },
    ),
];
