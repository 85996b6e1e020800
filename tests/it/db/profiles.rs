//! Named sizes that administrators added: kept in order, changed and removed.

use lyceum::{
    db::{Error, profiles::ProfileRow},
    model::{Resources, size::GIB},
};

use super::{NOTED, START, on_both};

pub fn row(name: &str, position: i64) -> ProfileRow {
    ProfileRow {
        name: name.to_owned(),
        title: format!("Title of {name}"),
        resources: Resources { gpus: 1, gpu_model: Some("A100".to_owned()), cpus: 8, memory_bytes: 48 * GIB },
        duration_seconds: 28_800,
        groups: vec!["vision".to_owned()],
        position,
        added_by: "chief".to_owned(),
        added_at: START,
    }
}

#[tokio::test]
async fn profiles_are_added_changed_and_removed() {
    on_both(async |house| {
        let db = &house.db;
        assert_eq!(db.profiles().await.unwrap(), []);
        for (name, position) in [("b", 20), ("a", 20), ("c", 10)] {
            db.add_profile(&row(name, position), &NOTED).await.unwrap();
        }
        assert!(matches!(db.add_profile(&row("a", 30), &NOTED).await, Err(Error::Unique)));
        assert_eq!(db.profiles().await.unwrap(), [row("c", 10), row("a", 20), row("b", 20)]);
        let resources = Resources { gpus: 0, gpu_model: None, cpus: 1, memory_bytes: GIB };
        let changed = ProfileRow { resources, duration_seconds: 60, groups: Vec::new(), ..row("c", 30) };
        let by_others = ProfileRow { added_by: "somebody".to_owned(), ..changed.clone() };
        assert!(db.change_profile(&by_others, &NOTED).await.unwrap());
        assert!(!db.change_profile(&row("d", 1), &NOTED).await.unwrap());
        assert_eq!(db.profiles().await.unwrap(), [row("a", 20), row("b", 20), changed.clone()]);
        assert!(!db.remove_profile("d", &NOTED).await.unwrap());
        assert!(db.remove_profile("a", &NOTED).await.unwrap() && db.remove_profile("b", &NOTED).await.unwrap());
        assert_eq!(db.profiles().await.unwrap(), [changed]);
    })
    .await;
}
