//! What the tests of schedulers stand on: a house with a helper and the real agent, and in it
//! either scheduler, of which a second object can be made as a restarted portal makes it.

use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use lyceum::{
    helper::{batch::Tools, identity::Identity},
    model::{Capacity, Clock, Resources, SessionId, session::Placement},
    nodes::{self, Nodes},
    scheduler::{
        Exit, Launch, Observation, Scheduler,
        local::{self, Local},
        slurm::{self, Settings, Slurm},
    },
};

use super::cluster::Cluster;
use crate::{
    helper::house::{House, People},
    local::workload,
    wait::eventually,
};

const MIB: i64 = 1 << 20;

/// Whom agents answer: us, who are root.
const TESTS: u32 = 0;

/// A scheduler and what it starts workloads with. The scheduler goes first, and a cluster with
/// all of its jobs before the people whose they are.
pub struct Stage {
    pub scheduler: Arc<dyn Scheduler>,
    cluster: Option<Cluster>,
    pub people: Arc<People>,
    pub house: House,
    settings: Settings,
}

impl Stage {
    /// This machine, as `local` has it.
    pub async fn local() -> Option<Self> {
        if !crate::needs::root() {
            return None;
        }
        Some(Self::build(house(None), None, Settings::default()).await)
    }

    /// A cluster of its own.
    pub async fn slurm() -> Option<Self> {
        Some(Self::on(Cluster::start()?).await)
    }

    pub async fn on(cluster: Cluster) -> Self {
        let (tools, settings) = (cluster.tools(), Settings::default());
        Self::with(cluster, tools, settings).await
    }

    pub async fn with(cluster: Cluster, tools: Tools, settings: Settings) -> Self {
        // As often as can be set: what is waited for is mostly the next look.
        let settings = Settings { conf: cluster.conf(), interval: 2, ..settings };
        Self::build(house(Some(tools)), Some(cluster), settings).await
    }

    async fn build(house: House, cluster: Option<Cluster>, settings: Settings) -> Self {
        let people = house.people();
        let mut stage = Self { scheduler: Arc::new(local_scheduler(&house)), cluster, people, house, settings };
        stage.scheduler = stage.again().await;
        stage
    }

    /// Another object for the same workloads: what a restarted portal has.
    pub async fn again(&self) -> Arc<dyn Scheduler> {
        match &self.cluster {
            None => Arc::new(local_scheduler(&self.house)),
            Some(_) => Arc::new(self.slurm_again().await),
        }
    }

    pub async fn slurm_again(&self) -> Slurm {
        let config = slurm::Config {
            settings: self.settings.clone(),
            launcher: Arc::clone(&self.house.launcher),
            local: local_scheduler(&self.house),
            nodes: Nodes::new(nodes::Config::default(), b"the key of this test's portal"),
            key: b"the key of this test's portal".to_vec(),
            run: self.house.config.run.clone(),
            program: self.house.base.path().join("lyceum"),
            service_uid: TESTS,
            gpu_interval: 1,
            clock: Clock::System,
        };
        Slurm::open(config, Capacity { gpus: 0, cpus: 1, memory_bytes: 1 }).await
    }

    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a stage with a cluster")
    }

    /// A workload of the first person's that runs a shell script.
    pub fn workload(&self, script: &str) -> Launch {
        Self::workload_of(&self.people.a, script)
    }

    pub fn workload_of(person: &Identity, script: &str) -> Launch {
        let launch = workload(SessionId::new(), person, &["/bin/sh", "-c", script]);
        Launch { resources: Resources { memory_bytes: 64 * MIB, ..Resources::default() }, gpus: Vec::new(), ..launch }
    }

    /// Launches a workload and waits until it is alive.
    pub async fn run(&self, script: &str) -> (SessionId, Placement) {
        let launch = self.workload(script);
        let session = launch.session;
        let placement = self.scheduler.launch(launch).await.unwrap();
        (session, self.alive(session, &placement).await)
    }

    /// Waits until a workload is alive; its placement is complete then.
    pub async fn alive(&self, session: SessionId, placement: &Placement) -> Placement {
        eventually("the workload is alive", async || match self.scheduler.observe(session, placement).await {
            Observation::Alive => Some(()),
            Observation::Ended(exit) => panic!("it ended: {exit:?}"),
            _ => None,
        })
        .await;
        self.scheduler.find(session).await.unwrap().expect("what is alive is found")
    }

    /// Waits until a workload has ended; a moment in which nobody answers is no end.
    pub async fn ended(&self, session: SessionId, placement: &Placement) -> Exit {
        eventually("the workload ends", async || match self.scheduler.observe(session, placement).await {
            Observation::Ended(exit) => Some(exit),
            _ => None,
        })
        .await
    }

    /// Why a workload waits, once the reason has this in it.
    pub async fn waits(&self, session: SessionId, placement: &Placement, part: &str) -> String {
        eventually(&format!("it waits: {part}"), async || match self.scheduler.observe(session, placement).await {
            Observation::Waiting(why) if why.contains(part) => Some(why),
            Observation::Ended(exit) => panic!("it ended: {exit:?}"),
            _ => None,
        })
        .await
    }

    pub async fn log(&self, session: SessionId, placement: &Placement) -> String {
        let log = self.scheduler.log_tail(session, placement, 4096).await.unwrap();
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// Other users may not be able to enter the directory that the program was built in.
fn house(batch: Option<Tools>) -> House {
    House::with(|config| {
        let directory = config.run.parent().unwrap();
        let binary = directory.join("lyceum");
        fs::copy(env!("CARGO_BIN_EXE_lyceum"), &binary).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        config.agent_command = vec![binary.into(), "agent".into()];
        config.batch = batch;
    })
}

fn local_scheduler(house: &House) -> Local {
    let config =
        local::Config { grace_seconds: 5, clock: Clock::System, service_uid: TESTS, ..crate::local::config(house) };
    Local::new(config).unwrap()
}
