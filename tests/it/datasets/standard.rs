//! Standard sets by the real program: Fashion-MNIST as Debian has it, and what is said where the
//! files of another set cannot be had.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

use serde_json::json;

use super::{Dataset, Place};
use crate::needs;

const DEBIAN: &str = "/usr/share/datasets/fashion-mnist";

fn lyceum(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lyceum")).args(["dataset", "standard"]).args(arguments).output().unwrap()
}

#[test]
fn fashion_mnist_is_built_as_published() {
    if !needs::met("the package dataset-fashion-mnist", Path::new(DEBIAN).exists()) {
        return;
    }
    let listed = String::from_utf8(lyceum(&[]).stdout).unwrap();
    let fashion = "fashion-mnist: 70000 greyscale images of 28 × 28 pixels in 10 classes; found in /usr/share/datasets";
    assert!(listed.contains(fashion), "{listed}");
    assert!(listed.contains("cifar-10: 60000 RGB images of 32 × 32 pixels in 10 classes"), "{listed}");

    let place = Place::new();
    let out = place.path("out");
    let built = lyceum(&["fashion-mnist", "--output", out.to_str().unwrap()]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let dataset = Dataset::open(&out);
    let counts = &dataset.document["counts"];
    assert_eq!([&counts["train"], &counts["val"], &counts["test"]], [54_000, 6000, 10_000], "{counts}");
    assert_eq!(counts["duplicate"], 0, "as published");
    assert_eq!(dataset.document["classes"][9], "Ankle boot");
    assert_eq!(dataset.document["per_class"]["test"], json!(vec![1000; 10]));
    assert_eq!(dataset.array("images.npy").0[1..], [28, 28, 1]);
    assert_eq!(dataset.document["spec"]["licence"], "MIT (Zalando SE)");
    // The test images in their order are those of the file.
    let unpacked = |name: &str, head: usize| {
        let mut content = Vec::new();
        let file = fs::File::open(format!("{DEBIAN}/{name}")).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut content).unwrap();
        content.split_off(head)
    };
    let labels: Vec<i32> = unpacked("t10k-labels-idx1-ubyte.gz", 8).into_iter().map(i32::from).collect();
    assert_eq!(dataset.numbers("test.labels.npy"), labels);
    assert!(dataset.part("images", "test").1 == unpacked("t10k-images-idx3-ubyte.gz", 16), "pixel by pixel");

    let spec = json!({"source": {"kind": "standard", "set": "fashion-mnist"}, "output": place.path("other")});
    place.write("set.json", spec.to_string());
    let path = place.path("set.json");
    let inspected = Command::new(env!("CARGO_BIN_EXE_lyceum")).args(["dataset", "inspect"]).arg(path).output().unwrap();
    let said = String::from_utf8(inspected.stdout).unwrap();
    assert!(said.contains("60000 train") && said.contains("Trouser (7000)") && said.contains("found in"), "{said}");
}

#[test]
fn a_set_that_cannot_be_had_says_why_and_what_to_do() {
    let place = Place::new();
    let (out, folder) = (place.path("out"), place.path("sets"));
    let out = out.to_str().unwrap();
    let closed = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let failed = lyceum(&["mnist", "--output", out, "--mirror", &closed]);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(said.contains(&format!("{closed}/mnist/train-images-idx3-ubyte.gz: ")), "{said}");
    assert!(said.contains("Copy the files of the set into a folder"), "{said}");

    place.write("sets/cifar-10/cifar-10-binary.tar.gz", b"not the archive");
    let failed = lyceum(&["cifar-10", "--output", out, "--directory", folder.to_str().unwrap()]);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"), "{said}");
    assert!(!place.path("out").exists());

    let unknown = String::from_utf8(lyceum(&["imagenet", "--output", out]).stderr).unwrap();
    assert!(unknown.contains("mnist, fashion-mnist, cifar-10"), "{unknown}");
}
