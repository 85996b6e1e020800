//! Programs in container images, by a real bubblewrap as real accounts: through the helper, the
//! local scheduler and the real agent, in the control groups that a session has.

pub mod image;
mod isolation;
mod programs;
mod squashed;

pub use squashed::open_fuse;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc};

use lyceum::{
    model::{Resources, SessionId, session::Placement},
    protocol::{Container, Program, files},
    scheduler::{Exit, Launch, LifeCycle, local::Local},
};

use self::image::Image;
use crate::{
    helper::house::{House, People},
    local, needs,
};

/// Two accounts, a scheduler, the real agent, and an image. The first to go is the scheduler.
struct World {
    local: Local,
    people: Arc<People>,
    house: House,
    image: Image,
    _program: tempfile::TempDir,
}

impl World {
    fn new() -> Option<Self> {
        Self::with(Image::busybox()?)
    }

    fn with(image: Image) -> Option<Self> {
        if !needs::root() {
            return None;
        }
        // Other users may not be able to enter the directory that it was built in.
        let program = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(program.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let binary = program.path().join("lyceum");
        fs::copy(env!("CARGO_BIN_EXE_lyceum"), &binary).unwrap();
        let house = House::with(|config| config.agent_command = vec![binary.into(), "agent".into()]);
        let local = Local::new(local::config(&house)).unwrap();
        Some(Self { local, people: house.people(), house, image, _program: program })
    }

    /// A job of the first account in the image; without a container it runs on the host.
    fn job(&self, container: Option<Container>, argv: &[&str]) -> Launch {
        let mut launch = local::workload(SessionId::new(), &self.people.a, argv);
        launch.gpus.clear();
        launch.resources = Resources { memory_bytes: 256 << 20, cpus: 2, ..launch.resources };
        let person = &self.people.a;
        let variables = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", person.home.to_str().unwrap()),
            ("USER", &person.name),
            ("SHELL", "/bin/bash"),
            ("OMP_NUM_THREADS", "2"),
            ("LYCEUM_SESSION", &launch.session.to_string()),
        ];
        launch.app.environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        launch.app.container = container;
        launch
    }

    fn script(&self, container: Container, text: &str) -> Launch {
        let mut launch = self.job(Some(container), &[]);
        launch.app.program = Program::Script { text: text.to_owned() };
        launch
    }

    async fn start(&self, launch: Launch) -> (SessionId, Placement) {
        let session = launch.session;
        (session, self.local.launch(launch).await.unwrap())
    }

    /// Runs to the end: how it ended, and what it wrote.
    async fn run(&self, launch: Launch) -> (Exit, String) {
        let (session, placement) = self.start(launch).await;
        let exit = local::end(&self.local, session, &placement).await;
        (exit, self.log(session))
    }

    fn log(&self, session: SessionId) -> String {
        let text = fs::read(self.local.run_directory(session).join(files::LOG)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn home(&self, name: &str) -> PathBuf {
        self.people.a.home.join(name)
    }
}
