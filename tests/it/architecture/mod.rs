//! Reads `src/**` and fails with the offending line when a module uses another that it may
//! not, when a library appears outside its place, or when a file breaks a house rule. The
//! tables here are ARCHITECTURE.md's "who may use whom", word for word; a new arrow is an
//! edit of both.

pub mod source;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use source::Source;

/// Everything else may be used by it.
const ANY: &[&str] = &["*"];

/// A module and the modules that it may use. A module that is not listed fails the test.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("protocol", &["model"]),
    ("run_directory", &[]),
    ("inherited", &[]),
    // Whoever is on another node is known by a key, not by the kernel.
    ("nodes", &["model", "protocol", "run_directory"]),
    ("dial", &["model", "nodes", "protocol"]),
    ("curves", &[]),
    ("demo", &["model", "curves"]),
    // A dataset is built by a job and looked at through files agents.
    ("datasets", &["model", "db", "files", "jobs", "sessions", "protocol"]),
    // A model is trained, and asked, by jobs; what they leave is read through files agents.
    ("models", &["model", "db", "files", "jobs", "sessions", "protocol"]),
    ("db", &["model"]),
    ("gpu", &["model"]),
    ("apps", &["model", "protocol"]),
    ("environments", &["model"]),
    ("auth", &["model", "db"]),
    // Where there is no root helper, the local scheduler does the helper's work in its own process.
    ("overlay", &["protocol"]),
    ("scheduler", &["model", "gpu", "protocol", "dial", "nodes", "helper", "run_directory"]),
    ("helper", &["model", "inherited", "protocol", "overlay"]),
    ("agent", &["model", "apps", "inherited", "protocol", "overlay", "dial", "nodes", "curves"]),
    ("admission", &["model", "db"]),
    ("cluster", &["model", "db", "admission", "scheduler"]),
    // Limits are written into Slurm's accounting.
    ("associations", &["model", "db", "admission", "scheduler"]),
    // The agents that touch files are started by the helper and speak to this module alone.
    ("files", &["model", "db", "admission", "scheduler", "helper", "protocol"]),
    ("sessions", &["model", "db", "admission", "scheduler", "apps", "environments", "protocol", "overlay"]),
    // An attempt of a job is a workload like any other: one loop launches and ends them all.
    ("jobs", &["model", "db", "admission", "sessions", "apps"]),
    // Tasks become jobs, and are compared by the curves of those.
    ("sweeps", &["model", "db", "admission", "jobs", "sessions", "runs", "curves"]),
    // What happened to jobs and their curves is told by e-mail and to other hosts.
    ("notifications", &["model", "db", "sessions", "runs"]),
    // Whoever reads curves after a workload's end is a files agent.
    ("runs", &["model", "db", "scheduler", "files", "curves", "protocol"]),
    ("proxy", &["model", "dial", "listen"]),
    (
        "web",
        &[
            "model",
            "db",
            "auth",
            "admission",
            "sessions",
            "jobs",
            "datasets",
            "sweeps",
            "models",
            "notifications",
            "cluster",
            "associations",
            "files",
            "runs",
            "announcements",
            "listen",
            "proxy",
            "dial",
            "nodes",
            "scheduler",
            "apps",
            "environments",
            "protocol",
        ],
    ),
    ("journal", &["model", "db"]),
    ("announcements", &["model", "db"]),
    ("retention", &["model", "db"]),
    ("client", &["model"]),
    ("lifecycle", &["model"]),
    ("telemetry", &[]),
    ("listen", &[]),
    ("config", ANY),
    ("app", ANY),
    ("start", ANY),
    ("admin", ANY),
    ("check", ANY),
    ("main", ANY),
];

/// Modules that nobody but these may use.
const ROOTS: &[(&str, &[&str])] = &[
    ("app", &["main"]),
    ("start", &["main", "app", "config", "admin", "check"]),
    ("client", &["main"]),
    ("admin", &["main"]),
    ("check", &["main", "config"]),
    ("config", &["main", "app", "start", "admin", "check"]),
];

