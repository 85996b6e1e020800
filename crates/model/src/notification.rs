//! What people are told of their jobs while they look elsewhere: which events there are, in what
//! words each is told, by which way, and when one that could not be delivered is tried again. Pure
//! rules; `notifications` notices and delivers.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{
    EndReason, Job, JobId, NotificationId, Role, SessionId, SessionState, Timestamp, UserId,
    hold::Outcome,
    session::{UnknownWord, words},
    time::human_duration,
};

words!(
    /// The kind of event that a notification reports.
    Event as "NotificationEvent" {
        /// The job ended with exit code 0.
        Finished = "finished",
        /// The job ended in another way, unless its owner cancelled it.
        Failed = "failed",
        /// A curve of the job has a value that is not a finite number.
        NotFinite = "not_finite",
        /// The job runs, but its curves have not grown for some time.
        Stalled = "stalled",
        /// The health report has a new warning or fault, or one that has gone. For administrators.
        Health = "health",
        /// A test that the user requested.
        Test = "test",
    }
);

words!(
    /// The channel of a notification.
    Way as "NotificationWay" {
        Mail = "mail",
        Webhook = "webhook",
    }
);

words!(
    /// The state of a delivery.
    Delivery as "NotificationState" {
        /// Pending, or waiting for a retry.
        Waiting = "waiting",
        /// Being sent.
        Sending = "sending",
        Sent = "sent",
        /// Rejected by the receiver, or given up after too many attempts.
        Failed = "failed",
        /// The portal stopped during the delivery. The notification may have arrived.
        Unknown = "unknown",
        /// Not sent, because there were too many within an hour.
        Dropped = "dropped",
    }
);

/// What everybody can ask to be told.
pub const OFFERED: [Event; 4] = [Event::Finished, Event::Failed, Event::NotFinite, Event::Stalled];

/// Returns what somebody can ask to be told.
#[must_use]
pub fn offered(role: Role) -> Vec<Event> {
    let for_administrators = (role == Role::Admin).then_some(Event::Health);
    OFFERED.into_iter().chain(for_administrators).collect()
}

/// Holds a user's notification settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationSettings {
    pub events: Vec<Event>,
    /// The address for e-mail.
    pub mail: Option<String>,
    pub webhook: Option<Webhook>,
    /// After so long without a new point a job that runs is stalled (seconds).
    pub stalled_after: i64,
}

/// An address that takes notifications by HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    pub url: String,
    /// Public; the secret that signs is made of it and of the portal's key.
    pub salt: String,
}

impl Default for NotificationSettings {
    fn default() -> Self {
        Self { events: OFFERED.to_vec(), mail: None, webhook: None, stalled_after: 900 }
    }
}

impl NotificationSettings {
    /// Whether there is a way besides the browser.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.mail.is_some() || self.webhook.is_some()
    }

    #[must_use]
    pub fn ways(&self) -> Vec<Way> {
        let mail = self.mail.as_ref().map(|_| Way::Mail);
        mail.into_iter().chain(self.webhook.as_ref().map(|_| Way::Webhook)).collect()
    }
}

/// What is told, in words that were chosen when it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub event: Event,
    /// One line.
    pub title: String,
    /// A few sentences.
    pub text: String,
    /// The job and the number of its attempt, where it is about one.
    pub job: Option<(JobId, i64)>,
    pub name: String,
}

/// One message on one way to one person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub id: NotificationId,
    pub user: UserId,
    pub way: Way,
    pub message: Message,
    pub state: Delivery,
    /// How often it was tried.
    pub attempts: i64,
    pub at: Timestamp,
    /// A sentence: why it is not delivered.
    pub error: Option<String>,
}

/// Describes a job event that its owner has not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnseenJob {
    /// The attempt that it happened to.
    pub attempt: SessionId,
    pub message: Message,
    pub at: Timestamp,
}

impl UnseenJob {
    /// What browsers remember, so that nothing is told twice.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{} {}", self.attempt, self.message.event)
    }
}

/// A job that runs, or did a moment ago, and whose owner wants to hear of its curves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedJob {
    pub job: JobId,
    pub name: String,
    pub owner: UserId,
    pub session: SessionId,
    pub attempt: i64,
    pub run: super::RunId,
    pub points: i64,
    /// When points came last.
    pub grown_at: Option<Timestamp>,
    /// It runs, as far as anybody can see.
    pub is_running: bool,
    /// What was noticed of this attempt already.
    pub was_not_finite: bool,
    pub was_stalled: bool,
}

impl WatchedJob {
    /// For how long nothing has come, where that is too long (seconds).
    #[must_use]
    pub fn stalled_for(&self, after: i64, now: Timestamp) -> Option<i64> {
        let quiet = now.seconds_since(self.grown_at?);
        (self.is_running && self.points > 0 && after <= quiet).then_some(quiet)
    }
}

/// What the end of a job's latest attempt is to its owner; `None` where it is no news: it is
/// tried again, or they ended it themselves.
#[must_use]
pub fn end_of(job: &Job) -> Option<Event> {
    match job.outcome() {
        Outcome::Succeeded => Some(Event::Finished),
        Outcome::Failed => Some(Event::Failed),
        Outcome::Cancelled if job.latest.end_reason == Some(EndReason::StoppedByAdmin) => Some(Event::Failed),
        Outcome::Cancelled | Outcome::Open => None,
    }
}

