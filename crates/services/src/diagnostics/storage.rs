//! Tests of storage: a job measures a folder of the user's, and how a training reads a dataset. It needs no GPU. What it
//! writes is bounded and removed by the Python program `diagnostics.storage`; the verdict is the model's.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use lyceum_db::diagnostics::{DiagnosticsFilter, Outcome};
use lyceum_model::{
    DatasetId, DatasetState, DiagnosticsId, FieldError, Job, Resources, User,
    diagnostics::{
        Diagnostics, FileSystem, MAX_STORAGE_SIZE, MIN_STORAGE_SIZE, RunState, STORAGE_VERSION, StorageMeasurement,
        StorageReport, StorageSubject, Subject, TrainingRate, judge_storage,
    },
};

use super::{Error, HardwareTests, MAX_PAST_RUNS, Result, failed, read_as};
use crate::{environments::short_hex, jobs::JobRequest, sessions::Actor};

/// The longest path of a folder (bytes).
const MAX_PATH_LENGTH: usize = 4096;
/// How many trainings on a dataset are looked at, the latest first.
const LATEST_TRAININGS: i64 = 200;
/// The longest text of a report that is kept (characters).
const MAX_TEXT_LENGTH: usize = 300;
const DEFAULT_CPUS: i64 = 2;

const SCRIPT: &str = "#!/bin/sh
# Measures storage (docs/gpus.md).
mkdir -p \"$LYCEUM_LOG_DIRECTORY\" && cd \"$LYCEUM_LOG_DIRECTORY\" || exit 4
exec python -m diagnostics.storage --directory \"$STORAGE_DIRECTORY\" --dataset \"$STORAGE_DATASET\" \\
  ${STORAGE_SIZE:+--size \"$STORAGE_SIZE\"} --output storage.json
";

/// A request for a test of storage. It names a folder, a dataset, or both.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewStorageTest)]
pub struct NewStorageTest {
    /// The folder to test, beginning with `/` or `~`. Files are written into a folder below it and removed.
    pub directory: Option<String>,
    /// A dataset that you can see, which is read as a training reads it.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub dataset: Option<DatasetId>,
    /// Size of the large file in bytes. Default: 1 GiB, or a tenth of the free space if that is less.
    pub size_bytes: Option<i64>,
    /// Number of cores, which is also the number of workers that read the dataset. Default: 2.
    pub cpus: Option<i64>,
    /// A software environment that can train. Default: the default environment.
    pub environment: Option<String>,
    /// The group to charge, one of your groups.
    pub group: Option<String>,
}

/// What an earlier test of a file system measured, the latest first.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DiagnosticsPastStorage)]
pub struct PastStorage {
    #[schema(value_type = String, format = "uuid")]
    pub id: DiagnosticsId,
    #[schema(value_type = String, format = "date-time")]
    pub ended_at: lyceum_model::Timestamp,
    pub measurement: StorageMeasurement,
}

impl HardwareTests {
    /// Tests storage: writes a run down and submits its job.
    pub async fn start_storage(&self, actor: Actor<'_>, new: NewStorageTest) -> Result<Diagnostics> {
        let given = |text: &Option<String>| text.as_deref().map(str::trim).unwrap_or_default().to_owned();
        let mut faults = Vec::new();
        let directory = given(&new.directory);
        faults.extend(fault_of_directory(&directory, new.dataset.is_some()));
        if new.size_bytes.is_some_and(|size| !(MIN_STORAGE_SIZE..=MAX_STORAGE_SIZE).contains(&size)) {
            faults.push(FieldError::new("size_bytes", "out_of_range", "Must be from 16 MiB to 64 GiB."));
        }
        let mut subject = StorageSubject { directory, dataset: new.dataset, dataset_name: String::new() };
        let mut dataset_folder = String::new();
        if let Some(id) = new.dataset {
            match self.datasets.find(actor, id).await {
                Ok(dataset) if dataset.state == DatasetState::Ready => {
                    (subject.dataset_name, dataset_folder) = (dataset.name, dataset.directory);
                }
                Ok(_) => faults.push(FieldError::new("dataset", "not_ready", "This dataset is not built.")),
                Err(crate::datasets::Error::NotFound) => {
                    faults.push(FieldError::new("dataset", "not_found", "You have no such dataset."));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !faults.is_empty() {
            return Err(Error::Invalid(faults));
        }
        let request = self.storage_request(&subject, dataset_folder, new);
        let detail =
            format!("storage, {}", if subject.directory.is_empty() { "a dataset" } else { &subject.directory });
        self.submit(actor, Subject::Storage(subject), request, &detail).await
    }

    fn storage_request(&self, subject: &StorageSubject, dataset_folder: String, new: NewStorageTest) -> JobRequest {
        let mut variables: std::collections::BTreeMap<String, String> = [
            ("PYTHONPATH".to_owned(), self.package.to_string_lossy().into_owned()),
            ("PYTHONSAFEPATH".to_owned(), "1".to_owned()),
            ("STORAGE_DIRECTORY".to_owned(), subject.directory.clone()),
            ("STORAGE_DATASET".to_owned(), dataset_folder),
        ]
        .into();
        variables.extend(new.size_bytes.map(|size| ("STORAGE_SIZE".to_owned(), size.to_string())));
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        // The table of a large dataset is read whole.
        let memory_bytes = if subject.dataset.is_some() { 4 << 30 } else { 1 << 30 };
        JobRequest {
            name: Some("test storage".to_owned()),
            script: Some(SCRIPT.to_owned()),
            variables: Some(variables),
            environment: given(new.environment),
            group: given(new.group),
            resources: Some(Resources {
                gpus: 0,
                gpu_model: None,
                cpus: new.cpus.unwrap_or(DEFAULT_CPUS),
                memory_bytes,
            }),
            time_limit_seconds: Some(1800),
            is_helper: true,
            ..JobRequest::default()
        }
    }

    /// Earlier tests of a file system before a run, or before now.
    pub async fn past_storage(&self, file_system: &str, before: Option<DiagnosticsId>) -> Result<Vec<PastStorage>> {
        let filter = DiagnosticsFilter { owner: None, tested: Some(file_system), before, limit: MAX_PAST_RUNS };
        let past = |run: Diagnostics| {
            Some(PastStorage { id: run.id, ended_at: run.ended_at?, measurement: run.judgement?.storage?.measurement })
        };
        Ok(self.db.list_diagnostics(filter).await?.into_iter().filter_map(past).collect())
    }

    pub(super) async fn outcome_of_storage(
        &self,
        run: &Diagnostics,
        subject: &StorageSubject,
        job: &Job,
        owner: &User,
        folder: &str,
    ) -> Result<Outcome> {
        let document = self.read(owner, folder, "storage.json").await?;
        let report = read_as::<StorageReport>(document.as_ref()).filter(|report| report.version == STORAGE_VERSION);
        let Some(report) = report else {
            let failure = self.failure(job).await?;
            return Ok(failed(if failure.is_empty() { "See the log of the job." } else { &failure }));
        };
        let Some(found) = report.file_system.clone().filter(|_| report.fault.is_empty()) else {
            return Ok(failed(&format!("{}.", kept(&report.fault).trim_end_matches('.'))));
        };
        let node = kept(&report.node);
        let file_system = identified(&found, &node);
        let past = self.past_storage(&file_system.id, Some(run.id)).await?;
        let past: Vec<StorageMeasurement> = past.iter().map(|one| one.measurement).collect();
        let training = match subject.dataset {
            Some(dataset) => self.fastest_training(owner, dataset).await?,
            None => None,
        };
        Ok(Outcome {
            state: RunState::Finished,
            detail: String::new(),
            node,
            driver: String::new(),
            judgement: Some(judge_storage(&report, file_system, &past, training)),
            results: Some(json!({ "version": 1, "storage": document }).to_string()),
        })
    }

    /// The training on a dataset that needs the most images, among those that are shown to this user.
    async fn fastest_training(&self, owner: &User, dataset: DatasetId) -> Result<Option<TrainingRate>> {
        let models = self.db.list_speeds(owner.id, dataset, None, LATEST_TRAININGS).await?;
        let rates = models.into_iter().filter_map(|model| {
            Some(TrainingRate { images_per_second: model.speed?.images_per_second, model: model.name })
        });
        Ok(rates.max_by(|one, other| one.images_per_second.total_cmp(&other.images_per_second)))
    }
}

fn fault_of_directory(directory: &str, has_dataset: bool) -> Option<FieldError> {
    let fault = |code, message: &str| Some(FieldError::new("directory", code, message));
    if directory.is_empty() {
        return if has_dataset { None } else { fault("required", "Name a folder or a dataset.") };
    }
    if directory.len() > MAX_PATH_LENGTH || directory.chars().any(char::is_control) {
        return fault("invalid_value", "This is not a path.");
    }
    let is_absolute = Path::new(directory).is_absolute() || directory == "~" || directory.starts_with("~/");
    if is_absolute { None } else { fault("invalid_value", "Must begin with / or ~/.") }
}

/// Gives a file system its id. A report comes from a user's file: what identifies a file system is computed here.
fn identified(found: &FileSystem, node: &str) -> FileSystem {
    let [kind, source, mount_point] = [&found.kind, &found.source, &found.mount_point].map(|text| kept(text));
    let place = if found.is_shared() { String::new() } else { format!("{node}\n{mount_point}") };
    let hash = Sha256::digest(format!("{kind}\n{source}\n{place}"));
    let id = format!("fs-{}", short_hex(&hash));
    FileSystem { id, kind, source, mount_point, size_bytes: found.size_bytes, free_bytes: found.free_bytes }
}

fn kept(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_can_be_tested() {
        for fine in ["/scratch", "~", "~/data", "/a b"] {
            assert_eq!(fault_of_directory(fine, false), None, "{fine}");
        }
        assert_eq!(fault_of_directory("", true), None);
        for wrong in ["", "data", "~bob/x", "-x", "/a\nb"] {
            assert!(fault_of_directory(wrong, false).is_some(), "{wrong}");
        }
    }

    #[test]
    fn local_file_systems_belong_to_their_node() {
        let of = |kind: &str, mount_point: &str, node: &str| {
            let found = FileSystem {
                id: "forged".to_owned(),
                kind: kind.to_owned(),
                source: "server:/home".to_owned(),
                mount_point: mount_point.to_owned(),
                ..FileSystem::default()
            };
            identified(&found, node).id
        };
        assert_eq!(of("nfs4", "/home", "a"), of("nfs4", "/mnt/home", "b"));
        assert_ne!(of("ext4", "/home", "a"), of("ext4", "/home", "b"));
        assert_ne!(of("ext4", "/home", "a"), of("xfs", "/home", "a"));
        let id = of("ext4", "/", "a");
        assert!(id.starts_with("fs-") && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{id}");
    }

    #[test]
    fn the_script_is_one_of_sh() {
        let checked = std::process::Command::new("sh").args(["-n", "-c", SCRIPT]).status();
        assert!(checked.unwrap().success());
    }
}
