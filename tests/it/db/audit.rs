//! The audit log on both databases: it is only appended to, whoever tries otherwise; its
//! chain never forks, however many write; every kind of tampering is named; the oldest rows
//! go without a break; what is filtered comes by an index; and every action of the code is listed.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use lyceum::{
    db::{
        Db,
        audit::{ACTIONS, Audit, Filter, Origin},
        chain::ChainCheck,
        extend::ExtensionOutcome,
    },
    model::{Clock, Timestamp, quota::Period},
};
use sqlx::{AssertSqlSafe, query};

use super::{House, NOTED, START, add_user, extended, number, on_both, running, whole::assert_whole};

async fn add(db: &Db, seconds: i64, actor: &str, subject: &str) {
    db.add_audit(START.plus_seconds(seconds), actor, "test", subject, "").await.unwrap();
}

/// One statement that may be refused.
async fn attempt(db: &Db, sql: &str) -> Result<(), sqlx::Error> {
    match db {
        Db::Sqlite { write, .. } => query(AssertSqlSafe(sql)).execute(write).await.map(drop),
        Db::Postgres { write, .. } => query(AssertSqlSafe(sql)).execute(write).await.map(drop),
    }
}

/// As somebody who owns the database can, past the triggers.
async fn tamper(house: &House, table: &str, sql: &str) {
    if house.is_sqlite() {
        for trigger in ["audit_is_never_changed", "audit_leaves_from_the_oldest_on", "audit_anchor_moves_on"] {
            attempt(&house.db, &format!("DROP TRIGGER IF EXISTS {trigger}")).await.unwrap();
        }
    } else {
        attempt(&house.db, &format!("ALTER TABLE {table} DISABLE TRIGGER USER")).await.unwrap();
    }
    attempt(&house.db, sql).await.unwrap();
}

#[tokio::test]
async fn rows_are_only_appended() {
    on_both(async |house| {
        let db = &house.db;
        for seconds in 0..3 {
            add(db, seconds, "a", "b").await;
        }
        let row = "INSERT INTO audit (number, at, actor, action, subject, detail, address, request_id, hash)";
        for sql in [
            "UPDATE audit SET actor = 'somebody else'",
            "UPDATE audit SET actor = 'somebody else' WHERE number = 2",
            "DELETE FROM audit",
            "DELETE FROM audit WHERE number = 1",
            "DELETE FROM audit WHERE number = 3",
            "UPDATE audit_anchor SET number = 2, hash = 'made up'",
            "UPDATE audit_anchor SET number = 3, hash = (SELECT hash FROM audit WHERE number = 3)",
            "UPDATE audit_anchor SET number = 0",
            "DELETE FROM audit_anchor",
            "INSERT INTO audit_anchor (id, number, hash) VALUES (2, 0, '')",
            &format!("{row} VALUES (2, 1, 'x', 'x', 'x', '', '', '', '')"),
            &format!("{row} VALUES (9, 1, 'x', 'x', 'x', '', '', '', '')"),
            &format!("{row} VALUES (-1, 1, 'x', 'x', 'x', '', '', '', '')"),
        ] {
            assert!(attempt(db, sql).await.is_err(), "{sql}");
        }
        let special = if house.is_sqlite() {
            [
                "INSERT OR REPLACE INTO audit VALUES (2, 1, 'x', 'x', 'x', '', '', '', '')",
                "REPLACE INTO audit_anchor VALUES (1, 2, '')",
            ]
        } else {
            ["TRUNCATE audit", "TRUNCATE audit_anchor"]
        };
        for sql in special {
            assert!(attempt(db, sql).await.is_err(), "{sql}");
        }
        assert_eq!(db.list_audit(10).await.unwrap().len(), 3);
        assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Whole { rows: 3, last: 3, .. }));
    })
    .await;
}

