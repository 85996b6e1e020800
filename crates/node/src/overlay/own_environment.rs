//! Whether a folder that somebody names is a Python environment that notebooks can run in,
//! as far as its files tell: a virtual environment, or one of conda. Its Python is not run
//! here; the agent does that in the session, where limits bind it. What the files leave
//! open counts as fine.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use lyceum_wire::protocol::{Installer, OwnEnvironment};

/// The oldest Python that kernels run on (ipykernel 6).
const OLDEST: (u32, u32) = (3, 8);

/// Looks at the folder, as the user that this process is.
pub fn examine(folder: &Path, needs: &[String]) -> OwnEnvironment {
    match fs::metadata(folder) {
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => OwnEnvironment::Missing,
                ErrorKind::PermissionDenied => OwnEnvironment::Forbidden,
                _ => OwnEnvironment::Silent,
            };
        }
        Ok(facts) if !facts.is_dir() => return OwnEnvironment::NotADirectory,
        Ok(_) if access(folder.join("."), Access::EXEC_OK | Access::READ_OK).is_err() => {
            return OwnEnvironment::Forbidden;
        }
        Ok(_) => {}
    }
    let python = folder.join("bin/python");
    if fs::symlink_metadata(&python).is_err() {
        return OwnEnvironment::NoPython;
    }
    if access(&python, Access::EXEC_OK).is_err() {
        return OwnEnvironment::PythonGone { leads_to: last_target(&python) };
    }
    let libraries = libraries(folder);
    if let Some(version) = version(folder, &libraries)
        && version < OLDEST
    {
        return OwnEnvironment::TooOld { version: format!("{}.{}", version.0, version.1) };
    }
    let missing = needs.iter().find(|package| !libraries.iter().any(|library| holds(library, package)));
    match missing {
        Some(package) if !looks_elsewhere(folder, &libraries) => {
            OwnEnvironment::Lacks { package: package.clone(), installer: installer(folder, &libraries) }
        }
        _ => OwnEnvironment::Fine,
    }
}

/// Where links lead in the end, there or not.
fn last_target(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..16 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.with_file_name("").join(target);
    }
    path
}

/// The folders `lib/pythonX.Y/site-packages`.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let below = |name: &str| {
        let entries = fs::read_dir(folder.join(name)).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python"))
    };
    let places = below("lib").chain(below("lib64")).map(|entry| entry.path().join("site-packages"));
    places.filter(|place| place.is_dir()).collect()
}

/// From `pyvenv.cfg`, from what conda noted of its python, else from the only library's name.
fn version(folder: &Path, libraries: &[PathBuf]) -> Option<(u32, u32)> {
    let number = |text: &str| {
        let mut parts = text.trim().split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let settings = fs::read_to_string(folder.join("pyvenv.cfg")).unwrap_or_default();
    let from_settings = setting(&settings, "version").or_else(|| setting(&settings, "version_info")).and_then(number);
    let from_conda = || {
        let entries = fs::read_dir(folder.join("conda-meta")).into_iter().flatten().flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.find_map(|name| number(name.strip_prefix("python-").filter(|rest| rest.starts_with(char::is_numeric))?))
    };
    let from_libraries = || {
        let [library] = libraries else { return None };
        number(library.parent()?.file_name()?.to_str()?.strip_prefix("python")?)
    };
    from_settings.or_else(from_conda).or_else(from_libraries)
}

fn setting<'a>(settings: &'a str, key: &str) -> Option<&'a str> {
    settings.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim())
    })
}

fn holds(library: &Path, package: &str) -> bool {
    library.join(package).is_dir() || library.join(format!("{package}.py")).is_file()
}

