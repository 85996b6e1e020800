//! A text file with a picture and its label on each line, and a split if there is one: divided
//! by commas, semicolons or tabs, else by the last space, so that paths may hold spaces. Which
//! column is which follows from the headings and from what stands below them. Pictures that are
//! not there are listed as broken.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, Note, Pictures},
    division,
    spec::Division,
    store::{self, Store},
    text, tree,
};

const PATHS: [&str; 15] = [
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_id",
    "image_path",
    "image_name",
    "img",
    "img_path",
    "id",
    "name",
    "url",
];
const LABELS: [&str; 16] = [
    "label",
    "labels",
    "class",
    "class_name",
    "classname",
    "category",
    "category_name",
    "target",
    "tag",
    "species",
    "breed",
    "diagnosis",
    "y",
    "class_id",
    "label_id",
    "category_id",
];
const SPLITS: [&str; 8] = ["split", "set", "subset", "partition", "phase", "usage", "dataset", "data set"];

pub fn read(path: &Path, root: Option<&Path>, classes: Option<&Path>, division: &Division) -> Result<Catalogue, Error> {
    let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
    let text = text::decode(&store::read_file(path).map_err(wrong)?).map_err(wrong)?;
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let mut notes = Vec::new();
    let root: PathBuf = root.or(path.parent()).unwrap_or(Path::new("/")).to_owned();
    let rows = rows(&text, &ending).map_err(wrong)?;
    let lines = lines(rows, &|cell| find(&root, cell).is_some(), &mut notes).map_err(wrong)?;
    let names = classes.map(super::class_names).transpose()?;
    let classes = match names {
        Some(names) => names,
        None => in_order(lines.iter().filter_map(|line| line.label.clone()).collect()),
    };
    let index: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let numbers = index.keys().all(|name| name.parse::<u32>().is_err());
    let states_splits = lines.iter().any(|line| line.split.is_some());
    let items = lines.into_iter().map(|line| {
        let word = line.label.as_deref().unwrap_or_default();
        let number = word.parse::<u32>().ok().filter(|n| numbers && (*n as usize) < classes.len());
        let label = index.get(word).copied().or(number);
        let mut fault = line.fault.clone();
        if fault.is_none() && line.label.is_none() {
            fault = Some(format!("line {}: a path, but no label", line.number));
        } else if label.is_none() {
            fault =
                fault.or(Some(format!("line {}: {} is not in the list of classes", line.number, text::short(word))));
        }
        let split = line.split.as_deref().filter(|split| !split.is_empty() && division.is_auto());
        let known = split.and_then(division::of_name);
        if split.is_some() && known.is_none() {
            fault = fault.or(Some(format!("line {}: the split is not train, val or test", line.number)));
        }
        let path = find(&root, &line.path).unwrap_or(line.path);
        let about = std::fs::metadata(root.join(&path)).ok();
        let stamp = about.map_or((0, 0), |about| (about.size(), about.mtime()));
        Item { fault, stamp, path, label, split: known, ..Item::default() }
    });
    let mut items: Vec<Item> = items.collect();
    let layout = if states_splits && division.is_auto() {
        "splits by a column of the list".to_owned()
    } else {
        divide(division, &mut items, &mut notes).map_err(wrong)?
    };
    let pictures = Pictures::Files { store: Store::Folder(root), colours: None, regions: None };
    Ok(Catalogue { layout, ..Catalogue::new(pictures, items, classes, notes) })
}

/// Divides by folders, as the source or the specification has them.
fn divide(division: &Division, items: &mut [Item], notes: &mut Vec<Note>) -> Result<String, String> {
    let Division::Folders(folders) = division else {
        return Ok(if division.is_none() { division::undivided() } else { division::by_folders(items, notes) });
    };
    for item in items.iter_mut() {
        let is_in = |entries: &[String]| entries.iter().any(|entry| tree::is_below(&item.path, &tree::normal(entry)));
        match folders.each().into_iter().find(|(_, entries)| is_in(entries)) {
            Some((split, _)) => item.split = Some(split),
            None => item.outside = Some("not in a folder of `splits`".to_owned()),
        }
    }
    match folders
        .each()
        .iter()
        .find(|(split, entries)| !entries.is_empty() && items.iter().all(|i| i.split != Some(*split)))
    {
        Some((split, _)) => Err(format!("splits.{}: no image of the list is there", split.name())),
        None => Ok("splits as requested".to_owned()),
    }
}

