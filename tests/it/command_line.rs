//! The program as somebody types it: groups and limits on the database, what is written down of
//! it, one's own sessions over the API, and readers of its output that have seen enough.

use std::{
    fs::{self, DirBuilder},
    io::pipe,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    process::{Command, Output},
};

use lyceum::{
    db::{Config, Db},
    model::{GroupName, Role, SessionId},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::portal::TestPortal;

/// A data directory without a portal.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        DirBuilder::new().mode(0o700).create(place.private()).unwrap();
        place
    }

    fn private(&self) -> PathBuf {
        self.0.path().join("private")
    }

    fn command(&self, words: &str) -> Command {
        self.command_of(&words.split(' ').collect::<Vec<_>>())
    }

    fn command_of(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words).arg("--data").arg(self.0.path());
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LYCEUM_ENVIRONMENTS__BUILD", "never");
        command
    }

    /// What a command says that ends well.
    fn run(&self, words: &str) -> String {
        self.run_words(&words.split(' ').collect::<Vec<_>>())
    }

    fn run_words(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command_of(words).output().unwrap();
        assert!(status.success() && stderr.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// What a command says that is refused.
    fn refused(&self, words: &str) -> String {
        self.refused_words(&words.split(' ').collect::<Vec<_>>())
    }

    fn refused_words(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command_of(words).output().unwrap();
        assert!(status.code() == Some(1) && stdout.is_empty(), "{words:?}");
        String::from_utf8(stderr).unwrap()
    }

    async fn db(&self) -> Db {
        Db::open(&Config::default(), &self.private()).await.unwrap()
    }
}

#[tokio::test]
async fn groups_are_kept_on_the_command_line() {
    let place = Place::new();
    place.run("admin user add ada");
    place.run("admin group add vision");
    place.run("admin group member add vision ada");
    place.run("admin group member add vision ada");
    place.run("admin group manager add vision ada");
    let list = place.run("admin group list");
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [vec!["NAME", "SOURCE", "MEMBERS", "MANAGERS"], vec!["vision", "local", "1", "ada"]]);
    let groups: Value = serde_json::from_str(&place.run("admin group list --json")).unwrap();
    assert_eq!((&groups[0]["name"], &groups[0]["members"]), (&Value::from("vision"), &Value::from(1)));
    let id = groups[0]["id"].as_str().unwrap();

    for (words, why) in [
        ("admin group add vision", "there is already a group `vision`"),
        ("admin group add No!", "a group's name must have"),
        ("admin group rename speech sight", "there is no group `speech`"),
        ("admin group member add vision bob", "there is no user `bob`"),
        ("admin group manager remove speech ada", "there is no group `speech`"),
    ] {
        let said = place.refused(words);
        assert!(said.contains(why), "{words}: {said}");
    }

    place.run(&format!("admin group rename {id} sight"));
    place.run("admin group manager remove sight ada");
    place.run("admin group member remove sight ada");
    place.run("admin group remove sight");
    assert_eq!(place.run("admin group list").lines().count(), 1);

    let db = place.db().await;
    let rows = db.audit_after(0, 100).await.unwrap();
    assert!(rows.iter().all(|row| row.actor.starts_with("unix:")), "{rows:?}");
    let told: Vec<_> = rows.iter().map(|row| format!("{} {} {}", row.action, row.subject, row.detail)).collect();
    assert_eq!(
        told,
        [
            "user.add ada user",
            "group.add vision ",
            "group.member_add vision ada",
            "group.manager_add vision ada",
            "group.rename sight was vision",
            "group.manager_remove sight ada",
            "group.member_remove sight ada",
            "group.remove sight ",
        ]
    );
}

