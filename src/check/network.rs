//! Checks of the network: the package index, the port, and how a browser gets here.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use super::{Facts, Finding, Level};
use crate::{
    config::AppsMode,
    environments::{self, Build, Index},
};

pub async fn package_index(facts: &Facts) -> Finding {
    let name = "packages";
    let needed = facts.environments.build == Build::Auto;
    match environments::reach_index(&facts.environments, &facts.place).await {
        Ok(Index::Answers(tool)) => Finding::new(name, Level::Ok, format!("the package index responds to {tool}")),
        Ok(Index::Wheels(0)) => Finding::new(name, Level::Fault, "`environments.wheels` contains no wheels")
            .fix("python3 -m pip download -r notebooks/requirements.txt -d WHEELS"),
        Ok(Index::Wheels(count)) => Finding::new(name, Level::Ok, format!("{count} wheels in `environments.wheels`")),
        Ok(Index::NoTool) => {
            Finding::new(name, Level::Note, "the package index is tested when the environment is built")
        }
        Ok(Index::Silent(why)) => {
            let level = if needed { Level::Warning } else { Level::Note };
            Finding::new(name, level, format!("the package index does not respond: {why}"))
                .fix("HTTPS_PROXY=http://PROXY:PORT lyceum serve")
        }
        Err(error) => Finding::new(name, Level::Warning, format!("the package index could not be tested: {error}")),
    }
}

pub async fn port(facts: &Facts) -> Finding {
    let name = "port";
    let address = facts.listen;
    let number = address.port();
    match TcpListener::bind(address) {
        Ok(_) => Finding::new(name, Level::Ok, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let portal = tokio::task::spawn_blocking(move || is_lyceum(address)).await.unwrap_or(false);
            if portal {
                return Finding::new(name, Level::Ok, format!("Lyceum responds on {address}"));
            }
            Finding::new(name, Level::Fault, format!("{address} is in use by another program (`ss -ltnp` shows which)"))
                .fix(format!("lyceum serve --listen {}:{}", address.ip(), number.checked_add(80).unwrap_or(8080)))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Finding::new(name, Level::Fault, format!("only root can use port {number}"))
                .fix(format!("lyceum serve --listen {}:8000", address.ip()))
        }
        Err(error) => Finding::new(name, Level::Fault, format!("cannot listen on {address}: {error}"))
            .fix("lyceum serve --listen 127.0.0.1:8000"),
    }
}

/// How somebody at another machine opens the portal.
pub fn browser(facts: &Facts) -> Finding {
    let name = "browser";
    let port = facts.listen.port();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_owned();
    if facts.listen.ip().is_loopback() {
        let server = &facts.server;
        let apps = match server.apps {
            AppsMode::Port => server.apps_address().port(),
            AppsMode::Subdomain | AppsMode::Path => port,
        };
        let also = if apps == port { String::new() } else { format!(" -L {apps}:127.0.0.1:{apps}") };
        let typed =
            server.public_address(port).map_or_else(|| format!("http://127.0.0.1:{port}"), |url| url.to_string());
        return Finding::new(
            name,
            Level::Note,
            format!(
                "{} is only reachable from this machine; from other machines: ssh -L {port}:127.0.0.1:{port}{also} \
                 {host}, then {typed}",
                facts.listen
            ),
        );
    }
    let shown = if facts.listen.ip().is_unspecified() { host } else { facts.listen.ip().to_string() };
    Finding::new(name, Level::Ok, format!("open port {port} of {shown}"))
}

/// Whether a portal of ours answers there.
fn is_lyceum(mut address: SocketAddr) -> bool {
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let ask = || -> std::io::Result<bool> {
        let patience = Duration::from_secs(2);
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        Ok(answer.starts_with("HTTP/1.1 200") && answer.trim_end().ends_with("\r\n\r\nok"))
    };
    ask().unwrap_or(false)
}
