//! Who portal and agents are to each other: Ed25519 keys, derived from the installation's key
//! and never stored. The portal has one; each start of a workload has one of its own, which
//! the portal can tell without having heard from the agent. Keys go over the wire as they are
//! (raw public keys, RFC 7250): there is no certificate, hence no name and no date in one.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use rustls::{
    crypto::ring::sign::any_eddsa_type,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use lyceum_model::SessionId;

/// What an Ed25519 key is made of.
pub type Seed = [u8; 32];

/// What precedes the seed in a PKCS#8 document (RFC 8410, 7).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A key pair, as TLS wants it.
#[derive(Clone)]
pub struct Identity {
    pub(super) pair: Arc<CertifiedKey>,
    public: PublicKey,
}

/// The public half: a `SubjectPublicKeyInfo` in DER.
#[derive(Clone, Debug)]
pub struct PublicKey(Vec<u8>);

impl Identity {
    pub fn of(seed: &Seed) -> Self {
        let document = [PKCS8.as_slice(), seed.as_slice()].concat();
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(document)).expect("any 32 bytes are a seed");
        let public = PublicKey(key.public_key().expect("Ed25519 keys have one").to_vec());
        let pair = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.0.clone())], key));
        Self { pair, public }
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }
}

/// Its private half is for nobody's log.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

impl PublicKey {
    pub fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text).ok().map(Self)
    }

    pub fn to_hex(&self) -> String {
        hex::encode(&self.0)
    }

    /// Whether this is what somebody has shown; compared in constant time.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// The portal's own seed.
pub(super) fn portal(key: &[u8]) -> Seed {
    derive(key, b"portal", "")
}

/// The seed of one start of a workload: the secret that its agent is given.
pub(super) fn agent(key: &[u8], session: SessionId, attempt: u32) -> Seed {
    derive(key, b"agent", &format!("{session} {attempt}"))
}

fn derive(key: &[u8], whose: &[u8], which: &str) -> Seed {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(whose);
    mac.update(b" ");
    mac.update(which.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_key_of_their_own_and_always_the_same() {
        let (one, other) = (SessionId::new(), SessionId::new());
        let seeds = [
            portal(b"k"),
            portal(b"another"),
            agent(b"k", one, 1),
            agent(b"k", one, 2),
            agent(b"k", other, 1),
            agent(b"another", one, 1),
        ];
        for (at, seed) in seeds.iter().enumerate() {
            let key = Identity::of(seed);
            assert!(key.public().is(&Identity::of(seed).public().0));
            for later in &seeds[at + 1..] {
                assert!(!key.public().is(&Identity::of(later).public().0));
            }
        }
        let key = Identity::of(&seeds[0]);
        assert!(PublicKey::from_hex(&key.public().to_hex()).unwrap().is(&key.public().0));
        assert!(!format!("{key:?}").contains(&hex::encode(seeds[0])));
    }

    #[test]
    fn a_published_key() {
        // RFC 8032, 7.1, test 1.
        let seed = hex::decode("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").unwrap();
        let public = Identity::of(&seed.try_into().unwrap()).public().to_hex();
        assert!(public.ends_with("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"), "{public}");
    }
}
