//! Many at once, by three handles that know nothing of each other: limits hold at every
//! instant, keys make one thing, and of those who want the same change exactly one has it.

use std::{collections::HashSet, time::Duration};

use lyceum::{
    admission::Admission,
    db::{
        Db, Error,
        admit::{AdmissionMode, AdmissionOutcome, NewSession, Verdict},
        idempotency::{EarlierResult, IdempotentRequest},
        limits::GroupFlags,
        quotas::Level,
        sessions::Ending,
        tokens::Token,
        users::{NewUser, SignIn},
    },
    model::{
        Capacity, Clock, EndReason, GroupName, Inventory, Role, Session, SessionId, SessionState, TokenId, UserId,
        Username,
        quota::{Change, Field, Kind, Period, Usage},
        size::GIB,
    },
};
use tokio::{task::JoinSet, time::Instant};

use super::{
    BY, NOTED, START, add_user, admitted, asking, each, extended, inventory, judge, new_session, number, on_both,
    running, set_limits,
    whole::{assert_whole, intervals, intervals_of, peak},
};
use crate::wait::PATIENCE;

const RACERS: usize = 50;
const MACHINE: i64 = 5;
const EACH: i64 = 2;

/// 200 requests of four people for five GPUs, at most two each; half of what is admitted ends
/// at once, the rest when all have asked, and what waits is admitted as others end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limits_hold_at_every_instant() {
    on_both(async |house| {
        let dbs = house.three().await;
        let db = &house.db;
        let limits = [(Field::Gpus, EACH), (Field::Sessions, 1000), (Field::Pending, 1000)];
        let limits = each(limits.map(|(field, value)| (field, Some(value))));
        set_limits(db, Level::Default, &limits, GroupFlags::default()).await;
        let mut users = Vec::new();
        for name in ["a", "b", "c", "d"] {
            users.push(add_user(db, name).await);
        }

        let mut asking = JoinSet::new();
        for number in 0..200 {
            let admission = admission(&dbs[number % 3]);
            let owner = users[number % users.len()];
            asking.spawn(async move {
                let new = new_session(owner, 1);
                match patiently(|| admission.insert(&new)).await {
                    AdmissionOutcome::Judged(Verdict::Admit { gpus }) => {
                        assert_eq!(gpus.len(), 1);
                        if number % 2 == 0 {
                            assert!(end(&admission.db, new.id).await);
                        }
                    }
                    AdmissionOutcome::Judged(Verdict::Wait(reasons)) => assert!(!reasons.is_empty()),
                    other => panic!("{other:?}"),
                }
            });
        }
        asking.join_all().await;

        let mut ending = JoinSet::new();
        for db in &dbs {
            ending.spawn(serve_all(admission(db)));
        }
        ending.join_all().await;

        assert_whole(db).await;
        let intervals = intervals(db).await;
        assert_eq!(intervals.len(), 200);
        assert!(intervals.iter().all(|(.., end)| end.is_some()));
        assert_eq!(peak(&intervals, |_| true), MACHINE, "everybody's");
        for user in users {
            let user = user.to_string();
            assert!(peak(&intervals, |(owner, ..)| *owner == user) <= EACH, "one person's");
        }
        let gpus: HashSet<&String> = intervals.iter().map(|(_, _, gpus, ..)| gpus).collect();
        assert_eq!(gpus.len(), usize::try_from(MACHINE).unwrap());
        for gpu in gpus {
            assert_eq!(peak(&intervals, |(_, _, gpus, ..)| gpus == gpu), 1, "{gpu} has two holders");
        }
    })
    .await;
}

