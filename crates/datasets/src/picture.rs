//! Opens a picture that somebody brings: what it is follows from its content and not its name,
//! its size in memory is bounded before anything is unpacked, and a damaged one is told with the
//! reason. 16 bits become 8, CMYK and palettes become red, green and blue, what is transparent
//! is laid over black, and a camera's note of how it was held is obeyed. `trainer/pixels.py` does
//! the same; both are tested with one table of pictures.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
};

use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use parking_lot::Mutex;

use super::text;

/// Bytes of a picture in memory; the same is allowed again for what its decoder keeps.
const MAX_PICTURE_SIZE: u64 = 256 << 20;
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
            (3, 1) => grey(&self.data),
            _ => self.data,
        };
        Self { channels, data, ..self }
    }
}

/// A picture in one or three channels, or why it is none.
pub fn decode(bytes: &[u8], channels: u8, gate: &Gate) -> Result<Pixels, String> {
    let opened = open(bytes, gate)?;
    let (width, height) = (opened.width(), opened.height());
    let data = match (channels, over_black(opened)) {
        (1, DynamicImage::ImageLuma8(values)) => values.into_raw(),
        (1, opened) => grey(&opened.into_rgb8().into_raw()),
        (_, opened) => opened.into_rgb8().into_raw(),
    };
    Ok(Pixels { width, height, channels, data })
}

/// Lays what is transparent over black, whatever colour lies below, and makes of 16 bits 8.
fn over_black(opened: DynamicImage) -> DynamicImage {
    let shade = |value: u8, alpha: u8| {
        let product = u32::from(value) * u32::from(alpha);
        u8::try_from((product + 127) / 255).unwrap_or(u8::MAX)
    };
    match opened {
        DynamicImage::ImageLumaA8(_) | DynamicImage::ImageLumaA16(_) => {
            let picture = opened.into_luma_alpha8();
            let values = picture.pixels().map(|pixel| shade(pixel.0[0], pixel.0[1])).collect();
            image::GrayImage::from_raw(picture.width(), picture.height(), values).unwrap_or_default().into()
        }
        opened if opened.color().has_alpha() => {
            let picture = opened.into_rgba8();
            let values = picture.pixels().flat_map(|pixel| {
                let [red, green, blue, alpha] = pixel.0;
                [red, green, blue].map(|value| shade(value, alpha))
            });
            image::RgbImage::from_raw(picture.width(), picture.height(), values.collect()).unwrap_or_default().into()
        }
        DynamicImage::ImageLuma16(_) => opened.into_luma8().into(),
        opened => opened,
    }
}

/// Red, green and blue as grey, with the weights of ITU-R BT.601, as Pillow has them.
fn grey(colours: &[u8]) -> Vec<u8> {
    let (pixels, _) = colours.as_chunks::<3>();
    let one = |[red, green, blue]: &[u8; 3]| {
        let sum = u32::from(*red) * 19_595 + u32::from(*green) * 38_470 + u32::from(*blue) * 7_471 + 0x8000;
        u8::try_from(sum >> 16).unwrap_or(u8::MAX)
    };
    pixels.iter().map(one).collect()
}

/// Decodes a mask: to red, green and blue where a list of colours is used, else to its values. Those of a palette are
/// the indices of its colours; 16-bit values are kept.
pub fn decode_mask(bytes: &[u8], colours: bool, gate: &Gate) -> Result<Pixels, String> {
    let kind = format(bytes)?;
    if kind == ImageFormat::Png && !colours {
        let decoded = catch_unwind(AssertUnwindSafe(|| raw_png(bytes, gate)));
        if let Some(mask) = decoded.unwrap_or_else(|_| Err("the decoder crashed".to_owned()))? {
            return Ok(mask);
        }
    }
    let opened = open(bytes, gate)?;
    let (width, height) = (opened.width(), opened.height());
    let data = match opened {
        opened if colours => opened.into_rgb8().into_raw(),
        DynamicImage::ImageLuma8(values) => values.into_raw(),
        opened => {
            let colours = opened.into_rgb8();
            if colours.pixels().any(|pixel| pixel.0[0] != pixel.0[1] || pixel.0[1] != pixel.0[2]) {
                return Err("its mask has colours, but no list of colours was given".to_owned());
            }
            colours.pixels().map(|pixel| pixel.0[0]).collect()
        }
    };
    let data = if kind == ImageFormat::Jpeg && !colours { black_and_white(data)? } else { data };
    Ok(Pixels { width, height, channels: if colours { 3 } else { 1 }, data })
}

/// A JPEG does not keep values; only masks of black and white survive it.
fn black_and_white(values: Vec<u8>) -> Result<Vec<u8>, String> {
    let between = values.iter().filter(|value| (32..224).contains(*value)).count();
    let white = values.iter().any(|value| *value >= 224);
    if between * 20 > values.len() || (!white && values.iter().any(|value| *value > 0)) {
        return Err("a JPEG does not keep the values of a mask; store it as PNG".to_owned());
    }
    Ok(values.into_iter().map(|value| if value < 128 { 0 } else { 255 }).collect())
}

