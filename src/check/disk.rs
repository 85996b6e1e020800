//! Checks of the places on disk: the data directory, its secrets, room, the database's file
//! system and the length of run directories.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::{Facts, Finding, Level};
use crate::{
    auth::keys,
    db::{
        self,
        location::{existing, network_file_system},
    },
    helper::identity,
    model::{finding, size::human_size},
    scheduler::run_space,
    start::{LINGERING, ends_with_login},
};

/// The most that a run directory's path may measure: Jupyter's kernels add 50 bytes to it,
/// and a Unix socket's address ends at 107.
const MAX_RUN_DIRECTORY_LENGTH: usize = 57;

/// `/` and the name of a workload.
const WORKLOAD: usize = 17;

pub fn data_directory(facts: &Facts) -> Finding {
    let name = "data directory";
    let path = facts.data.display();
    let place = existing(&facts.data);
    if let Some(kind) = network_file_system(&place) {
        let what = format!("{path} is on {kind}, where SQLite's locks do not work");
        let level = if facts.database.is_some() { Level::Fault } else { Level::Warning };
        return Finding::new(name, level, what).fix("lyceum serve --data /PATH/ON/A/LOCAL/DISK");
    }
    let Ok(meta) = fs::metadata(&place) else {
        return Finding::new(name, Level::Fault, format!("{} cannot be accessed", place.display()))
            .fix(format!("ls -ld {}", place.display()));
    };
    if !meta.is_dir() {
        return Finding::new(name, Level::Fault, format!("{} is not a directory", place.display()))
            .fix(format!("ls -ld {}", place.display()));
    }
    let me = rustix::process::geteuid();
    let writable = rustix::fs::access(&place, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    if place != facts.data {
        return if writable {
            Finding::new(name, Level::Ok, format!("{path} will be created"))
        } else {
            Finding::new(name, Level::Fault, format!("{path} does not exist, and {} is not writable", place.display()))
                .fix(format!("install -d -o {} {path}", me.as_raw()))
        };
    }
    let owner = meta.uid();
    if owner != me.as_raw() {
        let what = format!("{path} belongs to user {owner}, but the portal is started by user {}", me.as_raw());
        return Finding::new(name, Level::Fault, what).fix(format!("chown {} {path}", me.as_raw()));
    }
    if meta.mode() & 0o022 != 0 {
        let what = format!("{path} is writable by other users (mode {:o})", meta.mode() & 0o7777);
        return Finding::new(name, Level::Fault, what).fix(format!("chmod go-w {path}"));
    }
    if !writable {
        return Finding::new(name, Level::Fault, format!("{path} is not writable")).fix(format!("chmod u+rwx {path}"));
    }
    Finding::new(name, Level::Ok, path.to_string())
}

/// Keys and passwords must be readable by their owner alone.
pub fn private_directory(facts: &Facts) -> Finding {
    let name = "secrets";
    let path = facts.private.display();
    let Ok(meta) = fs::metadata(&facts.private) else {
        return Finding::new(name, Level::Ok, format!("{path} will be created"));
    };
    if meta.mode() & 0o077 != 0 {
        let what =
            format!("{path} is accessible to other users (mode {:o}): the portal does not start", meta.mode() & 0o7777);
        return Finding::new(name, Level::Fault, what).fix(format!("chmod 700 {path}"));
    }
    let wanted = service_uid(facts);
    if wanted.is_some_and(|wanted| wanted != meta.uid()) {
        let user = if facts.is_root { facts.service_user.clone() } else { wanted.unwrap_or_default().to_string() };
        let what = format!("{path} belongs to user {}, not to {user}", meta.uid());
        return Finding::new(name, Level::Fault, what).fix(format!("chown -R {user} {path}"));
    }
    Finding::new(name, Level::Ok, format!("{path} is not accessible to other users"))
}

pub fn free_space(facts: &Facts) -> Finding {
    let name = "free space";
    let place = existing(&facts.data);
    let Ok(disk) = rustix::fs::statvfs(&place) else {
        return Finding::new(name, Level::Warning, format!("the free space of {} is unknown", place.display()));
    };
    let free = i64::try_from(disk.f_bavail.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX);
    finding::free_space(free, &place.display().to_string())
}

pub fn run_directory(facts: &Facts) -> Finding {
    let name = "run directory";
    let path = facts.run.display();
    let length = facts.run.as_os_str().len() + WORKLOAD;
    if length > MAX_RUN_DIRECTORY_LENGTH {
        let what = format!(
            "{path} has {length} bytes and may have at most {MAX_RUN_DIRECTORY_LENGTH}: sockets below it could not be \
             opened"
        );
        return Finding::new(name, Level::Fault, what).fix("XDG_RUNTIME_DIR=/tmp lyceum serve");
    }
    let place = existing(&facts.run);
    if let Some(kind) = network_file_system(&place) {
        let what = format!("{path} is on {kind}, where sockets do not work");
        return Finding::new(name, Level::Fault, what).fix("XDG_RUNTIME_DIR=/tmp lyceum serve");
    }
    if rustix::fs::access(&place, rustix::fs::Access::WRITE_OK).is_err() {
        return Finding::new(name, Level::Fault, format!("{} is not writable", place.display()))
            .fix(format!("ls -ld {}", place.display()));
    }
    run_space::judge(&facts.run).unwrap_or_else(|| Finding::new(name, Level::Ok, path.to_string()))
}

/// A run directory that goes when its user signs out of the machine takes the sessions along.
pub fn lingering(facts: &Facts) -> Option<Finding> {
    let user = identity::own().ok()?.name;
    ends_with_login(&facts.run, &user, Path::new(LINGERING)).then(|| {
        let what =
            format!("{} is removed when {user} logs out of the machine, and all sessions end", facts.run.display());
        Finding::new("lingering", Level::Warning, what).fix("loginctl enable-linger")
    })
}

pub fn database(facts: &Facts) -> Finding {
    let name = "database";
    let Some(file) = &facts.database else {
        return Finding::new(name, Level::Ok, "on a server (`database.url`)");
    };
    let path = file.display();
    if let Some(kind) = network_file_system(&existing(file)) {
        return Finding::new(name, Level::Fault, format!("{path} is on {kind}, where SQLite's locks do not work"))
            .fix("lyceum serve --data /PATH/ON/A/LOCAL/DISK");
    }
    let sign = Some(keys::path(&facts.private)).filter(|sign| sign.exists());
    if let Err(err) = db::lost(file, sign.as_deref()) {
        return Finding::new(name, Level::Fault, err.to_string()).fix("lyceum admin restore FILE");
    }
    match fs::metadata(file) {
        Err(_) => Finding::new(name, Level::Ok, format!("{path} will be created")),
        Ok(meta) if meta.mode() & 0o077 != 0 => Finding::new(
            name,
            Level::Warning,
            format!("{path} is readable by other users (mode {:o})", meta.mode() & 0o7777),
        )
        .fix(format!("chmod 600 {path}")),
        Ok(meta) => Finding::new(
            name,
            Level::Ok,
            format!("SQLite, {path}, {}", human_size(i64::try_from(meta.len()).unwrap_or(i64::MAX))),
        ),
    }
}

/// The user that the portal runs as, if it is there already.
pub fn service_uid(facts: &Facts) -> Option<u32> {
    if !facts.is_root {
        return Some(rustix::process::geteuid().as_raw());
    }
    nix::unistd::User::from_name(&facts.service_user).ok().flatten().map(|user| user.uid.as_raw())
}
