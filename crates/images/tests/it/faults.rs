//! What a registry can do wrong, and that each has its own error and leaves no image behind.

use std::{sync::Arc, time::Duration};

use axum::response::{IntoResponse, Response};
use lyceum_images::{Access, Credentials, Error, Limits, PullRequest, Settings, State, Store};
use parking_lot::Mutex;
use serde_json::json;

use super::{
    content::{Built, Layer, gzip, image, image_with, noise},
    faulty::{Asked, End, Faulty, Served, beginning, blob, partial, silence, status},
    real::store,
    wait::eventually,
};

/// Short waits, so that failures that repeat are quick.
fn impatient() -> Settings {
    Settings {
        stall_timeout: Duration::from_millis(300),
        retry_delay: Duration::from_millis(5),
        retries: 2,
        ..Settings::default()
    }
}

fn small() -> Built {
    image(&[Layer::new().file("a", &noise(3, 200_000)).gzip()])
}

/// Pulls from a server that answers so, and returns the error. Nothing may be left but parts.
async fn failure(
    built: &Built,
    answer: impl Fn(&Asked, usize) -> Option<Response> + Send + Sync + 'static,
) -> (Arc<Error>, Faulty) {
    let server = Served::new(built).start(answer).await;
    let (directory, store) = store(impatient());
    let pull = store.pull(PullRequest::new(server.reference()));
    let error = pull.wait().await.unwrap_err();
    assert!(matches!(pull.progress().borrow().state, State::Failed(_)));
    assert_eq!(store.images().unwrap(), []);
    for folder in ["staging", "images", "blobs"] {
        let names: Vec<_> = std::fs::read_dir(directory.path().join("store").join(folder)).unwrap().collect();
        assert!(names.is_empty(), "{folder} has {names:?} after {error}");
    }
    assert!(error.to_string().ends_with('.'), "{error}");
    (error, server)
}

fn on(part: &'static str, answer: impl Fn() -> Response) -> impl Fn(&Asked, usize) -> Option<Response> {
    move |asked, _| asked.path.contains(part).then(&answer)
}

#[tokio::test]
async fn statuses_are_told_apart() {
    let (error, _) = failure(&small(), on("manifests", || status(404, &[]))).await;
    assert!(matches!(&*error, Error::NotFound { .. }), "{error}");
    let (error, _) = failure(&small(), on("manifests", || status(403, &[]))).await;
    assert!(matches!(&*error, Error::Forbidden { .. }), "{error}");
    let (error, _) =
        failure(&small(), on("manifests", || status(401, &[("www-authenticate", "Basic realm=\"x\"")]))).await;
    assert!(matches!(&*error, Error::CredentialsMissing { .. }), "{error}");
    let (error, _) = failure(&small(), on("manifests", || status(401, &[("www-authenticate", "Negotiate")]))).await;
    assert!(matches!(&*error, Error::Challenge { .. }), "{error}");
    let (error, _) = failure(&small(), on("blobs", || status(404, &[]))).await;
    assert!(matches!(&*error, Error::NotFound { what, .. } if what.contains("configuration")), "{error}");
    let (error, server) = failure(&small(), on("manifests", || status(503, &[]))).await;
    assert!(matches!(&*error, Error::Status { status: 503, .. }), "{error}");
    assert_eq!(server.asked("manifests").len(), 3, "it is asked again");
    let (error, server) = failure(&small(), on("manifests", || status(418, &[]))).await;
    assert!(matches!(&*error, Error::Status { status: 418, .. }), "{error}");
    assert_eq!(server.asked("manifests").len(), 1);
}

