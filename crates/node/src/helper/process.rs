//! Processes by more than their number: a pid is looked at together with its start time and
//! the boot, and signalled through a pidfd, so that another process with the same number is
//! never taken for it. Also finds a session's processes where no cgroup holds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::identity::FIRST_UID;
use lyceum_model::{SessionId, session::Placement};

/// Whether the process of a placement is there.
#[derive(Debug)]
pub enum Life {
    /// It lives; the handle stays its own whatever becomes of the number.
    Alive(OwnedFd),
    Dead,
    /// It cannot be told, and why.
    Unknown(String),
}

/// Looks for the very process that `placement` names. A zombie is dead.
pub fn life(placement: &Placement) -> Life {
    match boot_id() {
        Ok(boot) if boot != placement.boot_id => return Life::Dead,
        Ok(_) => {}
        Err(err) => return Life::Unknown(format!("the boot id cannot be read: {err}")),
    }
    // The handle comes first: what is read after it can only be about it or about a later one.
    let handle = match open(placement.pid) {
        Ok(Some(handle)) => handle,
        Ok(None) => return Life::Dead,
        Err(err) => return Life::Unknown(format!("process {} cannot be inspected: {err}", placement.pid)),
    };
    match stat(placement.pid) {
        Ok(Some(stat)) if stat.start_ticks != placement.start_ticks || stat.is_zombie() => Life::Dead,
        Ok(Some(_)) => Life::Alive(handle),
        Ok(None) if wait(&[&handle], Duration::ZERO) => Life::Dead,
        Ok(None) => Life::Unknown("/proc hides other users' processes (hidepid)".to_owned()),
        Err(err) => Life::Unknown(format!("process {} cannot be inspected: {err}", placement.pid)),
    }
}

/// Sends `signal` to the process of a placement if it still is that process **and** runs as
/// its user; answers whether it did.
pub fn signal(placement: &Placement, signal: Signal) -> io::Result<bool> {
    let handle = match life(placement) {
        Life::Alive(handle) => handle,
        Life::Dead => return Ok(false),
        Life::Unknown(why) => return Err(io::Error::other(why)),
    };
    if uid(placement.pid)? != Some(placement.uid) {
        return Err(io::Error::other(format!("process {} does not run as uid {}", placement.pid, placement.uid)));
    }
    send(&handle, signal)
}

/// Sends a signal through a handle; false where the process has ended.
pub fn send(handle: &OwnedFd, signal: Signal) -> io::Result<bool> {
    match pidfd_send_signal(handle, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// A handle on whatever has this number now.
pub fn open(pid: i32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Ok(Some(handle)),
        // EINVAL: the number belongs to a thread that leads no process.
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Waits until every one of these processes has ended; false when `within` is over first.
pub fn wait(handles: &[&OwnedFd], within: Duration) -> bool {
    let end = Instant::now() + within;
    handles.iter().all(|handle| {
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).expect("a short time fits");
            match poll(&mut [PollFd::new(*handle, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                ready => break ready.is_ok_and(|ready| ready > 0),
            }
        }
    })
}

/// Lets a moment pass.
pub fn pause(time: Duration) {
    let time = Timespec::try_from(time).expect("a short time fits");
    // Being woken early by a signal is as good.
    let _ = poll(&mut [], Some(&time));
}

/// The parts of `/proc/PID/stat` that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub state: char,
    pub parent: i32,
    /// Clock ticks from boot to the process's start.
    pub start_ticks: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The name is in parentheses and may hold spaces and parentheses of its own.
        let mut fields = line.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Self { state, parent, start_ticks: fields.nth(17)?.parse().ok()? })
    }

    pub fn is_zombie(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// `None` where there is no such process (or `/proc` does not show it).
pub fn stat(pid: i32) -> io::Result<Option<Stat>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(line) => {
            Stat::parse(&line).map(Some).ok_or_else(|| io::Error::other("/proc/PID/stat has an unexpected format"))
        }
        Err(err) if gone(&err) => Ok(None),
        Err(err) => Err(err),
    }
}

/// The one user a process runs as; `None` where it is gone or is several at once.
fn uid(pid: i32) -> io::Result<Option<u32>> {
    let status = match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        Err(err) if gone(&err) => return Ok(None),
        Err(err) => return Err(err),
    };
    let ids: BTreeSet<&str> =
        status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default().split_whitespace().collect();
    Ok(if ids.len() == 1 { ids.first().and_then(|id| id.parse().ok()) } else { None })
}

fn gone(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::NotFound || err.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// How long each thread of these processes has run, or waited for a core (nanoseconds): on
/// a machine that is short of cores the second tells who works. Nothing of those that are
/// gone or hidden, or where the kernel does not count it.
pub fn demands(pids: &BTreeSet<i32>) -> BTreeMap<i32, u64> {
    let mut demands = BTreeMap::new();
    for pid in pids {
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let mut numbers = text.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            if let (Some(ran), Some(waited)) = (numbers.next(), numbers.next()) {
                demands.insert(id, ran.saturating_add(waited));
            }
        }
    }
    demands
}

/// The processes of a session, as [`Table`] tells them now.
pub fn of_session(session: SessionId, placement: Option<&Placement>) -> io::Result<BTreeSet<i32>> {
    Table::read().map(|table| table.of_session(session, placement))
}

