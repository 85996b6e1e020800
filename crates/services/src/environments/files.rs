//! Files that travel inside the binary and have to lie on disk for users: the templates of
//! new homes and the wrapper that starts `TensorBoard`. Each set lies in a directory named
//! after its contents, so that an upgrade never changes what a running workload reads.

use std::{
    borrow::Cow,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rust_embed::RustEmbed;
use sha2::{Digest, Sha256};

#[derive(RustEmbed)]
#[folder = "../../notebooks/templates/"]
struct Templates;

/// The training program, a package of Python.
#[derive(RustEmbed)]
#[folder = "../../trainer/"]
struct Trainer;

/// The program that tests GPUs, a package of Python.
#[derive(RustEmbed)]
#[folder = "../../diagnostics/"]
struct Diagnostics;

const TENSORBOARD: &str = include_str!("tensorboard.py");
/// What a shell reads so that the session's environment comes first.
const BASHRC: &str = include_str!("bashrc");
/// JupyterLab's page configuration: no questions about news at the first start.
const JUPYTERLAB: &str = include_str!("page_config.json");
/// The server's: the portal's token, and the shell of its terminals.
const JUPYTER_SERVER: &str = include_str!("jupyter_server_config.py");
const LAB_EXTENSION: &str = include_str!("lab_extension.js");
const LAB_PACKAGE: &str = include_str!("lab_package.json");

/// Where [`install`] put things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The directory whose files a new home gets.
    pub templates: PathBuf,
    /// The script that serves `TensorBoard` on a Unix socket.
    pub tensorboard: PathBuf,
    /// The folder that holds the packages `trainer` and `diagnostics`: what `PYTHONPATH` names.
    pub trainer: PathBuf,
}

/// Writes the embedded files below `shared`, readable by everybody; what is there already
/// is left alone.
pub fn install(shared: &Path) -> io::Result<Installed> {
    let templates: Vec<(String, Cow<'static, [u8]>)> = Templates::iter()
        .filter(|name| !name.contains(".ipynb_checkpoints"))
        .filter_map(|name| Templates::get(&name).map(|file| (name.into_owned(), file.data)))
        .collect();
    if templates.is_empty() {
        // Builds for development read the repository while they run.
        return Err(io::Error::other("the repository's notebooks/templates cannot be read by this user"));
    }
    // Its tests and templates stay at home.
    let wanted = |name: &str| {
        let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
        let first = name.split('/').next();
        matches!(ending, Some("py" | "json")) && !matches!(first, Some("tests" | "templates"))
    };
    let diagnostics = Diagnostics::iter()
        .filter(|name| wanted(name))
        .filter_map(|name| Diagnostics::get(&name).map(|file| (format!("diagnostics/{name}"), file.data)));
    let trainer: Vec<(String, Cow<'static, [u8]>)> = Trainer::iter()
        .filter(|name| wanted(name))
        .filter_map(|name| Trainer::get(&name).map(|file| (format!("trainer/{name}"), file.data)))
        .chain(diagnostics)
        .collect();
    let apps = [
        ("tensorboard.py".to_owned(), Cow::Borrowed(TENSORBOARD.as_bytes())),
        ("bashrc".to_owned(), Cow::Borrowed(BASHRC.as_bytes())),
        ("jupyter/labconfig/page_config.json".to_owned(), Cow::Borrowed(JUPYTERLAB.as_bytes())),
        ("jupyter/jupyter_server_config.py".to_owned(), Cow::Borrowed(JUPYTER_SERVER.as_bytes())),
        ("jupyter/labextensions/lyceum/package.json".to_owned(), Cow::Borrowed(LAB_PACKAGE.as_bytes())),
        ("jupyter/labextensions/lyceum/static/remoteEntry.js".to_owned(), Cow::Borrowed(LAB_EXTENSION.as_bytes())),
    ];
    Ok(Installed {
        templates: publish(&shared.join("templates"), &templates)?,
        tensorboard: publish(&shared.join("apps"), &apps)?.join("tensorboard.py"),
        trainer: publish(&shared.join("trainer"), &trainer)?,
    })
}

/// Writes files to `<folder>/<hash of all>/` in one step: it is there whole, or not at all.
fn publish(folder: &Path, files: &[(String, Cow<'static, [u8]>)]) -> io::Result<PathBuf> {
    let mut hash = Sha256::new();
    for (name, contents) in files {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((contents.len() as u64).to_le_bytes());
        hash.update(contents);
    }
    let name = short_hex(&hash.finalize());
    let place = folder.join(&name);
    if place.is_dir() {
        return Ok(place);
    }
    open_folder(folder)?;
    let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => open_folder(&unfinished)?,
    }
    for (name, contents) in files {
        let path = unfinished.join(name);
        if let Some(parent) = path.parent() {
            open_folder(parent)?;
        }
        let mut file = fs::File::create(&path)?;
        file.write_all(contents)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        // The name promises the contents, also after a loss of power.
        file.sync_all()?;
    }
    match fs::rename(&unfinished, &place) {
        // Another portal was quicker; the contents are the same by their name.
        Err(_) if place.is_dir() => fs::remove_dir_all(&unfinished)?,
        other => other?,
    }
    Ok(place)
}

/// Makes a directory that everybody may enter and read; parents that are there already keep
/// their permissions.
pub fn open_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        open_folder(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
    }
}

/// The first 12 hexadecimal digits of a hash: enough to tell versions apart.
pub fn short_hex(hash: &[u8]) -> String {
    hash.iter()
        .take(6)
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installs_once_and_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        let installed = install(&shared).unwrap();
        assert_eq!(fs::read_to_string(&installed.tensorboard).unwrap(), TENSORBOARD);
        assert_eq!(fs::metadata(&installed.tensorboard).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(
            installed.trainer.join("trainer/__main__.py").exists() && installed.trainer.join("trainer/tasks").is_dir()
        );
        assert!(!installed.trainer.join("trainer/tests").exists());
        assert!(installed.trainer.join("diagnostics/__main__.py").exists());
        assert!(!installed.trainer.join("diagnostics/tests").exists());
        let notebooks = fs::read_dir(&installed.templates).unwrap().count();
        assert!(notebooks > 0);
        fs::write(installed.templates.join("mine"), "").unwrap();
        assert_eq!(install(&shared).unwrap(), installed);
        assert!(installed.templates.join("mine").exists());
        assert_eq!(fs::read_dir(shared.join("templates")).unwrap().count(), 1, "nothing half-written stays");
    }

    #[test]
    fn other_contents_lie_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = |contents: &'static str| [("a/b".to_owned(), Cow::Borrowed(contents.as_bytes()))];
        let one = publish(folder.path(), &file("1")).unwrap();
        let two = publish(folder.path(), &file("2")).unwrap();
        assert_ne!(one, two);
        assert_eq!(fs::read_to_string(one.join("a/b")).unwrap(), "1");
    }
}
