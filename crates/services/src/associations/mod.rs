//! Quotas where Slurm has a say in them: the portal's limits written into Slurm's accounting
//! (`mirror`), so that `sbatch` on a shell is bound too, or Slurm's read into the portal (`read`, in
//! `read`). What has to be written is `plan`'s to decide, how it is said to Slurm is
//! `scheduler::slurm::accounting`'s; this file keeps at it.

mod meaning;
mod plan;
mod read;
mod targets;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

pub use read::Reader;

use lyceum_db as db;
use lyceum_model::{Finding, Loops, Timestamp, finding::Level, time::human_duration};

use crate::{
    admission::Admission,
    scheduler::slurm::{
        Settings,
        accounting::{Accounting, AccountingData, Amounts, Association},
    },
};
use plan::{Prior, Step, TargetAssociations, apply, format_amounts, plan, uncounted};
use targets::Members;

/// Writes limits into the accounts of groups, again and again.
#[derive(Debug)]
pub struct Mirror {
    admission: Admission,
    accounting: Accounting,
    /// The accounts, by the names of the groups.
    accounts: BTreeMap<String, String>,
    every: Duration,
    memory: Mutex<Memory>,
}

/// What one round leaves to the next.
#[derive(Debug, Default)]
struct Memory {
    /// What was wanted, and when Slurm was asked, when it last agreed with us.
    agreed: Option<(TargetAssociations, Instant)>,
    /// What we left in the associations.
    left: Option<BTreeMap<Association, Amounts>>,
    view: View,
}

/// What the last good look found that somebody should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    at: Option<Timestamp>,
    cluster: String,
    associations: usize,
    is_enforced: bool,
    /// Accounts that Slurm does not know.
    missing: Vec<String>,
    /// Groups with an account here that are none of the portal's, or none any more.
    unknown_groups: Vec<String>,
    /// People of a group who have no association in its account, as `ada in lab`.
    without: Vec<String>,
    /// People who have further associations with single partitions there.
    by_partition: Vec<String>,
    /// Limits of these kinds bind through the portal alone.
    uncounted: BTreeSet<String>,
    /// Limits that were not the portal's, and that it replaced, the newest last.
    replaced: Vec<(Timestamp, String)>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("database error")]
    Db(#[from] db::Error),
    /// The sentence says who does not answer, or what was refused.
    #[error("{0}")]
    Slurm(String),
    #[error("{0} more changes will be sent to Slurm in the next run")]
    More(usize),
}

/// Slurm is asked what stands there after so many rounds, also when nothing has changed here.
const READ_INTERVAL_ROUNDS: u32 = 6;

/// So many orders are carried out in one round.
const MAX_ORDERS: usize = 50;

/// So many names stand in a finding.
const MAX_NAMES: usize = 5;

/// A limit that was replaced is told for so many seconds.
const REPORT_SECONDS: i64 = 24 * 3600;

/// What the loop is called.
const NAME: &str = "quotas in Slurm";

impl Mirror {
    #[must_use]
    pub fn new(admission: Admission, settings: &Settings) -> Arc<Self> {
        // Slurm writes the names of accounts in small letters.
        let accounts = settings.accounts.iter().map(|(group, account)| (group.clone(), account.to_ascii_lowercase()));
        Arc::new(Self {
            accounting: Accounting::new(settings.clone()),
            accounts: accounts.collect(),
            every: Duration::from_secs(settings.interval.unsigned_abs()),
            admission,
            memory: Mutex::default(),
        })
    }

