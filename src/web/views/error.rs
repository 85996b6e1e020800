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
    pub ways: Vec<Way>,
}

/// A way on from an error.
#[derive(Clone, Debug)]
pub struct Way {
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
            title: "The request cannot be read",
            meaning: "It is not valid JSON, a parameter has the wrong type, or an address is not one of ours.",
            user: "Read the detail: it names the place. The API page shows what each route expects.",
            administrator: "Nothing to do, unless a proxy in front of the portal changes requests.",
        },
    ),
    (
        "not-signed-in",
        Explanation {
            status: 401,
            title: "Not signed in",
            meaning: "The sign-in has expired or ended, or the token is unknown, revoked or expired.",
            user: "Sign in again, or make a new token on the settings page.",
            administrator: "See the audit log for when the login or token ended, and whether the account is disabled.",
        },
    ),
    (
        "forbidden",
        Explanation {
            status: 403,
            title: "Not allowed",
            meaning: "You are known, but this is not yours to do: your role or the token's scopes do not include it.",
            user: "Use a token with the scope that the detail names, or ask an administrator.",
            administrator: "Roles are set with ‘lyceum admin user’; scopes are chosen when a token is made.",
        },
    ),
    (
        "not-same-origin",
        Explanation {
            status: 403,
            title: "The request did not come from the portal's own pages",
            meaning: "A change needs proof that one of the portal's pages asked for it. It was missing or did not match.",
            user: "Go back, load the page anew and try again. Programs should use a token, which needs no such proof.",
            administrator: "Behind a reverse proxy, set ‘public_url’ to the address that people type, and pass the Host header on.",
        },
    ),
    (
        "not-found",
        Explanation {
            status: 404,
            title: "Not found",
            meaning: "There is no such thing, or it is not yours: the portal does not tell the two apart.",
            user: "Check the address, and that you are signed in as the right person.",
            administrator: "Other people's things answer the same to administrators on purpose.",
        },
    ),
    (
        "method-not-allowed",
        Explanation {
            status: 405,
            title: "This address does not take that method",
            meaning: "The address exists, but answers to other methods.",
            user: "The API page lists the methods of each route.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "conflict",
        Explanation {
            status: 409,
            title: "It does not fit the state it is in",
            meaning: "For instance an ended session cannot be extended, and a running job cannot be deleted.",
            user: "Look at its state now; the detail says what would fit.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "over-quota",
        Explanation {
            status: 409,
            title: "Over your quota, now and later",
            meaning: "More is asked for than you may ever have, or than the largest machine has. What would fit later waits instead.",
            user: "Ask for less: each reason says used, asked and limit, and what would change it.",
            administrator: "Limits are set with ‘lyceum admin quota’, for everybody or for one person, with an end date if you like.",
        },
    ),
    (
        "ended",
        Explanation {
            status: 410,
            title: "The session has ended",
            meaning: "Its program is gone and its address answers no more. Files in the home directory are untouched.",
            user: "Its page says why it ended, and starts it again.",
            administrator: "Its history and its log stay until they are cleaned up.",
        },
    ),
    (
        "stale",
        Explanation {
            status: 412,
            title: "Somebody else changed it first",
            meaning: "The version that you changed is no longer the newest.",
            user: "Load it anew and make your change again.",
            administrator: "The audit log says who changed it.",
        },
    ),
    (
        "too-large",
        Explanation {
            status: 413,
            title: "Too large",
            meaning: "The request is larger than this address takes. Nothing of it was kept.",
            user: "Send less; the detail says the limit.",
            administrator: "The limit of requests protects the portal's memory; that of uploaded files is ‘files.max_upload’.",
        },
    ),
    (
        "unsatisfiable",
        Explanation {
            status: 416,
            title: "There is no such part of it",
            meaning: "A part of a file was asked for that begins beyond its end.",
            user: "Nothing is left to download, or the file has become shorter: download it anew.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "invalid-fields",
        Explanation {
            status: 422,
            title: "Some fields are not right",
            meaning: "The request can be read, but a value is missing, unknown or out of bounds. Nothing was made.",
            user: "Each entry of ‘errors’ names a field and what would be right.",
            administrator: "Nothing to do.",
        },
    ),
    (
        "too-many-requests",
        Explanation {
            status: 429,
            title: "Too many attempts",
            meaning: "So many came in so short a time that the portal slows down. Nobody is locked out for ever.",
            user: "Wait as long as Retry-After says, then try again.",
            administrator: "Many failed sign-ins are in the audit log with their addresses.",
        },
    ),
    (
        "internal",
        Explanation {
            status: 500,
            title: "A fault in the portal",
            meaning: "Something went wrong inside. Running sessions are not touched by it.",
            user: "Try again; if it stays, give your administrator the request id of the page.",
            administrator: "The log holds the cause beside the same request id.",
        },
    ),
    (
        "unavailable",
        Explanation {
            status: 503,
            title: "Not available right now",
            meaning: "The directory, the database or the scheduler does not answer. Running sessions go on.",
            user: "Try again in a moment.",
            administrator: "‘lyceum check’ says which part is away and how to mend it.",
        },
    ),
    (
        "maintenance",
        Explanation {
            status: 503,
            title: "Nothing starts during maintenance",
            meaning: "An administrator has announced maintenance. What waits keeps its place in the order and starts afterwards.",
            user: "Try again when it is over: the detail says when, and ‘Retry-After’ in how many seconds.",
            administrator: "It is ended under Admin, Maintenance, or with ‘lyceum admin maintenance off’.",
        },
    ),
];
