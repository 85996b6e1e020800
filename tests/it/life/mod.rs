//! A session's life on the real program: `lyceum serve` as root with its helper, its service
//! user and real Unix accounts, and (`alone`) as an ordinary user. A [`House`] is one such
//! portal with everything that belongs to it; it takes all of it away at the end, also when
//! a test fails.

mod alone;
mod audited;
mod compiled;
mod crashes;
mod curves;
mod damage;
mod datasets;
pub mod diagnostics;
mod endings;
mod environments;
mod events;
mod faults;
mod hostile;
mod hostile_files;
mod idle;
mod inherited;
mod inside;
pub mod jobs;
mod limits;
mod logs;
mod lost;
mod maintenance;
pub mod models;
mod never;
mod offboarding;
mod operators;
mod packages;
pub mod person;
mod profiles;
mod restored;
mod results;
mod storage;
mod sweeps;
mod systemd;
pub mod together;
mod trials;
mod whole;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use lyceum::{
    db::{self, Db},
    helper::{
        cgroup::{self, Hierarchy},
        identity::Identity,
        placement::Record,
        process,
    },
    model::SessionId,
    start::{self, Paths, ProcessEnvironment},
};
use serde_json::Value;

pub use person::Person;

use crate::accounts;
pub use crate::wait::eventually;

/// One portal with its data, its accounts and its sessions.
pub struct House {
    base: tempfile::TempDir,
    /// Tells this house's accounts from others'.
    id: String,
    config: String,
    variables: Vec<(String, String)>,
    /// Whom the portal runs as, where that is not root.
    runs_as: Option<Identity>,
    /// What sudo is told, in a file of its own.
    rule: Option<PathBuf>,
    portal: Option<Child>,
    pub url: String,
    /// Where it listens: port 0 is another one after each start.
    pub listen: String,
    pub program: PathBuf,
    /// What stands before the program's name, where a test runs it in other surroundings.
    pub inside: Vec<String>,
    people: AtomicU32,
    accounts: parking_lot::Mutex<BTreeSet<String>>,
    /// Where what trainings compile outlives this house.
    compiled: Option<PathBuf>,
}

impl House {
    /// A portal of root's that serves; `None` where we are not root. The apps are `app.py`'s
    /// modes, `missing`, and two whose use is what they compute: `worker` and, on GPUs, `trainer`.
    pub async fn open(variables: &[(&str, &str)]) -> Option<Self> {
        if !crate::needs::root() {
            return None;
        }
        let mut house = Self::new(variables);
        house.start().await;
        Some(house)
    }

