//! Slurm's accounts in the tests' cluster: a database server and slurmdbd of its own on free
//! ports; and what of the portal depends on them. Who cancelled a job, what an operator is shown
//! where jobs are hidden, and that the accounts' absence ends nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use lyceum::model::EndReason;
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, directory, ports, spawn},
    stage::Stage,
    whole,
};
use crate::{
    needs,
    wait::{eventually, until},
};

/// What they are made of; the packages are in `./test`.
const PROGRAMS: [&str; 4] =
    ["/usr/sbin/slurmdbd", "/usr/sbin/mariadbd", "/usr/bin/mariadb-install-db", "/usr/bin/sacctmgr"];

/// The database and the daemon before it.
pub struct Accounts {
    base: PathBuf,
    database: Child,
    daemon: Option<Child>,
    port: u16,
}

impl Accounts {
    /// Whether this machine has what it takes.
    pub fn are_possible() -> bool {
        let there = PROGRAMS.iter().all(|program| Path::new(program).exists());
        needs::met("Slurm's accounts (Debian: slurmdbd, mariadb-server)", there)
    }

    pub fn start(base: &Path) -> Self {
        let port = ports(2);
        let data = base.join("db");
        directory(&data, "mysql", 0o755);
        let socket = data.join("sock");
        // A server that begins clears away the temporary tables of its folder, which in /tmp are another test's too.
        let scratch = data.join("tmp");
        directory(&scratch, "mysql", 0o700);
        let options = [
            "--no-defaults".to_owned(),
            format!("--datadir={}", data.join("data").display()),
            format!("--tmpdir={}", scratch.display()),
            "--innodb-buffer-pool-size=64M".to_owned(),
            "--innodb-log-file-size=8M".to_owned(),
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
            "--innodb-lock-wait-timeout=900".to_owned(),
            "--performance-schema=0".to_owned(),
            "--skip-log-bin".to_owned(),
            "--user=mysql".to_owned(),
        ];
        let mut install = Command::new("/usr/bin/mariadb-install-db");
        install.args(&options).args(["--auth-root-authentication-method=socket", "--skip-test-db"]);
        let installed = install.output().unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let mut server = Command::new("/usr/sbin/mariadbd");
        server.args(&options).args([
            format!("--socket={}", socket.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--pid-file={}", data.join("pid").display()),
        ]);
        let database = spawn(base, &mut server);
        let sql = "create database slurm_acct_db; create user slurm@127.0.0.1 identified by 'of-a-test'; \
                   grant all on slurm_acct_db.* to slurm@127.0.0.1;";
        until("the database takes its users", || {
            let mut client = Command::new("/usr/bin/mariadb");
            client.arg("--no-defaults").arg(format!("--socket={}", socket.display())).args(["--execute", sql]);
            client.output().is_ok_and(|output| output.status.success())
        });
        let base_shown = base.display();
        let host = lyceum::helper::process::node().unwrap();
        let host = host.split('.').next().unwrap();
        let text = format!(
            "AuthType=auth/munge
AuthInfo=socket={base_shown}/munge/sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={}
SlurmUser=slurm
LogFile={base_shown}/log/slurmdbd.log
PidFile={base_shown}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=slurm
StoragePass=of-a-test
StorageLoc=slurm_acct_db
CommitDelay=1
CommunicationParameters=NoInAddrAny
",
            port + 1
        );
        let conf = base.join("etc/slurmdbd.conf");
        fs::write(&conf, text).unwrap();
        let user = nix::unistd::User::from_name("slurm").unwrap().unwrap();
        nix::unistd::chown(&conf, Some(user.uid), Some(user.gid)).unwrap();
        fs::set_permissions(&conf, fs::Permissions::from_mode(0o600)).unwrap();
        let mut accounts = Self { base: base.to_owned(), database, daemon: None, port: port + 1 };
        accounts.start_daemon();
        accounts
    }

    /// The lines of `slurm.conf`.
    pub fn lines(&self) -> String {
        format!(
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
             AccountingStoragePort={}\nAccountingStoragePass={}/munge/sock\nAccountingStorageTRES=gres/gpu\n",
            self.port,
            self.base.display()
        )
    }

    pub fn start_daemon(&mut self) {
        let _ = fs::remove_file(self.base.join("run/slurmdbd.pid"));
        self.daemon = Some(spawn(&self.base, Command::new("/usr/sbin/slurmdbd").arg("-D")));
        let port = self.port;
        until("the accounts answer", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        self.kill_daemon();
        let _ = self.database.kill();
        let _ = self.database.wait();
    }
}

/// Who ended a job is told by the accounts; while they are away nothing is lost, and where they
/// come back it is told again.
#[tokio::test]
async fn who_cancelled_and_accounts_that_are_away() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    let stage = Stage::on(cluster).await;
    let (session, placement) = stage.run("exec sleep 600").await;
    let number = placement.pid.to_string();
    stage.cluster().as_user(placement.uid, "scancel", &[&number]);
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::StoppedByOwner), "{exit:?}");

    let (session, placement) = stage.run("exec sleep 600").await;
    stage.cluster().accounts().kill_daemon();
    // What runs goes on, and what is new begins.
    let (other, of_other) = stage.run("exec sleep 600").await;
    assert_eq!(
        stage.scheduler.observe(session, &placement).await,
        lyceum::scheduler::Observation::Alive,
        "nobody needs the accounts for that"
    );
    stage.cluster().as_user(placement.uid, "scancel", &[&placement.pid.to_string()]);
    let exit = stage.ended(session, &placement).await;
    assert_eq!(exit.reason, Some(EndReason::StoppedByAdmin), "by whom is not known: {exit:?}");
    assert!(exit.detail.contains("does not report by whom"), "{exit:?}");

    stage.cluster().accounts().start_daemon();
    stage.cluster().as_user(of_other.uid, "scancel", &[&of_other.pid.to_string()]);
    let exit = stage.ended(other, &of_other).await;
    assert!(
        [Some(EndReason::StoppedByOwner), Some(EndReason::StoppedByAdmin)].contains(&exit.reason),
        "the accounts may still be catching up: {exit:?}"
    );
}

