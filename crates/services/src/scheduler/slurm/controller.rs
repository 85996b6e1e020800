//! What the controller says, asked by one poller for everybody: how often it is asked does not
//! depend on how many sessions there are. The answer is kept as a whole, with the moment at
//! which it was asked for, so that whoever needs it newer than a deed of theirs can tell. A
//! controller that does not answer leaves the last answer to grow old, and then unknown.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Notify, watch};

use super::{
    accounts::{self, Record, StartQuery},
    mark::JobMarks,
    queue::{self, Jobs, Row, SeenQueue, Tally},
    reservations,
    settings::Settings,
    sinfo::{self, Node},
    size,
    state::JobPhase,
    submit::complaint,
};
use lyceum_model::{Capacity, Inventory, Reservation, SessionId, machines::HiddenDetails, queue::QueuedJob};
use lyceum_node::helper::command::{self, CommandContext};
use lyceum_wire::protocol::CommandOutput;

use crate::scheduler::{Error, Result};

/// Between two looks, in tenths of the interval that is set: while something is on its way, while
/// all runs steadily, and at least.
const FAST_INTERVAL: u64 = 2;
const SLOW_INTERVAL: u64 = 10;
const MIN_INTERVAL: u64 = 1;

/// How often the size of the cluster is asked for.
const SIZES: Duration = Duration::from_mins(5);

/// How old the nodes may be for somebody who looks at them, and after how long an answer says
/// nothing any more; both in tenths of the interval.
const NODES_MAX_AGE: u64 = 15;
const STALE_SECONDS: u64 = 25;

/// Longer than Slurm's own patience with its controller, which is ten seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The most that one answer may measure (bytes): a hundred thousand jobs.
const MAX_ANSWER: u64 = 64 << 20;

/// The controller as it was at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// An answer that is older says nothing any more.
    pub stale: Duration,
    /// When the last good answer was asked for, and when it came; none yet.
    pub asked: Option<Instant>,
    pub answered: Option<Instant>,
    /// Since when every answer was good.
    pub good_since: Option<Instant>,
    /// Why the last try brought nothing.
    pub trouble: Option<String>,
    /// The portal's own jobs, told by their marks; the oldest of a session stands first.
    pub jobs: Jobs,
    /// Everybody's jobs that have not ended, in the order of their numbers.
    pub queue: Arc<Vec<Row>>,
    /// The same as people see them, from when somebody first asks on.
    pub listing: Arc<OnceLock<Vec<Arc<QueuedJob>>>>,
    /// Everybody's that have ended and are not forgotten yet.
    pub ended: Arc<Vec<Row>>,
    pub nodes: Arc<[Node]>,
    /// Reservations, with the names of their nodes.
    pub reservations: Arc<[Reservation]>,
    /// When the nodes were asked for that were listed last.
    pub sized: Option<Instant>,
    /// Everybody's jobs that run and that wait, by partition, as far as the portal's account sees them.
    pub tally: Tally,
    pub hides: HiddenDetails,
    /// Whether it is known what the site hides.
    pub knows_private: bool,
    pub rights: Rights,
    /// The site hides jobs, from the portal's account too: then nothing is known of any.
    pub is_blind: bool,
}

impl View {
    /// Why nothing can be said now; `None` where this view is good.
    pub fn objection(&self) -> Option<String> {
        if self.is_blind {
            return Some(HIDDEN_JOBS.to_owned());
        }
        if self.answered.is_some_and(|answered| answered.elapsed() < self.stale) {
            return None;
        }
        let why = self.trouble.as_deref().unwrap_or("not queried yet");
        Some(format!("Slurm’s controller does not respond: {why}"))
    }

    /// The job of a session: the very one where its number is known, else its first.
    pub fn job(&self, session: SessionId, number: Option<u32>) -> Option<&Row> {
        self.jobs.get(&session)?.iter().find(|row| number.is_none_or(|number| row.job == number))
    }

    fn set_private(&mut self, (hides, rights): (HiddenDetails, Rights)) {
        (self.hides, self.rights, self.knows_private) = (hides, rights, true);
        self.is_blind = self.hides.jobs && rights < Rights::Operator;
    }

    fn is_moving(&self) -> bool {
        self.jobs.values().flatten().any(|row| row.standing == JobPhase::Waiting || row.is_ending)
    }
}

/// What Slurm lets the portal's account do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rights {
    #[default]
    User,
    /// Sees what is hidden, and moves limits of jobs.
    Operator,
    /// Also drains nodes.
    Administrator,
}

