//! Environment modules by the real Lmod and the real Environment Modules, which `./test` has
//! unpacked (as packages they exclude each other): listed, loaded before an app and in a
//! terminal's bash, and what is said of those that do not load.

use std::{fs, path::PathBuf};

use lyceum::{
    apps,
    environments::modules::{Init, Modules},
    protocol::{self, ExitCause},
};
use tempfile::TempDir;

use super::{Agent, Given};
use crate::{needs, wait::eventually};

/// The site's modules, and the file that makes `module` known.
struct Site {
    init: PathBuf,
    _place: TempDir,
}

const KINDS: [&str; 2] = ["lmod/usr/share/lmod/lmod/init/bash", "environment-modules/usr/share/modules/init/bash"];

const MODULES: [(&str, &str); 5] = [
    (
        "tool/9.2",
        "module-whatis \"A tool of ours\"\nsetenv TOOL_HOME /opt/tool-9.2\nprepend-path PATH /opt/tool-9.2/bin",
    ),
    (
        "tool/12.4",
        "module-whatis \"A tool of ours\"\nsetenv TOOL_HOME /opt/tool-12.4\nprepend-path PATH /opt/tool-12.4/bin",
    ),
    ("library/1", "prepend-path LD_LIBRARY_PATH /opt/library\nsetenv CUDA_VISIBLE_DEVICES 0,1,2,3\nsetenv HOME /root"),
    // Environment Modules loads what is required by itself, where it is there.
    ("needy/1", "prereq absent"),
    ("broken/1", "this is no Tcl"),
];

/// A site of each kind, where they are to be had.
fn sites() -> Vec<Site> {
    let place = needs::variable("LYCEUM_TEST_MODULES").map(PathBuf::from);
    if !needs::met("Lmod and Environment Modules, unpacked by ./test", place.is_some()) {
        return Vec::new();
    }
    let site = |kind: &str| {
        let files = tempfile::Builder::new().prefix("ly-modules-").tempdir().unwrap();
        for (name, text) in MODULES {
            let path = files.path().join("modulefiles").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("#%Module1.0\n{text}\n")).unwrap();
        }
        let init = files.path().join("init.sh");
        let (real, modulefiles) = (place.as_ref().unwrap().join(kind), files.path().join("modulefiles"));
        assert!(real.is_file(), "{}", real.display());
        fs::write(&init, format!(". {}\nexport MODULEPATH={}\n", real.display(), modulefiles.display())).unwrap();
        Site { init, _place: files }
    };
    KINDS.into_iter().map(site).collect()
}

fn with(site: &Site, mut given: Given, names: &[&str]) -> Given {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let wrapper = given.run.path().join("tensorboard.py");
    fs::write(given.run.path().join("bashrc"), include_str!("../../../crates/services/src/environments/bashrc"))
        .unwrap();
    given.launch.app = apps::with_modules(given.launch.app, &names, &wrapper);
    given.launch.home.modules = Some(protocol::Modules { init: site.init.clone(), names });
    given
}

#[tokio::test]
async fn modules_are_listed() {
    for site in sites() {
        let modules = Modules::new(&Init::Path(site.init.clone()));
        assert!(modules.may_be("anything"), "nothing is known yet");
        modules.refresh().await.unwrap();
        let listed = modules.list();
        let tool = listed.iter().find(|module| module.name == "tool").unwrap();
        assert_eq!(tool.versions, ["tool/9.2", "tool/12.4"], "{listed:?}");
        assert_eq!(tool.description, "A tool of ours");
        assert!(listed.iter().any(|module| module.name == "library" && module.versions == ["library/1"]), "{listed:?}");
        assert!(modules.may_be("tool") && modules.may_be("tool/9.2") && !modules.may_be("tool/1"));
    }
    // What makes no `module` known leaves what was known.
    let modules = Modules::new(&Init::Path("/dev/null".into()));
    assert!(modules.refresh().await.is_err());
}

#[tokio::test]
async fn modules_are_loaded_for_an_app() {
    for site in sites() {
        let given = with(
            &site,
            Given::script("env > environment.new; mv environment.new environment; sleep 600"),
            &["tool/12.4", "library"],
        );
        let agent = given.start();
        let found = eventually("the app runs", async || fs::read_to_string(agent.home("environment")).ok()).await;
        let value =
            |name: &str| found.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default();
        assert_eq!(value("TOOL_HOME"), "/opt/tool-12.4", "{found}");
        assert!(value("PATH").starts_with("/opt/tool-12.4/bin:") && value("PATH").contains("/usr/bin"), "{found}");
        assert_eq!((value("LD_LIBRARY_PATH"), value("LYCEUM_MODULES")), ("/opt/library", "tool/12.4 library"));
        // Who one is, and which GPUs are one's own, is no module's to say.
        assert_eq!(value("HOME"), agent.given.home.path().to_str().unwrap());
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), "");
        assert_eq!(value("LYCEUM_SESSION"), agent.given.launch.session.to_string());
        assert!(!agent.file("modules.env").exists());
    }
}

#[tokio::test]
async fn modules_are_loaded_in_a_terminal() {
    for site in sites() {
        let agent = with(&site, Given::terminal(), &["tool/9.2"]).start();
        let mut viewer = agent.view(1).await;
        // Profile files set PATH anew, and the modules' comes first all the same.
        viewer.enter("echo [$TOOL_HOME] [${PATH%%:*}] [$(type -t module)]\r").await;
        viewer.sees("[/opt/tool-9.2] [/opt/tool-9.2/bin] [").await;
    }
}

#[tokio::test]
async fn what_does_not_load_is_told() {
    for site in sites() {
        let ends = async |names: &[&str]| {
            let mut agent: Agent = with(&site, Given::script("sleep 600"), names).start();
            let record = agent.exited().await;
            assert_eq!(record.cause, ExitCause::LaunchFailed, "{names:?}: {record:?}");
            (record.detail, agent.log())
        };
        for name in ["nowhere/1", "needy", "broken"] {
            let (detail, log) = ends(&["tool-is-not-loaded-first", name]).await;
            assert!(detail.contains("could not be loaded"), "{detail}");
            assert!(log.contains("tool-is-not-loaded-first") || log.contains(name), "{log}");
            let (detail, _) = ends(&[name]).await;
            assert!(detail.contains(&format!("the modules {name} could not be loaded")), "{detail}");
        }
    }
    if needs::variable("LYCEUM_TEST_MODULES").is_some() {
        let nothing = Site { init: "/dev/null".into(), _place: tempfile::tempdir().unwrap() };
        let mut agent = with(&nothing, Given::script("sleep 600"), &["tool"]).start();
        let record = agent.exited().await;
        assert!(record.detail.contains("/dev/null does not provide modules"), "{record:?}");
    }
}

/// Names are arguments, and what could be a command is no name: Lmod evaluates the last of these
/// when it looks for something like it.
#[tokio::test]
async fn a_name_is_no_command() {
    for site in sites() {
        for name in ["$(touch hit)", "`touch hit`", "tool; touch hit", "tool\ntouch hit", "'; touch hit; '"] {
            let mut agent = with(&site, Given::script("sleep 600"), &[name]).start();
            let record = agent.exited().await;
            assert_eq!(record.cause, ExitCause::LaunchFailed, "{name}: {record:?}");
            assert!(!agent.home("hit").exists() && !agent.file("hit").exists(), "{name}");
        }
    }
}
