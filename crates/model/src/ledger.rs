//! Everything that was held and is over, in columns of memory, beside what is held still; and sums
//! of it: the overlap of each allocation with the time that is asked about, one after another. A
//! hundred thousand take a millisecond, which no sum kept for each day can do when most people use
//! something on few days. Where allocations come from, and names, is `db`'s business.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Timestamp,
    quota::ConsumedTime,
    timeline::{self, Span},
};

/// Groups usage in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageGrouping {
    User,
    Group,
    GpuModel,
}

/// Selects the allocations that are summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageScope {
    Everybody,
    Owner(String),
    /// What is charged to these groups.
    Groups(HashSet<String>),
}

/// Describes one allocation.
#[derive(Clone, Copy, Debug)]
pub struct LedgerAllocation<'a> {
    pub owner: &'a str,
    /// The group that is charged; empty where there is none.
    pub group: &'a str,
    /// The GPUs as they are stored.
    pub gpu_list: &'a str,
    /// Whose allocation it is where that one may have several, for it was started again; else empty.
    pub session: &'a str,
    /// Nobody started it through the portal.
    pub from_shell: bool,
    pub gpus: i64,
    pub cpus: i64,
    pub from: Timestamp,
    /// `None` while it is held.
    pub to: Option<Timestamp>,
}

/// What somebody, a group or a list of GPUs was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// GPUs and cores × time.
    pub spent: ConsumedTime,
    /// The time itself.
    pub milliseconds: i64,
    /// How many sessions there were, however often one was started.
    pub sessions: i64,
}

/// What was used in a time.
#[derive(Clone, Debug, Default)]
pub struct UsageSums<'a> {
    /// Of each owner (by place in [`Ledger::owners`]), group or list of GPUs that held something then.
    pub each: Vec<(usize, &'a Arc<str>, UsageSum)>,
    /// The part of all of it that was not started through the portal.
    pub from_shell: UsageSum,
}

/// What was used in one span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedIn {
    pub span: Span,
    pub spent: ConsumedTime,
    /// How many sessions began in it.
    pub sessions: i64,
}

/// All allocations, each in 56 bytes.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    over: Vec<LedgerEntry>,
    open: Vec<LedgerEntry>,
    owners: StringTable,
    groups: StringTable,
    gpu_lists: StringTable,
    sessions: StringTable,
}

#[derive(Clone, Copy, Debug)]
struct LedgerEntry {
    from: i64,
    /// `OPEN` while it is held.
    to: i64,
    gpus: i64,
    cpus: i64,
    /// Places in the lists of words.
    owner: u32,
    group: u32,
    gpu_list: u32,
    /// `ALONE` where its session has no other.
    session: u32,
    from_shell: bool,
}

const OPEN: i64 = i64::MAX;
const ALONE: u32 = u32::MAX;

impl Ledger {
    /// Adds what is over.
    pub fn add(&mut self, held: &LedgerAllocation<'_>) {
        let line = self.line(held);
        self.over.push(line);
    }

