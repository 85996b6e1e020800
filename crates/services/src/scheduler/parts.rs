//! What a scheduler does, in six parts, so that a service takes only the part that it needs: `&dyn Metering` for one
//! that measures, `Arc<dyn Accounts>` for one that reads files. The comments are the contract of each method;
//! this machine (`local`) and Slurm (`slurm`) implement all six.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use lyceum_model::{
    Capacity, Gpu, GpuWatch, Inventory, Machines, Queue, QueueId, Resources, SessionId, SlurmChoices, Timestamp,
    health::NoScheduler,
    job::Shape,
    queue::ShellJob,
    quota::Reason,
    session::{Placement, WorkloadStarts},
};
use lyceum_wire::protocol::{AgentStatus, Errand, ErrandOutcome, Sample, log::Log};

use super::{
    Error, GpuUse, Launch, ListedWorkloads, NodeReading, Observation, Person, PortalUser, ReportedTime, Result,
};

/// What there is to run on, and what fits. Answers come from memory, except for the machines.
#[async_trait]
pub trait ClusterInfo: Send + Sync {
    /// The cluster's name: `local` here.
    fn cluster(&self) -> &str;

    /// What there is in all; a cluster's may change.
    fn stock(&self) -> &Inventory;

    /// The most of each that one workload can have: where there are several machines, less than
    /// there is in all.
    fn largest(&self) -> Capacity {
        self.stock().capacity()
    }

    /// The same for a job of this shape, whose own options may name other machines.
    fn largest_for(&self, _shape: &Shape) -> Capacity {
        self.largest()
    }

    /// How long one that asks for this may run at most (seconds), where the scheduler itself limits it.
    fn longest_seconds(&self, _resources: &Resources) -> Option<i64> {
        None
    }

    /// The same for a job of this shape, whose own options may name other machines; the resources are those of
    /// each node.
    fn longest_for(&self, resources: &Resources, _shape: &Shape) -> Option<i64> {
        self.longest_seconds(resources)
    }

    /// Returns why a reservation keeps this from starting now, and when it could; `None` where none is in the way. The
    /// resources are those of each node.
    fn reserved(&self, _resources: &Resources, _seconds: i64, _shape: &Shape) -> Option<(Reason, Timestamp)> {
        None
    }

    /// Why this could never run here, as a sentence with the numbers; `None` where it can, or
    /// where admission knows as well. The resources are those of each node.
    fn objection(&self, _resources: &Resources, _seconds: i64, _shape: &Shape) -> Option<String> {
        None
    }

    /// What a user may choose on the cluster, by their Unix account; `None` where there is nothing of the kind.
    async fn choices(&self, _unix_name: &str) -> Option<SlurmChoices> {
        None
    }

    /// The commands of the cluster whose last answer could not be read, and why. What they said before stands.
    fn faults(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The machines and their partitions, where there are several; `None` for one machine,
    /// which [`Metering::node`] describes.
    async fn machines(&self) -> Option<Machines> {
        None
    }

    /// Keeps new work from a node, for the reason, or lets it accept work again. What runs there goes on.
    async fn set_drained(&self, _node: &str, _reason: Option<&str>) -> Result<()> {
        Err(Error::Refused("There is only one machine. Schedule a maintenance to keep new work from it.".to_owned()))
    }
}

/// Which Unix accounts workloads run as, and small work on files as these accounts.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Who a user's workloads run as: name service facts, an account made on first need.
    async fn person(&self, user: &PortalUser) -> Result<Person>;

    /// Does something small with a person's files, as that person.
    async fn errand(&self, person: &Person, errand: Errand) -> Result<ErrandOutcome>;

    /// What an account is called; `None` where no name is known.
    async fn unix_name(&self, uid: u32) -> Option<String>;
}

/// Starts, watches and ends workloads. Every call is safe to repeat.
#[async_trait]
pub trait LifeCycle: Send + Sync {
    /// Why nothing can be started or ended now, as far as the last request showed.
    fn trouble(&self) -> Option<NoScheduler>;

    /// Where this session's sockets and log will be: known before the launch.
    fn run_directory(&self, session: SessionId) -> std::path::PathBuf;

    /// Starts the workload, or finds it already started: never starts it twice.
    async fn launch(&self, launch: Launch) -> Result<Placement>;

    /// Returns, once, what the batch system said when it accepted a workload: a site's plug-in may have changed it.
    fn words(&self, _session: SessionId) -> Option<String> {
        None
    }

    /// The placement of a session that was launched, also when the portal forgot it.
    async fn find(&self, session: SessionId) -> Result<Option<Placement>>;

    /// Every session this portal's scheduler holds anything of: processes or leftovers.
    async fn list(&self) -> Result<ListedWorkloads>;

    async fn observe(&self, session: SessionId, placement: &Placement) -> Observation;

    /// Returns what a workload holds or held, and since when, in each of its starts; `None` if that is what was
    /// requested, or is no longer known.
    async fn starts(&self, _session: SessionId, _placement: &Placement) -> Option<WorkloadStarts> {
        None
    }

    /// Returns what the scheduler counts of the workload's time; `None` if its limit counts from the first answer, or
    /// the scheduler cannot be reached.
    async fn counted_time(&self, _session: SessionId, _placement: &Placement) -> Option<ReportedTime> {
        None
    }

