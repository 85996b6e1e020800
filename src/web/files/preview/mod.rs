//! What a page shows of a file's content: the kind is told by its name and its first bytes, and what is shown is
//! bounded. All of it becomes text that the template escapes, markup made by `markdown`, or a picture that is drawn
//! and never run. Reading the file, as its user, is `pages`' business.

mod json;
mod notebook;
mod table;
mod text;

use crate::{
    files::RootedPath,
    web::{markdown::Markdown, views::Preview},
};

/// The most of a file that is read (bytes): of a notebook its outputs come first, with their pictures.
const MAX_PART: u64 = 512 * 1024;
const MAX_NOTEBOOK: u64 = 8 << 20;

/// How much of a file is to be read.
pub fn length(name: &str, size: u64) -> u64 {
    size.min(if has_ending(name, &["ipynb"]) { MAX_NOTEBOOK } else { MAX_PART })
}

/// What is shown of the first bytes of a file that has `size` bytes.
pub fn of(name: &str, bytes: &[u8], size: u64, picture_href: &str) -> Preview {
    let is_whole = bytes.len() as u64 == size;
    if picture_type(bytes).is_some() {
        return Preview::Picture { href: picture_href.to_owned() };
    }
    let Some(content) = text::decoded(bytes, is_whole) else { return Preview::None };
    if has_ending(name, &["ipynb"])
        && is_whole
        && let Some(cells) = notebook::cells(bytes)
    {
        return Preview::Notebook(cells);
    }
    if has_ending(name, &["csv", "tsv", "tab"])
        && let Some(table) = table::parse(&content, !has_ending(name, &["csv"]), is_whole)
    {
        return Preview::Table(table);
    }
    if has_ending(name, &["md", "markdown"]) && is_whole {
        return Preview::Markdown(Markdown::new(&content));
    }
    if has_ending(name, &["json", "geojson"])
        && is_whole
        && let Some(pretty) = json::pretty(&content)
    {
        return Preview::Text(text::lines(&pretty, true));
    }
    Preview::Text(text::lines(&content, is_whole))
}

/// Whether a program has logged its training into this file, so that its folder has curves.
pub fn has_curves(rooted: &RootedPath) -> bool {
    let name = rooted.name().shown();
    name.contains("tfevents") || name == "metrics.jsonl"
}

/// The type of a picture that browsers draw, by its first bytes; drawings that are documents are none.
pub fn picture_type(bytes: &[u8]) -> Option<&'static str> {
    let begins = |start: &[u8]| bytes.starts_with(start);
    match bytes {
        _ if begins(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        _ if begins(b"\xff\xd8\xff") => Some("image/jpeg"),
        _ if begins(b"GIF87a") || begins(b"GIF89a") => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Some("image/bmp"),
        _ => None,
    }
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| endings.iter().any(|one| ending.eq_ignore_ascii_case(one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, bytes: &[u8]) -> &'static str {
        match of(name, bytes, bytes.len() as u64, "/p") {
            Preview::Picture { .. } => "picture",
            Preview::Notebook(_) => "notebook",
            Preview::Table(_) => "table",
            Preview::Markdown(_) => "markdown",
            Preview::Text(_) => "text",
            Preview::None => "none",
        }
    }

    #[test]
    fn kinds_by_name_and_content() {
        for (name, bytes, wanted) in [
            ("a.png", &b"\x89PNG\r\n\x1a\nrest"[..], "picture"),
            ("a.txt", b"\xff\xd8\xff\xe0", "picture"),
            ("a.png", b"<script>alert(1)</script>", "text"),
            ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "text"),
            ("a.py", b"print(1)\n", "text"),
            ("a.CSV", b"a,b\n1,2\n", "table"),
            ("README.md", b"# x", "markdown"),
            ("a.ipynb", br#"{"cells": []}"#, "notebook"),
            ("a.ipynb", b"nothing", "text"),
            ("a.bin", b"a\0b", "none"),
            ("a", b"\x80\x81\x82", "none"),
            ("empty", b"", "text"),
        ] {
            assert_eq!(kind(name, bytes), wanted, "{name}");
        }
    }

    #[test]
    fn a_part_of_a_file() {
        assert_eq!(
            (length("a.txt", 5), length("a.txt", 1 << 40), length("a.ipynb", 1 << 40)),
            (5, MAX_PART, MAX_NOTEBOOK)
        );
        let Preview::Text(text) = of("a.txt", b"one\ntwo\nthr", 99, "") else { panic!() };
        assert!(text.lines == ["one", "two", "thr"] && text.is_cut);
    }
}
