//! The Slurm scheduler on a real cluster of its own: what is asked of Slurm and as whom, hostile
//! input, what never fits, how often the controller is asked; and what holds for every scheduler.

mod accounts;
mod answers;
mod batch;
mod billing;
mod brief;
mod choices;
mod clocks;
pub mod cluster;
mod conformance;
mod diagnostics;
mod drain;
mod faults;
mod gpus;
mod images;
mod jobs;
mod large;
mod machines;
mod mirror;
mod odd;
mod pace;
mod prolog;
mod queue;
mod read;
mod requeues;
mod room;
mod scripts;
mod shell;
mod stage;
mod sudo;
mod together;
mod training;
mod transports;
mod whole;

use std::time::{Duration, Instant};

use lyceum::{
    model::{Gpu, Resources, job::Shape},
    scheduler::{Error, Launch, Observation},
};

use self::stage::Stage;
use crate::wait::eventually;

const GIB: i64 = 1 << 30;

/// Whoever copies the mark of somebody's job into their own gets nothing by it.
#[tokio::test]
async fn a_forged_mark_is_not_adopted() {
    let Some(stage) = Stage::slurm().await else { return };
    let (session, placement) = stage.run("exec sleep 600").await;
    let mark = stage.cluster().field(placement.pid, "comment");
    assert!(mark.starts_with("lyceum:"), "{mark}");
    let copied = format!("--comment={mark}");
    let forged = stage.cluster().submit(stage.people.b.uid, &[&copied]);
    // And one who writes rows into a comment.
    let row = format!("--comment=x\n{}\u{1f}FAILED\u{1f}None\u{1f}{}\u{1f}{mark}\n", placement.pid, placement.uid);
    stage.cluster().submit(stage.people.b.uid, &[&row]);
    let later = stage.again().await;
    assert_eq!(later.find(session).await.unwrap().as_ref(), Some(&placement));
    assert_eq!(later.observe(session, &placement).await, Observation::Alive);
    later.kill(session, Some(&placement)).await.unwrap();
    stage.ended(session, &placement).await;
    later.kill(session, Some(&placement)).await.unwrap();
    assert_eq!(later.find(session).await.unwrap().map(|found| found.pid), Some(placement.pid));
    assert!(["RUNNING", "PENDING"].contains(&stage.cluster().field(forged, "state").as_str()), "it is left alone");
}

#[tokio::test]
async fn sbatch_as_user() {
    let Some(stage) = Stage::slurm().await else { return };
    let mut launch = stage.workload("id -u; id -g; env | sort; exec sleep 600");
    launch.resources = Resources { gpus: 1, cpus: 2, memory_bytes: 512 << 20, ..Resources::default() };
    launch.gpus = vec![Gpu { model: "a100".to_owned(), ..Gpu::default() }];
    launch.app.environment.insert("OF_THE_APP".to_owned(), "yes".to_owned());
    let session = launch.session;
    let placement = stage.scheduler.launch(launch).await.unwrap();
    let placement = stage.alive(session, &placement).await;
    let field = |name: &str| stage.cluster().field(placement.pid, name);
    assert_eq!((field("userid"), field("groupid")), (placement.uid.to_string(), stage.people.a.gid.to_string()));
    assert_eq!((field("numcpus").as_str(), field("minmemory").as_str()), ("2", "512M"));
    assert_eq!((field("timelimit").as_str(), field("requeue").as_str()), ("20:00", "0"));
    assert!(field("tres-per-node").contains("gpu:a100:1"));
    let log = eventually("it has told who it is", async || {
        let log = stage.log(session, &placement).await;
        log.contains("USER=").then_some(log)
    })
    .await;
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], [placement.uid.to_string(), stage.people.a.gid.to_string()]);
    for wanted in ["CUDA_VISIBLE_DEVICES=0", "OF_THE_APP=yes", &format!("SLURM_JOB_ID={}", placement.pid)] {
        assert!(lines.contains(&wanted), "{wanted}: {log}");
    }
    assert!(!log.contains("SLURM_EXPORT_ENV"), "an srun inside would hand on nothing: {log}");
    // Nothing that is secret waits where others read.
    let told = stage.cluster().ask("scontrol", &["show", "job", &placement.pid.to_string()]);
    let script = stage.cluster().ask("scontrol", &["write", "batch_script", &placement.pid.to_string(), "-"]);
    assert!(script.contains("exec") && !script.contains("OF_THE_APP") && !told.contains("OF_THE_APP"), "{script}");
    assert!(!stage.scheduler.run_directory(session).join("launch.json").exists(), "nor longer than it is needed");
}

