//! `lyceum admin quota …`: what is set at one level, and changes of it: `default`, `group NAME`,
//! `user NAME`, `cluster`. Values are read by the rules of the page's form, with the same words
//! where one cannot be meant, and a dry run says what the page's preview says.

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Out, find};
use crate::{
    admission::{
        Admission, BlockedGpus, ChangePreview, ExceededLimit, ImpossibleRequest, external_usage::ExternalUsage,
        slurm_limits::SharedSlurmLimits,
    },
    config::Config,
    db::{
        Db,
        audit::ChangedBy,
        limits::{Author, GroupFlags, LevelChange, Outcome},
        quotas::{Level, QuotaGroup, SetLimit, Version},
    },
    model::{
        Capacity, Clock, GpuInventory, Inventory, Timestamp,
        quota::{Change, Field, Kind, Terms},
        user::ExpiryChange,
    },
    scheduler::slurm::Quotas,
    web::views::over_verdict,
};

#[derive(Subcommand)]
pub enum QuotaVerb {
    /// Show the limits that are set for `default`, `group NAME`, `user NAME` or `cluster`.
    Get {
        who: Vec<String>,
        /// Print JSON, with sizes in bytes and times in seconds.
        #[arg(long)]
        json: bool,
    },
    /// Set limits: `default gpus=2`, `user alice memory_bytes=48GiB sessions=inherit`, `group vision gpus=2
    /// total.gpus=8 chargeable=yes`, `cluster gpu_hours=unlimited`.
    Set(SetArguments),
}

#[derive(Args)]
pub struct SetArguments {
    /// `default`, `group NAME`, `user NAME` or `cluster`, followed by one or more FIELD=VALUE.
    words: Vec<String>,
    /// When these values expire: a date or time in UTC (2030-01-31), a time from now (30d), or `never`. If omitted,
    /// each field keeps its current expiry.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// A note, in one line; empty to remove it. If omitted, each field keeps its current note.
    #[arg(long)]
    note: Option<String>,
    /// Show what would change and which users would be over their limit, without changing anything.
    #[arg(long)]
    dry_run: bool,
}

/// Whose limits they are.
struct LimitSubject {
    level: Level,
    group: Option<QuotaGroup>,
}

/// What one word of a change asks for.
#[derive(Debug, PartialEq, Eq)]
struct RequestedChange {
    kind: Kind,
    field: Field,
    /// `None` inherits.
    value: Option<i64>,
}

/// Until when, and why.
#[derive(Debug, Default)]
struct Validity {
    expires_at: PartChange<Timestamp>,
    note: PartChange<String>,
}

/// What a change says of a part of a limit that it can leave alone.
#[derive(Debug, Default)]
enum PartChange<T> {
    #[default]
    Nothing,
    TakeAway,
    Set(T),
}

impl<T: Clone> PartChange<T> {
    /// What stands there afterwards, where `had` stood.
    fn upon(&self, had: Option<T>) -> Option<T> {
        match self {
            Self::Nothing => had,
            Self::TakeAway => None,
            Self::Set(to) => Some(to.clone()),
        }
    }
}

/// So often a change is made anew that somebody else's came before.
const ATTEMPTS: usize = 5;

/// More of those who would be over are counted, not named.
const MAX_NAMED: usize = 50;

/// The rules without a machine: whoever runs something has room for it, so that nothing is beyond
/// what there is.
pub(super) fn rules(config: &Config, db: &Db) -> Result<Admission> {
    const BOUNDLESS: i64 = i64::MAX >> 8;
    let boundless = Capacity { gpus: BOUNDLESS, cpus: BOUNDLESS, memory_bytes: BOUNDLESS };
    Ok(Admission {
        db: db.clone(),
        clock: Clock::System,
        stock: Inventory::new(boundless, GpuInventory::default()),
        period: config.quotas.period()?,
        extend_while_others_wait: config.sessions.extend_while_others_wait,
        holds_at_once: config.scheduler.slurm().is_none(),
        zone: config.quotas.zone()?,
        blocked_gpus: BlockedGpus::default(),
        external_usage: ExternalUsage::default(),
        slurm_limits: config
            .scheduler
            .slurm()
            .filter(|slurm| slurm.quotas == Quotas::Read)
            .map(|_| SharedSlurmLimits::default()),
    })
}

