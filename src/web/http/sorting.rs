//! Lists that are sorted by their column heads: `?sort=name` or `?sort=-name`, the links of the heads, and cursors that
//! hold the sorted value beside the id. Which columns there are is said by the list in `db`; without a word of the order,
//! the newest comes first.

use std::{convert::Infallible, fmt::Display, str::FromStr};

use super::{
    error::{Error, Result},
    paging::{Listed, Paging},
};
use crate::{
    db::ordering::{SortBy, SortColumn},
    web::views::{ListFrame, ShownColumns, SortChoice, SortHead, SortHeads},
};

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::web) struct Sorting {
    columns: &'static [SortColumn],
    column: &'static SortColumn,
    is_descending: bool,
}

/// A place in a sorted list, as cursors carry it: the id, and behind it the order with the sorted value.
struct Place {
    id: String,
    /// `None` in the usual order.
    sorted: Option<(String, String)>,
}

/// A place that belongs to the order of a list.
#[derive(Debug)]
pub(in crate::web) struct Position<I> {
    /// The id of the last item of the page before.
    pub(in crate::web) before: Option<I>,
    value: Option<String>,
}

impl Sorting {
    /// The newest first. `columns` begins with the time of creation.
    pub(in crate::web) fn newest(columns: &'static [SortColumn]) -> Self {
        Self { columns, column: &columns[0], is_descending: true }
    }

    fn parse(columns: &'static [SortColumn], text: &str) -> Option<Self> {
        let name = text.strip_prefix('-').unwrap_or(text);
        let column = columns.iter().find(|column| column.name == name)?;
        Some(Self { columns, column, is_descending: name.len() < text.len() })
    }

    /// Reads the order of a page; a word that is not known is the usual order.
    pub(in crate::web) fn of_page(columns: &'static [SortColumn], text: &str) -> Self {
        Self::parse(columns, text).unwrap_or_else(|| Self::newest(columns))
    }

    /// Reads the parameter of an API request.
    pub(in crate::web) fn asked(columns: &'static [SortColumn], text: Option<&str>) -> Result<Self> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Self::newest(columns)) };
        Self::parse(columns, text).ok_or_else(|| {
            let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
            let message = format!("Must be one of {}, with a minus in front for the opposite order.", names.join(", "));
            Error::field("sort", "invalid_value", message)
        })
    }

    /// The word of the address; empty for the usual order.
    pub(in crate::web) fn word(&self) -> String {
        if *self == Self::newest(self.columns) {
            return String::new();
        }
        format!("{}{}", if self.is_descending { "-" } else { "" }, self.column.name)
    }

    /// Returns the name of the column.
    pub(in crate::web) fn name(&self) -> &'static str {
        self.column.name
    }

    pub(in crate::web) fn is_descending(&self) -> bool {
        self.is_descending
    }

    /// Reads the cursor of a list in this order.
    pub(in crate::web) fn position<I: FromStr>(&self, paging: &Paging) -> Result<Position<I>> {
        let fault = |message| Error::field("cursor", "invalid_value", message);
        let Some(place) = paging.after::<Place>()? else { return Ok(Position { before: None, value: None }) };
        let (word, value) = place.sorted.unwrap_or_default();
        if word != self.word() || !self.column.accepts(&value) {
            return Err(fault("This cursor belongs to a list with another sort order."));
        }
        let id = place.id.parse().map_err(|_err| fault("This is not a valid cursor for this list."))?;
        Ok(Position { before: Some(id), value: Some(value) })
    }

    /// What the database is asked for; `None` is its usual order.
    pub(in crate::web) fn sort<'a, I>(&self, position: &'a Position<I>) -> Option<SortBy<'a>> {
        let after = position.value.as_deref();
        (!self.word().is_empty()).then_some(SortBy { column: self.column, is_descending: self.is_descending, after })
    }

    /// Makes a page of what was found with a limit one higher than `limit`.
    pub(in crate::web) fn listed<T, I: Display>(
        &self,
        found: Vec<(T, String)>,
        limit: i64,
        id: impl Fn(&T) -> I,
    ) -> Listed<T> {
        let word = self.word();
        let place = |(item, value): &(T, String)| {
            let id = id(item).to_string();
            let sorted = (!word.is_empty()).then(|| (word.clone(), value.clone()));
            Place { id, sorted }
        };
        let Listed { items, next_cursor } = Listed::new(found, limit, place);
        Listed { items: items.into_iter().map(|(item, _)| item).collect(), next_cursor }
    }

    /// Makes what stands around the rows of a page. `address` makes the address of the list from the word of an order and a
    /// cursor; `cursor` is the page's own, and `next` that of the next page.
    pub(in crate::web) fn frame(
        &self,
        columns: ShownColumns,
        address: impl Fn(&str, &str) -> String,
        cursor: Option<&str>,
        next: Option<&str>,
    ) -> ListFrame {
        let word = self.word();
        ListFrame {
            heads: self.heads(|order| address(order, "")),
            orders: self.choices(),
            columns,
            here: address(&word, cursor.unwrap_or_default()),
            first_href: cursor.map(|_| address(&word, "")),
            next_href: next.map(|next| address(&word, next)),
            ..ListFrame::default()
        }
    }

    /// The links of the column heads. `address` makes the address of the list from the word of an order.
    fn heads(&self, address: impl Fn(&str) -> String) -> SortHeads {
        let head = |column: &'static SortColumn| {
            let is_chosen = column == self.column;
            let is_descending = if is_chosen { !self.is_descending } else { column.is_usually_descending() };
            let next = Self { column, is_descending, ..*self };
            let way = if self.is_descending { "descending" } else { "ascending" };
            SortHead { name: column.name, href: address(&next.word()), way: is_chosen.then_some(way) }
        };
        SortHeads(self.columns.iter().map(head).collect())
    }

    /// Every order, for the chooser that stands where a table has no heads.
    fn choices(&self) -> Vec<SortChoice> {
        let orders = self.columns.iter().flat_map(|column| {
            let first = column.is_usually_descending();
            [first, !first].map(|is_descending| Self { column, is_descending, ..*self })
        });
        let choice = |order: Self| SortChoice {
            value: order.word(),
            words: words(order.column, order.is_descending),
            is_chosen: order == *self,
        };
        orders.map(choice).collect()
    }
}

