//! `lyceum job submit --code` as somebody types it: a folder of this machine in the job's working directory, with every
//! name and the executable bit, the commit in the notes, a folder for each of many submissions, and nothing left over of
//! those that are rejected.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};

use super::World;

/// `lyceum` at the portal of a world, with its words so far.
fn lyceum(world: &World, words: &[&str]) -> Command {
    let token = world.person.authorization().replacen("Bearer ", "", 1);
    let mut command = Command::new(&world.house.program);
    command.args(words).env("LYCEUM_URL", &world.house.url).env("LYCEUM_TOKEN", token);
    command
}

/// How a command ended, and what it said on standard output and standard error.
fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The job or sweep that a command answers with, and what it said besides.
fn submitted(world: &World, words: &[&str]) -> (Value, String) {
    let (code, out, errors) = said(lyceum(world, words).output().unwrap());
    assert_eq!(code, Some(0), "{words:?}: {out} {errors}");
    (serde_json::from_str(&out).unwrap(), errors)
}

fn git(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(words);
    let (code, out, errors) = said(command.output().unwrap());
    assert_eq!(code, Some(0), "{words:?}: {errors}");
    out.trim().to_owned()
}

/// A repository with a commit that has a tag, and its id.
fn project(place: &Path) -> (PathBuf, String) {
    let folder = place.join("project");
    fs::create_dir_all(folder.join("deep/er")).unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    for (name, content) in [
        ("run.sh", "#!/bin/sh\npwd\ncat value 'deep/er/two words' 'deep/line\nbreak' 'ö +%41'\n"),
        ("value", "first "),
        ("deep/er/two words", "two "),
        ("deep/line\nbreak", "three "),
        ("ö +%41", "four"),
        (".gitignore", "data\n"),
        ("data", "huge"),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/etc/passwd", folder.join("passwd")).unwrap();
    git(&folder, &["init", "-q", "-b", "main"]);
    git(&folder, &["add", "."]);
    git(&folder, &["commit", "-q", "-m", "first"]);
    git(&folder, &["tag", "v1"]);
    let commit = git(&folder, &["rev-parse", "HEAD"]);
    (folder, commit)
}

/// The folders of submissions.
fn folders(world: &World) -> BTreeSet<PathBuf> {
    let listed = fs::read_dir(world.home().join("jobs"));
    listed.map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn log(world: &World, job: &Value) -> String {
    let path = format!("/api/v1/jobs/{}/log", job["id"].as_str().unwrap());
    world.person.request(&world.house, "GET", &path).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_job_runs_the_code_of_this_machine() {
    let Some(world) = World::open(&[]).await else { return };
    let place = tempfile::tempdir().unwrap();
    let (folder, commit) = project(place.path());
    let code = folder.to_str().unwrap();

    let words = ["job", "submit", "--code", code, "--name", "my training!", "--notes", "warm", "--wait", "--"];
    let (job, errors) = submitted(&world, &[&words[..9], &["--json"], &words[9..], &["./run.sh"]].concat()[..]);
    let here = PathBuf::from(job["working_directory"].as_str().unwrap());
    assert!(here.parent() == Some(&world.home().join("jobs")), "{job}");
    assert!(here.file_name().unwrap().to_str().unwrap().starts_with("my-training-2"), "{job}");
    assert_eq!(log(&world, &job).await.trim(), format!("{}\nfirst two three four", here.display()));
    assert_eq!(job["notes"], format!("warm\n\nCode: Git commit `{commit}`"));
    assert!(errors.contains("passwd: skipped, it is a link"), "{errors}");
    assert!(errors.contains("copied 6 files, ") && errors.contains(&format!(" to {}", here.display())), "{errors}");
    let expected = [".gitignore", "deep", "run.sh", "value", "ö +%41"].map(str::to_owned);
    assert_eq!(names(&here), expected.into(), "no link, no data, no empty folder, no .git");
    let mode = |name: &str| fs::metadata(here.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run.sh"), mode("value")), (0o750, 0o640));

    // What has changed since is copied, or what was committed.
    fs::write(folder.join("value"), "second ").unwrap();
    let (job, errors) = submitted(&world, &["job", "submit", "--code", code, "--wait", "--json", "--", "cat", "value"]);
    assert_eq!(log(&world, &job).await, "second ");
    assert_eq!(job["notes"], format!("Code: Git commit `{commit}` with local changes"), "{errors}");
    assert!(errors.contains(&format!("Git commit `{commit}` with local changes")), "{errors}");
    let words = ["job", "submit", "--code", code, "--git-revision", "v1", "--code-to", "lyceum:~/elsewhere", "--wait"];
    let (job, errors) = submitted(&world, &[&words[..], &["--json", "--", "./run.sh"]].concat());
    let there = job["working_directory"].as_str().unwrap();
    assert_eq!(Path::new(there).parent(), Some(&*world.home().join("elsewhere")));
    assert_eq!(log(&world, &job).await.trim(), format!("{there}\nfirst two three four"), "{errors}");
    assert_eq!(job["notes"], format!("Code: Git commit `{commit}` (`v1`)"));

    // A copy of a job has its folder, or new code.
    let id = job["id"].as_str().unwrap();
    let (copy, _) = submitted(&world, &["job", "clone", id, "--json"]);
    assert_eq!(copy["working_directory"], there);
    let (copy, _) = submitted(&world, &["job", "clone", id, "--code", code, "--wait", "--json", "--", "cat", "value"]);
    assert_ne!(copy["working_directory"], there);
    assert_eq!(log(&world, &copy).await, "second ");

    // Many jobs have one folder.
    let before = folders(&world).len();
    let words = ["sweep", "submit", "--code", code, "--param", "a=1,2", "--repeat", "2", "--json"];
    let (sweep, _) = submitted(&world, &[&words[..], &["--wait", "--", "cat", "value"]].concat());
    let tasks = sweep["items"].as_array().unwrap();
    assert_eq!((tasks.len(), folders(&world).len()), (4, before + 1));
    for task in tasks {
        let job = world.person.get(&world.house, &format!("/jobs/{}", task["job"].as_str().unwrap())).await;
        assert_eq!(log(&world, &job).await, "second ");
        assert_eq!(job["notes"], format!("Code: Git commit `{commit}` with local changes"));
    }
    let words = ["job", "submit", "--code", code, "--array", "0-1", "--json", "--", "cat", "value"];
    assert!(submitted(&world, &words).0["working_directory"].as_str().is_some());
    let before = folders(&world).len();
    let words = ["sweep", "submit", "--dry-run", "--code", code, "--param", "a=1,2", "--", "true"];
    let (code, out, errors) = said(lyceum(&world, &words).output().unwrap());
    assert!(code == Some(0) && out.starts_with("2 tasks") && errors.contains("would copy 6 files"), "{out} {errors}");
    assert_eq!(folders(&world).len(), before);
}

#[tokio::test]
async fn each_of_many_submissions_has_its_own_folder() {
    let Some(world) = World::open(&[]).await else { return };
    world.house.admin().allow(&world.house, &world.person, json!({ "jobs": -1, "pending": -1 })).await;
    let place = tempfile::tempdir().unwrap();
    let (folder, _) = project(place.path());
    let words = ["job", "submit", "--code", folder.to_str().unwrap(), "--json", "--", "cat", "value"];
    let mut all = Vec::new();
    for _ in 0..20 {
        let mut command = lyceum(&world, &words);
        all.push(tokio::task::spawn_blocking(move || said(command.output().unwrap())));
    }
    let mut found = BTreeSet::new();
    for one in all {
        let (code, out, errors) = one.await.unwrap();
        assert_eq!(code, Some(0), "{out} {errors}");
        let job: Value = serde_json::from_str(&out).unwrap();
        let here = PathBuf::from(job["working_directory"].as_str().unwrap());
        assert_eq!(names(&here).len(), 5);
        assert_eq!(fs::read_to_string(here.join("deep/er/two words")).unwrap(), "two ");
        found.insert(here);
    }
    assert_eq!(found.len(), 20);
    assert_eq!(folders(&world), found);
}

#[tokio::test]
async fn what_is_not_submitted_leaves_nothing_over() {
    let Some(world) = World::configured(&[], "[files]\nmax_upload = \"1MiB\"\n").await else { return };
    let place = tempfile::tempdir().unwrap();
    let (folder, _) = project(place.path());
    let code = folder.to_str().unwrap();
    let refused = |words: &[&str], status: i32, why: &str| {
        let words = [&["job", "submit", "--code", code], words].concat();
        let (code, out, errors) = said(lyceum(&world, &words).output().unwrap());
        assert!(code == Some(status) && out.is_empty() && errors.contains(why), "{words:?}: {code:?} {out} {errors}");
        assert_eq!(folders(&world), BTreeSet::new(), "{words:?}");
    };
    refused(&["--environment", "nowhere", "--", "true"], 65, "environment");
    refused(&["--working-directory", "x", "--", "true"], 2, "cannot be used with");
    refused(&["--git-revision", "v2", "--", "true"], 2, "`v2` is not a commit, tag or branch");
    refused(&["--code-to", "missing/deep", "--", "true"], 66, "nothing was submitted: missing/deep: ");
    // The portal rejects one of the files.
    fs::write(folder.join("large"), vec![0; 2 << 20]).unwrap();
    refused(&["--", "true"], 65, "project/large: ");
    refused(&["--", "true"], 65, "nothing was submitted: ");
    let jobs = world.person.get(&world.house, "/jobs").await;
    assert_eq!(jobs["items"], json!([]));
}
