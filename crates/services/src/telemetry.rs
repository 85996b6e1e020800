//! Logs: lines on standard error, text on a terminal and JSON elsewhere if asked for.
//! `LYCEUM_LOG` chooses levels as `tracing` spells them. Nothing here knows what is secret:
//! whoever logs leaves secrets out.

use std::io::{IsTerminal, Stderr, Write, stderr};

use tracing_subscriber::{EnvFilter, fmt};

/// Begins to log. `filter` is `LYCEUM_LOG`, `format` is `LYCEUM_LOG_FORMAT` (`text` or `json`).
pub fn start(filter: Option<&str>, format: Option<&str>) {
    let filter = EnvFilter::try_new(filter.unwrap_or("info,sqlx=warn,hyper=warn,tower_sessions=warn"))
        .unwrap_or_else(|_| EnvFilter::new("info"));
    // Rows of the audit log belong there at every level.
    let filter = filter.add_directive("audit=info".parse().expect("a directive of ours"));
    let terminal = stderr().is_terminal();
    let builder = fmt().with_env_filter(filter).with_writer(move || line(terminal)).with_target(false);
    // A second start (in tests) keeps the first one's subscriber.
    let _ = if format == Some("json") { builder.json().try_init() } else { builder.with_ansi(terminal).try_init() };
}

/// Where the next line goes. On a terminal a line of progress may stand there, which is drawn
/// anew below.
fn line(terminal: bool) -> Stderr {
    let mut stderr = stderr();
    if terminal {
        // What cannot be written cannot be reported either.
        let _ = stderr.write_all(b"\r\x1b[2K");
    }
    stderr
}
