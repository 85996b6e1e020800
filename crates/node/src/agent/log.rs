//! The app's log: what it wrote to standard output and error, read from a pipe, kept in one
//! bounded file. The app is never held up by it: what cannot be written is dropped.

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{io::AsyncReadExt, net::unix::pipe};

use super::streams::Sink;
use lyceum_wire::protocol::log::{MAX_LOG, first_line, header};

/// A handle on the log; clones share it.
#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<Bounded>>);

struct Bounded {
    path: PathBuf,
    file: fs::File,
    size: u64,
    /// How much of the file is the line that says what was dropped.
    header: u64,
    dropped: u64,
    /// The most that the file may measure; past it, the oldest half goes.
    limit: u64,
}

impl Log {
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Bounded::create(path, MAX_LOG)?))))
    }

    /// A line of the agent's own.
    pub fn note(&self, line: &str) {
        self.append(format!("lyceum: {line}\n").as_bytes());
    }

    /// Everything from the pipe, until every writer has closed it.
    pub async fn pump(self, pipe: OwnedFd) {
        self.pump_into(pipe, None).await;
    }

    /// The same, and all of it into a file of the user's too.
    pub async fn pump_into(self, pipe: OwnedFd, mut sink: Option<Sink>) {
        let Ok(mut pipe) = pipe::Receiver::from_owned_fd(pipe) else { return };
        let mut buffer = vec![0; 64 * 1024];
        let mut was_told = false;
        while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
            self.append(&buffer[..length]);
            let Some(sink) = &mut sink else { continue };
            if let Err(error) = sink.write(&buffer[..length]).await
                && !std::mem::replace(&mut was_told, true)
            {
                self.note(&format!(
                    "{} cannot be written to: {error}: later output may be missing there",
                    sink.path().display()
                ));
            }
        }
    }

    /// The last lines that say something, as one line of at most 600 characters for people.
    pub fn last_lines(&self, count: usize) -> String {
        let log = self.0.lock();
        let tail = log.tail(8 * 1024).unwrap_or_default();
        tell(&String::from_utf8_lossy(&tail), count)
    }

    /// The last bytes, as they are.
    pub fn tail(&self, bytes: u64) -> std::io::Result<Vec<u8>> {
        self.0.lock().tail(bytes)
    }

    fn append(&self, bytes: &[u8]) {
        // A full disk must not hold up the app.
        let _ = self.0.lock().append(bytes);
    }
}

impl Bounded {
    fn create(path: &Path, limit: u64) -> std::io::Result<Self> {
        let file = open(path)?;
        Ok(Self { path: path.to_owned(), file, size: 0, header: 0, dropped: 0, limit })
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.limit < self.size + bytes.len() as u64 {
            self.drop_oldest_half()?;
        }
        let written = self.file.write_all(bytes);
        match &written {
            Ok(()) => self.size += bytes.len() as u64,
            // A part of them may be there, and counts in the offsets that readers know.
            Err(_) => self.size = self.file.stream_position()?,
        }
        written
    }

    /// Writes the younger half to a new file and puts it in place at once, so that a reader
    /// sees the old log or the new one, never a piece. Its first line says what was dropped.
    fn drop_oldest_half(&mut self) -> std::io::Result<()> {
        let kept = self.tail((self.limit / 2).min(self.size - self.header))?;
        let kept = &kept[first_line(&kept)..];
        let dropped = self.dropped + (self.size - self.header).saturating_sub(kept.len() as u64);
        let head = header(dropped);
        let part = self.path.with_extension("part");
        let mut file = open(&part)?;
        file.write_all(head.as_bytes())?;
        file.write_all(kept)?;
        fs::rename(&part, &self.path)?;
        self.file = file;
        self.dropped = dropped;
        self.header = head.len() as u64;
        self.size = self.header + kept.len() as u64;
        Ok(())
    }

    fn tail(&self, bytes: u64) -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(&self.path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(bytes)))?;
        let mut tail = Vec::new();
        file.take(bytes).read_to_end(&mut tail)?;
        Ok(tail)
    }
}

fn open(path: &Path) -> std::io::Result<fs::File> {
    let file = fs::File::create(path)?;
    // Whatever the umask: the portal reads it as the group of the run directory.
    file.set_permissions(fs::Permissions::from_mode(0o640))?;
    Ok(file)
}

fn tell(tail: &str, count: usize) -> String {
    let lines: Vec<String> = tail.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let told = lines[lines.len().saturating_sub(count)..].join(" · ");
    let excess = told.chars().count().saturating_sub(600);
    told.chars().skip(excess).collect()
}

/// A line without escape sequences and control characters.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            if rest.next_if_eq(&'[').is_some() {
                while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
        } else if !c.is_control() {
            plain.push(c);
        }
    }
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_wire::protocol;

    #[test]
    fn the_oldest_half_goes_at_a_line_and_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = Bounded::create(&path, 1000).unwrap();
        for number in 0..500_u64 {
            log.append(format!("line {number:04}\n").as_bytes()).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= 1000);
            assert_eq!(fs::metadata(&path).unwrap().len(), log.size);
            let read = protocol::log::Log::new(fs::File::open(&path).unwrap()).unwrap();
            assert_eq!(read.end, 10 * (number + 1));
            assert_eq!(read.start % 10, 0, "no piece of a line");
            assert_eq!(read.read(read.start, 10).unwrap(), format!("line {:04}\n", read.start / 10).as_bytes());
        }
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0498\nline 0499\n"));
        log.append(&[b'x'; 700]).unwrap();
        log.append(&[b'x'; 700]).unwrap();
        let read = protocol::log::Log::new(fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(read.end, 5000 + 1400, "also without any line end");
    }

    #[test]
    fn last_lines_are_for_people() {
        assert_eq!(tell("one\n\u{1b}[31mtwo\u{1b}[0m\n\n three\u{7}\n", 2), "two · three");
        assert_eq!(tell("", 2), "");
        assert_eq!(tell(&"x".repeat(2000), 1).len(), 600);
    }
}
