//! Models on both databases: what is written, who is shown which, what came of which attempt,
//! and the pictures that they were asked about.

use lyceum::{
    db::{Error, audit::Entry, idempotency::IdempotentRequest, models::ModelFilter},
    model::{
        DatasetId, DescriptionChanges, GroupName, JobId, Model, ModelId, ModelTest, ModelTestId, UserId,
        job::Visibility,
        trained::{ModelState, Speed, Trained},
    },
};

use super::{BY, NOTED, START, add_user, number, on_both};

pub fn model(owner: UserId, owner_name: &str, name: &str) -> Model {
    Model {
        id: ModelId::new(),
        owner,
        owner_name: owner_name.to_owned(),
        name: name.to_owned(),
        kind: "classification".to_owned(),
        network: "lenet".to_owned(),
        directory: String::new(),
        dataset: Some(DatasetId::new()),
        job: None,
        parent: None,
        state: ModelState::Training,
        detail: String::new(),
        attempt: 0,
        metric: String::new(),
        best: None,
        snapshots: 0,
        speed: None,
        precisions_job: None,
        visibility: Visibility::Private,
        notes: String::new(),
        created_at: START,
        changed_at: START,
    }
}

pub fn test(model: ModelId, owner: UserId) -> ModelTest {
    ModelTest {
        id: ModelTestId::new(),
        model,
        owner,
        job: JobId::new(),
        snapshot: "epoch-00001.keras".to_owned(),
        picture: "/home/a/it’s.png".to_owned(),
        directory: "/home/a/runs/x".to_owned(),
        created_at: START,
    }
}

#[tokio::test]
async fn what_came_of_an_attempt_is_written_down() {
    on_both(async |house| {
        let db = &house.db;
        let a = add_user(db, "a").await;
        let new = model(a, "a", "Straße");
        let b = add_user(db, "b").await;
        let once = IdempotentRequest { user: a, key: "key", request_hash: "hash" };
        let rows = number(db, "SELECT COUNT(*) FROM audit").await;
        db.add_model(&new, r#"{"epochs": 1}"#, Some(once), &NOTED).await.unwrap();
        let twice = db.add_model(&model(a, "a", "other"), "{}", Some(once), &NOTED).await;
        assert!(matches!(twice, Err(Error::Unique)));
        assert_eq!(db.find_model(new.id).await.unwrap().as_ref(), Some(&new));
        assert_eq!(db.model_config(new.id).await.unwrap().as_deref(), Some(r#"{"epochs": 1}"#));
        assert_eq!(db.model_config(ModelId::new()).await.unwrap(), None);

        let (job, later) = (JobId::new(), START.plus_seconds(60));
        db.set_model_job(new.id, job, "/home/a/runs/x’", later).await.unwrap();
        assert_eq!(db.find_model_in("/home/a/runs/x’").await.unwrap().map(|found| found.id), Some(new.id));
        assert_eq!(db.find_model_in("/home/a/runs").await.unwrap(), None);
        let trained = Trained {
            state: ModelState::Trained,
            detail: String::new(),
            attempt: 2,
            metric: "accuracy".to_owned(),
            best: Some(0.987_654_321),
            snapshots: 3,
            speed: Some(speed(2)),
        };
        assert!(db.settle_model(new.id, &trained, later).await.unwrap());
        let earlier = Trained {
            attempt: 1,
            state: ModelState::Failed,
            detail: "why ’".to_owned(),
            best: None,
            ..trained.clone()
        };
        assert!(!db.settle_model(new.id, &earlier, later).await.unwrap(), "a later one is known");
        let found = db.find_model(new.id).await.unwrap().unwrap();
        assert_eq!((found.job, found.directory.as_str()), (Some(job), "/home/a/runs/x’"));
        assert_eq!(
            (found.state, found.attempt, found.best, found.snapshots),
            (ModelState::Trained, 2, Some(0.987_654_321), 3)
        );
        assert_eq!(found.speed, Some(speed(2)));
        assert!(db.settle_model(new.id, &Trained { attempt: 3, ..earlier }, later).await.unwrap());
        let found = db.find_model(new.id).await.unwrap().unwrap();
        assert_eq!((found.state, found.detail.as_str(), found.best), (ModelState::Failed, "why ’", None));

        let asked = [test(new.id, a), test(new.id, a)];
        for one in &asked {
            db.add_model_test(one).await.unwrap();
        }
        assert_eq!(db.find_model_test(asked[0].id, a).await.unwrap().as_ref(), Some(&asked[0]));
        assert_eq!(db.find_model_test(asked[0].id, b).await.unwrap(), None, "it is somebody else's");
        assert_eq!(db.list_model_tests(new.id, a, 10).await.unwrap(), [asked[1].clone(), asked[0].clone()]);
        assert_eq!(db.list_model_tests(new.id, b, 10).await.unwrap(), []);

        db.set_model_precisions(new.id, job, &NOTED).await.unwrap();
        assert_eq!(db.find_model(new.id).await.unwrap().unwrap().precisions_job, Some(job));

        let noting = DescriptionChanges { notes: Some("notes".to_owned()), ..DescriptionChanges::default() };
        assert!(db.change_model(new.id, &noting, later).await.unwrap());
        assert_eq!(db.find_model(new.id).await.unwrap().unwrap().notes, "notes");
        assert!(!db.change_model(ModelId::new(), &noting, later).await.unwrap());
        let noted = Entry { action: "model.remove", ..NOTED };
        assert!(db.remove_model(new.id, &noted).await.unwrap());
        assert!(!db.remove_model(new.id, &noted).await.unwrap());
        assert_eq!(db.find_model_test(asked[0].id, a).await.unwrap(), None);
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 3);
    })
    .await;
}

fn speed(devices: u32) -> Speed {
    let (device, precision) = ("NVIDIA H100".to_owned(), "float32".to_owned());
    Speed { devices, device, batch_size: 32 * devices, precision, images_per_second: 1234.5 }
}

#[tokio::test]
async fn speeds_are_of_those_that_are_alike_and_shown() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b) = (add_user(db, "a").await, add_user(db, "b").await);
        let dataset = DatasetId::new();
        let add = async |owner, name: &str, network: &str, state, speed: Option<Speed>| {
            let new = Model { dataset: Some(dataset), network: network.to_owned(), ..model(owner, name, name) };
            db.add_model(&new, "{}", None, &NOTED).await.unwrap();
            let (detail, metric) = (String::new(), String::new());
            let trained = Trained { state, detail, attempt: 1, metric, best: None, snapshots: 1, speed };
            assert!(db.settle_model(new.id, &trained, START).await.unwrap());
            new.id
        };
        let one = add(a, "one", "lenet", ModelState::Trained, Some(speed(1))).await;
        let two = add(b, "two", "lenet", ModelState::Trained, Some(speed(2))).await;
        add(a, "stopped", "lenet", ModelState::Stopped, Some(speed(4))).await;
        add(a, "other", "alexnet", ModelState::Trained, Some(speed(4))).await;
        add(a, "silent", "lenet", ModelState::Trained, None).await;
        let list = async |viewer, dataset| {
            let found = db.list_speeds(viewer, dataset, Some("lenet"), 10).await.unwrap();
            found.into_iter().map(|one| (one.id, one.speed.unwrap().devices)).collect::<Vec<_>>()
        };
        assert_eq!(list(a, dataset).await, [(one, 1)], "the other is somebody else's");
        let shown = DescriptionChanges { visibility: Some(Visibility::Everybody), ..DescriptionChanges::default() };
        assert!(db.change_model(two, &shown, START).await.unwrap());
        assert_eq!(list(a, dataset).await, [(two, 2), (one, 1)]);
        assert_eq!(list(a, DatasetId::new()).await, []);
        assert_eq!(db.list_speeds(a, dataset, Some("lenet"), 1).await.unwrap().len(), 1);
        let any = db.list_speeds(a, dataset, None, 10).await.unwrap();
        assert_eq!(any.iter().map(|one| one.network.as_str()).collect::<Vec<_>>(), ["alexnet", "lenet", "lenet"]);
    })
    .await;
}

