//! What its owner says of a thing: how it is called, what they note of it, who else sees it. One
//! rule for what may be said of whatever has a name; keeping it is `db`'s business.

use serde::Deserialize;

use super::{FieldError, job::Visibility, line::is_misleading};

/// The longest name (characters).
pub const MAX_NAME_LENGTH: usize = 64;
/// The longest notes (bytes).
const MAX_NOTES_LENGTH: usize = 64 * 1024;

/// Changes to a dataset or a model. Fields that are left out do not change.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DescriptionChanges {
    pub name: Option<String>,
    pub notes: Option<String>,
    /// Unix permissions still apply: users who may not read the directory see only the name.
    pub visibility: Option<Visibility>,
}

impl DescriptionChanges {
    /// The same with a tidy name.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn check(self) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let name = self.name.and_then(|name| parse_name(&name).map_err(|fault| faults.push(fault)).ok());
        if self.notes.as_ref().is_some_and(|notes| notes.len() > MAX_NOTES_LENGTH || notes.contains('\0')) {
            faults.push(FieldError::new("notes", "too_long", "Longer than 64 KiB."));
        }
        if faults.is_empty() { Ok(Self { name, ..self }) } else { Err(faults) }
    }
}

/// A name for people: 1 to 64 characters, none of them a control character.
///
/// # Errors
/// What is wrong with it, for the field `name`.
pub fn parse_name(name: &str) -> Result<String, FieldError> {
    let name = name.trim();
    if name.is_empty() {
        return Err(FieldError::new("name", "empty", "must not be empty"));
    }
    if name.chars().count() > MAX_NAME_LENGTH {
        return Err(FieldError::new("name", "too_long", "must have at most 64 characters"));
    }
    if name.contains(is_misleading) {
        return Err(FieldError::new("name", "characters", "must be one line without control characters"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_that_says_what_it_shows() {
        assert_eq!(parse_name("  resnet 50 ").unwrap(), "resnet 50");
        assert_eq!(parse_name("<img src=x onerror=alert(1)>").unwrap(), "<img src=x onerror=alert(1)>");
        for bad in ["", " ", "a\nb", "a\0b", "\u{202e}gnp.exe", &"x".repeat(65), &"x".repeat(10_240)] {
            assert!(parse_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let changes = |name: Option<&str>, notes: Option<String>| DescriptionChanges {
            name: name.map(str::to_owned),
            notes,
            visibility: None,
        };
        assert_eq!(changes(Some(" a "), None).check().unwrap().name.as_deref(), Some("a"));
        assert_eq!(changes(None, None).check().unwrap().name, None);
        let faults = changes(Some("\u{202e}"), Some("x".repeat(MAX_NOTES_LENGTH + 1))).check().unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.field.as_str()).collect::<Vec<_>>(), ["name", "notes"]);
    }
}
