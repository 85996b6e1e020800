//! The root helper with real users and real control groups. These tests need root and say so
//! where there is none. A small Python program stands in for the agent; it reports what it
//! finds itself to be, and misbehaves when told to.

pub mod house;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    sync::Barrier,
    time::Duration,
};

use house::{House, SERVICE, is_alive, placed, start_raw_helper};
use lyceum::{
    helper::{
        ACCOUNT_UIDS, Config, Error,
        cgroup::{self, Hierarchy},
        identity::Identity,
        process,
    },
    model::SessionId,
    protocol::HelperRequest,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{accounts, needs, wait::until};

#[test]
fn child_env_clean_and_the_user_completely() {
    if !needs::root() {
        return;
    }
    // A descriptor that somebody forgot to close before the helper was started.
    let leak = fs::File::open("/etc/passwd").unwrap();
    let leak = rustix::io::fcntl_dupfd_cloexec(&leak, 77).unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let house = House::new();
    let people = house.people();
    let session = SessionId::new();
    let (placement, facts) = house.facts(session, &people.a, json!({"mode": "sleep", "secret": "s3cret"}));
    let (uid, gid) = (people.a.uid, people.a.gid);
    assert!(ACCOUNT_UIDS.contains(&uid) && ACCOUNT_UIDS.contains(&gid));
    assert_eq!((placement.uid, placement.unix_name.as_str()), (uid, people.a.name.as_str()));

    let status = facts["status"].as_str().unwrap();
    let line = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("Uid"), vec![uid.to_string(); 4]);
    assert_eq!(line("Gid"), vec![gid.to_string(); 4]);
    let groups: BTreeSet<String> = line("Groups").into_iter().collect();
    assert_eq!(groups, BTreeSet::from([gid.to_string(), people.group.to_string()]));
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(line(capabilities)[0].bytes().all(|b| b == b'0'), "{capabilities}");
    }
    assert_eq!(line("Umask"), ["0027"]);
    assert_eq!(facts["environ"], "PATH=/usr/local/bin:/usr/bin:/bin\0");
    assert_eq!(facts["cwd"], "/");
    assert!(facts["fds"]["0"].as_str().unwrap().starts_with("/memfd:"), "{facts}");
    assert_eq!((&facts["fds"]["1"], &facts["fds"]["2"]), (&json!("/dev/null"), &json!("/dev/null")));
    // The listing's own descriptor is the fourth.
    assert_eq!(facts["open"].as_array().unwrap().len(), 4, "{facts}");
    assert_eq!(facts["secret"], "s3cret");
    drop(leak);

    let directory = fs::metadata(house.run_directory(session)).unwrap();
    assert_eq!((directory.uid(), directory.gid(), directory.mode() & 0o7777), (uid, SERVICE, 0o2750));
    let written = fs::metadata(house.run_directory(session).join("facts.json")).unwrap();
    assert_eq!((written.gid(), written.mode() & 0o777), (SERVICE, 0o640), "the portal can read it");
    for entry in fs::read_dir(&house.config.placements).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("s3cret"));
    }
}

#[test]
fn neighbour() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let session = SessionId::new();
    house.facts(session, &people.a, json!({"mode": "sleep"}));
    let run = house.run_directory(session);
    let tries = "import os, sys, errno\n\
        def denied(f, *a):\n  try: f(*a)\n  except OSError as e: return e.errno == errno.EACCES\n  return False\n\
        run = sys.argv[1]\n\
        print([denied(os.listdir, run), denied(open, run + '/facts.json'), denied(open, run + '/new', 'w'),\n\
               denied(os.chdir, run), denied(os.listdir, os.path.dirname(run)), denied(os.rename, run, run + 'x')])";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", tries, run.to_str().unwrap()])
        .uid(people.b.uid)
        .gid(people.b.gid)
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[True, True, True, True, True, True]", "{output:?}");
}

