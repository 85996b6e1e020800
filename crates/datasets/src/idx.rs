//! IDX files, the format of MNIST and its relatives
//! (<https://github.com/cvdfoundation/mnist>, "file formats"): numbers of dimensions and their
//! sizes, most significant byte first, and then bytes. Their pixels are laid into one file of
//! their own, because a compressed file has no place to begin in the middle. The same is done with
//! the archive of CIFAR-10's binary version (<https://www.cs.toronto.edu/~kriz/cifar.html>).

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;

use super::{Error, picture::Pixels, space};

/// The name of the file of pixels in the directory of the work.
const RAW: &str = "idx.raw";
/// The most bytes that one picture may have.
const MAX_PICTURE_SIZE: u64 = 64 << 20;

#[derive(Debug)]
pub struct Idx {
    path: PathBuf,
    raw: File,
    length: u64,
    blocks: Vec<Block>,
}

/// The pictures of one file, which are alike.
#[derive(Debug)]
struct Block {
    first: u64,
    count: u64,
    offset: u64,
    width: u32,
    height: u32,
    channels: u8,
}

impl Idx {
    pub fn new(work: &Path) -> Result<Self, Error> {
        let path = work.join(RAW);
        let open = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let raw = open.map_err(|error| Error::writing(&path, error))?;
        Ok(Self { path, raw, length: 0, blocks: Vec::new() })
    }

    /// Takes in a pair of files, and returns the labels.
    pub fn append(&mut self, images: &Path, labels: &Path) -> Result<Vec<u8>, Error> {
        let (mut pixels, sizes) = open(images)?;
        let (height, width, channels) = match sizes.as_slice() {
            [_, height, width] => (*height, *width, 1),
            [_, height, width, 3] => (*height, *width, 3),
            _ => return Err(wrong(images, "the file does not contain images: an image array has three dimensions")),
        };
        let count = u64::from(sizes[0]);
        let each = u64::from(width) * u64::from(height) * u64::from(channels);
        if each == 0 || each > MAX_PICTURE_SIZE {
            return Err(wrong(images, "its images are empty or too large"));
        }
        let (mut named, label_sizes) = open(labels)?;
        if label_sizes.len() != 1 || u64::from(label_sizes[0]) != count {
            return Err(wrong(labels, "the number of labels differs from the number of images"));
        }
        let bytes = count.checked_mul(each).ok_or_else(|| wrong(images, "its header claims an impossible size"))?;
        space::check(&self.path, bytes)?;

        // Both are read as far as they promise and no further, whatever they unpack to.
        let mut found = Vec::new();
        named.by_ref().take(count).read_to_end(&mut found).map_err(|error| Error::reading(labels, error))?;
        let mut to = BufWriter::new(Place { file: &self.raw, at: self.length });
        let copied = io::copy(&mut pixels.by_ref().take(bytes), &mut to)
            .and_then(|copied| to.flush().map(|()| copied))
            .map_err(|error| {
                if error.kind() == io::ErrorKind::StorageFull {
                    Error::writing(&self.path, error)
                } else {
                    Error::reading(images, error)
                }
            })?;
        drop(to);
        if copied < bytes {
            return Err(wrong(images, &format!("the file ends after {} of {count} images", copied / each)));
        }
        if (found.len() as u64) < count {
            return Err(wrong(labels, &format!("the file ends after {} of {count} labels", found.len())));
        }
        self.push(count, width, height, channels);
        Ok(found)
    }

