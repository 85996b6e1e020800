//! Who holds what in the batch system without the portal: jobs that people handed in on a shell.
//! They are told by their Unix account, and what each start of them held is noted when it begins and
//! when it ends. While nobody answers, what was known last counts on; what began and ended while
//! nobody looked is asked of the accounts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Cluster, ClusterEvent};
use lyceum_db as db;
use lyceum_model::{GroupId, SessionId, Timestamp, UserId, loops::Round, queue::ShellJob, session::Allocation};

use crate::admission::external_usage::UserExternalUsage;

/// The settings: when the batch system was last looked at, and up to when the accounts have told of
/// everything (milliseconds).
const SEEN: &str = "shell_jobs_seen";
const LAST_READ: &str = "shell_jobs_told";

/// How often the first is written, and how long the accounts may lag behind (seconds).
const NOTE: i64 = 60;
const OVERLAP: i64 = 3600;

/// How often the accounts are asked: always, and where somebody waits for what they say (seconds).
const SLOW_INTERVAL: i64 = 3600;
const FAST_INTERVAL: i64 = 20;

/// For so long they may not know of an end (seconds).
const END_TIMEOUT: i64 = 600;

/// A job by its number, and its start.
type Key = (u32, i64);

/// What one look leaves to the next.
#[derive(Default)]
pub(super) struct Memory {
    known: BTreeMap<Key, KnownJobs>,
    recalled: bool,
    /// When the accounts were asked, up to when they have told, and when a look was noted.
    asked: Option<Timestamp>,
    told: Option<Timestamp>,
    noted: Option<Timestamp>,
}

#[derive(Clone, Copy)]
struct KnownJobs {
    held: Allocation,
    ends_by: Option<Timestamp>,
    /// It is none of the portal's own.
    counts: bool,
    seen: Timestamp,
}

/// The portal's own that live: the numbers of their jobs, and those that have none yet.
struct PortalJobs {
    jobs: BTreeSet<u32>,
    unplaced: BTreeSet<SessionId>,
}

impl PortalJobs {
    /// A mark can be copied into another job of the same person: it is worth something as long as
    /// nobody knows the number.
    fn has(&self, job: &ShellJob) -> bool {
        self.jobs.contains(&job.job) || job.session.is_some_and(|session| self.unplaced.contains(&session))
    }
}

impl Cluster {
    /// Looks at the batch system, notes what is not the portal's, and tells admission of it.
    pub(super) async fn look_elsewhere(&self, tell: &(impl Fn(ClusterEvent) + Send), round: &Round) -> db::Result<()> {
        let Some(jobs) = self.scheduler.shell_jobs().await else { return Ok(()) };
        let mut memory = self.shell.lock().await;
        let (now, own) = (self.clock.now(), self.own_jobs().await?);
        self.recall_shell_jobs(&mut memory, now).await?;
        let (mut held, mut owners) = (HashMap::<UserId, UserExternalUsage>::new(), BTreeMap::new());
        let mut payers = HashMap::new();
        for job in jobs.iter().filter(|job| !own.has(job)) {
            let Some((owner, name)) = self.owner(&mut owners, &job.user).await? else { continue };
            let noted = self.note_shell_job(&mut memory, owner, job, now).await;
            let counts = round.unless_failed(format_args!("Slurm job {}", job.job), noted).unwrap_or(false);
            if counts && job.held.to.is_none() {
                let group = self.payer(&mut payers, owner, job).await?;
                let held =
                    held.entry(owner).or_insert_with(|| UserExternalUsage { name, ..UserExternalUsage::default() });
                held.add(job.label.clone(), &job.resources(), group);
            }
        }
        if self.admission.external_usage.set(held) {
            tell(ClusterEvent::Room);
        }
        self.ask_accounts(&mut memory, &mut owners, &own, now).await?;
        // What is over, and the accounts will not tell of any more, needs not be known.
        let is_told_again = |known: &KnownJobs| now.seconds_since(known.seen) < SLOW_INTERVAL + 2 * OVERLAP;
        memory.known.retain(|_, known| known.held.to.is_none() && known.counts || is_told_again(known));
        if memory.noted.is_none_or(|noted| !(0..NOTE).contains(&now.seconds_since(noted))) {
            self.db.set_setting(SEEN, &now.0.to_string()).await?;
            memory.noted = Some(now);
        }
        Ok(())
    }

    async fn own_jobs(&self) -> db::Result<PortalJobs> {
        let mut own = PortalJobs { jobs: BTreeSet::new(), unplaced: BTreeSet::new() };
        for session in self.db.live_sessions().await? {
            match session.placement.and_then(|placement| u32::try_from(placement.pid).ok()).filter(|job| *job > 0) {
                Some(job) => drop(own.jobs.insert(job)),
                None => drop(own.unplaced.insert(session.id)),
            }
        }
        Ok(own)
    }

