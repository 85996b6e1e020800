//! Terminals and JupyterLab in container images, by the real agent as an account that is not root:
//! a shell in the image, a JupyterLab of the image's own, and kernels of images in a JupyterLab on
//! the host. JupyterLab is `LYCEUM_TEST_PYTHON`'s, which stands on this machine's Python.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use lyceum::{
    apps::{Catalogue, Python},
    protocol::{Container, ExitCause, ImageKernel, Phase},
};

use super::{
    Agent, BodyExt, Bytes, Empty, Given, Known, Program, Request, Shell, TokioIo, UnixStream, eventually, files,
};
use crate::{containers::image::Image, idleness::jupyters_python, needs};

/// An account that this machine does not know; the portal's name for it is `ada`.
const ADA: u32 = 64_997;

/// A copy of the program that other accounts can run.
fn program() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_lyceum"), folder.path().join("lyceum")).unwrap();
    folder
}

impl Given {
    fn start_as_ada(self, program: &tempfile::TempDir) -> Agent {
        for folder in [self.run.path(), self.home.path()] {
            chown(folder, Some(ADA), Some(ADA)).unwrap();
        }
        let mut command = Command::new(program.path().join("lyceum"));
        command.uid(ADA).gid(ADA);
        self.start_as(command)
    }
}

#[tokio::test]
async fn a_terminal_is_a_shell_of_the_image() {
    if !needs::root() {
        return;
    }
    let Some(image) = Image::busybox() else { return };
    let program = program();
    let mut given = Given::terminal();
    if let Program::Terminal(Shell { path, .. }) = &mut given.launch.app.program {
        // The image has no bash.
        "/bin/bash".clone_into(path);
    }
    let mut container = image.container();
    image.write("opt/entry", "#!/bin/sh\nexport FROM_ENTRY=1\nexec \"$@\"\n", 0o755);
    (container.entrypoint, container.use_entrypoint) = (vec!["/opt/entry".to_owned()], true);
    given.launch.app.container = Some(container);
    let mut agent = given.start_as_ada(&program);
    let mut viewer = agent.view(1).await;
    viewer.enter("PS1=; . /etc/os-release; echo \"in $NAME\"; echo \"is $(id -un) $(id -u) $FROM_ENTRY\"\r").await;
    viewer.sees("in Made by a test").await;
    viewer.sees(&format!("is ada {ADA} 1")).await;
    viewer.enter("pwd; echo $TERM $0; stty size\r").await;
    viewer.sees(&format!("\n{}\r\n", agent.given.home.path().display())).await;
    viewer.sees("xterm-256color /bin/sh").await;
    viewer.sees("24 80").await;
    // All terminals of a session have the same temporary files.
    viewer.enter("echo shared > /tmp/x; sleep 600\r").await;
    let mut second = agent.view(2).await;
    second.enter("while [ ! -e /tmp/x ]; do sleep 0.1; done; cat /tmp/x\r").await;
    second.sees("\nshared").await;
    // Control-C reaches what runs in the foreground.
    viewer.enter("\u{3}").await;
    viewer.enter("echo still $((40 + 2))\r").await;
    viewer.sees("still 42").await;
    second.enter("exit 7\r").await;
    second.sees("ended with code 7").await;
    let before = std::time::Instant::now();
    agent.terminate();
    let record = agent.exited().await;
    assert_eq!((record.cause, record.detail.as_str()), (ExitCause::Asked, "ended on request"));
    assert!(before.elapsed().as_secs() < 4, "{:?}", before.elapsed());
}

/// The environment of the tests, where it stands on this machine's own Python.
fn environment() -> Option<PathBuf> {
    let python = PathBuf::from(jupyters_python(needs::met)?);
    let environment = python.parent()?.parent()?.to_owned();
    let real = fs::canonicalize(&python).ok()?;
    needs::met("a LYCEUM_TEST_PYTHON that stands on /usr/bin", real.starts_with("/usr/bin")).then_some(environment)
}

fn with_environment(image: &Image, environment: &Path) -> Container {
    let mut container = image.container();
    container.mounts = vec![environment.to_owned()];
    let path = format!("{}/bin:/usr/bin", environment.display());
    container.env.insert("PATH".to_owned(), path);
    container
}

