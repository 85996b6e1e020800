//! Rehearsing a start as somebody: everything well, and one thing wrong at a time.

use std::{fs, os::unix::fs::chown};

use lyceum::helper::{cgroup::Hierarchy, identity::Identity, placement};

use super::{Account, Found, spoiled};
use crate::{idleness::jupyters_python, life::House, needs};

#[tokio::test]
async fn a_start_is_rehearsed_and_leaves_nothing() {
    if !needs::root() {
        return;
    }
    let mut house = House::new(&[]);
    let python = jupyters_python(needs::part_met);
    if let Some(python) = &python {
        house.configure(&format!("[[environments.list]]\nname = 'default'\ntitle = 'Tested'\npython = '{python}'\n"));
    }
    let ada = Account::new(&["--create-home"]);
    let before = fs::read_dir(ada.home()).unwrap().count();

    let found = Found::of(&house, &["--as", &ada.name]);
    let person = Identity::look_up(&ada.name).unwrap();
    found.says("account", "ok", &format!("`{}` is uid {}", ada.name, person.uid));
    found.says("groups", "ok", &format!("{} ({})", ada.name, person.gid));
    found.says("home", "ok", "a file was written");
    if Hierarchy::detect("test").is_sampled() {
        found.says("limits test", "warning", "no control groups");
    } else {
        found.says("limits test", "ok", "memory limited to 128 MiB");
        found.says("limits test", "ok", "processes limited");
    }
    let title = if python.is_some() { "JupyterLab" } else { "a terminal" };
    found.says("start test", "ok", &format!("{title} as `{}` responded after", ada.name));
    if python.is_some() {
        found.says("notebooks", "ok", "imports JupyterLab and a kernel");
    }
    found.says("public address", "note", "skipped: no portal runs");

    // No workload, directory or group is left, and nothing new is at home but caches.
    let base = house.data().parent().unwrap().to_owned();
    let left: Vec<_> = fs::read_dir(&base).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("check")), "{left:?}");
    let processes = lyceum::helper::process::of_session(lyceum::model::SessionId::new(), None).unwrap();
    assert!(processes.is_empty());
    let visible = fs::read_dir(ada.home()).unwrap().flatten().filter(|entry| {
        let name = entry.file_name().into_string().unwrap();
        !name.starts_with('.')
    });
    assert_eq!(visible.count(), 0, "{before} before");
    let of_ada = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let uid = fs::metadata(entry.path()).map(|facts| std::os::unix::fs::MetadataExt::uid(&facts));
        uid.is_ok_and(|uid| uid == person.uid)
    });
    assert_eq!(of_ada.count(), 0, "a process of theirs still runs");
}

#[tokio::test]
async fn what_lies_in_a_home_and_disturbs_notebooks() {
    if !needs::root() {
        return;
    }
    let Some(python) = jupyters_python(needs::met) else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = crate::gpus::driver(folder.path(), "check", "-DGPUS=2");
    let mut house = House::new(&[
        ("LYCEUM_SCHEDULER__LOCAL__NVML", library.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto"),
    ]);
    house.configure(&format!("[[environments.list]]\nname = 'default'\ntitle = 'Tested'\npython = '{python}'\n"));
    let ada = Account::new(&["--create-home"]);
    let person = Identity::look_up(&ada.name).unwrap();
    let kernels = ada.home().join(".local/share/jupyter/kernels/python3");
    fs::create_dir_all(&kernels).unwrap();
    let spec = r#"{"argv": ["/opt/old/bin/python", "-m", "ipykernel"], "display_name": "Old", "language": "python"}"#;
    fs::write(kernels.join("kernel.json"), spec).unwrap();
    for folder in kernels.ancestors().take_while(|folder| *folder != ada.home()) {
        chown(folder, Some(person.uid), Some(person.gid)).unwrap();
    }
    let found = Found::of(&house, &["--as", &ada.name]);
    found.says("notebooks", "warning", "which starts /opt/old/bin/python");
    found.says("GPU devices", "warning", "the driver reports 2 GPUs, but /dev has 0");
}

#[tokio::test]
async fn whom_nothing_may_run_as() {
    if !needs::root() {
        return;
    }
    let house = House::new(&[]);
    for (name, words) in [
        ("root", "system account"),
        ("daemon", "system account"),
        ("nobody", "system account"),
        ("no-such-person", "no Unix account"),
        ("-x", "not the name"),
    ] {
        let found = Found::of(&house, &[&format!("--as={name}")]);
        assert!(!found.well, "{name}");
        found.says("account", "fault", words);
        assert!(found.about("start test").is_empty(), "{name}: nothing was started");
    }
    let system = Account::new(&["--system", "--no-create-home"]);
    let found = Found::of(&house, &["--as", &system.name]);
    found.says("account", "fault", "system account");
}

#[tokio::test]
async fn homes_that_cannot_be_used() {
    if !needs::root() {
        return;
    }
    let mut house = House::new(&[]);
    let [full, read_only] = [Account::new(&["--create-home"]), Account::new(&["--create-home"])];
    let missing = Account::new(&["--no-create-home"]);
    let foreign = Account::new(&["--create-home"]);
    chown(foreign.home(), Some(0), Some(0)).unwrap();

    let found = Found::of(&house, &["--as", &missing.name]);
    assert!(!found.well);
    found.says("home", "fault", "does not exist");
    found.says("start test", "fault", "does not exist: ask your administrator to create it");
    let found = Found::of(&house, &["--as", &foreign.name]);
    found.says("home", "fault", "is not writable");
    // `userdel` leaves the homes of others alone.
    let owner = Identity::look_up(&foreign.name).unwrap();
    chown(foreign.home(), Some(owner.uid), Some(owner.gid)).unwrap();

    house.wrap(spoiled(&full.home(), &read_only.home()));
    let found = Found::of(&house, &["--as", &full.name]);
    assert!(!found.well);
    found.says("home", "fault", "is full: delete files there");
    found.says("start test", "fault", "is full: delete files there");
    let found = Found::of(&house, &["--as", &read_only.name]);
    found.says("home", "fault", "read-only file system");
    found.says("start test", "fault", "read-only file system");
    // What binds workloads is tried all the same.
    assert!(found.about("limits test").iter().all(|(level, ..)| *level != "fault"));
    assert_eq!(placement::list(&house.paths().placements).unwrap_or_default().0, []);
}

#[tokio::test]
async fn an_ordinary_user_rehearses_for_themselves() {
    if !needs::root() {
        return;
    }
    let house = House::of_somebody(&[]);
    let name = house.runs_as().unwrap().name.clone();
    let found = Found::of(&house, &["--as", &name]);
    found.says("account", "ok", &format!("`{name}` is uid"));
    found.says("home", "ok", "a file was written");
    found.says("limits test", "warning", "no control groups");
    found.says("start test", "ok", "a terminal as");
    let other = Account::new(&["--create-home"]);
    Found::of(&house, &["--as", &other.name]).says("account", "fault", "only root can check a start as another user");
}
