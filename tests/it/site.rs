//! A site as a file, by the command as somebody types it, against a running portal: thirty students at once and again,
//! what is wrong with a long file, two who apply at the same time, people of a directory, and what is removed.

use std::{
    fmt::Write as _,
    path::PathBuf,
    process::{Command, Output},
};

use lyceum::model::{GroupName, Role};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    people::of_directory,
    portal::{Caller, TestPortal},
};

const COURSE: &str = include_str!("../../contrib/site/course.yaml");

/// A portal, its administrator, and a folder with the administrator's files.
struct Site {
    portal: TestPortal,
    boss: Caller,
    token: String,
    folder: TempDir,
}

impl Site {
    async fn new() -> Self {
        Self::of(TestPortal::start().await).await
    }

    async fn of(portal: TestPortal) -> Self {
        portal.add_user("boss", Role::Admin).await;
        let boss = portal.sign_in("boss").await;
        let made: Value = boss.post("/api/v1/tokens", &json!({ "name": "shell" })).await.json().await.unwrap();
        let token = made["secret"].as_str().unwrap().to_owned();
        Self { portal, boss, token, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, text: &str) -> PathBuf {
        let file = self.folder.path().join("site.yaml");
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The status, standard output and standard error of a command. It runs beside the portal, which lives on this
    /// thread.
    async fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words).env_clear().env("LYCEUM_URL", &self.portal.url).env("LYCEUM_TOKEN", &self.token);
        command.current_dir(self.folder.path());
        let Output { status, stdout, stderr } =
            tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    async fn told(&self, words: &[&str]) -> String {
        let (code, told, complaint) = self.run(words).await;
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{words:?}: {told}");
        told
    }

    /// Applies a file that has faults, and returns them by place and code.
    async fn faults(&self, body: &Value) -> Vec<(String, String)> {
        let before = self.rows().await;
        let answer = self.boss.post("/api/v1/site/apply", body).await;
        assert_eq!(answer.status(), 422, "{body}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(self.rows().await, before, "nothing was changed");
        let word = |fault: &Value, key: &str| fault[key].as_str().unwrap().to_owned();
        answer["errors"].as_array().unwrap().iter().map(|fault| (word(fault, "field"), word(fault, "code"))).collect()
    }

    /// The number of the last row of the audit log.
    async fn rows(&self) -> i64 {
        self.portal.db().list_audit(1).await.unwrap()[0].number
    }

    async fn actions(&self, after: i64) -> Vec<String> {
        let rows = self.portal.db().audit_after(after, 1000).await.unwrap();
        assert!(rows.iter().all(|row| row.actor == "boss"), "{rows:?}");
        rows.into_iter().map(|row| format!("{} {}", row.action, row.subject)).collect()
    }
}

#[tokio::test]
async fn a_course_is_one_command_and_again_no_change() {
    let site = Site::new().await;
    site.file(COURSE);
    let plan = site.told(&["diff", "-f", "site.yaml"]).await;
    assert!(plan.contains("+ user student01: role=user\n") && plan.contains("+ group deep-learning\n"), "{plan}");
    assert!(plan.contains("+ member student30 of group deep-learning\n"), "{plan}");
    assert_eq!(site.run(&["diff", "-f", "site.yaml", "--exit-code"]).await.0, Some(1));
    let before = site.rows().await;
    assert_eq!(site.portal.db().count_users().await.unwrap(), 1, "a plan changes nothing");

    let told = site.told(&["apply", "-f", "site.yaml"]).await;
    assert!(told.starts_with(&plan), "what was planned is what was done: {told}");
    let actions = site.actions(before).await;
    let count = |action: &str| actions.iter().filter(|row| row.starts_with(action)).count();
    let counts = [count("user.add"), count("group.add"), count("group.member_add"), count("group.manager_add")];
    assert_eq!(counts, [31, 1, 30, 1], "{actions:?}");
    assert_eq!((count("quota.change"), count("announcement.make")), (2, 1), "{actions:?}");
    let links: Vec<&str> = told.lines().filter(|line| line.contains("/welcome#")).collect();
    assert_eq!(links.len(), 31, "{told}");

    let (before, again) = (site.rows().await, site.told(&["apply", "-f", "site.yaml"]).await);
    assert_eq!(again, "No change.\n");
    assert_eq!(site.told(&["diff", "-f", "site.yaml", "--exit-code", "--prune"]).await, "No change.\n");
    assert_eq!(site.rows().await, before, "no change leaves no row");

    // The link sets the password, once.
    let link = links.iter().find(|line| line.starts_with("student07\t")).unwrap();
    let code = link.split('#').nth(1).unwrap().split('\t').next().unwrap();
    let page = site.portal.anybody().visit("/welcome").await;
    assert_eq!(page.status(), 200);
    let set = async |password: &str, again: &str| {
        let fields = [("code", code), ("password", password), ("password_again", again)];
        site.portal.anybody().with("origin", &site.portal.url).post_form("/welcome", &fields).await
    };
    for (password, again, why) in [("short", "short", "10 characters"), ("long-enough", "long-enougg", "differ")] {
        let answer = set(password, again).await;
        assert_eq!(answer.status(), 422);
        let text = answer.text().await.unwrap();
        assert!(text.contains(why) && text.contains(code), "{text}");
    }
    assert_eq!(set("student07-chose-it", "student07-chose-it").await.status(), 303);
    let student = site.portal.sign_in_with("student07", "student07-chose-it").await;
    let me: Value = student.get("/api/v1/me").await.json().await.unwrap();
    assert_eq!((&me["name"], &me["groups"][0]), (&json!("student07"), &json!("deep-learning")), "{me}");
    assert_eq!(set("another-password", "another-password").await.status(), 422, "the link is used up");

    // What is exported declares what there is, also elsewhere.
    let exported = site.told(&["export"]).await;
    assert!(exported.contains("student30") && !exported.contains("student07-chose-it"), "{exported}");
    site.file(&exported);
    assert_eq!(site.told(&["apply", "-f", "site.yaml", "--prune"]).await, "No change.\n");
    site.file(&site.told(&["export", "--json"]).await);
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");
    assert_eq!(site.told(&["export"]).await, exported, "the order is stable");
    let other = Site::new().await;
    other.file(&exported);
    other.told(&["apply", "-f", "site.yaml"]).await;
    assert_eq!(other.told(&["export"]).await, exported);
}

#[tokio::test]
async fn a_fault_in_line_900_is_named_and_changes_nothing() {
    let site = Site::new().await;
    let mut text = "users:\n".to_owned();
    for line in 2..=1000 {
        match line {
            500 => text.push_str("  - {name: Not A Name}\n"),
            900 => text.push_str("  - {name: person900, role: boss, nick: x}\n"),
            _ => writeln!(text, "  - {{name: person{line}}}").unwrap(),
        }
    }
    text.push_str("groups:\n  - name: lab\n    members:\n      - person2\n      - nobody-knows\n");
    site.file(&text);
    let before = site.rows().await;
    for command in ["diff", "apply"] {
        let (code, told, complaint) = site.run(&[command, "-f", "site.yaml"]).await;
        assert_eq!((code, told.as_str()), (Some(65), ""), "{complaint}");
        let faults: Vec<&str> = complaint.lines().filter_map(|line| line.trim().strip_prefix("site.yaml:")).collect();
        let places: Vec<&str> = faults.iter().filter_map(|fault| Some(fault.rsplit_once(": ")?.0)).collect();
        let expected =
            ["500: users.498.name", "900: users.898.role", "900: users.898.nick", "1005: groups.0.members.4"];
        assert_eq!(places.len(), 4, "{complaint}");
        for place in &expected[..3] {
            assert!(faults.iter().any(|fault| fault.starts_with(place)), "{place}: {complaint}");
        }
        assert!(faults[3].starts_with("1005: groups.0.members.1: There is no user"), "{complaint}");
    }
    assert_eq!(site.rows().await, before);
    assert_eq!(site.portal.db().count_users().await.unwrap(), 1);

    // The others are a thousand people less two, in one command.
    let good: String = text
        .lines()
        .filter(|line| !line.contains("Not A") && !line.contains("boss"))
        .fold(String::new(), |text, line| if line.contains("nobody-knows") { text } else { text + line + "\n" });
    site.file(&good);
    assert!(site.told(&["apply", "-f", "site.yaml"]).await.contains("999 changes made.\n"));
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");

    for (text, why) in [("users: [", "is not valid YAML or JSON"), ("- a", "must be a mapping")] {
        site.file(text);
        let (code, _, complaint) = site.run(&["apply", "-f", "site.yaml"]).await;
        assert!(code == Some(2) && complaint.contains(why), "{complaint}");
    }
}

#[tokio::test]
async fn two_at_once_do_it_once() {
    let site = Site::new().await;
    site.file(COURSE);
    let before = site.rows().await;
    let apply = || site.run(&["apply", "-f", "site.yaml"]);
    let (one, other, third) = tokio::join!(apply(), apply(), apply());
    let added = site.actions(before).await.iter().filter(|row| row.starts_with("user.add")).count();
    assert_eq!(added, 31, "{one:?} {other:?} {third:?}");
    for (code, _, complaint) in [&one, &other, &third] {
        let is_told = *code == Some(65) && complaint.contains("Another request changed this");
        assert!(*code == Some(0) || is_told, "{complaint}");
    }
    assert!([one, other, third].iter().any(|(_, told, _)| told.contains("/welcome#")));

    // Exactly the plan that was shown is carried out, or none.
    let body = json!({ "quotas": { "default": { "gpus": 1 } } });
    let plan = site.boss.post("/api/v1/site/apply?dry_run=true", &body).await;
    let version = plan.headers()["etag"].to_str().unwrap().to_owned();
    let plan: Value = plan.json().await.unwrap();
    assert_eq!((&plan["applied"], plan["changes"].as_array().unwrap().len()), (&json!(false), 1), "{plan}");
    assert_eq!(plan["changes"][0]["detail"], "gpus=1", "{plan}");
    let change = site.boss.request("PATCH", "/api/v1/quotas/default").json(&json!({ "gpus": 3 })).send().await;
    assert_eq!(change.unwrap().status(), 200);
    let path = "/api/v1/site/apply";
    let ask = async |version: &str| {
        let request = site.boss.request("POST", path).header("if-match", version).json(&body);
        request.send().await.unwrap()
    };
    assert_eq!(ask(&version).await.status(), 412, "the plan is another one by now");
    let plan = site.boss.post("/api/v1/site/apply?dry_run=true", &body).await;
    let version = plan.headers()["etag"].to_str().unwrap().to_owned();
    let done: Value = ask(&version).await.json().await.unwrap();
    assert_eq!((&done["applied"], &done["changes"][0]["detail"]), (&json!(true), &json!("gpus=1, was 3")), "{done}");
}

#[tokio::test]
async fn people_and_groups_of_a_directory_stay_the_directorys() {
    let site = Site::new().await;
    let portal = &site.portal;
    of_directory(portal, "lea", Role::User, &["physics"]).await;
    portal.add_user("ada", Role::User).await;
    let faults = site
        .faults(&json!({
            "users": [
                { "name": "lea", "display_name": "Lea" }, { "name": "max", "source": "ldap" },
                { "name": "ada", "source": "ldap" }, { "name": "lea" }, { "name": "boss", "role": "user" },
                { "name": "root" },
            ],
            "groups": [
                { "name": "physics", "members": ["ada"] }, { "name": "chemistry", "source": "ldap" },
                { "name": "Bad Name" }, { "name": "lab", "managers": ["ada", "ada", "nobody-knows"] },
            ],
            "quotas": {
                "default": {
                    "gpus": -2, "gpu": 1, "memory_bytes": "4 GiB",
                    "cpus": { "value": 1, "expires_at": "2001-01-01T00:00:00Z" },
                },
                "cluster": { "pending": 3 },
            },
            "announcements": [{ "text": " " }],
        }))
        .await;
    let expected = [
        ("quotas.default.cpus.expires_at", "in_the_past"),
        ("quotas.default.gpu", "unknown_field"),
        ("quotas.default.gpus", "invalid_value"),
        ("quotas.default.memory_bytes", "invalid_value"),
        ("quotas.cluster.pending", "not_a_total"),
        ("users.0.display_name", "not_allowed"),
        ("users.1.name", "unknown_user"),
        ("users.2.source", "other_source"),
        ("users.3.name", "duplicate"),
        ("users.4.role", "not_allowed"),
        ("users.5.name", "invalid_value"),
        ("groups.0.members", "not_allowed"),
        ("groups.1.name", "unknown_group"),
        ("groups.2.name", "invalid_value"),
        ("groups.3.managers.1", "duplicate"),
        ("groups.3.managers.2", "unknown_user"),
        ("announcements.0.text", "missing_field"),
    ];
    assert_eq!(faults, expected.map(|(place, code)| (place.to_owned(), code.to_owned())));

    // Roles, limits and managers are ours to set.
    site.file(
        "users:\n- {name: lea, source: ldap, role: operator, quota: {gpus: 2}}\n\
         groups:\n- {name: physics, source: ldap, managers: [ada], each: {gpus: 1}, chargeable: true}\n",
    );
    let told = site.told(&["apply", "-f", "site.yaml"]).await;
    assert!(told.contains("5 changes made.\n"), "{told}");
    assert_eq!(site.told(&["apply", "-f", "site.yaml", "--prune"]).await, "No change.\n");
    site.file(&site.told(&["export"]).await);
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");

    // A token with scopes would give more than it has.
    let scoped = portal.token(&site.boss, &["admin:users", "admin:quotas", "admin:site"]).await;
    assert_eq!(scoped.post("/api/v1/site/apply", &json!({})).await.status(), 403);
}

#[tokio::test]
async fn where_accounts_come_from_outside_a_local_one_is_said_to_be_local() {
    let settings = lyceum::auth::header::Settings {
        user: "x-remote-user".to_owned(),
        ..lyceum::auth::header::Settings::default()
    };
    let site = Site::of(TestPortal::start_behind_proxy(settings, |_| {}).await).await;
    let faults = site.faults(&json!({ "users": [{ "name": "ada" }, { "name": "bob", "source": "local" }] })).await;
    assert_eq!(faults, [("users.0.name".to_owned(), "unknown_user".to_owned())]);
    site.file("users:\n- {name: ada, source: local}\n");
    assert!(site.told(&["apply", "-f", "site.yaml"]).await.contains("1 change made.\n"));
}

#[tokio::test]
async fn nothing_is_removed_but_what_is_asked_for() {
    let site = Site::new().await;
    let portal = &site.portal;
    let db = portal.db();
    for name in ["ada", "bob", "used"] {
        portal.add_user(name, Role::User).await;
    }
    portal.sign_in("used").await.get("/api/v1/me").await;
    let kept = db.add_group(&GroupName::parse("kept").unwrap(), None, portal.by()).await.unwrap();
    let ada = db.find_user_by_name("ada").await.unwrap().unwrap().user.id;
    db.set_member(kept, ada, true, portal.by()).await.unwrap();
    site.file(
        "quotas:\n  default: {gpus: 1, cpus: 4}\ngroups:\n- {name: lab, members: [ada, bob], managers: [ada]}\n\
         announcements:\n- {text: One}\n- {text: Two}\n",
    );
    site.told(&["apply", "-f", "site.yaml"]).await;

    site.file(
        "quotas:\n  default: {gpus: 1}\ngroups:\n- {name: lab, members: [ada], managers: []}\n\
         announcements:\n- {text: One, level: warning}\n",
    );
    let told = site.told(&["apply", "-f", "site.yaml"]).await;
    let unlisted = [
        "  not listed, kept without --prune: - quota of default: cpus=inherit, was 4\n",
        "  not listed, kept without --prune: - member bob of group lab\n",
        "  not listed, kept without --prune: - manager ada of group lab\n",
    ];
    assert!(unlisted.iter().all(|line| told.contains(line)) && told.contains("1 change made.\n"), "{told}");
    assert!(told.starts_with("~ announcement One: level=warning; on_login=no\n"), "{told}");
    let before = site.rows().await;
    let told = site.told(&["apply", "-f", "site.yaml", "--prune"]).await;
    assert!(told.contains("3 changes made.\n"), "{told}");
    let expected = ["quota.change default", "group.member_remove lab", "group.manager_remove lab"];
    assert_eq!(site.actions(before).await, expected, "what the file does not name stays");

    // Sections that list everything.
    site.file(
        "complete: [users, groups, announcements]\nusers:\n- {name: boss}\n- {name: bob}\n\
         groups:\n- {name: lab}\nannouncements: []\n",
    );
    let before = site.rows().await;
    let told = site.told(&["apply", "-f", "site.yaml"]).await;
    assert!(told.ends_with("No change.\n") && told.contains("kept without --prune: - user ada\n"), "{told}");
    assert_eq!(site.rows().await, before);
    let told = site.told(&["apply", "-f", "site.yaml", "--prune"]).await;
    for line in [
        "- user ada\n",
        "~ user used: disabled=yes, was no\n",
        "- group kept\n",
        "- announcement One\n",
        "- announcement Two\n",
    ] {
        assert!(told.contains(line), "{line}{told}");
    }
    assert_eq!(site.told(&["apply", "-f", "site.yaml", "--prune"]).await, "No change.\n");
    let me = site.boss.post("/api/v1/site/apply?prune=true", &json!({ "complete": ["users"], "users": [] })).await;
    let me: Value = me.json().await.unwrap();
    assert_eq!(me["errors"][0]["code"], "own_account", "{me}");
}

#[tokio::test]
async fn the_schema_of_the_file_is_printed() {
    let site = Site::new().await;
    let schema: Value = serde_json::from_str(&site.told(&["apply", "--schema"]).await).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["properties"]["users"]["items"]["$ref"] == "#/$defs/SiteUser", "{schema}");
    assert!(!schema.to_string().contains("#/components/"), "{schema}");
    assert_eq!(schema["$defs"]["SiteUser"]["required"], json!(["name"]), "{schema}");
    let (code, _, complaint) = site.run(&["apply"]).await;
    assert!(code == Some(2) && complaint.contains("--file"), "{complaint}");
}

#[tokio::test]
async fn ends_of_accounts_are_declared() {
    let mut site = Site::new().await;
    // Sign-ins do not last as long as this test.
    site.boss = site.portal.bearer(&site.token);
    let portal = &site.portal;
    portal.add_user("ada", Role::User).await;
    of_directory(portal, "lea", Role::User, &[]).await;
    let end = portal.clock.now().plus_seconds(86_400);
    let file = format!(
        "users:\n- {{name: ada, expires_at: {end}}}\n- {{name: lea, expires_at: {end}}}\n- {{name: new, source: local, \
         expires_at: {end}}}\n"
    );
    site.file(&file);
    let plan = site.told(&["diff", "-f", "site.yaml"]).await;
    assert!(plan.contains(&format!("user ada: expires_at={end}, was never")), "{plan}");
    assert!(plan.contains(&format!("; expires_at={end}")), "{plan}");
    let before = site.rows().await;
    site.told(&["apply", "-f", "site.yaml"]).await;
    let mut rows = site.actions(before).await;
    rows.sort();
    assert_eq!(rows, ["user.add new", "user.expiry ada", "user.expiry lea", "user.expiry new"]);
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");
    let exported = site.told(&["export"]).await;
    assert!(exported.contains(&end.to_string()), "{exported}");
    site.file(&exported);
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");

    // What is not named stays; null takes the end away.
    site.file("users:\n- {name: ada, role: user}\n- {name: lea, expires_at: null}\n");
    let told = site.told(&["apply", "-f", "site.yaml"]).await;
    assert!(told.contains(&format!("user lea: expires_at=never, was {end}")) && !told.contains("user ada"), "{told}");

    let past = portal.clock.now().plus_seconds(-60);
    let faults = site
        .faults(&json!({ "users": [
            { "name": "ada", "expires_at": past }, { "name": "boss", "expires_at": end },
            { "name": "other", "source": "local", "expires_at": past },
        ] }))
        .await;
    let fault = |place: &str, code: &str| (place.to_owned(), code.to_owned());
    let expected = [
        fault("users.0.expires_at", "invalid_value"),
        fault("users.1.expires_at", "not_allowed"),
        fault("users.2.expires_at", "invalid_value"),
    ];
    assert_eq!(faults, expected);

    // A file of an account that has ended changes nothing, and enables it with a later end only.
    portal.clock.advance(86_400);
    let ada = portal.db().find_user_by_name("ada").await.unwrap().unwrap().user;
    assert!(portal.db().expire_account(ada.id, portal.clock.now()).await.unwrap());
    let body = json!({ "users": [{ "name": "ada", "disabled": false, "expires_at": end }] });
    assert_eq!(site.faults(&body).await, [fault("users.0.disabled", "not_allowed")]);
    let later = portal.clock.now().plus_seconds(60);
    let body = json!({ "users": [{ "name": "ada", "disabled": false, "expires_at": later }] });
    assert_eq!(site.boss.post("/api/v1/site/apply", &body).await.status(), 200);
    let ada = portal.db().find_user(ada.id).await.unwrap().unwrap().user;
    assert_eq!((ada.disabled, ada.expires_at, ada.expired_at), (false, Some(later), None));
}

#[tokio::test]
async fn profiles_are_declared() {
    let site = Site::new().await;
    let listed = async || {
        let answer: Value = site.boss.get("/api/v1/profiles").await.json().await.unwrap();
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|one| format!("{} {} {}", one["name"], one["resources"]["cpus"], one["position"])).collect::<Vec<_>>()
    };
    let calculated = listed().await;
    site.file(
        "profiles:\n- {name: small, cpus: 2, memory: 4GiB}\n\
         - {name: large, title: Large, gpus: 1, gpu_model: A100, cpus: 8, memory: 1.5 GiB, duration: 2d, groups: [lab]}\n\
         - {name: first, cpus: 1, memory: 1GiB, position: 5}\n",
    );
    let told = site.told(&["diff", "-f", "site.yaml"]).await;
    let line = "+ profile large: gpus=1 (A100), cpus=8, memory=1.5 GiB, duration=2 d, position=20, groups=lab\n";
    assert!(told.contains(line) && told.contains("+ profile small: cpus=2, memory=4 GiB, duration=8 h"), "{told}");
    assert_eq!(listed().await, calculated, "nothing but the plan");
    let before = site.rows().await;
    site.told(&["apply", "-f", "site.yaml"]).await;
    let actions = site.actions(before).await;
    assert_eq!(actions, ["profile.add small", "profile.add large", "profile.add first"]);
    let three = ["\"first\" 1 5", "\"small\" 2 10", "\"large\" 8 20"];
    assert_eq!(listed().await, three);
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");
    let exported = site.told(&["export"]).await;
    assert!(exported.contains("1.5 GiB") && exported.contains("2d"), "{exported}");
    site.file(&exported);
    assert_eq!(site.told(&["apply", "-f", "site.yaml"]).await, "No change.\n");

