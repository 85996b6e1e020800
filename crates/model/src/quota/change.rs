//! A change of one limit: what a field is set to, until when and why. And how far a group's
//! manager may go, who gives the members what the group itself has. Who may change what
//! else, and the writing, are other modules' business.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{Field, Limit, Unit};
use crate::{FieldError, Timestamp, line::is_misleading};

/// For each person, or for all together; and what a manager raises each member of a group to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Each,
    Total,
    /// Set by a group's manager: it gives more than somebody has otherwise, and never less.
    Raised,
}

/// What a field is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Terms {
    /// -1 is unlimited.
    pub value: i64,
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
}

impl Terms {
    /// What is wrong with the end of a limit, if something is.
    #[must_use]
    pub fn expiry_fault(end: Timestamp, now: Timestamp) -> Option<&'static str> {
        (end <= now).then_some("This must be in the future.")
    }

    /// What is wrong with a note, as a code and in words.
    #[must_use]
    pub fn note_fault(note: &str) -> Option<(&'static str, &'static str)> {
        if note.chars().count() > 500 {
            Some(("too_long", "At most 500 characters."))
        } else if note.contains(is_misleading) {
            Some(("characters", "One line without control characters."))
        } else {
            None
        }
    }
}

/// One field's change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: Kind,
    pub field: Field,
    /// `None` removes what is set, so that the field is inherited again.
    pub to: Option<Terms>,
}

impl Kind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Each => "each",
            Self::Total => "total",
            Self::Raised => "raised",
        }
    }

    /// Reads what [`Kind::as_str`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Each, Self::Total, Self::Raised].into_iter().find(|kind| kind.as_str() == text)
    }

    /// How a field of this kind begins in the words of the audit log and the command line.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Each => "",
            Self::Total => "total.",
            Self::Raised => "raised.",
        }
    }
}

impl From<i64> for Terms {
    /// For good, and without a word.
    fn from(value: i64) -> Self {
        Self { value, expires_at: None, note: None }
    }
}

impl Change {
    /// To a value for good, or back to what is inherited.
    pub fn new(kind: Kind, field: Field, value: Option<i64>) -> Self {
        Self { kind, field, to: value.map(Terms::from) }
    }

    /// Reads a field as JSON has it: a number, -1 for unlimited, null to inherit. A fault names the field as `place`.
    pub fn read(kind: Kind, name: &str, value: &Value, place: &str) -> Result<Self, FieldError> {
        let Some(field) = Field::parse(name) else {
            return Err(FieldError::new(place, "unknown_field", "This is not a quota field."));
        };
        if kind == Kind::Total && !field.has_total() {
            let message = "This field has no total: it can only be limited for each user.";
            return Err(FieldError::new(place, "not_a_total", message));
        }
        match value {
            Value::Null => Ok(Self::new(kind, field, None)),
            Value::Number(number) if number.as_i64().is_some_and(|number| number >= -1) => {
                Ok(Self::new(kind, field, number.as_i64()))
            }
            value => Err(FieldError::new(place, "invalid_value", misread(&field, value))),
        }
    }

    /// What a field is set to, in a word: `2`, `inherit`, `unlimited until … (why)`.
    #[must_use]
    pub fn value_in_words(terms: Option<&Terms>) -> String {
        let Some(terms) = terms else { return "inherit".to_owned() };
        let value = match Limit::of(terms.value) {
            Limit::Unlimited => "unlimited".to_owned(),
            Limit::AtMost(value) => value.to_string(),
        };
        let end = terms.expires_at.map(|end| format!(" until {end}")).unwrap_or_default();
        let note = terms.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("{value}{end}{note}")
    }

    /// The same as a manager makes it, whose word for each member only raises.
    #[must_use]
    pub fn by_manager(self) -> Self {
        match self.kind {
            Kind::Each => Self { kind: Kind::Raised, ..self },
            Kind::Total | Kind::Raised => self,
        }
    }

    /// What the field is called in a change of a group: `each.gpus`, `total.gpus`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}.{}", self.kind.as_str(), self.field.name())
    }
}

