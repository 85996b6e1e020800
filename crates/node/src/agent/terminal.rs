//! One terminal: a shell behind a PTY, what it has shown so far, and whoever looks at it. All
//! viewers see the same; anyone may type. The first viewer's emulator answers the shell's
//! questions (where is the cursor, what are you), so the others and the replay get the
//! output without them.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use pty_process::{OwnedReadPty, OwnedWritePty, Pty, Size};
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    child::{Child, Exit},
    replay::{Filter, Scrollback},
    status::Status,
};

/// Chunks of output that may wait for one viewer.
const QUEUE: usize = 32;
/// The largest chunk, in bytes.
const CHUNK: usize = 16 * 1024;
/// The shell waits this long for a viewer whose queue is full; then the viewer goes.
const VIEWER_TIMEOUT: Duration = Duration::from_secs(2);
/// What the shell has written last, when it has ended, comes within this time.
const FINAL_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);
/// A shell that was hung up on has this long to end.
const HANG_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// What a viewer sends.
pub(super) enum Input {
    Bytes(Bytes),
    Resize { cols: u16, rows: u16 },
}

/// Why a viewer sees nothing more.
#[derive(Clone, Debug)]
pub(super) enum ViewerEnd {
    Ended(String),
    TooSlow,
    /// It sent a text frame that says nothing in this protocol.
    Nonsense,
}

impl ViewerEnd {
    /// The code of the WebSocket's close frame.
    pub fn code(&self) -> u16 {
        match self {
            Self::Ended(_) => 1000,
            Self::TooSlow => 1013,
            Self::Nonsense => 1003,
        }
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::Ended(sentence) => sentence.clone(),
            Self::TooSlow => "the connection was too slow: connect again".to_owned(),
            Self::Nonsense => "invalid text frame: text frames only change the size".to_owned(),
        }
    }
}

/// A handle on one terminal; clones share it.
#[derive(Clone)]
pub(super) struct Terminal {
    screen: Arc<Mutex<Screen>>,
    input: mpsc::Sender<Input>,
    hang_up: CancellationToken,
    status: Status,
}

struct Screen {
    scrollback: Scrollback,
    filter: Filter,
    /// The first of them is the one whose emulator answers.
    viewers: Vec<(u64, mpsc::Sender<Bytes>)>,
    next_viewer: u64,
    /// Taken by the task that writes to the shell.
    input: Option<mpsc::Receiver<Input>>,
    over: Option<String>,
}

/// One look at a terminal; dropping it leaves.
pub(super) struct Viewer {
    number: u64,
    terminal: Terminal,
    output: mpsc::Receiver<Bytes>,
}

/// A new PTY: our side, and the shell's.
pub(super) fn open() -> io::Result<(Pty, OwnedFd)> {
    let (pty, slave) = pty_process::open().map_err(io::Error::other)?;
    pty.resize(Size::new(24, 80)).map_err(io::Error::other)?;
    let slave = slave.as_fd().try_clone_to_owned()?;
    Ok((pty, slave))
}

