//! The form of limits, apart from HTTP and the database: what stands in its boxes, what that
//! changes, and what is wrong with it. Each field carries what it was drawn with, so that of
//! two people who change different fields neither undoes the other, and of what was typed
//! nothing is lost.

use crate::{
    db::{
        limits::GroupFlags,
        quotas::{Level, QuotaGroup, SetLimit, Version},
    },
    model::{
        FieldError, Timestamp,
        quota::{Change, Field, Kind, Terms},
        time::parse_day_or_moment,
    },
    web::{
        http::extract::Form,
        views::{Choice, EnteredAmount, MarkBoxes},
    },
};

/// A form of limits.
#[derive(Clone, Debug)]
pub(super) struct LimitForm {
    pub rows: Vec<Row>,
    pub marks: Option<MarkBoxes>,
    /// What the form was drawn of.
    pub version: String,
}

/// One field of it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub kind: Kind,
    pub field: Field,
    pub typed: EnteredAmount,
    /// What it was drawn with, as [`key`] says it.
    pub was: String,
    /// What somebody else made of it while it was being changed.
    pub theirs: Option<EnteredAmount>,
    /// What cannot be read of it at all.
    pub unreadable: Option<&'static str>,
}

/// Holds the parsed input of a form.
#[derive(Debug, Default)]
pub(super) struct FormRequest {
    pub changes: Vec<Change>,
    pub marks: GroupFlags,
}

impl FormRequest {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.marks == GroupFlags::default()
    }
}

/// The fields that can be set at a level, in the order of the pages; GPU models where the
/// machine has several or somebody set one.
pub(super) fn fields(level: Level, set: &[SetLimit], models: &[String]) -> Vec<(Kind, Field)> {
    let kinds: &[Kind] = match level {
        Level::Default | Level::User(_) => &[Kind::Each],
        Level::Group(_) => &[Kind::Each, Kind::Total],
        Level::Cluster => &[Kind::Total],
    };
    let mut fields = Vec::new();
    for kind in kinds.iter().copied() {
        for field in Field::ALL {
            if kind == Kind::Each || field.has_total() {
                fields.push((kind, field));
            }
        }
        let shown = if models.len() < 2 { &[] } else { models };
        let set = set.iter().filter(|limit| limit.kind == kind).map(|limit| limit.field.clone());
        let mut models: Vec<Field> = set
            .filter(|field| matches!(field, Field::GpusOf(_)))
            .chain(shown.iter().cloned().map(Field::GpusOf))
            .collect();
        models.sort();
        models.dedup();
        // Beside the limit of all GPUs.
        let place = fields.iter().position(|found| *found == (kind, Field::Gpus)).map_or(fields.len(), |at| at + 1);
        fields.splice(place..place, models.into_iter().map(|model| (kind, model)));
    }
    fields
}

impl Row {
    fn new(kind: Kind, field: Field, typed: EnteredAmount) -> Self {
        Self { kind, field, was: key(&typed), typed, theirs: None, unreadable: None }
    }

    /// The name of its boxes: `each.gpus`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.kind.as_str(), self.field.name())
    }

    fn is_changed(&self) -> bool {
        key(&self.typed) != self.was
    }

    /// What it is set to. Faults are placed at a part of the field: `each.gpus.value`.
    fn terms(&self, now: Timestamp) -> Result<Option<Terms>, Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut fault = |part: &str, code: &str, message: String| {
            faults.push(FieldError::new(format!("{}.{part}", self.name()), code, message));
        };
        if let Some(message) = self.unreadable {
            fault("choice", "invalid_value", message.to_owned());
        }
        let value = match self.typed.choice {
            Choice::Stay | Choice::Inherit => return if faults.is_empty() { Ok(None) } else { Err(faults) },
            Choice::Unlimited => -1,
            Choice::Value => self.field.read(&self.typed.value).unwrap_or_else(|message| {
                fault("value", "invalid_value", message);
                0
            }),
        };
        let expires_at = match self.typed.until.trim() {
            "" => None,
            text => {
                let end = parse_day_or_moment(text);
                let message = match end {
                    None => Some("Enter a time in UTC, as 2030-01-31 or 2030-01-31 12:00."),
                    Some(end) => Terms::expiry_fault(end, now),
                };
                if let Some(message) = message {
                    fault("until", "invalid_value", message.to_owned());
                }
                end
            }
        };
        let note = self.typed.note.trim();
        if let Some((code, message)) = Terms::note_fault(note) {
            fault("note", code, message.to_owned());
        }
        let note = (!note.is_empty()).then(|| note.to_owned());
        if faults.is_empty() { Ok(Some(Terms { value, expires_at, note })) } else { Err(faults) }
    }
}

