//! Mean and deviation of the pictures to train with, and their mean picture. The sums are whole
//! numbers, so that the order in which pictures come changes nothing.

use std::io::{self, Cursor};

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};

use super::spec::Spec;

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

    pub fn add(&mut self, picture: &[u8]) {
        self.pictures += 1;
        self.sums.iter_mut().zip(picture).for_each(|(sum, &value)| *sum += u64::from(value));
        for pixel in picture.chunks_exact(self.channels) {
            self.squares.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += u64::from(value) * u64::from(value));
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
        let picture = picture.ok_or_else(|| io::Error::other("the mean picture has another size"))?;
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
        mean.add(&[0, 10, 255, 0, 30, 255]);
        mean.add(&[100, 10, 255, 100, 30, 255]);
        assert_eq!(mean.channels(), (vec![50.0, 20.0, 255.0], vec![50.0, 10.0, 0.0]));
        let picture = image::load_from_memory(&mean.picture().unwrap()).unwrap().into_rgb8();
        assert_eq!(picture.into_raw(), [50, 10, 255, 50, 30, 255]);
    }
}
