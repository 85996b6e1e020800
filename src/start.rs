//! What `serve` does before any thread exists: where everything lies ([`layout`], pure),
//! making the directories, and, when root started us, making the service user, starting the
//! helper and becoming the service user for good. Not started by root, there is no helper.
//!
//! What root makes inside directories that the service user cannot write stays root's: the
//! binary that agents run, the run directories' parent, and the placements.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    ops::RangeInclusive,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::UnixStream,
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use sha2::{Digest, Sha256};

use crate::helper::{self, cgroup::Hierarchy, client::Launcher, doing, identity::Identity};

pub use helper::{Error, Result};

/// Where a portal keeps things. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Tells two portals on one machine apart: eight characters, from the data directory.
    pub instance: String,
    /// Everything that lasts.
    pub data: PathBuf,
    /// Keys and the database; the service user's, 0700.
    pub private: PathBuf,
    /// Readable by everybody; what the service user may write are [`SERVICE_DIRECTORIES`].
    pub shared: PathBuf,
    /// One directory a version of our binary, for agents.
    pub bin: PathBuf,
    /// One directory a workload.
    pub run: PathBuf,
    /// One file a workload. It lasts, so that nothing is started twice after somebody
    /// emptied the run directory's parent.
    pub placements: PathBuf,
}

/// What the service user keeps in `shared/`.
pub const SERVICE_DIRECTORIES: [&str; 3] = ["apps", "environments", "templates"];

/// What of the process's surroundings decides where things lie; read by `config`.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub uid: u32,
    /// `--data` or `LYCEUM_DATA`.
    pub data: Option<PathBuf>,
    pub home: Option<PathBuf>,
    pub xdg_data_home: Option<PathBuf>,
    pub xdg_runtime_dir: Option<PathBuf>,
}

/// The longest parent of run directories: what remains of 57 bytes beside `/` and the name.
const MAX_RUN: usize = 40;

/// Decides where everything lies.
pub fn layout(surroundings: &Surroundings) -> Result<Paths> {
    let Surroundings { uid, data, home, xdg_data_home, xdg_runtime_dir } = surroundings;
    let absolute = |path: &Option<PathBuf>| path.clone().filter(|path| path.is_absolute());
    let data = match data {
        Some(data) if data.is_absolute() => data.clone(),
        Some(data) => return Err(Error::Refused(format!("the data directory {} must be absolute", data.display()))),
        None if *uid == 0 => PathBuf::from("/var/lib/lyceum"),
        None => absolute(xdg_data_home)
            .or_else(|| Some(absolute(home)?.join(".local/share")))
            .ok_or_else(|| Error::Refused("no home directory is known: say --data DIR".to_owned()))?
            .join("lyceum"),
    };
    let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let instance = hex(&digest[..4]);
    let run = if *uid == 0 {
        Path::new("/run/lyceum").join(&instance)
    } else {
        absolute(xdg_runtime_dir)
            .map(|directory| directory.join("lyceum").join(&instance))
            .filter(|run| run.as_os_str().len() <= MAX_RUN)
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/lyceum-{uid}")).join(&instance))
    };
    let shared = data.join("shared");
    Ok(Paths {
        instance,
        private: data.join("private"),
        bin: shared.join("bin"),
        shared,
        run,
        placements: data.join("placements"),
        data,
    })
}

/// What the configuration says about starting.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whom `serve` runs as when root starts it; made when missing.
    pub service_user: String,
    pub account_uids: RangeInclusive<u32>,
    /// This very program: by default in a way that holds also after its file was replaced.
    pub own_binary: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_user: "lyceum".to_owned(),
            account_uids: helper::ACCOUNT_UIDS,
            own_binary: "/proc/self/exe".into(),
        }
    }
}

