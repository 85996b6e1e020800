//! Signatures of cosign's kind, made with a key: the registry has them under the tag `sha256-….sig`, each a
//! small document that names the digest, with an ECDSA P-256 signature beside it. Keyless signatures, and the
//! newer bundles that are attached as referrers, are not read.

use std::{fmt, fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};
use serde::Deserialize;

use crate::{
    digest::Digest,
    error::{Error, Result},
    manifest::Blob,
    registry::Session,
};

const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const MAX_PAYLOAD: u64 = 64 << 10;
/// More signatures than any image has.
const MAX_SIGNATURES: usize = 64;
/// What precedes the 65 bytes of the point in the key of a P-256 curve.
const PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// An ECDSA P-256 key, as `cosign generate-key-pair` writes it into `cosign.pub`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    pub fn from_pem(text: &str) -> Result<Self> {
        let fault = |reason: &str| Error::PublicKey { reason: reason.to_owned() };
        let key = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map_err(|_err| fault("it does not contain a PUBLIC KEY block"))?;
        match key.as_ref().strip_prefix(&PREFIX) {
            Some(point) if point.len() == 65 && point[0] == 4 => Ok(Self(point.to_owned())),
            _ => Err(fault("it is of another kind")),
        }
    }

    pub fn from_file(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|err| Error::disk("read", path, err))?;
        Self::from_pem(&text)
    }

    /// Identifies the key in the record of an image.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.0)
    }

    fn verifies(&self, payload: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0).verify(payload, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Named,
    r#type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Named {
    docker_manifest_digest: Digest,
}

/// Succeeds when one of the digests has a valid signature of the key: that of the index, or of the manifest that it
/// lists for the platform.
pub(crate) async fn verify(session: &Session, digests: impl Iterator<Item = Digest>, key: &PublicKey) -> Result<()> {
    let mut failure = None;
    for digest in digests {
        match verify_one(session, digest, key).await {
            Ok(()) => return Ok(()),
            // A signature that does not fit says more than one that is missing.
            Err(error @ Error::Signature { .. }) => failure = Some(error),
            Err(error @ Error::Unsigned { .. }) => failure = failure.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    failure.map_or(Ok(()), Err)
}

async fn verify_one(session: &Session, digest: Digest, key: &PublicKey) -> Result<()> {
    let tag = format!("sha256-{}.sig", digest.hex());
    let document = match session.document(&tag).await {
        Err(Error::NotFound { .. }) => return Err(Error::Unsigned { digest }),
        document => document?,
    };
    let mut reason = "there is no signature in cosign's format";
    for layer in document.descriptors()?.iter().take(MAX_SIGNATURES) {
        let annotations = layer.annotations().as_ref();
        let signature = annotations.and_then(|found| BASE64_STANDARD.decode(found.get(SIGNATURE)?).ok());
        let Some(signature) = signature.filter(|_| layer.media_type().to_string() == PAYLOAD_TYPE) else {
            continue;
        };
        let blob = Blob { digest: layer.digest().as_ref().parse()?, size: layer.size() };
        let payload = session.small_blob(blob, MAX_PAYLOAD, "the signature").await?;
        reason = match key.verifies(&payload, &signature) {
            true if names(&payload, digest) => return Ok(()),
            true => "the signature is for another image",
            false => "it was signed with another key, or changed",
        };
    }
    Err(Error::Signature { digest, reason: reason.to_owned() })
}

/// Returns whether a payload is about this digest.
fn names(payload: &[u8], digest: Digest) -> bool {
    serde_json::from_slice::<Payload>(payload).is_ok_and(|payload| {
        payload.critical.image.docker_manifest_digest == digest
            && payload.critical.r#type == "cosign container image signature"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_p256_keys_are_accepted() {
        for text in [
            "",
            "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n",
        ] {
            let error = PublicKey::from_pem(text).unwrap_err().to_string();
            assert!(error.contains("cosign generate-key-pair"), "{error}");
        }
    }
}
