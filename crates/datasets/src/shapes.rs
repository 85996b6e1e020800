//! Pictures for demonstrations: circles, squares and triangles on a noisy ground, with their
//! labels, boxes or masks. Each follows from the seed and its number alone, on every machine and
//! in every version, because the random numbers are hashes.

use sha2::{Digest, Sha256};

use super::{catalogue::LabelledBox, picture::Pixels, spec::Kind};

const NAMES: [&str; 3] = ["circle", "square", "triangle"];

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Shapes {
    pub seed: u32,
    pub kind: Kind,
    pub width: u32,
    pub height: u32,
}

/// One picture, before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    ground: [u8; 3],
    shapes: Vec<Shape>,
}

#[derive(Clone, Debug, PartialEq)]
struct Shape {
    /// Index in `NAMES`.
    form: u8,
    colour: [u8; 3],
    x: f64,
    y: f64,
    /// Half of its width and height.
    reach: f64,
}

/// The classes of such a set.
pub fn classes(kind: Kind) -> Vec<String> {
    let ground = (kind == Kind::Segmentation).then_some("background");
    ground.into_iter().chain(NAMES).map(str::to_owned).collect()
}

impl Shapes {
    pub fn scene(&self, number: u64) -> Scene {
        let mut random = Random::new(self.seed, number, b"scene");
        let (width, height) = (f64::from(self.width), f64::from(self.height));
        let small = width.min(height);
        // Shapes stand out: one is bright where the other is dark.
        let bright = random.below(2) == 1;
        let ground = random.colour(bright);
        let wanted = if self.kind == Kind::Classification { 1 } else { 1 + random.below(4) };
        let mut shapes: Vec<Shape> = Vec::new();
        for _ in 0..40 {
            if shapes.len() as u64 == wanted {
                break;
            }
            let form = if self.kind == Kind::Classification { number % 3 } else { random.below(3) };
            let (least, range) = if self.kind == Kind::Classification { (0.2, 0.25) } else { (0.1, 0.12) };
            let reach = (small * (least + range * random.unit())).max(3.0);
            let x = reach + (width - 2.0 * reach) * random.unit();
            let y = reach + (height - 2.0 * reach) * random.unit();
            let apart = |other: &Shape| {
                let gap = other.reach + reach + 1.0;
                (other.x - x).abs() > gap || (other.y - y).abs() > gap
            };
            if shapes.iter().all(apart) {
                let colour = random.colour(!bright);
                shapes.push(Shape { form: u8::try_from(form).unwrap_or_default(), colour, x, y, reach });
            }
        }
        Scene { ground, shapes }
    }

    /// The picture, and the class of each of its pixels.
    pub fn draw(&self, number: u64) -> (Pixels, Vec<u8>) {
        let scene = self.scene(number);
        let mut noise = Random::new(self.seed, number, b"noise");
        let mut data = Vec::with_capacity(self.width as usize * self.height as usize * 3);
        let mut mask = Vec::with_capacity(self.width as usize * self.height as usize);
        for y in 0..self.height {
            for x in 0..self.width {
                let at = (f64::from(x) + 0.5, f64::from(y) + 0.5);
                let shape = scene.shapes.iter().find(|shape| shape.covers(at));
                let colour = shape.map_or(scene.ground, |shape| shape.colour);
                mask.push(shape.map_or(0, |shape| shape.form + 1));
                let tone = i16::from(noise.byte() % 25) - 12;
                data.extend(
                    colour.map(|value| u8::try_from((i16::from(value) + tone).clamp(0, 255)).unwrap_or_default()),
                );
            }
        }
        (Pixels { width: self.width, height: self.height, channels: 3, data }, mask)
    }
}

impl Scene {
    pub fn label(&self) -> u32 {
        self.shapes.first().map_or(0, |shape| shape.form.into())
    }

    pub fn boxes(&self) -> Vec<LabelledBox> {
        let around = |shape: &Shape| LabelledBox {
            class: shape.form.into(),
            x: shape.x - shape.reach,
            y: shape.y - shape.reach,
            width: 2.0 * shape.reach,
            height: 2.0 * shape.reach,
            relative: false,
            fault: None,
        };
        self.shapes.iter().map(around).collect()
    }
}

impl Shape {
    fn covers(&self, (x, y): (f64, f64)) -> bool {
        let (dx, dy) = (x - self.x, y - self.y);
        match self.form {
            0 => dx * dx + dy * dy <= self.reach * self.reach,
            1 => dx.abs() <= self.reach && dy.abs() <= self.reach,
            // Its tip is at the top in the middle, its base as wide as its box.
            _ => dy.abs() <= self.reach && dx.abs() <= f64::midpoint(dy, self.reach),
        }
    }
}

/// Numbers that look random: hashes of seed, number, purpose and a counter.
struct Random {
    seed: Sha256,
    block: [u8; 32],
    used: usize,
    counter: u64,
}

impl Random {
    fn new(seed: u32, number: u64, purpose: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(number.to_le_bytes());
        hash.update(purpose);
        Self { seed: hash, block: [0; 32], used: 32, counter: 0 }
    }

    fn byte(&mut self) -> u8 {
        if self.used == self.block.len() {
            let mut hash = self.seed.clone();
            hash.update(self.counter.to_le_bytes());
            self.block = hash.finalize().into();
            self.counter += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn below(&mut self, end: u64) -> u64 {
        (u64::from(self.word()) * end) >> 32
    }

    /// From 0 up to 1.
    fn unit(&mut self) -> f64 {
        f64::from(self.word()) / f64::from(u32::MAX)
    }

    fn colour(&mut self, bright: bool) -> [u8; 3] {
        let base = if bright { 150 } else { 10 };
        [0; 3].map(|_| base + self.byte() % 90)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(kind: Kind) -> Shapes {
        Shapes { seed: 7, kind, width: 64, height: 48 }
    }

    #[test]
    fn the_same_number_is_the_same_picture() {
        assert_eq!(shapes(Kind::Detection).draw(3).0, shapes(Kind::Detection).draw(3).0);
        assert_ne!(shapes(Kind::Detection).draw(3).0, shapes(Kind::Detection).draw(4).0);
    }

    #[test]
    fn boxes_hold_what_the_mask_shows() {
        let shapes = shapes(Kind::Detection);
        for number in 0..50 {
            let (_, mask) = shapes.draw(number);
            let boxes = shapes.scene(number).boxes();
            assert!((1..=4).contains(&boxes.len()));
            for (at, class) in (0_u32..).zip(&mask).filter(|(_, class)| **class > 0) {
                let (x, y) = (f64::from(at % 64) + 0.5, f64::from(at / 64) + 0.5);
                let inside = |b: &&LabelledBox| x >= b.x && x <= b.x + b.width && y >= b.y && y <= b.y + b.height;
                let found = boxes.iter().find(inside).expect("no pixel of a shape is outside of all boxes");
                assert_eq!(found.class + 1, u32::from(*class));
            }
            assert!(boxes.iter().all(|b| b.x >= 0.0 && b.y >= 0.0 && b.x + b.width <= 64.0 && b.y + b.height <= 48.0));
        }
    }

    #[test]
    fn a_label_is_the_only_shape() {
        let shapes = shapes(Kind::Classification);
        for number in 0..9 {
            let (_, mask) = shapes.draw(number);
            let label = u8::try_from(shapes.scene(number).label()).unwrap();
            assert_eq!(u64::from(label), number % 3);
            assert!(mask.contains(&(label + 1)) && mask.iter().all(|class| [0, label + 1].contains(class)));
        }
    }
}
