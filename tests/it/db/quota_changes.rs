//! Changes of limits as transactions: what somebody saw and how far they may go is looked at
//! under the lock, several levels change together or not at all, and of many who saw the same
//! exactly one changes it.

use lyceum::{
    db::{
        Db,
        limits::{Author, GroupFlags, LevelChange, Outcome},
        quotas::{Level, Version},
    },
    model::{
        GroupId, GroupName, UserId,
        quota::{Change, Field, Kind},
    },
};
use tokio::task::JoinSet;

use super::{BY, START, add_user, each, on_both, set_limits};

fn chief() -> Author<'static> {
    Author::administrator("chief", START)
}

async fn version(db: &Db, level: Level) -> Version {
    let group = match level {
        Level::Group(id) => db.find_quota_group(&id.to_string()).await.unwrap(),
        _ => None,
    };
    Version::of(&db.limits_at(level).await.unwrap(), group.as_ref())
}

fn seen(change: LevelChange, version: &Version) -> LevelChange {
    LevelChange { seen: Some(version.clone()), ..change }
}

async fn value(db: &Db, level: Level, field: &Field) -> Option<i64> {
    let set = db.limits_at(level).await.unwrap();
    set.into_iter().find(|limit| limit.field == *field).map(|limit| limit.terms.value)
}

#[tokio::test]
async fn of_those_who_saw_the_same_one_changes_it() {
    on_both(async |house| {
        let db = &house.db;
        let group = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        let user = add_user(db, "ada").await;
        for level in [Level::Default, Level::User(user), Level::Group(group)] {
            let before = version(db, level).await;
            let mut racers = JoinSet::new();
            for number in 0..20 {
                let (db, before) = (db.clone(), before.clone());
                racers.spawn(async move {
                    let changes = each([(Field::Gpus, Some(number)), (Field::Cpus, Some(number))]).to_vec();
                    let change = seen(LevelChange::new(level, changes), &before);
                    (number, db.change_limits(&[change], &chief()).await.unwrap())
                });
            }
            let outcomes = racers.join_all().await;
            let done: Vec<_> = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Done).collect();
            assert_eq!(done.len(), 1, "{outcomes:?}");
            assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Done | Outcome::Stale(_))));
            for field in [Field::Gpus, Field::Cpus] {
                assert_eq!(value(db, level, &field).await, Some(done[0].0), "all of one change, nothing of others");
            }
            assert_ne!(version(db, level).await, before);
        }
        // A mark is a part of what somebody saw, and where nobody says what they saw the last one wins.
        let before = version(db, Level::Group(group)).await;
        set_limits(db, Level::Group(group), &[], GroupFlags { chargeable: Some(true), restrictive: None }).await;
        let change = LevelChange::new(Level::Group(group), each([(Field::Gpus, Some(1))]).to_vec());
        let outcome = db.change_limits(&[seen(change.clone(), &before)], &chief()).await.unwrap();
        assert_eq!(outcome, Outcome::Stale(Level::Group(group)));
        assert_eq!(db.change_limits(&[change], &chief()).await.unwrap(), Outcome::Done);
    })
    .await;
}

#[tokio::test]
async fn several_people_change_together_or_not_at_all() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let four = |user| LevelChange::new(Level::User(user), each([(Field::Gpus, Some(4))]).to_vec());
        let before = version(db, Level::User(bob)).await;
        set_limits(db, Level::User(bob), &each([(Field::Gpus, Some(9))]), GroupFlags::default()).await;
        let rows = db.list_audit(100).await.unwrap().len();

        let outcome = db.change_limits(&[four(ada), seen(four(bob), &before)], &chief()).await.unwrap();
        assert_eq!(outcome, Outcome::Stale(Level::User(bob)));
        let gone = [four(ada), four(UserId::new())];
        assert!(matches!(db.change_limits(&gone, &chief()).await.unwrap(), Outcome::Gone(Level::User(_))));
        let gone = LevelChange::new(Level::Group(GroupId::new()), each([(Field::Gpus, Some(4))]).to_vec());
        assert!(matches!(db.change_limits(&[four(ada), gone], &chief()).await.unwrap(), Outcome::Gone(_)));
        assert_eq!(value(db, Level::User(ada), &Field::Gpus).await, None, "nothing is half applied");
        assert_eq!(db.list_audit(100).await.unwrap().len(), rows, "and nothing is told that did not happen");

        let now = version(db, Level::User(bob)).await;
        assert_eq!(db.change_limits(&[four(ada), seen(four(bob), &now)], &chief()).await.unwrap(), Outcome::Done);
        for user in [ada, bob] {
            assert_eq!(value(db, Level::User(user), &Field::Gpus).await, Some(4));
        }
        let told: Vec<_> = db.list_audit(2).await.unwrap().into_iter().map(|row| (row.subject, row.detail)).collect();
        let change = |who: &str, what: &str| (who.to_owned(), what.to_owned());
        assert_eq!(told, [change("bob", "gpus=4, was 9"), change("ada", "gpus=4, was inherit")]);
    })
    .await;
}

