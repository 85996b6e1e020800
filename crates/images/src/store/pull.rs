//! One pull, from a reference to a stored image: resolve, verify the signature, download the layers that are
//! missing, unpack, commit. Requests for the same image join the pull that is in progress; pulls of different
//! images share the layers that they have in common, also between processes.

use std::{
    fs, io,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Image, Inner, RootForm, Store, blocking,
    lock::{Hold, lock},
};
use crate::{
    config::ImageConfig,
    digest::Digest,
    error::{Error, Result},
    manifest::{Blob, Document, Kind, Manifest},
    platform::Platform,
    progress::{Meter, Progress, State},
    reference::Reference,
    registry::{Part, Session},
    settings::Access,
    signature::{self, PublicKey},
};

const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Says what to pull, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PullRequest {
    pub reference: Reference,
    /// This machine's, unless set.
    pub platform: Platform,
    /// [`RootForm::Directory`], unless set.
    pub form: RootForm,
    pub access: Access,
    /// Asks the registry also for an image that is stored, which proves that the credentials suffice for it.
    pub always_ask: bool,
    /// Accepts only an image that was signed with this key.
    pub require_signature: Option<PublicKey>,
}

impl PullRequest {
    pub fn new(reference: Reference) -> Self {
        Self {
            reference,
            platform: Platform::host(),
            form: RootForm::default(),
            access: Access::default(),
            always_ask: false,
            require_signature: None,
        }
    }

    /// Returns the digest or the tag to ask for.
    pub(super) fn name(&self) -> String {
        match self.reference.digest() {
            Some(digest) => digest.to_string(),
            None => self.reference.tag().unwrap_or("latest").to_owned(),
        }
    }
}

/// Two requests with the same key are one pull. Credentials are part of it: a pull never lends them to another user.
pub(super) type Key = PullRequest;

/// A pull in progress, or one that ended. Clones belong to the same pull.
#[derive(Debug, Clone)]
pub struct Pull {
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) cancel: CancellationToken,
}

impl Pull {
    /// Returns a receiver of the progress; its last value is [`State::Ready`] or [`State::Failed`].
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Ends the pull for all who wait for it. What was downloaded is kept.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the end.
    pub async fn wait(&self) -> Result<Arc<Image>, Arc<Error>> {
        let mut progress = self.progress.clone();
        let is_end = |progress: &Progress| matches!(progress.state, State::Ready(_) | State::Failed(_));
        match progress.wait_for(is_end).await.map(|last| last.state.clone()) {
            Ok(State::Ready(image)) => Ok(image),
            Ok(State::Failed(error)) => Err(error),
            _ => Err(Arc::new(Error::Interrupted)),
        }
    }
}

impl Store {
    /// Starts a pull, or joins the one of the same request. Must be called within a Tokio runtime.
    pub fn pull(&self, request: PullRequest) -> Pull {
        let mut running = self.0.running.lock();
        if let Some(pull) = running.get(&request).filter(|pull| !pull.cancel.is_cancelled()) {
            return pull.clone();
        }
        let (meter, progress) = Meter::new();
        let pull = Pull { progress, cancel: CancellationToken::new() };
        running.insert(request.clone(), pull.clone());
        let work = Work { store: self.0.clone(), request, meter: meter.clone(), cancel: pull.cancel.clone() };
        tokio::spawn(async move {
            let outcome = tokio::select! {
                outcome = work.run() => outcome,
                () = work.cancel.cancelled() => Err(Error::Cancelled),
            };
            work.forget();
            if let Err(error) = &outcome {
                tracing::warn!(reference = %work.request.reference, %error, "image pull failed");
            }
            meter.end(State::of(outcome));
        });
        pull
    }
}

struct Work {
    store: Arc<Inner>,
    request: PullRequest,
    meter: Meter,
    cancel: CancellationToken,
}

/// What a reference led to.
struct Found {
    document: Document,
    manifest: Manifest,
    index: Option<Digest>,
}

impl Work {
    /// Lets the next request begin a new pull.
    fn forget(&self) {
        let mut running = self.store.running.lock();
        // A pull that was cancelled may have been replaced already.
        if running.get(&self.request).is_some_and(|pull| pull.cancel.is_cancelled() == self.cancel.is_cancelled()) {
            running.remove(&self.request);
        }
    }

