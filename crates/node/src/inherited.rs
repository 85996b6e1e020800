//! What a process has from whoever started it beside its environment: open descriptors, signals
//! that are ignored or blocked, niceness, limits, and how readily the kernel ends it. A shell's
//! `&`, `nohup`, `nice`, `ulimit` and a service manager all leave something there. Every process
//! of ours that runs something for a user begins with [`begin`], and [`restore`] makes of the rest
//! what a login on this machine would get.

use std::fs;

use nix::sys::signal::SigSet;
use rustix::process::{Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Closes every descriptor above standard error and makes all signals ours to receive. To be
/// called before this process opens anything or has a second thread.
pub fn begin() {
    close_from_third();
    accept_signals();
}

/// Closes every descriptor above standard error: whoever started us may have left some open.
fn close_from_third() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
    for fd in open {
        // The listing's own descriptor is among them and closed already.
        let _ = nix::unistd::close(fd);
    }
}

/// Blocks no signal, and hands no ignored one on: each gets a handler that does nothing, so that
/// this process goes on ignoring it and the kernel gives it back its default at every `exec`.
/// Those that report a fault of the program itself cannot have one; the kernel never ignores
/// the fault for all that.
pub fn accept_signals() {
    // Fails only for a mask that the kernel does not know.
    let _ = SigSet::empty().thread_set_mask();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    if ignored.is_empty() {
        return;
    }
    // A handler outlives the runtime by which it was registered.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let _entered = runtime.enter();
    for number in ignored {
        let _ = signal(SignalKind::from_raw(number));
    }
}

/// The signals that this process ignores; SIGPIPE is Rust's own, which gives it back itself.
fn ignored(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let pipe = SignalKind::pipe().as_raw_value();
    (1..=64).filter(|number| mask & (1 << (number - 1)) != 0 && *number != pipe).collect()
}

/// Gives this process the niceness, the limits and the `oom_score_adj` that what runs for a user
/// begins with. Root may do all of it; of others the kernel allows what it allows everybody.
/// Which cores it may use stays: that bounds what a portal has to give.
pub fn restore(oom_score: i32) {
    if getpriority_process(None).is_ok_and(|niceness| niceness != 0) {
        let _ = setpriority_process(None, 0);
    }
    // Nothing depends on it where it is not allowed.
    let _ = fs::write("/proc/self/oom_score_adj", oom_score.to_string());
    let machine = fs::read_to_string("/proc/1/limits").unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    for (name, resource) in RESOURCES {
        let ours = getrlimit(resource);
        let set = |hard| setrlimit(resource, Rlimit { current: soft_limit(resource, hard), maximum: hard });
        let wanted = if is_root { most(ours.maximum, hard_limit(&machine, name, resource)) } else { ours.maximum };
        // In many containers not even root may raise one.
        if set(wanted).is_err() {
            let _ = set(ours.maximum);
        }
    }
}

/// How nice this process is where it may not be less so.
pub fn lasting_niceness() -> Option<i32> {
    let niceness = getpriority_process(None).ok().filter(|niceness| *niceness > 0)?;
    // What RLIMIT_NICE allows is counted from 20 downwards.
    let allowed = getrlimit(Resource::Nice).maximum.is_none_or(|limit| limit >= 20);
    (!allowed && !rustix::process::geteuid().is_root()).then_some(niceness)
}

/// As `/proc/PID/limits` calls them.
const RESOURCES: [(&str, Resource); 16] = [
    ("Max cpu time", Resource::Cpu),
    ("Max file size", Resource::Fsize),
    ("Max data size", Resource::Data),
    ("Max stack size", Resource::Stack),
    ("Max core file size", Resource::Core),
    ("Max resident set", Resource::Rss),
    ("Max processes", Resource::Nproc),
    ("Max open files", Resource::Nofile),
    ("Max locked memory", Resource::Memlock),
    ("Max address space", Resource::As),
    ("Max file locks", Resource::Locks),
    ("Max pending signals", Resource::Sigpending),
    ("Max msgqueue size", Resource::Msgqueue),
    ("Max nice priority", Resource::Nice),
    ("Max realtime priority", Resource::Rtprio),
    ("Max realtime timeout", Resource::Rttime),
];

/// `None` is unlimited, here and below.
type Limit = Option<u64>;

fn most(one: Limit, two: Limit) -> Limit {
    one.zip(two).map(|(one, two)| one.max(two))
}

/// The hard limit of the machine's first process, which no shell has lowered; nothing at all
/// where it is not told. Systemd raises its own number of files beyond what it gives to others.
fn hard_limit(machine: &str, name: &str, resource: Resource) -> Limit {
    let words = machine.lines().find_map(|line| line.strip_prefix(name));
    let limit = match words.and_then(|words| words.split_whitespace().nth(1)) {
        Some("unlimited") => None,
        Some(number) => Some(number.parse().unwrap_or_default()),
        None => Some(0),
    };
    match resource {
        Resource::Nofile => Some(limit.unwrap_or(MAX_FILES).min(MAX_FILES)),
        _ => limit,
    }
}

const MAX_FILES: u64 = 524_288;

/// What counts below a hard limit: all of it, but for what the kernel and systemd begin with
/// themselves. More than 1024 files break programs that call `select`, and whoever wants more
/// raises it; a stack without limit changes where the kernel maps everything else.
fn soft_limit(resource: Resource, hard: Limit) -> Limit {
    let usual = match resource {
        Resource::Nofile => 1024,
        Resource::Core => 0,
        Resource::Stack => 8 << 20,
        _ => return hard,
    };
    Some(hard.map_or(usual, |hard| usual.min(hard)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored() {
        for (mask, numbers) in
            [("0000000000000000", vec![]), ("0000000000001006", vec![2, 3]), ("8000000000000001", vec![1, 64])]
        {
            assert_eq!(ignored(&format!("Name:\tx\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n")), numbers);
        }
        assert!(ignored("Name:\tx\n").is_empty());
    }

    #[test]
    fn limits_of_a_login() {
        let machine = "Limit                     Soft Limit           Hard Limit           Units     \n\
                       Max file size             unlimited            unlimited            bytes     \n\
                       Max core file size        0                    unlimited            bytes     \n\
                       Max open files            1073741816           1073741816           files     \n\
                       Max nice priority         0                    0                    \n";
        for (resource, name, ours, hard, soft) in [
            (Resource::Fsize, "Max file size", Some(512), None, None),
            (Resource::Core, "Max core file size", Some(7), None, Some(0)),
            (Resource::Nofile, "Max open files", Some(256), Some(MAX_FILES), Some(1024)),
            (Resource::Nofile, "Max open files", Some(1 << 20), Some(1 << 20), Some(1024)),
            (Resource::Nice, "Max nice priority", Some(0), Some(0), Some(0)),
            (Resource::Stack, "Max stack size", Some(1 << 20), Some(1 << 20), Some(1 << 20)),
            (Resource::Stack, "Max stack size", None, None, Some(8 << 20)),
        ] {
            let found = most(ours, hard_limit(machine, name, resource));
            assert_eq!((found, soft_limit(resource, found)), (hard, soft), "{name} {ours:?}");
        }
    }

    /// The kernel's table of this process has every name that is looked for.
    #[test]
    fn names_are_the_kernels() {
        let ours = fs::read_to_string("/proc/self/limits").unwrap();
        for (name, _) in RESOURCES {
            assert!(ours.lines().any(|line| line.starts_with(name)), "{name}");
        }
    }
}
