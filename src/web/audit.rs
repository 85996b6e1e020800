//! `/admin/audit`, for administrators: the audit log as a page, over REST, and as a table for a
//! spreadsheet, by the same filters; and forwards from a number on, for a collector. Rows are never changed here.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        csv,
        error::{Error, FieldError, Problem, Result},
        extract::{Admin, Query},
        paging::{Listed, Paging},
        routes::Pages,
    },
    page::{Nav, Page},
    views::{self, AuditFilter, AuditLine, AuditPage, Moment},
};
use crate::{
    db::{
        self,
        audit::{Audit, Filter},
    },
    model::{SessionId, Timestamp},
};

/// So many rows a page of the browser's shows.
const PAGE: i64 = 50;
/// So many rows are read at once for a table.
const STEP: i64 = 500;

/// Adds the routes of the page.
pub fn routes(pages: Pages) -> Pages {
    pages.get("/admin/audit", page).get("/admin/audit/table", download)
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditRow {
    /// 1, 2, 3 … without gaps, in the order of the changes.
    number: i64,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// A user's name, `unix:NAME` for the command line, or the part of the portal that acted.
    actor: String,
    /// `sign_in`, `token.make`, `session.stop` …
    action: String,
    /// The object of the action: a user's name, or the id of a session or token.
    subject: String,
    detail: String,
    /// The client address of the request. Empty, like `request_id`, if there was no request.
    address: String,
    request_id: String,
    /// SHA-256 of the previous entry's hash and this entry's fields, in hexadecimal.
    hash: String,
}

impl From<Audit> for AuditRow {
    fn from(row: Audit) -> Self {
        let Audit { number, at, actor, action, subject, detail, address, request_id, hash } = row;
        Self { number, at, actor, action, subject, detail, address, request_id, hash }
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Maximum number of entries to return, 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Matches `actor`, ignoring case. Matches its beginning if no entry matches exactly. `action`, `subject` and
    /// `address` work in the same way.
    #[param(required = false)]
    actor: String,
    #[param(required = false)]
    action: String,
    #[param(required = false)]
    subject: String,
    #[param(required = false)]
    address: String,
    /// Only entries at or after this time.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Only entries before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// Only entries with a higher number, in the order of their numbers: a collector sends the number of the last entry
    /// that it has, or 0. Filters cannot be combined with it.
    #[param(minimum = 0)]
    after: Option<i64>,
}

/// Where a page ends: the last row's moment and number.
struct AuditCursor(Timestamp, i64);

impl std::fmt::Display for AuditCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0.0, self.1)
    }
}

impl std::str::FromStr for AuditCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, number) = text.split_once('.').ok_or(())?;
        Ok(Self(Timestamp(at.parse().map_err(drop)?), number.parse().map_err(drop)?))
    }
}

/// Returns the audit log, latest entry first; with `after`, oldest entry first.
///
/// With `Accept: text/csv` or `application/x-ndjson`, returns all matching entries as a table or as lines of JSON.
#[utoipa::path(
    get, path = "/audit", tag = "audit", params(AuditQuery),
    responses(
        (status = 200, content((Listed<AuditRow> = "application/json"), (String = "text/csv"), (String = "application/x-ndjson"))),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "A parameter is invalid", body = Problem),
    )
)]
pub async fn list(
    _: Admin,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<AuditQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    check_after(&parameters)?;
    let AuditQuery { limit, cursor, actor, action, subject, address, from, to, after } = parameters;
    let paging = Paging::new(limit, cursor);
    let limit = paging.limit()?;
    let last = paging.after::<AuditCursor>()?.map(|AuditCursor(at, number)| (at, number));
    let place = match after {
        Some(after) => Place::After(last.map_or(after, |(_, number)| number.max(after))),
        None => Place::Before(Filter { actor, action, subject, address, from, to, before: last, limit: 0 }),
    };
    if wants_csv(&headers) {
        return Ok(table(portal, place));
    }
    if wants(&headers, NDJSON) {
        let lines = csv::lines(portal, String::new(), place, async |portal, place| {
            let (rows, next) = place.read(&portal, STEP).await?;
            let line = |row| serde_json::to_string(&AuditRow::from(row)).map(|line| line + "\n");
            Ok((rows.into_iter().map(line).collect::<Result<String, _>>()?, next))
        });
        return Ok(([(header::CONTENT_TYPE, NDJSON)], lines).into_response());
    }
    let rows = place.read(&portal, limit + 1).await?.0.into_iter().map(AuditRow::from).collect();
    Ok(Answer(Listed::new(rows, limit, |row| AuditCursor(row.at, row.number))).into_response())
}

/// Lines of JSON.
const NDJSON: &str = "application/x-ndjson";

/// A collector that left entries out could not check the chain of hashes.
fn check_after(asked: &AuditQuery) -> Result<()> {
    let Some(after) = asked.after else { return Ok(()) };
    let texts = [&asked.actor, &asked.action, &asked.subject, &asked.address].map(|text| !text.is_empty());
    let given = texts.into_iter().chain([asked.from.is_some(), asked.to.is_some()]);
    let names = ["actor", "action", "subject", "address", "from", "to"];
    let message = "Cannot be combined with `after`.";
    let mut faults: Vec<FieldError> = names
        .into_iter()
        .zip(given)
        .filter(|(_, is_given)| *is_given)
        .map(|(name, _)| FieldError::new(name, "ambiguous", message))
        .collect();
    if after < 0 {
        faults.push(FieldError::new("after", "out_of_range", "Must be 0 or higher."));
    }
    if faults.is_empty() { Ok(()) } else { Err(Error::invalid(faults)) }
}

