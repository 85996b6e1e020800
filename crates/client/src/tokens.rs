//! `lyceum token …`: lists, creates, rotates and revokes one's own API tokens, and with `--user` those of a service
//! account, or lists and revokes those of other users. The token of a context is rotated in its
//! place: the new secret goes into the file of the contexts and is not printed.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Connection,
    api::{Api, Error, Result},
    duration, line,
    output::{Columns, Output},
    table::{self, harmless},
};

type Out<'a> = &'a mut (dyn Write + Send);

/// `lyceum token …`
#[derive(Args, Debug)]
pub struct TokenArguments {
    #[command(flatten)]
    pub output: Output,
    /// The tokens of this user (administrators); only a service account's can be created and rotated
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// List your tokens, also expired ones
    List(Columns),
    /// Create a token and print its secret
    Create {
        name: String,
        /// What it may do; can be repeated; by default everything that you may do
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// After how long it expires, at most 366d
        #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30d")]
        expires: i64,
    },
    /// Replace the secret of a token, which then expires after the same time as before
    ///
    /// Without an ID, the token that this command uses: its new secret is kept in the context, or printed if the token
    /// comes from `LYCEUM_TOKEN`. The old secret is rejected immediately.
    Rotate { id: Option<String> },
    /// Revoke tokens: programs that use them stop working immediately
    Revoke {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

impl TokenArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            TokenCommand::List(columns) => (&mut self.output, Some(columns)),
            _ => (&mut self.output, None),
        }
    }
}

pub(super) async fn run(connection: &Connection, arguments: TokenArguments, out: Out<'_>) -> Result<()> {
    let (json, context) = (arguments.output.is_json(), arguments.output.context.clone());
    let api = connection.open(context.as_deref())?;
    let tokens = match &arguments.user {
        None => "/tokens".to_owned(),
        Some(user) => {
            let user: String = url::form_urlencoded::byte_serialize(user.as_bytes()).collect();
            format!("/users/{user}/tokens")
        }
    };
    match arguments.command {
        TokenCommand::List(_) => {
            let tokens = api.all(&tokens, &[]).await?;
            if json {
                return line(out, &tokens.to_string());
            }
            let items = tokens["items"].as_array().cloned().unwrap_or_default();
            let shown = [
                ("ID", "id"),
                ("NAME", "name"),
                ("SCOPES", "scopes"),
                ("CREATED", "created_at"),
                ("LAST USED", "last_used_at"),
                ("EXPIRES", "expires_at"),
            ];
            let rows: Vec<Value> = items.into_iter().map(with_scopes).collect();
            Ok(write!(out, "{}", table::items(&rows, &shown))?)
        }
        TokenCommand::Create { name, scopes, expires } => {
            let request = json!({ "name": name, "scopes": scopes, "expires_in_seconds": expires });
            print_secret(&api.post(&tokens, &request).await?, json, out)
        }
        TokenCommand::Rotate { id: Some(id) } => {
            let id = whole_id(&api, &tokens, &id).await?;
            print_secret(&rotate(&api, &tokens, &id).await?, json, out)
        }
        TokenCommand::Rotate { id: None } if arguments.user.is_some() => {
            Err(Error::Usage("name the token to rotate, by its name or id".to_owned()))
        }
        TokenCommand::Rotate { id: None } => rotate_used(connection, context.as_deref(), &api, json, out).await,
        TokenCommand::Revoke { ids } => {
            let revoke = async |id: &str| api.delete(&format!("{tokens}/{}", whole_id(&api, &tokens, id).await?)).await;
            super::each(&ids, revoke).await
        }
    }
}

async fn rotate(api: &Api, tokens: &str, id: &str) -> Result<Value> {
    api.post(&format!("{tokens}/{id}/rotate"), &Value::Null).await
}

/// Rotates the token that the command itself uses.
async fn rotate_used(
    connection: &Connection,
    context: Option<&str>,
    api: &Api,
    json: bool,
    out: Out<'_>,
) -> Result<()> {
    let me = api.get("/me", &[]).await?;
    let id = me["token"]["id"].as_str().unwrap_or_default().to_owned();
    // That the file can be written is known before the old secret is worth nothing.
    let place = connection.secret_place(context)?;
    let token = rotate(api, "/tokens", &id).await?;
    let Some(place) = place else { return print_secret(&token, json, out) };
    let name = place.name().to_owned();
    if let Err(error) = place.keep(token["secret"].as_str().unwrap_or_default()) {
        print_secret(&token, json, out)?;
        return Err(error);
    }
    if json {
        let shown =
            json!({ "id": token["id"], "name": token["name"], "expires_at": token["expires_at"], "context": name });
        return line(out, &shown.to_string());
    }
    let expires = harmless(token["expires_at"].as_str().unwrap_or_default());
    line(out, &format!("the token of context `{name}` has a new secret; it expires {expires}"))
}

/// The secret alone, so that a script can take it.
fn print_secret(token: &Value, json: bool, out: Out<'_>) -> Result<()> {
    let secret = token["secret"].as_str().unwrap_or_default();
    line(out, &if json { token.to_string() } else { harmless(secret) })
}

fn with_scopes(mut token: Value) -> Value {
    let scopes =
        token["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
    token["scopes"] = Value::from(if scopes.is_empty() { "everything".to_owned() } else { scopes });
    token
}

/// Finds a token of the list at this path by its id, by a part of it at its beginning or end, or by its name.
async fn whole_id(api: &Api, list: &str, text: &str) -> Result<String> {
    let tokens = api.all(list, &[]).await?;
    let items = tokens["items"].as_array().cloned().unwrap_or_default();
    let is_meant = |token: &&Value| {
        let id = token["id"].as_str().unwrap_or_default();
        let is_part = text.len() >= 4 && (id.starts_with(text) || id.ends_with(text));
        is_part || token["name"] == text
    };
    match items.iter().filter(is_meant).collect::<Vec<_>>()[..] {
        [one] => Ok(super::api::id_of(one)),
        [] => Err(Error::NoSuchName { word: "token", text: text.to_owned() }),
        ref several => {
            let ids = several.iter().map(|token| super::api::id_of(token)).collect::<Vec<_>>().join(", ");
            Err(Error::Ambiguous { word: "token", part: text.to_owned(), ids })
        }
    }
}
