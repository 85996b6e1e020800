//! Where control groups of either version are mounted, from the kernel's own list of mounts
//! (proc(5), `/proc/PID/mountinfo`). Reads nothing itself and makes nothing.

use std::path::PathBuf;

/// Where which controllers are mounted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts {
    pub v2: Option<PathBuf>,
    pub memory: Option<PathBuf>,
    pub cpu: Option<PathBuf>,
    pub cpuacct: Option<PathBuf>,
    pub pids: Option<PathBuf>,
    pub devices: Option<PathBuf>,
}

impl Mounts {
    pub fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            let Some((place, kind)) = line.split_once(" - ") else { continue };
            let Some(point) = place.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut kind = kind.split(' ');
            match (kind.next(), kind.nth(1)) {
                (Some("cgroup2"), _) => {
                    mounts.v2.get_or_insert(point);
                }
                (Some("cgroup"), Some(options)) => {
                    for controller in options.split(',') {
                        let slot = match controller {
                            "memory" => &mut mounts.memory,
                            "cpu" => &mut mounts.cpu,
                            "cpuacct" => &mut mounts.cpuacct,
                            "pids" => &mut mounts.pids,
                            "devices" => &mut mounts.devices,
                            _ => continue,
                        };
                        slot.get_or_insert_with(|| point.clone());
                    }
                }
                _ => {}
            }
        }
        mounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_versions() {
        let hybrid = "\
            31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let mounts = Mounts::parse(hybrid);
        assert_eq!(mounts.v2, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounts.memory, Some("/sys/fs/cgroup/memory".into()));
        assert_eq!((&mounts.cpu, &mounts.pids), (&Some("/sys/fs/cgroup/cpu,cpuacct".into()), &None));
        assert_eq!(mounts.cpu, mounts.cpuacct);
        let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(Mounts::parse(pure), Mounts { v2: Some("/sys/fs/cgroup".into()), ..Mounts::default() });
        assert_eq!(Mounts::parse("rubbish - \n\n"), Mounts::default());
    }
}
