//! Limits that the kernel holds, with the real portal: cores, and the device files of GPUs.
//! The same tests run on whatever a machine has, and `tests/guest` brings them machines with
//! control groups of version 2, with and without systemd. Memory and processes are in `local`
//! and `life`, which run there too.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lyceum::{
    helper::{cgroup, placement::Record},
    model::{DeviceAccess, DeviceNumber, SessionId},
};
use nix::{
    errno::Errno,
    sys::stat::{Mode, SFlag, makedev, mknod},
};
use serde_json::{Value, json};

use crate::{
    gpus::driver,
    helper::house::{self, House, placed},
    life, needs,
    wait::{eventually, until},
};

const MIB: i64 = 1 << 20;

/// A device file of our own, open to everybody as far as permissions go.
fn device(folder: &Path, major: u32, minor: u32) -> PathBuf {
    let path = folder.join(format!("device-{major}-{minor}"));
    mknod(&path, SFlag::S_IFCHR, Mode::empty(), makedev(major.into(), minor.into())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    path
}

#[test]
fn a_closed_device_cannot_be_opened_and_an_open_one_can() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    // The kernel's own memory devices stand in for GPUs, because they can be opened without
    // hardware: null, zero, random and urandom are ours, full is somebody else's.
    let number = |minor| DeviceNumber { major: 1, minor };
    let [zero, full] = [5, 7].map(|minor| device(house.base.path(), 1, minor));
    let terminal = PathBuf::from("/dev/ptmx");
    let session = SessionId::new();
    let mut request = house.request(session, &people.a, json!({ "mode": "open", "paths": [zero, full, terminal] }));
    request.devices = DeviceAccess { open: [3, 5, 8, 9].map(number).to_vec(), closed: vec![number(7)] };
    placed(&house.launcher, request).unwrap();
    let answer = house.run_directory(session).join("open");
    until("it has tried", || answer.exists());
    let found: Value = serde_json::from_str(&fs::read_to_string(answer).unwrap()).unwrap();
    let errno = |path: &Path| found[path.to_str().unwrap()].as_i64().unwrap();
    assert_eq!((errno(&zero), errno(&terminal)), (0, 0), "{found}");
    let expected = if house.config.hierarchy.closes_devices() { Errno::EPERM as i64 } else { 0 };
    assert_eq!(errno(&full), expected, "{} {found}", house.config.hierarchy.kind());
}

#[tokio::test]
async fn a_session_is_held_to_what_it_was_given() {
    if !needs::root() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = driver(folder.path(), "two", "-DGPUS=2");
    let library = library.to_str().unwrap();
    let variables = [("LYCEUM_SCHEDULER__LOCAL__NVML", library), ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto")];
    let mut house = life::House::new(&variables);
    house.start().await;
    let person = house.person();
    let request = json!({ "app": "web", "resources": { "gpus": 1, "cpus": 1, "memory_bytes": 192 * MIB } });
    let id = person.start(&house, request).await;
    let bystander = person.run(&house, "web").await;
    let session = person.state(&house, id, "running").await;
    assert_eq!(session["gpus"][0]["index"], 0);
    let record = house.record(id).unwrap();

    opens_its_own_gpus(&house, &person, id, folder.path()).await;
    if needs::part_met("control groups", !house::detect("bound").is_sampled()) {
        cores_bind(&house, &person, id, &record).await;
    }
    person.visit(&house, id, "/eat").await;
    let ended = person.ended(&house, id, "out_of_memory").await;
    assert!(ended["detail"].as_str().unwrap().contains("it requested 192 MiB"), "{ended}");
    house.nothing_left(&record).await;
    assert_eq!(person.visit(&house, bystander, "/").await.0, 200, "the other one goes on");
    person.end(&house, bystander).await;
}

/// It opens its own GPU's device file alone, or its page says otherwise.
async fn opens_its_own_gpus(house: &life::House, person: &life::Person, id: SessionId, folder: &Path) {
    // That library counts its device files the other way round: GPU 0 is /dev/nvidia1.
    let [other, own, control] = [0, 1, 255].map(|minor| device(folder, 195, minor));
    let open = async |path: &Path| {
        let (status, answer) = person.visit(house, id, &format!("/open-{}", path.display())).await;
        assert_eq!(status, 200, "{answer}");
        answer["errno"].as_i64().unwrap()
    };
    let denied = Errno::EPERM as i64;
    // Without the hardware it is "no such device" that an open file of it answers.
    assert_ne!(open(&own).await, denied, "its own");
    assert_ne!(open(&control).await, denied, "the driver's own file");
    let page = person.request(house, "GET", &format!("/sessions/{id}")).send().await.unwrap();
    let page = page.text().await.unwrap();
    let closes = house::detect("gpus").closes_devices();
    assert_eq!(open(&other).await == denied, closes);
    assert_eq!(page.contains("GPUs are not isolated on this machine"), !closes);
}

#[test]
fn check_tells_whether_gpus_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let library = driver(folder.path(), "two", "-DGPUS=2");
    let variables =
        [("LYCEUM_SCHEDULER__LOCAL__NVML", library.to_str().unwrap()), ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto")];
    let (_, said) = life::House::new(&variables).run(&["check"]);
    let closes = nix::unistd::geteuid().is_root() && house::detect("told").closes_devices();
    let sentence = if closes {
        "a session can only open the files of its own GPUs"
    } else {
        "only CUDA_VISIBLE_DEVICES restricts programs to their own"
    };
    assert!(said.contains(sentence), "{said}");
}

/// Four processes that spin have one core's worth.
async fn cores_bind(house: &life::House, person: &life::Person, id: SessionId, record: &Record) {
    let held_back = || {
        let files = record.cgroups.iter().filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok());
        let counts = files.filter_map(|text| {
            text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse::<u64>().ok())
        });
        counts.max().unwrap_or(0)
    };
    person.visit(house, id, "/spin").await;
    eventually("they are held back", async || (held_back() > 0).then_some(())).await;
    let used = || cgroup::usage(&record.cgroups).unwrap().cpu_nanoseconds;
    let (begin, before) = (Instant::now(), used());
    eventually("a while passes", async || (Duration::from_secs(2) < begin.elapsed()).then_some(())).await;
    let cores = Duration::from_nanos(used() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    eprintln!("{}: {cores:.3} cores of one, held back {} times", record.placement.limits, held_back());
    assert!((0.0..1.2).contains(&cores), "{cores}");
}
