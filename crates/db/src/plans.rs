//! How SQLite means to answer the queries that run often: by an index, never by reading the
//! whole history of sessions. Clocks differ from machine to machine; plans do not.

use sqlx::{AssertSqlSafe, query_as};

use super::{
    Config, Db, audit, events, facts, gpus,
    groups::{self, Audience, GroupFilter},
    holds, intervals, invitations,
    jobs::{self, JobFilter},
    limits_and_usage, notifications,
    ordering::{SortBy, SortColumn},
    outlook,
    people::{self, PeopleFilter, PeoplePosition, Sort},
    quota_table::{self, Order, QuotaTableFilter, QuotaTablePosition, TableFilter},
    quotas, retention, runs, sessions,
    sessions::Filter,
    shell_jobs, sweeps, trash, usage, users,
};
use lyceum_model::{GroupId, SessionId, SessionState, Timestamp, UserId, user::State};

/// The steps of a plan: SCAN reads everything (that an index holds), SEARCH what is asked for.
async fn plan(db: &Db, sql: &str) -> String {
    let Db::Sqlite { read, .. } = db else { panic!("not SQLite") };
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let steps: Vec<(i64, i64, i64, String)> = query_as(AssertSqlSafe(sql)).fetch_all(read).await.unwrap();
    steps.into_iter().map(|(.., step)| step).collect::<Vec<_>>().join("\n")
}

