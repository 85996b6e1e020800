//! Real builds of small environments, by an ordinary user, from an index of our own, from a
//! folder of wheels and once from the index that this machine uses; and everything that can
//! go wrong meanwhile. `world` holds the folder, the builder's process and the index.

mod added;
mod overlay;
pub mod world;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lyceum::environments::{self, Config, EnvironmentPaths, System};
use serde_json::Value;
use world::{Index, Order, World};

use crate::needs;

const MARKER: &str = "lyceum.json";

#[test]
fn from_this_machines_index_with_uv() {
    let world = World::new();
    let mut order = world.order(&["six==1.17.0", "packaging==24.2"], &["six", "packaging"]);
    order.variables = world::network_variables();
    let states = world.build(&order).states();
    let python = ready(&states);
    let percents: Vec<u64> = states.iter().filter_map(|state| state["percent"].as_u64()).collect();
    assert!(percents.is_sorted() && percents.len() > 5, "{percents:?}");
    let steps: Vec<&str> = states.iter().filter_map(|state| state["step"].as_str()).collect();
    assert!(steps.contains(&"installed 2 of 2 packages: six"), "{steps:?}");

    let folder = python.parent().unwrap().parent().unwrap();
    let marker: Value = serde_json::from_slice(&fs::read(folder.join(MARKER)).unwrap()).unwrap();
    assert_eq!(marker["built_with"], "uv");
    assert_eq!(world.environments().join("default").canonicalize().unwrap(), folder);
    // Somebody else runs it, and finds everything compiled.
    let code = "import six, importlib.util as u, os; print(os.path.exists(u.cache_from_source(six.__file__)))";
    assert_eq!(world::output_as(65_533, &python, &["-I", "-c", code]), "True\n");

    // The uv that was fetched finds the index too, and says why where it does not.
    let mut fetched = fs::read_dir(world.path("cache")).unwrap().map(|entry| entry.unwrap().path().join("bin"));
    let uv = fetched.find(|bin| bin.join("uv").exists()).expect("it was fetched");
    let ask = |more: Vec<(String, String)>| {
        let variables = [vec![("PATH".to_owned(), uv.display().to_string())], more].concat();
        let (shared, cache) = (world.path("shared"), world.path("cache"));
        let place = EnvironmentPaths { shared, cache, everybody: true, variables, cuda: None };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(environments::reach_index(&Config::default(), &place)).unwrap()
    };
    assert_eq!(ask(world::network_variables()), environments::Index::Answers("uv"));
    let nowhere = ask(vec![("UV_DEFAULT_INDEX".to_owned(), "http://127.0.0.1:1/simple".to_owned())]);
    assert!(matches!(&nowhere, environments::Index::Silent(why) if why.contains("127.0.0.1:1")), "{nowhere:?}");

    let begun = Instant::now();
    let again = world.build(&order).states();
    assert_eq!(ready(&again), python);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(again.iter().all(|state| state["percent"].as_u64().unwrap_or(0) == 0), "{again:?}");

    // With `build = "never"` what is there is used, and nothing else is built.
    order.build = "never".to_owned();
    assert_eq!(ready(&world.build(&order).states()), python);
    order.requirements.push_str("\nidna");
    assert_eq!(world.build(&order).states().last().unwrap()["state"], "missing");
}

#[test]
fn from_a_folder_of_wheels_with_pip() {
    let world = World::new();
    let mut order = world.order(&["ly-one", "ly-two==1.0"], &["ly_one", "ly_two"]);
    order.wheels = world.wheels(&["ly_one", "ly_two"], 0);
    let states = world.build(&order).states();
    let python = ready(&states);
    let log = fs::read_to_string(world.environments().join("default.log")).unwrap();
    assert!(log.contains("continuing with pip"), "{log}");
    assert_eq!(world::output_as(65_533, &python, &["-I", "-c", "import ly_two; print(ly_two.NAME)"]), "ly_two\n");

    order.wheels = world.path("nowhere").display().to_string();
    order.requirements.push_str("\nly-three");
    let states = world.build(&order).states();
    let (what, command) = failed(&states);
    assert!(what.contains("nowhere, which is not a directory"), "{what}");
    assert!(command.starts_with("python3 -m pip download -r "), "{command}");
    order.wheels = world.wheels(&["ly_one", "ly_two"], 0);
    let (what, _) = failed(&world.build(&order).states());
    assert!(what.contains("lacks a package (No matching distribution found for ly-three"), "{what}");
}

