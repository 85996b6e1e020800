//! The resized pictures and their masks: one array each, in which a picture lies where its row of
//! the manifest says. Threads write to it in any order and whenever they are done, so nothing is
//! ever copied; what was never written, or is of no use after all, takes no room.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate};

use super::{
    Error,
    npy::{self, Element},
    space,
    spec::{Kind, Spec},
};

/// The folder of all arrays in a dataset.
pub const FOLDER: &str = "cache";
/// Pictures × height × width × channels.
pub const IMAGES: &str = "cache/images.npy";
/// Pictures × height × width: the class of each pixel.
pub const MASKS: &str = "cache/masks.npy";

/// The arrays while they are filled.
#[derive(Debug)]
pub struct Arrays {
    images: Array,
    masks: Option<Array>,
}

#[derive(Debug)]
struct Array {
    path: PathBuf,
    file: File,
    header: Vec<u8>,
    /// Rows, and the bytes of each.
    count: u64,
    each: u64,
}

/// A resized picture, and the classes of its mask.
#[derive(Debug)]
pub struct Frame {
    pub pixels: Vec<u8>,
    pub mask: Option<Vec<u8>>,
}

impl Arrays {
    /// Opens what an earlier attempt has `begun`, or begins with nothing. Fails if there is no room for
    /// what is missing.
    pub fn open(out: &Path, spec: &Spec, count: usize, begun: bool) -> Result<Self, Error> {
        let folder = out.join(FOLDER);
        fs::create_dir_all(&folder).map_err(|error| Error::writing(&folder, error))?;
        let shape = [count, spec.height as usize, spec.width as usize, spec.channels.into()];
        let images = Array::open(out.join(IMAGES), &shape, begun)?;
        let masks = (spec.kind == Kind::Segmentation).then(|| Array::open(out.join(MASKS), &shape[..3], begun));
        let arrays = Self { images, masks: masks.transpose()? };
        let missing = arrays.all().map(Array::missing).sum::<Result<u64, Error>>()?;
        space::check(&arrays.images.path, missing)?;
        Ok(arrays)
    }

    /// Whether an earlier attempt has left them.
    pub fn are_there(out: &Path, spec: &Spec) -> bool {
        let there = |name: &str| fs::metadata(out.join(name)).is_ok();
        there(IMAGES) && (spec.kind != Kind::Segmentation || there(MASKS))
    }

    pub fn write(&self, row: usize, frame: &Frame) -> Result<(), Error> {
        self.images.write(row, &frame.pixels)?;
        match (&self.masks, &frame.mask) {
            (Some(masks), Some(mask)) => masks.write(row, mask),
            _ => Ok(()),
        }
    }

    /// Adds a picture to the end of `to`.
    pub fn read(&self, row: usize, to: &mut Vec<u8>) -> Result<(), Error> {
        let (begin, each) = (to.len(), usize::try_from(self.images.each).unwrap_or(usize::MAX));
        to.resize(begin + each, 0);
        let read = self.images.file.read_exact_at(&mut to[begin..], self.images.place(row));
        read.map_err(|error| Error::reading(&self.images.path, error))
    }

    /// What was written lasts when this returns.
    pub fn sync(&self) -> Result<(), Error> {
        self.all().try_for_each(|array| array.file.sync_data().map_err(|error| Error::writing(&array.path, error)))
    }

    /// Gives back the room of a picture that is in no split.
    pub fn forget(&self, row: usize) {
        for array in self.all() {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system that knows no holes keeps what nobody reads.
            let _ = fallocate(&array.file, hole, array.place(row), array.each);
        }
    }

    /// Makes arrays of the files. They last when this returns.
    pub fn finish(&self) -> Result<(), Error> {
        self.all().try_for_each(|array| array.finish().map_err(|error| Error::writing(&array.path, error)))
    }

    pub fn paths(&self) -> Vec<&Path> {
        self.all().map(|array| array.path.as_path()).collect()
    }

    pub fn has_masks(&self) -> bool {
        self.masks.is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Array> {
        std::iter::once(&self.images).chain(&self.masks)
    }
}

impl Array {
    fn open(path: PathBuf, shape: &[usize], begun: bool) -> Result<Self, Error> {
        let file = File::options().read(true).write(true).create(true).truncate(!begun).open(&path);
        let file = file.map_err(|error| Error::writing(&path, error))?;
        let header = npy::header(Element::U8, shape);
        let (count, each) = (shape[0] as u64, shape[1..].iter().product::<usize>() as u64);
        Ok(Self { path, file, header, count, each })
    }

    fn place(&self, row: usize) -> u64 {
        self.header.len() as u64 + row as u64 * self.each
    }

    /// Bytes that it will still take.
    fn missing(&self) -> Result<u64, Error> {
        let there = self.file.metadata().map_err(|error| Error::writing(&self.path, error))?.blocks() * 512;
        Ok((self.count * self.each).saturating_sub(there))
    }

    fn write(&self, row: usize, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, self.place(row)).map_err(|error| Error::writing(&self.path, error))
    }

    fn finish(&self) -> io::Result<()> {
        self.file.write_all_at(&self.header, 0)?;
        self.file.set_len(self.header.len() as u64 + self.count * self.each)?;
        self.file.sync_all()
    }
}
