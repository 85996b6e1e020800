//! The catalogue of container images: those of the configuration file, and those that administrators add. An image is
//! pulled when an administrator asks for it or a workload needs it, once however many ask. What its tag names is looked
//! up at each pull; workloads run with what the last pull found, which is noted in the database. How pulls work is
//! `lyceum_images`' business.

mod config;
mod credentials;
mod entry;
mod source;
mod storage;
mod suggestions;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use lyceum_db::{
    self as db, Db,
    audit::Entry as AuditEntry,
    images::{ImageDigest, ImageRow},
};
use lyceum_images::{
    Access, Collection, Digest, Image, Import, Platform, Pull, PullRequest, RootForm, State as PullState, Store,
};
use lyceum_model::{Clock, FieldError, Role, Timestamp, User, UserId};

use crate::auth::keys::Key;

use config::{NAME_RULE, is_name};

pub use config::{Config, Form, ListedImage};
pub use credentials::NewCredentials;
pub use entry::{Amount, Entry, Lab, Readiness, State, Work, driver_objection, lab};
pub use source::Source;
pub use storage::{Cleaning, Storage, StoredItem, Use};
pub use suggestions::{SUGGESTIONS, Suggestion, suggestion};

/// How often a pull reports how far it is, at most.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

const MAX_TITLE_LENGTH: usize = 100;

/// The images of this portal; cheap to clone.
#[derive(Clone)]
pub struct Images(Arc<Inner>);

struct Inner {
    db: Db,
    clock: Clock,
    /// Encrypts people's credentials.
    key: Key,
    config: Config,
    store: Store,
    known: watch::Sender<Vec<Entry>>,
    /// Pulls in progress, by the serial number of their image.
    pulls: Mutex<HashMap<u64, Pull>>,
    next_serial: Mutex<u64>,
    /// Held while an image is removed that stays in the catalogue: a pull begins before or after it.
    removal: tokio::sync::Mutex<()>,
}

