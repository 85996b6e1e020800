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

use zip::{CompressionMethod, ZipArchive, read::ZipFileEntry};

use super::Error;

/// Bytes of a file that is still read as a picture.
pub const MAX_FILE_SIZE: u64 = 256 << 20;
/// Files in an archive.
const MAX_ENTRIES: usize = 5_000_000;
/// How many bytes an archive may come to for each of its own, once it comes to `SUSPICIOUS`.
const MAX_RATIO: u64 = 200;
const SUSPICIOUS: u64 = 1 << 30;
/// Endings of files that are meant as pictures, also of formats that cannot be opened: those are listed with the reason.
const PICTURES: [&str; 34] = [
    "jpg", "jpeg", "jpe", "jfif", "png", "apng", "bmp", "dib", "gif", "webp", "ppm", "pgm", "pbm", "pnm", "tif",
    "tiff", "heic", "heif", "hif", "avif", "jxl", "jp2", "j2k", "tga", "ico", "svg", "psd", "exr", "hdr", "dng", "cr2",
    "nef", "arw", "dcm",
];

/// What systems put beside people's files.
const HIDDEN: [&str; 7] =
    ["__MACOSX", "Thumbs.db", "desktop.ini", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"];

#[derive(Debug)]
pub enum Store {
    Folder(PathBuf),
    Zip(Zip),
}

/// An archive and where in it each file is.
#[derive(Debug)]
pub struct Zip {
    archive: ZipArchive<FileWindow>,
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

    /// Reads a document of any length from its start. An absolute path is a file in any case.
    pub fn stream<T>(&self, path: &Path, work: impl FnOnce(&mut dyn Read) -> T) -> Result<T, String> {
        match (self, path.to_str()) {
            (Self::Zip(zip), Some(name)) if path.is_relative() => zip.stream(name, work),
            (Self::Folder(root), _) => Ok(work(&mut regular(&root.join(path))?.0)),
            _ => Ok(work(&mut regular(path)?.0)),
        }
    }
}

/// Whether a file of this name is meant as a picture.
pub fn is_picture(path: &str) -> bool {
    let Some((_, ending)) = path.rsplit_once('.') else { return false };
    PICTURES.contains(&ending.to_ascii_lowercase().as_str())
}

/// A whole file, if it is one and not too large.
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let (file, size) = regular(path)?;
    bounded(file, size).map_err(|error| reason(&error))?.ok_or_else(too_large)
}

/// A file that is one, and its length.
fn regular(path: &Path) -> Result<(File, u64), String> {
    // Opening a pipe would wait for somebody to write.
    let about = fs::metadata(path).map_err(|error| reason(&error))?;
    if !about.is_file() {
        return Err("not a regular file".to_owned());
    }
    Ok((File::open(path).map_err(|error| reason(&error))?, about.size()))
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "file not found".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => format!("cannot read it: {error}"),
    }
}

/// Everything that `from` has, about `expected` bytes, or nothing if that is too much.
fn bounded(from: impl Read, expected: u64) -> io::Result<Option<Vec<u8>>> {
    // What somebody claims of a file is worth a MiB; a byte more than it has shows its end.
    let room = usize::try_from(expected.min(1 << 20)).unwrap_or(0) + 1;
    let mut bytes = Vec::with_capacity(room);
    from.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= MAX_FILE_SIZE).then_some(bytes))
}

fn too_large() -> String {
    format!("the file is larger than {} MiB", MAX_FILE_SIZE >> 20)
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
                let error = error.into_io_error().unwrap_or_else(|| io::Error::other("the folder cannot be listed"));
                return Err(Error::reading(root, error));
            }
            Err(error) => {
                let reason = if error.loop_ancestor().is_some() {
                    "the link leads back to a folder above it"
                } else {
                    "permission denied"
                };
                files.extend(error.path().map(|path| fault(path, reason)));
                continue;
            }
        };
        if entry.file_type().is_dir() {
            continue;
        }
        let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
        match (path.to_str(), entry.metadata()) {
            (None, _) => files.push(fault(path, "the name is not UTF-8")),
            (_, Err(_)) => files.push(fault(path, "permission denied")),
            (Some(path), Ok(about)) => files.push(Listed {
                path: path.to_owned(),
                stamp: (about.size(), about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec())),
                fault: None,
            }),
        }
    }
    Ok(files)
}

pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || HIDDEN.contains(&name)
}

