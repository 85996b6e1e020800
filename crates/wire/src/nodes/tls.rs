//! TLS 1.3 between portal and agents, in which each side knows the other's public key and
//! compares nothing else: no authority, no name, no date. Sessions are not resumed, so that
//! every connection proves both keys anew. What is said inside is `protocol::node`.

use std::{
    io,
    os::fd::AsFd,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::keys::{Identity, PublicKey};
use crate::protocol::node::{ALPN, MAX_LINE};

/// A connection on which both sides have proved who they are.
pub type Stream = tokio_rustls::TlsStream<TcpStream>;

/// How a connection that says nothing is looked after: the first question after so many
/// seconds, the next ones after as many, and after three without an answer it is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// Connects as `own` to whoever has the key `theirs`.
pub fn connector(own: &Identity, theirs: PublicKey) -> TlsConnector {
    let mut config = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider speaks TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier(Some(theirs))))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.pair.clone())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Arc::new(config).into()
}

/// Takes connections as `own` from whoever has the key `theirs`; where that is `None`, from
/// whoever has a key at all, to be judged by [`shown_key`] afterwards.
pub fn acceptor(own: &Identity, theirs: Option<PublicKey>) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider speaks TLS 1.3")
        .with_client_cert_verifier(Arc::new(Verifier(theirs)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own.pair.clone())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Arc::new(config).into()
}

/// The handshake of whoever connects.
pub async fn connect(connector: &TlsConnector, stream: TcpStream) -> io::Result<Stream> {
    tune(&stream)?;
    // Keys have no names; the type wants one.
    let name = ServerName::try_from("lyceum").expect("a name");
    Ok(connector.connect(name, stream).await?.into())
}

/// The handshake of whoever is connected to.
pub async fn accept(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<Stream> {
    tune(&stream)?;
    Ok(acceptor.accept(stream).await?.into())
}

/// The public key that the other side has proved to be its own.
pub fn shown_key(stream: &Stream) -> &[u8] {
    stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map_or(&[], AsRef::as_ref)
}

/// Whether a handshake failed because the other side is somebody else.
pub fn is_wrong_key(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(
        inner,
        Some(
            Error::InvalidCertificate(_)
                | Error::PeerIncompatible(_)
                | Error::InvalidMessage(_)
                | Error::NoApplicationProtocol
        )
    )
}

/// Reads a line that may not be longer than [`MAX_LINE`], and not a byte more.
pub async fn read_line(stream: &mut Stream) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        // From a buffer: TLS has read the whole record already.
        match stream.read_u8().await? {
            b'\n' => break,
            _ if line.len() + 1 >= MAX_LINE => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
    String::from_utf8(line).map_err(|_err| io::ErrorKind::InvalidData.into())
}

pub async fn write_line(stream: &mut Stream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    stream.flush().await
}

/// Small messages go at once, and a machine that has vanished is noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = stream.as_fd();
    set_tcp_nodelay(socket, true)?;
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, KEEPALIVE)?;
    set_tcp_keepintvl(socket, KEEPALIVE)?;
    set_tcp_keepcnt(socket, 3)?;
    Ok(())
}

/// Accepts one key, or any where the caller judges afterwards.
#[derive(Debug)]
struct Verifier(Option<PublicKey>);

impl Verifier {
    fn judge(&self, shown: &[u8]) -> Result<(), Error> {
        match &self.0 {
            Some(expected) if !expected.is(shown) => Err(CertificateError::ApplicationVerificationFailure.into()),
            _ => Ok(()),
        }
    }
}

fn algorithms() -> &'static WebPkiSupportedAlgorithms {
    &PROVIDER.signature_verification_algorithms
}

/// Whoever shows a key must also have its private half.
fn signed(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key.as_ref()), signature, algorithms())
}

fn too_old() -> Error {
    PeerIncompatible::Tls12NotOffered.into()
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
