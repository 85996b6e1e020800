//! Qualities of service (QOS): what Slurm limits by them, and which of them a job has where nobody
//! names one. Asked of Slurm's accounting, and of the controller for the partition, at once for
//! everybody: the controller tells the limits of single users only while they hold something. What a
//! limit means for whom is somebody else's to decide.

use std::collections::BTreeMap;

use super::{
    accounting::{Amounts, Association},
    assoc_mgr::{amounts, limit_and_use},
    controller::{answer, command},
    settings::Settings,
    sinfo,
};

/// What one of them limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qos {
    pub name: String,
    /// `OverPartQOS`: it decides before that of the partition does.
    pub decides_first: bool,
    /// `GrpTRES`: what all of its jobs may hold together.
    pub together: Amounts,
    /// `MaxTRESPerUser`.
    pub each: Amounts,
    /// `MaxTRESPerJob`.
    pub one_job: Amounts,
    /// `GrpTRESMins`: what may be used in all, by Slurm's own count.
    pub minutes: Amounts,
    /// How many of its jobs may run at once: `GrpJobs`, and of one user `MaxJobsPerUser`.
    pub jobs: Option<i64>,
    pub jobs_each: Option<i64>,
    /// How many of them may be in Slurm at once: `GrpSubmitJobs`, and of one user `MaxSubmitJobsPerUser`.
    pub handed_in: Option<i64>,
    pub handed_in_each: Option<i64>,
    /// `MaxWall` (minutes).
    pub longest: Option<i64>,
}

impl Qos {
    /// Whether it is more than a name.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        let Self { name, decides_first, .. } = self.clone();
        *self != Self { name, decides_first, ..Self::default() }
    }
}

/// All of them, and who has which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosTable {
    all: BTreeMap<String, Qos>,
    /// What a job of an association has where nobody names one.
    usual: BTreeMap<Association, String>,
    /// What the settings name; empty where they name none.
    named: String,
    /// That of the partition which work goes to; empty where it has none.
    of_partition: String,
}

impl QosTable {
    /// Those that bind what the portal hands in for an association; of two that limit the same, the first decides.
    #[must_use]
    pub fn of(&self, association: &Association) -> Vec<&Qos> {
        let own = match self.named.as_str() {
            "" => self.usual.get(association),
            _named => Some(&self.named),
        };
        let own = own.and_then(|name| self.all.get(name));
        let of_partition = self.all.get(&self.of_partition);
        let mut found: Vec<&Qos> = of_partition.into_iter().chain(own).collect();
        found.dedup();
        found.sort_by_key(|qos| !qos.decides_first);
        found
    }

    #[cfg(test)]
    pub fn with(all: &[Qos], association: &Association, usual: &str, of_partition: &str) -> Self {
        Self {
            all: all.iter().map(|qos| (qos.name.clone(), qos.clone())).collect(),
            usual: [(association.clone(), usual.to_owned())].into(),
            named: String::new(),
            of_partition: of_partition.to_owned(),
        }
    }
}

const QOS: &str =
    "format=name,flags,grptres,maxtrespu,maxtres,grptresmins,grpjobs,maxjobspu,grpsubmit,maxsubmitpu,maxwall";
const USUAL: &str = "format=account,user,partition,qos,defaultqos";

/// Asks for all of it. An error is a sentence about who does not answer.
pub async fn read(settings: &Settings, cluster: &str) -> Result<QosTable, String> {
    let ask = async |tool: &str, words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        answer(command(settings, tool, words).await?)
    };
    let away = |why: String| format!("Slurm’s accounting does not respond: {why}");
    let listed = ask("sacctmgr", &["--noheader", "--parsable2", "show", "qos", QOS]).await.map_err(away)?;
    let of_cluster = format!("cluster={cluster}");
    let usual = ["--noheader", "--parsable2", "show", "assoc", "where", &of_cluster, USUAL];
    let usual = ask("sacctmgr", &usual).await.map_err(away)?;
    let partitions = ask("scontrol", &["--oneliner", "show", "partition"])
        .await
        .map_err(|why| format!("Slurm’s controller does not respond: {why}"))?;
    Ok(QosTable {
        all: parse(&listed)?,
        usual: parse_usual(&usual),
        named: settings.qos.to_ascii_lowercase(),
        of_partition: of_partition(&partitions, &settings.partition),
    })
}

/// A line each.
fn parse(text: &str) -> Result<BTreeMap<String, Qos>, String> {
    let odd = |line: &str| format!("unexpected line from Slurm’s accounting: {line:.100}");
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read = |line: &str| qos(line).map(|qos| (qos.name.clone(), qos)).ok_or_else(|| odd(line));
    lines.map(read).collect()
}

fn qos(line: &str) -> Option<Qos> {
    let fields: Vec<&str> = line.trim_end().split('|').map(str::trim).collect();
    let [name, flags, together, each, one_job, minutes, jobs, jobs_each, handed_in, handed_in_each, longest] =
        fields[..]
    else {
        return None;
    };
    Some(Qos {
        name: name.to_ascii_lowercase(),
        decides_first: flags.split(',').any(|flag| flag.eq_ignore_ascii_case("OverPartQOS")),
        together: amounts(together)?.0,
        each: amounts(each)?.0,
        one_job: amounts(one_job)?.0,
        minutes: amounts(minutes)?.0,
        jobs: limit_and_use(jobs)?.0,
        jobs_each: limit_and_use(jobs_each)?.0,
        handed_in: limit_and_use(handed_in)?.0,
        handed_in_each: limit_and_use(handed_in_each)?.0,
        longest: if longest.is_empty() { None } else { Some(sinfo::seconds(longest)? / 60) },
    })
}

