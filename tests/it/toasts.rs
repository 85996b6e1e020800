//! Messages in the corner of a page: what has just ended is said with a link, what somebody ended themselves is not, and
//! nothing is said that is old or stands in the strip.

use lyceum::{
    db::sessions::Ending,
    model::{
        EndReason, Role,
        notification::{Event, Message},
    },
};

use crate::{
    db::{NOTED, datasets::dataset, ended_job, execute, running},
    portal::TestPortal,
};

#[tokio::test]
async fn what_has_just_ended_is_said_in_a_corner() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let (browser, bob) = (portal.sign_in("ada").await, portal.sign_in("bob").await);
    let (db, now) = (portal.db(), portal.clock.now());
    let fragment = async |path: &str| browser.visit(path).await.text().await.unwrap();
    assert_eq!(fragment("/notices?toasts=true").await.trim(), "");

    let [timed_out, stopped] = [running(db, ada).await, running(db, ada).await];
    for (id, reason) in [(timed_out, EndReason::TimeLimit), (stopped, EndReason::StoppedByOwner)] {
        let ending = Ending { reason, exit_code: None, signal: None, at: now, detail: String::new() };
        assert!(db.end_session(id, &ending).await.unwrap());
    }
    let shapes = dataset(ada, "ada", "shapes");
    db.add_dataset(&shapes, "{}", None, &NOTED).await.unwrap();
    let mut jobs = Vec::new();
    for name in ["train", "dataset shapes", "predict"] {
        jobs.push(ended_job(db, ada, name).await.job);
    }
    let [job, build, helper] = jobs[..] else { panic!("three jobs") };
    execute(db, "UPDATE jobs SET helper = TRUE WHERE name <> 'train'").await;
    execute(db, &format!("UPDATE datasets SET job_id = '{build}' WHERE id = '{}'", shapes.id)).await;
    for (job, event, title) in [
        (job, Event::Failed, "Job ‘train’ failed"),
        (build, Event::Finished, "Job ‘dataset shapes’ finished"),
        (helper, Event::Failed, "Job ‘predict’ failed"),
    ] {
        let attempt = db.find_job(job).await.unwrap().unwrap().latest.id;
        let (text, name) = ("It ended.".to_owned(), "x".to_owned());
        let message = Message { event, title: title.to_owned(), text, job: Some((job, 1)), name };
        assert!(db.notice_event(attempt, event, (ada, &[], &message), now).await.unwrap());
    }

    let said = fragment("/notices?toasts=true").await;
    for part in [
        format!("data-toast=\"{timed_out} ended\" data-href=\"/sessions/{timed_out}\""),
        format!("<a href=\"/jobs/{job}\">Show job</a>"),
        format!("<a href=\"/datasets/{}\">Show dataset</a>", shapes.id),
        "Job ‘train’ failed".to_owned(),
        "Reached its time limit".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}\n{said}");
    }
    assert!(!said.contains("predict"), "that is the portal's own: {said}");
    assert!(!said.contains(&stopped.to_string()) && !said.contains("data-notice"), "{said}");
    assert_eq!(fragment("/notices").await.trim(), "", "a page without a corner is told nothing");
    let strip = fragment("/notices?toasts=true&jobs=true").await;
    assert_eq!((strip.matches("data-toast").count(), strip.matches("data-notice").count()), (1, 2), "{strip}");
    assert_eq!(bob.visit("/notices?toasts=true").await.text().await.unwrap().trim(), "");
    portal.clock.advance(601);
    assert_eq!(fragment("/notices?toasts=true").await.trim(), "", "that is old");
}