#[test]
fn never_as_the_system() {
    if !needs::root() {
        return;
    }
    let house = House::with(|config| config.service_uid = 64_999);
    let people = house.people();
    let refused = |name: &str| {
        let session = SessionId::new();
        let somebody = Identity { name: name.to_owned(), ..people.a.clone() };
        let err = house.launch(session, &somebody, json!({"mode": "sleep"})).unwrap_err();
        assert!(matches!(err, Error::Refused(_)), "{name}: {err}");
    };
    for name in ["root", "daemon", "nobody", "no-such-person", "-u0", "0", "", "root\n", "../root", "ROOT"] {
        refused(name);
    }
    // In the group root.
    let admin = format!("ly-test-r-{}", std::process::id());
    accounts::change(&["useradd", "--no-create-home", "--no-log-init", "--groups", "root", &admin]);
    refused(&admin);
    accounts::remove(&admin);
    assert_eq!(fs::read_dir(&house.config.run).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&house.config.placements).unwrap().count(), 0);

    let portal = House::with(|config| config.service_uid = people.a.uid);
    let err = portal.launch(SessionId::new(), &people.a, json!({"mode": "sleep"})).unwrap_err();
    assert!(err.to_string().contains("own account"), "{err}");

    let mut request = house.request(SessionId::new(), &people.a, json!({"mode": "sleep"}));
    request.limits.memory_bytes = -1;
    assert!(matches!(placed(&house.launcher, request), Err(Error::Refused(_))));
    assert_eq!(fs::read_dir(&house.config.run).unwrap().count(), 0);
}

#[test]
fn somebody_elses_run_directory_is_refused() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let session = SessionId::new();
    let run = house.run_directory(session);
    fs::create_dir(&run).unwrap();
    std::os::unix::fs::chown(&run, Some(people.b.uid), None).unwrap();
    assert!(matches!(house.launch(session, &people.a, json!({"mode": "sleep"})), Err(Error::Refused(_))));
    fs::remove_dir(&run).unwrap();
    symlink("/etc", &run).unwrap();
    assert!(house.launch(session, &people.a, json!({"mode": "sleep"})).is_err());
    assert_eq!(fs::metadata("/etc").unwrap().uid(), 0);
    house.ask(HelperRequest::Clean { session }).unwrap();
    // The same id for another person is no way to somebody's session either.
    house.launch(session, &people.a, json!({"mode": "sleep"})).unwrap();
    assert!(matches!(house.launch(session, &people.b, json!({"mode": "sleep"})), Err(Error::Refused(_))));
}

