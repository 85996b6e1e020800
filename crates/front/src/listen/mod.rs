//! The accept loop: TCP or TLS connections in, requests to a service out. It holds the limits
//! that must stand before any route is known (heads that are too large, too slow, ambiguous
//! or malformed, too many connections) and ends gracefully. Who is asking, and for what, is
//! left to the service.

mod caps;
mod check;
mod guard;
mod tls;
mod watch;
mod workers;

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::body::Body;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Service, ServiceExt};

use self::{
    caps::{Caps, ConnectionSlot},
    guard::Guarded,
    watch::{Watch, Watched},
};
pub use self::{
    tls::{Certificate, CertificateChange, TlsError},
    workers::Workers,
};

/// The largest request head, in bytes; a larger one is answered 431.
pub const MAX_HEAD: usize = 32 * 1024;

/// What hyper may hold of a connection's input at once; also the largest piece of a body.
const READ_BUFFER: usize = 64 * 1024;

/// The address at the other end of the connection, in every request's extensions. Behind a
/// reverse proxy that is the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Closes the connection that a request came on, whatever is being sent over it. It is in every
/// request's extensions, because a body that ends with an error is noticed only by a client that reads.
#[derive(Clone, Debug, Default)]
pub struct Connection(CancellationToken);

impl Connection {
    /// Closes it at once; what the kernel has accepted already may still arrive.
    pub fn close(&self) {
        self.0.cancel();
    }

    /// Whether it was told to close.
    pub fn is_closed(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Says of an address that it stands for many people.
pub type ExemptAddress = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// How to listen.
#[derive(Clone)]
pub struct Options {
    /// HTTPS; see [`Certificate::server`].
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// From a request head's first byte (the first one's: from the connection) to its last.
    /// A slow head may live up to twice as long.
    pub head_timeout: Duration,
    /// From the end of an answer to the next request.
    pub idle_timeout: Duration,
    pub handshake_timeout: Duration,
    /// How many connections may be open, tunnels included.
    pub connections: usize,
    pub connections_per_address: usize,
    /// Addresses that stand for many people, bound by `connections` alone.
    pub exempt: ExemptAddress,
    /// How long requests under way may go on after the shutdown began.
    pub grace: Duration,
    /// Where connections live; `None`: on the runtime that accepts them.
    pub workers: Option<Workers>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            handshake_timeout: Duration::from_secs(10),
            connections: 16_384,
            connections_per_address: 1024,
            exempt: Arc::new(|address| address.to_canonical().is_loopback()),
            grace: Duration::from_secs(10),
            workers: None,
        }
    }
}

/// Serves connections until `shutdown` is cancelled and those open then are done, or the
/// grace time is over.
pub async fn serve<S>(listener: TcpListener, service: S, options: Options, shutdown: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let connections = TaskTracker::new();
    let caps = Caps::new(options.connections, options.connections_per_address, options.exempt.clone());
    let acceptor = options.tls.clone().map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if concerns_one_connection(&error) => continue,
            Err(error) => {
                // Most likely we are out of file descriptors. Those waiting stay in the
                // kernel's queue, and asking again at once would only burn a core.
                tracing::warn!(%error, "cannot accept connections; retrying");
                tokio::select! {
                    () = sleep(Duration::from_millis(200)) => continue,
                    () = shutdown.cancelled() => break,
                }
            }
        };
        let Some(place) = caps.take(peer.ip()) else {
            turn_away(&stream, acceptor.is_some());
            continue;
        };
        let serving = Serving {
            service: service.clone(),
            peer,
            watch: Watch::new(options.head_timeout, options.idle_timeout),
            grace: options.grace,
        };
        let (acceptor, handshake, shutdown) = (acceptor.clone(), options.handshake_timeout, shutdown.clone());
        let connection = async move |stream: TcpStream| {
            prepare(&stream);
            match acceptor {
                None => serving.connection(stream, place, shutdown).await,
                Some(acceptor) => match timeout(handshake, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serving.connection(stream, place, shutdown).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                },
            }
        };
        match &options.workers {
            None => drop(connections.spawn(connection(stream))),
            Some(workers) => {
                if let Err(error) = workers.deal(&connections, stream, connection) {
                    tracing::warn!(%error, "failed to pass a connection to a worker");
                }
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

struct Serving<S> {
    service: S,
    peer: SocketAddr,
    watch: Arc<Watch>,
    grace: Duration,
}

impl<S> Serving<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    async fn connection<T>(self, stream: T, place: ConnectionSlot, shutdown: CancellationToken)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, peer, watch, grace } = self;
        let stream = Guarded::new(stream, watch.clone(), place);
        let watched = watch.clone();
        let handle = Connection::default();
        let closed = handle.0.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let last = check::ends_the_connection(request.headers());
            let serving = watched.serve();
            let ambiguous = watched.refused.load(Ordering::Relaxed);
            let admitted = if ambiguous { Err(StatusCode::BAD_REQUEST) } else { check::admit(&mut request) };
            let answer = admitted.map(|()| {
                request.extensions_mut().insert(PeerAddr(peer));
                request.extensions_mut().insert(handle.clone());
                service.clone().oneshot(request)
            });
            async move {
                let mut response = match answer {
                    Ok(answer) => answer.await?,
                    Err(status) => refusal(status),
                };
                if last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| Watched::new(body, serving)))
            }
        });
        let connection = http1::Builder::new()
            .max_header_size(MAX_HEAD)
            .max_buf_size(READ_BUFFER)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => Ok(ended),
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                timeout(grace, connection).await
            }
            () = watch.expired() => {
                tracing::debug!(%peer, "connection closed: no request in time");
                return;
            }
            () = closed.cancelled() => {
                tracing::debug!(%peer, "connection closed: the user's access has ended");
                return;
            }
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%peer, %error, "connection ended early"),
            Err(_) => tracing::info!(%peer, "connection closed: it did not end in time"),
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Small answers must not wait for more to send, and a peer that vanished must be noticed.
fn prepare(stream: &TcpStream) {
    use rustix::net::sockopt;
    let settings = || -> io::Result<()> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_mins(1))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
        Ok(sockopt::set_tcp_keepcnt(stream, 4)?)
    };
    if let Err(error) = settings() {
        tracing::debug!(%error, "failed to set socket options");
    }
}

fn turn_away(stream: &TcpStream, tls: bool) {
    tracing::debug!("connection rejected: too many open connections");
    if !tls {
        let answer =
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        // A courtesy to a peer that we drop either way.
        let _ = stream.try_write(answer);
    }
}

fn refusal(status: StatusCode) -> Response<Body> {
    let text = if status == StatusCode::METHOD_NOT_ALLOWED {
        "This server does not support this method.\n"
    } else {
        "This request is malformed or ambiguous.\n"
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
