//! Who learns from what: a pure decision over what the pass found. Files of the same content
//! count once, small classes go, large ones are cut, and each class is divided alike. The order
//! in which pictures are drawn is that of hashes of seed and path, so that it is the same on
//! every machine and hardly changes when a picture is added.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sha2::{Digest, Sha256};

use super::{
    boxes,
    catalogue::{Catalogue, Item, Note, Split},
    journal::Record,
    spec::{Duplicates, Kind, Purpose, Source, Spec},
};

/// What becomes of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub split: Option<Split>,
    /// The index of its class in the dataset.
    pub label: Option<u32>,
    pub error: Option<String>,
    pub why: Why,
}

/// How the error of a row is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    #[default]
    Used,
    Broken,
    Duplicate,
    LeftOut,
}

#[derive(Debug, PartialEq)]
pub struct Decision {
    pub rows: Vec<Row>,
    pub classes: Vec<String>,
    /// What the owner should know of it.
    pub notes: Vec<Note>,
}

/// Decides for every item, or says why nothing can be made of them.
pub fn decide(spec: &Spec, catalogue: &Catalogue, records: &[Record], is_binary: bool) -> Result<Decision, String> {
    let items = &catalogue.items;
    let broken = |(item, record): (&Item, &Record)| match &record.error {
        Some(error) if item.fault.is_none() && item.outside.is_some() => {
            Row { error: Some(error.clone()), why: Why::LeftOut, ..Row::default() }
        }
        Some(error) => Row { error: Some(error.clone()), why: Why::Broken, ..Row::default() },
        None => Row::default(),
    };
    let mut rows: Vec<Row> = items.iter().zip(records).map(broken).collect();
    let mut notes = Vec::new();
    if spec.duplicates == Duplicates::Drop {
        drop_duplicates(catalogue, records, &mut rows);
    }
    let classes = match spec.kind {
        Kind::Classification => choose_classes(spec, catalogue, &mut rows, &mut notes)?,
        _ if is_binary => {
            notes.push(Note::new("", "the masks hold only 0 and 255; 255 is the class foreground"));
            ["background", "foreground"].map(str::to_owned).into()
        }
        _ => class_names(catalogue, records),
    };
    let usable: Vec<usize> = (0..rows.len()).filter(|&at| rows[at].why == Why::Used).collect();
    if usable.is_empty() {
        return Err(nothing(items, &rows));
    }
    if spec.purpose == Purpose::Evaluation {
        for &at in &usable {
            rows[at].split = Some(Split::Test);
        }
        if spec.kind == Kind::Detection {
            look_for_boxes(items, records, &rows, Split::Test)?;
        }
        let is_drawn = spec.kind == Kind::Segmentation && !matches!(spec.source, Source::Masks { .. });
        if is_drawn && !usable.iter().any(|&at| records[at].seen.iter().any(|&class| class > 0)) {
            return Err("none of the labelled images has the outline of an object".to_owned());
        }
        return Ok(Decision { rows, classes, notes });
    }
    let strata = match spec.kind {
        Kind::Classification => usable.iter().map(|&at| rows[at].label.unwrap_or_default()).collect(),
        Kind::Detection => rarest(usable.iter().map(|&at| box_classes(&items[at])).collect()),
        Kind::Segmentation => {
            rarest(usable.iter().map(|&at| records[at].seen.iter().map(|&class| class.into()).collect()).collect())
        }
    };
    divide(spec, items, &mut rows, &usable, &strata);
    if !rows.iter().any(|row| row.split == Some(Split::Train)) {
        let hint = if items.iter().any(|item| item.split.is_some()) {
            ": the source gives all of them to validation or test. Set `splits` to `none` to divide them by percent"
        } else {
            ""
        };
        return Err(format!("no images are left for training{hint}"));
    }
    match spec.kind {
        Kind::Classification => {}
        Kind::Detection => look_for_boxes(items, records, &rows, Split::Train)?,
        Kind::Segmentation => look_for_masks(records, &rows, &classes)?,
    }
    Ok(Decision { rows, classes, notes })
}

