//! Pulls from Debian's registry that succeed: layers of each kind, indexes, mirrors, TLS, passwords, and two
//! pulls at once.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

use lyceum_images::{Access, Credentials, Digest, Error, PullRequest, Reference, RootForm, Settings, State};
use serde_json::json;

use super::{
    content::{self, Layer, OCI_INDEX, image, listing, noise},
    faulty::Served,
    real::{Registry, has, store},
};

fn three_layers() -> Vec<Vec<u8>> {
    let first = Layer::new()
        .directory("./")
        .directory("./bin/")
        .file("./bin/sh", b"#!")
        .directory("etc")
        .file("etc/old", b"old")
        .file("etc/kept", b"kept")
        .directory("data")
        .file("data/a", b"a")
        .file("data/b", b"b")
        .symlink("lib", "usr/lib");
    let second = Layer::new().file("etc/.wh.old", b"").file("data/c", b"c").file("data/.wh..wh..opq", b"");
    let third = Layer::new().link("bin/bash", "bin/sh").file("lib/libc.so", b"elf").file("large", &noise(7, 300_000));
    vec![first.gzip(), second.plain(), third.zstd()]
}

#[tokio::test]
async fn layers_of_each_kind_become_one_root() {
    let Some(registry) = Registry::start() else { return };
    let (_directory, store) = store(Settings::default());
    let built = image(&three_layers());
    let pull = store.pull(PullRequest::new(registry.push("some/image", "1", &built).await));
    let image = pull.wait().await.unwrap();
    assert_eq!((image.digest, image.index), (built.digest(), None));
    let names: Vec<String> = listing(&image.root()).into_keys().collect();
    let expected = [
        "bin",
        "bin/bash",
        "bin/sh",
        "data",
        "data/c",
        "etc",
        "etc/kept",
        "large",
        "lib",
        "usr",
        "usr/lib",
        "usr/lib/libc.so",
    ];
    assert_eq!(names, expected);
    let shell = fs::metadata(image.root().join("bin/sh")).unwrap();
    assert_eq!((shell.nlink(), shell.mtime()), (2, 1_700_000_000));
    assert_eq!((shell.uid(), shell.gid()), (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()));
    let config = image.config.clone().unwrap();
    assert_eq!(
        (config.entrypoint, config.env),
        (vec!["/entry".to_owned()], vec![("PATH".to_owned(), "/bin".to_owned())])
    );
    assert!(image.bytes > 300_000 && image.download_bytes > 300_000);
    let last = pull.progress().borrow().clone();
    assert!(matches!(last.state, State::Ready(_)) && Some(last.bytes) == last.total, "{last:?}");
    // It is found by its digest, without the registry.
    drop(registry);
    let reference: Reference = format!("127.0.0.1:1/some/image@{}", built.digest()).parse().unwrap();
    assert_eq!(*store.pull(PullRequest::new(reference)).wait().await.unwrap(), *image);
    assert_eq!(store.images().unwrap(), [(*image).clone()]);
}

#[tokio::test]
async fn an_index_leads_to_the_platform() {
    let Some(registry) = Registry::start() else { return };
    let (_directory, store) = store(Settings::default());
    let other = if content::architecture() == "amd64" { "arm64" } else { "amd64" };
    let built: Vec<_> = [content::architecture(), other]
        .map(|architecture| {
            let layer = Layer::new().file("architecture", architecture.as_bytes()).gzip();
            content::image_with(&[layer], architecture, &json!({}), &json!({}))
        })
        .into();
    let entries: Vec<_> = built
        .iter()
        .zip([content::architecture(), other])
        .map(|(built, architecture)| {
            let mut entry = content::descriptor(content::OCI_MANIFEST, &built.manifest);
            entry["platform"] = json!({"os": "linux", "architecture": architecture});
            entry
        })
        .collect();
    for built in &built {
        for bytes in built.blobs.values() {
            registry.push_blob("some/image", bytes).await;
        }
        registry.push_manifest("some/image", &built.digest().to_string(), &built.media_type, &built.manifest).await;
    }
    for (tag, media_type) in
        [("oci", OCI_INDEX), ("docker", "application/vnd.docker.distribution.manifest.list.v2+json")]
    {
        let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}).to_string();
        registry.push_manifest("some/image", tag, media_type, index.as_bytes()).await;
        let mut request = PullRequest::new(registry.reference(&format!("some/image:{tag}")));
        assert_eq!(store.resolve(&request).await.unwrap(), Digest::of(index.as_bytes()));
        for (built, architecture) in built.iter().zip([content::architecture(), other]) {
            request.platform = format!("linux/{architecture}").parse().unwrap();
            let image = store.pull(request.clone()).wait().await.unwrap();
            assert_eq!(image.digest, built.digest());
            assert_eq!(fs::read_to_string(image.root().join("architecture")).unwrap(), architecture);
        }
        request.platform = "linux/riscv64".parse().unwrap();
        let error = store.pull(request).wait().await.unwrap_err();
        assert!(matches!(&*error, Error::Platform { available, .. } if available.len() == 2), "{error}");
    }
    // The first pull remembers the index that it came from.
    let found = store.find(built[0].digest(), &lyceum_images::Platform::host(), RootForm::Directory).unwrap().unwrap();
    assert!(found.index.is_some() && store.images().unwrap().len() == 2);
    // An image without an index has to be for the platform, too.
    let mut request = PullRequest::new(registry.reference(&format!("some/image@{}", built[1].digest())));
    request.reference = registry.push("some/image", "other", &built[1]).await;
    let error = store.pull(request).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Platform { .. }), "{error}");
}

