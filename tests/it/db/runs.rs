//! Runs on both databases: who sees which, what is due to be read, and what a change leaves alone.

use lyceum::{
    db::{Db, Error, idempotency::Once, runs::Filter},
    model::{
        EndReason, GroupName, Run, RunId, SessionId, SessionState, UserId,
        run::{Reading, Skipped, Source, Visibility},
    },
};

use super::{BY, NOTED, START, add_user, number, on_both, running};

pub fn run(owner: UserId, name: &str) -> Run {
    Run {
        id: RunId::new(),
        owner,
        owner_name: String::new(),
        name: name.to_owned(),
        directory: format!("/home/{name}/’ 磁盘"),
        source: Source::External,
        visibility: Visibility::Private,
        group: None,
        reading: Reading::default(),
        created_at: START,
    }
}

async fn names(db: &Db, reader: Option<UserId>, owner: Option<&str>) -> Vec<String> {
    let filter = Filter { reader, owner, before: None, limit: 10 };
    db.list_runs(&filter).await.unwrap().into_iter().map(|run| run.name).collect()
}

#[tokio::test]
async fn runs_are_seen_by_whom_they_are_shared_with() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob, eve) = (add_user(db, "ada").await, add_user(db, "bob").await, add_user(db, "eve").await);
        let vision = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        db.set_member(vision, ada, true, BY).await.unwrap();
        db.set_member(vision, bob, true, BY).await.unwrap();
        assert_eq!(db.group_of_member(ada, "vision").await.unwrap(), Some(vision));
        assert_eq!(db.group_of_member(eve, "vision").await.unwrap(), None);

        let once = Once { user: ada, key: "key", request_hash: "hash" };
        let own = run(ada, "own");
        db.add_run(&own, Some(once), &NOTED).await.unwrap();
        assert!(matches!(db.add_run(&run(ada, "again"), Some(once), &NOTED).await, Err(Error::Unique)));
        let shared = Run { visibility: Visibility::Everybody, ..run(ada, "shared") };
        let ours = Run { visibility: Visibility::Group, group: Some((vision, None)), ..run(ada, "ours") };
        for one in [&shared, &ours] {
            db.add_run(one, None, &NOTED).await.unwrap();
        }
        assert_eq!(names(db, Some(ada), None).await, ["ours", "shared", "own"]);
        assert_eq!(names(db, Some(bob), None).await, ["ours", "shared"]);
        assert_eq!(names(db, Some(eve), None).await, ["shared"]);
        assert_eq!(names(db, None, Some("ada")).await, ["ours", "shared", "own"]);
        assert_eq!(names(db, None, Some("bob")).await, Vec::<String>::new());
        let page = Filter { reader: Some(ada), owner: None, before: Some(ours.id), limit: 1 };
        assert_eq!(db.list_runs(&page).await.unwrap()[0].id, shared.id);

        let found = db.find_run(ours.id, Some(bob)).await.unwrap().unwrap();
        assert_eq!(found.group, Some((vision, Some("vision".to_owned()))));
        assert_eq!((found.owner_name.as_str(), &found.directory), ("ada", &ours.directory));
        assert_eq!(db.find_run(ours.id, Some(eve)).await.unwrap(), None);
        assert_eq!(db.find_run(RunId::new(), None).await.unwrap(), None);
        // The group goes: only its owner sees it.
        db.remove_group(vision, BY).await.unwrap();
        assert_eq!(names(db, Some(bob), None).await, ["shared"]);
        assert_eq!(db.find_run(ours.id, Some(ada)).await.unwrap().unwrap().group, Some((vision, None)));

        let rows = number(db, "SELECT COUNT(*) FROM audit").await;
        let named = Run { name: "named".to_owned(), visibility: Visibility::Everybody, ..own.clone() };
        assert!(db.change_run(&named, &NOTED).await.unwrap());
        assert_eq!(names(db, Some(eve), None).await, ["shared", "named"]);
        assert!(db.remove_run(own.id, &NOTED).await.unwrap());
        assert!(!db.remove_run(own.id, &NOTED).await.unwrap());
        assert!(!db.change_run(&named, &NOTED).await.unwrap());
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 2, "a row for each change, none for none");
        let mut ids = db.run_ids().await.unwrap();
        ids.sort();
        assert_eq!(ids, [shared.id, ours.id]);
    })
    .await;
}

#[tokio::test]
async fn what_is_due_is_read() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let session = running(db, ada).await;
        let source = |id| Source::Session { id, state: SessionState::Running, placement: None };
        let (external, live) = (run(ada, "external"), Run { source: source(session), ..run(ada, "live") });
        // Its session was forgotten long ago.
        let gone = Run { source: source(SessionId::new()), ..run(ada, "gone") };
        for one in [&external, &live, &gone] {
            db.add_run(one, None, &NOTED).await.unwrap();
        }
        let due = async |seconds| {
            let mut runs = db.runs_to_read(START.plus_seconds(seconds), 5).await.unwrap();
            runs.sort_by_key(|run| run.id);
            runs.into_iter().map(|run| (run.name, run.source)).collect::<Vec<_>>()
        };
        let found = due(0).await;
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["external", "live", "gone"]);
        let Source::Session { id, state, placement } = &found[1].1 else { panic!("it is a session's") };
        assert_eq!((*id, *state), (session, SessionState::Running));
        assert!(placement.is_some(), "it says where it runs");
        assert!(found[2].1.is_over() && !found[1].1.is_over() && !found[0].1.is_over());

        let skipped = Skipped { damaged: 3, unreadable: vec!["a: no".to_owned()], ..Skipped::default() };
        let reading = Reading {
            complete: true,
            points: 12,
            curves: 2,
            read_at: Some(START),
            grown_at: Some(START.plus_seconds(-1)),
            error: Some("It’s gone.".to_owned()),
            skipped,
        };
        for one in [&external, &gone] {
            db.note_reading(one.id, &reading, START.plus_seconds(60)).await.unwrap();
        }
        assert_eq!(db.find_run(external.id, None).await.unwrap().unwrap().reading, reading);
        assert_eq!(due(0).await.len(), 1, "what is complete is not read again");
        assert_eq!(due(60).await.len(), 2);
        let ending = lyceum::db::sessions::Ending {
            reason: EndReason::Exited,
            exit_code: Some(0),
            signal: None,
            at: START,
            detail: String::new(),
        };
        assert!(db.end_session(session, &ending).await.unwrap());
        assert!(due(0).await[0].1.is_over());
    })
    .await;
}
