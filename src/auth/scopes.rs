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
}

use Scope::{AdminAudit, AdminQuotas, AdminSite, AdminUsers, Files, FilesRead, Jobs, Read, Sessions, SessionsConnect};

impl Scope {
    pub const ALL: [Self; 10] =
        [Read, Sessions, SessionsConnect, Jobs, FilesRead, Files, AdminQuotas, AdminUsers, AdminAudit, AdminSite];

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
        }
    }

    /// The sentence that the settings page shows.
    pub fn meaning(self) -> &'static str {
        match self {
            Read => "See what is yours, your files apart: sessions, quota, usage, tokens. Change nothing.",
            Sessions => "Start, change and stop your sessions.",
            SessionsConnect => "Open your running sessions, terminals included.",
            Jobs => "Start, change and stop your jobs.",
            FilesRead => "See and download your files.",
            Files => "See, download, upload, rename and delete your files.",
            AdminQuotas => "See quotas and change them, as far as your role reaches.",
            AdminUsers => {
                "See people and groups and change them, as far as your role reaches. Give no roles, and leave \
                 administrators, operators and managers as they are."
            }
            AdminAudit => "Read the audit log, as an administrator.",
            AdminSite => {
                "Manage profiles, environments, announcements and maintenance, and see the portal's health, as an \
                 administrator."
            }
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
#[error("there is no such scope")]
pub struct UnknownScope;

/// What a route needs of a token that has scopes: one of these. None means that no scope is
/// enough.
#[derive(Debug, PartialEq, Eq)]
pub struct Needs {
    /// To look.
    pub look: &'static [Scope],
    /// To change something.
    pub change: &'static [Scope],
}

/// Looks at whoever shows the token and at nothing else: every token may.
pub const ONESELF: Needs = Needs { look: &Scope::ALL, change: &[] };
/// Open to everybody: no token is asked for.
pub const EVERYBODY: Needs = Needs { look: &Scope::ALL, change: &Scope::ALL };
/// Passwords, tokens, settings: what a token could become more by.
pub const ACCOUNT: Needs = Needs { look: &[Read], change: &[] };
/// Forms, and pages about other people.
pub const UNSCOPED: Needs = Needs { look: &[], change: &[] };
/// Addresses of webhooks are among them, which are secrets.
pub const NOTICES: Needs = Needs { look: &[Read, Jobs], change: &[] };
/// What sessions and jobs are started with.
pub const CATALOGUE: Needs = Needs { look: &[Read, Sessions, Jobs, AdminSite], change: &[AdminSite] };
/// Asks whether something could start, and starts nothing.
pub const ADMISSION: Needs = Needs { look: &[Sessions, Jobs], change: &[Sessions, Jobs] };
pub const SESSIONS: Needs = Needs { look: &[Read, Sessions], change: &[Sessions] };
/// Apps themselves: an upgrade is a GET, and drives a terminal.
pub const APPS: Needs = Needs { look: &[SessionsConnect], change: &[SessionsConnect] };
/// Jobs and what comes of them: sweeps, runs, datasets, models.
pub const JOBS: Needs = Needs { look: &[Read, Jobs], change: &[Jobs] };
/// Asked for in a body, and changes nothing.
pub const CURVES: Needs = Needs { look: &[Read, Jobs], change: &[Read, Jobs] };
/// The machines, and one's own use of them.
pub const CLUSTER: Needs = Needs { look: &[Read], change: &[] };
/// Files hold more than the portal knows, so that reading them is a scope of its own.
pub const FILES: Needs = Needs { look: &[Files, FilesRead], change: &[Files] };
pub const QUOTAS: Needs = Needs { look: &[AdminQuotas], change: &[AdminQuotas] };
pub const PEOPLE: Needs = Needs { look: &[AdminUsers], change: &[AdminUsers] };
pub const AUDIT: Needs = Needs { look: &[AdminAudit], change: &[] };
/// What everybody is shown.
pub const ANNOUNCEMENTS: Needs = Needs { look: &[Read, AdminSite], change: &[AdminSite] };
pub const HEALTH: Needs = Needs { look: &[AdminSite], change: &[] };

impl Needs {
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
            (&["no-such-scope"], ONESELF.of("GET"), false),
            (&[], UNSCOPED.of("POST"), true),
        ] {
            assert_eq!(allow(&have(scopes), needed), allowed, "{scopes:?} for {needed:?}");
        }
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().ok(), Some(scope));
            assert!(allow(&have(&[scope.as_str()]), ONESELF.of("GET")));
        }
        assert!("admin:*".parse::<Scope>().is_err() && "".parse::<Scope>().is_err());
    }
}
