//! A strict reader of our own markup: every element is one that our templates use, attributes
//! are quoted, what opens is closed in turn, ids are unique, and there is no script, style or
//! event handler within the page.

use std::collections::HashSet;

const VOID: [&str; 6] = ["br", "input", "link", "meta", "hr", "img"];
const ELEMENTS: &str = " a article b bdi blockquote body br button caption code datalist dd del details div dl dt em fieldset figcaption figure form g h1 h2 h3 head header html image img kbd \
    input label legend li link main meta nav noscript ol option output p path pre progress rect script section select small span \
    strong summary svg table tbody td template text textarea th thead time title tr ul use ";

/// Returns a page with one space for each run of white space, as a browser shows its texts.
pub fn one_line(page: &str) -> String {
    page.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is wrong with a page or a fragment, if anything is.
pub fn check(html: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut ids = HashSet::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        if text.contains('>') || (open.last() == Some(&"script") && !text.trim().is_empty()) {
            return Err(format!("stray text: {text:?}"));
        }
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix("!doctype html>") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix('/') {
            let (name, after) = after.split_once('>').ok_or("a closing tag has no end")?;
            let opened = open.pop();
            if opened != Some(name) {
                return Err(format!("</{name}> closes {opened:?}"));
            }
            rest = after;
        } else {
            rest = tag(rest, &mut open, &mut ids)?;
        }
    }
    if rest.contains('>') {
        return Err(format!("stray text: {rest:?}"));
    }
    open.pop().map_or(Ok(()), |name| Err(format!("<{name}> is not closed")))
}

/// Reads one opening tag after its `<` and returns what follows it.
fn tag<'a>(text: &'a str, open: &mut Vec<&'a str>, ids: &mut HashSet<&'a str>) -> Result<&'a str, String> {
    let length = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(length);
    if !ELEMENTS.split_whitespace().any(|known| known == name) {
        return Err(format!("<{name}> is not one of our elements, before {:?}", excerpt(rest)));
    }
    let mut seen = HashSet::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("/>") {
            return Ok(after);
        }
        if let Some(after) = rest.strip_prefix('>') {
            if name == "script" && !seen.contains("src") {
                return Err("a script within the page".to_owned());
            }
            if !VOID.contains(&name) {
                open.push(name);
            }
            return Ok(after);
        }
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
        let (attribute, after) = rest.split_at(length);
        if attribute.is_empty() || !seen.insert(attribute) {
            return Err(format!("a bad or repeated attribute of <{name}>: {:?}", excerpt(rest)));
        }
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => {
                after.strip_prefix('"').and_then(|value| value.split_once('"')).ok_or("an unquoted value")?
            }
            None => ("", after),
        };
        if attribute == "style" || attribute.starts_with("on") {
            return Err(format!("the attribute {attribute} of <{name}>"));
        }
        let is_address = matches!(attribute, "href" | "src" | "action");
        // A picture may be its own data; it is drawn and never run.
        let is_picture = name == "img" && value.starts_with("data:image/png;base64,");
        if is_address && !is_picture && !["/", "#", "https://"].iter().any(|start| value.starts_with(start)) {
            return Err(format!("the address {value:?} of <{name}>"));
        }
        if value.contains('<') || (attribute == "id" && !ids.insert(value)) {
            return Err(format!("the value {value:?} of {attribute}"));
        }
        rest = after;
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}
