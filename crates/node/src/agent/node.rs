//! The agent's side across nodes: it listens for the portal, or calls it, and leads each
//! connection to a socket of its own run directory. Nobody gets further than the handshake
//! without the portal's key, and nobody at all to anything but the workload's own doors.

use std::{
    fs, io,
    io::Write,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use lyceum_wire::dial::{self, Endpoint};
use lyceum_wire::nodes::{
    Identity, PublicKey, Seed,
    tls::{self, Stream},
};
use lyceum_wire::protocol::{
    AgentLaunch, NodeSetup, files,
    node::{APP_UNAVAILABLE, Call, CallDirection, Door, Listening, OPEN},
};

/// How long a handshake and the first line may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections may be at that; further ones wait in the kernel.
const MAX_UNKNOWN_CALLERS: usize = 64;

/// How many may be open: more than the portal ever opens.
const MAX_OPEN: usize = 600;

/// How many calls wait for the portal to use them.
const WAITING_CALLS: usize = 4;

/// Before the portal is called again: at first, and at most. Each time is a little different,
/// so that a portal that was restarted is not called by everybody at once.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(20);

/// What is copied at once, each way.
const PIECE: usize = 16 * 1024;

/// What connections are led by.
struct NodeContext {
    run_directory: PathBuf,
    port: Option<u16>,
    own: Identity,
    portal: PublicKey,
    open: Arc<Semaphore>,
}

/// Makes the agent reachable. Where it cannot be, a sentence says why.
pub(super) async fn start(launch: &AgentLaunch) -> Result<(), String> {
    let Some(setup) = &launch.node else { return Ok(()) };
    let house = Arc::new(NodeContext::of(launch, setup).ok_or("the agent's keys are invalid (internal error)")?);
    let call = Call { session: launch.session, attempt: setup.attempt, port: None };
    match &setup.way {
        CallDirection::Listen { address, ports, tell } => {
            let listener = bind(*address, *ports).await?;
            let port = listener.local_addr().map_err(|error| error.to_string())?.port();
            match tell {
                Some(portal) => {
                    tokio::spawn(keep_telling(house.clone(), portal.clone(), Call { port: Some(port), ..call }));
                }
                None => write_endpoint(&launch.run_directory, Listening { port })
                    .map_err(|error| format!("the agent's address cannot be stored: {error}"))?,
            }
            tokio::spawn(take_all(house, listener));
        }
        CallDirection::DialBack { portal } => {
            for _ in 0..WAITING_CALLS {
                tokio::spawn(keep_waiting(house.clone(), portal.clone(), call));
            }
        }
    }
    Ok(())
}

impl NodeContext {
    fn of(launch: &AgentLaunch, setup: &NodeSetup) -> Option<Self> {
        let seed: Seed = hex::decode(&setup.key).ok()?.try_into().ok()?;
        Some(Self {
            run_directory: launch.run_directory.clone(),
            port: launch.app.ready.as_ref().and_then(|ready| ready.port),
            own: Identity::of(&seed),
            portal: PublicKey::from_hex(&setup.portal)?,
            open: Arc::new(Semaphore::new(MAX_OPEN)),
        })
    }

    /// Where a door of ours leads. Behind it must be our own user, whoever was there first.
    async fn behind(&self, door: Door) -> Option<dial::Stream> {
        let endpoint = match door {
            Door::Agent | Door::App => Endpoint::Socket(self.run_directory.join(door.name()).into()),
            Door::Port => Endpoint::Port(self.port?),
        };
        dial::dial(&endpoint, rustix::process::getuid().as_raw()).await.ok()
    }

    /// Leads a connection of the portal's to the door that it names.
    async fn lead(&self, mut stream: Stream, name: &str) -> io::Result<()> {
        let door = Door::parse(name).ok_or(io::ErrorKind::InvalidData)?;
        let Some(mut app) = self.behind(door).await else {
            return tls::write_line(&mut stream, APP_UNAVAILABLE).await;
        };
        tls::write_line(&mut stream, OPEN).await?;
        copy_bidirectional_with_sizes(&mut stream, &mut app, PIECE, PIECE).await?;
        Ok(())
    }
}

/// A free port of the range. Where to begin is chosen by chance: agents start beside one another.
async fn bind(address: IpAddr, (first, last): (u16, u16)) -> Result<TcpListener, String> {
    if first == 0 {
        let bound = TcpListener::bind((address, 0)).await;
        return bound.map_err(|error| format!("the agent cannot listen at {address}: {error}"));
    }
    let count = u32::from(last.saturating_sub(first)) + 1;
    let start = rand::random_range(0..count);
    let mut told = String::new();
    for step in 0..count {
        let port = first + u16::try_from((start + step) % count).expect("within the range");
        match TcpListener::bind((address, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => told = error.to_string(),
        }
    }
    Err(format!("no port between {first} and {last} is free at {address}: {told}"))
}

/// Whole or not at all, whatever happens to the machine meanwhile.
fn write_endpoint(run_directory: &Path, listening: Listening) -> io::Result<()> {
    let part = run_directory.join(format!("{}.part", files::ENDPOINT));
    let mut file = fs::File::create(&part)?;
    // Whatever the umask: the portal reads it as the group of the run directory.
    file.set_permissions(fs::Permissions::from_mode(0o640))?;
    file.write_all(&serde_json::to_vec(&listening)?)?;
    file.sync_all()?;
    fs::rename(&part, run_directory.join(files::ENDPOINT))?;
    fs::File::open(run_directory)?.sync_all()
}

/// Takes whoever connects, for as long as the agent lives.
async fn take_all(house: Arc<NodeContext>, listener: TcpListener) {
    let acceptor = tls::acceptor(&house.own, Some(house.portal.clone()));
    let callers = Arc::new(Semaphore::new(MAX_UNKNOWN_CALLERS));
    loop {
        let Ok(callers) = callers.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, most of all: some will be closed.
            sleep(MIN_RETRY_DELAY).await;
            continue;
        };
        let (house, acceptor) = (house.clone(), acceptor.clone());
        tokio::spawn(async move {
            let met = timeout(HANDSHAKE_TIMEOUT, meet(&acceptor, stream)).await;
            drop(callers);
            let (Ok(Ok((stream, name))), Ok(_open)) = (met, house.open.clone().try_acquire_owned()) else { return };
            // A connection that breaks is over, that is all.
            let _ = house.lead(stream, &name).await;
        });
    }
}

async fn meet(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<(Stream, String)> {
    let mut stream = tls::accept(acceptor, stream).await?;
    let name = tls::read_line(&mut stream).await?;
    Ok((stream, name))
}

/// Tells the portal again whenever it has forgotten.
async fn keep_telling(house: Arc<NodeContext>, portal: String, told: Call) {
    let connector = tls::connector(&house.own, house.portal.clone());
    let mut pause = MIN_RETRY_DELAY;
    loop {
        let since = Instant::now();
        if let Ok(mut stream) = call(&connector, &portal, told).await {
            // The portal says nothing; it is there as long as this is open.
            let _ = stream.read_u8().await;
        }
        pause = next_pause(pause, since).await;
    }
}

/// Keeps one call waiting, and another as soon as it is used.
async fn keep_waiting(house: Arc<NodeContext>, portal: String, waiting: Call) {
    let connector = tls::connector(&house.own, house.portal.clone());
    let mut pause = MIN_RETRY_DELAY;
    loop {
        let since = Instant::now();
        let Ok(open) = house.open.clone().acquire_owned().await else { return };
        if let Ok(mut stream) = call(&connector, &portal, waiting).await
            && let Ok(name) = tls::read_line(&mut stream).await
        {
            let house = house.clone();
            tokio::spawn(async move {
                let _open = open;
                let _ = house.lead(stream, &name).await;
            });
            pause = MIN_RETRY_DELAY;
            continue;
        }
        pause = next_pause(pause, since).await;
    }
}

async fn call(connector: &TlsConnector, portal: &str, call: Call) -> io::Result<Stream> {
    timeout(HANDSHAKE_TIMEOUT, async {
        let mut stream = tls::connect(connector, TcpStream::connect(portal).await?).await?;
        tls::write_line(&mut stream, &call.to_string()).await?;
        Ok(stream)
    })
    .await?
}

/// Waits, longer each time, unless the last call was a good one.
async fn next_pause(pause: Duration, since: Instant) -> Duration {
    let pause = if since.elapsed() > MAX_RETRY_DELAY { MIN_RETRY_DELAY } else { pause };
    sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
    (pause * 2).min(MAX_RETRY_DELAY)
}
