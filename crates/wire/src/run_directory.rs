//! Reading files that a workload's user owns, without trusting what stands at their names:
//! no symbolic link and no mount is followed, nothing but a regular file is read, and never
//! more than was asked for.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use rustix::{
    fs::{self, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// Opens `name` in a run directory for reading; `None` where it is not there.
pub fn open(directory: &Path, name: &str) -> io::Result<Option<File>> {
    let (Some(base), Some(short)) = (directory.parent(), directory.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // The base is ours, everything below it the user's.
    let base = fs::open(base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Without NONBLOCK a named pipe would hold us up for ever.
    let file = match openat2(
        base,
        Path::new(short).join(name),
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    ) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(err) => return Err(err.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("`{name}` is not a regular file")));
    }
    Ok(Some(file))
}

/// The whole of a file of at most `limit` bytes; a longer one is refused.
pub fn read(directory: &Path, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    open(directory, name)?.map(|file| read_whole(file, limit)).transpose()
}

/// The whole of an open file of at most `limit` bytes.
pub fn read_whole(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if limit < content.len() as u64 {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(content)
}

/// The last `bytes` of a file.
pub fn read_tail(directory: &Path, name: &str, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(mut file) = open(directory, name)? else { return Ok(None) };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut tail = Vec::new();
    file.take(bytes).read_to_end(&mut tail)?;
    Ok(Some(tail))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn only_regular_files_of_the_directory_itself() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("0123456789abcdef");
        fs::create_dir(&run).unwrap();
        assert_eq!(read_tail(&run, "log", 10).unwrap(), None);
        fs::write(run.join("log"), "0123456789").unwrap();
        assert_eq!(read_tail(&run, "log", 4).unwrap().unwrap(), b"6789");
        assert_eq!(read_tail(&run, "log", 400).unwrap().unwrap(), b"0123456789");
        assert_eq!(read(&run, "log", 10).unwrap().unwrap(), b"0123456789");
        assert!(read(&run, "log", 9).is_err());

        fs::remove_file(run.join("log")).unwrap();
        symlink("/etc/passwd", run.join("log")).unwrap();
        assert!(read_tail(&run, "log", 4).is_err(), "a link");
        fs::remove_file(run.join("log")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, run.join("log"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(read_tail(&run, "log", 4).is_err(), "a pipe, and no waiting for its writer");
        fs::remove_file(run.join("log")).unwrap();
        fs::create_dir(run.join("log")).unwrap();
        assert!(read_tail(&run, "log", 4).is_err(), "a directory");

        fs::remove_dir_all(&run).unwrap();
        symlink("/etc", &run).unwrap();
        assert!(read_tail(&run, "passwd", 4).is_err(), "the directory itself is a link");
        assert!(read_tail(&run, "../x", 4).is_err());
    }
}
