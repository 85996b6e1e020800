//! nginx between people and a portal: one that passes everything on, one as a first try looks,
//! and one that leads nowhere.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::Found;
use crate::{
    life::{House, eventually},
    needs,
};

/// What we hand out.
const WELL: &str = include_str!("../../../contrib/nginx-lyceum-proxy.conf");

#[tokio::test]
async fn what_a_reverse_proxy_has_wrong() {
    if !needs::root() {
        return;
    }
    if !needs::met(NGINX, Path::new(NGINX).exists()) {
        return;
    }
    let [public, apps, listen, apps_listen] = free_ports();
    let mut house = House::new(&[
        ("LYCEUM_SERVER__PUBLIC_URL", &format!("http://127.0.0.1:{public}")),
        ("LYCEUM_SERVER__APPS_URL", &format!("http://127.0.0.1:{apps}")),
        ("LYCEUM_SERVER__APPS_LISTEN", &format!("127.0.0.1:{apps_listen}")),
        ("LYCEUM_SERVER__TRUSTED_PROXIES", "127.0.0.1"),
    ]);
    house.listen_on(listen);
    Found::of(&house, &[]).says("public address", "note", "skipped: no portal runs");
    house.start().await;
    let portal = house.url.clone();
    let upstreams = [(public, portal.clone()), (apps, format!("http://127.0.0.1:{apps_listen}"))];
    let found = Found::of(&house, &[]);
    assert!(!found.well);
    found.says("public address", "fault", "cannot be reached from here");

    let nginx = Nginx::start(&upstreams, WELL).await;
    let found = Found::of(&house, &[]);
    for name in ["public address", "apps' address"] {
        found.says(name, "ok", "leads to this portal");
        found.says(name, "ok", "a WebSocket echoed");
        found.says(name, "ok", "an event arrived after");
        assert_eq!(found.about(name).len(), 3, "{:#?}", found.about(name));
    }
    drop(nginx);

    let nginx = Nginx::start(&upstreams, "proxy_buffering on;").await;
    let found = Found::of(&house, &[]);
    assert!(!found.well);
    for name in ["public address", "apps' address"] {
        found.says(name, "ok", "leads to this portal");
        found.says(name, "warning", "no `X-Forwarded-For` arrives");
        found.says(name, "fault", "WebSockets do not get through");
        let (.., fix) = *found.about(name).iter().find(|(_, what, _)| what.starts_with("WebSockets")).unwrap();
        assert!(fix.contains("proxy_set_header Upgrade $http_upgrade"), "{fix}");
    }
    found.says("apps' address", "fault", &format!("`Host: 127.0.0.1:{apps}` arrives as `127.0.0.1:{apps_listen}`"));
    found.says("apps' address", "warning", "events are delayed");
    drop(nginx);

    // The other way round: both lead to the apps, which are not this portal's pages.
    let [nobody, ..] = free_ports();
    let nowhere = [(public, format!("http://127.0.0.1:{nobody}")), (apps, format!("{portal}/elsewhere"))];
    let _nginx = Nginx::start(&nowhere, WELL).await;
    let found = Found::of(&house, &[]);
    found.says("public address", "fault", "502 Bad Gateway: the reverse proxy does not reach the portal");
    found.says("apps' address", "fault", "another server is at this address");
}

/// Each session on a name of its own: a name that nobody has heard of yet must lead here.
#[tokio::test]
async fn names_of_sessions() {
    if !needs::root() {
        return;
    }
    let [listen, public, ..] = free_ports();
    let mut house = House::new(&[
        ("LYCEUM_SERVER__LISTEN", &format!("127.0.0.1:{listen}")),
        ("LYCEUM_SERVER__APPS", "subdomain"),
        ("LYCEUM_SERVER__APPS_DOMAIN", "apps.localhost"),
    ]);
    house.listen_on(listen);
    house.start().await;
    let found = Found::of(&house, &[]);
    for name in ["public address", "apps' address"] {
        found.says(name, "ok", "leads to this portal");
        found.says(name, "ok", "a WebSocket echoed");
        found.says(name, "ok", "an event arrived after");
    }
    found.says("apps' address", "ok", ".apps.localhost:");

    // The same portal, asked as if it were elsewhere: a domain that no name server knows.
    let elsewhere = [
        ("LYCEUM_SERVER__APPS_DOMAIN", "apps.example.invalid".to_owned()),
        ("LYCEUM_SERVER__PUBLIC_URL", format!("https://localhost:{public}")),
    ];
    let found = Found::with(&house, &elsewhere);
    assert!(!found.well);
    found.says("apps' address", "fault", "names below apps.example.invalid have no address");

    // And with a certificate of its own that is not good for them.
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = [
        ("LYCEUM_SERVER__TLS_CERT", certificate.to_str().unwrap().to_owned()),
        ("LYCEUM_SERVER__TLS_KEY", key.to_str().unwrap().to_owned()),
    ];
    let found = Found::with(&house, &[&elsewhere[..], &files[..]].concat());
    found.says("certificate", "fault", "not valid for *.apps.example.invalid");
    fs::write(&key, "nonsense").unwrap();
    let found = Found::with(&house, &files);
    found.says("certificate", "fault", "cannot read a certificate or key from");
}

pub const NGINX: &str = "/usr/sbin/nginx";

pub struct Nginx {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// A proxy for each port; the settings stand in every location.
    pub async fn start(upstreams: &[(u16, String)], settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().display();
        let servers: Vec<String> = upstreams
            .iter()
            .map(|(port, upstream)| {
                format!("server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {upstream}; {settings}\n}} }}\n")
            })
            .collect();
        let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {base}/{kind};\n"))
            .concat();
        let text = format!(
            "daemon off; user root; worker_processes 1; pid {base}/pid; error_log {base}/error.log;\nevents {{ }}\n\
             http {{ access_log off;\n{paths}map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; \
             }}\n{}}}\n",
            servers.concat()
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(NGINX);
        command.arg("-p").arg(folder.path()).arg("-c").arg(&file).arg("-e").arg(folder.path().join("error.log"));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for (port, _) in upstreams {
            eventually("nginx listens", async || {
                assert!(
                    child.try_wait().unwrap().is_none(),
                    "{}",
                    fs::read_to_string(folder.path().join("error.log")).unwrap()
                );
                std::net::TcpStream::connect(("127.0.0.1", *port)).ok()
            })
            .await;
        }
        Self { child, _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends with it.
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Ports that nobody listened on a moment ago, below those of outgoing connections.
pub fn free_ports() -> [u16; 4] {
    let mut held: Vec<TcpListener> = Vec::new();
    while held.len() < 4 {
        let port = 26_000 + rand::random::<u16>() % 6000;
        held.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    [0, 1, 2, 3].map(|at: usize| held[at].local_addr().unwrap().port())
}