/// A process that is ready to serve, as the user it will stay.
#[derive(Debug)]
pub struct Started {
    pub paths: Paths,
    pub launcher: Launcher,
    pub hierarchy: Hierarchy,
    pub service_uid: u32,
    /// The copy of our binary that everybody can run.
    pub binary: PathBuf,
    /// Ends by itself when the launcher's socket closes.
    pub helper: Option<Child>,
}

/// Makes everything ready. To be called while the process has one thread; afterwards it is
/// not root. Fine to repeat after an interruption at any point.
pub fn prepare(paths: &Paths, settings: &Settings) -> Result<Started> {
    // Whatever we were started with: files are readable unless something says otherwise.
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    if rustix::process::geteuid().is_root() { prepare_root(paths, settings) } else { prepare_user(paths, settings) }
}

fn prepare_root(paths: &Paths, settings: &Settings) -> Result<Started> {
    check_ancestors(&paths.data)?;
    let service = service_user(&settings.service_user, &paths.data)?;
    let root = Owner { uid: 0, gid: 0 };
    let owner = Owner { uid: service.uid, gid: service.gid };
    directory(&paths.data, root, 0o755)?;
    directory(&paths.private, owner, 0o700)?;
    directory(&paths.shared, root, 0o755)?;
    for name in SERVICE_DIRECTORIES {
        directory(&paths.shared.join(name), owner, 0o755)?;
    }
    directory(&paths.bin, root, 0o755)?;
    directory(&paths.placements, root, 0o755)?;
    parent_directory(&paths.run, root, 0o755)?;
    directory(&paths.run, root, 0o711)?;
    check_secrets(&paths.private)?;
    let binary = copy_binary(&settings.own_binary, &paths.bin)?;
    let hierarchy = Hierarchy::detect(&paths.instance);
    let config = helper_config(paths, settings, &hierarchy, &binary, owner);
    let (socket, child) = start_helper(&config)?;
    service.become_for_good()?;
    Ok(Started {
        paths: paths.clone(),
        launcher: Launcher::helper(socket)?,
        hierarchy,
        service_uid: owner.uid,
        binary,
        helper: Some(child),
    })
}

fn prepare_user(paths: &Paths, settings: &Settings) -> Result<Started> {
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    fs::create_dir_all(paths.data.parent().unwrap_or(&paths.data)).map_err(doing("making the data directory"))?;
    for path in [&paths.data, &paths.private, &paths.shared, &paths.bin, &paths.placements] {
        directory(path, owner, 0o700)?;
    }
    for name in SERVICE_DIRECTORIES {
        directory(&paths.shared.join(name), owner, 0o700)?;
    }
    parent_directory(&paths.run, owner, 0o700)?;
    directory(&paths.run, owner, 0o700)?;
    check_secrets(&paths.private)?;
    let binary = copy_binary(&settings.own_binary, &paths.bin)?;
    let hierarchy = Hierarchy::detect(&paths.instance);
    let config = helper_config(paths, settings, &hierarchy, &binary, owner);
    Ok(Started {
        paths: paths.clone(),
        launcher: Launcher::direct(config)?,
        hierarchy,
        service_uid: owner.uid,
        binary,
        helper: None,
    })
}

fn helper_config(
    paths: &Paths,
    settings: &Settings,
    hierarchy: &Hierarchy,
    binary: &Path,
    service: Owner,
) -> helper::Config {
    helper::Config {
        run: paths.run.clone(),
        placements: paths.placements.clone(),
        hierarchy: hierarchy.clone(),
        service_uid: service.uid,
        service_gid: service.gid,
        agent_command: vec![binary.into(), OsString::from("agent")],
        own_binary: settings.own_binary.clone(),
        account_uids: settings.account_uids.clone(),
    }
}

/// Starts the helper with one end of a socket pair as its standard input. It has a process
/// group of its own: Ctrl-C on a terminal is for the portal, which then closes the socket.
fn start_helper(config: &helper::Config) -> Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair().map_err(doing("making the helper's socket"))?;
    let argument = serde_json::to_string(config)
        .map_err(|err| Error::Refused(format!("the paths are not fit for the helper: {err}")))?;
    let child = Command::new(&config.own_binary)
        .args(["helper", &argument])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .map_err(doing("starting the helper"))?;
    Ok((ours, child))
}

