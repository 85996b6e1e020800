//! The table of results, drawn: its tools, its rows with small lines, groups with a mean and a band. Every heading
//! and every tool is a link or a field of a form, so that it works without scripts; with them it is
//! brought up to date in its place.

use std::fmt::Write;

use super::RunRow;

/// The table with its tools.
#[derive(Clone, Debug)]
pub struct ResultsView {
    pub filter: String,
    /// Why the filter or another tool was not understood.
    pub wrong: Option<String>,
    /// `best`, `last` or `at`.
    pub value: &'static str,
    pub step: String,
    pub with_same: bool,
    /// Runs of helper jobs too.
    pub with_helpers: bool,
    /// Keys and names of what groups can be made by; the one that is chosen.
    pub groups: Vec<(String, String)>,
    pub group: String,
    pub choice: Vec<ColumnChoice>,
    /// Whether columns were chosen.
    pub is_chosen: bool,
    /// Parameters that the form's fields do not have.
    pub kept: Vec<(&'static str, String)>,
    pub says: String,
    /// With nothing but the runs themselves.
    pub reset_href: Option<String>,
    pub heads: Vec<Head>,
    pub rows: Vec<ResultLineView>,
    /// Headings of metrics, for the table of groups.
    pub group_heads: Vec<String>,
    pub group_rows: Vec<GroupView>,
    pub next_href: Option<String>,
    pub first_href: Option<String>,
    /// The ids of picked runs.
    pub picked: String,
}

/// A column that may be shown.
#[derive(Clone, Debug)]
pub struct ColumnChoice {
    pub key: String,
    pub label: String,
    pub is_metric: bool,
    pub is_shown: bool,
}

/// A heading that orders by its column.
#[derive(Clone, Debug)]
pub struct Head {
    pub key: String,
    pub label: String,
    pub is_number: bool,
    pub href: String,
    /// `ascending` or `descending`, where rows are ordered by it.
    pub way: Option<&'static str>,
    /// An arrow, with its number where there are two.
    pub arrow: String,
}

/// One run.
#[derive(Clone, Debug)]
pub struct ResultLineView {
    pub run: RunRow,
    pub is_picked: bool,
    pub is_base: bool,
    /// Where it is the baseline, or is no more.
    pub base_href: String,
    pub cells: Vec<CellView>,
}

/// What it has in one column.
#[derive(Clone, Debug)]
pub struct CellView {
    pub label: String,
    pub text: String,
    pub is_number: bool,
    pub is_missing: bool,
    pub step: Option<i64>,
    pub delta: Option<String>,
    pub is_best: bool,
    /// An SVG path.
    pub line: Option<String>,
}

/// Runs of one value.
#[derive(Clone, Debug)]
pub struct GroupView {
    pub name: String,
    pub count: usize,
    /// Their curves, drawn together.
    pub href: String,
    /// One for each metric, where they have it.
    pub spreads: Vec<Option<SpreadView>>,
}

#[derive(Clone, Debug)]
pub struct SpreadView {
    pub mean: String,
    pub deviation: Option<String>,
    pub range: String,
    pub count: usize,
    /// SVG paths: the mean, and the area from the least to the greatest.
    pub line: String,
    pub band: String,
}

/// The size of a small line (pixels).
pub const LINE_WIDTH: f32 = 64.0;
pub const LINE_HEIGHT: f32 = 18.0;

/// An SVG path through values at even distances; gaps where there is none.
pub fn path(values: &[Option<f32>], low: f32, high: f32) -> String {
    let mut drawn = String::new();
    let mut down = false;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else {
            down = false;
            continue;
        };
        let (x, y) = place(at, values.len(), *value, low, high);
        // Writing to a string does not fail. A point alone is a dot of the line's width.
        let _ = if down { write!(drawn, "L{x:.1} {y:.1}") } else { write!(drawn, "M{x:.1} {y:.1}h.1") };
        down = true;
    }
    drawn
}

/// The area between two lines, where there are both.
pub fn area(low: &[Option<f32>], high: &[Option<f32>], least: f32, greatest: f32) -> String {
    let there: Vec<usize> =
        (0..low.len().min(high.len())).filter(|at| low[*at].is_some() && high[*at].is_some()).collect();
    let mut drawn = String::new();
    let corners = there.iter().map(|at| (*at, high[*at])).chain(there.iter().rev().map(|at| (*at, low[*at])));
    for (number, (at, value)) in corners.enumerate() {
        let (x, y) = place(at, low.len(), value.unwrap_or(least), least, greatest);
        let _ = write!(drawn, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
    }
    if !drawn.is_empty() {
        drawn.push('Z');
    }
    drawn
}

/// The least and the greatest of some values.
pub fn bounds<'a>(values: impl Iterator<Item = &'a Option<f32>>) -> (f32, f32) {
    values.flatten().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

#[expect(clippy::cast_precision_loss, reason = "there are a few values")]
fn place(at: usize, count: usize, value: f32, low: f32, high: f32) -> (f32, f32) {
    let room = |size: f32| size - 4.0;
    let x = 2.0 + room(LINE_WIDTH) * at as f32 / (count.max(2) - 1) as f32;
    let part = if high > low { (value - low) / (high - low) } else { 0.5 };
    (x, LINE_HEIGHT - 2.0 - room(LINE_HEIGHT) * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps_and_fits() {
        let values = [Some(0.0), Some(1.0), None, Some(0.5)];
        assert_eq!(bounds(values.iter()), (0.0, 1.0));
        assert_eq!(path(&values, 0.0, 1.0), "M2.0 16.0h.1L22.0 2.0M62.0 9.0h.1");
        assert_eq!(path(&[Some(3.0)], 3.0, 3.0), "M2.0 9.0h.1");
        assert_eq!(path(&[], 0.0, 1.0), "");
    }

    #[test]
    fn a_band_is_closed() {
        let (low, high) = ([Some(0.0), Some(0.0)], [Some(1.0), Some(0.5)]);
        assert_eq!(area(&low, &high, 0.0, 1.0), "M2.0 2.0L62.0 9.0L62.0 16.0L2.0 16.0Z");
        assert_eq!(area(&[None], &[None], 0.0, 1.0), "");
    }
}
