//! `lyceum files …`: the user's files on the portal's machine, over the REST API of files. `cp` copies between them and
//! this machine, `ls` lists a folder. Here is what a command line means; `download` and `upload` find what is to be
//! copied and copy one file whole, `copy` goes through all of them and goes on past one that fails.

pub(super) mod artifacts;
pub(super) mod code;
mod copy;
mod download;
mod local;
mod upload;

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use lyceum_model::{files::RawPath, size::human_size};
use serde_json::{Value, json};

use super::{
    api::{Api, Error, Result},
    line,
    output::{Columns, Output},
    table,
};

/// Paths that begin with this are on the portal's machine.
const PREFIX: &str = "lyceum:";

type Out<'a> = &'a mut (dyn Write + Send);

/// `lyceum files …`
#[derive(Args, Debug)]
pub struct FilesArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: FilesCommand,
}

#[derive(Subcommand, Debug)]
pub enum FilesCommand {
    /// Copy files between this machine and your files on the portal's machine
    Cp(Copy),
    /// List a folder of your files on the portal's machine
    Ls(Listing),
}

#[derive(Args, Debug)]
pub struct Copy {
    /// Files to copy; those on the portal's machine begin with `lyceum:`, such as lyceum:results/model.pt
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<OsString>,
    /// A folder, or the path of the copy; it begins with `lyceum:` if the sources are on this machine
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Copy folders with everything in them, except for links
    #[arg(short, long)]
    recursive: bool,
}

#[derive(Args, Debug)]
pub struct Listing {
    /// The path, with or without `lyceum:`; by default your home directory
    path: Option<String>,
    /// Include entries that begin with a dot
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    columns: Columns,
}

impl FilesArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            FilesCommand::Ls(listing) => (&mut self.output, Some(&listing.columns)),
            FilesCommand::Cp(_) => (&mut self.output, None),
        }
    }
}

pub(super) async fn run(api: &Api, arguments: FilesArguments, out: Out<'_>) -> Result<()> {
    let json = arguments.output.is_json();
    match arguments.command {
        FilesCommand::Cp(asked) => cp(api, &asked, json, out).await,
        FilesCommand::Ls(listing) => ls(api, &listing, json, out).await,
    }
}

/// Where a file is.
#[derive(Debug, PartialEq)]
enum Place {
    /// On this machine.
    Here(PathBuf),
    /// Among the user's files: a path as the API accepts it.
    Portal(String),
}

impl Place {
    fn parse(text: &OsStr) -> Result<Self> {
        let Some(path) = text.as_bytes().strip_prefix(PREFIX.as_bytes()) else { return Ok(Self::Here(text.into())) };
        match std::str::from_utf8(path) {
            Ok(path) => Ok(Self::Portal(path.to_owned())),
            Err(_) => Err(Error::Usage(format!("{} is not valid text", Path::new(text).display()))),
        }
    }
}

async fn cp(api: &Api, asked: &Copy, json: bool, out: Out<'_>) -> Result<()> {
    let sources = asked.sources.iter().map(|text| Place::parse(text)).collect::<Result<Vec<_>>>()?;
    let target = Place::parse(&asked.target)?;
    let is_here = |place: &Place| matches!(place, Place::Here(_));
    if sources.iter().any(|source| is_here(source) == is_here(&target)) {
        return Err(Error::Usage(format!(
            "either the sources or the target must be on the portal's machine and begin with `{PREFIX}`"
        )));
    }
    let is_one = sources.len() == 1;
    let mut taken = HashSet::new();
    match target {
        Place::Here(target) => {
            let is_folder = target.is_dir();
            if !is_folder && (!is_one || target.as_os_str().as_bytes().ends_with(b"/")) {
                return Err(Error::Usage(format!("{} is not a folder", target.display())));
            }
            let mut steps = Vec::new();
            for source in sources {
                let Place::Portal(source) = source else { continue };
                let found = download::find(api, &source).await;
                let path = |name: OsString| if is_folder { target.join(name) } else { target.clone() };
                let planned = match found.and_then(|entry| Ok((path(name_of(&entry)?), entry))) {
                    Ok((path, _)) if !taken.insert(path.clone()) => Err(twice(&path.display())),
                    Ok((path, entry)) => download::plan(api, &entry, path, asked.recursive, &mut steps).await,
                    Err(error) => Err(error),
                };
                copy::note(planned, &source, &mut steps)?;
            }
            copy::all(steps, json, out, async |work, progress| download::copy(api, work, progress).await).await
        }
        Place::Portal(target) => {
            let folder = upload::folder(api, &target, is_one).await?;
            let mut steps = Vec::new();
            for source in sources {
                let Place::Here(source) = source else { continue };
                let path = match &folder {
                    Some(folder) => local::name(&source).map(|name| upload::below(folder, &name)),
                    None => Ok(target.clone()),
                };
                let planned = match path {
                    Ok(path) if !taken.insert(PathBuf::from(&path)) => Err(twice(&path)),
                    Ok(path) => upload::plan(&source, path, asked.recursive, &mut steps),
                    Err(error) => Err(error),
                };
                copy::note(planned, &source.display().to_string(), &mut steps)?;
            }
            copy::all(steps, json, out, async |work, progress| upload::copy(api, work, progress).await).await
        }
    }
}

fn twice(path: &impl std::fmt::Display) -> Error {
    Error::NotCopied(table::harmless(&format!("two sources have the same target {path}")))
}

fn is_folder_without_recursive() -> Error {
    Error::NotCopied("this is a folder; use --recursive".to_owned())
}

/// Returns the last name of an entry's path: never one that leads out of a folder.
fn name_of(entry: &Value) -> Result<OsString> {
    let (_, name) = RawPath::decode(entry["encoded_path"].as_str().unwrap_or_default()).split();
    match name.0.as_slice() {
        b"" | b"." | b".." => Err(Error::NotCopied(format!("`{}` is not the name of a file", name.shown()))),
        _ => Ok(OsString::from_vec(name.0)),
    }
}

async fn ls(api: &Api, listing: &Listing, json: bool, out: Out<'_>) -> Result<()> {
    let text = listing.path.as_deref().unwrap_or_default();
    let path = RawPath::from(text.strip_prefix(PREFIX).unwrap_or(text)).encoded();
    let hidden = if listing.all { "true" } else { "false" };
    let entry = api.get(&format!("/files/info?path={path}"), &[]).await?;
    let answer = if entry["kind"] == "folder" {
        api.all(&format!("/files?path={path}"), &[("hidden", hidden)]).await?
    } else {
        json!({ "items": [entry] })
    };
    if json {
        return line(out, &answer.to_string());
    }
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return line(out, "this folder is empty");
    }
    Ok(write!(out, "{}", rows(items.iter().map(|item| (item, item["name"].as_str().unwrap_or_default()))))?)
}

/// A table of entries, each with the name that it is shown by.
fn rows<'a>(items: impl Iterator<Item = (&'a Value, &'a str)>) -> String {
    let row = |(item, name): (&Value, &str)| {
        let is_folder = item["kind"] == "folder";
        let size = item["size_bytes"].as_i64().filter(|_| !is_folder).map_or_else(|| "-".to_owned(), human_size);
        let target = item["target"].as_str().map(|target| format!(" -> {target}")).unwrap_or_default();
        let name = format!("{name}{}{target}", if is_folder { "/" } else { "" });
        vec![size, item["modified_at"].as_str().unwrap_or_default().to_owned(), table::harmless(&name)]
    };
    let head = ["SIZE", "MODIFIED", "NAME"].map(str::to_owned).to_vec();
    table::columns(&std::iter::once(head).chain(items.map(row)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
