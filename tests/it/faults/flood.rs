//! An app that writes ten thousand lines a second: its log stays bounded, and neither its
//! agent nor the portal grows, also while somebody follows the log and somebody else opened
//! it and reads nothing.

use std::{fs, path::Path, time::Duration};

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::{life::House, wait::eventually};

const LINES_A_SECOND: u64 = 10_000;

/// A line of the flood (bytes).
const LINE: u64 = 100;

/// What the log may measure (bytes).
const BOUND: u64 = 8 << 20;

/// Resident memory of a process (bytes).
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_flooded_log_stays_bounded_and_memory_flat() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let id = person.run(&house, "web").await;
    let record = house.record(id).unwrap();
    let log = Path::new(&record.placement.run_directory).join("log");
    person.visit(&house, id, &format!("/flood-{LINES_A_SECOND}")).await;
    let written = || fs::read_to_string(format!("/home/ly-{}/flooded", person.name)).ok()?.parse::<u64>().ok();

    let follow = || person.request(&house, "GET", &format!("/api/v1/sessions/{id}/log"));
    let follow = async || follow().header("accept", "text/event-stream").send().await.unwrap();
    let (asleep, mut awake) = (follow().await, follow().await.bytes_stream());
    let reader = tokio::spawn(async move {
        let mut read = 0;
        while let Some(Ok(piece)) = awake.next().await {
            read += piece.len();
        }
        read
    });

    // A first time over the bound everything has the size that it will have.
    eventually("the log is full once", async || (BOUND / LINE < written()?).then_some(())).await;
    let before = (resident(record.placement.pid), resident(house.pid()));
    let (begin, lines) = (Instant::now(), written().unwrap());
    eventually("the log is full twice more", async || {
        let size = fs::metadata(&log).unwrap().len();
        assert!(size <= BOUND, "{size} bytes of log");
        (2 * BOUND / LINE < written()? - lines).then_some(())
    })
    .await;
    let rate = u128::from(written().unwrap() - lines) * 1000 / begin.elapsed().as_millis();
    let after = (resident(record.placement.pid), resident(house.pid()));
    eprintln!("{rate} lines a second; agent and portal {before:?} bytes, then {after:?}");
    assert!(after.0 < before.0 + (6 << 20), "the agent grew: {before:?}, {after:?}");
    assert!(after.1 < before.1 + (16 << 20), "the portal grew: {before:?}, {after:?}");
    let tail = person.request(&house, "GET", &format!("/api/v1/sessions/{id}/log?tail=5"));
    let tail = tail.timeout(Duration::from_secs(10)).send().await.unwrap().text().await.unwrap();
    assert_eq!(tail.lines().filter(|line| line.starts_with("flood ")).count(), 5, "{tail}");

    person.end(&house, id).await;
    house.nothing_left(&record).await;
    drop(asleep);
    assert!(reader.await.unwrap() > 0, "who follows sees something");
    let kept = house.paths().private.join(format!("logs/{id}.log"));
    assert!((1..=256 * 1024).contains(&fs::metadata(kept).unwrap().len()));
}