impl Message {
    /// Of a job that has ended.
    #[must_use]
    pub fn ended(job: &Job, event: Event) -> Self {
        let how = if event == Event::Finished { "finished" } else { "failed" };
        // Writing to a string does not fail.
        let mut text = format!("{}.", outcome(job));
        // Of a program that ended by itself it says the same, and behind that the last lines.
        let detail = job.latest.detail.as_deref().and_then(|detail| match job.latest.end_reason {
            Some(EndReason::Exited) => detail.split_once("): ").map(|(_, last)| last),
            _ => Some(detail),
        });
        if let Some(detail) = detail.map(line).filter(|detail| !detail.is_empty()) {
            let mut letters = detail.trim_end_matches('.').chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            let _ = write!(text, " {}.", first.chain(letters).collect::<String>());
        }
        if let (Some(began), Some(ended)) = (job.latest.started_at, job.latest.ended_at) {
            let _ = write!(text, " It ran for {}.", human_duration(ended.seconds_since(began).max(0)));
        }
        Self::of(event, &job.name, (job.id, job.attempt), how, text)
    }

    /// Of a curve with a value that is no number.
    #[must_use]
    pub fn not_finite(watched: &WatchedJob, metric: &str, step: i64) -> Self {
        let text = format!("Its curve {} is not a finite number at step {step}.", line(metric));
        let (job, how) = ((watched.job, watched.attempt), "logged values that are not finite numbers");
        Self::of(Event::NotFinite, &watched.name, job, how, text)
    }

    /// Of a job that goes on without a new point.
    #[must_use]
    pub fn stalled(watched: &WatchedJob, quiet: i64) -> Self {
        let text = format!("It runs, but its curves have not grown for {}.", human_duration(quiet));
        Self::of(Event::Stalled, &watched.name, (watched.job, watched.attempt), "may be stuck", text)
    }

    /// To try out whether somebody is reached.
    #[must_use]
    pub fn test() -> Self {
        Self {
            event: Event::Test,
            title: "Test of your notifications".to_owned(),
            text: "You requested this message under Settings.".to_owned(),
            job: None,
            name: String::new(),
        }
    }

    fn of(event: Event, name: &str, job: (JobId, i64), how: &str, text: String) -> Self {
        let attempt = if job.1 > 1 { format!(" (attempt {})", job.1) } else { String::new() };
        let name = line(name);
        Self { event, title: format!("Job ‘{name}’{attempt} {how}"), text, job: Some(job), name }
    }
}

fn outcome(job: &Job) -> String {
    let latest = &job.latest;
    match (latest.state, latest.end_reason, latest.exit_code, latest.signal) {
        (SessionState::Ended, Some(EndReason::Exited), Some(code), _) => format!("It ended with exit code {code}"),
        (SessionState::Ended, Some(EndReason::Signal), _, Some(signal)) => format!("It was ended by signal {signal}"),
        (SessionState::Ended, Some(EndReason::OutOfMemory), ..) => "It ran out of memory".to_owned(),
        (SessionState::Ended, Some(EndReason::TimeLimit), ..) => "It reached its time limit".to_owned(),
        (SessionState::Ended, Some(EndReason::StoppedByAdmin), ..) => "An administrator cancelled it".to_owned(),
        (SessionState::Ended, Some(EndReason::LaunchFailed), ..) => "It could not be started".to_owned(),
        (SessionState::Ended, Some(reason), ..) => format!("It ended: {}", reason.as_str().replace('_', " ")),
        _ => "It ended".to_owned(),
    }
}

/// Words of a user's program or of its owner, in one line without anything that misleads.
fn line(text: &str) -> String {
    super::line::abridged(text, 300)
}

/// So often one is tried in all.
pub const MAX_ATTEMPTS: i64 = 8;

/// How long after the failure of attempt 1, 2, 3 … the next one follows (seconds); `None`: never.
#[must_use]
pub fn pause_after(attempt: i64) -> Option<i64> {
    let factor = u32::try_from(attempt.max(1) - 1).ok()?;
    (attempt < MAX_ATTEMPTS).then(|| 4_i64.saturating_pow(factor).saturating_mul(15).min(6 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunId;

    fn watched() -> WatchedJob {
        WatchedJob {
            job: JobId::new(),
            name: "res\nnet\u{202e}".to_owned(),
            owner: UserId::new(),
            session: SessionId::new(),
            attempt: 2,
            run: RunId::new(),
            points: 7,
            grown_at: Some(Timestamp(0)),
            is_running: true,
            was_not_finite: false,
            was_stalled: false,
        }
    }

    #[test]
    fn who_is_stuck() {
        let at = |seconds: i64| Timestamp(seconds * 1000);
        assert_eq!(watched().stalled_for(900, at(899)), None);
        assert_eq!(watched().stalled_for(900, at(901)), Some(901));
        for other in [
            WatchedJob { is_running: false, ..watched() },
            WatchedJob { points: 0, ..watched() },
            WatchedJob { grown_at: None, ..watched() },
        ] {
            assert_eq!(other.stalled_for(900, at(5000)), None, "{other:?}");
        }
    }

    #[test]
    fn words_are_one_line() {
        let told = Message::not_finite(&watched(), "loss\r\nBcc: all", 12);
        assert_eq!(told.title, "Job ‘res net’ (attempt 2) logged values that are not finite numbers");
        assert_eq!(told.text, "Its curve loss  Bcc: all is not a finite number at step 12.");
        let stuck = Message::stalled(&watched(), 900);
        assert_eq!(stuck.text, "It runs, but its curves have not grown for 15 min.");
        assert!(!Message::test().title.contains('\n'));
    }

    #[test]
    fn it_is_tried_again_ever_more_rarely() {
        let pauses: Vec<Option<i64>> = (1..=9).map(pause_after).collect();
        let expected = [15, 60, 240, 960, 3840, 15_360, 21_600].map(Some);
        assert_eq!(pauses[..7], expected);
        assert_eq!(pauses[7..], [None, None]);
    }
}