/// The file that a path of a list means, relative to the folder: as it is written, by the rules of another system,
/// without the folders of another machine, or with an ending that was left out.
fn find(root: &Path, path: &str) -> Option<String> {
    let is_file = |path: &str| !path.is_empty() && root.join(path).is_file();
    if is_file(path) {
        return Some(path.to_owned());
    }
    let whole = tree::normal(path);
    let mut rest = whole.as_str();
    loop {
        if is_file(rest) {
            return Some(rest.to_owned());
        }
        match rest.split_once('/') {
            Some((_, below)) => rest = below,
            None => break,
        }
    }
    let endings = ["jpg", "png", "jpeg", "JPG", "bmp", "webp"];
    let folders = ["", "images/", "train/", "train_images/"];
    let plain = !whole.is_empty() && !store::is_picture(&whole);
    let mut guesses = folders.iter().flat_map(|folder| endings.map(|ending| format!("{folder}{whole}.{ending}")));
    guesses.find(|guess| plain && is_file(guess))
}

/// Numbers by their value, else names by their letters.
fn in_order(labels: BTreeSet<String>) -> Vec<String> {
    let mut labels: Vec<String> = labels.into_iter().collect();
    if labels.iter().all(|label| label.parse::<u64>().is_ok()) {
        labels.sort_by_key(|label| label.parse::<u64>().unwrap_or_default());
    }
    labels
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Line {
    number: usize,
    path: String,
    label: Option<String>,
    split: Option<String>,
    fault: Option<String>,
}

type Rows = Vec<(usize, Vec<String>)>;

/// The fields of each line.
fn rows(text: &str, ending: &str) -> Result<Rows, String> {
    if matches!(ending, "csv" | "tsv") {
        return table(text, ending);
    }
    let fields = |(number, line): (usize, &str)| {
        let tabs: Vec<String> = line.split('\t').map(|part| part.trim().to_owned()).collect();
        if tabs.len() > 1 {
            return (number, tabs);
        }
        // The path may hold spaces, the label does not; either may come first.
        let ends = line.rsplit_once(char::is_whitespace);
        let starts = line.split_once(char::is_whitespace);
        let pair = match (ends, starts) {
            (Some((path, label)), Some((_, rest))) if store::is_picture(label) && !store::is_picture(path) => {
                vec![line[..line.len() - rest.len()].trim().to_owned(), rest.trim().to_owned()]
            }
            (Some((path, label)), _) => vec![path.trim().to_owned(), label.to_owned()],
            _ => vec![line.to_owned()],
        };
        (number, pair)
    };
    Ok(text::lines(text).map(fields).collect())
}

fn table(text: &str, ending: &str) -> Result<Rows, String> {
    let first = text.lines().next().unwrap_or_default();
    let delimiter = match ending {
        "tsv" => b'\t',
        _ => [b',', b';', b'\t']
            .into_iter()
            .max_by_key(|mark| (first.bytes().filter(|byte| byte == mark).count(), *mark == b','))
            .unwrap_or(b','),
    };
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(delimiter)
        .from_reader(text.as_bytes());
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.map_err(|error| text::short(&error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        Ok((usize::try_from(line).unwrap_or_default(), record.iter().map(str::to_owned).collect()))
    };
    let mut rows: Rows = reader.into_records().map(row).collect::<Result<_, String>>()?;
    // A note at the top, as some programs leave it.
    while rows.first().is_some_and(|(_, fields)| fields.len() == 1 && fields[0].starts_with('#')) {
        rows.remove(0);
    }
    Ok(rows)
}

/// Which column is which.
#[derive(Debug, PartialEq)]
struct Columns {
    path: usize,
    label: Option<usize>,
    split: Option<usize>,
    /// Columns of which the one that says 1 names the class.
    flags: Vec<usize>,
}

fn lines(mut rows: Rows, exists: &dyn Fn(&str) -> bool, notes: &mut Vec<Note>) -> Result<Vec<Line>, String> {
    let heading = heading(&rows, exists).then(|| rows.remove(0).1);
    if rows.is_empty() {
        return Err("the list does not contain any images".to_owned());
    }
    let columns = columns(&rows, heading.as_deref(), exists);
    if columns.label.is_none() && columns.flags.is_empty() {
        return Err(format!("line {} has a path but no label", rows[0].0));
    }
    let used = [Some(columns.path), columns.label, columns.split];
    let most = rows.iter().map(|(_, fields)| fields.len()).max().unwrap_or_default();
    for at in (0..most).filter(|at| !used.contains(&Some(*at)) && !columns.flags.contains(at)) {
        let name = heading.as_ref().and_then(|heading| heading.get(at)).filter(|name| !name.is_empty());
        let shown = name.map_or_else(|| (at + 1).to_string(), |name| text::short(name));
        notes.push(Note::new("", format!("the column {shown} of the list is not used")));
    }
    let line = |(number, fields): (usize, Vec<String>)| {
        let field = |at: usize| fields.get(at).filter(|field| !field.is_empty()).cloned();
        let flagged = || {
            let set: Vec<usize> = columns.flags.iter().copied().filter(|&at| is_one(fields.get(at))).collect();
            let [only] = set[..] else { return None };
            heading.as_ref().and_then(|heading| heading.get(only)).cloned()
        };
        let path = field(columns.path);
        Line {
            number,
            fault: path.is_none().then(|| format!("line {number} has no path")),
            path: path.unwrap_or_else(|| format!("line {number}")),
            label: columns.label.map_or_else(flagged, field).map(|label| label.replace(['\n', '\r'], " ")),
            split: columns.split.and_then(field),
        }
    };
    Ok(rows.into_iter().map(line).collect())
}

fn is_one(field: Option<&String>) -> bool {
    field.is_some_and(|field| field.parse() == Ok(1.0_f64))
}

/// Whether the first line names the columns: no picture is in it, and it has a word for one, or pictures follow.
fn heading(rows: &Rows, exists: &dyn Fn(&str) -> bool) -> bool {
    let Some((_, first)) = rows.first() else { return false };
    let looks = |field: &String| store::is_picture(field) || exists(field);
    if first.iter().any(looks) {
        return false;
    }
    let known = |field: &String| {
        let word = field.trim().to_lowercase();
        [&PATHS[..], &LABELS, &SPLITS].iter().any(|words| words.contains(&word.as_str()))
    };
    first.iter().any(known) || rows.get(1).is_some_and(|(_, second)| second.iter().any(looks))
}

fn columns(rows: &Rows, heading: Option<&[String]>, exists: &dyn Fn(&str) -> bool) -> Columns {
    let count = rows.iter().map(|(_, fields)| fields.len()).max().unwrap_or_default();
    let sample = || rows.iter().take(200).map(|(_, fields)| fields);
    let named = |words: &[&str]| {
        let names: Vec<String> = heading?.iter().map(|name| name.trim().to_lowercase()).collect();
        words.iter().find_map(|word| names.iter().position(|name| name == word))
    };
    let shown = |at: usize| sample().filter(|row| row.get(at).is_some_and(|field| store::is_picture(field))).count();
    let there = |at: usize| sample().filter(|row| row.get(at).is_some_and(|field| exists(field))).count();
    let best = |score: &dyn Fn(usize) -> usize| {
        (0..count)
            .map(|at| (score(at), at))
            .filter(|(score, _)| *score > 0)
            .max_by_key(|(score, at)| (*score, count - at))
            .map(|(_, at)| at)
    };
    let path = best(&shown).or_else(|| best(&there)).or_else(|| named(&PATHS)).unwrap_or(0);
    let rest: Vec<usize> = (0..count).filter(|at| *at != path).collect();
    let is_split = |at: &usize| {
        let mut words = sample().filter_map(|row| row.get(*at)).filter(|word| !word.is_empty());
        heading.is_none() && rest.len() > 1 && words.any(|word| division::of_name(word).is_some())
    };
    let split =
        named(&SPLITS).filter(|at| rest.contains(at)).or_else(|| rest.iter().copied().rev().find(|at| is_split(at)));
    let rest: Vec<usize> = rest.into_iter().filter(|at| Some(*at) != split).collect();
    if let Some(label) = named(&LABELS).filter(|at| rest.contains(at)) {
        return Columns { path, label: Some(label), split, flags: Vec::new() };
    }
    let is_flag = |at: &&usize| {
        sample()
            .all(|row| row.get(**at).is_some_and(|field| field.parse() == Ok(0.0_f64) || field.parse() == Ok(1.0_f64)))
    };
    let flags: Vec<usize> = rest.iter().filter(is_flag).copied().collect();
    let one_each = flags.len() > 1 && sample().all(|row| flags.iter().filter(|&&at| is_one(row.get(at))).count() == 1);
    if heading.is_some() && one_each && flags.len() == rest.len() {
        return Columns { path, label: None, split, flags };
    }
    // A column that only counts the lines is not the label if there is another column.
    let counts = |at: usize| {
        let start = rows[0].1.get(at).and_then(|field| field.parse::<usize>().ok());
        start.is_some_and(|start| {
            start < 2
                && rows.len() > 2
                && rows
                    .iter()
                    .enumerate()
                    .all(|(n, (_, row))| row.get(at).and_then(|f| f.parse().ok()) == Some(start + n))
        })
    };
    let label = rest.iter().copied().find(|&at| rest.len() == 1 || !counts(at));
    Columns { path, label, split, flags: Vec::new() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, ending: &str) -> Vec<(String, String, String)> {
        let found = lines(rows(text, ending).unwrap(), &|_| false, &mut Vec::new()).unwrap();
        found
            .into_iter()
            .map(|line| (line.path, line.label.unwrap_or_default(), line.split.unwrap_or_default()))
            .collect()
    }

    fn three(path: &str, label: &str, split: &str) -> (String, String, String) {
        (path.to_owned(), label.to_owned(), split.to_owned())
    }

    #[test]
    fn paths_with_spaces_tabs_and_commas() {
        let found = read("my pictures/a b.png cat\r\nc.png\tblack dog\tval\r\n\r\nd.png   cat\n", "txt");
        assert_eq!(
            found,
            [three("my pictures/a b.png", "cat", ""), three("c.png", "black dog", "val"), three("d.png", "cat", "")]
        );
        let found = read("path,label,split\n\"a, b.png\",cat,train\nc.png,dog,nowhere\n", "csv");
        assert_eq!(found, [three("a, b.png", "cat", "train"), three("c.png", "dog", "nowhere")]);
        assert_eq!(read("cat my pictures/a b.png\n", "txt"), [three("my pictures/a b.png", "cat", "")]);
    }

    #[test]
    fn columns_are_known_by_their_headings_and_by_what_stands_in_them() {
        let cat = [three("a.png", "cat", ""), three("b.png", "dog", "")];
        for same in [
            "image_id,label\na.png,cat\nb.png,dog\n",
            "Filename,Label\na.png,cat\nb.png,dog\n",
            "label,path\ncat,a.png\ndog,b.png\n",
            "cat,a.png\ndog,b.png\n",
            "file;category\na.png;cat\nb.png;dog\n",
            ",fname,species\n0,a.png,cat\n1,b.png,dog\n",
            "picture,what,fold\na.png,cat,0\nb.png,dog,1\n",
            "id,fold,image,class\n7,1,a.png,cat\n8,2,b.png,dog\n",
            "image,cat,dog\na.png,1.0,0.0\nb.png,0,1\n",
            "# made by hand\na.png,cat\nb.png,dog\n",
        ] {
            assert_eq!(read(same, "csv"), cat, "{same}");
        }
        assert_eq!(read("image\tlabel\na.png\tcat\nb.png\tdog\n", "tsv"), cat);
        assert_eq!(read("path\tlabel\tsplit\na.png\tcat\tval\n", "txt"), [three("a.png", "cat", "val")]);
        assert_eq!(
            read("val,cat,a.png\ntrain,dog,b.png\n", "csv"),
            [three("a.png", "cat", "val"), three("b.png", "dog", "train")]
        );
        assert_eq!(read("0,a.png,x\n1,b.png,y\n2,c.png,z\n", "csv")[2], three("c.png", "z", ""));
        assert_eq!(
            read("a.png,\"#1\"\nb.png,\"a, b\"\nc.png,007\n", "csv")
                .iter()
                .map(|line| line.1.as_str())
                .collect::<Vec<_>>(),
            ["#1", "a, b", "007"]
        );
    }

    #[test]
    fn a_list_without_labels_is_refused_with_its_line() {
        let said = |text: &str| lines(rows(text, "txt").unwrap(), &|_| false, &mut Vec::new()).unwrap_err();
        assert_eq!(said("a.png\nb.png\n"), "line 1 has a path but no label");
        assert_eq!(said("\r\n"), "the list does not contain any images");
        let found = lines(rows("a.png 0\nb.png\n", "txt").unwrap(), &|_| false, &mut Vec::new()).unwrap();
        assert_eq!((found[0].label.as_deref(), found[1].label.as_deref()), (Some("0"), None));
    }

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let labels = ["10", "9", "1"].map(str::to_owned).into();
        assert_eq!(in_order(labels), ["1", "9", "10"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-c0-2.pngvltri,;\t\"#\n ]{0,120}") {
            for ending in ["csv", "tsv", "txt"] {
                if let Ok(rows) = rows(&text, ending) {
                    let _ = lines(rows, &|cell| cell.len() == 3, &mut Vec::new());
                }
            }
        }
    }
}