/// The service user, made when missing.
fn service_user(name: &str, data: &Path) -> Result<Identity> {
    if !helper::identity::is_unix_name(name) {
        return Err(Error::Refused(format!("{name:?} is not the name of a Unix account")));
    }
    let missing = nix::unistd::User::from_name(name)
        .map_err(|err| doing(format!("asking the name service for `{name}`"))(err.into()))?
        .is_none();
    if missing {
        let output = Command::new("useradd")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .args(["--system", "--user-group", "--no-create-home", "--no-log-init", "--shell", "/usr/sbin/nologin"])
            .args(["--comment", "Lyceum", "--home-dir"])
            .arg(data)
            .args(["--", name])
            .stdin(Stdio::null())
            .output()
            .map_err(doing("running useradd (is it installed?)"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Busy(format!("the service user `{name}` could not be made: {}", said.trim())));
        }
    }
    let service = Identity::facts(name)?;
    if service.uid == 0 || service.gid == 0 || service.groups.contains(&0) {
        return Err(Error::Refused(format!("the service user `{name}` must not be root or in the group root")));
    }
    Ok(service)
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// Makes a directory, or takes one that is there if it is what it must be. What is root's
/// and empty was left by an interruption and is handed over; nothing else ever is.
fn directory(path: &Path, owner: Owner, mode: u32) -> Result<()> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            let make = || -> io::Result<fs::Metadata> {
                DirBuilder::new().mode(0o700).create(path)?;
                std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))?;
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
                fs::symlink_metadata(path)
            };
            make().map_err(doing(format!("making {}", path.display())))?
        }
        Err(err) => return Err(doing(format!("looking at {}", path.display()))(err)),
    };
    let shown = path.display();
    if !facts.is_dir() {
        return Err(Error::Refused(format!("{shown} is not a directory (a link is not followed)")));
    }
    let is_unfinished = facts.uid() == 0 && rustix::process::geteuid().is_root() && is_empty(path)?;
    if facts.uid() != owner.uid && is_unfinished {
        std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))
            .map_err(doing(format!("handing over {shown}")))?;
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
            "others may enter or change {shown} (mode {:o}): run `chmod {mode:o} {shown}`",
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
    let mut entries = fs::read_dir(path).map_err(doing(format!("looking into {}", path.display())))?;
    Ok(entries.next().is_none())
}

