//! The local scheduler over a real helper: a workload's life from launch to cleaning, limits
//! that bind, and what is made of how a workload ended.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use lyceum::{
    helper::{cgroup, client::Launcher, identity::Identity, process},
    model::{
        Capacity, Clock, EndReason, Gpu, GpuInventory, Resources, SessionId, Timestamp, job::Shape, session::Placement,
    },
    protocol::{AppLaunch, HomeSetup, Program, files},
    scheduler::{
        Account, Accounts, Error, Exit, Launch, LifeCycle, Metering, Observation, Person, PortalUser, Transport, local,
        local::Local,
    },
};
use serde_json::Value;

use crate::{
    helper::house::{House, People, SERVICE},
    needs,
    wait::{succeeds, until},
};

const MIB: i64 = 1 << 20;

/// Directories, accounts, and a scheduler over a real helper. The first to go is the scheduler.
struct Stage {
    local: Local,
    people: Arc<People>,
    house: House,
}

fn stage() -> Option<Stage> {
    if !needs::root() {
        return None;
    }
    let house = House::new();
    Some(Stage { local: scheduler(&house), people: house.people(), house })
}

/// The same, where the kernel holds limits.
fn stage_with_groups() -> Option<Stage> {
    stage().filter(|stage| needs::met("control groups", !stage.house.config.hierarchy.is_sampled()))
}

/// A scheduler whose requests go through the house's helper.
fn scheduler(house: &House) -> Local {
    Local::new(config(house)).unwrap()
}

pub fn config(house: &House) -> local::Config {
    let gpu = Gpu { index: 1, uuid: "counted-1".to_owned(), model: "any".to_owned(), slice: None };
    local::Config {
        launcher: Arc::clone(&house.launcher),
        capacity: Capacity { gpus: 1, cpus: 2, memory_bytes: 1 << 30 },
        inventory: GpuInventory { gpus: vec![gpu], ..GpuInventory::default() },
        nvml: None,
        gpu_interval: local::GPU_INTERVAL,
        run: house.config.run.clone(),
        placements: house.config.placements.clone(),
        hierarchy: house.config.hierarchy.clone(),
        service_uid: SERVICE,
        grace_seconds: local::GRACE_SECONDS,
        clock: Clock::manual(Timestamp(1_000_000)),
    }
}

pub fn workload(session: SessionId, identity: &Identity, argv: &[&str]) -> Launch {
    Launch {
        session,
        name: "a workload".to_owned(),
        group: None,
        seconds: 600,
        person: Person::from(identity.clone()),
        resources: Resources { memory_bytes: 64 * MIB, ..Resources::default() },
        shape: Shape::default(),
        gpus: vec![Gpu { index: 1, uuid: "counted-1".to_owned(), model: "any".to_owned(), slice: None }],
        app: AppLaunch {
            program: Program::Exec { argv: argv.iter().map(|&word| word.to_owned()).collect() },
            environment: BTreeMap::new(),
            working_directory: identity.home.clone(),
            ready: None,
            beside: None,
            start: lyceum::protocol::ProgramStart::default(),
            container: None,
            kernels: Vec::new(),
        },
        home: HomeSetup { home: identity.home.clone(), ..HomeSetup::default() },
    }
}

pub async fn launch(local: &Local, identity: &Identity, argv: &[&str]) -> (SessionId, Placement) {
    let session = SessionId::new();
    (session, local.launch(workload(session, identity, argv)).await.unwrap())
}

pub async fn end(local: &Local, session: SessionId, placement: &Placement) -> Exit {
    let waited = tokio::time::timeout(crate::wait::PATIENCE, local.wait_end(session, placement)).await;
    waited.expect("it ends");
    match local.observe(session, placement).await {
        Observation::Ended(exit) => exit,
        other => panic!("{other:?}"),
    }
}

pub fn written(local: &Local, session: SessionId, name: &str) -> String {
    let file = local.run_directory(session).join(name);
    until("the stand-in writes it", || file.exists());
    fs::read_to_string(file).unwrap()
}