#[test]
fn launched_twice_starts_once() {
    if !needs::root() {
        return;
    }
    // Without control groups, whose processes would also tell that somebody was first.
    let mut house = House::with(|config| config.hierarchy = Hierarchy::Sampled);
    let people = house.people();
    let helpers = [house.second_helper(), house.second_helper(), house.second_helper(), house.second_helper()];
    for _ in 0..12 {
        let session = SessionId::new();
        let barrier = Barrier::new(helpers.len());
        let request = house.request(session, &people.a, json!({"mode": "sleep"}));
        let placements: Vec<_> = std::thread::scope(|scope| {
            let start = |helper| {
                let (barrier, request) = (&barrier, request.clone());
                scope.spawn(move || {
                    barrier.wait();
                    placed(helper, request).unwrap()
                })
            };
            let threads: Vec<_> = helpers.iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let placement = house.launch(session, &people.a, json!({"mode": "sleep"})).unwrap();
        assert!(placements.iter().all(|other| *other == placement), "{placements:?}");
        assert!(is_alive(&placement));
        let starts = house.run_directory(session).join("starts");
        until("it starts", || fs::read_to_string(&starts).is_ok_and(|starts| !starts.is_empty()));
        house.ask(HelperRequest::Kill { session }).unwrap();
        assert_eq!(fs::read_to_string(starts).unwrap(), "x\n");
        house.ask(HelperRequest::Clean { session }).unwrap();
    }
}

#[test]
fn killed_helpers_start_nothing_twice() {
    if !needs::root() {
        return;
    }
    let mut house = House::new();
    let people = house.people();
    for delay in 0..24 {
        let session = SessionId::new();
        let (mut raw, mut helper) = start_raw_helper(&house.config);
        let request = HelperRequest::Launch(house.request(session, &people.a, json!({"mode": "sleep"})));
        lyceum::helper::frame::write(&mut raw, &request).unwrap();
        process::pause(Duration::from_micros(800 * delay));
        helper.kill().unwrap();
        helper.wait().unwrap();

        let next = house.second_helper();
        let HelperRequest::Launch(request) = request else { unreachable!() };
        let mut placement = None;
        until("a later helper starts or finds it", || {
            placement = placed(&next, request.clone()).ok();
            placement.is_some()
        });
        let placement = placement.unwrap();
        let starts = house.run_directory(session).join("starts");
        until("it runs or is over", || starts.exists() || !is_alive(&placement));
        let groups = house.config.hierarchy.groups(&session.short());
        assert!(cgroup::processes(&groups).unwrap().len() <= 1);
        let started = fs::read_to_string(&starts).unwrap_or_default();
        assert!(started.len() <= 2, "{started:?}");
        house.ask(HelperRequest::Kill { session }).unwrap();
        house.ask(HelperRequest::Clean { session }).unwrap();
        house.assert_nothing_left(session);
    }
}

#[test]
fn terminate_kill_and_clean_leave_nothing() {
    if !needs::root() {
        return;
    }
    for sampled in [false, true] {
        let house = House::with(|config| {
            if sampled {
                config.hierarchy = Hierarchy::Sampled;
            }
        });
        let people = house.people();

        let session = SessionId::new();
        let (placement, _) = house.facts(session, &people.a, json!({"mode": "sleep"}));
        let err = house.ask(HelperRequest::Clean { session }).unwrap_err();
        assert!(matches!(err, Error::Busy(_)) && is_alive(&placement), "{err}");
        house.ask(HelperRequest::Terminate { session }).unwrap();
        until("SIGTERM ends it", || !is_alive(&placement));
        assert!(house.run_directory(session).join("exit.json").exists());
        until("nothing of it is left to clean", || house.ask(HelperRequest::Clean { session }).is_ok());
        house.assert_nothing_left(session);

        let session = SessionId::new();
        let (placement, _) = house.facts(session, &people.a, json!({"mode": "stubborn"}));
        let run = house.run_directory(session);
        until("it has its family", || run.join("stubborn").exists());
        until("all are there", || process::of_session(session, Some(&placement)).unwrap().len() == 3);
        house.ask(HelperRequest::Terminate { session }).unwrap();
        let family = process::of_session(session, Some(&placement)).unwrap();
        house.ask(HelperRequest::Kill { session }).unwrap();
        for pid in family {
            assert!(process::stat(pid).unwrap().is_none_or(process::Stat::is_zombie), "{pid}");
        }
        house.ask(HelperRequest::Clean { session }).unwrap();
        house.assert_nothing_left(session);
        // And all of it again, when nothing is there.
        house.ask(HelperRequest::Terminate { session }).unwrap();
        house.ask(HelperRequest::Kill { session }).unwrap();
        house.ask(HelperRequest::Clean { session }).unwrap();
    }
}

#[test]
fn clean_follows_no_link_of_a_hostile_user() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let session = SessionId::new();
    let (_, _) = house.facts(session, &people.a, json!({"mode": "sleep"}));
    let precious = house.base.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "kept").unwrap();
    let run = house.run_directory(session);
    fs::create_dir_all(run.join("a/b")).unwrap();
    symlink(&precious, run.join("a/b/link")).unwrap();
    symlink(precious.join("file"), run.join("exit.json")).unwrap();
    fs::set_permissions(run.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    house.ask(HelperRequest::Kill { session }).unwrap();
    house.ask(HelperRequest::Clean { session }).unwrap();
    house.assert_nothing_left(session);
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "kept");
}