    async fn run(&self) -> Result<Image> {
        let began = Instant::now();
        let request = &self.request;
        if let Some(image) = self.stored()? {
            return Ok(image);
        }
        let session = self.store.registry.session(&request.reference, &request.access)?;
        let found = self.find(&session).await?;
        let mut signed_by = Vec::new();
        if let Some(key) = &request.require_signature {
            let digests = found.index.into_iter().chain([found.document.digest]);
            signature::verify(&session, digests, key).await?;
            signed_by.push(key.fingerprint());
        }
        let (_image, stored) = self.store.claim(found.document.digest, &request.platform, request.form).await?;
        if let Some(mut image) = stored {
            if matches!(request.access, Access::Site) {
                Inner::open_to_all(&image)?;
            }
            for key in signed_by {
                Inner::add_signature(&mut image, key)?;
            }
            return Ok(image);
        }
        let path = self.store.path("locks").join("blobs");
        let _blobs = lock(&path, Hold::Shared).await.map_err(|err| Error::disk("lock", &path, err))?;
        let what = format!("the configuration of {}", request.reference);
        let limit = self.store.settings.limits.document_bytes;
        let config_bytes = session.small_blob(found.manifest.config, limit, &what).await?;
        let (config, platform, _) = ImageConfig::parse(&config_bytes)?;
        if !request.platform.is_like(&platform) {
            return Err(self.wrong_platform(vec![platform.to_string()]));
        }
        let download_bytes =
            found.manifest.download_bytes(&request.reference.to_string(), &self.store.settings.limits)?;
        let image = Image {
            digest: found.document.digest,
            index: found.index,
            platform: request.platform.clone(),
            name: request.reference.to_string(),
            form: request.form,
            config: Some(config),
            download_bytes,
            bytes: 0,
            contents: None,
            signed_by,
            directory: self.store.path("images"),
            is_closed: matches!(request.access, Access::Personal(_)),
        };
        let documents = vec![("manifest.json", found.document.bytes), ("config.json", config_bytes)];
        let outcome = self.download_and_unpack(&session, image, &found.manifest, documents).await;
        if matches!(outcome, Err(Error::DiskFull { .. })) {
            self.discard(&found.manifest).await;
        }
        let image = outcome?;
        let seconds = began.elapsed().as_secs_f64();
        tracing::info!(reference = %request.reference, digest = %image.digest, bytes = download_bytes, seconds, "image pulled");
        Ok(image)
    }

    /// Returns the image that a digest names, if it is stored and its signature was verified before.
    fn stored(&self) -> Result<Option<Image>> {
        let Some(digest) = self.request.reference.digest().filter(|_| !self.request.always_ask) else {
            return Ok(None);
        };
        let key = self.request.require_signature.as_ref().map(PublicKey::fingerprint);
        let found = self.store.take(digest, &self.request.platform, self.request.form)?;
        Ok(found.filter(|image| key.is_none_or(|key| image.signed_by.contains(&key))))
    }

    async fn find(&self, session: &Session) -> Result<Found> {
        let (request, limits) = (&self.request, &self.store.settings.limits);
        let reference = request.reference.to_string();
        let document = session.document(&request.name()).await?;
        let entries = match document.kind(&reference, limits)? {
            Kind::Image(manifest) => return Ok(Found { document, manifest, index: None }),
            Kind::Index(entries) => entries,
        };
        let chosen = request.platform.choose(&entries).map_err(|available| self.wrong_platform(available))?;
        let digest: Digest = chosen.digest().as_ref().parse()?;
        let index = Some(document.digest);
        let document = session.document(&digest.to_string()).await?;
        match document.kind(&reference, limits)? {
            Kind::Image(manifest) => Ok(Found { document, manifest, index }),
            Kind::Index(_) => Err(Error::Malformed {
                what: format!("the manifest of {reference}"),
                reason: "it lists an index within an index".to_owned(),
            }),
        }
    }

    fn wrong_platform(&self, available: Vec<String>) -> Error {
        let wanted = self.request.platform.to_string();
        Error::Platform { reference: self.request.reference.to_string(), wanted, available }
    }

