//! Addresses that the portal calls for events: what administrators set, and how far each has got. A delivery that is under
//! way while an administrator changes or removes the webhook writes nothing.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::{Json, parse, readable},
    writing,
};
use lyceum_model::{Timestamp, WebhookId};

/// A webhook and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub id: WebhookId,
    pub url: String,
    /// Patterns of types of events.
    pub types: Vec<String>,
    pub salt: String,
    pub active: bool,
    pub created_by: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub progress: Progress,
}

/// How far a webhook has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last event that was delivered, was refused or is of another type.
    pub position: i64,
    /// Attempts of the next one that have failed, and when it is tried again.
    pub attempts: i64,
    pub due_at: Option<Timestamp>,
    pub delivered_at: Option<Timestamp>,
    /// How many events the receiver has refused.
    pub refused: i64,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

#[derive(FromRow)]
struct Row {
    id: String,
    url: String,
    event_types: String,
    salt: String,
    active: bool,
    created_by: String,
    created_at: i64,
    changed_at: i64,
    position: i64,
    attempts: i64,
    due_at: Option<i64>,
    delivered_at: Option<i64>,
    refused: i64,
    error: Option<String>,
}

fn webhook(row: Row) -> Result<Webhook> {
    Ok(Webhook {
        id: parse(&row.id, "webhook")?,
        url: row.url,
        types: Json::read(&row.event_types, "webhook's types")?,
        salt: row.salt,
        active: row.active,
        created_by: row.created_by,
        created_at: Timestamp(row.created_at),
        changed_at: Timestamp(row.changed_at),
        progress: Progress {
            position: row.position,
            attempts: row.attempts,
            due_at: row.due_at.map(Timestamp),
            delivered_at: row.delivered_at.map(Timestamp),
            refused: row.refused,
            error: row.error,
        },
    })
}

const LAST: &str = "SELECT COALESCE(MAX(number), 0) FROM events";

impl Db {
    /// Returns all webhooks, oldest first.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>> {
        let rows: Vec<Row> = reading!(self, pool => query_as(
            "SELECT id, url, event_types, salt, active, created_by, created_at, changed_at, position, attempts, due_at,
                 delivered_at, refused, error FROM webhooks ORDER BY id").fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(webhook)))
    }

    /// Adds a webhook, unless there are `most`; returns whether it did. It gets what happens from now on.
    pub async fn add_webhook(&self, new: &Webhook, most: i64, noted: &Entry<'_>) -> Result<bool> {
        let types = Json::write(&new.types);
        Ok(transaction!(self, tx => {
            let count: i64 = query_scalar("SELECT COUNT(*) FROM webhooks").fetch_one(&mut *tx).await?;
            if count >= most {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            let last: i64 = query_scalar(LAST).fetch_one(&mut *tx).await?;
            query("INSERT INTO webhooks (id, url, event_types, salt, active, created_by, created_at, changed_at, position,
                       attempts, refused)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0)")
                .bind(new.id.to_string()).bind(&new.url).bind(&types).bind(&new.salt).bind(new.active)
                .bind(&new.created_by).bind(new.created_at.0).bind(new.changed_at.0).bind(last)
                .execute(&mut *tx).await?;
            true
        }))
    }

    /// Changes the address, types and state of a webhook, and clears its failures. A webhook that becomes active gets what
    /// happens from now on. Returns false if there is none of this id.
    pub async fn change_webhook(&self, new: &Webhook, noted: &Entry<'_>) -> Result<bool> {
        let (id, types) = (new.id.to_string(), Json::write(&new.types));
        Ok(transaction!(self, tx => {
            let changed = query(
                "UPDATE webhooks SET position = CASE WHEN active THEN position ELSE (SELECT COALESCE(MAX(number), 0) FROM events) END,
                     url = $2, event_types = $3, salt = $4, active = $5, changed_at = $6, attempts = 0, due_at = NULL,
                     error = NULL WHERE id = $1")
                .bind(&id).bind(&new.url).bind(&types).bind(&new.salt).bind(new.active).bind(new.changed_at.0)
                .execute(&mut *tx).await?;
            if changed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// Removes a webhook. Returns false if there is none of this id.
    pub async fn remove_webhook(&self, id: WebhookId, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let removed = query("DELETE FROM webhooks WHERE id = $1").bind(id.to_string()).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// Stores how far a delivery has got. Returns false if the webhook was changed or removed meanwhile, which keeps what
    /// it is then.
    pub async fn settle_webhook(&self, hook: &Webhook) -> Result<bool> {
        let Progress { position, attempts, due_at, delivered_at, refused, error } = &hook.progress;
        let changed = writing!(self, pool => query(
            "UPDATE webhooks SET position = $3, attempts = $4, due_at = $5, delivered_at = $6, refused = $7, error = $8
             WHERE id = $1 AND changed_at = $2 AND active")
            .bind(hook.id.to_string()).bind(hook.changed_at.0).bind(position).bind(attempts)
            .bind(due_at.map(|at| at.0)).bind(delivered_at.map(|at| at.0)).bind(refused).bind(error)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }
}
