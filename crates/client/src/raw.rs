//! `lyceum api METHOD PATH`: one request to the API as it is, for what no other command does. Answers are printed
//! as they come; JSON can be converted like that of any command.

use std::io::{Read, Write};

use clap::Args;
use reqwest::Method;

use super::{
    api::{Api, Error, Result},
    output::Output,
};

/// `lyceum api`
#[derive(Args, Debug)]
pub struct ApiArguments {
    #[command(flatten)]
    pub output: Output,
    /// The method: GET, POST, PUT, PATCH or DELETE
    #[arg(value_parser = method)]
    pub method: Method,
    /// The path below /api/v1, with its query, such as `/jobs?state=running`
    pub path: String,
    /// The JSON body, or @FILE, or @- for standard input
    #[arg(short, long, value_name = "JSON")]
    pub body: Option<String>,
    /// A header, such as `If-Match: "3f"`; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
}

fn method(text: &str) -> std::result::Result<Method, String> {
    let method = text.to_ascii_uppercase();
    match method.as_str() {
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" => method.parse().map_err(|_not_a_token| "not a method".to_owned()),
        _ => Err("use GET, POST, PUT, PATCH or DELETE".to_owned()),
    }
}

pub(super) async fn run(
    api: &Api,
    arguments: &ApiArguments,
    input: &mut (dyn Read + Send),
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let path = arguments.path.strip_prefix("/api/v1").unwrap_or(&arguments.path);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let body = match arguments.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
        None => None,
        Some((_, Some("-"))) => {
            let mut text = String::new();
            input.read_to_string(&mut text)?;
            Some(text)
        }
        Some((_, Some(file))) => Some(
            std::fs::read_to_string(file)
                .map_err(|error| Error::Usage(format!("{file} cannot be read as a body: {error}")))?,
        ),
        Some((text, None)) => Some(text.to_owned()),
    };
    let mut headers = Vec::new();
    for header in &arguments.headers {
        let Some((name, value)) = header.split_once(':') else {
            return Err(Error::Usage(format!("`{header}` is not of the form NAME: VALUE")));
        };
        headers.push((name.trim(), value.trim()));
    }
    let mut answer = api.raw(arguments.method.clone(), &path, &headers, body.map(Into::into)).await?;
    let mut last = b'\n';
    while let Some(part) = api.part(&mut answer).await? {
        last = part.last().copied().unwrap_or(last);
        out.write_all(&part)?;
    }
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if last != b'\n' && (kind.contains("json") || kind.starts_with("text/")) {
        out.write_all(b"\n")?;
    }
    Ok(())
}
