//! Reads `src/**` and `crates/**` and fails with the offending line when a library appears outside its place, or when
//! a file breaks a house rule. Which crate may use which is Cargo's to hold; what root's code is built from is asked of
//! Cargo here.

pub mod source;
mod words;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use source::Source;

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
        &["helper", "agent", "environments", "check", "images", "start", "client"],
        "processes are started by helper, agent, environments, check, images, start and client (git)",
    ),
    (
        &["tokio", "process"],
        &["helper", "agent", "environments", "check", "images", "start", "client"],
        "processes are started by helper, agent, environments, check, images, start and client (git)",
    ),
    (&["anyhow"], &["main", "app", "start", "admin", "check"], "modules have errors of their own"),
];

/// Where status codes of errors may be written. The codes of success may stand in all of web.
/// `listen` refuses what is no proper HTTP before any router sees it.
const STATUS_CODES: &[&str] =
    &["src/web/http/error.rs", "crates/front/src/proxy", "crates/node/src/agent", "crates/front/src/listen"];
const SUCCESS: &[&str] = &["OK", "CREATED", "ACCEPTED", "NO_CONTENT"];

const MOST_LINES: usize = 600;

/// Elements of which a line of a template opens at most one. Inline elements may share a line, since white space between
/// them would show.
const BLOCKS: &[&str] = &[
    "table", "thead", "tbody", "tr", "th", "td", "section", "article", "div", "ul", "ol", "li", "dl", "dt", "dd", "p",
    "form", "fieldset", "details", "summary", "h1", "h2", "h3",
];
/// The longest line of a template (characters).
const MAX_TEMPLATE_LINE: usize = 460;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

#[test]
fn every_template_has_one_block_a_line() {
    let faults: Vec<String> =
        files("templates", "html").iter().flat_map(|file| template_rules(file, &read(file))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_keeps_the_rules() {
    let faults: Vec<String> = sources()
        .iter()
        .flat_map(|file| {
            let text = read(file);
            let mut faults = house_rules(file, &text);
            faults.extend(places(file, &text));
            faults
        })
        .chain(rust_files("tests").iter().flat_map(|file| house_rules(file, &read(file))))
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// What says so is checked by the compiler of TypeScript, which `./test` runs; other people's scripts are theirs.
#[test]
fn every_script_has_its_types_checked() {
    let scripts = ["static", "static/curves"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let files = scripts.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let scripts: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "js")).collect();
    assert!(50 < scripts.len());
    let unchecked = scripts.iter().filter(|path| !fs::read_to_string(path).unwrap().starts_with("// @ts-check\n"));
    assert_eq!(unchecked.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

/// A file that no module names is not compiled, and its tests are not run.
#[test]
fn every_file_is_somebodys_module() {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).unwrap();
    let crates = crates.map(|entry| format!("crates/{}/src", entry.unwrap().file_name().to_str().unwrap()));
    for folder in crates.chain(["src".to_owned(), "tests/it".to_owned()]) {
        let files = rust_files(&folder);
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
                roots.iter().filter(|_| parent == Path::new(&folder)).map(|root| root.as_str()).chain([&*above]);
            !parents.any(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists() && declares(file, name))
        });
        assert_eq!(orphans.collect::<Vec<_>>(), Vec::<&String>::new(), "no module names these");
    }
}

/// The helper is root's code. It is built without the libraries for SQL, LDAP, e-mail, templates and web requests.
#[test]
fn roots_code_is_built_from_little() {
    let metadata = crate::licences::metadata();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let name = |id: &serde_json::Value| crate::licences::name_of(&metadata, id);
    let is_built =
        |dep: &&serde_json::Value| dep["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null());
    let (mut left, mut found) = (vec!["lyceum-node".to_owned()], BTreeSet::new());
    while let Some(next) = left.pop() {
        let node = nodes.iter().find(|node| name(&node["id"]) == next).unwrap();
        if found.insert(next) {
            left.extend(node["deps"].as_array().unwrap().iter().filter(is_built).map(|dep| name(&dep["pkg"])));
        }
    }
    assert!(found.contains("rustix") && found.contains("lyceum-wire"), "{found:?}");
    let ours: Vec<_> = found.iter().filter(|name| name.starts_with("lyceum-")).collect();
    assert_eq!(ours, ["lyceum-curves", "lyceum-model", "lyceum-node", "lyceum-wire"]);
    for other in ["askama", "image", "ldap3", "lettre", "libsqlite3-sys", "nvml-wrapper", "reqwest", "sqlx", "zip"] {
        assert!(!found.contains(other), "root's code is built from {other}");
    }
}

/// Returns the faults that any file may have.
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

/// Returns the lines of a template that open several blocks, or are too long to be reviewed.
fn template_rules(file: &str, text: &str) -> Vec<String> {
    let opens = |line: &str| BLOCKS.iter().map(|tag| opened(line, tag)).sum::<usize>();
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if opens(line) > 1 {
            faults.push(format!("{file}:{number}: opens several blocks: one tag a line"));
        }
        if line.chars().count() > MAX_TEMPLATE_LINE {
            faults.push(format!("{file}:{number}: longer than {MAX_TEMPLATE_LINE} characters"));
        }
    }
    faults
}

/// Returns how often a line opens an element of this name.
fn opened(line: &str, tag: &str) -> usize {
    let ends = |rest: &str| rest.starts_with(['>', ' ', '{']) || rest.is_empty();
    line.split(&format!("<{tag}")).skip(1).filter(|rest| ends(rest)).count()
}

/// Returns the faults against the tables above.
fn places(file: &str, text: &str) -> Vec<String> {
    let folder = file.strip_prefix("crates/").and_then(|rest| rest.split('/').nth(1));
    if Path::new(file).file_stem().is_some_and(|stem| stem == "tests") || matches!(folder, Some("tests" | "examples")) {
        return Vec::new();
    }
    let module = module_of(file);
    let source = Source::read(text).without_tests();
    let mut faults = Vec::new();
    for (line, path) in source.paths() {
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
            faults.push(format!("{file}:{line}: `StatusCode::{code}`: statuses are chosen in web/http/error.rs"));
        }
    }
    for (line, text) in &source.strings {
        if module != "db" && is_sql(text) {
            faults.push(format!("{file}:{line}: SQL stands in db alone"));
        }
    }
    faults
}

