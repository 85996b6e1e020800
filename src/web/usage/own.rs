//! `/usage` as a page: what somebody holds, used over time and may still use, and which of
//! their sessions have ended and why, also as a table.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use jiff::civil::Date;
use serde::Deserialize;

use super::{
    draw::{charts, from_shell, span_rows, tabs},
    range::{Range, RangeQuery},
};
use crate::{
    admission::QuotaStatus,
    auth::Principal,
    db::{
        ordering::SortBy,
        sessions::{ENDED_SORT_COLUMNS, Filter},
        usage::UsageOwner,
    },
    model::{
        EndReason, Session, SessionId, SessionState, Timestamp,
        quota::{self as total, ConsumedTime, Effective, Field, Limit, Usage},
        timeline::{self, Span},
    },
    web::{
        Portal,
        http::{
            csv,
            error::{Error, FieldError, Result},
            extract::{CurrentUser, Query},
            href::href,
            paging::Paging,
            sorting::Sorting,
        },
        page::{Nav, Page},
        sessions::cards,
        views::{
            Budget, EndedLine, HistoryFilter, Meter, Moment, Unit, UsagePage, end_reason_word, resources_line,
            session_badge,
        },
    },
};

/// So many lines a list of these pages has.
const LINES: i64 = 50;
/// So many are read at once for a table.
const STEP: i64 = 500;

/// The address of one's own page. What is not known is left out, so that a link of yesterday works.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct OwnPageParams {
    range: String,
    from: String,
    to: String,
    app: String,
    reason: String,
    cursor: Option<String>,
}

impl OwnPageParams {
    fn words(&self) -> RangeQuery<'_> {
        RangeQuery { range: &self.range, from: self.from.trim(), to: self.to.trim() }
    }

    fn range(&self, portal: &Portal) -> (Range, Vec<FieldError>) {
        let admission = &portal.sessions.admission;
        Range::read(self.words(), &admission.period, &admission.zone, portal.clock.now())
    }

    fn end_reason(&self) -> Option<EndReason> {
        self.reason.parse().ok()
    }

    /// What the history is narrowed to, as an address says it.
    fn narrowing(&self) -> Vec<(&'static str, &str)> {
        let reason = self.end_reason().map_or("", EndReason::as_str);
        [("app", self.app.as_str()), ("reason", reason)].into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    fn filter<'a>(&'a self, user: &Principal, range: &Range) -> Filter<'a> {
        Filter {
            owner: Some(user.id()),
            state: Some(SessionState::Ended),
            app: Some(self.app.as_str()).filter(|app| !app.is_empty()),
            end_reason: self.end_reason(),
            ended_from: Some(range.from),
            ended_before: Some(range.to),
            limit: LINES + 1,
            ..Filter::default()
        }
    }
}

/// `/usage`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<OwnPageParams>,
) -> Result<Response> {
    let (range, faults) = visit.range(&portal);
    let (period, zone) = (&portal.sessions.admission.period, &portal.sessions.admission.zone);
    let standing = portal.sessions.standing(user.id()).await?;
    let over_time = portal
        .db
        .used_in(UsageOwner::Person(user.id()), &timeline::cut(range.from, range.to, range.step(), zone))
        .await?;
    let shell =
        portal.db.used_from_shell(UsageOwner::Person(user.id()), range.from, range.to, portal.clock.now()).await?;
    let sorting = last_ended_first();
    let paging = Paging::new(None, visit.cursor.clone().filter(|cursor| !cursor.is_empty()));
    let position = sorting.position::<SessionId>(&paging)?;
    let (before, sort) = (position.before, sorting.sort(&position));
    let ended = portal.sessions.list_sorted(Filter { before, sort, ..visit.filter(&user, &range) }).await?;
    let page = sorting.listed(ended, LINES, |session: &Session| session.id);
    let kept = [range.words(visit.words()), visit.narrowing()].concat();
    let view = UsagePage {
        layout: portal.layout_of(&user.0, Nav::Usage),
        tabs: tabs(&user, true),
        meters: cards::meters(&standing),
        elsewhere: cards::elsewhere_note(&standing),
        budgets: budgets(&portal, &user, &standing).await?,
        range: range.chooser(visit.words(), ("/usage", &visit.narrowing()), (period, zone), &faults),
        charts: charts(&over_time, range.step(), standing.capacity.gpus > 0),
        spans: span_rows(&over_time, range.step()),
        from_shell: from_shell(shell),
        history: history(&portal, &visit, &range),
        lines: page.items.iter().map(|session| line(&portal, session)).collect(),
        csv_href: href("/usage/table", &kept),
        first_href: before.map(|_| href("/usage", &kept) + "#history"),
        next_href: page
            .next_cursor
            .map(|cursor| href("/usage", kept.iter().chain([&("cursor", cursor.as_str())])) + "#history"),
    };
    if faults.is_empty() { Ok(Page(view).into_response()) } else { Ok(Error::invalid(faults).with_page(Page(view))) }
}

