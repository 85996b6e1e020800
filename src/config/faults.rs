//! What cannot be, of all settings at once: each fault names its key and the way out.

use std::{net::SocketAddr, path::Path};

use url::Url;

use super::{Config, ProfileSetting, Server, Storage};
use crate::{apps, auth, model::quota::BadPeriod, scheduler::slurm, web::forwarded::parse_network};

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
        faults.extend(apps::validate(&self.apps, self.allow_port_apps).iter().map(ToString::to_string));
        faults.extend(self.nodes.validate());
        faults.extend(self.scheduler.slurm().map(slurm::Settings::validate).unwrap_or_default());
        faults.extend(self.faults_of_sudo());
        if self.scheduler.slurm().is_none() && self.scheduler.slurm.quotas != slurm::Quotas::Portal {
            faults.push(
                "scheduler.slurm.quotas: is for scheduler.kind = \"slurm\"; without Slurm the portal keeps quotas"
                    .to_owned(),
            );
        }
        faults.extend(self.gpus.validate());
        if !(1..=600).contains(&self.files.timeout) {
            faults.push("files.timeout: is between 1s and 10m".to_owned());
        }
        if self.curves.max_points < 1000 {
            faults.push("curves.max_points: is 1000 or more".to_owned());
        }
        if self.curves.memory < 16 << 20 {
            faults.push("curves.memory: is 16MiB or more".to_owned());
        }
        if let Err(fault) = self.quotas.period().and(self.quotas.zone()) {
            let key = if matches!(fault, BadPeriod::Zone(_)) { "time_zone" } else { "period" };
            faults.push(format!("quotas.{key}: {fault}"));
        }
        faults.extend(self.notifications.validate());
        faults.extend(self.audit.validate());
        faults.extend(self.retention.validate());
        faults.extend(faults_of_profiles(&self.profiles));
        faults.extend(faults_of_storage(&self.storage));
        faults
    }
}

impl Config {
    /// A rule of sudo's where it is of no use, or that cannot be.
    fn faults_of_sudo(&self) -> Option<String> {
        let program = self.accounts.sudo.as_ref()?;
        let why = if !program.is_absolute() {
            "is the whole path of the program, as in the rule"
        } else if self.scheduler.slurm().is_none() {
            "goes with scheduler.kind = \"slurm\": on its own machine a portal needs root to hold people's limits"
        } else if self.accounts.shared_uid {
            "and accounts.shared_uid exclude each other: sudo makes everybody who they are"
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
        secrets.into_iter().filter(move |(_, secret)| known(secret)).map(|(key, _)| {
            format!("{key}: its password is one that examples use and everybody tries; choose one of your own")
        })
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
        if self.is_open() && !self.insecure_http {
            faults.push(format!(
                "server.listen: {} is not the loopback, so passwords would cross the network in clear. Set server.tls_cert and \
                 server.tls_key, or an https server.public_url with server.trusted_proxies, or server.insecure_http = true",
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
