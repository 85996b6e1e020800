//! Totals of groups that are not chargeable: all that members hold counts there, whatever it is charged
//! to, also of somebody who leaves; in the transaction, in the order of those that wait, in previews and
//! on the pages that only look.

use std::collections::HashMap;

use lyceum::{
    admission::{Admission, external_usage::UserExternalUsage},
    db::{
        Db,
        admit::{AdmissionOutcome, NewSession, Verdict},
        limits::{GroupFlags, LevelChange},
        limits_and_usage::Requester,
        quotas::Level,
    },
    model::{
        GroupId, GroupName, Resources, UserId,
        quota::{Change, Field, Kind, Total, TotalScope},
    },
};
use tokio::task::JoinSet;

use super::{
    BY, add_user, each, new_attempt, new_session, on_both,
    order::{admission, again, ask},
    quotas::{charged, end},
    set_limits,
};

const HOUR: i64 = 3600;

struct Lab {
    group: GroupId,
    ada: UserId,
    bob: UserId,
    eve: UserId,
    admission: Admission,
}

/// Ada and Bob in a group of this total, and Eve outside.
async fn lab(db: &Db, totals: &[(Field, i64)], chargeable: bool) -> Lab {
    let lots = [(Field::Gpus, Some(-1)), (Field::Sessions, Some(-1)), (Field::Jobs, Some(-1))];
    set_limits(db, Level::Default, &each(lots), GroupFlags::default()).await;
    let group = add_group(db, "lab", totals, chargeable).await;
    let (ada, bob, eve) = (add_user(db, "ada").await, add_user(db, "bob").await, add_user(db, "eve").await);
    for member in [ada, bob] {
        db.set_member(group, member, true, BY).await.unwrap();
    }
    Lab { group, ada, bob, eve, admission: admission(db, 24) }
}

async fn add_group(db: &Db, name: &str, totals: &[(Field, i64)], chargeable: bool) -> GroupId {
    let group = db.add_group(&GroupName::parse(name).unwrap(), None, BY).await.unwrap();
    let totals: Vec<Change> =
        totals.iter().map(|(field, value)| Change::new(Kind::Total, field.clone(), Some(*value))).collect();
    let marks = GroupFlags { chargeable: Some(chargeable), restrictive: None };
    set_limits(db, Level::Group(group), &totals, marks).await;
    group
}

/// What those who only look see of a group's total.
async fn seen(admission: &Admission, owner: UserId, group: GroupId) -> Option<Total> {
    let asking = Requester { owner, group: None, period: &admission.period, holds_at_once: true };
    let totals = admission.db.usage(&asking, admission.clock.now()).await.unwrap().totals;
    totals.into_iter().find(|total| matches!(total.whose, TotalScope::Group { id, .. } if id == group))
}

