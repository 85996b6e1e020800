//! A job: a command or a script that runs once, without anybody watching. Each attempt of it is
//! a [`Session`] row, which says where it is in its life; here is what outlives an attempt.
//! Checking what somebody asks for is `jobs`' business.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    JobId, Resources, Session, SlurmOptions, SweepId, Timestamp, UserId,
    hold::Prerequisite,
    session::{UnknownWord, words},
};

words!(
    /// Who besides its owner and operators may look at a job.
    Visibility {
        Private = "private",
        /// Those who share a group with its owner.
        Group = "group",
        Everybody = "everybody",
    }
);

/// What a job runs, as it was asked for. It never changes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub work: JobProgram,
    /// Environment variables; those that the portal sets itself win.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// How often it is tried again by itself when it fails, and how long after a failure.
    #[serde(default)]
    pub retries: i64,
    #[serde(default)]
    pub retry_wait_seconds: i64,
    /// Which jobs have to end before its first attempt.
    #[serde(default)]
    pub after: Vec<Prerequisite>,
    /// Which task of a sweep it is.
    #[serde(default)]
    pub part: Option<Part>,
    #[serde(default)]
    pub shape: Shape,
    #[serde(default)]
    pub start: Start,
    /// Its retries are for attempts that were preempted or lost their node, and for no other end.
    #[serde(default)]
    pub requeue: bool,
    /// The numbers of the array that it is one of.
    #[serde(default)]
    pub array: Option<Array>,
    /// The tags that it was submitted with. The job's own tags can be changed later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The notes that it was submitted with. The job's own notes can be changed later.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// The portal submitted it for its owner, as a step of something else. Copied into the job's row.
    #[serde(skip)]
    pub is_helper: bool,
}

/// How the program of a job is started, and where its output goes besides the job's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Arguments of the script.
    pub arguments: Vec<String>,
    /// The environment is the one that the user's login shell makes.
    pub login_shell: bool,
    /// What Slurm's `--export` says; `None` is all.
    pub export: Option<String>,
    pub streams: Streams,
}

/// Files of the user's for the standard streams, as patterns of Slurm's (`run-%j.out`). Relative paths begin in
/// the working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streams {
    pub output: Option<String>,
    /// Left out, errors go where the output goes.
    pub error: Option<String>,
    pub input: Option<String>,
    /// Files that exist already are continued instead of emptied.
    pub append: bool,
}

/// The numbers of an array of jobs, as Slurm's variables name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    pub count: i64,
    pub min: i64,
    pub max: i64,
    pub step: i64,
}

/// One of the tasks of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub sweep: SweepId,
    pub index: i64,
    /// Which time the same values are tried: 0, 1, 2 …
    pub repeat: i64,
}

/// How a job lies over the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    pub nodes: i64,
    /// A command is started so many times on each node; a script starts its own tasks.
    pub tasks_per_node: i64,
    /// Further options of the batch system's, from the script's own lines: each begins with `--`.
    pub options: Vec<String>,
    /// The script is one of Slurm's: what it says of its size is among the options, as it was written.
    pub as_written: bool,
    /// Slurm chooses how the tasks lie over the nodes: sizes are those of the whole job, not of each node.
    pub is_spread: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { nodes: 1, tasks_per_node: 1, options: Vec::new(), as_written: false, is_spread: false }
    }
}

impl Shape {
    pub fn tasks(&self) -> i64 {
        self.nodes.saturating_mul(self.tasks_per_node)
    }

    /// What all nodes have together, where each has this; the same where sizes are of the whole job.
    #[must_use]
    pub fn whole(&self, each: Resources) -> Resources {
        if self.is_spread {
            return each;
        }
        let times = |amount: i64| amount.saturating_mul(self.nodes);
        Resources {
            gpus: times(each.gpus),
            cpus: times(each.cpus),
            memory_bytes: times(each.memory_bytes),
            gpu_model: each.gpu_model,
        }
    }

