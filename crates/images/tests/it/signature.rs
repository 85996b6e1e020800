//! Signatures of cosign's kind, made as its documentation describes them, on Debian's registry.

use base64::{Engine, prelude::BASE64_STANDARD};
use lyceum_images::{Digest, Error, PublicKey, PullRequest, Settings};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::json;

use super::{
    content::{Layer, OCI_MANIFEST, descriptor, image},
    real::{Registry, store},
};

struct Key {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Key {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
        Self { pair, random }
    }

    fn public(&self) -> PublicKey {
        let prefix = hex::decode("3059301306072a8648ce3d020106082a8648ce3d030107034200").unwrap();
        let der = BASE64_STANDARD.encode([prefix.as_slice(), self.pair.public_key().as_ref()].concat());
        let lines: Vec<&str> = der.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"));
        PublicKey::from_pem(&pem).unwrap()
    }

    /// Pushes a signature for `signed` under the tag of `digest`.
    async fn sign(&self, registry: &Registry, repository: &str, digest: Digest, signed: Digest) {
        let payload = json!({"critical": {"identity": {"docker-reference": "nvcr.io/nvidia/fake"},
            "image": {"docker-manifest-digest": signed}, "type": "cosign container image signature"}, "optional": null});
        let payload = payload.to_string().into_bytes();
        let signature = BASE64_STANDARD.encode(self.pair.sign(&self.random, &payload).unwrap());
        let config = json!({"architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}});
        let config = config.to_string().into_bytes();
        let mut layer = descriptor("application/vnd.dev.cosign.simplesigning.v1+json", &payload);
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": [layer],
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config)});
        registry.push_blob(repository, &payload).await;
        registry.push_blob(repository, &config).await;
        let tag = format!("sha256-{}.sig", digest.hex());
        registry.push_manifest(repository, &tag, OCI_MANIFEST, manifest.to_string().as_bytes()).await;
    }
}

#[tokio::test]
async fn only_images_signed_with_the_key_are_pulled() {
    let Some(registry) = Registry::start() else { return };
    let (_directory, store) = store(Settings::default());
    let (key, other) = (Key::new(), Key::new());
    let built = image(&[Layer::new().file("a", b"a").gzip()]);
    let reference = registry.push("nvidia/fake", "1", &built).await;
    let request = PullRequest { require_signature: Some(key.public()), ..PullRequest::new(reference.clone()) };
    let error = store.pull(request.clone()).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Unsigned { digest } if *digest == built.digest()), "{error}");
    other.sign(&registry, "nvidia/fake", built.digest(), built.digest()).await;
    let error = store.pull(request.clone()).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Signature { reason, .. } if reason.contains("another key")), "{error}");
    // A signature that belongs to another image.
    key.sign(&registry, "nvidia/fake", built.digest(), Digest::of(b"other")).await;
    let error = store.pull(request.clone()).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Signature { reason, .. } if reason.contains("another image")), "{error}");
    assert_eq!(store.images().unwrap(), []);
    // Pulled without a signature, it still needs one where one is required, also by its digest.
    let at = PullRequest { reference: reference.at(built.digest()), ..request.clone() };
    store.pull(PullRequest::new(reference.clone())).wait().await.unwrap();
    assert!(store.pull(request.clone()).wait().await.is_err() && store.pull(at.clone()).wait().await.is_err());
    key.sign(&registry, "nvidia/fake", built.digest(), built.digest()).await;
    let signed = store.pull(request).wait().await.unwrap();
    assert_eq!(signed.signed_by, [key.public().fingerprint()]);
    // Once verified, it is known by its digest, without the registry; for another key it is not.
    drop(registry);
    store.pull(at.clone()).wait().await.unwrap();
    let at = PullRequest { require_signature: Some(other.public()), ..at };
    let error = store.pull(at).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn the_signature_of_an_index_covers_its_images() {
    let Some(registry) = Registry::start() else { return };
    let (_directory, store) = store(Settings::default());
    let key = Key::new();
    let built = image(&[Layer::new().file("a", b"a").gzip()]);
    registry.push("nvidia/fake", "part", &built).await;
    let mut entry = descriptor(OCI_MANIFEST, &built.manifest);
    entry["platform"] = json!({"os": "linux", "architecture": super::content::architecture()});
    let media_type = super::content::OCI_INDEX;
    let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": [entry]}).to_string();
    registry.push_manifest("nvidia/fake", "1", media_type, index.as_bytes()).await;
    let digest = Digest::of(index.as_bytes());
    key.sign(&registry, "nvidia/fake", digest, digest).await;
    let request =
        PullRequest { require_signature: Some(key.public()), ..PullRequest::new(registry.reference("nvidia/fake:1")) };
    let image = store.pull(request).wait().await.unwrap();
    assert_eq!((image.digest, image.index), (built.digest(), Some(digest)));
}
