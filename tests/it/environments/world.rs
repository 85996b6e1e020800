//! What the tests of environments stand on: a folder, the builder as a process of an
//! ordinary user, tiny wheels, and a package index that can be held up.

#![expect(clippy::print_stdout, reason = "the builder's process tells its parent through standard output")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use lyceum::{
    environments::{Config, EnvironmentPaths, Environments, Recipe, closed_to_others},
    model::Clock,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt;

/// `nobody`: builds when the tests are run by root.
const BUILDER: u32 = 65_534;

const DEADLINE: Duration = Duration::from_mins(2);

const ORDER: &str = "LYCEUM_TEST_ORDER";

/// What a builder is told, as JSON in its environment.
#[derive(Clone, Serialize, Deserialize)]
pub struct Order {
    pub shared: PathBuf,
    pub cache: PathBuf,
    pub build: String,
    pub python: String,
    pub wheels: String,
    pub requirements: String,
    pub imports: Vec<String>,
    pub disk_bytes: u64,
    pub cuda: Option<(u32, u32)>,
    /// More of the configuration: `[[list]]` and what follows.
    pub listed: String,
    pub variables: Vec<(String, String)>,
    pub maintain: bool,
    /// Bytes; a limit on the size of files, where no small disk can be mounted.
    pub largest_file: Option<u64>,
    /// The builder has no network at all, not even a loopback.
    pub without_network: bool,
}

impl Order {
    /// The order of a process that [`World::build`] started.
    #[expect(clippy::disallowed_methods, reason = "a test's own message to a copy of itself")]
    pub fn of_this_process() -> Option<Self> {
        std::env::var(ORDER).ok().map(|text| serde_json::from_str(&text).unwrap())
    }
}

/// Carries out an order and tells every state on standard output; a line on standard input
/// asks for another try.
pub async fn build_here(order: Order) {
    let config = format!(
        "build = {:?}\npython = {:?}\nwheels = {:?}\n{}",
        order.build, order.python, order.wheels, order.listed
    );
    let config: Config = toml::from_str(&config).unwrap();
    let place = EnvironmentPaths {
        shared: order.shared,
        cache: order.cache,
        everybody: true,
        variables: order.variables,
        cuda: order.cuda,
    };
    let recipe = Recipe {
        requirements: order.requirements.into(),
        is_accelerated: order.cuda.is_some(),
        imports: order.imports,
        commands: Vec::new(),
        disk_bytes: order.disk_bytes,
        ..Recipe::default()
    };
    let environments = Environments::new(config, place, recipe, Clock::System);
    let mut watched = environments.subscribe();
    let tell = async {
        loop {
            let line = serde_json::to_string(&watched.borrow_and_update()[0]).unwrap();
            println!("\n@{line}");
            watched.changed().await.unwrap();
        }
    };
    if order.maintain {
        let mut input = tokio::io::BufReader::new(tokio::io::stdin()).lines();
        let listen = async {
            while input.next_line().await.unwrap().is_some() {
                environments.retry();
            }
        };
        let loops = lyceum::model::Loops::default();
        tokio::select! {
            () = environments.maintain(&loops) => (),
            () = tell => (),
            () = listen => (),
        }
    } else {
        tokio::select! {
            _ = environments.attempt_all() => (),
            () = tell => (),
        }
        // The default one last: the builder's states end with it.
        for environment in environments.list().iter().rev() {
            println!("\n@{}", serde_json::to_string(environment).unwrap());
        }
    }
}

/// A folder for one test, and who builds in it.
pub struct World {
    folder: TempDir,
    mounted: Mutex<Option<PathBuf>>,
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("ly-test-").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let world = Self { folder, mounted: Mutex::default() };
        for name in ["shared", "cache"] {
            fs::create_dir(world.path(name)).unwrap();
            give_to_builder(&world.path(name));
        }
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn environments(&self) -> PathBuf {
        self.path("shared/environments")
    }

    /// The directories of environments, whole or not.
    pub fn built(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.environments()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
    }

    pub fn order(&self, requirements: &[&str], imports: &[&str]) -> Order {
        Order {
            shared: self.path("shared"),
            cache: self.path("cache"),
            build: "auto".to_owned(),
            python: "auto".to_owned(),
            wheels: String::new(),
            requirements: requirements.join("\n"),
            imports: imports.iter().map(|&import| import.to_owned()).collect(),
            disk_bytes: 0,
            cuda: None,
            listed: String::new(),
            variables: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            maintain: false,
            largest_file: None,
            without_network: false,
        }
    }

