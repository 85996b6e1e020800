//! Search filters and names as text, with every value escaped as RFC 4515 and RFC 4514 ask:
//! what somebody typed can never become a part of the question.

use ldap3::{dn_escape, ldap_escape};

use super::settings::{Nested, Settings};

/// Active Directory's rule that follows groups in groups (`LDAP_MATCHING_RULE_IN_CHAIN`).
const IN_CHAIN: &str = "1.2.840.113556.1.4.1941";

/// Whoever has this name, or another that people may sign in with: that one in the case that was
/// typed, which some attributes keep.
pub fn person(settings: &Settings, name: &str, written: &str) -> String {
    let (name, written) = (ldap_escape(name), ldap_escape(written));
    let others = settings.sign_in_attributes.iter().map(|attribute| format!("({attribute}={written})"));
    let ways = [format!("({}={name})", settings.username_attribute)].into_iter().chain(others);
    either(ways.collect(), &settings.user_filter)
}

/// Whoever has this id.
pub fn person_of_id(settings: &Settings, attribute: &str, value: &[u8]) -> String {
    let value = if value.is_ascii() {
        ldap_escape(String::from_utf8_lossy(value).into_owned()).into_owned()
    } else {
        bytes(value)
    };
    either(vec![format!("({attribute}={value})")], &settings.user_filter)
}

/// The groups that list a person as a member, in any of the usual ways.
pub fn groups_of_person(settings: &Settings, dn: &str, username: &str, gid_number: Option<&str>) -> String {
    let (dn, username) = (ldap_escape(dn), ldap_escape(username));
    if settings.nested == Nested::InChain {
        return either(vec![format!("(member:{IN_CHAIN}:={dn})")], &settings.group_filter);
    }
    let mut ways = vec![format!("(member={dn})"), format!("(uniqueMember={dn})"), format!("(memberUid={username})")];
    // One's primary group need not list one.
    let primary = |number: &str| format!("(&(objectClass=posixGroup)(gidNumber={}))", ldap_escape(number));
    ways.extend(gid_number.map(primary));
    either(ways, &settings.group_filter)
}

/// The groups that have one of these groups as a member.
pub fn groups_of_groups<'a>(settings: &Settings, dns: impl Iterator<Item = &'a str>) -> String {
    let ways = |dn: &'a str| {
        let dn = ldap_escape(dn);
        [format!("(member={dn})"), format!("(uniqueMember={dn})")]
    };
    either(dns.flat_map(ways).collect(), &settings.group_filter)
}

/// Those of what a filter finds that have none of these names, or only those that have one.
pub fn by_names(filter: &str, attribute: &str, names: &[String], is_one: bool) -> String {
    let each = names.iter().map(|name| format!("({attribute}={})", ldap_escape(name.as_str())));
    let one_of = each.collect::<Vec<_>>().concat();
    if is_one { format!("(&{filter}(|{one_of}))") } else { format!("(&{filter}(!(|{one_of})))") }
}

/// Every group, however it lists its members.
pub fn all_groups(settings: &Settings) -> String {
    let ways = ["(member=*)", "(uniqueMember=*)", "(memberUid=*)", "(objectClass=posixGroup)"];
    either(ways.map(str::to_owned).to_vec(), &settings.group_filter)
}

/// A person's DN by the template.
pub fn person_dn(settings: &Settings, typed: &str) -> String {
    settings.user_dn.replace("{username}", &dn_escape(typed))
}

/// A DN as two spellings of it compare: without the spaces around its parts, in small letters.
pub fn normalise(dn: &str) -> String {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for letter in dn.chars() {
        match letter {
            ',' if !escaped => parts.push(String::new()),
            _ => parts.last_mut().expect("it begins with one part").extend(letter.to_lowercase()),
        }
        escaped = letter == '\\' && !escaped;
    }
    let tidy = |part: &String| match part.split_once('=') {
        Some((attribute, value)) => format!("{}={}", attribute.trim(), value.trim()),
        None => part.trim().to_owned(),
    };
    parts.iter().map(tidy).collect::<Vec<_>>().join(",")
}