#[tokio::test]
async fn the_chain_names_the_first_broken_row() {
    for (sql, number) in [
        ("UPDATE audit SET actor = 'x' WHERE number = 4", 4),
        ("UPDATE audit SET at = at + 1 WHERE number = 1", 1),
        ("UPDATE audit SET address = 'x' WHERE number = 6", 6),
        ("UPDATE audit SET request_id = 'x' WHERE number IN (5, 3)", 3),
        ("UPDATE audit SET hash = 'x' WHERE number = 2", 2),
        ("UPDATE audit SET detail = subject, subject = detail WHERE number = 3", 3),
        ("DELETE FROM audit WHERE number = 3", 3),
        ("DELETE FROM audit WHERE number < 3", 1),
        ("UPDATE audit SET number = number + 10 WHERE number = 6", 6),
    ] {
        on_both(async |house| {
            for seconds in 0..6 {
                add(&house.db, seconds, "a", "b").await;
            }
            tamper(house, "audit", sql).await;
            match house.db.verify_audit().await.unwrap() {
                ChainCheck::Broken { number: found, .. } => assert_eq!(found, number, "{sql}"),
                whole @ ChainCheck::Whole { .. } => panic!("{sql}: {whole:?}"),
            }
        })
        .await;
    }
}

/// Anybody can do the sum: the documentation says of what.
#[tokio::test]
async fn the_hash_is_what_is_documented() {
    let house = House::sqlite().await;
    house.db.add_audit(Timestamp(5), "a", "b", "c", "d\"é\u{0}").await.unwrap();
    let row = house.db.list_audit(1).await.unwrap().remove(0);
    assert_eq!(row.hash, crate::portal::sha256(r#"["",1,5,"a","b","c","d\"é�","",""]"#));
}

#[tokio::test]
async fn writers_at_once_do_not_fork_the_chain() {
    on_both(async |house| {
        let dbs = house.three().await;
        let user = add_user(&house.db, "a").await;
        let writers = (0..60).map(|index| {
            let db = dbs[index % 3].clone();
            tokio::spawn(async move {
                let origin = Origin { address: "::1".to_owned(), request_id: index.to_string() };
                origin.scope(add(&db, 0, &format!("writer {index}"), "x")).await;
                running(&db, user).await;
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        // That of the user besides.
        assert!(matches!(house.db.verify_audit().await.unwrap(), ChainCheck::Whole { rows: 121, last: 121, .. }));
        assert_whole(&house.db).await;
        let rows = house.db.audit_after(0, 1000).await.unwrap();
        for row in rows.iter().filter(|row| row.action == "test") {
            assert_eq!((row.address.as_str(), format!("writer {}", row.request_id)), ("::1", row.actor.clone()));
        }
        assert!(rows.iter().filter(|row| row.action == "session.start").all(|row| row.actor == "a"));
    })
    .await;
}

/// A change that is rolled back leaves no row, and no gap.
#[tokio::test]
async fn what_did_not_happen_is_not_told() {
    on_both(async |house| {
        let db = &house.db;
        let user = add_user(db, "a").await;
        let id = running(db, user).await;
        let before = db.list_audit(100).await.unwrap();
        let at = |seconds| START.plus_seconds(seconds);
        let refused =
            db.extend_session(id, &Period::default(), &Clock::manual(at(3)), "a", |_, _| Err(Vec::new())).await;
        assert_eq!(refused.unwrap(), ExtensionOutcome::Refused(Vec::new()));
        assert!(!db.remove_token(user, lyceum::model::TokenId::new(), &NOTED).await.unwrap());
        assert_eq!(db.list_audit(100).await.unwrap(), before);
        assert_eq!(extended(db, id, 3600, at(3)).await, ExtensionOutcome::By(3600));
        let rows = db.list_audit(1).await.unwrap();
        let told = (rows[0].action.as_str(), rows[0].subject.clone(), rows[0].detail.as_str(), rows[0].at);
        assert_eq!(told, ("session.extend", id.to_string(), "Extended by 1 h", at(3)));
    })
    .await;
}

#[tokio::test]
async fn the_oldest_rows_go_and_the_chain_stays_whole() {
    on_both(async |house| {
        let db = &house.db;
        for seconds in 0..10 {
            add(db, seconds, "a", "b").await;
        }
        assert_eq!(db.prune_audit(START, 5, START).await.unwrap(), 0);
        assert_eq!(db.prune_audit(START.plus_seconds(7), 5, START.plus_seconds(100)).await.unwrap(), 5, "at most");
        assert_eq!(db.prune_audit(START.plus_seconds(7), 5, START.plus_seconds(100)).await.unwrap(), 2);
        assert_eq!(db.prune_audit(START.plus_seconds(7), 5, START.plus_seconds(100)).await.unwrap(), 0);
        let rows = db.audit_after(0, 100).await.unwrap();
        let told: Vec<(i64, &str)> = rows.iter().map(|row| (row.number, row.action.as_str())).collect();
        let prunes = [(11, "audit.prune"), (12, "audit.prune")];
        assert_eq!(told, [&[(8, "test"), (9, "test"), (10, "test")][..], &prunes].concat());
        assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Whole { rows: 5, last: 12, .. }));
        assert_eq!(db.audit_anchor().await.unwrap().0, 7);
        add(db, 200, "a", "b").await;
        assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Whole { rows: 6, last: 13, .. }));
        // Everything is old: the last row stays, and the chain goes on from it.
        while db.prune_audit(Timestamp(i64::MAX), 100, START.plus_seconds(300)).await.unwrap() > 0 {
            assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Whole { .. }));
            if db.audit_after(0, 100).await.unwrap().len() <= 2 {
                break;
            }
        }
        assert!(attempt(db, "DELETE FROM audit").await.is_err(), "what the anchor has not taken over stays");
        tamper(house, "audit_anchor", "UPDATE audit_anchor SET number = number - 1").await;
        assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Broken { .. }));
    })
    .await;
}

