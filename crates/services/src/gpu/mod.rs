//! The GPUs of this machine, from NVIDIA's driver where there is one, or only counted where
//! the configuration says so, and what they do. Which of them a workload gets is decided
//! in `model::gpus`, and who holds which is the database's business. Every call of the driver may
//! hang for ever: `driver` makes them, and `watch` sees to it that nobody waits for one.

mod diagnose;
mod driver;
mod settings;
mod watch;
mod workload;

use lyceum_model::{Gpu, GpuInventory};

pub use diagnose::{KERNEL_LOG, diagnose};
pub use settings::{Config, Gpus};
pub use watch::DriverThread;
pub use workload::open_workload;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the NVIDIA driver library is installed but does not work: {0}. Check with `nvidia-smi`. After a driver update, restart the machine."
    )]
    Driver(String),
    #[error("`gpus` lists GPU {asked}, but the driver reports {there}")]
    NotThere { asked: String, there: String },
}

/// Finds the GPUs that Lyceum gives out.
///
/// Without a driver `auto` finds none, and a count or a list is taken at its word: such GPUs
/// are called `counted-N`, which is what a machine needs whose GPUs something else hands out.
pub fn inventory(config: &Config) -> Result<GpuInventory, Error> {
    let found = driver::inventory(config.nvml.clone())?;
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
        .map(|index| Gpu {
            index: index.into(),
            uuid: format!("counted-{index}"),
            model: "GPU".to_owned(),
            slice: None,
        })
        .collect();
    GpuInventory { gpus, ..GpuInventory::default() }
}

/// Some of them to be given out, slices with their GPU. The device files of the others are kept
/// in mind: they are nobody's.
fn chosen(all: GpuInventory, indices: impl Iterator<Item = u32>) -> Result<GpuInventory, Error> {
    let highest = all.gpus.iter().map(|gpu| gpu.index).max();
    let mut gpus = Vec::new();
    for index in indices {
        let before = gpus.len();
        gpus.extend(all.gpus.iter().filter(|gpu| gpu.index == i64::from(index)).cloned());
        if gpus.len() == before {
            return Err(Error::NotThere {
                asked: index.to_string(),
                there: match highest {
                    None => "none".to_owned(),
                    Some(0) => "only GPU 0".to_owned(),
                    Some(highest) => format!("only 0 to {highest}"),
                },
            });
        }
    }
    Ok(GpuInventory { gpus, ..all })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

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
