//! A real web server with one of the configurations in `contrib/`, on ports of the loopback
//! and with a certificate of its own authority. It ends with the value. The host names stay
//! those of the file, and lead to this machine only for who is told so.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::{Client, Response};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use crate::life::eventually;

pub const PORTAL: &str = "portal.example.org";
pub const APPS: &str = "apps.example.org";

pub struct Front {
    child: Child,
    folder: TempDir,
    /// Caddy sends browsers to port 443 by itself, and is told not to here.
    redirects: bool,
}

impl Front {
    /// Where Debian has a server's program.
    pub fn program(server: &str) -> &'static str {
        match server {
            "nginx" => "/usr/sbin/nginx",
            "apache" => "/usr/sbin/apache2",
            "haproxy" => "/usr/sbin/haproxy",
            "caddy" => "/usr/bin/caddy",
            other => panic!("no server {other}"),
        }
    }

    pub async fn start(server: &str, https: u16, http: u16, upstreams: [u16; 2]) -> Self {
        let folder = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
        let base = folder.path();
        write_certificates(base);
        let words: Vec<String> = match server {
            "nginx" => nginx(base, https, http, upstreams),
            "apache" => apache(base, https, http, upstreams),
            "haproxy" => haproxy(base, https, http, upstreams),
            _ => caddy(base, https, upstreams),
        };
        let log = fs::File::create(base.join("log")).unwrap();
        let mut command = Command::new(Self::program(server));
        command.args(words).env("HOME", base).current_dir(base).stdin(Stdio::null());
        let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        eventually(&format!("{server} listens"), async || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?} {}", fs::read_to_string(base.join("log")).unwrap());
            TcpStream::connect(("127.0.0.1", https)).ok()
        })
        .await;
        Self { child, redirects: server != "caddy", folder }
    }

    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Connections that trust this authority alone.
    pub fn tls(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.authority()).unwrap()).unwrap();
        TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
    }

    /// What somebody gets who comes without TLS.
    pub async fn plain(&self, client: &Client, http: u16) -> Option<Response> {
        let request = client.get(format!("http://{PORTAL}:{http}/sessions")).header("host", PORTAL);
        if self.redirects { Some(request.send().await.unwrap()) } else { None }
    }

    /// A program to run others by, for which the host names lead here.
    pub fn where_names_lead_here(&self) -> Vec<String> {
        let hosts = put(self.folder.path(), "hosts", &format!("127.0.0.1 localhost {PORTAL} {APPS}\n"));
        let script = format!("mount --bind {hosts} /etc/hosts && exec \"$@\"");
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"].map(str::to_owned).into()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Its workers end with it.
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
        }
    }
}

/// What we hand out, with this test's places in it: each has to stand there.
fn adapted(text: &str, places: &[(&str, &str)], upstreams: [u16; 2]) -> String {
    let mut text: String = text.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    let [portal, apps] = upstreams.map(|port| port.to_string());
    for (place, ours) in places.iter().chain(&[("8000", portal.as_str()), ("8001", &apps)]) {
        assert!(text.contains(place), "{place} is missing in {text}");
        text = text.replace(place, ours);
    }
    text
}

