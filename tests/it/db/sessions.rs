//! Sessions on both databases: what admission writes, how they are listed, and every change
//! of state with the states from which it may and may not happen.

use lyceum::{
    db::{
        Db,
        admit::{AdmissionMode, AdmissionOutcome, Verdict},
        extend::ExtensionOutcome,
        idempotency::EarlierResult,
        sessions::{Ending, Filter, LiveCount},
    },
    model::{
        Clock, EndReason, SessionId, SessionState, UserId,
        quota::{Code, Field, Holder, Reason, Source, Usage},
        session::{CountedTime, Placement},
    },
};

use super::{
    START, add_user, admitted, asking, extended, inventory, judge, new_session, number, on_both, running,
    whole::assert_whole,
};

const END: Ending =
    Ending { reason: EndReason::Exited, exit_code: Some(3), signal: None, at: START, detail: String::new() };

/// How many stops are in the audit.
const STOPS: &str = "SELECT COUNT(*) FROM audit WHERE action = 'session.stop' AND actor = 'a'";

pub fn reason(hint: &str) -> Reason {
    Reason {
        code: Code::limit(&Field::Gpus, Holder::User),
        source: Source::Default,
        used: 1,
        requested: 2,
        limit: 2,
        over_by: 1,
        hint: hint.to_owned(),
    }
}

async fn judged(db: &Db, owner: UserId, mode: AdmissionMode<'_>, verdict: Verdict) {
    let answer = db.admit(&asking(owner), mode, &Clock::manual(START), |_| verdict.clone()).await.unwrap();
    assert_eq!(answer, AdmissionOutcome::Judged(verdict));
}

async fn messages(db: &Db, id: SessionId) -> Vec<(SessionState, String)> {
    db.session_events(id, 0).await.unwrap().into_iter().map(|event| (event.state, event.message)).collect()
}

#[tokio::test]
async fn admission_writes_all_or_nothing() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let machine = inventory(2);
        let clock = Clock::manual(START);

        // Refused: nothing is written, the key neither.
        let new = new_session(owner, 2);
        judged(db, owner, AdmissionMode::Insert(&new), Verdict::Refuse(vec![reason("Never.")])).await;
        assert_eq!(db.find_session(new.id).await.unwrap(), None);
        assert_eq!(db.find_idempotent(owner, &new.id.to_string()).await.unwrap(), None);

        // Admitted.
        let answer = db.admit(&asking(owner), AdmissionMode::Insert(&new), &clock, judge(&machine, 2)).await.unwrap();
        assert_eq!(answer, AdmissionOutcome::Judged(Verdict::Admit { gpus: machine.gpus.clone() }));
        let session = db.find_session(new.id).await.unwrap().unwrap();
        assert_eq!((session.id, session.owner, session.owner_name.as_str()), (new.id, owner, "a"));
        assert_eq!(
            (session.app.as_str(), session.name.as_str(), session.cluster.as_str()),
            ("terminal", "A name", "local")
        );
        assert_eq!((session.state, &session.spec, &session.gpus), (SessionState::Queued, &new.spec, &machine.gpus));
        assert_eq!((session.created_at, session.admitted_at, session.started_at), (START, Some(START), None));
        assert_eq!((session.extensions, session.placement, session.reasons), (0, None, vec![]));
        assert_eq!(db.open_intervals().await.unwrap(), [(new.id, Some(owner))]);

        // The same key again: what it made, and no second judgement.
        let key = (new.id.to_string(), "another hash".to_owned());
        let again = lyceum::db::admit::NewSession { idempotency: Some(key), ..new_session(owner, 0) };
        let answer =
            db.admit(&asking(owner), AdmissionMode::Insert(&again), &clock, |_| panic!("judged")).await.unwrap();
        let earlier = EarlierResult { request_hash: "hash".to_owned(), created_id: new.id.to_string() };
        assert_eq!(answer, AdmissionOutcome::Repeated(earlier));

        // Full: the next waits with its reason, which changes and goes.
        let next = new_session(owner, 1);
        judged(db, owner, AdmissionMode::Insert(&next), Verdict::Wait(vec![reason("Stop one.")])).await;
        let sums = db.usage(&asking(owner), START).await.unwrap();
        assert_eq!((sums.usage.gpus, sums.usage.sessions, sums.usage.pending), (2, 1, 1));
        let facts = db.facts(&asking(owner), START).await.unwrap();
        assert_eq!((&facts.sums.usage.gpus, &facts.sums.in_use.cpus), (&sums.usage.gpus, &sums.in_use.cpus));
        assert_eq!(facts.common.gpus_taken.len(), 2);
        assert_eq!(facts.own, [("A name".to_owned(), 2)]);
        let nobodys = db.usage(&asking(UserId::new()), START).await.unwrap();
        assert_eq!((nobodys.usage, nobodys.in_use), (Usage::default(), sums.in_use));
        judged(db, owner, AdmissionMode::Reevaluate(next.id), Verdict::Wait(vec![reason("Stop two.")])).await;
        let waiting = db.find_session(next.id).await.unwrap().unwrap();
        assert_eq!((waiting.reasons, waiting.admitted_at), (vec![reason("Stop two.")], None));
        assert!(!db.begin_start(next.id, START).await.unwrap(), "it was not admitted");
        assert!(db.end_session(new.id, &END).await.unwrap());
        let answer =
            db.admit(&asking(owner), AdmissionMode::Reevaluate(next.id), &clock, judge(&machine, 1)).await.unwrap();
        assert_eq!(answer, AdmissionOutcome::Judged(Verdict::Admit { gpus: machine.gpus[..1].to_vec() }));
        let next = db.find_session(next.id).await.unwrap().unwrap();
        assert_eq!((next.reasons, next.gpus, next.admitted_at), (vec![], machine.gpus[..1].to_vec(), Some(START)));

        // Whoever is no longer waiting is not judged again.
        let answer =
            db.admit(&asking(owner), AdmissionMode::Reevaluate(next.id), &clock, |_| panic!("judged")).await.unwrap();
        assert_eq!(answer, AdmissionOutcome::Judged(Verdict::Wait(vec![])));
        assert_eq!(messages(db, new.id).await.len(), 2);
        assert_whole(db).await;
    })
    .await;
}

