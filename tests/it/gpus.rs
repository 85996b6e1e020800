//! The GPUs of a machine, read through a driver library that the test compiles.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use lyceum::{
    gpu::{Config, DriverThread, Error, Gpus, diagnose, inventory, open_workload},
    model::{
        Clock, Gpu, GpuWatch, Timestamp,
        diagnostics::NvLinks,
        gpus::{Condition, Driver, GpuReport, Health, Link, Reading, Slowdown},
    },
    protocol::GpuQuery,
};

use crate::wait::eventually;

/// A driver library of its own for each case: a library is loaded once in a process.
///
/// `LYCEUM_TEST_DRIVERS` names a folder of libraries that were compiled before, for a machine
/// without a compiler.
pub fn driver(folder: &Path, name: &str, define: &str) -> PathBuf {
    if let Some(made) = crate::needs::variable("LYCEUM_TEST_DRIVERS") {
        return Path::new(&made).join(format!("lib{name}.so"));
    }
    let library = folder.join(format!("lib{name}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fake_nvml.c");
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .args(define.split(' '))
        .arg(source)
        .output()
        .expect("rustc links with a C compiler, so there is one");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    library
}

#[test]
fn the_drivers_gpus_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = Some(driver(folder.path(), "three", "-DGPUS=3"));
    let found = |gpus| inventory(&Config { gpus, nvml: nvml.clone() });

    let all = found(Gpus::Auto).unwrap();
    assert!(all.driver);
    assert_eq!(all.gpus.len(), 3);
    assert_eq!(all.gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
    assert_eq!(all.gpus[2].model, "NVIDIA A100-SXM4-40GB");
    assert_eq!(found(Gpus::Count(2)).unwrap().gpus, all.gpus[..2]);
    assert_eq!(found(Gpus::List(vec![2])).unwrap().gpus, all.gpus[2..]);
    assert_eq!(found(Gpus::Count(0)).unwrap().gpus, []);
    // The device files of GPUs that are not given out are known too: they are nobody's.
    let minors: Vec<u32> = found(Gpus::Count(1)).unwrap().devices.iter().map(|device| device.number.minor).collect();
    assert_eq!(minors, [2, 1, 0]);
    let too_many = found(Gpus::Count(4)).unwrap_err().to_string();
    assert_eq!(too_many, "`gpus` lists GPU 3, but the driver reports only 0 to 2");
}

#[test]
fn a_missing_driver_is_no_error_but_a_broken_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let not_loaded = Config { gpus: Gpus::Auto, nvml: Some(driver(folder.path(), "unloaded", "-DINIT=9")) };
    assert_eq!(inventory(&not_loaded).unwrap().gpus, []);
    let counted = Config { gpus: Gpus::Count(2), ..not_loaded };
    assert!(!inventory(&counted).unwrap().driver);
    let mismatch = Config { gpus: Gpus::Auto, nvml: Some(driver(folder.path(), "mismatch", "-DINIT=18")) };
    let error = inventory(&mismatch).unwrap_err();
    assert!(matches!(error, Error::Driver(_)) && error.to_string().contains("version"), "{error}");
}

#[test]
fn how_busy_gpus_are_by_whose_processes() {
    let folder = tempfile::tempdir().unwrap();
    let uses = folder.path().join("uses");
    let library = driver(folder.path(), "busy", &format!("-DGPUS=2 -DUSE=\"{}\"", uses.display()));
    let gpus = inventory(&Config { gpus: Gpus::Auto, nvml: Some(library.clone()) }).unwrap().gpus;
    let watch = DriverThread::open(Some(&library));
    let busy = |text: &str, gpus: &[Gpu]| {
        fs::write(&uses, text).unwrap();
        watch.busy(gpus, |pid| pid < 100)
    };
    assert_eq!(busy("", &gpus), Some(0), "nobody uses them");
    assert_eq!(busy("0 7 20\n0 8 30\n1 9 90\n0 200 99\n", &gpus[..1]), Some(30), "others' do not count");
    assert_eq!(busy("0 7 20\n1 9 90\n", &gpus), Some(90));
    assert_eq!(busy("0 0 55\n", &gpus[..1]), Some(55), "a driver that tells no processes apart");
    fs::remove_file(&uses).unwrap();
    assert_eq!(watch.busy(&gpus, |_| true), None, "it does not respond");
    assert_eq!(DriverThread::default().busy(&gpus, |_| true), None);
}

