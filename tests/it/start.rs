//! `start` for real: what root makes before it gives up its rights, and a portal that an
//! ordinary user starts, with the local scheduler in its own process. A test here runs a part
//! of itself again in a process that may become somebody else.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    sync::Arc,
};

use lyceum::{
    helper::{client::Launcher, identity::Identity, process},
    model::{Clock, GpuInventory, SessionId},
    scheduler::{Account, Accounts, Error, LifeCycle, Person, PortalUser, local, local::Local},
    start::{self, ProcessEnvironment, Settings},
};

use crate::{
    accounts,
    helper::house::{AGENT, House, is_alive},
    local::{end, launch, workload, written},
    needs,
};

/// Tells the part of a test from the test.
const PART: &str = "LYCEUM_TEST_PART";

fn part() -> Option<String> {
    needs::variable(PART)
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
    let test = "start::one_person_without_root";
    if let Some(base) = part() {
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
    let surroundings = ProcessEnvironment {
        uid: nix::unistd::geteuid().as_raw(),
        data: Some(base.join("data")),
        xdg_runtime_dir: Some(base.to_owned()),
        ..ProcessEnvironment::default()
    };
    let paths = start::layout(&surroundings).unwrap();
    let started = start::prepare(&paths, &settings()).unwrap();
    let again = start::prepare(&paths, &settings()).unwrap();
    assert_eq!(started.binary, again.binary);
    assert!(!started.launcher.changes_user() && started.helper.is_none());
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
            batch: None,
            sudo: None,
        })
        .unwrap();
        let local = Local::new(local::Config {
            launcher: Arc::new(launcher),
            capacity: local::capacity(None, None, 0),
            inventory: GpuInventory::default(),
            nvml: None,
            gpu_interval: local::GPU_INTERVAL,
            run: paths.run.clone(),
            placements: paths.placements.clone(),
            hierarchy: started.hierarchy.clone(),
            service_uid: me.uid,
            grace_seconds: 1,
            clock: Clock::System,
        })
        .unwrap();
        let nobody = PortalUser { name: "x".to_owned(), account: Account::Made };
        assert_eq!(local.person(&nobody).await.unwrap(), Person::from(me.clone()));
        let somebody = PortalUser { account: Account::Named("daemon".to_owned()), ..nobody };
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
    if let Some(part) = part() {
        let (data, service_user) = part.split_once(' ').unwrap();
        return serves(Path::new(data), service_user);
    }
    if !needs::root() {
        return;
    }
    let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let service_user = format!("ly-test-s-{}", std::process::id());
    let data = base.path().join("data");
    let argument = format!("{} {service_user}", data.display());
    run_part("start::root_starts_and_stays_the_service_user", &argument, |_| {});
    accounts::remove(&service_user);
    let paths = start::layout(&ProcessEnvironment { data: Some(data), ..ProcessEnvironment::default() }).unwrap();
    fs::remove_dir(&paths.run).unwrap();
    let _ = fs::remove_dir(paths.run.parent().unwrap());
}

fn serves(data: &Path, service_user: &str) {
    use std::os::unix::fs::MetadataExt;
    let paths =
        start::layout(&ProcessEnvironment { data: Some(data.to_owned()), ..ProcessEnvironment::default() }).unwrap();
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

#[test]
fn a_data_directory_that_nobody_else_can_enter_is_refused() {
    if !needs::root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let data = closed.path().join("data");
    let serve = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap()
    };
    let output = serve();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let closed = closed.path().display();
    let sentence = format!("other users cannot enter {closed} (mode 700)");
    assert!(!output.status.success() && told.contains(&sentence), "{told}");
    assert!(told.contains(&format!("run `chmod o+x {closed}`")), "{told}");
}

/// The guest of tests/guest mounts a real export; a machine that somebody uses is left alone.
#[test]
fn a_network_file_system_is_refused() {
    let Some(mount) = needs::variable("LYCEUM_TEST_NFS") else {
        eprintln!("left to the guest: it mounts an export of its own");
        return;
    };
    let data = Path::new(&mount).join("data");
    let run = |verb: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.arg(verb).arg("--data").arg(&data).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = run("serve");
    let sentence = format!(
        "the database {} would be on NFS, where SQLite's locks do not work: use a directory on a local disk \
         (`--data`), or a PostgreSQL server (`database.url`)",
        data.join("private/lyceum.db").display()
    );
    eprintln!("{code:?} {said}");
    assert!(code == Some(1) && said.contains(&sentence), "{code:?} {said}");
    assert!(!data.join("private/lyceum.db").exists(), "nothing was written");
    let (code, said) = run("check");
    assert!(code == Some(1) && said.contains("is on NFS, where SQLite's locks do not work"), "{said}");
}
