//! Who goes before whom among those that wait, through the database: for the machine, for what a
//! group or all may use together, and when maintenance is over; and what a workload holds that a
//! queue elsewhere has.

use lyceum::{
    admission::{Admission, Bar, BlockedGpus, external_usage::UserExternalUsage},
    db::{
        Db,
        admit::{AdmissionOutcome, NewSession, Verdict},
        limits::GroupFlags,
        quotas::Level,
    },
    model::{
        Capacity, Clock, EndReason, Inventory, Maintenance, SessionId, Timestamp, UserId, Window,
        gpus::Obstacle,
        queue::ShellJob,
        quota::{Change, Class, Field, Kind, Period, Reason, Request},
        session::{Accounting, Allocation, WorkloadStarts},
        size::GIB,
    },
};
use rustix::time::ClockId;

use super::{
    NOTED, START, add_user, each, inventory, new_session, on_both,
    quotas::{charged, end, group, member},
    set_limits,
    whole::assert_whole,
};

const HOUR: i64 = 3600;

pub fn admission(db: &Db, gpus: i64) -> Admission {
    Admission {
        db: db.clone(),
        clock: Clock::manual(START),
        stock: Inventory::new(Capacity { gpus, cpus: 1000, memory_bytes: 1000 * GIB }, inventory(gpus)),
        period: Period::default(),
        extend_while_others_wait: true,
        holds_at_once: true,
        zone: jiff::tz::TimeZone::UTC,
        blocked_gpus: BlockedGpus::default(),
        external_usage: lyceum::admission::external_usage::ExternalUsage::default(),
        slurm_limits: None,
    }
}

fn lasting(new: NewSession, seconds: i64) -> NewSession {
    let mut new = new;
    new.spec.duration_seconds = seconds;
    new
}

/// `admitted`, or why it waits.
pub async fn ask(admission: &Admission, new: &NewSession) -> String {
    let answer = admission.insert(new).await.unwrap();
    let AdmissionOutcome::Judged(verdict) = answer else { panic!("{answer:?}") };
    told(verdict)
}

fn told(verdict: Verdict) -> String {
    match verdict {
        Verdict::Admit { .. } => "admitted".to_owned(),
        Verdict::Wait(reasons) | Verdict::Refuse(reasons) => {
            reasons.into_iter().map(|reason| reason.code.to_string()).collect::<Vec<_>>().join(" ")
        }
    }
}

/// One look at all foretells what the transaction decides.
pub async fn again(admission: &Admission, owner: UserId, new: &NewSession) -> String {
    let session = admission.db.find_session(new.id).await.unwrap().unwrap();
    let foretold = admission.foresee(&admission.outlook().await.unwrap(), &session, None).unwrap();
    let decided = admission.reconsider(owner, new.id, &new.spec, Class::Session, None).await.unwrap();
    assert_eq!(foretold.as_ref(), Some(&decided));
    told(decided.verdict)
}

/// What waits, as the loop decides about it.
async fn in_order(admission: &Admission) -> Vec<SessionId> {
    let live = admission.db.live_sessions().await.unwrap();
    let waiting = live.into_iter().filter(|session| !session.is_admitted()).collect();
    admission.in_order(waiting).await.unwrap().into_iter().map(|session| session.id).collect()
}

/// Each person may have what they like; what binds is what they may have together.
async fn open(db: &Db) {
    set_limits(
        db,
        Level::Default,
        &each([(Field::Gpus, Some(-1)), (Field::Sessions, Some(-1))]),
        GroupFlags::default(),
    )
    .await;
}

