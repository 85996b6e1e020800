//! The administrators' pages of quotas: the table, a form that is looked at before it is saved,
//! two who change the same, some people at once, what a manager may, and what is wrong with
//! what was typed. How it looks is tried in the browser, races with the database.

use lyceum::{
    admission::slurm_limits::{AccountLimits, SlurmLimitTable},
    db::{
        admit::NewSession,
        users::{NewUser, SignIn},
    },
    model::{
        GroupName, Resources, Role, SessionId, UserId, Username,
        files::FolderSize,
        quota::{Effective, Field, Limit, SlurmLimits, Source, Usage},
        session::SessionSpec,
    },
    scheduler::slurm::Quotas,
};
use serde_json::{Value, json};

use crate::portal::{Caller, TestPortal};

struct Lab {
    portal: TestPortal,
    boss: Caller,
    group: String,
}

async fn lab() -> Lab {
    lab_of(TestPortal::start().await).await
}

async fn lab_of(portal: TestPortal) -> Lab {
    portal.add_user("boss", Role::Admin).await;
    portal.add_user("chief", Role::Admin).await;
    let ada = portal.add_user("ada", Role::User).await;
    let mia = portal.add_user("mia", Role::User).await;
    let name = GroupName::parse("vision").unwrap();
    let group = portal.db().add_group(&name, None, portal.by()).await.unwrap();
    portal.db().set_member(group, ada, true, portal.by()).await.unwrap();
    portal.db().set_manager(group, mia, true, portal.by()).await.unwrap();
    let boss = portal.sign_in("boss").await;
    Lab { portal, boss, group: group.to_string() }
}

/// The value of a hidden field, as the page has it.
fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let at = page.find(&start).unwrap_or_else(|| panic!("no {name} in {page}"));
    page[at + start.len()..].split('"').next().unwrap().to_owned()
}

async fn seen(caller: &Caller, path: &str) -> String {
    let answer = caller.visit(path).await;
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{path}: {text}");
    crate::pages::markup::one_line(&text)
}

/// Sends a form: its status, where it leads, its page.
async fn send(caller: &Caller, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let answer = caller.clone().with("accept", "text/html").post_form(path, fields).await;
    let status = answer.status().as_u16();
    let to = answer.headers().get("location").map_or("", |to| to.to_str().unwrap()).to_owned();
    (status, to, crate::pages::markup::one_line(&answer.text().await.unwrap()))
}

async fn overrides(boss: &Caller, name: &str) -> Value {
    let quota: Value = boss.get(&format!("/api/v1/quotas/users/{name}")).await.json().await.unwrap();
    quota["overrides"].clone()
}

