//! Curves over REST: which a run has, one of them in buckets or with every point, many at once.
//! What a curve comes to is computed by `runs`; here are parameters, versions and forms.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    model::{JobId, Run, RunId},
    runs::{Axis, Curve, Metrics, Question, Selection, csv, curve, metrics},
    web::{
        Portal,
        http::{
            error::{Error, NotModified, Problem, Result},
            extract::{CurrentUser, Id, Json, Query},
            json::Long,
        },
    },
};

/// How many buckets a curve has where nobody says, and at most.
const DEFAULT_POINTS: usize = 1000;
const MAX_POINTS: usize = 10_000;

/// How many tags are listed where nobody says, and at most.
const DEFAULT_TAGS: usize = 2000;
const MAX_TAGS: usize = 20_000;

/// What one call for many curves may ask for.
const MAX_RUNS: usize = 100;
const MAX_NAMES: usize = 200;
const MAX_CURVES: usize = 1000;
const MAX_BUCKETS: usize = 500_000;

/// How many points of a table are written at a time.
const PIECE: usize = 20_000;

/// Filter of the curves of a run.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MetricsParameters {
    /// Only this directory of the run; `.` is the run's directory itself.
    run: Option<String>,
    /// Only tags that start with this text.
    prefix: Option<String>,
    /// Only tags that contain this text.
    search: Option<String>,
    #[param(minimum = 1, maximum = 20000, default = 2000)]
    limit: Option<usize>,
}

/// Lists the curves of a run with a summary of each.
#[utoipa::path(get, path = "/runs/{id}/metrics", tag = "runs", params(("id" = String, Path), MetricsParameters),
    responses((status = 200, body = Metrics), (status = 304, description = "Not modified"),
        (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
    headers: HeaderMap,
    Query(parameters): Query<MetricsParameters>,
) -> Result<Response> {
    let run = portal.runs.find(&user.user, id).await?;
    tags(&portal, &run, &headers, parameters).await
}

/// The curves of a run.
pub(super) async fn tags(
    portal: &Portal,
    run: &Run,
    headers: &HeaderMap,
    parameters: MetricsParameters,
) -> Result<Response> {
    let limit = parameters.limit.unwrap_or(DEFAULT_TAGS);
    if !(1..=MAX_TAGS).contains(&limit) {
        return Err(Error::field("limit", "out_of_range", "Must be between 1 and 20000."));
    }
    let selection = Selection {
        run: parameters.run,
        prefix: parameters.prefix.unwrap_or_default(),
        search: parameters.search.unwrap_or_default(),
        limit,
    };
    let complete = run.reading.complete;
    let version = version(portal, run, "").await?;
    if is_known(headers, &version) {
        return Ok(unchanged(&version));
    }
    let found = portal.runs.look(run.id, move |store| metrics(store, complete, &selection)).await?;
    Ok(versioned(&version, &found))
}

/// Range and resolution of a curve.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CurveParameters {
    /// Directory of the run. Default: `.` if it has the tag, otherwise the first directory that has it.
    run: Option<String>,
    /// Start of the range in the unit of `x`. `from` and `to` are included.
    from: Option<f64>,
    to: Option<f64>,
    /// Maximum number of buckets. If there are fewer points, each has its own bucket.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    points: Option<usize>,
    /// Buckets of equal width on a logarithmic axis; only for `step` and `relative`. Points at or below 0 are in one
    /// more bucket.
    #[serde(default)]
    log: bool,
    /// `step`, `wall` (seconds since 1970), `relative` (seconds since the directory's first point) or `metric`.
    #[serde(default)]
    #[param(inline)]
    x: Axis,
    /// With `x=metric`: tag of the other curve. A point is placed at the latest value of that curve.
    by: Option<String>,
    /// Smoothing factor from 0 to 0.999. Adds `smoothed`.
    #[param(minimum = 0, maximum = 0.999)]
    smoothing: Option<f64>,
    /// `csv` returns every point, like `Accept: text/csv`.
    format: Option<String>,
}

/// Returns one curve in buckets, or every point as `text/csv`.
///
/// Each bucket has its minimum and maximum, so that no spike is lost.
#[utoipa::path(get, path = "/runs/{id}/metrics/{tag}", tag = "runs",
    params(("id" = String, Path), ("tag" = String, Path, description = "Percent-encoded"), CurveParameters),
    responses((status = 200, content((Curve = "application/json"), (String = "text/csv"))),
        (status = 304, description = "Not modified"),
        (status = 404, description = "The curve was not found, or is not visible to you", body = Problem),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path((id, tag)): Path<(String, String)>,
    headers: HeaderMap,
    Query(parameters): Query<CurveParameters>,
) -> Result<Response> {
    let id: RunId = id.parse().map_err(|_err| Error::not_found())?;
    let run = portal.runs.find(&user.user, id).await?;
    one(portal, run, tag, &headers, parameters).await
}