pub(super) async fn quota(rules: &Admission, verb: QuotaVerb, by: ChangedBy<'_>, out: Out<'_>) -> Result<()> {
    let db = &rules.db;
    match verb {
        QuotaVerb::Get { who, json } => {
            let (whose, fields) = whose(db, &who).await?;
            ensure!(fields.is_empty(), "`get` shows all limits that are set; omit `{}`", fields.join(" "));
            let set = db.limits_at(whose.level).await?;
            if json {
                return Ok(writeln!(out, "{}", as_json(&set, whose.group.as_ref()))?);
            }
            Ok(write!(out, "{}", shown(&set, whose.group.as_ref()))?)
        }
        QuotaVerb::Set(asked) => {
            let (whose, fields) = whose(db, &asked.words).await?;
            ensure!(
                !fields.is_empty(),
                "no fields given; use for example gpus=2, memory_bytes=48GiB, sessions=inherit or cpus=unlimited"
            );
            let (changes, marks) = read(&whose, fields)?;
            if let Some(slurms) = changes.iter().find(|change| rules.slurm_limits.is_some() && change.field.is_slurms())
            {
                bail!(
                    "{}: Slurm manages this limit (scheduler.slurm.quotas = \"read\"); change it with sacctmgr",
                    slurms.field.name()
                );
            }
            let about = Validity::read(&asked, by.at)?;
            ensure!(
                changes.iter().any(|change| change.value.is_some()) || (asked.until.is_none() && asked.note.is_none()),
                "--until and --note require a field with a value, as in gpus=2"
            );
            if asked.dry_run {
                let told = rehearse(rules, &whose, &changes, marks, &about, by.at).await?;
                return Ok(write!(out, "{told}")?);
            }
            save(db, &whose, &changes, marks, &about, by).await?;
            let group = group_of(db, &whose).await?;
            Ok(write!(out, "{}", shown(&db.limits_at(whose.level).await?, group.as_ref()))?)
        }
    }
}

/// Whose limits the first words name, and what stands behind them.
async fn whose<'a>(db: &Db, words: &'a [String]) -> Result<(LimitSubject, &'a [String])> {
    let level = |level| LimitSubject { level, group: None };
    let first: Vec<&str> = words.iter().take(2).map(String::as_str).collect();
    Ok(match first.as_slice() {
        ["default", ..] => (level(Level::Default), &words[1..]),
        ["cluster", ..] => (level(Level::Cluster), &words[1..]),
        ["user", name] => (level(Level::User(find(db, name).await?.id)), &words[2..]),
        ["group", name] => {
            let found = db.find_quota_group(name).await?;
            let group = found.with_context(|| {
                format!(
                    "there is no group `{name}`; groups of the directory are known once one of their members has \
                     signed in"
                )
            })?;
            (LimitSubject { level: Level::Group(group.id), group: Some(group) }, &words[2..])
        }
        _ => bail!("the first word must be `default`, `group NAME`, `user NAME` or `cluster`"),
    })
}

async fn group_of(db: &Db, whose: &LimitSubject) -> Result<Option<QuotaGroup>> {
    Ok(match &whose.group {
        Some(group) => db.find_quota_group(&group.id.to_string()).await?,
        None => None,
    })
}

