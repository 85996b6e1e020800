//! Quotas in the mode `mirror`, against Slurm's own accounting: what is set in the portal keeps
//! `sbatch` on a shell back and lets it go again, what somebody changes in Slurm is put back and
//! told, nothing else is touched, and accounts that are away are caught up with.

use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    whole::{jobs, on_with},
};
use crate::{
    life::{House, Person},
    wait::eventually,
};

const MIB: i64 = 1 << 20;

/// A portal whose group `vision` has the account `lab`, somebody in it, and another account of
/// Slurm's that is nobody's of the portal's.
pub struct Scene {
    pub house: House,
    pub person: Person,
    pub cluster: Cluster,
    /// The person's Unix account, and its uid.
    pub unix: String,
    uid: u32,
}

const ENFORCED: &str = "AccountingStorageEnforce=associations,limits\n";

pub async fn scene(mode: &str) -> Option<Scene> {
    let cluster = Cluster::with_accounts(ENFORCED)?;
    for account in ["lab", "other"] {
        cluster.tell("sacctmgr", &["--immediate", "add", "account", account, "cluster=test"]);
    }
    let variables = [("LYCEUM_SCHEDULER__SLURM__ACCOUNTS__VISION", "Lab"), ("LYCEUM_SCHEDULER__SLURM__QUOTAS", mode)];
    let (house, person, cluster) = on_with(cluster, &variables).await?;
    let id = person.name.split_once('-').unwrap().1.to_owned();
    let (unix, portal) = (format!("ly-n-{id}"), format!("ly-s-{id}"));
    for account in ["lab", "other"] {
        let account = format!("account={account}");
        cluster.tell("sacctmgr", &["--immediate", "add", "user", &unix, &account, "cluster=test"]);
    }
    cluster.tell("sacctmgr", &["--immediate", "add", "user", &portal, "account=other", "adminlevel=operator"]);
    let scene =
        Scene { uid: lyceum::helper::identity::Identity::facts(&unix).unwrap().uid, house, person, cluster, unix };
    scene.admin(&["group", "add", "vision"]);
    scene.admin(&["group", "member", "add", "vision", &scene.person.name]);
    Some(scene)
}

impl Scene {
    pub fn admin(&self, words: &[&str]) {
        let (is_done, said) = self.house.run(&[&["admin"], words].concat());
        assert!(is_done, "{words:?}: {said}");
    }

    pub fn set(&self, words: &[&str]) {
        self.admin(&[&["quota", "set"], words].concat());
    }

    /// What Slurm has as `GrpTRES` of an association.
    fn stands(&self, account: &str, user: &str) -> String {
        let (account, user) = (format!("account={account}"), format!("user={user}"));
        let words = ["--noheader", "--parsable2", "show", "assoc", "where", &account, &user, "format=grptres"];
        self.cluster.ask("sacctmgr", &words).trim().to_owned()
    }

    async fn becomes(&self, account: &str, user: &str, wanted: &str) {
        let what = format!("{account} {user}: {wanted}");
        eventually(&what, async || (self.stands(account, user) == wanted).then_some(())).await;
    }

    /// By hand, as an administrator of Slurm's.
    pub fn by_hand(&self, words: &[&str]) {
        self.cluster.tell("sacctmgr", &[&["--immediate", "modify"], words].concat());
    }

    async fn job(&self, job: i32, state: &str, reason: &str) {
        eventually(&format!("{job} is {state} for {reason}"), async || {
            let is = |field: &str, wanted: &str| self.cluster.field(job, field).trim().contains(wanted);
            (is("state", state) && is("reason", reason)).then_some(())
        })
        .await;
    }

    /// What the health report says of it among `findings` or `loops`, once it says this.
    pub async fn told(&self, list: &str, part: &str) -> Value {
        let admin = self.house.admin();
        eventually(&format!("the health report tells: {part}"), async || {
            let report = admin.get(&self.house, "/health").await;
            let found = report[list].as_array()?.iter().find(|one| one["name"] == "quotas in Slurm").cloned()?;
            found["what"].as_str()?.contains(part).then_some(found)
        })
        .await
    }

    async fn audited(&self) -> Vec<String> {
        let rows = self.house.admin().get(&self.house, "/audit?action=slurm.limits").await;
        let rows = rows["items"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["subject"].as_str().unwrap(), row["detail"].as_str().unwrap())).collect()
    }
}

