//! What a program in an image finds and what comes of it: its root, its user, its environment, its
//! entrypoint, its signals and its exit status.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use lyceum::{model::EndReason, scheduler::LifeCycle};
use rustix::process::{Pid, Signal};

use super::World;
use crate::{local::end, wait::until};

const LOOK: &str = r#"#!/bin/sh
. /etc/os-release; echo "system $NAME"
echo "who $(id -un) $(id -u) $(id -g)"
echo "home $HOME $(pwd)"
echo "path $PATH"
echo "image $OF_IMAGE $OMP_NUM_THREADS"
echo "base $PYTHONUSERBASE"
echo "shell $SHELL"
grep -E "^(NoNewPrivs|CapEff|CapBnd)" /proc/self/status
echo "known $(grep -c ofimage /etc/passwd) $(grep -c "^$USER:" /etc/group)"
touch /etc/x /usr/x /x 2>&1 | grep -c "Read-only"
echo tmp > /tmp/of-container && echo "tmp $(cat /tmp/of-container)"
echo var > /var/tmp/y && echo "var written"
echo "shm $(df -m /dev/shm | tail -1 | awk '{print $2}')"
echo "name $(hostname)"
echo "devices $(ls /dev | tr '\n' ' ')"
echo mine > "$HOME/from-inside"
"#;

#[tokio::test]
async fn a_job_runs_in_the_image_as_its_user() {
    let Some(world) = World::new() else { return };
    let (exit, log) = world.run(world.script(world.image.container(), LOOK)).await;
    assert_eq!((exit.reason, exit.exit_code), (Some(EndReason::Exited), Some(0)), "{exit:?} {log}");
    let person = &world.people.a;
    let home = person.home.display();
    let base = format!("{home}/.local/share/lyceum/images/tested-0123abcd");
    let host = rustix::system::uname();
    for line in [
        "system Made by a test",
        &format!("who {} {} {}", person.name, person.uid, person.gid),
        &format!("home {home} {home}"),
        &format!("path {base}/bin:/usr/bin"),
        "image yes 2",
        &format!("base {base}"),
        "shell /bin/sh",
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "known 1 1",
        "3",
        "tmp tmp",
        "var written",
        "shm 256",
        &format!("name {}", host.nodename().to_str().unwrap()),
    ] {
        assert!(log.lines().any(|found| found == line), "{line:?} is not in {log}");
    }
    let devices = log.lines().find_map(|line| line.strip_prefix("devices ")).unwrap();
    for device in ["null", "zero", "random", "urandom", "tty", "pts", "shm"] {
        assert!(devices.split(' ').any(|found| found == device), "{device} in {devices}");
    }
    assert!(!devices.contains("kvm") && !devices.contains("loop"), "{devices}");
    let written = fs::metadata(world.home("from-inside")).unwrap();
    assert_eq!((written.uid(), written.gid()), (person.uid, person.gid));
    assert!(!std::path::Path::new("/tmp/of-container").exists());
    assert!(!world.image.root().join("x").exists());
}

#[tokio::test]
async fn the_entrypoint_is_honoured_or_not() {
    let Some(world) = World::new() else { return };
    world.image.write(
        "opt/entry.sh",
        "#!/bin/sh\necho \"banner of the image\"\nexport FROM_ENTRY=1\nexec \"$@\"\n",
        0o755,
    );
    let mut container = world.image.container();
    container.entrypoint = vec!["./entry.sh".to_owned()];
    container.working_dir = Some("/opt".into());
    let ask = ["/bin/sh", "-c", "echo \"entry ${FROM_ENTRY:-none} in $(pwd)\""];
    let (_, log) = world.run(world.job(Some(container.clone()), &ask)).await;
    assert_eq!(log, format!("entry none in {}\n", world.people.a.home.display()));
    container.use_entrypoint = true;
    let (_, log) = world.run(world.job(Some(container.clone()), &ask)).await;
    assert_eq!(log, format!("banner of the image\nentry 1 in {}\n", world.people.a.home.display()));
    // Without a command it runs as it was made.
    container.cmd = ask.map(str::to_owned).into();
    let (exit, log) = world.run(world.job(Some(container.clone()), &[])).await;
    assert_eq!((log.as_str(), exit.exit_code), ("banner of the image\nentry 1 in /opt\n", Some(0)));
    (container.cmd, container.entrypoint) = (Vec::new(), Vec::new());
    let (exit, _) = world.run(world.job(Some(container), &[])).await;
    assert_eq!(exit.reason, Some(EndReason::LaunchFailed));
    assert!(exit.detail.contains("has no command of its own"), "{exit:?}");
}

/// Waits until the runner has let go of the program.
const ALONE: &str = "while grep -q bwrap /proc/$(awk '/^PPid/ { print $2 }' /proc/$$/status)/comm; do sleep 0.1; done;";

