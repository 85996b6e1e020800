//! Slurm's accounting, as far as limits go: the associations of some accounts with what their
//! `GrpTRES` say, and orders to change that. Commands run as the portal's own account, which has
//! to be an operator there. What should stand in an association is somebody else's to decide.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    controller::{self, answer, slurm_user, value},
    settings::Settings,
    submit::complaint,
};
use lyceum_wire::protocol::CommandOutput;

/// The accounting, asked by its commands.
#[derive(Clone, Debug)]
pub struct Accounting {
    settings: Settings,
}

/// Somebody's share of an account, or the account itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Association {
    pub account: String,
    /// A Unix account; `None` is all of them together.
    pub user: Option<String>,
}

/// How much of each kind that Slurm counts (`cpu`, `mem` in MiB, `gres/gpu`) may be had at once.
/// What is not named is not limited.
pub type Amounts = BTreeMap<String, i64>;

/// What stands for an amount that nobody limits, in an order.
pub const CLEARED: i64 = -1;

/// What the accounting says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountingData {
    /// Slurm's own name of the cluster.
    pub cluster: String,
    /// The account that Slurm itself runs as: it may do everything there.
    pub slurm_user: String,
    /// Whether Slurm keeps anybody to limits of associations.
    pub is_enforced: bool,
    /// The kinds that it counts, and so can limit.
    pub kinds: BTreeSet<String>,
    pub associations: BTreeMap<Association, Amounts>,
    /// Those who have further associations, each for a partition alone.
    pub by_partition: BTreeSet<Association>,
}

/// One change of associations, all of the same account: the account's own, or those of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub account: String,
    /// Empty: the account itself.
    pub users: Vec<String>,
    /// What is set; [`CLEARED`] takes a limit away.
    pub set: Amounts,
}

impl Accounting {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// What it says of these accounts. An error is a sentence about who does not answer.
    pub async fn read<'a>(&self, accounts: impl Iterator<Item = &'a str>) -> Result<AccountingData, String> {
        let config = self.ask("scontrol", vec!["show".to_owned(), "config".to_owned()]).await;
        let config = answer(config?).map_err(|why| format!("Slurm’s controller does not respond: {why}"))?;
        let away = |why: String| format!("Slurm’s accounting does not respond: {why}");
        let cluster = value(&config, "ClusterName").to_owned();
        let kinds = answer(self.ask("sacctmgr", show(&["tres", "format=type,name"])).await?).map_err(away)?;
        let accounts = format!("account={}", accounts.collect::<Vec<_>>().join(","));
        let of_cluster = format!("cluster={cluster}");
        let format = "format=account,user,partition,grptres";
        let listed = show(&["assoc", "where", &of_cluster, &accounts, format]);
        let listed = answer(self.ask("sacctmgr", listed).await?).map_err(away)?;
        let (associations, by_partition) = parse(&listed)?;
        Ok(AccountingData {
            is_enforced: is_enforced(value(&config, "AccountingStorageEnforce")),
            slurm_user: slurm_user(&config).to_owned(),
            kinds: kinds.lines().filter_map(kind).collect(),
            cluster,
            associations,
            by_partition,
        })
    }

    /// Carries an order out. An error is a sentence in Slurm's words.
    pub async fn change(&self, cluster: &str, order: &Order) -> Result<(), String> {
        let ran = self.ask("sacctmgr", arguments(cluster, order)).await?;
        let said = ran.output.clone();
        match answer(ran) {
            Ok(_modified) => Ok(()),
            Err(why) if why.is_empty() => Err(complaint(&said)),
            Err(why) => Err(why),
        }
    }

    async fn ask(&self, tool: &str, arguments: Vec<String>) -> Result<CommandOutput, String> {
        controller::command(&self.settings, tool, arguments).await
    }
}

/// A question in rows without ornaments.
fn show(words: &[&str]) -> Vec<String> {
    ["--noheader", "--parsable2", "show"].iter().chain(words).map(|word| (*word).to_owned()).collect()
}

/// A user's associations with single partitions are not meant: a limit in each would be had once in each.
fn arguments(cluster: &str, order: &Order) -> Vec<String> {
    let Order { account, users, set } = order;
    let mut words: Vec<String> = vec!["--immediate".to_owned(), "modify".to_owned()];
    if users.is_empty() {
        words.extend(["account".to_owned(), "where".to_owned(), format!("name={account}")]);
    } else {
        words.extend(["user".to_owned(), "where".to_owned(), format!("name={}", users.join(","))]);
        words.extend([format!("account={account}"), "partition=".to_owned()]);
    }
    let amounts: Vec<String> = set.iter().map(|(kind, amount)| format!("{kind}={amount}")).collect();
    words.extend([format!("cluster={cluster}"), "set".to_owned(), format!("GrpTRES={}", amounts.join(","))]);
    words
}

/// `gres|gpu:a100` and `cpu|` as `gres/gpu:a100` and `cpu`.
fn kind(line: &str) -> Option<String> {
    let (kind, name) = line.trim().split_once('|')?;
    Some(if name.is_empty() { kind.to_owned() } else { format!("{kind}/{name}") })
}