    /// Comes back when the workload's agent has ended, or when it has got a node that its placement does not
    /// name yet; at once where that is so already. Only a hint to [`LifeCycle::observe`] soon: it may also
    /// come back early.
    async fn wait_end(&self, session: SessionId, placement: &Placement);

    /// How long a workload that was asked to end may take (seconds).
    fn grace_seconds(&self) -> i64;

    /// Why the time of a workload that runs cannot be moved, as a sentence for its owner; `None`
    /// where it can.
    fn time_is_fixed(&self) -> Option<&'static str> {
        None
    }

    /// Sees to it that the scheduler leaves a workload alone until then, and a while longer, so
    /// that the portal ends it; what it is granted never becomes less.
    async fn grant_until(&self, _session: SessionId, _placement: &Placement, _until: Timestamp) -> Result<()> {
        Ok(())
    }

    /// Asks the workload to end within its grace time.
    async fn terminate(&self, session: SessionId, placement: &Placement) -> Result<()>;

    /// Ends everything that belongs to the session, now.
    async fn kill(&self, session: SessionId, placement: Option<&Placement>) -> Result<()>;

    /// Removes what an ended session left on the node.
    async fn clean(&self, session: SessionId) -> Result<()>;
}

/// The queue of a batch system, including jobs that the portal did not submit. Without one there is nothing to list.
#[async_trait]
pub trait BatchQueue: Send + Sync {
    /// Whether it has a queue of its own: a workload that was launched may wait there for long,
    /// and has not begun before it is alive.
    fn has_queue(&self) -> bool {
        false
    }

    /// What waits and runs in that queue, also what the portal knows nothing of; `None` where
    /// there is none.
    async fn queue(&self) -> Option<Queue> {
        None
    }

    /// Returns what the batch system's jobs hold, and what recently ended jobs held, from the portal or from a shell;
    /// `None` without a batch system, or if it does not answer.
    async fn shell_jobs(&self) -> Option<Vec<ShellJob>> {
        None
    }

    /// Returns the jobs that have ended since a moment, from the accounting; `None` without accounting.
    async fn shell_jobs_since(&self, _since: Timestamp) -> Option<Vec<ShellJob>> {
        None
    }

    /// Cancels a job of the queue as the user; the batch system decides whether that user may.
    async fn cancel_queued(&self, _person: &Person, _id: QueueId) -> Result<()> {
        Err(Error::Refused("this portal does not use a batch system".to_owned()))
    }
}

/// Reads what a workload says: its agent, its app and its log. All three belong to the user and may lie.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Streams what the agent reports, from its current state on; ends with the connection. The
    /// agent belongs to the user and may lie.
    async fn events(&self, session: SessionId, placement: &Placement) -> Result<BoxStream<'static, AgentStatus>>;

    /// One GET on a socket of the workload's run directory; the body of a 2xx answer, `None`
    /// where the app has nothing at that path (404), or refuses us (401, 403, a redirection).
    async fn ask(
        &self,
        session: SessionId,
        placement: &Placement,
        socket: &str,
        path: &str,
        authorization: Option<&str>,
    ) -> Result<Option<Vec<u8>>>;

    /// Streams what the workload's agent reports of curves below a directory, from `places` on, as frames cut
    /// anywhere; ends with the connection. The agent belongs to the user and may lie.
    async fn curves(
        &self,
        session: SessionId,
        placement: &Placement,
        directory: &str,
        places: Bytes,
    ) -> Result<BoxStream<'static, Bytes>>;

    /// The workload's log, opened for reading; `None` where there is none yet, or none any more. The file is
    /// the user's.
    async fn log(&self, session: SessionId, placement: &Placement) -> Result<Option<Log>>;

    /// The last `bytes` of the workload's log.
    async fn log_tail(&self, session: SessionId, placement: &Placement, bytes: u64) -> Result<Vec<u8>> {
        let Some(log) = self.log(session, placement).await? else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || log.tail(bytes)).await;
        read.map_err(|error| Error::Unavailable(format!("a task failed: {error}")))?
            .map_err(|source| Error::Io { doing: "failed to read the log".to_owned(), source })
    }
}

/// Measures what workloads and machines use, from sources that users cannot forge.
#[async_trait]
pub trait Metering: Send + Sync {
    /// What the workload uses, from a source its user cannot forge; `None` where there is none.
    async fn sample(&self, session: SessionId, placement: &Placement) -> Option<Sample>;

    /// Returns the pids of a workload's processes; `None` if they are not known.
    async fn processes(&self, session: SessionId, placement: &Placement) -> Option<BTreeSet<u32>>;

    /// Returns the share of time (0 to 1) in which the busiest of the workload's threads ran or waited for a core,
    /// since the previous call (of the last second at the first call); `None` if it is not known.
    async fn eagerness(&self, session: SessionId, placement: &Placement) -> Option<f64>;

    /// How busy the workload has kept its GPUs since this was asked before.
    async fn gpu_use(&self, session: SessionId, placement: &Placement, gpus: &[Gpu]) -> GpuUse;

    /// What the driver said last of every GPU, from memory.
    fn gpu_watch(&self) -> GpuWatch;

    /// Whether a workload is kept from the GPUs of others by more than its good will.
    fn closes_gpus(&self) -> bool;

    /// What the machine is and does now.
    async fn node(&self) -> NodeReading;
}
