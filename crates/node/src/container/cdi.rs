//! GPUs by the Container Device Interface: the driver's own description of device files, libraries
//! and variables, in JSON or YAML. Only the session's GPUs are taken from it. Its hooks are not
//! run: the driver's libraries get a folder of their own with the links that `ldconfig` would make,
//! and `LD_LIBRARY_PATH` names it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use lyceum_model::Gpu;
use serde::Deserialize;

/// Where descriptions are looked for; the later folder wins.
pub const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Where the driver is found inside. `/run` is writable there, so no mount point is missing.
pub const LIBRARIES: &str = "/run/lyceum-driver/lib";
pub const PROGRAMS: &str = "/run/lyceum-driver/bin";

/// The most that is read of a description (bytes).
const MAX_SPEC: u64 = 4 * 1024 * 1024;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    kind: String,
    devices: Vec<Device>,
    container_edits: Edits,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<Node>,
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Node {
    path: PathBuf,
    host_path: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
}

/// What a container gets for its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// Device files: on the host, inside.
    pub devices: Vec<(PathBuf, PathBuf)>,
    /// Read-only files and folders: on the host, inside.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Symbolic links: target, path inside.
    pub links: Vec<(PathBuf, PathBuf)>,
    pub env: Vec<(String, String)>,
}

/// Returns what opens these GPUs inside a container. The error is a sentence for the user.
pub fn of_gpus(gpus: &[Gpu], folders: &[PathBuf]) -> Result<Edition, String> {
    let mut edition = Edition::default();
    if gpus.is_empty() {
        return Ok(edition);
    }
    let specs = read_all(folders)?;
    let mut used: Vec<&Spec> = Vec::new();
    for gpu in gpus {
        let (spec, device) = find(&specs, gpu).ok_or_else(|| {
            format!(
                "GPU {} ({}) is not described for containers in {}. Ask your administrator to run `nvidia-ctk cdi \
                 generate --output=/etc/cdi/nvidia.yaml` on this node.",
                gpu.label(),
                gpu.uuid,
                enumerate(folders)
            )
        })?;
        if !used.iter().any(|known| std::ptr::eq(*known, spec)) {
            used.push(spec);
        }
        edition.add(&device.container_edits);
    }
    for spec in used {
        edition.add(&spec.container_edits);
    }
    Ok(edition)
}

/// Returns the GPUs that Slurm has given to a job, by its variable `SLURM_JOB_GPUS`.
pub fn of_slurm(text: &str) -> Vec<Gpu> {
    let numbers = text.split(',').filter_map(|number| number.trim().parse().ok());
    numbers.map(|index| Gpu { index, slice: None, uuid: String::new(), model: String::new() }).collect()
}

/// Returns the names of all GPUs that are described.
pub fn names(folders: &[PathBuf]) -> Result<Vec<String>, String> {
    let specs = read_all(folders)?;
    Ok(gpu_devices(&specs).map(|(_, device)| device.name.clone()).filter(|name| name != "all").collect())
}

fn enumerate(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or ")
}

fn gpu_devices(specs: &[Spec]) -> impl Iterator<Item = (&Spec, &Device)> {
    let is_of_gpus = |spec: &&Spec| spec.kind.rsplit('/').next() == Some("gpu");
    specs.iter().filter(is_of_gpus).flat_map(|spec| spec.devices.iter().map(move |device| (spec, device)))
}

/// By UUID before number, since numbers change; the later description wins.
fn find<'a>(specs: &'a [Spec], gpu: &Gpu) -> Option<(&'a Spec, &'a Device)> {
    let number = gpu.slice.map_or_else(|| gpu.index.to_string(), |slice| format!("{}:{slice}", gpu.index));
    [gpu.uuid.as_str(), &number]
        .into_iter()
        .filter(|name| !name.is_empty())
        .find_map(|name| gpu_devices(specs).filter(|(_, device)| device.name == name).last())
}

fn read_all(folders: &[PathBuf]) -> Result<Vec<Spec>, String> {
    let mut specs = Vec::new();
    for folder in folders {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let is_json = match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => true,
                Some("yaml" | "yml") => false,
                _ => continue,
            };
            let fault = |why: String| {
                format!("The description of GPUs {} cannot be used: {why}. Ask your administrator.", path.display())
            };
            let text = read(&path).map_err(|error| fault(error.to_string()))?;
            let spec = if is_json {
                serde_json::from_str(&text).map_err(|error| error.to_string())
            } else {
                serde_saphyr::from_str(&text).map_err(|error| error.to_string())
            };
            specs.push(spec.map_err(fault)?);
        }
    }
    Ok(specs)
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(fs::File::open(path)?, MAX_SPEC), &mut text)?;
    Ok(text)
}

