//! A portal that root does not start, in front of a cluster: one rule of sudo's makes its children the
//! users whose jobs and files they look after, and nobody else.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
};

use lyceum::{helper::identity::Identity, model::SessionId};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::{
    helper::house::system,
    life::{House, Person},
    wait::eventually,
};

const MIB: i64 = 1 << 20;

/// A portal as a service account of its own, with everything that nodes see in a directory of that account's.
fn house(cluster: &Cluster) -> House {
    let conf = cluster.conf();
    let mut house = House::of_somebody(&[
        ("LYCEUM_SCHEDULER__KIND", "slurm"),
        ("LYCEUM_SCHEDULER__SLURM__CONF", conf.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__SLURM__INTERVAL", "2s"),
    ]);
    let service = house.runs_as().unwrap().clone();
    fs::set_permissions(&service.home, fs::Permissions::from_mode(0o755)).unwrap();
    let shared = house.file("shared");
    let (uid, gid) = (service.uid.to_string(), service.gid.to_string());
    system(&["install", "-d", "-m", "755", "-o", &uid, "-g", &gid, shared.to_str().unwrap()]);
    house.set("LYCEUM_SCHEDULER__SLURM__RUN", shared.join("run").to_str().unwrap());
    house.set("LYCEUM_SCHEDULER__SLURM__PROGRAM", house.file("lyceum").to_str().unwrap());
    house
}

/// A cluster, a portal that serves, and two people whom the rule names.
async fn open() -> Option<(House, [(Person, Identity); 2], Cluster)> {
    let cluster = Cluster::start()?;
    let mut house = house(&cluster);
    let accounts = ["n", "o"].map(|name| house.unix_account(name));
    house.allow_sudo(&accounts.each_ref().map(String::as_str));
    house.start().await;
    let people = accounts.map(|account| (house.person_as(&account), Identity::facts(&account).unwrap()));
    Some((house, people, cluster))
}

fn asked() -> Value {
    json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "duration_seconds": 1800 })
}

#[tokio::test]
async fn sudo_makes_everybody_who_they_are() {
    let Some((house, people, cluster)) = open().await else { return };
    let (_, said) = house.run(&["check"]);
    assert!(said.contains("sudo starts workloads as their users"), "{said}");
    let service = house.runs_as().unwrap();
    let run = |id: SessionId| house.file("shared/run").join(id.short());
    let mut sessions = Vec::new();
    for (person, account) in &people {
        let id = person.start(&house, asked()).await;
        person.state(&house, id, "running").await;
        let (status, facts) = person.visit(&house, id, "/facts").await;
        assert_eq!((status, facts["uid"].as_u64()), (200, Some(account.uid.into())), "{facts}");
        let directory = fs::metadata(run(id)).unwrap();
        let found = (directory.uid(), directory.gid(), directory.mode() & 0o7777);
        assert_eq!(
            found,
            (account.uid, service.gid, 0o2750),
            "theirs, for the portal to look into, and for nobody else"
        );
        sessions.push(id);
    }
    // The other one neither looks into it nor takes it away.
    let directory = run(sessions[0]);
    let uid = format!("--reuid={}", people[1].1.uid);
    let gid = format!("--regid={}", people[1].1.gid);
    for command in [["ls", "-l"], ["rm", "-rf"]] {
        let words = [uid.as_str(), &gid, "--clear-groups", "--", command[0], command[1]];
        assert!(!Command::new("setpriv").args(words).arg(&directory).status().unwrap().success(), "{command:?}");
    }
    // Files are the users' own as well.
    let (person, account) = &people[0];
    let (status, answer) = person.ask(&house, "POST", "/files/folders", &json!({ "path": "made" })).await;
    assert_eq!(status, 201, "{answer}");
    let made = fs::metadata(account.home.join("made")).unwrap();
    assert!(made.is_dir() && made.uid() == account.uid);
    for ((person, _), id) in people.iter().zip(&sessions) {
        person.end(&house, *id).await;
        eventually("nothing is left of it", async || (!run(*id).exists()).then_some(())).await;
    }
    assert_eq!(super::whole::jobs(&cluster), 2, "there were two jobs and no other");
}

/// What is handed in while the portal is killed is handed in once.
#[tokio::test]
async fn killed_while_sudo_is_at_work() {
    let Some((mut house, people, cluster)) = open().await else { return };
    let (person, _) = &people[0];
    let id = person.start(&house, asked()).await;
    house.kill();
    house.start().await;
    person.state(&house, id, "running").await;
    assert_eq!(super::whole::jobs(&cluster), 1);
    person.end(&house, id).await;
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
}

#[tokio::test]
async fn whom_the_rule_does_not_name_is_told() {
    let Some((house, _, cluster)) = open().await else { return };
    let stranger = house.person_as(&house.unix_account("s"));
    let id = stranger.start(&house, asked()).await;
    let ended = stranger.ended(&house, id, "launch_failed").await;
    let detail = ended["detail"].as_str().unwrap();
    assert!(detail.contains("sudo") && detail.contains("an administrator must add it"), "{detail}");
    assert_eq!(super::whole::jobs(&cluster), 0);
    assert!(!house.file("shared/run").join(id.short()).exists());
}

/// Whatever the rule allows, the verbs are done as people only; and there are three of them.
#[test]
fn the_verbs_are_for_people() {
    if !crate::needs::root() {
        return;
    }
    let house = House::of_somebody(&[]);
    let run = |uid: &str, gid: &str, verb: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", "--"]);
        let output = command.arg(house.file("lyceum")).args(["as-user", verb]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for uid in ["0", "1"] {
        let (status, said) = run(uid, uid, "batch");
        assert!(status == Some(121) && said.contains("is a system account"), "{uid}: {status:?} {said}");
    }
    let own = house.runs_as().unwrap();
    let (uid, gid) = (own.uid.to_string(), own.gid.to_string());
    for verb in ["helper", "become", "serve", "", "--help"] {
        let (status, said) = run(&uid, &gid, verb);
        assert!(status == Some(121) && said.contains("the verb must be"), "{verb}: {status:?} {said}");
    }
    let (status, said) = run(&uid, &gid, "batch");
    assert!(status == Some(121) && said.contains("invalid batch command"), "{status:?} {said}");
}

#[test]
fn a_rule_where_it_is_of_no_use_is_a_fault() {
    let whole = |more: &[(&str, &str)]| House::new(more).run(&["check"]);
    for (variables, wanted) in [
        (&[("LYCEUM_ACCOUNTS__SUDO", "/usr/bin/lyceum")][..], "requires scheduler.kind"),
        (&[("LYCEUM_ACCOUNTS__SUDO", "lyceum"), ("LYCEUM_SCHEDULER__KIND", "slurm")], "must be the absolute path"),
        (
            &[
                ("LYCEUM_ACCOUNTS__SUDO", "/usr/bin/lyceum"),
                ("LYCEUM_SCHEDULER__KIND", "slurm"),
                ("LYCEUM_ACCOUNTS__SHARED_UID", "true"),
            ],
            "cannot be combined with",
        ),
    ] {
        let (fine, said) = whole(variables);
        assert!(!fine && said.contains("accounts.sudo") && said.contains(wanted), "{wanted}: {said}");
    }
}