/// What a field's boxes come to, as a word to compare: what stands in boxes that do not count is left out.
fn key(typed: &EnteredAmount) -> String {
    let EnteredAmount { choice, value, until, note } = typed;
    match choice {
        Choice::Stay | Choice::Inherit => choice.as_str().to_owned(),
        Choice::Unlimited => format!("unlimited|{until}|{note}"),
        Choice::Value => format!("{value}|{until}|{note}"),
    }
}

impl LimitForm {
    /// As the database has it.
    pub fn stored(fields: Vec<(Kind, Field)>, set: &[SetLimit], group: Option<&QuotaGroup>) -> Self {
        let row = |(kind, field): (Kind, Field)| {
            let limit = set.iter().find(|limit| limit.kind == kind && limit.field == field);
            let typed = EnteredAmount::of(limit.map(|limit| &limit.terms), &field);
            Row::new(kind, field, typed)
        };
        let boxes = |group: &QuotaGroup| MarkBoxes {
            chargeable: group.chargeable,
            restrictive: group.restrictive,
            was: (group.chargeable, group.restrictive),
            may_change: true,
        };
        let version = Version::of(set, group).to_string();
        Self { rows: fields.into_iter().map(row).collect(), marks: group.map(boxes), version }
    }

    /// For several people: nothing is changed that nobody chose.
    pub fn of_several(fields: Vec<(Kind, Field)>, version: String) -> Self {
        let row =
            |(kind, field)| Row::new(kind, field, EnteredAmount { choice: Choice::Stay, ..EnteredAmount::default() });
        Self { rows: fields.into_iter().map(row).collect(), marks: None, version }
    }

    /// What was sent of this form; what was not sent stays as it is.
    #[must_use]
    pub fn posted(&self, form: &Form) -> Self {
        let row = |row: &Row| {
            let name = row.name();
            let [choice, value, until, note, was] =
                ["choice", "value", "until", "note", "was"].map(|part| format!("{name}.{part}"));
            let Some(chosen) = form.all(&choice).next() else { return row.clone() };
            let is_twice = [&choice, &value, &until, &note].iter().any(|name| form.all(name).count() > 1);
            let unreadable = match Choice::parse(chosen) {
                _ if is_twice => Some("The request has this field twice. Send it once."),
                None => Some("Select a value from the list."),
                Some(_) => None,
            };
            let short = |name: &str| form.get(name).trim().chars().take(1000).collect::<String>();
            Row {
                typed: EnteredAmount {
                    choice: Choice::parse(chosen).unwrap_or_default(),
                    value: short(&value),
                    until: short(&until),
                    note: short(&note),
                },
                was: form.all(&was).next().map_or_else(|| row.was.clone(), str::to_owned),
                unreadable,
                ..row.clone()
            }
        };
        let marks = self.marks.map(|boxes| match form.get("marks.was") {
            "" => boxes,
            was => MarkBoxes {
                chargeable: form.get("chargeable") == "yes",
                restrictive: form.get("restrictive") == "yes",
                was: (was.starts_with("yes"), was.ends_with("yes")),
                ..boxes
            },
        });
        Self { rows: self.rows.iter().map(row).collect(), marks, version: form.get("version").to_owned() }
    }

