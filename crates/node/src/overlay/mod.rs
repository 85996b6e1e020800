//! A person's own packages over a shared environment. An overlay is a folder at home, laid
//! out as a Python environment whose search for packages goes on in the shared one: what
//! `pip install` brings lands in it, wins over the shared version and lasts. Everything here
//! is done with files, as whoever calls: no program runs, so that it can be done between
//! sessions too. Who asks for it (the agent, an errand of the helper's) is not its affair.

pub mod own_environment;

use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use lyceum_wire::protocol::{Overlay, OverlaySetup, Package};

/// Below the home.
const PLACE: &str = ".local/share/lyceum/environments";

/// What an overlay was last laid out for; written last.
const RECORD: &str = "lyceum.json";

/// Leads from the overlay's packages on to the shared ones. Python reads such files in the
/// order of their names: what a person installed to edit comes before.
const CHAIN: &str = "zz-lyceum.pth";

const MAX_OVERLAYS: usize = 16;
const MAX_PACKAGES: usize = 100;
const MAX_NAME_LENGTH: usize = 80;

/// What profile files tell pip and Python is meant for other installations than this one.
const PIP: &str = "#!/bin/sh
unset PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PYTHONHOME PYTHONPATH PYTHONUSERBASE
exec \"${0%/*}/python\" -m pip \"$@\"
";
const IPYTHON: &str = "#!/bin/sh
exec \"${0%/*}/python\" -m IPython \"$@\"
";

/// pip reads this after the person's own file, whose `user = true` would be refused here.
const PIP_SETTINGS: &str = "[install]\nuser = false\n";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    environment: String,
    python_version: String,
    base: PathBuf,
    libraries: Vec<PathBuf>,
}

/// Where the overlay of this name lies in a home.
pub fn folder(home: &Path, name: &str) -> PathBuf {
    home.join(PLACE).join(name)
}

/// Lays an overlay out, or again over an environment that was renewed; what is installed in
/// it stays. What its owner should know of comes back as sentences. Safe to do twice at once:
/// every file is put in its place whole, and both put the same.
pub fn prepare(setup: &OverlaySetup) -> io::Result<Vec<String>> {
    let folder = &setup.folder;
    let record = Record {
        environment: setup.environment.clone(),
        python_version: setup.python_version.clone(),
        base: setup.base.clone(),
        libraries: setup.libraries.clone(),
    };
    let before = read_record(folder);
    if before.as_ref() == Some(&record) && is_whole(folder, &record) {
        return Ok(Vec::new());
    }
    lay_out(folder, &record)?;
    Ok(match before {
        None => left_behind(folder, &record),
        Some(before) if before.libraries != record.libraries => renewed(folder, &record),
        Some(_) => None,
    }
    .into_iter()
    .collect())
}

/// The overlays of a home, the time to count their sizes bounded.
pub fn list(home: &Path, time: Duration) -> Vec<Overlay> {
    let end = Instant::now() + time;
    let mut names: Vec<String> = names(&home.join(PLACE)).collect();
    names.sort();
    let overlay = |name: String| {
        let folder = folder(home, &name);
        let record = read_record(&folder)?;
        let mut packages = packages(&site_packages(&folder, &record.python_version));
        let count = packages.len();
        packages.truncate(MAX_PACKAGES);
        let shared: Vec<Package> = record.libraries.iter().flat_map(|library| self::packages(library)).collect();
        for package in &mut packages {
            let hidden = shared.iter().find(|other| same_name(&other.name, &package.name));
            package.instead_of = hidden.map(|hidden| hidden.version.clone());
        }
        let mut bytes = 0;
        let counted = add_size(&folder, end, &mut bytes);
        Some(Overlay {
            name,
            environment: cut(&record.environment),
            python_version: cut(&record.python_version),
            bytes,
            counted,
            count,
            packages,
        })
    };
    names.into_iter().filter_map(overlay).take(MAX_OVERLAYS).collect()
}

/// Removes all that was installed into an overlay; `false` where there is none of that name.
/// What runs in it goes on running, and can install anew. One whose environment is gone
/// goes altogether.
pub fn reset(home: &Path, name: &str) -> io::Result<bool> {
    let folder = folder(home, name);
    let Some(record) = read_record(&folder).filter(|_| is_name(name)) else { return Ok(false) };
    // The record goes last: what was interrupted can be done again.
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        if entry.file_name() == RECORD {
            continue;
        }
        let path = entry.path();
        let removed = if entry.file_type()?.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io::Error::new(error.kind(), format!("{} cannot be removed: {error}", path.display())));
            }
            _ => {}
        }
    }
    if record.base.exists() && record.libraries.iter().any(|library| library.exists()) {
        lay_out(&folder, &record)?;
    } else {
        fs::remove_dir_all(&folder)?;
    }
    Ok(true)
}

