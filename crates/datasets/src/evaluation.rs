//! `lyceum dataset evaluation`: the labels that somebody brings to a trained model, as a dataset of the
//! size that the model sees, every image in the test split. What the model sees is in the file
//! `preprocessing.json` that a training writes; how the labels are stored is recognised.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    Error,
    recognise::recognise_labels,
    spec::{Duplicates, Kind, Purpose, Resize, Spec},
    store,
};

const PREPROCESSING: &str = "preprocessing.json";

/// What a model sees; other fields are the trainer's.
#[derive(Deserialize)]
struct Input {
    task: String,
    width: u32,
    height: u32,
    channels: u8,
    resize: Resize,
}

/// Makes the specification of a model's evaluation set; `None` if nothing is labelled. The model is a checkpoint, or
/// the directory of a training.
pub fn spec(labels: &Path, model: &Path, output: PathBuf) -> Result<Option<Spec>, Error> {
    let input = input(model)?;
    let kind = match input.task.as_str() {
        "detection" => Kind::Detection,
        "segmentation" => Kind::Segmentation,
        other => {
            let reason = format!("is a model for {other}; only detection and segmentation have boxes or masks");
            return Err(Error::Source { path: model.to_owned(), reason });
        }
    };
    let Some(source) = recognise_labels(labels, kind)? else { return Ok(None) };
    Ok(Some(Spec {
        purpose: Purpose::Evaluation,
        duplicates: Duplicates::Keep,
        width: input.width,
        height: input.height,
        channels: input.channels,
        resize: input.resize,
        ..Spec::of(kind, source, output)
    }))
}

/// Reads what a model sees: beside it or one folder up, where a training and a bundle put it.
fn input(model: &Path) -> Result<Input, Error> {
    let folders = [Some(model), model.parent(), model.parent().and_then(Path::parent)];
    let path = folders.into_iter().flatten().map(|folder| folder.join(PREPROCESSING)).find(|path| path.is_file());
    let Some(path) = path else {
        let reason = format!("{PREPROCESSING} is missing beside it and in the folder above");
        return Err(Error::Source { path: model.to_owned(), reason });
    };
    let wrong = |reason: String| Error::Source { path: path.clone(), reason };
    let bytes = store::read_file(&path).map_err(wrong)?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}
