//! `lyceum image …`: lists, shows, adds, pulls and removes container images, as a table for people or as the API's
//! JSON. Who may do what is the portal's to say.

use std::{
    io::{Read, Write},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use lyceum_model::size::human_size;
use serde_json::{Value, json};

use super::{
    POLL_INTERVAL,
    api::{Api, Error, Result},
    line,
    output::{Columns, Output},
    print_status, table,
};

/// `lyceum image …`
#[derive(Args, Debug)]
pub struct ImageArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: ImageCommand,
}

#[derive(Subcommand, Debug)]
pub enum ImageCommand {
    /// List the images that you may use
    List(Columns),
    /// Show an image, and what it says about itself
    Show { name: String },
    /// Add an image
    Add {
        /// The name that sessions and jobs use
        name: String,
        /// Such as nvcr.io/nvidia/pytorch:26.10; may be omitted for a suggested name
        reference: Option<String>,
        /// For people
        #[arg(long)]
        title: Option<String>,
        /// A group that may use it; can be repeated; by default all users
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Only you may use it; it is pulled with your own registry credentials
        #[arg(long, conflicts_with = "groups")]
        private: bool,
    },
    /// List images that can be added by their name alone
    Suggestions(Columns),
    /// Show what takes room (administrators)
    Storage(Columns),
    /// Remove layers and earlier versions that nothing needs (administrators)
    Clean {
        /// Also remove what is stored of images that were not used for so long; they stay in the catalogue
        #[arg(long, value_name = "DAYS")]
        unused_days: Option<i64>,
    },
    /// Add an image from a file on the portal's machine (administrators)
    ///
    /// The file is an archive of `docker save`, an OCI layout, or a squashfs or SIF file.
    Import {
        /// The name that sessions and jobs use
        name: String,
        /// A file or folder that the portal's account can read
        file: PathBuf,
        /// Which image of an archive that has several
        #[arg(long)]
        tag: Option<String>,
        /// For people
        #[arg(long)]
        title: Option<String>,
        /// A group that may use it; can be repeated; by default all users
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Wait until it is ready (or has failed)
        #[arg(long)]
        wait: bool,
    },
    /// Pull an image, or update it to what its tag names now (administrators, and users their own)
    Pull {
        name: String,
        /// Wait until it is ready (or has failed)
        #[arg(long)]
        wait: bool,
    },
    /// Save, list and remove your credentials for registries
    Credentials {
        #[command(subcommand)]
        command: CredentialsCommand,
    },
    /// Remove an image and what is stored of it (administrators, and users their own)
    #[command(visible_alias = "rm")]
    Remove { name: String },
}

#[derive(Subcommand, Debug)]
pub enum CredentialsCommand {
    /// List the registries that you have saved credentials for
    List(Columns),
    /// Save credentials; the password or API key is read from standard input
    Set {
        /// The host of the registry, such as nvcr.io
        registry: String,
        /// The user name at the registry; for nvcr.io '$oauthtoken'
        #[arg(long)]
        user: String,
    },
    /// Remove your credentials for a registry
    #[command(visible_alias = "rm")]
    Remove { registry: String },
}

impl ImageArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            ImageCommand::List(columns)
            | ImageCommand::Suggestions(columns)
            | ImageCommand::Storage(columns)
            | ImageCommand::Credentials { command: CredentialsCommand::List(columns) } => {
                (&mut self.output, Some(columns))
            }
            _ => (&mut self.output, None),
        }
    }
}