    /// What an earlier portal has noted.
    async fn recall_shell_jobs(&self, memory: &mut Memory, now: Timestamp) -> db::Result<()> {
        if memory.recalled {
            return Ok(());
        }
        let moment = |text: Option<String>| text.and_then(|text| text.parse().ok()).map(Timestamp);
        let seen = moment(self.db.setting(SEEN).await?).unwrap_or(now);
        memory.told = moment(self.db.setting(LAST_READ).await?);
        for (job, held) in self.db.open_shell_jobs().await? {
            memory.known.insert((job, held.start), KnownJobs { held, ends_by: None, counts: true, seen });
        }
        memory.recalled = true;
        Ok(())
    }

    /// Whose an account is.
    async fn owner(
        &self,
        known: &mut BTreeMap<String, Option<(UserId, String)>>,
        account: &str,
    ) -> db::Result<Option<(UserId, String)>> {
        if let Some(owner) = known.get(account) {
            return Ok(owner.clone());
        }
        let owner = self.db.owner_of_account(account).await?;
        known.insert(account.to_owned(), owner.clone());
        Ok(owner)
    }

    /// Which group a job is charged to.
    async fn payer(
        &self,
        known: &mut HashMap<(UserId, String), Option<GroupId>>,
        owner: UserId,
        job: &ShellJob,
    ) -> db::Result<Option<GroupId>> {
        let Some(name) = &job.group else { return Ok(None) };
        let key = (owner, name.clone());
        if let Some(group) = known.get(&key) {
            return Ok(*group);
        }
        let group = self.db.group_that_pays(owner, name).await?;
        known.insert(key, group);
        Ok(group)
    }

    /// Notes a job where it is told otherwise than before; whether it counts.
    async fn note_shell_job(
        &self,
        memory: &mut Memory,
        owner: UserId,
        job: &ShellJob,
        now: Timestamp,
    ) -> db::Result<bool> {
        let key = (job.job, job.held.start);
        let is_same = |known: &&KnownJobs| known.held == job.held && known.ends_by == job.ends_by;
        let known = memory.known.get(&key).filter(is_same);
        let counts = match known {
            Some(known) => known.counts,
            None => self.db.set_shell_job(owner, job).await?,
        };
        memory.known.insert(key, KnownJobs { held: job.held, ends_by: job.ends_by, counts, seen: now });
        Ok(counts)
    }

    /// What was not seen to end, and what nobody looked at, is told by the accounts.
    async fn ask_accounts(
        &self,
        memory: &mut Memory,
        owners: &mut BTreeMap<String, Option<(UserId, String)>>,
        own: &PortalJobs,
        now: Timestamp,
    ) -> db::Result<()> {
        let is_gone = |known: &KnownJobs| known.counts && known.held.to.is_none() && known.seen < now;
        let pause = if memory.known.values().any(is_gone) { FAST_INTERVAL } else { SLOW_INTERVAL };
        if memory.asked.is_some_and(|asked| (0..pause).contains(&now.seconds_since(asked))) {
            return Ok(());
        }
        memory.asked = Some(now);
        let told = self.scheduler.shell_jobs_since(memory.told.unwrap_or(now).plus_seconds(-OVERLAP)).await;
        let has_accounts = told.is_some();
        for job in told.unwrap_or_default().iter().filter(|job| !own.has(job)) {
            // What the controller has told is as good.
            let is_over = memory.known.get(&(job.job, job.held.start)).is_some_and(|known| known.held.to.is_some());
            if !is_over && let Some((owner, _)) = self.owner(owners, &job.user).await? {
                self.note_shell_job(memory, owner, job, now).await?;
            }
        }
        let gone: Vec<(Key, KnownJobs)> =
            memory.known.iter().filter(|(_, known)| is_gone(known)).map(|(key, known)| (*key, *known)).collect();
        for ((job, start), known) in gone {
            if has_accounts && now.seconds_since(known.seen) < END_TIMEOUT {
                continue;
            }
            // A later start of the same job ended this one.
            let later = memory.known.range((job, start + 1)..=(job, i64::MAX)).next();
            let at = later.map_or(known.seen, |((_, start), _)| known.seen.min(Timestamp(*start)));
            self.db.close_shell_job(job, start, at).await?;
            memory.known.remove(&(job, start));
        }
        if has_accounts {
            self.db.set_setting(LAST_READ, &now.0.to_string()).await?;
            memory.told = Some(now);
        }
        Ok(())
    }
}
