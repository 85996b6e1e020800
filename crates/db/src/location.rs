//! Where the database lies: what `database.url` says, and whether a directory is on a file
//! system that other machines write too. It looks and judges; opening is `open`'s business.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use sqlx::postgres::PgConnectOptions;

use super::{Config, Error, Result};

/// Where the database is.
#[derive(Clone)]
pub(super) enum DatabaseLocation {
    File(PathBuf),
    Server(Box<PgConnectOptions>),
}

impl Config {
    /// The file of an SQLite database (`lyceum.db` in `private` unless the URL names another),
    /// or `None` for a database on a server. [`Error::Url`] when the URL is neither's.
    pub fn file(&self, private: &Path) -> Result<Option<PathBuf>> {
        Ok(match self.place(private)? {
            DatabaseLocation::File(file) => Some(file),
            DatabaseLocation::Server(_) => None,
        })
    }

    pub(super) fn place(&self, private: &Path) -> Result<DatabaseLocation> {
        let url = self.url.as_str();
        if url.is_empty() {
            return Ok(DatabaseLocation::File(private.join("lyceum.db")));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(Error::Url("it does not contain `://`"));
        };
        match scheme {
            "sqlite" if rest.contains(['?', '#', '%', '\0']) => {
                Err(Error::Url("the path of an SQLite file must not contain `?`, `#` or `%`"))
            }
            "sqlite" if rest.ends_with('/') || !rest.starts_with('/') => {
                Err(Error::Url("an SQLite file requires an absolute path, with three slashes in total"))
            }
            "sqlite" => Ok(DatabaseLocation::File(rest.into())),
            "postgres" | "postgresql" => {
                // The cause may quote a part of the URL, and with it a part of the password.
                let options = PgConnectOptions::from_str(url).map_err(|_err| {
                    Error::Url("a part of it cannot be parsed; in a password, write `@` as `%40` and `/` as `%2F`")
                })?;
                Ok(DatabaseLocation::Server(Box::new(options)))
            }
            _ => Err(Error::Url("it must begin with `sqlite://` or `postgres://`")),
        }
    }
}

/// The nearest part of a path that is there.
pub fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// The name of the file system that holds `path`, where other machines write it too: locks
/// and shared memory of a file do not reach them.
pub fn network_file_system(path: &Path) -> Option<String> {
    let magic = u32::try_from(rustix::fs::statfs(path).ok()?.f_type & 0xffff_ffff).ok()?;
    if magic == FUSE {
        let device = rustix::fs::stat(path).ok()?.st_dev;
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        return mounted_type(&mounts, &number).filter(|kind| is_remote_fuse(kind)).map(str::to_owned);
    }
    network_name(magic).map(str::to_owned)
}

/// All file systems in user space share this number; only the table of mounts tells them apart.
const FUSE: u32 = 0x6573_5546;

fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x00c3_6400 => "CephFS",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0xaad7_aaea => "PanFS",
        0x0102_1997 => "9P",
        0x786f_4256 => "a VirtualBox shared folder",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        _ => return None,
    })
}

/// The type of the mount with a device number, from the text of `/proc/self/mountinfo`: the
/// third field is the number, the first behind the lone hyphen the type.
fn mounted_type<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    line.split_once(" - ")?.1.split(' ').next()
}

fn is_remote_fuse(kind: &str) -> bool {
    const REMOTE: [&str; 16] = [
        "sshfs",
        "glusterfs",
        "ceph",
        "s3fs",
        "rclone",
        "gcsfuse",
        "goofys",
        "mount-s3",
        "blobfuse",
        "juicefs",
        "mfs",
        "davfs",
        "curlftpfs",
        "smbnetfs",
        "vmhgfs-fuse",
        "grpcfuse",
    ];
    let name = kind.strip_prefix("fuse.").unwrap_or_default();
    REMOTE.iter().any(|remote| name.starts_with(remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Result<DatabaseLocation> {
        Config { url: url.to_owned(), ..Config::default() }.place(Path::new("/private"))
    }

    #[test]
    fn urls() {
        for (url, file) in [("", "/private/lyceum.db"), ("sqlite:///a/b c.db", "/a/b c.db")] {
            assert!(matches!(place(url), Ok(DatabaseLocation::File(found)) if found == Path::new(file)), "{url}");
        }
        for url in ["postgres://portal:s%40cret@db:1/x", "postgresql:///x?host=/run/postgresql"] {
            assert!(matches!(place(url), Ok(DatabaseLocation::Server(_))), "{url}");
        }
        for (url, why) in [
            ("sqlite://", "three slashes"),
            ("sqlite://lyceum.db", "three slashes"),
            ("sqlite:///var/lib/", "three slashes"),
            ("sqlite:///a.db?mode=memory", "must not contain"),
            ("sqlite::memory:", "does not contain `://`"),
            ("/var/lib/lyceum.db", "does not contain `://`"),
            ("mysql://u:hunter2@h/x", "must begin with"),
            ("postgresx://u:hunter2@h/x", "must begin with"),
            ("POSTGRES://u:hunter2@h/x", "must begin with"),
            ("postgres://u:hunter2@h:port/x", "cannot be parsed"),
            ("postgres://u:hunter2/3@h/x", "cannot be parsed"),
            ("postgres://u:hunter2@h/x?sslmode=hunter2", "cannot be parsed"),
        ] {
            let Err(err) = place(url) else { panic!("{url} was taken") };
            let said = format!("{err} {err:?}");
            assert!(said.contains(why) && !said.contains("hunter2"), "{url}: {said}");
            assert!(std::error::Error::source(&err).is_none(), "{url}");
        }
    }

    #[test]
    fn file_systems() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xef53), None); // ext4
        assert_eq!(network_name(FUSE), None);
        assert_eq!(network_file_system(Path::new("/proc")), None);
        assert_eq!(existing(Path::new("/proc/nowhere/at/all")), Path::new("/proc"));
    }

    #[test]
    fn file_systems_in_user_space() {
        let mounts = "22 27 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
                      90 27 0:51 / /mnt/a rw,relatime shared:51 - fuse.sshfs me@host:/a - b rw,user_id=0\n\
                      91 27 8:17 / /mnt/b rw,relatime - fuseblk /dev/sdb1 rw\n";
        for (number, kind, remote) in
            [("0:51", Some("fuse.sshfs"), true), ("8:17", Some("fuseblk"), false), ("0:5", None, false)]
        {
            assert_eq!(mounted_type(mounts, number), kind, "{number}");
            assert_eq!(kind.is_some_and(is_remote_fuse), remote, "{number}");
        }
        assert!(is_remote_fuse("fuse.ceph-fuse") && is_remote_fuse("fuse.glusterfs"));
        assert!(!is_remote_fuse("fuse.gocryptfs") && !is_remote_fuse("fuse") && !is_remote_fuse("nfs"));
    }
}