#[tokio::test]
async fn limits_are_set_and_shown_on_the_command_line() {
    let place = Place::new();
    place.run("admin user add ada");
    place.run("admin group add vision");
    assert_eq!(place.run("admin quota get default"), "nothing is set here; inherited values apply\n");

    // As people write them, and as it is shown it can be set again.
    let words = [
        "admin",
        "quota",
        "set",
        "default",
        "memory_bytes=48 GB",
        "max_session_seconds=8h",
        "gpus=1",
        "cpus=unlimited",
    ];
    let set = place.run_words(&words);
    assert_eq!(set, "cpus=unlimited\ngpus=1\nmax_session_seconds=8h\nmemory_bytes=48GiB\n");
    assert_eq!(place.run("admin quota get default"), set);
    assert_eq!(place.run(&format!("admin quota set default {}", set.trim().replace('\n', " "))), set);
    assert_eq!(
        place.run("admin quota set default memory_bytes=48GiB cpus=inherit gpus=inherit max_session_seconds=inherit"),
        "memory_bytes=48GiB\n"
    );

    let group = place.run("admin quota set group vision gpus=2 total.gpus=8 total.gpu_hours=2000 chargeable=yes");
    assert_eq!(group, "total.gpu_hours=2000\ngpus=2\ntotal.gpus=8\nchargeable=yes\nrestrictive=no\n");
    assert_eq!(place.run("admin quota set cluster gpus=16"), "total.gpus=16\n");
    assert_eq!(
        place.run("admin quota set group vision total.gpus=inherit total.gpu_hours=inherit gpus=inherit chargeable=no"),
        "chargeable=no\nrestrictive=no\n"
    );

    // An override with its end and its note, which a change keeps that does not name them.
    let words = ["admin", "quota", "set", "user", "ada", "gpus=2", "--until", "2099-01-31", "--note", "a thesis"];
    let noted = "  until 2099-01-31T00:00:00Z  # a thesis\n";
    assert_eq!(place.run_words(&words), format!("gpus=2{noted}"));
    assert_eq!(place.run("admin quota set user ada gpus=4 cpus=8"), format!("cpus=8\ngpus=4{noted}"));
    assert_eq!(place.run("admin quota set user ada gpus=4 --until never"), "cpus=8\ngpus=4  # a thesis\n");
    assert_eq!(place.run_words(&["admin", "quota", "set", "user", "ada", "gpus=4", "--note", ""]), "cpus=8\ngpus=4\n");
    let shown = place.run("admin quota set user ada gpus=4 cpus=inherit --until 30d");
    assert!(shown.starts_with("gpus=4  until 20"), "{shown}");
    let read: Value = serde_json::from_str(&place.run("admin quota get user ada --json")).unwrap();
    let gpus = &read["fields"]["gpus"];
    assert_eq!((&gpus["value"], &gpus["note"]), (&Value::from(4), &Value::Null), "{read}");
    assert!(gpus["expires_at"].is_string() && gpus["updated_by"].as_str().unwrap().starts_with("unix:"), "{read}");

    let rows = place.db().await.audit_after(0, 100).await.unwrap();
    let changes = rows.iter().filter(|row| row.action == "quota.change");
    // Three changes leave it with its note; of a fourth it is what was before.
    assert_eq!(changes.filter(|row| row.subject == "ada" && row.detail.contains("a thesis")).count(), 4);
}

#[test]
fn a_service_account_is_given_to_nobody() {
    let place = Place::new();
    place.run("admin user add svc-ci --service");
    for words in ["admin user link svc-ci", "admin user password svc-ci --password-stdin"] {
        let refused = place.refused(words);
        assert!(refused.contains("`svc-ci` is a service account"), "{words}: {refused}");
    }
    assert!(place.run("admin user list").contains(" service "));
}

#[tokio::test]
async fn ends_of_accounts_are_set_on_the_command_line() {
    let place = Place::new();
    place.run("admin user add ada");
    place.run("admin user expire ada --until 2099-01-31");
    assert!(place.run("admin user list").contains(" 2099-01-31T00:00:00Z "));
    place.run("admin user expire ada --until 2099-01-31T12:00:00+02:00");
    let listed: Value = serde_json::from_str(&place.run("admin user list --json")).unwrap();
    assert_eq!(listed[0]["expires_at"], "2099-01-31T10:00:00Z");
    for (until, why) in [
        ("soon", "`soon` is not a date or time in UTC"),
        ("2001-01-31", "This must be in the future"),
        ("7", "`7` is not a date or time in UTC"),
    ] {
        let refused = place.refused(&format!("admin user expire ada --until {until}"));
        assert!(refused.contains("--until") && refused.contains(why), "{until}: {refused}");
    }
    place.run("admin user expire ada --until now");
    place.run("admin user expire ada --until never");
    assert!(place.run("admin user list").contains(" never "));
    // It has ended while no portal ran.
    place.run("admin user expire ada --until 30d");
    let db = place.db().await;
    let ada = db.find_user_by_name("ada").await.unwrap().unwrap().user;
    assert!(db.expire_account(ada.id, ada.expires_at.unwrap()).await.unwrap());
    place.run("admin user expire ada --until 31d");
    assert!(place.run("admin user list").contains("expired"));
    place.run("admin user enable ada");
    assert!(place.run("admin user list").contains("active"));
    let rows = db.audit_after(0, 100).await.unwrap();
    let rows: Vec<&str> = rows.iter().map(|row| row.action.as_str()).collect();
    let expiry = "user.expiry";
    assert_eq!(rows, ["user.add", expiry, expiry, expiry, expiry, expiry, "user.expire", expiry, "user.enable"]);
}

