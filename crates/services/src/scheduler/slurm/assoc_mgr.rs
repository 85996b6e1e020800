//! What Slurm's controller keeps people to, and what they hold of it: `scontrol show assoc_mgr`,
//! one answer for everybody, however many there are. Of it are read the limits of associations
//! that the portal has a word for; those by QOS are `qos`'s. What a limit means for whom is somebody
//! else's to decide.

use super::{
    accounting::{Amounts, Association, is_enforced, number},
    controller::{answer, command, slurm_user, value},
    queue::unreadable,
    settings::Settings,
};

/// All of it, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssociationSnapshot {
    /// Slurm's own name of the cluster.
    pub cluster: String,
    /// The account that Slurm itself runs as, from which nothing is hidden.
    pub slurm_user: String,
    /// Whether Slurm keeps anybody to limits of associations.
    pub is_enforced: bool,
    /// `PrivateData`: what Slurm hides from those who are no operators.
    pub hidden: String,
    pub records: Vec<Record>,
    /// Associations with single partitions, whose limits are not read.
    pub by_partition: usize,
}

/// One association: an account, or somebody's share of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub association: Association,
    /// The account above, where this is an account that has one.
    pub parent: Option<String>,
    /// Whether its user's work is charged to it where nothing is said.
    pub is_default: bool,
    /// `GrpTRES`: what may be held at once, and what is.
    pub together: Amounts,
    pub held: Amounts,
    /// `MaxTRESPerJob`: what one job may hold.
    pub one_job: Amounts,
    /// How many jobs may run at once, and how many do: `GrpJobs`, and of one user `MaxJobs`.
    pub jobs: Option<i64>,
    pub jobs_each: Option<i64>,
    pub running: i64,
    /// How many jobs may be in Slurm at once, those that wait in its queue too: `GrpSubmitJobs`, and of
    /// one user `MaxSubmitJobs`.
    pub handed_in: Option<i64>,
    pub handed_in_each: Option<i64>,
    /// `MaxWall` (minutes).
    pub longest: Option<i64>,
    /// `GrpTRESMins`: what may be used in all, by Slurm's own count, which it lets decay or sets back.
    pub minutes: Amounts,
}

/// Asks the controller, twice. An error is a sentence about who does not answer.
pub async fn read(settings: &Settings) -> Result<AssociationSnapshot, String> {
    let away = |why: String| format!("Slurm’s controller does not respond: {why}");
    let ask = async |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        answer(command(settings, "scontrol", words).await?)
    };
    let config = ask(&["show", "config"]).await.map_err(away)?;
    let said = ask(&["--oneliner", "show", "assoc_mgr", "flags=assoc"]).await.map_err(away)?;
    snapshot(&config, &said)
}

/// Without its headings, or cut off in the midst of a line, an answer says less than there is.
fn snapshot(config: &str, said: &str) -> Result<AssociationSnapshot, String> {
    if value(config, "ClusterName").is_empty() || !said.contains("Association Records") || !said.ends_with('\n') {
        return Err(unreadable("scontrol show assoc_mgr", said.lines().last().unwrap_or_default()));
    }
    let (records, by_partition) = parse(said)?;
    Ok(AssociationSnapshot {
        cluster: value(config, "ClusterName").to_owned(),
        slurm_user: slurm_user(config).to_owned(),
        is_enforced: is_enforced(value(config, "AccountingStorageEnforce")),
        hidden: value(config, "PrivateData").to_owned(),
        records,
        by_partition,
    })
}

/// A line an association. Those with a single partition are counted alone.
fn parse(text: &str) -> Result<(Vec<Record>, usize), String> {
    let (mut records, mut by_partition) = (Vec::new(), 0);
    for line in text.lines() {
        // A name with a space in it is none that the settings could name.
        let Some((association, partition, rest)) = whose(line) else { continue };
        if !partition.is_empty() {
            by_partition += 1;
            continue;
        }
        let odd = || format!("unexpected line from Slurm’s controller: {line:.100}");
        records.push(record(association, &rest).ok_or_else(odd)?);
    }
    Ok((records, by_partition))
}

/// A record's fields by their names, as they stand in a line.
type Fields<'a> = Vec<(&'a str, &'a str)>;

/// `ClusterName=test Account=lab UserName=ada(2001) Partition= …`
fn whose(line: &str) -> Option<(Association, &str, Fields<'_>)> {
    let mut words = line.trim().split(' ');
    let mut next = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
    let (_cluster, account, user, partition) =
        (next("ClusterName")?, next("Account")?, next("UserName")?, next("Partition")?);
    let user = user.rsplit_once('(').map_or(user, |(name, _uid)| name);
    let user = (!user.is_empty()).then(|| user.to_owned());
    let association = Association { account: account.to_ascii_lowercase(), user };
    Some((association, partition, words.filter_map(|word| word.split_once('=')).collect()))
}

