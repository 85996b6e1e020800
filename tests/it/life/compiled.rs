//! What JAX compiled in earlier tests, lent to the homes of people who train. Each test has accounts of its own,
//! whose homes are empty; without this the same few networks are compiled again and again, which takes half of the
//! time. The folder is `LYCEUM_TEST_COMPILED`'s, which `./test` keeps from one run to the next.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use nix::unistd::User;

/// Where a trainer keeps it below the home.
const PLACE: [&str; 3] = [".cache", "lyceum", "jax"];

/// The folder that outlives the tests, if there is one.
pub fn kept() -> Option<PathBuf> {
    crate::needs::variable("LYCEUM_TEST_COMPILED").map(PathBuf::from)
}

/// Copies what is kept into the home of an account.
pub fn lend(kept: &Path, account: &str) {
    let user = User::from_name(account).unwrap().unwrap_or_else(|| panic!("no account {account}"));
    let own = |path: &Path| chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    let mut place = user.dir.clone();
    for name in PLACE {
        place.push(name);
        fs::create_dir_all(&place).unwrap();
        own(&place);
    }
    for kind in fs::read_dir(kept).into_iter().flatten().flatten() {
        let folder = place.join(kind.file_name());
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        own(&folder);
        for file in fs::read_dir(kind.path()).unwrap().flatten() {
            let copy = folder.join(file.file_name());
            fs::copy(file.path(), &copy).unwrap();
            own(&copy);
        }
    }
}

/// Keeps what the account's trainings have compiled besides. Tests that end together may keep the same file: each
/// is whole under its name at once.
pub fn keep(kept: &Path, account: &str) -> io::Result<()> {
    let Some(user) = User::from_name(account)? else { return Ok(()) };
    let place = PLACE.iter().fold(user.dir, |path, name| path.join(name));
    for kind in fs::read_dir(place)?.flatten() {
        let folder = kept.join(kind.file_name());
        fs::create_dir_all(&folder)?;
        for file in fs::read_dir(kind.path())?.flatten() {
            let target = folder.join(file.file_name());
            if !target.exists() {
                let part = folder.join(format!(".{account}"));
                fs::copy(file.path(), &part)?;
                fs::rename(part, target)?;
            }
        }
    }
    Ok(())
}
