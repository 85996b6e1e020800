//! A tree of files to read pictures from: a folder, or a zip archive that is read in place.
//! Nothing is ever unpacked, so a name that leads out of an archive leads nowhere; sizes are
//! bounded whatever an archive says of them.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use zip::{ZipArchive, read::ZipFileEntry};

use super::Error;

/// Bytes of a file that is still read as a picture.
pub const LARGEST_FILE: u64 = 256 << 20;
/// Files in an archive.
const MOST_ENTRIES: usize = 5_000_000;
/// How many bytes an archive may come to for each of its own, once it comes to `SUSPICIOUS`.
const LARGEST_RATIO: u64 = 200;
const SUSPICIOUS: u64 = 1 << 30;
/// Endings of files that are meant as pictures.
const PICTURES: [&str; 13] =
    ["jpg", "jpeg", "jpe", "jfif", "png", "bmp", "gif", "webp", "ppm", "pgm", "pbm", "pnm", "tif"];

#[derive(Debug)]
pub enum Store {
    Folder(PathBuf),
    Zip(Zip),
}

/// An archive and where in it each file is.
#[derive(Debug)]
pub struct Zip {
    archive: ZipArchive<Window>,
    places: HashMap<String, usize>,
}

/// A file of a store.
#[derive(Clone, Debug)]
pub struct Listed {
    pub path: String,
    /// Bytes, and when it changed.
    pub stamp: (u64, i64),
    pub fault: Option<String>,
}

impl Store {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let about = fs::metadata(path).map_err(|error| Error::reading(path, error))?;
        if about.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        Zip::open(path).map(Self::Zip)
    }

    /// Every file, sorted by path. What is hidden is passed over.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut files = match self {
            Self::Folder(root) => list_folder(root)?,
            Self::Zip(zip) => zip.list(),
        };
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// A file's bytes, or why there are none.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Folder(root) => read_file(&root.join(path)),
            Self::Zip(zip) => zip.read(path),
        }
    }

    /// A text that annotations stand in. An absolute path is a file in any case.
    pub fn text(&self, path: &Path) -> Result<String, Error> {
        let bytes = match path.to_str() {
            Some(name) if path.is_relative() => self.read(name),
            _ => read_file(path),
        };
        let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
        super::text::decode(&bytes.map_err(wrong)?).map_err(wrong)
    }

    /// Whether the path is in the store.
    pub fn has(&self, path: &str) -> bool {
        match self {
            Self::Folder(root) => root.join(path).is_file(),
            Self::Zip(zip) => zip.places.contains_key(path),
        }
    }
}

/// Whether a file of this name is meant as a picture.
pub fn is_picture(path: &str) -> bool {
    let Some((_, ending)) = path.rsplit_once('.') else { return false };
    let ending = ending.to_ascii_lowercase();
    ending == "tiff" || PICTURES.contains(&ending.as_str())
}

/// A whole file, if it is one and not too large.
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "it may not be read".to_owned(),
        _ => format!("it cannot be read: {error}"),
    };
    // Opening a pipe would wait for somebody to write.
    let about = fs::metadata(path).map_err(said)?;
    if !about.is_file() {
        return Err("it is not a file".to_owned());
    }
    bounded(File::open(path).map_err(said)?, about.size()).map_err(said)?.ok_or_else(too_large)
}

/// Everything that `from` has, about `expected` bytes, or nothing if that is too much.
fn bounded(from: impl Read, expected: u64) -> io::Result<Option<Vec<u8>>> {
    // What somebody claims of a file is worth a MiB; a byte more than it has shows its end.
    let room = usize::try_from(expected.min(1 << 20)).unwrap_or(0) + 1;
    let mut bytes = Vec::with_capacity(room);
    from.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= LARGEST_FILE).then_some(bytes))
}

fn too_large() -> String {
    format!("it is larger than {} MiB", LARGEST_FILE >> 20)
}

fn list_folder(root: &Path) -> Result<Vec<Listed>, Error> {
    let mut files = Vec::new();
    // Links are followed: whoever builds may read what they lead to, or may not. Circles are noticed.
    let walk = walkdir::WalkDir::new(root)
        .follow_links(true)
        .into_iter()
        .filter_entry(|entry| entry.depth() == 0 || !is_hidden(&entry.file_name().to_string_lossy()));
    for entry in walk {
        let fault = |path: &Path, reason: &str| Listed {
            path: path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned(),
            stamp: (0, 0),
            fault: Some(reason.to_owned()),
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.depth() == 0 => {
                let error = error.into_io_error().unwrap_or_else(|| io::Error::other("it cannot be listed"));
                return Err(Error::reading(root, error));
            }
            Err(error) => {
                let reason =
                    if error.loop_ancestor().is_some() { "it leads round in a circle" } else { "it may not be read" };
                files.extend(error.path().map(|path| fault(path, reason)));
                continue;
            }
        };
        if entry.file_type().is_dir() {
            continue;
        }
        let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
        match (path.to_str(), entry.metadata()) {
            (None, _) => files.push(fault(path, "its name is not UTF-8")),
            (_, Err(_)) => files.push(fault(path, "it may not be read")),
            (Some(path), Ok(about)) => files.push(Listed {
                path: path.to_owned(),
                stamp: (about.size(), about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec())),
                fault: None,
            }),
        }
    }
    Ok(files)
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX" || name == "Thumbs.db"
}

