//! A message in the corner of a page: what has just ended in the background, in the words of its notification, and a link
//! to it. Each has a key, by which browsers show it once.

use super::{Sentence, SentenceContext, sentence};
use crate::{
    db::notifications::Product,
    images::Entry,
    model::{
        Session, Timestamp,
        notification::{Event, UnseenJob},
        session::Outcome,
    },
};

/// One message.
#[derive(Clone, Debug)]
pub struct Toast {
    pub key: String,
    /// One line: “Job ‘resnet’ failed”.
    pub title: String,
    pub sentence: Sentence,
    pub href: String,
    /// What the link shows: “Show job”.
    pub link: &'static str,
    /// `good`, `warn` or `bad`.
    pub class: &'static str,
    /// The job whose notification has been seen when the message is closed.
    pub job: Option<String>,
}

impl Toast {
    /// Of what happened to a job, which leads to what it builds or trains where it does.
    #[must_use]
    pub fn of_job(unseen: &UnseenJob, product: Option<Product>) -> Self {
        let message = &unseen.message;
        let job = message.job.map(|(job, _)| job.to_string()).unwrap_or_default();
        let (href, link) = match product {
            Some(Product::Dataset(id)) => (format!("/datasets/{id}"), "Show dataset"),
            Some(Product::Model(id)) => (format!("/models/{id}"), "Show model"),
            None => (format!("/jobs/{job}"), "Show job"),
        };
        Self {
            key: unseen.key(),
            title: message.title.clone(),
            sentence: Sentence::default().text(&message.text),
            href,
            link,
            class: match message.event {
                Event::Finished | Event::Test => "good",
                Event::Stalled | Event::Health => "warn",
                Event::Failed | Event::NotFinite => "bad",
            },
            job: Some(job),
        }
    }

    /// Of a session that ended by itself.
    #[must_use]
    pub fn of_session(session: &Session, now: Timestamp) -> Self {
        Self {
            key: format!("{} ended", session.id),
            title: format!("Session ‘{}’ ended", session.name),
            sentence: sentence(session, &SentenceContext { now, is_own: true, ..SentenceContext::default() }),
            href: format!("/sessions/{}", session.id),
            link: "Show session",
            class: match session.outcome() {
                Some(Outcome::Succeeded) => "good",
                Some(Outcome::TimedOut | Outcome::Cancelled) => "warn",
                _ => "bad",
            },
            job: None,
        }
    }

    /// Of an image whose pull has ended.
    #[must_use]
    pub fn of_image(image: &Entry) -> Option<Self> {
        let at = image.ended_at?;
        let (how, words, class) = match image.failure() {
            None => ("is ready", "Sessions and jobs can use it.".to_owned(), "good"),
            Some(reason) => ("could not be pulled", reason.to_owned(), "bad"),
        };
        Some(Self {
            key: format!("image {} {}", image.name, at.0),
            title: format!("Image ‘{}’ {how}", image.name),
            sentence: Sentence::default().text(words),
            href: "/images".to_owned(),
            link: "Show images",
            class,
            job: None,
        })
    }
}