    /// Replaces what is held still.
    pub fn set_open<'a>(&mut self, open: impl IntoIterator<Item = LedgerAllocation<'a>>) {
        self.open.clear();
        for held in open {
            let line = self.line(&held);
            self.open.push(line);
        }
    }

    fn line(&mut self, held: &LedgerAllocation<'_>) -> LedgerEntry {
        LedgerEntry {
            from: held.from.0,
            to: held.to.map_or(OPEN, |to| to.0),
            gpus: held.gpus,
            cpus: held.cpus,
            owner: self.owners.place(held.owner),
            group: self.groups.place(held.group),
            gpu_list: self.gpu_lists.place(held.gpu_list),
            session: if held.session.is_empty() { ALONE } else { self.sessions.place(held.session) },
            from_shell: held.from_shell,
        }
    }

    /// Everybody who ever held something, in the order in which they came.
    #[must_use]
    pub fn owners(&self) -> &[Arc<str>] {
        &self.owners.all
    }

    /// What was used between two moments. What is held still counts until `now`.
    #[must_use]
    pub fn sums(
        &self,
        by: UsageGrouping,
        of: &UsageScope,
        from: Timestamp,
        to: Timestamp,
        now: Timestamp,
    ) -> UsageSums<'_> {
        let words = match by {
            UsageGrouping::User => &self.owners,
            UsageGrouping::Group => &self.groups,
            UsageGrouping::GpuModel => &self.gpu_lists,
        };
        let mut sums = vec![UsageSum::default(); words.all.len()];
        let mut from_shell = UsageSum::default();
        let (mut seen, mut seen_from_shell) = (HashSet::new(), HashSet::new());
        for line in self.lines(of) {
            let part = line.part(from, to, now);
            if part <= 0 {
                continue;
            }
            if line.from_shell {
                from_shell.add(line, part, &mut seen_from_shell);
            }
            // Cores alone are of no model.
            if by == UsageGrouping::GpuModel && line.gpus == 0 {
                continue;
            }
            let key = match by {
                UsageGrouping::User => line.owner,
                UsageGrouping::Group => line.group,
                UsageGrouping::GpuModel => line.gpu_list,
            };
            sums[key as usize].add(line, part, &mut seen);
        }
        let used = sums.into_iter().zip(&words.all).enumerate();
        let used = used.filter(|(_, (sum, _))| sum.sessions > 0);
        UsageSums { each: used.map(|(place, (sum, word))| (place, word, sum)).collect(), from_shell }
    }

    /// Returns what each owner (by place in [`Ledger::owners`]) used between two moments of what was charged to each
    /// group. Each allocation counts once: in the group that was charged, whichever others its owner belongs to.
    #[must_use]
    pub fn sums_by_group_and_owner(
        &self,
        of: &UsageScope,
        from: Timestamp,
        to: Timestamp,
        now: Timestamp,
    ) -> Vec<(&Arc<str>, usize, UsageSum)> {
        let (mut sums, mut seen) = (HashMap::<_, UsageSum>::new(), HashSet::new());
        for line in self.lines(of) {
            let part = line.part(from, to, now);
            if part > 0 {
                sums.entry((line.group, line.owner)).or_default().add(line, part, &mut seen);
            }
        }
        sums.into_iter().map(|((group, owner), sum)| (&self.groups.all[group as usize], owner as usize, sum)).collect()
    }

    /// What was used in each span. They follow one another, and none reaches beyond now, up to
    /// which what is held still counts.
    #[must_use]
    pub fn spans(&self, of: &UsageScope, spans: &[Span]) -> Vec<UsedIn> {
        self.spans_by(of, spans, 1, |_| 0).remove(0)
    }

    /// The same of what was charged to each group.
    #[must_use]
    pub fn group_spans(&self, of: &UsageScope, spans: &[Span]) -> Vec<(&Arc<str>, Vec<UsedIn>)> {
        let used = self.spans_by(of, spans, self.groups.all.len(), |line| line.group as usize);
        self.groups.all.iter().zip(used).collect()
    }

    /// What was used in each span, for each of so many keys.
    fn spans_by(
        &self,
        of: &UsageScope,
        spans: &[Span],
        keys: usize,
        key: impl Fn(&LedgerEntry) -> usize,
    ) -> Vec<Vec<UsedIn>> {
        let nothing =
            spans.iter().map(|span| UsedIn { span: *span, spent: ConsumedTime::default(), sessions: 0 }).collect();
        let mut used: Vec<Vec<UsedIn>> = vec![nothing; keys];
        let mut first: HashMap<u32, (i64, usize)> = HashMap::new();
        let mut near = 0;
        for line in self.lines(of) {
            let (from, to, key) = (Timestamp(line.from), Timestamp(line.to), key(line));
            near = timeline::first_after(spans, from, near);
            timeline::overlaps(spans, near, from, to, |place, part| {
                timeline::add(&mut used[key][place].spent, (line.gpus, line.cpus), part);
            });
            if line.session != ALONE {
                let begun = (line.from, key);
                first.entry(line.session).and_modify(|first| *first = begun.min(*first)).or_insert(begun);
            } else if let Some(place) = timeline::place(spans, from, near) {
                used[key][place].sessions += 1;
            }
        }
        for (from, key) in first.into_values() {
            if let Some(place) = timeline::place(spans, Timestamp(from), near) {
                used[key][place].sessions += 1;
            }
        }
        used
    }

    fn lines(&self, of: &UsageScope) -> impl Iterator<Item = &LedgerEntry> {
        let (owner, groups) = match of {
            UsageScope::Everybody => (None, None),
            // Nobody has the number that stands for who never held anything.
            UsageScope::Owner(id) => (Some(self.owners.places.get(id.as_str()).copied().unwrap_or(u32::MAX)), None),
            UsageScope::Groups(ids) => {
                (None, Some(self.groups.all.iter().map(|id| ids.contains(&**id)).collect::<Vec<_>>()))
            }
        };
        self.over.iter().chain(&self.open).filter(move |line| {
            owner.is_none_or(|owner| line.owner == owner)
                && groups.as_ref().is_none_or(|groups| groups[line.group as usize])
        })
    }
}

impl UsedIn {
    /// Adds what was used in the same span.
    pub fn merge(&mut self, other: &Self) {
        self.spent.gpu_milliseconds = self.spent.gpu_milliseconds.saturating_add(other.spent.gpu_milliseconds);
        self.spent.cpu_milliseconds = self.spent.cpu_milliseconds.saturating_add(other.spent.cpu_milliseconds);
        self.sessions += other.sessions;
    }
}

