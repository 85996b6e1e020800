//! Making room: layers before images, the least recently used first, and never what is in use.

use std::{
    collections::HashSet,
    fs::{self, File},
    time::{Duration, SystemTime},
};

use lyceum_images::{Collection, Image, Import, Item, Settings, Store};

use super::{
    content::{Layer, image, noise},
    faulty::{End, Served, beginning},
    real::store,
    wait::eventually,
};

async fn import(store: &Store, seed: u64) -> Image {
    let layout = super::real::directory();
    image(&[Layer::new().file("noise", &noise(seed, 1 << 20)).gzip()]).write_layout(layout.path(), "1");
    (*store.import(Import::new(layout.path(), format!("image {seed}"))).wait().await.unwrap()).clone()
}

fn images(store: &Store) -> HashSet<String> {
    store.images().unwrap().into_iter().map(|image| image.name).collect()
}

#[tokio::test]
async fn the_least_recently_used_goes_first() {
    let (_directory, store) = store(Settings::default());
    let mut all = Vec::new();
    for seed in 1..=4 {
        all.push(import(&store, seed).await);
    }
    // Image 1 was used last, image 2 longest ago.
    for (image, age) in all.iter().zip([1, 4, 3, 2]) {
        let used = File::options().write(true).open(image.root().with_file_name("used")).unwrap();
        used.set_modified(SystemTime::now() - Duration::from_hours(age)).unwrap();
    }
    store.touch(&all[0]).unwrap();
    assert!(all[0].last_use().unwrap() > all[3].last_use().unwrap());
    let collect = |budget: u64, in_use: &[usize], dry_run: bool| {
        let in_use = in_use.iter().map(|at| all[*at].digest).collect();
        store.collect(&Collection { budget, in_use, dry_run }).unwrap()
    };
    let whole = collect(u64::MAX, &[], false);
    assert!(whole.removed.is_empty() && whole.bytes > 8 << 20, "four images and their layers: {}", whole.bytes);
    // Layers go before any image.
    let planned = collect(5 << 20, &[], true);
    assert_eq!(planned.removed.len(), 4);
    assert!(planned.removed.iter().all(|(item, _)| matches!(item, Item::Layer(_))), "{planned:?}");
    assert_eq!(collect(u64::MAX, &[], false).bytes, whole.bytes, "a dry run removes nothing");
    assert_eq!(collect(5 << 20, &[], false).bytes, planned.bytes);
    // Then images by their last use, except those in use.
    let collected = collect(5 << 19, &[1], false);
    let removed: Vec<&str> = collected
        .removed
        .iter()
        .map(|(item, _)| if let Item::Image(image) = item { image.name.as_str() } else { panic!("{item:?}") })
        .collect();
    assert_eq!(removed, ["image 3", "image 4"]);
    assert_eq!(images(&store), HashSet::from(["image 1".to_owned(), "image 2".to_owned()]));
    let collected = collect(0, &[0, 1], false);
    assert!(collected.removed.is_empty() && collected.bytes >= 2 << 20);
    let collected = collect(0, &[], false);
    assert_eq!((collected.removed.len(), collected.bytes), (2, 0));
    assert_eq!(images(&store), HashSet::new());
    // What was removed is made again.
    assert_eq!(import(&store, 1).await.digest, all[0].digest);
}

#[tokio::test]
async fn a_running_pull_keeps_its_layers() {
    let built =
        image(&[Layer::new().file("a", &noise(1, 1 << 20)).gzip(), Layer::new().file("b", &noise(2, 1 << 20)).gzip()]);
    let (slow, half) = (built.layers[1], built.blobs[&built.layers[1]].len() / 2);
    let content = built.blobs[&slow].clone();
    let server = Served::new(&built)
        .start(move |asked, earlier| {
            (asked.path.contains(&slow.to_string()) && earlier == 0)
                .then(|| beginning(&content[..half], content.len(), End::Hang))
        })
        .await;
    let (directory, store) = store(Settings::default());
    let blobs = directory.path().join("store/blobs");
    let pull = store.pull(lyceum_images::PullRequest::new(server.reference()));
    eventually("the first layer", || (fs::read_dir(&blobs).unwrap().count() == 1).then_some(())).await;
    let collected = store.collect(&Collection::default()).unwrap();
    assert!(collected.removed.is_empty() && collected.bytes > 1 << 20);
    pull.cancel();
    pull.wait().await.unwrap_err();
    let emptied = || store.collect(&Collection::default()).unwrap().bytes == 0;
    eventually("the locks of the pull", || emptied().then_some(())).await;
    store.pull(lyceum_images::PullRequest::new(server.reference())).wait().await.unwrap();
}