/// 1000 requests of fifty people over three groups with totals of their own, by portals that
/// begin anew all the time: neither a group, nor a person, nor the machine ever holds too much,
/// and in the end nothing is still reserved.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn totals_of_groups_hold_at_every_instant() {
    on_both(async |house| {
        let db = &house.db;
        let limits = each([(Field::Gpus, Some(1)), (Field::Sessions, Some(1000)), (Field::Pending, Some(2))]);
        set_limits(db, Level::Default, &limits, GroupFlags::default()).await;
        let mut groups = Vec::new();
        for (name, most) in [("one", 1), ("two", 2), ("three", 3)] {
            let group = db.add_group(&GroupName::parse(name).unwrap(), None, BY).await.unwrap();
            let total = [Change::new(Kind::Total, Field::Gpus, Some(most))];
            let marks = GroupFlags { chargeable: Some(true), restrictive: None };
            set_limits(db, Level::Group(group), &total, marks).await;
            groups.push((group, most));
        }
        let mut users = Vec::new();
        for number in 0..50 {
            let user = add_user(db, &format!("user{number}")).await;
            for (group, _) in &groups {
                db.set_member(*group, user, true, BY).await.unwrap();
            }
            users.push(user);
        }

        for portal in 0..10 {
            // Each hundred is asked of a portal that has just started.
            let admission = admission(&house.again().await);
            let mut asking = JoinSet::new();
            for number in (portal * 100)..(portal * 100 + 100) {
                let new = NewSession {
                    charged_group: Some(groups[number % 3].0),
                    ..new_session(users[number % users.len()], 1)
                };
                let admission = admission.clone();
                asking.spawn(async move {
                    if let AdmissionOutcome::Judged(Verdict::Admit { .. }) = patiently(|| admission.insert(&new)).await
                    {
                        assert!(end(&admission.db, new.id).await);
                    }
                });
            }
            asking.join_all().await;
        }
        let mut ending = JoinSet::new();
        for db in house.three().await {
            ending.spawn(serve_all(admission(&db)));
        }
        ending.join_all().await;

        assert_whole(db).await;
        let all = intervals(db).await;
        assert!(all.len() > 100, "{} were let in", all.len());
        assert!(peak(&all, |_| true) <= MACHINE, "everybody's");
        for user in users {
            let user = user.to_string();
            assert!(peak(&all, |(owner, ..)| *owner == user) <= 1, "one person's");
        }
        for (group, most) in groups {
            let charged = intervals_of(db, &group.to_string()).await;
            assert!(!charged.is_empty());
            assert!(peak(&charged, |_| true) <= most, "a group's");
        }
        assert_eq!(db.holdings().await.unwrap().all, Usage::default(), "nothing is reserved any more");
    })
    .await;
}

fn admission(db: &Db) -> Admission {
    let capacity = Capacity { gpus: MACHINE, cpus: 1000, memory_bytes: 1000 * GIB };
    Admission {
        db: db.clone(),
        clock: Clock::System,
        stock: Inventory::new(capacity, inventory(MACHINE)),
        period: Period::default(),
        extend_while_others_wait: true,
        holds_at_once: true,
        zone: jiff::tz::TimeZone::UTC,
        blocked_gpus: lyceum::admission::BlockedGpus::default(),
        external_usage: lyceum::admission::external_usage::ExternalUsage::default(),
        slurm_limits: None,
    }
}

async fn end(db: &Db, id: SessionId) -> bool {
    let ending = Ending {
        reason: EndReason::Exited,
        exit_code: Some(0),
        signal: None,
        at: Clock::System.now(),
        detail: String::new(),
    };
    patiently(|| db.end_session(id, &ending)).await
}

/// Asks again while all connections are taken: on a full machine two hundred at once take longer than one may wait.
async fn patiently<T, A: Future<Output = lyceum::db::Result<T>>>(ask: impl Fn() -> A) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(Error::Query(sqlx::Error::PoolTimedOut)) => assert!(begun.elapsed() < PATIENCE, "no connection"),
            answer => return answer.unwrap(),
        }
    }
}