/// What an administrator has to do where jobs are hidden from the portal.
const HIDDEN_JOBS: &str = "Slurm hides jobs (PrivateData) from the portal’s account, which must be an operator in Slurm: \
                     `lyceum check` shows how";

pub(super) struct Controller {
    settings: Settings,
    /// The account that asks; root may see everything.
    pub(super) account: String,
    marks: JobMarks,
    /// What the nodes have that were listed last.
    stock: Inventory,
    view: watch::Sender<Arc<View>>,
    turn: Mutex<()>,
    /// Whose turn it is to list the nodes, and when that failed last, and why.
    nodes_turn: Mutex<Option<(Instant, String)>>,
    nudge: Notify,
    calls: AtomicU64,
    keeps_accounts: AtomicBool,
    /// Commands whose last answer could not be read, and why.
    faults: parking_lot::Mutex<BTreeMap<&'static str, String>>,
}

impl Controller {
    /// Asks from now on, for as long as somebody holds this.
    /// `stock` is what is offered until it has answered.
    pub fn start(settings: Settings, account: String, marks: JobMarks, stock: Inventory) -> Arc<Self> {
        let view = View { stale: settings.tenths(STALE_SECONDS), ..View::default() };
        let this = Arc::new(Self {
            settings,
            account,
            marks,
            stock,
            view: watch::Sender::new(Arc::new(view)),
            turn: Mutex::default(),
            nodes_turn: Mutex::default(),
            nudge: Notify::new(),
            calls: AtomicU64::new(0),
            keeps_accounts: AtomicBool::new(true),
            faults: parking_lot::Mutex::default(),
        });
        tokio::spawn(Self::run(Arc::downgrade(&this)));
        tokio::spawn(Self::run_nodes(Arc::downgrade(&this)));
        this
    }

    async fn run(this: Weak<Self>) {
        loop {
            let Some(held) = this.upgrade() else { return };
            // Whether it went well is in the view.
            let _ = held.refresh().await;
            let pace =
                if held.view().is_moving() || held.view().trouble.is_some() { FAST_INTERVAL } else { SLOW_INTERVAL };
            tokio::select! {
                () = tokio::time::sleep(held.settings.tenths(pace)) => {}
                () = held.nudge.notified() => tokio::time::sleep(held.settings.tenths(MIN_INTERVAL)).await,
            }
        }
    }

    /// Beside the jobs, so that no `sinfo` that hangs keeps anybody from what `squeue` says.
    async fn run_nodes(this: Weak<Self>) {
        loop {
            let Some(held) = this.upgrade() else { return };
            let is_listed = held.list_nodes(SIZES).await.is_ok();
            let pause = if is_listed { SIZES } else { held.settings.tenths(SLOW_INTERVAL) };
            drop(held);
            tokio::time::sleep(pause).await;
        }
    }

    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    fn change(&self, change: impl FnOnce(&mut View)) -> Arc<View> {
        self.view.send_modify(|view| change(Arc::make_mut(view)));
        self.view()
    }