#[tokio::test]
async fn what_waits_ends_without_having_run() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let (one, two) = (new_session(owner, 1), new_session(owner, 1));
        for new in [&one, &two] {
            judged(db, owner, AdmissionMode::Insert(new), Verdict::Wait(vec![reason("Stop one.")])).await;
        }
        assert!(!db.begin_stop(one.id, EndReason::StoppedByOwner, START, "", None).await.unwrap(), "nothing runs");
        judged(db, owner, AdmissionMode::Reevaluate(one.id), Verdict::Refuse(vec![reason("It no longer fits.")])).await;
        let refused = db.find_session(one.id).await.unwrap().unwrap();
        assert_eq!((refused.state, refused.end_reason), (SessionState::Ended, Some(EndReason::Refused)));
        assert_eq!((refused.ended_at, refused.detail.as_deref()), (Some(START), Some("It no longer fits.")));

        let end = async |id| {
            db.end_waiting(id, EndReason::StoppedByOwner, &[reason("x")], START, "Stopped", Some("a")).await.unwrap()
        };
        assert!(end(two.id).await);
        assert!(!end(two.id).await && !end(one.id).await && !end(SessionId::new()).await);
        let runs = admitted(db, owner).await;
        assert!(!end(runs).await, "an admitted one has an interval to close");
        assert_eq!(number(db, STOPS).await, 1, "in the audit once");
        let stopped = db.find_session(two.id).await.unwrap().unwrap();
        assert_eq!((stopped.end_reason, stopped.reasons), (Some(EndReason::StoppedByOwner), vec![reason("x")]));
        assert_eq!(db.open_intervals().await.unwrap().len(), 1);
        assert_whole(db).await;
    })
    .await;
}

