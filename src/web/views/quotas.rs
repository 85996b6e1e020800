//! The administrators' pages of quotas: the table of people with what they use, the form of
//! limits at one level or for some people, and what a change would mean. Where a limit comes
//! from is said in words of people here.

use askama::Template;

use super::{Card, Column, Meter, Moment};
use crate::{
    model::{
        Timestamp,
        quota::{self, Field, Kind, Limit, Terms, Unit},
    },
    web::page::{Layout, filters},
};

/// The table of people.
#[derive(Debug, Template)]
#[template(path = "admin/quotas.html")]
pub struct QuotasPage {
    pub layout: Layout,
    pub notice: Option<String>,
    pub strip: QuotaStrip,
    pub search: QuotaSearch,
    /// Those that the table can be sorted by.
    pub columns: QuotaColumns,
    /// What hours are counted in: `30 days`, `November`.
    pub period: String,
    pub rows: Vec<QuotaRow>,
    pub total: i64,
    pub csv_href: String,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    pub may_change: bool,
}

/// Sums up the cluster in one line.
#[derive(Clone, Debug)]
pub struct QuotaStrip {
    /// GPUs allocated, of those that there are.
    pub gpus: Meter,
    /// Of the allocated, those that have hardly computed for long.
    pub idle: i64,
    /// Those that cannot be used.
    pub down: i64,
    pub waiting: i64,
    pub oldest_wait: Option<Moment>,
}

impl QuotaStrip {
    fn has_gpus(&self) -> bool {
        self.gpus.limit.is_some_and(|gpus| gpus > 0)
    }
}

#[derive(Clone, Debug)]
pub struct QuotaColumns {
    pub person: Column,
    pub gpus: Column,
    pub hours: Column,
    pub seen: Column,
}

/// What the table is narrowed to, as it was typed; empty is everything.
#[derive(Clone, Debug, Default)]
pub struct QuotaSearch {
    pub find: String,
    pub only: String,
    pub sort: String,
}

/// One person's line.
#[derive(Clone, Debug)]
pub struct QuotaRow {
    pub name: String,
    pub display_name: String,
    /// Some of the groups, and how many more there are.
    pub groups: Vec<String>,
    pub more_groups: usize,
    pub meters: Vec<Meter>,
    /// Where the limits come from, each once.
    pub sources: Vec<Source>,
    /// `None`: never.
    pub seen: Option<Moment>,
}

/// Where a limit comes from: `group vision`, `override until` with a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub words: String,
    pub until: Option<Moment>,
}

impl Source {
    /// Returns how a page shows the source of a limit.
    #[must_use]
    pub fn of(source: &quota::Source, now: Timestamp) -> Self {
        match source {
            quota::Source::Override { until: Some(end) } => {
                Self { words: "override until".to_owned(), until: Some(Moment::clock(*end, now)) }
            }
            source => Self { words: source.to_string(), until: None },
        }
    }
}

/// Limits at one level, or of some people, as a form.
#[derive(Debug, Template)]
#[template(path = "admin/limits.html")]
pub struct LimitsPage {
    pub layout: Layout,
    pub tab: &'static str,
    pub head: LimitsHead,
    pub notice: Option<String>,
    /// Why a form was refused.
    pub alert: Option<String>,
    /// Somebody else changed something meanwhile; what they did, beyond what the rows say.
    pub stale: Option<Vec<String>>,
    /// Where the form goes.
    pub action: String,
    /// What the form was drawn of.
    pub version: String,
    pub sections: Vec<LimitSection>,
    pub marks: Option<MarkBoxes>,
    pub may_change: bool,
    /// Whose limits change together.
    pub people: Vec<String>,
    pub person: Option<PersonPanel>,
    /// Where Slurm keeps them.
    pub slurm: Option<SlurmPanel>,
}

/// What Slurm says of somebody, or of a group's account, beside the limits; and how it is changed there.
#[derive(Clone, Debug, Default)]
pub struct SlurmPanel {
    pub lines: Vec<String>,
    /// What changes it, with what stands there now.
    pub commands: Vec<String>,
}