/// `count` rows, a minute apart, as a lively site leaves them; in parts that a statement may take.
async fn fill(db: &Db, count: i64) {
    const PART: i64 = 50_000;
    let hash = if matches!(db, Db::Sqlite { .. }) { "printf('%064d', i)" } else { "lpad(i::text, 64, '0')" };
    for part in 0..(count + PART - 1) / PART {
        let (first, last) = (part * PART + 1, count.min((part + 1) * PART));
        let sql = format!(
            "INSERT INTO audit (number, at, actor, action, subject, detail, address, request_id, hash)
             WITH RECURSIVE n (i) AS (SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {last})
             SELECT i, {start} + i * 60000, 'user' || (i % 1000),
                 CASE i % 10 WHEN 0 THEN 'sign_in.failed' WHEN 1 THEN 'sign_in' WHEN 2 THEN 'quota.change'
                     ELSE 'session.start' END,
                 'subject' || (i % 50000), '', '10.0.' || (i % 200) || '.' || (i % 7), 'request' || i, {hash} FROM n",
            start = START.0,
        );
        attempt(db, &sql).await.unwrap();
    }
}

/// What must hold of every row that is found.
type Holds = fn(&Audit) -> bool;

fn filters(count: i64) -> Vec<(Filter, Holds)> {
    let any = Filter { limit: 51, ..Filter::default() };
    let middle = START.plus_seconds(count * 30);
    vec![
        (any.clone(), |_| true),
        (Filter { actor: "user7".into(), ..any.clone() }, |row| row.actor == "user7"),
        (Filter { action: "sign_in.failed".into(), ..any.clone() }, |row| row.action == "sign_in.failed"),
        (Filter { subject: "subject77".into(), ..any.clone() }, |row| row.subject == "subject77"),
        (Filter { address: "10.0.3.1".into(), ..any.clone() }, |row| row.address == "10.0.3.1"),
        (Filter { to: Some(middle), ..any.clone() }, |_| true),
        (Filter { actor: "user10".into(), action: "sign_in.failed".into(), to: Some(middle), ..any.clone() }, |row| {
            row.actor == "user10" && row.action == "sign_in.failed"
        }),
        // What is nobody's whole name is the beginning of one; so are a few letters in capitals.
        (Filter { actor: "USER7".into(), action: "Quota".into(), ..any.clone() }, |row| {
            row.actor == "user7" && row.action == "quota.change"
        }),
        (Filter { action: "session".into(), ..any.clone() }, |row| row.action == "session.start"),
        (Filter { address: "10.0.19".into(), ..any.clone() }, |row| row.address.starts_with("10.0.19")),
        (Filter { actor: "user7".into(), action: "no such".into(), ..any.clone() }, |_| false),
        (Filter { actor: "nobody".into(), ..any }, |_| false),
    ]
}

