//! Checks of Slurm's accounting, where the portal's limits are written into it, or read from it:
//! whether Slurm keeps anybody to them, whether it knows the accounts and counts GPUs, and whether
//! the account that the portal runs as may change, or see, them.

use super::{Finding, Level};
use crate::scheduler::slurm::{
    Settings,
    accounting::{Accounting, AccountingData, Association},
    assoc_mgr::{self, AssociationSnapshot},
    qos,
};

const NAME: &str = "Slurm quotas";

/// What the accounting says of the accounts that are set. `level` is what the account that the
/// portal runs as is there, as `sacctmgr` calls it.
pub(super) async fn associations(settings: &Settings, account: &str, level: &str) -> Vec<Finding> {
    let named = settings.accounts.values().map(|account| account.to_ascii_lowercase()).collect::<Vec<_>>();
    match Accounting::new(settings.clone()).read(named.iter().map(String::as_str)).await {
        Ok(books) => judge(&books, &named, account, level),
        Err(why) => {
            let what = format!("{why}; until it does, the limits there are not changed");
            vec![Finding::new(NAME, Level::Fault, what).fix("systemctl status slurmdbd munge; sacctmgr show cluster")]
        }
    }
}

fn judge(books: &AccountingData, named: &[String], account: &str, level: &str) -> Vec<Finding> {
    let AccountingData { cluster, .. } = books;
    let mut findings = Vec::new();
    let may_change = ["Operator", "Administrator"].contains(&level) || ["root", &books.slurm_user].contains(&account);
    if !may_change {
        let what = format!("`{account}` may not change limits in Slurm’s accounting, so nothing is written there");
        findings.push(
            Finding::new(NAME, Level::Fault, what)
                .fix(format!("sacctmgr add user {account} account=root adminlevel=operator")),
        );
    }
    if !books.is_enforced {
        let what = "Slurm does not enforce limits of associations, so the limits written there have no effect";
        let fix = "AccountingStorageEnforce=associations,limits in slurm.conf, then restart slurmctld";
        findings.push(Finding::new(NAME, Level::Fault, what).fix(fix));
    }
    let is_known = |account: &&String| {
        let association = Association { account: (*account).clone(), user: None };
        books.associations.contains_key(&association)
    };
    if let Some(missing) = named.iter().find(|account| !is_known(account)) {
        let what = format!("scheduler.slurm.accounts: Slurm has no account {missing} on the cluster {cluster}");
        findings.push(
            Finding::new(NAME, Level::Fault, what).fix(format!("sacctmgr add account {missing} cluster={cluster}")),
        );
    }
    if !books.kinds.contains("gres/gpu") {
        let what = "Slurm does not count GPUs, so only the portal enforces GPU limits";
        let fix = "AccountingStorageTRES=gres/gpu in slurm.conf, then restart slurmctld";
        findings.push(Finding::new(NAME, Level::Warning, what).fix(fix));
    }
    if findings.is_empty() {
        let what = format!("limits of GPUs, cores and memory are written into {} accounts of {cluster}", named.len());
        findings.push(Finding::new(NAME, Level::Ok, what));
    }
    findings
}

/// What the controller says of everybody's limits, where they are read from it.
pub(super) async fn read(settings: &Settings, account: &str, level: &str) -> Vec<Finding> {
    let named = settings.accounts.values().chain([&settings.account]).map(|account| account.to_ascii_lowercase());
    match assoc_mgr::read(settings).await {
        Ok(reading) => {
            let mut findings = judge_reading(&reading, &named.collect::<Vec<_>>(), account, level);
            if let Err(why) = qos::read(settings, &reading.cluster).await {
                let what = format!("{why}; until it does, the QOS limits that were read last apply");
                findings.push(Finding::new(NAME, Level::Warning, what).fix("systemctl status slurmdbd munge"));
            }
            findings
        }
        Err(why) => {
            let what = format!("{why}; until it does, the limits that were read last apply");
            vec![Finding::new(NAME, Level::Fault, what).fix("scontrol show assoc_mgr flags=assoc; scontrol ping")]
        }
    }
}

