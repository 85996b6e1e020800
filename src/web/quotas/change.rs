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
    db::limits::GroupFlags,
    model::{
        FieldError, Timestamp,
        quota::{Change, Kind, Terms},
    },
    web::http::error::{Error, Result},
};

/// A change of any quota fields: a number, -1 for unlimited, null to inherit. `expires_at` and `note` apply to the
/// fields of this request.
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

/// A change of a group: the limits of each member, the totals, and how the group counts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupQuotaChange {
    /// Fields for each member: a number, -1 for unlimited, null to inherit.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) each: Fields,
    /// Fields for the totals of the group: a number, -1 for unlimited, null for no total.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) total: Fields,
    /// Whether sessions can be charged to the group.
    #[serde(default)]
    pub(super) chargeable: Option<bool>,
    /// Whether members get at most this group's limits, regardless of their other groups.
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

/// Holds a validated change.
#[derive(Debug)]
pub(super) struct ParsedChange {
    pub changes: Vec<Change>,
    pub marks: GroupFlags,
}

/// Until when, and why: for all fields of a request.
struct Validity {
    expires_at: Option<Timestamp>,
    note: Option<String>,
}

impl QuotaChange {
    /// For each person, or for all together.
    pub(super) fn read(self, kind: Kind, now: Timestamp) -> Result<ParsedChange> {
        let about = Validity { expires_at: self.expires_at, note: self.note };
        let mut faults = about.faults(now);
        let changes = self.fields.read(kind, "", &about, &mut faults);
        finish(ParsedChange { changes, marks: GroupFlags::default() }, faults)
    }
}

impl GroupQuotaChange {
    pub(super) fn read(self, now: Timestamp) -> Result<ParsedChange> {
        let about = Validity { expires_at: self.expires_at, note: self.note };
        let mut faults = about.faults(now);
        let mut changes = self.each.read(Kind::Each, "each.", &about, &mut faults);
        changes.extend(self.total.read(Kind::Total, "total.", &about, &mut faults));
        let marks = GroupFlags { chargeable: self.chargeable, restrictive: self.restrictive };
        finish(ParsedChange { changes, marks }, faults)
    }
}

impl Fields {
    fn read(self, kind: Kind, prefix: &str, about: &Validity, faults: &mut Vec<FieldError>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, value) in self.0 {
            let place = format!("{prefix}{name}");
            match Change::read(kind, &name, &value, &place) {
                Ok(mut change) => {
                    if let Some(terms) = &mut change.to {
                        (terms.expires_at, terms.note) = (about.expires_at, about.note.clone());
                    }
                    changes.push(change);
                }
                Err(fault) => faults.push(fault),
            }
        }
        changes
    }
}

impl Validity {
    fn faults(&self, now: Timestamp) -> Vec<FieldError> {
        let end = self.expires_at.and_then(|end| Terms::expiry_fault(end, now));
        let note = self.note.as_deref().and_then(Terms::note_fault);
        let end = end.map(|message| FieldError::new("expires_at", "in_the_past", message));
        end.into_iter().chain(note.map(|(code, message)| FieldError::new("note", code, message))).collect()
    }
}

fn finish(read: ParsedChange, faults: Vec<FieldError>) -> Result<ParsedChange> {
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
