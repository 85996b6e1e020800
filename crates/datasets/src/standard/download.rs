//! Downloads of published files into the directory of the work: each into a partial file, hashed as
//! it arrives, and continued where it ended after a lost connection or the end of the process. A
//! file gets its name once its checksum is right, so that nothing else is ever read.

use std::{
    fs::{self, File as Disk},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use reqwest::{
    Client, Response,
    header::{CONTENT_RANGE, CONTENT_TYPE, RANGE},
};
use sha2::{Digest, Sha256};

use super::File;
use crate::{
    Error,
    progress::{Phase, Progress, Speed},
    space,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may send nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(200);
/// Failures in a row that bring nothing new, after which an address is given up.
const MAX_FAILURES: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A file that was packed again may be this much larger than the published one.
const SURPLUS: u64 = 1 << 20;

/// The downloads of one set.
pub struct Download<'a> {
    /// Addresses of folders, tried in turn.
    pub addresses: &'a [String],
    pub folder: &'a Path,
    pub stop: &'a AtomicBool,
}

/// Why a request brought nothing.
enum Failure {
    /// Another request to the same address may succeed.
    Passing(String),
    /// This address does not have the file.
    Address(String),
    /// No address helps.
    Final(Error),
}

/// Bytes in the unit that people know from downloads.
#[expect(clippy::cast_precision_loss, reason = "a set has less than 2^52 bytes")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// What of all files is here.
struct Meter<'a> {
    before: u64,
    total: u64,
    speed: Speed,
    last: Option<Instant>,
    report: &'a mut dyn FnMut(&Progress),
}

impl Meter<'_> {
    /// Reports at most once a second.
    fn show(&mut self, of_file: u64) {
        if self.last.is_some_and(|last| last.elapsed() < REPORT_INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        let number = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (done, total) = (self.before + of_file, self.total);
        (self.report)(&self.speed.progress(Phase::Downloading, number(done.min(total)), number(total), 0));
    }
}

impl Download<'_> {
    /// Brings these files into the folder.
    pub fn run(&self, files: &[&File<'_>], report: &mut dyn FnMut(&Progress)) -> Result<(), Error> {
        fs::create_dir_all(self.folder).map_err(|error| Error::writing(self.folder, error))?;
        let total = files.iter().map(|file| file.bytes).sum();
        space::check(self.folder, total)?;
        // The first provider stays; a second call changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("lyceum/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(STALL_TIMEOUT)
            .build()
            .map_err(|error| Error::Nothing(format!("cannot set up HTTP: {}", innermost(&error))))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Nothing(format!("cannot set up HTTP: {error}")))?;
        let mut meter = Meter { before: 0, total, speed: Speed::new(0), last: None, report };
        runtime.block_on(async {
            for file in files {
                self.file(&client, file, &mut meter).await?;
                meter.before += file.bytes;
            }
            Ok(())
        })
    }

    async fn file(&self, client: &Client, file: &File<'_>, meter: &mut Meter<'_>) -> Result<(), Error> {
        let mut reasons = Vec::new();
        for address in self.addresses {
            let url = format!("{address}/{}", file.name);
            match self.from(client, &url, file, meter).await {
                Ok(()) => return Ok(()),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(reason) | Failure::Address(reason)) => reasons.push(format!("{url}: {reason}")),
            }
        }
        Err(Error::Unreachable { file: file.name.to_owned(), reasons: reasons.join("; ") })
    }

    /// Downloads a file from one address, with as many requests as it needs.
    async fn from(&self, client: &Client, url: &str, file: &File<'_>, meter: &mut Meter<'_>) -> Result<(), Failure> {
        let mut part = Part::open(self.folder.join(format!("{}.part", file.name)))?;
        let (mut failures, mut is_resumed) = (0, part.length > 0);
        loop {
            let before = part.length;
            match self.request(client, url, file, &mut part, meter).await {
                Ok(()) => {}
                Err(Failure::Passing(reason)) => {
                    failures = if part.length > before { 0 } else { failures + 1 };
                    if failures >= MAX_FAILURES {
                        return Err(Failure::Address(reason));
                    }
                    if failures > 0 {
                        self.unless_stopped(tokio::time::sleep(RETRY_DELAY * (1 << (failures - 1)))).await?;
                    }
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            let Some(fault) = part.fault(file, self.stop)? else {
                return Ok(part.finish(file)?);
            };
            part.restart()?;
            // The disk may have lost what an earlier process wrote, or the first half is another version's.
            if !is_resumed {
                return Err(Failure::Address(fault));
            }
            is_resumed = false;
        }
    }

    /// Sends one request for the missing bytes.
    async fn request(
        &self,
        client: &Client,
        url: &str,
        file: &File<'_>,
        part: &mut Part,
        meter: &mut Meter<'_>,
    ) -> Result<(), Failure> {
        let mut request = client.get(url);
        if part.length > 0 {
            request = request.header(RANGE, format!("bytes={}-", part.length));
        }
        let mut response = self.unless_stopped(request.send()).await?.map_err(|error| {
            // A machine without a way out does not get one by waiting.
            let reason = innermost(&error);
            if error.is_connect() || error.is_builder() { Failure::Address(reason) } else { Failure::Passing(reason) }
        })?;
        let status = response.status();
        if status.as_u16() == 416 && part.length > 0 {
            // All is here already, or more than there is.
            return Ok(());
        }
        if !status.is_success() {
            let reason = format!("the server answers {status}");
            let passes = status.is_server_error() || status.as_u16() == 429;
            return Err(if passes { Failure::Passing(reason) } else { Failure::Address(reason) });
        }
        if is_page(&response) {
            return Err(Failure::Address("the server answers with a web page instead of the file".to_owned()));
        }
        if part.length > 0 && !continues_at(&response, part.length) {
            part.restart()?;
        }
        while let Some(chunk) =
            self.unless_stopped(response.chunk()).await?.map_err(|error| Failure::Passing(innermost(&error)))?
        {
            part.append(&chunk)?;
            if part.length > file.bytes + SURPLUS {
                part.restart()?;
                return Err(Failure::Address(format!("the file is larger than {} bytes", file.bytes)));
            }
            meter.show(part.length);
        }
        Ok(())
    }

    /// Waits, but no longer than somebody wants it to go on.
    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Result<T, Failure> {
        let mut wait = std::pin::pin!(wait);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Final(Error::Stopped));
            }
            tokio::select! {
                done = &mut wait => return Ok(done),
                () = tokio::time::sleep(STOP_INTERVAL) => {}
            }
        }
    }
}

