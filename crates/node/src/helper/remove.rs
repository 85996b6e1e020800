//! Removes a directory that somebody hostile filled. Symbolic links and mounts are never
//! followed, and the depth of the tree costs neither stack nor descriptors: sub-directories
//! are moved up to the top before they are emptied. Nor may it keep the helper from others:
//! it stops after a while, and goes on where it stopped when it is called again.

use std::{
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, chmodat, fchmod, fchown, open, openat2, renameat, unlinkat},
    io::Errno,
    process::{Gid, Uid, geteuid},
};

/// How long a turn at removing a run directory may take: others wait for the helper.
pub(super) const MAX_TURN: Duration = Duration::from_secs(2);

/// Removes `parent/name` and all below; true when it is not there (any more), false when
/// there was more than could be removed `within` this time.
pub(super) fn remove_tree(parent: &Path, name: &str, within: Duration) -> io::Result<bool> {
    let end = Instant::now() + within;
    let parent = match open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        // A login that ended took it along, with all that was in it.
        Err(Errno::NOENT) => return Ok(true),
        other => other?,
    };
    let top = match open_directory(&parent, name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(true),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            unlinkat(&parent, name, AtFlags::empty())?;
            return Ok(true);
        }
        Err(err) => return Err(err.into()),
    };
    if geteuid().is_root() {
        // From now on nobody else finds the way in.
        fchown(&top, Some(Uid::ROOT), Some(Gid::ROOT))?;
    }
    fchmod(&top, Mode::RWXU)?;
    let mut moved = 0;
    // Each round empties what the one before had moved up.
    loop {
        let names = entries(&top)?;
        if names.is_empty() {
            unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
            return Ok(true);
        }
        for name in names {
            if end < Instant::now() {
                return Ok(false);
            }
            match unlinkat(&top, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => flatten(&top, &name, &mut moved)?,
                Err(err) => return Err(err.into()),
            }
        }
    }
}

/// Whose it is; `None` where nothing is there.
pub(super) fn owner(path: &Path) -> io::Result<Option<u32>> {
    match std::fs::symlink_metadata(path) {
        Ok(facts) => Ok(Some(facts.uid())),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Empties and removes the directory `top/name`; what directories it holds go to `top`.
fn flatten(top: &OwnedFd, name: &std::ffi::CStr, moved: &mut u64) -> io::Result<()> {
    let directory = match open_directory(top, name) {
        Err(Errno::ACCESS) => {
            chmodat(top, name, Mode::RWXU, AtFlags::empty())?;
            open_directory(top, name)?
        }
        other => other?,
    };
    fchmod(&directory, Mode::RWXU)?;
    for child in entries(&directory)? {
        match unlinkat(&directory, &child, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => {
                // A name that is taken fails and is tried again under the next number.
                loop {
                    *moved += 1;
                    match renameat(&directory, &child, top, format!(".moved-{moved}")) {
                        Ok(()) | Err(Errno::NOENT) => break,
                        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                        Err(Errno::ACCESS) => chmodat(&directory, &child, Mode::RWXU, AtFlags::empty())?,
                        Err(err) => return Err(err.into()),
                    }
                }
            }
            Err(err) => return Err(err.into()),
        }
    }
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        // Not empty: somebody was quick; the next round sees to it.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

/// A directory itself, on the same mount.
fn open_directory(parent: &OwnedFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat2(
        parent,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )
}

/// Some of the names in a directory, at most as many as fit a round's memory.
fn entries(directory: &OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
        if names.len() >= 4096 {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_are_not_followed_and_depth_does_not_matter() {
        let base = tempfile::tempdir().unwrap();
        let (precious, run) = (base.path().join("precious"), base.path().join("run"));
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "x").unwrap();
        fs::create_dir_all(run.join("a/b/c")).unwrap();
        for (target, link) in [(&precious, "link"), (&precious, "a/link"), (&precious.join("file"), "a/b/c/file")] {
            std::os::unix::fs::symlink(target, run.join(link)).unwrap();
        }
        fs::write(run.join(".moved-1"), "in the way").unwrap();
        fs::create_dir(run.join(".moved-2")).unwrap();
        fs::write(run.join(".moved-2/full"), "x").unwrap();
        // Deeper than descriptors or a path's length reach.
        let mut here = open(&run, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&here, "deep", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "deep", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        assert!(!remove_tree(base.path(), "run", Duration::ZERO).unwrap(), "not at once");
        while !remove_tree(base.path(), "run", Duration::from_millis(20)).unwrap() {}
        assert!(!run.exists());
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "x");

        std::os::unix::fs::symlink(&precious, &run).unwrap();
        assert!(remove_tree(base.path(), "run", Duration::from_secs(1)).unwrap());
        assert!(!run.is_symlink() && precious.join("file").exists());
        assert!(remove_tree(base.path(), "run", Duration::from_secs(1)).unwrap());
    }
}
