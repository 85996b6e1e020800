//! The list of sessions and the results of a search, as the gallery draws them.

use lyceum::{
    model::EndReason,
    web::{
        page::Nav,
        views::{BoardPage, FoundItem, ListFrame, SearchPage, SessionRow, SessionSearch, SessionsPage},
    },
};

use super::{
    gallery::{NOW, Word, layout},
    sessions::{ended, out_of_memory, queued, running},
};

pub fn list(word: &Word) -> SessionsPage {
    let open = Some("https://apps.example.org/s/1/".to_owned());
    let rows = [
        (running(word), "JupyterLab", open),
        (queued(word), "JupyterLab", None),
        (ended(word, "board", EndReason::Idle, 26 * 3600), "TensorBoard", None),
        (ended(word, "shell", EndReason::StoppedByOwner, 3600), "Terminal", None),
        (out_of_memory(word), "JupyterLab", None),
    ];
    SessionsPage {
        layout: layout(word).at(Nav::Sessions),
        search: SessionSearch { find: word("a"), all: true, ..SessionSearch::default() },
        rows: rows
            .into_iter()
            .map(|(session, app, open)| SessionRow::new(session, word(app), open, true, NOW))
            .collect(),
        apps: vec![("jupyter".to_owned(), word("JupyterLab"))],
        sees_all: true,
        frame: frame(),
    }
}

fn frame() -> ListFrame {
    let columns = [
        ("program", "Program"),
        ("gpus", "GPUs"),
        ("size", "Size"),
        ("created", "Requested"),
        ("started", "Started"),
        ("duration", "Duration"),
    ];
    super::frame("sessions", &["name", "program", "gpus", "created", "started"], &columns)
}

pub fn empty(word: &Word) -> SessionsPage {
    let frame = ListFrame { next_href: None, ..frame() };
    SessionsPage { search: SessionSearch::default(), rows: Vec::new(), frame, sees_all: false, ..list(word) }
}

pub fn board(word: &Word) -> BoardPage {
    BoardPage { layout: layout(word).at(Nav::Sessions), directory: word("~/runs/resnet50") }
}

pub fn search(word: &Word) -> SearchPage {
    SearchPage {
        layout: layout(word).at(Nav::None),
        find: word("res"),
        items: vec![
            FoundItem::action("New session", "/sessions/new"),
            FoundItem::new("Job", word("resnet50"), "Running", "/jobs/1".to_owned()),
            FoundItem::new("Run", word("resnet"), &word("/data/runs/resnet"), "/runs/1".to_owned()),
        ],
    }
}
