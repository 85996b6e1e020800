//! Reading what programs write of their training, as the user, for the portal: event files below
//! a directory, as they grow. Nothing is remembered here: the portal says how far it has come, and
//! what is told comes with the places that it reaches. Batches go out as frames of a length (32 bits,
//! big-endian) and so many bytes; how they are read is `curves`'s.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use lyceum_curves::{
    Tail,
    log::{Decoder, Encoder, Entry, MAX_BATCH_SIZE},
};
use lyceum_model::Clock;
use lyceum_wire::protocol::files_agent::frame_head;

/// Between two looks at the files, and at least so many times what a look took: walking a large
/// directory on a file server again and again would be a burden.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
const SHARE: u32 = 10;

/// A batch is sent once it is so large (bytes), or so old: then the portal hears that we go on.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_INTERVAL: Duration = Duration::from_millis(500);

/// How many names of what could not be read are told.
const MAX_NAMES: usize = 20;

/// A directory under observation.
pub(super) struct WatchedDirectory {
    tail: Tail,
    encoder: Encoder,
}

impl WatchedDirectory {
    /// `places` is a batch that says how far the portal has come.
    pub fn begin(directory: PathBuf, places: &[u8]) -> Option<Self> {
        let mut known = BTreeMap::new();
        let heard = Decoder::default().batch(places, &mut |entry| {
            if let Entry::Place { file, place } = entry {
                known.insert(file.to_owned(), place);
            }
        });
        heard.ok()?;
        Some(Self { tail: Tail::new(directory, &known), encoder: Encoder::default() })
    }

    /// One look: sends what is new as batches that each end with a place; whether there may be
    /// more at once.
    pub fn look(&mut self, send: &mut impl FnMut(Vec<u8>) -> io::Result<()>) -> io::Result<bool> {
        let Self { tail, encoder } = self;
        let mut outcome = Ok(());
        let mut beat = Instant::now();
        let mut pass_on = |encoder: &mut Encoder| {
            if let Some(surplus) = encoder.told_surplus() {
                encoder.entry(&surplus);
            }
            let batch = encoder.take();
            if batch.is_empty() { Ok(()) } else { send(batch) }
        };
        let more = tail.poll(now(), &mut |entry| {
            if outcome.is_err() {
                return;
            }
            let is_place = matches!(entry, Entry::Place { .. });
            encoder.entry(&entry);
            if is_place && (encoder.len() >= BATCH_BYTES || beat.elapsed() > BATCH_INTERVAL) {
                outcome = pass_on(encoder);
                beat = Instant::now();
            }
        });
        outcome.and_then(|()| pass_on(encoder)).map(|()| more)
    }

    /// What could not be read at the last look, some of it, below the directory and why; and how
    /// many files more there are than are followed.
    pub fn trouble(&self) -> (Vec<String>, u64) {
        let told = |(path, kind): (&PathBuf, &io::ErrorKind)| {
            let shown: String = path.to_string_lossy().chars().take(300).collect();
            format!("{shown}: {}", io::Error::from(*kind))
        };
        (self.tail.unreadable.iter().take(MAX_NAMES).map(told).collect(), self.tail.left_out)
    }
}

/// Looks again and again until nobody listens. Blocks: a thread of its own.
pub(super) fn follow(mut reading: WatchedDirectory, listener: &mpsc::Sender<Bytes>) {
    loop {
        let begun = Instant::now();
        let looked = reading.look(&mut |batch| {
            let gone = |_err| io::Error::from(io::ErrorKind::BrokenPipe);
            listener.blocking_send(framed(&batch)?.into()).map_err(gone)
        });
        let rest = match looked {
            Ok(true) => continue,
            Ok(false) => (begun.elapsed() * SHARE).max(SCAN_INTERVAL),
            Err(_) => return,
        };
        let end = Instant::now() + rest;
        while Instant::now() < end {
            if listener.is_closed() {
                return;
            }
            std::thread::park_timeout(SCAN_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

/// A batch as a frame. None is larger than the portal takes.
pub(super) fn framed(batch: &[u8]) -> io::Result<Vec<u8>> {
    if batch.len() > MAX_BATCH_SIZE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a batch is too large"));
    }
    Ok([&frame_head(batch.len())[..], batch].concat())
}

/// Seconds since 1970.
fn now() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of these centuries fit")]
    let now = Clock::System.now().0 as f64;
    now / 1000.0
}