#[tokio::test]
async fn the_rate_limit_is_honoured() {
    let server = Served::new(&small())
        .start(|asked, earlier| {
            (asked.path.contains("blobs") && earlier == 0).then(|| status(429, &[("retry-after", "1")]))
        })
        .await;
    let (_directory, store) = store(impatient());
    let began = std::time::Instant::now();
    store.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2), "configuration and layer wait a second each");
    let (error, server) = failure(&small(), on("manifests", || status(429, &[("retry-after", "7200")]))).await;
    assert!(
        matches!(&*error, Error::RateLimited { retry_after: Some(after), .. } if after.as_secs() == 7200),
        "{error}"
    );
    assert!(error.to_string().contains("7200 seconds"), "{error}");
    assert_eq!(server.asked("manifests").len(), 1, "nobody waits two hours");
    let date = "Wed, 21 Oct 2065 07:28:00 GMT";
    let (error, _) = failure(&small(), on("manifests", || status(429, &[("retry-after", date)]))).await;
    assert!(
        matches!(&*error, Error::RateLimited { retry_after: Some(after), .. } if after.as_secs() > 1000),
        "{error}"
    );
    let (error, server) = failure(&small(), on("manifests", || status(429, &[]))).await;
    assert!(matches!(&*error, Error::RateLimited { retry_after: None, .. }), "{error}");
    assert_eq!(server.asked("manifests").len(), 3);
}

#[tokio::test]
async fn a_web_page_is_not_a_registry() {
    let page = || axum::response::Html("<html>Please sign in</html>").into_response();
    for part in ["manifests", "blobs"] {
        let (error, _) = failure(&small(), on(part, page)).await;
        assert!(matches!(&*error, Error::NotARegistry { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_registry_that_hangs_is_left() {
    let (error, _) = failure(&small(), on("manifests", silence)).await;
    assert!(matches!(&*error, Error::Unresponsive { .. }), "{error}");
    let built = small();
    let layer = built.blobs[&built.layers[0]].clone();
    let hanging = beginning_of(&built, layer, End::Hang);
    let (error, server) = failure(&built, hanging).await;
    assert!(matches!(&*error, Error::Unresponsive { .. }), "{error}");
    assert!(server.asked("blobs").len() > 2);
    // A registry that does not exist.
    let (_directory, store) = store(Settings { retries: 0, ..impatient() });
    let error = store.pull(PullRequest::new("127.0.0.1:1/a".parse().unwrap())).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Unreachable { .. }), "{error}");
}

/// Answers each request for the layer with its first half, and nothing more.
fn beginning_of(built: &Built, layer: Vec<u8>, end: End) -> impl Fn(&Asked, usize) -> Option<Response> + use<> {
    let digest = built.layers[0].to_string();
    move |asked, earlier| {
        let is_first = asked.path.contains(&digest) && earlier == 0;
        let is_later = asked.path.contains(&digest) && earlier > 0;
        if is_later {
            return Some(silence());
        }
        is_first.then(|| beginning(&layer[..layer.len() / 2], layer.len(), end))
    }
}

#[tokio::test]
async fn wrong_content_is_discarded() {
    let built = small();
    let (layer, length) = (built.layers[0], built.blobs[&built.layers[0]].len());
    let is_layer = move |asked: &Asked| asked.path.contains(&layer.to_string());
    let wrong = noise(9, length);
    let (error, server) = failure(&built, move |asked, _| is_layer(asked).then(|| blob(&wrong))).await;
    assert!(matches!(&*error, Error::WrongDigest { expected, .. } if *expected == layer), "{error}");
    assert_eq!(server.asked(&layer.to_string()).len(), 1);
    for more in [noise(9, length + 1), noise(9, length - 1)] {
        let (error, _) = failure(&built, move |asked, _| is_layer(asked).then(|| blob(&more))).await;
        assert!(matches!(&*error, Error::WrongSize { .. }), "{error}");
    }
    // Without an announced length, the surplus shows while it arrives.
    let (error, _) = failure(&built, move |asked, _| {
        let endless =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(axum::body::Bytes::from(vec![0; 65536])));
        is_layer(asked).then(|| axum::body::Body::from_stream(endless).into_response())
    })
    .await;
    assert!(matches!(&*error, Error::WrongSize { .. }), "{error}");
    // A manifest that is not the one that was asked for.
    let (other, server) = (small().manifest, Served::new(&built).start(move |_, _| None).await);
    drop(server);
    let other = [other, b" ".to_vec()].concat();
    let server =
        Served::new(&built).start(move |asked, _| asked.path.contains("manifests").then(|| blob(&other))).await;
    let (_directory, store) = store(impatient());
    let request = PullRequest::new(server.reference().at(built.digest()));
    let error = store.pull(request).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::WrongDigest { .. }), "{error}");
}

