//! A directory tried step by step for `lyceum check`: the server's name, the connection and
//! its trust, the account that searches, people, groups. The first thing that fails is named
//! in words, with the setting that mends it; what stands behind it cannot be tried then.

use std::time::Duration;

use ldap3::{LdapError, Scope};

use super::{Error, chain, connection, connection::Connection, entry, filter, settings::Settings};
use crate::model::Timestamp;

/// One step: what it was about and how it went.
#[derive(Debug)]
pub struct Step {
    /// A server's address, or what was looked for.
    pub about: String,
    pub outcome: Result<String, Trouble>,
}

/// What is wrong, and the setting that mends it.
#[derive(Debug)]
pub struct Trouble {
    pub what: String,
    pub mend: &'static str,
    /// People cannot sign in at all.
    pub fatal: bool,
}

/// Tries everything.
pub async fn steps(settings: &Settings, now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut good = None;
    for url in &settings.urls {
        match reach(settings, url).await {
            Ok(connection) => {
                let secured = if url.starts_with("ldaps") {
                    "over TLS"
                } else if settings.starttls {
                    "with StartTLS"
                } else {
                    "IN CLEAR (insecure = true)"
                };
                steps.push(done(url, format!("answers {secured}")));
                good = good.or(Some(connection));
            }
            Err((what, mend)) => steps.push(failed(url, what, mend)),
        }
    }
    // One server of several is enough.
    let alive = good.is_some();
    for step in &mut steps {
        if let Err(trouble) = &mut step.outcome {
            trouble.fatal = !alive;
        }
    }
    let Some(mut connection) = good else { return steps };
    if !settings.can_search() {
        steps.push(done("people", "are looked up as they sign in; between sign-ins nobody is (no bind_dn)".to_owned()));
        return steps;
    }
    match connection.bind(&settings.bind_dn, &settings.bind_password).await {
        Ok(true) => steps.push(done(&settings.bind_dn, "may sign in to search".to_owned())),
        Ok(false) => {
            let what = "the directory refuses its password".to_owned();
            steps.push(failed(&settings.bind_dn, what, "auth.ldap.bind_dn and auth.ldap.bind_password_file"));
            return steps;
        }
        Err(err) => {
            steps.push(failed(&settings.bind_dn, chain(&err), "auth.ldap.timeout"));
            return steps;
        }
    }
    if !settings.user_base.is_empty() {
        steps.push(people(&mut connection, settings, now).await);
    }
    steps.extend(groups(&mut connection, settings).await);
    steps
}

async fn reach(settings: &Settings, url: &str) -> Result<Connection, (String, &'static str)> {
    let trust = connection::trust(settings).map_err(|err| (err.to_string(), "auth.ldap.ca_file"))?;
    let parsed = url::Url::parse(url).map_err(|err| (err.to_string(), "auth.ldap.urls"))?;
    let (host, port) = (parsed.host_str().unwrap_or_default(), parsed.port().unwrap_or(389));
    let patience = Duration::from_secs(settings.connect_timeout.unsigned_abs());
    match tokio::time::timeout(patience, tokio::net::lookup_host((host.trim_matches(['[', ']']), port))).await {
        Ok(Ok(_)) => {}
        Ok(Err(err)) => {
            return Err((format!("the name {host} is not found: {err}"), "auth.ldap.urls, or this machine's DNS"));
        }
        Err(_) => return Err((format!("the name service does not answer for {host}"), "this machine's DNS")),
    }
    Connection::open(settings, &trust, url).await.map_err(|err| explain(&err))
}