#[test]
fn a_reused_process_id_is_left_alone() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let mut bystander = Command::new("/bin/sleep").arg("600").uid(people.a.uid).spawn().unwrap();
    let pid = i32::try_from(bystander.id()).unwrap();
    let session = SessionId::new();
    let (placement, _) = house.facts(session, &people.a, json!({"mode": "sleep"}));
    let file = house.config.placements.join(format!("{}.json", session.short()));
    let original = fs::read_to_string(&file).unwrap();
    let ticks = process::stat(pid).unwrap().unwrap().start_ticks;
    let mut forged: Value = serde_json::from_str(&original).unwrap();
    forged["placement"]["pid"] = json!(pid);

    // The number of another process with another start.
    forged["placement"]["start_ticks"] = json!(ticks + 1);
    fs::write(&file, forged.to_string()).unwrap();
    house.ask(HelperRequest::Terminate { session }).unwrap();
    // The same process, and another boot.
    forged["placement"]["start_ticks"] = json!(ticks);
    forged["placement"]["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
    fs::write(&file, forged.to_string()).unwrap();
    house.ask(HelperRequest::Terminate { session }).unwrap();
    // The same process, and another user.
    forged["placement"]["boot_id"] = json!(placement.boot_id);
    forged["placement"]["uid"] = json!(people.b.uid);
    fs::write(&file, forged.to_string()).unwrap();
    assert!(house.ask(HelperRequest::Terminate { session }).is_err());
    assert!(bystander.try_wait().unwrap().is_none() && is_alive(&placement));

    fs::write(&file, original).unwrap();
    house.ask(HelperRequest::Terminate { session }).unwrap();
    until("the right one ends", || !is_alive(&placement));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn an_agent_that_cannot_start_leaves_no_placement() {
    if !needs::root() {
        return;
    }
    let house = House::with(|config| config.agent_command = vec!["/nonexistent/agent".into()]);
    let people = house.people();
    let session = SessionId::new();
    let err = house.launch(session, &people.a, json!({"mode": "sleep"})).unwrap_err();
    assert!(err.to_string().contains("/nonexistent/agent"), "{err}");
    house.ask(HelperRequest::Clean { session }).unwrap();
    house.assert_nothing_left(session);
}

#[test]
fn accounts() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let portal_name = format!("test-h-{}", std::process::id());
    let name = house.account(&portal_name).unwrap();
    let made = Identity::look_up(&name).unwrap();
    let home = fs::metadata(&made.home).unwrap();
    assert_eq!((home.uid(), home.gid(), home.mode() & 0o7777), (made.uid, made.gid, 0o700));
    assert_eq!((made.shell.as_str(), made.home.parent().unwrap()), ("/bin/bash", Path::new("/home")));
    assert_eq!(house.account(&portal_name).unwrap(), name, "adopted");

    // A crash after useradd, before the home was handed over.
    std::os::unix::fs::chown(&made.home, Some(0), Some(0)).unwrap();
    house.account(&portal_name).unwrap();
    assert_eq!(fs::metadata(&made.home).unwrap().uid(), made.uid);
    // Somebody else's home in the place of it.
    std::os::unix::fs::chown(&made.home, Some(people.b.uid), None).unwrap();
    let refused = house.account(&portal_name);
    std::os::unix::fs::chown(&made.home, Some(made.uid), None).unwrap();
    accounts::remove(&name);
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");

    for name in ["", "-o", "a b", "../../etc", "A", "a\n", "$(id)", &"a".repeat(30)] {
        assert!(matches!(house.account(name), Err(Error::Refused(_))), "{name:?}");
    }
    // An account of that name that is not ours.
    let foreign = format!("test-c-{}", std::process::id());
    accounts::change(&["useradd", "--no-create-home", "--no-log-init", &format!("ly-{foreign}")]);
    let answer = house.account(&foreign);
    accounts::remove(&format!("ly-{foreign}"));
    assert!(matches!(answer, Err(Error::Refused(_))), "{answer:?}");
}

