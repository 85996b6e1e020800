//! `/usage/compare` as a page and as a table: who used how much, for those who see others'
//! affairs: by person, group or GPU model, in an order of one's choice.

use std::{fmt, str::FromStr, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    UsageRow,
    draw::{charts, from_shell, others_word, span_rows},
    of_groups, others,
    range::{Range, RangeQuery},
    table,
};
use crate::{
    db::usage::{self, Sort, UsageFilter, UsageGrouping, UsageOwner, Used, UsedList},
    model::{quota::ConsumedTime, timeline},
    web::{
        Portal,
        http::{
            error::{Error, FieldError, Result},
            extract::{CurrentUser, Query},
            href::href,
            paging::{Listed, Paging},
        },
        page::{Nav, Page},
        views::{Column, ComparePage, RangeTab, UsageTabs, UsedRow},
    },
};

/// So many rows a page has.
const ROWS: i64 = 50;
/// Models come all at once: no machine room has more.
const MODELS: i64 = 500;

/// The address of the page of comparison.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct ComparePageParams {
    range: String,
    from: String,
    to: String,
    by: String,
    sort: String,
    cursor: Option<String>,
}

const BYS: [(&str, &str, UsageGrouping); 3] = [
    ("", "User", UsageGrouping::User),
    ("group", "Group", UsageGrouping::Group),
    ("gpu_model", "GPU model", UsageGrouping::GpuModel),
];

/// What can only be downloaded.
const REPORTS: [(&str, &str); 2] = [("group,user", "group and user"), ("group,month", "group and month")];

const SORTS: [(&str, &str, Sort); 4] = [
    ("name", "Name", Sort::Name),
    ("", "GPU-hours", Sort::Gpus),
    ("cpus", "Core-hours", Sort::Cpus),
    ("sessions", "Sessions", Sort::Sessions),
];

impl ComparePageParams {
    fn words(&self) -> RangeQuery<'_> {
        RangeQuery { range: &self.range, from: self.from.trim(), to: self.to.trim() }
    }

    fn range(&self, portal: &Portal) -> (Range, Vec<FieldError>) {
        let admission = &portal.sessions.admission;
        Range::read(self.words(), &admission.period, &admission.zone, portal.clock.now())
    }

    fn by(&self) -> (&'static str, UsageGrouping) {
        BYS.iter().find(|(word, ..)| *word == self.by).map_or((BYS[0].0, BYS[0].2), |(word, _, by)| (*word, *by))
    }

    fn sort(&self) -> (&'static str, Sort) {
        let known = SORTS.iter().find(|(word, ..)| *word == self.sort);
        let (word, sort) = known.map_or(("", Sort::Gpus), |(word, _, sort)| (*word, *sort));
        // Cores are not counted by model.
        if self.by().1 == UsageGrouping::GpuModel && sort == Sort::Cpus { ("", Sort::Gpus) } else { (word, sort) }
    }

    /// Range, and by what and in which order, as an address says it.
    fn address<'a>(&'a self, range: &Range, by: &'a str, sort: &'a str, cursor: &'a str) -> String {
        let more = [("by", by), ("sort", sort), ("cursor", cursor)];
        href("/usage/compare", range.words(self.words()).iter().chain(&more))
    }
}

/// A row's place in the order: what it is sorted by, and its id; or 0 and its name.
struct RowCursor(i64, String);

impl RowCursor {
    fn of(row: &Used, sort: Sort) -> Self {
        match sort {
            Sort::Name => Self(0, row.name.to_string()),
            Sort::Gpus => Self(row.gpu_milliseconds, row.id.to_string()),
            Sort::Cpus => Self(row.cpu_milliseconds, row.id.to_string()),
            Sort::Sessions => Self(row.sessions, row.id.to_string()),
        }
    }
}

impl fmt::Display for RowCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

impl FromStr for RowCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (amount, name) = text.split_once(' ').filter(|(_, name)| !name.contains('\0')).ok_or(())?;
        Ok(Self(amount.parse().map_err(drop)?, name.to_owned()))
    }
}

