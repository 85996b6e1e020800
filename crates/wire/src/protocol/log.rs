//! A workload's log in its file: what the agent writes, the schedulers open and the portal keeps. The file is
//! bounded, so its oldest bytes go; a place in the log is an *offset*, a count of all bytes that were ever written,
//! and outlasts that. Once bytes were dropped, the file's first line says how many; a file without such a line, as an
//! agent of an earlier version leaves it, begins at offset 0. The line is its user's, who can lie about their own log.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    sync::Arc,
};

/// The most that a log's file measures (bytes).
pub const MAX_LOG: u64 = 8 * 1024 * 1024;

/// The most that is read at once (bytes).
pub const MAX_PIECE: usize = 128 * 1024;

/// Longer than any first line that says what was dropped (bytes).
pub const MAX_HEADER: usize = 80;

const BEFORE: &str = "lyceum: the oldest ";
const BEHIND: &str = " bytes of this log were dropped\n";
/// Numbers of more digits are not exact in every program that reads them.
const MAX_DIGITS: usize = 15;

/// A log that was opened for reading. What it held then stays readable when the agent drops its oldest bytes.
#[derive(Clone, Debug)]
pub struct Log {
    file: Arc<File>,
    /// How much of the file comes before the oldest byte.
    header: u64,
    /// The offset of the oldest byte that is there.
    pub start: u64,
    /// The offset behind the youngest byte.
    pub end: u64,
    /// Which file this is: another one has another inode.
    pub inode: u64,
    /// There is no log yet, and this is what was said before: its offsets are not the log's.
    pub is_substitute: bool,
}

/// The first line of a log that has lost so many bytes.
pub fn header(dropped: u64) -> String {
    format!("{BEFORE}{dropped}{BEHIND}")
}

/// How long the first line is that says what was dropped, and what it says; zeros where there is none.
fn parse_header(head: &[u8]) -> (u64, u64) {
    let said = head.strip_prefix(BEFORE.as_bytes()).and_then(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let behind = rest[digits..].starts_with(BEHIND.as_bytes());
        let dropped = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        (behind && digits <= MAX_DIGITS).then_some(((BEFORE.len() + digits + BEHIND.len()) as u64, dropped))
    });
    said.unwrap_or_default()
}

/// How many bytes at the end are the beginning of a character whose rest is still to come.
pub fn cut_character(bytes: &[u8]) -> usize {
    for length in 1..=bytes.len().min(3) {
        let needed = match bytes[bytes.len() - length] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        return if length < needed { length } else { 0 };
    }
    0
}

/// Where the first whole line begins in text whose beginning is missing; without any line end, the first
/// whole character.
pub fn first_line(text: &[u8]) -> usize {
    let line = text.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
    line.unwrap_or_else(|| text.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count())
}

impl Log {
    /// Reads the head of an open file. A file that is longer than the agent lets it become shows its end alone.
    pub fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let mut head = [0; MAX_HEADER];
        let length = read_at(&file, &mut head, 0)?;
        let (header, dropped) = parse_header(&head[..length]);
        let body = metadata.len().saturating_sub(header);
        let hidden = body.saturating_sub(MAX_LOG);
        Ok(Self {
            file: Arc::new(file),
            header: header + hidden,
            start: dropped + hidden,
            end: dropped + body,
            inode: metadata.ino(),
            is_substitute: false,
        })
    }

    /// Of a file that is shown until there is a log.
    pub fn substitute(file: File) -> io::Result<Self> {
        Ok(Self { is_substitute: true, ..Self::new(file)? })
    }

    /// At most `most` bytes from an offset on, which is moved to the oldest byte where it is older than that.
    pub fn read(&self, from: u64, most: usize) -> io::Result<Vec<u8>> {
        let from = from.max(self.start);
        let there = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; there.min(most)];
        let length = read_at(&self.file, &mut bytes, from - self.start + self.header)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The last bytes, from a whole character on.
    pub fn tail(&self, bytes: u64) -> io::Result<Vec<u8>> {
        let from = self.end.saturating_sub(bytes).max(self.start);
        let mut tail = self.read(from, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        if self.start < from {
            let cut = tail.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count();
            tail.drain(..cut);
        }
        Ok(tail)
    }

    /// The offset at which the last `count` lines begin. A line ends with `\n`: a progress bar is one.
    pub fn last_lines(&self, count: usize) -> io::Result<u64> {
        let (mut lines, mut end) = (0, self.end);
        while self.start < end {
            let from = end.saturating_sub(MAX_PIECE as u64).max(self.start);
            let piece = self.read(from, usize::try_from(end - from).unwrap_or(MAX_PIECE))?;
            for (at, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
                let behind = from + at as u64 + 1;
                // The end of the last line begins no other.
                if behind < self.end {
                    lines += 1;
                    if lines == count {
                        return Ok(behind);
                    }
                }
            }
            end = from;
        }
        Ok(self.start)
    }

    /// The end of it as a file of at most `limit` bytes, from a whole line on where not all of it fits.
    pub fn shortened(&self, limit: u64) -> io::Result<Vec<u8>> {
        let head = |start: u64| if start == 0 { String::new() } else { header(start) };
        let there = usize::try_from(self.end - self.start).unwrap_or(usize::MAX);
        if (head(self.start).len() + there) as u64 <= limit {
            return Ok([head(self.start).as_bytes(), &self.read(self.start, there)?].concat());
        }
        let tail = self.tail(limit.saturating_sub(MAX_HEADER as u64))?;
        let kept = &tail[first_line(&tail)..];
        Ok([head(self.end - kept.len() as u64).as_bytes(), kept].concat())
    }
}

