//! Container images on this machine: pulled from a registry or imported from a file, checked, unpacked, and
//! stored by the digest of their manifest. This crate stands on its own: it knows no database, no pages and no
//! configuration file. Running an image is left to `node`, and who may use which to the catalogue.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lyceum_images::{PullRequest, Settings, State, Store};
//!
//! let store = Store::open("/var/lib/lyceum/shared/images", Settings::default())?;
//! let pull = store.pull(PullRequest::new("nvcr.io/nvidia/pytorch:26.10".parse()?));
//! let mut progress = pull.progress();
//! while !matches!(progress.borrow_and_update().state, State::Ready(_) | State::Failed(_)) {
//!     progress.changed().await?; // `bytes` of `total`, pulling and then unpacking
//! }
//! let image = pull.wait().await?;
//! println!("{} is at {}", image.digest, image.root().display());
//! # Ok(())
//! # }
//! ```
//!
//! - A [`Store`] is a folder. Several processes may open the same one, and each may be killed at any moment: an
//!   image is there whole or not at all, and the next pull continues a download where it ended.
//! - [`Store::pull`] and [`Store::import`] return a [`Pull`], which shows [`Progress`], can be cancelled, and ends
//!   with an [`Image`] or an [`Error`] in words for users. Requests for the same image do the work once.
//! - [`Store::resolve`] returns what a tag names now, [`Store::find`] and [`Store::images`] what is stored.
//! - [`Store::touch`] notes a use; [`Store::collect`] makes room, and keeps what the caller names as in use.
//! - An image that is stored is returned for its digest without asking its registry, unless the request wants it to be
//!   asked. Whether a user may use an image is the caller's to decide.
//!
//! The client of the registry is our own, on `reqwest` as in the rest of Lyceum. `oci-client` 0.18 was read for
//! it, and does not serve: it reads manifests and tokens of any size into memory, does not know 429 and
//! `Retry-After`, keeps one cache of tokens for all users, follows redirects to addresses without TLS, and its
//! errors do not distinguish the causes that users need to know. `oci-spec` has the types of documents, and
//! `http-auth` reads challenges. zstd is read by `ruzstd`, because it needs no C compiler.

mod config;
mod contents;
mod digest;
mod error;
mod manifest;
mod platform;
mod progress;
mod reference;
mod registry;
mod settings;
mod signature;
mod store;
mod unpack;

pub use config::ImageConfig;
pub use contents::{Contents, PACKAGES};
pub use digest::Digest;
pub use error::{Error, Result};
pub use platform::Platform;
pub use progress::{Progress, State};
pub use reference::Reference;
pub use settings::{Access, Credentials, Limits, Settings};
pub use signature::PublicKey;
pub use store::{Collected, Collection, Image, Import, Item, Pull, PullRequest, RootForm, Store, Stored};
