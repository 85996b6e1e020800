//! The rehearsal: a throw-away portal's scheduler with a root helper of its own starts two
//! workloads as the person, the way sessions are started. One goes beyond its limits, to see
//! which of them bind; the other is JupyterLab, or a terminal where no environment is ready,
//! and has to answer, end, and leave nothing. Who sent us removes what an accident leaves.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::{
    Finding, Level,
    load::{self, Load},
};
use crate::{
    apps::{self, Catalogue, Context, Python},
    environments,
    helper::client::Launcher,
    model::{Clock, EndReason, GpuInventory, Resources, SessionId, job::Shape, session::Placement, size::GIB},
    protocol::{
        AgentLaunch, AppLaunch, HelperAnswer, HelperRequest, HomeSetup, LaunchRequest, Limits, PROTOCOL, Phase,
        Program, ProgramStart, files,
    },
    scheduler::{
        Account, Accounts, ClusterInfo, Exit, Launch, LifeCycle, Observation, Person, PortalUser, Transport,
        local::{self, Local},
    },
    start::{self, ProcessEnvironment, Started},
};

/// What is rehearsed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Trial {
    /// A data directory of its own, beside the portal's.
    pub data: PathBuf,
    pub runtime_directory: Option<PathBuf>,
    /// Whom the portal runs as; an account that is there.
    pub service_user: String,
    pub account_uids: (u32, u32),
    pub unix_name: String,
    /// The Python of an environment that is ready.
    pub python: Option<PathBuf>,
    /// From the launch to the first answer (seconds).
    pub start_timeout: u64,
}

const LIMITS: &str = "limits test";
const START: &str = "start test";

/// From SIGTERM to SIGKILL.
const GRACE_SECONDS: u64 = 10;

/// How long a workload that ends may take.
const ENDING: Duration = Duration::from_mins(1);

impl Trial {
    pub fn surroundings(&self) -> ProcessEnvironment {
        ProcessEnvironment {
            uid: rustix::process::geteuid().as_raw(),
            data: Some(self.data.clone()),
            xdg_runtime_dir: self.runtime_directory.clone(),
            ..ProcessEnvironment::default()
        }
    }

