//! Roots of images that tests make: one of a static busybox, and one with this machine's Python,
//! whose packages are mounted from an environment.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use lyceum::protocol::Container;

use crate::needs;

/// Copies the files of packages and of all that they require.
const INSTALL: &str = r"
import os, re, shutil, sys
from importlib import metadata
target, names, seen = sys.argv[1], list(sys.argv[2:]), set()
while names:
    name = re.sub(r'[-_.]+', '-', names.pop()).lower()
    if name in seen: continue
    seen.add(name)
    try: found = metadata.distribution(name)
    except metadata.PackageNotFoundError: continue
    for line in found.requires or []:
        if 'extra ==' not in line: names.append(re.match(r'[A-Za-z0-9._-]+', line).group())
    for file in found.files or []:
        source, place = str(file.locate()), os.path.normpath(os.path.join(target, str(file)))
        if not place.startswith(target) or not os.path.exists(source): continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy(source, place)
";

/// A root that belongs to root and that everybody can read.
pub struct Image {
    base: tempfile::TempDir,
}

impl Image {
    fn new() -> Self {
        let base = tempfile::Builder::new().prefix("ly-image-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let image = Self { base };
        for folder in ["usr/bin", "usr/lib", "etc", "home", "tmp", "proc", "dev", "sys", "run", "opt", "root"] {
            fs::create_dir_all(image.root().join(folder)).unwrap();
        }
        fs::set_permissions(image.root().join("root"), fs::Permissions::from_mode(0o700)).unwrap();
        for (target, name) in [("usr/bin", "bin"), ("usr/lib", "lib"), ("usr/lib", "lib64")] {
            symlink(target, image.root().join(name)).unwrap();
        }
        image.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nofimage:x:4242:4242::/:/bin/sh\n", 0o644);
        image.write("etc/os-release", "NAME=\"Made by a test\"\n", 0o644);
        image
    }

    /// A busybox with its usual names, and nothing else.
    pub fn busybox() -> Option<Self> {
        let busybox = Path::new("/bin/busybox");
        if !needs::met("busybox-static", busybox.exists())
            || !needs::met("bubblewrap", Path::new("/usr/bin/bwrap").exists())
        {
            return None;
        }
        let image = Self::new();
        fs::copy(busybox, image.root().join("usr/bin/busybox")).unwrap();
        let listed = Command::new(busybox).arg("--list").output().unwrap();
        for name in String::from_utf8(listed.stdout).unwrap().lines().filter(|name| *name != "busybox") {
            symlink("busybox", image.root().join("usr/bin").join(name)).unwrap();
        }
        Some(image)
    }

    /// A busybox with this machine's Python: an environment that stands on it works inside, where
    /// it is mounted at its own path.
    pub fn with_python(environment: &Path) -> Option<Self> {
        let image = Self::busybox()?;
        let python = fs::canonicalize(environment.join("bin/python")).unwrap();
        let folder = |name: &str| {
            let name = name.trim_end_matches('/');
            let copied = Command::new("cp").args(["-a", name]).arg(image.root().join(&name[1..])).status().unwrap();
            assert!(copied.success());
        };
        let series = python.file_name().unwrap().to_str().unwrap().to_owned();
        fs::create_dir_all(image.root().join("usr/lib")).unwrap();
        folder(&format!("/usr/lib/{series}"));
        fs::copy(&python, image.root().join("usr/bin").join(&series)).unwrap();
        for name in ["python3", "python"] {
            symlink(&series, image.root().join("usr/bin").join(name)).unwrap();
        }
        let mut objects = vec![python];
        for place in [
            PathBuf::from(format!("/usr/lib/{series}/lib-dynload")),
            environment.join("lib").join(&series).join("site-packages/zmq"),
        ] {
            let found = Command::new("find").arg(place).args(["-name", "*.so*"]).output().unwrap();
            objects.extend(String::from_utf8(found.stdout).unwrap().lines().map(PathBuf::from));
        }
        let linked = Command::new("ldd").args(&objects).output().unwrap();
        let linked = String::from_utf8(linked.stdout).unwrap();
        let words = linked.split_whitespace().filter(|word| word.starts_with("/lib") || word.starts_with("/usr/lib"));
        for library in words.map(|word| word.trim_end_matches(':')).collect::<BTreeSet<_>>() {
            let place = image.root().join("usr/lib").join(Path::new(library).file_name().unwrap());
            fs::copy(library, place).unwrap();
        }
        Some(image)
    }

    /// Installs packages of an environment, and what they need, as the system's own Python finds them.
    pub fn install(&self, environment: &Path, packages: &[&str]) {
        let site = self.root().join("usr/lib/python3/dist-packages");
        fs::create_dir_all(&site).unwrap();
        let copied = Command::new(environment.join("bin/python"))
            .args(["-c", INSTALL, site.to_str().unwrap()])
            .args(packages)
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        for folder in ["share/jupyter", "etc/jupyter"] {
            let place = self.root().join("usr").join(folder);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            if packages.contains(&"jupyterlab") && environment.join(folder).exists() {
                let copied = Command::new("cp").arg("-a").arg(environment.join(folder)).arg(place).status().unwrap();
                assert!(copied.success());
            }
        }
        if packages.contains(&"jupyterlab") {
            let script = "#!/usr/bin/python3\nfrom jupyterlab.labapp import main\nmain()\n";
            self.write("usr/bin/jupyter-lab", script, 0o755);
        }
    }

    /// Writes the image as `docker save` does, and returns the path of the archive.
    pub fn save(&self, name: &str) -> PathBuf {
        let folder = self.base().join(format!("{name}-saved"));
        fs::create_dir_all(&folder).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(&folder).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        run("tar", &["-cf", "layer.tar", "-C", self.root().to_str().unwrap(), "."]);
        let digest = run("sha256sum", &["layer.tar"]).split_whitespace().next().unwrap().to_owned();
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = serde_json::json!({
            "architecture": architecture, "os": "linux", "config": { "Env": ["PATH=/usr/bin", "OF_IMAGE=yes"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        });
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let tag = format!("{name}:1");
        let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"] }]);
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
        run("tar", &["-cf", "../image.tar", "manifest.json", "config.json", "layer.tar"]);
        let archive = self.base().join(format!("{name}.tar"));
        fs::rename(self.base().join("image.tar"), &archive).unwrap();
        fs::remove_dir_all(folder).unwrap();
        archive
    }

    pub fn root(&self) -> PathBuf {
        self.base.path().join("root")
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    pub fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.root().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn container(&self) -> Container {
        let value = serde_json::json!({
            "name": "tested", "digest": format!("sha256:{}", "0123abcd".repeat(8)), "root": self.root(),
            "env": { "PATH": "/usr/bin", "OF_IMAGE": "yes", "OMP_NUM_THREADS": "64" },
        });
        serde_json::from_value(value).unwrap()
    }
}