/// `/usage/table`: all that ended of the page's choice, however much.
pub async fn table(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<OwnPageParams>,
) -> Result<Response> {
    let (range, faults) = visit.range(&portal);
    if !faults.is_empty() {
        return Err(Error::invalid(faults));
    }
    let head = csv::line([
        "id",
        "name",
        "app",
        "end_reason",
        "group",
        "held_from",
        "ended_at",
        "held_seconds",
        "gpus",
        "gpu_model",
        "cpus",
        "memory_bytes",
    ]);
    let first = (user, visit, range, None::<(SessionId, String)>);
    Ok(csv::download(portal, "sessions", head, first, async |portal, (user, visit, range, last)| {
        let after = last.as_ref().map(|(_, ended)| ended.as_str());
        let sort = Some(SortBy { column: &ENDED_SORT_COLUMNS[1], is_descending: true, after });
        let before = last.as_ref().map(|(id, _)| *id);
        let filter = Filter { before, sort, limit: STEP, ..visit.filter(&user, &range) };
        let sessions = portal.sessions.list_sorted(filter).await?;
        let next = sessions.last().map(|(last, ended)| (user, visit, range, Some((last.id, ended.clone()))));
        Ok((sessions.iter().map(|(session, _)| cells(session)).collect(), next))
    }))
}

/// The order of what ended in a period.
fn last_ended_first() -> Sorting {
    Sorting::of_page(&ENDED_SORT_COLUMNS, "-ended")
}

fn cells(session: &Session) -> String {
    let moment = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    let resources = &session.spec.resources;
    let models: BTreeSet<&str> = session.gpus.iter().map(|gpu| gpu.model.as_str()).collect();
    csv::line([
        session.id.to_string(),
        session.name.clone(),
        session.app.clone(),
        session.end_reason.map_or("", EndReason::as_str).to_owned(),
        session.spec.group.clone().unwrap_or_default(),
        moment(session.admitted_at),
        moment(session.ended_at),
        held_seconds(session).unwrap_or_default().to_string(),
        resources.gpus.to_string(),
        models.into_iter().collect::<Vec<_>>().join(" "),
        resources.cpus.to_string(),
        resources.memory_bytes.to_string(),
    ])
}

/// For how long it held something; `None` where it never did.
fn held_seconds(session: &Session) -> Option<i64> {
    Some(session.ended_at?.seconds_since(session.admitted_at?).max(0))
}

fn line(portal: &Portal, session: &Session) -> EndedLine {
    let app = portal.sessions.apps.find(&session.app).map_or(session.app.as_str(), |app| app.title.as_str());
    EndedLine {
        id: session.id.to_string(),
        name: session.name.clone(),
        app: app.to_owned(),
        class: session_badge(session).0,
        reason: session.end_reason.map_or("Ended", end_reason_word),
        ended: Moment::clock(session.ended_at.unwrap_or(session.created_at), portal.clock.now()),
        held_seconds: held_seconds(session),
        held: resources_line(&session.spec.resources, &session.gpus),
    }
}