/// A request for a light session of one core.
fn light(owner: UserId) -> NewSession {
    NewSession {
        id: SessionId::new(),
        owner,
        charged_group: None,
        app: "terminal".to_owned(),
        name: "held".to_owned(),
        spec: SessionSpec {
            resources: Resources { cpus: 1, memory_bytes: 1 << 20, ..Resources::default() },
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
        light: true,
        cluster: "local".to_owned(),
        idempotency: None,
        job: None,
    }
}

/// A running session of one core, as if it had been admitted.
async fn holds(portal: &TestPortal, owner: UserId) {
    let new = light(owner);
    let facts = lyceum::db::admit::Verdict::Admit { gpus: Vec::new() };
    let asking = crate::db::asking(owner);
    let mode = lyceum::db::admit::AdmissionMode::Insert(&new);
    portal.db().admit(&asking, mode, &portal.clock, |_| facts).await.unwrap();
}

#[tokio::test]
async fn requests_that_a_change_would_end_are_named() {
    let Lab { portal, boss, .. } = lab().await;
    let ada = portal.db().find_user_by_name("ada").await.unwrap().unwrap().user.id;
    let mut new = light(ada);
    (new.name, new.light) = ("<b>large</b>".to_owned(), false);
    new.spec.resources.cpus = 2;
    let (asking, mode) = (crate::db::asking(ada), lyceum::db::admit::AdmissionMode::Insert(&new));
    let waits = lyceum::db::admit::Verdict::Wait(Vec::new());
    portal.db().admit(&asking, mode, &portal.clock, |_| waits).await.unwrap();
    let path = "/admin/quotas/users/ada";
    let version = hidden(&seen(&boss, path).await, "version");
    let preview = async |cpus: &str| {
        let fields = [
            ("version", version.as_str()),
            ("each.cpus.was", "inherit"),
            ("each.cpus.choice", "value"),
            ("each.cpus.value", cpus),
            ("step", "preview"),
        ];
        let (status, _, page) = send(&boss, path, &fields).await;
        assert_eq!(status, 200, "{page}");
        page
    };
    let page = preview("1").await;
    for words in
        ["would end as rejected", "&#60;b&#62;large&#60;/b&#62;", "This asks for 2 cores; your limit is 1 core"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!preview("2").await.contains("end as rejected"));
}

#[tokio::test]
async fn a_change_is_seen_before_it_is_saved() {
    let Lab { portal, boss, .. } = lab().await;
    let ada = portal.db().find_user_by_name("ada").await.unwrap().unwrap().user.id;
    for _ in 0..3 {
        holds(&portal, ada).await;
    }
    let path = "/admin/quotas/users/ada";
    let page = seen(&boss, path).await;
    for words in ["GPUs at once", "Longest session", "In use", "held", "Idle timeout"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let version = hidden(&page, "version");
    let was = hidden(&page, "each.light.was");
    assert_eq!(was, "inherit");
    let mut fields = vec![
        ("version", version.as_str()),
        ("each.light.was", "inherit"),
        ("each.light.choice", "value"),
        ("each.light.value", "2"),
        ("each.light.until", "2030-02-01T12:00"),
        ("each.light.note", "ICASSP <deadline>"),
        ("each.memory_bytes.was", "inherit"),
        ("each.memory_bytes.choice", "value"),
        ("each.memory_bytes.value", "1.5 GB"),
    ];
    fields.push(("step", "preview"));
    let (status, _, preview) = send(&boss, path, &fields).await;
    assert_eq!(status, 200);
    assert!(preview.contains("1 user would exceed a limit. Nothing will be stopped"), "{preview}");
    assert!(preview.contains("ada</bdi></a>: 3 light sessions in use, 2 light sessions allowed"), "{preview}");
    assert!(preview.contains("ICASSP &#60;deadline&#62;"), "{preview}");
    assert_eq!(overrides(&boss, "ada").await, json!({}), "nothing is saved yet");

    // What the preview carries is what is saved; and the form can be had again with all of it.
    fields.pop();
    let (status, _, again) = send(&boss, path, &[&fields[..], &[("step", "edit")]].concat()).await;
    assert_eq!(status, 200);
    assert!(again.contains("name=\"each.memory_bytes.value\" value=\"1.5 GB\""), "{again}");
    let (status, to, text) = send(&boss, path, &[&fields[..], &[("step", "save")]].concat()).await;
    assert_eq!((status, to.as_str()), (303, "/admin/quotas/users/ada?done=saved"), "{text}");
    let set = overrides(&boss, "ada").await;
    assert_eq!((&set["light"]["value"], &set["memory_bytes"]["value"]), (&json!(2), &json!(3 << 29)));
    assert_eq!(set["light"]["expires_at"], "2030-02-01T12:00:00Z");
    assert_eq!((&set["light"]["note"], &set["memory_bytes"]["note"]), (&json!("ICASSP <deadline>"), &json!(null)));
    let row = portal.db().list_audit(1).await.unwrap().remove(0);
    assert_eq!((row.actor.as_str(), row.subject.as_str()), ("boss", "ada"));
    let light = "light=2 until 2030-02-01T12:00:00Z (ICASSP <deadline>), was inherit";
    assert_eq!(row.detail, format!("memory_bytes=1610612736, was inherit; {light}"));

    // An untouched form changes nothing, and a person who waits is let in by a raised limit.
    let page = seen(&boss, path).await;
    let version = hidden(&page, "version");
    let (_, to, _) = send(&boss, path, &[("version", &version), ("step", "save")]).await;
    assert_eq!(to, "/admin/quotas/users/ada?done=nothing");
    assert!(page.contains("override until"), "{page}");
    assert!(seen(&boss, "/admin/quotas?only=override").await.contains(">ada<"));
}

#[tokio::test]
async fn of_two_administrators_neither_loses_anything() {
    let Lab { portal, boss, group, .. } = lab().await;
    let chief = portal.sign_in("chief").await;
    for (path, name) in [
        ("/admin/quotas/users/ada".to_owned(), "each"),
        ("/admin/quotas/default".to_owned(), "each"),
        ("/admin/quotas/cluster".to_owned(), "total"),
        (format!("/admin/quotas/groups/{group}"), "total"),
    ] {
        let version = hidden(&seen(&boss, &path).await, "version");
        let field = |field: &str, part: &str| format!("{name}.{field}.{part}");
        let change = async |who: &Caller, field_name: &str, value: &str, version: &str, step: &str| {
            let names = ["was", "choice", "value"].map(|part| field(field_name, part));
            let fields = [
                (names[0].as_str(), "inherit"),
                (&names[1], "value"),
                (&names[2], value),
                ("version", version),
                ("step", step),
            ];
            send(who, &path, &fields).await
        };
        assert_eq!(change(&chief, "cpus", "7", &version, "save").await.0, 303, "{path}");
        for step in ["preview", "save"] {
            let (status, _, page) = change(&boss, "cpus", "9", &version, step).await;
            assert_eq!(status, 412, "{path}");
            assert!(page.contains("Another user changed these limits"), "{page}");
            assert!(page.contains("chief set this to <b>7</b>"), "both versions are there: {page}");
            assert!(page.contains(&format!("name=\"{}\" value=\"9\"", field("cpus", "value"))), "{page}");
            let now = hidden(&page, "version");
            assert_ne!(now, version);
            if step == "save" {
                let was = hidden(&page, &field("cpus", "was"));
                let names = ["was", "choice", "value"].map(|part| field("cpus", part));
                let fields = [
                    (names[0].as_str(), was.as_str()),
                    (&names[1], "value"),
                    (&names[2], "9"),
                    ("version", &now),
                    ("step", "save"),
                ];
                assert_eq!(send(&boss, &path, &fields).await.0, 303, "looked at, it is saved");
            }
        }
    }
    assert_eq!(overrides(&boss, "ada").await["cpus"]["value"], 9);
}

#[tokio::test]
async fn some_people_change_at_once() {
    let Lab { portal, boss, .. } = lab().await;
    let chief = portal.sign_in("chief").await;
    let path = "/admin/quotas/selection";
    let people = [("user", "ada"), ("user", "mia")];
    let (status, _, page) = send(&boss, path, &[&people[..], &[("step", "choose")]].concat()).await;
    assert_eq!(status, 200);
    assert!(page.contains("Limits of 2 users"), "{page}");
    let version = hidden(&page, "version");
    let change = [
        ("version", version.as_str()),
        ("each.gpus.was", "stay"),
        ("each.gpus.choice", "value"),
        ("each.gpus.value", "2"),
        ("each.cpus.was", "stay"),
        ("each.cpus.choice", "unlimited"),
        ("each.light.was", "stay"),
        ("each.light.choice", "stay"),
    ];
    let change = [&people[..], &change].concat();
    let (status, _, preview) = send(&boss, path, &[&change[..], &[("step", "preview")]].concat()).await;
    assert_eq!(status, 200);
    assert!(
        preview.contains("No user would exceed a limit.") && preview.contains("ada") && preview.contains("mia"),
        "{preview}"
    );
    assert_eq!(overrides(&boss, "mia").await, json!({}));

    // Somebody was quicker with one of them: nothing of it is done.
    let changed = chief.request("PATCH", "/api/v1/quotas/users/mia").json(&json!({ "gpus": 5 })).send().await.unwrap();
    assert_eq!(changed.status(), 200);
    let (status, _, stale) = send(&boss, path, &[&change[..], &[("step", "save")]].concat()).await;
    assert_eq!(status, 412);
    assert!(stale.contains("mia: GPUs at once: 5, by chief"), "{stale}");
    assert!(stale.contains("name=\"each.gpus.value\" value=\"2\""), "nothing is lost: {stale}");
    assert_eq!(overrides(&boss, "ada").await, json!({}));

    let version = hidden(&stale, "version");
    let mut change = change;
    change[2] = ("version", &version);
    let (status, to, _) = send(&boss, path, &[&change[..], &[("step", "save")]].concat()).await;
    assert_eq!((status, to.as_str()), (303, "/admin/quotas?done=saved"));
    for name in ["ada", "mia"] {
        let set = overrides(&boss, name).await;
        assert_eq!(
            (&set["gpus"]["value"], &set["cpus"]["value"], &set["light"]),
            (&json!(2), &json!(-1), &json!(null))
        );
    }

    for (fields, says) in [
        (vec![("user", "ada"), ("user", "ada")], "listed twice"),
        (vec![("user", "nobody")], "There is no user ‘nobody’."),
        (vec![("user", "ada"), ("version", "x"), ("step", "save")], "at least one field"),
        (
            vec![
                ("user", "ada"),
                ("version", "x"),
                ("each.cpus.choice", "value"),
                ("each.cpus.value", "1e9"),
                ("step", "save"),
            ],
            "no powers",
        ),
    ] {
        let (status, _, page) = send(&boss, path, &fields).await;
        assert!(status == 422 && page.contains(says), "{fields:?}: {status} {page}");
    }
    // The same over the API.
    let several = async |body: Value| {
        let answer = boss.request("PATCH", "/api/v1/quotas/users").json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, answer) =
        several(json!({ "names": ["ada", "mia"], "change": { "gpus": null, "note": "back" } })).await;
    assert_eq!((status, &answer["changed"]), (200, &json!(["ada", "mia"])));
    assert_eq!(overrides(&boss, "mia").await["gpus"], json!(null));
    let (status, answer) = several(json!({ "names": ["ada", "x", "ada"], "change": { "gpus": 1 } })).await;
    let faults: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|error| &error["field"]).collect();
    assert_eq!((status, faults), (422, vec![&json!("names.1"), &json!("names.2")]));
    assert_eq!(overrides(&boss, "ada").await["gpus"], json!(null), "nothing was half applied");
}

#[tokio::test]
async fn a_manager_shares_out_what_the_group_has() {
    let Lab { portal, boss, group } = lab().await;
    let mia = portal.sign_in("mia").await;
    let (page, api) = (format!("/admin/quotas/groups/{group}"), format!("/api/v1/quotas/groups/{group}"));
    let patch = async |who: &Caller, path: &str, body: Value| {
        let answer = who.request("PATCH", path).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, _) = patch(&boss, &api, json!({ "total": { "cpus": 4 }, "chargeable": true })).await;
    assert_eq!(status, 200);
    assert!(seen(&mia, "/admin/quotas/groups").await.contains("vision"));
    let form = seen(&mia, &page).await;
    assert!(form.contains("name=\"each.cpus.value\""), "{form}");
    for not_theirs in ["name=\"total.cpus.value\"", "name=\"each.gpus.value\"", "name=\"chargeable\""] {
        assert!(!form.contains(not_theirs), "{not_theirs}");
    }
    let version = hidden(&form, "version");
    let change = |value, step| {
        [
            ("version", version.as_str()),
            ("each.cpus.was", "inherit"),
            ("each.cpus.choice", "value"),
            ("each.cpus.value", value),
            ("step", step),
        ]
    };
    for step in ["preview", "save"] {
        let (status, _, text) = send(&mia, &page, &change("5", step)).await;
        assert!(status == 422 && text.contains("The group may use 4 cores together"), "{status} {text}");
    }
    assert_eq!(send(&mia, &page, &change("3", "preview")).await.0, 200);
    assert_eq!(send(&mia, &page, &change("3", "save")).await.0, 303);

    let (status, quota) = patch(&mia, &api, json!({ "each": { "cpus": 4 } })).await;
    assert_eq!((status, &quota["each"]["cpus"]["updated_by"]), (200, &json!("mia")));
    for (body, field) in [
        (json!({ "each": { "cpus": 5 } }), "each.cpus"),
        (json!({ "each": { "cpus": -1 } }), "each.cpus"),
        (json!({ "each": { "gpus": 1 } }), "each.gpus"),
        (json!({ "total": { "cpus": 9 } }), "total.cpus"),
        (json!({ "chargeable": false }), "chargeable"),
        (json!({ "each": { "cpus": 1 }, "restrictive": true }), "restrictive"),
    ] {
        let (status, problem) = patch(&mia, &api, body).await;
        assert_eq!((status, &problem["errors"][0]["field"]), (422, &json!(field)), "{problem}");
    }
    assert_eq!(patch(&boss, &api, json!({})).await.1["each"]["cpus"]["value"], 4, "nothing was half applied");
    let preview = json!({ "group": { "name": "vision", "change": { "each": { "cpus": 1 } } } });
    assert_eq!(mia.post("/api/v1/quotas/preview", &preview).await.status(), 200);

    // Everything else is not theirs, and another group is none that they hear of.
    let other = portal.db().add_group(&GroupName::parse("speech").unwrap(), None, portal.by()).await.unwrap();
    assert_eq!(mia.visit(&format!("/admin/quotas/groups/{other}")).await.status(), 404);
    assert_eq!(patch(&mia, &format!("/api/v1/quotas/groups/{other}"), json!({})).await.0, 404);
    for path in ["/admin/quotas", "/admin/quotas/default", "/admin/quotas/cluster", "/admin/quotas/users/ada"] {
        assert_eq!(mia.visit(path).await.status(), 403, "{path}");
    }
    for body in [json!({ "default": {} }), json!({ "user": { "name": "ada", "change": {} } })] {
        assert_eq!(mia.post("/api/v1/quotas/preview", &body).await.status(), 403);
    }
    assert_eq!(patch(&mia, "/api/v1/quotas/users/ada", json!({ "cpus": 1 })).await.0, 403);
    // Whoever is in the group and does not manage it sees nothing of this.
    let ada = portal.sign_in("ada").await;
    assert_eq!(ada.visit(&page).await.status(), 403);
}

#[tokio::test]
async fn what_is_wrong_is_said_at_its_field() {
    let Lab { portal, boss, group } = lab().await;
    let path = "/admin/quotas/users/ada";
    for (field, value, says) in [
        ("gpus", "-1", "not be negative"),
        ("gpus", "1.5", "no fractions"),
        ("gpus", "1e9", "no powers"),
        ("gpus", "99999999999999999999", "too large"),
        ("gpus", "48 GB", "GPUs are counted"),
        ("gpus", "", "Enter an amount"),
        ("memory_bytes", "48", "48 of what?"),
        ("memory_bytes", "1e9", "Write a size as"),
        ("max_session_seconds", "8", "8 of what?"),
        ("max_session_seconds", "48 GB", "Write a time as"),
    ] {
        let (choice, name) = (format!("each.{field}.choice"), format!("each.{field}.value"));
        let fields = [
            (choice.as_str(), "value"),
            (&name, value),
            ("each.sessions.choice", "value"),
            ("each.sessions.value", "3"),
            ("step", "save"),
        ];
        let (status, _, page) = send(&boss, path, &fields).await;
        assert!(status == 422 && page.contains(says), "{field} {value}: {status} {page}");
        assert!(page.contains("aria-invalid=\"true\"") && page.contains("name=\"each.sessions.value\" value=\"3\""));
    }
    for value in ["48 GB", "48GiB", "48g"] {
        let version = hidden(&seen(&boss, path).await, "version");
        let fields = [
            ("version", version.as_str()),
            ("each.memory_bytes.choice", "value"),
            ("each.memory_bytes.value", value),
            ("each.memory_bytes.was", "something else"),
            ("step", "save"),
        ];
        assert_eq!(send(&boss, path, &fields).await.0, 303, "{value}");
        assert_eq!(overrides(&boss, "ada").await["memory_bytes"]["value"], 48_i64 << 30);
    }
    let before = overrides(&boss, "ada").await;
    for fields in [
        vec![("each.gpus.choice", "value"), ("each.gpus.value", "1"), ("each.gpus.until", "2001-01-01T00:00")],
        vec![("each.gpus.choice", "value"), ("each.gpus.value", "1"), ("each.gpus.until", "tomorrow")],
        vec![("each.gpus.choice", "unlimited"), ("each.gpus.note", "two\nlines")],
        vec![("each.gpus.choice", "inherit"), ("each.gpus.choice", "unlimited")],
        vec![("each.gpus.choice", "much")],
    ] {
        let (status, _, page) = send(&boss, path, &[&fields[..], &[("step", "save")]].concat()).await;
        assert!(status == 422 && page.contains("Nothing was saved"), "{fields:?}: {status}");
    }
    assert_eq!(overrides(&boss, "ada").await, before);
    assert_eq!(boss.visit("/admin/quotas/users/nobody").await.status(), 404);
    assert_eq!(boss.visit("/admin/quotas/groups/nobodys").await.status(), 404);
    // A group that nobody is in any more keeps its limits; one that is removed has none.
    let ada = portal.db().find_user_by_name("ada").await.unwrap().unwrap().user.id;
    let id = group.parse().unwrap();
    let page = format!("/admin/quotas/groups/{group}");
    let version = hidden(&seen(&boss, &page).await, "version");
    portal.db().set_member(id, ada, false, portal.by()).await.unwrap();
    let fields =
        [("version", version.as_str()), ("each.cpus.choice", "value"), ("each.cpus.value", "2"), ("step", "save")];
    assert_eq!(send(&boss, &page, &fields).await.0, 303);
    portal.db().remove_group(id, portal.by()).await.unwrap();
    assert_eq!(send(&boss, &page, &fields).await.0, 404);
}

#[tokio::test]
async fn two_hundred_people_would_be_over() {
    let Lab { portal, boss, .. } = lab().await;
    for number in 0..200 {
        let name = Username::parse(&format!("u{number:03}")).unwrap();
        let new = NewUser { name: &name, display_name: "", unix_name: None, role: Role::User, sign_in: SignIn::NotYet };
        let id = portal.db().add_user(new, portal.by()).await.unwrap();
        holds(&portal, id).await;
    }
    let fields = [("each.light.choice", "value"), ("each.light.value", "0")];
    let version = hidden(&seen(&boss, "/admin/quotas/default").await, "version");
    let fields = [&fields[..], &[("version", version.as_str()), ("each.light.was", "inherit")]].concat();
    let (status, _, page) = send(&boss, "/admin/quotas/default", &fields).await;
    assert_eq!(status, 200);
    assert!(page.contains("200 users would exceed a limit. Nothing will be stopped"), "{page}");
    assert!(page.contains("u049") && !page.contains("u050") && page.contains("and 150 more"));
    // Saved nevertheless, all of it goes on.
    let (status, ..) = send(&boss, "/admin/quotas/default", &[&fields[..], &[("step", "save")]].concat()).await;
    assert_eq!(status, 303);
    assert_eq!(portal.db().live_sessions().await.unwrap().len(), 200);

    let all = boss.get("/admin/quotas/table?sort=gpus").await;
    assert_eq!(all.headers()["content-disposition"], "attachment; filename=\"quotas.csv\"");
    let text = all.text().await.unwrap();
    assert_eq!(text.lines().count(), 205, "everybody, and the head");
    assert!(text.starts_with("\"user\",\"display_name\",\"groups\",\"gpus_used\",\"gpus_limit\""), "{text:.200}");
    let found: Value = boss.get("/api/v1/quotas/users?find=u1&sort=gpus&limit=7").await.json().await.unwrap();
    assert_eq!(found["items"].as_array().unwrap().len(), 7);
    assert_eq!(found["items"][0]["effective"]["gpus"]["source"], "default");
    let next = found["next_cursor"].as_str().unwrap();
    let second = boss.get(&format!("/api/v1/quotas/users?find=u1&sort=gpus&limit=7&cursor={next}")).await;
    assert_eq!(second.json::<Value>().await.unwrap()["items"][0]["user"], "u107");
    for wrong in ["sort=cores", "only=some", &format!("cursor={next}"), "limit=0", "find=a&find=b"] {
        assert_eq!(boss.get(&format!("/api/v1/quotas/users?{wrong}")).await.status(), 422, "{wrong}");
    }
    let page = seen(&boss, "/admin/quotas?sort=seen").await;
    assert!(page.contains("Next page") && page.contains("of 0 GPUs allocated"), "{page}");
}

#[tokio::test]
async fn what_was_refused_and_what_is_stored_stands_on_the_persons_page() {
    let lab = lab().await;
    let ada = lab.portal.sign_in("ada").await;
    let limits = json!({ "cpus": 1, "storage_bytes": 100_i64 << 30 });
    let answer = lab.boss.request("PATCH", "/api/v1/quotas/users/ada").json(&limits).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let asked = json!({ "app": "terminal", "name": "too <large>", "resources": { "cpus": 2 } });
    assert_eq!(ada.post("/api/v1/sessions", &asked).await.status(), 409);
    let page = seen(&lab.boss, "/admin/quotas/users/ada").await;
    assert!(page.contains("too &#60;large&#62;") && page.contains("This asks for 2 cores"), "{page}");
    assert!(!page.contains("No requests were rejected recently."));

    assert!(!seen(&ada, "/").await.contains("Your home folder uses"), "nobody has measured it");
    let id = lab.portal.db().find_user_by_name("ada").await.unwrap().unwrap().user.id;
    let measured = FolderSize { bytes: 96 << 30, files: 12, unreadable: 0 };
    lab.portal.db().set_storage(id, Some(&measured), lab.portal.clock.now()).await.unwrap();
    let home = seen(&ada, "/").await;
    assert!(home.contains("Your home folder uses 96 GiB of your 100 GiB (override), which is 96 %."));
    assert!(home.contains("data-meter=\"storage_bytes\""), "{home}");
    let quota: Value = lab.boss.get("/api/v1/quotas/users/ada").await.json().await.unwrap();
    assert_eq!(quota["usage"]["storage_bytes"], 96_i64 << 30);
    let page = seen(&lab.boss, "/admin/quotas/users/ada").await;
    assert!(page.contains("data-meter=\"storage_bytes\"") || page.contains("96 GiB"), "{page}");
}

#[tokio::test]
async fn where_slurm_keeps_them_the_pages_are_read() {
    let Lab { portal, boss, group } = lab_of(TestPortal::start_with(|config| config.quotas = Quotas::Read).await).await;
    let ada = portal.db().find_user_by_name("ada").await.unwrap().unwrap().user.id;
    let source = Source::account("lab");
    let account = "lab".to_owned();
    let slurms = SlurmLimits {
        source: source.clone(),
        account: account.clone(),
        qualities: vec![("gpu".to_owned(), vec![(Field::Gpus, Limit::AtMost(1))])],
        each: vec![(Field::Gpus, Effective { limit: Limit::AtMost(1), source: Source::read("Slurm: QOS gpu") })],
        share: vec![(Field::Gpus, Limit::AtMost(2)), (Field::MemoryBytes, Limit::AtMost(3 << 30))],
        besides: vec!["6000 minutes of gres/gpu (GrpTRESMins)".to_owned()],
        ..SlurmLimits::default()
    };
    let held = Usage { gpus: 5, ..Usage::default() };
    let limits = vec![(Field::Gpus, Limit::AtMost(7))];
    let together = AccountLimits { source, account, limits, held, ..AccountLimits::default() };
    let known = SlurmLimitTable {
        people: [((ada, None), slurms)].into(),
        groups: [(group.parse().unwrap(), together)].into(),
        ..SlurmLimitTable::default()
    };
    assert!(portal.portal.sessions.admission.slurm_limits.as_ref().unwrap().set(known));
    let of_ada = seen(&boss, "/admin/quotas/users/ada").await;
    for wanted in [
        "Slurm: account lab",
        "Slurm: QOS gpu",
        "sacctmgr modify qos where name=gpu set MaxTRESPerUser=gres/gpu=1,cpu=-1,mem=-1",
        "6000 minutes of gres/gpu",
        "sacctmgr modify user where name=ada account=lab set GrpTRES=gres/gpu=2,cpu=-1,mem=3072M",
    ] {
        assert!(of_ada.contains(wanted), "{wanted}: {of_ada}");
    }
    let of_group = seen(&boss, &format!("/admin/quotas/groups/{group}")).await;
    let command = "sacctmgr modify account where name=lab set GrpTRES=gres/gpu=7,cpu=-1,mem=-1";
    assert!(of_group.contains(command) && of_group.contains("Slurm: account lab"), "{of_group}");
    let answer: Value = boss.get(&format!("/api/v1/quotas/groups/{group}")).await.json().await.unwrap();
    assert_eq!((&answer["slurm"]["gpus"]["limit"], &answer["usage"]["gpus"]), (&json!(7), &json!(5)), "{answer}");
    // Nothing can be sent, and what is sent all the same is answered.
    let mia = portal.sign_in("mia").await;
    let of_group = format!("/admin/quotas/groups/{group}");
    let gpus =
        [("each.gpus.was", "inherit"), ("each.gpus.choice", "value"), ("each.gpus.value", "2"), ("step", "save")];
    for (caller, path) in [
        (&boss, "/admin/quotas/users/ada"),
        (&boss, "/admin/quotas/default"),
        (&boss, "/admin/quotas/cluster"),
        (&boss, of_group.as_str()),
        (&mia, of_group.as_str()),
    ] {
        let page = seen(caller, path).await;
        assert!(!page.contains("Preview the change") && !page.contains(".choice"), "{path}: {page}");
        let (status, _, page) = send(caller, path, &gpus).await;
        assert!(status == 409 && page.contains("Change them with sacctmgr"), "{path}: {status} {page}");
    }
    assert!(!seen(&boss, "/admin/quotas").await.contains("name=\"user\""), "nobody is chosen either");
    let (status, _, page) = send(&boss, "/admin/quotas/selection", &[("user", "ada"), ("step", "choose")]).await;
    assert!(status == 409 && page.contains("Change them with sacctmgr"), "{status} {page}");
    assert_eq!(overrides(&boss, "ada").await, json!({}));
}
