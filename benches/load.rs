//! The load for `run.py`: a small app to stand behind a proxy, and clients whose own cost is
//! small enough not to be what is measured. Frames and heads are bytes made once; nothing
//! here is a general client or server. Each verb prints one line of JSON.

#![expect(clippy::print_stdout, reason = "what it prints is its answer")]

use std::{
    env, io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener},
    task::JoinSet,
    time::{sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

const USAGE: &str = "load app unix:PATH|ADDRESS…
load ws ADDRESS PATH CONNECTIONS SECONDS [HEADER…]
load hold ADDRESS PATH CONNECTIONS [HEADER…]
load rate ADDRESS PATH CONNECTIONS PER_SECOND SECONDS [HEADER…]";

/// A message's payload, in bytes; below 126, so that its frame has the shortest head.
const PAYLOAD: u8 = 100;
/// A masked frame: two bytes, the mask, the payload.
const MASKED: usize = 6 + PAYLOAD as usize;
const UNMASKED: usize = 2 + PAYLOAD as usize;
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_mins(2);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let done = runtime.block_on(async {
        match arguments.as_slice() {
            ["app", places @ ..] => serve(places).await,
            ["ws", address, path, connections, seconds, headers @ ..] => {
                echo(address, &upgrade(address, path, headers), number(connections)?, number(seconds)?).await
            }
            ["hold", address, path, connections, headers @ ..] => {
                hold(address, &upgrade(address, path, headers), number(connections)?).await
            }
            ["rate", address, path, connections, per_second, seconds, headers @ ..] => {
                let request = head(address, path, headers, "");
                rate(address, &request, number(connections)?, number(per_second)?, number(seconds)?).await
            }
            _ => Err(io::Error::other(USAGE)),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> io::Result<u32> {
    text.parse().map_err(|_error| io::Error::other(format!("{text:?} is not a number\n{USAGE}")))
}

fn head(address: &str, path: &str, headers: &[&str], more: &str) -> String {
    let mut lines = headers.join("\r\n");
    if !lines.is_empty() {
        lines.push_str("\r\n");
    }
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{lines}{more}\r\n")
}

fn upgrade(address: &str, path: &str, headers: &[&str]) -> String {
    let more = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
    );
    head(address, path, headers, &more)
}

/// Sends messages back and forth on many connections; one is under way on each.
async fn echo(address: &str, request: &str, connections: u32, seconds: u32) -> io::Result<()> {
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(connect(address, request).await?);
    }
    let (begin, length) = (Instant::now(), Duration::from_secs(seconds.into()));
    let mut tasks = JoinSet::new();
    for mut stream in open {
        tasks.spawn(async move {
            let (frame, mut answer, mut took) = (masked(), [0; UNMASKED], Vec::new());
            while begin.elapsed() < length {
                let sent = Instant::now();
                stream.write_all(&frame).await?;
                stream.read_exact(&mut answer).await?;
                took.push(micros(sent));
            }
            Ok::<_, io::Error>(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done.expect("a client does not panic")?);
    }
    report(took, begin.elapsed());
    Ok(())
}

/// Opens many connections, sends one message on each, says so, and keeps them until standard
/// input ends.
async fn hold(address: &str, request: &str, connections: u32) -> io::Result<()> {
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut stream = connect(address, request).await?;
        stream.write_all(&masked()).await?;
        stream.read_exact(&mut [0; UNMASKED]).await?;
        open.push(stream);
    }
    println!("{{\"open\": {}}}", open.len());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Asks at a fixed rate, spread over the connections, and counts from the moment at which a
/// request was due: one that had to wait for its turn waited.
async fn rate(address: &str, request: &str, connections: u32, per_second: u32, seconds: u32) -> io::Result<()> {
    let gap = Duration::from_secs(1) / per_second;
    let count = u64::from(per_second) * u64::from(seconds);
    let (next, begin) = (Arc::new(AtomicU64::new(0)), Instant::now() + Duration::from_millis(100));
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (next, request) = (next.clone(), request.to_owned());
        tasks.spawn(async move {
            let (mut took, mut buffer) = (Vec::new(), Vec::new());
            loop {
                let mine = next.fetch_add(1, Ordering::Relaxed);
                if count <= mine {
                    return Ok::<_, io::Error>(took);
                }
                let due = begin + Duration::from_nanos(nanos(gap).saturating_mul(mine));
                // Timers have a grain of a millisecond: what this client oversleeps is not counted,
                // what it has to wait for the answer before is.
                let late = due <= Instant::now();
                sleep_until(due.into()).await;
                let counted = if late { due } else { Instant::now() };
                stream.write_all(request.as_bytes()).await?;
                answer(&mut stream, &mut buffer).await?;
                took.push(micros(counted));
            }
        });
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done.expect("a client does not panic")?);
    }
    report(took, begin.elapsed());
    Ok(())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX)
}

fn report(mut took: Vec<u32>, elapsed: Duration) {
    took.sort_unstable();
    let at = |percent: usize| took.get(took.len() * percent / 100).or(took.last()).copied().unwrap_or_default();
    let (count, seconds) = (took.len(), elapsed.as_secs_f64());
    let per_second = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds;
    println!(
        "{{\"count\": {count}, \"per_second\": {per_second:.1}, \"p50_us\": {}, \"p95_us\": {}, \"p99_us\": {}}}",
        at(50),
        at(95),
        at(99)
    );
}

/// Reads one answer whose length its head tells.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200") {
            return Err(io::Error::other(head));
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let whole = end + 4 + length.unwrap_or_default();
        while buffer.len() < whole {
            if stream.read_buf(buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        return Ok(());
    }
}

async fn connect(address: &str, request: &str) -> io::Result<TcpStream> {
    let opened = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(request.as_bytes()).await?;
        let head = read_head(&mut stream).await?;
        if head.starts_with("HTTP/1.1 101") { Ok(stream) } else { Err(io::Error::other(head)) }
    };
    timeout(PATIENCE, opened).await?
}

