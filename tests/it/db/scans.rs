//! PostgreSQL reads lists by their indexes: of tables with tens of thousands of rows, which it has statistics of, no function
//! that answers a page or runs in a round reads one from its beginning to its end. What SQLite plans is tested in
//! `crates/db/src/plans.rs`.

use std::collections::BTreeMap;

use lyceum::{
    db::{
        Db, audit,
        jobs::{JobChange, JobFilter, SORT_COLUMNS},
        ordering::SortBy,
        people::{PeopleFilter, Sort},
        runs, sessions,
    },
    model::{EndReason, GroupName, Role, SessionState, Timestamp, UserId, user::State},
};
use sqlx::{Connection, PgConnection, query_as, query_scalar};

use super::{
    BY, House, add_user,
    copies::{ID, copy},
    ended_job, execute, on_postgres,
};
use crate::wait::eventually;

const PEOPLE: usize = 5_000;
const JOBS: usize = 20_000;
const AUDIT: usize = 50_000;

/// Tables that grow for as long as a site is used.
const GROWING: [&str; 6] = ["users", "sessions", "jobs", "intervals", "audit", "job_tags"];

/// What a question may read of a table by indexes. Of the audit log some thousand rows are counted first.
const FETCHED: i64 = 1_000;

/// What the home page and the usage of a user with many jobs ask for.
const LIVE: &str = "own live jobs";
const ENDED: &str = "own sessions that ended in a period";

/// Has every connection to this database use one plan for all values of a statement.
const GENERIC: &str = "DO $$ BEGIN
     EXECUTE format('ALTER DATABASE %I SET plan_cache_mode = force_generic_plan', current_database());
     END $$";

/// How many rows were read by going through tables, and how many by indexes, since the database was made.
async fn rows_read(house: &House) -> BTreeMap<String, (i64, i64)> {
    let mut connection = PgConnection::connect(&house.config.url).await.unwrap();
    // A server process has counted what it did when it is gone at the latest.
    let others = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
         AND backend_type = 'client backend'";
    eventually("the other connections are closed", async || {
        let mut own = PgConnection::connect(&house.config.url).await.unwrap();
        let others: i64 = query_scalar(others).fetch_one(&mut own).await.unwrap();
        own.close().await.unwrap();
        // The one that is kept is another one too.
        (others <= 1).then_some(())
    })
    .await;
    let sql = "SELECT relname::text, seq_tup_read, COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables";
    let rows: Vec<(String, i64, i64)> = query_as(sql).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows.into_iter().map(|(table, scanned, fetched)| (table, (scanned, fetched))).collect()
}

/// Fills the tables as years of use do; half of all is one person's.
async fn fill(db: &Db) -> UserId {
    let owner = add_user(db, "alice").await;
    let other = add_user(db, "bob").await;
    let changes = [("id", ID), ("subject", "'user' || i"), ("name", "'user' || i")];
    copy(db, "users", &format!("id = '{other}'"), PEOPLE, &changes).await;
    execute(db, "UPDATE users SET role = 'admin' WHERE name IN ('user7', 'user8', 'user9')").await;
    let job = ended_job(db, owner, "train").await.job;
    let others = format!("'01900000-0000-7000-8000-' || (100000000001 + i % {PEOPLE})");
    let whose = format!("CASE WHEN i % 2 = 0 THEN '{owner}' ELSE {others} END");
    let attempt = format!("SELECT id FROM sessions WHERE job_id = '{job}'");
    let changes = [("session_id", ID), ("owner", &whose), ("number", "1000 + i"), ("started_at", "started_at + i")];
    let held = super::number(db, "SELECT COUNT(*) FROM intervals").await;
    assert_eq!(held, 1, "what an attempt holds is an interval");
    copy(db, "sessions", &format!("id = ({attempt})"), JOBS, &[("id", ID), ("job_id", ID), ("owner", &whose)]).await;
    copy(db, "intervals", &format!("session_id = ({attempt})"), JOBS, &changes).await;
    let changes = [("id", ID), ("session_id", ID), ("owner", &whose)];
    copy(db, "jobs", &format!("id = '{job}'"), JOBS, &changes).await;
    // The owner has many attempts of jobs and no session of the others' kind.
    let id = "'01910000-0000-7000-8000-' || (100000000000 + i)";
    let changes = [("id", id), ("job_id", "NULL"), ("attempt", "NULL"), ("app", "'web'"), ("owner", &others)];
    copy(db, "sessions", &format!("id = ({attempt})"), PEOPLE, &changes).await;
    execute(db, "ALTER TABLE audit DISABLE TRIGGER USER").await;
    let changes =
        [("number", "1000 + i"), ("at", "at + i"), ("actor", "'user' || i % 1000"), ("subject", "'s' || (i * 10 + 7)")];
    copy(db, "audit", "number = 1", AUDIT, &changes).await;
    execute(db, "ANALYZE").await;
    owner
}