#[test]
fn what_cannot_be_set_is_said_and_nothing_is() {
    let place = Place::new();
    place.run("admin user add ada");
    place.run("admin group add vision");
    for (words, why) in [
        ("default memory_bytes=48", "memory_bytes: `48` is not a valid value. 48 of what? Write the unit: 48 GiB."),
        ("default max_session_seconds=8", "8 of what? Write the unit: 8 h."),
        ("default memory_bytes=8h", "Write a size as 48 GiB"),
        ("default max_session_seconds=8GB", "Write a time as 8 h"),
        ("default gpus=48GiB", "GPUs are counted"),
        ("default gpus=-2", "This must not be negative"),
        ("default gpus=1.5", "no fractions"),
        ("default gpus=1e9", "no powers"),
        ("default gpus=99999999999999999999", "too large"),
        ("default gpu=1", "there is no field `gpu`"),
        ("default gpus", "`gpus` is not of the form FIELD=VALUE"),
        ("default gpus=1 gpus=2", "gpus is given twice"),
        ("default total.gpus=2", "set at `group NAME` or `cluster`"),
        ("default chargeable=yes", "there is no field `chargeable`"),
        ("group vision chargeable=perhaps", "chargeable must be `yes` or `no`"),
        ("group vision total.pending=2", "is a limit for each user"),
        ("cluster pending=2", "is a limit for each user"),
        ("user bob gpus=2", "there is no user `bob`"),
        ("group speech gpus=2", "there is no group `speech`"),
        ("somebody gpus=2", "the first word must be"),
        ("default", "no fields given"),
        ("default gpus=1 --until 2001-01-31", "--until: This must be in the future."),
        ("default gpus=1 --until 30", "is not a date or time"),
        ("default gpus=1 --until soon", "is not a date or time"),
        ("default gpus=inherit --note why", "require a field with a value"),
    ] {
        let said = place.refused(&format!("admin quota set {words}"));
        assert!(said.contains(why), "{words}: {said}");
    }
    let long = "x".repeat(501);
    let said = place.refused_words(&["admin", "quota", "set", "default", "gpus=1", "--note", &long]);
    assert!(said.contains("--note: At most 500 characters."), "{said}");
    // Everything that is wrong is told at once, and what was right beside it is not set.
    let said = place.refused("admin quota set default cpus=4 gpus=-2 memory_bytes=48");
    assert!(said.contains("gpus: `-2`") && said.contains("48 of what?"), "{said}");
    for level in ["default", "cluster", "user ada"] {
        assert_eq!(place.run(&format!("admin quota get {level}")), "nothing is set here; inherited values apply\n");
    }
    assert!(place.refused("admin quota get default gpus").contains("`get` shows all limits"));
}

#[tokio::test]
async fn a_dry_run_says_who_would_be_over_and_changes_nothing() {
    let place = Place::new();
    for name in ["ada", "bob"] {
        place.run(&format!("admin user add {name}"));
    }
    let db = place.db().await;
    for name in ["ada", "bob"] {
        let user = db.find_user_by_name(name).await.unwrap().unwrap().user;
        crate::db::admitted(&db, user.id).await;
    }
    db.close().await;
    place.run("admin quota set user bob sessions=3");
    let told = place.run("admin quota set default sessions=0 memory_bytes=48GiB --dry-run --until 2099-01-31");
    let changes = "Dry run. This would change:\n  sessions: inherit → 0  until 2099-01-31T00:00:00Z\n  \
                   memory_bytes: inherit → 48GiB  until 2099-01-31T00:00:00Z\n";
    let over = "1 user would exceed a limit. Nothing will be stopped. New starts wait until usage is below the \
                limit.\n  \
                ada: 1 session in use, 0 sessions allowed (default)\n";
    assert_eq!(told, format!("{changes}{over}"));
    let told = place.run("admin quota set cluster cpus=1 --dry-run");
    assert!(
        told.contains("A total would be exceeded.")
            && told.contains("all users together: 2 cores in use, 1 core allowed"),
        "{told}"
    );
    let told = place.run("admin quota set user bob sessions=2 --dry-run");
    assert!(told.contains("sessions: 3 → 2\n") && told.ends_with("No user would exceed a limit.\n"), "{told}");
    assert!(place.refused("admin quota set default memory_bytes=48 --dry-run").contains("48 of what?"));
    for (level, set) in [("default", "nothing is set here; inherited values apply\n"), ("user bob", "sessions=3\n")] {
        assert_eq!(place.run(&format!("admin quota get {level}")), set);
    }
    let rows = place.db().await.audit_after(0, 100).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.action == "quota.change").count(), 1);
}