/// A text that rows have as a whole or begin with, and how many.
fn wanted_of(&(column, is_whole, rows): &(&'static str, bool, i64)) -> audit::Wanted {
    audit::Wanted { column, place: "$3", is_whole, rows }
}

#[tokio::test]
async fn no_query_reads_the_whole_history() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();

    let live = [facts::LIVE.to_owned(), sessions::live(&db)];
    let all = Filter { limit: 50, before: Some(SessionId::new()), ..Filter::default() };
    let mine = Filter { owner: Some(UserId::new()), ..all };
    let by_state = |state| sessions::list(&db, &Filter { state: Some(state), ..all });
    let live_lists = [sessions::list(&db, &Filter { live_only: true, ..all }), by_state(SessionState::Running)];
    for sql in live.iter().chain(&live_lists) {
        let plan = plan(&db, sql).await;
        // Either index of live sessions will do.
        let is_quick = ["sessions_live", "sessions_owner_live"].iter().any(|index| plan.contains(index));
        assert!(is_quick, "{sql}\n{plan}");
        assert!(!plan.contains("B-TREE"), "it sorts:\n{sql}\n{plan}");
    }

    let own_live = plan(&db, &sessions::list(&db, &Filter { live_only: true, ..mine })).await;
    assert!(own_live.contains("USING INDEX sessions_owner_live (owner=? AND id<?)"), "{own_live}");

    let plan_of_open = plan(&db, intervals::OPEN).await;
    assert!(plan_of_open.contains("USING INDEX intervals_open"), "{plan_of_open}");

    let plan_of_mine = plan(&db, &sessions::list(&db, &mine)).await;
    assert!(plan_of_mine.contains("USING INDEX sessions_owner (owner=? AND id<?)"), "{plan_of_mine}");
    // The newest of all, and of those that ended, are found from the end of the table on.
    for sql in [sessions::list(&db, &all), sessions::list(&db, &mine), by_state(SessionState::Ended)] {
        let plan = plan(&db, &sql).await;
        assert!(!plan.contains("SCAN") && !plan.contains("B-TREE"), "{sql}\n{plan}");
    }

    let audit = |wanted: &[audit::Wanted]| audit::list(&db, &audit::Filter::default(), wanted);
    let (few, many) = (10, 5_000);
    for (wanted, index) in [
        (&[][..], "audit_at ("),
        (&[("actor", true, many), ("action", true, many)], "audit_actor (<expr>=? AND"),
        (&[("actor", true, many), ("action", true, few)], "audit_action (<expr>=? AND"),
        (&[("action", true, few)], "audit_action (<expr>=? AND"),
        (&[("subject", true, few), ("actor", true, many)], "audit_subject (<expr>=? AND"),
        (&[("address", true, few), ("action", true, many)], "audit_address (<expr>=? AND"),
        // By a beginning of many rows the latest are gone through, in their order.
        (&[("actor", false, many)], "audit_at ("),
        (&[("subject", false, many), ("actor", true, many)], "audit_actor (<expr>=? AND"),
    ] {
        let wanted: Vec<_> = wanted.iter().map(wanted_of).collect();
        let (sql, plan) = (audit(&wanted), plan(&db, &audit(&wanted)).await);
        assert!(plan.contains(index) && !plan.contains("B-TREE"), "{sql}\n{plan}");
    }
    for (column, index) in [
        ("actor", "audit_actor (<expr>>? AND <expr><?)"),
        ("action", "audit_action (<expr>>? AND <expr><?)"),
        ("subject", "audit_subject (<expr>>? AND <expr><?)"),
        ("address", "audit_address (<expr>>? AND <expr><?)"),
    ] {
        // Few that begin so are found by the beginning, however many rows others have.
        let wanted = [(column, false, few), ("detail", true, many)].map(|one| wanted_of(&one));
        for sql in [audit(&wanted[..1]), audit(&wanted), audit::count(&db, column, false)] {
            let plan = plan(&db, &sql).await;
            let scans = plan.replace("SCAN found", "").contains("SCAN");
            let sorts_all = sql.contains("COUNT") && plan.contains("B-TREE");
            assert!(plan.contains(index) && !scans && !sorts_all, "{sql}\n{plan}");
        }
    }
    let whole = plan(&db, &audit::count(&db, "subject", true)).await;
    assert!(whole.contains("audit_subject (<expr>=?)") && !whole.contains("B-TREE"), "{whole}");
    let plan_of_old = plan(&db, retention::OLD).await;
    assert!(plan_of_old.contains("sessions_ended (ended_at<?)"), "{plan_of_old}");

    for sql in [gpus::HOLDINGS, facts::RECENT] {
        let plan = plan(&db, sql).await;
        assert!(!plan.contains("SCAN intervals"), "{plan}");
    }

    for sql in [
        gpus::POINTS,
        quotas::OF_PERSON,
        quotas::SHARES,
        limits_and_usage::CLOSED_OF_PERSON,
        limits_and_usage::GPUS_OF_PERSON,
        limits_and_usage::CLOSED_OF_GROUP,
        limits_and_usage::CLOSED_OF_MEMBERS,
        limits_and_usage::CLOSED,
        sessions::ADD_EVENT,
        events::AFTER,
        intervals::CLOSE,
        invitations::OF_GROUP,
        invitations::OF_PERSON,
        shell_jobs::IS_OWN,
        shell_jobs::KNOWN,
        shell_jobs::DELETE_OLD,
        shell_jobs::OPEN,
        shell_jobs::CHARGED,
        limits_and_usage::FROM_SHELL,
        facts::RUNNING,
        retention::OLD_FROM_SHELL,
        trash::OLD_JOBS,
        trash::OLD_RUNS,
        trash::JOBS_OF_OWNER,
        trash::RUNS_OF_OWNER,
        trash::COUNT,
        trash::FORGET_JOB,
        "SELECT 1 FROM logins WHERE session_hash = 'x'",
        "SELECT 1 FROM tokens WHERE secret_hash = 'x'",
        "SELECT 1 FROM users WHERE name = 'x'",
        users::OWNER_OF_ACCOUNT,
        "SELECT 1 FROM idempotency WHERE user_id = 'x' AND key = 'x'",
    ] {
        let plan = plan(&db, sql).await;
        // Two counts side by side are one row, which is no table's.
        let of_tables = plan.replace("SCAN CONSTANT ROW", "");
        assert!(of_tables.contains("SEARCH") && !of_tables.contains("SCAN"), "{sql}\n{plan}");
    }
}

