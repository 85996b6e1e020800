//! What goes wrong on a cluster, each with the real thing that does it: nothing is lost,
//! nothing is doubled, and what is told is true.

use std::{fs, os::unix::fs::PermissionsExt};

use lyceum::{
    helper::batch::Tools,
    model::{EndReason, health::NoScheduler},
    scheduler::{Error, Launch, Observation, slurm::Settings},
};

use super::{cluster::Cluster, stage::Stage};
use crate::wait::eventually;

/// A controller that hangs is nobody's end, and nothing is started or ended meanwhile.
#[tokio::test]
async fn unknown_while_the_controller_hangs() {
    // Slurm's commands give up sooner, so that the test need not wait for them.
    let Some(cluster) = Cluster::with("MessageTimeout=3") else { return };
    let stage = Stage::on(cluster).await;
    let (session, placement) = stage.run("exec sleep 600").await;
    stage.cluster().stop_controller();
    let why = eventually("nobody can be asked", async || match stage.scheduler.observe(session, &placement).await {
        Observation::Unknown(why) => Some(why),
        Observation::Alive => None,
        other => panic!("{other:?}"),
    })
    .await;
    assert!(why.contains("controller does not respond"), "{why}");
    let trouble = stage.scheduler.trouble();
    assert!(
        matches!(&trouble, Some(NoScheduler::Silent { why, answered_at: Some(_) }) if !why.is_empty()),
        "the controller is told, not the helper: {trouble:?}"
    );
    // A portal that is started now has never had an answer.
    let later = stage.again().await;
    assert!(matches!(later.observe(session, &placement).await, Observation::Unknown(_)));
    let trouble = later.trouble();
    assert!(matches!(&trouble, Some(NoScheduler::Silent { answered_at: None, .. })), "{trouble:?}");
    assert!(later.list().await.is_err() && later.find(session).await.is_err(), "no answer is no empty list");
    assert!(matches!(stage.scheduler.launch(stage.workload("true")).await, Err(Error::Unavailable(_))));
    stage.cluster().resume_controller();
    for scheduler in [&stage.scheduler, &later] {
        eventually("it is known again", async || {
            (scheduler.observe(session, &placement).await == Observation::Alive).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_restarted_controller_knows_its_jobs() {
    let Some(stage) = Stage::slurm().await else { return };
    let (session, placement) = stage.run("exec sleep 600").await;
    stage.cluster().kill_controller();
    stage.cluster().start_controller();
    eventually("it is still there", async || match stage.scheduler.observe(session, &placement).await {
        Observation::Alive => stage.scheduler.find(session).await.ok(),
        Observation::Ended(exit) => panic!("{exit:?}"),
        _ => None,
    })
    .await;
    stage.scheduler.terminate(session, &placement).await.unwrap();
    assert_eq!(stage.ended(session, &placement).await.reason, None);
}

/// The answer to a submission is lost on its way: the job is taken over, and there is one.
#[tokio::test]
async fn a_lost_answer_is_adopted_and_never_handed_in_again() {
    let Some(cluster) = Cluster::start() else { return };
    let script = "#!/bin/sh\n/usr/bin/sbatch \"$@\" >/dev/null || exit\n\
                  echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n";
    let stage = with_sbatch(cluster, script).await;
    let launch = stage.workload("exec sleep 600");
    let session = launch.session;
    let lost = stage.scheduler.launch(launch.clone()).await;
    assert!(matches!(&lost, Err(Error::Unavailable(why)) if why.contains("timed out")), "{lost:?}");
    // A portal that was killed meanwhile, and one that was not.
    let later = stage.again().await;
    let adopted = later.launch(launch.clone()).await.unwrap();
    assert_eq!(stage.scheduler.launch(launch).await.unwrap().pid, adopted.pid);
    stage.alive(session, &adopted).await;
    assert_eq!(jobs(&stage), 1);
}

/// A submission that never arrived is repeated, but only when that is certain.
#[tokio::test]
async fn a_lost_question_is_asked_again() {
    let Some(cluster) = Cluster::start() else { return };
    // The user writes there.
    fs::create_dir(cluster.path("open")).unwrap();
    fs::set_permissions(cluster.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ -e {0} ]; then exec /usr/bin/sbatch \"$@\"; fi\n: >{0}\n\
         echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n",
        cluster.path("open/once").display()
    );
    let stage = with_sbatch(cluster, &script).await;
    let launch = stage.workload("exec sleep 600");
    assert!(matches!(stage.scheduler.launch(launch.clone()).await, Err(Error::Unavailable(_))));
    let again = stage.scheduler.launch(launch.clone()).await;
    assert!(matches!(&again, Err(Error::Unavailable(why)) if why.contains("not clear yet")), "{again:?}");
    let session = launch.session;
    let placement =
        eventually("it is handed in again", async || stage.scheduler.launch(launch.clone()).await.ok()).await;
    stage.alive(session, &placement).await;
    assert_eq!(jobs(&stage), 1);
}

async fn with_sbatch(cluster: Cluster, script: &str) -> Stage {
    let sbatch = cluster.path("sbatch");
    fs::write(&sbatch, script).unwrap();
    fs::set_permissions(&sbatch, fs::Permissions::from_mode(0o755)).unwrap();
    let tools = Tools { sbatch, ..cluster.tools() };
    Stage::with(cluster, tools, Settings::default()).await
}

/// How many jobs there ever were.
fn jobs(stage: &Stage) -> usize {
    stage.cluster().ask("squeue", &["--noheader", "--states=all", "--Format", "jobid"]).lines().count()
}

#[tokio::test]
async fn a_node_that_goes_down() {
    let Some(stage) = Stage::slurm().await else { return };
    let (session, placement) = stage.run("exec sleep 600").await;
    let number: usize = placement.node.trim_start_matches("node").parse().unwrap();
    stage.cluster().set_node(number, "down");
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::NodeFailure), "{exit:?}");
    assert!(exit.detail.contains(&placement.node), "{exit:?}");
    assert_eq!(jobs(&stage), 1, "it is not put into the queue again");
}

#[tokio::test]
async fn drained_nodes_and_back() {
    let Some(stage) = Stage::slurm().await else { return };
    stage.cluster().set_nodes("drain");
    let launch = stage.workload("exec sleep 600");
    let session = launch.session;
    let placement = stage.scheduler.launch(launch).await.unwrap();
    assert!(placement.node.is_empty());
    stage.waits(session, &placement, "drained").await;
    assert!(matches!(
        stage.scheduler.ask(session, &placement, "app.sock", "/", None).await,
        Err(Error::Unavailable(_))
    ));
    stage.cluster().set_nodes("resume");
    let placement = stage.alive(session, &placement).await;
    assert!(placement.node.starts_with("node"));
}

/// What waits is ended without ever having begun.
#[tokio::test]
async fn stopped_in_the_queue() {
    let Some(stage) = Stage::slurm().await else { return };
    stage.cluster().set_nodes("drain");
    let launch = stage.workload("echo begun >> starts");
    let session = launch.session;
    let placement = stage.scheduler.launch(launch).await.unwrap();
    stage.waits(session, &placement, "").await;
    stage.scheduler.terminate(session, &placement).await.unwrap();
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, None, "{exit:?}");
    stage.cluster().set_nodes("resume");
    stage.scheduler.clean(session).await.unwrap();
    assert!(!stage.people.a.home.join("starts").exists());
    assert!(!stage.scheduler.run_directory(session).exists());
}