/// Somebody in a shell, who asks the portal as Ada.
struct Shell {
    url: String,
    token: String,
}

impl Shell {
    /// How it ended, and what it said on standard output and standard error. Beside the portal, which
    /// lives on this thread.
    async fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words.split(' ')).env_clear().env("LYCEUM_URL", &self.url).env("LYCEUM_TOKEN", &self.token);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    async fn told(&self, words: &str) -> String {
        let (code, told, complaint) = self.run(words).await;
        assert_eq!(code, Some(0), "{words}: {complaint}");
        told
    }
}

#[tokio::test]
async fn ones_own_limits_groups_and_time_in_a_shell() {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let id_of_ada = portal.add_user("ada", Role::User).await;
    let (boss, ada) = (portal.sign_in("boss").await, portal.sign_in("ada").await);
    let db = portal.db();
    for name in ["speech", "vision"] {
        let group = db.add_group(&GroupName::parse(name).unwrap(), None, portal.by()).await.unwrap();
        db.set_member(group, id_of_ada, true, portal.by()).await.unwrap();
        let chargeable = json!({ "chargeable": true });
        let answer = boss.request("PATCH", &format!("/api/v1/quotas/groups/{name}")).json(&chargeable).send().await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    let limits = json!({ "memory_bytes": 48_i64 << 30, "max_extensions": 1 });
    assert_eq!(boss.request("PATCH", "/api/v1/quotas/users/ada").json(&limits).send().await.unwrap().status(), 200);
    let made: Value = ada.post("/api/v1/tokens", &json!({ "name": "shell" })).await.json().await.unwrap();
    let shell = Shell {
        url: portal.url.clone(),
        token: made["secret"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned(),
    };

    // With several groups one has to be said, of those that there are; it is remembered.
    let (code, _, complaint) = shell.run("session start terminal --cpus 1 --memory 64MiB").await;
    assert!(
        code == Some(65) && complaint.contains("group: choose the group that this is charged to: speech, vision"),
        "{complaint}"
    );
    let (_, _, complaint) = shell.run("session start terminal --group chess").await;
    assert!(complaint.contains("group: must be one of speech, vision"), "{complaint}");
    let started = shell.told("session start terminal --cpus 1 --memory 64MiB --group vision --name long --json").await;
    let started: Value = serde_json::from_str(&started).unwrap();
    let id: SessionId = started["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(started["group"], "vision", "{started}");
    let job = shell.told("job submit --group speech --json -- sleep 1").await;
    assert_eq!(serde_json::from_str::<Value>(&job).unwrap()["group"], "speech", "{job}");

    let (code, _, complaint) = shell.run(&format!("session extend {id}")).await;
    assert!(code == Some(65) && complaint.contains("nly a running session can be extended"), "{complaint}");
    let now = portal.clock.now();
    assert!(db.begin_start(id, now).await.unwrap());
    assert!(db.mark_running(id, now, now.plus_seconds(3600)).await.unwrap());
    let kept: Value = serde_json::from_str(&shell.told(&format!("session keep {id} 90m --json")).await).unwrap();
    assert_eq!(kept["id"], json!(id), "{kept}");
    assert_eq!(db.find_session(id).await.unwrap().unwrap().keep_until, Some(now.plus_seconds(5400)));
    let short = &id.to_string()[..35];
    assert!(shell.told(&format!("session extend {short} 2h")).await.contains("long is running"));
    assert_eq!(db.find_session(id).await.unwrap().unwrap().expires_at, Some(now.plus_seconds(3 * 3600)));
    let (code, _, complaint) = shell.run(&format!("session extend {id} 2h")).await;
    assert!(code == Some(65) && complaint.contains("extended"), "once alone: {complaint}");
    for wrong in [format!("session extend {id} 0s"), format!("session keep {id} long")] {
        assert_eq!(shell.run(&wrong).await.0, Some(2), "{wrong}");
    }

    let table = shell.told("quota").await;
    let line = |name: &str| {
        let found =
            table.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{table}"));
        found.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("memory_bytes")[2..], ["48 GiB", "override"], "{table}");
    assert_eq!(line("max_extensions"), ["max_extensions", "-", "1", "override"]);
    assert_eq!(line("light"), ["light", "1", "6", "default"]);
    let read: Value = serde_json::from_str(&shell.told("quota --json").await).unwrap();
    assert_eq!((&read["quota"]["light"]["limit"], &read["usage"]["light"]), (&json!(6), &json!(1)), "{read}");

    // The audit log, for administrators alone: forwards from a number on, one line an entry.
    assert_eq!(shell.run("audit --from 1").await.0, Some(77));
    let made: Value = boss.post("/api/v1/tokens", &json!({ "name": "collector" })).await.json().await.unwrap();
    let collector = Shell { url: portal.url.clone(), token: made["secret"].as_str().unwrap().to_owned() };
    let lines = collector.told("audit --from 3 --json").await;
    let numbers = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_i64().unwrap());
    let numbers: Vec<i64> = numbers.collect();
    let count = i64::try_from(db.audit_after(0, 500).await.unwrap().len()).unwrap();
    assert_eq!(numbers, (3..=count).collect::<Vec<_>>());
    assert_eq!(collector.told(&format!("audit --from {}", count + 1)).await, "");
    let latest = collector.told("audit").await;
    assert!(latest.lines().last().unwrap().starts_with(&count.to_string()), "{latest}");
}

#[test]
fn who_reads_no_further_ends_a_command_quietly() {
    let place = Place::new();
    place.run("admin user add ada");
    for words in [
        "admin user list",
        "admin user list --json",
        "admin group list",
        "admin group list --json",
        "admin quota get default",
        "admin token create --user ada",
        "admin audit verify",
        "check",
        "check --json",
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = place.command(words).stdout(writer).output().unwrap();
        assert!(status.success() && stderr.is_empty(), "{words}: {status} {}", String::from_utf8_lossy(&stderr));
    }
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let status = place.command("admin user disable bob").stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1), "nobody hears why, and it is no crash");
}

