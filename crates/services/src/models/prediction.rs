//! Asking a model about a picture, or a folder of them: a short job of whoever asks predicts, looks
//! inside where it is one, and its answer lies in that job's directory of logs. A picture comes as a path of theirs, or as bytes,
//! which are laid among their uploads first.

use std::path::Path;

use bytes::Bytes;
use futures_util::Stream;
use serde_json::Value;

use super::{Answer, Curves, Error, Evaluation, Models, Result, log_directory};
use lyceum_model::{
    FieldError, Model, ModelId, ModelTest, ModelTestId, Resources, User,
    files::{Kind, RawPath},
};
use lyceum_wire::protocol::files_agent::Fault;

use crate::{
    files::NewUpload,
    jobs::{self, JobRequest},
    sessions::Actor,
};

/// The largest picture that is taken in (bytes).
pub const MAX_PICTURE_SIZE: u64 = 32 << 20;
const MAX_ANSWER_LENGTH: u64 = 16 << 20;
/// The longest message about labels (bytes), and the most classes of them that are listed.
const MAX_MESSAGE_LENGTH: u64 = 64 << 10;
const MAX_UNKNOWN: usize = 100;
/// How long an answer may take (seconds): most of it is Python loading its libraries.
pub(super) const TIMEOUT: i64 = 1800;
/// How many classes are named, unless somebody says, and at most.
const TOP: u32 = 5;
const MAX_TOP: u32 = 100;

/// What somebody asks.
#[derive(Clone, Debug, Default)]
pub struct NewTest {
    /// A picture of theirs or a folder of pictures, from the top of the file system on or below `~/`.
    pub picture: String,
    /// The file below `checkpoints`; the best where nothing is said.
    pub snapshot: Option<String>,
    /// How many classes are named of each picture.
    pub top: Option<u32>,
}

/// Where the answer to a picture stands.
#[derive(Clone, Debug)]
pub struct PredictionState {
    pub test: ModelTest,
    /// Whether its job has not ended.
    pub is_live: bool,
    /// How far it has come with a folder.
    pub progress: Option<Progress>,
    /// Names the reason for a missing answer.
    pub detail: String,
    pub answer: Answer,
    /// How it did on images whose classes, boxes or masks are known, with the curves behind that.
    pub evaluation: Option<(Evaluation, Option<Curves>)>,
    /// What was found of labels beside the images of a detection or segmentation.
    pub labels: Option<LabelSummary>,
}

/// Labels that were found in a folder of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = ModelTestLabels)]
#[serde(default)]
pub struct LabelSummary {
    /// Kind of the source, as in the specification of a dataset. Empty if the labels cannot be used.
    pub source: String,
    /// Number of images that are scored.
    pub scored: u64,
    /// Number of images that are not scored. Each has its reason in `unscored`, or its `error`.
    pub unscored: u64,
    /// Number of boxes that cannot be used, for example because they are outside their image.
    pub dropped_boxes: u64,
    /// Boxes or pixels that are not scored, because the model does not have their class. At most 100 classes.
    pub unknown: Vec<UnknownClass>,
    /// Reason why nothing is scored. Empty otherwise.
    pub reason: String,
}

/// A class that the model does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = ModelTestUnknownClass)]
#[serde(default)]
pub struct UnknownClass {
    pub class: String,
    /// Number of boxes, or of pixels for a segmentation.
    pub count: u64,
}

/// Progress of a job: finished and total number of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = TestProgress)]
pub struct Progress {
    pub done: u64,
    pub of: u64,
}

/// A drawing of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// The picture itself, as the network sees it.
    Seen,
    GradCam,
    /// The predicted mask of an image of the request, by its number.
    Mask(u32),
    /// The true mask of an image of the request, by its number.
    Truth(u32),
    /// What a reconstruction made of an image of the request, by its number.
    Output(u32),
    /// The activations of a layer, by its number.
    Layer(u16),
    /// Filters or a matrix of weights, by their number.
    Weights(u16),
}

