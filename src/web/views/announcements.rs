//! What everybody is told, drawn: the strip on top of every page, and the administrators' pages
//! of announcements and maintenance.

use askama::Template;

use super::{FieldError, Moment, Piece, Sentence};
use crate::{
    model::{
        Announcement, Maintenance, Phase, Timestamp,
        announcement::{self, Level},
        line::{self, Part},
        maintenance::Mode,
    },
    web::page::{self, Layout, filters},
};

/// One line of the strip.
#[derive(Clone, Debug)]
pub struct AnnouncementLine {
    /// Of an announcement; maintenance has none.
    pub id: Option<String>,
    pub look: page::Level,
    /// How much it matters, in a word: colour alone says nothing.
    pub word: &'static str,
    pub sentence: Sentence,
    /// Whether whoever is reading may put it aside.
    pub dismissible: bool,
}

/// The strip alone, for pages that keep it fresh.
#[derive(Debug, Template)]
#[template(path = "parts/announcements.html")]
pub struct AnnouncementStrip {
    pub layout: Layout,
}

impl AnnouncementLine {
    pub fn of_announcement(one: &Announcement, is_signed_in: bool) -> Self {
        let piece = |part| match part {
            Part::Words(words) => Piece::Text(words.to_owned()),
            Part::Address(address) => Piece::Link(address.to_owned()),
        };
        let (look, word) = match one.level {
            Level::Info => (page::Level::Info, "News:"),
            Level::Warning => (page::Level::Warning, "Warning:"),
            Level::Critical => (page::Level::Bad, "Important:"),
        };
        Self {
            id: Some(one.id.to_string()),
            look,
            word,
            sentence: Sentence(line::parts(&one.text).into_iter().map(piece).collect()),
            dismissible: is_signed_in && one.level != Level::Critical,
        }
    }

    /// Coming or active.
    pub fn of_maintenance(set: &Maintenance, now: Timestamp) -> Self {
        let clock = |at| Piece::At(Moment::clock(at, now));
        let mut pieces = Vec::new();
        let is_coming = set.window.phase(now) == Phase::Coming;
        if is_coming {
            pieces.extend([Piece::Text("from ".to_owned()), clock(set.window.from)]);
        }
        if let Some(to) = set.window.to {
            pieces.extend([Piece::Text(if is_coming { " until " } else { "until " }.to_owned()), clock(to)]);
        }
        let nothing = match (is_coming, set.window.to) {
            (true, _) => ": no sessions start during this time.",
            (false, Some(_)) => ": no sessions start. Pending sessions keep waiting.",
            (false, None) => "no sessions start for now. Pending sessions keep waiting.",
        };
        pieces.push(Piece::Text(nothing.to_owned()));
        match set.drain_at {
            Some(at) if now < at => {
                let left = Moment { at, show: super::Show::Left, now };
                pieces.extend([
                    Piece::Text(" Running sessions are ended ".to_owned()),
                    clock(at),
                    Piece::Text(", in ".to_owned()),
                    Piece::At(left),
                    Piece::Text(": save your work before then.".to_owned()),
                ]);
            }
            Some(_) => pieces.push(Piece::Text(" Sessions that were running have been ended.".to_owned())),
            None => pieces.push(Piece::Text(" Running sessions continue.".to_owned())),
        }
        if !set.message.is_empty() {
            pieces.push(Piece::Text(" ".to_owned()));
            pieces.extend(line::parts(&set.message).into_iter().map(|part| match part {
                Part::Words(words) => Piece::Text(words.to_owned()),
                Part::Address(address) => Piece::Link(address.to_owned()),
            }));
        }
        Self {
            id: None,
            look: page::Level::Warning,
            word: "Maintenance",
            sentence: Sentence(pieces),
            dismissible: false,
        }
    }

    /// What cannot wait is read out at once, the rest when there is a pause.
    pub fn role(&self) -> &'static str {
        if self.look == page::Level::Bad { "alert" } else { "status" }
    }
}

/// `/admin/announcements`
#[derive(Debug, Template)]
#[template(path = "admin/announcements.html")]
pub struct AnnouncementsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// Fields: `text`, `from`, `to`, `groups`.
    pub errors: Vec<FieldError>,
    pub active: Vec<AnnouncementRow>,
    pub coming: Vec<AnnouncementRow>,
    pub past: Vec<AnnouncementRow>,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    pub form: AnnouncementForm,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct AnnouncementRow {
    pub id: String,
    pub level: Level,
    pub sentence: Sentence,
    pub from: Moment,
    pub to: Option<Moment>,
    pub on_login: bool,
    /// The groups that it is for, each with whether such a group exists; empty: all users.
    pub groups: Vec<(String, bool)>,
    pub changed_by: String,
}

/// One announcement, to change it.
#[derive(Debug, Template)]
#[template(path = "admin/announcement.html")]
pub struct AnnouncementPage {
    pub layout: Layout,
    pub id: String,
    pub errors: Vec<FieldError>,
    pub phase: Phase,
    pub form: AnnouncementForm,
}