#[tokio::test]
async fn a_large_request_does_not_starve_under_a_busy_total() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        let mut people = Vec::new();
        for name in ["bob", "ada", "eve", "mia"] {
            people.push(member(db, name, &["vision"]).await);
        }
        let [bob, ada, eve, mia] = people[..] else { panic!("four") };
        let vision = group(db, "vision").await.id;
        let total = [Change::new(Kind::Total, Field::Gpus, Some(4))];
        set_limits(db, Level::Group(vision), &total, GroupFlags { chargeable: Some(true), restrictive: None }).await;
        // The machine has room for everything.
        let admission = admission(db, 24);

        let running = charged(bob, vision, 2);
        assert_eq!(ask(&admission, &running).await, "admitted");
        admission.clock.advance(60);
        let large = charged(ada, vision, 4);
        assert_eq!(ask(&admission, &large).await, "quota.gpus.group");
        // Two of the group's four are free: what ends before the large one could start may have them.
        admission.clock.advance(60);
        let small = charged(eve, vision, 2);
        assert_eq!(ask(&admission, &small).await, "queue.order");
        let short = lasting(charged(mia, vision, 2), HOUR / 2);
        assert_eq!(ask(&admission, &short).await, "admitted");
        // Whom another purse pays for does not stand in its way.
        let elsewhere = add_user(db, "zoe").await;
        assert_eq!(ask(&admission, &new_session(elsewhere, 4)).await, "admitted");

        // All of it comes free, and small ones are quicker than whoever looks at those that wait.
        admission.clock.advance(HOUR / 2);
        for id in [running.id, short.id] {
            end(db, id, admission.clock.now()).await;
        }
        let late = charged(eve, vision, 1);
        assert_eq!(ask(&admission, &late).await, "queue.order");
        assert_eq!(again(&admission, eve, &small).await, "queue.order");
        assert_eq!(in_order(&admission).await, [large.id, small.id, late.id]);
        assert_eq!(again(&admission, ada, &large).await, "admitted");
        assert_eq!(again(&admission, eve, &small).await, "quota.gpus.group");

        // The same where all people have a total together.
        set_limits(db, Level::Cluster, &[Change::new(Kind::Total, Field::Gpus, Some(9))], GroupFlags::default()).await;
        let whole = new_session(mia, 9);
        assert_eq!(ask(&admission, &whole).await, "quota.gpus.cluster");
        // Behind the small one of the group, the large one has its place two hours and more from now.
        let long = lasting(new_session(elsewhere, 1), 3 * HOUR);
        assert_eq!(ask(&admission, &long).await, "queue.order", "it would still be there when the others have ended");
        assert_whole(db).await;
    })
    .await;
}

#[tokio::test]
async fn after_maintenance_the_order_is_the_fair_one() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        let (hog, ada, bob) = (add_user(db, "hog").await, add_user(db, "ada").await, add_user(db, "bob").await);
        let admission = admission(db, 4);
        let clock = &admission.clock;

        // Somebody has had all of it for an hour, and somebody else has it now.
        let before = new_session(hog, 4);
        assert_eq!(ask(&admission, &before).await, "admitted");
        clock.advance(HOUR);
        end(db, before.id, clock.now()).await;
        let running = new_session(bob, 4);
        assert_eq!(ask(&admission, &running).await, "admitted");
        let (greedy, modest) = (new_session(hog, 4), new_session(ada, 4));
        assert_eq!(ask(&admission, &greedy).await, "capacity.gpus");
        clock.advance(60);
        assert_eq!(ask(&admission, &modest).await, "capacity.gpus");
        let recent = db.recent_gpu_seconds(clock.now()).await.unwrap();
        let used = |user| recent.get(&user).copied().unwrap_or(0);
        assert_eq!((used(hog), used(ada), used(bob)), (4 * HOUR, 0, 4 * 60), "what is held counts up to now");

        let window = Window { from: Timestamp(0), to: None };
        let set = Maintenance { message: String::new(), window, drain_at: None, admins_may_start: true };
        assert!(db.set_maintenance(None, Some(&set), &NOTED).await.unwrap());
        for (owner, new) in [(hog, &greedy), (ada, &modest)] {
            assert_eq!(again(&admission, owner, new).await, "maintenance");
        }
        end(db, running.id, clock.now()).await;
        assert!(db.set_maintenance(Some(&set), None, &NOTED).await.unwrap());

        // Whoever is looked at first: the one who used less goes first.
        assert_eq!(in_order(&admission).await, [modest.id, greedy.id]);
        assert_eq!(again(&admission, hog, &greedy).await, "queue.order");
        assert_eq!(ask(&admission, &new_session(bob, 1)).await, "queue.order");
        assert_eq!(again(&admission, ada, &modest).await, "admitted");
        assert_eq!(again(&admission, hog, &greedy).await, "capacity.gpus");
    })
    .await;
}

