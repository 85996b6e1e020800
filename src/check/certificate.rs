//! The check of the certificate, where the portal speaks HTTPS itself: whether it can be read
//! with its key, by whom the portal runs as too, for which of our names it is good, and how long.

use std::{fs::File, path::Path, time::Duration};

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    Facts, Finding, Level,
    errand::{self, Errand},
};
use crate::{
    helper::identity::Identity,
    listen::{Certificate, TlsError},
    model::{Timestamp, finding},
};

const NAME: &str = "certificate";

/// How long files may take to open, on a file server too.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The errand of trying whether somebody can read files.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadTrial {
    reader: Identity,
    /// Each with the setting that names it.
    files: Vec<(String, String)>,
}

impl ReadTrial {
    /// A fault for each file that cannot be read.
    pub fn perform(&self) -> Vec<Finding> {
        let Identity { name, .. } = &self.reader;
        if let Err(err) = self.reader.become_for_good() {
            return vec![Finding::new(NAME, Level::Fault, err.sentence())];
        }
        let unreadable = |(setting, file): &(String, String)| {
            let err = File::open(file).err()?;
            let what = format!("`{name}`, the user that the portal runs as, cannot read {setting} ({file}): {err}");
            Some(Finding::new(NAME, Level::Fault, what).fix(format!(
                "chgrp {name} {file} && chmod g+r {file}; `namei -l {file}` shows which directory is not accessible"
            )))
        };
        self.files.iter().filter_map(unreadable).collect()
    }
}

/// Root reads everything; the portal will not be root.
async fn faults_of_reading(facts: &Facts) -> Vec<Finding> {
    // Before the first start there is nobody whom it could be closed to.
    let Some(reader) = facts.is_root.then(|| Identity::facts(&facts.service_user).ok()).flatten() else {
        return Vec::new();
    };
    let server = &facts.server;
    let files = [("server.tls_cert", &server.tls_cert), ("server.tls_key", &server.tls_key)];
    let files = files.map(|(setting, file)| (setting.to_owned(), file.clone())).to_vec();
    errand::send(&Errand::Read(ReadTrial { reader, files }), NAME, TIMEOUT).await
}

pub async fn certificate(facts: &Facts) -> Vec<Finding> {
    if facts.server.tls_cert.is_empty() {
        return Vec::new();
    }
    let mut findings = vec![judged(facts)];
    findings.extend(faults_of_reading(facts).await);
    findings
}

fn judged(facts: &Facts) -> Finding {
    let server = &facts.server;
    let opened = Certificate::open(Path::new(&server.tls_cert), Path::new(&server.tls_key), server.name_of_some_app());
    let certificate = match opened {
        Ok(certificate) => certificate,
        Err(TlsError::Name(_)) => {
            let domain = server.apps_domain();
            let what = format!("{} is not valid for *.{domain}, where sessions have their names", server.tls_cert);
            return Finding::new(NAME, Level::Fault, what)
                .fix(format!("use a certificate that is also valid for *.{domain}"));
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let what = format!("{error}: {cause}; a running portal keeps using the previous one");
            return Finding::new(NAME, Level::Fault, what).fix(format!(
                "set server.tls_cert and server.tls_key to the chain and its key, as PEM files that {} can read",
                facts.service_user
            ));
        }
    };
    let now = facts.clock.now();
    let until = certificate.ends().map(|ends| Timestamp(ends.saturating_mul(1000)));
    let lasting = finding::certificate_until(until, now);
    let public = Url::parse(&server.public_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let public = public.and_then(|host| ServerName::try_from(host).ok());
    match public.filter(|host| !certificate.covers(host)) {
        Some(host) if lasting.level < Level::Fault => Finding::new(
            NAME,
            Level::Warning,
            format!("it is not valid for {}, the host of server.public_url", host.to_str()),
        )
        .fix("use a certificate for that name, or change server.public_url"),
        _ => lasting,
    }
}
