//! Amounts as people type them, field by field: `4`, `48 GiB`, `8 h`. What cannot be meant is
//! refused with what would be right: a bare number where a unit belongs, a unit where things
//! are counted, fractions of what is whole. Programs send whole numbers and do not come here.

use super::{Field, Unit};
use crate::{
    size::{GIB, KIB, MIB, TIB, parse_size},
    time::parse_duration,
};

impl Field {
    /// Reads what somebody typed; `Err` says what would be right.
    pub fn read(&self, text: &str) -> Result<i64, String> {
        let text = text.trim();
        let refused = |what: &str| Err(what.to_owned());
        if text.is_empty() {
            return refused(&format!("Enter an amount, for example {}.", self.example()));
        }
        if text.starts_with(['-', '\u{2212}']) {
            return refused("This must not be negative. For no limit, choose “Unlimited”.");
        }
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if is_digits && text.trim_start_matches('0').len() > 18 {
            return refused("This number is too large. For no limit, choose “Unlimited”.");
        }
        let bare = text.parse::<i64>().ok();
        let read = match (self.unit(), bare) {
            (_, Some(0)) => return Ok(0),
            (Unit::Count | Unit::Hours, bare) => bare,
            (Unit::Bytes | Unit::Seconds, Some(number)) => {
                return Err(format!("{number} of what? Write the unit: {}.", self.example()));
            }
            (Unit::Bytes, None) => parse_size(text),
            (Unit::Seconds, None) => parse_duration(text),
        };
        read.ok_or_else(|| match self.unit() {
            Unit::Bytes => "Write a size as 48 GiB, 512 MiB or 1.5 TiB.".to_owned(),
            Unit::Seconds => "Write a time as 8 h, 90 min or 2 d.".to_owned(),
            Unit::Count | Unit::Hours if text.parse::<f64>().is_ok() => {
                "Write a whole number in full, such as 4 or 1000: no fractions, no powers.".to_owned()
            }
            Unit::Count | Unit::Hours => {
                format!("Write a whole number alone, such as {}: {} are counted.", self.example(), self.plural())
            }
        })
    }

    /// As it can be typed again, to the last byte and second: `4`, `48 GiB`, `90 min`.
    #[must_use]
    pub fn write(&self, value: i64) -> String {
        let whole = |units: &[(i64, &str)]| {
            let (unit, name) = units.iter().find(|(unit, _)| value % unit == 0).unwrap_or(&units[units.len() - 1]);
            format!("{} {name}", value / unit)
        };
        match self.unit() {
            _ if value == 0 => "0".to_owned(),
            Unit::Bytes => whole(&[(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B")]),
            Unit::Seconds => whole(&[(3600, "h"), (60, "min"), (1, "s")]),
            Unit::Count | Unit::Hours => value.to_string(),
        }
    }

    /// What a program would write, where people write as [`Field::read`] wants it.
    #[must_use]
    pub fn in_json(&self) -> i64 {
        self.read(self.example()).unwrap_or_default()
    }

    fn example(&self) -> &'static str {
        match self.unit() {
            Unit::Bytes => "48 GiB",
            Unit::Seconds => "8 h",
            Unit::Hours => "200",
            Unit::Count => "4",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (field, text, value) in [
            (Field::Gpus, "4", 4),
            (Field::Gpus, " 0 ", 0),
            (Field::GpuHours, "2000", 2000),
            (Field::MemoryBytes, "48 GiB", 48 * GIB),
            (Field::MemoryBytes, "48 GB", 48 * GIB),
            (Field::MemoryBytes, "48GiB", 48 * GIB),
            (Field::MemoryBytes, "48g", 48 * GIB),
            (Field::MemoryBytes, "1.5 TiB", 3 * TIB / 2),
            (Field::MemoryBytes, "0", 0),
            (Field::MaxSessionSeconds, "8 h", 28_800),
            (Field::MaxSessionSeconds, "90 min", 5400),
            (Field::MaxSessionSeconds, "2d", 172_800),
            (Field::IdleTimeoutSeconds, "0", 0),
        ] {
            assert_eq!(field.read(text), Ok(value), "{field:?} {text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_explained() {
        for (field, text, says) in [
            (Field::Gpus, "", "example 4"),
            (Field::Gpus, "-1", "Unlimited"),
            (Field::Gpus, "\u{2212}2", "Unlimited"),
            (Field::Gpus, "1.5", "no fractions"),
            (Field::Gpus, "1e9", "no powers"),
            (Field::Gpus, "48 GiB", "GPUs are counted"),
            (Field::GpuHours, "8 h", "GPU-hours are counted"),
            (Field::Gpus, "99999999999999999999", "too large"),
            (Field::MemoryBytes, "48", "48 of what? Write the unit: 48 GiB."),
            (Field::MemoryBytes, "1e9", "48 GiB"),
            (Field::MemoryBytes, "48 potatoes", "48 GiB"),
            (Field::MemoryBytes, "9999999999 TiB", "48 GiB"),
            (Field::MaxSessionSeconds, "8", "8 of what? Write the unit: 8 h."),
            (Field::MaxSessionSeconds, "8 GB", "8 h"),
            (Field::MaxSessionSeconds, "-8h", "Unlimited"),
        ] {
            let said = field.read(text).expect_err(text);
            assert!(said.contains(says), "{field:?} {text:?}: {said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in 0..i64::MAX / 2, which in 0..Field::ALL.len()) {
            let field = &Field::ALL[which];
            // The largest numbers of things are refused when they are typed.
            let value = if value.to_string().len() > 18 { value / 1000 } else { value };
            prop_assert_eq!(field.read(&field.write(value)), Ok(value));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,24}", which in 0..Field::ALL.len()) {
            if let Ok(value) = Field::ALL[which].read(&text) {
                prop_assert!(value >= 0);
            }
        }
    }
}