/// One curve of a run.
pub(super) async fn one(
    portal: Arc<Portal>,
    run: Run,
    tag: String,
    headers: &HeaderMap,
    parameters: CurveParameters,
) -> Result<Response> {
    let wants_csv = match parameters.format.as_deref() {
        None | Some("") => accepts_csv(headers),
        Some("csv") => true,
        Some("json") => false,
        Some(_) => return Err(Error::field("format", "invalid_value", "Must be json or csv.")),
    };
    if wants_csv {
        return table(portal, run, tag, parameters.run, headers).await;
    }
    let CurveParameters { run: directory, from, to, points, log, x: axis, by, smoothing, .. } = parameters;
    let points = points.unwrap_or(DEFAULT_POINTS);
    let question = question(Question { run: directory, tag, axis, by, from, to, points, log, smoothing })?;
    let version = version(&portal, &run, "").await?;
    if is_known(headers, &version) {
        return Ok(unchanged(&version));
    }
    let complete = run.reading.complete;
    let found = portal.runs.look(run.id, move |store| curve(store, complete, &question)).await?;
    Ok(versioned(&version, &found.map_err(|_not_there| no_such_curve())?))
}

pub(super) fn no_such_curve() -> Error {
    Error::not_found_because("This run does not have a curve with this name.")
}

/// Checks what a query and a body have alike.
fn question(asked: Question) -> Result<Question> {
    if !(1..=MAX_POINTS).contains(&asked.points) {
        return Err(Error::field("points", "out_of_range", "Must be between 1 and 10000."));
    }
    for (field, bound) in [("from", asked.from), ("to", asked.to)] {
        if bound.is_some_and(|bound| !bound.is_finite()) {
            return Err(Error::field(field, "invalid_value", "Must be a number."));
        }
    }
    if asked.smoothing.is_some_and(|weight| !(0.0..=0.999).contains(&weight)) {
        return Err(Error::field("smoothing", "out_of_range", "Must be between 0 and 0.999."));
    }
    if (asked.axis == Axis::Metric) != asked.by.is_some() {
        return Err(Error::field(
            "by",
            "invalid_value",
            "The tag of the other curve. Required with x=metric, not allowed otherwise.",
        ));
    }
    if asked.log && !matches!(asked.axis, Axis::Step | Axis::Relative) {
        return Err(Error::field("log", "invalid_value", "Only allowed with x=step or x=relative."));
    }
    Ok(asked)
}

fn accepts_csv(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().to_ascii_lowercase().starts_with("text/csv"))
}

/// Every point of a curve, piece by piece.
async fn table(
    portal: Arc<Portal>,
    run: Run,
    tag: String,
    directory: Option<String>,
    headers: &HeaderMap,
) -> Result<Response> {
    let version = version(&portal, &run, "-csv").await?;
    if is_known(headers, &version) {
        return Ok(unchanged(&version));
    }
    let piece = move |portal: Arc<Portal>, run: Run, from: usize| {
        let (directory, tag) = (directory.clone(), tag.clone());
        async move { portal.runs.look(run.id, move |store| csv(store, directory.as_deref(), &tag, from, PIECE)).await }
    };
    let first = piece(portal.clone(), run.clone(), 0).await?.map_err(|_not_there| no_such_curve())?;
    let head = Bytes::from(format!("step,wall_time,value,attempt\n{}", first.unwrap_or_default()));
    let rest = stream::unfold(PIECE, move |from| {
        let next = piece(portal.clone(), run.clone(), from);
        async move {
            // A run that is removed meanwhile breaks off; nobody takes that for the end.
            match next.await {
                Ok(Ok(None)) => None,
                Ok(Ok(Some(lines))) => Some((Ok(Bytes::from(lines)), from + PIECE)),
                Ok(Err(_)) | Err(_) => Some((Err(std::io::Error::other("the curve was removed")), usize::MAX)),
            }
        }
    });
    let body = Body::from_stream(stream::once(async { Ok(head) }).chain(rest));
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"))];
    Ok((kind, [(header::ETAG, version), (header::VARY, HeaderValue::from_static("accept"))], body).into_response())
}

