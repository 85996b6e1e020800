//! Models: what a training job trains on a dataset. The service writes a row, has the trainer run
//! as a job of its owner, and reads what that leaves in its directory of logs through the files
//! agent of whoever looks, so that visibility here opens no file that Unix keeps closed. A
//! picture that a model is asked about is answered by a job as well, of whoever asks.

mod artifacts;
mod bundles;
mod curves;
mod evaluation;
mod lineage;
pub mod network_code;
mod outputs;
pub mod policy;
mod precisions;
mod prediction;
mod predictions;
mod preview;
pub mod program;
mod request;
mod scaling;
pub mod schema;
mod trials;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use lyceum_db::{self as db, Db, audit::Entry, idempotency::IdempotentRequest, models::ModelFilter};
use lyceum_model::{
    Clock, Dataset, DatasetState, DescriptionChanges, EndReason, FieldError, Job, Model, ModelId, Role, User,
    job::Visibility,
    trained::{ModelState, Trained},
};

use crate::{
    files::{self, Files},
    jobs::{self, JobRequest, Jobs},
    sessions::{Actor, is_own_environment},
};

pub use artifacts::{Answer, ClassMeasures, Confusion, Evaluation, SPLITS, Snapshot, Snapshots};
pub use bundles::{NewExport, NewImport, export_folder};
pub use curves::{Calibration, CalibrationBin, ClassCurve, Curves, Scatter};
pub use evaluation::{Layer, Layers, Thresholds};
pub use lineage::Lineage;
pub use outputs::{ImagePrediction, NumberPrediction};
pub use precisions::{NewPrecisions, Precision, PrecisionMeasurement, Precisions};
pub use prediction::{LabelSummary, NewTest, Picture, PredictionState, Progress, TrainingProgress, UnknownClass};
pub use predictions::{
    BoxPrediction, ClassPrediction, ClassScore, ClassShare, MaskPrediction, Prediction, PredictionQuery, Predictions,
    SHOWN_SCORE, ScoredBox, TrueBox,
};
pub use preview::{Preview, Sample, Side};
use request::Checked;
pub use request::{NewModel, networks, tasks};
pub use scaling::{Scaled, Scaling};
pub use trials::Trial;

