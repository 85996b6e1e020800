//! Debian's `docker-registry` on a free port of the loopback, and pushes to it over its API.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use lyceum_images::{Digest, Reference, Settings, Store};
use tempfile::TempDir;

use super::{content::Built, needs};

/// A registry that ends with the test.
pub struct Registry {
    child: Child,
    /// Host and port.
    pub host: String,
    scheme: &'static str,
    pub directory: TempDir,
    login: Option<(String, String)>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program is installed; without it the test is left out.
pub fn has(program: &str) -> bool {
    let found = ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists());
    needs::met(&format!("{program} (Debian: apt-get install docker-registry skopeo umoci squashfs-tools)"), found)
}

impl Registry {
    /// Starts a registry without a password. Returns nothing where it is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| String::new(), None)
    }

    /// Starts a registry that accepts one user. `line` is theirs in htpasswd's format, with bcrypt.
    pub fn start_with_password(user: &str, password: &str, line: &str) -> Option<Self> {
        let more = |directory: &Path| {
            fs::write(directory.join("htpasswd"), line).unwrap();
            format!("auth:\n  htpasswd: {{realm: test, path: {}}}\n", directory.join("htpasswd").display())
        };
        Self::start_with(more, Some((user.to_owned(), password.to_owned())))
    }

    /// Starts a registry with TLS; `localhost.crt` and `localhost.key` are written into its directory first.
    pub fn start_with_tls(certificate: &str, key: &str) -> Option<Self> {
        let mut registry = Self::start_with(
            |directory| {
                fs::write(directory.join("localhost.crt"), certificate).unwrap();
                fs::write(directory.join("localhost.key"), key).unwrap();
                "tls".to_owned()
            },
            None,
        )?;
        registry.host = registry.host.replace("127.0.0.1", "localhost");
        registry.scheme = "https";
        Some(registry)
    }

    fn start_with(more: impl FnOnce(&Path) -> String, login: Option<(String, String)>) -> Option<Self> {
        if !has("docker-registry") {
            return None;
        }
        let home = directory();
        let base = home.path();
        let more = more(base);
        let (tls, more) = match more.as_str() {
            "tls" => {
                let (certificate, key) = (base.join("localhost.crt"), base.join("localhost.key"));
                (format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display()), "")
            }
            more => (String::new(), more),
        };
        let mut text = String::new();
        write!(
            text,
            "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n\
             http: {{addr: 127.0.0.1:0{tls}}}\n{more}",
            base.join("data").display()
        )
        .unwrap();
        fs::write(base.join("registry.yml"), text).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(base.join("registry.yml"))
            .env_clear()
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = lines
            .by_ref()
            .find_map(|line| {
                let line = line.unwrap();
                let behind = line.split("listening on 127.0.0.1:").nth(1)?;
                Some(behind.chars().take_while(char::is_ascii_digit).collect::<String>())
            })
            .expect("docker-registry names its port");
        // It would end if its log had no reader.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, host: format!("127.0.0.1:{port}"), scheme: "http", directory: home, login })
    }

    /// Returns the address of a path of the API.
    fn url(&self, path: &str) -> String {
        format!("{}://{}/v2/{path}", self.scheme, self.host)
    }

    pub async fn push(&self, repository: &str, tag: &str, image: &Built) -> Reference {
        for bytes in image.blobs.values() {
            self.push_blob(repository, bytes).await;
        }
        self.push_manifest(repository, tag, &image.media_type, &image.manifest).await;
        self.reference(&format!("{repository}:{tag}"))
    }

    pub fn reference(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.host).parse().unwrap()
    }

    pub async fn push_blob(&self, repository: &str, bytes: &[u8]) {
        let url = self.url(&format!("{repository}/blobs/uploads/"));
        let started = self.send(reqwest::Method::POST, &url, "", Vec::new()).await;
        let place = started.headers()["location"].to_str().unwrap();
        let joint = if place.contains('?') { '&' } else { '?' };
        let url = format!("{place}{joint}digest={}", Digest::of(bytes));
        self.send(reqwest::Method::PUT, &url, "application/octet-stream", bytes.to_vec()).await;
    }

    pub async fn push_manifest(&self, repository: &str, tag: &str, media_type: &str, bytes: &[u8]) {
        let url = self.url(&format!("{repository}/manifests/{tag}"));
        self.send(reqwest::Method::PUT, &url, media_type, bytes.to_vec()).await;
    }

    async fn send(&self, method: reqwest::Method, url: &str, media_type: &str, body: Vec<u8>) -> reqwest::Response {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap();
        let mut request = client.request(method, url).header("content-type", media_type).body(body);
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{url}: {} {}", response.status(), response.text().await.unwrap());
        response
    }
}

/// A directory of the test's own, in memory where that is possible: tests make and remove many small files.
pub fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A store in a directory of its own.
pub fn store(settings: Settings) -> (TempDir, Store) {
    let directory = directory();
    let store = Store::open(directory.path().join("store"), settings).unwrap();
    (directory, store)
}
