//! A new user's home: the templates and the links to storage, put there once, as the user.
//! What exists already is never touched. Whether the home can be written at all is asked
//! first, because a full or missing home makes apps fail in ways that nobody understands.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::symlink,
    path::Path,
};

use super::log::Log;
use lyceum_model::SessionId;
use lyceum_wire::protocol::HomeSetup;

/// Prepares the home; the error is a sentence for the user. Templates and links that cannot
/// be put there are noted in the log and stop nothing.
pub(super) fn prepare(setup: &HomeSetup, session: SessionId, log: &Log) -> Result<(), String> {
    let home = &setup.home;
    try_to_write(home, session).map_err(|error| explain(home, &error))?;
    if let Some(templates) = &setup.templates
        && let Err(error) = copy_templates(templates, home, session)
    {
        log.note(&format!("the templates were not copied to {}: {error}", home.display()));
    }
    for (name, target) in &setup.links {
        if let Err(error) = link(home, name, target) {
            log.note(&format!("{name} was not linked to {}: {error}", target.display()));
        }
    }
    Ok(())
}

/// Whether a session could use this home, tried as whoever this process is; the error is the
/// sentence that a session's card would show.
pub fn try_home(home: &Path) -> Result<(), String> {
    try_to_write(home, SessionId::new()).map_err(|error| explain(home, &error))
}

fn try_to_write(home: &Path, session: SessionId) -> io::Result<()> {
    if !fs::metadata(home)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    let probe = home.join(format!(".lyceum-{}", session.short()));
    let written = write_probe(&probe);
    // A probe that could not be filled is removed all the same; if that fails too, the
    // first error is the one to tell.
    let removed = fs::remove_file(&probe);
    written.and(removed)
}

fn write_probe(probe: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(probe)?;
    file.write_all(&[b'.'; 4096])?;
    file.sync_all()
}

fn explain(home: &Path, error: &io::Error) -> String {
    let home = home.display();
    match error.kind() {
        ErrorKind::NotFound => format!("the home directory {home} does not exist: ask your administrator to create it"),
        ErrorKind::NotADirectory => {
            format!("{home} is not a directory: ask your administrator to set a home directory")
        }
        ErrorKind::StorageFull => {
            format!("the home directory {home} is full: delete files there, then start again")
        }
        ErrorKind::QuotaExceeded => {
            format!("your quota on {home} is used up: delete files there, then start again")
        }
        ErrorKind::ReadOnlyFilesystem => {
            format!("the home directory {home} is on a read-only file system: ask your administrator")
        }
        ErrorKind::PermissionDenied => {
            format!(
                "the home directory {home} is not writable: make it writable for yourself (chmod u+rwx), or ask your \
                 administrator"
            )
        }
        _ => format!("the home directory {home} cannot be written to: {error}"),
    }
}

/// Copies to a name beside the final one and renames, so that a crash half-way leaves no
/// half of the templates under their name.
fn copy_templates(templates: &Path, home: &Path, session: SessionId) -> io::Result<()> {
    let target = home.join("templates");
    if fs::symlink_metadata(&target).is_ok() {
        return Ok(());
    }
    let part = home.join(format!(".templates-{}", session.short()));
    let copied = copy_folder(templates, &part).and_then(|()| {
        // Another session may have been faster.
        if fs::symlink_metadata(&target).is_ok() { fs::remove_dir_all(&part) } else { fs::rename(&part, &target) }
    });
    if copied.is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    copied
}

/// Files and folders only; with the user's own modes, since the source may be read-only.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_file() {
            io::copy(&mut fs::File::open(entry.path())?, &mut fs::File::create_new(target)?)?;
        }
    }
    Ok(())
}

fn link(home: &Path, name: &str, target: &Path) -> io::Result<()> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a plain file name"));
    }
    match symlink(target, home.join(name)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_says_what_to_do() {
        let home = Path::new("/home/ada");
        for (kind, way_out) in [
            (ErrorKind::NotFound, "ask your administrator"),
            (ErrorKind::StorageFull, "delete files"),
            (ErrorKind::QuotaExceeded, "delete files"),
            (ErrorKind::ReadOnlyFilesystem, "ask your administrator"),
            (ErrorKind::PermissionDenied, "chmod"),
        ] {
            let sentence = explain(home, &kind.into());
            assert!(sentence.contains("/home/ada") && sentence.contains(way_out), "{sentence}");
        }
    }

    #[test]
    fn a_file_is_no_home() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = try_to_write(&file, SessionId::new()).expect_err("a file is no directory");
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
        let error = try_to_write(&directory.path().join("none"), SessionId::new()).expect_err("it is not there");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
