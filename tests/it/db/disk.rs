//! A disk that is full, and one that is read-only: a clear error, nothing half written, and
//! everything as before when there is room again. The disk is a small one in memory, mounted
//! where only a child process sees it; the child is this test once more.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use lyceum::{
    db::{Config, Db, Error, admit::AdmissionMode},
    model::Clock,
};

use super::{House, add_user, asking, inventory, judge, new_session, whole::assert_whole};
use crate::needs::{self, variable};

/// Names the small disk to the child.
const DISK: &str = "LYCEUM_TEST_DISK";

/// Runs this test's child on a disk of 6 MiB that nobody else sees; `prepare` is shell text
/// run in the disk beforehand.
fn on_small_disk(test: &str, prepare: &str) {
    let script =
        format!("mount -t tmpfs -o size=6m small \"$1\" || exit 77\n{prepare}\nexec \"$2\" --exact \"$3\" --nocapture");
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["sh", "-c", &script, "sh"])
        .args([directory.path(), &env::current_exe().unwrap()])
        .arg(test)
        .env(DISK, directory.path())
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mounted = output.status.code() != Some(77) && !said.contains("unshare failed");
    if needs::met("the right to mount a disk of one's own", mounted) {
        assert!(output.status.success(), "{said}");
    }
}

fn disk() -> Option<PathBuf> {
    variable(DISK).map(PathBuf::from)
}

#[tokio::test]
async fn full() {
    match disk() {
        Some(disk) => fill(&disk).await,
        None => on_small_disk("db::disk::full", ""),
    }
}

async fn fill(disk: &Path) {
    let db = Db::open(&Config::default(), disk).await.unwrap();
    let owner = add_user(&db, "a").await;
    fs::write(disk.join("ballast"), vec![7; 1 << 19]).unwrap();
    let mut written = Vec::new();
    let err = loop {
        let mut new = new_session(owner, 0);
        new.name = "x".repeat(5000);
        match db.admit(&asking(owner), AdmissionMode::Insert(&new), &Clock::System, judge(&inventory(0), 0)).await {
            Ok(_) => written.push(new.id),
            Err(err) => break err,
        }
        assert!(written.len() < 2000, "the disk has no end");
    };
    assert!(err.is_outage(), "{err:?}");
    let Error::Query(cause) = &err else { panic!("{err:?}") };
    assert!(cause.to_string().contains("full"), "{cause}");
    assert!(written.len() > 20);
    // What was written is there and whole, and one may look at it.
    assert_whole(&db).await;
    assert!(db.find_session(*written.last().unwrap()).await.unwrap().is_some());
    let refused = db.set_theme(owner, &"x".repeat(100_000)).await.unwrap_err();
    assert!(refused.is_outage(), "{refused:?}");

    // The same process goes on when there is room.
    fs::remove_file(disk.join("ballast")).unwrap();
    let new = new_session(owner, 0);
    db.admit(&asking(owner), AdmissionMode::Insert(&new), &Clock::System, judge(&inventory(0), 0)).await.unwrap();
    db.close().await;
    let db = Db::open(&Config::default(), disk).await.unwrap();
    assert_whole(&db).await;
    for id in written.iter().chain([&new.id]) {
        assert!(db.find_session(*id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn full_at_the_start() {
    match disk() {
        Some(disk) => {
            let err = Db::open(&Config::default(), &disk).await.unwrap_err();
            assert!(err.to_string().contains("the disk is full; free space on it"), "{err} {err:?}");
        }
        None => on_small_disk("db::disk::full_at_the_start", "head -c 6M /dev/zero > \"$1/ballast\" 2>/dev/null"),
    }
}

#[tokio::test]
async fn read_only() {
    if let Some(disk) = disk() {
        for folder in ["old", "new"] {
            let err = Db::open(&Config::default(), &disk.join(folder)).await.unwrap_err();
            assert!(err.to_string().contains("the file or its disk is read-only"), "{folder}: {err} {err:?}");
        }
        assert!(!disk.join("new/lyceum.db").exists());
        return;
    }
    let house = House::sqlite().await;
    house.db.close().await;
    let prepare = format!(
        "mkdir \"$1/old\" \"$1/new\" && cp {}/lyceum.db \"$1/old\" && mount -o remount,ro \"$1\" || exit 1",
        house.directory.path().display()
    );
    on_small_disk("db::disk::read_only", &prepare);
}