    /// Starts a builder.
    pub fn build(&self, order: &Order) -> Builder {
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let id = BUILDER.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
            command.arg(self.reachable_program());
            command
        } else {
            Command::new(self.reachable_program())
        };
        if let Some(bytes) = order.largest_file {
            let mut limited = Command::new("prlimit");
            limited.arg(format!("--fsize={bytes}")).arg(command.get_program()).args(command.get_args());
            command = limited;
        }
        if order.without_network {
            let mut apart = without_network();
            apart.arg(command.get_program()).args(command.get_args());
            command = apart;
        }
        let mut child = command
            .args(["--exact", "environments::builder", "--nocapture"])
            .env(ORDER, serde_json::to_string(order).unwrap())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, states) = mpsc::channel();
        thread::spawn(move || {
            while let Some(Ok(line)) = output.next() {
                // A test that has seen enough listens no more.
                if let Some(json) = line.strip_prefix('@') {
                    _ = sender.send(serde_json::from_str(json).unwrap());
                }
            }
        });
        Builder { child, input, states }
    }

    /// This program, where the builder can execute it: a checkout may lie in a closed home.
    fn reachable_program(&self) -> PathBuf {
        let program = std::env::current_exe().unwrap();
        if !is_root() || closed_to_others(&program).is_none() {
            return program;
        }
        let copy = self.path("it");
        if !copy.exists() && fs::hard_link(&program, &copy).is_err() {
            fs::copy(program, &copy).unwrap();
        }
        copy
    }

    /// A tool that a builder of this world started, by its working directory.
    pub fn tool(&self) -> Option<u32> {
        let cache = self.path("cache").canonicalize().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.find(|id| fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|folder| folder == cache))
    }

    /// Wheels that hold a module with its own name in `NAME` and as many bytes as asked;
    /// the folder they lie in.
    pub fn wheels(&self, names: &[&str], bytes: usize) -> String {
        const SCRIPT: &str = "
import sys, zipfile
folder, size, *names = sys.argv[1:]
for name in names:
    name, _, version = name.partition('==')
    version = version or '1.0'
    info = f'{name}-{version}.dist-info/'
    files = {
        f'{name}/__init__.py': f'NAME, VERSION = {name!r}, {version!r}\\n',
        f'{name}/data': b'x' * int(size),
        info + 'METADATA': f'Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n',
        info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
    }
    files[info + 'RECORD'] = ''.join(f'{path},,\\n' for path in files) + info + 'RECORD,,\\n'
    with zipfile.ZipFile(f'{folder}/{name}-{version}-py3-none-any.whl', 'w', zipfile.ZIP_DEFLATED) as wheel:
        for path, contents in files.items():
            wheel.writestr(path, contents)
";
        let folder = self.path("wheels");
        fs::create_dir_all(&folder).unwrap();
        let done = Command::new("/usr/bin/python3")
            .args(["-c", SCRIPT])
            .arg(&folder)
            .arg(bytes.to_string())
            .args(names)
            .status()
            .unwrap();
        assert!(done.success());
        folder.display().to_string()
    }

    /// Puts `shared` on a disk of 24 MiB, where this machine lets us.
    pub fn mount_small_disk(&self) -> bool {
        let place = self.path("shared");
        let options = format!("size=24m,mode=0755,uid={}", builder_uid());
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "ly-test"])
            .arg(&place)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if mounted {
            *self.mounted.lock().unwrap() = Some(place);
        }
        mounted
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(place) = self.mounted.lock().unwrap().take() {
            _ = Command::new("umount").arg(place).status();
        }
    }
}

/// A builder's process; killed (with signal 9) when it is dropped.
pub struct Builder {
    child: Child,
    input: ChildStdin,
    states: Receiver<Value>,
}

impl Builder {
    fn next(&self) -> Option<Value> {
        match self.states.recv_timeout(DEADLINE) {
            Ok(state) => Some(state),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the builder says nothing"),
        }
    }

    /// Every state that it told.
    pub fn states(self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }

    pub fn wait_for(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        std::iter::from_fn(|| self.next()).find(wanted).expect("the builder ended first")
    }

