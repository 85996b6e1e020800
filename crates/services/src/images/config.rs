//! The `[images]` section: images of the site, what administrators may add besides, mirrors and credentials of
//! registries, and how much the images may occupy. Credentials are in a file of their own, read once at the start.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::PathBuf};

use lyceum_images::{Credentials, PublicKey, RootForm, Settings};
use lyceum_model::{line, setting, size::parse_size};
use serde::{Deserialize, Deserializer};

use super::Source;

/// The `[images]` section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the images are stored; empty: in the data directory. On a Slurm cluster a folder that all nodes see at the
    /// same path; without it images cannot be used there.
    pub directory: PathBuf,
    /// How the images are stored.
    pub form: Form,
    /// A public key (PEM): only images that are signed with it are pulled. Empty: none.
    pub require_signature: PathBuf,
    /// Repositories that images may be added from, such as `nvcr.io/nvidia/*`; empty: administrators add from all.
    #[serde(deserialize_with = "setting::list")]
    pub allow: Vec<String>,
    /// How many images each user may add that are theirs alone, from the repositories of `allow`; 0: only
    /// administrators add images.
    pub per_user: usize,
    /// For a registry, the one that is asked instead.
    pub mirrors: BTreeMap<String, String>,
    /// Files with certificate authorities of registries, in PEM format, besides the system's.
    pub authorities: Vec<PathBuf>,
    /// A TOML file with user names and passwords of registries; empty: none.
    pub credentials: PathBuf,
    /// How much the images may occupy before layers and earlier versions are removed (bytes).
    #[serde(deserialize_with = "size")]
    pub budget: i64,
    /// Images of the site.
    pub list: Vec<ListedImage>,
    /// What the file of credentials contains, by registry.
    #[serde(skip)]
    pub registries: BTreeMap<String, Credentials>,
    /// What [`Self::require_signature`] contains.
    #[serde(skip)]
    pub key: Option<PublicKey>,
}

/// The form of stored images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A folder: the fastest, on a local disk.
    #[default]
    Directory,
    /// One file: for file systems that are slow with many small files. The nodes need squashfuse.
    Squashfs,
}

impl From<Form> for RootForm {
    fn from(form: Form) -> Self {
        match form {
            Form::Directory => Self::Directory,
            Form::Squashfs => Self::Squashfs,
        }
    }
}

/// An image that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedImage {
    /// Used in `POST /sessions {"image": …}`.
    pub name: String,
    /// For people; empty: the reference.
    #[serde(default)]
    pub title: String,
    /// `nvcr.io/nvidia/pytorch:26.10`, or a file: `file:///srv/images/pytorch.tar`
    pub reference: String,
    /// The groups that may use it; empty: everybody.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// An entry of the file of credentials.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    user: String,
    password: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            form: Form::Directory,
            require_signature: PathBuf::new(),
            allow: Vec::new(),
            per_user: 0,
            mirrors: BTreeMap::new(),
            authorities: Vec::new(),
            credentials: PathBuf::new(),
            budget: 200 << 30,
            list: Vec::new(),
            registries: BTreeMap::new(),
            key: None,
        }
    }
}

impl Config {
    /// Returns every fault, each with the key that it is about.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.budget < 0 {
            faults.push("images.budget: must be 0 or more".to_owned());
        }
        if !self.directory.as_os_str().is_empty() && !self.directory.is_absolute() {
            faults.push("images.directory: must be an absolute path".to_owned());
        }
        for pattern in &self.allow {
            if pattern.is_empty() || pattern.contains(char::is_whitespace) || !pattern.contains(['/', '*']) {
                let pattern = pattern.escape_debug();
                faults.push(format!(
                    "images.allow: `{pattern}` must be a repository with its registry, such as \"nvcr.io/nvidia/*\""
                ));
            }
        }
        if self.per_user > 0 && self.allow.is_empty() {
            faults.push("images.per_user: requires images.allow, the repositories that users may pull from".to_owned());
        }
        for (index, image) in self.list.iter().enumerate() {
            let name = image.name.escape_debug();
            if !is_name(&image.name) {
                faults.push(format!("images.list.name: `{name}` {NAME_RULE}"));
            }
            if self.list[..index].iter().any(|other| other.name == image.name) {
                faults.push(format!("images.list.name: `{name}` is used twice"));
            }
            if let Err(error) = image.reference.parse::<Source>() {
                faults.push(format!("images.list.reference: {error}"));
            }
        }
        faults
    }

    /// Reads the file of credentials and the public key. The error is a fault with its key.
    pub fn read_secrets(&mut self) -> Result<(), String> {
        if !self.require_signature.as_os_str().is_empty() {
            let path = &self.require_signature;
            let key = PublicKey::from_file(path);
            self.key = Some(key.map_err(|error| format!("images.require_signature: {}: {error}", path.display()))?);
        }
        self.read_credentials()
    }

    fn read_credentials(&mut self) -> Result<(), String> {
        if self.credentials.as_os_str().is_empty() {
            return Ok(());
        }
        let path = &self.credentials;
        let fault = |why: &str| format!("images.credentials: {} {why}", path.display());
        let found = fs::metadata(path).map_err(|error| fault(&format!("cannot be read: {error}")))?;
        if found.permissions().mode() & 0o007 != 0 {
            return Err(fault("is accessible to all users: change its mode to 0600"));
        }
        let text = fs::read_to_string(path).map_err(|error| fault(&format!("cannot be read: {error}")))?;
        self.registries = accounts(&text).map_err(|()| {
            fault("is invalid: write a table such as [\"nvcr.io\"] with user = \"…\" and password = \"…\" for each registry")
        })?;
        Ok(())
    }

    /// Returns whether the nodes of a cluster see the images.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.directory.as_os_str().is_empty()
    }

    /// Returns whether administrators may add this image.
    #[must_use]
    pub fn allows(&self, source: &Source) -> bool {
        let repository = source.repository();
        self.allow.is_empty() || self.allow.iter().any(|pattern| matches(pattern, &repository))
    }

    /// Returns how registries are reached.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            mirrors: self.mirrors.clone(),
            authorities: self.authorities.clone(),
            credentials: self.registries.clone(),
            ..Settings::default()
        }
    }
}

