//! More time for what runs, on both databases: decided from what is held and limited, in one
//! transaction. Many who ask at once never get more hours than there are, by whatever number of
//! handles, and whoever is refused changes nothing.

use lyceum::{
    admission::Admission,
    db::{Db, extend::ExtensionOutcome, limits::GroupFlags, quotas::Level},
    model::{
        Capacity, Clock, GroupName, Inventory, SessionId, SessionState, Timestamp, UserId,
        quota::{Change, Code, Field, Kind, Period, Reason, Rule},
        size::GIB,
    },
};
use tokio::task::JoinSet;

use super::{
    BY, START, add_user, admitted, each, extended, inventory, new_session, on_both, running, set_limits,
    whole::assert_whole,
};

const HOUR: i64 = 3600;

fn admission(db: &Db, gpus: i64, now: Timestamp, extend_while_others_wait: bool) -> Admission {
    Admission {
        db: db.clone(),
        clock: Clock::manual(now),
        stock: Inventory::new(Capacity { gpus, cpus: 1000, memory_bytes: 1000 * GIB }, inventory(gpus)),
        period: Period::default(),
        extend_while_others_wait,
        holds_at_once: true,
        zone: jiff::tz::TimeZone::UTC,
        blocked_gpus: lyceum::admission::BlockedGpus::default(),
        external_usage: lyceum::admission::external_usage::ExternalUsage::default(),
        slurm_limits: None,
    }
}

async fn limit(db: &Db, level: Level, changes: &[Change]) {
    set_limits(db, level, changes, GroupFlags::default()).await;
}

/// A session of this person's that runs since [`START`] for an hour, with so many GPUs.
async fn runs(admission: &Admission, owner: UserId, gpus: i64) -> SessionId {
    let new = new_session(owner, gpus);
    admission.insert(&new).await.unwrap();
    assert!(admission.db.begin_start(new.id, START).await.unwrap());
    assert!(admission.db.mark_running(new.id, START, START.plus_seconds(HOUR)).await.unwrap());
    new.id
}

fn codes(outcome: ExtensionOutcome) -> Vec<String> {
    let ExtensionOutcome::Refused(reasons) = outcome else { panic!("refused: {outcome:?}") };
    reasons.into_iter().map(|reason| reason.code.to_string()).collect()
}

#[tokio::test]
async fn an_extension_is_a_request_for_the_difference() {
    let test = on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        limit(db, Level::User(owner), &each([(Field::GpuHours, Some(4)), (Field::MaxExtensions, Some(2))])).await;
        let admission = admission(db, 2, START, true);
        let id = runs(&admission, owner, 2).await;

        // Two GPU-hours are committed to its end; one hour more are the two that are left.
        assert_eq!(codes(admission.extend(id, Some(HOUR + 1), "a").await.unwrap()), ["quota.gpu_hours.user"]);
        assert_eq!(codes(admission.extend(id, None, "a").await.unwrap()), ["quota.gpu_hours.user"], "eight hours");
        let before = admission.rehearse_extension(id, None).await.unwrap().unwrap().unwrap_err();
        assert_eq!(before[0].used, 2);
        assert_eq!(admission.rehearse_extension(id, Some(HOUR)).await.unwrap(), Some(Ok(HOUR)));
        let unchanged = db.find_session(id).await.unwrap().unwrap();
        assert_eq!((unchanged.extensions, unchanged.expires_at), (0, Some(START.plus_seconds(HOUR))));
        assert_eq!(admission.extend(id, Some(HOUR), "a").await.unwrap(), ExtensionOutcome::By(HOUR));
        let session = db.find_session(id).await.unwrap().unwrap();
        assert_eq!((session.extensions, session.expires_at), (1, Some(START.plus_seconds(2 * HOUR))));
        let last = db.session_events(id, 0).await.unwrap().pop().unwrap();
        assert_eq!((last.state, last.message.as_str()), (SessionState::Running, "Extended by 1 h"));
        assert_eq!(codes(admission.extend(id, Some(1), "a").await.unwrap()), ["quota.gpu_hours.user"]);

        limit(db, Level::User(owner), &each([(Field::GpuHours, None)])).await;
        assert_eq!(admission.extend(id, Some(1), "a").await.unwrap(), ExtensionOutcome::By(1));
        assert_eq!(codes(admission.extend(id, Some(1), "a").await.unwrap()), ["quota.max_extensions.user"]);
        let waits = admitted(db, owner).await;
        assert_eq!(admission.extend(waits, Some(1), "a").await.unwrap(), ExtensionOutcome::NotRunning);
        assert_eq!(admission.rehearse_extension(waits, None).await.unwrap(), None);
        assert_eq!(extended(db, SessionId::new(), 1, START).await, ExtensionOutcome::NotRunning);
        let seen = db.look_at_extension(id, &Period::default(), &Clock::manual(START)).await.unwrap().unwrap();
        assert_eq!((seen.0.id, seen.1.own.len()), (id, 2));
        assert_whole(db).await;
    });
    Box::pin(test).await;
}

