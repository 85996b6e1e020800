//! The verdicts: sound GPUs pass, each fault is found where it is, and what was not tested is never a pass.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::gpus::Slowdown;

fn gpu(index: i64) -> Gpu {
    Gpu { index, uuid: format!("GPU-{index}"), model: "H100".to_owned(), slice: None }
}

fn sound_facts() -> GpuFacts {
    GpuFacts {
        pci: Some("0000:3b:00".to_owned()),
        ecc_enabled: Some(true),
        ecc_corrected: Some(0),
        ecc_uncorrected: Some(0),
        rows_remapped_corrected: Some(0),
        rows_remapped_uncorrected: Some(0),
        remapping_pending: Some(false),
        remapping_failed: Some(false),
        retired_pages: Some(0),
        retirement_pending: Some(false),
        pcie_generation: Some(5),
        pcie_generation_max: Some(5),
        pcie_width: Some(16),
        pcie_width_max: Some(16),
        nvlinks: Some(NvLinks { all: 18, active: 18, errors: Some(0) }),
        slowed_by: Some(Vec::new()),
        clock_mhz: Some(1980),
        clock_max_mhz: Some(1980),
        temperature_celsius: Some(40),
        slowdown_celsius: Some(87),
        power_milliwatts: Some(90_000),
        power_limit_milliwatts: Some(700_000),
        power_limit_default_milliwatts: Some(700_000),
        persistence: Some(true),
        programs: Some(0),
        xids: Some(Vec::new()),
    }
}

fn report(count: i64) -> DriverReport {
    let one = |index| DriverGpu { gpu: gpu(index), fault: None, facts: sound_facts() };
    DriverReport {
        version: REPORT_VERSION,
        node: "node1".to_owned(),
        driver: "570.1".to_owned(),
        cuda: "12.8".to_owned(),
        held: usize::try_from(count).unwrap(),
        gpus: (0..count).map(one).collect(),
        kernel_log: true,
        ..DriverReport::default()
    }
}

