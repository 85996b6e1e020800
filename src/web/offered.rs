//! What the forms of environments and profiles have in common: the groups that something is offered to, and its place in
//! lists.

use std::collections::HashSet;

use super::{
    Portal,
    http::error::{FieldError, Result},
};

/// Reads the place in lists, which may be empty.
pub(super) fn position(typed: &str) -> Result<Option<i64>, FieldError> {
    match typed.trim() {
        "" => Ok(None),
        number => match number.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(FieldError::new("position", "invalid_value", "Enter a whole number.")),
        },
    }
}

/// Returns those of the names that groups have.
pub(super) async fn existing_groups(portal: &Portal, names: impl Iterator<Item = &String>) -> Result<HashSet<String>> {
    let mut existing = HashSet::new();
    for name in names.collect::<HashSet<_>>() {
        if portal.db.find_groups(name).await?.iter().any(|found| found.group.name == *name) {
            existing.insert(name.clone());
        }
    }
    Ok(existing)
}
