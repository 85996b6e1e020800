//! A Slurm cluster of a test's own on this machine: Debian's daemons, four nodes with two
//! counted GPUs each, a munge of its own, everything on free ports of the loopback and below one
//! directory. It is up within a second or two and ends what it started, by the very processes.

use std::{
    fmt::Write,
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
};

use lyceum::helper::{batch::Tools, process};
use nix::{
    sys::{
        signal::{Signal, kill},
        stat::{Mode, SFlag, mknod},
    },
    unistd::Pid,
};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tempfile::TempDir;

use super::accounts::Accounts;
use crate::{needs, wait::until};

const NODES: usize = 4;

/// What the daemons are made of; the packages are in `./test`.
const PROGRAMS: [&str; 6] = [
    "/usr/sbin/slurmctld",
    "/usr/sbin/slurmd",
    "/usr/sbin/munged",
    "/usr/bin/sbatch",
    "/usr/bin/scancel",
    "/usr/bin/squeue",
];

pub struct Cluster {
    base: TempDir,
    munge: Child,
    controller: Mutex<Child>,
    nodes: Mutex<Vec<Child>>,
    accounts: Mutex<Option<Accounts>>,
}

impl Cluster {
    /// A cluster whose nodes are idle; `None` where the machine lacks what it takes.
    pub fn start() -> Option<Self> {
        Self::with("")
    }

    /// The same, with further lines of `slurm.conf`.
    pub fn with(more: &str) -> Option<Self> {
        Self::build(more, false)
    }

    /// The same, with accounts.
    pub fn with_accounts(more: &str) -> Option<Self> {
        Accounts::are_possible().then(|| Self::build(more, true)).flatten()
    }

