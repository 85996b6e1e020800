//! What can be looked at before a training: eight of its pictures as they are and as augmentation
//! shows them to the network, and the layers that it would have. A short job of whoever asks
//! finds out, with the configuration that the training would get.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    Error, Layers, Models, NewModel, Result,
    artifacts::{MAX_INDEX_LENGTH, last_words},
    evaluation::layers,
    log_directory, prediction, request,
};
use lyceum_model::{Dataset, DatasetState, Job, JobId, Resources, files::RawPath};

use crate::{files::FileContent, jobs::JobRequest, sessions::Actor};

/// As many pictures as the trainer draws.
const SAMPLES: usize = 8;

/// What has been found out so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    /// Whether its job has not ended.
    pub is_live: bool,
    /// Why something of it is missing.
    pub detail: String,
    pub samples: Vec<Sample>,
    /// They come after the samples.
    pub layers: Option<Layers>,
}

/// An image of the training split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = PreviewSample)]
pub struct Sample {
    /// Path in the dataset's manifest.
    pub path: String,
    /// Class of the image; classification only.
    pub label: Option<String>,
}

/// Which of the two drawings of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Original(u8),
    Augmented(u8),
}

impl Side {
    /// By its word in addresses: `original-0` to `augmented-7`.
    pub fn parse(word: &str) -> Option<Self> {
        let (side, number) = word.split_once('-')?;
        let number = number.parse().ok().filter(|number| usize::from(*number) < SAMPLES)?;
        match side {
            "original" => Some(Self::Original(number)),
            "augmented" => Some(Self::Augmented(number)),
            _ => None,
        }
    }

    fn file(self) -> String {
        match self {
            Self::Original(number) => format!("preview/original-{number}.png"),
            Self::Augmented(number) => format!("preview/augmented-{number}.png"),
        }
    }
}

impl Models {
    /// Has a job look at what a training would be; the answer comes later, under the job's id.
    pub async fn preview(&self, actor: Actor<'_>, dataset: &Dataset, new: NewModel) -> Result<Job> {
        if dataset.state != DatasetState::Ready {
            return Err(Error::Conflict("the dataset is not ready yet"));
        }
        let checked = request::check(dataset, new).map_err(Error::Invalid)?;
        let name: String = format!("preview {}", checked.name).chars().take(64).collect();
        let asked = JobRequest {
            name: Some(name),
            script: Some(request::preview_script(&checked)),
            variables: Some(self.variables()),
            environment: checked.size.environment,
            group: checked.size.group,
            resources: Some(Resources { cpus: 2, memory_bytes: 3 << 30, ..Resources::default() }),
            time_limit_seconds: Some(prediction::TIMEOUT),
            is_helper: true,
            ..JobRequest::default()
        };
        Ok(self.jobs.submit(actor, asked, None).await?)
    }

    /// What a job of theirs has found out so far.
    pub async fn previewed(&self, actor: Actor<'_>, id: JobId) -> Result<Preview> {
        let job = self.jobs.own(actor, id).await?;
        let samples = self.found(actor, &job, "preview.json").await?.map(|bytes| samples(&bytes)).unwrap_or_default();
        let layers = self.found(actor, &job, "layers.json").await?.and_then(|bytes| layers(&bytes));
        let is_live = job.latest.state.is_live();
        let mut detail = String::new();
        if !is_live && layers.is_none() {
            let said = last_words(&self.jobs.log_tail(&job, None, 16 * 1024).await?);
            detail = said.or(job.latest.detail).unwrap_or_else(|| "see the log of the job".to_owned());
        }
        Ok(Preview { is_live, detail, samples, layers })
    }

    /// A drawing, as the trainer wrote it: to be drawn anew before a browser sees it.
    pub async fn preview_drawing(&self, actor: Actor<'_>, id: JobId, side: Side) -> Result<Vec<u8>> {
        let job = self.jobs.own(actor, id).await?;
        Ok(self.found(actor, &job, &side.file()).await?.ok_or(Error::NotFound)?.into_bytes())
    }

    async fn found(&self, actor: Actor<'_>, job: &Job, name: &str) -> Result<Option<FileContent>> {
        let directory = log_directory(&self.home(actor.user).await?, job);
        let path = RawPath::from(Path::new(&directory).join(name).as_path());
        Ok(match Path::new(name).extension() {
            Some(end) if end == "json" => self.files.read_json(actor.user, &path, MAX_INDEX_LENGTH).await?,
            _ => self.files.read_whole(actor.user, &path, MAX_INDEX_LENGTH).await?,
        })
    }
}

fn samples(bytes: &[u8]) -> Vec<Sample> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Answer {
        samples: Vec<Sample>,
    }
    let mut found: Answer = serde_json::from_slice(bytes).unwrap_or_default();
    found.samples.truncate(SAMPLES);
    found.samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_by_their_words() {
        assert_eq!(Side::parse("original-0").unwrap().file(), "preview/original-0.png");
        assert_eq!(Side::parse("augmented-7"), Some(Side::Augmented(7)));
        for bad in ["", "original", "original-8", "original--1", "../x-1", "augmented-../1"] {
            assert_eq!(Side::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn samples_as_the_trainer_lists_them() {
        let text = br#"{"samples": [{"path": "a.png", "label": "cat", "boxes": null, "original": "original-0.png"},
            {"path": "b.png", "label": null}], "augmentation": {}}"#;
        let found = samples(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].path.as_str(), found[0].label.as_deref(), &found[1].label), ("a.png", Some("cat"), &None));
        assert!(samples(b"x").is_empty());
    }
}
