//! What a program in an image cannot reach, tried: another account's home, sockets and processes,
//! device files that are not the session's, the host's files; and the limit that binds it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
};

use lyceum::model::EndReason;

use super::{World, image::Image};
use crate::{helper::house::system, needs, wait::until};

#[tokio::test]
async fn others_are_out_of_reach() {
    let Some(world) = World::new() else { return };
    let other = &world.people.b;
    // Even files that others could read on the host are not there.
    fs::set_permissions(&other.home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(other.home.join("open"), "b's").unwrap();
    let socket = other.home.join("b.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    chown(&socket, Some(other.uid), Some(other.gid)).unwrap();
    let outside = tempfile::Builder::new().prefix("ly-outside-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(outside.path().join("open"), "the host's").unwrap();
    let theirs = world.house.launch(
        lyceum::model::SessionId::new(),
        other,
        serde_json::json!({ "protocol": 1, "portal_uid": 0, "app": {
            "program": { "exec": { "argv": ["/bin/sleep", "600"] } }, "environment": {}, "working_directory": "/tmp",
            "ready": null }, "limits": { "cpus": 1, "memory_bytes": 1 << 28, "processes": 64 }, "sampled": false,
            "cgroups": [], "grace_seconds": 1, "home": { "home": other.home, "links": [] } }),
    );
    let theirs = theirs.unwrap();
    let agents = std::path::Path::new(&theirs.run_directory).join("agent.sock");
    until("the other session listens", || agents.exists());
    let script = format!(
        "#!/bin/sh\n\
         for path in {home}/open {home} {outside}/open {socket} {agent} /etc/shadow /dev/kvm /dev/fuse /dev/loop0 \
         /proc/{pid}/root/etc/hostname /proc/{pid}/environ /run/lyceum; do\n\
         if cat $path >/dev/null 2>&1 || ls $path/ >/dev/null 2>&1; then echo \"reached $path\"; else echo \"shut $path\"; fi\n\
         done\n\
         for path in {socket} {agent}; do nc local:$path </dev/null 2>/dev/null && echo \"reached $path\"; done\n\
         kill -0 {pid} 2>/dev/null && echo \"reached {pid}\"\n\
         mknod /tmp/kvm c 10 232 2>/dev/null && echo \"reached mknod\"\n\
         mount -t tmpfs none /opt 2>/dev/null && echo \"reached mount\"\n\
         chroot / /bin/true 2>/dev/null && echo \"reached chroot\"\n\
         echo done\n",
        home = other.home.display(),
        outside = outside.path().display(),
        socket = socket.display(),
        agent = agents.display(),
        pid = theirs.pid,
    );
    let (exit, log) = world.run(world.script(world.image.container(), &script)).await;
    assert!(log.ends_with("done\n") && exit.exit_code == Some(0), "{exit:?} {log}");
    assert!(!log.contains("reached"), "{log}");
    assert_eq!(log.matches("shut ").count(), 12, "{log}");
}

#[tokio::test]
async fn devices_that_are_not_the_sessions_stay_shut() {
    let Some(world) = World::new() else { return };
    // Files of the kernel's own memory stand in for GPUs, because they open without hardware.
    let folder = tempfile::Builder::new().prefix("ly-devices-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, minor) in [("gpu0", "5"), ("gpu1", "7")] {
        let path = folder.path().join(name);
        system(&["mknod", "-m", "666", path.to_str().unwrap(), "c", "1", minor]);
    }
    let edition = |index: i64| {
        let device = serde_json::json!({ "path": format!("/dev/nvidia{index}"),
            "hostPath": folder.path().join(format!("gpu{index}")) });
        serde_json::json!({ "name": index.to_string(), "containerEdits": { "deviceNodes": [device] } })
    };
    let library = folder.path().join("libcuda.so.550.54");
    fs::write(&library, "").unwrap();
    std::os::unix::fs::symlink("libcuda.so.550.54", folder.path().join("libcuda.so.1")).unwrap();
    let spec = serde_json::json!({ "cdiVersion": "0.5.0", "kind": "example.org/gpu",
        "devices": [edition(0), edition(1)],
        "containerEdits": { "env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": [
            { "hostPath": library, "containerPath": "/usr/lib/libcuda.so.550.54", "options": ["ro"] } ] } });
    // The number is one that no GPU has.
    let mut spec = spec;
    for (index, device) in spec["devices"].as_array_mut().unwrap().iter_mut().enumerate() {
        device["name"] = format!("GPU-{}-{index}", std::process::id()).into();
    }
    let file = std::path::Path::new("/etc/cdi").join(format!("ly-test-{}.json", std::process::id()));
    fs::create_dir_all("/etc/cdi").unwrap();
    fs::write(&file, spec.to_string()).unwrap();
    let gpu = |index: i64| lyceum::model::Gpu {
        index: 90 + index,
        slice: None,
        uuid: format!("GPU-{}-{index}", std::process::id()),
        model: "stands in".to_owned(),
    };
    let mut container = world.image.container();
    container.gpus = vec![gpu(1)];
    let script = "#!/bin/sh\nls /dev | grep nvidia\nhead -c1 /dev/nvidia1 | wc -c\necho $NVIDIA_VISIBLE_DEVICES\n\
                  echo $LD_LIBRARY_PATH\nls -l /run/lyceum-driver/lib | awk '{print $9,$10,$11}'\n";
    let (exit, log) = world.run(world.script(container, script)).await;
    fs::remove_file(file).unwrap();
    assert_eq!(exit.exit_code, Some(0), "{log}");
    let lines: Vec<_> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let wanted =
        ["nvidia1", "1", "void", "/run/lyceum-driver/lib", "libcuda.so.1 -> libcuda.so.550.54", "libcuda.so.550.54"];
    assert_eq!(lines, wanted, "{log}");
}

#[tokio::test]
async fn the_memory_limit_kills_inside() {
    let Some(world) = World::new() else { return };
    if !needs::met("control groups", !world.house.config.hierarchy.is_sampled()) {
        return;
    }
    for (what, text) in [
        ("the program's memory", "#!/bin/sh\nx=aaaaaaaaaaaaaaaa\nwhile :; do x=$x$x; done\n"),
        ("files in /dev/shm", "#!/bin/sh\ndd if=/dev/zero of=/dev/shm/x bs=1M\nexit 9\n"),
    ] {
        let mut launch = world.script(world.image.container(), text);
        // As large as `/dev/shm` is then.
        launch.resources.memory_bytes = 48 << 20;
        let (exit, log) = world.run(launch).await;
        assert_eq!(exit.reason, Some(EndReason::OutOfMemory), "{what}: {exit:?} {log}");
    }
}

#[tokio::test]
async fn mount_points_that_the_image_lacks_are_made() {
    let Some(image) = Image::busybox() else { return };
    // A minimal image, as tools that build from nothing make them.
    for folder in ["home", "tmp", "proc", "dev", "sys", "run", "opt"] {
        fs::remove_dir(image.root().join(folder)).unwrap();
    }
    fs::remove_file(image.root().join("etc/passwd")).unwrap();
    let Some(world) = World::with(image) else { return };
    let data = tempfile::Builder::new().prefix("ly-data-").tempdir_in("/var/lib").unwrap();
    chown(data.path(), Some(world.people.a.uid), Some(world.people.a.gid)).unwrap();
    let mut container = world.image.container();
    container.mounts = vec![data.path().to_owned()];
    let script = format!("#!/bin/sh\nset -e\nid -un\necho > {}/x\nls /etc\ntouch ~/y /tmp/z\n", data.path().display());
    let (exit, log) = world.run(world.script(container, &script)).await;
    assert_eq!(exit.exit_code, Some(0), "{log}");
    assert!(log.starts_with(&world.people.a.name) && log.contains("os-release"), "{log}");
    assert!(data.path().join("x").exists() && world.home("y").exists());
}