/// What stands above the form.
#[derive(Clone, Debug, Default)]
pub struct LimitsHead {
    pub title: String,
    /// The way back, where it is no tab.
    pub crumb: Option<(String, String)>,
    pub chips: Vec<String>,
    pub lead: String,
    /// Another page about the same.
    pub more: Option<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct LimitSection {
    pub title: &'static str,
    pub hint: &'static str,
    /// How the column of what holds is called.
    pub holds: &'static str,
    pub shows_use: bool,
    pub rows: Vec<LimitBox>,
}

/// One field of the form.
#[derive(Clone, Debug)]
pub struct LimitBox {
    /// `each.gpus`
    pub name: String,
    pub label: String,
    pub hint: &'static str,
    pub meter: Option<Meter>,
    /// What holds now, and where it comes from.
    pub effective: Option<(String, Option<Source>)>,
    /// What would hold without what is set here: `else 4 from group vision`.
    pub otherwise: Option<String>,
    pub typed: EnteredAmount,
    /// What the form was drawn with.
    pub was: String,
    /// Who set it last.
    pub set_by: Option<(String, Moment)>,
    /// What somebody else made of it meanwhile.
    pub theirs: Option<String>,
    pub may_change: bool,
    /// Slurm keeps it: nothing is set here.
    pub is_slurms: bool,
    /// By part: `value`, `until`, `note`, or `choice` for all of it.
    pub errors: Vec<(&'static str, String)>,
    /// In a form for several people a field can be left alone.
    pub can_stay: bool,
}

impl LimitBox {
    /// Its name as an id in the page: models of GPUs are called as they like.
    fn id(&self) -> String {
        self.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
    }

    fn error(&self, part: &str) -> Option<&str> {
        self.errors.iter().find(|(of, _)| *of == part).map(|(_, message)| message.as_str())
    }

    fn choices(&self) -> Vec<(&'static str, &'static str, bool)> {
        let all = [
            (Choice::Stay, "leave"),
            (Choice::Inherit, "inherit"),
            (Choice::Unlimited, "unlimited"),
            (Choice::Value, "value"),
        ];
        let offered = all.into_iter().filter(|(choice, _)| self.can_stay || *choice != Choice::Stay);
        offered.map(|(choice, word)| (choice.as_str(), word, choice == self.typed.choice)).collect()
    }

    /// What is set, in words, for those who only read.
    fn says(&self) -> String {
        if self.is_slurms { "in Slurm".to_owned() } else { self.typed.says() }
    }
}

/// What somebody chose for a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Of several people: whatever each has.
    Stay,
    #[default]
    Inherit,
    Unlimited,
    Value,
}

impl Choice {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stay => "stay",
            Self::Inherit => "inherit",
            Self::Unlimited => "unlimited",
            Self::Value => "value",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Stay, Self::Inherit, Self::Unlimited, Self::Value].into_iter().find(|choice| choice.as_str() == text)
    }
}

/// A field as it stands in its boxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnteredAmount {
    pub choice: Choice,
    pub value: String,
    /// A moment in UTC, as `datetime-local` has it: `2030-01-31T12:00`.
    pub until: String,
    pub note: String,
}

impl EnteredAmount {
    /// What is set, as it can be typed again.
    #[must_use]
    pub fn of(terms: Option<&Terms>, field: &Field) -> Self {
        let Some(terms) = terms else { return Self::default() };
        let (choice, value) = match Limit::of(terms.value) {
            Limit::Unlimited => (Choice::Unlimited, String::new()),
            Limit::AtMost(value) => (Choice::Value, field.write(value)),
        };
        let until = terms.expires_at.map(write_moment).unwrap_or_default();
        Self { choice, value, until, note: terms.note.clone().unwrap_or_default() }
    }

    /// In words, with its end and its note.
    #[must_use]
    pub fn says(&self) -> String {
        let what = match self.choice {
            Choice::Value => self.value.as_str(),
            other => other.as_str(),
        };
        let is_set = matches!(self.choice, Choice::Value | Choice::Unlimited);
        let end = (is_set && !self.until.is_empty()).then(|| format!("until {} UTC", self.until.replace('T', " ")));
        let why = (is_set && !self.note.is_empty()).then(|| format!("(“{}”)", self.note));
        std::iter::once(what.to_owned()).chain(end).chain(why).collect::<Vec<_>>().join(" ")
    }
}