/// A portal whose account is an operator there sees what the site hides; each reader sees their own.
#[tokio::test]
async fn an_operator_sees_what_is_hidden() {
    let Some(cluster) = Cluster::with_accounts("PrivateData=jobs") else { return };
    cluster.tell("sacctmgr", &["--immediate", "add", "account", "lab", "cluster=test"]);
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let (_, house_id) = person.name.split_once('-').unwrap();
    // As `lyceum check` says it, of the portal's own account.
    let portal = format!("ly-s-{house_id}");
    cluster.tell("sacctmgr", &["--immediate", "add", "user", &portal, "account=lab", "adminlevel=operator"]);
    let mine = lyceum::helper::identity::Identity::facts(&format!("ly-n-{house_id}")).unwrap().uid;
    let theirs = lyceum::helper::identity::Identity::facts(&house.unix_account("m")).unwrap().uid;
    cluster.set_nodes("drain");
    cluster.submit(theirs, &["--job-name=theirs"]);
    cluster.submit(mine, &["--job-name=mine"]);
    let rows = eventually("one's own is there", async || {
        let (status, queue) = person.ask(&house, "GET", "/queue", &Value::Null).await;
        let rows = queue["items"].as_array().cloned().unwrap_or_default();
        (status == 200 && rows.len() == 1).then_some(rows)
    })
    .await;
    assert_eq!((&rows[0]["name"], &rows[0]["place"]), (&json!("mine"), &Value::Null), "a place tells of others");
    let all = house.admin().get(&house, "/queue?owner=*").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
    // And it starts sessions as anywhere.
    cluster.set_nodes("resume");
    let id = person.start(&house, json!({ "app": "web", "duration_seconds": 1800 })).await;
    person.state(&house, id, "running").await;
    // And may give one more time: Slurm's own limit is above the portal's.
    let limit = || {
        let limits = cluster.ask("squeue", &["--noheader", "--sort=i", "--Format", "timelimit"]);
        limits.lines().last().unwrap().trim().to_owned()
    };
    assert_eq!(limit(), "40:00");
    let (status, session) =
        person.ask(&house, "POST", &format!("/sessions/{id}/extend"), &json!({ "seconds": 3600 })).await;
    assert_eq!(status, 200, "{session}");
    let granted = limit();
    let minutes: i64 = granted.strip_prefix("1:").and_then(|rest| rest.split(':').next()?.parse().ok()).unwrap();
    assert!((40..43).contains(&minutes), "an hour more than 40 minutes: {granted}");
    person.end(&house, id).await;
}
