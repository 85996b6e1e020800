//! `[auth.ldap]`: where the directory is, how it is trusted, and how it writes people and
//! groups down. The defaults fit OpenLDAP; docs/directory.md has Active Directory's. What
//! cannot work, or would send passwords in clear unasked, is a fault at the start.

use std::{fmt, path::PathBuf};

use serde::Deserialize;

use lyceum_model::setting::{list, seconds};

use crate::auth::rules::Rules;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `ldap://` or `ldaps://`; tried in turn.
    #[serde(deserialize_with = "list")]
    pub urls: Vec<String>,
    /// Change to TLS on `ldap://` connections before anything is said.
    pub starttls: bool,
    /// The authority that signed the servers' certificates; empty: the system's.
    pub ca_file: PathBuf,
    /// Passwords may cross the network in clear.
    pub insecure: bool,

    /// The account that searches. Empty, with `user_dn`: people bind as themselves alone.
    pub bind_dn: String,
    pub bind_password: String,
    pub bind_password_file: PathBuf,
    /// The DN of a person, where it follows from the name: `uid={username},ou=people,…`.
    pub user_dn: String,

    pub user_base: String,
    /// Further condition on people, as in `(objectClass=posixAccount)`.
    pub user_filter: String,
    /// What becomes the name in the portal.
    pub username_attribute: String,
    /// What people may type besides, as in `mail`.
    #[serde(deserialize_with = "list")]
    pub sign_in_attributes: Vec<String>,
    /// The directory's own id of a person; empty: the first that is there of the known ones.
    pub id_attribute: String,
    pub display_name_attribute: String,
    pub mail_attribute: String,
    /// Empty where the directory keeps no Unix uids.
    pub uid_number_attribute: String,

    /// Empty: groups are read from people's `memberOf` alone.
    pub group_base: String,
    /// Further condition on groups.
    pub group_filter: String,
    pub group_name_attribute: String,
    pub nested: Nested,

    /// `allow_groups` and the like.
    #[serde(flatten)]
    pub rules: Rules,

    /// Seconds until a server counts as away.
    #[serde(deserialize_with = "seconds")]
    pub connect_timeout: i64,
    /// Seconds for one question.
    #[serde(deserialize_with = "seconds")]
    pub timeout: i64,
    /// Seconds between two looks at the people who are in.
    #[serde(deserialize_with = "seconds")]
    pub refresh: i64,
    /// After how many wrong passwords the directory locks an account; fewer are passed on.
    pub lockout_failures: i64,
    /// Seconds after which the directory forgets a wrong password.
    #[serde(deserialize_with = "seconds")]
    pub lockout_window: i64,
}

/// Whether members of a group's groups are its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nested {
    /// Parents are searched step by step; works everywhere.
    #[default]
    Walk,
    /// The directory does it: Active Directory's in-chain matching rule.
    InChain,
    Off,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            starttls: true,
            ca_file: PathBuf::new(),
            insecure: false,
            bind_dn: String::new(),
            bind_password: String::new(),
            bind_password_file: PathBuf::new(),
            user_dn: String::new(),
            user_base: String::new(),
            user_filter: String::new(),
            username_attribute: "uid".to_owned(),
            sign_in_attributes: Vec::new(),
            id_attribute: String::new(),
            display_name_attribute: "displayName".to_owned(),
            mail_attribute: "mail".to_owned(),
            uid_number_attribute: "uidNumber".to_owned(),
            group_base: String::new(),
            group_filter: String::new(),
            group_name_attribute: "cn".to_owned(),
            nested: Nested::Walk,
            rules: Rules::default(),
            connect_timeout: 5,
            timeout: 10,
            refresh: 300,
            lockout_failures: 5,
            lockout_window: 1800,
        }
    }
}

impl fmt::Debug for Settings {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("urls", &self.urls).field("bind_dn", &self.bind_dn).finish_non_exhaustive()
    }
}

impl Settings {
    /// Whether the service account may look people up by itself; without one, people are
    /// looked at when they sign in, and only then.
    pub fn can_search(&self) -> bool {
        !self.bind_dn.is_empty()
    }