    /// What it changes, or everything that is wrong with it.
    pub fn asked(&self, now: Timestamp) -> Result<FormRequest, Vec<FieldError>> {
        let (mut asked, mut faults) = (FormRequest::default(), Vec::new());
        for row in self.rows.iter().filter(|row| row.is_changed() || row.unreadable.is_some()) {
            match row.terms(now) {
                Ok(to) => asked.changes.push(Change { kind: row.kind, field: row.field.clone(), to }),
                Err(wrong) => faults.extend(wrong),
            }
        }
        if let Some(MarkBoxes { chargeable, restrictive, was, .. }) = self.marks {
            let changed = |is, was| (is != was).then_some(is);
            asked.marks =
                GroupFlags { chargeable: changed(chargeable, was.0), restrictive: changed(restrictive, was.1) };
        }
        if faults.is_empty() { Ok(asked) } else { Err(faults) }
    }

    /// The same upon what is stored by now: fields that were left alone become the stored ones, and
    /// where somebody else changed the same field, theirs stands beside it.
    #[must_use]
    pub fn upon(self, stored: &Self) -> Self {
        let find = |row: &Row| stored.rows.iter().find(|other| (other.kind, &other.field) == (row.kind, &row.field));
        let row = |row: Row| match find(&row) {
            None => row,
            Some(stored) if !row.is_changed() => {
                // What somebody else did is worth seeing, also where nothing was typed.
                let theirs = (stored.was != row.was).then(|| stored.typed.clone());
                Row { theirs, ..stored.clone() }
            }
            Some(stored) => {
                let theirs = (stored.was != row.was).then(|| stored.typed.clone());
                Row { was: stored.was.clone(), theirs, ..row }
            }
        };
        let marks = match (self.marks, stored.marks) {
            (Some(mine), Some(theirs)) => {
                let merged = |mine, was, theirs| if mine == was { theirs } else { mine };
                Some(MarkBoxes {
                    chargeable: merged(mine.chargeable, mine.was.0, theirs.chargeable),
                    restrictive: merged(mine.restrictive, mine.was.1, theirs.restrictive),
                    ..theirs
                })
            }
            (mine, _) => mine,
        };
        Self { rows: self.rows.into_iter().map(row).collect(), marks, version: stored.version.clone() }
    }

