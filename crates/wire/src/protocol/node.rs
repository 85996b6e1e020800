//! What portal and agent say to one another across nodes, before the bytes of an app flow:
//! what an agent is told at its launch, the file in which it says where it listens, and the
//! lines with which each connection begins. A line is at most [`MAX_LINE`] bytes long.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::files;
use lyceum_model::SessionId;

/// Spoken in the handshake (ALPN); whoever speaks another protocol is not answered.
pub const ALPN: &[u8] = b"lyceum-node/1";

/// The longest line before the bytes of an app, its end included.
pub const MAX_LINE: usize = 128;

/// What an agent on another node needs to be reached by the portal and by nobody else.
#[derive(Clone, Serialize, Deserialize)]
pub struct NodeSetup {
    /// Which start of the workload this is.
    pub attempt: u32,
    /// The agent's own private key: the seed of an Ed25519 key, in hexadecimal. Whoever has it
    /// is the agent.
    pub key: String,
    /// The portal's public key (SPKI, DER), in hexadecimal.
    pub portal: String,
    pub way: CallDirection,
}

/// The key is for nobody's log.
impl fmt::Debug for NodeSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSetup").field("attempt", &self.attempt).field("way", &self.way).finish_non_exhaustive()
    }
}

/// Selects which side opens the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "way", rename_all = "snake_case")]
pub enum CallDirection {
    /// The agent listens at this address, on a port between these two (0 and 0: any). Where it
    /// does so it tells the portal at `tell` (`HOST:PORT`), else in [`files::ENDPOINT`].
    Listen { address: IpAddr, ports: (u16, u16), tell: Option<String> },
    /// The agent calls the portal at `HOST:PORT` and keeps some calls waiting.
    DialBack { portal: String },
}

/// [`files::ENDPOINT`]. The user may have written it: it says no more than which port to try,
/// and what else it says is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    pub port: u16,
}

/// How an agent's call begins: `SESSION ATTEMPT waiting`, or `SESSION ATTEMPT port N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub session: SessionId,
    pub attempt: u32,
    /// The port on which it listens; `None` where it waits to be used.
    pub port: Option<u16>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.session, self.attempt)?;
        match self.port {
            Some(port) => write!(f, "port {port}"),
            None => f.write_str("waiting"),
        }
    }
}

impl Call {
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (session, attempt) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let port = match words.next()? {
            "waiting" => None,
            "port" => Some(words.next()?.parse().ok()?),
            _ => return None,
        };
        words.next().is_none().then_some(Self { session, attempt, port })
    }
}

/// What a connection is for: the portal's first line. There is nothing else to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Door {
    /// The agent's own socket.
    Agent,
    /// The app's socket.
    App,
    /// The app's port on the loopback of its node.
    Port,
}

impl Door {
    const ALL: [Self; 3] = [Self::Agent, Self::App, Self::Port];

    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => files::AGENT_SOCKET,
            Self::App => files::APP_SOCKET,
            Self::Port => "port",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.name() == name)
    }
}

/// The agent's answer to that line.
pub const OPEN: &str = "open";
/// The app does not take a connection.
pub const APP_UNAVAILABLE: &str = "away";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_written_and_read() {
        let session = SessionId::new();
        for port in [None, Some(40_000)] {
            let call = Call { session, attempt: 7, port };
            assert_eq!(Call::parse(&call.to_string()), Some(call));
            assert!(call.to_string().len() < MAX_LINE);
        }
        for bad in ["", "x 1 waiting", &format!("{session} 1"), &format!("{session} -1 waiting")] {
            assert_eq!(Call::parse(bad), None, "{bad}");
        }
        for bad in ["port", "port 70000", "waiting 5", "port 5 5", "calling"] {
            assert_eq!(Call::parse(&format!("{session} 1 {bad}")), None, "{bad}");
        }
    }

    #[test]
    fn doors_have_names_and_nothing_else_has() {
        for door in Door::ALL {
            assert_eq!(Door::parse(door.name()), Some(door));
        }
        for bad in ["", "../agent.sock", "log", "agent.sock/", "/etc/passwd", "22"] {
            assert_eq!(Door::parse(bad), None, "{bad}");
        }
    }
}