#[tokio::test]
async fn documents_are_bounded() {
    let padded = |bytes: usize| {
        image_with(
            &[Layer::new().file("a", b"a").gzip()],
            super::content::architecture(),
            &json!({}),
            &json!({"pad": "x".repeat(bytes)}),
        )
    };
    let server = Served::new(&padded(1 << 20)).start(|_, _| None).await;
    let (_directory, store) = store(impatient());
    store.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    let (error, _) = failure(&padded(5 << 20), |_, _| None).await;
    assert!(matches!(&*error, Error::TooLarge { .. }), "{error}");
    let many: Vec<Vec<u8>> = (0..3_u8).map(|at| Layer::new().file("a", &[at]).gzip()).collect();
    let server = Served::new(&image(&many)).start(|_, _| None).await;
    let limits = Limits { layers: 2, ..Limits::default() };
    let (_directory, few) = super::real::store(Settings { limits, ..impatient() });
    let error = few.pull(PullRequest::new(server.reference())).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { size: 3, .. }), "{error}");
    let limits = Limits { download_bytes: 20, ..Limits::default() };
    let (_directory, little) = super::real::store(Settings { limits, ..impatient() });
    let error = little.pull(PullRequest::new(server.reference())).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { limit: 20, .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_an_image_is_named() {
    let served = |manifest: serde_json::Value| {
        let bytes = manifest.to_string().into_bytes();
        move |asked: &Asked, _: usize| asked.path.contains("manifests").then(|| blob(&bytes))
    };
    let (error, _) = failure(&small(), served(json!({"schemaVersion": 1, "name": "a"}))).await;
    assert!(error.to_string().contains("schema 1"), "{error}");
    let (error, _) = failure(&small(), served(json!("rubbish"))).await;
    assert!(matches!(&*error, Error::Malformed { .. }), "{error}");
    let descriptor = |media_type: &str| super::content::descriptor(media_type, b"x");
    let artifact = json!({"schemaVersion": 2, "mediaType": super::content::OCI_MANIFEST, "config": descriptor("application/vnd.cncf.helm.config.v1+json"), "layers": []});
    let (error, _) = failure(&small(), served(artifact)).await;
    assert!(matches!(&*error, Error::NotAnImage { media_type, .. } if media_type.contains("helm")), "{error}");
    let encrypted = json!({"schemaVersion": 2, "config": descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip+encrypted")]});
    let (error, _) = failure(&small(), served(encrypted)).await;
    assert!(matches!(&*error, Error::LayerType { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_connection_is_resumed_where_it_ended() {
    let built = image(&[Layer::new().file("a", &noise(5, 1 << 20)).gzip()]);
    let layer = built.blobs[&built.layers[0]].clone();
    let half = layer.len() / 2;
    let digest = built.layers[0].to_string();
    let cut = {
        let (layer, digest) = (layer.clone(), digest.clone());
        move |asked: &Asked, earlier: usize| {
            let is_first = asked.path.contains(&digest) && earlier == 0;
            is_first.then(|| beginning(&layer[..half], layer.len(), End::Cut))
        }
    };
    let server = Served::new(&built).start(cut.clone()).await;
    let (_directory, first) = store(impatient());
    first.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    let asked = server.asked(&digest);
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].range.as_deref(), Some(&*format!("bytes={half}-")));
    // A registry that ignores the range sends everything again.
    let server = Served::new(&built).without_ranges().start(cut.clone()).await;
    let (_directory, second) = store(impatient());
    let pull = second.pull(PullRequest::new(server.reference()));
    pull.wait().await.unwrap();
    assert_eq!(server.asked(&digest).len(), 2);
    // One that rejects it does so, too.
    let server = Served::new(&built)
        .start(move |asked, earlier| if asked.range.is_some() { Some(status(416, &[])) } else { cut(asked, earlier) })
        .await;
    let (_directory, third) = store(impatient());
    third.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    assert_eq!(server.asked(&digest).len(), 3);
    // One that answers with another range is not believed.
    let (again, wrong) = (layer.clone(), digest.clone());
    let server = Served::new(&built)
        .start(move |asked, earlier| match earlier {
            _ if !asked.path.contains(&wrong) => None,
            0 => Some(beginning(&again[..half], again.len(), End::Cut)),
            _ => Some(partial(&again, half + 1)),
        })
        .await;
    let (_directory, fourth) = store(impatient());
    let error = fourth.pull(PullRequest::new(server.reference())).wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Status { status: 206, .. }), "{error}");
}

/// A part on the disk that does not fit the rest is downloaded again, once.
#[tokio::test]
async fn a_damaged_part_is_downloaded_again() {
    let built = image(&[Layer::new().file("a", &noise(5, 1 << 20)).gzip()]);
    let layer = built.blobs[&built.layers[0]].clone();
    let server = Served::new(&built).start(|_, _| None).await;
    for damaged in [vec![0; 1000], vec![0; layer.len()], vec![0; layer.len() + 5]] {
        let (directory, store) = store(impatient());
        std::fs::write(directory.path().join("store/partial").join(built.layers[0].hex()), damaged).unwrap();
        let pull = store.pull(PullRequest::new(server.reference()));
        pull.wait().await.unwrap();
        let last = pull.progress().borrow().clone();
        assert_eq!(Some(last.bytes), last.total);
    }
}

/// A stored layer whose bytes changed is found out when it is unpacked, and downloaded again.
#[tokio::test]
async fn a_damaged_layer_is_downloaded_again() {
    let built = small();
    let server = Served::new(&built).start(|_, _| None).await;
    let (directory, store) = store(impatient());
    let image = store.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    store.remove(&image).unwrap();
    let path = directory.path().join("store/blobs").join(built.layers[0].hex());
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    store.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    assert_eq!(server.asked(&built.layers[0].to_string()).len(), 2);
}

fn token_server(realm: &'static str) -> impl Fn(&Asked, usize) -> Option<Response> + Send + Sync {
    move |asked, _| {
        if asked.path.starts_with("/token") {
            let is_user = asked.authorization.as_deref() == Some("Basic bWU6Z2VoZWlt");
            let token = if is_user { "for-me" } else { "for-all" };
            return Some(axum::Json(json!({"token": token, "expires_in": 300})).into_response());
        }
        let wanted = ["Bearer for-me", "Bearer for-all"];
        if asked.authorization.as_deref().is_some_and(|given| wanted.contains(&given)) {
            return None;
        }
        let challenge = format!("Bearer realm=\"{realm}\",service=\"test\",scope=\"repository:some/image:pull\"");
        Some(status(401, &[("www-authenticate", &challenge)]))
    }
}

#[tokio::test]
async fn tokens_are_fetched_with_and_without_a_user() {
    let host = Arc::new(Mutex::new(String::new()));
    let known = host.clone();
    let server = Served::new(&small())
        .start(move |asked, earlier| {
            let realm: &'static str = Box::leak(format!("http://{}/token", known.lock()).into_boxed_str());
            token_server(realm)(asked, earlier)
        })
        .await;
    host.lock().clone_from(&server.host);
    let (_directory, anonymous) = store(impatient());
    anonymous.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    let tokens = server.asked("/token");
    assert_eq!(tokens.len(), 1, "one token serves the whole pull");
    assert!(tokens[0].path.contains("scope=repository%3Asome%2Fimage%3Apull") && tokens[0].authorization.is_none());
    let (_directory, personal) = store(impatient());
    let access = Access::Personal(Some((server.host.clone(), Credentials::new("me", "geheim"))));
    let request = PullRequest { access, ..PullRequest::new(server.reference()) };
    personal.pull(request).wait().await.unwrap();
    assert_eq!(server.asked("/token")[1].authorization.as_deref(), Some("Basic bWU6Z2VoZWlt"));
    assert_eq!(server.asked("blobs").last().unwrap().authorization.as_deref(), Some("Bearer for-me"));
    // Credentials go to no token service that would read them on the way.
    let (error, _) = failure(&small(), token_server("http://auth.example.org/token")).await;
    assert!(matches!(&*error, Error::Challenge { .. }), "{error}");
}

#[tokio::test]
async fn redirects_lose_credentials_and_stay_on_tls() {
    let built = small();
    let content = Served::new(&built).start(|_, _| None).await;
    let target = content.host.clone();
    let server = Served::new(&built)
        .start(move |asked, _| {
            if asked.authorization.is_none() {
                return Some(status(401, &[("www-authenticate", "Basic realm=\"x\"")]));
            }
            let place = format!("http://{target}{}?X-Signature=geheim", asked.path);
            asked.path.contains("blobs").then(|| status(307, &[("location", &place)]))
        })
        .await;
    let (_directory, store) = store(impatient());
    let access = Access::Personal(Some((server.host.clone(), Credentials::new("me", "geheim"))));
    let request = PullRequest { access, ..PullRequest::new(server.reference()) };
    let error = store.pull(request).wait().await.unwrap_err();
    // The content network of this test does not know signed addresses.
    assert!(matches!(&*error, Error::NotFound { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("geheim"));
    assert!(
        content.asked("blobs").iter().all(|asked| asked.authorization.is_none()) && !content.asked("blobs").is_empty()
    );
    let (error, _) =
        failure(&built, on("blobs", || status(307, &[("location", "http://metadata.example.org/secret")]))).await;
    assert!(matches!(&*error, Error::Redirect { .. }), "{error}");
}

#[tokio::test]
async fn a_pull_is_cancelled_and_resumed() {
    let built = image(&[Layer::new().file("a", &noise(5, 1 << 20)).gzip()]);
    let layer = built.blobs[&built.layers[0]].clone();
    let digest = built.layers[0].to_string();
    let half = layer.len() / 2;
    let (hanging, path) = (layer.clone(), digest.clone());
    let server = Served::new(&built)
        .start(move |asked, earlier| {
            (asked.path.contains(&path) && earlier == 0).then(|| beginning(&hanging[..half], hanging.len(), End::Hang))
        })
        .await;
    let (_directory, store) = store(Settings::default());
    let pull = store.pull(PullRequest::new(server.reference()));
    let progress = pull.progress();
    eventually("half of the layer", || (progress.borrow().bytes == half as u64).then_some(())).await;
    assert_eq!(progress.borrow().total, Some(layer.len() as u64));
    pull.cancel();
    let error = pull.wait().await.unwrap_err();
    assert!(matches!(&*error, Error::Cancelled), "{error}");
    store.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    assert_eq!(server.asked(&digest)[1].range.as_deref(), Some(&*format!("bytes={half}-")));
}

/// Not even the most talkative log has a credential.
#[tokio::test]
async fn logs_have_no_credentials() {
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let kept = Kept::default();
    let writer = kept.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let server = Served::new(&small())
        .start(|asked, earlier| {
            if asked.authorization.is_none() {
                return Some(status(401, &[("www-authenticate", "Basic realm=\"x\"")]));
            }
            (earlier == 1).then(|| status(503, &[]))
        })
        .await;
    let (_directory, store) = store(impatient());
    let access = Access::Personal(Some((server.host.clone(), Credentials::new("me", "geheim"))));
    store.pull(PullRequest { access, ..PullRequest::new(server.reference()) }).wait().await.unwrap();
    let logged = String::from_utf8_lossy(&kept.0.lock()).into_owned();
    assert!(logged.contains("image pulled") && logged.contains("retrying"), "{logged}");
    assert!(!logged.contains("geheim") && !logged.contains("bWU6Z2VoZWlt"), "{logged}");
}

#[tokio::test]
async fn settings_are_checked_when_the_store_opens() {
    let directory = super::real::directory();
    let mirrors = [("nvcr.io".to_owned(), "http://registry.example.org".to_owned())].into();
    let error = Store::open(directory.path(), Settings { mirrors, ..Settings::default() }).unwrap_err();
    assert!(matches!(&error, Error::Mirror { .. }), "{error}");
    assert_eq!(gzip(b"").len(), 20);
}
