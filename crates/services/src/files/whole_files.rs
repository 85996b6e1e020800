//! Whole files in memory, for those who look at what is in them. They are people's, and say whatever
//! their owners like: how much of them is held at once, by everybody together, is bounded here,
//! and so is what becomes of them in memory.

use std::{ops::Deref, sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{Error, Files, Result, RootedPath};
use lyceum_model::{
    User,
    files::{Entry, RawPath},
};
use lyceum_wire::protocol::files_agent::Fault;

/// What of people's files is in memory at once, in KiB.
const MEMORY_KIB: usize = 192 * 1024;
/// Up to here (bytes) a file counts for nothing, and waits for no other.
const SMALL_FILE_SIZE: usize = 64 * 1024;
/// How many larger files are taken apart at once.
const MAX_PARSING: usize = 2;
/// How long a file may be on its way into memory, and how long it may wait for room.
const READING: Duration = Duration::from_mins(1);
/// The most values of a JSON document: in memory each may take some two hundred bytes.
const MAX_VALUES: usize = 300_000;

/// The limits of all that is read.
pub struct ReadLimits {
    room: Arc<Semaphore>,
    parsers: Semaphore,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(MEMORY_KIB)), parsers: Semaphore::new(MAX_PARSING) }
    }
}

/// A file's content; it counts as long as it lives.
pub struct FileContent {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Deref for FileContent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl FileContent {
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Files {
    /// The whole content of a file that has at most `limit` bytes; nothing where there is none.
    pub async fn read_whole(&self, user: &User, path: &RawPath, limit: u64) -> Result<Option<FileContent>> {
        let (rooted, entry) = match self.look(user, path).await {
            Ok(found) => found,
            Err(Error::Fault { fault: Fault::NotFound, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let size_bytes = entry.size_bytes;
        if limit < size_bytes {
            return Err(Error::TooLong { path: path.shown(), size_bytes, limit_bytes: limit });
        }
        self.read_part(user, &rooted, &entry, 0, size_bytes).await.map(Some)
    }

    /// The same of a JSON document, which may not have too many values either.
    pub async fn read_json(&self, user: &User, path: &RawPath, limit: u64) -> Result<Option<FileContent>> {
        let found = self.read_whole(user, path, limit).await?;
        match &found {
            Some(whole) if values(whole) > MAX_VALUES => Err(Error::TooMany { path: path.shown(), most: MAX_VALUES }),
            _ => Ok(found),
        }
    }

    /// A part of a file, whole.
    pub async fn read_part(
        &self,
        user: &User,
        rooted: &RootedPath,
        entry: &Entry,
        from: u64,
        length: u64,
    ) -> Result<FileContent> {
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let room = match u32::try_from(size / 1024) {
            _ if size <= SMALL_FILE_SIZE => None,
            Ok(room) if room as usize <= MEMORY_KIB => {
                let permit = timeout(READING, self.reading.room.clone().acquire_many_owned(room)).await;
                Some(permit.ok().and_then(std::result::Result::ok).ok_or(Error::Busy)?)
            }
            _ => {
                let limit_bytes = MEMORY_KIB as u64 * 1024;
                return Err(Error::TooLong { path: rooted.path.shown(), size_bytes: length, limit_bytes });
            }
        };
        let mut stream = self.read(user, rooted, entry, from, length).await?.into_stream();
        let read = async {
            let mut bytes = Vec::with_capacity(size);
            while let Some(chunk) = stream.next().await {
                let chunk = chunk?;
                // An agent that says more than it was asked for says something else.
                if size < bytes.len() + chunk.len() {
                    return Err(Error::Agent("it sent more than requested".to_owned()));
                }
                bytes.extend_from_slice(&chunk);
            }
            Ok(FileContent { bytes, _room: room })
        };
        timeout(READING, read).await.map_err(|_elapsed| Error::Silent { path: rooted.path.shown() })?
    }

    /// Takes a file apart, on a thread of its own where it is large; few at once.
    pub async fn parse<T: Send + 'static>(
        &self,
        whole: FileContent,
        parse: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T> {
        if whole.len() <= SMALL_FILE_SIZE {
            return Ok(parse(&whole));
        }
        let _permit = self.reading.parsers.acquire().await.map_err(|_closed| Error::Busy)?;
        let parsed = tokio::task::spawn_blocking(move || parse(&whole)).await;
        parsed.map_err(|panic| Error::Agent(format!("its response could not be parsed: {panic}")))
    }
}

/// How many values a JSON document has at most: what opens one, and what stands between two.
fn values(document: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (0, false, false);
    for byte in document {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (document, count) in
            [("", 0), ("3", 0), (r#"{"a": [1, 2], "b": {}}"#, 7), (r#"["a,b:[{\",,", "\\", 3]"#, 3), (r#""[[[["#, 0)]
        {
            assert_eq!(values(document.as_bytes()), count, "{document}");
        }
    }
}
