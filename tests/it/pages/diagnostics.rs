//! Tests of GPUs and storage as pages: the list with its forms, a test that runs, and one that found faults.

use std::collections::BTreeMap;

use lyceum::{
    diagnostics::{PastRun, PastStorage},
    model::{
        DatasetId, DiagnosticsId, Gpu, UserId,
        diagnostics::{
            Diagnostics, FileSystem, Finding, GpuVerdict, Installed, Judgement, Level, Measured, Measurement, RunState,
            StorageMeasurement, StorageSubject, StorageVerdict, Subject, TrainingRate, Verdict,
        },
    },
    web::{page::Nav, views::*},
};
use serde_json::{Value, json};

use super::gallery::{NOW, Word, layout};

fn run(word: &Word, state: RunState, judgement: Option<Judgement>) -> Diagnostics {
    let ended = state != RunState::Running;
    Diagnostics {
        id: DiagnosticsId::new(),
        owner: UserId::new(),
        owner_name: word("alice"),
        job: None,
        subject: Subject::Gpus { level: Level::Long, gpus: 3 },
        state,
        detail: String::new(),
        node: if ended { word("gpu-node-07") } else { String::new() },
        driver: if ended { word("570.86.15") } else { String::new() },
        judgement,
        created_at: NOW.plus_seconds(-600),
        ended_at: ended.then(|| NOW.plus_seconds(-480)),
    }
}

fn judged(word: &Word) -> Judgement {
    let finding = |check: &str, verdict, seen: &str, advice: &str| Finding {
        check: check.to_owned(),
        verdict,
        seen: word(seen),
        advice: advice.to_owned(),
    };
    let fine = || {
        vec![
            finding("ecc", Verdict::Pass, "0 corrected and 0 uncorrected errors since the driver was loaded.", ""),
            finding(
                "pcie",
                Verdict::Information,
                "PCIe generation 1 of 5, 16 of 16 lanes.",
                "A GPU without load lowers it.",
            ),
            finding("dcgm", Verdict::Pass, "Passed at level 3 of DCGM 4.2.3: software, memory, pcie, diagnostic.", ""),
            finding("xid", Verdict::NotTested, "The kernel's log cannot be read by this user.", ""),
        ]
    };
    let gpu = |index: i64, verdict, more: Vec<Finding>| GpuVerdict {
        gpu: Gpu { index, slice: None, uuid: word(&format!("GPU-{index}")), model: word("NVIDIA H100 80GB HBM3") },
        verdict,
        findings: [more, fine()].concat(),
        measurement: Some(Measurement {
            float32_tflops: Some(if index == 1 { 38.2 } else { 51.0 }),
            bfloat16_tflops: Some(702.4),
            to_device_gb_s: Some(24.9),
            to_host_gb_s: Some(21.3),
        }),
    };
    let wrong = "Copies from GPU 0 to GPU 2 arrive with wrong contents.";
    let advice = "Do not use these two GPUs together. Check the link between them, and test each with a third GPU.";
    let slow = "float32: 38.2 TFLOP/s, 25 % below the best GPU of this model (51.0).";
    Judgement {
        verdict: Verdict::Critical,
        general: vec![
            finding("driver", Verdict::Pass, "Driver 570.86.15, for CUDA 12.8 and older.", ""),
            finding("collectives", Verdict::Pass, "All results of the collectives are right.", ""),
            finding("nccl_tests", Verdict::NotTested, "all_reduce_perf is not installed on this node.", ""),
        ],
        gpus: vec![
            gpu(0, Verdict::Critical, vec![finding("links", Verdict::Critical, wrong, advice)]),
            gpu(
                1,
                Verdict::Warning,
                vec![finding("matmul", Verdict::Warning, slow, "Compare clocks and temperature.")],
            ),
            gpu(2, Verdict::Critical, vec![finding("links", Verdict::Critical, wrong, advice)]),
        ],
        storage: None,
    }
}