#[tokio::test]
async fn exit_codes_and_signals_pass_through() {
    let Some(world) = World::new() else { return };
    for (command, code, signal) in [
        ("exit 3", Some(3), None),
        ("exit 137", Some(137), None),
        (&format!("{ALONE} kill -9 $$"), None, Some(9)),
        (&format!("{ALONE} kill -SEGV $$"), None, Some(11)),
        ("exec /no/such/program", Some(127), None),
    ] {
        let (exit, log) = world.run(world.job(Some(world.image.container()), &["/bin/sh", "-c", command])).await;
        assert_eq!((exit.exit_code, exit.signal), (code, signal), "{command}: {exit:?} {log}");
    }
    // One that is sent to the job reaches the program.
    let hears = "trap 'echo heard > heard; exit 5' USR1; echo up > up-usr1; while :; do sleep 0.1; done";
    let (session, placement) = world.start(world.job(Some(world.image.container()), &["/bin/sh", "-c", hears])).await;
    until("it runs", || world.home("up-usr1").exists());
    rustix::process::kill_process(Pid::from_raw(placement.pid).unwrap(), Signal::USR1).unwrap();
    let exit = end(&world.local, session, &placement).await;
    assert_eq!((exit.exit_code, fs::read_to_string(world.home("heard")).unwrap().as_str()), (Some(5), "heard\n"));
}

#[tokio::test]
async fn a_stop_leaves_the_program_its_time() {
    let Some(world) = World::new() else { return };
    let saves = "trap 'sleep 0.5; echo saved > saved; exit 0' TERM; echo up > up-stop; while :; do sleep 0.1; done";
    let (session, placement) = world.start(world.job(Some(world.image.container()), &["/bin/sh", "-c", saves])).await;
    until("it runs", || world.home("up-stop").exists());
    let temporary = std::path::Path::new("/tmp").join(format!("lyceum-{}", session.short()));
    assert_eq!(fs::metadata(&temporary).unwrap().mode() & 0o777, 0o700);
    world.local.terminate(session, &placement).await.unwrap();
    let exit = end(&world.local, session, &placement).await;
    assert_eq!(fs::read_to_string(world.home("saved")).unwrap(), "saved\n", "{exit:?}");
    assert!(!temporary.exists(), "temporary files are gone");
    world.local.clean(session).await.unwrap();
    world.house.assert_nothing_left(session);
}

#[tokio::test]
async fn what_cannot_be_is_said() {
    let Some(world) = World::new() else { return };
    let mut container = world.image.container();
    container.root = world.image.base().join("none");
    let (exit, _) = world.run(world.job(Some(container), &["true"])).await;
    assert_eq!(exit.reason, Some(EndReason::LaunchFailed), "{exit:?}");
    assert!(exit.detail.contains("Pull it again"), "{exit:?}");
    let mut container = world.image.container();
    container.gpus =
        vec![lyceum::model::Gpu { index: 7, slice: None, uuid: "GPU-none".to_owned(), model: String::new() }];
    let (exit, _) = world.run(world.job(Some(container), &["true"])).await;
    assert!(exit.detail.contains("nvidia-ctk cdi generate"), "{exit:?}");
    let mut container = world.image.container();
    container.name = "../x".to_owned();
    let (exit, _) = world.run(world.job(Some(container), &["true"])).await;
    assert!(exit.detail.contains("invalid name"), "{exit:?}");
}

#[tokio::test]
async fn twenty_start_at_once() {
    let Some(world) = World::new() else { return };
    let jobs = (0..20).map(|number| {
        let text = format!("#!/bin/sh\necho up > up-{number}\nwhile [ ! -e go ]; do sleep 0.1; done\nexit {number}\n");
        world.start(world.script(world.image.container(), &text))
    });
    let begun = Instant::now();
    let started = join_all(jobs).await;
    until("all run", || (0..20).all(|number| world.home(&format!("up-{number}")).exists()));
    eprintln!("20 containers ran after {:?}", begun.elapsed());
    fs::write(world.home("go"), "").unwrap();
    for (number, (session, placement)) in started.iter().enumerate() {
        let exit = end(&world.local, *session, placement).await;
        assert_eq!(exit.exit_code, i64::try_from(number).ok(), "{exit:?}");
    }
}

/// The fastest of some, since others use this machine too.
#[tokio::test]
async fn a_container_costs_little_time() {
    let Some(world) = World::new() else { return };
    let mut fastest = Vec::new();
    for container in [None, Some(world.image.container())] {
        let mut times = Vec::new();
        for number in 0..9 {
            let mark = world.home(&format!("started-{}-{number}", container.is_some()));
            let launch = world.job(container.clone(), &["/bin/sh", "-c", &format!("echo > {}", mark.display())]);
            let begun = Instant::now();
            let (session, placement) = world.start(launch).await;
            until("it runs", || mark.exists());
            times.push(begun.elapsed());
            end(&world.local, session, &placement).await;
        }
        fastest.push(times.into_iter().min().unwrap_or_default());
    }
    let more = fastest[1].saturating_sub(fastest[0]);
    eprintln!("start: {:?} on the host, {:?} in an image, {more:?} more", fastest[0], fastest[1]);
    assert!(more < Duration::from_millis(150), "{fastest:?}");
}
