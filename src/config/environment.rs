//! The variables that this process was started with, read once; what of them decides where
//! things lie, and what the tools that build environments may see.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::start::ProcessEnvironment;

/// The process's surroundings, read once.
#[derive(Clone, Debug, Default)]
pub struct Environment(pub(super) BTreeMap<String, String>);

impl Environment {
    /// What this process was started with.
    pub fn of_process() -> Self {
        // A variable that is not UTF-8 is none of ours.
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the folder for settings of the user who runs a command; none without a home directory.
    pub fn settings_of_user(&self) -> Option<PathBuf> {
        let set = self.find("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = set.or_else(|| self.find("HOME").map(|home| Path::new(home).join(".config")))?;
        Some(folder.join("lyceum"))
    }

    /// What decides where things lie. `data` is `--data`.
    pub fn surroundings(&self, data: Option<&Path>) -> ProcessEnvironment {
        let path = |name| self.find(name).map(PathBuf::from);
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        ProcessEnvironment {
            uid: rustix::process::geteuid().as_raw(),
            data: data.map(Path::to_owned).or_else(|| path("LYCEUM_DATA")).map(absolute),
            home: path("HOME"),
            xdg_data_home: path("XDG_DATA_HOME"),
            xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
        }
    }

    /// What the tools that build environments may see: paths, proxies, certificates, indexes.
    pub fn for_tools(&self) -> Vec<(String, String)> {
        const NAMES: [&str; 9] = [
            "PATH",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "LANG",
        ];
        let passes = |name: &str| {
            let upper = name.to_ascii_uppercase();
            NAMES.contains(&upper.as_str()) || upper.starts_with("PIP_") || upper.starts_with("UV_")
        };
        self.0.iter().filter(|(name, _)| passes(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}
