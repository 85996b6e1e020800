//! API tokens: making, rotating and revoking one's own, and those of service accounts, whose tokens administrators manage.
//! Only one response contains the secret. A repeated request with the same Idempotency-Key gets the same secret: it is
//! derived from this key and a key of the portal, instead of drawn at random.

use super::{
    Access, Credential, Error, Principal, Result,
    people::{Key, giver_of_rights},
    scopes::Scope,
    secrets,
};
use lyceum_db::{
    self as db,
    audit::{ChangedBy, Entry},
    idempotency::IdempotentRequest,
    tokens::Token,
};
use lyceum_model::{Timestamp, TokenId, User, line, token::PREFIX};

/// In seconds.
pub const DEFAULT_LIFETIME: i64 = 30 * 86_400;
/// In seconds.
pub const MAX_LIFETIME: i64 = 366 * 86_400;

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    /// None: everything that the owner may do.
    pub scopes: Vec<String>,
    pub expires_in_seconds: Option<i64>,
}

/// Makes a token for somebody, on whatever authority the caller has: the command line's.
pub async fn make(db: &db::Db, user: &User, new: NewToken, by: ChangedBy<'_>) -> Result<(Token, String)> {
    let token = fresh(user, new, by.at)?;
    let secret = format!("{PREFIX}{}", secrets::random());
    let (id, detail) = (token.id.to_string(), audit_detail(user.name.as_str(), &token));
    let entry = Entry { at: by.at, actor: by.actor, action: "token.make", subject: &id, detail: &detail };
    db.add_token(&token, &secrets::hash(&secret), None, &entry).await?;
    Ok((token, secret))
}