#[tokio::test]
async fn docker_schema_2_is_pulled() {
    let Some(registry) = Registry::start() else { return };
    let (_directory, store) = store(Settings::default());
    let mut built = image(&[Layer::new().file("a", b"a").gzip()]);
    let text = String::from_utf8(built.manifest).unwrap();
    let text = text
        .replace("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
        .replace("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
        .replace("application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip");
    built.manifest = text.into_bytes();
    built.media_type = "application/vnd.docker.distribution.manifest.v2+json".to_owned();
    let image = store.pull(PullRequest::new(registry.push("some/image", "1", &built).await)).wait().await.unwrap();
    assert_eq!(fs::read(image.root().join("a")).unwrap(), b"a");
}

#[tokio::test]
async fn a_mirror_answers_for_its_registry() {
    let Some(registry) = Registry::start() else { return };
    let mirrors = BTreeMap::from([("nvcr.io".to_owned(), format!("http://{}/nvcr.io", registry.host))]);
    let (_directory, store) = store(Settings { mirrors, ..Settings::default() });
    registry.push("nvcr.io/nvidia/fake", "26.10", &image(&[Layer::new().file("a", b"a").gzip()])).await;
    let request = PullRequest::new("nvcr.io/nvidia/fake:26.10".parse().unwrap());
    let image = store.pull(request).wait().await.unwrap();
    assert_eq!(image.name, "nvcr.io/nvidia/fake:26.10");
}

#[tokio::test]
async fn passwords_are_needed_and_never_shown() {
    // The password is `geheim`.
    let line = "$oauthtoken:$2y$04$QQ9F1Yf1pndt/IM2AkeHZux7oxuYKtPz/R0ELAk6Mt6xby5KokEKi\n";
    let Some(registry) = Registry::start_with_password("$oauthtoken", "geheim", line) else { return };
    let reference = registry.push("some/image", "1", &image(&[Layer::new().file("a", b"a").gzip()])).await;
    let request = |password: Option<&str>| {
        let own = password.map(|password| (registry.host.clone(), Credentials::new("$oauthtoken", password)));
        PullRequest { access: Access::Personal(own), ..PullRequest::new(reference.clone()) }
    };
    let (_directory, personal) = store(Settings::default());
    let error = personal.pull(request(None)).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::CredentialsMissing { .. }), "{error}");
    let error = personal.pull(request(Some("falsch"))).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::CredentialsRejected { .. }), "{error}");
    assert!(!format!("{error} {error:?} {:?}", request(Some("falsch"))).contains("falsch"));
    let image = personal.pull(request(Some("geheim"))).wait().await.unwrap();
    // What one user pulled is nothing to others whom the registry does not give it, not even by its digest.
    let at = PullRequest { reference: reference.at(image.digest), always_ask: true, ..request(None) };
    let error = personal.pull(at.clone()).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::CredentialsMissing { .. }), "{error}");
    let of_site = PullRequest { access: Access::Site, ..at.clone() };
    assert!(personal.pull(of_site).wait().await.is_err());
    personal.pull(PullRequest { access: request(Some("geheim")).access, ..at }).wait().await.unwrap();
    // The site's credentials serve all pulls of the site, and no personal one.
    let credentials = BTreeMap::from([(registry.host.clone(), Credentials::new("$oauthtoken", "geheim"))]);
    let settings = Settings { credentials, ..Settings::default() };
    assert!(!format!("{settings:?}").contains("geheim"));
    let (_directory, site) = store(settings);
    assert!(site.pull(request(None)).wait().await.is_err());
    site.pull(PullRequest::new(reference.clone())).wait().await.unwrap();
    assert!(!format!("{site:?}").contains("geheim"));
    // Credentials for another host are not sent.
    let (_directory, other) = store(Settings::default());
    let access = Access::Personal(Some(("nvcr.io".to_owned(), Credentials::new("$oauthtoken", "geheim"))));
    let error = other.pull(PullRequest { access, ..request(None) }).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::CredentialsMissing { .. }), "{error}");
}

