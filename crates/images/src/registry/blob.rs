//! The download of one layer into a partial file: streamed, hashed as it arrives, counted, and continued
//! where it ended after a lost connection or the end of the process. Bytes are written by a thread of
//! their own, so that the network, the hash and the disk work at the same time.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::PathBuf,
};

use bytes::Bytes;
use reqwest::{
    Response,
    header::{CONTENT_RANGE, HeaderMap, HeaderValue, RANGE},
};
use tokio::sync::mpsc;

use super::{Failure, Session};
use crate::{
    digest::{Digest, Hasher},
    error::{Error, Result},
    manifest::Blob,
    progress::Meter,
};

/// Chunks between the network and the disk.
const QUEUE: usize = 32;

/// A partial file: what was received so far, and its hash.
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    written: u64,
}

impl Part {
    /// Reads what an earlier pull left in the file. Returns the part at its end; more bytes than `size` are discarded.
    pub fn resume(mut file: File, path: PathBuf, size: u64) -> Result<Self> {
        let failed = |err| Error::disk("read", &path, err);
        let mut hasher = Hasher::new();
        let mut written = 0;
        if file.metadata().map_err(failed)?.len() > size {
            file.set_len(0).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                count => {
                    hasher.update(&buffer[..count]);
                    written += count as u64;
                }
            }
        }
        Ok(Self { file, path, hasher, written })
    }

    pub fn written(&self) -> u64 {
        self.written
    }

    fn restart(&mut self) -> Result<()> {
        let failed = |err| Error::disk("write", &self.path, err);
        self.file.set_len(0).map_err(failed)?;
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.hasher = Hasher::new();
        self.written = 0;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|err| Error::disk("write", &self.path, err))?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes what arrives until the sender is dropped.
    fn receive(mut self, mut chunks: mpsc::Receiver<Bytes>, meter: &Meter) -> (Self, Result<()>) {
        while let Some(chunk) = chunks.blocking_recv() {
            if let Err(error) = self.append(&chunk) {
                return (self, Err(error));
            }
            meter.add(chunk.len() as u64);
        }
        (self, Ok(()))
    }

    /// Returns the digest of what was written so far.
    fn digest(&self) -> Digest {
        self.hasher.clone().finish()
    }
}

impl Session {
    /// Downloads the rest of a blob into its part, and checks the whole. After a failure the part is kept, except
    /// where its content is wrong.
    pub async fn download(&self, blob: Blob, mut part: Part, meter: &Meter) -> Result<()> {
        let mut patience = self.patience();
        // The disk may have lost what an earlier process wrote.
        let mut is_resumed = part.written > 0;
        loop {
            while part.written < blob.size {
                let before = part.written;
                let (next, outcome) = self.try_download(blob, part, meter).await?;
                part = next;
                if part.written > before {
                    patience.reset();
                }
                match outcome {
                    Ok(()) => {}
                    Err(failure) => patience.after(failure).await?,
                }
            }
            let received = part.digest();
            if received == blob.digest {
                return Ok(());
            }
            meter.subtract(part.written);
            part.restart()?;
            if !is_resumed {
                let what = format!("layer {}", blob.digest);
                return Err(Error::WrongDigest { what, expected: blob.digest, received });
            }
            is_resumed = false;
        }
    }

    /// Sends one request for the missing bytes. A connection that closes early is a failure that may pass.
    async fn try_download(&self, blob: Blob, mut part: Part, meter: &Meter) -> Result<(Part, Result<(), Failure>)> {
        let what = format!("layer {}", blob.digest);
        let mut headers = HeaderMap::new();
        if part.written > 0 {
            let range = format!("bytes={}-", part.written);
            headers
                .insert(RANGE, HeaderValue::from_str(&range).unwrap_or_else(|_| HeaderValue::from_static("bytes=0-")));
        }
        let mut response = match self.get("blobs", &blob.digest.to_string(), headers, &what).await {
            Ok(response) => response,
            Err(Failure::Final(Error::Status { status: 416, .. })) if part.written > 0 => {
                meter.subtract(part.written);
                part.restart()?;
                return Ok((part, Ok(())));
            }
            Err(failure) => return Ok((part, Err(failure))),
        };
        if part.written > 0 && !continues_at(&response, part.written) {
            // The registry ignores ranges, or answered with another one.
            if response.status().as_u16() == 206 {
                let error = Error::Status { host: self.endpoint.host.clone(), status: 206, what };
                return Ok((part, Err(Failure::Final(error))));
            }
            meter.subtract(part.written);
            part.restart()?;
        }
        let mut expected = part.written;
        let wrong_size = |received| Error::WrongSize { what: what.clone(), expected: blob.size, received };
        if let Some(size) = response.content_length().map(|rest| rest.saturating_add(expected))
            && size != blob.size
        {
            return Ok((part, Err(wrong_size(size).into())));
        }
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer = {
            let meter = meter.clone();
            tokio::task::spawn_blocking(move || part.receive(receiver, &meter))
        };
        let outcome = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    expected += chunk.len() as u64;
                    if expected > blob.size {
                        break Err(Failure::Final(wrong_size(expected)));
                    }
                    if sender.send(chunk).await.is_err() {
                        break Ok(()); // The writer reports why it ended.
                    }
                }
                Ok(None) if expected < blob.size => {
                    let reason = "the connection was closed early".to_owned();
                    let error = Error::Unreachable { host: self.endpoint.host.clone(), reason };
                    break Err(Failure::Passing { error, after: None });
                }
                Ok(None) => break Ok(()),
                Err(err) => break Err(self.failure(&err)),
            }
        };
        drop(sender);
        let (mut part, written) = writer.await?;
        written?;
        if matches!(outcome, Err(Failure::Final(Error::WrongSize { .. }))) {
            // What came before the surplus is not to be trusted either.
            part.restart()?;
        }
        Ok((part, outcome))
    }
}

/// Returns whether the body begins at this byte.
fn continues_at(response: &Response, at: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    response.status().as_u16() == 206 && range.is_some_and(|range| range.starts_with(&format!("bytes {at}-")))
}