/// A run as it is now: its points, and whether there may be more.
async fn version(portal: &Portal, run: &Run, form: &str) -> Result<HeaderValue> {
    let revision = portal.runs.look(run.id, crate::runs::revision).await?;
    let complete = if run.reading.complete { "-complete" } else { "" };
    let version = format!("\"{revision}{complete}{form}\"");
    HeaderValue::from_str(&version).map_err(Error::internal)
}

fn is_known(headers: &HeaderMap, version: &HeaderValue) -> bool {
    let Ok(version) = version.to_str() else { return false };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|value| value.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == version
    })
}

fn unchanged(version: &HeaderValue) -> Response {
    ([(header::ETAG, version.clone())], NotModified).into_response()
}

fn versioned<T: Serialize>(version: &HeaderValue, body: &T) -> Response {
    let vary = (header::VARY, HeaderValue::from_static("accept"));
    ([(header::ETAG, version.clone()), vary], Long(body)).into_response()
}

/// A request for curves of several runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyCurves {
    /// At most 100 runs and jobs together.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    runs: Vec<RunId>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    jobs: Vec<JobId>,
    /// At most 200 tags.
    tags: Vec<String>,
    /// Only this directory of each run. Default: all directories that have the tag.
    #[serde(default)]
    run: Option<String>,
    #[serde(default)]
    #[schema(inline)]
    x: Axis,
    /// With `x=metric`: tag of the other curve.
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    from: Option<f64>,
    #[serde(default)]
    to: Option<f64>,
    /// Maximum number of buckets of each curve.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10000, default = 1000)]
    points: Option<usize>,
    /// Buckets of equal width on a logarithmic axis; only for `step` and `relative`.
    #[serde(default)]
    log: bool,
    #[serde(default)]
    #[schema(minimum = 0, maximum = 0.999)]
    smoothing: Option<f64>,
}

/// The curves that exist.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundCurves {
    items: Vec<CurveOfRun>,
}

/// A curve with the id of its run.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurveOfRun {
    /// Id of the run or job in the request.
    #[schema(format = "uuid")]
    id: String,
    #[serde(flatten)]
    curve: Curve,
}

/// Returns many curves in one call: each tag of each directory of each run.
///
/// Curves that do not exist are left out.
#[utoipa::path(post, path = "/curves", tag = "runs", request_body = ManyCurves,
    responses((status = 200, body = FoundCurves), (status = 404, description = "A run was not found, or is not visible to you", body = Problem),
        (status = 422, description = "More than 100 runs, 200 tags, 1000 curves or 500000 buckets", body = Problem)))]
pub async fn many(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(asked): Json<ManyCurves>,
) -> Result<Response> {
    let ManyCurves { runs, jobs, tags, run: directory, x: axis, by, from, to, points, log, smoothing } = asked;
    if runs.len() + jobs.len() > MAX_RUNS {
        return Err(Error::field("runs", "too_many", "At most 100 are allowed."));
    }
    if tags.len() > MAX_NAMES {
        return Err(Error::field("tags", "too_many", "At most 200 are allowed."));
    }
    let points = points.unwrap_or(DEFAULT_POINTS);
    let asked = question(Question { run: directory, tag: String::new(), axis, by, from, to, points, log, smoothing })?;
    // Looked up first: who may not see one of them gets none.
    let mut known = Vec::new();
    for id in runs {
        known.push((id.to_string(), portal.runs.find(&user.user, id).await?));
    }
    for id in jobs {
        let job = portal.jobs.find(user.actor(), id).await?;
        known.extend(portal.runs.of_job(job.id).await?.map(|run| (id.to_string(), run)));
    }
    let mut items = Vec::new();
    let (mut curves, mut buckets) = (0, 0);
    for (id, run) in known {
        let (complete, asked, tags) = (run.reading.complete, asked.clone(), tags.clone());
        let room = (MAX_CURVES.saturating_sub(curves), MAX_BUCKETS.saturating_sub(buckets));
        let found =
            portal.runs.look(run.id, move |store| crate::runs::all(store, complete, &asked, &tags, room)).await?;
        let Some(found) = found else {
            let message = "More than 1000 curves or 500000 buckets in total. Request fewer points, tags or runs.";
            return Err(Error::field("points", "too_many", message));
        };
        curves += found.len();
        buckets += found.iter().map(|curve| curve.buckets.len()).sum::<usize>();
        items.extend(found.into_iter().map(|curve| CurveOfRun { id: id.clone(), curve }));
    }
    Ok(Long(FoundCurves { items }).into_response())
}
