//! Checks of Slurm: its commands, its controller, what of the settings it knows, and what it
//! hides from the account that the portal runs as.

use std::{path::Path, time::Duration};

use super::{Facts, Finding, Level, associations};
use crate::{
    helper::command::{self, CommandContext},
    protocol::CommandOutput,
    scheduler::slurm::{Quotas, Settings, try_out},
};

/// How long the controller may take; longer than its own patience.
const TIMEOUT: Duration = Duration::from_secs(15);

const MAX_ANSWER: u64 = 16 << 20;

/// What workloads are handed in, watched and ended with.
const COMMANDS: [&str; 4] = ["sbatch", "squeue", "scancel", "sinfo"];

/// Nothing where workloads run on this machine.
pub async fn slurm(facts: &Facts) -> Vec<Finding> {
    let Some(settings) = facts.slurm.clone() else { return Vec::new() };
    let account = facts.service_user.clone();
    let looked = tokio::task::spawn_blocking({
        let (settings, account) = (settings.clone(), account.clone());
        move || (look(&settings, &account), level(&settings, &account))
    });
    match looked.await {
        Ok((mut findings, level)) => {
            findings.extend(answers(&settings, &findings).await);
            match settings.quotas {
                Quotas::Portal => {}
                Quotas::Mirror => findings.extend(associations::associations(&settings, &account, &level).await),
                Quotas::Read => findings.extend(associations::read(&settings, &account, &level).await),
            }
            findings
        }
        Err(err) => vec![Finding::new("Slurm", Level::Fault, format!("it could not be checked: {err}"))],
    }
}

/// Whether the answers can be read as the portal reads them: another version may write other columns.
async fn answers(settings: &Settings, so_far: &[Finding]) -> Vec<Finding> {
    // What does not answer at all is named already.
    if so_far.iter().any(|finding| finding.level == Level::Fault) {
        return Vec::new();
    }
    let name = "Slurm output";
    let tried = try_out(settings).await;
    let read: Vec<String> =
        tried.iter().filter_map(|(command, rows)| Some(format!("{} rows of {command}", rows.as_ref().ok()?))).collect();
    let faults = tried.iter().filter_map(|(command, rows)| Some((*command, rows.as_ref().err()?)));
    let mut findings: Vec<Finding> = faults
        .map(|(command, why)| {
            let (level, result, fix) = if command == "squeue" {
                (Level::Fault, "nothing is started or ended", "squeue --version; scontrol ping")
            } else {
                (Level::Warning, "what it reported before is used", "run it as the portal's account; scontrol ping")
            };
            Finding::new(name, level, format!("{command}: {why}; until this is fixed, {result}")).fix(fix)
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::new(name, Level::Ok, format!("{} were read", read.join(", "))));
    }
    findings
}

/// What the account is in Slurm's accounting: `Operator`, `Administrator`, `None`, or empty where nobody says.
fn level(settings: &Settings, account: &str) -> String {
    let words = ["--noheader", "--parsable2", "show", "user", account, "format=adminlevel"];
    ask(settings, "sacctmgr", &words).map(|ran| ran.output.trim().to_owned()).unwrap_or_default()
}

fn look(settings: &Settings, account: &str) -> Vec<Finding> {
    let missing: Vec<&str> = COMMANDS.into_iter().filter(|name| !settings.tool(name).is_file()).collect();
    if !missing.is_empty() {
        let what = format!("{} is not in {}", missing.join(", "), settings.bin.display());
        let fix = "apt-get install slurm-client (RHEL: dnf install slurm), or set scheduler.slurm.bin";
        return vec![Finding::new("Slurm commands", Level::Fault, what).fix(fix)];
    }
    let version = ask(settings, "sinfo", &["--version"]).map(|ran| ran.output.trim().to_owned()).unwrap_or_default();
    let mut findings =
        vec![Finding::new("Slurm commands", Level::Ok, format!("{} in {}", version, settings.bin.display()))];
    let nodes = match ask(settings, "sinfo", &["--noheader", "--Node", "--all", "--Format", "nodelist:|,partition:|"]) {
        Ok(ran) => ran.output,
        Err(why) => {
            let what = format!("it does not respond: {why}; sessions wait until it does");
            let fix = "scontrol ping; systemctl status munge slurmctld";
            findings.push(Finding::new("Slurm controller", Level::Fault, what).fix(fix));
            return findings;
        }
    };
    let mut names: Vec<&str> = nodes.lines().filter_map(|line| line.split('|').next()).collect();
    names.sort_unstable();
    names.dedup();
    findings.push(Finding::new("Slurm controller", Level::Ok, format!("it responds, {} nodes", names.len())));
    findings.push(partition(settings, &nodes));
    findings.extend(privacy(settings, account));
    findings.push(shared(settings));
    findings.extend((settings.quotas == Quotas::Portal).then(advisory));
    findings
}

