//! Jobs from a shell: each start of one is written once, however often and by whomever it is told
//! of, and counts wherever the portal's own workloads do, in use, in budgets and in the
//! administrators' table.

use lyceum::{
    admission::{Admission, BlockedGpus, external_usage::ExternalUsage},
    db::{
        Db,
        admit::{AdmissionOutcome, NewSession, Verdict},
        facts::Committed,
        limits::GroupFlags,
        quota_table::{Order, QuotaTableFilter, TableFilter},
        quotas::Level,
        usage::{Sort, UsageFilter, UsageGrouping, UsageOwner},
    },
    model::{
        Capacity, Clock, Inventory, SessionId, Timestamp, UserId,
        queue::ShellJob,
        quota::{Change, ConsumedTime, Field, Kind, Period},
        session::{Accounting, Allocation, WorkloadStarts},
        size::GIB,
    },
};

use super::{
    BY, START, add_user, asking, each, inventory, number, on_both,
    quotas::{group, member},
    running, set_limits,
    whole::assert_consistent,
};

const HOUR: i64 = 3600;

static PERIOD: Period = Period::Rolling { days: 30 };

fn at(seconds: i64) -> Timestamp {
    START.plus_seconds(seconds)
}

/// One that holds two GPUs and four cores.
fn job(job: u32, from: i64, to: Option<i64>) -> ShellJob {
    let held = Allocation { start: at(from).0, from: at(from), to: to.map(at), gpus: 2, cpus: 4, memory_bytes: 8 };
    ShellJob {
        job,
        user: "ada".to_owned(),
        label: format!("train ({job})"),
        held,
        gpu_model: Some("a100".to_owned()),
        group: None,
        ends_by: None,
        session: None,
    }
}

/// Notes that somebody has a job that runs from a shell.
pub async fn noted(db: &Db, owner: UserId, from: Timestamp) {
    let job = job(7, 0, None);
    let held = Allocation { start: from.0, from, ..job.held };
    assert!(db.set_shell_job(owner, &ShellJob { held, ..job }).await.unwrap());
}

async fn rows(db: &Db) -> i64 {
    number(db, "SELECT COUNT(*) FROM intervals WHERE session_id IS NULL").await
}

/// GPU-seconds and core-seconds of the period.
async fn spent(db: &Db, owner: UserId, now: i64) -> (i64, i64) {
    let usage = db.usage(&asking(owner), at(now)).await.unwrap().usage;
    (usage.gpu_seconds, usage.cpu_seconds)
}

async fn used(db: &Db, by: UsageGrouping, now: i64) -> Vec<(String, i64, i64, i64)> {
    let asked = UsageFilter {
        by,
        whose: UsageOwner::Everybody,
        from: START,
        to: at(now),
        now: at(now),
        sort: Sort::Name,
        page: None,
    };
    let rows = db.used(&asked).await.unwrap().rows.into_iter();
    rows.map(|row| (row.name.to_string(), row.gpu_milliseconds / 1000, row.cpu_milliseconds / 1000, row.sessions))
        .collect()
}

#[tokio::test]
async fn each_start_is_written_once() {
    on_both(async |house| {
        let [db, other, _] = house.three().await;
        let ada = add_user(&db, "ada").await;
        let runs = ShellJob { ends_by: Some(at(HOUR)), ..job(7, 0, None) };
        for db in [&db, &other, &db] {
            assert!(db.set_shell_job(ada, &runs).await.unwrap());
        }
        assert_eq!(db.open_shell_jobs().await.unwrap(), [(7, runs.held)]);
        assert_eq!(used(&db, UsageGrouping::User, 60).await, [("ada".to_owned(), 120, 240, 1)]);
        // It was suspended for ten seconds, and may run for longer now.
        let held = Allocation { from: at(10), ..runs.held };
        let moved = ShellJob { held, ends_by: Some(at(2 * HOUR)), ..runs.clone() };
        assert!(other.set_shell_job(ada, &moved).await.unwrap());
        assert_eq!((rows(&db).await, spent(&db, ada, 60).await), (1, (2 * (2 * HOUR - 10), 4 * (2 * HOUR - 10))));

        // Nobody knew its end, which the accounts tell later.
        db.close_shell_job(7, at(0).0, at(50)).await.unwrap();
        db.close_shell_job(7, at(0).0, at(99)).await.unwrap();
        assert_eq!(used(&db, UsageGrouping::User, 60).await, [("ada".to_owned(), 80, 160, 1)]);
        let ended = ShellJob { held: Allocation { to: Some(at(55)), ..held }, ..job(7, 0, None) };
        for db in [&db, &other, &db] {
            assert!(db.set_shell_job(ada, &ended).await.unwrap());
            assert_eq!(
                used(db, UsageGrouping::User, 60).await,
                [("ada".to_owned(), 90, 180, 1)],
                "to whoever had read it before"
            );
        }
        assert_eq!((rows(&db).await, db.open_shell_jobs().await.unwrap()), (1, Vec::new()));
        // Its next start is another row, of the same job.
        assert!(db.set_shell_job(ada, &job(7, 60, Some(70))).await.unwrap());
        assert_eq!(used(&other, UsageGrouping::User, 99).await, [("ada".to_owned(), 110, 220, 1)]);
        let both = ConsumedTime { gpu_milliseconds: 20_000, cpu_milliseconds: 40_000 };
        for (whose, used) in [
            (UsageOwner::Person(ada), (1, both)),
            (UsageOwner::Everybody, (1, both)),
            (UsageOwner::ManagedBy(ada), (0, ConsumedTime::default())),
        ] {
            let found = db.used_from_shell(whose, at(50), at(65), at(99)).await.unwrap();
            assert_eq!((found.jobs, found.spent), used, "two starts of one job: {whose:?}");
        }

        // Old ones are forgotten, a few at a time.
        assert!(db.set_shell_job(ada, &job(8, 60, None)).await.unwrap());
        assert_eq!(db.forget_shell_jobs(at(55), 9).await.unwrap(), 0);
        assert_eq!(db.forget_shell_jobs(at(HOUR), 1).await.unwrap(), 1);
        assert_eq!(db.forget_shell_jobs(at(HOUR), 9).await.unwrap(), 1);
        assert_eq!(used(&other, UsageGrouping::User, 99).await, [("ada".to_owned(), 78, 156, 1)]);
        assert_consistent(&db).await;
    })
    .await;
}

