//! `lyceum events`: what happens on the portal, for administrators: all events that are kept, those from a number on, or new
//! ones as they come. A stream that breaks goes on after the last event that was printed.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::{
    api::{Api, Error, Result},
    line,
    log::{Events, RECONNECT_DELAY, SILENCE_TIMEOUT},
    output::Output,
    print_status, table,
};

/// `lyceum events`
#[derive(Args, Debug)]
pub struct EventsArguments {
    #[command(flatten)]
    pub output: Output,
    /// Print only events of these types, such as `job.ended` or `quota.*`
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',')]
    types: Vec<String>,
    /// The number of the first event: print everything from there on
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    from: Option<i64>,
    /// Print new events as they come, until you interrupt it; without `--from`, only those
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn run(api: &Api, arguments: &EventsArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    let types = arguments.types.join(",");
    let after = arguments.from.map(|from| (from - 1).to_string());
    let mut query: Vec<(&str, &str)> = Vec::new();
    query.extend((!types.is_empty()).then_some(("type", types.as_str())));
    query.extend(after.as_deref().map(|after| ("after", after)));
    if arguments.follow {
        return follow(api, &query, json, out).await;
    }
    query.push(("limit", "500"));
    let mut cursor = None::<String>;
    loop {
        let next = cursor.as_deref().map(|cursor| ("cursor", cursor));
        let page = api.get("/events", &query.iter().copied().chain(next).collect::<Vec<_>>()).await?;
        for event in page["items"].as_array().into_iter().flatten() {
            print(event, json, out)?;
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

async fn follow(api: &Api, query: &[(&str, &str)], json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    let mut last: Option<String> = None;
    loop {
        match api.events("/events", query, last.as_deref()).await {
            Ok(mut answer) => {
                let mut events = Events::default();
                while let Ok(Ok(Some(bytes))) = tokio::time::timeout(SILENCE_TIMEOUT, answer.chunk()).await {
                    for event in events.read(&bytes) {
                        let data = serde_json::from_str(&event.data);
                        print(&data.map_err(|error| Error::Strange(error.to_string()))?, json, out)?;
                        last = event.id.or(last);
                    }
                    out.flush()?;
                }
            }
            Err(error) if error.may_pass() => print_status(format_args!("no response: {error}")),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

fn print(event: &Value, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    if json {
        return line(out, &event.to_string());
    }
    let text = |key: &str| table::harmless(event[key].as_str().unwrap_or_default()).replace('\n', " ");
    // Who has acted; of a new state, whose it is.
    let who = [text("actor"), text("owner")].into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let parts = [event["number"].to_string(), text("at"), text("type"), who, text("subject"), text("detail")];
    line(out, parts.join("  ").trim_end())
}
