//! The log directory of a job. It is there when the program starts, so that a program may simply open a file in it. One
//! that nothing was written to is removed at the end, with the directories above it that were made for it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Makes the log directory that a job's environment names; anything else has none.
///
/// # Errors
///
/// A sentence that says why it could not be made. A program that writes nothing there can do without.
pub fn make(environment: &BTreeMap<String, String>) -> Result<Made, String> {
    let Some(directory) = environment.get("LYCEUM_LOG_DIRECTORY").map(Path::new) else { return Ok(Made::default()) };
    let missing = directory.ancestors().take_while(|path| !path.exists()).map(Path::to_path_buf).collect();
    fs::create_dir_all(directory)
        .map_err(|error| format!("The log directory {} could not be created: {error}.", directory.display()))?;
    Ok(Made(missing))
}

/// The directories that were made, the innermost first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// Removes those that are empty.
    pub fn remove_empty(&self) {
        for directory in &self.0 {
            if fs::remove_dir(directory).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(logs: &Path) -> BTreeMap<String, String> {
        BTreeMap::from([("LYCEUM_LOG_DIRECTORY".to_owned(), logs.display().to_string())])
    }

    #[test]
    fn what_stays_empty_goes_again() {
        let home = tempfile::tempdir().unwrap();
        let (runs, logs) = (home.path().join("runs"), home.path().join("runs/resnet"));
        let made = make(&job(&logs)).unwrap();
        assert!(logs.is_dir());
        assert_eq!(make(&job(&logs)).unwrap(), Made::default(), "it was there");
        fs::write(logs.join("metrics.jsonl"), "{}").unwrap();
        made.remove_empty();
        assert!(logs.is_dir(), "it has a file");
        fs::remove_file(logs.join("metrics.jsonl")).unwrap();
        made.remove_empty();
        assert!(!runs.exists() && home.path().is_dir());
    }

    #[test]
    fn what_cannot_be_made_is_said() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("runs");
        fs::write(&file, "").unwrap();
        let why = make(&job(&file.join("resnet"))).unwrap_err();
        assert!(
            why.starts_with(&format!("The log directory {}/resnet could not be created: ", file.display())),
            "{why}"
        );
    }
}