/// A document of the program's.
fn document(count: usize) -> Value {
    let rows = |row: &dyn Fn(usize) -> Value| (0..count).map(row).collect::<Vec<_>>();
    let matrix = |value: Value| {
        let cell = |from, to| if from == to { Value::Null } else { value.clone() };
        (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let mut matmul = rows(&|device| json!({ "device": device, "type": "float32", "tflops": 50.0 }));
    matmul.extend(rows(&|device| json!({ "device": device, "type": "bfloat16", "tflops": 700.0 })));
    let collective = json!({ "name": "all_reduce", "size": 4096, "count": 1024, "type": "float", "time_us": 20.0,
        "algbw_gb_s": 1.0, "busbw_gb_s": 1.5, "wrong": 0 });
    let part = |rows: Vec<Value>| json!({ "state": "measured", "reason": "", "rows": rows });
    json!({
        "version": 1, "level": "medium", "held": count, "fault": "",
        "devices": rows(&|device| json!({ "device": device, "model": "H100", "memory_bytes": null })),
        "host": part(rows(&|device| {
            json!({ "device": device, "to_device_gb_s": 25.0, "to_host_gb_s": 20.0, "wrong": 0 })
        })),
        "links": { "state": "measured", "reason": "", "bandwidth_gb_s": matrix(json!(300.0)),
            "latency_us": matrix(json!(9.0)), "wrong": matrix(json!(0)) },
        "collectives": part(vec![collective]),
        "matmul": part(matmul),
        "bits": part(rows(&|device| json!({ "device": device, "digests": ["aa", "aa"] }))),
        "memory": part(rows(&|device| json!({ "device": device, "bytes": 1_u64 << 36, "of_bytes": null, "wrong": 0 }))),
    })
}

/// The verdict on so many GPUs, after both were changed.
fn judged(count: i64, report_change: impl Fn(&mut DriverReport), change: impl Fn(&mut Value)) -> Judgement {
    with_past(count, report_change, change, &BTreeMap::new())
}

fn with_past(
    count: i64,
    report_change: impl Fn(&mut DriverReport),
    change: impl Fn(&mut Value),
    past: &BTreeMap<String, Baseline>,
) -> Judgement {
    let (mut report, mut document) = (report(count), document(usize::try_from(count).unwrap()));
    report_change(&mut report);
    change(&mut document);
    let measured: Measured = serde_json::from_value(document).unwrap();
    let held: Vec<Gpu> = (0..count).map(gpu).collect();
    judge(&Evidence {
        level: Level::Medium,
        held: &held,
        before: Some(&report),
        after: Some(&report),
        measured: Some(&measured),
        installed: None,
        failure: "",
        past,
    })
}

/// The check of a GPU: its verdict and what was seen.
fn check(judged: &Judgement, gpu: usize, name: &str) -> (Verdict, String) {
    let all = judged.gpus[gpu].findings.iter().find(|finding| finding.check == name);
    let found = all.unwrap_or_else(|| panic!("{name}: {judged:#?}"));
    (found.verdict, found.seen.clone())
}

#[test]
fn sound_gpus_pass() {
    let found = judged(4, |_| {}, |_| {});
    assert_eq!(found.verdict, Verdict::Pass, "{found:#?}");
    assert_eq!((found.gpus.len(), found.gpus[3].verdict), (4, Verdict::Pass));
    assert!(found.gpus.iter().all(|gpu| gpu.findings.iter().all(|one| one.verdict == Verdict::Pass)), "{found:#?}");
    assert_eq!(found.gpus[0].measurement.unwrap().bfloat16_tflops, Some(700.0));
}

/// What is changed about a GPU, the check that sees it, and its verdict.
type Case = (fn(&mut GpuFacts), &'static str, Verdict);

#[test]
fn what_the_driver_reports() {
    let facts = |change: fn(&mut GpuFacts), name: &str| {
        let found = judged(2, |report| change(&mut report.gpus[1].facts), |_| {});
        assert_eq!(found.gpus[0].verdict, Verdict::Pass, "the other one is sound: {found:#?}");
        let (verdict, seen) = check(&found, 1, name);
        assert_eq!((found.gpus[1].verdict, found.verdict), (verdict, verdict), "{name}: {found:#?}");
        (verdict, seen)
    };
    let cases: [Case; 18] = [
        (|facts| facts.ecc_uncorrected = Some(2), "ecc", Verdict::Critical),
        (|facts| facts.ecc_corrected = Some(2), "ecc", Verdict::Information),
        (|facts| facts.remapping_failed = Some(true), "remapping", Verdict::Critical),
        (|facts| facts.remapping_pending = Some(true), "remapping", Verdict::Warning),
        (|facts| facts.rows_remapped_uncorrected = Some(1), "remapping", Verdict::Information),
        (|facts| facts.retired_pages = Some(61), "retired_pages", Verdict::Critical),
        (|facts| facts.retirement_pending = Some(true), "retired_pages", Verdict::Warning),
        (|facts| facts.pcie_width = Some(8), "pcie", Verdict::Warning),
        (|facts| facts.pcie_generation = Some(1), "pcie", Verdict::Information),
        (|facts| facts.nvlinks = Some(NvLinks { all: 18, active: 17, errors: Some(0) }), "nvlink", Verdict::Critical),
        (
            |facts| facts.nvlinks = Some(NvLinks { all: 18, active: 18, errors: Some(4) }),
            "nvlink",
            Verdict::Information,
        ),
        (|facts| facts.slowed_by = Some(vec![Slowdown::Heat]), "throttling", Verdict::Warning),
        (|facts| facts.slowed_by = Some(vec![Slowdown::PowerBrake]), "throttling", Verdict::Warning),
        (|facts| facts.slowed_by = Some(vec![Slowdown::PowerCap]), "throttling", Verdict::Information),
        (|facts| facts.temperature_celsius = Some(84), "temperature", Verdict::Warning),
        (|facts| facts.power_limit_milliwatts = Some(300_000), "power_limit", Verdict::Information),
        (|facts| facts.programs = Some(1), "programs", Verdict::Warning),
        (|facts| facts.xids = Some(vec![Xid { code: 79, pci: "0000:3b:00".to_owned() }]), "xid", Verdict::Critical),
    ];
    for (change, name, verdict) in cases {
        assert_eq!(facts(change, name).0, verdict, "{name}");
    }
}

#[test]
fn what_is_not_reported_is_not_tested() {
    let found = judged(1, |report| report.gpus[0].facts = GpuFacts::default(), |_| {});
    for name in ["ecc", "remapping", "retired_pages", "xid", "pcie", "nvlink", "throttling", "clocks", "temperature"] {
        assert_eq!(check(&found, 0, name).0, Verdict::NotTested, "{name}");
    }
    assert_eq!(found.verdict, Verdict::Pass, "the rest was tested");
}

#[test]
fn gpus_that_are_lost_or_missing() {
    let lost = "The GPU has fallen off the bus. A restart of the machine usually fixes this";
    let found = judged(2, |report| report.gpus[1].fault = Some(lost.to_owned()), |_| {});
    assert_eq!(check(&found, 1, "state"), (Verdict::Critical, format!("{lost}.")));
    let found = judged(2, |report| drop(report.gpus.pop()), |_| {});
    assert_eq!(found.gpus[1].verdict, Verdict::Critical);
    let count = found.general.iter().find(|finding| finding.check == "count").unwrap();
    assert_eq!((count.verdict, &*count.seen), (Verdict::Critical, "2 GPUs are held; the driver lists 1."));
}

#[test]
fn counters_that_grow_during_the_test() {
    let (before, mut after) = (report(1), report(1));
    let measured: Measured = serde_json::from_value(document(1)).unwrap();
    after.gpus[0].facts.ecc_corrected = Some(5);
    after.gpus[0].facts.nvlinks = Some(NvLinks { all: 18, active: 18, errors: Some(3) });
    let found = judge(&Evidence {
        level: Level::Medium,
        held: &[gpu(0)],
        before: Some(&before),
        after: Some(&after),
        measured: Some(&measured),
        installed: None,
        failure: "",
        past: &BTreeMap::new(),
    });
    let (verdict, seen) = check(&found, 0, "ecc");
    assert!(verdict == Verdict::Warning && seen.contains("5 corrected errors occurred during the test"), "{seen}");
    assert_eq!(check(&found, 0, "nvlink").0, Verdict::Warning);
}

#[test]
fn wrong_contents_are_critical_where_they_are() {
    let found = judged(4, |_| {}, |document| document["links"]["wrong"][0][3] = json!(1));
    let verdicts: Vec<Verdict> = (0..4).map(|gpu| check(&found, gpu, "links").0).collect();
    assert_eq!(verdicts, [Verdict::Critical, Verdict::Pass, Verdict::Pass, Verdict::Critical]);
    assert_eq!(check(&found, 0, "links").1, "Copies from GPU 0 to GPU 3 arrive with wrong contents.");
    for (part, name) in [("host", "host"), ("memory", "memory")] {
        let found = judged(3, |_| {}, |document| document[part]["rows"][1]["wrong"] = json!(7));
        let verdicts: Vec<Verdict> = (0..3).map(|gpu| check(&found, gpu, name).0).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Critical, Verdict::Pass], "{part}");
    }
    let found = judged(2, |_| {}, |document| document["collectives"]["rows"][0]["wrong"] = json!(1));
    assert_eq!(found.verdict, Verdict::Critical);
    let general = found.general.iter().find(|finding| finding.check == "collectives").unwrap();
    assert_eq!(general.seen, "The results of all_reduce are wrong.");
}

#[test]
fn bits_are_judged_by_the_majority() {
    use Verdict::{Critical, Pass};
    let with = |count: i64, digests: &[(usize, [&str; 2])]| {
        let change = |document: &mut Value| {
            for (gpu, two) in digests {
                document["bits"]["rows"][*gpu]["digests"] = json!(two);
            }
        };
        let found = judged(count, |_| {}, change);
        (0..usize::try_from(count).unwrap()).map(|gpu| check(&found, gpu, "bits").0).collect::<Vec<_>>()
    };
    assert_eq!(with(4, &[(2, ["bb", "bb"])]), [Pass, Pass, Critical, Pass]);
    assert_eq!(with(3, &[(0, ["aa", "bb"])]), [Critical, Pass, Pass]);
    assert_eq!(with(2, &[(0, ["bb", "bb"])]), [Critical, Critical], "nobody knows which");
    assert_eq!(with(1, &[(0, ["bb", "bb"])]), [Pass]);
}

#[test]
fn slow_gpus_and_links_are_found() {
    let slow = |document: &mut Value| document["matmul"]["rows"][1]["tflops"] = json!(44.9);
    let found = judged(3, |_| {}, slow);
    let (verdict, seen) = check(&found, 1, "matmul");
    assert_eq!(
        (verdict, &*seen),
        (Verdict::Warning, "float32: 44.9 TFLOP/s, 10 % below the best GPU of this model (50.0).")
    );
    assert_eq!((check(&found, 0, "matmul").0, check(&found, 2, "matmul").0), (Verdict::Pass, Verdict::Pass));
    let within = |document: &mut Value| document["matmul"]["rows"][1]["tflops"] = json!(45.1);
    assert_eq!(judged(3, |_| {}, within).verdict, Verdict::Pass, "10 % are allowed");
    // A slower model is no fault.
    let other_model = |report: &mut DriverReport| report.gpus[1].gpu.model = "A100".to_owned();
    assert_eq!(check(&judged(3, other_model, slow), 1, "matmul").0, Verdict::Warning, "the portal's own list counts");

    let link = |document: &mut Value| document["links"]["bandwidth_gb_s"][2][0] = json!(100.0);
    let found = judged(3, |_| {}, link);
    let (verdict, seen) = check(&found, 0, "links");
    assert_eq!(
        (verdict, &*seen),
        (Verdict::Warning, "Copies from GPU 2 to GPU 0: 100.0 GB/s; links of the same kind have 300.0.")
    );
    assert_eq!(check(&found, 1, "links").0, Verdict::Pass);
    // Links of another kind are slower by nature.
    let kinds = |report: &mut DriverReport| {
        let class = |one, other, word: &str| LinkClass { one, other, word: word.to_owned() };
        report.links = vec![class(0, 1, "NV4"), class(1, 2, "NV4"), class(0, 2, "SYS")];
    };
    let both = |document: &mut Value| {
        link(document);
        document["links"]["bandwidth_gb_s"][0][2] = json!(101.0);
    };
    assert_eq!(judged(3, kinds, both).verdict, Verdict::Pass);
}

#[test]
fn a_gpu_is_compared_with_its_own_past() {
    let median = |rate| Measurement { float32_tflops: Some(rate), ..Measurement::default() };
    let past = |rate| BTreeMap::from([("GPU-0".to_owned(), Baseline { runs: 9, median: median(rate) })]);
    let (verdict, seen) = check(&with_past(1, |_| {}, |_| {}, &past(60.0)), 0, "matmul");
    assert_eq!((verdict, &*seen), (Verdict::Warning, "float32: 50.0 TFLOP/s, 17 % below its own median (60.0)."));
    assert_eq!(with_past(1, |_| {}, |_| {}, &past(52.0)).verdict, Verdict::Pass);
}

#[test]
fn without_measurements_nothing_passes() {
    // JAX sees only CPUs.
    let blind = |document: &mut Value| {
        document["devices"] = json!([]);
        document["fault"] = json!("JAX was installed without CUDA in this environment");
        for part in ["host", "links", "collectives", "matmul", "bits", "memory"] {
            document[part] = json!({ "state": "not_tested", "reason": document["fault"] });
        }
    };
    let found = judged(2, |_| {}, blind);
    assert_eq!((found.verdict, found.gpus[0].verdict), (Verdict::NotTested, Verdict::NotTested));
    let jax = found.general.iter().find(|finding| finding.check == "jax").unwrap();
    assert!(jax.seen.starts_with("JAX was installed without CUDA") && jax.advice.starts_with("Choose an environment"));
    // What the driver found is still more urgent.
    let sick = |report: &mut DriverReport| report.gpus[0].facts.ecc_uncorrected = Some(1);
    assert_eq!(judged(2, sick, blind).verdict, Verdict::Critical);

    // It sees one of two.
    let one = |document: &mut Value| drop(document["devices"].as_array_mut().unwrap().pop());
    let found = judged(2, |_| {}, one);
    assert_eq!(found.verdict, Verdict::Critical);
    // The program wrote nothing, or something of another version.
    let report = report(1);
    let of = |measured: Option<&Measured>| {
        judge(&Evidence {
            level: Level::Medium,
            held: &[gpu(0)],
            before: Some(&report),
            after: None,
            measured,
            installed: None,
            failure: "Killed",
            past: &BTreeMap::new(),
        })
    };
    let future = Measured { version: 2, ..Measured::default() };
    for found in [of(None), of(Some(&future))] {
        assert_eq!((found.verdict, found.gpus[0].verdict), (Verdict::Warning, Verdict::NotTested), "{found:#?}");
        assert_eq!(check(&found, 0, "memory").1, "Killed.");
    }
    // Neither a driver nor a measurement.
    let nothing = judge(&Evidence {
        level: Level::Quick,
        held: &[gpu(0)],
        before: None,
        after: None,
        measured: None,
        installed: None,
        failure: "",
        past: &BTreeMap::new(),
    });
    assert_eq!(nothing.verdict, Verdict::NotTested);
}

#[test]
fn one_gpu_has_no_peers() {
    let alone = |document: &mut Value| {
        for part in ["links", "collectives"] {
            document[part] = json!({ "state": "not_tested", "reason": "one GPU, no peers" });
        }
    };
    let found = judged(1, |_| {}, alone);
    assert_eq!(check(&found, 0, "links"), (Verdict::NotTested, "one GPU, no peers.".to_owned()));
    assert_eq!(found.verdict, Verdict::Pass, "all that can be tested of one is fine");
}

#[test]
fn a_part_that_broke_off_is_critical() {
    let broken = |document: &mut Value| document["bits"] = json!({ "state": "failed", "reason": "CUDA_ERROR_LAUNCH" });
    let found = judged(2, |_| {}, broken);
    assert_eq!(found.verdict, Verdict::Critical);
    assert_eq!(check(&found, 0, "bits").0, Verdict::NotTested);
}

#[test]
fn a_quick_run_needs_no_measurements() {
    let report = report(2);
    let held = [gpu(0), gpu(1)];
    let quick = json!({ "version": 1, "devices": [{ "device": 0 }, { "device": 1 }], "fault": "" });
    let measured: Measured = serde_json::from_value(quick).unwrap();
    let found = judge(&Evidence {
        level: Level::Quick,
        held: &held,
        before: Some(&report),
        after: Some(&report),
        measured: Some(&measured),
        installed: None,
        failure: "",
        past: &BTreeMap::new(),
    });
    assert_eq!(found.verdict, Verdict::Pass, "{found:#?}");
    assert!(found.gpus.iter().all(|gpu| gpu.measurement.is_none()));
}

/// The verdict on a run of the level `long` with these results of the installed programs.
fn with_installed(count: i64, installed: Option<Value>) -> Judgement {
    let (report, document) = (report(count), document(usize::try_from(count).unwrap()));
    let measured: Measured = serde_json::from_value(document).unwrap();
    let installed: Option<Installed> = installed.map(|value| serde_json::from_value(value).unwrap());
    let held: Vec<Gpu> = (0..count).map(gpu).collect();
    judge(&Evidence {
        level: Level::Long,
        held: &held,
        before: Some(&report),
        after: Some(&report),
        measured: Some(&measured),
        installed: installed.as_ref(),
        failure: "",
        past: &BTreeMap::new(),
    })
}

fn all_of<'a>(findings: &'a [Finding], name: &str) -> Vec<(Verdict, &'a str)> {
    findings.iter().filter(|one| one.check == name).map(|one| (one.verdict, one.seen.as_str())).collect()
}

