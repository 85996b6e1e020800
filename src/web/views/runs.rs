//! Runs, drawn: the table of results with the form that registers one, and one run with what was read of it. Its charts are
//! drawn by the browser into an element of the page; the table below stands without scripts too.

use askama::Template;

use super::{FieldError, LINE_HEIGHT, LINE_WIDTH, Moment, ResultsView, TrashPanel};
use crate::{
    model::run::{ReadProgress, SkippedData, Visibility},
    web::page::{Layout, filters},
};

/// `/runs`
#[derive(Debug, Template)]
#[template(path = "runs/list.html")]
pub struct RunsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// The id of the run that was just removed.
    pub removed: Option<String>,
    pub trash: TrashPanel,
    pub errors: Vec<FieldError>,
    pub table: ResultsView,
    pub form: RunForm,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub id: String,
    pub name: String,
    /// `None`: the reader.
    pub owner: Option<String>,
    pub directory: String,
    pub is_helper: bool,
    pub state: RunState,
    pub points: u64,
    pub curves: u64,
    /// When points came last.
    pub grown: Option<Moment>,
}

/// What somebody typed.
#[derive(Clone, Debug)]
pub struct RunForm {
    pub directory: String,
    pub name: String,
    pub visibility: Visibility,
    pub group: String,
    /// The groups to choose from.
    pub groups: Vec<String>,
}

/// How far reading is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Complete,
    /// Its workload lives.
    Live,
    /// Nobody is known to write: it is looked at again and again.
    Watched,
    Waiting,
    Trouble,
}

impl RunState {
    pub fn of(reading: &ReadProgress, is_external: bool) -> Self {
        match reading {
            ReadProgress { error: Some(_), .. } => Self::Trouble,
            ReadProgress { complete: true, .. } => Self::Complete,
            ReadProgress { read_at: None, .. } => Self::Waiting,
            _ if is_external => Self::Watched,
            _ => Self::Live,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Live => "Live",
            Self::Watched => "Watched",
            Self::Waiting => "Not read yet",
            Self::Trouble => "Unreadable",
        }
    }

    pub fn class(&self) -> &'static str {
        match self {
            Self::Complete | Self::Watched => "ended",
            Self::Live => "running",
            Self::Waiting => "queued",
            Self::Trouble => "failed",
        }
    }
}

/// `/runs/{id}`
#[derive(Debug, Template)]
#[template(path = "runs/show.html")]
pub struct RunPage {
    pub layout: Layout,
    pub notice: Option<String>,
    pub errors: Vec<FieldError>,
    pub row: RunRow,
    pub is_owner: bool,
    pub complete: bool,
    pub revision: u64,
    pub error: Option<String>,
    pub passed_over: Vec<String>,
    pub form: RunForm,
    pub parts: Vec<RunPart>,
    /// There are more curves than the table shows.
    pub truncated: bool,
}

/// The curves of one directory.
#[derive(Clone, Debug)]
pub struct RunPart {
    /// `None`: the run's own directory.
    pub name: Option<String>,
    pub curves: Vec<CurveRow>,
    pub hparams: Vec<(String, String)>,
}

/// One curve in numbers.
#[derive(Clone, Debug)]
pub struct CurveRow {
    pub tag: String,
    pub count: usize,
    pub last: String,
    pub min: String,
    pub max: String,
    /// Where every point is to be had.
    pub csv: String,
}

/// `/runs/compare`
#[derive(Debug, Template)]
#[template(path = "runs/compare.html")]
pub struct RunsCompared {
    pub layout: Layout,
    /// Their ids and names, in the order in which they were chosen.
    pub runs: Vec<(String, String)>,
}

impl RunsCompared {
    /// What the script reads.
    pub fn ids(&self) -> String {
        self.runs.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(",")
    }
}

impl RunsPage {
    /// There is no run at all, whatever is asked for.
    pub fn is_empty(&self) -> bool {
        self.table.rows.is_empty()
            && !self.table.with_helpers
            && self.table.reset_href.is_none()
            && self.table.first_href.is_none()
    }

    pub fn error(&self, field: &str) -> Option<String> {
        message(&self.errors, field)
    }
}

impl RunPage {
    pub fn error(&self, field: &str) -> Option<String> {
        message(&self.errors, field)
    }
}

fn message(errors: &[FieldError], field: &str) -> Option<String> {
    errors.iter().find(|error| error.field == field).map(|error| error.message.clone())
}

impl RunForm {
    pub fn is(&self, visibility: &str) -> bool {
        self.visibility.as_str() == visibility
    }
}

/// What was passed over, in sentences for the owner.
pub fn passed_over(skipped: &SkippedData) -> Vec<String> {
    let counted = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}.")),
        count => Some(format!("{count} {many}.")),
    };
    let told = [
        counted(skipped.damaged, "damaged record or line was skipped", "damaged records or lines were skipped"),
        counted(
            skipped.oversized,
            "record or name was skipped because it is too large",
            "records or names were skipped because they are too large",
        ),
        counted(
            skipped.surplus,
            "value was skipped because the run has too many tags, names or points",
            "values were skipped because the run has too many tags, names or points",
        ),
        skipped.lost.then(|| "The rest of a damaged file cannot be read.".to_owned()),
        counted(
            skipped.left_out,
            "file was skipped because there are too many files",
            "files were skipped because there are too many files",
        ),
    ];
    let unreadable = skipped.unreadable.iter().map(|told| format!("Cannot be read: {told}"));
    told.into_iter().flatten().chain(unreadable).collect()
}

/// A value as a table shows it.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value == 0.0 || (1e-3..1e6).contains(&value.abs()) => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Some(value) => format!("{value:.4e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [(0.5, "0.5"), (3.0, "3"), (0.0, "0"), (1e-7, "1.0000e-7"), (1_234_567.0, "1.2346e6")] {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(None), "–");
    }

    #[test]
    fn what_was_passed_over_is_said() {
        assert!(passed_over(&SkippedData::default()).is_empty());
        let skipped = SkippedData {
            damaged: 1,
            surplus: 7,
            lost: true,
            unreadable: vec!["a: b".to_owned()],
            ..SkippedData::default()
        };
        let told = passed_over(&skipped);
        assert_eq!(told.len(), 4);
        assert!(told[0].starts_with("1 damaged record") && told[3].ends_with("a: b"));
    }
}
