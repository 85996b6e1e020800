//! One connection to one of the directory's servers: opened anew for each sign-in, trusted
//! by the server's certificate, bounded in time at every step, closed when it is dropped.
//! Referrals are left alone: they could lead anywhere.

use std::{sync::Arc, time::Duration};

use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions,
    adapters::{Adapter, EntriesOnly, PagedResults},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::task::JoinHandle;

use super::{Error, Result, settings::Settings};

/// Entries in one page of an answer.
const PAGE: i32 = 500;
/// More entries than this answer nobody's question.
const MAX_ENTRIES: usize = 20_000;

/// RFC 4511's codes.
const INVALID_CREDENTIALS: u32 = 49;
const NO_SUCH_OBJECT: u32 = 32;
const INVALID_DN: u32 = 34;
const BUSY: u32 = 51;
const UNAVAILABLE: u32 = 52;
pub const SIZE_LIMIT_EXCEEDED: u32 = 4;
/// Entries that are enough for an example.
const SOME: i32 = 5;

/// What a search found.
#[derive(Debug)]
pub struct Answer {
    pub entries: Vec<SearchEntry>,
    /// False where the directory has more than it gives in one answer.
    pub is_complete: bool,
}

pub struct Connection {
    ldap: Ldap,
    driver: JoinHandle<()>,
    timeout: Duration,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub async fn open(settings: &Settings, trust: &Arc<ClientConfig>, url: &str) -> Result<Self> {
        let options = LdapConnSettings::new()
            .set_conn_timeout(duration(settings.connect_timeout))
            .set_starttls(settings.starttls && url.starts_with("ldap://"))
            .set_config(Arc::clone(trust));
        let (driver, ldap) = LdapConnAsync::with_settings(options, url)
            .await
            .map_err(|source| Error::Connect { url: url.to_owned(), source: Box::new(source) })?;
        // Its end is seen by whoever asks next.
        let driver = tokio::spawn(async move { drop(driver.drive().await) });
        Ok(Self { ldap, driver, timeout: duration(settings.timeout) })
    }

    /// Whether this is the password of the entry.
    pub async fn bind(&mut self, dn: &str, password: &str) -> Result<bool> {
        // An empty password is an anonymous bind, and succeeds.
        if password.is_empty() || dn.is_empty() {
            return Ok(false);
        }
        let answer = self.ldap.with_timeout(self.timeout).simple_bind(dn, password).await;
        let answer = answer.map_err(|source| failed("bind", source))?;
        match answer.rc {
            0 => Ok(true),
            BUSY | UNAVAILABLE => Err(failed("bind", answer.into())),
            // A locked account, a name that is none, a policy that refuses: no.
            code => {
                if code != INVALID_CREDENTIALS {
                    tracing::info!(dn, code, text = answer.text, "directory rejected a bind");
                }
                Ok(false)
            }
        }
    }

    /// The entries that `filter` finds, as many as the directory gives; an entry that is not there has none
    /// below it.
    pub async fn search(&mut self, base: &str, scope: Scope, filter: &str, wanted: &[&str]) -> Result<Answer> {
        let failed = |source| failed("search", source);
        let adapters: Vec<Box<dyn Adapter<'_, &str, Vec<&str>>>> =
            vec![Box::new(EntriesOnly::new()), Box::new(PagedResults::new(PAGE))];
        let mut stream = self
            .ldap
            .with_timeout(self.timeout)
            .streaming_search_with(adapters, base, scope, filter, wanted.to_vec())
            .await
            .map_err(failed)?;
        let mut entries = Vec::new();
        while let Some(entry) = stream.next().await.map_err(failed)? {
            entries.push(SearchEntry::construct(entry));
            if entries.len() > MAX_ENTRIES {
                return Err(Error::TooMuch(MAX_ENTRIES));
            }
        }
        match stream.finish().await {
            answer if matches!(answer.rc, 0 | NO_SUCH_OBJECT) => Ok(Answer { entries, is_complete: true }),
            answer if answer.rc == SIZE_LIMIT_EXCEEDED => Ok(Answer { entries, is_complete: false }),
            answer => Err(failed(answer.into())),
        }
    }

    /// Whether there is such an entry. Only an answer that says so proves that there is none.
    pub async fn has(&mut self, dn: &str) -> Result<bool> {
        let failed = |source| failed("search", source);
        let asked = self.ldap.with_timeout(self.timeout).search(dn, Scope::Base, "(objectClass=*)", vec!["1.1"]);
        let ldap3::SearchResult(_, answer) = asked.await.map_err(failed)?;
        match answer.rc {
            0 | INVALID_DN => Ok(true),
            NO_SUCH_OBJECT => Ok(false),
            _ => Err(failed(answer.into())),
        }
    }

    /// A few of the entries that `filter` finds.
    pub async fn some(&mut self, base: &str, scope: Scope, filter: &str, wanted: &[&str]) -> Result<Vec<SearchEntry>> {
        let failed = |source| failed("search", source);
        let options = SearchOptions::new().sizelimit(SOME);
        let asked = self.ldap.with_timeout(self.timeout).with_search_options(options);
        let ldap3::SearchResult(entries, answer) =
            asked.search(base, scope, filter, wanted.to_vec()).await.map_err(failed)?;
        match answer.rc {
            0 | SIZE_LIMIT_EXCEEDED => {
                let entries = entries.into_iter().filter(|entry| !entry.is_ref() && !entry.is_intermediate());
                Ok(entries.map(SearchEntry::construct).collect())
            }
            _ => Err(failed(answer.into())),
        }
    }
}

/// What went wrong: the directory's own word, where it said one.
fn failed(what: &'static str, source: LdapError) -> Error {
    match source {
        LdapError::LdapResult { result } => Error::Answer { what, code: result.rc, text: result.text },
        source => Error::Ask { what, source: Box::new(source) },
    }
}

/// A result code of RFC 4511 in words, with the name that directories' manuals know it by.
pub fn in_words(code: u32) -> String {
    let known = match code {
        1 => "operations error (operationsError",
        3 => "the time limit of a request is exceeded (timeLimitExceeded",
        SIZE_LIMIT_EXCEEDED => "the size limit of a response is exceeded (sizeLimitExceeded",
        8 => "stronger authentication is required (strongerAuthRequired",
        10 => "it refers to another server (referral",
        11 => "an administrative limit is exceeded (adminLimitExceeded",
        16 => "the attribute does not exist (noSuchAttribute",
        NO_SUCH_OBJECT => "the entry does not exist (noSuchObject",
        INVALID_DN => "the name of an entry is invalid (invalidDNSyntax",
        50 => "access is denied (insufficientAccessRights",
        BUSY => "it is busy (busy",
        UNAVAILABLE => "it is unavailable (unavailable",
        53 => "it is unwilling to perform this request (unwillingToPerform",
        80 => "an internal error (other",
        _ => return format!("result code {code}"),
    };
    format!("{known}, code {code})")
}

/// Whom we believe to be the directory.
pub fn trust(settings: &Settings) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    if settings.ca_file.as_os_str().is_empty() {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    } else {
        let unusable = |reason: String| Error::Authority { path: settings.ca_file.clone(), reason };
        for certificate in CertificateDer::pem_file_iter(&settings.ca_file).map_err(|err| unusable(err.to_string()))? {
            let certificate = certificate.map_err(|err| unusable(err.to_string()))?;
            roots.add(certificate).map_err(|err| unusable(err.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("it contains no certificate".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}