/// A server's file in the folder.
fn put(base: &Path, name: &str, text: &str) -> String {
    let file = base.join(name);
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn nginx(base: &Path, https: u16, http: u16, upstreams: [u16; 2]) -> Vec<String> {
    let base_text = base.to_str().unwrap();
    put(base, "lyceum-proxy.conf", include_str!("../../../contrib/nginx-lyceum-proxy.conf"));
    let places = [
        ("/etc/ssl/portal.example.org", base_text),
        ("/etc/ssl/apps.example.org", base_text),
        ("/etc/nginx", base_text),
        ("listen 80;", &format!("listen 127.0.0.1:{http};")),
        ("listen 443 ssl;", &format!("listen 127.0.0.1:{https} ssl;")),
    ];
    let site = put(base, "site", &adapted(include_str!("../../../contrib/nginx.conf"), &places, upstreams));
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {base_text}/{kind};\n"))
        .concat();
    let around = format!(
        "daemon off; user root; worker_processes 1; pid {base_text}/pid; error_log stderr;\nevents {{ }}\n\
         http {{ access_log off;\n{paths}include {site}; }}\n"
    );
    let file = put(base, "nginx.conf", &around);
    ["-p", base_text, "-e", "stderr", "-c", &file].map(str::to_owned).into()
}

fn apache(base: &Path, https: u16, http: u16, upstreams: [u16; 2]) -> Vec<String> {
    let base_text = base.to_str().unwrap();
    for name in [PORTAL, APPS] {
        fs::create_dir(base.join(name)).unwrap();
        for file in ["fullchain.pem", "privkey.pem"] {
            fs::copy(base.join(file), base.join(name).join(file)).unwrap();
        }
    }
    let places =
        [("/etc/ssl", base_text), ("*:80>", &format!("127.0.0.1:{http}>")), ("*:443>", &format!("127.0.0.1:{https}>"))];
    let site = put(base, "site", &adapted(include_str!("../../../contrib/apache.conf"), &places, upstreams));
    let modules: String =
        ["mpm_event", "alias", "authz_core", "headers", "macro", "proxy", "proxy_http", "reqtimeout", "ssl"]
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .concat();
    let around = format!(
        "ServerRoot {base_text}\nDefaultRuntimeDir {base_text}\nPidFile {base_text}/pid\nErrorLog /dev/stderr\n\
         User www-data\nGroup www-data\n{modules}Mutex file:{base_text} default\n\
         Listen 127.0.0.1:{http}\nListen 127.0.0.1:{https}\nInclude {site}\n"
    );
    let file = put(base, "apache.conf", &around);
    ["-D", "FOREGROUND", "-f", &file].map(str::to_owned).into()
}

fn haproxy(base: &Path, https: u16, http: u16, upstreams: [u16; 2]) -> Vec<String> {
    let certificates = base.join("certs");
    fs::create_dir(&certificates).unwrap();
    let both = ["fullchain.pem", "privkey.pem"].map(|file| fs::read_to_string(base.join(file)).unwrap()).concat();
    put(&certificates, "localhost.pem", &both);
    let places = [
        ("/etc/haproxy/certs/", certificates.to_str().unwrap()),
        ("bind :80\n", &format!("bind 127.0.0.1:{http}\n")),
        ("bind :443 ", &format!("bind 127.0.0.1:{https} ")),
    ];
    let file = put(base, "haproxy.cfg", &adapted(include_str!("../../../contrib/haproxy.cfg"), &places, upstreams));
    ["-db", "-f", &file].map(str::to_owned).into()
}

fn caddy(base: &Path, https: u16, upstreams: [u16; 2]) -> Vec<String> {
    let base_text = base.display();
    // Without the internet it gets no certificate.
    let tls = format!("tls {base_text}/fullchain.pem {base_text}/privkey.pem");
    let places = [
        ("portal.example.org {", &*format!("https://portal.example.org:{https} {{\n{tls}")),
        ("apps.example.org {", &format!("https://apps.example.org:{https} {{\n{tls}")),
    ];
    let site = adapted(include_str!("../../../contrib/Caddyfile"), &places, upstreams);
    let around = format!("{{\nadmin off\nauto_https disable_redirects\nstorage file_system {base_text}\n}}\n{site}");
    let file = put(base, "Caddyfile", &around);
    ["run", "--adapter", "caddyfile", "--config", &file].map(str::to_owned).into()
}

/// An authority, and a certificate of its for both names of this machine.
fn write_certificates(base: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = [PORTAL, APPS].map(str::to_owned);
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    put(base, "ca.pem", &authority.pem());
    put(base, "fullchain.pem", &certificate.pem());
    put(base, "privkey.pem", &key.serialize_pem());
}