/// Refuses a set that has no box in a split, with the commonest reasons.
fn look_for_boxes(items: &[Item], records: &[Record], rows: &[Row], split: Split) -> Result<(), String> {
    let word = if split == Split::Train { "training" } else { "labelled" };
    let mut reasons: HashMap<String, usize> = HashMap::new();
    let (mut found, mut images) = (0_usize, 0_usize);
    for ((item, record), _) in items.iter().zip(records).zip(rows).filter(|(_, row)| row.split == Some(split)) {
        images += 1;
        for one in boxes::resolve(item, record) {
            let Some(fault) = one.fault else { return Ok(()) };
            found += 1;
            // The number of the line says nothing about the kind.
            let kind =
                fault.split_once(": ").filter(|(line, _)| line.starts_with("line ")).map_or(&*fault, |(_, kind)| kind);
            *reasons.entry(kind.to_owned()).or_default() += 1;
        }
    }
    if found == 0 {
        return Err(format!("none of the {images} {word} images has a box"));
    }
    let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let crowd = if reasons.iter().any(|(reason, _)| reason.contains("crowd")) {
        ". Some tools mark every mask as a crowd (iscrowd 1): set `crowds` of the source to `keep` to use them"
    } else {
        ""
    };
    let reasons: Vec<String> = reasons.iter().take(3).map(|(reason, count)| format!("{count} × {reason}")).collect();
    Err(format!(
        "no box of the {word} images can be used: {} of {found} boxes are dropped ({}){crowd}",
        found,
        reasons.join(", ")
    ))
}

/// Refuses masks that show one class alone.
fn look_for_masks(records: &[Record], rows: &[Row], classes: &[String]) -> Result<(), String> {
    let train = records.iter().zip(rows).filter(|(_, row)| row.split == Some(Split::Train));
    let seen: BTreeSet<u8> = train.flat_map(|(record, _)| record.seen.iter().copied()).collect();
    if seen.len() > 1 {
        return Ok(());
    }
    let only = seen.first().map_or("none", |&class| classes.get(usize::from(class)).map_or("?", String::as_str));
    Err(format!(
        "the masks of the training images show only one class ({only}); training needs at least two, such as 0 for \
         background and 1 for the object"
    ))
}

fn drop_duplicates(catalogue: &Catalogue, records: &[Record], rows: &mut [Row]) {
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        let Some(hash) = record.hash.as_deref().filter(|_| rows[at].why == Why::Used) else { continue };
        let Some(&before) = first.get(hash) else {
            first.insert(hash, at);
            continue;
        };
        let (this, other) = (&catalogue.items[at], &catalogue.items[before]);
        let label = other.label.filter(|_| this.label != other.label);
        let class = label.and_then(|label| catalogue.classes.get(label as usize));
        let error = match class {
            Some(class) => format!("duplicate of {}, which is labelled {class}", other.path),
            None => format!("duplicate of {}", other.path),
        };
        rows[at] = Row { error: Some(error), why: Why::Duplicate, ..Row::default() };
    }
}

