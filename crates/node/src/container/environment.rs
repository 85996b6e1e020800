//! What a program in a container finds in its environment, and which command it is. The image's
//! variables come first, and those of the session and the user replace them, except for the search
//! paths: a path of the host means nothing inside. All of it is pure.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use lyceum_wire::protocol::Container;

type Variables = BTreeMap<String, String>;

/// Where programs are looked for if the image does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that name files of the host, or its Python.
const HOSTS: [&str; 5] = ["LYCEUM_PATH", "LYCEUM_BASHRC", "LYCEUM_BIN", "BASH_ENV", "PYTHONNOUSERSITE"];

/// What is known of the place where the program runs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub home: &'a Path,
    pub shell: &'a str,
    /// Folders of the host that are inside too.
    pub mounts: &'a [PathBuf],
    /// The folders of the driver's libraries and programs, if there are any.
    pub driver: Option<(&'a Path, &'a Path)>,
    /// Variables that the driver's description sets.
    pub of_driver: &'a [(String, String)],
}

/// Returns the folder of the packages that a user has installed for one image with
/// `pip install --user`.
pub fn user_base(home: &Path, container: &Container) -> PathBuf {
    home.join(".local/share/lyceum/images").join(container.folder_name())
}

/// Returns the environment of a program in the container.
pub fn merge(container: &Container, session: &Variables, place: Place<'_>) -> Variables {
    let mut merged = container.env.clone();
    let is_inside = |path: &str| place.mounts.iter().any(|mount| Path::new(path).starts_with(mount));
    for (name, value) in session {
        let stays_outside = HOSTS.contains(&name.as_str()) && !is_inside(value)
            || matches!(name.as_str(), "TMPDIR" | "TMP" | "TEMP") && !is_inside(value) && !value.starts_with("/tmp");
        if !stays_outside && !matches!(name.as_str(), "PATH" | "LD_LIBRARY_PATH") {
            merged.insert(name.clone(), value.clone());
        }
    }
    merged.extend(place.of_driver.iter().cloned());
    merged.insert("SHELL".to_owned(), place.shell.to_owned());
    let base = user_base(place.home, container);
    let base = session.get("PYTHONUSERBASE").cloned().unwrap_or_else(|| base.to_string_lossy().into_owned());
    let of_image = container.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let mut path = format!("{base}/bin:{of_image}");
    merged.insert("PYTHONUSERBASE".to_owned(), base);
    let mut libraries: Vec<&str> = [session, &container.env]
        .into_iter()
        .filter_map(|variables| variables.get("LD_LIBRARY_PATH").map(String::as_str))
        .filter(|libraries| !libraries.is_empty())
        .collect();
    let driver = place.driver.map(|(libraries, programs)| (libraries.to_string_lossy(), programs.to_string_lossy()));
    if let Some((of_driver, programs)) = &driver {
        libraries.push(of_driver);
        path = format!("{path}:{programs}");
    }
    merged.insert("PATH".to_owned(), path);
    merged.remove("LD_LIBRARY_PATH");
    if !libraries.is_empty() {
        merged.insert("LD_LIBRARY_PATH".to_owned(), libraries.join(":"));
    }
    merged
}

/// Separates the variables that the loader of a runner on the host would follow as well.
pub fn of_loader(environment: Variables) -> (Variables, Variables) {
    environment.into_iter().partition(|(name, _)| name.starts_with("LD_") || name.starts_with("GLIBC_"))
}

/// A program and the working directory that it starts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub argv: Vec<String>,
    pub directory: PathBuf,
}

