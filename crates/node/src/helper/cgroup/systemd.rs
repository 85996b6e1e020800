//! Workloads where systemd rules the control groups: each gets a transient scope with its
//! limits, made by `systemd-run`, in a slice of its own. The slice stays when the last process
//! has gone, and with it the kernel's count of what it ended for lack of memory; we stop
//! the slice when the session is cleaned. Also the only place that closes device files under
//! version 2: the program which that takes in the kernel is systemd's to load.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use lyceum_model::DeviceAccess;
use lyceum_wire::protocol::Limits;

/// What a slice nests in, by its name: `lyceum-x.slice` lies in `lyceum.slice`.
const TOP: &str = "lyceum.slice";

/// The slice of a portal below the tree mounted at `mount`, if systemd rules it and starts
/// something in our name.
pub(super) fn detect(mount: &Path, instance: &str) -> Option<PathBuf> {
    // As sd_booted(3) asks.
    if !Path::new("/run/systemd/system").is_dir() || !rustix::process::geteuid().is_root() {
        return None;
    }
    let parent = mount.join(TOP).join(format!("lyceum-{instance}.slice"));
    let limits = Limits { cpus: 1, memory_bytes: 1 << 30, processes: 64 };
    let mut probe = starter(&parent, "probe", &limits, &DeviceAccess::default()).ok()?;
    let started = probe.arg("/bin/true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let removed = remove(&groups(&parent, "probe"));
    (started.is_ok_and(|status| status.success()) && removed.is_ok()).then_some(parent)
}

/// The scope that a workload is in, and its slice.
pub(super) fn groups(parent: &Path, short: &str) -> Vec<PathBuf> {
    let name = unit(parent, short);
    let slice = parent.join(format!("{name}.slice"));
    vec![slice.join(format!("{name}.scope")), slice]
}

/// Whether a group is systemd's to make and remove.
pub(super) fn is_unit(group: &Path) -> bool {
    group.extension().is_some_and(|extension| extension == "scope" || extension == "slice")
}

/// `systemd-run` up to, and without, the program that it turns into: its process is in the
/// groups from then on, with the same process id.
pub(super) fn starter(parent: &Path, short: &str, limits: &Limits, access: &DeviceAccess) -> io::Result<Command> {
    let name = unit(parent, short);
    let mut command = Command::new("systemd-run");
    quietly(&mut command).args(["--scope", "--quiet", "--collect", "--no-ask-password"]);
    command.arg(format!("--unit={name}.scope")).arg(format!("--slice={name}.slice"));
    command.arg(format!("--description=Lyceum, session {short}"));
    let mut properties = vec![
        format!("MemoryMax={}", limits.memory_bytes),
        "MemorySwapMax=0".to_owned(),
        format!("CPUQuota={}%", limits.cpus * 100),
        format!("TasksMax={}", limits.processes),
        // Short of memory the kernel ends a process and the agent then all others, which is
        // what it has to tell. Systemd from 253 on would ask all to end, unless the scope is
        // delegated; nothing in it may write to the groups for all that.
        "Delegate=cpu memory pids".to_owned(),
    ];
    if !access.closed.is_empty() {
        properties.push("DevicePolicy=strict".to_owned());
        properties.extend(device_rules(&fs::read_to_string("/proc/devices")?, access));
    }
    for property in properties {
        command.arg("--property").arg(property);
    }
    command.arg("--");
    Ok(command)
}

/// What may be opened, as systemd wants to hear it: all drivers but the one in question, and
/// of that one what is open. Systemd has no rule that closes.
fn device_rules(proc_devices: &str, access: &DeviceAccess) -> Vec<String> {
    let majors = proc_devices
        .lines()
        .skip_while(|line| !line.starts_with("Character"))
        .take_while(|line| !line.starts_with("Block"))
        .filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok());
    let majors: BTreeSet<u32> =
        majors.filter(|major| access.closed.iter().all(|device| device.major != *major)).collect();
    let open = access.open.iter().map(|device| format!("DeviceAllow=/dev/char/{}:{} rwm", device.major, device.minor));
    let drivers = majors.into_iter().map(|major| format!("DeviceAllow=char-{major} rwm"));
    ["DeviceAllow=block-* rwm".to_owned()].into_iter().chain(drivers).chain(open).collect()
}

/// Stops the slices, which ends what is left in them.
pub(super) fn remove(units: &[PathBuf]) -> io::Result<()> {
    for slice in units.iter().filter(|group| group.extension() == Some(OsStr::new("slice")) && group.exists()) {
        let name = slice.file_name().unwrap_or_default();
        let mut command = Command::new("systemctl");
        let output = quietly(&mut command).args(["stop", "--quiet", "--no-ask-password", "--"]).arg(name).output()?;
        // What was not loaded any more is not there either.
        if slice.exists() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("systemctl stop {}: {}", name.display(), said.trim())));
        }
    }
    Ok(())
}

fn quietly(command: &mut Command) -> &mut Command {
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/").stdin(Stdio::null())
}

/// `lyceum-INSTANCE-SHORT`, from the name of the portal's slice.
fn unit(parent: &Path, short: &str) -> String {
    format!("{}-{short}", parent.file_stem().unwrap_or_default().display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::DeviceNumber;

    #[test]
    fn units_nest_as_their_names_say() {
        let parent = Path::new("/sys/fs/cgroup/lyceum.slice/lyceum-0a1b.slice");
        let [scope, slice] = <[PathBuf; 2]>::try_from(groups(parent, "77")).unwrap();
        assert_eq!(slice, parent.join("lyceum-0a1b-77.slice"));
        assert_eq!(scope, slice.join("lyceum-0a1b-77.scope"));
        assert!(is_unit(&scope) && is_unit(&slice) && !is_unit(Path::new("/sys/fs/cgroup/lyceum-0a1b/77")));
    }

    #[test]
    fn all_drivers_are_open_and_of_one_only_what_is_ones_own() {
        let devices =
            "Character devices:\n  1 mem\n  4 tty\n  4 ttyS\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n";
        let number = |minor| DeviceNumber { major: 195, minor };
        let access = DeviceAccess { open: vec![number(1), number(255)], closed: vec![number(0)] };
        let rules = device_rules(devices, &access);
        let expected = ["block-*", "char-1", "char-4", "char-510", "/dev/char/195:1", "/dev/char/195:255"];
        assert_eq!(rules, expected.map(|rule| format!("DeviceAllow={rule} rwm")));
    }
}
