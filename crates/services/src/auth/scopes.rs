//! What a token may do: the scopes there are, and what each kind of route needs. A token
//! without scopes may do all that its owner may; scopes only ever take away. Which route is of
//! which kind is said where the route is made; one that says nothing is closed to all scopes.

use std::str::FromStr;

/// A part of what its owner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Read,
    Sessions,
    SessionsConnect,
    Jobs,
    FilesRead,
    Files,
    AdminQuotas,
    AdminUsers,
    AdminAudit,
    AdminSite,
    Metrics,
    TokenRotate,
}

use Scope::{
    AdminAudit, AdminQuotas, AdminSite, AdminUsers, Files, FilesRead, Jobs, Metrics, Read, Sessions, SessionsConnect,
    TokenRotate,
};

impl Scope {
    pub const ALL: [Self; 12] = [
        Read,
        Sessions,
        SessionsConnect,
        Jobs,
        FilesRead,
        Files,
        AdminQuotas,
        AdminUsers,
        AdminAudit,
        AdminSite,
        Metrics,
        TokenRotate,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Read => "read",
            Sessions => "sessions",
            SessionsConnect => "sessions:connect",
            Jobs => "jobs",
            FilesRead => "files:read",
            Files => "files",
            AdminQuotas => "admin:quotas",
            AdminUsers => "admin:users",
            AdminAudit => "admin:audit",
            AdminSite => "admin:site",
            Metrics => "metrics",
            TokenRotate => "token:rotate",
        }
    }

    /// The sentence that the settings page shows.
    pub fn meaning(self) -> &'static str {
        match self {
            Read => "Read your sessions, quota, usage and tokens, but not your files. No changes.",
            Sessions => "Start, change and stop your sessions.",
            SessionsConnect => "Open your running sessions, including terminals.",
            Jobs => "Start, change and stop your jobs.",
            FilesRead => "List and download your files.",
            Files => "List, download, upload, rename and delete your files.",
            AdminQuotas => "Read and change quotas, as far as your role allows.",
            AdminUsers => {
                "Read and change users and groups, as far as your role allows. Roles, administrators, operators and \
                 managers cannot be changed."
            }
            AdminAudit => "Read the audit log, as an administrator.",
            AdminSite => {
                "Manage profiles, environments, announcements and maintenance, and read the portal's health, as an \
                 administrator."
            }
            Metrics => "Read /metrics for Prometheus, as an administrator.",
            TokenRotate => "Rotate this token: replace its secret by one that lives as long.",
        }
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(UnknownScope)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown scope")]
pub struct UnknownScope;

/// What a route needs of a token that has scopes: one of these. None means that no scope is
/// enough.
#[derive(Debug, PartialEq, Eq)]
pub struct RequiredScopes {
    /// To look.
    pub look: &'static [Scope],
    /// To change something.
    pub change: &'static [Scope],
}