fn is_whole(folder: &Path, record: &Record) -> bool {
    folder.join("bin/python").exists()
        && folder.join("pyvenv.cfg").exists()
        && site_packages(folder, &record.python_version).join(CHAIN).exists()
}

/// What `python -m venv --without-pip` makes, and the way on to the shared packages.
fn lay_out(folder: &Path, record: &Record) -> io::Result<()> {
    let packages = site_packages(folder, &record.python_version);
    let programs = folder.join("bin");
    for directory in [&packages, &programs] {
        fs::create_dir_all(directory)?;
    }
    link(&folder.join("lib64"), Path::new("lib"))?;
    link(&programs.join("python"), &record.base)?;
    for name in ["python3".to_owned(), format!("python{}", series(&record.python_version))] {
        link(&programs.join(name), Path::new("python"))?;
    }
    let home = record.base.parent().unwrap_or(Path::new("/"));
    let settings = format!(
        "home = {}\ninclude-system-site-packages = false\nversion = {}\nprompt = {}\n",
        home.display(),
        record.python_version,
        record.environment
    );
    write(&folder.join("pyvenv.cfg"), settings.as_bytes(), 0o644)?;
    let chain = serde_json::to_string(&record.libraries)?;
    let chain = format!("import site; list(map(site.addsitedir, {chain}))\n");
    write(&packages.join(CHAIN), chain.as_bytes(), 0o644)?;
    if !folder.join("pip.conf").exists() {
        write(&folder.join("pip.conf"), PIP_SETTINGS.as_bytes(), 0o644)?;
    }
    for (name, text) in [("pip", PIP), ("pip3", PIP), ("ipython", IPYTHON), ("ipython3", IPYTHON)] {
        // A pip of the person's own brings its own program.
        if !programs.join(name).exists() {
            write(&programs.join(name), text.as_bytes(), 0o755)?;
        }
    }
    write(&folder.join(RECORD), &serde_json::to_vec(record)?, 0o644)
}

fn read_record(folder: &Path) -> Option<Record> {
    let text = fs::read(folder.join(RECORD)).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    // It becomes part of paths.
    let is_version = record.python_version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_version.then_some(record)
}

/// The note after the shared environment was exchanged under somebody's packages.
fn renewed(folder: &Path, record: &Record) -> Option<String> {
    let packages = packages(&site_packages(folder, &record.python_version));
    (!packages.is_empty()).then(|| {
        format!(
            "The environment ‘{}’ was updated. Your own packages are now on top of the new version ({}). If a package \
             can no longer be imported, install it again or reset your packages.",
            record.environment,
            enumerate(&packages)
        )
    })
}

/// The note when packages for another Python stay unseen.
fn left_behind(folder: &Path, record: &Record) -> Option<String> {
    let place = folder.parent()?;
    let other = names(place).map(|name| place.join(name)).filter(|other| other != folder).find_map(|other| {
        let before = read_record(&other).filter(|before| before.environment == record.environment)?;
        let packages = packages(&site_packages(&other, &before.python_version));
        (!packages.is_empty()).then_some((before.python_version, packages))
    });
    let (version, packages) = other?;
    let install: Vec<&str> = packages.iter().map(|package| package.name.as_str()).take(MAX_PACKAGES).collect();
    Some(format!(
        "The environment ‘{}’ was replaced and now uses Python {}. Packages that you installed for Python {} ({}) are \
         not available in it. To install them again: pip install {}",
        record.environment,
        record.python_version,
        version,
        enumerate(&packages),
        install.join(" ")
    ))
}

fn enumerate(packages: &[Package]) -> String {
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).take(5).collect();
    match packages.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The packages whose metadata lie in a folder, by name.
fn packages(library: &Path) -> Vec<Package> {
    let package = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let stem = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info"))?;
        let (name, version) = stem.split_once('-').unwrap_or((stem, ""));
        let version = version.split("-py").next().unwrap_or_default();
        // pip renames what it is about to replace.
        (!name.is_empty() && !name.starts_with('~')).then(|| Package {
            name: cut(name),
            version: cut(version),
            instead_of: None,
        })
    };
    let entries = fs::read_dir(library).into_iter().flatten().flatten();
    let mut packages: Vec<Package> = entries.filter_map(package).collect();
    packages.sort();
    packages.dedup();
    packages
}

fn same_name(one: &str, other: &str) -> bool {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    plain(one) == plain(other)
}

/// Adds what lies below a folder; `false` when the time was over before the end.
fn add_size(folder: &Path, end: Instant, bytes: &mut u64) -> bool {
    if end <= Instant::now() {
        return false;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold(true, |counted, entry| {
        let Ok(facts) = entry.metadata() else { return counted };
        // Blocks are always of 512 bytes here.
        *bytes += facts.blocks() * 512;
        if facts.is_dir() { add_size(&entry.path(), end, bytes) && counted } else { counted }
    })
}

fn names(place: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_name(name))
}