#[test]
fn slices_and_links() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let told = "mig 3 2\nnvlink 0 1 4\nnear 0 1 10\nnear 0 2 50\nnear 1 2 40\nnear 0 3 20\nnear 1 3 30\n";
    fs::write(&state, told).unwrap();
    let nvml = driver(folder.path(), "slices", &format!("-DGPUS=4 -DSTATE=\"{}\"", state.display()));
    let found = |gpus| inventory(&Config { gpus, nvml: Some(nvml.clone()) });
    let all = found(Gpus::Auto).unwrap();
    let labels: Vec<String> = all.gpus.iter().map(Gpu::label).collect();
    assert_eq!(labels, ["0", "1", "2", "3:0", "3:1"]);
    assert_eq!(all.gpus[4].uuid, "MIG-00000000-0000-0000-0002-000000000003");
    assert_eq!(all.gpus[4].model, "NVIDIA H100 80GB HBM3 MIG 1g.5gb");
    assert_eq!(all.models().len(), 3, "a slice is a model of its own");
    // Both slices are behind the one file of their GPU.
    let files: Vec<u32> = all.devices.iter().map(|device| device.number.minor).collect();
    assert_eq!(files, [3, 2, 1, 0, 0]);

    let link = |one: usize, other: usize| all.topology.link(&all.gpus[one], &all.gpus[other]);
    assert_eq!(link(0, 1), Link::NvLink(4));
    assert_eq!((link(0, 2), link(2, 1)), (Link::System, Link::Node));
    assert_eq!((link(0, 3), link(4, 0), link(1, 4)), (Link::Bridges, Link::Bridges, Link::HostBridge));
    assert_eq!(link(3, 4), Link::Board);
    assert_eq!(link(2, 4), Link::Unknown, "not reported by the driver");

    assert_eq!(found(Gpus::List(vec![3])).unwrap().gpus, all.gpus[3..], "a GPU comes with its slices");
    let missing = found(Gpus::List(vec![4])).unwrap_err().to_string();
    assert_eq!(missing, "`gpus` lists GPU 4, but the driver reports only 0 to 3");
}

/// What a watch of these GPUs says by and by, asked every few milliseconds.
struct Followed {
    watch: DriverThread,
    clock: Clock,
    state: PathBuf,
    _folder: tempfile::TempDir,
}

impl Followed {
    fn new(name: &str, gpus: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::write(&state, "").unwrap();
        let library = driver(folder.path(), name, &format!("-DGPUS={gpus} -DSTATE=\"{}\"", state.display()));
        let uuids = inventory(&Config { gpus: Gpus::Auto, nvml: Some(library.clone()) }).unwrap();
        let (watch, clock) = (DriverThread::open(Some(&library)), Clock::manual(Timestamp(1_000_000)));
        let uuids = uuids.gpus.into_iter().map(|gpu| gpu.uuid).collect();
        watch.follow(Some(&library), uuids, Duration::from_millis(10), clock.clone());
        Self { watch, clock, state, _folder: folder }
    }

    fn tell(&self, state: &str) {
        // Whole at once: the driver reads it at any moment.
        let next = self.state.with_extension("next");
        fs::write(&next, state).unwrap();
        fs::rename(next, &self.state).unwrap();
    }

    /// The condition of a GPU, once it is as it should be.
    async fn until(&self, gpu: usize, expected: impl Fn(&Condition) -> bool) -> Condition {
        let uuid = format!("GPU-00000000-0000-0000-0000-{gpu:012}");
        let look = async || {
            let latest: GpuWatch = self.watch.latest();
            Some(latest.condition(&uuid, self.clock.now(), 20)).filter(|found| expected(found))
        };
        eventually("the GPU is as expected", look).await
    }
}

