//! What cannot be, of all settings at once: each fault names its key and the way out.

use std::{net::SocketAddr, path::Path};

use super::{Config, ProfileSetting, Server, Storage};
use crate::{apps, auth, model::quota::BadPeriod, web::forwarded::parse_network};

impl Config {
    /// Every fault; empty where all is well.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = self.server.faults();
        faults.extend(self.database.file(Path::new("/")).err().map(|err| err.to_string()));
        faults.extend(self.auth.directory().map(auth::ldap::Settings::validate).unwrap_or_default());
        faults.extend(self.auth.header.validate(self.auth.directory()));
        faults.extend(self.environments.validate());
        faults.extend(apps::validate(&self.apps, self.allow_port_apps).iter().map(ToString::to_string));
        if !(1..=600).contains(&self.files.timeout) {
            faults.push("files.timeout: is between 1s and 10m".to_owned());
        }
        if let Err(fault) = self.quotas.period() {
            let key = if matches!(fault, BadPeriod::Zone(_)) { "time_zone" } else { "period" };
            faults.push(format!("quotas.{key}: {fault}"));
        }
        faults.extend(faults_of_profiles(&self.profiles));
        faults.extend(faults_of_storage(&self.storage));
        faults
    }
}

impl Server {
    fn faults(&self) -> Vec<String> {
        let mut faults = self.faults_of_origins();
        if self.tls_cert.is_empty() != self.tls_key.is_empty() {
            faults.push("server.tls_cert and server.tls_key belong together: set both or neither".to_owned());
        }
        if !self.apps_listen.is_empty() && self.apps_listen.parse::<SocketAddr>().is_err() {
            faults.push("server.apps_listen: is ADDRESS:PORT, as in 127.0.0.1:8001".to_owned());
        }
        for proxy in &self.trusted_proxies {
            if parse_network(proxy).is_none() {
                faults.push(format!(
                    "server.trusted_proxies: `{}` is neither an address nor a network of less than everybody, as in 10.0.0.0/8",
                    proxy.escape_debug()
                ));
            }
        }
        let https_in_front = self.public_url.starts_with("https://") && !self.trusted_proxies.is_empty();
        if !self.listen.ip().is_loopback() && self.tls_cert.is_empty() && !https_in_front && !self.insecure_http {
            faults.push(format!(
                "server.listen: {} is not the loopback, so passwords would cross the network in clear. Set server.tls_cert and \
                 server.tls_key, or an https server.public_url with server.trusted_proxies, or server.insecure_http = true",
                self.listen
            ));
        }
        faults
    }
}

fn faults_of_profiles(profiles: &[ProfileSetting]) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        if profile.name.is_empty() || profiles[..index].iter().any(|other| other.name == profile.name) {
            faults.push(format!("profiles[{index}].name: must be there and be unique"));
        }
        if profile.gpus < 0 || profile.cpus < 1 || profile.memory < 1 || profile.duration < 60 {
            faults
                .push(format!("profiles[{index}]: gpus is 0 or more, cpus 1 or more, memory and duration above zero"));
        }
    }
    faults
}

fn faults_of_storage(mounts: &[Storage]) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, storage) in mounts.iter().enumerate() {
        let plain =
            !storage.name.is_empty() && !storage.name.starts_with('.') && !storage.name.contains(['/', '\0', '\n']);
        if !plain || !storage.path.is_absolute() {
            faults.push(format!("storage[{index}]: needs a plain name and an absolute path"));
        }
    }
    faults
}