/// The beginning of a path, the modules where it may stand, and why.
const CONFINED: &[(&[&str], &[&str], &str)] = &[
    (&["axum"], &["web", "proxy", "agent", "listen"], "HTTP ends in listen, web, proxy and agent"),
    (&["askama"], &["web"], "pages are drawn in web"),
    (&["utoipa_axum"], &["web"], "routes are declared in web"),
    (&["sqlx"], &["db"], "the database is spoken to in db"),
    (&["lettre"], &["notifications"], "e-mail is written in notifications"),
    (&["ldap3"], &["auth"], "the directory is asked in auth/ldap"),
    (&["nvml_wrapper"], &["gpu"], "the driver is asked in gpu"),
    (&["std", "env"], &["config", "main"], "only config reads the environment (main: the binary's own path)"),
    (
        &["std", "process", "Command"],
        &["helper", "agent", "environments", "check", "start"],
        "processes are started by helper, agent, environments, check and start",
    ),
    (
        &["tokio", "process"],
        &["helper", "agent", "environments", "check", "start"],
        "processes are started by helper, agent, environments, check and start",
    ),
    (&["anyhow"], &["main", "app", "start", "admin", "check"], "modules have errors of their own"),
];

/// Where status codes of errors may be written. The codes of success may stand in all of web.
/// `listen` refuses what is no proper HTTP before any router sees it.
const STATUS_CODES: &[&str] = &["src/web/error.rs", "src/proxy", "src/agent", "src/listen"];
const SUCCESS: &[&str] = &["OK", "CREATED", "ACCEPTED", "NO_CONTENT"];

const MOST_LINES: usize = 600;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

#[test]
fn every_file_keeps_the_rules() {
    let faults: Vec<String> = rust_files("src")
        .iter()
        .flat_map(|file| {
            let text = read(file);
            let mut faults = house_rules(file, &text);
            faults.extend(layers(file, &text));
            faults
        })
        .chain(rust_files("tests").iter().flat_map(|file| house_rules(file, &read(file))))
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// A file that no module names is not compiled, and its tests are not run.
#[test]
fn every_file_is_somebodys_module() {
    for folder in ["src", "tests/it"] {
        let files = rust_files(folder);
        let (roots, named): (Vec<_>, Vec<_>) = files
            .iter()
            .partition(|file| ["main.rs", "lib.rs"].iter().any(|root| **file == format!("{folder}/{root}")));
        let declares = |file: &str, name: &str| {
            let text = read(file);
            let mut lines = text.lines().map(str::trim);
            lines.any(|line| line.strip_suffix(';').is_some_and(|line| line.split(' ').rev().take(2).eq([name, "mod"])))
        };
        let orphans = named.into_iter().filter(|file| {
            let path = Path::new(file.as_str());
            let path = if path.ends_with("mod.rs") { path.parent().unwrap() } else { path };
            let (parent, name) = (path.parent().unwrap(), path.file_stem().unwrap().to_str().unwrap());
            let above = parent.join("mod.rs").display().to_string();
            let mut parents =
                roots.iter().filter(|_| parent == Path::new(folder)).map(|root| root.as_str()).chain([&*above]);
            !parents.any(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists() && declares(file, name))
        });
        assert_eq!(orphans.collect::<Vec<_>>(), Vec::<&String>::new(), "no module names these");
    }
}

#[test]
fn every_module_is_in_the_table() {
    let modules: BTreeSet<String> = rust_files("src").iter().map(|file| module_of(file).to_owned()).collect();
    let unlisted: Vec<_> = modules.iter().filter(|m| *m != "lib" && may_use(m).is_none()).collect();
    assert!(unlisted.is_empty(), "these modules have no row in MAY_USE: {unlisted:?}");
}

#[test]
fn every_arrow_of_the_table_is_there() {
    let mut used = BTreeSet::new();
    for file in rust_files("src") {
        let source = Source::read(&read(&file)).without_tests();
        let paths = source.paths();
        let modules = paths.iter().filter_map(|(_, path)| used_module(&file, path));
        used.extend(modules.map(|module| (module_of(&file).to_owned(), module.to_owned())));
    }
    let arrows = MAY_USE.iter().flat_map(|(module, may)| may.iter().map(move |used| (*module, *used)));
    let unused: Vec<_> = arrows
        .filter(|(module, other)| *other != "*" && !used.contains(&((*module).to_owned(), (*other).to_owned())))
        .collect();
    assert!(unused.is_empty(), "nobody needs these arrows, here and in ARCHITECTURE.md: {unused:?}");
}

/// Faults that need no knowledge of layers.
fn house_rules(file: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") {
        faults.push(format!("{file}:1: a file begins with `//!`: what it is for, what it leaves to others"));
    }
    let lines = text.lines().count();
    if lines > MOST_LINES && !LONG_FILES.iter().any(|(long, _)| *long == file) {
        faults.push(format!("{file}:{lines}: longer than {MOST_LINES} lines: make it two"));
    }
    let source = Source::read(text);
    for (word, why) in [
        ("#[ignore", "a test runs or is deleted"),
        ("#[allow(", "write #[expect(.., reason)]"),
        ("todo!", "finish it, or do not begin it"),
        ("unimplemented!", "finish it, or do not begin it"),
    ] {
        faults.extend(source.lines_with(word).map(|line| format!("{file}:{line}: `{word}`: {why}")));
    }
    faults
}

