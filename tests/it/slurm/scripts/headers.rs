//! The headers that tutorials and sites write, each run both ways: a header that is accepted is
//! obeyed, to the variable. And what cannot be obeyed: the sentence says why, and nothing comes
//! to Slurm.

use std::{fs, path::Path};

use super::{Both, Variables, normal, variables};
use crate::{
    life::jobs::{job, state},
    slurm::whole::jobs,
    wait::eventually,
};

/// On one node, so that all of them may run at the same time.
const ON_ONE_NODE: [&str; 63] = [
    "",
    "-J train",
    "--job-name=a.b-c",
    "-N 1",
    "--nodes=1-1",
    "-n 1",
    "--ntasks=1 --nodes=1",
    "-N1 -n 2",
    "--nodes=1 --ntasks-per-node=2",
    "-c 2",
    "--cpus-per-task=2 --ntasks=1",
    "-N1 -n2 -c2",
    "--mem=300M",
    "--mem=300",
    "--mem-per-cpu=200M",
    "--mem-per-cpu=100 -c 2",
    "--gres=gpu:1",
    "--gres=gpu",
    "--gres=gpu:a100:1",
    "--gres=none",
    "--gpus=1",
    "-G a100:1",
    "--gpus-per-node=1",
    "--gpus-per-node=a100:1",
    "-N1 --gpus-per-task=1 -n 1",
    "-N1 --gpus=1 --cpus-per-gpu=2",
    "-N1 --gpus=1 --mem-per-gpu=300M",
    "-N1 --gpus=1 --ntasks-per-gpu=2",
    "--mincpus=2",
    "--threads-per-core=1",
    "--ntasks-per-core=1",
    "--ntasks-per-socket=2 -N1 -n2",
    "--cores-per-socket=2",
    "--sockets-per-node=1",
    "-B 1:4",
    "--hint=nomultithread",
    "--hint=compute_bound",
    "-m block",
    "--distribution=cyclic:block",
    "-t 5",
    "--time=00:00:30",
    "--time=0-1",
    "--time-min=1 --time=5",
    "--deadline=now+30minutes --time=5",
    "-b now",
    "--nice",
    "--nice=100",
    "-p debug",
    "--partition small --time=2",
    "-p small",
    "--ntasks-per-node=2",
    "--exclusive=user --hint=multithread",
    "-x node4",
    "--mail-type=END,FAIL --mail-user=a@b.example",
    "--requeue",
    "--no-requeue",
    "--no-kill",
    "-s",
    "--oversubscribe --contiguous",
    "--kill-on-invalid-dep=yes",
    "--wait-all-nodes=1",
    "--signal=B:USR1@60 --time=5",
    "--comment='of mine' --propagate=NONE --profile=none --switches=1",
];

/// Where Slurm chooses how it lies over the nodes: one after the other, on an empty cluster.
const ON_SEVERAL: [&str; 15] = [
    "--ntasks=8",
    "--ntasks=7 --nodes=2",
    "--nodes=1-2",
    "-N 2",
    "-N 2 --ntasks-per-node=2 -c 2",
    "--gpus=4 --nodes=2",
    "-N 2-2 --gpus-per-node=1",
    "-n 2 --ntasks-per-node=1",
    "--ntasks=4 --mem-per-cpu=100M",
    "-n 4 --spread-job",
    "-n 2 --gpus-per-task=1",
    "--exclusive",
    "--mem=0",
    "-O -n4 -N1",
    "-w node3 --exclusive=user",
];

const MIB: i64 = 1 << 20;

fn script(header: &str, to: &Path) -> String {
    let to = to.display();
    format!(
        "#!/bin/bash\n#SBATCH {header}\nenv -0 > {to}/env-$SLURM_JOB_ID.part && mv {to}/env-$SLURM_JOB_ID.part {to}/env-$SLURM_JOB_ID\nexit 3\n"
    )
}

impl Both {
    fn read(path: &Path) -> Option<Variables> {
        fs::read(path).ok().map(|bytes| variables(&bytes))
    }

    /// What a job of `sbatch` has found.
    async fn found_plain(&self, header: &str, to: &Path) -> Variables {
        let number = self.sbatch(&script(header, to), &[]).unwrap_or_else(|said| panic!("{header}: {said}"));
        let path = to.join(format!("env-{number}"));
        eventually(&format!("sbatch runs {header}"), async || Self::read(&path)).await
    }

