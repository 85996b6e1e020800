//! One message by HTTP, a notification or an event: to a host that the site allows, at an address of it that is public or
//! in a network that the site allows, over a connection to that very address. No redirect is followed, no
//! answer is kept, and the body is signed, so that the receiver can tell who wrote it.

use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use hmac::{Hmac, KeyInit, Mac};
use ipnet::{IpNet, Ipv4Net};
use reqwest::{Client, redirect};
use serde::Serialize;
use url::{Host, Url};

use super::{Config, DeliveryFailure};
use lyceum_model::{Timestamp, notification::Notification};

const CONNECT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is posted.
#[derive(Debug, Serialize)]
struct Body<'a> {
    /// The same for each attempt to deliver it.
    id: String,
    event: &'a str,
    title: &'a str,
    text: &'a str,
    /// When it happened.
    at: Timestamp,
    job: Option<Job<'a>>,
}

#[derive(Debug, Serialize)]
struct Job<'a> {
    id: String,
    name: &'a str,
    attempt: i64,
    /// Where it is on the portal, if that is known.
    url: Option<&'a str>,
}

/// What is wrong with an address, as far as its text says.
pub(super) fn fault(url: &Url, hosts: &[String]) -> Option<String> {
    if !matches!(url.scheme(), "https" | "http") {
        return Some("must begin with https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not contain a user name or password".to_owned());
    }
    let Some(host) = url.host_str().map(|host| host.trim_end_matches('.')) else {
        return Some("must contain a host".to_owned());
    };
    if hosts.iter().any(|allowed| is_allowed(host, url.port(), allowed)) {
        return None;
    }
    Some(format!("must use a host that this portal may call: {}", hosts.join(", ")))
}

/// `allowed` is a name, or `*.` and the end of one; another port than the usual one has to be named.
fn is_allowed(host: &str, port: Option<u16>, allowed: &str) -> bool {
    let (name, its_port) = match allowed.rsplit_once(':') {
        Some((name, its_port)) => (name, its_port.parse().ok()),
        None => (allowed, None),
    };
    let is_named = match name.strip_prefix("*.") {
        Some(end) => {
            let (host, end) = (host.to_ascii_lowercase(), format!(".{}", end.to_ascii_lowercase()));
            end.len() < host.len() && host.ends_with(&end)
        }
        None => host.eq_ignore_ascii_case(name),
    };
    is_named && port == its_port
}

/// What is posted, and what its headers say.
pub(crate) struct Post {
    /// The same for each attempt.
    pub id: String,
    pub event: String,
    pub body: Vec<u8>,
}

/// Posts it, signed with this secret.
pub(crate) async fn send(
    config: &Config,
    url: &str,
    secret: &str,
    post: Post,
    now: Timestamp,
) -> Result<(), DeliveryFailure> {
    let never = |why: &str| DeliveryFailure::Never(format!("The webhook address {why}."));
    let url: Url = url.parse().map_err(|_err| never("cannot be read"))?;
    if let Some(why) = fault(&url, &config.webhook_hosts) {
        return Err(never(&why));
    }
    let (host, addresses) = resolve(&url).await?;
    let inside = check(&addresses, &config.networks())?;
    if url.scheme() == "http" && !inside {
        return Err(never("must begin with https://, because its host is not in one of the site's own networks"));
    }
    let time = now.0 / 1000;
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .timeout(TIMEOUT)
        .user_agent("Lyceum")
        .resolve_to_addrs(&host, &addresses)
        .build()
        .map_err(|_err| DeliveryFailure::Later("The portal cannot call other hosts at the moment.".to_owned()))?;
    let sent = client
        .post(url)
        .header("Content-Type", "application/json")
        .header("Lyceum-Delivery", post.id)
        .header("Lyceum-Event", post.event)
        .header("Lyceum-Signature", format!("t={time},v1={}", signature(secret, time, &post.body)))
        .body(post.body)
        .send()
        .await;
    match sent {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => {
            let status = answer.status();
            let why = format!("The webhook returned status {}.", status.as_u16());
            let may_go_better = status.is_server_error() || [408, 425, 429].contains(&status.as_u16());
            Err(if may_go_better { DeliveryFailure::Later(why) } else { DeliveryFailure::Never(why) })
        }
        Err(error) if error.is_timeout() => {
            Err(DeliveryFailure::Later("The webhook did not respond in time.".to_owned()))
        }
        Err(error) if error.is_connect() => {
            Err(DeliveryFailure::Later("The webhook's host cannot be reached.".to_owned()))
        }
        Err(_) => Err(DeliveryFailure::Later("The connection to the webhook was lost.".to_owned())),
    }
}

/// A notification as it is posted; `link` leads to it, and may be empty.
pub(super) fn notification(one: &Notification, link: &str) -> Post {
    let message = &one.message;
    let job = message.job.map(|(id, attempt)| Job {
        id: id.to_string(),
        name: &message.name,
        attempt,
        url: Some(link).filter(|link| !link.is_empty()),
    });
    let (title, text) = (message.title.as_str(), message.text.as_str());
    let (id, event) = (one.id.to_string(), message.event.as_str());
    let body = Body { id: id.clone(), event, title, text, at: one.at, job };
    Post { id, event: event.to_owned(), body: serde_json::to_vec(&body).expect("plain data") }
}