#[tokio::test]
async fn a_workloads_life() {
    let Some(Stage { house, people, local }) = stage() else { return };
    let (session, placement) = launch(&local, &people.a, &["sleep"]).await;
    assert_eq!(local.observe(session, &placement).await, Observation::Alive);
    assert_eq!(Path::new(&placement.run_directory), local.run_directory(session));

    let facts: Value = serde_json::from_str(&written(&local, session, "facts.json")).unwrap();
    let told = &facts["launch"];
    assert_eq!(told["app"]["environment"]["CUDA_VISIBLE_DEVICES"], "1");
    assert_eq!((&told["portal_uid"], &told["grace_seconds"]), (&SERVICE.into(), &30.into()));
    assert_eq!(told["limits"]["processes"], 4096);
    for group in told["cgroups"].as_array().unwrap() {
        let processes = fs::read_to_string(Path::new(group.as_str().unwrap()).join("cgroup.procs")).unwrap();
        assert_eq!(processes.trim(), placement.pid.to_string());
    }

    // A portal that was restarted and forgot everything.
    let later = scheduler(&house);
    assert_eq!(later.find(session).await.unwrap(), Some(placement.clone()));
    assert_eq!(later.list().await.unwrap().sessions, [session]);
    assert_eq!(later.find(SessionId::new()).await.unwrap(), None);
    assert_eq!(later.launch(workload(session, &people.a, &["sleep"])).await.unwrap(), placement);

    let asked = Instant::now();
    let (waited, terminated) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(40), later.wait_end(session, &placement)),
        later.terminate(session, &placement)
    );
    terminated.unwrap();
    waited.expect("told at once");
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "ended at once, not after the grace period: {:?}",
        asked.elapsed()
    );
    let exit = end(&later, session, &placement).await;
    assert_eq!((exit.reason, exit.ended_at), (None, Timestamp(1_000_000)), "asked, and by our clock");
    succeeds("it is cleaned", || later.clean(session)).await;
    assert_eq!(later.list().await.unwrap().sessions, []);
    house.assert_nothing_left(session);
    assert!(matches!(later.observe(session, &placement).await, Observation::Ended(_)));
}

#[tokio::test]
async fn how_it_ended() {
    let Some(Stage { house: _house, people, local }) = stage() else { return };
    let (session, placement) = launch(&local, &people.a, &["exit", "3"]).await;
    let exit = end(&local, session, &placement).await;
    assert_eq!((exit.reason, exit.exit_code, exit.detail.as_str()), (Some(EndReason::Exited), Some(3), "d"));

    let (session, placement) = launch(&local, &people.a, &["sleep"]).await;
    local.kill(session, Some(&placement)).await.unwrap();
    let exit = end(&local, session, &placement).await;
    assert_eq!((exit.reason, exit.signal), (Some(EndReason::Signal), Some(9)));

    let rebooted = Placement { boot_id: "another".to_owned(), ..placement.clone() };
    let Observation::Ended(exit) = local.observe(session, &rebooted).await else { panic!("not ended") };
    assert_eq!(exit.reason, Some(EndReason::HostRebooted));
    let elsewhere = Placement { node: "elsewhere".to_owned(), ..rebooted };
    assert!(matches!(local.observe(session, &elsewhere).await, Observation::Unknown(_)));
}