type Listed = (BTreeMap<Association, Amounts>, BTreeSet<Association>);

/// `lab|ada||cpu=8,mem=1.50G,gres/gpu=2`, a line an association.
fn parse(text: &str) -> Result<Listed, String> {
    let (mut associations, mut by_partition) = Listed::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let odd = || format!("unexpected line from Slurm’s accounting: {line:.100}");
        let [account, user, partition, amounts] = line.split('|').collect::<Vec<_>>()[..] else { return Err(odd()) };
        let user = (!user.is_empty()).then(|| user.to_owned());
        let association = Association { account: account.to_owned(), user };
        if partition.is_empty() {
            associations.insert(association, read_amounts(amounts).ok_or_else(odd)?);
        } else {
            by_partition.insert(association);
        }
    }
    Ok((associations, by_partition))
}

/// `cpu=8,mem=1.50G,gres/gpu=2`
pub(super) fn read_amounts(text: &str) -> Option<Amounts> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').and_then(|(kind, amount)| Some((kind.to_owned(), number(amount)?)))).collect()
}

/// As Slurm writes it: `8`, and of memory `1500M`, `1.50G`, counted in MiB.
pub(super) fn number(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "M" => 0,
        "G" => 10,
        "T" => 20,
        "P" => 30,
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = 10_i64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = if part.is_empty() { 0 } else { part.parse::<i64>().ok()? };
    let (whole, unit) = (whole.parse::<i64>().ok()?, 1_i64 << shift);
    whole.checked_mul(unit)?.checked_add(part.checked_mul(unit)? / scale)
}

/// `associations,limits,safe`, or `all` of them.
pub(super) fn is_enforced(setting: &str) -> bool {
    setting.split(',').any(|word| ["limits", "safe", "all"].contains(&word.trim().to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, i64)]) -> Amounts {
        list.iter().map(|(kind, amount)| ((*kind).to_owned(), *amount)).collect()
    }

    fn association(account: &str, user: Option<&str>) -> Association {
        Association { account: account.to_owned(), user: user.map(str::to_owned) }
    }

    #[test]
    fn associations_are_read() {
        let text = "lab|||cpu=100,mem=1500000M\nlab|ada||cpu=0,mem=1.50G,gres/gpu:a100=2\nlab|ada|debug|cpu=8\nml|||\n";
        let (associations, by_partition) = parse(text).unwrap();
        let wanted = [
            (association("lab", None), amounts(&[("cpu", 100), ("mem", 1_500_000)])),
            (association("lab", Some("ada")), amounts(&[("cpu", 0), ("mem", 1536), ("gres/gpu:a100", 2)])),
            (association("ml", None), Amounts::new()),
        ];
        assert_eq!(associations, wanted.into());
        assert_eq!(by_partition, [association("lab", Some("ada"))].into());
        for odd in ["lab|ada", "lab|ada||cpu", "lab|ada||cpu=x", "lab|ada||cpu=1E", "lab|ada||cpu=", "a|b|c|cpu=1|e"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn numbers_are_exact() {
        for (text, wanted) in [("7", 7), ("1500M", 1500), ("1.50G", 1536), ("1T", 1 << 20), ("1.50P", 3 << 29)] {
            assert_eq!(number(text), Some(wanted), "{text}");
        }
        for odd in ["", "-1", "1.G", "G", "9223372036854775807G", "1..5G", "1.0000000000000000000G"] {
            assert!(number(odd).is_none_or(|number| number >= 0 && odd == "1.G"), "{odd}");
        }
    }

    #[test]
    fn orders_are_single_arguments() {
        let set = amounts(&[("cpu", 8), ("gres/gpu", CLEARED)]);
        let order = Order { account: "lab".to_owned(), users: Vec::new(), set: set.clone() };
        let wanted =
            ["--immediate", "modify", "account", "where", "name=lab", "cluster=c", "set", "GrpTRES=cpu=8,gres/gpu=-1"];
        assert_eq!(arguments("c", &order), wanted);
        let order = Order { users: vec!["ada".to_owned(), "bob".to_owned()], ..order };
        assert_eq!(
            arguments("c", &order)[2..],
            [
                "user",
                "where",
                "name=ada,bob",
                "account=lab",
                "partition=",
                "cluster=c",
                "set",
                "GrpTRES=cpu=8,gres/gpu=-1"
            ]
        );
    }

    #[test]
    fn kinds_and_enforcement() {
        let kinds: Vec<String> = "cpu|\nfs|disk\ngres|gpu\ngres|gpu:a100\n".lines().filter_map(kind).collect();
        assert_eq!(kinds, ["cpu", "fs/disk", "gres/gpu", "gres/gpu:a100"]);
        assert!(is_enforced("associations,limits") && is_enforced("all") && is_enforced("Associations, Safe"));
        assert!(!is_enforced("none") && !is_enforced("associations,qos") && !is_enforced(""));
    }
}
