//! Datasets of pictures: what a training reads. The service writes a row, has a job build the
//! dataset as its owner, and looks at what came of it through the files agent of whoever looks,
//! so that visibility here never opens a file that Unix keeps closed. `build` is what the job
//! runs and knows nothing of the portal; `browse` and `preview` make lists and small pictures.

pub mod browse;
pub use lyceum_datasets as build;
mod contents;
pub mod preview;
mod request;
mod settings;

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;

use lyceum_db::{self as db, Db, audit::Entry, datasets::DatasetFilter, idempotency::IdempotentRequest};
use lyceum_model::{
    Clock, Dataset, DatasetId, DatasetState, DescriptionChanges, EndReason, FieldError, Job, Role, User,
    dataset::Outcome, job::Visibility,
};

use crate::{
    files::{self, Files},
    jobs::{self, JobRequest, Jobs},
    sessions::Actor,
};
use build::{document::Document, inspect::Inspection, spec::Spec};

pub use contents::{Contents, ContentsError};
pub use request::NewDataset;
pub use settings::Config;

/// What the service is made of.
pub struct Datasets {
    db: Db,
    clock: Clock,
    jobs: Arc<Jobs>,
    files: Arc<Files>,
    /// The program that builds: our own, in a place that workloads may run.
    program: PathBuf,
    config: Config,
    cache: Mutex<contents::ManifestCache>,
    reading: contents::ReadLocks,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("dataset not found")]
    NotFound,
    #[error("invalid dataset request")]
    Invalid(Vec<FieldError>),
    /// The dataset is not in a state that allows this; the sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    /// Its files are not what a builder writes.
    #[error("{0}")]
    Wrong(ContentsError),
    #[error("the files of the dataset cannot be reached")]
    Files(#[from] files::Error),
    #[error("the build job could not be submitted")]
    Jobs(#[from] jobs::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Datasets {
    #[must_use]
    pub fn new(jobs: Arc<Jobs>, files: Arc<Files>, program: PathBuf, config: Config) -> Arc<Self> {
        let (db, clock) = (jobs.db.clone(), jobs.sessions.clock.clone());
        Arc::new(Self {
            db,
            clock,
            jobs,
            files,
            program,
            config,
            cache: Mutex::default(),
            reading: contents::ReadLocks::default(),
        })
    }

    /// Writes a dataset down and has it built. Asked twice with one key it is the same one.
    pub async fn make(&self, actor: Actor<'_>, new: NewDataset, once: Option<(&str, &str)>) -> Result<Dataset> {
        let user = actor.user;
        if let Some(earlier) = self.made_earlier(user, once).await? {
            return Ok(earlier);
        }
        let (spec, name, size) = request::check(self, user, new).await?;
        let now = self.clock.now();
        let dataset = Dataset {
            id: DatasetId::new(),
            owner: user.id,
            owner_name: user.name.to_string(),
            name,
            kind: word(&spec.kind),
            source: spec.source.name().to_owned(),
            directory: spec.output.to_string_lossy().into_owned(),
            state: DatasetState::Building,
            detail: String::new(),
            job: None,
            visibility: Visibility::Private,
            notes: String::new(),
            manifest_sha256: String::new(),
            pictures: 0,
            broken: 0,
            classes: 0,
            created_at: now,
            changed_at: now,
        };
        let (subject, detail) = (dataset.id.to_string(), format!("{} in {}", dataset.name, dataset.directory));
        let noted =
            Entry { at: now, actor: user.name.as_str(), action: "dataset.make", subject: &subject, detail: &detail };
        let text = serde_json::to_string(&spec).expect("a specification is plain data");
        let remembered = once.map(|(key, request_hash)| IdempotentRequest { user: user.id, key, request_hash });
        match self.db.add_dataset(&dataset, &text, remembered, &noted).await {
            Ok(()) => {}
            Err(db::Error::Unique) => {
                return self.made_earlier(user, once).await?.ok_or(Error::Conflict(
                    "another request created a dataset in the same directory at the same time",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        self.submit(actor, &dataset, &spec, size).await
    }

    async fn made_earlier(&self, user: &User, once: Option<(&str, &str)>) -> Result<Option<Dataset>> {
        let Some((key, hash)) = once else { return Ok(None) };
        match self.db.find_idempotent(user.id, key).await? {
            None => Ok(None),
            Some(earlier) if earlier.request_hash == hash => {
                let id = earlier.created_id.parse().map_err(|_err| db::Error::Stored("dataset id"))?;
                self.db.find_dataset(id).await?.map(Some).ok_or(Error::NotFound)
            }
            Some(_) => Err(Error::Conflict("this idempotency key was used for a different request; use a new key")),
        }
    }

    /// Says what a source would be read as, found as this person by the program that builds. Nothing is kept.
    pub async fn inspect(&self, user: &User, new: NewDataset) -> Result<Inspection> {
        let spec = request::check_source(self, user, new).await?;
        let text = serde_json::to_string(&spec).expect("a specification is plain data");
        let path =
            spec.source.clone().paths_mut().next().map(|(_, path)| path.display().to_string()).unwrap_or_default();
        let wrong = |words: &str| {
            let plain: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect();
            Error::Invalid(vec![FieldError::new("spec.source.path", "invalid_value", request::sentence(&plain))])
        };
        let found = self.files.inspect_dataset(user, text, &path).await?.map_err(|words| wrong(&words))?;
        serde_json::from_str(&found).map_err(|_not_ours| wrong("the preview could not be read"))
    }

    /// Asks for the job. Where it is refused, the dataset is one that failed, with the reason.
    async fn submit(&self, actor: Actor<'_>, dataset: &Dataset, spec: &Spec, size: JobRequest) -> Result<Dataset> {
        let text = serde_json::to_string(spec).expect("a specification is plain data");
        let command = [&*self.program.to_string_lossy(), "dataset", "build"].map(str::to_owned).to_vec();
        let request = JobRequest {
            name: Some(request::job_name(&dataset.name)),
            command: Some(command),
            variables: Some([(build::command::VARIABLE.to_owned(), text)].into()),
            is_helper: true,
            ..size
        };
        // One job for each time that it is asked for, however often a crash comes between.
        let key = format!("dataset {} {}", dataset.id, dataset.changed_at);
        match self.jobs.submit(actor, request, Some(&key)).await {
            Ok(job) => {
                self.db.set_dataset_job(dataset.id, job.id, self.clock.now()).await?;
            }
            Err(error) => {
                let outcome = Outcome::Failed("The build job was rejected.".to_owned());
                self.db.settle_dataset(dataset.id, &outcome, self.clock.now()).await?;
                return Err(error.into());
            }
        }
        self.db.find_dataset(dataset.id).await?.ok_or(Error::NotFound)
    }

    /// A dataset that this person may look at, with its state as it is by now.
    pub async fn find(&self, actor: Actor<'_>, id: DatasetId) -> Result<Dataset> {
        let found = self.db.find_dataset(id).await?.ok_or(Error::NotFound)?;
        let user = actor.user;
        if found.owner != user.id && user.role < Role::Operator && !self.db.dataset_is_shown(id, user.id).await? {
            return Err(Error::NotFound);
        }
        self.settled(found).await
    }

    /// One's own; that it can be seen is not enough.
    pub async fn own(&self, actor: Actor<'_>, id: DatasetId) -> Result<Dataset> {
        let found = self.find(actor, id).await?;
        if found.owner == actor.user.id { Ok(found) } else { Err(Error::NotFound) }
    }

    /// Lists datasets, each with the value that the list is sorted by.
    pub async fn list(&self, filter: DatasetFilter<'_>) -> Result<Vec<(Dataset, String)>> {
        let mut listed = Vec::new();
        for (found, sorted) in self.db.list_datasets(filter).await? {
            listed.push((self.settled(found).await?, sorted));
        }
        Ok(listed)
    }

    /// Looks what came of a build whose job has ended. Nobody needs to know before somebody asks.
    async fn settled(&self, dataset: Dataset) -> Result<Dataset> {
        if dataset.state != DatasetState::Building {
            return Ok(dataset);
        }
        let now = self.clock.now();
        let outcome = match dataset.job {
            // Between the row and the job is a moment; where it lasts, the portal was killed in it.
            None if now < dataset.changed_at.plus_seconds(120) => return Ok(dataset),
            None => Outcome::Failed(
                "The portal stopped before the build job was submitted. Build the dataset again.".to_owned(),
            ),
            Some(id) => match self.db.find_job(id).await? {
                Some(job) if job.latest.state.is_live() => return Ok(dataset),
                job => match self.outcome(&dataset, job.as_ref()).await {
                    Ok(outcome) => outcome,
                    // Its files cannot be reached now; the next one who asks will see.
                    Err(Error::Files(error)) => {
                        tracing::info!(
                            error = &error as &dyn std::error::Error,
                            "files of a dataset unreachable; its state stays building"
                        );
                        return Ok(dataset);
                    }
                    Err(error) => return Err(error),
                },
            },
        };
        self.db.settle_dataset(dataset.id, &outcome, now).await?;
        self.db.find_dataset(dataset.id).await?.ok_or(Error::NotFound)
    }

    async fn outcome(&self, dataset: &Dataset, job: Option<&Job>) -> Result<Outcome> {
        let owner = self.db.find_user(dataset.owner).await?.ok_or(Error::NotFound)?.user;
        let spec = self.spec(dataset).await?;
        if let Some(document) = self.document(&owner, dataset).await?.filter(|document| document.spec == spec) {
            let counts = document.counts;
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            return Ok(Outcome::Ready {
                manifest_sha256: document.manifest_sha256.chars().take(64).collect(),
                pictures: number(counts.train.saturating_add(counts.val).saturating_add(counts.test)),
                broken: number(counts.broken.saturating_add(counts.duplicate).saturating_add(counts.left_out)),
                classes: i64::try_from(document.classes.len()).unwrap_or(i64::MAX),
            });
        }
        let Some(job) = job else {
            return Ok(Outcome::Failed("The build job was deleted before the dataset was complete.".to_owned()));
        };
        if let Some(EndReason::StoppedByOwner | EndReason::StoppedByAdmin) = job.latest.end_reason {
            return Ok(Outcome::Cancelled);
        }
        let log = self.jobs.log_tail(job, None, 16 * 1024).await?;
        Ok(Outcome::Failed(last_words(&log).or_else(|| job.latest.detail.clone()).unwrap_or_default()))
    }

    /// What was asked for.
    pub async fn spec(&self, dataset: &Dataset) -> Result<Spec> {
        let text = self.db.dataset_spec(dataset.id).await?.ok_or(Error::NotFound)?;
        serde_json::from_str(&text).map_err(|_err| Error::Db(db::Error::Stored("dataset's specification")))
    }

    /// Asks for the end of the build; one that has ended already is fine. What was done is kept.
    pub async fn cancel(&self, actor: Actor<'_>, id: DatasetId) -> Result<Dataset> {
        let dataset = self.own(actor, id).await?;
        if let Some(job) = dataset.job.filter(|_| dataset.state == DatasetState::Building) {
            self.jobs.cancel(actor, job).await?;
        }
        self.find(actor, id).await
    }

    /// Builds one again that failed or was cancelled. It goes on where it was.
    pub async fn build_again(&self, actor: Actor<'_>, id: DatasetId) -> Result<Dataset> {
        let dataset = self.own(actor, id).await?;
        let spec = self.spec(&dataset).await?;
        let size = match dataset.job {
            Some(job) => match self.jobs.own(actor, job).await {
                Ok(job) => request::size_of(&job),
                Err(jobs::Error::NotFound) => request::usual_size(),
                Err(error) => return Err(error.into()),
            },
            None => request::usual_size(),
        };
        if !self.db.rebuild_dataset(id, self.clock.now()).await? {
            return Err(Error::Conflict("the dataset is already complete or is being built"));
        }
        let dataset = self.db.find_dataset(id).await?.ok_or(Error::NotFound)?;
        self.submit(actor, &dataset, &spec, size).await
    }

    /// Changes what its owner says of it.
    pub async fn change(&self, actor: Actor<'_>, id: DatasetId, changes: DescriptionChanges) -> Result<Dataset> {
        self.own(actor, id).await?;
        let changes = changes.check().map_err(Error::Invalid)?;
        if !self.db.change_dataset(id, &changes, self.clock.now()).await? {
            return Err(Error::NotFound);
        }
        self.find(actor, id).await
    }

    /// Forgets a dataset, and deletes its directory where that is wished.
    pub async fn remove(&self, actor: Actor<'_>, id: DatasetId, with_files: bool) -> Result<()> {
        let dataset = self.own(actor, id).await?;
        if dataset.state == DatasetState::Building {
            return Err(Error::Conflict("the dataset is being built; cancel the build first"));
        }
        if with_files {
            self.delete_files(actor.user, &dataset).await?;
        }
        let (subject, detail) = (id.to_string(), format!("{} in {}", dataset.name, dataset.directory));
        let (at, actor) = (self.clock.now(), actor.user.name.as_str());
        let noted = Entry { at, actor, action: "dataset.remove", subject: &subject, detail: &detail };
        if self.db.remove_dataset(id, &noted).await? { Ok(()) } else { Err(Error::NotFound) }
    }

    /// What its directory says of it; nothing where there is none yet.
    pub async fn document(&self, user: &User, dataset: &Dataset) -> Result<Option<Document>> {
        contents::document(&self.files, user, dataset).await
    }
}

/// What the builder said last, in its own words.
fn last_words(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let last = text.rsplit_once("lyceum: ").map(|(_, last)| last)?;
    let plain: String = last.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect();
    Some(plain.trim().to_owned()).filter(|words| !words.is_empty())
}

/// A value that is one word in JSON.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_builder() {
        let log = b"listing the source\nread 3 of 9\nlyceum: /home/ada/x: it ends\nafter 9\n";
        assert_eq!(last_words(log).unwrap(), "/home/ada/x: it ends after 9");
        assert_eq!(last_words(b"Killed\n"), None);
    }
}
