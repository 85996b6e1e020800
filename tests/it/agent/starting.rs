//! How apps start: their environment and descriptors, readiness, the home they find, and
//! what is said when one of these fails.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use lyceum::protocol::{ExitCause, Phase, ReadyProbe, files};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{Agent, Given, Program, eventually, lives, numbers, site_app};
use crate::{needs, wait::PATIENCE};

const HTTP_ON_A_SOCKET: &str = r#"
import http.server, os, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        other = int(sys.argv[3]) if len(sys.argv) > 3 else 503
        self.send_response(200 if os.path.exists(sys.argv[2]) else other)
        self.end_headers()
        open(sys.argv[2] + ".asked", "w").write(self.path + " " + str(self.headers["authorization"]))
    def address_string(self):
        return "somebody"
socketserver.UnixStreamServer(sys.argv[1], Handler).serve_forever()
"#;

#[tokio::test]
async fn the_environment_is_what_was_asked_for_and_nothing_leaks_in() {
    let given = Given::script(
        "env -0 > env; for n in 3 4 5 6 7 8 9 10; do [ -e /proc/$$/fd/$n ] && echo leak $n; done; readlink \
         /proc/$$/fd/0",
    );
    let mut expected = given.launch.app.environment.clone();
    // Whoever starts the agent has a descriptor and variables that nobody should see.
    let mut leaky = Command::new("/bin/sh");
    leaky.args(["-c", "umask 077; exec 7</etc/passwd 9>/dev/null; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_lyceum")]);
    leaky.env("SECRET", "s3cret");
    let mut agent = given.start_as(leaky);
    let record = agent.exited().await;
    assert_eq!((record.cause, record.exit_code), (ExitCause::App, Some(0)), "{}", record.detail);
    assert_eq!(agent.log(), "/dev/null\n");
    for name in [files::LOG, files::EXIT] {
        let mode = fs::metadata(agent.file(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "the portal's group reads {name} whatever the umask");
    }
    let environment = fs::read_to_string(agent.home("env")).unwrap();
    let mut seen: Vec<&str> = environment.split_terminator('\0').collect();
    seen.sort_unstable();
    // Our own program is found behind everything else.
    let ours = Path::new(env!("CARGO_BIN_EXE_lyceum")).parent().unwrap().to_str().unwrap();
    expected.get_mut("PATH").unwrap().extend([":", ours]);
    expected.insert("LYCEUM_BIN".to_owned(), ours.to_owned());
    // The shell itself sets this one.
    expected.insert("PWD".to_owned(), agent.given.home.path().to_str().unwrap().to_owned());
    let mut expected: Vec<String> = expected.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    expected.sort_unstable();
    seen.retain(|variable| !["_=", "OLDPWD=", "SHLVL="].iter().any(|own| variable.starts_with(own)));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn ready_when_the_app_answers_below_500() {
    let mut given = Given::new(&site_app(&["/usr/bin/python3", "-c", HTTP_ON_A_SOCKET, "{socket}", "{home}/ok"]));
    given.launch.app.ready.as_mut().unwrap().authorization = Some("token s3cret".to_owned());
    let mut agent = given.start();
    let asked = agent.home("ok.asked");
    eventually("a question", async || asked.exists().then_some(())).await;
    let status = agent.status().await;
    assert_eq!((status.phase, status.step.as_str()), (Phase::Starting, "waiting for the app to respond"));
    fs::write(agent.home("ok"), "").unwrap();
    eventually("ready", async || (agent.status().await.phase == Phase::Ready).then_some(())).await;
    let mode = |name| fs::metadata(agent.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(files::APP_SOCKET), mode(files::AGENT_SOCKET), mode(files::LOG)), (0o660, 0o660, 0o640));
    assert_eq!(fs::read_to_string(asked).unwrap(), format!("{} token s3cret", agent.base()));
    agent.terminate();
    assert_eq!(agent.exited().await.cause, ExitCause::Asked);
}

#[tokio::test]
async fn an_error_page_is_not_the_app() {
    for (status, secret, statuses, said) in [
        ("403", Some("token s3cret"), vec![], "does not accept the token that the portal gave it (status 403)"),
        ("302", Some("token s3cret"), vec![200], "does not accept the token that the portal gave it (status 302)"),
        ("404", None, vec![200], "was not ready within 2 seconds: it returns status"),
    ] {
        let words = ["/usr/bin/python3", "-c", HTTP_ON_A_SOCKET, "{socket}", "{home}/never", status];
        let mut given = Given::new(&site_app(&words));
        let ready = given.launch.app.ready.as_mut().unwrap();
        ready.authorization = secret.map(str::to_owned);
        (ready.statuses, ready.timeout_seconds) = (statuses, if secret.is_some() { 60 } else { 2 });
        let begun = Instant::now();
        let record = given.start().exited().await;
        assert_eq!(record.cause, ExitCause::LaunchFailed, "{}", record.detail);
        assert!(record.detail.contains(said), "{}", record.detail);
        assert!(begun.elapsed() < Duration::from_secs(50), "who refuses its own secret does so for ever");
    }
}

