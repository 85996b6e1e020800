//! The local scheduler over a real helper: a workload's life from launch to cleaning, limits
//! that bind, and what is made of how a workload ended.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use lyceum::{
    helper::{client::Launcher, identity::Identity, process},
    model::{Capacity, Clock, EndReason, Gpu, GpuInventory, Resources, SessionId, Timestamp, session::Placement},
    protocol::{AppLaunch, HomeSetup, Program, files},
    scheduler::{Error, Exit, Launch, Observation, Person, PortalUser, Scheduler, local, local::Local},
    start::{self, Settings, Surroundings},
};
use serde_json::Value;

use crate::helper::house::{AGENT, House, SERVICE, is_alive, is_root, system, until};

const MIB: i64 = 1 << 20;

/// A scheduler whose requests go through the house's helper.
fn scheduler(house: &House) -> Local {
    Local::new(config(house)).unwrap()
}

fn config(house: &House) -> local::Config {
    let gpu = Gpu { index: 1, uuid: "counted-1".to_owned(), model: "any".to_owned() };
    local::Config {
        launcher: Arc::clone(&house.launcher),
        capacity: Capacity { gpus: 1, cpus: 2, memory_bytes: 1 << 30 },
        inventory: GpuInventory { gpus: vec![gpu], driver: false },
        run: house.config.run.clone(),
        placements: house.config.placements.clone(),
        hierarchy: house.config.hierarchy.clone(),
        service_uid: SERVICE,
        grace_seconds: local::GRACE_SECONDS,
        clock: Clock::manual(Timestamp(1_000_000)),
    }
}

fn workload(session: SessionId, identity: &Identity, argv: &[&str]) -> Launch {
    Launch {
        session,
        person: Person::from(identity.clone()),
        resources: Resources { memory_bytes: 64 * MIB, ..Resources::default() },
        gpus: vec![Gpu { index: 1, uuid: "counted-1".to_owned(), model: "any".to_owned() }],
        app: AppLaunch {
            program: Program::Exec { argv: argv.iter().map(|&word| word.to_owned()).collect() },
            environment: BTreeMap::new(),
            working_directory: identity.home.clone(),
            ready: None,
        },
        home: HomeSetup { home: identity.home.clone(), ..HomeSetup::default() },
    }
}

async fn launch(local: &Local, identity: &Identity, argv: &[&str]) -> (SessionId, Placement) {
    let session = SessionId::new();
    (session, local.launch(workload(session, identity, argv)).await.unwrap())
}

async fn end(local: &Local, session: SessionId, placement: &Placement) -> Exit {
    let waited = tokio::time::timeout(Duration::from_secs(8), local.wait_end(session, placement)).await;
    waited.expect("it ends");
    match local.observe(session, placement).await {
        Observation::Ended(exit) => exit,
        other => panic!("{other:?}"),
    }
}

fn written(local: &Local, session: SessionId, name: &str) -> String {
    let file = local.run_directory(session).join(name);
    until("the stand-in writes it", || file.exists());
    fs::read_to_string(file).unwrap()
}

#[tokio::test]
async fn a_workloads_life() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let local = scheduler(&house);
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
    assert_eq!(later.list().await.unwrap(), [session]);
    assert_eq!(later.find(SessionId::new()).await.unwrap(), None);
    assert_eq!(later.launch(workload(session, &people.a, &["sleep"])).await.unwrap(), placement);

    let asked = Instant::now();
    let (waited, terminated) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(8), later.wait_end(session, &placement)),
        later.terminate(session, &placement)
    );
    terminated.unwrap();
    waited.expect("told at once");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let exit = end(&later, session, &placement).await;
    assert_eq!((exit.reason, exit.ended_at), (None, Timestamp(1_000_000)), "asked, and by our clock");
    later.clean(session).await.unwrap();
    assert_eq!(later.list().await.unwrap(), []);
    house.assert_nothing_left(session);
    assert!(matches!(later.observe(session, &placement).await, Observation::Ended(_)));
}

#[tokio::test]
async fn how_it_ended() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let local = scheduler(&house);
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
async fn a_user_who_lies_in_the_run_directory() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let local = scheduler(&house);
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
    if !is_root() {
        return;
    }
    let house = House::new();
    if house.config.hierarchy.is_sampled() {
        eprintln!("skipped: no control groups here");
        return;
    }
    let people = house.people();
    let local = scheduler(&house);
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
    if !is_root() {
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

    for session in local.list().await.unwrap() {
        local.kill(session, None).await.unwrap();
        local.clean(session).await.unwrap();
    }
    house.assert_nothing_left(session);
}

