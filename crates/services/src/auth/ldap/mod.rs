//! The organisation's directory: people sign in with the password that it keeps, and what it
//! says of them (name, groups, whether the account stands) is read at each sign-in and again
//! every few minutes while they are in. A person is known by the directory's own id, so that
//! a new name keeps everything and a re-used name inherits nothing. Accounts of our own go on
//! working beside it, which is the way in when the directory is away.

mod connection;
mod entry;
mod filter;
mod groups;
pub mod probe;
mod refresh;
mod settings;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ldap3::{LdapError, Scope, SearchEntry};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::Semaphore;

pub(super) use filter::normalise;
pub use settings::{Nested, Settings};

use super::{Authenticator, Error as AuthError, Local, attempts::Attempt, name::SignInName, passwords};
use connection::Connection;
use entry::Entry;
use lyceum_db::{
    Db,
    directory::{ArrivalOutcome, Group, Person},
};
use lyceum_model::{
    Clock, Role, UserId, Username,
    health::{Contact, UnresolvedEntry},
};

/// Where directory people come from, in the users table.
pub const SOURCE: &str = "ldap";
/// Sign-ins that may wait for the directory at once.
const SLOTS: usize = 64;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to connect to {url}")]
    Connect {
        url: String,
        #[source]
        source: Box<LdapError>,
    },
    /// Nobody has answered.
    #[error("no response from the directory to a {what}")]
    Ask {
        what: &'static str,
        #[source]
        source: Box<LdapError>,
    },
    /// The directory has answered, but not what it was asked.
    #[error("the directory answered a {what} with an error: \
             {}{}{text}", connection::in_words(*code), if text.is_empty() { "" } else { ": " })]
    Answer { what: &'static str, code: u32, text: String },
    #[error("{0} is in more groups than the directory lists, or than the portal supports ({1} were read)")]
    ManyGroups(String, usize),
    #[error("the directory rejected the password of {0} (auth.ldap.bind_dn)")]
    Service(String),
    #[error("the directory took longer than {0} s in total")]
    Slow(u64),
    #[error("the directory's response has more than {0} entries")]
    TooMuch(usize),
    #[error("the directory lists none of the {0} users who have access; nothing was changed")]
    Emptied(usize),
    #[error("the directory has none of the {0} groups with limits or managers; these groups were not changed")]
    NoGroups(usize),
    #[error("auth.ldap.ca_file {}: {reason}", path.display())]
    Authority { path: PathBuf, reason: String },
    #[error("failed to store data from the directory")]
    Db(#[from] lyceum_db::Error),
}

impl Error {
    /// What somebody who signs in hears of an answer: what it is, and nothing of what was asked about.
    pub fn for_people(&self) -> String {
        match self {
            Self::Answer { code, .. } => connection::in_words(*code),
            Self::ManyGroups(..) => "you are in more groups than it lists".to_owned(),
            Self::TooMuch(_) => "its response has too many entries".to_owned(),
            _ => "it does not answer".to_owned(),
        }
    }

    /// Whether nobody answers at all, so that nobody else can be asked about either.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Ask { .. } | Self::Slow(_) | Self::Service(_))
    }
}

/// Asks the directory.
pub struct Ldap {
    db: Db,
    clock: Clock,
    settings: Settings,
    trust: Arc<ClientConfig>,
    /// The accounts of our own, and how many of their passwords are checked at once.
    local: Local,
    local_slots: Semaphore,
    /// The server that answered last.
    preferred: AtomicUsize,
    contact: Mutex<Contact>,
    unjudged: Mutex<Vec<UnresolvedEntry>>,
}

/// Somebody as the directory has them now.
struct DirectoryUser {
    entry: Entry,
    groups: Vec<Group>,
    role: Role,
}

