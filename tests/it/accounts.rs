//! Unix accounts that tests make and remove. The machine has one lock for its accounts, which `useradd` and its
//! siblings wait for 15 seconds; other tests, portals and helpers change accounts meanwhile, so they are asked again.

use std::{fs, os::unix::fs::MetadataExt, process::Command, time::Duration};

use lyceum::helper::process;
use nix::unistd::User;

use crate::wait;

/// Runs `useradd`, `usermod`, `groupadd` or the like; they have to succeed.
pub fn change(words: &[&str]) {
    wait::until(&words.join(" "), || {
        let output = Command::new(words[0]).args(&words[1..]).env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("cannot lock"), "{words:?}: {said}");
        output.status.success()
    });
}

/// Removes an account and its home, if there is one of that name, once its last process is gone.
pub fn remove(name: &str) {
    let Ok(Some(user)) = User::from_name(name) else { return };
    for _ in 0..120 {
        // Not `--remove`: the lock is held while that empties the home, which may hold thousands of files.
        let output = Command::new("userdel").arg(name).output().unwrap();
        if User::from_name(name).is_ok_and(|found| found.is_none()) {
            break;
        }
        eprintln!("{name}: {}", String::from_utf8_lossy(&output.stderr));
        process::pause(Duration::from_millis(250));
    }
    if fs::symlink_metadata(&user.dir).is_ok_and(|facts| facts.is_dir() && facts.uid() == user.uid.as_raw()) {
        let _ = fs::remove_dir_all(&user.dir);
    }
}
