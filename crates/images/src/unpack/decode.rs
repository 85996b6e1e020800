//! Reads a stored layer as the tar archive in it: gzip (also of several members), zstd (also of several
//! frames) or plain, recognised by the first bytes. The stored bytes are hashed once more on the way, so that
//! a blob on the disk need not be trusted. The work is done by a thread, a bounded number of chunks ahead.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Scope, ScopedJoinHandle},
};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};
use tokio_util::sync::CancellationToken;

use crate::{
    digest::{Digest, Hasher},
    error::{Error, Result},
    manifest::Blob,
    progress::Meter,
};

const CHUNK: usize = 256 << 10;
/// Chunks that are decompressed ahead.
const QUEUE: usize = 32;

/// Counts and hashes stored bytes, and ends when the pull was cancelled.
struct Checked<'a> {
    file: File,
    hasher: Hasher,
    meter: &'a Meter,
    cancel: &'a CancellationToken,
}

impl Read for Checked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        let count = self.file.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.meter.add(count as u64);
        Ok(count)
    }
}

type Source<'a> = BufReader<Checked<'a>>;

/// One of the three forms of a layer.
enum Decoder<R: BufRead> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<Frames<R>>),
}

impl<R: BufRead> Decoder<R> {
    fn new(mut source: R) -> io::Result<Self> {
        let start = source.fill_buf()?;
        Ok(match start {
            [0x1f, 0x8b, ..] => Self::Gzip(Box::new(MultiGzDecoder::new(source))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Self::Zstd(Box::new(Frames::new(source)?))
            }
            _ => Self::Plain(source),
        })
    }

    fn into_inner(self) -> R {
        match self {
            Self::Plain(source) => source,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(frames) => frames.source,
        }
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(frames) => frames.read(buffer),
        }
    }
}

/// The frames of a zstd stream, one after the other; skippable ones are skipped.
struct Frames<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    is_within: bool,
}

/// The header of a frame with the smallest window. Once a decoder has seen a frame, it limits the window of the next.
const SMALL_FRAME: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, 0];

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> io::Result<Self> {
        let mut decoder = FrameDecoder::new();
        decoder.init(&SMALL_FRAME[..]).map_err(io::Error::other)?;
        Ok(Self { source, decoder, is_within: false })
    }

    /// Begins the next frame; returns false at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.source) {
            Ok(()) => self.is_within = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let skipped = io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                if skipped < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(err) => return Err(io::Error::other(err)),
        }
        Ok(true)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within {
                if !self.begin()? {
                    return Ok(0);
                }
                continue;
            }
            while self.decoder.can_collect() < buffer.len() && !self.decoder.is_finished() {
                let missing = buffer.len() - self.decoder.can_collect();
                let strategy = BlockDecodingStrategy::UptoBytes(missing);
                self.decoder.decode_blocks(&mut self.source, strategy).map_err(io::Error::other)?;
            }
            match self.decoder.read(buffer)? {
                0 => self.is_within = false,
                count => return Ok(count),
            }
        }
    }
}

/// Why a layer's bytes ended early.
#[derive(Debug)]
pub(super) enum Fault {
    Error(Error),
    Broken(String),
}

/// A layer that a thread decompresses.
pub(super) struct Decoding<'scope> {
    chunks: Receiver<Vec<u8>>,
    thread: ScopedJoinHandle<'scope, Result<(), Fault>>,
}

impl<'scope> Decoding<'scope> {
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        path: &'env Path,
        blob: Blob,
        meter: &'env Meter,
        cancel: &'env CancellationToken,
    ) -> Self {
        let (sender, chunks) = sync_channel(QUEUE);
        let thread = scope.spawn(move || decode(path, blob, meter, cancel, &sender));
        Self { chunks, thread }
    }

    /// Returns the archive's bytes, and what reports afterwards whether all of them came.
    pub fn split(self) -> (Chunks, ScopedJoinHandle<'scope, Result<(), Fault>>) {
        (Chunks { source: self.chunks, current: Vec::new(), at: 0 }, self.thread)
    }
}

fn decode(
    path: &Path,
    blob: Blob,
    meter: &Meter,
    cancel: &CancellationToken,
    sender: &SyncSender<Vec<u8>>,
) -> Result<(), Fault> {
    let file = File::open(path).map_err(|err| Fault::Error(Error::disk("read", path, err)))?;
    let checked = Checked { file, hasher: Hasher::new(), meter, cancel };
    let mut decoder =
        Decoder::new(Source::with_capacity(CHUNK, checked)).map_err(|err| Fault::Broken(err.to_string()))?;
    let outcome = loop {
        let mut chunk = vec![0; CHUNK];
        match fill(&mut decoder, &mut chunk) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                chunk.truncate(count);
                if sender.send(chunk).is_err() {
                    return Ok(()); // The reader has a failure of its own.
                }
            }
            Err(err) => break Err(err.to_string()),
        }
    };
    if cancel.is_cancelled() {
        return Err(Fault::Error(Error::Cancelled));
    }
    // Broken content is the disk's fault where the digest differs, and the image's where it does not.
    match rest(decoder.into_inner()) {
        Ok(digest) if digest == blob.digest => outcome.map_err(Fault::Broken),
        Ok(_) => Err(Fault::Error(Error::Damaged { digest: blob.digest })),
        Err(err) => Err(Fault::Error(Error::disk("read", path, err))),
    }
}

fn rest(mut source: Source<'_>) -> io::Result<Digest> {
    io::copy(&mut source, &mut io::sink())?;
    Ok(source.into_inner().hasher.finish())
}

fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(filled)
}

/// The decompressed bytes as a reader.
pub(super) struct Chunks {
    source: Receiver<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.current.len() {
            match self.source.recv() {
                Ok(chunk) => (self.current, self.at) = (chunk, 0),
                Err(_) => return Ok(0),
            }
        }
        let rest = &self.current[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn decoded(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        Decoder::new(bytes)?.read_to_end(&mut found).map(|_| found)
    }

    #[test]
    fn members_and_frames_follow_one_another() {
        let gzip = |text: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        let skipped = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..]].concat();
        let large = vec![b'x'; 1 << 20];
        assert_eq!(decoded(&[gzip(b"ab"), gzip(&large)].concat()).unwrap(), [b"ab", &large[..]].concat());
        assert_eq!(
            decoded(&[zstd(b"ab"), skipped.clone(), zstd(&large)].concat()).unwrap(),
            [b"ab", &large[..]].concat()
        );
        assert_eq!(decoded(&[skipped, zstd(b"ab")].concat()).unwrap(), b"ab");
        assert_eq!(decoded(b"plain").unwrap(), b"plain");
        let (short_gzip, short_zstd) = (gzip(&large), zstd(&large));
        assert!(decoded(&short_gzip[..short_gzip.len() - 9]).is_err());
        assert!(decoded(&short_zstd[..short_zstd.len() - 9]).is_err());
        assert!(decoded(&[zstd(b"ab"), b"rubbish".to_vec()].concat()).is_err());
        // A window of 1 GiB would be held in memory.
        let window = decoded(&[0x28, 0xb5, 0x2f, 0xfd, 0, 20 << 3, 1, 0, 0]).unwrap_err().to_string();
        assert!(window.to_lowercase().contains("window"), "{window}");
    }
}
