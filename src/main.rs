//! The `lyceum` command: which subcommand was asked for, and nothing else.

fn main() {}