    /// What a job of the portal has found; its end is the same as by `sbatch`.
    async fn found_ours(&self, header: &str, to: &Path, id: &str) -> Variables {
        let ended = state(&self.house, &self.person, id, "ended").await;
        assert_eq!((&ended["end_reason"], &ended["exit_code"]), (&"exited".into(), &3.into()), "{header}: {ended}");
        let files = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path());
        let all = files.filter_map(|path| Self::read(&path));
        let own = all.into_iter().find(|found| found.get("LYCEUM_JOB").is_some_and(|job| job == id));
        own.unwrap_or_else(|| panic!("{header}: nothing was told"))
    }

    async fn compare(&self, header: &str, plain: Variables, to: &Path, id: &str) -> Vec<String> {
        let ours = self.found_ours(header, to, id).await;
        let with_memory = header.contains("--mem");
        let (mut plain, mut ours) = (normal(plain, with_memory), normal(ours, with_memory));
        if !header.contains("-J") && !header.contains("--job-name") {
            // By the name of a file, and by its first command.
            plain.remove("SLURM_JOB_NAME");
            ours.remove("SLURM_JOB_NAME");
        }
        if header.contains("-c") || header.contains("--cpus-per-task") {
            // Numerical libraries keep to the cores of their task, where a script says how many.
            ours.retain(|name, _| !name.ends_with("_NUM_THREADS") && name != "NUMEXPR_MAX_THREADS");
        }
        let names = plain.keys().chain(ours.keys()).collect::<std::collections::BTreeSet<_>>();
        let differs = |name: &&&String| plain.get(**name) != ours.get(**name);
        let told =
            |name: &String| format!("[{header}] {name}: sbatch {:?}, portal {:?}", plain.get(name), ours.get(name));
        names.iter().filter(differs).map(|name| told(name)).collect()
    }
}

#[tokio::test]
async fn common_headers_mean_the_same_as_by_sbatch() {
    let Some(both) = Both::open("").await else { return };
    let to = both.identity.home.join("told");
    let mut differences = Vec::new();
    let mut ids = Vec::new();
    for header in ON_ONE_NODE {
        ids.push((header, both.job(&script(header, &to)).await));
    }
    for (header, id) in ids {
        let plain = both.found_plain(header, &to).await;
        differences.extend(both.compare(header, plain, &to, &id).await);
    }
    for header in ON_SEVERAL {
        eventually("the cluster is empty", async || {
            both.cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())
        })
        .await;
        let plain = both.found_plain(header, &to).await;
        eventually("the cluster is empty", async || {
            both.cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())
        })
        .await;
        let id = both.job(&script(header, &to)).await;
        differences.extend(both.compare(header, plain, &to, &id).await);
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Whole nodes and spread tasks are charged as what Slurm then gives.
#[tokio::test]
async fn what_is_held_is_charged() {
    let Some(both) = Both::open("").await else { return };
    both.cluster.set_nodes("drain");
    for (header, wanted) in [
        ("--exclusive --mem=1G", (4, 2, 1024)),
        ("--mem=0", (1, 0, 4096)),
        ("--exclusive -N2 --mem=0", (8, 4, 8192)),
        ("--ntasks=8 -c 1 --mem-per-cpu=100M", (8, 0, 800)),
        ("--ntasks=7 --nodes=2 --mem=100M", (7, 0, 200)),
        ("--nodes=1-2 --mem=100M", (2, 0, 200)),
        ("--gpus=3 --cpus-per-gpu=2 --mem-per-gpu=100M", (6, 3, 300)),
    ] {
        let id = both.job(&format!("#!/bin/sh\n#SBATCH {header}\ntrue\n")).await;
        let asked = job(&both.house, &both.person, &id).await["resources"].clone();
        let found = ["cpus", "gpus", "memory_bytes"].map(|what| asked[what].as_i64().unwrap());
        assert_eq!((found[0], found[1], found[2] / MIB), wanted, "{header}: {asked}");
    }
}

/// What is refused says why, and nothing of it comes to Slurm.
#[tokio::test]
async fn what_cannot_be_obeyed_says_why() {
    let Some(both) = Both::open("").await else { return };
    for (lines, part) in [
        ("#SBATCH --ntasks=1\n#SBATCH hetjob\n#SBATCH --ntasks=2", "line 3: heterogeneous jobs"),
        ("#SBATCH --dependency=afterok:1", "`after`"),
        ("#SBATCH --uid=0", "user who submits"),
        ("#SBATCH --wait", "responds immediately"),
        ("#SBATCH --container=/x", "would not run"),
        ("#SBATCH --export-file=x", "is not read"),
        ("#SBATCH --ntasks=99", "99 × cores; all nodes together have 16"),
        ("#SBATCH --gpus=9", "9 × GPUs; all nodes together have 8"),
        ("#SBATCH --exclusive -N 5", "5 nodes; only 4"),
        ("#PBS -l nodes=1", "`#PBS` lines are not supported"),
    ] {
        let said = both.refusal(&format!("#!/bin/bash\n{lines}\ntrue\n")).await.unwrap_or_default();
        assert!(said.contains(part), "{lines}: {said}");
    }
    assert_eq!(jobs(&both.cluster), 0);
}
