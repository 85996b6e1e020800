//! `lyceum admin maintenance …` and `lyceum admin announce …`: on the database itself, also
//! while the portal runs, whose pages show it within a second. Times are moments of UTC
//! (`2030-01-31T18:00`), `now`, or lengths of time from now (`2h`).

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use super::Out;
use crate::{
    announcements::{Announcements, Error},
    db::{Db, announcements::Filter, audit::ChangedBy},
    model::{
        Announcement, AnnouncementId, Clock, FieldError, Maintenance, Phase, Timestamp,
        announcement::{self, Level},
        maintenance::{self, Mode, phase},
        time::{parse_duration, parse_moment},
    },
};

#[derive(Subcommand)]
pub enum MaintenanceVerb {
    /// Start, schedule or change maintenance.
    On(On),
    /// End maintenance; pending sessions start.
    Off,
    /// Show planned or active maintenance; the exit status is always 0.
    Status {
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub struct On {
    /// A message, shown after the times on the pages of all users.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// The start: 2030-01-31T18:00 (UTC), 2h, or now; by default now.
    #[arg(long, value_name = "WHEN")]
    from: Option<String>,
    /// The end; by default it lasts until it is ended.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// End running sessions at this time.
    #[arg(long, value_name = "WHEN")]
    drain_at: Option<String>,
    /// Whether administrators may start sessions during maintenance: `yes` or `no`.
    #[arg(long, value_name = "YES", value_parser = ["yes", "no"])]
    administrators: Option<String>,
}

#[derive(Subcommand)]
pub enum AnnounceVerb {
    /// Publish an announcement and print its id.
    Add {
        text: String,
        /// The level: info, warning or critical.
        #[arg(long, default_value = "info")]
        level: Level,
        #[arg(long, value_name = "WHEN")]
        from: Option<String>,
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
        /// Also show it on the sign-in page.
        #[arg(long)]
        on_login: bool,
        /// Show it only to members of this group; can be repeated.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// List active and upcoming announcements.
    List {
        /// Include past announcements.
        #[arg(long)]
        all: bool,
        #[arg(long)]
        json: bool,
    },
    /// End an announcement; it is no longer shown.
    End { id: AnnouncementId },
}

pub(super) async fn maintenance(db: &Db, verb: MaintenanceVerb, by: ChangedBy<'_>, out: Out<'_>) -> Result<()> {
    // The whole command happens at one moment: what begins now is active when it is printed.
    let announcements = Announcements::new(db.clone(), Clock::manual(by.at));
    let stored = db.maintenance().await?;
    let now = by.at;
    let set = match verb {
        MaintenanceVerb::On(on) => {
            let held = stored.as_ref().filter(|set| set.window.phase(now) != Phase::Past);
            let before = maintenance::Draft::of(held);
            let drain_at = moment("--drain-at", on.drain_at.as_deref(), now)?.or(before.drain_at);
            let draft = maintenance::Draft {
                mode: if drain_at.is_some() { Mode::Drain } else { Mode::NoNewSessions },
                message: on.message.unwrap_or(before.message),
                from: moment("--from", on.from.as_deref(), now)?.or(before.from),
                to: moment("--until", on.until.as_deref(), now)?.or(before.to),
                drain_at,
                admins_may_start: on.administrators.map_or(before.admins_may_start, |word| word == "yes"),
            };
            announcements.set_maintenance(by.actor, stored.as_ref(), draft).await.map_err(to_anyhow)?
        }
        MaintenanceVerb::Off => announcements
            .set_maintenance(by.actor, stored.as_ref(), maintenance::Draft::of(None))
            .await
            .map_err(to_anyhow)?,
        MaintenanceVerb::Status { json: true } => {
            let phase = phase(stored.as_ref(), now);
            let held = stored.filter(|_| phase.is_some());
            let document = serde_json::json!({ "phase": phase, "maintenance": held });
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?);
        }
        MaintenanceVerb::Status { json: false } => stored,
    };
    Ok(write!(out, "{}", status(set.as_ref(), now))?)
}

/// What holds, in words.
fn status(set: Option<&Maintenance>, now: Timestamp) -> String {
    let Some((set, phase)) = set.zip(phase(set, now)) else { return "off\n".to_owned() };
    let to = set.window.to.map_or_else(|| "until it is ended".to_owned(), |to| format!("until {to}"));
    let mut lines = format!("{phase}: {}, from {} {to}\n", set.mode(), set.window.from);
    if let Some(at) = set.drain_at {
        lines.extend(["running sessions are ended at ", &at.to_string(), "\n"]);
    }
    lines += if set.admins_may_start {
        "administrators may start sessions\n"
    } else {
        "administrators may not start sessions\n"
    };
    if !set.message.is_empty() {
        lines.extend(["message: ", &set.message, "\n"]);
    }
    lines
}

pub(super) async fn announce(db: &Db, verb: AnnounceVerb, by: ChangedBy<'_>, out: Out<'_>) -> Result<()> {
    let announcements = Announcements::new(db.clone(), Clock::manual(by.at));
    let now = by.at;
    match verb {
        AnnounceVerb::Add { text, level, from, until, on_login, groups } => {
            let from = moment("--from", from.as_deref(), now)?;
            let to = moment("--until", until.as_deref(), now)?;
            let draft = announcement::Draft { level, text, from, to, on_login, groups };
            let made = announcements.make(by.actor, draft, None).await.map_err(to_anyhow)?;
            writeln!(out, "{}", made.id)?;
        }
        AnnounceVerb::List { all, json } => {
            let filter = Filter { phase: None, now, before: None, limit: 500 };
            let mut found = db.list_announcements(&filter).await?;
            found.retain(|one| all || one.window.phase(now) != Phase::Past);
            if json {
                let lines: Vec<_> = found.iter().map(|one| as_json(one, now)).collect();
                writeln!(out, "{}", serde_json::to_string_pretty(&lines)?)?;
            } else {
                let lines: String = found.iter().map(|one| line(one, now) + "\n").collect();
                write!(out, "{lines}")?;
            }
        }
        AnnounceVerb::End { id } => {
            let found = db.find_announcement(id).await?.with_context(|| format!("no announcement has the id {id}"))?;
            announcements.end(by.actor, &found).await.map_err(to_anyhow)?;
        }
    }
    Ok(())
}

fn line(one: &Announcement, now: Timestamp) -> String {
    let to = one.window.to.map_or_else(|| "open".to_owned(), |to| to.to_string());
    let groups = if one.groups.is_empty() { String::new() } else { format!("for {}: ", one.groups.join(", ")) };
    let (phase, from) = (one.window.phase(now), one.window.from);
    format!("{}  {phase:<6}  {:<8}  {from} – {to}  {groups}{}", one.id, one.level, one.text)
}

fn as_json(one: &Announcement, now: Timestamp) -> serde_json::Value {
    serde_json::json!({
        "id": one.id, "phase": one.window.phase(now), "level": one.level, "text": one.text,
        "from": one.window.from, "to": one.window.to, "on_login": one.on_login, "groups": one.groups, "changed_by": one.changed_by,
    })
}

/// `now`, a moment, or a length of time from now.
fn moment(option: &str, text: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>> {
    let Some(text) = text else { return Ok(None) };
    if text == "now" {
        return Ok(Some(now));
    }
    let found = parse_moment(text).or_else(|| parse_duration(text).map(|seconds| now.plus_seconds(seconds)));
    found.map(Some).with_context(|| format!("{option}: `{text}` is not a time; use 2030-01-31T18:00 (UTC), 2h, or now"))
}

/// Faults by the names of the options.
fn to_anyhow(error: Error) -> anyhow::Error {
    let Error::Invalid(faults) = error else { return error.into() };
    let option = |fault: &FieldError| match fault.field.as_str() {
        "to" => "--until".to_owned(),
        "text" => "the text".to_owned(),
        "groups" => "--group".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    };
    let lines: Vec<String> = faults.iter().map(|fault| format!("{}: {}", option(fault), fault.message)).collect();
    anyhow::anyhow!(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now = Timestamp(1_800_000_000_000);
        let read = |text| moment("--until", Some(text), now);
        assert_eq!(read("now").unwrap(), Some(now));
        assert_eq!(read("2h").unwrap(), Some(now.plus_seconds(7200)));
        assert_eq!(read("2030-01-31T18:00").unwrap(), Some(Timestamp(1_896_112_800_000)));
        assert_eq!(moment("--until", None, now).unwrap(), None);
        for text in ["", "tomorrow", "2030-01-31", "-2h"] {
            assert!(read(text).unwrap_err().to_string().starts_with("--until"), "{text}");
        }
    }

    #[test]
    fn what_holds_is_shown() {
        let now = Timestamp(1_800_000_000_000);
        assert_eq!(status(None, now), "off\n");
        let draft = maintenance::Draft {
            mode: Mode::Drain,
            message: "New disks".to_owned(),
            from: Some(now),
            to: None,
            drain_at: Some(now.plus_seconds(60)),
            admins_may_start: false,
        };
        let set = draft.check(None, now).unwrap();
        let lines = status(set.as_ref(), now);
        assert!(lines.starts_with("active: drain, from 2027-01-15T08:00:00Z until it is ended\n"), "{lines}");
        assert!(lines.ends_with("administrators may not start sessions\nmessage: New disks\n"), "{lines}");
    }
}