fn history(portal: &Portal, visit: &OwnPageParams, range: &Range) -> HistoryFilter {
    let mut apps: Vec<(String, String, bool)> =
        portal.sessions.apps.iter().map(|app| (app.name.clone(), app.title.clone(), visit.app == app.name)).collect();
    // An app that the site no longer has may still have ended.
    if !visit.app.is_empty() && apps.iter().all(|(.., chosen)| !chosen) {
        apps.push((visit.app.clone(), visit.app.clone(), true));
    }
    let chosen = visit.end_reason();
    let words = range.words(visit.words());
    HistoryFilter {
        apps,
        reasons: EndReason::ALL
            .iter()
            .map(|reason| (reason.as_str(), end_reason_word(*reason), chosen == Some(*reason)))
            .collect(),
        all_href: href("/usage", &words) + "#history",
        kept: words.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
    }
}

/// What is limited by hours: its field, name and word, and where its amounts are kept.
struct Hours {
    field: Field,
    name: &'static str,
    label: &'static str,
    /// What a standing tells, with what runs counted to its end (seconds).
    seconds: fn(&Usage) -> i64,
    /// What was used so far (milliseconds).
    so_far: fn(&ConsumedTime) -> i64,
}

const HOURS: [Hours; 2] = [
    Hours {
        field: Field::GpuHours,
        name: "gpu_hours",
        label: "GPU-hours",
        seconds: |usage| usage.gpu_seconds,
        so_far: |spent| spent.gpu_milliseconds,
    },
    Hours {
        field: Field::CpuHours,
        name: "cpu_hours",
        label: "core-hours",
        seconds: |usage| usage.cpu_seconds,
        so_far: |spent| spent.cpu_milliseconds,
    },
];

/// Hours that somebody limits: the person's own, and totals of the group that they charge and of
/// all. What was used and what those that run may still use are told apart for oneself alone.
async fn budgets(portal: &Portal, user: &Principal, standing: &QuotaStatus) -> Result<Vec<Budget>> {
    let period = Span { from: standing.window.from, to: standing.at, date: Date::ZERO };
    let spans = portal.db.used_in(UsageOwner::Person(user.id()), &[period]).await?;
    let so_far = spans.first().map(|one| one.spent).unwrap_or_default();
    let mut budgets = Vec::new();
    for hours in HOURS {
        let budget = |limit, usage: &Usage, so_far: Option<i64>, source: String, whose| {
            let Limit::AtMost(limit) = limit else { return None };
            let whole = (hours.seconds)(usage).saturating_mul(1000) / 3600;
            let spent = so_far.map_or(whole, |milliseconds| (milliseconds / 3600).min(whole));
            let meter = Meter {
                field: hours.name,
                label: hours.label.to_owned(),
                used: spent,
                asked: whole - spent,
                limit: Some(limit.saturating_mul(1000)),
                unit: Unit::Milli,
                source,
            };
            Some(Budget { meter, period: standing.period.to_string(), whose })
        };
        let Effective { limit, source } = standing.limits.of(&hours.field).clone();
        let own =
            budget(limit, &standing.usage, Some((hours.so_far)(&so_far)), source.to_string(), "your limit".to_owned());
        budgets.extend(own);
        for total in &standing.totals {
            let limits = total.limits.iter().filter(|(field, _)| *field == hours.field);
            let whose = match &total.whose {
                total::TotalScope::Cluster => "total of all users".to_owned(),
                total::TotalScope::Group { name, .. } => format!("total of group {name}"),
            };
            budgets.extend(
                limits.filter_map(|(_, limit)| budget(*limit, &total.usage, None, whose.clone(), whose.clone())),
            );
        }
    }
    Ok(budgets)
}