/// The pins of `requirements-cuda12.txt` are all made as wheels, so that what is missing or too much is seen.
#[test]
fn a_driver_brings_jax_with_cuda_of_its_version() {
    let world = World::new();
    let order = |cuda| {
        let mut order = world.order(&["jax==0.0.1"], &[]);
        (order.cuda, order.wheels) = (cuda, world.path("wheels").display().to_string());
        order
    };
    let pins = |text: &'static str| {
        let pins = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(" ; ").next().unwrap());
        pins.map(|pin| pin.replace('-', "_")).collect::<Vec<_>>()
    };
    let cuda12 = pins(include_str!("../../../notebooks/requirements-cuda12.txt"));
    let all: Vec<&str> = cuda12.iter().map(String::as_str).chain(["jax==0.0.1"]).collect();
    world.wheels(&all, 0);

    let states = world.build(&order(Some((12, 4)))).states();
    let python = ready(&states);
    let installed = "import importlib.util as u; print(u.find_spec('jax_cuda12_plugin') is not None)";
    assert_eq!(world::output_as(65_533, &python, &["-I", "-c", installed]), "True\n");
    let jax = |uses_gpus: bool| serde_json::json!([{ "name": "JAX", "uses_gpus": uses_gpus }]);
    assert_eq!(states.last().unwrap()["frameworks"], jax(true));
    assert_eq!(states.last().unwrap()["note"], Value::Null);

    // Another driver is another environment; one that is too old is said to be the reason.
    let states = world.build(&order(Some((11, 4)))).states();
    assert_ne!(ready(&states), python);
    assert_eq!(states.last().unwrap()["frameworks"], jax(false));
    assert!(states.last().unwrap()["note"].as_str().unwrap().contains("supports CUDA 11.4"), "{states:?}");
    let (what, _) = failed(&world.build(&order(Some((13, 0)))).states());
    assert!(what.contains("lacks a package") && what.contains("jax-cuda13-"), "{what}");
}

#[test]
fn listed_packages_are_built_and_one_that_fails_stops_no_other() {
    let world = World::new();
    let mut order = world.order(&["ly-one"], &["ly_one"]);
    order.wheels = world.wheels(&["ly_one", "ly_two", "jupyterlab==4.1", "ipykernel", "tensorboard"], 0);
    let file = world.path("three.txt");
    fs::write(&file, "ly-two==1.0\nipykernel\n").unwrap();
    order.listed = format!(
        "[[list]]\nname = 'absent'\npackages = ['ly-absent']\n[[list]]\nname = 'two'\npackages = \
         ['ly-two']\n[[list]]\nname = 'three'\nrequirements = '{}'",
        file.display()
    );
    let states = world.build(&order).states();
    let last = |name: &str| states.iter().rfind(|state| state["name"] == name).unwrap();
    ready(&states);
    assert_eq!(last("absent")["state"], "failed");
    assert!(last("absent")["what"].as_str().unwrap().contains("ly-absent"), "{states:?}");
    for name in ["two", "three"] {
        assert_eq!(last(name)["state"], "ready", "{states:?}");
        let python = last(name)["python"].as_str().unwrap();
        let code = "import ly_two, importlib.util as u; print(u.find_spec('jupyterlab') is not None)";
        let has_lab = if name == "two" { "True\n" } else { "False\n" };
        assert_eq!(world::output_as(65_533, Path::new(python), &["-I", "-c", code]), has_lab, "{name}");
    }
}

/// As in a room without a way out: there is not even a loopback to be refused on.
#[test]
fn from_a_folder_of_wheels_where_nothing_can_be_reached() {
    if !needs::met("the right to make a network namespace", world::can_part_from_the_network()) {
        return;
    }
    let world = World::new();
    let mut order = world.order(&["ly-one", "ly-two==1.0"], &["ly_one", "ly_two"]);
    order.without_network = true;
    order.variables.push(("PIP_INDEX_URL".to_owned(), "https://192.0.2.1/simple".to_owned()));
    let (what, _) = failed(&world.build(&order).states());
    assert!(what.contains("https://192.0.2.1/simple cannot be reached"), "without the wheels: {what}");
    order.wheels = world.wheels(&["ly_one", "ly_two"], 0);
    let python = ready(&world.build(&order).states());
    assert_eq!(world::output_as(65_533, &python, &["-I", "-c", "import ly_two; print(ly_two.NAME)"]), "ly_two\n");
}

