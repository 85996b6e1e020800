//! `[datasets]`: where a site keeps the files of standard sets, for machines that cannot or should
//! not download them from their publishers. A request that names places of its own goes first.

use std::path::PathBuf;

use serde::Deserialize;

use super::build::spec::Source;

/// `[datasets]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A folder that all nodes see, with a folder for each standard set; empty: none.
    pub directory: PathBuf,
    /// The address of such a folder, instead of the publishers'; empty: none.
    pub mirror: String,
}

impl Config {
    /// Every fault, with its key and the way out.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.directory.as_os_str().is_empty() && !self.directory.is_absolute() {
            faults.push("datasets.directory: must be an absolute path".to_owned());
        }
        let is_web = url::Url::parse(&self.mirror).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !self.mirror.is_empty() && !is_web {
            faults.push("datasets.mirror: must be an address that begins with https:// or http://".to_owned());
        }
        faults
    }

    /// Adds the site's places to a standard set that names none.
    pub(super) fn apply(&self, source: &mut Source) {
        let Source::Standard { directory, mirror, .. } = source else { return };
        if directory.is_none() && !self.directory.as_os_str().is_empty() {
            *directory = Some(self.directory.clone());
        }
        if mirror.is_none() && !self.mirror.is_empty() {
            *mirror = Some(self.mirror.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::build::standard::StandardSet;

    #[test]
    fn the_places_of_a_request_go_before_those_of_the_site() {
        let site = Config { directory: "/srv/sets".into(), mirror: "https://mirror.example/sets".to_owned() };
        assert_eq!((site.validate(), Config::default().validate()), (Vec::new(), Vec::new()));
        let set = StandardSet::Mnist;
        let mut source = Source::Standard { set, directory: None, mirror: Some("http://own.example".to_owned()) };
        site.apply(&mut source);
        let (directory, mirror) = (Some("/srv/sets".into()), Some("http://own.example".to_owned()));
        assert_eq!(source, Source::Standard { set, directory, mirror });
        let mut other = Source::Standard { set, directory: None, mirror: None };
        Config::default().apply(&mut other);
        assert_eq!(other, Source::Standard { set, directory: None, mirror: None });
    }

    #[test]
    fn faults_name_their_key() {
        let wrong = Config { directory: "sets".into(), mirror: "mirror.example/sets".to_owned() }.validate();
        let keys: Vec<&str> = wrong.iter().map(|fault| fault.split(':').next().unwrap()).collect();
        assert_eq!(keys, ["datasets.directory", "datasets.mirror"]);
    }
}