/// What runs in every round, with every start or on the home page: each step is a search, or goes through what lives.
#[tokio::test]
async fn no_round_reads_what_grows() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();
    let jobs = |filter: JobFilter<'_>| jobs::list(&db, &JobFilter { limit: 50, ..filter }, true, false);
    let (me, running) = (Some(UserId::new()), Some(SessionState::Running));
    let statements = [
        outlook::LIMITS.to_owned(),
        outlook::CLOSED_OF_WAITING.to_owned(),
        outlook::GROUPS.to_owned(),
        outlook::PEOPLE.to_owned(),
        outlook::set_reasons(2),
        holds::WAITING.to_owned(),
        holds::DEPENDENCIES_OF_WAITING.to_owned(),
        notifications::running_jobs(),
        notifications::ADD.to_owned(),
        jobs(JobFilter { owner: me, live_only: true, ..JobFilter::default() }),
        jobs(JobFilter { owner: me, state: running, ..JobFilter::default() }),
        jobs(JobFilter { state: running, ..JobFilter::default() }),
        jobs(JobFilter { owner: me, ..JobFilter::default() }),
        "DELETE FROM notifications WHERE at < 1".to_owned(),
        "DELETE FROM notification_events WHERE at < 1".to_owned(),
        "DELETE FROM idempotency WHERE created_at < 1".to_owned(),
        "SELECT 1 FROM model_tests WHERE owner = 'x'".to_owned(),
        "SELECT 1 FROM notification_events WHERE user_id = 'x'".to_owned(),
    ];
    for sql in statements {
        let plan = plan(&db, &sql).await;
        // These hold what lives, what somebody sets, or what the statement itself brings.
        let small = [
            "sessions_live",
            "sessions_owner_live",
            "quota_limits",
            "groups",
            "ROW",
            "parts",
            "VALUES",
            "(subquery",
            "n",
        ];
        let is_small = |step: &str| step.split_whitespace().any(|word| small.contains(&word));
        let scans: Vec<&str> = plan.lines().filter(|step| step.contains("SCAN") && !is_small(step)).collect();
        assert!(scans.is_empty(), "{scans:?} in\n{sql}\n{plan}");
    }
}

/// Lists of what a reader may see of others', and of sessions by a filter: by the index that is named.
#[tokio::test]
async fn a_filtered_list_is_read_by_its_index() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();
    let reader = Some(UserId::new());
    let everybody = Filter { limit: 50, ..Filter::default() };
    let own = Filter { owner: Some(UserId::new()), ..everybody };
    let moment = Some(Timestamp(1));
    let lost = Some(lyceum_model::EndReason::OutOfMemory);
    let run = runs::Filter { reader, owner: None, find: "", with_helpers: false, before: None, limit: 50 };
    let job = JobFilter { reader, limit: 50, ..JobFilter::default() };
    for (sql, indexes) in [
        (runs::list(&run, None), &["runs_owner_work (owner=? AND id<?)", "runs_shared (id<?)"][..]),
        (runs::list(&runs::Filter { owner: Some("x"), ..run }, None), &["runs_owner_work (owner=? AND id<?)"]),
        (runs::list(&runs::Filter { reader: None, ..run }, None), &["sqlite_autoindex_runs_1 (id<?)"]),
        (runs::list(&runs::Filter { with_helpers: true, ..run }, None), &["runs_owner (owner=? AND id<?)"]),
        (
            jobs::list(&db, &JobFilter { with_helpers: true, ..job }, true, false),
            &["jobs_owner (owner=? AND id<?)", "jobs_shared (id<?)"],
        ),
        (jobs::list(&db, &job, true, false), &["jobs_owner_work (owner=? AND id<?)", "jobs_shared (id<?)"]),
        (
            jobs::list(&db, &JobFilter { find: "x", owner: reader, reader: None, ..job }, true, false),
            &["jobs_owner_work (owner=? AND id<?)"],
        ),
        (
            jobs::list(&db, &JobFilter { tag: Some("x"), ..job }, true, false),
            &["sqlite_autoindex_job_tags_1 (tag=? AND owner=? AND job_id<?)", "job_tags_tag (tag=? AND job_id<?)"],
        ),
        (
            jobs::list(&db, &JobFilter { group: Some("x"), ..job }, true, false),
            &[
                "sessions_charged_owner (charged_group=? AND owner=? AND job_id<?)",
                "sessions_charged (charged_group=? AND job_id<?)",
            ],
        ),
        (
            jobs::list(&db, &JobFilter { group: Some("x"), ..job }, false, false),
            &["jobs_owner_work (owner=? AND id<?)"],
        ),
        (jobs::list(&db, &JobFilter { owner: reader, ..job }, true, false), &["jobs_owner_work (owner=?"]),
        (
            jobs::list(&db, &JobFilter { tag: Some("x"), reader: None, ..job }, true, false),
            &["job_tags_tag (tag=? AND job_id<?)"],
        ),
        (
            jobs::list(&db, &JobFilter { tag: Some("x"), owner: reader, reader: None, ..job }, true, false),
            &["sqlite_autoindex_job_tags_1 (tag=? AND owner=? AND job_id<?)"],
        ),
        (sessions::list(&db, &Filter { app: Some("x"), ..everybody }), &["sessions_app (app=? AND id<?)"]),
        (
            sessions::list(&db, &Filter { end_reason: lost, ..everybody }),
            &["sessions_end_reason (end_reason=? AND id<?)"],
        ),
        (sessions::list(&db, &Filter { ended_from: moment, ..everybody }), &["sessions_ended (ended_at>?"]),
        (
            sessions::list(&db, &Filter { app: Some("x"), end_reason: lost, ..own }),
            &["sessions_owner (owner=? AND id<?)"],
        ),
        (
            sessions::list(&db, &Filter { ended_from: moment, ended_before: moment, ..own }),
            &["sessions_owner (owner=? AND id<?)"],
        ),
        (
            sessions::list(&db, &Filter { sessions_only: true, state: Some(SessionState::Ended), ..own }),
            &["sessions_owner_interactive (owner=? AND id<?)"],
        ),
        (sessions::list(&db, &Filter { sessions_only: true, ..everybody }), &["sessions_interactive (id<?)"]),
        (
            sessions::list(&db, &Filter { sessions_only: true, app: Some("x"), ..everybody }),
            &["sessions_program (app=? AND id<?)"],
        ),
        (
            "DELETE FROM logins WHERE expires_at <= 1 OR last_seen_at <= 2".to_owned(),
            &["logins_expires", "logins_last_seen"],
        ),
    ] {
        let plan = plan(&db, &sql).await;
        // What a part has found, 50 ids at most, is gone through.
        let scans = plan.lines().filter(|step| step.contains("SCAN") && !step.contains("SCAN part"));
        assert_eq!(scans.collect::<Vec<_>>(), Vec::<&str>::new(), "{sql}\n{plan}");
        for index in indexes {
            assert!(plan.contains(index), "without {index}:\n{sql}\n{plan}");
        }
    }
}

