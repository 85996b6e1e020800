//! Alerts: which warnings and faults of the health report are sent to administrators, and when. A warning or fault has to
//! last two minutes, and has to be gone for five before its end is sent, so that a restart, or a disk near its limit,
//! sends nothing. Pure rules; the database stores which alerts are open.

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

/// How long a warning or fault must last before it is sent, and be gone before its end is sent (seconds).
const RAISE_AFTER: i64 = 120;
const CLEAR_AFTER: i64 = 300;

/// An alert that was sent to administrators and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The name of the finding.
    pub name: String,
    pub level: Level,
    pub since: Timestamp,
}

/// A change of an alert, which is stored and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertNews {
    /// A new warning or fault, or a warning that became a fault.
    Raised {
        alert: Alert,
        what: String,
        fix: String,
    },
    Cleared(Alert),
}

/// What earlier checks found, as far as nothing has been sent.
#[derive(Clone, Debug, Default)]
pub struct AlertMemory {
    /// Since when these have had at least this level.
    failing: HashMap<(String, Level), Timestamp>,
    /// Since when the findings of open alerts have been OK.
    recovered: HashMap<String, Timestamp>,
}

impl AlertMemory {
    /// Returns what changed, from the open alerts and the current findings.
    pub fn decide(&mut self, open: &[Alert], findings: &[Finding], now: Timestamp) -> Vec<AlertNews> {
        let open_alert = |name: &str| open.iter().find(|alert| alert.name == name);
        let mut news = Vec::new();
        let failing = std::mem::take(&mut self.failing);
        let mut worst = BTreeMap::<&str, &Finding>::new();
        for finding in findings.iter().filter(|finding| finding.level >= Level::Warning) {
            let known = worst.entry(&finding.name).or_insert(finding);
            if known.level < finding.level {
                *known = finding;
            }
        }
        for finding in worst.into_values() {
            let name = finding.name.to_string();
            let begun = |level| failing.get(&(name.clone(), level)).copied().unwrap_or(now);
            // A fault counts as a warning too, so that its time goes on when it becomes one.
            for level in [Level::Warning, Level::Fault].into_iter().filter(|level| *level <= finding.level) {
                let since = begun(level);
                self.failing.insert((name.clone(), level), since);
                let is_known = open_alert(&name).is_some_and(|alert| alert.level >= level);
                if level == finding.level && !is_known && RAISE_AFTER <= now.seconds_since(since) {
                    let alert = Alert { name: name.clone(), level, since };
                    news.push(AlertNews::Raised { alert, what: finding.what.clone(), fix: finding.fix.clone() });
                }
            }
        }
        let is_failing = |name: &str| self.failing.contains_key(&(name.to_owned(), Level::Warning));
        self.recovered.retain(|name, _| open_alert(name).is_some() && !is_failing(name));
        for alert in open.iter().filter(|alert| !is_failing(&alert.name)) {
            let since = *self.recovered.entry(alert.name.clone()).or_insert(now);
            if CLEAR_AFTER <= now.seconds_since(since) {
                news.push(AlertNews::Cleared(alert.clone()));
            }
        }
        news
    }
}

impl AlertNews {
    /// Returns the message to an administrator.
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
                (format!("Health: {} is OK again", alert.name), format!("It was reported {lasted} ago."))
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

    /// The level at each minute, and what was sent: the minute with `+` and the level, or `-`.
    fn sent(levels: &[Option<Level>]) -> Vec<String> {
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
    fn a_lasting_fault_is_sent_once_and_so_is_its_end() {
        let (ok, warning, fault) = (None, Some(Level::Warning), Some(Level::Fault));
        assert_eq!(sent(&[warning; 9]), ["2+warning"]);
        // A short warning sends nothing, and neither does a note.
        assert!(sent(&[ok, warning, warning, ok, warning, warning, ok]).is_empty());
        assert!(sent(&[Some(Level::Note); 9]).is_empty());
        // A higher level is sent, a lower one is not; the end is sent after five minutes without it.
        let mut levels = vec![warning, warning, warning, fault, fault, fault, warning, warning, warning];
        levels.extend([ok; 4]);
        levels.push(warning);
        levels.extend([ok; 7]);
        assert_eq!(sent(&levels), ["2+warning", "5+fault", "19-"]);
        assert_eq!(sent(&[fault; 4]), ["2+fault"]);
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
            ("Health: free space is OK again", "It was reported 2 h ago.")
        );
    }
}
