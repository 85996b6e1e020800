//! Runs, filled: in every state of reading, with everything that may be passed over, and empty.

use lyceum::{
    model::{
        RunId,
        run::{SkippedData, Visibility},
    },
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
        is_helper: owner.is_none(),
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
        notice: Some("The run was removed. Its log files are kept.".to_owned()),
        removed: Some(RunId::new().to_string()),
        trash: super::jobs::trash(word),
        errors: Vec::new(),
        table: table(word),
        form: form(word),
    }
}

fn cell(word: &Word, label: &str, text: &str, step: Option<i64>) -> CellView {
    CellView {
        label: word(label),
        text: word(text),
        is_number: step.is_some(),
        is_missing: text == "–",
        step,
        delta: step.filter(|step| *step > 100).map(|_| "+0.0312".to_owned()),
        is_best: step == Some(90),
        line: step.map(|_| path(&[Some(2.0), Some(1.0), Some(0.4), None, Some(0.3), Some(0.32)], 0.3, 2.0)),
    }
}

/// Runs in every state.
fn lines(word: &Word) -> Vec<ResultLineView> {
    let line = |name: &str, owner: Option<&str>, state: RunState, points: u64, cells: &[(&str, &str, Option<i64>)]| {
        ResultLineView {
            run: row(word, name, owner, state, points),
            is_picked: name == "resnet18",
            is_base: name == "baseline",
            base_href: format!("/runs?base={ID}"),
            cells: cells.iter().map(|(label, text, step)| cell(word, label, text, *step)).collect(),
        }
    };
    vec![
        line(
            "resnet18",
            None,
            RunState::Live,
            1_234_567,
            &[
                ("lr", "0.01", None),
                ("optimizer", "adam", None),
                ("val/accuracy", "0.981", Some(90)),
                ("val/loss", "0.0713", Some(90)),
            ],
        ),
        line(
            "baseline",
            Some("bob"),
            RunState::Complete,
            90_000,
            &[
                ("lr", "0.03", None),
                ("optimizer", "sgd", None),
                ("val/accuracy", "0.962", Some(120)),
                ("val/loss", "0.1025", Some(120)),
            ],
        ),
        line(
            "old logs",
            None,
            RunState::Watched,
            5000,
            &[
                ("lr", "–", None),
                ("optimizer", "–", None),
                ("val/accuracy", "–", None),
                ("val/loss", "1.6e-7", Some(7)),
            ],
        ),
        line("fresh", None, RunState::Waiting, 0, &[]),
        line("gone", None, RunState::Trouble, 17, &[]),
    ]
}

fn table(word: &Word) -> ResultsView {
    let head = |key: &str, label: &str, is_number: bool, way: Option<&'static str>| Head {
        key: key.to_owned(),
        label: word(label),
        is_number,
        href: format!("/runs?sort={key}"),
        way,
        arrow: way.map_or("", |way| if way == "ascending" { "↑1" } else { "↓2" }).to_owned(),
    };
    let choice = |key: &str, label: &str, is_metric: bool| ColumnChoice {
        key: key.to_owned(),
        label: word(label),
        is_metric,
        is_shown: true,
    };
    let spread = || SpreadView {
        mean: "0.4211".to_owned(),
        deviation: Some("0.031".to_owned()),
        range: "0.3901 to 0.46".to_owned(),
        count: 3,
        line: path(&[Some(2.0), Some(1.0), Some(0.5)], 0.4, 2.2),
        band: area(&[Some(1.8), Some(0.9), Some(0.4)], &[Some(2.2), Some(1.1), Some(0.6)], 0.4, 2.2),
    };
    let group = |name: &str, count: usize, is_there: bool| GroupView {
        name: word(name),
        count,
        href: format!("/runs/compare?id={ID}"),
        spreads: vec![is_there.then(spread), is_there.then(spread)],
    };
    ResultsView {
        filter: word("lr < 0.1"),
        wrong: None,
        value: "best",
        step: String::new(),
        with_same: false,
        with_helpers: true,
        groups: vec![("p:lr".to_owned(), word("lr")), ("p:optimizer".to_owned(), word("optimizer"))],
        group: "p:optimizer".to_owned(),
        choice: vec![
            choice("p:lr", "lr", false),
            choice("p:optimizer", "optimizer", false),
            choice("m:val/accuracy", "val/accuracy", true),
            choice("m:val/loss", "val/loss", true),
        ],
        is_chosen: true,
        kept: vec![("sort", "-m:val/loss".to_owned())],
        says: "5 of 7 runs".to_owned(),
        reset_href: Some("/runs".to_owned()),
        heads: vec![
            head("name", "Run", false, None),
            head("p:lr", "lr", true, Some("ascending")),
            head("p:optimizer", "optimizer", false, None),
            head("m:val/accuracy", "val/accuracy", true, Some("descending")),
            head("m:val/loss", "val/loss", true, None),
        ],
        rows: lines(word),
        group_heads: vec![word("val/accuracy"), word("val/loss")],
        group_rows: vec![group("optimizer = adam", 3, true), group("optimizer not set", 1, false)],
        next_href: Some("/runs?cursor=x".to_owned()),
        first_href: None,
        picked: ID.to_owned(),
    }
}

pub fn runs_wrong(word: &Word) -> RunsPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    RunsPage {
        notice: None,
        removed: None,
        errors: vec![
            error("directory", "Directory not found."),
            error("name", "At most 200 characters."),
            error("group", "Required with the visibility `group`."),
        ],
        table: ResultsView {
            wrong: Some(word("Unknown column “depth”. (character 7)")),
            rows: Vec::new(),
            group_rows: Vec::new(),
            next_href: None,
            ..table(word)
        },
        form: RunForm { directory: word("~/nowhere"), name: word("x"), visibility: Visibility::Group, ..form(word) },
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
    let skipped = SkippedData {
        damaged: 2,
        oversized: 1,
        surplus: 70_000,
        lost: true,
        unreadable: vec![word("/home/alice/experiments/secret: Permission denied (os error 13)")],
        left_out: 3,
    };
    RunPage {
        layout: layout(word).at(Nav::Runs),
        notice: Some("The run was changed.".to_owned()),
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