/// The greatest first, from a value on.
fn sort(columns: &'static [SortColumn], name: &str, after: Option<&'static str>) -> SortBy<'static> {
    let column = columns.iter().find(|column| column.name == name).unwrap();
    SortBy { column, is_descending: true, after }
}

/// A list in the order of a column is read in that order, from where a page begins.
#[tokio::test]
async fn a_sorted_list_is_read_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();
    let owner = Some(UserId::new());
    let (job, one) = (JobFilter { limit: 50, ..JobFilter::default() }, SessionId::new());
    let listed = Filter { limit: 50, sessions_only: true, before: Some(one), ..Filter::default() };
    let swept = sweeps::SweepFilter { limit: 50, ..sweeps::SweepFilter::default() };
    let mut asked = Vec::new();
    for (name, own, everybodys) in [
        ("name", "jobs_owner_name (owner=?", "jobs_name ("),
        ("started", "attempts_owner_started (owner=?", "attempts_started ("),
        ("state", "attempts_owner_state (owner=?", "attempts_state ("),
        ("duration", "attempts_owner_duration (owner=?", "attempts_duration ("),
        ("gpus", "attempts_owner_gpus (owner=?", "attempts_gpus ("),
    ] {
        for after in [None, Some("1")] {
            let sort = Some(sort(&jobs::SORT_COLUMNS, name, after));
            asked.push((jobs::list(&db, &JobFilter { owner, sort, ..job }, true, false), own, true));
            let of_all = jobs::list(&db, &JobFilter { sort, ..job }, true, false);
            asked.push((of_all, everybodys, after.is_some()));
        }
    }
    for (name, own, everybodys) in [
        ("name", "sessions_owner_name (owner=?", "sessions_name ("),
        ("program", "sessions_owner_program (owner=?", "sessions_program ("),
        ("started", "sessions_owner_started (owner=?", "sessions_started ("),
        ("gpus", "sessions_owner_gpus (owner=?", "sessions_gpus ("),
    ] {
        for after in [None, Some("1")] {
            let sort = Some(sort(&sessions::SORT_COLUMNS, name, after));
            asked.push((sessions::list(&db, &Filter { owner, sort, ..listed }), own, true));
            asked.push((sessions::list(&db, &Filter { sort, ..listed }), everybodys, after.is_some()));
        }
    }
    let moment = Some(Timestamp(1));
    let ended = Filter { owner, ended_from: moment, ended_before: moment, sessions_only: false, ..listed };
    for after in [None, Some("1")] {
        let sort = Some(sort(&sessions::ENDED_SORT_COLUMNS, "ended", after));
        let index = "sessions_owner_ended (owner=? AND ended_at>? AND ended_at<?)";
        asked.push((sessions::list(&db, &Filter { sort, ..ended }), index, true));
    }
    for (name, own, everybodys) in [
        ("name", "sweeps_owner_name (owner=?", "sweeps_name ("),
        ("tasks", "sweeps_owner_tasks (owner=?", "sweeps_tasks ("),
    ] {
        for after in [None, Some("1")] {
            let sort = Some(sort(&sweeps::SORT_COLUMNS, name, after));
            asked.push((sweeps::list(&sweeps::SweepFilter { owner, sort, ..swept }), own, true));
            asked.push((sweeps::list(&sweeps::SweepFilter { sort, ..swept }), everybodys, after.is_some()));
        }
    }
    for (sql, index, is_searched) in asked {
        let plan = plan(&db, &sql).await;
        // The first page of everybody's begins where the index does.
        let index = if is_searched { index } else { index.trim_end_matches(" (") };
        assert!(plan.contains(index) && !plan.contains("B-TREE"), "without {index}:\n{sql}\n{plan}");
        assert!(!is_searched || !plan.contains("SCAN"), "{sql}\n{plan}");
    }
    let reader = Some(UserId::new());
    let shared = JobFilter { reader, sort: Some(sort(&jobs::SHARED_SORT_COLUMNS, "name", Some("1"))), ..job };
    let plan = plan(&db, &jobs::list(&db, &shared, true, false)).await;
    let scans = plan.lines().filter(|step| step.contains("SCAN") && !step.contains("SCAN part"));
    assert_eq!(scans.collect::<Vec<_>>(), Vec::<&str>::new(), "{plan}");
    assert!(plan.contains("jobs_owner_name (owner=?") && plan.contains("jobs_shared_name ("), "{plan}");
}

