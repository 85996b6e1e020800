//! What an entry of the directory says of somebody, read without trust: a name that could be
//! an option, a path or a system account never becomes a person, nor does a uid below 1000.
//! Pure; nothing here asks the directory anything.

use ldap3::SearchEntry;

use super::{filter::first_value, settings::Settings};
use lyceum_model::{Timestamp, Username, line::is_misleading};

/// Attributes that directories keep an entry's own id in, best first.
const IDS: [&str; 4] = ["entryUUID", "objectGUID", "nsUniqueId", "ipaUniqueID"];
/// Attributes that tell that an account is closed.
const STANDING: [&str; 6] =
    ["userAccountControl", "accountExpires", "pwdAccountLockedTime", "nsAccountLock", "loginDisabled", "shadowExpire"];
/// Uids below this are the system's.
const FIRST_UID: u32 = 1000;
/// What is kept of a name for display, in characters.
const MAX_NAME_LENGTH: usize = 128;

/// Somebody as the directory describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub dn: String,
    /// `attribute=value`; the value in hexadecimal where it is no text.
    pub subject: String,
    pub name: Username,
    /// The name as the directory spells it, where that is another way: so the host may spell it too.
    pub unix_name: Option<String>,
    pub display_name: String,
    pub mail: Option<String>,
    pub uid_number: Option<u32>,
    pub gid_number: Option<String>,
    /// DNs of groups, as `memberOf` gives them.
    pub member_of: Vec<String>,
    /// Why the account is closed, where it is.
    pub closed: Option<&'static str>,
}

/// The attributes to ask for.
pub fn attributes(settings: &Settings) -> Vec<&str> {
    let own = [
        &settings.username_attribute,
        &settings.display_name_attribute,
        &settings.mail_attribute,
        &settings.uid_number_attribute,
        &settings.id_attribute,
    ];
    let own = own.into_iter().chain(&settings.sign_in_attributes).map(String::as_str).filter(|name| !name.is_empty());
    own.chain(IDS).chain(STANDING).chain(["cn", "gidNumber", "memberOf"]).collect()
}

/// Reads an entry; `Err` says in words why this is nobody who could sign in.
pub fn read(found: &SearchEntry, settings: &Settings, now: Timestamp) -> Result<Entry, String> {
    let spelled = own_name(found, settings)?;
    let name = name(found, spelled)?;
    let uid_number = match settings.uid_number_attribute.as_str() {
        "" => None,
        attribute => Some(uid(found, attribute)?),
    };
    let display_name =
        [&*settings.display_name_attribute, "cn"].into_iter().find_map(|attribute| text(found, attribute));
    Ok(Entry {
        dn: found.dn.clone(),
        subject: subject(found, settings)?,
        display_name: shown(display_name.unwrap_or_default()),
        mail: text(found, &settings.mail_attribute).map(shown).filter(|mail| !mail.is_empty()),
        uid_number,
        gid_number: text(found, "gidNumber").map(str::to_owned),
        member_of: all(found, "memberOf"),
        closed: closed(found, now),
        unix_name: (spelled != name.as_str()).then(|| spelled.to_owned()),
        name,
    })
}

/// The name of an entry as the directory spells it. Of several it is the one that the entry is
/// named by, or else the first.
pub fn own_name<'a>(found: &'a SearchEntry, settings: &Settings) -> Result<&'a str, String> {
    let attribute = settings.username_attribute.as_str();
    let names = values(&found.attrs, attribute).map(Vec::as_slice).unwrap_or_default();
    let by_dn = || {
        let own = first_value(&found.dn).filter(|_| {
            found.dn.split_once('=').is_some_and(|(named_by, _)| named_by.trim().eq_ignore_ascii_case(attribute))
        })?;
        names.iter().find(|name| name.eq_ignore_ascii_case(&own))
    };
    let name = if names.len() < 2 { None } else { by_dn() };
    name.or(names.first()).map(String::as_str).ok_or_else(|| format!("{} has no {attribute} that is text", found.dn))
}

/// Why nobody can sign in by the name of this entry, where that is so.
pub fn bad_name(found: &SearchEntry, settings: &Settings) -> Option<String> {
    own_name(found, settings).and_then(|spelled| name(found, spelled)).err()
}

fn name(found: &SearchEntry, spelled: &str) -> Result<Username, String> {
    Username::parse(&spelled.to_ascii_lowercase()).map_err(|err| format!("{spelled:?} of {}: {err}", found.dn))
}

/// The attribute and the bytes that a subject was made of.
pub fn id_of_subject(subject: &str) -> Option<(&str, Vec<u8>)> {
    let (attribute, value) = subject.split_once('=')?;
    match value.strip_prefix('#') {
        None => Some((attribute, value.as_bytes().to_vec())),
        Some(text) => Some((attribute, hex::decode(text).ok()?)),
    }
}

