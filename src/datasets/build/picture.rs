//! Opens a picture that somebody brings: what it is follows from its content and not its name,
//! its size in memory is bounded before anything is unpacked, and a damaged one is told with the
//! reason. 16 bits become 8, CMYK and palettes become red, green and blue, transparency is
//! dropped, and a camera's note of how it was held is obeyed.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
};

use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use parking_lot::Mutex;

use super::text;

/// Bytes of a picture in memory; the same is allowed again for what its decoder keeps.
const LARGEST_PICTURE: u64 = 256 << 20;
/// Pictures of more bytes are opened one after the other.
const LARGE: u64 = 48 << 20;

/// A picture as bytes, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    /// 1 or 3.
    pub channels: u8,
    pub data: Vec<u8>,
}

/// Held while a large picture is in memory, so that not every thread has one.
#[derive(Debug, Default)]
pub struct Gate(Mutex<()>);

impl Pixels {
    /// The same in so many channels.
    #[must_use]
    pub fn with_channels(self, channels: u8) -> Self {
        let data = match (self.channels, channels) {
            (1, 3) => self.data.iter().flat_map(|&value| [value; 3]).collect(),
            (3, 1) => match image::RgbImage::from_raw(self.width, self.height, self.data) {
                Some(picture) => DynamicImage::from(picture).into_luma8().into_raw(),
                None => Vec::new(),
            },
            _ => self.data,
        };
        Self { channels, data, ..self }
    }
}

/// A picture in one or three channels, or why it is none.
pub fn decode(bytes: &[u8], channels: u8, gate: &Gate) -> Result<Pixels, String> {
    let opened = open(bytes, gate)?;
    let (width, height) = (opened.width(), opened.height());
    let data = if channels == 1 { opened.into_luma8().into_raw() } else { opened.into_rgb8().into_raw() };
    Ok(Pixels { width, height, channels, data })
}

/// A mask: red, green and blue for lists of colours, else the values themselves.
pub fn decode_mask(bytes: &[u8], colours: bool, gate: &Gate) -> Result<Pixels, String> {
    let opened = open(bytes, gate)?;
    let (width, height) = (opened.width(), opened.height());
    let data = match opened {
        opened if colours => opened.into_rgb8().into_raw(),
        DynamicImage::ImageLuma8(values) => values.into_raw(),
        opened => {
            let colours = opened.into_rgb8();
            if colours.pixels().any(|pixel| pixel.0[0] != pixel.0[1] || pixel.0[1] != pixel.0[2]) {
                return Err("its mask has colours, and no list says what they mean".to_owned());
            }
            colours.pixels().map(|pixel| pixel.0[0]).collect()
        }
    };
    Ok(Pixels { width, height, channels: if colours { 3 } else { 1 }, data })
}

fn open(bytes: &[u8], gate: &Gate) -> Result<DynamicImage, String> {
    let format = format(bytes)?;
    if format == ImageFormat::Jpeg && !jpeg_is_whole(bytes) {
        return Err("the JPEG is cut off".to_owned());
    }
    // What strangers send may show that a decoder counts wrongly somewhere.
    let decoded = catch_unwind(AssertUnwindSafe(|| unpack(bytes, format, gate)));
    decoded.unwrap_or_else(|_| Err("its decoder gave up".to_owned()))
}

fn unpack(bytes: &[u8], format: ImageFormat, gate: &Gate) -> Result<DynamicImage, String> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(2 * LARGEST_PICTURE);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| reason(&error))?;
    let (width, height) = decoder.dimensions();
    let total = decoder.total_bytes();
    if width == 0 || height == 0 {
        return Err("it has no pixels".to_owned());
    }
    if total > LARGEST_PICTURE {
        return Err(format!(
            "it is {width} × {height} pixels, which is more than {} MiB in memory",
            LARGEST_PICTURE >> 20
        ));
    }
    let _large = (total > LARGE).then(|| gate.0.lock());
    let orientation = decoder.orientation().map_err(|error| reason(&error))?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| reason(&error))?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

fn format(bytes: &[u8]) -> Result<ImageFormat, String> {
    let start = bytes.get(..512).unwrap_or(bytes);
    let text = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start).trim_ascii_start();
    match image::guess_format(bytes) {
        Ok(
            format @ (ImageFormat::Jpeg
            | ImageFormat::Png
            | ImageFormat::Bmp
            | ImageFormat::Gif
            | ImageFormat::WebP
            | ImageFormat::Pnm),
        ) => Ok(format),
        _ if bytes.is_empty() => Err("the file is empty".to_owned()),
        Ok(other) => Err(format!("it is {other:?}; JPEG, PNG, BMP, GIF, WebP and PNM are read")),
        Err(_) if text.starts_with(b"<") => Err("it is a web page or XML, no picture".to_owned()),
        Err(_) => Err("it is no picture".to_owned()),
    }
}

