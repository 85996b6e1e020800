//! The steps of a Slurm job: tasks that an `srun` of the workload's has started, on this node and
//! on others. They are no processes of the agent's, and `srun` kills them at once when it is itself
//! asked to end. So Slurm is asked to pass the signal on, and `srun` ends after its tasks.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

/// Has Slurm send SIGTERM to all tasks of the job that this `srun` is in. Answers which process tells
/// it, which is reaped as any other orphan.
pub(super) fn ask_to_end(srun: i32) -> io::Result<i32> {
    let environment = fs::read(format!("/proc/{srun}/environ"))?;
    let variables: Vec<(&OsStr, &OsStr)> = environment
        .split(|byte| *byte == 0)
        .filter_map(|line| {
            let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b'=')?)?;
            Some((OsStr::from_bytes(name), OsStr::from_bytes(&value[1..])))
        })
        .collect();
    let job = variables.iter().find(|(name, _)| *name == "SLURM_JOB_ID").map(|(_, job)| *job);
    let job = job.ok_or_else(|| io::Error::other("the session does not belong to a job"))?;
    // The one beside it is of the same version, whatever the search path says.
    let scancel = fs::read_link(format!("/proc/{srun}/exe"))?.with_file_name("scancel");
    let mut command = Command::new(scancel);
    command.env_clear().envs(variables.iter().copied()).arg("--signal=TERM").arg(job);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let told = command.spawn()?;
    i32::try_from(told.id()).map_err(io::Error::other)
}
