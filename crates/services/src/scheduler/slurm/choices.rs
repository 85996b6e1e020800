//! What each user may choose on the cluster: partitions by their own rules, accounts and QOS by the user's
//! associations, reservations and features of nodes. Asked at once for everybody, not more often than once in half a
//! minute; the settings may list less. Whether a choice was right is `lyceum_model::slurm`'s to say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::RwLock;
use tokio::sync::Mutex;

use super::{
    controller::{answer, command, value},
    reservations,
    settings::{Quotas, Settings},
};
use lyceum_model::{Reservation, SlurmChoices, Timestamp, slurm::Choice};

/// How old the answer may be, and how long somebody waits for a new one.
const MAX_AGE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(3);

/// Why the account cannot be chosen.
const BY_GROUP: &str = "the group that is charged decides the Slurm account on this portal; choose `group` instead";
const BY_LIMITS: &str = "the account decides which of Slurm’s limits apply, so it cannot be chosen on this portal";
const NO_ACCOUNTS: &str = "this cluster keeps no Slurm accounts; omit this field";
const NONE_LISTED: &str = "the site does not let users choose this; omit this field";

/// Asks for it, and remembers the last answer.
#[derive(Debug, Default)]
pub(super) struct Lister {
    known: RwLock<Option<(Instant, Arc<Listed>)>>,
    turn: Mutex<()>,
}

/// What the cluster said, for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    partitions: Vec<PartitionRules>,
    features: BTreeSet<String>,
    reservations: Vec<Reservation>,
    /// `None` where nobody can say whose accounts are whose.
    accounts: Option<Associations>,
    /// The cluster keeps accounts.
    has_accounts: bool,
}

/// By user and account: the QOS that may be used.
type Associations = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Who may use a partition. An empty list of those that may is everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PartitionRules {
    name: String,
    groups: Vec<String>,
    accounts: Vec<String>,
    denied_accounts: Vec<String>,
}

impl Lister {
    /// What is known, asked for anew where it is old; `None` where nothing is known yet.
    pub async fn listed(self: &Arc<Self>, settings: &Settings) -> Option<Arc<Listed>> {
        if let Some(listed) = self.fresh() {
            return Some(listed);
        }
        let (this, settings) = (Arc::clone(self), settings.clone());
        // Whoever has no more patience leaves the question to the others.
        let asked = tokio::spawn(async move {
            let _turn = this.turn.lock().await;
            if this.fresh().is_some() {
                return;
            }
            match read(&settings).await {
                Ok(listed) => *this.known.write() = Some((Instant::now(), Arc::new(listed))),
                Err(why) => tracing::warn!(why, "slurm does not list what users may choose"),
            }
        });
        drop(tokio::time::timeout(PATIENCE, asked).await);
        self.known.read().as_ref().map(|(_, listed)| Arc::clone(listed))
    }

    fn fresh(&self) -> Option<Arc<Listed>> {
        self.known.read().as_ref().filter(|(at, _)| at.elapsed() < MAX_AGE).map(|(_, listed)| Arc::clone(listed))
    }
}

async fn read(settings: &Settings) -> Result<Listed, String> {
    let ask = async |tool: &str, words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        answer(command(settings, tool, words).await?)
    };
    let config = ask("scontrol", &["show", "config"]).await?;
    let partitions = ask("scontrol", &["--oneliner", "--all", "show", "partition"]).await?;
    let features = ask("sinfo", &["--noheader", "--all", "--format=%f"]).await?;
    let reserved = ask("scontrol", &reservations::arguments().iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let has_accounts = value(&config, "AccountingStorageType").ends_with("/slurmdbd");
    let is_hidden =
        ["accounts", "all"].iter().any(|word| value(&config, "PrivateData").split(',').any(|one| one.trim() == *word));
    let mut accounts = None;
    if has_accounts {
        let of_cluster = format!("cluster={}", value(&config, "ClusterName"));
        let words = ["--noheader", "--parsable2", "show", "assoc", "where", &of_cluster, "format=account,user,qos"];
        // Without accounts the rest is still worth knowing.
        accounts = ask("sacctmgr", &words).await.ok().map(|said| associations(&said)).filter(|_| !is_hidden);
    }
    let reservations = reservations::parse(&reserved)?;
    Ok(Listed { partitions: rules(&partitions), features: words(&features), reservations, accounts, has_accounts })
}