/// An image that is to be added.
#[derive(Clone, Debug, Default)]
pub struct NewImage {
    pub name: String,
    pub title: String,
    pub reference: String,
    pub groups: Vec<String>,
    /// Only the user who adds it may use it, and it is pulled with their own credentials. Images of users who are not
    /// administrators are always private.
    pub is_private: bool,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("image not found")]
    NotFound,
    #[error("only administrators may add images")]
    Forbidden,
    #[error("invalid image")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(String),
    /// A stored source cannot be read.
    #[error("invalid source of an image: {0}")]
    Source(String),
    #[error("failed to use the store of images")]
    Store(#[from] lyceum_images::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Images {
    /// Opens the store of images, in the folder that the configuration names or else in `directory`, and finds what is
    /// stored of each image. Pulls that an earlier process left unfinished continue when their image is asked for.
    pub async fn open(config: Config, directory: PathBuf, db: Db, clock: Clock, key: Key) -> Result<Self> {
        let directory = if config.is_shared() { config.directory.clone() } else { directory };
        let settings = config.settings();
        let store = blocking(move || Store::open(directory, settings)).await?;
        let inner = Inner {
            db,
            clock,
            key,
            config,
            store,
            known: watch::Sender::new(Vec::new()),
            pulls: Mutex::default(),
            next_serial: Mutex::default(),
            removal: tokio::sync::Mutex::default(),
        };
        let images = Self(Arc::new(inner));
        let listed = images.0.config.list.clone();
        let mut entries = Vec::new();
        for one in listed {
            // Checked when the configuration was read.
            let source = one.reference.parse().map_err(Error::Source)?;
            entries.push(images.entry((one.name, one.title), source, (one.groups, None), None));
        }
        for row in images.0.db.images().await? {
            if entries.iter().any(|entry| entry.name == row.name) {
                tracing::warn!(
                    image = row.name,
                    "image is in the configuration file, which replaces the one added before"
                );
                continue;
            }
            let source = row.reference.parse().map_err(Error::Source)?;
            entries.push(images.entry((row.name, row.title), source, (row.groups, row.owner), Some(row.added_by)));
        }
        for digest in images.0.db.image_digests().await? {
            let is_it = |entry: &&mut Entry| entry.name == digest.name && entry.source.to_string() == digest.reference;
            if let Some(entry) = entries.iter_mut().find(is_it) {
                entry.stored = images.find_stored(digest.digest.parse()?).await?;
                entry.pulled_at = Some(digest.pulled_at);
            }
        }
        images.0.known.send_replace(entries);
        Ok(images)
    }

    fn entry(
        &self,
        (name, title): (String, String),
        source: Source,
        (groups, owner): (Vec<String>, Option<UserId>),
        added_by: Option<String>,
    ) -> Entry {
        let mut serial = self.0.next_serial.lock();
        *serial += 1;
        let (stored, pulled_at, ended_at, work) = (None, None, None, Work::None);
        Entry { name, title, source, groups, owner, added_by, stored, pulled_at, work, ended_at, serial: *serial }
    }

    async fn find_stored(&self, digest: Digest) -> Result<Option<Arc<Image>>> {
        let store = self.0.store.clone();
        // As the site stores them now; else as they were stored before, or imported.
        let forms = [self.0.config.form.into(), RootForm::Directory, RootForm::Squashfs, RootForm::Sif];
        let find = move || {
            let mut found = None;
            for form in forms {
                found = match found {
                    None => store.find(digest, &Platform::host(), form)?,
                    found => found,
                };
            }
            Ok(found)
        };
        Ok(blocking(find).await?.map(Arc::new))
    }

    /// Returns all images: those of the configuration file first, then those that were added.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        self.0.known.borrow().clone()
    }

    /// Returns whether the nodes of a cluster see the images.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.config.is_shared()
    }

    #[must_use]
    pub fn find(&self, name: &str) -> Option<Entry> {
        self.0.known.borrow().iter().find(|entry| entry.name == name).cloned()
    }

    /// Wakes at every change: progress, ready, failed, added, removed.
    pub fn subscribe(&self) -> watch::Receiver<Vec<Entry>> {
        self.0.known.subscribe()
    }

    /// Returns whether a workload can start in an image, and begins to pull one that is missing.
    #[must_use]
    pub fn demand(&self, name: &str) -> Readiness {
        match self.find(name) {
            None => Readiness::Never(format!("The image ‘{name}’ is no longer in the catalogue.")),
            Some(entry) => {
                if entry.state() == State::Missing {
                    self.begin_pull(name);
                }
                entry.readiness()
            }
        }
    }

    /// Returns whether a user may add images.
    #[must_use]
    pub fn may_add(&self, user: &User) -> bool {
        user.role == Role::Admin || self.0.config.per_user > 0
    }

    /// Adds an image. It is pulled when somebody asks for it.
    pub async fn add(&self, by: &User, mut new: NewImage) -> Result<Entry> {
        if !self.may_add(by) {
            return Err(Error::Forbidden);
        }
        new.is_private |= by.role != Role::Admin;
        if new.reference.trim().is_empty()
            && let Some(known) = suggestion(new.name.trim())
        {
            known.reference.clone_into(&mut new.reference);
            if new.title.is_empty() {
                known.title.clone_into(&mut new.title);
            }
        }
        let source = self.check(by, &new).await?;
        let owner = new.is_private.then_some(by.id);
        let NewImage { name, title, groups, .. } = new;
        let text = source.to_string();
        if self.find(&name).is_some() {
            return Err(taken(&name));
        }
        let now = self.0.clock.now();
        let noted = AuditEntry { at: now, actor: by.name.as_str(), action: "image.add", subject: &name, detail: &text };
        let row = ImageRow {
            name: name.clone(),
            title: title.clone(),
            reference: text.clone(),
            groups: groups.clone(),
            owner,
            added_by: by.name.to_string(),
            added_at: now,
        };
        match self.0.db.add_image(&row, &noted).await {
            Err(db::Error::Unique) => return Err(taken(&name)),
            added => added?,
        }
        let entry = self.entry((name, title), source, (groups, owner), Some(by.name.to_string()));
        self.0.known.send_modify(|all| all.push(entry.clone()));
        Ok(entry)
    }

    async fn check(&self, by: &User, new: &NewImage) -> Result<Source> {
        let mut faults = Vec::new();
        let mut fault = |field: &str, code: &str, message: &str| faults.push(FieldError::new(field, code, message));
        if !is_name(&new.name) {
            fault("name", "invalid_name", NAME_RULE);
        }
        if new.title.chars().count() > MAX_TITLE_LENGTH || new.title.contains(char::is_control) {
            fault("title", "malformed", "must be one line of at most 100 characters");
        }
        let is_admin = by.role == Role::Admin;
        let own = self.list().iter().filter(|entry| entry.owner == Some(by.id)).count();
        if !is_admin && own >= self.0.config.per_user {
            let sentence = format!("you have {own} images, which is the limit: remove one of them first");
            fault("name", "too_many", &sentence);
        }
        if new.is_private && !new.groups.is_empty() {
            let sentence = "must be empty: the image is yours alone, because only administrators add images for groups";
            let sentence = if is_admin { "must be empty: the image is to be yours alone" } else { sentence };
            fault("groups", "private", sentence);
        }
        let source = match new.reference.parse::<Source>() {
            Ok(Source::File { .. }) if !is_admin => {
                fault("reference", "not_allowed", "files of the portal's machine are for administrators alone");
                None
            }
            Ok(source) if !self.0.config.allows(&source) => {
                let allowed = self.0.config.allow.join(", ");
                fault("reference", "not_allowed", &format!("is not among the allowed repositories: {allowed}"));
                None
            }
            Ok(Source::File { .. }) if self.0.config.key.is_some() => {
                let sentence = "files cannot be used, because this site requires signed images: pull from a registry";
                fault("reference", "not_signed", sentence);
                None
            }
            Ok(source) => Some(source),
            Err(error) => {
                fault("reference", "malformed", &error);
                None
            }
        };
        for group in &new.groups {
            if self.0.db.find_quota_group(group).await?.is_none() {
                let message = format!("there is no group `{}`", group.escape_debug());
                faults.push(FieldError::new("groups", "unknown_group", message));
            }
        }
        source.filter(|_| faults.is_empty()).ok_or(Error::Invalid(faults))
    }

    /// Pulls an image, or updates it: what its tag names is looked up again. Joins a pull that is in progress.
    pub async fn pull(&self, by: &str, name: &str) -> Result<Entry> {
        let entry = self.find(name).ok_or(Error::NotFound)?;
        let text = entry.source.to_string();
        self.0.db.add_audit(self.0.clock.now(), by, "image.pull", name, &text).await?;
        self.begin_pull(name);
        self.find(name).ok_or(Error::NotFound)
    }

    /// Removes an image that an administrator added, and what is stored of it.
    pub async fn remove(&self, by: &str, name: &str) -> Result<()> {
        let entry = self.find(name).ok_or(Error::NotFound)?;
        if entry.added_by.is_none() {
            let sentence =
                format!("the image ‘{name}’ is in the configuration file: remove it there and restart the portal");
            return Err(Error::Conflict(sentence));
        }
        let text = entry.source.to_string();
        let noted =
            AuditEntry { at: self.0.clock.now(), actor: by, action: "image.remove", subject: name, detail: &text };
        if !self.0.db.remove_image(name, &noted).await? {
            let sentence =
                format!("the image ‘{name}’ is used by sessions or jobs that have not ended: end them first");
            let is_in_use = self.0.db.is_image_in_use(name).await?;
            return Err(if is_in_use { Error::Conflict(sentence) } else { Error::NotFound });
        }
        self.0.known.send_modify(|all| all.retain(|one| one.serial != entry.serial));
        let is_shared = self.list().iter().any(|one| one.source == entry.source);
        let pull = self.0.pulls.lock().remove(&entry.serial);
        if let Some(pull) = pull.filter(|_| !is_shared) {
            pull.cancel();
        }
        if let Some(image) = entry.stored
            && !self.digests_in_use().await?.contains(&image.digest)
        {
            let store = self.0.store.clone();
            blocking(move || store.remove(&image)).await?;
        }
        Ok(())
    }

    /// Begins to pull an image, unless that goes on already.
    fn begin_pull(&self, name: &str) {
        let mut begun = None;
        self.0.known.send_if_modified(|all| {
            let free = |entry: &&mut Entry| entry.name == name && entry.amount().is_none();
            let Some(entry) = all.iter_mut().find(free) else { return false };
            entry.work = Work::Pulling(Amount::default());
            begun = Some((entry.serial, entry.name.clone(), entry.source.clone(), entry.owner));
            true
        });
        let Some((serial, name, source, owner)) = begun else { return };
        tracing::info!(image = name, %source, "pulling image");
        let this = self.clone();
        tokio::spawn(async move {
            let access = match this.access(&source, owner).await {
                Ok(access) => access,
                Err(reason) => return this.change(serial, |entry| entry.work = Work::Failed(reason)),
            };
            let pull = {
                let _removal = this.0.removal.lock().await;
                if !this.list().iter().any(|entry| entry.serial == serial) {
                    return;
                }
                let pull = this.start_pull(&name, source, access);
                this.0.pulls.lock().insert(serial, pull.clone());
                pull
            };
            this.follow(serial, pull).await;
            this.0.pulls.lock().remove(&serial);
        });
    }

    fn start_pull(&self, name: &str, source: Source, access: Access) -> Pull {
        let form = self.0.config.form.into();
        match source {
            Source::Registry(reference) => {
                let require_signature = self.0.config.key.clone();
                // What is stored may have been pulled with another user's credentials.
                let always_ask = true;
                let request =
                    PullRequest { form, require_signature, access, always_ask, ..PullRequest::new(reference) };
                self.0.store.pull(request)
            }
            Source::File { path, tag } => {
                let is_private = access != Access::Site;
                self.0.store.import(Import { tag, form, is_private, ..Import::new(path, name) })
            }
        }
    }

    /// Shows how far a pull is until it ends.
    async fn follow(&self, serial: u64, pull: Pull) {
        let mut progress = pull.progress();
        loop {
            let now = progress.borrow_and_update().clone();
            let amount = Amount { bytes: now.bytes, total: now.total };
            match now.state {
                PullState::Ready(image) => return self.settle(serial, image).await,
                PullState::Failed(error) => {
                    return self.change(serial, |entry| entry.work = Work::Failed(as_sentence(&error.to_string())));
                }
                PullState::Missing | PullState::Pulling => self.change(serial, |one| one.work = Work::Pulling(amount)),
                PullState::Unpacking => self.change(serial, |one| one.work = Work::Unpacking(amount)),
            }
            if progress.changed().await.is_err() {
                let reason = lyceum_images::Error::Interrupted.to_string();
                return self.change(serial, |entry| entry.work = Work::Failed(as_sentence(&reason)));
            }
            tokio::time::sleep(REPORT_INTERVAL).await;
        }
    }

    /// Notes what a pull has found; workloads run with it from now on.
    async fn settle(&self, serial: u64, image: Arc<Image>) {
        let Some(entry) = self.list().into_iter().find(|entry| entry.serial == serial) else { return };
        let now = self.0.clock.now();
        if let Err(error) = self.note(&entry, &image, now).await {
            tracing::error!(image = entry.name, error = &error as &dyn std::error::Error, "pulled image not noted");
            let reason = "The database could not note the image. Pull it again.".to_owned();
            return self.change(serial, |entry| entry.work = Work::Failed(reason));
        }
        tracing::info!(image = entry.name, digest = %image.digest, bytes = image.bytes, "image ready");
        self.change(serial, |entry| {
            entry.stored = Some(image);
            entry.pulled_at = Some(now);
            entry.work = Work::None;
        });
        if let Err(error) = self.make_room().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "unused images not removed");
        }
    }

    async fn note(&self, entry: &Entry, image: &Image, now: Timestamp) -> db::Result<()> {
        let digest = ImageDigest {
            name: entry.name.clone(),
            reference: entry.source.to_string(),
            digest: image.digest.to_string(),
            pulled_at: now,
        };
        self.0.db.set_image_digest(&digest).await
    }

    /// Removes layers and earlier versions that do not fit the budget, and nothing that the catalogue or a workload
    /// needs.
    async fn make_room(&self) -> Result<()> {
        let in_use = self.digests_in_use().await?;
        let budget = self.0.config.budget.unsigned_abs();
        let store = self.0.store.clone();
        blocking(move || store.collect(&Collection { budget, in_use, dry_run: false })).await?;
        Ok(())
    }

    /// Returns the digests of the catalogue and of the workloads that have not ended.
    async fn digests_in_use(&self) -> Result<HashSet<Digest>> {
        let of_workloads = self.digests_of_workloads().await?;
        let stored = self.list().into_iter().filter_map(|entry| entry.stored.map(|image| image.digest));
        Ok(stored.chain(of_workloads).collect())
    }

    /// Lets the account of a user who may use an image read its files, if they are closed to others.
    pub(crate) async fn grant(&self, image: &Image, uid: u32) -> Result<(), lyceum_images::Error> {
        self.0.store.grant(image, uid).await
    }

    fn change(&self, serial: u64, change: impl FnOnce(&mut Entry)) {
        self.0.known.send_if_modified(|all| {
            let Some(entry) = all.iter_mut().find(|entry| entry.serial == serial) else { return false };
            let (work, stored) = (entry.work.clone(), entry.stored.clone());
            change(entry);
            let is_busy = |work: &Work| matches!(work, Work::Pulling(_) | Work::Unpacking(_));
            if is_busy(&work) && !is_busy(&entry.work) {
                entry.ended_at = Some(self.0.clock.now());
            }
            work != entry.work || stored != entry.stored
        });
    }
}

fn taken(name: &str) -> Error {
    Error::Conflict(format!("there is already an image ‘{name}’: choose another name, or remove it first"))
}

/// Returns an error's words with a capital letter at the front.
pub(crate) fn as_sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Runs work that blocks on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, lyceum_images::Error> + Send + 'static,
) -> Result<T, lyceum_images::Error> {
    tokio::task::spawn_blocking(work).await?
}
