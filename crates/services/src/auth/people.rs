//! What administrators do with other people's accounts: making, changing, disabling, signing
//! out, removing. Nobody does any of it to themselves, so that nobody raises their own role or
//! locks themselves out; that the last administrator stays is held by the database. Each change
//! takes hold at once and leaves an audit row. A token with scopes gives nobody more than the plain
//! role and leaves those who have more as they are: with their password or role it would become them.

use super::{Access, Error, Principal, Result, passwords};
use lyceum_db::{
    self as db,
    audit::{ChangedBy, Entry},
    idempotency::IdempotentRequest,
    people::UserChange,
    users::{NewUser, SignIn},
};
use lyceum_model::{Role, TokenId, User, UserId, Username, line, user::ExpiryChange};

/// The longest display name, in characters.
const MAX_NAME_LENGTH: usize = 128;

/// An account to be made.
#[derive(Clone, Debug)]
pub struct NewPerson {
    pub name: String,
    /// Empty: none.
    pub display_name: String,
    pub role: Role,
    /// Without one nobody can sign in yet.
    pub password: Option<String>,
    /// It is a service account: it cannot sign in, and administrators create its tokens.
    pub is_service: bool,
}

/// What to change of an account; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct PersonChange {
    pub display_name: Option<String>,
    pub role: Option<Role>,
    pub disabled: Option<bool>,
    pub expires_at: ExpiryChange,
    pub password: Option<String>,
}

/// A request's Idempotency-Key with a hash of its body.
pub type Key<'a> = Option<(&'a str, &'a str)>;

impl Access {
    /// Makes a local or service account; asked twice with one key it is the same account.
    pub async fn add_person(&self, actor: &Principal, new: NewPerson, key: Key<'_>) -> Result<UserId> {
        administrator(actor)?;
        if actor.is_scoped() && new.role != Role::User {
            return Err(Error::NotAllowed(BEYOND_SCOPES));
        }
        if let Some(id) = self.made_earlier(actor, key).await? {
            return id.parse().map_err(|_err| db::Error::Stored("user id").into());
        }
        let name = Username::for_made_account(&new.name).map_err(|bad| Error::Field {
            field: "name",
            code: "invalid_value",
            message: bad.to_string(),
        })?;
        let display_name = &display_name(&new.display_name)?;
        let hash = match &new.password {
            Some(_) if new.is_service => {
                let message = format!("must be omitted: {NO_PASSWORD}");
                return Err(Error::Field { field: "password", code: "not_allowed", message });
            }
            Some(password) => Some(hashed(password).await?),
            None => None,
        };
        let sign_in = match &hash {
            Some(hash) => SignIn::Password(hash),
            None if new.is_service => SignIn::Never,
            None => SignIn::NotYet,
        };
        let account = NewUser { name: &name, display_name, unix_name: None, role: new.role, sign_in };
        let once = key.map(|(key, request_hash)| IdempotentRequest { user: actor.id(), key, request_hash });
        match self.db.add_person(account, once, self.by(actor)).await {
            Ok(id) => Ok(id),
            Err(db::Error::Unique) => match self.made_earlier(actor, key).await? {
                Some(id) => id.parse().map_err(|_err| db::Error::Stored("user id").into()),
                None => Err(Error::Field {
                    field: "name",
                    code: "taken",
                    message: format!("there is already a user `{name}`"),
                }),
            },
            Err(err) => Err(err.into()),
        }
    }

    /// Changes somebody's account, all or nothing.
    pub async fn change_person(&self, actor: &Principal, target: &User, change: PersonChange) -> Result<()> {
        administrator(actor)?;
        within_scopes(actor, target, change.role)?;
        objection(actor.id(), target, &change).map_or(Ok(()), Err)?;
        if let Some(fault) = change.expires_at.fault(target.expires_at, self.clock.now()) {
            return Err(Error::Field { field: "expires_at", code: "invalid_value", message: fault.to_owned() });
        }
        let hash = match &change.password {
            Some(password) => Some(hashed(password).await?),
            None => None,
        };
        let new_name = change.display_name.as_deref().map(display_name).transpose()?;
        let change = UserChange {
            display_name: new_name.as_deref(),
            role: change.role,
            disabled: change.disabled,
            expires_at: change.expires_at,
            password_hash: hash.as_deref(),
        };
        if self.db.change_user(target.id, &change, self.by(actor)).await? {
            self.poll().await?;
        }
        Ok(())
    }

