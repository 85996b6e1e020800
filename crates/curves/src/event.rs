//! What a record of an event file says: when, at which step, and which values. Values are
//! read as scalars where they are one number, however their writer encoded it; everything
//! else (images, histograms, graphs) is passed over. Field numbers are those of TensorFlow's
//! event.proto, summary.proto and tensor.proto.

use super::wire::{Fields, Malformed, Value, varint};

/// Types of numbers, as tensors name them. Quantized ones are read as the integers they are kept as.
mod dtype {
    pub const FLOAT: u64 = 1;
    pub const DOUBLE: u64 = 2;
    pub const INT32: u64 = 3;
    pub const UINT8: u64 = 4;
    pub const INT16: u64 = 5;
    pub const INT8: u64 = 6;
    pub const STRING: u64 = 7;
    pub const INT64: u64 = 9;
    pub const BOOL: u64 = 10;
    pub const QINT8: u64 = 11;
    pub const QUINT8: u64 = 12;
    pub const QINT32: u64 = 13;
    pub const BFLOAT16: u64 = 14;
    pub const QINT16: u64 = 15;
    pub const QUINT16: u64 = 16;
    pub const UINT16: u64 = 17;
    pub const HALF: u64 = 19;
    pub const UINT32: u64 = 22;
    pub const UINT64: u64 = 23;
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// Seconds since 1970, by the writer's clock.
    pub wall_time: f64,
    pub step: i64,
    pub what: What<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    /// The first record of a file.
    FileVersion,
    /// A writer that begins anew: what other attempts wrote at this step and later is past.
    Start,
    /// A summary; [`values`] reads it.
    Summary(&'a [u8]),
    Other,
}

/// One value of a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    pub tag: &'a [u8],
    pub what: Content<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content<'a> {
    Scalar(f64),
    /// What the plug-in for hyper-parameters keeps beside a value.
    Hparams(&'a [u8]),
    /// A value that should be a single number but cannot be read as one.
    Unreadable,
    Other,
}

/// A record as nearly all are: one scalar with its time, step and tag, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plain<'a> {
    pub wall_time: f64,
    pub step: i64,
    pub tag: &'a [u8],
    pub value: f32,
}

/// Reads a record that is as nearly all are. Any other, well-formed or not, is left to [`event`].
#[inline]
pub fn plain(record: &[u8]) -> Option<Plain<'_>> {
    const WALL_TIME: u8 = 1 << 3 | 1;
    const STEP: u8 = 2 << 3;
    const SUMMARY: u8 = 5 << 3 | 2;
    const ENTRY: u8 = 1 << 3 | 2;
    const TAG: u8 = 1 << 3 | 2;
    const SIMPLE_VALUE: u8 = 2 << 3 | 5;
    let (wall_time, mut rest) = record.strip_prefix(&[WALL_TIME])?.split_first_chunk()?;
    let mut step = 0;
    // The first step of all is left out by most.
    if let Some(behind) = rest.strip_prefix(&[STEP]) {
        rest = behind;
        step = varint(&mut rest)?.cast_signed();
    }
    let mut within = |key: u8| {
        rest = rest.strip_prefix(&[key])?;
        let length = varint(&mut rest)?;
        (length == rest.len() as u64).then_some(())
    };
    within(SUMMARY)?;
    within(ENTRY)?;
    let mut rest = rest.strip_prefix(&[TAG])?;
    let length = usize::try_from(varint(&mut rest)?).ok()?;
    let (tag, rest) = rest.split_at_checked(length)?;
    let value = rest.strip_prefix(&[SIMPLE_VALUE])?.try_into().ok()?;
    Some(Plain { wall_time: f64::from_le_bytes(*wall_time), step, tag, value: f32::from_le_bytes(value) })
}

/// Reads a record.
pub fn event(record: &[u8]) -> Result<Event<'_>, Malformed> {
    let mut event = Event { wall_time: 0.0, step: 0, what: What::Other };
    for field in Fields(record) {
        match field? {
            (1, Value::Fixed64(bytes)) => event.wall_time = f64::from_le_bytes(bytes),
            (2, Value::Varint(step)) => event.step = step.cast_signed(),
            (3, Value::Bytes(_)) => event.what = What::FileVersion,
            (5, Value::Bytes(summary)) => event.what = What::Summary(summary),
            (7, Value::Bytes(log)) if is_start(log)? => event.what = What::Start,
            _ => {}
        }
    }
    Ok(event)
}

