//! Answers of Slurm's commands that are none: a flood, half a line, columns of another version. They are said
//! on the health page and by `lyceum check`, cost neither memory nor a session, and pass.

use std::{fs, os::unix::fs::symlink};

use super::{cluster::Cluster, whole};
use crate::wait::eventually;

#[tokio::test]
async fn what_is_no_answer_is_said_and_outlived() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = Cluster::commands(&[]);
    let more = [("LYCEUM_SCHEDULER__SLURM__BIN", folder.path().to_str().unwrap())];
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    let (_, said) = house.run(&["check"]);
    assert!(said.contains("rows of sinfo were read"), "{said}");
    let squeue = folder.path().join("squeue");
    for (script, part) in [
        ("exec yes 'a row without an end'", "wrote more than"),
        ("printf '12\\037'", "unexpected output of"),
        ("echo 'squeue: error: Invalid job format specification: prioritylong' >&2; exit 1", "Invalid job format"),
    ] {
        Cluster::replace(&folder, "squeue", &format!("#!/bin/sh\n{script}\n"));
        eventually(&format!("the health page says: {part}"), async || {
            let page = house.admin().request(&house, "GET", "/admin/health").send().await.unwrap();
            page.text().await.unwrap().contains(part).then_some(())
        })
        .await;
        let (is_fine, said) = house.run(&["check"]);
        assert!(!is_fine && said.contains(part), "{said}");
    }
    let peak = house.memory("VmHWM:");
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 512 << 10, "{peak} kB");
    fs::remove_file(&squeue).unwrap();
    symlink("/usr/bin/squeue", &squeue).unwrap();
    let id = person.run(&house, "web").await;
    person.end(&house, id).await;
}