    /// Downloads what is missing and makes the image. A stored layer that turns out to be damaged is downloaded again,
    /// once.
    async fn download_and_unpack(
        &self,
        session: &Session,
        image: Image,
        manifest: &Manifest,
        documents: Vec<(&'static str, Vec<u8>)>,
    ) -> Result<Image> {
        let mut repaired = false;
        loop {
            self.download(session, manifest, image.download_bytes).await?;
            self.meter.begin(State::Unpacking, Some(manifest.layers.iter().map(|layer| layer.size).sum()));
            let outcome =
                self.store.assemble(image.clone(), manifest, documents.clone(), &self.meter, &self.cancel).await;
            match outcome {
                Err(Error::Damaged { digest }) => {
                    tracing::warn!(%digest, "stored layer damaged; removing it");
                    let path = self.store.blob_path(digest);
                    fs::remove_file(&path).map_err(|err| Error::disk("remove", path, err))?;
                    if repaired {
                        return Err(Error::Damaged { digest });
                    }
                    repaired = true;
                }
                outcome => return outcome,
            }
        }
    }

    async fn download(&self, session: &Session, manifest: &Manifest, total: u64) -> Result<()> {
        self.meter.begin(State::Pulling, Some(total));
        let layers = manifest.distinct_layers();
        let is_stored =
            |blob: &Blob| fs::metadata(self.store.blob_path(blob.digest)).is_ok_and(|found| found.len() == blob.size);
        let needed = layers.iter().filter(|blob| !is_stored(blob)).map(|blob| blob.size).sum();
        let free = free_bytes(&self.store.directory)?;
        if needed > free {
            return Err(Error::Space { path: self.store.directory.clone(), needed, free });
        }
        stream::iter(layers.into_iter().map(|blob| self.blob(session, blob)))
            .buffer_unordered(self.store.settings.parallel.max(1))
            .try_collect::<()>()
            .await
    }

    /// Makes sure that a blob is stored.
    async fn blob(&self, session: &Session, blob: Blob) -> Result<()> {
        let (stored, partial) = (self.store.blob_path(blob.digest), self.store.part_path(blob.digest));
        let is_stored = || match fs::metadata(&stored) {
            Ok(found) if found.len() == blob.size => {
                let touched =
                    fs::File::options().write(true).open(&stored).and_then(|file| file.set_modified(SystemTime::now()));
                touched.map(|()| true).map_err(|err| Error::disk("write", &stored, err))
            }
            Ok(_) => fs::remove_file(&stored).map(|()| false).map_err(|err| Error::disk("remove", &stored, err)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(Error::disk("read", &stored, err)),
        };
        if !is_stored()? {
            let file = lock(&partial, Hold::Alone).await.map_err(|err| Error::disk("lock", &partial, err))?;
            // The previous holder of the lock may have completed the blob.
            if is_stored()? {
                fs::remove_file(&partial).map_err(|err| Error::disk("remove", &partial, err))?;
            } else {
                // The lock is on the open file, which this second handle shares.
                let again = file.try_clone().map_err(|err| Error::disk("open", &partial, err))?;
                let path = partial.clone();
                let part = blocking(move || Part::resume(again, path, blob.size)).await?;
                self.meter.add(part.written());
                session.download(blob, part, &self.meter).await?;
                fs::rename(&partial, &stored).map_err(|err| Error::disk("store", &stored, err))?;
                return Ok(());
            }
        }
        self.meter.add(blob.size);
        Ok(())
    }

    /// Removes what this pull left on a disk that is full, except what another pull is writing.
    async fn discard(&self, manifest: &Manifest) {
        for layer in manifest.distinct_layers() {
            let path = self.store.part_path(layer.digest);
            // A thread of this pull may still be closing its file.
            let Ok(Ok(_held)) = tokio::time::timeout(DISCARD_TIMEOUT, lock(&path, Hold::Alone)).await else { continue };
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "partial layer not removed");
            }
        }
    }
}

/// Returns how many bytes this process may still write.
pub(super) fn free_bytes(path: &std::path::Path) -> Result<u64> {
    let found = rustix::fs::statvfs(path).map_err(|err| Error::disk("look at", path, err))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
