//! What a container is made of, as data: the image's root and everything of the host that is
//! mounted into it. The runners turn a [`Plan`] into their own arguments.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use lyceum_wire::protocol::{
    Container,
    container::{Runner, Writable},
};

use super::{
    accounts::{self, Account},
    bwrap, cdi,
    root::{self, Step},
};

/// Everything that a runner needs to know beside the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The unpacked image, as the runner sees it.
    pub root: PathBuf,
    pub is_writable: bool,
    pub steps: Vec<Step>,
    pub uid: u32,
    pub gid: u32,
    /// Size of `/dev/shm` (bytes); what lies in it counts as memory of the workload.
    pub shared_memory: i64,
    /// In the order in which they are mounted.
    pub mounts: Vec<Mount>,
    /// Symbolic links: target, path inside.
    pub links: Vec<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub from: PathBuf,
    pub to: PathBuf,
    pub access: Access,
    pub is_folder: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
    Device,
}

/// What of the host a container is made with.
#[derive(Clone, Debug)]
pub struct Host<'a> {
    pub account: &'a Account,
    pub home: &'a Path,
    pub shell: &'a str,
    pub run_directory: &'a Path,
    pub working_directory: &'a Path,
    /// A folder of the session's own for `/tmp` and `/var/tmp`.
    pub temporary: &'a Path,
    /// Where generated files are written.
    pub files: &'a Path,
    /// Memory limit of the workload (bytes).
    pub memory: i64,
}

/// Folders that cannot be replaced by one of the host.
const SYSTEMS: [&str; 12] =
    ["/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"];

/// Returns the plan for an image whose root is at `root` for the runner and at `view` for this
/// process, if it can look inside. Writes the files that are generated. The error is a sentence for
/// the user.
pub fn make(
    container: &Container,
    root: &Path,
    view: Option<&Path>,
    host: &Host<'_>,
    gpus: cdi::Edition,
) -> Result<Plan, String> {
    let mut mounts = folders(container, host)?;
    let fresh = |name: &str, to: &str| Mount {
        from: host.temporary.join(name),
        to: to.into(),
        access: Access::ReadWrite,
        is_folder: true,
    };
    mounts.extend([fresh("tmp", "/tmp"), fresh("var-tmp", "/var/tmp")]);
    mounts.extend(files(view, host)?);
    let of_driver = |access| move |(from, to): (PathBuf, PathBuf)| Mount { is_folder: from.is_dir(), from, to, access };
    mounts.extend(gpus.mounts.into_iter().map(of_driver(Access::ReadOnly)));
    mounts.extend(gpus.devices.into_iter().map(of_driver(Access::Device)));
    // What contains another comes first.
    mounts.sort_by(|one, other| one.to.cmp(&other.to));
    mounts.dedup_by(|one, other| one.to == other.to);
    let mut plan = Plan {
        root: root.to_owned(),
        is_writable: matches!(container.writable, Writable::Keep(_)),
        steps: Vec::new(),
        uid: host.account.uid,
        gid: host.account.gid,
        shared_memory: host.memory.max(1 << 20),
        mounts,
        links: gpus.links,
    };
    if let (Some(view), false, Runner::Bwrap) = (view, plan.is_writable, container.runner) {
        let (folders, files) = bwrap::mount_points(&plan);
        let (folders, files): (BTreeSet<_>, BTreeSet<_>) = (folders.into_iter().collect(), files.into_iter().collect());
        plan.steps = root::expand(view, &folders, &files)
            .map_err(|error| format!("The image ‘{}’ cannot be read: {error}. Pull it again.", container.name))?;
    }
    Ok(plan)
}

/// Returns the folders of the host that the program reaches at their own paths.
pub fn roots(container: &Container, host: &Host<'_>) -> Vec<PathBuf> {
    let all = [host.home, host.run_directory, host.working_directory].into_iter();
    let mut roots: Vec<PathBuf> = Vec::new();
    for path in all.chain(container.mounts.iter().map(PathBuf::as_path)) {
        let real = fs::canonicalize(path).ok();
        // A program that asks for the real path finds its files there as well.
        for path in std::iter::once(path.to_owned()).chain(real) {
            if !roots.iter().any(|known| path.starts_with(known)) {
                roots.push(path);
            }
        }
    }
    roots
}

