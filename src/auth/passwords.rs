//! Passwords: the one rule about them, and Argon2id. Hashing takes some 30 ms and 19 MiB, so
//! it runs on the blocking threads, and callers hold one of `Authenticator::slots`.

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};

use super::{Error, Result};

/// In characters.
const SHORTEST: usize = 10;
/// In bytes: longer ones would only cost time.
pub(super) const LONGEST: usize = 1024;

/// At least 10 characters and no other rule.
pub fn check(password: &str) -> Result<()> {
    if LONGEST < password.len() {
        Err(Error::PasswordTooLong)
    } else if password.chars().count() < SHORTEST {
        Err(Error::PasswordTooShort)
    } else {
        Ok(())
    }
}

/// The Argon2id hash of a password that satisfies [`check`], as PHC text.
pub async fn hash(password: &str) -> Result<String> {
    check(password)?;
    let password = password.to_owned();
    blocking(move || {
        let hash: PasswordHash = Argon2::default().hash_password(password.as_bytes()).map_err(Error::Hash)?;
        Ok(hash.to_string())
    })
    .await
}

/// Whether `password` is the one that `hash` was made of; a hash that cannot be read fits none.
pub(super) async fn verify(password: &str, hash: &str) -> Result<bool> {
    let (password, hash) = (password.to_owned(), hash.to_owned());
    blocking(move || {
        let Ok(hash) = PasswordHash::new(&hash) else { return Ok(false) };
        Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.expect("hashing neither panics nor is aborted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_characters_and_no_other_rule() {
        assert!(check("ääääääääää").is_ok());
        assert!(check("          ").is_ok());
        assert!(check(&"x".repeat(1024)).is_ok());
        assert!(matches!(check("ääääääääa".trim_end_matches('a')), Err(Error::PasswordTooShort)));
        assert!(matches!(check(&"x".repeat(1025)), Err(Error::PasswordTooLong)));
    }

    #[tokio::test]
    async fn a_hash_fits_its_password_alone() {
        let kept = hash("correct horse").await.unwrap();
        assert!(kept.starts_with("$argon2id$v=19$"), "{kept}");
        assert!(verify("correct horse", &kept).await.unwrap());
        assert!(!verify("correct horsf", &kept).await.unwrap());
        assert!(!verify("correct horse", "not a hash").await.unwrap());
        assert_ne!(kept, hash("correct horse").await.unwrap());
    }
}
