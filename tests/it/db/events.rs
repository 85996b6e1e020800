//! Events in one order: entries of the audit log and new states, written with what happened or not at all; and webhooks,
//! whose progress is stored unless they have become something else meanwhile.

use lyceum::{
    db::{
        sessions::Ending,
        webhooks::{Progress, Webhook},
    },
    model::{EndReason, Timestamp, WebhookId, event::PortalEvent},
};

use super::{BY, NOTED, START, add_user, admitted, begun, exited, new_attempt, on_both, running};

pub fn webhook(name: &str) -> Webhook {
    Webhook {
        id: WebhookId::new(),
        url: format!("https://hooks.example.org/{name}"),
        types: vec!["job.*".to_owned(), "quota.change".to_owned()],
        salt: "salt".to_owned(),
        active: true,
        created_by: "chief".to_owned(),
        created_at: START,
        changed_at: START,
        progress: Progress::default(),
    }
}

fn kinds(events: &[PortalEvent]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

#[tokio::test]
async fn what_happens_is_in_one_order() {
    on_both(async |house| {
        let db = &house.db;
        assert_eq!((db.last_event().await.unwrap(), db.events_after(0, 9).await.unwrap()), (0, Vec::new()));
        let ada = add_user(db, "ada").await;
        let first = running(db, ada).await;
        let attempt = new_attempt(ada, "net", None);
        let job = begun(db, &attempt).await.job;
        let ending = Ending { exit_code: Some(3), ..exited(START) };
        assert!(db.end_session(attempt.id, &ending).await.unwrap());
        assert!(!db.end_session(attempt.id, &ending).await.unwrap(), "it has ended");
        let events = db.events_after(0, 99).await.unwrap();
        let numbers: Vec<i64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (1..=i64::try_from(events.len()).unwrap()).collect::<Vec<_>>());
        let told = kinds(&events);
        let states = [
            "session.queued",
            "session.start",
            "session.starting",
            "session.running",
            "job.queued",
            "job.submit",
            "job.ended",
        ];
        let found: Vec<&str> = told.iter().copied().filter(|kind| states.contains(kind)).collect();
        assert_eq!(found, states, "{told:?}");
        let audit = db.audit_after(0, 99).await.unwrap();
        let audited = events.iter().filter(|event| event.owner.is_none());
        let pairs = audited
            .zip(&audit)
            .map(|(event, row)| ((event.kind.as_str(), &event.subject), (row.action.as_str(), &row.subject)));
        assert!(pairs.clone().count() == audit.len() && pairs.into_iter().all(|(event, row)| event == row));

        let ended = events.last().unwrap();
        assert_eq!(
            (ended.job, ended.session, ended.subject.as_str()),
            (Some(job), Some(attempt.id), job.to_string().as_str())
        );
        assert_eq!(
            (ended.owner.as_deref(), ended.end_reason, ended.exit_code),
            (Some("ada"), Some(EndReason::Exited), Some(3))
        );
        let begun = events.iter().find(|event| event.kind == "session.running").unwrap();
        assert_eq!((begun.session, begun.job, begun.end_reason), (Some(first), None, None));
        assert_eq!(kinds(&db.events_after(ended.number - 1, 9).await.unwrap()), ["job.ended"]);
        assert_eq!(db.last_event().await.unwrap(), ended.number);

        // The last one stays, however old: the numbers go on from it.
        let later = Timestamp(i64::MAX);
        assert_eq!(db.forget_events(START, 99).await.unwrap(), 0);
        assert_eq!(db.forget_events(later, 2).await.unwrap(), 2);
        assert!(db.forget_events(later, 99).await.unwrap() > 2);
        assert_eq!(kinds(&db.events_after(0, 9).await.unwrap()), ["job.ended"]);
        admitted(db, ada).await;
        assert_eq!(db.events_after(ended.number, 1).await.unwrap()[0].number, ended.number + 1);
    })
    .await;
}

#[tokio::test]
async fn webhooks_are_added_changed_and_removed() {
    on_both(async |house| {
        let db = &house.db;
        add_user(db, "ada").await;
        let (one, two) = (webhook("one"), webhook("two"));
        assert!(db.add_webhook(&one, 2, &NOTED).await.unwrap());
        assert!(db.add_webhook(&two, 2, &NOTED).await.unwrap());
        assert!(!db.add_webhook(&webhook("three"), 2, &NOTED).await.unwrap(), "there are as many as there may be");
        let mut hook = db.webhooks().await.unwrap().remove(0);
        let begin = hook.progress.position;
        assert!(begin > 0, "what happened before is not for it");
        assert_eq!(hook, Webhook { progress: Progress { position: begin, ..Progress::default() }, ..one });

        // How far it has got, until an administrator changes it.
        hook.progress = Progress {
            position: begin + 1,
            attempts: 2,
            due_at: Some(START.plus_seconds(60)),
            delivered_at: Some(START),
            refused: 3,
            error: Some("away".to_owned()),
        };
        assert!(db.settle_webhook(&hook).await.unwrap());
        assert_eq!(db.webhooks().await.unwrap()[0], hook);
        let mut changed = Webhook { active: false, changed_at: START.plus_seconds(1), ..hook.clone() };
        assert!(db.change_webhook(&changed, &NOTED).await.unwrap());
        assert!(!db.settle_webhook(&hook).await.unwrap(), "a delivery to what it was");
        assert!(!db.settle_webhook(&changed).await.unwrap(), "nothing is delivered to one that is not active");
        let found = db.webhooks().await.unwrap().remove(0);
        changed.progress = Progress { attempts: 0, due_at: None, error: None, ..hook.progress };
        assert_eq!(found, changed, "it begins anew");
        // What happened while it was not active is not for it.
        db.add_audit(START, "x", "sign_in", "x", "").await.unwrap();
        let last = db.last_event().await.unwrap();
        let active = Webhook { active: true, changed_at: START.plus_seconds(2), ..found };
        assert!(db.change_webhook(&active, &NOTED).await.unwrap());
        assert_eq!(db.webhooks().await.unwrap()[0].progress.position, last);

        assert!(db.remove_webhook(two.id, &BY.did("webhook.remove", "two", "")).await.unwrap());
        assert!(!db.remove_webhook(two.id, &NOTED).await.unwrap());
        assert!(!db.change_webhook(&two, &NOTED).await.unwrap());
        assert_eq!(db.webhooks().await.unwrap().len(), 1);
    })
    .await;
}
