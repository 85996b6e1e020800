//! The pages of limits as they are drawn: what is set at a level, what holds with it and without
//! it, what is used, and what a change would mean. `pages` says when which of them is shown.

use std::sync::Arc;

use axum::http::HeaderMap;

use super::{
    form::{LimitForm, Row, fields},
    set_at,
    table::meter,
};
use crate::{
    admission::{ChangePreview, ExceededLimit, ImpossibleRequest, slurm_limits::AccountLimits},
    auth::Principal,
    db::{
        self,
        limits::LevelChange,
        quotas::{Level, QuotaGroup, SetLimit, Version},
        sessions::Filter,
    },
    model::{
        FieldError, Session, Timestamp, User,
        quota::{self, Change, Effective, Field, Kind, Limit, Limits, Scope, SlurmLimits, Usage},
        time::human_duration,
    },
    web::{
        Portal,
        http::error::Result,
        page::Nav,
        sessions::cards,
        views::{
            ChangeLine, EnteredAmount, LimitBox, LimitSection, LimitsHead, LimitsPage, LimitsPreview, MarkBoxes,
            Moment, OverLine, PersonPanel, Refusal, RefusedLine, SlurmPanel, Source, field_words, limit_words,
            resources_line,
        },
    },
};

/// How many of those who would be over are named.
const MAX_NAMED: usize = 50;

/// So many of somebody's refusals are shown.
const REFUSALS: i64 = 5;

/// More live sessions than this nobody has.
const MAX_SESSIONS_SHOWN: i64 = 200;

/// Names the subject of a page of limits.
#[derive(Clone, Debug)]
pub(super) enum LimitSubject {
    Default,
    Cluster,
    User(Box<User>),
    Group(QuotaGroup),
}

/// Holds the limits that are set, and those that apply.
pub(super) struct LimitState {
    pub set: Vec<SetLimit>,
    /// The same as the form has it.
    shown: Vec<SetLimit>,
    pub sheet: LimitForm,
    /// With what is set here, and as it would be without.
    pub holds: Option<(Limits, Limits)>,
    pub usage: Usage,
    /// What Slurm keeps the group to, where it does.
    together: Option<AccountLimits>,
    keeps_in_slurm: bool,
    slurm: Option<SlurmPanel>,
}

/// Who looks at a page, and whether they may change what it shows.
pub(super) struct Reader<'a> {
    pub principal: &'a Arc<Principal>,
    pub headers: &'a HeaderMap,
    pub may_change: bool,
}

impl Reader<'_> {
    /// What is set as this reader's form has it: a manager changes what managers give.
    fn shown(&self, set: &[SetLimit]) -> Vec<SetLimit> {
        let hidden = if self.is_manager() { Kind::Each } else { Kind::Raised };
        let mut shown: Vec<SetLimit> = set.iter().filter(|limit| limit.kind != hidden).cloned().collect();
        for limit in shown.iter_mut().filter(|limit| limit.kind == Kind::Raised) {
            limit.kind = Kind::Each;
        }
        shown
    }

    fn is_manager(&self) -> bool {
        self.may_change && !self.principal.is_admin()
    }
}

impl LimitSubject {
    pub fn level(&self) -> Level {
        match self {
            Self::Default => Level::Default,
            Self::Cluster => Level::Cluster,
            Self::User(user) => Level::User(user.id),
            Self::Group(group) => Level::Group(group.id),
        }
    }

    pub fn group(&self) -> Option<&QuotaGroup> {
        if let Self::Group(group) = self { Some(group) } else { None }
    }

    pub fn address(&self) -> String {
        match self {
            Self::Default => "/admin/quotas/default".to_owned(),
            Self::Cluster => "/admin/quotas/cluster".to_owned(),
            Self::User(user) => format!("/admin/quotas/users/{}", user.name),
            Self::Group(group) => format!("/admin/quotas/groups/{}", group.id),
        }
    }

