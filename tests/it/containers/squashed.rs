//! Images that are mounted: a squashed file, and one whose changes are kept. The mounts are the
//! workload's own, and nothing of them is left behind.

use std::{fs, path::Path, process::Command};

use lyceum::{model::SessionId, protocol::container::Writable, scheduler::LifeCycle};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use super::World;
use crate::{helper::house::system, local::end, needs, wait::until};

/// Lets all accounts use FUSE, as it is on most machines, in a name space of this thread's own: what
/// it starts inherits it.
pub fn open_fuse(folder: &Path) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let nothing: Option<&Path> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing).unwrap();
    let device = folder.join("fuse");
    system(&["mknod", "-m", "666", device.to_str().unwrap(), "c", "10", "229"]);
    mount(Some(&device), "/dev/fuse", nothing, MsFlags::MS_BIND, nothing).unwrap();
}

fn has(programs: &[&str]) -> bool {
    programs.iter().all(|program| needs::met(program, Path::new("/usr/bin").join(program).exists()))
}

/// Nothing that serves files lives on for the session, and no mount is on the host.
fn assert_gone(session: SessionId) {
    assert!(lyceum::helper::process::of_session(session, None).unwrap().is_empty());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&session.short()), "{mounts}");
}

#[tokio::test]
async fn a_squashed_image_is_mounted_for_its_workload_alone() {
    if !needs::root() || !has(&["squashfuse", "mksquashfs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    open_fuse(folder.path());
    let Some(world) = World::new() else { return };
    let file = world.image.base().join("image.sqsh");
    let made =
        Command::new("mksquashfs").arg(world.image.root()).arg(&file).args(["-quiet", "-noappend"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut container = world.image.container();
    container.root = file;
    let script = "#!/bin/sh\ntrap 'cat /etc/os-release > ended; exit 0' TERM\ngrep NAME /etc/os-release > seen\n\
                  touch /opt/x 2>/dev/null && echo > written\nid > who\necho > up-squashed\nwhile :; do sleep 0.1; done\n";
    let (session, placement) = world.start(world.script(container, script)).await;
    until("it runs", || world.home("up-squashed").exists());
    assert_eq!(fs::read_to_string(world.home("seen")).unwrap(), "NAME=\"Made by a test\"\n");
    assert!(!world.home("written").exists());
    let who = fs::read_to_string(world.home("who")).unwrap();
    assert!(who.contains(&format!("uid={}({})", world.people.a.uid, world.people.a.name)), "{who}");
    world.local.terminate(session, &placement).await.unwrap();
    let exit = end(&world.local, session, &placement).await;
    let ended = fs::read_to_string(world.home("ended")).unwrap();
    assert_eq!(ended, "NAME=\"Made by a test\"\n", "its files are there to the end: {exit:?}");
    assert_gone(session);
    world.local.clean(session).await.unwrap();
    world.house.assert_nothing_left(session);
}

#[tokio::test]
async fn changes_to_an_image_are_kept_where_the_user_says() {
    if !needs::root() || !has(&["fuse-overlayfs", "squashfuse", "mksquashfs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    open_fuse(folder.path());
    let Some(world) = World::new() else { return };
    let file = world.image.base().join("image.squashfs");
    let made =
        Command::new("mksquashfs").arg(world.image.root()).arg(&file).args(["-quiet", "-noappend"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    for root in [world.image.root(), file] {
        let mut container = world.image.container();
        container.writable = Writable::Keep(world.home("layers"));
        container.root.clone_from(&root);
        let install = "#!/bin/sh\nset -e\ntest ! -e /opt/tool\necho installed > /opt/tool\nrm /etc/os-release\n\
                       mkdir /usr/more\ngrep CapEff /proc/self/status\nid -u\n";
        let (exit, log) = world.run(world.script(container.clone(), install)).await;
        assert_eq!(exit.exit_code, Some(0), "{exit:?} {log}");
        assert!(log.contains("CapEff:\t0000000000000000"), "{log}");
        assert!(log.contains(&world.people.a.uid.to_string()), "{log}");
        let look = "#!/bin/sh\ncat /opt/tool\nls -d /usr/more\ntest -e /etc/os-release || echo removed\n";
        let (_, log) = world.run(world.script(container.clone(), look)).await;
        // What serves the files may have something to say first.
        assert!(log.ends_with("installed\n/usr/more\nremoved\n"), "{log}");
        assert!(world.image.root().join("etc/os-release").exists(), "the image itself is as it was");
        let changes = world.home("layers/tested-0123abcd/changes/opt/tool");
        assert_eq!(fs::read_to_string(changes).unwrap(), "installed\n");
        fs::remove_dir_all(world.home("layers")).unwrap();
    }
}