#[tokio::test]
async fn models_are_listed_for_whom_they_are_shown_to() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b, c) = (add_user(db, "a").await, add_user(db, "b").await, add_user(db, "c").await);
        let group = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        for user in [a, b] {
            db.set_member(group, user, true, BY).await.unwrap();
        }
        let of_a = ["private 50%", "for the GROUP", "for everybody"].map(|name| model(a, "a", name));
        for (one, visibility) in of_a.iter().zip([Visibility::Private, Visibility::Group, Visibility::Everybody]) {
            db.add_model(one, "{}", None, &NOTED).await.unwrap();
            let shown = DescriptionChanges { visibility: Some(visibility), ..DescriptionChanges::default() };
            assert!(db.change_model(one.id, &shown, START).await.unwrap());
        }
        let usual = |viewer| ModelFilter {
            viewer,
            own: false,
            dataset: None,
            parent: None,
            find: "",
            sort: None,
            before: None,
            limit: 10,
        };
        let list = async |filter: ModelFilter<'_>| {
            db.list_models(filter).await.unwrap().into_iter().map(|(one, _)| one.id).collect::<Vec<_>>()
        };
        let [private, group, everybody] = of_a.each_ref().map(|one| one.id);
        assert_eq!(list(usual(a)).await, [everybody, group, private]);
        assert_eq!(list(usual(b)).await, [everybody, group]);
        assert_eq!(list(usual(c)).await, [everybody]);
        assert_eq!(list(ModelFilter { own: true, ..usual(b) }).await, []);
        assert_eq!(list(ModelFilter { dataset: of_a[0].dataset, ..usual(a) }).await, [private]);
        assert_eq!(list(ModelFilter { find: "50%", ..usual(a) }).await, [private]);
        assert_eq!(list(ModelFilter { before: Some(everybody), limit: 1, ..usual(a) }).await, [group]);
        let child = Model { parent: Some((everybody, "epoch-00002.keras".to_owned())), ..model(b, "b", "child") };
        db.add_model(&child, "{}", None, &NOTED).await.unwrap();
        assert_eq!(db.find_model(child.id).await.unwrap().unwrap().parent, child.parent);
        assert_eq!(list(ModelFilter { parent: Some(everybody), ..usual(b) }).await, [child.id]);
        assert_eq!(list(ModelFilter { parent: Some(everybody), ..usual(a) }).await, [], "it is b's");
        assert_eq!(list(ModelFilter { parent: Some(child.id), ..usual(b) }).await, []);
        for (id, shown) in [(private, [true, false, false]), (group, [true, true, false]), (everybody, [true; 3])] {
            for (viewer, shown) in [a, b, c].into_iter().zip(shown) {
                assert_eq!(db.model_is_shown(id, viewer).await.unwrap(), shown);
            }
        }
    })
    .await;
}