#[tokio::test]
async fn jupyterlab_of_an_image_accepts_the_portals_token() {
    if !needs::root() {
        return;
    }
    let Some(environment) = environment() else { return };
    let Some(image) = Image::with_python(&environment) else { return };
    let (program, container) = (program(), with_environment(&image, &environment));
    let installed = tempfile::Builder::new().prefix("ly-installed-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(installed.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let wrapper = lyceum::environments::install(installed.path()).unwrap().tensorboard;
    let catalogue = Catalogue::default();
    let jupyter = catalogue.find("jupyter").expect("built in");
    let known = Known { wrapper: Some(&wrapper), container: Some(&container), token: "s3cret", ..Known::default() };
    let given = Given::with(jupyter, known);
    let mut agent = given.start_as_ada(&program);
    eventually("ready", async || match agent.process.try_wait().unwrap() {
        Some(_) => panic!("{}", agent.log()),
        None => (agent.status().await.phase == Phase::Ready).then_some(()),
    })
    .await;
    let commands = super::carriers(agent.given.launch.session);
    let is_inside = |pid: &rustix::process::Pid| {
        let root = format!("/proc/{}/root/etc/os-release", pid.as_raw_nonzero());
        fs::read_to_string(root).is_ok_and(|text| text.contains("Made by a test"))
    };
    assert!(commands.iter().any(is_inside), "the server runs in the image");
    agent.terminate();
    assert_eq!(agent.exited().await.cause, ExitCause::Asked);
}

/// Starts, uses, interrupts and ends a kernel as JupyterLab does. The interrupted code sleeps often
/// and not long: a signal between Python's look for signals and its sleep is seen only afterwards.
const USE: &str = r"
import sys, time
from jupyter_client.manager import KernelManager
km = KernelManager(kernel_name=sys.argv[1], transport='ipc')
km.connection_file = sys.argv[2] + '/k.json'
km.start_kernel()
kc = km.client()
kc.start_channels()
kc.wait_for_ready(timeout=120)
said = []
kc.execute_interactive('''
import os, socket, sys
print(open('/etc/os-release').read().strip(), os.getuid(), os.environ.get('OF_IMAGE'), os.environ.get('PYTHONNOUSERSITE'))
print(os.environ['PYTHONUSERBASE'], os.environ['OMP_NUM_THREADS'], os.getcwd())
open(os.path.expanduser('~/from-kernel'), 'w').write('x')
''', timeout=60, output_hook=lambda m: said.append(m['content'].get('text', str(m['content']))))
print(''.join(said))
kc.execute('import time; print(1, flush=True)\nfor _ in range(3000): time.sleep(0.1)')
while True:
    message = kc.get_iopub_msg(timeout=60)
    if message['msg_type'] == 'stream': break
begun = time.time()
km.interrupt_kernel()
while True:
    reply = kc.get_shell_msg(timeout=60)
    if reply['content']['status'] == 'error': break
print('interrupted', reply['content']['ename'], time.time() - begun < 30)
kc.stop_channels()
km.shutdown_kernel()
print('alive', km.is_alive())
";

#[tokio::test]
async fn kernels_of_images_in_one_jupyterlab() {
    if !needs::root() {
        return;
    }
    let Some(environment) = environment() else { return };
    let Some(image) = Image::with_python(&environment) else { return };
    let (program, container) = (program(), with_environment(&image, &environment));
    let broken = Container { name: "gone".to_owned(), root: image.base().join("none"), ..container.clone() };
    let second = Container { name: "second".to_owned(), ..container.clone() };
    let kernels = [("First image", container), ("Second image", second), ("Gone", broken)]
        .map(|(title, container)| ImageKernel { title: title.to_owned(), container });
    let installed = tempfile::Builder::new().prefix("ly-installed-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(installed.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let wrapper = lyceum::environments::install(installed.path()).unwrap().tensorboard;
    let python = Python { python: environment.join("bin/python"), bin: environment.join("bin"), own: None };
    let catalogue = Catalogue::default();
    let jupyter = catalogue.find("jupyter").expect("built in");
    let known = Known {
        wrapper: Some(&wrapper),
        python: Some(&python),
        kernels: &kernels,
        token: "s3cret",
        ..Known::default()
    };
    let given = Given::with(jupyter, known);
    let mut agent = given.start_as_ada(&program);
    eventually("ready", async || match agent.process.try_wait().unwrap() {
        Some(_) => panic!("{}", agent.log()),
        None => (agent.status().await.phase == Phase::Ready).then_some(()),
    })
    .await;
    let notes = agent.status().await.notes;
    assert!(notes.iter().any(|note| note.contains("‘Gone’ is not available")), "{notes:?}");
    let listed = agent.kernelspecs().await;
    for (name, title) in [("image-tested-0123abcd", "First image"), ("image-second-0123abcd", "Second image")] {
        assert_eq!(listed["kernelspecs"][name]["spec"]["display_name"], title, "{listed}");
        assert_eq!(listed["kernelspecs"][name]["spec"]["interrupt_mode"], "message");
        assert!(!listed.to_string().contains("s3cret"), "{listed}");
    }
    assert!(listed["kernelspecs"]["image-gone-0123abcd"].is_null(), "{listed}");

    let run = agent.given.run.path().to_str().unwrap().to_owned();
    let output = Command::new(&python.python)
        .args(["-c", USE, "image-tested-0123abcd", &run])
        .env_clear()
        .envs(&agent.given.launch.app.environment)
        .current_dir(agent.given.home.path())
        .uid(ADA)
        .gid(ADA)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said} {errors}");
    let home = agent.given.home.path().display();
    for line in [
        &format!("NAME=\"Made by a test\" {ADA} yes None"),
        &format!("{home}/.local/share/lyceum/images/tested-0123abcd 1 {home}"),
        "interrupted KeyboardInterrupt True",
        "alive False",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said} {errors}");
    }
    assert!(agent.home("from-kernel").exists());
    agent.terminate();
    assert_eq!(agent.exited().await.cause, ExitCause::Asked);
}

impl Agent {
    /// What JupyterLab lists, asked on its socket as the portal does.
    async fn kernelspecs(&self) -> serde_json::Value {
        let socket = UnixStream::connect(self.file(files::APP_SOCKET)).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().uri(format!("{}api/kernelspecs", self.base())).header("host", "localhost");
        let request = request.header("authorization", "token s3cret").body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }
}
