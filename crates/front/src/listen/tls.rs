//! The certificate that HTTPS is spoken with. Its files are looked at again and again, and a
//! new pair takes the place of the old one without a restart; one that is no good is told of
//! and changes nothing. When to look, and what to say, is left to whoever owns the loop.

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use rustls::{
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem, pem::PemObject},
    server::{ClientHello, ParsedCertificate, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::parse_x509_certificate;

/// A certificate chain and its key in PEM files, as they were when they were read last.
pub struct Certificate {
    files: [PathBuf; 2],
    /// A name that any pair must be good for.
    name: Option<ServerName<'static>>,
    current: RwLock<Arc<CertifiedKey>>,
    looks: Mutex<CertificateFiles>,
}

/// What the files looked like: when each was changed, which one it is, and its size.
type FileStamps = [Option<(i64, i64, u64, u64)>; 2];

#[derive(Debug)]
struct CertificateFiles {
    /// When they were read last.
    read: FileStamps,
    /// A moment ago.
    last: FileStamps,
}

/// What has become of the certificate.
#[derive(Debug)]
pub enum CertificateChange {
    /// The files are what they were, or are being written.
    None,
    /// A new pair is in use; it ends at this moment (seconds since 1970).
    Renewed(i64),
    /// The new pair is no good, and the old one stays in use.
    Kept(TlsError),
}

impl Certificate {
    /// Reads the pair. `name` is one that it must be good for.
    pub fn open(certificate: &Path, key: &Path, name: Option<ServerName<'static>>) -> Result<Arc<Self>, TlsError> {
        let files = [certificate.to_owned(), key.to_owned()];
        let look = look(&files);
        let current = RwLock::new(Arc::new(read(&files, name.as_ref())?));
        Ok(Arc::new(Self { files, name, current, looks: Mutex::new(CertificateFiles { read: look, last: look }) }))
    }

    /// For [`super::Options::tls`].
    pub fn server(self: &Arc<Self>) -> Result<Arc<rustls::ServerConfig>, TlsError> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Pair)?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Looks at the files. What has changed is read at the second look that sees it alike, so
    /// that of two files one is not read before the other is written.
    pub fn look(&self) -> CertificateChange {
        let now = look(&self.files);
        {
            let mut looks = self.looks.lock();
            let settled = looks.last == now;
            looks.last = now;
            if now == looks.read || !settled {
                return CertificateChange::None;
            }
            looks.read = now;
        }
        match read(&self.files, self.name.as_ref()) {
            Ok(new) => {
                let ends = ends(&new.cert).unwrap_or(i64::MAX);
                *self.current.write() = Arc::new(new);
                CertificateChange::Renewed(ends)
            }
            Err(error) => CertificateChange::Kept(error),
        }
    }

    /// When the certificate in use ends (seconds since 1970).
    pub fn ends(&self) -> Option<i64> {
        ends(&self.current.read().cert)
    }

    /// Whether the certificate in use is good for a name.
    pub fn covers(&self, name: &ServerName<'_>) -> bool {
        covers(&self.current.read().cert, name)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Why HTTPS cannot be offered, or not with this pair.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read a certificate or key from {}", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("the certificate and the key do not belong together")]
    Pair(#[source] rustls::Error),
    #[error("the certificate is not valid for {0}")]
    Name(String),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(files: &[PathBuf; 2], name: Option<&ServerName<'_>>) -> Result<CertifiedKey, TlsError> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { path, source }
    };
    let [certificate, key] = files;
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(pem(certificate))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(pem(key))?;
    let pair = CertifiedKey::from_der(chain, secret, &provider()).map_err(TlsError::Pair)?;
    match name.filter(|name| !covers(&pair.cert, name)) {
        Some(name) => Err(TlsError::Name(name.to_str().into_owned())),
        None => Ok(pair),
    }
}

fn covers(chain: &[CertificateDer<'_>], name: &ServerName<'_>) -> bool {
    let first = chain.first().and_then(|first| ParsedCertificate::try_from(first).ok());
    first.is_some_and(|first| rustls::client::verify_server_name(&first, name).is_ok())
}

fn ends(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let (_, first) = parse_x509_certificate(chain.first()?).ok()?;
    Some(first.validity().not_after.timestamp())
}

fn look(files: &[PathBuf; 2]) -> FileStamps {
    // Of a link, what it leads to: renewals often exchange the link.
    let of = |path: &PathBuf| -> io::Result<_> {
        let found = fs::metadata(path)?;
        Ok((found.mtime(), found.mtime_nsec(), found.ino(), found.size()))
    };
    [of(&files[0]).ok(), of(&files[1]).ok()]
}
