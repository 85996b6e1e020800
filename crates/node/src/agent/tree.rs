//! The workload's processes, as `/proc` tells them: everything below the agent, which as a
//! subreaper keeps its orphans, and whatever else of this user carries the session's id in
//! its environment. Ends them all; a process is signalled through a pidfd that was compared
//! with what was seen, so that a number used anew is never hit.

use std::{collections::HashSet, fs, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::time::{Instant, sleep};

use super::{child::Reaper, steps};
use lyceum_model::SessionId;

/// One process, from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: i32,
    pub parent: i32,
    /// A zombie: it is gone but for its exit status.
    pub dead: bool,
    /// Clock ticks since boot; with the pid it is unmistakable.
    pub started: u64,
    pub threads: i64,
    /// User and system time, of itself and of the children it has waited for, in ticks.
    pub ticks: u64,
    /// Leads a session that has a terminal: it goes by SIGHUP, since shells ignore SIGTERM.
    pub leads_terminal: bool,
    pub role: Role,
}

/// What others depend on a process for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `srun`: it ends when tasks have ended that are not below us.
    Steps,
    /// It starts a container's program, or serves its files: others live in what it holds.
    Holder,
    None,
}

/// The names of programs that hold containers, as far as the kernel keeps them.
const HOLDERS: [&str; 4] = ["bwrap", "squashfuse", "squashfuse_ll", "fuse-overlayfs"];

/// What [`end`] found it had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// How many did not end by themselves within the grace time.
    pub killed: usize,
}

/// Every living process below the agent. It is asked for every second where no control groups
/// count, so it looks at these alone: hundreds of agents that each read all of `/proc` were
/// all that a machine did.
pub(super) fn descendants() -> Vec<Process> {
    // A kernel may be built without these lists.
    let Some(mut todo) = children_of(own_pid()) else { return below(&scan(), own_pid()) };
    let (mut seen, mut living) = (HashSet::new(), Vec::new());
    while let Some(pid) = todo.pop() {
        // One that has just become another's child may be listed twice.
        if seen.insert(pid) {
            living.extend(read(pid).filter(|process| !process.dead));
            todo.extend(children_of(pid).unwrap_or_default());
        }
    }
    living
}

/// Returns the process of the program that a runner of this name has started, once it has replaced the runner.
pub(super) fn started_by(runner: Pid, name: &str) -> Option<Pid> {
    let children = children_of(runner.as_raw_nonzero().get())?;
    let is_program = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim_end_matches('\n') != name)
    };
    children.into_iter().find(is_program).and_then(Pid::from_raw)
}

/// Whether a process is stopped by a signal, or has ended.
pub(super) fn is_stopped(pid: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // Without a line there is no such process.
    text.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 'Z', 'X']))
}

/// Whether `child` is a child of `parent`, be it only a zombie.
pub(super) fn is_child(parent: Pid, child: Pid) -> bool {
    children_of(parent.as_raw_nonzero().get()).unwrap_or_default().contains(&child.as_raw_nonzero().get())
}

/// SIGTERM to all, SIGKILL after `grace` to what is left, until nothing is.
pub(super) async fn end(session: SessionId, grace: Duration, reaper: &Reaper) -> Ended {
    let deadline = Instant::now() + grace;
    let (mut asked, mut asks) = (HashSet::new(), HashSet::new());
    let mut pause = Duration::from_millis(10);
    loop {
        reaper.reap();
        let members = members(session);
        if members.is_empty() && children().is_empty() {
            return Ended::default();
        }
        if deadline <= Instant::now() {
            break;
        }
        // Those who hold something for others are asked when these have ended.
        let only_holders = members.iter().all(|process| process.role == Role::Holder);
        let is_next = |process: &&Process| only_holders || process.role != Role::Holder || process.leads_terminal;
        for process in members.iter().filter(is_next).filter(|process| asked.insert((process.pid, process.started))) {
            let is_waited_for = asks.contains(&process.pid)
                || process.role == Role::Steps && asked_by_slurm(process, &members, &mut asks);
            if !is_waited_for {
                signal(process, Signal::TERM);
            }
            if process.leads_terminal {
                signal(process, Signal::HUP);
            }
            // A stopped process hears nothing until it goes on.
            signal(process, Signal::CONT);
        }
        sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    kill(session, reaper).await
}

async fn kill(session: SessionId, reaper: &Reaper) -> Ended {
    let mut killed = HashSet::new();
    let mut pause = Duration::from_millis(5);
    loop {
        kill_children(reaper, &mut killed);
        let members = members(session);
        if members.is_empty() && children().is_empty() {
            return Ended { killed: killed.len() };
        }
        for process in &members {
            signal(process, Signal::KILL);
            killed.insert(process.pid);
        }
        // What hangs in the kernel (a dead file server) may take its time.
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Kills orphans as fast as they come to us. A program that forks and exits without end is
/// never in a list of all processes for long enough, but its latest always becomes our child
/// and keeps its number until we reap it.
fn kill_children(reaper: &Reaper, killed: &mut HashSet<i32>) {
    for _ in 0..1000 {
        reaper.reap();
        let children = children();
        if children.is_empty() {
            break;
        }
        for child in children {
            // It may be a zombie by now.
            let _ = rustix::process::kill_process(child, Signal::KILL);
            killed.insert(child.as_raw_nonzero().get());
        }
    }
}

/// Our own children, the zombies among them too. Read in one go, unlike the list of all
/// processes, so that none can hide by being new.
fn children() -> Vec<Pid> {
    children_of(own_pid()).unwrap_or_default().into_iter().filter_map(Pid::from_raw).collect()
}

/// A process's children, which the kernel lists by the thread that made them; `None` where
/// there is no list.
fn children_of(pid: i32) -> Option<Vec<i32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .reduce(|all, more| [all, more].concat())
}

/// Whether the tasks of an `srun` hear of the end by Slurm; it ends after them, and would kill them if it
/// were asked itself. Who tells Slurm is one of `asks`.
fn asked_by_slurm(srun: &Process, members: &[Process], asks: &mut HashSet<i32>) -> bool {
    // It has another one of its name beside it.
    let is_second = members.iter().any(|other| other.role == Role::Steps && other.pid == srun.parent);
    is_second || steps::ask_to_end(srun.pid).is_ok_and(|pid| asks.insert(pid))
}

fn members(session: SessionId) -> Vec<Process> {
    let all = scan();
    let mut members = below(&all, own_pid());
    let known: HashSet<i32> = members.iter().map(|process| process.pid).chain([own_pid()]).collect();
    let tag = format!("LYCEUM_SESSION={session}").into_bytes();
    members
        .extend(all.iter().filter(|process| !process.dead && !known.contains(&process.pid) && carries(process, &tag)));
    members
}

/// Whether it was started with our variable. Other users' environments cannot be read.
fn carries(process: &Process, tag: &[u8]) -> bool {
    fs::read(format!("/proc/{}/environ", process.pid))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == tag))
}

