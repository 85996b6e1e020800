//! The verb `errand`: something small with a user's files, as the user. A child becomes the
//! user and does it; the helper never does itself, because as root it would see too much,
//! and because a file server that is away would hold it up. It waits for a moment and can be
//! asked again, so that one person's dead mount costs nobody else more than that moment. The
//! child reads and removes files; it runs no program, for no limits would bind that.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, ExitCode, Stdio},
    time::{Duration, Instant},
};

use nix::unistd::alarm;
use rustix::{
    fs::{Access, access},
    io::Errno,
    process::{Signal, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};

use super::{
    Config, Error, Result, doing, identity::Identity, privilege_mode::PrivilegeMode, process, remove,
    trampoline::memory_file,
};
use lyceum_model::line::abridged;
use lyceum_wire::protocol::{Directory, Errand, ErrandOutcome, MAX_MESSAGE};

use crate::{inherited, overlay};

/// How long a file system may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How much longer it may take where many files are looked at, and where they are removed.
const LISTING: u32 = 4;
const REMOVING: u32 = 24;

/// How long the helper waits for it; others wait meanwhile.
const INITIAL_WAIT: Duration = Duration::from_millis(50);

/// How many may be under way for one account, and in all. One whose file system hangs stays
/// until the kernel lets go of it.
const MAX_PER_ACCOUNT: usize = 16;
const MAX_RUNNING: usize = 64;

const MAX_PATH_LENGTH: usize = 4096;

/// The errands that are under way.
#[derive(Debug)]
pub(super) struct Errands {
    under_way: Vec<RunningErrand>,
    patience: Duration,
}

impl Default for Errands {
    fn default() -> Self {
        Self { under_way: Vec::new(), patience: TIMEOUT }
    }
}

#[derive(Debug)]
struct RunningErrand {
    uid: u32,
    errand: Errand,
    child: Child,
    output: OwnedFd,
    deadline: Instant,
}

/// What the child is told.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// `None`: stay who we are.
    identity: Option<Identity>,
    home: PathBuf,
    /// Where run directories are.
    run: PathBuf,
    errand: Errand,
    /// The child ends itself after so many seconds: whoever waits may be gone, or may not be allowed to end it.
    seconds: u32,
}

impl Errands {
    /// What comes of it; `None` while nobody knows.
    pub fn run(
        &mut self,
        config: &Config,
        way: &PrivilegeMode,
        identity: &Identity,
        errand: &Errand,
    ) -> Result<Option<ErrandOutcome>> {
        let under_way = self.under_way.iter().position(|known| known.uid == identity.uid && known.errand == *errand);
        if under_way.is_none() {
            self.admit(identity, errand)?;
            self.under_way.push(start(config, way, identity, errand, self.patience_with(errand))?);
        }
        let at = under_way.unwrap_or(self.under_way.len() - 1);
        if process::wait(&[&self.under_way[at].output], INITIAL_WAIT) {
            return self.under_way.swap_remove(at).finish().map(Some);
        }
        Ok((self.under_way[at].deadline <= Instant::now()).then_some(ErrandOutcome::Silent))
    }

    fn patience_with(&self, errand: &Errand) -> Duration {
        match errand {
            Errand::Directory { .. } | Errand::Environment { .. } => self.patience,
            Errand::Overlays | Errand::RemoveRunDirectory { .. } => self.patience * LISTING,
            Errand::ResetOverlay { .. } => self.patience * REMOVING,
        }
    }

    fn admit(&self, identity: &Identity, errand: &Errand) -> Result<()> {
        if let Errand::Directory { path } | Errand::Environment { path, .. } = errand
            && (!path.is_absolute() || path.as_os_str().len() > MAX_PATH_LENGTH)
        {
            return Err(Error::Refused("the directory must be an absolute path of at most 4096 bytes".to_owned()));
        }
        let own = self.under_way.iter().filter(|known| known.uid == identity.uid).count();
        if own >= MAX_PER_ACCOUNT || self.under_way.len() >= MAX_RUNNING {
            return Err(Error::Busy("too many directories that do not respond are already being checked".to_owned()));
        }
        Ok(())
    }

    /// Ends errands whose time is over, and forgets those that have ended.
    pub fn reap(&mut self) {
        let now = Instant::now();
        self.under_way.retain_mut(|known| {
            if now < known.deadline {
                return true;
            }
            // In a system call that hangs it ends when the kernel lets it.
            let _ = known.child.kill();
            matches!(known.child.try_wait(), Ok(None))
        });
    }
}

impl RunningErrand {
    /// Reads the answer of a child that has written it, or has ended without.
    fn finish(mut self) -> Result<ErrandOutcome> {
        let mut answer = String::new();
        // An answer of ours fits; the frame that it travels in holds a little more.
        let read = File::from(self.output).take((MAX_MESSAGE - 1024) as u64).read_to_string(&mut answer);
        let _ = self.child.wait();
        read.map_err(doing("reading the result of an errand"))?;
        serde_json::from_str(&answer)
            .map_err(|_err| Error::Busy(format!("accessing a user's files: {}", abridged(&answer, 300))))
    }
}

