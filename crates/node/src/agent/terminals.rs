//! The open terminals of a workload, and one viewer's WebSocket. Binary frames are bytes both
//! ways; a text frame from a viewer changes the size, one to it says that we are there; a
//! close frame says why a terminal or a viewer is over.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{
    child::{Reaper, Streams},
    inside::Inside,
    status::Status,
    terminal::{self, Input, Terminal, Viewer, ViewerEnd},
};
use lyceum_wire::protocol::{AppLaunch, Phase, Shell};

/// The most terminals open at a time; they are numbered from 1 to this.
const MAX_TERMINALS: u32 = 8;

/// A viewer whose connection takes nothing for this long is gone.
const STUCK: Duration = Duration::from_secs(20);

/// How long a viewer that was told that it is over has to go.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How often we say that we are there, and ask whether the viewer is. What lies between ends
/// connections that are silent for a minute, often for half of one.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// A script sees no pings: this is the same for the page.
const ALIVE: &str = r#"{"alive":true}"#;

/// A viewer that has answered none of so many pings is gone, though nothing has told us: a
/// laptop that was closed, say. It must not go on as the one that answers the programs.
const UNANSWERED: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("terminals are numbered from 1 to {MAX_TERMINALS}")]
    Number,
    #[error("the workload is not ready or is ending")]
    NotNow,
    #[error("the terminal could not be opened: {0}")]
    Open(#[source] io::Error),
}

/// One row of the list.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OpenTerminal {
    pub terminal: u32,
    pub viewers: usize,
}

/// A handle on all terminals; clones share them.
#[derive(Clone)]
pub(super) struct Terminals(Arc<Shared>);

struct Shared {
    app: Mutex<AppLaunch>,
    shell: Shell,
    reaper: Reaper,
    status: Status,
    open: Mutex<BTreeMap<u32, Terminal>>,
    were_opened: AtomicBool,
    /// The image that shells run in.
    inside: Mutex<Option<Inside>>,
}

impl Terminals {
    /// Terminals of this shell.
    pub fn new(app: AppLaunch, shell: &Shell, reaper: &Reaper, status: &Status) -> Self {
        Self(Arc::new(Shared {
            app: Mutex::new(app),
            shell: shell.clone(),
            reaper: reaper.clone(),
            status: status.clone(),
            open: Mutex::default(),
            were_opened: AtomicBool::new(false),
            inside: Mutex::default(),
        }))
    }

    /// What shells that are opened from now on find in their environment, and the image they run in.
    pub fn run_in(&self, environment: BTreeMap<String, String>, inside: Option<Inside>) {
        self.0.app.lock().environment = environment;
        *self.0.inside.lock() = inside;
    }

    /// Whether somebody ever opened one.
    pub fn were_opened(&self) -> bool {
        self.0.were_opened.load(Ordering::Relaxed)
    }

    pub fn list(&self) -> Vec<OpenTerminal> {
        let open = self.0.open.lock();
        open.iter().map(|(&number, terminal)| OpenTerminal { terminal: number, viewers: terminal.viewers() }).collect()
    }

    /// Joins a terminal, which is opened when it is not there.
    pub fn join(&self, number: u32) -> Result<Viewer, Error> {
        if !(1..=MAX_TERMINALS).contains(&number) {
            return Err(Error::Number);
        }
        // Not in a home that is half prepared, and no new shell where all are being ended.
        if self.0.status.snapshot().phase != Phase::Ready {
            return Err(Error::NotNow);
        }
        let mut open = self.0.open.lock();
        if let Some(viewer) = open.get(&number).and_then(Terminal::join) {
            return Ok(viewer);
        }
        let terminal = self.open(number).map_err(Error::Open)?;
        let viewer = terminal.join().ok_or_else(|| Error::Open(io::Error::other("it ended immediately")))?;
        open.insert(number, terminal);
        self.0.status.terminals(open.len());
        Ok(viewer)
    }

    /// Hangs up; `false` when there is no such terminal.
    pub fn close(&self, number: u32) -> bool {
        self.0.open.lock().get(&number).map(Terminal::hang_up).is_some()
    }

    pub fn close_all(&self) {
        self.0.open.lock().values().for_each(Terminal::hang_up);
    }