#[tokio::test]
async fn tokens_are_rotated_in_a_shell() {
    let portal = TestPortal::start().await;
    portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let made: Value = ada.post("/api/v1/tokens", &json!({ "name": "shell" })).await.json().await.unwrap();
    let first = made["secret"].as_str().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("secret"), first).unwrap();
    let run = async |words: &str, input: bool| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words.split(' ')).env_clear().env("HOME", home.path());
        if input {
            command.stdin(fs::File::open(home.path().join("secret")).unwrap());
        }
        let Output { status, stdout, stderr } = command.output().await.unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    };
    let told = async |words: &str| {
        let (code, said, complaint) = run(words, false).await;
        assert!(code == Some(0) && complaint.is_empty(), "{words}: {complaint}");
        said
    };
    let login = run(&format!("login {} --name here", portal.url), true).await;
    assert_eq!(login.0, Some(0), "{login:?}");

    let secret = told("token create ci --scope jobs --scope token:rotate --expires 2d").await;
    let ci = portal.bearer(secret.trim());
    assert_eq!(ci.get("/api/v1/jobs").await.status(), 200);
    let list = told("token list").await;
    assert!(
        list.contains("jobs token:rotate") && list.contains("everything") && !list.contains(secret.trim()),
        "{list}"
    );

    // The token of the context is replaced in its file, and not printed.
    let said = told("token rotate").await;
    assert!(said.starts_with("the token of context `here` has a new secret; it expires ") && !said.contains("lyc_"));
    assert_eq!(portal.bearer(first).get("/api/v1/me").await.status(), 401, "the old secret");
    let again = told("token rotate ci").await;
    assert_eq!(ci.get("/api/v1/jobs").await.status(), 401);
    assert_eq!(portal.bearer(again.trim()).get("/api/v1/jobs").await.status(), 200);
    told("token revoke ci").await;
    assert_eq!(portal.bearer(again.trim()).get("/api/v1/jobs").await.status(), 401);
    let (code, _, complaint) = run("token revoke ci shell", false).await;
    assert!(code == Some(1) && complaint.contains("ci: ") && complaint.contains("1 of 2 failed"), "{complaint}");
    assert_eq!(run("token list", false).await.0, Some(77), "it revoked itself");
}
