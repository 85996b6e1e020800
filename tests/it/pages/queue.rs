//! The queue's page: jobs that run and that wait for every kind of reason, those of everybody
//! while the controller is silent, and a portal without a queue.

use lyceum::web::{page::Nav, views::*};

use super::gallery::{NOW, Word, layout};

/// All pages of the queue by name.
pub fn pages(word: &Word) -> Vec<(&'static str, String)> {
    let draw = |page: QueuePage| askama::Template::render(&page).unwrap();
    vec![
        ("queue", draw(own(word))),
        ("queue-everybody", draw(everybody(word))),
        ("queue-empty", draw(empty(word))),
        ("queue-none", draw(none(word))),
    ]
}

fn own(word: &Word) -> QueuePage {
    let row = |label: &str, name: &str, why: &str| QueueRow {
        id: "1843".to_owned(),
        label: word(label),
        name: word(name),
        user: word("carol"),
        state: StateBadge { class: "queued", word: "Pending" },
        since: Some(Moment { at: NOW.plus_seconds(-540), show: Show::Since, now: NOW }),
        why: word(why),
        place: None,
        starts: None,
        size: "2 × a100 · 16 cores · 96 GiB".to_owned(),
        partitions: word("gpu, long"),
        nodes: String::new(),
        longest: "8 h".to_owned(),
        href: None,
        may_cancel: true,
    };
    QueuePage {
        layout: layout(word).at(Nav::Cluster),
        cluster: word("slurm"),
        has_queue: true,
        notice: Some("Slurm was asked to cancel the job."),
        seen: Some(Moment::ago(NOW.plus_seconds(-4), NOW)),
        trouble: None,
        no_account: None,
        sees_all: true,
        everybody: false,
        running: 2,
        waiting: 3,
        rows: vec![
            QueueRow {
                place: Some(4),
                starts: Some(Moment::clock(NOW.plus_seconds(5400), NOW)),
                ..row("1843", "bert-large", "Jobs with a higher priority start first (Slurm: Priority).")
            },
            row("1840_[5-40%4]", "sweep", "It depends on another job (Slurm: Dependency)."),
            QueueRow {
                place: Some(1),
                ..row("1839", "md-run", "The requested resources are not free yet (Slurm: Resources).")
            },
            QueueRow {
                state: StateBadge { class: "running", word: "Running" },
                size: "8 × a100 · 64 cores · 512 GiB · 2\u{a0}nodes".to_owned(),
                partitions: word("gpu"),
                nodes: word("node[1-2]"),
                ..row("1840_4", "sweep", "")
            },
            QueueRow {
                state: StateBadge { class: "running", word: "Running" },
                partitions: word("gpu"),
                nodes: word("node3"),
                href: Some("/sessions/0192".to_owned()),
                may_cancel: false,
                ..row("1822", "JupyterLab", "")
            },
        ],
        first_href: None,
        next_href: None,
    }
}

fn everybody(word: &Word) -> QueuePage {
    QueuePage {
        notice: None,
        trouble: Some(word("Slurm’s controller does not respond: it took too long")),
        no_account: Some(word("there is no account `carol` on this machine")),
        everybody: true,
        first_href: Some("/queue?owner=*".to_owned()),
        next_href: Some("/queue?owner=*&cursor=x".to_owned()),
        ..own(word)
    }
}

fn empty(word: &Word) -> QueuePage {
    QueuePage { notice: None, sees_all: false, running: 0, waiting: 0, rows: Vec::new(), ..own(word) }
}

fn none(word: &Word) -> QueuePage {
    QueuePage { notice: None, has_queue: false, ..own(word) }
}