/// As much as there is, up to the length of the buffer.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn log(text: &[u8]) -> Log {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        Log::new(file).unwrap()
    }

    #[test]
    fn offsets_outlast_what_was_dropped() {
        let old = log(b"one\ntwo\n");
        assert_eq!((old.start, old.end), (0, 8));
        assert_eq!(old.read(4, 100).unwrap(), b"two\n");
        assert_eq!(old.read(4, 2).unwrap(), b"tw");
        assert_eq!(old.read(9, 100).unwrap(), b"", "there is nothing yet");
        let young = log(format!("{}two\nthree\n", header(4)).as_bytes());
        assert_eq!((young.start, young.end), (4, 14));
        assert_eq!(young.read(0, 100).unwrap(), b"two\nthree\n", "the oldest that there is");
        assert_eq!(young.read(8, 100).unwrap(), b"three\n");
        assert_eq!(young.tail(3).unwrap(), b"ee\n");
        assert_eq!(young.tail(100).unwrap(), b"two\nthree\n", "and no line that nobody wrote");
    }

    #[test]
    fn a_first_line_that_only_looks_like_it() {
        for text in [
            "lyceum: the oldest  bytes of this log were dropped\n",
            "lyceum: the oldest 1234567890123456 bytes of this log were dropped\n",
            "lyceum: the oldest -1 bytes of this log were dropped\n",
            "lyceum: the oldest 5 bytes of this log were dropped",
            " lyceum: the oldest 5 bytes of this log were dropped\n",
        ] {
            assert_eq!(log(text.as_bytes()).start, 0, "{text}");
        }
        let most = header(10_u64.pow(15) - 1);
        assert!(most.len() <= MAX_HEADER);
        assert_eq!(log(most.as_bytes()).end, 999_999_999_999_999);
    }

    #[test]
    fn a_file_beyond_the_bound_shows_its_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * MAX_LOG).unwrap();
        let log = Log::new(file).unwrap();
        assert_eq!((log.start, log.end), (2 * MAX_LOG, 3 * MAX_LOG));
        assert_eq!(log.read(0, 10).unwrap().len(), 10);
    }

    #[test]
    fn lines_are_counted_from_the_end() {
        let last = |text: &str, count| {
            let log = log(text.as_bytes());
            String::from_utf8(log.read(log.last_lines(count).unwrap(), 1 << 20).unwrap()).unwrap()
        };
        for (text, count, tail) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb", 1, "b"),
            ("a", 5, "a"),
            ("", 5, ""),
            ("a\n\n", 1, "\n"),
            ("a\n1 %\r2 %\r3 %", 1, "1 %\r2 %\r3 %"),
        ] {
            assert_eq!(last(text, count), tail, "{text:?}");
        }
        let many = (0..60_000).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
        assert_eq!(last(&many, 50_000).lines().next(), Some("line 10000"), "over several pieces");
    }

    #[test]
    fn a_kept_log_goes_on_by_the_same_offsets() {
        let text = (0..100).map(|number| format!("line {number:04}\n")).collect::<Vec<_>>().concat();
        let whole = log(text.as_bytes());
        assert_eq!(whole.shortened(1000).unwrap(), text.as_bytes(), "all of it fits");
        let kept = whole.shortened(500).unwrap();
        assert!(kept.len() <= 500, "{}", kept.len());
        let kept = log(&kept);
        assert_eq!(kept.end, whole.end);
        assert_eq!(kept.start % 10, 0, "a whole line");
        for from in [kept.start, 990, 1000] {
            assert_eq!(kept.read(from, 100).unwrap(), whole.read(from, 100).unwrap());
        }
        let again = log(&kept.shortened(300).unwrap());
        assert_eq!((again.end, again.read(990, 10).unwrap()), (1000, b"line 0099\n".to_vec()));
        assert_eq!(log(b"").shortened(100).unwrap(), b"");
    }

    #[test]
    fn characters_that_were_cut() {
        for (text, cut) in [("", 0), ("a", 0), ("é", 0), ("€", 0), ("😀", 0)] {
            assert_eq!(cut_character(text.as_bytes()), cut, "{text}");
            for length in 1..text.len() {
                assert_eq!(cut_character(&text.as_bytes()[..length]), length, "{text}");
            }
        }
        assert_eq!(cut_character(b"a\x80\x80\x80"), 0, "no character begins there");
        assert_eq!(cut_character(b"\xff"), 0);
        let middle = &"aé".as_bytes()[2..];
        assert_eq!(first_line(middle), 1);
        assert_eq!(first_line(b"rest\nline\n"), 5);
    }
}
