//! Checks of what runs programs in container images: each runner that is installed starts a program
//! as an account that is not root, and what keeps it from doing so is named. Also whether squashed
//! images can be mounted, and whether the GPUs are described for containers.

use std::{fs, path::Path, path::PathBuf, time::Duration};

use super::{Facts, Finding, Level, disk::service_uid};
use crate::{
    container::{cdi, find_program},
    environments::System,
    gpu,
    helper::command::{self, CommandContext},
    protocol::CommandOutput,
};

/// How long a runner may take to start and end a program.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What is read of its words (bytes).
const MAX_WORDS: u64 = 16 * 1024;

/// An account that has no rights, where the portal's own is not there yet.
const NOBODY: u32 = 65_534;

/// Settings of the kernel that close user name spaces: file, closing value, the command that opens them.
const CLOSED: [(&str, &str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap",
    ),
];

pub fn containers(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![bubblewrap(facts)];
    findings.extend(apptainer(facts));
    findings.push(mounting(facts));
    findings.extend(gpus(facts));
    findings
}

fn bubblewrap(facts: &Facts) -> Finding {
    let name = "images";
    let Some(program) = find_program("bwrap") else {
        return Finding::new(name, Level::Note, "bubblewrap is not installed: programs cannot run in container images")
            .fix(install("bubblewrap"));
    };
    let words = [
        "--unshare-user --unshare-ipc --unshare-uts --cap-drop ALL --ro-bind / / --proc /proc --dev /dev --tmpfs /run --",
        "/bin/sh -c",
    ];
    let words = words.iter().flat_map(|words| words.split(' ')).map(str::to_owned);
    // That it ran in there, and as whom.
    let script = "test ! -e /run/lock && grep -q '^NoNewPrivs:.*1$' /proc/self/status && id -u".to_owned();
    let uid = account(facts);
    match run(facts, &program, words.chain([script]).collect()) {
        Ok(ran) if ran.status == Some(0) && ran.output.trim() == uid.to_string() => Finding::new(
            name,
            Level::Ok,
            format!("bubblewrap starts programs in container images (tried as uid {uid})"),
        ),
        Ok(ran) => blocked(name, "bubblewrap cannot start programs in container images", &ran),
        Err(why) => Finding::new(name, Level::Warning, format!("bubblewrap cannot be run: {why}")),
    }
}

/// Only where it is installed: it is an alternative.
fn apptainer(facts: &Facts) -> Option<Finding> {
    let name = "Apptainer";
    let program = find_program("apptainer")?;
    let words = ["exec", "--no-mount", "home,cwd,tmp,hostfs,bind-paths", "/", "/bin/true"].map(str::to_owned);
    Some(match run(facts, &program, words.into()) {
        Ok(ran) if ran.status == Some(0) => Finding::new(name, Level::Ok, "Apptainer starts programs"),
        Ok(ran) => blocked(name, "Apptainer cannot start programs", &ran),
        Err(why) => Finding::new(name, Level::Warning, format!("Apptainer cannot be run: {why}")),
    })
}

fn blocked(name: &'static str, what: &str, ran: &CommandOutput) -> Finding {
    let why = ran.complaints.lines().next().unwrap_or("it ended without a message");
    let finding = Finding::new(name, Level::Warning, format!("{what}: {why}"));
    match closed() {
        Some((file, fix)) => {
            let what = format!("{what}: user name spaces are closed by {file} ({why})");
            Finding { what, ..finding }.fix(fix)
        }
        None => finding.fix("unshare --user --map-current-user true"),
    }
}

/// The setting that closes user name spaces, and the command that opens them.
fn closed() -> Option<(&'static str, &'static str)> {
    let is_closed =
        |(file, value, _): &&(&str, &str, &str)| fs::read_to_string(file).is_ok_and(|text| text.trim() == *value);
    CLOSED.iter().find(is_closed).map(|(file, _, fix)| (*file, *fix))
}

fn mounting(facts: &Facts) -> Finding {
    let name = "squashed images";
    let packages = [("squashfuse", "squashfuse"), ("fuse-overlayfs", "fuse-overlayfs")];
    let missing: Vec<&str> =
        packages.iter().filter(|(program, _)| find_program(program).is_none()).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        let what = format!(
            "{} is not installed: images in files, or with kept changes, cannot be used",
            missing.join(" and ")
        );
        return Finding::new(name, Level::Note, what).fix(install(&missing.join(" ")));
    }
    let test = ["-c", "exec 3<>/dev/fuse"].map(str::to_owned);
    match run(facts, Path::new("/bin/sh"), test.into()) {
        Ok(ran) if ran.status == Some(0) => {
            Finding::new(name, Level::Ok, "squashfuse and fuse-overlayfs are installed, and /dev/fuse can be opened")
        }
        _ => Finding::new(
            name,
            Level::Note,
            "/dev/fuse cannot be opened by users: images in files, or with kept changes, cannot be used",
        )
        .fix("modprobe fuse && chmod 666 /dev/fuse"),
    }
}

/// Nothing to say where there are no GPUs.
fn gpus(facts: &Facts) -> Option<Finding> {
    let name = "GPUs in images";
    let found = gpu::inventory(&facts.gpus).ok().filter(|found| found.driver && !found.gpus.is_empty())?;
    let folders: Vec<PathBuf> = cdi::FOLDERS.iter().map(PathBuf::from).collect();
    Some(match cdi::of_gpus(&found.gpus, &folders) {
        Ok(_) => Finding::new(name, Level::Ok, "all GPUs are described for containers (CDI)"),
        Err(why) => {
            Finding::new(name, Level::Warning, why).fix("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
        }
    })
}

fn account(facts: &Facts) -> u32 {
    service_uid(facts).filter(|uid| *uid != 0).unwrap_or(NOBODY)
}

/// Runs a program as an ordinary account.
fn run(facts: &Facts, program: &Path, arguments: Vec<String>) -> Result<CommandOutput, String> {
    let is_root = facts.is_root || rustix::process::geteuid().is_root();
    let (program, arguments) = if is_root {
        let uid = account(facts);
        let setpriv = find_program("setpriv").ok_or("setpriv is not installed")?;
        let words = ["--reuid", "--regid"].into_iter().flat_map(|word| [word.to_owned(), uid.to_string()]);
        let words = words.chain(["--clear-groups", "--"].map(str::to_owned));
        (setpriv, words.chain([program.to_string_lossy().into_owned()]).chain(arguments).collect())
    } else {
        (program.to_owned(), arguments)
    };
    command::run(&program, &arguments, &CommandContext::default(), TIMEOUT, MAX_WORDS).map_err(|error| error.sentence())
}

fn install(packages: &str) -> String {
    match System::of_this_machine() {
        System::Fedora => format!("dnf install {packages}"),
        System::Alpine => format!("apk add {packages}"),
        _ => format!("apt-get install {packages}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_kernel_is_named() {
        let ran = CommandOutput {
            status: Some(1),
            complaints: "bwrap: No permissions to create new namespace\nx".to_owned(),
            ..CommandOutput::default()
        };
        let finding = blocked("images", "bubblewrap cannot start programs", &ran);
        assert_eq!(finding.level, Level::Warning);
        assert!(
            finding.what.contains("No permissions to create new namespace") && !finding.fix.is_empty(),
            "{finding:?}"
        );
    }
}
