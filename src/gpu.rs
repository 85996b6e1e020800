//! The GPUs of this machine, from NVIDIA's driver where there is one, or only counted where
//! the configuration says so, and how busy they are. Which of them a workload gets is decided
//! in `model::gpus`, and who holds which is the database's business.

use std::{collections::HashMap, ffi::OsStr, fmt, path::PathBuf};

use nvml_wrapper::{Device, Nvml, error::NvmlError};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, de};

use crate::model::{DeviceNumber, Gpu, GpuDevice, GpuInventory, NVIDIA};

/// More GPUs than any one machine has: a larger number is a slip of the keyboard.
const MOST: u32 = 1024;

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

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the driver's library is there but does not work: {0}. `nvidia-smi` should say the same; after a driver update a restart of the machine helps"
    )]
    Driver(String),
    #[error("`gpus` asks for GPU {asked}, but the driver shows {there}")]
    NotThere { asked: String, there: String },
}

/// Finds the GPUs that Lyceum gives out.
///
/// Without a driver `auto` finds none, and a count or a list is taken at its word: such GPUs
/// are called `counted-N`, which is what a machine needs whose GPUs something else hands out.
pub fn inventory(config: &Config) -> Result<GpuInventory, Error> {
    let found = ask_driver(config.nvml.as_ref().map(|path| path.as_os_str()))?;
    match (found, &config.gpus) {
        (None, Gpus::Auto) => Ok(GpuInventory::default()),
        (None, Gpus::Count(count)) => Ok(counted(0..*count)),
        (None, Gpus::List(indices)) => Ok(counted(indices.iter().copied())),
        (Some(all), Gpus::Auto) => Ok(all),
        (Some(all), Gpus::Count(count)) => chosen(all, 0..*count),
        (Some(all), Gpus::List(indices)) => chosen(all, indices.iter().copied()),
    }
}

fn counted(indices: impl Iterator<Item = u32>) -> GpuInventory {
    let gpus = indices
        .map(|index| Gpu { index: index.into(), uuid: format!("counted-{index}"), model: "GPU".to_owned() })
        .collect();
    GpuInventory { gpus, driver: false, devices: Vec::new() }
}

/// Some of them to be given out. The device files of the others are kept in mind: they are
/// nobody's.
fn chosen(all: GpuInventory, indices: impl Iterator<Item = u32>) -> Result<GpuInventory, Error> {
    let gpus = &all.gpus;
    let gpus: Result<Vec<Gpu>, Error> = indices
        .map(|index| {
            gpus.iter().find(|gpu| gpu.index == i64::from(index)).cloned().ok_or_else(|| Error::NotThere {
                asked: index.to_string(),
                there: match gpus.len() {
                    0 => "none".to_owned(),
                    1 => "only GPU 0".to_owned(),
                    more => format!("only 0 to {}", more - 1),
                },
            })
        })
        .collect();
    Ok(GpuInventory { gpus: gpus?, ..all })
}

/// What the driver shows, in its order; `None` where no driver is.
fn ask_driver(library: Option<&OsStr>) -> Result<Option<GpuInventory>, Error> {
    let Some(nvml) = open(library)? else { return Ok(None) };
    let list = || -> Result<GpuInventory, NvmlError> {
        let mut all = GpuInventory { driver: true, ..GpuInventory::default() };
        for index in 0..nvml.device_count()? {
            let device = nvml.device_by_index(index)?;
            let uuid = device.uuid()?;
            // Not every driver tells (one below Windows has no device files).
            if let Ok(minor) = device.minor_number() {
                all.devices.push(GpuDevice { uuid: uuid.clone(), number: DeviceNumber { major: NVIDIA, minor } });
            }
            all.gpus.push(Gpu { index: index.into(), uuid, model: device.name()? });
        }
        Ok(all)
    };
    list().map(Some).map_err(|error| Error::Driver(error.to_string()))
}

fn open(library: Option<&OsStr>) -> Result<Option<Nvml>, Error> {
    let mut builder = Nvml::builder();
    if let Some(library) = library {
        builder.lib_path(library);
    }
    match builder.init() {
        Ok(nvml) => Ok(Some(nvml)),
        // The library without its kernel module is what a container image or a machine whose
        // card was taken out looks like.
        Err(NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound) => Ok(None),
        Err(error) => Err(Error::Driver(error.to_string())),
    }
}

/// The driver, kept open to be asked how busy GPUs are. Asking may block.
#[derive(Default)]
pub struct Watch {
    nvml: Option<Nvml>,
    /// Up to when each GPU's samples were read (the driver's own microseconds).
    read_to: Mutex<HashMap<String, u64>>,
}

impl Watch {
    /// Without a driver, nothing is ever measured.
    pub fn open(library: Option<&PathBuf>) -> Self {
        let nvml = open(library.map(|path| path.as_os_str())).ok().flatten();
        Self { nvml, read_to: Mutex::default() }
    }

    /// How busy (percent) the busiest of these GPUs was with processes of which `counts` is
    /// true, at any sample since it was asked before; `None` where the driver does not say.
    /// A GPU whose driver does not tell processes apart (MIG, old ones) counts as a whole: a
    /// workload has its GPUs for itself.
    pub fn busy(&self, gpus: &[Gpu], counts: impl Fn(u32) -> bool) -> Option<u32> {
        let nvml = self.nvml.as_ref()?;
        let mut busiest = 0;
        for gpu in gpus {
            let device = nvml.device_by_uuid(gpu.uuid.as_str()).ok()?;
            busiest = busiest.max(self.percent(&device, &gpu.uuid, &counts)?);
        }
        Some(busiest)
    }

    fn percent(&self, device: &Device<'_>, uuid: &str, counts: impl Fn(u32) -> bool) -> Option<u32> {
        let since = self.read_to.lock().get(uuid).copied().unwrap_or_default();
        match device.process_utilization_stats(since) {
            Ok(samples) => {
                if let Some(newest) = samples.iter().map(|sample| sample.timestamp).max() {
                    self.read_to.lock().insert(uuid.to_owned(), newest);
                }
                let theirs = samples.iter().filter(|sample| counts(sample.pid));
                Some(theirs.map(|sample| sample.sm_util.max(sample.enc_util).max(sample.dec_util)).max().unwrap_or(0))
            }
            // So the driver says that no process has used it since.
            Err(NvmlError::NotFound) => Some(0),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => {
                device.utilization_rates().ok().map(|rates| rates.gpu)
            }
            Err(_) => None,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("driver", &self.nvml.is_some()).finish_non_exhaustive()
    }
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
                    number.map_err(|_malformed| E::custom(format!("`{text}` is neither \"auto\" nor a number of GPUs")))
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
                let fits = u32::try_from(count).ok().filter(|count| *count <= MOST);
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
                let index = u32::try_from(index).ok().filter(|index| *index < MOST);
                sorted.push(index.ok_or_else(|| E::custom(format!("the index of a GPU is 0 to {}", MOST - 1)))?);
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

    #[test]
    fn counted_without_a_driver() {
        let nvml = Some(PathBuf::from("/nonexistent/libnvidia-ml.so.1"));
        let found = |gpus| inventory(&Config { gpus, nvml: nvml.clone() }).unwrap();
        assert_eq!(found(Gpus::Auto), GpuInventory::default());
        let two = found(Gpus::Count(2));
        assert!(!two.driver);
        assert_eq!(two.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>(), ["counted-0", "counted-1"]);
        assert_eq!(found(Gpus::List(vec![1, 3])).gpus[1].index, 3);
    }
}
