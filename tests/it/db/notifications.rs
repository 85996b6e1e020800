//! Notifications on both databases: what people wish, what is noticed once, what is delivered, by
//! one alone, and what is forgotten.

use lyceum::{
    db::notifications::Product,
    model::{
        JobId, SessionState, Timestamp, UserId,
        alert::{Alert, AlertNews},
        finding::Level,
        notification::{Delivery, Event, Message, NotificationSettings, Way},
        run::{ReadProgress, UnreadAttempt},
    },
};

use super::{NOTED, START, add_user, begun, datasets::dataset, ended_job, exited, models::model, new_attempt, on_both};

fn wishes() -> NotificationSettings {
    NotificationSettings { mail: Some("ada@example.org".to_owned()), ..NotificationSettings::default() }
}

fn message() -> Message {
    Message {
        event: Event::Failed,
        title: "A title".to_owned(),
        text: "A text.".to_owned(),
        job: None,
        name: String::new(),
    }
}

/// One of each kind of row.
pub async fn told(db: &lyceum::db::Db, user: UserId) {
    db.set_notification_wishes(user, &wishes(), &NOTED).await.unwrap();
    let alert = Alert { name: "backup".to_owned(), level: Level::Warning, since: START };
    let news = AlertNews::Raised { alert, what: "the last backup was made 9 d ago".to_owned(), fix: String::new() };
    assert!(db.settle_alert(&news, &[], &news.message(START), START).await.unwrap());
    let session = lyceum::model::SessionId::new();
    assert!(db.notice_event(session, Event::Failed, (user, &[Way::Mail], &message()), START).await.unwrap());
}

#[tokio::test]
async fn what_happened_is_noticed_once() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "a").await, add_user(db, "b").await);
        assert_eq!(db.notification_wishes(ada).await.unwrap(), None);
        assert_eq!(db.mail_of(ada).await.unwrap(), None);
        db.set_notification_wishes(ada, &wishes(), &NOTED).await.unwrap();
        assert_eq!(db.notification_wishes(ada).await.unwrap(), Some(wishes()));
        let other = NotificationSettings { stalled_after: 60, ..wishes() };
        db.set_notification_wishes(ada, &other, &NOTED).await.unwrap();
        assert_eq!(db.notification_wishes(ada).await.unwrap(), Some(other));

        let new = new_attempt(ada, "train", None);
        let attempt = begun(db, &new).await;
        assert_eq!(db.unnoticed_ends(START, 9).await.unwrap(), [], "it runs");
        assert!(db.end_session(new.id, &exited(START.plus_seconds(5))).await.unwrap());
        let found = db.unnoticed_ends(START, 9).await.unwrap();
        assert_eq!(found.iter().map(|job| job.id).collect::<Vec<_>>(), [attempt.job]);
        assert_eq!(found[0].latest.state, SessionState::Ended);
        assert_eq!(db.unnoticed_ends(START.plus_seconds(6), 9).await.unwrap(), [], "that is too long ago");
        ended_job(db, bob, "of somebody who wishes nothing").await;
        assert_eq!(db.unnoticed_ends(START, 9).await.unwrap().len(), 2, "browsers show it all the same");
        assert_eq!(db.unnoticed_ends(START, 1).await.unwrap().len(), 1);

        let ways = [Way::Mail, Way::Webhook];
        let notice = async || db.notice_event(new.id, Event::Finished, (ada, &ways, &message()), START).await.unwrap();
        assert!(notice().await);
        assert!(!notice().await, "once");
        let left = db.unnoticed_ends(START, 9).await.unwrap();
        assert!(left.len() == 1 && left[0].owner == bob, "{left:?}");
        let latest = db.latest_notifications(ada, 9).await.unwrap();
        assert_eq!(latest.len(), 2);
        assert_eq!((latest[0].state, latest[0].attempts, &latest[0].message), (Delivery::Waiting, 0, &message()));
        assert_eq!(db.latest_notifications(bob, 9).await.unwrap(), []);
        assert_eq!(db.latest_notifications(ada, 1).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn one_is_delivered_by_one_alone() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "a").await;
        db.add_notifications(ada, &[Way::Mail], &message(), START).await.unwrap();
        let due = db.due_notifications(START, 9).await.unwrap();
        assert_eq!(due.len(), 1);
        assert_eq!(db.due_notifications(Timestamp(START.0 - 1), 9).await.unwrap(), []);
        let id = due[0].id;
        assert!(db.claim_notification(id).await.unwrap());
        assert!(!db.claim_notification(id).await.unwrap(), "somebody is at it");
        assert_eq!(db.due_notifications(START, 9).await.unwrap(), []);
        let then = START.plus_seconds(60);
        db.settle_notification(id, Delivery::Waiting, then, Some("away")).await.unwrap();
        assert_eq!(db.due_notifications(START, 9).await.unwrap(), []);
        let due = db.due_notifications(then, 9).await.unwrap();
        assert_eq!((due[0].attempts, due[0].error.as_deref()), (1, Some("away")));
        assert!(db.claim_notification(id).await.unwrap());
        db.give_up_sending().await.unwrap();
        db.settle_notification(id, Delivery::Sent, then, None).await.unwrap();
        assert_eq!(db.latest_notifications(ada, 9).await.unwrap()[0].state, Delivery::Unknown, "it was given up");

        // So many in an hour, and no more.
        for _ in 0..60 {
            db.add_notifications(ada, &[Way::Mail], &message(), then).await.unwrap();
        }
        let latest = db.latest_notifications(ada, 100).await.unwrap();
        let count = |state| latest.iter().filter(|one| one.state == state).count();
        assert_eq!((count(Delivery::Waiting), count(Delivery::Dropped)), (49, 11));
        let hour = then.plus_seconds(3601);
        db.add_notifications(ada, &[Way::Mail], &message(), hour).await.unwrap();
        assert_eq!(db.latest_notifications(ada, 1).await.unwrap()[0].state, Delivery::Waiting);
        db.forget_notifications(hour).await.unwrap();
        assert_eq!(db.latest_notifications(ada, 100).await.unwrap().len(), 50, "what waits is kept");
    })
    .await;
}