#[tokio::test]
async fn what_gpus_do_is_read_again_and_again() {
    let followed = Followed::new("followed", 3);
    let version = Driver::Present { version: "550.1.fake".to_owned() };
    assert_eq!(followed.watch.latest().driver, version);
    let own = std::process::id();
    followed.tell(&format!(
        "gpu 0 87 1234 61 250\nprocess 0 {own} 900\nprocess 0 4194300 5\necc 0 3 1\nenergy 0 7200\nretired 0 2 1\nslow 0 {}\ngpu 1 0 0 30 50\n",
        0x4 | 0x8 | 0x40
    ));
    let up = |condition: &Condition| condition.reading().is_some_and(|reading| reading.utilisation == Some(87));
    let Condition::Up(reading) = followed.until(0, up).await else { panic!("up") };
    let processes = reading.processes.clone().unwrap();
    assert_eq!((processes[0].pid, processes[0].memory_bytes), (own, Some(900 << 20)));
    assert_eq!(processes[0].uid, Some(rustix::process::getuid().as_raw()));
    assert_eq!((processes[1].pid, processes[1].uid), (4_194_300, None), "nobody can be seen behind it");
    let expected = Reading {
        utilisation: Some(87),
        memory_used_bytes: Some(1234 << 20),
        memory_total_bytes: Some(40_960 << 20),
        temperature_celsius: Some(61),
        power_milliwatts: Some(250_000),
        power_limit_milliwatts: Some(400_000),
        energy_millijoules: Some(7_200_000),
        processes: Some(processes),
        health: Health {
            ecc_corrected: Some(3),
            ecc_uncorrected: Some(1),
            retired_pages: Some(2),
            retirement_pending: Some(true),
            xid: None,
            slowed_by: vec![Slowdown::Heat, Slowdown::PowerCap],
        },
    };
    assert_eq!(reading, expected);
    // What a GPU does not tell stays empty.
    let Condition::Up(bare) = followed.until(2, |condition| condition.reading().is_some()).await else { panic!("up") };
    assert_eq!((bare.memory_used_bytes, bare.health), (None, Health::default()));

    // A critical error stays with its GPU, also when the driver has long forgotten it.
    followed.tell("gpu 0 1 1 30 50\ngpu 1 2 1 30 50\nxid 1 79\n");
    let failed = |condition: &Condition| condition.reading().is_some_and(|reading| reading.health.xid == Some(79));
    followed.until(1, failed).await;
    followed.tell("gpu 0 1 1 30 50\ngpu 1 3 1 30 50\n");
    let later = |condition: &Condition| condition.reading().is_some_and(|reading| reading.utilisation == Some(3));
    let Condition::Up(later) = followed.until(1, later).await else { panic!("up") };
    assert_eq!(later.health.xid, Some(79));
    let fine = followed.until(0, |condition| condition.reading().is_some()).await;
    assert_eq!(fine.reading().unwrap().health.xid, None);

    // One falls off the bus, the others stay; it comes back.
    followed.tell("gpu 0 1 1 30 50\ngpu 1 2 1 30 50\nlost 1\n");
    let down = |condition: &Condition| matches!(condition, Condition::Down(why) if why.contains("off the bus"));
    followed.until(1, down).await;
    followed.until(0, |condition| condition.reading().is_some_and(|reading| reading.utilisation == Some(1))).await;
    followed.tell("gpu 1 2 1 30 50\n");
    followed.until(1, |condition| condition.reading().is_some()).await;
}

#[tokio::test]
async fn a_driver_that_hangs_holds_up_nobody() {
    let followed = Followed::new("hanging", 2);
    followed.tell("gpu 0 10 1 30 50\ngpu 1 10 1 30 50\n");
    followed.until(1, |condition| condition.reading().is_some()).await;
    followed.tell("gpu 0 10 1 30 50\ngpu 1 10 1 30 50\nhang 1\n");
    let asked = |latest: &GpuWatch| latest.asking.as_ref().is_some_and(|(uuid, _)| uuid.ends_with('1'));
    eventually("the driver hangs", async || {
        let first = followed.watch.latest();
        // The same question is still open after it could have been asked some hundred times.
        std::future::ready(asked(&first)).await.then_some(())
    })
    .await;
    followed.clock.advance(21);
    let why =
        |text: &'static str| move |condition: &Condition| matches!(condition, Condition::Down(why) if why == text);
    followed.until(1, why("The driver does not respond when queried about it")).await;
    followed.until(0, why("The driver does not respond")).await;
    // Whoever asks what processes do waits for a moment at most.
    let began = std::time::Instant::now();
    let gpu = Gpu { uuid: "GPU-00000000-0000-0000-0000-000000000000".to_owned(), ..Gpu::default() };
    let _ = followed.watch.busy(&[gpu], |_| true);
    assert!(began.elapsed() < Duration::from_secs(20));
    followed.tell("gpu 0 10 1 30 50\ngpu 1 11 1 30 50\n");
    followed.until(1, |condition| condition.reading().is_some()).await;
}

