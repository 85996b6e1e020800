//! Changes of limits: at one level or at many, all or none, under the one write lock, with a
//! row in the audit log for each level. What the author saw, and how far they may go, is
//! looked at inside the same transaction: between the look and the change nobody comes.

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    quotas::{AT_LEVEL, GROUP, GroupRow, Level, QuotaGroup, SetLimit, SetRow, Version},
    transaction,
    tx::Tx,
};
use lyceum_model::{
    FieldError, Timestamp,
    quota::{Change, Field, Kind, Limit, beyond_manager},
};

/// What changes at one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelChange {
    pub level: Level,
    pub changes: Vec<Change>,
    /// Of a group.
    pub marks: GroupFlags,
    /// What the author saw there, where that matters.
    pub seen: Option<Version>,
}

/// How a group counts; `None` leaves a mark as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFlags {
    pub chargeable: Option<bool>,
    pub restrictive: Option<bool>,
}

/// Who changes limits, when, and how far they may go.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    pub name: &'a str,
    pub at: Timestamp,
    /// A group's manager shares out what the group has, and no more.
    pub is_manager: bool,
}

impl<'a> Author<'a> {
    /// Somebody who may set any limit.
    pub fn administrator(name: &'a str, at: Timestamp) -> Self {
        Self { name, at, is_manager: false }
    }
}

/// What became of a change. Nothing is written unless it is `Done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Somebody else changed the first of these levels since the author saw it.
    Stale(Level),
    /// There is no such person or group any more.
    Gone(Level),
    /// It is not this author's to change.
    Refused(Vec<FieldError>),
}

/// Why a change of what stands at a level cannot be made, if it cannot: somebody was quicker, or
/// it is not the author's to make.
#[must_use]
pub fn objection(
    change: &LevelChange,
    author: &Author<'_>,
    stored: &[SetLimit],
    group: Option<&QuotaGroup>,
) -> Option<Outcome> {
    if change.seen.as_ref().is_some_and(|seen| *seen != Version::of(stored, group)) {
        return Some(Outcome::Stale(change.level));
    }
    if !author.is_manager {
        return None;
    }
    let holds = |limit: &&SetLimit| {
        limit.kind == Kind::Total && limit.terms.expires_at.is_none_or(|expires_at| author.at < expires_at)
    };
    let totals: Vec<(Field, Limit)> =
        stored.iter().filter(holds).map(|limit| (limit.field.clone(), Limit::of(limit.terms.value))).collect();
    let mut faults = beyond_manager(&change.changes, &totals, group.is_some_and(|group| group.chargeable));
    let marks = [("chargeable", change.marks.chargeable), ("restrictive", change.marks.restrictive)];
    let message = "Only administrators can set how a group counts.";
    let marked = marks.into_iter().filter(|(_, mark)| mark.is_some());
    faults.extend(marked.map(|(name, _)| FieldError::new(name, "beyond_the_group", message)));
    (!faults.is_empty()).then_some(Outcome::Refused(faults))
}

const SET: &str =
    "INSERT INTO quota_limits (scope, scope_id, kind, field, value, expires_at, note, updated_by, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
     ON CONFLICT (scope, scope_id, kind, field) DO UPDATE SET value = excluded.value,
         expires_at = excluded.expires_at, note = excluded.note,
         updated_by = excluded.updated_by, updated_at = excluded.updated_at";

const INHERIT: &str = "DELETE FROM quota_limits WHERE scope = $1 AND scope_id = $2 AND kind = $3 AND field = $4";

const MARK: &str = "UPDATE groups SET chargeable = COALESCE($2, chargeable), restrictive = COALESCE($3, restrictive)
     WHERE id = $1";

impl Db {
    /// Changes what is set at some levels: all of it or nothing.
    pub async fn change_limits(&self, changes: &[LevelChange], author: &Author<'_>) -> Result<Outcome> {
        Ok(transaction!(self, tx => {
            let outcome = change(Tx::from(&mut *tx), changes, author).await?;
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
            outcome
        }))
    }
}