fn below(all: &[Process], root: i32) -> Vec<Process> {
    let mut inside = HashSet::from([root]);
    // Children may come before their parents in the list: repeat until nothing is new.
    loop {
        let before = inside.len();
        inside.extend(all.iter().filter(|process| inside.contains(&process.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if inside.len() == before {
            break;
        }
    }
    inside.remove(&root);
    all.iter().filter(|process| !process.dead && inside.contains(&process.pid)).copied().collect()
}

fn signal(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if read(process.pid).is_some_and(|now| now.started == process.started) {
        // It may have ended just now, or belong to somebody else (a set-uid program).
        let _ = rustix::process::pidfd_send_signal(&handle, signal);
    }
}

fn scan() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn read(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may hold anything, so the fields are counted from its end.
fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let (front, rest) = stat.rsplit_once(')')?;
    let name = front.split_once('(')?.1;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // As proc(5) numbers them, from the state, which is the third.
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let ticks = [14, 15, 16, 17].into_iter().filter_map(number).sum::<i64>();
    Some(Process {
        pid,
        parent: number(4)?.try_into().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X"),
        started: number(22)?.try_into().ok()?,
        threads: number(20)?,
        ticks: ticks.try_into().ok()?,
        leads_terminal: number(6)? == i64::from(pid) && number(7)? != 0,
        role: match name {
            "srun" => Role::Steps,
            name if HOLDERS.contains(&name) => Role::Holder,
            _ => Role::None,
        },
    })
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_nasty_name() {
        let stat = "42 (a) Z (b) S 7 42 42 34816 42 4194304 1 2 3 4 10 20 30 40 20 0 5 0 12345 1 2 3";
        let process = parse(stat).expect("well formed");
        assert_eq!(
            process,
            Process {
                pid: 42,
                parent: 7,
                dead: false,
                started: 12345,
                threads: 5,
                ticks: 100,
                leads_terminal: true,
                role: Role::None
            }
        );
        assert_eq!(parse("42 (x"), None);
        assert_eq!(parse(&stat.replace("(a) Z (b)", "(srun)")).unwrap().role, Role::Steps);
    }

    #[test]
    fn the_tree_is_found_in_any_order() {
        let like = parse("1 (a) S 1 1 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 1 0 1").unwrap();
        let process = |pid, parent, dead| Process { pid, parent, dead, ..like };
        let all = [process(5, 4, false), process(4, 3, true), process(3, 2, false), process(9, 1, false)];
        let found: Vec<i32> = below(&all, 2).iter().map(|process| process.pid).collect();
        assert_eq!(found, [5, 3]);
    }

    #[test]
    fn grandchildren_are_found_without_a_scan() {
        use std::io::{BufRead, BufReader};
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "sleep 600 & echo $!; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut told = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut told).unwrap();
        let sleep: i32 = told.trim().parse().unwrap();
        let found: HashSet<i32> = descendants().iter().map(|process| process.pid).collect();
        let scanned: HashSet<i32> = below(&scan(), own_pid()).iter().map(|process| process.pid).collect();
        rustix::process::kill_process(Pid::from_raw(sleep).unwrap(), Signal::KILL).unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        for pid in [i32::try_from(shell.id()).unwrap(), sleep] {
            assert!(found.contains(&pid) && scanned.contains(&pid), "{pid}: {found:?}, {scanned:?}");
        }
    }

    #[test]
    fn we_find_ourselves() {
        let me = read(own_pid()).expect("we live");
        assert!(scan().iter().any(|process| process.pid == me.pid && process.started == me.started));
    }
}