/// What a name must be, as the end of a sentence.
pub(super) const NAME_RULE: &str =
    "must have 1 to 64 characters of a-z, 0-9, `_`, `.` and `-`, starting with a letter or digit";

/// Returns whether this can be the name of an image.
pub(super) fn is_name(name: &str) -> bool {
    line::is_short_name(name, 64)
}

/// The reason is left out: it would quote the line, which may have a password.
fn accounts(text: &str) -> Result<BTreeMap<String, Credentials>, ()> {
    let accounts: BTreeMap<String, Account> = toml::from_str(text).map_err(drop)?;
    Ok(accounts.into_iter().map(|(host, one)| (host, Credentials::new(one.user, one.password))).collect())
}

/// Returns whether a text matches a pattern, in which `*` matches any characters.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => {
            let Some(text) = text.strip_prefix(start) else { return false };
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|end| matches(rest, end)))
        }
    }
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    setting::number(deserializer, parse_size, "must be a size like \"200GiB\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_names_every_fault() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        let text = "allow = ['nvcr.io/nvidia/*']\nbudget = '10GiB'\n[mirrors]\n'nvcr.io' = 'mirror.example.org/nvcr.io'\n\
                    [[list]]\nname = 'torch'\nreference = 'nvcr.io/nvidia/pytorch:26.10'\ngroups = ['vision']";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!((config.budget, config.validate()), (10 << 30, Vec::new()));
        let bad = "allow = ['nvcr.io']\n[[list]]\nname = 'A'\nreference = 'x:'\n[[list]]\nname = 'A'\nreference = 'x'";
        let faults = toml::from_str::<Config>(bad).unwrap().validate();
        assert_eq!(faults.len(), 5, "{faults:#?}");
        let text = "directory = 'images'\nform = 'squashfs'";
        let faults = toml::from_str::<Config>(text).unwrap().validate();
        assert_eq!(faults, ["images.directory: must be an absolute path"]);
        assert!(toml::from_str::<Config>("form = 'sif'").is_err());
        assert!(toml::from_str::<Config>("mirror = 'x'").is_err());
    }

    #[test]
    fn patterns_name_repositories() {
        let config = Config { allow: vec!["nvcr.io/nvidia/*".to_owned()], ..Config::default() };
        let allows = |text: &str| config.allows(&text.parse().unwrap());
        assert!(allows("nvcr.io/nvidia/pytorch:26.10") && allows("nvcr.io/nvidia/cuda/x"));
        assert!(!allows("nvcr.io/other/pytorch") && !allows("busybox") && !allows("evil.org/nvcr.io/nvidia/x"));
        assert!(matches("*/a*c", "x/abc") && !matches("*/a*c", "x/abd"));
        assert!(Config::default().allows(&"busybox".parse().unwrap()));
        let files = Config { allow: vec!["file:///srv/images/*".to_owned()], ..Config::default() };
        assert!(files.allows(&"file:///srv/images/x.tar#1".parse().unwrap()));
        assert!(!files.allows(&"file:///etc/x.tar".parse().unwrap()) && !config.allows(&"file:///x".parse().unwrap()));
    }

    #[test]
    fn credentials_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path: PathBuf = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let mut config = Config { credentials: path, ..Config::default() };
            config.read_credentials().map(|()| config.registries)
        };
        let text = "['nvcr.io']\nuser = '$oauthtoken'\npassword = 'secret'";
        let read = file("good", text, 0o600).unwrap();
        assert_eq!(read["nvcr.io"], Credentials::new("$oauthtoken", "secret"));
        assert!(file("open", text, 0o644).unwrap_err().contains("0600"));
        let error = file("bad", "['nvcr.io']\npassword = 'secret'", 0o600).unwrap_err();
        assert!(error.contains("is invalid") && !error.contains("secret"), "{error}");
        let mut missing = Config { credentials: "/nonexistent".into(), ..Config::default() };
        assert!(missing.read_credentials().unwrap_err().starts_with("images.credentials: /nonexistent"));
        let mut unsigned = Config { require_signature: "/nonexistent".into(), ..Config::default() };
        assert!(unsigned.read_secrets().unwrap_err().starts_with("images.require_signature: /nonexistent"));
    }
}
