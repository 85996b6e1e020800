//! What a metric's name says of it: whether it is a loss or an accuracy, and so whether less or more of it is
//! better, and whether it is the training's or the validation's. The names are the writers' (`PyTorch`, Keras,
//! Lightning, Hugging Face and one's own). The charts have the same rules (`static/curves/tags.js`).

use serde::Serialize;
use utoipa::ToSchema;

/// The better direction of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = BetterMetric)]
pub enum BetterDirection {
    /// Lower is better: named like a loss or an error.
    Less,
    /// Higher is better: named like an accuracy or a score.
    More,
}

const LOSSES: [&str; 11] = ["mse", "mae", "rmse", "nll", "ppl", "wer", "cer", "fid", "kl", "bpb", "bpc"];
const SCORES: [&str; 16] = [
    "auc", "map", "iou", "miou", "bleu", "rouge", "dice", "r2", "psnr", "ssim", "reward", "return", "score", "fscore",
    "accuracy", "acc",
];

/// Which end is the good one; `None` where nobody can say.
pub fn better(name: &str) -> Option<BetterDirection> {
    let text = name.to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    if is_rate(&text, &words) {
        return None;
    }
    let has = |part: &str| text.contains(part);
    if has("loss") || has("error") || has("perplexity") || words.iter().any(|word| LOSSES.contains(word)) {
        return Some(BetterDirection::Less);
    }
    // `acc5`, `top1`: digits behind a name are part of it.
    let is_score = |word: &&str| {
        let bare = word.trim_end_matches(|c: char| c.is_ascii_digit());
        SCORES.contains(word) || (!bare.is_empty() && (SCORES.contains(&bare) || (bare == "top" && bare != *word)))
    };
    let is_more = has("accuracy") || has("precision") || has("recall") || has("f1");
    let ends = words.iter().any(|word| word.ends_with("acc"));
    (is_more || ends || words.iter().any(is_score)).then_some(BetterDirection::More)
}

fn is_rate(text: &str, words: &[&str]) -> bool {
    words.contains(&"lr")
        || text.contains("learningrate")
        || text.contains("learning_rate")
        || text.contains("learning-rate")
}

/// Where a metric stands among others: what can be judged before the rest, accuracies before losses,
/// the validation before the training.
pub fn weight(name: &str) -> u8 {
    let words: Vec<String> = name.to_lowercase().split(|c: char| !c.is_alphanumeric()).map(ToOwned::to_owned).collect();
    let has = |all: &[&str]| words.iter().any(|word| all.contains(&word.as_str()));
    let part = if has(&["val", "valid", "validation", "eval", "evaluation", "dev"]) {
        0
    } else if has(&["test", "testing"]) {
        2
    } else if has(&["train", "training"]) {
        3
    } else {
        1
    };
    let kind = match better(name) {
        Some(BetterDirection::More) => 0,
        Some(BetterDirection::Less) => 4,
        None => 8,
    };
    kind + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_end_is_good() {
        for name in ["loss", "val/loss", "epoch_loss", "eval_perplexity", "train/mse", "Error rate", "wer"] {
            assert_eq!(better(name), Some(BetterDirection::Less), "{name}");
        }
        for name in
            ["accuracy", "val_acc", "top5", "acc1", "eval/f1", "mIoU", "train: epoch_accuracy", "binary_accuracy"]
        {
            assert_eq!(better(name), Some(BetterDirection::More), "{name}");
        }
        for name in ["lr", "epoch_learning_rate", "lr-Adam", "grad_norm", "epoch", "stop", "global_step", "accelerate"]
        {
            assert_eq!(better(name), None, "{name}");
        }
    }

    #[test]
    fn what_tells_most_stands_first() {
        let mut names = ["epoch", "train/loss", "val/loss", "lr", "train/acc", "val/acc"];
        names.sort_by_key(|name| weight(name));
        assert_eq!(names, ["val/acc", "train/acc", "val/loss", "train/loss", "epoch", "lr"]);
    }
}