/// Faults against the tables above.
fn layers(file: &str, text: &str) -> Vec<String> {
    if Path::new(file).file_stem().is_some_and(|stem| stem == "tests") {
        return Vec::new();
    }
    let module = module_of(file);
    let source = Source::read(text).without_tests();
    let mut faults = Vec::new();
    for (line, path) in source.paths() {
        if let Some(used) = used_module(file, &path)
            && used != module
            && !module_allowed(module, used)
        {
            faults.push(format!("{file}:{line}: {module} may not use {used} (`{}`)", path.join("::")));
        }
        for (start, places, why) in CONFINED {
            if path.iter().map(String::as_str).take(start.len()).eq(start.iter().copied())
                && (path.len() > 1 || start.len() > 1)
                && !places.contains(&module)
            {
                faults.push(format!("{file}:{line}: `{}`: {why}", path.join("::")));
            }
        }
        if let Some(code) = status_code(&path)
            && !STATUS_CODES.iter().any(|place| file.starts_with(place))
            && !(module == "web" && SUCCESS.contains(&code))
        {
            faults.push(format!("{file}:{line}: `StatusCode::{code}`: statuses are chosen in web/error.rs"));
        }
    }
    for (line, text) in &source.strings {
        if module != "db" && is_sql(text) {
            faults.push(format!("{file}:{line}: SQL stands in db alone"));
        }
    }
    faults
}

fn may_use(module: &str) -> Option<&'static [&'static str]> {
    MAY_USE.iter().find(|(name, _)| *name == module).map(|(_, used)| *used)
}

fn module_allowed(module: &str, used: &str) -> bool {
    // lib.rs only names the modules; a path to something that is no module is lib's own.
    if module == "lib" || may_use(used).is_none() {
        return true;
    }
    let root = ROOTS.iter().find(|(name, _)| *name == used);
    let by_root = root.is_none_or(|(_, users)| users.contains(&module));
    let by_table = may_use(module).is_some_and(|list| list == ANY || list.contains(&used) || root.is_some());
    by_root && by_table
}

/// The top-level module that a path leads to: `crate::X`, `lyceum::X` in main.rs, or as many
/// `super`s as it takes to reach the root.
fn used_module<'a>(file: &str, path: &'a [String]) -> Option<&'a str> {
    let root = match path.first().map(String::as_str)? {
        "crate" => 1,
        "lyceum" if module_of(file) == "main" => 1,
        "super" => {
            let supers = path.iter().take_while(|segment| *segment == "super").count();
            (supers >= depth(file)).then_some(supers)?
        }
        _ => return None,
    };
    path.get(root).map(String::as_str)
}

