//! The origins as browsers know them: the portal's and the apps', and what of their settings
//! cannot be. An app's page must never find itself on the portal's name, nor its cookies
//! travel in clear.

use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use url::{Host, Url};

use super::{AppsMode, Server};
use crate::model::SessionId;

impl Server {
    /// Where the apps' origin listens; the next port after `listen` by default.
    pub fn apps_address(&self) -> SocketAddr {
        self.apps_listen.parse().unwrap_or_else(|_| {
            let port = self.listen.port();
            SocketAddr::new(self.listen.ip(), if port == 0 { 0 } else { port.wrapping_add(1).max(1) })
        })
    }

    /// The address that people type; `None` where it is whatever their browsers say. Below
    /// `localhost` apps cannot tell what that was, so there it is `localhost`.
    pub fn public_address(&self, port: u16) -> Option<Url> {
        let scheme = if self.tls_cert.is_empty() { "http" } else { "https" };
        let implied = (self.apps == AppsMode::Subdomain).then(|| format!("{scheme}://localhost:{port}/"));
        let typed = (!self.public_url.is_empty()).then(|| self.public_url.clone());
        typed.or(implied).and_then(|url| Url::parse(&url).ok())
    }

    /// `apps_domain` as browsers write it.
    pub fn apps_domain(&self) -> String {
        self.apps_domain.to_ascii_lowercase()
    }

    /// A name below `apps_domain`, for which the certificate must be good.
    pub fn name_of_some_app(&self) -> Option<ServerName<'static>> {
        if self.apps != AppsMode::Subdomain {
            return None;
        }
        ServerName::try_from(format!("{}.{}", SessionId::new(), self.apps_domain())).ok()
    }

    pub(super) fn faults_of_origins(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let plain = |url: &Url| matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.path() == "/";
        if !self.public_url.is_empty() && !Url::parse(&self.public_url).is_ok_and(|url| plain(&url)) {
            faults.push(
                "server.public_url: must be an http or https address without a path, as in https://portal.example.org"
                    .to_owned(),
            );
        }
        if !self.apps_url.is_empty() && !Url::parse(&self.apps_url).is_ok_and(|url| plain(&url)) {
            faults
                .push("server.apps_url: must be an address without a path, as in https://apps.example.org".to_owned());
        }
        if !self.apps_url.is_empty() && (self.public_url.is_empty() || self.apps != AppsMode::Port) {
            faults.push("server.apps_url: requires server.public_url and server.apps = \"port\"".to_owned());
        }
        let origin = |url: &str| Url::parse(url).map(|url| url.origin()).ok();
        if !self.apps_url.is_empty() && origin(&self.apps_url) == origin(&self.public_url) {
            let way_out = "use a different name or port for the apps, or set server.apps = \"path\"";
            faults.push(format!("server.apps_url: is the portal's own address; {way_out}"));
        }
        if self.apps == AppsMode::Subdomain {
            faults.extend(self.fault_of_domain().map(|fault| format!("server.apps_domain: {fault}")));
        } else if !self.apps_domain.is_empty() {
            faults.push("server.apps_domain: requires server.apps = \"subdomain\"".to_owned());
        }
        faults
    }

    fn fault_of_domain(&self) -> Option<String> {
        let domain = self.apps_domain();
        if !is_domain(&domain) {
            let what = "must be the domain below which sessions get names, as in apps.example.org: letters, digits and \
                        hyphens between dots, at most 200 characters, without `*.` and without a port";
            return Some(what.to_owned());
        }
        let is_local = |name: &str| name == "localhost" || name.ends_with(".localhost");
        if self.public_url.is_empty() && !is_local(&domain) {
            return Some(format!(
                "requires server.public_url, the https address of the portal; to try it without one, use {}",
                "apps.localhost"
            ));
        }
        let portal = self.public_address(self.listen.port())?;
        let host = portal.host()?.to_owned();
        if is_local(&domain) {
            let reached = match &host {
                Host::Domain(name) => is_local(name),
                Host::Ipv4(address) => address.is_loopback(),
                Host::Ipv6(address) => address.is_loopback(),
            };
            if !reached {
                return Some(format!(
                    "{domain} leads each browser to its own machine, but server.public_url does not: use a domain of \
                     your own"
                ));
            }
        } else if portal.scheme() != "https" {
            return Some(
                "requires HTTPS: set an https server.public_url, with server.tls_cert and server.tls_key or a reverse \
                 proxy"
                    .to_owned(),
            );
        }
        let name = host.to_string();
        let below = name.strip_suffix(&domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        below.then(|| {
            format!(
                "the portal itself is at {name}, which is {domain} or below it: use a domain for the apps that is \
                 beside or below the portal's"
            )
        })
    }
}