/// `/usage/compare`, for those who see others' affairs.
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<ComparePageParams>,
) -> Result<Response> {
    let whose = others(&user).ok_or_else(not_for_you)?;
    let (range, faults) = visit.range(&portal);
    let (period, zone) = (&portal.sessions.admission.period, &portal.sessions.admission.zone);
    let ((by_word, by), (sort_word, sort)) = (visit.by(), visit.sort());
    let cursor = visit.cursor.clone().filter(|cursor| !cursor.is_empty() && by != UsageGrouping::GpuModel);
    let after = Paging::new(None, cursor).after::<RowCursor>()?.map(|RowCursor(amount, name)| (amount, name));
    let is_first = after.is_none();
    let (from, to, now) = (range.from, range.to, portal.clock.now());
    // Models come all at once.
    let limit = if by == UsageGrouping::GpuModel { MODELS } else { ROWS };
    let page = Some(usage::Page { after, limit: limit + 1 });
    let asked = UsageFilter { by, whose, from, to, now, sort, page };
    let spans = timeline::cut(from, to, range.step(), zone);
    let (UsedList { rows, count, most, from_shell: shell, .. }, over_time) =
        tokio::try_join!(portal.db.used(&asked), portal.db.used_in(whose, &spans))?;
    let list = Listed::new(rows, limit, |row| RowCursor::of(row, sort));
    let kept: Vec<_> =
        [("by", by_word), ("sort", sort_word)].into_iter().filter(|(_, word)| !word.is_empty()).collect();
    let view = ComparePage {
        layout: portal.layout_of(&user.0, Nav::Usage),
        tabs: UsageTabs { others: others_word(whose), is_own: false },
        range: range.chooser(visit.words(), ("/usage/compare", &kept), (period, zone), &faults),
        charts: charts(&over_time, range.step(), portal.sessions.admission.stock.capacity().gpus > 0),
        spans: span_rows(&over_time, range.step()),
        from_shell: from_shell(shell),
        by: BYS
            .iter()
            .map(|(word, label, one)| RangeTab {
                href: visit.address(&range, word, sort_word, ""),
                label: (*label).to_owned(),
                is_current: *one == by,
            })
            .collect(),
        columns: columns(&visit, &range, by, sort),
        has_cores: by != UsageGrouping::GpuModel,
        rows: list.items.iter().map(|row| used_row(row, most, links(whose, by))).collect(),
        count,
        csv_href: href("/usage/compare/table", range.words(visit.words()).iter().chain(&kept)),
        reports: REPORTS.map(|(word, label)| {
            (label, href("/usage/compare/table", range.words(visit.words()).iter().chain(&[("by", word)])))
        }),
        first_href: (!is_first).then(|| visit.address(&range, by_word, sort_word, "")),
        next_href: list
            .next_cursor
            .filter(|_| by != UsageGrouping::GpuModel)
            .map(|cursor| visit.address(&range, by_word, sort_word, &cursor)),
    };
    if faults.is_empty() { Ok(Page(view).into_response()) } else { Ok(Error::invalid(faults).with_page(Page(view))) }
}

/// `/usage/compare/table`: all rows of the page's choice, in its order; or by group and user or month.
pub async fn download(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<ComparePageParams>,
) -> Result<Response> {
    let whose = others(&user).ok_or_else(not_for_you)?;
    let (range, faults) = visit.range(&portal);
    if !faults.is_empty() {
        return Err(Error::invalid(faults));
    }
    let now = portal.clock.now();
    if let Some((by, rows)) = of_groups(&portal, whose, &visit.by, (range.from, range.to), now).await? {
        return Ok(table(by, &rows));
    }
    let ((word, by), (_, sort)) = (visit.by(), visit.sort());
    let asked = UsageFilter { by, whose, from: range.from, to: range.to, now, sort, page: None };
    let rows: Vec<UsageRow> = portal.db.used(&asked).await?.rows.into_iter().map(UsageRow::from).collect();
    Ok(table(if word.is_empty() { "user" } else { word }, &rows))
}

fn not_for_you() -> Error {
    Error::forbidden("Only administrators, operators and managers of groups can see this.")
}

/// The page of what a row is about begins so, where the reader has one.
fn links(whose: UsageOwner, by: UsageGrouping) -> Option<&'static str> {
    (whose == UsageOwner::Everybody && by == UsageGrouping::User).then_some("/admin/users/")
}

fn used_row(row: &Used, most: ConsumedTime, link: Option<&str>) -> UsedRow {
    UsedRow {
        href: link.map(|link| format!("{link}{}", row.name)),
        gpu_bar: hundredths(row.gpu_milliseconds, most.gpu_milliseconds),
        cpu_bar: hundredths(row.cpu_milliseconds, most.cpu_milliseconds),
        name: row.name.to_string(),
        gpus: row.gpu_milliseconds,
        cpus: row.cpu_milliseconds,
        sessions: row.sessions,
    }
}

/// A part of a whole; what is there at all is one at least.
fn hundredths(part: i64, whole: i64) -> i64 {
    let hundredths = i128::from(part) * 100 / i128::from(whole.max(1));
    i64::try_from(hundredths).unwrap_or(100).clamp(i64::from(part > 0), 100)
}

fn columns(visit: &ComparePageParams, range: &Range, by: UsageGrouping, sort: Sort) -> Vec<Column> {
    let shown = SORTS.iter().filter(|(.., column)| *column != Sort::Cpus || by != UsageGrouping::GpuModel);
    shown
        .map(|(word, label, column)| Column {
            label,
            href: visit.address(range, visit.by().0, word, ""),
            sorted: (*column == sort).then_some(if sort == Sort::Name { "ascending" } else { "descending" }),
        })
        .collect()
}
