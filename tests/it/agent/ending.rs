//! Ends: trees that do not want to go, memory that runs out. Nothing may be left behind.

use std::fs;

use lyceum::protocol::ExitCause;

use super::{Given, carriers, eventually, lives, numbers};

/// A daemon as they all do it: fork, new session, fork, and no trace of our environment.
const DAEMON: &str = r#"
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        open("pids", "a").write("%d\n" % os.getpid())
        os.execve("/usr/bin/python3", ["daemon", "-c", "import time; time.sleep(1000)"], {})
    os._exit(0)
os.wait()
"#;

#[tokio::test]
async fn a_tree_that_ignores_sigterm_and_a_daemon_are_ended() {
    let script = "trap '' TERM; echo $$ >> pids; (trap '' TERM; sh -c 'echo $$ >> pids; exec sleep 1000') & \
                  /usr/bin/python3 daemon.py; wait; sleep 1000";
    let mut given = Given::script(script);
    given.launch.grace_seconds = 1;
    fs::write(given.home.path().join("daemon.py"), DAEMON).unwrap();
    let mut agent = given.start();
    let path = agent.home("pids");
    let pids = eventually("three processes", async || Some(numbers(&path)).filter(|pids| pids.len() == 3)).await;
    assert!(pids.iter().all(|pid| lives(pid)));
    agent.terminate();
    let record = agent.exited().await;
    assert_eq!(record.cause, ExitCause::Asked);
    assert!(record.detail.contains("were still running after 1 s and were killed"), "{}", record.detail);
    assert!(!pids.iter().any(|pid| lives(pid)), "something is left");
    assert_eq!(carriers(agent.given.launch.session), []);
}

/// Never there for long: each generation forks the next and exits. It gives up in the end,
/// lest a test that fails leaves it on the machine.
const COMET: &str = r#"
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("started", "w")
end = time.monotonic() + 15
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"#;

#[tokio::test]
async fn a_process_that_forks_away_is_caught() {
    // In the environment that `ps` shows, it looks like nobody's.
    let mut given = Given::script("exec env -i /usr/bin/python3 comet.py & exec sleep 1000");
    given.launch.grace_seconds = 1;
    fs::write(given.home.path().join("comet.py"), COMET).unwrap();
    let mut agent = given.start();
    eventually("the comet", async || agent.home("started").exists().then_some(())).await;
    let home = agent.given.home.path().to_owned();
    agent.terminate();
    assert_eq!(agent.exited().await.cause, ExitCause::Asked);
    // Several looks, because one can miss what changes all the time.
    for _ in 0..20 {
        let there = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
        assert!(!there.into_iter().any(|directory| directory == home), "it flies on");
    }
}

#[tokio::test]
async fn what_the_app_leaves_behind_ends_with_it() {
    let mut agent = Given::script("sleep 1000 & echo $! > pids; exit 4").start();
    let record = agent.exited().await;
    assert_eq!((record.cause, record.exit_code), (ExitCause::App, Some(4)));
    assert!(!lives(&numbers(&agent.home("pids"))[0]));
}

#[tokio::test]
async fn too_much_memory_ends_the_tree_where_no_cgroup_binds() {
    let mut given =
        Given::script("/usr/bin/python3 -c 'x = bytearray(300 << 20); import time; time.sleep(1000)'; sleep 1000");
    given.launch.sampled = true;
    given.launch.limits.memory_bytes = 100 << 20;
    let mut agent = given.start();
    let record = agent.exited().await;
    assert_eq!(record.cause, ExitCause::OutOfMemory);
    assert_eq!(record.detail, "out of memory: it requested 100 MiB and used all of it: start again with 200 MiB");
    assert_eq!(carriers(agent.given.launch.session), []);
}

#[tokio::test]
async fn too_many_processes_end_the_tree_where_no_cgroup_binds() {
    let mut given = Given::script("for n in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait");
    given.launch.sampled = true;
    given.launch.limits.processes = 5;
    let record = given.start().exited().await;
    assert_eq!(record.cause, ExitCause::OutOfMemory);
    assert!(record.detail.contains("9 processes") && record.detail.contains("the limit is 5"), "{}", record.detail);
}

#[tokio::test]
async fn the_kernels_kill_counter_is_heard() {
    let cgroup = tempfile::tempdir().unwrap();
    let counter = cgroup.path().join("memory.events");
    fs::write(&counter, "oom 0\noom_kill 1\n").unwrap();
    let mut given = Given::script("touch started; sleep 1000");
    given.launch.cgroups = vec![cgroup.path().to_owned()];
    let mut agent = given.start();
    eventually("the app", async || agent.home("started").exists().then_some(())).await;
    fs::write(&counter, "oom 1\noom_kill 2\n").unwrap();
    let record = agent.exited().await;
    assert_eq!(record.cause, ExitCause::OutOfMemory);
    assert!(record.detail.ends_with("start again with 8 GiB"), "{}", record.detail);
}

#[tokio::test]
async fn a_stopped_process_still_ends_at_once() {
    let mut agent = Given::script("echo $$ > pids; kill -STOP $$; sleep 1000").start();
    let path = agent.home("pids");
    let pid = eventually("the app's pid", async || numbers(&path).pop()).await;
    let stopped = format!("/proc/{pid}/status");
    eventually("it stops", async || fs::read_to_string(&stopped).unwrap().contains("T (stopped)").then_some(())).await;
    let before = std::time::Instant::now();
    agent.terminate();
    assert_eq!(agent.exited().await.detail, "ended on request");
    assert!(before.elapsed().as_secs() < 4);
}
