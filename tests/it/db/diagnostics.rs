//! Runs of the tests of GPUs and storage on both databases: what is written, who is shown which, how a run comes to its end once and no
//! more, and when it is forgotten.

use lyceum::{
    db::diagnostics::{DiagnosticsFilter, Outcome},
    model::{
        DatasetId, DiagnosticsId, Gpu, JobId, Timestamp, UserId,
        diagnostics::{
            Diagnostics, FileSystem, Finding, GpuVerdict, Judgement, Level, Measurement, RunState, StorageMeasurement,
            StorageSubject, StorageVerdict, Subject, Verdict,
        },
        gpus::WithheldGpu,
    },
};

use super::{NOTED, START, add_user, on_both};

pub fn run(owner: UserId, owner_name: &str, at: Timestamp) -> Diagnostics {
    Diagnostics {
        id: DiagnosticsId::new(),
        owner,
        owner_name: owner_name.to_owned(),
        job: None,
        subject: Subject::Gpus { level: Level::Medium, gpus: 2 },
        state: RunState::Running,
        detail: String::new(),
        node: String::new(),
        driver: String::new(),
        judgement: None,
        created_at: at,
        ended_at: None,
    }
}

/// A verdict on one GPU.
pub fn outcome(uuid: &str, rate: f64) -> Outcome {
    let gpu = Gpu { uuid: uuid.to_owned(), model: "H100".to_owned(), ..Gpu::default() };
    let finding = Finding {
        check: "ecc".to_owned(),
        verdict: Verdict::Warning,
        seen: "3 errors ’".to_owned(),
        advice: "Test again.".to_owned(),
    };
    let measurement = Some(Measurement { float32_tflops: Some(rate), ..Measurement::default() });
    let judged = GpuVerdict { gpu, verdict: Verdict::Warning, findings: vec![finding], measurement };
    Outcome {
        state: RunState::Finished,
        detail: String::new(),
        node: "node1".to_owned(),
        driver: "550.1".to_owned(),
        judgement: Some(Judgement {
            verdict: Verdict::Warning,
            general: Vec::new(),
            gpus: vec![judged],
            storage: None,
        }),
        results: Some(r#"{"version": 1}"#.to_owned()),
    }
}

#[tokio::test]
async fn a_run_comes_to_its_end_once() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b) = (add_user(db, "a").await, add_user(db, "b").await);
        let (first, second) = (run(a, "a", START), run(b, "b", START));
        for new in [&first, &second] {
            db.add_diagnostics(new, &NOTED).await.unwrap();
        }
        assert_eq!(db.find_diagnostics(first.id).await.unwrap().as_ref(), Some(&first));
        assert_eq!(db.find_diagnostics(DiagnosticsId::new()).await.unwrap(), None);
        assert_eq!(db.diagnostics_directory(first.id).await.unwrap().as_deref(), Some(""));
        assert_eq!(db.diagnostics_results(first.id).await.unwrap(), None);

        let (job, later) = (JobId::new(), START.plus_seconds(60));
        db.set_diagnostics_job(first.id, job, "/home/a/runs/x").await.unwrap();
        assert_eq!(db.diagnostics_directory(first.id).await.unwrap().as_deref(), Some("/home/a/runs/x"));
        let ended = outcome("GPU-1", 50.0);
        assert!(db.settle_diagnostics(first.id, &ended, later).await.unwrap());
        let again = Outcome { state: RunState::Failed, ..outcome("GPU-2", 9.0) };
        assert!(!db.settle_diagnostics(first.id, &again, later).await.unwrap(), "it has its outcome");
        let found = db.find_diagnostics(first.id).await.unwrap().unwrap();
        let expected = Diagnostics {
            job: Some(job),
            state: RunState::Finished,
            node: "node1".to_owned(),
            driver: "550.1".to_owned(),
            judgement: ended.judgement,
            ended_at: Some(later),
            ..first.clone()
        };
        assert_eq!(found, expected);
        assert_eq!(db.diagnostics_results(first.id).await.unwrap().as_deref(), Some(r#"{"version": 1}"#));

        let everybody = DiagnosticsFilter { owner: None, tested: None, before: None, limit: 10 };
        let listed = async |filter| -> Vec<DiagnosticsId> {
            db.list_diagnostics(filter).await.unwrap().iter().map(|run| run.id).collect()
        };
        assert_eq!(listed(everybody).await, [second.id, first.id], "newest first");
        assert_eq!(listed(DiagnosticsFilter { owner: Some(a), ..everybody }).await, [first.id]);
        assert_eq!(listed(DiagnosticsFilter { before: Some(second.id), ..everybody }).await, [first.id]);
        assert_eq!(listed(DiagnosticsFilter { tested: Some("GPU-1"), ..everybody }).await, [first.id]);
        for other in ["GPU", "GPU-", "GPU-2", "%", "GPU_1"] {
            assert!(listed(DiagnosticsFilter { tested: Some(other), ..everybody }).await.is_empty(), "{other}");
        }

        assert_eq!(db.forget_diagnostics(later).await.unwrap(), 0, "it ended just then");
        assert_eq!(db.forget_diagnostics(later.plus_seconds(1)).await.unwrap(), 1);
        assert_eq!(listed(everybody).await, [second.id], "one that has not ended stays");
    })
    .await;
}