#[tokio::test]
async fn those_who_wait_count_where_the_site_says_so() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "a").await, add_user(db, "b").await);
        limit(db, Level::Default, &each([(Field::Gpus, Some(2))])).await;
        let (kind, strict) = (admission(db, 1, START, true), admission(db, 1, START, false));
        let (with_gpu, without) = (runs(&kind, ada, 1).await, runs(&kind, ada, 0).await);
        kind.insert(&new_session(ada, 1)).await.unwrap();
        assert_eq!(
            strict.extend(with_gpu, Some(60), "a").await.unwrap(),
            ExtensionOutcome::By(60),
            "only oneself waits"
        );

        kind.insert(&new_session(bob, 1)).await.unwrap();
        let ExtensionOutcome::Refused(reasons) = strict.extend(with_gpu, Some(60), "a").await.unwrap() else {
            panic!()
        };
        let told: Vec<(&Code, i64)> = reasons.iter().map(|Reason { code, used, .. }| (code, *used)).collect();
        assert_eq!(told, [(&Code::Rule(Rule::OthersWait), 1)]);
        assert_eq!(strict.rehearse_extension(with_gpu, None).await.unwrap(), Some(Err(reasons)));
        assert_eq!(
            strict.extend(without, Some(60), "a").await.unwrap(),
            ExtensionOutcome::By(60),
            "nobody waits for that"
        );
        assert_eq!(kind.extend(with_gpu, Some(60), "a").await.unwrap(), ExtensionOutcome::By(60));
    })
    .await;
}

/// Twenty sessions of four people in one group ask for ten minutes more again and again, by three
/// handles: neither a person nor the group ever has more hours committed than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_never_exceed_a_budget() {
    on_both(async |house| {
        let db = &house.db;
        let group = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        let total = [Change::new(Kind::Total, Field::GpuHours, Some(25))];
        limit(db, Level::Group(group), &total).await;
        let limits = [(Field::GpuHours, 7), (Field::MaxExtensions, -1), (Field::Gpus, -1), (Field::Sessions, -1)];
        limit(db, Level::Default, &each(limits.map(|(field, value)| (field, Some(value))))).await;
        let begin = admission(db, 20, START, true);
        let (mut people, mut sessions) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c", "d"] {
            let owner = add_user(db, name).await;
            db.set_member(group, owner, true, BY).await.unwrap();
            people.push(owner);
            for _ in 0..5 {
                let new = lyceum::db::admit::NewSession { charged_group: Some(group), ..new_session(owner, 1) };
                begin.insert(&new).await.unwrap();
                assert!(db.begin_start(new.id, START).await.unwrap());
                assert!(db.mark_running(new.id, START, START.plus_seconds(HOUR)).await.unwrap());
                sessions.push(new.id);
            }
        }
        let mut asking = JoinSet::new();
        for (number, db) in house.three().await.into_iter().cycle().take(60).enumerate() {
            let (admission, id) = (admission(&db, 20, START, true), sessions[number % sessions.len()]);
            asking.spawn(async move {
                let mut granted = 0;
                for _ in 0..3 {
                    match admission.extend(id, Some(600), "a").await.unwrap() {
                        ExtensionOutcome::By(seconds) => granted += seconds,
                        ExtensionOutcome::Refused(reasons) => assert!(
                            reasons.iter().all(|one| matches!(one.code, Code::Limit { field: Field::GpuHours, .. }))
                        ),
                        ExtensionOutcome::NotRunning => panic!("it runs"),
                    }
                }
                granted
            });
        }
        let granted: i64 = asking.join_all().await.into_iter().sum();
        // Of 25 GPU-hours twenty are committed from the beginning, and the rest is given out whole.
        assert_eq!(granted, 5 * HOUR);
        let mut committed = std::collections::HashMap::new();
        for session in db.live_sessions().await.unwrap() {
            let seconds = session.expires_at.unwrap().seconds_since(START);
            *committed.entry(session.owner).or_insert(0) += seconds;
            assert_eq!(seconds, HOUR + 600 * session.extensions);
        }
        assert_eq!(committed.values().sum::<i64>(), 25 * HOUR);
        assert!(people.iter().all(|person| committed[person] <= 7 * HOUR), "{committed:?}");
        assert_whole(db).await;
    })
    .await;
}

#[tokio::test]
async fn what_is_told_and_opened_is_noted_once() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let (id, other) = (running(db, owner).await, running(db, owner).await);
        let tell = async |id, message: &str| {
            db.add_session_event_once(id, START, SessionState::Running, message).await.unwrap()
        };
        assert!(tell(id, "30 min left").await && tell(id, "5 min left").await);
        assert!(!tell(id, "30 min left").await && tell(other, "30 min left").await);
        assert_eq!(db.session_events(id, 3).await.unwrap().len(), 2);

        assert!(db.mark_opened(id, START.plus_seconds(5)).await.unwrap());
        assert!(!db.mark_opened(id, START.plus_seconds(9)).await.unwrap(), "the first time counts");
        assert_eq!(db.find_session(id).await.unwrap().unwrap().opened_at, Some(START.plus_seconds(5)));
        let starts = admitted(db, owner).await;
        assert!(!db.mark_opened(starts, START).await.unwrap(), "it does not run");
    })
    .await;
}