    /// Keeps Slurm's limits as the portal's are, for ever.
    pub async fn run(self: Arc<Self>, loops: Loops) {
        let mut well = true;
        loop {
            let round = loops.begin(NAME, Some(self.every));
            let outcome = self.reconcile().await;
            round.end(&outcome);
            match outcome {
                Ok(()) => well = true,
                Err(error) if well => {
                    well = false;
                    tracing::warn!(error = &error as &dyn std::error::Error, "failed to synchronise limits with slurm");
                }
                Err(_) => {}
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// One round: asks Slurm where limits have changed here, or nobody has asked for a while, and
    /// writes what differs.
    async fn reconcile(&self) -> Result<()> {
        let (wanted, members) = targets::wanted(&self.admission, &self.accounts).await?;
        let agrees = |(known, asked): &(TargetAssociations, Instant)| {
            *known == wanted && asked.elapsed() < self.every * READ_INTERVAL_ROUNDS
        };
        if self.memory.lock().agreed.as_ref().is_some_and(agrees) {
            return Ok(());
        }
        self.memory.lock().agreed = None;
        let asked = Instant::now();
        let books = self.accounting.read(self.accounts.values().map(String::as_str)).await.map_err(Error::Slurm)?;
        let left = self.memory.lock().left.clone();
        let steps = plan(&wanted, &books.associations, &books.kinds, left.as_ref());
        let view = self.view(&wanted, &members, &books);
        {
            let known = &mut self.memory.lock().view;
            *known = View { replaced: std::mem::take(&mut known.replaced), ..view };
        }
        let mut now_there = books.associations;
        let mut carried = Ok(());
        for step in steps.iter().take(MAX_ORDERS) {
            carried = self.carry_out(&books.cluster, step).await;
            if carried.is_err() {
                break;
            }
            apply(&step.order, &mut now_there);
        }
        self.memory.lock().left = Some(now_there);
        carried?;
        match steps.len().checked_sub(MAX_ORDERS) {
            Some(more) if more > 0 => Err(Error::More(more)),
            _ => {
                self.memory.lock().agreed = Some((wanted, asked));
                Ok(())
            }
        }
    }

    /// Gives Slurm an order, and writes down that it was.
    async fn carry_out(&self, cluster: &str, step: &Step) -> Result<()> {
        let Step { order, before, prior } = step;
        let whose = if order.users.is_empty() { "total".to_owned() } else { order.users.join(", ") };
        let refused = |why| Error::Slurm(format!("Slurm did not change the limits of {}: {why}", order.account));
        self.accounting.change(cluster, order).await.map_err(refused)?;
        let at = self.admission.clock.now();
        let (set, before) = (format_amounts(&order.set), format_amounts(before));
        let account = &order.account;
        let why = match prior {
            Prior::Ours => {
                tracing::info!(account, whose, set, before, "limits written to slurm's accounting");
                ""
            }
            Prior::Unknown => {
                tracing::warn!(account, whose, set, before, "existing limits in slurm replaced");
                "; found at the portal's first check"
            }
            Prior::Somebodys => {
                tracing::warn!(account, whose, set, before, "limits that were changed in slurm restored");
                "; it was changed in Slurm"
            }
        };
        let detail = format!("{whose}: {set} (was {before}){why}");
        if *prior != Prior::Ours {
            let replaced = &mut self.memory.lock().view.replaced;
            replaced.retain(|(then, _)| at.seconds_since(*then) < REPORT_SECONDS);
            replaced.push((at, format!("{whose} in {account} had {before}")));
        }
        Ok(self.admission.db.add_audit(at, "portal", "slurm.limits", account, &detail).await?)
    }

    fn view(&self, wanted: &TargetAssociations, members: &Members, books: &AccountingData) -> View {
        let has = |account: &str, user: Option<&str>| {
            let association = Association { account: account.to_owned(), user: user.map(str::to_owned) };
            books.associations.contains_key(&association)
        };
        let (known, missing): (Vec<&String>, Vec<&String>) =
            self.accounts.values().partition(|account| has(account, None));
        let without = members.iter().filter(|(account, _)| known.contains(account)).flat_map(|(account, people)| {
            let missing = people.iter().filter(|person| !has(account, Some(person)));
            missing.map(move |person| format!("{person} in {account}"))
        });
        let by_partition = books.by_partition.iter().filter_map(|association| {
            let user = association.user.as_ref().filter(|user| wanted.each.contains_key(*user))?;
            Some(format!("{user} in {}", association.account))
        });
        let is_unknown = |(_, account): &(&String, &String)| !wanted.totals.contains_key(*account);
        View {
            at: Some(self.admission.clock.now()),
            cluster: books.cluster.clone(),
            associations: books.associations.len(),
            is_enforced: books.is_enforced,
            missing: missing.into_iter().cloned().collect(),
            unknown_groups: self.accounts.iter().filter(is_unknown).map(|(group, _)| group.clone()).collect(),
            without: without.collect(),
            by_partition: by_partition.collect(),
            uncounted: uncounted(wanted, &books.kinds),
            replaced: Vec::new(),
        }
    }

    /// How the limits in Slurm are, for the health report.
    pub fn finding(&self) -> Finding {
        judge(&self.memory.lock().view, self.admission.clock.now())
    }
}

/// What is not as it should be, all of it, with what mends the first.
fn judge(view: &View, now: Timestamp) -> Finding {
    let View { cluster, .. } = view;
    let Some(at) = view.at else {
        return Finding::new(
            NAME,
            Level::Note,
            "the portal’s limits have not been written into Slurm’s accounting yet",
        );
    };
    let mut faults: Vec<(String, String)> = Vec::new();
    if !view.is_enforced {
        let what = "Slurm does not enforce limits of associations".to_owned();
        faults.push((what, "AccountingStorageEnforce=associations,limits in slurm.conf".to_owned()));
    }
    if !view.missing.is_empty() {
        let what = format!("Slurm has no account {}", names(&view.missing));
        faults.push((what, format!("sacctmgr add account {} cluster={cluster}", view.missing[0])));
    }
    if !view.unknown_groups.is_empty() {
        let what = format!(
            "the portal has no group {}: the totals of its account are not changed",
            names(&view.unknown_groups)
        );
        faults.push((what, "scheduler.slurm.accounts".to_owned()));
    }
    if let Some(first) = view.without.first() {
        let what = format!(
            "their group’s account has no association for {}, whose jobs are rejected there",
            names(&view.without)
        );
        let (user, account) = first.split_once(" in ").unwrap_or_default();
        faults.push((what, format!("sacctmgr add user {user} account={account} cluster={cluster}")));
    }
    if !view.by_partition.is_empty() {
        let what = format!(
            "associations for single partitions are not changed and still apply: {}",
            names(&view.by_partition)
        );
        faults.push((what, "sacctmgr show assoc format=account,user,partition,grptres".to_owned()));
    }
    if !view.uncounted.is_empty() {
        let kinds: Vec<String> = view.uncounted.iter().cloned().collect();
        let what = format!("Slurm does not count {}, so only the portal enforces these limits", names(&kinds));
        faults.push((what, format!("AccountingStorageTRES={} in slurm.conf", kinds.join(","))));
    }
    let replaced = view.replaced.iter().rev().filter(|(then, _)| now.seconds_since(*then) < REPORT_SECONDS);
    let replaced: Vec<String> = replaced.map(|(_, what)| what.clone()).collect();
    if !replaced.is_empty() {
        let what = format!("limits in Slurm that differed from the portal’s were replaced: {}", names(&replaced));
        faults.push((
            what,
            "set the intended limits on the quotas page; /admin/audit?action=slurm.limits lists all changes".to_owned(),
        ));
    }
    let ago = human_duration(now.seconds_since(at));
    let looked = format!("{cluster}: {} associations, checked {ago} ago", view.associations);
    let Some((_, fix)) = faults.first() else {
        return Finding::new(NAME, Level::Ok, format!("{looked}; they match the portal’s limits"));
    };
    let fix = fix.clone();
    let what: Vec<String> = faults.into_iter().map(|(what, _)| what).collect();
    Finding::new(NAME, Level::Warning, format!("{}; {looked}", what.join("; "))).fix(fix)
}

/// The first few, and how many more there are.
fn names(all: &[String]) -> String {
    let shown = all.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_mends_it() {
        let now = Timestamp(1_800_000_000_000);
        assert_eq!(judge(&View::default(), now).level, Level::Note);
        let well = View {
            at: Some(now.plus_seconds(-30)),
            cluster: "test".to_owned(),
            associations: 7,
            is_enforced: true,
            ..View::default()
        };
        let finding = judge(&well, now);
        assert_eq!((finding.level, finding.fix.as_str()), (Level::Ok, ""));
        assert_eq!(finding.what, "test: 7 associations, checked 30 s ago; they match the portal’s limits");
        let names: Vec<String> = (1..=7).map(|number| format!("u{number} in lab")).collect();
        let bad = View { is_enforced: false, without: names, missing: vec!["ml".to_owned()], ..well.clone() };
        let finding = judge(&bad, now);
        assert!(finding.level == Level::Warning && finding.fix.contains("AccountingStorageEnforce"), "{finding:?}");
        assert!(finding.what.contains("no account ml") && finding.what.contains("u5 in lab and 2 more"), "{finding:?}");
        let without = View { without: vec!["ada in lab".to_owned()], ..well.clone() };
        assert_eq!(judge(&without, now).fix, "sacctmgr add user ada account=lab cluster=test");
        let uncounted = View { uncounted: ["gres/gpu".to_owned()].into(), ..well.clone() };
        assert_eq!(judge(&uncounted, now).fix, "AccountingStorageTRES=gres/gpu in slurm.conf");
        let replaced = View { replaced: vec![(now, "ada in lab had cpu=9".to_owned())], ..well };
        let finding = judge(&replaced, now);
        assert!(finding.level == Level::Warning && finding.what.contains("ada in lab had cpu=9"), "{finding:?}");
        assert_eq!(
            judge(&replaced, now.plus_seconds(REPORT_SECONDS)).level,
            Level::Ok,
            "a day later it is told no more"
        );
    }
}