    fn tab(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Cluster => "cluster",
            Self::User(_) => "people",
            Self::Group(_) => "groups",
        }
    }

    fn title(&self) -> String {
        match self {
            Self::Default => "Defaults".to_owned(),
            Self::Cluster => "Cluster totals".to_owned(),
            Self::User(user) if user.display_name.trim().is_empty() => user.name.to_string(),
            Self::User(user) => user.display_name.clone(),
            Self::Group(group) => group.name.clone(),
        }
    }

    fn head(&self) -> LimitsHead {
        let link = |href: &str, words: &str| Some((href.to_owned(), words.to_owned()));
        let head = LimitsHead { title: self.title(), ..LimitsHead::default() };
        match self {
            Self::Default => LimitsHead {
                lead: "The limits of each user, unless a group or an override sets others.".to_owned(),
                ..head
            },
            Self::Cluster => LimitsHead {
                lead: "The limits of all users together. They always apply, in addition to the limits of users and \
                       groups."
                    .to_owned(),
                ..head
            },
            Self::User(user) => LimitsHead {
                crumb: link("/admin/quotas", "Users"),
                chips: std::iter::once(user.name.to_string()).chain(user.groups.iter().cloned()).collect(),
                lead: "Until it ends, an override replaces the limits of groups and the default.".to_owned(),
                more: link(&format!("/admin/users/{}", user.name), "Account"),
                ..head
            },
            Self::Group(group) => LimitsHead {
                crumb: link("/admin/quotas/groups", "Groups"),
                more: link(&format!("/admin/groups/{}", group.id), "Members"),
                ..head
            },
        }
    }
}

/// What is set, and what holds with it and without it.
pub(super) async fn load_limits(portal: &Portal, whose: &LimitSubject, reader: &Reader<'_>) -> Result<LimitState> {
    let admission = &portal.sessions.admission;
    let set = set_at(portal, whose.level()).await?;
    let models: Vec<String> = admission.stock.inventory().models().into_iter().map(|(model, _)| model).collect();
    let shown = reader.shown(&set);
    let mut sheet = LimitForm::stored(fields(whose.level(), &shown, &models), &shown, whose.group());
    sheet.version = Version::of(&set, whose.group()).to_string();
    let single_user_mode = portal.db.single_user_mode().await?;
    let now = portal.clock.now();
    let resolve = |group, rows: &[_]| admission.resolve(None, group, rows, (single_user_mode, now));
    let (mut together, mut slurm) = (None, None);
    if let Some(kept) = &admission.slurm_limits {
        together = whose.group().and_then(|group| kept.together(group.id));
        // What Slurm keeps is kept for single people, and for the accounts of groups.
        let is_there = |row: &Row| match whose {
            LimitSubject::User(_) => true,
            LimitSubject::Group(_) => row.kind == Kind::Total && together.is_some(),
            LimitSubject::Default | LimitSubject::Cluster => false,
        };
        sheet.rows.retain(|row| !row.field.is_slurms() || is_there(row));
        slurm = match (whose, &together) {
            (LimitSubject::User(user), _) => {
                let group = portal.db.billing_groups_of(user.id).await?.default_group();
                person_in_slurm(user, &kept.of(Some(user.id), group))
            }
            (_, Some(together)) => Some(account_in_slurm(together)),
            _ => None,
        };
    }
    let (holds, usage) = match whose {
        LimitSubject::User(user) => {
            let standing = admission.standing(user.id).await?;
            let mut rows = portal.db.limits_of(user.id).await?;
            rows.retain(|row| row.scope != Scope::User);
            let without = resolve(standing.billing_groups.default_group(), &rows);
            (Some((standing.limits, without)), standing.usage)
        }
        LimitSubject::Default => (Some((resolve(None, &[]), resolve(None, &[]))), Usage::default()),
        LimitSubject::Cluster => (None, admission.used_together(None).await?),
        LimitSubject::Group(group) => (None, admission.used_together(Some(group.id)).await?),
    };
    Ok(LimitState {
        set,
        shown,
        sheet,
        holds,
        usage,
        together,
        keeps_in_slurm: admission.slurm_limits.is_some(),
        slurm,
    })
}

fn person_in_slurm(user: &User, slurms: &SlurmLimits) -> Option<SlurmPanel> {
    if slurms.account.is_empty() {
        return None;
    }
    let unix = user.unix_name.as_deref().unwrap_or(user.name.as_str());
    let (account, amounts) = (&slurms.account, in_slurms_words(&slurms.share));
    let most = slurms.most.iter().map(|(field, most)| {
        format!("One session or job can have at most {} ({}).", field.amount(most.limit.value()), most.source)
    });
    let handed_in = slurms.handed_in.iter().map(|most| {
        format!(
            "At most {} can be in Slurm at once, including its queue ({}, MaxSubmitJobs). Further requests wait in the \
             portal.",
            Field::Jobs.amount(most.limit.value()),
            most.source
        )
    });
    let share = format!("sacctmgr modify user where name={unix} account={account} set GrpTRES={amounts}");
    let qualities = slurms.qualities.iter().map(|(name, each)| {
        format!("sacctmgr modify qos where name={name} set MaxTRESPerUser={}", in_slurms_words(each))
    });
    Some(SlurmPanel {
        lines: most.chain(handed_in).chain(besides(&slurms.besides)).collect(),
        commands: std::iter::once(share).chain(qualities).collect(),
    })
}