#[test]
fn what_is_not_installed_is_not_tested_by_name() {
    let absent =
        |name: &str| json!({ "state": "not_tested", "reason": format!("{name} is not installed on this node") });
    let document = json!({ "version": 1, "dcgm": absent("dcgmi"), "nvbandwidth": absent("nvbandwidth"),
        "nccl_tests": absent("all_reduce_perf") });
    let found = with_installed(2, Some(document));
    assert_eq!(found.verdict, Verdict::Pass, "all else was tested: {found:#?}");
    let seen = [("dcgm", "dcgmi"), ("nvbandwidth", "nvbandwidth"), ("nccl_tests", "all_reduce_perf")];
    for (name, program) in seen {
        let wanted = format!("{program} is not installed on this node.");
        assert_eq!(all_of(&found.general, name), [(Verdict::NotTested, wanted.as_str())]);
        assert!(found.gpus.iter().all(|gpu| all_of(&gpu.findings, name).is_empty()));
    }
    // No document, or one of another version.
    for none in [None, Some(json!({ "version": 2 }))] {
        let found = with_installed(1, none);
        assert_eq!(all_of(&found.general, "dcgm")[0].0, Verdict::NotTested);
    }
}

#[test]
fn dcgm_is_judged_on_each_gpu() {
    use Verdict::{Critical, NotTested, Pass, Warning};
    let row = |device: Value, test: &str, status: &str, severities: &[&str], messages: &[&str]| {
        json!({ "device": device, "id": device.as_i64().map(|place| (place + 4).to_string()), "test": test,
            "status": status, "severities": severities, "messages": messages })
    };
    let rows = json!([
        row(json!(0), "memory", "pass", &[], &[]),
        row(json!(0), "pulse_test", "skip", &[], &["Not allowed."]),
        row(json!(1), "memory", "fail", &["isolate"], &["A memory mismatch was detected."]),
        row(json!(2), "software", "fail", &["config"], &["Persistence mode is off."]),
        row(json!(2), "memory", "fail", &[], &[]),
        row(json!(3), "software", "fail", &["config", "monitor"], &[]),
        row(json!(4), "memory", "splendid", &[], &[]),
        row(Value::Null, "software", "pass", &[], &[]),
    ]);
    let mut dcgm = json!({ "state": "measured", "version": "4.2.3", "level": "3", "rows": rows });
    dcgm["rows"].as_array_mut().unwrap().push(json!({ "id": "9", "test": "memory", "status": "fail" }));
    let found = with_installed(6, Some(json!({ "version": 1, "dcgm": dcgm })));
    let verdicts: Vec<Verdict> = found.gpus.iter().map(|gpu| gpu.verdict).collect();
    assert_eq!(verdicts, [Pass, Critical, Critical, Warning, Pass, Pass], "{found:#?}");
    let of = |gpu: usize| all_of(&found.gpus[gpu].findings, "dcgm");
    assert_eq!(
        of(0),
        [(Pass, "Passed at level 3 of DCGM 4.2.3: memory."), (NotTested, "pulse_test was skipped: Not allowed.")]
    );
    assert_eq!(of(1), [(Critical, "memory failed: A memory mismatch was detected.")]);
    assert_eq!(of(2), [(Critical, "memory failed."), (Warning, "software failed: Persistence mode is off.")]);
    assert_eq!(of(4), [(NotTested, "memory has a status that is not known.")]);
    assert_eq!(of(5), [(NotTested, "DCGM reports no result of this GPU.")]);
    assert_eq!(
        all_of(&found.general, "dcgm"),
        [
            (Pass, "Passed at level 3 of DCGM 4.2.3: software."),
            (NotTested, "DCGM's GPUs 9 cannot be matched with the GPUs of this job.")
        ]
    );
}

