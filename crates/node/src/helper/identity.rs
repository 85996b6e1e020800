//! Who somebody is to the host, and becoming them for good. The rules (which names, uids and
//! groups may ever run anything) are one pure function; the facts come from the host's own
//! name service and never from a request.

use lyceum_model::user::Person;
use std::{collections::BTreeSet, ffi::CString, fs, io, path::PathBuf};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use serde::{Deserialize, Serialize};

use super::{Error, Result, doing};

/// A Unix account, complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
    pub home: PathBuf,
    pub shell: String,
}

/// Uids below this are the system's.
pub const FIRST_UID: u32 = 1000;

/// `nobody` of Linux and of NFS, and the value that means "leave as it is".
const DENIED_UIDS: [u32; 3] = [65_534, u32::MAX - 1, u32::MAX];

/// Accounts that hold the machine room itself, whatever uid a site gave them.
const DENIED_NAMES: [&str; 6] = ["root", "nobody", "lyceum", "slurm", "munge", "nfsnobody"];

impl From<Identity> for Person {
    fn from(identity: Identity) -> Self {
        let Identity { name, uid, gid, home, shell, .. } = identity;
        Self { unix_name: name, uid, gid, home, shell }
    }
}

impl Identity {
    /// What the host says of `name`, if it may run workloads at all.
    pub fn look_up(name: &str) -> Result<Self> {
        let identity = Self::facts(name)?;
        match objection(&identity) {
            None => Ok(identity),
            Some(objection) => Err(Error::Refused(objection)),
        }
    }

    /// What the host says of `name`, for any account.
    pub fn facts(name: &str) -> Result<Self> {
        if !is_unix_name(name) {
            return Err(Error::Refused(format!("{name:?} is not the name of a Unix account")));
        }
        let user = User::from_name(name)
            .map_err(|err| doing(format!("looking up `{name}` in the name service"))(err.into()))?
            .ok_or_else(|| Error::Refused(format!("this machine has no Unix account `{name}`")))?;
        // Name services may be lenient about spelling; two spellings of one account are not.
        if user.name != name {
            return Err(Error::Refused(format!("this machine spells the account `{name}` as `{}`", user.name)));
        }
        let c_name = CString::new(name).expect("the name's characters were checked");
        let groups = getgrouplist(&c_name, user.gid)
            .map_err(|err| doing(format!("looking up the groups of `{name}` in the name service"))(err.into()))?;
        Ok(Self {
            name: name.to_owned(),
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect::<BTreeSet<_>>().into_iter().collect(),
            home: user.dir,
            shell: user.shell.to_string_lossy().into_owned(),
        })
    }

    /// Gives up what this process is and becomes this account, completely and for good.
    /// On an error the process must end: it may be half of each.
    pub fn become_for_good(&self) -> Result<()> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let failed = |what: &'static str| move |err: nix::Error| doing(what)(err.into());
        // Inheritable capabilities would survive the change of user.
        let none = rustix::thread::CapabilitySet::empty();
        let mut capabilities =
            rustix::thread::capabilities(None).map_err(|err| doing("reading the capabilities")(err.into()))?;
        capabilities.inheritable = none;
        rustix::thread::set_capabilities(None, capabilities)
            .map_err(|err| doing("dropping inheritable capabilities")(err.into()))?;
        setgroups(&groups).map_err(failed("setting the groups"))?;
        setresgid(gid, gid, gid).map_err(failed("setting the group"))?;
        setresuid(uid, uid, uid).map_err(failed("setting the user"))?;
        if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
            return Err(Error::Refused("the change of user is not permanent".to_owned()));
        }
        let status = fs::read_to_string("/proc/self/status").map_err(doing("reading the new credentials"))?;
        match self.disagreement(&status) {
            None => Ok(()),
            Some(line) => Err(Error::Refused(format!("the change of user is not complete: {line}"))),
        }
    }

    /// The first line of `/proc/self/status` that does not say what it must, for this account.
    fn disagreement(&self, status: &str) -> Option<String> {
        let wanted_groups: BTreeSet<u32> = self.groups.iter().copied().collect();
        let mut seen = 0;
        for line in status.lines() {
            let Some((key, values)) = line.split_once(':') else { continue };
            let numbers = || values.split_whitespace().map(str::parse::<u32>);
            let good = match key {
                "Uid" => numbers().all(|id| id == Ok(self.uid)),
                "Gid" => numbers().all(|id| id == Ok(self.gid)),
                "Groups" => numbers().collect::<Result<BTreeSet<_>, _>>() == Ok(wanted_groups.clone()),
                "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => values.trim().bytes().all(|digit| digit == b'0'),
                _ => continue,
            };
            if !good {
                return Some(line.to_owned());
            }
            seen += 1;
        }
        (seen != 7).then(|| "the kernel does not report it".to_owned())
    }
}

