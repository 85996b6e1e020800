//! Manifests and indexes, in OCI's form and in Docker's schema 2: bytes that were checked against their
//! digest become an index, or an image with its configuration and layers. Schema 1, artifacts and
//! unknown types of layers are rejected with their type.

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use serde::Deserialize;

use crate::{
    digest::Digest,
    error::{Error, Result},
    settings::Limits,
};

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// The types that are asked for, the preferred ones first.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// A manifest or an index as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub bytes: Vec<u8>,
    pub digest: Digest,
}

/// What a document describes.
#[derive(Debug)]
pub(crate) enum Kind {
    Index(Vec<Descriptor>),
    Image(Manifest),
}

/// The parts of an image.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    pub config: Blob,
    pub layers: Vec<Blob>,
}

/// Content of a known size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blob {
    pub digest: Digest,
    pub size: u64,
}

impl Blob {
    fn of(descriptor: &Descriptor) -> Result<Self> {
        Ok(Self { digest: descriptor.digest().as_ref().parse()?, size: descriptor.size() })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    schema_version: u32,
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
}

impl Document {
    /// Reads what the document describes. `reference` is named in errors.
    pub fn kind(&self, reference: &str, limits: &Limits) -> Result<Kind> {
        let malformed = |reason: String| Error::Malformed { what: format!("the manifest of {reference}"), reason };
        let not_an_image = |media_type: String| Error::NotAnImage { reference: reference.to_owned(), media_type };
        let outline: Outline = serde_json::from_slice(&self.bytes).map_err(|err| malformed(err.to_string()))?;
        if outline.schema_version != 2 {
            return Err(not_an_image(format!("Docker's manifest schema {}", outline.schema_version)));
        }
        let media_type = match outline.media_type {
            Some(media_type) => media_type,
            None if outline.manifests.is_some() => OCI_INDEX.to_owned(),
            None => OCI_MANIFEST.to_owned(),
        };
        match media_type.as_str() {
            OCI_INDEX | DOCKER_INDEX => {
                let index: ImageIndex =
                    serde_json::from_slice(&self.bytes).map_err(|err| malformed(err.to_string()))?;
                Ok(Kind::Index(index.manifests().clone()))
            }
            OCI_MANIFEST | DOCKER_MANIFEST => {
                let manifest: ImageManifest =
                    serde_json::from_slice(&self.bytes).map_err(|err| malformed(err.to_string()))?;
                let config = manifest.config().media_type().to_string();
                if !is_config(&config) {
                    return Err(not_an_image(config));
                }
                let layers = manifest.layers();
                if let Some(layer) = layers.iter().find(|layer| !is_layer(layer.media_type().as_ref())) {
                    let media_type = layer.media_type().to_string();
                    return Err(Error::LayerType { reference: reference.to_owned(), media_type });
                }
                if layers.len() > limits.layers {
                    let what = format!("the list of layers of {reference}");
                    return Err(Error::TooLarge { what, size: layers.len() as u64, limit: limits.layers as u64 });
                }
                let layers = layers.iter().map(Blob::of).collect::<Result<Vec<_>>>()?;
                Ok(Kind::Image(Manifest { config: Blob::of(manifest.config())?, layers }))
            }
            _ => Err(not_an_image(media_type)),
        }
    }

    /// Returns the layers of any manifest with their type and annotations; for signatures.
    pub fn descriptors(&self) -> Result<Vec<Descriptor>> {
        let manifest: ImageManifest = serde_json::from_slice(&self.bytes)
            .map_err(|err| Error::Malformed { what: "the signature's manifest".to_owned(), reason: err.to_string() })?;
        Ok(manifest.layers().clone())
    }
}

impl Manifest {
    /// Returns the sum of the layers' sizes, each digest once, if it is within the limits.
    pub fn download_bytes(&self, reference: &str, limits: &Limits) -> Result<u64> {
        let mut size = 0_u64;
        for layer in self.distinct_layers() {
            size = size.saturating_add(layer.size);
        }
        if size > limits.download_bytes {
            return Err(Error::TooLarge { what: reference.to_owned(), size, limit: limits.download_bytes });
        }
        Ok(size)
    }

    pub fn distinct_layers(&self) -> Vec<Blob> {
        let mut seen = std::collections::HashSet::new();
        self.layers.iter().copied().filter(|layer| seen.insert(layer.digest)).collect()
    }
}

fn is_config(media_type: &str) -> bool {
    matches!(media_type, "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json")
}

/// The compression is read from the layer's own first bytes; the type only has to name a tar archive.
fn is_layer(media_type: &str) -> bool {
    let rest = media_type
        .strip_prefix("application/vnd.oci.image.layer.v1.tar")
        .or_else(|| media_type.strip_prefix("application/vnd.oci.image.layer.nondistributable.v1.tar"))
        .or_else(|| media_type.strip_prefix("application/vnd.docker.image.rootfs.diff.tar"))
        .or_else(|| media_type.strip_prefix("application/vnd.docker.image.rootfs.foreign.diff.tar"));
    matches!(rest, Some("" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
}