#[tokio::test]
async fn lying_agent_in_the_run_directory() {
    let Some(Stage { house: _house, people, local }) = stage() else { return };
    let (session, placement) = launch(&local, &people.a, &["sleep"]).await;
    written(&local, session, "facts.json");
    let run = local.run_directory(session);
    assert_eq!(local.log_tail(session, &placement, 10).await.unwrap(), b"");
    fs::write(run.join(files::LOG), "0123456789\n").unwrap();
    assert_eq!(local.log_tail(session, &placement, 4).await.unwrap(), b"789\n");
    fs::remove_file(run.join(files::LOG)).unwrap();
    symlink("/etc/shadow", run.join(files::LOG)).unwrap();
    assert!(local.log_tail(session, &placement, 100).await.is_err());
    // A placement that was tampered with leads nowhere else either.
    let moved = Placement { run_directory: "/etc".to_owned(), ..placement.clone() };
    assert_eq!(local.log_tail(session, &moved, 100).await.unwrap(), b"");

    local.kill(session, Some(&placement)).await.unwrap();
    let exit_file = run.join(files::EXIT);
    for lie in ["", "{", "[]", "null", r#"{"cause":"promoted"}"#, &"9".repeat(100_000)] {
        fs::write(&exit_file, lie).unwrap();
        assert_eq!(end(&local, session, &placement).await.reason, Some(EndReason::Signal), "{lie:.20}");
    }
    fs::write(&exit_file, r#"{"cause":"app","exit_code":1,"signal":null,"ended_at_ms":-9,"detail":"a\u001b[2J"}"#)
        .unwrap();
    let exit = end(&local, session, &placement).await;
    assert_eq!((exit.ended_at, exit.detail.as_str()), (Timestamp(1_000_000), "a [2J"));
    fs::remove_file(&exit_file).unwrap();
    symlink("/etc/passwd", &exit_file).unwrap();
    assert_eq!(end(&local, session, &placement).await.reason, Some(EndReason::Signal));
}

#[tokio::test]
async fn memory_binds_one_tree_alone() {
    let Some(Stage { house: _house, people, local }) = stage_with_groups() else { return };
    let (other, other_placement) = launch(&local, &people.a, &["sleep"]).await;
    let (session, placement) = launch(&local, &people.a, &["memory"]).await;
    let exit = end(&local, session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::OutOfMemory), "{exit:?}");
    assert_eq!(local.observe(other, &other_placement).await, Observation::Alive);
    let sample = local.sample(other, &other_placement).await.unwrap();
    assert!((MIB..64 * MIB).contains(&sample.memory_bytes) && sample.processes == 1, "{sample:?}");
}