/// The value of a DN's first part: `cn=gpu users,ou=groups` is `gpu users`.
pub fn first_value(dn: &str) -> Option<String> {
    let (_, rest) = dn.split_once('=')?;
    let mut value = String::new();
    let mut letters = rest.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' | '+' => break,
            '\\' => value.extend(letters.next()),
            _ => value.push(letter),
        }
    }
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// One of the conditions, and the further one where there is one.
fn either(conditions: Vec<String>, further: &str) -> String {
    let condition = match <[String; 1]>::try_from(conditions) {
        Ok([one]) => one,
        Err(many) => format!("(|{})", many.concat()),
    };
    if further.is_empty() { condition } else { format!("(&{condition}{further})") }
}

fn bytes(value: &[u8]) -> String {
    value.iter().map(|byte| format!("\\{byte:02x}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `ldap_injection_corpus`: what is typed stays one value.
    #[test]
    fn what_is_typed_stays_a_value() {
        let settings = Settings { sign_in_attributes: vec!["mail".to_owned()], ..Settings::default() };
        let evil = [
            ("*)(uid=*", "\\2a\\29\\28uid=\\2a"),
            ("a)(|(uid=*", "a\\29\\28|\\28uid=\\2a"),
            ("\\00", "\\5c00"),
            ("\0", "\\00"),
            ("x,ou=y", "x,ou=y"),
        ];
        for (typed, escaped) in evil {
            assert_eq!(person(&settings, typed, typed), format!("(|(uid={escaped})(mail={escaped}))"));
            assert!(ldap3::parse_filter(person(&settings, typed, typed)).is_ok());
        }
    }

    proptest! {
        /// `ldap_injection_corpus`, at length: any text gives a filter of the same shape.
        #[test]
        fn any_text_is_one_value(typed in "\\PC*") {
            let filter = person(&Settings::default(), &typed, &typed);
            prop_assert!(ldap3::parse_filter(&filter).is_ok(), "{filter}");
            prop_assert_eq!(filter.matches('(').count(), 1);
            prop_assert_eq!(filter.matches('*').count(), 0);
            let groups = groups_of_person(&Settings::default(), &typed, &typed, Some(&typed));
            prop_assert!(ldap3::parse_filter(&groups).is_ok(), "{groups}");
            prop_assert_eq!(groups.matches('(').count(), 7);
        }

        /// A name in a DN stays within its part.
        #[test]
        fn any_name_is_one_part(typed in "[^\\x00]{1,40}") {
            let settings = Settings { user_dn: "uid={username},ou=people".to_owned(), ..Settings::default() };
            let dn = normalise(&person_dn(&settings, &typed));
            prop_assert!(dn.ends_with(",ou=people"));
            let mut parts = 0;
            let mut escaped = false;
            for letter in dn.chars() {
                parts += usize::from(letter == ',' && !escaped);
                escaped = letter == '\\' && !escaped;
            }
            prop_assert_eq!(parts, 1, "{}", dn);
        }
    }

    #[test]
    fn names_compare() {
        assert_eq!(normalise("CN = Admins , OU=Groups,DC=example"), "cn=admins,ou=groups,dc=example");
        assert_eq!(normalise("cn=a\\,b,ou=x"), "cn=a\\,b,ou=x");
        assert_eq!(first_value("cn=gpu users,ou=groups").as_deref(), Some("gpu users"));
        assert_eq!(first_value("cn=R\\,D,ou=groups").as_deref(), Some("R,D"));
        assert_eq!(first_value("nonsense"), None);
    }

    #[test]
    fn ids_are_asked_for_as_they_lie() {
        let settings = Settings { user_filter: "(objectClass=person)".to_owned(), ..Settings::default() };
        assert_eq!(person_of_id(&settings, "entryUUID", b"a-1"), "(&(entryUUID=a-1)(objectClass=person))");
        assert_eq!(person_of_id(&Settings::default(), "objectGUID", &[1, 255]), "(objectGUID=\\01\\ff)");
    }
}