#[tokio::test]
async fn a_node_whose_daemon_is_killed() {
    let Some(cluster) = Cluster::with("SlurmdTimeout=4") else { return };
    let stage = Stage::on(cluster).await;
    let (session, placement) = stage.run("exec sleep 600").await;
    let number: usize = placement.node.trim_start_matches("node").parse().unwrap();
    stage.cluster().kill_node(number);
    // The controller gives it four seconds and some.
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::NodeFailure), "{exit:?}");
    stage.cluster().start_node(number);
}

#[tokio::test]
async fn preempted() {
    let more = "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n\
                PartitionName=low Nodes=node1 PriorityTier=1 MaxTime=1:00:00 State=UP\n\
                PartitionName=high Nodes=node1 PriorityTier=9 MaxTime=1:00:00 State=UP";
    let Some(cluster) = Cluster::with(more) else { return };
    let tools = cluster.tools();
    let settings = Settings { partition: "low".to_owned(), ..Settings::default() };
    let stage = Stage::with(cluster, tools, settings).await;
    let (session, placement) = stage.run("exec sleep 600").await;
    stage.cluster().submit(stage.people.b.uid, &["--partition=high", "--exclusive"]);
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::Preempted), "{exit:?}");
}

/// The controller looks at time limits every half minute, and none is shorter than a minute.
#[tokio::test]
async fn slurms_own_time_limit() {
    let Some(stage) = Stage::slurm().await else { return };
    let (session, placement) = stage.run("exec sleep 600").await;
    stage.cluster().tell("scontrol", &["update", &format!("jobid={}", placement.pid), "timelimit=1"]);
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::TimeLimit), "{exit:?}");
}

#[tokio::test]
async fn cancelled_by_somebody_else() {
    let Some(stage) = Stage::slurm().await else { return };
    let (session, placement) = stage.run("exec sleep 600").await;
    stage.cluster().tell("scancel", &[&placement.pid.to_string()]);
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::StoppedByAdmin), "{exit:?}");
    assert!(exit.detail.contains("cancelled in Slurm"), "{exit:?}");
}

/// A controller that has forgotten an ended job leaves the agent's record to tell its end.
#[tokio::test]
async fn forgotten_by_the_controller() {
    let Some(cluster) = Cluster::with("MinJobAge=2") else { return };
    let stage = Stage::on(cluster).await;
    let launch = stage.workload("exit 7");
    let session = launch.session;
    let placement = stage.scheduler.launch(launch.clone()).await.unwrap();
    eventually("the controller forgets it", async || {
        (stage.scheduler.run_directory(session).join("exit.json").exists() && jobs(&stage) == 0).then_some(())
    })
    .await;
    // Nor is it started again by a portal that has no note of it.
    let later = stage.again().await;
    for placement in [placement, later.launch(launch).await.unwrap()] {
        let Observation::Ended(exit) = later.observe(session, &placement).await else { panic!("it has ended") };
        assert_eq!((exit.reason, exit.exit_code), (Some(EndReason::Exited), Some(7)), "{exit:?}");
    }
    assert_eq!(jobs(&stage), 0);
}

/// The program is not where the node looks for it.
#[tokio::test]
async fn a_node_without_the_program() {
    let Some(stage) = Stage::slurm().await else { return };
    fs::rename(stage.house.base.path().join("lyceum"), stage.house.base.path().join("elsewhere")).unwrap();
    let launch: Launch = stage.workload("true");
    let session = launch.session;
    let placement = stage.scheduler.launch(launch).await.unwrap();
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::LaunchFailed), "{exit:?}");
    assert!(exit.detail.contains("not found"), "what the script has said: {exit:?}");
    assert!(stage.log(session, &placement).await.contains("not found"));
}
