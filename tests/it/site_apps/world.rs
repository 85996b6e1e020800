//! A whole portal as an administrator starts it: the built binary as root with a
//! configuration file of its own, and people with real Unix accounts and homes. Everything
//! goes away with the value, also after a failed assertion.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use lyceum::config::Environment;
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User},
};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{accounts, portal::client, wait::eventually};

/// A running portal.
pub struct World {
    pub url: String,
    directory: TempDir,
    child: Child,
    people: Vec<String>,
    client: Client,
}

/// Somebody with an account of the portal, one of the machine, and a token.
#[derive(Clone)]
pub struct Somebody {
    pub name: String,
    pub unix_name: String,
    pub home: PathBuf,
    pub token: String,
    url: String,
    client: Client,
}

impl World {
    /// With a configuration; `[environments]` is not to be in it.
    pub fn start(configuration: &str) -> Self {
        let directory = directory(configuration);
        let port = free_ports();
        let mut child = serve(&directory, port).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("ready") {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "it ended before it was ready:\n{said}");
        }
        // Nothing waits for a pipe that nobody reads.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { url: format!("http://127.0.0.1:{port}"), directory, child, people: Vec::new(), client: client() }
    }

    /// What `serve` says of a configuration that it refuses to start with.
    pub fn refusal(configuration: &str) -> (Option<i32>, String) {
        let directory = directory(configuration);
        let output = serve(&directory, free_ports()).stderr(Stdio::piped()).output().unwrap();
        assert!(!directory.path().join("d").exists(), "nothing is made");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Makes an account with a home of its own below the test's directory.
    pub fn add(&mut self, name: &str, options: &[&str]) -> Somebody {
        let unix_name = unix_account(&self.directory.path().join(name));
        self.people.push(unix_name.clone());
        let words = ["admin", "user", "add", name, "--unix-name", &unix_name];
        self.lyceum(&[&words, options].concat());
        let token = self.lyceum(&["admin", "token", "create", "--user", name]).trim().to_owned();
        let home = self.directory.path().join(name);
        Somebody { name: name.to_owned(), unix_name, home, token, url: self.url.clone(), client: self.client.clone() }
    }

    /// The portal's own command line; it must succeed.
    pub fn lyceum(&self, words: &[&str]) -> String {
        let output = lyceum(&self.directory).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends the portal as a crash does, and starts it again.
    pub async fn crash_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let port = self.url.rsplit_once(':').unwrap().1.parse().unwrap();
        self.child = serve(&self.directory, port).stderr(Stdio::null()).spawn().unwrap();
        let url = format!("{}/readyz", self.url);
        let answers = async || Some(self.client.get(&url).send().await.ok()?.status()).filter(|status| *status == 200);
        eventually("it answers again", answers).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        let _ = self.child.wait();
        for name in &self.people {
            // Sessions outlive their portal; nothing else belongs to these accounts.
            let uid = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
            for pid in uid.into_iter().flat_map(processes_of) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        let data = self.directory.path().join("d");
        let surroundings = Environment::default().surroundings(Some(&data));
        if let Ok(paths) = lyceum::start::layout(&surroundings) {
            let _ = fs::remove_dir_all(&paths.run);
            remove_groups(&format!("lyceum-{}", paths.instance));
        }
        for name in &self.people {
            accounts::remove(name);
        }
    }
}

impl Somebody {
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request("GET", path).send().await.unwrap()
    }

    pub async fn json(&self, path: &str) -> Value {
        self.get(path).await.json().await.unwrap()
    }

    pub async fn ask_for(&self, app: &str) -> Response {
        self.request("POST", "/api/v1/sessions").json(&json!({ "app": app })).send().await.unwrap()
    }

    /// Starts an app and waits until it runs; answers the session.
    pub async fn start(&self, app: &str) -> Value {
        let asked = self.ask_for(app).await;
        let status = asked.status();
        let session: Value = asked.json().await.unwrap();
        assert_eq!(status, 201, "{session}");
        let id = session["id"].as_str().unwrap().to_owned();
        let session = self.until_state(&id, &["running", "ended"]).await;
        assert_eq!(session["state"], "running", "{session:#}");
        session
    }

    pub async fn until_state(&self, id: &str, states: &[&str]) -> Value {
        eventually(&format!("session {id} is {}", states.join(" or ")), async || {
            let session = self.json(&format!("/api/v1/sessions/{id}")).await;
            states.iter().any(|state| session["state"] == *state).then_some(session)
        })
        .await
    }

    /// Writes a file at home, as its owner.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        let mut child = self.command("/usr/bin/tee").arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        path
    }

    fn command(&self, program: &str) -> Command {
        let user = User::from_name(&self.unix_name).unwrap().unwrap();
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.home).uid(user.uid.as_raw()).gid(user.gid.as_raw());
        command.stdout(Stdio::null());
        command
    }
}

fn directory(configuration: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    // Everybody who starts something reads what is shared below it.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!("{configuration}\n[environments]\nbuild = \"never\"\n");
    fs::write(directory.path().join("lyceum.toml"), text).unwrap();
    directory
}

fn lyceum(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").current_dir(directory.path());
    command.env("LYCEUM_CONFIG", directory.path().join("lyceum.toml")).env("LYCEUM_DATA", directory.path().join("d"));
    command.stdin(Stdio::null());
    command
}

fn serve(directory: &TempDir, port: u16) -> Command {
    let mut command = lyceum(directory);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]).stdout(Stdio::null());
    command
}

/// The first of two neighbouring ports that are free, below those of outgoing connections.
fn free_ports() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let step = NEXT.fetch_add(2, Ordering::Relaxed) + usize::try_from(std::process::id()).unwrap() * 64;
        let port = 18_000 + u16::try_from(step % 8_000).unwrap();
        if [port, port + 1].iter().all(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
}

/// An account of the machine with this home; its name tells whose it is if it stays behind.
fn unix_account(home: &Path) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("ly-app-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let home = home.to_str().unwrap();
    accounts::change(&["useradd", "--create-home", "--home-dir", home, "--shell", "/bin/bash", &name]);
    name
}

fn processes_of(uid: u32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let mut status = String::new();
        let read = fs::File::open(entry.path().join("status")).and_then(|mut file| file.read_to_string(&mut status));
        let theirs = status.lines().any(|line| {
            line.strip_prefix("Uid:").is_some_and(|uids| uids.split_whitespace().any(|word| word == uid.to_string()))
        });
        if read.is_ok() && theirs {
            found.push(pid);
        }
    }
    found
}

/// Removes the control groups of a portal, as soon as the kernel has noticed that they are empty.
fn remove_groups(name: &str) {
    let Ok(hierarchies) = fs::read_dir("/sys/fs/cgroup") else { return };
    let roots = hierarchies.flatten().map(|entry| entry.path()).chain(["/sys/fs/cgroup".into()]);
    let end = Instant::now() + Duration::from_secs(5);
    for parent in roots.map(|root: PathBuf| root.join(name)).filter(|path| path.is_dir()) {
        while parent.is_dir() && Instant::now() < end {
            for inner in fs::read_dir(&parent).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(inner.path());
            }
            if fs::remove_dir(&parent).is_err() {
                std::thread::yield_now();
            }
        }
    }
}
