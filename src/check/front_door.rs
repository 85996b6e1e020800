//! The way of a browser: asks the running portal through the address that people use, and the
//! apps through theirs. What arrives is compared with what was sent, a connection is upgraded
//! and echoes, and a stream's first event is timed. What reverse proxies usually have wrong is
//! named, with the line that mends it.

use std::{
    borrow::Cow,
    error::Error,
    net::SocketAddr,
    time::{Duration, Instant},
};

use reqwest::{
    Client, Response,
    header::{CONNECTION, UPGRADE},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use url::Url;

use super::{Facts, Finding, Level};
use crate::{
    auth::keys::{self, KeyProof},
    config::AppsMode,
    model::SessionId,
    web::{
        ClientHeader,
        probe::{ECHO, EVENT_DELAY, EVENTS, FACTS, ReceivedRequest},
    },
};

/// How long anything may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

const PORTAL: &str = "public address";
const APPS: &str = "apps' address";

/// Everything that needs a running portal.
pub async fn reach(facts: &Facts) -> Vec<Finding> {
    if facts.running.is_none() {
        let what =
            "skipped: no portal runs on this data directory, so its address, WebSockets and events were not tested";
        return vec![Finding::new(PORTAL, Level::Note, what).fix("run lyceum serve, then lyceum check again")];
    }
    let key = match keys::read(&facts.private) {
        Ok(key) => key,
        Err(err) => {
            let what =
                format!("skipped: the portal's key cannot be read ({err}), and the portal only responds to its holder");
            return vec![Finding::new(PORTAL, Level::Note, what).fix("run it as root, or as the portal's user")];
        }
    };
    let addresses = addresses(facts);
    let mut client =
        Client::builder().http1_only().no_proxy().redirect(reqwest::redirect::Policy::none()).connect_timeout(TIMEOUT);
    for host in addresses.iter().filter_map(|(_, url)| url.host_str()).filter(|host| host.ends_with(".localhost")) {
        // Browsers know these names by themselves; resolvers need not.
        client = client.resolve(host, on_this_machine(facts));
    }
    let Ok(client) = client.build() else {
        return vec![Finding::new(PORTAL, Level::Warning, "skipped: no HTTP client could be created")];
    };
    let key = keys::derive(&key, b"apps");
    let mut findings = Vec::new();
    for (name, base) in addresses {
        let way = Origin { name, base, client: &client, facts, pass: || KeyProof::new(&key, facts.clock.now()) };
        findings.extend(way.try_all().await);
    }
    findings
}

/// Where browsers find the portal and the apps, as configured.
fn addresses(facts: &Facts) -> Vec<(&'static str, Url)> {
    let server = &facts.server;
    let scheme = if server.tls_cert.is_empty() { "http" } else { "https" };
    let listen = || Url::parse(&format!("{scheme}://{}/", on_this_machine(facts))).ok();
    let Some(portal) = server.public_address(server.listen.port()).or_else(listen) else { return Vec::new() };
    let mut apps = portal.clone();
    let apps = match server.apps {
        AppsMode::Path => None,
        // A name that nobody has heard of yet: all of them must lead here.
        AppsMode::Subdomain => {
            let host = format!("{}.{}", SessionId::new(), server.apps_domain());
            apps.set_host(Some(&host)).ok().map(|()| apps)
        }
        AppsMode::Port => Url::parse(&server.apps_url)
            .ok()
            .or_else(|| apps.set_port(Some(server.apps_address().port())).ok().map(|()| apps)),
    };
    [(PORTAL, portal)].into_iter().chain(apps.map(|apps| (APPS, apps))).collect()
}

/// Where the portal listens, for somebody who is here too.
fn on_this_machine(facts: &Facts) -> SocketAddr {
    let mut listen = facts.server.listen;
    if listen.ip().is_unspecified() {
        listen.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    listen
}

/// One of the two addresses.
struct Origin<'a, P: Fn() -> KeyProof> {
    name: &'static str,
    base: Url,
    client: &'a Client,
    facts: &'a Facts,
    pass: P,
}

impl<P: Fn() -> KeyProof> Origin<'_, P> {
    async fn try_all(&self) -> Vec<Finding> {
        let arrived = match self.arrived().await {
            Ok(arrived) => arrived,
            Err(finding) => return vec![*finding],
        };
        let mut findings = vec![self.finding(Level::Ok, format!("{} leads to this portal", self.base))];
        findings.extend(self.headers(&arrived));
        findings.push(self.upgrade().await);
        findings.push(self.stream().await);
        findings
    }

    fn finding(&self, level: Level, what: impl Into<String>) -> Finding {
        Finding::new(self.name, level, what)
    }

    async fn get(&self, path: &str, upgrade: bool) -> reqwest::Result<Response> {
        let url = self.base.join(path).expect("our own paths are valid");
        let mut request = self.client.get(url).header(KeyProof::HEADER, (self.pass)().as_str());
        if upgrade {
            request = request.header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
            request =
                request.header("sec-websocket-version", "13").header("sec-websocket-key", "bHljZXVtIGNoZWNrcyBpdA==");
        }
        request.send().await
    }

    /// What of a plain request has arrived; or why it has not.
    async fn arrived(&self) -> Result<ReceivedRequest, Box<Finding>> {
        let base = &self.base;
        let fault = |what: String, fix: &str| Box::new(self.finding(Level::Fault, what).fix(fix.to_owned()));
        if let Some(why) = self.has_no_address().await {
            let domain = self.facts.server.apps_domain();
            let fix = format!("in DNS, point *.{domain} to the address of the portal's own name");
            return Err(fault(format!("names below {domain} have no address: {why}"), &fix));
        }
        let answer = match timeout(TIMEOUT, self.get(FACTS, false)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(err)) => {
                let why = innermost(&err);
                let domain = self.facts.server.apps_domain();
                let fix = if self.name == APPS && !domain.is_empty() && why.contains("certificate") {
                    format!("use a certificate that browsers accept for *.{domain}")
                } else if self.facts.server.public_url.is_empty() {
                    "set server.public_url to the address that users type".to_owned()
                } else {
                    "start or fix the reverse proxy, or correct server.public_url and the address of the apps"
                        .to_owned()
                };
                return Err(fault(format!("{base} cannot be reached from here: {why}"), &fix));
            }
            Err(_) => return Err(fault(format!("{base} does not respond"), "check the reverse proxy's log")),
        };
        let status = answer.status();
        match answer.json::<ReceivedRequest>().await {
            Ok(arrived) if status.is_success() => Ok(arrived),
            _ if status.is_server_error() => Err(fault(
                format!("{base} returns {status}: the reverse proxy does not reach the portal"),
                &format!("configure it to forward all requests to {}", self.listener()),
            )),
            _ => Err(fault(
                format!(
                    "{base} returns {status} to a request that only this portal can answer: another server is at this \
                     address"
                ),
                &format!("configure the reverse proxy to forward all paths unchanged to {}", self.listener()),
            )),
        }
    }

    /// Why a session's name leads nowhere.
    async fn has_no_address(&self) -> Option<String> {
        let host = self.base.host_str()?.to_owned();
        if self.name != APPS || self.facts.server.apps != AppsMode::Subdomain || host.ends_with(".localhost") {
            return None;
        }
        let port = self.base.port_or_known_default()?;
        match timeout(TIMEOUT, tokio::net::lookup_host((host, port))).await {
            Ok(Ok(mut found)) => found.next().is_none().then(|| "none".to_owned()),
            Ok(Err(err)) => Some(err.to_string()),
            Err(_) => Some("the name servers do not respond".to_owned()),
        }
    }

    fn listener(&self) -> String {
        let server = &self.facts.server;
        let apps = self.name == APPS && server.apps == AppsMode::Port;
        let address = if apps { server.apps_address() } else { server.listen };
        format!("http://{address}")
    }

    /// What a proxy has changed or left out.
    fn headers(&self, arrived: &ReceivedRequest) -> Vec<Finding> {
        let mut findings = Vec::new();
        let authority = match (self.base.host_str(), self.base.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let shares_origin = self.name == APPS || self.facts.server.apps == AppsMode::Path;
        if arrived.host != authority && shares_origin {
            let what = format!(
                "`Host: {authority}` arrives as `{}`: Jupyter and other apps then reject WebSockets, because their \
                 Origin differs",
                arrived.host
            );
            findings.push(self.finding(Level::Fault, what).fix("nginx: proxy_set_header Host $http_host;"));
        }
        match arrived.forwarded_proto.as_deref() {
            Some("https") if !arrived.https => findings.push(
                self.finding(
                    Level::Fault,
                    "the proxy reports that browsers use HTTPS, but the portal assumes HTTP: signing in fails",
                )
                .fix("set server.public_url = \"https://…\", as users type it"),
            ),
            Some("http") if arrived.https => findings.push(
                self.finding(Level::Warning, "`X-Forwarded-Proto` arrives as `http`, although the address is HTTPS")
                    .fix("nginx: proxy_set_header X-Forwarded-Proto $scheme;"),
            ),
            _ => {}
        }
        let trusted = !self.facts.server.trusted_proxies.is_empty();
        let header = match self.facts.server.client_header {
            ClientHeader::XForwardedFor => "X-Forwarded-For",
            ClientHeader::Forwarded => "Forwarded",
        };
        match &arrived.forwarded_for {
            Some(_) if !trusted => findings.push(
                self.finding(
                    Level::Warning,
                    format!(
                        "all users seem to come from {}: failed sign-ins of one user slow down all others",
                        arrived.client
                    ),
                )
                .fix(format!("set server.trusted_proxies = [\"{}\"]", arrived.client)),
            ),
            None if trusted => findings.push(
                self.finding(Level::Warning, format!("no `{header}` arrives: all users seem to come from the proxy"))
                    .fix("nginx: proxy_set_header X-Forwarded-For $remote_addr;"),
            ),
            _ => {}
        }
        findings
    }

    /// An upgraded connection, there and back.
    async fn upgrade(&self) -> Finding {
        let begun = Instant::now();
        let fix = "nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \
                   \"upgrade\";";
        let refused = |why: String| {
            let what = format!("WebSockets do not get through ({why}): terminals and kernels do not work");
            self.finding(Level::Fault, what).fix(fix)
        };
        let answer = match timeout(TIMEOUT, self.get(ECHO, true)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(err)) => return refused(innermost(&err)),
            Err(_) => return refused("no answer".to_owned()),
        };
        if answer.status().as_u16() != 101 {
            return refused(format!("the response to an upgrade was {}", answer.status()));
        }
        match timeout(TIMEOUT, echo(answer)).await {
            Ok(Ok(true)) => {
                self.finding(Level::Ok, format!("a WebSocket echoed after {} ms", begun.elapsed().as_millis()))
            }
            Ok(Ok(false)) => refused("unexpected data came back".to_owned()),
            Ok(Err(why)) => refused(why),
            Err(_) => refused("upgraded, but nothing came back".to_owned()),
        }
    }

    /// A stream's first event must not wait for its second.
    async fn stream(&self) -> Finding {
        let begun = Instant::now();
        let first = async {
            let mut answer = self.get(EVENTS, false).await?;
            answer.chunk().await
        };
        match timeout(TIMEOUT, first).await {
            Ok(Ok(Some(_))) if begun.elapsed() < EVENT_DELAY * 2 / 3 => {
                self.finding(Level::Ok, format!("an event arrived after {} ms", begun.elapsed().as_millis()))
            }
            Ok(Ok(Some(_))) => {
                let late = begun.elapsed().as_millis();
                let what = format!("events are delayed (the first arrived after {late} ms): {}", self.held_back());
                self.finding(Level::Warning, what).fix("nginx: proxy_buffering off;")
            }
            Ok(Ok(None)) => self.finding(Level::Fault, "an event stream ended before its first event"),
            Ok(Err(err)) => self.finding(Level::Fault, format!("an event stream failed: {}", innermost(&err))),
            Err(_) => self.finding(Level::Fault, "an event stream sent no events").fix("nginx: proxy_buffering off;"),
        }
    }

    fn held_back(&self) -> Cow<'static, str> {
        match self.name {
            APPS => "output of streaming apps and long model responses arrives in bursts".into(),
            _ => "pages and logs are not updated live".into(),
        }
    }
}

/// Sends one masked frame and reads what comes back.
async fn echo(answer: Response) -> Result<bool, String> {
    const WORD: &[u8] = b"lyceum";
    const MASK: [u8; 4] = [1, 2, 3, 4];
    let mut socket = answer.upgrade().await.map_err(|err| innermost(&err))?;
    let length = u8::try_from(WORD.len()).expect("a short word");
    let mut frame = vec![0x81, 0x80 | length];
    frame.extend(MASK);
    frame.extend(WORD.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    let exchange = async {
        socket.write_all(&frame).await?;
        socket.flush().await?;
        let mut back = vec![0; 2 + WORD.len()];
        socket.read_exact(&mut back).await?;
        Ok::<_, std::io::Error>(back)
    };
    let back = exchange.await.map_err(|err| format!("upgraded, but the connection was lost: {err}"))?;
    Ok(back[..2] == [0x81, length] && &back[2..] == WORD)
}

/// The innermost cause: the outer ones name the address once more.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
