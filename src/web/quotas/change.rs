//! What an administrator's change of limits says, and what is wrong with it: every fault at
//! once, each with its field, and nothing is written while there is one.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    db::quotas::{Change, Kind, Marks},
    model::{FieldError, Timestamp, quota::Field},
    web::error::{Error, Result},
};

/// A change: any of the quota fields (a number, -1 for unlimited, null to inherit), with
/// `expires_at` and `note` for the fields of this request.
#[derive(Debug, Deserialize, ToSchema)]
pub struct QuotaChange {
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub(super) expires_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) note: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub(super) fields: Fields,
}

/// A change of a group: what each member gets, what all together may use, and how the group
/// counts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupQuotaChange {
    /// Fields for each member: a number, -1 for unlimited, null to inherit.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) each: Fields,
    /// Fields for what is charged to the group, all together.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) total: Fields,
    /// Sessions can be charged to it.
    #[serde(default)]
    pub(super) chargeable: Option<bool>,
    /// Nobody in it gets more than it gives, whatever other groups they are in.
    #[serde(default)]
    pub(super) restrictive: Option<bool>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub(super) expires_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) note: Option<String>,
}

/// An object of fields. A name that stands twice is refused: a map would keep the last of
/// the two, and whoever reads the request sees the first.
#[derive(Debug, Default)]
pub struct Fields(BTreeMap<String, Value>);

/// A change without faults.
#[derive(Debug)]
pub(super) struct Read {
    pub changes: Vec<Change>,
    pub marks: Marks,
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
}

impl QuotaChange {
    /// For each person, or for all together.
    pub(super) fn read(self, kind: Kind, now: Timestamp) -> Result<Read> {
        let mut faults = about(self.expires_at, self.note.as_deref(), now);
        let changes = self.fields.read(kind, "", &mut faults);
        finish(Read { changes, marks: Marks::default(), expires_at: self.expires_at, note: self.note }, faults)
    }
}

impl GroupQuotaChange {
    pub(super) fn read(self, now: Timestamp) -> Result<Read> {
        let mut faults = about(self.expires_at, self.note.as_deref(), now);
        let mut changes = self.each.read(Kind::Each, "each.", &mut faults);
        changes.extend(self.total.read(Kind::Total, "total.", &mut faults));
        let marks = Marks { chargeable: self.chargeable, restrictive: self.restrictive };
        finish(Read { changes, marks, expires_at: self.expires_at, note: self.note }, faults)
    }
}

impl Fields {
    fn read(self, kind: Kind, prefix: &str, faults: &mut Vec<FieldError>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, value) in self.0 {
            let place = format!("{prefix}{name}");
            let Some(field) = Field::parse(&name) else {
                faults.push(FieldError::new(&place, "unknown_field", "There is no such field."));
                continue;
            };
            if kind == Kind::Total && !field.has_total() {
                faults.push(FieldError::new(
                    &place,
                    "not_a_total",
                    "This is limited for each person, not for all together.",
                ));
                continue;
            }
            match value {
                Value::Null => changes.push(Change { kind, field, value: None }),
                Value::Number(number) if number.as_i64().is_some_and(|number| -1 <= number) => {
                    changes.push(Change { kind, field, value: number.as_i64() });
                }
                _ => faults.push(FieldError::new(
                    &place,
                    "invalid_value",
                    "This must be null, -1 or a whole number from 0.",
                )),
            }
        }
        changes
    }
}

fn about(expires_at: Option<Timestamp>, note: Option<&str>, now: Timestamp) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if expires_at.is_some_and(|end| end <= now) {
        faults.push(FieldError::new("expires_at", "in_the_past", "This must be in the future."));
    }
    if note.is_some_and(|note| 500 < note.chars().count()) {
        faults.push(FieldError::new("note", "too_long", "At most 500 characters."));
    }
    if note.is_some_and(|note| note.contains(char::is_control)) {
        faults.push(FieldError::new("note", "characters", "One line without control characters."));
    }
    faults
}

fn finish(read: Read, faults: Vec<FieldError>) -> Result<Read> {
    if faults.is_empty() { Ok(read) } else { Err(Error::invalid(faults)) }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(de::Error::custom(format_args!("duplicate field `{name}`")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}
