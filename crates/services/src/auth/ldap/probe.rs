//! A directory tried step by step for `lyceum check`: the server's name, the connection and
//! its trust, the account that searches, people, groups. The first thing that fails is named
//! in words, with the setting that mends it; what stands behind it cannot be tried then.

use std::time::Duration;

use ldap3::{LdapError, Scope};

use super::{Error, chain, connection, connection::Connection, entry, filter, settings::Settings};
use lyceum_model::Timestamp;

/// One step: what it was about and how it went.
#[derive(Debug)]
pub struct Step {
    /// A server's address, or what was looked for.
    pub about: String,
    pub outcome: Result<String, ProbeFinding>,
    /// It works, and somebody should read it all the same.
    pub is_note: bool,
}

/// What is wrong, and the setting that mends it.
#[derive(Debug)]
pub struct ProbeFinding {
    pub what: String,
    pub fix: &'static str,
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
                    "IN CLEAR TEXT (insecure = true)"
                };
                steps.push(done(url, format!("responds {secured}")));
                good = good.or(Some(connection));
            }
            Err((what, fix)) => steps.push(failed(url, what, fix)),
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
        steps.push(done("people", "are looked up only when they sign in (no bind_dn)".to_owned()));
        return steps;
    }
    match connection.bind(&settings.bind_dn, &settings.bind_password).await {
        Ok(true) => steps.push(done(&settings.bind_dn, "can sign in to search".to_owned())),
        Ok(false) => {
            let what = "the directory rejected its password".to_owned();
            steps.push(failed(&settings.bind_dn, what, "check auth.ldap.bind_dn and auth.ldap.bind_password_file"));
            return steps;
        }
        Err(err) => {
            steps.push(failed(&settings.bind_dn, chain(&err), "check auth.ldap.timeout"));
            return steps;
        }
    }
    if !settings.user_base.is_empty() {
        steps.extend(people(&mut connection, settings, now).await);
    }
    steps.extend(groups(&mut connection, settings).await);
    steps.extend(limit_of_answers(&mut connection, settings).await);
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
            return Err((
                format!("the host name {host} is not found: {err}"),
                "check auth.ldap.urls, and this machine's DNS",
            ));
        }
        Err(_) => {
            return Err((
                format!("the name service does not respond to the query for {host}"),
                "check this machine's DNS",
            ));
        }
    }
    Connection::open(settings, &trust, url).await.map_err(|err| explain(&err))
}

/// What a connection that failed means.
fn explain(err: &Error) -> (String, &'static str) {
    let text = chain(err);
    let Error::Connect { source, .. } = err else { return (text, "auth.ldap.urls") };
    let lower = text.to_lowercase();
    let fix = if ["unknownissuer", "unknown issuer", "badsignature"].iter().any(|word| lower.contains(word)) {
        "set auth.ldap.ca_file to the authority that signed the server's certificate"
    } else if lower.contains("expired") {
        "ask the server's administrator to renew its certificate"
    } else if lower.contains("not valid for name") || lower.contains("notvalidforname") {
        "use the name of the server's certificate in auth.ldap.urls"
    } else if matches!(**source, LdapError::LdapResult { .. }) {
        "the server does not offer StartTLS: use an ldaps:// address, or switch auth.ldap.starttls off"
    } else if matches!(**source, LdapError::Timeout { .. }) {
        "the server sends nothing: check auth.ldap.urls and firewalls (ldaps:// on the port of ldap:// has the same \
         effect)"
    } else {
        "check auth.ldap.urls and firewalls"
    };
    (text, fix)
}

async fn people(connection: &mut Connection, settings: &Settings, now: Timestamp) -> Vec<Step> {
    let about = &settings.user_base;
    let filter = format!("(&({}=*){})", settings.username_attribute, settings.user_filter);
    let answer = match connection.search(about, Scope::Subtree, &filter, &entry::attributes(settings)).await {
        Err(Error::TooMuch(most)) => return vec![done(about, format!("more than {most} users are found"))],
        Err(err) => return vec![failed(about, chain(&err), "auth.ldap.user_base")],
        Ok(answer) => answer,
    };
    let found = answer.entries;
    if found.is_empty() {
        return vec![failed(
            about,
            format!("no entry below it matches {filter}, or `{}` may not see them", settings.bind_dn),
            "check auth.ldap.user_base, auth.ldap.user_filter and auth.ldap.username_attribute",
        )];
    }
    let (mut good, mut by_name, mut otherwise) = (Vec::new(), Vec::new(), Vec::new());
    for one in &found {
        match (entry::read(one, settings, now), entry::bad_name(one, settings)) {
            (_, Some(why)) => by_name.push(why),
            (Err(why), None) => otherwise.push(why),
            (Ok(read), None) => good.push(read.name),
        }
    }
    let Some(example) = good.first() else {
        let why = by_name.iter().chain(&otherwise).next().map_or("", String::as_str);
        return vec![failed(
            about,
            format!("entries are found, but none of these users could sign in: {why}"),
            "check auth.ldap.username_attribute, auth.ldap.uid_number_attribute and auth.ldap.id_attribute",
        )];
    };
    // Some entries may well be nobody; if all are, a setting is wrong.
    let mut steps = vec![done(about, format!("users are found, for example {example}"))];
    for (which, why) in [("because of their name", by_name), ("for another reason", otherwise)] {
        if let Some(first) = why.first() {
            let what = format!("{} of {} entries cannot sign in {which}, for example {first}", why.len(), found.len());
            steps.push(Step { is_note: true, ..done(about, what) });
        }
    }
    steps.extend((!answer.is_complete).then(|| limited(about, found.len())));
    steps
}

/// Whether the directory lists all groups in one answer: somebody could be in all of them.
async fn limit_of_answers(connection: &mut Connection, settings: &Settings) -> Option<Step> {
    let about = &settings.group_base;
    if about.is_empty() {
        return None;
    }
    match connection.search(about, Scope::Subtree, &filter::all_groups(settings), &["1.1"]).await {
        Ok(answer) if answer.is_complete => None,
        Ok(answer) => Some(limited(about, answer.entries.len())),
        Err(Error::TooMuch(_)) => None,
        Err(err) => {
            Some(Step { outcome: Err(warning(chain(&err), "auth.ldap.group_base")), ..done(about, String::new()) })
        }
    }
}

/// The directory gives no more than so many entries.
fn limited(about: &str, entries: usize) -> Step {
    let what = format!(
        "{}: it returns {entries} entries and has more. Users in more groups than that require several requests",
        connection::in_words(connection::SIZE_LIMIT_EXCEEDED)
    );
    let fix = "raise the size limit of auth.ldap.bind_dn in the directory (OpenLDAP: `limits dn.exact=\"…\" \
               size=unlimited`)";
    Step { outcome: Err(warning(what, fix)), ..done(about, String::new()) }
}

fn warning(what: String, fix: &'static str) -> ProbeFinding {
    ProbeFinding { what, fix, fatal: false }
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
                let what = format!("no group with this name is below {}", settings.group_base);
                Step { outcome: Err(warning(what, setting)), ..done(name, String::new()) }
            }
            Ok(_) => done(name, format!("is a group ({setting})")),
        });
    }
    steps
}

fn done(about: &str, what: String) -> Step {
    Step { about: about.to_owned(), outcome: Ok(what), is_note: false }
}

fn failed(about: &str, what: String, fix: &'static str) -> Step {
    Step { about: about.to_owned(), outcome: Err(ProbeFinding { what, fix, fatal: true }), is_note: false }
}