#[tokio::test]
async fn the_sites_own_authority_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.pem();
    let Some(registry) = Registry::start_with_tls(&certificate, &made.signing_key.serialize_pem()) else { return };
    registry.push("some/image", "1", &image(&[Layer::new().file("a", b"a").gzip()])).await;
    let mirrors = BTreeMap::from([("reg.example.org".to_owned(), format!("https://{}", registry.host))]);
    let request = PullRequest::new("reg.example.org/some/image:1".parse().unwrap());
    let (_directory, without) = store(Settings { mirrors: mirrors.clone(), retries: 0, ..Settings::default() });
    let error = without.pull(request.clone()).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Unreachable { reason, .. } if reason.contains("certificate")), "{error}");
    let authorities = vec![registry.directory.path().join("localhost.crt")];
    let (_directory, with) = store(Settings { mirrors, authorities, ..Settings::default() });
    with.pull(request).wait().await.unwrap();
    let missing = Settings { authorities: vec!["/nowhere/ca.pem".into()], ..Settings::default() };
    let error = lyceum_images::Store::open(super::real::directory().path(), missing).unwrap_err();
    assert!(matches!(&error, Error::Authorities { .. }), "{error}");
}

/// Two requests for one image become one pull, and two images share the download of a layer.
#[tokio::test(flavor = "multi_thread")]
async fn work_is_done_once() {
    let shared = Layer::new().file("shared", &noise(1, 4 << 20)).gzip();
    let one = image(&[shared.clone(), Layer::new().file("one", b"1").gzip()]);
    let two = image(&[shared.clone(), Layer::new().file("two", b"2").gzip()]);
    let server = Served::new(&one).and("2", &two).start(|_, _| None).await;
    let (directory, store) = store(Settings::default());
    let again = lyceum_images::Store::open(directory.path().join("store"), Settings::default()).unwrap();
    let reference = |tag: &str| PullRequest::new(format!("{}/some/image:{tag}", server.host).parse().unwrap());
    let (first, second, other, same) = (
        store.pull(reference("1")),
        store.pull(reference("1")),
        store.pull(reference("2")),
        again.pull(reference("1")),
    );
    let (first, second, other, same) = tokio::join!(first.wait(), second.wait(), other.wait(), same.wait());
    let (first, second, other, same) = (first.unwrap(), second.unwrap(), other.unwrap(), same.unwrap());
    assert_eq!((&first, &first.root()), (&second, &same.root()));
    assert_eq!((first.digest, other.digest), (one.digest(), two.digest()));
    for digest in one.layers.iter().chain(&two.layers) {
        assert_eq!(server.asked(&digest.to_string()).len(), 1, "{digest} was downloaded more than once");
    }
}

#[tokio::test]
async fn a_squashfs_is_made_of_the_layers() {
    if !has("mksquashfs") {
        return;
    }
    let Some(registry) = Registry::start() else { return };
    let scratch = super::real::directory();
    let scratch = scratch.path().join("scratch");
    let (_directory, store) = store(Settings { scratch: Some(scratch.clone()), ..Settings::default() });
    let reference = registry.push("some/image", "1", &image(&three_layers())).await;
    let request = PullRequest { form: RootForm::Squashfs, ..PullRequest::new(reference) };
    let image = store.pull(request).wait().await.unwrap();
    assert_eq!(image.root().file_name().unwrap(), "root.sqsh");
    let listed = std::process::Command::new("unsquashfs").args(["-lln"]).arg(image.root()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("squashfs-root/usr/lib/libc.so") && !listed.contains("etc/old"), "{listed}");
    let foreign: Vec<&str> =
        listed.lines().filter(|line| line.contains("squashfs-root") && !line.contains(" 0/0 ")).collect();
    assert_eq!(foreign, Vec::<&str>::new(), "root owns everything");
    assert_eq!(fs::read_dir(scratch).unwrap().count(), 0);
}