fn measured(word: &Word) -> Measured {
    let document: Value = json!({
        "version": 1,
        "links": { "state": "measured", "bandwidth_gb_s": [[null, 301.0, 299.0], [288.0, null, 120.5], [302.0, 6.25, null]],
            "latency_us": [[null, 8.1, 8.3], [8.0, null, 19.0], [8.2, 44.1, null]],
            "wrong": [[null, 0, 3], [0, null, 0], [0, 0, null]] },
        "collectives": { "state": "measured", "rows": [
            { "name": word("all_reduce"), "size": 134_217_728, "count": 33_554_432, "type": word("float"), "time_us": 812.4,
                "algbw_gb_s": 165.2, "busbw_gb_s": 220.3, "wrong": 0 },
            { "name": "ring", "size": 65536, "count": 16384, "type": "float", "time_us": 21.0, "algbw_gb_s": 3.1,
                "busbw_gb_s": 3.1, "wrong": 12 },
        ] },
    });
    serde_json::from_value(document).unwrap()
}

fn installed(word: &Word) -> Installed {
    let document: Value = json!({
        "version": 1,
        "nvbandwidth": { "state": "measured", "links": [{ "test": "device_to_device_memcpy_read_ce",
            "bandwidth_gb_s": [[null, 393.0, 391.2], [392.7, null, 391.5], [101.5, 392.0, null]] }] },
        "nccl_tests": { "state": "measured", "rows": [{ "name": word("all_reduce"), "size": 536_870_912,
            "count": 134_217_728, "type": "float", "time_us": 1912.7, "algbw_gb_s": 280.69, "busbw_gb_s": 374.2,
            "wrong": 0 }] },
    });
    serde_json::from_value(document).unwrap()
}

pub fn list(word: &Word) -> DiagnosticsPage {
    let row = |state, judged| DiagnosticsRow::new(&run(word, state, judged), NOW);
    let pass = Judgement { verdict: Verdict::Pass, general: Vec::new(), gpus: Vec::new(), storage: None };
    let with = |verdict| row(RunState::Finished, Some(Judgement { verdict, ..pass.clone() }));
    DiagnosticsPage {
        layout: layout(word).at(Nav::Cluster),
        form: DiagnosticsForm { level: "medium".to_owned(), gpus: "1".to_owned(), group: word("vision") },
        storage: StorageForm { directory: word("~/data"), dataset: "b".to_owned(), size: String::new() },
        datasets: vec![("a".to_owned(), word("flowers")), ("b".to_owned(), word("x-rays"))],
        errors: Vec::new(),
        groups: vec![word("vision"), word("speech")],
        most: 8,
        rows: vec![
            row(RunState::Running, None),
            with(Verdict::Critical),
            with(Verdict::Warning),
            with(Verdict::Information),
            with(Verdict::Pass),
            with(Verdict::NotTested),
            row(RunState::Stopped, None),
            row(RunState::Failed, None),
            DiagnosticsRow::new(&of_storage(word, RunState::Finished, Some(pass.clone())), NOW),
        ],
        names_owners: true,
        first_href: None,
        next_href: Some("/diagnostics?cursor=a".to_owned()),
    }
}

pub fn wrong(word: &Word) -> DiagnosticsPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    DiagnosticsPage {
        form: DiagnosticsForm { level: "quick".to_owned(), gpus: word("9"), group: String::new() },
        storage: StorageForm { directory: word("data"), dataset: String::new(), size: word("9") },
        errors: vec![
            error("gpus", "Must be from 1 to 8."),
            error("group", "is not one of your groups"),
            error("directory", "Must begin with / or ~/."),
            error("size_bytes", "Must be from 16 MiB to 64 GiB."),
        ],
        rows: Vec::new(),
        names_owners: false,
        next_href: None,
        ..list(word)
    }
}

pub fn running(word: &Word) -> ShowDiagnostics {
    ShowDiagnostics {
        layout: layout(word).at(Nav::Cluster),
        row: DiagnosticsRow::new(&run(word, RunState::Running, None), NOW),
        detail: String::new(),
        running: Some(RunningTest { part: "links".to_owned(), done: 1, of: 6, waits: None }),
        judgement: None,
        remedy: None,
        has_results: false,
        tables: DiagnosticsTables::default(),
    }
}

pub fn failed(word: &Word) -> ShowDiagnostics {
    ShowDiagnostics {
        row: DiagnosticsRow::new(&run(word, RunState::Failed, None), NOW),
        detail: word("The job was deleted before its results were read."),
        running: None,
        ..running(word)
    }
}

