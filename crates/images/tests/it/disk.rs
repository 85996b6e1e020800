//! A disk that is full: a clear error, nothing half made, and a pull as usual when there is room again. The
//! disk is a small one in memory, which only a child process sees; the child is this test once more.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use lyceum_images::{Error, PullRequest, Settings, Store};

use super::{
    content::{Layer, image, noise},
    faulty::Served,
    needs::{self, variable},
};

const DISK: &str = "LYCEUM_TEST_IMAGES_DISK";

#[tokio::test(flavor = "multi_thread")]
async fn full() {
    if let Some(disk) = variable(DISK) {
        return fill(Path::new(&disk)).await;
    }
    let script = "mount -t tmpfs -o size=12m small \"$1\" || exit 77\nexec \"$2\" --exact disk::full --nocapture";
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["sh", "-c", script, "sh"])
        .args([directory.path(), &env::current_exe().unwrap()])
        .env(DISK, directory.path())
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mounted = output.status.code() != Some(77) && !said.contains("unshare failed");
    if needs::met("the right to mount a disk of one's own", mounted) {
        assert!(output.status.success(), "{said}");
    }
}

fn below(path: PathBuf) -> usize {
    fs::read_dir(path).unwrap().count()
}

async fn fill(disk: &Path) {
    let zeros = image(&[Layer::new().file("a", b"a").gzip(), Layer::new().file("zeros", &vec![0; 30 << 20]).gzip()]);
    let large = image(&[Layer::new().file("noise", &noise(1, 30 << 20)).gzip()]);
    let server = Served::new(&zeros).and("large", &large).start(|_, _| None).await;
    let store = Store::open(disk.join("store"), Settings::default()).unwrap();
    // It fits as it is downloaded, and not when it is unpacked.
    let error = store.pull(PullRequest::new(server.reference())).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::DiskFull { .. }), "{error:?}");
    // What does not fit as it is downloaded is not begun.
    let reference = format!("{}/some/image:large", server.host).parse().unwrap();
    let error = store.pull(PullRequest::new(reference)).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Space { .. }), "{error:?}");
    // The disk fills while a layer arrives, after there was room for it.
    let built = image(&[Layer::new().file("noise", &noise(3, 6 << 20)).gzip()]);
    let (layer, ballast) = (built.layers[0].to_string(), disk.join("ballast"));
    let slow = Served::new(&built)
        .start(move |asked, _| {
            if asked.path.contains(&layer) {
                fs::write(&ballast, vec![1; 8 << 20]).unwrap();
            }
            None
        })
        .await;
    let error = store.pull(PullRequest::new(slow.reference())).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::DiskFull { .. }), "{error:?}");
    fs::remove_file(disk.join("ballast")).unwrap();
    for folder in ["staging", "images", "partial"] {
        assert_eq!(below(disk.join("store").join(folder)), 0, "{folder}");
    }
    assert_eq!(store.images().unwrap(), []);
    // With room, it is pulled.
    let fits = image(&[Layer::new().file("noise", &noise(2, 2 << 20)).gzip()]);
    let server = Served::new(&fits).start(|_, _| None).await;
    let image = store.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    assert_eq!(fs::read(image.root().join("noise")).unwrap(), noise(2, 2 << 20));
}
