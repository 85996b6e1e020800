//! What a waiting job waits for besides its quota and the machine's room: the end of others, and
//! the pause before it is tried again. It is decided anew in each round, from rows alone, so
//! nobody has to be awake when it changes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    EndReason, Job, JobId, SessionState, Timestamp,
    quota::{Reason, Rule, Source},
    session::{UnknownWord, words},
};

/// Whether a waiting job may be decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    Free,
    Waits(Reason),
    /// What it waits for will never happen.
    Never(Reason),
}

/// What stands between a waiting attempt and its decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// It is tried again, and not before then.
    pub not_before: Option<Timestamp>,
    pub dependencies: Vec<Dependency>,
    /// Who holds its owner's waiting jobs: everybody's first.
    pub pauses: Vec<Pause>,
    /// It is a task of a sweep that is paused.
    pub sweep_is_paused: bool,
}

/// Waiting jobs go on waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Not of one person alone.
    pub of_everybody: bool,
    /// Who ordered it, why, and when.
    pub by: String,
    pub note: String,
    pub at: Timestamp,
}

impl Pause {
    /// For those who wait.
    #[must_use]
    pub fn sentence(&self) -> String {
        let who = if self.of_everybody {
            format!("{} paused the job queue", self.by)
        } else {
            "The owner paused their pending jobs".to_owned()
        };
        if self.note.is_empty() { format!("{who}.") } else { format!("{who}: {}", self.note) }
    }
}

words!(
    /// How a job must end before a job that depends on it can start.
    Needs {
        /// Success: exit code 0 (Slurm's `afterok`).
        Ok = "ok",
        /// Any end (Slurm's `afterany`).
        Any = "any",
        /// Any end except success (Slurm's `afternotok`).
        Failed = "failed",
    }
);

/// Names a job that has to end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Prerequisite {
    /// One of your own jobs.
    #[schema(value_type = String, format = "uuid")]
    pub job: JobId,
    /// How it has to end. Default: `ok`.
    #[serde(default = "success")]
    pub needs: Needs,
}

fn success() -> Needs {
    Needs::Ok
}

/// How another job stands that has to end first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub job: JobId,
    pub needs: Needs,
    /// What it is called and how far it is; `None` where it was deleted.
    pub found: Option<(String, Outcome)>,
}

/// How far a job is for those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Open,
    Succeeded,
    Failed,
    Cancelled,
}

impl Outcome {
    /// Of a job whose latest attempt stands like this. One that is tried again has not failed yet.
    #[must_use]
    pub fn of(state: SessionState, reason: Option<EndReason>, exit_code: Option<i64>, retries_left: i64) -> Self {
        match (state, reason) {
            (SessionState::Ended, Some(EndReason::Exited)) if exit_code == Some(0) => Self::Succeeded,
            (SessionState::Ended, Some(EndReason::StoppedByOwner | EndReason::StoppedByAdmin)) => Self::Cancelled,
            (SessionState::Ended, reason) if retries_left > 0 && may_go_better(reason, exit_code) => Self::Open,
            (SessionState::Ended, _) => Self::Failed,
            _ => Self::Open,
        }
    }

    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Open => "has not ended",
            Self::Succeeded => "succeeded",
            Self::Failed => "did not succeed",
            Self::Cancelled => "was cancelled",
        }
    }
}

/// Whether an attempt failed in a way that another one may not. Who ran out of time or memory does so again.
#[must_use]
pub fn may_go_better(reason: Option<EndReason>, exit_code: Option<i64>) -> bool {
    use EndReason::{Exited, HostRebooted, NodeFailure, Preempted, Signal};
    match reason {
        Some(Exited) => exit_code != Some(0),
        Some(Signal | NodeFailure | HostRebooted | Preempted) => true,
        _ => false,
    }
}

impl Job {
    /// What others that wait for it have to know.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::of(self.latest.state, self.latest.end_reason, self.latest.exit_code, self.retries_left)
    }

    /// Whether it is to be tried again by itself.
    #[must_use]
    pub fn is_to_be_retried(&self) -> bool {
        let is_over = self.latest.state == SessionState::Ended;
        is_over && self.retries_left > 0 && may_go_better(self.latest.end_reason, self.latest.exit_code)
    }
}

impl Hold {
    #[must_use]
    pub fn of(obstacles: &Obstacles, now: Timestamp) -> Self {
        let mut waits = Self::Free;
        for Dependency { needs, found, .. } in &obstacles.dependencies {
            match found {
                None if *needs == Needs::Any => {}
                None => {
                    return Self::Never(reason(Rule::Dependency, "A job that it depends on was deleted.".to_owned()));
                }
                Some((name, Outcome::Open)) => {
                    let what = match needs {
                        Needs::Ok => "succeed",
                        Needs::Any => "end",
                        Needs::Failed => "fail",
                    };
                    waits = Self::Waits(reason(Rule::Dependency, format!("Waiting for ‘{name}’ to {what}.")));
                }
                Some((name, outcome)) => {
                    let is_met = match needs {
                        Needs::Any => true,
                        Needs::Ok => *outcome == Outcome::Succeeded,
                        Needs::Failed => *outcome != Outcome::Succeeded,
                    };
                    if !is_met {
                        let words = outcome.words();
                        return Self::Never(reason(
                            Rule::Dependency,
                            format!("‘{name}’, which it depends on, {words}."),
                        ));
                    }
                }
            }
        }
        if let (Self::Free, Some(pause)) = (&waits, obstacles.pauses.first()) {
            waits = Self::Waits(reason(Rule::QueuePaused, pause.sentence()));
        }
        if waits == Self::Free && obstacles.sweep_is_paused {
            waits = Self::Waits(reason(Rule::SweepPaused, "Its sweep is paused.".to_owned()));
        }
        if waits == Self::Free && obstacles.not_before.is_some_and(|then| now < then) {
            waits = Self::Waits(reason(
                Rule::RetryDelay,
                "The previous attempt failed. It is retried after the retry delay.".to_owned(),
            ));
        }
        waits
    }
}