    /// Tells of every new view.
    pub fn subscribe(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    /// Something has changed that is worth a look soon.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// How many commands have gone to the controller.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A view that was asked for after this call; several callers share one.
    pub async fn refresh(&self) -> Result<Arc<View>> {
        self.look().await.and_then(seeing)
    }

    pub const fn stock(&self) -> &Inventory {
        &self.stock
    }

    /// Takes over what the nodes have all together.
    fn count(&self, nodes: &[Node]) {
        let nodes = size::reachable(nodes, &self.settings);
        if nodes.is_empty() {
            return;
        }
        let (capacity, inventory) = size::whole(&nodes);
        if self.stock.set(capacity, inventory) {
            let Capacity { gpus, cpus, memory_bytes } = capacity;
            tracing::info!(gpus, cpus, memory_bytes, "cluster size");
        }
    }

    /// A view in which the nodes are new enough to be looked at.
    pub async fn look_at_nodes(self: &Arc<Self>) -> Result<Arc<View>> {
        self.view_of_nodes(self.settings.tenths(NODES_MAX_AGE)).await
    }

    /// A view whose nodes were asked for after this call.
    pub async fn look_at_nodes_anew(self: &Arc<Self>) -> Result<Arc<View>> {
        self.view_of_nodes(Duration::ZERO).await
    }

    /// Whoever has no more patience leaves the question to the others.
    async fn view_of_nodes(self: &Arc<Self>, age: Duration) -> Result<Arc<View>> {
        let view = self.view();
        if view.sized.is_some_and(|sized| sized.elapsed() < age) {
            return seeing(view);
        }
        let this = Arc::clone(self);
        // Jobs go with the nodes that they run on: the queue is looked at when the nodes are known.
        let looked = tokio::spawn(async move { (this.list_nodes(age).await, this.look().await) });
        let (listed, queue) = looked.await.map_err(|err| Error::Unavailable(format!("a task failed: {err}")))?;
        listed.map_err(|why| Error::Unavailable(format!("Slurm does not list its nodes: {why}")))?;
        queue.and_then(seeing)
    }

    /// Lists nodes and reservations, and asks what the site hides, unless that was done lately.
    async fn list_nodes(&self, age: Duration) -> Result<Arc<View>, String> {
        let wanted = Instant::now();
        let mut failed = self.nodes_turn.lock().await;
        let view = self.view();
        if view.sized.is_some_and(|sized| wanted <= sized + age) {
            return Ok(view);
        }
        // Those who waited for the same question share what came of it.
        if let Some((at, why)) = &*failed
            && wanted <= *at
        {
            return Err(why.clone());
        }
        let asked = Instant::now();
        let accounts = async {
            // Nobody else may ask them for an hour.
            if self.faults.lock().contains_key("sacct") {
                self.accounts(StartQuery::Lately(LATELY)).await;
            }
        };
        let (nodes, reservations, private, ()) =
            tokio::join!(self.nodes(), self.reservations(), self.private(), accounts);
        let nodes = self.note("sinfo", nodes);
        let reservations = self.note("scontrol show reservation", reservations);
        let private = self.note("scontrol show config", private);
        if let Ok(nodes) = &nodes {
            self.count(nodes);
        }
        *failed = nodes.as_ref().err().map(|why| (Instant::now(), why.clone()));
        let why = failed.as_ref().map(|(_, why)| why.clone());
        let view = self.change(|view| {
            if let Ok(nodes) = nodes {
                (view.nodes, view.sized) = (nodes.into(), Some(asked));
            }
            if let Ok(reservations) = reservations {
                view.reservations = reservations.into();
            }
            if let Ok(private) = private {
                view.set_private(private);
            }
        });
        why.map_or(Ok(view), Err)
    }

    /// Notes whether the answer of a command could be read: what could not is reported until it can.
    fn note<T>(&self, command: &'static str, read: Result<T, String>) -> Result<T, String> {
        let mut faults = self.faults.lock();
        match &read {
            Ok(_) if faults.remove(command).is_some() => tracing::info!(command, "usable response from slurm again"),
            Ok(_) => {}
            Err(why) => {
                if faults.insert(command, why.clone()).is_none() {
                    tracing::warn!(command, why, "no usable response from slurm");
                }
            }
        }
        drop(faults);
        read
    }

    /// The commands whose last answer could not be read, and why.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        self.faults.lock().iter().map(|(command, why)| (*command, why.clone())).collect()
    }

    async fn look(&self) -> Result<Arc<View>> {
        let wanted = Instant::now();
        let _turn = self.turn.lock().await;
        let before = self.view();
        if before.asked.is_some_and(|asked| wanted <= asked) {
            return Ok(before);
        }
        let asked = Instant::now();
        let look = async {
            let queue = self.queue().await?;
            // A list is worth something once it is known what the site hides; an administrator may just be changing that.
            let is_known = before.knows_private && !before.is_blind;
            let private = if is_known { None } else { Some(self.private().await?) };
            Ok::<_, String>((queue, private))
        };
        match look.await {
            Ok((seen, private)) => Ok(self.change(|view| {
                if let Some(private) = private {
                    view.set_private(private);
                }
                (view.jobs, view.tally) = (seen.jobs, seen.tally);
                (view.queue, view.ended) = (seen.queue.into(), seen.ended.into());
                view.listing = Arc::default();
                view.asked = Some(asked);
                view.answered = Some(Instant::now());
                view.good_since = view.good_since.or(Some(asked));
                if let Some(trouble) = view.trouble.take() {
                    tracing::info!(trouble, "slurm's controller responds again");
                }
            })),
            Err(why) => {
                if before.trouble.is_none() {
                    tracing::warn!(why, "slurm's controller does not respond");
                }
                self.change(|view| {
                    view.trouble = Some(why.clone());
                    view.good_since = None;
                });
                Err(Error::Unavailable(format!("Slurm’s controller does not respond: {why}")))
            }
        }
    }