impl Terminal {
    pub fn new(status: &Status) -> Self {
        let (input, receiver) = mpsc::channel(QUEUE);
        let screen = Screen {
            scrollback: Scrollback::default(),
            filter: Filter::default(),
            viewers: Vec::new(),
            next_viewer: 0,
            input: Some(receiver),
            over: None,
        };
        Self { screen: Arc::new(Mutex::new(screen)), input, hang_up: CancellationToken::new(), status: status.clone() }
    }

    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.screen, &other.screen)
    }

    pub fn viewers(&self) -> usize {
        self.screen.lock().viewers.len()
    }

    pub fn hang_up(&self) {
        self.hang_up.cancel();
    }

    /// A new viewer, who first sees what was shown so far; `None` when the shell has ended.
    pub fn join(&self) -> Option<Viewer> {
        let (sender, output) = mpsc::channel(QUEUE);
        let mut screen = self.screen.lock();
        if screen.over.is_some() || self.hang_up.is_cancelled() {
            return None;
        }
        let mut replay = screen.scrollback.replay();
        if screen.viewers.is_empty() {
            // The start of a sequence whose rest this viewer will see unfiltered.
            replay.extend_from_slice(screen.filter.pending());
        }
        if !replay.is_empty() {
            sender.try_send(replay.into()).expect("a new queue has room");
        }
        let number = screen.next_viewer;
        screen.next_viewer += 1;
        screen.viewers.push((number, sender));
        Some(Viewer { number, terminal: self.clone(), output })
    }

    /// Serves the shell until it has ended or was hung up on.
    pub async fn run(&self, pty: Pty, mut child: Child) {
        let Some(input) = self.screen.lock().input.take() else { return };
        let (reader, writer) = pty.into_split();
        let mut exit = None;
        {
            let mut reading = pin!(self.read(reader));
            tokio::select! {
                () = &mut reading => {}
                () = write(writer, input) => {}
                () = self.hang_up.cancelled() => {}
                ended = &mut child.exit => {
                    exit = ended.ok();
                    // Jobs in the background may hold the terminal open: do not wait for them.
                    let _ = timeout(FINAL_OUTPUT_TIMEOUT, reading).await;
                }
            }
        }
        // Both halves are closed now: the kernel has sent SIGHUP to the shell and its jobs.
        if exit.is_none() {
            let ended = timeout(HANG_UP_TIMEOUT, &mut child.exit).await;
            if ended.is_err() {
                // It may have ended just now.
                let _ = rustix::process::kill_process_group(child.pid, Signal::KILL);
            }
            exit = match ended {
                Ok(ended) => ended.ok(),
                Err(_) => child.exit.await.ok(),
            };
        }
        self.finish(exit);
    }

    fn finish(&self, exit: Option<Exit>) {
        let sentence = match exit {
            Some(Exit { code: Some(0), .. }) => "the shell has ended".to_owned(),
            Some(Exit { code: Some(code), .. }) => format!("the shell has ended with code {code}"),
            Some(Exit { signal: Some(signal), .. }) => format!("the shell was ended by signal {signal}"),
            _ => "the terminal was closed".to_owned(),
        };
        let farewell = Bytes::from(format!("\r\n[{sentence}]\r\n"));
        let mut screen = self.screen.lock();
        screen.over = Some(sentence);
        for (_, viewer) in screen.viewers.drain(..) {
            // A full queue has no room for it, but the close frame says the same.
            let _ = viewer.try_send(farewell.clone());
        }
    }

    /// Hands the shell's output to all viewers until the PTY is closed.
    async fn read(&self, mut pty: OwnedReadPty) {
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = pty.read(&mut buffer).await {
            self.status.terminal_used();
            let raw = Bytes::copy_from_slice(&buffer[..length]);
            let (filtered, viewers) = self.screen.lock().take_in(&raw);
            for (place, (number, viewer)) in viewers.into_iter().enumerate() {
                let bytes = if place == 0 { raw.clone() } else { filtered.clone() };
                if !bytes.is_empty() && viewer.send_timeout(bytes, VIEWER_TIMEOUT).await.is_err() {
                    self.screen.lock().leave(number);
                }
            }
        }
    }
}

impl Screen {
    fn take_in(&mut self, raw: &[u8]) -> (Bytes, Vec<(u64, mpsc::Sender<Bytes>)>) {
        let filtered = self.filter.pass(raw);
        self.scrollback.append(&filtered);
        (filtered.into(), self.viewers.clone())
    }

    fn leave(&mut self, number: u64) {
        let first = self.viewers.first().map(|(number, _)| *number);
        self.viewers.retain(|(other, _)| *other != number);
        // Whoever answers from now on needs the start of a sequence under way.
        if first == Some(number)
            && let Some((_, viewer)) = self.viewers.first()
            && !self.filter.pending().is_empty()
        {
            let _ = viewer.try_send(Bytes::copy_from_slice(self.filter.pending()));
        }
    }
}

async fn write(mut pty: OwnedWritePty, mut input: mpsc::Receiver<Input>) {
    while let Some(input) = input.recv().await {
        let written = match input {
            Input::Bytes(bytes) => pty.write_all(&bytes).await.map_err(io::Error::other),
            Input::Resize { cols, rows } => pty.resize(Size::new(rows, cols)).map_err(io::Error::other),
        };
        if written.is_err() {
            break;
        }
    }
    // The terminal is over when its output is.
    std::future::pending::<()>().await;
}

impl Viewer {
    /// The next output; `None` when it is over.
    pub async fn output(&mut self) -> Option<Bytes> {
        self.output.recv().await
    }

    /// Types something. Waits while the shell takes nothing.
    pub async fn enter(&self, input: Input) {
        self.terminal.status.terminal_used();
        // A terminal that is over says so on the other way.
        let _ = self.terminal.input.send(input).await;
    }

    pub fn why_over(&self) -> ViewerEnd {
        self.terminal.screen.lock().over.clone().map_or(ViewerEnd::TooSlow, ViewerEnd::Ended)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.terminal.screen.lock().leave(self.number);
    }
}
