//! Mean and deviation of the pictures to train with, and their mean picture. The sums are whole
//! numbers, so that the order in which pictures come changes nothing.

use std::io::{self, Cursor};

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};

use super::spec::Spec;

/// Values that are summed at a time, in the fastest memory; multiples of one and of three channels.
const TILE: usize = 64 * LANES;
const LANES: usize = 48;

pub struct Mean {
    width: u32,
    height: u32,
    channels: usize,
    pictures: u64,
    /// Of each value of a picture.
    sums: Vec<u64>,
    /// Of the squares, for each channel.
    squares: Vec<u64>,
}

impl Mean {
    pub fn new(spec: &Spec) -> Self {
        let channels = usize::from(spec.channels);
        let values = spec.width as usize * spec.height as usize * channels;
        Self {
            width: spec.width,
            height: spec.height,
            channels,
            pictures: 0,
            sums: vec![0; values],
            squares: vec![0; channels],
        }
    }

    /// Bytes of a picture.
    pub fn values(&self) -> usize {
        self.sums.len()
    }

    /// Adds pictures that lie one behind the other.
    pub fn add(&mut self, pictures: &[u8]) {
        let values = self.values();
        // So many that no sum of 32 bits overflows: 512 × (TILE / LANES) squares of 255.
        for pictures in pictures.chunks(values * 512) {
            self.pictures += (pictures.len() / values) as u64;
            for (tile, sums) in self.sums.chunks_mut(TILE).enumerate() {
                let (mut tile_sums, mut squares) = ([0_u32; TILE], [0_u32; LANES]);
                for picture in pictures.chunks_exact(values) {
                    let part = &picture[tile * TILE..][..sums.len()];
                    tile_sums.iter_mut().zip(part).for_each(|(sum, &value)| *sum += u32::from(value));
                    for lanes in part.chunks(LANES) {
                        let square = |value: u8| u32::from(u16::from(value) * u16::from(value));
                        squares.iter_mut().zip(lanes).for_each(|(sum, &value)| *sum += square(value));
                    }
                }
                sums.iter_mut().zip(tile_sums).for_each(|(sum, more)| *sum += u64::from(more));
                let channels = (0..self.channels).cycle();
                channels.zip(squares).for_each(|(channel, more)| self.squares[channel] += u64::from(more));
            }
        }
    }

    /// Mean and standard deviation of each channel.
    pub fn channels(&self) -> (Vec<f64>, Vec<f64>) {
        let values = float(self.pictures * u64::from(self.width) * u64::from(self.height)).max(1.0);
        let mean = |channel: usize| float(self.sums.iter().skip(channel).step_by(self.channels).sum()) / values;
        let means: Vec<f64> = (0..self.channels).map(mean).collect();
        let deviation = |(&mean, &squares): (&f64, &u64)| (float(squares) / values - mean * mean).max(0.0).sqrt();
        let deviations = means.iter().zip(&self.squares).map(deviation).map(rounded).collect();
        (means.into_iter().map(rounded).collect(), deviations)
    }

    /// The mean picture as PNG.
    pub fn picture(&self) -> io::Result<Vec<u8>> {
        let half = self.pictures / 2;
        let values = self.sums.iter().map(|sum| u8::try_from((sum + half) / self.pictures.max(1)).unwrap_or(u8::MAX));
        let values: Vec<u8> = values.collect();
        let picture = if self.channels == 1 {
            GrayImage::from_raw(self.width, self.height, values).map(DynamicImage::from)
        } else {
            RgbImage::from_raw(self.width, self.height, values).map(DynamicImage::from)
        };
        let mut bytes = Cursor::new(Vec::new());
        let picture = picture.ok_or_else(|| io::Error::other("the mean image has a different size"))?;
        picture.write_to(&mut bytes, ImageFormat::Png).map_err(io::Error::other)?;
        Ok(bytes.into_inner())
    }
}

/// Six digits behind the point are enough, and alike everywhere.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_a_chequer() {
        let spec: Spec = serde_json::from_str(
            r#"{"kind":"classification","source":{"kind":"generated","count":9},"output":"/o","width":2,"height":1}"#,
        )
        .unwrap();
        let mut mean = Mean::new(&spec);
        mean.add(&[0, 10, 255, 0, 30, 255, 100, 10, 255, 100, 30, 255]);
        assert_eq!(mean.channels(), (vec![50.0, 20.0, 255.0], vec![50.0, 10.0, 0.0]));
        let picture = image::load_from_memory(&mean.picture().unwrap()).unwrap().into_rgb8();
        assert_eq!(picture.into_raw(), [50, 10, 255, 50, 30, 255]);
    }

    #[test]
    fn means_of_many_and_of_large_pictures() {
        for (width, height, channels, count) in [(61, 53, 3, 2), (1, 1, 3, 70_000), (1, 1, 1, 1025), (97, 64, 1, 3)] {
            let spec = format!(
                r#"{{"kind":"classification","source":{{"kind":"generated","count":9}},"output":"/o",
                    "width":{width},"height":{height},"channels":{channels}}}"#
            );
            let mut mean = Mean::new(&serde_json::from_str(&spec).unwrap());
            let values = width * height * channels;
            // The brightest there is, so that a sum that is too narrow shows.
            let bright = |at: usize| if at.is_multiple_of(7) { u8::try_from(at % 251).unwrap() } else { 255 };
            let pictures: Vec<u8> = (0..values * count).map(bright).collect();
            mean.add(&pictures);
            let of = |channel: usize| pictures.iter().skip(channel).step_by(channels).map(|&value| f64::from(value));
            let (means, deviations) = mean.channels();
            for channel in 0..channels {
                let number = float((width * height * count) as u64);
                let expected = of(channel).sum::<f64>() / number;
                let spread = of(channel).map(|value| (value - expected).powi(2)).sum::<f64>() / number;
                assert!((means[channel] - expected).abs() < 1e-5 && (deviations[channel] - spread.sqrt()).abs() < 1e-5);
            }
        }
    }
}