impl Picture {
    /// By its word in addresses: `seen`, `grad-cam`, `mask-`, `truth-` or `output-` and an image's number, a
    /// layer's number, or `weights-` and the number of weights.
    pub fn parse(word: &str) -> Option<Self> {
        let of_image = |number: &str| number.parse().ok().filter(|at| *at < 100_000);
        let of_layer = |number: &str| number.parse().ok().filter(|at: &u16| *at < 1000);
        match word {
            "seen" => Some(Self::Seen),
            "grad-cam" => Some(Self::GradCam),
            mask if mask.starts_with("mask-") => of_image(&mask[5..]).map(Self::Mask),
            truth if truth.starts_with("truth-") => of_image(&truth[6..]).map(Self::Truth),
            output if output.starts_with("output-") => of_image(&output[7..]).map(Self::Output),
            weights if weights.starts_with("weights-") => of_layer(&weights[8..]).map(Self::Weights),
            number => of_layer(number).map(Self::Layer),
        }
    }

    fn file(self) -> String {
        match self {
            Self::Seen => "inspection/picture.png".to_owned(),
            Self::GradCam => "inspection/grad-cam.png".to_owned(),
            Self::Mask(number) => format!("result/mask-{number:05}.png"),
            Self::Truth(number) => format!("result/truth-{number:05}.png"),
            Self::Output(number) => format!("result/output-{number:05}.png"),
            Self::Layer(number) => format!("inspection/activations/{number:03}.png"),
            Self::Weights(number) => format!("inspection/weights/{number:03}.png"),
        }
    }
}