#[tokio::test]
async fn a_total_binds_members_whoever_is_charged() {
    on_both(async |house| {
        let Lab { group, ada, bob, eve, admission } = lab(&house.db, &[(Field::Jobs, 1)], false).await;
        let db = &house.db;
        let (adas, bobs) = (new_attempt(ada, "a", None), new_attempt(bob, "b", None));
        assert_eq!(ask(&admission, &adas).await, "admitted");
        assert_eq!(ask(&admission, &bobs).await, "quota.jobs.group", "two members' jobs do not run together");
        assert_eq!(ask(&admission, &new_attempt(eve, "e", None)).await, "admitted", "who is not in it is not bound");
        assert_eq!(ask(&admission, &new_session(bob, 1)).await, "admitted", "what the total is not about");
        let total = seen(&admission, bob, group).await.unwrap();
        assert_eq!((total.usage.jobs, total.usage.sessions, total.usage.pending), (1, 1, 1));
        assert_eq!(seen(&admission, eve, group).await.map(|total| total.usage.jobs), None);
        let held = admission.used_together(Some(group)).await.unwrap();
        assert_eq!((held.jobs, held.sessions), (1, 1), "the group's page shows the same");

        // Charging another group is no way round it.
        let payer = add_group(db, "payer", &[], true).await;
        db.set_member(payer, bob, true, BY).await.unwrap();
        let elsewhere = NewSession { charged_group: Some(payer), ..new_attempt(bob, "c", None) };
        assert_eq!(ask(&admission, &elsewhere).await, "quota.jobs.group");

        // Nor is leaving: what was admitted as a member's goes on counting.
        assert!(db.leave_group(group, ada, BY).await.unwrap());
        let reconsider = async |owner, new: &NewSession| {
            let session = db.find_session(new.id).await.unwrap().unwrap();
            let foretold = admission.foresee(&admission.outlook().await.unwrap(), &session, None).unwrap();
            let decided =
                admission.reconsider(owner, new.id, &new.spec, lyceum::model::quota::Class::Job, None).await.unwrap();
            assert_eq!(foretold.as_ref(), Some(&decided));
            decided.verdict
        };
        assert!(matches!(reconsider(bob, &bobs).await, Verdict::Wait(_)), "ada's job still runs");
        end(db, adas.id, admission.clock.now()).await;
        assert!(matches!(reconsider(bob, &bobs).await, Verdict::Admit { .. }));
        // What somebody brings along counts as well.
        assert!(db.set_member(group, eve, true, BY).await.unwrap());
        assert_eq!(admission.used_together(Some(group)).await.unwrap().jobs, 2);
        // Where what is charged counts, members' other things do not.
        let marks = GroupFlags { chargeable: Some(true), restrictive: None };
        set_limits(db, Level::Group(group), &[], marks).await;
        assert_eq!(admission.used_together(Some(group)).await.unwrap().jobs, 0);
        assert_eq!(ask(&admission, &new_attempt(eve, "f", None)).await, "admitted");
    })
    .await;
}

#[tokio::test]
async fn of_several_groups_each_total_binds() {
    on_both(async |house| {
        let Lab { group, ada, bob, eve, admission } = lab(&house.db, &[(Field::Gpus, 4)], false).await;
        let db = &house.db;
        let course = add_group(db, "course", &[(Field::Gpus, 3)], false).await;
        let payer = add_group(db, "payer", &[(Field::Gpus, 2)], true).await;
        for (of, member) in [(course, bob), (course, eve), (payer, bob)] {
            db.set_member(of, member, true, BY).await.unwrap();
        }
        assert_eq!(ask(&admission, &new_session(ada, 3)).await, "admitted");
        // Bob counts in all three: one is left of the lab.
        assert_eq!(ask(&admission, &charged(bob, payer, 3)).await, "quota.gpus.group quota.gpus.group");
        assert_eq!(ask(&admission, &charged(bob, payer, 1)).await, "admitted");
        assert_eq!(ask(&admission, &charged(bob, payer, 1)).await, "quota.gpus.group", "the lab is full");
        let used = async |group| admission.used_together(Some(group)).await.unwrap().gpus;
        assert_eq!((used(group).await, used(course).await, used(payer).await), (4, 1, 1));
        assert_eq!(ask(&admission, &new_session(eve, 2)).await, "admitted");
        assert_eq!(ask(&admission, &new_session(eve, 1)).await, "quota.gpus.group");
    })
    .await;
}

