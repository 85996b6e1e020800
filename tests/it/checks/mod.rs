//! `lyceum check --as USER` and what it looks at: real accounts, homes that are missing, full
//! or read-only, a reverse proxy that passes too little on, those of `contrib/` that pass all on,
//! and the same broken homes through a whole portal. Mounts are made in a namespace of their own, so that the machine keeps its.

mod front;
mod homes;
mod person;
pub mod proxies;
mod running;
mod servers;

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use lyceum::{helper::identity::Identity, model::SessionId};
use serde_json::Value;

use crate::{accounts, life::House};

/// A Unix account of the test's own; it goes with the value.
struct Account {
    name: String,
}

impl Account {
    fn new(options: &[&str]) -> Self {
        let name = format!("ly-c-{}", &SessionId::new().short()[6..]);
        accounts::change(&[&["useradd", "--shell", "/bin/bash"], options, &[&name]].concat());
        Self { name }
    }

    fn home(&self) -> PathBuf {
        Identity::look_up(&self.name).unwrap().home
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        accounts::remove(&self.name);
    }
}

/// A script that makes homes full or read-only and then becomes the command after it.
fn spoiled(full: &Path, read_only: &Path) -> Vec<String> {
    let mount = |home: &Path| {
        let home = home.display();
        format!(
            "chown_to=$(stat -c %u:%g {home}) && mount -t tmpfs -o size=1m,mode=700 tmpfs {home} && chown $chown_to {home}"
        )
    };
    let script = format!(
        "set -e; {}; {}; head -c 2m /dev/zero >{}/all 2>/dev/null || true; mount -o remount,ro {}; exec \"$@\"",
        mount(full),
        mount(read_only),
        full.display(),
        read_only.display()
    );
    ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"].map(str::to_owned).into()
}

/// What `lyceum check` found, and whether it ended well.
struct Found {
    findings: Vec<Value>,
    well: bool,
}

impl Found {
    /// Runs `lyceum check ARGUMENTS --json` as a house would.
    fn of(house: &House, arguments: &[&str]) -> Self {
        Self::read(&house.command(&[&["check", "--json"], arguments].concat()).output().unwrap())
    }

    /// The same with other settings than the running portal's.
    fn with(house: &House, settings: &[(&str, String)]) -> Self {
        let mut command = house.command(&["check", "--json"]);
        Self::read(&command.envs(settings.iter().map(|(name, value)| (name, value))).output().unwrap())
    }

    fn read(output: &Output) -> Self {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let document: Value = serde_json::from_str(&text)
            .unwrap_or_else(|err| panic!("{err}: {text}{}", String::from_utf8_lossy(&output.stderr)));
        let findings = document["findings"].as_array().unwrap().clone();
        let faults = findings.iter().filter(|finding| finding["level"] == "fault").count();
        assert_eq!(document["faults"], faults);
        Self { well: output.status.success(), findings }
    }

    /// What is reported about a subject: level, what, fix.
    fn about(&self, name: &str) -> Vec<(&str, &str, &str)> {
        let of = self.findings.iter().filter(|finding| finding["name"] == name);
        of.map(|finding| {
            let text = |key: &str| finding[key].as_str().unwrap();
            (text("level"), text("what"), text("fix"))
        })
        .collect()
    }

    /// The one finding of a subject at a level that holds these words.
    fn says(&self, name: &str, level: &str, words: &str) {
        let all = self.about(name);
        let found = all.iter().find(|(at, what, _)| *at == level && what.contains(words));
        let (.., fix) = found.unwrap_or_else(|| panic!("{name} {level} {words:?} is missing in {all:#?}"));
        assert!(!fix.is_empty() || ["ok", "note"].contains(&level), "{name}: no fix is given");
    }
}
