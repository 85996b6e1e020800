//! Where an image comes from: a registry, or a file on the portal's machine. A file is an archive of `docker save`, an
//! OCI layout, or a squashfs or SIF file, and is written as an address: `file:///srv/images/pytorch.tar#26.10`.

use std::{fmt, path::PathBuf, str::FromStr};

use lyceum_images::Reference;

/// What a pull reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Registry(Reference),
    File {
        path: PathBuf,
        /// Which image of an archive that has several.
        tag: Option<String>,
    },
}

const SCHEME: &str = "file://";

impl FromStr for Source {
    /// A sentence for the person who wrote it.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return text.parse().map(Self::Registry).map_err(|error: lyceum_images::Error| error.to_string());
        };
        let (path, tag) = rest.split_once('#').map_or((rest, None), |(path, tag)| (path, Some(tag)));
        let path = PathBuf::from(path);
        let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        if !path.is_absolute() || !is_plain || rest.len() > 1024 || rest.contains(char::is_control) {
            return Err(format!("must be an absolute path behind {SCHEME}, such as {SCHEME}/srv/images/pytorch.tar"));
        }
        Ok(Self::File { path, tag: tag.filter(|tag| !tag.is_empty()).map(str::to_owned) })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(out),
            Self::File { path, tag } => {
                write!(out, "{SCHEME}{}", path.display())?;
                tag.iter().try_for_each(|tag| write!(out, "#{tag}"))
            }
        }
    }
}

impl Source {
    /// Returns what patterns of allowed repositories are compared with: no tag and no digest.
    pub(super) fn repository(&self) -> String {
        match self {
            Self::Registry(reference) => format!("{}/{}", reference.registry(), reference.repository()),
            Self::File { path, .. } => format!("{SCHEME}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_and_files() {
        let parse = |text: &str| text.parse::<Source>();
        assert_eq!(parse("busybox").unwrap().to_string(), "docker.io/library/busybox:latest");
        let file = parse("file:///srv/a b.tar#x:1").unwrap();
        assert_eq!(file, Source::File { path: "/srv/a b.tar".into(), tag: Some("x:1".to_owned()) });
        assert_eq!(file.to_string().parse(), Ok(file));
        assert_eq!(parse("file:///srv/x.sqsh").unwrap().repository(), "file:///srv/x.sqsh");
        for bad in ["file://srv/x", "file:///srv/../etc/x", "file://", "file:///a\nb"] {
            assert!(parse(bad).unwrap_err().contains("absolute path"), "{bad}");
        }
        assert!(parse("A").is_err());
    }
}
