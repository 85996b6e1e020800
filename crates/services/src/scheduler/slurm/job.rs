//! What is done with one session's job: handed in, taken over, told to end, and judged when it
//! is over. Who asks for it, and when, is `reconcile`'s business, by way of the trait.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use super::{
    super::{Error, Exit, Launch, LifeCycle, Result, local::blocking},
    Shared, SubmittedJob,
    controller::View,
    ending::{Evidence, ended_of, judge_job},
    queue::Row,
    sinfo::Node,
    size,
    state::{self, Ended, JobPhase},
    submit,
};
use lyceum_model::{SessionId, job::Shape, session::Placement};
use lyceum_node::helper::{command::CommandContext, identity};
use lyceum_wire::protocol::{
    AgentLaunch, BatchEnd, BatchOrder, CommandOutput, ExitRecord, GpuQuery, HelperAnswer, HelperRequest, Limits,
    PROTOCOL, SubmitEnvironment, files,
};
use lyceum_wire::run_directory;

/// How long the controller has to answer before it is believed that it has never heard of a
/// job whose handing in went wrong: it works through what came first, first.
const SURE: Duration = Duration::from_secs(15);

/// Before the helper is asked again how an order went.
const ORDER_INTERVAL: Duration = Duration::from_millis(20);

/// How many orders of one user's, to submit and to cancel each, are under way at once.
const MAX_ORDERS: usize = 4;

/// Longer than the helper's own patience with an order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(40);

/// A job that was told to end is not told again so soon.
const TERMINATE_INTERVAL: Duration = Duration::from_secs(20);

/// Before a first answer is there, a question waits for it so long.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is read of an exit record at most, and of what a script has said.
const MAX_EXIT_RECORD: u64 = 16 * 1024;
const MAX_MESSAGE_LENGTH: u64 = 300;

/// How long nobody submits another job like one that was turned away, unless one has ended.
const RESUBMIT_INTERVAL: Duration = Duration::from_secs(30);

/// A limit on how many jobs may be in Slurm at once that was reached.
pub(super) struct JobLimitReached {
    at: Instant,
    /// How many of the person's were there.
    jobs: usize,
    why: String,
}

impl JobLimitReached {
    /// Whose limit it may be: a person's, an account's, or a QOS's that the job names.
    fn key(launch: &Launch) -> String {
        let (name, group) = (&launch.person.unix_name, launch.group.as_deref().unwrap_or_default());
        format!("{name}\n{group}\n{}", launch.shape.options.join("\n"))
    }

    fn jobs(view: &View, launch: &Launch) -> usize {
        view.queue.iter().filter(|row| row.uid == launch.person.uid).count()
    }
}

/// A session is handed in once and never put into the queue again.
const ATTEMPT: u32 = 1;

impl Shared {
    pub(super) fn run_directory(&self, session: SessionId) -> PathBuf {
        self.config.run.join(session.short())
    }