/// The classes that stay, with their new indices in the rows.
fn choose_classes(
    spec: &Spec,
    catalogue: &Catalogue,
    rows: &mut [Row],
    notes: &mut Vec<Note>,
) -> Result<Vec<String>, String> {
    let mut members: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, item) in catalogue.items.iter().enumerate().filter(|(at, _)| rows[*at].why == Why::Used) {
        members.entry(item.label.unwrap_or_default()).or_default().push(at);
    }
    if members.is_empty() {
        return Err(nothing(&catalogue.items, rows));
    }
    let without = (0..).zip(&catalogue.classes).filter(|(label, _)| !members.contains_key(label));
    notes.extend(
        without.map(|(_, name)| Note::new("", format!("the class {name} has no usable image and is left out"))),
    );
    let mut classes: Vec<String> = Vec::new();
    for (label, mut pictures) in members {
        let name = catalogue.classes.get(label as usize).cloned().unwrap_or_else(|| label.to_string());
        let mut leave_out = |at: usize, error: String| {
            rows[at] = Row { error: Some(error), why: Why::LeftOut, ..Row::default() };
        };
        if pictures.len() < spec.min_per_class as usize {
            for &at in &pictures {
                leave_out(
                    at,
                    format!("its class has {} usable images, fewer than {}", pictures.len(), spec.min_per_class),
                );
            }
            let text = format!(
                "the class {name} has {} usable images, fewer than {}, and is left out",
                pictures.len(),
                spec.min_per_class
            );
            notes.push(Note::new("", text));
            continue;
        }
        if let Some(most) = spec.max_per_class.map(|most| most as usize).filter(|most| pictures.len() > *most) {
            pictures.sort_by_key(|&at| order(spec.seed, &catalogue.items[at].path));
            for at in pictures.split_off(most) {
                leave_out(at, format!("its class has more than {most} images"));
            }
        }
        let index = u32::try_from(classes.len()).unwrap_or(u32::MAX);
        for at in pictures {
            rows[at].label = Some(index);
        }
        classes.push(name);
    }
    match classes.as_slice() {
        [] => Err(format!("no class has {} usable images, as min_per_class requires", spec.min_per_class)),
        [one] => Err(format!("only the class {one} has enough usable images; training needs at least two classes")),
        _ => Ok(classes),
    }
}

/// The names of the source, or the numbers that its masks hold.
fn class_names(catalogue: &Catalogue, records: &[Record]) -> Vec<String> {
    if !catalogue.classes.is_empty() {
        return catalogue.classes.clone();
    }
    let most = records.iter().flat_map(|record| &record.seen).max();
    (0..=most.copied().unwrap_or_default()).map(|class| class.to_string()).collect()
}

fn box_classes(item: &Item) -> Vec<u32> {
    item.boxes.iter().filter(|found| found.fault.is_none()).map(|found| found.class).collect()
}

/// The class of each picture that fewest others have: rare things are to be in every split.
fn rarest(pictures: Vec<Vec<u32>>) -> Vec<u32> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let distinct: Vec<Vec<u32>> = pictures
        .into_iter()
        .map(|mut classes| {
            classes.sort_unstable();
            classes.dedup();
            classes
        })
        .collect();
    distinct.iter().flatten().for_each(|&class| *counts.entry(class).or_default() += 1);
    distinct
        .iter()
        .map(|classes| classes.iter().copied().min_by_key(|class| (counts[class], *class)).unwrap_or(u32::MAX))
        .collect()
}

/// Gives each usable row its split. What the source says stays; what it calls training is divided
/// further where it has no validation or test of its own.
fn divide(spec: &Spec, items: &[Item], rows: &mut [Row], usable: &[usize], strata: &[u32]) {
    let given = |split| items.iter().any(|item| item.split == Some(split));
    let validation = if given(Split::Val) { 0 } else { spec.validation_percent };
    let test = if given(Split::Test) { 0 } else { spec.test_percent };
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (&at, &stratum) in usable.iter().zip(strata) {
        match items[at].split {
            Some(split @ (Split::Val | Split::Test)) => rows[at].split = Some(split),
            _ => groups.entry(stratum).or_default().push(at),
        }
    }
    for mut group in groups.into_values() {
        group.sort_by_cached_key(|&at| order(spec.seed, &items[at].path));
        let (in_validation, in_test) = shares(group.len(), validation, test);
        for (place, at) in group.into_iter().enumerate() {
            rows[at].split = Some(match place {
                place if place < in_test => Split::Test,
                place if place < in_test + in_validation => Split::Val,
                _ => Split::Train,
            });
        }
    }
}

