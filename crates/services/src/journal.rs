//! The audit log's copy in the system's log, where whoever may write the database cannot
//! reach it: each row once as a line of our own log (standard error, so the journal under
//! systemd), and, where `audit.syslog` names its socket, as a datagram to the system's
//! logger. It follows the table, so that rows of the command line are told too.

use std::{io, path::PathBuf, time::Duration};

use serde::Deserialize;
use tokio::net::UnixDatagram;

use lyceum_db::{self as db, Db, audit::Audit};
use lyceum_model::Loops;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The system logger's socket, `/dev/log`; empty: rows go to our own log alone.
    pub syslog: PathBuf,
}

impl Config {
    #[must_use]
    pub fn validate(&self) -> Option<String> {
        let fine = self.syslog.as_os_str().is_empty() || self.syslog.is_absolute();
        (!fine).then(|| "audit.syslog: must be the absolute path of a socket, as in /dev/log".to_owned())
    }
}

/// How often new rows are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the system's logger may take for one row.
const TIMEOUT: Duration = Duration::from_secs(1);
/// So many rows are read at once.
const STEP: i64 = 500;
/// The number of the last row that was told.
const LAST_FORWARDED: &str = "audit_told";
/// Facility authpriv (10), severity notice (5), as RFC 5424 numbers them.
const PRIORITY: u8 = 10 * 8 + 5;

/// Follows the audit log.
#[derive(Debug)]
pub struct Journal {
    db: Db,
    config: Config,
    told: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Db(#[from] db::Error),
    #[error("failed to send audit log entries to {}; they are kept and sent later", path.display())]
    Syslog { path: PathBuf, source: io::Error },
}

impl Journal {
    pub fn new(db: Db, config: Config) -> Self {
        Self { db, config, told: None }
    }

    /// Tells rows for ever; trouble is logged when it begins.
    pub async fn follow(mut self, loops: Loops) {
        let mut every = tokio::time::interval(INTERVAL);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut well = true;
        loop {
            every.tick().await;
            let round = loops.begin("audit log", Some(INTERVAL));
            let told = self.forward().await;
            round.end(&told);
            match told {
                Ok(()) => well = true,
                Err(err) if well => {
                    well = false;
                    tracing::error!(error = &err as &dyn std::error::Error, "failed to copy the audit log");
                }
                Err(_) => {}
            }
        }
    }

    /// Tells every row that has not been told. After a crash the last ones may be told twice,
    /// which their numbers show; none is left out.
    pub async fn forward(&mut self) -> Result<(), Error> {
        let mut told = match self.told {
            Some(told) => told,
            None => self.db.setting(LAST_FORWARDED).await?.and_then(|text| text.parse().ok()).unwrap_or(0),
        };
        self.told = Some(told);
        loop {
            let rows = self.db.audit_after(told, STEP).await?;
            let Some(last) = rows.last().map(|row| row.number) else { return Ok(()) };
            for row in &rows {
                self.write_syslog(row).await?;
                log(row);
                self.told = Some(row.number);
            }
            told = last;
            self.db.set_setting(LAST_FORWARDED, &told.to_string()).await?;
        }
    }

    /// In the form of the C library's `syslog`, which all loggers at that socket read: a
    /// time of day in front would be the sender's, the row has its own.
    async fn write_syslog(&self, row: &Audit) -> Result<(), Error> {
        let path = &self.config.syslog;
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let line = format!("<{PRIORITY}>lyceum[{}]: audit {}", std::process::id(), json(row));
        let handing_over = async {
            let socket = UnixDatagram::unbound()?;
            socket.send_to(line.as_bytes(), path).await.map(drop)
        };
        let outcome = tokio::time::timeout(TIMEOUT, handing_over).await;
        let outcome = outcome.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        outcome.map_err(|source| Error::Syslog { path: path.clone(), source })
    }
}

/// A row as one line: control characters are escaped by JSON.
fn json(row: &Audit) -> serde_json::Value {
    serde_json::json!({
        "number": row.number,
        "at": row.at,
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "detail": row.detail,
        "address": row.address,
        "request_id": row.request_id,
        "hash": row.hash,
    })
}

fn log(row: &Audit) {
    tracing::info!(
        target: "audit",
        number = row.number,
        at = %row.at,
        actor = row.actor,
        action = row.action,
        subject = row.subject,
        detail = row.detail,
        address = row.address,
        request_id = row.request_id,
        hash = row.hash,
        "audit"
    );
}
