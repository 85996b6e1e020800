//! Searching for parts of names whatever their case: SQLite folds ASCII alone and PostgreSQL as
//! its language says, so that names are folded here, beside the name as it is written, and what
//! somebody searches for in the same way.

use unicode_normalization::UnicodeNormalization;

use lyceum_model::IdPart;

/// A text without its case: what reads the same in capitals becomes the same. `ß` is `ss` then,
/// and a letter with its accent is one, however it was typed.
pub(super) fn fold(text: &str) -> String {
    // By way of the capitals, where `ß` is two letters and `ς` is `Σ`; letter by letter,
    // because a word's last one must not differ from the same one inside.
    let capitals = text.nfkc().flat_map(char::to_lowercase).flat_map(char::to_uppercase);
    capitals.flat_map(char::to_lowercase).nfkc().collect()
}

/// Words of a person as a pattern that finds them anywhere in folded names, where `!` escapes;
/// empty for none.
pub(super) fn pattern(find: &str) -> String {
    if find.is_empty() {
        return String::new();
    }
    // PostgreSQL refuses NUL in any text, and nothing is called so.
    let find = fold(&find.replace('\0', "\u{fffd}"));
    let mut pattern = String::from("%");
    for letter in find.chars() {
        if matches!(letter, '!' | '%' | '_') {
            pattern.push('!');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}

/// The condition that an id begins or ends with a part; empty where none is asked for. A part
/// holds hexadecimal digits and hyphens alone, so it can stand in the text.
pub(super) fn id_is(column: &str, part: Option<&IdPart>) -> String {
    let Some(part) = part.map(IdPart::as_str) else { return String::new() };
    format!("AND ({column} LIKE '{part}%' OR {column} LIKE '%{part}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_no_difference() {
        for (one, other) in [
            ("Łukasz", "łUKASZ"),
            ("ÅSA", "åsa"),
            ("A\u{30a}sa", "Åsa"),
            ("straße", "STRASSE"),
            ("STRAẞE", "strasse"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("ЮЛИЯ", "юлия"),
            ("ﬁeld", "FIELD"),
            ("Ǆ", "ǆ"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
            assert_eq!(fold(&fold(one)), fold(one), "{one}: folded once is folded");
        }
        assert_ne!(fold("Łukasz"), fold("Lukasz"), "another letter is another name");
        assert_ne!(fold("Åsa"), fold("Asa"));
    }

    #[test]
    fn patterns() {
        for (find, expected) in [
            ("", ""),
            ("a%b_c!", "%a!%b!_c!!%"),
            // What folding makes of it is no wildcard either.
            ("\u{ff05}", "%!%%"),
            ("\0", "%\u{fffd}%"),
        ] {
            assert_eq!(pattern(find), expected, "{find:?}");
        }
    }
}
