//! Control groups: where this machine has them, how a workload's groups are made and
//! removed, and how they are read. Where systemd rules version 2, it makes the groups
//! ([`systemd`]); else version 2 needs memory, cpu and pids in one tree, and version 1 has one
//! tree a controller. Where memory can be limited by none of these, the agent samples.
//!
//! Our own groups are `lyceum-INSTANCE/SHORT` at the top of what is mounted: not below the
//! portal's own group, because workloads outlive the portal and whatever group it is in.
//! The reading functions take the groups' directories and work as any user.

mod mounts;
pub mod systemd;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::mounts::Mounts;
use super::process;
use lyceum_model::DeviceAccess;
use lyceum_wire::protocol::Limits;

/// What holds workloads' limits on this machine; the paths are the `lyceum-INSTANCE` groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hierarchy {
    /// Version 2, where systemd makes the groups.
    Systemd {
        parent: PathBuf,
    },
    V2 {
        parent: PathBuf,
    },
    V1 {
        memory: PathBuf,
        cpu: Option<PathBuf>,
        cpuacct: Option<PathBuf>,
        pids: Option<PathBuf>,
        devices: Option<PathBuf>,
    },
    /// Nothing: the agent watches and ends its tree itself.
    Sampled,
}

/// The microseconds of one accounting period of the CPU limit; the kernel's own default.
const PERIOD: i64 = 100_000;

const V2_CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

impl Hierarchy {
    /// Looks for what this process may use, by trying. Leaves nothing behind.
    pub fn detect(instance: &str) -> Self {
        let found = Self::try_all(instance);
        remove_unused_parents(&found.groups("probe"));
        found
    }

    fn try_all(instance: &str) -> Self {
        let Ok(mountinfo) = fs::read_to_string("/proc/self/mountinfo") else { return Self::Sampled };
        let mounts = Mounts::parse(&mountinfo);
        let parent = format!("lyceum-{instance}");
        if let Some(mount) = mounts.v2.as_deref().filter(|mount| has_v2_controllers(mount).is_ok()) {
            if let Some(parent) = systemd::detect(mount, instance) {
                return Self::Systemd { parent };
            }
            let parent = mount.join(&parent);
            if make_v2_parent(&parent).is_ok() {
                return Self::V2 { parent };
            }
        }
        let [memory, cpu, cpuacct, pids, devices] =
            [mounts.memory, mounts.cpu, mounts.cpuacct, mounts.pids, mounts.devices]
                .map(|mount| mount.map(|mount| mount.join(&parent)).filter(|parent| make(parent).is_ok()));
        let Some(memory) = memory else {
            let made = [cpu, cpuacct, pids, devices].into_iter().flatten().map(|parent| parent.join("probe"));
            remove_unused_parents(&made.collect::<Vec<_>>());
            return Self::Sampled;
        };
        Self::V1 { memory, cpu, cpuacct, pids, devices }
    }

