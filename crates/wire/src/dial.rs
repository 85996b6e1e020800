//! Opens a connection to a workload and makes sure whose it is. A user can put anything into
//! their run directory at any moment, a symlink to somebody else's socket included; and a port
//! that a session had may belong to another user by now. On this machine the kernel says who
//! answers; on another node it is the key of the agent (`nodes`).

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{sleep, timeout},
};

use lyceum_model::{SessionId, session::Placement};

use crate::{
    nodes::{self, NodeEndpoint, Nodes},
    protocol::node::Door,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the app does not accept connections")]
    Connect(#[source] io::Error),
    #[error("the app did not accept a connection within 5 seconds")]
    ConnectTimeout,
    /// Something else lies where the socket should be: nothing, a file, a symlink.
    #[error("the app's socket does not exist")]
    NotASocket,
    /// Somebody else's process answers there.
    #[error("peer check failed: uid {found} answered instead of uid {expected}")]
    WrongPeer { expected: u32, found: u32 },
    #[error(transparent)]
    Node(#[from] nodes::Error),
}

impl Error {
    /// Whether somebody answers who must not.
    pub fn is_impostor(&self) -> bool {
        matches!(self, Self::WrongPeer { .. } | Self::Node(nodes::Error::WrongKey { .. }))
    }
}

/// Where an app listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A socket in the session's run directory.
    Socket(Arc<Path>),
    /// A port of 127.0.0.1.
    Port(u16),
    /// Behind an agent on another node.
    Node(Arc<NodeEndpoint>),
}

impl Endpoint {
    /// A socket of a workload's, wherever that runs; `door` on another node leads to the same.
    pub fn of(nodes: &Arc<Nodes>, session: SessionId, placement: &Placement, door: Door) -> Self {
        let directory = Path::new(&placement.run_directory);
        match &placement.link {
            Some(link) => Self::Node(Arc::new(nodes.endpoint(session, link, directory, placement.uid, door))),
            None => Self::Socket(directory.join(door.name()).into()),
        }
    }
}

/// Connects to `endpoint`, which must be served by `uid`, within five seconds.
pub async fn dial(endpoint: &Endpoint, uid: u32) -> Result<Stream, Error> {
    let connected = async {
        match endpoint {
            Endpoint::Socket(path) => unix(path, uid).await.map(Stream::Unix),
            Endpoint::Port(port) => tcp(*port, uid).await.map(Stream::Tcp),
            Endpoint::Node(node) => Ok(Stream::Node(Box::new(node.open().await?))),
        }
    };
    timeout(CONNECT_TIMEOUT, connected).await.map_err(|_elapsed| Error::ConnectTimeout)?
}

async fn unix(path: &Path, uid: u32) -> Result<UnixStream, Error> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Err(Error::NotASocket) };
    let pin = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(directory, pin | OFlags::DIRECTORY, Mode::empty()).map_err(absent)?;
    let socket = openat(&directory, name, pin, Mode::empty()).map_err(absent)?;
    if FileType::from_raw_mode(fstat(&socket).map_err(absent)?.st_mode) != FileType::Socket {
        return Err(Error::NotASocket);
    }
    // The descriptor is pinned to the file looked at; whatever the name means by now, this
    // connects to that file.
    let pinned = format!("/proc/self/fd/{}", socket.as_raw_fd());
    let stream = loop {
        match UnixStream::connect(&pinned).await {
            Ok(stream) => break stream,
            // The app has not accepted those before us yet.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(Duration::from_millis(5)).await,
            Err(error) => return Err(Error::Connect(error)),
        }
    };
    let found = stream.peer_cred().map_err(Error::Connect)?.uid();
    if found == uid { Ok(stream) } else { Err(Error::WrongPeer { expected: uid, found }) }
}

