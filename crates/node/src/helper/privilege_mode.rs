//! How a child of ours comes to run as the user whom something is done for. Root's child becomes the user
//! itself, as its first act; where everything runs as one person, it stays who it is; and where the portal is an
//! ordinary account with a rule of sudo's, sudo makes it the user. What the child then does is others' to say.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use super::{
    Config, Error, Result, batch, errand, files,
    identity::{self, Identity},
};

/// Selects the privileges that verbs run with.
#[derive(Clone, Debug)]
pub(super) enum PrivilegeMode {
    Root,
    /// The one person that this process is.
    SingleUser(Identity),
    /// An account that is nobody's; the program is named as sudo's rule names it.
    Sudo(PathBuf),
}

pub const SUDO: &str = "/usr/bin/sudo";

impl PrivilegeMode {
    /// Of a process that is not root, and must not be.
    pub fn of_ordinary(config: &Config) -> Result<Self> {
        let own = identity::own()?;
        match &config.sudo {
            _ if own.uid == 0 => Err(Error::Refused("workloads cannot be started as root".to_owned())),
            Some(program) => Ok(Self::Sudo(program.clone())),
            None => Ok(Self::SingleUser(own)),
        }
    }

    /// Our program, to begin as `identity` with one of the verbs `batch`, `errand` and `files-agent`. Its environment is
    /// empty.
    pub fn command(&self, own_binary: &Path, verb: &str, identity: &Identity) -> Command {
        let mut command = match self {
            Self::Root | Self::SingleUser(_) => Command::new(own_binary),
            Self::Sudo(program) => {
                let mut command = Command::new(SUDO);
                command.args(["-n", "-u", &identity.name, "--"]).arg(program).arg("as-user");
                command
            }
        };
        command.arg(verb).env_clear().current_dir("/");
        command
    }

    /// Returns the identity that the child process has to assume.
    pub fn target_identity(&self, identity: &Identity) -> Option<Identity> {
        matches!(self, Self::Root).then(|| identity.clone())
    }

    /// Without root nobody gives files away: what is to be a user's, the child makes and removes.
    pub fn is_sudo(&self) -> bool {
        matches!(self, Self::Sudo(_))
    }
}

/// `lyceum as-user VERB`, what sudo's rule allows: the verbs that are a user's own, as that user. The same rules
/// hold as for the helper: it is never a system account.
pub fn run(verb: Option<&str>) -> ExitCode {
    let allowed = identity::own().and_then(|own| Identity::look_up(&own.name));
    match (allowed, verb) {
        (Ok(_), Some("batch")) => batch::run(),
        (Ok(_), Some("errand")) => errand::run(),
        (Ok(_), Some("files-agent")) => files::run(),
        (Ok(_), _) => refuse("lyceum as-user: the verb must be batch, errand or files-agent"),
        (Err(err), _) => refuse(&format!("lyceum as-user: {}", err.sentence())),
    }
}

fn refuse(why: &str) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{why}");
    ExitCode::from(batch::NOT_RUN)
}