    /// The same, not started yet.
    pub fn new(variables: &[(&str, &str)]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let script = base.path().join("app.py");
        fs::write(&script, include_str!("app.py")).unwrap();
        let app = |name: &str, mode: &str, rest: &str| {
            format!(
                "[[apps]]\nname = '{name}'\nstrip_prefix = true\n{rest}\ncommand = ['/usr/bin/python3', '{}', '{mode}', \
                 '{{socket}}', '{{home}}', '{{session}}']\n",
                script.display()
            )
        };
        let mut config: String =
            ["web", "slow", "silent", "crash", "deaf"].iter().map(|name| app(name, name, "")).collect();
        config += &app("worker", "web", "idle = 'cpu'");
        config += &app("trainer", "web", "idle = 'gpu'");
        config += "[[apps]]\nname = 'missing'\ncommand = ['/nowhere/to/be-found']\n";
        let id = SessionId::new().short()[8..].to_owned();
        let own = [
            ("LYCEUM_SERVER__USER", format!("ly-s-{id}")),
            ("LYCEUM_SERVER__APPS_LISTEN", "127.0.0.1:0".to_owned()),
            ("LYCEUM_ENVIRONMENTS__BUILD", "never".to_owned()),
            ("LYCEUM_SCHEDULER__LOCAL__GPUS", "4".to_owned()),
            ("LYCEUM_SCHEDULER__LOCAL__CPUS", "64".to_owned()),
            ("LYCEUM_SCHEDULER__LOCAL__MEMORY", "64GiB".to_owned()),
            ("LYCEUM_SCHEDULER__LOCAL__GRACE", "2s".to_owned()),
            ("LYCEUM_LOG_FORMAT", "json".to_owned()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            base,
            id,
            config,
            variables: own.chain(variables).collect(),
            runs_as: None,
            rule: None,
            portal: None,
            url: String::new(),
            listen: "127.0.0.1:0".to_owned(),
            program: env!("CARGO_BIN_EXE_lyceum").into(),
            inside: Vec::new(),
            people: AtomicU32::new(0),
            accounts: parking_lot::Mutex::default(),
            compiled: None,
        }
    }

    /// Further lines of the configuration, of a portal that does not serve yet.
    pub fn configure(&mut self, toml: &str) {
        self.config.push_str(toml);
    }

    pub fn listen_on(&mut self, port: u16) {
        self.listen = format!("127.0.0.1:{port}");
    }

    /// Runs every command of this house through another program.
    pub fn wrap(&mut self, words: Vec<String>) {
        self.inside = words;
    }

    /// A rule of sudo's by which an ordinary account's portal serves these accounts; it goes with the house.
    pub fn allow_sudo(&mut self, accounts: &[&str]) {
        let own = self.runs_as.as_ref().expect("an ordinary account's portal").name.clone();
        let program = self.base.path().join("lyceum");
        let rule = format!("{own} ALL=({}) NOPASSWD: {} as-user *\n", accounts.join(","), program.display());
        let file = PathBuf::from("/etc/sudoers.d").join(&own);
        fs::write(&file, rule).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
        self.set("LYCEUM_ACCOUNTS__SUDO", program.to_str().unwrap());
        self.rule = Some(file);
    }

    pub fn runs_as(&self) -> Option<&Identity> {
        self.runs_as.as_ref()
    }

    /// Runs everything as an ordinary account made for it.
    pub fn of_somebody(variables: &[(&str, &str)]) -> Self {
        let mut house = Self::new(variables);
        let name = format!("ly-u-{}", house.id);
        accounts::change(&["useradd", "--create-home", "--base-dir", house.base.path().to_str().unwrap(), &name]);
        house.accounts.lock().insert(name.clone());
        house.runs_as = Some(Identity::facts(&name).unwrap());
        let copy = house.base.path().join("lyceum");
        fs::copy(env!("CARGO_BIN_EXE_lyceum"), copy).unwrap();
        house
    }

    /// With more configuration, before it serves.
    #[must_use]
    pub fn configured(mut self, more: &str) -> Self {
        self.config += more;
        self
    }

    pub fn data(&self) -> PathBuf {
        match &self.runs_as {
            None => self.base.path().join("data"),
            Some(person) => person.home.join("data"),
        }
    }

    pub fn paths(&self) -> Paths {
        let uid = self.runs_as.as_ref().map_or(0, |person| person.uid);
        start::layout(&ProcessEnvironment { uid, data: Some(self.data()), ..ProcessEnvironment::default() }).unwrap()
    }

    /// `lyceum ARGUMENTS` with this house's settings and data.
    pub fn command(&self, arguments: &[&str]) -> Command {
        fs::write(self.base.path().join("lyceum.toml"), &self.config).unwrap();
        let mut words: Vec<OsString> = self.inside.iter().map(OsString::from).collect();
        match &self.runs_as {
            None => words.push(self.program.clone().into()),
            Some(person) => {
                let (uid, gid) = (format!("--reuid={}", person.uid), format!("--regid={}", person.gid));
                words.extend(["/usr/bin/setpriv", &uid, &gid, "--clear-groups", "--"].map(OsString::from));
                words.push(self.base.path().join("lyceum").into());
            }
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if let Some(person) = &self.runs_as {
            command.env("HOME", &person.home);
        }
        command.args(arguments).arg("--data").arg(self.data());
        command
            .arg("--config")
            .arg(self.base.path().join("lyceum.toml"))
            .current_dir("/")
            .env_remove("XDG_RUNTIME_DIR");
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end: its success, and what it said on both streams.
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.base.path().join("log")).unwrap_or_default()
    }

    /// Serves and waits until it is ready.
    pub async fn start(&mut self) {
        let before = self.spawn();
        self.until_ready(before).await;
    }

    /// The same on an empty database, where the one it had is gone.
    pub async fn start_empty(&mut self) {
        let before = self.spawn_with(&["--start-empty"]);
        self.until_ready(before).await;
    }

    async fn until_ready(&mut self, before: usize) {
        let mut portal = self.portal.take().expect("it was started in the line above");
        let ready = eventually("the portal is ready", async || {
            let ended = portal.try_wait().unwrap();
            assert!(ended.is_none(), "the portal ended: {ended:?}\n{}", self.log());
            self.ready_since(before)
        });
        let told = ready.await;
        // With a public address it tells that one.
        self.url = if self.listen.ends_with(":0") { told } else { format!("http://{}", self.listen) };
        self.portal = Some(portal);
    }

    /// Begins to serve; answers how long the log was before.
    pub fn spawn(&mut self) -> usize {
        self.spawn_with(&[])
    }

    fn spawn_with(&mut self, more: &[&str]) -> usize {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.base.path().join("log")).unwrap();
        let before = self.log().len();
        let words = ["serve", "--listen", &self.listen].into_iter().chain(more.iter().copied());
        let mut command = self.command(&words.collect::<Vec<_>>());
        self.portal = Some(command.stderr(log).stdout(Stdio::null()).process_group(0).spawn().unwrap());
        before
    }

