//! Container images on a cluster: pulled once by the portal into a folder that all nodes see, and run by the agent on a
//! node, in a session, a job, and a script that was written for Slurm. As folders and as squashfs files.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use super::{cluster::Cluster, whole};
use crate::{
    containers::open_fuse,
    gateway::terminal::types,
    idleness::terminals::tab,
    images::{add, pull, registry::Registry},
    life::jobs::{ended, log, submit},
    needs,
};

const MIB: i64 = 1 << 20;

/// Which image it is, as whom, and in which job.
const LOOK: &str = ". /etc/os-release\necho \"$NAME $(id -un) $OF_IMAGE job-$SLURM_JOB_ID on $SLURMD_NODENAME\"\n";

#[tokio::test]
async fn a_session_and_jobs_run_in_a_folder_that_all_nodes_see() {
    run("directory").await;
}

#[tokio::test]
async fn and_in_a_squashed_file() {
    let has = |program: &str| needs::met(program, Path::new("/usr/bin").join(program).exists());
    if !needs::root() || !has("squashfuse") || !has("mksquashfs") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The nodes' daemons inherit it.
    open_fuse(folder.path());
    run("squashfs").await;
}

async fn run(form: &str) {
    let Some(registry) = Registry::start() else { return };
    let digest = registry.push("nvcr.io/nvidia/fake", "1", "NAME=shared\n").await;
    let Some(cluster) = Cluster::start() else { return };
    let shared = cluster.path("images");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let settings = format!("[images]\ndirectory = '{}'\nform = '{form}'\n{}", shared.display(), registry.mirror());
    let Some((house, person, cluster)) = whole::configured(cluster, &[], &settings).await else { return };
    let admin = house.admin();
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    add(&house, "fake", "nvcr.io/nvidia/fake:1", json!([])).await;
    pull(&house, "fake", "ready").await;
    let resources = json!({ "cpus": 1, "memory_bytes": 256 * MIB });

    // What is pulled is all there is: no job asks the registry.
    registry.stop();
    let script = format!("#!/bin/sh\n{LOOK}");
    let id = submit(&house, &person, json!({ "script": script, "image": "fake", "resources": resources })).await;
    let done = ended(&house, &person, &id, "exited").await;
    let said = log(&house, &person, &format!("{id}/log")).await;
    assert!(said.contains("shared ly-n-") && said.contains(" yes job-") && said.contains(" on node"), "{done} {said}");
    assert_eq!((done["image_digest"].as_str(), &done["cluster"]), (Some(&*digest), &json!("slurm")), "{done}");

    let written =
        format!("#!/bin/sh\n#SBATCH --job-name=written --mem=300M -N 1 -n 2 -t 7\n{LOOK}echo \"of $SLURM_NTASKS\"\n");
    let id = submit(&house, &person, json!({ "script": written, "sbatch": true, "image": "fake" })).await;
    let done = ended(&house, &person, &id, "exited").await;
    let said = log(&house, &person, &format!("{id}/log")).await;
    assert!(said.contains("shared ly-n-") && said.contains(" yes job-") && said.contains("of 2"), "{done} {said}");
    assert_eq!((&done["name"], done["image_digest"].as_str()), (&json!("written"), Some(&*digest)), "{done}");

    let asked = json!({ "app": "terminal", "image": "fake", "resources": resources, "duration_seconds": 1800 });
    let session = person.start(&house, asked).await;
    person.state(&house, session, "running").await;
    let number = cluster.ask("squeue", &["--noheader", "--states=running", "--format=%i"]);
    let mut shell = tab(&house, &person, session).await;
    let wanted = format!("in-shared-yes-{}", number.trim());
    types(&mut shell, ". /etc/os-release; echo \"in-$NAME-$OF_IMAGE-$SLURM_JOB_ID\"", &wanted).await;
    drop(shell);
    person.end(&house, session).await;

    // What needs several nodes would be started outside the image.
    for asked in [
        json!({ "command": ["true"], "nodes": 2, "image": "fake" }),
        json!({ "script": "#!/bin/sh\n#SBATCH -N 2 -t 7\ntrue\n", "sbatch": true, "image": "fake" }),
    ] {
        let (status, refused) = person.ask(&house, "POST", "/jobs", &asked).await;
        assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("one_node")), "{refused}");
    }
    registry.go_on();
}

/// Without such a folder images are refused, with the setting that is missing.
#[tokio::test]
async fn without_a_shared_folder_they_are_refused() {
    let Some((house, person, _cluster)) = whole::open().await else { return };
    let (status, refused) = person.ask(&house, "POST", "/jobs", &json!({ "script": "true", "image": "x" })).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("not_available")), "{refused}");
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("images.directory"), "{refused}");
    let new = json!({ "name": "x", "reference": "busybox" });
    let (status, refused) = house.admin().ask(&house, "POST", "/images", &new).await;
    assert!(status == 409 && refused["detail"].as_str().unwrap().contains("images.directory"), "{refused}");
}
