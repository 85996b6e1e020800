//! Scripts that were written for Slurm, handed in as they are, and jobs over several nodes: what
//! Slurm is asked for, what is charged, who starts the tasks, and what is refused without a trace.

use serde_json::{Value, json};

use super::whole::{jobs, open};
use crate::life::{
    House, Person,
    jobs::{ended, log, state, submit},
};

const MIB: i64 = 1 << 20;

async fn refused(house: &House, person: &Person, request: Value) -> String {
    let (status, answer) = person.ask(house, "POST", "/jobs", &request).await;
    assert!([409, 413, 422].contains(&status), "{status} {answer}");
    answer.to_string()
}

/// How many `.`-lines a log has of each node: what the tasks have said.
fn told(log: &str, what: &str) -> Vec<String> {
    let mut lines: Vec<String> = log.lines().filter(|line| line.starts_with(what)).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// What `srun` has started hears of the end by Slurm, wherever it is, and has its time to write something.
#[tokio::test]
async fn tasks_on_all_nodes_hear_of_the_end() {
    let Some((house, person, cluster)) = open().await else { return };
    // Without the variable that every process of a session has: on another node nobody would look for it.
    let script = "srun env -u LYCEUM_SESSION sh -c 'trap \"echo over $SLURM_PROCID; exit 0\" TERM; \
                  echo task $SLURM_PROCID; while :; do sleep 0.1; done' &\ntrap : TERM\nwait $!\nwait $!\necho last\n";
    let id = submit(&house, &person, json!({ "script": script, "nodes": 2 })).await;
    crate::wait::eventually("its tasks have spoken", async || {
        let text = log(&house, &person, &format!("{id}/log")).await;
        (told(&text, "task ").len() == 2).then_some(())
    })
    .await;
    let (status, _) = person.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    assert_eq!(status, 202);
    ended(&house, &person, &id, "stopped_by_owner").await;
    let text = log(&house, &person, &format!("{id}/log")).await;
    assert_eq!(told(&text, "over "), ["over 0", "over 1"], "{text}");
    assert_eq!(told(&text, "last"), ["last"], "the script after its tasks: {text}");
    assert_eq!(jobs(&cluster), 1);
}

#[tokio::test]
async fn a_script_as_it_is() {
    let Some((house, person, cluster)) = open().await else { return };
    let admin = house.admin();
    admin.allow(&house, &person, json!({ "gpus": -1, "jobs": -1, "pending": -1 })).await;
    let script = "\u{feff}#!/bin/bash\r\n#SBATCH --job-name='as it is'\r\n#SBATCH -N 2 --ntasks-per-node=2 -c 2\r\n\
                  #SBATCH --mem=300M --gres=gpu:a100:1 -t 7\r\n#SBATCH --partition=debug --nice=5\r\n\
                  #SBATCH --output=elsewhere.txt\r\n\r\necho \"at $SLURM_NTASKS\"\r\n\
                  srun -c2 sh -c 'echo task $SLURM_PROCID on $SLURMD_NODENAME'\r\nsleep 600\r\n";
    let id = submit(&house, &person, json!({ "script": script, "sbatch": true })).await;
    let job = state(&house, &person, &id, "running").await;
    assert_eq!((&job["name"], &job["time_limit_seconds"]), (&json!("as it is"), &json!(420)), "{job}");
    assert_eq!((&job["nodes"], &job["tasks_per_node"]), (&json!(2), &json!(2)), "{job}");
    let resources = &job["resources"];
    assert_eq!((&resources["gpus"], &resources["cpus"]), (&json!(2), &json!(8)), "of both nodes: {job}");
    assert_eq!(resources["memory_bytes"], json!(600 * MIB));
    // Slurm was asked for the very same.
    let number = crate::wait::eventually("it is in the queue", async || {
        let queue = person.get(&house, "/queue").await;
        let row = queue["items"].as_array().unwrap().first().cloned()?;
        assert_eq!((&row["nodes"], &row["resources"]["cpus"]), (&json!(2), &json!(8)), "{row}");
        assert_eq!((&row["resources"]["gpus"], &row["job"]), (&json!(2), &json!(id)), "{row}");
        row["id"].as_str().unwrap().parse::<i32>().ok()
    })
    .await;
    assert_eq!(cluster.field(number, "partition"), "debug");
    let tasks = crate::wait::eventually("its tasks have spoken", async || {
        let text = log(&house, &person, &format!("{id}/log")).await;
        let tasks = told(&text, "task ");
        (tasks.len() == 4 && text.contains("at 4")).then_some(tasks)
    })
    .await;
    let nodes: std::collections::BTreeSet<&str> = tasks.iter().filter_map(|line| line.split(" on ").nth(1)).collect();
    assert_eq!(nodes.len(), 2, "{tasks:?}");
    // What both nodes hold is charged, until it ends.
    let held = house.intervals().await.iter().filter(|one| one.to == i64::MAX).count();
    assert_eq!(held, 1);
    let (status, _) = person.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    assert_eq!(status, 202);
    ended(&house, &person, &id, "stopped_by_owner").await;
    // The same again has the same shape.
    let (status, again) = person.ask(&house, "POST", &format!("/jobs/{id}/resume"), &Value::Null).await;
    assert_eq!(status, 202, "{again}");
    let again = state(&house, &person, &id, "running").await;
    assert_eq!((&again["resources"]["cpus"], &again["nodes"]), (&json!(8), &json!(2)), "{again}");
    person.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    ended(&house, &person, &id, "stopped_by_owner").await;
    assert_eq!(jobs(&cluster), 2);

    // Unless its lines are said to be comments, also in a copy.
    let script = "#!/bin/sh\n#SBATCH -t 7 --nonsense\ntrue\n";
    let id = submit(&house, &person, json!({ "script": script, "sbatch": false })).await;
    let (status, copy) = person.ask(&house, "POST", &format!("/jobs/{id}/clone"), &json!({})).await;
    assert!(status < 300 && copy["time_limit_seconds"] != json!(420), "{copy}");
    for id in [&id, copy["id"].as_str().unwrap()] {
        ended(&house, &person, id, "exited").await;
    }

    // The tasks of an array are jobs, each of its own size.
    let script =
        "#!/bin/sh\n#SBATCH --array=1-5:2%2 -c 1\n#SBATCH --mem=100M -J many\necho task $SLURM_ARRAY_TASK_ID\n";
    submit(&house, &person, json!({ "script": script })).await;
    let tasks = crate::wait::eventually("all three have ended", async || {
        let list = person.get(&house, "/jobs?search=many&state=ended").await;
        Some(list["items"].as_array().unwrap().clone()).filter(|ended| ended.len() == 3)
    })
    .await;
    let mut said = Vec::new();
    for task in &tasks {
        assert_eq!((&task["exit_code"], &task["resources"]["cpus"]), (&json!(0), &json!(1)), "{task}");
        said.push(log(&house, &person, &format!("{}/log", task["id"].as_str().unwrap())).await);
    }
    said.sort();
    assert_eq!(said, ["task 1\n", "task 3\n", "task 5\n"]);
    assert_eq!(person.get(&house, "/sweeps").await["items"][0]["parallel"], json!(2));
    assert_eq!(jobs(&cluster), 7);
}

/// A command is started on every node so many times by the portal itself.
#[tokio::test]
async fn a_command_on_several_nodes() {
    let Some((house, person, cluster)) = open().await else { return };
    let admin = house.admin();
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let command = ["/bin/sh", "-c", "echo task $SLURM_PROCID on $SLURMD_NODENAME as $(id -un)"];
    let size = json!({ "cpus": 2, "memory_bytes": 256 * MIB });
    let request = json!({ "command": command, "nodes": 3, "tasks_per_node": 2, "resources": size });
    let id = submit(&house, &person, request).await;
    let job = ended(&house, &person, &id, "exited").await;
    assert_eq!((&job["exit_code"], &job["resources"]["cpus"]), (&json!(0), &json!(6)), "{job}");
    let tasks = told(&log(&house, &person, &format!("{id}/log")).await, "task ");
    assert_eq!(tasks.len(), 6, "{tasks:?}");
    for node in ["node1", "node2", "node3"] {
        assert_eq!(tasks.iter().filter(|line| line.contains(&format!(" on {node} "))).count(), 2, "{tasks:?}");
    }
    // One that fails ends all, and so the job has failed. Slurm ends only those that have begun: it may forget one that
    // it is still starting.
    let failing = "begun=$HOME/begun-$SLURM_JOB_ID\ntest $SLURM_PROCID = 1 && touch $begun && exec sleep 600\n\
                   until test -e $begun; do sleep 0.1; done\nexit 3";
    let failing = ["/bin/sh", "-c", failing];
    let request = json!({ "command": failing, "nodes": 2, "resources": { "cpus": 1, "memory_bytes": 256 * MIB } });
    let id = submit(&house, &person, request).await;
    assert_ne!(ended(&house, &person, &id, "exited").await["exit_code"], 0);
    assert_eq!(jobs(&cluster), 2);
}

#[tokio::test]
async fn what_cannot_be_counted_is_refused() {
    let Some((house, person, cluster)) = open().await else { return };
    let script = |lines: &str| json!({ "script": format!("#!/bin/sh\n{lines}\ntrue\n"), "sbatch": true });
    for (request, part) in [
        (script("#SBATCH --array=9-1"), "array"),
        (script("#SBATCH --array=1-9\n#SBATCH --hold"), "line 3: `--hold`"),
        (script("#SBATCH --core-spec=1"), "line 2: `--core-spec`"),
        (script("#SBATCH --gres=shard:1"), "line 2: `--gres=shard:1`"),
        (script("#SBATCH --uid=0"), "line 2: `--uid`"),
        (script("#SBATCH --nodes=5"), "5 nodes; only 4"),
        (script("#SBATCH -c 5"), "5 × cores; the largest node has 4"),
        (script("#SBATCH --time=2:00:00"), "120 minutes; Slurm"),
        (script("#SBATCH -p small --time=10"), "10 minutes; Slurm"),
        (json!({ "script": "echo no script", "sbatch": true }), "its first line must name"),
        (json!({ "command": ["true"], "sbatch": true }), "give the Slurm script"),
        (json!({ "script": format!("#!/bin/sh\n# {}\n", "x".repeat(100_000)), "sbatch": true }), "64 KiB"),
        (json!({ "script": format!("#!/bin/sh\n# {}\n", "x".repeat(5 << 20)), "sbatch": true }), "1048576"),
        (json!({ "command": ["true"], "nodes": 0 }), "between 1 and 10000"),
        (json!({ "command": ["true"], "nodes": 10_000_000 }), "between 1 and 10000"),
        (json!({ "command": ["true"], "nodes": 9 }), "9 nodes; only 4"),
        (json!({ "command": ["true"], "tasks_per_node": 2, "resources": { "cpus": 3 } }), "equally among 2 tasks"),
    ] {
        let said = refused(&house, &person, request.clone()).await;
        assert!(said.contains(part), "{part}: {said}");
    }
    // Over one's quota with all nodes together.
    let admin = house.admin();
    admin.allow(&house, &person, json!({ "cpus": 6 })).await;
    let said = refused(&house, &person, json!({ "command": ["true"], "nodes": 4, "resources": { "cpus": 2 } })).await;
    assert!(said.contains("quota.cpus"), "{said}");
    // What Slurm knows and we do not is told in its own words.
    let id = submit(&house, &person, script("#SBATCH --qos=nowhere --constraint=nowhere")).await;
    let job = ended(&house, &person, &id, "launch_failed").await;
    assert!(job["detail"].as_str().unwrap().contains("Slurm rejected the job"), "{job}");
    assert_eq!(jobs(&cluster), 0, "nothing of all this came to Slurm");
}
