//! How SQLite means to answer the queries that run often: by an index, never by reading the
//! whole history of sessions. Clocks differ from machine to machine; plans do not.

use sqlx::{AssertSqlSafe, query_as};

use super::{
    Config, Db, audit, facts, gpus,
    groups::{self, Audience, GroupFilter},
    holds, intervals, invitations,
    jobs::{self, JobFilter},
    notifications, outlook,
    people::{self, After, PeopleFilter, Sort},
    quotas, retention, sessions,
    sessions::Filter,
    shell_jobs, standing,
    standings::{self, Only, Order, Place, TableFilter},
    usage, users,
};
use crate::model::{GroupId, SessionId, SessionState, UserId};

/// The steps of a plan: SCAN reads everything (that an index holds), SEARCH what is asked for.
async fn plan(db: &Db, sql: &str) -> String {
    let Db::Sqlite { read, .. } = db else { panic!("not SQLite") };
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let steps: Vec<(i64, i64, i64, String)> = query_as(AssertSqlSafe(sql)).fetch_all(read).await.unwrap();
    steps.into_iter().map(|(.., step)| step).collect::<Vec<_>>().join("\n")
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

    for (asked, index) in [
        (audit::Filter::default(), "audit_at ("),
        (audit::Filter { actor: "x".into(), action: "y".into(), ..Default::default() }, "audit_actor (<expr>=? AND"),
        (audit::Filter { action: "y".into(), ..Default::default() }, "audit_action (<expr>=? AND"),
        (audit::Filter { subject: "x".into(), actor: "y".into(), ..Default::default() }, "audit_subject (<expr>=? AND"),
        (
            audit::Filter { address: "x".into(), action: "y".into(), ..Default::default() },
            "audit_address (<expr>=? AND",
        ),
    ] {
        let sql = audit::list(&asked, &["actor", "action", "subject", "address"]);
        let plan = plan(&db, &sql).await;
        assert!(plan.contains(index) && !plan.contains("B-TREE"), "{sql}\n{plan}");
    }
    // By a beginning the latest rows are gone through, in their order.
    let by_beginning = plan(&db, &audit::list(&audit::Filter { actor: "x".into(), ..Default::default() }, &[])).await;
    assert!(by_beginning.contains("audit_at (") && !by_beginning.contains("B-TREE"), "{by_beginning}");
    let named = plan(&db, &audit::named("subject")).await;
    assert!(named.contains("audit_subject (<expr>=?)"), "{named}");
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
        standing::CLOSED_OF_PERSON,
        standing::GPUS_OF_PERSON,
        standing::CLOSED_OF_GROUP,
        standing::CLOSED_OF_MEMBERS,
        standing::CLOSED,
        sessions::ADD_EVENT,
        intervals::CLOSE,
        invitations::OF_GROUP,
        invitations::OF_PERSON,
        shell_jobs::IS_OWN,
        shell_jobs::KNOWN,
        shell_jobs::FORGET,
        shell_jobs::OPEN,
        shell_jobs::CHARGED,
        standing::FROM_SHELL,
        facts::RUNNING,
        retention::OLD_FROM_SHELL,
        "SELECT 1 FROM logins WHERE secret_hash = 'x'",
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
    let jobs = |filter: JobFilter<'_>| jobs::list(&db, &JobFilter { limit: 50, ..filter });
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

#[tokio::test]
async fn of_use_the_news_alone_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();
    let news = plan(&db, usage::NEWS).await;
    assert!(news.contains("SEARCH intervals USING INDEX intervals_number (number>?)"), "{news}");
    // Those that are open are all asked for, and few.
    let but_open = news.replace("SCAN intervals USING INDEX intervals_open", "");
    assert!(!but_open.contains("SCAN intervals") && !news.contains("B-TREE"), "{news}");
    let number = plan(&db, "SELECT COALESCE(MAX(number), 0) + 1 FROM intervals").await;
    assert!(number.contains("SEARCH intervals USING COVERING INDEX intervals_number"), "{number}");
}

#[tokio::test]
async fn a_page_of_quotas_reads_its_own_people_alone() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(&Config::default(), directory.path()).await.unwrap();

    let page = |sort, only| {
        let after = Some(Place { order: sort, number: 0, text: "x".to_owned() });
        standings::people(&TableFilter { sort, only, after, limit: 51, ..TableFilter::default() })
    };
    for (sql, index) in [
        (page(Order::Name, Only::Everybody), "sqlite_autoindex_users_2 (name>?)"),
        (page(Order::NameDown, Only::Everybody), "sqlite_autoindex_users_2 (name<?)"),
        (page(Order::Seen, Only::Everybody), "users_seen (<expr><?)"),
    ] {
        let plan = plan(&db, &sql).await;
        assert!(plan.contains(index) && !plan.contains("B-TREE"), "{sql}\n{plan}");
    }
    for sql in [
        standings::limits_of("$1, $2"),
        standings::held_by("$1, $2", 3),
        standings::closed_of("$1, $2", 3),
        standings::STRIP.to_owned(),
        page(Order::Gpus, Only::Active),
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
        source: None,
        sort,
        after,
        limit: 51,
    };
    let name = || Some(After::Name("a".to_owned()));
    let seen = || Some(After::Seen(1, UserId::new()));
    for (filter, index) in [
        (all(Sort::Name, None), "sqlite_autoindex_users_2"),
        (all(Sort::Name, name()), "sqlite_autoindex_users_2 (name>?)"),
        (all(Sort::NameDown, name()), "sqlite_autoindex_users_2 (name<?)"),
        (all(Sort::Seen, None), "users_seen"),
        (all(Sort::Seen, seen()), "users_seen (<expr>>?)"),
        (all(Sort::SeenDown, seen()), "users_seen (<expr><?)"),
        (PeopleFilter { find: "x".to_owned(), ..all(Sort::SeenDown, seen()) }, "users_seen (<expr><?)"),
        (PeopleFilter { role: Some(crate::model::Role::Admin), ..all(Sort::Name, name()) }, "(name>?)"),
    ] {
        let sql = people::list(&filter);
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
