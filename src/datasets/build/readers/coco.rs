//! COCO's boxes: one JSON document of pictures, categories and annotations. Outlines and captions
//! are passed over while reading, so that the memory is that of the boxes.

use std::{collections::HashMap, path::Path};

use serde::Deserialize;

use super::super::{
    Error,
    catalogue::{Catalogue, Item, LabelledBox, Note, Pictures},
    store::Store,
    text,
};

#[derive(Deserialize)]
struct Document {
    images: Vec<Image>,
    #[serde(default)]
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    file_name: String,
    width: Option<u32>,
    height: Option<u32>,
}

#[derive(Deserialize)]
struct Annotation {
    image_id: i64,
    category_id: i64,
    bbox: Option<Vec<f64>>,
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
}

pub fn read(path: &Path, annotations: &Path, images: &str) -> Result<Catalogue, Error> {
    let store = Store::open(path)?;
    let wrong = |reason: String| Error::Source { path: annotations.to_owned(), reason };
    let document: Document = serde_json::from_str(&store.text(annotations)?)
        .map_err(|error| wrong(format!("it is no COCO document: {}", text::short(&error.to_string()))))?;
    let mut categories: Vec<&Category> = document.categories.iter().collect();
    categories.sort_by_key(|category| category.id);
    let index: HashMap<i64, u32> = categories.iter().map(|category| category.id).zip(0..).collect();
    let classes = categories.iter().map(|category| category.name.replace(['\n', '\r'], " ")).collect();
    let found: HashMap<String, _> = store.list()?.into_iter().map(|file| (file.path.clone(), file)).collect();

    let mut items: Vec<Item> = Vec::with_capacity(document.images.len());
    let mut places = HashMap::new();
    for image in &document.images {
        let path = if images.is_empty() { image.file_name.clone() } else { format!("{images}/{}", image.file_name) };
        let (stamp, fault) = match found.get(&path) {
            Some(file) => (file.stamp, file.fault.clone()),
            None => ((0, 0), Some("there is no such file".to_owned())),
        };
        places.insert(image.id, items.len());
        let claimed_size = image.width.zip(image.height);
        items.push(Item {
            path,
            stamp,
            fault,
            claimed_size,
            split: super::split_of(&image.file_name),
            ..Item::default()
        });
    }
    let mut notes = Vec::new();
    for annotation in document.annotations {
        let Some(&place) = places.get(&annotation.image_id) else {
            notes.push(Note::new(
                "",
                format!("a box belongs to the picture {}, which is not listed", annotation.image_id),
            ));
            continue;
        };
        let Some(bbox) = annotation.bbox else { continue };
        let class = index.get(&annotation.category_id).copied();
        let [x, y, width, height] = <[f64; 4]>::try_from(bbox).unwrap_or([f64::NAN; 4]);
        let fault = if class.is_none() {
            Some(format!("there is no category {}", annotation.category_id))
        } else if annotation.iscrowd != 0 {
            Some("it is around a crowd".to_owned())
        } else {
            None
        };
        let class = class.unwrap_or_default();
        items[place].boxes.push(LabelledBox { class, x, y, width, height, relative: false, fault });
    }
    Ok(Catalogue::new(Pictures::Files { store, colours: None }, items, classes, notes))
}
