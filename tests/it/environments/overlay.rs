//! A person's own packages over a real shared environment: pip installs into them whatever
//! the person's files and profile say, their version wins, and the shared one stays as it is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use lyceum::{
    environments::{Config, EnvironmentPaths, Environments, Recipe, State},
    model::Clock,
    overlay,
    protocol::{OverlaySetup, OwnEnvironment},
};

use super::world::World;

/// A shared environment with `ly_one` and `ly_two`, and somebody's home.
struct Scene {
    world: World,
    python: PathBuf,
    home: PathBuf,
    setup: OverlaySetup,
}

impl Scene {
    async fn set() -> Self {
        let world = World::new();
        let (shared, home) = (world.path("torch"), world.path("home"));
        fs::create_dir(&home).unwrap();
        done(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&shared));
        let python = shared.join("bin/python");
        let wheels = world.wheels(&["ly_one", "ly_two"], 0);
        done(install(Command::new(&python).args(["-m", "pip"]), &wheels).args(["ly_one", "ly_two"]));
        let setup = setup(&world, &python, &home).await;
        Self { world, python, home, setup }
    }

    fn own(&self, program: &str) -> Command {
        let mut command = Command::new(self.setup.folder.join("bin").join(program));
        command.env_clear().env("HOME", &self.home).env("PATH", "/usr/bin:/bin").current_dir("/");
        command
    }

    /// What a piece of Python prints, in the shared environment and in one's own.
    fn prints(&self, code: &str) -> [String; 2] {
        let shared = done(Command::new(&self.python).args(["-s", "-c", code]).current_dir("/"));
        let own = done(self.own("python").args(["-c", code]));
        [shared, own].map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

/// As a portal finds it out that has this environment in its configuration.
async fn setup(world: &World, python: &Path, home: &Path) -> OverlaySetup {
    let config: Config = toml::from_str(&format!("[[list]]\nname = 'torch'\npython = '{}'", python.display())).unwrap();
    let place = EnvironmentPaths {
        shared: world.path("shared"),
        cache: world.path("cache"),
        everybody: true,
        variables: Vec::new(),
        cuda: None,
    };
    let environments = Environments::new(config, place, Recipe::default(), Clock::System);
    environments.look_at_sites().await;
    let found = environments.find("torch").unwrap();
    let State::Ready { base, libraries, .. } = found.state else { panic!("{found:?}") };
    OverlaySetup {
        folder: overlay::folder(home, &environments.overlay_name("torch").unwrap()),
        environment: "torch".to_owned(),
        python_version: found.python_version.unwrap(),
        base,
        libraries,
    }
}

fn install<'a>(pip: &'a mut Command, wheels: &str) -> &'a mut Command {
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", wheels])
}

#[track_caller]
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output
}

fn series(setup: &OverlaySetup) -> &str {
    setup.python_version.rsplit_once('.').unwrap().0
}