#[tokio::test]
async fn hours_and_the_order_hold_for_members_too() {
    on_both(async |house| {
        let totals = [(Field::GpuHours, 5), (Field::Gpus, 4)];
        let Lab { group, ada, bob, eve, admission } = lab(&house.db, &totals, false).await;
        let db = &house.db;
        let first = new_session(ada, 2);
        assert_eq!(ask(&admission, &first).await, "admitted");
        admission.clock.advance(HOUR / 2);
        end(db, first.id, admission.clock.now()).await;
        // One hour was used. Whoever leaves takes none of it along.
        let spent = async || seen(&admission, bob, group).await.unwrap().usage.gpu_seconds;
        assert_eq!(spent().await, HOUR);
        assert!(db.leave_group(group, ada, BY).await.unwrap());
        assert_eq!(spent().await, HOUR);
        assert_eq!(ask(&admission, &new_session(bob, 4)).await, "admitted");
        assert_eq!(spent().await, 5 * HOUR);
        assert_eq!(ask(&admission, &new_session(bob, 1)).await, "quota.gpu_hours.group quota.gpus.group");
        assert_eq!(ask(&admission, &new_session(ada, 1)).await, "admitted");

        // A large request holds its place under the members' total, and only among those that count there.
        set_limits(db, Level::Group(group), &[Change::new(Kind::Total, Field::GpuHours, None)], GroupFlags::default())
            .await;
        db.set_member(group, eve, true, BY).await.unwrap();
        admission.clock.advance(60);
        let large = new_session(eve, 3);
        assert_eq!(ask(&admission, &large).await, "quota.gpus.group");
        assert_eq!(again(&admission, eve, &large).await, "quota.gpus.group");
        let mia = add_user(db, "mia").await;
        assert_eq!(ask(&admission, &new_session(mia, 5)).await, "admitted");
    })
    .await;
}

/// Twenty members ask at once, over three connections.
#[tokio::test]
async fn no_crowd_of_members_gets_past_a_total() {
    on_both(async |house| {
        let Lab { group, admission: whole, .. } = lab(&house.db, &[(Field::Sessions, 3)], false).await;
        let mut people = Vec::new();
        for number in 0..20 {
            let member = add_user(&house.db, &format!("m{number}")).await;
            house.db.set_member(group, member, true, BY).await.unwrap();
            people.push(member);
        }
        let mut asking = JoinSet::new();
        for (db, owner) in house.three().await.into_iter().cycle().zip(people) {
            let admission = Admission { db: db.clone(), ..admission(&db, 24) };
            asking.spawn(async move {
                let answer = admission.insert(&new_session(owner, 0)).await.unwrap();
                usize::from(matches!(answer, AdmissionOutcome::Judged(Verdict::Admit { .. })))
            });
        }
        assert_eq!(asking.join_all().await.into_iter().sum::<usize>(), 3);
        assert_eq!(whole.used_together(Some(group)).await.unwrap().sessions, 3);
    })
    .await;
}

#[tokio::test]
async fn shells_and_previews_count_members() {
    on_both(async |house| {
        let Lab { group, ada, bob, eve, admission } = lab(&house.db, &[(Field::Gpus, 4)], false).await;
        let db = &house.db;
        let resources = Resources { gpus: 3, ..Resources::default() };
        let shell = |owner: UserId, name: &str| {
            let mut held = UserExternalUsage { name: name.to_owned(), ..UserExternalUsage::default() };
            held.add("train (7)".to_owned(), &resources, None);
            HashMap::from([(owner, held)])
        };
        // The portal notes what its batch system runs, and keeps the list.
        super::shell_jobs::noted(db, ada, admission.clock.now()).await;
        assert!(admission.external_usage.set(shell(ada, "ada")));
        assert_eq!(admission.used_together(Some(group)).await.unwrap().gpus, 3);
        assert_eq!(ask(&admission, &new_session(bob, 2)).await, "quota.gpus.group");
        assert_eq!(ask(&admission, &new_session(bob, 1)).await, "admitted");
        assert_eq!(ask(&admission, &new_session(eve, 4)).await, "admitted");

        // A total that would be exceeded is told of before it is set, whether or not there was one.
        let course = add_group(db, "course", &[], false).await;
        db.set_member(course, eve, true, BY).await.unwrap();
        let preview = async |group, value| {
            let total = Change::new(Kind::Total, Field::Gpus, Some(value));
            let told = admission.preview(&[LevelChange::new(Level::Group(group), vec![total])]).await.unwrap();
            told.over.into_iter().map(|over| (over.source.to_string(), over.used, over.limit)).collect::<Vec<_>>()
        };
        assert_eq!(preview(course, 3).await, [("group course".to_owned(), 4, 3)]);
        assert_eq!(preview(course, 4).await, []);
        assert_eq!(preview(group, 2).await, [("group lab".to_owned(), 4, 2)]);
    })
    .await;
}
