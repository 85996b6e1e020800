//! Crowds: a thousand starts at once, on either database and over restarts, never get past a
//! limit at any instant, neither anybody's own nor a group's; and fifty starts at once are fifty sessions that run.

use std::{collections::HashSet, time::Duration};

use lyceum::{
    db::{audit::ChangedBy, limits::GroupFlags, quotas::Level},
    model::{
        Clock, GroupId, GroupName, SessionState,
        quota::{Change, Field, Kind},
    },
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use super::{all_agree, allow_everybody, crowd, fixed_port, on_both, start_once, stop_once};
use crate::{
    db::{
        set_limits,
        whole::{Interval, assert_whole, intervals, intervals_of, peak},
    },
    life::House,
    wait::eventually,
};

const PEOPLE: usize = 50;
const STARTS: usize = 1000;
const GPUS: i64 = 20;

/// What each third of the people may use together, in a group of theirs that is charged.
const TOGETHER: [i64; 3] = [4, 5, 30];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_starts_stay_within_every_limit() {
    if !crate::needs::root() {
        return;
    }
    let gpus = GPUS.to_string();
    on_both(&[("LYCEUM_SCHEDULER__LOCAL__GPUS", &gpus)], a_thousand_starts).await;
}

async fn a_thousand_starts(mut house: House) {
    house.listen = format!("127.0.0.1:{}", fixed_port());
    house.start().await;
    allow_everybody(&house, &[(Field::Gpus, 1), (Field::Pending, 1)]).await;
    let people = crowd(&house, PEOPLE).await;
    let groups = charged_groups(&house).await;
    let url = house.url.clone();

    let mut starts = JoinSet::new();
    for number in 0..STARTS {
        let (person, url) = (people[number % PEOPLE].clone(), url.clone());
        starts.spawn(async move {
            let request = json!({ "app": "terminal", "resources": { "gpus": 1 } });
            start_once(&person, &url, &number.to_string(), &request).await
        });
    }
    // The portal dies with some answered and others under way.
    let mut accepted = 0;
    while let Some(started) = starts.join_next().await {
        accepted += usize::from(started.unwrap().is_some());
        if [100, 300, 700].contains(&(STARTS - starts.len())) {
            house.restart().await;
        }
    }
    assert!(accepted >= PEOPLE, "{accepted}");

    // All have their turn; the portal dies once more meanwhile.
    let db = house.db().await;
    let end = Instant::now() + Duration::from_mins(4);
    let mut is_first = true;
    loop {
        let live = eventually("somebody has their turn, or all have had it", async || {
            let live = db.live_sessions().await.unwrap();
            let is_due = live.is_empty() || live.iter().any(|session| session.state == SessionState::Running);
            is_due.then_some(live)
        })
        .await;
        if live.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "{} still live", live.len());
        let mut stops = JoinSet::new();
        for session in live.into_iter().filter(|session| session.state == SessionState::Running) {
            let person = people.iter().find(|person| person.name == session.owner_name).unwrap().clone();
            let url = url.clone();
            stops.spawn(async move { stop_once(&person, &url, session.id).await });
        }
        if std::mem::take(&mut is_first) {
            house.restart().await;
        }
        stops.join_all().await;
    }
    all_agree(&house, &db).await;
    assert_whole(&db).await;
    let intervals = intervals(&db).await;
    assert_eq!(intervals.len(), accepted, "each had its turn once");
    assert!(peak(&intervals, |_| true) <= GPUS);
    let of_each = |key: fn(&Interval) -> &String| {
        let keys: HashSet<&String> = intervals.iter().map(key).collect();
        keys.into_iter().map(|one| peak(&intervals, |interval| key(interval) == one)).max().unwrap()
    };
    assert_eq!((of_each(|(owner, ..)| owner), of_each(|(_, _, gpu, ..)| gpu)), (1, 1), "a person, and a GPU");
    for (group, most) in groups.iter().zip(TOGETHER) {
        let charged = intervals_of(&db, &group.to_string()).await;
        assert!(PEOPLE / TOGETHER.len() <= charged.len(), "everybody of the group had their turn");
        assert!(peak(&charged, |_| true) <= most, "a group's {most}");
    }
    db.close().await;
}

/// Everybody of the crowd is in one of three groups, which has a total and pays for them.
async fn charged_groups(house: &House) -> Vec<GroupId> {
    let (db, by) = (house.db().await, ChangedBy { actor: "test", at: Clock::System.now() });
    let people = db.list_users().await.unwrap();
    let mut groups = Vec::new();
    for (third, most) in TOGETHER.into_iter().enumerate() {
        let group = db.add_group(&GroupName::parse(&format!("third{third}")).unwrap(), None, by).await.unwrap();
        let total = [Change::new(Kind::Total, Field::Gpus, Some(most))];
        set_limits(&db, Level::Group(group), &total, GroupFlags { chargeable: Some(true), restrictive: None }).await;
        let crowd = people.iter().filter_map(|person| Some((person, person.name.as_str().strip_prefix('c')?)));
        let numbered = crowd.filter_map(|(person, number)| Some((person, number.parse::<usize>().ok()?)));
        for (person, _) in numbered.filter(|(_, number)| number % TOGETHER.len() == third) {
            db.set_member(group, person.id, true, by).await.unwrap();
        }
        groups.push(group);
    }
    db.close().await;
    groups
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_starts_at_once_all_run() {
    let Some(house) = House::open(&[]).await else { return };
    allow_everybody(&house, &[]).await;
    let people = crowd(&house, PEOPLE).await;
    let begin = Instant::now();
    let starts = people.iter().map(|person| person.start(&house, json!({ "app": "terminal" })));
    let ids = futures_util::future::join_all(starts).await;
    let db = house.db().await;
    eventually("all fifty run", async || {
        let live = db.live_sessions().await.unwrap();
        assert_eq!(live.len(), PEOPLE, "one is lost");
        live.iter().all(|session| session.state == SessionState::Running).then_some(())
    })
    .await;
    eprintln!("fifty sessions run after {:?}", begin.elapsed());
    all_agree(&house, &db).await;
    for (person, id) in people.iter().zip(&ids) {
        person.stop(&house, *id).await;
    }
    eventually("all fifty end", async || db.live_sessions().await.unwrap().is_empty().then_some(())).await;
    all_agree(&house, &db).await;
    db.close().await;
}