#[tokio::test]
async fn what_is_installed_wins_and_the_shared_environment_stays() {
    let scene = Scene::set().await;
    // What disturbs on machines that are older than this portal.
    let user_site = scene.home.join(format!(".local/lib/python{}/site-packages", series(&scene.setup)));
    for place in [&user_site, &scene.world.path("profile")] {
        fs::create_dir_all(place).unwrap();
        fs::write(place.join("ly_one.py"), "VERSION = 'elsewhere'").unwrap();
    }
    fs::create_dir_all(scene.home.join(".config/pip")).unwrap();
    fs::write(scene.home.join(".config/pip/pip.conf"), "[install]\nuser = true\n").unwrap();

    assert_eq!(overlay::prepare(&scene.setup).unwrap(), Vec::<String>::new());
    assert_eq!(scene.prints("import ly_one; print(ly_one.VERSION)"), ["1.0", "1.0"]);
    let wheels = scene.world.wheels(&["ly_two==2.0", "ly_three"], 0);
    let mut pip = scene.own("pip");
    pip.env("PIP_USER", "1").env("PIP_TARGET", "/nonexistent").env("PYTHONPATH", scene.world.path("profile"));
    done(install(&mut pip, &wheels).args(["ly_two==2.0", "ly_three"]));

    assert_eq!(scene.prints("import ly_two; print(ly_two.VERSION)"), ["1.0", "2.0"]);
    let there = "import importlib.util as u; print(u.find_spec('ly_three') is not None)";
    assert_eq!(scene.prints(there), ["False", "True"]);
    // `python -m pip`, as `%pip` calls it, without what the profile says.
    done(install(scene.own("python").args(["-m", "pip"]), &wheels).arg("ly_two"));
    let listed = done(scene.own("pip3").args(["list", "--format=freeze", "--disable-pip-version-check"]));
    let listed = String::from_utf8(listed.stdout).unwrap().replace('-', "_");
    for line in ["ly_one==1.0", "ly_two==2.0", "ly_three==1.0"] {
        assert!(listed.contains(line), "{line}: {listed}");
    }
    // What is shared cannot be uninstalled, and taking one's own away shows it again.
    done(scene.own("pip").args(["uninstall", "--yes", "ly_two"]));
    done(scene.own("pip").args(["uninstall", "--yes", "ly_one"]));
    let both = "import ly_one, ly_two; print(ly_one.VERSION, ly_two.VERSION)";
    assert_eq!(scene.prints(both), ["1.0 1.0", "1.0 1.0"]);
}

#[tokio::test]
async fn broken_listed_and_reset() {
    let scene = Scene::set().await;
    overlay::prepare(&scene.setup).unwrap();
    let examined = overlay::own_environment::examine(&scene.setup.folder, &["ly_two".to_owned()]);
    assert_eq!(examined, OwnEnvironment::Fine, "an overlay is an environment");
    let wheels = scene.world.wheels(&["ly_one==0.1"], 200_000);
    done(install(&mut scene.own("pip"), &wheels).arg("ly_one==0.1"));
    let library = scene.setup.folder.join(format!("lib/python{}/site-packages", series(&scene.setup)));
    fs::write(library.join("ly_one/__init__.py"), "raise ImportError('broken')").unwrap();
    assert!(!scene.own("python").args(["-c", "import ly_one"]).output().unwrap().status.success());
    done(Command::new(&scene.python).args(["-c", "import ly_one"]).current_dir("/"));

    let listed = overlay::list(&scene.home, Duration::from_mins(1)).pop().unwrap();
    assert_eq!((listed.environment.as_str(), listed.count), ("torch", 1));
    assert_eq!(listed.packages[0].instead_of.as_deref(), Some("1.0"));
    assert!(listed.bytes > 200_000, "{listed:?}");
    assert!(overlay::reset(&scene.home, &listed.name).unwrap());
    assert_eq!(scene.prints("import ly_one; print(ly_one.VERSION)"), ["1.0", "1.0"]);
    // It is as good as new: what runs in it can go on installing.
    done(install(&mut scene.own("pip"), &wheels).arg("ly_one==0.1"));
}

/// The overlay of an environment that was built anew with other packages stays the same, so
/// that what somebody installed is seen over the new one too.
#[tokio::test]
async fn over_a_renewed_environment() {
    let scene = Scene::set().await;
    overlay::prepare(&scene.setup).unwrap();
    let wheels = scene.world.wheels(&["ly_three"], 0);
    done(install(&mut scene.own("pip"), &wheels).arg("ly_three"));
    let renewed = scene.world.path("torch-renewed");
    done(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&renewed));
    let wheels = scene.world.wheels(&["ly_one==3.0"], 0);
    done(install(Command::new(renewed.join("bin/python")).args(["-m", "pip"]), &wheels).arg("ly_one==3.0"));
    let later = setup(&scene.world, &renewed.join("bin/python"), &scene.home).await;
    let notes = overlay::prepare(&OverlaySetup { folder: scene.setup.folder.clone(), ..later }).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("‘torch’ was updated") && notes[0].contains("ly_three"), "{notes:?}");
    let code = "import ly_one, ly_three; print(ly_one.VERSION, ly_three.VERSION)";
    let own = done(scene.own("python").args(["-c", code]));
    assert_eq!(String::from_utf8(own.stdout).unwrap(), "3.0 1.0\n");
}