/// A reason that is no number's.
fn reason(rule: Rule, hint: String) -> Reason {
    Reason::of_rule(rule, Source::Job, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Code;

    fn told(dependencies: Vec<Dependency>) -> String {
        match Hold::of(&Obstacles { dependencies, ..Obstacles::default() }, Timestamp(0)) {
            Hold::Free => "free".to_owned(),
            Hold::Waits(reason) => reason.hint,
            Hold::Never(reason) => format!("never: {}", reason.hint),
        }
    }

    fn on(needs: Needs, outcome: Option<Outcome>) -> Dependency {
        Dependency { job: JobId::new(), needs, found: outcome.map(|outcome| ("prep".to_owned(), outcome)) }
    }

    #[test]
    fn what_a_job_waits_for() {
        use Outcome::{Cancelled, Failed, Open, Succeeded};
        for (needs, outcome, words) in [
            (Needs::Ok, Some(Open), "Waiting for ‘prep’ to succeed."),
            (Needs::Any, Some(Open), "Waiting for ‘prep’ to end."),
            (Needs::Failed, Some(Open), "Waiting for ‘prep’ to fail."),
            (Needs::Ok, Some(Succeeded), "free"),
            (Needs::Any, Some(Failed), "free"),
            (Needs::Any, None, "free"),
            (Needs::Failed, Some(Failed), "free"),
            (Needs::Failed, Some(Cancelled), "free"),
            (Needs::Ok, Some(Failed), "never: ‘prep’, which it depends on, did not succeed."),
            (Needs::Ok, Some(Cancelled), "never: ‘prep’, which it depends on, was cancelled."),
            (Needs::Failed, Some(Succeeded), "never: ‘prep’, which it depends on, succeeded."),
            (Needs::Ok, None, "never: A job that it depends on was deleted."),
        ] {
            assert_eq!(told(vec![on(needs, outcome)]), words);
        }
        let both = vec![on(Needs::Ok, Some(Open)), on(Needs::Ok, Some(Failed))];
        assert!(told(both).starts_with("never"), "one that failed is the end of it");
        assert_eq!(told(Vec::new()), "free");
    }

    #[test]
    fn not_before_a_moment() {
        let obstacles = Obstacles { not_before: Some(Timestamp(5000)), ..Obstacles::default() };
        assert!(
            matches!(Hold::of(&obstacles, Timestamp(4999)), Hold::Waits(reason) if reason.code == Code::Rule(Rule::RetryDelay))
        );
        assert_eq!(Hold::of(&obstacles, Timestamp(5000)), Hold::Free);
    }

    #[test]
    fn paused_by_somebody() {
        let pause = |of_everybody, note: &str| Pause {
            of_everybody,
            by: "root".to_owned(),
            note: note.to_owned(),
            at: Timestamp(0),
        };
        let told = |pauses, sweep_is_paused| {
            let obstacles = Obstacles { pauses, sweep_is_paused, ..Obstacles::default() };
            match Hold::of(&obstacles, Timestamp(0)) {
                Hold::Waits(reason) => reason.hint,
                other => format!("{other:?}"),
            }
        };
        let own = "The owner paused their pending jobs.";
        assert_eq!(told(vec![pause(false, "")], true), own);
        let all = "root paused the job queue: a new disk";
        assert_eq!(told(vec![pause(true, "a new disk"), pause(false, "")], false), all);
        assert_eq!(told(Vec::new(), true), "Its sweep is paused.");
    }

    #[test]
    fn how_far_a_job_is() {
        use EndReason::{Exited, NodeFailure, OutOfMemory, Signal, StoppedByOwner, TimeLimit};
        for (reason, code, retries, outcome) in [
            (Exited, Some(0), 1, Outcome::Succeeded),
            (Exited, Some(1), 1, Outcome::Open),
            (Exited, Some(1), 0, Outcome::Failed),
            (Signal, None, 2, Outcome::Open),
            (NodeFailure, None, 1, Outcome::Open),
            (TimeLimit, None, 1, Outcome::Failed),
            (OutOfMemory, None, 1, Outcome::Failed),
            (StoppedByOwner, None, 1, Outcome::Cancelled),
        ] {
            assert_eq!(Outcome::of(SessionState::Ended, Some(reason), code, retries), outcome, "{reason}");
        }
        assert_eq!(Outcome::of(SessionState::Running, None, None, 0), Outcome::Open);
    }
}