/// An agent reads the devices of its workload alone, as their variable names them.
#[tokio::test]
async fn an_agent_reads_the_gpus_of_its_workload() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::write(&state, "gpu 1 61 512 50 300\nlost 2\nprocess 1 77 400\nslow 1 64\n").unwrap();
    let library = driver(folder.path(), "workload", &format!("-DGPUS=4 -DSTATE=\"{}\"", state.display()));
    let query = |library: PathBuf| GpuQuery { seconds: 1, library: Some(library) };
    for (visible, indices) in
        [("1,2", &[1, 2][..]), ("GPU-00000000-0000-0000-0000-000000000003,0", &[3, 0]), ("1,1", &[1]), ("0,9,1", &[0])]
    {
        let read = open_workload(&query(library.clone()), visible).expect("there are devices");
        let reports = eventually("each was asked", async || {
            let reports = read();
            (reports.len() == indices.len()).then_some(reports)
        });
        let found: Vec<i64> = reports.await.iter().map(|report| report.gpu.index).collect();
        assert_eq!(found, indices, "{visible}");
    }
    for nothing in ["NoDevFiles", "-1", "9", "x,0"] {
        assert!(open_workload(&query(library.clone()), nothing).is_none(), "{nothing}");
    }
    assert!(open_workload(&query("/nonexistent/libnvidia-ml.so.1".into()), "0").is_none());

    let read = open_workload(&query(library), "1,2").unwrap();
    let reports = eventually("both were asked", async || Some(read()).filter(|reports| reports.len() == 2)).await;
    let reading = reports[0].reading.as_ref().expect("it works");
    assert_eq!((reading.utilisation, reading.power_milliwatts), (Some(61), Some(300_000)));
    assert_eq!(reading.processes.as_ref().unwrap()[0].pid, 77);
    assert_eq!(reading.health.slowed_by, [Slowdown::Heat]);
    assert!(reports[1].fault.as_ref().is_some_and(|why| why.contains("off the bus")), "{reports:?}");
}

