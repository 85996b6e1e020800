//! The GPUs of a machine, read through a driver library that the test compiles.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use lyceum::gpu::{Config, Error, Gpus, Watch, inventory};

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
    assert_eq!(too_many, "`gpus` asks for GPU 3, but the driver shows only 0 to 2");
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
    let watch = Watch::open(Some(&library));
    let busy = |text: &str, gpus: &[lyceum::model::Gpu]| {
        std::fs::write(&uses, text).unwrap();
        watch.busy(gpus, |pid| pid < 100)
    };
    assert_eq!(busy("", &gpus), Some(0), "nobody uses them");
    assert_eq!(busy("0 7 20\n0 8 30\n1 9 90\n0 200 99\n", &gpus[..1]), Some(30), "others' do not count");
    assert_eq!(busy("0 7 20\n1 9 90\n", &gpus), Some(90));
    assert_eq!(busy("0 0 55\n", &gpus[..1]), Some(55), "a driver that tells no processes apart");
    std::fs::remove_file(&uses).unwrap();
    assert_eq!(watch.busy(&gpus, |_| true), None, "it does not answer");
    assert_eq!(Watch::default().busy(&gpus, |_| true), None);
}
