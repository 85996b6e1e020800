//! Idleness on the real program: GPUs through a driver library that the test compiles, and a
//! real JupyterLab whose tab is open, whose cell is silent, or whose notebook is closed while
//! a training goes on. Jupyter is `LYCEUM_TEST_PYTHON`'s, which `./test` provides.

mod gpus;
pub mod jupyter;
mod overridden;
pub mod terminals;
mod turns;

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use lyceum::model::SessionId;

use crate::{
    life::{House, Person},
    needs::variable,
    wait::eventually,
};

/// Longer than a look at everybody's use, a limit and the end take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// Waits until a session has ended because nobody used it; meanwhile `always` must hold.
pub async fn stopped(house: &House, person: &Person, id: SessionId, always: impl AsyncFnMut()) {
    stopped_because(house, person, id, "Not used for ", always).await;
}

/// Waits until a session has ended for idleness of this kind; meanwhile `always` must hold.
async fn stopped_because(house: &House, person: &Person, id: SessionId, why: &str, mut always: impl AsyncFnMut()) {
    let session = eventually("it is stopped", async || {
        always().await;
        Some(person.session(house, id).await).filter(|session| session["state"] == "ended")
    })
    .await;
    assert_eq!(session["end_reason"], "idle", "{session}");
    assert!(session["detail"].as_str().unwrap().starts_with(why), "{session}");
}

pub async fn runs(house: &House, person: &Person, id: SessionId, why: &str) {
    let session = person.session(house, id).await;
    assert_eq!(session["state"], "running", "{why}: {session}");
}

/// A directory that everybody can read.
pub fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// The Python of an environment with JupyterLab that everybody can run; without it the calling
/// test, or that part of it, is left out.
pub fn jupyters_python(is_met: impl Fn(&str, bool) -> bool) -> Option<String> {
    let python = variable("LYCEUM_TEST_PYTHON");
    is_met("a Python with JupyterLab (LYCEUM_TEST_PYTHON)", python.is_some()).then_some(python)?
}
