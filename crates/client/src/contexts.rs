//! Contexts: portals that somebody signed in to with `lyceum login`, each an address and a token, in one file that only
//! its owner can read. The variables `LYCEUM_URL` and `LYCEUM_TOKEN` win over it.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    api::{Api, Error, Result},
    line,
    output::{Columns, Output},
    table,
};

/// `lyceum login`
#[derive(Args, Debug)]
pub struct LoginArguments {
    #[command(flatten)]
    pub output: Output,
    /// The address of the portal, such as `https://portal.example.org`
    pub url: String,
    /// The name of the context; by default the host of the address
    #[arg(long)]
    pub name: Option<String>,
}

/// `lyceum context …`
#[derive(Args, Debug)]
pub struct ContextArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: ContextCommand,
}

#[derive(Subcommand, Debug)]
pub enum ContextCommand {
    /// List the contexts; a star marks the one in use
    List(Columns),
    /// Use a context from now on
    Use {
        /// The name of the context
        name: String,
    },
    /// Remove a context and its token from this machine; the token stays valid until you revoke it
    #[command(visible_alias = "rm")]
    Remove {
        /// The name of the context
        name: String,
    },
}

impl ContextArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            ContextCommand::List(columns) => (&mut self.output, Some(columns)),
            _ => (&mut self.output, None),
        }
    }
}

/// Where a portal is and the token for it, as the environment says.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// `LYCEUM_URL`
    pub url: Option<String>,
    /// `LYCEUM_TOKEN`
    pub token: Option<String>,
    /// The file of the contexts; none where there is no home directory.
    pub contexts: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Contexts {
    /// The name of the one in use.
    #[serde(default)]
    current: String,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Context {
    url: String,
    token: String,
}

impl Connection {
    /// The portal to ask: the context that was named, else the variables, else the context in use.
    pub(super) fn open(&self, named: Option<&str>) -> Result<Api> {
        if named.is_none() && (self.url.is_some() || self.token.is_some()) {
            return Api::new(self.url.as_deref(), self.token.as_deref());
        }
        let all = self.read()?;
        let name = named.unwrap_or(&all.current);
        match all.contexts.get(name) {
            Some(context) => Api::new(Some(&context.url), Some(&context.token)),
            None if named.is_some() => Err(Error::NoContext(name.to_owned())),
            None => Api::new(None, None),
        }
    }

    /// Where the token that [`Self::open`] takes is kept, in a file that can be written; `None` for `LYCEUM_TOKEN`.
    pub(super) fn secret_place(&self, named: Option<&str>) -> Result<Option<SecretPlace<'_>>> {
        if named.is_none() && (self.url.is_some() || self.token.is_some()) {
            return Ok(None);
        }
        let all = self.read()?;
        self.write(&all)?;
        let name = named.unwrap_or(&all.current).to_owned();
        Ok(Some(SecretPlace { connection: self, all, name }))
    }

    fn file(&self) -> Result<&Path> {
        let home = || Error::Usage("no home directory: set HOME or XDG_CONFIG_HOME".to_owned());
        self.contexts.as_deref().ok_or_else(home)
    }

    fn read(&self) -> Result<Contexts> {
        let Some(file) = &self.contexts else { return Ok(Contexts::default()) };
        let about = match fs::metadata(file) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(unusable(file, &error)),
        };
        if about.mode() & 0o077 != 0 {
            return Err(unusable(file, &"other users can access it; run `chmod 600` on it"));
        }
        let text = fs::read_to_string(file).map_err(|error| unusable(file, &error))?;
        toml::from_str(&text).map_err(|error| unusable(file, &error.message()))
    }

    /// Replaces the file as a whole: a full disk or a second login leaves one that is complete.
    fn write(&self, all: &Contexts) -> Result<()> {
        let file = self.file()?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let text = toml::to_string(all).map_err(|error| unusable(file, &error))?;
        let kept = || -> std::io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let mut new =
                tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
            new.write_all(text.as_bytes())?;
            new.as_file().sync_all()?;
            new.persist(file)?;
            Ok(())
        };
        kept().map_err(|error| unusable(file, &error))
    }
}

/// The context whose token a command uses, for a new secret of it.
pub(super) struct SecretPlace<'a> {
    connection: &'a Connection,
    all: Contexts,
    name: String,
}

impl SecretPlace<'_> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes the new secret into the file.
    pub(super) fn keep(mut self, secret: &str) -> Result<()> {
        if let Some(context) = self.all.contexts.get_mut(&self.name) {
            secret.clone_into(&mut context.token);
        }
        self.connection.write(&self.all)
    }
}

fn unusable(file: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("{} cannot be used: {why}", file.display()))
}

/// Checks a token with the portal, and keeps it as the context in use.
pub(super) async fn login(
    connection: &Connection,
    arguments: &LoginArguments,
    input: &mut (dyn Read + Send),
    out: &mut (dyn Write + Send),
) -> Result<()> {
    connection.file()?;
    let mut token = String::new();
    input.take(4096).read_to_string(&mut token)?;
    let token = token.lines().next().unwrap_or_default().trim().to_owned();
    if token.is_empty() {
        let how = "no token on standard input; create one under Settings, and pass it as in `lyceum login URL < FILE`";
        return Err(Error::Usage(how.to_owned()));
    }
    let api = Api::new(Some(&arguments.url), Some(&token))?;
    let me = api.get("/me", &[]).await?;
    let host = url::Url::parse(&arguments.url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let name = arguments.name.clone().or(host).unwrap_or_default();
    let mut all = connection.read()?;
    all.contexts.insert(name.clone(), Context { url: arguments.url.clone(), token });
    all.current.clone_from(&name);
    connection.write(&all)?;
    let user = me["name"].as_str().unwrap_or_default();
    if arguments.output.is_json() {
        return line(out, &json!({ "name": name, "url": arguments.url, "user": user }).to_string());
    }
    line(out, &format!("signed in to {} as {}; context `{name}`", arguments.url, table::harmless(user)))
}

pub(super) fn manage(
    connection: &Connection,
    arguments: &ContextArguments,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let json = arguments.output.is_json();
    let mut all = connection.read()?;
    let missing = |name: &String| Error::NoContext(name.clone());
    match &arguments.command {
        ContextCommand::List(_) => {
            let items: Vec<_> = all
                .contexts
                .iter()
                .map(|(name, one)| json!({ "name": name, "url": one.url, "current": *name == all.current }))
                .collect();
            if json {
                return line(out, &json!({ "items": items }).to_string());
            }
            if items.is_empty() {
                return line(out, "no contexts; `lyceum login URL` adds one");
            }
            for (name, one) in &all.contexts {
                let mark = if *name == all.current { '*' } else { ' ' };
                line(out, &format!("{mark} {name}  {}", one.url))?;
            }
            Ok(())
        }
        ContextCommand::Use { name } => {
            let url = all.contexts.get(name).ok_or_else(|| missing(name))?.url.clone();
            all.current.clone_from(name);
            connection.write(&all)?;
            let text = json!({ "name": name, "url": url }).to_string();
            line(out, &if json { text } else { format!("context `{name}`, {url}") })
        }
        ContextCommand::Remove { name } => {
            all.contexts.remove(name).ok_or_else(|| missing(name))?;
            if all.current == *name {
                all.current.clear();
            }
            connection.write(&all)?;
            let text = json!({ "name": name, "removed": true }).to_string();
            line(out, &if json { text } else { format!("{name} was removed; its token is still valid") })
        }
    }
}
