//! A portal that is killed two hundred times at moments drawn by lot, while twenty people
//! start and stop sessions and ask again whenever nobody answers. In the end every witness
//! tells the same: what was accepted is there once, and nothing else is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lyceum::{
    db::{Db, sessions::Filter},
    model::{EndReason, SessionId, SessionState, quota::Field},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::{net::TcpStream, task::JoinSet, time::Instant};

use super::{agents, all_agree, allow_everybody, crowd, fixed_port, names, start_once, stop_once};
use crate::{
    db::{
        number,
        whole::{assert_whole, intervals, peak},
    },
    life::{House, Person, children},
    needs::variable,
    wait::eventually,
};

const KILLS: usize = 200;
const CLIENTS: usize = 20;
const GPUS: i64 = 4;
const EACH: i64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_kills_lose_nothing_and_double_nothing() {
    if !crate::needs::root() {
        return;
    }
    let seed = variable("LYCEUM_TEST_SEED").map_or_else(rand::random, |seed| seed.parse().unwrap());
    eprintln!("LYCEUM_TEST_SEED={seed} draws the same lots again");
    let mut house = House::new(&[]);
    house.listen = format!("127.0.0.1:{}", fixed_port());
    house.start().await;
    allow_everybody(&house, &[(Field::Gpus, EACH)]).await;
    let people = crowd(&house, 5).await;

    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client {
            person: people[number % people.len()].clone(),
            url: house.url.clone(),
            rng: StdRng::seed_from_u64(seed ^ (1 + number as u64)),
            asked: Vec::new(),
        };
        clients.spawn(client.come_and_go(over.clone()));
    }
    let begin = Instant::now();
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..KILLS {
        kill_at_some_moment(&mut house, &mut rng).await;
        house.spawn();
    }
    eprintln!("{KILLS} kills took {:?}", begin.elapsed());
    over.store(true, Ordering::Relaxed);
    let clients = clients.join_all().await;

    let db = house.db().await;
    all_agree(&house, &db).await;
    let asked: Vec<Asked> = clients.iter().flat_map(|client| client.asked.clone()).collect();
    check_fates(&db, &asked).await;
    for client in &clients {
        for asked in client.asked.iter().filter(|asked| !asked.stopped) {
            stop_once(&client.person, &client.url, asked.id).await;
        }
    }
    eventually("all end", async || db.live_sessions().await.unwrap().is_empty().then_some(())).await;
    all_agree(&house, &db).await;
    assert_eq!((agents(&house), names(house.paths().placements).len()), (Vec::new(), 0));
    assert_whole(&db).await;
    let intervals = intervals(&db).await;
    assert!(intervals.iter().all(|(.., end)| end.is_some()), "a reservation leaked");
    assert!(peak(&intervals, |_| true) <= GPUS);
    let stops = "SELECT COUNT(*) FROM sessions WHERE (SELECT COUNT(*) FROM audit
         WHERE action = 'session.stop' AND subject = sessions.id) <> 1";
    assert_eq!(number(&db, stops).await, 0, "each stop is in the audit once");
    for owner in intervals.iter().map(|(owner, ..)| owner) {
        assert!(peak(&intervals, |(other, ..)| other == owner) <= EACH);
    }
    db.close().await;
}

/// Waits for a random time below `most` milliseconds. There is no condition to wait for: the random interleaving is
/// what is tested.
async fn random_moment(rng: &mut StdRng, most: u64) {
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..most))).await;
}

/// Ends the portal, and now and then its helper first, at any moment of its life.
async fn kill_at_some_moment(house: &mut House, rng: &mut StdRng) {
    if rng.random_bool(0.7) {
        let address = house.listen.clone();
        eventually("the portal listens", async || {
            assert!(!house.has_ended(), "the portal ended by itself");
            TcpStream::connect(&address).await.ok()
        })
        .await;
        random_moment(rng, 400).await;
    } else {
        random_moment(rng, 150).await;
    }
    if rng.random_bool(0.1) {
        for helper in children(house.pid()) {
            let _ = kill(Pid::from_raw(helper), Signal::SIGKILL);
        }
        random_moment(rng, 40).await;
    }
    house.kill();
}

/// Every accepted session is there, none besides, and each went the way that was asked for.
async fn check_fates(db: &Db, asked: &[Asked]) {
    let all = Filter { limit: 100_000, ..Filter::default() };
    let written = db.list_sessions(all).await.unwrap();
    let ids: Vec<SessionId> = asked.iter().map(|asked| asked.id).collect();
    let nobodys: Vec<_> = written.iter().filter(|session| !ids.contains(&session.id)).collect();
    assert!(nobodys.is_empty(), "nobody was told of these: {nobodys:?}");
    eprintln!("{} sessions were accepted", asked.len());
    for asked in asked {
        let session = written.iter().find(|session| session.id == asked.id).expect("it was accepted, and is lost");
        let is_right = if asked.stopped {
            session.state == SessionState::Stopping || session.end_reason == Some(EndReason::StoppedByOwner)
        } else {
            session.state.is_live() && session.state != SessionState::Stopping
        };
        assert!(is_right, "{asked:?} became {session:?}");
    }
}

struct Client {
    person: Person,
    url: String,
    rng: StdRng,
    asked: Vec<Asked>,
}

#[derive(Clone, Debug)]
struct Asked {
    id: SessionId,
    stopped: bool,
}

impl Client {
    async fn come_and_go(mut self, over: Arc<AtomicBool>) -> Self {
        while !over.load(Ordering::Relaxed) {
            let mut live: Vec<usize> = (0..self.asked.len()).filter(|at| !self.asked[*at].stopped).collect();
            if live.is_empty() || (live.len() < 2 && self.rng.random_bool(0.5)) {
                let gpus = self.rng.random_range(0..=1);
                let request = json!({ "app": "terminal", "resources": { "gpus": gpus } });
                let key = SessionId::new().to_string();
                if let Some(id) = start_once(&self.person, &self.url, &key, &request).await {
                    self.asked.push(Asked { id, stopped: false });
                }
            } else {
                let at = live.remove(self.rng.random_range(0..live.len()));
                stop_once(&self.person, &self.url, self.asked[at].id).await;
                self.asked[at].stopped = true;
            }
            random_moment(&mut self.rng, 100).await;
        }
        self
    }
}
