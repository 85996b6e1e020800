//! Where on the curves of a run something was written that its training can go on from: of what the readers
//! noticed, one mark a step, with the step that a file's name tells or that the curves had come to by then.

use serde::Serialize;
use utoipa::ToSchema;

use lyceum_curves::{Run, Store, store::Checkpoint as Written};

/// A checkpoint of a training.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunCheckpoint)]
pub struct Checkpoint {
    /// Path below the run's directory.
    file: String,
    /// Step in a small JSON file or in the name of the file, otherwise the step of the longest curve at that time.
    step: i64,
    wall_time: f64,
}

const MAX_CHECKPOINTS: usize = 1000;

/// Where on the curves checkpoints were written.
pub(super) fn checkpoints(store: &Store) -> Vec<Checkpoint> {
    let curves = store.runs.values().flat_map(Run::curves);
    let Some((_, longest)) = curves.max_by_key(|(_, series)| series.len()) else { return Vec::new() };
    let mut found: Vec<Checkpoint> = Vec::new();
    for Written { file, wall_time, step } in &store.checkpoints {
        let known = step.or_else(|| step_in(file));
        let Some(step) = known.or_else(|| longest.step_at(*wall_time)) else { continue };
        found.push(Checkpoint { file: file.clone(), step, wall_time: *wall_time });
    }
    // Whatever is written at one step belongs together; of one that was written again the later counts.
    found.sort_by(|one, other| one.step.cmp(&other.step).then(other.wall_time.total_cmp(&one.wall_time)));
    found.dedup_by_key(|checkpoint| checkpoint.step);
    found.drain(..found.len().saturating_sub(MAX_CHECKPOINTS));
    found
}

/// The step that a name tells: `epoch=3-step=400.ckpt`, `checkpoint-500/model.safetensors`.
fn step_in(file: &str) -> Option<i64> {
    let number = |text: &str| {
        let digits = text.trim_start_matches(['=', '_', '-']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    let file = file.to_ascii_lowercase();
    file.rsplit('/').find_map(|part| {
        let of_trainer = part.strip_prefix("checkpoint-").and_then(number);
        of_trainer.or_else(|| part.match_indices("step").find_map(|(at, word)| number(&part[at + word.len()..])))
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use lyceum_curves::{
        Item,
        log::{Decoder, Encoder, Entry, ReadPosition},
    };

    #[test]
    fn names_tell_steps() {
        for (name, step) in [
            ("checkpoints/epoch=3-step=400.ckpt", Some(400)),
            ("checkpoint-500/model.safetensors", Some(500)),
            ("model_step_12.pt", Some(12)),
            ("Step-7/weights.h5", Some(7)),
            ("stepwise.pt", None),
            ("checkpoint.json", None),
            ("step99999999999999999999.pt", None),
        ] {
            assert_eq!(step_in(name), step, "{name}");
        }
    }

    #[test]
    fn one_mark_a_step() {
        let root = TempDir::new().unwrap();
        let mut store = Store::open(&root.path().join("points"), u64::MAX).unwrap();
        let mut encoder = Encoder::default();
        for step in 0..10 {
            let wall_time = 100.0 + f64::from(u8::try_from(step).unwrap());
            let item = Item::Scalar { tag: b"loss", step, wall_time, value: 1.0 };
            encoder.entry(&Entry::Item { run: "train", item });
        }
        let mut write = |file: &str, number: u64, seconds: u64| {
            let place = ReadPosition {
                read: 1,
                skip: seconds * 1_000_000_000,
                next_step: i64::MIN,
                identity: (1, number),
                sum: None,
            };
            encoder.entry(&Entry::Place { file, place });
        };
        write("best.pt", 1, 103);
        write("last.pt", 2, 103);
        write("last.pt", 2, 105);
        write("last.pt", 3, 107);
        write("early.pt", 4, 50);
        write("epoch=0-step=2.ckpt", 5, 1000);
        let place = ReadPosition { read: 1, skip: 103_000_000_000, next_step: 9, identity: (1, 6), sum: None };
        encoder.entry(&Entry::Place { file: "checkpoint.json", place });
        store.add(&mut Decoder::default(), &encoder.take(), &mut |_| {}).unwrap();
        let reopened = Store::open(&root.path().join("points"), u64::MAX).unwrap();
        for store in [store, reopened] {
            let found = checkpoints(&store);
            let told: Vec<_> = found.iter().map(|one| (one.step, one.file.as_str(), one.wall_time)).collect();
            let expected = [
                (2, "epoch=0-step=2.ckpt", 1000.0),
                (3, "best.pt", 103.0),
                (7, "last.pt", 107.0),
                (9, "checkpoint.json", 103.0),
            ];
            assert_eq!(
                told, expected,
                "one that takes seconds to write is one, and before the first point there is no place"
            );
        }
    }
}
