//! What an image says about itself in its configuration: how to start it, and what it needs. Unknown
//! and missing fields are fine; these facts are the image's own words and are not verified.

use std::collections::BTreeMap;

use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Serialize};

use crate::{error::Error, platform::Platform};

/// Lists what an image's configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// The program that the image starts, with its first arguments.
    pub entrypoint: Vec<String>,
    /// The arguments behind the entrypoint, or the program where there is none.
    pub cmd: Vec<String>,
    /// Environment variables, in the image's order.
    pub env: Vec<(String, String)>,
    /// The user, as `name`, `uid`, or either with `:group`; empty for root.
    pub user: String,
    /// The working directory; empty for `/`.
    pub working_dir: String,
    pub labels: BTreeMap<String, String>,
    /// What the image requires of the driver, in the words of `NVIDIA_REQUIRE_CUDA`: `cuda>=12.8 …`.
    pub require_cuda: Option<String>,
}

impl ImageConfig {
    /// Reads a configuration, and the platform that it names.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, Platform, Vec<String>), Error> {
        let config: ImageConfiguration = serde_json::from_slice(bytes).map_err(|err| Error::Malformed {
            what: "the image's configuration".to_owned(),
            reason: err.to_string(),
        })?;
        let platform =
            Platform::of(&config.os().to_string(), &config.architecture().to_string(), config.variant().as_deref());
        let diff_ids = config.rootfs().diff_ids().clone();
        let Some(run) = config.config() else {
            return Ok((Self::default(), platform, diff_ids));
        };
        let env: Vec<(String, String)> = run
            .env()
            .iter()
            .flatten()
            .map(|variable| variable.split_once('=').unwrap_or((variable, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let require_cuda = env.iter().find(|(name, _)| name == "NVIDIA_REQUIRE_CUDA").map(|(_, value)| value.clone());
        let facts = Self {
            entrypoint: run.entrypoint().clone().unwrap_or_default(),
            cmd: run.cmd().clone().unwrap_or_default(),
            env,
            user: run.user().clone().unwrap_or_default(),
            working_dir: run.working_dir().clone().unwrap_or_default(),
            labels: run.labels().clone().unwrap_or_default().into_iter().collect(),
            require_cuda: require_cuda.filter(|value| !value.is_empty()),
        };
        Ok((facts, platform, diff_ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_as_docker_writes_them() {
        let text = r#"{"architecture":"arm64","variant":"v8","os":"linux","created":"2026-01-01T00:00:00Z",
          "config":{"User":"1000:1000","Env":["PATH=/bin","NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=tesla","EMPTY"],
          "Entrypoint":["/opt/nvidia/entrypoint.sh"],"Cmd":null,"WorkingDir":"/workspace","ExposedPorts":{"8888/tcp":{}},
          "Volumes":null,"OnBuild":null,"Labels":{"com.nvidia.version":"26.10"}},
          "rootfs":{"type":"layers","diff_ids":["sha256:00"]},"history":null,"docker_version":"20"}"#;
        let (facts, platform, diff_ids) = ImageConfig::parse(text.as_bytes()).unwrap();
        assert_eq!(platform.to_string(), "linux/arm64/v8");
        assert_eq!(facts.entrypoint, ["/opt/nvidia/entrypoint.sh"]);
        assert_eq!((facts.cmd.len(), facts.user.as_str(), facts.working_dir.as_str()), (0, "1000:1000", "/workspace"));
        assert_eq!(facts.env[2], ("EMPTY".to_owned(), String::new()));
        assert_eq!(facts.require_cuda.as_deref(), Some("cuda>=12.8 brand=tesla"));
        assert_eq!(facts.labels["com.nvidia.version"], "26.10");
        assert_eq!(diff_ids.len(), 1);
        assert!(ImageConfig::parse(b"{}").is_err() && ImageConfig::parse(b"<html>").is_err());
    }
}