    fn build(more: &str, has_accounts: bool) -> Option<Self> {
        let there = || PROGRAMS.iter().all(|program| Path::new(program).exists());
        if !needs::root() || !needs::met("Slurm (Debian: slurmctld, slurmd, slurm-client, munge)", there()) {
            return None;
        }
        let base = tempfile::Builder::new().prefix("ly-slurm-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let munge = start_munge(base.path());
        fs::create_dir_all(base.path().join("etc")).unwrap();
        for name in ["state", "log", "run"] {
            directory(&base.path().join(name), "slurm", 0o755);
        }
        let accounts = has_accounts.then(|| Accounts::start(base.path()));
        let of_accounts = accounts.as_ref().map(Accounts::lines).unwrap_or_default();
        write_configuration(base.path(), &format!("{of_accounts}{more}"));
        let controller = Mutex::new(spawn(base.path(), Command::new("/usr/sbin/slurmctld").arg("-D")));
        let cluster = Self { base, munge, controller, nodes: Mutex::default(), accounts: Mutex::new(accounts) };
        let pid_file = cluster.path("run/slurmctld.pid");
        until("the controller runs", || fs::read_to_string(&pid_file).is_ok_and(|pid| !pid.trim().is_empty()));
        for number in 1..=NODES {
            cluster.start_node(number);
        }
        until("all nodes are idle", || {
            cluster.ask("sinfo", &["--noheader", "--Node", "--partition=debug", "--states=idle"]).lines().count()
                == NODES
        });
        Some(cluster)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub fn conf(&self) -> PathBuf {
        self.path("etc/slurm.conf")
    }

    /// Makes a folder with Slurm's commands, in which those that are named are programs of the test's.
    pub fn commands(own: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::Builder::new().prefix("ly-commands-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for tool in ["sbatch", "scancel", "sinfo", "squeue", "scontrol", "sacct", "sacctmgr", "srun"] {
            symlink(format!("/usr/bin/{tool}"), folder.path().join(tool)).unwrap();
        }
        for (tool, text) in own {
            Self::replace(&folder, tool, text);
        }
        folder
    }

    /// Puts a program of the test's in the place of a command.
    pub fn replace(commands: &TempDir, tool: &str, text: &str) {
        let path = commands.path().join(tool);
        fs::remove_file(&path).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What the helper runs.
    pub fn tools(&self) -> Tools {
        Tools { sbatch: "/usr/bin/sbatch".into(), scancel: "/usr/bin/scancel".into(), conf: Some(self.conf()) }
    }

    /// One of Slurm's commands, as root.
    pub fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(tool);
        command.args(arguments).env("SLURM_CONF", self.conf()).env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
        command
    }

    /// What a command says to root.
    pub fn ask(&self, tool: &str, arguments: &[&str]) -> String {
        let output = self.command(tool, arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command of root's that has to succeed.
    pub fn tell(&self, tool: &str, arguments: &[&str]) {
        let output = self.command(tool, arguments).output().unwrap();
        assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A field of a job, as `squeue` tells it.
    pub fn field(&self, job: i32, field: &str) -> String {
        let (job, field) = (format!("--jobs={job}"), format!("{field}:|"));
        self.ask("squeue", &["--noheader", "--states=all", &job, "--Format", &field])
            .trim_end_matches(['|', '\n'])
            .to_owned()
    }

    /// Hands in a job that lasts, as this uid; answers its number.
    pub fn submit(&self, uid: u32, options: &[&str]) -> i32 {
        self.submit_script(uid, options, "#!/bin/sh\nexec sleep 600\n")
    }

    pub fn submit_script(&self, uid: u32, options: &[&str], text: &str) -> i32 {
        let script = self.path(&format!("job-{uid}"));
        fs::write(&script, text).unwrap();
        let uid_option = format!("--reuid={uid}");
        let mut words = vec![uid_option.as_str(), "--regid=65534", "--clear-groups", "sbatch", "--parsable"];
        words.extend(["--chdir=/", "--output=/dev/null"]);
        words.extend(options);
        let output = self.command("setpriv", &words).stdin(fs::File::open(script).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_err| panic!("{said}"))
    }

    /// One of Slurm's commands, as this uid; it has to succeed.
    pub fn as_user(&self, uid: u32, tool: &str, arguments: &[&str]) {
        let uid = format!("--reuid={uid}");
        let who = [uid.as_str(), "--regid=65534", "--clear-groups", tool];
        self.tell("setpriv", &[&who[..], arguments].concat());
    }

    pub fn accounts(&self) -> MappedMutexGuard<'_, Accounts> {
        MutexGuard::map(self.accounts.lock(), |accounts| accounts.as_mut().expect("a cluster with accounts"))
    }

    pub fn set_node(&self, number: usize, state: &str) {
        let node = format!("nodename={}", node(number));
        self.tell("scontrol", &["update", &node, &format!("state={state}"), "reason=test"]);
    }

    pub fn set_nodes(&self, state: &str) {
        (1..=NODES).for_each(|number| self.set_node(number, state));
    }

    /// The controller takes no more breath until [`Cluster::resume_controller`].
    pub fn stop_controller(&self) {
        signal(&self.controller.lock(), Signal::SIGSTOP);
    }

    pub fn resume_controller(&self) {
        signal(&self.controller.lock(), Signal::SIGCONT);
    }

    /// As a power loss ends it.
    pub fn kill_controller(&self) {
        let mut controller = self.controller.lock();
        controller.kill().unwrap();
        controller.wait().unwrap();
    }

    pub fn start_controller(&self) {
        *self.controller.lock() = spawn(self.base.path(), Command::new("/usr/sbin/slurmctld").arg("-D"));
        until("the controller answers", || self.ask("scontrol", &["ping"]).contains("UP"));
    }

    pub fn kill_node(&self, number: usize) {
        let mut nodes = self.nodes.lock();
        nodes[number - 1].kill().unwrap();
        nodes[number - 1].wait().unwrap();
    }

    /// Starts the daemon of a node, for the first time or again.
    pub fn start_node(&self, number: usize) {
        let child = spawn(self.base.path(), Command::new("/usr/sbin/slurmd").args(["-D", "-N", &node(number)]));
        let mut nodes = self.nodes.lock();
        match nodes.get_mut(number - 1) {
            Some(before) => *before = child,
            None => nodes.push(child),
        }
        drop(nodes);
        let pid_file = self.path(&format!("run/slurmd.{}.pid", node(number)));
        until("the node's daemon runs", || fs::read_to_string(&pid_file).is_ok_and(|pid| !pid.trim().is_empty()));
    }

    /// Processes that have this cluster's configuration in their environment: its jobs, and
    /// those who look after them.
    fn leftovers(&self) -> Vec<i32> {
        let mark = format!("SLURM_CONF={}", self.conf().display());
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let own = i32::try_from(std::process::id()).unwrap();
            *pid != own && environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
        };
        let lives = |pid: &i32| process::stat(*pid).ok().flatten().is_some_and(|stat| !stat.is_zombie());
        pids.filter(is_ours).filter(lives).collect()
    }
}

impl Cluster {
    /// Says how the cluster stands, for a test that fails.
    fn describe(&self) {
        eprintln!("the cluster's jobs:\n{}", self.ask("squeue", &["--all", "--states=all", "--steps"]));
        eprintln!("{}", self.ask("scontrol", &["show", "jobs"]));
        eprintln!("{}", self.ask("sinfo", &["--Node", "--long"]));
        let log = fs::read_to_string(self.path("daemons.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(60).collect();
        eprintln!("its daemons:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        for pid in self.leftovers() {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let words = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            eprintln!("process {pid} ({}): {words}", String::from_utf8_lossy(&read("wchan")));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The dead take no signals, and need none.
        self.resume_controller();
        if std::thread::panicking() {
            self.describe();
        }
        let mut daemons = vec![&mut self.munge, self.controller.get_mut()];
        daemons.extend(self.nodes.get_mut().iter_mut());
        for daemon in daemons.into_iter().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // Each round ends what the one before has set free; the accounts go next.
        for _round in 0..500 {
            let leftovers = self.leftovers();
            if leftovers.is_empty() {
                break;
            }
            for pid in leftovers {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            process::pause(std::time::Duration::from_millis(10));
        }
    }
}

fn node(number: usize) -> String {
    format!("node{number}")
}

fn signal(child: &Child, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal);
}

/// A daemon in the foreground, whose words go to a log.
pub fn spawn(base: &Path, command: &mut Command) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(base.join("daemons.log")).unwrap();
    command.env("SLURM_CONF", base.join("etc/slurm.conf")).current_dir("/").stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

pub fn directory(path: &Path, owner: &str, mode: u32) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let user = nix::unistd::User::from_name(owner).unwrap().unwrap();
    nix::unistd::chown(path, Some(user.uid), Some(user.gid)).unwrap();
}

fn start_munge(base: &Path) -> Child {
    directory(&base.join("munge"), "munge", 0o755);
    let munge = base.join("munge");
    let key = munge.join("key");
    fs::write(&key, rand_bytes()).unwrap();
    let user = nix::unistd::User::from_name("munge").unwrap().unwrap();
    nix::unistd::chown(&key, Some(user.uid), Some(user.gid)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
    let file = |option: &str, name: &str| format!("--{option}={}", munge.join(name).display());
    let options = [
        file("socket", "sock"),
        file("key-file", "key"),
        file("pid-file", "pid"),
        file("log-file", "log"),
        file("seed-file", "seed"),
    ];
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=munge", "--regid=munge", "--clear-groups", "/usr/sbin/munged", "--foreground"])
        .args(options);
    let child = spawn(base, &mut command);
    until("munge listens", || munge.join("sock").exists() && munge.join("pid").exists());
    child
}

/// A key that no other cluster has.
fn rand_bytes() -> Vec<u8> {
    let id = || lyceum::model::SessionId::new().to_string().into_bytes();
    std::iter::repeat_with(id).take(8).flatten().collect()
}

/// So many ports in a row that nobody has: below those of outgoing connections, and never the
/// same for two clusters of this process.
pub fn ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() % 1000).unwrap() * 10;
    loop {
        let first = 12_000 + (begin + NEXT.fetch_add(count, Ordering::Relaxed)) % 20_000;
        if (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
}

fn write_configuration(base: &Path, more: &str) {
    let port = ports(u16::try_from(NODES).unwrap() + 1);
    let host = process::node().unwrap();
    let host = host.split('.').next().unwrap();
    let mut gpus = String::new();
    for number in 1..=NODES {
        fs::create_dir_all(base.join("spool").join(node(number))).unwrap();
        let devices = base.join("dev").join(node(number));
        fs::create_dir_all(&devices).unwrap();
        for gpu in 0..2 {
            // With the numbers of NVIDIA's devices, and no driver behind them.
            let (file, minor) = (devices.join(format!("nvidia{gpu}")), u64::try_from(number * 16 + gpu).unwrap());
            let number = nix::sys::stat::makedev(195, minor);
            mknod(&file, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), number).unwrap();
        }
        writeln!(gpus, "NodeName={} Name=gpu Type=a100 File={}/nvidia[0-1]", node(number), devices.display()).unwrap();
    }
    fs::write(base.join("etc/gres.conf"), gpus).unwrap();
    let base_shown = base.display();
    let (first, last) = (port + 1, port + u16::try_from(NODES).unwrap());
    // Where a test has its own word on something, Slurm must not find two.
    let word = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
    let own: Vec<String> = more.lines().map(word).filter(|word| word != "PartitionName").collect();
    let text = format!(
        "ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base_shown}/munge/sock
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={base_shown}/state
SlurmctldPidFile={base_shown}/run/slurmctld.pid
SlurmctldLogFile={base_shown}/log/slurmctld.log
SlurmdPidFile={base_shown}/run/slurmd.%n.pid
SlurmdLogFile={base_shown}/log/slurmd.%n.log
SlurmdSpoolDir={base_shown}/spool/%n
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
PropagateResourceLimits=NONE
ReturnToService=2
MinJobAge=300
KillWait=3
UnkillableStepTimeout=20
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
Waittime=0
DefMemPerCPU=256
GresTypes=gpu
RebootProgram=/bin/true
"
    );
    let kept = text.lines().filter(|line| !own.contains(&word(line)));
    let mut text: String = kept.flat_map(|line| [line, "\n"]).collect();
    writeln!(
        text,
        "NodeName=node[1-{NODES}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 Boards=1 \
         SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4096 Gres=gpu:a100:2 State=UNKNOWN\n\
         PartitionName=debug Nodes=ALL Default=YES MaxTime=1:00:00 DefaultTime=10:00 State=UP\n\
         PartitionName=small Nodes=node1 MaxTime=5:00 State=UP\n{more}"
    )
    .unwrap();
    fs::write(base.join("etc/slurm.conf"), text).unwrap();
}