/// What is enforced by the portal binds only what goes through it.
fn advisory() -> Finding {
    let what = "they only apply to sessions and jobs started through the portal; jobs that users submit with sbatch, \
                or start on the nodes over ssh, count once they run but are not prevented";
    Finding::new("Slurm quotas", Level::Note, what).fix(
        "set scheduler.slurm.quotas = \"mirror\" or \"read\" to limit sbatch too (docs/schedulers.md); protect the \
         nodes with pam_slurm_adopt",
    )
}

fn partition(settings: &Settings, nodes: &str) -> Finding {
    let name = "Slurm partition";
    let partitions: Vec<&str> = nodes.lines().filter_map(|line| line.split('|').nth(1)).collect();
    if settings.partition.is_empty() {
        return match partitions.iter().find_map(|partition| partition.strip_suffix('*')) {
            Some(partition) => Finding::new(name, Level::Ok, format!("{partition}, the cluster’s default")),
            None => Finding::new(name, Level::Fault, "the cluster has no default partition, and none is set")
                .fix("set scheduler.slurm.partition"),
        };
    }
    let is_known = |wanted: &&str| partitions.iter().any(|partition| partition.trim_end_matches('*') == *wanted);
    match settings.partition.split(',').find(|wanted| !is_known(wanted)) {
        Some(unknown) => {
            Finding::new(name, Level::Fault, format!("the cluster has no partition `{unknown}`")).fix("sinfo")
        }
        None => Finding::new(name, Level::Ok, settings.partition.clone()),
    }
}

/// Where jobs are hidden from the portal it starts and ends nothing.
fn privacy(settings: &Settings, account: &str) -> Option<Finding> {
    let name = "Slurm privacy";
    let shown = ask(settings, "scontrol", &["show", "config"]).ok()?.output;
    let hidden =
        shown.lines().find_map(|line| line.strip_prefix("PrivateData")?.trim().strip_prefix('='))?.trim().to_owned();
    if !hidden.split(',').any(|what| ["jobs", "all"].contains(&what.trim())) {
        return Some(Finding::new(name, Level::Ok, "the portal’s account can see all jobs"));
    }
    let level = level(settings, account);
    Some(if ["Operator", "Administrator"].contains(&level.as_str()) {
        let what = format!("PrivateData={hidden}, but `{account}` is {level} and can see all jobs");
        Finding::new(name, Level::Ok, what)
    } else {
        let what = format!("PrivateData={hidden} hides jobs from `{account}`, so nothing is started or ended");
        Finding::new(name, Level::Fault, what)
            .fix(format!("sacctmgr add user {account} account=root adminlevel=operator"))
    })
}

fn shared(settings: &Settings) -> Finding {
    let name = "Slurm nodes";
    if settings.run.as_os_str().is_empty() || settings.program.as_os_str().is_empty() {
        let what = "scheduler.slurm.run and scheduler.slurm.program are not both set: the nodes must see this \
                    machine’s directories, as in a cluster of one machine";
        return Finding::new(name, Level::Note, what);
    }
    let (run, program) = (settings.run.display(), settings.program.display());
    if Path::new(&settings.program).is_file() {
        return Finding::new(name, Level::Ok, format!("they run {program} and share {run}"));
    }
    Finding::new(name, Level::Fault, format!("scheduler.slurm.program: {program} does not exist here"))
        .fix("install lyceum where every node sees it")
}

fn ask(settings: &Settings, tool: &str, arguments: &[&str]) -> Result<CommandOutput, String> {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let surroundings = CommandContext { conf: settings.conf() };
    let ran = command::run(&settings.tool(tool), &arguments, &surroundings, TIMEOUT, MAX_ANSWER);
    let ran = ran.map_err(|err| err.sentence())?;
    match ran.status {
        Some(0) => Ok(ran),
        None => Err("it took too long".to_owned()),
        Some(_) => Err(ran.complaints.trim().replace('\n', "; ")),
    }
}
