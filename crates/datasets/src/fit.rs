//! Gives every picture one size. Where each pixel goes is a pure decision, so that boxes and
//! masks go the same way; the resampling itself is a library's.

use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer, images::Image};

use super::{catalogue::LabelledBox, colours::IGNORED, picture::Pixels, spec::Resize};

/// Where a picture goes, for each of its two directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    across: Axis,
    down: Axis,
}

/// A part of the source's length becomes a part of the target's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    from: f64,
    length: f64,
    to: u32,
    new_length: u32,
    whole: u32,
}

/// The least part of a box that must be left for it to be kept.
const MIN_PIXELS: f64 = 1.0;

impl Fit {
    /// `from` and `to` are widths and heights in pixels, none of them 0.
    pub fn new(resize: Resize, from: (u32, u32), to: (u32, u32)) -> Self {
        let across = f64::from(to.0) / f64::from(from.0);
        let down = f64::from(to.1) / f64::from(from.1);
        let (x, y) = match resize {
            Resize::Squash => (across, down),
            Resize::Crop => (across.max(down), across.max(down)),
            Resize::Fill => (across.min(down), across.min(down)),
            Resize::HalfCrop => {
                let middle = 2.0 / (1.0 / across + 1.0 / down);
                (middle, middle)
            }
        };
        Self { across: Axis::new(from.0, to.0, x), down: Axis::new(from.1, to.1, y) }
    }

    /// A picture at its new size; what it does not cover is `ground`.
    fn apply(&self, resizer: &mut Resizer, picture: Pixels, method: ResizeAlg, ground: u8) -> Result<Vec<u8>, String> {
        let (width, height) = (self.across.whole as usize, self.down.whole as usize);
        let channels = usize::from(picture.channels);
        if self.is_identity((picture.width, picture.height)) {
            return Ok(picture.data);
        }
        let pixels = if channels == 3 { PixelType::U8x3 } else { PixelType::U8 };
        let failed = |error: &dyn std::fmt::Display| format!("cannot resize the image: {error}");
        let source =
            Image::from_vec_u8(picture.width, picture.height, picture.data, pixels).map_err(|error| failed(&error))?;
        let mut part = Image::new(self.across.new_length, self.down.new_length, pixels);
        let options = ResizeOptions::new().resize_alg(method).use_alpha(false).crop(
            self.across.from,
            self.down.from,
            self.across.length,
            self.down.length,
        );
        resizer.resize(&source, &mut part, &options).map_err(|error| failed(&error))?;
        if self.across.new_length == self.across.whole && self.down.new_length == self.down.whole {
            return Ok(part.into_vec());
        }
        let mut frame = vec![ground; width * height * channels];
        let line = self.across.new_length as usize * channels;
        for (y, from) in part.buffer().chunks_exact(line).enumerate() {
            let start = ((self.down.to as usize + y) * width + self.across.to as usize) * channels;
            frame[start..start + line].copy_from_slice(from);
        }
        Ok(frame)
    }

    fn is_identity(&self, from: (u32, u32)) -> bool {
        self.across.is_identity(from.0) && self.down.is_identity(from.1)
    }

    /// Where a box of the original goes: left, top, width and height. Nothing, if less than a
    /// pixel of it is still in the picture.
    pub fn place(&self, found: &LabelledBox) -> Option<[f64; 4]> {
        let (left, right) = self.across.span(found.x, found.x + found.width);
        let (top, bottom) = self.down.span(found.y, found.y + found.height);
        let seen = right - left >= MIN_PIXELS && bottom - top >= MIN_PIXELS;
        seen.then_some([left, top, right - left, bottom - top])
    }
}

impl Axis {
    fn new(length: u32, whole: u32, scale: f64) -> Self {
        let (from, to) = (f64::from(length), f64::from(whole));
        // Half a pixel decides between padding and cutting, so that roundings do neither.
        if from * scale < to + 0.5 {
            let new_length = rounded(from * scale).clamp(1, whole);
            return Self { from: 0.0, length: from, to: (whole - new_length) / 2, new_length, whole };
        }
        let kept = (to / scale).min(from);
        Self { from: (from - kept) / 2.0, length: kept, to: 0, new_length: whole, whole }
    }

    fn is_identity(&self, length: u32) -> bool {
        self.new_length == self.whole && self.whole == length && (self.length - f64::from(length)).abs() < 1e-9
    }

    fn span(&self, start: f64, end: f64) -> (f64, f64) {
        let scale = f64::from(self.new_length) / self.length;
        let place = |at: f64| {
            let first = f64::from(self.to);
            (first + (at - self.from) * scale).clamp(first, first + f64::from(self.new_length))
        };
        (place(start), place(end))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "lengths are positive and below 2^32")]
fn rounded(length: f64) -> u32 {
    length.round() as u32
}