    /// Ends all logins of somebody; their tokens and sessions go on.
    pub async fn sign_out_person(&self, actor: &Principal, target: &User) -> Result<()> {
        administrator(actor)?;
        within_scopes(actor, target, None)?;
        let (by, subject) = (actor.user.name.as_str(), target.name.as_str());
        let entry = Entry { at: self.clock.now(), actor: by, action: "user.sign_out", subject, detail: "" };
        self.db.remove_logins_of(target.id, &entry).await?;
        self.poll().await?;
        Ok(())
    }

    /// Revokes somebody's token, at once; false when they have none of this id.
    pub async fn revoke_token_of(&self, actor: &Principal, target: &User, id: TokenId) -> Result<bool> {
        administrator(actor)?;
        within_scopes(actor, target, None)?;
        let (by, subject, detail) = (actor.user.name.as_str(), id.to_string(), format!("of {}", target.name));
        let entry =
            Entry { at: self.clock.now(), actor: by, action: "token.revoke", subject: &subject, detail: &detail };
        let removed = self.db.remove_token(target.id, id, &entry).await?;
        if removed {
            self.poll().await?;
        }
        Ok(removed)
    }

    /// Removes an account that nobody has ever used.
    pub async fn remove_person(&self, actor: &Principal, target: &User) -> Result<()> {
        administrator(actor)?;
        within_scopes(actor, target, None)?;
        if actor.id() == target.id {
            return Err(Error::NotAllowed(OWN_ACCOUNT));
        }
        if !self.db.remove_user(target.id, self.by(actor)).await? {
            return Err(Error::Conflict(format!(
                "the account `{}` was used or comes from a directory, so its history must be kept; disable it instead",
                target.name
            )));
        }
        self.poll().await?;
        Ok(())
    }

    /// What an earlier request with this key made, if there was one.
    pub(super) async fn made_earlier(&self, actor: &Principal, key: Key<'_>) -> Result<Option<String>> {
        let Some((key, hash)) = key else { return Ok(None) };
        match self.db.find_idempotent(actor.id(), key).await? {
            Some(earlier) if earlier.request_hash == hash => Ok(Some(earlier.created_id)),
            Some(_) => Err(Error::Field {
                field: "Idempotency-Key",
                code: "reused",
                message: "this key was used with another request; use a new key".to_owned(),
            }),
            None => Ok(None),
        }
    }

    /// Whoever does something now, for the audit log.
    pub(super) fn by<'a>(&self, actor: &'a Principal) -> ChangedBy<'a> {
        ChangedBy { actor: actor.user.name.as_str(), at: self.clock.now() }
    }
}

pub(crate) const OWN_ACCOUNT: &str =
    "you cannot change your own role, disable your own account or set when it expires; ask another administrator";

/// Why this change of this account cannot be, if so.
pub(crate) fn objection(actor: UserId, target: &User, change: &PersonChange) -> Option<Error> {
    let oneself = actor == target.id;
    let role = change.role.filter(|role| *role != target.given_role);
    let expires = change.expires_at.upon(target.expires_at) != target.expires_at;
    if oneself && (role.is_some() || expires || change.disabled == Some(true)) {
        return Some(Error::NotAllowed(OWN_ACCOUNT));
    }
    if oneself && change.password.is_some() {
        return Some(Error::NotAllowed("change your own password on the settings page, with your current password"));
    }
    if change.role.is_some_and(|role| role < target.role) && target.has_directorys_role() {
        let (name, role) = (&target.name, target.role.as_str());
        return Some(Error::Conflict(format!(
            "the role {role} of `{name}` comes from a group of the directory; change it there"
        )));
    }
    if target.is_service() && change.password.is_some() {
        return Some(Error::Conflict(format!("{NO_PASSWORD}; create a token for `{}`", target.name)));
    }
    if !target.is_kept_here() && (change.password.is_some() || change.display_name.is_some()) {
        return Some(Error::Conflict(format!(
            "the site's directory manages the name and password of `{}`; change them there",
            target.name
        )));
    }
    None
}

const NO_PASSWORD: &str = "service accounts have no password and cannot sign in";

const BEYOND_SCOPES: &str = "a token with scopes cannot set roles, make users managers of a group, or change \
                             administrators, operators and managers; use a token without scopes, or a page";