/// The values of a PNG in grey or with a palette as they stand; nothing for other kinds.
fn raw_png(bytes: &[u8], gate: &Gate) -> Result<Option<Pixels>, String> {
    let said = |error: png::DecodingError| format!("cannot decode the image: {}", text::short(&error.to_string()));
    let limits = png::Limits { bytes: usize::try_from(MAX_PICTURE_SIZE).unwrap_or(usize::MAX) };
    let mut reader = png::Decoder::new_with_limits(Cursor::new(bytes), limits).read_info().map_err(said)?;
    let (info, depth) = (reader.info(), reader.info().bit_depth);
    let (width, height) = (info.width, info.height);
    let total = u64::from(width) * u64::from(height) * if depth == png::BitDepth::Sixteen { 2 } else { 1 };
    if !matches!(info.color_type, png::ColorType::Grayscale | png::ColorType::Indexed) {
        return Ok(None);
    }
    if total > MAX_PICTURE_SIZE {
        return Err(format!("{width} × {height} pixels need more than {} MiB of memory", MAX_PICTURE_SIZE >> 20));
    }
    let _large = (total > LARGE).then(|| gate.0.lock());
    let mut lines = vec![0; reader.output_buffer_size().ok_or("the image is too large")?];
    let frame = reader.next_frame(&mut lines).map_err(said)?;
    let wide = width as usize;
    let lines = lines.chunks_exact(frame.line_size.max(1)).take(height as usize);
    let data = match depth {
        png::BitDepth::Sixteen => sixteen(lines.flat_map(|line| {
            let (values, _) = line.as_chunks::<2>();
            values.iter().take(wide).map(|value| u16::from_be_bytes(*value)).collect::<Vec<_>>()
        }))?,
        depth => {
            let bits = depth as usize;
            let most = u8::try_from((1_u16 << bits) - 1).unwrap_or(u8::MAX);
            let value = |line: &[u8], x: usize| (line[x * bits / 8] >> (8 - bits - x * bits % 8)) & most;
            lines.flat_map(|line| (0..wide).map(move |x| value(line, x))).collect()
        }
    };
    Ok(Some(Pixels { width, height, channels: 1, data }))
}

/// Classes of 16 bits: below 255, with 255 or 65535 for what is ignored; or black and white.
fn sixteen(values: impl Iterator<Item = u16>) -> Result<Vec<u8>, String> {
    let narrow = |value: u16| match value {
        u16::MAX => Ok(u8::MAX),
        value => u8::try_from(value).map_err(|_too_high| {
            format!("the value {value} is not a class; classes are from 0 to 254, and 255 is ignored")
        }),
    };
    values.map(narrow).collect()
}

fn open(bytes: &[u8], gate: &Gate) -> Result<DynamicImage, String> {
    let format = format(bytes)?;
    if format == ImageFormat::Jpeg && !jpeg_is_whole(bytes) {
        return Err("the JPEG is truncated".to_owned());
    }
    // What strangers send may show that a decoder counts wrongly somewhere.
    let decoded = catch_unwind(AssertUnwindSafe(|| unpack(bytes, format, gate)));
    decoded.unwrap_or_else(|_| Err("the decoder crashed".to_owned()))
}

fn unpack(bytes: &[u8], format: ImageFormat, gate: &Gate) -> Result<DynamicImage, String> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(2 * MAX_PICTURE_SIZE);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| reason(&error))?;
    let (width, height) = decoder.dimensions();
    let total = decoder.total_bytes();
    if width == 0 || height == 0 {
        return Err("the image has no pixels".to_owned());
    }
    if total > MAX_PICTURE_SIZE {
        return Err(format!("{width} × {height} pixels need more than {} MiB of memory", MAX_PICTURE_SIZE >> 20));
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
        _ if other_format(bytes).is_some() => {
            let name = other_format(bytes).unwrap_or_default();
            Err(format!("unsupported format {name}; supported are JPEG, PNG, BMP, GIF, WebP and PNM"))
        }
        Ok(other) => Err(format!("unsupported format {other:?}; supported are JPEG, PNG, BMP, GIF, WebP and PNM")),
        Err(_) if text.starts_with(b"<") => Err("not an image: the file is a web page or XML".to_owned()),
        Err(_) => Err("not an image".to_owned()),
    }
}

/// Formats that cameras and programs write and that are not opened here, by their first bytes.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    let brand = bytes.get(4..8).filter(|kind| *kind == b"ftyp").and_then(|_| bytes.get(8..12));
    match (brand, bytes) {
        (Some(b"avif" | b"avis"), _) => Some("AVIF"),
        (Some(b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"mif1" | b"msf1"), _) => Some("HEIC"),
        (Some(_), _) => Some("MP4 or HEIF"),
        (_, [0xFF, 0x0A, ..] | [0, 0, 0, 0x0C, b'J', b'X', b'L', b' ', ..]) => Some("JPEG XL"),
        (_, [0, 0, 0, 0x0C, b'j', b'P', ..] | [0xFF, 0x4F, 0xFF, 0x51, ..]) => Some("JPEG 2000"),
        (_, [b'8', b'B', b'P', b'S', ..]) => Some("PSD"),
        _ if bytes.get(128..132) == Some(b"DICM") => Some("DICOM"),
        _ => None,
    }
}

