//! Segmentation: pictures in one folder, masks of the same names in another, and what the masks'
//! colours mean.

use std::{collections::HashMap, path::Path};

use super::super::{
    Error,
    catalogue::{Catalogue, Pictures},
    colours::Colours,
    store::{self, Store},
};

pub fn read(path: &Path, images: &str, masks: &str, colours: Option<&Path>) -> Result<Catalogue, Error> {
    let store = Store::open(path)?;
    let colours = match colours {
        None => None,
        Some(name) if name.as_os_str() == "voc" => Some(Colours::voc()),
        Some(path) => {
            let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
            Some(Colours::parse(&store.text(path)?).map_err(wrong)?)
        }
    };
    let (images, masks) = (format!("{}/", images.trim_end_matches('/')), format!("{}/", masks.trim_end_matches('/')));
    let (mut items, mut stems) = (Vec::new(), HashMap::new());
    for item in super::pictures(&store)? {
        if let Some(name) = item.path.strip_prefix(&masks) {
            stems.insert(stem(name).to_owned(), (item.path, item.fault, item.stamp));
        } else if item.path.starts_with(&images) {
            items.push(item);
        }
    }
    for item in &mut items {
        item.split = super::split_of(&item.path);
        let name = stem(&item.path[images.len()..]);
        let mask = ["", "_mask", "_seg", "_L", "_label"].iter().find_map(|end| stems.get(&format!("{name}{end}")));
        match mask {
            Some((path, fault, stamp)) => {
                item.mask = Some(path.clone());
                item.fault = item.fault.take().or_else(|| fault.clone());
                // A changed mask is a changed picture.
                item.stamp = (item.stamp.0 + stamp.0, item.stamp.1.wrapping_mul(31).wrapping_add(stamp.1));
            }
            None if item.fault.is_none() => item.fault = Some(format!("there is no mask for it in {masks}")),
            None => {}
        }
    }
    if items.is_empty() {
        let reason = format!("there is no picture in {images}");
        return Err(Error::Source { path: path.to_owned(), reason });
    }
    let classes = colours.as_ref().map(|colours| colours.names.clone()).unwrap_or_default();
    Ok(Catalogue::new(Pictures::Files { store, colours }, items, classes, Vec::new()))
}

fn stem(path: &str) -> &str {
    if store::is_picture(path) { path.rsplit_once('.').map_or(path, |(stem, _)| stem) } else { path }
}