    /// What each node has of what all have together.
    #[must_use]
    pub fn share(&self, whole: Resources) -> Resources {
        if self.is_spread {
            return whole;
        }
        let part = |amount: i64| amount / self.nodes.max(1);
        Resources {
            gpus: part(whole.gpus),
            cpus: part(whole.cpus),
            memory_bytes: part(whole.memory_bytes),
            gpu_model: whole.gpu_model,
        }
    }

    /// With what was chosen of a Slurm cluster beside the script: it goes before the script's own lines.
    #[must_use]
    pub fn with(&self, chosen: &SlurmOptions) -> Self {
        let mut shape = self.clone();
        for (name, value) in chosen.chosen() {
            let prefix = format!("--{name}=");
            shape.options.retain(|option| !option.starts_with(&prefix));
            shape.options.push(format!("{prefix}{value}"));
        }
        shape
    }

    /// Whether one of its options is among these.
    #[must_use]
    pub fn says(&self, names: &[&str]) -> bool {
        let name = |option: &String| option.trim_start_matches('-').split('=').next().map(str::to_owned);
        self.options.iter().filter_map(name).any(|name| names.contains(&name.as_str()))
    }

    /// What one of its options says.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Names the program of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobProgram {
    /// The argument vector; no shell looks at it.
    Command(Vec<String>),
    /// The text of a script, which the program of its first line (`#!`) runs, else `/bin/sh`.
    Script(String),
}

impl JobProgram {
    /// In one line, for lists and titles.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Command(argv) => argv.join(" "),
            Self::Script(text) => {
                let telling = |line: &&str| !line.is_empty() && !line.starts_with('#');
                text.lines().map(str::trim).find(telling).unwrap_or_default().to_owned()
            }
        }
    }
}

/// Which attempt of which job a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub job: JobId,
    /// 1, 2, 3 …
    pub number: i64,
}

/// One job with its latest attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub owner: UserId,
    pub owner_name: String,
    pub name: String,
    /// Markdown.
    pub notes: String,
    pub tags: Vec<String>,
    pub starred: bool,
    pub visibility: Visibility,
    pub created_at: Timestamp,
    pub attempt: i64,
    /// How often it is still tried again by itself.
    pub retries_left: i64,
    /// The portal submitted it for its owner, as a step of something else: a dataset, a prediction, a preview.
    pub is_helper: bool,
    pub latest: Session,
}

impl Job {
    /// Where its program puts event files and checkpoints when nobody says: below the home.
    #[must_use]
    pub fn usual_log_directory(id: JobId, name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = name.chars().map(plain).take(40).collect();
        let name = name.trim_matches(['-', '.']);
        let end = end_of(id);
        if name.is_empty() { format!("runs/{end}") } else { format!("runs/{name}-{end}") }
    }

    /// Whether this folder is this job's because nobody said another.
    #[must_use]
    pub fn is_usual_log_directory(&self, folder: &str) -> bool {
        folder.starts_with("runs/") && folder.ends_with(&end_of(self.id))
    }
}

/// What tells a job's folder from those of others of its name.
fn end_of(id: JobId) -> String {
    let id = id.uuid().simple().to_string();
    id[id.len() - 8..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_in_one_line() {
        let script = "#!/bin/bash\n#SBATCH --gpus=1\n\n  python train.py\nexit 3\n";
        assert_eq!(JobProgram::Script(script.to_owned()).line(), "python train.py");
        assert_eq!(JobProgram::Script("# nothing".to_owned()).line(), "");
        assert_eq!(JobProgram::Command(vec!["echo".to_owned(), "a b".to_owned()]).line(), "echo a b");
    }

    #[test]
    fn a_folder_for_each_job_that_needs_no_quotes() {
        let id = JobId::new();
        let end = &id.to_string()[28..];
        for (name, folder) in [
            ("resnet 50, lr=0.1", format!("runs/resnet-50--lr-0.1-{end}")),
            ("../../etc", format!("runs/etc-{end}")),
            ("日本", format!("runs/{end}")),
        ] {
            assert_eq!(Job::usual_log_directory(id, name), folder);
        }
    }
}