impl Edition {
    fn add(&mut self, edits: &Edits) {
        for text in &edits.env {
            if let Some((name, value)) = text.split_once('=') {
                push(&mut self.env, (name.to_owned(), value.to_owned()));
            }
        }
        for node in &edits.device_nodes {
            let on_host = node.host_path.clone().unwrap_or_else(|| node.path.clone());
            if node.path.starts_with("/dev") {
                push(&mut self.devices, (on_host, node.path.clone()));
            }
        }
        for Mount { host_path, container_path } in &edits.mounts {
            self.mount(host_path, container_path);
        }
    }

    /// Libraries and programs go into the driver's own folders; sockets and files below `/run` keep
    /// their place. Settings of graphics libraries are left out, because the image is read-only.
    fn mount(&mut self, on_host: &Path, inside: &Path) {
        let (Some(name), Some(folder)) = (inside.file_name().and_then(|name| name.to_str()), inside.parent()) else {
            return;
        };
        let inside_of = |root: &str| folder.starts_with(root);
        if name.starts_with("lib") && name.contains(".so") {
            push(&mut self.mounts, (on_host.to_owned(), Path::new(LIBRARIES).join(name)));
            for link in links_to(on_host) {
                push(&mut self.links, (PathBuf::from(name), Path::new(LIBRARIES).join(link)));
            }
        } else if folder.file_name().is_some_and(|folder| folder == "bin" || folder == "sbin") {
            push(&mut self.mounts, (on_host.to_owned(), Path::new(PROGRAMS).join(name)));
        } else if let Ok(rest) = inside.strip_prefix("/var/run") {
            push(&mut self.mounts, (on_host.to_owned(), Path::new("/run").join(rest)));
        } else if inside_of("/run") {
            push(&mut self.mounts, (on_host.to_owned(), inside.to_owned()));
        }
    }
}

fn push<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// The names under which the host's loader finds a library: links beside it that lead to it, such
/// as `libcuda.so.1` and `libcuda.so`.
fn links_to(library: &Path) -> Vec<String> {
    let Some(folder) = library.parent() else { return Vec::new() };
    let stem = library.file_name().and_then(|name| name.to_str()).and_then(|name| name.split(".so").next());
    let Some(stem) = stem.map(|stem| format!("{stem}.so")) else { return Vec::new() };
    let Ok(real) = fs::canonicalize(library) else { return Vec::new() };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&stem) && fs::canonicalize(folder.join(name)).is_ok_and(|found| found == real))
        .collect();
    names.sort();
    names
}

