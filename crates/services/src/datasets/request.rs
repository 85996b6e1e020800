//! What somebody may ask for when they make a dataset or change what they say of one. Paths are
//! looked at as them before anything is written down, and all faults are told at once.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Datasets, Error, Result,
    build::{spec::Spec, standard},
};
use lyceum_model::{
    FieldError, Job, Resources, User,
    description::{MAX_NAME_LENGTH, parse_name},
    files::RawPath,
};
use lyceum_wire::protocol::files_agent::Fault;

use crate::{files, jobs::JobRequest};

/// The longest specification (bytes): it travels to the builder as a variable.
const MAX_SPEC_LENGTH: usize = 12 * 1024;
/// How long a build may take unless somebody says (seconds).
const DEFAULT_TIME: i64 = 4 * 3600;

/// A dataset to build.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewDataset)]
pub struct NewDataset {
    pub name: String,
    /// The specification for `lyceum dataset build`, without `output` (docs/datasets.md). Paths are absolute or begin
    /// with `~/`.
    #[schema(value_type = Object)]
    pub spec: Value,
    /// The directory to create. It must not exist. Default: a folder below `datasets` in your home directory.
    pub directory: Option<String>,
    /// The group that is charged for the build job. You must be a member.
    pub group: Option<String>,
    pub resources: Option<Resources>,
    pub profile: Option<String>,
    pub time_limit_seconds: Option<i64>,
}

/// The specification with full paths, the name, and the size of the job.
pub(super) async fn check(datasets: &Datasets, user: &User, new: NewDataset) -> Result<(Spec, String, JobRequest)> {
    let mut faults = Vec::new();
    let name = parse_name(&new.name).map_err(|fault| faults.push(fault)).unwrap_or_default();
    let roots = datasets.files.roots(user).await?;
    let home = roots.first().map(|root| root.path.clone()).unwrap_or_default();
    let full = |path: &Path| home.join(path.strip_prefix("~").unwrap_or(path));
    let typed = new.directory.filter(|directory| !directory.trim().is_empty());
    let directory = full(Path::new(&typed.unwrap_or_else(|| format!("datasets/{}", folder_name(&name)))));

    let spec = source(datasets, user, new.spec, (&home, &directory), &mut faults).await?;
    faults.extend(look(&datasets.files, user, &directory, "directory", false).await?);
    let Some(spec) = spec.filter(|_| faults.is_empty()) else { return Err(Error::Invalid(faults)) };
    let usual = usual_size();
    let sized = new.resources.is_some() || new.profile.is_some();
    let size = JobRequest {
        group: new.group,
        resources: if sized { new.resources } else { usual.resources.clone() },
        profile: new.profile,
        time_limit_seconds: new.time_limit_seconds,
        ..usual
    };
    Ok((spec, name, size))
}

/// The specification of a preview: its source with full paths.
pub(super) async fn check_source(datasets: &Datasets, user: &User, new: NewDataset) -> Result<Spec> {
    let mut faults = Vec::new();
    let roots = datasets.files.roots(user).await?;
    let home = roots.first().map(|root| root.path.clone()).unwrap_or_default();
    let spec = source(datasets, user, new.spec, (&home, &home.join("preview")), &mut faults).await?;
    spec.filter(|_| faults.is_empty()).ok_or(Error::Invalid(faults))
}

/// The specification with full paths, and what is wrong with it.
async fn source(
    datasets: &Datasets,
    user: &User,
    spec: Value,
    (home, directory): (&Path, &Path),
    faults: &mut Vec<FieldError>,
) -> Result<Option<Spec>> {
    let mut spec = match read(spec, directory) {
        Err(fault) => {
            faults.push(fault);
            return Ok(None);
        }
        Ok(spec) => spec,
    };
    let mut paths: Vec<(&'static str, PathBuf)> = Vec::new();
    for (field, path) in spec.source.paths_mut() {
        *path = home.join(path.strip_prefix("~").unwrap_or(path));
        paths.push((field, path.clone()));
    }
    let wrong = spec.faults().into_iter().map(|fault| {
        let (field, message) = fault.split_once(": ").unwrap_or(("", &fault));
        FieldError::new(format!("spec.{field}"), "invalid_value", sentence(message))
    });
    faults.extend(wrong);
    for (field, path) in paths {
        faults.extend(look(&datasets.files, user, &path, &format!("spec.source.{field}"), true).await?);
    }
    datasets.config.apply(&mut spec.source);
    Ok(Some(spec))
}

fn read(spec: Value, directory: &Path) -> Result<Spec, FieldError> {
    let wrong = |message: &str| FieldError::new("spec", "invalid_value", message);
    let Value::Object(mut fields) = spec else {
        return Err(wrong("Must be an object with at least `kind` and `source`."));
    };
    if fields.contains_key("output") {
        return Err(FieldError::new("spec.output", "unknown_field", "Not allowed here. Use `directory` instead."));
    }
    standard::complete(&mut fields);
    fields.insert("output".to_owned(), Value::String(directory.to_string_lossy().into_owned()));
    let spec = Value::Object(fields);
    if spec.to_string().len() > MAX_SPEC_LENGTH {
        return Err(wrong("Longer than 12 KiB."));
    }
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "spec".to_owned() } else { format!("spec.{path}") };
        FieldError::new(field, "invalid_value", sentence(&error.inner().to_string()))
    })
}

