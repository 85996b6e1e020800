//! A small registry that misbehaves in the ways that a real one cannot be made to: it hangs, cuts connections,
//! sends too much or something else, and limits the rate. Everything it is asked is written down.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use lyceum_images::{Digest, Reference};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::content::Built;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

type Answer = dyn Fn(&Asked, usize) -> Option<Response> + Send + Sync;

/// A registry in this process.
pub struct Faulty {
    pub host: String,
    state: Arc<Inner>,
}

struct Inner {
    manifests: HashMap<String, (String, Vec<u8>)>,
    blobs: BTreeMap<Digest, Vec<u8>>,
    asked: Mutex<Vec<Asked>>,
    answer: Box<Answer>,
    ranges: bool,
}

/// What is served, before it misbehaves.
pub struct Served {
    manifests: HashMap<String, (String, Vec<u8>)>,
    blobs: BTreeMap<Digest, Vec<u8>>,
    ranges: bool,
}

impl Served {
    /// The image under the tag `1` and its digest.
    pub fn new(image: &Built) -> Self {
        let manifest = (image.media_type.clone(), image.manifest.clone());
        let names = ["1".to_owned(), image.digest().to_string()];
        let manifests = names.into_iter().map(|name| (name, manifest.clone())).collect();
        Self { manifests, blobs: image.blobs.clone(), ranges: true }
    }

    pub fn and(mut self, tag: &str, image: &Built) -> Self {
        let manifest = (image.media_type.clone(), image.manifest.clone());
        self.manifests.insert(tag.to_owned(), manifest.clone());
        self.manifests.insert(image.digest().to_string(), manifest);
        self.blobs.extend(image.blobs.clone());
        self
    }

    pub fn without_ranges(self) -> Self {
        Self { ranges: false, ..self }
    }

    /// Starts the server. `answer` is asked first, with the number of earlier requests for the same path.
    pub async fn start(self, answer: impl Fn(&Asked, usize) -> Option<Response> + Send + Sync + 'static) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let Self { manifests, blobs, ranges } = self;
        let state = Arc::new(Inner { manifests, blobs, ranges, asked: Mutex::default(), answer: Box::new(answer) });
        let router = Router::new().fallback(respond).with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Faulty { host, state }
    }
}

impl Faulty {
    pub fn reference(&self) -> Reference {
        format!("{}/some/image:1", self.host).parse().unwrap()
    }

    /// The requests whose path contains `part`.
    pub fn asked(&self, part: &str) -> Vec<Asked> {
        self.state.asked.lock().iter().filter(|asked| asked.path.contains(part)).cloned().collect()
    }
}

async fn respond(State(state): State<Arc<Inner>>, request: Request) -> Response {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let asked = Asked {
        path: request.uri().to_string(),
        range: text(header::RANGE),
        authorization: text(header::AUTHORIZATION),
    };
    let earlier = {
        let mut all = state.asked.lock();
        let earlier = all.iter().filter(|other| other.path == asked.path).count();
        all.push(asked.clone());
        earlier
    };
    if let Some(response) = (state.answer)(&asked, earlier) {
        return response;
    }
    let Some(name) = asked.path.rsplit('/').next() else { return StatusCode::NOT_FOUND.into_response() };
    if asked.path.contains("/manifests/") {
        let Some((media_type, bytes)) = state.manifests.get(name) else { return StatusCode::NOT_FOUND.into_response() };
        return ([(header::CONTENT_TYPE, media_type.clone())], bytes.clone()).into_response();
    }
    let Some(bytes) = name.parse().ok().and_then(|digest: Digest| state.blobs.get(&digest)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let start =
        asked.range.filter(|_| state.ranges).and_then(|range| range["bytes=".len()..].strip_suffix('-')?.parse().ok());
    match start {
        None => blob(bytes),
        Some(start) => partial(bytes, start),
    }
}

/// A whole blob.
pub fn blob(bytes: &[u8]) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], bytes.to_vec()).into_response()
}

/// The rest of a blob.
pub fn partial(bytes: &[u8], start: usize) -> Response {
    let mut headers = HeaderMap::new();
    let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
    headers.insert(header::CONTENT_RANGE, range.parse().unwrap());
    (StatusCode::PARTIAL_CONTENT, headers, bytes[start..].to_vec()).into_response()
}

/// How a body ends.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// The connection is closed.
    Cut,
    /// Nothing more comes.
    Hang,
}

/// The first bytes of a body whose length is announced, and then its end.
pub fn beginning(bytes: &[u8], announced: usize, end: End) -> Response {
    let start = stream::once(std::future::ready(Ok::<_, std::io::Error>(Bytes::from(bytes.to_vec()))));
    let last = stream::once(async move {
        match end {
            // One turn, in which the server sends the bytes before it learns of the fault.
            End::Cut => tokio::task::yield_now().await,
            End::Hang => std::future::pending().await,
        }
        Err(std::io::Error::other("cut"))
    });
    let mut response = Body::from_stream(start.chain(last)).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, announced.to_string().parse().unwrap());
    response
}

/// Never answers.
pub fn silence() -> Response {
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    body.into_response()
}

pub fn status(code: u16, headers: &[(&str, &str)]) -> Response {
    let mut response = StatusCode::from_u16(code).unwrap().into_response();
    for (name, value) in headers {
        let name: header::HeaderName = name.parse().unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
