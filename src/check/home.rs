//! What a person's session would find, looked at as that person: the home and its room, the
//! devices of GPUs, and whether each environment's Python runs and imports what notebooks
//! need, undisturbed by what lies in the home.

use std::{
    fs,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use super::{Finding, Level, load};
use crate::{
    agent,
    db::location::network_file_system,
    helper::{identity::Identity, process},
    model::size::{MIB, human_size},
};

/// Whom, and what besides their home.
#[derive(Debug, Serialize, Deserialize)]
pub struct HomeCheck {
    pub person: Identity,
    /// Whether the child has to become that person, or is it already.
    pub becomes: bool,
    /// Environments: name and Python.
    pub pythons: Vec<(String, PathBuf)>,
    /// How many GPUs the driver shows; `None` where there is no driver.
    pub gpus: Option<usize>,
}

/// Less room than this is soon used up by a notebook's checkpoints.
const LOW_SPACE: u64 = 256 * MIB.unsigned_abs();

/// How long Python may take to import everything, from a file server too.
const IMPORT_TIME: Duration = Duration::from_mins(1);

impl HomeCheck {
    pub fn perform(&self) -> Vec<Finding> {
        if self.becomes
            && let Err(err) = self.person.become_for_good()
        {
            return vec![Finding::new("account", Level::Fault, err.sentence())];
        }
        let mut findings = self.home();
        findings.extend(self.gpus());
        findings.extend(self.pythons.iter().flat_map(|(name, python)| self.python(name, python)));
        findings
    }

    fn home(&self) -> Vec<Finding> {
        let Identity { name, uid, gid, home, .. } = &self.person;
        let shown = home.display();
        if let Err(sentence) = agent::try_home(home) {
            return vec![Finding::new("home", Level::Fault, format!("failed to write a file as `{name}`: \
                                                                    {sentence}")).fix(format!(
                "df -h {shown}; ls -ld {shown}; where it is missing: mkhomedir_helper {name}, or install -d -m 700 -o \
                 {uid} -g {gid} {shown}"
            ))];
        }
        let owner = fs::metadata(home).map_or(*uid, |facts| facts.uid());
        let kind = network_file_system(home).map(|kind| format!(" on {kind}")).unwrap_or_default();
        let (level, room) = room(home);
        let finding = match level {
            _ if owner != *uid => {
                Finding::new("home", Level::Warning, format!("{shown} belongs to uid {owner}, not to `{name}`"))
                    .fix(format!("chown {uid}:{gid} {shown}"))
            }
            Level::Ok => {
                Finding::new("home", Level::Ok, format!("{shown}{kind}: a file was written as `{name}`, {room}"))
            }
            level => Finding::new("home", level, format!("{shown}{kind}: writable, but {room}"))
                .fix(format!("delete files, or raise the quota: du -xsh {shown}; quota -u {name}")),
        };
        vec![finding]
    }

    fn gpus(&self) -> Option<Finding> {
        let name = "GPU devices";
        let devices = load::devices();
        let shown = self.gpus?;
        if devices.len() < shown {
            let what = format!("the driver reports {shown} GPUs, but /dev has {} of their devices", devices.len());
            return Some(Finding::new(name, Level::Warning, what).fix("run nvidia-modprobe -c NUMBER -u for each GPU"));
        }
        let shared = ["/dev/nvidiactl", "/dev/nvidia-uvm"].map(PathBuf::from);
        let all = devices.iter().chain(&shared);
        let closed: Vec<_> =
            all.filter(|device| access(*device, Access::READ_OK | Access::WRITE_OK).is_err()).collect();
        let Some(first) = closed.first() else {
            return Some(Finding::new(name, Level::Ok, format!("`{}` can open all of them", self.person.name)));
        };
        let (first, person) = (first.display(), &self.person.name);
        let what = format!("`{person}` cannot open {first} and {} more", closed.len() - 1);
        Some(Finding::new(name, Level::Fault, what).fix(format!(
            "ls -l {first}; then usermod -aG ITS-GROUP {person}, or NVreg_DeviceFileMode=0666 for the driver"
        )))
    }

    fn python(&self, name: &str, python: &Path) -> Vec<Finding> {
        let subject = "notebooks";
        let shown = python.display();
        let report = match self.import(python) {
            Ok(report) => report,
            Err(why) => {
                let what = format!("environment `{name}`: {shown} does not run as `{}`: {why}", self.person.name);
                let fix = format!("namei -l {shown}, then make each part accessible to all users");
                return vec![Finding::new(subject, Level::Fault, what).fix(fix)];
            }
        };
        let mut findings: Vec<_> = report
            .problems
            .iter()
            .map(|(module, problem)| {
                let what =
                    format!("environment `{name}`: `import {module}` fails as `{}`: {problem}", self.person.name);
                Finding::new(subject, Level::Fault, what).fix(if report.is_disturbed() {
                    format!("files in {} take precedence: move them away", report.user_site)
                } else {
                    format!("{shown} -m pip install {}", module.replace('_', "-"))
                })
            })
            .collect();
        if !report.shadowed.is_empty() {
            let what = format!(
                "environment `{name}`: {} come from {} instead of the environment",
                report.shadowed.join(", "),
                report.user_site
            );
            let fix = format!("{shown} -m pip uninstall {} (as `{}`)", report.shadowed.join(" "), self.person.name);
            findings.push(Finding::new(subject, Level::Warning, what).fix(fix));
        }
        if !report.kernel.is_empty() && Path::new(&report.kernel).starts_with(&self.person.home) {
            let what = format!(
                "environment `{name}`: its Python 3 kernel is replaced by {}, which starts {}",
                report.kernel, report.argv
            );
            findings.push(Finding::new(subject, Level::Warning, what).fix(format!("rm -r {}", report.kernel)));
        }
        if findings.is_empty() {
            let what = format!("environment `{name}`: as `{}` it imports JupyterLab and a kernel", self.person.name);
            findings.push(Finding::new(subject, Level::Ok, what));
        }
        findings
    }

    fn import(&self, python: &Path) -> Result<Report, String> {
        let person = &self.person;
        let mut command = Command::new(python);
        command.args(["-c", IMPORTS]).env_clear().current_dir(&person.home);
        command.envs([("HOME", person.home.as_os_str()), ("PATH", "/usr/local/bin:/usr/bin:/bin".as_ref())]);
        command.envs([("USER", &person.name), ("LOGNAME", &person.name)]).env("LANG", "C.UTF-8");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|err| err.to_string())?;
        let (mut out, errors) = (child.stdout.take(), child.stderr.take());
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = out.as_mut().map(|out| out.take(64 * 1024).read_to_string(&mut text));
            text
        });
        let complaint = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.map(|errors| errors.take(64 * 1024).read_to_string(&mut text));
            text
        });
        let end = Instant::now() + IMPORT_TIME;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < end => process::pause(Duration::from_millis(20)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("no response for {} s", IMPORT_TIME.as_secs()));
                }
            }
        };
        let text = reading.join().unwrap_or_default();
        serde_json::from_str(text.lines().last().unwrap_or_default()).map_err(|_err| {
            let said = complaint.join().unwrap_or_default();
            said.lines().last().map_or_else(|| status.to_string(), str::to_owned)
        })
    }
}

