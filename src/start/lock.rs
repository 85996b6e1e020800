//! The lock on a data directory, which a portal holds as long as it lives, and what it notes
//! there: where it really listens, whatever the configuration says. Looking whether somebody
//! holds it disturbs nobody.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    net::SocketAddr,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Held as long as the value lives.
#[derive(Debug)]
pub struct Lock(File);

/// A portal that holds the lock, as far as this process may read what it noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    pub listen: Option<SocketAddr>,
    /// Where the apps have an origin of their own.
    pub apps: Option<SocketAddr>,
}

impl Lock {
    /// Takes the lock of a data directory's private part; `None` where another process has it.
    pub fn take(private: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path(private))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(err) => Err(err.into()),
        }
    }

    /// Notes where the portal listens.
    pub fn note(&self, listen: SocketAddr, apps: Option<SocketAddr>) -> io::Result<()> {
        let apps = apps.map(|apps| apps.to_string()).unwrap_or_default();
        self.0.set_permissions(Permissions::from_mode(0o600))?;
        self.0.set_len(0)?;
        self.0.write_all_at(format!("{listen}\n{apps}\n").as_bytes(), 0)
    }
}

/// The portal that runs on a data directory, if one does.
pub fn running(private: &Path) -> Option<Running> {
    let path = path(private);
    let inode = fs::metadata(&path).ok()?.ino().to_string();
    // The kernel lists locks a page at a time, by their places: where others come and go meanwhile, one can be missing.
    let is_held = (0..LOOKS).any(|_| is_listed(&inode));
    let noted = fs::read_to_string(&path).unwrap_or_default();
    let mut addresses = noted.lines().map(|line| line.parse().ok());
    is_held.then(|| Running { listen: addresses.next().flatten(), apps: addresses.next().flatten() })
}

/// How often a lock that is not listed is looked for.
const LOOKS: usize = 8;

fn is_listed(inode: &str) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| {
        let mut words = line.split_whitespace();
        line.contains(" FLOCK ") && words.nth(5).is_some_and(|file| file.rsplit(':').next() == Some(inode))
    })
}

fn path(private: &Path) -> PathBuf {
    private.join("serve.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_says_where_it_listens() {
        let private = tempfile::tempdir().unwrap();
        assert_eq!(running(private.path()), None);
        let lock = Lock::take(private.path()).unwrap().unwrap();
        assert!(Lock::take(private.path()).unwrap().is_none(), "somebody has it");
        assert_eq!(running(private.path()), Some(Running::default()), "it has not said yet");
        let (listen, apps) = ("127.0.0.1:8123".parse().unwrap(), "[::1]:8124".parse().unwrap());
        lock.note(listen, Some(apps)).unwrap();
        assert_eq!(running(private.path()), Some(Running { listen: Some(listen), apps: Some(apps) }));
        lock.note(listen, None).unwrap();
        assert_eq!(running(private.path()), Some(Running { listen: Some(listen), apps: None }));
        drop(lock);
        assert_eq!(running(private.path()), None);
    }

    /// The list of locks changes while it is read.
    #[test]
    fn a_lock_is_found_among_others_that_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let take = |name: String| {
            let own = folder.path().join(name);
            fs::create_dir_all(&own).unwrap();
            Lock::take(&own).unwrap().unwrap()
        };
        let _others: Vec<Lock> = (0..200).map(|number| take(format!("other-{number}"))).collect();
        let _lock = take("own".to_owned());
        let _more: Vec<Lock> = (0..200).map(|number| take(format!("more-{number}"))).collect();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            for thread in 0..3 {
                let (take, is_over) = (&take, &is_over);
                threads.spawn(move || {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        drop((0..20).map(|number| take(format!("brief-{thread}-{number}"))).collect::<Vec<_>>());
                    }
                });
            }
            let missed = (0..1500).filter(|_| running(&folder.path().join("own")).is_none()).count();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }
}
