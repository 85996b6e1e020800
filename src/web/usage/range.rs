//! Which time a page of usage shows: the period that hours are counted in, the last days, or
//! from one day to another, in the time zone of the quotas. Pure: words of an address become
//! two moments, or a fault beside its field.

use jiff::{ToSpan, civil::Date, tz::TimeZone};

use crate::{
    model::{
        Timestamp,
        quota::Period,
        timeline::{self, Step},
    },
    web::{
        http::{error::FieldError, href::href},
        views::{self, RangeChooser, RangeTab},
    },
};

/// The longest time that a page shows (days); what ended is kept for as long, if nobody says otherwise.
const MAX_DAYS: i64 = 400;

/// Longer times are drawn week by week (days).
const MAX_BARS: i64 = 46;

/// What an address says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeQuery<'a> {
    /// `7d`, `30d`, `90d`; anything else is the period.
    pub range: &'a str,
    /// Days, `2030-01-31`; where one is said, `range` is not looked at.
    pub from: &'a str,
    pub to: &'a str,
}

/// A time, up to now at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub from: Timestamp,
    pub to: Timestamp,
    choice: Choice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Period,
    /// Today and the days before it, so many in all.
    Days(i64),
    Custom,
}

const DAYS: [(&str, i64, &str); 3] = [("7d", 7, "7 days"), ("30d", 30, "30 days"), ("90d", 90, "90 days")];

impl Range {
    /// What is meant; where that cannot be, every fault, and the period in its place.
    pub fn read(words: RangeQuery<'_>, period: &Period, zone: &TimeZone, now: Timestamp) -> (Self, Vec<FieldError>) {
        let default = Self { from: period.window(now).from, to: now, choice: Choice::Period };
        if !words.from.is_empty() || !words.to.is_empty() {
            return match custom(words, default.from, zone, now) {
                Ok((from, to)) => (Self { from, to, choice: Choice::Custom }, Vec::new()),
                Err(faults) => (Self { choice: Choice::Custom, ..default }, faults),
            };
        }
        let days = DAYS.iter().find(|(word, ..)| *word == words.range).map(|(_, days, _)| *days);
        let from = days.and_then(|days| {
            let first = today(now, zone)?.checked_sub((days - 1).days()).ok()?;
            Some((timeline::midnight(first, zone)?, days))
        });
        match from {
            Some((from, days)) => (Self { from, to: now, choice: Choice::Days(days) }, Vec::new()),
            None => (default, Vec::new()),
        }
    }

    /// How its bars are cut.
    pub fn step(&self) -> Step {
        if self.to.seconds_since(self.from) <= MAX_BARS * 86_400 { Step::Day } else { Step::Week }
    }

    /// What says it in an address: names and values.
    pub fn words<'a>(&self, words: RangeQuery<'a>) -> Vec<(&'static str, &'a str)> {
        match self.choice {
            Choice::Period => Vec::new(),
            Choice::Days(_) => vec![("range", words.range)],
            Choice::Custom => vec![("from", words.from), ("to", words.to)],
        }
    }

    /// The choices, as the page draws them; `kept` are other words of its address.
    pub fn chooser(
        &self,
        words: RangeQuery<'_>,
        place: (&'static str, &[(&'static str, &str)]),
        (period, zone): (&Period, &TimeZone),
        errors: &[FieldError],
    ) -> RangeChooser {
        let (action, kept) = place;
        let tab = |word: Option<&str>, label: &str, choice| {
            let range = word.map(|word| ("range", word));
            let label = label.to_owned();
            RangeTab { href: href(action, range.iter().chain(kept)), label, is_current: self.choice == choice }
        };
        let first = tab(None, period_label(period), Choice::Period);
        let days = DAYS.iter().map(|(word, days, label)| tab(Some(word), label, Choice::Days(*days)));
        let day = |at| today(at, zone).map(|day| day.to_string()).unwrap_or_default();
        let (from, to) = match self.choice {
            Choice::Custom => (words.from.to_owned(), words.to.to_owned()),
            Choice::Period | Choice::Days(_) => (day(self.from), day(self.to)),
        };
        RangeChooser {
            action,
            tabs: std::iter::once(first).chain(days).collect(),
            from,
            to,
            zone: zone.iana_name().unwrap_or("UTC").to_owned(),
            kept: kept.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            errors: errors.iter().map(views::FieldError::from).collect(),
        }
    }
}