/// How many of so many go to validation and test: at least one where percents are wanted, but
/// training keeps one in any case.
fn shares(count: usize, validation: u8, test: u8) -> (usize, usize) {
    let share = |percent: u8| ((count * usize::from(percent) + 50) / 100).max(usize::from(percent > 0));
    let validation = share(validation).min(count.saturating_sub(1));
    (validation, share(test).min(count.saturating_sub(1 + validation)))
}

fn order(seed: u32, path: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(path);
    hash.finalize().into()
}

/// Why there is nothing, with the first pictures as examples.
fn nothing(items: &[Item], rows: &[Row]) -> String {
    if rows.is_empty() {
        return "the source does not contain any images".to_owned();
    }
    let examples =
        items.iter().zip(rows).filter_map(|(item, row)| Some(format!("{}: {}", item.path, row.error.as_ref()?)));
    format!("none of {} images can be used. {}", rows.len(), examples.take(3).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{super::catalogue::Pictures, super::store::Store, *};

    fn spec(change: impl FnOnce(&mut Spec)) -> Spec {
        let mut spec: Spec = serde_json::from_str(
            r#"{"kind":"classification","source":{"kind":"folder","path":"/p"},"output":"/o","seed":1}"#,
        )
        .unwrap();
        assert!(matches!(spec.source, Source::Folder { .. }));
        change(&mut spec);
        spec
    }

    /// So many pictures of each class, all different.
    fn pictures(counts: &[usize]) -> (Catalogue, Vec<Record>) {
        let item = |(class, n): (usize, usize)| Item {
            path: format!("{class:05}/{n:05}"),
            label: Some(class.try_into().unwrap()),
            ..Item::default()
        };
        let items: Vec<Item> = counts
            .iter()
            .enumerate()
            .flat_map(|(class, &count)| (0..count).map(move |n| (class, n)))
            .map(item)
            .collect();
        let records = items.iter().map(|item| Record { hash: Some(item.path.clone()), ..Record::default() }).collect();
        let names = (0..counts.len()).map(|class| format!("class {class}")).collect();
        let store = Pictures::Files { store: Store::Folder(PathBuf::from("/p")), colours: None, regions: None };
        (Catalogue::new(store, items, names, Vec::new()), records)
    }

    fn count(decision: &Decision, label: u32, split: Split) -> usize {
        decision.rows.iter().filter(|row| row.label == Some(label) && row.split == Some(split)).count()
    }

    #[test]
    fn each_class_is_divided_alike_and_the_seed_decides_how() {
        let (catalogue, records) = pictures(&[100, 20, 2]);
        let decide_with = |seed| {
            let spec = spec(|spec| (spec.seed, spec.test_percent) = (seed, 10));
            decide(&spec, &catalogue, &records, false).unwrap()
        };
        let decision = decide_with(1);
        let counts = |label| Split::ALL.map(|split| count(&decision, label, split));
        assert_eq!([counts(0), counts(1), counts(2)], [[65, 25, 10], [13, 5, 2], [1, 1, 0]]);
        assert_eq!(decision, decide_with(1));
        assert_ne!(decision, decide_with(2));
    }

    #[test]
    fn a_new_picture_moves_few_others() {
        let (before, records) = pictures(&[400, 400]);
        let (after, more) = pictures(&[400, 401]);
        let splits = |catalogue: &Catalogue, records: &[Record]| -> HashMap<String, Option<Split>> {
            let rows = decide(&spec(|_| ()), catalogue, records, false).unwrap().rows;
            catalogue.items.iter().map(|item| item.path.clone()).zip(rows.iter().map(|row| row.split)).collect()
        };
        let (before, after) = (splits(&before, &records), splits(&after, &more));
        assert!(before.iter().filter(|(path, split)| after[*path] != **split).count() <= 1);
    }

    #[test]
    fn shares_leave_something_to_train_with() {
        assert_eq!(shares(1, 25, 25), (0, 0));
        assert_eq!(shares(2, 25, 25), (1, 0));
        assert_eq!(shares(3, 25, 25), (1, 1));
        assert_eq!(shares(3, 0, 0), (0, 0));
        for count in 1..300 {
            for (validation, test) in [(25, 0), (45, 45), (1, 1), (90, 0)] {
                let (in_validation, in_test) = shares(count, validation, test);
                assert!(in_validation + in_test < count);
            }
        }
    }

    #[test]
    fn small_classes_go_and_large_ones_are_cut() {
        let (catalogue, records) = pictures(&[1, 5, 30]);
        let spec = spec(|spec| spec.max_per_class = Some(10));
        let decision = decide(&spec, &catalogue, &records, false).unwrap();
        assert_eq!(decision.classes, ["class 1", "class 2"]);
        assert_eq!(decision.rows[0].error.as_deref(), Some("its class has 1 usable images, fewer than 2"));
        assert_eq!(decision.rows.iter().filter(|row| row.label == Some(1)).count(), 10);
        assert_eq!(decision.rows.iter().filter(|row| row.why == Why::LeftOut).count(), 21);
    }

    #[test]
    fn the_second_of_two_alike_is_left_out_with_the_name_of_the_first() {
        let (catalogue, mut records) = pictures(&[5, 5]);
        records[7].hash = records[2].hash.clone();
        records[3].hash = records[2].hash.clone();
        let decision = decide(&spec(|_| ()), &catalogue, &records, false).unwrap();
        assert_eq!(decision.rows[3].error.as_deref(), Some("duplicate of 00000/00002"));
        let labelled = "duplicate of 00000/00002, which is labelled class 0";
        assert_eq!(decision.rows[7].error.as_deref(), Some(labelled));
        let kept = decide(&spec(|spec| spec.duplicates = Duplicates::Keep), &catalogue, &records, false).unwrap();
        assert!(kept.rows.iter().all(|row| row.why == Why::Used));
    }

    #[test]
    fn what_the_source_divided_stays() {
        let (mut catalogue, records) = pictures(&[8, 8]);
        for item in &mut catalogue.items {
            item.split = Some(if item.path.ends_with('7') { Split::Test } else { Split::Train });
        }
        let decision = decide(&spec(|_| ()), &catalogue, &records, false).unwrap();
        assert_eq!(Split::ALL.map(|split| count(&decision, 0, split)), [5, 2, 1]);
    }

    #[test]
    fn one_class_or_none_is_told() {
        let (catalogue, records) = pictures(&[5, 1]);
        assert!(decide(&spec(|_| ()), &catalogue, &records, false).unwrap_err().contains("only the class class 0"));
        let (catalogue, mut records) = pictures(&[1, 1]);
        assert!(decide(&spec(|_| ()), &catalogue, &records, false).unwrap_err().contains("no class has 2"));
        for record in &mut records {
            record.error = Some("the file is empty".to_owned());
        }
        let said = decide(&spec(|_| ()), &catalogue, &records, false).unwrap_err();
        assert!(said.contains("none of 2 images") && said.contains("00000/00000: the file is empty"), "{said}");
        let (catalogue, records) = pictures(&[]);
        assert_eq!(
            decide(&spec(|_| ()), &catalogue, &records, false).unwrap_err(),
            "the source does not contain any images"
        );
    }

    #[test]
    fn rare_things_decide_where_a_picture_goes() {
        assert_eq!(rarest(vec![vec![0, 1, 0], vec![0], vec![0, 0], vec![]]), [1, 0, 0, u32::MAX]);
    }

    #[test]
    fn ten_thousand_classes() {
        let (catalogue, records) = pictures(&vec![3; 10_000]);
        let decision = decide(&spec(|_| ()), &catalogue, &records, false).unwrap();
        assert_eq!(decision.classes.len(), 10_000);
        assert_eq!(decision.rows.iter().filter(|row| row.split == Some(Split::Val)).count(), 10_000);
    }
}