#[tokio::test]
async fn tests_of_storage_are_found_by_their_file_system() {
    on_both(async |house| {
        let db = &house.db;
        let a = add_user(db, "a").await;
        let storage = StorageSubject {
            directory: "/home/a/’".to_owned(),
            dataset: Some(DatasetId::new()),
            dataset_name: "flowers".to_owned(),
        };
        let new = Diagnostics { subject: Subject::Storage(storage), ..run(a, "a", START) };
        let of_gpus = run(a, "a", START);
        for one in [&new, &of_gpus] {
            db.add_diagnostics(one, &NOTED).await.unwrap();
        }
        assert_eq!(db.find_diagnostics(new.id).await.unwrap().as_ref(), Some(&new));
        let judged = StorageVerdict {
            file_system: FileSystem { id: "fs-12ab".to_owned(), kind: "nfs4".to_owned(), ..FileSystem::default() },
            measurement: StorageMeasurement { write_mb_s: Some(412.5), ..StorageMeasurement::default() },
            training: None,
        };
        let judgement =
            Judgement { verdict: Verdict::Pass, general: Vec::new(), gpus: Vec::new(), storage: Some(judged) };
        let ended = Outcome { judgement: Some(judgement.clone()), ..outcome("GPU-1", 1.0) };
        assert!(db.settle_diagnostics(new.id, &ended, START.plus_seconds(9)).await.unwrap());
        assert_eq!(db.find_diagnostics(new.id).await.unwrap().unwrap().judgement, Some(judgement));
        let listed = async |tested| -> Vec<DiagnosticsId> {
            let filter = DiagnosticsFilter { owner: None, tested, before: None, limit: 10 };
            db.list_diagnostics(filter).await.unwrap().iter().map(|run| run.id).collect()
        };
        assert_eq!(listed(Some("fs-12ab")).await, [new.id]);
        assert_eq!(listed(Some("fs-12")).await, []);
        assert_eq!(listed(None).await, [of_gpus.id, new.id]);
    })
    .await;
}

#[tokio::test]
async fn a_gpu_is_withheld_until_it_is_released() {
    on_both(async |house| {
        let db = &house.db;
        let of = |reason: &str| WithheldGpu {
            uuid: "GPU-1".to_owned(),
            reason: reason.to_owned(),
            by: "root".to_owned(),
            at: START,
        };
        for reason in ["one", "another ’"] {
            db.withhold_gpu(&of(reason), &NOTED).await.unwrap();
            assert_eq!(db.withheld_gpus().await.unwrap(), [of(reason)], "a later reason replaces the earlier");
        }
        assert!(db.release_gpu("GPU-1", &NOTED).await.unwrap());
        assert!(!db.release_gpu("GPU-1", &NOTED).await.unwrap(), "it was released");
        assert!(db.withheld_gpus().await.unwrap().is_empty());
    })
    .await;
}
