//! Sign-in by a reverse proxy, which knows people by single sign-on, a second factor, a client
//! certificate or Kerberos, and names them in a header. What a header says is a [`Claim`] by the
//! time it comes here: `web` has seen to it that a trusted proxy made it. With a directory the
//! claim is a name alone, and the directory says whether the account stands and which groups it
//! has; without one, the proxy says that too.

use std::{collections::BTreeMap, net::IpAddr, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc};

use serde::Deserialize;

use super::{Error, Ldap, Result, rules::Rules, secrets};
use lyceum_db::{
    Db,
    directory::{Group, Person},
};
use lyceum_model::{Clock, UserId, Username, setting::list};

/// Where people come from whom no directory knows, in the users table.
pub const SOURCE: &str = "header";

/// A shorter secret could be guessed.
const MIN_SECRET_LENGTH: usize = 16;

/// `[auth.header]`; off as long as `user` is empty.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The header that names the person.
    pub user: String,
    /// Headers that tell more of them, where there is no directory; empty: none does.
    pub groups: String,
    pub display_name: String,
    pub mail: String,
    /// Taken off names: with `example.org`, `alice@example.org` is `alice`.
    pub domain: String,
    /// The addresses of the proxies that may say so.
    #[serde(deserialize_with = "list")]
    pub proxies: Vec<String>,
    /// The header in which they prove who they are, and the file with what stands in it.
    #[serde(default = "secret_header")]
    pub secret_header: String,
    pub secret_file: PathBuf,
    /// What the file holds.
    #[serde(skip)]
    pub secret: String,
    /// Where signing out leads, to end what the proxy remembers.
    pub sign_out_url: String,

    /// As in `[auth.ldap]`, where there is no directory.
    #[serde(flatten)]
    pub rules: Rules,
}

fn secret_header() -> String {
    "X-Lyceum-Proxy".to_owned()
}

impl std::fmt::Debug for Settings {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("user", &self.user).field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

impl Settings {
    pub fn is_on(&self) -> bool {
        !self.user.is_empty()
    }

    /// Every header that means something, with its key.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("user", &self.user),
            ("groups", &self.groups),
            ("display_name", &self.display_name),
            ("mail", &self.mail),
            ("secret_header", &self.secret_header),
        ]
        .into_iter()
        .map(|(key, name)| (key, name.as_str()))
        .filter(|(_, name)| !name.is_empty())
    }

    /// Whether somebody at this address may say who people are.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.proxies
            .iter()
            .filter_map(|proxy| proxy.parse::<IpAddr>().ok())
            .any(|proxy| proxy.to_canonical() == address)
    }

    /// Compared without telling by its time how much was right.
    pub fn is_secret(&self, given: &str) -> bool {
        !self.secret.is_empty() && secrets::same(&self.secret, given)
    }

    /// Whoever reads the secret can be anybody: only its owner and their group may.
    pub fn check_file(&self) -> Result<(), String> {
        let mode = std::fs::metadata(&self.secret_file).map_or(0, |found| found.permissions().mode());
        if self.secret_file.as_os_str().is_empty() || mode & 0o004 == 0 {
            return Ok(());
        }
        let file = self.secret_file.display();
        Err(format!(
            "auth.header.secret_file: every user of this machine can read {file} and could sign in as any user: chmod \
             o= {file}"
        ))
    }

    /// Every fault, each with its key and the way out. `directory`: one says who people are.
    pub fn validate(&self, directory: Option<&super::ldap::Settings>) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.is_on() {
            if !self.proxies.is_empty() || !self.secret_file.as_os_str().is_empty() {
                faults.push(
                    "auth.header.user: must name the header with the user name, for example X-Remote-User".to_owned(),
                );
            }
            return faults;
        }
        let mut fault = |key: &str, message: &str| faults.push(format!("auth.header.{key}: {message}"));
        let mut seen = Vec::new();
        for (key, name) in self.headers() {
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            // Proxies say these of requests in general, browsers and programs send them themselves.
            let taken = ["authorization", "cookie", "host", "origin", "connection"];
            if !plain || name.len() > 64 || taken.contains(&name.to_ascii_lowercase().as_str()) {
                fault(key, "must be the name of a header that only the proxy sends, with letters, digits and `-`");
            } else if seen.contains(&name.to_ascii_lowercase()) {
                fault(key, "must differ from the other headers");
            }
            seen.push(name.to_ascii_lowercase());
        }
        if self.proxies.is_empty() {
            fault("proxies", "must list the addresses of the trusted proxies");
        }
        for proxy in self.proxies.iter().filter(|proxy| proxy.parse::<IpAddr>().is_err()) {
            fault("proxies", &format!("`{}` is not an IP address", proxy.escape_debug()));
        }
        if self.secret_header.is_empty() {
            fault(
                "secret_header",
                "must name the header in which the proxy sends the secret, for example X-Lyceum-Proxy",
            );
        }
        if self.secret.len() < MIN_SECRET_LENGTH || !self.secret.bytes().all(|b| b.is_ascii_graphic()) {
            // An address proves nothing on a machine with other users.
            fault(
                "secret_file",
                "must name a file with a secret of 16 or more visible ASCII characters, which the proxy sends too. \
                 Without it, every user of the proxy's machine could sign in as any user",
            );
        }
        let path = self.sign_out_url.starts_with('/') && !self.sign_out_url.starts_with("//");
        let address = url::Url::parse(&self.sign_out_url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !self.sign_out_url.is_empty()
            && (!(path || address) || self.sign_out_url.contains(['\\', ' ', '"', ';', ',']))
        {
            fault(
                "sign_out_url",
                "must be an http or https address, or a path on the proxy, for example /oauth2/sign_out",
            );
        }
        match directory {
            Some(directory) if !directory.can_search() => {
                fault(
                    "user",
                    "requires auth.ldap.bind_dn: without the user's password, only that account can look users up",
                );
            }
            Some(_) => {
                let more = [&self.groups, &self.display_name, &self.mail];
                if more.iter().any(|name| !name.is_empty()) || self.rules.named().next().is_some() {
                    fault(
                        "groups",
                        "applies only without a directory: with auth.ldap, the directory defines groups, names and who \
                         may sign in",
                    );
                }
            }
            None if self.rules.allow_groups.is_empty() => {
                fault(
                    "allow_groups",
                    "must list the groups whose members may sign in, or [\"*\"] for all users whom the proxy admits",
                );
            }
            None if self.groups.is_empty() && self.rules.named().any(|group| group != "*") => {
                fault("groups", "must name the header that lists the user's groups, because groups are configured");
            }
            None => {}
        }
        faults
    }
}

