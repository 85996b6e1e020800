//! Secrets and their shadows: random strings for tokens and forms, the hash that is stored
//! in their place, and keyed hashes that prove we made something.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// 256 random bits as 43 characters that need no quoting anywhere.
pub(super) fn random() -> String {
    encode(&rand::random::<[u8; 32]>())
}

pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns what is stored of a secret. One round is enough: 128 random bits cannot be guessed.
pub(super) fn hash(secret: &str) -> String {
    hex::encode(digest(secret))
}

/// The same before it is written as text.
pub(super) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// A keyed hash over the parts, each with its length, so that no two lists collide.
pub(super) fn keyed(key: &[u8; 32], parts: &[&str]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

/// Compares without telling by its time how much was right.
pub(super) fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}
