//! What all lists of things share: the heads that sort, the chooser of an order where there are no heads, and the columns
//! that a reader chose. Addresses and choices are made in `web::sorting` and `web::columns`; the markup is in
//! `templates/parts/lists.html`.

/// What stands around the rows of a list.
#[derive(Clone, Debug, Default)]
pub struct ListFrame {
    pub heads: SortHeads,
    pub orders: Vec<SortChoice>,
    pub columns: ShownColumns,
    /// The address of this very page, for the way back.
    pub here: String,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
    /// What an action on several rows did.
    pub notice: Option<String>,
    /// An action was asked for, and nothing was selected.
    pub is_without_choice: bool,
    /// Why it did not change some of them.
    pub error: Option<String>,
}

/// The column heads that sort a list.
#[derive(Clone, Debug, Default)]
pub struct SortHeads(pub Vec<SortHead>);

/// A column head that sorts.
#[derive(Clone, Debug)]
pub struct SortHead {
    pub name: &'static str,
    /// The list sorted by this column, or in the opposite order where it already is.
    pub href: String,
    /// `ascending` or `descending` where the list is sorted by it.
    pub way: Option<&'static str>,
}

/// One order of a list.
#[derive(Clone, Debug)]
pub struct SortChoice {
    /// The word of the address.
    pub value: String,
    pub words: String,
    pub is_chosen: bool,
}

/// The columns of a list.
#[derive(Clone, Debug, Default)]
pub struct ShownColumns {
    pub list: &'static str,
    pub columns: Vec<ColumnLabel>,
}

/// A column that can be shown.
#[derive(Clone, Debug)]
pub struct ColumnLabel {
    pub name: &'static str,
    pub label: &'static str,
    pub is_shown: bool,
}

impl SortHeads {
    /// Returns the head of a column; `None` where the list is not sorted by it.
    pub fn get(&self, name: &str) -> Option<&SortHead> {
        self.0.iter().find(|head| head.name == name)
    }
}

impl ShownColumns {
    /// Returns whether a column is shown.
    pub fn shows(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.is_shown && column.name == name)
    }
}