#[test]
fn rates_of_nvbandwidth_are_compared() {
    let links = json!([{ "test": "device_to_device_memcpy_read_ce",
        "bandwidth_gb_s": [[null, 390.0, 391.0], [392.0, null, 390.0], [391.0, 150.0, null]] }]);
    let rows = json!([
        { "device": 0, "to_device_gb_s": 55.0, "to_host_gb_s": 54.0 },
        { "device": 1, "to_device_gb_s": 55.0, "to_host_gb_s": 54.0 },
        { "device": 2, "to_device_gb_s": 30.0, "to_host_gb_s": null },
    ]);
    let missing = json!([
        { "test": "device_to_host_memcpy_ce", "state": "failed", "reason": "CUDA error: illegal access" },
        { "test": "device_to_device_memcpy_write_ce", "state": "not_tested", "reason": "it does not apply" },
    ]);
    let part = json!({ "state": "measured", "rows": rows, "links": links, "missing": missing });
    let found = with_installed(3, Some(json!({ "version": 1, "nvbandwidth": part })));
    let of = |gpu: usize| all_of(&found.gpus[gpu].findings, "nvbandwidth");
    let fine = "55.0 GB/s to the GPU, 54.0 GB/s to the host, 391.0 GB/s to and from the other GPUs.";
    assert_eq!(of(0), [(Verdict::Pass, fine)]);
    let slow = "Copies from GPU 2 to GPU 1: 150.0 GB/s; links of the same kind have 390.5.";
    assert_eq!(of(1), [(Verdict::Warning, slow)]);
    assert_eq!(of(2), [(Verdict::Warning, "To the GPU: 30.0 GB/s, 45 % below the best GPU of this model (55.0).")]);
    assert_eq!(
        all_of(&found.general, "nvbandwidth"),
        [
            (Verdict::Warning, "device_to_host_memcpy_ce: CUDA error: illegal access."),
            (Verdict::NotTested, "device_to_device_memcpy_write_ce: it does not apply.")
        ]
    );
    let nothing = json!({ "version": 1, "nvbandwidth": { "state": "measured" } });
    let found = with_installed(1, Some(nothing));
    assert_eq!(all_of(&found.gpus[0].findings, "nvbandwidth")[0].0, Verdict::NotTested);
}

#[test]
fn wrong_values_of_nccl_tests_are_critical() {
    let row = json!({ "name": "all_reduce", "size": 536_870_912_u64, "count": 134_217_728_u64, "type": "float",
        "time_us": 1912.7, "algbw_gb_s": 280.69, "busbw_gb_s": 280.69, "wrong": 0 });
    let judged = |wrong: u64, rows: Value| {
        let part = json!({ "state": "measured", "rows": rows, "wrong": wrong });
        with_installed(2, Some(json!({ "version": 1, "nccl_tests": part })))
    };
    let found = judged(0, json!([row]));
    let seen = "280.7 GB/s of bus bandwidth at 536870912 bytes, without a wrong value.";
    assert_eq!(all_of(&found.general, "nccl_tests"), [(Verdict::Pass, seen)]);
    let found = judged(17, json!([row]));
    assert_eq!(found.verdict, Verdict::Critical);
    assert_eq!(all_of(&judged(0, json!([])).general, "nccl_tests")[0].0, Verdict::NotTested);
}
