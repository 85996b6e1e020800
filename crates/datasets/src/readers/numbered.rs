//! Sources whose pictures have numbers instead of names: the files of MNIST and its relatives,
//! and the shapes that Lyceum draws itself.

use std::path::Path;

use super::super::{
    Error,
    catalogue::{Catalogue, Item, Pictures, Split},
    idx::Idx,
    shapes::{self, Shapes},
    spec::{Kind, Spec},
};

/// The pictures and labels of an IDX pair, and of the one to test with.
pub fn read(
    train: (&Path, &Path),
    test: Option<(&Path, &Path)>,
    classes: Option<&Path>,
    work: Option<&Path>,
) -> Result<Catalogue, Error> {
    let work =
        work.ok_or_else(|| Error::Nothing("images of this format are unpacked while they are read".to_owned()))?;
    let mut idx = Idx::new(work)?;
    let mut labels: Vec<(String, u32, Option<Split>)> = Vec::new();
    for ((images, names), split) in
        [(Some(train), None), (test, Some(Split::Test))].into_iter().filter_map(|(pair, split)| Some((pair?, split)))
    {
        let prefix = if split.is_some() { "test" } else { "train" };
        let found = idx.append(images, names)?;
        labels.extend((0_usize..).zip(found).map(|(n, label)| (format!("{prefix}-{n:08}"), label.into(), split)));
    }
    let most = labels.iter().map(|(_, label, _)| label + 1).max().unwrap_or_default();
    let names = match classes {
        Some(path) => super::class_names(path)?,
        None => (0..most).map(|class| class.to_string()).collect(),
    };
    let unknown = |label: u32| {
        (label as usize >= names.len())
            .then(|| format!("its label is {label}, but there are only {} classes", names.len()))
    };
    let items = (0..).zip(&labels).map(|(number, (path, label, split))| Item {
        path: path.clone(),
        number,
        fault: unknown(*label),
        label: Some(*label),
        split: *split,
        ..Item::default()
    });
    let items = items.collect();
    Ok(Catalogue::new(Pictures::Idx(idx), items, names, Vec::new()))
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
