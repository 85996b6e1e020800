//! What people are told: the strip on every page, and the part of the settings about notifications as a
//! person with a mail address and a webhook sees it.

use askama::Template;
use lyceum::{
    db::notifications::Product,
    model::{
        DatasetId, JobId, NotificationId, Role, Session, SessionId, UserId,
        ending::{Cause, Deadline, Notice},
        notification::{Delivery, Event, Message, Notification, NotificationSettings, UnseenJob, Way, Webhook},
        quota,
    },
    notifications::Overview,
    web::views::*,
};

use super::{
    gallery::{NOW, Word, context},
    sessions::*,
};

pub fn told(word: &Word) -> NotificationForm {
    let one = |title: &str, way, state, error: Option<&str>, ago: i64| Notification {
        id: NotificationId::new(),
        user: UserId::new(),
        way,
        message: Message {
            event: Event::Failed,
            title: word(title),
            text: word("It ended with exit code 1."),
            job: Some((JobId::new(), 1)),
            name: word("resnet"),
        },
        state,
        attempts: 1,
        at: NOW.plus_seconds(-ago),
        error: error.map(word),
    };
    let latest = vec![
        one("Job ‘resnet50, lr 0.1’ failed", Way::Mail, Delivery::Sent, None, 240),
        one(
            "Job ‘resnet50, lr 0.1’ failed",
            Way::Webhook,
            Delivery::Waiting,
            Some("The webhook returned status 503."),
            240,
        ),
        one(
            "Job ‘bert’ logged values that are not finite numbers",
            Way::Mail,
            Delivery::Failed,
            Some("The mail server rejected it."),
            7200,
        ),
    ];
    let webhook = Some(Webhook { url: word("https://hooks.example.org/services/T0/B0"), salt: String::new() });
    let wishes =
        NotificationSettings { mail: Some(word("ada@example.org")), webhook, ..NotificationSettings::default() };
    let overview = Overview {
        wishes,
        mail_offered: true,
        hosts: vec![word("hooks.example.org"), word("*.chat.example.org")],
        known_mail: None,
        secret: Some("9be615aec64f0d044b5ad6854ab1d893ec88617fb728d2149dcd3a3428e8c45d".to_owned()),
        latest,
        unseen: Vec::new(),
    };
    NotificationForm::new(overview, Role::Admin, NOW)
}

/// What a strip tells of a job.
fn unseen(word: &Word, how: &str) -> UnseenJob {
    let message = Message {
        event: if how == "finished" { Event::Finished } else { Event::Failed },
        title: word(&format!("Job ‘resnet50, lr 0.1’ {how}")),
        text: word("It ended with exit code 1. It ran for 3 h."),
        job: Some((JobId::new(), 1)),
        name: word("resnet50, lr 0.1"),
    };
    UnseenJob { attempt: SessionId::new(), message, at: NOW }
}

/// The strip of what there is to know, as every page fetches it.
pub fn notices(word: &Word) -> String {
    let mut waited = idle(word);
    waited.name = word("vit-sweep");
    let turn = Notice::Turn { released_at: Some(NOW.plus_seconds(28 * 60)) };
    let near = SentenceContext {
        no_extension: Some(word("A request of another user waits for the resources of this session.")),
        ..context(word).around
    };
    let refused = CardContext { around: near, extend_seconds: None, ..context(word) };
    let ending = |cause, after| {
        let deadline =
            Deadline::new(cause, NOW.plus_seconds(240 - after), after, quota::Source::read(&word("group vision")));
        Notice::Ending { deadline, lead: 300 }
    };
    let (of_time, unused) = (ending(Cause::TimeLimit, 28_800), ending(Cause::Unused, 7200));
    let (gpus, unopened) =
        (ending(Cause::GpusUnused, 3600), ending(Cause::Unopened { turn: NOW.plus_seconds(-1560) }, 1800));
    let line = |session: &Session, notice: &Notice, context: &CardContext| NoticeLine::new(session, notice, context);
    let usual = context(word);
    Notices {
        notices: vec![
            line(&running(word), &of_time, &usual),
            line(&running(word), &of_time, &refused),
            line(&idle(word), &unused, &usual),
            line(&running(word), &gpus, &usual),
            line(&waited, &unopened, &usual),
            line(&waited, &turn, &usual),
            line(&starting(word), &Notice::Turn { released_at: None }, &usual),
            NoticeLine::of_job(&unseen(word, "failed")),
            NoticeLine::of_job(&unseen(word, "finished")),
        ],
        more: 12,
        toasts: vec![
            Toast::of_job(&unseen(word, "failed"), None),
            Toast::of_job(&unseen(word, "finished"), Some(Product::Dataset(DatasetId::new()))),
            Toast::of_session(&out_of_memory(word), NOW),
        ],
        csrf_token: word("5a1f0c"),
    }
    .render()
    .unwrap()
}
