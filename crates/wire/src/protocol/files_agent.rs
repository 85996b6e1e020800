//! What the portal and a files agent say to one another over their socket: a frame is a
//! length (32 bits, big-endian) and so many bytes. Questions and answers are frames of JSON;
//! a file's content is a row of frames of bytes that ends with an empty one. One question is
//! answered before the next is asked. The agent belongs to its user and may lie: what it
//! tells is bounded, and shown to nobody but that user.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use lyceum_model::files::{Entry, FolderSize, ListingQuery, RawPath, SortPosition, Space};

/// The most a question or an answer may measure (bytes).
pub const MAX_FRAME: usize = 1024 * 1024;

/// The most that one frame of content holds (bytes).
pub const MAX_CHUNK: usize = 256 * 1024;

/// What a files agent is told at its start, on standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesLaunch {
    pub protocol: u32,
    /// The folders below which everything happens: the home, then what the site shares.
    pub roots: Vec<PathBuf>,
}

/// A file or folder: which root, and the path below it (empty: the root itself). The portal
/// has taken `.` and `..` out; that nothing leads outside is seen to by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileLocation {
    pub root: usize,
    pub path: RawPath,
}

/// An upload: where it is to lie, and what tells it from others. Nothing else remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    pub folder: FileLocation,
    pub name: RawPath,
    /// 32 hexadecimal digits; the partial file's name has it.
    pub nonce: String,
    pub size_bytes: u64,
    /// Whether it may take the place of a file that is there.
    pub replace: bool,
    /// What the whole must hash to, in hexadecimal digits.
    pub sha256: Option<String>,
    /// Whether those who may read the file may also execute it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub executable: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum FilesRequest {
    /// Answers `Folder`.
    List { place: FileLocation, wanted: ListingQuery },
    /// Answers `Entry`.
    Look { place: FileLocation },
    /// Answers `Entry`.
    MakeFolder { place: FileLocation },
    /// Over something that is there only with `replace`, and then over a file alone. Answers `Entry`.
    Rename {
        place: FileLocation,
        to: FileLocation,
        #[serde(default)]
        replace: bool,
    },
    /// With everything in it; the same of what is there. Answers `Entry`, and `Working` before.
    Copy { place: FileLocation, to: FileLocation, replace: bool },
    /// Answers `Done`. A folder that holds something goes only with `all`.
    Delete { place: FileLocation, all: bool },
    /// Answers `Content`, then the content. `tag` is that of the entry that was looked at.
    Read { place: FileLocation, tag: String, from: u64, length: u64 },
    /// How much a folder holds, on its own file system. Answers `FolderSize`, and `Working` before.
    Measure { place: FileLocation },
    /// How full its file system is. Answers `Space`.
    Space { place: FileLocation },
    /// A folder with everything in it as a tar stream. Answers `Content`, then the content.
    Archive { place: FileLocation },
    /// What programs wrote of their training below this directory, an absolute path. Answers
    /// `Content`; then the portal sends as content a batch of how far it has come, and gets batches
    /// of what is new as frames, each as large as `curves` says, an empty one, and `CurvesRead`.
    Curves { directory: RawPath },
    /// What the source of this specification is taken for (`lyceum dataset inspect`). Answers `Inspected`, and `Working`
    /// before.
    InspectDataset { spec: String },
    /// Makes the partial file, or finds it. Answers `Offset`.
    Begin { upload: Upload },
    /// Answers `Offset`.
    Offset { upload: Upload },
    /// Answers `Content`; then the content follows from the portal, then the answer `Offset`.
    Write { upload: Upload, offset: u64 },
    /// Gives the complete file its name. Answers `Entry`.
    Finish { upload: Upload },
    /// Answers `Done`.
    Cancel { upload: Upload },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum FilesAnswer {
    /// It takes a while, and goes on.
    Working,
    Folder(Page),
    Entry {
        entry: Entry,
    },
    Done,
    Measured {
        measured: FolderSize,
    },
    Space {
        space: Space,
    },
    Content,
    CurvesRead {
        /// Some of what could not be read, each with the reason.
        unreadable: Vec<String>,
        /// So many files are there beyond those that are followed.
        left_out: u64,
    },
    Inspected {
        /// A document of JSON, or a sentence where it did not succeed.
        text: String,
        succeeded: bool,
    },
    Offset {
        offset: u64,
    },
    Failed {
        fault: Fault,
    },
}