/// Predicts, scores what is labelled, and looks inside where it is one picture; the answer appears whole or not at all.
/// Labels that cannot be used are no reason not to predict.
const SCRIPT: &str = "#!/bin/sh
# Asks a model about a picture (docs/models.md).
mkdir -p \"$LYCEUM_LOG_DIRECTORY\" && cd \"$LYCEUM_LOG_DIRECTORY\" || exit 4
set --
if [ -n \"$LABELS_PROGRAM\" ]; then
  trap 'rm -rf labels .labels.building' EXIT
  trap 'exit 143' TERM INT
  \"$LABELS_PROGRAM\" dataset evaluation \"$PICTURE\" --model \"$MODEL\" --output labels > /dev/null 2> labels.txt
  [ -f labels/dataset.json ] && set -- --labels labels
fi
python -m trainer predict \"$MODEL\" \"$PICTURE\" --top \"$TOP\" --least 0.05 --output result \"$@\" > prediction.new || exit $?
mv prediction.new prediction.json
[ -n \"$LABELS_PROGRAM\" ] && exit 0
case \"$PICTURE\" in *.[cC][sS][vV]) exit 0 ;; esac
[ -f \"$PICTURE\" ] || exit 0
exec python -m trainer inspect \"$MODEL\" \"$PICTURE\" --output inspection > /dev/null
";

impl Models {
    /// Asks a model about a picture. The answer comes later.
    pub async fn predict(&self, actor: Actor<'_>, model: &Model, new: NewTest) -> Result<ModelTest> {
        let user = actor.user;
        let fault = |field: &str, message: &str| Error::Invalid(vec![FieldError::new(field, "invalid_value", message)]);
        let there = self.snapshots(user, model).await?.unwrap_or_default();
        let Some(best) = there.best.clone().or_else(|| there.snapshots.last().map(|one| one.file.clone())) else {
            return Err(Error::Conflict("the model does not have a checkpoint yet"));
        };
        let snapshot = new.snapshot.filter(|file| !file.is_empty()).unwrap_or(best);
        if !there.snapshots.iter().any(|one| one.file == snapshot) {
            return Err(fault("snapshot", "This checkpoint does not exist. A later one may have replaced it."));
        }
        if new.picture.trim().is_empty() {
            return Err(fault("path", "Give the path of an image, or upload one."));
        }
        let (spot, entry) = match self.files.look(user, &RawPath::from(new.picture.trim())).await {
            Ok(found) => found,
            Err(crate::files::Error::Fault { fault: Fault::NotFound, .. }) => {
                return Err(fault("path", "File not found."));
            }
            Err(error) => return Err(error.into()),
        };
        if !matches!(entry.kind, Kind::File | Kind::Folder) {
            return Err(fault("path", "Must be a file or a folder."));
        }
        let top = new.top.unwrap_or(TOP);
        if !(1..=MAX_TOP).contains(&top) {
            return Err(fault("top", "Must be from 1 to 100."));
        }
        let picture = std::str::from_utf8(&spot.path.0)
            .map_err(|_err| fault("path", "The name of the file is not UTF-8."))?
            .to_owned();
        let file = Path::new(&model.directory).join("checkpoints").join(&snapshot);
        let mut variables = self.variables();
        variables.insert("MODEL".to_owned(), file.to_string_lossy().into_owned());
        variables.insert("PICTURE".to_owned(), picture.clone());
        variables.insert("TOP".to_owned(), top.to_string());
        if matches!(model.kind.as_str(), "detection" | "segmentation") && may_be_labelled(entry.kind, &picture) {
            variables.insert("LABELS_PROGRAM".to_owned(), self.program.to_string_lossy().into_owned());
        }
        let name: String = format!("predict {}", model.name).chars().take(64).collect();
        let request = JobRequest {
            name: Some(name),
            script: Some(SCRIPT.to_owned()),
            variables: Some(variables),
            environment: Some(self.environment(user, model).await?),
            resources: Some(Resources { cpus: 2, memory_bytes: 3 << 30, ..Resources::default() }),
            time_limit_seconds: Some(TIMEOUT),
            is_helper: true,
            ..JobRequest::default()
        };
        let home = self.home(user).await?;
        let job = self.jobs.submit(actor, request, None).await?;
        let test = ModelTest {
            id: ModelTestId::new(),
            model: model.id,
            owner: user.id,
            job: job.id,
            snapshot,
            picture,
            directory: log_directory(&home, &job),
            created_at: self.clock.now(),
        };
        self.db.add_model_test(&test).await?;
        Ok(test)
    }

    /// Lays a picture that comes as bytes among the uploads of its owner; answers its path.
    pub async fn take_in<E>(
        &self,
        user: &User,
        name: &str,
        size_bytes: u64,
        content: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<String> {
        use crate::files::Error as Files;
        if size_bytes > MAX_PICTURE_SIZE {
            return Err(Files::TooLarge { size_bytes, limit_bytes: MAX_PICTURE_SIZE }.into());
        }
        let folder = self.home(user).await?.join("uploads");
        match self.files.make_folder(user, &RawPath::from(folder.as_path())).await {
            Ok(_) | Err(Files::Fault { fault: Fault::Exists, .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Another name each time: nothing of theirs is replaced.
        let path = folder.join(format!("{}-{name}", &uuid::Uuid::new_v4().simple().to_string()[..8]));
        let upload = NewUpload {
            path: RawPath::from(path.as_path()),
            size_bytes,
            replace: false,
            sha256: None,
            executable: false,
            key: None,
        };
        let begun = self.files.begin_upload(user, upload).await?;
        let id = begun.id.parse().map_err(|_err| Files::BrokenOff)?;
        let written = self.files.write(user, &id, 0, content).await;
        if let Err(error) = written {
            // What is there of it would never be gone on with.
            self.files.cancel_upload(user, &id).await?;
            return Err(error.into());
        }
        self.files.finish_upload(user, &id).await?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// What this person asked, the latest first.
    pub async fn model_tests(&self, user: &User, model: &Model) -> Result<Vec<ModelTest>> {
        Ok(self.db.list_model_tests(model.id, user.id, 20).await?)
    }

    /// The answer to a picture that this person asked about.
    pub async fn answer(&self, actor: Actor<'_>, id: ModelTestId) -> Result<PredictionState> {
        let test = self.db.find_model_test(id, actor.user.id).await?.ok_or(Error::NotFound)?;
        let job = match self.jobs.own(actor, test.job).await {
            Ok(job) => Some(job),
            Err(jobs::Error::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let is_live = job.as_ref().is_some_and(|job| job.latest.state.is_live());
        let read = async |name: &str| -> Result<Option<Value>> {
            let path = RawPath::from(Path::new(&test.directory).join(name).as_path());
            let found = self.files.read_json(actor.user, &path, MAX_ANSWER_LENGTH).await?;
            Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
        };
        let answer = Answer {
            prediction: read("prediction.json").await?,
            inspection: read("inspection/inspection.json").await?,
        };
        let labels = self.labels_of(actor.user, &test, answer.prediction.as_ref()).await?;
        let labelled = answer.prediction.as_ref().is_some_and(|found| found["evaluation"].is_object());
        let evaluation = if labelled { self.evaluation_of(actor.user, &test).await? } else { None };
        let mut detail = String::new();
        let mut progress = None;
        let log = match &job {
            Some(job) if answer.prediction.is_none() => Some(self.jobs.log_tail(job, None, 16 * 1024).await?),
            _ => None,
        };
        if is_live {
            progress = log.as_deref().and_then(last_progress);
        } else if answer.prediction.is_none() {
            let said = match &log {
                Some(log) => super::artifacts::last_words(log),
                None => Some("the job was deleted".to_owned()),
            };
            detail = said
                .or_else(|| job.and_then(|job| job.latest.detail))
                .unwrap_or_else(|| "see the log of the job".to_owned());
        }
        Ok(PredictionState { test, is_live, progress, detail, answer, evaluation, labels })
    }

    /// What the trainer says of the labels, or why they could not be read.
    async fn labels_of(
        &self,
        user: &User,
        test: &ModelTest,
        prediction: Option<&Value>,
    ) -> Result<Option<LabelSummary>> {
        let Some(prediction) = prediction else { return Ok(None) };
        if let Ok(mut found) = serde_json::from_value::<LabelSummary>(prediction["labels"].clone()) {
            found.unknown.truncate(MAX_UNKNOWN);
            return Ok(Some(found));
        }
        let said = self.read_in(user, Path::new(&test.directory), "labels.txt", MAX_MESSAGE_LENGTH).await?;
        let reason = said.and_then(|said| said_of_labels(&said));
        Ok(reason.map(|reason| LabelSummary { reason, ..LabelSummary::default() }))
    }

    async fn evaluation_of(&self, user: &User, test: &ModelTest) -> Result<Option<(Evaluation, Option<Curves>)>> {
        let folder = Path::new(&test.directory).join("result/evaluation");
        let Some(found) = self.evaluation_in(user, &folder, "").await? else { return Ok(None) };
        Ok(Some((found, self.curves_in(user, &folder).await?)))
    }

    /// A drawing of an answer, as the trainer wrote it: to be drawn anew before a browser sees it.
    pub async fn drawing(&self, user: &User, (model, id): (ModelId, ModelTestId), picture: Picture) -> Result<Vec<u8>> {
        let test = self.db.find_model_test(id, user.id).await?;
        let test = test.filter(|test| test.model == model).ok_or(Error::NotFound)?;
        let path = Path::new(&test.directory).join(picture.file());
        let found = self.files.read_whole(user, &RawPath::from(path.as_path()), MAX_PICTURE_SIZE).await?;
        Ok(found.ok_or(Error::NotFound)?.into_bytes())
    }
}

/// Why labels could not be read, as the program that reads them said it.
fn said_of_labels(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let words = line.trim().trim_start_matches("lyceum: ");
    Some(words.chars().filter(|letter| !letter.is_control()).take(1000).collect())
}

/// Whether labels are looked for: below a folder, or in a document that names images.
fn may_be_labelled(kind: Kind, path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    kind == Kind::Folder || ending.is_some_and(|ending| matches!(ending.as_str(), "json" | "xml"))
}

/// Progress of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = ModelTrainingProgress)]
pub struct TrainingProgress {
    /// The epoch that is being trained, from 1.
    pub epoch: u64,
    pub epochs: u64,
    /// Steps (batches) that are done, of all.
    pub step: u64,
    pub steps: u64,
    /// Estimated time to the end of the last epoch.
    pub seconds_left: f64,
}

impl Models {
    /// Returns how far a training of this user has come; `None` before its first step, and when it has ended.
    pub async fn training_progress(&self, actor: Actor<'_>, model: &Model) -> Result<Option<TrainingProgress>> {
        let (Some(job), true) = (model.job, model.owner == actor.user.id) else { return Ok(None) };
        let job = match self.jobs.own(actor, job).await {
            Ok(job) if job.latest.state.is_live() => job,
            Ok(_) | Err(jobs::Error::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(training_progress(&self.jobs.log_tail(&job, None, 16 * 1024).await?))
    }
}

/// Reads the last line of progress of a training.
fn training_progress(log: &[u8]) -> Option<TrainingProgress> {
    #[derive(serde::Deserialize)]
    struct Line {
        event: String,
        /// Epochs that are done, with the part of the one that is not.
        epoch: f64,
        epochs: u64,
        step: u64,
        steps: u64,
        seconds_left: f64,
    }
    let text = String::from_utf8_lossy(log);
    let mut lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line.trim()).ok());
    let line = lines.find(|line| line.event == "progress" && line.step <= line.steps && line.epoch >= 0.0)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of epochs")]
    let epoch = (line.epoch.ceil() as u64).clamp(1, line.epochs.max(1));
    let Line { epochs, step, steps, seconds_left, .. } = line;
    Some(TrainingProgress { epoch, epochs, step, steps, seconds_left })
}

/// How far the trainer said last that it has come with a folder: `{"event": "progress", "done": …, "of": …}`.
pub(super) fn last_progress(log: &[u8]) -> Option<Progress> {
    #[derive(serde::Deserialize)]
    struct Line {
        event: String,
        #[serde(flatten)]
        progress: Progress,
    }
    let text = String::from_utf8_lossy(log);
    let mut lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line.trim()).ok());
    lines.find(|line| line.event == "progress" && line.progress.done <= line.progress.of).map(|line| line.progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_progress_counts() {
        let log = b"Loading\n{\"event\": \"progress\", \"time\": 1.5, \"done\": 32, \"of\": 99}\n{\"event\": \"progress\", \"done\": 64, \"of\": 99}\nx\n";
        assert_eq!(last_progress(log), Some(Progress { done: 64, of: 99 }));
        assert_eq!(last_progress(b"{\"event\": \"progress\", \"done\": 2, \"of\": 1}\n{\"event\": \"done\"}"), None);
    }

    #[test]
    fn labels_are_looked_for_below_folders_and_in_documents() {
        assert!(may_be_labelled(Kind::Folder, "/data/a") && may_be_labelled(Kind::File, "/data/instances.JSON"));
        assert!(!may_be_labelled(Kind::File, "/data/a.png") && !may_be_labelled(Kind::File, "/data/list.csv"));
        let said = said_of_labels(b"warning: x\nlyceum: /data: no image has a file of boxes\n\n").unwrap();
        assert_eq!(said, "/data: no image has a file of boxes");
        assert_eq!(said_of_labels(b"\n"), None);
    }

    #[test]
    fn the_epoch_that_is_being_trained() {
        let log = b"{\"event\": \"progress\", \"step\": 5, \"steps\": 40, \"seconds_left\": 70.5, \"epochs\": 4, \"loss\": 2.5, \"epoch\": 0.5}\n\
            {\"event\": \"progress\", \"step\": 12, \"steps\": 40, \"seconds_left\": 56.0, \"epochs\": 4, \"epoch\": 1.2}\n\
            {\"event\": \"epoch\", \"epoch\": 1}\nx\n";
        let found = training_progress(log).unwrap();
        assert_eq!((found.epoch, found.epochs, found.step, found.steps), (2, 4, 12, 40));
        assert_eq!(training_progress(b"{\"event\": \"progress\", \"done\": 1, \"of\": 2}"), None);
    }

    #[test]
    fn drawings_by_their_words() {
        for (word, file) in [
            ("seen", "inspection/picture.png"),
            ("grad-cam", "inspection/grad-cam.png"),
            ("mask-12", "result/mask-00012.png"),
            ("truth-12", "result/truth-00012.png"),
            ("output-3", "result/output-00003.png"),
            ("7", "inspection/activations/007.png"),
            ("weights-12", "inspection/weights/012.png"),
        ] {
            assert_eq!(Picture::parse(word).unwrap().file(), file);
        }
        for bad in ["", "1000", "-1", "../x", "7.png", "mask-", "mask-x", "mask-100000", "weights-", "weights-1000"] {
            assert_eq!(Picture::parse(bad), None, "{bad}");
        }
    }
}