impl Zip {
    fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| Error::reading(path, error))?;
        let length = file.metadata().map_err(|error| Error::reading(path, error))?.len();
        let window = Window { file: Arc::new(file), length, at: 0 };
        let archive = ZipArchive::new(window).map_err(|error| wrong(format!("it is no whole zip archive: {error}")))?;
        if archive.len() > MOST_ENTRIES {
            return Err(wrong(format!("it holds more than {MOST_ENTRIES} files")));
        }
        let (mut total, mut places) = (0_u64, HashMap::new());
        for index in 0..archive.len() {
            let Ok(entry) = archive.by_index_data(index) else { continue };
            total = total.saturating_add(entry.size());
            if !entry.is_dir() {
                let name =
                    entry.name().map_or_else(|_| String::from_utf8_lossy(entry.name_raw()).into_owned(), Into::into);
                places.insert(name, index);
            }
        }
        if total > SUSPICIOUS && total / length.max(1) > LARGEST_RATIO {
            return Err(wrong(format!(
                "its {} files would come to {} GiB, which is {} times its own size: it is refused as a zip bomb",
                archive.len(),
                total >> 30,
                total / length.max(1)
            )));
        }
        Ok(Self { archive, places: without_common_folder(places) })
    }

    fn list(&self) -> Vec<Listed> {
        let visible = self.places.iter().filter(|(name, _)| !name.split('/').any(is_hidden_in_zip));
        visible
            .map(|(name, &index)| {
                let entry = self.archive.by_index_data(index);
                let size = entry.as_ref().map_or(0, ZipFileEntry::size);
                let fault = if leads_out(name) {
                    Some("its name leads out of the archive")
                } else if entry.as_ref().is_ok_and(ZipFileEntry::is_symlink) {
                    Some("it is a link in an archive")
                } else if entry.as_ref().is_ok_and(ZipFileEntry::encrypted) {
                    Some("it is encrypted")
                } else {
                    None
                };
                Listed {
                    path: name.clone(),
                    stamp: (size, index.try_into().unwrap_or(0)),
                    fault: fault.map(str::to_owned),
                }
            })
            .collect()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let index = *self.places.get(name).ok_or("there is no such file in the archive")?;
        // The directory of the archive is shared; a copy has a place to read at of its own.
        let mut archive = self.archive.clone();
        let entry = archive.by_index(index).map_err(|error| format!("it cannot be read from the archive: {error}"))?;
        if entry.is_symlink() {
            return Err("it is a link in an archive".to_owned());
        }
        if entry.size() > LARGEST_FILE {
            return Err(too_large());
        }
        let promised = entry.size();
        // One byte more than promised is enough to know a liar.
        let mut bytes = Vec::new();
        entry
            .take(promised + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("it is damaged in the archive: {error}"))?;
        if bytes.len() as u64 != promised {
            return Err("it is not as long as the archive says".to_owned());
        }
        Ok(bytes)
    }
}

/// `..` stands for no hidden file here: it is told apart and listed as a fault.
fn is_hidden_in_zip(part: &str) -> bool {
    part != ".." && part != "." && is_hidden(part)
}

fn leads_out(name: &str) -> bool {
    name.contains('\\')
        || name.contains('\0')
        || Path::new(name).components().any(|part| !matches!(part, Component::Normal(_)))
}

/// Archives often hold one folder that holds everything; its name says nothing. What would be
/// left without a folder for its class keeps it.
fn without_common_folder(places: HashMap<String, usize>) -> HashMap<String, usize> {
    let common = {
        // What is hidden or leads out of the archive is in no class, and has no say in this.
        let visible = places.keys().filter(|name| !name.split('/').any(is_hidden_in_zip) && !leads_out(name));
        let Some((first, _)) = visible.clone().next().and_then(|name| name.split_once('/')) else { return places };
        let first = format!("{first}/");
        let mut pictures = visible.clone().filter(|name| is_picture(name)).peekable();
        let deep = pictures.peek().is_some() && pictures.all(|name| name.matches('/').count() >= 2);
        if !deep || !visible.clone().all(|name| name.starts_with(&first)) {
            return places;
        }
        first
    };
    places
        .into_iter()
        .map(|(name, index)| (name.strip_prefix(&common).map_or(name.clone(), str::to_owned), index))
        .collect()
}

/// A place in a file that several threads read at once.
#[derive(Clone, Debug)]
struct Window {
    file: Arc<File>,
    length: u64,
    at: u64,
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_of_pictures() {
        assert!(is_picture("a/b.JPG") && is_picture("x.tiff") && is_picture("x.y.png"));
        assert!(!is_picture("png") && !is_picture("a.txt") && !is_picture("a.png/b"));
    }

    #[test]
    fn names_that_lead_out() {
        for bad in ["../x.png", "/etc/x.png", "a/../../x.png", "a\\..\\x.png", "./x.png"] {
            assert!(leads_out(bad), "{bad}");
        }
        assert!(!leads_out("a/b..c/x.png"));
    }

    #[test]
    fn one_folder_around_everything_is_left_away() {
        let strip = |names: &[&str]| {
            let places = names.iter().enumerate().map(|(index, name)| ((*name).to_owned(), index)).collect();
            let mut names: Vec<String> = without_common_folder(places).into_keys().collect();
            names.sort();
            names
        };
        assert_eq!(
            strip(&["all/cat/1.png", "all/dog/2.png", "all/about.txt"]),
            ["about.txt", "cat/1.png", "dog/2.png"]
        );
        let with_others = ["all/cat/1.png", "all/dog/2.png", "../out.png", "__MACOSX/x.png"];
        assert_eq!(strip(&with_others), ["../out.png", "__MACOSX/x.png", "cat/1.png", "dog/2.png"]);
        assert_eq!(strip(&["cat/1.png", "cat/2.png"]), ["cat/1.png", "cat/2.png"]);
        assert_eq!(strip(&["../cat/1.png", "../dog/2.png"]), ["../cat/1.png", "../dog/2.png"]);
    }
}
