//! The files of `numpy` (format 1.0,
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>), which every
//! framework can map into memory.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

/// A type of elements; all little-endian.
#[derive(Clone, Copy, Debug)]
pub enum Element {
    U8,
    I32,
    I64,
    F32,
}

/// Writes a whole array; it lasts when this returns.
pub fn save(path: &Path, element: Element, shape: &[usize], elements: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&header(element, shape))?;
    file.write_all(elements)?;
    file.sync_all()
}

/// Everything before the first element; a multiple of 64 bytes.
pub fn header(element: Element, shape: &[usize]) -> Vec<u8> {
    let descr = match element {
        Element::U8 => "|u1",
        Element::I32 => "<i4",
        Element::I64 => "<i8",
        Element::F32 => "<f4",
    };
    let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
    // A tuple of one has a comma too.
    let comma = if lengths.len() == 1 { "," } else { "" };
    let mut words =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", lengths.join(", "));
    while (10 + words.len() + 1) % 64 != 0 {
        words.push(' ');
    }
    words.push('\n');
    let length = u16::try_from(words.len()).unwrap_or(u16::MAX);
    [b"\x93NUMPY\x01\x00".as_slice(), &length.to_le_bytes(), words.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_aligned_and_readable() {
        for shape in [&[3][..], &[12, 5, 5, 3], &[0, 6], &[1_000_000, 4096, 4096, 3]] {
            let header = header(Element::U8, shape);
            assert!(header.len().is_multiple_of(64) && header.ends_with(b"\n"));
            assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])) + 10, header.len());
        }
        let text = String::from_utf8_lossy(&header(Element::I32, &[3])).into_owned();
        assert!(text.contains("{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }"), "{text}");
    }
}