fn account_in_slurm(together: &AccountLimits) -> SlurmPanel {
    let (account, amounts) = (&together.account, in_slurms_words(&together.limits));
    SlurmPanel {
        lines: besides(&together.besides).collect(),
        commands: vec![format!("sacctmgr modify account where name={account} set GrpTRES={amounts}")],
    }
}

fn besides(said: &[String]) -> impl Iterator<Item = String> {
    let words = said.join(", ");
    let told = format!(
        "Slurm also limits {words}. It counts them itself, not in the portal’s period, and holds jobs in its own queue."
    );
    (!said.is_empty()).then_some(told).into_iter()
}

/// `gres/gpu=1,cpu=-1,mem=3072M`: what stands there now, to be changed.
fn in_slurms_words(limits: &[(Field, Limit)]) -> String {
    let value = |wanted: Field, shift: u32| {
        let limit = limits.iter().find(|(field, _)| *field == wanted).map(|(_, limit)| limit.value());
        limit.filter(|value| *value >= 0).map_or(-1, |value| value >> shift)
    };
    let mem = match value(Field::MemoryBytes, 20) {
        -1 => "-1".to_owned(),
        some => format!("{some}M"),
    };
    format!("gres/gpu={},cpu={},mem={mem}", value(Field::Gpus, 0), value(Field::Cpus, 0))
}

/// The form as it stands, or as somebody filled it in, with what is wrong.
pub(super) async fn page(
    portal: &Portal,
    reader: &Reader<'_>,
    whose: &LimitSubject,
    standing: &LimitState,
    sheet: &LimitForm,
    faults: &[FieldError],
) -> Result<LimitsPage> {
    let now = portal.clock.now();
    let section = |kind: Kind| {
        let (title, hint) = match (whose, kind) {
            (LimitSubject::Group(_), Kind::Each) if reader.is_manager() => (
                "Each member",
                "Raises the limits of members for what is charged to the group. A raise never lowers a limit.",
            ),
            (LimitSubject::Group(_), Kind::Each) => ("Each member", "The limits of each member of the group."),
            (LimitSubject::Group(group), Kind::Total) if group.chargeable => {
                ("Together", "The total of everything that is charged to the group. It always applies.")
            }
            (LimitSubject::Group(_), Kind::Total) => (
                "Together",
                "The total of everything that the group’s members hold, regardless of the charged group. It always \
                 applies.",
            ),
            _ => ("", ""),
        };
        let rows = sheet.rows.iter().enumerate().filter(|(_, row)| row.kind == kind);
        LimitSection {
            title,
            hint,
            holds: if matches!(whose, LimitSubject::User(_)) { "Effective" } else { "If inherited" },
            shows_use: matches!(whose, LimitSubject::User(_)) || kind == Kind::Total,
            rows: rows.map(|(_, row)| limit_box(row, whose, standing, reader, faults, now)).collect(),
        }
    };
    let kinds = [Kind::Total, Kind::Each].into_iter();
    let kinds = kinds.filter(|kind| sheet.rows.iter().any(|row| row.kind == *kind));
    let is_admin = reader.principal.is_admin();
    let external_usage =
        faults.iter().filter(|fault| !sheet.rows.iter().any(|row| fault.field.starts_with(&row.name())));
    let alert = match faults {
        [] => None,
        faults => {
            let more: Vec<&str> = external_usage.map(|fault| fault.message.as_str()).collect();
            let count =
                if faults.len() == 1 { "One value is".to_owned() } else { format!("{} values are", faults.len()) };
            Some(format!("{count} invalid. Nothing was saved. {}", more.join(" ")))
        }
    };
    let mut head = whose.head();
    if standing.keeps_in_slurm {
        // The note on the page says who gives what.
        head.lead.clear();
    }
    Ok(LimitsPage {
        layout: portal.layout_of(reader.principal, Nav::Administration),
        tab: whose.tab(),
        head,
        notice: None,
        alert,
        stale: None,
        action: whose.address(),
        version: sheet.version.clone(),
        slurm: standing.slurm.clone(),
        sections: kinds.map(section).collect(),
        marks: sheet.marks.map(|boxes| MarkBoxes { may_change: is_admin, ..boxes }),
        may_change: reader.may_change && portal.sessions.admission.slurm_limits.is_none(),
        people: Vec::new(),
        person: match whose {
            LimitSubject::User(user) => Some(person(portal, reader, user, standing, now).await?),
            _ => None,
        },
    })
}

