//! The mode `read`: Slurm keeps the limits, and this file keeps at reading them for everybody, two
//! questions a round however many people there are. What an association means in the portal's
//! fields is a pure matter; what was read last stands until the controller answers again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Error, NAME, Result, names,
    plan::{amount_of, field_of},
    wanted::unix_account,
};
use crate::{
    admission::{
        Admission,
        kept::{Kept, Reading, Together},
    },
    db::quotas::QuotaGroup,
    model::{
        Finding, Loops, Timestamp, User,
        finding::Level,
        quota::{Effective, Field, Limit, Slurms, Usage},
        time::human_duration,
    },
    scheduler::slurm::{
        Settings,
        accounting::Amounts,
        assoc_mgr::{self, Record},
    },
};

/// Reads Slurm's limits, again and again.
#[derive(Debug)]
pub struct Reader {
    admission: Admission,
    kept: Kept,
    settings: Settings,
    every: Duration,
    seen: Mutex<Seen>,
}

/// What the last good look found that somebody should know.
#[derive(Clone, Debug, Default)]
struct Seen {
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
const ROUND: u32 = 3;

impl Reader {
    /// Nothing where the portal keeps the limits.
    #[must_use]
    pub fn new(admission: Admission, settings: &Settings) -> Option<Arc<Self>> {
        let kept = admission.kept.clone()?;
        let every = Duration::from_secs(settings.interval.unsigned_abs()) * ROUND;
        Some(Arc::new(Self { admission, kept, settings: settings.clone(), every, seen: Mutex::default() }))
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
                Some(why) if before.is_none() => tracing::warn!(why, "slurm's limits could not be read"),
                _ => {}
            }
            tokio::time::sleep(self.every).await;
        }
    }

    async fn look(&self) -> Result<()> {
        let said = assoc_mgr::read(&self.settings).await.map_err(Error::Slurm)?;
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
        if self.kept.set(reading(&accounts, &users, &groups, &self.settings.account.to_ascii_lowercase())) {
            tracing::info!(associations = said.records.len(), "slurm's limits have changed");
        }
        let at = Some(self.admission.clock.now());
        let associations = said.records.len().saturating_add(said.by_partition);
        let (cluster, is_enforced, by_partition) = (said.cluster, said.is_enforced, said.by_partition);
        *self.seen.lock() =
            Seen { at, cluster, associations, by_partition, is_enforced, missing, unknown_groups, trouble: None };
        Ok(())
    }

    /// How what is known of Slurm's limits is, for the health report.
    pub fn finding(&self) -> Finding {
        judge(&self.seen.lock(), self.admission.clock.now())
    }
}

/// The associations, found by whose they are.
struct Accounts<'a> {
    whole: BTreeMap<&'a str, &'a Record>,
    shares: HashMap<(&'a str, &'a str), &'a Record>,
    usual: HashMap<&'a str, &'a Record>,
}

impl<'a> Accounts<'a> {
    fn of(records: &'a [Record]) -> Self {
        let (mut whole, mut shares, mut usual) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        for record in records {
            let account = record.association.account.as_str();
            match record.association.user.as_deref() {
                None => drop(whole.insert(account, record)),
                Some(user) => {
                    shares.insert((user, account), record);
                    if record.is_default {
                        usual.insert(user, record);
                    }
                }
            }
        }
        Self { whole, shares, usual }
    }

    /// An account and those above it, from below.
    fn above(&self, account: &str) -> Vec<&'a Record> {
        let mut found: Vec<&Record> = Vec::new();
        let mut next = self.whole.get(account).copied();
        while let Some(record) = next {
            // Slurm's tree is one; what says otherwise shall not keep us here.
            if found.contains(&record) {
                break;
            }
            found.push(record);
            next = record.parent.as_deref().and_then(|parent| self.whole.get(parent).copied());
        }
        found
    }
}

/// What Slurm says, in the portal's fields, for everybody whom the portal knows.
fn reading(accounts: &Accounts<'_>, users: &[User], groups: &[(QuotaGroup, String)], otherwise: &str) -> Reading {
    let mut reading = Reading::default();
    for (group, account) in groups {
        reading.groups.insert(group.id, together(accounts, account));
    }
    for user in users {
        let unix = unix_account(user);
        let usual = match otherwise {
            "" => accounts.usual.get(unix).copied(),
            account => accounts.shares.get(&(unix, account)).copied(),
        };
        let account = usual.map_or(otherwise, |record| record.association.account.as_str());
        reading.people.insert((user.id, None), slurms(accounts, account, usual));
        let mut theirs = groups.iter().filter(|(group, _)| user.groups.contains(&group.name)).peekable();
        if let (Some((only, _)), None) = (theirs.peek().copied(), theirs.clone().nth(1))
            && only.chargeable
        {
            reading.usual.insert(user.id, only.id);
        }
        for (group, account) in theirs {
            let share = accounts.shares.get(&(unix, account.as_str())).copied();
            reading.people.insert((user.id, Some(group.id)), slurms(accounts, account, share));
        }
    }
    reading
}