/// How much room a file system has for this user.
fn room(home: &Path) -> (Level, String) {
    let Ok(disk) = rustix::fs::statvfs(home) else { return (Level::Ok, "its free space is unknown".to_owned()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let text = human_size(i64::try_from(free).unwrap_or(i64::MAX));
    if free < LOW_SPACE {
        return (Level::Warning, format!("only {text} are free"));
    }
    // File systems that make inodes as they need them say 0 of 0.
    if disk.f_files > 0 && disk.f_favail < 1000 {
        return (Level::Warning, format!("there is space for only {} more files", disk.f_favail));
    }
    (Level::Ok, format!("{text} are free"))
}

#[derive(Debug, Default, Deserialize)]
struct Report {
    /// Modules that do not import, and why.
    problems: Vec<(String, String)>,
    /// Modules that come from the user's own directory.
    shadowed: Vec<String>,
    user_site: String,
    /// Where the kernel called `python3` is described, and what it starts.
    kernel: String,
    argv: String,
}

impl Report {
    fn is_disturbed(&self) -> bool {
        !self.user_site.is_empty() && Path::new(&self.user_site).exists()
    }
}

const IMPORTS: &str = "
import importlib, json, os, site, sys
user = (site.getusersitepackages() or '') if site.ENABLE_USER_SITE else ''
problems, shadowed = [], []
for name in ('jupyterlab', 'jupyter_server', 'ipykernel', 'tornado', 'traitlets', 'zmq'):
    try:
        module = importlib.import_module(name)
        if user and (getattr(module, '__file__', None) or '').startswith(user + os.sep):
            shadowed.append(name)
    except BaseException as problem:
        problems.append((name, f'{type(problem).__name__}: {problem}'[:300]))
kernel = argv = ''
try:
    from jupyter_client.kernelspec import KernelSpecManager
    spec = KernelSpecManager().get_kernel_spec('python3')
    kernel, argv = spec.resource_dir, spec.argv[0]
except BaseException:
    pass
print(json.dumps({'problems': problems, 'shadowed': shadowed, 'user_site': user, 'kernel': kernel, 'argv': argv}))
";
