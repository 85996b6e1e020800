//! What the controller says, asked by one poller for everybody: how often it is asked does not
//! depend on how many sessions there are. The answer is kept as a whole, with the moment at
//! which it was asked for, so that whoever needs it newer than a deed of theirs can tell. A
//! controller that does not answer leaves the last answer to grow old, and then unknown.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Notify, watch};

use super::{
    accounts::{self, Record, StartQuery},
    mark::JobMarks,
    queue::{self, Row},
    reservations,
    settings::Settings,
    sinfo::{self, Node},
    size,
    state::JobPhase,
    submit::{complaint, is_unreached},
};
use lyceum_model::{Capacity, Inventory, Reservation, SessionId, machines::HiddenDetails};
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

pub(super) type Jobs = HashMap<SessionId, Vec<Row>>;
pub(super) type Tally = BTreeMap<String, (i64, i64)>;

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
    pub queue: Arc<[Row]>,
    /// Everybody's that have ended and are not forgotten yet.
    pub ended: Arc<[Row]>,
    pub nodes: Vec<Node>,
    /// Reservations, with the names of their nodes.
    pub reservations: Vec<Reservation>,
    /// When the nodes were listed last.
    pub sized: Option<Instant>,
    /// Everybody's jobs that run and that wait, by partition, as far as the portal's account sees them.
    pub tally: Tally,
    pub hides: HiddenDetails,
    /// The portal's account is an operator of Slurm's.
    pub is_operator: bool,
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

    fn is_moving(&self) -> bool {
        self.jobs.values().flatten().any(|row| row.standing == JobPhase::Waiting || row.is_ending)
    }
}

/// What an administrator has to do where jobs are hidden from the portal.
const HIDDEN_JOBS: &str = "Slurm hides jobs (PrivateData) from the portal’s account, which must be an operator in Slurm: \
                     `lyceum check` shows how";

