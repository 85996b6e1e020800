//! The mode `read`: Slurm keeps the limits, and this file keeps at reading them for everybody, a
//! few questions a round however many people there are. What an association means in the portal's
//! fields is `meaning`'s to decide; what was read last stands until Slurm answers again.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    Error, NAME, Result,
    meaning::{Accounts, reading},
    names,
};
use lyceum_model::{Finding, Loops, Timestamp, finding::Level, time::human_duration};

use crate::{
    admission::{Admission, slurm_limits::SharedSlurmLimits},
    scheduler::slurm::{
        Settings, assoc_mgr,
        qos::{self, QosTable},
    },
};

/// Reads Slurm's limits, again and again.
#[derive(Debug)]
pub struct Reader {
    admission: Admission,
    kept: SharedSlurmLimits,
    settings: Settings,
    every: Duration,
    seen: Mutex<ReadOutcome>,
    /// What the accounting said last: it may be away while the controller is there.
    qualities: Mutex<QosTable>,
}

/// What the last good look found that somebody should know.
#[derive(Clone, Debug, Default)]
struct ReadOutcome {
    at: Option<Timestamp>,
    cluster: String,
    associations: usize,
    by_partition: usize,
    is_enforced: bool,
    /// Accounts of the settings that Slurm does not know, or does not show.
    missing: Vec<String>,
    /// Groups of the settings that are none of the portal's.
    unknown_groups: Vec<String>,
    /// What brought no answer since.
    trouble: Option<String>,
}

/// Slurm is asked once in so many intervals.
const READ_INTERVAL_ROUNDS: u32 = 3;

impl Reader {
    /// Nothing where the portal keeps the limits.
    #[must_use]
    pub fn new(admission: Admission, settings: &Settings) -> Option<Arc<Self>> {
        let kept = admission.slurm_limits.clone()?;
        let every = Duration::from_secs(settings.interval.unsigned_abs()) * READ_INTERVAL_ROUNDS;
        Some(Arc::new(Self {
            admission,
            kept,
            settings: settings.clone(),
            every,
            seen: Mutex::default(),
            qualities: Mutex::default(),
        }))
    }

    /// Keeps what the portal says as Slurm has it, for ever.
    pub async fn run(self: Arc<Self>, loops: Loops) {
        loop {
            let round = loops.begin(NAME, Some(self.every));
            let outcome = self.look().await;
            round.end(&outcome);
            let trouble = outcome.err().map(|error| error.to_string());
            let before = std::mem::replace(&mut self.seen.lock().trouble, trouble.clone());
            match trouble {
                Some(why) if before.is_none() => tracing::warn!(why, "failed to read slurm's limits"),
                _ => {}
            }
            tokio::time::sleep(self.every).await;
        }
    }

    async fn look(&self) -> Result<()> {
        let said = assoc_mgr::read(&self.settings).await.map_err(Error::Slurm)?;
        let answer = qos::read(&self.settings, &said.cluster).await;
        let away = answer.map(|qualities| *self.qualities.lock() = qualities).map_err(Error::Slurm);
        let users = self.admission.db.list_users().await?;
        let mut groups = Vec::new();
        let mut unknown_groups = Vec::new();
        for (name, account) in &self.settings.accounts {
            match self.admission.db.find_quota_group(name).await?.filter(|group| group.absent_since.is_none()) {
                Some(group) => groups.push((group, account.to_ascii_lowercase())),
                None => unknown_groups.push(name.clone()),
            }
        }
        let accounts = Accounts::of(&said.records);
        let named = self.settings.accounts.values().chain(Some(&self.settings.account).filter(|name| !name.is_empty()));
        let mut missing: Vec<String> = named.map(|name| name.to_ascii_lowercase()).collect();
        missing.retain(|name| !accounts.whole.contains_key(name.as_str()));
        missing.dedup();
        let otherwise = self.settings.account.to_ascii_lowercase();
        if self.kept.set(reading(&accounts, &self.qualities.lock(), &users, &groups, &otherwise)) {
            tracing::info!(associations = said.records.len(), "slurm's limits changed");
        }
        let before = self.seen.lock().at.filter(|_| away.is_err());
        let at = before.or(Some(self.admission.clock.now()));
        let associations = said.records.len().saturating_add(said.by_partition);
        let (cluster, is_enforced, by_partition) = (said.cluster, said.is_enforced, said.by_partition);
        *self.seen.lock() = ReadOutcome {
            at,
            cluster,
            associations,
            by_partition,
            is_enforced,
            missing,
            unknown_groups,
            trouble: None,
        };
        away
    }

