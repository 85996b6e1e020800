//! What administrators add, as the service has it: rows beside the configuration file, and a build that ends when its
//! environment is removed or changed.

use std::{sync::Arc, time::Duration};

use lyceum::{
    db::{Db, audit::ChangedBy},
    environments::{Config, EnvironmentPaths, Environments, Error, NewEnvironment, Origin, Recipe, State},
    model::{Clock, Loops, Timestamp},
};

use super::world::{Index, World, is_alive};
use crate::wait::eventually;

const BY: ChangedBy<'_> = ChangedBy { actor: "chief", at: Timestamp(1_000) };

fn new(name: &str, packages: &[&str]) -> NewEnvironment {
    // The index of these tests has no version that is asked for by itself.
    let packages = packages.iter().chain(&["jupyterlab"]).map(|&one| one.to_owned()).collect();
    NewEnvironment { name: name.to_owned(), packages, ..NewEnvironment::default() }
}

/// Environments that build nothing by themselves but what administrators add.
fn environments(world: &World, more: &str, variables: Vec<(String, String)>) -> Environments {
    let text = format!("{more}\n[[list]]\nname = 'default'\npython = '/usr/bin/python3'\n");
    let config: Config = toml::from_str(&text).unwrap();
    let (shared, cache) = (world.path("shared"), world.path("cache"));
    let variables = [vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())], variables].concat();
    let place = EnvironmentPaths { shared, cache, everybody: false, variables, cuda: None };
    Environments::new(config, place, Recipe::default(), Clock::System)
}

async fn database(world: &World) -> Db {
    Db::open(&lyceum::db::Config::default(), &world.path("cache")).await.unwrap()
}

#[tokio::test]
async fn a_build_ends_with_its_environment() {
    let world = World::new();
    let index = Index::start(&world.wheels(&["ly_one", "ly_two", "jupyterlab", "ipykernel", "tensorboard"], 0));
    let (all, db) = (environments(&world, "", vec![index.variable()]), database(&world).await);
    let maintained = all.clone();
    let maintains = tokio::spawn(async move { maintained.maintain(&Loops::default()).await });
    index.hold("ly-two");
    all.add(&db, new("slow", &["ly-two"]), BY).await.unwrap();
    let index = Arc::new(index);
    let waiting = index.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for("/simple/ly-two/")).await.unwrap();
    let tool = world.tool().expect("pip waits for the index");

    // Other packages: the build begins anew without waiting for the first.
    all.change_added(&db, new("slow", &["ly-one"]), BY).await.unwrap();
    let ready = eventually("it is built from the other packages", async || {
        let found = all.find("slow").unwrap();
        assert!(!matches!(found.state, State::Failed { .. }), "{found:?}");
        matches!(found.state, State::Ready { .. }).then_some(())
    });
    ready.await;
    assert!(!is_alive(tool), "the first build was ended");

    all.add(&db, new("gone", &["ly-two"]), BY).await.unwrap();
    let asked = index.asked("/simple/ly-two/");
    eventually("the index is asked again", async || (asked < index.asked("/simple/ly-two/")).then_some(())).await;
    let tool = world.tool().expect("pip waits again");
    tokio::time::timeout(Duration::from_mins(1), all.remove(&db, "gone", BY)).await.unwrap().unwrap();
    assert!(all.find("gone").is_none() && !is_alive(tool));
    let left: Vec<_> = world.built().into_iter().filter(|path| path.to_string_lossy().contains("/gone-")).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
    index.release();

    // Removed and added again at once, ten times: what was asked for last is there.
    for _ in 0..10 {
        let (removed, added) =
            tokio::join!(all.remove(&db, "slow", BY), all.add(&db, new("slow", &["ly-one", "ly-two"]), BY));
        removed.unwrap();
        let is_there = all.find("slow").is_some();
        assert_eq!((is_there, db.environments().await.unwrap().len()), (true, 1), "{added:?}");
    }
    // A new title does not undo what the build reports at the same time.
    eventually("it is built again", async || {
        for title in ["One", "Two"] {
            let titled = NewEnvironment { title: title.to_owned(), ..new("slow", &["ly-one", "ly-two"]) };
            all.change_added(&db, titled, BY).await.unwrap();
        }
        let found = all.find("slow").unwrap();
        matches!(found.state, State::Ready { .. }).then_some(())
    })
    .await;
    maintains.abort();
}

#[tokio::test]
async fn the_configuration_file_comes_first() {
    let world = World::new();
    let db = database(&world).await;
    let all = environments(&world, "", Vec::new());
    all.add(&db, new("torch", &["torch"]), BY).await.unwrap();
    all.add(&db, new("rest", &["six"]), BY).await.unwrap();
    let origins = |all: &Environments| {
        all.list().into_iter().map(|one| (one.name, one.origin)).collect::<Vec<(String, Origin)>>()
    };
    let added = |packages: &[&str]| Origin::Added {
        packages: packages.iter().chain(&["jupyterlab"]).map(|&one| one.to_owned()).collect(),
        by: "chief".to_owned(),
    };

    // Later the file has one of the names.
    let all = environments(&world, "[[list]]\nname = 'torch'\npython = '/usr/bin/python3'", Vec::new());
    all.load(&db).await.unwrap();
    let expected = [("torch", Origin::File), ("default", Origin::File), ("rest", added(&["six"]))];
    assert_eq!(origins(&all), expected.map(|(name, origin)| (name.to_owned(), origin)));
    for name in ["torch", "default"] {
        let refused = all.remove(&db, name, BY).await.unwrap_err().to_string();
        assert!(refused.contains("in the configuration file"), "{refused}");
        let refused = all.change_added(&db, new(name, &["six"]), BY).await.unwrap_err();
        assert!(matches!(refused, Error::Conflict(_)), "{refused:?}");
        let refused = all.add(&db, new(name, &["six"]), BY).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(faults) if faults[0].code == "taken"), "{refused:?}");
    }
    assert!(matches!(all.remove(&db, "nothing", BY).await, Err(Error::NotFound)));

    let never = environments(&world, "build = 'never'", Vec::new());
    never.load(&db).await.unwrap();
    let refused = never.add(&db, new("more", &["six"]), BY).await.unwrap_err().to_string();
    assert!(refused.contains("environments.build = \"never\""), "{refused}");
    never.remove(&db, "rest", BY).await.unwrap();
    assert_eq!(db.environments().await.unwrap().len(), 1, "that of the file's name stays");
}
