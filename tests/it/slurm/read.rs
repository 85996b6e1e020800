//! Quotas in the mode `read`, against Slurm's own accounting: what is set there is shown here with
//! where it stands, what would fit later waits in Slurm's queue, what never fits is refused with the
//! numbers, nothing is changed here, and a controller that is away leaves what was read last.

use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    mirror::{Scene, scene},
};
use crate::{
    life::{House, person::id},
    wait::eventually,
};

const MIB: i64 = 1 << 20;

fn asked(gpus: i64) -> Value {
    let resources = json!({ "cpus": 1, "memory_bytes": 256 * MIB, "gpus": gpus });
    json!({ "app": "web", "resources": resources, "duration_seconds": 1800 })
}

impl Scene {
    fn in_slurm(&self, whose: &str, set: &[&str]) {
        let name = format!("name={}", if whose == "lab" { "lab" } else { self.unix.as_str() });
        let whose: &[&str] = if whose == "lab" {
            &["account", "where", &name, "set"]
        } else {
            &["user", "where", &name, "account=lab", "set"]
        };
        self.by_hand(&[whose, set].concat());
    }

    /// What binds the person, once a field of it has this limit.
    async fn holds(&self, field: &str, limit: i64) -> Value {
        let path = format!("/quotas/users/{}", self.person.name);
        eventually(&format!("{field} is {limit}"), async || {
            let effective = self.house.admin().get(&self.house, &path).await["effective"].clone();
            (effective[field]["limit"] == limit).then_some(effective)
        })
        .await
    }

    async fn page(&self, path: &str) -> String {
        let admin = self.house.admin();
        crate::pages::markup::one_line(
            &admin.request(&self.house, "GET", path).send().await.unwrap().text().await.unwrap(),
        )
    }
}