pub(super) async fn run(api: &Api, arguments: ImageArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    match arguments.command {
        ImageCommand::List(_) => {
            let answer = api.get("/images", &[]).await?;
            if json {
                return line(out, &answer.to_string());
            }
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            Ok(write!(out, "{}", table::images(&items))?)
        }
        ImageCommand::Show { name } => {
            let image = api.get(&path(&name), &[]).await?;
            if json { line(out, &image.to_string()) } else { Ok(write!(out, "{}", table::image(&image))?) }
        }
        ImageCommand::Add { name, reference, title, groups, private } => {
            let body = json!({
                "name": name, "reference": reference.unwrap_or_default(), "title": title.unwrap_or_default(),
                "groups": groups, "private": private,
            });
            show(out, json, &api.post("/images", &body).await?)
        }
        ImageCommand::Suggestions(_) => {
            let answer = api.get("/image-suggestions", &[]).await?;
            if json {
                return line(out, &answer.to_string());
            }
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            Ok(write!(out, "{}", table::image_suggestions(&items))?)
        }
        ImageCommand::Storage(_) => {
            let answer = api.get("/image-storage", &[]).await?;
            if json { line(out, &answer.to_string()) } else { Ok(write!(out, "{}", table::image_storage(&answer))?) }
        }
        ImageCommand::Clean { unused_days } => {
            let answer = api.post("/image-storage/clean", &json!({ "unused_days": unused_days })).await?;
            let said = || format!("{} freed", human_size(answer["bytes"].as_i64().unwrap_or_default()));
            line(out, &if json { answer.to_string() } else { said() })
        }
        ImageCommand::Import { name, file, tag, title, groups, wait } => {
            let file = std::path::absolute(&file)?;
            let tag = tag.map(|tag| format!("#{tag}")).unwrap_or_default();
            let body = json!({
                "name": name, "reference": format!("file://{}{tag}", file.display()),
                "title": title.unwrap_or_default(), "groups": groups,
            });
            api.post("/images", &body).await?;
            pull(api, json, &name, wait, out).await
        }
        ImageCommand::Pull { name, wait } => pull(api, json, &name, wait, out).await,
        ImageCommand::Credentials { command } => credentials(api, json, command, out).await,
        ImageCommand::Remove { name } => {
            api.delete(&path(&name)).await?;
            line(
                out,
                &if json {
                    json!({ "name": name, "removed": true }).to_string()
                } else {
                    format!("{name} was removed")
                },
            )
        }
    }
}

async fn credentials(api: &Api, json: bool, command: CredentialsCommand, out: &mut (dyn Write + Send)) -> Result<()> {
    let said = |registry: &str, word: &str| {
        if json { json!({ "registry": registry, word: true }).to_string() } else { format!("{registry} was {word}") }
    };
    match command {
        CredentialsCommand::List(_) => {
            let answer = api.get("/me/registry-credentials", &[]).await?;
            if json {
                return line(out, &answer.to_string());
            }
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            Ok(write!(out, "{}", table::registry_credentials(&items))?)
        }
        CredentialsCommand::Set { registry, user } => {
            let mut password = String::new();
            std::io::stdin().take(16_384).read_to_string(&mut password)?;
            let password = password.trim();
            if password.is_empty() {
                let how = "no password on standard input; pass it as in `lyceum image credentials set nvcr.io --user \
                           '$oauthtoken' < FILE`";
                return Err(Error::Usage(how.to_owned()));
            }
            let body = json!({ "user": user, "password": password });
            api.put(&format!("/me/registry-credentials/{}", part(&registry)), &body).await?;
            line(out, &said(&registry, "saved"))
        }
        CredentialsCommand::Remove { registry } => {
            api.delete(&format!("/me/registry-credentials/{}", part(&registry))).await?;
            line(out, &said(&registry, "removed"))
        }
    }
}

/// Pulls an image, and shows how far that is where it is waited for.
async fn pull(api: &Api, json: bool, name: &str, wait: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    let mut image = api.post(&format!("{}/pull", path(name)), &Value::Null).await?;
    let mut told = String::new();
    while wait && matches!(image["state"].as_str(), Some("pulling" | "unpacking")) {
        let now = table::image_line(&image);
        if now != told {
            print_status(format_args!("{now}"));
            told = now;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        image = api.get(&path(name), &[]).await?;
    }
    if wait && let Some(reason) = image["failure"].as_str() {
        return Err(Error::Ended(format!("{name} was not pulled: {}", table::harmless(reason))));
    }
    show(out, json, &image)
}

fn show(out: &mut (dyn Write + Send), json: bool, image: &Value) -> Result<()> {
    line(out, &if json { image.to_string() } else { table::image_line(image) })
}

/// The path of an image, whatever was typed as its name.
fn path(name: &str) -> String {
    format!("/images/{}", part(name))
}

/// A word as one part of a path.
fn part(word: &str) -> String {
    let word: String = url::form_urlencoded::byte_serialize(word.as_bytes()).collect();
    word.replace('+', "%20")
}