/// A moment as `datetime-local` has it, in UTC, to the millisecond.
fn write_moment(at: Timestamp) -> String {
    let text = at.to_string();
    let text = text.trim_end_matches('Z');
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

/// How a group counts, as boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkBoxes {
    pub chargeable: bool,
    pub restrictive: bool,
    /// What the form was drawn with.
    pub was: (bool, bool),
    pub may_change: bool,
}

impl MarkBoxes {
    /// `yes no`, for the form.
    #[must_use]
    pub fn was_text(&self) -> String {
        let word = |yes| if yes { "yes" } else { "no" };
        format!("{} {}", word(self.was.0), word(self.was.1))
    }
}

/// What somebody runs, and what was refused them.
#[derive(Clone, Debug, Default)]
pub struct PersonPanel {
    pub cards: Vec<Card>,
    pub refusals: Vec<Refusal>,
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Where it is shown; `None` where it was refused at once, and there is no session.
    pub href: Option<String>,
    pub name: String,
    /// `2 GPUs · 8 cores · 32 GiB for 4 h`
    pub asked: String,
    pub at: Moment,
    pub why: Vec<String>,
}

/// What a change would mean, before it is saved.
#[derive(Debug, Template)]
#[template(path = "admin/limits-preview.html")]
pub struct LimitsPreview {
    pub layout: Layout,
    pub tab: &'static str,
    pub title: String,
    pub action: String,
    /// The form, to be sent again.
    pub hidden: Vec<(String, String)>,
    pub lines: Vec<ChangeLine>,
    pub people: Vec<String>,
    pub over: Vec<OverLine>,
    /// How many people would be over, and how many of `over` are not shown.
    pub people_over: usize,
    pub more_over: usize,
    pub refused: Vec<RefusedLine>,
    pub more_refused: usize,
}

#[derive(Clone, Debug)]
pub struct ChangeLine {
    pub label: String,
    pub before: String,
    pub after: String,
}

/// A request that waits and would be ended.
#[derive(Clone, Debug)]
pub struct RefusedLine {
    pub user: String,
    pub name: String,
    pub why: String,
}

/// Somebody who would hold, or has used, more than they may.
#[derive(Clone, Debug)]
pub struct OverLine {
    /// `None` for all together.
    pub user: Option<String>,
    pub used: String,
    /// `in use`, or `used` of what nobody gives back.
    pub verb: &'static str,
    pub limit: String,
    pub source: Source,
}

/// The groups, with what they give and hold.
#[derive(Debug, Template)]
#[template(path = "admin/quota-groups.html")]
pub struct QuotaGroupsPage {
    pub layout: Layout,
    pub find: String,
    pub rows: Vec<QuotaGroupRow>,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

#[derive(Clone, Debug)]
pub struct QuotaGroupRow {
    pub id: String,
    pub name: String,
    pub members: i64,
    pub chargeable: bool,
    pub restrictive: bool,
    /// Since when its directory no longer has it.
    pub gone: Option<Moment>,
    /// What each member gets, in words.
    pub each: Vec<String>,
    /// What is charged to it, of its totals.
    pub meters: Vec<Meter>,
}

/// What a limit is called, and what it means.
#[must_use]
pub fn field_words(field: &Field, kind: Kind) -> (String, &'static str) {
    let (label, hint) = match field {
        Field::GpusOf(model) => return (model.clone(), "GPUs of this model at once"),
        Field::Gpus => ("GPUs at once", ""),
        Field::Cpus => ("Cores at once", ""),
        Field::MemoryBytes => ("Memory at once", ""),
        Field::Sessions => ("Sessions at once", "without light sessions"),
        Field::Jobs => ("Jobs at once", "batch jobs"),
        Field::Pending => ("Queued requests at once", "further requests are rejected"),
        Field::Light => ("Light sessions at once", "no GPU, at most 1 core and 2 GiB"),
        Field::MaxSessionSeconds => ("Longest session", ""),
        Field::MaxJobSeconds => ("Longest job", ""),
        Field::MaxExtensions => ("Extensions of a session", ""),
        Field::ExtensionSeconds => ("Longest extension", ""),
        Field::IdleTimeoutSeconds => ("Idle timeout", "0 = never"),
        Field::GpuIdleTimeoutSeconds => ("GPU-idle timeout", "0 = never"),
        Field::GpuHours => ("GPU-hours in a period", ""),
        Field::CpuHours => ("Core-hours in a period", ""),
        Field::StorageBytes => ("Storage", "size of the home folder: warns only"),
    };
    let hint = if kind == Kind::Total && *field == Field::Sessions { "" } else { hint };
    (label.to_owned(), hint)
}

/// A limit in words: `4`, `48 GiB`, `unlimited`.
#[must_use]
pub fn limit_words(field: &Field, limit: Limit) -> String {
    match limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::AtMost(value) if matches!(field.unit(), Unit::Bytes | Unit::Seconds) => field.amount(value),
        Limit::AtMost(value) => value.to_string(),
    }
}

