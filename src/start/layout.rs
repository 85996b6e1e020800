//! Where everything of a portal lies, decided from its surroundings alone: a pure function.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Error, Result};

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
pub const SERVICE_DIRECTORIES: [&str; 5] = ["apps", "environments", "images", "templates", "trainer"];

/// What of the process's surroundings decides where things lie; read by `config`.
#[derive(Clone, Debug, Default)]
pub struct ProcessEnvironment {
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
pub fn layout(surroundings: &ProcessEnvironment) -> Result<Paths> {
    let ProcessEnvironment { uid, data, home, xdg_data_home, xdg_runtime_dir } = surroundings;
    let absolute = |path: &Option<PathBuf>| path.clone().filter(|path| path.is_absolute());
    let data = match data {
        Some(data) if data.is_absolute() => data.clone(),
        Some(data) => return Err(Error::Refused(format!("the data directory {} must be absolute", data.display()))),
        None if *uid == 0 => PathBuf::from("/var/lib/lyceum"),
        None => absolute(xdg_data_home)
            .or_else(|| Some(absolute(home)?.join(".local/share")))
            .ok_or_else(|| Error::Refused("the home directory is unknown: use --data DIR".to_owned()))?
            .join("lyceum"),
    };
    let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let instance = hex::encode(&digest[..4]);
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

/// Whether run directories go when their user signs out of the machine: they lie below `/run/user`, and the user
/// does not linger there, which `lingering` (`/var/lib/systemd/linger`) has a file for.
#[must_use]
pub fn ends_with_login(run: &Path, user: &str, lingering: &Path) -> bool {
    run.starts_with("/run/user") && !lingering.join(user).exists()
}

/// Where systemd notes who lingers.
pub const LINGERING: &str = "/var/lib/systemd/linger";

#[cfg(test)]
mod tests {
    #[test]
    fn a_run_directory_below_run_user_ends_with_the_login_unless_the_user_lingers() {
        let lingering = tempfile::tempdir().unwrap();
        std::fs::write(lingering.path().join("ada"), "").unwrap();
        for (run, user, ends) in [
            ("/run/user/1000/lyceum/x", "bob", true),
            ("/run/user/1000/lyceum/x", "ada", false),
            ("/tmp/lyceum-1000/x", "bob", false),
        ] {
            assert_eq!(ends_with_login(Path::new(run), user, lingering.path()), ends, "{run} {user}");
        }
    }

    use super::*;

    fn user() -> ProcessEnvironment {
        ProcessEnvironment { uid: 1000, home: Some("/home/ada".into()), ..ProcessEnvironment::default() }
    }

    #[test]
    fn root_has_fixed_places() {
        let paths =
            layout(&ProcessEnvironment { xdg_data_home: Some("/x".into()), ..ProcessEnvironment::default() }).unwrap();
        assert_eq!(paths.private, Path::new("/var/lib/lyceum/private"));
        assert_eq!(paths.bin, Path::new("/var/lib/lyceum/shared/bin"));
        assert_eq!(paths.run, Path::new("/run/lyceum").join(&paths.instance));
        assert_eq!(paths.instance.len(), 8);
        let other =
            layout(&ProcessEnvironment { data: Some("/srv/second".into()), ..ProcessEnvironment::default() }).unwrap();
        assert_ne!(other.instance, paths.instance, "two portals keep apart");
    }

    #[test]
    fn users_have_the_xdg_places() {
        assert_eq!(layout(&user()).unwrap().data, Path::new("/home/ada/.local/share/lyceum"));
        let xdg = ProcessEnvironment { xdg_data_home: Some("/data/ada".into()), ..user() };
        assert_eq!(layout(&xdg).unwrap().data, Path::new("/data/ada/lyceum"));
        let relative = ProcessEnvironment { xdg_data_home: Some("data".into()), ..user() };
        assert_eq!(layout(&relative).unwrap().data, Path::new("/home/ada/.local/share/lyceum"), "as XDG demands");
        assert!(layout(&ProcessEnvironment { home: None, ..user() }).is_err());
        assert!(layout(&ProcessEnvironment { data: Some("here".into()), ..user() }).is_err());
    }

    #[test]
    fn run_directories_are_short() {
        let run = |runtime: Option<&str>, uid| {
            let surroundings = ProcessEnvironment { uid, xdg_runtime_dir: runtime.map(PathBuf::from), ..user() };
            let paths = layout(&surroundings).unwrap();
            paths.run.to_str().unwrap().replace(&paths.instance, "I")
        };
        assert_eq!(run(Some("/run/user/1000"), 1000), "/run/user/1000/lyceum/I");
        assert_eq!(run(None, 1000), "/tmp/lyceum-1000/I");
        assert_eq!(run(Some("/a/runtime/directory/that/is/too/long"), 1000), "/tmp/lyceum-1000/I");
        assert!(run(None, u32::MAX).len() + 7 <= MAX_RUN);
    }
}
