//! The portal's directories: made with the owner and mode that they must have, or taken as
//! they are where that is safe. What others could read or exchange is refused, with the
//! command that mends it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
};

use super::{Error, Result};
use crate::helper::doing;

#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Makes a directory, or takes one that is there if it is what it must be. What is root's
/// and empty was left by an interruption and is handed over; nothing else ever is.
pub(super) fn directory(path: &Path, owner: Owner, mode: u32) -> Result<()> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            let make = || -> io::Result<fs::Metadata> {
                DirBuilder::new().mode(0o700).create(path)?;
                std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))?;
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
                fs::symlink_metadata(path)
            };
            make().map_err(doing(format!("creating {}", path.display())))?
        }
        Err(err) => return Err(doing(format!("reading the metadata of {}", path.display()))(err)),
    };
    let shown = path.display();
    if !facts.is_dir() {
        return Err(Error::Refused(format!("{shown} is not a directory (symbolic links are not followed)")));
    }
    let is_unfinished = facts.uid() == 0 && rustix::process::geteuid().is_root() && is_empty(path)?;
    if facts.uid() != owner.uid && is_unfinished {
        std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))
            .map_err(doing(format!("changing the owner of {shown}")))?;
    } else if facts.uid() != owner.uid {
        return Err(Error::Refused(format!(
            "{shown} belongs to uid {}, not to uid {}: if it is yours, run `chown {}:{} {shown}`",
            facts.uid(),
            owner.uid,
            owner.uid,
            owner.gid
        )));
    }
    // More than was meant, for the group or others; write permission above all.
    if facts.mode() & 0o077 & !mode != 0 {
        return Err(Error::Refused(format!(
            "{shown} is accessible to other users (mode {:o}): run `chmod {mode:o} {shown}`",
            facts.mode() & 0o7777
        )));
    }
    if facts.mode() & 0o777 != mode {
        // An interruption between two steps above, or somebody was stricter than needed.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(doing(format!("setting the permissions of {shown}")))?;
    }
    Ok(())
}

fn is_empty(path: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(path).map_err(doing(format!("listing {}", path.display())))?;
    Ok(entries.next().is_none())
}

/// Refuses a place for root's files where somebody else could exchange a directory.
pub(super) fn check_ancestors(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    let parent = fs::canonicalize(parent).map_err(doing(format!("resolving {}", parent.display())))?;
    for ancestor in parent.ancestors() {
        let facts = fs::metadata(ancestor).map_err(doing(format!("reading the metadata of {}", ancestor.display())))?;
        let is_sticky = facts.mode() & 0o1000 != 0;
        if facts.uid() != 0 || (facts.mode() & 0o022 != 0 && !is_sticky) {
            return Err(Error::Refused(format!(
                "{} can be changed by users other than root, and {} is inside it: choose another data directory",
                ancestor.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Refuses a directory that the service user, as whom this process runs by now, cannot enter. Users' sessions come by
/// the same way.
pub(super) fn check_entrance(path: &Path) -> Result<()> {
    let denied = |err: io::Error| err.kind() == io::ErrorKind::PermissionDenied;
    if !fs::symlink_metadata(path).is_err_and(denied) {
        return Ok(());
    }
    let mode = |ancestor: &Path| fs::metadata(ancestor).map(|facts| facts.mode() & 0o7777);
    let closed = path.ancestors().find_map(|ancestor| Some((ancestor, mode(ancestor).ok()?)));
    let (closed, mode) = closed.unwrap_or((path, 0));
    let (shown, path) = (closed.display(), path.display());
    Err(Error::Refused(format!(
        "other users cannot enter {shown} (mode {mode:o}), and {path} is inside it: run `chmod o+x {shown}`, or choose \
         another data directory with --data"
    )))
}

/// The directory above `path`, where only we make things.
pub(super) fn parent_directory(path: &Path, owner: Owner, mode: u32) -> Result<()> {
    path.parent().map_or(Ok(()), |parent| directory(parent, owner, mode))
}

/// Refuses secrets that others may read: `private/` itself was checked, its files and
/// `private/keys` are here. The database may be as the umask made it.
pub(super) fn check_secrets(private: &Path) -> Result<()> {
    for directory in [private.to_owned(), private.join("keys")] {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(err) => return Err(doing(format!("listing {}", directory.display()))(err)),
        };
        for entry in entries {
            let path = entry.map_err(doing("reading the keys"))?.path();
            let Ok(facts) = fs::symlink_metadata(&path) else { continue };
            let is_secret = path.starts_with(private.join("keys")) || names_secret(&path);
            if is_secret && facts.is_file() && facts.mode() & 0o077 != 0 {
                let shown = path.display();
                return Err(Error::Refused(format!(
                    "{shown} is readable by other users (mode {:o}): run `chmod 600 {shown}`, and consider replacing \
                     it",
                    facts.mode() & 0o7777
                )));
            }
        }
    }
    Ok(())
}

fn names_secret(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["key", "secret", "password", "pem", "token"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_others_may_read_are_refused() {
        let private = tempfile::tempdir().unwrap();
        let private = private.path();
        fs::create_dir(private.join("keys")).unwrap();
        let write = |name: &str, mode| {
            fs::write(private.join(name), "x").unwrap();
            fs::set_permissions(private.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        write("lyceum.db", 0o644);
        write("cookie.key", 0o600);
        write("keys/any", 0o600);
        check_secrets(private).unwrap();
        for name in ["cookie.key", "keys/any"] {
            write(name, 0o640);
            let err = check_secrets(private).unwrap_err().to_string();
            assert!(err.contains("chmod 600") && err.contains(name), "{err}");
            write(name, 0o600);
        }
    }

    #[test]
    fn directories_of_others_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let facts = fs::metadata(base.path()).unwrap();
        let owner = Owner { uid: facts.uid(), gid: facts.gid() };
        let path = base.path().join("private");
        directory(&path, owner, 0o700).unwrap();
        directory(&path, owner, 0o700).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        let err = directory(&path, owner, 0o700).unwrap_err().to_string();
        assert!(err.contains(&format!("chmod 700 {}", path.display())), "{err}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(path.join("file"), "").unwrap();
        assert!(directory(&path, Owner { uid: owner.uid + 1, ..owner }, 0o700).is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(directory(&link, owner, 0o700).is_err());
    }
}
