//! `lyceum dataset inspect`: what a source is taken for, before anything is built of it. It reads
//! the source by the same readers as a build, opens no picture and writes nothing, and says what
//! layout it found, how many images each split and class has, and what it noted.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    Error,
    catalogue::{Catalogue, Item, Split},
    idx, readers, shapes,
    spec::{Source, Spec},
    standard::Places,
};

/// How many classes and notes are listed; all are counted.
const LISTED: usize = 50;

/// What a source is taken for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// The kind of the dataset, as in the specification.
    pub kind: String,
    /// The kind of the source, as in the specification.
    pub source: String,
    /// How images, classes and splits are laid out, in words.
    pub layout: String,
    pub images: u64,
    /// Images of each split that the source states, and `undivided` where it states none.
    pub splits: BTreeMap<String, u64>,
    pub class_count: u64,
    /// Classes with their images or boxes, in the order of their numbers; at most fifty.
    pub classes: Vec<ClassCount>,
    /// Images that cannot be used, as far as that is known without opening them.
    pub broken: u64,
    pub left_out: u64,
    pub boxes_dropped: u64,
    pub note_count: u64,
    /// Notes and reasons; at most fifty.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    pub name: String,
    /// Images, boxes or regions.
    pub count: u64,
}

/// Inspects the source of a specification.
pub fn inspect(spec: &Spec) -> Result<Inspection, Error> {
    let faults = spec.faults();
    if !faults.is_empty() {
        return Err(Error::Spec(faults));
    }
    match &spec.source {
        Source::Idx { labels, test_labels, .. } => numbered(spec, labels, test_labels.as_deref()),
        Source::Standard { set, directory, mirror } => {
            let published = set.publication();
            let places = Places::new(&published, directory.as_deref(), mirror.as_deref(), None);
            let splits = [("train", published.training), ("test", published.test)];
            let class = |(name, count): &(&str, u64)| ClassCount { name: (*name).to_owned(), count: *count };
            Ok(Inspection {
                layout: format!("{}, {}", published.title, published.description()),
                images: published.training + published.test,
                splits: splits.map(|(name, count)| (name.to_owned(), count)).into(),
                class_count: published.classes.len() as u64,
                classes: published.classes.iter().map(class).collect(),
                note_count: 1,
                notes: vec![places.sentence()],
                ..begun(spec)
            })
        }
        Source::Generated { count } => {
            let splits = [("undivided".to_owned(), u64::from(*count))].into();
            let names = shapes::classes(spec.kind);
            let classes: Vec<ClassCount> = names.into_iter().map(|name| ClassCount { name, count: 0 }).collect();
            Ok(Inspection {
                layout: "images that Lyceum draws".to_owned(),
                images: u64::from(*count),
                splits,
                class_count: classes.len() as u64,
                classes,
                ..begun(spec)
            })
        }
        _ => Ok(summary(spec, &readers::catalogue(spec, None)?)),
    }
}

fn begun(spec: &Spec) -> Inspection {
    let kind = serde_json::to_value(spec.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    Inspection { kind: kind.unwrap_or_default(), source: spec.source.name().to_owned(), ..Inspection::default() }
}

fn numbered(spec: &Spec, labels: &Path, test: Option<&Path>) -> Result<Inspection, Error> {
    let train = idx::labels(labels)?;
    let test = test.map(idx::labels).transpose()?.unwrap_or_default();
    let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
    train.iter().chain(&test).for_each(|label| *counts.entry(*label).or_default() += 1);
    let mut splits = BTreeMap::from([("undivided".to_owned(), train.len() as u64)]);
    if !test.is_empty() {
        splits.insert("test".to_owned(), test.len() as u64);
    }
    let classes: Vec<ClassCount> =
        counts.into_iter().map(|(label, count)| ClassCount { name: label.to_string(), count }).collect();
    Ok(Inspection {
        layout: "images by their numbers".to_owned(),
        images: (train.len() + test.len()) as u64,
        splits,
        class_count: classes.len() as u64,
        classes: classes.into_iter().take(LISTED).collect(),
        ..begun(spec)
    })
}

fn summary(spec: &Spec, catalogue: &Catalogue) -> Inspection {
    let usable = |item: &&Item| item.fault.is_none() && item.outside.is_none();
    let mut found = Inspection {
        layout: catalogue.layout.clone(),
        images: catalogue.items.len() as u64,
        class_count: catalogue.classes.len() as u64,
        broken: catalogue.items.iter().filter(|item| item.fault.is_some()).count() as u64,
        left_out: catalogue.items.iter().filter(|item| item.fault.is_none() && item.outside.is_some()).count() as u64,
        ..begun(spec)
    };
    let mut counts = vec![0_u64; catalogue.classes.len()];
    for item in catalogue.items.iter().filter(usable) {
        let split = item.split.map_or("undivided", Split::name);
        *found.splits.entry(split.to_owned()).or_default() += 1;
        let of_regions = item.regions.iter().map(|region| u32::from(region.class));
        let of_boxes = item.boxes.iter().filter(|one| one.fault.is_none()).map(|one| one.class);
        for class in item.label.into_iter().chain(of_boxes).chain(of_regions) {
            if let Some(count) = counts.get_mut(class as usize) {
                *count += 1;
            }
        }
        found.boxes_dropped += item.boxes.iter().filter(|one| one.fault.is_some()).count() as u64;
    }
    let named = catalogue.classes.iter().zip(counts).take(LISTED);
    found.classes = named.map(|(name, count)| ClassCount { name: name.clone(), count }).collect();
    let line = |path: &str, text: &str| if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") };
    let notes = catalogue.notes.iter().map(|note| line(&note.path, &note.text));
    let faults = catalogue
        .items
        .iter()
        .filter_map(|item| Some(line(&item.path, item.fault.as_ref().or(item.outside.as_ref())?)));
    let boxes = catalogue
        .items
        .iter()
        .flat_map(|item| item.boxes.iter().filter_map(|one| Some(line(&item.path, one.fault.as_ref()?))));
    let mut all: Vec<String> = notes.chain(faults).chain(boxes).collect();
    found.note_count = all.len() as u64;
    // What concerns the whole comes before what concerns a file.
    all.sort_by_key(|note| note.contains(": "));
    all.truncate(LISTED);
    found.notes = all;
    found
}

impl fmt::Display for Inspection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "{} from {}: {}", self.kind, self.source, self.layout)?;
        let splits: Vec<String> = self.splits.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(to, "{} images: {}", self.images, splits.join(", "))?;
        writeln!(to, "{} classes:", self.class_count)?;
        for class in &self.classes {
            writeln!(to, "  {} ({})", class.name, class.count)?;
        }
        writeln!(
            to,
            "{} broken, {} left out, {} boxes dropped, {} notes",
            self.broken, self.left_out, self.boxes_dropped, self.note_count
        )?;
        for note in &self.notes {
            writeln!(to, "  {note}")?;
        }
        Ok(())
    }
}
