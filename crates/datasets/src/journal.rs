//! What of a build is done already, so that one which was killed goes on. A line a picture,
//! appended after its pixels are safe; a last line that was torn is cut off, and a journal of
//! another specification or of files that have changed since is thrown away.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Error, catalogue::Catalogue, spec::Spec};

/// What reading a picture came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The classes that a mask shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_hash: Option<String>,
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal, with what is in it for each picture.
    pub fn open(path: &Path, fingerprint: &str, count: usize) -> Result<(Self, Vec<Option<Record>>), Error> {
        let fail = |error| Error::writing(path, error);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        let mut records = vec![None; count];
        let good = read(&file, fingerprint, &mut records).map_err(fail)?;
        file.set_len(good).and_then(|()| file.seek(SeekFrom::Start(good)).map(drop)).map_err(fail)?;
        if good == 0 {
            writeln!(file, "{fingerprint}").map_err(fail)?;
        }
        Ok((Self { path: path.to_owned(), file }, records))
    }

    /// Without the pixels that it tells of, a journal is worth nothing.
    pub fn forget(path: &Path) -> Result<(), Error> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::writing(path, error)),
            _ => Ok(()),
        }
    }

    /// Adds what was read; it lasts when this returns.
    pub fn append(&mut self, records: &[(usize, Record)]) -> Result<(), Error> {
        let write = || {
            let mut lines = BufWriter::new(&self.file);
            for record in records {
                serde_json::to_writer(&mut lines, record)?;
                lines.write_all(b"\n")?;
            }
            lines.flush()?;
            self.file.sync_data()
        };
        write().map_err(|error| Error::writing(&self.path, error))
    }
}

/// How many bytes of the file are good.
fn read(file: &File, fingerprint: &str, records: &mut [Option<Record>]) -> io::Result<u64> {
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    let mut good = 0;
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)?;
        let Some(content) = line.strip_suffix(b"\n") else { return Ok(good) };
        if good == 0 {
            if content != fingerprint.as_bytes() {
                return Ok(0);
            }
        } else {
            let Ok((at, record)) = serde_json::from_slice::<(usize, Record)>(content) else { return Ok(good) };
            let Some(place) = records.get_mut(at) else { return Ok(good) };
            *place = Some(record);
        }
        good += length as u64;
    }
}

/// By which a build knows that it goes on with the same: the specification and every picture.
pub fn fingerprint(spec: &Spec, catalogue: &Catalogue) -> String {
    let mut hash = Sha256::new();
    hash.update(b"2\n");
    hash.update(serde_json::to_vec(spec).unwrap_or_default());
    for item in &catalogue.items {
        let boxes = (item.boxes.len() + item.regions.len()) as u64;
        hash.update([0]);
        hash.update(&item.path);
        hash.update([0]);
        hash.update(item.mask.as_deref().unwrap_or_default());
        for number in
            [item.stamp.0, item.stamp.1.cast_unsigned(), boxes, (item.fault.is_some() || item.outside.is_some()).into()]
        {
            hash.update(number.to_le_bytes());
        }
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(size: u64) -> Record {
        Record { size: Some(size), ..Record::default() }
    }

    #[test]
    fn a_torn_line_is_cut_off_and_the_rest_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, records) = Journal::open(&path, "f", 3).unwrap();
        assert_eq!(records, [None, None, None]);
        journal.append(&[(1, record(5)), (2, record(6))]).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (_, records) = Journal::open(&path, "f", 3).unwrap();
            let complete = whole[..length].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(records.iter().flatten().count(), complete.saturating_sub(1), "cut at {length}");
        }
    }

    #[test]
    fn another_fingerprint_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        Journal::open(&path, "f", 3).unwrap().0.append(&[(1, record(5))]).unwrap();
        assert_eq!(Journal::open(&path, "g", 3).unwrap().1, [None, None, None]);
        assert_eq!(Journal::open(&path, "f", 3).unwrap().1, [None, None, None]);
    }
}