fn limit_box(
    row: &Row,
    whose: &LimitSubject,
    standing: &LimitState,
    reader: &Reader<'_>,
    faults: &[FieldError],
    now: Timestamp,
) -> LimitBox {
    let name = row.name();
    let (label, hint) = field_words(&row.field, row.kind);
    let limit = standing.shown.iter().find(|limit| (limit.kind, &limit.field) == (row.kind, &row.field));
    let effective = match (&standing.holds, whose, row.kind) {
        (Some((holds, _)), LimitSubject::User(_), _) => Some(holds.of(&row.field)),
        (Some((_, without)), ..) => Some(without.of(&row.field)),
        (None, ..) => None,
    };
    let slurms = standing.together.as_ref().filter(|_| row.kind == Kind::Total).and_then(|together| {
        let (_, limit) = together.limits.iter().find(|(field, _)| *field == row.field)?;
        Some(Effective { limit: *limit, source: together.source.clone() })
    });
    let total = limit.map(|limit| Effective { limit: Limit::of(limit.terms.value), source: quota::Source::Total });
    let total = total.or_else(|| slurms.clone());
    let used = match (whose, row.kind) {
        (LimitSubject::User(_), _) => effective.and_then(|effective| meter(&row.field, &standing.usage, effective)),
        (_, Kind::Total) => meter(&row.field, &standing.usage, total.as_ref().unwrap_or(&Effective::NONE)),
        (_, Kind::Each | Kind::Raised) => None,
    };
    // Hours of all together are counted where they are limited.
    let counts = matches!(whose, LimitSubject::User(_))
        || limit.is_some()
        || !matches!(row.field, Field::GpuHours | Field::CpuHours);
    let is_admin = reader.principal.is_admin();
    let has_total = |field: &Field| standing.set.iter().any(|limit| limit.kind == Kind::Total && limit.field == *field);
    let part = |fault: &FieldError| match fault.field.strip_prefix(name.as_str()) {
        Some(".value") => Some("value"),
        Some(".until") => Some("until"),
        Some(".note") => Some("note"),
        Some("" | ".choice") => Some("choice"),
        _ => None,
    };
    LimitBox {
        label,
        hint,
        meter: used.filter(|_| counts),
        effective: match row.kind {
            Kind::Total => Some(slurms.map_or_else(
                || ("unlimited".to_owned(), None),
                |slurms| (limit_words(&row.field, slurms.limit), Some(Source::of(&slurms.source, now))),
            )),
            Kind::Each | Kind::Raised => effective
                .map(|effective| (limit_words(&row.field, effective.limit), Some(Source::of(&effective.source, now)))),
        },
        otherwise: match (&standing.holds, limit, whose) {
            (Some((_, without)), Some(_), LimitSubject::User(_)) => {
                let without = without.of(&row.field);
                Some(format!("otherwise {} from {}", limit_words(&row.field, without.limit), without.source))
            }
            (_, _, LimitSubject::Group(_)) if row.kind == Kind::Each => {
                let (kind, what) = if reader.is_manager() {
                    (Kind::Each, "administrators set")
                } else {
                    (Kind::Raised, "raised by a manager to")
                };
                let other = standing.set.iter().find(|limit| (limit.kind, &limit.field) == (kind, &row.field));
                other.map(|other| format!("{what} {}", limit_words(&row.field, Limit::of(other.terms.value))))
            }
            _ => None,
        },
        typed: row.typed.clone(),
        was: row.was.clone(),
        set_by: limit.map(|limit| (limit.by.clone(), Moment::ago(limit.at, now))),
        theirs: row.theirs.as_ref().map(EnteredAmount::says),
        may_change: reader.may_change
            && (is_admin
                || (row.kind == Kind::Each
                    && has_total(&row.field)
                    && whose.group().is_some_and(|group| group.chargeable))),
        errors: faults.iter().filter_map(|fault| Some((part(fault)?, fault.message.clone()))).collect(),
        can_stay: false,
        is_slurms: standing.keeps_in_slurm && row.field.is_slurms(),
        name,
    }
}

async fn person(
    portal: &Portal,
    reader: &Reader<'_>,
    user: &User,
    standing: &LimitState,
    now: Timestamp,
) -> Result<PersonPanel> {
    let theirs = Filter { owner: Some(user.id), ..Filter::default() };
    let live = portal.sessions.list(Filter { live_only: true, limit: MAX_SESSIONS_SHOWN, ..theirs }).await?;
    let limits = standing.holds.as_ref().map(|(holds, _)| holds);
    let card =
        |session: &Session| limits.map(|limits| cards::card(portal, reader.principal, reader.headers, session, limits));
    let refused = portal.sessions.admission.refusals(user.id, REFUSALS).await?;
    Ok(PersonPanel {
        cards: live.iter().filter_map(card).collect(),
        refusals: refused.into_iter().map(|refused| refusal(refused, now)).collect(),
    })
}