fn record(association: Association, fields: &[(&str, &str)]) -> Option<Record> {
    let text = |key: &str| fields.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| *value);
    let parent = text("ParentAccount").split('(').next().unwrap_or_default();
    let (jobs, running) = limit_and_use(text("GrpJobs"))?;
    let (together, held) = amounts(text("GrpTRES"))?;
    Some(Record {
        parent: (!parent.is_empty()).then(|| parent.to_ascii_lowercase()),
        is_default: text("DefAssoc") == "Yes",
        together,
        held,
        one_job: amounts(text("MaxTRESPJ"))?.0,
        jobs,
        jobs_each: limit_and_use(text("MaxJobs"))?.0,
        handed_in: limit_and_use(text("GrpSubmitJobs"))?.0,
        handed_in_each: limit_and_use(text("MaxSubmitJobs"))?.0,
        running: running.unwrap_or(0),
        longest: limit_and_use(text("MaxWallPJ"))?.0,
        minutes: amounts(text("GrpTRESMins"))?.0,
        association,
    })
}

/// `cpu=2(1),mem=N(256)`: limits, and what is held.
pub(super) fn amounts(text: &str) -> Option<(Amounts, Amounts)> {
    let (mut limits, mut held) = (Amounts::new(), Amounts::new());
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (kind, said) = part.split_once('=')?;
        let (limit, used) = limit_and_use(said)?;
        limits.extend(limit.map(|limit| (kind.to_owned(), limit)));
        held.extend(used.map(|used| (kind.to_owned(), used)));
    }
    Some((limits, held))
}