/// `[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}` with a letter or `_` in it: never an option, a path, a number or two lines.
#[must_use]
pub fn is_unix_name(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.bytes().next().is_some_and(|first| is_letter(first) || first.is_ascii_digit())
        && name.bytes().all(|b| is_letter(b) || b.is_ascii_digit() || matches!(b, b'.' | b'-'))
        && name.bytes().any(is_letter)
        && name.len() <= 32
}

/// Whether the host has an account that is spelled exactly so.
#[must_use]
pub fn is_known(name: &str) -> bool {
    is_unix_name(name) && User::from_name(name).is_ok_and(|found| found.is_some_and(|user| user.name == name))
}

/// Why nothing may ever run as this account.
fn objection(account: &Identity) -> Option<String> {
    let Identity { name, uid, gid, groups, .. } = account;
    let is_denied = DENIED_NAMES.iter().any(|denied| name.eq_ignore_ascii_case(denied));
    if is_denied || DENIED_UIDS.contains(uid) || *uid < FIRST_UID {
        return Some(format!(
            "`{name}` (uid {uid}) is a system account; workloads only run as regular users (uid {FIRST_UID} or more)"
        ));
    }
    if *gid == 0 || groups.contains(&0) || *gid == u32::MAX || groups.contains(&u32::MAX) {
        return Some(format!(
            "`{name}` is in the group root; remove the account from this group to run workloads as it"
        ));
    }
    None
}

/// What the host's name service calls an account; `None` where it knows none of that uid.
pub fn name_of(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// The names of an account's groups, as far as the host knows them.
#[must_use]
pub fn group_names(name: &str) -> Vec<String> {
    let groups = Identity::facts(name).map(|identity| identity.groups).unwrap_or_default();
    groups
        .into_iter()
        .filter_map(|gid| Group::from_gid(Gid::from_raw(gid)).ok().flatten())
        .map(|group| group.name)
        .collect()
}

/// The account this process runs as.
pub fn own() -> Result<Identity> {
    let uid = Uid::effective();
    let user = User::from_uid(uid)
        .map_err(|err| doing(format!("looking up uid {uid} in the name service"))(err.into()))?
        .ok_or_else(|| doing(format!("the name service does not know uid {uid}"))(io::ErrorKind::NotFound.into()))?;
    Ok(Identity {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups: vec![user.gid.as_raw()],
        home: user.dir,
        shell: user.shell.to_string_lossy().into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity { name: name.to_owned(), uid, gid, groups: groups.to_vec(), home: "/".into(), shell: String::new() }
    }

    #[test]
    fn names() {
        for name in ["alice", "_a", "a.b-c_1", "ly-test", "2130509g", "MixedCase", &"a".repeat(32)] {
            assert!(is_unix_name(name), "{name}");
        }
        for name in ["", "-x", ".x", "a b", "a/b", "..", "a\n", "a\0", "1000", "1.5", "é", "a:b", &"a".repeat(33)] {
            assert!(!is_unix_name(name), "{name:?}");
        }
    }

    #[test]
    fn who_never_runs_anything() {
        assert_eq!(objection(&account("alice", 1000, 1000, &[1000, 27])), None);
        for bad in [
            account("root", 0, 0, &[0]),
            account("toor", 0, 1000, &[1000]),
            account("daemon", 1, 1, &[1]),
            account("alice", 999, 1000, &[1000]),
            account("alice", 65_534, 1000, &[1000]),
            account("alice", u32::MAX, 1000, &[1000]),
            account("slurm", 64_030, 64_030, &[64_030]),
            account("alice", 1000, 0, &[1000]),
            account("alice", 1000, 1000, &[1000, 0]),
        ] {
            assert!(objection(&bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn halfway_is_noticed() {
        let alice = account("alice", 1000, 1000, &[1000, 27]);
        let status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t27 1000 \n\
                      CapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t01ff\nCapAmb:\t0000\n";
        assert_eq!(alice.disagreement(status), None);
        for (good, bad) in [
            ("Uid:\t1000\t1000\t1000", "Uid:\t1000\t1000\t0"),
            ("Groups:\t27 1000", "Groups:\t0 27 1000"),
            ("Groups:\t27 1000", "Groups:\t1000"),
            ("CapPrm:\t0000", "CapPrm:\t0001"),
            ("CapAmb:\t0000\n", ""),
        ] {
            assert!(alice.disagreement(&status.replace(good, bad)).is_some(), "{bad}");
        }
    }
}