/// What somebody is kept to by their share of an account.
fn slurms(accounts: &Accounts<'_>, account: &str, share: Option<&Record>) -> Slurms {
    let Some(share) = share else {
        let source = match account {
            "" => "Slurm: no account".to_owned(),
            account => format!("Slurm: not in account {account}"),
        };
        return Slurms { source, ..Slurms::default() };
    };
    let source = format!("Slurm: account {account}");
    let mut each = fields(&share.together);
    if let Some(jobs) = share.jobs {
        each.extend([Field::Sessions, Field::Jobs].map(|field| (field, Limit::AtMost(jobs))));
    }
    if let Some(minutes) = share.longest {
        let seconds = Limit::AtMost(minutes.saturating_mul(60));
        each.extend([Field::MaxSessionSeconds, Field::MaxJobSeconds].map(|field| (field, seconds)));
    }
    let mut most: Vec<(Field, Effective)> = Vec::new();
    let mut bound = |amounts: &Amounts, source: &str| {
        for (field, limit) in fields(amounts) {
            let is_less = |(name, known): &(Field, Effective)| *name == field && known.limit <= limit;
            if !most.iter().any(is_less) {
                most.retain(|(name, _)| *name != field);
                most.push((field, Effective { limit, source: source.to_owned().into() }));
            }
        }
    };
    bound(&share.one_job, &format!("{source}, one job"));
    for above in accounts.above(account) {
        bound(&above.together, &format!("Slurm: account {}, all together", above.association.account));
    }
    // What the person may have anyway needs not be said twice.
    most.retain(|(field, most)| !each.iter().any(|(name, limit)| name == field && *limit <= most.limit));
    Slurms { source, account: account.to_owned(), each, most, handed_in: share.handed_in, besides: besides(share) }
}

/// What all may hold together who charge an account, and what they do.
fn together(accounts: &Accounts<'_>, account: &str) -> Together {
    let source = format!("Slurm: account {account}");
    let Some(record) = accounts.whole.get(account) else {
        return Together { source, account: account.to_owned(), ..Together::default() };
    };
    let mut limits = fields(&record.together);
    if let Some(jobs) = record.jobs {
        limits.extend([Field::Sessions, Field::Jobs].map(|field| (field, Limit::AtMost(jobs))));
    }
    let mut held = Usage { sessions: record.running, jobs: record.running, ..Usage::default() };
    for (kind, amount) in &record.held {
        match field_of(kind) {
            Some(Field::Gpus) => held.gpus = *amount,
            Some(Field::GpusOf(model)) => drop(held.gpus_by_model.insert(model, *amount)),
            Some(Field::Cpus) => held.cpus = *amount,
            Some(Field::MemoryBytes) => held.memory_bytes = amount_of(&Field::MemoryBytes, *amount),
            _ => {}
        }
    }
    Together { source, account: account.to_owned(), limits, held, besides: besides(record) }
}

fn fields(amounts: &Amounts) -> Vec<(Field, Limit)> {
    let limit = |(kind, amount): (&String, &i64)| {
        let field = field_of(kind)?;
        let limit = Limit::AtMost(amount_of(&field, *amount));
        Some((field, limit))
    };
    amounts.iter().filter_map(limit).collect()
}

/// What Slurm limits in minutes it counts by itself: decayed, or set back, by its own settings.
fn besides(record: &Record) -> Vec<String> {
    let named = record.minutes.iter().filter(|(kind, _)| field_of(kind).is_some());
    named.map(|(kind, minutes)| format!("{minutes} minutes of {kind} (GrpTRESMins)")).collect()
}

