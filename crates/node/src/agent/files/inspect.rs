//! What a source of images is recognised as: `lyceum dataset inspect` in a process of its own, so
//! that this process decodes no image and cannot be crashed by one. Its time, memory
//! and output are bounded.

use std::{
    io::{self, Read},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::{HEARTBEAT_INTERVAL, PortalChannel, RequestError, Result};
use lyceum_wire::protocol::files_agent::{Fault, FilesAnswer};

/// How long it may take.
const MAX_LENGTH: Duration = Duration::from_mins(2);
/// Bytes of memory that it may map.
const MEMORY: u64 = 2 << 30;
/// Bytes of its answer.
const MAX_OUTPUT: u64 = 256 * 1024;

/// Inspects the source of a specification.
pub fn inspect(talk: &mut PortalChannel, spec: &str) -> Result<FilesAnswer> {
    let failed = |error: io::Error| RequestError::Fault(Fault::Failed { words: error.to_string() });
    // This very program, also where its file was replaced by a newer one meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args(["dataset", "inspect", "--json"]).env_clear().env("DATASET_SPEC", spec).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().map_err(failed)?);
    let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    prlimit(Some(Pid::from_child(&running.0)), Resource::As, limit).map_err(|errno| failed(errno.into()))?;
    let (tell, told) = mpsc::channel();
    let outputs = [
        running.0.stdout.take().map(|from| Box::new(from) as Box<dyn Read + Send>),
        running.0.stderr.take().map(|from| Box::new(from) as Box<dyn Read + Send>),
    ];
    for (which, from) in outputs.into_iter().enumerate() {
        let (tell, from) = (tell.clone(), from.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?);
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = from.take(MAX_OUTPUT).read_to_end(&mut bytes);
            // The receiver may have gone.
            let _ = tell.send((which, read.map(|_| bytes)));
        });
    }
    let (end, mut found) = (Instant::now() + MAX_LENGTH, [Vec::new(), Vec::new()]);
    let mut open = 2;
    while open > 0 {
        match told.recv_timeout(HEARTBEAT_INTERVAL) {
            Ok((which, bytes)) => {
                found[which] = bytes.map_err(failed)?;
                open -= 1;
            }
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < end => talk.beat()?,
            Err(_) => return Ok(answer(false, "The source is too large for a preview. Build the dataset instead.")),
        }
    }
    let status = running.0.wait().map_err(failed)?;
    let [out, said] = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if status.success() {
        return Ok(answer(true, &out));
    }
    let words = said.rsplit_once("lyceum: ").map_or("The preview failed.", |(_, words)| words.trim());
    Ok(answer(false, words))
}

fn answer(succeeded: bool, text: &str) -> FilesAnswer {
    FilesAnswer::Inspected { text: text.to_owned(), succeeded }
}

/// A process that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be ended again.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