fn judge_reading(reading: &AssociationSnapshot, named: &[String], account: &str, level: &str) -> Vec<Finding> {
    let AssociationSnapshot { cluster, hidden, .. } = reading;
    let mut findings = Vec::new();
    // As Slurm hides associations: from those who are no operators.
    let hides = hidden.split(',').any(|what| ["accounts", "users", "usage", "all"].contains(&what.trim()));
    if hides && !["root", &reading.slurm_user].contains(&account) && !["Operator", "Administrator"].contains(&level) {
        let what = format!("PrivateData={hidden} hides limits from `{account}`, which can only see its own");
        findings.push(
            Finding::new(NAME, Level::Fault, what)
                .fix(format!("sacctmgr add user {account} account=root adminlevel=operator")),
        );
    }
    if !reading.is_enforced {
        let what = "Slurm does not enforce limits of associations, so the limits shown have no effect";
        let fix = "AccountingStorageEnforce=associations,limits in slurm.conf, then restart slurmctld";
        findings.push(Finding::new(NAME, Level::Warning, what).fix(fix));
    }
    let is_known = |name: &str| {
        reading.records.iter().any(|one| one.association.user.is_none() && one.association.account == name)
    };
    if let Some(missing) = named.iter().find(|name| !name.is_empty() && !is_known(name)) {
        let what = format!("scheduler.slurm.accounts: Slurm shows no account {missing} on the cluster {cluster}");
        findings.push(
            Finding::new(NAME, Level::Fault, what).fix(format!("sacctmgr add account {missing} cluster={cluster}")),
        );
    }
    let count = reading.records.len().saturating_add(reading.by_partition);
    if findings.is_empty() {
        let what = format!("Slurm manages the limits: {count} associations of {cluster} were read");
        findings.push(Finding::new(NAME, Level::Ok, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_binds_nobody_is_told() {
        let reading =
            AssociationSnapshot { cluster: "test".to_owned(), is_enforced: true, ..AssociationSnapshot::default() };
        let judged =
            |reading: &AssociationSnapshot, level: &str| judge_reading(reading, &[String::new()], "lyceum", level);
        assert_eq!(judged(&reading, "None")[0].what, "Slurm manages the limits: 0 associations of test were read");
        let hidden = AssociationSnapshot { hidden: "jobs,usage".to_owned(), ..reading.clone() };
        assert_eq!((judged(&hidden, "None")[0].level, judged(&hidden, "Operator")[0].level), (Level::Fault, Level::Ok));
        let loose = judged(&AssociationSnapshot { is_enforced: false, ..reading.clone() }, "None");
        assert_eq!(loose.iter().map(|one| one.level).collect::<Vec<_>>(), [Level::Warning]);
        assert_eq!(
            judge_reading(&reading, &["lab".to_owned()], "root", "")[0].fix,
            "sacctmgr add account lab cluster=test"
        );
    }

    #[test]
    fn what_is_missing_is_told() {
        let lab = Association { account: "lab".to_owned(), user: None };
        let books = AccountingData {
            cluster: "test".to_owned(),
            is_enforced: true,
            kinds: ["cpu", "mem", "gres/gpu"].map(str::to_owned).into(),
            associations: [(lab, std::collections::BTreeMap::new())].into(),
            ..AccountingData::default()
        };
        let judged = |books: &AccountingData, level: &str| judge(books, &["lab".to_owned()], "lyceum", level);
        let well = judged(&books, "Operator");
        assert!(
            well.len() == 1 && well[0].level == Level::Ok && well[0].what.contains("1 accounts of test"),
            "{well:?}"
        );
        assert!(judged(&books, "None")[0].fix.contains("adminlevel=operator"));
        let loose = AccountingData { is_enforced: false, kinds: ["cpu".to_owned()].into(), ..books.clone() };
        let told = judged(&loose, "Administrator");
        assert_eq!(told.iter().map(|one| one.level).collect::<Vec<_>>(), [Level::Fault, Level::Warning]);
        let unknown = AccountingData { associations: std::collections::BTreeMap::new(), ..books };
        assert_eq!(judged(&unknown, "Operator")[0].fix, "sacctmgr add account lab cluster=test");
    }
}
