//! The local scheduler: workloads on this machine.