    /// The word for it in a placement.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Systemd { .. } => "systemd",
            Self::V2 { .. } => "cgroup-v2",
            Self::V1 { devices: Some(_), .. } => "cgroup-v1",
            Self::V1 { devices: None, .. } => "cgroup-v1-without-devices",
            Self::Sampled => "sampled",
        }
    }

    pub fn is_sampled(&self) -> bool {
        *self == Self::Sampled
    }

    /// Whether a workload can be kept from the GPUs of others. Version 2 has no file for it
    /// and wants a program loaded into the kernel, which systemd does and we do not.
    pub fn closes_devices(&self) -> bool {
        matches!(self, Self::Systemd { .. } | Self::V1 { devices: Some(_), .. })
    }

    /// The directories of a workload's groups, whether they exist or not.
    pub fn groups(&self, short: &str) -> Vec<PathBuf> {
        let parents: BTreeSet<&PathBuf> = match self {
            Self::Systemd { parent } => return systemd::groups(parent, short),
            Self::V2 { parent } => BTreeSet::from([parent]),
            Self::V1 { memory, cpu, cpuacct, pids, devices } => {
                let others = [cpu, cpuacct, pids, devices].map(Option::as_ref);
                [Some(memory)].into_iter().chain(others).flatten().collect()
            }
            Self::Sampled => BTreeSet::new(),
        };
        parents.into_iter().map(|parent| parent.join(short)).collect()
    }

    /// Makes a workload's groups with their limits; what is there already gets the limits.
    /// Where systemd rules, [`Self::starter`] does that.
    pub(super) fn create(&self, short: &str, limits: &Limits, access: &DeviceAccess) -> io::Result<()> {
        let memory_bytes = limits.memory_bytes.to_string();
        let quota = limits.cpus * PERIOD;
        match self {
            Self::V2 { parent } => {
                make_v2_parent(parent)?;
                let group = parent.join(short);
                make(&group)?;
                set(&group, "memory.max", &memory_bytes)?;
                set_if_there(&group, "memory.swap.max", "0")?;
                // Not `memory.oom.group`: the kernel would end the agent too, who has to tell. It
                // takes the app first, and the agent then ends what is left.
                set(&group, "cpu.max", &format!("{quota} {PERIOD}"))?;
                set(&group, "pids.max", &limits.processes.to_string())?;
            }
            Self::V1 { memory, cpu, pids, devices, .. } => {
                for group in self.groups(short) {
                    make(&group)?;
                }
                let group = memory.join(short);
                // Memory and swap together may never be below memory alone, on the way either.
                set_if_there(&group, "memory.memsw.limit_in_bytes", "-1")?;
                set(&group, "memory.limit_in_bytes", &memory_bytes)?;
                set_if_there(&group, "memory.memsw.limit_in_bytes", &memory_bytes)?;
                if let Some(cpu) = cpu {
                    let group = cpu.join(short);
                    set(&group, "cpu.cfs_period_us", &PERIOD.to_string())?;
                    set(&group, "cpu.cfs_quota_us", &quota.to_string())?;
                }
                if let Some(pids) = pids {
                    set(&pids.join(short), "pids.max", &limits.processes.to_string())?;
                }
                if let Some(devices) = devices {
                    let group = devices.join(short);
                    for device in &access.closed {
                        set(&group, "devices.deny", &format!("c {}:{} rwm", device.major, device.minor))?;
                    }
                }
            }
            Self::Systemd { .. } | Self::Sampled => {}
        }
        Ok(())
    }

    /// The program that has to start a workload's first process for it to be in its groups,
    /// where that is not simply done by joining them.
    pub(super) fn starter(
        &self,
        short: &str,
        limits: &Limits,
        access: &DeviceAccess,
    ) -> io::Result<Option<std::process::Command>> {
        match self {
            Self::Systemd { parent } => systemd::starter(parent, short, limits, access).map(Some),
            _ => Ok(None),
        }
    }
}

/// What a workload's groups say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Without the file cache that the kernel would give up at once.
    pub memory_bytes: i64,
    /// Since the groups were made.
    pub cpu_nanoseconds: u64,
    pub processes: i64,
}

/// Reads the use of a workload; `None` where there are no groups (any more).
pub fn usage(groups: &[PathBuf]) -> Option<Usage> {
    let number =
        |name: &str| groups.iter().find_map(|group| fs::read_to_string(group.join(name)).ok()?.trim().parse().ok());
    let keyed = |file: &str, key: &str| {
        groups.iter().find_map(|group| value_of(&fs::read_to_string(group.join(file)).ok()?, key))
    };
    let memory: i64 = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let cache = keyed("memory.stat", "total_inactive_file").or_else(|| keyed("memory.stat", "inactive_file"));
    let cpu = keyed("cpu.stat", "usage_usec")
        .map(|microseconds| microseconds.saturating_mul(1000))
        .or_else(|| number("cpuacct.usage"))
        .unwrap_or(0);
    let processes = number("pids.current").or_else(|| i64::try_from(processes(groups).ok()?.len()).ok()).unwrap_or(0);
    Some(Usage {
        memory_bytes: memory.saturating_sub(cache.unwrap_or(0)).max(0),
        cpu_nanoseconds: u64::try_from(cpu).unwrap_or(0),
        processes,
    })
}

