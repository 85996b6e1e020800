//! The verb `account`: a Unix account `ly-NAME` for somebody whom the host does not know.
//! Made by `useradd` with arguments that were checked, in a range of uids of its own, with a
//! home that only its owner can enter. An account of that name in that range is adopted, so
//! that a crash between two steps is mended by asking again.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    ops::RangeInclusive,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::unistd::{Group, User};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use super::{
    Error, Result, doing,
    identity::{FIRST_UID, Identity, is_unix_name},
};
use lyceum_model::line::abridged;

const PREFIX: &str = "ly-";
const HOMES: &str = "/home";
const SKELETON: &str = "/etc/skel";
const SHELL: &str = "/bin/bash";
/// Where only root can make files, and the same for all portals of a machine.
const LOCK: &str = "/run/lyceum-accounts.lock";

/// Makes or adopts the account of the portal's user `name`; answers the account's name.
pub(super) fn ensure(name: &str, uids: &RangeInclusive<u32>) -> Result<String> {
    let account = account_name(name)?;
    if *uids.start() < FIRST_UID || uids.is_empty() {
        return Err(Error::Refused(format!("accounts cannot have uids {} to {}", uids.start(), uids.end())));
    }
    if find(&account)?.is_none() {
        let _alone = lock()?;
        let failure = if find(&account)?.is_none() { add_user(&account, uids)? } else { String::new() };
        if find(&account)?.is_none() {
            return Err(Error::Busy(format!("the account `{account}` could not be created: {failure}")));
        }
    }
    let identity = Identity::look_up(&account)?;
    let home = Path::new(HOMES).join(&account);
    if !uids.contains(&identity.uid) || identity.home != home {
        return Err(Error::Refused(format!(
            "the account `{account}` (uid {}, home {}) was not created by Lyceum; choose another with --unix-name",
            identity.uid,
            identity.home.display()
        )));
    }
    ensure_home(&home, &identity)?;
    Ok(account)
}

fn account_name(name: &str) -> Result<String> {
    let account = format!("{PREFIX}{name}");
    let is_small = !account.bytes().any(|b| b.is_ascii_uppercase());
    if is_small && is_unix_name(name) && is_unix_name(&account) {
        return Ok(account);
    }
    Err(Error::Refused(format!(
        "no account can be created for {name:?}: a name may have at most 29 characters, `a` to `z`, digits, `_`, `.` \
         and `-`"
    )))
}

fn find(account: &str) -> Result<Option<User>> {
    User::from_name(account).map_err(|err| doing(format!("looking up `{account}` in the name service"))(err.into()))
}

/// Waits until no other portal or helper of this machine makes an account, and keeps them from it while the file is open. Of two `useradd` at once the later one
/// gives the account of the earlier one another uid, and its home is a stranger's. A `useradd`
/// whose helper was killed has the lock too, until it ends.
pub fn lock() -> Result<File> {
    let while_making = || doing(format!("locking {LOCK}"));
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW;
    let file = File::from(open(LOCK, flags, Mode::from_raw_mode(0o600)).map_err(|err| while_making()(err.into()))?);
    flock(&file, FlockOperation::LockExclusive).map_err(|err| while_making()(err.into()))?;
    Ok(file)
}

/// Runs `useradd`; answers what it said, which matters only when there is no account then.
fn add_user(account: &str, uids: &RangeInclusive<u32>) -> Result<String> {
    let (first, last) = (uids.start(), uids.end());
    let mut command = Command::new("useradd");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
    for key in
        [format!("UID_MIN={first}"), format!("UID_MAX={last}"), format!("GID_MIN={first}"), format!("GID_MAX={last}")]
    {
        command.arg("--key").arg(key);
    }
    command.args(["--no-log-init", "--no-create-home", "--shell", SHELL, "--comment", "Lyceum"]);
    command.arg("--home-dir").arg(Path::new(HOMES).join(account));
    // The group of an account that a crash left half-made, or somebody's: then uids tell.
    let group = Group::from_name(account).map_err(|err| doing("looking up a group in the name service")(err.into()))?;
    match group {
        Some(group) if uids.contains(&group.gid.as_raw()) => {
            command.args(["--no-user-group", "--gid"]).arg(group.gid.to_string());
        }
        Some(_) => return Err(Error::Refused(format!("a group `{account}` exists that was not created by Lyceum"))),
        None => {
            command.arg("--user-group");
        }
    }
    let output = command
        .arg("--")
        .arg(account)
        .stdin(Stdio::null())
        .output()
        .map_err(doing("running useradd (is it installed?)"))?;
    Ok(abridged(&String::from_utf8_lossy(&output.stderr), 300))
}

/// Makes the home, with the files every new home gets. It belongs to root until it is
/// complete, so that an interrupted one is told from a finished one and made again.
fn ensure_home(home: &Path, identity: &Identity) -> Result<()> {
    let make = || -> io::Result<bool> {
        match fs::symlink_metadata(home) {
            Ok(facts) if facts.is_dir() && facts.uid() == identity.uid => return Ok(true),
            Ok(facts) if facts.is_dir() && facts.uid() == 0 => {}
            Ok(_) => return Ok(false),
            Err(err) if err.kind() == io::ErrorKind::NotFound => fs::create_dir(home)?,
            Err(err) => return Err(err),
        }
        fs::set_permissions(home, fs::Permissions::from_mode(0o700))?;
        for file in skeleton()? {
            let copy = home.join(file.file_name().unwrap_or(OsStr::new("skel")));
            fs::copy(&file, &copy)?;
            std::os::unix::fs::lchown(&copy, Some(identity.uid), Some(identity.gid))?;
        }
        std::os::unix::fs::lchown(home, Some(identity.uid), Some(identity.gid))?;
        Ok(true)
    };
    match make() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Refused(format!("{} exists and belongs to another user", home.display()))),
        Err(err) => Err(doing(format!("creating {}", home.display()))(err)),
    }
}

fn skeleton() -> io::Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(SKELETON) else { return Ok(Vec::new()) };
    let files = entries.map(|entry| Ok(entry?.path()));
    files.filter(|path: &io::Result<PathBuf>| path.as_ref().map_or(true, |path| path.is_file())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(account_name("alice").unwrap(), "ly-alice");
        assert!(account_name(&"a".repeat(29)).is_ok());
        for bad in ["", "-x", "../x", "a b", "a\n", "a:0", "A", &"a".repeat(30)] {
            assert!(account_name(bad).is_err(), "{bad:?}");
        }
    }
}