/// What was handed in on a shell counts in the totals of the group that pays, and in the fair order.
#[tokio::test]
async fn what_runs_from_a_shell_holds_its_groups_share_and_its_owners_place() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        let (ada, bob) = (member(db, "ada", &["vision"]).await, member(db, "bob", &["vision"]).await);
        let vision = group(db, "vision").await.id;
        let marks = GroupFlags { chargeable: Some(true), restrictive: None };
        set_limits(db, Level::Group(vision), &[Change::new(Kind::Total, Field::Gpus, Some(4))], marks).await;
        let admission = admission(db, 24);
        let clock = &admission.clock;
        let begun = clock.now();
        let job = ShellJob {
            job: 7,
            user: "ada".to_owned(),
            label: "train (7)".to_owned(),
            held: Allocation { start: begun.0, from: begun, to: None, gpus: 3, cpus: 4, memory_bytes: GIB },
            gpu_model: None,
            group: Some("vision".to_owned()),
            ends_by: None,
            session: None,
        };
        assert!(db.set_shell_job(ada, &job).await.unwrap());
        let pays = db.group_that_pays(ada, "vision").await.unwrap();
        assert_eq!((pays, db.group_that_pays(ada, "nobody").await.unwrap()), (Some(vision), None));
        let mut held = UserExternalUsage { name: "ada".to_owned(), ..UserExternalUsage::default() };
        held.add(job.label.clone(), &job.resources(), pays);
        assert!(admission.external_usage.set([(ada, held.clone())].into()));
        assert!(!admission.external_usage.set([(ada, held)].into()), "it is the same");

        // One of the group's four is left; another purse is as full as it was.
        assert_eq!(admission.used_together(Some(vision)).await.unwrap().gpus, 3);
        let one = charged(bob, vision, 1);
        assert_eq!(ask(&admission, &one).await, "admitted");
        let (adas, bobs) = (charged(ada, vision, 1), charged(bob, vision, 1));
        assert_eq!(ask(&admission, &adas).await, "quota.gpus.group");
        assert_eq!(ask(&admission, &new_session(ada, 4)).await, "admitted");
        clock.advance(60);
        assert_eq!(ask(&admission, &bobs).await, "quota.gpus.group");

        // An hour of three GPUs from a shell puts ada behind bob, who asked later.
        clock.advance(HOUR);
        let recent = db.recent_gpu_seconds(clock.now()).await.unwrap();
        assert_eq!((recent[&ada], recent[&bob]), (7 * (HOUR + 60), HOUR + 60));
        assert_eq!(in_order(&admission).await, [bobs.id, adas.id]);
        assert!(admission.external_usage.set([].into()));
        assert_eq!(again(&admission, bob, &bobs).await, "admitted");
        assert_eq!(again(&admission, ada, &adas).await, "admitted");
        // Decided already: nobody waits.
        let session = db.find_session(adas.id).await.unwrap().unwrap();
        assert_eq!(admission.foresee(&admission.outlook().await.unwrap(), &session, None).unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn what_a_queue_elsewhere_has_is_promised_and_not_used() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        let ada = add_user(db, "ada").await;
        set_limits(db, Level::User(ada), &each([(Field::GpuHours, Some(5))]), GroupFlags::default()).await;
        let admission = Admission { holds_at_once: false, ..admission(db, 8) };
        let clock = &admission.clock;
        let first = new_session(ada, 4);
        assert_eq!(ask(&admission, &first).await, "admitted");
        let spent = async || {
            let asking = super::asking(ada);
            (db.usage(&asking, clock.now()).await.unwrap().usage.gpu_seconds, db.open_intervals().await.unwrap().len())
        };
        assert_eq!(spent().await, (4 * HOUR, 0), "all that it may use");
        // However long it waits there, that is no use.
        clock.advance(5 * HOUR);
        assert_eq!(spent().await, (4 * HOUR, 0));
        assert_eq!(ask(&admission, &lasting(new_session(ada, 2), HOUR)).await, "quota.gpu_hours.user");

        // It has begun a minute ago, and was given more than it asked for.
        let begun = clock.now().plus_seconds(-60);
        let held = Allocation { start: 1, from: begun, to: None, gpus: 5, cpus: 8, memory_bytes: GIB };
        let set = async |id, held| {
            let starts =
                WorkloadStarts { latest: 1, allocations: vec![held], accounting: Accounting::Unknown, job: Some(7) };
            db.set_starts(id, &starts, clock.now()).await.unwrap();
        };
        set(first.id, held).await;
        assert!(db.begin_start(first.id, begun).await.unwrap());
        assert_eq!(spent().await, (5 * HOUR, 1));
        // A quarter of an hour of it was suspended.
        clock.advance(HOUR / 2);
        set(first.id, Allocation { from: begun.plus_seconds(HOUR / 4), ..held }).await;
        end(db, first.id, clock.now()).await;
        let used = 5 * (HOUR / 2 + 60 - HOUR / 4);
        assert_eq!(spent().await, (used, 0));
        // What has ended stays as it is, and what was never begun was never held.
        set(first.id, Allocation { gpus: 1, ..held }).await;
        let second = new_session(ada, 0);
        assert_eq!(ask(&admission, &second).await, "admitted");
        end(db, second.id, clock.now()).await;
        set(second.id, held).await;
        assert_eq!(spent().await, (used, 0));

        // No clock of anybody's makes it hold something before it was admitted.
        let third = new_session(ada, 0);
        assert_eq!(ask(&admission, &third).await, "admitted");
        set(third.id, Allocation { from: Timestamp(0), gpus: 1, ..held }).await;
        clock.advance(60);
        end(db, third.id, clock.now()).await;
        assert_eq!(spent().await, (used + 60, 0));
    })
    .await;
}

