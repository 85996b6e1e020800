//! `/datasets`: the list, the form for a new one, and one with its classes and pictures. Bars
//! are widths in SVG, because the content policy knows no styles.

use askama::Template;
use serde_json::json;

use super::{FieldError, ListFrame, Moment};
use crate::{
    datasets::build::{
        document::{Counts, Document, Image},
        inspect::Inspection,
        standard::{self, Publication, StandardSet},
    },
    model::{Dataset, DatasetId, DatasetState, JobId, UserId},
    web::{
        datasets::items::ItemView,
        page::{Layout, filters},
    },
};

/// `/datasets`
#[derive(Debug, Template)]
#[template(path = "datasets/list.html")]
pub struct DatasetsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    pub search: String,
    pub rows: Vec<DatasetRow>,
    pub frame: ListFrame,
}

impl DatasetsPage {
    /// Returns whether some of them are the reader's own.
    pub fn has_own(&self) -> bool {
        self.rows.iter().any(DatasetRow::is_own)
    }
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct DatasetRow {
    pub id: String,
    pub name: String,
    pub kind: String,
    pub source: String,
    /// Nothing where it is the reader's own.
    pub owner: Option<String>,
    pub state: DatasetState,
    pub job_href: Option<String>,
    pub pictures: i64,
    pub broken: i64,
    pub classes: i64,
    pub created: Moment,
}

impl DatasetRow {
    pub fn new(one: &Dataset, created: Moment, reader: UserId) -> Self {
        Self {
            id: one.id.to_string(),
            name: one.name.clone(),
            kind: one.kind.clone(),
            source: one.source.clone(),
            owner: (one.owner != reader).then(|| one.owner_name.clone()),
            state: one.state,
            job_href: one.job.map(|job| format!("/jobs/{job}")),
            pictures: one.pictures,
            broken: one.broken,
            classes: one.classes,
            created,
        }
    }

    pub fn is_own(&self) -> bool {
        self.owner.is_none()
    }

    pub fn is_ready(&self) -> bool {
        self.state == DatasetState::Ready
    }

    pub fn is_building(&self) -> bool {
        self.state == DatasetState::Building
    }

    /// The class of its badge in the stylesheet.
    pub fn class(&self) -> &'static str {
        match self.state {
            DatasetState::Building => "starting",
            DatasetState::Ready => "succeeded",
            DatasetState::Failed => "failed",
            DatasetState::Cancelled => "ended",
        }
    }
}

/// `/datasets/new`. Posts to `/datasets`.
#[derive(Debug, Template)]
#[template(path = "datasets/new.html")]
pub struct NewDatasetPage {
    pub layout: Layout,
    pub form: DatasetForm,
    pub groups: Vec<String>,
    pub errors: Vec<FieldError>,
    /// What the source would be read as, where that was asked for.
    pub preview: Option<Inspection>,
    /// Whether the errors are those of a preview.
    pub is_preview: bool,
}

