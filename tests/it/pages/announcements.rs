//! What everybody is told, and the administrators' pages of it, filled: the strip with each
//! level, a refused form, maintenance that is ordered, and a portal with faults.

use std::time::Duration;

use lyceum::{
    model::{
        Announcement, AnnouncementId, Finding, Maintenance, Phase, Timestamp, Window,
        announcement::Level,
        finding,
        health::{self, Contact, Database},
        loops::Rounds,
        maintenance::Mode,
    },
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

fn at(seconds: i64) -> Timestamp {
    NOW.plus_seconds(seconds)
}

fn one(level: Level, text: String) -> Announcement {
    Announcement {
        id: AnnouncementId::new(),
        level,
        text,
        window: Window { from: at(-3600), to: Some(at(7200)) },
        on_login: false,
        groups: Vec::new(),
        changed_by: "chief".to_owned(),
        changed_at: at(-3600),
    }
}

fn drain(word: &Word) -> Maintenance {
    Maintenance {
        message: word("New disks: see https://status.example.org/disks."),
        window: Window { from: at(-600), to: Some(at(3 * 3600)) },
        drain_at: Some(at(2700)),
        admins_may_start: true,
    }
}

pub fn strip(word: &Word, is_signed_in: bool) -> Vec<AnnouncementLine> {
    let critical = one(Level::Critical, word("The cooling has failed: save your work now."));
    let warning = one(Level::Warning, word("The scratch disk is 95 % full: please remove what you no longer need."));
    let info =
        one(Level::Info, word("There is a new environment, see https://docs.example.org/torch for its packages."));
    let announcements = [critical, warning, info];
    let announcements = announcements.iter().map(|one| AnnouncementLine::of_announcement(one, is_signed_in));
    [AnnouncementLine::of_maintenance(&drain(word), NOW)].into_iter().chain(announcements).collect()
}

fn row(word: &Word, level: Level, text: &str, from: i64, to: Option<i64>, on_login: bool) -> AnnouncementRow {
    AnnouncementRow {
        id: AnnouncementId::new().to_string(),
        level,
        sentence: AnnouncementLine::of_announcement(&one(level, word(text)), true).sentence,
        from: Moment::clock(at(from), NOW),
        to: to.map(|to| Moment::clock(at(to), NOW)),
        on_login,
        groups: if on_login { Vec::new() } else { vec![(word("vision"), true), (word("course"), false)] },
        changed_by: word("unix:root"),
    }
}

pub fn announcements(word: &Word) -> AnnouncementsPage {
    AnnouncementsPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some("The announcement was published.".to_owned()),
        errors: Vec::new(),
        active: vec![
            row(word, Level::Critical, "The cooling has failed: save your work now.", -600, Some(3600), true),
            row(
                word,
                Level::Info,
                "There is a new environment, see https://docs.example.org/torch.",
                -86_400,
                None,
                false,
            ),
        ],
        coming: vec![row(word, Level::Warning, "The network is slow on Thursday.", 86_400, Some(90_000), false)],
        past: vec![row(word, Level::Info, "Welcome back.", -900_000, Some(-86_400), false)],
        first_href: None,
        next_href: Some("/admin/announcements?cursor=x".to_owned()),
        form: AnnouncementForm::default(),
    }
}

pub fn announcements_wrong(word: &Word) -> AnnouncementsPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    AnnouncementsPage {
        notice: None,
        errors: vec![
            error("text", "Enter a text."),
            error("from", "Enter a date and time in UTC, as in 2030-01-31T18:00."),
            error("to", "The end is before the start. Enter a later end."),
        ],
        active: Vec::new(),
        coming: Vec::new(),
        past: Vec::new(),
        next_href: None,
        form: AnnouncementForm {
            level: Level::Critical,
            text: word("x"),
            from: word("2030-01-31T18:00"),
            to: word("2030-01-30T18:00"),
            on_login: true,
            groups: word("vision, course"),
        },
        ..announcements(word)
    }
}

