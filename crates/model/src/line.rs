//! One line of plain text that people read on other people's pages: what it may hold, and
//! which parts of it are addresses of the web. How a part is drawn is the page's business.

use super::FieldError;

/// The line without space around it, or what is wrong with it; `most` is in characters.
///
/// What [misleads](is_misleading) is refused: with it a text can show what it does not say.
pub fn parse(field: &str, text: &str, most: usize) -> Result<String, FieldError> {
    let text = text.trim();
    if most < text.chars().count() {
        return Err(FieldError::new(field, "too_long", format!("Enter at most {most} characters.")));
    }
    if text.contains(is_misleading) {
        let message = "Enter one line without control characters, invisible characters or changes of the text \
                       direction.";
        return Err(FieldError::new(field, "characters", message));
    }
    Ok(text.to_owned())
}

/// Whether this can name something in requests and addresses: `most` bytes at most of `a` to `z`, digits, `_`, `.` and `-`,
/// beginning with a letter or digit.
pub fn is_short_name(name: &str, most: usize) -> bool {
    name.len() <= most
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'))
}

/// Breaks of lines, control characters, what turns the direction of writing, and what cannot be
/// seen. The two joiners that some scripts are not written without are none of these.
pub fn is_misleading(c: char) -> bool {
    let breaks_or_turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || breaks_or_turns || invisible
}

/// The text as one plain line of at most so many characters. Where it has more, its middle goes:
/// what was being done stands first, and why it failed last.
pub fn abridged(text: &str, most: usize) -> String {
    let plain: String = text.chars().map(|c| if is_misleading(c) { ' ' } else { c }).collect();
    let plain = plain.trim();
    let length = plain.chars().count();
    if length <= most {
        return plain.to_owned();
    }
    let head = most / 3;
    let tail = most.saturating_sub(head + GAP.chars().count());
    let end: String = plain.chars().skip(length - tail).collect();
    plain.chars().take(head).chain(GAP.chars()).collect::<String>() + &end
}

const GAP: &str = " … ";

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Words(&'a str),
    /// An address of `http` or `https`, and of nothing else.
    Address(&'a str),
}

/// The line in parts, in order; together they are the line.
pub fn parts(line: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(start) = next_address(line, at) {
        let end = end_of_address(line, start);
        // A bare `https://` is no address.
        if line[start..end].split_once("://").is_some_and(|(_, rest)| rest.starts_with(char::is_alphanumeric)) {
            parts.extend((from < start).then(|| Part::Words(&line[from..start])));
            parts.push(Part::Address(&line[start..end]));
            from = end;
        }
        at = end.max(start + 1);
    }
    parts.extend((from < line.len()).then(|| Part::Words(&line[from..])));
    parts
}

/// Where the next address begins, at the start of a word.
fn next_address(line: &str, at: usize) -> Option<usize> {
    let found = ["http://", "https://"].iter().flat_map(|scheme| line[at..].match_indices(scheme));
    let starts_word = |start: &usize| !line[..*start].ends_with(char::is_alphanumeric);
    found.map(|(start, _)| at + start).filter(starts_word).min()
}

/// An address ends at space, quotes and angle brackets; a full stop or a bracket behind it is the sentence's.
fn end_of_address(line: &str, start: usize) -> usize {
    let rest = &line[start..];
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>' | '‘' | '’' | '“' | '”'));
    let address =
        rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '\'', '…']);
    start + address.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines() {
        assert_eq!(parse("text", "  Disks are full. Ärger! 磁盘 ", 40).unwrap(), "Disks are full. Ärger! 磁盘");
        assert_eq!(parse("text", "   ", 5).unwrap(), "");
        let code = |text: &str| parse("text", text, 5).unwrap_err().code;
        assert_eq!(code("123456"), "too_long");
        for text in [
            "a\nb",
            "a\0",
            "\u{1b}[1m",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{2028}b",
            "a\u{200f}b",
            "a\u{85}b",
            "a\u{200b}b",
            "\u{feff}a",
            "a\u{ad}b",
            "a\u{e0041}",
        ] {
            assert_eq!(code(text), "characters", "{text:?}");
        }
    }

    #[test]
    fn a_reason_keeps_its_end() {
        assert_eq!(abridged(" one\ntwo\u{202e} ", 40), "one two");
        let long = format!("sbatch: {} Invalid account", "x".repeat(500));
        let shown = abridged(&long, 100);
        assert!(shown.starts_with("sbatch: ") && shown.ends_with("x Invalid account"), "{shown}");
        assert_eq!(shown.chars().count(), 100);
        assert_eq!(abridged(&"é".repeat(99), 30).chars().count(), 30);
    }

    #[test]
    fn addresses_become_links_and_nothing_else_does() {
        use Part::{Address, Words};
        let table: &[(&str, &[Part<'_>])] = &[
            ("no link", &[Words("no link")]),
            ("see https://a.example/x?y=1#z.", &[Words("see "), Address("https://a.example/x?y=1#z"), Words(".")]),
            ("(http://a.example)", &[Words("("), Address("http://a.example"), Words(")")]),
            ("https://a https://b", &[Address("https://a"), Words(" "), Address("https://b")]),
            ("javascript:alert(1)//http", &[Words("javascript:alert(1)//http")]),
            ("xhttps://a.example", &[Words("xhttps://a.example")]),
            ("https:// alone", &[Words("https:// alone")]),
            ("https://\" onclick=", &[Words("https://\" onclick=")]),
            ("data:text/html,https://", &[Words("data:text/html,https://")]),
            ("ftp://a file:///etc", &[Words("ftp://a file:///etc")]),
        ];
        for (line, wanted) in table {
            assert_eq!(parts(line), *wanted, "{line}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_whole_line(line in "(.|https://|http://| ){0,40}") {
            let parts = parts(&line);
            let text: String = parts.iter().map(|part| match part { Part::Words(words) | Part::Address(words) => *words }).collect();
            prop_assert_eq!(&text, &line);
            for part in parts {
                if let Part::Address(address) = part {
                    prop_assert!(address.starts_with("http://") || address.starts_with("https://"));
                    prop_assert!(!address.contains(char::is_whitespace));
                }
            }
        }
    }
}
