//! What a page leaves out of a long list: how many items follow, and the links to them. The list itself is cut in
//! `web::paging`.

/// The rest of a list beside the part that is shown.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// The number of items of the whole list.
    pub total: usize,
    /// `None` on the first page.
    pub first_href: Option<String>,
    /// The number of items on later pages, and the address of the next one; `None` on the last page.
    pub next: Option<(usize, String)>,
}
