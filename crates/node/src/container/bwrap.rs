//! The arguments of bubblewrap, as a pure function of a [`Plan`]. The network and the process table
//! are the host's, because the session's limits, signals and sockets are; user, mount, IPC and host
//! name spaces are new. No variable is on the command line but those of the loader and the image.

use std::path::{Path, PathBuf};

use super::{
    environment::Command,
    plan::{Access, Plan},
    root::Step,
};

/// The directories that are empty inside and live in memory.
const IN_MEMORY: [&str; 1] = ["/run"];

/// Variables that are set or removed on the command line rather than in the runner's environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variables<'a> {
    pub set: &'a [(String, String)],
    pub unset: &'a [&'a str],
}

/// Returns the arguments behind the name of the program.
pub fn arguments(plan: &Plan, variables: Variables<'_>, command: &Command, ends_with_parent: bool) -> Vec<String> {
    let mut line = Line(Vec::new());
    line.words(["--unshare-user", "--unshare-ipc", "--unshare-uts"]);
    line.words(["--uid", &plan.uid.to_string(), "--gid", &plan.gid.to_string()]);
    // Only root's would be kept, and root is what the holder of an image is in its own name space.
    line.words(["--cap-drop", "ALL"]);
    if ends_with_parent {
        line.words(["--die-with-parent"]);
    }
    line.paths(if plan.is_writable { "--bind" } else { "--ro-bind" }, &plan.root, Path::new("/"));
    for step in &plan.steps {
        match step {
            Step::Empty(path) => line.path("--tmpfs", path),
            Step::Own(path) => line.paths("--ro-bind", &plan.root.join(path.strip_prefix("/").unwrap_or(path)), path),
            Step::Link { target, path } => line.paths("--symlink", target, path),
        }
    }
    line.words(["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys"]);
    line.words(["--size", &plan.shared_memory.to_string(), "--perms", "1777", "--tmpfs", "/dev/shm"]);
    for path in IN_MEMORY {
        line.words(["--tmpfs", path]);
    }
    for mount in &plan.mounts {
        let option = match mount.access {
            Access::ReadOnly => "--ro-bind",
            Access::ReadWrite => "--bind",
            Access::Device => "--dev-bind",
        };
        line.paths(option, &mount.from, &mount.to);
    }
    for (target, path) in &plan.links {
        line.paths("--symlink", target, path);
    }
    // Only now are all mount points there.
    for step in &plan.steps {
        if let Step::Empty(path) = step {
            line.path("--remount-ro", path);
        }
    }
    for name in variables.unset {
        line.words(["--unsetenv", name]);
    }
    for (name, value) in variables.set {
        line.words(["--setenv", name, value]);
    }
    line.path("--chdir", &command.directory);
    line.words(["--"]);
    line.0.extend(command.argv.iter().cloned());
    line.0
}

/// The folders that must exist in the root.
pub fn mount_points(plan: &Plan) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let fixed = ["/proc", "/dev", "/sys"].into_iter().chain(IN_MEMORY).map(PathBuf::from);
    let folders = fixed.chain(plan.mounts.iter().filter(|mount| mount.is_folder).map(|mount| mount.to.clone()));
    let files = plan.mounts.iter().filter(|mount| !mount.is_folder).map(|mount| mount.to.clone());
    (folders.collect(), files.filter(|file| !file.starts_with("/dev")).collect())
}

struct Line(Vec<String>);

impl Line {
    fn words<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(str::to_owned));
    }

    fn path(&mut self, option: &str, path: &Path) {
        self.words([option, &path.to_string_lossy()]);
    }

    fn paths(&mut self, option: &str, from: &Path, to: &Path) {
        self.words([option, &from.to_string_lossy(), &to.to_string_lossy()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::plan::Mount;

    pub fn plan() -> Plan {
        let mount =
            |from: &str, to: &str, access, is_folder| Mount { from: from.into(), to: to.into(), access, is_folder };
        Plan {
            root: "/images/x/root".into(),
            is_writable: false,
            steps: vec![Step::Empty("/home".into()), Step::Own("/home/shared".into())],
            uid: 1000,
            gid: 1001,
            shared_memory: 4096,
            mounts: vec![
                mount("/tmp/lyceum-7/tmp", "/tmp", Access::ReadWrite, true),
                mount("/home/ada", "/home/ada", Access::ReadWrite, true),
                mount("/run/x/passwd", "/etc/passwd", Access::ReadOnly, false),
                mount("/dev/nvidia0", "/dev/nvidia0", Access::Device, false),
            ],
            links: vec![("libcuda.so.550".into(), "/run/lyceum-driver/lib/libcuda.so.1".into())],
        }
    }

    #[test]
    fn everything_is_in_its_order() {
        let set = [("LD_LIBRARY_PATH".to_owned(), "/opt/lib".to_owned())];
        let variables = Variables { set: &set, unset: &["JPY_PARENT_PID"] };
        let command = Command { argv: vec!["--odd".to_owned(), "x".to_owned()], directory: "/home/ada".into() };
        let words = arguments(&plan(), variables, &command, false);
        let wanted = "--unshare-user --unshare-ipc --unshare-uts --uid 1000 --gid 1001 --cap-drop ALL \
                      --ro-bind /images/x/root / --tmpfs /home --ro-bind /images/x/root/home/shared /home/shared \
                      --proc /proc --dev /dev --ro-bind /sys /sys --size 4096 --perms 1777 --tmpfs /dev/shm \
                      --tmpfs /run --bind /tmp/lyceum-7/tmp /tmp --bind /home/ada /home/ada \
                      --ro-bind /run/x/passwd /etc/passwd --dev-bind /dev/nvidia0 /dev/nvidia0 \
                      --symlink libcuda.so.550 /run/lyceum-driver/lib/libcuda.so.1 --remount-ro /home --unsetenv JPY_PARENT_PID \
                      --setenv LD_LIBRARY_PATH /opt/lib --chdir /home/ada -- --odd x";
        assert_eq!(words.join(" "), wanted);
        let kept = Plan { is_writable: true, steps: Vec::new(), ..plan() };
        let words = arguments(&kept, Variables::default(), &command, true).join(" ");
        assert!(words.contains("--die-with-parent --bind /images/x/root / --proc"), "{words}");
    }

    #[test]
    fn what_has_to_exist() {
        let (folders, files) = mount_points(&plan());
        let folders: Vec<_> = folders.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(folders, ["/proc", "/dev", "/sys", "/run", "/tmp", "/home/ada"]);
        assert_eq!(files, [PathBuf::from("/etc/passwd")]);
    }
}
