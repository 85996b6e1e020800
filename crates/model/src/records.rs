//! Records of a table with commas (RFC 4180) that somebody else has written: however many fields a
//! record has and however long they are, only so much of it is held.

use std::borrow::Cow;

/// The longest field (bytes); a longer one ends the table.
const MAX_FIELD_LENGTH: usize = 8192;

/// What is still to be read of a table.
pub struct Records<'a> {
    rest: &'a [u8],
    most: usize,
}

/// The first fields of a record.
#[derive(Debug, Default)]
pub struct Record {
    fields: Vec<String>,
    width: usize,
}

impl Record {
    /// A field; empty where there is none.
    pub fn get(&self, at: usize) -> &str {
        self.fields.get(at).filter(|_| at < self.width).map_or("", String::as_str)
    }

    /// The fields that are held.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().take(self.width).map(String::as_str)
    }

    /// How many fields the record has, held or not.
    pub fn width(&self) -> usize {
        self.width
    }
}

impl<'a> Records<'a> {
    /// Holds at most so many fields of a record.
    pub fn new(table: &'a [u8], most: usize) -> Self {
        Self { rest: table.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(table), most }
    }

    /// Reads the next record, in the place of the one before. False at the end, and where the table
    /// goes on with something else than a record.
    pub fn next(&mut self, record: &mut Record) -> bool {
        record.width = 0;
        while let [b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return false;
        }
        loop {
            let field = self.field();
            let Some(text) = field.as_deref().and_then(|field| str::from_utf8(field).ok()) else {
                *self = Self { rest: &[], ..*self };
                record.width = 0;
                return false;
            };
            if record.width < self.most {
                match record.fields.get_mut(record.width) {
                    Some(place) => text.clone_into(place),
                    None => record.fields.push(text.to_owned()),
                }
            }
            record.width += 1;
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                _ => return true,
            }
        }
    }

    /// The next field; what ends it stays.
    fn field(&mut self) -> Option<Cow<'a, [u8]>> {
        let Some(quoted) = self.rest.strip_prefix(b"\"") else {
            let plain = self.plain();
            return (plain.len() <= MAX_FIELD_LENGTH).then_some(plain.into());
        };
        self.rest = quoted;
        let mut field = Vec::new();
        loop {
            let end = self.rest.iter().position(|byte| *byte == b'"').unwrap_or(self.rest.len());
            if field.len() + end > MAX_FIELD_LENGTH {
                return None;
            }
            field.extend_from_slice(&self.rest[..end]);
            match &self.rest[end..] {
                [b'"', b'"', rest @ ..] => {
                    field.push(b'"');
                    self.rest = rest;
                }
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    field.extend_from_slice(self.plain());
                    break;
                }
                _ => {
                    self.rest = &[];
                    break;
                }
            }
        }
        (field.len() <= MAX_FIELD_LENGTH).then_some(field.into())
    }

    fn plain(&mut self) -> &'a [u8] {
        let is_end = |byte: &u8| matches!(byte, b',' | b'\n' | b'\r');
        let (plain, rest) = self.rest.split_at(self.rest.iter().position(is_end).unwrap_or(self.rest.len()));
        self.rest = rest;
        plain
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(table: &str, most: usize) -> Vec<(Vec<String>, usize)> {
        let (mut records, mut record, mut found) =
            (Records::new(table.as_bytes(), most), Record::default(), Vec::new());
        while records.next(&mut record) {
            found.push((record.fields().map(str::to_owned).collect(), record.width()));
        }
        found
    }

    #[test]
    fn of_a_record_only_so_much_is_held() {
        assert_eq!(
            all("a,b,c\n1,\"2,\"\"x\"\"\n3\",4\r\n\n5\n", 2),
            [
                (vec!["a".to_owned(), "b".to_owned()], 3),
                (vec!["1".to_owned(), "2,\"x\"\n3".to_owned()], 3),
                (vec!["5".to_owned()], 1),
            ]
        );
        let wide = "\"\n\",".repeat(100_000);
        let (mut records, mut record) = (Records::new(wide.as_bytes(), 8), Record::default());
        assert!(records.next(&mut record) && record.fields.len() == 8 && record.width() == 100_001);
        for long in [format!("a\n{}\nb\n", "x".repeat(9000)), format!("a\n\"{}\nb\n", "x".repeat(9000))] {
            assert_eq!(all(&long, 8).len(), 1);
        }
        assert_eq!(all("\"open", 8), [(vec!["open".to_owned()], 1)]);
    }

    proptest! {
        /// The same as a reader that holds everything.
        #[test]
        fn records_are_read_as_others_read_them(table in "(\"|\"\"|,|\r\n|\n|a|é| ){0,24}") {
            let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(table.as_bytes());
            let expected: Vec<Vec<String>> =
                reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect();
            let found: Vec<Vec<String>> = all(&table, 99).into_iter().map(|(fields, _)| fields).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
