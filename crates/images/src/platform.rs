//! The operating system and processor that an image is made for, and the choice of one among those that
//! an index offers. Entries for attestations, whose platform is `unknown`, are never chosen.

use std::{fmt, str::FromStr};

use oci_spec::image::Descriptor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;

/// Names operating system, processor and its variant in Go's words: `linux/amd64`, `linux/arm64/v8`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// Returns the platform of this machine.
    pub fn host() -> Self {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    pub(crate) fn of(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let variant = variant.filter(|variant| !variant.is_empty()).map(str::to_owned);
        Self { os: os.to_owned(), architecture: architecture.to_owned(), variant }
    }

    /// Returns whether an image for `other` runs here. An arm64 without a variant is v8.
    pub(crate) fn accepts(&self, other: &Self) -> bool {
        let variant = |platform: &Self| match (platform.architecture.as_str(), platform.variant.clone()) {
            ("arm64", None) => Some("v8".to_owned()),
            (_, variant) => variant,
        };
        self.os == other.os && self.architecture == other.architecture && variant(self) == variant(other)
    }

    /// Returns whether system and processor are the same. Configurations often leave out the variant.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.os == other.os && self.architecture == other.architecture
    }

    /// Returns the entry of an index that is for this platform, or the names of those that it has.
    pub(crate) fn choose<'a>(&self, entries: &'a [Descriptor]) -> Result<&'a Descriptor, Vec<String>> {
        let platform_of = |entry: &Descriptor| {
            entry.platform().as_ref().map(|platform| {
                Self::of(
                    &platform.os().to_string(),
                    &platform.architecture().to_string(),
                    platform.variant().as_deref(),
                )
            })
        };
        if let Some(entry) = entries.iter().find(|entry| platform_of(entry).is_some_and(|other| self.accepts(&other))) {
            return Ok(entry);
        }
        // An index of one entry may leave its platform to the image's own configuration.
        if let [entry] = entries
            && entry.platform().is_none()
        {
            return Ok(entry);
        }
        let known = entries.iter().filter_map(platform_of).filter(|platform| platform.os != "unknown");
        Err(known.map(|platform| platform.to_string()).collect())
    }

    /// Returns the name as a part of a file name.
    pub(crate) fn slug(&self) -> String {
        self.to_string().replace('/', "-")
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_word = |part: &&str| {
            (1..=32).contains(&part.len())
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        match parts[..] {
            [os, architecture] if parts.iter().all(is_word) => Ok(Self::of(os, architecture, None)),
            [os, architecture, variant] if parts.iter().all(is_word) => Ok(Self::of(os, architecture, Some(variant))),
            _ => Err(Error::PlatformName { text: text.chars().take(100).collect() }),
        }
    }
}

impl Serialize for Platform {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Platform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(platforms: &[(&str, &str, Option<&str>)]) -> Vec<Descriptor> {
        let entry = |(at, (os, architecture, variant)): (usize, &(&str, &str, Option<&str>))| {
            let mut platform = serde_json::json!({"os": os, "architecture": architecture});
            if let Some(variant) = variant {
                platform["variant"] = serde_json::json!(variant);
            }
            let digest = crate::Digest::of(&[u8::try_from(at).unwrap()]).to_string();
            let entry = serde_json::json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": at,
                "digest": digest, "platform": platform});
            serde_json::from_value(entry).unwrap()
        };
        platforms.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn the_platform_of_the_machine_is_chosen() {
        let entries = index(&[
            ("unknown", "unknown", None),
            ("linux", "amd64", Some("v3")),
            ("windows", "amd64", None),
            ("linux", "arm64", Some("v8")),
            ("linux", "arm", Some("v7")),
            ("linux", "amd64", None),
        ]);
        let chosen = |text: &str| text.parse::<Platform>().unwrap().choose(&entries).map(Descriptor::size);
        assert_eq!(chosen("linux/amd64"), Ok(5));
        assert_eq!(chosen("linux/amd64/v3"), Ok(1));
        assert_eq!(chosen("linux/arm64"), Ok(3));
        assert_eq!(chosen("linux/arm/v7"), Ok(4));
        let missing = chosen("linux/riscv64").unwrap_err();
        assert_eq!(missing, ["linux/amd64/v3", "windows/amd64", "linux/arm64/v8", "linux/arm/v7", "linux/amd64"]);
        assert!("linux".parse::<Platform>().is_err() && "Linux/amd64".parse::<Platform>().is_err());
        assert!("linux/amd64/../x".parse::<Platform>().is_err());
    }
}