    // What is not named stays; a size without GPUs has no model of them.
    site.file("profiles:\n- {name: large, gpus: 0, groups: []}\n");
    let told = site.told(&["apply", "-f", "site.yaml"]).await;
    assert!(told.contains("profile large: gpus=0, was 1; gpu_model=any, was A100; groups=all, was lab\n"), "{told}");
    let faults = site
        .faults(&json!({ "profiles": [
            { "name": "new", "memory": "much" }, { "name": "X", "cpus": 0, "memory": "1GiB", "duration": "1s" },
            { "name": "small", "title": "a\nb" }, { "name": "small" }, { "name": "large", "gpu_model": "A100" },
        ] }))
        .await;
    let fault = |place: &str, code: &str| (place.to_owned(), code.to_owned());
    let expected = [
        fault("profiles.0.cpus", "required"),
        fault("profiles.0.memory", "invalid_value"),
        fault("profiles.1.name", "invalid_name"),
        fault("profiles.1.cpus", "too_small"),
        fault("profiles.1.duration", "too_small"),
        fault("profiles.2.title", "characters"),
        fault("profiles.3.name", "duplicate"),
        fault("profiles.4.gpu_model", "not_available"),
    ];
    assert_eq!(faults, expected);

    // Twenty at once, while others add one: it is done once, and nobody sees a list without it.
    let body = json!({ "complete": ["profiles"], "profiles": [{ "name": "only", "cpus": 1, "memory": "1GiB" }] });
    let before = site.rows().await;
    let all = futures_util::future::join_all((0..20).map(|_| site.boss.post("/api/v1/site/apply?prune=true", &body)));
    let other = json!({ "name": "beside", "resources": { "cpus": 1 }, "duration_seconds": 60 });
    let (answers, beside) = tokio::join!(all, site.boss.post("/api/v1/profiles", &other));
    assert!(answers.iter().all(|answer| answer.status() == 200) && beside.status() == 201, "{answers:?}");
    let mut rows = site.actions(before).await;
    rows.retain(|row| !row.ends_with(" beside"));
    rows.sort();
    let expected = ["profile.add only", "profile.remove first", "profile.remove large", "profile.remove small"];
    assert_eq!(rows, expected);
    let stored: Vec<String> = site.portal.db().profiles().await.unwrap().into_iter().map(|row| row.name).collect();
    let shown = listed().await;
    assert!(shown.len() == stored.len() && shown.iter().zip(&stored).all(|(one, name)| one.contains(name.as_str())));
}

