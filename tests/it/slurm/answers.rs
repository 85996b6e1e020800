//! Answers of Slurm's commands that are none: a flood, half a line, columns of another version, silence. They are
//! said on the health page and by `lyceum check`, cost neither memory nor a session, and pass.

use std::{
    fs,
    os::unix::fs::symlink,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{cluster::Cluster, whole};
use crate::{life::House, wait::eventually};

/// Each is no answer; a part of what is said of it.
const ODD: [(&str, &str); 3] = [
    ("exec yes 'a row without an end'", "wrote more than"),
    ("printf '12\\037'", "unexpected output of"),
    ("echo 'error: Invalid job format specification: prioritylong' >&2; exit 1", "Invalid job format"),
];

/// The real command again.
fn restore(commands: &TempDir, tool: &str) {
    let path = commands.path().join(tool);
    fs::remove_file(&path).unwrap();
    symlink(format!("/usr/bin/{tool}"), &path).unwrap();
}

async fn said_on_the_health_page(house: &House, part: &str) {
    eventually(&format!("the health page says: {part}"), async || {
        let page = house.admin().request(house, "GET", "/admin/health").send().await.unwrap();
        page.text().await.unwrap().contains(part).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_no_answer_is_said_and_outlived() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = Cluster::commands(&[]);
    let more = [("LYCEUM_SCHEDULER__SLURM__BIN", folder.path().to_str().unwrap())];
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    let (_, said) = house.run(&["check"]);
    assert!(said.contains("rows of sinfo") && said.contains("rows of sacct were read"), "{said}");
    for (script, part) in ODD {
        Cluster::replace(&folder, "squeue", &format!("#!/bin/sh\n{script}\n"));
        said_on_the_health_page(&house, part).await;
        let (is_fine, said) = house.run(&["check"]);
        assert!(!is_fine && said.contains(part), "{said}");
    }
    let peak = house.memory("VmHWM:");
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 512 << 10, "{peak} kB");
    restore(&folder, "squeue");
    let id = person.run(&house, "web").await;
    person.end(&house, id).await;
}

/// Neither nodes nor reservations nor accounts can be read: what starts and ends needs none of them.
#[tokio::test]
async fn odd_answers_about_nodes_and_accounts_stop_nobody() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    let folder = Cluster::commands(&[]);
    let more = [("LYCEUM_SCHEDULER__SLURM__BIN", folder.path().to_str().unwrap())];
    let Some((house, person, cluster)) = whole::on_with(cluster, &more).await else { return };
    let admin = house.admin();
    let nodes = person.get(&house, "/nodes").await["items"].as_array().unwrap().len();
    assert_eq!(nodes, 4);
    // The configuration is asked for by the same command, and is no less odd.
    let silence = ("exec sleep 300", "timed out");
    for (script, part) in ODD.into_iter().chain([silence]) {
        for tool in ["sinfo", "scontrol", "sacct"] {
            Cluster::replace(&folder, tool, &format!("#!/bin/sh\n{script}\n"));
        }
        // An administrator ends the session's job in a shell: who did is asked of the accounts.
        let small = json!({ "cpus": 1, "memory_bytes": 256 << 20 });
        let asked = json!({ "app": "web", "resources": small });
        let id = person.start(&house, asked.clone()).await;
        person.state(&house, id, "running").await;
        let jobs = cluster.ask("squeue", &["--noheader", "--format=%i"]);
        cluster.tell("scancel", &[jobs.trim()]);
        person.ended(&house, id, "stopped_by_admin").await;
        for command in ["`sinfo`", "`scontrol show reservation`", "`scontrol show config`", "`sacct`"] {
            eventually(&format!("the health report says of {command}: {part}"), async || {
                // Somebody looks at the nodes.
                person.ask(&house, "GET", "/nodes", &Value::Null).await;
                let report = admin.get(&house, "/health").await;
                let is_said = |one: &Value| {
                    let what = one["what"].as_str().unwrap_or_default();
                    one["level"] == "warning" && what.contains(command) && what.contains(part)
                };
                report["findings"].as_array()?.iter().any(is_said).then_some(())
            })
            .await;
        }
        let report = admin.get(&house, "/health").await;
        let scheduler = report["findings"].as_array().unwrap().iter().find(|one| one["name"] == "scheduler").unwrap();
        assert_eq!(scheduler["level"], "ok", "{report}");
        let page = person.request(&house, "GET", "/cluster").send().await.unwrap().text().await.unwrap();
        assert!(page.contains("Slurm does not list its nodes") || page.contains("has not listed its nodes"), "{page}");
        assert!(page.contains("node1") && page.contains("node4"), "what was listed last is still there: {page}");
        // Meanwhile everything else goes on.
        let began = Instant::now();
        let id = person.start(&house, asked).await;
        person.state(&house, id, "running").await;
        person.end(&house, id).await;
        let took = began.elapsed();
        eprintln!("a session from its request to its end while {part}: {took:?}");
        assert!(took < Duration::from_mins(1), "{took:?}");
    }
    let peak = house.memory("VmHWM:");
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 700 << 10, "{peak} kB");
    for tool in ["sinfo", "scontrol", "sacct"] {
        restore(&folder, tool);
    }
    eventually("nothing is wrong any more", async || {
        person.ask(&house, "GET", "/nodes", &Value::Null).await;
        let report = admin.get(&house, "/health").await;
        let of_slurm = |one: &&Value| one["name"] == "scheduler" && one["level"] == "warning";
        report["findings"].as_array()?.iter().find(of_slurm).is_none().then_some(())
    })
    .await;
}
