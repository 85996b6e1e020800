//! `/admin/health`: how well the portal's parts and loops are, each in words and with what to do.

use askama::Template;

use super::{Moment, as_sentence};
use crate::{
    model::{Finding, finding::Level},
    web::page::{Layout, filters},
};

/// The page; it draws itself anew every few seconds.
#[derive(Debug, Template)]
#[template(path = "admin/health.html")]
pub struct HealthPage {
    pub layout: Layout,
    pub worst: Level,
    /// Since when this process runs.
    pub since: Moment,
    pub findings: Vec<Finding>,
    pub loops: Vec<LoopLine>,
}

/// One loop.
#[derive(Clone, Debug)]
pub struct LoopLine {
    pub finding: Finding,
    pub last: Option<Moment>,
    /// Of the last round, `12 ms`.
    pub took: String,
    /// When a round failed last, and how.
    pub error: Option<(Moment, String)>,
}

impl LoopLine {
    /// Says what is wrong, unless the error beside it does, and what to do.
    fn trouble(&self) -> String {
        let Finding { what, fix, .. } = &self.finding;
        if self.error.as_ref().is_some_and(|(_, error)| what.contains(error.as_str())) {
            as_sentence(fix)
        } else {
            format!("{} {}", as_sentence(what), as_sentence(fix))
        }
    }
}

/// The word and the class of a level.
fn badge(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::Ok => ("OK", "running"),
        Level::Note => ("Note", "starting"),
        Level::Warning => ("Warning", "queued"),
        Level::Fault => ("Error", "failed"),
    }
}

impl HealthPage {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "templates hand over references")]
    fn word(level: &Level) -> &'static str {
        badge(*level).0
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "templates hand over references")]
    fn class(level: &Level) -> &'static str {
        badge(*level).1
    }

    /// All of it in a sentence.
    fn summary(&self) -> String {
        let all = || self.findings.iter().chain(self.loops.iter().map(|line| &line.finding));
        let count = |level| all().filter(|finding| finding.level == level).count();
        let told = |count: usize, word: &str| match count {
            0 => None,
            1 => Some(format!("1 {word}")),
            many => Some(format!("{many} {word}s")),
        };
        let parts = [told(count(Level::Fault), "error"), told(count(Level::Warning), "warning")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "No problems found.".to_owned() } else { format!("{}.", parts.join(", ")) }
    }
}
