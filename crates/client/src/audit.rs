//! `lyceum audit`: the audit log for administrators, the latest entries or all from a number on, oldest first. As JSON
//! each entry is a line, so that a collector appends what it reads and continues after the last number that it has.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::{
    api::{Api, Result},
    line,
    output::Output,
    print_status, table,
};

/// `lyceum audit`
#[derive(Args, Debug)]
pub struct AuditArguments {
    #[command(flatten)]
    pub output: Output,
    /// The number of the first entry: print everything from there on; by default the latest 50 entries
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    from: Option<i64>,
}

pub(super) async fn run(api: &Api, arguments: &AuditArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    let Some(from) = arguments.from else {
        let mut latest = api.get("/audit", &[("limit", "50")]).await?;
        let mut items = latest["items"].take().as_array().cloned().unwrap_or_default();
        items.reverse();
        return print(&items, json, out);
    };
    let after = (from - 1).to_string();
    let (mut cursor, mut is_first) = (None::<String>, true);
    loop {
        let query = [("after", after.as_str()), ("limit", "500")];
        let next = cursor.as_deref().map(|cursor| ("cursor", cursor));
        let page = api.get("/audit", &query.into_iter().chain(next).collect::<Vec<_>>()).await?;
        let items = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let oldest = items.first().and_then(|entry| entry["number"].as_i64());
        if let Some(oldest) = oldest.filter(|oldest| is_first && *oldest > from) {
            print_status(format_args!("lyceum: the entries before {oldest} were deleted by age"));
        }
        print(items, json, out)?;
        is_first = false;
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

fn print(items: &[Value], json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    if json {
        return items.iter().try_for_each(|entry| line(out, &entry.to_string()));
    }
    let text = |entry: &Value, key: &str| table::harmless(entry[key].as_str().unwrap_or_default()).replace('\n', " ");
    let row = |entry: &Value| {
        let number = entry["number"].to_string();
        let texts = ["at", "actor", "action", "subject", "detail"].map(|key| text(entry, key));
        std::iter::once(number).chain(texts).collect::<Vec<_>>()
    };
    Ok(write!(out, "{}", table::columns(&items.iter().map(row).collect::<Vec<_>>()))?)
}
