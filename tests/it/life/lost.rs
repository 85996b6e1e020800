//! A database that is gone or empty beside the keys of an earlier start is lost, not new: the
//! portal does not begin again on it unless it is told to, and nothing is written meanwhile.

use std::{fs, path::Path};

use lyceum::db::{Config, Db, Error};

use super::House;

/// What `lyceum serve` says that ends at once.
fn refusal(house: &House) -> String {
    let (served, said) = house.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(!served, "{said}");
    said
}

#[tokio::test]
async fn a_lost_database_is_not_taken_for_a_new_one() {
    if !crate::needs::root() {
        return;
    }
    let mut house = House::of_somebody(&[]);
    house.start().await;
    let person = house.person();
    let copy = house.data().join("copy.db");
    let (copied, said) = house.run(&["admin", "backup", copy.to_str().unwrap()]);
    assert!(copied, "{said}");
    house.terminate().await;
    let private = house.paths().private;
    let database = private.join("lyceum.db");
    let password = fs::read(private.join("first-password")).unwrap();

    fs::write(&database, "").unwrap();
    let said = refusal(&house);
    for words in ["is empty", "started before", "keys/portal", "lyceum admin restore", "--start-empty"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(fs::metadata(&database).unwrap().len(), 0, "it is as it was");
    let (fine, said) = house.run(&["check"]);
    assert!(!fine && said.contains("is empty, but this portal has been started before"), "{said}");
    let (added, said) = house.run(&["admin", "user", "add", "somebody"]);
    assert!(!added && said.contains("is empty"), "{said}");

    fs::remove_file(&database).unwrap();
    let said = refusal(&house);
    assert!(said.contains("is missing") && !database.exists(), "{said}");
    assert_eq!(fs::read(private.join("first-password")).unwrap(), password, "nobody got another");

    let (restored, said) = house.run(&["admin", "restore", copy.to_str().unwrap()]);
    assert!(restored, "{said}");
    house.start().await;
    assert_eq!(person.get(&house, "/me").await["name"], person.name);
    house.terminate().await;

    fs::remove_file(&database).unwrap();
    let mut command = house.command(&["admin", "migrate"]);
    assert!(!command.output().unwrap().status.success());
    house.start_empty().await;
    assert_eq!(person.ask(&house, "GET", "/me", &serde_json::Value::Null).await.0, 401, "it knows nobody");
    // From then on it is a portal like any other.
    house.restart().await;
}

async fn open(private: &Path, sign: &Path) -> Result<Db, Error> {
    Db::open_known(&Config::default(), private, sign).await
}

#[tokio::test]
async fn tables_without_accounts_and_changes_without_a_database_are_lost_too() {
    let directory = tempfile::tempdir().unwrap();
    let (private, sign) = (directory.path(), directory.path().join("key"));
    // A first start that was cut off has left no key.
    open(private, &sign).await.unwrap().close().await;
    open(private, &sign).await.unwrap().close().await;
    fs::write(&sign, "x").unwrap();
    let err = open(private, &sign).await.unwrap_err();
    assert!(matches!(&err, Error::Lost { state: "empty", .. }), "{err:?}");

    let other = tempfile::tempdir().unwrap();
    let [file, changes] = ["lyceum.db", "lyceum.db-wal"].map(|name| other.path().join(name));
    fs::write(&changes, "changes").unwrap();
    let err = Db::open(&Config::default(), other.path()).await.unwrap_err();
    assert!(err.to_string().contains("lyceum.db-wal exists"), "{err}");
    assert!(changes.exists() && !file.exists(), "they may be all that is left");
}
