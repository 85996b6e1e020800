//! `lyceum check`: looks at everything that a portal needs of its machine and says what is
//! wrong and which command mends it. Each check is a function from plain [`Facts`] to a
//! [`Finding`]; `disk`, `machine` and `network` hold them, `reach` asks a running portal, and
//! `person` rehearses a start as somebody. What a check tries (a listener, a control group, a
//! workload) it undoes at once.

mod associations;
mod certificate;
mod containers;
mod directory;
mod disk;
mod errand;
mod front_door;
mod home;
mod load;
mod machine;
mod network;
mod person;
mod slurm;
mod trial;

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
};

use serde_json::json;

use crate::{
    auth::ldap,
    config::Server,
    environments, gpu,
    model::Clock,
    scheduler::slurm::Settings,
    start::{ProcessEnvironment, lock::Running},
};

pub use crate::model::finding::{Finding, Level};
pub use errand::run as rehearse;

/// What the checks look at: the settings, as plain values.
#[derive(Clone, Debug)]
pub struct Facts {
    pub data: PathBuf,
    /// `private/` in the data directory.
    pub private: PathBuf,
    /// The parent of workloads' run directories.
    pub run: PathBuf,
    /// The file of an embedded database; `None` for a database on a server.
    pub database: Option<PathBuf>,
    pub listen: SocketAddr,
    /// The portal that runs on this data directory, if one does.
    pub running: Option<Running>,
    pub is_root: bool,
    /// Our program as a rule of sudo's names it, for a portal that root does not start.
    pub sudo: Option<PathBuf>,
    /// Whom the portal runs as when root starts it.
    pub service_user: String,
    /// Where passwords are kept, where that is a directory.
    pub directory: Option<ldap::Settings>,
    /// The uids of accounts that are made: first and last.
    pub account_uids: (u32, u32),
    pub server: Server,
    pub surroundings: ProcessEnvironment,
    /// From a launch to the app's first answer (seconds).
    pub start_timeout: u64,
    pub environments: environments::Config,
    pub place: environments::EnvironmentPaths,
    pub gpus: gpu::Config,
    /// Where it starts the workloads.
    pub slurm: Option<Settings>,
    pub clock: Clock,
}

impl Facts {
    /// Returns where environments lie, with what the driver of this machine supports. In front of Slurm the GPUs are on
    /// other machines.
    fn place_on_this_machine(&self) -> environments::EnvironmentPaths {
        let found = self.slurm.is_none().then(|| gpu::inventory(&self.gpus).ok()).flatten();
        let cuda = found.filter(|found| !found.gpus.is_empty()).and_then(|found| found.cuda);
        environments::EnvironmentPaths { cuda, ..self.place.clone() }
    }

    /// What a running portal was told to do otherwise (`--listen`) goes before the settings.
    #[must_use]
    pub fn as_it_runs(mut self) -> Self {
        if let Some(Running { listen, apps }) = self.running {
            self.listen = listen.unwrap_or(self.listen);
            self.server.listen = self.listen;
            if let Some(apps) = apps {
                self.server.apps_listen = apps.to_string();
            }
        }
        self
    }
}

/// Makes every check, in the order in which a portal needs things.
///
/// `person` is a Unix account to rehearse a start as.
pub async fn run(facts: &Facts, person: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![
        disk::data_directory(facts),
        disk::private_directory(facts),
        disk::free_space(facts),
        disk::run_directory(facts),
        disk::database(facts),
    ];
    findings.extend(disk::lingering(facts));
    findings.extend(machine::python(facts).await);
    findings.push(network::package_index(facts).await);
    findings.extend(machine::environments(facts).await);
    findings.push(machine::r());
    // On a cluster neither this machine's GPUs nor its control groups are anybody's.
    if facts.slurm.is_none() {
        findings.extend([machine::gpus(facts), machine::cgroups(facts)]);
        findings.extend(machine::gpu_files(facts));
        findings.extend(containers::containers(facts));
    }
    findings.extend([
        machine::accounts(facts),
        machine::programs(facts),
        machine::memory(),
        machine::clock(facts),
        network::port(facts).await,
        network::browser(facts),
    ]);
    findings.extend(slurm::slurm(facts).await);
    findings.extend(certificate::certificate(facts).await);
    findings.extend(directory::directory(facts).await);
    findings.extend(front_door::reach(facts).await);
    if let Some(person) = person {
        findings.extend(person::rehearse(facts, person).await);
    }
    findings
}

/// The worst of all; [`Level::Fault`] makes the command end with status 1.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// Writes findings as aligned text.
pub fn render(findings: &[Finding], mut out: impl Write) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
    for Finding { name, level, what, fix } in findings {
        let (sign, word) = level.sign();
        writeln!(out, "{sign} {word:<7}  {name:<width$}  {what}")?;
        if !fix.is_empty() {
            writeln!(out, "{:indent$}to fix it: {fix}", "", indent = width + 13)?;
        }
    }
    writeln!(out, "\n{} faults, {} warnings", count(findings, Level::Fault), count(findings, Level::Warning))
}

/// Writes findings as one JSON document.
pub fn render_json(findings: &[Finding], mut out: impl Write) -> io::Result<()> {
    let (faults, warnings) = (count(findings, Level::Fault), count(findings, Level::Warning));
    let document = json!({ "findings": findings, "faults": faults, "warnings": warnings });
    writeln!(out, "{document:#}")
}

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders() {
        let findings = [
            Finding::new("data directory", Level::Ok, "/data"),
            Finding::new("port", Level::Fault, "127.0.0.1:8000 is taken").fix("ss -ltnp"),
        ];
        let mut out = Vec::new();
        render(&findings, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "✓ ok       data directory  /data");
        assert_eq!(lines[1], "✗ fault    port            127.0.0.1:8000 is taken");
        assert_eq!(lines[2], format!("{}to fix it: ss -ltnp", " ".repeat(27)));
        assert_eq!(lines.last(), Some(&"1 faults, 0 warnings"));
        assert_eq!(worst(&findings), Level::Fault);
        let mut out = Vec::new();
        render_json(&findings, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&document["faults"], &document["findings"][1]["level"]), (&json!(1), &json!("fault")));
        let back: Vec<Finding> = serde_json::from_value(document["findings"].clone()).unwrap();
        assert_eq!(back, findings);
    }
}
