//! Checks of the machine: Python and environments, GPUs, what holds limits, who runs what,
//! memory and the clock.

use std::{fs, path::Path, time::Duration};

use super::{Facts, Finding, Level, disk::service_uid};
use crate::{
    environments::{self, BaseRequirements, Build, Environments, Recipe, State, System, on_search_path},
    gpu::{self, Gpus},
    helper::{
        cgroup::Hierarchy,
        command::{self, CommandContext},
        identity, privilege_mode,
    },
    model::{
        Timestamp,
        size::{GIB, KIB, human_size},
    },
};

/// Where the programs of administrators lie.
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// How long sudo may take to list its rules, which a directory may hold, and how long they may be.
const SUDO_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RULES: u64 = 64 * 1024;

pub async fn python(facts: &Facts) -> Vec<Finding> {
    let name = "Python";
    let search = facts.place.variables.iter().find(|(key, _)| key == "PATH").map_or("", |(_, value)| value);
    let uv = on_search_path(search, "uv");
    let wanted = BaseRequirements {
        python: &facts.environments.python,
        everybody: facts.place.everybody,
        needs_venv: uv.is_none(),
        search,
    };
    let python = match environments::find_python(wanted).await {
        Ok(base) => {
            let who = if facts.place.everybody { ", all users may run it" } else { "" };
            Finding::new(name, Level::Ok, format!("{} is Python {}{who}", base.path.display(), base.version_text()))
        }
        Err(failure) => {
            let level = if facts.environments.build == Build::Never { Level::Note } else { Level::Fault };
            Finding::new(name, level, failure.what).fix(failure.command)
        }
    };
    let installer = match uv {
        Some(uv) => Finding::new("installer", Level::Ok, format!("uv at {}", uv.display())),
        None => Finding::new("installer", Level::Ok, "uv is downloaded when it is needed; otherwise pip is used"),
    };
    vec![python, installer]
}

pub async fn environments(facts: &Facts) -> Vec<Finding> {
    let config = environments::Config { build: Build::Never, ..facts.environments.clone() };
    let environments = Environments::new(config, facts.place_on_this_machine(), Recipe::default(), facts.clock.clone());
    environments.attempt_all().await;
    environments.look_at_sites().await;
    let found = environments.list().into_iter().map(|environment| {
        let name = format!("`{}` ({})", environment.name, environment.title);
        match environment.state {
            State::Ready { python, .. } => {
                let version = environment.python_version.unwrap_or_default();
                let what =
                    format!("{name}: Python {version}, {}{}", python.display(), frameworks(&environment.frameworks));
                match environment.note {
                    Some(note) => Finding::new("environment", Level::Warning, format!("{what}. {note}")),
                    None => Finding::new("environment", Level::Ok, what),
                }
            }
            State::Failed { what, command, .. } => {
                Finding::new("environment", Level::Warning, format!("{name}: {what}")).fix(command)
            }
            State::Missing | State::Building { .. } if facts.environments.build == Build::Auto => {
                Finding::new("environment", Level::Note, format!("{name} will be built at the next start"))
            }
            State::Missing | State::Building { .. } => Finding::new(
                "environment",
                Level::Warning,
                format!("{name} is missing, and `environments.build` is \"never\": notebooks cannot start"),
            )
            .fix("LYCEUM_ENVIRONMENTS__BUILD=auto lyceum serve"),
        }
    });
    found.collect()
}

/// Says which frameworks an environment holds, and which of them use CPUs alone.
fn frameworks(all: &[environments::Framework]) -> String {
    let names: Vec<String> = all.iter().map(|one| format!(", {one}")).collect();
    names.concat()
}

pub fn r() -> Finding {
    if environments::has_r() {
        Finding::new("R", Level::Ok, "an R kernel is available in notebooks")
    } else {
        Finding::new("R", Level::Note, "no R kernel on this machine: notebooks only offer Python")
            .fix(System::of_this_machine().install_r())
    }
}

pub fn gpus(facts: &Facts) -> Finding {
    let name = "GPUs";
    match gpu::inventory(&facts.gpus) {
        Err(error) => Finding::new(name, Level::Fault, error.to_string()).fix("nvidia-smi"),
        Ok(found) if found.gpus.is_empty() && facts.gpus.gpus == Gpus::Auto => {
            Finding::new(name, Level::Note, "no NVIDIA driver: no GPUs are allocated")
        }
        Ok(found) if found.gpus.is_empty() => Finding::new(name, Level::Note, "none are allocated, by configuration"),
        Ok(found) => {
            let mut models: Vec<&str> = found.gpus.iter().map(|gpu| gpu.model.as_str()).collect();
            models.dedup();
            let how = if found.driver { "" } else { ", counted only: there is no driver" };
            let level = if found.driver { Level::Ok } else { Level::Note };
            Finding::new(name, level, format!("{} × {}{how}", found.gpus.len(), models.join(", ")))
        }
    }
}

pub fn cgroups(facts: &Facts) -> Finding {
    let name = "limits";
    if !facts.is_root {
        return Finding::new(
            name,
            Level::Note,
            "not root: memory is checked once a second, and a session that exceeds its limit is ended; core limits are \
             not enforced",
        );
    }
    let hierarchy = Hierarchy::detect("check");
    if hierarchy.is_sampled() {
        Finding::new(
            name,
            Level::Warning,
            "control groups cannot be used: memory is checked once a second, core limits are not enforced",
        )
        .fix("mount -t cgroup2 none /sys/fs/cgroup")
    } else {
        Finding::new(
            name,
            Level::Ok,
            format!("limits on cores, memory and processes are enforced by {}", hierarchy.kind()),
        )
    }
}

