//! `lyceum session log` and `lyceum job log`: all that is kept of a log, its end, or as it grows. Whoever follows
//! listens
//! to the portal's own stream of events, and names the last one where it breaks: a portal that is restarted meanwhile
//! costs no line and prints none twice. Bytes that were dropped before they could be read are said where they would be.

use std::{io::Write, time::Duration};

use clap::Args;
use reqwest::Response;
use serde_json::{Value, json};

use super::{
    api::{Api, Collection, Error, JOBS, Job, Result, Session},
    line, print_status, table,
};
use lyceum_model::Clock;

/// How long until a stream that broke is asked for again.
pub(super) const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// The portal says something every 15 s.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(40);

#[derive(Args, Debug)]
pub struct LogArguments {
    id: String,
    /// Follow the log until the end
    #[arg(short, long)]
    follow: bool,
    /// The number of lines to print, counted from the end; by default everything that is kept
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tail: Option<u32>,
}

/// Prints what is kept of a log, or follows it to its end.
pub(super) async fn run(
    api: &Api,
    of: Collection,
    arguments: &LogArguments,
    attempt: Option<u32>,
    json: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let id = api.id(of, &arguments.id).await?;
    let path = format!("{}/{id}/log", of.path());
    let mut asked = Vec::new();
    asked.extend(arguments.tail.map(|lines| ("tail", lines.to_string())));
    asked.extend(attempt.map(|number| ("attempt", number.to_string())));
    if arguments.follow {
        let mut printer = Printer { out, json, is_mid_line: false };
        follow(api, &path, &asked, &mut printer).await?;
        let latest = api.get(&format!("{}/{id}", of.path()), &[]).await?;
        let now = Clock::System.now();
        let sentence = if of.path() == JOBS.path() {
            table::job(&Job::read(&latest)?, now)
        } else {
            table::sentence(&Session::read(&latest)?, now)
        };
        print_status(format_args!("{sentence}"));
        return Ok(());
    }
    let query: Vec<(&str, &str)> = asked.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let (log, offset) = api.log(&path, &query).await?;
    if json {
        return line(out, &json!({ "id": id, "log": log }).to_string());
    }
    if offset > 0 && arguments.tail.is_none() {
        print_status(format_args!("lyceum: the oldest {offset} bytes of this log were dropped"));
    }
    Ok(write!(out, "{}", table::harmless_log(&log))?)
}

/// Prints all of a log as it grows, until its end.
pub(super) async fn print_all(api: &Api, of: Collection, id: &str, out: &mut (dyn Write + Send)) -> Result<()> {
    let mut printer = Printer { out, json: false, is_mid_line: false };
    follow(api, &format!("{}/{id}/log", of.path()), &[], &mut printer).await
}

/// Prints a log as it grows, until it has come to its end.
async fn follow(api: &Api, path: &str, asked: &[(&str, String)], printer: &mut Printer<'_>) -> Result<()> {
    let mut last: Option<String> = None;
    loop {
        // The last event says more than how many lines were wanted.
        let asked = asked.iter().filter(|(key, _)| last.is_none() || *key != "tail");
        let query: Vec<(&str, &str)> = asked.map(|(key, value)| (*key, value.as_str())).collect();
        match api.events(path, &query, last.as_deref()).await {
            Ok(answer) => {
                if listen(answer, &mut last, printer).await? {
                    return Ok(());
                }
            }
            Err(error) if error.may_pass() => print_status(format_args!("no response: {error}")),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

/// One reading of the stream; true when the log has come to its end, false when the stream broke.
async fn listen(mut answer: Response, last: &mut Option<String>, printer: &mut Printer<'_>) -> Result<bool> {
    let mut events = Events::default();
    while let Ok(Ok(Some(bytes))) = tokio::time::timeout(SILENCE_TIMEOUT, answer.chunk()).await {
        for event in events.read(&bytes) {
            if event.kind == "end" {
                return Ok(true);
            }
            printer.print(&event)?;
            if event.id.is_some() {
                last.clone_from(&event.id);
            }
        }
    }
    Ok(false)
}

/// Where the log goes.
struct Printer<'a> {
    out: &'a mut (dyn Write + Send),
    json: bool,
    is_mid_line: bool,
}

impl Printer<'_> {
    fn print(&mut self, event: &Event) -> Result<()> {
        let data: Value = serde_json::from_str(&event.data).map_err(|error| Error::Strange(error.to_string()))?;
        if self.json {
            let printed = json!({ "event": event.kind, "id": event.id, "data": data });
            line(self.out, &printed.to_string())?;
        } else {
            match event.kind.as_str() {
                "log" => {
                    let text = table::harmless_log(data.as_str().unwrap_or_default());
                    self.is_mid_line = if text.is_empty() { self.is_mid_line } else { !text.ends_with('\n') };
                    write!(self.out, "{text}")?;
                }
                "dropped" => self.say(&format!("{} bytes of the log were dropped here", data["bytes"]))?,
                "restart" => self.say("the log starts over here")?,
                "attempt" => print_status(format_args!("lyceum: attempt {}", data["attempt"])),
                _ => {}
            }
        }
        Ok(self.out.flush()?)
    }

    /// A line of our own, between lines of the log.
    fn say(&mut self, words: &str) -> Result<()> {
        let before = if std::mem::take(&mut self.is_mid_line) { "\n" } else { "" };
        Ok(writeln!(self.out, "{before}lyceum: {words}")?)
    }
}

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) data: String,
    pub(super) id: Option<String>,
}

/// Reads events from bytes that are cut anywhere.
#[derive(Default)]
pub(super) struct Events {
    rest: Vec<u8>,
    event: Event,
}

impl Events {
    /// The events that end in these bytes.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut ended = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.rest.push(*byte);
                continue;
            }
            let text = std::mem::take(&mut self.rest);
            let text = String::from_utf8_lossy(&text);
            if text.is_empty() {
                let event = std::mem::take(&mut self.event);
                ended.extend((!event.kind.is_empty()).then_some(event));
            } else if let Some((field, value)) = text.split_once(':') {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "event" => value.clone_into(&mut self.event.kind),
                    "data" => self.event.data.push_str(value),
                    "id" => self.event.id = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_wherever_the_stream_is_cut() {
        let stream = "event: log\nid: 1.4\ndata: \"é\\r\"\n\n: heartbeat\n\nevent: end\ndata: ended\n\n".as_bytes();
        let log = Event { kind: "log".to_owned(), data: "\"é\\r\"".to_owned(), id: Some("1.4".to_owned()) };
        let end = Event { kind: "end".to_owned(), data: "ended".to_owned(), id: None };
        for cut in 0..=stream.len() {
            let mut events = Events::default();
            let mut read = events.read(&stream[..cut]);
            read.extend(events.read(&stream[cut..]));
            assert_eq!(read, [log.clone(), end.clone()], "{cut}");
        }
    }

    #[test]
    fn what_was_dropped_is_said_between_lines() {
        let mut out = Vec::new();
        let mut printer = Printer { out: &mut out, json: false, is_mid_line: false };
        for (kind, data) in [
            ("log", r#""10 %\r50""#),
            ("dropped", r#"{"bytes":7}"#),
            ("log", r#""next\n\u001b[31m""#),
            ("restart", "{}"),
            ("new", "[]"),
        ] {
            printer.print(&Event { kind: kind.to_owned(), data: data.to_owned(), id: None }).unwrap();
        }
        let said =
            "10 %\r50\nlyceum: 7 bytes of the log were dropped here\nnext\n[31m\nlyceum: the log starts over here\n";
        assert_eq!(String::from_utf8(out).unwrap(), said);
    }
}
