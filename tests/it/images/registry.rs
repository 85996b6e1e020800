//! Debian's `docker-registry` on a free port of the loopback, and an image of a static busybox that is pushed to it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use flate2::{Compression, write::GzEncoder};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::needs;

/// A registry that ends with the test.
pub struct Registry {
    child: Child,
    pub host: String,
    log: Arc<Mutex<Vec<String>>>,
    /// The account that pushes.
    login: Option<(&'static str, &'static str)>,
    _directory: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    /// Starts a registry; nothing where it, bubblewrap or a static busybox is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[], None)
    }

    /// Starts a registry that only these accounts may use, as `htpasswd -B` writes them. The first pushes with this
    /// password.
    pub fn start_with_accounts(lines: &[&str], login: (&'static str, &'static str)) -> Option<Self> {
        Self::start_with(lines, Some(login))
    }

    fn start_with(accounts: &[&str], login: Option<(&'static str, &'static str)>) -> Option<Self> {
        let has = |path: &str| Path::new(path).exists();
        if !needs::met("docker-registry", has("/usr/bin/docker-registry"))
            || !needs::met("busybox-static", has("/bin/busybox"))
            || !needs::met("bubblewrap", has("/usr/bin/bwrap"))
        {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("registry.yml");
        let data = directory.path().join("data");
        let auth = if accounts.is_empty() {
            String::new()
        } else {
            let path = directory.path().join("htpasswd");
            fs::write(&path, accounts.join("\n")).unwrap();
            format!("auth:\n  htpasswd: {{realm: test, path: {}}}\n", path.display())
        };
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\nhttp: {{addr: \
             127.0.0.1:0}}\n{auth}",
            data.display()
        );
        fs::write(&settings, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&settings).env_clear().stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            let behind = line.split("listening on 127.0.0.1:").nth(1)?;
            Some(behind.chars().take_while(char::is_ascii_digit).collect::<String>())
        });
        let log = Arc::new(Mutex::new(Vec::new()));
        let noted = log.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| noted.lock().push(line)));
        let host = format!("127.0.0.1:{}", port.expect("docker-registry names its port"));
        Some(Self { child, host, log, login, _directory: directory })
    }

    /// The configuration by which this registry answers for `nvcr.io`.
    pub fn mirror(&self) -> String {
        format!("[images.mirrors]\n'nvcr.io' = 'http://{}/nvcr.io'\n", self.host)
    }

    /// How often this path was read.
    pub fn reads(&self, path: &str) -> usize {
        let (method, path) = ("http.request.method=GET ", format!("http.request.uri={path} "));
        self.log.lock().iter().filter(|line| line.contains(method) && line.contains(&path)).count()
    }

    /// Keeps it from answering until [`Self::go_on`].
    pub fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
    }

    pub fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Pushes an image whose `/etc/os-release` has these words. Returns the digest of its manifest.
    pub async fn push(&self, repository: &str, tag: &str, words: &str) -> String {
        self.push_requiring(repository, tag, words, "cuda>=1.0").await
    }

    /// The same, with what the image requires of the driver.
    pub async fn push_requiring(&self, repository: &str, tag: &str, words: &str, require: &str) -> String {
        let require = format!("NVIDIA_REQUIRE_CUDA={require}");
        let layer = layer(words);
        let plain = {
            let mut plain = Vec::new();
            std::io::copy(&mut flate2::read::GzDecoder::new(&layer[..]), &mut plain).unwrap();
            digest(&plain)
        };
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": architecture, "os": "linux", "rootfs": { "type": "layers", "diff_ids": [plain] },
            "config": { "Env": ["PATH=/usr/bin", "OF_IMAGE=yes", require],
                "Entrypoint": ["/entry"], "Cmd": ["sh"], "WorkingDir": "/workspace" },
        })
        .to_string()
        .into_bytes();
        let described =
            |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": described("application/vnd.oci.image.config.v1+json", &config),
            "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
        })
        .to_string()
        .into_bytes();
        for blob in [layer, config] {
            let begun = self.send("POST", &self.url(&format!("{repository}/blobs/uploads/")), "", Vec::new()).await;
            let place = begun.headers()["location"].to_str().unwrap().to_owned();
            let joint = if place.contains('?') { '&' } else { '?' };
            let place = format!("{place}{joint}digest={}", digest(&blob));
            self.send("PUT", &place, "application/octet-stream", blob).await;
        }
        let digest = digest(&manifest);
        self.send("PUT", &self.url(&format!("{repository}/manifests/{tag}")), MANIFEST, manifest).await;
        digest
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v2/{path}", self.host)
    }

    async fn send(&self, method: &str, url: &str, kind: &str, body: Vec<u8>) -> reqwest::Response {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = client.request(method, url).header("content-type", kind).body(body);
        if let Some((user, password)) = self.login {
            request = request.basic_auth(user, Some(password));
        }
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{url}: {}", answer.status());
        answer
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// A busybox with its usual names, and a file that says which image it is.
fn layer(words: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut add = |name: &str, kind: tar::EntryType, mode: u32, content: &[u8], link: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        if link.is_empty() {
            header.set_cksum();
            tar.append_data(&mut header, name, content).unwrap();
        } else {
            tar.append_link(&mut header, name, link).unwrap();
        }
    };
    for folder in ["usr/", "usr/bin/", "etc/", "home/", "tmp/", "proc/", "dev/", "sys/", "run/", "workspace/"] {
        add(folder, tar::EntryType::Directory, 0o755, b"", "");
    }
    add("bin", tar::EntryType::Symlink, 0o777, b"", "usr/bin");
    add("usr/bin/busybox", tar::EntryType::Regular, 0o755, &fs::read("/bin/busybox").unwrap(), "");
    let listed = Command::new("/bin/busybox").arg("--list").output().unwrap();
    for name in String::from_utf8(listed.stdout).unwrap().lines().filter(|name| *name != "busybox") {
        add(&format!("usr/bin/{name}"), tar::EntryType::Symlink, 0o777, b"", "busybox");
    }
    let files: BTreeMap<_, _> =
        [("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("etc/os-release", words)].into_iter().collect();
    for (name, text) in files {
        add(name, tar::EntryType::Regular, 0o644, text.as_bytes(), "");
    }
    tar.into_inner().unwrap().finish().unwrap()
}
