//! A cluster as large as sites have: 5 000 nodes with 10 000 GPUs in two partitions, and 20 000 jobs in the queue. The
//! answers of `sinfo` and `squeue` are made up; everything behind them is real. Each page and each list stays small, and
//! takes no longer than the cluster is larger than one of 50 nodes.

use std::time::{Duration, Instant};

use super::{cluster::Cluster, whole};
use crate::{
    life::{House, Person},
    wait::eventually,
};

/// Answers any list of fields, each with the separator that it was asked for with; the file beside it has the nodes' number.
const TOOL: &str = r#"#!/usr/bin/python3
import sys, time
fields = [field.split(":", 1) for field in sys.argv[sys.argv.index("--Format") + 1].split(",")]
now = int(time.time())
nodes = int(open(sys.argv[0].rsplit("/", 1)[0] + "/nodes").read())
def node(number, partition):
    return {"nodelist": f"node{number:05}", "nodeaddr": f"10.0.{number >> 8}.{number & 255}", "partition": partition,
        "available": "up", "statelong": "mixed", "cpusstate": "32/32/0/64", "memory": "256000", "allocmem": "128000",
        "gres": "gpu:a100:2", "gresused": "gpu:a100:1(IDX:0)", "time": "1-00:00:00", "reason": "none"}
def job(number):
    runs = number < nodes
    return {"jobid": number + 1, "state": "RUNNING" if runs else "PENDING", "reason": "None" if runs else "Priority",
        "userid": 70000 + number % 500, "partition": "gpu", "batchhost": f"node{number:05}" if runs else "",
        "exit_code": 0, "starttime": now - 600 if runs else "N/A", "endtime": now + 3000, "timeused": "10:00" if runs else "0:00",
        "restartcnt": 0, "jobarrayid": number + 1, "username": f"user{number % 500}", "account": "lab",
        "prioritylong": 30000 - number, "submittime": now - 900, "timelimit": "1:00:00", "numnodes": 1,
        "nodelist": f"node{number:05}" if runs else "", "tres-alloc": "cpu=32,mem=128000M,node=1,gres/gpu=1,gres/gpu:a100=1",
        "tres-per-job": "N/A", "tres-per-node": "gres:gpu:1", "name": "train", "comment": ""}
if sys.argv[0].endswith("sinfo"):
    rows = [node(number, partition) for number in range(nodes) for partition in ("gpu*", "long")]
else:
    rows = [job(number) for number in range(4 * nodes)]
write = sys.stdout.write
for row in rows:
    write("".join(f"{row[name]}{end}" for name, end in fields) + "\n")
"#;

/// No page and no list is longer (bytes).
const MAX_ANSWER: usize = 100_000;

/// How much larger the second cluster is than the first.
const NODES: [u32; 2] = [50, 5_000];

/// So long a page of the small cluster takes at least and at most on a machine that is now busy and now is not. What
/// grows with the square of the nodes would take minutes.
const MIN_PAGE: Duration = Duration::from_millis(30);
const MAX_PAGE: Duration = Duration::from_millis(50);

const PATHS: [&str; 16] = [
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

/// How long each page took, the shortest of three times, and its bytes.
async fn look_at_pages(house: &House, admin: &Person) -> Vec<(Duration, usize)> {
    let mut looks = Vec::new();
    for path in PATHS {
        let (mut best, mut bytes) = (Duration::MAX, 0);
        for _ in 0..3 {
            let began = Instant::now();
            let answer = admin.request(house, "GET", path).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            bytes = answer.bytes().await.unwrap().len();
            best = best.min(began.elapsed());
        }
        looks.push((best, bytes));
    }
    looks
}

#[tokio::test]
async fn every_page_of_a_large_cluster_is_small() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = Cluster::commands(&[("sinfo", TOOL), ("squeue", TOOL)]);
    let bin = folder.path().to_str().unwrap();
    let set_nodes = |count: u32| std::fs::write(folder.path().join("nodes"), count.to_string()).unwrap();
    set_nodes(NODES[0]);
    let more = [("LYCEUM_SCHEDULER__SLURM__BIN", bin), ("LYCEUM_SCHEDULER__SLURM__INTERVAL", "30s")];
    let Some((mut house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    let admin = house.admin();
    let mut looks = Vec::new();
    for count in NODES {
        if count != NODES[0] {
            set_nodes(count);
            house.restart().await;
        }
        eventually("the cluster is known", async || {
            let partitions = person.get(&house, "/partitions").await;
            partitions["items"]
                .as_array()?
                .iter()
                .any(|one| one["nodes"] == count && one["running"] == count)
                .then_some(())
        })
        .await;
        looks.push(look_at_pages(&house, &admin).await);
    }
    let mut faults = Vec::new();
    for (path, (few, many)) in PATHS.iter().zip(looks[0].iter().zip(&looks[1])) {
        let ((before, _), (took, bytes)) = (few, many);
        eprintln!("{path}: {bytes} bytes, {took:?}, with {} nodes {before:?}", NODES[0]);
        if *bytes > MAX_ANSWER || *took > (*before).clamp(MIN_PAGE, MAX_PAGE) * (NODES[1] / NODES[0]) {
            faults.push((path, bytes, took, before));
        }
    }
    assert!(faults.is_empty(), "longer than {MAX_ANSWER} bytes, or slower than the cluster is larger: {faults:?}");
    let peak = house.memory("VmHWM:");
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 300 << 10, "{peak} kB");
}
