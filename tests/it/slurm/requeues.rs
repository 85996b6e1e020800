//! What Slurm puts back into its queue and starts again: every start is billed as Slurm's own
//! accounts tell it, to the second and without what was suspended, whatever became of the portal
//! meanwhile; and what is known of it where there are no accounts.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
};

use lyceum::model::SessionId;
use serde_json::json;

use super::cluster::Cluster;
use crate::{
    life::{House, Person},
    wait::{eventually, until},
};

const MIB: i64 = 1 << 20;

/// A session's job, and what it was launched with: the agent reads that once and removes it, and
/// a start of which Slurm alone knows has to find it again.
struct Job {
    number: String,
    id: SessionId,
    directory: PathBuf,
    launch: Vec<u8>,
}

impl Job {
    async fn begin(house: &House, person: &Person, cluster: &Cluster) -> Self {
        Self::lasting(1800, house, person, cluster).await
    }

    async fn lasting(seconds: i64, house: &House, person: &Person, cluster: &Cluster) -> Self {
        cluster.set_nodes("drain");
        let request = json!({
            "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "duration_seconds": seconds,
        });
        let id = person.start(house, request).await;
        eventually("it waits in Slurm's queue", async || {
            person.session(house, id).await["detail"].as_str().is_some_and(|why| why.contains("drained")).then_some(())
        })
        .await;
        let directory = house.paths().run.join(id.short());
        let launch = fs::read(directory.join("launch.json")).unwrap();
        let number = cluster.ask("squeue", &["--noheader", "--format=%i"]).trim().to_owned();
        cluster.tell("scontrol", &["update", &format!("jobid={number}"), "requeue=1"]);
        cluster.set_nodes("resume");
        person.state(house, id, "running").await;
        Self { number, id, directory, launch }
    }

    fn state(&self, cluster: &Cluster) -> String {
        cluster.field(self.number.parse().unwrap(), "state")
    }

    fn put_back(&self, cluster: &Cluster) {
        cluster.tell("scontrol", &["requeuehold", &self.number]);
        until("it waits again", || self.state(cluster) == "PENDING");
    }

    /// As on a site whose jobs are written to be started again.
    fn start_again(&self, cluster: &Cluster) {
        let owner = fs::metadata(&self.directory).unwrap();
        for entry in fs::read_dir(&self.directory).unwrap() {
            let path = entry.unwrap().path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        let file = self.directory.join("launch.json");
        fs::write(&file, &self.launch).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        // A node takes no permission for a job that is of the very second in which it gave up the one before.
        self.lasts(2);
        cluster.tell("scontrol", &["release", &self.number]);
        cluster.tell("scontrol", &["update", &format!("jobid={}", self.number), "starttime=now"]);
        until("it runs again", || self.state(cluster) == "RUNNING");
    }

    fn suspend(&self, cluster: &Cluster, seconds: i64) {
        cluster.tell("scontrol", &["suspend", &self.number]);
        self.lasts(seconds);
        cluster.tell("scontrol", &["resume", &self.number]);
    }

    /// Time goes by, in which it runs or does not.
    fn lasts(&self, seconds: i64) {
        let clock = || lyceum::model::Clock::System.now().0;
        let begun = clock();
        until(&format!("{} went on for {seconds} s", self.number), || begun + seconds * 1000 <= clock());
    }

    /// When each start began and ended, and how long it was suspended, once the accounts know it all.
    fn accounts(&self, cluster: &Cluster, starts: usize) -> Vec<(i64, i64, i64)> {
        let job = format!("--jobs={}", self.number);
        let mut found = Vec::new();
        until("the accounts know each start and its end", || {
            let words =
                ["--allocations", "--duplicates", "--noheader", "--parsable2", "--format=Start,End,Suspended", &job];
            let output = cluster.command("sacct", &words).env("SLURM_TIME_FORMAT", "%s").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let read = |line: &str| {
                let [start, end, suspended] = line.split('|').collect::<Vec<_>>()[..] else { return None };
                let suspended =
                    suspended.split(':').try_fold(0, |sum, part| Some(sum * 60 + part.parse::<i64>().ok()?))?;
                Some((start.parse().ok()?, end.parse().ok()?, suspended))
            };
            found = text.lines().filter_map(read).filter(|(start, end, _)| start < end).collect();
            found.len() == starts
        });
        found.sort_unstable();
        found
    }
}

/// Core-seconds and sessions of the person's, as `/usage` tells them.
async fn used(house: &House, person: &Person) -> (i64, i64) {
    let usage = person.get(house, "/usage?by=user").await;
    let row = &usage["items"][0];
    (row["cpu_seconds"].as_i64().unwrap_or(0), row["sessions"].as_i64().unwrap_or(0))
}

/// The intervals are what the accounts say, of one core.
async fn agrees(house: &House, person: &Person, told: &[(i64, i64, i64)]) {
    let mut intervals: Vec<(i64, i64)> = house.intervals().await.iter().map(|one| (one.from, one.to)).collect();
    intervals.sort_unstable();
    let wanted: Vec<(i64, i64)> = told.iter().map(|(from, to, off)| ((from + off) * 1000, to * 1000)).collect();
    assert_eq!(intervals, wanted, "{told:?}");
    let sum: i64 = told.iter().map(|(from, to, off)| to - from - off).sum();
    assert_eq!(used(house, person).await, (sum, 1));
    assert_eq!(person.get(house, "/me").await["usage"]["cpu_seconds"], json!(sum));
    let db = house.db().await;
    crate::db::whole::assert_consistent(&db).await;
    db.close().await;
}

#[tokio::test]
async fn every_start_is_billed_to_the_second() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    let Some((mut house, person, cluster)) = super::whole::on(cluster).await else { return };
    let job = Job::begin(&house, &person, &cluster).await;
    job.lasts(3);
    job.suspend(&cluster, 3);
    job.put_back(&cluster);
    let first = job.accounts(&cluster, 1)[0];
    assert!(first.2 >= 3 && first.1 - first.0 >= 6, "{first:?}");
    eventually("the first start is over", async || {
        let all = house.intervals().await;
        let ends = |one: &crate::life::Interval| one.from == (first.0 + first.2) * 1000 && one.to == first.1 * 1000;
        (all.len() == 1 && ends(&all[0])).then_some(())
    })
    .await;
    let spent = first.1 - first.0 - first.2;
    assert_eq!(used(&house, &person).await, (spent, 1));
    // While it waits again, it is promised all that it asked for, and counts once.
    let usage = person.get(&house, "/me").await["usage"].clone();
    assert_eq!(usage["light"], 1, "{usage}");