    async fn queue(&self) -> Result<SeenQueue, String> {
        let separator = separator();
        let text = answer(self.ask("squeue", queue::arguments(&separator)).await?)?;
        let marks = self.marks.clone();
        // A long queue takes a while, and others wait for this thread.
        let read = tokio::task::spawn_blocking(move || SeenQueue::read(&text, &separator, &marks));
        read.await.map_err(|err| format!("a task failed: {err}"))?
    }

    async fn nodes(&self) -> Result<Vec<Node>, String> {
        let separator = separator();
        let ran = self.ask("sinfo", sinfo::arguments(&separator)).await?;
        sinfo::parse(&answer(ran)?, &separator)
    }

    async fn reservations(&self) -> Result<Vec<Reservation>, String> {
        let ran = self.ask("scontrol", reservations::arguments()).await?;
        let mut found = reservations::parse(&answer(ran)?)?;
        for reservation in &mut found {
            reservation.is_ours = reservation.name == self.settings.reservation;
        }
        found.sort_by(|one, other| (one.from, &one.name).cmp(&(other.from, &other.name)));
        Ok(found)
    }

    /// What the site shows to its operators alone, and what we are.
    async fn private(&self) -> Result<(HiddenDetails, Rights), String> {
        let ran = self.ask("scontrol", ["show", "config"].map(str::to_owned).into()).await?;
        let config = answer(ran)?;
        let hides = read_hides(&config).ok_or_else(|| queue::unreadable("scontrol show config", &config))?;
        Ok((hides, self.rights(&config).await))
    }

    /// What the portal's own account may do. Of anybody but root and the account that Slurm itself runs as only the
    /// accounts can say so.
    async fn rights(&self, config: &str) -> Rights {
        let slurms_own = slurm_user(config);
        if self.account == "root" || !self.account.is_empty() && self.account == slurms_own {
            return Rights::Administrator;
        }
        let words = ["--noheader", "--parsable2", "show", "user", &self.account, "format=adminlevel"];
        let Ok(ran) = self.ask("sacctmgr", words.map(str::to_owned).into()).await else { return Rights::User };
        match answer(ran).as_deref().map(str::trim) {
            Ok("Administrator") => Rights::Administrator,
            Ok("Operator") => Rights::Operator,
            _ => Rights::User,
        }
    }

    /// Whether there are accounts, as far as is known.
    pub fn keeps_accounts(&self) -> bool {
        self.keeps_accounts.load(Ordering::Relaxed)
    }

    /// What the accounts say of a job, one record for each of its starts; none where they keep none.
    pub async fn account(&self, job: u32) -> Option<Vec<Record>> {
        self.accounts(StartQuery::Job(job)).await.filter(|records| !records.is_empty())
    }

    /// What they say of everybody's jobs that ran in the last so many seconds.
    pub async fn accounts_since(&self, seconds: i64) -> Option<Vec<Record>> {
        self.accounts(StartQuery::Lately(seconds)).await
    }

    async fn accounts(&self, which: StartQuery) -> Option<Vec<Record>> {
        if !self.keeps_accounts() {
            return None;
        }
        let separator = separator();
        let ran = self.ask("sacct", accounts::arguments(&separator, which)).await;
        if ran.as_ref().is_ok_and(keeps_none) {
            self.keeps_accounts.store(false, Ordering::Relaxed);
            return None;
        }
        let records = ran.and_then(answer).and_then(|said| accounts::parse(&said, &separator));
        self.note("sacct", records).ok()
    }

    pub(super) async fn ask(&self, tool: &str, arguments: Vec<String>) -> Result<CommandOutput, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        command(&self.settings, tool, arguments).await
    }
}

/// Asks as the portal does and reads the answers: how many rows each command gave, or why it gave none.
pub async fn try_out(settings: &Settings) -> Vec<(&'static str, Result<usize, String>)> {
    let separator = separator();
    let ask = async |tool: &str, arguments| command(settings, tool, arguments).await;
    let jobs = ask("squeue", queue::arguments(&separator)).await.and_then(answer);
    let nodes = ask("sinfo", sinfo::arguments(&separator)).await.and_then(answer);
    let reservations = ask("scontrol", reservations::arguments()).await.and_then(answer);
    let records = match ask("sacct", accounts::arguments(&separator, StartQuery::Lately(LATELY))).await {
        Ok(ran) if keeps_none(&ran) => Ok(String::new()),
        ran => ran.and_then(answer),
    };
    vec![
        ("squeue", jobs.and_then(|said| Ok(queue::parse(&said, &separator)?.len()))),
        ("sinfo", nodes.and_then(|said| Ok(sinfo::parse(&said, &separator)?.len()))),
        ("scontrol show reservation", reservations.and_then(|said| Ok(reservations::parse(&said)?.len()))),
        ("sacct", records.and_then(|said| Ok(accounts::parse(&said, &separator)?.len()))),
    ]
}

