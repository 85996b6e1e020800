//! The files of points, one a run: opened when they are wanted, kept in memory as long as there is
//! room, and told of to whoever follows a run. Everything in here may wait for the disk or a lock,
//! and so happens on threads that may.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, broadcast};

use super::{
    Error, Result,
    delta::{Delta, DeltaBuilder},
};
use lyceum_curves::{
    Store,
    log::Decoder,
    store::{self, reread},
};
use lyceum_model::RunId;

/// How many changes wait for a listener that is slow; one that is slower reads the file again.
const AHEAD: usize = 64;

/// How many files are opened at once: each takes memory while it is read.
const MAX_OPENINGS: usize = 2;

/// A byte of a file of points takes at most so many in memory.
const FILE_TO_MEMORY: u64 = 2;

/// Configures where the files of points lie and how many are cached.
pub(super) struct SeriesCache {
    directory: PathBuf,
    /// Of one run.
    most_points: u64,
    /// Of all runs together (bytes). A run that is larger than that is open alone.
    most_memory: u64,
    books: Mutex<HashMap<RunId, Arc<CachedRun>>>,
    /// What the open ones take, as each was last counted (bytes).
    taken: AtomicU64,
    openings: Semaphore,
}

/// Holds one run's points in memory.
struct CachedRun {
    path: PathBuf,
    content: RwLock<Content>,
    /// What it was last counted to take in memory (bytes).
    counted: AtomicU64,
    news: broadcast::Sender<Arc<Delta>>,
    used: Mutex<Instant>,
}

enum Content {
    Closed,
    Open(Box<Store>),
    /// Its run was removed.
    Gone,
}

impl SeriesCache {
    pub fn new(directory: PathBuf, most_points: u64, most_memory: u64) -> Arc<Self> {
        let openings = Semaphore::new(MAX_OPENINGS);
        Arc::new(Self {
            directory,
            most_points,
            most_memory,
            books: Mutex::default(),
            taken: AtomicU64::new(0),
            openings,
        })
    }

    /// Removes the files of runs that are no more.
    pub fn tidy(&self, runs: &[RunId]) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if id.is_some_and(|id: RunId| !runs.contains(&id)) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Looks at a run's points.
    pub async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        id: RunId,
        look: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T> {
        let cached = self.opened(id).await?;
        let this = Arc::clone(self);
        let looked = blocking(move || {
            loop {
                match &*cached.content.read() {
                    Content::Open(store) => break Ok(look(store)),
                    Content::Gone => break Err(Error::NotFound),
                    Content::Closed => {}
                }
                this.open(&cached)?;
            }
        });
        looked.await
    }

    /// Adds a batch that a reader sent; it is kept whole or not at all. Hands the reader's decoder
    /// back, and how many points there are now.
    pub async fn add(self: &Arc<Self>, id: RunId, mut decoder: Decoder, batch: bytes::Bytes) -> Result<(Decoder, u64)> {
        let cached = self.opened(id).await?;
        let this = Arc::clone(self);
        blocking(move || {
            this.open(&cached)?;
            let mut content = cached.content.write();
            let Content::Open(store) = &mut *content else { return Err(Error::NotFound) };
            // Nobody may listen: then nothing need be gathered.
            let mut delta = (cached.news.receiver_count() > 0).then(|| DeltaBuilder::new(store.length()));
            store.add(&mut decoder, &batch, &mut |entry| {
                if let Some(delta) = &mut delta {
                    delta.take(entry);
                }
            })?;
            if let Some(delta) = delta {
                let told = delta.finish(store.length(), Some(store));
                // The last listener may have gone meanwhile.
                let _ = cached.news.send(Arc::new(told));
            }
            let points = store.points();
            this.count(&cached, store.memory());
            drop(content);
            this.make_room(0, &cached.path);
            Ok((decoder, points))
        })
        .await
    }

    /// What was added behind `since`, and all that is added from now on. `since` is `None` for
    /// what comes from now on only.
    pub async fn follow(
        self: &Arc<Self>,
        id: RunId,
        since: Option<u64>,
    ) -> Result<(Delta, broadcast::Receiver<Arc<Delta>>)> {
        let cached = self.opened(id).await?;
        let this = Arc::clone(self);
        blocking(move || {
            this.open(&cached)?;
            let (news, until) = match &*cached.content.read() {
                Content::Open(store) => (cached.news.subscribe(), store.length()),
                Content::Closed | Content::Gone => return Err(Error::NotFound),
            };
            let since = since.unwrap_or(until);
            let mut delta = DeltaBuilder::new(since);
            if since < until {
                let told = reread(&cached.path, since, until, &mut |_end, entry| delta.take(&entry));
                if !told.map_err(|source| Error::Points { path: cached.path.clone(), source })? {
                    delta.reset();
                }
            } else if until < since {
                // It was removed and registered anew, or a disk lost its latest writes.
                delta.reset();
            }
            Ok((delta.finish(until, None), news))
        })
        .await
    }

