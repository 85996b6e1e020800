//! Tests of GPUs on the real program, as a real user: a job queries a driver that the test compiled, and the Python of
//! `LYCEUM_TEST_PYTHON` measures devices that XLA pretends. What is injected there is what the verdict has to find.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{House, Person, eventually};
use crate::{
    gpus::driver,
    idleness::open_directory,
    needs::{met, variable},
    pages::markup::one_line,
};

/// What the driver says of four sound GPUs, all linked.
pub fn sound() -> String {
    let mut state = String::new();
    for gpu in 0..4 {
        state.extend([format!(
            "gpu {gpu} 0 0 40 90\necc {gpu} 0 0\nretired {gpu} 0 0\nremapped {gpu} 0 0 0 0\npcie {gpu} 5 5 16 16\n\
             clocks {gpu} 1980 1980\nslowdown {gpu} 87\npowerlimit {gpu} 700 700\nslow {gpu} 0\nlinks {gpu} 6\n\
             linkerrors {gpu} 0\n"
        )]);
        state.extend((gpu + 1..4).map(|other| format!("nvlink {gpu} {other} 2\n")));
    }
    state
}

/// An environment of somebody's own, in which the program measures CPUs as if they were GPUs, with these faults.
pub fn pretending(home: &Path, devices: usize, faults: &str) -> PathBuf {
    let folder = home.join("pretending");
    fs::create_dir_all(folder.join("bin")).unwrap();
    let wrapper = format!(
        "#!/bin/sh\nexport XLA_FLAGS=--xla_force_host_platform_device_count={devices}\n\
         export LYCEUM_DIAGNOSTICS_PLATFORM=cpu LYCEUM_DIAGNOSTICS_FAULTS='{faults}'\nexec {} \"$@\"\n",
        variable("LYCEUM_TEST_PYTHON").unwrap()
    );
    let python = folder.join("bin/python");
    fs::write(&python, wrapper).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let owner = fs::metadata(home).unwrap();
    for path in [&folder, &folder.join("bin"), &python] {
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    folder
}

/// Puts programs of the node's on the path of whoever uses this environment. They print what was recorded of the real
/// ones, which need real GPUs, and fail if they are asked for anything but the two GPUs of the test.
fn install(environment: &Path) {
    let outputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("diagnostics/tests/outputs");
    let recorded = |name: &str| fs::read_to_string(outputs.join(name)).unwrap();
    // DCGM and the driver number the GPUs differently. The addresses are those of the driver of this test.
    let addresses =
        |text: String| text.replace("00000000:2a:00", "00000000:11:00").replace("00000000:3a:00", "00000000:10:00");
    let cases = [
        ("dcgmi", "discovery -l", recorded("discovery.txt"), 0),
        ("dcgmi", "diag -r 3 -j -i 2,1", recorded("dcgm4.json"), 226),
        (
            "nvbandwidth",
            "-j -t host_to_device_memcpy_ce device_to_host_memcpy_ce device_to_device_memcpy_read_ce \
             device_to_device_memcpy_write_ce",
            addresses(recorded("nvbandwidth.json")),
            0,
        ),
    ];
    let folder = environment.join("bin");
    let owner = fs::metadata(environment).unwrap();
    for name in ["dcgmi", "nvbandwidth"] {
        let mut parts = vec!["#!/bin/sh\ncase \"$*\" in\n".to_owned()];
        for (_, arguments, output, status) in cases.iter().filter(|case| case.0 == name) {
            parts.push(format!("\"{arguments}\") cat <<'END'\n{output}\nEND\nexit {status} ;;\n"));
        }
        parts.push("*) echo \"unexpected: $*\" >&2; exit 1 ;;\nesac\n".to_owned());
        let path = folder.join(name);
        fs::write(&path, parts.concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// A portal with four GPUs of this driver, and somebody who may use them.
async fn open(folder: &Path, name: &str, state: &str) -> Option<(House, Person)> {
    open_with(folder, name, state, 4).await
}

/// The same with so many GPUs.
async fn open_with(folder: &Path, name: &str, state: &str, gpus: u32) -> Option<(House, Person)> {
    let python = variable("LYCEUM_TEST_PYTHON");
    if !crate::needs::root() || !met("a Python with JAX (LYCEUM_TEST_PYTHON)", python.is_some()) {
        return None;
    }
    let file = folder.join("state");
    fs::write(&file, state).unwrap();
    let library = driver(folder, name, &format!("-DGPUS={gpus} -DSTATE=\"{}\"", file.display()));
    let mut house = House::new(&[
        ("LYCEUM_SCHEDULER__LOCAL__NVML", library.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto"),
    ]);
    house.configure(&format!("[[environments.list]]\nname = 'default'\npython = '{}'\n", python?));
    house.start().await;
    let person = house.person();
    house.admin().allow(&house, &person, json!({ "gpus": -1, "jobs": -1 })).await;
    Some((house, person))
}

pub async fn started(house: &House, person: &Person, request: Value) -> String {
    let (status, made) = person.ask(house, "POST", "/diagnostics", &request).await;
    assert_eq!((status, &made["state"]), (201, &json!("running")), "{made}");
    format!("/diagnostics/{}", made["id"].as_str().unwrap())
}

/// Waits for the verdict; another end fails at once.
pub async fn finished(house: &House, person: &Person, path: &str) -> Value {
    eventually("the GPUs were tested", async || {
        let found = person.get(house, path).await;
        assert!(found["state"] == "running" || found["state"] == "finished", "{found}");
        (found["state"] == "finished").then_some(found)
    })
    .await
}

/// The verdict of a check of one GPU, and what was seen.
pub fn check(found: &Value, gpu: usize, name: &str) -> (String, String) {
    let findings = found["verdicts"][gpu]["findings"].as_array().unwrap_or_else(|| panic!("{found}"));
    let one = findings.iter().find(|one| one["check"] == name).unwrap_or_else(|| panic!("{name}: {found}"));
    let text = |field: &str| one[field].as_str().unwrap().to_owned();
    (text("verdict"), text("seen"))
}

#[tokio::test]
async fn faults_of_gpus_are_found_and_shown() {
    let folder = open_directory();
    // GPU 1 had a memory error; only eight of its lanes are connected.
    let sick = sound().replace("ecc 1 0 0", "ecc 1 4 1").replace("pcie 1 5 5 16 16", "pcie 1 5 5 8 16");
    let Some((house, person)) = open(folder.path(), "diagnosed", &sick).await else { return };
    let other = house.person();
    let home = PathBuf::from(format!("/home/ly-{}", person.name));
    // The first look at somebody's files makes their home.
    person.get(&house, "/files/roots").await;
    let environment = pretending(&home, 4, "link-wrong:0:3 collective:ring bits:2 memory:3");

    let (status, said) = person.ask(&house, "POST", "/diagnostics", &json!({ "gpus": 0 })).await;
    assert_eq!((status, &said["errors"][0]["field"]), (422, &json!("gpus")), "{said}");
    let (status, said) = person.ask(&house, "POST", "/diagnostics", &json!({ "gpus": 9 })).await;
    assert!(status == 409 || status == 422, "the machine has four: {said}");

    let path = started(&house, &person, json!({ "gpus": 4, "environment": environment })).await;
    let found = finished(&house, &person, &path).await;
    assert_eq!(
        (&found["verdict"], &found["driver"], &found["level"]),
        (&json!("critical"), &json!("550.1.fake"), &json!("medium"))
    );
    let critical = |gpu, name| {
        let (verdict, seen) = check(&found, gpu, name);
        assert_eq!(verdict, "critical", "GPU {gpu}, {name}: {seen}");
        seen
    };
    assert!(critical(1, "ecc").starts_with("4 corrected and 1 uncorrected errors"));
    assert_eq!(critical(0, "links"), "Copies from GPU 0 to GPU 3 arrive with wrong contents.");
    critical(3, "links");
    critical(2, "bits");
    assert!(critical(3, "memory").starts_with("2 words"));
    assert_eq!(check(&found, 1, "pcie").0, "warning");
    for (gpu, name) in [(0, "ecc"), (0, "pcie"), (0, "nvlink"), (1, "bits"), (2, "memory"), (0, "temperature")] {
        assert_eq!(check(&found, gpu, name).0, "pass", "GPU {gpu}, {name}: {found}");
    }
    let general = found["general"].as_array().unwrap();
    let collectives = general.iter().find(|one| one["check"] == "collectives").unwrap();
    assert_eq!(collectives["seen"], "The results of ring are wrong.");
    let uuids: Vec<&str> = (0..4).map(|gpu| found["verdicts"][gpu]["gpu"]["uuid"].as_str().unwrap()).collect();
    assert!(uuids.iter().all(|uuid| uuid.starts_with("GPU-00000000")), "{uuids:?}");
    assert_eq!(found["results"]["measured"]["links"]["wrong"][0][3], json!(1));
    assert_eq!(found["results"]["after"]["gpus"].as_array().unwrap().len(), 4);

    // The page shows the same; nobody else but operators sees it.
    let page = person.request(&house, "GET", &path).send().await.unwrap().text().await.unwrap();
    let shown = one_line(&page);
    for wanted in ["Critical", "arrive with wrong contents", "class=\"heat-wrong\"", "busbw (GB/s)", "all_reduce"] {
        assert!(shown.contains(wanted), "{wanted}: {page}");
    }
    assert_eq!(other.ask(&house, "GET", &path, &Value::Null).await.0, 404);
    assert_eq!(other.get(&house, "/diagnostics").await["items"], json!([]));
    let admin = house.admin();
    assert_eq!(admin.get(&house, &path).await["owner"], person.name.as_str());
    assert_eq!(admin.get(&house, "/diagnostics").await["items"][0]["verdict"], "critical");

    // Its job is one like any other, and says what it is.
    let job = person.get(&house, &format!("/jobs/{}", found["job"].as_str().unwrap())).await;
    assert_eq!((&job["tags"], &job["exit_code"]), (&json!(["diagnostics"]), &json!(0)), "{job}");

    // An operator keeps GPU 1 from new work, with the reason that the page suggests.
    let page = admin.request(&house, "GET", &path).send().await.unwrap().text().await.unwrap();
    let hold = format!("/gpus/{}/hold", uuids[1]);
    assert!(page.contains(&format!("/cluster{hold}")) && !shown.contains("Hold this GPU"), "{page}");
    let reason = json!({ "reason": "uncorrected errors" });
    assert_eq!(person.ask(&house, "PUT", &hold, &reason).await.0, 403);
    assert_eq!(admin.ask(&house, "PUT", &hold, &json!({ "reason": " " })).await.0, 422);
    assert_eq!(admin.ask(&house, "PUT", &hold, &reason).await.0, 200);
    let gpus = person.get(&house, "/gpus").await;
    assert_eq!(
        (&gpus["items"][1]["state"], &gpus["items"][1]["withheld"]["by"]),
        (&json!("withheld"), &json!("admin"))
    );
    let all = started(&house, &person, json!({ "level": "quick", "gpus": 4 })).await;
    let waits = person.get(&house, &format!("/jobs/{}", person.get(&house, &all).await["job"].as_str().unwrap())).await;
    let hint = waits["reasons"][0]["hint"].as_str().unwrap_or_else(|| panic!("{waits}"));
    assert!(hint.contains("GPU 1 is held by an operator"), "{hint}");
    assert_eq!(admin.ask(&house, "DELETE", &hold, &Value::Null).await.0, 204);
    assert_eq!(finished(&house, &person, &all).await["verdict"], "critical", "it starts when the GPU is back");

    // The command prints the same of a run without load, and fails where it is critical.
    let output = house
        .command(&["gpu", "diagnose", "--level", "quick", "--gpus", "4", "--wait"])
        .env("LYCEUM_URL", &house.url)
        .env("LYCEUM_TOKEN", person.authorization().trim_start_matches("Bearer "))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("GPU 1: critical: ecc: 4 corrected") && told.ends_with("verdict: critical\n"), "{told}");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the node has installed runs on the job's GPUs, and each verdict reaches the right GPU. What is not installed is
/// named and is no pass.
#[tokio::test]
async fn installed_programs_are_run_and_judged() {
    let folder = open_directory();
    let Some((house, person)) = open_with(folder.path(), "long", &sound(), 2).await else { return };
    person.get(&house, "/files/roots").await;
    let environment = pretending(&PathBuf::from(format!("/home/ly-{}", person.name)), 2, "");
    install(&environment);
    let path = started(&house, &person, json!({ "level": "long", "gpus": 2, "environment": environment })).await;
    let job = person.get(&house, &path).await["job"].as_str().unwrap().to_owned();
    let job = person.get(&house, &format!("/jobs/{job}")).await;
    assert_eq!(job["time_limit_seconds"], 5700, "{job}");
    let found = finished(&house, &person, &path).await;
    let uuids: Vec<&str> = (0..2).map(|gpu| found["verdicts"][gpu]["gpu"]["uuid"].as_str().unwrap()).collect();
    assert!(uuids[0].ends_with('0') && uuids[1].ends_with('1'), "{uuids:?}");
    assert_eq!((&found["verdict"], &found["level"]), (&json!("critical"), &json!("long")), "{found}");

    // DCGM's GPU 2 is GPU 0, and its GPU 1 is GPU 1.
    let (verdict, seen) = check(&found, 0, "dcgm");
    assert!(verdict == "critical" && seen.starts_with("memory failed: A memory mismatch was detected"), "{seen}");
    let (verdict, seen) = check(&found, 1, "dcgm");
    assert_eq!((&*verdict, &*seen), ("pass", "Passed at level 3 of DCGM 4.2.3: software, memory, pcie."));
    let skipped = |gpu: usize| {
        let findings = found["verdicts"][gpu]["findings"].as_array().unwrap();
        findings.iter().any(|one| one["verdict"] == "not_tested" && one["seen"] == "pulse_test was skipped.")
    };
    assert!(skipped(0) && skipped(1), "{found}");
    // The program numbers the GPUs the other way round, and names their addresses.
    let (verdict, seen) = check(&found, 0, "nvbandwidth");
    assert!(verdict == "warning" && seen.starts_with("Copies from GPU 0 to GPU 1: 101.5 GB/s"), "{seen}");
    let rates = &found["results"]["installed"]["nvbandwidth"]["rows"];
    assert_eq!(
        (&rates[0]["to_device_gb_s"], &rates[1]["to_device_gb_s"]),
        (&json!(31.4001), &json!(55.2012)),
        "{found}"
    );
    let general = found["general"].as_array().unwrap();
    let nccl = general.iter().find(|one| one["check"] == "nccl_tests").unwrap();
    assert_eq!(
        (&nccl["verdict"], &nccl["seen"]),
        (&json!("not_tested"), &json!("all_reduce_perf is not installed on this node."))
    );
    assert_eq!(found["results"]["installed"]["dcgm"]["level"], "3");

    let page = person.request(&house, "GET", &path).send().await.unwrap().text().await.unwrap();
    let shown = one_line(&page);
    for wanted in ["memory failed: A memory mismatch", "nvbandwidth, writes in GB/s", "is not installed on this node"] {
        assert!(shown.contains(wanted), "{wanted}: {page}");
    }
}

/// The default environment here has no CUDA: nothing was measured, and that is no pass.
#[tokio::test]
async fn gpus_that_jax_does_not_see_are_not_tested() {
    let folder = open_directory();
    let Some((house, person)) = open(folder.path(), "unseen", &sound()).await else { return };
    let path = started(&house, &person, json!({ "gpus": 2 })).await;
    let found = finished(&house, &person, &path).await;
    assert_eq!(found["verdict"], "not_tested", "{found}");
    assert_eq!(check(&found, 0, "ecc").0, "pass");
    let (verdict, seen) = check(&found, 1, "matmul");
    assert_eq!((&*verdict, &*seen), ("not_tested", "JAX was installed without CUDA in this environment."));
    let jax = found["general"].as_array().unwrap().iter().find(|one| one["check"] == "jax").unwrap();
    assert!(jax["advice"].as_str().unwrap().starts_with("Choose an environment with CUDA"), "{jax}");
}

/// Each has a GPU of its own; one that is cancelled has no verdict.
#[tokio::test]
async fn several_are_started_at_once() {
    let folder = open_directory();
    let Some((house, person)) = open(folder.path(), "at-once", &sound()).await else { return };
    let request = json!({ "level": "quick", "gpus": 1 });
    let paths = join_all((0..3).map(|_| started(&house, &person, request.clone()))).await;
    let mut uuids = Vec::new();
    for found in join_all(paths.iter().map(|path| finished(&house, &person, path))).await {
        assert_eq!(check(&found, 0, "ecc").0, "pass", "{found}");
        assert_eq!(found["verdicts"].as_array().unwrap().len(), 1);
        uuids.push(found["verdicts"][0]["gpu"]["uuid"].as_str().unwrap().to_owned());
    }
    assert!(uuids.iter().all(|uuid| uuid.starts_with("GPU-")), "{uuids:?}");

    let waits = started(&house, &person, json!({ "level": "medium", "gpus": 4 })).await;
    let (status, said) = person.ask(&house, "POST", &format!("{waits}/cancel"), &Value::Null).await;
    assert_eq!(status, 202, "{said}");
    eventually("it is cancelled", async || (person.get(&house, &waits).await["state"] == "stopped").then_some(()))
        .await;
    let listed = person.get(&house, "/diagnostics?limit=2").await;
    assert_eq!((listed["items"].as_array().unwrap().len(), listed["next_cursor"].is_string()), (2, true));
}
