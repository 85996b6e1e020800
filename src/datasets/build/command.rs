//! `lyceum dataset build SPEC.json`: reads the specification, tells how far it is on standard
//! output and in a small file beside the work, and stops in order when it is asked to.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::{Error, progress::Progress, spec::Spec, store, text, work_folder};

/// The file in the directory of the work that tells how far it is.
pub const PROGRESS: &str = "progress.json";

/// Has the specification itself where no file is named: a job's variables are read by nobody else.
pub const VARIABLE: &str = "DATASET_SPEC";

/// Where the specification is.
pub enum Given {
    File(PathBuf),
    Text(String),
}

/// Runs a build to its end. Threads: as many as there are cores to use, unless said.
pub fn run(given: &Given, threads: Option<usize>, out: &mut dyn Write) -> Result<(), Error> {
    let spec = read(given)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop);
    let threads = threads.or_else(|| thread::available_parallelism().map(Into::into).ok()).unwrap_or(1);
    let mut last = String::new();
    let document = super::build(&spec, threads, &stop, &mut |progress| {
        tell(&spec.output, progress);
        let line = progress.to_string();
        if line != last {
            // Nobody may be reading; the build is what counts.
            let _ = writeln!(out, "{line}");
            last = line;
        }
    })?;
    let counts = document.counts;
    let _ = writeln!(
        out,
        "{} is ready: {} to train, {} to validate, {} to test, {} classes; {} broken, {} duplicates, {} left out",
        spec.output.display(),
        counts.train,
        counts.val,
        counts.test,
        document.classes.len(),
        counts.broken,
        counts.duplicate,
        counts.left_out
    );
    Ok(())
}

fn read(given: &Given) -> Result<Spec, Error> {
    let (content, name) = match given {
        Given::Text(text) => (text.clone().into_bytes(), VARIABLE.to_owned()),
        Given::File(file) => {
            let content = store::read_file(file);
            (content.map_err(|reason| Error::Source { path: file.clone(), reason })?, file.display().to_string())
        }
    };
    let spec: Spec = serde_json::from_slice(&content)
        .map_err(|error| Error::Spec(vec![format!("{name}: {}", text::short(&error.to_string()))]))?;
    let here = std::path::absolute(".").map_err(|error| Error::reading(Path::new("."), error))?;
    Ok(spec.based(&here))
}

/// For whoever watches from outside. A file that is missing or old is no reason to stop.
fn tell(output: &Path, progress: &Progress) {
    let work = work_folder(output);
    let (whole, half) = (work.join(PROGRESS), work.join("progress.new"));
    let Ok(json) = serde_json::to_vec(progress) else { return };
    if fs::write(&half, json).is_ok() {
        let _ = fs::rename(&half, &whole);
    }
}

/// The end of a session comes as a signal; what is done is saved before the process goes.
fn stop_on_signals(stop: &Arc<AtomicBool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut terminated), Ok(mut interrupted)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} }
            stop.store(true, Ordering::Relaxed);
        });
    });
}