#[tokio::test]
async fn a_login_shell_that_is_not_there_is_exchanged_everywhere() {
    let mut given = Given::script("echo shell $SHELL");
    given.launch.app.environment.insert("SHELL".to_owned(), "/usr/bin/zsh-not-here".to_owned());
    let mut agent = given.start();
    agent.exited().await;
    let log = agent.log();
    assert!(log.contains("/usr/bin/zsh-not-here is missing") && log.contains("shell /bin/bash\n"), "{log}");
    // A directory, or a file that is no program, is no better.
    for (shell, used) in
        [("/etc", "/bin/bash"), ("/etc/passwd", "/bin/bash"), ("bash", "/bin/bash"), ("/bin/sh", "/bin/sh")]
    {
        let mut given = Given::script("echo shell $SHELL");
        given.launch.app.environment.insert("SHELL".to_owned(), shell.to_owned());
        let mut agent = given.start();
        agent.exited().await;
        assert!(agent.log().contains(&format!("shell {used}\n")), "{shell}: {}", agent.log());
    }
}

#[tokio::test]
async fn an_app_on_a_port_is_asked_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut given =
        Given::new(&site_app(&["/usr/bin/python3", "-m", "http.server", "-b", "127.0.0.1", &port.to_string()]));
    given.launch.app.ready.as_mut().unwrap().port = Some(port);
    let agent = given.start();
    eventually("ready", async || (agent.status().await.phase == Phase::Ready).then_some(())).await;
    // The app writes its line before it answers; that the log has it by then is not promised.
    let line = format!("\"GET {} HTTP/1.1\" 404", agent.base());
    eventually("the question in the log", async || agent.log().contains(&line).then_some(())).await;
}

#[tokio::test]
async fn an_app_that_never_answers_is_ended_with_its_last_words() {
    let mut given = Given::script("echo 'no licence found' >&2; exec sleep 1000");
    given.launch.app.ready = Some(ReadyProbe {
        path: "/".to_owned(),
        authorization: None,
        port: None,
        timeout_seconds: 1,
        statuses: Vec::new(),
    });
    let record = given.start().exited().await;
    assert_eq!(record.cause, ExitCause::LaunchFailed);
    assert_eq!(record.detail, "the app did not respond within 1 seconds: no licence found");
}

#[tokio::test]
async fn exit_codes_signals_and_last_words() {
    for (script, code, signal, detail) in [
        ("exit 0", Some(0), None, "the program ended (exit code 0)"),
        (
            "echo one; echo 'it is broken' >&2; exit 3",
            Some(3),
            None,
            "the program ended (exit code 3): one · it is broken",
        ),
        ("kill -9 $$", None, Some(9), "the program ended (signal 9, SIGKILL)"),
    ] {
        let record = Given::script(script).start().exited().await;
        assert_eq!((record.cause, record.exit_code, record.signal), (ExitCause::App, code, signal), "{script}");
        assert_eq!(record.detail, detail);
    }
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let mut given = Given::new(&site_app(&["/no/such/program"]));
    given.launch.app.ready.as_mut().unwrap().timeout_seconds = 5;
    let record = given.start().exited().await;
    assert_eq!((record.cause, record.exit_code), (ExitCause::LaunchFailed, Some(127)));
    assert!(record.detail.contains("cannot start /no/such/program: No such file"), "{}", record.detail);

    let mut given = Given::script("true");
    given.launch.app.working_directory = "/no/such/folder".into();
    let record = given.start().exited().await;
    assert_eq!(record.cause, ExitCause::LaunchFailed);
    assert!(record.detail.contains("/no/such/folder") && record.detail.contains("choose another"), "{}", record.detail);

    let mut given = Given::script("true");
    given.launch.app.program = Program::Exec { argv: Vec::new() };
    assert_eq!(given.start().exited().await.cause, ExitCause::LaunchFailed);
}

#[tokio::test]
async fn templates_and_links_come_once() {
    let templates = tempfile::tempdir().unwrap();
    fs::create_dir(templates.path().join("deep")).unwrap();
    fs::write(templates.path().join("deep/welcome.ipynb"), "hello").unwrap();
    fs::set_permissions(templates.path().join("deep/welcome.ipynb"), fs::Permissions::from_mode(0o444)).unwrap();

    let mut given = Given::script("true");
    given.launch.home.templates = Some(templates.path().to_owned());
    given.launch.home.links = vec![
        ("isilon".to_owned(), templates.path().to_owned()),
        ("mine".to_owned(), templates.path().to_owned()),
        ("../evil".to_owned(), templates.path().to_owned()),
    ];
    fs::write(given.home.path().join("mine"), "do not touch").unwrap();
    let launch = given.launch.clone();
    let mut agent = given.start();
    assert_eq!(agent.exited().await.exit_code, Some(0));
    let copied = agent.home("templates/deep/welcome.ipynb");
    assert_eq!(fs::read_to_string(&copied).unwrap(), "hello");
    assert_ne!(fs::metadata(&copied).unwrap().permissions().mode() & 0o200, 0, "it is the user's to change");
    assert_eq!(fs::read_link(agent.home("isilon")).unwrap(), templates.path());
    assert_eq!(fs::read_to_string(agent.home("mine")).unwrap(), "do not touch");
    assert!(agent.log().contains("../evil was not linked"), "{}", agent.log());
    assert!(!agent.home("../evil").exists());

    // A second session finds what the user has made of it.
    fs::write(&copied, "changed").unwrap();
    fs::write(templates.path().join("new"), "").unwrap();
    let mut second = Given::script("true");
    second.launch.home = launch.home;
    assert_eq!(second.start().exited().await.exit_code, Some(0));
    assert_eq!(fs::read_to_string(&copied).unwrap(), "changed");
    assert!(!agent.home("templates/new").exists());
    let left: Vec<_> = fs::read_dir(agent.given.home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "nothing but templates, isilon and mine: {left:?}");
}