/// Everything that a change asks for, or everything that is wrong with it.
fn read(whose: &LimitSubject, fields: &[String]) -> Result<(Vec<RequestedChange>, GroupFlags)> {
    let (mut asked, mut marks, mut faults) = (Vec::<RequestedChange>::new(), GroupFlags::default(), Vec::new());
    for text in fields {
        let Some((name, value)) = text.split_once('=') else {
            faults.push(format!("`{text}` is not of the form FIELD=VALUE"));
            continue;
        };
        let read = match (name, &whose.group) {
            ("chargeable", Some(_)) => mark(name, value, &mut marks.chargeable),
            ("restrictive", Some(_)) => mark(name, value, &mut marks.restrictive),
            _ => parse_change(whose.level, name, value).and_then(|change| {
                let twice = asked.iter().any(|other| (other.kind, &other.field) == (change.kind, &change.field));
                ensure!(!twice, "{name} is given twice");
                asked.push(change);
                Ok(())
            }),
        };
        faults.extend(read.err().map(|fault| fault.to_string()));
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok((asked, marks))
}

fn mark(name: &str, value: &str, mark: &mut Option<bool>) -> Result<()> {
    ensure!(mark.is_none(), "{name} is given twice");
    *mark = Some(match value {
        "yes" | "true" => true,
        "no" | "false" => false,
        _ => bail!("{name} must be `yes` or `no`"),
    });
    Ok(())
}

impl Validity {
    fn read(asked: &SetArguments, now: Timestamp) -> Result<Self> {
        let expires_at = match asked.until.as_deref().map(|text| super::expiry(text, now)).transpose()? {
            None | Some(ExpiryChange::Keep) => PartChange::Nothing,
            Some(ExpiryChange::Never) => PartChange::TakeAway,
            Some(ExpiryChange::At(end)) => {
                if let Some(fault) = Terms::expiry_fault(end, now) {
                    bail!("--until: {fault}");
                }
                PartChange::Set(end)
            }
        };
        let note = asked.note.as_deref().map(str::trim);
        if let Some((_, fault)) = note.and_then(Terms::note_fault) {
            bail!("--note: {fault}");
        }
        let note = match note {
            None => PartChange::Nothing,
            Some("") => PartChange::TakeAway,
            Some(note) => PartChange::Set(note.to_owned()),
        };
        Ok(Self { expires_at, note })
    }

    /// A field with its new value: the end and the note that it has stay where this says nothing of
    /// them. An end that is past is none to keep.
    fn change(&self, asked: &RequestedChange, set: &[SetLimit], now: Timestamp) -> Change {
        let had = set.iter().find(|limit| (limit.kind, &limit.field) == (asked.kind, &asked.field));
        let had_end = had.and_then(|limit| limit.terms.expires_at).filter(|end| now < *end);
        let had_note = had.and_then(|limit| limit.terms.note.clone());
        let terms =
            |value| Terms { value, expires_at: self.expires_at.upon(had_end), note: self.note.upon(had_note.clone()) };
        Change { kind: asked.kind, field: asked.field.clone(), to: asked.value.map(terms) }
    }
}

/// Makes the change upon what is set now; somebody else's in the same moment is not lost.
async fn save(
    db: &Db,
    whose: &LimitSubject,
    asked: &[RequestedChange],
    marks: GroupFlags,
    about: &Validity,
    by: ChangedBy<'_>,
) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let (set, group) = (db.limits_at(whose.level).await?, group_of(db, whose).await?);
        let changes = asked.iter().map(|asked| about.change(asked, &set, by.at)).collect();
        let seen = Some(Version::of(&set, group.as_ref()));
        let change = LevelChange { marks, seen, ..LevelChange::new(whose.level, changes) };
        match db.change_limits(&[change], &Author::administrator(by.actor, by.at)).await? {
            Outcome::Done => return Ok(()),
            Outcome::Stale(_) => {}
            Outcome::Gone(_) => bail!("it was deleted in the meantime; nothing was changed"),
            Outcome::Refused(faults) => {
                let faults: Vec<_> = faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
                bail!("{}", faults.join("\n"));
            }
        }
    }
    bail!("the same limits were changed concurrently too often; nothing was changed")
}

/// What a change would do, in the words of the page's preview. Nothing is written.
async fn rehearse(
    rules: &Admission,
    whose: &LimitSubject,
    asked: &[RequestedChange],
    marks: GroupFlags,
    about: &Validity,
    now: Timestamp,
) -> Result<String> {
    let set = rules.db.limits_at(whose.level).await?;
    let changes: Vec<Change> = asked.iter().map(|asked| about.change(asked, &set, now)).collect();
    let mut told = "Dry run. This would change:\n".to_owned();
    for change in &changes {
        let before = set.iter().find(|limit| (limit.kind, &limit.field) == (change.kind, &change.field));
        let (name, before) = (name_of(change.kind, &change.field), before.map(|limit| &limit.terms));
        writeln!(told, "  {name}: {} → {}", says(&change.field, before), says(&change.field, change.to.as_ref()))?;
    }
    if let Some(group) = &whose.group {
        let is =
            [("chargeable", group.chargeable, marks.chargeable), ("restrictive", group.restrictive, marks.restrictive)];
        for (name, before, after) in is {
            if let Some(after) = after {
                writeln!(told, "  {name}: {} → {}", yes_or_no(before), yes_or_no(after))?;
            }
        }
    }
    let change = LevelChange { marks, ..LevelChange::new(whose.level, changes) };
    let ChangePreview { over, refused } = rules.preview(&[change]).await?;
    told.push_str(&would_be_over(&over));
    for ImpossibleRequest { user, name, reason } in refused {
        writeln!(told, "  {user}: ‘{name}’ is pending and would be rejected: {}", reason.hint)?;
    }
    Ok(told)
}