    fn open(&self, number: u32) -> io::Result<Terminal> {
        let Shell { path, arguments } = &self.0.shell;
        let (pty, slave) = terminal::open()?;
        let login = format!("-{}", path.rsplit('/').next().unwrap_or("sh"));
        let name = Some(login.as_str()).filter(|_| arguments.is_empty());
        let argv: Vec<String> = std::iter::once(path.clone()).chain(arguments.iter().cloned()).collect();
        let mut app = self.0.app.lock().clone();
        for (name, value) in [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")] {
            app.environment.insert(name.to_owned(), value.to_owned());
        }
        // These have no option for the file that bash is given: they read the one that this names.
        if let Some(file) = app.environment.get("LYCEUM_BASHRC").cloned()
            && path.ends_with("/sh") | path.ends_with("/dash")
        {
            app.environment.entry("ENV".to_owned()).or_insert(file);
        }
        let inside = self.0.inside.lock().clone();
        let child = match inside {
            Some(inside) => {
                let (app, argv) = inside.shell(&app).map_err(io::Error::other)?;
                self.0.reaper.spawn(&app, &argv, None, Streams::Terminal(slave))?
            }
            None => self.0.reaper.spawn(&app, &argv, name, Streams::Terminal(slave))?,
        };
        self.0.were_opened.store(true, Ordering::Relaxed);
        let terminal = Terminal::new(&self.0.status);
        let (running, terminals) = (terminal.clone(), self.clone());
        tokio::spawn(async move {
            running.run(pty, child).await;
            terminals.forget(number, &running);
        });
        Ok(terminal)
    }

    /// The number may have been given to another terminal meanwhile.
    fn forget(&self, number: u32, ended: &Terminal) {
        let mut open = self.0.open.lock();
        if open.get(&number).is_some_and(|terminal| terminal.is(ended)) {
            open.remove(&number);
            self.0.status.terminals(open.len());
        }
    }
}

/// What a viewer may say in a text frame.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Command {
    Resize { cols: u16, rows: u16 },
}

/// Carries bytes between a WebSocket and a terminal until either is over.
pub(super) async fn attend(mut socket: WebSocket, mut viewer: Viewer) {
    // The first at once: from then on the page notices when nothing comes.
    let mut heartbeat = interval(HEARTBEAT_INTERVAL);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unanswered = 0;
    let reason = loop {
        let message = tokio::select! {
            biased;
            received = socket.recv() => {
                unanswered = 0;
                match received.and_then(Result::ok).as_ref().map_or(Received::Leave, understand) {
                    Received::Input(input) => viewer.enter(input).await,
                    Received::Nothing => {}
                    Received::Leave => return,
                    Received::Nonsense => break ViewerEnd::Nonsense,
                }
                continue;
            }
            // Before the output, which may not leave a gap for it.
            _ = heartbeat.tick() => {
                if unanswered == UNANSWERED {
                    return;
                }
                unanswered += 1;
                if !sent(&mut socket, Message::Ping(Bytes::new())).await {
                    return;
                }
                Message::text(ALIVE)
            }
            output = viewer.output() => match output {
                Some(output) => Message::Binary(output),
                None => break viewer.why_over(),
            },
        };
        if !sent(&mut socket, message).await {
            return;
        }
    };
    let close = Message::Close(Some(CloseFrame { code: reason.code(), reason: reason.sentence().into() }));
    // A socket that is closed with something unread in it takes the farewell along: an answer to a ping, say.
    if sent(&mut socket, close).await {
        let _ = timeout(CLOSE_TIMEOUT, async { while let Some(Ok(_)) = socket.recv().await {} }).await;
    }
}

async fn sent(socket: &mut WebSocket, message: Message) -> bool {
    matches!(timeout(STUCK, socket.send(message)).await, Ok(Ok(())))
}

enum Received {
    Input(Input),
    Nothing,
    Leave,
    Nonsense,
}

fn understand(message: &Message) -> Received {
    match message {
        Message::Binary(bytes) => Received::Input(Input::Bytes(bytes.clone())),
        Message::Text(text) => match serde_json::from_str(text.as_str()) {
            Ok(Command::Resize { cols, rows }) => {
                Received::Input(Input::Resize { cols: cols.clamp(1, 1000), rows: rows.clamp(1, 1000) })
            }
            Err(_) => Received::Nonsense,
        },
        Message::Ping(_) | Message::Pong(_) => Received::Nothing,
        Message::Close(_) => Received::Leave,
    }
}
