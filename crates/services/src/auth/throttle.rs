//! Back-off after failed sign-ins, as pure arithmetic over time: per account and address, per
//! address, and per account in all. Every wait is at most a minute and every count leaks
//! away, so that nobody is ever locked out for good; an address that an account has signed
//! in from before is not bound by what others do. In front of a directory that locks accounts
//! itself, fewer failures are passed on than it takes.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
};

use lyceum_model::Timestamp;

/// How one kind of count behaves.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Failures before the first wait.
    free: i64,
    /// One failure is forgotten in so many seconds.
    leak_seconds: i64,
    /// The first wait in seconds.
    first: i64,
    /// The longest wait in seconds; each is twice the one before.
    longest: i64,
}

const PAIR: Rule = Rule { free: 5, leak_seconds: 600, first: 1, longest: 60 };
const ADDRESS: Rule = Rule { free: 50, leak_seconds: 30, first: 1, longest: 30 };
const ACCOUNT: Rule = Rule { free: 20, leak_seconds: 300, first: 1, longest: 30 };

/// How many counts of each kind are kept; then a quarter goes.
const MAX_COUNTS: usize = 10_000;
/// An address counts as an account's own for so long after a sign-in.
const KNOWN_SECONDS: i64 = 30 * 86_400;

/// A directory that locks accounts: after so many wrong passwords within so long.
#[derive(Clone, Copy, Debug)]
pub struct Lockout {
    pub failures: i64,
    pub window_seconds: i64,
}

/// All counts. Times are handed in.
#[derive(Debug)]
pub struct Throttle {
    pairs: Table<(String, IpAddr)>,
    addresses: Table<IpAddr>,
    accounts: Table<String>,
    /// What binds an account's own addresses too.
    in_all: Table<String>,
    known: Table<(String, IpAddr)>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Throttle {
    /// In front of a directory that locks accounts, fewer failures are passed on than it
    /// counts: all but one in all, and from addresses that the account has never signed in from
    /// all but two, so that strangers leave the owner one.
    pub fn new(lockout: Option<Lockout>) -> Self {
        let below = |lockout: Lockout, spare: i64| Rule {
            free: (lockout.failures - spare).max(1),
            leak_seconds: lockout.window_seconds,
            first: lockout.window_seconds,
            longest: lockout.window_seconds,
        };
        let known = Rule { free: i64::MAX, leak_seconds: KNOWN_SECONDS, first: 0, longest: 0 };
        let unbound = Rule { free: i64::MAX, ..ACCOUNT };
        Self {
            in_all: Table::new(lockout.map_or(unbound, |lockout| below(lockout, 1))),
            pairs: Table::new(lockout.map_or(PAIR, |lockout| below(lockout, 1))),
            addresses: Table::new(ADDRESS),
            accounts: Table::new(lockout.map_or(ACCOUNT, |lockout| below(lockout, 2))),
            known: Table::new(known),
        }
    }

    /// The seconds to wait before an attempt about these accounts may be looked at, at least 1;
    /// `None`: none. A refused attempt does not count.
    #[must_use]
    pub fn wait(&self, now: Timestamp, accounts: &[String], address: IpAddr) -> Option<i64> {
        let network = network(address);
        let mut wait = None;
        let mut is_known = false;
        for account in accounts {
            let pair = (bounded(account), network);
            wait = wait.max(self.pairs.wait(now, &pair)).max(self.in_all.wait(now, &pair.0));
            is_known |= self.known.count(now, &pair) > 0;
        }
        if !is_known {
            let of_accounts = accounts.iter().filter_map(|account| self.accounts.wait(now, &bounded(account))).max();
            wait = wait.max(self.addresses.wait(now, &network)).max(of_accounts);
        }
        wait
    }

    /// Counts one failure, for each of the accounts that it was about.
    pub fn failed(&mut self, now: Timestamp, accounts: &[String], address: IpAddr) {
        let network = network(address);
        self.addresses.add(now, network);
        for account in accounts.iter().map(|account| bounded(account)) {
            self.accounts.add(now, account.clone());
            self.in_all.add(now, account.clone());
            self.pairs.add(now, (account, network));
        }
    }

    /// Forgets the pairs' failures and remembers the address as the accounts' own. A directory
    /// forgets all failures then.
    pub fn succeeded(&mut self, now: Timestamp, accounts: &[String], address: IpAddr) {
        for account in accounts {
            let pair = (bounded(account), network(address));
            self.in_all.entries.remove(&pair.0);
            self.pairs.entries.remove(&pair);
            self.known.entries.remove(&pair);
            self.known.add(now, pair);
        }
    }
}

/// Names are canonical, and kept up to a length.
fn bounded(account: &str) -> String {
    account.chars().take(64).collect()
}

/// What counts as one address: for IPv6 the network, of which one person has 2⁶⁴ addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[derive(Debug)]
struct Table<K> {
    rule: Rule,
    entries: HashMap<K, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    failures: i64,
    at: Timestamp,
    blocked_until: Timestamp,
}

impl<K: Eq + Hash + Clone> Table<K> {
    fn new(rule: Rule) -> Self {
        Self { rule, entries: HashMap::new() }
    }