/// What was typed; times as `2030-01-31T18:00` in UTC.
#[derive(Clone, Debug)]
pub struct AnnouncementForm {
    pub level: Level,
    pub text: String,
    pub from: String,
    pub to: String,
    pub on_login: bool,
    /// Names with commas between them.
    pub groups: String,
}

impl Default for AnnouncementForm {
    fn default() -> Self {
        let (text, from, to, groups) = Default::default();
        Self { level: Level::Info, text, from, to, on_login: false, groups }
    }
}

impl AnnouncementForm {
    /// Value, word and what it means.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str, bool)> {
        let chosen = self.level;
        Level::ALL.iter().map(move |level| {
            let what = match level {
                Level::Info => "can be dismissed",
                Level::Warning => "can be dismissed, highlighted",
                Level::Critical => "cannot be dismissed; screen readers read it out immediately",
            };
            (level.as_str(), level_word(*level), what, *level == chosen)
        })
    }

    pub fn longest() -> usize {
        announcement::MAX_LENGTH
    }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Info => "Info",
        Level::Warning => "Warning",
        Level::Critical => "Critical",
    }
}

impl AnnouncementRow {
    pub fn level_word(&self) -> &'static str {
        level_word(self.level)
    }

    /// The class of its badge.
    pub fn class(&self) -> &'static str {
        match self.level {
            Level::Info => "starting",
            Level::Warning => "queued",
            Level::Critical => "failed",
        }
    }
}

/// `/admin/maintenance`
#[derive(Debug, Template)]
#[template(path = "admin/maintenance.html")]
pub struct MaintenancePage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// Fields: `message`, `from`, `to`, `drain_at`.
    pub errors: Vec<FieldError>,
    /// Coming or active; `None` where there is none.
    pub phase: Option<Phase>,
    /// What everybody reads.
    pub says: Option<Sentence>,
    pub form: MaintenanceForm,
}

/// What was typed; times as in [`AnnouncementForm`].
#[derive(Clone, Debug)]
pub struct MaintenanceForm {
    pub mode: Mode,
    pub message: String,
    pub from: String,
    pub to: String,
    pub drain_at: String,
    pub admins_may_start: bool,
}

fn error<'a>(errors: &'a [FieldError], field: &str) -> Option<&'a str> {
    errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
}

impl AnnouncementsPage {
    fn error(&self, field: &str) -> Option<&str> {
        error(&self.errors, field)
    }

    /// Each phase with its heading.
    fn phases(&self) -> [(&'static str, &'static str, &[AnnouncementRow], bool); 3] {
        [
            ("active", "Active", &self.active, true),
            ("coming", "Scheduled", &self.coming, true),
            ("past", "Past", &self.past, false),
        ]
    }
}

impl AnnouncementPage {
    fn error(&self, field: &str) -> Option<&str> {
        error(&self.errors, field)
    }
}

impl MaintenancePage {
    fn error(&self, field: &str) -> Option<&str> {
        error(&self.errors, field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AnnouncementId, Window};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn maintenance_is_told_with_its_times() {
        let at = |seconds| NOW.plus_seconds(seconds);
        let told = |from: i64, to: Option<i64>, drain: Option<i64>| {
            let set = Maintenance {
                message: "See https://status.example.org.".to_owned(),
                window: Window { from: at(from), to: to.map(at) },
                drain_at: drain.map(at),
                admins_may_start: true,
            };
            AnnouncementLine::of_maintenance(&set, NOW).sentence.to_string()
        };
        assert_eq!(
            told(0, None, None),
            "no sessions start for now. Pending sessions keep waiting. Running sessions continue. See \
             https://status.example.org."
        );
        assert_eq!(
            told(3600, Some(7200), Some(5400)),
            "from 09:00 UTC until 10:00 UTC: no sessions start during this time. Running sessions are ended 09:30 UTC, \
             in 1 h 30 min: save your work before then. See https://status.example.org."
        );
        assert!(told(-60, Some(60), Some(-30)).contains("Sessions that were running have been ended."));
    }

    #[test]
    fn only_addresses_of_the_web_are_links() {
        let one = Announcement {
            id: AnnouncementId::new(),
            level: Level::Critical,
            text: "<b>See</b> https://a.example/x?y='z'>, not javascript:alert(1)".to_owned(),
            window: Window { from: NOW, to: None },
            on_login: false,
            groups: Vec::new(),
            changed_by: "ada".to_owned(),
            changed_at: NOW,
        };
        let html = AnnouncementStrip {
            layout: Layout { announcements: vec![AnnouncementLine::of_announcement(&one, true)], ..Layout::default() },
        };
        let html = html.render().unwrap();
        assert!(html.contains("role=\"alert\"") && !html.contains("<form"), "{html}");
        assert_eq!(html.matches("<a ").count(), 1, "{html}");
        assert!(html.contains("rel=\"noopener noreferrer\"") && !html.contains("<b>See"), "{html}");
        let calm = Announcement { level: Level::Info, ..one };
        let line = AnnouncementLine::of_announcement(&calm, true);
        assert!(line.dismissible && line.role() == "status");
        assert!(!AnnouncementLine::of_announcement(&calm, false).dismissible, "whoever is not signed in is nobody");
    }
}