/// Byte by byte, so that nothing behind the head is taken.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A binary message with a mask that changes nothing.
fn masked() -> [u8; MASKED] {
    let mut frame = [b'x'; MASKED];
    frame[..6].copy_from_slice(&[0x82, 0x80 | PAYLOAD, 0, 0, 0, 0]);
    frame
}

/// The app: it answers `ok`, swallows what it is sent, and echoes messages.
async fn serve(places: &[&str]) -> io::Result<()> {
    let mut listeners = JoinSet::new();
    for place in places {
        if let Some(path) = place.strip_prefix("unix:") {
            let listener = UnixListener::bind(path)?;
            listeners.spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await?;
                    tokio::spawn(converse(stream));
                }
            });
        } else {
            let listener = TcpListener::bind(place).await?;
            listeners.spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await?;
                    stream.set_nodelay(true)?;
                    tokio::spawn(converse(stream));
                }
            });
        }
    }
    match listeners.join_next().await {
        Some(ended) => ended.expect("a listener does not panic"),
        None => Err(io::Error::other(USAGE)),
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let head = read_head(&mut stream).await?;
        let lower = head.to_ascii_lowercase();
        if lower.contains("upgrade: websocket") {
            return echo_messages(stream, &head).await;
        }
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<u64>().ok());
        tokio::io::copy(&mut (&mut stream).take(length.unwrap_or_default()), &mut tokio::io::sink()).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok").await?;
    }
}

async fn echo_messages(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> io::Result<()> {
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim())
    });
    let accept = derive_accept_key(key.unwrap_or_default().as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await?;
    let mut frame = [0; MASKED];
    let mut echoed = [b'x'; UNMASKED];
    echoed[..2].copy_from_slice(&[0x82, PAYLOAD]);
    loop {
        stream.read_exact(&mut frame).await?;
        stream.write_all(&echoed).await?;
    }
}