impl UsageSum {
    /// Adds what other sessions used.
    pub fn merge(&mut self, other: &Self) {
        self.spent.gpu_milliseconds = self.spent.gpu_milliseconds.saturating_add(other.spent.gpu_milliseconds);
        self.spent.cpu_milliseconds = self.spent.cpu_milliseconds.saturating_add(other.spent.cpu_milliseconds);
        self.milliseconds = self.milliseconds.saturating_add(other.milliseconds);
        self.sessions += other.sessions;
    }

    /// Adds a part of an allocation (milliseconds); `seen` are the sessions that count already.
    fn add(&mut self, line: &LedgerEntry, part: i64, seen: &mut HashSet<u32>) {
        timeline::add(&mut self.spent, (line.gpus, line.cpus), part);
        self.milliseconds = self.milliseconds.saturating_add(part);
        self.sessions += i64::from(line.session == ALONE || seen.insert(line.session));
    }
}

impl LedgerEntry {
    /// How much of it lies between two moments (milliseconds).
    fn part(&self, from: Timestamp, to: Timestamp, now: Timestamp) -> i64 {
        let end = if self.to == OPEN { now.0 } else { self.to };
        end.min(to.0).saturating_sub(self.from.max(from.0))
    }
}

/// Each text once, known by its place.
#[derive(Clone, Debug, Default)]
struct StringTable {
    all: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
}