fn would_be_over(over: &[ExceededLimit]) -> String {
    let people: BTreeSet<&str> = over.iter().filter_map(|over| over.user.as_deref()).collect();
    let totals = over.iter().filter(|over| over.user.is_none()).count();
    let mut told = over_verdict(people.len(), totals) + "\n";
    let line = |ExceededLimit { user, source, field, used, limit }: &ExceededLimit| {
        let who = user.as_deref().unwrap_or("all users together");
        format!("  {who}: {} in use, {} allowed ({source})\n", field.amount(*used), field.amount(*limit))
    };
    told.extend(over.iter().take(MAX_NAMED).map(line));
    match over.len().saturating_sub(MAX_NAMED) {
        0 => told,
        more => format!("{told}  and {more} more\n"),
    }
}

/// What is set, a line each, as it can be set again; that nothing is set is said as well.
fn shown(set: &[SetLimit], group: Option<&QuotaGroup>) -> String {
    let line = |limit: &SetLimit| {
        format!("{}={}\n", name_of(limit.kind, &limit.field), says(&limit.field, Some(&limit.terms)))
    };
    let marks = group.map(|group| {
        format!("chargeable={}\nrestrictive={}\n", yes_or_no(group.chargeable), yes_or_no(group.restrictive))
    });
    let lines: String = set.iter().map(line).chain(marks).collect();
    if lines.is_empty() { "nothing is set here; inherited values apply\n".to_owned() } else { lines }
}

fn as_json(set: &[SetLimit], group: Option<&QuotaGroup>) -> serde_json::Value {
    let field = |limit: &SetLimit| {
        let Terms { value, expires_at, note } = &limit.terms;
        let set = json!({ "value": value, "expires_at": expires_at, "note": note, "updated_by": limit.by, "updated_at": limit.at });
        (name_of(limit.kind, &limit.field), set)
    };
    let fields: serde_json::Map<_, _> = set.iter().map(field).collect();
    let mut all = json!({ "fields": fields });
    if let Some(group) = group {
        all["chargeable"] = group.chargeable.into();
        all["restrictive"] = group.restrictive.into();
    }
    all
}

fn name_of(kind: Kind, field: &Field) -> String {
    format!("{}{}", kind.prefix(), field.name())
}

/// `2`, `48GiB`, `unlimited  until …  # why`, `inherit`.
fn says(field: &Field, terms: Option<&Terms>) -> String {
    let Some(Terms { value, expires_at, note }) = terms else { return "inherit".to_owned() };
    let value = if *value < 0 { "unlimited".to_owned() } else { field.write(*value).replace(' ', "") };
    let until = expires_at.map(|end| format!("  until {end}")).unwrap_or_default();
    let note = note.as_ref().map(|note| format!("  # {note}")).unwrap_or_default();
    format!("{value}{until}{note}")
}

fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// `gpus=2`, `total.gpus=8`, `memory_bytes=48GiB`, `max_session_seconds=8h`, `cpus=unlimited`,
/// `sessions=inherit`.
fn parse_change(level: Level, name: &str, value: &str) -> Result<RequestedChange> {
    let (kind, bare) = match (name.strip_prefix("total."), level) {
        (Some(bare), Level::Group(_) | Level::Cluster) => (Kind::Total, bare),
        (None, Level::Cluster) => (Kind::Total, name),
        (Some(bare), Level::Default | Level::User(_)) if Field::parse(bare).is_some() => {
            bail!("{name}: a total can only be set at `group NAME` or `cluster`")
        }
        _ => (Kind::Each, name),
    };
    let field = Field::parse(bare).with_context(|| {
        let known: Vec<_> = Field::ALL.iter().map(Field::name).collect();
        format!("there is no field `{name}`; there are {}, and gpus:MODEL", known.join(", "))
    })?;
    ensure!(
        kind == Kind::Each || field.has_total(),
        "{bare} is a limit for each user, not a total: set it at `default`, `group NAME` or `user NAME`"
    );
    let value = match value {
        "inherit" => None,
        "unlimited" | "-1" => Some(-1),
        text => Some(field.read(text).map_err(|why| {
            anyhow::anyhow!("{name}: `{text}` is not a valid value. {why} You can also use `unlimited` or `inherit`.")
        })?),
    };
    Ok(RequestedChange { kind, field, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GroupId;

    fn limit(kind: Kind, field: Field, terms: Terms) -> SetLimit {
        SetLimit { kind, field, terms, by: "ada".to_owned(), at: Timestamp(0) }
    }

    #[test]
    fn what_is_set_is_shown_and_that_nothing_is() {
        assert_eq!(shown(&[], None), "nothing is set here; inherited values apply\n");
        let group = QuotaGroup {
            id: GroupId::new(),
            name: "vision".to_owned(),
            chargeable: true,
            restrictive: false,
            absent_since: None,
        };
        let noted = Terms { note: Some("a paper".to_owned()), ..Terms::from(8) };
        let set = [
            limit(Kind::Each, Field::Cpus, Terms::from(-1)),
            limit(Kind::Each, Field::MemoryBytes, Terms::from(48 << 30)),
            limit(Kind::Total, Field::Gpus, noted),
        ];
        assert_eq!(
            shown(&set, Some(&group)),
            "cpus=unlimited\nmemory_bytes=48GiB\ntotal.gpus=8  # a paper\nchargeable=yes\nrestrictive=no\n"
        );
    }

    #[test]
    fn what_is_shown_can_be_set_again() {
        for (field, value) in [
            (Field::MemoryBytes, (48 << 30) + 1),
            (Field::StorageBytes, 3 << 40),
            (Field::MaxSessionSeconds, 5400),
            (Field::IdleTimeoutSeconds, 59),
            (Field::Gpus, 0),
        ] {
            let shown = says(&field, Some(&Terms::from(value)));
            let again = parse_change(Level::Default, &field.name(), &shown).unwrap();
            assert_eq!(again.value, Some(value), "{shown}");
        }
    }

    #[test]
    fn changes_are_read_as_people_write_them() {
        let group = Level::Group(GroupId::new());
        let read = |level, text: &str| {
            let (name, value) = text.split_once('=').unwrap();
            parse_change(level, name, value).map(|asked| (asked.kind, asked.field, asked.value))
        };
        assert_eq!(read(group, "gpus=2").unwrap(), (Kind::Each, Field::Gpus, Some(2)));
        assert_eq!(read(group, "total.gpus=8").unwrap(), (Kind::Total, Field::Gpus, Some(8)));
        assert_eq!(read(Level::Cluster, "gpu_hours=40").unwrap(), (Kind::Total, Field::GpuHours, Some(40)));
        assert_eq!(read(Level::Default, "memory_bytes=48 GB").unwrap().2, Some(48 << 30));
        assert_eq!(read(Level::Default, "max_session_seconds=8h").unwrap().2, Some(28_800));
        let model = Field::GpusOf("NVIDIA H100".to_owned());
        assert_eq!(read(Level::Default, "gpus:NVIDIA H100=inherit").unwrap(), (Kind::Each, model, None));
        for (text, why) in [
            ("gpus=-2", "not be negative"),
            ("gpus=1.5", "no fractions"),
            ("gpus=1e9", "no powers"),
            ("gpus=48GiB", "GPUs are counted"),
            ("gpus=99999999999999999999", "too large"),
            ("memory_bytes=48x", "48 GiB"),
            ("memory_bytes=48", "48 of what?"),
            ("max_session_seconds=8", "8 of what?"),
            ("gpu=1", "there is no field"),
            ("total.gpus=1", "a total can only be set"),
        ] {
            let said = read(Level::Default, text).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(read(Level::Cluster, "pending=3").is_err());
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let now = Timestamp(1_700_000_000_000);
        let asked = RequestedChange { kind: Kind::Each, field: Field::Gpus, value: Some(4) };
        let had = |end: i64| {
            let terms = Terms { value: 2, expires_at: Some(now.plus_seconds(end)), note: Some("thesis".to_owned()) };
            [limit(Kind::Each, Field::Gpus, terms)]
        };
        let terms = |about: &Validity, end| about.change(&asked, &had(end), now).to.unwrap();
        let kept = terms(&Validity::default(), 60);
        assert_eq!(
            (kept.value, kept.expires_at, kept.note.as_deref()),
            (4, Some(now.plus_seconds(60)), Some("thesis"))
        );
        assert_eq!(
            terms(&Validity::default(), -60).expires_at,
            None,
            "what has ended does not end the new one at once"
        );
        let other = Validity { expires_at: PartChange::TakeAway, note: PartChange::TakeAway };
        assert_eq!(terms(&other, 60), Terms::from(4));
        let inherit = RequestedChange { value: None, ..asked };
        assert_eq!(other.change(&inherit, &had(60), now).to, None);
    }
}
