//! The limits of one level: what a file declares beside what is set. A number alone has no end and no note. What is
//! set already is left alone, also where its end has passed since.

use serde::Deserialize;
use serde_json::Value;

use super::declared::{Limits, SiteTerms};
use lyceum_db::quotas::SetLimit;
use lyceum_model::{
    FieldError, Timestamp,
    quota::{Change, Kind, Terms},
};

/// What differs at a level, and what it does not list.
#[derive(Debug, Default)]
pub struct Difference {
    pub changes: Vec<Change>,
    /// As changes that remove it.
    pub unlisted: Vec<Change>,
    pub faults: Vec<FieldError>,
}

/// Compares the declared limits of a kind with those that are set. `place` is that of the object in the file.
pub fn compare(declared: &Limits, kind: Kind, set: &[SetLimit], place: &str, now: Timestamp) -> Difference {
    let mut difference = Difference::default();
    let of_kind = || set.iter().filter(|limit| limit.kind == kind);
    let mut named = Vec::new();
    for (name, value) in declared {
        let place = format!("{place}.{name}");
        let change = match read(kind, name, value, &place) {
            Ok(change) => change,
            Err(fault) => {
                difference.faults.push(fault);
                continue;
            }
        };
        named.push(change.field.clone());
        let before = of_kind().find(|limit| limit.field == change.field).map(|limit| &limit.terms);
        let Some(terms) = change.to.as_ref().filter(|terms| before != Some(terms)) else { continue };
        let end = terms.expires_at.and_then(|end| Terms::expiry_fault(end, now));
        let note = terms.note.as_deref().and_then(Terms::note_fault);
        let end = end.map(|message| FieldError::new(format!("{place}.expires_at"), "in_the_past", message));
        let note = note.map(|(code, message)| FieldError::new(format!("{place}.note"), code, message));
        if end.is_some() || note.is_some() {
            difference.faults.extend(end.into_iter().chain(note));
        } else {
            difference.changes.push(change);
        }
    }
    let unlisted = of_kind().filter(|limit| !named.contains(&limit.field));
    difference.unlisted = unlisted.map(|limit| Change::new(kind, limit.field.clone(), None)).collect();
    difference
}

fn read(kind: Kind, name: &str, value: &Value, place: &str) -> Result<Change, FieldError> {
    match value {
        Value::Null => {
            let message = "A file declares values. Omit the field to inherit it, and use prune to remove the limit.";
            Err(FieldError::new(place, "invalid_value", message))
        }
        Value::Object(_) => {
            let terms = SiteTerms::deserialize(value).map_err(|_fault| {
                let message = "This must be a number, or an object with value, expires_at (a time such as \
                               2027-02-01T00:00:00Z) and note.";
                FieldError::new(place, "invalid_value", message)
            })?;
            let mut change = Change::read(kind, name, &Value::from(terms.value), place)?;
            if let Some(to) = &mut change.to {
                (to.expires_at, to.note) = (terms.expires_at, terms.note);
            }
            Ok(change)
        }
        value => Change::read(kind, name, value, place),
    }
}
