//! Versions of CUDA: which one a driver supports, and which one an image requires. An image states
//! it in `NVIDIA_REQUIRE_CUDA`, as in `cuda>=12.8 brand=tesla,driver>=535,driver<536`. A start that
//! cannot succeed is refused with both versions, before anything waits in a queue.

use std::fmt;

/// A version of two numbers, such as 12.8 or a driver's 570.86.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

/// Describes the driver of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    pub version: Version,
    /// The latest CUDA that it supports.
    pub cuda: Version,
}

/// The first driver of each CUDA release, newest first.
const FIRST_DRIVERS: [(u32, Version); 17] = [
    (590, Version { major: 13, minor: 1 }),
    (580, Version { major: 13, minor: 0 }),
    (575, Version { major: 12, minor: 9 }),
    (570, Version { major: 12, minor: 8 }),
    (565, Version { major: 12, minor: 7 }),
    (560, Version { major: 12, minor: 6 }),
    (555, Version { major: 12, minor: 5 }),
    (550, Version { major: 12, minor: 4 }),
    (545, Version { major: 12, minor: 3 }),
    (535, Version { major: 12, minor: 2 }),
    (530, Version { major: 12, minor: 1 }),
    (525, Version { major: 12, minor: 0 }),
    (520, Version { major: 11, minor: 8 }),
    (515, Version { major: 11, minor: 7 }),
    (510, Version { major: 11, minor: 6 }),
    (495, Version { major: 11, minor: 5 }),
    (470, Version { major: 11, minor: 4 }),
];

impl Version {
    /// Parses `12`, `12.8` or `570.86.10`; what follows the second number is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().map_or(Some(0), |minor| minor.parse().ok())?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

impl Driver {
    /// Returns the driver of this version with the CUDA of its series; `None` for a series that is
    /// older than 470.
    #[must_use]
    pub fn of_version(version: Version) -> Option<Self> {
        let (_, cuda) = FIRST_DRIVERS.iter().find(|(first, _)| *first <= version.major)?;
        Some(Self { version, cuda: *cuda })
    }

    /// Reads the text of `/proc/driver/nvidia/version`.
    #[must_use]
    pub fn of_proc(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
        let is_version = |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        Self::of_version(Version::parse(line.split_whitespace().find(is_version)?)?)
    }
}

/// Returns why an image with this environment cannot use the driver, as a sentence for the user.
///
/// Alternatives are separated by spaces and their conditions by commas; one alternative suffices.
/// A condition on anything but `cuda` and `driver` counts as met, because it is not known here.
#[must_use]
pub fn unmet_requirement(image: &str, require: &str, driver: Driver) -> Option<String> {
    let mut alternatives = require.split_whitespace().peekable();
    alternatives.peek()?;
    if alternatives.clone().any(|conditions| conditions.split(',').all(|condition| holds(condition, driver))) {
        return None;
    }
    let wanted = alternatives.flat_map(|conditions| conditions.split(','));
    let cuda = wanted.filter_map(|condition| Version::parse(condition.strip_prefix("cuda>=")?)).min();
    let cuda = cuda.map_or_else(|| format!("a driver with “{require}”"), |cuda| format!("CUDA {cuda}"));
    Some(format!(
        "The image ‘{image}’ requires {cuda}, but the driver {} of this node supports CUDA up to {}. Choose an older \
         image, or ask your administrator to update the driver.",
        driver.version, driver.cuda
    ))
}

fn holds(condition: &str, driver: Driver) -> bool {
    let name = condition.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '<' | '>' | '=' | '!'));
    let found = match name {
        "cuda" => driver.cuda,
        "driver" => driver.version,
        _ => return true,
    };
    let comparison = &condition[name.len()..];
    let version = comparison.trim_start_matches(['<', '>', '=', '!']);
    let Some(version) = Version::parse(version) else { return true };
    match comparison.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        ">=" => found >= version,
        ">" => found > version,
        "<=" => found <= version,
        "<" => found < version,
        "=" | "==" => found == version,
        "!=" => found != version,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(text: &str) -> Driver {
        Driver::of_version(Version::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn cuda_of_drivers() {
        for (version, cuda) in [
            ("470.57.02", "11.4"),
            ("535.104.05", "12.2"),
            ("550.54.15", "12.4"),
            ("580.65.06", "13.0"),
            ("999", "13.1"),
        ] {
            assert_eq!(driver(version).cuda.to_string(), cuda, "{version}");
        }
        assert_eq!(Driver::of_version(Version { major: 390, minor: 0 }), None);
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: gcc 12.2.0\n";
        assert_eq!(Driver::of_proc(closed), Some(driver("535.104")));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n";
        assert_eq!(Driver::of_proc(open), Some(driver("570.86")));
        assert_eq!(Driver::of_proc("nothing"), None);
    }

    #[test]
    fn requirements() {
        let images = "cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=tesla,driver>=535,driver<536";
        for (require, version, is_met) in [
            ("", "470.57", true),
            ("cuda>=12.8", "570.86", true),
            ("cuda>=12.8", "565.57", false),
            ("cuda>=12", "525.60", true),
            (images, "570.86", true),
            (images, "535.104", true),
            (images, "550.54", false),
            (images, "470.57", true),
            ("cuda<12.0", "525.60", false),
            ("driver!=535.104", "535.104", false),
            ("driver=535.104", "535.104.05", true),
            ("arch>=7.0", "470.57", true),
            ("cuda>=odd", "470.57", true),
        ] {
            let sentence = unmet_requirement("pytorch", require, driver(version));
            assert_eq!(sentence.is_none(), is_met, "{require} with {version}: {sentence:?}");
        }
        let sentence = unmet_requirement("pytorch", images, driver("550.54.15")).unwrap();
        assert!(sentence.contains("requires CUDA 12.8,") && sentence.contains("driver 550.54"), "{sentence}");
        assert!(sentence.contains("CUDA up to 12.4"), "{sentence}");
    }
}
