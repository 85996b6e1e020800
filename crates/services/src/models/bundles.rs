//! Bundles of models: any checkpoint is exported by a job into the model's directory, and a bundle, a
//! folder or the tar archive of one, becomes a model again by another job.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Error, Models, Result, artifacts::MAX_INDEX_LENGTH, request};
use lyceum_db::audit::Entry;
use lyceum_model::{
    FieldError, Job, Model, Resources, User,
    description::parse_name,
    files::{Entry as FileEntry, Kind, RawPath},
    trained::{ModelState, Trained},
};
use lyceum_wire::protocol::files_agent::Fault;

use crate::{files, jobs::JobRequest, sessions::Actor};

/// The size of a tar header (bytes), and how many entries of an archive are looked at.
const BLOCK: u64 = 512;
const MAX_ENTRIES: usize = 100;
const TASKS: [&str; 5] = ["classification", "detection", "segmentation", "regression", "reconstruction"];

/// The checkpoint to export.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewModelExport)]
pub struct NewExport {
    /// File from `GET /models/{id}/snapshots`.
    pub snapshot: String,
    /// Environment of the job. Default: that of the training.
    #[serde(default)]
    pub environment: Option<String>,
}

/// A bundle to import.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewModelImport)]
pub struct NewImport {
    pub name: String,
    /// Folder of a bundle, or its tar archive: an absolute path, or `~/…`.
    pub path: String,
    /// Environment of the job. Default: `default`.
    #[serde(default)]
    pub environment: Option<String>,
}

const EXPORT: &str = "#!/bin/sh
# Exports a checkpoint of a model (docs/models.md).
exec python -m trainer export \"$MODEL\" --output \"$OUTPUT\"
";
const IMPORT: &str = "#!/bin/sh
# Makes a model of a bundle (docs/models.md).
mkdir -p \"$LYCEUM_LOG_DIRECTORY\" && cd \"$LYCEUM_LOG_DIRECTORY\" || exit 4
exec python -m trainer import \"$BUNDLE\" --output .
";

/// Returns the folder below the model's directory that a checkpoint is exported to.
pub fn export_folder(snapshot: &str) -> String {
    format!("exports/{}", snapshot.strip_suffix(".keras").unwrap_or(snapshot))
}

