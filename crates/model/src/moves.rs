//! Folders that were copied or moved: where a path lies now that the database still has as it was. Nothing here looks at
//! the file system.

use serde_json::Value;

use super::{FieldError, run::MAX_DIRECTORY_LENGTH};

/// The most folders that one request names.
const MAX_MOVES: usize = 100;

/// Maps former folders to present ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves(Vec<(String, String)>);

impl Moves {
    /// Reads pairs of a former and a present folder. Faults name `directories`.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, Vec<FieldError>> {
        let (mut moves, mut faults) = (Vec::new(), Vec::new());
        for (number, (from, to)) in pairs.into_iter().enumerate() {
            let field = |end: &str| format!("directories.{number}.{end}");
            let (from, to) = match (folder(&field("from"), &from), folder(&field("to"), &to)) {
                (Ok(from), Ok(to)) => (from, to),
                (from, to) => {
                    faults.extend(from.err().into_iter().chain(to.err()));
                    continue;
                }
            };
            if moves.iter().any(|(known, _)| *known == from) {
                faults.push(FieldError::new(field("from"), "duplicate", "This folder is listed twice."));
            }
            moves.push((from, to));
        }
        if MAX_MOVES < moves.len() {
            faults.push(FieldError::new("directories", "too_many", format!("At most {MAX_MOVES} folders.")));
        }
        // A folder in another one goes its own way.
        moves.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        if faults.is_empty() { Ok(Self(moves)) } else { Err(faults) }
    }

    /// Returns where a path lies now.
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        let present = self.0.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(from.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        });
        present.unwrap_or_else(|| path.to_owned())
    }

    /// Renews each path in a JSON document.
    pub fn document(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.path(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.document(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.document(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// An absolute folder without `..`, and without a slash at its end.
fn folder(field: &str, text: &str) -> Result<String, FieldError> {
    let fault = |code, message: &str| Err(FieldError::new(field, code, message));
    let folder = text.trim().trim_end_matches('/');
    if !folder.starts_with('/') {
        return fault("invalid_value", "Must be an absolute path below `/`.");
    }
    if MAX_DIRECTORY_LENGTH < folder.len() {
        return fault("too_long", "The path is too long.");
    }
    if folder.chars().any(char::is_control) || folder.split('/').any(|part| part == ".." || part == ".") {
        return fault("invalid_value", "Must not contain `.`, `..` or control characters.");
    }
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn moves(pairs: &[(&str, &str)]) -> Result<Moves, Vec<FieldError>> {
        Moves::parse(pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())))
    }

    #[test]
    fn paths_follow_the_longest_folder_that_holds_them() {
        let moves = moves(&[("/home/ada/", "/home/bo/ada"), ("/home/ada/data", "/data/vision")]).unwrap();
        for (before, after) in [
            ("/home/ada", "/home/bo/ada"),
            ("/home/ada/runs/1", "/home/bo/ada/runs/1"),
            ("/home/ada/data/x", "/data/vision/x"),
            ("/home/ada/database", "/home/bo/ada/database"),
            ("/home/adam/x", "/home/adam/x"),
            ("runs/1", "runs/1"),
        ] {
            assert_eq!(moves.path(before), after);
        }
        let mut document = json!({"data": {"path": "/home/ada/data/f", "n": 1}, "list": ["/home/ada", "x"]});
        moves.document(&mut document);
        assert_eq!(document, json!({"data": {"path": "/data/vision/f", "n": 1}, "list": ["/home/bo/ada", "x"]}));
    }

    #[test]
    fn faults_name_the_folder() {
        let faults =
            moves(&[("home/ada", "/x"), ("/a", "/b/../c"), ("/a", "/b"), ("/a/", "/c"), ("/", "/x")]).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["directories.0.from", "directories.1.to", "directories.3.from", "directories.4.from"]);
        assert_eq!(moves(&[]).unwrap(), Moves::default());
    }
}