    /// The address of a portal that became ready in this part of the log.
    pub fn ready_since(&self, before: usize) -> Option<String> {
        self.log()[before..].lines().find_map(ready_address)
    }

    /// The program goes on with another variable from the next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// A file of this house's that everybody may read.
    pub fn file(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// The Unix account of somebody who has no sessions yet; it goes with the house.
    pub fn unix_account(&self, name: &str) -> String {
        let name = format!("ly-{name}-{}", self.id);
        accounts::change(&["useradd", "--create-home", &name]);
        self.accounts.lock().insert(name.clone());
        name
    }

    /// The database as another process sees it.
    pub async fn db(&self) -> Db {
        let url = self.variables.iter().find(|(name, _)| name == "LYCEUM_DATABASE__URL");
        let config = db::Config { url: url.map(|(_, url)| url.clone()).unwrap_or_default(), ..db::Config::default() };
        Db::open(&config, &self.paths().private).await.unwrap()
    }

    /// As power loss would end it: now, with nothing put in order.
    pub fn kill(&mut self) {
        let mut portal = self.portal.take().expect("it serves");
        portal.kill().unwrap();
        portal.wait().unwrap();
    }

    /// Asks it to end, as a supervisor does; answers how long that took.
    pub async fn terminate(&mut self) -> Duration {
        let pid = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.ended().await
    }

    /// Waits until the portal has ended; answers how long that took.
    pub async fn ended(&mut self) -> Duration {
        let begin = Instant::now();
        let mut portal = self.portal.take().expect("it serves");
        eventually("the portal ends", async || portal.try_wait().unwrap()).await;
        begin.elapsed()
    }

    /// Whether the portal ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.portal.as_mut().is_none_or(|portal| portal.try_wait().unwrap().is_some())
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.portal.as_ref().expect("it serves").id()).unwrap()
    }

    /// Reads a field of `/proc/PID/status` of the portal, as `VmHWM:` (KiB).
    pub fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        value.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The portal's one child.
    pub fn helper_pid(&self) -> i32 {
        children(self.pid())[0]
    }

    pub async fn restart(&mut self) {
        if self.portal.is_some() {
            self.kill();
        }
        self.start().await;
    }

    /// A new user with a token that may do everything.
    pub fn person(&self) -> Person {
        let name = format!("p{}-{}", self.people.fetch_add(1, Ordering::Relaxed), self.id);
        let account = format!("ly-{name}");
        if self.runs_as.is_none() {
            self.accounts.lock().insert(account.clone());
        }
        let mut words = vec!["admin", "user", "add", &name];
        if let Some(kept) = &self.compiled {
            // The portal makes the account when it is first needed, which is too late.
            accounts::change(&["useradd", "--create-home", &account]);
            compiled::lend(kept, &account);
            words.extend(["--unix-name", &account]);
        }
        let (added, said) = self.run(&words);
        assert!(added, "{said}");
        self.token_of(&name)
    }

    /// Lends what was compiled in other tests to the people who are made from now on.
    pub fn lend_compiled(&mut self) {
        self.compiled = compiled::kept();
    }

    /// A new user whose sessions run as this Unix account, which is somebody else's to remove.
    pub fn person_as(&self, unix_name: &str) -> Person {
        let name = format!("p{}-{}", self.people.fetch_add(1, Ordering::Relaxed), self.id);
        let (added, said) = self.run(&["admin", "user", "add", &name, "--unix-name", unix_name]);
        assert!(added, "{said}");
        self.token_of(&name)
    }

    /// The account that every portal has.
    pub fn admin(&self) -> Person {
        self.token_of("admin")
    }

    pub fn token_of(&self, name: &str) -> Person {
        let output = self.command(&["admin", "token", "create", "--user", name]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Person::new(name, String::from_utf8(output.stdout).unwrap().trim())
    }

    /// What lies on disk about a session that was launched.
    pub fn record(&self, id: SessionId) -> Option<Record> {
        let file = self.paths().placements.join(format!("{}.json", id.short()));
        Some(serde_json::from_str(&fs::read_to_string(file).ok()?).unwrap())
    }

    pub fn records(&self) -> Vec<Record> {
        let files = fs::read_dir(self.paths().placements).into_iter().flatten().flatten();
        files.filter_map(|file| serde_json::from_str(&fs::read_to_string(file.path()).ok()?).ok()).collect()
    }

    /// Waits until nothing of a session is left on the machine.
    pub async fn nothing_left(&self, record: &Record) {
        eventually("everything of an ended session goes away", async || {
            let left = !processes(record).is_empty()
                || record.cgroups.iter().any(|group| group.exists())
                || Path::new(&record.placement.run_directory).exists()
                || self.paths().placements.join(format!("{}.json", record.session.short())).exists();
            (!left).then_some(())
        })
        .await;
    }

    /// All that was ever held, from a copy of the database.
    pub async fn intervals(&self) -> Vec<Interval> {
        let copy = self.data().join("private").join(format!("copy-{}.db", SessionId::new().short()));
        let (done, said) = self.run(&["admin", "backup", copy.to_str().unwrap()]);
        assert!(done, "{said}");
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&copy).read_only(true).immutable(true);
        let mut database = sqlx::ConnectOptions::connect(&options).await.unwrap();
        let rows: Vec<(String, i64, i64, Option<i64>)> =
            sqlx::query_as("SELECT gpu_list, gpus, started_at, ended_at FROM intervals")
                .fetch_all(&mut database)
                .await
                .unwrap();
        fs::remove_file(copy).unwrap();
        rows.into_iter()
            .map(|(gpu_list, gpus, from, to)| Interval {
                indices: serde_json::from_str::<Vec<Value>>(&gpu_list)
                    .unwrap()
                    .iter()
                    .map(|gpu| gpu["index"].as_i64().unwrap())
                    .collect(),
                gpus,
                from,
                to: to.unwrap_or(i64::MAX),
            })
            .collect()
    }
}

