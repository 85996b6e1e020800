//! The units of `contrib/` as docs/install.md says to install them, where systemd rules. That is the
//! machine of `tests/guest`, which has put the unit and the program in their places and is
//! thrown away afterwards; nothing here touches the systemd of a machine that somebody uses.

use std::{fs, process::Command};

use lyceum::helper::identity::Identity;
use serde_json::{Value, json};

use super::{House, Person, eventually, person::id as id_of};
use crate::{
    accounts,
    gateway::{terminal, world::socket},
    helper::house::system,
    needs,
};

/// Whether the unit was installed for this test.
fn is_the_guest() -> bool {
    needs::variable("LYCEUM_TEST_LIMITS").is_some_and(|kind| kind == "systemd")
}

fn said(arguments: &[&str]) -> String {
    let output = Command::new(arguments[0]).args(&arguments[1..]).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn a_restart_through_systemd_ends_no_session() {
    if !is_the_guest() {
        eprintln!("left to the guest: it installs a unit of the system");
        return;
    }
    // Only for its address: everything else is the unit's.
    let mut house = House::new(&[]);
    house.url = "http://127.0.0.1:8000".to_owned();
    let journal = || said(&["journalctl", "--no-pager", "--unit=lyceum", "--lines=40"]);
    let begun = Command::new("systemctl").args(["start", "lyceum"]).status().unwrap();
    assert!(begun.success(), "{}", journal());
    let is_up = async |house: &House| {
        eventually("it answers", async || {
            let state = said(&["systemctl", "is-active", "lyceum"]);
            assert!(!state.starts_with("failed"), "{}", journal());
            let answer = reqwest::get(format!("{}/readyz", house.url)).await.ok()?;
            answer.status().is_success().then_some(())
        })
        .await;
    };
    is_up(&house).await;
    // Any rule here would close the GPU driver's files to the portal, which has to ask it.
    assert_eq!(said(&["systemctl", "show", "--property=DeviceAllow", "lyceum"]).trim(), "");
    let token = Command::new("/usr/local/bin/lyceum").args(["admin", "token", "create", "--user", "admin"]).output();
    let token = String::from_utf8(token.unwrap().stdout).unwrap();
    let admin = Person::new("admin", token.trim());

    let terminal = json!({ "app": "terminal", "resources": { "memory_bytes": 128 << 20 } });
    let id = admin.start(&house, terminal).await;
    admin.state(&house, id, "running").await;
    let short = id.short();
    let file = fs::read_to_string(format!("/var/lib/lyceum/placements/{short}.json")).unwrap();
    let record: Value = serde_json::from_str(&file).unwrap();
    let (pid, scope) = (record["placement"]["pid"].clone(), record["cgroups"][0].as_str().unwrap().to_owned());
    assert_eq!(record["placement"]["limits"], "systemd");
    let lies_in = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(scope.ends_with(lies_in.trim().trim_start_matches("0::")), "{lies_in} {scope}");
    let unit = scope.rsplit('/').next().unwrap().to_owned();
    let shown = said(&["systemctl", "show", "--property=MemoryMax,CPUQuotaPerSecUSec,TasksMax", &unit]);
    for property in ["MemoryMax=134217728", "CPUQuotaPerSecUSec=1s", "TasksMax=4096"] {
        assert!(shown.contains(property), "{shown}");
    }

    // The unit closes nothing that a container of somebody's without rights needs.
    let authorization = [("authorization", &*format!("token {}", token.trim()))];
    let mut typed = socket(&format!("{}/s/{id}/pty", house.url), &authorization).await.unwrap();
    terminal::types(&mut typed, "unshare -Urpf --mount-proc true; echo fresh-$?", "fresh-0").await;
    // What it takes away is gone also for whoever becomes root there (bits 16, 22 and 25 are
    // modules, rebooting and the clock).
    terminal::types(
        &mut typed,
        "echo $((16#$(grep -oP 'CapBnd:\\s*\\K.*' /proc/self/status) >> 16 & 577))-caps",
        "1-caps",
    )
    .await;
    drop(typed);

    // The nightly copy, now, with a session that runs.
    system(&["systemctl", "start", "lyceum-backup.timer", "lyceum-backup.service"]);
    let copies: Vec<_> = fs::read_dir("/var/backups/lyceum").unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(fs::read(&copies[0]).unwrap().starts_with(b"SQLite format 3\0"));

    let main_pid = || said(&["systemctl", "show", "--property=MainPID", "--value", "lyceum"]);
    let before = main_pid();
    system(&["systemctl", "restart", "lyceum"]);
    is_up(&house).await;
    assert_ne!(main_pid(), before, "it is another process");
    assert_eq!(admin.session(&house, id).await["state"], "running");
    let file = fs::read_to_string(format!("/var/lib/lyceum/placements/{short}.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap()["placement"]["pid"], pid, "the very same agent");
    assert!(fs::read_to_string(format!("{scope}/cgroup.procs")).unwrap().contains(&pid.to_string()));

    // Stopped and started again, with a while in between.
    system(&["systemctl", "stop", "lyceum"]);
    assert!(fs::read_to_string(format!("{scope}/cgroup.procs")).unwrap().contains(&pid.to_string()));
    system(&["systemctl", "start", "lyceum"]);
    is_up(&house).await;
    let sessions = admin.get(&house, "/sessions").await;
    assert_eq!(id_of(&sessions["items"][0]), id);
    assert_eq!(sessions["items"][0]["state"], "running", "{sessions}");
    admin.end(&house, id).await;
    eventually("its units go", async || {
        let units = said(&["systemctl", "list-units", "--all", "--no-legend", "--plain", "lyceum-*"]);
        (!fs::exists(&scope).unwrap() && !units.contains(&short)).then_some(())
    })
    .await;
    assert!(!said(&["systemctl", "--failed", "--no-legend", "--plain"]).contains("lyceum"), "{}", journal());
    system(&["systemctl", "stop", "lyceum"]);
}

/// `contrib/lyceum-user.service`: somebody's own portal, in the systemd of their own.
#[tokio::test]
async fn a_restart_of_ones_own_portal_ends_no_session() {
    if !is_the_guest() {
        eprintln!("left to the guest: it makes a user with a systemd of their own");
        return;
    }
    let mut house = House::new(&[]);
    house.url = "http://127.0.0.1:8100".to_owned();
    accounts::change(&["useradd", "--create-home", "--shell", "/bin/bash", "owner"]);
    let owner = Identity::facts("owner").unwrap();
    let uid = owner.uid.to_string();
    // The guest has no logind, which does this elsewhere.
    let runtime = format!("/run/user/{uid}");
    drop_in("user-runtime-dir@.service", "ExecStart=\nExecStart=install -d -m 700 -o %i /run/user/%i\nExecStop=");
    drop_in("user@.service", "PAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i HOME=/home/owner");
    system(&["systemctl", "daemon-reload"]);
    system(&["systemctl", "start", &format!("user@{uid}.service")]);
    let as_owner = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "bash", "-ec", script]).env_clear();
        command.envs([("HOME", "/home/owner"), ("PATH", "/usr/bin:/bin"), ("XDG_RUNTIME_DIR", runtime.as_str())]);
        let output = command.current_dir("/home/owner").output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{script}: {said}");
        said
    };
    // As docs/install.md says; the port is another one's here.
    as_owner(
        "mkdir -p ~/.local/bin ~/.config/systemd/user/lyceum.service.d
         install -m 755 /data/lyceum ~/.local/bin/
         install -m 644 /data/lyceum-user.service ~/.config/systemd/user/lyceum.service
         printf '[Service]\nEnvironment=LYCEUM_SERVER__LISTEN=127.0.0.1:8100\n' >~/.config/systemd/user/lyceum.service.d/port.conf
         systemctl --user daemon-reload && systemctl --user enable --now lyceum",
    );
    let is_up = async |house: &House| {
        eventually("it answers", async || {
            let answer = reqwest::get(format!("{}/readyz", house.url)).await.ok()?;
            answer.status().is_success().then_some(())
        })
        .await;
    };
    is_up(&house).await;
    let admin = Person::new("admin", as_owner("~/.local/bin/lyceum admin token create --user admin").trim());
    let id = admin.start(&house, json!({ "app": "terminal", "resources": { "memory_bytes": 128 << 20 } })).await;
    admin.state(&house, id, "running").await;
    let placement = || {
        let file = format!("/home/owner/.local/share/lyceum/placements/{}.json", id.short());
        serde_json::from_str::<Value>(&fs::read_to_string(file).unwrap()).unwrap()["placement"]["pid"].clone()
    };
    let (before, agent) = (as_owner("systemctl --user show --property=MainPID --value lyceum"), placement());
    as_owner("systemctl --user restart lyceum");
    is_up(&house).await;
    assert_ne!(as_owner("systemctl --user show --property=MainPID --value lyceum"), before);
    assert_eq!((admin.session(&house, id).await["state"].as_str(), placement()), (Some("running"), agent));
    admin.end(&house, id).await;
    as_owner("systemctl --user stop lyceum");
}

fn drop_in(unit: &str, lines: &str) {
    let folder = format!("/etc/systemd/system/{unit}.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(format!("{folder}/guest.conf"), format!("[Service]\n{lines}\n")).unwrap();
}