impl Ldap {
    pub async fn new(db: Db, clock: Clock, settings: Settings) -> Result<Self, AuthError> {
        let local = Local::new(db.clone()).await?;
        let trust = connection::trust(&settings)?;
        let local_slots = Semaphore::new(local.slots());
        Ok(Self {
            db,
            clock,
            settings,
            trust,
            local,
            local_slots,
            preferred: AtomicUsize::new(0),
            contact: Mutex::default(),
            unjudged: Mutex::default(),
        })
    }

    /// The servers' addresses, in the order of the settings.
    pub fn servers(&self) -> &[String] {
        &self.settings.urls
    }

    /// How the servers answered lately.
    pub fn contact(&self) -> Contact {
        self.contact.lock().clone()
    }

    /// Whom the last look could not judge.
    pub fn unjudged(&self) -> Vec<UnresolvedEntry> {
        self.unjudged.lock().clone()
    }

    /// Whether the service account can look at people between their sign-ins.
    pub fn refreshes(&self) -> Option<Duration> {
        self.settings.can_search().then(|| Duration::from_secs(self.settings.refresh.unsigned_abs()))
    }

    /// Finds whoever has this name and password; the inner `Err` says why it is nobody.
    async fn check(
        &self,
        typed: &SignInName,
        password: &str,
        attempt: &Attempt<'_>,
    ) -> Result<super::Result<DirectoryUser>> {
        let mut connection = self.connect().await?;
        let found = if self.settings.user_dn.is_empty() {
            self.find(&mut connection, typed).await?
        } else {
            let dn = filter::person_dn(&self.settings, &typed.canonical);
            if !bind(&mut connection, &dn, password, attempt).await? {
                return Ok(Err(AuthError::refused("the directory rejected the password")));
            }
            self.read(&mut connection, &dn, Scope::Base, "(objectClass=*)", &typed.canonical).await?
        };
        let entry = match found.and_then(|entry| self.objection(&entry, typed).map_or(Ok(entry), Err)) {
            Ok(entry) => entry,
            Err(because) => {
                // As long as a wrong password takes, so that names cannot be told apart.
                let nobody = format!("cn={}", super::secrets::random());
                connection.bind(&format!("{nobody},{}", self.settings.user_base), password).await?;
                return Ok(Err(AuthError::refused(because)));
            }
        };
        if self.settings.user_dn.is_empty() {
            // Before the directory counts: however somebody was found, it is one entry that it locks.
            if let Err(err) = attempt.is_about(entry.name.as_str()).await {
                return Ok(Err(err));
            }
            if !bind(&mut connection, &entry.dn, password, attempt).await? {
                return Ok(Err(AuthError::refused(format!("the directory rejected the password of {}", entry.dn))));
            }
        }
        if self.settings.can_search() {
            self.become_service(&mut connection).await?;
        }
        let groups = groups::of_person(&mut connection, &self.settings, &entry).await?;
        Ok(self.judge(entry, groups).map_err(AuthError::refused))
    }

    /// Whoever has this name, which somebody else has proved to be theirs.
    async fn look_up(&self, name: &Username) -> Result<std::result::Result<DirectoryUser, String>> {
        let mut connection = self.connect().await?;
        let asked = SignInName { written: name.to_string(), canonical: name.to_string() };
        let entry = match self.find(&mut connection, &asked).await? {
            Ok(entry) => entry,
            Err(because) => return Ok(Err(because)),
        };
        // It may have been found by another of the attributes that people sign in with.
        if entry.name != *name {
            return Ok(Err(format!("{} has the name {}, not {name}", entry.dn, entry.name)));
        }
        if let Some(closed) = entry.closed {
            return Ok(Err(format!("{} is {closed}", entry.dn)));
        }
        let groups = groups::of_person(&mut connection, &self.settings, &entry).await?;
        Ok(self.judge(entry, groups))
    }

    /// What the groups make of somebody.
    fn judge(&self, entry: Entry, groups: Vec<Group>) -> std::result::Result<DirectoryUser, String> {
        let rules = &self.settings.rules;
        match rules.may_enter(&groups) {
            Ok(()) => Ok(DirectoryUser { role: rules.role(&groups), entry, groups }),
            Err(because) => Err(format!("{} {because}", entry.dn)),
        }
    }