/// What is not as it should be, all of it, with what mends the first.
fn judge(seen: &Seen, now: Timestamp) -> Finding {
    let Seen { cluster, .. } = seen;
    let Some(at) = seen.at else {
        let why = seen.trouble.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let level = if seen.trouble.is_some() { Level::Warning } else { Level::Note };
        return Finding::new(NAME, level, format!("Slurm’s limits have not been read yet, and no quota is shown{why}"))
            .mend("scontrol show assoc_mgr flags=assoc");
    };
    let ago = human_duration(now.seconds_since(at));
    let mut faults: Vec<(String, String)> = Vec::new();
    if let Some(why) = &seen.trouble {
        let what = format!("{why}; the limits of {ago} ago stand until it does");
        faults.push((what, "scontrol ping; systemctl status munge slurmctld".to_owned()));
    }
    if !seen.is_enforced {
        let what = "Slurm keeps nobody to limits of associations, and neither does the portal".to_owned();
        faults.push((what, "AccountingStorageEnforce=associations,limits in slurm.conf".to_owned()));
    }
    if let Some(first) = seen.missing.first() {
        let what = format!("Slurm knows no account {}, or hides it from the portal", names(&seen.missing));
        faults.push((what, format!("sacctmgr add account {first} cluster={cluster}")));
    }
    if !seen.unknown_groups.is_empty() {
        let what = format!("the portal has no group {}, which has an account", names(&seen.unknown_groups));
        faults.push((what, "scheduler.slurm.accounts".to_owned()));
    }
    let partitions = match seen.by_partition {
        0 => String::new(),
        some => format!(", {some} of them with single partitions, whose limits are not shown"),
    };
    let read = format!("{cluster}: {} associations{partitions}, read {ago} ago", seen.associations);
    let Some((_, mend)) = faults.first() else {
        return Finding::new(NAME, Level::Ok, format!("{read}; Slurm keeps the limits"));
    };
    let mend = mend.clone();
    let what: Vec<String> = faults.into_iter().map(|(what, _)| what).collect();
    Finding::new(NAME, Level::Warning, format!("{}; {read}", what.join("; "))).mend(mend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::slurm::accounting::Association;

    fn some(list: &[(&str, i64)]) -> Amounts {
        list.iter().map(|(kind, amount)| ((*kind).to_owned(), *amount)).collect()
    }

    fn record(account: &str, user: Option<&str>, together: &[(&str, i64)]) -> Record {
        Record {
            association: Association { account: account.to_owned(), user: user.map(str::to_owned) },
            parent: None,
            is_default: false,
            together: some(together),
            held: Amounts::new(),
            one_job: Amounts::new(),
            jobs: None,
            running: 0,
            handed_in: None,
            longest: None,
            minutes: Amounts::new(),
        }
    }

    #[test]
    fn an_association_in_the_portals_fields() {
        let records = [
            record("uni", None, &[("gres/gpu", 8), ("mem", 2048)]),
            Record { parent: Some("uni".to_owned()), ..record("lab", None, &[("gres/gpu", 6), ("cpu", 3)]) },
            Record {
                one_job: some(&[("gres/gpu", 2), ("node", 1)]),
                jobs: Some(4),
                longest: Some(90),
                minutes: some(&[("gres/gpu", 600), ("billing", 7)]),
                ..record("lab", Some("ada"), &[("gres/gpu", 3), ("cpu", 4), ("energy", 9)])
            },
        ];
        let accounts = Accounts::of(&records);
        let slurms = slurms(&accounts, "lab", accounts.shares.get(&("ada", "lab")).copied());
        let at_most = |field: Field, value| (field, Limit::AtMost(value));
        assert_eq!(
            slurms.each,
            [
                at_most(Field::Cpus, 4),
                at_most(Field::Gpus, 3),
                at_most(Field::Sessions, 4),
                at_most(Field::Jobs, 4),
                at_most(Field::MaxSessionSeconds, 5400),
                at_most(Field::MaxJobSeconds, 5400)
            ]
        );
        let mut most: Vec<_> = slurms.most.iter().map(|(field, most)| (field.clone(), most.limit.value())).collect();
        most.sort();
        assert_eq!(most, [(Field::Gpus, 2), (Field::Cpus, 3), (Field::MemoryBytes, 2 << 30)]);
        assert_eq!((slurms.source.as_str(), slurms.besides.len()), ("Slurm: account lab", 1));
        let nobody = super::slurms(&accounts, "lab", None);
        assert_eq!((nobody.source.as_str(), nobody.each.len()), ("Slurm: not in account lab", 0));
    }

    #[test]
    fn a_tree_that_is_a_ring_is_left() {
        let up = |account: &str, parent: &str| Record {
            parent: Some(parent.to_owned()),
            ..record(account, None, &[("cpu", 1)])
        };
        let records = [up("a", "b"), up("b", "a")];
        assert_eq!(Accounts::of(&records).above("a").len(), 2);
    }

    #[test]
    fn what_is_not_well_is_told() {
        let now = Timestamp(1_800_000_000_000);
        assert_eq!(judge(&Seen::default(), now).level, Level::Note);
        let away = Some("Slurm’s controller does not answer: it took too long".to_owned());
        assert_eq!(judge(&Seen { trouble: away.clone(), ..Seen::default() }, now).level, Level::Warning);
        let well = Seen {
            at: Some(now.plus_seconds(-30)),
            cluster: "test".to_owned(),
            associations: 7,
            is_enforced: true,
            ..Seen::default()
        };
        let finding = judge(&well, now);
        assert_eq!(
            (finding.level, finding.what.as_str()),
            (Level::Ok, "test: 7 associations, read 30 s ago; Slurm keeps the limits")
        );
        let told = judge(&Seen { trouble: away, ..well.clone() }, now);
        assert!(told.level == Level::Warning && told.what.contains("the limits of 30 s ago stand"), "{told:?}");
        let missing = judge(&Seen { missing: vec!["lab".to_owned()], ..well.clone() }, now);
        assert_eq!(missing.mend, "sacctmgr add account lab cluster=test");
        assert!(judge(&Seen { is_enforced: false, ..well }, now).mend.contains("AccountingStorageEnforce"));
    }
}
