//! The cluster's page and its API on a portal whose driver the test compiled: what is shown to
//! whom, what is not given out and why, and what becomes of GPUs that are held and rest.

use lyceum::{
    cluster::ClusterEvent,
    db::{
        admit::{AdmissionOutcome, NewAttempt, NewSession, Verdict},
        sessions::Filter,
    },
    model::{
        GroupName, Loops, Resources, Role, SessionId, SessionState, UserId, session::Placement, session::SessionSpec,
    },
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    gpus::driver,
    portal::{Caller, TestPortal},
    wait::eventually,
};

struct Scene {
    portal: TestPortal,
    folder: tempfile::TempDir,
    news: Mutex<Vec<ClusterEvent>>,
}

/// Two pairs with fast links, each of one model, and a GPU in two slices.
const LINKS: &str = "nvlink 0 2 4\nnvlink 1 3 4\nnear 0 1 50\nnear 0 3 50\nnear 1 2 50\nnear 2 3 50\nmig 4 2\n";

impl Scene {
    async fn set(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        std::fs::write(&state, LINKS).unwrap();
        let library = driver(folder.path(), name, &format!("-DGPUS=5 -DSTATE=\"{}\"", state.display()));
        let portal = TestPortal::start_with_gpus(&library).await;
        let scene = Self { portal, folder, news: Mutex::default() };
        scene.tell("", 40).await;
        scene
    }

    /// What the GPUs are like from now on; each of the whole ones computes `percent` of the time.
    async fn tell(&self, more: &str, percent: i64) {
        let gpus: Vec<String> = (0..4).map(|gpu| format!("gpu {gpu} {percent} 1000 40 100\n")).collect();
        let next = self.folder.path().join("next");
        // A driver that is asked later answers later; the moment says which answers are new.
        self.portal.clock.advance(1);
        std::fs::write(&next, format!("{more}{}{LINKS}", gpus.concat())).unwrap();
        std::fs::rename(next, self.folder.path().join("state")).unwrap();
        self.fresh().await;
        self.look().await;
    }

    /// Waits until the driver was asked about each GPU again, twice: the first answer may be older.
    async fn fresh(&self) {
        for _ in 0..2 {
            self.portal.clock.advance(1);
            let now = self.portal.clock.now();
            eventually("the driver was asked", async || {
                let watch = self.portal.portal.sessions.scheduler.gpu_watch();
                (watch.seen.len() == 6 && watch.seen.values().all(|seen| now <= seen.at)).then_some(())
            })
            .await;
        }
    }

    async fn look(&self) {
        self.portal
            .portal
            .cluster
            .look(&|news| self.news.lock().push(news), &Loops::default().begin("gpus", None))
            .await
            .unwrap();
    }

    /// Half a minute and a little later.
    async fn after_the_grace(&self) {
        self.portal.clock.advance(40);
        self.fresh().await;
        self.look().await;
    }

    /// Minutes in which nothing changes.
    async fn minutes(&self, count: i64) {
        for _ in 0..count {
            self.portal.clock.advance(60);
            self.fresh().await;
            self.look().await;
        }
    }

    /// A session of this person's; `None` where it has to wait, with the reason.
    async fn session(&self, owner: UserId, gpus: i64) -> Result<SessionId, String> {
        self.workload(owner, gpus, None).await
    }