    pub fn perform(&self) -> Vec<Finding> {
        let fault = |what: String| vec![Finding::new(START, Level::Fault, what).fix("docs/install.md, “As root”")];
        let settings = start::Settings {
            service_user: self.service_user.clone(),
            account_uids: self.account_uids.0..=self.account_uids.1,
            ..start::Settings::default()
        };
        let paths = start::layout(&self.surroundings());
        let started = match paths.and_then(|paths| start::prepare(&paths, &settings)) {
            Ok(started) => started,
            Err(err) => return fault(err.sentence()),
        };
        // From here on we are whom the portal would be.
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime.block_on(self.rehearse(started)),
            Err(err) => fault(format!("threads could not be started: {err}")),
        }
    }

    async fn rehearse(&self, started: Started) -> Vec<Finding> {
        let Started { paths, launcher, hierarchy, service_uid, binary, helper } = started;
        let launcher = Arc::new(launcher);
        let stage = Local::new(local::Config {
            launcher: Arc::clone(&launcher),
            capacity: local::capacity(None, None, 0),
            inventory: GpuInventory::default(),
            nvml: None,
            gpu_interval: local::GPU_INTERVAL,
            run: paths.run.clone(),
            placements: paths.placements.clone(),
            hierarchy: hierarchy.clone(),
            service_uid,
            grace_seconds: GRACE_SECONDS,
            clock: Clock::System,
        });
        let person = match &stage {
            Ok(local) => {
                let user = PortalUser { name: self.unix_name.clone(), account: Account::Named(self.unix_name.clone()) };
                local.person(&user).await.map_err(|err| err.sentence())
            }
            Err(err) => Err(err.sentence()),
        };
        let (Ok(local), Ok(person)) = (&stage, &person) else {
            let why = person.err().unwrap_or_default();
            return vec![Finding::new(START, Level::Fault, why)];
        };
        let trial = LaunchRequest {
            session: SessionId::new(),
            unix_name: person.unix_name.clone(),
            limits: limits(),
            devices: local.stock().inventory().access(&[]),
            agent: serde_json::Value::Null,
        };
        let agent = AgentLaunch {
            protocol: PROTOCOL,
            session: trial.session,
            run_directory: local.run_directory(trial.session),
            portal_uid: service_uid,
            app: AppLaunch {
                program: Program::Exec {
                    argv: [&*binary.to_string_lossy(), "rehearse", "strain"].map(str::to_owned).into(),
                },
                environment: BTreeMap::new(),
                working_directory: "/".into(),
                ready: None,
                beside: None,
                start: ProgramStart::default(),
                container: None,
                kernels: Vec::new(),
            },
            limits: limits(),
            sampled: hierarchy.is_sampled(),
            cgroups: hierarchy.groups(&trial.session.short()),
            grace_seconds: GRACE_SECONDS,
            // Not the person's: what is wrong with that one has been told already.
            home: HomeSetup { home: local.run_directory(trial.session), ..HomeSetup::default() },
            node: None,
            inherits: Vec::new(),
            surroundings: None,
            gpus: None,
        };
        let groups = agent.cgroups.clone();
        let trial = LaunchRequest { agent: serde_json::to_value(agent).expect("plain data"), ..trial };
        let findings = vec![
            try_limits(local, &launcher, trial, &groups).await,
            self.try_start(local, person, &paths.shared).await,
        ];
        // The helper ends when its socket does.
        drop((stage, launcher));
        if let Some(mut helper) = helper {
            let _ = tokio::task::spawn_blocking(move || helper.wait()).await;
        }
        findings
    }

    async fn try_start(&self, local: &Local, person: &Person, shared: &std::path::Path) -> Finding {
        let session = SessionId::new();
        let launch = match self.plan(session, local, person, shared) {
            Ok(launch) => launch,
            Err(why) => return Finding::new(START, Level::Fault, why),
        };
        let title = if self.python.is_some() { "JupyterLab" } else { "a terminal" };
        let fault = |why: String| {
            Finding::new(START, Level::Fault, format!("{title} as `{}`: {why}", person.unix_name))
                .fix("fix the problems above, then run this again")
        };
        let begun = Instant::now();
        let placement = match local.launch(launch).await {
            Ok(placement) => placement,
            Err(err) => return fault(err.sentence()),
        };
        let ready = self.until_ready(local, session, &placement).await;
        let answered = begun.elapsed();
        let begun = Instant::now();
        let asked = local.terminate(session, &placement).await;
        let exit = ended(local, session, &placement).await;
        let ending = begun.elapsed();
        let cleaned = clean_up(local, session, &placement).await;
        if let Err(why) = ready {
            let told = exit.ok().map(|exit| exit.detail).filter(|detail| !detail.is_empty());
            return fault(told.unwrap_or(why));
        }
        let outcome = asked.map_err(|err| err.sentence()).and(exit.map(drop)).and(cleaned);
        if let Err(why) = outcome {
            return fault(format!("it responded, but {why}"));
        }
        let what = format!(
            "{title} as `{}` responded after {:.1} s, ended within {:.1} s and left nothing behind; socket path of {} \
             bytes (at most {})",
            person.unix_name,
            answered.as_secs_f64(),
            ending.as_secs_f64(),
            placement.run_directory.len(),
            local::MAX_RUN_DIRECTORY
        );
        Finding::new(START, Level::Ok, what)
    }

    /// As sessions are planned, without templates and links: nothing new appears in the home.
    fn plan(
        &self,
        session: SessionId,
        local: &Local,
        person: &Person,
        shared: &std::path::Path,
    ) -> Result<Launch, String> {
        let installed = environments::install(shared).map_err(|err| format!("failed to install wrappers: {err}"))?;
        let catalogue = Catalogue::default();
        let app = if self.python.is_some() { "jupyter" } else { "terminal" };
        let app = catalogue.find(app).expect("it is built in");
        let python = self.python.clone().map(|python| {
            let bin = python.parent().unwrap_or(&python).to_owned();
            Python { python, bin, own: None }
        });
        let resources = Resources { memory_bytes: 2 * GIB, ..Resources::default() };
        let context = Context {
            session,
            base_url: &apps::base_url(session),
            person,
            run_directory: &local.run_directory(session),
            python: python.as_ref(),
            working_directory: &person.home,
            log_directory: None,
            log_directories: &BTreeMap::new(),
            tensorboard_wrapper: &installed.tensorboard,
            trainer: &installed.trainer,
            resources: &resources,
            gpus: &[],
            gpu_driver: false,
            token: &SessionId::new().to_string(),
            port: None,
            batch: None,
            container: None,
            kernels: &[],
            extra: &BTreeMap::new(),
        };
        let mut app = apps::launch(app, &context).map_err(|err| err.to_string())?;
        if let Some(ready) = &mut app.ready {
            ready.timeout_seconds = self.start_timeout;
        }
        let home = HomeSetup { home: person.home.clone(), ..HomeSetup::default() };
        let (name, group, gpus, shape) = ("rehearsal".to_owned(), None, Vec::new(), Shape::default());
        Ok(Launch { session, name, group, seconds: 60, person: person.clone(), resources, shape, gpus, app, home })
    }

    /// Listens to the agent until it says that the app answers.
    async fn until_ready(&self, local: &Local, session: SessionId, placement: &Placement) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(self.start_timeout) + ENDING;
        while Instant::now() < end {
            if let Ok(mut events) = local.events(session, placement).await {
                while let Some(status) = events.next().await {
                    if status.phase == Phase::Ready {
                        return Ok(());
                    }
                }
            }
            if matches!(local.observe(session, placement).await, Observation::Ended(_)) {
                return Err("it ended before it responded".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(format!("it did not respond within {} s", self.start_timeout))
    }
}

fn limits() -> Limits {
    Limits { cpus: load::CORES, memory_bytes: load::MEMORY, processes: load::PROCESSES }
}

/// Which limits bind a workload that goes beyond them.
async fn try_limits(local: &Local, launcher: &Arc<Launcher>, trial: LaunchRequest, groups: &[PathBuf]) -> Finding {
    let session = trial.session;
    let fault = |why: String| Finding::new(LIMITS, Level::Fault, format!("a test workload could not be run: {why}"));
    let asking = Arc::clone(launcher);
    let asked = tokio::task::spawn_blocking(move || asking.ask(HelperRequest::Launch(trial))).await;
    let placement = match asked {
        Ok(Ok(HelperAnswer::Placed { placement })) => placement,
        Ok(Ok(other)) => return fault(format!("{other:?}")),
        Ok(Err(err)) => return fault(err.sentence()),
        Err(err) => return fault(err.to_string()),
    };
    let exit = ended(local, session, &placement).await;
    let log = local.log_tail(session, &placement, 4096).await.unwrap_or_default();
    let throttled =
        groups.iter().any(|group| was_throttled(&fs::read_to_string(group.join("cpu.stat")).unwrap_or_default()));
    let cleaned = clean_up(local, session, &placement).await;
    let told = String::from_utf8_lossy(&log).lines().rev().find_map(|line| serde_json::from_str::<Load>(line).ok());
    match (exit, cleaned) {
        (Ok(exit), Ok(())) => judge(&placement.limits, &exit, told.as_ref(), throttled),
        (Err(why), _) | (_, Err(why)) => fault(why),
    }
}

/// What a trial says about the limits of sessions.
fn judge(kind: &str, exit: &Exit, strain: Option<&Load>, throttled: bool) -> Finding {
    let sampled = kind == "sampled";
    let memory = exit.reason == Some(EndReason::OutOfMemory);
    let processes = strain.is_none_or(|strain| strain.threads < load::PROCESSES) && (strain.is_some() || memory);
    let opened: Vec<String> =
        strain.iter().flat_map(|strain| &strain.opened).map(|device| device.display().to_string()).collect();
    if !memory {
        let what = format!("{kind}: a workload exceeded its memory limit and was not ended ({})", exit.detail);
        return Finding::new(LIMITS, Level::Fault, what)
            .fix("mount -t cgroup2 none /sys/fs/cgroup, then restart the portal");
    }
    if sampled {
        let what = "no control groups: the agent ended a workload that exceeded its memory limit; core limits are not \
                    enforced";
        return Finding::new(LIMITS, Level::Warning, what)
            .fix("run the portal as root on a machine with control groups");
    }
    if !opened.is_empty() {
        let what =
            format!("{kind}: memory limits are enforced, but a session without GPUs can open {}", opened.join(", "));
        return Finding::new(LIMITS, Level::Warning, what)
            .fix("use a kernel with cgroup device control; until then, users have to respect CUDA_VISIBLE_DEVICES");
    }
    if !processes {
        let what = format!("{kind}: memory limits are enforced, but limits on the number of processes are not");
        return Finding::new(LIMITS, Level::Warning, what)
            .fix("use a kernel with the pids controller (CONFIG_CGROUP_PIDS)");
    }
    let cores = if throttled { "cores throttled" } else { "core limit not tested, as the machine was busy" };
    let what = format!("{kind}: memory limited to {} MiB, {cores}, processes limited", load::MEMORY >> 20);
    Finding::new(LIMITS, Level::Ok, what)
}

fn was_throttled(cpu_stat: &str) -> bool {
    cpu_stat.lines().any(|line| line.strip_prefix("nr_throttled ").is_some_and(|count| count.trim() != "0"))
}

/// Waits for the end of a workload.
async fn ended(local: &Local, session: SessionId, placement: &Placement) -> Result<Exit, String> {
    let end = Instant::now() + ENDING;
    loop {
        match local.observe(session, placement).await {
            Observation::Ended(exit) => return Ok(exit),
            Observation::Unknown(why) => return Err(format!("it is unknown whether it ended: {why}")),
            Observation::Alive | Observation::Waiting(_) if end < Instant::now() => {
                return Err(format!("it did not end within {} s", ENDING.as_secs()));
            }
            Observation::Alive | Observation::Waiting(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Removes everything of a workload, as at the end of every session.
async fn clean_up(local: &Local, session: SessionId, placement: &Placement) -> Result<(), String> {
    local.kill(session, Some(placement)).await.map_err(|err| err.sentence())?;
    local.clean(session).await.map_err(|err| err.sentence())?;
    let left =
        [PathBuf::from(&placement.run_directory), PathBuf::from(&placement.run_directory).join(files::APP_SOCKET)];
    match left.iter().find(|path| path.exists()) {
        Some(left) => Err(format!("{} was left behind", left.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    #[test]
    fn which_limits_bind() {
        let exit =
            |reason| Exit { reason, exit_code: None, signal: None, ended_at: Timestamp(0), detail: String::new() };
        let strain = |threads, opened: &[&str]| Load { threads, opened: opened.iter().map(PathBuf::from).collect() };
        let out = Some(EndReason::OutOfMemory);
        for (kind, reason, told, level, word) in [
            ("cgroup-v2", out, Some(strain(60, &[])), Level::Ok, "processes limited"),
            ("cgroup-v1", out, Some(strain(128, &[])), Level::Warning, "processes are not"),
            ("cgroup-v2", out, Some(strain(60, &["/dev/nvidia0"])), Level::Warning, "/dev/nvidia0"),
            ("cgroup-v2", Some(EndReason::Exited), Some(strain(60, &[])), Level::Fault, "not ended"),
            ("sampled", out, None, Level::Warning, "no control groups"),
        ] {
            let finding = judge(kind, &exit(reason), told.as_ref(), true);
            assert!(finding.level == level && finding.what.contains(word), "{kind}: {finding:?}");
            assert_eq!(finding.fix.is_empty(), level == Level::Ok, "{finding:?}");
        }
        assert!(was_throttled("nr_periods 9\nnr_throttled 3\nthrottled_time 5"));
        assert!(!was_throttled("nr_periods 9\nnr_throttled 0") && !was_throttled(""));
    }
}
