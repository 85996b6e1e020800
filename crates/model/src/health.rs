//! How well the portal's parts are, judged from plain facts: each judgement is a [`Finding`] in
//! words, with what to do. Who gathers the facts, and who shows the findings, is the caller's
//! business.

use std::time::Duration;

use super::{Finding, Timestamp, finding::Level, loops::Rounds, size::human_size, time::human_duration};

/// What the database says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// `SQLite`, `PostgreSQL`.
    pub kind: &'static str,
    pub bytes: i64,
    /// How long it took to answer.
    pub latency: Duration,
    /// The number of the last migration.
    pub schema: i64,
    /// The last copy made by `lyceum admin backup`.
    pub last_backup: Option<Timestamp>,
}

/// How the directory answered lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    pub last_success: Option<Timestamp>,
    /// In words for administrators.
    pub last_error: Option<(Timestamp, String)>,
}

/// Somebody, or a group, that the last look at the directory could not judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedEntry {
    pub name: String,
    /// In words for administrators.
    pub because: String,
}

/// Why nothing can be started or ended now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoScheduler {
    /// The helper has ended, and only a start of the portal brings another.
    HelperEnded,
    /// The cluster's controller does not answer: why, and when it did last since the start.
    Silent { why: String, answered_at: Option<Timestamp> },
    /// The cluster answers, but hides the jobs: what has to be done there.
    Hidden(String),
}

/// An answer that takes longer is felt on every page.
const SLOW: Duration = Duration::from_millis(500);

/// A copy that is older is of another week (days).
const MAX_BACKUP_AGE_DAYS: i64 = 7;

/// A loop that is later than this, whatever its period, hangs (seconds).
const MAX_LOOP_DELAY: i64 = 60;

/// How many of the items that a round skipped are named in a finding.
const MAX_SKIPPED_SHOWN: usize = 5;