/// A domain name in lower case to which a session's id and a dot can be put in front.
fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels: Vec<&str> = name.split('.').collect();
    let is_address = labels.last().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    name.len() <= 200 && labels.len() >= 2 && labels.into_iter().all(label) && !is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(change: impl FnOnce(&mut Server)) -> String {
        let mut server = Server { apps: AppsMode::Subdomain, ..Server::default() };
        server.apps_domain = "apps.example.org".to_owned();
        server.public_url = "https://portal.example.org".to_owned();
        change(&mut server);
        server.faults_of_origins().join("\n")
    }

    #[test]
    fn a_domain_for_the_apps() {
        assert_eq!(faults(|_| {}), "");
        assert_eq!(faults(|s| s.apps_domain = "Apps.Example.ORG".to_owned()), "");
        assert_eq!(faults(|s| s.apps_domain = "apps.portal.example.org".to_owned()), "", "below the portal's");
        assert_eq!(faults(|s| s.apps_domain = "xportal.example.org".to_owned()), "");
        for (domain, word) in [
            ("", "must be the domain"),
            ("*.apps.example.org", "without `*.`"),
            ("apps.example.org:8443", "without a port"),
            ("https://apps.example.org", "must be the domain"),
            ("apps..example.org", "must be the domain"),
            ("-apps.example.org", "must be the domain"),
            ("apps_x.example.org", "must be the domain"),
            ("apps", "must be the domain"),
            ("192.0.2.1", "must be the domain"),
            ("portal.example.org", "the portal itself is at portal.example.org"),
            ("PORTAL.example.org", "the portal itself is at portal.example.org"),
            ("example.org", "the portal itself is at portal.example.org"),
            ("apps.localhost", "leads each browser to its own machine"),
        ] {
            let found = faults(|s| s.apps_domain = domain.to_owned());
            assert!(found.contains(word) && found.starts_with("server.apps_domain: "), "{domain}: {found}");
        }
        let long = ["x".repeat(60).as_str(), &"y".repeat(60), &"z".repeat(60), "example.org.example.org"].join(".");
        assert!(faults(|s| s.apps_domain = long).contains("200"));
    }

    #[test]
    fn what_belongs_to_it() {
        assert!(faults(|s| s.public_url = String::new()).contains("requires server.public_url"));
        assert!(faults(|s| s.public_url = "http://portal.example.org".to_owned()).contains("requires HTTPS"));
        assert!(faults(|s| s.apps_url = "https://a.example.org".to_owned()).contains("server.apps_url"));
        assert!(faults(|s| s.apps = AppsMode::Port).contains("server.apps_domain: requires"));
        let local = |url: &str| {
            faults(|s| {
                s.apps_domain = "apps.localhost".to_owned();
                url.clone_into(&mut s.public_url);
            })
        };
        for url in ["", "http://localhost:9000", "http://127.0.0.1:9000", "https://[::1]:9000", "http://me.localhost"] {
            assert_eq!(local(url), "", "{url}");
        }
        assert!(local("http://apps.localhost:8000").contains("the portal itself"));
        let server = Server { apps: AppsMode::Subdomain, ..Server::default() };
        assert_eq!(server.public_address(8001).unwrap().as_str(), "http://localhost:8001/");
        assert_eq!(Server::default().public_address(8001), None);
    }
}
