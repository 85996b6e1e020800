//! Lists that are sorted by one of their columns: the condition that a page comes after another one, and the order of the
//! statement. A position is the sorted value and the id of a row, so that rows which come and go move no other row to
//! another page. Each column has an index for each way in which its list is read (`migrations/0045_sorted_lists.sql`).

/// A column that a list can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortColumn {
    /// Its name in addresses.
    pub name: &'static str,
    /// The SQL expression of its values, in the words of its indexes. Never null.
    expression: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The id itself, which grows with time.
    Id,
    Text,
    Number,
}

/// The order of a list, and where in it a page begins.
#[derive(Clone, Copy, Debug)]
pub struct SortBy<'a> {
    pub column: &'static SortColumn,
    pub is_descending: bool,
    /// The value of the last row of the page before, whose id the filter has; `None` begins with the first row.
    pub after: Option<&'a str>,
}

/// The parts of a statement that sort its rows.
pub(super) struct Ordering {
    /// The condition that a row is behind the position.
    pub(super) after: String,
    /// What follows ORDER BY.
    pub(super) order: String,
    /// The sorted value as a text.
    pub(super) value: String,
}

impl SortColumn {
    /// By time of creation: ids grow with it.
    pub(super) const CREATED: Self = Self { name: "created", expression: "", kind: Kind::Id };

    pub(super) const fn text(name: &'static str, expression: &'static str) -> Self {
        Self { name, expression, kind: Kind::Text }
    }

    pub const fn number(name: &'static str, expression: &'static str) -> Self {
        Self { name, expression, kind: Kind::Number }
    }

    /// Returns whether the greatest values usually come first: the latest time, the largest number.
    pub fn is_usually_descending(&self) -> bool {
        self.kind != Kind::Text
    }

    /// Returns whether a text is a value of this column.
    pub fn accepts(&self, value: &str) -> bool {
        match self.kind {
            Kind::Id => value.is_empty(),
            Kind::Text => !value.contains('\0'),
            Kind::Number => value.parse::<i64>().is_ok(),
        }
    }

    /// Returns whether rows are in the order of their ids.
    pub(super) fn is_by_id(&self) -> bool {
        self.kind == Kind::Id
    }
}

impl Ordering {
    /// Sorts by `sort`, or by id with the latest first. `id` is the expression of the id, `id_place` the parameter with the
    /// id of the last row before, and `value_place` the one with its sorted value.
    pub(super) fn new(sort: Option<&SortBy<'_>>, id: &str, id_place: &str, value_place: &str) -> Self {
        let (column, is_descending) =
            sort.map_or((&SortColumn::CREATED, true), |sort| (sort.column, sort.is_descending));
        let (sign, way) = if is_descending { ("<", "DESC") } else { (">", "ASC") };
        let key = column.expression;
        let is_first = sort.is_some_and(|sort| sort.after.is_none());
        if column.is_by_id() {
            let after = match sort {
                Some(_) if is_first => format!("{id_place} <> '' AND {value_place} = ''"),
                _ => format!("{id} {sign} {id_place} AND {value_place} = ''"),
            };
            return Self { after, order: format!("{id} {way}"), value: "''".to_owned() };
        }
        // A sum has no affinity: SQLite looks for a number with one in no index of an expression.
        let number = format!("(CAST(CAST({value_place} AS TEXT) AS BIGINT) + 0)");
        let value = if column.kind == Kind::Number { number.as_str() } else { value_place };
        let after = if is_first {
            format!("{id_place} <> '' AND {value_place} = ''")
        } else {
            // SQLite does not look for a row value that has an expression in it: the first condition leads to its place.
            format!("{key} {sign}= {value} AND ({key}, {id}) {sign} ({value}, {id_place})")
        };
        Self { after, order: format!("{key} {way}, {id} {way}"), value: format!("CAST({key} AS TEXT)") }
    }
}

/// Returns the sorted value of a position as a parameter of a statement.
pub(super) fn position<'a>(sort: Option<&SortBy<'a>>) -> &'a str {
    sort.and_then(|sort| sort.after).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: SortColumn = SortColumn::text("name", "j.folded_name");
    const GPUS: SortColumn = SortColumn::number("gpus", "s.gpus");

    #[test]
    fn a_page_follows_a_position() {
        let sorted = |column, is_descending, after| {
            let Ordering { after, order, .. } =
                Ordering::new(Some(&SortBy { column, is_descending, after }), "j.id", "$1", "$2");
            (after, order)
        };
        let text = |(after, order): (&str, &str)| (after.to_owned(), order.to_owned());
        for (found, expected) in [
            (
                sorted(&NAME, false, Some("a")),
                ("j.folded_name >= $2 AND (j.folded_name, j.id) > ($2, $1)", "j.folded_name ASC, j.id ASC"),
            ),
            (
                sorted(&GPUS, true, Some("2")),
                (
                    "s.gpus <= (CAST(CAST($2 AS TEXT) AS BIGINT) + 0) AND (s.gpus, j.id) < ((CAST(CAST($2 AS TEXT) AS BIGINT) + 0), $1)",
                    "s.gpus DESC, j.id DESC",
                ),
            ),
            (sorted(&NAME, false, None), ("$1 <> '' AND $2 = ''", "j.folded_name ASC, j.id ASC")),
            (sorted(&SortColumn::CREATED, false, Some("")), ("j.id > $1 AND $2 = ''", "j.id ASC")),
        ] {
            assert_eq!(found, text(expected));
        }
        let newest = Ordering::new(None, "j.id", "$1", "$2");
        assert_eq!((newest.after.as_str(), newest.order.as_str()), ("j.id < $1 AND $2 = ''", "j.id DESC"));
    }

    #[test]
    fn values_belong_to_their_column() {
        assert!(GPUS.accepts("-3") && !GPUS.accepts("x") && !GPUS.accepts(""));
        assert!(NAME.accepts("x y") && !NAME.accepts("\0"));
        assert!(SortColumn::CREATED.accepts("") && !SortColumn::CREATED.accepts("x"));
        assert!(!NAME.is_usually_descending() && GPUS.is_usually_descending());
    }
}