fn reason(error: &ImageError) -> String {
    match error {
        ImageError::Limits(_) => format!("it is larger than {} MiB in memory", LARGEST_PICTURE >> 20),
        error => format!("it cannot be decoded: {}", text::short(&error.to_string())),
    }
}

/// Whether a JPEG goes on to its end marker. Decoders fill what is missing with grey and say nothing
/// (markers: ITU-T T.81, annex B).
fn jpeg_is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[0xFF, marker]) = bytes.get(at..at + 2).and_then(|pair| pair.first_chunk::<2>()) {
        match marker {
            0xD9 => return true,
            // Fill bytes, and markers without a length.
            0xFF => at += 1,
            0x01 | 0xD0..=0xD8 => at += 2,
            _ => {
                let Some(length) = bytes.get(at + 2..).and_then(|rest| rest.first_chunk::<2>()) else { return false };
                at += 2 + usize::from(u16::from_be_bytes(*length));
                if marker == 0xDA {
                    // The picture itself, up to the next marker that stands for more than a byte.
                    let Some(rest) = bytes.get(at..) else { return false };
                    let is_marker = |at: &usize| !matches!(rest.get(at + 1), None | Some(0x00 | 0xD0..=0xD7 | 0xFF));
                    let next = memchr::memchr_iter(0xFF, rest).find(is_marker);
                    let Some(next) = next else { return false };
                    at += next;
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn gradient() -> DynamicImage {
        DynamicImage::from(image::RgbImage::from_fn(40, 30, |x, y| {
            image::Rgb([u8::try_from(x * 6).unwrap(), u8::try_from(y * 8).unwrap(), 90])
        }))
    }

    #[test]
    fn every_format_is_known_by_its_content() {
        for format in [
            ImageFormat::Jpeg,
            ImageFormat::Png,
            ImageFormat::Bmp,
            ImageFormat::Gif,
            ImageFormat::WebP,
            ImageFormat::Pnm,
        ] {
            let opened = decode(&encoded(&gradient(), format), 3, &Gate::default()).unwrap();
            assert_eq!((opened.width, opened.height, opened.data.len()), (40, 30, 3600), "{format:?}");
        }
    }

    #[test]
    fn a_jpeg_that_is_cut_off_is_told_at_every_length() {
        let whole = encoded(&gradient(), ImageFormat::Jpeg);
        assert!(jpeg_is_whole(&whole));
        assert!(jpeg_is_whole(&[whole.as_slice(), b"camera's trailer"].concat()));
        for length in 0..whole.len() {
            assert!(decode(&whole[..length], 3, &Gate::default()).is_err(), "cut at {length} of {}", whole.len());
        }
    }

    #[test]
    fn a_png_that_is_cut_off_is_told() {
        let whole = encoded(&gradient(), ImageFormat::Png);
        let half = decode(&whole[..whole.len() / 2], 3, &Gate::default()).unwrap_err();
        assert!(half.starts_with("it cannot be decoded"), "{half}");
    }

    #[test]
    fn sixteen_bits_become_eight() {
        let deep = DynamicImage::ImageLuma16(image::ImageBuffer::from_pixel(2, 2, image::Luma([0x8000])));
        let opened = decode(&encoded(&deep, ImageFormat::Png), 1, &Gate::default()).unwrap();
        assert_eq!(opened.data, [128; 4]);
    }

    #[test]
    fn what_is_no_picture_says_what_it_is() {
        let said = |bytes: &[u8]| decode(bytes, 3, &Gate::default()).unwrap_err();
        assert_eq!(said(b""), "the file is empty");
        assert_eq!(said(b"  <!doctype html><title>404</title>"), "it is a web page or XML, no picture");
        assert_eq!(said(b"hello"), "it is no picture");
        assert!(said(b"II*\0\0\0\0\0").contains("Tiff"));
    }

    #[test]
    fn an_image_bomb_is_refused_before_it_is_unpacked() {
        // A PNG's header that promises 60000 by 60000 pixels.
        let mut png = encoded(&gradient(), ImageFormat::Png);
        png[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
        png[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
        let mut check = flate2::Crc::new();
        check.update(&png[12..29]);
        png[29..33].copy_from_slice(&check.sum().to_be_bytes());
        let said = decode(&png, 3, &Gate::default()).unwrap_err();
        assert!(said.contains("MiB"), "{said}");
    }

    #[test]
    fn masks_in_grey_keep_their_values() {
        let grey = DynamicImage::ImageLuma8(image::ImageBuffer::from_pixel(2, 1, image::Luma([7])));
        let mask = encoded(&grey, ImageFormat::Png);
        assert_eq!(decode_mask(&mask, false, &Gate::default()).unwrap().data, [7, 7]);
        let same = DynamicImage::from(grey.to_rgb8());
        assert_eq!(decode_mask(&encoded(&same, ImageFormat::Png), false, &Gate::default()).unwrap().data, [7, 7]);
        let said = decode_mask(&encoded(&gradient(), ImageFormat::Png), false, &Gate::default()).unwrap_err();
        assert!(said.contains("no list says"), "{said}");
    }
}
