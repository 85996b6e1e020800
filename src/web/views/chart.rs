//! Bars over time, drawn as SVG without a script: places in hundredths of the width, because
//! the content policy allows no style attributes, and words beside it in HTML, so that they
//! keep their size on a phone. Pure: it gets hours and labels, and gives places.

use crate::model::time::human_hours;

/// The height of the plot in the stylesheet (pixels).
pub const HEIGHT: i64 = 160;

/// So many labels stand below it at most; on a phone every other one.
const LABELS: usize = 8;

/// One chart of hours.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Tells it from others of the page.
    pub id: &'static str,
    /// What is counted: `GPU-hours`.
    pub title: &'static str,
    /// All bars together.
    pub total: String,
    pub bars: Vec<Bar>,
    /// From the upper end of the axis down to 0.
    pub ticks: [String; 5],
}

/// One bar, with its place in the plot.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The day or week in full.
    pub label: String,
    pub value: String,
    /// In hundredths of the width, as SVG writes them.
    pub x: String,
    pub width: String,
    /// In pixels from above.
    pub y: i64,
    pub height: i64,
    /// Below the axis, where there is room for it.
    pub mark: Option<Mark>,
}

/// A label of the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub text: String,
    /// A phone has no room for it.
    pub is_spare: bool,
}

/// What a bar is drawn from.
#[derive(Clone, Debug)]
pub struct Amount {
    /// `Tue 3 Nov 2026`.
    pub label: String,
    /// `3 Nov`.
    pub short: String,
    /// GPUs or cores × milliseconds.
    pub milliseconds: i64,
}

impl Chart {
    #[must_use]
    pub fn new(id: &'static str, title: &'static str, amounts: Vec<Amount>) -> Self {
        let total = amounts.iter().fold(0_i64, |sum, amount| sum.saturating_add(amount.milliseconds));
        let most = amounts.iter().map(|amount| amount.milliseconds).max().unwrap_or_default();
        let (top, ticks) = axis(most);
        let count = amounts.len();
        let every = count.div_ceil(LABELS).max(1);
        let bar = |(number, amount): (usize, Amount)| {
            let height = scaled(amount.milliseconds, top);
            let has_mark = number % every == 0 && (every == 1 || number + every / 2 < count);
            let mark = has_mark.then_some(Mark { text: amount.short, is_spare: number / every % 2 == 1 });
            Bar {
                label: amount.label,
                value: human_hours(amount.milliseconds),
                x: percent(10 * number + 1, 10 * count),
                width: percent(8, 10 * count),
                y: HEIGHT - height,
                height,
                mark,
            }
        };
        let bars = amounts.into_iter().enumerate().map(bar).collect();
        Self { id, title, total: human_hours(total), bars, ticks }
    }

    /// Whether anything was used.
    pub fn is_empty(&self) -> bool {
        self.bars.iter().all(|bar| bar.height == 0)
    }

    /// Where lines are drawn behind the bars.
    pub fn grid() -> [i64; 5] {
        [0, 1, 2, 3, 4].map(|quarter| quarter * HEIGHT / 4)
    }
}

/// The amount at the upper end of the axis (milliseconds), not less than `most`, and what
/// stands beside its quarters from there on.
fn axis(most: i64) -> (i64, [String; 5]) {
    /// A hundredth of an hour.
    const UNIT: i64 = 36_000;
    let needed = (most.max(1) - 1) / UNIT + 1;
    let mut decade = 1_i64;
    let quarter = loop {
        // Four of these make a height; each is a number that people like to read.
        let nice = [10, 15, 20, 25, 30, 40, 50, 60, 80].map(|step| step * decade);
        if let Some(quarter) = nice.into_iter().find(|quarter| needed <= quarter.saturating_mul(4)) {
            break quarter;
        }
        match decade.checked_mul(10) {
            Some(next) if next < i64::MAX / (4 * 80 * UNIT) => decade = next,
            _ => break i64::MAX / (4 * UNIT),
        }
    };
    let label = |count: i64| match count * quarter {
        0 => "0".to_owned(),
        hundredths if hundredths % 100 == 0 => group(hundredths / 100),
        hundredths => format!("{}.{:02}", hundredths / 100, hundredths % 100).trim_end_matches('0').to_owned(),
    };
    (4 * quarter * UNIT, [4, 3, 2, 1, 0].map(label))
}

