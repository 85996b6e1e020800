//! What the helper's and the scheduler's tests stand on: directories, a real helper, two real
//! accounts, and a stand-in for the agent. Everything goes away at the end of each test.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock},
};

use lyceum::{
    helper::{
        ACCOUNT_UIDS, Config, Error,
        cgroup::Hierarchy,
        client::Launcher,
        identity::Identity,
        placement,
        process::{self, Life},
    },
    model::{DeviceAccess, SessionId, session::Placement},
    protocol::{HelperAnswer, HelperRequest, LaunchRequest, Limits},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{accounts, wait::until};

pub const AGENT: &str = r#"
import json, os, signal, sys, time
launch = json.load(sys.stdin)
run = launch["run_directory"]
mode, *rest = [launch["mode"]] if "mode" in launch else launch["app"]["program"]["exec"]["argv"]
facts = {"fds": {fd: os.readlink("/proc/self/fd/" + fd) for fd in ["0", "1", "2"]},
         "open": [int(fd) for fd in os.listdir("/proc/self/fd")],
         "status": open("/proc/self/status").read(), "environ": open("/proc/self/environ").read(),
         "cwd": os.getcwd(), "secret": launch.get("secret"), "launch": launch}
os.setsid()
with open(run + "/starts", "a") as f: f.write("x\n")
def put(name, text):
    with open(run + "/." + name, "w") as f: f.write(text)
    os.rename(run + "/." + name, run + "/" + name)
def end(cause, code=None, sig=None):
    put("exit.json", json.dumps({"cause": cause, "exit_code": code, "signal": sig, "ended_at_ms": 1, "detail": "d"}))
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: end("asked"))
put("facts.json", json.dumps(facts))
if mode == "sleep":
    signal.pause()
elif mode == "exit":
    end("app", int(rest[0]))
