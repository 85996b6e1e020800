//! The directory, step by step: each server's name, connection and trust, the account that
//! searches, people and groups. What each step tries is `auth::ldap::probe`'s.

use super::{Facts, Finding, Level};
use crate::auth::ldap::probe;

/// Nothing where passwords are our own.
pub async fn directory(facts: &Facts) -> Vec<Finding> {
    let Some(settings) = &facts.directory else { return Vec::new() };
    let steps = probe::steps(settings, facts.clock.now()).await;
    let finding = |step: probe::Step| match step.outcome {
        Ok(what) => {
            let level = if step.is_note { Level::Note } else { Level::Ok };
            Finding::new("directory", level, format!("{}: {what}", step.about))
        }
        Err(trouble) => {
            let level = if trouble.fatal { Level::Fault } else { Level::Warning };
            Finding::new("directory", level, format!("{}: {}", step.about, trouble.what)).fix(trouble.fix)
        }
    };
    steps.into_iter().map(finding).collect()
}