/// The worst of all.
#[must_use]
pub fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Level {
    findings.into_iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// `None` where the database does not answer.
#[must_use]
pub fn database(facts: Option<&Database>) -> Finding {
    let name = "database";
    let Some(facts) = facts else {
        return Finding::new(name, Level::Fault, "does not respond: nothing can be changed")
            .fix("see the portal's log for the cause; `lyceum check` tests the connection");
    };
    let milliseconds = facts.latency.as_millis();
    let what =
        format!("{}, {}, schema {}; responded in {milliseconds} ms", facts.kind, human_size(facts.bytes), facts.schema);
    if facts.latency > SLOW {
        return Finding::new(name, Level::Warning, what).fix("check the load and the disk of its machine");
    }
    Finding::new(name, Level::Ok, what)
}

/// Of a database that answers, while no change can be written.
#[must_use]
pub fn locked() -> Finding {
    Finding::new("database", Level::Fault, "responds but cannot be written to: another process holds its lock")
        .fix("use `fuser` to find other programs that have the database open, and end them")
}

/// Judges the GPUs that the portal allocates: how many there are, and which ones cannot be used and why.
#[must_use]
pub fn gpus(number: usize, down: &[(String, String)]) -> Option<Finding> {
    let (first, why) = down.first()?;
    let what = match down.len() {
        1 => format!("{first} cannot be used: {why}"),
        many => format!("{many} of {number} cannot be used, among them {first}: {why}"),
    };
    let fix = "see the nodes page; `nvidia-smi` and the kernel log of the machine say more";
    Some(Finding::new("GPUs", Level::Warning, what).fix(fix))
}

/// Judges the nodes of a cluster: how many there are, and which ones are down and why.
#[must_use]
pub fn nodes(number: usize, down: &[(String, Option<String>)]) -> Option<Finding> {
    let (first, why) = down.first()?;
    let why = why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let what = match down.len() {
        1 => format!("{first} is down{why}"),
        many => format!("{many} of {number} are down, among them {first}{why}"),
    };
    Some(Finding::new("nodes", Level::Warning, what).fix(format!("scontrol show node {first}")))
}

/// Only an embedded database is copied by us.
#[must_use]
pub fn backup(facts: &Database, now: Timestamp) -> Option<Finding> {
    let name = "backup";
    let command = "lyceum admin backup FILE; docs/install.md has a timer for it";
    (facts.kind == "SQLite").then(|| match facts.last_backup {
        None => Finding::new(name, Level::Note, "no backup by `lyceum admin backup` is recorded").fix(command),
        Some(at) => {
            let age = now.seconds_since(at);
            let what = format!("the last backup was made {} ago", human_duration(age));
            if MAX_BACKUP_AGE_DAYS * 86_400 < age {
                Finding::new(name, Level::Warning, what).fix(command)
            } else {
                Finding::new(name, Level::Ok, what)
            }
        }
    })
}

/// The scheduler of this cluster, and with it the helper. `account` is whose everything runs as
/// where the portal was not started by root.
#[must_use]
pub fn scheduler(
    cluster: &str,
    trouble: Option<&NoScheduler>,
    has_queue: bool,
    account: Option<&str>,
    now: Timestamp,
) -> Finding {
    let name = "scheduler";
    let controller = if has_queue { "its controller responds, and " } else { "" };
    match (trouble, account) {
        (Some(NoScheduler::HelperEnded), _) => {
            let what = format!("{cluster}: the helper has exited; sessions cannot be started or ended");
            Finding::new(name, Level::Fault, what).fix("systemctl restart lyceum; running sessions are not affected")
        }
        (Some(NoScheduler::Silent { why, answered_at }), _) => {
            let since = match answered_at {
                Some(at) => format!("for {}, since {at}", human_duration(now.seconds_since(*at))),
                None => "since the portal started".to_owned(),
            };
            let what = format!(
                "{cluster}: its controller has not responded {since} ({why}); nothing is started or ended, and running \
                 sessions continue"
            );
            Finding::new(name, Level::Fault, what)
                .fix("scontrol ping; systemctl status munge slurmctld; the helper is running")
        }
        (Some(NoScheduler::Hidden(why)), _) => {
            Finding::new(name, Level::Fault, format!("{cluster}: {why}")).fix("lyceum check")
        }
        (None, None) => Finding::new(name, Level::Ok, format!("{cluster}: {controller}the helper is running as root")),
        (None, Some(account)) => Finding::new(
            name,
            Level::Note,
            format!("{cluster}: {controller}everything runs as {account}, because the portal was not started by root"),
        ),
    }
}

/// A command of the cluster whose last answer could not be read.
#[must_use]
pub fn unreadable(cluster: &str, command: &str, why: &str) -> Finding {
    let what = format!("{cluster}: `{command}` gave no usable response ({why}); what it reported before is used");
    Finding::new("scheduler", Level::Warning, what).fix("run the command as the portal's account; lyceum check")
}

#[must_use]
pub fn directory(servers: &[String], contact: &Contact, now: Timestamp) -> Finding {
    let name = "directory";
    let servers = servers.join(", ");
    let ago = |at: Timestamp| format!("{} ago", human_duration(now.seconds_since(at)));
    let fix = "lyceum check tests each server step by step; users who are signed in stay signed in";
    match (&contact.last_error, contact.last_success) {
        (None, None) => Finding::new(name, Level::Note, format!("{servers}: not queried since the portal started")),
        (None, Some(good)) => Finding::new(name, Level::Ok, format!("{servers}: responded {}", ago(good))),
        (Some((bad, _)), Some(good)) if *bad < good => {
            let what = format!("{servers}: responded {}, failed {}", ago(good), ago(*bad));
            Finding::new(name, Level::Ok, what)
        }
        (Some((bad, error)), good) => {
            let last = good.map_or_else(|| "never since the portal started".to_owned(), ago);
            let what = format!("{servers}: {error}, {}; last response: {last}", ago(*bad));
            Finding::new(name, Level::Fault, what).fix(fix)
        }
    }
}

/// Those whom the last look at the directory could not judge; `None` where there are none.
#[must_use]
pub fn unjudged(skipped: &[UnresolvedEntry]) -> Option<Finding> {
    const SHOWN: usize = 5;
    let mut named: Vec<String> =
        skipped.iter().take(SHOWN).map(|one| format!("{} ({})", one.name, one.because)).collect();
    if skipped.len() > SHOWN {
        named.push(format!("and {} more", skipped.len() - SHOWN));
    }
    let what = format!("{} entries could not be evaluated in the last refresh and were not changed: ", skipped.len());
    let fix = "correct the entry, or the limit in the directory that is named; the portal's log lists each entry";
    (!skipped.is_empty()).then(|| Finding::new("directory entries", Level::Warning, what + &named.join("; ")).fix(fix))
}

/// Groups for which limits are set though the directory no longer has them; `None` where it has all.
#[must_use]
pub fn absent_groups(names: &[String]) -> Option<Finding> {
    let what = format!(
        "limits are set for groups that no longer exist in the directory: {}; these limits do not apply",
        names.join(", ")
    );
    let fix = "Administration, Groups: delete each group, or keep it in case it returns";
    (!names.is_empty()).then(|| Finding::new("groups", Level::Note, what).fix(fix))
}

/// How a loop goes. `last_error` is told for as long as it is the last thing that happened.
#[must_use]
pub fn of_loop(name: &'static str, rounds: &Rounds, now: Timestamp) -> Finding {
    let late = |since: Timestamp| {
        let period = rounds.every.map_or(0, |every| i64::try_from(every.as_secs()).unwrap_or(i64::MAX));
        MAX_LOOP_DELAY.max(period.saturating_mul(3)) < now.seconds_since(since)
    };
    let ago = |at: Timestamp| human_duration(now.seconds_since(at));
    let hangs = "see the portal's log for the cause; a restart does not stop sessions";
    match (rounds.busy_since, rounds.last_at) {
        // Where there is no period, a round takes what it takes.
        (Some(since), _) if rounds.every.is_some() && late(since) => {
            Finding::new(name, Level::Fault, format!("the current run has not ended for {}", ago(since))).fix(hangs)
        }
        (None, Some(last)) if rounds.every.is_some() && late(last) => {
            Finding::new(name, Level::Fault, format!("has not run for {}", ago(last))).fix(hangs)
        }
        (_, Some(_)) if rounds.failed => {
            let error = rounds.last_error.as_ref().map_or("", |(_, error)| error.as_str());
            Finding::new(name, Level::Warning, format!("the last run failed: {error}"))
                .fix("it is retried automatically; see the portal's log for the cause")
        }
        (_, Some(_)) if !rounds.skipped.is_empty() => {
            let all: Vec<String> = rounds.skipped.iter().map(|(item, error)| format!("{item}: {error}")).collect();
            let shown = all[..all.len().min(MAX_SKIPPED_SHOWN)].join("; ");
            let count = if all.len() == 1 { "1 item".to_owned() } else { format!("{} items", all.len()) };
            let what = match all.len().saturating_sub(MAX_SKIPPED_SHOWN) {
                0 => format!("{count} failed: {shown}"),
                more => format!("{count} failed: {shown}; and {more} more"),
            };
            Finding::new(name, Level::Warning, what)
                .fix("other items are not affected; the next run retries, and the portal's log lists each item")
        }
        (_, Some(last)) => {
            let milliseconds = rounds.took.as_millis();
            Finding::new(name, Level::Ok, format!("{} ago, in {milliseconds} ms", ago(last)))
        }
        (_, None) => Finding::new(name, Level::Ok, "the first run is in progress"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn ago(seconds: i64) -> Timestamp {
        NOW.plus_seconds(-seconds)
    }

    #[test]
    fn what_is_down_is_named() {
        let down =
            |number: usize| -> Vec<_> { (0..number).map(|n| (format!("GPU {n}"), "it is lost".to_owned())).collect() };
        assert_eq!(gpus(8, &[]), None);
        assert_eq!(gpus(8, &down(1)).unwrap().what, "GPU 0 cannot be used: it is lost");
        assert_eq!(gpus(8, &down(3)).unwrap().what, "3 of 8 cannot be used, among them GPU 0: it is lost");
        assert_eq!(nodes(4, &[]), None);
        assert_eq!(nodes(4, &[("n1".to_owned(), None)]).unwrap().what, "n1 is down");
        let down = [("n1".to_owned(), Some("no power".to_owned())), ("n2".to_owned(), None)];
        assert_eq!(nodes(4, &down).unwrap().what, "2 of 4 are down, among them n1: no power");
    }

    #[test]
    fn databases() {
        let facts = Database {
            kind: "SQLite",
            bytes: 5 << 20,
            latency: Duration::from_millis(2),
            schema: 10,
            last_backup: Some(ago(3600)),
        };
        let finding = database(Some(&facts));
        assert_eq!((finding.level, finding.what.as_str()), (Level::Ok, "SQLite, 5 MiB, schema 10; responded in 2 ms"));
        let slow = Database { latency: Duration::from_secs(2), ..facts.clone() };
        assert_eq!((database(Some(&slow)).level, database(None).level), (Level::Warning, Level::Fault));
        let level = |last_backup| backup(&Database { last_backup, ..facts.clone() }, NOW).map(|finding| finding.level);
        assert_eq!(level(None), Some(Level::Note));
        assert_eq!(level(Some(ago(3600))), Some(Level::Ok));
        assert_eq!(level(Some(ago(9 * 86_400))), Some(Level::Warning));
        assert_eq!(backup(&Database { kind: "PostgreSQL", ..facts }, NOW), None);
    }

    #[test]
    fn schedulers() {
        let judged = |trouble: Option<NoScheduler>| scheduler("slurm", trouble.as_ref(), true, None, NOW);
        assert_eq!(judged(None).what, "slurm: its controller responds, and the helper is running as root");
        let ended = judged(Some(NoScheduler::HelperEnded));
        assert!(ended.level == Level::Fault && ended.what.contains("helper has exited"), "{ended:?}");
        let silent = |answered_at| judged(Some(NoScheduler::Silent { why: "timed out".to_owned(), answered_at }));
        let told = silent(Some(ago(240)));
        assert_eq!(
            told.what,
            format!(
                "slurm: its controller has not responded for 4 min, since {} (timed out); nothing is started or ended, \
                 and running sessions continue",
                ago(240)
            )
        );
        assert!(told.level == Level::Fault && told.fix.starts_with("scontrol ping"), "{told:?}");
        assert!(silent(None).what.contains("since the portal started"));
        assert!(judged(Some(NoScheduler::Hidden("jobs are hidden".to_owned()))).what.contains("jobs are hidden"));
        let alone = scheduler("local", None, false, Some("ada"), NOW);
        assert_eq!(
            (alone.level, alone.what.as_str()),
            (Level::Note, "local: everything runs as ada, because the portal was not started by root")
        );
    }

    #[test]
    fn directories() {
        let servers = ["ldaps://a".to_owned(), "ldaps://b".to_owned()];
        let judged = |good, bad: Option<Timestamp>| {
            let contact = Contact { last_success: good, last_error: bad.map(|at| (at, "no answer".to_owned())) };
            directory(&servers, &contact, NOW)
        };
        assert_eq!(judged(None, None).level, Level::Note);
        assert_eq!(judged(Some(ago(5)), Some(ago(60))).level, Level::Ok);
        let away = judged(Some(ago(60)), Some(ago(5)));
        assert_eq!(away.level, Level::Fault);
        assert_eq!(away.what, "ldaps://a, ldaps://b: no answer, 5 s ago; last response: 1 min ago");
        assert!(judged(None, Some(ago(5))).what.ends_with("never since the portal started"));
    }

    #[test]
    fn loops() {
        let every = Some(Duration::from_secs(5));
        let well = Rounds { every, last_at: Some(ago(3)), took: Duration::from_millis(12), ..Rounds::default() };
        let judged = |rounds: &Rounds| of_loop("sessions", rounds, NOW);
        assert_eq!(judged(&well).what, "3 s ago, in 12 ms");
        let failed = Rounds { failed: true, last_error: Some((ago(3), "no disk".to_owned())), ..well.clone() };
        assert_eq!(
            (judged(&failed).level, judged(&failed).what.as_str()),
            (Level::Warning, "the last run failed: no disk")
        );
        let skipped = (1..=7).map(|item| (format!("session {item}"), "no disk".to_owned())).collect();
        let skipped = judged(&Rounds { skipped, ..well.clone() });
        assert_eq!(skipped.level, Level::Warning);
        assert!(skipped.what.contains("session 5: no disk; and 2 more"), "{}", skipped.what);
        assert_eq!(judged(&Rounds { last_at: Some(ago(61)), ..well.clone() }).level, Level::Fault);
        assert_eq!(judged(&Rounds { busy_since: Some(ago(61)), ..well.clone() }).level, Level::Fault);
        assert_eq!(judged(&Rounds { busy_since: Some(ago(10)), ..well.clone() }).level, Level::Ok);
        let hourly = Rounds { every: Some(Duration::from_hours(1)), last_at: Some(ago(7200)), ..well.clone() };
        assert_eq!(judged(&hourly).level, Level::Ok);
        let waits = Rounds { every: None, last_at: Some(ago(86_400)), ..well };
        assert_eq!(judged(&waits).level, Level::Ok, "it waits for something to happen");
        assert_eq!(judged(&Rounds { busy_since: Some(ago(86_400)), ..waits }).level, Level::Ok, "a long build");
        assert_eq!(judged(&Rounds::default()).level, Level::Ok);
    }
}