    fn count(&self, now: Timestamp, key: &K) -> i64 {
        self.entries.get(key).map_or(0, |entry| entry.left(now, self.rule))
    }

    fn wait(&self, now: Timestamp, key: &K) -> Option<i64> {
        let until = self.entries.get(key)?.blocked_until;
        // A clock that was set back must not make a wait longer than the longest.
        let milliseconds = (until.0 - now.0).min(self.rule.longest * 1000);
        (milliseconds > 0).then(|| (milliseconds + 999) / 1000)
    }

    fn add(&mut self, now: Timestamp, key: K) {
        if self.entries.len() >= MAX_COUNTS && !self.entries.contains_key(&key) {
            self.make_room(now);
        }
        let failures = self.count(now, &key) + 1;
        let blocked_until = now.plus_seconds(self.rule.delay(failures));
        self.entries.insert(key, Entry { failures, at: now, blocked_until });
    }

    fn make_room(&mut self, now: Timestamp) {
        let rule = self.rule;
        self.entries.retain(|_, entry| entry.left(now, rule) > 0);
        // Of few failures before those of many, so that a flood of other names does not free one
        // that has to wait.
        if self.entries.len() >= MAX_COUNTS {
            let worth = |entry: &Entry| (entry.failures, entry.at);
            let mut worths: Vec<_> = self.entries.values().map(worth).collect();
            worths.sort_unstable();
            let least = worths[MAX_COUNTS / 4];
            self.entries.retain(|_, entry| least < worth(entry));
        }
    }
}

impl Entry {
    fn left(&self, now: Timestamp, rule: Rule) -> i64 {
        (self.failures - now.seconds_since(self.at).max(0) / rule.leak_seconds).max(0)
    }
}

impl Rule {
    fn delay(self, failures: i64) -> i64 {
        match failures.saturating_sub(self.free) {
            over if over < 0 => 0,
            over => (self.first << over.min(16)).min(self.longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const START: Timestamp = Timestamp(1_700_000_000_000);

    fn one(account: &str) -> [String; 1] {
        [account.to_owned()]
    }

    fn far(n: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let mut throttle = Throttle::default();
        let mut now = START;
        let mut waits = Vec::new();
        for _ in 0..14 {
            throttle.failed(now, &one("alice"), HOME);
            let wait = throttle.wait(now, &one("alice"), HOME);
            waits.push(wait.unwrap_or(0));
            now = now.plus_seconds(wait.unwrap_or(0));
            assert_eq!(throttle.wait(now, &one("alice"), HOME), None, "a wait that was kept is over");
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        assert_eq!(throttle.wait(now, &one("bob"), HOME), None, "a neighbour at the same address is free");
    }

    #[test]
    fn success_forgets_and_time_leaks() {
        let mut throttle = Throttle::default();
        (0..8).for_each(|_| throttle.failed(START, &one("alice"), HOME));
        assert_eq!(throttle.wait(START, &one("alice"), HOME), Some(8));
        let later = START.plus_seconds(8 * 600);
        throttle.failed(later, &one("alice"), HOME);
        assert_eq!(throttle.wait(later, &one("alice"), HOME), None, "eight failures leaked away");
        (0..8).for_each(|_| throttle.failed(later, &one("alice"), HOME));
        throttle.succeeded(later, &one("alice"), HOME);
        assert_eq!(throttle.wait(later, &one("alice"), HOME), None);
    }

    #[test]
    fn many_addresses_slow_one_account_but_not_its_owner() {
        let mut throttle = Throttle::default();
        throttle.succeeded(START, &one("alice"), HOME);
        (0..200).for_each(|n| throttle.failed(START, &one("alice"), far(n)));
        assert_eq!(throttle.wait(START, &one("alice"), far(999)), Some(30));
        assert_eq!(throttle.wait(START, &one("alice"), HOME), None, "known addresses are not bound by strangers");
        assert_eq!(throttle.wait(START.plus_seconds(30), &one("alice"), far(999)), None, "never for good");
    }

    #[test]
    fn one_address_trying_many_names_slows_down() {
        let mut throttle = Throttle::default();
        (0..60).for_each(|n| throttle.failed(START, &one(&format!("user{n}")), HOME));
        assert_eq!(throttle.wait(START, &one("alice"), HOME), Some(30));
        assert_eq!(throttle.wait(START, &one("alice"), far(1)), None);
        let network = |last: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        (0..60).for_each(|n| throttle.failed(START, &one(&format!("user{n}")), network(n)));
        assert_eq!(throttle.wait(START, &one("alice"), network(999)), Some(30), "an IPv6 network is one address");
    }

    #[test]
    fn a_directory_never_sees_enough_to_lock() {
        let mut throttle = Throttle::new(Some(Lockout { failures: 5, window_seconds: 1800 }));
        throttle.succeeded(START, &one("alice"), HOME);
        let mut passed_on = Vec::new();
        for second in 0..3600 {
            let now = START.plus_seconds(second);
            for address in (0..3).map(far).chain([HOME]) {
                if throttle.wait(now, &one("alice"), address).is_none() {
                    throttle.failed(now, &one("alice"), address);
                    passed_on.push((second, address));
                }
            }
        }
        let strangers = passed_on.iter().filter(|(second, address)| *second < 1800 && *address != HOME).count();
        assert_eq!(strangers, 3, "{passed_on:?}");
        let first_window = passed_on.iter().filter(|(second, _)| *second < 1800).count();
        assert_eq!(first_window, 4, "the owner's own address does not make up the rest: {passed_on:?}");
        assert!(passed_on.iter().any(|(second, _)| *second >= 1800), "never for good");
    }

    #[test]
    fn a_flood_of_other_names_frees_nobody() {
        let mut throttle = Throttle::new(Some(Lockout { failures: 5, window_seconds: 1800 }));
        (0..3).for_each(|_| throttle.failed(START, &one("alice"), HOME));
        for n in 0..25_000_u32 {
            throttle.failed(START.plus_seconds(60), &one(&format!("user{n}")), far(n));
        }
        assert!(throttle.wait(START.plus_seconds(60), &one("alice"), far(30_000)).is_some());
    }

    #[test]
    fn memory_is_bounded_and_clocks_may_jump() {
        let mut throttle = Throttle::default();
        for n in 0..25_000_u32 {
            throttle.failed(START.plus_seconds(i64::from(n)), &one(&format!("user{n}")), far(n));
        }
        assert!(throttle.pairs.entries.len() <= MAX_COUNTS && throttle.accounts.entries.len() <= MAX_COUNTS);
        let mut throttle = Throttle::default();
        (0..20).for_each(|_| throttle.failed(START, &one("alice"), HOME));
        assert_eq!(throttle.wait(START.plus_seconds(-1_000_000), &one("alice"), HOME), Some(60));
    }
}
