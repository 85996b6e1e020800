//! Environment modules of the site, as Lmod or Environment Modules list them: name, versions,
//! description. They are asked now and then by the portal, in a process with a limit of time
//! and output, and answered from memory. Loading them is the agent's business, as the user.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio::{io::AsyncReadExt, process::Command, sync::watch, time::timeout};

/// The file that makes `module` known to bash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Init {
    /// The first of the usual ones that is there.
    #[default]
    Auto,
    /// This site has no modules.
    None,
    Path(PathBuf),
}

/// Where it is found without being told, first come first: what the site's login shells read.
const DEFAULT_INITS: [&str; 3] = ["/etc/profile.d/lmod.sh", "/etc/profile.d/z00_lmod.sh", "/etc/profile.d/modules.sh"];

/// How long the list may take: modules may be many, and lie on a file server.
const TIMEOUT: Duration = Duration::from_mins(2);

/// How much of a list is read (bytes), and how many modules are kept.
const MAX_LIST: u64 = 32 * 1024 * 1024;
const MAX_MODULES: usize = 5000;

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 200;

/// Lmod tells everything in one document; Environment Modules in two, a line apart.
const LIST: &str = r#"
. "$1" >/dev/null 2>&1
if [ -n "${LMOD_DIR-}" ]; then
  exec "$LMOD_DIR/spider" -o spider-json "${MODULEPATH-}" 2>/dev/null
fi
module avail --json 2>&1
printf '\n\036\n'
module whatis --json 2>&1
"#;

/// Between the two documents.
const SEPARATOR: &str = "\u{1e}";

/// A piece of software that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Module {
    /// `cuda`
    pub name: String,
    /// One line; empty where nobody wrote one.
    pub description: String,
    /// What to load: `cuda/11.8`, `cuda/12.4`.
    pub versions: Vec<String>,
}

/// The modules of this portal; cheap to clone.
#[derive(Clone, Debug)]
pub struct Modules {
    init: Option<Arc<Path>>,
    known: Arc<watch::Sender<Arc<Vec<Module>>>>,
}

impl Init {
    fn find(&self) -> Option<PathBuf> {
        match self {
            Self::None => None,
            Self::Auto => DEFAULT_INITS.iter().map(PathBuf::from).find(|path| path.is_file()),
            Self::Path(path) => Some(path.clone()),
        }
    }
}

impl<'de> Deserialize<'de> for Init {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "auto" => Self::Auto,
            "" => Self::None,
            path => Self::Path(path.into()),
        })
    }
}

impl Modules {
    /// Nothing is listed yet: see [`Modules::refresh`].
    pub fn new(init: &Init) -> Self {
        Self { init: init.find().map(Into::into), known: Arc::new(watch::Sender::new(Arc::default())) }
    }

    /// The file that makes `module` known to bash; `None` where this site has no modules.
    pub fn init(&self) -> Option<&Path> {
        self.init.as_deref()
    }

    /// In alphabetical order.
    pub fn list(&self) -> Arc<Vec<Module>> {
        self.known.borrow().clone()
    }

    /// Whether a name, with or without a version, is among those that were listed; as long
    /// as nothing was, everything may be.
    pub fn may_be(&self, name: &str) -> bool {
        let known = self.list();
        let is = |module: &Module| module.name == name || module.versions.iter().any(|version| version == name);
        known.is_empty() || known.iter().any(is)
    }

    /// Lists them anew. What was known stays where that fails.
    pub async fn refresh(&self) -> Result<(), Error> {
        let Some(init) = &self.init else { return Ok(()) };
        let text = ask(init).await?;
        let modules = parse(&text).ok_or(Error::Unreadable)?;
        self.known.send_replace(Arc::new(modules));
        Ok(())
    }
}

/// Why there is no new list.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to list the modules")]
    Run(#[source] io::Error),
    #[error("listing the modules took more than {} seconds", TIMEOUT.as_secs())]
    TimedOut,
    #[error("the list of modules is larger than {MAX_LIST} bytes")]
    TooLarge,
    #[error("the list of modules is not in the format of Lmod or of Environment Modules 5.0 or later")]
    Unreadable,
}

async fn ask(init: &Path) -> Result<String, Error> {
    let mut command = Command::new("/bin/bash");
    command.args(["--noprofile", "--norc", "-c", LIST, "lyceum"]).arg(init);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent").env("LANG", "C.UTF-8");
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(Error::Run)?;
    let mut output = child.stdout.take().expect("it is piped").take(MAX_LIST + 1);
    let mut text = Vec::new();
    timeout(TIMEOUT, output.read_to_end(&mut text)).await.map_err(|_late| Error::TimedOut)?.map_err(Error::Run)?;
    if text.len() as u64 > MAX_LIST {
        return Err(Error::TooLarge);
    }
    // Its status says nothing that the text does not.
    let _ = timeout(TIMEOUT, child.wait()).await;
    String::from_utf8(text).map_err(|_bytes| Error::Unreadable)
}

