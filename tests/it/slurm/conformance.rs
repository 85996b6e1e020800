//! What is true of every scheduler, asked of each with real workloads: one list of functions,
//! and a test for each of them on this machine and on a Slurm cluster.

use futures_util::future::join_all;
use lyceum::{
    model::{EndReason, SessionId, session::Placement},
    scheduler::{Error, Launch, Observation},
};

use super::stage::Stage;
use crate::wait::{PATIENCE, eventually, succeeds};

macro_rules! conforms {
    ($($name:ident),+ $(,)?) => {
        mod local {
            $(#[tokio::test]
            async fn $name() {
                if let Some(stage) = super::Stage::local().await { super::$name(stage).await }
            })+
        }
        mod slurm {
            $(#[tokio::test]
            async fn $name() {
                if let Some(stage) = super::Stage::slurm().await { super::$name(stage).await }
            })+
        }
    };
}

conforms! {
    from_launch_to_cleaning,
    how_it_ends,
    out_of_memory,
    a_second_launch_starts_nothing,
    many_that_start_together,
    a_restarted_portal_finds_it,
    killed,
    what_cannot_start_says_why,
}

async fn from_launch_to_cleaning(stage: Stage) {
    let Stage { scheduler, .. } = &stage;
    let (session, placement) = stage.run("id -un; echo $CUDA_VISIBLE_DEVICES; exec sleep 600").await;
    let name = &stage.people.a.name;
    eventually("its words are in the log", async || {
        stage.log(session, &placement).await.contains(name.as_str()).then_some(())
    })
    .await;
    assert_eq!((placement.uid, &placement.unix_name), (stage.people.a.uid, name));
    assert!(!placement.node.is_empty());
    assert_eq!(scheduler.list().await.unwrap().sessions, [session]);
    assert_eq!(scheduler.find(session).await.unwrap().as_ref(), Some(&placement));
    assert_eq!(scheduler.find(SessionId::new()).await.unwrap(), None);
    let status = eventually("its agent tells", async || {
        let mut events = scheduler.events(session, &placement).await.ok()?;
        futures_util::StreamExt::next(&mut events).await
    })
    .await;
    assert_eq!(status.protocol, lyceum::protocol::PROTOCOL);

    scheduler.terminate(session, &placement).await.unwrap();
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, None, "as it was asked: {exit:?}");
    scheduler.kill(session, Some(&placement)).await.unwrap();
    scheduler.clean(session).await.unwrap();
    assert!(!scheduler.run_directory(session).exists());
    assert_eq!(scheduler.list().await.unwrap().sessions, []);
    assert!(matches!(scheduler.observe(session, &placement).await, Observation::Ended(_)), "for ever");
}

async fn how_it_ends(stage: Stage) {
    for (script, reason, code, signal) in [
        ("exit 0", EndReason::Exited, Some(0), None),
        ("exit 3", EndReason::Exited, Some(3), None),
        ("kill -9 $$", EndReason::Signal, None, Some(9)),
    ] {
        let launch = stage.workload(script);
        let session = launch.session;
        let placement = stage.scheduler.launch(launch).await.unwrap();
        let exit = stage.ended(session, &placement).await;
        assert_eq!((exit.reason, exit.exit_code, exit.signal), (Some(reason), code, signal), "{script}: {exit:?}");
    }
}

async fn out_of_memory(stage: Stage) {
    let hoard = "exec python3 -c 'h = []\nwhile True: h.append(b\"x\" * (1 << 20))'";
    let launch = stage.workload(hoard);
    let session = launch.session;
    let placement = stage.scheduler.launch(launch).await.unwrap();
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::OutOfMemory), "{exit:?}");
}

async fn a_second_launch_starts_nothing(stage: Stage) {
    let launch = stage.workload("echo begun >> starts; exec sleep 600");
    let session = launch.session;
    let first = stage.scheduler.launch(launch.clone()).await.unwrap();
    let again = stage.scheduler.launch(launch.clone()).await.unwrap();
    assert_eq!((first.pid, &first.run_directory), (again.pid, &again.run_directory));
    let placement = stage.alive(session, &first).await;
    // A portal that was killed between the launch and its note of it.
    let later = stage.again().await;
    assert_eq!(later.launch(launch.clone()).await.unwrap().pid, placement.pid);
    // The same session is nobody else's.
    let theirs = Launch { session, ..Stage::workload_of(&stage.people.b, "true") };
    if let Ok(placement) = later.launch(theirs).await {
        assert_eq!(placement.uid, stage.people.b.uid, "nobody gets a workload of somebody else");
    }
    let starts = stage.people.a.home.join("starts");
    // The file is there before the shell has written into it.
    let told = async || std::fs::read_to_string(&starts).ok().filter(|text| text.ends_with('\n'));
    assert_eq!(eventually("it has begun", told).await, "begun\n");
    std::fs::remove_file(starts).unwrap();
    stage.scheduler.kill(session, Some(&placement)).await.unwrap();
    stage.ended(session, &placement).await;
}