fn refusal(refused: db::refusals::Refusal, now: Timestamp) -> Refusal {
    let (asked, duration) = (resources_line(&refused.resources, &[]), human_duration(refused.duration_seconds));
    Refusal {
        href: refused.waited.then(|| format!("/sessions/{}", refused.id)),
        name: refused.name,
        asked: format!("{asked} for {duration}"),
        at: Moment::ago(refused.at, now),
        why: refused.reasons.into_iter().map(|reason| reason.hint).collect(),
    }
}

/// The page that says what a change would mean.
pub(super) fn preview(
    portal: &Portal,
    reader: &Arc<Principal>,
    whose: &LimitSubject,
    standing: &LimitState,
    sheet: &LimitForm,
    change: &LevelChange,
    told: ChangePreview,
) -> LimitsPreview {
    let now = portal.clock.now();
    let without = standing.holds.as_ref().map(|(_, without)| without);
    let line = |change: &Change| {
        let before = standing.shown.iter().find(|limit| (limit.kind, &limit.field) == (change.kind, &change.field));
        let inherited = match (change.kind, without) {
            (Kind::Each, Some(without)) => {
                let effective = without.of(&change.field);
                format!("inherit ({} from {})", limit_words(&change.field, effective.limit), effective.source)
            }
            _ => "inherit".to_owned(),
        };
        let says = |terms: Option<&_>| match terms {
            Some(_) => EnteredAmount::of(terms, &change.field).says(),
            None => inherited.clone(),
        };
        let prefix = match (whose, change.kind) {
            (LimitSubject::Group(_), Kind::Each) => "Each member: ",
            (LimitSubject::Group(_), Kind::Total) => "Together: ",
            _ => "",
        };
        let (label, _) = field_words(&change.field, change.kind);
        let (before, after) = (says(before.map(|limit| &limit.terms)), says(change.to.as_ref()));
        ChangeLine { label: format!("{prefix}{label}"), before, after }
    };
    let mark = |(label, mark): (&str, Option<bool>)| {
        let word = |yes| if yes { "yes" } else { "no" }.to_owned();
        mark.map(|is| ChangeLine { label: label.to_owned(), before: word(!is), after: word(is) })
    };
    let marks = [
        ("Sessions can be charged to it", change.marks.chargeable),
        ("Restricts its members", change.marks.restrictive),
    ];
    let lines = change.changes.iter().map(line).chain(marks.into_iter().filter_map(mark)).collect();
    let view = LimitsPreview {
        layout: portal.layout_of(reader, Nav::Administration),
        tab: whose.tab(),
        title: whose.title(),
        action: whose.address(),
        hidden: sheet.pairs(),
        lines,
        people: Vec::new(),
        over: Vec::new(),
        people_over: 0,
        more_over: 0,
        refused: Vec::new(),
        more_refused: 0,
    };
    with_foretold(view, told, now)
}

/// Names those who would be over, and requests that would be refused, as many as a person reads.
pub(super) fn with_foretold(view: LimitsPreview, told: ChangePreview, now: Timestamp) -> LimitsPreview {
    let ChangePreview { over, refused } = told;
    let mut people: Vec<&str> = over.iter().filter_map(|over| over.user.as_deref()).collect();
    people.sort_unstable();
    people.dedup();
    let (people_over, more_over) = (people.len(), over.len().saturating_sub(MAX_NAMED));
    let line = |over: ExceededLimit| OverLine {
        used: over.field.amount(over.used),
        limit: over.field.amount(over.limit),
        source: Source::of(&over.source, now),
        verb: if matches!(over.field, Field::GpuHours | Field::CpuHours) {
            "used or reserved by running workloads"
        } else {
            "in use"
        },
        user: over.user,
    };
    let more_refused = refused.len().saturating_sub(MAX_NAMED);
    let end =
        |refused: ImpossibleRequest| RefusedLine { user: refused.user, name: refused.name, why: refused.reason.hint };
    LimitsPreview {
        over: over.into_iter().take(MAX_NAMED).map(line).collect(),
        people_over,
        more_over,
        refused: refused.into_iter().take(MAX_NAMED).map(end).collect(),
        more_refused,
        ..view
    }
}