/// The values of a summary, in its order.
pub fn values(summary: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Malformed>> {
    Fields(summary).filter_map(|field| match field {
        Ok((1, Value::Bytes(value))) => Some(entry(value)),
        Ok(_) => None,
        Err(err) => Some(Err(err)),
    })
}

fn entry(value: &[u8]) -> Result<Entry<'_>, Malformed> {
    let mut entry = Entry { tag: &[], what: Content::Other };
    let mut is_scalar = false;
    for field in Fields(value) {
        match field? {
            (1, Value::Bytes(tag)) => entry.tag = tag,
            (2, Value::Fixed32(bytes)) => entry.what = Content::Scalar(f32::from_le_bytes(bytes).into()),
            (8, Value::Bytes(bytes)) => {
                let found = tensor(bytes)?;
                if !matches!(entry.what, Content::Hparams(_)) {
                    entry.what = found;
                }
            }
            (9, Value::Bytes(metadata)) => match plugin(metadata)? {
                (b"hparams", content) => entry.what = Content::Hparams(content),
                (b"scalars", _) => is_scalar = true,
                _ => {}
            },
            _ => {}
        }
    }
    if is_scalar && entry.what == Content::Other {
        entry.what = Content::Unreadable;
    }
    Ok(entry)
}

/// `SessionLog.status` is START.
fn is_start(log: &[u8]) -> Result<bool, Malformed> {
    for field in Fields(log) {
        if let (1, Value::Varint(1)) = field? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name of the plug-in that `SummaryMetadata.plugin_data` is for, and what it holds.
fn plugin(metadata: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut name, mut content) = (&[][..], &[][..]);
    for field in Fields(metadata) {
        let (1, Value::Bytes(plugin)) = field? else { continue };
        for field in Fields(plugin) {
            match field? {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => content = bytes,
                _ => {}
            }
        }
        break;
    }
    Ok((name, content))
}

/// The number that a tensor is, where it is exactly one: by the list of its type, or as the
/// bytes it has in memory (`tensor_content`). One that lists nothing is 0, which writers leave out.
fn tensor(bytes: &[u8]) -> Result<Content<'static>, Malformed> {
    let (mut dtype, mut content, mut listed, mut is_listed) = (0, None, None, false);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Varint(number)) => dtype = number,
            (2, Value::Bytes(shape)) if !is_single(shape)? => return Ok(Content::Other),
            (4, Value::Bytes(bytes)) if !bytes.is_empty() => content = Some(bytes),
            (5..=7 | 9..=13 | 16 | 17, value) => {
                is_listed = true;
                if value != Value::Bytes(&[]) {
                    listed = Some(value);
                }
            }
            // Words, and handles of what is elsewhere.
            (8 | 14 | 15, _) => return Ok(Content::Other),
            _ => {}
        }
    }
    let number = match (content, listed) {
        (Some(bytes), _) => in_memory(dtype, bytes),
        (None, Some(value)) => element(dtype, value),
        (None, None) => is_number(dtype).then_some(0.0),
    };
    Ok(match number {
        Some(number) => Content::Scalar(number),
        // Without a type it says nothing at all.
        None if dtype == 0 && !is_listed || dtype == dtype::STRING => Content::Other,
        None => Content::Unreadable,
    })
}