    pub fn wait_for_step(&self, step: &str) {
        self.wait_for(|state| state["step"] == step);
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A package index over a folder of wheels.
pub struct Index {
    address: SocketAddr,
    shared: Arc<(Mutex<Traffic>, Condvar)>,
}

#[derive(Default)]
struct Traffic {
    asked: BTreeMap<String, usize>,
    /// Requests with this in their path wait.
    held: Option<String>,
    /// Connections are closed without an answer.
    hung_up: bool,
}

impl Index {
    pub fn start(wheels: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new((Mutex::new(Traffic::default()), Condvar::new()));
        let (folder, traffic) = (PathBuf::from(wheels), shared.clone());
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (folder, traffic) = (folder.clone(), traffic.clone());
                // A client that went away is its own business.
                thread::spawn(move || _ = serve(connection, &folder, &traffic));
            }
        });
        Self { address, shared }
    }

    /// What makes pip ask here alone.
    pub fn variable(&self) -> (String, String) {
        ("PIP_INDEX_URL".to_owned(), format!("http://{}/simple", self.address))
    }

    /// The order with this index as the only one.
    pub fn used_by(&self, mut order: Order) -> Order {
        order.variables.push(self.variable());
        order
    }

    pub fn hold(&self, part: &str) {
        self.shared.0.lock().unwrap().held = Some(part.to_owned());
    }

    pub fn release(&self) {
        self.shared.0.lock().unwrap().held = None;
        self.shared.1.notify_all();
    }

    pub fn hang_up(&self, hung_up: bool) {
        self.shared.0.lock().unwrap().hung_up = hung_up;
    }

    pub fn asked(&self, path: &str) -> usize {
        self.shared.0.lock().unwrap().asked.get(path).copied().unwrap_or(0)
    }

    /// Waits until somebody asks for this path.
    pub fn wait_for(&self, path: &str) {
        let traffic = self.shared.0.lock().unwrap();
        let (traffic, late) =
            self.shared.1.wait_timeout_while(traffic, DEADLINE, |traffic| !traffic.asked.contains_key(path)).unwrap();
        assert!(!late.timed_out(), "{:?}", traffic.asked);
    }
}

fn serve(mut connection: TcpStream, folder: &Path, shared: &(Mutex<Traffic>, Condvar)) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    {
        let mut traffic = shared.0.lock().unwrap();
        *traffic.asked.entry(path.clone()).or_default() += 1;
        shared.1.notify_all();
        if traffic.hung_up {
            return Ok(());
        }
        drop(
            shared
                .1
                .wait_while(traffic, |traffic| traffic.held.as_ref().is_some_and(|held| path.contains(held)))
                .unwrap(),
        );
    }
    let mut body = Vec::new();
    if let Some(name) = path.strip_prefix("/simple/") {
        let name = name.trim_matches('/').replace('-', "_");
        let wheel = format!("{name}-1.0-py3-none-any.whl");
        if folder.join(&wheel).exists() {
            body = format!("<a href=\"/files/{wheel}\">{wheel}</a>").into_bytes();
        }
    } else if let Some(name) = path.strip_prefix("/files/") {
        fs::File::open(folder.join(name))?.read_to_end(&mut body)?;
    }
    let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
    let kind = if path.starts_with("/simple") { "text/html" } else { "application/octet-stream" };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    connection.write_all(&body)
}

/// The beginning of a command that runs where no network is.
fn without_network() -> Command {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-current-user"]);
    }
    command.args(["--net", "--"]);
    command
}

pub fn can_part_from_the_network() -> bool {
    without_network().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What this machine needs to reach its package index.
pub fn network_variables() -> Vec<(String, String)> {
    let wanted = |name: &str| {
        let upper = name.to_uppercase();
        upper.ends_with("_PROXY")
            || upper.starts_with("PIP_")
            || upper.starts_with("UV_")
            || upper.starts_with("SSL_CERT_")
    };
    let own = std::env::vars().filter(|(name, _)| wanted(name));
    own.chain([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]).collect()
}

/// What a program prints when this user runs it (root's tests become that user first).
pub fn output_as(uid: u32, program: &Path, arguments: &[&str]) -> String {
    let mut command = if is_root() && uid != 0 {
        let mut command = Command::new("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    let output = command.args(arguments).current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a process runs; a zombie that waits for pid 1 does not.
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("State:") && !line.contains('Z')))
}

/// Who builds.
pub fn builder_uid() -> u32 {
    if is_root() { BUILDER } else { own_uid() }
}

pub fn give_to_builder(path: &Path) {
    chown(path, Some(builder_uid()), None).unwrap();
}

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid()
}

fn is_root() -> bool {
    own_uid() == 0
}
