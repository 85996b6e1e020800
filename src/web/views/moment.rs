//! Moments on a page. The server knows no reader's time zone, so each is drawn as
//! `<time datetime=…>` with UTC inside, and `app.js` rewrites it in the browser's zone and
//! keeps lengths of time fresh.

use std::fmt;

use askama::filters::HtmlSafe;

use crate::model::{Timestamp, time::human_duration};

/// How a moment is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// `17:30`, with the day where it is not today.
    Clock,
    /// `12 min`, the time until then.
    Left,
    /// `4 min ago`.
    Ago,
    /// `4 min`, the time since then, counting up.
    Since,
}

/// A moment, as the page tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Timestamp,
    pub show: Show,
    /// When the page was drawn.
    pub now: Timestamp,
}

impl Moment {
    pub fn clock(at: Timestamp, now: Timestamp) -> Self {
        Self { at, show: Show::Clock, now }
    }

    pub fn ago(at: Timestamp, now: Timestamp) -> Self {
        Self { at, show: Show::Ago, now }
    }

    /// The words for a reader of plain text, in UTC.
    pub fn plain(&self) -> String {
        let since = self.now.seconds_since(self.at);
        match self.show {
            Show::Clock => {
                let today = day(self.at) == day(self.now);
                format_utc(self.at, if today { "%H:%M UTC" } else { "%a %-d %b %H:%M UTC" })
            }
            Show::Left => human_duration(-since),
            Show::Since => human_duration(since),
            Show::Ago if since < 10 => "just now".to_owned(),
            Show::Ago => format!("{} ago", human_duration(since)),
        }
    }
}

fn day(at: Timestamp) -> i64 {
    at.0.div_euclid(86_400_000)
}

fn format_utc(at: Timestamp, format: &str) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.to_string(), |time| time.strftime(format).to_string())
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = match self.show {
            Show::Clock => "clock",
            Show::Left => "left",
            Show::Ago => "ago",
            Show::Since => "since",
        };
        let (at, full) = (self.at, format_utc(self.at, "%Y-%m-%d %H:%M:%S UTC"));
        write!(f, r#"<time datetime="{at}" data-show="{show}" title="{full}">{}</time>"#, self.plain())
    }
}

/// It writes its own markup, made of numbers and our own words.
impl HtmlSafe for Moment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_in_utc_where_no_script_runs() {
        let now = Timestamp(1_700_000_000_000);
        let told = |seconds, show| Moment { at: now.plus_seconds(seconds), show, now }.plain();
        assert_eq!(told(4320, Show::Clock), "23:25 UTC");
        assert_eq!(told(86_400, Show::Clock), "Wed 15 Nov 22:13 UTC");
        assert_eq!(told(4320, Show::Left), "1 h 12 min");
        assert_eq!(told(-240, Show::Ago), "4 min ago");
        assert_eq!(told(-5, Show::Ago), "just now");
        assert_eq!(told(-65, Show::Since), "1 min");
        assert_eq!(
            Moment::clock(now, now).to_string(),
            r#"<time datetime="2023-11-14T22:13:20Z" data-show="clock" title="2023-11-14 22:13:20 UTC">22:13 UTC</time>"#
        );
    }

    #[test]
    fn moments_beyond_the_calendar_are_its_end() {
        let far = Timestamp(i64::MAX);
        assert!(Moment::clock(far, Timestamp(0)).to_string().contains(r#"datetime="9999-12-30T22:00:00"#));
    }
}