impl NewDatasetPage {
    fn failure(&self) -> &'static str {
        if self.is_preview { "The source cannot be read as asked." } else { "The dataset was not created." }
    }

    /// Returns the id of the input of a field, and no text for a link: messages name what they are about.
    fn place(field: &str) -> (&str, &str) {
        (field, "")
    }

    /// The folders of each split: the field, its name, and what was typed.
    pub fn split_fields(&self) -> [(&'static str, &'static str, &str); 3] {
        [
            ("split_train", "Folders for training", &self.form.split_train),
            ("split_val", "Folders for validation", &self.form.split_val),
            ("split_test", "Folders for test", &self.form.split_test),
        ]
    }

    pub fn is_splits(&self, value: &str) -> bool {
        self.form.splits == value || (self.form.splits.is_empty() && value == "auto")
    }

    /// The fault of a field, whatever the API calls it.
    pub fn error(&self, name: &str) -> Option<&str> {
        let here = |field: &str| match field {
            "spec.source.directory" => name == "set_directory",
            field => field.rsplit('.').next() == Some(name),
        };
        self.errors.iter().find(|error| here(&error.field)).map(|error| error.message.as_str())
    }

    /// The sets that can be created at once.
    pub fn standard_sets() -> [Publication<'static>; 3] {
        StandardSet::ALL.map(StandardSet::publication)
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.form.set == name
    }

    pub fn is_source(&self, value: &str) -> bool {
        self.form.source == value
    }

    /// Whether a folder can be chosen for it.
    pub fn is_path(&self, name: &str) -> bool {
        name == "path"
    }

    pub fn is_kind(&self, value: &str) -> bool {
        self.form.chosen_kind == value
    }

    pub fn is_resize(&self, value: &str) -> bool {
        self.form.resize == value
    }

    /// The sources: the word, what people call it, and what it is.
    pub fn sources() -> [(&'static str, &'static str, &'static str); 13] {
        [
            ("folder", "Folder", "one sub-folder for each class"),
            ("zip", "Zip archive", "one folder for each class, in an archive"),
            ("list", "List", "a text file with paths and labels"),
            ("idx", "IDX", "files in the MNIST format"),
            ("coco", "COCO", "boxes or outlines in JSON files"),
            ("yolo", "YOLO", "boxes or outlines in one text file for each image"),
            ("voc", "Pascal VOC", "boxes in one XML file for each image"),
            ("cvat", "CVAT", "boxes or outlines in one XML file"),
            ("labelstudio", "Label Studio", "an export as JSON, JSON-MIN or CSV"),
            ("kitti", "KITTI", "boxes in text files in the KITTI format"),
            ("masks", "Masks", "a mask for each image"),
            ("standard", "Standard set", "MNIST, Fashion-MNIST or CIFAR-10, with your own settings"),
            ("generated", "Shapes", "synthetic images for demos"),
        ]
    }

    /// Paths that a source may have: the field, its name, which sources have it, and what is usual.
    pub fn paths() -> [(&'static str, &'static str, &'static str, &'static str); 10] {
        [
            ("path", "Folder or file", "folder zip list coco yolo voc cvat labelstudio kitti masks", "~/images"),
            ("root", "Paths are relative to", "list", "default: the folder of the list"),
            ("annotations", "Annotations", "coco cvat labelstudio", "default: all that is found"),
            ("images", "Images", "idx coco kitti masks", "images"),
            ("labels", "Labels", "idx kitti", "labels"),
            ("test_images", "Test images", "idx", "optional"),
            ("test_labels", "Test labels", "idx", "optional"),
            ("masks", "Masks", "masks", "masks"),
            ("colours", "Colours", "masks", "a file, or voc"),
            ("set_directory", "Folder of the published files", "standard", "optional: where you have them"),
        ]
    }

    pub fn resizes() -> [(&'static str, &'static str); 4] {
        [
            ("squash", "stretches the image; its proportions change"),
            ("crop", "cuts off both ends of the longer side"),
            ("fill", "pads the shorter side with black"),
            ("half-crop", "half cropped, half padded"),
        ]
    }
}

/// What was typed.
#[derive(Clone, Debug, Default)]
pub struct DatasetForm {
    pub idempotency_key: String,
    pub name: String,
    pub source: String,
    /// Of generated sets; the others have one.
    pub chosen_kind: String,
    /// In the order of `NewDatasetPage::paths`.
    pub paths: [String; 10],
    /// The name of a standard set.
    pub set: String,
    pub classes: String,
    pub count: String,
    pub width: String,
    pub height: String,
    pub channels: String,
    pub resize: String,
    pub validation_percent: String,
    pub test_percent: String,
    pub seed: String,
    pub min_per_class: String,
    pub max_per_class: String,
    /// How the source is divided: as it states, not at all, or by the folders below.
    pub splits: String,
    pub split_train: String,
    pub split_val: String,
    pub split_test: String,
    pub crowds: String,
    pub keep_duplicates: bool,
    pub licence: String,
    pub directory: String,
    pub cpus: String,
    pub group: String,
}

impl DatasetForm {
    pub fn usual(idempotency_key: String) -> Self {
        let text = str::to_owned;
        Self {
            idempotency_key,
            source: text("folder"),
            chosen_kind: text("classification"),
            set: text("mnist"),
            count: text("1000"),
            width: text("128"),
            height: text("128"),
            channels: text("3"),
            resize: text("squash"),
            validation_percent: text("25"),
            test_percent: text("0"),
            seed: text("0"),
            min_per_class: text("2"),
            cpus: text("2"),
            ..Self::default()
        }
    }

