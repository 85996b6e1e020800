//! JSON as Python and others write it: NaN, Infinity and numbers that no double can hold become
//! `null` on their way to the reader, so that one of them costs one value. The document streams
//! through in pieces; nothing of it is kept.

use std::io::{self, Read};

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// A document without the numbers that JSON lacks.
pub struct Sane<R> {
    from: R,
    piece: Vec<u8>,
    out: Vec<u8>,
    at: usize,
    state: State,
    /// A word or number that has begun.
    word: Vec<u8>,
    ended: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Outside,
    Inside,
    Escaped,
}

impl<R: Read> Sane<R> {
    pub fn new(from: R) -> Self {
        let (out, word) = (Vec::with_capacity(2 * PIECE), Vec::new());
        Self { from, piece: vec![0; PIECE], out, at: 0, state: State::Outside, word, ended: false }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.out.clear();
        self.at = 0;
        while self.out.is_empty() && !self.ended {
            let length = match self.from.read(&mut self.piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if length == 0 {
                self.ended = true;
                self.end_word();
            }
            let piece = std::mem::take(&mut self.piece);
            self.pass(&piece[..length]);
            self.piece = piece;
        }
        Ok(())
    }

    fn pass(&mut self, mut rest: &[u8]) {
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                State::Inside => {
                    let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.out.extend_from_slice(&rest[..end]);
                    rest = &rest[end..];
                    if let Some((&byte, after)) = rest.split_first() {
                        self.state = if byte == b'"' { State::Outside } else { State::Escaped };
                        self.out.push(byte);
                        rest = after;
                    }
                    continue;
                }
                State::Escaped => {
                    self.out.push(byte);
                    self.state = State::Inside;
                }
                State::Outside if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.' | b'_') => {
                    // A word that does not end within the buffer cannot be repaired.
                    if self.word.len() > 400 {
                        let word = std::mem::take(&mut self.word);
                        self.out.extend_from_slice(&word);
                    }
                    self.word.push(byte);
                }
                State::Outside => {
                    self.end_word();
                    self.out.push(byte);
                    if byte == b'"' {
                        self.state = State::Inside;
                    }
                }
            }
            rest = after;
        }
    }

    fn end_word(&mut self) {
        let lower = |byte: &u8| byte.to_ascii_lowercase();
        let bare = match self.word.as_slice() {
            [b'-' | b'+', rest @ ..] => rest,
            whole => whole,
        };
        let is_missing = match bare.first().map(lower) {
            Some(b'n' | b'i') => {
                let word: Vec<u8> = bare.iter().map(lower).collect();
                matches!(word.as_slice(), b"nan" | b"infinity" | b"inf" | b"none")
            }
            Some(b'0'..=b'9') if bare.iter().any(|byte| matches!(byte, b'e' | b'E')) || bare.len() > 300 => {
                let number = std::str::from_utf8(bare).ok().and_then(|word| word.parse::<f64>().ok());
                number.is_some_and(f64::is_infinite)
            }
            _ => false,
        };
        self.out.extend_from_slice(if is_missing { b"null" } else { &self.word });
        self.word.clear();
    }
}

impl<R: Read> Read for Sane<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.out.len() {
            self.refill()?;
        }
        let length = (self.out.len() - self.at).min(to.len());
        to[..length].copy_from_slice(&self.out[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(self.1).min(to.len());
            to[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn sane(text: &str, step: usize) -> String {
        let mut out = String::new();
        Sane::new(Slow(text.as_bytes(), step)).read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn numbers_that_json_lacks_become_null() {
        let text =
            r#"{"a": NaN, "NaN": [-Infinity,Infinity, 1e999,-1E+400, 1e-7], "b": "say \"NaN\", Infinity", "c": nan}"#;
        let expected = r#"{"a": null, "NaN": [null,null, null,null, 1e-7], "b": "say \"NaN\", Infinity", "c": null}"#;
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(sane(text, step), expected, "{step} bytes at a time");
        }
        assert_eq!(sane("NaN", 2), "null");
    }

    proptest! {
        #[test]
        fn other_json_passes_unchanged(value in "\\PC{0,60}", number in any::<f64>().prop_filter("finite", |n| n.is_finite()), step in 1_usize..9) {
            let text = serde_json::json!({"a": [value, number, true, null, {"NaN": -3}]}).to_string();
            prop_assert_eq!(sane(&text, step), text);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1_usize..9) {
            io::copy(&mut Sane::new(Slow(&bytes, step)), &mut io::sink()).unwrap();
        }
    }
}