/// A fault, if what is to be there is not, or the other way round.
async fn look(
    files: &files::Files,
    user: &User,
    path: &Path,
    field: &str,
    is_source: bool,
) -> Result<Option<FieldError>> {
    let fault = |code: &str, message: &str| Some(FieldError::new(field, code, message));
    match files.look(user, &RawPath::from(path)).await {
        Ok(_) if is_source => Ok(None),
        Ok(_) => Ok(fault("exists", "A file or folder with this name already exists. Choose another folder.")),
        Err(files::Error::Fault { fault: Fault::NotFound, .. }) if !is_source => Ok(None),
        Err(files::Error::Fault { fault: Fault::NotFound, .. }) => Ok(fault("not_found", "File or folder not found.")),
        Err(files::Error::Fault { .. }) => Ok(fault("not_allowed", "Your account has no access to this path.")),
        Err(files::Error::Invalid(error)) => Ok(fault("invalid_value", &error.message)),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().collect::<String>()).unwrap_or_default();
    let rest = letters.as_str();
    let end = if rest.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{rest}{end}")
}

/// A name that needs no quotes.
fn folder_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() { "dataset".to_owned() } else { name }
}

/// What the job is called.
pub(super) fn job_name(dataset: &str) -> String {
    format!("dataset {dataset}").chars().take(MAX_NAME_LENGTH).collect()
}

/// Two cores: decoding is what takes time, and every machine has them.
pub(super) fn usual_size() -> JobRequest {
    let resources = Resources { cpus: 2, memory_bytes: 2 << 30, ..Resources::default() };
    JobRequest { resources: Some(resources), usual_seconds: Some(DEFAULT_TIME), ..JobRequest::default() }
}

/// The same size once more.
pub(super) fn size_of(job: &Job) -> JobRequest {
    let spec = &job.latest.spec;
    JobRequest {
        resources: Some(spec.resources.clone()),
        group: spec.group.clone(),
        time_limit_seconds: Some(spec.duration_seconds),
        ..JobRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn folders_of_datasets() {
        for (name, folder) in [("Cats & dogs", "Cats---dogs"), ("../etc", "etc"), ("  ", "dataset"), ("日本", "日本")]
        {
            assert_eq!(folder_name(name), folder);
        }
    }

    #[test]
    fn specifications_are_read_with_the_place_of_their_faults() {
        let field = |spec: Value| read(spec, Path::new("/o")).expect_err("wrong").field;
        assert_eq!(field(json!(3)), "spec");
        assert_eq!(field(json!({"kind": "classification", "output": "/x"})), "spec.output");
        let source = json!({"kind": "folder", "path": "/p"});
        assert!(field(json!({"kind": "classification", "source": source, "width": "a"})).starts_with("spec"));
        let set = json!({"source": {"kind": "standard", "set": "fashion-mnist"}, "width": 32});
        let set = read(set, Path::new("/o")).unwrap();
        assert_eq!((set.width, set.height, set.channels, set.validation_percent), (32, 28, 1, 10));
        let unknown = json!({"source": {"kind": "standard", "set": "imagenet"}, "kind": "classification"});
        assert!(read(unknown, Path::new("/o")).unwrap_err().message.contains("cifar-10"));
        let good = read(json!({"kind": "classification", "source": source}), Path::new("/o")).unwrap();
        assert_eq!(good.output, Path::new("/o"));
    }
}
