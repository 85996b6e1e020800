//! Which GPUs Lyceum gives out, as the configuration says it: `"auto"`, a count, or a list.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, de};

/// More GPUs than any one machine has: a larger number is a slip of the keyboard.
const MAX_GPUS: u32 = 1024;

/// What the configuration says about GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `"auto"`, a count, or a list of indices.
    pub gpus: Gpus,
    /// Another place for the driver's library than the system's own; for tests and odd installations.
    pub nvml: Option<PathBuf>,
}

/// Which GPUs Lyceum gives out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gpus {
    /// All that the driver shows; none without a driver.
    #[default]
    Auto,
    /// The first so many.
    Count(u32),
    /// These, by the driver's index; sorted, none twice.
    List(Vec<u32>),
}

impl<'de> Deserialize<'de> for Gpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Gpus;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", a count of GPUs, or a list of their indices")
            }

            /// From the environment everything comes as text: `auto`, `2` or `0,1`.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Gpus, E> {
                let number = |text: &str| {
                    let number = text.trim().parse::<i64>();
                    number.map_err(|_malformed| E::custom(format!("`{text}` is not \"auto\" or a number of GPUs")))
                };
                match text.trim() {
                    "auto" => Ok(Gpus::Auto),
                    list if list.contains(',') => {
                        let indices = list.split(',').filter(|part| !part.trim().is_empty()).map(number);
                        list_of(indices.collect::<Result<_, E>>()?)
                    }
                    count => self.visit_i64(number(count)?),
                }
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Gpus, E> {
                let fits = u32::try_from(count).ok().filter(|count| *count <= MAX_GPUS);
                fits.map(Gpus::Count).ok_or_else(|| E::invalid_value(de::Unexpected::Signed(count), &self))
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Gpus, E> {
                self.visit_i64(i64::try_from(count).unwrap_or(i64::MAX))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Gpus, A::Error> {
                let mut indices = Vec::new();
                while let Some(index) = items.next_element::<i64>()? {
                    indices.push(index);
                }
                list_of(indices)
            }
        }

        fn list_of<E: de::Error>(indices: Vec<i64>) -> Result<Gpus, E> {
            let mut sorted = Vec::new();
            for index in indices {
                let index = u32::try_from(index).ok().filter(|index| *index < MAX_GPUS);
                sorted
                    .push(index.ok_or_else(|| E::custom(format!("the index of a GPU must be 0 to {}", MAX_GPUS - 1)))?);
            }
            sorted.sort_unstable();
            match sorted.windows(2).find(|two| two[0] == two[1]) {
                Some(two) => Err(E::custom(format!("GPU {} is listed twice", two[0]))),
                None => Ok(Gpus::List(sorted)),
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        for (toml, gpus) in [
            ("", Some(Gpus::Auto)),
            ("gpus = \"auto\"", Some(Gpus::Auto)),
            ("gpus = 4", Some(Gpus::Count(4))),
            ("gpus = 0", Some(Gpus::Count(0))),
            ("gpus = \"4\"", Some(Gpus::Count(4))),
            ("gpus = \"1,0\"", Some(Gpus::List(vec![0, 1]))),
            ("gpus = [2, 0]", Some(Gpus::List(vec![0, 2]))),
            ("gpus = []", Some(Gpus::List(vec![]))),
            ("gpus = -1", None),
            ("gpus = 1e9", None),
            ("gpus = 4294967296", None),
            ("gpus = nan", None),
            ("gpus = [0, 0]", None),
            ("gpus = [-1]", None),
            ("gpus = \"many\"", None),
            ("gpus = true", None),
            ("gpu = 1", None),
        ] {
            let read = toml::from_str::<Config>(toml);
            assert_eq!(read.as_ref().ok().map(|config| config.gpus.clone()), gpus, "{toml}: {read:?}");
        }
    }
}
