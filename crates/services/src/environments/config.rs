//! The `[environments]` section: whether to build the default environment, from which
//! Python, with or without a package index, and which environments the site brings itself.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de};

use super::{DEFAULT, modules::Init};

/// The `[environments]` section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub build: Build,
    /// `"auto"`, or the path of the Python (3.10 or later) that the default environment stands on.
    pub python: BasePython,
    /// A directory of wheels to install from, without asking any package index; empty: none.
    #[serde(deserialize_with = "optional_path")]
    pub wheels: Option<PathBuf>,
    /// The file that makes environment modules known to bash: `"auto"`, a path, or empty for none.
    pub modules: Init,
    /// Environments that the site looks after; one called `default` replaces the built one.
    pub list: Vec<Site>,
}

/// Whether the default environment is built on first start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Build {
    #[default]
    Auto,
    Never,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BasePython {
    /// The first suitable one of the system's places and of the search path.
    #[default]
    Auto,
    Path(PathBuf),
}

/// An environment that the site installed: any Python with what its users need beside it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Used in `POST /sessions {"environment": …}`.
    pub name: String,
    /// For people; empty: the name.
    #[serde(default)]
    pub title: String,
    /// Its Python, with an absolute path: `/opt/torch/bin/python`.
    pub python: PathBuf,
}

impl Config {
    /// Every fault, each with the key that it is about.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut absolute = |key: &str, path: &PathBuf| {
            if !path.is_absolute() {
                faults.push(format!("environments.{key}: `{}` is not an absolute path", path.display()));
            }
        };
        if let BasePython::Path(path) = &self.python {
            absolute("python", path);
        }
        if let Some(path) = &self.wheels {
            absolute("wheels", path);
        }
        if let Init::Path(path) = &self.modules {
            absolute("modules", path);
        }
        for site in &self.list {
            absolute("list.python", &site.python);
        }
        for (index, site) in self.list.iter().enumerate() {
            if !is_name(&site.name) {
                faults.push(format!(
                    "environments.list.name: `{}` must have 1 to 32 characters of a-z, 0-9, `_`, `.` and `-`, starting \
                     with a letter or digit",
                    site.name.escape_debug()
                ));
            }
            if self.list[..index].iter().any(|other| other.name == site.name) {
                faults.push(format!("environments.list.name: `{}` is used twice", site.name.escape_debug()));
            }
        }
        faults
    }

    /// Whether the default environment is ours to build, and not the site's.
    pub(super) fn has_managed_default(&self) -> bool {
        self.list.iter().all(|site| site.name != DEFAULT)
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'))
}

impl<'de> Deserialize<'de> for BasePython {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "auto" => Ok(Self::Auto),
            "" => Err(de::Error::custom("`python` must be \"auto\" or a path")),
            path => Ok(Self::Path(path.into())),
        }
    }
}

fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Some(String::deserialize(deserializer)?).filter(|path| !path.is_empty()).map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        assert_eq!(
            toml::from_str::<Config>("build = 'auto'\npython = 'auto'\nwheels = ''\nmodules = 'auto'").unwrap(),
            Config::default()
        );
        let config: Config = toml::from_str(
            "build = 'never'\npython = '/opt/py/bin/python3'\n[[list]]\nname = 'torch'\npython = \
             '/opt/torch/bin/python'",
        )
        .unwrap();
        assert_eq!(config.build, Build::Never);
        assert_eq!(config.list[0].name, "torch");
        assert!(config.has_managed_default());
        assert_eq!(config.validate(), Vec::<String>::new());
        for bad in ["build = 'maybe'", "pyton = 'auto'", "python = ''", "python = 3", "[[list]]\nname = 'a'"] {
            assert!(toml::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_every_fault() {
        let site = |name: &str, python: &str| Site { name: name.into(), title: String::new(), python: python.into() };
        let config = Config {
            python: BasePython::Path("python3".into()),
            modules: Init::Path("modules.sh".into()),
            list: vec![site("a", "/x"), site("a", "x"), site("../b", "/x"), site("c\nd", "/x")],
            ..Config::default()
        };
        let faults = config.validate().join("\n");
        assert_eq!(faults.lines().count(), 6, "{faults}");
        assert!(faults.contains("environments.python: `python3`") && faults.contains("`a` is used twice"), "{faults}");
    }
}
