//! GPUs in images, through the portal: a driver library of the test's, and a description of its GPUs as the driver's
//! tools write one. A job gets its own GPU's device and the driver's files; an image that needs a newer driver is
//! refused before it is queued.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::json;

use super::{add, pull, registry::Registry};
use crate::{
    gpus::driver,
    helper::house::system,
    life::{
        House,
        jobs::{ended, log, submit},
    },
    needs,
};

/// Removes a file at the end.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_job_has_its_own_gpus_and_a_driver_that_is_new_enough() {
    if !needs::root() {
        return;
    }
    let Some(registry) = Registry::start() else { return };
    registry.push("nvcr.io/nvidia/fake", "1", "NAME=one\n").await;
    registry.push_requiring("nvcr.io/nvidia/fake", "new", "NAME=new\n", "cuda>=999.1").await;
    let folder = tempfile::Builder::new().prefix("ly-gpus-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = driver(folder.path(), "images", "-DGPUS=2");
    let mut house = House::new(&[
        ("LYCEUM_SCHEDULER__LOCAL__NVML", library.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto"),
    ])
    .configured(&registry.mirror());
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "gpus": -1, "jobs": -1, "pending": -1 })).await;
    add(&house, "fake", "nvcr.io/nvidia/fake:1", json!([])).await;
    add(&house, "new", "nvcr.io/nvidia/fake:new", json!([])).await;
    pull(&house, "fake", "ready").await;
    let resources = json!({ "cpus": 1, "gpus": 1, "memory_bytes": 256 << 20 });

    // Not pulled yet, so that it is found out at the start.
    let id = submit(&house, &person, json!({ "script": "true", "image": "new", "resources": resources })).await;
    let failed = ended(&house, &person, &id, "launch_failed").await;
    let detail = failed["detail"].as_str().unwrap();
    assert!(detail.contains("requires CUDA 999.1") && detail.contains("supports CUDA up to"), "{failed}");
    // From now on it is known.
    let asked = json!({ "script": "true", "image": "new", "resources": resources });
    let (status, refused) = person.ask(&house, "POST", "/jobs", &asked).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("driver_too_old")), "{refused}");
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("requires CUDA 999.1"), "{refused}");
    // Without a GPU the driver does not matter.
    let id = submit(&house, &person, json!({ "script": "#!/bin/sh\ntrue\n", "image": "new" })).await;
    assert_eq!(ended(&house, &person, &id, "exited").await["exit_code"], 0);

    // Files of the kernel's own memory stand in for the devices, because they open without hardware.
    let edition = |index: u32, minor: &str| {
        let device = folder.path().join(format!("gpu{index}"));
        system(&["mknod", "-m", "666", device.to_str().unwrap(), "c", "1", minor]);
        json!({ "name": format!("GPU-00000000-0000-0000-0000-00000000000{index}"), "containerEdits": { "deviceNodes": [
            { "path": format!("/dev/nvidia{index}"), "hostPath": device } ] } })
    };
    let library = folder.path().join("libcuda.so.550.54");
    fs::write(&library, "the driver's").unwrap();
    let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [edition(0, "5"), edition(1, "7")],
        "containerEdits": { "mounts": [ { "hostPath": library, "containerPath": "/usr/lib/libcuda.so.550.54" } ] } });
    let file = Gone(PathBuf::from("/etc/cdi").join(format!("ly-images-{}.json", std::process::id())));
    fs::create_dir_all("/etc/cdi").unwrap();
    let script = "#!/bin/sh\nls /dev | grep nvidia\nhead -c1 /dev/nvidia? | wc -c\ncat /run/lyceum-driver/lib/*\n\
                  echo; echo $CUDA_VISIBLE_DEVICES\n";
    let asked = json!({ "script": script, "image": "fake", "resources": resources });
    let id = submit(&house, &person, asked.clone()).await;
    let failed = ended(&house, &person, &id, "launch_failed").await;
    assert!(failed["detail"].as_str().unwrap().contains("nvidia-ctk cdi generate"), "{failed}");
    fs::write(&file.0, spec.to_string()).unwrap();
    let id = submit(&house, &person, asked).await;
    ended(&house, &person, &id, "exited").await;
    let said = log(&house, &person, &format!("{id}/log")).await;
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let visible = lines.last().unwrap();
    let index = visible.chars().last().unwrap();
    assert!(visible.starts_with("GPU-0") && "01".contains(index), "{said}");
    assert_eq!(lines[..3], [&*format!("nvidia{index}"), "1", "the driver's"], "{said}");
}