/// The accounts of so short a time are read to try them out (seconds).
const LATELY: i64 = 60;

/// Whether `sacct` says that the site keeps no accounts.
fn keeps_none(ran: &CommandOutput) -> bool {
    ran.complaints.contains("disabled")
}

/// Runs one of Slurm's commands as the portal's own account.
pub(super) async fn command(settings: &Settings, tool: &str, arguments: Vec<String>) -> Result<CommandOutput, String> {
    let program: PathBuf = settings.tool(tool);
    let surroundings = CommandContext { conf: settings.conf() };
    let run = move || command::run(&program, &arguments, &surroundings, TIMEOUT, MAX_ANSWER);
    let ran = tokio::task::spawn_blocking(run).await.map_err(|err| format!("a task failed: {err}"))?;
    ran.map_err(|err| err.sentence())
}

/// The text of a good answer. Slurm may say on standard error alone that something was wrong.
pub(super) fn answer(ran: CommandOutput) -> Result<String, String> {
    match ran.status {
        None => Err("it timed out".to_owned()),
        Some(0) if !ran.complaints.contains("error") => Ok(ran.output),
        Some(_) => Err(complaint(&ran.complaints)),
    }
}

/// An empty list of somebody who sees nothing is no answer.
fn seeing(view: Arc<View>) -> Result<Arc<View>> {
    if view.is_blind { Err(Error::Unavailable(HIDDEN_JOBS.to_owned())) } else { Ok(view) }
}

/// The account that Slurm itself runs as, of `slurm(64030)`.
pub(super) fn slurm_user(config: &str) -> &str {
    value(config, "SlurmUser").split('(').next().unwrap_or_default()
}

/// `SlurmUser               = slurm(64030)`
pub(super) fn value<'a>(config: &'a str, key: &str) -> &'a str {
    let value = config.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    value.unwrap_or_default().trim()
}

/// `PrivateData           = jobs,nodes`; `None` of what is no configuration.
fn read_hides(config: &str) -> Option<HiddenDetails> {
    config.lines().find(|line| line.starts_with("PrivateData"))?;
    let words: Vec<&str> = value(config, "PrivateData").split(',').map(str::trim).collect();
    let has = |word: &str| words.contains(&word) || words.contains(&"all");
    Some(HiddenDetails { machines: has("nodes"), jobs: has("jobs"), reservations: has("reservations") })
}

/// What stands between fields: nobody could have written it into a comment before.
fn separator() -> String {
    let drawn = SessionId::new().uuid().simple().to_string();
    // Its second half: the first one is the time. It stands in a long answer a million times.
    format!("\u{1f}{}", &drawn[drawn.len() / 2..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden() {
        let hides = |machines, jobs, reservations| Some(HiddenDetails { machines, jobs, reservations });
        assert_eq!(read_hides("PluginDir = /x\nPrivateData             = none\n"), hides(false, false, false));
        assert_eq!(read_hides("PrivateData = jobs,usage\n"), hides(false, true, false));
        assert_eq!(read_hides("PrivateData = accounts,nodes,jobs\n"), hides(true, true, false));
        assert_eq!(read_hides("PrivateData = all\n"), hides(true, true, true));
        assert_eq!(read_hides(""), None);
    }

    #[test]
    fn an_error_is_no_empty_queue() {
        let ran = |status, output: &str, complaints: &str| CommandOutput {
            status,
            output: output.to_owned(),
            complaints: complaints.to_owned(),
        };
        assert!(answer(ran(Some(0), "", "")).is_ok());
        assert!(answer(ran(Some(0), "", "slurm_load_jobs error: Socket timed out on send/recv operation\n")).is_err());
        assert!(answer(ran(Some(1), "", "")).is_err());
        assert!(answer(ran(None, "", "")).is_err());
    }

    #[test]
    fn separators_are_never_the_same() {
        assert_ne!(separator(), separator());
        assert!(!separator().contains(','));
    }
}
