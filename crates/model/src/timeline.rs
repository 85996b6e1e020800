//! Time cut into the days, weeks or months of a calendar, and which parts of an allocation's time lie in
//! which of them. What is summed up of it is `ledger`'s business, how it is drawn is `web`'s.

use jiff::{
    ToSpan, Zoned,
    civil::{Date, Weekday},
    tz::TimeZone,
};

use super::{Timestamp, quota::ConsumedTime};

/// How long a span is, but for the first and the last one, which may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Day,
    /// From Monday.
    Week,
    Month,
}

/// A part of the timeline: from a moment on, and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    pub to: Timestamp,
    /// The day that it belongs to there, the Monday of its week, or the first of its month.
    pub date: Date,
}

/// The time from `from` up to `to`, cut at midnights (or those before Mondays, or before the first of a month) of this zone.
/// A day has as many hours as it has there. What lies beyond the calendar is one span.
#[must_use]
pub fn cut(from: Timestamp, to: Timestamp, step: Step, zone: &TimeZone) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut begin = from;
    while begin < to {
        let (date, next) = span_of(begin, step, zone).unwrap_or((Date::ZERO, to));
        // Whatever a calendar does at midnight: time goes on.
        let end = next.min(to).max(Timestamp(begin.0.saturating_add(1)));
        spans.push(Span { from: begin, to: end, date });
        begin = end;
    }
    spans
}

/// The date of the span that holds this moment, and when the next one begins.
fn span_of(at: Timestamp, step: Step, zone: &TimeZone) -> Option<(Date, Timestamp)> {
    let today = jiff::Timestamp::from_millisecond(at.0).ok()?.to_zoned(zone.clone()).date();
    let (date, length) = match step {
        Step::Day => (today, 1.day()),
        Step::Week => {
            let since = today.weekday().since(Weekday::Monday);
            (today.checked_sub(i64::from(since).days()).ok()?, 1.week())
        }
        Step::Month => (today.first_of_month(), 1.month()),
    };
    let next = midnight(date.checked_add(length).ok()?, zone)?;
    Some((date, next))
}

/// When a day begins there; not everywhere at 00:00.
#[must_use]
pub fn midnight(date: Date, zone: &TimeZone) -> Option<Timestamp> {
    let begin = date.to_zoned(zone.clone()).ok()?.start_of_day().ok()?;
    Some(Timestamp(Zoned::timestamp(&begin).as_millisecond()))
}

/// The place of the first span that ends after this moment. It is looked for at `near` first, for
/// most allocations begin on the day of the one before.
#[must_use]
pub fn first_after(spans: &[Span], at: Timestamp, near: usize) -> usize {
    let is_over = |span: &Span| span.to <= at;
    let is_near = spans.get(near).is_some_and(|span| !is_over(span)) && spans[..near].last().is_none_or(is_over);
    if is_near { near } else { spans.partition_point(is_over) }
}

/// Tells of each span that holds a part of this time its place, and how long that part is; `first`
/// is the first one that ends after its beginning.
pub fn overlaps(spans: &[Span], first: usize, from: Timestamp, to: Timestamp, mut tell: impl FnMut(usize, i64)) {
    for (place, span) in spans.iter().enumerate().skip(first).take_while(|(_, span)| span.from < to) {
        tell(place, span.to.min(to).0.saturating_sub(span.from.max(from).0));
    }
}

/// The place of the span that holds this moment, looked for at `near` first.
#[must_use]
pub fn place(spans: &[Span], at: Timestamp, near: usize) -> Option<usize> {
    let place = first_after(spans, at, near);
    spans.get(place).is_some_and(|span| span.from <= at).then_some(place)
}