impl Zip {
    fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| Error::reading(path, error))?;
        let length = file.metadata().map_err(|error| Error::reading(path, error))?.len();
        let window = FileWindow { file: Arc::new(file), length, at: 0 };
        let archive = ZipArchive::new(window).map_err(|error| wrong(format!("not a complete zip archive: {error}")))?;
        if archive.len() > MAX_ENTRIES {
            return Err(wrong(format!("the archive contains more than {MAX_ENTRIES} files")));
        }
        let (mut total, mut places) = (0_u64, HashMap::new());
        for index in 0..archive.len() {
            let Ok(entry) = archive.by_index_data(index) else { continue };
            total = total.saturating_add(entry.size());
            let name = entry.name().map_or_else(|_| String::from_utf8_lossy(entry.name_raw()).into_owned(), Into::into);
            // PowerShell before 7 writes Windows' own separator.
            let name = name.replace('\\', "/");
            if !entry.is_dir() && !name.ends_with('/') {
                places.insert(name, index);
            }
        }
        if total > SUSPICIOUS && total / length.max(1) > MAX_RATIO {
            return Err(wrong(format!(
                "its {} files would unpack to {} GiB, {} times the size of the archive: rejected as a zip bomb",
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
                let method = entry.as_ref().ok().and_then(|entry| unread(entry.compression()));
                let fault = if leads_out(name) {
                    Some("the name points outside the archive".to_owned())
                } else if entry.as_ref().is_ok_and(ZipFileEntry::is_symlink) {
                    Some("links in archives are not followed".to_owned())
                } else if entry.as_ref().is_ok_and(ZipFileEntry::encrypted) {
                    Some("the file is encrypted".to_owned())
                } else {
                    method
                };
                Listed { path: name.clone(), stamp: (size, index.try_into().unwrap_or(0)), fault }
            })
            .collect()
    }

    fn stream<T>(&self, name: &str, work: impl FnOnce(&mut dyn Read) -> T) -> Result<T, String> {
        let index = *self.places.get(name).ok_or("file not found in the archive")?;
        let mut archive = self.archive.clone();
        if let Some(method) = archive.by_index_data(index).ok().and_then(|entry| unread(entry.compression())) {
            return Err(method);
        }
        let mut entry = archive.by_index(index).map_err(|error| format!("cannot read it from the archive: {error}"))?;
        Ok(work(&mut entry))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let index = *self.places.get(name).ok_or("file not found in the archive")?;
        // The directory of the archive is shared; a copy has a place to read at of its own.
        let mut archive = self.archive.clone();
        let entry = archive.by_index(index).map_err(|error| format!("cannot read it from the archive: {error}"))?;
        if entry.is_symlink() {
            return Err("links in archives are not followed".to_owned());
        }
        if entry.size() > MAX_FILE_SIZE {
            return Err(too_large());
        }
        let promised = entry.size();
        // One byte more than promised is enough to know a liar.
        let mut bytes = Vec::new();
        entry.take(promised + 1).read_to_end(&mut bytes).map_err(|error| format!("damaged in the archive: {error}"))?;
        if bytes.len() as u64 != promised {
            return Err("the length differs from the one in the archive".to_owned());
        }
        Ok(bytes)
    }
}

/// `..` stands for no hidden file here: it is told apart and listed as a fault.
fn is_hidden_in_zip(part: &str) -> bool {
    part != ".." && part != "." && is_hidden(part)
}

/// Why an entry of this compression method cannot be read, by its name in the specification of zip archives.
fn unread(method: CompressionMethod) -> Option<String> {
    let name = match method {
        CompressionMethod::STORE | CompressionMethod::DEFLATE => return None,
        CompressionMethod::SHRINK => "Shrink",
        CompressionMethod::IMPLODE => "Implode",
        CompressionMethod::DEFLATE64 => "Deflate64",
        CompressionMethod::BZIP2 => "bzip2",
        CompressionMethod::LZMA => "LZMA",
        CompressionMethod::ZSTD => "Zstandard",
        CompressionMethod::XZ => "XZ",
        CompressionMethod::PPMD => "PPMd",
        CompressionMethod::AES => return Some("the file is encrypted".to_owned()),
        _ => "another method",
    };
    Some(format!("compressed with {name}, which is not supported; compress it with Deflate"))
}

fn leads_out(name: &str) -> bool {
    name.contains('\0') || Path::new(name).components().any(|part| !matches!(part, Component::Normal(_)))
}

/// Archives often hold one folder that holds everything; its name says nothing. What would be
/// left without a folder for its class keeps it.
fn without_common_folder(places: HashMap<String, usize>) -> HashMap<String, usize> {
    let common = {
        // What is hidden or leads out of the archive is in no class, and has no say in this.
        let visible = places.keys().filter(|name| !name.split('/').any(is_hidden_in_zip) && !leads_out(name));
        let mut pictures = visible.clone().filter(|name| is_picture(name)).peekable();
        // A readme beside the folder says nothing about it.
        let Some((first, _)) = pictures.peek().and_then(|name| name.split_once('/')) else { return places };
        let first = format!("{first}/");
        let deep = pictures.all(|name| name.starts_with(&first) && name.matches('/').count() >= 2);
        let clashes =
            visible.clone().any(|name| !name.starts_with(&first) && places.contains_key(&format!("{first}{name}")));
        if !deep || clashes {
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
struct FileWindow {
    file: Arc<File>,
    length: u64,
    at: u64,
}

impl Read for FileWindow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for FileWindow {
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
        assert!(is_picture("a/b.JPG") && is_picture("x.tiff") && is_picture("x.y.png") && is_picture("IMG_1.HEIC"));
        assert!(!is_picture("png") && !is_picture("a.txt") && !is_picture("a.png/b"));
    }

    #[test]
    fn names_that_lead_out() {
        for bad in ["../x.png", "/etc/x.png", "a/../../x.png", "a\0.png", "./x.png"] {
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
        let readme = ["PetImages/Cat/1.png", "PetImages/Dog/2.png", "readme[1].txt", "notes/MSR.docx"];
        assert_eq!(strip(&readme), ["Cat/1.png", "Dog/2.png", "notes/MSR.docx", "readme[1].txt"]);
        let clash = ["a/cat/1.png", "a/data.yaml", "data.yaml"];
        assert_eq!(strip(&clash), ["a/cat/1.png", "a/data.yaml", "data.yaml"]);
        assert_eq!(strip(&["../cat/1.png", "../dog/2.png"]), ["../cat/1.png", "../dog/2.png"]);
    }
}