impl Access {
    /// Makes a token of `owner` and its secret: one's own, or that of a service account. `once` is the request's
    /// Idempotency-Key with a hash of its body.
    pub async fn make_token(
        &self,
        actor: &Principal,
        owner: &User,
        new: NewToken,
        once: Key<'_>,
    ) -> Result<(Token, String)> {
        may_hold_secrets(actor, owner)?;
        let token = fresh(owner, new, self.clock.now())?;
        // A key that was used for another owner is another request.
        let request_hash = once.map(|(_, body)| format!("{} {body}", owner.id)).unwrap_or_default();
        let secret = match once {
            None => format!("{PREFIX}{}", secrets::random()),
            Some((key, _)) => self.derived("token", &[&actor.id().to_string(), key, &request_hash]),
        };
        let once = once.map(|(key, _)| IdempotentRequest { user: actor.id(), key, request_hash: &request_hash });
        let (id, detail) = (token.id.to_string(), audit_detail(owner.name.as_str(), &token));
        let entry = self.by(actor).did("token.make", &id, &detail);
        match self.db.add_token(&token, &secrets::hash(&secret), once, &entry).await {
            Ok(()) => Ok((token, secret)),
            Err(db::Error::Unique) if once.is_some() => {
                let key = once.map(|once| once.key).unwrap_or_default();
                self.made_before(actor, key, &secret).await
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Revokes one's own token, at once; false when there is none of this id.
    pub async fn revoke_token(&self, principal: &Principal, id: TokenId) -> Result<bool> {
        let (at, actor, subject) = (self.clock.now(), principal.user.name.as_str(), id.to_string());
        let entry = Entry { at, actor, action: "token.revoke", subject: &subject, detail: "" };
        let removed = self.db.remove_token(principal.id(), id, &entry).await?;
        if removed {
            self.poll().await?;
        }
        Ok(removed)
    }

    /// Replaces the secret of a token of `owner`, which then lives as long as it was made for; `None` when there is none of
    /// this id. The old secret is rejected from now on. A repeated request with the same Idempotency-Key gets the same
    /// secret, until the token is rotated again.
    ///
    /// # Errors
    ///
    /// A token with scopes may do this to itself alone.
    pub async fn rotate_token(
        &self,
        actor: &Principal,
        owner: &User,
        id: TokenId,
        key: Option<&str>,
    ) -> Result<Option<(Token, String)>> {
        may_hold_secrets(actor, owner)?;
        if let Credential::Token { id: own, scopes } = &actor.credential
            && !scopes.is_empty()
            && *own != id
        {
            return Err(Error::NotAllowed("a token with scopes can rotate only itself"));
        }
        let subject = id.to_string();
        let request_hash = format!("rotate {subject}");
        let secret = match key {
            None => format!("{PREFIX}{}", secrets::random()),
            Some(key) => self.derived("rotated token", &[&actor.id().to_string(), key, &subject]),
        };
        let once = key.map(|key| IdempotentRequest { user: actor.id(), key, request_hash: &request_hash });
        let detail = if owner.id == actor.id() { String::new() } else { format!("of {}", owner.name) };
        let entry = self.by(actor).did("token.rotate", &subject, &detail);
        match self.db.rotate_token(owner.id, id, &secrets::hash(&secret), once, &entry).await {
            Ok(None) => Ok(None),
            Ok(Some(token)) => {
                self.poll().await?;
                Ok(Some((token, secret)))
            }
            Err(db::Error::Unique) if key.is_some() => {
                self.made_before(actor, key.unwrap_or_default(), &secret).await.map(Some)
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Returns the secret that belongs to these words. It is always the same, and only this portal can derive it.
    fn derived(&self, purpose: &str, words: &[&str]) -> String {
        let parts: Vec<&str> = std::iter::once(purpose).chain(words.iter().copied()).collect();
        format!("{PREFIX}{}", secrets::encode(&secrets::keyed(&self.key, &parts)))
    }

    /// The answer to a repeated request: the secret is the same if the body is.
    async fn made_before(&self, principal: &Principal, key: &str, secret: &str) -> Result<(Token, String)> {
        let token = self.db.find_token(&secrets::hash(secret)).await?;
        if let Some(token) = token {
            return Ok((token, secret.to_owned()));
        }
        let earlier = self.db.find_idempotent(principal.id(), key).await?;
        let id = earlier.and_then(|earlier| earlier.created_id.parse().ok());
        match id {
            Some(id) if self.db.find_token_by_id(id).await?.is_some() => Err(Error::Field {
                field: "Idempotency-Key",
                code: "reused",
                message: "this key was used with another request; use a new key".to_owned(),
            }),
            _ => Err(Error::MadeAndRevoked),
        }
    }
}

/// Whether somebody may get the secrets of an account's tokens: its owner, and administrators those of service accounts.
fn may_hold_secrets(actor: &Principal, owner: &User) -> Result<()> {
    if actor.id() == owner.id {
        return Ok(());
    }
    giver_of_rights(actor)?;
    if owner.is_service() {
        return Ok(());
    }
    Err(Error::Conflict(format!(
        "`{}` is not a service account: only its owner can create and rotate its tokens",
        owner.name
    )))
}

/// A token that may be made.
fn fresh(user: &User, new: NewToken, now: Timestamp) -> Result<Token> {
    let expires_at = now.plus_seconds(check(&new)?);
    Ok(Token {
        id: TokenId::new(),
        user: user.id,
        name: new.name.trim().to_owned(),
        scopes: new.scopes,
        created_at: now,
        expires_at,
        last_used_at: None,
    })
}

/// What the audit log keeps of a new token: whose, called what, for what.
fn audit_detail(owner: &str, token: &Token) -> String {
    let scopes = if token.scopes.is_empty() { "everything".to_owned() } else { token.scopes.join(" ") };
    format!("of {owner}: {} ({scopes}) until {}", token.name, token.expires_at)
}

/// The lifetime in seconds of a token that may be made.
fn check(new: &NewToken) -> Result<i64> {
    let wrong = |field, code, message: String| Err(Error::Field { field, code, message });
    let name = new.name.trim();
    if name.is_empty() || name.chars().count() > 64 || name.contains(line::is_misleading) {
        return wrong(
            "name",
            "invalid_value",
            "a name must have 1 to 64 characters, without control characters, invisible characters or characters that \
             change the writing direction"
                .into(),
        );
    }
    if let Some(unknown) = new.scopes.iter().find(|scope| scope.parse::<Scope>().is_err()) {
        let known = Scope::ALL.map(Scope::as_str);
        let shown: String = unknown.chars().take(40).collect();
        return wrong(
            "scopes",
            "unknown_scope",
            format!("unknown scope {shown:?}; valid scopes are {}", known.join(", ")),
        );
    }
    if Scope::ALL.len() < new.scopes.len() {
        return wrong("scopes", "invalid_value", "a scope is listed twice".into());
    }
    match new.expires_in_seconds.unwrap_or(DEFAULT_LIFETIME) {
        lifetime @ 1..=MAX_LIFETIME => Ok(lifetime),
        _ => wrong("expires_in_seconds", "out_of_range", "a token must expire after 1 second to 366 days".into()),
    }
}
