//! Reservations and maintenance of the next two weeks, drawn as bars over days. Days are those of UTC; the times beside
//! the bars are in the reader's own zone, as everywhere.

use super::{Moment, StateBadge};
use crate::model::{Maintenance, Reservation, Timestamp};

/// How many days it shows, and how wide a day is in the drawing.
pub const DAYS: i64 = 14;
pub const DAY: i64 = 100;

const DAY_MS: i64 = 86_400_000;

/// The drawing.
#[derive(Clone, Debug)]
pub struct Calendar {
    pub days: Vec<CalendarDay>,
    pub rows: Vec<CalendarRow>,
    /// Where now is.
    pub now: i64,
}

/// The head of a day: `Mon`, `24 Nov`.
#[derive(Clone, Debug)]
pub struct CalendarDay {
    pub weekday: String,
    pub date: String,
}

/// One reservation, or the portal's maintenance.
#[derive(Clone, Debug)]
pub struct CalendarRow {
    pub name: String,
    pub state: StateBadge,
    pub class: &'static str,
    pub from: Moment,
    /// `None`: until somebody ends it.
    pub to: Option<Moment>,
    /// The bar, in the units of the drawing.
    pub x: i64,
    pub width: i64,
}

impl Calendar {
    /// What there is in two weeks from the beginning of this day; `None` where that is nothing.
    #[must_use]
    pub fn new(reservations: &[Reservation], maintenance: Option<&Maintenance>, now: Timestamp) -> Option<Self> {
        let start = now.0.div_euclid(DAY_MS) * DAY_MS;
        let at = |moment: Timestamp| {
            let days = moment.0.saturating_sub(start).clamp(0, DAYS * DAY_MS);
            days * DAY / DAY_MS
        };
        let row = |name: &str, is_maintenance: bool, from: Timestamp, to: Option<Timestamp>| {
            let is_over = to.is_some_and(|to| to <= now);
            let (x, end) = (at(from), to.map_or(DAYS * DAY, at));
            (!is_over && x < DAYS * DAY).then(|| CalendarRow {
                name: name.to_owned(),
                state: match (is_maintenance, from <= now) {
                    (true, true) => StateBadge { class: "outside", word: "Maintenance" },
                    (true, false) => StateBadge { class: "queued", word: "Maintenance" },
                    (false, true) => StateBadge { class: "running", word: "Active" },
                    (false, false) => StateBadge { class: "queued", word: "Scheduled" },
                },
                class: if is_maintenance { "maintenance" } else { "reserved" },
                from: Moment::clock(from, now),
                to: to.map(|to| Moment::clock(to, now)),
                x,
                // An hour is still to be seen.
                width: (end - x).max(4),
            })
        };
        let of_portal = maintenance.and_then(|one| row("Portal maintenance", true, one.window.from, one.window.to));
        let reserved = reservations.iter().filter_map(|one| row(&one.name, one.is_maintenance, one.from, Some(one.to)));
        let rows: Vec<CalendarRow> = of_portal.into_iter().chain(reserved).collect();
        if rows.is_empty() {
            return None;
        }
        let day = |number: i64| {
            // `Mon 24 Nov, 00:00 UTC`
            let text = Timestamp(start + number * DAY_MS).minute();
            let date = text.split(',').next().unwrap_or_default();
            let (weekday, date) = date.split_once(' ').unwrap_or((date, ""));
            CalendarDay { weekday: weekday.to_owned(), date: date.to_owned() }
        };
        Some(Self { days: (0..DAYS).map(day).collect(), rows, now: at(now) })
    }

    /// Where the days begin, but the first.
    pub fn lines(&self) -> Vec<i64> {
        (1..DAYS).map(|day| day * DAY).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Window;

    /// Friday, 15 January 2027, 08:00 UTC.
    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn reservation(name: &str, from: i64, to: i64, is_maintenance: bool) -> Reservation {
        Reservation {
            name: name.to_owned(),
            from: NOW.plus_seconds(from * 3600),
            to: NOW.plus_seconds(to * 3600),
            nodes: Vec::new(),
            partition: None,
            users: Vec::new(),
            accounts: Vec::new(),
            is_maintenance,
            is_ours: false,
        }
    }

    #[test]
    fn bars_lie_on_their_days() {
        let all = [
            reservation("course", 16, 40, false),
            reservation("long", -1000, 100_000, true),
            reservation("past", -5, -1, false),
            reservation("later", 400, 500, false),
        ];
        let calendar = Calendar::new(&all, None, NOW).unwrap();
        let told: Vec<_> = calendar.rows.iter().map(|row| (row.name.as_str(), row.x, row.width)).collect();
        assert_eq!(told, [("course", 100, 100), ("long", 0, 1400)]);
        let days: Vec<_> = calendar.days.iter().take(2).map(|day| (day.weekday.as_str(), day.date.as_str())).collect();
        assert_eq!((days, calendar.days.len(), calendar.now), (vec![("Fri", "15 Jan"), ("Sat", "16 Jan")], 14, 33));
    }

    #[test]
    fn the_portals_own_maintenance_is_the_first() {
        let window = Window { from: NOW.plus_seconds(60), to: None };
        let maintenance = Maintenance { message: String::new(), window, drain_at: None, admins_may_start: false };
        let calendar = Calendar::new(&[reservation("course", 16, 17, false)], Some(&maintenance), NOW).unwrap();
        let told: Vec<_> = calendar.rows.iter().map(|row| (row.name.as_str(), row.class, row.width)).collect();
        assert_eq!(told, [("Portal maintenance", "maintenance", 1367), ("course", "reserved", 4)]);
        assert!(Calendar::new(&[], None, NOW).is_none());
    }
}
