//! What we build upon: every package of the lock file that this machine would build is asked
//! for its licence, and some packages may not come in at all. The lists are read from
//! deny.toml, so that cargo-deny and this test (which needs no tool) say the same.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;

/// Packages whose build runs a C compiler. A third needs a reason as good as theirs: the
/// embedded database, and the cryptography of TLS.
const COMPILE_C: [&str; 2] = ["libsqlite3-sys", "ring"];

#[test]
fn every_licence_is_allowed() {
    let allowed = deny_list("licenses", "allow");
    let bad: Vec<String> = packages()
        .iter()
        .filter(|p| p["name"].as_str().is_none_or(|name| !name.starts_with("lyceum")))
        .filter_map(|p| {
            let licence = p["license"].as_str().unwrap_or("no licence named");
            (!permitted(licence, &allowed)).then(|| format!("{} {}: {licence}", p["name"], p["version"]))
        })
        .collect();
    assert!(bad.is_empty(), "licences that deny.toml does not allow:\n{}", bad.join("\n"));
}

#[test]
fn no_banned_package_comes_in() {
    let banned = deny_list("bans", "deny");
    assert!(banned.contains("openssl-sys"), "deny.toml lost its list of bans");
    let found: Vec<String> = names(&packages()).into_iter().filter(|name| banned.contains(name)).collect();
    assert!(found.is_empty(), "banned packages came in: {found:?} (cargo tree -i NAME says through whom)");
}

#[test]
fn only_two_packages_compile_c() {
    let (metadata, compilers) = (metadata(), ["cc", "cmake", "bindgen"]);
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let found: BTreeSet<String> = nodes
        .iter()
        .filter(|node| {
            let deps = node["deps"].as_array().unwrap();
            deps.iter().any(|dep| compilers.iter().any(|name| dep["name"] == *name))
        })
        .map(|node| name_of(&metadata, &node["id"]))
        .collect();
    assert_eq!(found, COMPILE_C.map(str::to_owned).into());
}

/// What cargo would build for this machine, whatever the features: `cargo metadata`.
pub fn metadata() -> Value {
    let target =
        format!("{}-unknown-linux-{}", std::env::consts::ARCH, if cfg!(target_env = "musl") { "musl" } else { "gnu" });
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata answers in JSON")
}

fn packages() -> Vec<Value> {
    metadata()["packages"].as_array().expect("a list of packages").clone()
}

fn names(packages: &[Value]) -> BTreeSet<String> {
    packages.iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect()
}

pub fn name_of(metadata: &Value, id: &Value) -> String {
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|p| p["id"] == *id).expect("every node is a package");
    package["name"].as_str().unwrap().to_owned()
}

/// A list of deny.toml: of strings, or of tables with a `crate`.
fn deny_list(section: &str, key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).unwrap();
    let deny: toml::Table = text.parse().expect("deny.toml is TOML");
    let list = deny[section][key].as_array().expect("a list");
    list.iter().map(|entry| entry.as_str().or_else(|| entry["crate"].as_str()).unwrap().to_owned()).collect()
}

/// Whether an SPDX expression (or the old `A/B`) can be kept with the allowed licences alone.
fn permitted(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let verdict = any_of(&words, &mut at, allowed);
    verdict && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut verdict = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        verdict |= all_of(words, at, allowed);
    }
    verdict
}

fn all_of(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut verdict = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        verdict &= one(words, at, allowed);
    }
    verdict
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let verdict = any_of(words, at, allowed);
        *at += 1;
        return verdict;
    }
    let mut licence = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&licence)
}

#[test]
fn expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND Zlib", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("no licence named", false),
        ("", false),
    ] {
        assert_eq!(permitted(expression, &allowed), expected, "{expression}");
    }
}
