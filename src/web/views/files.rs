//! `/files` and `/files/item`: a folder, and one thing in it. Names are any bytes; here they
//! are text for people already, and addresses hold them percent-encoded.

use askama::Template;

use super::{Cell, CellOutput, Meter, Moment, Preview};
use crate::web::page::{Layout, filters};

/// A folder.
#[derive(Debug, Template)]
#[template(path = "files/folder.html")]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of its own on the page")]
pub struct FilesPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// An action was asked for, and nothing was selected.
    pub is_without_choice: bool,
    pub error: Option<String>,
    /// The home, and what the site shares; one alone is not shown.
    pub roots: Vec<RootTab>,
    /// The last one is this folder.
    pub crumbs: Vec<Crumb>,
    pub encoded_path: String,
    pub shown_path: String,
    pub rows: Vec<FileRow>,
    pub columns: [Column; 3],
    pub total: u64,
    pub truncated: bool,
    pub free_bytes: i64,
    /// How full the file system is.
    pub space: Meter,
    pub writable: bool,
    pub find: String,
    pub sort: &'static str,
    pub descending: bool,
    pub hidden: bool,
    pub hidden_href: String,
    /// The same without `find`.
    pub all_href: String,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    pub archive_href: String,
    pub jupyter_href: Option<String>,
    /// What was typed for a new folder, kept after an error.
    pub new_folder: String,
    pub max_upload_bytes: i64,
}

#[derive(Clone, Debug)]
pub struct RootTab {
    pub name: String,
    pub href: String,
    pub is_current: bool,
}

#[derive(Clone, Debug)]
pub struct Crumb {
    pub name: String,
    pub href: String,
}

/// A column that can be sorted by.
#[derive(Clone, Debug)]
pub struct Column {
    pub label: &'static str,
    pub href: String,
    /// For `aria-sort`.
    pub sorted: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub struct FileRow {
    pub name: String,
    pub icon: &'static str,
    /// A folder's list, or a file's page.
    pub href: Option<String>,
    /// What it is, where the drawing does not tell.
    pub what: Option<String>,
    pub size: Option<i64>,
    pub changed: Moment,
    pub item_href: String,
    pub encoded_path: String,
}

/// One file or folder: download, rename, delete.
#[derive(Debug, Template)]
#[template(path = "files/item.html")]
pub struct FileItem {
    pub layout: Layout,
    pub error: Option<String>,
    /// The folders above.
    pub crumbs: Vec<Crumb>,
    pub name: String,
    /// The home or a shared folder itself, which is neither renamed nor deleted.
    pub is_root: bool,
    pub encoded_path: String,
    pub shown_path: String,
    pub is_folder: bool,
    /// How much goes with it when it is deleted.
    pub holds: u64,
    pub what: Option<String>,
    pub size: Option<i64>,
    pub changed: Moment,
    pub open_href: Option<String>,
    pub download_href: Option<String>,
    pub jupyter_href: Option<String>,
    pub new_name: String,
    /// The folder that holds it, percent-encoded and for people.
    pub encoded_folder: String,
    pub folder: String,
    /// `None` for what is no file, and where it could not be read: then why.
    pub preview: Option<Preview>,
    pub unreadable: Option<String>,
    /// Its folder has curves, which are not among the runs yet.
    pub has_curves: bool,
    /// The run that shows them.
    pub run_href: Option<String>,
    /// Models that could predict on this picture: name and address.
    pub models: Vec<(String, String)>,
    /// Starts a JupyterLab for a notebook where none runs that could show it.
    pub notebook_href: Option<String>,
}

/// What was selected in a folder, before it is moved, copied or deleted.
#[derive(Debug, Template)]
#[template(path = "files/selected.html")]
pub struct SelectedFiles {
    pub layout: Layout,
    /// `move`, `copy` or `delete`, and as the button has it.
    pub action: &'static str,
    pub verb: &'static str,
    pub folder: String,
    pub encoded_folder: String,
    pub back: String,
    pub items: Vec<SelectedItem>,
    /// The destination that was typed.
    pub to: String,
    /// What is wrong with the destination.
    pub wrong: Option<String>,
    pub notice: Option<String>,
    /// Files are replaced, or folders deleted with what is in them.
    pub is_bold: bool,
}

#[derive(Clone, Debug)]
pub struct SelectedItem {
    pub name: String,
    pub encoded_path: String,
    /// Why it was not done.
    pub error: Option<String>,
}

impl SelectedFiles {
    fn has_errors(&self) -> bool {
        self.wrong.is_some() || self.items.iter().any(|item| item.error.is_some())
    }
}

impl FilesPage {
    fn name(&self) -> &str {
        self.crumbs.last().map_or("", |crumb| crumb.name.as_str())
    }

    fn has_choice(&self) -> bool {
        self.roots.len() > 1
    }
}
