//! `/cluster`: the machine and its GPUs. The drawing of use over time is made here: a step for
//! each part of the time that was measured, on a band where the GPU was held.

use std::{collections::BTreeSet, fmt::Write};

use askama::Template;

use super::{Calendar, Meter, Moment, StateBadge};
use crate::{
    db::gpus::{Point, Span},
    model::Timestamp,
    web::page::{Layout, filters},
};

/// The page of the machines.
#[derive(Debug, Template)]
#[template(path = "cluster.html")]
pub struct ClusterPage {
    pub layout: Layout,
    pub notice: Option<&'static str>,
    pub node: NodeStrip,
    pub calendar: Option<Calendar>,
    /// Whether sessions are kept from the GPUs of others.
    pub isolation: Option<&'static str>,
    /// Why there are no GPUs.
    pub empty: Option<NoGpus>,
    pub gpus: Vec<GpuRow>,
    /// How many of them can be had now.
    pub free: usize,
    /// What time the drawings cover.
    pub over: TimeChoice,
    /// Sessions whose GPUs rest, for those who see everybody's.
    pub idle: Vec<IdleRow>,
    /// Whether the reader may ask and stop.
    pub may_act: bool,
    pub matrix: Option<Matrix>,
}

/// A machine in a line.
#[derive(Clone, Debug)]
pub struct NodeStrip {
    pub name: String,
    pub meters: Vec<Meter>,
    pub facts: Vec<String>,
}

/// Why no GPUs are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoGpus {
    NoDriver {
        library: String,
        why: String,
    },
    /// The driver is there; the configuration gives none out, or it shows none.
    NoneGivenOut,
    NotLookedYet,
}

/// A GPU, or a slice of one.
#[derive(Clone, Debug)]
pub struct GpuRow {
    /// `0`, or `0:3` for a slice.
    pub label: String,
    pub model: String,
    pub uuid: String,
    pub state: StateBadge,
    /// Why it is not given out.
    pub why: Option<String>,
    /// Which operator keeps it from new work, since when and why.
    pub withheld: Option<(String, Moment, String)>,
    /// How old the last answer is; `None` where nothing is measured.
    pub seen: Option<Moment>,
    /// What it computes now.
    pub percent: Option<i64>,
    pub spark: Option<Spark>,
    pub memory: Option<Meter>,
    /// Temperature, power.
    pub facts: Vec<String>,
    pub health: Vec<String>,
    /// Somebody should look at its health.
    pub worries: bool,
    pub holder: Option<GpuHolder>,
    /// Programs that no session started.
    pub outside: BTreeSet<String>,
}

/// Who holds a GPU, as far as the reader may know.
#[derive(Clone, Debug)]
pub struct GpuHolder {
    /// `None`: the reader.
    pub owner: Option<String>,
    pub session: Option<String>,
    pub href: Option<String>,
}

/// Names a session with idle GPUs.
#[derive(Clone, Debug)]
pub struct IdleRow {
    pub id: String,
    /// The job of which it is an attempt.
    pub job: Option<String>,
    pub name: String,
    pub owner: String,
    /// `0, 1`
    pub gpus: String,
    /// How many it holds in all.
    pub of: usize,
    pub since: Moment,
    /// Who asked, and when.
    pub asked: Option<(String, Moment)>,
}

/// The links between GPUs, as `nvidia-smi topo -m` draws them.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// A GPU's number, and its link to each.
    pub rows: Vec<(String, Vec<MatrixCell>)>,
    /// The words that appear and what they mean, the nearest first.
    pub legend: Vec<(String, &'static str)>,
}

#[derive(Clone, Debug)]
pub struct MatrixCell {
    pub word: String,
    pub class: &'static str,
}

/// What time the drawings cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeChoice {
    #[default]
    Hour,
    Day,
    Month,
}

impl TimeChoice {
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    /// Anything unknown is the last hour.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|choice| choice.value() == text).unwrap_or_default()
    }

    pub fn value(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Hour => "Last hour",
            Self::Day => "Last day",
            Self::Month => "30 days",
        }
    }

    pub fn seconds(self) -> i64 {
        match self {
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Month => 30 * 86_400,
        }
    }

    /// What the points are the means of.
    pub fn span(self) -> Span {
        if self == Self::Month { Span::Hour } else { Span::Minute }
    }

    /// Into how many parts the time is drawn.
    fn parts(self) -> i64 {
        match self {
            Self::Hour => 60,
            Self::Day => 96,
            Self::Month => 120,
        }
    }
}

