//! The first account: a portal that knows nobody makes `admin` with a random password, which
//! lies in a file that only the service user can read until `admin` has signed in.

use std::{
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{Error, Result, passwords};
use lyceum_db::{
    self as db, Db,
    audit::ChangedBy,
    users::{NewUser, SignIn},
};
use lyceum_model::{Clock, Role, Username};

pub(super) const ADMIN: &str = "admin";

/// The file's place in the data directory.
pub(super) fn path(private: &Path) -> PathBuf {
    private.join("first-password")
}

/// The file with the first password, while it is there.
pub fn password_file(private: &Path) -> Option<PathBuf> {
    Some(path(private)).filter(|path| path.exists())
}

/// Makes `admin` where there is no account at all, and answers with the file that holds the
/// password. The file comes first: an account that nobody can enter would be worse than a
/// password of no account.
pub async fn ensure_first_admin(db: &Db, clock: &Clock, private: &Path) -> Result<Option<PathBuf>> {
    if db.count_users().await? != 0 {
        return Ok(None);
    }
    let path = path(private);
    let password = random_password();
    keep(&path, &password).map_err(|source| Error::FirstPassword { path: path.display().to_string(), source })?;
    let hash = passwords::hash(&password).await?;
    let name = Username::parse(ADMIN).expect("`admin` is a good name");
    let new = NewUser {
        name: &name,
        display_name: "Administrator",
        unix_name: None,
        role: Role::Admin,
        sign_in: SignIn::Password(&hash),
    };
    match db.add_user(new, ChangedBy { actor: "portal", at: clock.now() }).await {
        Ok(_) => Ok(Some(path)),
        Err(db::Error::Unique) => {
            // Another process was faster; the password in the file is nobody's.
            forget(&path).await;
            Ok(None)
        }
        Err(err) => Err(err.into()),
    }
}

/// Removes the file, if it is there.
pub(super) async fn forget(path: &Path) {
    match tokio::fs::remove_file(path).await {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            tracing::error!(error = &err as &dyn std::error::Error, path = %path.display(), "failed to remove the file \
                                                                                             of the first password");
        }
        _ => {}
    }
}

/// Four groups of five: 100 bits, without letters that look alike.
fn random_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let bytes: [u8; 20] = rand::random();
    let letters: Vec<char> = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    letters.chunks(5).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join("-")
}

/// Writes the whole file or none of it, for its owner alone.
fn keep(path: &Path, password: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    match std::fs::remove_file(&draft) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{password}")?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