#[tokio::test]
async fn the_portals_own_are_not_counted_twice() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let id = running(db, ada).await;
        let own = ShellJob { session: Some(id), ..job(7, 1, None) };
        // Nobody has learnt its number yet: its mark says whose it is.
        assert!(!db.set_shell_job(ada, &own).await.unwrap());
        let starts =
            WorkloadStarts { latest: 1, allocations: Vec::new(), accounting: Accounting::Unknown, job: Some(7) };
        db.set_starts(id, &WorkloadStarts { allocations: vec![Allocation { start: 1, ..own.held }], ..starts }, at(9))
            .await
            .unwrap();
        assert!(!db.set_shell_job(ada, &ShellJob { session: None, ..own.clone() }).await.unwrap());
        assert_eq!(rows(db).await, 0);
        // A mark that was copied into another job hides nothing, and a number is given again in the end.
        assert!(db.set_shell_job(ada, &ShellJob { job: 8, ..own.clone() }).await.unwrap());
        assert!(db.set_shell_job(ada, &job(7, 31 * 86_400, None)).await.unwrap());
        assert!(db.set_shell_job(ada, &ShellJob { session: Some(SessionId::new()), ..job(9, 1, None) }).await.unwrap());
        assert_eq!(rows(db).await, 3);
    })
    .await;
}

