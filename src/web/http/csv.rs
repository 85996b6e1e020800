//! Tables as RFC 4180 has them, for spreadsheets: every cell is quoted, and one that a
//! spreadsheet would take for a formula has an apostrophe before it. A long table is streamed page
//! by page, so that it needs no more memory than a page.

use std::{future::Future, sync::Arc};

use axum::{
    BoxError,
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use tokio::sync::Semaphore;

use crate::web::Portal;

/// What begins a formula somewhere, the wide forms of East Asian keyboards included.
const FORMULA: [char; 12] = ['=', '+', '-', '@', '\t', '\r', '\n', '|', '＝', '＋', '－', '＠'];

/// Pages of all downloads that are read from the database at the same time. The other connections stay free for
/// requests that are answered at once.
static TURNS: Semaphore = Semaphore::const_new(2);

/// Answers with a table as a file, streamed as [`lines`] are.
pub(in crate::web) fn download<P, F, Page>(portal: Arc<Portal>, name: &str, head: String, first: P, page: F) -> Response
where
    P: Send + 'static,
    F: Fn(Arc<Portal>, P) -> Page + Send + 'static,
    Page: Future<Output = Result<(String, Option<P>), BoxError>> + Send,
{
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.csv\"")),
    ];
    (headers, lines(portal, head, first, page)).into_response()
}

/// Streams lines: `page` returns those of the page at a place, and the place of the next.
pub(in crate::web) fn lines<P, F, Page>(portal: Arc<Portal>, head: String, first: P, page: F) -> Body
where
    P: Send + 'static,
    F: Fn(Arc<Portal>, P) -> Page + Send + 'static,
    Page: Future<Output = Result<(String, Option<P>), BoxError>> + Send,
{
    let pages = stream::unfold((portal, page, Some(first), head), async |(portal, page, place, head)| {
        let place = place?;
        if portal.stopping.is_cancelled() {
            return None;
        }
        let read = {
            let _turn = TURNS.acquire().await;
            page(portal.clone(), place).await
        };
        Some(match read {
            Ok((lines, next)) => (Ok(head + &lines), (portal, page, next, String::new())),
            Err(err) => (Err(err), (portal, page, None, String::new())),
        })
    });
    Body::from_stream(pages)
}

/// One line, with its end.
pub(in crate::web) fn line<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|text| cell(text.as_ref())).collect();
    cells.join(",") + "\r\n"
}

fn cell(text: &str) -> String {
    let mark = if text.trim_start_matches(' ').starts_with(FORMULA) { "'" } else { "" };
    format!("\"{mark}{}\"", text.replace('"', "\"\"").replace('\0', "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formulas_are_inert() {
        for (text, expected) in [
            ("alice", r#""alice""#),
            ("", r#""""#),
            ("a,\"b\"\nc", "\"a,\"\"b\"\"\nc\""),
            ("=cmd|' /C calc'!A0", r#""'=cmd|' /C calc'!A0""#),
            ("  =1", r#""'  =1""#),
            ("+1", r#""'+1""#),
            ("-1", r#""'-1""#),
            ("@SUM(1)", r#""'@SUM(1)""#),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("＝1", r#""'＝1""#),
            ("a=1", r#""a=1""#),
        ] {
            assert_eq!(cell(text), expected);
        }
        assert_eq!(line(["a", "b"]), "\"a\",\"b\"\r\n");
    }

    proptest! {
        /// However a cell begins, a reader gets the text back, and never a formula.
        #[test]
        fn any_text_is_one_inert_cell(text in "([=+@|-]|[ \t\r\n]|\"|,|\\PC){0,12}") {
            let cell = cell(&text);
            let inner = cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap();
            prop_assert!(!inner.replace("\"\"", "").contains('"'));
            let read = inner.replace("\"\"", "\"");
            prop_assert!(!read.trim_start_matches(' ').starts_with(FORMULA), "{read:?}");
            prop_assert_eq!(read.strip_prefix('\'').filter(|_| !text.starts_with('\'')).unwrap_or(&read), text);
        }
    }
}