/// A whole number of hours: `1 234`.
fn group(hours: i64) -> String {
    if hours < 1000 { hours.to_string() } else { human_hours(hours.saturating_mul(3_600_000)) }
}

/// The height of a bar: what is there at all is seen.
fn scaled(milliseconds: i64, top: i64) -> i64 {
    if milliseconds <= 0 {
        return 0;
    }
    let pixels = i128::from(milliseconds) * i128::from(HEIGHT) / i128::from(top.max(1));
    i64::try_from(pixels).unwrap_or(HEIGHT).clamp(1, HEIGHT)
}

fn percent(part: usize, whole: usize) -> String {
    let thousandths = part * 100_000 / whole.max(1);
    format!("{}.{:03}%", thousandths / 1000, thousandths % 1000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn chart(hours: &[i64]) -> Chart {
        let amount = |(number, hours): (usize, &i64)| Amount {
            label: format!("day {number}"),
            short: number.to_string(),
            milliseconds: hours * HOUR,
        };
        Chart::new("c", "GPU-hours", hours.iter().enumerate().map(amount).collect())
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, expected) in [
            (0, ["0.4", "0.3", "0.2", "0.1", "0"]),
            (HOUR / 4, ["0.4", "0.3", "0.2", "0.1", "0"]),
            (HOUR / 2, ["0.6", "0.45", "0.3", "0.15", "0"]),
            (3 * HOUR / 2, ["1.6", "1.2", "0.8", "0.4", "0"]),
            (7 * HOUR, ["8", "6", "4", "2", "0"]),
            (11 * HOUR, ["12", "9", "6", "3", "0"]),
            (190 * HOUR, ["200", "150", "100", "50", "0"]),
            (44 * HOUR, ["60", "45", "30", "15", "0"]),
            (5000 * HOUR, ["6\u{202f}000", "4\u{202f}500", "3\u{202f}000", "1\u{202f}500", "0"]),
        ] {
            assert_eq!(axis(most).1, expected, "{most}");
        }
    }

    #[test]
    fn bars_have_places_and_some_have_labels() {
        let week = chart(&[0, 1, 2, 3, 4, 5, 8]);
        assert_eq!((week.bars[0].x.as_str(), week.bars[0].width.as_str()), ("1.428%", "11.428%"));
        assert_eq!((week.bars[0].height, week.bars[6].height, week.bars[6].y), (0, 160, 0));
        assert!(week.bars.iter().all(|bar| bar.mark.is_some()));
        assert_eq!((week.total.as_str(), week.is_empty()), ("23.0", false));
        let month = chart(&[1; 31]);
        let marks: Vec<_> = month.bars.iter().filter_map(|bar| bar.mark.clone()).collect();
        assert_eq!(marks.len(), 8);
        assert_eq!(marks.iter().filter(|mark| mark.is_spare).count(), 4);
        assert!(chart(&[]).is_empty() && chart(&[0, 0]).is_empty());
    }

    proptest! {
        #[test]
        fn no_bar_leaves_its_plot(hours in prop::collection::vec(0..i64::MAX, 0..60)) {
            let amounts: Vec<Amount> = hours
                .iter()
                .map(|milliseconds| Amount { label: String::new(), short: String::new(), milliseconds: *milliseconds })
                .collect();
            let chart = Chart::new("c", "x", amounts);
            for (bar, used) in chart.bars.iter().zip(&hours) {
                prop_assert!((0..=HEIGHT).contains(&bar.height) && bar.y + bar.height == HEIGHT);
                prop_assert_eq!(bar.height == 0, *used == 0);
            }
            let most = hours.iter().max().copied().unwrap_or_default();
            let (top, _) = axis(most);
            prop_assert!(most <= top || i64::MAX / 2 < most);
        }
    }
}