pub(super) struct Controller {
    settings: Settings,
    /// The account that asks; root may see everything.
    account: String,
    marks: JobMarks,
    /// What the nodes have that were listed last.
    stock: Inventory,
    view: watch::Sender<Arc<View>>,
    turn: Mutex<()>,
    nudge: Notify,
    calls: AtomicU64,
    keeps_accounts: AtomicBool,
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
            nudge: Notify::new(),
            calls: AtomicU64::new(0),
            keeps_accounts: AtomicBool::new(true),
        });
        tokio::spawn(Self::run(Arc::downgrade(&this)));
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

    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
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
        self.look(SIZES).await.and_then(seeing)
    }

    pub const fn stock(&self) -> &Inventory {
        &self.stock
    }

    /// Takes over what the nodes have all together.
    fn count(&self, nodes: &[Node]) {
        let nodes = size::eligible(nodes, &self.settings.partition);
        if nodes.is_empty() {
            return;
        }
        let (capacity, inventory) = size::whole(&nodes);
        if self.stock.set(capacity, inventory) {
            let Capacity { gpus, cpus, memory_bytes } = capacity;
            tracing::info!(gpus, cpus, memory_bytes, "cluster size");
        }
    }

    /// A view in which also the nodes are new enough to be looked at.
    pub async fn look_at_nodes(&self) -> Result<Arc<View>> {
        let age = self.settings.tenths(NODES_MAX_AGE);
        let is_new = |view: &View| view.objection().is_none() && view.sized.is_some_and(|sized| sized.elapsed() < age);
        let view = self.view();
        if is_new(&view) { Ok(view) } else { self.look(age).await.and_then(seeing) }
    }

    /// A view whose nodes were asked for after this call.
    pub async fn look_at_nodes_anew(&self) -> Result<Arc<View>> {
        self.look(Duration::ZERO).await.and_then(seeing)
    }

    async fn look(&self, sizes: Duration) -> Result<Arc<View>> {
        let wanted = Instant::now();
        let _turn = self.turn.lock().await;
        let before = self.view();
        let is_new = before.sized.is_some_and(|sized| sized.elapsed() < sizes);
        // An administrator may just be mending that.
        let is_sized = is_new && !before.is_blind;
        if is_new && before.asked.is_some_and(|asked| wanted <= asked) {
            return Ok(before);
        }
        let asked = Instant::now();
        let queue = async {
            let queue = self.queue().await?;
            let private = if is_sized { (before.hides, before.is_operator) } else { self.private().await? };
            Ok::<_, String>((queue, private))
        };
        let outcome = queue.await;
        let mut view = (*before).clone();
        match outcome {
            Ok(((jobs, tally, queue, ended), private)) => {
                (view.hides, view.is_operator) = private;
                view.is_blind = view.hides.jobs && !view.is_operator;
                (view.jobs, view.tally, view.queue, view.ended) = (jobs, tally, queue, ended);
                view.asked = Some(asked);
                view.answered = Some(Instant::now());
                view.good_since = view.good_since.or(Some(asked));
                if let Some(trouble) = view.trouble.take() {
                    tracing::info!(trouble, "slurm's controller responds again");
                }
                if !is_sized {
                    match self.nodes().await {
                        Ok(nodes) => {
                            self.count(&nodes);
                            (view.nodes, view.sized) = (nodes, Some(Instant::now()));
                        }
                        Err(why) => tracing::warn!(why, "failed to list nodes"),
                    }
                    match self.reservations().await {
                        Ok(reservations) => view.reservations = reservations,
                        Err(why) => tracing::warn!(why, "failed to list reservations"),
                    }
                }
                let view = Arc::new(view);
                self.view.send_replace(view.clone());
                Ok(view)
            }
            Err(why) => {
                if view.trouble.is_none() {
                    tracing::warn!(why, "slurm's controller does not respond");
                }
                view.trouble = Some(why.clone());
                view.good_since = None;
                self.view.send_replace(Arc::new(view));
                Err(Error::Unavailable(format!("Slurm’s controller does not respond: {why}")))
            }
        }
    }

    async fn queue(&self) -> Result<(Jobs, Tally, Arc<[Row]>, Arc<[Row]>), String> {
        let separator = separator();
        let ran = self.ask("squeue", queue::arguments(&separator)).await?;
        let (mut jobs, mut tally) = (Jobs::new(), Tally::new());
        let (mut queue, mut ended) = (Vec::new(), Vec::new());
        for mut row in queue::parse(&answer(&ran)?, &separator)? {
            for partition in &row.partitions {
                let counts = tally.entry(partition.clone()).or_default();
                match row.standing {
                    JobPhase::Alive => counts.0 += 1,
                    JobPhase::Waiting => counts.1 = counts.1.saturating_add(row.of_queue.tasks),
                    JobPhase::Ended(_) | JobPhase::Unknown(_) => {}
                }
            }
            row.session = self.marks.read(&row.comment, row.uid);
            if matches!(row.standing, JobPhase::Ended(_)) { &mut ended } else { &mut queue }.push(row.clone());
            if let Some(session) = row.session {
                jobs.entry(session).or_default().push(row);
            }
        }
        queue.sort_by_key(|row| row.job);
        for rows in jobs.values_mut() {
            rows.sort_by_key(|row| row.job);
        }
        Ok((jobs, tally, queue.into(), ended.into()))
    }

    async fn nodes(&self) -> Result<Vec<Node>, String> {
        let separator = separator();
        let ran = self.ask("sinfo", sinfo::arguments(&separator)).await?;
        sinfo::parse(&answer(&ran)?, &separator)
    }

    async fn reservations(&self) -> Result<Vec<Reservation>, String> {
        let ran = self.ask("scontrol", reservations::arguments()).await?;
        let mut found = Vec::new();
        for (reservation, list) in reservations::parse(&answer(&ran)?) {
            let nodes = match &*list {
                "" => Vec::new(),
                list => {
                    let ran = self.ask("scontrol", reservations::hostnames(list)).await?;
                    answer(&ran)?.split_whitespace().map(str::to_owned).collect()
                }
            };
            let is_ours = reservation.name == self.settings.reservation;
            found.push(Reservation { nodes, is_ours, ..reservation });
        }
        found.sort_by(|one, other| (one.from, &one.name).cmp(&(other.from, &other.name)));
        Ok(found)
    }

    /// What the site shows to its operators alone, and whether we are one.
    async fn private(&self) -> Result<(HiddenDetails, bool), String> {
        let ran = self.ask("scontrol", ["show", "config"].map(str::to_owned).into()).await?;
        let config = answer(&ran)?;
        Ok((read_hides(&config), self.is_operator(&config).await))
    }

    /// Whether the portal's own account sees what is hidden from others, and may move limits. Of
    /// anybody but root and the account that Slurm itself runs as only the accounts can say so.
    async fn is_operator(&self, config: &str) -> bool {
        let slurms_own = slurm_user(config);
        if self.account == "root" || !self.account.is_empty() && self.account == slurms_own {
            return true;
        }
        let words = ["--noheader", "--parsable2", "show", "user", &self.account, "format=adminlevel"];
        let Ok(ran) = self.ask("sacctmgr", words.map(str::to_owned).into()).await else { return false };
        answer(&ran).is_ok_and(|level| LEVELS.contains(&level.trim()))
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
        let ran = self.ask("sacct", accounts::arguments(&separator, which)).await.ok()?;
        if ran.complaints.contains("disabled") {
            self.keeps_accounts.store(false, Ordering::Relaxed);
        }
        accounts::parse(&answer(&ran).ok()?, &separator).ok()
    }

    /// Sets how long a job may run in all (minutes).
    pub async fn set_limit(&self, job: u32, minutes: i64) -> Result<()> {
        let words = ["update".to_owned(), format!("JobId={job}"), format!("TimeLimit={minutes}")];
        let ran = self.ask("scontrol", words.into()).await.map_err(Error::Unavailable)?;
        let said = match answer(&ran) {
            Ok(_nothing) => {
                self.nudge();
                return Ok(());
            }
            Err(said) => said,
        };
        if ran.status.is_none() || is_unreached(&said) {
            return Err(Error::Unavailable(format!("Slurm did not extend its time limit: {said}")));
        }
        Err(Error::Refused(format!("Slurm did not extend its time limit: {said}.")))
    }

    async fn ask(&self, tool: &str, arguments: Vec<String>) -> Result<CommandOutput, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        command(&self.settings, tool, arguments).await
    }
}

