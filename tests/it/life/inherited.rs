//! Sessions and jobs begin as after a login, whoever started the portal and however: what a shell,
//! `nohup`, `nice` or `ulimit` has left on the portal reaches nothing that runs for a person.

use std::fs;

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{
    House, Person, children, eventually,
    jobs::{ended, log, submit},
    processes,
};
use crate::{gateway::terminal::types, idleness::terminals::tab};

/// Runs its arguments in a state that only the worst of starters leaves.
const STARTER: &str = "
import os, resource, signal, sys
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {signal.SIGCHLD})
os.umask(0o077)
os.nice(5)
open('/proc/self/oom_score_adj', 'w').write('700')
capable = int(next(line for line in open('/proc/self/status') if line.startswith('CapEff')).split()[1], 16)
may_raise = capable >> 24 & 1
for name, soft in {'CORE': 1 << 20, 'FSIZE': 1 << 40, 'NOFILE': 400, 'STACK': 4 << 20, 'MEMLOCK': 1 << 16, 'NPROC': 900,
                   'SIGPENDING': 90}.items():
    kind = getattr(resource, 'RLIMIT_' + name)
    resource.setrlimit(kind, (soft, soft if may_raise else resource.getrlimit(kind)[1]))
os.set_inheritable(os.dup2(os.open('/etc/passwd', os.O_RDONLY), 77), True)
os.environ['LEAKED'] = 'yes'
os.chdir('/usr')
os.execv(sys.argv[1], sys.argv[1:])
";

/// What a process finds itself to be; the signals of a fault of its own cannot be given back.
const FOUND: &str = "grep -E '^(SigBlk|SigIgn|Umask)' /proc/self/status; cat /proc/self/limits /proc/self/oom_score_adj; \
                     nice; ls /proc/self/fd | wc -l; pwd; env | grep LEAKED; cut -d' ' -f41 /proc/self/stat";

/// The signals that no program can take over: illegal instruction, floating point, segmentation, and
/// the two that are the C library's own.
const FAULTS: u64 = 1 << 3 | 1 << 7 | 1 << 10 | 1 << 31 | 1 << 32;

fn started_badly() -> Vec<String> {
    ["/usr/bin/python3", "-c", STARTER].map(str::to_owned).into()
}

async fn found(house: &House, person: &Person) -> Vec<String> {
    let asked = json!({ "script": FOUND, "resources": { "memory_bytes": 128 << 20 } });
    let id = submit(house, person, asked).await;
    ended(house, person, &id, "exited").await;
    log(house, person, &format!("{id}/log")).await.lines().map(str::to_owned).collect()
}

/// A line of `/proc/PID/status` as a set of signals.
fn signals(pid: i32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(u64::from_str_radix(mask.trim(), 16).unwrap())
}

fn is(found: &[String], name: &str) -> u64 {
    let line = found.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[tokio::test]
async fn nothing_of_the_starter_reaches_a_session() {
    let Some(plain) = House::open(&[]).await else { return };
    let usual = found(&plain, &plain.person()).await;
    let mut house = House::new(&[]);
    house.wrap(started_badly());
    house.start().await;
    let person = house.person();
    let odd = found(&house, &person).await;
    assert_eq!(is(&odd, "SigIgn") & !FAULTS, 0, "{odd:?}");
    assert_eq!(is(&usual, "SigIgn") & !FAULTS, 0, "{usual:?}");
    // Each home is another.
    let same = |lines: &[String]| {
        let lines = lines.iter().filter(|line| !line.starts_with("/home") && !line.starts_with("SigIgn"));
        lines.cloned().collect::<Vec<_>>()
    };
    assert_eq!(same(&odd), same(&usual));
    let begins = |words: &str| usual.iter().any(|line| line.split_whitespace().eq(words.split_whitespace()));
    assert!(begins("SigBlk: 0000000000000000") && begins("Umask: 0027") && begins("500") && begins("0"), "{usual:?}");
    let files = usual.iter().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(files.split_whitespace().nth(3) == Some("1024"), "{files}");

    // In a terminal Ctrl-C ends what runs, at once.
    let id = person.run(&house, "terminal").await;
    let mut shell = tab(&house, &person, id).await;
    types(&mut shell, "echo $((6*7))-ready", "42-ready").await;
    shell.send(Message::binary("sleep 600\r")).await.unwrap();
    let record = house.record(id).unwrap();
    let sleeps = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == b"sleep\x00600\x00");
    eventually("it sleeps", async || processes(&record).iter().any(sleeps).then_some(())).await;
    shell.send(Message::binary("\u{3}")).await.unwrap();
    types(&mut shell, "echo $((100+$?))-sleep", "230-sleep").await;

    // None of our own processes hands on what it was given: all can be asked to end.
    let (status, _) = person.ask(&house, "GET", "/files", &Value::Null).await;
    assert_eq!(status, 200);
    let agent = record.placement.pid;
    let mut todo = vec![house.pid(), agent];
    let mut looked = 0;
    while let Some(pid) = todo.pop() {
        let (Some(ignored), Some(blocked)) = (signals(pid, "SigIgn"), signals(pid, "SigBlk")) else { continue };
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // A shell that talks to somebody ignores some by itself, and gives them back to what it starts.
        if words.starts_with("/bin/bash") {
            continue;
        }
        let pipe = 1 << 12;
        assert_eq!((ignored & !(FAULTS | pipe), blocked), (0, 0), "{words}");
        looked += 1;
        todo.extend(children(pid));
    }
    assert!(looked >= 3, "portal, helper and agent: {looked}");
}

#[tokio::test]
async fn an_ordinary_users_portal_gives_back_what_it_may() {
    if !crate::needs::root() {
        return;
    }
    let mut house = House::of_somebody(&[]);
    house.wrap(started_badly());
    house.start().await;
    let found = found(&house, &house.person()).await;
    assert_eq!((is(&found, "SigIgn") & !FAULTS, is(&found, "SigBlk")), (0, 0), "{found:?}");
    let line = |name: &str| found.iter().find(|line| line.starts_with(name)).unwrap().split_whitespace();
    assert_ne!(line("Max open files").nth(3), Some("400"));
    assert_eq!(line("Max core file size").nth(4), Some("0"));
    assert!(found.contains(&"5".to_owned()), "only root may be less nice: {found:?}");
    assert!(house.log().contains("niceness"), "{}", house.log());
}
