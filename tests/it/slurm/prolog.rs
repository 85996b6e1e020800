//! A node whose Prolog fails: what was to start there ends as that node's failure, with Slurm's reason, and
//! is retried; it is nobody's stop.

use std::{fs, os::unix::fs::PermissionsExt};

use lyceum::model::EndReason;

use super::{cluster::Cluster, stage::Stage};

async fn with_prolog(more: &str) -> Option<(Stage, tempfile::TempDir)> {
    let folder = tempfile::Builder::new().prefix("ly-prolog-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let prolog = folder.path().join("prolog");
    fs::write(&prolog, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&prolog, fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::with(&format!("Prolog={}\n{more}", prolog.display()))?;
    Some((Stage::on(cluster).await, folder))
}

async fn ends_as_the_nodes_failure(stage: &Stage) {
    let launch = stage.workload("exec sleep 600");
    let session = launch.session;
    let placement = stage.scheduler.launch(launch).await.unwrap();
    let exit = stage.ended(session, &placement).await;
    let told =
        stage.cluster().ask("squeue", &["--noheader", "--states=all", "--Format=jobid:|,state:|,reason:|,batchhost:|"]);
    let nodes = stage.cluster().ask("sinfo", &["--noheader", "--Node", "--Format=nodelist:|,statelong:|,reason:|"]);
    assert_eq!(exit.reason, Some(EndReason::NodeFailure), "{exit:?}; {told}; {nodes}");
    let detail = exit.detail.to_lowercase();
    assert!(
        detail.contains("could not start it") && (detail.contains("prolog") || detail.contains("launch")),
        "{exit:?}"
    );
    stage.scheduler.kill(session, Some(&placement)).await.unwrap();
}

#[tokio::test]
async fn a_failing_prolog_is_the_nodes_failure() {
    let Some((stage, _folder)) = with_prolog("").await else { return };
    ends_as_the_nodes_failure(&stage).await;
}

/// The reason is there also where Slurm's daemons wait for the Prolog before anything is started.
#[tokio::test]
async fn a_prolog_that_fails_at_the_allocation_is_the_nodes_failure() {
    let Some((stage, _folder)) = with_prolog("PrologFlags=Alloc\n").await else { return };
    ends_as_the_nodes_failure(&stage).await;
}