/// Refuses a place for root's files where somebody else could exchange a directory.
fn check_ancestors(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    let parent = fs::canonicalize(parent).map_err(doing(format!("looking for {}", parent.display())))?;
    for ancestor in parent.ancestors() {
        let facts = fs::metadata(ancestor).map_err(doing(format!("looking at {}", ancestor.display())))?;
        let is_sticky = facts.mode() & 0o1000 != 0;
        if facts.uid() != 0 || (facts.mode() & 0o022 != 0 && !is_sticky) {
            return Err(Error::Refused(format!(
                "{} can be changed by others than root, and {} is inside: choose another data directory",
                ancestor.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// The directory above `path`, where only we make things.
fn parent_directory(path: &Path, owner: Owner, mode: u32) -> Result<()> {
    path.parent().map_or(Ok(()), |parent| directory(parent, owner, mode))
}

/// Refuses secrets that others may read: `private/` itself was checked, its files and
/// `private/keys` are here. The database may be as the umask made it.
fn check_secrets(private: &Path) -> Result<()> {
    for directory in [private.to_owned(), private.join("keys")] {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(err) => return Err(doing(format!("looking into {}", directory.display()))(err)),
        };
        for entry in entries {
            let path = entry.map_err(doing("looking at the keys"))?.path();
            let Ok(facts) = fs::symlink_metadata(&path) else { continue };
            let is_secret = path.starts_with(private.join("keys")) || names_secret(&path);
            if is_secret && facts.is_file() && facts.mode() & 0o077 != 0 {
                let shown = path.display();
                return Err(Error::Refused(format!(
                    "others may read {shown} (mode {:o}): run `chmod 600 {shown}`, and think about replacing it",
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

/// Copies our own program to `bin/VERSION-HASH/lyceum`, unless it is there; those of other
/// versions stay, because agents run them. The hash is of the file's identity (place, size,
/// time): a start need not read what is copied already.
fn copy_binary(own_binary: &Path, bin: &Path) -> Result<PathBuf> {
    let copy = || -> io::Result<PathBuf> {
        let mut program = fs::File::open(own_binary)?;
        let facts = program.metadata()?;
        let identity =
            format!("{} {} {} {}.{}", facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec());
        let hash = hex(&Sha256::digest(identity)[..4]);
        let directory = bin.join(format!("{}-{hash}", env!("CARGO_PKG_VERSION")));
        let target = directory.join("lyceum");
        if fs::symlink_metadata(&target).is_ok_and(|there| there.is_file() && there.len() == facts.len()) {
            return Ok(target);
        }
        match DirBuilder::new().mode(0o755).create(&directory) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
        let draft = directory.join(format!(".lyceum.{}", std::process::id()));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&draft)?;
        io::copy(&mut program, &mut file)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&draft, &target)?;
        Ok(target)
    };
    copy().map_err(doing(format!("copying our program to {}", bin.display())))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> Surroundings {
        Surroundings { uid: 1000, home: Some("/home/ada".into()), ..Surroundings::default() }
    }

    #[test]
    fn root_has_fixed_places() {
        let paths = layout(&Surroundings { xdg_data_home: Some("/x".into()), ..Surroundings::default() }).unwrap();
        assert_eq!(paths.private, Path::new("/var/lib/lyceum/private"));
        assert_eq!(paths.bin, Path::new("/var/lib/lyceum/shared/bin"));
        assert_eq!(paths.run, Path::new("/run/lyceum").join(&paths.instance));
        assert_eq!(paths.instance.len(), 8);
        let other = layout(&Surroundings { data: Some("/srv/second".into()), ..Surroundings::default() }).unwrap();
        assert_ne!(other.instance, paths.instance, "two portals keep apart");
    }

    #[test]
    fn users_have_the_xdg_places() {
        assert_eq!(layout(&user()).unwrap().data, Path::new("/home/ada/.local/share/lyceum"));
        let xdg = Surroundings { xdg_data_home: Some("/data/ada".into()), ..user() };
        assert_eq!(layout(&xdg).unwrap().data, Path::new("/data/ada/lyceum"));
        let relative = Surroundings { xdg_data_home: Some("data".into()), ..user() };
        assert_eq!(layout(&relative).unwrap().data, Path::new("/home/ada/.local/share/lyceum"), "as XDG demands");
        assert!(layout(&Surroundings { home: None, ..user() }).is_err());
        assert!(layout(&Surroundings { data: Some("here".into()), ..user() }).is_err());
    }

    #[test]
    fn run_directories_are_short() {
        let run = |runtime: Option<&str>, uid| {
            let surroundings = Surroundings { uid, xdg_runtime_dir: runtime.map(PathBuf::from), ..user() };
            let paths = layout(&surroundings).unwrap();
            paths.run.to_str().unwrap().replace(&paths.instance, "I")
        };
        assert_eq!(run(Some("/run/user/1000"), 1000), "/run/user/1000/lyceum/I");
        assert_eq!(run(None, 1000), "/tmp/lyceum-1000/I");
        assert_eq!(run(Some("/a/runtime/directory/that/is/too/long"), 1000), "/tmp/lyceum-1000/I");
        assert!(run(None, u32::MAX).len() + 7 <= MAX_RUN);
    }

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
