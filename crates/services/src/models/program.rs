//! A network of somebody's own: a Python program that the trainer builds the network with
//! (docs/trainer.md). It travels in the script of the job beside the configuration, and lies in the
//! model's directory afterwards. What is wrong with it is told by the trainer, with its line.

use serde_json::{Value, json};

use super::{Models, Result, artifacts::MAX_INDEX_LENGTH};
use lyceum_model::{FieldError, Model, User};

/// The longest program (bytes): it travels in the job's script.
pub const MAX_LENGTH: usize = 16 * 1024;
/// Where it lies in the model's directory; the configuration names it so.
const FILE: &str = "network.py";

/// One that works, to begin with.
pub fn example(kind: &str) -> &'static str {
    match kind {
        "segmentation" => include_str!("../../../../trainer/examples/segmentation.py"),
        "detection" => include_str!("../../../../trainer/examples/detection.py"),
        "regression" => include_str!("../../../../trainer/examples/regression.py"),
        "reconstruction" => include_str!("../../../../trainer/examples/reconstruction.py"),
        _ => include_str!("../../../../trainer/examples/classification.py"),
    }
}

/// The program as it is written, once the configuration says that it is the network.
pub(super) fn check(text: &str, config: &mut Value) -> Result<String, FieldError> {
    let fault = |code, message: &str| Err(FieldError::new("program", code, message));
    // Forms send lines with both ends.
    let mut text = text.replace("\r\n", "\n");
    if text.trim().is_empty() {
        return fault("required", "Define a function network(x, classes).");
    }
    if text.len() > MAX_LENGTH {
        return fault("too_long", "Longer than 16 KiB. Move a part into a file of yours and import it.");
    }
    if text.contains('\0') {
        return fault("invalid_value", "The program contains a NUL byte.");
    }
    let fields = config.as_object_mut().map(|fields| fields.entry("network").or_insert_with(|| json!({})));
    let Some(network) = fields.and_then(Value::as_object_mut) else {
        return fault("invalid_value", "`config` and `config.network` must be objects.");
    };
    if ["name", "file", "pretrained"].iter().any(|other| network.contains_key(*other)) {
        return fault("conflict", "Give either `program` or `config.network`, not both.");
    }
    network.insert("file".to_owned(), json!(FILE));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// What of the job's script writes it.
pub(super) fn written(text: &str) -> String {
    // Whatever it says, no line of it may end it.
    let mut mark = "END_OF_NETWORK".to_owned();
    while text.lines().any(|line| line == mark) {
        mark.push('_');
    }
    format!("cat > {FILE} <<'{mark}'\n{text}{mark}\n")
}

impl Models {
    /// The program of a model's network, where it has one of its own and this person may read it.
    pub async fn program(&self, user: &User, model: &Model, config: &Value) -> Result<Option<String>> {
        if config["network"]["file"] != FILE {
            return Ok(None);
        }
        let found = self.read(user, model, FILE, MAX_INDEX_LENGTH).await?;
        Ok(found.and_then(|bytes| String::from_utf8(bytes.into_bytes()).ok()).filter(|text| text.len() <= MAX_LENGTH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_told() {
        let told = |text: &str| check(text, &mut json!({})).unwrap_err().code;
        assert_eq!(
            [told(" \n"), told("a\0"), told(&"x".repeat(MAX_LENGTH + 1))],
            ["required", "invalid_value", "too_long"]
        );
        assert_eq!(check("x", &mut json!({"network": 3})).unwrap_err().field, "program");
    }

    /// The shell writes what was typed, whatever it is.
    #[test]
    fn no_line_of_it_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["a\nEND_OF_NETWORK\ntouch bad\nEND_OF_NETWORK_\n", "$(touch bad) `touch bad` \\ '\"\n", "é\u{202e}\n\n"]
        {
            let done = std::process::Command::new("sh").args(["-c", &written(text)]).current_dir(&folder).status();
            assert!(done.unwrap().success());
            assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), text);
        }
        assert!(!folder.path().join("bad").exists());
    }
}