pub fn children(parent: i32) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| process::stat(*pid).unwrap().is_some_and(|stat| stat.parent == parent)).collect()
}

/// Every process of a session, by its cgroups, its descent and its mark.
pub fn processes(record: &Record) -> BTreeSet<i32> {
    let mut found = cgroup::processes(&record.cgroups).unwrap();
    found.extend(process::of_session(record.session, Some(&record.placement)).unwrap());
    found.retain(|pid| process::stat(*pid).unwrap().is_some_and(|stat| !stat.is_zombie()));
    found
}

/// What one session held, and when (milliseconds).
#[derive(Clone, Debug)]
pub struct Interval {
    pub indices: Vec<i64>,
    pub gpus: i64,
    pub from: i64,
    pub to: i64,
}

fn ready_address(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = &line["fields"];
    (fields["message"] == "ready").then(|| fields["address"].as_str().unwrap().trim_end_matches('/').to_owned())
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut portal) = self.portal.take() {
            let children = children(i32::try_from(portal.id()).unwrap());
            let _ = portal.kill();
            let _ = portal.wait();
            // A helper first finishes what it was asked, which may be a launch.
            let helpers: Vec<OwnedFd> = children.into_iter().filter_map(|pid| process::open(pid).ok()?).collect();
            process::wait(&helpers.iter().collect::<Vec<_>>(), Duration::from_secs(5));
        }
        if std::thread::panicking() {
            let log = self.log();
            // What was looked at again and again says nothing.
            let is_look = |line: &&str| line.contains(r#""method":"GET""#) && line.contains(r#""status":200"#);
            let tail: Vec<&str> = log.lines().rev().filter(|line| !is_look(line)).take(60).collect();
            eprintln!("the portal's log:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        let paths = self.paths();
        for record in self.records() {
            let _ = process::kill_all(|| Ok(processes(&record)), Duration::from_secs(5));
        }
        // Groups have no files to remove; their parent goes when its last one has.
        for group in Hierarchy::detect(&paths.instance).groups("any") {
            let Some(parent) = group.parent().filter(|_| group.extension().is_none()) else { continue };
            for child in fs::read_dir(parent).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(child.path());
            }
            let _ = fs::remove_dir(parent);
        }
        let _ = fs::remove_dir_all(&paths.run);
        if self.runs_as.is_some() {
            let _ = fs::remove_dir(paths.run.parent().unwrap());
        }
        let service = self.runs_as.is_none().then(|| format!("ly-s-{}", self.id));
        if let Some(rule) = &self.rule {
            let _ = fs::remove_file(rule);
        }
        for account in self.accounts.lock().iter().chain(&service) {
            if let Some(kept) = &self.compiled
                && let Err(error) = compiled::keep(kept, account)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                eprintln!("what {account} compiled: {error}");
            }
            accounts::remove(account);
        }
    }
}
