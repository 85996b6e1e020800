//! Text with numbered lines: decoded as UTF-8, without what a terminal would obey and without what shows other than it
//! says, and only so much of it.

use std::str;

use crate::{model::line::is_misleading, web::views::TextPreview};

/// The most lines, and characters of a line, that are shown.
const MAX_LINES: usize = 5000;
const MAX_LINE: usize = 2000;

/// The text of these bytes; `None` where they are none. A part may end in the midst of a character.
pub fn decoded(bytes: &[u8], is_whole: bool) -> Option<String> {
    if bytes.contains(&0) {
        return None;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match str::from_utf8(bytes) {
        Ok(text) => Some(text.to_owned()),
        Err(error) if !is_whole && error.error_len().is_none() => {
            str::from_utf8(&bytes[..error.valid_up_to()]).ok().map(str::to_owned)
        }
        // Latin-1 and its like: mostly text all the same.
        Err(_) => {
            let text = String::from_utf8_lossy(bytes);
            let odd = text.chars().filter(|c| *c == '\u{fffd}').count();
            (odd * 10 < text.chars().count()).then(|| text.into_owned())
        }
    }
}

pub fn lines(text: &str, is_whole: bool) -> TextPreview {
    let mut is_cut = !is_whole;
    let mut all = text.lines();
    let lines = all
        .by_ref()
        .take(MAX_LINES)
        .map(|line| {
            is_cut |= line.len() > MAX_LINE && line.chars().count() > MAX_LINE;
            line.chars().take(MAX_LINE).map(harmless).collect()
        })
        .collect();
    is_cut |= all.next().is_some();
    TextPreview { lines, is_cut }
}

pub fn harmless(c: char) -> char {
    if c != '\t' && is_misleading(c) { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text() {
        assert_eq!(decoded("ä".as_bytes(), true).as_deref(), Some("ä"));
        assert_eq!(decoded(&"aä".as_bytes()[..2], false).as_deref(), Some("a"), "cut within a character");
        assert!(decoded(b"gr\xfc\xdfe aus der Kueche, und so weiter", true).is_some());
        assert_eq!(decoded(b"\x80\x81", true), None);
        assert_eq!(decoded(b"\xef\xbb\xbfa", true).as_deref(), Some("a"));
    }

    #[test]
    fn lines_are_bounded_and_harmless() {
        let shown = lines("a\tb\u{1b}[31m\u{202e}x\n\nc", true);
        assert_eq!((&*shown.lines.join("|"), shown.is_cut), ("a\tb\u{fffd}[31m\u{fffd}x||c", false));
        assert!(lines(&"x\n".repeat(MAX_LINES + 1), true).is_cut);
        let long = lines(&"ä".repeat(MAX_LINE + 1), true);
        assert_eq!((long.lines[0].chars().count(), long.is_cut), (MAX_LINE, true));
    }
}
