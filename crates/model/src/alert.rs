//! Alerts: which findings of the health report administrators are told of, and when. What is unwell has to stay so for
//! two minutes, and what is well again for five, so that nothing is told of a restart or of a disk at the edge of its
//! limit. Pure rules; the database keeps which alerts are open.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
};

use serde::{Deserialize, Serialize};

use super::{
    Finding, Timestamp,
    finding::Level,
    notification::{Event, Message},
    time::human_duration,
};

/// How long something must be unwell before it is told, and well before that is told (seconds).
const RAISE_AFTER: i64 = 120;
const CLEAR_AFTER: i64 = 300;

/// An alert that administrators were told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The name of the finding.
    pub name: String,
    pub level: Level,
    pub since: Timestamp,
}

/// What is to be written down and told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertNews {
    /// Something became unwell, or worse than was told.
    Raised {
        alert: Alert,
        what: String,
        fix: String,
    },
    Cleared(Alert),
}

/// What the looks before saw, as far as nothing was told of it.
#[derive(Clone, Debug, Default)]
pub struct AlertMemory {
    /// Since when these have been at least this bad.
    unwell: HashMap<(String, Level), Timestamp>,
    /// Since when open alerts have been well.
    well: HashMap<String, Timestamp>,
}

impl AlertMemory {
    /// Decides what is news, from the alerts that are open and the findings of now.
    pub fn decide(&mut self, open: &[Alert], findings: &[Finding], now: Timestamp) -> Vec<AlertNews> {
        let told = |name: &str| open.iter().find(|alert| alert.name == name);
        let mut news = Vec::new();
        let unwell = std::mem::take(&mut self.unwell);
        let mut worst = BTreeMap::<&str, &Finding>::new();
        for finding in findings.iter().filter(|finding| finding.level >= Level::Warning) {
            let known = worst.entry(&finding.name).or_insert(finding);
            if known.level < finding.level {
                *known = finding;
            }
        }
        for finding in worst.into_values() {
            let name = finding.name.to_string();
            let begun = |level| unwell.get(&(name.clone(), level)).copied().unwrap_or(now);
            // What is a fault is a warning too: it need not begin anew when it gets better.
            for level in [Level::Warning, Level::Fault].into_iter().filter(|level| *level <= finding.level) {
                let since = begun(level);
                self.unwell.insert((name.clone(), level), since);
                let is_known = told(&name).is_some_and(|alert| alert.level >= level);
                if level == finding.level && !is_known && RAISE_AFTER <= now.seconds_since(since) {
                    let alert = Alert { name: name.clone(), level, since };
                    news.push(AlertNews::Raised { alert, what: finding.what.clone(), fix: finding.fix.clone() });
                }
            }
        }
        let is_unwell = |name: &str| self.unwell.contains_key(&(name.to_owned(), Level::Warning));
        self.well.retain(|name, _| told(name).is_some() && !is_unwell(name));
        for alert in open.iter().filter(|alert| !is_unwell(&alert.name)) {
            let since = *self.well.entry(alert.name.clone()).or_insert(now);
            if CLEAR_AFTER <= now.seconds_since(since) {
                news.push(AlertNews::Cleared(alert.clone()));
            }
        }
        news
    }
}

impl AlertNews {
    /// Says it to an administrator.
    #[must_use]
    pub fn message(&self, now: Timestamp) -> Message {
        let (title, text) = match self {
            Self::Raised { alert, what, fix } => {
                let (_, word) = alert.level.sign();
                let mut letters = what.trim_end_matches('.').chars();
                let first = letters.next().into_iter().flat_map(char::to_uppercase);
                let mut text = format!("{}.", first.chain(letters).collect::<String>());
                if !fix.is_empty() {
                    // Writing to a string does not fail.
                    let _ = write!(text, " What to do: {fix}");
                }
                (format!("Health: {} ({word})", alert.name), text)
            }
            Self::Cleared(alert) => {
                let lasted = human_duration(now.seconds_since(alert.since).max(0));
                (format!("Health: {} is well again", alert.name), format!("It was reported {lasted} ago."))
            }
        };
        Message { event: Event::Health, title, text, job: None, name: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_790_000_000_000);

    fn finding(level: Level) -> Finding {
        Finding::new("free space", level, "only 3 GiB are free").fix("remove old backups")
    }

    /// The looks of every minute, and what each told: `+` and the level, `-`, or nothing.
    fn told(levels: &[Option<Level>]) -> Vec<String> {
        let (mut memory, mut open) = (AlertMemory::default(), Vec::<Alert>::new());
        let mut all = Vec::new();
        for (minute, level) in levels.iter().enumerate() {
            let now = START.plus_seconds(60 * i64::try_from(minute).unwrap());
            let findings: Vec<Finding> = level.iter().map(|level| finding(*level)).collect();
            for news in memory.decide(&open, &findings, now) {
                open.clear();
                match news {
                    AlertNews::Raised { alert, .. } => {
                        all.push(format!("{minute}+{}", alert.level.sign().1));
                        open.push(alert);
                    }
                    AlertNews::Cleared(_) => all.push(format!("{minute}-")),
                }
            }
        }
        all
    }

    #[test]
    fn what_stays_is_told_once_and_its_end_once() {
        let (well, warning, fault) = (None, Some(Level::Warning), Some(Level::Fault));
        assert_eq!(told(&[warning; 9]), ["2+warning"]);
        // A moment is no news, and neither is a note.
        assert!(told(&[well, warning, warning, well, warning, warning, well]).is_empty());
        assert!(told(&[Some(Level::Note); 9]).is_empty());
        // Worse is told, better is not; the end is told after five minutes without it.
        let mut levels = vec![warning, warning, warning, fault, fault, fault, warning, warning, warning];
        levels.extend([well; 4]);
        levels.push(warning);
        levels.extend([well; 7]);
        assert_eq!(told(&levels), ["2+warning", "5+fault", "19-"]);
        assert_eq!(told(&[fault; 4]), ["2+fault"]);
    }

    #[test]
    fn a_message_says_what_to_do() {
        let alert = Alert { name: "free space".to_owned(), level: Level::Fault, since: START };
        let raised = AlertNews::Raised { alert: alert.clone(), what: "full.".to_owned(), fix: "df -h".to_owned() };
        let message = raised.message(START);
        assert_eq!(
            (message.title.as_str(), message.text.as_str()),
            ("Health: free space (fault)", "Full. What to do: df -h")
        );
        let cleared = AlertNews::Cleared(alert).message(START.plus_seconds(7200));
        assert_eq!(
            (cleared.title.as_str(), cleared.text.as_str()),
            ("Health: free space is well again", "It was reported 2 h ago.")
        );
    }
}
