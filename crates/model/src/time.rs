//! Time: whole milliseconds since 1970 in the database, RFC 3339 UTC outside.
//! The clock is a value that is handed in, so that a test can move it; it is the one place
//! that reads the system's time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, in whole milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// The time of day for a sentence that is kept: `14:02 UTC`.
    #[must_use]
    pub fn clock(self) -> String {
        let at = jiff::Timestamp::from_millisecond(self.0);
        at.map_or_else(|_beyond| self.to_string(), |at| at.strftime("%H:%M UTC").to_string())
    }

    /// Formats the minute with its day, in UTC, for a sentence that is kept: `Thu 5 Nov, 18:00 UTC`.
    #[must_use]
    pub fn minute(self) -> String {
        let at = jiff::Timestamp::from_millisecond(self.0);
        at.map_or_else(|_beyond| self.to_string(), |at| at.strftime("%a %-d %b, %H:%M UTC").to_string())
    }

    /// Whole seconds from `earlier` to this moment; negative when it lies before.
    #[must_use]
    pub const fn seconds_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl From<i64> for Timestamp {
    fn from(milliseconds: i64) -> Self {
        Self(milliseconds)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A moment beyond the calendar (a limit that means "never") is its end.
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(end).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp =
            text.parse().map_err(|_err| de::Error::custom(format!("`{text}` is not an RFC 3339 time")))?;
        Ok(Self(time.as_millisecond()))
    }
}

/// Where "now" comes from: the system, or a test's hand.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// The system's clock without the jumps that it makes when somebody sets it: the time since
    /// the boot, and so many milliseconds more. See [`Clock::even`].
    Even(Arc<AtomicI64>),
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The system's clock as it goes now. When that is set, this one goes on evenly until
    /// somebody has moved what depends on it and calls [`Clock::follow`].
    #[must_use]
    pub fn even() -> Self {
        Self::Even(Arc::new(AtomicI64::new(ahead_of_boot())))
    }

    /// How far an even clock is ahead of the time since the boot, in milliseconds; `None` for
    /// clocks of the other kinds.
    pub fn ahead(&self) -> Option<i64> {
        match self {
            Self::Even(ahead) => Some(ahead.load(Ordering::SeqCst)),
            Self::System | Self::Manual(_) => None,
        }
    }

    /// By how much the system's clock was set since an even clock followed it (milliseconds).
    pub fn jump(&self) -> i64 {
        self.ahead().map_or(0, |ahead| ahead_of_boot().saturating_sub(ahead))
    }

    /// From now on an even clock is so far ahead of the time since the boot (milliseconds).
    pub fn follow(&self, ahead: i64) {
        if let Self::Even(known) = self {
            known.store(ahead, Ordering::SeqCst);
        }
    }

    /// A clock that stands still until [`Clock::advance`].
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => system_time(),
            Self::Even(ahead) => Timestamp(since_boot().saturating_add(ahead.load(Ordering::SeqCst))),
            Self::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock; the system's clock is left alone.
    pub fn advance(&self, seconds: i64) {
        if let Self::Manual(now) = self {
            now.fetch_add(seconds * 1000, Ordering::SeqCst);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
fn system_time() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

/// Milliseconds since the boot; nobody can set this clock.
fn since_boot() -> i64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000)
}

fn ahead_of_boot() -> i64 {
    system_time().0.saturating_sub(since_boot())
}

/// A moment (milliseconds since 1970) as HTTP's headers write it; empty where the calendar ends.
pub fn http_date(at_ms: i64) -> String {
    let format = "%a, %d %b %Y %H:%M:%S GMT";
    jiff::Timestamp::from_millisecond(at_ms).map_or_else(|_beyond| String::new(), |at| at.strftime(format).to_string())
}

/// A moment as people and forms write it: RFC 3339, or a day and a time of UTC
/// (`2030-01-31T18:00`, `2030-01-31 18:00`).
pub fn parse_moment(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(Timestamp(at.as_millisecond()));
    }
    // A day alone is no moment.
    let is_moment = text.contains(':');
    let at = text.parse::<jiff::civil::DateTime>().ok().filter(|_| is_moment)?;
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some(Timestamp(at.as_millisecond()))
}

/// The same, or a day, which is its first moment: `2030-01-31`.
#[must_use]
pub fn parse_day_or_moment(text: &str) -> Option<Timestamp> {
    let day = || text.trim().parse::<jiff::civil::Date>().ok().filter(|_| !text.contains(':'));
    parse_moment(text).or_else(|| {
        let midnight = day()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(Timestamp(midnight.timestamp().as_millisecond()))
    })
}

