//! Searching for parts of names whatever their case: SQLite folds ASCII alone and PostgreSQL as
//! its language says, so that names are folded here, beside the name as it is written, and what
//! somebody searches for in the same way.

use sqlx::query_scalar;
use unicode_normalization::UnicodeNormalization;

use super::{Db, Result};
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

/// Whose names are searched, as the columns of `name_parts` are called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    User,
    Job,
}

impl Named {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Job => "job",
        }
    }
}

/// An index of parts knows no shorter ones (letters).
const MIN_PART: usize = 3;

/// Rows that contain a part are looked up by the index of parts if they are so few. Of more, a list soon meets some in
/// its own order.
const FEW: i64 = 1_000;

/// The condition that SQLite's index of parts has a row, by the expression of which `place` is the parameter; empty where
/// that is not asked.
pub(super) fn by_parts(column: &str, named: Named, place: &str, is_few: bool) -> String {
    let kind = named.as_str();
    if !is_few {
        return format!("AND {place} = ''");
    }
    format!(
        "AND {column} IN (SELECT id FROM name_numbers WHERE kind = '{kind}'
             AND number IN (SELECT rowid FROM name_parts WHERE name_parts MATCH {place}))"
    )
}

const COUNT: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM name_parts WHERE name_parts MATCH $1 LIMIT $2)";

impl Db {
    /// The expression that finds the few names with a part in SQLite's index; empty where they are many, and where the
    /// index cannot tell.
    pub(super) async fn few_with_part(&self, named: Named, find: &str) -> Result<String> {
        let Self::Sqlite { read, .. } = self else { return Ok(String::new()) };
        let find = fold(&find.replace('\0', "\u{fffd}"));
        if find.chars().count() < MIN_PART {
            return Ok(String::new());
        }
        let column = named.as_str();
        let expression = format!("{column} : \"{}\"", find.replace('"', "\"\""));
        let count: i64 = query_scalar(COUNT).bind(&expression).bind(FEW).fetch_one(read).await?;
        Ok(if count < FEW { expression } else { String::new() })
    }
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
