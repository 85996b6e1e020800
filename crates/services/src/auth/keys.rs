//! The installation's one secret, made at the first start, from which every other key is
//! derived; and the [`KeyProof`] by which `lyceum check`, who may read it too, proves itself to a
//! running portal.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use hmac::{Hmac, KeyInit, Mac};
use subtle::ConstantTimeEq;

use lyceum_model::Timestamp;

/// What everything else is derived from.
pub type Key = [u8; 32];

/// The key that lies in `private`, made when there is none.
pub fn load(private: &Path) -> io::Result<Key> {
    match read(private) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => make(private),
        read => read,
    }
}

/// Where it lies, from the end of the first start on.
pub fn path(private: &Path) -> PathBuf {
    private.join("keys/portal")
}

/// The key of a portal that has been started before.
pub fn read(private: &Path) -> io::Result<Key> {
    let path = path(private);
    let key = fs::read(&path)?.try_into().ok().filter(|key: &Key| key.iter().any(|byte| *byte != 0));
    key.ok_or_else(|| {
        io::Error::other(format!(
            "{} does not contain a key of 32 bytes; remove it to create a new one (all users must sign in again)",
            path.display()
        ))
    })
}

fn make(private: &Path) -> io::Result<Key> {
    let directory = private.join("keys");
    fs::create_dir_all(&directory)?;
    let path = directory.join("portal");
    let key: Key = rand::random();
    let draft = path.with_extension("new");
    let _ = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
    file.write_all(&key)?;
    file.sync_all()?;
    fs::rename(&draft, &path)?;
    Ok(key)
}

/// A key of its own for each purpose.
pub fn derive(key: &Key, purpose: &[u8]) -> Key {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(purpose);
    mac.finalize().into_bytes().into()
}

/// Proof that somebody knows a key, for a short time: `SECONDS.HASH`.
#[derive(Clone, Debug)]
pub struct KeyProof(String);

/// How far the clock of whoever shows a pass may be off, either way (seconds).
const MAX_CLOCK_SKEW: i64 = 60;

impl KeyProof {
    /// The header that carries one.
    pub const HEADER: &str = "x-lyceum-check";

    pub fn new(key: &Key, now: Timestamp) -> Self {
        let seconds = now.seconds_since(Timestamp(0));
        Self(format!("{seconds}.{}", hash(key, seconds)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `shown` was made with this key a moment ago.
    pub fn is_good(shown: &str, key: &Key, now: Timestamp) -> bool {
        let Some((seconds, given)) = shown.split_once('.') else { return false };
        let Ok(seconds) = seconds.parse::<i64>() else { return false };
        let age = now.seconds_since(Timestamp(0)).saturating_sub(seconds);
        (-MAX_CLOCK_SKEW..=MAX_CLOCK_SKEW).contains(&age)
            && bool::from(hash(key, seconds).as_bytes().ct_eq(given.as_bytes()))
    }
}

fn hash(key: &Key, seconds: i64) -> String {
    let own = derive(key, b"lyceum check");
    let hash = derive(&own, seconds.to_string().as_bytes());
    hash.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_of_one_key_and_one_moment() {
        let (now, key) = (Timestamp(1_800_000_000_000), [7; 32]);
        let pass = KeyProof::new(&key, now);
        assert!(KeyProof::is_good(pass.as_str(), &key, now.plus_seconds(MAX_CLOCK_SKEW)));
        assert!(!KeyProof::is_good(pass.as_str(), &key, now.plus_seconds(MAX_CLOCK_SKEW + 1)));
        assert!(!KeyProof::is_good(pass.as_str(), &[8; 32], now));
        let later = pass.as_str().replacen("1800000000", "1800000001", 1);
        for bad in ["", ".", "1800000000", "1800000000.", "x.y", &later] {
            assert!(!KeyProof::is_good(bad, &key, now), "{bad}");
        }
    }

    #[test]
    fn a_key_is_made_once() {
        let private = tempfile::tempdir().unwrap();
        assert_eq!(read(private.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        let key = load(private.path()).unwrap();
        assert_eq!(load(private.path()).unwrap(), key);
        for broken in [&b"short"[..], &[0; 32]] {
            fs::write(private.path().join("keys/portal"), broken).unwrap();
            assert!(load(private.path()).unwrap_err().to_string().contains("remove it"));
        }
    }
}