impl StringTable {
    fn place(&mut self, word: &str) -> u32 {
        if let Some(place) = self.places.get(word) {
            return *place;
        }
        let place = u32::try_from(self.all.len()).expect("far fewer than four thousand million people");
        let word: Arc<str> = word.into();
        self.all.push(word.clone());
        self.places.insert(word, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Who asked for what, and each start of it: its beginning, and its length unless it is held still.
    type One = ((usize, usize, usize, i64, i64), Vec<(i64, Option<i64>)>);

    const OWNERS: [&str; 3] = ["ada", "bob", "cleo"];
    const GROUPS: [&str; 3] = ["", "vision", "speech"];
    const LISTS: [&str; 2] = ["[]", "[1]"];

    const SESSIONS: [&str; 20] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

    /// All that was held, with the place of whose it was.
    fn all(ones: &[One]) -> Vec<(usize, LedgerAllocation<'static>)> {
        let starts = |(place, ((owner, group, list, gpus, cpus), starts)): (usize, &One)| {
            let session = if starts.len() == 1 { "" } else { SESSIONS[place] };
            let (owner, group, gpu_list, gpus, cpus) = (OWNERS[*owner], GROUPS[*group], LISTS[*list], *gpus, *cpus);
            let held = move |(from, length): &(i64, Option<i64>)| {
                let (from, to) = (Timestamp(*from), length.map(|length| Timestamp(from + length)));
                (
                    place,
                    LedgerAllocation {
                        owner,
                        group,
                        gpu_list,
                        session,
                        from_shell: place % 2 == 1,
                        gpus,
                        cpus,
                        from,
                        to,
                    },
                )
            };
            starts.iter().map(held).collect::<Vec<_>>()
        };
        ones.iter().enumerate().flat_map(starts).collect()
    }

    fn ones() -> impl Strategy<Value = Vec<One>> {
        let start = (-50..150i64, prop::option::weighted(0.8, 0..80i64));
        let one = ((0..3usize, 0..3usize, 0..2usize, 0..9i64, 0..65i64), prop::collection::vec(start, 1..4));
        prop::collection::vec(one, 0..20)
    }

    fn ledger(all: &[(usize, LedgerAllocation<'_>)]) -> Ledger {
        let mut ledger = Ledger::default();
        let (over, open): (Vec<_>, Vec<_>) = all.iter().map(|(_, held)| *held).partition(|held| held.to.is_some());
        for held in &over {
            ledger.add(held);
        }
        // What was open before is forgotten.
        ledger.set_open(over);
        ledger.set_open(open);
        ledger
    }

    proptest! {
        /// Counting millisecond by millisecond gives the same, by whatever and whosever.
        #[test]
        fn sums_are_what_counting_gives(
            ones in ones(), from in -60..120i64, length in 0..120i64, now in 0..160i64, by in 0..3usize, of in 0..4usize,
        ) {
            let all = all(&ones);
            let ledger = ledger(&all);
            let of = match of {
                0 => UsageScope::Everybody,
                1 => UsageScope::Owner("bob".to_owned()),
                2 => UsageScope::Owner("nobody".to_owned()),
                _ => UsageScope::Groups(["vision".to_owned(), "gone".to_owned()].into()),
            };
            let by = [UsageGrouping::User, UsageGrouping::Group, UsageGrouping::GpuModel][by];
            let to = from + length;
            let (mut counted, mut seen): (Vec<(&str, UsageSum)>, HashSet<usize>) = Default::default();
            let mut from_shell = UsageSum::default();
            for (place, held) in all {
                let counts = match &of {
                    UsageScope::Everybody => true,
                    UsageScope::Owner(id) => id == held.owner,
                    UsageScope::Groups(ids) => ids.contains(held.group),
                };
                let end = held.to.map_or(now, |to| to.0);
                let part = (from..to).filter(|at| (held.from.0..end).contains(at)).count();
                let part = i64::try_from(part).unwrap();
                if !counts || part == 0 {
                    continue;
                }
                let is_new = seen.insert(place);
                let add = |sum: &mut UsageSum| {
                    sum.spent.gpu_milliseconds += held.gpus * part;
                    sum.spent.cpu_milliseconds += held.cpus * part;
                    sum.milliseconds += part;
                    sum.sessions += i64::from(is_new);
                };
                if held.from_shell {
                    add(&mut from_shell);
                }
                if by == UsageGrouping::GpuModel && held.gpus == 0 {
                    continue;
                }
                let key = match by {
                    UsageGrouping::User => held.owner,
                    UsageGrouping::Group => held.group,
                    UsageGrouping::GpuModel => held.gpu_list,
                };
                if !counted.iter().any(|(known, _)| *known == key) {
                    counted.push((key, UsageSum::default()));
                }
                add(&mut counted.iter_mut().find(|(known, _)| *known == key).unwrap().1);
            }
            counted.sort_by_key(|(key, _)| *key);
            let told = ledger.sums(by, &of, Timestamp(from), Timestamp(to), Timestamp(now));
            let mut each: Vec<(&str, UsageSum)> = told.each.into_iter().map(|(_, key, sum)| (&**key, sum)).collect();
            each.sort_by_key(|(key, _)| *key);
            prop_assert_eq!((each, told.from_shell), (counted, from_shell));

            // By group and owner it comes to the same as by either of them alone.
            let pairs = ledger.sums_by_group_and_owner(&of, Timestamp(from), Timestamp(to), Timestamp(now));
            for by in [UsageGrouping::User, UsageGrouping::Group] {
                let mut sums: BTreeMap<&str, UsageSum> = BTreeMap::new();
                for (group, owner, sum) in &pairs {
                    let key = if by == UsageGrouping::User { &ledger.owners()[*owner] } else { *group };
                    sums.entry(&**key).or_default().merge(sum);
                }
                let alone = ledger.sums(by, &of, Timestamp(from), Timestamp(to), Timestamp(now)).each;
                prop_assert_eq!(sums, alone.into_iter().map(|(_, key, sum)| (&**key, sum)).collect::<BTreeMap<_, _>>());
            }
        }

        /// In spans of any length, too; a session begins where it begins first.
        #[test]
        fn spans_are_what_counting_gives(ones in ones(), from in -60..120i64, lengths in prop::collection::vec(1..50i64, 1..6)) {
            let all = all(&ones);
            let ledger = ledger(&all);
            let mut spans: Vec<Span> = Vec::new();
            for length in lengths {
                let from = spans.last().map_or(Timestamp(from), |span| span.to);
                spans.push(Span { from, to: Timestamp(from.0 + length), date: jiff::civil::Date::ZERO });
            }
            // Groups together come to the same, since a session is charged to one.
            let mut together = ledger.spans(&UsageScope::Everybody, &[]);
            for (_, used) in ledger.group_spans(&UsageScope::Everybody, &spans) {
                if together.is_empty() { together = used; } else { together.iter_mut().zip(&used).for_each(|(sum, used)| sum.merge(used)); }
            }
            let whole = ledger.spans(&UsageScope::Everybody, &spans);
            prop_assert!(together.is_empty() || together == whole);
            for used in whole {
                let within = |at: &i64| (used.span.from.0..used.span.to.0).contains(at);
                let mut spent = ConsumedTime::default();
                for (_, held) in &all {
                    let end = held.to.map_or(i64::MAX, |to| to.0);
                    let part = (used.span.from.0..used.span.to.0).filter(|at| (held.from.0..end).contains(at)).count();
                    timeline::add(&mut spent, (held.gpus, held.cpus), i64::try_from(part).unwrap());
                }
                let first = |place: usize| all.iter().filter(|(other, _)| *other == place).map(|(_, held)| held.from.0).min();
                let begun = (0..ones.len()).filter_map(first).filter(within).count();
                prop_assert_eq!((used.spent, used.sessions), (spent, i64::try_from(begun).unwrap()));
            }
        }
    }
}
