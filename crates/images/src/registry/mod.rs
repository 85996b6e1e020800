//! A thin client of the registry API, over the HTTP client that the rest of Lyceum uses. One [`Session`]
//! serves one pull: it knows endpoint, repository and credentials, answers challenges, and repeats what
//! may pass (a lost connection, 429, 5xx). Each failure becomes one typed error; addresses and tokens are
//! not part of it, because a redirect to a content network is signed.

mod auth;
mod blob;
pub(crate) use blob::Part;
pub(crate) mod endpoint;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use reqwest::{
    Client, Response,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
    redirect::{Attempt, Policy},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{
    digest::Digest,
    error::{Error, Result},
    manifest::{self, Blob, Document},
    reference::Reference,
    settings::{Access, Credentials, Settings},
};
use endpoint::Endpoint;

const MAX_REDIRECTS: usize = 10;

/// Holds the connections of all pulls.
#[derive(Debug)]
pub(crate) struct Registry {
    settings: Arc<Settings>,
    outside: Client,
    /// Goes past the proxy that the environment may name.
    loopback: Client,
}

impl Registry {
    pub fn new(settings: &Arc<Settings>) -> Result<Self> {
        for (registry, mirror) in &settings.mirrors {
            endpoint::check(registry, mirror)?;
        }
        let tls = trust(settings)?;
        let builder = || {
            Client::builder()
                .user_agent(concat!("lyceum/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(settings.connect_timeout)
                .read_timeout(settings.stall_timeout)
                .redirect(Policy::custom(follow))
                .tls_backend_preconfigured(tls.clone())
        };
        let unusable = |err: reqwest::Error| Error::Tls(innermost(&err));
        Ok(Self {
            outside: builder().build().map_err(unusable)?,
            loopback: builder().no_proxy().build().map_err(unusable)?,
            settings: settings.clone(),
        })
    }

    /// Prepares the requests of one pull. Personal credentials are sent to the host that they name alone.
    pub fn session(self: &Arc<Self>, reference: &Reference, access: &Access) -> Result<Session> {
        let endpoint = Endpoint::of(reference, &self.settings.mirrors)?;
        let credentials = match access {
            Access::Site => self.settings.credentials.get(&endpoint.host),
            Access::Personal(own) => {
                own.as_ref().filter(|(host, _)| *host == endpoint.host).map(|(_, credentials)| credentials)
            }
        };
        Ok(Session {
            credentials: credentials.cloned(),
            repository: endpoint.repository(reference),
            endpoint,
            registry: self.clone(),
            authorization: Mutex::new(None),
        })
    }
}

/// The requests of one pull.
#[derive(Debug)]
pub(crate) struct Session {
    registry: Arc<Registry>,
    endpoint: Endpoint,
    repository: String,
    credentials: Option<Credentials>,
    authorization: Mutex<Option<HeaderValue>>,
}

/// A failure, and whether a repetition may succeed.
#[derive(Debug)]
enum Failure {
    Final(Error),
    Passing { error: Error, after: Option<Duration> },
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Final(error.into())
    }
}

/// Counts repetitions, and waits between them.
struct Patience<'a> {
    settings: &'a Settings,
    failures: u32,
}

impl Patience<'_> {
    /// Returns after the delay when the request should be repeated.
    async fn after(&mut self, failure: Failure) -> Result<()> {
        let (error, after) = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing { error, after } => (error, after),
        };
        self.failures += 1;
        if self.failures > self.settings.retries || after.is_some_and(|after| after > self.settings.longest_wait) {
            return Err(error);
        }
        let doubled = self.settings.retry_delay.saturating_mul(1 << (self.failures - 1).min(10));
        let delay = after.unwrap_or(doubled).min(self.settings.longest_wait);
        tracing::info!(%error, attempt = self.failures, delay_ms = delay.as_millis(), "registry request failed; retrying");
        tokio::time::sleep(delay).await;
        Ok(())
    }

    fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Session {
    /// Fetches a manifest or an index by tag or digest.
    pub async fn document(&self, name: &str) -> Result<Document> {
        let what = format!("{}:{name}", self.repository);
        let mut patience = self.patience();
        let (bytes, named) = loop {
            match self.try_document(name, &what).await {
                Ok(found) => break found,
                Err(failure) => patience.after(failure).await?,
            }
        };
        let received = Digest::of(&bytes);
        let expected = if name.starts_with("sha256:") { Some(name.parse()?) } else { named };
        match expected {
            Some(expected) if expected != received => Err(Error::WrongDigest { what, expected, received }),
            _ => Ok(Document { bytes, digest: received }),
        }
    }

    async fn try_document(&self, name: &str, what: &str) -> Result<(Vec<u8>, Option<Digest>), Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        let response = self.get("manifests", name, headers, what).await?;
        let named = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok()?.parse().ok());
        let limit = self.registry.settings.limits.document_bytes;
        Ok((self.read(response, limit, what).await?, named))
    }

    /// Fetches a blob of `limit` bytes at most into memory, such as a configuration.
    pub async fn small_blob(&self, blob: Blob, limit: u64, what: &str) -> Result<Vec<u8>> {
        if blob.size > limit {
            return Err(Error::TooLarge { what: what.to_owned(), size: blob.size, limit });
        }
        let mut patience = self.patience();
        let bytes = loop {
            let attempt = async {
                let response = self.get("blobs", &blob.digest.to_string(), HeaderMap::new(), what).await?;
                self.read(response, blob.size, what).await
            };
            match attempt.await {
                Ok(bytes) => break bytes,
                Err(Failure::Final(Error::TooLarge { what, size, .. })) => {
                    return Err(Error::WrongSize { what, expected: blob.size, received: size });
                }
                Err(failure) => patience.after(failure).await?,
            }
        };
        let received = Digest::of(&bytes);
        if received != blob.digest {
            return Err(Error::WrongDigest { what: what.to_owned(), expected: blob.digest, received });
        }
        Ok(bytes)
    }

    /// Sends a request, and answers a challenge once. Any answer but 200 and 206 is a failure.
    async fn get(&self, kind: &str, name: &str, headers: HeaderMap, what: &str) -> Result<Response, Failure> {
        let mut answered = false;
        loop {
            let url = self.endpoint.url(&self.repository, kind, name);
            let mut request = self.http().get(url).headers(headers.clone());
            if let Some(authorization) = self.authorization.lock().clone() {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request.send().await.map_err(|err| self.failure(&err))?;
            let is_page = content_type(&response).is_some_and(|name| name.starts_with("text/html"));
            match response.status().as_u16() {
                200 | 206 if is_page => return Err(Error::NotARegistry { host: self.endpoint.host.clone() }.into()),
                200 | 206 => return Ok(response),
                401 if !answered => {
                    let authorization = self.answer(&response).await?;
                    *self.authorization.lock() = Some(authorization);
                    answered = true;
                }
                _ => return Err(self.status(&response, what)),
            }
        }
    }

    /// Names the failure that an answer's status means.
    fn status(&self, response: &Response, what: &str) -> Failure {
        let (host, repository) = (self.endpoint.host.clone(), self.repository.clone());
        let retry_after = retry_after(response.headers());
        match response.status().as_u16() {
            401 => self.unauthorized().into(),
            403 => Error::Forbidden { host, repository }.into(),
            404 => Error::NotFound { host, what: what.to_owned() }.into(),
            429 => Failure::Passing { error: Error::RateLimited { host, retry_after }, after: retry_after },
            status @ (408 | 500..) => {
                let error = Error::Status { host, status, what: what.to_owned() };
                Failure::Passing { error, after: retry_after }
            }
            status => Error::Status { host, status, what: what.to_owned() }.into(),
        }
    }

    /// Names the failure of a connection.
    fn failure(&self, err: &reqwest::Error) -> Failure {
        let host = self.endpoint.host.clone();
        if err.is_redirect() {
            return Error::Redirect { host }.into();
        }
        let error = if err.is_timeout() && !err.is_connect() {
            Error::Unresponsive { host, waited: self.registry.settings.stall_timeout }
        } else {
            Error::Unreachable { host, reason: innermost(err) }
        };
        Failure::Passing { error, after: None }
    }

    /// Reads a body of `limit` bytes at most.
    async fn read(&self, mut response: Response, limit: u64, what: &str) -> Result<Vec<u8>, Failure> {
        let too_large = |size| Error::TooLarge { what: what.to_owned(), size, limit };
        if let Some(size) = response.content_length().filter(|size| *size > limit) {
            return Err(too_large(size).into());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|err| self.failure(&err))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(too_large(bytes.len() as u64).into());
            }
        }
        Ok(bytes)
    }

    fn http(&self) -> &Client {
        if self.endpoint.is_loopback() { &self.registry.loopback } else { &self.registry.outside }
    }

    fn patience(&self) -> Patience<'_> {
        Patience { settings: &self.registry.settings, failures: 0 }
    }
}