/// A part of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Where the next part begins.
    pub next: Option<SortPosition>,
    /// How many entries there are in all that were asked for.
    pub total: u64,
    /// There are more than anybody looks at.
    pub truncated: bool,
    /// What the user may still write on that file system, and how large it is (bytes).
    pub free_bytes: u64,
    #[serde(default)]
    pub total_bytes: u64,
    /// What is written on it by anybody, as `df` counts it: less than what is missing from the free bytes, where some are kept
    /// for the system.
    #[serde(default)]
    pub used_bytes: u64,
    pub writable: bool,
}

/// Why something did not happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    NotFound,
    Forbidden,
    NotAFolder,
    NotAFile,
    Exists,
    NotEmpty,
    /// A link on the way leads out of the root.
    OutOfReach,
    BadName,
    Full {
        free_bytes: u64,
    },
    OverQuota,
    ReadOnly,
    TooDeep,
    /// The two places are not on one file system.
    OtherFileSystem,
    /// It is not the file any more that was looked at.
    Changed,
    NoUpload,
    WrongOffset {
        offset: u64,
    },
    /// More came than the upload's size.
    TooLong,
    /// Another request writes to it.
    InUse,
    Checksum,
    /// The file system failed; the words are the system's.
    Failed {
        words: String,
    },
}

/// Reads a question or an answer; `None` where the other side has closed.
pub fn read_frame(from: &mut impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let mut got = 0;
    while got < length.len() {
        match from.read(&mut length[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => got += read,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if most < length {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// The head of a frame of `length` bytes.
pub fn frame_head(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("frames are bounded").to_be_bytes()
}

/// A whole frame, in one piece.
pub fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).expect("plain data");
    let head = frame_head(frame.len() - 4);
    frame[..4].copy_from_slice(&head);
    frame
}

/// Writes a frame of content; an empty one ends the row.
pub fn write_chunk(to: &mut impl Write, chunk: &[u8]) -> io::Result<()> {
    to.write_all(&frame_head(chunk.len()))?;
    to.write_all(chunk)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic_or_waste(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut rest = bytes.as_slice();
            while let Ok(Some(frame)) = read_frame(&mut rest, 512) {
                prop_assert!(frame.len() <= bytes.len());
                let _ = serde_json::from_slice::<FilesRequest>(&frame);
                let _ = serde_json::from_slice::<FilesAnswer>(&frame);
            }
        }
    }

    #[test]
    fn frames() {
        let mut wire = frame(&FilesAnswer::Offset { offset: 7 });
        write_chunk(&mut wire, b"abc").unwrap();
        write_chunk(&mut wire, b"").unwrap();
        let mut wire = wire.as_slice();
        let answer = read_frame(&mut wire, MAX_FRAME).unwrap().unwrap();
        assert!(matches!(serde_json::from_slice(&answer), Ok(FilesAnswer::Offset { offset: 7 })));
        assert_eq!(read_frame(&mut wire, 3).unwrap().unwrap(), b"abc");
        assert_eq!(read_frame(&mut wire, 3).unwrap().unwrap(), b"");
        assert_eq!(read_frame(&mut wire, 3).unwrap(), None);
        assert!(read_frame(&mut [0, 0, 0, 4, 1].as_slice(), 3).is_err());
        assert!(read_frame(&mut [0, 0].as_slice(), 3).is_err());
    }
}
