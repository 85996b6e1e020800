//! Quotas over REST: what binds somebody and where it comes from, and an administrator's
//! changes at the default and for one person. One field can change alone; `null` inherits,
//! -1 is unlimited. The whole page of quotas comes later.

use std::{collections::BTreeMap, fmt, sync::Arc};

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Portal,
    error::{Error, FieldError, Result},
    extract::{Admin, Json},
    versions::{check_version, tagged},
};
use crate::{
    admission::Standing,
    auth::Principal,
    db::quotas::ChangeNote,
    model::{
        Timestamp, User,
        quota::{Field, LimitRow, Scope, Usage},
    },
};

/// A limit and where it comes from.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Effective {
    /// -1 is unlimited.
    pub limit: i64,
    /// `override`, `override until …`, `default`, `machine`.
    pub source: String,
}

/// What binds somebody, what they set, and what they use.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserQuota {
    pub user: String,
    /// Every field as it binds.
    pub effective: BTreeMap<&'static str, Effective>,
    /// The fields that are set for this person alone.
    pub overrides: BTreeMap<&'static str, Override>,
    pub usage: Usage,
}

/// A field that is set at one level.
#[derive(Debug, Serialize, ToSchema)]
pub struct Override {
    pub value: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
}

/// The defaults of everybody.
#[derive(Debug, Serialize, ToSchema)]
pub struct DefaultQuota {
    /// The fields that an administrator set; the others are as shipped.
    pub fields: BTreeMap<&'static str, Override>,
}

/// A change: any of the quota fields (a number, -1 for unlimited, null to inherit), with
/// `expires_at` and `note` for the fields of this request.
#[derive(Debug, Deserialize, ToSchema)]
pub struct QuotaChange {
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    expires_at: Option<Timestamp>,
    #[serde(default)]
    note: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    fields: Fields,
}

/// The rest of an object. A name that stands twice is refused: a map would keep the last of
/// the two, and whoever reads the request sees the first.
#[derive(Debug)]
struct Fields(BTreeMap<String, Value>);

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

#[utoipa::path(get, path = "/quotas/users/{name}", tag = "quotas", params(("name" = String, Path)),
    responses((status = 200, body = UserQuota)))]
pub async fn of_user(_: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = find(&portal, &name).await?;
    Ok(tagged(&user_quota(&portal, &user).await?, &PASSING))
}

/// Changes one person's limits; the fields that are not named stay.
#[utoipa::path(patch, path = "/quotas/users/{name}", tag = "quotas", params(("name" = String, Path)),
    request_body = QuotaChange, responses((status = 200, body = UserQuota)))]
pub async fn change_user(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    let user = find(&portal, &name).await?;
    check_version(&headers, &user_quota(&portal, &user).await?, &PASSING)?;
    write(&portal, &admin.0, Some(&user), change).await?;
    Ok(tagged(&user_quota(&portal, &user).await?, &PASSING))
}

#[utoipa::path(get, path = "/quotas/default", tag = "quotas", responses((status = 200, body = DefaultQuota)))]
pub async fn defaults(_: Admin, State(portal): State<Arc<Portal>>) -> Result<Response> {
    Ok(tagged(&default_quota(&portal).await?, &PASSING))
}

/// Changes the defaults; the fields that are not named stay.
#[utoipa::path(patch, path = "/quotas/default", tag = "quotas", request_body = QuotaChange,
    responses((status = 200, body = DefaultQuota)))]
pub async fn change_defaults(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Json(change): Json<QuotaChange>,
) -> Result<Response> {
    check_version(&headers, &default_quota(&portal).await?, &PASSING)?;
    write(&portal, &admin.0, None, change).await?;
    Ok(tagged(&default_quota(&portal).await?, &PASSING))
}

/// Usage changes by itself.
const PASSING: [&str; 1] = ["usage"];

/// Every field as it binds, for `/me` too.
pub(super) fn effective(standing: &Standing) -> BTreeMap<&'static str, Effective> {
    let row = |(field, effective): (Field, &crate::model::quota::Effective)| {
        (field.as_str(), Effective { limit: effective.limit.value(), source: effective.source.clone() })
    };
    standing.limits.iter().map(row).collect()
}

async fn user_quota(portal: &Portal, user: &User) -> Result<UserQuota> {
    let standing = portal.sessions.standing(user.id).await?;
    let rows = portal.db.limits_of(user.id).await?;
    Ok(UserQuota {
        user: user.name.to_string(),
        effective: effective(&standing),
        overrides: set_at(&rows, Scope::User),
        usage: standing.usage,
    })
}

async fn default_quota(portal: &Portal) -> Result<DefaultQuota> {
    Ok(DefaultQuota { fields: set_at(&portal.db.default_limits().await?, Scope::Default) })
}

fn set_at(rows: &[LimitRow], scope: Scope) -> BTreeMap<&'static str, Override> {
    rows.iter()
        .filter(|row| row.scope == scope)
        .map(|row| {
            let set = Override { value: row.value, expires_at: row.expires_at, note: row.note.clone() };
            (row.field.as_str(), set)
        })
        .collect()
}

async fn find(portal: &Portal, name: &str) -> Result<User> {
    Ok(portal.db.find_user_by_name(name).await?.ok_or_else(Error::not_found)?.user)
}

async fn write(portal: &Portal, admin: &Principal, user: Option<&User>, change: QuotaChange) -> Result<()> {
    let mut faults = Vec::new();
    let mut changes = Vec::new();
    for (name, value) in &change.fields.0 {
        let Some(field) = Field::parse(name) else {
            faults.push(FieldError::new(name, "unknown_field", "There is no such field."));
            continue;
        };
        match value {
            Value::Null => changes.push((field, None)),
            Value::Number(number) if number.as_i64().is_some_and(|number| -1 <= number) => {
                changes.push((field, number.as_i64()));
            }
            _ => faults.push(FieldError::new(name, "invalid_value", "This must be null, -1 or a whole number from 0.")),
        }
    }
    let now = portal.clock.now();
    if change.expires_at.is_some_and(|end| end <= now) {
        faults.push(FieldError::new("expires_at", "in_the_past", "This must be in the future."));
    }
    if change.note.as_ref().is_some_and(|note| 500 < note.chars().count()) {
        faults.push(FieldError::new("note", "too_long", "At most 500 characters."));
    }
    if change.note.as_ref().is_some_and(|note| note.contains(char::is_control)) {
        faults.push(FieldError::new("note", "characters", "One line without control characters."));
    }
    if !faults.is_empty() {
        return Err(Error::invalid(faults));
    }
    let by = admin.user.name.as_str();
    let about = ChangeNote { by, at: now, expires_at: change.expires_at, note: change.note.as_deref() };
    portal.db.set_limits(user.map(|user| user.id), &changes, &about).await?;
    let target = user.map_or_else(|| "default".to_owned(), |user| user.name.to_string());
    let detail = serde_json::to_string(&change.fields.0).unwrap_or_default();
    portal.db.add_audit(now, by, "quota.change", &target, &detail).await?;
    // Raising a limit lets waiters in at once.
    portal.sessions.wake();
    Ok(())
}
