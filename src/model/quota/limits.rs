//! Which limit binds somebody, field by field, and where it comes from: their own unexpired
//! row, else the default that an administrator set, else what a fresh install gives.

use super::{Effective, Field, Limit, LimitRow, MACHINE, Scope};
use crate::model::{Capacity, Timestamp};

/// The effective limit of every field, complete by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits(Vec<(Field, Effective)>);

impl Limits {
    /// Resolves every field: an unexpired override, else the default that an administrator
    /// set, else what a fresh install gives. With one account everything belongs to it; as
    /// soon as there is a second one, a person gets one GPU by default.
    #[must_use]
    pub fn resolve(rows: &[LimitRow], capacity: &Capacity, single_account: bool, now: Timestamp) -> Self {
        let row = |scope, field| {
            rows.iter()
                .find(|row| row.scope == scope && row.field == field && row.expires_at.is_none_or(|end| now < end))
        };
        let effective = |field| {
            if let Some(row) = row(Scope::User, field) {
                let source =
                    row.expires_at.map_or_else(|| "override".to_owned(), |end| format!("override until {end}"));
                return Effective { limit: Limit::of(row.value), source };
            }
            if let Some(row) = row(Scope::Default, field) {
                return Effective { limit: Limit::of(row.value), source: "default".to_owned() };
            }
            let (value, source) = match field {
                Field::Gpus if single_account => (capacity.gpus, MACHINE),
                Field::Gpus => (capacity.gpus.min(1), "default"),
                Field::Cpus => (capacity.cpus, MACHINE),
                Field::MemoryBytes => (capacity.memory_bytes, MACHINE),
                Field::Sessions | Field::Jobs => (4, "default"),
                Field::Pending => (20, "default"),
                Field::Light => (6, "default"),
                Field::MaxSessionSeconds | Field::ExtensionSeconds => (8 * 3600, "default"),
                Field::MaxJobSeconds => (48 * 3600, "default"),
                Field::MaxExtensions => (3, "default"),
                Field::IdleTimeoutSeconds => (2 * 3600, "default"),
            };
            Effective { limit: Limit::AtMost(value), source: source.to_owned() }
        };
        Self(Field::ALL.into_iter().map(|field| (field, effective(field))).collect())
    }

    pub fn of(&self, field: Field) -> &Effective {
        self.0.iter().find(|(name, _)| *name == field).map(|(_, effective)| effective).expect("every field is resolved")
    }

    pub fn iter(&self) -> impl Iterator<Item = (Field, &Effective)> {
        self.0.iter().map(|(field, effective)| (*field, effective))
    }
}

impl Limit {
    /// From a stored value, where -1 is unlimited.
    #[must_use]
    pub fn of(value: i64) -> Self {
        if value < 0 { Self::Unlimited } else { Self::AtMost(value) }
    }

    /// As it is stored and as the API shows it.
    #[must_use]
    pub fn value(self) -> i64 {
        match self {
            Self::Unlimited => -1,
            Self::AtMost(value) => value,
        }
    }

    /// The smaller of this and `value`.
    #[must_use]
    pub fn cap(self, value: i64) -> i64 {
        match self {
            Self::Unlimited => value,
            Self::AtMost(limit) => limit.min(value),
        }
    }
}
