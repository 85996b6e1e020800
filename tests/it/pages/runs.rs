//! Runs, filled: in every state of reading, with everything that may be passed over, and empty.

use lyceum::{
    model::run::{Skipped, Visibility},
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

const ID: &str = "0199a0b2-0000-7000-8000-000000000001";

fn row(word: &Word, name: &str, owner: Option<&str>, state: RunState, points: u64) -> RunRow {
    RunRow {
        id: ID.to_owned(),
        name: word(name),
        owner: owner.map(word),
        directory: word("/home/alice/experiments/2026/resnet/first"),
        state,
        points,
        curves: points / 1000,
        grown: (points > 0).then(|| Moment::ago(NOW.plus_seconds(-300), NOW)),
    }
}

fn form(word: &Word) -> RunForm {
    RunForm {
        directory: String::new(),
        name: String::new(),
        visibility: Visibility::Private,
        group: String::new(),
        groups: vec![word("vision"), word("speech")],
    }
}

pub fn runs(word: &Word) -> RunsPage {
    RunsPage {
        layout: layout(word).at(Nav::Runs),
        notice: Some("The run is forgotten. Its files stay where they are.".to_owned()),
        errors: Vec::new(),
        rows: vec![
            row(word, "resnet18", None, RunState::Live, 1_234_567),
            row(word, "baseline", Some("bob"), RunState::Complete, 90_000),
            row(word, "old logs", None, RunState::Watched, 5000),
            row(word, "fresh", None, RunState::Waiting, 0),
            row(word, "gone", None, RunState::Trouble, 17),
        ],
        form: form(word),
        first_href: None,
        next_href: Some("/runs?cursor=x".to_owned()),
    }
}

pub fn runs_wrong(word: &Word) -> RunsPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    RunsPage {
        notice: None,
        errors: vec![
            error("directory", "There is no such directory."),
            error("name", "At most 200 characters."),
            error("group", "Name the group that may see it."),
        ],
        rows: Vec::new(),
        form: RunForm { directory: word("~/nowhere"), name: word("x"), visibility: Visibility::Group, ..form(word) },
        next_href: None,
        ..runs(word)
    }
}

pub fn run(word: &Word) -> RunPage {
    let curve = |tag: &str| CurveRow {
        tag: word(tag),
        count: 12_345,
        last: number(Some(0.318_27)),
        min: number(Some(1e-9)),
        max: number(None),
        csv: format!("/api/v1/runs/{ID}/metrics/loss?format=csv"),
    };
    let skipped = Skipped {
        damaged: 2,
        oversized: 1,
        surplus: 70_000,
        lost: true,
        unreadable: vec![word("/home/alice/experiments/secret: Permission denied (os error 13)")],
        left_out: 3,
    };
    RunPage {
        layout: layout(word).at(Nav::Runs),
        notice: Some("The run is changed.".to_owned()),
        errors: Vec::new(),
        row: row(word, "resnet18", Some("bob"), RunState::Live, 1_234_567),
        is_owner: true,
        complete: false,
        revision: 84_211,
        error: Some(word("The directory /home/alice/x cannot be read: No such file or directory.")),
        passed_over: passed_over(&skipped),
        form: RunForm { visibility: Visibility::Group, group: word("vision"), ..form(word) },
        parts: vec![
            RunPart {
                name: None,
                curves: vec![curve("train/loss"), curve("train/accuracy"), curve("learning_rate")],
                hparams: vec![(word("lr"), word("0.001")), (word("optimizer"), word("adam"))],
            },
            RunPart { name: Some(word("lightning_logs/version_3")), curves: vec![curve("epoch")], hparams: Vec::new() },
        ],
        truncated: true,
    }
}

pub fn run_empty(word: &Word) -> RunPage {
    RunPage {
        notice: None,
        row: row(word, "fresh", None, RunState::Waiting, 0),
        is_owner: false,
        error: None,
        passed_over: Vec::new(),
        parts: Vec::new(),
        truncated: false,
        ..run(word)
    }
}

pub fn compared(word: &Word) -> RunsCompared {
    let run = |name| (ID.to_owned(), word(name));
    RunsCompared { layout: layout(word).at(Nav::Runs), runs: vec![run("resnet18"), run("resnet50")] }
}

pub fn compared_none(word: &Word) -> RunsCompared {
    RunsCompared { runs: Vec::new(), ..compared(word) }
}