fn subject(found: &SearchEntry, settings: &Settings) -> Result<String, String> {
    let configured = Some(settings.id_attribute.as_str()).filter(|name| !name.is_empty());
    let known = IDS.into_iter().filter(|_| configured.is_none());
    for attribute in configured.into_iter().chain(known) {
        // objectGUID is 16 bytes that may happen to be text: always hexadecimal.
        if attribute.eq_ignore_ascii_case("objectGUID") {
            if let Some(bytes) = raw(found, attribute) {
                return Ok(format!("{attribute}=#{}", hex::encode(bytes)));
            }
        } else if attribute.eq_ignore_ascii_case(&settings.username_attribute) {
            return Ok(format!("{attribute}={}", own_name(found, settings)?));
        } else if let Some(value) = text(found, attribute).filter(|value| !value.starts_with('#')) {
            return Ok(format!("{attribute}={value}"));
        }
    }
    Err(format!(
        "{} has no permanent id (none of {}); set auth.ldap.id_attribute",
        found.dn,
        configured.map_or_else(|| IDS.join(", "), str::to_owned)
    ))
}

fn uid(found: &SearchEntry, attribute: &str) -> Result<u32, String> {
    let value = text(found, attribute).ok_or_else(|| format!("{} has no {attribute}", found.dn))?;
    match value.parse::<u32>() {
        Ok(uid) if (FIRST_UID..u32::MAX - 1).contains(&uid) && uid != 65_534 => Ok(uid),
        _ => Err(format!("{attribute} {value:?} of {} is not the uid of a user; those begin at {FIRST_UID}", found.dn)),
    }
}

/// Why an account is closed, where it is; whatever else is wrong with its entry.
pub fn closed(found: &SearchEntry, now: Timestamp) -> Option<&'static str> {
    let number = |attribute: &str| text(found, attribute).and_then(|value| value.parse::<i64>().ok());
    let is_true = |attribute: &str| text(found, attribute).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    // Bit 2 is ACCOUNTDISABLE.
    if number("userAccountControl").is_some_and(|flags| flags & 2 != 0) {
        return Some("disabled in the directory");
    }
    // Steps of 100 ns since 1601; 0 and the largest number are "never".
    let since_1601 = (now.0 / 1000 + 11_644_473_600) * 10_000_000;
    if number("accountExpires").is_some_and(|at| at != 0 && at != i64::MAX && at <= since_1601) {
        return Some("expired in the directory");
    }
    // Other values lock for a time that the directory itself keeps at each bind.
    if text(found, "pwdAccountLockedTime") == Some("000001010000Z")
        || is_true("nsAccountLock")
        || is_true("loginDisabled")
    {
        return Some("locked in the directory");
    }
    // Days since 1970; -1 and none are "never".
    if number("shadowExpire").is_some_and(|day| day >= 0 && day <= now.0 / 86_400_000) {
        return Some("expired in the directory");
    }
    None
}

/// Attributes' names are the same in any case.
fn values<'a, V>(of: &'a std::collections::HashMap<String, V>, attribute: &str) -> Option<&'a V> {
    of.iter().find(|(name, _)| name.eq_ignore_ascii_case(attribute)).map(|(_, values)| values)
}

/// All values that are text: one that is not must not hide the others.
fn all(found: &SearchEntry, attribute: &str) -> Vec<String> {
    let plain = values(&found.attrs, attribute).into_iter().flatten().cloned();
    let beside = values(&found.bin_attrs, attribute).into_iter().flatten();
    plain.chain(beside.filter_map(|value| String::from_utf8(value.clone()).ok())).collect()
}

/// The first value.
fn text<'a>(found: &'a SearchEntry, attribute: &str) -> Option<&'a str> {
    values(&found.attrs, attribute)?.first().map(String::as_str)
}

fn raw<'a>(found: &'a SearchEntry, attribute: &str) -> Option<&'a [u8]> {
    let binary = values(&found.bin_attrs, attribute).and_then(|values| values.first()).map(Vec::as_slice);
    binary.or_else(|| text(found, attribute).map(str::as_bytes))
}

