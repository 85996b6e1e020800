//! Environments that administrators added: kept in order, changed, and not removed while a session asks for one.

use lyceum::db::{Error, environments::EnvironmentRow};

use super::{NOTED, START, on_both};

pub fn row(name: &str, seconds: i64) -> EnvironmentRow {
    EnvironmentRow {
        name: name.to_owned(),
        title: format!("Title of {name}"),
        packages: vec!["torch==2.9.*".to_owned(), "six".to_owned()],
        groups: vec!["vision".to_owned()],
        position: seconds,
        added_by: "chief".to_owned(),
        added_at: START.plus_seconds(seconds),
    }
}

#[tokio::test]
async fn environments_are_added_changed_and_removed() {
    on_both(async |house| {
        let db = &house.db;
        assert_eq!(db.environments().await.unwrap(), []);
        db.add_environment(&row("b", 1), &NOTED).await.unwrap();
        db.add_environment(&row("a", 2), &NOTED).await.unwrap();
        assert!(matches!(db.add_environment(&row("a", 3), &NOTED).await, Err(Error::Unique)));
        assert_eq!(db.environments().await.unwrap(), [row("b", 1), row("a", 2)]);
        let packages = vec!["six".to_owned()];
        let changed =
            EnvironmentRow { title: "New".to_owned(), packages, groups: Vec::new(), position: 5, ..row("a", 2) };
        let by_others = EnvironmentRow { added_by: "somebody".to_owned(), ..changed.clone() };
        assert!(db.change_environment(&by_others, &NOTED).await.unwrap());
        assert!(!db.change_environment(&row("c", 1), &NOTED).await.unwrap());
        assert_eq!(db.environments().await.unwrap()[1], changed);
        assert!(!db.remove_environment("c", &NOTED).await.unwrap());
        assert!(db.remove_environment("b", &NOTED).await.unwrap());
        assert_eq!(db.environments().await.unwrap(), [changed]);
    })
    .await;
}