/// How often the kernel ended something in these groups for lack of memory.
pub fn oom_kills(groups: &[PathBuf]) -> i64 {
    let count = |group: &PathBuf| {
        ["memory.events", "memory.oom_control"]
            .into_iter()
            .find_map(|name| value_of(&fs::read_to_string(group.join(name)).ok()?, "oom_kill"))
    };
    groups.iter().find_map(count).unwrap_or(0)
}

/// Every process in these groups.
pub fn processes(groups: &[PathBuf]) -> io::Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for group in groups {
        match fs::read_to_string(group.join("cgroup.procs")) {
            Ok(list) => found.extend(list.lines().filter_map(|line| line.parse::<i32>().ok())),
            Err(err) if is_gone(&err) => {}
            Err(err) => return Err(err),
        }
    }
    Ok(found)
}

/// Puts this process into the groups, or sees that systemd has done so.
pub(super) fn join(groups: &[PathBuf]) -> io::Result<()> {
    if groups.iter().any(|group| systemd::is_unit(group)) {
        let inside = processes(groups)?.iter().any(|pid| u32::try_from(*pid) == Ok(std::process::id()));
        return if inside { Ok(()) } else { Err(io::Error::other("systemd did not create them")) };
    }
    groups.iter().try_for_each(|group| set(group, "cgroup.procs", "0"))
}

/// Ends everything in the groups; false when something is left after `within`.
pub(super) fn kill(groups: &[PathBuf], within: Duration) -> io::Result<bool> {
    for group in groups {
        // Nothing can be started any more, so that no fork outruns us.
        let _ = set(group, "pids.max", "0");
        let _ = set(group, "cgroup.kill", "1");
    }
    process::kill_all(|| processes(groups), within)
}

/// Removes the groups, and their parents when these were the last.
pub(super) fn remove(groups: &[PathBuf]) -> io::Result<()> {
    let (units, groups): (Vec<_>, Vec<_>) = groups.iter().cloned().partition(|group| systemd::is_unit(group));
    systemd::remove(&units)?;
    for group in &groups {
        let mut tries = 0;
        loop {
            match fs::remove_dir(group) {
                Ok(()) => break,
                Err(err) if is_gone(&err) => break,
                // The last process has ended and its group has yet to notice.
                Err(err) if err.kind() == io::ErrorKind::ResourceBusy && tries < 100 => {
                    tries += 1;
                    process::pause(Duration::from_millis(10));
                }
                Err(err) => return Err(err),
            }
        }
    }
    remove_unused_parents(&groups);
    Ok(())
}

fn remove_unused_parents(groups: &[PathBuf]) {
    // Systemd would not notice that a group of its own is gone.
    let ours = groups.iter().filter(|group| !systemd::is_unit(group));
    for parent in ours.filter_map(|group| group.parent()) {
        // It holds others' groups, most often.
        let _ = fs::remove_dir(parent);
    }
}

/// Makes `lyceum-INSTANCE` with the controllers handed down to its sub-groups. Processes
/// live in the sub-groups alone, as version 2 demands; nobody else's are ever moved.
fn make_v2_parent(parent: &Path) -> io::Result<()> {
    let mount = parent.parent().ok_or(io::ErrorKind::NotFound)?;
    has_v2_controllers(mount)?;
    let hand_down = |group: &Path| -> io::Result<()> {
        let down = words(&group.join("cgroup.subtree_control"))?;
        let missing: Vec<String> = V2_CONTROLLERS
            .iter()
            .filter(|controller| !down.contains(**controller))
            .map(|controller| format!("+{controller}"))
            .collect();
        if missing.is_empty() { Ok(()) } else { set(group, "cgroup.subtree_control", &missing.join(" ")) }
    };
    hand_down(mount)?;
    make(parent)?;
    hand_down(parent)
}