    /// Everything that stands in it, to be sent once more.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = vec![("version".to_owned(), self.version.clone())];
        for row in self.rows.iter().filter(|row| row.is_changed()) {
            let EnteredAmount { choice, value, until, note } = &row.typed;
            let parts = [("choice", choice.as_str()), ("value", value), ("until", until), ("note", note)];
            let parts = parts.into_iter().chain([("was", row.was.as_str())]);
            pairs.extend(parts.map(|(part, text)| (format!("{}.{part}", row.name()), text.to_owned())));
        }
        if let Some(boxes) = self.marks {
            pairs.push(("marks.was".to_owned(), boxes.was_text()));
            let marks = [("chargeable", boxes.chargeable), ("restrictive", boxes.restrictive)];
            pairs.extend(marks.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name.to_owned(), "yes".to_owned())));
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn set(field: Field, value: i64) -> SetLimit {
        SetLimit { kind: Kind::Each, field, terms: Terms::from(value), by: "chief".to_owned(), at: NOW }
    }

    fn sheet(set: &[SetLimit]) -> LimitForm {
        LimitForm::stored(fields(Level::Default, set, &[]), set, None)
    }

    /// The form as a browser would send it, with some boxes filled otherwise.
    fn form(sheet: &LimitForm, other: &[(&str, &str)]) -> Form {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.append_pair("version", &sheet.version);
        for row in &sheet.rows {
            for (part, text) in [
                ("choice", row.typed.choice.as_str()),
                ("value", &row.typed.value),
                ("until", &row.typed.until),
                ("note", &row.typed.note),
                ("was", &row.was),
            ] {
                let name = format!("{}.{part}", row.name());
                let filled = other.iter().find(|(other, _)| *other == name).map(|(_, text)| *text);
                body.append_pair(&name, filled.unwrap_or(text));
            }
        }
        Form::parse(body.finish().as_bytes())
    }

    #[test]
    fn only_what_was_touched_changes() {
        let stored = sheet(&[set(Field::Gpus, 2), set(Field::MemoryBytes, 48 << 30)]);
        let untouched = stored.posted(&form(&stored, &[]));
        assert!(untouched.asked(NOW).unwrap().is_empty());
        let filled = [("each.cpus.choice", "value"), ("each.cpus.value", "8"), ("each.gpus.choice", "inherit")];
        let asked = stored.posted(&form(&stored, &filled)).asked(NOW).unwrap();
        assert_eq!(
            asked.changes,
            [Change::new(Kind::Each, Field::Gpus, None), Change::new(Kind::Each, Field::Cpus, Some(8))]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let stored = sheet(&[]);
        let filled = [
            ("each.gpus.choice", "value"),
            ("each.gpus.value", "-1"),
            ("each.memory_bytes.choice", "value"),
            ("each.memory_bytes.value", "48"),
            ("each.memory_bytes.until", "2001-01-01"),
            ("each.cpus.choice", "unlimited"),
            ("each.cpus.until", "soon"),
            ("each.cpus.note", "a\u{7}b"),
        ];
        let faults = stored.posted(&form(&stored, &filled)).asked(NOW).unwrap_err();
        let places: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(
            places,
            [
                "each.gpus.value",
                "each.cpus.until",
                "each.cpus.note",
                "each.memory_bytes.value",
                "each.memory_bytes.until"
            ]
        );
        let twice = Form::parse(b"version=x&each.gpus.choice=inherit&each.gpus.choice=unlimited");
        let faults = stored.posted(&twice).asked(NOW).unwrap_err();
        assert_eq!(faults[0].field, "each.gpus.choice");
        assert!(faults[0].message.contains("twice"), "{faults:?}");
        let unknown = Form::parse(b"version=x&each.gpus.choice=some");
        assert_eq!(stored.posted(&unknown).asked(NOW).unwrap_err()[0].message, "Select a value from the list.");
    }

    #[test]
    fn of_two_who_change_neither_loses_anything() {
        let seen = sheet(&[set(Field::Gpus, 2), set(Field::Cpus, 8)]);
        let mine = seen.posted(&form(&seen, &[("each.gpus.value", "4")]));
        let stored = sheet(&[set(Field::Gpus, 6), set(Field::Cpus, 16)]);
        assert_ne!(mine.version, stored.version);
        let both = mine.upon(&stored);
        let row = |field| both.rows.iter().find(|row| row.field == field).unwrap();
        assert_eq!((row(Field::Gpus).typed.value.as_str(), both.version.as_str()), ("4", stored.version.as_str()));
        assert_eq!(row(Field::Gpus).theirs.as_ref().unwrap().value, "6");
        assert_eq!((row(Field::Cpus).typed.value.as_str(), row(Field::Cpus).is_changed()), ("16", false));
        assert_eq!(row(Field::Light).theirs, None);
        // Sent once more it changes the one field alone.
        let asked = both.asked(NOW).unwrap();
        assert_eq!(asked.changes, [Change::new(Kind::Each, Field::Gpus, Some(4))]);
    }

    #[test]
    fn what_is_looked_at_first_is_sent_again_whole() {
        let stored = sheet(&[set(Field::Gpus, 2)]);
        let filled = [("each.gpus.value", "3"), ("each.gpus.until", "2030-01-31"), ("each.gpus.note", "a paper")];
        let posted = stored.posted(&form(&stored, &filled));
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(posted.pairs());
        let again = stored.posted(&Form::parse(body.finish().as_bytes()));
        assert_eq!(again.asked(NOW).unwrap().changes, posted.asked(NOW).unwrap().changes);
        let terms = again.asked(NOW).unwrap().changes[0].to.clone().unwrap();
        assert_eq!(terms.expires_at, Some(Timestamp(1_896_048_000_000)));
    }

    #[test]
    fn models_stand_beside_all_gpus() {
        let a100 = set(Field::GpusOf("A100".to_owned()), 1);
        let names = |fields: Vec<(Kind, Field)>| {
            fields.iter().map(|(_, field)| field.name().into_owned()).take(3).collect::<Vec<_>>()
        };
        assert_eq!(names(fields(Level::Cluster, &[], &[])), ["gpus", "cpus", "memory_bytes"]);
        assert_eq!(names(fields(Level::Default, &[a100], &[]))[1], "gpus:A100");
        let two = ["B".to_owned(), "A".to_owned()];
        assert_eq!(names(fields(Level::Default, &[], &two)), ["gpus", "gpus:A", "gpus:B"]);
    }
}