/// An environment's name, `-` and twelve hexadecimal digits.
fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_LENGTH
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'))
}

fn site_packages(folder: &Path, version: &str) -> PathBuf {
    folder.join(format!("lib/python{}/site-packages", series(version)))
}

/// `3.11` of `3.11.2`.
fn series(version: &str) -> &str {
    version.match_indices('.').nth(1).map_or(version, |(end, _)| &version[..end])
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Puts a file in its place whole.
fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let part = beside(path);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&part)?;
    file.write_all(contents)?;
    fs::rename(&part, path)
}

fn link(path: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|present| present == target) {
        return Ok(());
    }
    let part = beside(path);
    _ = fs::remove_file(&part);
    symlink(target, &part)?;
    match fs::rename(&part, path) {
        // A folder of that name stands where a link belongs: what is in it is what counts.
        Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_file(&part),
        renamed => renamed,
    }
}

/// A name for the moment, which no other process uses.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(libraries: &[&str]) -> OverlaySetup {
        OverlaySetup {
            folder: PathBuf::new(),
            environment: "default".to_owned(),
            python_version: "3.11.2".to_owned(),
            base: "/usr/bin/python3".into(),
            libraries: libraries.iter().map(PathBuf::from).collect(),
        }
    }

    #[test]
    fn renewed_and_left_behind() {
        let home = tempfile::tempdir().unwrap();
        let old = folder(home.path(), "default-aaaaaaaaaaaa");
        let setup = OverlaySetup { folder: old.clone(), ..record(&["/usr"]) };
        assert_eq!(prepare(&setup).unwrap(), Vec::<String>::new());
        assert_eq!(prepare(&setup).unwrap(), Vec::<String>::new());
        let other = OverlaySetup { libraries: vec!["/var".into()], ..setup.clone() };
        assert_eq!(prepare(&other).unwrap(), Vec::<String>::new(), "nothing of hers is in it");

        let packages = old.join("lib/python3.11/site-packages");
        fs::create_dir(packages.join("ly_one-1.0.dist-info")).unwrap();
        let note = prepare(&setup).unwrap().pop().expect("a note");
        assert!(note.contains("‘default’ was updated") && note.contains("(ly_one)"), "{note}");
        assert!(packages.join("ly_one-1.0.dist-info").is_dir());

        let newer = OverlaySetup {
            folder: folder(home.path(), "default-bbbbbbbbbbbb"),
            python_version: "3.13.1".to_owned(),
            ..setup
        };
        let note = prepare(&newer).unwrap().pop().expect("a note");
        assert!(note.contains("for Python 3.11.2 (ly_one)") && note.ends_with("pip install ly_one"), "{note}");
        assert_eq!(prepare(&newer).unwrap(), Vec::<String>::new(), "said once");
    }

    #[test]
    fn listed_and_reset() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        fs::create_dir_all(shared.join("Ly.Two-2.0.dist-info")).unwrap();
        let name = "default-aaaaaaaaaaaa";
        let folder = folder(home.path(), name);
        let setup = OverlaySetup { folder: folder.clone(), libraries: vec![shared.clone()], ..record(&[]) };
        prepare(&setup).unwrap();
        let packages = folder.join("lib/python3.11/site-packages");
        for package in ["ly_two-1.0.dist-info", "ly_one-1.0-py3.11.egg-info", "~y_three-1.0.dist-info", "ly_two"] {
            fs::create_dir(packages.join(package)).unwrap();
        }
        fs::write(packages.join("ly_two/large"), vec![1; 100_000]).unwrap();
        symlink("/usr", packages.join("elsewhere")).unwrap();
        let listed = list(home.path(), Duration::from_mins(1));
        let package = |name: &str, instead_of: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            instead_of: instead_of.map(str::to_owned),
        };
        assert_eq!(listed[0].packages, [package("ly_one", None), package("ly_two", Some("2.0"))]);
        assert!(listed.len() == 1 && listed[0].counted && listed[0].bytes > 100_000, "{listed:?}");
        assert!(listed[0].bytes < 5_000_000, "links are not followed: {listed:?}");
        assert!(!list(home.path(), Duration::ZERO)[0].counted);

        for wrong in ["default-bbbbbbbbbbbb", "../environments/default-aaaaaaaaaaaa", "..", "", "."] {
            assert!(!reset(home.path(), wrong).unwrap(), "{wrong}");
        }
        assert!(reset(home.path(), name).unwrap());
        assert_eq!(list(home.path(), Duration::from_mins(1))[0].count, 0);
        assert!(folder.join("bin/pip").exists() && !packages.join("ly_two").exists());
        assert!(Path::new("/usr/bin").exists());
        fs::remove_dir_all(shared).unwrap();
        assert!(reset(home.path(), name).unwrap());
        assert!(!folder.exists(), "nothing is kept for an environment that is gone");
    }
}