fn is_single(shape: &[u8]) -> Result<bool, Malformed> {
    for field in Fields(shape) {
        let (2, Value::Bytes(dimension)) = field? else { continue };
        for field in Fields(dimension) {
            if let (1, Value::Varint(size)) = field?
                && size != 1
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn is_number(dtype: u64) -> bool {
    use dtype::{
        BFLOAT16, BOOL, DOUBLE, FLOAT, HALF, INT8, INT16, INT32, INT64, QINT8, QINT16, QINT32, QUINT8, QUINT16, UINT8,
        UINT16, UINT32, UINT64,
    };
    matches!(dtype, FLOAT | DOUBLE | BFLOAT16 | HALF | BOOL)
        || matches!(dtype, INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64)
        || matches!(dtype, QINT8 | QINT16 | QINT32 | QUINT8 | QUINT16)
}

/// One number as its bytes in memory, little-endian.
fn in_memory(dtype: u64, bytes: &[u8]) -> Option<f64> {
    Some(match (dtype, bytes) {
        (dtype::FLOAT, _) => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        (dtype::DOUBLE, _) => f64::from_le_bytes(bytes.try_into().ok()?),
        (dtype::INT32 | dtype::QINT32, _) => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        (dtype::UINT32, _) => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        (dtype::INT64, _) => large(i64::from_le_bytes(bytes.try_into().ok()?)),
        (dtype::UINT64, _) => largest(u64::from_le_bytes(bytes.try_into().ok()?)),
        (dtype::INT16 | dtype::QINT16, _) => i16::from_le_bytes(bytes.try_into().ok()?).into(),
        (dtype::UINT16 | dtype::QUINT16, _) => u16::from_le_bytes(bytes.try_into().ok()?).into(),
        (dtype::INT8 | dtype::QINT8, [byte]) => byte.cast_signed().into(),
        (dtype::UINT8 | dtype::QUINT8, [byte]) => (*byte).into(),
        (dtype::BOOL, [byte]) => f64::from(*byte != 0),
        (dtype::BFLOAT16 | dtype::HALF, _) => short(dtype, u16::from_le_bytes(bytes.try_into().ok()?))?,
        _ => return None,
    })
}

/// One number of a list: alone, or packed.
fn element(dtype: u64, value: Value<'_>) -> Option<f64> {
    match (dtype, value) {
        (dtype::FLOAT, Value::Fixed32(bytes)) => Some(f32::from_le_bytes(bytes).into()),
        (dtype::DOUBLE, Value::Fixed64(bytes)) => Some(f64::from_le_bytes(bytes)),
        (dtype::FLOAT | dtype::DOUBLE, Value::Bytes(bytes)) => in_memory(dtype, bytes),
        (dtype::FLOAT | dtype::DOUBLE, _) => None,
        (dtype::UINT64, Value::Varint(number)) => Some(largest(number)),
        (dtype::BOOL, Value::Varint(number)) => Some(f64::from(number != 0)),
        (dtype::BFLOAT16 | dtype::HALF, Value::Varint(bits)) => short(dtype, u16::try_from(bits).ok()?),
        (_, Value::Varint(number)) => is_number(dtype).then(|| large(number.cast_signed())),
        (_, Value::Bytes(mut bytes)) => {
            let number = varint(&mut bytes)?;
            bytes.is_empty().then(|| element(dtype, Value::Varint(number)))?
        }
        _ => None,
    }
}

/// The 16 bits of a half or of a bfloat16.
fn short(dtype: u64, bits: u16) -> Option<f64> {
    match dtype {
        dtype::BFLOAT16 => Some(f32::from_bits(u32::from(bits) << 16).into()),
        dtype::HALF => Some(half(bits)),
        _ => None,
    }
}

/// IEEE 754 binary16: a sign, five bits of exponent, ten of fraction.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

/// Above 2⁵³ the nearest number that a float has.
#[expect(clippy::cast_precision_loss, reason = "curves are drawn of floats")]
fn large(number: i64) -> f64 {
    number as f64
}

/// The same of a number without a sign.
#[expect(clippy::cast_precision_loss, reason = "curves are drawn of floats")]
fn largest(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "nothing is rounded here")]

    use proptest::prelude::*;

    use super::*;
    use crate::{
        record::{self, Next},
        write::Writer,
    };

    /// A field of bytes: its key, its length, itself.
    fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn scalar(tensor: &[u8]) -> Option<f64> {
        match entry(&[bytes(1, b"loss"), bytes(8, tensor)].concat()).unwrap().what {
            Content::Scalar(value) => Some(value),
            _ => None,
        }
    }

    #[test]
    fn numbers_are_read_in_every_encoding() {
        let typed = |dtype: u8, rest: Vec<u8>| [vec![8, dtype], rest].concat();
        let fixed = |number: u8, wire: u8, value: &[u8]| [&[number << 3 | wire], value].concat();
        let negative = [0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let greatest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let cases: [(Vec<u8>, f64); 40] = [
            (typed(1, bytes(5, &1.5_f32.to_le_bytes())), 1.5),
            (typed(1, fixed(5, 5, &1.5_f32.to_le_bytes())), 1.5),
            (typed(1, bytes(4, &1.5_f32.to_le_bytes())), 1.5),
            (typed(2, bytes(6, &0.1_f64.to_le_bytes())), 0.1),
            (typed(2, fixed(6, 1, &0.1_f64.to_le_bytes())), 0.1),
            (typed(2, bytes(4, &0.1_f64.to_le_bytes())), 0.1),
            (typed(3, bytes(7, &[0x96, 1])), 150.0),
            (typed(3, bytes(4, &(-7_i32).to_le_bytes())), -7.0),
            (typed(9, vec![10 << 3, 5]), 5.0),
            (typed(9, bytes(10, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])), -1.0),
            (typed(9, bytes(4, &7_i64.to_le_bytes())), 7.0),
            (typed(14, bytes(4, &0x3fc0_u16.to_le_bytes())), 1.5),
            (typed(14, bytes(13, &[0xc0, 0x7f])), 1.5),
            (typed(19, bytes(4, &0x3e00_u16.to_le_bytes())), 1.5),
            (typed(19, bytes(13, &[0x80, 0x7c])), 1.5),
            // uint8, int16, int8, uint16: in the list of int32, or as bytes.
            (typed(4, bytes(7, &[0xc8, 1])), 200.0),
            (typed(4, bytes(4, &[200])), 200.0),
            (typed(5, bytes(7, &negative)), -5.0),
            (typed(5, bytes(4, &(-300_i16).to_le_bytes())), -300.0),
            (typed(6, bytes(7, &negative)), -5.0),
            (typed(6, bytes(4, &[0xfb])), -5.0),
            (typed(17, vec![7 << 3, 0xff, 0xff, 3]), 65535.0),
            (typed(17, bytes(4, &[0xff, 0xff])), 65535.0),
            // bool.
            (typed(10, bytes(11, &[1])), 1.0),
            (typed(10, vec![11 << 3, 0]), 0.0),
            (typed(10, bytes(4, &[1])), 1.0),
            // uint32 and uint64 have lists of their own, with numbers of two bytes.
            (typed(22, vec![0x82, 1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f]), 4_294_967_295.0),
            (typed(22, bytes(4, &[0xff; 4])), 4_294_967_295.0),
            (typed(23, [&[0x8a, 1, 10], &greatest[..]].concat()), 18_446_744_073_709_551_615.0),
            (typed(23, bytes(4, &[0xff; 8])), 18_446_744_073_709_551_615.0),
            // Quantized ones.
            (typed(11, bytes(4, &[0xfb])), -5.0),
            (typed(12, bytes(7, &[0xc8, 1])), 200.0),
            (typed(13, bytes(4, &(-7_i32).to_le_bytes())), -7.0),
            (typed(15, bytes(7, &negative)), -5.0),
            (typed(16, bytes(4, &[0xff, 0xff])), 65535.0),
            // What lists nothing is 0.
            (typed(1, vec![]), 0.0),
            (typed(2, bytes(6, &[])), 0.0),
            (typed(9, bytes(2, &[])), 0.0),
            (typed(19, bytes(4, &[])), 0.0),
            (typed(1, bytes(2, &bytes(2, &[8, 1]))), 0.0),
        ];
        for (tensor, expected) in cases {
            assert_eq!(scalar(&tensor), Some(expected), "{tensor:02x?}");
        }
    }

    #[test]
    fn halves_are_those_of_the_standard() {
        for (bits, value) in
            [(0x0001, 2_f64.powi(-24)), (0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x7c00, f64::INFINITY)]
        {
            assert_eq!(half(bits), value, "{bits:04x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn what_is_more_than_one_number_is_no_scalar() {
        assert_eq!(scalar(&[vec![8, 1], bytes(5, &[0; 8])].concat()), None);
        let shape = bytes(2, &bytes(2, &[8, 3]));
        assert_eq!(scalar(&[vec![8, 1], shape, bytes(4, &[0; 12])].concat()), None);
        let single = bytes(2, &bytes(2, &[8, 1]));
        assert_eq!(scalar(&[vec![8, 1], single, bytes(4, &[0; 4])].concat()), Some(0.0));
    }

    #[test]
    fn what_should_be_a_number_and_is_none_is_counted() {
        let assert = |parts: &[&[u8]], expected: Content<'_>| {
            let value = [bytes(1, b"loss"), parts.concat()].concat();
            assert_eq!(entry(&value).unwrap().what, expected, "{value:02x?}");
        };
        let scalars = bytes(9, &bytes(1, &bytes(1, b"scalars")));
        let wrong_length = bytes(8, &[vec![8, 1], bytes(4, &[0; 3])].concat());
        let complex = bytes(8, &[vec![8, 8], bytes(9, &[0; 8])].concat());
        let words = bytes(8, &[vec![8, 7], bytes(8, b"0.25")].concat());
        let none = bytes(8, &[vec![8, 1], bytes(2, &bytes(2, &[8, 0]))].concat());
        let several = bytes(8, &[vec![8, 1], bytes(5, &[0; 8])].concat());
        for unreadable in [&wrong_length, &complex, &several] {
            assert(&[unreadable], Content::Unreadable);
        }
        // A text counts as an unreadable scalar only if its metadata declares a scalar.
        for other in [&words, &none] {
            assert(&[other], Content::Other);
            assert(&[&scalars, other], Content::Unreadable);
        }
        assert(&[&scalars, &bytes(8, &[8, 1])], Content::Scalar(0.0));
    }

    #[test]
    fn hyper_parameters_are_told_from_scalars() {
        let plugin = [bytes(1, b"hparams"), bytes(2, b"content")].concat();
        let value = [
            bytes(1, b"_hparams_/experiment"),
            bytes(9, &bytes(1, &plugin)),
            bytes(8, &[8, 1, 5 << 3 | 5, 0, 0, 0, 0]),
        ];
        assert_eq!(entry(&value.concat()).unwrap().what, Content::Hparams(b"content"));
    }

    proptest! {
        #[test]
        fn what_is_plain_says_the_same_in_either_way(
            (step, tag, value) in (any::<i64>(), "[a-z/]{0,200}", any::<f32>()), place in any::<usize>(), bits in any::<u8>(),
        ) {
            let mut file = Vec::new();
            let mut writer = Writer::begin(&mut file, 1.5).unwrap();
            writer.scalar(&tag, step, 2.5, value).unwrap();
            let Ok(Next::Record { size, .. }) = record::next(&file) else {
                return Err(TestCaseError::fail("a file begins with a record"));
            };
            let Ok(Next::Record { data, .. }) = record::next(&file[size..]) else {
                return Err(TestCaseError::fail("and goes on with another"));
            };
            let found = plain(data).map(|found| (found.step, found.tag, found.value.to_bits()));
            prop_assert_eq!(found, Some((step, tag.as_bytes(), value.to_bits())));
            // However it is changed: what is still taken for plain is what the longer way reads.
            let mut changed = data.to_vec();
            changed[place % data.len()] ^= bits;
            let Some(found) = plain(&changed) else { return Ok(()) };
            let event = event(&changed).map_err(|err| TestCaseError::fail(err.to_string()))?;
            prop_assert_eq!((event.step, event.wall_time.to_bits()), (found.step, found.wall_time.to_bits()));
            let What::Summary(summary) = event.what else { return Err(TestCaseError::fail("no summary")) };
            let values: Vec<_> = values(summary).map(|entry| entry.unwrap()).map(|entry| (entry.tag, entry.what)).collect();
            prop_assert_eq!(values.len(), 1);
            let Content::Scalar(value) = values[0].1 else { return Err(TestCaseError::fail("no scalar")) };
            prop_assert_eq!((values[0].0, value.to_bits()), (found.tag, f64::from(found.value).to_bits()));
        }

        #[test]
        fn no_record_is_too_strange(record in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Event { what: What::Summary(summary), .. }) = event(&record) {
                let _ = values(summary).count();
            }
            let _ = values(&record).count();
            let _ = entry(&record);
            let _ = tensor(&record);
        }
    }
}
