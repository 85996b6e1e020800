//! Fields of a protocol-buffer message, one after another, without copying and without a
//! schema. Only what event files need of the wire format: unknown fields are passed over, and
//! a message that ends in the middle of a field is an error.

use thiserror::Error;

/// The value of a field as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed message")]
pub struct Malformed;

/// The fields of one message: their numbers and values.
#[derive(Clone, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = field(&mut self.0);
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

#[inline]
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = varint(bytes)?;
    let value = match key & 7 {
        0 => Value::Varint(varint(bytes)?),
        1 => Value::Fixed64(fixed(bytes)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (value, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Value::Bytes(value)
        }
        5 => Value::Fixed32(fixed(bytes)?),
        // Groups, which nobody has written for long.
        _ => return None,
    };
    Some((key >> 3, value))
}

#[inline]
fn fixed<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (value, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*value)
}

/// Seven bits a byte, the least first, at most ten bytes.
#[inline]
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    // Most are short.
    if let [byte @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Some((*byte).into());
    }
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