/// What to write instead of a value that is none: a size or a time as people say it is told in
/// the number that was meant.
fn misread(field: &Field, value: &Value) -> String {
    let wanted = match field.unit() {
        Unit::Bytes => "This must be a whole number of bytes",
        Unit::Seconds => "This must be a whole number of seconds",
        Unit::Hours => "This must be a whole number of hours",
        Unit::Count => "This must be a whole number from 0",
    };
    let meant = value.as_str().and_then(|text| Some((text, field.read(text).ok()?)));
    match meant {
        Some((text, number)) => {
            let text: String = text.trim().chars().take(40).collect();
            format!("{wanted}, not text: for “{text}” write {number}.")
        }
        None => format!("{wanted}, for example {}. Use -1 for unlimited, null to inherit.", field.in_json()),
    }
}

/// As the audit log tells it: `gpus=2`, `total.cpus=inherit`, `gpus=unlimited until … (why)`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}={}", self.kind.prefix(), self.field.name(), Self::value_in_words(self.to.as_ref()))
    }
}

/// What of these changes is not a manager's: a member's limit stays within the group's own
/// total, of a group that is charged for what they run, and the totals are the administrators'.
/// `totals` are those that hold.
#[must_use]
pub fn beyond_manager(changes: &[Change], totals: &[(Field, Limit)], is_chargeable: bool) -> Vec<FieldError> {
    let fault = |change: &Change| {
        let total = totals.iter().find(|(field, _)| *field == change.field).map(|(_, total)| *total);
        let message = match (change.kind, &change.to, total) {
            (Kind::Total, ..) => "Only administrators can set the totals of a group.".to_owned(),
            (Kind::Each | Kind::Raised, Some(_), _) if !is_chargeable => {
                "This group is not chargeable, so managers cannot raise the limits of its members. Ask an \
                 administrator to make it chargeable."
                    .to_owned()
            }
            (Kind::Each | Kind::Raised, Some(_), None) => {
                "The group has no total for this field, so you cannot raise it for members. Ask an administrator to \
                 set one."
                    .to_owned()
            }
            (Kind::Each | Kind::Raised, Some(terms), Some(total)) if total < Limit::of(terms.value) => {
                format!("The group may use {} together. A member cannot have more.", change.field.amount(total.value()))
            }
            (Kind::Each | Kind::Raised, ..) => return None,
        };
        Some(FieldError::new(change.place(), "beyond_the_group", message))
    };
    changes.iter().filter_map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_in_a_word() {
        let terms =
            Terms { value: -1, expires_at: Some(Timestamp(1_700_000_000_000)), note: Some("a paper".to_owned()) };
        let change = Change { kind: Kind::Total, field: Field::Gpus, to: Some(terms) };
        assert_eq!(change.to_string(), "total.gpus=unlimited until 2023-11-14T22:13:20Z (a paper)");
        assert_eq!(Change::new(Kind::Each, Field::Cpus, None).to_string(), "cpus=inherit");
        assert_eq!(Change::new(Kind::Each, Field::Cpus, Some(0)).to_string(), "cpus=0");
    }

    #[test]
    fn a_manager_shares_out_what_the_group_has() {
        let totals = [(Field::Gpus, Limit::AtMost(4)), (Field::Cpus, Limit::Unlimited)];
        let may = |kind, field, value, chargeable| {
            beyond_manager(&[Change::new(kind, field, value)], &totals, chargeable).is_empty()
        };
        for value in [Some(0), Some(4), None] {
            assert!(may(Kind::Each, Field::Gpus, value, true), "{value:?}");
        }
        assert!(!may(Kind::Each, Field::Gpus, Some(5), true) && !may(Kind::Each, Field::Gpus, Some(-1), true));
        assert!(may(Kind::Each, Field::Cpus, Some(-1), true));
        assert!(!may(Kind::Each, Field::Gpus, Some(1), false), "nothing is charged to it");
        assert!(may(Kind::Each, Field::Gpus, None, false), "but what was given can be taken back");
        assert!(!may(Kind::Each, Field::Pending, Some(1), true), "there is no total of it");
        assert!(!may(Kind::Total, Field::Gpus, Some(1), true) && !may(Kind::Total, Field::Gpus, None, true));
        let both = [Change::new(Kind::Each, Field::Gpus, Some(9)), Change::new(Kind::Each, Field::Jobs, Some(9))];
        let faults = beyond_manager(&both, &totals, true);
        assert_eq!(faults.iter().map(|fault| fault.field.as_str()).collect::<Vec<_>>(), ["each.gpus", "each.jobs"]);
        assert_eq!(faults[0].message, "The group may use 4 GPUs together. A member cannot have more.");
    }
}