pub fn show(word: &Word) -> ShowDiagnostics {
    let run = run(word, RunState::Finished, Some(judged(word)));
    let past = |rate: f64| PastRun {
        id: DiagnosticsId::new(),
        ended_at: NOW.plus_seconds(-86_400),
        measurement: Measurement { float32_tflops: Some(rate), ..Measurement::default() },
    };
    let past = BTreeMap::from([(word("GPU-1"), vec![past(50.0), past(51.5), past(50.9)])]);
    ShowDiagnostics {
        row: DiagnosticsRow::new(&run, NOW),
        running: None,
        remedy: Some(Remedy::Hold),
        has_results: true,
        tables: DiagnosticsTables::new(&run, Some(&measured(word)), Some(&installed(word)), &past),
        judgement: run.judgement,
        ..running(word)
    }
}

pub fn on_cluster(word: &Word) -> ShowDiagnostics {
    ShowDiagnostics { remedy: Some(Remedy::Drain), ..show(word) }
}

fn of_storage(word: &Word, state: RunState, judgement: Option<Judgement>) -> Diagnostics {
    let subject = StorageSubject {
        directory: word("/scratch/alice"),
        dataset: Some(DatasetId::new()),
        dataset_name: word("flowers"),
    };
    Diagnostics { subject: Subject::Storage(subject), driver: String::new(), ..run(word, state, judgement) }
}

fn shown_storage(word: &Word, run: &Diagnostics, past: &[PastStorage]) -> ShowStorage {
    let Subject::Storage(subject) = run.subject.clone() else { unreachable!("it is of storage") };
    let tested = run.judgement.as_ref().and_then(|judged| TestedStorage::new(judged, past, NOW));
    ShowStorage {
        layout: layout(word).at(Nav::Cluster),
        row: DiagnosticsRow::new(run, NOW),
        subject,
        detail: run.detail.clone(),
        running: None,
        has_results: tested.is_some(),
        tested,
    }
}

pub fn storage(word: &Word) -> ShowStorage {
    let finding = |check: &str, verdict, seen: &str, advice: &str| Finding {
        check: check.to_owned(),
        verdict,
        seen: word(seen),
        advice: advice.to_owned(),
    };
    let slow = "352 images/s (53 MB/s of pixels) with 4 workers: too slow for the training of ‘resnet’, which had 900 images/s.";
    let measured = |write: f64| StorageMeasurement {
        write_mb_s: Some(write),
        read_mb_s: Some(1130.0),
        create_per_s: Some(412.0),
        stat_per_s: Some(10_512.0),
        read_files_per_s: None,
        images_per_second: Some(352.4),
    };
    let judgement = Judgement {
        verdict: Verdict::Warning,
        general: vec![
            finding("dataset_reading", Verdict::Warning, slow, "Build the dataset with resized images."),
            finding("storage_write", Verdict::Pass, "Writing: 412 MB/s.", ""),
            finding("small_files_read", Verdict::NotTested, "Reading: 9452 files/s. This came from memory.", ""),
        ],
        gpus: Vec::new(),
        storage: Some(StorageVerdict {
            file_system: FileSystem {
                id: "fs-1".to_owned(),
                kind: word("nfs4"),
                source: word("filer.example.org:/export/scratch"),
                mount_point: word("/scratch"),
                size_bytes: 48 << 40,
                free_bytes: 7 << 40,
            },
            measurement: measured(412.0),
            training: Some(TrainingRate { model: word("resnet"), images_per_second: 900.0 }),
        }),
    };
    let past = [450.0, 431.2, 460.0].map(|rate| PastStorage {
        id: DiagnosticsId::new(),
        ended_at: NOW.plus_seconds(-86_400),
        measurement: measured(rate),
    });
    shown_storage(word, &of_storage(word, RunState::Finished, Some(judgement)), &past)
}

pub fn storage_running(word: &Word) -> ShowStorage {
    let running = RunningTest { part: "files".to_owned(), done: 1, of: 3, waits: None };
    ShowStorage { running: Some(running), ..shown_storage(word, &of_storage(word, RunState::Running, None), &[]) }
}

pub fn storage_failed(word: &Word) -> ShowStorage {
    let detail = word("/scratch/alice is not a folder that you can reach from gpu-node-07.");
    ShowStorage { detail, ..shown_storage(word, &of_storage(word, RunState::Failed, None), &[]) }
}
