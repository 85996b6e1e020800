//! The chain of the audit log: whether every row is as it was written and none is missing,
//! and how its oldest rows are forgotten without a break. What was forgotten leaves its last
//! hash in the anchor, where the walk begins.

use sqlx::{query, query_as};

use super::{
    Db, Result,
    audit::{Audit, Entry, append_audit},
    reading, transaction,
};
use lyceum_model::Timestamp;

/// Reports the result of checking the audit chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainCheck {
    /// `rows` rows up to this number; the hash can be compared with a copy elsewhere.
    Whole {
        rows: i64,
        last: i64,
        hash: String,
    },
    Broken {
        number: i64,
        why: &'static str,
    },
}

/// So many rows are read at once.
const STEP: i64 = 1000;

impl Db {
    /// Walks the whole chain and names the first row that is not as it was written.
    pub async fn verify_audit(&self) -> Result<ChainCheck> {
        let (mut last, mut hash) = self.audit_anchor().await?;
        let mut rows = 0;
        loop {
            let step = self.audit_after(last, STEP).await?;
            if step.is_empty() {
                return Ok(if rows == 0 && last > 0 {
                    ChainCheck::Broken { number: last + 1, why: "this entry and all later ones are missing" }
                } else {
                    ChainCheck::Whole { rows, last, hash }
                });
            }
            for row in step {
                if row.number != last + 1 {
                    // What is too old may have been forgotten while we walked.
                    let (anchor, anchored) = self.audit_anchor().await?;
                    if row.number != anchor + 1 || anchor <= last {
                        return Ok(ChainCheck::Broken { number: last + 1, why: "the entry is missing" });
                    }
                    hash = anchored;
                }
                if row.hash != row.digest(&hash) {
                    return Ok(ChainCheck::Broken { number: row.number, why: "the entry was changed" });
                }
                (last, hash) = (row.number, row.hash);
                rows += 1;
            }
        }
    }

    /// Number and hash of the last row that was forgotten by age.
    pub async fn audit_anchor(&self) -> Result<(i64, String)> {
        Ok(reading!(self, pool => query_as("SELECT number, hash FROM audit_anchor").fetch_one(pool).await)?)
    }

    /// Forgets up to `most` of the oldest rows, those from before `before`, and notes that it
    /// did; returns how many. The last row always stays.
    pub async fn prune_audit(&self, before: Timestamp, most: i64, now: Timestamp) -> Result<usize> {
        let oldest = self.audit_after(0, most + 1).await?;
        let old = old_rows(oldest.iter().map(|row| (row.at <= now).then_some(row.at < before)));
        let count = old.min(oldest.len().saturating_sub(1)).min(usize::try_from(most).unwrap_or(0));
        let Some(Audit { number, hash, .. }) = count.checked_sub(1).map(|index| &oldest[index]) else { return Ok(0) };
        let detail = format!("{count} rows up to number {number}");
        let entry = Entry { at: now, actor: "portal", action: "audit.prune", subject: "audit", detail: &detail };
        transaction!(self, tx => {
            query("UPDATE audit_anchor SET number = $1, hash = $2").bind(number).bind(hash).execute(&mut *tx).await?;
            query("DELETE FROM audit WHERE number <= $1").bind(number).execute(&mut *tx).await?;
            append_audit(&mut *tx, &entry).await?;
        });
        Ok(count)
    }
}

/// How many of the first rows are to be forgotten, of which this says whether they are old by their own moment, and
/// nothing of those from the future: up to the last old one before which most are old. So rows that were written
/// while a
/// clock was ahead keep nothing that stands behind them, and one that was written while it was behind takes nothing
/// along.
fn old_rows(rows: impl Iterator<Item = Option<bool>>) -> usize {
    let (mut old, mut dated, mut count) = (0, 0, 0);
    for (index, is_old) in rows.enumerate() {
        dated += usize::from(is_old.is_some());
        if is_old == Some(true) {
            old += 1;
            if dated < 2 * old {
                count = index + 1;
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_were_off_keep_nothing_and_take_nothing() {
        let moment = |row| match row {
            'o' => Some(true),
            'n' => Some(false),
            _ => None,
        };
        let old = |rows: &str| old_rows(rows.chars().map(moment));
        for (rows, count) in [
            ("", 0),
            ("ooo", 3),
            ("ooonn", 3),
            ("nnn", 0),
            // The clock was ahead at first, or for a while.
            ("nooo", 4),
            ("nnooooonnn", 7),
            ("oonoon", 5),
            // It was ahead of today.
            ("ffffffffonn", 9),
            ("ffff", 0),
            ("offfffo", 7),
            // It was behind for a moment.
            ("nnnnonn", 0),
            ("onnnn", 1),
            ("ononnnon", 3),
        ] {
            assert_eq!(old(rows), count, "{rows}");
        }
        let ahead = "f".repeat(1500) + &"o".repeat(500);
        assert_eq!(old(&ahead), 2000, "most of a batch");
    }
}
