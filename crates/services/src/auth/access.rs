//! Who is asking, from memory: logins by the id of their browser's session (`store` reads the same
//! memory), tokens by the hash of their secret. The memory is thrown away whenever the database's
//! access generation has moved, so that a change made anywhere, the command line included, takes
//! hold within a second; the watchers of [`Access::changes`] then check live sockets again with
//! [`Access::still`].

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tower_sessions_core::session::Id;

use super::{
    Authenticator, Header, Result,
    attempts::Attempts,
    scopes::{self, Scope},
    secrets, store,
};
use lyceum_db::{Db, logins::Login, tokens::Token};
use lyceum_model::{Clock, LoginId, Loops, Role, Timestamp, TokenId, User, UserId};

/// A login that was not used for so long has ended, in seconds.
pub const IDLE_SECONDS: i64 = 8 * 3600;
/// A login ends after so long however much it is used, in seconds.
pub const ABSOLUTE_SECONDS: i64 = 7 * 86_400;
/// Use is written down at most so often, in seconds.
const TOUCH_SECONDS: i64 = 60;
/// How often the access generation is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Then the memory is thrown away rather than grown.
const MAX_REMEMBERED: usize = 50_000;

/// Somebody who has proved who they are, and how.
#[derive(Clone, Debug)]
pub struct Principal {
    pub user: User,
    /// `system`, `light` or `dark`.
    pub theme: String,
    pub credential: Credential,
}

#[derive(Clone, Debug)]
pub enum Credential {
    /// A browser's cookie, with the proof that its own pages carry.
    Login { id: LoginId, csrf_token: String },
    /// A program's token; without scopes it may do all that its owner may.
    Token { id: TokenId, scopes: Vec<String> },
}

impl Principal {
    pub fn id(&self) -> UserId {
        self.user.id
    }

    pub fn is_admin(&self) -> bool {
        self.user.role == Role::Admin
    }

    /// Whether they see everybody and everything.
    pub fn is_operator(&self) -> bool {
        Role::Operator <= self.user.role
    }

    /// Whether the credential has one of the scopes that are needed; a login always does.
    pub fn scopes_allow(&self, needed: &[Scope]) -> bool {
        match &self.credential {
            Credential::Login { .. } => true,
            Credential::Token { scopes, .. } => scopes::allow(scopes, needed),
        }
    }

    /// Whether this is a token that may do less than its owner.
    pub fn is_scoped(&self) -> bool {
        self.scopes().is_some_and(|scopes| !scopes.is_empty())
    }

    /// A token's scopes; `None` for a login.
    pub fn scopes(&self) -> Option<&[String]> {
        match &self.credential {
            Credential::Login { .. } => None,
            Credential::Token { scopes, .. } => Some(scopes),
        }
    }

    pub fn login(&self) -> Option<LoginId> {
        match self.credential {
            Credential::Login { id, .. } => Some(id),
            Credential::Token { .. } => None,
        }
    }

    /// What a form must carry; empty for tokens, which need no such proof.
    pub fn csrf_token(&self) -> &str {
        match &self.credential {
            Credential::Login { csrf_token, .. } => csrf_token,
            Credential::Token { .. } => "",
        }
    }

    /// Whether this is the proof that our own pages carry for this login.
    pub fn csrf_matches(&self, given: &str) -> bool {
        match &self.credential {
            Credential::Login { csrf_token, .. } => secrets::same(csrf_token, given),
            Credential::Token { .. } => false,
        }
    }
}

/// Judges credentials, signs in and out, makes and revokes tokens.
pub struct Access {
    pub(super) db: Db,
    pub(super) clock: Clock,
    pub(super) key: [u8; 32],
    pub(super) authenticator: Arc<dyn Authenticator>,
    /// Where a reverse proxy names people.
    pub(super) header: Option<Header>,
    /// Accounts that nobody uses for so long are disabled (seconds); `None`: never.
    pub dormant_after: Option<i64>,
    pub(super) slots: Semaphore,
    pub(super) attempts: Attempts,
    /// Where `admin`'s first password lies until they sign in.
    pub(super) first_password: std::path::PathBuf,
    memory: Mutex<Memory>,
    changes: watch::Sender<i64>,
}

#[derive(Default)]
struct Memory {
    generation: i64,
    by_key: HashMap<Key, Arc<CachedAccess>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// What a cookie holds.
    Session(Id),
    /// The hash of a token's secret.
    TokenSecret([u8; 32]),
    Login(LoginId),
    Token(TokenId),
}

struct CachedAccess {
    principal: Arc<Principal>,
    /// Of a login: what its session holds, with the last use as it was read.
    login: Option<Login>,
    expires_at: Timestamp,
    used: Mutex<Used>,
}

struct Used {
    at: Timestamp,
    written_at: Timestamp,
}

