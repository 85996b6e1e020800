//! Just enough of a Rust reader for the architecture test: separates code from comments and
//! string literals, leaves out test code, and lists every path (`a::b::c`) with `use` trees
//! spelled out. It expects code that compiles; nothing here reports syntax errors.

/// A file taken apart. Line numbers count from 1.
pub struct Source {
    /// The code with comments and the insides of literals blanked; lines are where they were.
    pub code: String,
    /// String literals, with the line each begins on.
    pub strings: Vec<(usize, String)>,
}

/// A path as written, such as `["crate", "db", "Db"]`, and its line.
pub type PathAt = (usize, Vec<String>);

impl Source {
    pub fn read(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut source = Self { code: String::with_capacity(text.len()), strings: Vec::new() };
        let (mut at, mut line) = (0, 1);
        while at < chars.len() {
            let end = if let Some((end, literal)) = literal_or_comment(&chars, at) {
                source.strings.extend(literal.map(|text| (line, text)));
                source.code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
                end
            } else {
                source.code.push(chars[at]);
                at + 1
            };
            line += chars[at..end].iter().filter(|&&c| c == '\n').count();
            at = end;
        }
        source
    }

    /// The same without the items behind `#[cfg(test)]`.
    pub fn without_tests(mut self) -> Self {
        const MARK: &str = "#[cfg(test)]";
        while let Some(start) = self.code.find(MARK) {
            let end = item_end(&self.code, start + MARK.len());
            let lines = line_of(&self.code, start)..=line_of(&self.code, end - 1);
            self.strings.retain(|(line, _)| !lines.contains(line));
            let blank: String = self.code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            self.code.replace_range(start..end, &blank);
        }
        self
    }

    /// Every path of the code.
    pub fn paths(&self) -> Vec<PathAt> {
        let tokens = tokens(&self.code);
        let (mut found, mut at) = (Vec::new(), 0);
        while at < tokens.len() {
            at = if is_name(tokens[at].1) { path(&tokens, at, &[], &mut found) } else { at + 1 };
        }
        found
    }

    /// The lines on which `needle` stands in the code.
    pub fn lines_with<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(needle).map(|(at, _)| line_of(&self.code, at))
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where the item that begins at `from` ends: behind its block, or behind its semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return from + at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The end of the comment or literal that begins at `at`, and the text of a string.
fn literal_or_comment(chars: &[char], at: usize) -> Option<(usize, Option<String>)> {
    let next = |n: usize| chars.get(at + n).copied().unwrap_or('\0');
    let behind_name = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == '/' => Some((find(chars, at, "\n").unwrap_or(chars.len()), None)),
        '/' if next(1) == '*' => Some((block_comment(chars, at), None)),
        '"' => {
            let end = quoted(chars, at, '"');
            Some((end, Some(chars[at + 1..end.saturating_sub(1).max(at + 1)].iter().collect())))
        }
        'r' if !behind_name || chars[at - 1] == 'b' => {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            if next(1 + hashes) != '"' {
                return None;
            }
            let close = format!("\"{}", "#".repeat(hashes));
            let body = at + hashes + 2;
            let end = find(chars, body, &close).unwrap_or(chars.len());
            Some((end + close.len(), Some(chars[body..end].iter().collect())))
        }
        // A quote is a character when it closes again; else it opens a lifetime.
        '\'' if next(1) == '\\' || next(2) == '\'' => Some((quoted(chars, at, '\''), None)),
        _ => None,
    }
}

fn find(chars: &[char], from: usize, needle: &str) -> Option<usize> {
    let needle: Vec<char> = needle.chars().collect();
    (from..chars.len()).find(|&at| chars[at..].starts_with(&needle))
}

fn quoted(chars: &[char], at: usize, quote: char) -> usize {
    let mut end = at + 1;
    while end < chars.len() && chars[end] != quote {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut end, mut depth) = (at, 0);
    while end < chars.len() {
        if chars[end..].starts_with(&['/', '*']) {
            (depth, end) = (depth + 1, end + 2);
        } else if chars[end..].starts_with(&['*', '/']) {
            (depth, end) = (depth - 1, end + 2);
            if depth == 0 {
                return end;
            }
        } else {
            end += 1;
        }
    }
    end
}

type Token<'a> = (usize, &'a str);

/// Names, `::` and single other characters, with their lines.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(c) = code[at..].chars().next() {
        let rest = &code[at..];
        let length = if c.is_alphanumeric() || c == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        if !c.is_whitespace() {
            found.push((line, &rest[..length]));
        }
        line += usize::from(c == '\n');
        at += length;
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads the path that begins at `at` below `prefix`; answers where to go on.
fn path(tokens: &[Token<'_>], mut at: usize, prefix: &[String], found: &mut Vec<PathAt>) -> usize {
    let line = tokens[at].0;
    let mut segments = prefix.to_vec();
    segments.push(tokens[at].1.to_owned());
    while tokens.get(at + 1).is_some_and(|t| t.1 == "::") {
        match tokens.get(at + 2).map(|t| t.1) {
            Some("{") => return group(tokens, at + 3, &segments, found),
            Some(name) if is_name(name) => {
                segments.push(name.to_owned());
                at += 2;
            }
            _ => break,
        }
    }
    found.push((line, segments));
    at + 1
}

/// Reads the items of a `use` tree up to its closing brace.
fn group(tokens: &[Token<'_>], mut at: usize, prefix: &[String], found: &mut Vec<PathAt>) -> usize {
    while let Some((line, token)) = tokens.get(at) {
        match *token {
            "}" => return at + 1,
            // `a::{self as b}`: the new name is not a path.
            "as" => at += 2,
            "self" => {
                found.push((*line, prefix.to_vec()));
                at += 1;
            }
            name if is_name(name) => at = path(tokens, at, prefix, found),
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(code: &str) -> Vec<String> {
        Source::read(code).without_tests().paths().iter().map(|(line, p)| format!("{line} {}", p.join("::"))).collect()
    }

    #[test]
    fn use_trees_are_spelled_out() {
        assert_eq!(
            spelled("use crate::{\n    db::{self, Db as D, users::*},\n    model::Id,\n};\nuse std::env;"),
            [
                "1 use",
                "2 crate::db",
                "2 crate::db::Db",
                "2 crate::db::users",
                "3 crate::model::Id",
                "5 use",
                "5 std::env"
            ]
        );
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let source = Source::read("// crate::a\n/* crate::b /* \n */ */ let s = \"crate::c\\\"\"; 'x: loop { '\"'; }");
        assert!(!source.code.contains("crate"));
        assert!(source.code.contains("loop"));
        assert_eq!(source.strings, [(3, "crate::c\\\"".to_owned())]);
        let raw = Source::read("let s = r#\"a \"b\" c\"#; crate::d");
        assert_eq!(raw.strings, [(1, "a \"b\" c".to_owned())]);
        assert!(raw.code.contains("crate::d"));
    }

    #[test]
    fn test_code_is_left_out() {
        let code = "use a::b;\n#[cfg(test)]\nmod tests {\n fn f() { \"SQL\"; c::d() }\n}\nuse e::f;\n#[cfg(test)]\nmod more;\ng::h();";
        assert_eq!(spelled(code), ["1 use", "1 a::b", "6 use", "6 e::f", "9 g::h"]);
        assert!(Source::read(code).without_tests().strings.is_empty());
    }
}