#[tokio::test]
async fn hostile_names_are_names() {
    let Some(stage) = Stage::slurm().await else { return };
    stage.cluster().set_nodes("drain");
    let long = "x".repeat(1024);
    let names = [
        "a\nb",
        "it's \"quoted\"",
        "x\n#SBATCH --uid=0",
        "日本 ü",
        "\u{1f}1\u{1f}FAILED",
        "-p nowhere",
        "$(id)",
        "%j",
        &long,
    ];
    for name in names {
        let launch = Launch { name: name.to_owned(), ..stage.workload("true") };
        let session = launch.session;
        let placement = stage.scheduler.launch(launch).await.unwrap();
        stage.waits(session, &placement, "").await;
        assert_eq!(stage.cluster().field(placement.pid, "userid"), placement.uid.to_string());
        let shown = stage.cluster().field(placement.pid, "name");
        assert!(!shown.is_empty() && !shown.contains(['\n', '\u{1f}']) && shown.chars().count() <= 64, "{shown:?}");
    }
    let listed = async || stage.scheduler.list().await.unwrap().sessions.len();
    eventually("all are listed", async || (listed().await == names.len()).then_some(())).await;
}

/// What Slurm would take and never start is refused with the numbers; what it refuses itself
/// is told in its own words. Nothing of either is left.
#[tokio::test]
async fn what_never_runs_is_refused() {
    let Some(stage) = Stage::slurm().await else { return };
    for (resources, seconds, part) in [
        (Resources { cpus: 5, ..Resources::default() }, 600, "5 × cores; the largest node has 4"),
        (Resources { memory_bytes: 5 * GIB, ..Resources::default() }, 600, "the largest node has 4"),
        (Resources { gpus: 3, ..Resources::default() }, 600, "3 × GPUs; the largest node has 2"),
        (Resources { gpus: 1, gpu_model: Some("h100".to_owned()), ..Resources::default() }, 600, "1 × h100"),
        (Resources::default(), 7200, "120 minutes; Slurm’s partition debug allows at most 60"),
    ] {
        let launch = Launch { resources: resources.clone(), seconds, ..stage.workload("true") };
        match stage.scheduler.launch(launch).await {
            Err(Error::Refused(sentence)) => assert!(sentence.contains(part), "{sentence}"),
            other => panic!("{resources:?}: {other:?}"),
        }
        assert!(
            stage
                .scheduler
                .objection(&resources, seconds, &Shape::default())
                .is_some_and(|sentence| sentence.contains(part))
        );
    }
    // The longest that is allowed gets that and no more.
    let launch = Launch { seconds: 3600, ..stage.workload("exec sleep 600") };
    let placement = stage.scheduler.launch(launch).await.unwrap();
    assert_eq!(stage.cluster().field(placement.pid, "timelimit"), "1:00:00");
    // Slurm's own word.
    stage.cluster().tell("scontrol", &["update", "partitionname=debug", "state=inactive"]);
    match stage.scheduler.launch(stage.workload("true")).await {
        Err(Error::Refused(sentence)) => assert!(sentence.starts_with("Slurm rejected the job: "), "{sentence}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.cluster().ask("squeue", &["--noheader"]).lines().count(), 1);
}

/// The controller is asked as often for many workloads as for one.
#[tokio::test]
async fn calls_do_not_grow_with_sessions() {
    let Some(stage) = Stage::slurm().await else { return };
    let slurm = stage.slurm_again().await;
    let count = async |seconds: u64| {
        let (before, begin) = (slurm.controller_calls(), Instant::now());
        while begin.elapsed() < Duration::from_secs(seconds) {
            for session in lyceum::scheduler::LifeCycle::list(&slurm).await.unwrap().sessions {
                // As reconcile does, at each of its rounds.
                let placement = stage.scheduler.find(session).await.unwrap().unwrap();
                lyceum::scheduler::LifeCycle::observe(&slurm, session, &placement).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // On a full machine a round takes longer than the pause after it.
        (slurm.controller_calls() - before, begin.elapsed())
    };
    stage.run("exec sleep 600").await;
    let (with_one, time_of_one) = count(7).await;
    for _ in 0..30 {
        stage.scheduler.launch(stage.workload("exec sleep 600")).await.unwrap();
    }
    let (with_many, time_of_many) = count(7).await;
    eprintln!(
        "controller calls: {with_one} in {time_of_one:?} with one workload, {with_many} in {time_of_many:?} with 31 of \
         which half wait"
    );
    let at_most = |time: Duration, pause: u128| time.as_millis() / pause + 3;
    assert!(u128::from(with_one) <= at_most(time_of_one, 2000), "a look every two seconds");
    assert!(u128::from(with_many) <= at_most(time_of_many, 400), "one every 0.4 seconds while some wait");
}
