//! A Jupyter notebook as cells: code and its outputs as text, words as Markdown, pictures as data. An output that is
//! only markup is shown as the text in it. Nothing of a notebook runs.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::text::harmless;
use crate::web::{
    markdown::Markdown,
    views::{Cell, CellOutput, plain_log},
};

/// The most cells, characters of one text, and bytes of all pictures that are shown.
const MAX_CELLS: usize = 400;
const MAX_TEXT: usize = 20_000;
const MAX_PICTURES: usize = 6 << 20;

/// The kinds of pictures that an output may hold, drawn as they are.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The cells of a notebook; `None` where these bytes are none.
pub fn cells(bytes: &[u8]) -> Option<Vec<Cell>> {
    let notebook: Value = serde_json::from_slice(bytes).ok()?;
    // The older format has sheets around the cells.
    let sheet = notebook["worksheets"].get(0).unwrap_or(&notebook);
    let cells = sheet.get("cells")?.as_array()?;
    let mut room = MAX_PICTURES;
    Some(cells.iter().take(MAX_CELLS).map(|one| cell(one, &mut room)).collect())
}

fn cell(cell: &Value, room: &mut usize) -> Cell {
    let source = text(cell.get("source").or(cell.get("input")).unwrap_or(&Value::Null));
    if cell["cell_type"] == "markdown" {
        return Cell::Words(Markdown::new(&source));
    }
    let number = cell["execution_count"].as_i64().or(cell["prompt_number"].as_i64());
    let outputs = cell["outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
    Cell::Code { number, source, outputs: outputs.iter().filter_map(|one| output(one, room)).collect() }
}

fn output(output: &Value, room: &mut usize) -> Option<CellOutput> {
    match output["output_type"].as_str()? {
        "stream" => Some(CellOutput::Text(plain(&text(&output["text"])))),
        "error" | "pyerr" => {
            let trace = text_of_lines(&output["traceback"]);
            let line = format!("{}: {}", output["ename"].as_str().unwrap_or("Error"), text(&output["evalue"]));
            Some(CellOutput::Error(if trace.is_empty() { line } else { plain(&trace) }))
        }
        _ => {
            // The older format has no `data` around the kinds.
            let data = output.get("data").unwrap_or(output);
            let picture = PICTURES.into_iter().find_map(|kind| Some((kind, data.get(kind)?)));
            let plain_text = data.get("text/plain").or(data.get("text"));
            if let Some((kind, picture)) = picture {
                return Some(self::picture(kind, picture, room));
            }
            if let Some(words) = data.get("text/markdown") {
                return Some(CellOutput::Words(Markdown::new(&text(words))));
            }
            if let Some(words) = plain_text {
                return Some(CellOutput::Text(plain(&text(words))));
            }
            data.get("text/html").map(|markup| CellOutput::Text(plain(&without_markup(&text(markup)))))
        }
    }
}

fn picture(kind: &str, picture: &Value, room: &mut usize) -> CellOutput {
    let encoded: String = joined(picture).chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if BASE64_STANDARD.decode(&encoded).is_err() {
        return CellOutput::Text("[image that cannot be read]".to_owned());
    }
    let Some(left) = room.checked_sub(encoded.len()) else {
        return CellOutput::Text("[image left out: the notebook has too many]".to_owned());
    };
    *room = left;
    CellOutput::Picture(format!("data:{kind};base64,{encoded}"))
}

/// A text as notebooks keep it: one, or a list of lines.
fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn text(value: &Value) -> String {
    cut(&joined(value))
}

/// A list of lines that do not end in breaks.
fn text_of_lines(value: &Value) -> String {
    let lines = value.as_array().map(Vec::as_slice).unwrap_or_default();
    cut(&lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
}

fn cut(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_TEXT).map(|c| if "\n\r\u{1b}\u{8}".contains(c) { c } else { harmless(c) }).collect();
    if text.chars().nth(MAX_TEXT).is_some() {
        shown.push('…');
    }
    shown
}

/// Without colours and with the last of what was written over itself.
fn plain(text: &str) -> String {
    plain_log(text).trim_end_matches('\n').to_owned()
}

/// The text between the tags; scripts and styles are none.
fn without_markup(markup: &str) -> String {
    let (mut out, mut rest) = (String::new(), markup);
    while let Some((before, tag)) = rest.split_once('<') {
        out.push_str(before);
        let name: String = tag.chars().take_while(|c| c.is_ascii_alphabetic() || *c == '/').collect();
        let name = name.to_ascii_lowercase();
        let after = match name.as_str() {
            "script" | "style" => {
                let end = tag.to_ascii_lowercase().find(&format!("</{name}"));
                end.map_or("", |at| &tag[at..])
            }
            _ => tag,
        };
        if ["/tr", "/p", "br", "/div", "/li"].contains(&name.as_str()) {
            out.push('\n');
        } else if ["/td", "/th"].contains(&name.as_str()) {
            out.push('\t');
        }
        rest = after.split_once('>').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    let named = [("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    let plain = named.into_iter().fold(out, |text, (name, sign)| text.replace(name, sign));
    plain.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(notebook: &Value) -> Vec<Cell> {
        cells(&serde_json::to_vec(notebook).unwrap()).unwrap()
    }

    #[test]
    fn cells_with_outputs() {
        let notebook = json!({ "cells": [
            { "cell_type": "markdown", "source": ["**words** <script>x</script>"] },
            { "cell_type": "code", "execution_count": 3, "source": "print(1)\nplot()", "outputs": [
                { "output_type": "stream", "text": ["\u{1b}[31m1\u{1b}[0m\n"] },
                { "output_type": "display_data", "data": { "image/png": "aGFs\nbG8=", "text/plain": "<Figure>" } },
                { "output_type": "execute_result", "data": { "text/html": "<style>a</style><table><tr><td>1</td><td>&lt;2</td></tr></table><script>alert(1)</script>" } },
                { "output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": [] },
                { "output_type": "display_data", "data": { "image/png": "\"><script>", "application/x": 1 } },
                { "output_type": "display_data", "data": { "application/javascript": "alert(1)" } },
            ]},
        ]});
        let cells = shown(&notebook);
        let Cell::Words(words) = &cells[0] else { panic!() };
        assert!(words.to_string().contains("<strong>words</strong> &lt;script&gt;"), "{words}");
        let Cell::Code { number, source, outputs } = &cells[1] else { panic!() };
        assert_eq!((*number, source.as_str()), (Some(3), "print(1)\nplot()"));
        assert_eq!(
            outputs,
            &[
                CellOutput::Text("1".to_owned()),
                CellOutput::Picture("data:image/png;base64,aGFsbG8=".to_owned()),
                CellOutput::Text("1\t<2".to_owned()),
                CellOutput::Error("ValueError: no".to_owned()),
                CellOutput::Text("[image that cannot be read]".to_owned()),
            ]
        );
    }

    #[test]
    fn what_is_no_notebook() {
        for bytes in [&b"{}"[..], b"[]", b"{\"cells\": 3}", b"x"] {
            assert!(cells(bytes).is_none());
        }
        let odd = json!({ "cells": [1, {}, { "cell_type": "code", "source": 7, "outputs": [{}, 3] }] });
        assert_eq!(shown(&odd).len(), 3);
        let old = json!({ "worksheets": [{ "cells": [{ "cell_type": "code", "input": "1", "prompt_number": 2,
            "outputs": [{ "output_type": "pyout", "text": "1" }] }] }] });
        let Cell::Code { number: Some(2), outputs, .. } = &shown(&old)[0] else { panic!() };
        assert_eq!(outputs, &[CellOutput::Text("1".to_owned())]);
    }
}