/// A list that is asked for.
enum Question {
    Jobs(JobFilter<'static>),
    Sessions(sessions::Filter<'static>),
    Runs(runs::Filter<'static>),
    People(PeopleFilter),
    Audit(audit::Filter),
}

impl Question {
    /// How many rows the answer has.
    async fn ask(&self, db: &Db) -> usize {
        match self {
            Self::Jobs(filter) => db.list_jobs(*filter).await.unwrap().len(),
            Self::Sessions(filter) => db.list_sessions(*filter).await.unwrap().len(),
            Self::Runs(filter) => db.list_runs(filter).await.unwrap().len(),
            Self::People(filter) => db.list_people(filter).await.unwrap().len(),
            Self::Audit(filter) => db.find_audit(filter).await.unwrap().len(),
        }
    }
}

/// What is asked for, how many rows of it there are, and the question.
fn questions(owner: UserId) -> Vec<(&'static str, usize, Question)> {
    use Question::{Audit, Jobs, People, Runs, Sessions};
    let jobs = JobFilter { limit: 20, ..JobFilter::default() };
    let (own, tagged, group) = (Some(owner), Some("rare"), Some("vision"));
    let listed = sessions::Filter { limit: 20, ..sessions::Filter::default() };
    let interactive = sessions::Filter { sessions_only: true, ..listed };
    let ended = sessions::Filter {
        owner: own,
        state: Some(SessionState::Ended),
        ended_from: Some(Timestamp(0)),
        ended_before: Some(Timestamp(i64::MAX)),
        sort: Some(SortBy { column: &sessions::ENDED_SORT_COLUMNS[1], is_descending: true, after: None }),
        ..listed
    };
    let sorted = |name| {
        let column = SORT_COLUMNS.iter().find(|column| column.name == name)?;
        Some(SortBy { column, is_descending: true, after: None })
    };
    let people = |role, state| {
        let (find, source, sort, after) = (String::new(), None, Sort::Name, None);
        People(PeopleFilter { find, role, state, expires_before: None, source, sort, after, limit: 20 })
    };
    let audit = |actor: &str, subject: &str| {
        let (actor, subject) = (actor.to_owned(), subject.to_owned());
        Audit(audit::Filter { actor, subject, limit: 20, ..audit::Filter::default() })
    };
    vec![
        ("jobs", 20, Jobs(jobs)),
        ("jobs of a person", 20, Jobs(JobFilter { owner: own, ..jobs })),
        ("jobs that a person sees", 20, Jobs(JobFilter { reader: own, ..jobs })),
        ("jobs by a tag", 1, Jobs(JobFilter { tag: tagged, ..jobs })),
        ("own jobs by a tag", 1, Jobs(JobFilter { tag: tagged, owner: own, reader: own, ..jobs })),
        ("jobs by a tag that none has", 0, Jobs(JobFilter { tag: Some("none"), ..jobs })),
        ("jobs of a group", 0, Jobs(JobFilter { group, ..jobs })),
        ("own jobs of a group", 0, Jobs(JobFilter { group, reader: own, ..jobs })),
        ("running jobs", 0, Jobs(JobFilter { state: Some(SessionState::Running), ..jobs })),
        (LIVE, 0, Jobs(JobFilter { owner: own, live_only: true, ..jobs })),
        ("own jobs by state", 20, Jobs(JobFilter { owner: own, sort: sorted("state"), ..jobs })),
        ("jobs by duration", 20, Jobs(JobFilter { sort: sorted("duration"), ..jobs })),
        ("sessions", 20, Sessions(listed)),
        ("sessions of a person", 20, Sessions(sessions::Filter { owner: own, ..listed })),
        ("interactive sessions", 20, Sessions(interactive)),
        ("own interactive sessions", 0, Sessions(sessions::Filter { owner: own, ..interactive })),
        (
            "own ended sessions",
            0,
            Sessions(sessions::Filter { owner: own, state: Some(SessionState::Ended), ..interactive }),
        ),
        ("jobs by a part of the name that none has", 0, Jobs(JobFilter { find: "zzz", ..jobs })),
        ("own jobs by such a part", 0, Jobs(JobFilter { find: "zzz", owner: own, ..jobs })),
        ("jobs by a part that all have", 20, Jobs(JobFilter { find: "rai", ..jobs })),
        ("own sessions by such a part", 0, Sessions(sessions::Filter { find: "zzz", owner: own, ..interactive })),
        (ENDED, 20, Sessions(ended)),
        ("a rare end", 0, Sessions(sessions::Filter { end_reason: Some(EndReason::OutOfMemory), ..listed })),
        ("a rare app", 0, Sessions(sessions::Filter { app: Some("jupyter"), ..listed })),
        ("live sessions", 0, Sessions(sessions::Filter { live_only: true, ..listed })),
        (
            "runs",
            0,
            Runs(runs::Filter { reader: own, owner: None, find: "", with_helpers: false, before: None, limit: 20 }),
        ),
        ("people", 20, people(None, None)),
        ("administrators", 3, people(Some(Role::Admin), None)),
        ("disabled people", 0, people(None, Some(State::Disabled))),
        ("the audit log", 20, audit("", "")),
        ("the audit log by a name", 20, audit("USER7", "")),
        ("the audit log by a beginning", 11, audit("", "s4999")),
        ("the audit log by a beginning of many", 20, audit("user", "")),
        ("the audit log by what none has", 0, audit("zzz", "s4")),
    ]
}

/// Which tables are read as a whole, or too much by an index: the list, the table, and how many rows of it in either way.
async fn badly_read(
    house: &House,
    questions: Vec<(&'static str, usize, Question)>,
) -> Vec<(&'static str, &'static str, i64, i64)> {
    let mut found = Vec::new();
    let mut before = rows_read(house).await;
    for (what, rows, question) in questions {
        let db = house.again().await;
        assert_eq!(question.ask(&db).await, rows, "{what}");
        db.close().await;
        let after = rows_read(house).await;
        let read = GROWING.map(|table| {
            let ((scanned, fetched), (scanned_before, fetched_before)) = (after[table], before[table]);
            (what, table, scanned - scanned_before, fetched - fetched_before)
        });
        let is_much = |table: &str, fetched: i64| table != "audit" && FETCHED < fetched;
        found.extend(read.into_iter().filter(|(_, table, scanned, fetched)| 0 < *scanned || is_much(table, *fetched)));
        before = after;
    }
    found
}

#[tokio::test]
async fn lists_are_read_by_their_indexes() {
    on_postgres(async |house| {
        let owner = fill(&house.db).await;
        let newest = house.db.list_jobs(JobFilter { owner: Some(owner), limit: 1, ..JobFilter::default() }).await;
        let change = JobChange { tags: Some(vec!["rare".to_owned()]), ..JobChange::default() };
        assert!(house.db.change_job(newest.unwrap()[0].id, &change).await.unwrap());
        house.db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        house.db.close().await;
        let mut found = badly_read(house, questions(owner)).await;
        // A connection that has run a statement five times may use one plan for all values, which knows none of them.
        let db = house.again().await;
        execute(&db, GENERIC).await;
        db.close().await;
        let often = questions(owner).into_iter().filter(|(what, ..)| [LIVE, ENDED].contains(what)).collect();
        found.extend(badly_read(house, often).await);
        // A table with one row is read as a whole, whatever index it has.
        found.retain(|(_, table, scanned, fetched)| *table != "job_tags" || 1 < *scanned || FETCHED < *fetched);
        assert!(found.is_empty(), "read from beginning to end, or too much by an index: {found:?}");
    })
    .await;
}