/// Whether its Python would find packages in other places than its own.
fn looks_elsewhere(folder: &Path, libraries: &[PathBuf]) -> bool {
    let settings = fs::read_to_string(folder.join("pyvenv.cfg")).unwrap_or_default();
    let system = setting(&settings, "include-system-site-packages").is_some_and(|value| value == "true");
    let leads_on = |library: &PathBuf| {
        fs::read_dir(library).into_iter().flatten().flatten().any(|entry| {
            let name = entry.file_name();
            // It comes with every setuptools and leads nowhere.
            name != "distutils-precedence.pth" && Path::new(&name).extension() == Some("pth".as_ref())
        })
    };
    system || libraries.is_empty() || libraries.iter().any(leads_on)
}

fn installer(folder: &Path, libraries: &[PathBuf]) -> Installer {
    if folder.join("conda-meta").is_dir() {
        Installer::Conda
    } else if libraries.iter().any(|library| holds(library, "pip")) {
        Installer::Pip
    } else {
        Installer::Uv
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder that looks like an environment.
    fn environment(folder: &Path, settings: Option<&str>, series: &str, packages: &[&str]) {
        fs::create_dir_all(folder.join("bin")).unwrap();
        symlink("/bin/sh", folder.join("bin/python")).unwrap();
        if let Some(settings) = settings {
            fs::write(folder.join("pyvenv.cfg"), settings).unwrap();
        } else {
            fs::create_dir(folder.join("conda-meta")).unwrap();
            fs::write(folder.join("conda-meta/history"), "").unwrap();
            fs::write(folder.join(format!("conda-meta/python-{series}.4-h1_0_cpython.json")), "{}").unwrap();
        }
        for package in packages {
            fs::create_dir_all(folder.join(format!("lib/python{series}/site-packages")).join(package)).unwrap();
        }
    }

    #[test]
    fn what_files_tell() {
        let base = tempfile::tempdir().unwrap();
        let needs = ["ipykernel".to_owned()];
        let look = |name: &str| examine(&base.path().join(name), &needs);
        let lacks = |installer| OwnEnvironment::Lacks { package: "ipykernel".to_owned(), installer };

        environment(&base.path().join("venv"), Some("version = 3.11.2\n"), "3.11", &["pip", "ipykernel"]);
        assert_eq!(look("venv"), OwnEnvironment::Fine);
        environment(&base.path().join("bare"), Some("version_info = 3.12.0.final.0\n"), "3.12", &["six"]);
        assert_eq!(look("bare"), lacks(Installer::Uv));
        environment(&base.path().join("with-pip"), Some("version = 3.12.0\n"), "3.12", &["pip"]);
        assert_eq!(look("with-pip"), lacks(Installer::Pip));
        environment(&base.path().join("conda"), None, "3.12", &["pip"]);
        assert_eq!(look("conda"), lacks(Installer::Conda));
        environment(&base.path().join("old"), None, "3.7", &["ipykernel"]);
        assert_eq!(look("old"), OwnEnvironment::TooOld { version: "3.7".to_owned() });
        let settings = "version = 3.11.2\ninclude-system-site-packages = true\n";
        environment(&base.path().join("system"), Some(settings), "3.11", &["pip"]);
        assert_eq!(look("system"), OwnEnvironment::Fine, "its packages may lie elsewhere");

        fs::create_dir(base.path().join("empty")).unwrap();
        assert_eq!(look("empty"), OwnEnvironment::NoPython);
        assert_eq!(look("none"), OwnEnvironment::Missing);
        fs::write(base.path().join("file"), "").unwrap();
        assert_eq!(look("file"), OwnEnvironment::NotADirectory);
        fs::remove_file(base.path().join("venv/bin/python")).unwrap();
        symlink("python3", base.path().join("venv/bin/python")).unwrap();
        symlink("/usr/bin/python3.2", base.path().join("venv/bin/python3")).unwrap();
        assert_eq!(look("venv"), OwnEnvironment::PythonGone { leads_to: "/usr/bin/python3.2".into() });
        if !rustix::process::geteuid().is_root() {
            fs::set_permissions(base.path().join("conda"), fs::Permissions::from_mode(0o000)).unwrap();
            assert_eq!(look("conda"), OwnEnvironment::Forbidden);
        }
    }
}