#[test]
fn killed_in_the_middle_and_resumed() {
    let world = World::new();
    let index = Index::start(&world.wheels(&["ly_one", "ly_two"], 0));
    let order = index.used_by(world.order(&["ly-one", "ly-two"], &["ly_one", "ly_two"]));
    index.hold("ly-two");
    let builder = world.build(&order);
    index.wait_for("/simple/ly-two/");
    let tool = world.tool().expect("pip waits for the index");
    drop(builder); // kill -9
    let folder = world.built().pop().expect("the directory was begun");
    assert!(!folder.join(MARKER).exists());
    assert!(world::is_alive(tool), "the tool outlives its builder, which is the hard case");

    index.release();
    let python = ready(&world.build(&order).states());
    assert!(python.starts_with(&folder));
    assert_eq!(world.built(), [folder]);
    assert!(!world::is_alive(tool), "what the first builder left running was ended");
}

#[test]
fn two_at_once_build_once() {
    let world = World::new();
    let index = Index::start(&world.wheels(&["ly_one", "ly_two"], 0));
    let order = index.used_by(world.order(&["ly-one", "ly-two"], &["ly_one", "ly_two"]));
    index.hold("ly-two");
    let first = world.build(&order);
    index.wait_for("/simple/ly-two/");
    let second = world.build(&order);
    second.wait_for_step("waiting for another process that builds it");
    index.release();
    assert_eq!(ready(&first.states()), ready(&second.states()));
    assert_eq!(index.asked("/files/ly_two-1.0-py3-none-any.whl"), 1);
}

#[test]
fn without_a_network() {
    let world = World::new();
    let mut order = world.order(&["ly-one"], &["ly_one"]);
    for name in ["PIP_INDEX_URL", "UV_INDEX_URL"] {
        order.variables.push((name.to_owned(), "http://ada:s3cret@127.0.0.1:9/simple".to_owned()));
    }
    let states = world.build(&order).states();
    let (what, command) = failed(&states);
    assert!(what.contains("http://***@127.0.0.1:9/simple cannot be reached (connection refused)"), "{what}");
    assert_eq!(command, "PIP_INDEX_URL=https://pypi.org/simple lyceum serve");
    assert_eq!(world.built(), Vec::<PathBuf>::new());
    let log = fs::read_to_string(world.environments().join("default.log")).unwrap();
    assert!(log.contains("to fix it: PIP_INDEX_URL=") && !log.contains("s3cret"), "{log}");
}

#[test]
fn tries_again_when_the_network_is_back() {
    let world = World::new();
    let index = Index::start(&world.wheels(&["ly_one"], 0));
    index.hang_up(true);
    let mut order = index.used_by(world.order(&["ly-one"], &["ly_one"]));
    order.maintain = true;
    let mut builder = world.build(&order);
    let failure = builder.wait_for(|state| state["state"] == "failed" && !state["retry_at"].is_null());
    assert!(failure["what"].as_str().unwrap().contains("cannot be reached"), "{failure}");
    index.hang_up(false);
    builder.say("retry");
    ready(&[builder.wait_for(|state| state["state"] == "ready")]);
}

#[test]
fn on_a_full_disk() {
    let world = World::new();
    let mut order = world.order(&["ly-large"], &["ly_large"]);
    order.wheels = world.wheels(&["ly_large"], 40 << 20);
    let small_disk = world.mount_small_disk();
    if !small_disk {
        order.largest_file = Some(20 << 20);
    }
    let (what, command) = failed(&world.build(&order).states());
    assert!(what.contains("is full"), "{what}");
    assert_eq!(command, "lyceum serve --data /PATH/ON/A/LARGER/DISK");
    assert_eq!(world.built(), Vec::<PathBuf>::new(), "room is made again");

    order.largest_file = None;
    order.disk_bytes = 1 << 60;
    let states = world.build(&order).states();
    assert!(failed(&states).0.starts_with("preparing the environment: the disk with"), "{states:?}");
}

#[test]
fn in_a_directory_that_may_not_be_written() {
    let world = World::new();
    let order = world.order(&["ly-one"], &[]);
    fs::create_dir(world.path("shared/environments")).unwrap();
    fs::set_permissions(world.path("shared/environments"), fs::Permissions::from_mode(0o555)).unwrap();
    world::give_to_builder(&world.path("shared/environments"));
    let (what, command) = failed(&world.build(&order).states());
    assert!(what.contains("ermission denied"), "{what}");
    let place = world.environments();
    assert_eq!(command, format!("chown -R {} {}", world::builder_uid(), place.display()));
}

