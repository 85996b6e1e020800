//! A test of GPUs on the real Slurm: Slurm chooses the devices, and the job tells which they are.

use serde_json::json;

use super::{cluster::Cluster, whole};
use crate::{
    gpus::driver,
    idleness::open_directory,
    life::diagnostics::{check, finished, pretending, sound, started},
    needs::{met, variable},
};

#[tokio::test]
async fn gpus_of_a_node_are_tested() {
    if !met("a Python with JAX (LYCEUM_TEST_PYTHON)", variable("LYCEUM_TEST_PYTHON").is_some()) {
        return;
    }
    let folder = open_directory();
    let file = folder.path().join("state");
    std::fs::write(&file, sound().replace("remapped 1 0 0 0 0", "remapped 1 0 1 1 0")).unwrap();
    let library = driver(folder.path(), "slurm-tested", &format!("-DGPUS=2 -DSTATE=\"{}\"", file.display()));
    let more = [("LYCEUM_SCHEDULER__SLURM__NVML", library.to_str().unwrap())];
    let Some(cluster) = Cluster::start() else { return };
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    house.admin().allow(&house, &person, json!({ "gpus": -1, "jobs": -1 })).await;
    let roots = person.get(&house, "/files/roots").await;
    let home = roots["items"][0]["path"].as_str().unwrap_or_else(|| panic!("{roots}")).to_owned();
    let environment = pretending(std::path::Path::new(&home), 2, "");
    // The nodes of this cluster are too small for a test under load, which is said.
    let (status, said) = person.ask(&house, "POST", "/diagnostics", &json!({ "gpus": 2 })).await;
    assert!(status == 409 && said["detail"].as_str().is_some_and(|detail| detail.contains("10 GiB")), "{said}");
    let asked = json!({ "level": "quick", "gpus": 2, "environment": environment });
    let path = started(&house, &person, asked).await;
    let found = finished(&house, &person, &path).await;
    assert_eq!(found["verdict"], "warning", "{found}");
    assert_eq!(found["verdicts"].as_array().unwrap().len(), 2, "{found}");
    assert_eq!(check(&found, 0, "remapping").0, "pass");
    assert_eq!(
        check(&found, 1, "remapping"),
        ("warning".to_owned(), "A memory row is remapped at the next reset.".to_owned())
    );
    assert!(found["node"].as_str().is_some_and(|node| !node.is_empty()), "{found}");
}