fn reason(error: &ImageError) -> String {
    match error {
        ImageError::Limits(_) => format!("the image needs more than {} MiB of memory", MAX_PICTURE_SIZE >> 20),
        error => format!("cannot decode the image: {}", text::short(&error.to_string())),
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
        assert!(half.starts_with("cannot decode the image"), "{half}");
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
        assert_eq!(said(b"  <!doctype html><title>404</title>"), "not an image: the file is a web page or XML");
        assert_eq!(said(b"hello"), "not an image");
        assert!(said(b"II*\0\0\0\0\0").contains("Tiff"));
        for (bytes, name) in [
            (&b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"[..], "HEIC"),
            (b"\0\0\0\x1cftypmif1\0\0\0\0", "HEIC"),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "AVIF"),
            (b"\xFF\x0A\0\0", "JPEG XL"),
            (b"\0\0\0\x0CJXL \r\n\x87\n", "JPEG XL"),
        ] {
            assert!(said(bytes).contains(&format!("unsupported format {name};")), "{name}: {}", said(bytes));
        }
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

    /// Returns a PNG of one line with this number of bits a pixel, from the values in these bytes.
    fn line(kind: png::ColorType, depth: png::BitDepth, width: u32, bytes: &[u8], palette: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, width, 1);
        encoder.set_color(kind);
        encoder.set_depth(depth);
        if !palette.is_empty() {
            encoder.set_palette(palette.to_vec());
        }
        encoder.write_header().unwrap().write_image_data(bytes).unwrap();
        out
    }

    #[test]
    fn masks_of_every_depth_keep_their_values() {
        use png::{BitDepth, ColorType};
        let read = |bytes: &[u8]| decode_mask(bytes, false, &Gate::default()).map(|mask| mask.data);
        let grey = ColorType::Grayscale;
        assert_eq!(
            read(&line(grey, BitDepth::Sixteen, 4, &[0, 0, 0, 1, 0, 2, 0xFF, 0xFF], &[])).unwrap(),
            [0, 1, 2, 255]
        );
        let said = read(&line(grey, BitDepth::Sixteen, 2, &[0, 0, 1, 44], &[])).unwrap_err();
        assert!(said.contains("the value 300 is not a class"), "{said}");
        assert_eq!(read(&line(grey, BitDepth::One, 3, &[0b0100_0000], &[])).unwrap(), [0, 1, 0]);
        assert_eq!(read(&line(grey, BitDepth::Two, 4, &[0b0001_1011], &[])).unwrap(), [0, 1, 2, 3]);
        let palette = [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0];
        assert_eq!(read(&line(ColorType::Indexed, BitDepth::Two, 3, &[0b0010_0100], &palette)).unwrap(), [0, 2, 1]);
        assert_eq!(read(&line(ColorType::Indexed, BitDepth::Eight, 3, &[3, 0, 1], &palette)).unwrap(), [3, 0, 1]);
    }

    #[test]
    fn masks_as_jpeg_are_black_and_white_or_refused() {
        let jpeg = |dark: u8, light: u8| {
            let half = |x: u32| if x < 16 { dark } else { light };
            let mask = image::GrayImage::from_fn(32, 32, |x, _| image::Luma([half(x)]));
            decode_mask(&encoded(&mask.into(), ImageFormat::Jpeg), false, &Gate::default())
        };
        let values = jpeg(0, 255).unwrap().data;
        assert_eq!(
            (values[0], values[31], values.iter().map(|value| usize::from(*value)).sum::<usize>()),
            (0, 255, 255 * 16 * 32)
        );
        assert!(jpeg(0, 2).unwrap_err().contains("store it as PNG"));
        assert!(jpeg(100, 255).unwrap_err().contains("store it as PNG"));
    }

    #[test]
    fn masks_in_grey_keep_their_values() {
        let grey = DynamicImage::ImageLuma8(image::ImageBuffer::from_pixel(2, 1, image::Luma([7])));
        let mask = encoded(&grey, ImageFormat::Png);
        assert_eq!(decode_mask(&mask, false, &Gate::default()).unwrap().data, [7, 7]);
        let same = DynamicImage::from(grey.to_rgb8());
        assert_eq!(decode_mask(&encoded(&same, ImageFormat::Png), false, &Gate::default()).unwrap().data, [7, 7]);
        let said = decode_mask(&encoded(&gradient(), ImageFormat::Png), false, &Gate::default()).unwrap_err();
        assert!(said.contains("no list of colours"), "{said}");
    }
}