#[tokio::test]
async fn processes_bind() {
    if !is_root() {
        return;
    }
    let house = House::new();
    if house.config.hierarchy.is_sampled() {
        return;
    }
    let people = house.people();
    // The scheduler's own limit is in the thousands; the house asks for 64.
    let session = SessionId::new();
    house.launch(session, &people.a, serde_json::json!({"mode": "forks"})).unwrap();
    assert_eq!(written(&scheduler(&house), session, "forks"), "63", "64 with the agent itself");
}

#[tokio::test]
async fn processors_bind() {
    if !is_root() {
        return;
    }
    let house = House::new();
    if house.config.hierarchy.is_sampled() {
        return;
    }
    let people = house.people();
    let local = scheduler(&house);
    // Two that spin on one core's worth; without the limit they would have two.
    let (session, placement) = launch(&local, &people.a, &["spin"]).await;
    until("both spin", || process::of_session(session, Some(&placement)).unwrap().len() == 3);
    local.sample(session, &placement).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let sample = local.sample(session, &placement).await.unwrap();
    // Others use this machine too, so that less than one is no fault; without a limit it is two.
    assert!((0.01..1.15).contains(&sample.cpus), "{sample:?}");
    let read = |group: &std::path::PathBuf, name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    let groups = house.config.hierarchy.groups(&session.short());
    let bound = groups.iter().any(|group| {
        read(group, "cpu.cfs_quota_us").trim() == "100000" || read(group, "cpu.max").trim() == "100000 100000"
    });
    assert!(bound, "the limit itself, for when the machine is too busy to show it");
}

#[tokio::test]
async fn people_are_who_the_host_says() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let local = scheduler(&house);
    let user = |name: &str, unix_name: Option<&str>| PortalUser {
        name: name.to_owned(),
        unix_name: unix_name.map(str::to_owned),
    };
    let portal_name = people.a.name.strip_prefix("ly-").unwrap();
    let made = local.person(&user(portal_name, None)).await.unwrap();
    assert_eq!(made, Person::from(people.a.clone()));
    let named = local.person(&user("anybody", Some(&people.b.name))).await.unwrap();
    assert_eq!((named.uid, named.home), (people.b.uid, people.b.home.clone()));
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
        run: run.into(),
        placements: "/nowhere".into(),
        hierarchy: lyceum::helper::cgroup::Hierarchy::Sampled,
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

/// The tests below run parts of themselves again in a process that may give up its rights.
const PART: &str = "LYCEUM_TEST_PART";

#[expect(clippy::disallowed_methods, reason = "tells the part of a test from the test")]
fn is_part() -> Option<String> {
    std::env::var(PART).ok()
}

