//! Answers of Slurm's commands that are none: a flood, half a line, columns of another version. They are said
//! on the health page and by `lyceum check`, cost neither memory nor a session, and pass.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::{cluster::Cluster, whole};
use crate::wait::eventually;

#[tokio::test]
async fn what_is_no_answer_is_said_and_outlived() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::Builder::new().prefix("ly-answers-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for tool in ["sbatch", "scancel", "sinfo", "squeue", "scontrol", "sacct", "sacctmgr", "srun"] {
        symlink(format!("/usr/bin/{tool}"), folder.path().join(tool)).unwrap();
    }
    let more = [("LYCEUM_SCHEDULER__SLURM__BIN", folder.path().to_str().unwrap())];
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    let (_, said) = house.run(&["check"]);
    assert!(said.contains("of sinfo are read"), "{said}");
    let squeue = folder.path().join("squeue");
    for (script, part) in [
        ("exec yes 'a row without an end'", "wrote more than"),
        ("printf '12\\037'", "answered something else"),
        ("echo 'squeue: error: Invalid job format specification: prioritylong' >&2; exit 1", "Invalid job format"),
    ] {
        fs::remove_file(&squeue).unwrap();
        fs::write(&squeue, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&squeue, fs::Permissions::from_mode(0o755)).unwrap();
        eventually(&format!("the health page says: {part}"), async || {
            let page = house.admin().request(&house, "GET", "/admin/health").send().await.unwrap();
            page.text().await.unwrap().contains(part).then_some(())
        })
        .await;
        let (is_fine, said) = house.run(&["check"]);
        assert!(!is_fine && said.contains(part), "{said}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", house.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap();
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 512 << 10, "{peak} kB");
    fs::remove_file(&squeue).unwrap();
    symlink("/usr/bin/squeue", &squeue).unwrap();
    let id = person.run(&house, "web").await;
    person.end(&house, id).await;
}