/// `LYCEUM_TEST_AUDIT_ROWS` sets how many rows (1 000 000 is what is promised); few by default.
#[tokio::test]
async fn filters_find_what_they_say_soon() {
    let count = crate::needs::variable("LYCEUM_TEST_AUDIT_ROWS").map_or(20_000, |text| text.parse().unwrap());
    on_both(async |house| {
        let db = &house.db;
        // A row at a time would be checked a million times; only the list is looked at here.
        if house.is_sqlite() {
            attempt(db, "DROP TRIGGER audit_is_appended_to").await.unwrap();
        } else {
            attempt(db, "ALTER TABLE audit DISABLE TRIGGER USER").await.unwrap();
        }
        fill(db, count).await;
        attempt(db, "ANALYZE").await.unwrap();
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, count);
        for (filter, holds) in filters(count) {
            let begin = Instant::now();
            let rows = db.find_audit(&filter).await.unwrap();
            let first = begin.elapsed();
            assert!(rows.iter().all(holds), "{filter:?}");
            assert!(rows.windows(2).all(|two| two[1].number < two[0].number), "{filter:?}");
            let Some(last) = rows.last() else { continue };
            let next = Filter { before: Some((last.at, last.number)), ..filter.clone() };
            let begin = Instant::now();
            let further = db.find_audit(&next).await.unwrap();
            eprintln!("{count} rows, {} found: {first:?}, next page {:?}: {filter:?}", rows.len(), begin.elapsed());
            assert!(further.iter().all(holds) && further.iter().all(|row| row.number < last.number), "{next:?}");
            assert!(first < Duration::from_secs(2), "{first:?} {filter:?}");
        }
    })
    .await;
}

/// A whole name, whatever its case, goes before what only begins so.
#[tokio::test]
async fn names_are_found_whole_or_by_their_beginning() {
    on_both(async |house| {
        let db = &house.db;
        for (seconds, (actor, action)) in
            [("ada", "sign_in"), ("adam", "sign_in.failed"), ("Łukasz", "session.stop"), ("a_b%", "x")]
                .iter()
                .enumerate()
        {
            db.add_audit(START.plus_seconds(i64::try_from(seconds).unwrap()), actor, action, "", "").await.unwrap();
        }
        for (actor, action, expected) in [
            ("ada", "", &["ada"][..]),
            ("ADA", "", &["ada"]),
            ("ad", "", &["adam", "ada"]),
            ("AD", "sign", &["adam", "ada"]),
            ("", "sign_in", &["ada"]),
            ("", "SESSION", &["Łukasz"]),
            ("Łu", "", &["Łukasz"]),
            ("a_", "", &["a_b%"]),
            ("a%", "", &[]),
            ("%", "", &[]),
            ("da", "", &[]),
        ] {
            let filter = Filter { actor: actor.into(), action: action.into(), limit: 10, ..Filter::default() };
            let rows = db.find_audit(&filter).await.unwrap();
            let found: Vec<&str> = rows.iter().map(|row| row.actor.as_str()).collect();
            assert_eq!(found, expected, "{actor} {action}");
        }
    })
    .await;
}

#[tokio::test]
async fn times_bound_what_is_found() {
    on_both(async |house| {
        let db = &house.db;
        for seconds in 0..5 {
            add(db, seconds, "a", "b").await;
        }
        // The clock went back; the order of the rows tells.
        add(db, 2, "late", "b").await;
        let of = async |from: Option<i64>, to: Option<i64>| -> Vec<i64> {
            let at = |seconds| START.plus_seconds(seconds);
            let filter = Filter { from: from.map(at), to: to.map(at), limit: 10, ..Filter::default() };
            db.find_audit(&filter).await.unwrap().iter().map(|row| row.number).collect()
        };
        assert_eq!(of(None, None).await, [5, 4, 6, 3, 2, 1]);
        assert_eq!(of(Some(2), Some(4)).await, [4, 6, 3]);
        assert_eq!(of(Some(9), None).await, [0; 0]);
        let nul = Filter { actor: "a\0".to_owned(), limit: 10, ..Filter::default() };
        assert_eq!(db.find_audit(&nul).await.unwrap(), []);
    })
    .await;
}

/// The actions that the code names, in the order of files.
fn named_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for begin in ["action: \"", "did(\""] {
                found.extend(text.split(begin).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }
}

#[test]
fn every_action_of_the_code_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for folder in ["src", "crates/db/src", "crates/services/src"] {
        named_in(&root.join(folder), &mut found);
    }
    assert!(found.len() > 40, "{found:?}");
    let unlisted: Vec<&String> = found.iter().filter(|action| !ACTIONS.contains(&action.as_str())).collect();
    assert_eq!(unlisted, Vec::<&String>::new(), "add it to ACTIONS");
}
