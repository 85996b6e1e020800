//! Asking the portal: addresses, the token, problem documents as errors, and finding a
//! session or a job by the beginning or the end of its id. Answers stay JSON, so that `--json` prints what the
//! portal said; [`Session`] is the part of it that the tables need.

use std::{collections::BTreeMap, fmt, time::Duration};

use reqwest::{Method, RequestBuilder, Response};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use lyceum_model::{EndReason, Gpu, IdPart, JobId, Resources, SessionId, SessionState, Timestamp};

const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_mins(1);
/// Longer than anything runs.
const MAX_DURATION: Duration = Duration::from_hours(10 * 365 * 24);

/// Where a portal listens that nobody configured.
const DEFAULT_URL: &str = "http://127.0.0.1:8000";

// Those of sysexits.h and of timeout(1): programs rarely exit with them, so that `--wait` can pass on the program's own.
const REFUSED: u8 = 65;
const NOT_FOUND: u8 = 66;
const UNREACHABLE: u8 = 69;
const NOT_ALLOWED: u8 = 77;
const TIMED_OUT: u8 = 124;

/// What the portal keeps lists of.
#[derive(Clone, Copy, Debug)]
pub struct Collection {
    path: &'static str,
    /// One of them, for sentences.
    word: &'static str,
    /// Whether the portal finds them by a part of their ids. Lists of the others contain what other users share.
    pub finds_ids: bool,
    /// Whether the portal finds them by a part of their names.
    finds_names: bool,
    /// Whether the portal lists those in one state.
    pub filters_states: bool,
}

impl Collection {
    const fn new(path: &'static str, word: &'static str) -> Self {
        Self { path, word, finds_ids: true, finds_names: true, filters_states: true }
    }

    pub fn path(self) -> &'static str {
        self.path
    }
}

pub const SESSIONS: Collection = Collection::new("/sessions", "session");
pub const JOBS: Collection = Collection::new("/jobs", "job");
pub const RUNS: Collection = Collection { finds_names: false, ..Collection::new("/runs", "run") };
pub const SWEEPS: Collection = Collection { filters_states: false, ..Collection::new("/sweeps", "sweep") };
pub const DATASETS: Collection = Collection { finds_ids: false, ..Collection::new("/datasets", "dataset") };
pub const MODELS: Collection =
    Collection { finds_ids: false, filters_states: false, ..Collection::new("/models", "model") };

/// The final states of sessions, jobs, sweeps, datasets and models.
const ENDED: [&str; 6] = ["ended", "ready", "trained", "stopped", "failed", "cancelled"];