impl Models {
    /// Submits a job that exports a checkpoint of one's own model.
    pub async fn export(&self, actor: Actor<'_>, model: &Model, new: NewExport) -> Result<Job> {
        let there = self.snapshots(actor.user, model).await?.unwrap_or_default();
        if !there.snapshots.iter().any(|one| one.file == new.snapshot) {
            let message = "This checkpoint does not exist. A later one may have replaced it.";
            return Err(Error::Invalid(vec![FieldError::new("snapshot", "invalid_value", message)]));
        }
        let environment = match new.environment.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => self.environment(actor.user, model).await?,
        };
        let directory = Path::new(&model.directory);
        let variables = [
            ("MODEL", directory.join("checkpoints").join(&new.snapshot)),
            ("OUTPUT", directory.join(export_folder(&new.snapshot))),
        ];
        let request = self.bundle_job(&format!("export {}", model.name), EXPORT, &variables, environment);
        Ok(self.jobs.submit(actor, request, None).await?)
    }

    /// Returns the checkpoints that were exported.
    pub async fn exported(&self, user: &User, model: &Model) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for one in self.snapshots(user, model).await?.unwrap_or_default().snapshots.into_iter().take(50) {
            if self.is_exported(user, model, &one.file).await? {
                found.push(one.file);
            }
        }
        Ok(found)
    }

    /// Whether the export of a checkpoint is complete.
    pub async fn is_exported(&self, user: &User, model: &Model, snapshot: &str) -> Result<bool> {
        if snapshot.contains('/') || snapshot.starts_with('.') {
            return Ok(false);
        }
        let name = format!("{}/SHA256SUMS", export_folder(snapshot));
        Ok(self.read(user, model, &name, MAX_INDEX_LENGTH).await?.is_some())
    }

    /// Makes a model of a bundle. A job reads it.
    pub async fn import(&self, actor: Actor<'_>, new: NewImport) -> Result<Model> {
        let user = actor.user;
        let fault = |field: &str, message: &str| FieldError::new(field, "invalid_value", message);
        let mut faults = Vec::new();
        let name = parse_name(&new.name).map_err(|fault| faults.push(fault)).unwrap_or_default();
        let found = match self.bundle(user, new.path.trim()).await {
            Ok(found) => Some(found),
            Err(Error::Invalid(more)) => {
                faults.extend(more);
                None
            }
            Err(error) => return Err(error),
        };
        let (Some((path, kind)), true) = (found, faults.is_empty()) else { return Err(Error::Invalid(faults)) };
        let path = std::str::from_utf8(&path.0)
            .map_err(|_err| Error::Invalid(vec![fault("path", "The name of the file is not UTF-8.")]))?
            .to_owned();
        let environment = new.environment.filter(|name| !name.is_empty());
        let environment = environment.unwrap_or_else(|| request::ENVIRONMENT.to_owned());
        let variables = [("BUNDLE", Path::new(&path).to_owned())];
        let request = JobRequest { name: Some(name.clone()), ..self.bundle_job("", IMPORT, &variables, environment) };
        let home = self.home(user).await?;
        self.jobs.rehearse(actor, request.clone()).await?;
        let model = self.new_model(user, name, kind, "imported".to_owned());
        let (subject, detail) = (model.id.to_string(), format!("{} from {path}", model.name));
        let noted = Entry {
            at: model.created_at,
            actor: user.name.as_str(),
            action: "model.import",
            subject: &subject,
            detail: &detail,
        };
        let config = json!({ "name": model.name, "task": model.kind, "imported": path });
        self.db.add_model(&model, &config.to_string(), None, &noted).await?;
        match self.jobs.submit(actor, request, Some(&format!("model {}", model.id))).await {
            Ok(job) => {
                let directory = super::log_directory(&home, &job);
                self.db.set_model_job(model.id, job.id, &directory, self.clock.now()).await?;
            }
            Err(error) => {
                let refused =
                    Trained::without_snapshots(ModelState::Failed, "The job of the import was rejected.".to_owned(), 0);
                self.db.settle_model(model.id, &refused, self.clock.now()).await?;
                return Err(error.into());
            }
        }
        self.db.find_model(model.id).await?.ok_or(Error::NotFound)
    }

    fn bundle_job(
        &self,
        name: &str,
        script: &str,
        variables: &[(&str, std::path::PathBuf)],
        environment: String,
    ) -> JobRequest {
        let mut all = self.variables();
        all.extend(variables.iter().map(|(name, path)| ((*name).to_owned(), path.to_string_lossy().into_owned())));
        JobRequest {
            name: Some(name.chars().take(64).collect()),
            script: Some(script.to_owned()),
            variables: Some(all),
            environment: Some(environment),
            resources: Some(Resources { cpus: 2, memory_bytes: 4 << 30, ..Resources::default() }),
            time_limit_seconds: Some(super::prediction::TIMEOUT),
            is_helper: true,
            ..JobRequest::default()
        }
    }

    /// Returns where a bundle is, and its task.
    async fn bundle(&self, user: &User, typed: &str) -> Result<(RawPath, String)> {
        let fault = |message: &str| Error::Invalid(vec![FieldError::new("path", "invalid_value", message)]);
        if typed.is_empty() {
            return Err(fault("Give the path of a bundle: a folder or a tar archive."));
        }
        let (spot, entry) = match self.files.look(user, &RawPath::from(typed)).await {
            Ok(found) => found,
            Err(files::Error::Fault { fault: Fault::NotFound, .. }) => return Err(fault("File not found.")),
            Err(error) => return Err(error.into()),
        };
        let about = if entry.kind == Kind::Folder {
            let folder = spot.path.as_path();
            self.read_in(user, folder, "preprocessing.json", MAX_INDEX_LENGTH)
                .await?
                .map(files::FileContent::into_bytes)
        } else {
            self.in_archive(user, &spot, &entry).await?
        };
        let about: Option<Value> = about.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let task = about.as_ref().and_then(|about| about["task"].as_str());
        let task = task.filter(|task| TASKS.contains(task));
        let task = task.ok_or_else(|| fault("This is not a bundle: it has no readable preprocessing.json."))?;
        Ok((spot.path, task.to_owned()))
    }

    /// Returns `preprocessing.json` of a tar archive without reading the files before it.
    async fn in_archive(&self, user: &User, spot: &files::RootedPath, entry: &FileEntry) -> Result<Option<Vec<u8>>> {
        let mut at = 0;
        for _ in 0..MAX_ENTRIES {
            if entry.size_bytes < at + BLOCK {
                break;
            }
            let header = self.files.read_part(user, spot, entry, at, BLOCK).await?.into_bytes();
            let Some((name, size)) = archived(&header) else { break };
            at += BLOCK;
            if name.rsplit('/').next() == Some("preprocessing.json") && size <= MAX_INDEX_LENGTH {
                return Ok(Some(self.files.read_part(user, spot, entry, at, size).await?.into_bytes()));
            }
            at = at.saturating_add(size.div_ceil(BLOCK).saturating_mul(BLOCK));
        }
        Ok(None)
    }
}

/// Reads name and size of an entry from its tar header.
fn archived(header: &[u8]) -> Option<(String, u64)> {
    let text = |from: usize, to: usize| -> Option<&str> {
        let field = header.get(from..to)?;
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        std::str::from_utf8(&field[..end]).ok().map(str::trim)
    };
    let name = text(0, 100).filter(|name| !name.is_empty())?;
    Some((name.to_owned(), u64::from_str_radix(text(124, 136)?, 8).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_of_archived_files() {
        let mut header = vec![0; 512];
        header[..25].copy_from_slice(b"bundle/preprocessing.json");
        header[124..135].copy_from_slice(b"00000000217");
        assert_eq!(archived(&header), Some(("bundle/preprocessing.json".to_owned(), 0o217)));
        assert_eq!((archived(&[0; 512]), archived(b"short")), (None, None));
    }

    #[test]
    fn each_checkpoint_has_a_folder_of_its_own() {
        assert_eq!(export_folder("epoch-00002.keras"), "exports/epoch-00002");
    }
}
