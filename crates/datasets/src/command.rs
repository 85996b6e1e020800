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

use serde::Deserialize;
use serde_json::Value;

use super::{
    Error,
    document::Document,
    inspect,
    progress::Progress,
    recognise::recognise,
    spec::Spec,
    standard::{self, Places, StandardSet},
    store, text, work_folder,
};

/// The file in the directory of the work that tells how far it is.
pub const PROGRESS: &str = "progress.json";

/// Has the specification itself where no file is named: a job's variables are read by nobody else.
pub const VARIABLE: &str = "DATASET_SPEC";

/// Where the specification is.
pub enum SpecSource {
    File(PathBuf),
    Text(String),
}

/// Says what a source is taken for, of which nothing but its place is known.
pub fn inspect_path(path: &Path, json: bool, out: &mut dyn Write) -> Result<(), Error> {
    let path = std::path::absolute(path).map_err(|error| Error::reading(path, error))?;
    let (kind, source) = recognise(&path)?;
    let spec = Spec::of(kind, source, path.with_extension("dataset"));
    show(&inspect::inspect(&spec)?, json, out);
    Ok(())
}

/// Says what the source of a specification is taken for.
pub fn inspect(given: &SpecSource, json: bool, out: &mut dyn Write) -> Result<(), Error> {
    show(&inspect::inspect(&read(given)?)?, json, out);
    Ok(())
}

fn show(found: &inspect::Inspection, json: bool, out: &mut dyn Write) {
    // The reader of the output may have gone.
    let _ = if json {
        writeln!(out, "{}", serde_json::to_string(found).unwrap_or_default())
    } else {
        write!(out, "{found}")
    };
}

/// Runs a build to its end.
pub fn run(given: &SpecSource, threads: Option<usize>, out: &mut dyn Write) -> Result<(), Error> {
    let spec = read(given)?;
    let document = build(&spec, threads, out)?;
    let counts = document.counts;
    let _ = writeln!(
        out,
        "{} is ready: {} training, {} validation and {} test images in {} classes; {} broken, {} duplicates, {} left out, \
         {} boxes dropped, {} notes",
        spec.output.display(),
        counts.train,
        counts.val,
        counts.test,
        document.classes.len(),
        counts.broken,
        counts.duplicate,
        counts.left_out,
        counts.broken_boxes,
        counts.notes
    );
    Ok(())
}

/// Builds the evaluation set of a model: the labelled images of a directory, or of a document, at the size of the
/// model's input. Says so where nothing is labelled, and builds nothing.
pub fn evaluation(labels: &Path, model: &Path, output: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let full = |path: &Path| std::path::absolute(path).map_err(|error| Error::reading(path, error));
    let labels = full(labels)?;
    let Some(spec) = super::evaluation::spec(&labels, &full(model)?, full(output)?)? else {
        // The reader of the output may have gone.
        let _ = writeln!(out, "{} has no labels", labels.display());
        return Ok(());
    };
    let document = build(&spec, None, out)?;
    let _ = writeln!(out, "{} is ready: {} labelled images", spec.output.display(), document.counts.test);
    Ok(())
}

/// Builds a dataset; tells how far it is, and stops when it is asked to. Threads: as many as there are cores to use,
/// unless said.
fn build(spec: &Spec, threads: Option<usize>, out: &mut dyn Write) -> Result<Document, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop);
    let threads = threads.or_else(|| thread::available_parallelism().map(Into::into).ok()).unwrap_or(1);
    let mut last = String::new();
    super::build(spec, threads, &stop, &mut |progress| {
        write_progress(&spec.output, progress);
        let line = progress.to_string();
        if line != last {
            // Nobody may be reading; the build is what counts.
            let _ = writeln!(out, "{line}");
            last = line;
        }
    })
}

/// Lists the standard sets, and where the files of each are.
pub fn list_standard(directory: Option<&Path>, out: &mut dyn Write) {
    for set in StandardSet::ALL {
        let published = set.publication();
        let places = Places::new(&published, directory, None, None);
        // The reader of the output may have gone.
        let _ = writeln!(out, "{set}: {}; {}", published.description(), places.sentence());
    }
}

/// The specification of a standard set with its own size and split.
pub fn standard_spec(set: StandardSet, output: &Path, directory: Option<&Path>, mirror: Option<&str>) -> SpecSource {
    let mut source = serde_json::json!({"kind": "standard", "set": set});
    if let Some(directory) = directory {
        source["directory"] = serde_json::json!(directory);
    }
    if let Some(mirror) = mirror {
        source["mirror"] = serde_json::json!(mirror);
    }
    SpecSource::Text(serde_json::json!({"source": source, "output": output}).to_string())
}

fn read(given: &SpecSource) -> Result<Spec, Error> {
    let (content, name) = match given {
        SpecSource::Text(text) => (text.clone().into_bytes(), VARIABLE.to_owned()),
        SpecSource::File(file) => {
            let content = store::read_file(file);
            (content.map_err(|reason| Error::Source { path: file.clone(), reason })?, file.display().to_string())
        }
    };
    let wrong = |error: serde_json::Error| Error::Spec(vec![format!("{name}: {}", text::short(&error.to_string()))]);
    let mut spec: Value = serde_json::from_slice(&content).map_err(wrong)?;
    if let Value::Object(spec) = &mut spec {
        standard::complete(spec);
    }
    let spec = Spec::deserialize(spec).map_err(wrong)?;
    let here = std::path::absolute(".").map_err(|error| Error::reading(Path::new("."), error))?;
    Ok(spec.based(&here))
}

/// For whoever watches from outside. A file that is missing or old is no reason to stop.
fn write_progress(output: &Path, progress: &Progress) {
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