async fn tcp(port: u16, uid: u32) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.map_err(Error::Connect)?;
    // Asked after connecting: a listener that was replaced before is seen, and one that is
    // replaced afterwards does not get this connection. One that took this connection and
    // went away at once is seen by the connection's other end, which is in the table too.
    let ours = stream.local_addr().map_err(Error::Connect)?.port();
    for (table, any) in [("/proc/self/net/tcp", 8), ("/proc/self/net/tcp6", 32)] {
        let table = match fs::read_to_string(table) {
            Ok(table) => table,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::Connect(error)),
        };
        // Until it is accepted, a connection belongs to root.
        let other_ends = other_ends(&table, port, ours).filter(|found| *found != 0);
        if let Some(found) = listeners(&table, port, any).chain(other_ends).find(|found| *found != uid) {
            return Err(Error::WrongPeer { expected: uid, found });
        }
    }
    stream.set_nodelay(true).map_err(Error::Connect)?;
    Ok(stream)
}

/// The owners of the listening sockets that 127.0.0.1:`port` can mean, from the kernel's
/// table, in which an address has `digits` hexadecimal digits.
fn listeners(table: &str, port: u16, digits: usize) -> impl Iterator<Item = u32> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (local, state, uid) = (fields.nth(1)?, fields.nth(1)?, fields.nth(3)?);
        let (address, its_port) = local.split_once(':')?;
        let listening = state == "0A" && u16::from_str_radix(its_port, 16) == Ok(port);
        (listening && address.len() == digits && serves_loopback(address)).then(|| uid.parse().ok())?
    })
}

/// The owners of connections from port `ours` as the listener's side of them has them.
fn other_ends(table: &str, port: u16, ours: u16) -> impl Iterator<Item = u32> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (local, remote, uid) = (fields.nth(1)?, fields.next()?, fields.nth(4)?);
        let is = |end: &str, port| {
            end.split_once(':').is_some_and(|(address, its_port)| {
                u16::from_str_radix(its_port, 16) == Ok(port) && serves_loopback(address)
            })
        };
        (is(local, port) && is(remote, ours)).then(|| uid.parse().ok())?
    })
}

/// Whether a listener at this address, as the kernel writes it (words in the machine's byte
/// order), takes connections to 127.0.0.1.
fn serves_loopback(address: &str) -> bool {
    let words = (0..address.len() / 8).map(|word| u32::from_str_radix(&address[word * 8..][..8], 16));
    let Ok(words) = words.collect::<Result<Vec<_>, _>>() else { return true };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Ipv4Addr::from(v4).is_unspecified() || v4[0] == 127;
    }
    let Ok(v6) = <[u8; 16]>::try_from(bytes.as_slice()) else { return true };
    let v6 = Ipv6Addr::from(v6);
    v6.is_unspecified() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_unspecified() || v4.is_loopback())
}

fn absent(error: rustix::io::Errno) -> Error {
    match error {
        // A symlink where a directory should be is NOTDIR, elsewhere LOOP.
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => Error::NotASocket,
        error => Error::Connect(error.into()),
    }
}

/// A connection to a workload.
#[derive(Debug)]
pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Node(Box<nodes::tls::Stream>),
}

macro_rules! on_stream {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Unix($stream) => $call,
            Stream::Tcp($stream) => $call,
            Stream::Node($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn listeners_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 \
            0\n\
            1: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0 100 0 0 10 \
            0\n\
            2: 0100000A:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1 1 0 100 0 0 10 \
            0\n\
            3: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1003        0 1 1 0 100 0 0 10 \
            0\n\
            4: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 1 1 0 100 0 0 10 \
            0\n";
        assert_eq!(listeners(table, 8000, 8).collect::<Vec<_>>(), [1000, 1001]);
        assert_eq!(other_ends(table, 8000, 0x9999).collect::<Vec<_>>(), [1003]);
        assert!(serves_loopback("00000000000000000000000000000000"));
        assert!(serves_loopback("0000000000000000FFFF00000100007F"));
        assert!(!serves_loopback("00000000000000000000000001000000"));
    }
}
