//! JSON with a value on each line. Only blanks are changed: numbers keep their digits and objects their order.

use serde::de::IgnoredAny;

/// The document with line breaks; `None` where it is no JSON.
pub fn pretty(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut rest = text.chars().filter(|c| !c.is_ascii_control() || *c == '\n').peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = rest.next() {
        if in_text {
            out.push(c);
            (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                out.push(c);
                if let Some(end) = rest.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            blank if blank.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_value_a_line() {
        let text = r#"{"b":1.50, "a": ["x, {y}\"", {}, [ ]], "n" : {"c":null}}"#;
        let wanted = "{\n  \"b\": 1.50,\n  \"a\": [\n    \"x, {y}\\\"\",\n    {},\n    []\n  ],\n  \"n\": {\n    \"c\": null\n  }\n}";
        assert_eq!(pretty(text).unwrap(), wanted);
        assert_eq!(pretty("{"), None);
        assert_eq!(pretty("3").as_deref(), Some("3"));
    }

    proptest! {
        #[test]
        fn it_stays_the_same_document(text in r#"(\[|\]|\{|\}|"a\\"b"|"c":|,|1|null| )*"#) {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
                prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&pretty(&text).unwrap()).unwrap(), value);
            }
        }
    }
}