/// What a trusted proxy says of whoever sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub name: Username,
    pub display_name: String,
    pub mail: Option<String>,
    pub groups: Vec<String>,
}

/// Finds the person whom a proxy has named.
pub struct Header {
    pub settings: Settings,
    db: Db,
    clock: Clock,
    directory: Option<Arc<Ldap>>,
}

impl Header {
    pub fn new(settings: Settings, db: Db, clock: Clock, directory: Option<Arc<Ldap>>) -> Self {
        Self { settings, db, clock, directory }
    }

    /// Who this is; [`Error::BadCredentials`] where they may not be in.
    pub async fn recognise(&self, claim: &Claim) -> Result<UserId> {
        match &self.directory {
            Some(directory) => directory.recognise(&claim.name).await,
            None => self.admit(claim).await,
        }
    }

    async fn admit(&self, claim: &Claim) -> Result<UserId> {
        // A proxy may list one twice.
        let named: BTreeMap<String, &String> = claim.groups.iter().map(|name| (name.to_lowercase(), name)).collect();
        let groups: Vec<Group> =
            named.into_iter().map(|(subject, name)| Group { subject, name: name.clone() }).collect();
        let rules = &self.settings.rules;
        rules.may_enter(&groups).map_err(|because| Error::refused(format!("{} {because}", claim.name)))?;
        // Without a word about groups an administrator's own decision stands.
        let person = Person {
            source: SOURCE,
            subject: &format!("name={}", claim.name),
            name: &claim.name,
            display_name: &claim.display_name,
            mail: claim.mail.as_deref(),
            uid_number: None,
            unix_name: None,
            role: rules.give_roles().then(|| rules.role(&groups)),
            groups: &groups,
        };
        super::ldap::known(self.db.arrive(&person, self.clock.now()).await?, &claim.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Settings {
        Settings {
            user: "X-Remote-User".to_owned(),
            proxies: vec!["127.0.0.1".to_owned()],
            secret_header: "X-Lyceum-Proxy".to_owned(),
            secret: "0123456789abcdef".to_owned(),
            rules: Rules { allow_groups: vec!["*".to_owned()], ..Rules::default() },
            ..Settings::default()
        }
    }

    #[test]
    fn faults_name_their_key() {
        let fault = |change: fn(&mut Settings)| {
            let mut settings = good();
            change(&mut settings);
            settings.validate(None).join("\n")
        };
        assert_eq!(fault(|_| {}), "");
        assert_eq!(fault(|s| s.sign_out_url = "/oauth2/sign_out?rd=/login".to_owned()), "");
        assert_eq!(fault(|s| s.sign_out_url = "https://sso.example.org/logout".to_owned()), "");
        assert_eq!(Settings::default().validate(None), Vec::<String>::new(), "it is off");
        for (change, key) in [
            ((|s| s.user.clear()) as fn(&mut Settings), "user"),
            (|s| s.user = "Authorization".to_owned(), "user"),
            (|s| s.user = "X_Remote_User".to_owned(), "user"),
            (|s| s.mail = "x-remote-user".to_owned(), "mail"),
            (|s| s.proxies.clear(), "proxies"),
            (|s| s.proxies = vec!["proxy.example.org".to_owned()], "proxies"),
            (|s| s.secret.clear(), "secret_file"),
            (|s| s.secret = "short".to_owned(), "secret_file"),
            (|s| s.secret_header.clear(), "secret_header"),
            (|s| s.sign_out_url = "//evil.example".to_owned(), "sign_out_url"),
            (|s| s.sign_out_url = "javascript:alert(1)".to_owned(), "sign_out_url"),
            (|s| s.sign_out_url = "https://a.example/; script-src *".to_owned(), "sign_out_url"),
            (|s| s.rules.allow_groups.clear(), "allow_groups"),
            (|s| s.rules.admin_groups = vec!["admins".to_owned()], "groups"),
        ] {
            let told = fault(change);
            assert!(told.starts_with(&format!("auth.header.{key}: ")), "{key}: {told}");
        }
        let mut directory = super::super::ldap::Settings::default();
        assert!(good().validate(Some(&directory)).join("\n").contains("auth.ldap.bind_dn"));
        directory.bind_dn = "cn=portal".to_owned();
        assert!(good().validate(Some(&directory)).join("\n").contains("auth.header.groups"), "two who say groups");
    }

    #[test]
    fn the_secret_is_not_shown_and_an_empty_one_is_nobodys() {
        assert!(!format!("{:?}", good()).contains("0123"));
        assert!(good().is_secret("0123456789abcdef") && !good().is_secret("0123456789abcdeF"));
        assert!(!Settings::default().is_secret(""));
    }
}