#[tokio::test]
async fn of_use_the_news_alone_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();
    let news = plan(&db, usage::CHANGES).await;
    assert!(news.contains("SEARCH intervals USING INDEX intervals_number (number>?)"), "{news}");
    // Those that are open are all asked for, and few.
    let but_open = news.replace("SCAN intervals USING INDEX intervals_open", "");
    assert!(!but_open.contains("SCAN intervals") && !news.contains("B-TREE"), "{news}");
    let number = plan(&db, "SELECT COALESCE(MAX(number), 0) + 1 FROM intervals").await;
    assert!(number.contains("SEARCH intervals USING COVERING INDEX intervals_number"), "{number}");
}

/// Few names with a part are looked up by SQLite's index of parts, whatever else is asked for.
#[tokio::test]
async fn parts_of_names_are_looked_up() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();
    let (reader, find) = (Some(UserId::new()), "resnet");
    let job = JobFilter { find, limit: 50, ..JobFilter::default() };
    let person = PeopleFilter {
        find: find.to_owned(),
        role: None,
        state: None,
        expires_before: None,
        source: None,
        sort: Sort::Name,
        after: None,
        limit: 51,
    };
    let table = |sort| TableFilter { find: find.to_owned(), sort, limit: 51, ..TableFilter::default() };
    for sql in [
        jobs::list(&db, &job, true, true),
        jobs::list(&db, &JobFilter { owner: reader, ..job }, true, true),
        jobs::list(&db, &JobFilter { reader, ..job }, true, true),
        people::list(&person, true),
        quota_table::people(&db, &table(Order::Name), true),
        quota_table::people(&db, &table(Order::Gpus), true),
    ] {
        let plan = plan(&db, &sql).await;
        let scans =
            plan.lines().any(|step| ["SCAN users", "SCAN j", "SCAN jobs"].iter().any(|scan| step.starts_with(scan)));
        assert!(plan.contains("SCAN name_parts VIRTUAL TABLE") && !scans, "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_page_of_quotas_reads_its_own_people_alone() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();

    let page = |sort, only| {
        let after = Some(QuotaTablePosition { order: sort, number: 0, text: "x".to_owned() });
        quota_table::people(&db, &TableFilter { sort, only, after, limit: 51, ..TableFilter::default() }, false)
    };
    for (sql, index) in [
        (page(Order::Name, QuotaTableFilter::Everybody), "sqlite_autoindex_users_2 (name>?)"),
        (page(Order::NameDown, QuotaTableFilter::Everybody), "sqlite_autoindex_users_2 (name<?)"),
        (page(Order::Seen, QuotaTableFilter::Everybody), "users_seen (<expr><?)"),
    ] {
        let plan = plan(&db, &sql).await;
        assert!(plan.contains(index) && !plan.contains("B-TREE"), "{sql}\n{plan}");
    }
    for sql in [
        quota_table::limits_of("$1, $2"),
        quota_table::held_by("$1, $2", 3),
        quota_table::closed_of("$1, $2", 3),
        quota_table::STRIP.to_owned(),
        quota_table::RUNNING.to_owned(),
        page(Order::Gpus, QuotaTableFilter::Active),
        page(Order::Hours, QuotaTableFilter::Everybody),
    ] {
        let plan = plan(&db, &sql).await;
        // Of sessions those that live are read, of intervals those of the people.
        let whole = |table: &str| {
            let scan = format!("SCAN {table}");
            plan.lines()
                .any(|step| step.ends_with(&scan) || step.contains(&format!("{scan} USING INDEX {table}_owner ")))
        };
        assert!(!whole("sessions") && !whole("intervals") && !whole("quota_limits"), "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_page_of_people_is_read_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();

    let all = |sort, after| PeopleFilter {
        find: String::new(),
        role: None,
        state: None,
        expires_before: None,
        source: None,
        sort,
        after,
        limit: 51,
    };
    let name = || Some(PeoplePosition::Name("a".to_owned()));
    let seen = || Some(PeoplePosition::Seen(1, UserId::new()));
    for (filter, index) in [
        (all(Sort::Name, None), "sqlite_autoindex_users_2"),
        (all(Sort::Name, name()), "sqlite_autoindex_users_2 (name>?)"),
        (all(Sort::NameDown, name()), "sqlite_autoindex_users_2 (name<?)"),
        (all(Sort::Seen, None), "users_seen"),
        (all(Sort::Seen, seen()), "users_seen (<expr>>?)"),
        (all(Sort::SeenDown, seen()), "users_seen (<expr><?)"),
        (PeopleFilter { find: "x".to_owned(), ..all(Sort::SeenDown, seen()) }, "users_seen (<expr><?)"),
        (PeopleFilter { role: Some(lyceum_model::Role::Admin), ..all(Sort::Name, name()) }, "users_raised (name>?)"),
        (PeopleFilter { role: Some(lyceum_model::Role::Operator), ..all(Sort::Name, None) }, "users_raised"),
        (PeopleFilter { state: Some(State::Disabled), ..all(Sort::NameDown, name()) }, "users_disabled (name<?)"),
        (PeopleFilter { state: Some(State::Expired), ..all(Sort::Name, name()) }, "users_expired (name>?)"),
        (PeopleFilter { state: Some(State::Dormant), ..all(Sort::Name, name()) }, "users_dormant (name>?)"),
        (PeopleFilter { expires_before: Some(Timestamp(1)), ..all(Sort::Name, None) }, "users_expiring"),
        (PeopleFilter { state: Some(State::Absent), ..all(Sort::Name, name()) }, "users_absent (name>?)"),
    ] {
        let sql = people::list(&filter, false);
        let plan = plan(&db, &sql).await;
        assert!(plan.contains(index) && !plan.contains("B-TREE"), "{sql}\n{plan}");
    }
    let group = [Audience::Staff, Audience::Managers].map(|audience| groups::sessions(&db, audience));
    for sql in group.into_iter().chain([people::LIVE_OWNERS.to_owned()]) {
        let live = plan(&db, &sql).await;
        // Either index of live sessions will do.
        let is_quick = ["sessions_live", "sessions_owner_live"].iter().any(|index| live.contains(index));
        assert!(is_quick && !live.contains("B-TREE"), "{sql}\n{live}");
    }

    let members = plan(&db, groups::MEMBERS).await;
    assert!(members.contains("SEARCH group_members USING COVERING INDEX"), "{members}");
    let after = GroupFilter { after: Some((String::new(), GroupId::new())), limit: 51, ..GroupFilter::default() };
    let page = plan(&db, &groups::list(&after)).await;
    assert!(page.contains("groups_name (name>?)"), "{page}");
}
