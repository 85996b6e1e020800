//! Opens what lies below a root, and nothing else: the kernel resolves the whole path in one
//! call and refuses to leave the root, whatever is exchanged for a link meanwhile. Links that
//! stay inside are followed; those of `/proc` never.

use std::path::Path;

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
};

use lyceum_model::files::{RawPath, is_name};

/// The root itself: named by the administrator or the name service, so links in it are theirs.
pub fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// What `path` leads to, below `root`.
pub fn open_at(root: &OwnedFd, path: &RawPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    // A pipe or a device is opened by mistake at most, and must not hold us up.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    resolve(root, path, flags, ResolveFlags::empty())
}

/// A place to be: for looking, and for names below it.
pub fn reach(root: &OwnedFd, path: &RawPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    resolve(root, path, flags | OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::empty())
}

/// The directory `name` in `parent` itself, on the same mount and no link.
pub fn enter(parent: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The folder that holds `path`, and the name in it. The root has neither.
pub fn parent(root: &OwnedFd, path: &RawPath) -> Result<(OwnedFd, RawPath), Errno> {
    let (folder, name) = path.split();
    if !is_name(&name) {
        return Err(Errno::INVAL);
    }
    Ok((reach(root, &folder, OFlags::DIRECTORY)?, name))
}

fn resolve(root: &OwnedFd, path: &RawPath, flags: OFlags, more: ResolveFlags) -> Result<OwnedFd, Errno> {
    let path = if path.0.is_empty() { b".".as_slice() } else { path.0.as_slice() };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
    // The kernel gives up when something was renamed under its feet.
    for _ in 0..16 {
        match openat2(root, path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::WOULDBLOCK)
}