/// The host as the client will look it up, and its addresses.
async fn resolve(url: &Url) -> Result<(String, Vec<SocketAddr>), DeliveryFailure> {
    let port = url.port_or_known_default().unwrap_or(443);
    let found = match url.host() {
        Some(Host::Ipv4(address)) => vec![SocketAddr::from((address, port))],
        Some(Host::Ipv6(address)) => vec![SocketAddr::from((address, port))],
        Some(Host::Domain(name)) => match tokio::net::lookup_host((name, port)).await {
            Ok(found) => found.collect(),
            Err(_) => {
                return Err(DeliveryFailure::Later("The webhook's host was not found in DNS.".to_owned()));
            }
        },
        None => Vec::new(),
    };
    if found.is_empty() {
        return Err(DeliveryFailure::Later("The webhook's host has no address.".to_owned()));
    }
    Ok((url.host_str().unwrap_or_default().to_owned(), found))
}

/// Whether all addresses are in networks of the site's own; a fault where one is neither there nor public.
fn check(addresses: &[SocketAddr], networks: &[IpNet]) -> Result<bool, DeliveryFailure> {
    let own = |address: IpAddr| networks.iter().any(|network| network.contains(&address));
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.ip().to_canonical()).collect();
    if addresses.iter().all(|address| own(*address) || is_public(*address)) {
        return Ok(addresses.iter().all(|address| own(*address)));
    }
    Err(DeliveryFailure::Never("The webhook's host has an address that this portal may not call.".to_owned()))
}

/// Not public, by the registries of special addresses (RFC 6890 and those that followed).
const SPECIAL: [([u8; 4], u8); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL.iter().any(|(network, length)| {
            Ipv4Net::new(Ipv4Addr::from(*network), *length).is_ok_and(|network| network.contains(&address))
        }),
        IpAddr::V6(address) => is_public_6(address),
    }
}

/// Global unicast, without what carries an address of the fourth version, and without documentation.
fn is_public_6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_special = (first == 0x2001 && (second < 0x0200 || second == 0x0db8)) || first == 0x2002 || first == 0x3fff;
    first & 0xe000 == 0x2000 && !is_special
}

/// Computes what a receiver checks bodies with, from the portal's key, so that it is kept nowhere. `whose` is the id of
/// what owns the address.
pub(crate) fn secret(key: &[u8; 32], whose: impl Display, salt: &str) -> String {
    mac(key, format!("{whose} {salt}").as_bytes())
}

/// Of the time and the body, so that an old message cannot be shown again.
fn signature(secret: &str, time: i64, body: &[u8]) -> String {
    mac(secret.as_bytes(), &[format!("{time}.").as_bytes(), body].concat())
}

fn mac(key: &[u8], text: &[u8]) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(text);
    hex::encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::UserId;

    #[test]
    fn hosts_are_those_that_were_allowed() {
        let hosts =
            ["hooks.example.org", "*.chat.example.org", "ci.example.org:8443", "127.0.0.1:9"].map(str::to_owned);
        let told = |url: &str| fault(&url.parse().unwrap(), &hosts).is_none();
        for url in [
            "https://hooks.example.org/x",
            "https://HOOKS.example.org:443/x",
            "https://hooks.example.org./x",
            "http://hooks.example.org/x",
            "https://a.chat.example.org/",
            "https://ci.example.org:8443/",
            "http://127.0.0.1:9/",
            "http://0x7f.1:9/",
        ] {
            assert!(told(url), "{url}");
        }
        for url in [
            "https://example.org/",
            "https://hooks.example.org.evil.org/",
            "https://evilhooks.example.org/",
            "https://hooks.example.org:8443/",
            "https://hooks.example.org:22/",
            "https://chat.example.org/",
            "https://evilchat.example.org/",
            "https://ci.example.org/",
            "https://hooks.example.org@evil.org/",
            "https://a:b@hooks.example.org/",
            "https://evil.org/#@hooks.example.org",
            "https://evil.org\\@hooks.example.org/",
            "file:///etc/passwd",
            "gopher://hooks.example.org/",
            "http://127.0.0.2:9/",
            "http://[::1]:9/",
        ] {
            assert!(!told(url), "{url}");
        }
    }

    #[test]
    fn addresses_are_public_or_allowed() {
        let of = |address: &str| SocketAddr::from((address.parse::<IpAddr>().unwrap(), 443));
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.168.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "64:ff9b::7f00:1",
            "2001:db8::1",
            "::7f00:1",
            "fec0::1",
        ] {
            assert!(check(&[of(address)], &[]).is_err(), "{address}");
            assert!(check(&[of("9.9.9.9"), of(address)], &[]).is_err(), "{address} behind another one");
        }
        for address in ["9.9.9.9", "172.32.0.1", "2620:fe::fe", "2a00:1450::1"] {
            assert_eq!(check(&[of(address)], &[]), Ok(false), "{address}");
        }
        let own = ["10.1.0.0/16".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
        assert_eq!(check(&[of("10.1.2.3"), of("::ffff:127.0.0.1")], &own), Ok(true));
        assert_eq!(check(&[of("10.1.2.3"), of("9.9.9.9")], &own), Ok(false));
        assert!(check(&[of("10.2.2.3")], &own).is_err());
    }

    #[test]
    fn a_body_is_signed_with_its_time() {
        let key = [7; 32];
        let (ada, bob) = (UserId::new(), UserId::new());
        let own = secret(&key, ada, "salt");
        assert_eq!(own, secret(&key, ada, "salt"));
        assert_ne!(own, secret(&key, bob, "salt"));
        assert_ne!(own, secret(&key, ada, "other"));
        assert_ne!(signature(&own, 1, b"{}"), signature(&own, 2, b"{}"));
        // As `printf '5.{}' | openssl dgst -sha256 -hmac key` says.
        let known = "9be615aec64f0d044b5ad6854ab1d893ec88617fb728d2149dcd3a3428e8c45d";
        assert_eq!(signature("key", 5, b"{}"), known);
    }
}
