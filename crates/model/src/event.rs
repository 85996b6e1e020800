//! What happens on the portal, as collectors and webhooks read it: entries of the audit log, and the states that sessions
//! and attempts of jobs enter, in one order. Types of events are names with a dot, and a pattern selects some of them.

use serde::Serialize;

use super::{EndReason, JobId, SessionId, SessionState, Timestamp};

/// An event of the portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PortalEvent {
    /// 1, 2, 3 … in the order of the events.
    pub number: i64,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// An action of the audit log, such as `quota.change`; or `session.` or `job.` and a new state, such as `job.ended`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Who acted, as in the audit log; empty for a new state.
    pub actor: String,
    /// The object of the action: a user's name, or an id. For a new state: the id of the job or session.
    pub subject: String,
    /// Details, in words.
    pub detail: String,
    /// The owner of the session or job that has a new state; otherwise null.
    pub owner: Option<String>,
    /// The session that has a new state, also if it is an attempt of a job; otherwise null.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub session: Option<SessionId>,
    /// The job that has a new state; otherwise null.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// How it ended; null unless the new state is `ended`.
    #[schema(value_type = Option<EndReason>)]
    pub end_reason: Option<EndReason>,
    /// The exit code of the program that ended; null if a signal ended it.
    pub exit_code: Option<i64>,
}

/// The type of the event that an administrator sends to try a webhook.
pub const TEST: &str = "webhook.test";

impl PortalEvent {
    /// The event that an administrator sends to try a webhook. It is in no list, and has the number 0.
    pub fn test(at: Timestamp, actor: &str) -> Self {
        Self {
            number: 0,
            at,
            kind: TEST.to_owned(),
            actor: actor.to_owned(),
            subject: String::new(),
            detail: "An administrator tests this webhook.".to_owned(),
            owner: None,
            session: None,
            job: None,
            end_reason: None,
            exit_code: None,
        }
    }
}

/// The types of new states: `session.queued`, `job.ended` and so on.
pub fn types_of_states() -> impl Iterator<Item = String> {
    let states = SessionState::ALL.iter();
    states.flat_map(|state| ["session", "job"].map(|whose| format!("{whose}.{}", state.as_str())))
}

/// Whether a pattern selects a type: `*` selects all, `job.*` those that begin with `job.`, any other pattern the type of
/// the same name.
pub fn selects(pattern: &str, kind: &str) -> bool {
    let begins = |family: &str| kind.strip_prefix(family).is_some_and(|rest| rest.starts_with('.'));
    pattern == "*" || pattern == kind || pattern.strip_suffix(".*").is_some_and(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_types() {
        for (pattern, kind, is_selected) in [
            ("*", "sign_in", true),
            ("job.*", "job.ended", true),
            ("job.*", "job", false),
            ("job.*", "jobs.ended", false),
            ("job.ended", "job.ended", true),
            ("job.ended", "job.ended.twice", false),
            ("job", "job.ended", false),
            ("*.ended", "job.ended", false),
        ] {
            assert_eq!(selects(pattern, kind), is_selected, "{pattern} {kind}");
        }
        assert!(types_of_states().any(|kind| kind == "job.ended") && types_of_states().count() == 10);
    }
}
