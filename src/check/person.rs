//! `lyceum check --as USER`: what a start as this person would meet on this machine, as far
//! as it can be told without starting anything: the name service, the rules for accounts,
//! the home directory.

use std::{fs, os::unix::fs::MetadataExt};

use super::{Finding, Level};
use crate::helper::identity::Identity;

pub fn account(name: &str) -> Vec<Finding> {
    let person = match Identity::look_up(name) {
        Ok(person) => person,
        Err(err) => {
            return vec![Finding::new("account", Level::Fault, err.sentence()).mend(format!(
                "name another account: lyceum admin user add NAME --unix-name U (`{name}` cannot be used)"
            ))];
        }
    };
    let groups: Vec<String> = person.groups.iter().map(ToString::to_string).collect();
    let what = format!("`{name}` is uid {}, gid {}, groups {}", person.uid, person.gid, groups.join(", "));
    vec![Finding::new("account", Level::Ok, what), home(&person)]
}

fn home(person: &Identity) -> Finding {
    let shown = person.home.display();
    match fs::metadata(&person.home) {
        Ok(facts) if !facts.is_dir() => Finding::new("home", Level::Fault, format!("{shown} is not a directory"))
            .mend(format!("make it one, owned by `{}`", person.name)),
        Ok(facts) if facts.uid() != person.uid => Finding::new(
            "home",
            Level::Warning,
            format!("{shown} belongs to uid {}, not to `{}`", facts.uid(), person.name),
        )
        .mend(format!("chown {}:{} {shown}", person.uid, person.gid)),
        Ok(_) => Finding::new("home", Level::Ok, format!("{shown} is there")),
        Err(err) => Finding::new("home", Level::Fault, format!("{shown} cannot be used: {err}"))
            .mend(format!("mkhomedir_helper {}, or mount it", person.name)),
    }
}