/// As long as nothing has changed, the loop need not decide again about those who wait.
#[tokio::test]
async fn looks_are_alike_until_something_changes() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        let ada = member(db, "ada", &["vision"]).await;
        let admission = admission(db, 1);
        let (first, second) = (new_session(ada, 1), new_session(ada, 1));
        assert_eq!(ask(&admission, &first).await, "admitted");
        assert_eq!(ask(&admission, &second).await, "capacity.gpus");
        let look = async || admission.outlook().await.unwrap().digest;
        let mut seen = look().await;
        admission.clock.advance(5);
        assert_eq!(look().await, seen, "time alone is nothing new");
        let refused = admission.insert(&new_session(ada, 9)).await.unwrap();
        assert!(matches!(refused, AdmissionOutcome::Judged(Verdict::Refuse(_))), "{refused:?}");
        assert_eq!(look().await, seen, "what is refused at once takes nothing");
        let mut differs = async |what: &str| {
            let now = look().await;
            assert_ne!(std::mem::replace(&mut seen, now), now, "{what}");
        };
        admission.stock.set(Capacity { gpus: 1, cpus: 999, memory_bytes: 1000 * GIB }, inventory(1));
        differs("another size of the cluster").await;
        let bar = Bar { obstacle: Obstacle::Down, is_held: true };
        admission.blocked_gpus.add("GPU-0", bar);
        differs("a GPU that is not given out").await;
        set_limits(db, Level::User(ada), &each([(Field::Cpus, Some(500))]), GroupFlags::default()).await;
        differs("a limit").await;
        assert_eq!(ask(&admission, &new_session(ada, 0)).await, "admitted");
        differs("an admission").await;
        db.end_waiting(second.id, EndReason::Refused, &[], admission.clock.now(), "why", None).await.unwrap();
        differs("the refusal of one that waited").await;
        end(db, first.id, admission.clock.now()).await;
        differs("an end").await;
    })
    .await;
}

/// What would happen is said however long somebody else writes.
#[tokio::test]
async fn previews_wait_for_no_write_lock() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        let ada = member(db, "ada", &["vision"]).await;
        let admission = admission(db, 1);
        let (first, second) = (new_session(ada, 1), new_session(ada, 1));
        assert_eq!(ask(&admission, &first).await, "admitted");
        assert_eq!(ask(&admission, &second).await, "capacity.gpus");
        let request = Request {
            resources: second.spec.resources.clone(),
            duration_seconds: second.spec.duration_seconds,
            class: Class::Session,
        };
        let session = db.find_session(second.id).await.unwrap().unwrap();
        let previews = async {
            let rehearsed = admission.rehearse(ada, None, &request).await.unwrap();
            assert_eq!(told(rehearsed.verdict), "capacity.gpus");
            let foretold = admission.foresee(&admission.outlook().await.unwrap(), &session, None).unwrap();
            assert_eq!(told(foretold.unwrap().verdict), "capacity.gpus");
            assert_eq!(admission.rehearse_extension(first.id, None).await.unwrap(), None, "it does not run yet");
        };
        let previews = tokio::time::timeout(std::time::Duration::from_secs(20), previews);
        match db {
            Db::Sqlite { write, .. } => {
                let _locked = write.begin_with("BEGIN IMMEDIATE").await.unwrap();
                previews.await
            }
            Db::Postgres { write, .. } => {
                let mut locked = write.begin().await.unwrap();
                sqlx::query("SELECT pg_advisory_xact_lock(5461726)").execute(&mut *locked).await.unwrap();
                previews.await
            }
        }
        .expect("nobody waits for the lock");
    })
    .await;
}

