//! The period that GPU-hours and core-hours are counted in, and what was spent in it: the
//! overlap of every allocation with the period, and what those that run may still spend.
//! Where the intervals come from is `db`'s business.

use std::fmt;

use jiff::{ToSpan, Zoned, tz::TimeZone};

use crate::Timestamp;

/// Over which time hours are summed up.
#[derive(Clone, Debug, PartialEq)]
pub enum Period {
    /// The last so many days.
    Rolling { days: i32 },
    /// From the first of the month in this time zone.
    Month(TimeZone),
    /// From Monday in this time zone.
    Week(TimeZone),
}

/// A period at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Timestamp,
    /// When a new one begins; a rolling one never does.
    pub to: Option<Timestamp>,
}

/// What one allocation holds and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub gpus: i64,
    pub cpus: i64,
    pub started_at: Timestamp,
    /// `None` while it is held.
    pub ended_at: Option<Timestamp>,
    /// While it is held: when it ends at the latest.
    pub ends_by: Timestamp,
}

/// GPUs and cores × time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumedTime {
    pub gpu_milliseconds: i64,
    pub cpu_milliseconds: i64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPeriod {
    #[error("a period must be `month`, `week`, or a number of days from `1d` to `366d`")]
    Length,
    #[error("this machine has no time zone `{0}`; use a name such as `Europe/Berlin` or `UTC`")]
    Zone(String),
}

/// A time zone by its name. UTC is there also where the machine has no list of zones.
pub fn zone_of(name: &str) -> Result<TimeZone, BadPeriod> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_unknown| BadPeriod::Zone(name.to_owned()))
}

impl Period {
    /// From the configuration: `30d`, `month`, `week`, with the time zone of the latter two.
    pub fn parse(length: &str, zone: &str) -> Result<Self, BadPeriod> {
        match length {
            "month" => Ok(Self::Month(zone_of(zone)?)),
            "week" => Ok(Self::Week(zone_of(zone)?)),
            _ => {
                let days = length.strip_suffix('d').and_then(|days| days.parse().ok());
                let days = days.filter(|days| (1..=366).contains(days)).ok_or(BadPeriod::Length)?;
                Ok(Self::Rolling { days })
            }
        }
    }

    #[must_use]
    pub fn window(&self, now: Timestamp) -> Window {
        match self {
            Self::Rolling { days } => Window { from: now.plus_seconds(-86_400 * i64::from(*days)), to: None },
            Self::Month(zone) => calendar(now, zone, Zoned::first_of_month, |first| first.checked_add(1.month())),
            Self::Week(zone) => calendar(
                now,
                zone,
                |today| today.checked_sub(i64::from(today.weekday().to_monday_zero_offset()).days()),
                |monday| monday.checked_add(1.week()),
            ),
        }
    }
}

/// From the day that `first` leads to until the one that `next` leads to, both at midnight there.
fn calendar(
    now: Timestamp,
    zone: &TimeZone,
    first: impl Fn(&Zoned) -> Result<Zoned, jiff::Error>,
    next: impl Fn(&Zoned) -> Result<Zoned, jiff::Error>,
) -> Window {
    let bounds = || {
        let now = jiff::Timestamp::from_millisecond(now.0)?.to_zoned(zone.clone());
        let from = first(&now)?.start_of_day()?;
        let to = next(&from)?.start_of_day()?;
        Ok::<_, jiff::Error>((from, to))
    };
    // Beyond the calendar's ends there is no month; then everything counts.
    bounds().map_or(Window { from: Timestamp(i64::MIN), to: None }, |(from, to)| Window {
        from: Timestamp(from.timestamp().as_millisecond()),
        to: Some(Timestamp(to.timestamp().as_millisecond())),
    })
}

impl Window {
    /// What was spent of these until `now`, and what those that are held may still spend in this
    /// period.
    #[must_use]
    pub fn spent(&self, intervals: impl IntoIterator<Item = Interval>, now: Timestamp) -> ConsumedTime {
        let (mut gpus, mut cpus) = (0_i64, 0_i64);
        for interval in intervals {
            let end = interval.ended_at.unwrap_or_else(|| interval.ends_by.max(now));
            let milliseconds = self.part(interval.started_at, end);
            gpus = gpus.saturating_add(milliseconds.saturating_mul(interval.gpus));
            cpus = cpus.saturating_add(milliseconds.saturating_mul(interval.cpus));
        }
        ConsumedTime { gpu_milliseconds: gpus, cpu_milliseconds: cpus }
    }

    /// How much of this time falls into the period (milliseconds).
    #[must_use]
    pub fn part(&self, start: Timestamp, end: Timestamp) -> i64 {
        let end = self.to.map_or(end, |to| to.min(end));
        end.0.saturating_sub(start.max(self.from).0).max(0)
    }
}

