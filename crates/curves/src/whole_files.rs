//! Files beside the curves that are written anew as a whole: `hparams.yaml` of Lightning, and
//! `trainer_state.json` of Hugging Face's trainer, whose history grows from checkpoint to
//! checkpoint. Names of its values are those that the trainer's own TensorBoard writer gives them.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::Value;

use super::{
    hparams, lines,
    reader::{Format, Item, Skipped},
};

/// Larger files are not read (bytes).
pub(super) const MAX_FILE_SIZE: u64 = 64 << 20;

/// Checkpoints in JSON that are larger hold more than what is looked for (bytes).
const MAX_CHECKPOINT_SIZE: u64 = 64 << 10;

/// The step that a checkpoint in JSON names, such as `{"step": 400, …}`. What holds weights is not read.
pub(super) fn step_of(path: &Path) -> Option<i64> {
    if path.extension()? != "json" {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_CHECKPOINT_SIZE + 1).read_to_end(&mut text).ok()?;
    if MAX_CHECKPOINT_SIZE < text.len() as u64 {
        return None;
    }
    lines::line(&text)?.step
}

/// When a file was written (nanoseconds since 1970).
pub(super) fn stamp(metadata: &Metadata) -> u64 {
    written(metadata).as_nanos().try_into().unwrap_or(u64::MAX)
}

fn written(metadata: &Metadata) -> Duration {
    metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default()
}

/// Tells what a file says from `next_step` on; answers the step after the last one.
pub(super) fn read(path: &Path, format: Format, next_step: i64, tell: &mut impl FnMut(Item<'_>)) -> io::Result<i64> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = Vec::new();
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_SIZE {
        tell(Item::Skipped(Skipped { oversized: 1, ..Skipped::default() }));
        return Ok(next_step);
    }
    if format == Format::Hparams {
        match hparams::of_yaml(&String::from_utf8_lossy(&text)) {
            Some(object) => tell(Item::Hparams(&object)),
            None => tell(Item::Skipped(Skipped { oversized: 1, ..Skipped::default() })),
        }
        return Ok(next_step);
    }
    let Some(state) = lines::document(&text) else {
        tell(Item::Skipped(Skipped { damaged: 1, ..Skipped::default() }));
        return Ok(next_step);
    };
    let wall_time = written(&metadata).as_secs_f64();
    let mut next = next_step;
    for entry in state.get("log_history").and_then(Value::as_array).into_iter().flatten() {
        let Some(entry) = entry.as_object() else { continue };
        let Some(step) = entry.get("step").and_then(Value::as_i64).filter(|step| next_step <= *step) else { continue };
        next = next.max(step.saturating_add(1));
        for (name, value) in entry.iter().filter(|(name, _)| *name != "step") {
            if let Some(value) = lines::number(value) {
                tell(Item::Scalar { tag: tag(name).as_bytes(), step, wall_time, value });
            }
        }
    }
    Ok(next)
}

fn tag(name: &str) -> String {
    for part in ["eval", "test"] {
        if let Some(rest) = name.strip_prefix(part).and_then(|rest| rest.strip_prefix('_')) {
            return format!("{part}/{rest}");
        }
    }
    format!("train/{name}")
}
