//! The pages of sweeps: the list, filled and empty, and one with tasks in every state.

use lyceum::{
    model::{
        Sweep, SweepId, SweepState, UserId,
        sweep::{Goal, Metric, SweepKind},
    },
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

fn sweep(word: &Word, name: &str, state: SweepState) -> SweepRow {
    let sweep = Sweep {
        id: SweepId::new(),
        owner: UserId::new(),
        owner_name: word("alice"),
        name: word(name),
        kind: SweepKind::Grid,
        state,
        note: if state == SweepState::Paused {
            word("Your GPU-hours of this month are used up.")
        } else {
            String::new()
        },
        tasks: 60,
        released: 24,
        parallel: 4,
        created_at: NOW.plus_seconds(-9000),
    };
    SweepRow::new(sweep, NOW)
}

pub fn list(word: &Word) -> SweepsPage {
    let states = [SweepState::Running, SweepState::Paused, SweepState::Stopping, SweepState::Ended];
    SweepsPage {
        layout: layout(word).at(Nav::Jobs),
        all: true,
        rows: states.into_iter().map(|state| sweep(word, "resnet50, learning rate", state)).collect(),
        find: word("res"),
        frame: frame(),
    }
}

fn frame() -> ListFrame {
    let columns = [("kind", "Kind"), ("tasks", "Tasks"), ("created", "Created")];
    super::frame("sweeps", &["name", "tasks", "created"], &columns)
}

pub fn empty(word: &Word) -> SweepsPage {
    let frame = ListFrame { next_href: None, ..frame() };
    SweepsPage { all: false, find: String::new(), rows: Vec::new(), frame, ..list(word) }
}

pub fn show(word: &Word) -> ShowSweep {
    let states = [
        ("succeeded", "succeeded", "exit code 0"),
        ("failed", "failed", "exit code 1"),
        ("cancelled", "cancelled", "cancelled"),
        ("running", "running", ""),
        ("starting", "starting", ""),
        ("queued", "queued", ""),
        ("planned", "ended", ""),
    ];
    let task = |index: i64| {
        let (state, class, outcome) = states[usize::try_from(index).unwrap() / 9];
        let has_values = index < 36;
        TaskRow {
            index,
            repeat: 0,
            values: vec![word("0.1"), word("adam")],
            job: (state != "planned").then(|| "0190a1b2-0000-7000-8000-000000000000".to_owned()),
            href: (state != "planned").then(|| "/jobs/0190a1b2-0000-7000-8000-000000000000".to_owned()),
            word: state,
            class,
            said: if state == "planned" { "Planned" } else { "Running" },
            outcome: outcome.to_owned(),
            ran: has_values.then(|| "1 h 6 min".to_owned()),
            best: has_values.then(|| "0.2314".to_owned()),
            step: has_values.then_some(12_000),
        }
    };
    ShowSweep {
        layout: layout(word).at(Nav::Jobs),
        sweep: sweep(word, "resnet50, learning rate", SweepState::Paused),
        metric: Some(Metric { tag: word("val/loss"), goal: Goal::Minimum, stop_after_step: Some(1000) }),
        best: Some(task(3)),
        parameters: vec![word("lr"), word("optimizer")],
        has_repeats: false,
        rows: (0..60).map(task).collect(),
        more: super::gallery::more("/sweeps/0190a1b2-0000-7000-8000-000000000000", "tasks", 100),
        counts: vec![("running", "running", 9), ("ended", "succeeded", 91)],
        is_own: true,
        may_pause: false,
        may_resume: true,
        may_stop: true,
        compare_href: Some("/runs/compare?id=1&id=2".to_owned()),
        may_delete: false,
    }
}
