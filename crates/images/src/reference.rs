//! The name of an image as users write it: registry, repository, tag and digest, with Docker's defaults
//! (`busybox` is `docker.io/library/busybox:latest`). The grammar is that of `oci-spec`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{digest::Digest, error::Error};

/// Longer than any registry accepts.
const MAX_LENGTH: usize = 512;

/// Names an image in a registry, by tag or by digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    name: oci_spec::distribution::Reference,
    digest: Option<Digest>,
}

impl Reference {
    /// Returns host and port of the registry, such as `docker.io` or `localhost:5000`.
    pub fn registry(&self) -> &str {
        self.name.registry()
    }

    /// Returns the name within the registry, such as `library/busybox`.
    pub fn repository(&self) -> &str {
        self.name.repository()
    }

    /// Returns the tag, if the reference has one; `latest` where neither tag nor digest was written.
    pub fn tag(&self) -> Option<&str> {
        self.name.tag()
    }

    /// Returns the digest, if the reference has one. It then names the content, whatever the tag is.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns the reference to exactly this content.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { name: self.name.clone_with_digest(digest.to_string()), digest: Some(digest) }
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fault = |reason: String| Error::Reference { text: text.chars().take(100).collect(), reason };
        if text.len() > MAX_LENGTH {
            return Err(fault(format!("it is longer than {MAX_LENGTH} characters")));
        }
        if text.contains("://") {
            return Err(fault("it must not begin with a protocol".to_owned()));
        }
        let name: oci_spec::distribution::Reference =
            text.parse().map_err(|err: oci_spec::distribution::ParseError| fault(err.to_string()))?;
        let digest = name.digest().map(str::parse).transpose()?;
        Ok(Self { name, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.name, f)
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, Option<String>, bool) {
        let name: Reference = text.parse().unwrap();
        (
            name.registry().to_owned(),
            name.repository().to_owned(),
            name.tag().map(str::to_owned),
            name.digest().is_some(),
        )
    }

    #[test]
    fn defaults_ports_and_digests() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let tag = |text: &str| Some(text.to_owned());
        assert_eq!(parts("busybox"), ("docker.io".into(), "library/busybox".into(), tag("latest"), false));
        assert_eq!(parts("user/app:1"), ("docker.io".into(), "user/app".into(), tag("1"), false));
        assert_eq!(parts("docker.io/busybox"), ("docker.io".into(), "library/busybox".into(), tag("latest"), false));
        assert_eq!(parts("localhost/app"), ("localhost".into(), "app".into(), tag("latest"), false));
        assert_eq!(
            parts("127.0.0.1:5055/nvcr.io/nvidia/fake:26.10"),
            ("127.0.0.1:5055".into(), "nvcr.io/nvidia/fake".into(), tag("26.10"), false)
        );
        assert_eq!(
            parts(&format!("nvcr.io/nvidia/pytorch:26.10@{digest}")),
            ("nvcr.io".into(), "nvidia/pytorch".into(), tag("26.10"), true)
        );
        assert_eq!(parts(&format!("busybox@{digest}")).2, None);
        let name: Reference = "busybox".parse().unwrap();
        assert_eq!(name.to_string(), "docker.io/library/busybox:latest");
        assert_eq!(name.at(Digest::of(b"")).to_string(), format!("docker.io/library/busybox@{}", Digest::of(b"")));
        assert_eq!(serde_json::from_str::<Reference>("\"busybox:latest\"").unwrap(), name);
    }

    #[test]
    fn invalid_references_are_reported_with_an_example() {
        let long = "a/".repeat(400) + "b";
        let md5 = format!("busybox@md5:{}", "a".repeat(32));
        let upper = format!("busybox@sha256:{}", "A".repeat(64));
        for text in ["", "Busybox", "a b", "../x", "a:b:c:d", "https://nvcr.io/x", "x@sha256:12", &long, &md5, &upper] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains("nvcr.io/nvidia") || error.contains("digest"), "{text}: {error}");
            assert!(error.len() < 500, "{error}");
        }
    }
}
