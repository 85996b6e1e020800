//! `[scheduler.slurm]`: where Slurm is, and what of it the portal's workloads go to. Values
//! become single arguments of Slurm's commands; what could be taken for anything else than a
//! value is a fault.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer};

use lyceum_model::setting::{list, seconds};

/// What can be set. Empty means: as Slurm itself decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What the cluster is called on pages and in the API.
    pub name: String,
    /// Slurm's configuration (`SLURM_CONF`); empty: in its usual place.
    pub conf: PathBuf,
    /// The directory of `sbatch` and the other commands.
    pub bin: PathBuf,
    /// Holds a directory for each workload, at the same path on every node; empty: this
    /// machine's own, for a cluster of this machine alone.
    pub run: PathBuf,
    /// The path of `lyceum` on the nodes; empty: the copy in the data directory, which the
    /// nodes must see then.
    pub program: PathBuf,
    /// The library of the GPU driver on the nodes; empty: where their linker finds it.
    pub nvml: PathBuf,
    pub partition: String,
    /// What is charged to no group that [`Settings::accounts`] names.
    pub account: String,
    /// Slurm's accounts of groups, by the names of the groups.
    pub accounts: BTreeMap<String, String>,
    pub qos: String,
    pub reservation: String,
    pub constraint: String,
    /// How often the queue is looked at while all runs steadily (seconds); five times as often
    /// while something waits.
    #[serde(deserialize_with = "seconds")]
    pub interval: i64,
    /// Further options of `sbatch`, of those in [`ARGUMENTS`].
    #[serde(deserialize_with = "list")]
    pub arguments: Vec<String>,
    /// Who keeps the quotas.
    pub quotas: Quotas,
    /// What users may choose for a session or a job.
    pub choices: Choices,
}

/// The values that users may choose, of those that Slurm lets them use. Left out: all of these; empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Choices {
    #[serde(deserialize_with = "some_list")]
    pub partitions: Option<Vec<String>>,
    #[serde(deserialize_with = "some_list")]
    pub accounts: Option<Vec<String>>,
    #[serde(deserialize_with = "some_list")]
    pub qos: Option<Vec<String>>,
    #[serde(deserialize_with = "some_list")]
    pub reservations: Option<Vec<String>>,
    /// Features of nodes.
    #[serde(deserialize_with = "some_list")]
    pub constraints: Option<Vec<String>>,
}

impl Choices {
    /// Each with the option of `sbatch` that it is for, and with its key.
    pub(super) fn entries(&self) -> [(&'static str, &'static str, Option<&Vec<String>>); 5] {
        [
            ("partition", "partitions", self.partitions.as_ref()),
            ("account", "accounts", self.accounts.as_ref()),
            ("qos", "qos", self.qos.as_ref()),
            ("reservation", "reservations", self.reservations.as_ref()),
            ("constraint", "constraints", self.constraints.as_ref()),
        ]
    }
}

fn some_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    list(deserializer).map(Some)
}

/// Who says how much somebody may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quotas {
    /// The portal, beside whatever Slurm's own limits say.
    #[default]
    Portal,
    /// The portal, which also writes into the accounts of groups what Slurm can keep people to.
    Mirror,
    /// Slurm: its limits are read, shown, and bind; the portal has none of its own for the same.
    Read,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "slurm".to_owned(),
            conf: PathBuf::new(),
            bin: "/usr/bin".into(),
            run: PathBuf::new(),
            program: PathBuf::new(),
            nvml: PathBuf::new(),
            partition: String::new(),
            account: String::new(),
            accounts: BTreeMap::new(),
            qos: String::new(),
            reservation: String::new(),
            constraint: String::new(),
            interval: 10,
            arguments: Vec::new(),
            quotas: Quotas::Portal,
            choices: Choices::default(),
        }
    }
}

/// The options that a site may add. Those that the portal sets itself, and those that change
/// who or what runs, are not among them.
const ARGUMENTS: [&str; 14] = [
    "cores-per-socket",
    "cpu-freq",
    "exclude",
    "exclusive",
    "hint",
    "licenses",
    "network",
    "nice",
    "nodelist",
    "prefer",
    "switches",
    "threads-per-core",
    "tmp",
    "wckey",
];