/// [`Db::change_limits`] inside a transaction, which any other outcome than `Done` has to roll back.
pub(super) async fn change(mut tx: Tx<'_>, changes: &[LevelChange], author: &Author<'_>) -> Result<Outcome> {
    let mut subjects = Vec::with_capacity(changes.len());
    for change in changes {
        let (scope, id) = change.level.key();
        let user: Option<(String,)> = match change.level {
            Level::User(_) => tx.query("SELECT name FROM users WHERE id = $1").bind(&id).first().await?,
            _ => None,
        };
        let group: Option<GroupRow> = match change.level {
            Level::Group(_) => tx.query(GROUP).bind(&id).first().await?,
            _ => None,
        };
        let group = group.map(GroupRow::group).transpose()?;
        let subject = match (change.level, user, &group) {
            (Level::User(_), Some((name,)), _) => name,
            (Level::Group(_), _, Some(group)) => format!("group {}", group.name),
            (Level::User(_) | Level::Group(_), ..) => return Ok(Outcome::Gone(change.level)),
            (Level::Default | Level::Cluster, ..) => scope.to_owned(),
        };
        let rows: Vec<SetRow> = tx.query(AT_LEVEL).bind(scope).bind(&id).all().await?;
        let stored = rows.into_iter().map(SetRow::limit).collect::<Result<Vec<_>>>()?;
        if let Some(objection) = objection(change, author, &stored, group.as_ref()) {
            return Ok(objection);
        }
        let change = change.by(author).news(&stored, group.as_ref());
        if change.is_empty() {
            continue;
        }
        let detail = change.audit_detail(&stored, group.as_ref());
        subjects.push((change, subject, detail));
    }
    for (change, subject, detail) in &subjects {
        let (scope, id) = change.level.key();
        for Change { kind, field, to } in &change.changes {
            let (kind, field) = (kind.as_str(), field.name());
            match to {
                Some(terms) => {
                    let set = tx.query(SET).bind(scope).bind(&id).bind(kind).bind(&*field).bind(terms.value);
                    let set = set.bind(terms.expires_at.map(|end| end.0)).bind(&terms.note);
                    set.bind(author.name).bind(author.at.0).execute().await?
                }
                None => tx.query(INHERIT).bind(scope).bind(&id).bind(kind).bind(&*field).execute().await?,
            };
            // An administrator's word takes the place of what managers gave.
            if kind == Kind::Each.as_str() {
                let raised = tx.query(INHERIT).bind(scope).bind(&id).bind(Kind::Raised.as_str()).bind(&*field);
                raised.execute().await?;
            }
        }
        if let Level::Group(_) = change.level {
            tx.query(MARK).bind(&id).bind(change.marks.chargeable).bind(change.marks.restrictive).execute().await?;
        }
        let (at, actor, action) = (author.at, author.name, "quota.change");
        append_audit(tx.again(), &Entry { at, actor, action, subject, detail }).await?;
    }
    Ok(Outcome::Done)
}

impl LevelChange {
    /// Of some fields, whatever stands there.
    pub fn new(level: Level, changes: Vec<Change>) -> Self {
        Self { level, changes, marks: GroupFlags::default(), seen: None }
    }

    /// As this author makes it: what a manager gives each member only raises.
    #[must_use]
    pub fn by(&self, author: &Author<'_>) -> Self {
        let mut change = self.clone();
        if author.is_manager {
            change.changes = change.changes.into_iter().map(Change::by_manager).collect();
        }
        change
    }

    /// Without what is so already: the same request again changes nothing, and is not in the audit log.
    fn news(mut self, stored: &[SetLimit], group: Option<&QuotaGroup>) -> Self {
        let set = |kind: Kind, field: &Field| stored.iter().find(|limit| limit.kind == kind && limit.field == *field);
        self.changes.retain(|change| {
            let takes_place = change.kind == Kind::Each && set(Kind::Raised, &change.field).is_some();
            takes_place || set(change.kind, &change.field).map(|limit| &limit.terms) != change.to.as_ref()
        });
        let news = |mark: Option<bool>, was: Option<bool>| mark.filter(|_| mark != was);
        self.marks.chargeable = news(self.marks.chargeable, group.map(|group| group.chargeable));
        self.marks.restrictive = news(self.marks.restrictive, group.map(|group| group.restrictive));
        self
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.marks == GroupFlags::default()
    }

    /// In words, for the audit log, with what was there before: `gpus=2 until … (why), was 1;
    /// total.cpus=inherit, was 8; chargeable=yes, was no`.
    #[must_use]
    pub fn audit_detail(&self, stored: &[SetLimit], group: Option<&QuotaGroup>) -> String {
        let word = |is: bool| if is { "yes" } else { "no" };
        let change = |change: &Change| {
            let before = stored.iter().find(|limit| (limit.kind, &limit.field) == (change.kind, &change.field));
            format!("{change}, was {}", Change::value_in_words(before.map(|limit| &limit.terms)))
        };
        let marks = [
            ("chargeable", self.marks.chargeable, group.is_some_and(|group| group.chargeable)),
            ("restrictive", self.marks.restrictive, group.is_some_and(|group| group.restrictive)),
        ];
        let mark = |(name, mark, was): (&str, Option<bool>, bool)| {
            mark.map(|is| format!("{name}={}, was {}", word(is), word(was)))
        };
        self.changes.iter().map(change).chain(marks.into_iter().filter_map(mark)).collect::<Vec<_>>().join("; ")
    }
}