/// What `lyceum diagnose` writes in a job: all that the driver knows of its GPUs, and nothing of others.
#[test]
fn the_driver_is_queried_about_the_gpus_of_a_test() {
    let folder = tempfile::tempdir().unwrap();
    let (state, log) = (folder.path().join("state"), folder.path().join("kmsg"));
    let told = "gpu 1 0 0 84 90\necc 1 7 2\nretired 1 3 0\nremapped 1 1 2 1 0\npcie 1 4 5 8 16\nclocks 1 210 1980\n\
                slowdown 1 87\npowerlimit 1 300 700\nslow 1 64\nlinks 0 4\nlinks 1 4\nlinkerrors 1 3\nnvlink 0 1 4\n\
                process 1 77 400\nlost 2\n";
    fs::write(&state, told).unwrap();
    fs::write(&log, "4,1;NVRM: Xid (PCI:0000:11:00): 79, gone\n4,2;NVRM: Xid (PCI:0000:99:00): 31, other\n").unwrap();
    let library = driver(folder.path(), "diagnosed", &format!("-DGPUS=4 -DSTATE=\"{}\"", state.display()));
    let uuid = |gpu: usize| format!("GPU-00000000-0000-0000-0000-{gpu:012}");
    let names = [uuid(1), uuid(2), uuid(0), "GPU-unknown".to_owned()].join(", ");
    let report = diagnose(Some(&library), &names, &log);
    assert_eq!((report.driver.as_str(), report.cuda.as_str(), report.held), ("550.1.fake", "12.4", 4));
    assert_eq!(report.gpus.iter().map(|one| one.gpu.index).collect::<Vec<_>>(), [1, 0, 0], "{report:#?}");
    let facts = &report.gpus[0].facts;
    assert_eq!((facts.ecc_corrected, facts.ecc_uncorrected, facts.retired_pages), (Some(7), Some(2), Some(3)));
    assert_eq!((facts.rows_remapped_corrected, facts.rows_remapped_uncorrected), (Some(1), Some(2)));
    assert_eq!((facts.remapping_pending, facts.remapping_failed), (Some(true), Some(false)));
    assert_eq!((facts.pcie_generation, facts.pcie_generation_max), (Some(4), Some(5)));
    assert_eq!((facts.pcie_width, facts.pcie_width_max), (Some(8), Some(16)));
    assert_eq!((facts.clock_mhz, facts.clock_max_mhz, facts.programs), (Some(210), Some(1980), Some(1)));
    assert_eq!((facts.temperature_celsius, facts.slowdown_celsius), (Some(84), Some(87)));
    assert_eq!((facts.power_limit_milliwatts, facts.power_limit_default_milliwatts), (Some(300_000), Some(700_000)));
    assert_eq!(facts.slowed_by, Some(vec![Slowdown::Heat]));
    assert_eq!(facts.nvlinks, Some(NvLinks { all: 4, active: 4, errors: Some(12) }));
    assert_eq!(facts.xids.as_ref().unwrap().iter().map(|xid| xid.code).collect::<Vec<_>>(), [79], "its own alone");
    assert!(report.gpus[1].fault.as_ref().is_some_and(|why| why.contains("off the bus")), "{report:#?}");
    // What the driver does not report is empty, and so is what nobody may read.
    let bare = &report.gpus[2].facts;
    assert_eq!((bare.ecc_corrected, bare.remapping_failed, bare.pcie_width, bare.clock_mhz), (None, None, None, None));
    let links: Vec<_> = report.links.iter().map(|link| (link.one, link.other, link.word.as_str())).collect();
    assert_eq!(links, [(0, 2, "NV4")]);
    let without = diagnose(Some(&library), "1", Path::new("/nonexistent"));
    assert_eq!((without.kernel_log, &without.gpus[0].facts.xids), (false, &None));
    let absent = diagnose(Some(Path::new("/nonexistent/libnvidia-ml.so.1")), "0", &log);
    assert_eq!((absent.driver.as_str(), absent.fault.as_str()), ("", "the library is not installed"));
}

/// What reading eight GPUs costs an agent that does so every five seconds: at most 0.2 % of a core.
#[test]
fn reading_eight_gpus_costs_next_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let library = driver(folder.path(), "eight", "-DGPUS=8");
    let query = GpuQuery { seconds: 3600, library: Some(library.clone()) };
    let visible = "0,1,2,3,4,5,6,7";
    let rounds = 200_u32;
    // The agent's own part of it; the driver's is not ours, and differs from driver to driver.
    let watch = DriverThread::open(Some(&library));
    let gpus = inventory(&Config { gpus: Gpus::Auto, nvml: Some(library) }).unwrap().gpus;
    assert!(open_workload(&query, visible).is_some());
    let uuids: Vec<String> = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    let before = cpu_time();
    for _ in 0..rounds {
        watch.read_once(&uuids, &Clock::System);
        let reports = GpuReport::of_watch(&gpus, &watch.latest(), Clock::System.now(), 20);
        assert_eq!(reports.len(), 8);
        assert!(!serde_json::to_vec(&reports).unwrap().is_empty());
    }
    let each = cpu_time().saturating_sub(before) / rounds;
    let share = each.as_secs_f64() / 5.0;
    eprintln!("one round of 8 GPUs takes {each:?} of a core: {:.4} % of it every 5 s", share * 100.0);
    assert!(share < 0.002, "{share}");
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}

#[test]
fn without_a_driver_it_says_what_was_looked_for() {
    let library = PathBuf::from("/nonexistent/libnvidia-ml.so.1");
    let Driver::Absent { library: named, why } = DriverThread::open(Some(&library)).latest().driver else {
        panic!("absent")
    };
    assert_eq!((named.as_str(), why.as_str()), ("/nonexistent/libnvidia-ml.so.1", "the library is not installed"));
    let folder = tempfile::tempdir().unwrap();
    let unloaded = driver(folder.path(), "unloaded2", "-DINIT=9");
    let Driver::Absent { why, .. } = DriverThread::open(Some(&unloaded)).latest().driver else { panic!("absent") };
    assert!(why.contains("module `nvidia` is not loaded"), "{why}");
}