    /// The same, or an attempt of a job.
    async fn workload(&self, owner: UserId, gpus: i64, job: Option<NewAttempt>) -> Result<SessionId, String> {
        let id = SessionId::new();
        let new = NewSession {
            id,
            owner,
            charged_group: None,
            app: "terminal".to_owned(),
            name: format!("work-{gpus}"),
            spec: SessionSpec {
                resources: Resources { gpus, memory_bytes: 1 << 20, ..Resources::default() },
                profile: None,
                environment: None,
                working_directory: None,
                duration_seconds: 3600,
                log_directory: None,
                log_directories: std::collections::BTreeMap::new(),
                group: None,
                modules: Vec::new(),
                image: None,
                slurm: lyceum::model::SlurmOptions::default(),
            },
            light: false,
            cluster: "local".to_owned(),
            idempotency: None,
            job,
        };
        match self.portal.portal.sessions.admission.insert(&new).await.unwrap() {
            AdmissionOutcome::Judged(Verdict::Admit { .. }) => {}
            AdmissionOutcome::Judged(Verdict::Wait(reasons) | Verdict::Refuse(reasons)) => {
                return Err(reasons[0].hint.clone());
            }
            AdmissionOutcome::Repeated(_) | AdmissionOutcome::Overtaken => unreachable!("it has no key, and is no job"),
        }
        let (db, now) = (self.portal.db(), self.portal.clock.now());
        assert!(db.begin_start(id, now).await.unwrap());
        let placement = Placement {
            node: "elsewhere".to_owned(),
            pid: 1,
            start_ticks: 1,
            boot_id: "another".to_owned(),
            uid: 4711,
            unix_name: "somebody".to_owned(),
            run_directory: "/run/x".to_owned(),
            limits: "sampled".to_owned(),
            link: None,
        };
        assert!(db.set_placement(id, &placement).await.unwrap());
        assert!(db.mark_running(id, now, now.plus_seconds(86_400)).await.unwrap());
        Ok(id)
    }

    async fn indices(&self, id: SessionId) -> Vec<i64> {
        let session = self.portal.db().find_session(id).await.unwrap().unwrap();
        session.gpus.iter().map(|gpu| gpu.index).collect()
    }

    async fn unlimited(&self, names: &[&str]) {
        let chief = self.portal.sign_in("chief").await;
        for name in names {
            let limits = json!({ "gpus": -1, "sessions": -1, "cpus": -1, "pending": -1 });
            let answer = chief.request("PATCH", &format!("/api/v1/quotas/users/{name}")).json(&limits).send().await;
            assert_eq!(answer.unwrap().status(), 200);
        }
    }
}

