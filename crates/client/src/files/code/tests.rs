//! Which files are the code of a job, in real folders and Git repositories, and how the new folder is named. The copy
//! itself is tested against a whole portal by tests/it/files/code.rs.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    process::Command,
};

use proptest::prelude::*;

use super::*;
use crate::{
    script_tests::{at, lyceum},
    tests::{ONE, Portal},
};

fn git(folder: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(words);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn put(folder: &Path, path: &str, content: &str) {
    let file = folder.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// The targets of a plan below the new folder; folders end in a slash.
fn targets(plan: &Plan) -> Vec<String> {
    let target = |step: &Step<Work>| match step.work.as_ref().unwrap() {
        Work::Folder(path) => format!("{path}/"),
        Work::File { target, executable, .. } => format!("{target}{}", if *executable { "*" } else { "" }),
    };
    let mut targets: Vec<String> = plan.steps.iter().map(target).collect();
    targets.sort();
    targets
}

fn plan(folder: &Path, revision: Option<&str>) -> Result<Plan, String> {
    Plan::of(folder, revision).map_err(|error| error.to_string())
}

#[test]
fn without_git_everything_is_copied() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    assert!(plan(folder, None).err().unwrap().contains("has no files to copy"));
    put(folder, "train.py", "x");
    put(folder, "a b/line\nbreak/ö", "yy");
    // Of a repository that is none any more.
    put(folder, "old/.git/HEAD", "");
    fs::create_dir(folder.join("empty")).unwrap();
    symlink("/etc", folder.join("link")).unwrap();
    let found = plan(folder, None).unwrap();
    assert_eq!(targets(&found), ["/a b/", "/a b/line\nbreak/", "/a b/line\nbreak/ö", "/empty/", "/old/", "/train.py"]);
    assert_eq!((found.size, found.version), (Size { files: 2, bytes: 3 }, None));
    assert!(plan(folder, Some("HEAD")).err().unwrap().contains("needs git, and"));
    assert!(plan(&folder.join("train.py"), None).err().unwrap().contains("is not a folder"));
    assert!(plan(&folder.join("missing"), None).err().unwrap().contains("is not a folder"));
    // What is left of a repository is none.
    put(folder, "old/train.py", "");
    assert_eq!(targets(&plan(&folder.join("old"), None).unwrap()), ["/train.py"]);
    // A name that the API cannot have.
    put(folder, "ok", "");
    fs::write(folder.join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    assert!(plan(folder, None).err().unwrap().contains("1 file or folder cannot be copied"));
}

#[test]
fn git_says_which_files_belong_to_a_work_tree() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    git(folder, &["init", "-q", "-b", "main"]);
    put(folder, ".gitignore", "data/\n*.pt\n");
    put(folder, "src/train.py", "one");
    put(folder, "src/gone.py", "");
    put(folder, "data/huge", "");
    put(folder, "model.pt", "");
    put(folder, "run.sh", "#!/bin/sh\n");
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run.sh", folder.join("link")).unwrap();
    assert_eq!(plan(folder, None).unwrap().version, None, "before the first commit");
    git(folder, &["add", "."]);
    git(folder, &["commit", "-q", "-m", "first"]);
    git(folder, &["tag", "v1"]);
    let found = plan(folder, None).unwrap();
    assert_eq!(targets(&found), ["/.gitignore", "/run.sh*", "/src/", "/src/gone.py", "/src/train.py"]);
    let version = found.version.unwrap();
    assert_eq!((version.commit.len(), &version.state), (40, &State::Clean));

    // What is new belongs to it, what was deleted does not.
    put(folder, "src/odd \n ö.py", "new");
    put(folder, "src/train.py", "two");
    fs::remove_file(folder.join("src/gone.py")).unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    // A repository inside is followed by its own rules.
    fs::create_dir(folder.join("nested")).unwrap();
    git(&folder.join("nested"), &["init", "-q"]);
    put(folder, "nested/.gitignore", "x\n");
    put(folder, "nested/x", "");
    put(folder, "nested/y", "");
    git(&folder.join("nested"), &["add", "."]);
    git(&folder.join("nested"), &["commit", "-q", "-m", "inside"]);
    let found = plan(folder, None).unwrap();
    let new = ["/nested/", "/nested/.gitignore", "/nested/y", "/run.sh*", "/src/", "/src/odd \n ö.py", "/src/train.py"];
    assert_eq!(targets(&found)[1..], new);
    let changed = found.version.unwrap();
    assert_eq!(changed, Version { commit: version.commit.clone(), state: State::Changed });
    // A folder of the repository has its own files alone.
    assert_eq!(targets(&plan(&folder.join("src"), None).unwrap()), ["/odd \n ö.py", "/train.py"]);
    assert!(plan(&folder.join("data"), None).err().unwrap().contains("has no files to copy"), "it is ignored");

    // A revision is what was committed, also of a folder.
    let of = |revision: &str| plan(folder, Some(revision));
    let first = of("v1").unwrap();
    assert_eq!(targets(&first), ["/.gitignore", "/run.sh*", "/src/", "/src/gone.py", "/src/train.py"]);
    assert_eq!(first.version, Some(Version { commit: version.commit.clone(), state: State::Named("v1".to_owned()) }));
    let content = first.steps.iter().find_map(|step| match step.work.as_ref().unwrap() {
        Work::File { source, target, .. } if target.ends_with("train.py") => {
            Some(std::io::read_to_string(source.open().unwrap()).unwrap())
        }
        _ => None,
    });
    assert_eq!(content.as_deref(), Some("one"));
    let below = plan(&folder.join("src"), Some("main")).unwrap();
    assert_eq!(targets(&below), ["/gone.py", "/train.py"]);
    for wrong in ["v2", "-h", "v1:src", ""] {
        assert!(of(wrong).err().unwrap().contains("is not a commit, tag or branch"), "{wrong}");
    }
    assert!(plan(&folder.join("empty"), Some("v1")).err().unwrap().contains("has no files in"));
    let kept = fs::read_to_string(folder.join("src/train.py")).unwrap();
    assert_eq!(kept, "two", "the work tree is left alone");
}

#[test]
fn what_is_too_large_is_refused_with_its_size() {
    let large = Size { files: 3, bytes: MAX_BYTES + 1 };
    let said = large.check(Path::new("here")).unwrap_err().to_string();
    assert!(said.contains("here has 3 files, 1 GiB; at most 20000 files, 1 GiB are copied"), "{said}");
    assert!(Size { files: MAX_FILES, bytes: MAX_BYTES }.check(Path::new("here")).is_ok());
    assert!(Size { files: MAX_FILES + 1, bytes: 0 }.check(Path::new("here")).is_err());
    // Counted without being read.
    let place = tempfile::tempdir().unwrap();
    fs::File::create(place.path().join("sparse")).unwrap().set_len(5 << 30).unwrap();
    put(place.path(), "train.py", "x");
    let said = plan(place.path(), None).err().unwrap();
    assert!(said.contains("has 2 files, 5 GiB; at most 20000 files, 1 GiB"), "{said}");
}

#[test]
fn versions_and_notes_in_words() {
    let version = |state| sentence(&Version { commit: "ab".to_owned(), state });
    assert_eq!(version(State::Clean), "Git commit `ab`");
    assert_eq!(version(State::Changed), "Git commit `ab` with local changes");
    assert_eq!(version(State::Named("v1".to_owned())), "Git commit `ab` (`v1`)");
    assert_eq!(version(State::Named("ab".to_owned())), "Git commit `ab`");
    assert_eq!(with_line(None, "b"), "b");
    assert_eq!(with_line(Some(""), "b"), "b");
    assert_eq!(with_line(Some("a\n"), "b"), "a\n\nb");
}

#[test]
fn only_what_was_rejected_for_sure_is_removed() {
    let problem = |status| {
        let mut problem = crate::api::Problem::default();
        problem.status = status;
        Error::Problem(Box::new(problem))
    };
    for (status, is_array, is_rejected) in [
        (422, false, true),
        (403, true, true),
        (409, false, true),
        (409, true, false),
        (429, false, false),
        (500, false, false),
        (503, false, false),
    ] {
        assert_eq!(is_rejection(&problem(status), is_array), is_rejected, "{status}");
    }
    assert!(!is_rejection(&Error::Unreachable { url: String::new(), why: String::new() }, false));
    assert!(!is_rejection(&Error::Strange(String::new()), false));
}

/// A portal with a new folder, which answers submissions with these statuses, one after the other.
fn portal(uploads: u16, jobs: Vec<u16>) -> Portal {
    let mut jobs = jobs.into_iter();
    let answers = std::sync::Mutex::new(move || jobs.next().unwrap());
    Portal::start(move |line| match line {
        line if line.starts_with("POST /api/v1/files/folders") => (201, json!({ "encoded_path": "/h/jobs/a%20b" })),
        line if line.starts_with("POST /api/v1/files/uploads ") => {
            (uploads, json!({ "id": "u", "offset_bytes": 0, "title": "No", "detail": "No." }))
        }
        line if line.starts_with("POST /api/v1/jobs") => {
            let job = json!({ "id": ONE, "state": "queued", "title": "No", "detail": "No." });
            (answers.lock().unwrap()(), job)
        }
        _ => (200, json!({})),
    })
}

#[tokio::test]
async fn a_lost_response_submits_nothing_twice() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "empty.py", "");
    let words = ["job", "submit", "--json", "--code", place.path().to_str().unwrap(), "--", "true"];
    let portal = portal(201, vec![503, 201]);
    let (status, printed) = lyceum(&at(&portal), &words, "").await;
    assert!(status == 0 && printed.contains(ONE), "{printed}");
    let requests = portal.requests();
    let key = |request: &String| {
        request.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned)).unwrap()
    };
    let posts: Vec<&String> = requests.iter().filter(|text| text.starts_with("POST /api/v1/jobs ")).collect();
    assert_eq!((posts.len(), key(posts[0])), (2, key(posts[1])));
    assert!(posts[1].contains(r#""working_directory":"/h/jobs/a b""#), "{}", posts[1]);
    assert!(requests.iter().any(|text| text.contains(r#""path":"/h/jobs/a b/empty.py""#)), "{requests:?}");
    assert!(requests.iter().all(|text| !text.starts_with("DELETE")), "{requests:?}");
}

#[tokio::test]
async fn what_was_copied_for_nothing_is_removed() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "train.py", "");
    let words = ["job", "submit", "--code", place.path().to_str().unwrap(), "--", "true"];
    for (uploads, jobs, why) in [(413, vec![], "train.py: No"), (201, vec![422], "No")] {
        let has_job = !jobs.is_empty();
        let portal = portal(uploads, jobs);
        let (status, said) = lyceum(&at(&portal), &words, "").await;
        assert!(status == 65 && said.contains(why) && said.contains("nothing was submitted") != has_job, "{said}");
        let requests = portal.requests();
        assert_eq!(requests.iter().any(|text| text.starts_with("POST /api/v1/jobs ")), has_job);
        let last = requests.last().unwrap();
        assert!(last.starts_with("DELETE /api/v1/files?path=/h/jobs/a%20b&recursive=true "), "{last}");
    }
}

proptest! {
    #[test]
    fn a_folder_has_a_plain_name(name in ".*", number in 1_u32..9) {
        let now = Timestamp(1_896_076_800_000);
        let made = numbered(&folder_name(&name, now, TimeZone::UTC), number);
        let end = numbered("-20300131-080000", number);
        prop_assert!(made.ends_with(&end), "{}", made);
        prop_assert!(made.chars().all(|c| c.is_alphanumeric() || "._-".contains(c)), "{}", made);
        prop_assert!(!made.starts_with(['.', '-']) && made.chars().count() < 70, "{}", made);
    }
}