fn start(
    config: &Config,
    way: &PrivilegeMode,
    identity: &Identity,
    errand: &Errand,
    patience: Duration,
) -> Result<RunningErrand> {
    let spec = Spec {
        identity: way.target_identity(identity),
        home: identity.home.clone(),
        run: config.run.clone(),
        errand: errand.clone(),
        seconds: u32::try_from(patience.as_secs()).unwrap_or(u32::MAX).saturating_add(1),
    };
    let spec = serde_json::to_vec(&spec).map_err(|err| Error::Refused(format!("invalid path of an errand: {err}")))?;
    let deadline = Instant::now() + patience;
    let mut child = way
        .command(&config.own_binary, "errand", identity)
        .stdin(memory_file("errand-input", &[&spec])?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(doing("starting an errand"))?;
    let output = child.stdout.take().expect("it was asked for").into();
    Ok(RunningErrand { uid: identity.uid, errand: errand.clone(), child, output, deadline })
}

/// The child: becomes the user, does it, and says on standard output what came of it.
pub fn run() -> ExitCode {
    inherited::begin();
    let answer = match become_and_run() {
        Ok(found) => serde_json::to_string(&found).expect("plain data"),
        Err(err) => err.sentence(),
    };
    match io::stdout().write_all(answer.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn become_and_run() -> Result<ErrandOutcome> {
    let spec: Spec =
        serde_json::from_reader(io::stdin().lock()).map_err(|err| Error::Refused(format!("invalid errand: {err}")))?;
    inherited::restore(0);
    if let Some(identity) = &spec.identity {
        identity.become_for_good()?;
    }
    alarm::set(spec.seconds);
    // A change of user clears it, so it comes after.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|err| doing("watching the helper")(err.into()))?;
    Ok(match &spec.errand {
        Errand::Directory { path } => ErrandOutcome::Directory { directory: look(path) },
        Errand::Environment { path, needs } => {
            ErrandOutcome::Environment { environment: overlay::own_environment::examine(path, needs) }
        }
        Errand::Overlays => ErrandOutcome::Overlays { overlays: overlay::list(&spec.home, TIMEOUT * (LISTING - 1)) },
        Errand::ResetOverlay { name } => match overlay::reset(&spec.home, name) {
            Ok(true) => ErrandOutcome::Done,
            Ok(false) => ErrandOutcome::Nothing,
            Err(error) => ErrandOutcome::Failed { message: error.to_string() },
        },
        Errand::RemoveRunDirectory { session } => {
            match remove::remove_tree(&spec.run, &session.short(), remove::MAX_TURN) {
                Ok(true) => ErrandOutcome::Done,
                Ok(false) => ErrandOutcome::Nothing,
                Err(err) => ErrandOutcome::Failed { message: format!("removing the run directory: {err}") },
            }
        }
    })
}

/// What this process finds, as the user it is.
fn look(path: &Path) -> Directory {
    let can = |path: &Path, what| access(path.join("."), what).is_ok();
    match fs::metadata(path) {
        Ok(facts) if !facts.is_dir() => Directory::NotADirectory,
        Ok(_) if can(path, Access::EXEC_OK) => Directory::Enterable { readable: can(path, Access::READ_OK) },
        Ok(_) => Directory::Forbidden,
        Err(err) => match err.kind() {
            ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| parent.is_dir());
                let can_be_made = parent.is_some_and(|parent| can(parent, Access::WRITE_OK | Access::EXEC_OK));
                Directory::Missing { can_be_made }
            }
            ErrorKind::PermissionDenied => Directory::Forbidden,
            ErrorKind::NotADirectory => Directory::NotADirectory,
            // A name too long, or a loop of links: there is nothing that could be entered.
            _ if [Errno::NAMETOOLONG, Errno::LOOP].map(Errno::raw_os_error).map(Some).contains(&err.raw_os_error()) => {
                Directory::Missing { can_be_made: false }
            }
            _ => Directory::Silent,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::cgroup::Hierarchy;

    #[test]
    fn what_is_found() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("nowhere", base.path().join("dangling")).unwrap();
        for (path, found) in [
            (base.path().to_owned(), Directory::Enterable { readable: true }),
            (base.path().join("new"), Directory::Missing { can_be_made: true }),
            (base.path().join("new/below"), Directory::Missing { can_be_made: false }),
            (base.path().join("x".repeat(300)), Directory::Missing { can_be_made: false }),
            (base.path().join("dangling"), Directory::Missing { can_be_made: true }),
            (file.clone(), Directory::NotADirectory),
            (file.join("below"), Directory::NotADirectory),
        ] {
            assert_eq!(look(&path), found, "{}", path.display());
        }
    }

    /// A program that never answers stands for a file system that hangs.
    #[test]
    fn who_hangs_holds_up_nobody() {
        let base = tempfile::tempdir().unwrap();
        let hanging = base.path().join("hanging");
        fs::write(&hanging, "#!/bin/sh\nexec sleep 600\n").unwrap();
        fs::set_permissions(&hanging, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let me = super::super::identity::own().unwrap();
        let patience = Duration::from_secs(2);
        let mut errands = Errands { patience, ..Errands::default() };
        let begin = Instant::now();
        let config = Config {
            run: base.path().into(),
            placements: base.path().into(),
            hierarchy: Hierarchy::detect("test"),
            service_uid: me.uid,
            service_gid: me.gid,
            agent_command: Vec::new(),
            own_binary: hanging,
            account_uids: 0..=0,
            batch: None,
            sudo: None,
        };
        let way = PrivilegeMode::SingleUser(me.clone());
        let mut look = |path: &str| errands.run(&config, &way, &me, &Errand::Directory { path: path.into() });
        assert_eq!(look("/a").unwrap(), None);
        assert!(begin.elapsed() < patience, "{:?}", begin.elapsed());
        while look("/a").unwrap().is_none() {
            process::pause(Duration::from_millis(20));
        }
        assert_eq!(look("/a").unwrap(), Some(ErrandOutcome::Silent));
        for other in 1..MAX_PER_ACCOUNT {
            look(&format!("/{other}")).unwrap();
        }
        assert!(matches!(look("/one-more"), Err(Error::Busy(_))));
        assert!(matches!(look("relative"), Err(Error::Refused(_))));
        while !errands.under_way.is_empty() {
            process::pause(Duration::from_millis(20));
            errands.reap();
        }
    }
}