    /// Takes in the archive of CIFAR-10's binary version: a byte of the label, and a plane of each colour. Returns the
    /// path of each picture, its label, and whether it is for testing.
    pub fn append_cifar(&mut self, archive: &Path) -> Result<Vec<(String, u8, bool)>, Error> {
        const SIDE: u32 = 32;
        const PLANE: usize = 32 * 32;
        let read = |error| Error::reading(archive, error);
        let file = BufReader::new(File::open(archive).map_err(read)?);
        let mut tar = tar::Archive::new(GzDecoder::new(file));
        let mut found = Vec::new();
        for entry in tar.entries().map_err(read)? {
            let mut entry = entry.map_err(read)?;
            let name = entry.path().map_err(read)?.into_owned();
            let Some(name) = name.file_name().and_then(|name| name.to_str()?.strip_suffix(".bin")) else { continue };
            let name = name.to_owned();
            let (count, rest) = (entry.size() / (1 + 3 * PLANE as u64), entry.size() % (1 + 3 * PLANE as u64));
            if rest > 0 || count == 0 {
                return Err(wrong(archive, &format!("{name}.bin does not consist of images of 32 × 32 pixels")));
            }
            space::check(&self.path, count * 3 * PLANE as u64)?;
            let mut to = BufWriter::new(Place { file: &self.raw, at: self.length });
            let (mut record, mut pixels) = (vec![0; 1 + 3 * PLANE], vec![0; 3 * PLANE]);
            for number in 0..count {
                entry.read_exact(&mut record).map_err(read)?;
                for (at, pixel) in pixels.chunks_exact_mut(3).enumerate() {
                    pixel.copy_from_slice(&[record[1 + at], record[1 + PLANE + at], record[1 + 2 * PLANE + at]]);
                }
                to.write_all(&pixels).map_err(|error| Error::writing(&self.path, error))?;
                found.push((format!("{name}-{number:05}"), record[0], name.starts_with("test")));
            }
            to.flush().map_err(|error| Error::writing(&self.path, error))?;
            drop(to);
            self.push(count, SIDE, SIDE, 3);
        }
        if found.is_empty() {
            return Err(wrong(archive, "the archive does not contain files of CIFAR-10's binary version"));
        }
        Ok(found)
    }

    /// Remembers pictures that lie behind the others.
    fn push(&mut self, count: u64, width: u32, height: u32, channels: u8) {
        let first = self.blocks.last().map_or(0, |block| block.first + block.count);
        self.blocks.push(Block { first, count, offset: self.length, width, height, channels });
        self.length += count * u64::from(width) * u64::from(height) * u64::from(channels);
    }

    /// The picture of a number.
    pub fn read(&self, number: u64) -> Result<Pixels, String> {
        let block = self.blocks.iter().rfind(|block| block.first <= number).ok_or("image not found")?;
        let each = u64::from(block.width) * u64::from(block.height) * u64::from(block.channels);
        let mut data = vec![0; usize::try_from(each).map_err(|_large| "the image is too large".to_owned())?];
        let at = block.offset + (number - block.first) * each;
        self.raw.read_exact_at(&mut data, at).map_err(|error| format!("cannot read it: {error}"))?;
        Ok(Pixels { width: block.width, height: block.height, channels: block.channels, data })
    }
}

/// A file of bytes behind its sizes.
fn open(path: &Path) -> Result<(Box<dyn Read>, Vec<u32>), Error> {
    let read = |error| Error::reading(path, error);
    let mut file = BufReader::new(File::open(path).map_err(read)?);
    let packed = io::BufRead::fill_buf(&mut file).map_err(read)?.starts_with(&[0x1F, 0x8B]);
    let mut content: Box<dyn Read> =
        if packed { Box::new(BufReader::new(GzDecoder::new(file))) } else { Box::new(file) };
    let mut word = || {
        let mut word = [0; 4];
        content.read_exact(&mut word).map(|()| word).map_err(|_end| wrong(path, "not an IDX file: too short"))
    };
    let [0, 0, kind, dimensions] = word()? else { return Err(wrong(path, "not an IDX file")) };
    if kind != 8 || !(1..=4).contains(&dimensions) {
        return Err(wrong(path, "not an IDX file of bytes"));
    }
    let sizes = (0..dimensions).map(|_| word().map(u32::from_be_bytes)).collect::<Result<_, _>>()?;
    Ok((content, sizes))
}

/// The labels of a file, as far as it promises.
pub fn labels(path: &Path) -> Result<Vec<u8>, Error> {
    let (content, sizes) = open(path)?;
    let [count] = sizes[..] else { return Err(wrong(path, "the file does not contain labels")) };
    let mut found = Vec::new();
    content.take(count.into()).read_to_end(&mut found).map_err(|error| Error::reading(path, error))?;
    Ok(found)
}

fn wrong(path: &Path, reason: &str) -> Error {
    Error::Source { path: path.to_owned(), reason: reason.to_owned() }
}

/// A place in a file to write on from.
struct Place<'a> {
    file: &'a File,
    at: u64,
}

impl Write for Place<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
