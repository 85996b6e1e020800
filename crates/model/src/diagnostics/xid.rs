//! Critical errors (XID) in the kernel's log: finding the lines, and how bad each code is. The codes are those of
//! NVIDIA's list of XID errors.

use serde::{Deserialize, Serialize};

use super::Verdict;

/// One error of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    pub code: u32,
    /// The address of the GPU as the kernel writes it, such as `0000:3b:00`.
    pub pci: String,
}

impl Xid {
    /// How bad it is, and what the code means.
    #[must_use]
    pub fn meaning(&self) -> (Verdict, &'static str) {
        match self.code {
            13 | 31 | 43 | 45 => (Verdict::Information, "usually a fault of a program"),
            48 => (Verdict::Critical, "an uncorrectable memory error"),
            61 | 62 => (Verdict::Critical, "a halt of the GPU's internal controller"),
            63 => (Verdict::Warning, "a memory row or page that was taken out of use"),
            64 => (Verdict::Critical, "a memory row or page that could not be taken out of use"),
            74 => (Verdict::Critical, "an NVLink error"),
            79 => (Verdict::Critical, "the GPU has fallen off the bus"),
            92 => (Verdict::Warning, "many corrected memory errors"),
            94 => (Verdict::Warning, "a contained memory error"),
            95 => (Verdict::Critical, "an uncontained memory error"),
            119 | 120 => (Verdict::Critical, "the GPU's system processor does not respond"),
            _ => (Verdict::Warning, "see NVIDIA's list of XID errors"),
        }
    }
}

/// Finds the lines of the driver, such as `NVRM: Xid (PCI:0000:3b:00): 79, pid=…`.
#[must_use]
pub fn parse_kernel_log(text: &str) -> Vec<Xid> {
    let read = |line: &str| {
        let (_, rest) = line.split_once("NVRM: Xid (PCI:")?;
        let (pci, rest) = rest.split_once("):")?;
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        Some(Xid { code: digits.parse().ok()?, pci: pci.to_ascii_lowercase() })
    };
    text.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_driver() {
        let log = "6,1,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n\
            4,2,3,-;NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', GPU has fallen off the bus.\n\
            [   12.3] NVRM: Xid (PCI:0000:af:00): 13, Graphics SM Warp Exception\nNVRM: Xid (PCI:x): y\n";
        let found = parse_kernel_log(log);
        let found: Vec<_> = found.iter().map(|xid| (xid.code, &*xid.pci, xid.meaning().0)).collect();
        assert_eq!(found, [(79, "0000:3b:00", Verdict::Critical), (13, "0000:af:00", Verdict::Information)]);
    }
}
