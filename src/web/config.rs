//! How the portal is reached: its own address as browsers know it, the origins of apps, the names of
//! cookies that follow from both, and who is believed about where a request came from.

use std::{fmt::Display, path::PathBuf};

use axum::http::HeaderMap;
use ipnet::IpNet;
use url::{Host, Origin, Url};

use super::http::{forwarded::ClientHeader, guard};
use crate::scheduler::slurm::Quotas;

/// How the portal is reached.
#[derive(Clone, Debug, Default)]
pub struct WebConfig {
    /// The address that people type, where it is not the listener's own.
    pub public_url: Option<Url>,
    /// The listener itself speaks HTTPS.
    pub tls: bool,
    /// The main listener's port.
    pub port: u16,
    /// Names of this host that may stand in `Host` where there is no `public_url`.
    pub host_names: Vec<String>,
    /// Who is believed about the client's address, which they name in `client_header`.
    pub trusted_proxies: Vec<IpNet>,
    pub client_header: ClientHeader,
    /// For how long browsers that came by HTTPS come by nothing else (seconds).
    pub hsts: i64,
    /// Plain HTTP off loopback, by the administrator's choice.
    pub insecure_http: bool,
    pub apps: AppsOrigin,
    /// The data directory, where the first password lies.
    pub private: PathBuf,
    /// Who keeps the quotas, where Slurm starts the workloads.
    pub quotas: Quotas,
}

/// What Slurm is told of limits.
const MIRRORED: &str = "For groups that have an account in Slurm, Slurm also enforces the limits on GPUs, cores and \
                        memory. They then also apply to jobs submitted from a shell. Only the portal enforces all \
                        other limits: concurrent sessions and jobs, durations, hours, and the cluster’s totals.";

const READ: &str = "Slurm manages the limits on GPUs, cores, memory, jobs and durations. They are shown as set in \
                    Slurm; change them there with sacctmgr. The portal manages the limits that Slurm does not have; \
                    change them with ‘lyceum admin quota set’ on the portal’s machine.";

/// Where apps are reached by browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AppsOrigin {
    /// On the portal's own origin.
    #[default]
    Path,
    /// On another port of the same host.
    Port(u16),
    /// At an address of their own, behind a reverse proxy.
    Url(String),
    /// Each session on a name of its own below this domain, in lower case; the scheme and the
    /// port are the portal's, and so is the listener. There is a `public_url` then.
    Subdomain(String),
}

impl WebConfig {
    /// What whoever looks at limits should know of Slurm's part in them.
    pub fn note_on_quotas(&self) -> Option<&'static str> {
        match self.quotas {
            Quotas::Portal => None,
            Quotas::Mirror => Some(MIRRORED),
            Quotas::Read => Some(READ),
        }
    }

    /// Whether browsers reach us by HTTPS.
    pub fn is_https(&self) -> bool {
        self.public_url.as_ref().map_or(self.tls, |url| url.scheme() == "https")
    }

    pub fn scheme(&self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    pub fn cookie_name(&self) -> &'static str {
        if self.is_https() { "__Host-lyceum_login" } else { "lyceum_login" }
    }

    /// Of the cookie that the sign-in form's proof is bound to.
    pub fn form_cookie_name(&self) -> &'static str {
        if self.is_https() { "__Host-lyceum_form" } else { "lyceum_form" }
    }

    /// Our own address as the asking browser knows it: `https://portal.example.org`.
    pub fn origin(&self, headers: &HeaderMap) -> String {
        guard::ours(headers, self).map_or_else(String::new, |origin| origin.ascii_serialization())
    }

    /// The origin that an app has for this browser; `None` where it is the portal's own, and
    /// where the browser calls us by a name that is not known to be ours. `whose` is a session,
    /// or `*` for all of them.
    pub fn apps_origin(&self, headers: &HeaderMap, whose: impl Display) -> Option<String> {
        if let AppsOrigin::Url(url) = &self.apps {
            return Some(url.clone());
        }
        let Origin::Tuple(scheme, host, port) = guard::ours(headers, self)? else { return None };
        match &self.apps {
            AppsOrigin::Path | AppsOrigin::Url(_) => None,
            AppsOrigin::Port(port) => Some(format!("{scheme}://{host}:{port}")),
            AppsOrigin::Subdomain(domain) => {
                let host = Host::Domain(format!("{whose}.{domain}"));
                Some(Origin::Tuple(scheme, host, port).ascii_serialization())
            }
        }
    }
}