#[test]
fn on_a_python_that_will_not_do() {
    let world = World::new();
    let mut order = world.order(&["ly-one"], &[]);

    // A Python as Debian ships it without python3-venv.
    let (library, minor) = python_library();
    let bare = world.path("bare/lib").join(library.file_name().unwrap());
    fs::create_dir_all(&bare).unwrap();
    fs::create_dir_all(world.path("bare/bin")).unwrap();
    for entry in fs::read_dir(&library).unwrap().flatten().filter(|entry| entry.file_name() != "ensurepip") {
        symlink(entry.path(), bare.join(entry.file_name())).unwrap();
    }
    order.python = world.path("bare/bin/python3").display().to_string();
    fs::copy("/usr/bin/python3", &order.python).unwrap();
    let (what, command) = failed(&world.build(&order).states());
    assert!(what.contains("lacks the modules `venv` and `ensurepip`"), "{what}");
    let system = System::of_this_machine();
    assert_eq!(command, system.install_venv("python3", minor));
    assert!(system != System::Debian || command == "apt-get install python3-venv");

    // A Python in a home that is closed to others.
    fs::create_dir(world.path("home")).unwrap();
    symlink("/usr/bin/python3", world.path("home/python3")).unwrap();
    world::give_to_builder(&world.path("home"));
    fs::set_permissions(world.path("home"), fs::Permissions::from_mode(0o700)).unwrap();
    order.python = world.path("home/python3").display().to_string();
    let (what, _) = failed(&world.build(&order).states());
    assert!(what.contains("cannot be run by other users: they cannot access") && what.ends_with("/home"), "{what}");
}

#[test]
fn with_a_package_that_does_not_import() {
    let world = World::new();
    let mut order = world.order(&["ly-one"], &["ly_one", "ly_nothing"]);
    order.wheels = world.wheels(&["ly_one"], 0);
    let (what, command) = failed(&world.build(&order).states());
    assert!(what.starts_with("importing ly_nothing: ModuleNotFoundError: No module named 'ly_nothing'"), "{what}");
    assert_eq!(command, format!("less {}", world.environments().join("default.log").display()));
    assert_eq!(world.built(), Vec::<PathBuf>::new());
}

/// Debian's pip refuses to touch the system's packages (PEP 668), which says nothing of the index.
#[tokio::test]
async fn the_index_is_asked_though_the_systems_packages_are_locked() {
    let world = World::new();
    let index = Index::start(&world.wheels(&["six"], 0));
    let place = EnvironmentPaths {
        shared: world.path("shared"),
        cache: world.path("cache"),
        everybody: true,
        variables: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned()), index.variable()],
        cuda: None,
    };
    let found = environments::reach_index(&Config::default(), &place).await.unwrap();
    if !needs::met("pip of the system (Debian: python3-pip)", Path::new("/usr/bin/pip3").exists()) {
        return assert_eq!(found, environments::Index::NoTool);
    }
    assert_eq!(found, environments::Index::Answers("pip"));
    index.hang_up(true);
    let found = environments::reach_index(&Config::default(), &place).await.unwrap();
    assert!(matches!(&found, environments::Index::Silent(why) if !why.contains("668")), "{found:?}");
}

/// The process that the other tests start as an ordinary user; alone it does nothing.
#[tokio::test]
async fn builder() {
    if let Some(order) = Order::of_this_process() {
        world::build_here(order).await;
    }
}

#[track_caller]
fn ready(states: &[Value]) -> PathBuf {
    let last = states.last().expect("a builder says how it ends");
    assert_eq!(last["state"], "ready", "{last}");
    PathBuf::from(last["python"].as_str().unwrap())
}

#[track_caller]
fn failed(states: &[Value]) -> (String, String) {
    let last = states.last().expect("a builder says how it ends");
    assert_eq!(last["state"], "failed", "{last}");
    (last["what"].as_str().unwrap().to_owned(), last["command"].as_str().unwrap().to_owned())
}

/// Where the system's Python keeps its modules, and its minor version.
fn python_library() -> (PathBuf, u32) {
    let code = "import os, sys; print(os.path.dirname(os.__file__), sys.version_info.minor)";
    let answer = world::output_as(0, Path::new("/usr/bin/python3"), &["-I", "-c", code]);
    let (library, minor) = answer.trim().rsplit_once(' ').unwrap();
    (library.into(), minor.parse().unwrap())
}