/// Returns what runs inside: `argv`, or the image's own command where it is empty, behind the
/// image's entrypoint if it is used. `None`: neither names a program.
pub fn command(container: &Container, argv: &[String], directory: &Path) -> Option<Command> {
    let of_image = container.working_dir.clone().unwrap_or_else(|| PathBuf::from("/"));
    // Without a command of the user's, the image runs as it was made.
    let is_images_own = argv.is_empty();
    let words = if is_images_own { &container.cmd } else { argv };
    let entrypoint = if container.use_entrypoint || is_images_own { &container.entrypoint[..] } else { &[] };
    let mut argv: Vec<String> = entrypoint.iter().chain(words).cloned().collect();
    let first = argv.first_mut()?;
    if !entrypoint.is_empty() && first.contains('/') && !first.starts_with('/') {
        *first = of_image.join(&*first).to_string_lossy().into_owned();
    }
    Some(Command { argv, directory: if is_images_own { of_image } else { directory.to_owned() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn container(env: &[(&str, &str)]) -> Container {
        let value = serde_json::json!({
            "name": "pytorch", "digest": format!("sha256:{}", "ab".repeat(32)), "root": "/images/pytorch",
            "env": map(env), "working_dir": "/workspace", "entrypoint": ["./entry.sh", "-x"], "cmd": ["python", "app.py"],
        });
        serde_json::from_value(value).unwrap()
    }

    fn place() -> Place<'static> {
        Place { home: Path::new("/home/ada"), shell: "/bin/sh", mounts: &[], driver: None, of_driver: &[] }
    }

    #[test]
    fn the_users_variables_win_and_the_images_paths_stay() {
        let image =
            container(&[("PATH", "/opt/conda/bin:/bin"), ("LD_LIBRARY_PATH", "/opt/lib"), ("OMP_NUM_THREADS", "64")]);
        let session = map(&[
            ("PATH", "/env/bin:/usr/bin"),
            ("LYCEUM_PATH", "/env/bin"),
            ("LYCEUM_SESSION", "7"),
            ("OMP_NUM_THREADS", "2"),
            ("SHELL", "/bin/zsh"),
            ("BASH_ENV", "/etc/profile.d/modules.sh"),
            ("TMPDIR", "/scratch/7"),
            ("HOME", "/home/ada"),
            ("PYTHONNOUSERSITE", "1"),
        ]);
        let base = "/home/ada/.local/share/lyceum/images/pytorch-abababab";
        let wanted = map(&[
            ("HOME", "/home/ada"),
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("LYCEUM_SESSION", "7"),
            ("OMP_NUM_THREADS", "2"),
            ("PATH", &format!("{base}/bin:/opt/conda/bin:/bin")),
            ("PYTHONUSERBASE", base),
            ("SHELL", "/bin/sh"),
        ]);
        assert_eq!(merge(&image, &session, place()), wanted);
    }

    #[test]
    fn the_drivers_libraries_come_last() {
        let of_driver = [("NVIDIA_VISIBLE_DEVICES".to_owned(), "void".to_owned())];
        let driver = Some((Path::new("/run/driver/lib"), Path::new("/run/driver/bin")));
        let image = container(&[("LD_LIBRARY_PATH", "/opt/lib"), ("NVIDIA_VISIBLE_DEVICES", "all")]);
        let session = map(&[("LD_LIBRARY_PATH", "/home/ada/lib"), ("PYTHONUSERBASE", "/home/ada/py")]);
        let merged = merge(&image, &session, Place { driver, of_driver: &of_driver, ..place() });
        assert_eq!(merged["LD_LIBRARY_PATH"], "/home/ada/lib:/opt/lib:/run/driver/lib");
        assert_eq!(merged["PATH"], format!("/home/ada/py/bin:{DEFAULT_PATH}:/run/driver/bin"));
        assert_eq!((&*merged["NVIDIA_VISIBLE_DEVICES"], &*merged["PYTHONUSERBASE"]), ("void", "/home/ada/py"));
        let (loader, others) = of_loader(merged);
        assert_eq!(loader.keys().collect::<Vec<_>>(), ["LD_LIBRARY_PATH"]);
        assert!(others.contains_key("PATH"));
    }

    #[test]
    fn mounted_folders_may_be_named() {
        let mounts = [PathBuf::from("/scratch")];
        let session = map(&[("TMPDIR", "/scratch/7"), ("BASH_ENV", "/etc/x")]);
        let merged = merge(&container(&[]), &session, Place { mounts: &mounts, ..place() });
        assert_eq!((merged.get("TMPDIR").map(String::as_str), merged.get("BASH_ENV")), (Some("/scratch/7"), None));
        assert!(!merged.contains_key("LD_LIBRARY_PATH"));
    }

    #[test]
    fn commands() {
        let mut image = container(&[]);
        let home = Path::new("/home/ada");
        let run =
            |image: &Container, argv: &[&str]| command(image, &words(argv), home).map(|run| (run.argv, run.directory));
        assert_eq!(run(&image, &["ls", "-l"]), Some((words(&["ls", "-l"]), home.into())));
        let own = words(&["/workspace/./entry.sh", "-x", "python", "app.py"]);
        assert_eq!(run(&image, &[]), Some((own, "/workspace".into())));
        image.use_entrypoint = true;
        assert_eq!(run(&image, &["ls"]), Some((words(&["/workspace/./entry.sh", "-x", "ls"]), home.into())));
        image.entrypoint = words(&["tini", "--"]);
        assert_eq!(run(&image, &["ls"]), Some((words(&["tini", "--", "ls"]), home.into())));
        (image.entrypoint, image.cmd, image.working_dir) = (Vec::new(), Vec::new(), None);
        assert_eq!(run(&image, &[]), None);
    }
}