fn run_part(test: &str, argument: &str, change: impl FnOnce(&mut Command)) {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", test, "--nocapture"]).env(PART, argument).current_dir("/");
    change(&mut command);
    let output = command.output().unwrap();
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn one_person_without_root() {
    let test = "local::one_person_without_root";
    if let Some(base) = is_part() {
        return one_person(Path::new(&base));
    }
    let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::write(base.path().join("agent.py"), AGENT).unwrap();
    if nix::unistd::geteuid().is_root() {
        let house = House::new();
        let people = house.people();
        std::os::unix::fs::chown(base.path(), Some(people.a.uid), Some(people.a.gid)).unwrap();
        fs::set_permissions(base.path().join("agent.py"), fs::Permissions::from_mode(0o644)).unwrap();
        run_part(test, base.path().to_str().unwrap(), |command| {
            command.uid(people.a.uid).gid(people.a.gid);
        });
    } else {
        run_part(test, base.path().to_str().unwrap(), |_| {});
    }
}

/// The program that `prepare` is part of is this test here; the real one is handed in.
fn settings() -> Settings {
    Settings { own_binary: env!("CARGO_BIN_EXE_lyceum").into(), ..Settings::default() }
}

fn one_person(base: &Path) {
    let surroundings = Surroundings {
        uid: nix::unistd::geteuid().as_raw(),
        data: Some(base.join("data")),
        xdg_runtime_dir: Some(base.to_owned()),
        ..Surroundings::default()
    };
    let paths = start::layout(&surroundings).unwrap();
    let started = start::prepare(&paths, &settings()).unwrap();
    let again = start::prepare(&paths, &settings()).unwrap();
    assert_eq!(started.binary, again.binary);
    assert!(!started.launcher.is_root() && started.helper.is_none());
    fs::set_permissions(&paths.private, fs::Permissions::from_mode(0o755)).unwrap();
    let err = start::prepare(&paths, &settings()).unwrap_err().to_string();
    assert!(err.contains("chmod 700"), "{err}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let me = lyceum::helper::identity::own().unwrap();
        let launcher = Launcher::direct(lyceum::helper::Config {
            run: paths.run.clone(),
            placements: paths.placements.clone(),
            hierarchy: started.hierarchy.clone(),
            service_uid: me.uid,
            service_gid: me.gid,
            agent_command: vec!["/usr/bin/python3".into(), base.join("agent.py").into()],
            own_binary: env!("CARGO_BIN_EXE_lyceum").into(),
            account_uids: lyceum::helper::ACCOUNT_UIDS,
        })
        .unwrap();
        let local = Local::new(local::Config {
            launcher: Arc::new(launcher),
            capacity: local::capacity(None, None, 0),
            inventory: GpuInventory::default(),
            run: paths.run.clone(),
            placements: paths.placements.clone(),
            hierarchy: started.hierarchy.clone(),
            service_uid: me.uid,
            grace_seconds: 1,
            clock: Clock::System,
        })
        .unwrap();
        let nobody = PortalUser { name: "x".to_owned(), unix_name: None };
        assert_eq!(local.person(&nobody).await.unwrap(), Person::from(me.clone()));
        let somebody = PortalUser { unix_name: Some("daemon".to_owned()), ..nobody };
        assert!(matches!(local.person(&somebody).await, Err(Error::Refused(_))));
        let other = Identity { name: "daemon".to_owned(), ..me.clone() };
        let refused = local.launch(workload(SessionId::new(), &other, &["sleep"])).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");

        let (session, placement) = launch(&local, &me, &["sleep"]).await;
        written(&local, session, "facts.json");
        assert_eq!(placement.uid, me.uid);
        local.terminate(session, &placement).await.unwrap();
        assert_eq!(end(&local, session, &placement).await.reason, None);
        local.clean(session).await.unwrap();

        let (session, placement) = launch(&local, &me, &["stubborn"]).await;
        written(&local, session, "stubborn");
        local.kill(session, Some(&placement)).await.unwrap();
        assert_eq!(end(&local, session, &placement).await.signal, Some(9));
        local.clean(session).await.unwrap();
        assert!(!is_alive(&placement) && process::of_session(session, None).unwrap().is_empty());
        assert_eq!(fs::read_dir(&paths.run).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&paths.placements).unwrap().count(), 0);
        assert_eq!(process::stat(placement.pid).unwrap(), None, "its parent took note of its end");
    });
}

#[test]
fn root_starts_and_stays_the_service_user() {
    if let Some(part) = is_part() {
        let (data, service_user) = part.split_once(' ').unwrap();
        return serves(Path::new(data), service_user);
    }
    if !is_root() {
        return;
    }
    let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let service_user = format!("ly-test-s-{}", std::process::id());
    let data = base.path().join("data");
    let argument = format!("{} {service_user}", data.display());
    run_part("local::root_starts_and_stays_the_service_user", &argument, |_| {});
    system(&["userdel", &service_user]);
    let paths = start::layout(&Surroundings { data: Some(data), ..Surroundings::default() }).unwrap();
    fs::remove_dir(&paths.run).unwrap();
    let _ = fs::remove_dir(paths.run.parent().unwrap());
}

fn serves(data: &Path, service_user: &str) {
    use std::os::unix::fs::MetadataExt;
    let paths = start::layout(&Surroundings { data: Some(data.to_owned()), ..Surroundings::default() }).unwrap();
    let settings = Settings { service_user: service_user.to_owned(), ..settings() };
    let started = start::prepare(&paths, &settings).unwrap();
    let me = nix::unistd::geteuid().as_raw();
    assert!(me != 0 && me == started.service_uid && nix::unistd::getuid().as_raw() == me);
    assert!(nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_err());
    let facts = |path: &Path| {
        let facts = fs::metadata(path).unwrap();
        (facts.uid(), facts.mode() & 0o7777)
    };
    assert_eq!(facts(&paths.private), (me, 0o700));
    assert_eq!((facts(&paths.shared), facts(&paths.bin)), ((0, 0o755), (0, 0o755)));
    assert_eq!((facts(&paths.run), facts(&paths.placements)), ((0, 0o711), (0, 0o755)));
    assert_eq!(facts(&paths.shared.join("environments")), (me, 0o755));
    assert_eq!(facts(&started.binary), (0, 0o755));
    assert!(fs::write(paths.shared.join("bin/x"), "").is_err() && fs::write(paths.placements.join("x"), "").is_err());
}