/// `PUT` of one user or group: made, changed, or left as it is, with limits and members.
#[tokio::test]
async fn one_item_is_put_again_and_again() {
    let site = Site::new().await;
    let put = async |path: &str, body: Value| {
        let answer = site.boss.request("PUT", &format!("/api/v1{path}")).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let wanted = json!({ "display_name": "Ada", "role": "operator", "quota": { "gpus": 2, "jobs": 5 } });
    let (status, made) = put("/users/ada", wanted.clone()).await;
    assert_eq!((status, &made["applied"], &made["changes"][0]["action"]), (200, &json!(true), &json!("add")), "{made}");
    assert!(made["invitations"][0]["url"].as_str().is_some_and(|url| url.contains("/welcome#")), "{made}");
    let rows = site.rows().await;
    let (status, again) = put("/users/ada", wanted).await;
    assert_eq!((status, &again["changes"], site.rows().await), (200, &json!([]), rows), "a no-op is no change");

    // Limits that are named are all that there are; what is omitted stays.
    let (status, changed) = put("/users/ada", json!({ "quota": { "gpus": 3 } })).await;
    let kinds: Vec<&Value> = changed["changes"].as_array().unwrap().iter().map(|one| &one["action"]).collect();
    assert_eq!((status, kinds), (200, vec![&json!("change"), &json!("remove")]), "{changed}");
    let ada: Value = site.boss.get("/api/v1/users/ada").await.json().await.unwrap();
    assert_eq!((&ada["role"], &ada["display_name"]), (&json!("operator"), &json!("Ada")));

    let course = json!({ "members": ["ada", "boss"], "managers": ["boss"], "total": { "gpus": 8 } });
    assert_eq!(put("/groups/course", course.clone()).await.1["applied"], json!(true));
    assert_eq!(put("/groups/course", course).await.1["applied"], json!(false));
    let (status, changed) = put("/groups/course", json!({ "members": ["ada"] })).await;
    assert_eq!((status, &changed["changes"][0]["name"]), (200, &json!("boss")), "{changed}");
    let members: Value = site.boss.get("/api/v1/groups/course/members").await.json().await.unwrap();
    assert_eq!(members["items"].as_array().unwrap().len(), 1, "{members}");

    let gone = "/groups/01a224c3-0a91-74e6-87c1-8f8f8f6e701d";
    assert_eq!(put(gone, json!({})).await.0, 404, "the id of a group that was removed is no name");

    // Faults name the fields of the body, and nothing is half done.
    let rows = site.rows().await;
    for (path, body, field) in [
        ("/users/eve", json!({ "quota": { "gpus": "many" } }), "quota.gpus"),
        ("/users/eve", json!({ "role": "chief" }), "role"),
        ("/users/eve", json!({ "colour": 1 }), "colour"),
        ("/users/UPPER CASE", json!({}), "name"),
        ("/users/boss", json!({ "disabled": true }), "disabled"),
        ("/groups/course", json!({ "members": ["nobody-here"] }), "members.0"),
    ] {
        let (status, said) = put(path, body.clone()).await;
        assert_eq!((status, &said["errors"][0]["field"]), (422, &json!(field)), "{path} {body}: {said}");
    }
    assert_eq!(site.rows().await, rows);
}