/// The rules of each partition, of `scontrol show partition`.
fn rules(text: &str) -> Vec<PartitionRules> {
    let rule = |line: &str| {
        let field = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let list = |key: &str| {
            let list = field(key).filter(|list| !["ALL", "(null)", "N/A", ""].contains(list));
            list.into_iter().flat_map(|list| list.split(',')).map(str::to_owned).collect::<Vec<_>>()
        };
        Some(PartitionRules {
            name: field("PartitionName")?.to_owned(),
            groups: list("AllowGroups"),
            accounts: list("AllowAccounts"),
            denied_accounts: list("DenyAccounts"),
        })
    };
    text.lines().filter_map(rule).collect()
}

/// The features of all nodes: `a100,nvlink`, a line for each kind of node.
fn words(text: &str) -> BTreeSet<String> {
    let words = text.lines().flat_map(|line| line.trim().split([',', '&', '|']));
    words.map(str::trim).filter(|word| !word.is_empty() && *word != "(null)").map(str::to_owned).collect()
}

/// `lab|ada|gpu,normal`; an account's own line has no user.
fn associations(text: &str) -> Associations {
    let mut found = Associations::new();
    for line in text.lines() {
        let [account, user, qos] = line.trim_end().split('|').collect::<Vec<_>>()[..] else { continue };
        if user.is_empty() {
            continue;
        }
        let own = found.entry(user.to_owned()).or_default().entry(account.to_owned()).or_default();
        own.extend(qos.split(',').filter(|name| !name.is_empty()).map(str::to_ascii_lowercase));
    }
    found
}

/// What one user may choose: what they may use, of it what the settings list.
pub(super) fn choices(
    listed: Option<&Listed>,
    settings: &Settings,
    (unix_name, groups): (&str, &[String]),
    now: Timestamp,
) -> SlurmChoices {
    let mut choices = SlurmChoices::default();
    if let Some(listed) = listed {
        let nothing = BTreeMap::new();
        let own = listed.accounts.as_ref().map(|all| all.get(unix_name).unwrap_or(&nothing));
        let may_use = |rules: &&PartitionRules| rules.lets_in(groups, own);
        choices.partition = one_of(listed.partitions.iter().filter(may_use).map(|rules| rules.name.clone()));
        choices.constraint = one_of(listed.features.iter().cloned());
        (choices.account, choices.qos) = match own {
            Some(own) => (one_of(own.keys().cloned()), one_of(own.values().flatten().cloned())),
            None if listed.has_accounts => (Choice::Unknown, Choice::Unknown),
            None => (Choice::Fixed(NO_ACCOUNTS), Choice::Fixed(NO_ACCOUNTS)),
        };
        if let Some(own) = own {
            choices.qos_of = own.iter().map(|(account, qos)| (account.clone(), qos.clone())).collect();
        }
        let is_for = |one: &&Reservation| now < one.to && is_for(one, unix_name, own);
        choices.reservation = one_of(listed.reservations.iter().filter(is_for).map(|one| one.name.clone()));
    }
    if !settings.accounts.is_empty() {
        choices.account = Choice::Fixed(BY_GROUP);
    } else if settings.quotas == Quotas::Read {
        choices.account = Choice::Fixed(BY_LIMITS);
    }
    for (option, _, list) in settings.choices.entries() {
        let Some(list) = list else { continue };
        let choice = match option {
            "partition" => &mut choices.partition,
            "account" => &mut choices.account,
            "qos" => &mut choices.qos,
            "reservation" => &mut choices.reservation,
            _constraint => &mut choices.constraint,
        };
        *choice = narrowed(choice, list);
        choices.listed.push(option);
    }
    choices
}

/// Of a choice what the site lists.
fn narrowed(choice: &Choice, list: &[String]) -> Choice {
    match choice {
        Choice::Fixed(why) => Choice::Fixed(why),
        _ if list.is_empty() => Choice::Fixed(NONE_LISTED),
        Choice::Unknown => Choice::OneOf(list.to_vec()),
        Choice::OneOf(known) => {
            let is_listed = |name: &&String| list.iter().any(|one| one.eq_ignore_ascii_case(name));
            Choice::OneOf(known.iter().filter(is_listed).cloned().collect())
        }
    }
}

fn one_of(names: impl Iterator<Item = String>) -> Choice {
    Choice::OneOf(names.collect::<BTreeSet<_>>().into_iter().collect())
}

/// A reservation of users or accounts is for these; `-ada` leaves somebody out.
fn is_for(reservation: &Reservation, unix_name: &str, own: Option<&BTreeMap<String, BTreeSet<String>>>) -> bool {
    let Reservation { users, accounts, .. } = reservation;
    let leaves_out = users.iter().any(|user| user.strip_prefix('-') == Some(unix_name));
    let has_account = |name: &String| own.is_none_or(|own| own.keys().any(|one| one.eq_ignore_ascii_case(name)));
    !leaves_out && (users.iter().any(|user| user == unix_name) || accounts.iter().any(has_account))
}

