//! What Slurm's associations and qualities of service mean in the portal's fields, for one person and
//! for the account of a group. A pure matter: how they are read, and when, is `read`'s.

use std::collections::{BTreeMap, HashMap};

use super::{
    plan::{amount_of, field_of},
    targets::unix_account,
};
use lyceum_db::quotas::QuotaGroup;
use lyceum_model::{
    User,
    quota::{Effective, Field, Limit, SlurmLimits, SlurmScope, SlurmSource, Source, Usage},
};

use crate::{
    admission::slurm_limits::{AccountLimits, SlurmLimitTable},
    scheduler::slurm::{
        accounting::Amounts,
        assoc_mgr::Record,
        qos::{Qos, QosTable},
    },
};

/// The associations, found by whose they are.
pub(super) struct Accounts<'a> {
    pub whole: BTreeMap<&'a str, &'a Record>,
    shares: HashMap<(&'a str, &'a str), &'a Record>,
    usual: HashMap<&'a str, &'a Record>,
}

impl<'a> Accounts<'a> {
    pub fn of(records: &'a [Record]) -> Self {
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
pub(super) fn reading(
    accounts: &Accounts<'_>,
    qualities: &QosTable,
    users: &[User],
    groups: &[(QuotaGroup, String)],
    otherwise: &str,
) -> SlurmLimitTable {
    let mut reading = SlurmLimitTable::default();
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
        reading.people.insert((user.id, None), slurms(accounts, qualities, account, usual));
        let mut theirs = groups.iter().filter(|(group, _)| user.groups.contains(&group.name)).peekable();
        if let (Some((only, _)), None) = (theirs.peek().copied(), theirs.clone().nth(1))
            && only.chargeable
        {
            reading.usual.insert(user.id, only.id);
        }
        for (group, account) in theirs {
            let share = accounts.shares.get(&(unix, account.as_str())).copied();
            reading.people.insert((user.id, Some(group.id)), slurms(accounts, qualities, account, share));
        }
    }
    reading
}

/// What somebody is kept to by their share of an account, and by the qualities of service that their work has.
/// Of two of these that limit the same, the first binds, and an account's limit of the same kind binds no more
/// (<https://slurm.schedmd.com/resource_limits.html>, “Hierarchy”).
fn slurms(accounts: &Accounts<'_>, qualities: &QosTable, account: &str, share: Option<&Record>) -> SlurmLimits {
    let Some(share) = share else {
        let source = match account {
            "" => SlurmSource::NoAccount,
            account => SlurmSource::NotInAccount(account.to_owned()),
        };
        return SlurmLimits { source: Source::Slurm(source), ..SlurmLimits::default() };
    };
    let source = Source::account(account);
    let layers = qualities.of(&share.association);
    let is_said = |of: fn(&Qos) -> &Amounts, kind: &str| layers.iter().any(|qos| of(qos).contains_key(kind));
    let is_theirs = |kind: &str| is_said(|qos| &qos.together, kind);
    let first =
        |of: fn(&Qos) -> Option<i64>| layers.iter().find_map(|qos| Some((of(qos)?, of_qos(qos, SlurmScope::User))));
    let of_account = |value: Option<i64>| value.map(|value| (value, source.clone()));

    let mut each = LeastLimits::default();
    each.bound(share.together.iter().filter(|(kind, _)| !is_theirs(kind)), &source);
    first_of_each_kind(&layers, |qos| &qos.each, &mut each, SlurmScope::User);
    let of_one = first(|qos| qos.jobs_each).or(of_account(share.jobs_each));
    let of_share = of_account(share.jobs).filter(|_| first(|qos| qos.jobs).is_none());
    for (jobs, source) in [of_one, of_share].into_iter().flatten() {
        each.add(Field::Sessions, jobs, &source);
        each.add(Field::Jobs, jobs, &source);
    }
    if let Some((minutes, source)) = first(|qos| qos.longest).or(of_account(share.longest)) {
        let seconds = minutes.saturating_mul(60);
        each.add(Field::MaxSessionSeconds, seconds, &source);
        each.add(Field::MaxJobSeconds, seconds, &source);
    }

    let mut most = LeastLimits::default();
    first_of_each_kind(&layers, |qos| &qos.one_job, &mut most, SlurmScope::OneJob);
    let of_share = share.one_job.iter().filter(|(kind, _)| !is_said(|qos| &qos.one_job, kind));
    most.bound(of_share, &of_account_in(account, SlurmScope::OneJob));
    first_of_each_kind(&layers, |qos| &qos.together, &mut most, SlurmScope::Total);
    for above in accounts.above(account) {
        let source = of_account_in(&above.association.account, SlurmScope::Total);
        most.bound(above.together.iter().filter(|(kind, _)| !is_theirs(kind)), &source);
    }
    // What the person may have anyway needs not be said twice.
    let (each, mut most) = (each.0, most.0);
    most.retain(|(field, most)| !each.iter().any(|(name, known)| name == field && known.limit <= most.limit));

    let of_one = first(|qos| qos.handed_in_each).or(of_account(share.handed_in_each));
    let of_share = of_account(share.handed_in).filter(|_| first(|qos| qos.handed_in).is_none());
    let handed_in = [of_one, of_share].into_iter().flatten().min_by_key(|(jobs, _)| *jobs);
    let limiting = layers.iter().filter(|qos| qos.limits_something());
    SlurmLimits {
        account: account.to_owned(),
        qualities: limiting.map(|qos| (qos.name.clone(), fields(&qos.each))).collect(),
        share: fields(&share.together),
        each,
        most,
        handed_in: handed_in.map(|(jobs, source)| Effective { limit: Limit::AtMost(jobs), source }),
        besides: besides(&share.minutes, "").chain(layers.iter().flat_map(|qos| of_all(qos))).collect(),
        source,
    }
}

/// Limits of fields, of which the least counts, with where it stands.
#[derive(Debug, Default)]
struct LeastLimits(Vec<(Field, Effective)>);

impl LeastLimits {
    fn bound<'a>(&mut self, amounts: impl Iterator<Item = (&'a String, &'a i64)>, source: &Source) {
        for (kind, amount) in amounts {
            if let Some(field) = field_of(kind) {
                let amount = amount_of(&field, *amount);
                self.add(field, amount, source);
            }
        }
    }