/// Follows redirects to HTTPS alone, and from the loopback also to the loopback.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let from_loopback =
        attempt.previous().first().is_some_and(|url| url.scheme() == "http" && endpoint::is_loopback(url));
    let is_safe = attempt.url().scheme() == "https" || (from_loopback && endpoint::is_loopback(attempt.url()));
    if is_safe && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.error("redirect to an address without HTTPS, or too many redirects")
    }
}

/// Whom we believe to be a registry: the system's authorities and the site's own.
fn trust(settings: &Settings) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for path in &settings.authorities {
        let unusable = |reason: String| Error::Authorities { path: path.clone(), reason };
        let mut found = 0;
        for certificate in CertificateDer::pem_file_iter(path).map_err(|err| unusable(err.to_string()))? {
            let certificate = certificate.map_err(|err| unusable(err.to_string()))?;
            roots.add(certificate).map_err(|err| unusable(err.to_string()))?;
            found += 1;
        }
        if found == 0 {
            return Err(unusable("it contains no certificate".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| Error::Tls(err.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn content_type(response: &Response) -> Option<&str> {
    response.headers().get(CONTENT_TYPE)?.to_str().ok()
}

/// Reads `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the cause without the address, which may be signed.
fn innermost(err: &reqwest::Error) -> String {
    let mut source = std::error::Error::source(err);
    let mut text = None;
    while let Some(inner) = source {
        text = Some(inner.to_string());
        source = inner.source();
    }
    text.unwrap_or_else(|| "the connection failed".to_owned())
}