impl PartitionRules {
    fn lets_in(&self, groups: &[String], own: Option<&BTreeMap<String, BTreeSet<String>>>) -> bool {
        let is_own = |name: &String| own.is_none_or(|own| own.keys().any(|one| one.eq_ignore_ascii_case(name)));
        let is_denied = own.is_some_and(|own| {
            let denied = |account: &String| self.denied_accounts.iter().any(|one| one.eq_ignore_ascii_case(account));
            !own.is_empty() && own.keys().all(denied)
        });
        (self.groups.is_empty() || self.groups.iter().any(|group| groups.contains(group)))
            && (self.accounts.is_empty() || self.accounts.iter().any(is_own))
            && !is_denied
    }
}

impl Listed {
    /// Whether some partition asks for the groups of a user.
    pub fn asks_groups(&self) -> bool {
        self.partitions.iter().any(|rules| !rules.groups.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::settings, *};

    /// By Slurm 22.05.8.
    const PARTITIONS: &str = "PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES State=UP\n\
        PartitionName=gpu AllowGroups=vision,root AllowAccounts=lab AllowQos=ALL Default=NO State=UP\n\
        PartitionName=rest AllowGroups=ALL DenyAccounts=lab AllowQos=ALL Default=NO State=UP\n";

    fn listed() -> Listed {
        Listed {
            partitions: rules(PARTITIONS),
            features: words("a100,nvlink\n(null)\na100\n"),
            reservations: reserved(),
            accounts: Some(associations("root||normal\nlab||normal\nlab|ada|gpu,Normal\nchem|bob|\n")),
            has_accounts: true,
        }
    }

    fn values(choice: &Choice) -> String {
        match choice {
            Choice::OneOf(values) => values.join(" "),
            Choice::Unknown => "?".to_owned(),
            Choice::Fixed(why) => (*why).to_owned(),
        }
    }

    fn reserved() -> Vec<Reservation> {
        let course = Reservation {
            name: "course".to_owned(),
            from: Timestamp(0),
            to: Timestamp(100),
            nodes: Vec::new(),
            partition: None,
            users: vec!["-eve".to_owned()],
            accounts: vec!["lab".to_owned()],
            is_maintenance: false,
            is_ours: false,
        };
        let past = Reservation { name: "past".to_owned(), to: Timestamp(1), ..course.clone() };
        vec![course, past]
    }

    fn of(listed: Option<&Listed>, settings: &Settings, who: &str, groups: &[&str]) -> SlurmChoices {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        choices(listed, settings, (who, &groups), Timestamp(5))
    }

    #[test]
    fn each_user_has_their_own() {
        let (all, settings) = (listed(), Settings::default());
        let ada = of(Some(&all), &settings, "ada", &["vision"]);
        let told = [&ada.partition, &ada.account, &ada.qos, &ada.reservation, &ada.constraint].map(values);
        assert_eq!(told, ["debug gpu", "lab", "gpu normal", "course", "a100 nvlink"]);
        let bob = of(Some(&all), &settings, "bob", &["vision"]);
        let told = [&bob.partition, &bob.account, &bob.qos, &bob.reservation].map(values);
        assert_eq!(told, ["debug rest", "chem", "", ""]);
        assert_eq!(values(&of(Some(&all), &settings, "ada", &[]).partition), "debug", "not of the group");
        let none = Listed { accounts: None, has_accounts: false, ..listed() };
        let told = of(Some(&none), &settings, "ada", &["vision"]);
        assert_eq!((values(&told.partition), told.account), ("debug gpu rest".to_owned(), Choice::Fixed(NO_ACCOUNTS)));
        assert_eq!(of(None, &settings, "ada", &[]), SlurmChoices::default());
    }

    #[test]
    fn the_site_lists_less() {
        let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let settings = Settings {
            choices: settings::Choices {
                partitions: list(&["gpu", "rest"]),
                qos: list(&[]),
                ..settings::Choices::default()
            },
            accounts: [("vision".to_owned(), "lab".to_owned())].into(),
            ..Settings::default()
        };
        let ada = of(Some(&listed()), &settings, "ada", &["vision"]);
        assert_eq!(values(&ada.partition), "gpu");
        assert_eq!((ada.qos, ada.account), (Choice::Fixed(NONE_LISTED), Choice::Fixed(BY_GROUP)));
        assert_eq!(ada.listed, ["partition", "qos"]);
        assert_eq!(values(&of(None, &settings, "ada", &[]).partition), "gpu rest", "the controller is away");
    }
}