#[tokio::test]
async fn with_the_real_agent() {
    if !needs::root() {
        return;
    }
    // Other users may not be able to enter the directory that it was built in.
    let program = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(program.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = program.path().join("lyceum");
    fs::copy(env!("CARGO_BIN_EXE_lyceum"), &binary).unwrap();
    let house = House::with(|config| config.agent_command = vec![binary.into(), "agent".into()]);
    let people = house.people();
    let local = scheduler(&house);
    let run = async |argv: &[&str]| launch(&local, &people.a, argv).await;

    let (session, placement) = run(&["/bin/sh", "-c", "id -un; exit 3"]).await;
    let exit = end(&local, session, &placement).await;
    assert_eq!((exit.reason, exit.exit_code), (Some(EndReason::Exited), Some(3)), "{exit:?}");
    let log = local.log_tail(session, &placement, 1000).await.unwrap();
    assert!(String::from_utf8_lossy(&log).contains(&people.a.name), "{}", String::from_utf8_lossy(&log));

    let (session, placement) = run(&["/bin/sleep", "600"]).await;
    // Before the agent listens, SIGTERM simply ends it.
    until("the app runs", || process::of_session(session, Some(&placement)).unwrap().len() == 2);
    local.terminate(session, &placement).await.unwrap();
    assert_eq!(end(&local, session, &placement).await.reason, None);

    let hoard = "h = []\nwhile True: h.append(b'x' * (1 << 20))";
    let (session, placement) = run(&["/usr/bin/python3", "-c", hoard]).await;
    assert_eq!(end(&local, session, &placement).await.reason, Some(EndReason::OutOfMemory));

    for session in local.list().await.unwrap().sessions {
        local.kill(session, None).await.unwrap();
        local.clean(session).await.unwrap();
    }
    house.assert_nothing_left(session);
}

#[tokio::test]
async fn processes_bind() {
    let Some(Stage { house, people, local }) = stage_with_groups() else { return };
    // The scheduler's own limit is in the thousands; the house asks for 64.
    let session = SessionId::new();
    house.launch(session, &people.a, serde_json::json!({"mode": "forks"})).unwrap();
    assert_eq!(written(&local, session, "forks"), "63", "64 with the agent itself");
}

#[tokio::test]
async fn processors_bind() {
    let Some(Stage { house, people, local }) = stage_with_groups() else { return };
    // Two that spin on one core's worth; without the limit they would have two.
    let (session, placement) = launch(&local, &people.a, &["spin"]).await;
    until("both spin", || process::of_session(session, Some(&placement)).unwrap().len() == 3);
    local.sample(session, &placement).await.unwrap();
    let groups = house.config.hierarchy.groups(&session.short());
    let used = || cgroup::usage(&groups).unwrap().cpu_nanoseconds;
    let before = used();
    until("they use a second of one core", || used() - before > 1_000_000_000);
    let sample = local.sample(session, &placement).await.unwrap();
    // Others use this machine too, so that less than one is no fault; without a limit it is two.
    assert!((0.01..1.15).contains(&sample.cpus), "{sample:?}");
    let read = |group: &std::path::PathBuf, name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    let bound = groups.iter().any(|group| {
        read(group, "cpu.cfs_quota_us").trim() == "100000" || read(group, "cpu.max").trim() == "100000 100000"
    });
    assert!(bound, "the limit itself, for when the machine is too busy to show it");
}

#[tokio::test]
async fn people_are_who_the_host_says() {
    let Some(Stage { house: _house, people, local }) = stage() else { return };
    let user = |name: &str, unix_name: Option<&str>| PortalUser {
        name: name.to_owned(),
        account: unix_name.map_or(Account::Made, |name| Account::Named(name.to_owned())),
    };
    let portal_name = people.a.name.strip_prefix("ly-").unwrap();
    let made = local.person(&user(portal_name, None)).await.unwrap();
    assert_eq!(made, Person::from(people.a.clone()));
    let named = local.person(&user("anybody", Some(&people.b.name))).await.unwrap();
    assert_eq!((named.uid, named.home), (people.b.uid, people.b.home.clone()));
    // The host spells the account as the directory does, or as the name here is written.
    for (name, spelled) in [("no-such-person", people.a.name.clone()), (&people.a.name, people.a.name.to_uppercase())] {
        let account = Account::Hosts { uid: Some(people.a.uid), spelled: Some(spelled) };
        let found = local.person(&PortalUser { name: name.to_owned(), account }).await.unwrap();
        assert_eq!(found.uid, people.a.uid);
    }
    for name in ["root", "no-such-person", "a\nb"] {
        assert!(matches!(local.person(&user("x", Some(name))).await, Err(Error::Refused(_))), "{name:?}");
    }
}

#[test]
fn too_long_a_base_is_refused_at_once() {
    let launcher = Arc::new(Launcher::Helper(None.into()));
    let config = |run: &str| local::Config {
        launcher: Arc::clone(&launcher),
        capacity: local::capacity(Some(1), Some(1), 0),
        inventory: GpuInventory::default(),
        nvml: None,
        gpu_interval: local::GPU_INTERVAL,
        run: run.into(),
        placements: "/nowhere".into(),
        hierarchy: cgroup::Hierarchy::Sampled,
        service_uid: SERVICE,
        grace_seconds: 1,
        clock: Clock::System,
    };
    let longest = format!("/{}", "r".repeat(39));
    let local = Local::new(config(&longest)).unwrap();
    assert_eq!(local.run_directory(SessionId::new()).as_os_str().len(), local::MAX_RUN_DIRECTORY);
    let err = Local::new(config(&format!("{longest}rr"))).unwrap_err().to_string();
    assert!(err.contains("2 bytes shorter"), "{err}");
}
