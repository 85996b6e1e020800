//! Where the portal is met: its sockets, the certificate that they speak with, the threads that connections
//! live on, and the line that says where it is. Who answers on them is `listen`'s and `web`'s business.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context, Result};
use tokio::net::TcpListener;

use crate::{
    config::{AppsMode, Config},
    listen::{self, Certificate, CertificateChange, TlsError},
    model::Timestamp,
    nodes::Nodes,
    web::{AppsOrigin, Portal},
};

/// How connections are taken.
pub fn connections(portal: &Arc<Portal>) -> Result<listen::Options> {
    let tls = portal.surroundings.certificate.as_ref().map(Certificate::server).transpose()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = listen::Workers::start(cores).context("starting the connection threads")?;
    // A proxy stands for many people, as the loopback does behind `ssh -L`.
    let proxies = portal.clone();
    let exempt: listen::ExemptAddress =
        Arc::new(move |address| address.to_canonical().is_loopback() || proxies.config.trusts(address));
    Ok(listen::Options { tls, exempt, workers: Some(workers), ..listen::Options::default() })
}

/// What HTTPS is spoken with, where the portal speaks it itself.
pub fn certificate(config: &Config) -> Result<Option<Arc<Certificate>>> {
    let server = &config.server;
    if server.tls_cert.is_empty() {
        return Ok(None);
    }
    let read = Certificate::open(Path::new(&server.tls_cert), Path::new(&server.tls_key), server.name_of_some_app());
    let told = match &read {
        Err(TlsError::Name(_)) => format!("server.tls_cert: apps require a certificate for *.{}", server.apps_domain()),
        _ => "server.tls_cert and server.tls_key".to_owned(),
    };
    Ok(Some(read.context(told)?))
}

/// A renewed certificate is taken up; one that is no good is told of once.
pub fn look_at_certificate(certificate: &Certificate) -> Result<(), String> {
    match certificate.look() {
        CertificateChange::None => {}
        CertificateChange::Renewed(ends) => {
            let ends = Timestamp(ends.saturating_mul(1000));
            tracing::info!(%ends, "certificate reloaded");
        }
        CertificateChange::Kept(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "new certificate or key is invalid; still using the previous one"
            );
            return Err(error.to_string());
        }
    }
    Ok(())
}

/// One line for people and supervisors: where it is, and how to come there from elsewhere.
pub fn announce(portal: &Portal, address: SocketAddr) {
    let url = match &portal.config.public_url {
        Some(url) => url.to_string(),
        None => format!("{}://{address}/", portal.config.scheme()),
    };
    if address.ip().is_loopback() {
        let apps = match portal.config.apps {
            AppsOrigin::Port(port) => format!(" -L {port}:{}:{port}", address.ip()),
            _ => String::new(),
        };
        let port = address.port();
        let ssh = format!("ssh -L {port}:{}:{port}{apps} THIS-MACHINE", address.ip());
        tracing::info!(address = %url, from_elsewhere = %ssh, "ready");
    } else {
        tracing::info!(address = %url, "ready");
    }
}

pub async fn bind(config: &Config) -> Result<(TcpListener, Option<TcpListener>)> {
    let taken = |address: SocketAddr, setting: &str| {
        format!("listening on {address}: is another portal running? Choose another address with {setting}")
    };
    let address = config.server.listen;
    let listener = TcpListener::bind(address).await.with_context(|| taken(address, "--listen or server.listen"))?;
    if config.server.apps != AppsMode::Port {
        return Ok((listener, None));
    }
    let address = config.server.apps_address();
    let apps = TcpListener::bind(address)
        .await
        .with_context(|| taken(address, "server.apps_listen, or set server.apps = \"path\" to use a single port"))?;
    Ok((listener, Some(apps)))
}

/// Where agents on other nodes call, if they are to.
pub async fn bind_calls(nodes: &Nodes) -> Result<Option<TcpListener>> {
    let Some(address) = nodes.portal_listen() else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    Ok(Some(
        listener.with_context(|| format!("listening on {address} for agents: choose another nodes.portal_listen"))?,
    ))
}