/// Without what misleads, and not longer than pages can take.
fn shown(value: &str) -> String {
    value.chars().filter(|letter| !is_misleading(*letter)).take(MAX_NAME_LENGTH).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn entry(pairs: &[(&str, &str)]) -> SearchEntry {
        let mut attrs = std::collections::HashMap::<String, Vec<String>>::new();
        for (name, value) in pairs {
            attrs.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        SearchEntry { dn: "uid=x,ou=people".to_owned(), attrs, bin_attrs: std::collections::HashMap::new() }
    }

    const ALICE: [(&str, &str); 4] =
        [("uid", "alice"), ("uidNumber", "1001"), ("entryUUID", "5ac0"), ("cn", "Alice\nÅström")];

    fn alice_with(pairs: &[(&str, &str)]) -> Result<Entry, String> {
        read(&entry(&ALICE.iter().chain(pairs).copied().collect::<Vec<_>>()), &Settings::default(), NOW)
    }

    fn alice_but(name: &str, value: &str) -> Result<Entry, String> {
        let pairs: Vec<_> = ALICE.iter().map(|pair| if pair.0 == name { (name, value) } else { *pair }).collect();
        read(&entry(&pairs), &Settings::default(), NOW)
    }

    #[test]
    fn a_person() {
        let alice = alice_with(&[("MemberOf", "cn=a"), ("mail", "alice@example.org")]).expect("she is a person");
        assert_eq!((alice.name.as_str(), alice.display_name.as_str()), ("alice", "AliceÅström"));
        assert_eq!((alice.subject.as_str(), alice.uid_number, alice.closed), ("entryUUID=5ac0", Some(1001), None));
        assert_eq!((alice.member_of, alice.mail.as_deref()), (vec!["cn=a".to_owned()], Some("alice@example.org")));
        assert_eq!(alice_but("uid", "Alice").expect("names are the same in any case").name.as_str(), "alice");
    }

    #[test]
    fn nobody_that_could_sign_in() {
        for name in ["root", "-rf", "a/b", "../x", "а", "a b", "", &"x".repeat(40)] {
            assert!(alice_but("uid", name).is_err(), "{name:?}");
        }
        for uid in ["0", "999", "-1", "65534", "4294967295", "1e3", "", "1001 "] {
            assert!(alice_but("uidNumber", uid).is_err(), "{uid:?}");
        }
        assert!(read(&entry(&ALICE[..1]), &Settings::default(), NOW).is_err(), "no uidNumber");
        let without = Settings { uid_number_attribute: String::new(), ..Settings::default() };
        assert!(read(&entry(&ALICE[..1]), &without, NOW).unwrap_err().contains("id_attribute"));
        let by_name = Settings { id_attribute: "uid".to_owned(), ..without };
        assert_eq!(read(&entry(&ALICE[..1]), &by_name, NOW).expect("an id").subject, "uid=alice");
    }

    #[test]
    fn of_several_names_it_is_the_one_of_the_dn() {
        let named = |names: &[&str]| {
            let pairs: Vec<_> = names.iter().map(|name| ("UID", *name)).chain(ALICE[1..].iter().copied()).collect();
            read(&entry(&pairs), &Settings::default(), NOW).map(|one| one.name.to_string())
        };
        assert_eq!(named(&["alice", "X", "Not a name"]).as_deref(), Ok("x"));
        assert_eq!(named(&["alice", "bob"]).as_deref(), Ok("alice"), "none of them: the first");
        assert_eq!(alice_but("uid", "2130509g").expect("a digit may be first").unix_name, None);
        assert_eq!(alice_but("uid", "MixedCase").expect("capitals").unix_name.as_deref(), Some("MixedCase"));
    }

    #[test]
    fn a_value_that_is_not_text_hides_no_other() {
        let mut found = entry(&ALICE);
        found.bin_attrs.insert("memberOf".to_owned(), vec![b"cn=admins,ou=groups".to_vec(), vec![0xff, 0xfe]]);
        let alice = read(&found, &Settings::default(), NOW).expect("she is a person");
        assert_eq!(alice.member_of, ["cn=admins,ou=groups"]);
        found.attrs.remove("uid");
        found.bin_attrs.insert("uid".to_owned(), vec![b"alice".to_vec(), vec![0xff]]);
        assert!(bad_name(&found, &Settings::default()).is_some_and(|why| why.contains("text")));
    }

    #[test]
    fn accounts_that_are_closed() {
        for (attribute, value) in [
            ("userAccountControl", "514"),
            ("accountExpires", "116444736000000000"),
            ("pwdAccountLockedTime", "000001010000Z"),
            ("nsAccountLock", "TRUE"),
            ("loginDisabled", "true"),
            ("shadowExpire", "1"),
        ] {
            assert!(alice_with(&[(attribute, value)]).expect("a person").closed.is_some(), "{attribute}");
        }
        for (attribute, value) in [
            ("userAccountControl", "512"),
            ("accountExpires", "9223372036854775807"),
            ("accountExpires", "0"),
            ("nsAccountLock", "FALSE"),
            ("shadowExpire", "-1"),
            ("shadowExpire", "99999"),
        ] {
            assert_eq!(alice_with(&[(attribute, value)]).expect("a person").closed, None, "{attribute}");
        }
    }

    #[test]
    fn subjects_lead_back_to_ids() {
        let mut found = entry(&[("sAMAccountName", "Alice")]);
        found.bin_attrs.insert("objectGUID".to_owned(), vec![vec![0, 255, 16]]);
        let settings = Settings {
            username_attribute: "sAMAccountName".to_owned(),
            uid_number_attribute: String::new(),
            ..Settings::default()
        };
        let alice = read(&found, &settings, NOW).expect("she is a person");
        assert_eq!(alice.subject, "objectGUID=#00ff10");
        assert_eq!(id_of_subject(&alice.subject), Some(("objectGUID", vec![0, 255, 16])));
        assert_eq!(id_of_subject("entryUUID=5ac0"), Some(("entryUUID", b"5ac0".to_vec())));
        assert_eq!(id_of_subject("objectGUID=#zz"), None);
    }
}
