//! Which build of JAX the environment that Lyceum builds gets: for CPUs, or with CUDA's
//! libraries where the NVIDIA driver can run them. The decision is pure; the caller asks the
//! driver. CUDA runs on drivers of its own major version and on later ones.

use std::fmt;

use serde::Deserialize;

/// The version of CUDA that a driver supports: major, minor.
pub type CudaVersion = (u32, u32);

/// What the configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The newest that the driver of this machine can run.
    #[default]
    Auto,
    Cpu,
    Cuda12,
    Cuda13,
}

/// A build of JAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JaxBuild {
    Cpu,
    Cuda12,
    Cuda13,
}

impl JaxBuild {
    /// Chooses by the setting, the driver's CUDA and the version of Python; the reason says why a machine with a
    /// driver gets the build for CPUs.
    pub fn choose(
        setting: Accelerator,
        driver: Option<CudaVersion>,
        python: (u32, u32, u32),
    ) -> (Self, Option<String>) {
        // JAX for CUDA 13 begins with Python 3.11; CUDA 12 runs on the same drivers.
        let newest = if (3, 11, 0) <= python { Self::Cuda13 } else { Self::Cuda12 };
        match (setting, driver) {
            (Accelerator::Cpu, _) | (Accelerator::Auto, None) => (Self::Cpu, None),
            (Accelerator::Cuda12, _) | (Accelerator::Auto, Some((12, _))) => (Self::Cuda12, None),
            (Accelerator::Cuda13, _) => (newest, None),
            (Accelerator::Auto, Some((major, _))) if 13 <= major => (newest, None),
            (Accelerator::Auto, Some((major, minor))) => {
                let reason = format!(
                    "The NVIDIA driver of this machine supports CUDA {major}.{minor}. JAX requires CUDA 12 or later, so \
                     this environment uses CPUs only. Update the driver and restart Lyceum."
                );
                (Self::Cpu, Some(reason))
            }
        }
    }

    /// Returns the requirements besides those of every build.
    pub const fn requirements(self) -> &'static str {
        match self {
            Self::Cpu => "",
            Self::Cuda12 => include_str!("../../../../notebooks/requirements-cuda12.txt"),
            Self::Cuda13 => include_str!("../../../../notebooks/requirements-cuda13.txt"),
        }
    }

    /// Returns the bytes on disk that CUDA's libraries take while they are installed.
    pub const fn disk_bytes(self) -> u64 {
        match self {
            Self::Cpu => 0,
            Self::Cuda12 | Self::Cuda13 => 8 << 30,
        }
    }
}

impl fmt::Display for JaxBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Cuda12 => "CUDA 12",
            Self::Cuda13 => "CUDA 13",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_decides_unless_the_site_does() {
        let build = |setting, driver, python| JaxBuild::choose(setting, driver, python).0;
        let auto = |driver| build(Accelerator::Auto, driver, (3, 12, 1));
        assert_eq!(auto(None), JaxBuild::Cpu);
        assert_eq!(auto(Some((12, 2))), JaxBuild::Cuda12);
        assert_eq!(auto(Some((13, 0))), JaxBuild::Cuda13);
        assert_eq!(auto(Some((14, 1))), JaxBuild::Cuda13, "later drivers run earlier CUDA");
        assert_eq!(build(Accelerator::Auto, Some((13, 0)), (3, 10, 12)), JaxBuild::Cuda12, "none for Python 3.10");
        assert_eq!(build(Accelerator::Cpu, Some((13, 0)), (3, 12, 0)), JaxBuild::Cpu);
        assert_eq!(build(Accelerator::Cuda12, None, (3, 12, 0)), JaxBuild::Cuda12, "the GPUs may be on other nodes");
    }

    #[test]
    fn a_driver_that_is_too_old_is_named() {
        let (build, reason) = JaxBuild::choose(Accelerator::Auto, Some((11, 4)), (3, 12, 0));
        assert_eq!(build, JaxBuild::Cpu);
        assert!(reason.unwrap().contains("supports CUDA 11.4"));
        assert_eq!(JaxBuild::choose(Accelerator::Cpu, Some((11, 4)), (3, 12, 0)).1, None, "it was chosen");
    }

    #[test]
    fn each_build_of_cuda_pins_one_plugin_a_python() {
        for (build, plugin) in [(JaxBuild::Cuda12, "jax-cuda12-plugin=="), (JaxBuild::Cuda13, "jax-cuda13-plugin==")] {
            let lines = build.requirements().lines().filter(|line| !line.starts_with('#'));
            assert!(lines.clone().all(|line| line.contains("==")), "{build}");
            let base = include_str!("../../../../notebooks/requirements.txt");
            for line in lines.filter(|line| line.starts_with(plugin)) {
                let (version, python) = line[plugin.len()..].split_once(" ; ").unwrap();
                let same = base.lines().any(|line| line.starts_with(&format!("jax=={version}")));
                assert!(same, "jax {version} for {python} is not what notebooks/requirements.txt pins");
            }
        }
    }
}