/// A moment as a form's field for a day and a time has it, in UTC: `2030-01-31T18:00`.
pub fn form_moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0)
        .map_or_else(|_beyond| String::new(), |at| at.strftime("%Y-%m-%dT%H:%M").to_string())
}

/// A length of time as people write it (`90s`, `30m`, `8h`, `2d`, or plain seconds), in seconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(seconds).filter(|seconds| *seconds >= 0);
    }
    if let Some(days) = text.strip_suffix('d') {
        return days.trim().parse::<i64>().ok()?.checked_mul(86_400).filter(|seconds| *seconds >= 0);
    }
    let span: jiff::SignedDuration = text.parse().ok()?;
    Some(span.as_secs()).filter(|seconds| *seconds >= 0)
}

/// A length of time for a form, which reads it back unchanged: `90s`, `30m`, `8h`, `2d`.
#[must_use]
pub fn exact_duration(seconds: i64) -> String {
    match seconds {
        0 => "0s".to_owned(),
        _ if seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        _ if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        _ if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// A length of time as a person reads it: `45 s`, `12 min`, `1 h 12 min`, `3 d 4 h`.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, 0) => format!("{hours} h"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, 0, _) => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// GPUs or cores × milliseconds as hours: `0`, `< 0.1`, `12.5`, `1 234`.
#[must_use]
pub fn human_hours(milliseconds: i64) -> String {
    let tenths = milliseconds.max(0) / 360_000;
    match tenths {
        0 if milliseconds <= 0 => "0".to_owned(),
        0 => "<\u{a0}0.1".to_owned(),
        1..1000 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => {
            let digits = (tenths / 10).to_string();
            let groups: Vec<&str> =
                digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
            groups.join("\u{202f}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_reads_back_what_it_shows() {
        for (seconds, text) in [(90, "90s"), (1800, "30m"), (5400, "90m"), (28_800, "8h"), (172_800, "2d"), (0, "0s")] {
            assert_eq!((exact_duration(seconds).as_str(), parse_duration(text)), (text, Some(seconds)));
        }
    }

    #[test]
    fn dates_of_http() {
        assert_eq!(http_date(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(i64::MAX), "");
    }

    #[test]
    fn moments_of_forms() {
        let at = Timestamp(1_896_112_800_000);
        for text in ["2030-01-31T18:00", "2030-01-31 18:00", " 2030-01-31T18:00:00Z ", "2030-01-31T19:00:00+01:00"] {
            assert_eq!(parse_moment(text), Some(at), "{text}");
        }
        assert_eq!(form_moment(at), "2030-01-31T18:00");
        for text in ["", "2030-01-31", "18:00", "tomorrow", "2030-02-30T18:00", "99999-01-01T00:00", "1"] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("30m", 1800), ("8h", 28_800), ("2d", 172_800), ("1h30m", 5400), ("1h 30m", 5400)]
        {
            assert_eq!(parse_duration(text), Some(seconds), "{text}");
        }
        for text in ["", "-1", "-2h", "x", "1e9", "99999999999999999999d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(human_duration(4320), "1 h 12 min");
        assert_eq!(human_duration(59), "59 s");
        assert_eq!(human_duration(28_800), "8 h");
    }

    #[test]
    fn hours() {
        let hour = 3_600_000;
        let told =
            [0, -5, 1, hour / 2, 12 * hour + hour / 2 + 99, 99 * hour, 100 * hour, 1234 * hour, 12_345_678 * hour]
                .map(human_hours);
        assert_eq!(
            told,
            ["0", "0", "<\u{a0}0.1", "0.5", "12.5", "99.0", "100", "1\u{202f}234", "12\u{202f}345\u{202f}678"]
        );
    }

    #[test]
    fn an_even_clock_goes_with_the_systems_until_that_is_set() {
        let clock = Clock::even();
        let apart = || Clock::System.now().0 - clock.now().0;
        assert!(apart().abs() < 1000 && clock.jump().abs() < 1000);
        // As if the system's clock had been an hour slow when this one began.
        let ahead = clock.ahead().unwrap();
        clock.follow(ahead - 3_600_000);
        assert!((apart() - 3_600_000).abs() < 1000 && (clock.jump() - 3_600_000).abs() < 1000);
        clock.follow(ahead);
        assert!(apart().abs() < 1000);
        let manual = Clock::manual(Timestamp(5));
        assert_eq!((manual.ahead(), manual.jump()), (None, 0));
    }

    #[test]
    fn rfc_3339_round_trip() {
        let time = Timestamp(1_700_000_000_123);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"2023-11-14T22:13:20.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
    }
}