impl QuotasPage {
    fn narrows(&self) -> bool {
        !self.search.find.is_empty() || !self.search.only.is_empty()
    }

    fn choices(&self) -> [(&'static str, &'static str, bool); 3] {
        [("", "All users"), ("override", "With an override"), ("active", "Using or queued")]
            .map(|(value, word)| (value, word, self.search.only == value))
    }
}

impl LimitsPreview {
    /// How many would be over, in a sentence.
    fn verdict(&self) -> String {
        over_verdict(self.people_over, self.over.iter().filter(|line| line.user.is_none()).count())
    }
}

/// What a change would mean in a sentence: so many people, and so many totals, would be over.
#[must_use]
pub fn over_verdict(people: usize, totals: usize) -> String {
    let who = match people {
        0 if totals == 0 => return "No user would exceed a limit.".to_owned(),
        0 => "A total would be exceeded".to_owned(),
        1 => "1 user would exceed a limit".to_owned(),
        many => format!("{many} users would exceed a limit"),
    };
    format!("{who}. Nothing will be stopped. New starts wait until usage is below the limit.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::size::GIB;

    #[test]
    fn what_is_set_stands_in_its_boxes() {
        let until = |at: i64| Terms { value: 48 * GIB, expires_at: Some(Timestamp(at)), note: Some("x".to_owned()) };
        let typed = EnteredAmount::of(Some(&until(1_700_000_040_000)), &Field::MemoryBytes);
        assert_eq!(
            (typed.choice, typed.value.as_str(), typed.until.as_str()),
            (Choice::Value, "48 GiB", "2023-11-14T22:14")
        );
        assert_eq!(EnteredAmount::of(Some(&until(1_700_000_000_123)), &Field::Gpus).until, "2023-11-14T22:13:20.123");
        assert_eq!(typed.says(), "48 GiB until 2023-11-14 22:14 UTC (“x”)");
        assert_eq!(EnteredAmount::of(None, &Field::Gpus).says(), "inherit");
        assert_eq!(EnteredAmount::of(Some(&Terms::from(-1)), &Field::Gpus).says(), "unlimited");
        for choice in [Choice::Stay, Choice::Inherit, Choice::Unlimited, Choice::Value] {
            assert_eq!(Choice::parse(choice.as_str()), Some(choice));
        }
    }

    #[test]
    fn the_end_of_an_override_is_a_moment() {
        let now = Timestamp(1_700_000_000_000);
        let source = Source::of(&quota::Source::Override { until: Some(now.plus_seconds(2800)) }, now);
        assert_eq!(
            (source.words.as_str(), source.until.map(|end| end.at.seconds_since(now))),
            ("override until", Some(2800))
        );
        let of_group = Source::of(&quota::Source::Group("vision".to_owned()), now);
        assert_eq!(of_group, Source { words: "group vision".to_owned(), until: None });
    }
}