/// Returns the variables of several sources as a map, the later ones winning.
pub fn variables(edition: &Edition) -> BTreeMap<String, String> {
    edition.env.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// As `nvidia-ctk cdi generate --device-name-strategy=index --device-name-strategy=uuid` writes it, shortened.
    fn yaml(libraries: &Path) -> String {
        format!(
            r#"---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/x86_64-linux-gnu]
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: {libraries}/libcuda.so.550.54.15
    hostPath: {libraries}/libcuda.so.550.54.15
    options: [ro, nosuid, nodev, rbind, rprivate]
  - containerPath: /usr/bin/nvidia-smi
    hostPath: /usr/bin/nvidia-smi
    options: [ro, nosuid, nodev, rbind, rprivate]
  - containerPath: /var/run/nvidia-persistenced/socket
    hostPath: /run/nvidia-persistenced/socket
  - containerPath: /etc/vulkan/icd.d/nvidia_icd.json
    hostPath: /etc/vulkan/icd.d/nvidia_icd.json
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/renderD128
      hostPath: /dev/dri/renderD129
- name: GPU-aaaa
  containerEdits:
    deviceNodes: [{{path: /dev/nvidia0}}]
- name: "1"
  containerEdits:
    deviceNodes: [{{path: /dev/nvidia1}}]
- name: all
  containerEdits:
    deviceNodes: [{{path: /dev/nvidia0}}, {{path: /dev/nvidia1}}]
"#,
            libraries = libraries.display()
        )
    }

    fn gpu(index: i64, uuid: &str) -> Gpu {
        Gpu { index, slice: None, uuid: uuid.to_owned(), model: "A100".to_owned() }
    }

    fn pair(one: &str, two: &str) -> (PathBuf, PathBuf) {
        (one.into(), two.into())
    }

    fn world() -> (tempfile::TempDir, Vec<PathBuf>) {
        let base = tempfile::tempdir().unwrap();
        let library = base.path().join("libcuda.so.550.54.15");
        fs::write(&library, "").unwrap();
        symlink("libcuda.so.550.54.15", base.path().join("libcuda.so.1")).unwrap();
        symlink("libcuda.so.1", base.path().join("libcuda.so")).unwrap();
        symlink("elsewhere", base.path().join("libcuda.so.2")).unwrap();
        let folders: Vec<PathBuf> = ["etc", "run"].map(|name| base.path().join(name)).into();
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        fs::write(folders[0].join("nvidia.yaml"), yaml(base.path())).unwrap();
        fs::write(folders[0].join("README"), "no description").unwrap();
        (base, folders)
    }

    #[test]
    fn only_the_sessions_gpus_are_opened() {
        let (base, folders) = world();
        let edition = of_gpus(&[gpu(1, "GPU-bbbb")], &folders).unwrap();
        let control = [pair("/dev/nvidiactl", "/dev/nvidiactl"), pair("/dev/nvidia-uvm", "/dev/nvidia-uvm")];
        assert_eq!(edition.devices, [&[pair("/dev/nvidia1", "/dev/nvidia1")], &control[..]].concat());
        let library = base.path().join("libcuda.so.550.54.15");
        assert_eq!(
            edition.mounts,
            [
                (library, Path::new(LIBRARIES).join("libcuda.so.550.54.15")),
                pair("/usr/bin/nvidia-smi", "/run/lyceum-driver/bin/nvidia-smi"),
                pair("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket"),
            ]
        );
        let link = |name: &str| (PathBuf::from("libcuda.so.550.54.15"), Path::new(LIBRARIES).join(name));
        assert_eq!(edition.links, [link("libcuda.so"), link("libcuda.so.1")]);
        assert_eq!(variables(&edition)["NVIDIA_VISIBLE_DEVICES"], "void");

        let both = of_gpus(&[gpu(0, ""), gpu(1, "")], &folders).unwrap();
        assert!(both.devices.contains(&pair("/dev/dri/renderD129", "/dev/dri/renderD128")), "{both:?}");
        assert_eq!(both.devices.len(), 5, "{both:?}");
        assert_eq!(of_gpus(&[], &folders).unwrap(), Edition::default(), "none: not even the control device");
    }

    #[test]
    fn the_uuid_counts_before_the_number() {
        let (_base, folders) = world();
        let edition = of_gpus(&[gpu(1, "GPU-aaaa")], &folders).unwrap();
        assert_eq!(edition.devices[0], pair("/dev/nvidia0", "/dev/nvidia0"));
        let json = r#"{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
            "devices": [{"name": "GPU-aaaa", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia7"}]}}]}"#;
        fs::write(folders[1].join("nvidia.json"), json).unwrap();
        let edition = of_gpus(&[gpu(1, "GPU-aaaa")], &folders).unwrap();
        assert_eq!(edition.devices, [pair("/dev/nvidia7", "/dev/nvidia7")], "the later folder wins");
        assert_eq!(names(&folders).unwrap(), ["0", "GPU-aaaa", "1", "GPU-aaaa"]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let (_base, folders) = world();
        let error = of_gpus(&[gpu(2, "GPU-cccc")], &folders).unwrap_err();
        assert!(error.contains("GPU 2 (GPU-cccc)") && error.contains("nvidia-ctk cdi generate"), "{error}");
        fs::write(folders[1].join("broken.json"), "{").unwrap();
        let error = of_gpus(&[gpu(0, "")], &folders).unwrap_err();
        assert!(error.contains("broken.json"), "{error}");
        fs::write(folders[1].join("broken.json"), "{\"devices\": 7}").unwrap();
        assert!(of_gpus(&[gpu(0, "")], &folders).is_err());
    }

    #[test]
    fn slurm_names_gpus_by_number() {
        assert_eq!(of_slurm("0, 3").iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [0, 3]);
        assert!(of_slurm("").is_empty());
    }
}
