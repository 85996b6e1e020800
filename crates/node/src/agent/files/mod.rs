//! `lyceum agent files`: reads and writes somebody's files, as that user, for the portal. It
//! answers one question after the other on the socket that is its standard output, and ends
//! when the portal closes it or asks nothing for a while. Everything is done by system calls
//! that may hang with a file server: the portal does not wait for that, and lets go of us.
//!
//! Paths are opened by `beneath` alone; the other files are one group of questions each.

mod beneath;
mod change;
mod content;
mod copy;
mod inspect;
mod list;
mod measure;
mod upload;

use std::{
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use rustix::{fd::OwnedFd, io::Errno};

use super::curves::{WatchedDirectory, framed};
use lyceum_wire::protocol::{
    PROTOCOL,
    files_agent::{
        Fault, FileLocation, FilesAnswer, FilesLaunch, FilesRequest, MAX_CHUNK, MAX_FRAME, frame, read_frame,
        write_chunk,
    },
};

/// How long the portal may ask nothing, or take nothing.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// How often an agent that is busy says so.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The most that the places of curves' files may measure (bytes).
const MAX_PLACES: usize = 32 * 1024 * 1024;

/// Answers until the portal has had enough. The exit status is 2 where the launch could not
/// be understood.
pub fn run() -> ExitCode {
    crate::inherited::begin();
    let launch: FilesLaunch = match serde_json::from_reader(io::stdin().lock().take(MAX_FRAME as u64)) {
        Ok(launch) => launch,
        Err(_) => return ExitCode::from(2),
    };
    if ![PROTOCOL, PROTOCOL - 1].contains(&launch.protocol) {
        return ExitCode::from(2);
    }
    let Ok(socket) = io::stdout().as_fd().try_clone_to_owned() else { return ExitCode::from(2) };
    let socket = UnixStream::from(socket);
    let timeouts =
        socket.set_read_timeout(Some(IDLE_TIMEOUT)).and_then(|()| socket.set_write_timeout(Some(IDLE_TIMEOUT)));
    let outcome = timeouts.and_then(|()| serve(&mut PortalChannel { socket, told: Instant::now() }, &launch));
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// An error of the conversation ends it: the portal hears that by the socket's end.
fn serve(talk: &mut PortalChannel, launch: &FilesLaunch) -> io::Result<()> {
    while let Some(question) = read_frame(&mut talk.socket, MAX_FRAME)? {
        let request: FilesRequest = serde_json::from_slice(&question)?;
        talk.told = Instant::now();
        match answer(talk, launch, request) {
            Ok(answer) => talk.tell(&answer)?,
            Err(RequestError::Fault(fault)) => talk.tell(&FilesAnswer::Failed { fault })?,
            Err(RequestError::Talk(err)) => return Err(err),
        }
    }
    Ok(())
}

fn answer(talk: &mut PortalChannel, launch: &FilesLaunch, request: FilesRequest) -> Result<FilesAnswer> {
    let open = |place: &FileLocation| -> Result<OwnedFd> {
        let root = launch.roots.get(place.root).ok_or(Fault::NotFound)?;
        Ok(beneath::open_root(root)?)
    };
    match request {
        FilesRequest::List { place, wanted } => {
            list::page(talk, &open(&place)?, &place.path, &wanted).map(FilesAnswer::Folder)
        }
        FilesRequest::Look { place } => {
            let entry = list::look(&open(&place)?, &place.path)?;
            Ok(FilesAnswer::Entry { entry })
        }
        FilesRequest::MakeFolder { place } => {
            let entry = change::make_folder(&open(&place)?, &place.path)?;
            Ok(FilesAnswer::Entry { entry })
        }
        FilesRequest::Rename { place, to, replace } => {
            let (from, target) = (open(&place)?, open(&to)?);
            let rename = if replace { copy::rename_over } else { change::rename };
            let entry = rename((&from, &place.path), (&target, &to.path))?;
            Ok(FilesAnswer::Entry { entry })
        }
        FilesRequest::Copy { place, to, replace } => {
            let (from, target) = (open(&place)?, open(&to)?);
            let entry = copy::copy(talk, (&from, &place.path), (&target, &to.path), replace)?;
            Ok(FilesAnswer::Entry { entry })
        }
        FilesRequest::Delete { place, all } => {
            change::delete(talk, &open(&place)?, &place.path, all)?;
            Ok(FilesAnswer::Done)
        }
        FilesRequest::Read { place, tag, from, length } => {
            content::read(talk, &open(&place)?, &place.path, &tag, from, length)?;
            Ok(FilesAnswer::Done)
        }
        FilesRequest::Curves { directory } => {
            use std::os::unix::ffi::OsStringExt;
            curves(talk, std::ffi::OsString::from_vec(directory.0).into())
        }
        FilesRequest::InspectDataset { spec } => inspect::inspect(talk, &spec),
        FilesRequest::Space { place } => {
            let folder = beneath::reach(&open(&place)?, &place.path, rustix::fs::OFlags::DIRECTORY)?;
            Ok(FilesAnswer::Space { space: list::space_of(&folder)? })
        }
        FilesRequest::Measure { place } => measure::measure(talk, &open(&place)?, &place.path),
        FilesRequest::Archive { place } => {
            content::archive(talk, &open(&place)?, &place.path)?;
            Ok(FilesAnswer::Done)
        }
        FilesRequest::Begin { upload } => upload::begin(&open(&upload.folder)?, &upload).map(offset),
        FilesRequest::Offset { upload } => upload::offset(&open(&upload.folder)?, &upload).map(offset),
        FilesRequest::Write { upload, offset: from } => {
            upload::write(talk, &open(&upload.folder)?, &upload, from).map(offset)
        }
        FilesRequest::Finish { upload } => {
            let entry = upload::finish(talk, &open(&upload.folder)?, &upload)?;
            Ok(FilesAnswer::Entry { entry })
        }
        FilesRequest::Cancel { upload } => {
            upload::cancel(&open(&upload.folder)?, &upload)?;
            Ok(FilesAnswer::Done)
        }
    }
}

/// Takes the portal's places, and tells what is new behind them: once, as it is now.
fn curves(talk: &mut PortalChannel, directory: PathBuf) -> Result<FilesAnswer> {
    talk.tell(&FilesAnswer::Content).map_err(RequestError::Talk)?;
    let mut places = Vec::new();
    loop {
        let piece = read_frame(&mut talk.socket, MAX_CHUNK).map_err(RequestError::Talk)?;
        let piece = piece.ok_or(RequestError::Talk(io::ErrorKind::UnexpectedEof.into()))?;
        if piece.is_empty() {
            break;
        }
        if places.len() + piece.len() > MAX_PLACES {
            return Err(RequestError::Talk(io::ErrorKind::InvalidData.into()));
        }
        places.extend_from_slice(&piece);
    }
    let Some(mut reading) = WatchedDirectory::begin(directory, &places) else {
        return Err(RequestError::Talk(io::ErrorKind::InvalidData.into()));
    };
    let mut send = |batch: Vec<u8>| talk.socket.write_all(&framed(&batch)?);
    while reading.look(&mut send).map_err(RequestError::Talk)? {}
    write_chunk(&mut talk.socket, &[]).map_err(RequestError::Talk)?;
    let (unreadable, left_out) = reading.trouble();
    Ok(FilesAnswer::CurvesRead { unreadable, left_out })
}

fn offset(offset: u64) -> FilesAnswer {
    FilesAnswer::Offset { offset }
}

/// The portal's ear.
struct PortalChannel {
    socket: UnixStream,
    told: Instant,
}

impl PortalChannel {
    fn tell(&mut self, answer: &FilesAnswer) -> io::Result<()> {
        self.told = Instant::now();
        self.socket.write_all(&frame(answer))
    }

    /// Says now and then that the work goes on.
    fn beat(&mut self) -> Result<()> {
        if self.told.elapsed() > HEARTBEAT_INTERVAL {
            self.tell(&FilesAnswer::Working).map_err(RequestError::Talk)?;
        }
        Ok(())
    }
}

type Result<T, E = RequestError> = std::result::Result<T, E>;

/// Why a question has no good answer.
enum RequestError {
    Fault(Fault),
    /// The portal is gone, or there is nothing left to say but the end.
    Talk(io::Error),
}

impl From<Fault> for RequestError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Errno> for RequestError {
    fn from(errno: Errno) -> Self {
        Self::Fault(fault(errno))
    }
}

/// What the system's number means to a person.
fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::NOENT => Fault::NotFound,
        Errno::ACCESS | Errno::PERM => Fault::Forbidden,
        Errno::NOTDIR => Fault::NotAFolder,
        Errno::ISDIR => Fault::NotAFile,
        Errno::EXIST => Fault::Exists,
        Errno::NOTEMPTY => Fault::NotEmpty,
        Errno::XDEV | Errno::LOOP => Fault::OutOfReach,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => Fault::BadName,
        Errno::NOSPC => Fault::Full { free_bytes: 0 },
        Errno::DQUOT => Fault::OverQuota,
        Errno::ROFS => Fault::ReadOnly,
        Errno::MFILE | Errno::NFILE => Fault::TooDeep,
        Errno::WOULDBLOCK => Fault::InUse,
        other => Fault::Failed { words: io::Error::from(other).to_string() },
    }
}
