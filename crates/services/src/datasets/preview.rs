//! Small pictures for pages: a resized picture of a dataset, made smaller once more, its mask in
//! colours, and what the four ways to resize would make of somebody's own picture. Everything
//! becomes a PNG of ours; no byte of a stranger's file reaches a browser as it is.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage, RgbaImage};

use super::build::{
    fit::PictureResizer,
    picture::{Gate, Pixels, decode},
    spec::Resize,
};

/// The longest side of a small picture.
pub const SIDE: u32 = 160;

/// Colours of classes in masks and boxes, told apart by most eyes; they come again.
pub const COLOURS: [[u8; 3]; 10] = [
    [78, 121, 167],
    [242, 142, 43],
    [225, 87, 89],
    [118, 183, 178],
    [89, 161, 79],
    [237, 201, 72],
    [176, 122, 161],
    [255, 157, 167],
    [156, 117, 95],
    [186, 176, 172],
];

/// A picture as PNG, no larger than [`SIDE`] unless `full`.
pub fn thumbnail(picture: Pixels, full: bool) -> Option<Vec<u8>> {
    let (width, height) = size(picture.width, picture.height, full);
    let channels = picture.channels;
    let data = PictureResizer::new(Resize::Squash, (width, height)).picture(picture).ok()?;
    encode(width, height, channels, data)
}

/// A mask over its picture: a colour for each class, nothing where it says nothing.
pub fn mask(width: u32, height: u32, classes: Vec<u8>) -> Option<Vec<u8>> {
    let colour = |class: u8| match class {
        255 => [0, 0, 0, 0],
        class => {
            let [red, green, blue] = COLOURS[usize::from(class) % COLOURS.len()];
            [red, green, blue, 150]
        }
    };
    png(&RgbaImage::from_raw(width, height, classes.into_iter().flat_map(colour).collect())?.into())
}

/// What each way to resize makes of a picture, in the order of [`Resize`], or why it is none.
pub fn example(bytes: &[u8], resize: Resize, to: (u32, u32), channels: u8, full: bool) -> Result<Vec<u8>, String> {
    let picture = decode(bytes, channels, &Gate::default())?;
    let data = PictureResizer::new(resize, to).picture(picture)?;
    let frame = Pixels { width: to.0, height: to.1, channels, data };
    thumbnail(frame, full).ok_or_else(|| "cannot show the image".to_owned())
}

/// A picture that somebody's program made, drawn anew.
pub fn redrawn(bytes: &[u8]) -> Option<Vec<u8>> {
    let picture = decode(bytes, 3, &Gate::default()).ok()?;
    encode(picture.width, picture.height, 3, picture.data)
}

/// A mask that somebody's program made, a class for each pixel, in the colours of the classes.
pub fn coloured(bytes: &[u8]) -> Option<Vec<u8>> {
    let found = decode(bytes, 1, &Gate::default()).ok()?;
    mask(found.width, found.height, found.data)
}

fn size(width: u32, height: u32, full: bool) -> (u32, u32) {
    let longest = width.max(height).max(1);
    if full || longest <= SIDE {
        return (width, height);
    }
    ((width * SIDE / longest).max(1), (height * SIDE / longest).max(1))
}

fn encode(width: u32, height: u32, channels: u8, data: Vec<u8>) -> Option<Vec<u8>> {
    if channels == 1 {
        png(&GrayImage::from_raw(width, height, data)?.into())
    } else {
        png(&RgbImage::from_raw(width, height, data)?.into())
    }
}

fn png(picture: &DynamicImage) -> Option<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, ImageFormat::Png).ok()?;
    Some(bytes.into_inner())
}
