//! The built-in networks as code: each program, built by the trainer as a custom network, is the network
//! that it was taken from. Python is `LYCEUM_TEST_PYTHON`'s, which has Keras.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use lyceum::models::{network_code, networks, tasks};

use crate::needs::{met, variable};

/// Builds each network by its name and by its program, and prints what differs.
const SCRIPT: &str = r#"
import json, pathlib, sys
from trainer import compiled
compiled.keep()
from trainer import networks
from trainer.data import Data
from trainer.pixels import Shape

def built(task, network):
    data = Data(task, ["a", "b", "c"], Shape(64, 64, 3, "squash"), {}, mean=[0.0] * 3, deviation=[1.0] * 3)
    model = networks.build({"network": network, "normalisation": "none", "task": task}, data)
    return [(type(layer).__name__, tuple(layer.output.shape), layer.count_params()) for layer in model.layers]

for name, task in json.loads(sys.argv[2]):
    named = built(task, {"name": name, "width": 1})
    custom = built(task, {"file": str(pathlib.Path(sys.argv[1]) / f"{name}.py")})
    print(name, task, "same" if named == custom else f"{len(named)} and {len(custom)} layers")
"#;

#[test]
fn a_network_as_code_is_the_network() {
    let python = variable("LYCEUM_TEST_PYTHON");
    if !met("a Python with Keras (LYCEUM_TEST_PYTHON)", python.is_some()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for task in ["classification", "segmentation", "detection"].iter().flat_map(|kind| tasks(kind)) {
        for name in networks(task) {
            // One task each, but for those that do several things.
            if wanted.iter().all(|(known, _)| *known != name) {
                wanted.push((name, task));
                let file = folder.path().join(format!("{name}.py"));
                fs::write(file, network_code::of(name).unwrap()).unwrap();
            }
        }
    }
    assert_eq!(wanted.len(), 13, "{wanted:?}");
    let list = serde_json::to_string(&wanted).unwrap();
    // What earlier runs have compiled, most of it to draw the first weights, is in the folder `lyceum/jax` of this one.
    let kept = variable("LYCEUM_TEST_COMPILED").map(PathBuf::from);
    let cache = kept.as_deref().and_then(|kept| kept.ancestors().nth(2)).unwrap_or(folder.path());
    let run = Command::new(python.unwrap())
        .args(["-c", SCRIPT])
        .arg(folder.path())
        .arg(list)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .env("KERAS_BACKEND", "jax")
        .env("XDG_CACHE_HOME", cache)
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    let other: Vec<&str> = said.lines().filter(|line| !line.ends_with(" same")).collect();
    assert_eq!((said.lines().count(), other), (13, Vec::new()), "{said}");
}