/// Whether a token with scopes may do something to this account, and give it this role.
pub(super) fn within_scopes(actor: &Principal, target: &User, role: Option<Role>) -> Result<()> {
    let has_more = Role::User < target.role || Role::User < target.given_role || !target.manages.is_empty();
    if actor.is_scoped() && (has_more || role.is_some_and(|role| role != Role::User)) {
        return Err(Error::NotAllowed(BEYOND_SCOPES));
    }
    Ok(())
}

/// Whether somebody may give others a right: an administrator, and by more than a scope.
pub(crate) fn giver_of_rights(actor: &Principal) -> Result<()> {
    administrator(actor)?;
    if actor.is_scoped() { Err(Error::NotAllowed(BEYOND_SCOPES)) } else { Ok(()) }
}

pub(super) fn administrator(actor: &Principal) -> Result<()> {
    if actor.is_admin() { Ok(()) } else { Err(Error::NotAllowed("only administrators can do this")) }
}

/// A display name that shows what it says, as everywhere else where people read lines of others.
pub fn display_name(text: &str) -> Result<String> {
    line::parse("display_name", text, MAX_NAME_LENGTH).map_err(|_fault| {
        let message = format!(
            "a display name must be one line of at most {MAX_NAME_LENGTH} characters, without invisible characters or \
             characters that change the writing direction"
        );
        Error::Field { field: "display_name", code: "invalid_value", message }
    })
}

pub(super) async fn hashed(password: &str) -> Result<String> {
    let too = |code, message: &str| Error::Field { field: "password", code, message: message.to_owned() };
    passwords::check(password).map_err(|err| match err {
        Error::PasswordTooShort => too("too_short", "must have at least 10 characters"),
        Error::PasswordTooLong => too("too_long", "must have at most 1024 bytes"),
        err => err,
    })?;
    passwords::hash(password).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::Timestamp;

    fn user(source: &str, given_role: Role, role: Role) -> User {
        User {
            id: UserId::new(),
            name: Username::parse("ada").unwrap(),
            display_name: "Ada".to_owned(),
            source: source.to_owned(),
            unix_name: None,
            directory_unix_name: None,
            role,
            given_role,
            disabled: false,
            expires_at: None,
            expired_at: None,
            dormant_at: None,
            absent_since: None,
            uid_number: None,
            groups: Vec::new(),
            manages: Vec::new(),
            created_at: Timestamp(0),
            last_seen_at: None,
        }
    }

    #[test]
    fn what_stands_against_a_change() {
        let none = PersonChange::default;
        let role = |role| PersonChange { role: Some(role), ..none() };
        let disable = PersonChange { disabled: Some(true), ..none() };
        let password = PersonChange { password: Some("a password of some length".to_owned()), ..none() };
        let expiry = PersonChange { expires_at: ExpiryChange::At(Timestamp(1)), ..none() };
        let name = PersonChange { display_name: Some("x".to_owned()), ..none() };
        let local = user("local", Role::Operator, Role::Operator);
        let chief = user("ldap", Role::User, Role::Admin);
        let program = user("service", Role::User, Role::User);
        let somebody = UserId::new();
        for (actor, target, change, fits) in [
            (somebody, &local, &role(Role::Admin), true),
            (somebody, &local, &role(Role::User), true),
            (somebody, &local, &disable, true),
            (somebody, &local, &password, true),
            (somebody, &local, &name, true),
            (local.id, &local, &role(Role::Admin), false),
            (local.id, &local, &role(Role::User), false),
            (local.id, &local, &role(Role::Operator), true),
            (local.id, &local, &disable, false),
            (local.id, &local, &expiry, false),
            (somebody, &local, &expiry, true),
            (somebody, &chief, &expiry, true),
            (local.id, &local, &password, false),
            (local.id, &local, &name, true),
            (somebody, &chief, &role(Role::Operator), false),
            (somebody, &chief, &role(Role::Admin), true),
            (somebody, &chief, &disable, true),
            (somebody, &chief, &password, false),
            (somebody, &chief, &name, false),
            (somebody, &program, &name, true),
            (somebody, &program, &role(Role::Operator), true),
            (somebody, &program, &password, false),
        ] {
            assert_eq!(objection(actor, target, change).is_none(), fits, "{change:?} of {target:?}");
        }
    }
}
