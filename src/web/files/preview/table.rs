//! The first rows of a table of values with commas, semicolons or tabs between them (RFC 4180, as programs write it).

use super::text::harmless;
use crate::web::views::TablePreview;

/// The most rows, columns, and characters of a cell that are shown.
const MAX_ROWS: usize = 200;
const MAX_COLUMNS: usize = 60;
const MAX_CELL: usize = 300;

/// The head and the first rows; `None` where there is nothing, or one column alone.
pub fn parse(text: &str, has_tabs: bool, is_whole: bool) -> Option<TablePreview> {
    let separator = if has_tabs { '\t' } else { separator(text.lines().next()?) };
    let mut rows = Vec::new();
    let mut is_cut = !is_whole;
    let mut rest = text.chars().peekable();
    while rest.peek().is_some() {
        if rows.len() > MAX_ROWS {
            is_cut = true;
            break;
        }
        let (cells, is_closed) = row(&mut rest, separator);
        // The last row of a part may be half of one.
        if rest.peek().is_none() && !is_whole && !is_closed {
            break;
        }
        if cells.iter().any(|cell| !cell.is_empty()) {
            rows.push(cells);
        }
    }
    let columns = rows.iter().map(Vec::len).max()?;
    if columns < 2 && !has_tabs && rows.len() < 2 {
        return None;
    }
    let hidden_columns = columns.saturating_sub(MAX_COLUMNS);
    for row in &mut rows {
        row.resize(columns.min(MAX_COLUMNS), String::new());
    }
    let head = rows.remove(0);
    Some(TablePreview { head, rows, is_cut, hidden_columns })
}

/// The one of which the first line has the most.
fn separator(line: &str) -> char {
    // Of equals the last: a comma.
    [';', '\t', ','].into_iter().max_by_key(|separator| line.matches(*separator).count()).unwrap_or(',')
}

/// One row, and whether its end of line was there.
fn row(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, separator: char) -> (Vec<String>, bool) {
    let (mut cells, mut cell, mut length) = (Vec::new(), String::new(), 0);
    let mut is_quoted = false;
    while let Some(c) = rest.next() {
        match c {
            '"' if is_quoted && rest.peek() == Some(&'"') => {
                rest.next();
                push(&mut cell, &mut length, '"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if length == 0 => is_quoted = true,
            _ if is_quoted => push(&mut cell, &mut length, c),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' | '\r' => {
                cells.push(cell);
                return (cells, true);
            }
            c if c == separator => {
                cells.push(std::mem::take(&mut cell));
                length = 0;
            }
            c => push(&mut cell, &mut length, c),
        }
    }
    cells.push(cell);
    (cells, false)
}

fn push(cell: &mut String, length: &mut usize, c: char) {
    *length += 1;
    match (*length).cmp(&MAX_CELL) {
        std::cmp::Ordering::Less => cell.push(if c == '\n' { ' ' } else { harmless(c) }),
        std::cmp::Ordering::Equal => cell.push('…'),
        std::cmp::Ordering::Greater => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        let table = parse(text, false, true).unwrap();
        let line = |row: &Vec<String>| row.join("|");
        std::iter::once(&table.head).chain(&table.rows).map(line).collect::<Vec<_>>().join("/")
    }

    #[test]
    fn as_programs_write_it() {
        assert_eq!(shown("a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n3\n"), "a|b/1|x, \"y\" z/3|");
        assert_eq!(shown("a;b;c,d\n1;2;3\n"), "a|b|c,d/1|2|3");
        assert_eq!(shown("a\tb\n1\t2"), "a|b/1|2");
        assert_eq!(parse("only words", false, true), None);
        let part = parse("a,b\n1,2\n3,", false, false).unwrap();
        assert_eq!((part.rows.len(), part.is_cut), (1, true), "half a row is left out");
    }

    #[test]
    fn only_so_much() {
        let many = parse(&"1,2\n".repeat(1000), false, true).unwrap();
        assert_eq!((many.rows.len(), many.is_cut), (MAX_ROWS, true));
        let wide = parse(&format!("{}\n", "x,".repeat(100)), false, true).unwrap();
        assert_eq!((wide.head.len(), wide.hidden_columns), (MAX_COLUMNS, 41));
        let long = parse(&format!("a,{}\n", "ä".repeat(1000)), false, true).unwrap();
        assert_eq!(long.head[1].chars().count(), MAX_CELL);
    }

    proptest! {
        #[test]
        fn any_text(text in "[a\"\n\r,;\t]{0,60}", is_whole in any::<bool>()) {
            if let Some(table) = parse(&text, false, is_whole) {
                prop_assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
            }
        }
    }
}