impl Access {
    /// `key` is a secret of this installation; with another one all forms must be loaded anew.
    /// `private` is the directory that holds the first password.
    pub fn new(
        db: Db,
        clock: Clock,
        key: [u8; 32],
        private: &std::path::Path,
        authenticator: Arc<dyn Authenticator>,
    ) -> Self {
        Self {
            db,
            key,
            slots: Semaphore::new(authenticator.slots()),
            attempts: Attempts::new(clock.clone(), authenticator.lockout()),
            clock,
            authenticator,
            header: None,
            dormant_after: None,
            first_password: super::first::path(private),
            memory: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// The same, where accounts that nobody uses for so long are disabled (seconds); 0: never.
    #[must_use]
    pub fn disabling_unused(self, seconds: i64) -> Self {
        Self { dormant_after: (0 < seconds).then_some(seconds), ..self }
    }

    /// The same, where a reverse proxy names people besides.
    #[must_use]
    pub fn with_header(self, header: Option<Header>) -> Self {
        Self { header, ..self }
    }

    /// How a reverse proxy names people, where one does.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Whose login cookie this is, if its login still stands; use is noted.
    pub async fn by_cookie(&self, cookie: &str) -> Result<Option<Arc<Principal>>> {
        // Only the id of a session is looked up, not a token's secret for example.
        let Ok(id) = cookie.parse() else { return Ok(None) };
        self.judge(Key::Session(id)).await
    }

    /// Returns what the session of this id holds, if it has not ended; notes the use.
    pub(super) async fn session(&self, id: Id) -> Result<Option<Login>> {
        let remembered = self.remembered(Key::Session(id)).await?;
        Ok(remembered.and_then(|remembered| {
            remembered.login.clone().map(|login| Login { last_seen_at: remembered.used.lock().at, ..login })
        }))
    }

    /// Whose token this is, if it still stands; use is noted.
    pub async fn by_token(&self, secret: &str) -> Result<Option<Arc<Principal>>> {
        self.judge(Key::TokenSecret(secrets::digest(secret))).await
    }

    /// Returns when the account of a token's owner expired, where that alone is why the token is rejected.
    pub async fn expiry_of_owner(&self, secret: &str) -> Result<Option<Timestamp>> {
        let (hash, now) = (hex::encode(secrets::digest(secret)), self.clock.now());
        let Some(token) = self.db.find_token(&hash).await?.filter(|token| now < token.expires_at) else {
            return Ok(None);
        };
        let owner = self.db.find_user(token.user).await?;
        Ok(owner.and_then(|owner| owner.user.expired_before(now)))
    }

    /// The login of this id, for requests that carry something bound to it.
    pub async fn by_login(&self, id: LoginId) -> Result<Option<Arc<Principal>>> {
        self.judge(Key::Login(id)).await
    }

    /// The token of this id, for connections that were opened with it.
    pub async fn by_token_id(&self, id: TokenId) -> Result<Option<Arc<Principal>>> {
        self.judge(Key::Token(id)).await
    }

    /// The same person with the same credential as they are now; `None` when it has ended.
    pub async fn still(&self, principal: &Principal) -> Result<Option<Arc<Principal>>> {
        match principal.credential {
            Credential::Login { id, .. } => self.judge(Key::Login(id)).await,
            Credential::Token { id, .. } => self.judge(Key::Token(id)).await,
        }
    }

    /// Tells that some access may have ended since; the value is the access generation.
    pub fn changes(&self) -> watch::Receiver<i64> {
        self.changes.subscribe()
    }

    /// The access generation as it was told last. Whoever lets something live in that outlasts
    /// its request compares: what changed meanwhile is seen here, what changes later there.
    pub fn generation(&self) -> i64 {
        *self.changes.borrow()
    }

    /// Compares the access generation; to be called every second. A database that is away
    /// changes nothing: people who are in go on working.
    pub async fn poll(&self) -> Result<()> {
        let generation = self.db.access_generation().await?;
        {
            let mut memory = self.memory.lock();
            if memory.generation == generation {
                return Ok(());
            }
            memory.generation = generation;
            memory.by_key.clear();
        }
        self.changes.send_replace(generation);
        Ok(())
    }

    /// Polls every second, for ever; trouble is logged when it begins.
    pub async fn poll_for_ever(&self, loops: &Loops) {
        let mut every = tokio::time::interval(POLL_INTERVAL);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut away = false;
        loop {
            every.tick().await;
            let round = loops.begin("access", Some(POLL_INTERVAL));
            let polled = self.poll().await;
            round.end(&polled);
            match polled {
                Ok(()) => away = false,
                Err(err) if !away => {
                    away = true;
                    tracing::error!(error = &err as &dyn std::error::Error, "failed to read the access generation");
                }
                Err(_) => {}
            }
        }
    }

    /// Removes the rows of logins that have ended by themselves.
    pub async fn purge(&self) -> Result<()> {
        let now = self.clock.now();
        self.db.purge_logins(now, now.plus_seconds(-IDLE_SECONDS)).await?;
        Ok(())
    }

    /// Forgets what was read of people, after a change that is no change of access.
    pub fn forget(&self) {
        self.memory.lock().by_key.clear();
    }

    /// The proof that pages of this login carry.
    pub(super) fn csrf_token(&self, login: LoginId) -> String {
        hex::encode(secrets::keyed(&self.key, &["csrf", &login.to_string()]))
    }

    /// The proof that a sign-in form carries, bound to the form's own cookie.
    pub fn form_token(&self, form_cookie: &str) -> String {
        hex::encode(secrets::keyed(&self.key, &["sign-in form", form_cookie]))
    }

    pub fn form_token_matches(&self, form_cookie: &str, given: &str) -> bool {
        secrets::same(&self.form_token(form_cookie), given)
    }

    /// A random value for the sign-in form's cookie.
    pub fn new_form_cookie(&self) -> String {
        secrets::random()
    }

    async fn judge(&self, key: Key) -> Result<Option<Arc<Principal>>> {
        Ok(self.remembered(key).await?.map(|remembered| remembered.principal.clone()))
    }

    async fn remembered(&self, key: Key) -> Result<Option<Arc<CachedAccess>>> {
        let now = self.clock.now();
        let (remembered, generation) = {
            let memory = self.memory.lock();
            (memory.by_key.get(&key).cloned(), memory.generation)
        };
        // What looks ended in memory may have been used under its other key: ask again.
        let remembered = if let Some(remembered) = remembered.filter(|remembered| remembered.stands(now)) {
            remembered
        } else {
            let Some(found) = self.find(&key).await?.filter(|found| found.stands(now)) else {
                // Live connections are checked by id, requests by secret. Both must find out at the same time that
                // access has ended, so nothing stays cached under the other key.
                if matches!(key, Key::Login(_) | Key::Token(_)) {
                    self.forget();
                }
                return Ok(None);
            };
            self.remember(key, found, generation)
        };
        self.note_use(&remembered, now);
        Ok(Some(remembered))
    }

    /// Keeps what was read while the generation was `generation`, unless it has moved since.
    fn remember(&self, key: Key, found: CachedAccess, generation: i64) -> Arc<CachedAccess> {
        let found = Arc::new(found);
        let mut memory = self.memory.lock();
        if memory.generation == generation {
            if memory.by_key.len() >= MAX_REMEMBERED {
                memory.by_key.clear();
            }
            memory.by_key.insert(key, found.clone());
        }
        found
    }

    async fn find(&self, key: &Key) -> Result<Option<CachedAccess>> {
        match key {
            Key::Session(id) => self.login(self.db.find_login(&store::hash(*id)).await?).await,
            Key::TokenSecret(hash) => self.token(self.db.find_token(&hex::encode(hash)).await?).await,
            Key::Login(id) => self.login(self.db.find_login_by_id(*id).await?).await,
            Key::Token(id) => self.token(self.db.find_token_by_id(*id).await?).await,
        }
    }

    async fn login(&self, login: Option<Login>) -> Result<Option<CachedAccess>> {
        let Some(login) = login else { return Ok(None) };
        let credential = Credential::Login { id: login.id, csrf_token: self.csrf_token(login.id) };
        let found = self.person(login.user, credential, login.expires_at, login.last_seen_at).await?;
        Ok(found.map(|found| CachedAccess { login: Some(login), ..found }))
    }

    async fn token(&self, token: Option<Token>) -> Result<Option<CachedAccess>> {
        let Some(token) = token else { return Ok(None) };
        let used = token.last_used_at.unwrap_or_default();
        let credential = Credential::Token { id: token.id, scopes: token.scopes };
        self.person(token.user, credential, token.expires_at, used).await
    }

    async fn person(
        &self,
        user: UserId,
        credential: Credential,
        expires_at: Timestamp,
        used_at: Timestamp,
    ) -> Result<Option<CachedAccess>> {
        let account = self.db.find_user(user).await?.filter(|account| !account.user.is_closed());
        Ok(account.map(|account| CachedAccess {
            // To the moment, whenever the account is disabled for it.
            expires_at: account.user.expires_at.map_or(expires_at, |end| end.min(expires_at)),
            principal: Arc::new(Principal { user: account.user, theme: account.theme, credential }),
            login: None,
            used: Mutex::new(Used { at: used_at, written_at: used_at }),
        }))
    }

    /// Remembers that somebody was here, and writes it down once a minute without making
    /// the request wait.
    fn note_use(&self, remembered: &CachedAccess, now: Timestamp) {
        {
            let mut used = remembered.used.lock();
            used.at = now;
            if (0..TOUCH_SECONDS).contains(&now.seconds_since(used.written_at)) {
                return;
            }
            used.written_at = now;
        }
        let (db, credential) = (self.db.clone(), remembered.principal.credential.clone());
        tokio::spawn(async move {
            let written = match credential {
                Credential::Login { id, .. } => db.touch_login(id, now).await,
                Credential::Token { id, .. } => db.touch_token(id, now).await,
            };
            if let Err(err) = written {
                tracing::warn!(error = &err as &dyn std::error::Error, "failed to record when a user was last seen");
            }
        });
    }
}

impl CachedAccess {
    fn stands(&self, now: Timestamp) -> bool {
        let idle = match self.principal.credential {
            Credential::Login { .. } => now.seconds_since(self.used.lock().at) >= IDLE_SECONDS,
            Credential::Token { .. } => false,
        };
        !idle && now < self.expires_at
    }
}
