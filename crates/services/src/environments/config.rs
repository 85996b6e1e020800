//! The `[environments]` section: whether to build the default environment, from which
//! Python, for which GPUs, with or without a package index, and which further environments
//! there are: built by Lyceum from packages, or brought by the site.

use std::path::PathBuf;

use lyceum_model::line;
use serde::{Deserialize, Deserializer, de};

use super::{Accelerator, DEFAULT, Recipe, modules::Init};

/// The `[environments]` section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub build: Build,
    /// `"auto"`, or the path of the Python (3.10 or later) that the default environment stands on.
    pub python: BasePython,
    /// Which GPUs JAX in the default environment computes on: `"auto"`, `"cpu"`, `"cuda12"` or `"cuda13"`.
    pub accelerator: Accelerator,
    /// A directory of wheels to install from, without asking any package index; empty: none.
    #[serde(deserialize_with = "optional_path")]
    pub wheels: Option<PathBuf>,
    /// The file that makes environment modules known to bash: `"auto"`, a path, or empty for none.
    pub modules: Init,
    /// Further environments; one called `default` replaces the built one.
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

/// A further environment: a Python that the site installed, or packages that Lyceum installs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Listed")]
pub struct Site {
    /// Used in `POST /sessions {"environment": …}`.
    pub name: String,
    /// For people; empty: the name.
    pub title: String,
    /// The groups that may use it; empty: everybody.
    pub groups: Vec<String>,
    pub contents: Contents,
}

/// An entry of `environments.list`, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    groups: Vec<String>,
    python: Option<PathBuf>,
    packages: Option<Vec<String>>,
    requirements: Option<PathBuf>,
}

impl TryFrom<Listed> for Site {
    type Error = String;

    fn try_from(listed: Listed) -> Result<Self, String> {
        let contents = match (listed.python, listed.packages, listed.requirements) {
            (Some(python), None, None) => Contents::Python(python),
            (None, Some(packages), None) => Contents::Packages(packages),
            (None, None, Some(requirements)) => Contents::Requirements(requirements),
            _ => return Err(format!("`{}` must have one of `python`, `packages` and `requirements`", listed.name)),
        };
        Ok(Self { name: listed.name, title: listed.title, groups: listed.groups, contents })
    }
}

/// Where an environment's packages come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The Python of an environment that the site looks after: `/opt/torch/bin/python`.
    Python(PathBuf),
    /// What Lyceum installs, in pip's words: `torch==2.9.*`.
    Packages(Vec<String>),
    /// The path of a `requirements.txt` that Lyceum installs.
    Requirements(PathBuf),
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
            match &site.contents {
                Contents::Python(path) => absolute("list.python", path),
                Contents::Requirements(path) => absolute("list.requirements", path),
                Contents::Packages(_) => (),
            }
        }
        let packages = self.list.iter().filter_map(|site| match &site.contents {
            Contents::Packages(packages) => Some((&site.name, packages)),
            Contents::Python(_) | Contents::Requirements(_) => None,
        });
        for (name, packages) in packages {
            if let Some(bad) = packages.iter().find(|package| !is_package(package)) {
                faults
                    .push(format!("environments.list.packages: `{}` of `{name}` is not a package", bad.escape_debug()));
            }
            if packages.is_empty() {
                faults.push(format!("environments.list.packages: `{name}` has none"));
            }
        }
        for (index, site) in self.list.iter().enumerate() {
            if !is_name(&site.name) {
                faults.push(format!(
                    "environments.list.name: `{}` must have 1 to 32 characters of a-z, 0-9, `_`, `.` and `-`, starting \
                     with a letter or digit",
                    site.name.escape_debug()
                ));
            }
            if site.name == DEFAULT && !site.groups.is_empty() {
                faults.push("environments.list.groups: `default` must be for everybody".to_owned());
            }
            if self.list[..index].iter().any(|other| other.name == site.name) {
                faults.push(format!("environments.list.name: `{}` is used twice", site.name.escape_debug()));
            }
        }
        faults
    }

    /// Returns the environments of the site, with their Python.
    pub(super) fn sites(&self) -> impl Iterator<Item = (&Site, &PathBuf)> {
        self.list.iter().filter_map(|site| match &site.contents {
            Contents::Python(python) => Some((site, python)),
            Contents::Packages(_) | Contents::Requirements(_) => None,
        })
    }

    /// Returns what Lyceum builds: the default environment first, unless the list has one of that name.
    pub(super) fn recipes(&self, default: Recipe) -> Vec<Recipe> {
        let listed = self.list.iter().filter_map(|site| {
            let requirements = match &site.contents {
                Contents::Python(_) => return None,
                Contents::Packages(packages) => with_servers(packages).into(),
                Contents::Requirements(path) => path.clone().into(),
            };
            Some(Recipe::listed(&site.name, site.title(), requirements))
        });
        let default = self.list.iter().all(|site| site.name != DEFAULT).then_some(default);
        default.into_iter().chain(listed).collect()
    }
}