/// A portal, and the token to ask it with.
pub struct Api {
    base: Url,
    token: String,
    http: reqwest::Client,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The portal was not asked, because something was not said.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Problem(Box<Problem>),
    #[error("cannot reach the portal at {url}: {why}")]
    Unreachable { url: String, why: String },
    /// It answered, but not as this version of the API does.
    #[error("unexpected response from the portal ({0}); check that LYCEUM_URL is the portal's address")]
    Strange(String),
    #[error("you have no {word} whose id begins or ends with `{part}`; `lyceum {word} list` lists them")]
    NoSuchId { word: &'static str, part: String },
    #[error("there is no {word} of yours, or visible to you, whose id begins or ends with `{part}`")]
    NobodysId { word: &'static str, part: String },
    #[error("`{text}` is not an id, the beginning or the end of one, or the name of a {word} of yours")]
    NoSuchName { word: &'static str, text: String },
    #[error("several {word}s have an id that begins or ends with `{part}`, or have this name: {ids}")]
    Ambiguous { word: &'static str, part: String, ids: String },
    /// Each was reported already.
    #[error("{failed} of {of} failed")]
    Several { failed: usize, of: usize },
    /// The session or job ended, or is about to: what happened.
    #[error("{0}")]
    Ended(String),
    /// The program of a job ended like this, which the command passes on.
    #[error("{sentence}")]
    Program { code: u8, sentence: String },
    /// The file says something else than the portal.
    #[error("the file makes {0}")]
    Differs(String),
    #[error("{0}")]
    TimedOut(String),
    /// A file of this machine.
    #[error("cannot {deed} {path}: {error}")]
    Local { deed: &'static str, path: String, error: std::io::Error },
    /// One of the files is not copied, for this reason.
    #[error("{0}")]
    NotCopied(String),
    /// The code of a job could not be copied.
    #[error("nothing was submitted: {what}: {error}")]
    NotSubmitted { what: String, error: Box<Error> },
    #[error("there is no context `{0}`; `lyceum context list` lists them")]
    NoContext(String),
    #[error("cannot write the result: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    pub fn local(deed: &'static str, path: &std::path::Path, error: std::io::Error) -> Self {
        Self::Local { deed, path: super::table::harmless(&path.display().to_string()), error }
    }

    /// The status that the command exits with (docs/api.md).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Problem(problem) => match problem.status {
                401 | 403 => NOT_ALLOWED,
                404 => NOT_FOUND,
                429 | 500.. => UNREACHABLE,
                _ => REFUSED,
            },
            Self::NoSuchId { .. } | Self::NobodysId { .. } | Self::NoSuchName { .. } | Self::NoContext(_) => NOT_FOUND,
            Self::Local { error, .. } if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            Self::Ambiguous { .. } | Self::NotCopied(_) => REFUSED,
            Self::Unreachable { .. } => UNREACHABLE,
            Self::TimedOut(_) => TIMED_OUT,
            Self::Program { code, .. } => *code,
            Self::NotSubmitted { error, .. } => error.exit_code(),
            Self::Strange(_)
            | Self::Several { .. }
            | Self::Ended(_)
            | Self::Differs(_)
            | Self::Local { .. }
            | Self::Output(_) => 1,
        }
    }

    /// Whether asking again later may help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Problem(problem) => problem.status >= 500 || problem.status == 429,
            _ => false,
        }
    }
}

/// A problem document (RFC 9457), as far as a shell shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    pub status: u16,
    title: String,
    detail: String,
    instance: String,
    pub errors: Vec<FieldError>,
    reasons: Vec<Reason>,
}

/// What is wrong with a field of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FieldError {
    pub field: String,
    message: String,
    /// The line of the file that the request was made from; 0 where there was none.
    #[serde(skip)]
    pub line: u64,
}

/// Why something waits or was refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reason {
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title =
            if self.title.is_empty() { "the portal rejected the request" } else { self.title.trim_end_matches('.') };
        write!(f, "{title}")?;
        if !self.detail.is_empty() && self.detail.trim_end_matches('.') != title {
            write!(f, ": {}", self.detail)?;
        }
        for error in &self.errors {
            write!(f, "\n  {}: {}", error.field, error.message)?;
        }
        for reason in self.reasons.iter().filter(|reason| !self.detail.contains(&reason.hint)) {
            write!(f, "\n  {}", reason.hint)?;
        }
        if self.status >= 500 && !self.instance.is_empty() {
            write!(f, "\n  (request {})", self.instance)?;
        }
        match self.status {
            401 => write!(f, "\n  the token is not valid or has expired; create a new one under Settings"),
            _ => Ok(()),
        }
    }
}

/// A session as the API shows it, with defaults for what an older portal leaves out.
#[derive(Debug, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub state: SessionState,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub app: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub reasons: Vec<Reason>,
    #[serde(default)]
    pub end_reason: Option<EndReason>,
    #[serde(default)]
    pub unknown_since: Option<Timestamp>,
    #[serde(default)]
    pub suspended_since: Option<Timestamp>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    #[serde(default)]
    pub node: Option<String>,
    #[serde(default)]
    pub open_url: String,
    #[serde(default)]
    pub waiting_since: Option<Timestamp>,
    #[serde(default)]
    pub estimated_start: Option<Timestamp>,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    pub detail: Option<String>,
}

