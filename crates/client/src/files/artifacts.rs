//! `lyceum job artifacts`: the files that a job wrote into its log directory, listed or copied to this machine by the API
//! of files. They are the owner's own files, so that nobody else's job is looked for there.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Out, Result, copy, download, line, rows};
use crate::api::{Api, Error, JOBS};

/// Lists what is in the log directory of a job, or copies it into a folder.
pub async fn run(api: &Api, id: &str, to: Option<&Path>, json: bool, out: Out<'_>) -> Result<()> {
    let id = api.id(JOBS, id).await?;
    let job = api.get(&format!("/jobs/{id}"), &[]).await?;
    let folder = directory(api, &job).await?;
    let Some(to) = to else {
        let mut faults: Vec<copy::Step<()>> = Vec::new();
        let found = download::walk(api, &folder, &mut faults).await?;
        list(found, json, out)?;
        return match faults.into_iter().find_map(|step| step.work.err()) {
            Some(error) => Err(error),
            None => Ok(()),
        };
    };
    let mut steps = Vec::new();
    std::fs::create_dir_all(to).map_err(|error| Error::local("create", to, error))?;
    download::plan_below(api, &folder, to, &mut steps).await?;
    copy::all(steps, json, out, async |work, progress| download::copy(api, work, progress).await).await
}

/// Returns the entry of a job's log directory.
async fn directory(api: &Api, job: &Value) -> Result<Value> {
    let Some(path) = job["log_directory"].as_str() else {
        return Err(Error::NotCopied("this job has no log directory".to_owned()));
    };
    let me = api.get("/me", &[]).await?;
    if me["name"] != job["owner"] {
        return Err(Error::NotCopied(format!(
            "the job belongs to {}; a job's files can only be read by its owner",
            crate::table::harmless(job["owner"].as_str().unwrap_or_default())
        )));
    }
    download::find(api, path).await
}

fn list(found: Vec<(Value, PathBuf)>, json: bool, out: Out<'_>) -> Result<()> {
    let mut files: Vec<(Value, String)> = found
        .into_iter()
        .filter(|(entry, _)| entry["kind"] == "file")
        .map(|(entry, path)| (entry, path.display().to_string()))
        .collect();
    files.sort_by(|one, other| one.1.cmp(&other.1));
    if json {
        let items: Vec<Value> = files.into_iter().map(|(entry, _)| entry).collect();
        return line(out, &json!({ "items": items }).to_string());
    }
    if files.is_empty() {
        return line(out, "this job has written no files into its log directory");
    }
    Ok(write!(out, "{}", rows(files.iter().map(|(entry, path)| (entry, path.as_str()))))?)
}