    /// Who has the name that somebody has proved elsewhere: as at a sign-in by password, but
    /// for the password.
    pub async fn recognise(&self, name: &Username) -> super::Result<UserId> {
        self.arrive(async { Ok(self.look_up(name).await?.map_err(AuthError::refused)) }).await
    }

    /// Waits for what the directory says of somebody, and writes it down.
    async fn arrive(&self, asked: impl Future<Output = Result<super::Result<DirectoryUser>>>) -> super::Result<UserId> {
        let patience = self.patience();
        let answer = tokio::time::timeout(patience, asked).await;
        match answer.unwrap_or(Err(Error::Slow(patience.as_secs())))? {
            Ok(found) => known(self.admit(&found).await?, &found.entry.name),
            Err(err) => Err(err),
        }
    }

    /// The one person of this name; the inner `Err` says why there is none.
    async fn find(
        &self,
        connection: &mut Connection,
        typed: &SignInName,
    ) -> Result<std::result::Result<Entry, String>> {
        let filter = filter::person(&self.settings, &typed.canonical, &typed.written);
        self.read(connection, &self.settings.user_base, Scope::Subtree, &filter, &typed.canonical).await
    }

    async fn read(
        &self,
        connection: &mut Connection,
        base: &str,
        scope: Scope,
        filter: &str,
        name: &str,
    ) -> Result<std::result::Result<Entry, String>> {
        let found = connection.search(base, scope, filter, &entry::attributes(&self.settings)).await?.entries;
        // A further value of one person's may be the name of another: it is whose own name it is.
        let is_own =
            |one: &&SearchEntry| entry::own_name(one, &self.settings).is_ok_and(|own| own.eq_ignore_ascii_case(name));
        let own: Vec<&SearchEntry> = found.iter().filter(is_own).collect();
        Ok(match (found.as_slice(), own.as_slice()) {
            ([], _) => Err("the directory has no matching user".to_owned()),
            ([one], _) | (_, &[one]) => entry::read(one, &self.settings, self.clock.now()),
            (many, _) => Err(several(many)),
        })
    }

    /// Why an entry that was found is not who asks. A directory may take look-alikes, other
    /// cases and spaces for the same name; two spellings of one name are one too many.
    fn objection(&self, entry: &Entry, typed: &SignInName) -> Option<String> {
        let typed = &typed.canonical;
        if let Some(closed) = entry.closed {
            return Some(format!("{} is {closed}", entry.dn));
        }
        let same = entry.name.as_str() == typed || !self.settings.sign_in_attributes.is_empty();
        (!same).then(|| format!("{typed:?} is not the spelling of {} ({})", entry.dn, entry.name))
    }

    /// Opens a connection to the first server that answers, as the service account where
    /// there is one.
    async fn connect(&self) -> Result<Connection> {
        let outcome = self.reach().await;
        let now = self.clock.now();
        let mut contact = self.contact.lock();
        match &outcome {
            Ok(_) => contact.last_success = Some(now),
            Err(err) => contact.last_error = Some((now, err.to_string())),
        }
        drop(contact);
        outcome
    }

    async fn reach(&self) -> Result<Connection> {
        let (urls, preferred) = (&self.settings.urls, self.preferred.load(Ordering::Relaxed));
        let mut last = None;
        for step in 0..urls.len() {
            let index = (preferred + step) % urls.len();
            match self.open(&urls[index]).await {
                Ok(connection) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(err) => {
                    tracing::warn!(
                        error = &err as &dyn std::error::Error,
                        url = urls[index],
                        "directory server unavailable"
                    );
                    last = Some(err);
                }
            }
        }
        Err(last.expect("the settings name a server"))
    }

