//! The Python of a person's own code: their packages over the shared environment are laid
//! out, or an environment of theirs is tried; then Jupyter is told of it as its kernel. Here
//! it runs within the session's limits. The files of an overlay are `overlay`'s business.

use std::{fs, io, path::Path, time::Duration};

use tokio::time::timeout;

use super::{
    child::{Reaper, Streams},
    log::Log,
    status::Status,
};
use lyceum_wire::protocol::{AgentLaunch, OverlaySetup, Software, files};

use crate::overlay;

/// Homes are on file servers, which may hang.
const LAYING_OUT: Duration = Duration::from_mins(1);

/// Importing from a cold file server takes its time.
const IMPORT_TIMEOUT: Duration = Duration::from_mins(3);

/// Ends with a status that says what is wrong; what does not import tells why in the log.
const TRIAL: &str = "
import importlib, sys, traceback
if sys.version_info < (3, 8):
    sys.exit(41)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException:
        traceback.print_exc()
        sys.exit(42)
";
const TOO_OLD: i32 = 41;
const DOES_NOT_IMPORT: i32 = 42;

/// Makes ready what kernels run in. The error is a sentence for the user; without their own
/// packages the session starts all the same, and says so.
pub(super) async fn prepare(launch: &AgentLaunch, status: &Status, log: &Log, reaper: &Reaper) -> Result<(), String> {
    match &launch.home.software {
        None => Ok(()),
        Some(Software::Overlay(setup)) => {
            status.step("preparing your own packages");
            match lay_out(setup.clone()).await {
                Ok(notes) => {
                    for note in notes {
                        log.note(&note);
                        status.note(note);
                    }
                    offer_kernel(launch, &setup.folder, log);
                }
                Err(why) => {
                    let note = format!(
                        "Your own packages cannot be used in this session, and no packages can be installed: {} {why}.",
                        setup.folder.display()
                    );
                    log.note(&note);
                    status.note(note);
                }
            }
            Ok(())
        }
        Some(Software::Own { folder, needs }) => {
            status.step("testing your environment");
            try_out(launch, folder, needs, log, reaper).await?;
            offer_kernel(launch, folder, log);
            Ok(())
        }
    }
}

async fn lay_out(setup: OverlaySetup) -> Result<Vec<String>, String> {
    let laid_out = tokio::task::spawn_blocking(move || overlay::prepare(&setup));
    match timeout(LAYING_OUT, laid_out).await {
        Ok(Ok(Ok(notes))) => Ok(notes),
        Ok(Ok(Err(error))) => Err(format!("cannot be written to: {error}")),
        Ok(Err(_)) => Err("could not be prepared (internal error)".to_owned()),
        Err(_) => Err("does not respond: the file server may be down".to_owned()),
    }
}

async fn try_out(
    launch: &AgentLaunch,
    folder: &Path,
    needs: &[String],
    log: &Log,
    reaper: &Reaper,
) -> Result<(), String> {
    let python = folder.join("bin/python").to_string_lossy().into_owned();
    let mut argv = vec![python.clone(), "-s".to_owned(), "-c".to_owned(), TRIAL.to_owned()];
    argv.extend_from_slice(needs);
    let spawned = io::pipe().and_then(|(reader, writer)| {
        Ok((reaper.spawn(&launch.app, &argv, None, Streams::Pipe(writer.into()))?, reader))
    });
    let (trial, pipe) = spawned.map_err(|error| format!("{python} could not be started: {error}"))?;
    tokio::spawn(log.clone().pump(pipe.into()));
    // What does not end is ended with the session, as everything in it.
    let exit = timeout(IMPORT_TIMEOUT, trial.exit)
        .await
        .map_err(|_late| format!("{python} does not respond within {} seconds", IMPORT_TIMEOUT.as_secs()))?;
    let folder = folder.display();
    match exit.ok().and_then(|exit| exit.code) {
        Some(0) => Ok(()),
        Some(TOO_OLD) => Err(format!(
            "{folder} uses a Python older than 3.8, but notebooks require 3.8 or later: create a new environment"
        )),
        Some(DOES_NOT_IMPORT) => Err(format!(
            "{folder} lacks packages that notebooks require, or it is broken: run `{python} -m pip install -U {}`",
            needs.join(" ")
        )),
        _ => Err(format!("{python} does not run: create the environment again")),
    }
}

/// Names the Python to Jupyter under the name of its own kernel, for this session alone: what
/// lies in the environments themselves may be written over by their packages.
fn offer_kernel(launch: &AgentLaunch, folder: &Path, log: &Log) {
    let place = launch.run_directory.join(files::JUPYTER).join("kernels/python3");
    let python = folder.join("bin/python");
    let kernel = serde_json::json!({
        "argv": [python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "metadata": { "debugger": true },
        "kernel_protocol_version": "5.5",
    });
    let written = fs::create_dir_all(&place).and_then(|()| fs::write(place.join("kernel.json"), kernel.to_string()));
    if let Err(error) = written {
        log.note(&format!("the kernel could not be registered with Jupyter: {}: {error}", place.display()));
    }
}