/// `2(1)`, `N(1)`, `2` or nothing.
pub(super) fn limit_and_use(text: &str) -> Option<(Option<i64>, Option<i64>)> {
    let (limit, used) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((limit, used)) => (limit, Some(number(used)?)),
        None => (text, None),
    };
    let limit = if ["", "N", "NONE", "UNLIMITED"].contains(&limit) { None } else { Some(number(limit)?) };
    Some((limit, used))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By Slurm 22.05.8, while a job of ada's runs and another waits.
    const RECORDED: &str = "Current Association Manager state\nAssociation Records\n\
        ClusterName=test Account=root UserName= Partition= Priority=0 ID=1 \
        SharesRaw/Norm/Level/Factor=1/0.00/1/0.00 UsageRaw/Norm/Efctv=2.00/1.00/1.00 ParentAccount= \
        Lft=1 DefAssoc=No GrpJobs=N(1) GrpJobsAccrue=N(1) GrpSubmitJobs=N(2) GrpWall=N(0.02) \
        GrpTRES=cpu=N(1),mem=N(256),energy=N(0),node=N(1),billing=N(1),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(1) \
        GrpTRESMins=cpu=N(0),mem=N(4),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        GrpTRESRunMins=cpu=N(10),mem=N(2560),energy=N(0),node=N(10),billing=N(10),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(10) \
        MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ= MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= \
        MinPrioThresh=\n\
        ClusterName=test Account=lab UserName= Partition= Priority=0 ID=7 \
        SharesRaw/Norm/Level/Factor=1/0.33/3/0.00 UsageRaw/Norm/Efctv=2.00/1.00/1.00 \
        ParentAccount=root(1) Lft=2 DefAssoc=No GrpJobs=9(1) GrpJobsAccrue=N(1) GrpSubmitJobs=N(2) \
        GrpWall=N(0.02) \
        GrpTRES=cpu=6(1),mem=N(256),energy=N(0),node=N(1),billing=N(1),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=3(1) \
        GrpTRESMins=cpu=N(0),mem=N(4),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=6000(0) \
        GrpTRESRunMins=cpu=N(10),mem=N(2560),energy=N(0),node=N(10),billing=N(10),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(10) \
        MaxJobs=5(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=60 MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= \
        MinPrioThresh=\n\
        ClusterName=test Account=lab UserName=ada(2001) Partition= Priority=0 ID=8 \
        SharesRaw/Norm/Level/Factor=1/0.33/3/0.20 UsageRaw/Norm/Efctv=2.00/1.00/1.00 ParentAccount= \
        Lft=9 DefAssoc=No GrpJobs=N(1) GrpJobsAccrue=N(1) GrpSubmitJobs=N(2) GrpWall=600(0.02) \
        GrpTRES=cpu=2(1),mem=3072(256),energy=N(0),node=N(1),billing=N(1),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=1(1) \
        GrpTRESMins=cpu=N(0),mem=N(4),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        GrpTRESRunMins=cpu=N(10),mem=N(2560),energy=N(0),node=N(10),billing=N(10),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(10) \
        MaxJobs=3(1) MaxJobsAccrue= MaxSubmitJobs=7(2) MaxWallPJ=1560 MaxTRESPJ=gres/gpu=1 MaxTRESPN= \
        MaxTRESMinsPJ= MinPrioThresh=\n\
        ClusterName=test Account=child UserName= Partition= Priority=0 ID=10 \
        SharesRaw/Norm/Level/Factor=1/0.33/3/0.00 UsageRaw/Norm/Efctv=0.00/1.00/0.00 \
        ParentAccount=lab(7) Lft=3 DefAssoc=No GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) \
        GrpWall=N(0.00) \
        GrpTRES=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        GrpTRESMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        GrpTRESRunMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        MaxJobs=5(0) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=60 MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= \
        MinPrioThresh=\n\
        ClusterName=test Account=child UserName=bob(2002) Partition=debug Priority=0 ID=11 \
        SharesRaw/Norm/Level/Factor=1/1.00/1/0.00 UsageRaw/Norm/Efctv=0.00/1.00/0.00 ParentAccount= \
        Lft=4 DefAssoc=No GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00) \
        GrpTRES=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        GrpTRESMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        GrpTRESRunMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),gres/gpu=N(0) \
        MaxJobs=5(0) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=60 MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= \
        MinPrioThresh=\n";

    fn some(list: &[(&str, i64)]) -> Amounts {
        list.iter().map(|(kind, amount)| ((*kind).to_owned(), *amount)).collect()
    }

    #[test]
    fn what_a_controller_said() {
        let (records, by_partition) = parse(RECORDED).unwrap();
        let names: Vec<_> =
            records.iter().map(|one| (one.association.account.as_str(), one.association.user.as_deref())).collect();
        assert_eq!(names, [("root", None), ("lab", None), ("lab", Some("ada")), ("child", None)]);
        assert_eq!(by_partition, 1, "bob has a partition of child alone");
        let [root, lab, ada, child] = &records[..] else { panic!("{records:?}") };
        assert_eq!((root.parent.as_deref(), &root.together), (None, &Amounts::new()));
        assert_eq!(lab.together, some(&[("cpu", 6), ("gres/gpu", 3)]));
        assert_eq!((lab.held["gres/gpu"], lab.held["mem"], lab.running), (1, 256, 1));
        assert_eq!((lab.jobs, lab.jobs_each, lab.parent.as_deref()), (Some(9), Some(5), Some("root")));
        assert_eq!(lab.minutes, some(&[("gres/gpu", 6000)]));
        assert_eq!(ada.together, some(&[("cpu", 2), ("gres/gpu", 1), ("mem", 3072)]));
        assert_eq!((ada.handed_in, ada.handed_in_each, lab.handed_in_each), (None, Some(7), None));
        assert_eq!((ada.jobs, ada.jobs_each, ada.longest, ada.is_default), (None, Some(3), Some(1560), false));
        assert_eq!(ada.one_job, some(&[("gres/gpu", 1)]));
        assert_eq!((child.parent.as_deref(), child.longest), (Some("lab"), Some(60)), "it has what is above");
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        let config = "ClusterName             = test\n";
        assert_eq!(snapshot(config, RECORDED).unwrap().records.len(), 4);
        let half = &RECORDED[..RECORDED.len() - 40];
        for (config, said) in [("", RECORDED), (config, half), (config, ""), (config, "what?\n")] {
            assert!(snapshot(config, said).unwrap_err().contains("unexpected output of scontrol"), "{said}");
        }
    }

    #[test]
    fn what_is_odd_is_no_limit() {
        assert_eq!(parse("").unwrap(), (Vec::new(), 0));
        let line = |fields: &str| format!("ClusterName=c Account=Lab UserName=ada Partition= {fields}");
        let read = |fields: &str| parse(&line(fields)).map(|(records, _)| records);
        assert_eq!(read("").unwrap()[0].association.account, "lab");
        assert_eq!(read("MaxTRESPJ=mem=4G,gres/gpu:a100=2").unwrap()[0].one_job["mem"], 4096);
        for odd in ["GrpTRES=cpu", "GrpTRES=cpu=x(1)", "GrpJobs=1(x)", "MaxWallPJ=1-0", "GrpTRES=mem=9999999999P(0)"] {
            assert!(read(odd).is_err(), "{odd}");
        }
        assert_eq!(parse("ClusterName=c Account=a b UserName=x Partition=").unwrap().0, []);
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_breaks_it(
            text in "[ -~\\n]{0,200}", fields in "[A-Za-z=(),:/0-9NGPT. ]{0,80}", cut in any::<prop::sample::Index>(),
        ) {
            let _ = parse(&text);
            let _ = parse(&format!("ClusterName=c Account=a UserName=u(1) Partition= GrpTRES={fields}"));
            let _ = parse(&RECORDED[..cut.index(RECORDED.len())]);
        }
    }
}