#[tokio::test]
async fn a_manager_stays_within_what_the_group_has() {
    on_both(async |house| {
        let db = &house.db;
        let group = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        let level = Level::Group(group);
        let chargeable = GroupFlags { chargeable: Some(true), restrictive: None };
        set_limits(db, level, &[Change::new(Kind::Total, Field::Gpus, Some(4))], chargeable).await;
        let manager = Author { is_manager: true, ..chief() };
        let try_ = async |change: Change, marks| {
            let change = LevelChange { marks, ..LevelChange::new(level, vec![change]) };
            db.change_limits(&[change], &manager).await.unwrap()
        };
        let each = |field, value| Change::new(Kind::Each, field, Some(value));
        assert_eq!(try_(each(Field::Gpus, 4), GroupFlags::default()).await, Outcome::Done);
        for (change, marks, field) in [
            (each(Field::Gpus, 5), GroupFlags::default(), "each.gpus"),
            (each(Field::Cpus, 1), GroupFlags::default(), "each.cpus"),
            (Change::new(Kind::Total, Field::Gpus, Some(9)), GroupFlags::default(), "total.gpus"),
            (each(Field::Gpus, 1), GroupFlags { chargeable: Some(true), restrictive: None }, "chargeable"),
        ] {
            let Outcome::Refused(faults) = try_(change, marks).await else { panic!("{field} is not theirs") };
            assert_eq!(faults[0].field, field);
        }
        assert_eq!(db.limits_at(level).await.unwrap().len(), 2);
        // It stands beside what an administrator sets, and whose word takes its place.
        let set = async || {
            let set = db.limits_at(level).await.unwrap().into_iter();
            set.filter(|limit| limit.kind != Kind::Total)
                .map(|limit| (limit.kind, limit.terms.value))
                .collect::<Vec<_>>()
        };
        assert_eq!(set().await, [(Kind::Raised, 4)]);
        set_limits(db, level, &[each(Field::Gpus, 1)], GroupFlags::default()).await;
        assert_eq!(set().await, [(Kind::Each, 1)]);
        assert_eq!(try_(each(Field::Gpus, 3), GroupFlags::default()).await, Outcome::Done);
        assert_eq!(set().await, [(Kind::Each, 1), (Kind::Raised, 3)]);
        assert_eq!(try_(Change::new(Kind::Each, Field::Gpus, None), GroupFlags::default()).await, Outcome::Done);
        assert_eq!(set().await, [(Kind::Each, 1)], "a manager takes back what is a manager's");
        // The total that is looked at is the one that holds now.
        set_limits(db, level, &[Change::new(Kind::Total, Field::Gpus, Some(2))], GroupFlags::default()).await;
        assert!(matches!(try_(each(Field::Gpus, 4), GroupFlags::default()).await, Outcome::Refused(_)));
        // And where nothing is charged to it, there is nothing to give.
        let uncharged = GroupFlags { chargeable: Some(false), restrictive: None };
        set_limits(db, level, &[], uncharged).await;
        let Outcome::Refused(faults) = try_(each(Field::Gpus, 1), GroupFlags::default()).await else {
            panic!("refused")
        };
        assert_eq!(faults[0].field, "each.gpus");
    })
    .await;
}