/// A partial file: what was received so far, and its hash.
struct Part {
    path: PathBuf,
    file: Disk,
    hasher: Sha256,
    length: u64,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl Part {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let writing = |error| Error::writing(&path, error);
        let mut file =
            Disk::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(writing)?;
        let (mut hasher, mut length, mut buffer) = (Sha256::new(), 0, vec![0; 256 << 10]);
        loop {
            match file.read(&mut buffer).map_err(writing)? {
                0 => break,
                count => {
                    hasher.update(&buffer[..count]);
                    length += count as u64;
                }
            }
        }
        Ok(Self { path, file, hasher, length })
    }

    fn restart(&mut self) -> Result<(), Error> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)).map(drop));
        emptied.map_err(|error| Error::writing(&self.path, error))?;
        (self.hasher, self.length) = (Sha256::new(), 0);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| Error::writing(&self.path, error))?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// What is wrong with the content, if it is not what was published.
    fn fault(&self, published: &File<'_>, stop: &AtomicBool) -> Result<Option<String>, Error> {
        self.file.sync_data().map_err(|error| Error::writing(&self.path, error))?;
        if hex::encode(self.hasher.clone().finalize()) == published.sha256 {
            return Ok(None);
        }
        published.fault(&self.path, stop)
    }

    /// Gives the file its name.
    fn finish(&self, published: &File<'_>) -> Result<(), Error> {
        let path = self.path.with_file_name(published.name);
        fs::rename(&self.path, &path).map_err(|error| Error::writing(&path, error))
    }
}

/// Whether the body begins at this byte.
fn continues_at(response: &Response, at: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    response.status().as_u16() == 206 && range.is_some_and(|range| range.starts_with(&format!("bytes {at}-")))
}

fn is_page(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}

/// The cause: the outer sentence names the address, which is said already.
fn innermost(error: &reqwest::Error) -> String {
    let mut source = std::error::Error::source(error);
    let mut text = None;
    while let Some(inner) = source {
        text = Some(inner.to_string());
        source = inner.source();
    }
    if error.is_timeout() {
        return "no answer within the time limit".to_owned();
    }
    text.unwrap_or_else(|| "the connection failed".to_owned())
}
