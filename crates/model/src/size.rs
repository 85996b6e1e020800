//! Sizes of memory as people write and read them. Every unit is a power of 1024: a GPU's
//! "48GB" is read as 48 GiB, in configuration, on the command line and in forms alike. JSON has
//! plain integers of bytes and does not come here.

pub const KIB: i64 = 1 << 10;
pub const MIB: i64 = 1 << 20;
pub const GIB: i64 = 1 << 30;
pub const TIB: i64 = 1 << 40;

/// Reads `1073741824`, `512M`, `4GiB`, `4 GB`, `1.5g`; `None` for anything else, for
/// negative sizes and for what does not fit 63 bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => TIB,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<i64>() {
        return whole.checked_mul(factor);
    }
    let number: f64 = number.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "fractions of a unit are approximate by nature")]
    let bytes = number * factor as f64;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    (bytes.is_finite() && (0.0..9.0e18).contains(&bytes)).then_some(bytes as i64)
}

/// Writes a size with at most one decimal: `512 MiB`, `1.5 GiB`, `48 GiB`.
#[must_use]
pub fn human_size(bytes: i64) -> String {
    let (unit, name) = match bytes {
        TIB.. => (TIB, "TiB"),
        GIB.. => (GIB, "GiB"),
        MIB.. => (MIB, "MiB"),
        KIB.. => (KIB, "KiB"),
        _ => return format!("{bytes} B"),
    };
    let tenths = (i128::from(bytes) * 10 + i128::from(unit) / 2) / i128::from(unit);
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

/// Writes a size for a form, which reads it back unchanged: `1.5 GiB`, `1127 MiB`, `1000 B`.
#[must_use]
pub fn exact_size(bytes: i64) -> String {
    let short = human_size(bytes);
    if parse_size(&short) == Some(bytes) {
        return short;
    }
    let units = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    let whole = units.into_iter().find(|(unit, _)| bytes % unit == 0);
    whole.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1024", 1024),
            ("512M", 512 * MIB),
            ("48GiB", 48 * GIB),
            ("48 GB", 48 * GIB),
            ("48 GiB", 48 * GIB),
            ("1.5g", 3 * GIB / 2),
            ("2T", 2 * TIB),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "-1", "G", "1e9", "NaN", "inf", "9223372036854775807K", "1 potato", "1.2.3G"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        assert_eq!(human_size(48 * GIB), "48 GiB");
        assert_eq!(human_size(3 * GIB / 2), "1.5 GiB");
        assert_eq!(human_size(2 * GIB - 1), "2 GiB");
        assert_eq!(human_size(999), "999 B");
        for (bytes, text) in
            [(3 * GIB / 2, "1.5 GiB"), (5 * GIB / 4, "1280 MiB"), (GIB + 1, "1073741825 B"), (0, "0 B")]
        {
            assert_eq!((exact_size(bytes).as_str(), parse_size(text)), (text, Some(bytes)));
        }
    }
}