#[tokio::test]
async fn what_was_refused_is_kept_the_latest_of_each_person() {
    on_both(async |house| {
        let db = &house.db;
        let (owner, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let waits = new_session(owner, 1);
        judged(db, owner, AdmissionMode::Insert(&waits), Verdict::Wait(vec![reason("Stop one.")])).await;
        judged(db, owner, AdmissionMode::Reevaluate(waits.id), Verdict::Refuse(vec![reason("It no longer fits.")]))
            .await;
        let at_once = new_session(owner, 9);
        let why = vec![reason("Ask for fewer."), reason("Ask for less.")];
        judged(db, owner, AdmissionMode::Insert(&at_once), Verdict::Refuse(why.clone())).await;
        assert_eq!(db.find_session(at_once.id).await.unwrap(), None, "there is no session of it");

        let refused = db.refusals(owner, 10).await.unwrap();
        assert_eq!(refused.len(), 2, "{refused:?}");
        let of = |id| refused.iter().find(|refused| refused.id == id).unwrap();
        let (told, waited) = (of(at_once.id), of(waits.id));
        assert_eq!((&told.reasons, &told.resources, told.waited), (&why, &at_once.spec.resources, false));
        assert_eq!((&told.name, &told.app, told.at), (&at_once.name, &at_once.app, START));
        assert_eq!((&waited.reasons[0].hint[..], waited.waited), ("It no longer fits.", true));
        assert_eq!(waited.duration_seconds, waits.spec.duration_seconds);

        for _ in 0..25 {
            judged(db, owner, AdmissionMode::Insert(&new_session(owner, 9)), Verdict::Refuse(why.clone())).await;
        }
        judged(db, other, AdmissionMode::Insert(&new_session(other, 9)), Verdict::Refuse(why.clone())).await;
        assert_eq!(db.refusals(owner, 100).await.unwrap().len(), 20);
        assert_eq!((db.refusals(owner, 5).await.unwrap().len(), db.refusals(other, 5).await.unwrap().len()), (5, 1));
        assert_whole(db).await;
        assert_eq!(db.forget_sessions(START, 10).await.unwrap(), 0);
        assert_eq!(db.refusals(other, 5).await.unwrap().len(), 1);
        db.forget_sessions(START.plus_seconds(1), 10).await.unwrap();
        assert_eq!(db.refusals(owner, 5).await.unwrap(), []);
    })
    .await;
}

/// Prometheus is told numbers of sessions, by app and state, and not their rows.
#[tokio::test]
async fn live_sessions_are_counted() {
    on_both(async |house| {
        let db = &house.db;
        assert_eq!(db.count_live().await.unwrap(), []);
        let owner = add_user(db, "a").await;
        let id = admitted(db, owner).await;
        admitted(db, owner).await;
        let ended = admitted(db, owner).await;
        assert!(db.begin_start(id, START.plus_seconds(1)).await.unwrap());
        assert!(db.end_session(ended, &END).await.unwrap());
        let count = |state: &str| LiveCount {
            app: "terminal".to_owned(),
            is_job: false,
            state: state.to_owned(),
            count: 1,
            oldest: START,
        };
        assert_eq!(db.count_live().await.unwrap(), [count("queued"), count("starting")]);
    })
    .await;
}

/// What a batch system says of its start goes before the first answer.
#[tokio::test]
async fn time_counts_from_the_start_that_the_scheduler_tells_of() {
    on_both(async |house| {
        let db = &house.db;
        let at = |seconds| START.plus_seconds(seconds);
        let id = admitted(db, add_user(db, "a").await).await;
        let counted = |limit| CountedTime { since: at(1), limit_seconds: limit };
        let set =
            async |before, end, limit| db.set_end_of_time(id, before, at(end), &counted(limit), None).await.unwrap();
        assert!(!set(None, 90, Some(60)).await, "it has not started");
        assert!(db.begin_start(id, at(1)).await.unwrap());
        assert_eq!(db.counted_time(id).await.unwrap(), None);
        assert!(set(None, 90, Some(60)).await);
        assert!(db.mark_running(id, at(2), at(100)).await.unwrap());
        let expires = async || db.find_session(id).await.unwrap().unwrap().expires_at;
        assert_eq!(expires().await, Some(at(90)), "the end that is known stays");
        assert!(!set(None, 70, None).await, "an extension moved it meanwhile");
        assert!(set(Some(at(90)), 80, None).await);
        assert_eq!((expires().await, db.counted_time(id).await.unwrap()), (Some(at(80)), Some(counted(None))));
        db.set_suspended(id, at(50)).await.unwrap();
        assert!(set(Some(at(80)), 80, None).await);
        let found = async || db.find_session(id).await.unwrap().unwrap();
        assert_eq!(found().await.suspended_since, Some(at(50)), "a new limit does not resume it");
        let resume =
            async |before, end| db.set_end_of_time(id, Some(before), end, &counted(None), Some(at(60))).await.unwrap();
        assert!(!resume(at(70), at(90)).await, "an extension moved it meanwhile");
        assert_eq!(found().await.suspended_since, Some(at(50)), "it runs again with its new end or not at all");
        assert!(resume(at(80), at(90)).await);
        let resumed = found().await;
        assert_eq!((resumed.suspended_since, resumed.expires_at), (None, Some(at(90))));
        assert_eq!(resumed.last_activity_at, Some(at(60)));
        db.set_suspended(id, at(50)).await.unwrap();
        assert!(set(Some(at(90)), 80, None).await);
        db.move_times(3000, ("clock", "x"), || {}).await.unwrap();
        let moved = db.find_session(id).await.unwrap().unwrap();
        assert_eq!((moved.suspended_since, moved.expires_at), (Some(at(53)), Some(at(83))));
        assert_eq!(db.counted_time(id).await.unwrap().unwrap().since, at(4));
        assert!(db.end_session(id, &END).await.unwrap());
        assert_eq!(db.find_session(id).await.unwrap().unwrap().suspended_since, None);
    })
    .await;
}

/// As it stands while `from_start_to_end` has it running.
async fn assert_runs(db: &Db, id: SessionId, placement: &Placement) {
    let at = |seconds| START.plus_seconds(seconds);
    let session = db.find_session(id).await.unwrap().unwrap();
    let words = (session.state, session.name.as_str(), session.extensions);
    assert_eq!(words, (SessionState::Running, "Another 'name'", 1));
    let moments = (session.started_at, session.ready_at, session.expires_at);
    assert_eq!(moments, (Some(at(1)), Some(at(2)), Some(at(200))));
    assert_eq!((session.last_activity_at, session.keep_until), (Some(at(20)), Some(at(50))));
    assert_eq!((session.placement.as_ref(), session.detail.as_deref()), (Some(placement), None));
}

#[tokio::test]
async fn from_start_to_end() {
    let test = on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let at = |seconds| START.plus_seconds(seconds);
        let id = admitted(db, owner).await;
        assert!(!db.mark_running(id, at(1), at(9)).await.unwrap(), "it has not begun");
        assert!(db.begin_start(id, at(1)).await.unwrap());
        assert!(!db.begin_start(id, at(2)).await.unwrap());
        let placement = Placement {
            node: "here".to_owned(),
            pid: 7,
            start_ticks: u64::MAX,
            boot_id: "b".to_owned(),
            uid: 1000,
            unix_name: "a".to_owned(),
            run_directory: "/run/x".to_owned(),
            limits: "cgroup-v2".to_owned(),
            link: None,
        };
        assert!(db.set_placement(id, &placement).await.unwrap());
        db.set_detail(id, "Waiting for its first answer").await.unwrap();
        assert!(!db.keep_session(id, at(9)).await.unwrap(), "it does not run yet");
        assert!(db.mark_running(id, at(2), at(100)).await.unwrap());
        assert!(!db.mark_running(id, at(3), at(100)).await.unwrap());

        assert_eq!(extended(db, id, 100, at(3)).await, ExtensionOutcome::By(100));
        assert!(db.keep_session(id, at(50)).await.unwrap());
        db.set_activity(id, at(20)).await.unwrap();
        db.set_activity(id, at(10)).await.unwrap();
        db.set_unknown(id, Some(at(21))).await.unwrap();
        assert_eq!(db.find_session(id).await.unwrap().unwrap().unknown_since, Some(at(21)));
        db.set_unknown(id, None).await.unwrap();
        db.rename_session(id, "Another 'name'").await.unwrap();
        db.add_session_event(id, at(22), SessionState::Running, "Noted").await.unwrap();

        assert_runs(db, id, &placement).await;

        assert!(db.begin_stop(id, EndReason::Idle, at(30), "Nobody used it", Some("a")).await.unwrap());
        assert!(
            !db.begin_stop(id, EndReason::TimeLimit, at(31), "Time is over", Some("a")).await.unwrap(),
            "the first reason stays"
        );
        assert_eq!(extended(db, id, 100, at(31)).await, ExtensionOutcome::NotRunning);
        {
            let session = db.find_session(id).await.unwrap().unwrap();
            assert_eq!((session.stop_reason, session.stopping_at), (Some(EndReason::Idle), Some(at(30))));
        }

        let ending = Ending {
            reason: EndReason::Signal,
            exit_code: None,
            signal: Some(9),
            at: at(40),
            detail: "Killed".to_owned(),
        };
        assert!(db.end_session(id, &ending).await.unwrap());
        assert!(!db.end_session(id, &END).await.unwrap(), "once");
        assert!(!db.set_placement(id, &placement).await.unwrap());
        assert!(!db.begin_stop(id, EndReason::Idle, at(50), "", Some("a")).await.unwrap());
        db.set_detail(id, "too late").await.unwrap();
        db.set_unknown(id, Some(at(50))).await.unwrap();
        db.set_activity(id, at(50)).await.unwrap();
        let session = db.find_session(id).await.unwrap().unwrap();
        assert_eq!((session.end_reason, session.exit_code, session.signal), (Some(EndReason::Signal), None, Some(9)));
        assert_eq!((session.ended_at, session.detail.as_deref()), (Some(at(40)), Some("Killed")));
        assert_eq!((session.unknown_since, session.last_activity_at), (None, Some(at(20))));

        let events = db.session_events(id, 0).await.unwrap();
        assert_eq!(events.iter().map(|event| event.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(db.session_events(id, 5).await.unwrap(), events[5..]);
        assert_eq!(
            (events[6].at, events[6].state, events[6].message.as_str()),
            (at(40), SessionState::Ended, "Killed")
        );
        assert_eq!(number(db, "SELECT ended_at - started_at FROM intervals").await, 40_000);
        assert_eq!(number(db, STOPS).await, 1, "who asked first is in the audit");
        assert_whole(db).await;
    });
    Box::pin(test).await;
}

#[tokio::test]
async fn lists_and_pages() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b) = (add_user(db, "a").await, add_user(db, "b").await);
        let mut ids = Vec::new();
        for (number, owner) in [a, a, b, a, b, a].into_iter().enumerate() {
            let id = if number % 2 == 0 { running(db, owner).await } else { admitted(db, owner).await };
            ids.push(id);
        }
        for &id in &ids[..3] {
            db.end_session(id, &END).await.unwrap();
        }
        let listed = async |filter: Filter<'_>| {
            let found = db.list_sessions(filter).await.unwrap().into_iter().map(|session| session.id);
            found.map(|id| ids.iter().position(|known| *known == id).unwrap()).collect::<Vec<_>>()
        };
        let all = Filter { limit: 10, ..Filter::default() };
        let state = |state| Filter { state: Some(state), ..all };
        assert_eq!(listed(all).await, [5, 4, 3, 2, 1, 0]);
        assert_eq!(listed(Filter { live_only: true, ..all }).await, [5, 4, 3]);
        assert_eq!(listed(Filter { owner: Some(a), ..all }).await, [5, 3, 1, 0]);
        assert_eq!(listed(Filter { owner: Some(a), live_only: true, ..all }).await, [5, 3]);
        assert_eq!(listed(state(SessionState::Ended)).await, [2, 1, 0]);
        assert_eq!(listed(state(SessionState::Running)).await, [4]);
        assert_eq!(listed(state(SessionState::Queued)).await, [5, 3]);
        assert_eq!(listed(Filter { live_only: true, ..state(SessionState::Ended) }).await, [0_usize; 0]);
        assert_eq!(listed(Filter { owner: Some(b), ..state(SessionState::Ended) }).await, [2]);
        assert_eq!(listed(Filter { limit: 2, ..all }).await, [5, 4]);
        assert_eq!(listed(Filter { app: Some("terminal"), owner: Some(b), ..all }).await, [4, 2]);
        for app in ["jupyter", "a\0b"] {
            assert_eq!(listed(Filter { app: Some(app), ..all }).await, [0_usize; 0]);
        }
        assert_eq!(listed(Filter { end_reason: Some(END.reason), ..all }).await, [2, 1, 0]);
        assert_eq!(listed(Filter { end_reason: Some(EndReason::Lost), ..all }).await, [0_usize; 0]);
        assert_eq!(listed(Filter { ended_from: Some(END.at), owner: Some(a), ..all }).await, [1, 0]);
        assert_eq!(listed(Filter { ended_from: Some(END.at.plus_seconds(1)), ..all }).await, [0_usize; 0]);
        assert_eq!(listed(Filter { ended_before: Some(END.at), ..all }).await, [0_usize; 0]);
        assert_eq!(listed(Filter { limit: 2, before: Some(ids[4]), ..all }).await, [3, 2]);
        assert_eq!(listed(Filter { owner: Some(a), before: Some(ids[3]), limit: 1, ..all }).await, [1]);
        assert_eq!(listed(Filter { owner: Some(UserId::new()), ..all }).await, [0_usize; 0]);

        let live: Vec<_> = db.live_sessions().await.unwrap().into_iter().map(|session| session.id).collect();
        assert_eq!(live, ids[3..], "oldest first");
        assert_eq!(db.session_events(SessionId::new(), 0).await.unwrap(), []);
        assert_eq!(db.find_session(SessionId::new()).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_is_set_moves_what_lives_and_nothing_else() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let (lives, over, waits) = (running(db, owner).await, running(db, owner).await, new_session(owner, 1));
        judged(db, owner, AdmissionMode::Insert(&waits), Verdict::Wait(vec![reason("Wait")])).await;
        db.keep_session(lives, START.plus_seconds(7200)).await.unwrap();
        assert!(db.mark_opened(lives, START).await.unwrap());
        db.end_session(over, &END).await.unwrap();
        let before = db.find_session(over).await.unwrap();

        let mut followed = false;
        db.move_times(-3_600_000, ("clock", "boot 5"), || followed = true).await.unwrap();
        let session = db.find_session(lives).await.unwrap().unwrap();
        let earlier = Some(START.plus_seconds(-3600));
        let began = [Some(session.created_at), session.admitted_at, session.started_at, session.ready_at];
        assert_eq!((began, session.last_activity_at, session.opened_at), ([earlier; 4], earlier, earlier));
        assert_eq!((session.expires_at, session.keep_until), (Some(START), Some(START.plus_seconds(3600))));
        let waiting = db.find_session(waits.id).await.unwrap().unwrap();
        assert_eq!((Some(waiting.created_at), waiting.admitted_at), (earlier, None));
        assert_eq!((db.find_session(over).await.unwrap(), followed), (before, true));
        assert_eq!(db.setting("clock").await.unwrap().as_deref(), Some("boot 5"));

        // An end that a clock puts before the beginning is the beginning.
        let end = Ending { at: START.plus_seconds(-7200), ..END };
        assert!(db.end_session(lives, &end).await.unwrap());
        assert_eq!(number(db, "SELECT MIN(ended_at - started_at) FROM intervals").await, 0);
        assert_whole(db).await;
    })
    .await;
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten_whole() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let (old, young, live) = (running(db, owner).await, running(db, owner).await, running(db, owner).await);
        assert!(db.end_session(old, &END).await.unwrap());
        assert!(db.end_session(young, &Ending { at: START.plus_seconds(2), ..END }).await.unwrap());
        assert_eq!(db.forget_sessions(START, 10).await.unwrap(), 0);
        assert_eq!(db.forget_sessions(START.plus_seconds(1), 10).await.unwrap(), 1);
        assert!(db.find_session(old).await.unwrap().is_none());
        for id in [young, live] {
            assert!(db.find_session(id).await.unwrap().is_some());
        }
        for table in ["session_events", "intervals"] {
            assert_eq!(number(db, &format!("SELECT COUNT(*) FROM {table} WHERE session_id = '{old}'")).await, 0);
        }
        assert_eq!(db.forget_sessions(START.plus_seconds(9), 10).await.unwrap(), 1);
        assert_eq!(db.forget_sessions(START.plus_seconds(9), 10).await.unwrap(), 0, "what lives is never too old");
    })
    .await;
}

#[tokio::test]
async fn the_file_gets_smaller_when_much_was_forgotten() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let old = running(db, owner).await;
        let long = "x".repeat(200_000);
        for _ in 0..100 {
            db.add_session_event(old, START, SessionState::Running, &long).await.unwrap();
        }
        assert!(db.end_session(old, &END).await.unwrap());
        db.shrink().await.unwrap();
        let pages = async || match db {
            Db::Sqlite { .. } => number(db, "SELECT page_count FROM pragma_page_count").await,
            Db::Postgres { .. } => 0,
        };
        let full = pages().await;
        assert_eq!(db.forget_sessions(START.plus_seconds(1), 10).await.unwrap(), 1);
        assert_eq!(pages().await, full, "forgetting alone leaves the file as it is");
        db.shrink().await.unwrap();
        let after = pages().await;
        assert!(after <= full / 2, "{full} pages became {after}");
    })
    .await;
}