/// Each is watched from its launch on, as the portal does: with the placement that it had then.
async fn many_that_start_together(stage: Stage) {
    let launches: Vec<Launch> = (0..20).map(|_| stage.workload("sleep 1")).collect();
    let sessions: Vec<SessionId> = launches.iter().map(|launch| launch.session).collect();
    let placements = join_all(launches.into_iter().map(|launch| stage.scheduler.launch(launch))).await;
    let follow = async |(session, launched): (&SessionId, Result<Placement, Error>)| {
        let mut placement = launched.unwrap();
        loop {
            match stage.scheduler.observe(*session, &placement).await {
                Observation::Ended(exit) => return (placement, exit),
                Observation::Alive => placement = stage.scheduler.find(*session).await.unwrap().expect("it is there"),
                Observation::Waiting(_) | Observation::Unknown(_) => {}
            }
            let news = stage.scheduler.wait_end(*session, &placement);
            let waited = tokio::time::timeout(PATIENCE, news).await;
            assert!(waited.is_ok(), "nobody says what became of {session}: {placement:?}");
        }
    };
    let all = join_all(sessions.iter().zip(placements).map(follow)).await;
    for (placement, exit) in all {
        assert_eq!((exit.reason, exit.exit_code), (Some(EndReason::Exited), Some(0)), "{placement:?} {exit:?}");
    }
}

async fn a_restarted_portal_finds_it(stage: Stage) {
    let (session, placement) = stage.run("echo begun; exec sleep 600").await;
    // An agent that is told to end before it has begun can say nothing.
    eventually("it has begun", async || stage.log(session, &placement).await.contains("begun").then_some(())).await;
    let later = stage.again().await;
    assert_eq!(later.observe(session, &placement).await, Observation::Alive);
    assert_eq!(later.find(session).await.unwrap().as_ref(), Some(&placement));
    assert_eq!(later.list().await.unwrap().sessions, [session]);
    // The end that came while nobody looked.
    drop(later);
    stage.scheduler.terminate(session, &placement).await.unwrap();
    stage.ended(session, &placement).await;
    let latest = stage.again().await;
    let Observation::Ended(exit) = latest.observe(session, &placement).await else { panic!("it has ended") };
    assert_eq!(exit.reason, None, "{exit:?}");
    // The last process of a session can take a moment to die, so that the portal asks again too.
    succeeds("it is cleaned", || latest.clean(session)).await;
    assert_eq!(latest.list().await.unwrap().sessions, []);
}

async fn killed(stage: Stage) {
    let (session, placement) = stage.run("trap '' TERM; while :; do sleep 1; done").await;
    stage.scheduler.kill(session, Some(&placement)).await.unwrap();
    let exit = stage.ended(session, &placement).await;
    assert!(exit.reason.is_none_or(|reason| reason == EndReason::Signal), "{exit:?}");
    // Of what has ended nothing is left to end.
    stage.scheduler.kill(session, Some(&placement)).await.unwrap();
    stage.scheduler.kill(SessionId::new(), None).await.unwrap();
    stage.scheduler.clean(session).await.unwrap();
    assert_eq!(stage.scheduler.list().await.unwrap().sessions, []);
}

async fn what_cannot_start_says_why(stage: Stage) {
    let mut launch = stage.workload("true");
    launch.app.working_directory = "/nowhere/at/all".into();
    let session = launch.session;
    match stage.scheduler.launch(launch).await {
        Ok(placement) => {
            let exit = stage.ended(session, &placement).await;
            assert_eq!(exit.reason, Some(EndReason::LaunchFailed), "{exit:?}");
            assert!(exit.detail.contains("/nowhere/at/all"), "{exit:?}");
        }
        Err(Error::Refused(sentence)) => assert!(sentence.contains("/nowhere/at/all"), "{sentence}"),
        Err(error) => panic!("{error:?}"),
    }
}
