//! The check of the certificate, where the portal speaks HTTPS itself: whether it can be read
//! with its key, for which of our names it is good, and how long.

use std::path::Path;

use rustls::pki_types::ServerName;
use url::Url;

use super::{Facts, Finding, Level};
use crate::{
    listen::{Certificate, TlsError},
    model::Timestamp,
};

/// So many days before its end somebody should look why it was not renewed.
const SOON: i64 = 14;

pub fn certificate(facts: &Facts) -> Option<Finding> {
    let name = "certificate";
    let server = &facts.server;
    if server.tls_cert.is_empty() {
        return None;
    }
    let opened = Certificate::open(Path::new(&server.tls_cert), Path::new(&server.tls_key), server.name_of_some_app());
    let certificate = match opened {
        Ok(certificate) => certificate,
        Err(TlsError::Name(_)) => {
            let domain = server.apps_domain();
            let what = format!("{} is not good for *.{domain}, where sessions have their names", server.tls_cert);
            return Some(Finding::new(name, Level::Fault, what).mend(format!("a certificate for *.{domain} too")));
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return Some(
                Finding::new(name, Level::Fault, format!("{error}: {cause}; a running portal keeps the one before"))
                    .mend(format!(
                        "put the chain and its key, PEM files that {} can read, at server.tls_cert and server.tls_key",
                        facts.service_user
                    )),
            );
        }
    };
    let Some(ends) = certificate.ends() else {
        return Some(Finding::new(name, Level::Warning, "it cannot be read when the certificate ends"));
    };
    let until = Timestamp(ends.saturating_mul(1000));
    let days = until.seconds_since(facts.clock.now()) / 86_400;
    let public = Url::parse(&server.public_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let public = public.and_then(|host| ServerName::try_from(host).ok());
    Some(match public.filter(|host| !certificate.covers(host)) {
        _ if until <= facts.clock.now() => {
            Finding::new(name, Level::Fault, format!("it ended at {until}: browsers refuse it")).mend("renew it")
        }
        Some(host) => Finding::new(
            name,
            Level::Warning,
            format!("it is not good for {}, the host of server.public_url", host.to_str()),
        )
        .mend("a certificate for that name, or another server.public_url"),
        None if days < SOON => {
            Finding::new(name, Level::Warning, format!("it ends in {days} days, at {until}")).mend("renew it")
        }
        None => Finding::new(name, Level::Ok, format!("good until {until}; a renewed one is taken up by itself")),
    })
}
