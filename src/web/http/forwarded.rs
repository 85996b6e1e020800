//! What reverse proxies say of a request. Only the peers in `trusted_proxies` are heard, only
//! in the one header that they are known to set, and only about the client's address: which
//! name and scheme browsers use is a setting (`public_url`) and never a request's word.

use std::net::{IpAddr, SocketAddr};

use axum::http::{Extensions, HeaderMap};
use ipnet::IpNet;
use serde::Deserialize;

use crate::{listen::PeerAddr, web::WebConfig};

/// The header in which trusted proxies name the client. The other one is never read: a proxy
/// that sets one passes the other on as the client has written it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientHeader {
    #[default]
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

impl ClientHeader {
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// Addresses as settings name them: one, or a network (`10.0.0.0/8`). `None` for anything
/// else, and for a network of everybody.
pub fn parse_network(text: &str) -> Option<IpNet> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => text.parse::<IpNet>().ok()?.trunc(),
    };
    (network.prefix_len() > 0).then_some(network)
}

/// Where a request comes from: the peer, or what trusted proxies say of it, read from the
/// right, because a client can write the rest of the header itself.
pub fn client_address(config: &WebConfig, headers: &HeaderMap, extensions: &Extensions) -> IpAddr {
    let mut client = peer(extensions);
    if config.trusted_proxies.is_empty() || !config.trusts(client) {
        return client;
    }
    // Commas divide also what stands in quotation marks, which the left of the header could
    // open; no address holds one.
    let hops = headers
        .get_all(config.client_header.name())
        .iter()
        .rev()
        .flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    for hop in hops {
        let hop = match config.client_header {
            ClientHeader::XForwardedFor => Some(hop),
            ClientHeader::Forwarded => parameter_for(hop),
        };
        // What is no address ends it: the proxy that wrote it is the last that is known.
        let Some(address) = hop.and_then(address) else { break };
        client = address;
        if !config.trusts(client) {
            break;
        }
    }
    client
}

/// Whether the request was made on this machine and not passed on by a proxy.
pub fn is_local(headers: &HeaderMap, extensions: &Extensions) -> bool {
    let passed_on = ["x-forwarded-for", "forwarded", "x-real-ip", "via"].iter().any(|name| headers.contains_key(*name));
    peer(extensions).is_loopback() && !passed_on
}

impl WebConfig {
    /// Whether this peer is a reverse proxy of ours.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&peer))
    }
}

pub(in crate::web) fn peer(extensions: &Extensions) -> IpAddr {
    // A request without a peer can only come from a test or a mistake: it is nobody's neighbour.
    extensions.get::<PeerAddr>().map_or(IpAddr::from([0, 0, 0, 0]), |PeerAddr(address)| address.ip().to_canonical())
}

/// The value of `for=` in one element of `Forwarded`, without its quotation marks.
fn parameter_for(element: &[u8]) -> Option<&[u8]> {
    let mut values = element.split(|byte| *byte == b';').filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for").then(|| pair[equals + 1..].trim_ascii())
    });
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}

