//! What `serve` does before any thread exists: where everything lies ([`layout`], pure),
//! making the directories, and, when root started us, making the service user, starting the
//! helper and becoming the service user for good. Not started by root, there is no helper.
//!
//! What root makes inside directories that the service user cannot write stays root's: the
//! binary that agents run, the run directories' parent, and the placements. Where sudo makes an ordinary portal's
//! children users, users make their run directories themselves.

mod directories;
mod layout;
pub mod lock;
pub mod memory;

use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    ops::RangeInclusive,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use self::directories::{Owner, check_ancestors, check_entrance, check_secrets, directory, parent_directory};
use crate::{
    helper::{self, cgroup::Hierarchy, client::Launcher, doing, identity::Identity},
    inherited,
};

pub use helper::{Error, Result};
pub use layout::{LINGERING, Paths, ProcessEnvironment, SERVICE_DIRECTORIES, ends_with_login, layout};

/// What the configuration says about starting.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whom `serve` runs as when root starts it; made when missing.
    pub service_user: String,
    pub account_uids: RangeInclusive<u32>,
    /// This very program: by default in a way that holds also after its file was replaced.
    pub own_binary: PathBuf,
    /// The commands of the batch system, where one starts the workloads.
    pub batch: Option<helper::batch::Tools>,
    /// Our program as a rule of sudo's names it, for a portal that root does not start.
    pub sudo: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_user: "lyceum".to_owned(),
            account_uids: helper::ACCOUNT_UIDS,
            own_binary: "/proc/self/exe".into(),
            batch: None,
            sudo: None,
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
    if settings.sudo.is_some() {
        return Err(Error::Refused(
            "accounts.sudo requires a portal that is not started by root: remove it, or start the portal as its \
             service account"
                .to_owned(),
        ));
    }
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
    check_entrance(&paths.private)?;
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
    if let Some(niceness) = inherited::lasting_niceness() {
        tracing::warn!(
            niceness,
            "niceness of sessions and jobs not reset: only root can lower it; they inherit the portal's"
        );
    }
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    // With sudo people make their run directories themselves: each gets the group of `run`, and nobody sees others'
    // there or removes them.
    let (shown, run) = if settings.sudo.is_some() { (0o755, 0o3733) } else { (0o700, 0o700) };
    fs::create_dir_all(paths.data.parent().unwrap_or(&paths.data)).map_err(doing("creating the data directory"))?;
    for (path, mode) in [
        (&paths.data, shown),
        (&paths.private, 0o700),
        (&paths.shared, shown),
        (&paths.bin, shown),
        (&paths.placements, 0o700),
    ] {
        directory(path, owner, mode)?;
    }
    for name in SERVICE_DIRECTORIES {
        directory(&paths.shared.join(name), owner, shown)?;
    }
    parent_directory(&paths.run, owner, shown)?;
    directory(&paths.run, owner, run)?;
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
        batch: settings.batch.clone(),
        sudo: settings.sudo.clone(),
    }
}

/// Starts the helper with one end of a socket pair as its standard input.
fn start_helper(config: &helper::Config) -> Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair().map_err(doing("creating the helper's socket"))?;
    let argument = serde_json::to_string(config)
        .map_err(|err| Error::Refused(format!("the paths are invalid for the helper: {err}")))?;
    let child = Command::new(&config.own_binary)
        .args(["helper", &argument])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .map_err(doing("starting the helper"))?;
    Ok((ours, child))
}

/// How long others may change the machine's accounts at a start: an upgrade, a `userdel` with a large home.
const PATIENCE: Duration = Duration::from_mins(1);

/// The service user, made when missing.
fn service_user(name: &str, data: &Path) -> Result<Identity> {
    if !helper::identity::is_unix_name(name) {
        return Err(Error::Refused(format!("{name:?} is not the name of a Unix account")));
    }
    if !is_known(name)? {
        let _alone = helper::account::lock()?;
        let begun = Instant::now();
        while !is_known(name)? {
            let Some(failure) = add_service_user(name, data)? else { break };
            if !failure.contains("cannot lock") || begun.elapsed() > PATIENCE {
                return Err(Error::Busy(format!("the service user `{name}` could not be created: {failure}")));
            }
            helper::process::pause(Duration::from_millis(200));
        }
    }
    let service = Identity::facts(name)?;
    if service.uid == 0 || service.gid == 0 || service.groups.contains(&0) {
        return Err(Error::Refused(format!("the service user `{name}` must not be root or in the group root")));
    }
    Ok(service)
}

fn is_known(name: &str) -> Result<bool> {
    nix::unistd::User::from_name(name)
        .map(|user| user.is_some())
        .map_err(|err| doing(format!("looking up `{name}` in the name service"))(err.into()))
}

/// Runs `useradd`; answers what it said when it failed.
fn add_service_user(name: &str, data: &Path) -> Result<Option<String>> {
    let output = Command::new("useradd")
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("LC_ALL", "C")])
        .args(["--system", "--user-group", "--no-create-home", "--no-log-init", "--shell", "/usr/sbin/nologin"])
        .args(["--comment", "Lyceum", "--home-dir"])
        .arg(data)
        .args(["--", name])
        .stdin(Stdio::null())
        .output()
        .map_err(doing("running useradd (is it installed?)"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success()).then(|| said.trim().to_owned()))
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
        let hash = hex::encode(&Sha256::digest(identity)[..4]);
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
    copy().map_err(doing(format!("copying the program to {}", bin.display())))
}