/// How many modules deep a file is: 1 for `src/db/mod.rs` and `src/gpu.rs`.
fn depth(file: &str) -> usize {
    let parts = file.trim_start_matches("src/").split('/').count();
    if file.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// `src/db/users.rs` is of `db`, `src/gpu.rs` of `gpu`.
fn module_of(file: &str) -> &str {
    let first = file.trim_start_matches("src/").split('/').next().unwrap_or_default();
    first.trim_end_matches(".rs")
}

fn status_code(path: &[String]) -> Option<&str> {
    let at = path.iter().position(|segment| segment == "StatusCode")?;
    let code = path.get(at + 1)?;
    (code == "from_u16" || code.chars().all(|c| c.is_ascii_uppercase() || c == '_')).then_some(code)
}

fn is_sql(text: &str) -> bool {
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let padded = format!(" {squeezed} ");
    padded.contains(" SELECT ")
        || padded.contains(" INSERT INTO ")
        || padded.contains(" DELETE FROM ")
        || padded.find(" UPDATE ").is_some_and(|at| padded[at..].contains(" SET "))
}

/// Every Rust file below a folder of the repository, as `src/…`, sorted.
fn rust_files(folder: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut files) = (vec![root.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("cannot list {}: {e}", folder.display())) {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path.strip_prefix(root).unwrap().to_str().expect("our file names are text").to_owned());
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no Rust files below {folder}");
    files
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The checker itself has to be able to fail.
mod checks_itself {
    use super::*;

    fn fault(file: &str, code: &str, expected: &str) {
        let faults = layers(file, code);
        assert!(
            faults.len() == 1 && faults[0].contains(expected),
            "{code:?} in {file}: expected one fault with {expected:?}, got {faults:?}"
        );
    }

    fn fine(file: &str, code: &str) {
        assert_eq!(layers(file, code), Vec::<String>::new(), "{code:?} in {file}");
    }

    #[test]
    fn forbidden_arrows_are_found_with_their_line() {
        fault("src/helper/mod.rs", "//! x\n\nuse crate::db;", "src/helper/mod.rs:3: helper may not use db");
        fault("src/model/user.rs", "use super::super::db::Db;", "model may not use db");
        fault("src/db/users.rs", "use crate::{\n model::Id,\n web::page,\n};", "src/db/users.rs:3: db may not use web");
        fault("src/sessions/mod.rs", "fn f() { crate::web::draw() }", "sessions may not use web");
        fault("src/web/mod.rs", "use crate::app::App;", "web may not use app");
        fault("src/gpu.rs", "use super::db;", "gpu may not use db");
        fine("src/db/users.rs", "use crate::model::Id; use super::Db; use crate::db::types;");
        fine("src/web/login.rs", "use super::super::auth; use crate::sessions::Error;");
        fine("src/main.rs", "use lyceum::{app, client};");
        fine("src/helper/mod.rs", "#[cfg(test)]\nmod tests { use crate::db; }");
        fine("src/helper/mod.rs", "// crate::db\nlet s = \"crate::db\";");
    }

    #[test]
    fn libraries_stay_in_their_place() {
        fault("src/sessions/mod.rs", "use axum::Router;", "HTTP ends in");
        fault("src/web/mod.rs", "use sqlx::query;", "spoken to in db");
        fault("src/web/mod.rs", "use std::{env, fs};", "only config reads the environment");
        fault("src/web/mod.rs", "std::process::Command::new(\"id\")", "processes are started by");
        fault("src/scheduler/local/mod.rs", "nvml_wrapper::Nvml::init()", "asked in gpu");
        fine("src/gpu.rs", "use nvml_wrapper::Nvml;");
        fine("src/main.rs", "std::env::current_exe()");
        fine("src/web/mod.rs", "#[derive(askama::Template)] struct Page; std::process::id();");
    }

    #[test]
    fn sql_and_status_codes_stay_in_their_place() {
        fault("src/web/users.rs", "\n\nquery(\"SELECT  id FROM users\")", "src/web/users.rs:3: SQL stands in db");
        fault("src/sessions/mod.rs", "\"UPDATE sessions\n SET x = 1\"", "SQL stands in db");
        fault("src/admission.rs", "r#\"INSERT INTO t VALUES (1)\"#", "SQL stands in db");
        fine("src/db/users.rs", "\"SELECT 1\"");
        fine("src/web/users.rs", "\"Select a size\"; \"update in place\"; \"UPDATE now\";");
        fault("src/web/login.rs", "StatusCode::FORBIDDEN", "statuses are chosen in web/error.rs");
        fault("src/client/mod.rs", "reqwest::StatusCode::from_u16(404)", "statuses are chosen in web/error.rs");
        fine("src/web/error.rs", "StatusCode::FORBIDDEN");
        fine("src/web/login.rs", "(StatusCode::CREATED, status.is_success())");
        fine("src/proxy/mod.rs", "StatusCode::BAD_GATEWAY");
    }

    #[test]
    fn house_rules_bind() {
        let rule = |text: &str| house_rules("src/x.rs", text).join("\n");
        assert!(rule("use a;").contains("src/x.rs:1: a file begins with"));
        assert!(rule("//! x\n#[ignore]\nfn f() {}").contains("src/x.rs:2: `#[ignore`"));
        assert!(rule("//! x\nfn f() { todo!() }").contains("src/x.rs:2: `todo!`"));
        assert!(rule(&format!("//! x\n{}", "\n".repeat(MOST_LINES))).contains("longer than"));
        assert_eq!(rule("//! x\n// #[ignore]\nlet s = \"todo!\";"), "");
    }
}
