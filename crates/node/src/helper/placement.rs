//! Placement files: one a workload, `PLACEMENTS/<short id>.json`, written once by the
//! trampoline before the agent starts. That the file can be made only once is the lock that
//! keeps a session from being started twice; it goes when the session is cleaned.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use lyceum_model::{SessionId, session::Placement};

/// What a placement file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub session: SessionId,
    pub placement: Placement,
    /// The cgroups it was put into; they need not be where they would be made today.
    pub cgroups: Vec<PathBuf>,
}

const MAX_RECORD: u64 = 64 * 1024;

/// Reads a session's record; `None` where it has none.
pub fn read(directory: &Path, session: SessionId) -> io::Result<Option<Record>> {
    match read_file(&file(directory, session)) {
        Ok(record) if record.session == session => Ok(Some(record)),
        Ok(record) => Err(io::Error::other(format!("the placement belongs to {}", record.session))),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// The path of a record that cannot be read, and why.
pub type Unreadable = (String, io::Error);

/// Every session that has a record, and the records that cannot be read.
pub fn list(directory: &Path) -> io::Result<(Vec<SessionId>, Vec<Unreadable>)> {
    let (mut sessions, mut unreadable) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let is_draft = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_draft && path.extension().is_some_and(|extension| extension == "json") {
            match read_file(&path) {
                Ok(record) => sessions.push(record.session),
                // Cleaned while we were reading.
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                // Of whom it is nobody knows; it hides no other.
                Err(err) => unreadable.push((path.display().to_string(), err)),
            }
        }
    }
    sessions.sort_unstable();
    Ok((sessions, unreadable))
}

/// Makes the file, whole, unless it is there: then false, and nothing has changed.
pub(super) fn create(directory: &Path, record: &Record) -> io::Result<bool> {
    let draft = draft(directory, record);
    // Only a dead process of our number can have left one.
    ignore_missing(fs::remove_file(&draft))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&draft)?;
    serde_json::to_writer(&mut file, record)?;
    file.flush()?;
    file.sync_all()?;
    // A link appears at once and complete, and never replaces anything.
    let linked = fs::hard_link(&draft, self::file(directory, record.session));
    fs::remove_file(&draft)?;
    match linked {
        Ok(()) => fs::File::open(directory)?.sync_all().map(|()| true),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(err) => Err(err),
    }
}

/// Removes a session's record and what an interrupted [`create`] left.
pub(super) fn remove(directory: &Path, session: SessionId) -> io::Result<()> {
    let prefix = format!(".{}.", session.short());
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            ignore_missing(fs::remove_file(entry.path()))?;
        }
    }
    ignore_missing(fs::remove_file(file(directory, session)))
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn file(directory: &Path, session: SessionId) -> PathBuf {
    directory.join(format!("{}.json", session.short()))
}

fn draft(directory: &Path, record: &Record) -> PathBuf {
    directory.join(format!(".{}.{}.json", record.session.short(), record.placement.pid))
}

fn read_file(path: &Path) -> io::Result<Record> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).expect("flags are small");
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() || (facts.uid() != 0 && facts.uid() != rustix::process::geteuid().as_raw()) {
        return Err(io::Error::other(format!("{} was not created by Lyceum", path.display())));
    }
    let mut text = Vec::new();
    file.take(MAX_RECORD).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let placement = Placement {
            node: "n".to_owned(),
            pid: 7,
            start_ticks: 1,
            boot_id: "b".to_owned(),
            uid: 1000,
            unix_name: "alice".to_owned(),
            run_directory: "/run/x".to_owned(),
            limits: "sampled".to_owned(),
            link: None,
        };
        let first = Record { session: SessionId::new(), placement, cgroups: vec!["/c".into()] };
        let mut second = first.clone();
        second.placement.pid = 8;
        assert!(create(directory, &first).unwrap());
        assert!(!create(directory, &second).unwrap());
        assert_eq!(read(directory, first.session).unwrap(), Some(first.clone()));
        fs::write(directory.join("0123456789abcdef.json"), "{\"session\":").unwrap();
        let (sessions, unreadable) = list(directory).unwrap();
        assert_eq!(sessions, [first.session]);
        assert!(unreadable.len() == 1 && unreadable[0].0.ends_with("0123456789abcdef.json"), "{unreadable:?}");
        fs::remove_file(directory.join("0123456789abcdef.json")).unwrap();
        fs::write(directory.join(format!(".{}.9.json", first.session.short())), "half").unwrap();
        remove(directory, first.session).unwrap();
        remove(directory, first.session).unwrap();
        assert_eq!(read(directory, first.session).unwrap(), None);
        assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
    }
}
