//! Why an image is not available: one variant for each cause that a caller can act on. The words are
//! those that users read, and none of them contains a credential, a token or a signed address.

use std::{io, path::PathBuf, time::Duration};

use rustix::io::Errno;
use thiserror::Error;

use crate::digest::Digest;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be pulled, imported, unpacked or removed.
#[derive(Debug, Error)]
pub enum Error {
    #[error("‘{text}’ is not an image reference: {reason}. Write it like nvcr.io/nvidia/pytorch:26.10.")]
    Reference { text: String, reason: String },
    #[error("‘{text}’ is not a digest: {reason}. Copy it from the registry, with sha256: in front.")]
    Digest { text: String, reason: &'static str },
    #[error("‘{text}’ is not a platform. Write it like linux/amd64 or linux/arm64.")]
    PlatformName { text: String },
    #[error("invalid mirror ‘{text}’ for {registry}: {reason}.")]
    Mirror { registry: String, text: String, reason: &'static str },
    #[error("the file of certificate authorities {} cannot be used: {reason}. It must contain certificates in PEM format.", .path.display())]
    Authorities { path: PathBuf, reason: String },
    #[error(
        "the public key cannot be used: {reason}. It must be an ECDSA P-256 key in PEM format, as `cosign generate-key-pair` writes it."
    )]
    PublicKey { reason: String },
    #[error("cannot set up HTTPS: {0}")]
    Tls(String),

    #[error(
        "the registry {host} cannot be reached: {reason}. Check its name and the network, then pull again; what was downloaded is kept."
    )]
    Unreachable { host: String, reason: String },
    #[error("the registry {host} sent nothing for {} seconds. Pull again later; what was downloaded is kept.", .waited.as_secs_f64())]
    Unresponsive { host: String, waited: Duration },
    #[error(
        "the registry {host} requires credentials for {repository} (401), and none are set. Add a user name and a password or token for {host}."
    )]
    CredentialsMissing { host: String, repository: String },
    #[error(
        "the registry {host} rejected the credentials for {repository} (401). Check user name and password or token, and that the repository exists."
    )]
    CredentialsRejected { host: String, repository: String },
    #[error("the registry {host} denies access to {repository} (403). Ask its owner for the right to pull it.")]
    Forbidden { host: String, repository: String },
    #[error("the registry {host} does not have {what} (404). Check name and tag.")]
    NotFound { host: String, what: String },
    #[error("the registry {host} limits the rate of pulls (429){}. Pull again later, or set credentials with a higher limit.", again(.retry_after.as_ref()))]
    RateLimited { host: String, retry_after: Option<Duration> },
    #[error(
        "the registry {host} answered with status {status} to the request for {what}. Pull again later; what was downloaded is kept."
    )]
    Status { host: String, status: u16, what: String },
    #[error(
        "{host} answered with a web page, not as a registry. Check the registry's name, and whether a proxy or a sign-in page answers for it."
    )]
    NotARegistry { host: String },
    #[error(
        "the registry {host} redirects to an address that is not HTTPS, which is not followed. Its administrator has to correct this."
    )]
    Redirect { host: String },
    #[error(
        "the registry {host} asks for authentication in a way that is not supported: {reason}. Ask its administrator for Basic or Bearer authentication over HTTPS."
    )]
    Challenge { host: String, reason: String },

    #[error("{what} has {size} bytes; the limit is {limit}. Raise the limit if you trust this image.")]
    TooLarge { what: String, size: u64, limit: u64 },
    #[error(
        "{what} does not have the content that its digest promises: expected {expected}, received {received}. It was discarded. Pull again; if it repeats, the registry or its mirror is damaged."
    )]
    WrongDigest { what: String, expected: Digest, received: Digest },
    #[error(
        "{what} has the wrong size: expected {expected} bytes, received {received}. It was discarded. Pull again; if it repeats, the registry or its mirror is damaged."
    )]
    WrongSize { what: String, expected: u64, received: u64 },
    #[error("{what} cannot be read: {reason}. Push the image again with a current tool.")]
    Malformed { what: String, reason: String },
    #[error(
        "{reference} is not a container image: it is of type {media_type}. Choose another name, or push it again with a current tool."
    )]
    NotAnImage { reference: String, media_type: String },
    #[error("{reference} is not available for {wanted}; it is for {}. Choose another image or tag.", list(.available))]
    Platform { reference: String, wanted: String, available: Vec<String> },
    #[error("{reference} has a layer of type {media_type}, which is not supported. Push it with gzip or zstd layers.")]
    LayerType { reference: String, media_type: String },
    #[error("layer {digest} is not safe or not readable at ‘{entry}’: {reason}. Nothing was unpacked.")]
    Layer { digest: Digest, entry: String, reason: String },

    #[error(
        "{digest} is not signed: the registry has no signature for it. Sign it with `cosign sign --key`, or choose a signed image."
    )]
    Unsigned { digest: Digest },
    #[error(
        "{digest} has no valid signature of the required key: {reason}. Do not use this image before its origin is clear."
    )]
    Signature { digest: Digest, reason: String },

    #[error("not enough disk space in {}: the image needs {} MiB and {} MiB are free. Remove unused images, then pull again.", .path.display(), .needed >> 20, .free >> 20)]
    Space { path: PathBuf, needed: u64, free: u64 },
    #[error("the disk of {} is full. What was unpacked is removed. Remove unused images, then pull again.", .path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot {operation} {}: {source}", .path.display())]
    Disk { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("the file system of {} has no access control lists, so a private image cannot be kept from other users. Store images on another file system, or add the image for all users.", .path.display())]
    AccessLists { path: PathBuf },
    #[error("the stored layer {digest} was changed or damaged on the disk; it was removed. Pull again.")]
    Damaged { digest: Digest },
    #[error("{} is not an image archive: {reason}. Use the output of `docker save`, an OCI layout, a .sqsh or a .sif file.", .path.display())]
    Archive { path: PathBuf, reason: String },
    #[error("mksquashfs failed: {reason}. Store the image as a directory, or correct the cause and pull again.")]
    Squashfs { reason: String },
    #[error("mksquashfs was not found. Install squashfs-tools, or store images as directories.")]
    NoSquashfsTools,
    #[error("the pull was cancelled. What was downloaded is kept.")]
    Cancelled,
    #[error("the pull ended unexpectedly; what was downloaded is kept. Pull again.")]
    Interrupted,
}

impl From<tokio::task::JoinError> for Error {
    /// A thread of the pull panicked, or the runtime ended.
    fn from(_: tokio::task::JoinError) -> Self {
        Self::Interrupted
    }
}

impl Error {
    /// Describes a failed operation on `path`; a full disk or an exhausted quota becomes [`Error::DiskFull`].
    pub(crate) fn disk(operation: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.into(), source.into());
        let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
        match source.raw_os_error() {
            Some(code) if full.contains(&code) => Self::DiskFull { path },
            _ => Self::Disk { operation, path, source },
        }
    }
}

fn again(retry_after: Option<&Duration>) -> String {
    retry_after.map_or_else(String::new, |after| format!("; it accepts the next one in {} seconds", after.as_secs()))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no platform that it names".to_owned() } else { names.join(", ") }
}