    pub fn read(get: impl Fn(&str) -> String) -> Self {
        Self {
            idempotency_key: get("idempotency_key"),
            name: get("name"),
            source: get("source"),
            chosen_kind: get("kind"),
            paths: NewDatasetPage::paths().map(|(name, ..)| get(name)),
            set: get("set"),
            classes: get("classes"),
            count: get("count"),
            width: get("width"),
            height: get("height"),
            channels: get("channels"),
            resize: get("resize"),
            validation_percent: get("validation_percent"),
            test_percent: get("test_percent"),
            seed: get("seed"),
            min_per_class: get("min_per_class"),
            max_per_class: get("max_per_class"),
            splits: get("splits"),
            split_train: get("split_train"),
            split_val: get("split_val"),
            split_test: get("split_test"),
            crowds: get("crowds"),
            keep_duplicates: get("keep_duplicates") == "yes",
            licence: get("licence"),
            directory: get("directory"),
            cpus: get("cpus"),
            group: get("group"),
        }
    }

    /// Fills the empty fields of a standard set with its own size and split.
    #[must_use]
    pub fn completed(mut self) -> Self {
        let Some(set) = self.set.parse::<StandardSet>().ok().filter(|_| self.source == "standard") else { return self };
        let mut spec = json!({"source": {"kind": "standard", "set": set}});
        spec.as_object_mut().into_iter().for_each(standard::complete);
        // Nobody who asks for the set by a click has seen the box.
        self.keep_duplicates |= self.width.is_empty();
        for (field, value) in [
            ("width", &mut self.width),
            ("height", &mut self.height),
            ("channels", &mut self.channels),
            ("validation_percent", &mut self.validation_percent),
            ("licence", &mut self.licence),
        ] {
            if value.trim().is_empty() {
                *value = spec[field].as_str().map_or_else(|| spec[field].to_string(), str::to_owned);
            }
        }
        let usual = Self::usual(String::new());
        for (value, usual) in [
            (&mut self.resize, usual.resize),
            (&mut self.test_percent, usual.test_percent),
            (&mut self.seed, usual.seed),
            (&mut self.min_per_class, usual.min_per_class),
            (&mut self.cpus, usual.cpus),
        ] {
            if value.trim().is_empty() {
                *value = usual;
            }
        }
        self
    }

    pub fn kind(&self) -> &str {
        match self.source.as_str() {
            "masks" => "segmentation",
            "coco" | "yolo" | "cvat" if self.chosen_kind == "segmentation" => "segmentation",
            "kitti" | "voc" | "coco" | "yolo" | "cvat" => "detection",
            "generated" | "labelstudio" => &self.chosen_kind,
            _ => "classification",
        }
    }

    /// The fields that belong to the source.
    pub fn source_fields(&self) -> Vec<(&'static str, &str)> {
        let mut fields: Vec<(&'static str, &str)> = NewDatasetPage::paths()
            .into_iter()
            .zip(&self.paths)
            .filter(|((_, _, sources, _), _)| sources.split(' ').any(|source| source == self.source))
            .map(|((name, ..), value)| (if name == "set_directory" { "directory" } else { name }, value.as_str()))
            .collect();
        match self.source.as_str() {
            "list" | "idx" => fields.push(("classes", &self.classes)),
            "standard" => fields.push(("set", &self.set)),
            "generated" => fields.push(("count", &self.count)),
            "coco" if self.crowds == "keep" => fields.push(("crowds", &self.crowds)),
            _ => {}
        }
        fields
    }
}

/// `/datasets/{id}`
#[derive(Debug, Template)]
#[template(path = "datasets/show.html")]
pub struct DatasetPage {
    pub layout: Layout,
    pub row: DatasetRow,
    pub directory: String,
    pub files_href: String,
    pub detail: String,
    pub notes: String,
    pub visibility: &'static str,
    /// Which builds it or has built it; for its owner alone.
    pub job: Option<JobId>,
    /// While it is built: done, of how many, and in words.
    pub progress: Option<(u64, u64, String)>,
    /// Why its directory cannot be shown.
    pub unreachable: Option<String>,
    pub inside: Option<DatasetInside>,
}

/// What is in a dataset.
#[derive(Clone, Debug)]
pub struct DatasetInside {
    pub counts: Counts,
    pub seed: u32,
    pub image: Image,
    pub licence: String,
    pub manifest_sha256: String,
    pub means: Vec<String>,
    pub deviations: Vec<String>,
    pub mean_href: Option<String>,
    pub bars: Vec<ClassBar>,
    /// How many classes are not drawn.
    pub bars_rest: usize,
    pub sides: Vec<SideBar>,
    /// For the choice of one.
    pub classes: Vec<String>,
    pub filter: ItemFilter,
    pub total: usize,
    pub cards: Vec<ItemCard>,
    pub next_href: Option<String>,
    pub broken_href: String,
    pub has_pictures: bool,
}

impl DatasetInside {
    pub fn is_split(&self, value: &str) -> bool {
        self.filter.split == value
    }