/// The whole way of one person's limit and of a group's total: what is handed in on a shell waits
/// for it, goes on when it is raised, and nobody is ended when it is lowered.
#[tokio::test]
async fn a_limit_of_the_portal_binds_on_a_shell() {
    let Some(scene) = scene("mirror").await else { return };
    let Scene { cluster, person, unix, uid, .. } = &scene;
    scene.set(&["user", &person.name, "gpus=1", "cpus=unlimited", "memory_bytes=unlimited"]);
    scene.becomes("lab", unix, "gres/gpu=1").await;
    let gpu = ["--account=lab", "--gres=gpu:1", "--cpus-per-task=1", "--mem=64"];
    let first = cluster.submit(*uid, &gpu);
    scene.job(first, "RUNNING", "").await;
    let second = cluster.submit(*uid, &gpu);
    scene.job(second, "PENDING", "AssocGrpGRES").await;
    scene.set(&["user", &person.name, "gpus=2"]);
    scene.job(second, "RUNNING", "").await;
    // A lowered limit ends nothing.
    scene.set(&["user", &person.name, "gpus=0"]);
    scene.becomes("lab", unix, "gres/gpu=0").await;
    let third = cluster.submit(*uid, &gpu);
    scene.job(third, "PENDING", "AssocGrpGRES").await;
    for job in [first, second] {
        assert_eq!(cluster.field(job, "state"), "RUNNING");
    }
    // What is unlimited here is unlimited there; what all together may have is the account's.
    scene.set(&["user", &person.name, "gpus=unlimited", "memory_bytes=3GiB", "cpus=7"]);
    scene.becomes("lab", unix, "cpu=7,mem=3G").await;
    scene.job(third, "RUNNING", "").await;
    scene.set(&["group", "vision", "chargeable=yes", "total.gpus=3", "total.jobs=2", "total.gpu_hours=1"]);
    scene.becomes("lab", "", "gres/gpu=3").await;
    let fourth = cluster.submit(*uid, &gpu);
    scene.job(fourth, "PENDING", "AssocGrpGRES").await;
    scene.set(&["group", "vision", "total.gpus=unlimited"]);
    scene.job(fourth, "RUNNING", "").await;
    // In an account that no group has, nothing is written.
    assert_eq!((scene.stands("other", unix), scene.stands("other", "")), (String::new(), String::new()));
    let told = scene.audited().await;
    assert!(told.iter().any(|row| row == &format!("lab {unix}: gres/gpu=2 (was gres/gpu=1)")), "{told:?}");
    assert!(told.iter().all(|row| !row.contains("somebody")), "{told:?}");
    let page = person_page(&scene).await;
    assert!(page.contains("Slurm also enforces the limits"), "the page says what Slurm has of it");
    // The portal's own work is charged to the same account, and fits in the same limits.
    for job in [first, second, third, fourth] {
        cluster.tell("scancel", &[&job.to_string()]);
    }
    let before = jobs(cluster);
    let request = json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "group": "vision" });
    let id = person.start(&scene.house, request).await;
    person.state(&scene.house, id, "running").await;
    assert_eq!(jobs(cluster), before + 1);
    person.end(&scene.house, id).await;
}

async fn person_page(scene: &Scene) -> String {
    let admin = scene.house.admin();
    let path = format!("/admin/quotas/users/{}", scene.person.name);
    admin.request(&scene.house, "GET", &path).send().await.unwrap().text().await.unwrap()
}

/// What stands in Slurm against the portal is put back and told; what is none of the portal's stays.
#[tokio::test]
async fn what_somebody_changes_in_slurm_is_put_back() {
    let Some(scene) = scene("mirror").await else { return };
    let Scene { person, unix, .. } = &scene;
    scene.set(&["user", &person.name, "gpus=2", "cpus=3", "memory_bytes=3GiB"]);
    scene.becomes("lab", unix, "cpu=3,gres/gpu=2,mem=3G").await;
    // What is not limited here any more is not there either.
    scene.set(&["user", &person.name, "memory_bytes=unlimited"]);
    scene.becomes("lab", unix, "cpu=3,gres/gpu=2").await;
    let user = format!("name={unix}");
    scene.by_hand(&["user", "where", &user, "account=lab", "set", "GrpTRES=gres/gpu=9,cpu=-1,node=2", "GrpJobs=5"]);
    scene.by_hand(&["user", "where", &user, "account=other", "set", "GrpTRES=gres/gpu=9"]);
    scene.by_hand(&["account", "where", "name=lab", "set", "GrpTRES=cpu=1,billing=7"]);
    scene.becomes("lab", unix, "cpu=3,gres/gpu=2,node=2").await;
    scene.becomes("lab", "", "billing=7").await;
    assert_eq!(scene.stands("other", unix), "gres/gpu=9", "that account is no group's");
    let told = scene.audited().await;
    let wanted = format!("lab {unix}: cpu=3, gres/gpu=2 (was cpu unlimited, gres/gpu=9); it was changed in Slurm");
    assert!(told.contains(&wanted), "{told:?}");
    assert!(scene.house.log().contains("limits that were changed in slurm restored"));
    let jobs = scene
        .cluster
        .ask("sacctmgr", &["-nP", "show", "assoc", "where", "account=lab", &format!("user={unix}"), "format=grpjobs"]);
    assert_eq!(jobs.trim(), "5", "limits that the portal has none of are left");
    let replaced = scene.told("findings", "that differed from the portal’s were replaced").await;
    assert_eq!(replaced["level"], "warning", "{replaced}");
    assert!(replaced["what"].as_str().unwrap().contains(&format!("{unix} in lab had cpu unlimited")), "{replaced}");
    // Nothing more is written while nothing changes.
    let before = scene.audited().await.len();
    let asked = lyceum::model::Clock::System.now();
    eventually("Slurm was looked at again", async || {
        let found = scene.told("findings", "associations").await;
        let ago = found["what"].as_str()?.split("checked ").nth(1)?.to_owned();
        (lyceum::model::Clock::System.now().seconds_since(asked) > 20 && ago.starts_with(['0', '1', '2'])).then_some(())
    })
    .await;
    assert_eq!(scene.audited().await.len(), before);
}

