//! A text file with a picture and its label on each line, and a split behind if there is one:
//! divided by commas in a `.csv`, by tabs where there are any, else by the last space, so that
//! paths may hold spaces. Pictures that are not there are listed as broken.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, Pictures, Split},
    store::{self, Store},
    text,
};

pub fn read(path: &Path, root: Option<&Path>, classes: Option<&Path>) -> Result<Catalogue, Error> {
    let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
    let text = text::decode(&store::read_file(path).map_err(wrong)?).map_err(wrong)?;
    let lines = parse(&text, path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"))).map_err(wrong)?;
    let names = classes.map(super::class_names).transpose()?;
    let root: PathBuf = root.or(path.parent()).unwrap_or(Path::new("/")).to_owned();
    let classes = match names {
        Some(names) => names,
        None => in_order(lines.iter().map(|line| line.label.clone()).collect()),
    };
    let index: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let numbers = index.keys().all(|name| name.parse::<u32>().is_err());
    let items = lines.into_iter().map(|line| {
        let number = line.label.parse::<u32>().ok().filter(|n| numbers && (*n as usize) < classes.len());
        let label = index.get(line.label.as_str()).copied().or(number);
        let unknown = || format!("line {}: the list of classes has no {}", line.number, text::short(&line.label));
        let about = std::fs::metadata(root.join(&line.path)).ok();
        Item {
            fault: line.fault.or_else(|| label.is_none().then(unknown)),
            stamp: about.map_or((0, 0), |about| {
                use std::os::unix::fs::MetadataExt;
                (about.size(), about.mtime())
            }),
            path: line.path,
            label,
            split: line.split,
            ..Item::default()
        }
    });
    let items = items.collect();
    Ok(Catalogue::new(Pictures::Files { store: Store::Folder(root), colours: None }, items, classes, Vec::new()))
}

/// Numbers by their value, else names by their letters.
fn in_order(labels: BTreeSet<String>) -> Vec<String> {
    let mut labels: Vec<String> = labels.into_iter().collect();
    if labels.iter().all(|label| label.parse::<u64>().is_ok()) {
        labels.sort_by_key(|label| label.parse::<u64>().unwrap_or_default());
    }
    labels
}

#[derive(Debug, PartialEq)]
struct Line {
    number: usize,
    path: String,
    label: String,
    split: Option<Split>,
    fault: Option<String>,
}

fn parse(text: &str, commas: bool) -> Result<Vec<Line>, String> {
    let found = if commas {
        rows(text)?
    } else {
        text::lines(text)
            .map(|(number, line)| {
                let tabs: Vec<String> = line.split('\t').map(|part| part.trim().to_owned()).collect();
                if tabs.len() > 1 {
                    return Ok((number, tabs));
                }
                let parts = line.rsplit_once(char::is_whitespace);
                let (path, label) = parts.ok_or_else(|| format!("line {number} has a path and no label"))?;
                Ok((number, vec![path.trim().to_owned(), label.to_owned()]))
            })
            .collect::<Result<_, String>>()?
    };
    let mut lines: Vec<Line> = Vec::with_capacity(found.len());
    for (number, parts) in found {
        let (path, label, split) = match parts.as_slice() {
            [path, label] => (path, label, None),
            [path, label, split, ..] => (path, label, Some(split)),
            _ => return Err(format!("line {number} has no label")),
        };
        let known = split.map(|name| Split::of_folder(name));
        // A first line of headings names no file.
        if lines.is_empty() && number == 1 && matches!(path.as_str(), "path" | "file" | "filename" | "image") {
            continue;
        }
        let fault = match known {
            Some(None) if split.is_some_and(|name| !name.is_empty()) => {
                Some(format!("line {number}: the split is neither train, val nor test"))
            }
            _ => None,
        };
        lines.push(Line { number, path: path.clone(), label: label.clone(), split: known.flatten(), fault });
    }
    if lines.is_empty() {
        return Err("it names no picture".to_owned());
    }
    Ok(lines)
}

fn rows(text: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.map_err(|error| text::short(&error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        Ok((usize::try_from(line).unwrap_or_default(), record.iter().map(str::to_owned).collect()))
    };
    reader.into_records().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &Line) -> (&str, &str, Option<Split>) {
        (&line.path, &line.label, line.split)
    }

    #[test]
    fn paths_with_spaces_tabs_and_commas() {
        let lines = parse("my pictures/a b.png cat\r\nc.png\tblack dog\tval\r\n\r\nd.png   cat\n", false).unwrap();
        let found: Vec<_> = lines.iter().map(of).collect();
        assert_eq!(
            found,
            [("my pictures/a b.png", "cat", None), ("c.png", "black dog", Some(Split::Val)), ("d.png", "cat", None)]
        );
        let lines = parse("path,label,split\n\"a, b.png\",cat,train\nc.png,dog,nowhere\n", true).unwrap();
        assert_eq!(of(&lines[0]), ("a, b.png", "cat", Some(Split::Train)));
        assert_eq!(lines[1].fault.as_deref(), Some("line 3: the split is neither train, val nor test"));
    }

    #[test]
    fn a_list_without_labels_is_refused_with_its_line() {
        assert_eq!(parse("a.png 0\nb.png\n", false).unwrap_err(), "line 2 has a path and no label");
        assert_eq!(parse("\r\n", false).unwrap_err(), "it names no picture");
    }

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let labels = ["10", "9", "1"].map(str::to_owned).into();
        assert_eq!(in_order(labels), ["1", "9", "10"]);
    }
}
