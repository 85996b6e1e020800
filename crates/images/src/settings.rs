//! What a site sets once for all pulls: mirrors, certificate authorities, credentials, timeouts and
//! limits. The reader of the configuration file fills these in; this crate reads only the files of
//! certificates.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// Configures how registries are reached, and how much an image may hold.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For a registry, what answers for it: `"nvcr.io" = "registry.example.org/nvcr.io"`. A mirror replaces
    /// its registry; the registry itself is then never asked. `http://` is accepted for the loopback alone.
    pub mirrors: BTreeMap<String, String>,
    /// Files with certificate authorities in PEM format, in addition to those of the system.
    pub authorities: Vec<PathBuf>,
    /// For the host that is asked (the mirror, where there is one), the site's credentials.
    pub credentials: BTreeMap<String, Credentials>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a registry may send nothing.
    pub stall_timeout: Duration,
    /// How often a request is repeated after a failure that may pass. Each byte received resets the count.
    pub retries: u32,
    /// The delay before the first repetition; it doubles with each.
    pub retry_delay: Duration,
    /// The longest `Retry-After` that a pull waits for; it fails at once when a registry names a longer one.
    pub longest_wait: Duration,
    /// How many blobs one pull downloads at once.
    pub parallel: usize,
    pub limits: Limits,
    /// Where layers are unpacked before a squashfs image is made of them, if not in the store: a local disk,
    /// where the store is on a shared file system.
    pub scratch: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mirrors: BTreeMap::new(),
            authorities: Vec::new(),
            credentials: BTreeMap::new(),
            connect_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_mins(1),
            retries: 5,
            retry_delay: Duration::from_millis(500),
            longest_wait: Duration::from_mins(5),
            parallel: 4,
            limits: Limits::default(),
            scratch: None,
        }
    }
}

/// Bounds what an image may hold. Each is checked before the disk is filled.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a manifest, an index or a configuration.
    pub document_bytes: u64,
    pub layers: usize,
    /// Bytes of all layers as they are downloaded.
    pub download_bytes: u64,
    /// Bytes of all layers without compression, whether or not a later layer removes them.
    pub unpacked_bytes: u64,
    /// Files, directories and links of all layers.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document_bytes: 4 << 20,
            layers: 512,
            download_bytes: 128 << 30,
            unpacked_bytes: 256 << 30,
            entries: 5_000_000,
        }
    }
}

/// Whose credentials a pull may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// The site's for the host, if there are any.
    #[default]
    Site,
    /// A user's own, with the host that they are for, or none. They are sent to that host alone.
    Personal(Option<(String, Credentials)>),
}

/// Authenticates at a registry. The password is never shown or logged.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Credentials {
    /// `user` may be a fixed word such as `$oauthtoken`, with an API key as the password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}