    /// Every fault, each with its key and the way out.
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, message: &str| faults.push(format!("auth.ldap.{key}: {message}"));
        if self.urls.is_empty() {
            fault("urls", "must list the directory's servers, for example [\"ldaps://ldap.example.org\"]");
        }
        for address in &self.urls {
            let scheme =
                url::Url::parse(address).ok().filter(|url| url.host_str().is_some_and(|host| !host.is_empty()));
            match scheme.as_ref().map(url::Url::scheme) {
                Some("ldaps") => {}
                Some("ldap") if self.starttls || self.insecure => {}
                Some("ldap") => fault(
                    "starttls",
                    &format!(
                        "{address} without TLS would send passwords in clear text. Keep starttls on, use ldaps://, or \
                         set insecure = true"
                    ),
                ),
                _ => fault("urls", &format!("`{}` is not an ldap:// or ldaps:// address", address.escape_debug())),
            }
        }
        if self.rules.allow_groups.is_empty() {
            fault(
                "allow_groups",
                "must list the groups whose members may sign in, or [\"*\"] for all users in the directory",
            );
        }
        // Whoever searches needs a place to search, also for people who bind by a template.
        if self.user_base.is_empty() && (self.user_dn.is_empty() || self.can_search()) {
            fault(
                "user_base",
                "must name the entry below which users are searched, for example ou=people,dc=example,dc=org",
            );
        }
        if self.user_dn.is_empty() && self.bind_dn.is_empty() {
            fault("bind_dn", "must name the account that searches; or set user_dn, the template of a user's entry");
        }
        if !self.user_dn.is_empty() && !self.user_dn.contains("{username}") {
            fault("user_dn", "must contain {username}, for example uid={username},ou=people,dc=example,dc=org");
        }
        // An empty password would be an anonymous bind, which every directory grants.
        if !self.bind_dn.is_empty() && self.bind_password.is_empty() {
            fault("bind_password_file", "must name the file with the password of bind_dn (or set bind_password)");
        }
        for (key, filter) in [("user_filter", &self.user_filter), ("group_filter", &self.group_filter)] {
            if !filter.is_empty() && ldap3::parse_filter(filter).is_err() {
                fault(key, "must be a filter of RFC 4515, for example (objectClass=posixAccount)");
            }
        }
        let attributes = [
            ("username_attribute", &self.username_attribute, true),
            ("group_name_attribute", &self.group_name_attribute, true),
            ("id_attribute", &self.id_attribute, false),
            ("display_name_attribute", &self.display_name_attribute, false),
            ("mail_attribute", &self.mail_attribute, false),
            ("uid_number_attribute", &self.uid_number_attribute, false),
        ];
        let others = self.sign_in_attributes.iter().map(|attribute| ("sign_in_attributes", attribute, true));
        for (key, attribute, required) in attributes.into_iter().chain(others) {
            let plain = attribute.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b';' | b'.'));
            if !plain || (required && attribute.is_empty()) {
                fault(key, "must be the name of an attribute, with letters, digits, `-`, `.` or `;`");
            }
        }
        for (key, value) in [
            ("connect_timeout", self.connect_timeout),
            ("timeout", self.timeout),
            ("refresh", self.refresh),
            ("lockout_window", self.lockout_window),
        ] {
            if value < 1 {
                fault(key, "must be more than zero");
            }
        }
        if self.lockout_failures < 2 {
            fault("lockout_failures", "must be 2 or more");
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Settings {
        toml::from_str(
            "urls = 'ldap://a.example.org,ldaps://b.example.org'\nbind_dn = 'cn=portal'\nbind_password = 'x'
             user_base = 'ou=people'\nallow_groups = ['*']",
        )
        .expect("valid settings")
    }

    #[test]
    fn faults_name_their_key() {
        assert_eq!(good().validate(), Vec::<String>::new());
        assert_eq!((good().urls.len(), good().rules.allow_groups), (2, vec!["*".to_owned()]));
        let unknown = toml::from_str::<Settings>("urls = []\nalow_groups = []").unwrap_err().to_string();
        assert!(unknown.contains("alow_groups"), "{unknown}");
        let fault = |change: fn(&mut Settings)| {
            let mut settings = good();
            change(&mut settings);
            settings.validate().join("\n")
        };
        assert!(fault(|s| s.starttls = false).contains("auth.ldap.starttls: ldap://a.example.org"));
        assert_eq!(fault(|s| (s.starttls, s.insecure) = (false, true)), "");
        assert!(fault(|s| s.urls = vec!["http://x".to_owned()]).contains("auth.ldap.urls"));
        assert!(fault(|s| s.rules.allow_groups.clear()).contains("auth.ldap.allow_groups"));
        assert!(fault(|s| s.bind_password.clear()).contains("auth.ldap.bind_password_file"));
        assert!(fault(|s| s.user_filter = "(a".to_owned()).contains("auth.ldap.user_filter"));
        assert!(fault(|s| s.username_attribute = "uid)(x".to_owned()).contains("auth.ldap.username_attribute"));
        assert!(fault(|s| s.user_dn = "uid=x".to_owned()).contains("{username}"));
        let template = |s: &mut Settings| (s.user_dn, s.user_base) = ("uid={username}".to_owned(), String::new());
        assert!(fault(template).contains("auth.ldap.user_base"), "a refresh would find nobody");
        assert!(fault(|s| s.lockout_failures = 1).contains("auth.ldap.lockout_failures"));
    }

    #[test]
    fn the_password_is_not_shown() {
        let mut settings = good();
        settings.bind_password = "hunter2".to_owned();
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