/// All processes of this machine as they were at one moment: to whom they belong is asked of
/// many sessions, and read once.
#[derive(Debug, Default)]
pub struct Table {
    children: BTreeMap<i32, Vec<i32>>,
    /// Processes that say that they are a session's, and the one user they run as.
    marked: BTreeMap<SessionId, Vec<(i32, u32)>>,
}

impl Table {
    /// Zombies are left out, and so is what nobody here may look at.
    pub fn read() -> io::Result<Self> {
        let mut table = Self::default();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let Ok(Some(stat)) = stat(pid) else { continue };
            if stat.is_zombie() {
                continue;
            }
            table.children.entry(stat.parent).or_default().push(pid);
            let sessions = marks(pid);
            if sessions.is_empty() {
                continue;
            }
            let Ok(Some(uid)) = uid(pid) else { continue };
            for session in sessions {
                table.marked.entry(session).or_default().push((pid, uid));
            }
        }
        Ok(table)
    }

    /// Told by descent from its agent or by `LYCEUM_SESSION` in their environment. Somebody
    /// who hides both is found by a cgroup alone.
    pub fn of_session(&self, session: SessionId, placement: Option<&Placement>) -> BTreeSet<i32> {
        let is_theirs = |uid: u32| placement.map_or(uid >= FIRST_UID, |placement| uid == placement.uid);
        let root =
            placement.filter(|placement| matches!(life(placement), Life::Alive(_))).map(|placement| placement.pid);
        let marked = self.marked.get(&session).into_iter().flatten();
        let mut found: BTreeSet<i32> =
            marked.filter(|(_, uid)| is_theirs(*uid)).map(|(pid, _)| *pid).chain(root).collect();
        let mut todo: Vec<i32> = found.iter().copied().collect();
        while let Some(pid) = todo.pop() {
            todo.extend(self.children.get(&pid).into_iter().flatten().filter(|&&child| found.insert(child)));
        }
        found
    }
}

/// The sessions that a process's environment names: one, or none.
fn marks(pid: i32) -> BTreeSet<SessionId> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries = environment.split(|&byte| byte == 0).filter_map(|entry| entry.strip_prefix(b"LYCEUM_SESSION="));
    entries.filter_map(|id| std::str::from_utf8(id).ok()?.parse().ok()).collect()
}

/// SIGKILL to all that `list` finds, again and again until it finds none; false when there
/// still are some after `within`. What is signalled was on the list after its handle was
/// opened, so a number that changes hands in between is left alone.
pub fn kill_all(mut list: impl FnMut() -> io::Result<BTreeSet<i32>>, within: Duration) -> io::Result<bool> {
    let end = Instant::now() + within;
    loop {
        let mut handles = Vec::new();
        for pid in list()? {
            if let Some(handle) = open(pid)? {
                handles.push((pid, handle));
            }
        }
        if handles.is_empty() {
            return Ok(true);
        }
        let still = list()?;
        handles.retain(|(pid, _)| still.contains(pid));
        for (_, handle) in &handles {
            send(handle, Signal::KILL)?;
        }
        let handles: Vec<&OwnedFd> = handles.iter().map(|(_, handle)| handle).collect();
        wait(&handles, Duration::from_millis(200));
        if end < Instant::now() {
            return Ok(list()?.is_empty());
        }
        // A dead process stays on a cgroup's list for a moment after its handle says so.
        pause(Duration::from_millis(1));
    }
}

/// Tells one boot of this machine from the next.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// This machine's name.
pub fn node() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(Stat::parse(line), Some(Stat { state: 'S', parent: 7, start_ticks: 987_654 }));
        for bad in ["", "42 (x", "42 (x) S", "42 (x) S 1 2 3"] {
            assert_eq!(Stat::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_thread_that_spins_wants_a_core() {
        let me = i32::try_from(std::process::id()).unwrap();
        // Other tests may run in this process: their threads do not count.
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let total = || demands(&BTreeSet::from([me]))[&thread];
        let before = total();
        let (begun, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(20));
        while total() < before + 25_000_000 {
            assert!(Instant::now() < deadline, "as much as it ran or waited: {before} {}", total());
            let end = Instant::now() + Duration::from_millis(5);
            while Instant::now() < end {}
            // The kernel brings a running thread's numbers up to date when it is interrupted.
            pause(Duration::from_millis(1));
        }
        assert!(Duration::from_millis(20) < begun.elapsed(), "no more than the time that passed");
        assert_eq!(demands(&BTreeSet::from([i32::MAX])), BTreeMap::new());
    }

    #[test]
    fn ourselves() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let stat = stat(pid).unwrap().unwrap();
        let mut placement = Placement {
            node: node().unwrap(),
            pid,
            start_ticks: stat.start_ticks,
            boot_id: boot_id().unwrap(),
            uid: 0,
            unix_name: String::new(),
            run_directory: String::new(),
            limits: String::new(),
            link: None,
        };
        assert!(matches!(life(&placement), Life::Alive(_)));
        placement.start_ticks += 1;
        assert!(matches!(life(&placement), Life::Dead), "the same number, another process");
        placement.start_ticks -= 1;
        placement.boot_id = "another".to_owned();
        assert!(matches!(life(&placement), Life::Dead));
    }
}
