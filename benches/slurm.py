"""The rows about a cluster: what handing work in through the portal takes beside `sbatch`, how often
the controller is asked, and what an agent holds. Slurm itself is Debian's, four nodes on the loopback."""

import os
import pathlib
import pwd
import socket
import subprocess
import time
import uuid

from rows import in_turns, median, result, row
from stand import Server, free_port, until

NODES, CORES = 4, 250
#: Those of Slurm's commands that ask the controller something, whoever it is for.
ASKING = ("squeue", "sinfo", "scontrol", "sacct", "sacctmgr")
DOING = ("sbatch", "scancel", "srun")
#: How many jobs live while the controller's calls are counted.
SIZES = (1, 100, 1000)


class Slurm:
    """A cluster, and a directory of its commands that write down each call."""

    def __init__(self, stand):
        self.stand, self.base = stand, stand.directory("slurm")
        os.chown(self.base, 0, 0)
        self.env = {"SLURM_CONF": str(self.base / "slurm.conf"), "PATH": "/usr/sbin:/usr/bin:/bin", "LC_ALL": "C"}
        munge = self.owned("munge", "munge")
        for name in ("state", "log", "run"):
            self.owned(name, "slurm")
        (munge / "key").write_bytes(os.urandom(1024))
        os.chmod(munge / "key", 0o400)
        os.chown(munge / "key", pwd.getpwnam("munge").pw_uid, pwd.getpwnam("munge").pw_gid)
        self.configure(munge)
        words = [f"--{name}={munge / file}" for name, file in
                 (("socket", "sock"), ("key-file", "key"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        stand.keep(Server("munged", ["/usr/sbin/munged", "--foreground", *words], pwd.getpwnam("munge"), self.env))
        until("munge listens", (munge / "sock").exists)
        stand.keep(Server("slurmctld", ["/usr/sbin/slurmctld", "-D"], None, self.env, "/", self.base / "daemons"))
        for number in range(1, NODES + 1):
            stand.keep(Server("slurmd", ["/usr/sbin/slurmd", "-D", "-N", f"node{number}"], None, self.env, "/",
                              self.base / "daemons"))
        until("the nodes are idle", lambda: self.ask("sinfo", "--noheader", "--Node", "--states=idle").count("\n") == NODES)
        self.calls = stand.directory("slurm-calls")
        self.bin = stand.directory("slurm-bin")
        for name in (*ASKING, *DOING):
            path = self.bin / name
            path.write_text(f"#!/bin/sh\necho {name} >> {self.calls}/log\nexec /usr/bin/{name} \"$@\"\n")
            path.chmod(0o755)

    def owned(self, name, account):
        path = self.base / name
        path.mkdir(mode=0o755)
        os.chown(path, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
        return path

    def configure(self, munge):
        port, first = free_port(), 12_000 + os.getpid() % 1000 * 10
        for number in range(1, NODES + 1):
            (self.base / f"spool/node{number}").mkdir(parents=True)
        (self.base / "slurm.conf").write_text(
            f"ClusterName=bench\nSlurmctldHost={socket.gethostname().split('.')[0]}(127.0.0.1)\nSlurmctldPort={port}\n"
            f"SlurmUser=slurm\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={munge}/sock\nCredType=cred/munge\n"
            f"CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\nStateSaveLocation={self.base}/state\n"
            f"SlurmctldPidFile={self.base}/run/slurmctld.pid\nSlurmctldLogFile={self.base}/log/slurmctld\n"
            f"SlurmdPidFile={self.base}/run/%n.pid\nSlurmdLogFile={self.base}/log/%n\nSlurmdSpoolDir={self.base}/spool/%n\n"
            "SlurmdParameters=config_overrides\nSwitchType=switch/none\nMpiDefault=none\nMailProg=/bin/true\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nSchedulerType=sched/backfill\n"
            "PropagateResourceLimits=NONE\nReturnToService=2\nDefMemPerCPU=128\n"
            f"NodeName=node[1-{NODES}] NodeHostname={socket.gethostname().split('.')[0]} NodeAddr=127.0.0.1 "
            f"Port=[{first}-{first + NODES - 1}] CPUs={CORES} Boards=1 SocketsPerBoard=1 CoresPerSocket={CORES} "
            "ThreadsPerCore=1 RealMemory=65536 State=UNKNOWN\n"
            "PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP\n")

    def ask(self, tool, *words):
        return subprocess.run([f"/usr/bin/{tool}", *words], capture_output=True, text=True, env=self.env).stdout

    def submit(self, script):
        """Plain `sbatch`, as the account."""
        account = self.stand.account
        subprocess.run(
            ["/usr/bin/sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--mem=128M", "--cpus-per-task=1"],
            input=script, text=True, env=self.env, cwd="/", check=True, capture_output=True,
            user=account.pw_uid, group=account.pw_gid, extra_groups=[])

    def end(self):
        """Ends every job; the daemons go with the stand."""
        self.ask("scancel", f"--user={self.stand.account.pw_name}")
        until("the queue is empty", lambda: not self.ask("squeue", "--noheader"), 0.5)

    def asked(self):
        """How many questions the controller was asked since the start."""
        try:
            lines = (self.calls / "log").read_text().split()
        except FileNotFoundError:
            return 0
        return sum(line in ASKING for line in lines)


def agents(account):
    """Of each agent of this account, MB: resident, its own of that, and with what it shares divided (PSS)."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if not entry.isdigit() or b"agent" not in words or os.stat(f"/proc/{entry}").st_uid != account.pw_uid:
                continue
            lines = pathlib.Path(f"/proc/{entry}/smaps_rollup").read_text().splitlines()
            status = pathlib.Path(f"/proc/{entry}/status").read_text().splitlines()
        except OSError:
            continue
        value = lambda lines, name: sum(int(line.split()[1]) for line in lines if line.startswith(name + ":")) / 1024
        found.append((value(status, "VmRSS"), value(status, "RssAnon"), value(lines, "Pss")))
    return found


@row("slurm")
def slurm(stand, options):
    """From handing in to running beside `sbatch`; how often the controller is asked; an agent's memory. As root."""
    cluster = Slurm(stand)
    portal = stand.portal(config=(
        f'[scheduler]\nkind = "slurm"\n[scheduler.slurm]\nconf = "{cluster.base}/slurm.conf"\nbin = "{cluster.bin}"\n'))
    portal.admin("quota", "set", "default", "jobs=unlimited")
    said = stand.directory("said")
    small = {"gpus": 0, "cpus": 1, "memory_bytes": 128 << 20}

    def measure(name, _):
        path = said / str(uuid.uuid4())
        script = f"#!/bin/sh\n: > {path}\n"
        began = time.monotonic()
        if name == "sbatch":
            cluster.submit(script)
        else:
            portal.api("POST", "/jobs", {"script": script, "resources": small, "time_limit_seconds": 600})
        until("it runs", path.exists, 0.002)
        took = time.monotonic() - began
        until("the queue is empty", lambda: not cluster.ask("squeue", "--noheader"), 0.05)
        return took

    found = in_turns(max(options.rounds, 5), {"sbatch": None, "Lyceum": None}, measure)
    over = median([mine - plain for mine, plain in zip(found["Lyceum"], found["sbatch"])])
    yield result("from handing in to the script's first line, on an idle cluster", f"{median(found['Lyceum']) * 1000:.0f} ms",
                 f"sbatch {median(found['sbatch']) * 1000:.0f} ms", f"{over * 1000:+.0f} ms")

    try:
        live, seconds = 0, options.seconds * 20
        for size in SIZES:
            for _ in range(live, size):
                portal.api("POST", "/jobs", {"command": ["/bin/sleep", "100000"], "resources": small,
                                             "time_limit_seconds": 86400})
            live = size
            until("all run", lambda: cluster.ask("squeue", "--noheader", "--states=running").count("\n") == size, 0.5, 1800)
            held = until("each has its agent", lambda: len(found := agents(stand.account)) >= size and found, 1)
            before, cpu = cluster.asked(), portal.cpu()
            time.sleep(seconds)
            rate = (cluster.asked() - before) * 60 / seconds
            yield result(f"questions to the controller a minute, {size} jobs running", f"{rate:.0f}",
                         f"{(portal.cpu() - cpu) / seconds * 100:.1f} % of a core for the portal", "")
            if size == SIZES[1]:
                resident, own, divided = (median(one) for one in zip(*held))
                yield result(f"an agent, of {len(held)}: memory of its own", f"{own:.1f} MB",
                             f"with pages of the program's file {resident:.1f} MB, divided by who shares them {divided:.1f} MB", "")
    finally:
        cluster.end()