impl Settings {
    /// Every fault, with its key.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, what: &str| faults.push(format!("scheduler.slurm.{key}: {what}"));
        if self.name.is_empty() || !self.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            fault("name", "must be a name of letters, digits, `-`, `_` and `.`");
        }
        let paths = [
            ("conf", &self.conf),
            ("bin", &self.bin),
            ("run", &self.run),
            ("program", &self.program),
            ("nvml", &self.nvml),
        ];
        for (key, path) in paths {
            let is_plain = path.to_str().is_some_and(|path| path.bytes().all(is_in_path));
            let is_set = !path.as_os_str().is_empty();
            if is_set && (path.is_relative() || !is_plain) {
                fault(key, "must be an absolute path of letters, digits, `/`, `-`, `_`, `.` and `+`");
            }
        }
        if self.bin.as_os_str().is_empty() {
            fault("bin", "must be the directory of Slurm's commands, such as /usr/bin");
        }
        let values = [
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("reservation", &self.reservation),
            ("constraint", &self.constraint),
        ];
        for (key, value) in values {
            if value.starts_with('-') || !value.bytes().all(is_in_value) {
                fault(key, "contains a character that Slurm names cannot have");
            }
        }
        if self.accounts.values().any(|account| account.is_empty() || !account.bytes().all(is_in_account)) {
            fault(
                "accounts",
                "must name one account for each group, of letters, digits, `-`, `_`, `.`, `+`, `@` and `:`",
            );
        }
        if self.quotas == Quotas::Mirror {
            let mut named: Vec<&String> = self.accounts.values().collect();
            named.sort_unstable();
            if named.is_empty() {
                fault(
                    "accounts",
                    "quotas = \"mirror\" writes limits to the accounts of groups: list at least one here",
                );
            } else if let Some([twice, ..]) = named.windows(2).find(|pair| pair[0] == pair[1]) {
                let what = format!(
                    "with quotas = \"mirror\" each group needs its own account; `{twice}` belongs to two groups"
                );
                fault("accounts", &what);
            }
        }
        for (_, key, listed) in self.choices.entries() {
            let is_name = |name: &String| !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_in_account);
            if !listed.is_none_or(|listed| listed.iter().all(is_name)) {
                fault(&format!("choices.{key}"), "must be names of letters, digits, `-`, `_`, `.`, `+`, `@` and `:`");
            }
        }
        if !(2..=300).contains(&self.interval) {
            fault("interval", "must be between 2s and 5m");
        }
        for argument in &self.arguments {
            let option = argument.strip_prefix("--").unwrap_or_default();
            let name = option.split('=').next().unwrap_or_default();
            if !ARGUMENTS.contains(&name) || !option.bytes().all(is_in_value) {
                let known = ARGUMENTS.map(|name| format!("--{name}")).join(", ");
                fault("arguments", &format!("`{argument}` is not one of {known}"));
            }
        }
        faults
    }

    /// So many tenths of the interval.
    pub(super) fn tenths(&self, tenths: u64) -> Duration {
        Duration::from_millis(self.interval.unsigned_abs().saturating_mul(100 * tenths))
    }

    /// What Slurm charges for work that is charged to this group; empty: what it charges by itself.
    pub(super) fn account_of(&self, group: Option<&str>) -> &str {
        group.and_then(|group| self.accounts.get(group)).unwrap_or(&self.account)
    }

    /// The path of one of Slurm's commands.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    pub fn conf(&self) -> Option<PathBuf> {
        (!self.conf.as_os_str().is_empty()).then(|| self.conf.clone())
    }
}

/// What stands in a batch script between quotes, and in an option with a pattern of Slurm's.
fn is_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-_.+".contains(&byte)
}

/// Lists, ranges and conditions, as Slurm writes them.
fn is_in_value(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.,:+*&|()[]=@/!".contains(&byte)
}

/// One account's name, in lists of such too.
fn is_in_account(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.+@:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_something_else_is_a_fault() {
        assert_eq!(Settings::default().validate(), Vec::<String>::new());
        let good = Settings {
            conf: "/etc/slurm/slurm.conf".into(),
            constraint: "[rack1|rack2]&a100*2".to_owned(),
            partition: "gpu,long".to_owned(),
            arguments: ["--exclusive=user", "--nice", "--exclude=n[1-3],x"].map(str::to_owned).into(),
            ..Settings::default()
        };
        assert_eq!(good.validate(), Vec::<String>::new());
        for (key, bad) in [
            ("conf", Settings { conf: "slurm.conf".into(), ..Settings::default() }),
            ("run", Settings { run: "/shared/it's".into(), ..Settings::default() }),
            ("run", Settings { run: "/shared/%u".into(), ..Settings::default() }),
            ("partition", Settings { partition: "--uid=0".to_owned(), ..Settings::default() }),
            ("qos", Settings { qos: "a\n#SBATCH --nice".to_owned(), ..Settings::default() }),
            ("account", Settings { account: "a b".to_owned(), ..Settings::default() }),
            (
                "accounts",
                Settings { accounts: [("vision".to_owned(), "a b".to_owned())].into(), ..Settings::default() },
            ),
            (
                "accounts",
                Settings { accounts: [("vision".to_owned(), "lab,ml".to_owned())].into(), ..Settings::default() },
            ),
            ("accounts", Settings { quotas: Quotas::Mirror, ..Settings::default() }),
            (
                "accounts",
                Settings {
                    quotas: Quotas::Mirror,
                    accounts: ["vision", "speech"].map(|group| (group.to_owned(), "lab".to_owned())).into(),
                    ..Settings::default()
                },
            ),
            (
                "choices.qos",
                Settings {
                    choices: Choices { qos: Some(vec!["a,b".to_owned()]), ..Choices::default() },
                    ..Settings::default()
                },
            ),
            ("name", Settings { name: String::new(), ..Settings::default() }),
            ("bin", Settings { bin: PathBuf::new(), ..Settings::default() }),
            ("interval", Settings { interval: 1, ..Settings::default() }),
            ("interval", Settings { interval: 301, ..Settings::default() }),
            ("arguments", Settings { arguments: vec!["--uid=0".to_owned()], ..Settings::default() }),
            ("arguments", Settings { arguments: vec!["--export=ALL".to_owned()], ..Settings::default() }),
            ("arguments", Settings { arguments: vec!["nice".to_owned()], ..Settings::default() }),
        ] {
            let faults = bad.validate();
            assert!(faults.len() == 1 && faults[0].starts_with(&format!("scheduler.slurm.{key}: ")), "{faults:?}");
        }
    }
}
