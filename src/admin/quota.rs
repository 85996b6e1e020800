//! `lyceum admin quota …`: what is set at one level, and changes of it: `default`, `group NAME`,
//! `user NAME`, `cluster`. Sizes and times are read as people write them.

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use super::{Out, find};
use crate::{
    db::{
        Db,
        audit::By,
        limits::{Author, LevelChange, Marks, Outcome},
        quotas::{Level, QuotaGroup, SetLimit},
    },
    model::{
        quota::{Change, Field, Kind, Terms, Unit},
        size::parse_size,
        time::parse_duration,
    },
};

#[derive(Subcommand)]
pub enum QuotaVerb {
    /// Show what is set: `default`, `group NAME`, `user NAME` or `cluster`.
    Get { who: Vec<String> },
    /// Set fields: `default gpus=2`, `user alice memory_bytes=48GiB sessions=inherit`,
    /// `group vision gpus=2 total.gpus=8 chargeable=yes`, `cluster gpu_hours=unlimited`.
    Set { words: Vec<String> },
}

/// Whose limits they are.
struct Whose {
    level: Level,
    group: Option<QuotaGroup>,
}

pub(super) async fn quota(db: &Db, verb: QuotaVerb, by: By<'_>, out: Out<'_>) -> Result<()> {
    let (words, sets) = match verb {
        QuotaVerb::Get { who } => (who, false),
        QuotaVerb::Set { words } => (words, true),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (whose, fields) = match words.as_slice() {
        ["default", fields @ ..] => (Whose { level: Level::Default, group: None }, fields),
        ["cluster", fields @ ..] => (Whose { level: Level::Cluster, group: None }, fields),
        ["user", name, fields @ ..] => {
            let user = find(db, name).await?;
            (Whose { level: Level::User(user.id), group: None }, fields)
        }
        ["group", name, fields @ ..] => {
            let found = db.find_quota_group(name).await?;
            let group = found.with_context(|| {
                format!("there is no group `{name}`; a directory's is known once one of its members has signed in")
            })?;
            (Whose { level: Level::Group(group.id), group: Some(group) }, fields)
        }
        _ => bail!("say whose: `default`, `group NAME`, `user NAME` or `cluster`"),
    };
    if sets {
        ensure!(
            !fields.is_empty(),
            "say what: for instance gpus=2, memory_bytes=48GiB, sessions=inherit, cpus=unlimited"
        );
        set(db, &whose, fields, by).await?;
    } else {
        ensure!(fields.is_empty(), "`get` shows everything that is set; leave `{}` out", fields.join(" "));
    }
    let group = match &whose.group {
        Some(group) => db.find_quota_group(&group.id.to_string()).await?,
        None => None,
    };
    Ok(write!(out, "{}", shown(&db.limits_at(whose.level).await?, group.as_ref()))?)
}

async fn set(db: &Db, whose: &Whose, fields: &[&str], by: By<'_>) -> Result<()> {
    let (mut changes, mut marks) = (Vec::new(), Marks::default());
    for text in fields {
        let (name, value) = text.split_once('=').with_context(|| format!("`{text}`: say FIELD=VALUE"))?;
        match (name, &whose.group) {
            ("chargeable", Some(_)) => marks.chargeable = Some(yes_or_no(name, value)?),
            ("restrictive", Some(_)) => marks.restrictive = Some(yes_or_no(name, value)?),
            _ => changes.push(parse_change(whose.level, name, value)?),
        }
    }
    for (index, change) in changes.iter().enumerate() {
        let twice = changes[..index].iter().any(|other| (other.kind, &other.field) == (change.kind, &change.field));
        ensure!(!twice, "{} is named twice", change.field.name());
    }
    let change = LevelChange { marks, ..LevelChange::new(whose.level, changes) };
    let outcome = db.change_limits(&[change], &Author::administrator(by.actor, by.at)).await?;
    ensure!(outcome == Outcome::Done, "it was removed in this moment; nothing is changed");
    Ok(())
}

/// What is set, a line each; that nothing is set is said as well.
fn shown(set: &[SetLimit], group: Option<&QuotaGroup>) -> String {
    let line = |limit: &SetLimit| {
        let prefix = if limit.kind == Kind::Total { "total." } else { "" };
        let Terms { value, expires_at, note } = &limit.terms;
        let value = if *value < 0 { "unlimited".to_owned() } else { value.to_string() };
        let until = expires_at.map(|end| format!("  until {end}")).unwrap_or_default();
        let note = note.as_ref().map(|note| format!("  # {note}")).unwrap_or_default();
        format!("{prefix}{}={value}{until}{note}\n", limit.field.name())
    };
    let marks = group.map(|group| {
        let word = |yes| if yes { "yes" } else { "no" };
        format!("chargeable={}\nrestrictive={}\n", word(group.chargeable), word(group.restrictive))
    });
    let lines: String = set.iter().map(line).chain(marks).collect();
    if lines.is_empty() { "nothing is set here: what is inherited holds\n".to_owned() } else { lines }
}

/// `gpus=2`, `total.gpus=8`, `memory_bytes=48GiB`, `max_session_seconds=8h`, `cpus=unlimited`,
/// `sessions=inherit`.
fn parse_change(level: Level, name: &str, value: &str) -> Result<Change> {
    let (kind, bare) = match (name.strip_prefix("total."), level) {
        (Some(bare), Level::Group(_) | Level::Cluster) => (Kind::Total, bare),
        (None, Level::Cluster) => (Kind::Total, name),
        _ => (Kind::Each, name),
    };
    let field = Field::parse(bare).with_context(|| {
        let known: Vec<_> = Field::ALL.iter().map(Field::name).collect();
        format!("there is no field `{name}`; there are {}, and gpus:MODEL", known.join(", "))
    })?;
    ensure!(
        kind == Kind::Each || field.has_total(),
        "{bare} is limited for each person, not for all together: set it at `default`, `group NAME` or `user NAME`"
    );
    let value = match value {
        "inherit" => None,
        "unlimited" | "-1" => Some(-1),
        text => {
            let read = match field.unit() {
                Unit::Bytes => parse_size(text),
                Unit::Seconds => parse_duration(text),
                Unit::Count | Unit::Hours => text.parse().ok().filter(|number| 0 <= *number),
            };
            Some(read.with_context(|| format!("{name}: `{text}` is no value; say a number, `unlimited` or `inherit`"))?)
        }
    };
    Ok(Change::new(kind, field, value))
}

fn yes_or_no(name: &str, value: &str) -> Result<bool> {
    match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => bail!("{name} is `yes` or `no`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GroupId, Timestamp};

    #[test]
    fn what_is_set_is_shown_and_that_nothing_is() {
        let limit = |kind, field, value| SetLimit {
            kind,
            field,
            terms: Terms::from(value),
            by: "ada".to_owned(),
            at: Timestamp(0),
        };
        assert_eq!(shown(&[], None), "nothing is set here: what is inherited holds\n");
        let group = QuotaGroup { id: GroupId::new(), name: "vision".to_owned(), chargeable: true, restrictive: false };
        let noted = SetLimit {
            terms: Terms { note: Some("a paper".to_owned()), ..Terms::from(8) },
            ..limit(Kind::Total, Field::Gpus, 8)
        };
        assert_eq!(
            shown(&[limit(Kind::Each, Field::Cpus, -1), noted], Some(&group)),
            "cpus=unlimited\ntotal.gpus=8  # a paper\nchargeable=yes\nrestrictive=no\n"
        );
    }

    #[test]
    fn changes_are_read_as_people_write_them() {
        let group = Level::Group(GroupId::new());
        let read = |level, text: &str| {
            let (name, value) = text.split_once('=').unwrap();
            parse_change(level, name, value)
                .map(|change| (change.kind, change.field, change.to.map(|terms| terms.value)))
        };
        assert_eq!(read(group, "gpus=2").unwrap(), (Kind::Each, Field::Gpus, Some(2)));
        assert_eq!(read(group, "total.gpus=8").unwrap(), (Kind::Total, Field::Gpus, Some(8)));
        assert_eq!(read(Level::Cluster, "gpu_hours=40").unwrap(), (Kind::Total, Field::GpuHours, Some(40)));
        assert_eq!(read(Level::Default, "memory_bytes=48GB").unwrap().2, Some(48 << 30));
        assert_eq!(read(Level::Default, "max_session_seconds=8h").unwrap().2, Some(28_800));
        let model = Field::GpusOf("NVIDIA H100".to_owned());
        assert_eq!(read(Level::Default, "gpus:NVIDIA H100=inherit").unwrap(), (Kind::Each, model, None));
        for text in [
            "gpus=-2",
            "gpus=1.5",
            "gpus=1e9",
            "gpus=99999999999999999999",
            "memory_bytes=48x",
            "gpu=1",
            "total.gpus=1",
        ] {
            assert!(read(Level::Default, text).is_err(), "{text}");
        }
        assert!(read(Level::Cluster, "pending=3").is_err());
    }
}
