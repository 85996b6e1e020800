//! Sources whose pictures have numbers instead of names: the files of MNIST and its relatives,
//! and the shapes that Lyceum draws itself.

use std::path::{Path, PathBuf};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, Pictures, Split},
    idx::Idx,
    shapes::{self, Shapes},
    spec::{Kind, Spec},
    standard::{Layout, Publication},
};

/// A picture with its path, label and split.
type Labelled = (String, u32, Option<Split>);

/// The pictures and labels of an IDX pair, and of the one to test with.
pub fn read(
    train: (&Path, &Path),
    test: Option<(&Path, &Path)>,
    classes: Option<&Path>,
    work: Option<&Path>,
) -> Result<Catalogue, Error> {
    let mut idx = begin(work)?;
    let labels = pairs(&mut idx, train, test)?;
    let most = labels.iter().map(|(_, label, _)| label + 1).max().unwrap_or_default();
    let names = match classes {
        Some(path) => super::class_names(path)?,
        None => (0..most).map(|class| class.to_string()).collect(),
    };
    Ok(catalogue(idx, labels, names))
}

/// The files of a published set, in its order.
pub fn published(set: &Publication<'_>, paths: &[PathBuf], work: Option<&Path>) -> Result<Catalogue, Error> {
    let mut idx = begin(work)?;
    let labels = match (set.layout, paths) {
        (Layout::Idx, [images, labels, test_images, test_labels]) => {
            pairs(&mut idx, (images, labels), Some((test_images, test_labels)))?
        }
        (Layout::Cifar, [archive]) => {
            let labelled =
                |(path, label, is_test): (String, u8, bool)| (path, u32::from(label), is_test.then_some(Split::Test));
            idx.append_cifar(archive)?.into_iter().map(labelled).collect()
        }
        _ => return Err(Error::Nothing(format!("{} files are not those of {}", paths.len(), set.title))),
    };
    Ok(catalogue(idx, labels, set.classes.iter().map(|(name, _)| (*name).to_owned()).collect()))
}

fn begin(work: Option<&Path>) -> Result<Idx, Error> {
    let work =
        work.ok_or_else(|| Error::Nothing("images of this format are unpacked while they are read".to_owned()))?;
    Idx::new(work)
}

/// The labels of an IDX pair, and of the one to test with.
fn pairs(idx: &mut Idx, train: (&Path, &Path), test: Option<(&Path, &Path)>) -> Result<Vec<Labelled>, Error> {
    let mut labels = Vec::new();
    for ((images, names), split) in
        [(Some(train), None), (test, Some(Split::Test))].into_iter().filter_map(|(pair, split)| Some((pair?, split)))
    {
        let prefix = if split.is_some() { "test" } else { "train" };
        let found = idx.append(images, names)?;
        labels.extend((0_usize..).zip(found).map(|(n, label)| (format!("{prefix}-{n:08}"), label.into(), split)));
    }
    Ok(labels)
}

/// Labels in the order of their pictures.
fn catalogue(idx: Idx, labels: Vec<Labelled>, names: Vec<String>) -> Catalogue {
    let unknown = |label: u32| {
        (label as usize >= names.len())
            .then(|| format!("its label is {label}, but there are only {} classes", names.len()))
    };
    let items = (0..).zip(labels).map(|(number, (path, label, split))| Item {
        path,
        number,
        fault: unknown(label),
        label: Some(label),
        split,
        ..Item::default()
    });
    let items = items.collect();
    Catalogue::new(Pictures::Idx(idx), items, names, Vec::new())
}

/// Shapes to try everything with, at the size of the dataset.
pub fn shapes(spec: &Spec, count: u32) -> Catalogue {
    let shapes = Shapes { seed: spec.seed, kind: spec.kind, width: spec.width, height: spec.height };
    let items = (0..u64::from(count)).map(|number| {
        let scene = shapes.scene(number);
        let boxes = if spec.kind == Kind::Detection { scene.boxes() } else { Vec::new() };
        let label = (spec.kind == Kind::Classification).then(|| scene.label());
        let mask = (spec.kind == Kind::Segmentation).then(String::new);
        Item { path: format!("{number:08}"), number, label, boxes, mask, ..Item::default() }
    });
    let classes = shapes::classes(spec.kind);
    let items = items.collect();
    Catalogue::new(Pictures::Shapes(shapes), items, classes, Vec::new())
}