/// A job as the API shows it, as far as a shell does.
#[derive(Debug, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub state: SessionState,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub reasons: Vec<Reason>,
    #[serde(default)]
    pub end_reason: Option<EndReason>,
    #[serde(default)]
    pub exit_code: Option<i64>,
    #[serde(default)]
    pub signal: Option<i64>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default)]
    pub waiting_since: Option<Timestamp>,
    #[serde(default)]
    pub estimated_start: Option<Timestamp>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub detail: Option<String>,
}

impl Job {
    pub fn read(value: &Value) -> Result<Self> {
        Self::deserialize(value).map_err(|error| Error::Strange(error.to_string()))
    }
}

impl Session {
    pub fn read(value: &Value) -> Result<Self> {
        Self::deserialize(value).map_err(|error| Error::Strange(error.to_string()))
    }
}

impl Api {
    pub fn new(url: Option<&str>, token: Option<&str>) -> Result<Self> {
        let url = url.filter(|url| !url.trim().is_empty()).unwrap_or(DEFAULT_URL).trim();
        let mut base = Url::parse(url)
            .ok()
            .filter(|base| matches!(base.scheme(), "http" | "https") && base.has_host())
            .ok_or_else(|| {
                Error::Usage(format!(
                    "LYCEUM_URL is not a valid address: `{url}`; use the form https://portal.example.org"
                ))
            })?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err(Error::Usage(
                "LYCEUM_URL contains a user name or password; put the token into LYCEUM_TOKEN instead".into(),
            ));
        }
        // The address of the API itself is meant as that of its portal.
        let path = base.path().trim_end_matches('/').trim_end_matches("/api/v1").to_owned();
        base.set_path(&path);
        base.set_query(None);
        base.set_fragment(None);
        let token = token.map(str::trim).filter(|token| !token.is_empty()).ok_or_else(|| {
            Error::Usage(
                "LYCEUM_TOKEN is not set, and there is no context; create a token under Settings, and sign in with \
                 `lyceum login URL`"
                    .into(),
            )
        })?;
        if !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Error::Usage("LYCEUM_TOKEN contains invalid characters".into()));
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("lyceum/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            // The token must not follow a redirect to another place.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Error::Usage(format!("cannot set up HTTP: {}", causes(&error))))?;
        Ok(Self { base, token: token.to_owned(), http })
    }

    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        self.json(self.request(Method::GET, path).query(query)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.json(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a request that creates one thing only, however often it is repeated with this key.
    pub async fn post_once(&self, path: &str, key: &str, body: &Value) -> Result<Value> {
        self.json(self.request(Method::POST, path).header("idempotency-key", key).json(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<()> {
        self.send(self.request(Method::PUT, path).json(body)).await.map(drop)
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        self.json(self.request(Method::PATCH, path).json(body)).await
    }

    pub async fn delete(&self, path: &str) -> Result<()> {
        self.send(self.request(Method::DELETE, path)).await.map(drop)
    }

    /// Sends a request as it is.
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<reqwest::Body>,
    ) -> Result<Response> {
        let mut request = self.request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            let has_kind = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            request = if has_kind { request } else { request.header("content-type", "application/json") };
            request = request.body(body);
        }
        self.send(request.timeout(MAX_DURATION)).await
    }

    /// The next part of a body.
    pub async fn part(&self, answer: &mut Response) -> Result<Option<Vec<u8>>> {
        let part = answer.chunk().await.map_err(|error| self.unreachable(&error))?;
        Ok(part.map(Into::into))
    }

    pub async fn text(&self, path: &str, query: &[(&str, &str)]) -> Result<String> {
        let answer = self.send(self.request(Method::GET, path).query(query).header("accept", "text/plain")).await?;
        answer.text().await.map_err(|error| self.unreachable(&error))
    }

    /// A log as text, and the offset of its first byte.
    pub async fn log(&self, path: &str, query: &[(&str, &str)]) -> Result<(String, u64)> {
        let answer = self.send(self.request(Method::GET, path).query(query).header("accept", "text/plain")).await?;
        let offset = answer.headers().get("log-offset").and_then(|offset| offset.to_str().ok()?.parse().ok());
        let text = answer.text().await.map_err(|error| self.unreachable(&error))?;
        Ok((text, offset.unwrap_or(0)))
    }

    /// A stream of events, from behind the one that was heard last.
    pub async fn events(&self, path: &str, query: &[(&str, &str)], last: Option<&str>) -> Result<Response> {
        let mut request = self.request(Method::GET, path).query(query).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        // It may go on for as long as what it tells of; only its beginning has to come in time.
        let answer = tokio::time::timeout(ANSWER, self.send(request.timeout(MAX_DURATION))).await;
        let late = |_| Error::Unreachable { url: self.base.to_string(), why: "no response".to_owned() };
        answer.map_err(late)?
    }

    /// Those that have not ended, newest first: one's own, unless `narrowed` says otherwise.
    ///
    /// The states are asked for in the order of life, so that one which goes on to the
    /// next state meanwhile is seen twice rather than missed.
    pub async fn live(&self, of: Collection, narrowed: &[(&str, &str)]) -> Result<Vec<Value>> {
        let mut found = BTreeMap::new();
        for state in SessionState::ALL.iter().filter(|state| state.is_live()) {
            let mut cursor = None;
            loop {
                let page = self.page(of, &[narrowed, &[("state", state.as_str())]].concat(), cursor.as_deref()).await?;
                for item in page.items {
                    found.insert(id_of(&item), item);
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(found.into_values().rev().collect())
    }

    /// Returns all of a list that has pages as one answer: the first one, with the items of all.
    pub async fn all(&self, path: &str, narrowed: &[(&str, &str)]) -> Result<Value> {
        let asked = [narrowed, &[("limit", "500")]].concat();
        let mut whole = self.get(path, &asked).await?;
        let mut page = read_page(&whole)?;
        let mut items = Vec::new();
        loop {
            items.append(&mut page.items);
            let Some(cursor) = page.next_cursor else { break };
            page = read_page(&self.get(path, &[&asked[..], &[("cursor", cursor.as_str())]].concat()).await?)?;
        }
        whole["items"] = Value::Array(items);
        whole["next_cursor"] = Value::Null;
        Ok(whole)
    }

    /// The newest ones, ended ones included, as many as one answer holds.
    pub async fn newest(&self, of: Collection, narrowed: &[(&str, &str)]) -> Result<Vec<Value>> {
        Ok(self.page(of, narrowed, None).await?.items)
    }

    /// The id that was meant: a whole one as it is, else the one of ours that begins or ends with these characters,
    /// else the one of ours with this name, else, for those who may see them all, the one of anybody's.
    pub async fn id(&self, of: Collection, text: &str) -> Result<String> {
        if text.parse::<SessionId>().is_ok() {
            return Ok(text.to_owned());
        }
        let part: Option<IdPart> = text.parse().ok();
        if let Some(part) = &part {
            let own = self.meant(of, part, None).await?;
            if let Some(id) = one(of, text, own)? {
                return Ok(id);
            }
        }
        if of.finds_names
            && let Some(id) = one(of, text, self.named(of, text).await?)?
        {
            return Ok(id);
        }
        let text = text.to_owned();
        let Some(part) = part else { return Err(Error::NoSuchName { word: of.word, text }) };
        if !of.finds_ids {
            return Err(Error::NoSuchId { word: of.word, part: text });
        }
        match self.meant(of, &part, Some("*")).await {
            Ok(found) => {
                let nobodys = || Error::NobodysId { word: of.word, part: text.clone() };
                one(of, &text, found)?.ok_or_else(nobodys)
            }
            // Whoever may not see everybody's is told of their own alone.
            Err(Error::Problem(problem)) if problem.status == 403 => Err(Error::NoSuchId { word: of.word, part: text }),
            Err(error) => Err(error),
        }
    }

    /// Returns the ids of the items with this name, without the ended ones if some have not ended.
    async fn named(&self, of: Collection, name: &str) -> Result<Vec<String>> {
        let found = read_page(&self.all(of.path, &[("search", name)]).await?)?.items;
        let found: Vec<Value> = found.into_iter().filter(|item| item["name"] == name).collect();
        let is_active = |item: &&Value| item["state"].as_str().is_some_and(|state| !ENDED.contains(&state));
        let active: Vec<String> = found.iter().filter(is_active).map(id_of).collect();
        Ok(if active.is_empty() { found.iter().map(id_of).collect() } else { active })
    }

    /// The newest ids that begin or end with this, as many as one answer holds.
    async fn meant(&self, of: Collection, part: &IdPart, owner: Option<&str>) -> Result<Vec<String>> {
        let asked = [Some(("id", part.as_str())), owner.map(|owner| ("owner", owner))];
        let asked: Vec<(&str, &str)> = asked.into_iter().flatten().collect();
        let items = if of.finds_ids {
            self.page(of, &asked, None).await?.items
        } else {
            read_page(&self.all(of.path, &[]).await?)?.items
        };
        Ok(items.iter().map(id_of).filter(|id| part.fits(id)).collect())
    }

    /// An address of the portal as a browser outside needs it.
    pub fn absolute(&self, address: &str) -> Result<String> {
        self.base.join(address).map(String::from).map_err(|error| Error::Strange(error.to_string()))
    }

    async fn page(&self, of: Collection, narrowed: &[(&str, &str)], cursor: Option<&str>) -> Result<Page> {
        let mut query = vec![("limit", "500")];
        query.extend(narrowed);
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        read_page(&self.get(of.path, &query).await?)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/api/v1{path}", self.base.as_str().trim_end_matches('/'));
        self.http.request(method, url).bearer_auth(&self.token)
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value> {
        let answer = self.send(request).await?;
        answer.json().await.map_err(|error| Error::Strange(causes(&error)))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let answer = request.send().await.map_err(|error| {
            if error.is_builder() {
                Error::Usage(format!("this is not a valid request: {}", causes(&error)))
            } else {
                self.unreachable(&error)
            }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        if let Some(target) = answer.headers().get("location").filter(|_| status.is_redirection()) {
            return Err(Error::Strange(format!("redirect to {}", String::from_utf8_lossy(target.as_bytes()))));
        }
        let body = answer.bytes().await.map_err(|error| self.unreachable(&error))?;
        let mut problem: Problem =
            serde_json::from_slice(&body).map_err(|_no_document| Error::Strange(format!("status {status}")))?;
        problem.status = status.as_u16();
        Err(Error::Problem(Box::new(problem)))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable { url: self.base.to_string(), why: causes(error) }
    }
}

/// The only one of these; an error where there are several.
fn one(of: Collection, part: &str, mut ids: Vec<String>) -> Result<Option<String>> {
    match ids.len() {
        0 | 1 => Ok(ids.pop()),
        _ => Err(Error::Ambiguous { word: of.word, part: part.to_owned(), ids: ids.join(", ") }),
    }
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    #[serde(default)]
    next_cursor: Option<String>,
}

fn read_page(answer: &Value) -> Result<Page> {
    Page::deserialize(answer).map_err(|error| Error::Strange(error.to_string()))
}

pub(super) fn id_of(item: &Value) -> String {
    item["id"].as_str().unwrap_or_default().to_owned()
}

/// The innermost cause: reqwest's own sentence names the whole URL and no reason.
fn causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}