    /// How what is known of Slurm's limits is, for the health report.
    pub fn finding(&self) -> Finding {
        judge(&self.seen.lock(), self.admission.clock.now())
    }
}

/// What is not as it should be, all of it, with what mends the first.
fn judge(seen: &ReadOutcome, now: Timestamp) -> Finding {
    let ReadOutcome { cluster, .. } = seen;
    let Some(at) = seen.at else {
        let why = seen.trouble.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let level = if seen.trouble.is_some() { Level::Warning } else { Level::Note };
        return Finding::new(
            NAME,
            level,
            format!("Slurm’s limits have not been read yet, so no quotas are shown{why}"),
        )
        .fix("scontrol show assoc_mgr flags=assoc");
    };
    let ago = human_duration(now.seconds_since(at));
    let mut faults: Vec<(String, String)> = Vec::new();
    if let Some(why) = &seen.trouble {
        let what = format!("{why}; until it does, the limits read {ago} ago apply");
        faults.push((what, "scontrol ping; sacctmgr show qos; systemctl status munge slurmctld slurmdbd".to_owned()));
    }
    if !seen.is_enforced {
        let what = "Slurm does not enforce limits of associations, and neither does the portal".to_owned();
        faults.push((what, "AccountingStorageEnforce=associations,limits in slurm.conf".to_owned()));
    }
    if let Some(first) = seen.missing.first() {
        let what = format!("Slurm has no account {}, or hides it from the portal", names(&seen.missing));
        faults.push((what, format!("sacctmgr add account {first} cluster={cluster}")));
    }
    if !seen.unknown_groups.is_empty() {
        let what = format!("the portal has no group {}, but it has an account", names(&seen.unknown_groups));
        faults.push((what, "scheduler.slurm.accounts".to_owned()));
    }
    let partitions = match seen.by_partition {
        0 => String::new(),
        some => format!(", {some} of them for single partitions, whose limits are not shown"),
    };
    let read = format!("{cluster}: {} associations{partitions}, read {ago} ago", seen.associations);
    let Some((_, fix)) = faults.first() else {
        return Finding::new(NAME, Level::Ok, format!("{read}; Slurm manages the limits"));
    };
    let fix = fix.clone();
    let what: Vec<String> = faults.into_iter().map(|(what, _)| what).collect();
    Finding::new(NAME, Level::Warning, format!("{}; {read}", what.join("; "))).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_is_told() {
        let now = Timestamp(1_800_000_000_000);
        assert_eq!(judge(&ReadOutcome::default(), now).level, Level::Note);
        let away = Some("Slurm’s controller does not respond: it took too long".to_owned());
        assert_eq!(judge(&ReadOutcome { trouble: away.clone(), ..ReadOutcome::default() }, now).level, Level::Warning);
        let well = ReadOutcome {
            at: Some(now.plus_seconds(-30)),
            cluster: "test".to_owned(),
            associations: 7,
            is_enforced: true,
            ..ReadOutcome::default()
        };
        let finding = judge(&well, now);
        assert_eq!(
            (finding.level, finding.what.as_str()),
            (Level::Ok, "test: 7 associations, read 30 s ago; Slurm manages the limits")
        );
        let told = judge(&ReadOutcome { trouble: away, ..well.clone() }, now);
        assert!(told.level == Level::Warning && told.what.contains("the limits read 30 s ago apply"), "{told:?}");
        let missing = judge(&ReadOutcome { missing: vec!["lab".to_owned()], ..well.clone() }, now);
        assert_eq!(missing.fix, "sacctmgr add account lab cluster=test");
        assert!(judge(&ReadOutcome { is_enforced: false, ..well }, now).fix.contains("AccountingStorageEnforce"));
    }
}