#[tokio::test]
async fn a_home_that_cannot_be_written_or_is_not_there() {
    let given = Given::script("true");
    fs::set_permissions(given.home.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let record = start_without_override(given).exited().await;
    assert_eq!(record.cause, ExitCause::LaunchFailed);
    assert!(record.detail.contains("is not writable") && record.detail.contains("chmod"), "{}", record.detail);

    let mut given = Given::script("true");
    given.launch.home.home = given.home.path().join("none");
    let record = given.start().exited().await;
    assert_eq!(record.cause, ExitCause::LaunchFailed);
    assert!(record.detail.contains("does not exist: ask your administrator"), "{}", record.detail);
}

/// As root, modes bind only a process without the capability to override them.
fn start_without_override(given: Given) -> Agent {
    if !rustix::process::getuid().is_root() {
        return given.start();
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--bounding-set=-dac_override,-dac_read_search", env!("CARGO_BIN_EXE_lyceum")]);
    given.start_as(setpriv)
}

#[tokio::test]
async fn the_app_dies_with_the_agent() {
    let mut agent = Given::script("echo $$ > pid; exec sleep 1000").start();
    let pid = agent.home("pid");
    let pid = eventually("the app's pid", async || numbers(&pid).pop()).await;
    assert!(lives(&pid));
    agent.process.kill().unwrap();
    agent.process.wait().unwrap();
    eventually("the app's end", async || (!lives(&pid)).then_some(())).await;
}

#[tokio::test]
async fn a_flood_of_output_stays_bounded() {
    let line = "x".repeat(100);
    let mut agent = Given::script(&format!("yes {line} | head -n 300000; echo the very end")).start();
    let largest = largest_log(&agent);
    assert_eq!(agent.exited().await.exit_code, Some(0));
    assert!(largest <= 8 << 20, "{largest}");
    let log = agent.log();
    assert!((4 << 20) - 200 < log.len() && log.len() <= 8 << 20, "{}", log.len());
    assert!(log.ends_with("x\nthe very end\n"));
    let (first, rest) = log.split_once('\n').unwrap();
    assert!(first.contains("bytes of this log were dropped"), "it says what is missing: {first}");
    assert!(rest.starts_with(&line), "it goes on with a whole line");
}

/// How long the log ever is until the agent's end; it is measured whenever it changes.
fn largest_log(agent: &Agent) -> u64 {
    let changes = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&changes, agent.given.run.path(), inotify::WatchFlags::MODIFY).unwrap();
    let end = pidfd_open(Pid::from_child(&agent.process), PidfdFlags::empty()).unwrap();
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let mut largest = 0;
    loop {
        largest = largest.max(fs::metadata(agent.file(files::LOG)).map_or(0, |log| log.len()));
        let mut waits = [PollFd::new(&changes, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
        assert_ne!(poll(&mut waits, Some(&patience)).unwrap(), 0, "the agent neither writes nor ends");
        let [wrote, ended] = waits.map(|wait| !wait.revents().is_empty());
        if wrote {
            rustix::io::read(&changes, &mut [0; 4096]).unwrap();
        } else if ended {
            return largest;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_not_answered() {
    if !needs::root() {
        return;
    }
    let mut given = Given::terminal();
    given.launch.portal_uid = 65_533;
    fs::set_permissions(given.run.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let agent = given.start();
    agent.status().await;
    let socket = agent.file(files::AGENT_SOCKET);
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let ask = |uid: &str| {
        let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1])
s.sendall(b'GET /v1/status HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')
print(len(s.recv(100)))";
        let uid = format!("--reuid={uid}");
        let mut python = Command::new("setpriv");
        python.args([&uid, "--clear-groups", "--regid=65533", "/usr/bin/python3", "-c", script]).arg(&socket);
        let output = python.output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim() == "100"
    };
    assert!(tokio::task::block_in_place(|| ask("65533")), "the portal's user is answered");
    assert!(!tokio::task::block_in_place(|| ask("65532")), "a neighbour is not");
}
