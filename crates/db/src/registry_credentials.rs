//! What people have saved for registries of container images: a row per user and registry. The password comes here
//! encrypted, and nothing here can read it. Each change writes its row of the audit log in its own transaction.

use sqlx::{query, query_as};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
};
use lyceum_model::{Timestamp, UserId};

/// A user's account at a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryCredentials {
    /// The host, with a port where it has one.
    pub registry: String,
    /// The user name at the registry.
    pub user_name: String,
    /// Encrypted.
    pub password: String,
    pub saved_at: Timestamp,
}

impl Db {
    /// Returns what a user has saved, by registry.
    pub async fn registry_credentials(&self, user: UserId) -> Result<Vec<RegistryCredentials>> {
        let rows: Vec<(String, String, String, i64)> = reading!(self, pool =>
            query_as("SELECT registry, user_name, password, saved_at FROM registry_credentials
                 WHERE user_id = $1 ORDER BY registry").bind(user.to_string()).fetch_all(pool).await)?;
        let read = |(registry, user_name, password, at)| RegistryCredentials {
            registry,
            user_name,
            password,
            saved_at: Timestamp(at),
        };
        Ok(rows.into_iter().map(read).collect())
    }

    /// Saves what a user has for a registry, in place of what was there.
    pub async fn set_registry_credentials(
        &self,
        user: UserId,
        new: &RegistryCredentials,
        noted: &Entry<'_>,
    ) -> Result<()> {
        let user = user.to_string();
        transaction!(self, tx => {
            query("INSERT INTO registry_credentials (user_id, registry, user_name, password, saved_at)
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (user_id, registry) DO UPDATE SET
                 user_name = excluded.user_name, password = excluded.password, saved_at = excluded.saved_at")
                .bind(&user).bind(&new.registry).bind(&new.user_name).bind(&new.password).bind(new.saved_at.0)
                .execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Removes what a user has saved for a registry. Returns false where there is nothing.
    pub async fn remove_registry_credentials(&self, user: UserId, registry: &str, noted: &Entry<'_>) -> Result<bool> {
        let user = user.to_string();
        Ok(transaction!(self, tx => {
            let removed = query("DELETE FROM registry_credentials WHERE user_id = $1 AND registry = $2")
                .bind(&user).bind(registry).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }
}
