//! A cluster as large as sites have: 5 000 nodes with 10 000 GPUs in two partitions, and 20 000 jobs in the queue. The
//! answers of `sinfo` and `squeue` are made up; everything behind them is real. Each page and each list stays small.

use std::time::{Duration, Instant};

use super::{cluster::Cluster, whole};
use crate::wait::eventually;

/// Answers any list of fields, each with the separator that it was asked for with.
const TOOL: &str = r#"#!/usr/bin/python3
import sys, time
fields = [field.split(":", 1) for field in sys.argv[sys.argv.index("--Format") + 1].split(",")]
now = int(time.time())
def node(number, partition):
    return {"nodelist": f"node{number:05}", "nodeaddr": f"10.0.{number >> 8}.{number & 255}", "partition": partition,
        "available": "up", "statelong": "mixed", "cpusstate": "32/32/0/64", "memory": "256000", "allocmem": "128000",
        "gres": "gpu:a100:2", "gresused": "gpu:a100:1(IDX:0)", "time": "1-00:00:00", "reason": "none"}
def job(number):
    runs = number < 5000
    return {"jobid": number + 1, "state": "RUNNING" if runs else "PENDING", "reason": "None" if runs else "Priority",
        "userid": 70000 + number % 500, "partition": "gpu", "batchhost": f"node{number:05}" if runs else "",
        "exit_code": 0, "starttime": now - 600 if runs else "N/A", "endtime": now + 3000, "timeused": "10:00" if runs else "0:00",
        "restartcnt": 0, "jobarrayid": number + 1, "username": f"user{number % 500}", "account": "lab",
        "prioritylong": 30000 - number, "submittime": now - 900, "timelimit": "1:00:00", "numnodes": 1,
        "nodelist": f"node{number:05}" if runs else "", "tres-alloc": "cpu=32,mem=128000M,node=1,gres/gpu=1,gres/gpu:a100=1",
        "tres-per-job": "N/A", "tres-per-node": "gres:gpu:1", "name": "train", "comment": ""}
if sys.argv[0].endswith("sinfo"):
    rows = [node(number, partition) for number in range(5000) for partition in ("gpu*", "long")]
else:
    rows = [job(number) for number in range(20000)]
write = sys.stdout.write
for row in rows:
    write("".join(f"{row[name]}{end}" for name, end in fields) + "\n")
"#;

/// No page and no list is longer (bytes).
const MAX_ANSWER: usize = 100_000;

#[tokio::test]
async fn every_page_of_a_large_cluster_is_small() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = Cluster::commands(&[("sinfo", TOOL), ("squeue", TOOL)]);
    let bin = folder.path().to_str().unwrap();
    let more = [("LYCEUM_SCHEDULER__SLURM__BIN", bin), ("LYCEUM_SCHEDULER__SLURM__INTERVAL", "30s")];
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    let admin = house.admin();
    eventually("the cluster is known", async || {
        let nodes = person.get(&house, "/nodes").await;
        (nodes["items"].as_array()?.len() > 5).then_some(())
    })
    .await;
    let paths = [
        "/",
        "/cluster",
        "/cluster?after=node04000",
        "/queue",
        "/sessions/new",
        "/jobs/new",
        "/jobs",
        "/admin/health",
        "/api/v1/nodes",
        "/api/v1/gpus",
        "/api/v1/partitions",
        "/api/v1/offers",
        "/api/v1/reservations",
        "/api/v1/queue",
        "/api/v1/queue?owner=*",
        "/metrics",
    ];
    let mut long = Vec::new();
    for path in paths {
        let mut best = Duration::MAX;
        let mut bytes = 0;
        for _ in 0..3 {
            let begun = Instant::now();
            let answer = admin.request(&house, "GET", path).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            bytes = answer.bytes().await.unwrap().len();
            best = best.min(begun.elapsed());
        }
        eprintln!("{path}: {bytes} bytes, {best:?}");
        if bytes > MAX_ANSWER {
            long.push((path, bytes));
        }
    }
    assert!(long.is_empty(), "longer than {MAX_ANSWER} bytes: {long:?}");
    let peak = house.memory("VmHWM:");
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 300 << 10, "{peak} kB");
}