/// Resizes pictures one after the other, in memory of its own.
#[derive(Debug)]
pub struct PictureResizer {
    resizer: Resizer,
    resize: Resize,
    to: (u32, u32),
}

impl PictureResizer {
    pub fn new(resize: Resize, to: (u32, u32)) -> Self {
        Self { resizer: Resizer::new(), resize, to }
    }

    pub fn picture(&mut self, picture: Pixels) -> Result<Vec<u8>, String> {
        let fit = Fit::new(self.resize, (picture.width, picture.height), self.to);
        fit.apply(&mut self.resizer, picture, ResizeAlg::Convolution(FilterType::Bilinear), 0)
    }

    /// A mask keeps its values; where the picture is padded, nothing is said.
    pub fn mask(&mut self, mask: Pixels) -> Result<Vec<u8>, String> {
        let fit = Fit::new(self.resize, (mask.width, mask.height), self.to);
        fit.apply(&mut self.resizer, mask, ResizeAlg::Nearest, IGNORED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn striped(width: u32, height: u32) -> Pixels {
        let data = (0..height).flat_map(|_| (0..width).map(|x| u8::try_from(x * 200 / width).unwrap() + 20)).collect();
        Pixels { width, height, channels: 1, data }
    }

    fn resized(resize: Resize) -> Vec<u8> {
        PictureResizer::new(resize, (40, 40)).picture(striped(80, 20)).unwrap()
    }

    /// Lines of the result that are padding.
    fn padded(resize: Resize) -> usize {
        resized(resize).chunks(40).filter(|line| line.iter().all(|&value| value == 0)).count()
    }

    #[test]
    fn each_mode_covers_what_it_says() {
        assert_eq!([Resize::Squash, Resize::Crop].map(padded), [0, 0]);
        assert_eq!(padded(Resize::Fill), 30, "80 by 20 becomes 40 by 10");
        // The mean of both ratios is 1.25: 64 by 16, cut to 40 and padded by 24 lines.
        assert_eq!(padded(Resize::HalfCrop), 24);
        let ends = |resize: Resize| {
            let picture = resized(resize);
            (picture[20 * 40], picture[20 * 40 + 39])
        };
        let (left, right) = ends(Resize::Squash);
        assert!(left < 30 && right > 205, "all of it is there: {left} to {right}");
        let (left, right) = ends(Resize::Crop);
        assert!(left > 85 && right < 155, "the middle quarter is there: {left} to {right}");
    }

    #[test]
    fn a_picture_of_the_right_size_is_left_as_it_is() {
        for resize in [Resize::Squash, Resize::Crop, Resize::Fill, Resize::HalfCrop] {
            let picture = striped(40, 40);
            assert_eq!(PictureResizer::new(resize, (40, 40)).picture(picture.clone()).unwrap(), picture.data);
        }
    }

    #[test]
    fn extreme_proportions_keep_a_pixel() {
        for resize in [Resize::Squash, Resize::Crop, Resize::Fill, Resize::HalfCrop] {
            for from in [(1, 1), (1, 2000), (2000, 1), (3, 7)] {
                let picture = Pixels {
                    width: from.0,
                    height: from.1,
                    channels: 3,
                    data: vec![9; (from.0 * from.1 * 3) as usize],
                };
                let frame = PictureResizer::new(resize, (17, 5)).picture(picture).unwrap();
                assert_eq!(frame.len(), 17 * 5 * 3);
                assert!(frame.contains(&9), "{resize:?} of {from:?}");
            }
        }
    }

    #[test]
    fn boxes_go_where_the_pixels_go() {
        let found = |x, y, width, height| LabelledBox { class: 0, x, y, width, height, relative: false, fault: None };
        let place = |resize, found: &LabelledBox| Fit::new(resize, (80, 20), (40, 40)).place(found);
        let middle = found(30.0, 5.0, 20.0, 10.0);
        assert_eq!(place(Resize::Squash, &middle), Some([15.0, 10.0, 10.0, 20.0]));
        assert_eq!(
            place(Resize::Fill, &middle),
            Some([15.0, 17.0, 10.0, 5.0]).map(|b: [f64; 4]| [b[0], 17.5, b[2], b[3]])
        );
        assert_eq!(place(Resize::Crop, &middle), Some([0.0, 10.0, 40.0, 20.0]));
        assert_eq!(place(Resize::Crop, &found(0.0, 0.0, 20.0, 20.0)), None, "it is cut away");
    }

    #[test]
    fn masks_keep_their_values() {
        let mask = Pixels { width: 4, height: 2, channels: 1, data: vec![1, 1, 3, 3, 1, 1, 3, 3] };
        let frame = PictureResizer::new(Resize::Fill, (8, 8)).mask(mask).unwrap();
        assert_eq!(frame.chunks(8).filter(|line| line.iter().all(|class| *class == IGNORED)).count(), 4);
        assert!(frame.iter().all(|class| [1, 3, IGNORED].contains(class)));
    }
}
