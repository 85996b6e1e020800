//! GPUs that operators keep from new work, with the reason. Each change writes its row of the audit log in its own
//! transaction. Who may do so is decided by whoever asks.

use sqlx::{query, query_as};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
};
use lyceum_model::{Timestamp, gpus::WithheldGpu};

impl Db {
    /// Returns the GPUs that are withheld now.
    pub async fn withheld_gpus(&self) -> Result<Vec<WithheldGpu>> {
        let rows: Vec<(String, String, String, i64)> = reading!(self, pool =>
            query_as("SELECT uuid, reason, withheld_by, withheld_at FROM withheld_gpus ORDER BY uuid")
            .fetch_all(pool).await)?;
        let read = |(uuid, reason, by, at)| WithheldGpu { uuid, reason, by, at: Timestamp(at) };
        Ok(rows.into_iter().map(read).collect())
    }

    /// Withholds a GPU; of one that is withheld already, the reason is replaced.
    pub async fn withhold_gpu(&self, new: &WithheldGpu, noted: &Entry<'_>) -> Result<()> {
        transaction!(self, tx => {
            query("INSERT INTO withheld_gpus (uuid, reason, withheld_by, withheld_at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (uuid) DO UPDATE SET reason = excluded.reason, withheld_by = excluded.withheld_by,
                 withheld_at = excluded.withheld_at")
                .bind(&new.uuid).bind(&new.reason).bind(&new.by).bind(new.at.0).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Gives a GPU back. Returns false where it is not withheld.
    pub async fn release_gpu(&self, uuid: &str, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let released =
                query("DELETE FROM withheld_gpus WHERE uuid = $1").bind(uuid).execute(&mut *tx).await?;
            if released.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }
}