/// Where reading goes on: backwards from the latest row, or forwards after a number.
enum Place {
    Before(Filter),
    After(i64),
}

impl Place {
    /// Returns at most so many rows, and the place after them.
    async fn read(self, portal: &Portal, limit: i64) -> Result<(Vec<Audit>, Option<Self>), db::Error> {
        match self {
            Self::Before(filter) => {
                let filter = Filter { limit, ..filter };
                let rows = portal.db.find_audit(&filter).await?;
                let next =
                    rows.last().map(|last| Self::Before(Filter { before: Some((last.at, last.number)), ..filter }));
                Ok((rows, next))
            }
            Self::After(number) => {
                let rows = portal.db.audit_after(number, limit).await?;
                let next = rows.last().map(|last| Self::After(last.number));
                Ok((rows, next))
            }
        }
    }
}

/// Whether a table is wanted rather than JSON.
pub(super) fn wants_csv(headers: &HeaderMap) -> bool {
    wants(headers, "text/csv")
}

pub(super) fn wants(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split([',', ';']).any(|accepted| accepted.trim().eq_ignore_ascii_case(kind))
}

/// What the page's form asks for. Days are whole and in UTC.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PageParams {
    actor: String,
    action: String,
    subject: String,
    address: String,
    from: String,
    to: String,
    cursor: Option<String>,
}

async fn page(admin: Admin, State(portal): State<Arc<Portal>>, Query(visit): Query<PageParams>) -> Result<Response> {
    let asked = visit.form();
    let layout = portal.layout_of(&admin.0, Nav::Administration);
    let filter = match visit.filter() {
        Ok(filter) => filter,
        Err(error) => {
            let shown =
                |error: &FieldError| views::FieldError { field: error.field.clone(), message: error.message.clone() };
            let errors = error.field_errors().iter().map(shown).collect();
            let view = AuditPage { layout, asked, errors, lines: Vec::new(), csv_href: String::new(), next_href: None };
            return Ok(error.with_page(Page(view)));
        }
    };
    let now = portal.clock.now();
    let rows = portal.db.find_audit(&Filter { limit: PAGE + 1, ..filter }).await?;
    let page = Listed::new(rows, PAGE, |row| AuditCursor(row.at, row.number));
    let query = asked.query();
    let view = AuditPage {
        layout,
        errors: Vec::new(),
        lines: page.items.into_iter().map(|row| line(row, now)).collect(),
        csv_href: format!("/admin/audit/table?{query}"),
        next_href: page.next_cursor.map(|cursor| format!("/admin/audit?{query}&cursor={cursor}")),
        asked,
    };
    Ok(Page(view).into_response())
}

/// The rows of the page's filter as a file.
async fn download(_: Admin, State(portal): State<Arc<Portal>>, Query(visit): Query<PageParams>) -> Result<Response> {
    let filter = visit.filter()?;
    Ok(table(portal, Place::Before(filter)))
}

impl PageParams {
    fn form(&self) -> AuditFilter {
        let Self { actor, action, subject, address, from, to, .. } = self.clone();
        AuditFilter { actor, action, subject, address, from, to }
    }

    fn filter(self) -> Result<Filter> {
        let mut faults = Vec::new();
        let mut day = |field: &str, text: &str, days: i64| {
            let begin = day_begins(text).map(|at| at.plus_seconds(days * 86_400));
            if begin.is_none() && !text.is_empty() {
                faults.push(FieldError::new(field, "invalid_value", "Enter a date, as in 2030-01-31."));
            }
            begin
        };
        let (from, to) = (day("from", self.from.trim(), 0), day("to", self.to.trim(), 1));
        if !faults.is_empty() {
            return Err(Error::invalid(faults));
        }
        let before = Paging::new(None, self.cursor).after::<AuditCursor>()?.map(|AuditCursor(at, number)| (at, number));
        let [actor, action, subject, address] =
            [self.actor, self.action, self.subject, self.address].map(|text| text.trim().to_owned());
        Ok(Filter { actor, action, subject, address, from, to, before, limit: PAGE })
    }
}

/// The first moment of a day in UTC.
fn day_begins(text: &str) -> Option<Timestamp> {
    let day = text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp(day.timestamp().as_millisecond()))
}

fn line(row: Audit, now: Timestamp) -> AuditLine {
    let session = row.action.starts_with("session.").then(|| row.subject.parse::<SessionId>().ok()).flatten();
    AuditLine {
        number: row.number,
        at: Moment::clock(row.at, now),
        actor: row.actor,
        action: row.action,
        subject: row.subject,
        subject_href: session.map(|id| format!("/sessions/{id}")),
        detail: row.detail,
        address: row.address,
        request_id: row.request_id,
    }
}

const COLUMNS: [&str; 9] = ["number", "at", "actor", "action", "subject", "detail", "address", "request_id", "hash"];

/// Streams all rows from a place on.
fn table(portal: Arc<Portal>, first: Place) -> Response {
    csv::download(portal, "audit", csv::line(COLUMNS), first, async |portal, place| {
        let (rows, next) = place.read(&portal, STEP).await?;
        let lines = rows.iter().map(|row| {
            let (number, at) = (row.number.to_string(), row.at.to_string());
            let (who, what) = ([&row.actor, &row.action, &row.subject], [&row.detail, &row.address]);
            csv::line([&number, &at].into_iter().chain(who).chain(what).chain([&row.request_id, &row.hash]))
        });
        Ok((lines.collect(), next))
    })
}
