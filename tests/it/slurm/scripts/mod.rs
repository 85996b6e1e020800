//! Scripts of Slurm's, each run twice by the same user: by plain `sbatch` and as a job of the
//! portal. What they find in their environment, how they end and what they hear must be the same.
//! What is left out of the comparison is named here, with the reason.

mod code;
mod headers;
mod starts;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
};

use lyceum::helper::identity::Identity;
use serde_json::{Value, json};

use super::{cluster::Cluster, whole::on_with};
use crate::{
    life::{House, Person, jobs::submit},
    wait::eventually,
};

type Variables = BTreeMap<String, String>;

/// Somebody who may run scripts both ways.
struct Both {
    house: House,
    person: Person,
    cluster: Cluster,
    identity: Identity,
    /// Where the scripts run.
    folder: PathBuf,
}

/// The names of which the portal makes its own business: who and where a workload is.
const OURS: [&str; 2] = ["LYCEUM_", "XDG_RUNTIME_DIR"];

/// What differs between two jobs of plain `sbatch` as well: number, process and node.
const OF_EACH: [&str; 11] = [
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_TASK_PID",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_WORKING_CLUSTER",
    "HOSTNAME",
    "SLURM_ARRAY_JOB_ID",
    "_",
];

impl Both {
    async fn open(more: &str) -> Option<Self> {
        Self::with(more, &[]).await
    }

    /// With further variables of the portal's.
    async fn with(more: &str, variables: &[(&str, &str)]) -> Option<Self> {
        let (house, _, cluster) = on_with(Cluster::with(more)?, variables).await?;
        let name = house.unix_account("w");
        let person = house.person_as(&name);
        house.admin().allow(&house, &person, json!({ "jobs": -1, "pending": -1, "cpus": -1, "gpus": -1 })).await;
        let identity = Identity::facts(&name).unwrap();
        let folder = identity.home.join("work");
        let both = Self { house, person, cluster, identity, folder };
        both.directory("work");
        both.directory("told");
        Some(both)
    }

    /// A folder of the user's below the home.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.identity.home.join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(self.identity.uid), Some(self.identity.gid)).unwrap();
        path
    }

    /// Whatever a file of the user's says, once something is in it.
    async fn told(&self, path: &std::path::Path) -> String {
        eventually(&format!("{} is written", path.display()), async || {
            fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
        })
        .await
    }

    /// Hands a script in by `sbatch` in the environment of a login on this machine; answers the number.
    fn sbatch(&self, text: &str, arguments: &[&str]) -> Result<i32, String> {
        let script = self.folder.join("script.sh");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let Identity { uid, gid, home, name, .. } = &self.identity;
        let (uid, gid, conf) = (format!("--reuid={uid}"), format!("--regid={gid}"), self.cluster.conf());
        let home = home.display();
        let variables = [
            format!("HOME={home}"),
            format!("USER={name}"),
            format!("LOGNAME={name}"),
            "SHELL=/bin/sh".to_owned(),
            "LANG=C.UTF-8".to_owned(),
            "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
            format!("SLURM_CONF={}", conf.display()),
        ];
        let mut command = self.cluster.command("setpriv", &[&uid, &gid, "--init-groups", "env", "-i"]);
        command.args(&variables).args(["sbatch", "--parsable"]).arg(script).args(arguments).current_dir(&self.folder);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_err| said)
    }

    /// The same script as a job of the portal.
    async fn job(&self, text: &str) -> String {
        submit(&self.house, &self.person, Self::request(text)).await
    }

    fn request(text: &str) -> Value {
        json!({ "script": text, "sbatch": true, "working_directory": "work" })
    }

    /// Whether a script is refused before it comes to Slurm, and why.
    async fn refusal(&self, text: &str) -> Option<String> {
        let (status, answer) = self.person.ask(&self.house, "POST", "/jobs", &Self::request(text)).await;
        (status != 201).then(|| answer.to_string())
    }
}

/// `NAME=value`, each ended by a zero byte.
fn variables(bytes: &[u8]) -> Variables {
    let texts = bytes.split(|byte| *byte == 0).map(|line| String::from_utf8_lossy(line).into_owned());
    texts.filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// What is compared of an environment.
fn normal(mut found: Variables, with_memory: bool) -> Variables {
    if let (Some(ours), Some(path)) = (found.get("LYCEUM_BIN").cloned(), found.get_mut("PATH")) {
        // `lyceum` itself is found behind everything else.
        *path = path.trim_end_matches(&format!(":{ours}")).to_owned();
    }
    found.retain(|name, _| !OURS.iter().any(|ours| name.starts_with(ours)) && !OF_EACH.contains(&name.as_str()));
    if !with_memory {
        // The site's default by `sbatch`, the portal's by the portal.
        found.retain(|name, _| !name.starts_with("SLURM_MEM_PER_"));
    }
    for name in
        ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_JOB_GPUS"]
    {
        // How many; which ones is Slurm's to choose.
        if let Some(devices) = found.get_mut(name) {
            *devices = devices.split(',').count().to_string();
        }
    }
    found
}
