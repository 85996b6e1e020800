//! Passwords: the one rule about them, and Argon2id. Hashing takes some 30 ms and 19 MiB, so
//! it runs on threads that give way to all others, and callers hold one of `Authenticator::slots`.

use std::thread;

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use rustix::process::setpriority_process;
use subtle::ConstantTimeEq;
use tokio::sync::oneshot;

use super::{Error, Result};

/// In characters.
const MIN_LENGTH: usize = 10;
/// In bytes: longer ones would only cost time.
pub(super) const MAX_LENGTH: usize = 1024;

/// At least 10 characters and no other rule.
pub fn check(password: &str) -> Result<()> {
    if password.len() > MAX_LENGTH {
        Err(Error::PasswordTooLong)
    } else if password.chars().count() < MIN_LENGTH {
        Err(Error::PasswordTooShort)
    } else {
        Ok(())
    }
}

/// The Argon2id hash of a password that satisfies [`check`], as PHC text.
pub async fn hash(password: &str) -> Result<String> {
    check(password)?;
    let password = password.to_owned();
    aside(move || Ok(made(password.as_bytes()).map_err(Error::Hash)?.to_string())).await
}

/// Whether `password` is the one that `hash` was made of; a hash that cannot be read fits none.
pub(super) async fn verify(password: &str, hash: &str) -> Result<bool> {
    let (password, hash) = (password.to_owned(), hash.to_owned());
    aside(move || {
        let Ok(hash) = PasswordHash::new(&hash) else { return Ok(false) };
        Ok(fits(password.as_bytes(), &hash).unwrap_or(false))
    })
    .await
}

/// The hash of a password with a fresh salt.
fn made(password: &[u8]) -> Result<PasswordHash, argon2::password_hash::Error> {
    let argon2 = Argon2::default();
    let salt = Salt::new(&rand::random::<[u8; 16]>())?;
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    fill(&argon2, password, &salt, &mut output)?;
    Ok(PasswordHash {
        algorithm: Algorithm::default().ident(),
        version: Some(Version::default().into()),
        params: ParamsString::try_from(argon2.params())?,
        salt: Some(salt),
        hash: Some(Output::new(&output)?),
    })
}

/// Whether a password is the one of a hash, which says with what it was made; `None` where
/// it is not one of Argon2's.
fn fits(password: &[u8], hash: &PasswordHash) -> Option<bool> {
    let algorithm = Algorithm::try_from(hash.algorithm.as_str()).ok()?;
    let version = hash.version.map_or(Ok(Version::default()), Version::try_from).ok()?;
    let argon2 = Argon2::new(algorithm, version, Params::try_from(hash).ok()?);
    let expected = hash.hash.as_ref()?;
    let mut output = vec![0; expected.len()];
    fill(&argon2, password, hash.salt.as_ref()?, &mut output).ok()?;
    Some(output.ct_eq(expected.as_ref()).into())
}

/// The C library keeps what is freed of allocations up to 32 MiB for later ones, and one such
/// memory for each thread that ever hashed. What is larger goes back to the kernel at once,
/// and the part of it that is not used costs nothing.
const GIVEN_BACK: usize = 33 * 1024 * 1024;

fn fill(argon2: &Argon2<'_>, password: &[u8], salt: &[u8], output: &mut [u8]) -> argon2::Result<()> {
    let count = argon2.params().block_count();
    let mut memory = Vec::with_capacity(count.max(GIVEN_BACK / Block::SIZE));
    memory.resize(count, Block::default());
    argon2.hash_password_into_with_memory(password, salt, output, &mut memory)
}

/// How nice a thread is that hashes. It gets a third of what others get of a core that they
/// want too: many sign-ins at once slow nobody's work, and on a machine that is full of work
/// people still get in.
const NICE: i32 = 5;

/// Runs a hash on a thread of its own: it takes a thousand times as long as to make one, and a
/// thread that has become nice must not come back to a pool.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let thread = move || {
        // On Linux it is the thread's own; where it is refused, hashing only disturbs more.
        let _ = setpriority_process(None, NICE);
        // Whoever asked may have gone.
        let _ = tell.send(work());
    };
    thread::Builder::new().name("hashing".to_owned()).spawn(thread).map_err(Error::Thread)?;
    told.await.expect("hashing does not panic")
}

#[cfg(test)]
mod tests {
    use argon2::{PasswordHasher, PasswordVerifier};

    use super::*;

    #[tokio::test]
    async fn hashes_are_those_of_the_library() {
        let (password, other) = ("correct horse battery", "correct horse batterz");
        let library = Argon2::default();
        let theirs: PasswordHash = library.hash_password(password.as_bytes()).unwrap();
        let ours = hash(password).await.unwrap();
        assert!(library.verify_password(password.as_bytes(), &PasswordHash::new(&ours).unwrap()).is_ok());
        for hash in [theirs.to_string(), ours] {
            assert!(verify(password, &hash).await.unwrap(), "{hash}");
            assert!(!verify(other, &hash).await.unwrap(), "{hash}");
        }
        for no_hash in ["", "x", "$2b$12$abcdefghijklmnopqrstuv", "$argon2id$v=19$m=19456,t=2,p=1"] {
            assert!(!verify(password, no_hash).await.unwrap(), "{no_hash:?}");
        }
    }

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
