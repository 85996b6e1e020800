//! Segmentation: pictures in one folder, masks of the same names in another, and what the masks'
//! colours mean. Both folders may be inside or around those of the splits.

use std::{collections::HashMap, path::Path};

use super::super::{
    Error,
    catalogue::Catalogue,
    colours::Colours,
    division,
    spec::Division,
    store,
    tree::{Found, Tree},
};

/// What the folders are called where nothing is said: the usual names, VOC's, and those of other programs.
const USUAL: [(&str, &str); 8] = [
    ("images", "masks"),
    ("images", "labels"),
    ("images", "annotations"),
    ("image", "mask"),
    ("imgs", "masks"),
    ("img", "mask"),
    ("img_dir", "ann_dir"),
    ("JPEGImages", "SegmentationClass"),
];

pub fn read(
    path: &Path,
    images: &str,
    masks: &str,
    colours: Option<&Path>,
    division: &Division,
) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let mut notes = Vec::new();
    let items = tree.items();
    let mut stems: HashMap<String, &str> = HashMap::new();
    for item in &items {
        stems.insert(stem(&item.path).to_owned(), item.path.as_str());
    }
    let mask = |path: &str, (images, masks): (&str, &str)| -> Option<String> {
        super::replaced(path, images, masks).find_map(|moved| {
            let name = stem(&moved);
            let ends = ["", "_mask", "_seg", "_L", "_label", "_labelIds", "-mask"];
            ends.iter().find_map(|end| stems.get(&format!("{name}{end}"))).map(|path| (*path).to_owned())
        })
    };
    let is_usual = (images, masks) == USUAL[0];
    let mut pairs = std::iter::once((images, masks)).chain(USUAL.into_iter().filter(|_| is_usual));
    let Some(pair) = pairs.find(|pair| items.iter().any(|item| mask(&item.path, *pair).is_some())) else {
        return Err(tree.wrong(format!("no image in {images}/ has a mask of the same name in {masks}/")));
    };
    let mut items: Vec<_> =
        tree.items().into_iter().filter(|item| super::replaced(&item.path, pair.0, pair.1).next().is_some()).collect();
    for item in &mut items {
        match mask(&item.path, pair) {
            Some(path) => {
                let (fault, stamp) = tree.file(&path).map_or((None, (0, 0)), |file| (file.fault.clone(), file.stamp));
                item.mask = Some(path);
                item.fault = item.fault.take().or(fault);
                // A changed mask is a changed picture.
                item.stamp = (item.stamp.0 + stamp.0, item.stamp.1.wrapping_mul(31).wrapping_add(stamp.1));
            }
            None if item.fault.is_none() => item.fault = Some(format!("no mask in {}/", pair.1.trim_matches('/'))),
            None => {}
        }
    }
    let layout = division::divide(&tree, division, &mut items, &mut notes)?;
    let layout = format!("{}/ and {}/; {layout}", pair.0.trim_matches('/'), pair.1.trim_matches('/'));
    let colours = match colours {
        // CVAT says what the colours mean beside the masks that it paints.
        None => {
            match tree.others("txt").find(|path| path.ends_with("labelmap.txt") && path.matches('/').count() <= 1) {
                Some(path) => {
                    let found = Colours::parse(&tree.text(path)?);
                    Some(found.map_err(|reason| Error::Source { path: path.into(), reason })?)
                }
                None => None,
            }
        }
        Some(name) if name.as_os_str() == "voc" => Some(Colours::voc()),
        Some(path) => {
            let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
            tree.mark(&path.to_string_lossy());
            Some(Colours::parse(&tree.store.text(path)?).map_err(wrong)?)
        }
    };
    let classes = colours.as_ref().map(|colours| colours.names.clone()).unwrap_or_default();
    Ok(tree.finish(Found { items, classes, notes, layout, colours, regions: None }))
}

fn stem(path: &str) -> &str {
    if store::is_picture(path) { path.rsplit_once('.').map_or(path, |(stem, _)| stem) } else { path }
}