    /// The nodes that a job of ours may get, as they were listed last.
    pub(super) fn eligible<'a>(&self, view: &'a View) -> Vec<&'a Node> {
        size::eligible(&view.nodes, &self.config.settings.partition)
    }

    /// Those that a job of this shape may get: its own word on partitions goes first.
    pub(super) fn eligible_for<'a>(&self, view: &'a View, shape: &Shape) -> Vec<&'a Node> {
        let partition = shape.option("partition").unwrap_or(&self.config.settings.partition);
        size::eligible(&view.nodes, partition)
    }

    /// A view that can be relied on, or why there is none.
    pub(super) async fn view(&self) -> Result<Arc<View>, String> {
        let view = self.controller.view();
        match view.objection() {
            None => Ok(view),
            // At the start the first answer is on its way.
            Some(_) if view.answered.is_none() && view.trouble.is_none() => {
                match tokio::time::timeout(FIRST_ANSWER_TIMEOUT, self.controller.refresh()).await {
                    Ok(view) => view.map_err(|err| err.to_string()),
                    Err(_elapsed) => Err("Slurm’s controller has not responded yet".to_owned()),
                }
            }
            Some(why) => Err(why),
        }
    }

    /// Whether a view is older than the handing in of a session's job.
    pub(super) fn is_before(&self, view: &View, session: SessionId) -> bool {
        let handed_in = self.handed_in.lock().get(&session).copied();
        handed_in.is_some_and(|handed_in| handed_in.is_sure && view.asked.is_none_or(|asked| asked < handed_in.at))
    }

    /// Where a node is reached, as the controller says; empty while there is none.
    fn address(&self, host: &str) -> String {
        let view = self.controller.view();
        let known = view.nodes.iter().find(|node| node.name == host);
        known.map_or(host, |node| node.address.as_str()).to_owned()
    }

    pub(super) fn placement(&self, session: SessionId, uid: u32, unix_name: String, job: u32, host: &str) -> Placement {
        Placement {
            node: host.to_owned(),
            pid: i32::try_from(job).unwrap_or(0),
            start_ticks: 0,
            boot_id: Placement::SLURM.to_owned(),
            uid,
            unix_name,
            run_directory: self.run_directory(session).to_string_lossy().into_owned(),
            limits: Placement::SLURM.to_owned(),
            link: Some(self.config.nodes.link(ATTEMPT, self.address(host))),
        }
    }

    pub(super) async fn placement_of(&self, session: SessionId, row: &Row) -> Result<Placement> {
        let uid = row.uid;
        let name = blocking(move || Ok(identity::name_of(uid))).await?;
        let name = name.ok_or_else(|| Error::Unavailable(format!("uid {uid} is unknown on this machine")))?;
        Ok(self.placement(session, uid, name, row.job, &row.host))
    }

    /// Gives an order as a user and waits for how it went. Of one user few are given at once: many that start
    /// together take turns here, and neither fail for it nor keep the helper from others.
    pub(super) async fn order(
        self: &Arc<Self>,
        session: SessionId,
        unix_name: &str,
        order: BatchOrder,
    ) -> Result<CommandOutput> {
        let turns = {
            let mut all = self.turns.lock();
            all.retain(|_, turns| 1 < Arc::strong_count(turns));
            let whose = (unix_name.to_owned(), matches!(order, BatchOrder::Submit { .. }));
            Arc::clone(all.entry(whose).or_insert_with(|| Arc::new(Semaphore::new(MAX_ORDERS))))
        };
        let _turn = turns.acquire().await.map_err(|err| Error::Unavailable(err.to_string()))?;
        let end = Instant::now() + ORDER_TIMEOUT;
        loop {
            let this = Arc::clone(self);
            let request = HelperRequest::Batch { session, unix_name: unix_name.to_owned(), order: order.clone() };
            match blocking(move || this.config.launcher.ask(request).map_err(Error::from)).await? {
                HelperAnswer::Ran { ran } => return Ok(ran),
                HelperAnswer::Looking if Instant::now() < end => tokio::time::sleep(ORDER_INTERVAL).await,
                other => return Err(Error::Unavailable(format!("unexpected response from the helper: {other:?}"))),
            }
        }
    }

    /// What the agent is told. Slurm holds the limits where it can; where it cannot, the agent
    /// looks after memory itself.
    pub(super) fn agent(&self, launch: &Launch, hidden: Vec<String>) -> AgentLaunch {
        // It looks after its own node.
        let each = launch.shape.share(launch.resources.clone());
        let mut app = launch.app.clone();
        let submitted_in = app.working_directory.to_string_lossy().into_owned();
        app.environment.insert("SLURM_SUBMIT_DIR".to_owned(), submitted_in);
        app.program = submit::spread(app.program, &self.config.settings.tool("srun"), &launch.shape, &each);
        AgentLaunch {
            protocol: PROTOCOL,
            session: launch.session,
            run_directory: self.run_directory(launch.session),
            portal_uid: self.config.service_uid,
            app,
            limits: Limits {
                cpus: each.cpus,
                memory_bytes: each.memory_bytes,
                processes: 4096.max(each.cpus.saturating_mul(512)),
            },
            sampled: true,
            cgroups: Vec::new(),
            grace_seconds: self.config.local.grace_seconds().unsigned_abs(),
            home: launch.home.clone(),
            node: Some(self.config.nodes.setup(launch.session, ATTEMPT)),
            inherits: Vec::new(),
            surroundings: Some(SubmitEnvironment {
                given: CommandContext { conf: None }
                    .environment()
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value.into_string().ok()?)))
                    .collect(),
                hidden,
            }),
            gpus: (each.gpus > 0).then(|| GpuQuery {
                seconds: self.config.gpu_interval,
                library: Some(self.config.settings.nvml.clone()).filter(|path| !path.as_os_str().is_empty()),
            }),
        }
    }

    /// A job of an earlier try: one that is there, or one that has come and gone.
    pub(super) async fn earlier(self: &Arc<Self>, view: &View, launch: &Launch) -> Result<Option<Placement>> {
        let session = launch.session;
        let own = |row: &&Row| row.uid == launch.person.uid;
        if let Some(row) = view.job(session, None).filter(own) {
            self.handed_in.lock().remove(&session);
            return self.placement_of(session, row).await.map(Some);
        }
        let directory = self.run_directory(session);
        let (begun, waits) = blocking(move || {
            let is_there = |name: &str| std::fs::symlink_metadata(directory.join(name)).is_ok();
            Ok((is_there(files::LOG) || is_there(files::EXIT), is_there(files::LAUNCH)))
        })
        .await?;
        let person = &launch.person;
        if begun {
            // It ran, and Slurm has forgotten it meanwhile: its end is told by its record.
            return Ok(Some(self.placement(session, person.uid, person.unix_name.clone(), 0, "")));
        }
        if !waits {
            return Ok(None);
        }
        // Slurm has said that it did not take it.
        if self.turned_away.lock().contains(&session) {
            return Ok(None);
        }
        // Somebody has begun to hand it in, and nobody has seen the job: it may yet appear.
        let since = {
            let mut handed_in = self.handed_in.lock();
            let now = SubmittedJob { at: Instant::now(), is_sure: false };
            *handed_in.entry(session).or_insert(now)
        };
        let answers_since = view.good_since.map(|good| good.max(since.at));
        if answers_since.is_some_and(|since| since.elapsed() >= SURE) {
            return Ok(None);
        }
        self.controller.nudge();
        Err(Error::Unavailable("it is not clear yet whether Slurm accepted its job".to_owned()))
    }

    /// Why a submission would be turned away again: the last one like it was, and none of the person's jobs has
    /// ended since. Of many that wait, one at a time asks.
    pub(super) fn is_full(&self, view: &View, launch: &Launch) -> Option<String> {
        let full = self.full.lock();
        let JobLimitReached { at, jobs, why } = full.get(&JobLimitReached::key(launch))?;
        (at.elapsed() < RESUBMIT_INTERVAL && *jobs <= JobLimitReached::jobs(view, launch)).then(|| why.clone())
    }

    /// Notes that Slurm has no room for another job like this one, and says so for people.
    pub(super) fn note_full(&self, view: &View, launch: &Launch, said: &str) -> String {
        let why = format!("Slurm does not accept more jobs now ({said}). It is submitted when other jobs have ended.");
        let full = JobLimitReached { at: Instant::now(), jobs: JobLimitReached::jobs(view, launch), why: why.clone() };
        self.full.lock().insert(JobLimitReached::key(launch), full);
        self.turned_away.lock().insert(launch.session);
        why
    }

    /// What the agent wrote last, if it can be made sense of: its user may have written it.
    pub(super) fn exit_record(directory: &Path) -> Option<ExitRecord> {
        let text = run_directory::read(directory, files::EXIT, MAX_EXIT_RECORD).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// How a job ended; `row` is `None` where the controller has forgotten it.
    pub(super) async fn exit(self: &Arc<Self>, session: SessionId, placement: &Placement, row: Option<Row>) -> Exit {
        let directory = self.run_directory(session);
        let looked = blocking(move || {
            let begun = std::fs::symlink_metadata(directory.join(files::LOG)).is_ok();
            let said = run_directory::read_tail(&directory, files::BATCH, MAX_MESSAGE_LENGTH)
                .ok()
                .flatten()
                .unwrap_or_default();
            Ok((Self::exit_record(&directory), begun, submit::complaint(&String::from_utf8_lossy(&said))))
        });
        let (record, begun, said) = looked.await.unwrap_or_default();
        let mut evidence = Evidence {
            record,
            begun,
            said,
            asked: self.told.lock().contains_key(&session),
            uid: placement.uid,
            host: placement.node.clone(),
            ..Evidence::default()
        };
        if let Some(row) = &row {
            (evidence.ended, evidence.status, evidence.ended_at) = (ended_of(&row.standing), row.status, row.ended_at);
            evidence.host.clone_from(&row.host);
        }
        let is_open = evidence.ended.is_none() && evidence.record.is_none()
            || evidence.ended == Some(Ended::Cancelled) && !evidence.asked;
        if let Some(row) = &row
            && is_open
            && !evidence.begun
        {
            evidence.failed_start = self.failed_start(row).await;
        }
        // One that was never seen placed is known by its row alone.
        let number = u32::try_from(placement.pid).ok().filter(|job| *job > 0);
        let job = number.or(row.as_ref().map(|row| row.job));
        if (is_open || row.is_none())
            && let Some(job) = job
            && let Some(record) = self.controller.account(job).await.and_then(|mut records| records.pop())
        {
            evidence.cancelled_by = record.cancelled_by;
            if row.is_none() {
                evidence.ended_at = record.ended_at;
            }
            if row.is_none() && is_open {
                (evidence.ended, evidence.status) = (ended_of(&record.standing), record.status);
            }
        }
        judge_job(evidence, self.config.clock.now())
    }

    /// Why Slurm says that a job's start failed: in its reason of the job, or in that of the node, which it
    /// drains when a Prolog fails there.
    async fn failed_start(&self, row: &Row) -> Option<String> {
        let of_job = state::is_failed_start(&row.reason).then(|| row.reason.replace('_', " "));
        if row.host.is_empty() {
            return of_job;
        }
        // The node was drained just now.
        let view = self.controller.look_at_nodes_anew().await.ok();
        let node = view.as_ref().and_then(|view| view.nodes.iter().find(|node| node.name == row.host));
        let of_node = node.and_then(|node| node.reason.clone()).filter(|reason| state::is_failed_start(reason));
        of_node.or(of_job)
    }

    /// The session's job, if it has one that has not ended, as the controller says now: told
    /// by its mark, which is of this session and of the user it runs as.
    pub(super) async fn living(&self, session: SessionId) -> Result<Option<Row>> {
        let view = self.controller.view();
        let is_known = view.objection().is_none() && !self.is_before(&view, session);
        let lives = |row: &&Row| !matches!(row.standing, JobPhase::Ended(_));
        // What has ended stays ended: there is nothing to ask.
        if is_known && view.jobs.get(&session).is_some_and(|rows| !rows.iter().any(|row| lives(&row))) {
            return Ok(None);
        }
        let view = self.controller.refresh().await?;
        Ok(view.jobs.get(&session).and_then(|rows| rows.iter().find(lives)).cloned())
    }

    /// Tells a session's job to end.
    pub(super) async fn cancel(self: &Arc<Self>, session: SessionId, gently: bool) -> Result<()> {
        let told = self.told.lock().get(&session).copied();
        if told.is_some_and(|(at, was_gently)| at.elapsed() < TERMINATE_INTERVAL && (gently || !was_gently)) {
            return Ok(());
        }
        let Some(row) = self.living(session).await? else { return Ok(()) };
        // In the queue there is nobody who could end it gently.
        let gently = gently && row.standing == JobPhase::Alive;
        let placement = self.placement_of(session, &row).await?;
        let before = self.told.lock().insert(session, (Instant::now(), gently));
        let end = if gently { BatchEnd::Gently } else { BatchEnd::Whole };
        let ran = self.order(session, &placement.unix_name, BatchOrder::Cancel { job: row.job, end }).await;
        self.controller.nudge();
        let failure = match ran {
            Ok(CommandOutput { status: Some(0), .. }) => return Ok(()),
            Ok(ran) => {
                Error::Unavailable(format!("Slurm did not cancel the job: {}", submit::complaint(&ran.complaints)))
            }
            Err(err) => err,
        };
        let mut told = self.told.lock();
        match before {
            Some(before) => told.insert(session, before),
            None => told.remove(&session),
        };
        Err(failure)
    }

    /// Whether the controller says of a workload what its placement does not: that it is over, or where it runs.
    pub(super) fn is_ahead(&self, view: &View, session: SessionId, placement: &Placement) -> bool {
        match view.job(session, u32::try_from(placement.pid).ok()) {
            None => view.objection().is_none() && !self.is_before(view, session),
            Some(row) => match row.standing {
                JobPhase::Ended(_) => true,
                JobPhase::Alive => placement.node.is_empty() && !row.host.is_empty(),
                JobPhase::Waiting | JobPhase::Unknown(_) => false,
            },
        }
    }
}
