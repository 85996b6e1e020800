//! What a site says of notifications: the server that takes its e-mail, and the hosts that people may have
//! told of their jobs. Nothing is sent before somebody has said so here.

use std::path::PathBuf;

use ipnet::IpNet;
use lettre::message::Mailbox;
use serde::Deserialize;

use lyceum_model::setting::list;

/// `[notifications]`
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The mail server, `HOST` or `HOST:PORT`; empty: no e-mail is sent.
    pub smtp: String,
    pub smtp_tls: Tls,
    /// A file with the authority that signed the server's certificate; empty: those of the system.
    pub smtp_ca_file: PathBuf,
    pub smtp_user: String,
    pub smtp_password: String,
    pub smtp_password_file: PathBuf,
    /// Who it comes from: `Lyceum <lyceum@example.org>`.
    pub mail_from: String,
    /// Domains that it may go to; empty: any.
    #[serde(deserialize_with = "list")]
    pub mail_domains: Vec<String>,
    /// Hosts that may be told by HTTP: `hooks.example.org`, `*.example.org`, with `:PORT` where it is not the usual
    /// one.
    #[serde(deserialize_with = "list")]
    pub webhook_hosts: Vec<String>,
    /// Networks that such hosts may lie in besides the public ones: `10.1.0.0/16`.
    #[serde(deserialize_with = "list")]
    pub webhook_networks: Vec<String>,
}

/// How the connection to the mail server is kept from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// Begun in clear, and never gone on with so (port 587).
    #[default]
    Starttls,
    /// From the first byte on (port 465).
    Tls,
    /// In clear, for a server on this very machine (port 25).
    None,
}

impl std::fmt::Debug for Config {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("smtp", &self.smtp)
            .field("webhook_hosts", &self.webhook_hosts)
            .finish_non_exhaustive()
    }
}

impl Config {
    #[must_use]
    pub fn sends_mail(&self) -> bool {
        !self.smtp.is_empty()
    }

    /// The server's name and port.
    pub(super) fn server(&self) -> Option<(&str, u16)> {
        let usual = match self.smtp_tls {
            Tls::Starttls => 587,
            Tls::Tls => 465,
            Tls::None => 25,
        };
        match self.smtp.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => Some((host, port.parse().ok()?)),
            _ => Some((&self.smtp, usual)),
        }
    }

    pub(super) fn sender(&self) -> Option<Mailbox> {
        self.mail_from.parse().ok()
    }

    /// Networks that are not public and allowed all the same.
    pub(super) fn networks(&self) -> Vec<IpNet> {
        self.webhook_networks.iter().filter_map(|network| network.parse().ok()).collect()
    }

    /// Every fault, with its key.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, what: &str| faults.push(format!("notifications.{key}: {what}"));
        if self.sends_mail() {
            if self.server().is_none_or(|(host, port)| !is_host(host) || port == 0) {
                fault("smtp", "must be HOST or HOST:PORT, as in mail.example.org:587");
            }
            if self.sender().is_none() {
                fault("mail_from", "must be an address, as in Lyceum <lyceum@example.org>");
            }
            let is_here = self.server().is_some_and(|(host, _)| ["localhost", "127.0.0.1"].contains(&host));
            if self.smtp_tls == Tls::None && !is_here {
                fault("smtp_tls", "can be \"none\" only for a server on this machine (localhost)");
            }
        }
        if self.smtp_user.is_empty() != self.smtp_password.is_empty() {
            fault("smtp_user", "and smtp_password (or smtp_password_file) belong together: set both or neither");
        }
        if let Some(domain) = self.mail_domains.iter().find(|domain| !is_host(domain)) {
            fault("mail_domains", &format!("`{}` is not a valid domain, as in example.org", domain.escape_debug()));
        }
        for host in &self.webhook_hosts {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let (name, port) =
                name.rsplit_once(':').map_or((name, Ok(443)), |(name, port)| (name, port.parse::<u16>()));
            if !is_host(name) || port.is_err() {
                fault(
                    "webhook_hosts",
                    &format!("`{}` is not a valid host, as in hooks.example.org or *.example.org", host.escape_debug()),
                );
            }
        }
        for network in &self.webhook_networks {
            if network.parse::<IpNet>().is_err() {
                fault(
                    "webhook_networks",
                    &format!("`{}` is not a valid network, as in 10.1.0.0/16", network.escape_debug()),
                );
            }
        }
        faults
    }
}

/// A name of hosts, or an address of the fourth version.
fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    !text.is_empty() && text.len() < 254 && text.chars().all(plain) && !text.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let mut config = Config {
            smtp: "mail.example.org".to_owned(),
            mail_from: "Lyceum <l@example.org>".to_owned(),
            ..Config::default()
        };
        change(&mut config);
        config.validate()
    }

    #[test]
    fn what_cannot_be_is_told_with_its_key() {
        assert_eq!(faults(|_| {}), Vec::<String>::new());
        assert_eq!(Config::default().validate(), Vec::<String>::new(), "nothing is said, and nothing sent");
        for (change, key) in [
            ((|c| c.smtp = "a b".to_owned()) as fn(&mut Config), "smtp"),
            (|c| c.smtp = "a:b".to_owned(), "smtp"),
            (|c| c.mail_from = "nobody".to_owned(), "mail_from"),
            (|c| c.smtp_tls = Tls::None, "smtp_tls"),
            (|c| c.smtp_user = "u".to_owned(), "smtp_user"),
            (|c| c.mail_domains = vec!["@x".to_owned()], "mail_domains"),
            (|c| c.webhook_hosts = vec!["https://x".to_owned()], "webhook_hosts"),
            (|c| c.webhook_hosts = vec!["x:y".to_owned()], "webhook_hosts"),
            (|c| c.webhook_networks = vec!["10".to_owned()], "webhook_networks"),
        ] {
            let told = faults(change);
            assert!(told.len() == 1 && told[0].starts_with(&format!("notifications.{key}: ")), "{key}: {told:?}");
        }
        assert_eq!(faults(|c| (c.smtp, c.smtp_tls) = ("localhost:2525".to_owned(), Tls::None)), Vec::<String>::new());
    }

    #[test]
    fn ports_are_the_usual_ones() {
        let of = |smtp: &str, smtp_tls| {
            let config = Config { smtp: smtp.to_owned(), smtp_tls, ..Config::default() };
            config.server().map(|(host, port)| (host.to_owned(), port))
        };
        assert_eq!(of("mail", Tls::Starttls), Some(("mail".to_owned(), 587)));
        assert_eq!(of("mail", Tls::Tls), Some(("mail".to_owned(), 465)));
        assert_eq!(of("mail:25", Tls::Tls), Some(("mail".to_owned(), 25)));
    }
}