/// Ends what was admitted and admits what waits until nothing lives; several do it at once.
async fn serve_all(admission: Admission) {
    let deadline = Instant::now() + Duration::from_mins(10);
    loop {
        let live = admission.db.live_sessions().await.unwrap();
        if live.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{} still live", live.len());
        let (admitted, waiting): (Vec<_>, Vec<_>) = live.into_iter().partition(Session::is_admitted);
        for session in admitted {
            end(&admission.db, session.id).await;
        }
        // Whoever is next in order may be anywhere in the list.
        let mut room = MACHINE;
        for session in waiting {
            let asked = admission.reconsider(session.owner, session.id, &session.spec, session.class(), None);
            let verdict = asked.await.unwrap().verdict;
            room -= i64::from(matches!(verdict, Verdict::Admit { .. }));
            if room == 0 {
                break;
            }
        }
    }
}

/// Runs one thing [`RACERS`] times at once by three handles; what each had.
async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    dbs: &[Db; 3],
    run: impl Fn(Db) -> F,
) -> Vec<T> {
    let mut racers = JoinSet::new();
    for number in 0..RACERS {
        racers.spawn(run(dbs[number % 3].clone()));
    }
    racers.join_all().await
}

fn winners(answers: &[bool]) -> usize {
    answers.iter().filter(|won| **won).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_has_the_change() {
    on_both(async |house| {
        let (dbs, db) = (house.three().await, &house.db);
        let owner = add_user(db, "a").await;
        let later = START.plus_seconds(3600);

        let id = admitted(db, owner).await;
        let won = race(&dbs, move |db| async move { db.begin_start(id, START).await.unwrap() }).await;
        assert_eq!(winners(&won), 1, "begin_start");
        let won = race(&dbs, move |db| async move { db.mark_running(id, START, later).await.unwrap() }).await;
        assert_eq!(winners(&won), 1, "mark_running");
        let won = race(&dbs, move |db| async move { db.mark_opened(id, START).await.unwrap() }).await;
        assert_eq!(winners(&won), 1, "mark_opened");
        let warned = move |db: Db| async move {
            db.add_session_event_once(id, START, SessionState::Running, "5 min left").await.unwrap()
        };
        assert_eq!(winners(&race(&dbs, warned).await), 1, "add_session_event_once");
        let won =
            race(
                &dbs,
                move |db| async move { db.begin_stop(id, EndReason::Idle, START, "Idle", Some("a")).await.unwrap() },
            )
            .await;
        assert_eq!(winners(&won), 1, "begin_stop");
        let won = race(&dbs, move |db| async move { end(&db, id).await }).await;
        assert_eq!(winners(&won), 1, "end_session");

        let session = db.find_session(id).await.unwrap().unwrap();
        assert_eq!((session.opened_at, session.expires_at), (Some(START), Some(later)));
        let states: Vec<SessionState> =
            db.session_events(id, 0).await.unwrap().into_iter().map(|event| event.state).collect();
        let words = states.iter().map(SessionState::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(words, "queued starting running running stopping ended");
        assert_whole(db).await;
    })
    .await;
}

/// Those who want different things: whatever the order, the history tells it and adds up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opposite_wishes_leave_one_story() {
    on_both(async |house| {
        let (dbs, db) = (house.three().await, &house.db);
        let owner = add_user(db, "a").await;
        for _ in 0..5 {
            let (new, live) = (admitted(db, owner).await, running(db, owner).await);
            let mut all = JoinSet::new();
            for number in 0..RACERS {
                let db = dbs[number % 3].clone();
                all.spawn(async move {
                    match number % 5 {
                        0 => assert!(db.begin_start(new, START).await.is_ok()),
                        1 => assert!(db.begin_stop(new, EndReason::StoppedByOwner, START, "Stop", None).await.is_ok()),
                        2 => drop(extended(&db, live, 60, START).await),
                        3 => assert!(db.begin_stop(live, EndReason::TimeLimit, START, "Over", None).await.is_ok()),
                        _ if number == 44 => assert!(end(&db, live).await),
                        _ => db.add_session_event(new, START, SessionState::Stopping, "Seen").await.unwrap(),
                    }
                });
            }
            all.join_all().await;
            assert_eq!(db.find_session(live).await.unwrap().unwrap().state, SessionState::Ended);
            // It was asked to stop in any case, and the lines about it are numbered without a gap.
            assert_eq!(db.find_session(new).await.unwrap().unwrap().state, SessionState::Stopping);
            assert!(db.session_events(new, 0).await.unwrap().len() > 9);
        }
        let gaps = "SELECT COUNT(*) FROM (SELECT session_id FROM session_events GROUP BY session_id
                    HAVING COUNT(*) <> MAX(number)) gaps";
        assert_eq!(number(db, gaps).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_makes_one_thing() {
    on_both(async |house| {
        let (dbs, db) = (house.three().await, &house.db);
        let owner = add_user(db, "a").await;

        let answers = race(&dbs, move |db| async move {
            let mut new = new_session(owner, 0);
            new.idempotency = Some(("key".to_owned(), "hash".to_owned()));
            let id = new.id.to_string();
            let answer = db
                .admit(&asking(owner), AdmissionMode::Insert(&new), &Clock::System, judge(&inventory(0), 0))
                .await
                .unwrap();
            (id, answer)
        })
        .await;
        let made: Vec<&String> = answers
            .iter()
            .filter(|(_, answer)| matches!(answer, AdmissionOutcome::Judged(_)))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(made.len(), 1);
        for (id, answer) in &answers {
            let repeated = AdmissionOutcome::Repeated(EarlierResult {
                request_hash: "hash".to_owned(),
                created_id: made[0].clone(),
            });
            assert!(id == made[0] || *answer == repeated, "{answer:?}");
        }
        assert_eq!(number(db, "SELECT COUNT(*) FROM sessions").await, 1);

        let answers = race(&dbs, move |db| async move {
            let (token, once) = (token(owner), IdempotentRequest { user: owner, key: "token", request_hash: "hash" });
            db.add_token(&token, &token.id.to_string(), Some(once), &NOTED).await
        })
        .await;
        one_was_first(&answers);
        assert_eq!(number(db, "SELECT COUNT(*) FROM tokens").await, 1);

        let answers =
            race(&dbs, move |db| async move { db.add_idempotent(owner, "other", &earlier(), START).await }).await;
        one_was_first(&answers);
    })
    .await;
}

fn token(user: UserId) -> Token {
    Token {
        id: TokenId::new(),
        user,
        name: String::new(),
        scopes: Vec::new(),
        created_at: START,
        expires_at: START,
        last_used_at: None,
    }
}

fn earlier() -> EarlierResult {
    EarlierResult { request_hash: "hash".to_owned(), created_id: TokenId::new().to_string() }
}

fn one_was_first<T: std::fmt::Debug>(answers: &[Result<T, Error>]) {
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    let others = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(others.clone().all(|err| matches!(err, Error::Unique)), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn names_and_settings_have_one_first() {
    on_both(async |house| {
        let dbs = house.three().await;
        let answers = race(&dbs, |db| async move {
            let name = Username::parse("same").unwrap();
            let new =
                NewUser { name: &name, display_name: "", unix_name: None, role: Role::User, sign_in: SignIn::NotYet };
            db.add_user(new, BY).await
        })
        .await;
        one_was_first(&answers);

        let kept =
            race(&dbs, |db| async move { db.setting_or("id", &uuid::Uuid::now_v7().to_string()).await.unwrap() }).await;
        assert_eq!(kept.iter().collect::<HashSet<_>>().len(), 1, "one value is everybody's");

        let user = house.db.find_user_by_name("same").await.unwrap().unwrap().user.id;
        let before = house.db.access_generation().await.unwrap();
        race(&dbs, move |db| async move { db.remove_logins_of(user, &NOTED).await.unwrap() }).await;
        let after = house.db.access_generation().await.unwrap();
        assert_eq!(after - before, i64::try_from(RACERS).unwrap(), "each change of access raises it");
    })
    .await;
}