/// As Slurm chooses: the association's own, else the only one that it may have, else the whole
/// cluster's. What is said of single partitions is not meant.
fn parse_usual(text: &str) -> BTreeMap<Association, String> {
    let (mut usual, mut open) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        let [account, user, "", allowed, default] = line.trim_end().split('|').collect::<Vec<_>>()[..] else {
            continue;
        };
        let user = (!user.is_empty()).then(|| user.to_owned());
        let association = Association { account: account.to_ascii_lowercase(), user };
        match (default, allowed) {
            ("", only) if only.is_empty() || only.contains(',') => open.push(association),
            ("", only) => drop(usual.insert(association, only.to_ascii_lowercase())),
            (default, _) => drop(usual.insert(association, default.to_ascii_lowercase())),
        }
    }
    let root = Association { account: "root".to_owned(), user: None };
    if let Some(of_cluster) = usual.get(&root).cloned() {
        usual.extend(open.into_iter().map(|association| (association, of_cluster.clone())));
    }
    usual
}

/// That of this partition, or of the one that work goes to where none is named.
fn of_partition(text: &str, name: &str) -> String {
    let is_it = |line: &&str| {
        let field = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default();
        if name.is_empty() { field("Default=") == "YES" } else { field("PartitionName=") == name }
    };
    let line = text.lines().find(is_it).unwrap_or_default();
    let qos = line.split(' ').find_map(|word| word.strip_prefix("QoS=")).unwrap_or_default();
    if qos == "N/A" { String::new() } else { qos.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By Slurm 22.05.8.
    const LISTED: &str = "normal||||||||||\n\
        gpu|DenyOnLimit,OverPartQOS|gres/gpu=5,mem=4G|cpu=6,gres/gpu=2|gres/gpu=1|gres/gpu=600|20|3|40|9|1-02:00:00\n";
    const USUAL: &str = "root||||\nroot|root||normal|\nlab||||\nlab|ada||gpu,normal|gpu\nlab|bob||gpu,normal|\n\
        lab|cleo||gpu|\nlab|dan|debug|gpu|gpu\n";
    const PARTITIONS: &str = "PartitionName=debug AllowQos=ALL Default=YES QoS=N/A State=UP\n\
        PartitionName=small AllowQos=ALL Default=NO QoS=Short State=UP\n";

    fn association(account: &str, user: Option<&str>) -> Association {
        Association { account: account.to_owned(), user: user.map(str::to_owned) }
    }

    #[test]
    fn what_the_accounting_said() {
        let all = parse(LISTED).unwrap();
        assert_eq!(all["normal"], Qos { name: "normal".to_owned(), ..Qos::default() });
        let gpu = &all["gpu"];
        assert_eq!((gpu.decides_first, gpu.together["mem"], gpu.each["gres/gpu"]), (true, 4096, 2));
        assert_eq!((gpu.one_job["gres/gpu"], gpu.minutes["gres/gpu"], gpu.longest), (1, 600, Some(1560)));
        let jobs = (gpu.jobs, gpu.jobs_each, gpu.handed_in, gpu.handed_in_each);
        assert_eq!(jobs, (Some(20), Some(3), Some(40), Some(9)));
        assert!(parse("").unwrap().is_empty());
        for odd in ["gpu", "gpu||x|||||||", "gpu|||||||||||", "gpu||cpu=x||||||||", "gpu||||||||||x"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn whose_is_which() {
        let usual = parse_usual(USUAL);
        let of = |user| usual.get(&association("lab", user)).map(String::as_str);
        assert_eq!((of(Some("ada")), of(Some("bob")), of(Some("cleo"))), (Some("gpu"), None, Some("gpu")));
        assert_eq!((of(Some("dan")), of(None)), (None, None), "of one partition alone; an account hands in nothing");
        let with_root = parse_usual(&USUAL.replacen("root||||", "root||||Normal", 1));
        assert_eq!(with_root[&association("lab", Some("bob"))], "normal");
        assert_eq!(
            (of_partition(PARTITIONS, ""), of_partition(PARTITIONS, "small")),
            (String::new(), "short".to_owned())
        );
        assert_eq!(of_partition(PARTITIONS, "nowhere"), "");
    }

    #[test]
    fn the_partitions_decides_first_where_nothing_else_is_said() {
        let named = |name: &str, decides_first| Qos { name: name.to_owned(), decides_first, ..Qos::default() };
        let ada = association("lab", Some("ada"));
        let qualities = |decides_first, named_here: &str| {
            let all = [named("gpu", decides_first), named("part", false), named("site", false)];
            QosTable { named: named_here.to_owned(), ..QosTable::with(&all, &ada, "gpu", "part") }
        };
        let order = |qualities: &QosTable| qualities.of(&ada).iter().map(|qos| qos.name.clone()).collect::<Vec<_>>();
        assert_eq!(order(&qualities(false, "")), ["part", "gpu"]);
        assert_eq!(order(&qualities(true, "")), ["gpu", "part"]);
        assert_eq!(order(&qualities(true, "site")), ["part", "site"]);
        assert_eq!(order(&qualities(true, "part")), ["part"]);
        assert_eq!(order(&QosTable { of_partition: String::new(), ..qualities(true, "gone") }), [""; 0]);
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_breaks_it(text in "[ -~\\n]{0,200}", cut in any::<prop::sample::Index>()) {
            let _ = (parse(&text), parse_usual(&text), of_partition(&text, ""));
            let _ = (parse(&LISTED[..cut.index(LISTED.len())]), parse_usual(&USUAL[..cut.index(USUAL.len())]));
        }
    }
}