    fn add(&mut self, field: Field, value: i64, source: &Source) {
        let limit = Limit::AtMost(value);
        if !self.0.iter().any(|(name, known)| *name == field && known.limit <= limit) {
            self.0.retain(|(name, _)| *name != field);
            self.0.push((field, Effective { limit, source: source.clone() }));
        }
    }
}

/// Takes each kind from the first of them that limits it.
fn first_of_each_kind(layers: &[&Qos], of: fn(&Qos) -> &Amounts, least: &mut LeastLimits, scope: SlurmScope) {
    for (place, qos) in layers.iter().enumerate() {
        let before = &layers[..place];
        let fresh = of(qos).iter().filter(|(kind, _)| !before.iter().any(|qos| of(qos).contains_key(*kind)));
        least.bound(fresh, &of_qos(qos, scope));
    }
}

fn of_qos(qos: &Qos, scope: SlurmScope) -> Source {
    Source::Slurm(SlurmSource::Qos(qos.name.clone(), scope))
}

fn of_account_in(account: &str, scope: SlurmScope) -> Source {
    Source::Slurm(SlurmSource::Account(account.to_owned(), scope))
}

/// What all may hold together who charge an account, and what they do.
fn together(accounts: &Accounts<'_>, account: &str) -> AccountLimits {
    let source = Source::account(account);
    let Some(record) = accounts.whole.get(account) else {
        return AccountLimits { source, account: account.to_owned(), ..AccountLimits::default() };
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
    AccountLimits { source, account: account.to_owned(), limits, held, besides: besides(&record.minutes, "").collect() }
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
fn besides<'a>(minutes: &'a Amounts, whose: &'a str) -> impl Iterator<Item = String> + 'a {
    let named = minutes.iter().filter(|(kind, _)| field_of(kind).is_some());
    named.map(move |(kind, minutes)| format!("{minutes} minutes of {kind}{whose} (GrpTRESMins)"))
}

/// What is limited of all that has a quality of service, whoever's it is.
fn of_all(qos: &Qos) -> Vec<String> {
    let whose = format!(" of QOS {}", qos.name);
    let jobs = qos.jobs.map(|jobs| format!("{jobs} jobs{whose} at once (GrpJobs)"));
    let handed_in = qos.handed_in.map(|jobs| format!("{jobs} jobs{whose} in its queue (GrpSubmitJobs)"));
    besides(&qos.minutes, &whose).chain(jobs).chain(handed_in).collect()
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
            jobs_each: None,
            running: 0,
            handed_in: None,
            handed_in_each: None,
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
        let none = QosTable::default();
        let slurms = slurms(&accounts, &none, "lab", accounts.shares.get(&("ada", "lab")).copied());
        let fields = [Field::Gpus, Field::Cpus, Field::Sessions, Field::Jobs];
        assert_eq!(fields.map(|field| limit(&slurms.each, &field).0), [3, 4, 4, 4]);
        let longest = [Field::MaxSessionSeconds, Field::MaxJobSeconds].map(|field| limit(&slurms.each, &field).0);
        assert_eq!((longest, slurms.each.len()), ([5400; 2], 6));
        let most = [Field::Gpus, Field::Cpus, Field::MemoryBytes].map(|field| limit(&slurms.most, &field).0);
        assert_eq!((most, slurms.most.len()), ([2, 3, 2 << 30], 3));
        assert_eq!((&*slurms.source.to_string(), slurms.besides.len()), ("Slurm: account lab", 1));
        let nobody = super::slurms(&accounts, &none, "lab", None);
        assert_eq!((&*nobody.source.to_string(), nobody.each.len()), ("Slurm: not in account lab", 0));
    }

    fn limit(of: &[(Field, Effective)], field: &Field) -> (i64, String) {
        let (_, found) = of.iter().find(|(name, _)| name == field).unwrap_or_else(|| panic!("{field:?}: {of:?}"));
        (found.limit.value(), found.source.to_string())
    }

    /// What a QOS limits binds in the place of the same of an association, and beside all else.
    #[test]
    fn a_quality_of_service_in_the_portals_fields() {
        let records = [
            record("lab", None, &[("gres/gpu", 6), ("cpu", 12)]),
            Record {
                one_job: some(&[("gres/gpu", 4), ("cpu", 5)]),
                jobs: Some(30),
                jobs_each: Some(4),
                handed_in: Some(40),
                handed_in_each: Some(7),
                longest: Some(90),
                ..record("lab", Some("ada"), &[("gres/gpu", 3), ("cpu", 10)])
            },
        ];
        let accounts = Accounts::of(&records);
        let part = Qos {
            name: "part".to_owned(),
            each: some(&[("gres/gpu", 2)]),
            one_job: some(&[("gres/gpu", 1)]),
            longest: Some(30),
            ..Qos::default()
        };
        let own = Qos {
            name: "own".to_owned(),
            together: some(&[("cpu", 20)]),
            each: some(&[("gres/gpu", 1), ("cpu", 16)]),
            minutes: some(&[("gres/gpu", 600)]),
            jobs: Some(99),
            jobs_each: Some(9),
            handed_in_each: Some(50),
            longest: Some(600),
            ..Qos::default()
        };
        let qualities = QosTable::with(&[part, own], &records[1].association, "own", "part");
        let slurms = slurms(&accounts, &qualities, "lab", accounts.shares.get(&("ada", "lab")).copied());
        let each = |field| limit(&slurms.each, &field);
        assert_eq!(each(Field::Gpus), (2, "Slurm: QOS part".to_owned()), "the partition's decides first");
        assert_eq!(each(Field::Cpus), (16, "Slurm: QOS own".to_owned()), "GrpTRES of the association binds no more");
        assert_eq!(each(Field::Sessions), (9, "Slurm: QOS own".to_owned()), "and neither do its GrpJobs and MaxJobs");
        assert_eq!(each(Field::MaxJobSeconds), (1800, "Slurm: QOS part".to_owned()));
        let most = |field| limit(&slurms.most, &field);
        assert_eq!(most(Field::Gpus), (1, "Slurm: QOS part, one job".to_owned()));
        assert_eq!(most(Field::Cpus), (5, "Slurm: account lab, one job".to_owned()));
        let handed_in = slurms.handed_in.unwrap();
        assert_eq!((handed_in.limit, &handed_in.source), (Limit::AtMost(40), &Source::account("lab")));
        let names: Vec<&str> = slurms.qualities.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, slurms.besides.len()), (vec!["part", "own"], 2));
        assert_eq!(slurms.share, fields(&records[1].together), "what stands there, for who changes it");
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
}