/// Looks at whoever shows the token and at nothing else: every token may.
pub const OWN_ACCOUNT: RequiredScopes = RequiredScopes { look: &Scope::ALL, change: &[] };
/// Open to everybody: no token is asked for.
pub const PUBLIC: RequiredScopes = RequiredScopes { look: &Scope::ALL, change: &Scope::ALL };
/// Passwords, tokens, settings: what a token could become more by.
pub const ACCOUNT: RequiredScopes = RequiredScopes { look: &[Read], change: &[] };
/// Replaces a secret: that of the token itself, where it has scopes.
pub const ROTATION: RequiredScopes = RequiredScopes { look: &[], change: &[TokenRotate] };
/// Forms, and pages about other people.
pub const UNSCOPED: RequiredScopes = RequiredScopes { look: &[], change: &[] };
/// Addresses of webhooks are among them, which are secrets.
pub const NOTICES: RequiredScopes = RequiredScopes { look: &[Read, Jobs], change: &[] };
/// What sessions and jobs are started with.
pub const CATALOGUE: RequiredScopes = RequiredScopes { look: &[Read, Sessions, Jobs, AdminSite], change: &[AdminSite] };
/// Saved requests. Those of jobs contain scripts that their owner runs later, so that no scope is for changes.
pub const PRESETS: RequiredScopes = RequiredScopes { look: &[Read, Sessions, Jobs], change: &[] };
/// Asks whether something could start, and starts nothing.
pub const ADMISSION: RequiredScopes = RequiredScopes { look: &[Sessions, Jobs], change: &[Sessions, Jobs] };
pub const SESSIONS: RequiredScopes = RequiredScopes { look: &[Read, Sessions], change: &[Sessions] };
/// Apps themselves: an upgrade is a GET, and drives a terminal.
pub const APPS: RequiredScopes = RequiredScopes { look: &[SessionsConnect], change: &[SessionsConnect] };
/// Jobs and what comes of them: sweeps, runs, datasets, models.
pub const JOBS: RequiredScopes = RequiredScopes { look: &[Read, Jobs], change: &[Jobs] };
/// Asked for in a body, and changes nothing.
pub const CURVES: RequiredScopes = RequiredScopes { look: &[Read, Jobs], change: &[Read, Jobs] };
/// The machines, and one's own use of them.
pub const CLUSTER: RequiredScopes = RequiredScopes { look: &[Read], change: &[] };
/// Files hold more than the portal knows, so that reading them is a scope of its own.
pub const FILES: RequiredScopes = RequiredScopes { look: &[Files, FilesRead], change: &[Files] };
pub const QUOTAS: RequiredScopes = RequiredScopes { look: &[AdminQuotas], change: &[AdminQuotas] };
pub const PEOPLE: RequiredScopes = RequiredScopes { look: &[AdminUsers], change: &[AdminUsers] };
pub const AUDIT: RequiredScopes = RequiredScopes { look: &[AdminAudit], change: &[] };
/// What everybody is shown.
pub const ANNOUNCEMENTS: RequiredScopes = RequiredScopes { look: &[Read, AdminSite], change: &[AdminSite] };
/// Numbers for Prometheus.
pub const METRICS: RequiredScopes = RequiredScopes { look: &[Metrics], change: &[] };
pub const HEALTH: RequiredScopes = RequiredScopes { look: &[AdminSite], change: &[] };

impl RequiredScopes {
    /// The scopes of which a request needs one.
    pub fn of(&self, method: &str) -> &'static [Scope] {
        if matches!(method, "GET" | "HEAD") { self.look } else { self.change }
    }
}

/// Whether a token with these scopes has one that is needed. Roles are judged separately: a
/// scope never adds a right.
pub fn allow(scopes: &[String], needed: &[Scope]) -> bool {
    scopes.is_empty() || scopes.iter().any(|have| needed.iter().any(|scope| scope.as_str() == have))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_one_of_several() {
        let have = |scopes: &[&str]| scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>();
        for (scopes, needed, allowed) in [
            (&["read"][..], SESSIONS.of("GET"), true),
            (&["read"], SESSIONS.of("HEAD"), true),
            (&["read"], SESSIONS.of("POST"), false),
            (&["read", "sessions"], SESSIONS.of("DELETE"), true),
            (&["sessions"], APPS.of("GET"), false),
            (&["sessions:connect"], SESSIONS.of("GET"), false),
            (&["files:read"], FILES.of("PATCH"), false),
            (&["read"], UNSCOPED.of("GET"), false),
            (&["no-such-scope"], OWN_ACCOUNT.of("GET"), false),
            (&[], UNSCOPED.of("POST"), true),
        ] {
            assert_eq!(allow(&have(scopes), needed), allowed, "{scopes:?} for {needed:?}");
        }
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().ok(), Some(scope));
            assert!(allow(&have(&[scope.as_str()]), OWN_ACCOUNT.of("GET")));
        }
        assert!("admin:*".parse::<Scope>().is_err() && "".parse::<Scope>().is_err());
    }
}