#[tokio::test]
async fn who_runs_is_watched() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "a").await;
        let run_of = async |owner: UserId| {
            let new = new_attempt(owner, "train", None);
            let job = begun(db, &new).await.job;
            assert!(db.begin_start(new.id, START).await.unwrap());
            assert!(db.mark_running(new.id, START, START.plus_seconds(3600)).await.unwrap());
            let unread = UnreadAttempt { job, owner, session: new.id, directory: "/home/a".to_owned() };
            db.read_attempt(&unread, "/home/a", START).await.unwrap();
            (new.id, db.run_of_job(job).await.unwrap().unwrap())
        };
        let (session, run) = run_of(ada).await;
        let grown_at = Some(START.plus_seconds(7));
        let reading = ReadProgress { points: 3, grown_at, ..run.reading.clone() };
        db.note_reading(run.id, &reading, START).await.unwrap();
        let watched = db.watched_jobs(START).await.unwrap();
        assert_eq!(watched.len(), 1, "{watched:?}");
        let one = &watched[0];
        assert_eq!((one.owner, one.session, one.run, one.points), (ada, session, run.id, 3));
        assert_eq!((one.grown_at, one.is_running, one.was_stalled, one.was_not_finite), (grown_at, true, false, false));
        assert!(db.notice_event(session, Event::Stalled, (ada, &[], &message()), START).await.unwrap());
        let one = db.watched_jobs(START).await.unwrap().remove(0);
        assert_eq!((one.was_stalled, one.was_not_finite), (true, false));
        assert!(db.end_session(session, &exited(START.plus_seconds(9))).await.unwrap());
        let one = db.watched_jobs(START.plus_seconds(9)).await.unwrap().remove(0);
        assert!(!one.is_running, "its last values may still come");
        assert_eq!(db.watched_jobs(START.plus_seconds(10)).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_alert_is_opened_changed_and_closed_once() {
    on_both(async |house| {
        let db = &house.db;
        let admin = add_user(db, "gina").await;
        let wishes = NotificationSettings { events: vec![Event::Health], ..NotificationSettings::default() };
        db.set_notification_wishes(admin, &wishes, &NOTED).await.unwrap();
        assert_eq!(db.everybodys_notification_wishes().await.unwrap(), [(admin, wishes)]);
        let alert = |level| Alert { name: "backup".to_owned(), level, since: START };
        let raised = |level| AlertNews::Raised { alert: alert(level), what: String::new(), fix: String::new() };
        let settle = async |news: AlertNews| {
            let message = news.message(START);
            db.settle_alert(&news, &[(admin, vec![Way::Mail])], &message, START).await.unwrap()
        };
        for (news, is_news, open) in [
            (raised(Level::Warning), true, Some(Level::Warning)),
            (raised(Level::Warning), false, Some(Level::Warning)),
            (raised(Level::Fault), true, Some(Level::Fault)),
            (AlertNews::Cleared(alert(Level::Fault)), true, None),
            (AlertNews::Cleared(alert(Level::Fault)), false, None),
        ] {
            assert_eq!(settle(news).await, is_news);
            assert_eq!(db.open_alerts().await.unwrap(), open.map(alert).into_iter().collect::<Vec<_>>());
        }
        assert_eq!(db.latest_notifications(admin, 9).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn what_happened_is_shown_until_it_is_seen() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "a").await, add_user(db, "b").await);
        let mut attempts = Vec::new();
        for name in ["one", "two"] {
            let new = new_attempt(ada, name, None);
            attempts.push((begun(db, &new).await, new.id));
        }
        let [(first, one), (second, two)] = attempts[..] else { panic!("two were made") };
        let notice = async |session, event, seconds: i64| {
            assert!(
                db.notice_event(session, event, (ada, &[], &message()), START.plus_seconds(seconds)).await.unwrap()
            );
        };
        notice(one, Event::NotFinite, 0).await;
        notice(one, Event::Failed, 2).await;
        notice(two, Event::Stalled, 4).await;
        let unseen = async |since: i64, limit| -> Vec<_> {
            let found = db.unseen_events(ada, START.plus_seconds(since), limit).await.unwrap();
            found.into_iter().map(|one| (one.attempt, one.at.seconds_since(START))).collect()
        };
        assert_eq!(unseen(0, 9).await, [(two, 4), (one, 2), (one, 0)]);
        assert_eq!(unseen(1, 9).await, [(two, 4), (one, 2)]);
        assert_eq!(unseen(0, 1).await, [(two, 4)]);
        assert_eq!(db.unseen_events(bob, START, 9).await.unwrap(), []);
        assert_eq!(db.see_events(bob, Some(first.job), START).await.unwrap(), 0, "it is not theirs");
        assert_eq!(db.see_events(bob, None, START).await.unwrap(), 0);
        assert_eq!(db.see_events(ada, Some(first.job), START).await.unwrap(), 2);
        assert_eq!(db.see_events(ada, Some(first.job), START).await.unwrap(), 0, "it was seen");
        assert_eq!(unseen(0, 9).await, [(two, 4)]);
        // Of an attempt that another one followed there is nothing more to see.
        assert!(db.end_session(two, &exited(START.plus_seconds(5))).await.unwrap());
        let again = new_attempt(ada, "two", Some(second));
        begun(db, &again).await;
        assert_eq!(unseen(0, 9).await, []);
        notice(again.id, Event::Finished, 6).await;
        assert_eq!(db.see_events(ada, None, START).await.unwrap(), 2);
        assert_eq!(unseen(0, 9).await, []);
    })
    .await;
}

#[tokio::test]
async fn what_a_job_makes_is_found_by_the_job() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "a").await, add_user(db, "b").await);
        let [building, training, other] = [JobId::new(), JobId::new(), JobId::new()];
        let (dataset, model) = (dataset(ada, "a", "digits"), model(ada, "a", "lenet"));
        db.add_dataset(&dataset, "{}", None, &NOTED).await.unwrap();
        db.set_dataset_job(dataset.id, building, START).await.unwrap();
        db.add_model(&model, "{}", None, &NOTED).await.unwrap();
        db.set_model_job(model.id, training, "/home/a/runs/lenet", START).await.unwrap();
        let mut found = db.products_of_jobs(ada, &[training, other, building]).await.unwrap();
        found.sort_by_key(|(job, _)| *job);
        assert_eq!(found, [(building, Product::Dataset(dataset.id)), (training, Product::Model(model.id))]);
        assert_eq!(db.products_of_jobs(bob, &[training]).await.unwrap(), [], "it is not theirs");
        assert_eq!(db.products_of_jobs(ada, &[]).await.unwrap(), []);
    })
    .await;
}
