//! The chunked coding of an app's answer (RFC 9112, 7.1), taken apart as it comes. Extensions
//! and trailers are dropped: nobody asked for them. Pure.

use bytes::{Buf, Bytes, BytesMut};

/// The longest line of a chunk's size or of a trailer, and all trailers together, in bytes.
const MAX_LINE: usize = 4 * 1024;
const MAX_TRAILERS: usize = 16 * 1024;

/// Where in the coding one is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Chunks {
    #[default]
    Size,
    Data(u64),
    /// The line's end behind a chunk's data.
    DataEnd,
    /// Behind the last chunk; so many bytes of trailers were dropped.
    Trailers(usize),
}

/// What came next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Data(Bytes),
    End,
    /// More must be read first.
    More,
}

#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

impl Chunks {
    /// Takes what it can from `read`. To be called until it wants more or ends.
    pub(super) fn next(&mut self, read: &mut BytesMut) -> Result<Next, Malformed> {
        loop {
            match self {
                Self::Data(left) => {
                    if read.is_empty() {
                        return Ok(Next::More);
                    }
                    let taken = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Self::DataEnd;
                    }
                    return Ok(Next::Data(read.split_to(taken).freeze()));
                }
                Self::DataEnd => match read.get(..2) {
                    None => return Ok(Next::More),
                    Some(b"\r\n") => {
                        read.advance(2);
                        *self = Self::Size;
                    }
                    Some(_) => return Err(Malformed),
                },
                Self::Size => {
                    let Some(line) = line(read)? else { return Ok(Next::More) };
                    *self = match size(&line)? {
                        0 => Self::Trailers(0),
                        size => Self::Data(size),
                    };
                }
                Self::Trailers(dropped) => {
                    let Some(line) = line(read)? else { return Ok(Next::More) };
                    if line.is_empty() {
                        return Ok(Next::End);
                    }
                    *dropped += line.len();
                    if *dropped > MAX_TRAILERS {
                        return Err(Malformed);
                    }
                }
            }
        }
    }
}

/// A line without its end, once it is complete.
fn line(read: &mut BytesMut) -> Result<Option<BytesMut>, Malformed> {
    let Some(end) = read.iter().position(|byte| *byte == b'\n') else {
        return if read.len() < MAX_LINE { Ok(None) } else { Err(Malformed) };
    };
    let mut line = read.split_to(end + 1);
    if end > MAX_LINE || !line.ends_with(b"\r\n") {
        return Err(Malformed);
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

/// A chunk's size in hexadecimal, before any extension.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let plain = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| plain);
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads `text` in pieces of so many bytes: the data, whether it ended, and what is left.
    fn read(text: &[u8], size: usize) -> Result<(Vec<u8>, bool, usize), Malformed> {
        let (mut chunks, mut buffer, mut data) = (Chunks::default(), BytesMut::new(), Vec::new());
        for piece in text.chunks(size) {
            buffer.extend_from_slice(piece);
            loop {
                match chunks.next(&mut buffer)? {
                    Next::Data(bytes) => data.extend_from_slice(&bytes),
                    Next::More => break,
                    Next::End => return Ok((data, true, buffer.len())),
                }
            }
        }
        Ok((data, false, buffer.len()))
    }

    #[test]
    fn chunks_are_joined_however_they_come() {
        let text = b"5\r\nhello\r\n00B;name=\"x\"\r\n, and more.\r\n0\r\nTrailer: x\r\n\r\n";
        for size in 1..=text.len() {
            assert_eq!(read(text, size), Ok((b"hello, and more.".to_vec(), true, 0)), "in pieces of {size}");
        }
        assert_eq!(read(b"3\r\nabc\r\n0\r\n\r\nHTTP", 100), Ok((b"abc".to_vec(), true, 4)), "what follows stays");
        assert_eq!(read(b"3\r\nab", 100), Ok((b"ab".to_vec(), false, 0)), "an end is never guessed");
    }

    #[test]
    fn what_two_readers_could_take_differently_is_refused() {
        let long = format!("1;{}\r\na\r\n", "x".repeat(MAX_LINE));
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(MAX_TRAILERS));
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\na",
            "+1\r\na",
            "0x1\r\na",
            " 1\r\na",
            "1\na\r\n",
            "1\r\nab\r\n",
            "1\r\na\n0\r\n",
            "11111111111111111\r\n",
            "1_0\r\n",
            "0\r\na\n\r\n",
            &long,
            &trailers,
        ] {
            for size in [text.len(), 1] {
                assert_eq!(read(text.as_bytes(), size), Err(Malformed), "{text:?}");
            }
        }
    }

    proptest! {
        /// Whatever comes, in whatever pieces, it means one thing, and no more data than bytes.
        #[test]
        fn any_bytes_mean_one_thing(
            text in "([0-9a-fA-F]{0,4}(;x=\"y\")?\r?\n|hello|\r\n|0\r\n|\r\n\r\n|[ \x00-\x7f]){0,16}",
            size in 1..40_usize,
        ) {
            let whole = read(text.as_bytes(), text.len().max(1));
            let pieces = read(text.as_bytes(), size);
            let meaning = |(data, ended, _)| (data, ended);
            if let Ok((data, true, _)) = &whole {
                prop_assert!(data.len() < text.len());
            }
            prop_assert_eq!(whole.map(meaning), pieces.map(meaning));
        }

        /// What is coded comes out again.
        #[test]
        fn what_is_coded_comes_out(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..12),
            rest in proptest::collection::vec(any::<u8>(), 0..20),
            size in 1..400_usize,
        ) {
            let mut coded = Vec::new();
            for part in &parts {
                coded.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                coded.extend_from_slice(part);
                coded.extend_from_slice(b"\r\n");
            }
            coded.extend_from_slice(b"0\r\n\r\n");
            coded.extend_from_slice(&rest);
            let (data, ended, _) = read(&coded, size).unwrap();
            prop_assert!(ended);
            prop_assert_eq!(data, parts.concat());
        }
    }
}
