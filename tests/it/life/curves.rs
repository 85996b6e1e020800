//! What curves take of the portal's memory: no more than the setting says, however many runs are looked at, one after
//! another or at once, and whether they grow meanwhile.

use std::{fs, os::unix::fs::MetadataExt};

use lyceum::{
    curves::{
        Item, Store,
        log::{Decoder, Encoder, Entry},
    },
    db::audit,
    model::{
        RunId, Timestamp, UserId,
        run::{ReadProgress, Run, Source, Visibility},
    },
};

use super::{House, eventually};

/// Runs, curves of each, and points of each curve: some 4 MB a run in memory, 64 MB all.
const RUNS: usize = 16;
const CURVES: usize = 10;
const POINTS: u32 = 20_000;

/// What may be kept of curves, and what else the portal needs to answer (KiB).
const KEPT: u64 = 16 << 10;
const ELSE: u64 = 16 << 10;

/// Writes a run's points as the portal would have.
async fn run(house: &House, owner: UserId, home: &str, number: usize, points: u32) -> RunId {
    let directory = format!("{home}/run-{number}");
    let id = RunId::new();
    let curves = house.paths().private.join("curves");
    let path = curves.join(format!("{id}.points"));
    let mut store = Store::open(&path, u64::MAX).unwrap();
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for begin in (0..points).step_by(2_000) {
        for step in begin..(begin + 2_000).min(points) {
            for curve in 0..CURVES {
                let tag = format!("curve/{curve}");
                let value = f64::from(step) / 8.0;
                let item = Item::Scalar { tag: tag.as_bytes(), step: step.into(), wall_time: f64::from(step), value };
                encoder.entry(&Entry::Item { run: "", item });
            }
        }
        store.add(&mut decoder, &encoder.take(), &mut |_| {}).unwrap();
    }
    let portal = fs::metadata(&curves).unwrap();
    std::os::unix::fs::chown(&path, Some(portal.uid()), Some(portal.gid())).unwrap();
    let row = Run {
        id,
        owner,
        owner_name: String::new(),
        name: format!("run {number}"),
        directory,
        source: Source::External,
        visibility: Visibility::Private,
        group: None,
        reading: ReadProgress::default(),
        created_at: Timestamp(0),
        is_helper: false,
    };
    let noted = audit::Entry { at: Timestamp(0), actor: "test", action: "test", subject: "test", detail: "" };
    house.db().await.add_run(&row, None, &noted).await.unwrap();
    id
}

/// The portal's own memory, without pages of files (KiB).
fn anonymous(house: &House) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", house.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn curves_take_no_more_memory_than_is_set() {
    let Some(house) = House::open(&[("LYCEUM_CURVES__MEMORY", "16MiB")]).await else { return };
    let person = house.person();
    let owner = house.db().await.find_user_by_name(&person.name).await.unwrap().unwrap().user.id;
    let home = format!("/home/ly-{}", person.name);
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(run(&house, owner, &home, number, POINTS).await);
    }
    // Larger than all that may be kept: it is open alone.
    let large = run(&house, owner, &home, RUNS, 120_000).await;

    let look = async |id: &RunId| {
        let answer = person.get(&house, &format!("/runs/{id}/metrics")).await;
        let curves = answer["runs"][0]["tags"].as_array().map_or(0, Vec::len);
        assert_eq!(curves, CURVES, "{answer}");
    };
    look(&runs[0]).await;
    let base = anonymous(&house);
    for id in &runs {
        look(id).await;
    }
    let after = anonymous(&house);
    println!("{base} KiB, one after another {after} KiB");
    assert!(after < base + KEPT + ELSE, "{base} KiB before, {after} KiB after {RUNS} runs, one after another");

    futures_util::future::join_all(runs.iter().map(look)).await;
    look(&large).await;
    futures_util::future::join_all(runs.iter().map(look)).await;
    let at_once = anonymous(&house);
    let settled = eventually("what was closed is given back", async || {
        let now = anonymous(&house);
        (now < base + KEPT + ELSE).then_some(now)
    });
    println!("at once {at_once} KiB, {} KiB in the end", settled.await);
}
