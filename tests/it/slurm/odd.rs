//! A real cluster whose `squeue` also lists what no small cluster has: ten thousand arrays, one person with fifty thousand
//! jobs, and jobs of nodes whose clocks jump. The portal goes on: what is its own starts as before, pages stay
//! small, and no time is counted that was not used.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{cluster::Cluster, whole};
use crate::wait::eventually;

/// What the real command says, and made-up jobs after it.
const SQUEUE: &str = r#"#!/usr/bin/python3
import subprocess, sys, time
sys.stdout.write(subprocess.run(["/usr/bin/squeue", *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=True).stdout)
if "--Format" not in sys.argv:
    sys.exit()
fields = [field.split(":", 1) for field in sys.argv[sys.argv.index("--Format") + 1].split(",")]
now = int(time.time())
user, uid = open(sys.argv[0] + ".user").read().split()
def row(number, **other):
    return {"jobid": number, "state": "PENDING", "reason": "Priority", "userid": uid, "partition": "debug", "batchhost": "",
        "exit_code": 0, "starttime": "N/A", "endtime": "N/A", "timeused": "0:00", "restartcnt": 0, "jobarrayid": number,
        "username": user, "account": "lab", "prioritylong": 1, "submittime": now - 900, "timelimit": "1:00:00", "numnodes": 1,
        "nodelist": "", "tres-alloc": "cpu=1,mem=1M,node=1", "tres-per-job": "N/A", "tres-per-node": "N/A", "name": "train",
        "comment": "", **other}
runs = dict(state="RUNNING", reason="None", batchhost="node1", nodelist="node1")
rows = [row(1_000_000 + number) for number in range(50_000)]
rows += [row(2_000_000 + number, userid=70_000, username="other", jobarrayid=f"{2_000_000 + number}_[0-999%4]")
         for number in range(10_000)]
rows += [
    # Begins in an hour, and runs already; ended before it began; ran for longer than it was there; has no time at all.
    row(3_000_001, **runs, starttime=now + 3600, endtime=now + 7200, timeused="INVALID"),
    row(3_000_002, **{**runs, "state": "COMPLETED"}, starttime=now - 60, endtime=now - 3600, timeused="0:00"),
    row(3_000_003, **{**runs, "state": "COMPLETED"}, starttime=now - 60, endtime=now - 30, timeused="99-00:00:00"),
    row(3_000_004, **runs, starttime=now - 60, endtime="Unknown", timeused="-1:00"),
    row(3_000_005, **runs, starttime=99999999999999, endtime=now, timeused="0:10"),
    row(3_000_006, **runs, starttime=-5, endtime=-9, timeused="0:10"),
]
sys.stdout.write("".join("".join(f"{row[name]}{end}" for name, end in fields) + "\n" for row in rows))
"#;

#[tokio::test]
async fn a_queue_that_is_far_too_long_stops_nobody() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = Cluster::commands(&[]);
    let more = [
        ("LYCEUM_SCHEDULER__SLURM__BIN", folder.path().to_str().unwrap()),
        ("LYCEUM_SCHEDULER__SLURM__INTERVAL", "5s"),
    ];
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    let admin = house.admin();
    let account = admin.get(&house, &format!("/users/{}", person.name)).await;
    let unix = account["unix_name"].as_str().unwrap();
    let uid = nix::unistd::User::from_name(unix).unwrap().unwrap().uid;
    std::fs::write(folder.path().join("squeue.user"), format!("{unix} {uid}")).unwrap();
    Cluster::replace(&folder, "squeue", SQUEUE);
    eventually("all of it is read", async || {
        let partitions = admin.get(&house, "/partitions").await;
        let debug = partitions["items"].as_array()?.iter().find(|one| one["name"] == "debug")?.clone();
        (50_000 + 10_000_000 <= debug["waiting"].as_i64()?).then_some(())
    })
    .await;

    let began = Instant::now();
    let id = person.run(&house, "web").await;
    let started = began.elapsed();
    eprintln!("a session beside 60 000 lines of the queue runs after {started:?}");
    assert!(started < Duration::from_mins(1), "{started:?}");

    for (who, path) in [
        (&person, "/"),
        (&person, "/queue"),
        (&person, "/cluster"),
        (&person, "/api/v1/queue"),
        (&person, "/api/v1/me"),
        (&admin, "/queue?owner=*"),
        (&admin, "/api/v1/queue?owner=*"),
        (&admin, "/admin/quotas"),
        (&admin, "/admin/health"),
    ] {
        let answer = who.request(&house, "GET", path).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        eprintln!("{path}: {} bytes", text.len());
        assert!(status == 200 && text.len() <= 100_000, "{path}: {status}, {} bytes", text.len());
        assert!(!text.contains("for -") && !text.contains(">-"), "no time is negative: {path}");
    }
    // Every job of the person's is on one of the pages.
    let (mut jobs, mut cursor) = (0, Value::Null);
    loop {
        let more = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = person.get(&house, &format!("/queue?limit=500{more}")).await;
        jobs += page["items"].as_array().unwrap().len();
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!((50_000..=50_010).contains(&jobs), "{jobs}");

    // None of them held anything before it began or after it ended.
    let day = 86_400;
    let usage = person.get(&house, "/usage").await;
    let seconds = usage["items"][0]["cpu_seconds"].as_i64().unwrap_or(0);
    assert!((0..day).contains(&seconds), "{usage}");
    let health = admin.get(&house, "/health").await;
    for one in health["loops"].as_array().unwrap() {
        let took = one["took_seconds"].as_f64().unwrap();
        assert!(one["last_error"].is_null() && took < 15.0, "{one}");
    }
    let peak = house.memory("VmHWM:");
    eprintln!("resident memory at its peak: {} MiB", peak >> 10);
    assert!(peak < 400 << 10, "{peak} kB");
    person.end(&house, id).await;
}