fn words(column: &SortColumn, is_descending: bool) -> String {
    match (column.name, is_descending) {
        ("created", true) => "Newest first".to_owned(),
        ("created", false) => "Oldest first".to_owned(),
        ("started", true) => "Last started first".to_owned(),
        ("started", false) => "First started first".to_owned(),
        ("gpus", true) => "Most GPUs first".to_owned(),
        ("gpus", false) => "Fewest GPUs first".to_owned(),
        ("state", true) => "Running first".to_owned(),
        ("state", false) => "Succeeded first".to_owned(),
        ("duration", true) => "Longest first".to_owned(),
        ("duration", false) => "Shortest first".to_owned(),
        (name, _) if !column.is_usually_descending() => {
            let mut name = name.to_owned();
            name[..1].make_ascii_uppercase();
            format!("{name}, {}", if is_descending { "Z to A" } else { "A to Z" })
        }
        (name, true) => format!("Most {name} first"),
        (name, false) => format!("Fewest {name} first"),
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.sorted {
            None => f.write_str(&self.id),
            Some((word, value)) => write!(f, "{} {word} {value}", self.id),
        }
    }
}

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        let (id, sorted) = text.split_once(' ').unwrap_or((text, ""));
        let sorted = sorted.split_once(' ').map(|(word, value)| (word.to_owned(), value.to_owned()));
        Ok(Self { id: id.to_owned(), sorted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{db::jobs::SORT_COLUMNS, model::JobId};

    #[test]
    fn heads_turn_the_order_around() {
        let by_name = Sorting::of_page(&SORT_COLUMNS, "name");
        let heads = by_name.heads(|word| format!("/jobs?sort={word}"));
        let head = |name| heads.get(name).map(|head| (head.href.as_str(), head.way));
        assert_eq!(head("name"), Some(("/jobs?sort=-name", Some("ascending"))));
        assert_eq!(head("created"), Some(("/jobs?sort=", None)), "the usual order has no word");
        assert_eq!(head("gpus"), Some(("/jobs?sort=-gpus", None)), "the largest number first");
        assert_eq!(head("size"), None);
        assert_eq!(Sorting::of_page(&SORT_COLUMNS, "nothing"), Sorting::newest(&SORT_COLUMNS));
        let newest = Sorting::newest(&SORT_COLUMNS).heads(str::to_owned);
        let created = newest.get("created").unwrap();
        assert_eq!((created.href.as_str(), created.way), ("created", Some("descending")));
        let choices = by_name.choices();
        assert_eq!(choices.len(), 12);
        assert_eq!((choices[0].value.as_str(), choices[0].words.as_str()), ("", "Newest first"));
        let chosen: Vec<_> = choices.iter().filter(|choice| choice.is_chosen).collect();
        assert_eq!((chosen.len(), chosen[0].words.as_str()), (1, "Name, A to Z"));
    }

    #[test]
    fn a_cursor_belongs_to_its_order() {
        let by_name = Sorting::of_page(&SORT_COLUMNS, "-name");
        let (one, other) = (JobId::new(), JobId::new());
        let found = vec![(one, "two words".to_owned()), (other, "x".to_owned())];
        let page = by_name.listed(found, 1, |id| *id);
        assert_eq!(page.items, [one]);
        let paging = Paging::new(None, page.next_cursor);
        let position = by_name.position::<JobId>(&paging).unwrap();
        assert_eq!(position.before, Some(one));
        let sort = by_name.sort(&position).unwrap();
        assert_eq!((sort.after, sort.is_descending, sort.column.name), (Some("two words"), true, "name"));
        for other in ["name", "", "-gpus"] {
            assert!(Sorting::of_page(&SORT_COLUMNS, other).position::<JobId>(&paging).is_err(), "{other}");
        }
        let newest = Sorting::newest(&SORT_COLUMNS);
        let page = newest.listed(vec![(one, String::new()), (other, String::new())], 1, |id| *id);
        let position = newest.position::<JobId>(&Paging::new(None, page.next_cursor)).unwrap();
        assert!(position.before == Some(one) && newest.sort(&position).is_none());
        assert!(Sorting::asked(&SORT_COLUMNS, Some("size")).is_err());
        assert_eq!(Sorting::asked(&SORT_COLUMNS, Some("")).unwrap(), newest);
    }
}
