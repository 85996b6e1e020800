//! Kernels of JupyterLab that run in an image, while Lab itself runs on the host: a `kernel.json`
//! whose command is a runner. Messages travel through sockets of the run directory, which is
//! mounted inside. Interrupts are messages as well, because a signal would only reach the runner.

use std::{collections::BTreeMap, fs, io, path::Path};

use lyceum_wire::protocol::files;

/// Variables to set and to remove, so that a kernel of Lab's environment gets the container's.
pub fn difference<'a>(
    lab: &'a BTreeMap<String, String>,
    inside: &BTreeMap<String, String>,
) -> (Vec<(String, String)>, Vec<&'a str>) {
    let is_new = |(name, value): &(&String, &String)| lab.get(*name) != Some(*value);
    let set = inside.iter().filter(is_new).map(|(name, value)| (name.clone(), value.clone())).collect();
    let gone = lab.keys().filter(|name| !inside.contains_key(*name)).map(String::as_str);
    // A kernel ends when this process is not its parent any more; here that is the runner.
    (set, gone.chain(["JPY_PARENT_PID"]).collect())
}

/// Returns the command inside; `{connection_file}` is filled in by Jupyter.
pub fn command(python: &str) -> Vec<String> {
    [python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"].map(str::to_owned).into()
}

/// Writes the description of a kernel to where this session's Jupyter finds it.
pub fn offer(run_directory: &Path, name: &str, title: &str, argv: &[String]) -> io::Result<()> {
    let place = run_directory.join(files::JUPYTER).join("kernels").join(name);
    fs::create_dir_all(&place)?;
    let kernel = serde_json::json!({
        "argv": argv,
        "display_name": title,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": { "debugger": true },
        "kernel_protocol_version": "5.5",
    });
    fs::write(place.join("kernel.json"), kernel.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_on_the_command_line() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let lab = map(&[("JUPYTER_TOKEN", "s3cret"), ("PATH", "/env/bin"), ("PYTHONNOUSERSITE", "1")]);
        let inside = map(&[("JUPYTER_TOKEN", "s3cret"), ("PATH", "/opt/bin"), ("CUDA_HOME", "/cuda")]);
        let (set, unset) = difference(&lab, &inside);
        assert_eq!(set, [("CUDA_HOME", "/cuda"), ("PATH", "/opt/bin")].map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(unset, ["PYTHONNOUSERSITE", "JPY_PARENT_PID"]);
    }

    #[test]
    fn a_description_that_jupyter_reads() {
        let run = tempfile::tempdir().unwrap();
        offer(run.path(), "image-x-abababab", "PyTorch", &command("python3")).unwrap();
        let text = fs::read(run.path().join("jupyter/kernels/image-x-abababab/kernel.json")).unwrap();
        let kernel: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&kernel["interrupt_mode"], &kernel["argv"][5]), (&"message".into(), &"{connection_file}".into()));
    }
}