/// Whether a session is kept from the GPUs of others; nothing to say where there are none.
pub fn gpu_files(facts: &Facts) -> Option<Finding> {
    let name = "GPU files";
    let found = gpu::inventory(&facts.gpus).ok().filter(|found| found.driver)?;
    if facts.is_root && !found.devices.is_empty() && Hierarchy::detect("check").closes_devices() {
        return Some(Finding::new(name, Level::Ok, "a session can only open the files of its own GPUs"));
    }
    Some(Finding::new(
        name,
        Level::Note,
        "every session can open all GPUs: only CUDA_VISIBLE_DEVICES restricts programs to their own (restricting \
         access requires root, and systemd or control groups v1)",
    ))
}

pub fn accounts(facts: &Facts) -> Finding {
    let name = "accounts";
    if facts.is_root {
        let user = &facts.service_user;
        match service_uid(facts) {
            Some(0) => Finding::new(name, Level::Fault, format!("`server.user` is {user}, which is root"))
                .fix("LYCEUM_SERVER__USER=lyceum lyceum serve"),
            Some(uid) => Finding::new(
                name,
                Level::Ok,
                format!("root's helper starts workloads as their users; the portal runs as {user} ({uid})"),
            ),
            None => Finding::new(
                name,
                Level::Ok,
                format!(
                    "root's helper starts workloads as their users; the user {user} for the portal will be created"
                ),
            ),
        }
    } else if let Some(program) = &facts.sudo {
        by_sudo(program)
    } else {
        let what = "not root: all workloads run as you, so this suits one person, or several who may read each other's \
                    files (accounts.shared_uid)";
        Finding::new(name, Level::Note, what)
    }
}

/// Whether sudo lets this account run the program as others.
fn by_sudo(program: &Path) -> Finding {
    let name = "accounts";
    let arguments = ["-n", "-l"].map(str::to_owned);
    let listed =
        command::run(Path::new(privilege_mode::SUDO), &arguments, &CommandContext::default(), SUDO_TIMEOUT, MAX_RULES);
    let why = match listed {
        // Long lists are folded.
        Ok(ran) if ran.output.split_whitespace().collect::<Vec<_>>().join(" ").contains(&rule(program)) => {
            return Finding::new(
                name,
                Level::Ok,
                "sudo starts workloads as their users; the portal never runs as root",
            );
        }
        Ok(ran) => ran.complaints.lines().next().unwrap_or("its rules do not allow the program").to_owned(),
        Err(err) => err.sentence(),
    };
    let account = identity::own().map_or_else(|_unknown| "lyceum".to_owned(), |own| own.name);
    let what = format!("accounts.sudo: sudo does not let `{account}` run {}: {why}", rule(program));
    let line = format!("{account} ALL=(%GROUP) NOPASSWD: {}", rule(program));
    Finding::new(name, Level::Fault, what).fix(format!("visudo -f /etc/sudoers.d/lyceum: {line}"))
}

/// The command of the rule.
fn rule(program: &Path) -> String {
    format!("{} as-user *", program.display())
}

pub fn programs(facts: &Facts) -> Finding {
    let name = "programs";
    if !facts.is_root {
        return Finding::new(name, Level::Ok, "not needed without root");
    }
    let missing: Vec<&str> =
        ["useradd", "setpriv"].into_iter().filter(|name| on_search_path(SYSTEM_PATH, name).is_none()).collect();
    if missing.is_empty() {
        return Finding::new(name, Level::Ok, "useradd and setpriv are installed");
    }
    let what = format!("{} is missing: accounts cannot be created or used", missing.join(" and "));
    let fix = match System::of_this_machine() {
        System::Debian => "apt-get install passwd util-linux",
        System::Fedora => "dnf install shadow-utils util-linux",
        System::Alpine => "apk add shadow setpriv",
        _ => "useradd --help; setpriv --help",
    };
    Finding::new(name, Level::Fault, what).fix(fix)
}

pub fn memory() -> Finding {
    let name = "memory";
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib * KIB)
    };
    match (value("MemTotal"), value("MemAvailable")) {
        (Some(total), Some(available)) => {
            let what = format!("{} in total, {} free", human_size(total), human_size(available));
            if available < GIB {
                Finding::new(name, Level::Warning, format!("{what}: a notebook with Keras needs about 1 GiB"))
            } else {
                Finding::new(name, Level::Ok, what)
            }
        }
        _ => Finding::new(name, Level::Warning, "the kernel does not report it"),
    }
}

/// Certificates, sign-ins and time limits all need a clock that is about right.
pub fn clock(facts: &Facts) -> Finding {
    const BEGINNING_OF_2026: Timestamp = Timestamp(1_767_225_600_000);
    let name = "clock";
    let now = facts.clock.now();
    let written = fs::metadata(&facts.private).and_then(|meta| meta.modified()).ok();
    let written = written.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let written = written.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0);
    if now < BEGINNING_OF_2026 {
        return Finding::new(
            name,
            Level::Fault,
            format!("it is set to {now}, which is in the past: certificates are rejected"),
        )
        .fix("timedatectl set-ntp true");
    }
    if now.plus_seconds(60).0 < written {
        let what = format!(
            "it is set to {now}, which is before the data was last written: sign-ins and limits do not work correctly"
        );
        return Finding::new(name, Level::Warning, what).fix("timedatectl set-ntp true");
    }
    Finding::new(name, Level::Ok, now.to_string())
}