    /// Removes a run's points.
    pub async fn remove(self: &Arc<Self>, id: RunId) -> Result<()> {
        let this = Arc::clone(self);
        blocking(move || {
            let cached = this.cached(id);
            *cached.content.write() = Content::Gone;
            this.count(&cached, 0);
            this.books.lock().remove(&id);
            match fs::remove_file(&cached.path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(Error::Points { path: cached.path.clone(), source })
                }
                _ => Ok(()),
            }
        })
        .await
    }

    fn cached(&self, id: RunId) -> Arc<CachedRun> {
        let mut books = self.books.lock();
        let cached = books.entry(id).or_insert_with(|| {
            Arc::new(CachedRun {
                path: points_file(&self.directory, id),
                content: RwLock::new(Content::Closed),
                counted: AtomicU64::new(0),
                news: broadcast::Sender::new(AHEAD),
                used: Mutex::new(Instant::now()),
            })
        });
        *cached.used.lock() = Instant::now();
        Arc::clone(cached)
    }

    /// A run whose file is open. Whoever closes it meanwhile has it opened once more by who uses it.
    async fn opened(self: &Arc<Self>, id: RunId) -> Result<Arc<CachedRun>> {
        let cached = self.cached(id);
        // One that somebody writes to is open, or being opened.
        let is_closed = matches!(cached.content.try_read().as_deref(), Some(Content::Closed));
        if is_closed && let Ok(_turn) = self.openings.acquire().await {
            let (this, closed) = (Arc::clone(self), Arc::clone(&cached));
            blocking(move || this.open(&closed)).await?;
        }
        Ok(cached)
    }

    fn open(&self, cached: &Arc<CachedRun>) -> Result<()> {
        if !matches!(&*cached.content.read(), Content::Closed) {
            return Ok(());
        }
        let mut content = cached.content.write();
        if let Content::Closed = &*content {
            // Room is made before the file is read, not when both are in memory.
            let length = fs::metadata(&cached.path).map_or(0, |metadata| metadata.len());
            self.make_room(length.saturating_mul(FILE_TO_MEMORY), &cached.path);
            let store = Store::open(&cached.path, self.most_points)
                .map_err(|source| Error::Points { path: cached.path.clone(), source })?;
            self.count(cached, store.memory());
            *content = Content::Open(Box::new(store));
            drop(content);
            self.make_room(0, &cached.path);
        }
        Ok(())
    }

    /// Counts what a run takes in memory from now on. Its content is locked meanwhile.
    fn count(&self, cached: &CachedRun, memory: u64) {
        let before = cached.counted.swap(memory, Ordering::Relaxed);
        if before <= memory {
            self.taken.fetch_add(memory - before, Ordering::Relaxed);
        } else {
            self.taken.fetch_sub(before - memory, Ordering::Relaxed);
        }
    }

    /// Closes what was not used for longest until the rest and `needed` bytes more fit; `kept` stays.
    fn make_room(&self, needed: u64, kept: &Path) {
        let fits = || self.taken.load(Ordering::Relaxed).saturating_add(needed) <= self.most_memory;
        if fits() {
            return;
        }
        let books: Vec<Arc<CachedRun>> = self.books.lock().values().cloned().collect();
        let with_use = |cached: Arc<CachedRun>| {
            let used = *cached.used.lock();
            (used, cached)
        };
        let mut open: Vec<_> = books.into_iter().map(with_use).collect();
        open.sort_by_key(|(used, _)| *used);
        for (_, cached) in open {
            if fits() {
                break;
            }
            // Whoever is being read or written is used right now; they make room themselves when they are done.
            if cached.path != kept
                && let Some(mut content) = cached.content.try_write()
                && let Content::Open(_) = &*content
            {
                *content = Content::Closed;
                self.count(&cached, 0);
            }
        }
        // Nobody else can have one of which only the map knows.
        self.books.lock().retain(|_, cached| {
            let is_used = 1 < Arc::strong_count(cached) || cached.news.receiver_count() > 0;
            is_used || !matches!(cached.content.try_read().as_deref(), Some(Content::Closed))
        });
    }
}

impl From<store::Error> for Error {
    fn from(err: store::Error) -> Self {
        match err {
            store::Error::Malformed(_) | store::Error::TooManyFiles => Self::Agent(err.to_string()),
            store::Error::Write { path, source } => Self::Points { path, source },
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(err) => Err(Error::Thread(err.to_string())),
    }
}

/// Returns where a run's points are kept.
pub(crate) fn points_file(directory: &Path, id: RunId) -> PathBuf {
    directory.join(format!("{id}.points"))
}