/// What the service is made of.
pub struct Models {
    db: Db,
    clock: Clock,
    jobs: Arc<Jobs>,
    files: Arc<Files>,
    /// The folder that holds the trainer as a package, where every node can read it.
    trainer: PathBuf,
    /// The program that reads labels: our own, in a place that workloads may run.
    program: PathBuf,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("model not found")]
    NotFound,
    #[error("invalid model request")]
    Invalid(Vec<FieldError>),
    /// It is not in a state that allows this; the sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    #[error("the files of the model cannot be reached")]
    Files(#[from] files::Error),
    #[error("the job could not be submitted")]
    Jobs(#[from] jobs::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Models {
    #[must_use]
    pub fn new(jobs: Arc<Jobs>, files: Arc<Files>, trainer: PathBuf, program: PathBuf) -> Arc<Self> {
        let (db, clock) = (jobs.db.clone(), jobs.sessions.clock.clone());
        Arc::new(Self { db, clock, jobs, files, trainer, program })
    }

    /// Writes a model down and has it trained on a dataset that this person may see. Asked twice
    /// with one key it is the same one.
    pub async fn train(
        &self,
        actor: Actor<'_>,
        dataset: &Dataset,
        new: NewModel,
        once: Option<(&str, &str)>,
    ) -> Result<Model> {
        let user = actor.user;
        if let Some(earlier) = self.made_earlier(user, once).await? {
            return Ok(earlier);
        }
        if dataset.state != DatasetState::Ready {
            return Err(Error::Conflict("the dataset is not ready yet"));
        }
        let asked = request::check(dataset, new).map_err(Error::Invalid)?;
        let (request, name, config) = self.job_request(asked);
        // What cannot be is told before anything is written.
        let home = self.home(user).await?;
        self.jobs.rehearse(actor, request.clone()).await?;
        let parent = self.parent(actor, &config).await?;
        let model = Model { parent, ..self.untrained(user, dataset, name, &config) };
        let (subject, detail) = (model.id.to_string(), format!("{} on {}", model.name, dataset.name));
        let noted = Entry {
            at: model.created_at,
            actor: user.name.as_str(),
            action: "model.train",
            subject: &subject,
            detail: &detail,
        };
        let remembered = once.map(|(key, request_hash)| IdempotentRequest { user: user.id, key, request_hash });
        match self.db.add_model(&model, &config.to_string(), remembered, &noted).await {
            Ok(()) => {}
            Err(db::Error::Unique) => {
                let conflict =
                    Error::Conflict("another request created a model in the same directory at the same time");
                return self.made_earlier(user, once).await?.ok_or(conflict);
            }
            Err(error) => return Err(error.into()),
        }
        // One job for each model, however often a crash comes between.
        match self.jobs.submit(actor, request, Some(&format!("model {}", model.id))).await {
            Ok(job) => {
                let directory = log_directory(&home, &job);
                self.db.set_model_job(model.id, job.id, &directory, self.clock.now()).await?;
            }
            Err(error) => {
                let detail = "The training job was rejected.".to_owned();
                let refused = Trained::without_snapshots(ModelState::Failed, detail, 0);
                self.db.settle_model(model.id, &refused, self.clock.now()).await?;
                return Err(error.into());
            }
        }
        self.db.find_model(model.id).await?.ok_or(Error::NotFound)
    }

    async fn made_earlier(&self, user: &User, once: Option<(&str, &str)>) -> Result<Option<Model>> {
        let Some((key, hash)) = once else { return Ok(None) };
        match self.db.find_idempotent(user.id, key).await? {
            None => Ok(None),
            Some(earlier) if earlier.request_hash == hash => {
                let id = earlier.created_id.parse().map_err(|_err| db::Error::Stored("model id"))?;
                self.db.find_model(id).await?.map(Some).ok_or(Error::NotFound)
            }
            Some(_) => Err(Error::Conflict("this idempotency key was used for a different request; use a new key")),
        }
    }

    /// Describes a model whose training on a dataset has not begun.
    fn untrained(&self, owner: &User, dataset: &Dataset, name: String, config: &serde_json::Value) -> Model {
        let kind = config["task"].as_str().unwrap_or(&dataset.kind).to_owned();
        Model { dataset: Some(dataset.id), ..self.new_model(owner, name, kind, request::network(config)) }
    }

    /// Describes a model whose job is still to be submitted.
    fn new_model(&self, owner: &User, name: String, kind: String, network: String) -> Model {
        let now = self.clock.now();
        Model {
            id: ModelId::new(),
            owner: owner.id,
            owner_name: owner.name.to_string(),
            name,
            kind,
            network,
            directory: String::new(),
            dataset: None,
            job: None,
            parent: None,
            state: ModelState::Training,
            detail: String::new(),
            attempt: 0,
            metric: String::new(),
            best: None,
            snapshots: 0,
            speed: None,
            precisions_job: None,
            visibility: Visibility::Private,
            notes: String::new(),
            created_at: now,
            changed_at: now,
        }
    }

    /// The job of a training, with the name and the configuration of its model.
    fn job_request(&self, asked: Checked) -> (JobRequest, String, serde_json::Value) {
        let script = request::script(&asked);
        let Checked { name, config, size, .. } = asked;
        let request =
            JobRequest { name: Some(name.clone()), script: Some(script), variables: Some(self.variables()), ..size };
        (request, name, config)
    }

    /// Where Python finds the trainer, and that it looks for nothing where the job starts.
    fn variables(&self) -> std::collections::BTreeMap<String, String> {
        let trainer = self.trainer.to_string_lossy().into_owned();
        [("PYTHONPATH".to_owned(), trainer), ("PYTHONSAFEPATH".to_owned(), "1".to_owned())].into()
    }

    /// Returns the home directory of a user. Fails if it cannot be reached.
    pub(crate) async fn home(&self, user: &User) -> Result<PathBuf> {
        let roots = self.files.roots(user).await?;
        Ok(roots.first().map(|root| root.path.clone()).unwrap_or_default())
    }

    /// A model that this person may look at, with its state as it is by now.
    pub async fn find(&self, actor: Actor<'_>, id: ModelId) -> Result<Model> {
        let found = self.db.find_model(id).await?.ok_or(Error::NotFound)?;
        let user = actor.user;
        if found.owner != user.id && user.role < Role::Operator && !self.db.model_is_shown(id, user.id).await? {
            return Err(Error::NotFound);
        }
        self.settled(found).await
    }

    /// One's own; that it can be seen is not enough.
    pub async fn own(&self, actor: Actor<'_>, id: ModelId) -> Result<Model> {
        let found = self.find(actor, id).await?;
        if found.owner == actor.user.id { Ok(found) } else { Err(Error::NotFound) }
    }

    /// Lists models, each with the value that the list is sorted by.
    pub async fn list(&self, filter: ModelFilter<'_>) -> Result<Vec<(Model, String)>> {
        let mut listed = Vec::new();
        for (found, sorted) in self.db.list_models(filter).await? {
            listed.push((self.settled(found).await?, sorted));
        }
        Ok(listed)
    }

    /// The whole configuration of its training.
    pub async fn config(&self, model: &Model) -> Result<serde_json::Value> {
        let text = self.db.model_config(model.id).await?.ok_or(Error::NotFound)?;
        serde_json::from_str(&text).map_err(|_err| Error::Db(db::Error::Stored("model's configuration")))
    }

    /// Looks what came of the latest attempt of its job. Nobody needs to know before somebody asks.
    async fn settled(&self, model: Model) -> Result<Model> {
        let now = self.clock.now();
        let Some(id) = model.job else {
            // Between the row and the job is a moment; where it lasts, the portal was killed in it.
            if model.state != ModelState::Training || now < model.changed_at.plus_seconds(120) {
                return Ok(model);
            }
            let detail =
                "The portal stopped before the training job was submitted. Start the training again.".to_owned();
            return self.settle(model, Trained::without_snapshots(ModelState::Failed, detail, 0)).await;
        };
        let Some(job) = self.db.find_job(id).await? else {
            if model.state != ModelState::Training {
                return Ok(model);
            }
            let detail = "The training job was deleted before it ended.".to_owned();
            let attempt = model.attempt;
            return self.settle(model, Trained::without_snapshots(ModelState::Failed, detail, attempt)).await;
        };
        if job.latest.state.is_live() {
            return Ok(Model { state: ModelState::Training, detail: String::new(), ..model });
        }
        if model.state != ModelState::Training && model.attempt == job.attempt {
            return Ok(model);
        }
        match self.outcome(&model, &job).await {
            Ok(trained) => self.settle(model, trained).await,
            // Its files cannot be reached now; the next one who asks will see.
            Err(Error::Files(error)) => {
                tracing::info!(
                    error = &error as &dyn std::error::Error,
                    "files of a model unreachable; its state stays training"
                );
                Ok(model)
            }
            Err(error) => Err(error),
        }
    }

    async fn settle(&self, model: Model, trained: Trained) -> Result<Model> {
        self.db.settle_model(model.id, &trained, self.clock.now()).await?;
        self.db.find_model(model.id).await?.ok_or(Error::NotFound)
    }

    async fn outcome(&self, model: &Model, job: &Job) -> Result<Trained> {
        let owner = self.db.find_user(model.owner).await?.ok_or(Error::NotFound)?.user;
        let snapshots = self.snapshots(&owner, model).await?.unwrap_or_default();
        let speed = self.speed(&owner, model).await?;
        let (state, detail) = match job.latest.end_reason {
            Some(EndReason::Exited) if job.latest.exit_code == Some(0) => (ModelState::Trained, String::new()),
            Some(EndReason::StoppedByOwner | EndReason::StoppedByAdmin) => (ModelState::Stopped, String::new()),
            Some(EndReason::TimeLimit) => (ModelState::Stopped, "The time limit of the job was reached.".to_owned()),
            _ => {
                let log = self.jobs.log_tail(job, None, 16 * 1024).await?;
                let detail = artifacts::last_words(&log).or_else(|| job.latest.detail.clone());
                (ModelState::Failed, detail.unwrap_or_else(|| "See the log of the job.".to_owned()))
            }
        };
        Ok(Trained {
            state,
            detail,
            attempt: job.attempt,
            metric: snapshots.metric,
            best: snapshots.best_value,
            snapshots: i64::try_from(snapshots.snapshots.len()).unwrap_or(i64::MAX),
            speed,
        })
    }

    /// Changes what its owner says of it.
    pub async fn change(&self, actor: Actor<'_>, id: ModelId, changes: DescriptionChanges) -> Result<Model> {
        self.own(actor, id).await?;
        let changes = changes.check().map_err(Error::Invalid)?;
        if !self.db.change_model(id, &changes, self.clock.now()).await? {
            return Err(Error::NotFound);
        }
        self.find(actor, id).await
    }

    /// Forgets a model, and deletes its directory where that is wished. Its job stays.
    pub async fn remove(&self, actor: Actor<'_>, id: ModelId, with_files: bool) -> Result<()> {
        let model = self.own(actor, id).await?;
        if model.state == ModelState::Training {
            return Err(Error::Conflict("the model is being trained; cancel its job first"));
        }
        if with_files && !model.directory.is_empty() {
            self.delete_files(actor.user, &model).await?;
        }
        let (subject, detail) = (id.to_string(), format!("{} in {}", model.name, model.directory));
        let user = actor.user.name.as_str();
        let noted =
            Entry { at: self.clock.now(), actor: user, action: "model.remove", subject: &subject, detail: &detail };
        if self.db.remove_model(id, &noted).await? { Ok(()) } else { Err(Error::NotFound) }
    }

    /// The software that its training ran in, to be used in the same; for another user the site's alone.
    pub async fn environment(&self, user: &User, model: &Model) -> Result<String> {
        let job = match model.job {
            Some(job) => self.db.find_job(job).await?,
            None => None,
        };
        let its = job.and_then(|job| job.latest.spec.environment);
        Ok(environment_for(model.owner == user.id, its).unwrap_or_else(|| request::ENVIRONMENT.to_owned()))
    }
}

/// An environment that lies in its owner's folders is a program of theirs: nobody else is led to it.
fn environment_for(is_owner: bool, environment: Option<String>) -> Option<String> {
    environment.filter(|named| is_owner || !is_own_environment(named))
}

/// A job's directory of logs from the top of the file system on.
fn log_directory(home: &Path, job: &Job) -> String {
    directory_below(home, job.latest.spec.log_directory.as_deref().unwrap_or_default())
}

fn directory_below(home: &Path, below: &str) -> String {
    home.join(below.strip_prefix("~/").unwrap_or(below)).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_to_the_python_of_somebody_else() {
        let used = |is_owner, named: &str| environment_for(is_owner, Some(named.to_owned()));
        for own in ["/home/ada/venv", "~/venv", "~", "venvs/a", "./a"] {
            assert_eq!((used(true, own).as_deref(), used(false, own)), (Some(own), None), "{own}");
        }
        assert_eq!(used(false, "default").as_deref(), Some("default"));
    }
}