/// As a sentence goes on behind “40 GPU-hours”: `for 30 days`, `this month`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rolling { days: 1 } => f.write_str("for 24 hours"),
            Self::Rolling { days } => write!(f, "for {days} days"),
            Self::Month(_) => f.write_str("this month"),
            Self::Week(_) => f.write_str("this week"),
        }
    }
}

impl Default for Period {
    fn default() -> Self {
        Self::Rolling { days: 30 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn periods_are_read_and_named() {
        assert_eq!(Period::parse("30d", ""), Ok(Period::Rolling { days: 30 }));
        assert_eq!(Period::parse("month", "UTC").unwrap().to_string(), "this month");
        for length in ["", "0d", "367d", "30", "-1d", "1e3d", "year"] {
            assert_eq!(Period::parse(length, "UTC"), Err(BadPeriod::Length), "{length}");
        }
        assert_eq!(Period::parse("week", "Mars/Olympus"), Err(BadPeriod::Zone("Mars/Olympus".to_owned())));
    }

    #[test]
    fn windows() {
        let window = |period: Period, now: &str| period.window(at(now));
        let rolling = window(Period::Rolling { days: 7 }, "2026-03-08T12:00:00Z");
        assert_eq!(rolling, Window { from: at("2026-03-01T12:00:00Z"), to: None });
        let month = window(Period::Month(TimeZone::UTC), "2026-12-31T23:59:59.999Z");
        assert_eq!(month, Window { from: at("2026-12-01T00:00:00Z"), to: Some(at("2027-01-01T00:00:00Z")) });
        let week = window(Period::Week(TimeZone::UTC), "2026-11-22T10:00:00Z");
        assert_eq!(week, Window { from: at("2026-11-16T00:00:00Z"), to: Some(at("2026-11-23T00:00:00Z")) });
        // Its Monday is the first day.
        assert_eq!(window(Period::Week(TimeZone::UTC), "2026-11-23T00:00:00Z").from, at("2026-11-23T00:00:00Z"));
        // New York goes to summer time on 8 March 2026: the month is an hour shorter.
        let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        let march = window(Period::Month(zone), "2026-03-20T00:00:00Z");
        assert_eq!(march, Window { from: at("2026-03-01T05:00:00Z"), to: Some(at("2026-04-01T04:00:00Z")) });
    }

    fn spent(gpu_seconds: i64, cpu_seconds: i64) -> ConsumedTime {
        ConsumedTime { gpu_milliseconds: gpu_seconds * 1000, cpu_milliseconds: cpu_seconds * 1000 }
    }

    #[test]
    fn what_runs_is_counted_to_its_end_within_the_period() {
        let (now, hour) = (at("2026-03-31T20:00:00Z"), 3600);
        let runs = Interval {
            gpus: 2,
            cpus: 8,
            started_at: now.plus_seconds(-hour),
            ended_at: None,
            ends_by: now.plus_seconds(7 * hour),
        };
        let month = Period::Month(TimeZone::UTC).window(now);
        assert_eq!(month.spent([runs], now), spent(2 * 5 * hour, 8 * 5 * hour));
        let rolling = Period::default().window(now);
        assert_eq!(rolling.spent([runs], now).gpu_milliseconds, 2 * 8 * hour * 1000);
        // It is past its end and still there: what it took so far counts.
        let late = Interval { ends_by: now.plus_seconds(-1), ..runs };
        assert_eq!(rolling.spent([late], now).gpu_milliseconds, 2 * hour * 1000);
    }

    fn intervals() -> impl Strategy<Value = Vec<Interval>> {
        let one = (0..9i64, 0..33i64, -300..300i64, prop::option::of(0..200i64), 0..200i64);
        let one = one.prop_map(|(gpus, cpus, start, lasted, more)| Interval {
            gpus,
            cpus,
            started_at: Timestamp(start * 1000),
            ended_at: lasted.map(|seconds| Timestamp((start + seconds) * 1000)),
            ends_by: Timestamp((start + more) * 1000),
        });
        prop::collection::vec(one, 0..8)
    }

    proptest! {
        #[test]
        fn overlap_is_what_counting_seconds_gives(
            intervals in intervals(), now in -100..400i64, from in -300..300i64, length in prop::option::of(0..300i64),
        ) {
            let window = Window { from: Timestamp(from * 1000), to: length.map(|length| Timestamp((from + length) * 1000)) };
            let mut expected = ConsumedTime::default();
            for second in -400..800i64 {
                let moment = Timestamp(second * 1000);
                if moment < window.from || window.to.is_some_and(|to| to <= moment) {
                    continue;
                }
                for interval in &intervals {
                    let end = interval.ended_at.unwrap_or(interval.ends_by.max(Timestamp(now * 1000)));
                    if interval.started_at <= moment && moment < end {
                        expected.gpu_milliseconds += 1000 * interval.gpus;
                        expected.cpu_milliseconds += 1000 * interval.cpus;
                    }
                }
            }
            prop_assert_eq!(window.spent(intervals, Timestamp(now * 1000)), expected);
        }
    }
}