fn parse(text: &str) -> Option<Vec<Module>> {
    let found = match text.split_once(SEPARATOR) {
        Some((avail, whatis)) => of_environment_modules(avail, whatis)?,
        None => of_lmod(text)?,
    };
    let mut modules = BTreeMap::<String, Module>::new();
    for (full, description) in found {
        // What cannot be asked for is not offered.
        if !lyceum_model::modules::is_name(&full) {
            continue;
        }
        let name = full.rsplit_once('/').map_or(full.as_str(), |(name, _)| name).to_owned();
        let module =
            modules.entry(name.clone()).or_insert(Module { name, description: String::new(), versions: Vec::new() });
        if module.description.is_empty() {
            module.description = one_line(&description);
        }
        module.versions.push(full);
        if modules.len() >= MAX_MODULES {
            break;
        }
    }
    for module in modules.values_mut() {
        module.versions.sort_by_cached_key(|version| natural(version));
        module.versions.dedup();
    }
    Some(modules.into_values().collect())
}

/// `{"cuda": {"/path/cuda/12.4": {"fullName": "cuda/12.4", "whatis": [..], "hidden": false}}}`
fn of_lmod(text: &str) -> Option<Vec<(String, String)>> {
    let packages: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(text.trim()).ok()?;
    let files = packages.into_values().flat_map(BTreeMap::into_values);
    let shown = files.filter(|file| file["hidden"] != Value::Bool(true));
    Some(shown.filter_map(|file| Some((file["fullName"].as_str()?.to_owned(), first(&file["whatis"])))).collect())
}

/// `{"/path": {"cuda/12.4": {"name": "cuda/12.4", "type": "modulefile", …}}}`, and the same with
/// `whatis`. What has none is in the first alone.
fn of_environment_modules(avail: &str, whatis: &str) -> Option<Vec<(String, String)>> {
    type Paths = BTreeMap<String, BTreeMap<String, Value>>;
    let read = |text: &str| match text.trim() {
        "" => Some(Paths::new()),
        text => serde_json::from_str::<Paths>(text).ok(),
    };
    let mut told: BTreeMap<String, String> = read(whatis)
        .unwrap_or_default()
        .into_values()
        .flatten()
        .map(|(name, file)| (name, first(&file["whatis"])))
        .collect();
    let files = read(avail)?.into_values().flatten();
    let modules = files.filter(|(_, file)| file["type"] == "modulefile");
    Some(modules.map(|(name, _)| (name.clone(), told.remove(&name).unwrap_or_default())).collect())
}

/// The first line that is no `Name:` or `Version:`, which say what is known.
fn first(lines: &Value) -> String {
    let lines = lines.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(Value::as_str);
    let mut told = lines.filter(|line| !["Name", "Version"].iter().any(|key| line.trim_start().starts_with(key)));
    let line = told.next().unwrap_or_default();
    line.trim_start()
        .strip_prefix("Description")
        .map_or(line, |rest| rest.trim_start().trim_start_matches(':'))
        .to_owned()
}

fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_DESCRIPTION).collect();
    plain.trim().to_owned()
}

/// What a name is made of, so that 9 comes before 12.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Number(u64),
    Word(String),
}

fn natural(name: &str) -> Vec<Piece> {
    let pieces = name.as_bytes().chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let text = |piece: &[u8]| String::from_utf8_lossy(piece).into_owned();
    pieces.map(|piece| text(piece).parse().map_or_else(|_err| Piece::Word(text(piece)), Piece::Number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read_alike() {
        let lmod = r#"{"cuda": {"/m/cuda/12.4": {"fullName": "cuda/12.4", "whatis": ["Name: cuda", "Description: CUDA toolkit"], "hidden": false},
                                "/m/cuda/9.2": {"fullName": "cuda/9.2", "whatis": ["CUDA toolkit"]},
                                "/m/cuda/.x": {"fullName": "cuda/.x"}},
                       "old": {"/m/old/1": {"fullName": "old/1", "hidden": true}},
                       "evil": {"/m/evil": {"fullName": "evil;id"}}}"#;
        let tcl = r#"{"/m": {"cuda/9.2": {"name": "cuda/9.2", "type": "modulefile"}, "cuda/12.4": {"type": "modulefile"},
                              "evil\nid": {"type": "modulefile"}, "gone": {"type": "symlink"}}}
                     SEPARATOR {"/m": {"cuda/9.2": {"whatis": ["CUDA\u0007 toolkit"]}}}"#;
        for text in [lmod.to_owned(), tcl.replace("SEPARATOR", SEPARATOR)] {
            let modules = parse(&text).unwrap();
            assert_eq!(modules.len(), 1, "{modules:?}");
            assert_eq!(
                (modules[0].name.as_str(), &modules[0].versions),
                ("cuda", &vec!["cuda/9.2".into(), "cuda/12.4".into()])
            );
            assert!(["CUDA toolkit", "CUDA  toolkit"].contains(&modules[0].description.as_str()), "{modules:?}");
        }
        assert_eq!(parse(&format!("\n{SEPARATOR}\n")), Some(Vec::new()), "a site without any");
        for bad in ["", "bash: module: command not found", "[]", "{\"a\": 1}"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