    job.start_again(&cluster);
    eventually("the second start is held", async || {
        let all = house.intervals().await;
        (all.len() == 2 && all.iter().filter(|one| one.to == i64::MAX).count() == 1).then_some(())
    })
    .await;
    assert_eq!(person.get(&house, "/me").await["usage"]["light"], 1);
    // Nobody looks while it is put back once more, and begins a third time.
    house.kill();
    job.lasts(2);
    job.put_back(&cluster);
    job.start_again(&cluster);
    job.lasts(2);
    house.start().await;
    eventually("the third start is held", async || {
        let all = house.intervals().await;
        (all.len() == 3 && all.iter().filter(|one| one.to == i64::MAX).count() == 1).then_some(())
    })
    .await;
    // The accounts may tell a little later when the second one ended, and the portal asks them still.
    person.end(&house, job.id).await;
    let told = job.accounts(&cluster, 3);
    assert_eq!(told[0], first);
    agrees(&house, &person, &told).await;
}

/// It ended, and the controller has forgotten it, before the portal is there again.
#[tokio::test]
async fn the_accounts_know_what_nobody_saw() {
    let Some(cluster) = Cluster::with_accounts("MinJobAge=2") else { return };
    let Some((mut house, person, cluster)) = super::whole::on(cluster).await else { return };
    let job = Job::begin(&house, &person, &cluster).await;
    house.kill();
    job.lasts(2);
    job.put_back(&cluster);
    job.start_again(&cluster);
    job.suspend(&cluster, 2);
    job.lasts(2);
    cluster.tell("scancel", &[&job.number]);
    let told = job.accounts(&cluster, 2);
    until("the controller forgets it", || super::whole::jobs(&cluster) == 0);
    house.start().await;
    eventually("it has ended", async || (person.session(&house, job.id).await["state"] == "ended").then_some(())).await;
    agrees(&house, &person, &told).await;
}

/// Without accounts a start that is over ends when it is no longer there.
#[tokio::test]
async fn without_accounts_it_is_what_was_seen() {
    let Some((house, person, cluster)) = super::whole::open().await else { return };
    let job = Job::begin(&house, &person, &cluster).await;
    job.lasts(2);
    let begun = house.intervals().await[0].from;
    let before = lyceum::model::Clock::System.now().0;
    job.put_back(&cluster);
    let first = eventually("the first start is over", async || {
        house.intervals().await.into_iter().find(|one| one.to != i64::MAX)
    })
    .await;
    assert!(first.from == begun && before <= first.to, "{begun}, {before}");
    job.start_again(&cluster);
    eventually("the second start is held", async || (house.intervals().await.len() == 2).then_some(())).await;
    person.end(&house, job.id).await;
    let all = house.intervals().await;
    assert!(all.iter().all(|one| one.to != i64::MAX) && all.len() == 2);
    assert_eq!(used(&house, &person).await.1, 1, "one session");
    let db = house.db().await;
    crate::db::whole::assert_consistent(&db).await;
    db.close().await;
}

/// In the queue no time is counted: the end moves by as long as it waited.
#[tokio::test]
async fn what_waits_again_keeps_its_time() {
    const SECONDS: i64 = 60;
    let Some((house, person, cluster)) = super::whole::open().await else { return };
    let job = Job::lasting(SECONDS, &house, &person, &cluster).await;
    let end = async || {
        let session = person.session(&house, job.id).await;
        assert_eq!(session["state"], "running", "{session}");
        session["expires_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap()
    };
    let now = || jiff::Timestamp::from_millisecond(lyceum::model::Clock::System.now().0).unwrap();
    let first = end().await;
    job.put_back(&cluster);
    until("its first end is over", || first + jiff::Span::new().seconds(5) < now());
    end().await;
    job.start_again(&cluster);
    let began = now();
    eventually("its end has moved", async || (first < end().await).then_some(())).await;
    let moved = end().await;
    assert!((SECONDS - 10..=SECONDS + 10).contains(&(moved.as_second() - began.as_second())), "{began} {moved}");
    person.end(&house, job.id).await;
}