/// Sends bytes, closes, and returns what came back and how the helper ended.
fn throw(config: &Config, bytes: &[u8]) -> (Vec<u8>, std::process::ExitStatus) {
    let (mut socket, mut helper) = start_raw_helper(config);
    // It may hang up while we are still writing.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    (answer, helper.wait().unwrap())
}

#[test]
fn helper_fuzz() {
    if !needs::root() {
        return;
    }
    let house = House::new();
    let people = house.people();
    let check = |bytes: &[u8]| {
        let (_, status) = throw(&house.config, bytes);
        assert!(matches!(status.code(), Some(0 | 1)), "{status}");
        let made = [&house.config.run, &house.config.placements].map(|made| fs::read_dir(made).unwrap().count());
        assert_eq!(made, [0, 0], "after {}", String::from_utf8_lossy(bytes));
    };
    let frame = |json: &str| [&u32::try_from(json.len()).unwrap().to_be_bytes(), json.as_bytes()].concat();
    let good = serde_json::to_value(HelperRequest::Launch(house.request(
        SessionId::new(),
        &people.a,
        json!({"mode": "sleep"}),
    )))
    .unwrap();
    let with = |key: &str, value: Value| {
        let mut request = good.clone();
        request[key] = value;
        frame(&request.to_string())
    };
    for bytes in [
        Vec::new(),
        vec![0],
        vec![0xff; 64],
        frame(""),
        frame("null"),
        frame(&"[".repeat(100_000)),
        frame(r#"{"verb":"run","argv":["/bin/sh"]}"#),
        frame(r#"{"verb":"kill","session":"../../../etc"}"#),
        frame(r#"{"verb":"clean","session":1}"#),
        frame(r#"{"verb":"account","name":"x","uid":0}"#),
        frame(
            r#"{"verb":"batch","session":"0192f3a0-0000-7000-8000-000000000000","unix_name":"root","order":{"order":"cancel","job":1,"gently":true}}"#,
        ),
        frame(
            r#"{"verb":"batch","session":"0192f3a0-0000-7000-8000-000000000000","unix_name":"daemon","order":{"order":"submit","options":["--uid=0"],"script":"","agent":null}}"#,
        ),
        with("unix_name", json!("root")),
        with("unix_name", json!("x\u{0}y")),
        with("session", json!("not-a-session")),
        with("uid", json!(0)),
        with("limits", json!({"cpus": 1e300, "memory_bytes": 1, "processes": 1})),
        with("agent_command", json!(["/bin/sh"])),
        frame(&good.to_string())[..40].to_vec(),
    ] {
        check(&bytes);
    }
    // One bad frame after another, and the helper still answers the good one.
    let mut stream = frame("rubbish");
    stream.extend(frame(r#"{"verb":"kill","session":"0192f3a0-0000-7000-8000-000000000000"}"#));
    let (answer, status) = throw(&house.config, &stream);
    let answer = String::from_utf8_lossy(&answer);
    assert!(status.success() && answer.contains("failed") && answer.contains("done"), "{answer}");

    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
    let bytes = proptest::collection::vec(any::<u8>(), 0..2000);
    let framed = bytes
        .clone()
        .prop_map(move |bytes| [u32::try_from(bytes.len()).unwrap().to_be_bytes().as_slice(), &bytes].concat());
    // A whole request but for one byte, and for somebody who must never run anything.
    let whole = with("unix_name", json!("root"));
    let bitten = (0..whole.len(), any::<u8>()).prop_map(move |(at, byte)| {
        let mut bitten = whole.clone();
        bitten[at] = byte;
        bitten
    });
    runner
        .run(&prop_oneof![bytes, framed, bitten], |bytes| {
            check(&bytes);
            Ok(())
        })
        .unwrap();
}
