//! The framing of event files: records of a length, a checksum of the length, the data, and a
//! checksum of the data. This file cuts bytes into records and checks both sums; what a record
//! says is `event`'s. The format is TensorFlow's `TFRecord`: little-endian, CRC-32C, masked.

use thiserror::Error;

/// Length and its sum before the data, the data's sum behind it (bytes).
const HEAD: usize = 12;
const FOOT: usize = 4;

/// The next thing at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole record, and how many bytes it takes with its frame.
    Record { data: &'a [u8], size: usize },
    /// A frame whose data does not fit its sum: to be left out.
    Damaged { size: usize },
    /// The bytes end within a record, which may still be in the making: so many are needed.
    Partial { needed: u64 },
}

/// The length of a record does not fit its checksum: where the next one begins is not known,
/// and nothing more of the file can be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the length of a record does not match its checksum")]
pub struct InvalidLength;

/// Reads one record at the beginning of `bytes`.
#[inline]
pub fn next(bytes: &[u8]) -> Result<Next<'_>, InvalidLength> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Ok(Next::Partial { needed: HEAD as u64 });
    };
    let Some((length, sum)) = head.split_first_chunk::<8>() else { return Err(InvalidLength) };
    if of_length(*length) != little(sum) {
        return Err(InvalidLength);
    }
    let length = u64::from_le_bytes(*length);
    let whole = usize::try_from(length).ok().and_then(|length| {
        let (data, rest) = rest.split_at_checked(length)?;
        Some((data, rest.get(..FOOT)?))
    });
    let Some((data, sum)) = whole else {
        return Ok(Next::Partial { needed: length.saturating_add((HEAD + FOOT) as u64) });
    };
    let size = HEAD + data.len() + FOOT;
    Ok(if masked(data) == little(sum) { Next::Record { data, size } } else { Next::Damaged { size } })
}

/// `data` in its frame, as writers put it into a file.
pub fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(HEAD + data.len() + FOOT);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&masked(&length).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&masked(data).to_le_bytes());
    bytes
}

/// The checksum as the files have it: turned and moved, so that the sum of data that holds
/// sums is no sum of its own.
fn masked(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

fn mask(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The sum of a record's length. Nearly all are under 2¹⁶, and their sums are made of two that are known.
fn of_length(length: [u8; 8]) -> u32 {
    match length {
        [low, high, 0, 0, 0, 0, 0, 0] => mask(LOW[usize::from(low)] ^ HIGH[usize::from(high)]),
        _ => masked(&length),
    }
}

/// CRC-32C of eight bytes of which only the first, or only the second, is not 0. Sums of the same length add up
/// (by XOR, as bits do here): that of no byte set is left out of the second table.
static LOW: [u32; 256] = sums(0, 0);
static HIGH: [u32; 256] = sums(1, sums(0, 0)[0]);

const fn sums(place: usize, without: u32) -> [u32; 256] {
    let mut sums = [0; 256];
    let mut number = 0;
    while number < 256 {
        let mut sum = u32::MAX;
        let mut at = 0;
        while at < 8 {
            if at == place {
                sum ^= number;
            }
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x82f6_3b78 };
                bit += 1;
            }
            at += 1;
        }
        sums[number as usize] = !sum ^ without;
        number += 1;
    }
    sums
}

fn little(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sums_are_those_of_others() {
        assert_eq!(masked(b"\x1a\x11CRC test, one two"), 0x5794_d08a);
        let version = b"\x09\x00\x00\x80\x38\x99\xd6\xd7\x41\x1a\x0dbrain.Event:2";
        let bytes = framed(version);
        assert_eq!(bytes[8..12], [0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(bytes[bytes.len() - 4..], [0x12, 0x4b, 0x36, 0xab]);
    }

    #[test]
    fn the_sum_of_every_length_is_the_known_one() {
        for length in (0..1 << 17_u64).chain([u64::MAX, 1 << 32]) {
            let length = length.to_le_bytes();
            assert_eq!(of_length(length), masked(&length));
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_file() {
        let mut bytes = framed(b"data");
        bytes[0] ^= 1;
        assert_eq!(next(&bytes), Err(InvalidLength));
        for length in [2 << 30, u64::MAX] {
            let head = [&length.to_le_bytes()[..], &masked(&length.to_le_bytes()).to_le_bytes()].concat();
            assert_eq!(next(&head), Ok(Next::Partial { needed: length.saturating_add(16) }));
        }
    }

    #[test]
    fn damaged_data_is_told_from_what_follows() {
        let mut bytes = framed(b"one");
        let size = bytes.len();
        bytes[HEAD] ^= 0x40;
        bytes.extend(framed(b"two"));
        assert_eq!(next(&bytes), Ok(Next::Damaged { size }));
        assert!(matches!(next(&bytes[size..]), Ok(Next::Record { data: b"two", .. })));
    }

    proptest! {
        #[test]
        fn what_was_framed_is_read(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = framed(&data);
            prop_assert_eq!(next(&bytes), Ok(Next::Record { data: &data, size: bytes.len() }));
            for cut in 0..bytes.len() {
                let Ok(Next::Partial { needed }) = next(&bytes[..cut]) else {
                    return Err(TestCaseError::fail("a part was taken for a whole"));
                };
                prop_assert!((cut as u64) < needed && needed <= bytes.len() as u64);
            }
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = next(&bytes);
        }
    }
}
