//! The pages of files for the gallery: a folder with all there may be in it, an empty one that
//! may only be read, and one entry that could not be deleted.

use lyceum::{
    model::{Timestamp, size::GIB},
    web::{markdown::Markdown, page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

fn crumb(name: String) -> Crumb {
    Crumb { name, href: "/files?path=/home/alice".to_owned() }
}

fn row(name: String, icon: &'static str, what: Option<String>, size: Option<i64>, minutes: i64) -> FileRow {
    FileRow {
        name,
        icon,
        href: (icon != "link").then(|| "/files?path=/home/alice/data%0A".to_owned()),
        what,
        size,
        changed: Moment::clock(Timestamp(NOW.0 - minutes * 60_000), NOW),
        item_href: "/files/item?path=/home/alice/data%0A".to_owned(),
        encoded_path: "/home/alice/data%0A".to_owned(),
    }
}

pub fn folder(word: &Word) -> FilesPage {
    let column = |label, sorted| Column { label, href: "/files?path=/home/alice&sort=size".to_owned(), sorted };
    FilesPage {
        layout: layout(word).at(Nav::Files),
        notice: Some("The folder was created.".to_owned()),
        is_without_choice: false,
        error: None,
        roots: vec![
            RootTab { name: word("Home"), href: "/files".to_owned(), is_current: true },
            RootTab { name: word("isilon"), href: "/files?path=/mnt/isilon".to_owned(), is_current: false },
        ],
        crumbs: vec![crumb("Home".to_owned()), crumb(word("experiments")), crumb(word("resnet-50"))],
        encoded_path: "/home/alice/experiments/resnet-50".to_owned(),
        shown_path: word("/home/alice/experiments/resnet-50"),
        rows: vec![
            row(word("checkpoints"), "folder", None, None, 12),
            row(word("isilon"), "folder", Some("link".to_owned()), None, 90_000),
            row(word("training-log-2026-11-21.jsonl"), "file", None, Some(48_213), 3),
            row(word("model-epoch-0042.safetensors"), "file", None, Some(9 * GIB), 340),
            row(word("old-data"), "link", Some(word("leads to /scratch, which is not reached here")), None, 99_000),
        ],
        columns: [column("Name", Some("ascending")), column("Size", None), column("Changed", None)],
        total: 10_412,
        truncated: true,
        free_bytes: 38 * GIB,
        space: Meter { used: 962 * GIB, limit: Some(1000 * GIB), unit: Unit::Bytes, ..Meter::default() },
        writable: true,
        find: word("log"),
        sort: "name",
        descending: false,
        hidden: false,
        hidden_href: "/files?hidden=true".to_owned(),
        all_href: "/files".to_owned(),
        first_href: Some("/files".to_owned()),
        next_href: Some("/files?cursor=x".to_owned()),
        archive_href: "/files/download?path=/home/alice&archive=tar".to_owned(),
        jupyter_href: Some("/s/1/lab/tree/x".to_owned()),
        new_folder: String::new(),
        max_upload_bytes: 100 * GIB,
    }
}

pub fn empty(word: &Word) -> FilesPage {
    FilesPage {
        notice: None,
        is_without_choice: true,
        error: Some(word("There is a folder of that name already.")),
        roots: Vec::new(),
        rows: Vec::new(),
        total: 0,
        truncated: false,
        writable: false,
        find: String::new(),
        first_href: None,
        next_href: None,
        jupyter_href: None,
        ..folder(word)
    }
}

pub fn item(word: &Word) -> FileItem {
    FileItem {
        layout: layout(word).at(Nav::Files),
        error: Some(word("The folder is not empty: say that it is to be deleted with everything in it.")),
        crumbs: vec![crumb("Home".to_owned()), crumb(word("experiments"))],
        name: word("resnet-50"),
        is_root: false,
        encoded_path: "/home/alice/experiments/resnet-50".to_owned(),
        shown_path: word("/home/alice/experiments/resnet-50"),
        is_folder: true,
        holds: 12,
        what: Some("link".to_owned()),
        size: None,
        changed: Moment::clock(Timestamp(NOW.0 - 600_000), NOW),
        open_href: Some("/files?path=/home/alice".to_owned()),
        download_href: Some("/files/download?path=/home/alice&archive=tar".to_owned()),
        jupyter_href: None,
        new_name: word("resnet-50"),
        encoded_folder: "/home/alice/experiments".to_owned(),
        folder: word("/home/alice/experiments"),
        preview: None,
        unreadable: None,
        has_curves: false,
        run_href: None,
        models: Vec::new(),
        notebook_href: None,
    }
}

fn shown(word: &Word, name: &str, preview: Preview) -> FileItem {
    FileItem {
        error: None,
        name: word(name),
        is_folder: false,
        holds: 0,
        what: None,
        size: Some(48_213),
        open_href: None,
        new_name: word(name),
        preview: Some(preview),
        ..item(word)
    }
}

pub fn text(word: &Word) -> FileItem {
    let lines = ["import keras", "", "def train(epochs: int) -> None:", "    for epoch in range(epochs):"];
    let lines = lines.iter().map(|line| word(line)).collect();
    FileItem {
        unreadable: Some(word("/home/alice does not respond. Its file server may be down or busy.")),
        ..shown(word, "train.py", Preview::Text(TextPreview { lines, is_cut: true }))
    }
}

pub fn table(word: &Word) -> FileItem {
    let row = |cells: &[&str]| cells.iter().map(|cell| word(cell)).collect::<Vec<_>>();
    let table = TablePreview {
        head: row(&["step", "loss", "accuracy"]),
        rows: vec![row(&["100", "0.62", "0.81"]), row(&["200", "0.41", ""])],
        is_cut: true,
        hidden_columns: 3,
    };
    FileItem { has_curves: true, ..shown(word, "metrics.csv", Preview::Table(table)) }
}

pub fn notebook(word: &Word) -> FileItem {
    let picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let cells = vec![
        Cell::Words(Markdown::new(&word("**Fashion-MNIST** in a few lines"))),
        Cell::Code {
            number: Some(1),
            source: word("model.fit(x, y)\nplot()"),
            outputs: vec![
                CellOutput::Text(word("Epoch 1/3")),
                CellOutput::Picture(picture.to_owned()),
                CellOutput::Error(word("ValueError: shapes do not match")),
                CellOutput::Words(Markdown::new(&word("- done"))),
            ],
        },
        Cell::Code { number: None, source: String::new(), outputs: Vec::new() },
    ];
    FileItem {
        notebook_href: Some("/sessions/new?app=jupyter".to_owned()),
        ..shown(word, "explore.ipynb", Preview::Notebook(cells))
    }
}

pub fn picture(word: &Word) -> FileItem {
    let href = "/files/picture?path=/home/alice/data%0A".to_owned();
    FileItem {
        models: vec![(word("resnet50-shapes"), "/models/0190?picture=/home/alice/a.png#try".to_owned())],
        run_href: Some("/runs/0190".to_owned()),
        ..shown(word, "square-0001.png", Preview::Picture { href })
    }
}

pub fn selected(word: &Word) -> SelectedFiles {
    let item = |name: &str, error: Option<&str>| SelectedItem {
        name: word(name),
        encoded_path: "/home/alice/data%0A".to_owned(),
        error: error.map(word),
    };
    SelectedFiles {
        layout: layout(word).at(Nav::Files),
        action: "move",
        verb: "Move",
        folder: word("/home/alice/experiments"),
        encoded_folder: "/home/alice/experiments".to_owned(),
        back: "/files?path=/home/alice/experiments".to_owned(),
        items: vec![item("a.txt", Some("/mnt/isilon/a.txt already exists.")), item("runs", None)],
        to: word("/mnt/isilon"),
        wrong: None,
        notice: Some(word("Done: 1 of 3. The others are listed here.")),
        is_bold: true,
    }
}

pub fn deleted(word: &Word) -> SelectedFiles {
    let SelectedFiles { items, .. } = selected(word);
    let items = items.into_iter().map(|item| SelectedItem { error: None, ..item }).collect();
    SelectedFiles { action: "delete", verb: "Delete", items, notice: None, ..selected(word) }
}
