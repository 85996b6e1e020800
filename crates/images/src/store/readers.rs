//! Which accounts of the machine may read a stored image. One that was pulled with a user's own credentials is closed
//! to all but its owners, who are named in the access control list of its folder; the others are open to all.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use rustix::{fs::XattrFlags, io::Errno};

use super::{Image, Inner, Store, blocking};
use crate::error::{Error, Result};

/// The folder of an image that all accounts may read, and of one that only named accounts may read.
pub(super) const OPEN: u32 = 0o755;
pub(super) const CLOSED: u32 = 0o700;

const ACL: &str = "system.posix_acl_access";
/// The form of [`ACL`] as the kernel defines it: a version, then tag, permissions and id of each entry.
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const USER: u16 = 0x02;
const READ: u16 = 0o5;

impl Store {
    /// Lets an account of the machine read an image that is closed.
    pub async fn grant(&self, image: &Image, uid: u32) -> Result<()> {
        let directory = image.directory.clone();
        let work = move || {
            let failed = |err: Errno| Error::disk("read", &directory, err);
            let found = fs::metadata(&directory).map_err(|err| Error::disk("read", &directory, err))?;
            if found.mode() & 0o005 == 0o005 || found.uid() == uid {
                return Ok(());
            }
            let mut bytes = vec![0; 64 << 10];
            let mut readers = match rustix::fs::getxattr(&directory, ACL, &mut bytes) {
                Ok(count) => readers(&bytes[..count]),
                Err(Errno::NODATA) => Vec::new(),
                Err(Errno::NOTSUP) => return Err(Error::AccessLists { path: directory }),
                Err(err) => return Err(failed(err)),
            };
            if readers.contains(&uid) {
                return Ok(());
            }
            readers.push(uid);
            match rustix::fs::setxattr(&directory, ACL, &list(&readers), XattrFlags::empty()) {
                Err(Errno::NOTSUP) => Err(Error::AccessLists { path: directory }),
                set => set.map_err(failed),
            }
        };
        blocking(work).await
    }
}

impl Inner {
    /// Lets all accounts read an image.
    pub(super) fn open_to_all(image: &Image) -> Result<()> {
        let failed = |err| Error::disk("open", &image.directory, err);
        let found = fs::metadata(&image.directory).map_err(failed)?;
        if found.mode() & 0o777 == OPEN {
            return Ok(());
        }
        fs::set_permissions(&image.directory, Permissions::from_mode(OPEN)).map_err(failed)
    }
}

/// Returns the accounts that a list names.
fn readers(list: &[u8]) -> Vec<u32> {
    let entries = list.get(4..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let uid = |entry: &[u8]| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        (tag == USER).then(|| u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]))
    };
    entries.filter_map(uid).collect()
}

/// Returns the list by which the owner has all rights, these accounts read, and nobody else has any.
fn list(readers: &[u32]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let (owner, group, mask, others) = (0x01, 0x04, 0x10, 0x20);
    let named = readers.iter().map(|uid| (USER, READ, *uid));
    let entries = [(owner, 0o7, NOBODY)].into_iter().chain(named).chain([
        (group, 0, NOBODY),
        (mask, READ, NOBODY),
        (others, 0, NOBODY),
    ]);
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