async fn items(caller: &Caller, path: &str) -> Vec<Value> {
    let answer: Value = caller.get(path).await.json().await.unwrap();
    answer["items"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

async fn page(caller: &Caller) -> String {
    let answer = caller.visit("/cluster").await;
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    crate::pages::markup::check(&text).unwrap();
    crate::pages::markup::one_line(&text)
}

#[tokio::test]
async fn who_sees_what() {
    let scene = Scene::set("sight").await;
    let portal = &scene.portal;
    let ann = portal.add_user("ann", Role::User).await;
    for (name, role) in [("bob", Role::User), ("mia", Role::User), ("oscar", Role::Operator), ("chief", Role::Admin)] {
        portal.add_user(name, role).await;
    }
    let group = portal.db().add_group(&GroupName::parse("vision").unwrap(), None, portal.by()).await.unwrap();
    portal.db().set_member(group, ann, true, portal.by()).await.unwrap();
    let mia = portal.db().find_user_by_name("mia").await.unwrap().unwrap().user.id;
    portal.db().set_manager(group, mia, true, portal.by()).await.unwrap();
    scene.unlimited(&["ann"]).await;
    let id = scene.session(ann, 2).await.unwrap();
    assert_eq!(scene.indices(id).await, [0, 2], "a pair with a fast link");
    let stranger = std::process::id();
    scene.tell(&format!("process 1 {stranger} 900\necc 3 4 1\n"), 40).await;
    scene.after_the_grace().await;

    let account = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    for (name, owner, session, outside) in [
        ("ann", Some("ann"), true, false),
        ("bob", None, false, false),
        ("mia", Some("ann"), false, false),
        ("oscar", Some("ann"), true, true),
        ("chief", Some("ann"), true, true),
    ] {
        let caller = portal.sign_in(name).await;
        let gpus = items(&caller, "/api/v1/gpus").await;
        assert_eq!(gpus.len(), 6, "four whole ones and two slices");
        assert_eq!(gpus[0]["state"], "held", "{name}");
        assert_eq!(gpus[0]["owner"].as_str(), owner, "{name}");
        assert_eq!(gpus[0]["session"].is_string(), session, "{name}");
        assert_eq!(gpus[0]["utilisation_percent"], 40);
        assert_eq!(gpus[0]["links"][1], json!({ "uuid": gpus[2]["uuid"], "link": "NV4" }));
        assert_eq!(gpus[1]["state"], "busy_outside", "{name}");
        assert_eq!(gpus[1]["outside"][0]["unix_name"].as_str(), outside.then_some(account.as_str()), "{name}");
        assert_eq!(gpus[1]["outside"][0]["pid"].is_u64(), outside, "{name}");
        assert_eq!(gpus[3]["health"]["ecc_uncorrected"], 1);
        assert_eq!((&gpus[4]["slice"], &gpus[5]["slice"]), (&json!(0), &json!(1)));
        assert_eq!(gpus[4]["utilisation_percent"], Value::Null, "the driver does not measure slices");

        let nodes = items(&caller, "/api/v1/nodes").await;
        let path = format!("/nodes/{}", nodes[0]["name"].as_str().unwrap());
        let node: Value = caller.get(&format!("/api/v1{path}")).await.json().await.unwrap();
        let (gpu, work) = (&node["gpus"][0], &node["workloads"][0]);
        assert_eq!((gpu["owner"].as_str(), &gpu["utilisation_percent"]), (owner, &json!(40)), "{name}");
        assert_eq!((work["name"].is_string(), work["owner"].as_str()), (session, owner), "{name}: {node}");
        let text = caller.visit(&path).await.text().await.unwrap();
        assert_eq!(text.contains(&format!("href=\"/sessions/{id}\"")), session, "{name}: {text}");
        let text = page(&caller).await;
        let is_shown = |word: &str| text.contains(word);
        assert_eq!(is_shown(&format!("/sessions/{id}")), session, "{name}");
        // Everybody's own name stands in the frame.
        assert_eq!(is_shown(">ann<"), owner.is_some(), "{name}");
        assert_eq!(is_shown("another user"), owner.is_none(), "{name}");
        assert_eq!(is_shown(">yours<"), name == "ann", "{name}");
        assert_eq!(is_shown(&format!("{account} (process {stranger}")), outside, "{name}");
        assert!(is_shown("1 uncorrected memory error") && is_shown("GPU 4:1") && is_shown("NV4"), "{name}: {text}");
    }
    // A token that lies on some dashboard tells nothing of others.
    let oscar = portal.sign_in("oscar").await;
    let token = portal.token(&oscar, &["read"]).await;
    let gpus = items(&token, "/api/v1/gpus").await;
    assert_eq!((&gpus[0]["owner"], &gpus[0]["session"]), (&Value::Null, &Value::Null));
    assert_eq!(gpus[1]["outside"][0]["unix_name"], Value::Null);

    let node = items(&oscar, "/api/v1/nodes").await.remove(0);
    assert_eq!((&node["gpus"], &node["gpus_held"], &node["driver"]), (&json!(6), &json!(2), &json!("550.1.fake")));
    assert_eq!(node["gpus_kept_apart"], false);
    let card = portal.sign_in("ann").await.visit(&format!("/sessions/{id}/card")).await.text().await.unwrap();
    assert!(card.contains("GPUs by count only"), "{card}");
}

#[tokio::test]
async fn what_cannot_be_used_is_not_given_out() {
    let scene = Scene::set("barred").await;
    let portal = &scene.portal;
    portal.add_user("chief", Role::Admin).await;
    let ann = portal.add_user("ann", Role::User).await;
    scene.unlimited(&["ann"]).await;
    let stranger = std::process::id();
    // Who only looks takes nothing away; and who has just come may go again.
    scene.tell(&format!("process 0 {stranger} 3\nprocess 1 {stranger} 900\nlost 3\n"), 0).await;
    scene.news.lock().clear();
    let ann_sees = portal.sign_in("ann").await;
    assert_eq!(items(&ann_sees, "/api/v1/gpus").await[1]["state"], "free");
    let first = scene.session(ann, 1).await.unwrap();
    assert_eq!(scene.indices(first).await, [0]);
    scene.after_the_grace().await;
    assert!(scene.news.lock().contains(&ClusterEvent::Room), "whoever waits is considered anew");
    let second = scene.session(ann, 1).await.unwrap();
    assert_eq!(scene.indices(second).await, [2]);
    let slices = [scene.session(ann, 1).await.unwrap(), scene.session(ann, 1).await.unwrap()];
    for slice in slices {
        assert_eq!(scene.indices(slice).await, [4]);
    }
    let reason = scene.session(ann, 1).await.unwrap_err();
    assert_eq!(
        reason,
        "Not enough of the machine's 6 × GPU are free: programs outside the portal use GPU 1, and GPU 3 does not \
         respond. This starts when something ends."
    );
    let text = page(&ann_sees).await;
    assert!(text.contains("The GPU has fallen off the bus") && text.contains("0 of 6 free"), "{text}");
    assert!(text.contains("busy with processes outside Lyceum"), "{text}");
    let gpus = items(&ann_sees, "/api/v1/gpus").await;
    assert_eq!((&gpus[1]["state"], &gpus[3]["state"]), (&json!("busy_outside"), &json!("down")));

    // The stranger goes, the GPU comes back: whoever waits is let in at once.
    scene.news.lock().clear();
    scene.tell("", 0).await;
    assert_eq!(*scene.news.lock(), [ClusterEvent::Room]);
    let waiting = Filter { state: Some(SessionState::Queued), limit: 10, ..Filter::default() };
    assert_eq!(portal.portal.sessions.list(waiting).await.unwrap().len(), 1);
    portal.portal.sessions.reconcile().await;
    let admitted = portal.portal.sessions.list(waiting).await.unwrap();
    assert!(admitted.iter().all(lyceum::model::Session::is_admitted), "{admitted:?}");
}

#[tokio::test]
async fn attempts_of_jobs_are_asked_about_too() {
    let scene = Scene::set("attempts").await;
    let portal = &scene.portal;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("oscar", Role::Operator).await;
    let ann = portal.add_user("ann", Role::User).await;
    scene.unlimited(&["ann"]).await;
    let attempt = crate::db::new_attempt(ann, "train", None).job.unwrap();
    let job = attempt.attempt.job;
    let id = scene.workload(ann, 1, Some(attempt)).await.unwrap();
    let (oscar, annie) = (portal.sign_in("oscar").await, portal.sign_in("ann").await);
    scene.tell("", 2).await;
    scene.minutes(64).await;
    let idle = portal.portal.cluster.view().idle.clone();
    assert_eq!((idle.len(), idle[0].session), (1, id));
    let text = page(&oscar).await;
    assert!(text.contains(&format!("href=\"/jobs/{job}\"")), "it leads to the job: {text}");
    assert!(text.contains(&format!("action=\"/jobs/{job}/cancel\"")), "and ends it: {text}");
    assert!(!text.contains(&format!("/sessions/{id}/stop")), "{text}");
    let pressed = oscar.post_form(&format!("/cluster/sessions/{id}/ask"), &[("csrf_token", &oscar.csrf_token)]).await;
    assert_eq!(pressed.status(), 303);
    let shown = annie.visit(&format!("/jobs/{job}")).await.text().await.unwrap();
    let shown = crate::pages::markup::one_line(&shown);
    assert!(shown.contains("whether you still need these GPUs") && shown.contains("oscar"), "{shown}");
    assert_eq!(annie.post(&format!("/api/v1/sessions/{id}/ask"), &json!({})).await.status(), 403);
    let canceled = oscar.post_form(&format!("/jobs/{job}/cancel"), &[("csrf_token", &oscar.csrf_token)]).await;
    assert_eq!(canceled.status(), 303, "an operator ends it");
    let latest = portal.db().find_session(id).await.unwrap().unwrap();
    assert_eq!(latest.state, SessionState::Stopping);
}

#[tokio::test]
async fn held_gpus_that_rest_are_asked_about() {
    let scene = Scene::set("resting").await;
    let portal = &scene.portal;
    portal.add_user("chief", Role::Admin).await;
    portal.add_user("oscar", Role::Operator).await;
    let ann = portal.add_user("ann", Role::User).await;
    scene.unlimited(&["ann"]).await;
    let id = scene.session(ann, 2).await.unwrap();
    let (oscar, annie) = (portal.sign_in("oscar").await, portal.sign_in("ann").await);
    let ask = format!("/api/v1/sessions/{id}/ask");
    let asked = async |caller: &Caller| {
        let session: Value = caller.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
        session["asked_at"].is_string()
    };

    scene.minutes(2).await;
    scene.tell("", 2).await;
    scene.minutes(50).await;
    assert_eq!(portal.portal.cluster.view().idle, [], "not an hour yet");
    assert_eq!(oscar.post(&ask, &json!({})).await.status(), 409);
    scene.minutes(12).await;
    let idle = portal.portal.cluster.view().idle.clone();
    assert_eq!((idle.len(), idle[0].session, idle[0].gpus.len()), (1, id, 2));
    let text = page(&oscar).await;
    assert!(text.contains("Allocated but idle") && text.contains(&format!("/cluster/sessions/{id}/ask")), "{text}");
    assert!(!page(&annie).await.contains("Allocated but idle"), "it is for operators");
    let chief = portal.sign_in("chief").await;
    let all: Value = chief.get("/api/v1/quotas").await.json().await.unwrap();
    let strip = &all["strip"];
    assert_eq!(
        (&strip["gpus_allocated"], &strip["gpus_idle"], &strip["gpus_down"], &strip["waiting"]),
        (&json!(2), &json!(2), &json!(0), &json!(0)),
        "{all}"
    );
    let text = chief.visit("/admin/quotas").await.text().await.unwrap();
    assert!(text.contains("of them idle, <a href=\"/cluster\">") && text.contains("GPUs allocated"), "{text}");
    for who in [&oscar, &annie, &chief] {
        let gpus: Value = who.get("/api/v1/gpus").await.json().await.unwrap();
        let resting = gpus["items"].as_array().unwrap().iter().filter(|gpu| gpu["idle_since"].is_string()).count();
        assert_eq!(resting, 2, "{gpus}");
    }
    portal.add_user("bert", Role::User).await;
    let gpus: Value = portal.sign_in("bert").await.get("/api/v1/gpus").await.json().await.unwrap();
    assert!(gpus["items"].as_array().unwrap().iter().all(|gpu| gpu["idle_since"].is_null()), "{gpus}");

    // One asks, the other answers by keeping it.
    let pressed = oscar.post_form(&format!("/cluster/sessions/{id}/ask"), &[("csrf_token", &oscar.csrf_token)]).await;
    assert_eq!(pressed.status(), 303);
    let home = annie.visit("/").await.text().await.unwrap();
    assert!(home.contains("whether you still need these GPUs") && home.contains("oscar"), "{home}");
    assert!(asked(&annie).await);
    let keep = annie.post(&format!("/api/v1/sessions/{id}/keep"), &json!({ "seconds": 60 })).await;
    assert_eq!(keep.status(), 200);
    assert!(!asked(&annie).await);

    // Or by work: the question goes away with the first busy minute.
    assert_eq!(oscar.post(&ask, &json!({})).await.status(), 200);
    scene.news.lock().clear();
    scene.tell("", 90).await;
    // The minute in which they began to compute has a part in which they rested.
    for _ in 0..4 {
        scene.minutes(1).await;
        if !asked(&annie).await {
            break;
        }
    }
    assert!(!asked(&annie).await);
    assert_eq!(*scene.news.lock(), [ClusterEvent::Answered { session: id, owner: ann }]);
    let audit = portal.db().list_audit(50).await.unwrap();
    assert_eq!(audit.iter().filter(|row| row.action == "session.ask" && row.actor == "oscar").count(), 2);

    // What was kept of it all, and for whom.
    let uuid = "GPU-00000000-0000-0000-0000-000000000000";
    let history: Value = annie.get(&format!("/api/v1/gpus/{uuid}/history?span=minute")).await.json().await.unwrap();
    let points = history["points"].as_array().unwrap();
    assert!(points.len() > 50, "{history}");
    assert_eq!(history["held"][0]["owner"], "ann");
    assert!(points.iter().any(|point| point["utilisation_percent"] == 2.0), "{history}");
    for bad in ["span=year", "from=2027-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "from=2020-01-01T00:00:00Z"] {
        assert_eq!(annie.get(&format!("/api/v1/gpus/{uuid}/history?{bad}")).await.status(), 422, "{bad}");
    }
    assert!(page(&annie).await.contains("class=\"line-of-use\""), "the drawing");

    // Another portal on the same data goes on with the same hour.
    scene.tell("", 0).await;
    scene.minutes(62).await;
    let (sessions, config) = (&portal.portal.sessions, lyceum::cluster::Config::default());
    let next = lyceum::cluster::Cluster::new(sessions.admission.clone(), sessions.scheduler.clone(), config);
    next.look(&|_| {}, &Loops::default().begin("gpus", None)).await.unwrap();
    assert_eq!(next.view().idle.len(), 1, "since when they rest was kept");
}