/// An address as proxies write it: alone, in brackets, with a port.
fn address(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(bracketed).or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    const PROXY: &str = "10.1.2.3";

    fn client(config: &WebConfig, peer: &str, headers: &[(&'static str, &'static str)]) -> String {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 9)));
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            sent.append(*name, HeaderValue::from_static(value));
        }
        client_address(config, &sent, &extensions).to_string()
    }

    fn trusting(networks: &[&str], client_header: ClientHeader) -> WebConfig {
        let trusted_proxies = networks.iter().map(|text| parse_network(text).unwrap()).collect();
        WebConfig { trusted_proxies, client_header, ..WebConfig::default() }
    }

    #[test]
    fn the_rightmost_address_that_is_no_proxy_counts() {
        let config = trusting(&["10.0.0.0/8", "2001:db8:1::/48", "127.0.0.1"], ClientHeader::XForwardedFor);
        for (sent, expected) in [
            (&[][..], PROXY),
            (&[("x-forwarded-for", "192.0.2.7")], "192.0.2.7"),
            (&[("x-forwarded-for", "6.6.6.6, 192.0.2.7")], "192.0.2.7"),
            (&[("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.9.9.9,127.0.0.1")], "192.0.2.7"),
            (&[("x-forwarded-for", "6.6.6.6, 192.0.2.7"), ("x-forwarded-for", "10.9.9.9")], "192.0.2.7"),
            (&[("x-forwarded-for", "10.8.8.8, 10.9.9.9")], "10.8.8.8"),
            (&[("x-forwarded-for", "6.6.6.6, unknown")], PROXY),
            (&[("x-forwarded-for", "6.6.6.6, unknown, 10.9.9.9")], "10.9.9.9"),
            (&[("x-forwarded-for", "6.6.6.6,")], PROXY),
            (&[("x-forwarded-for", "192.0.2.7:4711")], "192.0.2.7"),
            (&[("x-forwarded-for", "[2001:db8::7]:4711")], "2001:db8::7"),
            (&[("x-forwarded-for", "[2001:db8::7]")], "2001:db8::7"),
            (&[("x-forwarded-for", "6.6.6.6, 2001:db8::7, 2001:db8:1::2")], "2001:db8::7"),
            (&[("x-forwarded-for", "::ffff:192.0.2.7")], "192.0.2.7"),
            (&[("x-forwarded-for", "6.6.6.6, ::ffff:10.9.9.9")], "6.6.6.6"),
            (&[("forwarded", "for=6.6.6.6"), ("x-real-ip", "6.6.6.6")], PROXY),
        ] {
            assert_eq!(client(&config, PROXY, sent), expected, "{sent:?}");
        }
        // Nobody else is believed, and nobody at all where none is named.
        for peer in ["192.0.2.9", "11.0.0.1", "2001:db8:2::1", "127.0.0.2"] {
            assert_eq!(client(&config, peer, &[("x-forwarded-for", "6.6.6.6")]), peer);
        }
        assert_eq!(client(&WebConfig::default(), "127.0.0.1", &[("x-forwarded-for", "6.6.6.6")]), "127.0.0.1");
        assert_eq!(client(&config, "::ffff:10.1.2.3", &[("x-forwarded-for", "192.0.2.7")]), "192.0.2.7");
    }

    #[test]
    fn forwarded_is_read_where_it_is_the_one_that_is_set() {
        let config = trusting(&["10.0.0.0/8"], ClientHeader::Forwarded);
        for (sent, expected) in [
            (&[("forwarded", "for=192.0.2.7")][..], "192.0.2.7"),
            (&[("forwarded", "For=\"192.0.2.7:80\"; proto=https;by=10.1.1.1")], "192.0.2.7"),
            (&[("forwarded", "for=6.6.6.6, proto=http;for=\"[2001:db8::7]:4711\", for=10.9.9.9")], "2001:db8::7"),
            (&[("forwarded", "for=6.6.6.6"), ("forwarded", "for=192.0.2.7")], "192.0.2.7"),
            // What the client has begun does not swallow what the proxy has added.
            (&[("forwarded", "for=\"6.6.6.6, for=192.0.2.7")], "192.0.2.7"),
            (&[("forwarded", "for=6.6.6.6, for=unknown")], PROXY),
            (&[("forwarded", "for=6.6.6.6, for=_hidden")], PROXY),
            (&[("forwarded", "for=6.6.6.6, proto=https")], PROXY),
            (&[("forwarded", "for=6.6.6.6;for=192.0.2.7")], PROXY),
            (&[("x-forwarded-for", "6.6.6.6")], PROXY),
        ] {
            assert_eq!(client(&config, PROXY, sent), expected, "{sent:?}");
        }
    }

    #[test]
    fn networks() {
        for (text, expected) in [
            ("10.0.0.1", Some("10.0.0.1/32")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("::1", Some("::1/128")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::ffff:10.0.0.1", Some("10.0.0.1/32")),
            ("0.0.0.0/0", None),
            ("::/0", None),
            ("10.0.0.0/33", None),
            ("localhost", None),
            ("", None),
        ] {
            assert_eq!(parse_network(text).map(|network| network.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_a_proxy_passed_on_is_not_local() {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddr("127.0.0.1:9".parse().unwrap()));
        assert!(is_local(&HeaderMap::new(), &extensions));
        for name in ["x-forwarded-for", "forwarded", "x-real-ip", "via"] {
            let sent = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static("x"))]);
            assert!(!is_local(&sent, &extensions), "{name}");
        }
    }

    proptest! {
        /// A client behind a proxy cannot choose its address: what it writes itself stands on
        /// the left of what the proxy adds.
        #[test]
        fn nobody_chooses_their_address(written in "([0-9a-f.:, ;=\"]|for=|127\\.0\\.0\\.1|[!-~]){0,30}") {
            let mut extensions = Extensions::new();
            extensions.insert(PeerAddr(SocketAddr::new(PROXY.parse().unwrap(), 9)));
            for (header, added) in [(ClientHeader::XForwardedFor, ""), (ClientHeader::Forwarded, "for=")] {
                let config = trusting(&[PROXY], header);
                let Ok(value) = HeaderValue::from_str(&format!("{written}, {added}192.0.2.7")) else { return Ok(()) };
                let sent = HeaderMap::from_iter([(HeaderName::from_static(header.name()), value)]);
                prop_assert_eq!(client_address(&config, &sent, &extensions).to_string(), "192.0.2.7");
            }
        }
    }
}
