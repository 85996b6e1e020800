//! The sha256 digest that names a manifest, a configuration or a layer, and the computation of one over
//! bytes that arrive piece by piece. Other algorithms are rejected: registries use sha256 alone.

use std::{fmt, str::FromStr};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;

/// Identifies content by its sha256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns the 64 hexadecimal digits, without the name of the algorithm.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let reason = match text.split_once(':') {
            Some(("sha256", digits)) => {
                let mut bytes = [0; 32];
                let is_lower = !digits.bytes().any(|byte| byte.is_ascii_uppercase());
                if is_lower && hex::decode_to_slice(digits, &mut bytes).is_ok() {
                    return Ok(Self(bytes));
                }
                "it does not have 64 hexadecimal digits in lower case"
            }
            _ => "it does not begin with sha256:",
        };
        let text: String = text.chars().take(100).collect();
        Err(Error::Digest { text, reason })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a digest over bytes that arrive piece by piece.
#[derive(Clone)]
pub(crate) struct Hasher(Context);

impl Hasher {
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}
