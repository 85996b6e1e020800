//! The exit record: why a workload ended, written so that it is whole or absent whatever
//! happens to the machine meanwhile.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::Path};

use lyceum_model::Clock;
use lyceum_wire::protocol::{ExitCause, ExitRecord, files};

/// A record of something that ends now.
pub(super) fn now(cause: ExitCause, detail: String) -> ExitRecord {
    ExitRecord { cause, exit_code: None, signal: None, ended_at_ms: Clock::System.now().0, detail }
}

pub(super) fn write(run_directory: &Path, record: &ExitRecord) -> std::io::Result<()> {
    let part = run_directory.join(format!("{}.part", files::EXIT));
    let mut file = fs::File::create(&part)?;
    // Whatever the umask: the portal reads it as the group of the run directory.
    file.set_permissions(fs::Permissions::from_mode(0o640))?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(&part, run_directory.join(files::EXIT))?;
    fs::File::open(run_directory)?.sync_all()
}
