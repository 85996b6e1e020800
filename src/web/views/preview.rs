//! What the page of a file shows of its content. It is bounded already, and holds text, markup made by us, and pictures
//! that browsers only draw.

use crate::web::markdown::Markdown;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Preview {
    Picture {
        href: String,
    },
    Notebook(Vec<Cell>),
    Table(TablePreview),
    Markdown(Markdown),
    Text(TextPreview),
    /// No kind that can be shown.
    #[default]
    None,
}

/// Lines, numbered from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPreview {
    pub lines: Vec<String>,
    /// There is more than these.
    pub is_cut: bool,
}

/// The first rows of a table, each with as many cells as the head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePreview {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub is_cut: bool,
    /// Columns that are left out.
    pub hidden_columns: usize,
}

/// A cell of a notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Words(Markdown),
    Code {
        /// Which one was run, by the notebook's own count.
        number: Option<i64>,
        source: String,
        outputs: Vec<CellOutput>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellOutput {
    Text(String),
    Words(Markdown),
    Error(String),
    /// Its data, as an address.
    Picture(String),
}
