//! Datasets, filled: the list, the form refused, one that is there with boxes, masks and what
//! could not be used, one that is being built and one that failed.

use lyceum::{
    datasets::build::{
        document::{Counts, Image},
        inspect::{ClassCount, Inspection},
        spec::Resize,
    },
    model::{DatasetState, JobId},
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

const ID: &str = "01920000-0000-7000-8000-000000000001";

fn row(word: &Word, name: &str, state: DatasetState, owner: Option<&str>) -> DatasetRow {
    DatasetRow {
        id: ID.to_owned(),
        name: word(name),
        kind: "detection".to_owned(),
        source: "coco".to_owned(),
        owner: owner.map(word),
        state,
        job_href: None,
        pictures: 12_400,
        broken: 31,
        classes: 12,
        created: Moment::ago(NOW.plus_seconds(-3600), NOW),
    }
}

pub fn list(word: &Word) -> DatasetsPage {
    use DatasetState::{Building, Cancelled, Failed, Ready};
    let rows = [("Street scenes, summer", Ready), ("fashion-mnist", Building), ("x-rays", Failed), ("try", Cancelled)];
    DatasetsPage {
        layout: layout(word).at(Nav::Datasets),
        notice: Some("The dataset was removed.".to_owned()),
        search: word("s"),
        rows: rows.map(|(name, state)| row(word, name, state, (state == Ready).then_some("grace"))).into(),
        frame: frame(),
    }
}

fn frame() -> ListFrame {
    let columns = [
        ("kind", "Kind"),
        ("images", "Images"),
        ("classes", "Classes"),
        ("broken", "Not used"),
        ("created", "Created"),
    ];
    super::frame("datasets", &["name", "images", "classes", "created"], &columns)
}

pub fn empty(word: &Word) -> DatasetsPage {
    DatasetsPage {
        notice: None,
        search: String::new(),
        rows: Vec::new(),
        frame: ListFrame { next_href: None, ..frame() },
        ..list(word)
    }
}

pub fn new(word: &Word) -> NewDatasetPage {
    let form = DatasetForm { name: word("pictures"), directory: word(""), ..DatasetForm::usual("key".to_owned()) };
    NewDatasetPage {
        layout: layout(word).at(Nav::Datasets),
        form,
        groups: vec![word("vision"), word("speech")],
        errors: Vec::new(),
        preview: None,
        is_preview: false,
    }
}

pub fn previewed(word: &Word) -> NewDatasetPage {
    let class = |name: &str, count| ClassCount { name: word(name), count };
    let preview = Inspection {
        kind: "classification".to_owned(),
        source: "folder".to_owned(),
        layout: word("splits train/, val/ with class folders in them"),
        images: 1234,
        splits: [("train".to_owned(), 1000), ("val".to_owned(), 200)].into(),
        class_count: 2,
        classes: vec![class("cat", 600), class("dog", 600)],
        broken: 1,
        left_out: 33,
        boxes_dropped: 0,
        note_count: 1,
        notes: vec![word("test/1.png: in the split test/, but not in the folder of a class")],
    };
    NewDatasetPage { preview: Some(preview), ..new(word) }
}

pub fn wrong(word: &Word) -> NewDatasetPage {
    let fault = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    let errors = vec![
        fault("name", "Give it a name."),
        fault("spec.source.path", "File or folder not found."),
        fault("spec.width", "From 1 to 4096 pixels."),
    ];
    NewDatasetPage { errors, ..new(word) }
}

fn page(word: &Word, state: DatasetState) -> DatasetPage {
    DatasetPage {
        job: Some(JobId::new()),
        layout: layout(word).at(Nav::Datasets),
        row: row(word, "Street scenes, summer", state, None),
        directory: word("/home/ada/datasets/street-scenes"),
        files_href: "/files?path=%2Fhome".to_owned(),
        detail: String::new(),
        notes: word("Taken in July.\nTwo cameras."),
        visibility: "group",
        progress: None,
        unreachable: None,
        inside: None,
    }
}

pub fn building(word: &Word) -> DatasetPage {
    let told = "read 3300 of 12431 (26 %), 31 broken, 410 images/s, 0:22 min left";
    DatasetPage { progress: Some((3300, 12_431, told.to_owned())), ..page(word, DatasetState::Building) }
}

pub fn failed(word: &Word) -> DatasetPage {
    let detail = word("/home/ada/pictures: only the class cat has enough usable images");
    DatasetPage {
        detail,
        unreachable: Some(word("Your account has no access to this folder.")),
        ..page(word, DatasetState::Failed)
    }
}

pub fn show(word: &Word) -> DatasetPage {
    let classes = ["car", "person", "bicycle", "traffic light with a long name", "dog"];
    let bars = classes.iter().zip([5200, 3100, 1400, 800, 60]).map(|(name, count)| {
        ClassBar::new(word(name), "/datasets".to_owned(), [count * 7 / 10, count / 5, count / 10], 5200)
    });
    let card = |(n, name): (u32, &str)| ItemCard {
        path: word(&format!("camera {n}/{name} 000{n}.jpg")),
        caption: word(if n == 3 { "the JPEG is truncated" } else { "" }),
        is_broken: n == 3,
        split: if n == 3 { "" } else { "train" },
        size: "1920 × 1080".to_owned(),
        thumb: (n != 3).then(|| ("/static/favicon.svg".to_owned(), "/static/favicon.svg".to_owned())),
        mask: None,
        width: 128,
        height: 96,
        boxes: vec![
            DrawnBox { class: word("car"), colour: 0, x: 10.0, y: 20.5, width: 60.0, height: 40.0 },
            DrawnBox { class: word("dog"), colour: 4, x: 80.0, y: 30.0, width: 30.0, height: 50.0 },
        ],
    };
    let inside = DatasetInside {
        counts: Counts {
            train: 8680,
            val: 2480,
            test: 1240,
            broken: 21,
            duplicate: 10,
            left_out: 0,
            notes: 3,
            broken_boxes: 2,
        },
        seed: 42,
        image: Image { width: 128, height: 96, channels: 3, resize: Resize::Fill },
        licence: word("CC BY 4.0"),
        manifest_sha256: "434d5bc0c0c5e18d7d352de75131d17e6772dc9aa7edd920d52508b198f8f920".to_owned(),
        means: ["119.7", "122.4", "124.4"].map(str::to_owned).into(),
        deviations: ["72.5", "70.8", "73.4"].map(str::to_owned).into(),
        mean_href: Some("/static/favicon.svg".to_owned()),
        bars: bars.collect(),
        bars_rest: 7,
        sides: vec![SideBar::new(1024, 400, 12_000), SideBar::new(2048, 12_000, 12_000)],
        classes: classes.iter().map(|name| word(name)).collect(),
        filter: ItemFilter {
            label: String::new(),
            split: "train".to_owned(),
            search: word("camera"),
            sort: "size",
            descending: true,
        },
        total: 8680,
        cards: (0..).zip(["left", "right", "front", "back", "above", "below"]).map(card).collect(),
        next_href: Some("/datasets/x?cursor=y#pictures".to_owned()),
        broken_href: "/datasets/x?split=none#pictures".to_owned(),
        has_pictures: true,
    };
    DatasetPage { inside: Some(inside), ..page(word, DatasetState::Ready) }
}