/// Fails where a controller that we need is not in the tree of version 2.
fn has_v2_controllers(mount: &Path) -> io::Result<()> {
    let available = words(&mount.join("cgroup.controllers"))?;
    let all = V2_CONTROLLERS.iter().all(|controller| available.contains(*controller));
    if all { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

fn words(file: &Path) -> io::Result<BTreeSet<String>> {
    Ok(fs::read_to_string(file)?.split_whitespace().map(str::to_owned).collect())
}

fn make(group: &Path) -> io::Result<()> {
    fs::create_dir_all(group)
}

fn set(group: &Path, name: &str, value: &str) -> io::Result<()> {
    // Never made when missing: a control file that is not there is not supported.
    let file = fs::OpenOptions::new().write(true).open(group.join(name));
    file.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(|err| io::Error::new(err.kind(), format!("{}: {err}", group.join(name).display())))
}

fn set_if_there(group: &Path, name: &str, value: &str) -> io::Result<()> {
    if group.join(name).exists() { set(group, name, value) } else { Ok(()) }
}

fn value_of(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn is_gone(err: &io::Error) -> bool {
    // ENODEV: the group was removed between opening and reading.
    err.kind() == io::ErrorKind::NotFound || err.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_mounted_controllers_are_one_group() {
        let both: PathBuf = "/c/cpu,cpuacct/lyceum-x".into();
        let v1 = Hierarchy::V1 {
            memory: "/c/memory/lyceum-x".into(),
            cpu: Some(both.clone()),
            cpuacct: Some(both.clone()),
            pids: None,
            devices: None,
        };
        assert_eq!(v1.groups("s"), [both.join("s"), "/c/memory/lyceum-x/s".into()]);
        assert_eq!(Hierarchy::Sampled.groups("s"), Vec::<PathBuf>::new());
    }

    #[test]
    fn reads_version_2() {
        let group = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("memory.current", "1000000\n"),
            ("memory.stat", "anon 5\ninactive_file 400000\n"),
            ("memory.events", "low 0\noom 1\noom_kill 3\noom_group_kill 1\n"),
            ("cpu.stat", "usage_usec 2500\nuser_usec 1\n"),
            ("pids.current", "7\n"),
            ("cgroup.procs", "12\n13\n"),
        ] {
            fs::write(group.path().join(name), text).unwrap();
        }
        let groups = [group.path().to_owned(), "/nowhere".into()];
        assert_eq!(usage(&groups), Some(Usage { memory_bytes: 600_000, cpu_nanoseconds: 2_500_000, processes: 7 }));
        assert_eq!(oom_kills(&groups), 3);
        assert_eq!(processes(&groups).unwrap(), BTreeSet::from([12, 13]));
        assert_eq!(usage(&groups[1..]), None);
        assert_eq!(oom_kills(&groups[1..]), 0);
    }

    #[test]
    fn hands_controllers_down_in_version_2() {
        let mount = tempfile::tempdir().unwrap();
        let (mount, parent) = (mount.path(), mount.path().join("lyceum-x"));
        let write = |group: &Path, name: &str, text: &str| fs::write(group.join(name), text).unwrap();
        write(mount, "cgroup.controllers", "cpuset cpu io memory hugetlb");
        write(mount, "cgroup.subtree_control", "cpu memory");
        assert!(make_v2_parent(&parent).is_err(), "no pids here");
        assert!(!parent.exists(), "refused before anything is made");
        write(mount, "cgroup.controllers", "cpuset cpu io memory pids");
        fs::create_dir(&parent).unwrap();
        write(&parent, "cgroup.subtree_control", "");
        make_v2_parent(&parent).unwrap();
        let control = fs::read_to_string(mount.join("cgroup.subtree_control")).unwrap();
        assert!(control.starts_with("+pids"), "only what is missing: {control}");
        assert_eq!(fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap(), "+memory +cpu +pids");
    }
}
