//! A name as somebody types it to sign in: read once, before anything is counted, written down
//! or asked. Spellings of one name are one name; what cannot be a name never gets further.

use super::{Error, Result};
use lyceum_model::{Username, line::is_misleading, user::canonical_name};

/// What anybody could type as a name, in bytes.
const MAX_LENGTH: usize = 256;

/// A name that somebody typed, and that could be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInName {
    /// Without space around it, in the case that it was typed in: some attributes of directories differ by case.
    pub written: String,
    /// The one spelling that everything is counted and kept by.
    pub canonical: String,
}

impl SignInName {
    /// Reads what was typed. Characters that nobody sees are refused, because a directory passes over them.
    pub fn parse(typed: &str) -> Result<Self> {
        let not_a_name = || Error::refused("the input cannot be a name");
        if typed.len() > MAX_LENGTH || typed.contains(char::is_control) {
            return Err(not_a_name());
        }
        let canonical = canonical_name(typed);
        let is_unusable = canonical.is_empty() || canonical.contains(is_misleading) || canonical.contains(is_invisible);
        if is_unusable {
            return Err(not_a_name());
        }
        Ok(Self { written: typed.trim().to_owned(), canonical })
    }

    /// The user of this name, where it is one that a user can have.
    pub fn username(&self) -> Result<Username> {
        Username::parse(&self.canonical).map_err(|bad| Error::refused(bad.to_string()))
    }
}

/// Characters without any width, which directories ignore when they compare (RFC 4518, 2.2).
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{1806}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffc}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_a_name() {
        let read = SignInName::parse("  Alice@Example.ORG ").expect("an address is a name");
        assert_eq!((read.written.as_str(), read.canonical.as_str()), ("Alice@Example.ORG", "alice@example.org"));
        assert!(read.username().is_err());
        assert_eq!(SignInName::parse("ＡLICE").and_then(|name| name.username()).expect("alice").as_str(), "alice");
        let invisible =
            ["alice\u{200b}", "al\u{ad}ice", "alice\u{feff}", "\u{2060}alice", "alice\u{fe0f}", "a\u{180e}b"];
        for typed in
            ["", " ", "\u{3000}", "alice\0", "ali\u{7}ce", "alice\n", "\talice", "\u{202e}ecila", &"x".repeat(257)]
                .into_iter()
                .chain(invisible)
        {
            assert!(SignInName::parse(typed).is_err(), "{typed:?}");
        }
    }
}
