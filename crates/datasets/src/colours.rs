//! What the colours of masks mean: a list of names with their colours, or the palette that
//! Pascal VOC made common. A mask of another colour there is ignored at that place, and counted.

use super::text;

/// The class of a pixel that belongs to none.
pub const IGNORED: u8 = 255;

const VOC: [&str; 21] = [
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "dining table",
    "dog",
    "horse",
    "motorbike",
    "person",
    "potted plant",
    "sheep",
    "sofa",
    "train",
    "monitor",
];
/// VOC's outlines, which belong to nothing on purpose.
const VOC_EDGE: [u8; 3] = [224, 224, 192];

/// Names of classes, and which colour means which.
#[derive(Clone, Debug, PartialEq)]
pub struct Colours {
    pub names: Vec<String>,
    /// Sorted by colour.
    classes: Vec<([u8; 3], u8)>,
}

impl Colours {
    pub fn voc() -> Self {
        let names = VOC.iter().map(|name| (*name).to_owned()).collect();
        Self::new(names, (0..21).map(|class| (voc_colour(class), class)).chain([(VOC_EDGE, IGNORED)]).collect())
    }

    /// Lines of `name red green blue`, or with the numbers first; commas divide as well as spaces.
    /// Several colours may have one name.
    pub fn parse(content: &str) -> Result<Self, String> {
        let (mut names, mut classes): (Vec<String>, Vec<([u8; 3], u8)>) = (Vec::new(), Vec::new());
        for (number, line) in text::lines(content) {
            let words: Vec<&str> = line.split([',', ' ', '\t']).filter(|word| !word.is_empty()).collect();
            let (colour, name) = cvat(line)
                .or_else(|| colour_and_name(&words))
                .ok_or_else(|| format!("line {number} is not a name with red, green and blue values (0 to 255)"))?;
            let class = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            let class = u8::try_from(class)
                .ok()
                .filter(|class| *class != IGNORED)
                .ok_or("the file names more than 255 classes")?;
            if classes.iter().any(|(known, _)| *known == colour) {
                return Err(format!("line {number} repeats a colour"));
            }
            classes.push((colour, class));
        }
        if names.is_empty() {
            Err("the file does not contain any colours".to_owned())
        } else {
            Ok(Self::new(names, classes))
        }
    }

    fn new(names: Vec<String>, mut classes: Vec<([u8; 3], u8)>) -> Self {
        classes.sort_unstable();
        Self { names, classes }
    }

    /// The class of each pixel of a mask in red, green and blue, and how many had an unknown colour.
    pub fn classify(&self, pixels: &[u8]) -> (Vec<u8>, u64) {
        let (mut unknown, mut last) = (0, ([0; 3], self.class([0; 3])));
        let (pixels, _) = pixels.as_chunks::<3>();
        let classes = pixels.iter().map(|pixel| {
            if *pixel != last.0 {
                last = (*pixel, self.class(*pixel));
            }
            unknown += u64::from(last.1.is_none());
            last.1.unwrap_or(IGNORED)
        });
        (classes.collect(), unknown)
    }

    fn class(&self, colour: [u8; 3]) -> Option<u8> {
        let at = self.classes.binary_search_by_key(&colour, |(known, _)| *known).ok()?;
        Some(self.classes[at].1)
    }
}

/// CVAT's `name:red,green,blue:parts:actions`.
fn cvat(line: &str) -> Option<([u8; 3], String)> {
    let (name, rest) = line.split_once(':')?;
    let colour = rest.split(':').next()?;
    let values: Option<Vec<u8>> = colour.split(',').map(|value| value.trim().parse().ok()).collect();
    Some((values?.try_into().ok()?, name.trim().to_owned()))
}

fn colour_and_name(words: &[&str]) -> Option<([u8; 3], String)> {
    let colour = |three: &[&str]| -> Option<[u8; 3]> {
        let values: Option<Vec<u8>> = three.iter().map(|word| word.parse().ok()).collect();
        values?.try_into().ok()
    };
    if words.len() < 4 {
        return None;
    }
    let (front, back) = (words.split_at(3), words.split_at(words.len() - 3));
    let found = match (colour(back.1), colour(front.0)) {
        (Some(found), _) => (found, back.0.join(" ")),
        (None, Some(found)) => (found, front.1.join(" ")),
        (None, None) => return None,
    };
    Some(found)
}

/// The bits of the number, spread over the three colours from the highest down.
fn voc_colour(class: u8) -> [u8; 3] {
    let bit = |at: u8| (class >> at) & 1;
    let spread = |first: u8| {
        (0..3).map(|round| if first + 3 * round < 8 { bit(first + 3 * round) << (7 - round) } else { 0 }).sum()
    };
    [spread(0), spread(1), spread(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_colours() {
        let colours = Colours::parse("road 128 64 128\r\n# no\n0,0,255, parked car\nroad 1 2 3\n").unwrap();
        assert_eq!(colours.names, ["road", "parked car"]);
        let (classes, unknown) = colours.classify(&[128, 64, 128, 0, 0, 255, 9, 9, 9, 1, 2, 3, 0, 0, 0]);
        assert_eq!((classes, unknown), (vec![0, 1, IGNORED, 0, IGNORED], 2));
        let cvat = Colours::parse("# label:color_rgb:parts:actions\nbackground:0,0,0::\nbig cup:0,200,0::\n").unwrap();
        assert_eq!(cvat.names, ["background", "big cup"]);
        assert_eq!(cvat.classify(&[0, 200, 0]), (vec![1], 0));
        assert!(Colours::parse("road 1 2\n").unwrap_err().contains("line 1"));
        assert!(Colours::parse("road 1 2 256\n").unwrap_err().contains("line 1"));
        assert!(Colours::parse("a 1 2 3\nb 1 2 3\n").unwrap_err().contains("repeats a colour"));
        assert!(Colours::parse("").is_err());
    }

    #[test]
    fn the_common_palette() {
        assert_eq!([voc_colour(0), voc_colour(1), voc_colour(15)], [[0, 0, 0], [128, 0, 0], [192, 128, 128]]);
        assert_eq!(voc_colour(20), [0, 64, 128]);
        assert_eq!(Colours::voc().classify(&VOC_EDGE), (vec![IGNORED], 0));
    }
}
