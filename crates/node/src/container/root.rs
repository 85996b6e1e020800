//! The root of a container, made from a read-only image. Where a mount point is
//! missing in the image, the nearest folder that exists is replaced by an empty one with all its
//! entries mounted one by one. So neither the image's owner nor an overlay file system is needed.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::AsRawFd,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{Access, CWD, Mode, OFlags, ResolveFlags, access, openat2};

/// One step after the image itself is mounted at `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Puts an empty folder over this one.
    Empty(PathBuf),
    /// Mounts the image's own file or folder of this path.
    Own(PathBuf),
    /// Makes a symbolic link with this target.
    Link { target: PathBuf, path: PathBuf },
}

/// Returns the steps that give each of `folders` and `files` a mount point. `image` is the folder
/// of the unpacked image, and all paths are absolute inside the container.
pub fn expand(image: &Path, folders: &BTreeSet<PathBuf>, files: &BTreeSet<PathBuf>) -> io::Result<Vec<Step>> {
    let points: BTreeSet<&PathBuf> = folders.iter().chain(files).collect();
    let mut replaced = BTreeSet::new();
    for point in &points {
        replaced.extend(lacking(image, point, files.contains(*point), &points)?);
    }
    let mut steps = Vec::new();
    for folder in &replaced {
        steps.push(Step::Empty(folder.clone()));
        let mut names: Vec<_> = fs::read_dir(below(image, folder))?.collect::<Result<_, _>>()?;
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            let is_below = points.iter().any(|point| point.starts_with(&path));
            if points.contains(&path) || replaced.contains(&path) || kind.is_symlink() && is_below {
                continue;
            }
            if kind.is_symlink() {
                steps.push(Step::Link { target: fs::read_link(entry.path())?, path });
            } else if kind.is_dir() || kind.is_file() {
                steps.push(Step::Own(path));
            }
        }
    }
    Ok(steps)
}

/// Returns the folder that has to be replaced for a mount point, if any.
fn lacking(image: &Path, point: &Path, is_file: bool, points: &BTreeSet<&PathBuf>) -> io::Result<Option<PathBuf>> {
    let mut folder = PathBuf::from("/");
    let names: Vec<_> = point.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    for (at, name) in names.iter().enumerate() {
        // What is mounted there has room for more.
        if folder != Path::new("/") && points.contains(&folder) {
            return Ok(None);
        }
        let next = folder.join(name);
        let is_last = at + 1 == names.len();
        let fits = match fs::symlink_metadata(below(image, &next)) {
            Ok(found) if is_last && is_file => found.is_file(),
            Ok(found) => found.is_dir(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !fits {
            return Ok(Some(folder));
        }
        folder = next;
    }
    Ok(None)
}

fn below(image: &Path, path: &Path) -> PathBuf {
    image.join(path.strip_prefix("/").unwrap_or(path))
}

/// Opens a path as a process inside the image would resolve it, and returns a path to it.
fn resolve(image: &Path, path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let root = rustix::fs::openat(CWD, image, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)?)
}

/// Returns whether the image has a file of this path that can be run.
pub fn can_be_run(image: &Path, path: &Path) -> bool {
    let Ok(file) = resolve(image, path) else { return false };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::RegularFile);
    is_file && access(format!("/proc/self/fd/{}", file.as_raw_fd()), Access::EXEC_OK).is_ok()
}

/// The most that is read of an image's own `passwd` or `group` (bytes).
const MAX_TEXT: usize = 256 * 1024;

/// Reads a text file of the image; empty where there is none.
pub fn read_text(image: &Path, path: &Path) -> String {
    let read = || {
        let root = rustix::fs::openat(CWD, image, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::File::from(openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?);
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, MAX_TEXT as u64), &mut text)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    fn image() -> tempfile::TempDir {
        let image = tempfile::tempdir().unwrap();
        for folder in ["usr/bin", "etc", "home", "var/lib", "run", "data/set"] {
            fs::create_dir_all(image.path().join(folder)).unwrap();
        }
        fs::write(image.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
        fs::write(image.path().join("usr/bin/sh"), "").unwrap();
        fs::set_permissions(image.path().join("usr/bin/sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("usr/bin", image.path().join("bin")).unwrap();
        symlink("/run", image.path().join("var/run")).unwrap();
        symlink("/run/resolv.conf", image.path().join("etc/resolv.conf")).unwrap();
        image
    }

    fn own(path: &str) -> Step {
        Step::Own(path.into())
    }

    #[test]
    fn what_exists_is_left_as_it_is() {
        let image = image();
        let steps =
            expand(image.path(), &paths(&["/run", "/run/lyceum/x", "/home"]), &paths(&["/etc/passwd"])).unwrap();
        assert_eq!(steps, []);
    }

    #[test]
    fn the_nearest_folder_gets_what_is_missing() {
        let image = image();
        let steps = expand(image.path(), &paths(&["/home/ada", "/data/projects/deep"]), &paths(&[])).unwrap();
        assert_eq!(steps, [Step::Empty("/data".into()), own("/data/set"), Step::Empty("/home".into())]);

        let steps = expand(image.path(), &paths(&["/srv/x"]), &paths(&[])).unwrap();
        let link = Step::Link { target: "usr/bin".into(), path: "/bin".into() };
        let all = [Step::Empty("/".into()), link, own("/data"), own("/etc"), own("/home"), own("/run"), own("/usr")];
        assert_eq!(steps, [&all[..], &[own("/var")]].concat());
    }

    #[test]
    fn links_give_way_to_mount_points() {
        let image = image();
        let steps = expand(image.path(), &paths(&[]), &paths(&["/etc/passwd", "/etc/resolv.conf"])).unwrap();
        assert_eq!(steps, [Step::Empty("/etc".into())], "both files are mounted over it");
        let steps = expand(image.path(), &paths(&["/var/run/x"]), &paths(&[])).unwrap();
        assert_eq!(steps, [Step::Empty("/var".into()), own("/var/lib")]);
        let steps = expand(image.path(), &paths(&["/", "/bin/x"]), &paths(&[])).unwrap();
        assert_eq!(steps[0], Step::Empty("/".into()));
        assert!(!steps.iter().any(|step| matches!(step, Step::Link { .. })), "{steps:?}");
    }

    #[test]
    fn paths_are_resolved_inside_the_image() {
        let image = image();
        assert!(can_be_run(image.path(), Path::new("/bin/sh")));
        assert!(!can_be_run(image.path(), Path::new("/etc/passwd")));
        assert!(!can_be_run(image.path(), Path::new("/usr/bin")));
        symlink("/etc", image.path().join("usr/etc")).unwrap();
        assert_eq!(read_text(image.path(), Path::new("/usr/etc/passwd")), "root:x:0:0::/root:/bin/sh\n");
        symlink("../../../../../etc/hostname", image.path().join("outside")).unwrap();
        assert_eq!(read_text(image.path(), Path::new("/outside")), "", "the host's file is not read");
    }
}