/// Adds so many GPUs and cores that were held for so long.
pub fn add(spent: &mut ConsumedTime, (gpus, cpus): (i64, i64), milliseconds: i64) {
    spent.gpu_milliseconds = spent.gpu_milliseconds.saturating_add(gpus.saturating_mul(milliseconds));
    spent.cpu_milliseconds = spent.cpu_milliseconds.saturating_add(cpus.saturating_mul(milliseconds));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    /// New York: summer time from the second Sunday of March to the first of November.
    fn new_york() -> TimeZone {
        TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap()
    }

    fn hours(spans: &[Span]) -> Vec<i64> {
        spans.iter().map(|span| span.to.seconds_since(span.from) / 3600).collect()
    }

    #[test]
    fn days_are_as_long_as_they_are_there() {
        let march = cut(at("2026-03-07T05:00:00Z"), at("2026-03-10T04:00:00Z"), Step::Day, &new_york());
        assert_eq!(hours(&march), [24, 23, 24]);
        assert_eq!(march[1].date.to_string(), "2026-03-08");
        let november = cut(at("2026-10-31T04:00:00Z"), at("2026-11-03T05:00:00Z"), Step::Day, &new_york());
        assert_eq!(hours(&november), [24, 25, 24]);
        // The first and the last one are cut.
        let cut_day = cut(at("2026-03-07T22:00:00Z"), at("2026-03-08T01:00:00Z"), Step::Day, &TimeZone::UTC);
        assert_eq!(hours(&cut_day), [2, 1]);
        assert_eq!(cut(Timestamp(5), Timestamp(5), Step::Day, &TimeZone::UTC), []);
    }

    #[test]
    fn weeks_begin_on_mondays() {
        // A Sunday's noon; the week with the change to summer time has an hour less.
        let spans = cut(at("2026-03-01T17:00:00Z"), at("2026-03-16T04:00:00Z"), Step::Week, &new_york());
        let dates: Vec<String> = spans.iter().map(|span| span.date.to_string()).collect();
        assert_eq!(dates, ["2026-02-23", "2026-03-02", "2026-03-09"]);
        assert_eq!(hours(&spans), [12, 167, 168]);
    }

    #[test]
    fn beyond_the_calendar_there_is_one_span() {
        let spans = cut(Timestamp(i64::MIN), Timestamp(i64::MIN + 9), Step::Day, &TimeZone::UTC);
        assert_eq!(spans.len(), 1);
        assert_eq!((spans[0].from, spans[0].to), (Timestamp(i64::MIN), Timestamp(i64::MIN + 9)));
    }

    /// An allocation: GPUs, cores, its first second and the one after its last.
    type Held = (i64, i64, i64, i64);

    fn allocations(seconds: i64) -> impl Strategy<Value = Vec<Held>> {
        let one = (0..9i64, 0..65i64, -seconds..seconds, 0..seconds);
        prop::collection::vec(one.prop_map(|(gpus, cpus, start, lasts)| (gpus, cpus, start, start + lasts)), 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Around both changes of the clock in New York: each second belongs to the date that a
        /// calendar on the wall shows then, and counts for whatever is held in it.
        #[test]
        fn spans_hold_what_counting_seconds_gives(
            all in allocations(200_000), summer in any::<bool>(), step in 0..3usize,
            from in 0..90_000i64, length in 0..200_000i64,
        ) {
            let (zone, step) = (new_york(), [Step::Day, Step::Week, Step::Month][step]);
            let start = at(if summer { "2026-03-07T12:00:00Z" } else { "2026-10-31T12:00:00Z" }).0 / 1000;
            let all: Vec<Held> = all.into_iter().map(|held| (held.0, held.1, start + held.2, start + held.3)).collect();
            let (from, to) = (start + from, start + from + length);
            let spans = cut(Timestamp(from * 1000), Timestamp(to * 1000), step, &zone);
            let mut told = vec![ConsumedTime::default(); spans.len()];
            let (mut begun, mut near) = (0, 0);
            for (gpus, cpus, first, last) in &all {
                let moments = (Timestamp(first * 1000), Timestamp(last * 1000));
                near = first_after(&spans, moments.0, near);
                overlaps(&spans, near, moments.0, moments.1, |place, part| add(&mut told[place], (*gpus, *cpus), part));
                begun += usize::from(place(&spans, moments.0, near).is_some_and(|at| spans[at].from <= moments.0));
            }
            prop_assert_eq!(begun, all.iter().filter(|held| (from..to).contains(&held.2)).count());

            let mut counted: Vec<(Date, ConsumedTime)> = Vec::new();
            // The offset changes at full hours alone, so that the date is looked up once a quarter.
            let mut date = Date::ZERO;
            for second in from..to {
                if second == from || second % 900 == 0 {
                    let local = jiff::Timestamp::from_second(second).unwrap().to_zoned(zone.clone()).date();
                    date = match step {
                        Step::Day => local,
                        Step::Week => local.checked_sub(i64::from(local.weekday().to_monday_zero_offset()).days()).unwrap(),
                        Step::Month => local.first_of_month(),
                    };
                }
                if counted.last().is_none_or(|(last, _)| *last != date) {
                    counted.push((date, ConsumedTime::default()));
                }
                let sum = &mut counted.last_mut().unwrap().1;
                for held in all.iter().filter(|held| held.2 <= second && second < held.3) {
                    sum.gpu_milliseconds += 1000 * held.0;
                    sum.cpu_milliseconds += 1000 * held.1;
                }
            }
            let told: Vec<(Date, ConsumedTime)> = spans.iter().map(|span| span.date).zip(told).collect();
            prop_assert_eq!(told, counted);
        }
    }
}
