//! `lyceum admin` as somebody types it: groups, what is written down of it, and readers of its
//! output that have seen enough.

use std::{
    fs::DirBuilder,
    io::pipe,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    process::{Command, Output},
};

use lyceum::db::{Config, Db};
use serde_json::Value;
use tempfile::TempDir;

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words.split(' ')).arg("--data").arg(self.0.path());
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LYCEUM_ENVIRONMENTS__BUILD", "never");
        command
    }

    /// What a command says that ends well.
    fn run(&self, words: &str) -> String {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        assert!(status.success() && stderr.is_empty(), "{words}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// What a command says that is refused.
    fn refused(&self, words: &str) -> String {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        assert!(status.code() == Some(1) && stdout.is_empty(), "{words}");
        String::from_utf8(stderr).unwrap()
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
    assert_eq!(lines, [vec!["NAME", "FROM", "MEMBERS", "MANAGERS"], vec!["vision", "local", "1", "ada"]]);
    let groups: Value = serde_json::from_str(&place.run("admin group list --json")).unwrap();
    assert_eq!((&groups[0]["name"], &groups[0]["members"]), (&Value::from("vision"), &Value::from(1)));
    let id = groups[0]["id"].as_str().unwrap();

    for (words, why) in [
        ("admin group add vision", "there is a group `vision` already"),
        ("admin group add No!", "a group's name has"),
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

    let db = Db::open(&Config::default(), &place.private()).await.unwrap();
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
