//! Which host answers for a registry: the mirror that the site set, `registry-1.docker.io` for Docker Hub,
//! or the registry itself. Everything but the loopback is asked over HTTPS.

use std::{collections::BTreeMap, net::IpAddr};

use url::{Host, Url};

use crate::{
    error::{Error, Result},
    reference::Reference,
};

/// Where the API of a registry is.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// `https://host:port/v2/`.
    base: Url,
    /// Stands before each repository, with a `/` at its end, or is empty.
    prefix: String,
    /// The name to which the site gives credentials, with the port.
    pub host: String,
}

impl Endpoint {
    /// Finds the endpoint of a reference's registry.
    pub fn of(reference: &Reference, mirrors: &BTreeMap<String, String>) -> Result<Self> {
        let registry = reference.registry();
        match mirrors.get(registry) {
            Some(mirror) => parse(registry, mirror),
            None if registry == "docker.io" => {
                Ok(Self { host: registry.to_owned(), ..parse(registry, "registry-1.docker.io")? })
            }
            None => parse(registry, registry),
        }
    }

    /// Returns the repository's name at this endpoint.
    pub fn repository(&self, reference: &Reference) -> String {
        format!("{}{}", self.prefix, reference.repository())
    }

    /// Returns the address of `kind` (`manifests` or `blobs`) `name` in a repository as [`Self::repository`] gives it.
    pub fn url(&self, repository: &str, kind: &str, name: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("/v2/{repository}/{kind}/{name}"));
        url
    }

    pub fn is_loopback(&self) -> bool {
        self.base.scheme() == "http"
    }
}

/// Checks a mirror's text, as an administrator writes it.
pub(crate) fn check(registry: &str, mirror: &str) -> Result<()> {
    parse(registry, mirror).map(drop)
}

/// Returns whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

fn parse(registry: &str, text: &str) -> Result<Endpoint> {
    let fault = |reason| Error::Mirror { registry: registry.to_owned(), text: text.to_owned(), reason };
    if text.contains('@') {
        // The text is not repeated: it may contain a password.
        let reason = "it must not contain credentials; set them apart";
        return Err(Error::Mirror { registry: registry.to_owned(), text: "…".to_owned(), reason });
    }
    let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let mut url = Url::parse(&full).map_err(|_err| fault("it must be a host, with an optional port and path"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(fault("it must not contain ? or #"));
    }
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => return Err(fault("http:// is accepted for the loopback alone; use https://")),
        _ => return Err(fault("it must begin with https://, or name only the host")),
    }
    if !text.contains("://") && is_loopback(&url) {
        // Like Docker, the loopback is asked without TLS unless https:// was written.
        url = Url::parse(&format!("http://{text}"))
            .map_err(|_err| fault("it must be a host, with an optional port and path"))?;
    }
    let prefix = url.path().trim_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let host = match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => return Err(fault("it must name a host")),
    };
    Ok(Endpoint { base: url, prefix, host })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(reference: &str, mirrors: &[(&str, &str)]) -> String {
        let mirrors = mirrors.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        let reference: Reference = reference.parse().unwrap();
        match Endpoint::of(&reference, &mirrors) {
            Ok(endpoint) => endpoint.url(&endpoint.repository(&reference), "manifests", "x").to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn mirrors_replace_their_registry() {
        let mirror = |to| endpoint("nvcr.io/nvidia/fake", &[("nvcr.io", to)]);
        assert_eq!(endpoint("busybox", &[]), "https://registry-1.docker.io/v2/library/busybox/manifests/x");
        assert_eq!(endpoint("127.0.0.1:5/a", &[]), "http://127.0.0.1:5/v2/a/manifests/x");
        assert_eq!(endpoint("reg.example.org:5/a", &[]), "https://reg.example.org:5/v2/a/manifests/x");
        let expected = "https://registry.example.org/v2/nvcr.io/nvidia/fake/manifests/x";
        assert_eq!(mirror("registry.example.org/nvcr.io"), expected);
        assert_eq!(mirror("https://registry.example.org/nvcr.io/"), expected);
        assert_eq!(mirror("http://[::1]:5000"), "http://[::1]:5000/v2/nvidia/fake/manifests/x");
        assert_eq!(mirror("https://localhost:5"), "https://localhost:5/v2/nvidia/fake/manifests/x");
        assert!(mirror("http://registry.example.org").contains("use https://"));
        assert!(mirror("ftp://registry.example.org").contains("must begin with https://"));
        assert!(mirror("http://127.0.0.1.example.org").contains("use https://"));
        let secret = mirror("https://me:geheim@registry.example.org");
        assert!(secret.contains("credentials") && !secret.contains("geheim"), "{secret}");
    }
}
