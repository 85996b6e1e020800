//! Limits at every level, groups as quotas see them, and the facts that a decision is made
//! from: what is held, by whom, charged to which group, and the hours of a period.

use std::collections::BTreeMap;

use lyceum::{
    db::{
        Db,
        admit::{AdmissionMode, AdmissionOutcome, NewSession, Verdict},
        directory::{Group, Person},
        facts::{Committed, Facts},
        limits::{Author, GroupFlags, LevelChange, Outcome},
        limits_and_usage::Requester,
        quotas::{Level, QuotaGroup},
        sessions::Ending,
    },
    model::{
        Clock, EndReason, GroupId, GroupName, Role, SessionId, Timestamp, UserId, Username,
        quota::{
            Change, Code, ConsumedTime, Field, Kind, Limit, LimitRow, Period, Reason, Scope, Source, Terms, Total,
            TotalScope, Usage, Window,
        },
    },
};

use super::{START, add_user, each, inventory, judge, new_session, on_both, set_limits};

#[tokio::test]
async fn limits() {
    on_both(async |house| {
        let db = &house.db;
        let (user, other) = (add_user(db, "a").await, add_user(db, "b").await);
        assert_eq!(db.limits_of(user).await.unwrap(), []);

        set(db, Level::Default, &each([(Field::Gpus, Some(1)), (Field::Sessions, Some(-1))])).await;
        let until =
            |value| Terms { value, expires_at: Some(START.plus_seconds(9)), note: Some("until Friday".to_owned()) };
        let own = [(Field::Gpus, 4), (Field::MemoryBytes, i64::MAX)];
        let own = own.map(|(field, value)| Change { kind: Kind::Each, field, to: Some(until(value)) });
        set(db, Level::User(user), &own).await;
        let row = |scope, field, terms: Terms| LimitRow {
            scope,
            field,
            value: terms.value,
            expires_at: terms.expires_at,
            note: terms.note,
        };
        let defaults = [row(Scope::Default, Field::Gpus, 1.into()), row(Scope::Default, Field::Sessions, (-1).into())];
        assert_eq!(db.limits_of(other).await.unwrap(), defaults);
        let rows = db.limits_of(user).await.unwrap();
        assert_eq!(rows[..2], defaults);
        let own = [row(Scope::User, Field::Gpus, until(4)), row(Scope::User, Field::MemoryBytes, until(i64::MAX))];
        assert_eq!(rows[2..], own);
        let at_user = db.limits_at(Level::User(user)).await.unwrap();
        assert_eq!((at_user.len(), at_user[0].by.as_str(), at_user[0].at), (2, "admin", START));
        assert_eq!(at_user[0].terms.note.as_deref(), Some("until Friday"));

        set(db, Level::User(user), &each([(Field::Gpus, Some(5)), (Field::MemoryBytes, None)])).await;
        let rows = db.limits_of(user).await.unwrap();
        assert_eq!(rows[2..], [row(Scope::User, Field::Gpus, 5.into())], "the other is inherited again");
        set(db, Level::User(user), &each([(Field::Gpus, None), (Field::Cpus, None)])).await;
        assert_eq!(db.limits_of(user).await.unwrap(), defaults);
        assert_eq!(db.limits_at(Level::Cluster).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn groups_give_charge_and_restrict() {
    on_both(async |house| {
        let db = &house.db;
        let user = member(db, "ada", &["vision", "students"]).await;
        let other = member(db, "bob", &["students"]).await;
        assert_eq!(db.find_quota_group("nobody").await.unwrap(), None);
        let (vision, students) = (group(db, "vision").await, group(db, "students").await);
        assert_eq!(db.find_quota_group(&vision.id.to_string()).await.unwrap(), Some(vision.clone()));
        assert!(!vision.chargeable && !vision.restrictive);
        assert_eq!(db.quota_groups().await.unwrap(), [], "nothing is set for any");
        assert_eq!(db.billing_groups_of(user).await.unwrap().groups, []);

        let model = Field::GpusOf("NVIDIA A100".to_owned());
        let both = [change(Kind::Each, model.clone(), 2), change(Kind::Total, Field::Gpus, 8)];
        set_limits(db, Level::Group(vision.id), &both, GroupFlags { chargeable: Some(true), restrictive: None }).await;
        let marks = GroupFlags { chargeable: Some(true), restrictive: Some(true) };
        set_limits(db, Level::Group(students.id), &[change(Kind::Each, Field::Gpus, 1)], marks).await;
        // The row of each group comes with how the group counts; a total is nobody's own.
        let rows = db.limits_of(user).await.unwrap();
        let scope = |name: &str, restrictive| Scope::Group { name: name.to_owned(), restrictive };
        let seen: Vec<_> = rows.into_iter().map(|row| (row.scope, row.field, row.value)).collect();
        assert_eq!(seen, [(scope("students", true), Field::Gpus, 1), (scope("vision", false), model, 2)]);
        assert_eq!(db.limits_of(other).await.unwrap().len(), 1);
        assert_eq!(db.limits_at(Level::Group(vision.id)).await.unwrap().len(), 2);
        // A mark that is not named stays.
        set_limits(db, Level::Group(students.id), &[], GroupFlags::default()).await;
        let names: Vec<_> = db.quota_groups().await.unwrap().into_iter().map(|group| group.name).collect();
        assert_eq!(names, ["students", "vision"]);
        assert!(group(db, "students").await.restrictive);

        let billing_groups = db.billing_groups_of(user).await.unwrap();
        assert_eq!(
            (billing_groups.groups.len(), billing_groups.default_group()),
            (2, None),
            "two, and none was chosen"
        );
        assert_eq!(db.billing_groups_of(other).await.unwrap().default_group(), Some(students.id), "the only one");
        db.choose_charged_group(user, vision.id).await.unwrap();
        assert_eq!(db.billing_groups_of(user).await.unwrap().chosen, Some(vision.id));
        set_limits(db, Level::Group(vision.id), &[], GroupFlags { chargeable: Some(false), restrictive: None }).await;
        assert_eq!(
            db.billing_groups_of(user).await.unwrap().default_group(),
            Some(students.id),
            "what was chosen is gone"
        );
        assert_eq!(
            db.membership(other, students.id).await.unwrap().map(|group| group.name).as_deref(),
            Some("students")
        );
        assert_eq!(db.membership(other, vision.id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn what_is_held_is_known_by_person_and_group() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (member(db, "ada", &["vision"]).await, member(db, "bob", &["vision"]).await);
        let vision = group(db, "vision").await;
        let totals = [change(Kind::Total, Field::Gpus, 4), change(Kind::Total, Field::GpuHours, 10)];
        let marks = GroupFlags { chargeable: Some(true), restrictive: None };
        set_limits(db, Level::Group(vision.id), &totals, marks).await;
        set(db, Level::Cluster, &[change(Kind::Total, Field::Sessions, 9)]).await;

        let machine = inventory(4);
        let charged = start(db, &charged(bob, vision.id, 2), START, judge(&machine, 2)).await;
        let free = start(db, &new_session(ada, 1), START, judge(&machine, 1)).await;
        let waiting = new_session(ada, 3);
        let lacks_room = Reason {
            code: Code::Capacity(Field::Gpus),
            source: Source::Machine,
            used: 3,
            requested: 3,
            limit: 4,
            over_by: 2,
            hint: String::new(),
        };
        start(db, &waiting, START, |_| Verdict::Wait(vec![lacks_room])).await;

        let now = START.plus_seconds(600);
        let facts = look(db, &charging(ada, vision.id), now).await;
        let sums = &facts.sums;
        assert_eq!((sums.usage.gpus, sums.usage.sessions, sums.usage.pending), (1, 1, 1));
        assert_eq!(sums.usage.gpus_by_model, [("A".to_owned(), 1)].into());
        let [of_group, of_all] = sums.totals.as_slice() else { panic!("two: {:?}", sums.totals) };
        let whose =
            |group: &QuotaGroup, is_charged| TotalScope::Group { id: group.id, name: group.name.clone(), is_charged };
        assert_eq!(of_group.whose, whose(&vision, true));
        assert_eq!(of_group.limits, [(Field::GpuHours, Limit::AtMost(10)), (Field::Gpus, Limit::AtMost(4))]);
        assert_eq!((of_group.usage.gpus, of_group.usage.sessions), (2, 1), "what is charged to it");
        assert_eq!(of_group.usage.gpu_seconds, 2 * 3600, "to its end");
        assert_eq!((&of_all.whose, of_all.usage.gpus), (&TotalScope::Cluster, 3));
        assert_eq!(of_all.limits, [(Field::Sessions, Limit::AtMost(9))]);
        assert_eq!(facts.common.gpus_taken.len(), 3);
        assert_eq!(facts.common.held.len(), 2);
        assert!(facts.common.held.iter().all(|held| held.ends_by == START.plus_seconds(3600)));
        let [other] = facts.common.waiting.as_slice() else { panic!("one waits") };
        assert!(other.lacks_room && other.owner == ada && other.since == START);

        // What has ended counts as long as it was there, and only in its period.
        end(db, charged, START.plus_seconds(1800)).await;
        end(db, free, START.plus_seconds(60)).await;
        let facts = look(db, &charging(bob, vision.id), now).await;
        let usage = &facts.sums.usage;
        assert_eq!((usage.gpus, usage.gpu_seconds, usage.cpu_seconds), (0, 3600, 1800));
        assert_eq!(facts.sums.totals[0].usage.gpu_seconds, 3600);
        assert_eq!(facts.recent_gpu_seconds, 3600);
        let month_later = START.plus_seconds(30 * 86_400 + 900);
        let facts = look(db, &charging(bob, vision.id), month_later).await;
        assert_eq!(facts.sums.usage.gpu_seconds, 1800, "half of it is older than 30 days");
        assert_eq!(facts.recent_gpu_seconds, 0);

        let holdings = db.holdings().await.unwrap();
        assert_eq!(holdings.by_user.len(), 1);
        assert_eq!((holdings.by_user[0].1.as_str(), holdings.by_user[0].2.pending), ("ada", 1));
        assert!(holdings.by_group.is_empty());
        let judged = |facts: &Facts| {
            assert_eq!(facts.sums.usage.pending, 0, "the one that is reconsidered is not counted");
            assert_eq!(facts.since, START);
            Verdict::Admit { gpus: Vec::new() }
        };
        let clock = Clock::manual(now);
        db.admit(&charging(ada, vision.id), AdmissionMode::Reevaluate(waiting.id), &clock, judged).await.unwrap();
        let holdings = db.holdings().await.unwrap();
        assert_eq!((holdings.all.gpus, holdings.by_user[0].2.gpus, holdings.by_group.len()), (3, 3, 0));
    })
    .await;
}

/// A session stays charged to the group that it was asked for, whatever is charged by default.
#[tokio::test]
async fn what_waits_keeps_its_group() {
    on_both(async |house| {
        let db = &house.db;
        let ada = member(db, "ada", &["vision", "speech"]).await;
        let (vision, speech) = (group(db, "vision").await, group(db, "speech").await);
        set(db, Level::Group(speech.id), &[change(Kind::Total, Field::Gpus, 1)]).await;
        let new = charged(ada, speech.id, 1);
        start(db, &new, START, |_| Verdict::Wait(Vec::new())).await;
        let seen = |facts: &Facts| {
            let whose = TotalScope::Group { id: speech.id, name: "speech".to_owned(), is_charged: true };
            assert_eq!(facts.sums.totals[0].whose, whose);
            Verdict::Admit { gpus: inventory(1).gpus }
        };
        let clock = Clock::manual(START);
        db.admit(&charging(ada, vision.id), AdmissionMode::Reevaluate(new.id), &clock, seen).await.unwrap();
        let holdings = db.holdings().await.unwrap();
        assert_eq!(holdings.by_group.keys().collect::<Vec<_>>(), [&speech.id]);
    })
    .await;
}

/// The facts that a decision would be made from, and that those who only look see the same.
async fn look(db: &Db, asking: &Requester<'_>, at: Timestamp) -> Facts {
    let hours = [change(Kind::Each, Field::GpuHours, -1)];
    set(db, Level::Default, &hours).await;
    let (facts, sums) = (db.facts(asking, at).await.unwrap(), db.usage(asking, at).await.unwrap());
    assert_eq!(facts.sums.usage, sums.usage);
    let without_models = |usage: &Usage| Usage { gpus_by_model: BTreeMap::new(), ..usage.clone() };
    assert_eq!(without_models(&facts.sums.in_use), without_models(&sums.in_use));
    assert_eq!((&facts.sums.limits, facts.sums.window), (&sums.limits, sums.window));
    let amounts =
        |totals: &[Total]| totals.iter().map(|total| (total.usage.gpus, total.usage.gpu_seconds)).collect::<Vec<_>>();
    assert_eq!(amounts(&facts.sums.totals), amounts(&sums.totals));
    facts
}

fn change(kind: Kind, field: Field, value: i64) -> Change {
    Change::new(kind, field, Some(value))
}

async fn set(db: &Db, level: Level, changes: &[Change]) {
    set_limits(db, level, changes, GroupFlags::default()).await;
}

pub async fn group(db: &Db, name: &str) -> QuotaGroup {
    db.find_quota_group(name).await.unwrap().unwrap()
}

fn charging(owner: UserId, group: GroupId) -> Requester<'static> {
    static PERIOD: Period = Period::Rolling { days: 30 };
    Requester { owner, group: Some(group), period: &PERIOD, holds_at_once: true }
}

pub fn charged(owner: UserId, group: GroupId, gpus: i64) -> NewSession {
    NewSession { charged_group: Some(group), ..new_session(owner, gpus) }
}

pub async fn start(
    db: &Db,
    new: &NewSession,
    at: Timestamp,
    judge: impl FnOnce(&Facts) -> Verdict + Send,
) -> SessionId {
    static PERIOD: Period = Period::Rolling { days: 30 };
    let asking = Requester { owner: new.owner, group: new.charged_group, period: &PERIOD, holds_at_once: true };
    let answer = db.admit(&asking, AdmissionMode::Insert(new), &Clock::manual(at), judge).await.unwrap();
    assert!(matches!(answer, AdmissionOutcome::Judged(_)));
    new.id
}

pub async fn end(db: &Db, id: SessionId, at: Timestamp) {
    let reason = EndReason::StoppedByOwner;
    let ending = Ending { reason, exit_code: None, signal: None, at, detail: String::new() };
    assert!(db.end_session(id, &ending).await.unwrap());
}

/// Somebody of a directory, in these groups.
pub async fn member(db: &Db, name: &str, groups: &[&str]) -> UserId {
    let groups: Vec<Group> =
        groups.iter().map(|name| Group { subject: format!("cn={name}"), name: (*name).to_owned() }).collect();
    let username = Username::parse(name).unwrap();
    let person = Person {
        source: "ldap",
        subject: &format!("entryUUID={name}"),
        name: &username,
        display_name: "",
        mail: None,
        uid_number: None,
        unix_name: None,
        role: Some(Role::User),
        groups: &groups,
    };
    db.arrive(&person, START).await.unwrap();
    db.find_user_by_name(name).await.unwrap().unwrap().user.id
}

/// From now to its end, or to the end of the period; what waits may use nothing yet.
#[tokio::test]
async fn what_is_admitted_may_still_use() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let group = db.add_group(&GroupName::parse("vision").unwrap(), None, super::BY).await.unwrap();
        start(db, &charged(ada, group, 2), START, |_| Verdict::Admit { gpus: Vec::new() }).await;
        start(db, &new_session(ada, 1), START, |_| Verdict::Wait(Vec::new())).await;
        let committed = async |passed: i64, to: Option<i64>| {
            let window = Window { from: START, to: to.map(|seconds| START.plus_seconds(seconds)) };
            db.committed(window, START.plus_seconds(passed)).await.unwrap()
        };
        let rest = |seconds: i64, cpus: i64| {
            let spent = ConsumedTime { gpu_milliseconds: 2000 * seconds, cpu_milliseconds: 1000 * cpus * seconds };
            [Committed { owner: ada, group: Some(group), spent }]
        };
        let cpus = new_session(ada, 2).spec.resources.cpus;
        assert_eq!(committed(0, None).await, rest(3600, cpus));
        assert_eq!(committed(600, None).await, rest(3000, cpus));
        assert_eq!(committed(600, Some(900)).await, rest(300, cpus), "a new period begins");
        assert_eq!(committed(4000, None).await, rest(0, cpus), "past its end it has nothing left");
    })
    .await;
}

/// The same limits again keep who set them and when, and the audit log has one row.
#[tokio::test]
async fn the_same_limits_again_are_no_change() {
    on_both(async |house| {
        let db = &house.db;
        member(db, "ada", &["vision"]).await;
        let level = Level::Group(group(db, "vision").await.id);
        let write = async |limits: &[(Kind, i64)], chargeable: bool, at: i64| {
            let changes = limits.iter().map(|(kind, value)| change(*kind, Field::Gpus, *value)).collect();
            let marks = GroupFlags { chargeable: Some(chargeable), restrictive: None };
            let author = Author::administrator("admin", START.plus_seconds(at));
            let made = LevelChange { marks, ..LevelChange::new(level, changes) };
            assert_eq!(db.change_limits(&[made], &author).await.unwrap(), Outcome::Done);
            let rows = db.list_audit(100).await.unwrap().into_iter().filter(|row| row.action == "quota.change");
            (db.limits_at(level).await.unwrap(), rows.map(|row| row.detail).collect::<Vec<_>>())
        };
        let both = [(Kind::Each, 2), (Kind::Total, 8)];
        let first = write(&both, true, 0).await;
        assert_eq!(write(&both, true, 60).await, first);
        // What differs is changed, and the rest stays.
        let (limits, rows) = write(&[(Kind::Each, 2), (Kind::Total, 9)], true, 120).await;
        let times: Vec<_> = limits.iter().map(|limit| (limit.kind, limit.at.seconds_since(START))).collect();
        assert!(times.contains(&(Kind::Each, 0)) && times.contains(&(Kind::Total, 120)), "{times:?}");
        assert_eq!((rows.len(), rows[0].as_str()), (2, "total.gpus=9, was 8"));
    })
    .await;
}
