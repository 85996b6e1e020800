//! People's own credentials for registries, such as an API key of NVIDIA's. They are encrypted in the database with a
//! key that is derived from the portal's, bound to their user and registry, and are decrypted for a pull alone. They
//! serve only images that are their owner's alone, for which the site's credentials are never used.

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use lyceum_db::{audit::Entry as AuditEntry, registry_credentials::RegistryCredentials};
use lyceum_images::{Access, Credentials, Reference};
use lyceum_model::{FieldError, User, UserId};

use super::{Error, Images, Result, Source};
use crate::auth::keys::Key;

/// How many registries a user can save credentials for.
const MAX_REGISTRIES: usize = 20;

/// What a user wants to save. The password is in no debug output.
pub struct NewCredentials {
    /// The host, with a port where it has one.
    pub registry: String,
    pub user: String,
    pub password: String,
}

impl Images {
    /// Returns what a user has saved, by registry. Passwords are encrypted.
    pub async fn credentials_of(&self, user: UserId) -> Result<Vec<RegistryCredentials>> {
        Ok(self.0.db.registry_credentials(user).await?)
    }

    /// Saves credentials of a user, in place of what they had for this registry.
    pub async fn set_credentials(&self, by: &User, new: &NewCredentials) -> Result<()> {
        if !self.may_add(by) {
            return Err(Error::Forbidden);
        }
        let registry = new.registry.trim();
        let mut faults = faults(registry, new);
        let saved = self.credentials_of(by.id).await?;
        if saved.len() >= MAX_REGISTRIES && !saved.iter().any(|one| one.registry == registry) {
            let sentence = format!("you have saved {MAX_REGISTRIES} registries: remove one of them first");
            faults.push(FieldError::new("registry", "too_many", sentence));
        }
        if !faults.is_empty() {
            return Err(Error::Invalid(faults));
        }
        let at = self.0.clock.now();
        let row = RegistryCredentials {
            password: seal(&self.0.key, &purpose(by.id, registry), &new.password),
            registry: registry.to_owned(),
            user_name: new.user.clone(),
            saved_at: at,
        };
        let noted = AuditEntry {
            at,
            actor: by.name.as_str(),
            action: "registry_credentials.set",
            subject: registry,
            detail: "",
        };
        Ok(self.0.db.set_registry_credentials(by.id, &row, &noted).await?)
    }

    /// Removes what a user has saved for a registry.
    pub async fn remove_credentials(&self, by: &User, registry: &str) -> Result<()> {
        let (at, actor) = (self.0.clock.now(), by.name.as_str());
        let noted = AuditEntry { at, actor, action: "registry_credentials.remove", subject: registry, detail: "" };
        let removed = self.0.db.remove_registry_credentials(by.id, registry, &noted).await?;
        if removed { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Returns with whose credentials an image is pulled; else why that cannot be said, as a sentence.
    pub(super) async fn access(&self, source: &Source, owner: Option<UserId>) -> Result<Access, String> {
        let Some(owner) = owner else { return Ok(Access::Site) };
        let Source::Registry(reference) = source else { return Ok(Access::Personal(None)) };
        let host = self.0.store.host(reference).map_err(|error| super::as_sentence(&error.to_string()))?;
        let saved = self.credentials_of(owner).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "registry credentials not read");
            "The database could not be read. Pull the image again.".to_owned()
        })?;
        let Some(own) = saved.into_iter().find(|one| one.registry == host) else { return Ok(Access::Personal(None)) };
        let password = unseal(&self.0.key, &purpose(owner, &host), &own.password).ok_or_else(|| {
            format!(
                "The credentials for {host} cannot be decrypted, because the portal's key has changed. Save them again."
            )
        })?;
        Ok(Access::Personal(Some((host, Credentials::new(own.user_name, password)))))
    }
}

fn faults(registry: &str, new: &NewCredentials) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let is_host = format!("{registry}/x").parse::<Reference>().is_ok_and(|parsed| parsed.registry() == registry);
    if !is_host || registry.len() > 255 {
        let sentence = "must be the host of a registry, with a port where it has one, such as nvcr.io";
        faults.push(FieldError::new("registry", "malformed", sentence));
    }
    let is_line = |text: &str, most: usize| (1..=most).contains(&text.len()) && !text.contains(char::is_control);
    if !is_line(&new.user, 256) || new.user.contains(':') {
        let sentence = "must have 1 to 256 characters, without a colon; for nvcr.io it is $oauthtoken";
        faults.push(FieldError::new("user", "malformed", sentence));
    }
    if !is_line(&new.password, 8192) {
        faults.push(FieldError::new("password", "malformed", "must be one line of 1 to 8192 characters"));
    }
    faults
}

/// What a password is bound to: in another row it cannot be decrypted.
fn purpose(user: UserId, registry: &str) -> String {
    format!("registry credentials\n{user}\n{registry}")
}

fn cipher(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the key has 32 bytes"))
}

/// Encrypts a text. Returns nonce and ciphertext as one word.
fn seal(key: &Key, purpose: &str, text: &str) -> String {
    let nonce: [u8; NONCE_LEN] = rand::random();
    let mut bytes = text.as_bytes().to_vec();
    cipher(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut bytes)
        .expect("the text is short");
    BASE64_STANDARD.encode([&nonce[..], &bytes].concat())
}

/// Decrypts what [`seal`] made with the same key for the same purpose.
fn unseal(key: &Key, purpose: &str, sealed: &str) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(sealed).ok()?;
    let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
    let mut rest = rest.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let text = cipher(key).open_in_place(nonce, Aad::from(purpose), &mut rest).ok()?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_bound_to_key_user_and_registry() {
        let (key, user) = ([7; 32], UserId::new());
        let here = purpose(user, "nvcr.io");
        let sealed = seal(&key, &here, "nvapi-secret");
        assert!(!sealed.contains("secret") && sealed != seal(&key, &here, "nvapi-secret"), "{sealed}");
        assert_eq!(unseal(&key, &here, &sealed).as_deref(), Some("nvapi-secret"));
        for (key, purpose) in
            [([8; 32], here.clone()), (key, purpose(user, "quay.io")), (key, purpose(UserId::new(), "nvcr.io"))]
        {
            assert_eq!(unseal(&key, &purpose, &sealed), None);
        }
        for bad in ["", "?", "AAAA", &sealed[4..]] {
            assert_eq!(unseal(&key, &here, bad), None, "{bad}");
        }
    }

    #[test]
    fn faults_name_their_field() {
        let fields = |registry: &str, user: &str, password: &str| {
            let new = NewCredentials { registry: String::new(), user: user.to_owned(), password: password.to_owned() };
            faults(registry, &new).into_iter().map(|fault| fault.field).collect::<Vec<_>>()
        };
        for registry in ["nvcr.io", "docker.io", "registry.example.org:5000", "localhost:5", "127.0.0.1:5000"] {
            assert!(fields(registry, "$oauthtoken", "key").is_empty(), "{registry}");
        }
        for registry in ["", "https://nvcr.io", "nvcr.io/nvidia", "nvidia", "me@nvcr.io", "a b", "NVCR.io/"] {
            assert_eq!(fields(registry, "x", "y"), ["registry"], "{registry}");
        }
        assert_eq!(fields("nvcr.io", "", ""), ["user", "password"]);
        assert_eq!(fields("nvcr.io", "a:b", "two\nlines"), ["user", "password"]);
    }
}
