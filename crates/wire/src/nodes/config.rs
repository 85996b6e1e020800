//! The section `[nodes]`: who connects to whom between portal and agents on other nodes, and
//! where. Every fault of it is told at once, with its key.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer, de::Error};

use lyceum_model::session::Transport;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub transport: Transport,
    /// The address of its node on which an agent listens.
    pub agent_listen: IpAddr,
    /// `40000-40999`; empty: any.
    pub ports: Ports,
    /// Where agents reach the portal, `HOST:PORT`; for `listen` and `dial_back`.
    pub portal_address: String,
    /// Where the portal awaits them, `ADDRESS:PORT`.
    pub portal_listen: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transport: Transport::EndpointFile,
            agent_listen: Ipv4Addr::UNSPECIFIED.into(),
            ports: Ports::default(),
            portal_address: String::new(),
            portal_listen: String::new(),
        }
    }
}

impl Config {
    /// Each fault, with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.portal_listen.is_empty() && self.portal_listen().is_none() {
            let given = &self.portal_listen;
            faults.push(format!("nodes.portal_listen: `{given}` is not an address with a port, like `0.0.0.0:8003`"));
        }
        if self.transport == Transport::EndpointFile {
            return faults;
        }
        if self.portal_listen.is_empty() {
            faults.push(
                "nodes.portal_listen: is required because agents connect to the portal; set the listen address, as in \
                 `0.0.0.0:8003`"
                    .into(),
            );
        }
        let address = self.portal_address.rsplit_once(':');
        if !address.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)) {
            let given = &self.portal_address;
            faults.push(format!(
                "nodes.portal_address: must be the address that agents use to connect to the portal, as in \
                 `head.example.org:8003`, not `{given}`"
            ));
        }
        faults
    }

    pub fn portal_listen(&self) -> Option<SocketAddr> {
        self.portal_listen.parse().ok()
    }
}

/// The ports on which agents may listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports(Option<(u16, u16)>);

impl Ports {
    /// First and last; 0 and 0 where any will do.
    pub fn bounds(self) -> (u16, u16) {
        self.0.unwrap_or((0, 0))
    }

    /// Whether an agent may be there. Below 1024 only root can be.
    pub fn may_be(self, port: u16) -> bool {
        let (first, last) = self.0.unwrap_or((1024, u16::MAX));
        (first..=last).contains(&port)
    }

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(None));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first >= 1024 && first <= last).then_some(Self(Some((first, last))))
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a range of ports above 1023, like `40000-40999`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        assert_eq!(Ports::parse(""), Some(Ports(None)));
        assert_eq!(Ports::parse("40000-40999"), Some(Ports(Some((40_000, 40_999)))));
        assert_eq!(Ports::parse("40000"), Some(Ports(Some((40_000, 40_000)))));
        for bad in ["1-2", "500-40000", "40001-40000", "a-b", "40000-70000", "-", "40000-"] {
            assert_eq!(Ports::parse(bad), None, "{bad}");
        }
        let ports = Ports::parse("40000-40999").unwrap();
        assert!(ports.may_be(40_000) && ports.may_be(40_999) && !ports.may_be(39_999) && !ports.may_be(22));
        assert!(!Ports::default().may_be(22) && Ports::default().may_be(6817));
    }

    #[test]
    fn what_agents_call_must_be_known() {
        let config = |transport, address: &str, listen: &str| Config {
            transport,
            portal_address: address.to_owned(),
            portal_listen: listen.to_owned(),
            ..Config::default()
        };
        let faults = |transport, address, listen| config(transport, address, listen).validate().join("\n");
        assert_eq!(faults(Transport::EndpointFile, "", ""), "");
        assert_eq!(faults(Transport::DialBack, "head:8003", "0.0.0.0:8003"), "");
        for transport in [Transport::Listen, Transport::DialBack] {
            let told = faults(transport, "", "");
            assert!(told.contains("nodes.portal_address") && told.contains("nodes.portal_listen"), "{told}");
            assert!(faults(transport, "head", "0.0.0.0:8003").contains("nodes.portal_address"));
            assert!(faults(transport, ":8003", "0.0.0.0:8003").contains("nodes.portal_address"));
        }
        assert!(faults(Transport::EndpointFile, "", "8003").contains("nodes.portal_listen"));
    }
}