/// Killed between a change and its order, the portal goes on where it was; what it finds in Slurm
/// that nobody told it of is replaced, and told.
#[tokio::test]
async fn a_portal_that_was_killed_goes_on() {
    let Some(mut scene) = scene("mirror").await else { return };
    let (name, unix) = (scene.person.name.clone(), scene.unix.clone());
    scene.set(&["user", &name, "gpus=1", "cpus=3"]);
    scene.becomes("lab", &unix, "cpu=3,gres/gpu=1").await;
    let before = scene.audited().await.len();
    scene.set(&["user", &name, "gpus=2"]);
    scene.house.kill();
    scene.set(&["user", &name, "cpus=2"]);
    scene.by_hand(&["account", "where", "name=lab", "set", "GrpTRES=cpu=1,node=4"]);
    scene.house.start().await;
    scene.becomes("lab", &unix, "cpu=2,gres/gpu=2").await;
    scene.becomes("lab", "", "node=4").await;
    let told = scene.told("findings", "that differed from the portal’s were replaced").await;
    assert!(told["what"].as_str().unwrap().contains("total in lab had cpu=1"), "{told}");
    let rows = scene.audited().await;
    assert!(before < rows.len(), "{rows:?}");
    let wanted = "lab total: cpu unlimited (was cpu=1); found at the portal's first check";
    assert!(rows.iter().any(|row| row == wanted), "{rows:?}");
}

/// While the accounting is away the health page says so; afterwards it is caught up with. Who is
/// missing in Slurm is told with the command, and not made.
#[tokio::test]
async fn accounts_that_are_away_are_caught_up_with() {
    let Some(scene) = scene("mirror").await else { return };
    let Scene { cluster, person, unix, .. } = &scene;
    scene.set(&["user", &person.name, "gpus=1", "cpus=3"]);
    scene.becomes("lab", unix, "cpu=3,gres/gpu=1").await;
    cluster.accounts().kill_daemon();
    scene.set(&["user", &person.name, "gpus=2"]);
    let round = scene.told("loops", "accounting does not respond").await;
    assert_eq!((&round["level"], round["last_error"].is_string()), (&json!("warning"), true), "{round}");
    cluster.accounts().start_daemon();
    scene.becomes("lab", unix, "cpu=3,gres/gpu=2").await;
    scene.told("loops", " ago, in ").await;
    let fine = scene.told("findings", "they match the portal’s limits").await;
    assert_eq!(fine["level"], "ok", "{fine}");

    let newcomer = scene.house.person_as(&scene.house.unix_account("m"));
    let theirs = unix.replacen("-n-", "-m-", 1);
    scene.admin(&["group", "member", "add", "vision", &newcomer.name]);
    scene.set(&["user", &newcomer.name, "gpus=1"]);
    let told = scene.told("findings", &format!("{theirs} in lab")).await;
    assert_eq!(told["fix"], format!("sacctmgr add user {theirs} account=lab cluster=test"), "{told}");
    cluster.tell("sacctmgr", &["--immediate", "add", "user", &theirs, "account=lab", "cluster=test"]);
    scene.becomes("lab", &theirs, "gres/gpu=1").await;
    let fine = scene.told("findings", "they match the portal’s limits").await;
    assert_eq!(fine["level"], "ok", "{fine}");
}

/// `lyceum check` says what the mode needs, and the setting is refused where it cannot be.
#[tokio::test]
async fn what_the_mode_needs_is_said() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    let conf = cluster.conf();
    let variables = |more: &[(&'static str, &'static str)]| {
        let own = [("LYCEUM_SCHEDULER__KIND", "slurm"), ("LYCEUM_SCHEDULER__SLURM__CONF", conf.to_str().unwrap())];
        House::new(&[&own[..], more].concat())
    };
    let mode = ("LYCEUM_SCHEDULER__SLURM__QUOTAS", "mirror");
    let (fine, said) = variables(&[mode]).run(&["check"]);
    assert!(!fine && said.contains("scheduler.slurm.accounts: "), "{said}");
    let (fine, said) = variables(&[mode, ("LYCEUM_SCHEDULER__KIND", "local")]).run(&["check"]);
    assert!(!fine && said.contains("scheduler.slurm.quotas: "), "{said}");
    let house = variables(&[mode, ("LYCEUM_SCHEDULER__SLURM__ACCOUNTS__VISION", "lab")]);
    let (fine, said) = house.run(&["check"]);
    assert!(!fine, "{said}");
    for wanted in
        ["adminlevel=operator", "AccountingStorageEnforce=associations,limits", "sacctmgr add account lab cluster=test"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    cluster.accounts().kill_daemon();
    let (_, said) = house.run(&["check"]);
    assert!(said.contains("systemctl status slurmdbd"), "{said}");
}
