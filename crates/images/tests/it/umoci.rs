//! Layers at random, unpacked by `umoci` and by us: the roots are the same. Entries are such that both tools
//! mean the same by them; what only an attacker writes is in `hostile`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use lyceum_images::{Import, Settings};
use proptest::prelude::*;

use super::{
    content::{Layer, image, listing},
    real::{has, store},
};

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Symlink,
}

/// Writes layers whose entries fit what the layers before them made.
struct Writer {
    random: Random,
    /// What exists after the layers so far.
    tree: BTreeMap<String, Kind>,
}

impl Writer {
    fn layers(seed: u64) -> Vec<Vec<u8>> {
        let mut writer = Self { random: Random(seed | 1), tree: BTreeMap::new() };
        (0..=writer.random.below(4)).map(|_| writer.layer()).collect()
    }

    fn layer(&mut self) -> Vec<u8> {
        let mut layer = Layer::new();
        let mut touched = BTreeSet::new();
        for _ in 0..self.random.below(14) {
            let directories: Vec<String> =
                self.tree.iter().filter(|(_, kind)| **kind == Kind::Directory).map(|(name, _)| name.clone()).collect();
            let parent = match self.random.below(directories.len() + 1) {
                0 => String::new(),
                at => format!("{}/", directories[at - 1]),
            };
            let name = format!("{parent}{}", ["a", "b", "c", "d"][self.random.below(4)]);
            let below = format!("{name}/");
            // One entry a name and layer, and none that removes what the layer itself made.
            if touched.iter().any(|other: &String| *other == name || other.starts_with(&below)) {
                continue;
            }
            let existing = self.tree.get(&name).copied();
            let kind = self.random.below(6);
            if kind != 0 || existing != Some(Kind::Directory) {
                self.tree.retain(|other, _| !other.starts_with(&below));
            }
            touched.insert(name.clone());
            layer = match kind {
                0 => {
                    self.tree.insert(name.clone(), Kind::Directory);
                    layer.directory(&name)
                }
                1 | 2 => {
                    self.tree.insert(name.clone(), Kind::File);
                    let length = self.random.below(3000);
                    layer.file(&name, &super::content::noise(self.random.0, length))
                }
                3 => {
                    self.tree.insert(name.clone(), Kind::Symlink);
                    let target = ["/a", "a/b", "../c", "missing", "/../../d"][self.random.below(5)];
                    layer.symlink(&name, target)
                }
                4 => {
                    let is_file = |(other, kind): &(&String, &Kind)| **kind == Kind::File && **other != name;
                    let files: Vec<String> = self.tree.iter().filter(is_file).map(|(name, _)| name.clone()).collect();
                    if files.is_empty() {
                        self.tree.insert(name.clone(), Kind::Directory);
                        layer.directory(&name)
                    } else {
                        let target = &files[self.random.below(files.len())];
                        self.tree.insert(name.clone(), Kind::File);
                        layer.link(&name, target)
                    }
                }
                _ if existing.is_none() => {
                    touched.remove(&name);
                    layer
                }
                _ => {
                    self.tree.remove(&name);
                    layer.file(&format!("{parent}.wh.{}", name.rsplit('/').next().unwrap()), b"")
                }
            };
        }
        layer.gzip()
    }
}

/// The times of directories depend on the order of entries, and are not compared.
fn comparable(root: &Path) -> BTreeMap<String, String> {
    let mut lines = listing(root);
    for line in lines.values_mut().filter(|line| line.starts_with("directory")) {
        line.truncate(line.rfind(' ').unwrap());
    }
    lines
}

fn compare(seed: u64) {
    let directory = super::real::directory();
    let layout = directory.path().join("layout");
    image(&Writer::layers(seed)).write_layout(&layout, "1");
    let bundle = directory.path().join("bundle");
    let output = Command::new("umoci")
        .args(["unpack", "--rootless", "--image", &format!("{}:1", layout.display())])
        .arg(&bundle)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_directory, store) = store(Settings::default());
    let ours = runtime.block_on(async { store.import(Import::new(&layout, "x")).wait().await.unwrap() });
    assert_eq!(comparable(&ours.root()), comparable(&bundle.join("rootfs")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn roots_are_those_of_umoci(seed in any::<u64>()) {
        if has("umoci") {
            compare(seed);
        }
    }
}
