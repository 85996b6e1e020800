//! Finds processes on a GPU that do not belong to the session that holds it. A process whose
//! session is unknown counts as an outsider only where the GPU is free.

use std::collections::BTreeSet;

use lyceum_model::{gpus::GpuProcess, size::MIB};

/// A program that computes on a GPU without holding it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outsider {
    pub pid: u32,
    pub uid: Option<u32>,
    /// What its account is called, where that is known.
    pub unix_name: Option<String>,
    pub memory_bytes: Option<i64>,
}

/// Whoever holds less than this only looks: a program that computes takes several times as much
/// for itself.
const NEGLIGIBLE: i64 = 32 * MIB;

/// Returns the processes on a GPU that are outsiders. `own` are the processes of the session
/// that holds it; `None` where nobody can tell which these are.
pub fn outsiders_of<'a>(
    processes: &'a [GpuProcess],
    is_held: bool,
    own: Option<&'a BTreeSet<u32>>,
) -> impl Iterator<Item = &'a GpuProcess> {
    processes.iter().filter(move |process| {
        if process.memory_bytes.is_some_and(|bytes| bytes < NEGLIGIBLE) {
            return false;
        }
        match own {
            None => false,
            // One that is not to be seen from here may well be the session's.
            Some(own) => !(own.contains(&process.pid) || is_held && process.uid.is_none()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_a_stranger() {
        let process = |pid, uid, mib: Option<i64>| GpuProcess { pid, uid, memory_bytes: mib.map(|mib| mib * MIB) };
        let all = [
            process(1, Some(1000), Some(900)),
            process(2, Some(1001), None),
            process(3, None, Some(900)),
            process(4, Some(0), Some(3)),
        ];
        let pids = |is_held, own: Option<&[u32]>| {
            let own: Option<BTreeSet<u32>> = own.map(|own| own.iter().copied().collect());
            outsiders_of(&all, is_held, own.as_ref()).map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(false, Some(&[])), [1, 2, 3], "everybody on a free one, but for who only looks");
        assert_eq!(pids(true, Some(&[1])), [2], "the unseen one may be the session's");
        assert_eq!(pids(true, None), Vec::<u32>::new(), "nobody can tell");
    }
}