pub fn announcement(word: &Word) -> AnnouncementPage {
    AnnouncementPage {
        layout: layout(word).at(Nav::Administration),
        id: AnnouncementId::new().to_string(),
        errors: Vec::new(),
        phase: Phase::Active,
        form: AnnouncementForm {
            level: Level::Warning,
            text: word("The scratch disk is full."),
            from: "2030-01-31T18:00".to_owned(),
            to: String::new(),
            on_login: true,
            groups: word("vision, course"),
        },
    }
}

pub fn maintenance(word: &Word) -> MaintenancePage {
    MaintenancePage {
        layout: layout(word).at(Nav::Administration),
        notice: None,
        errors: vec![FieldError {
            field: "drain_at".to_owned(),
            message: word("Enter the time when running sessions are ended."),
        }],
        phase: None,
        says: None,
        form: MaintenanceForm {
            mode: Mode::Drain,
            message: word("New disks."),
            from: String::new(),
            to: String::new(),
            drain_at: String::new(),
            admins_may_start: false,
        },
    }
}

pub fn maintenance_on(word: &Word) -> MaintenancePage {
    MaintenancePage {
        notice: Some("Maintenance was scheduled. All users see it on their pages.".to_owned()),
        errors: Vec::new(),
        phase: Some(Phase::Active),
        says: Some(AnnouncementLine::of_maintenance(&drain(word), NOW).sentence),
        form: MaintenanceForm {
            from: "2026-11-20T14:20".to_owned(),
            to: "2026-11-20T17:30".to_owned(),
            drain_at: "2026-11-20T15:15".to_owned(),
            admins_may_start: true,
            ..maintenance(word).form
        },
        ..maintenance(word)
    }
}

pub fn health(word: &Word) -> HealthPage {
    let line = |name: &'static str, ago: i64, took: u64, error: Option<&str>| {
        let rounds = Rounds {
            every: Some(Duration::from_secs(5)),
            busy_since: None,
            last_at: Some(at(-ago)),
            took: Duration::from_millis(took),
            failed: error.is_some(),
            last_error: error.map(|error| (at(-ago), word(error))),
            skipped: std::collections::BTreeMap::default(),
        };
        LoopLine {
            finding: health::of_loop(name, &rounds, NOW),
            last: rounds.last_at.map(|at| Moment::ago(at, NOW)),
            took: format!("{took} ms"),
            error: rounds.last_error.map(|(at, error)| (Moment::ago(at, NOW), error)),
        }
    };
    let database = Database {
        kind: "SQLite",
        bytes: 73 << 20,
        latency: Duration::from_millis(1),
        schema: 10,
        last_backup: Some(at(-9 * 86_400)),
    };
    let contact = Contact {
        last_success: Some(at(-90)),
        last_error: Some((at(-20), word("the directory took longer than 10 s in all"))),
    };
    let servers = [word("ldaps://ldap1.example.org"), word("ldaps://ldap2.example.org")];
    let findings = vec![
        health::database(Some(&database)),
        health::backup(&database, NOW).unwrap(),
        Finding::new("scheduler", finding::Level::Ok, "local: the helper is running as root"),
        health::directory(&servers, &contact, NOW),
        Finding::new("environment default", finding::Level::Note, word("is being built: 36 %, Installing jaxlib")),
        finding::free_space(2 << 30, &word("/var/lib/lyceum/private")),
        finding::certificate_until(Some(at(90 * 86_400)), NOW),
    ];
    let loops = vec![
        line("access", 1, 0, None),
        line("audit log", 1, 2, Some("failed to send audit log entries to /dev/log; they are kept and sent later")),
        line("directory", 300, 10_002, None),
        line("sessions", 3, 41, None),
    ];
    HealthPage {
        layout: layout(word).at(Nav::Administration),
        worst: finding::Level::Fault,
        since: Moment { at: at(-9 * 86_400), show: Show::Since, now: NOW },
        findings,
        loops,
    }
}