    async fn open(&self, url: &str) -> Result<Connection> {
        let mut connection = Connection::open(&self.settings, &self.trust, url).await?;
        if self.settings.can_search() {
            self.become_service(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn become_service(&self, connection: &mut Connection) -> Result<()> {
        if connection.bind(&self.settings.bind_dn, &self.settings.bind_password).await? {
            Ok(())
        } else {
            Err(Error::Service(self.settings.bind_dn.clone()))
        }
    }

    /// Three questions and a connection, each at its longest, for each server.
    fn patience(&self) -> Duration {
        let seconds = self.settings.connect_timeout.saturating_add(self.settings.timeout.saturating_mul(2));
        Duration::from_secs(seconds.unsigned_abs().saturating_mul(self.settings.urls.len() as u64))
    }

    /// Writes down who has arrived.
    async fn admit(&self, found: &DirectoryUser) -> Result<ArrivalOutcome> {
        let person = Person {
            source: SOURCE,
            subject: &found.entry.subject,
            name: &found.entry.name,
            display_name: &found.entry.display_name,
            mail: found.entry.mail.as_deref(),
            uid_number: found.entry.uid_number,
            unix_name: found.entry.unix_name.as_deref(),
            role: Some(found.role),
            groups: &found.groups,
        };
        Ok(self.db.arrive(&person, self.clock.now()).await?)
    }
}

/// Binds as somebody who signs in: the directory counts it.
async fn bind(connection: &mut Connection, dn: &str, password: &str, attempt: &Attempt<'_>) -> Result<bool> {
    attempt.asks();
    let is_right = connection.bind(dn, password).await?;
    if is_right {
        attempt.is_right();
    }
    Ok(is_right)
}

/// Why nobody can be meant where several entries were found.
fn several(many: &[SearchEntry]) -> String {
    format!("the directory has {} matching entries, including {} and {}", many.len(), many[0].dn, many[1].dn)
}

/// An error with its causes, in one line.
pub(super) fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        let next = err.to_string();
        if !text.contains(&next) {
            text += ": ";
            text += &next;
        }
        cause = err.source();
    }
    text
}

/// What an arrival means to whoever signs in.
pub(super) fn known(arrival: ArrivalOutcome, name: &Username) -> super::Result<UserId> {
    match arrival {
        ArrivalOutcome::Known(id) => Ok(id),
        ArrivalOutcome::Disabled => Err(AuthError::refused(format!("{name} is disabled or expired in the portal"))),
        ArrivalOutcome::NameTaken => Err(AuthError::refused(format!(
            "the name {name} belongs to another user of the portal; an administrator can link them (lyceum admin user \
             link {name})"
        ))),
    }
}

#[async_trait]
impl Authenticator for Ldap {
    fn accepts(&self, name: &SignInName) -> super::Result<()> {
        match (self.settings.sign_in_attributes.is_empty(), self.settings.user_dn.is_empty()) {
            (true, _) => name.username().map(drop),
            // Whose entry it is that a name leads to, nobody knows before the bind: only where
            // the directory and we compare alike, one entry is one name.
            (false, false) if !name.canonical.is_ascii() => {
                Err(AuthError::refused("the name has characters that are not ASCII"))
            }
            (false, _) => Ok(()),
        }
    }

    async fn authenticate(&self, name: &SignInName, password: &str, attempt: &Attempt<'_>) -> super::Result<UserId> {
        // An empty password would be an anonymous bind, which succeeds; NUL ends strings in C.
        if password.is_empty() || password.len() > passwords::MAX_LENGTH || password.contains('\0') {
            return Err(AuthError::refused("the input cannot be a password"));
        }
        let known = self.db.find_user_by_name(&name.canonical).await?;
        if known.is_some_and(|account| account.user.is_kept_here()) {
            let _slot = self.local_slots.acquire().await.expect("the semaphore is never closed");
            return self.local.authenticate(name, password, attempt).await;
        }
        self.arrive(self.check(name, password, attempt)).await
    }

    fn slots(&self) -> usize {
        SLOTS
    }

    fn lockout(&self) -> Option<super::throttle::Lockout> {
        Some(super::throttle::Lockout {
            failures: self.settings.lockout_failures,
            window_seconds: self.settings.lockout_window,
        })
    }
}
