//! The pages of usage, filled: a month with a weekend, a budget that runs out, what has ended;
//! nothing at all; and everybody beside everybody.

use lyceum::{
    model::EndReason,
    web::{page::Nav, views::*},
};

use super::{
    gallery::{NOW, Word, layout, meters},
    sessions::out_of_memory,
};

const HOUR: i64 = 3_600_000;

/// So many hours on each of the last days.
fn days(hours: &[i64]) -> Vec<(String, String, i64)> {
    let day = |(number, hours): (usize, &i64)| {
        let day = number % 30 + 1;
        (format!("Tue {day} Nov 2026"), format!("{day}\u{a0}Nov"), hours * HOUR)
    };
    hours.iter().enumerate().map(day).collect()
}

fn charts(gpus: &[i64], cpus: &[i64]) -> Vec<Chart> {
    let amounts = |hours: &[i64]| {
        let amount = |(label, short, milliseconds)| Amount { label, short, milliseconds };
        days(hours).into_iter().map(amount).collect()
    };
    vec![Chart::new("gpu-hours", "GPU-hours", amounts(gpus)), Chart::new("core-hours", "core-hours", amounts(cpus))]
}

fn spans(gpus: &[i64], cpus: &[i64]) -> Vec<SpanRow> {
    let both = days(gpus).into_iter().zip(cpus);
    both.map(|((label, _, gpus), cpus)| SpanRow { label, gpus, cpus: cpus * HOUR, sessions: gpus / HOUR / 3 }).collect()
}

const GPUS: [i64; 31] =
    [3, 9, 14, 20, 22, 4, 0, 12, 24, 30, 26, 18, 2, 0, 16, 31, 28, 34, 25, 6, 1, 19, 38, 41, 36, 22, 3, 0, 28, 44, 17];
const CPUS: [i64; 31] = [
    40, 90, 120, 180, 210, 60, 12, 110, 240, 280, 255, 170, 30, 8, 150, 290, 270, 330, 240, 70, 16, 190, 360, 400, 350,
    220, 44, 10, 280, 430, 160,
];

fn tab(label: &str, is_current: bool) -> RangeTab {
    RangeTab { href: "/usage?range=7d".to_owned(), label: label.to_owned(), is_current }
}

fn range(action: &'static str) -> RangeChooser {
    RangeChooser {
        action,
        tabs: vec![tab("Quota period", true), tab("7 days", false), tab("30 days", false), tab("90 days", false)],
        from: "2026-10-22".to_owned(),
        to: "2026-11-21".to_owned(),
        zone: "Europe/Berlin".to_owned(),
        kept: Vec::new(),
        errors: Vec::new(),
    }
}

fn history(word: &Word) -> HistoryFilter {
    let app = |name: &str, title: &str, chosen| (name.to_owned(), word(title), chosen);
    let reasons = EndReason::ALL.iter().map(|reason| (reason.as_str(), end_reason_word(*reason), false));
    HistoryFilter {
        apps: vec![app("jupyter", "JupyterLab", false), app("rstudio", "RStudio", true)],
        reasons: reasons.collect(),
        all_href: "/usage#history".to_owned(),
        kept: vec![("range", "30d".to_owned())],
    }
}

fn line(word: &Word, name: &str, reason: EndReason, hours: i64) -> EndedLine {
    EndedLine {
        id: out_of_memory(word).id.to_string(),
        name: word(name),
        app: word("JupyterLab"),
        class: if reason.is_failure() { "failed" } else { "ended" },
        reason: end_reason_word(reason),
        ended: Moment::clock(NOW.plus_seconds(-hours * 3600), NOW),
        held_seconds: (reason != EndReason::Refused).then_some(hours * 1234),
        held: word("2\u{a0}×\u{a0}A100 · 16\u{a0}cores · 96\u{a0}GiB"),
    }
}

fn budget(word: &Word, whose: &str, used: i64, asked: i64, limit: i64) -> Budget {
    let meter = Meter {
        field: "gpu_hours",
        label: "GPU-hours".to_owned(),
        used: used * 1000,
        asked: asked * 1000,
        limit: Some(limit * 1000),
        unit: Unit::Milli,
        source: word("override"),
    };
    Budget { meter, period: "this month".to_owned(), whose: word(whose) }
}