    pub fn is_label(&self, value: &str) -> bool {
        self.filter.label == value
    }

    pub fn unused(&self) -> u64 {
        self.counts.broken + self.counts.duplicate + self.counts.left_out
    }
}

/// A class in the three splits. Widths are of a hundred.
#[derive(Clone, Debug)]
pub struct ClassBar {
    pub name: String,
    pub href: String,
    pub counts: [u64; 3],
    pub widths: [u64; 3],
}

impl ClassBar {
    pub fn new(name: String, href: String, counts: [u64; 3], most: u64) -> Self {
        Self { name, href, counts, widths: counts.map(|count| (count * 100).checked_div(most).unwrap_or_default()) }
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Where the parts begin.
    pub fn starts(&self) -> [u64; 3] {
        [0, self.widths[0], self.widths[0] + self.widths[1]]
    }
}

/// How many originals are about so long.
#[derive(Clone, Debug)]
pub struct SideBar {
    pub side: u32,
    pub count: usize,
    pub width: usize,
}

impl SideBar {
    pub fn new(side: u32, count: usize, most: usize) -> Self {
        Self { side, count, width: (count * 100).checked_div(most).unwrap_or_default() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ItemFilter {
    pub label: String,
    pub split: String,
    pub search: String,
    pub sort: &'static str,
    pub descending: bool,
}

/// A picture of the gallery.
#[derive(Clone, Debug)]
pub struct ItemCard {
    pub path: String,
    /// Its class, or what is wrong with it.
    pub caption: String,
    pub is_broken: bool,
    pub split: &'static str,
    pub size: String,
    /// The picture small and as it is kept; nothing where there is none.
    pub thumb: Option<(String, String)>,
    pub mask: Option<String>,
    /// Of the resized picture.
    pub width: u32,
    pub height: u32,
    /// Its boxes, each with the number of its colour.
    pub boxes: Vec<DrawnBox>,
}

#[derive(Clone, Debug)]
pub struct DrawnBox {
    pub class: String,
    pub colour: usize,
    pub x: f32,
    pub y: f32,
    pub width: f32,
    pub height: f32,
}

impl ItemCard {
    pub fn new(dataset: DatasetId, item: ItemView, has_pictures: bool, document: &Document, version: &str) -> Self {
        let base = format!("/api/v1/datasets/{dataset}/items/{}", item.row);
        let drawn = has_pictures && item.split.is_some();
        let has_mask = drawn && document.kind == crate::datasets::build::spec::Kind::Segmentation;
        let colour = |class: &str| document.classes.iter().position(|name| name == class).unwrap_or_default() % 10;
        let boxes = item.boxes.into_iter().map(|one| DrawnBox {
            colour: colour(&one.class),
            class: one.class,
            x: one.x,
            y: one.y,
            width: one.width,
            height: one.height,
        });
        let size = if item.width > 0 { format!("{} × {}", item.width, item.height) } else { String::new() };
        Self {
            caption: item.error.clone().or(item.label).unwrap_or_default(),
            is_broken: item.error.is_some(),
            path: item.path,
            split: item.split.unwrap_or_default(),
            size,
            thumb: drawn.then(|| (format!("{base}/picture?v={version}"), format!("{base}/picture?full=true"))),
            mask: has_mask.then(|| format!("{base}/mask?v={version}")),
            width: document.image.width,
            height: document.image.height,
            boxes: boxes.collect(),
        }
    }
}