/// From `sacctmgr` to the pages, the API, the decision and Slurm's queue.
#[tokio::test]
async fn slurms_limits_are_the_portals() {
    let Some(scene) = scene("read").await else { return };
    let Scene { house, person, unix, .. } = &scene;
    scene.set(&["group", "vision", "chargeable=yes"]);
    scene.in_slurm("user", &["GrpTRES=gres/gpu=1,cpu=2", "MaxWall=60", "MaxJobs=3"]);
    scene.in_slurm("lab", &["GrpTRES=gres/gpu=3", "GrpTRESMins=gres/gpu=6000"]);
    let effective = scene.holds("gpus", 1).await;
    let slurms = |limit: i64| json!({ "limit": limit, "source": "Slurm: account lab" });
    for (field, limit) in [("gpus", 1), ("cpus", 2), ("sessions", 3), ("jobs", 3), ("max_session_seconds", 3600)] {
        assert_eq!(effective[field], slurms(limit), "{field}: {effective}");
    }
    assert_eq!(effective["memory_bytes"]["source"], "machine", "what nobody limits there");
    assert_eq!(effective["idle_timeout_seconds"]["source"], "default", "what Slurm does not keep");
    let group = eventually("the account of the group is read", async || {
        let group = house.admin().get(house, "/quotas/groups/vision").await;
        (group["slurm"]["gpus"] == slurms(3)).then_some(group)
    })
    .await;
    assert_eq!(group["total"], json!({}), "{group}");

    // It is read here, and changed there.
    let admin = house.admin();
    let named = json!({ "names": [person.name], "change": { "gpus": 4 } });
    for (method, path, body) in [
        ("PATCH", format!("/quotas/users/{}", person.name), json!({ "gpus": 4 })),
        ("PATCH", "/quotas/users".to_owned(), named),
        ("PATCH", "/quotas/default".to_owned(), json!({ "gpus": 4 })),
        ("PATCH", "/quotas/cluster".to_owned(), json!({ "gpus": 4 })),
        ("PATCH", "/quotas/groups/vision".to_owned(), json!({ "total": { "gpus": 4 } })),
        ("POST", "/quotas/preview".to_owned(), json!({ "default": { "gpus": 4 } })),
    ] {
        let (status, answer) = admin.ask(house, method, &path, &body).await;
        assert_eq!(status, 409, "{method} {path}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains("Change them with sacctmgr"), "{answer}");
    }
    let (is_done, said) = house.run(&["admin", "quota", "set", "default", "gpus=4"]);
    assert!(!is_done && said.contains("Slurm manages this limit"), "{said}");
    scene.set(&["default", "idle_timeout_seconds=1h"]);
    let page = scene.page(&format!("/admin/quotas/users/{}", person.name)).await;
    let command = format!("sacctmgr modify user where name={unix} account=lab set GrpTRES=gres/gpu=1,cpu=2,mem=-1");
    assert!(page.contains(&command) && page.contains("Slurm manages the limits"), "{page}");
    for path in ["/admin/quotas", "/admin/quotas/default", "/admin/quotas/groups/vision", "/admin/quotas/cluster"] {
        let page = scene.page(path).await;
        assert!(!page.contains("action=\"/admin/quotas/") && !page.contains("Preview the change"), "{path}: {page}");
    }

    // What never fits is refused with the numbers; what fits later is Slurm's to hold back.
    let (status, refused) = person.ask(house, "POST", "/sessions", &asked(2)).await;
    let why = refused.to_string();
    assert!(status == 409 && why.contains("your limit is 1 GPU (Slurm: account lab)"), "{status} {why}");
    let first = person.start(house, asked(1)).await;
    person.state(house, first, "running").await;
    let (_, foretold) = person.ask(house, "POST", "/admission", &asked(1)).await;
    assert!(foretold.to_string().contains("quota.gpus.user"), "{foretold}");
    let (status, second) = person.ask(house, "POST", "/sessions", &asked(1)).await;
    assert_eq!(status, 201, "{second}");
    let second = id(&second);
    eventually("Slurm holds it back", async || {
        let session = person.session(house, second).await;
        assert_eq!(session["state"], "queued", "{session}");
        session["detail"].as_str()?.contains("AssocGrpGRES").then_some(())
    })
    .await;
    person.end(house, first).await;
    person.state(house, second, "running").await;
    person.end(house, second).await;
    // Of what Slurm would not even take, the rest waits here.
    scene.in_slurm("user", &["MaxSubmitJobs=1"]);
    let path = format!("/admin/quotas/users/{}", person.name);
    eventually("that is read", async || scene.page(&path).await.contains("At most 1 job can be").then_some(())).await;
    let first = person.start(house, asked(0)).await;
    let (status, second) = person.ask(house, "POST", "/sessions", &asked(0)).await;
    assert_eq!((status, second["state"].as_str()), (201, Some("queued")), "{second}");
    assert!(second.to_string().contains("Your limit is 1 job"), "{second}");
    person.end(house, first).await;
    person.state(house, id(&second), "running").await;
    person.end(house, id(&second)).await;
    scene.in_slurm("user", &["MaxSubmitJobs=-1"]);
    // The most that one job may have is told apart from what its owner may.
    scene.in_slurm("user", &["GrpTRES=gres/gpu=4,cpu=-1", "MaxTRESPerJob=gres/gpu=1"]);
    scene.holds("gpus", 4).await;
    let (status, refused) = person.ask(house, "POST", "/sessions", &asked(2)).await;
    assert!(status == 409 && refused.to_string().contains("account lab, one job"), "{status} {refused}");
}

/// What changes in Slurm is read within a round; while the controller is away, what was read last stands.
#[tokio::test]
async fn what_was_read_last_stands() {
    let Some(mut scene) = scene("read").await else { return };
    scene.in_slurm("user", &["GrpTRES=gres/gpu=1"]);
    scene.holds("gpus", 1).await;
    let fine = scene.told("findings", "Slurm manages the limits").await;
    assert_eq!(fine["level"], "ok", "{fine}");
    scene.cluster.kill_controller();
    let round = scene.told("loops", "controller does not respond").await;
    assert_eq!(round["level"], "warning", "{round}");
    let told = scene.told("findings", "until it does, the limits read").await;
    assert_eq!(told["level"], "warning", "{told}");
    scene.holds("gpus", 1).await;
    scene.cluster.start_controller();
    scene.in_slurm("user", &["GrpTRES=gres/gpu=2"]);
    scene.holds("gpus", 2).await;
    // Without the accounting there is no news of a QOS, and of all else there is.
    scene.cluster.accounts().kill_daemon();
    let round = scene.told("loops", "accounting does not respond").await;
    assert_eq!(round["level"], "warning", "{round}");
    scene.holds("gpus", 2).await;
    let conf = scene.cluster.conf();
    let beside = House::new(&[
        ("LYCEUM_SCHEDULER__KIND", "slurm"),
        ("LYCEUM_SCHEDULER__SLURM__CONF", conf.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__SLURM__QUOTAS", "read"),
    ]);
    let (_, said) = beside.run(&["check"]);
    assert!(said.contains("the QOS limits that were read last apply"), "{said}");
    scene.cluster.accounts().start_daemon();
    scene.told("findings", "; Slurm manages the limits").await;
    // A portal that begins anew refuses nothing before it has read.
    scene.house.restart().await;
    scene.holds("gpus", 2).await;
}

/// `lyceum check` says what is read, and what would make it nothing.
#[tokio::test]
async fn what_the_mode_needs_is_said() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    let conf = cluster.conf();
    let house = House::new(&[
        ("LYCEUM_SCHEDULER__KIND", "slurm"),
        ("LYCEUM_SCHEDULER__SLURM__CONF", conf.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__SLURM__QUOTAS", "read"),
        ("LYCEUM_SCHEDULER__SLURM__ACCOUNTS__VISION", "lab"),
    ]);
    let (fine, said) = house.run(&["check"]);
    assert!(!fine && said.contains("sacctmgr add account lab cluster=test"), "{said}");
    assert!(said.contains("so the limits shown have no effect"), "{said}");
}

/// Where a site limits by quality of service: that of the association, then that of the partition.
#[tokio::test]
async fn limits_of_a_quality_of_service_are_the_portals() {
    let Some(scene) = scene("read").await else { return };
    let Scene { house, person, unix, cluster, .. } = &scene;
    scene.set(&["group", "vision", "chargeable=yes"]);
    let add = |words: &[&str]| cluster.tell("sacctmgr", &[&["--immediate", "add", "qos"], words].concat());
    add(&["gpu", "set", "MaxTRESPerUser=gres/gpu=1", "GrpTRES=cpu=7", "MaxWall=01:00:00", "MaxSubmitJobsPerUser=9"]);
    let name = format!("name={unix}");
    scene.by_hand(&["user", "where", &name, "account=lab", "set", "qos+=gpu", "defaultqos=gpu", "GrpTRES=gres/gpu=4"]);
    let effective = scene.holds("gpus", 1).await;
    let slurms = |limit: i64, qos: &str| json!({ "limit": limit, "source": format!("Slurm: QOS {qos}") });
    assert_eq!(effective["gpus"], slurms(1, "gpu"), "{effective}");
    assert_eq!(effective["max_session_seconds"], slurms(3600, "gpu"), "{effective}");
    let page = scene.page(&format!("/admin/quotas/users/{}", person.name)).await;
    for said in [
        "7 cores (Slurm: QOS gpu, total)",
        "modify qos where name=gpu set MaxTRESPerUser=gres/gpu=1,",
        "set GrpTRES=gres/gpu=4,cpu=-1",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }

    let (status, refused) = person.ask(house, "POST", "/sessions", &asked(2)).await;
    let why = refused.to_string();
    assert!(status == 409 && why.contains("your limit is 1 GPU (Slurm: QOS gpu)"), "{status} {why}");
    let first = person.start(house, asked(1)).await;
    person.state(house, first, "running").await;
    let second = person.start(house, asked(1)).await;
    eventually("Slurm holds it back", async || {
        let session = person.session(house, second).await;
        assert_eq!(session["state"], "queued", "{session}");
        session["detail"].as_str()?.contains("QOSMaxGRESPerUser").then_some(())
    })
    .await;

    // The partition's decides first, here as there.
    add(&["part", "set", "MaxTRESPerUser=gres/gpu=2"]);
    cluster.tell("scontrol", &["update", "partitionname=debug", "qos=part"]);
    let effective = scene.holds("gpus", 2).await;
    assert_eq!(effective["gpus"], slurms(2, "part"), "{effective}");
    person.state(house, second, "running").await;
    person.end(house, first).await;
    person.end(house, second).await;
}