/// What a connection that failed means.
fn explain(err: &Error) -> (String, &'static str) {
    let text = chain(err);
    let Error::Connect { source, .. } = err else { return (text, "auth.ldap.urls") };
    let lower = text.to_lowercase();
    let mend = if ["unknownissuer", "unknown issuer", "badsignature"].iter().any(|word| lower.contains(word)) {
        "auth.ldap.ca_file names the authority that signed the server's certificate"
    } else if lower.contains("expired") {
        "the server's certificate; its administrator renews it"
    } else if lower.contains("not valid for name") || lower.contains("notvalidforname") {
        "auth.ldap.urls uses the name that the server's certificate has"
    } else if matches!(**source, LdapError::LdapResult { .. }) {
        "auth.ldap.starttls, or an ldaps:// address: this server does not offer StartTLS"
    } else if matches!(**source, LdapError::Timeout { .. }) {
        "auth.ldap.urls, or a firewall: the server says nothing (ldaps:// on the port of ldap:// looks like this too)"
    } else {
        "auth.ldap.urls, or a firewall"
    };
    (text, mend)
}

async fn people(connection: &mut Connection, settings: &Settings, now: Timestamp) -> Step {
    let about = &settings.user_base;
    let filter = format!("(&({}=*){})", settings.username_attribute, settings.user_filter);
    let wanted = entry::attributes(settings);
    match connection.some(&settings.user_base, Scope::Subtree, &filter, &wanted).await {
        Err(err) => failed(about, chain(&err), "auth.ldap.user_base"),
        Ok(found) if found.is_empty() => failed(
            about,
            format!("nobody with {filter} is below it, or `{}` may not see them", settings.bind_dn),
            "auth.ldap.user_base, auth.ldap.user_filter, auth.ldap.username_attribute",
        ),
        Ok(found) => match found.iter().map(|one| entry::read(one, settings, now)).collect::<Result<Vec<_>, _>>() {
            Ok(read) => done(about, format!("people are found, {} for instance", read[0].name)),
            // Some entries may well be nobody; if all are, a setting is wrong.
            Err(why) if found.iter().all(|one| entry::read(one, settings, now).is_err()) => failed(
                about,
                format!("entries are found, but nobody who could sign in: {why}"),
                "auth.ldap.username_attribute, auth.ldap.uid_number_attribute, auth.ldap.id_attribute",
            ),
            Err(why) => done(about, format!("people are found; not everybody could sign in: {why}")),
        },
    }
}

async fn groups(connection: &mut Connection, settings: &Settings) -> Vec<Step> {
    let mut steps = Vec::new();
    if settings.group_base.is_empty() {
        return steps;
    }
    let rules = &settings.rules;
    let named = [
        ("auth.ldap.admin_groups", &rules.admin_groups),
        ("auth.ldap.operator_groups", &rules.operator_groups),
        ("auth.ldap.allow_groups", &rules.allow_groups),
        ("auth.ldap.deny_groups", &rules.deny_groups),
    ];
    for (setting, name) in named.iter().flat_map(|(setting, names)| names.iter().map(move |name| (*setting, name))) {
        if name == "*" {
            continue;
        }
        let name_there = if name.contains('=') { filter::first_value(name).unwrap_or_default() } else { name.clone() };
        let filter = format!("({}={})", settings.group_name_attribute, ldap3::ldap_escape(name_there.as_str()));
        steps.push(match connection.some(&settings.group_base, Scope::Subtree, &filter, &["cn"]).await {
            Err(err) => failed(&settings.group_base, chain(&err), "auth.ldap.group_base"),
            Ok(found) if found.is_empty() => {
                let mut step = failed(name, format!("no group of this name is below {}", settings.group_base), setting);
                if let Err(trouble) = &mut step.outcome {
                    trouble.fatal = false;
                }
                step
            }
            Ok(_) => done(name, format!("is a group ({setting})")),
        });
    }
    steps
}

fn done(about: &str, what: String) -> Step {
    Step { about: about.to_owned(), outcome: Ok(what) }
}

fn failed(about: &str, what: String, mend: &'static str) -> Step {
    Step { about: about.to_owned(), outcome: Err(Trouble { what, mend, fatal: true }) }
}