/// The processor time that deciding about all who wait takes (the shortest of three times), and what is foreseen.
async fn look_at_all(admission: &Admission) -> (std::time::Duration, Vec<(SessionId, Vec<Reason>)>) {
    let live = admission.db.live_sessions().await.unwrap();
    let waiting: Vec<_> = live.into_iter().filter(|session| !session.is_admitted()).collect();
    let mut shortest = std::time::Duration::MAX;
    let mut found = Vec::new();
    // Other work on the machine does not count.
    let time = || std::time::Duration::try_from(rustix::time::clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    for _ in 0..3 {
        let began = time();
        let outlook = admission.outlook().await.unwrap();
        let foreseen = waiting.iter().map(|session| {
            let rehearsal = admission.foresee(&outlook, session, None).unwrap().expect("it waits");
            let Verdict::Wait(reasons) = rehearsal.verdict else { panic!("{rehearsal:?}") };
            assert!(rehearsal.estimated_start.is_some(), "what is held has an end");
            (session.id, reasons)
        });
        found = foreseen.collect();
        shortest = shortest.min(time().saturating_sub(began));
    }
    (shortest, found)
}

#[tokio::test]
async fn deciding_about_all_who_wait_grows_with_them_and_no_faster() {
    on_both(async |house| {
        let db = &house.db;
        open(db).await;
        set_limits(db, Level::Default, &each([(Field::Pending, Some(-1))]), GroupFlags::default()).await;
        let mut people = Vec::new();
        for number in 0..40 {
            people.push(member(db, &format!("user{number}"), &["vision"]).await);
        }
        let admission = admission(db, 8);
        let mut held = Vec::new();
        for owner in &people[..8] {
            held.push(new_session(*owner, 1));
            assert_eq!(ask(&admission, held.last().unwrap()).await, "admitted");
        }
        let first = new_session(people[0], 2);
        assert_eq!(ask(&admission, &first).await, "capacity.gpus");
        // Rows like the first one, of everybody.
        let add = async |numbers: std::ops::Range<i64>| {
            for number in numbers {
                let owner = people[usize::try_from(number).unwrap() % people.len()];
                let (id, at) = (SessionId::new(), START.plus_seconds(number).0);
                let copied = "app, name, state, spec, gpus, cpus, memory_bytes, light, gpu_list, reasons, cluster, extensions, \
                              duration_seconds, gpu_model";
                let sql = format!(
                    "INSERT INTO sessions (id, owner, created_at, {copied}) SELECT '{id}', '{owner}', {at}, {copied}
                     FROM sessions WHERE id = '{}'",
                    first.id
                );
                super::execute(db, &sql).await;
            }
        };
        add(0..150).await;
        let (few, _) = look_at_all(&admission).await;
        add(150..1200).await;
        let (many, reasons) = look_at_all(&admission).await;
        println!("151 wait: {few:?}, 1201 wait: {many:?}");
        assert!(many < few * 24, "8 times as many: {few:?} and {many:?}");

        // One holder ends: all of them are told that one is free, in one go.
        end(db, held[0].id, admission.clock.now()).await;
        let (_, after) = look_at_all(&admission).await;
        assert!(after.iter().zip(&reasons).all(|((one, now), (other, before))| one == other && now != before));
        assert_eq!(db.note_reasons(&after).await.unwrap().len(), 1201);
        assert!(db.note_reasons(&after).await.unwrap().is_empty(), "it is noted already");
        let live = db.live_sessions().await.unwrap();
        assert!(after.iter().all(|(id, reasons)| live.iter().any(|one| one.id == *id && one.reasons == *reasons)));
        // Who is let in or has ended meanwhile keeps what it has.
        db.end_waiting(first.id, EndReason::Refused, &[], admission.clock.now(), "why", None).await.unwrap();
        let stale = (first.id, vec![super::sessions::reason("late")]);
        assert!(db.note_reasons(&[stale, (held[1].id, Vec::new())]).await.unwrap().is_empty());
    })
    .await;
}
