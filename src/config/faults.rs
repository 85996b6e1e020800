//! What cannot be, of all settings at once: each fault names its key and the way out.

use std::{net::SocketAddr, path::Path};

use url::Url;

use super::{Config, ProfileSetting, Server, Storage};
use crate::{apps, auth, model::quota::BadPeriod, scheduler::slurm, web::http::forwarded::parse_network};

impl Config {
    /// Every fault; empty where all is well.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = self.server.faults();
        faults.extend(self.database.file(Path::new("/")).err().map(|err| err.to_string()));
        faults.extend(self.auth.directory().map(auth::ldap::Settings::validate).unwrap_or_default());
        faults.extend(self.auth.header.validate(self.auth.directory()));
        faults.extend(self.faults_of_secrets());
        faults.extend(self.environments.validate());
        faults.extend(self.images.validate());
        if self.scheduler.slurm().is_some() && !self.images.list.is_empty() && !self.images.is_shared() {
            faults.push(
                "images.list: on a Slurm cluster, also set images.directory to a folder that all nodes see at the \
                 same path"
                    .to_owned(),
            );
        }
        faults.extend(apps::validate(&self.apps, self.allow_port_apps).iter().map(ToString::to_string));
        faults.extend(self.nodes.validate());
        faults.extend(self.scheduler.slurm().map(slurm::Settings::validate).unwrap_or_default());
        faults.extend(self.faults_of_sudo());
        if self.scheduler.slurm().is_none() && self.scheduler.slurm.quotas != slurm::Quotas::Portal {
            faults.push(
                "scheduler.slurm.quotas: requires scheduler.kind = \"slurm\"; without Slurm the portal manages quotas"
                    .to_owned(),
            );
        }
        faults.extend(self.gpus.validate());
        if !(1..=600).contains(&self.files.timeout) {
            faults.push("files.timeout: must be between 1s and 10m".to_owned());
        }
        if self.curves.max_points < 1000 {
            faults.push("curves.max_points: must be 1000 or more".to_owned());
        }
        if self.curves.memory < 16 << 20 {
            faults.push("curves.memory: must be 16MiB or more".to_owned());
        }
        if let Err(fault) = self.quotas.period().and(self.quotas.zone()) {
            let key = if matches!(fault, BadPeriod::Zone(_)) { "time_zone" } else { "period" };
            faults.push(format!("quotas.{key}: {fault}"));
        }
        faults.extend(self.notifications.validate());
        faults.extend(self.audit.validate());
        faults.extend(self.retention.validate());
        faults.extend(self.datasets.validate());
        faults.extend(faults_of_profiles(&self.profiles));
        if (1..86_400).contains(&self.accounts.dormant_after) {
            faults.push("accounts.dormant_after: must be 0 or at least 1d".to_owned());
        }
        faults.extend(faults_of_storage(&self.storage));
        faults
    }
}

impl Config {
    /// A rule of sudo's where it is of no use, or that cannot be.
    fn faults_of_sudo(&self) -> Option<String> {
        let program = self.accounts.sudo.as_ref()?;
        let why = if !program.is_absolute() {
            "must be the absolute path of the program, as in the sudo rule"
        } else if self.scheduler.slurm().is_none() {
            "requires scheduler.kind = \"slurm\": on a single machine the portal needs root to enforce limits"
        } else if self.accounts.shared_uid {
            "cannot be combined with accounts.shared_uid: with sudo, each user has a separate account"
        } else {
            return None;
        };
        Some(format!("accounts.sudo: {why}"))
    }
}

/// Passwords of examples, manuals and images: everybody knows them.
const KNOWN: [&str; 14] = [
    "admin",
    "adminpassword",
    "changeit",
    "change-me",
    "change_me",
    "changeme",
    "default",
    "example",
    "letmein",
    "lyceum",
    "password",
    "postgres",
    "secret",
    "test",
];

impl Config {
    /// Secrets that are none.
    fn faults_of_secrets(&self) -> impl Iterator<Item = String> {
        let url = Url::parse(&self.database.url).ok();
        let database = url.as_ref().and_then(Url::password).unwrap_or_default().to_owned();
        let directory = self.auth.directory().map(|directory| directory.bind_password.clone()).unwrap_or_default();
        let mail = self.notifications.smtp_password.clone();
        let secrets =
            [("database.url", database), ("auth.ldap.bind_password", directory), ("notifications.smtp_password", mail)];
        let known = |secret: &str| KNOWN.contains(&secret.to_ascii_lowercase().as_str());
        secrets
            .into_iter()
            .filter(move |(_, secret)| known(secret))
            .map(|(key, _)| format!("{key}: its password is a well-known example; choose your own"))
    }
}

impl Server {
    fn faults(&self) -> Vec<String> {
        let mut faults = self.faults_of_origins();
        if self.tls_cert.is_empty() != self.tls_key.is_empty() {
            faults.push("server.tls_cert and server.tls_key belong together: set both or neither".to_owned());
        }
        if !self.apps_listen.is_empty() && self.apps_listen.parse::<SocketAddr>().is_err() {
            faults.push("server.apps_listen: must be ADDRESS:PORT, as in 127.0.0.1:8001".to_owned());
        }
        for proxy in &self.trusted_proxies {
            if parse_network(proxy).is_none() {
                faults.push(format!(
                    "server.trusted_proxies: `{}` must be an address or a network, as in 10.0.0.0/8, and not cover all \
                     addresses",
                    proxy.escape_debug()
                ));
            }
        }
        if self.is_open() && !self.insecure_http {
            faults.push(format!(
                "server.listen: {} is not a loopback address, so passwords would be sent over the network unencrypted. \
                 Set server.tls_cert and server.tls_key, or an https server.public_url with server.trusted_proxies, or \
                 server.insecure_http = true",
                self.listen
            ));
        }
        faults
    }

    /// Whether passwords cross a network in clear: then `insecure_http` must say so.
    pub fn is_open(&self) -> bool {
        let https_in_front = self.public_url.starts_with("https://") && !self.trusted_proxies.is_empty();
        !self.listen.ip().is_loopback() && self.tls_cert.is_empty() && !https_in_front
    }
}

fn faults_of_profiles(profiles: &[ProfileSetting]) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        if profile.name.is_empty() || profiles[..index].iter().any(|other| other.name == profile.name) {
            faults.push(format!("profiles[{index}].name: is required and must be unique"));
        }
        if ["custom", "app"].contains(&profile.name.as_str()) {
            faults.push(format!("profiles[{index}].name: `{}` is reserved", profile.name));
        }
        if profile.gpus < 0 || profile.cpus < 1 || profile.memory < 1 || profile.duration < 60 {
            faults.push(format!(
                "profiles[{index}]: gpus must be 0 or more, cpus 1 or more, memory above zero and duration at least 60s"
            ));
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
            faults.push(format!("storage[{index}]: requires a plain name and an absolute path"));
        }
    }
    faults
}
