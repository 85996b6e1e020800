//! Datasets on both databases: what is written, who is shown which, and how a build comes to
//! its end once and no more.

use lyceum::{
    db::{Error, audit::Entry, datasets::DatasetFilter, idempotency::IdempotentRequest},
    model::{
        Dataset, DatasetId, DatasetState, DescriptionChanges, GroupName, JobId, UserId, dataset::Outcome,
        job::Visibility,
    },
};

use super::{BY, NOTED, START, add_user, number, on_both};

pub fn dataset(owner: UserId, owner_name: &str, name: &str) -> Dataset {
    Dataset {
        id: DatasetId::new(),
        owner,
        owner_name: owner_name.to_owned(),
        name: name.to_owned(),
        kind: "detection".to_owned(),
        source: "coco".to_owned(),
        directory: "/home/a/datasets/x’".to_owned(),
        state: DatasetState::Building,
        detail: String::new(),
        job: None,
        visibility: Visibility::Private,
        notes: String::new(),
        manifest_sha256: String::new(),
        pictures: 0,
        broken: 0,
        classes: 0,
        created_at: START,
        changed_at: START,
    }
}

fn ready() -> Outcome {
    Outcome::Ready { manifest_sha256: "abc".to_owned(), pictures: 3, broken: 2, classes: 1 }
}

#[tokio::test]
async fn a_dataset_comes_to_its_end_once() {
    on_both(async |house| {
        let db = &house.db;
        let a = add_user(db, "a").await;
        let new = dataset(a, "a", "Straße");
        let once = IdempotentRequest { user: a, key: "key", request_hash: "hash" };
        let rows = number(db, "SELECT COUNT(*) FROM audit").await;
        db.add_dataset(&new, r#"{"kind": 1}"#, Some(once), &NOTED).await.unwrap();
        let twice = db.add_dataset(&dataset(a, "a", "other"), "{}", Some(once), &NOTED).await;
        assert!(matches!(twice, Err(Error::Unique)));
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 1);
        assert_eq!(db.find_dataset(new.id).await.unwrap().as_ref(), Some(&new));
        assert_eq!(db.dataset_spec(new.id).await.unwrap().as_deref(), Some(r#"{"kind": 1}"#));
        assert_eq!(db.dataset_spec(DatasetId::new()).await.unwrap(), None);

        let (job, later) = (JobId::new(), START.plus_seconds(60));
        assert!(db.set_dataset_job(new.id, job, later).await.unwrap());
        assert!(!db.rebuild_dataset(new.id, later).await.unwrap(), "it is being built");
        assert!(db.settle_dataset(new.id, &Outcome::Failed("why ’".to_owned()), later).await.unwrap());
        assert!(!db.settle_dataset(new.id, &ready(), later).await.unwrap(), "somebody else did");
        assert!(!db.set_dataset_job(new.id, job, later).await.unwrap());
        let failed = db.find_dataset(new.id).await.unwrap().unwrap();
        assert_eq!((failed.state, failed.detail.as_str(), failed.job), (DatasetState::Failed, "why ’", Some(job)));
        assert!(db.rebuild_dataset(new.id, later).await.unwrap());
        assert!(db.settle_dataset(new.id, &Outcome::Cancelled, later).await.unwrap());
        assert!(db.rebuild_dataset(new.id, later).await.unwrap());
        assert!(db.settle_dataset(new.id, &ready(), later).await.unwrap());
        let there = db.find_dataset(new.id).await.unwrap().unwrap();
        assert_eq!((there.state, there.detail.as_str(), there.job), (DatasetState::Ready, "", None));
        assert_eq!((there.manifest_sha256.as_str(), there.pictures, there.broken, there.classes), ("abc", 3, 2, 1));

        let noting = DescriptionChanges { notes: Some("notes".to_owned()), ..DescriptionChanges::default() };
        assert!(db.change_dataset(new.id, &noting, later).await.unwrap());
        let changed = db.find_dataset(new.id).await.unwrap().unwrap();
        assert_eq!(
            (changed.name.as_str(), changed.notes.as_str(), changed.visibility),
            ("Straße", "notes", Visibility::Private)
        );
        assert!(!db.change_dataset(DatasetId::new(), &noting, later).await.unwrap());
        let noted = Entry { action: "dataset.remove", ..NOTED };
        assert!(db.remove_dataset(new.id, &noted).await.unwrap());
        assert!(!db.remove_dataset(new.id, &noted).await.unwrap());
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 2);
    })
    .await;
}

#[tokio::test]
async fn datasets_are_listed_for_whom_they_are_shown_to() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b, c) = (add_user(db, "a").await, add_user(db, "b").await, add_user(db, "c").await);
        let group = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        for user in [a, b] {
            db.set_member(group, user, true, BY).await.unwrap();
        }
        let of_a = ["private 50%", "for the GROUP", "for everybody"].map(|name| dataset(a, "a", name));
        for (one, visibility) in of_a.iter().zip([Visibility::Private, Visibility::Group, Visibility::Everybody]) {
            db.add_dataset(one, "{}", None, &NOTED).await.unwrap();
            let shown = DescriptionChanges { visibility: Some(visibility), ..DescriptionChanges::default() };
            assert!(db.change_dataset(one.id, &shown, START).await.unwrap());
        }
        let usual =
            |viewer| DatasetFilter { viewer, own: false, state: None, find: "", sort: None, before: None, limit: 10 };
        let list = async |filter: DatasetFilter<'_>| {
            db.list_datasets(filter).await.unwrap().into_iter().map(|(one, _)| one.id).collect::<Vec<_>>()
        };
        let [private, group, everybody] = of_a.each_ref().map(|one| one.id);
        assert_eq!(list(usual(a)).await, [everybody, group, private]);
        assert_eq!(list(usual(b)).await, [everybody, group]);
        assert_eq!(list(usual(c)).await, [everybody]);
        assert_eq!(list(DatasetFilter { own: true, ..usual(b) }).await, []);
        assert_eq!(list(DatasetFilter { find: "Group", ..usual(a) }).await, [group]);
        assert_eq!(list(DatasetFilter { find: "50%", ..usual(a) }).await, [private]);
        assert_eq!(list(DatasetFilter { before: Some(everybody), limit: 1, ..usual(a) }).await, [group]);
        assert_eq!(list(DatasetFilter { state: Some(DatasetState::Ready), ..usual(a) }).await, []);
        assert_eq!(list(DatasetFilter { state: Some(DatasetState::Building), ..usual(c) }).await, [everybody]);
        for (id, shown) in [(private, [true, false, false]), (group, [true, true, false]), (everybody, [true; 3])] {
            for (viewer, shown) in [a, b, c].into_iter().zip(shown) {
                assert_eq!(db.dataset_is_shown(id, viewer).await.unwrap(), shown);
            }
        }
    })
    .await;
}
