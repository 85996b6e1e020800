//! Boxes as they are in the end: in pixels of the original, inside the picture, and with the
//! reason where one is not used.

use super::{
    catalogue::{Item, LabelledBox},
    journal::Record,
};

/// The boxes of a picture that was opened.
pub fn resolve(item: &Item, record: &Record) -> Vec<LabelledBox> {
    let (Some(width), Some(height)) = (record.width, record.height) else { return Vec::new() };
    item.boxes.iter().map(|found| resolve_one(found.clone(), f64::from(width), f64::from(height))).collect()
}

fn resolve_one(mut found: LabelledBox, width: f64, height: f64) -> LabelledBox {
    if found.relative {
        found.x *= width;
        found.y *= height;
        found.width *= width;
        found.height *= height;
        found.relative = false;
    }
    if found.fault.is_some() {
        return found;
    }
    let numbers = [found.x, found.y, found.width, found.height];
    if numbers.iter().any(|number| !number.is_finite()) {
        found.fault = Some("its four numbers do not describe a box".into());
    } else if found.width <= 0.0 || found.height <= 0.0 {
        found.fault = Some("the box has no area".into());
    } else {
        let (right, bottom) = ((found.x + found.width).min(width), (found.y + found.height).min(height));
        let (x, y) = (found.x.max(0.0), found.y.max(0.0));
        if right - x < 1.0 || bottom - y < 1.0 {
            found.fault = Some("less than one pixel of the box is inside the image".into());
        } else {
            (found.x, found.y, found.width, found.height) = (x, y, right - x, bottom - y);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(x: f64, y: f64, width: f64, height: f64, relative: bool) -> LabelledBox {
        resolve_one(LabelledBox { class: 0, x, y, width, height, relative, fault: None }, 100.0, 50.0)
    }

    #[test]
    fn boxes_are_cut_to_the_picture_or_told() {
        let numbers = |b: &LabelledBox| [b.x, b.y, b.width, b.height].map(|n| format!("{n:.1}"));
        assert_eq!(numbers(&resolved(0.1, 0.2, 0.5, 0.5, true)), ["10.0", "10.0", "50.0", "25.0"]);
        assert_eq!(numbers(&resolved(-10.0, 40.0, 30.0, 30.0, false)), ["0.0", "40.0", "20.0", "10.0"]);
        for outside in [resolved(120.0, 0.0, 10.0, 10.0, false), resolved(0.0, -20.0, 10.0, 10.0, false)] {
            assert!(outside.fault.unwrap().contains("inside the image"));
        }
        assert_eq!(resolved(1.0, 1.0, 0.0, 5.0, false).fault.as_deref(), Some("the box has no area"));
        assert_eq!(
            resolved(1.0, f64::NAN, 1.0, 5.0, false).fault.as_deref(),
            Some("its four numbers do not describe a box")
        );
    }
}
