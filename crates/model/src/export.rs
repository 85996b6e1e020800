//! What Slurm's `--export` says: which variables reach a program, and which are given a value.
//! Parts stand between commas; a comma between quotation marks belongs to its part, and the marks
//! stay in the value, as with `sbatch`.

/// `ALL`, `NONE`, `NIL`, `NAME`, `NAME=value`; `None` where a quotation mark is never closed.
#[must_use]
pub fn parts(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut part, mut quote) = (Vec::new(), String::new(), None);
    for c in text.chars() {
        match quote {
            None if c == ',' => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            None if matches!(c, '\'' | '"') => quote = Some(c),
            Some(open) if open == c => quote = None,
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    quote.is_none().then_some(parts)
}

/// The names of the variables that are let through; `None` where all are.
#[must_use]
pub fn names(text: &str) -> Option<Vec<String>> {
    let parts = parts(text)?;
    if parts.iter().any(|part| part == "ALL") {
        return None;
    }
    let name = |part: String| part.split('=').next().unwrap_or_default().to_owned();
    Some(parts.into_iter().map(name).filter(|name| !["NONE", "NIL"].contains(&name.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_a_program() {
        for (text, wanted) in [
            ("ALL", None),
            ("ALL,A=1", None),
            ("NONE", Some(&[][..])),
            ("NIL", Some(&[])),
            ("HOME,A=1,B=\"x,y\"", Some(&["HOME", "A", "B"])),
        ] {
            let wanted = wanted.map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
            assert_eq!(names(text), wanted, "{text}");
        }
        assert_eq!(parts("A='x"), None);
        assert_eq!(parts("A,,B='1,2'").unwrap(), ["A", "B='1,2'"]);
    }
}
