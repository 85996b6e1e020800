//! Where tower-sessions keeps the sessions of browsers: in the table of logins. A session begins by
//! signing in and holds that login alone, so a record is a row, with its user beside it; of the
//! session's id only the hash is stored. Reading goes through the memory of [`Access`], which judges
//! every request. Ends are by the portal's clock: the one that tower-sessions computes is not used.

use std::{cell::Cell, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::task_local;
use tower_sessions_core::{
    Session, SessionStore,
    session::{self, Id, Record},
    session_store,
};

use super::{Access, Error, Result, access::IDLE_SECONDS, secrets, signin::own_entry};
use lyceum_db::{audit::Entry, logins::Login};
use lyceum_model::Timestamp;

/// The store of browser sessions.
#[derive(Clone)]
pub struct Logins(Arc<Access>);

/// What a record's data may be.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    login: Login,
    /// Of a session that begins.
    sign_in: Option<SignIn>,
}

/// What the audit log's row of a sign-in has besides.
#[derive(Serialize, Deserialize)]
struct SignIn {
    name: String,
    how: String,
}

impl Logins {
    pub fn new(access: Arc<Access>) -> Self {
        Self(access)
    }
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Logins")
    }
}

#[async_trait]
impl SessionStore for Logins {
    /// Writes a sign-in with its row in the audit log; an id that is taken is an error.
    async fn create(&self, record: &mut Record) -> session_store::Result<()> {
        let Data { login, sign_in } = data(record)?;
        let Some(SignIn { name, how }) = sign_in else {
            return Err(session_store::Error::Encode("a session begins by signing in".to_owned()));
        };
        let entry = Entry { at: login.created_at, actor: &name, action: "sign_in", subject: &name, detail: &how };
        self.0.db.add_login(&login, &hash(record.id), &entry).await.map_err(failed)
    }

    /// Checks that nothing has changed: a login stays as it began, and its use is noted as it is read.
    /// One that has ended meanwhile is not written again.
    async fn save(&self, record: &Record) -> session_store::Result<()> {
        let Data { login, .. } = data(record)?;
        match self.0.session(record.id).await.map_err(failed)? {
            Some(kept) if kept != (Login { last_seen_at: kept.last_seen_at, ..login }) => {
                Err(session_store::Error::Encode("a login does not change".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Reads from the memory that every request is judged by.
    async fn load(&self, id: &Id) -> session_store::Result<Option<Record>> {
        self.0.session(*id).await.map_err(failed)?.map(|login| record(*id, login)).transpose()
    }

    /// Signs out, with a row in the audit log; takes hold at once.
    async fn delete(&self, id: &Id) -> session_store::Result<()> {
        let db = &self.0.db;
        let Some(login) = db.find_login(&hash(*id)).await.map_err(failed)? else { return Ok(()) };
        let Some(account) = db.find_user(login.user).await.map_err(failed)? else { return Ok(()) };
        let entry = own_entry(&account.user, self.0.clock.now(), "sign_out");
        db.remove_login(login.id, &entry).await.map_err(failed)?;
        self.0.poll().await.map_err(failed)
    }
}

/// Returns what is stored of a session's id.
pub(super) fn hash(id: Id) -> String {
    secrets::hash(&id.to_string())
}

/// Returns when a login ends if it is not used again.
pub fn ends_at(login: &Login) -> Timestamp {
    login.expires_at.min(login.last_seen_at.plus_seconds(IDLE_SECONDS))
}

/// Makes a browser's session that of a login, under a new id; what it held before ends.
pub(super) async fn begin(session: &Session, login: &Login, name: &str, how: &str) -> Result<()> {
    let sign_in = SignIn { name: name.to_owned(), how: how.to_owned() };
    typed(async {
        session.clear().await;
        session.cycle_id().await?;
        session.insert("login", login).await?;
        session.insert("sign_in", sign_in).await?;
        session.save().await
    })
    .await
}

task_local! {
    /// What has failed below a session, which passes it on as a text.
    static CAUSE: Cell<Option<Error>>;
}

/// Does something with a session; an error of the database keeps its type, which decides what the
/// user reads.
pub(super) async fn typed<T>(work: impl Future<Output = Result<T, session::Error>>) -> Result<T> {
    let work = async { work.await.map_err(|err| CAUSE.with(Cell::take).unwrap_or(Error::Session(err))) };
    CAUSE.scope(Cell::default(), work).await
}

fn failed(err: impl Into<Error>) -> session_store::Error {
    let err = err.into();
    let text = session_store::Error::Backend(err.to_string());
    // The layer saves outside of `typed`, where the text must do.
    let _ = CAUSE.try_with(|cause| cause.set(Some(err)));
    text
}

fn data(record: &Record) -> session_store::Result<Data> {
    let data = Value::Object(record.data.clone().into_iter().collect());
    serde_json::from_value(data).map_err(|err| session_store::Error::Encode(err.to_string()))
}

fn record(id: Id, login: Login) -> session_store::Result<Record> {
    let undecodable = |err: &dyn std::error::Error| session_store::Error::Decode(err.to_string());
    let ends_at = i128::from(ends_at(&login).0) * 1_000_000;
    let expiry_date = OffsetDateTime::from_unix_timestamp_nanos(ends_at).map_err(|err| undecodable(&err))?;
    let login = serde_json::to_value(login).map_err(|err| undecodable(&err))?;
    Ok(Record { id, data: [("login".to_owned(), login)].into(), expiry_date })
}