/// `admitted`, or why not.
async fn ask(admission: &Admission, new: &mut NewSession) -> String {
    new.id = SessionId::new();
    match admission.insert(new).await.unwrap() {
        AdmissionOutcome::Judged(Verdict::Admit { .. }) => "admitted".to_owned(),
        AdmissionOutcome::Judged(Verdict::Wait(reasons) | Verdict::Refuse(reasons)) => {
            reasons.into_iter().map(|reason| reason.code.to_string()).collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_runs_is_in_every_budget_up_to_its_end() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (member(db, "ada", &["vision"]).await, member(db, "bob", &["vision"]).await);
        let vision = group(db, "vision").await.id;
        let of_vision = |job| ShellJob { group: Some("vision".to_owned()), ..job };
        db.set_shell_job(ada, &of_vision(job(1, 0, Some(HOUR)))).await.unwrap();
        db.set_shell_job(ada, &of_vision(ShellJob { ends_by: Some(at(3 * HOUR)), ..job(2, HOUR, None) }))
            .await
            .unwrap();
        // It may run for ever: nobody knows more of it than what it has used.
        db.set_shell_job(bob, &ShellJob { group: Some("unknown".to_owned()), ..job(3, HOUR, None) }).await.unwrap();
        let now = 2 * HOUR;
        assert_eq!(spent(db, ada, now).await, (6 * HOUR, 12 * HOUR));
        assert_eq!(spent(db, bob, now).await, (2 * HOUR, 4 * HOUR));
        // It is told to those who manage the group.
        let boss = add_user(db, "boss").await;
        db.set_manager(vision, boss, true, BY).await.unwrap();
        let managed = db.used_from_shell(UsageOwner::ManagedBy(boss), START, at(now), at(now)).await.unwrap();
        let of_two = ConsumedTime { gpu_milliseconds: 4 * HOUR * 1000, cpu_milliseconds: 8 * HOUR * 1000 };
        assert_eq!((managed.jobs, managed.spent), (2, of_two));
        let committed = db.committed(PERIOD.window(at(now)), at(now)).await.unwrap();
        let rest = ConsumedTime { gpu_milliseconds: 2 * HOUR * 1000, cpu_milliseconds: 4 * HOUR * 1000 };
        assert_eq!(committed, [Committed { owner: ada, group: Some(vision), spent: rest }]);
        assert_eq!(
            used(db, UsageGrouping::Group, now).await,
            [(String::new(), 2 * HOUR, 4 * HOUR, 1), ("vision".to_owned(), 4 * HOUR, 8 * HOUR, 2),]
        );

        // A decision sees it: of the person's, the group's, and everybody's.
        let admission = Admission {
            db: db.clone(),
            clock: Clock::manual(at(now)),
            stock: Inventory::new(Capacity { gpus: 8, cpus: 1000, memory_bytes: 1000 * GIB }, inventory(8)),
            period: PERIOD.clone(),
            extend_while_others_wait: true,
            holds_at_once: false,
            zone: jiff::tz::TimeZone::UTC,
            blocked_gpus: BlockedGpus::default(),
            external_usage: ExternalUsage::default(),
            slurm_limits: None,
        };
        let mut asks = super::quotas::charged(ada, vision, 1);
        asks.spec.duration_seconds = HOUR;
        let total = |hours| [Change::new(Kind::Total, Field::GpuHours, Some(hours))];
        let person = |hours| each([(Field::GpuHours, Some(hours))]);
        set_limits(db, Level::User(ada), &person(6), GroupFlags::default()).await;
        assert_eq!(ask(&admission, &mut asks).await, "quota.gpu_hours.user");
        set_limits(db, Level::User(ada), &person(90), GroupFlags::default()).await;
        set_limits(db, Level::Group(vision), &total(6), GroupFlags::default()).await;
        assert_eq!(ask(&admission, &mut asks).await, "quota.gpu_hours.group");
        set_limits(db, Level::Group(vision), &total(90), GroupFlags::default()).await;
        set_limits(db, Level::Cluster, &total(8), GroupFlags::default()).await;
        assert_eq!(ask(&admission, &mut asks).await, "quota.gpu_hours.cluster");
        set_limits(db, Level::Cluster, &total(9), GroupFlags::default()).await;
        assert_eq!(ask(&admission, &mut asks).await, "admitted");
    })
    .await;
}

#[tokio::test]
async fn the_administrators_table_counts_them() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob, carol) = (add_user(db, "ada").await, add_user(db, "bob").await, add_user(db, "carol").await);
        running(db, ada).await;
        db.set_shell_job(bob, &job(1, 0, Some(600))).await.unwrap();
        db.set_shell_job(carol, &ShellJob { ends_by: Some(at(HOUR)), ..job(2, 0, None) }).await.unwrap();
        db.set_shell_job(carol, &job(3, 0, None)).await.unwrap();
        let now = at(900);
        let page = async |filter: &TableFilter| db.quota_table(filter, PERIOD.window(now), now).await.unwrap();
        let all = TableFilter { limit: 9, ..TableFilter::default() };
        for (line, user) in page(&all).await.iter().zip([ada, bob, carol]) {
            let usage = db.usage(&asking(user), now).await.unwrap().usage;
            assert_eq!((line.usage.gpu_seconds, line.usage.cpu_seconds), (usage.gpu_seconds, usage.cpu_seconds));
        }
        let lines = page(&all).await;
        assert_eq!(lines[1].usage.gpu_seconds, 1200);
        let carols = &lines[2].usage;
        assert_eq!((carols.gpus, carols.cpus, carols.memory_bytes, carols.jobs, carols.sessions), (4, 8, 16, 2, 0));
        assert_eq!(carols.gpu_seconds, 2 * HOUR + 1800);
        let names = async |only, sort| {
            // Page by page, as somebody reads it.
            let mut filter = TableFilter { only, sort, limit: 1, ..TableFilter::default() };
            let mut names = Vec::new();
            while let [line] = page(&filter).await.as_slice() {
                names.push(line.name.to_string());
                filter.after = Some(line.place(sort));
            }
            names.join(" ")
        };
        assert_eq!(names(QuotaTableFilter::Everybody, Order::Hours).await, "carol bob ada");
        assert_eq!(names(QuotaTableFilter::Everybody, Order::Gpus).await, "carol ada bob");
        assert_eq!(names(QuotaTableFilter::Active, Order::Name).await, "ada carol");
        assert_eq!(db.quota_strip().await.unwrap().gpus_allocated, 4);
    })
    .await;
}
