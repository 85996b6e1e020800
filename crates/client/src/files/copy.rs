//! Going through what is to be copied, one after the other: what failed is reported and the rest is copied nevertheless.
//! On a terminal a line shows how far it is. What one file needs is the caller's to do.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use lyceum_model::size::human_size;
use serde_json::json;
use tokio::time::Instant;

use super::{Out, Result};
use crate::{api::Error, line, print_status, table};

/// A file or folder to be copied, or why it cannot be.
pub struct Step<W> {
    /// The path of the source, as people read it.
    pub name: String,
    pub bytes: u64,
    pub work: Result<W>,
}

/// A file that was copied.
pub struct Copied {
    pub target: String,
    pub bytes: u64,
}

/// Adds a source that cannot be copied, unless nothing more can.
pub fn note<W>(planned: Result<()>, name: &str, steps: &mut Vec<Step<W>>) -> Result<()> {
    match planned {
        Err(error) if concerns_all(&error) => Err(error),
        Err(error) => {
            steps.push(Step { name: name.to_owned(), bytes: 0, work: Err(error) });
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Says that something is left out, which is not a failure.
pub fn skip(name: &str, why: &str) {
    print_status(format_args!("lyceum: {}: skipped, {why}", table::harmless(name)));
}

/// Whether the next file would fail for the same reason.
fn concerns_all(error: &Error) -> bool {
    match error {
        Error::Problem(problem) => problem.status == 401,
        Error::Unreachable { .. } | Error::Usage(_) | Error::Output(_) => true,
        _ => false,
    }
}

/// Copies each, and prints a line for each file as JSON, or how many there were.
pub async fn all<W>(
    steps: Vec<Step<W>>,
    json: bool,
    out: Out<'_>,
    mut act: impl AsyncFnMut(&W, &mut Progress) -> Result<Option<Copied>>,
) -> Result<()> {
    let mut progress = Progress::new(steps.iter().map(|step| step.bytes).sum());
    let (of, mut files, mut bytes, mut failed) = (steps.len(), 0_u64, 0, 0);
    let mut broken: Option<String> = None;
    for step in steps {
        // Of a folder that could not be made, that alone is reported.
        if broken.as_ref().is_some_and(|folder| step.name.starts_with(folder.as_str())) {
            failed += 1;
            continue;
        }
        progress.name.clone_from(&step.name);
        let done = match &step.work {
            Ok(work) => act(work, &mut progress).await,
            Err(_) => step.work.map(|_| None),
        };
        match done {
            Ok(None) => {}
            Ok(Some(copied)) => {
                (files, bytes) = (files + 1, bytes + copied.bytes);
                if json {
                    progress.clear();
                    let row = json!({ "source": step.name, "target": copied.target, "size_bytes": copied.bytes });
                    line(out, &row.to_string())?;
                }
            }
            Err(error) if of == 1 || concerns_all(&error) => {
                progress.clear();
                return Err(match error {
                    Error::NotCopied(why) => Error::NotCopied(format!("{}: {why}", table::harmless(&step.name))),
                    other => other,
                });
            }
            Err(error) => {
                failed += 1;
                progress.clear();
                match error {
                    Error::Local { .. } => print_status(format_args!("lyceum: {error}")),
                    _ => print_status(format_args!("lyceum: {}: {error}", table::harmless(&step.name))),
                }
                broken = Some(format!("{}/", step.name));
            }
        }
        progress.pass(step.bytes);
    }
    progress.clear();
    if !json {
        let word = if files == 1 { "file" } else { "files" };
        line(out, &format!("copied {files} {word}, {}", human(bytes)))?;
    }
    if failed == 0 { Ok(()) } else { Err(Error::Several { failed, of }) }
}

/// Copies each, or stops at the first that fails and names it.
pub async fn whole<W>(
    steps: Vec<Step<W>>,
    mut act: impl AsyncFnMut(&W, &mut Progress) -> Result<Option<Copied>>,
) -> Result<(), (String, Error)> {
    let mut progress = Progress::new(steps.iter().map(|step| step.bytes).sum());
    for step in steps {
        progress.name.clone_from(&step.name);
        let done = match step.work {
            Ok(work) => act(&work, &mut progress).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            progress.clear();
            return Err((step.name, error));
        }
        progress.pass(step.bytes);
    }
    progress.clear();
    Ok(())
}

pub fn human(bytes: u64) -> String {
    human_size(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// How often the line is drawn at most.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// The longest name in the line (characters); its end is shown.
const MAX_NAME_LENGTH: usize = 40;

/// A line that says how far copying is, on standard error if that is a terminal.
pub struct Progress {
    name: String,
    total: u64,
    /// Of the files before this one.
    before: u64,
    current: u64,
    /// When copying began, and when the line was drawn last.
    begin: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub fn new(total: u64) -> Self {
        let (begin, is_shown) = (Instant::now(), std::io::stderr().is_terminal());
        Self { name: String::new(), total, before: 0, current: 0, begin, drawn: None, is_shown }
    }

    /// So many bytes of the current file are copied.
    pub fn at(&mut self, bytes: u64) {
        self.current = bytes;
        if self.is_shown && self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW_INTERVAL) {
            self.drawn = Some(Instant::now());
            let text = sentence(self.before + bytes, self.total, self.begin.elapsed(), &self.name);
            // A terminal that went away is nobody's loss.
            let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
        }
    }

    fn pass(&mut self, bytes: u64) {
        (self.before, self.current) = (self.before + bytes, 0);
    }

    /// Makes room for another line.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn sentence(done: u64, total: u64, elapsed: Duration, name: &str) -> String {
    let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let rate = u128::from(done).saturating_mul(1000).checked_div(elapsed.as_millis()).unwrap_or(0);
    let rate = human(u64::try_from(rate).unwrap_or(u64::MAX));
    let name = table::harmless(name).replace('\n', " ");
    let surplus = name.chars().count().saturating_sub(MAX_NAME_LENGTH);
    let name: String = name.chars().skip(surplus).collect();
    format!("{percent:3} %  {} of {}  {rate}/s  {name}", human(done), human(total.max(done)))
}

/// Waits before what failed is tried again, each time longer.
#[derive(Default)]
pub struct Retries(u32);

impl Retries {
    const MAX: u32 = 5;

    /// Returns the error if it cannot pass, or was seen too often.
    pub async fn wait(&mut self, error: Error, progress: &mut Progress) -> Result<()> {
        if !error.may_pass() || self.0 >= Self::MAX {
            return Err(error);
        }
        progress.clear();
        print_status(format_args!("no response: {error}"));
        tokio::time::sleep(Duration::from_secs(1 << self.0)).await;
        self.0 += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is() {
        let name = format!("{}model\u{1b}.pt", "x".repeat(40));
        let said = sentence(1 << 20, 4 << 20, Duration::from_secs(2), &name);
        assert_eq!(said, format!(" 25 %  1 MiB of 4 MiB  512 KiB/s  {}model.pt", "x".repeat(32)));
        assert!(sentence(0, 0, Duration::ZERO, "a").starts_with("100 %"));
        assert!(sentence(9, 3, Duration::from_secs(1), "a").starts_with("100 %"), "it grew");
    }
}