fn folders(container: &Container, host: &Host<'_>) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for path in roots(container, host) {
        let is_systems = SYSTEMS.iter().any(|system| path == Path::new(system))
            || ["/dev", "/proc", "/sys"].iter().any(|system| path.starts_with(system));
        if is_systems {
            return Err(format!(
                "{} cannot be used in an image, because it would replace a folder of the system: choose another folder",
                path.display()
            ));
        }
        if !path.is_dir() {
            return Err(format!(
                "{} does not exist on this node, and the image needs it: ask your administrator",
                path.display()
            ));
        }
        mounts.push(Mount { from: path.clone(), to: path, access: Access::ReadWrite, is_folder: true });
    }
    Ok(mounts)
}

/// Adds the generated files, and the host's files for name resolution.
fn files(view: Option<&Path>, host: &Host<'_>) -> Result<Vec<Mount>, String> {
    let of_image = |name: &str| view.map(|view| root::read_text(view, Path::new(name))).unwrap_or_default();
    let texts = [
        ("passwd", accounts::passwd(host.account, host.home, host.shell, &of_image("/etc/passwd"))),
        ("group", accounts::group(host.account, &of_image("/etc/group"))),
    ];
    let mut mounts = Vec::new();
    let read_only = |from: PathBuf, name: &str| Mount {
        from,
        to: Path::new("/etc").join(name),
        access: Access::ReadOnly,
        is_folder: false,
    };
    for (name, text) in texts {
        let path = host.files.join(name);
        fs::create_dir_all(host.files)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        mounts.push(read_only(path, name));
    }
    for name in ["hosts", "resolv.conf"] {
        // Often a link to what another service writes.
        if let Ok(path) = fs::canonicalize(Path::new("/etc").join(name)) {
            mounts.push(read_only(path, name));
        }
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_an_empty_image() {
        let base = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::canonicalize(path).unwrap()
        };
        let [image, home, run, files, data] = ["image", "home", "run", "files", "data"].map(folder);
        let account = Account { name: "ada".to_owned(), uid: 1000, gid: 1000, groups: Vec::new() };
        let host = Host {
            account: &account,
            home: &home,
            shell: "/bin/sh",
            run_directory: &run,
            working_directory: &home.join("work"),
            temporary: base.path(),
            files: &files,
            memory: 1 << 30,
        };
        let value = serde_json::json!({
            "name": "x", "digest": format!("sha256:{}", "ab".repeat(32)), "root": image, "mounts": [data],
        });
        let mut container: Container = serde_json::from_value(value).unwrap();
        let made = make(&container, &image, Some(&image), &host, cdi::Edition::default()).unwrap();
        let inside: Vec<_> = made.mounts.iter().map(|mount| mount.to.clone()).collect();
        for path in [&home, &run, &data, Path::new("/tmp"), Path::new("/etc/passwd"), Path::new("/etc/group")] {
            assert!(inside.contains(&path.to_owned()), "{} in {inside:?}", path.display());
        }
        assert_eq!(made.steps, [Step::Empty("/".into())], "nothing of the image is left to mount");
        assert!(fs::read_to_string(files.join("passwd")).unwrap().starts_with("ada:x:1000:1000::"));
        assert_eq!(made.shared_memory, 1 << 30);

        container.mounts.push("/usr".into());
        let error = make(&container, &image, Some(&image), &host, cdi::Edition::default()).unwrap_err();
        assert!(error.contains("/usr cannot be used"), "{error}");
        container.mounts = vec![data.join("none")];
        let error = make(&container, &image, Some(&image), &host, cdi::Edition::default()).unwrap_err();
        assert!(error.contains("none does not exist"), "{error}");
    }
}