elif mode == "memory":
    child = os.fork()
    if child == 0:
        hoard = []
        while True: hoard.append(b"x" * (1 << 20))
    _, status = os.waitpid(child, 0)
    end("app", None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else end("app", 0)
elif mode == "forks":
    count = 0
    try:
        while count < 500:
            if os.fork() == 0: signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(600); os._exit(0)
            count += 1
    except OSError: pass
    put("forks", str(count))
    signal.pause()
elif mode == "open":
    found = {}
    for path in rest or launch["paths"]:
        try: os.close(os.open(path, os.O_RDWR)); found[path] = 0
        except OSError as e: found[path] = e.errno
    put("open", json.dumps(found))
    signal.pause()
elif mode == "spin":
    for _ in range(2):
        if os.fork() == 0:
            while True: pass
    signal.pause()
elif mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ["LYCEUM_SESSION"] = launch["session"]
    for detached in (False, True):
        if os.fork() == 0:
            if detached:
                if os.fork(): os._exit(0)
                os.setsid()
            os.execv("/bin/sleep", ["sleep", "600"])
    put("stubborn", "")
    while True: time.sleep(600)
"#;

/// Who owns nothing here and serves the tests as the portal's user.
pub const SERVICE: u32 = 64_999;

/// What holds limits here. Where a machine was made for the tests of one kind, it has to be
/// that kind: `LYCEUM_TEST_LIMITS` says which.
pub fn detect(instance: &str) -> Hierarchy {
    let found = Hierarchy::detect(instance);
    if let Some(kind) = crate::needs::variable("LYCEUM_TEST_LIMITS") {
        assert_eq!(found.kind(), kind, "this machine was made for something else");
    }
    found
}

/// Two accounts made by the helper's own verb, gone when the last test lets go of them.
pub struct People {
    pub a: Identity,
    pub b: Identity,
    pub group: u32,
}

static PEOPLE: Mutex<usize> = Mutex::new(0);

impl People {
    fn names() -> [String; 2] {
        ["a", "b"].map(|who| format!("test-{who}-{}", std::process::id()))
    }

    fn group_name() -> String {
        format!("ly-test-g-{}", std::process::id())
    }

    fn borrow(house: &House) -> Self {
        let mut users = PEOPLE.lock();
        let names = Self::names();
        let accounts = names.clone().map(|name| house.account(&name).unwrap());
        if *users == 0 {
            accounts::change(&["groupadd", &Self::group_name()]);
            accounts::change(&["usermod", "-aG", &Self::group_name(), &accounts[0]]);
        }
        *users += 1;
        let group = nix::unistd::Group::from_name(&Self::group_name()).unwrap().unwrap().gid.as_raw();
        let [a, b] = accounts.map(|account| Identity::look_up(&account).unwrap());
        Self { a, b, group }
    }
}

impl Drop for People {
    fn drop(&mut self) {
        let mut users = PEOPLE.lock();
        *users -= 1;
        if *users == 0 {
            for name in [&self.a.name, &self.b.name] {
                accounts::remove(name);
            }
            accounts::change(&["groupdel", &Self::group_name()]);
        }
    }
}

pub fn system(arguments: &[&str]) {
    let output = Command::new(arguments[0]).args(&arguments[1..]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Directories, groups and helpers of one test; takes everything away at its end.
pub struct House {
    pub base: tempfile::TempDir,
    pub config: Config,
    pub launcher: Arc<Launcher>,
    helpers: Vec<Child>,
    /// Let go of when everything of theirs has ended.
    people: OnceLock<Arc<People>>,
}

impl House {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = |name: &str, mode| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (run, placements) = (directory("run", 0o711), directory("placements", 0o755));
        fs::write(base.path().join("agent.py"), AGENT).unwrap();
        let instance = &SessionId::new().short()[8..];
        let mut config = Config {
            run,
            placements,
            hierarchy: detect(instance),
            service_uid: SERVICE,
            service_gid: SERVICE,
            agent_command: vec!["/usr/bin/python3".into(), base.path().join("agent.py").into()],
            own_binary: "/proc/self/exe".into(),
            account_uids: ACCOUNT_UIDS,
            batch: None,
            sudo: None,
        };
        change(&mut config);
        let (launcher, child) = start_helper(&config);
        Self { base, config, launcher: Arc::new(launcher), helpers: vec![child], people: OnceLock::new() }
    }

    pub fn people(&self) -> Arc<People> {
        Arc::clone(self.people.get_or_init(|| Arc::new(People::borrow(self))))
    }

    pub fn account(&self, name: &str) -> Result<String, Error> {
        match self.launcher.ask(HelperRequest::Account { name: name.to_owned() })? {
            HelperAnswer::Account { unix_name } => Ok(unix_name),
            other => panic!("{other:?}"),
        }
    }

    pub fn run_directory(&self, session: SessionId) -> PathBuf {
        self.config.run.join(session.short())
    }

    pub fn request(&self, session: SessionId, person: &Identity, mut agent: Value) -> LaunchRequest {
        agent["run_directory"] = json!(self.run_directory(session));
        agent["session"] = json!(session);
        LaunchRequest {
            session,
            unix_name: person.name.clone(),
            limits: Limits { cpus: 1, memory_bytes: 256 << 20, processes: 64 },
            devices: DeviceAccess::default(),
            agent,
        }
    }

    pub fn launch(&self, session: SessionId, person: &Identity, agent: Value) -> Result<Placement, Error> {
        placed(&self.launcher, self.request(session, person, agent))
    }

    /// Launches and waits until the stand-in has told what it is.
    pub fn facts(&self, session: SessionId, person: &Identity, agent: Value) -> (Placement, Value) {
        let placement = self.launch(session, person, agent).unwrap();
        let file = self.run_directory(session).join("facts.json");
        until("the stand-in reports", || file.exists());
        (placement, serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap())
    }

    pub fn ask(&self, request: HelperRequest) -> Result<(), Error> {
        self.launcher.ask(request).map(drop)
    }

    pub fn second_helper(&mut self) -> Launcher {
        let (launcher, child) = start_helper(&self.config);
        self.helpers.push(child);
        launcher
    }

    /// Nothing of a session, the last one, is left: processes, groups, directories, files.
    pub fn assert_nothing_left(&self, session: SessionId) {
        let groups = self.config.hierarchy.groups(&session.short());
        assert!(!groups.iter().any(|group| group.exists()), "{groups:?}");
        // Slices of systemd are left to systemd.
        let theirs = matches!(self.config.hierarchy, Hierarchy::Systemd { .. });
        assert!(theirs || groups.iter().all(|group| !group.parent().unwrap().exists()), "{groups:?}");
        assert!(process::of_session(session, None).unwrap().is_empty());
        assert!(!self.run_directory(session).exists());
        assert_eq!(fs::read_dir(&self.config.placements).unwrap().count(), 0);
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // Run directories without a placement have no session to name; groups tell as well.
        for session in placement::list(&self.config.placements).unwrap_or_default().0 {
            let _ = self.ask(HelperRequest::Kill { session });
            let _ = self.ask(HelperRequest::Clean { session });
        }
        self.launcher = Arc::new(Launcher::Helper(None.into()));
        for helper in &mut self.helpers {
            let _ = helper.wait();
        }
    }
}

pub fn placed(launcher: &Launcher, request: LaunchRequest) -> Result<Placement, Error> {
    match launcher.ask(HelperRequest::Launch(request))? {
        HelperAnswer::Placed { placement } => Ok(placement),
        other => panic!("{other:?}"),
    }
}

fn start_helper(config: &Config) -> (Launcher, Child) {
    let (ours, child) = start_raw_helper(config);
    (Launcher::helper(ours).unwrap(), child)
}

pub fn start_raw_helper(config: &Config) -> (UnixStream, Child) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_lyceum"))
        .args(["helper", &serde_json::to_string(config).unwrap()])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (ours, child)
}

pub fn is_alive(placement: &Placement) -> bool {
    matches!(process::life(placement), Life::Alive(_))
}