pub fn own(word: &Word) -> UsagePage {
    UsagePage {
        layout: layout(word).at(Nav::Usage),
        tabs: Some(UsageTabs { others: "All users", is_own: true }),
        elsewhere: Some(word("Includes one job submitted in a shell: 4 cores and 8 GiB.")),
        meters: meters(word),
        budgets: vec![budget(word, "your limit", 310, 48, 500), budget(word, "total of group vision", 1930, 0, 2000)],
        range: range("/usage"),
        charts: charts(&GPUS, &CPUS),
        spans: spans(&GPUS, &CPUS),
        from_shell: Some(word("Includes one job from a shell, with 1.5 GPU-hours and 12.0 core-hours.")),
        history: history(word),
        lines: vec![
            line(word, "tokenizer", EndReason::OutOfMemory, 1),
            line(word, "resnet-nb", EndReason::StoppedByOwner, 26),
            line(word, "vit-sweep", EndReason::Refused, 30),
            line(word, "a-session-with-quite-a-long-name-to-see-what-happens", EndReason::StoppedByAdmin, 75),
        ],
        csv_href: "/usage/table".to_owned(),
        first_href: Some("/usage#history".to_owned()),
        next_href: Some("/usage?cursor=x#history".to_owned()),
    }
}

/// Somebody who has just come, without an administrator's rights, and with a day that is none.
pub fn own_empty(word: &Word) -> UsagePage {
    let message = "Enter a date, as in 2030-01-31.".to_owned();
    UsagePage {
        tabs: None,
        budgets: Vec::new(),
        charts: charts(&[0; 7], &[0; 7]),
        spans: spans(&[0; 7], &[0; 7]),
        from_shell: None,
        range: RangeChooser {
            from: word("yesterday"),
            errors: vec![FieldError { field: "from".to_owned(), message }],
            ..range("/usage")
        },
        history: HistoryFilter { apps: Vec::new(), ..history(word) },
        lines: Vec::new(),
        first_href: None,
        next_href: None,
        ..own(word)
    }
}

pub fn compare(word: &Word) -> ComparePage {
    let column = |label, sorted| Column { label, href: "/usage/compare?sort=name".to_owned(), sorted };
    let row = |name: &str, gpus: i64, cpus: i64, sessions| UsedRow {
        name: word(name),
        href: (name != "bob").then(|| "/admin/users/alice".to_owned()),
        gpus: gpus * HOUR / 10,
        cpus: cpus * HOUR / 10,
        sessions,
        gpu_bar: gpus * 100 / 4120,
        cpu_bar: cpus * 100 / 38_800,
    };
    ComparePage {
        layout: layout(word).at(Nav::Usage),
        tabs: UsageTabs { others: "All users", is_own: false },
        range: range("/usage/compare"),
        charts: charts(&GPUS, &CPUS),
        spans: spans(&GPUS, &CPUS),
        from_shell: Some(word("Includes one job from a shell, with 1.5 GPU-hours and 12.0 core-hours.")),
        by: vec![tab("User", true), tab("Group", false), tab("GPU model", false)],
        columns: vec![
            column("Name", None),
            column("GPU-hours", Some("descending")),
            column("Core-hours", None),
            column("Sessions", None),
        ],
        has_cores: true,
        rows: vec![
            row("alice", 4120, 38_800, 61),
            row("dmitri.ivanov", 1873, 9021, 24),
            row("bob", 999, 12_345, 7),
            UsedRow { name: String::new(), ..row("", 3, 410, 2) },
        ],
        count: 1204,
        csv_href: "/usage/compare/table".to_owned(),
        reports: [
            ("group and user", "/usage/compare/table?by=group%2Cuser".to_owned()),
            ("group and month", "/usage/compare/table?by=group%2Cmonth".to_owned()),
        ],
        first_href: None,
        next_href: Some("/usage/compare?cursor=x".to_owned()),
    }
}

/// By model there are no cores; and here nobody used anything.
pub fn compare_empty(word: &Word) -> ComparePage {
    ComparePage {
        tabs: UsageTabs { others: "My groups", is_own: false },
        by: vec![tab("User", false), tab("Group", false), tab("GPU model", true)],
        has_cores: false,
        rows: Vec::new(),
        charts: charts(&[0; 31], &[0; 31]),
        count: 0,
        next_href: None,
        ..compare(word)
    }
}