/// Use over time, ready to be drawn in a box of [`Spark::WIDTH`] by [`Spark::HEIGHT`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spark {
    /// The area, as an SVG path; empty where nothing was measured.
    pub path: String,
    /// Where it was held: begin and width.
    pub held: Vec<(i64, i64)>,
    /// The mean and the highest part, in percent.
    pub mean: Option<(i64, i64)>,
}

impl Spark {
    pub const WIDTH: i64 = 240;
    pub const HEIGHT: i64 = 28;

    /// Draws the time up to `now`; `held` are the times in which somebody held it.
    #[must_use]
    pub fn new(over: TimeChoice, now: Timestamp, points: &[&Point], held: &[(Timestamp, Timestamp)]) -> Self {
        let parts = over.parts();
        let length = over.seconds() * 1000 / parts;
        let begin = now.0 - over.seconds() * 1000;
        let mut sums: Vec<(f64, i64)> = vec![(0.0, 0); usize::try_from(parts).unwrap_or(0)];
        for point in points {
            // A minute's point stands for its middle.
            let middle = point.at.0 + over.span().seconds() * 500;
            let part = (middle - begin).div_euclid(length);
            if let Some(sum) = usize::try_from(part).ok().and_then(|part| sums.get_mut(part)) {
                #[expect(clippy::cast_precision_loss, reason = "counts of readings are small")]
                let readings = point.readings as f64;
                *sum = (sum.0 + point.utilisation * readings, sum.1 + point.readings);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of readings are small")]
        let mean = |(sum, readings): (f64, i64)| (readings > 0).then(|| sum / readings as f64);
        let means: Vec<Option<f64>> = sums.iter().copied().map(mean).collect();
        let total = sums.iter().fold((0.0, 0), |all, part| (all.0 + part.0, all.1 + part.1));
        let highest = means.iter().flatten().copied().fold(0.0, f64::max);
        let place =
            |at: Timestamp| ((at.0 - begin).clamp(0, over.seconds() * 1000)) * Self::WIDTH / (over.seconds() * 1000);
        let bands = held.iter().map(|(from, to)| (place(*from), place(*to)));
        Self {
            path: path(&means),
            held: bands.map(|(from, to)| (from, (to - from).max(0))).filter(|(_, width)| *width > 0).collect(),
            mean: mean(total).map(|mean| (whole(mean), whole(highest))),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a percentage is small, and what is not becomes the largest")]
fn whole(percent: f64) -> i64 {
    percent.clamp(0.0, 100.0).round() as i64
}

/// Steps with gaps where nothing was measured. A little use still shows.
fn path(means: &[Option<f64>]) -> String {
    let parts = i64::try_from(means.len()).unwrap_or(1).max(1);
    let x = |part: i64| part * Spark::WIDTH / parts;
    let mut path = String::new();
    let mut open = false;
    for (part, mean) in (0..).zip(means) {
        match mean {
            Some(mean) => {
                if !open {
                    let _ = write!(path, "M{} {}", x(part), Spark::HEIGHT);
                }
                let height = (whole(*mean) * Spark::HEIGHT / 100).max(1);
                let _ = write!(path, "V{}H{}", Spark::HEIGHT - height, x(part + 1));
                open = true;
            }
            None if open => {
                let _ = write!(path, "V{}Z", Spark::HEIGHT);
                open = false;
            }
            None => {}
        }
    }
    if open {
        let _ = write!(path, "V{}Z", Spark::HEIGHT);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_over_time() {
        let now = Timestamp(7_200_000);
        let point = |minute: i64, utilisation| Point {
            uuid: "a".to_owned(),
            at: Timestamp(3_600_000 + minute * 60_000),
            readings: 12,
            utilisation,
            memory_bytes: 0.0,
            milliwatts: 0.0,
            celsius: None,
        };
        let points = [point(0, 100.0), point(1, 50.0), point(3, 0.0), point(59, 25.0)];
        let points: Vec<&Point> = points.iter().collect();
        let held = [(Timestamp(0), Timestamp(5_400_000)), (now, now)];
        let spark = Spark::new(TimeChoice::Hour, now, &points, &held);
        assert_eq!(spark.path, "M0 28V0H4V14H8V28ZM12 28V27H16V28ZM236 28V21H240V28Z");
        assert_eq!(spark.held, [(0, 120)]);
        assert_eq!(spark.mean, Some((44, 100)));
        assert_eq!(Spark::new(TimeChoice::Month, now, &[], &[]), Spark::default());
    }

    #[test]
    fn addresses_hold_what_they_like() {
        assert_eq!(TimeChoice::parse("day"), TimeChoice::Day);
        assert_eq!(TimeChoice::parse("'x"), TimeChoice::Hour);
    }
}