/// Names what a file is of: `src/web/login.rs` is of `web`, `crates/db/src/users.rs` of `db`, and
/// `crates/services/src/auth/mod.rs` of `auth`.
fn module_of(file: &str) -> &str {
    let file = file.trim_start_matches("src/");
    let mut parts = file.split('/');
    let first = parts.next().unwrap_or_default();
    if first != "crates" {
        return first.trim_end_matches(".rs");
    }
    let (name, module) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
    let is_of_many = ["front", "node", "services", "wire"].contains(&name);
    if is_of_many { module.trim_end_matches(".rs") } else { name }
}

/// Every Rust file of the program, those of `tests` apart.
fn sources() -> Vec<String> {
    let mut files = rust_files("src");
    files.extend(rust_files("crates"));
    files
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

/// Returns every Rust file below a folder of the repository, as `src/…`, sorted.
fn rust_files(folder: &str) -> Vec<String> {
    files(folder, "rs")
}

/// Returns every file with this extension below a folder of the repository, sorted.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut files) = (vec![root.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("cannot list {}: {e}", folder.display())) {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                files.push(path.strip_prefix(root).unwrap().to_str().expect("our file names are text").to_owned());
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no .{extension} files below {folder}");
    files
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The checker itself has to be able to fail.
mod checks_itself {
    use super::*;

    fn fault(file: &str, code: &str, expected: &str) {
        let faults = places(file, code);
        assert!(
            faults.len() == 1 && faults[0].contains(expected),
            "{code:?} in {file}: expected one fault with {expected:?}, got {faults:?}"
        );
    }

    fn fine(file: &str, code: &str) {
        assert_eq!(places(file, code), Vec::<String>::new(), "{code:?} in {file}");
    }

    #[test]
    fn libraries_stay_in_their_place() {
        fault("crates/services/src/sessions/mod.rs", "use axum::Router;", "HTTP ends in");
        fault("src/web/mod.rs", "use sqlx::query;", "spoken to in db");
        fault("src/web/mod.rs", "use std::{env, fs};", "only config reads the environment");
        fault("src/web/mod.rs", "std::process::Command::new(\"id\")", "processes are started by");
        fault("crates/services/src/scheduler/local/mod.rs", "nvml_wrapper::Nvml::init()", "asked in gpu");
        fine("crates/services/src/gpu/mod.rs", "use nvml_wrapper::Nvml;");
        fault("crates/images/src/store/mod.rs", "use axum::Router;", "HTTP ends in");
        fine("crates/images/tests/it/faulty.rs", "use axum::Router;");
        fine("src/main.rs", "std::env::current_exe()");
        fine("src/web/mod.rs", "#[derive(askama::Template)] struct Page; std::process::id();");
    }

    #[test]
    fn sql_and_status_codes_stay_in_their_place() {
        fault("src/web/users.rs", "\n\nquery(\"SELECT  id FROM users\")", "src/web/users.rs:3: SQL stands in db");
        fault("crates/services/src/sessions/mod.rs", "\"UPDATE sessions\n SET x = 1\"", "SQL stands in db");
        fault("crates/services/src/admission/mod.rs", "r#\"INSERT INTO t VALUES (1)\"#", "SQL stands in db");
        fine("crates/db/src/users.rs", "\"SELECT 1\"");
        fine("src/web/users.rs", "\"Select a size\"; \"update in place\"; \"UPDATE now\";");
        fault("src/web/login.rs", "StatusCode::FORBIDDEN", "statuses are chosen in web/http/error.rs");
        fault(
            "crates/client/src/lib.rs",
            "reqwest::StatusCode::from_u16(404)",
            "statuses are chosen in web/http/error.rs",
        );
        fine("src/web/http/error.rs", "StatusCode::FORBIDDEN");
        fine("src/web/login.rs", "(StatusCode::CREATED, status.is_success())");
        fine("crates/front/src/proxy/mod.rs", "StatusCode::BAD_GATEWAY");
    }

    #[test]
    fn templates_have_one_block_a_line() {
        let rule = |text: &str| template_rules("x.html", text).join("\n");
        assert_eq!(rule("<div>\n  <p>Two <b>bold</b> words</p>\n</div>"), "");
        assert!(rule("<ul>\n<li>one</li><li>two</li>").contains("x.html:2: opens several blocks"));
        assert!(rule(&"x".repeat(MAX_TEMPLATE_LINE + 1)).contains("x.html:1: longer than"));
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