fn period_label(period: &Period) -> &'static str {
    match period {
        Period::Rolling { .. } => "Quota period",
        Period::Month(_) => "This month",
        Period::Week(_) => "This week",
    }
}

/// From the beginning of one day to the end of another, or every fault.
fn custom(
    words: RangeQuery<'_>,
    default: Timestamp,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut day = |field: &str, text: &str, later: i64| {
        let date = text.parse::<Date>().ok().and_then(|date| date.checked_add(later.days()).ok());
        let at = date.and_then(|date| timeline::midnight(date, zone));
        if at.is_none() && !text.is_empty() {
            faults.push(FieldError::new(field, "invalid_value", "Enter a date, as in 2030-01-31."));
        }
        at
    };
    let (from, to) = (day("from", words.from, 0), day("to", words.to, 1));
    if !faults.is_empty() {
        return Err(faults);
    }
    let to = to.unwrap_or(now).min(now);
    let from = from.unwrap_or_else(|| default.min(to));
    if to <= from {
        return Err(vec![FieldError::new("from", "after_to", "Must not be after the last day or today.")]);
    }
    // A day more than that, because one of them may have 25 hours.
    if MAX_DAYS * 86_400 + 3600 < to.seconds_since(from) {
        return Err(vec![FieldError::new("from", "too_long", "Choose at most 400 days.")]);
    }
    Ok((from, to))
}

fn today(now: Timestamp, zone: &TimeZone) -> Option<Date> {
    Some(jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn read(range: &str, from: &str, to: &str) -> Result<(Timestamp, Timestamp, Step), Vec<(String, String)>> {
        let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        let now = at("2026-03-20T15:00:00Z");
        let (range, faults) = Range::read(RangeQuery { range, from, to }, &Period::default(), &zone, now);
        if faults.is_empty() {
            Ok((range.from, range.to, range.step()))
        } else {
            Err(faults.into_iter().map(|fault| (fault.field, fault.code)).collect())
        }
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let now = at("2026-03-20T15:00:00Z");
        assert_eq!(read("", "", ""), Ok((at("2026-02-18T15:00:00Z"), now, Step::Day)));
        assert_eq!(read("nonsense", "", ""), read("", "", ""));
        assert_eq!(read("7d", "", ""), Ok((at("2026-03-14T04:00:00Z"), now, Step::Day)));
        // Before the change to summer time a day began an hour later.
        assert_eq!(read("30d", "", ""), Ok((at("2026-02-19T05:00:00Z"), now, Step::Day)));
        assert_eq!(read("90d", "", "").unwrap().2, Step::Week);
        let day = (at("2026-03-08T05:00:00Z"), at("2026-03-09T04:00:00Z"), Step::Day);
        assert_eq!(read("7d", "2026-03-08", "2026-03-08"), Ok(day), "a day of 23 hours");
        assert_eq!(read("", "2026-03-20", "2027-01-01"), Ok((at("2026-03-20T04:00:00Z"), now, Step::Day)));
    }

    #[test]
    fn what_cannot_be_is_said_beside_its_field() {
        let fault = |field: &str, code: &str| Err(vec![(field.to_owned(), code.to_owned())]);
        assert_eq!(read("", "yesterday", ""), fault("from", "invalid_value"));
        assert_eq!(read("", "", "2026-02-30"), fault("to", "invalid_value"));
        assert_eq!(read("", "2026-03-10", "2026-03-09"), fault("from", "after_to"));
        assert_eq!(read("", "2026-03-21", ""), fault("from", "after_to"), "the future");
        assert_eq!(read("", "2025-01-01", ""), fault("from", "too_long"));
        assert_eq!(read("", "2026-03-01", "9999-12-31"), fault("to", "invalid_value"), "the calendar ends");
        assert_eq!(read("", "x", "y").unwrap_err().len(), 2);
    }
}