/// Asks for jobs and nodes as the portal does, and reads both; how many rows there are, or which command did not
/// answer with what is asked for, and why.
pub async fn try_out(settings: &Settings) -> Result<(usize, usize), String> {
    let separator = separator();
    let ask = async |tool: &str, arguments| {
        let ran = command(settings, tool, arguments).await;
        ran.and_then(|ran| answer(&ran)).map_err(|why| format!("{tool}: {why}"))
    };
    let jobs = queue::parse(&ask("squeue", queue::arguments(&separator)).await?, &separator)?.len();
    let nodes = sinfo::parse(&ask("sinfo", sinfo::arguments(&separator)).await?, &separator)?.len();
    Ok((jobs, nodes))
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
pub(super) fn answer(ran: &CommandOutput) -> Result<String, String> {
    match ran.status {
        None => Err("it timed out".to_owned()),
        Some(0) if !ran.complaints.contains("error") => Ok(ran.output.clone()),
        Some(_) => Err(complaint(&ran.complaints)),
    }
}

/// An empty list of somebody who sees nothing is no answer.
fn seeing(view: Arc<View>) -> Result<Arc<View>> {
    if view.is_blind { Err(Error::Unavailable(HIDDEN_JOBS.to_owned())) } else { Ok(view) }
}

/// Whoever is one of these sees everything.
const LEVELS: [&str; 2] = ["Operator", "Administrator"];

/// The account that Slurm itself runs as, of `slurm(64030)`.
pub(super) fn slurm_user(config: &str) -> &str {
    value(config, "SlurmUser").split('(').next().unwrap_or_default()
}

/// `SlurmUser               = slurm(64030)`
pub(super) fn value<'a>(config: &'a str, key: &str) -> &'a str {
    let value = config.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    value.unwrap_or_default().trim()
}

/// `PrivateData           = jobs,nodes`
fn read_hides(config: &str) -> HiddenDetails {
    let words: Vec<&str> = value(config, "PrivateData").split(',').map(str::trim).collect();
    let has = |word: &str| words.contains(&word) || words.contains(&"all");
    HiddenDetails { machines: has("nodes"), jobs: has("jobs"), reservations: has("reservations") }
}

/// What stands between fields: nobody could have written it into a comment before.
fn separator() -> String {
    format!("\u{1f}{}\u{1f}", SessionId::new().uuid().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden() {
        let hides = |machines, jobs, reservations| HiddenDetails { machines, jobs, reservations };
        assert_eq!(read_hides("PluginDir = /x\nPrivateData             = none\n"), hides(false, false, false));
        assert_eq!(read_hides("PrivateData = jobs,usage\n"), hides(false, true, false));
        assert_eq!(read_hides("PrivateData = accounts,nodes,jobs\n"), hides(true, true, false));
        assert_eq!(read_hides("PrivateData = all\n"), hides(true, true, true));
        assert_eq!(read_hides(""), hides(false, false, false));
    }

    #[test]
    fn an_error_is_no_empty_queue() {
        let ran = |status, output: &str, complaints: &str| CommandOutput {
            status,
            output: output.to_owned(),
            complaints: complaints.to_owned(),
        };
        assert!(answer(&ran(Some(0), "", "")).is_ok());
        assert!(answer(&ran(Some(0), "", "slurm_load_jobs error: Socket timed out on send/recv operation\n")).is_err());
        assert!(answer(&ran(Some(1), "", "")).is_err());
        assert!(answer(&ran(None, "", "")).is_err());
    }

    #[test]
    fn separators_are_never_the_same() {
        assert_ne!(separator(), separator());
        assert!(!separator().contains(','));
    }
}