impl Site {
    /// Returns what pages show: the title, or else the name.
    pub(super) fn title(&self) -> &str {
        if self.title.is_empty() { &self.name } else { &self.title }
    }
}

/// Whether this is a requirement of a package, and no option of pip's and no file: those begin otherwise, or with ` -`
/// behind the package.
pub(super) fn is_package(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && !text.contains(char::is_control) && !text.contains(" -")
}

/// Returns the packages as requirements, and with them what runs notebooks and TensorBoard.
pub(super) fn with_servers(packages: &[String]) -> String {
    let name = |package: &str| {
        let end = package.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.'));
        package[..end.unwrap_or(package.len())].to_ascii_lowercase()
    };
    let servers = [("jupyterlab", "jupyterlab>=4,<5"), ("ipykernel", "ipykernel"), ("tensorboard", "tensorboard")];
    let missing = servers.iter().filter(|(server, _)| packages.iter().all(|package| name(package) != *server));
    let lines = packages.iter().map(String::as_str).chain(missing.map(|(_, requirement)| *requirement));
    lines.flat_map(|line| [line, "\n"]).collect()
}

pub(super) fn is_name(name: &str) -> bool {
    line::is_short_name(name, 32)
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
    use super::{super::Requirements, *};

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
        assert_eq!(config.recipes(Recipe::default()).len(), 1, "the default is built beside it");
        assert_eq!(config.validate(), Vec::<String>::new());
        for bad in [
            "build = 'maybe'",
            "pyton = 'auto'",
            "python = ''",
            "python = 3",
            "[[list]]\nname = 'a'",
            "accelerator = 'tpu'",
        ] {
            assert!(toml::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_every_fault() {
        let site = |name: &str, python: &str| Site {
            name: name.into(),
            title: String::new(),
            groups: Vec::new(),
            contents: Contents::Python(python.into()),
        };
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

    #[test]
    fn packages_are_built_with_the_servers_beside_them() {
        let config: Config = toml::from_str(
            "[[list]]\nname = 'torch'\npackages = ['torch>=2', 'JupyterLab==4.4.*']\n[[list]]\nname = \
             'default'\nrequirements = '/etc/lyceum/default.txt'",
        )
        .unwrap();
        assert_eq!(config.validate(), Vec::<String>::new());
        let recipes = config.recipes(Recipe::default());
        let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        assert_eq!(names, ["torch", "default"], "the listed default replaces the other");
        let Requirements::Text(text) = &recipes[0].requirements else { panic!("{recipes:?}") };
        assert_eq!(text, "torch>=2\nJupyterLab==4.4.*\nipykernel\ntensorboard\n");
        assert!(!recipes[1].is_accelerated);

        let both = "[[list]]\nname = 'a'\npython = '/x'\npackages = ['torch']";
        let error = toml::from_str::<Config>(both).unwrap_err().to_string();
        assert!(error.contains("`a` must have one of `python`, `packages` and `requirements`"), "{error}");
        for bad in ["[]", "['--index-url http://x']", "['a\\nb']"] {
            let text = format!("list = [{{ name = 'a', packages = {} }}]", bad.replace('\'', "\""));
            assert_eq!(toml::from_str::<Config>(&text).unwrap().validate().len(), 1, "{bad}");
        }
    }
}
