//! Jobs and users by a part of their names, where both databases have an index of parts: what is renamed or removed is
//! found by its present name alone, whatever letters stand in it, and many matches come in the order of the list.

use lyceum::{
    db::{
        Db,
        jobs::{JobChange, JobFilter},
        people::{PeopleFilter, Sort, UserChange},
    },
    model::UserId,
};

use super::{BY, add_user, copies::copy, ended_job, on_both};

async fn jobs(db: &Db, owner: Option<UserId>, find: &str) -> Vec<String> {
    let found = db.list_jobs(JobFilter { find, owner, limit: 20, ..JobFilter::default() }).await.unwrap();
    found.into_iter().map(|job| job.name).collect()
}

async fn people(db: &Db, find: &str) -> Vec<String> {
    let (role, state, source, after) = (None, None, None, None);
    let filter = PeopleFilter {
        find: find.to_owned(),
        role,
        state,
        expires_before: None,
        source,
        sort: Sort::Name,
        after,
        limit: 20,
    };
    db.list_people(&filter).await.unwrap().into_iter().map(|one| one.user.name.to_string()).collect()
}

#[tokio::test]
async fn parts_of_names_are_found() {
    on_both(async |house| {
        let db = &house.db;
        let (alice, bob) = (add_user(db, "alice").await, add_user(db, "bob").await);
        let job = ended_job(db, alice, "Straße \"7\" job: x*").await.job;
        for (find, is_there) in [
            ("STRASSE", true),
            ("se \"7\"", true),
            ("job:", true),
            ("x*", true),
            ("7\" job", true),
            ("st%e", false),
            ("zzz", false),
            ("job : x", false),
            ("\"", true),
            ("\0\0\0", false),
        ] {
            assert_eq!(jobs(db, None, find).await.len(), usize::from(is_there), "{find}");
            assert_eq!(jobs(db, Some(alice), find).await.len(), usize::from(is_there), "{find}");
            assert_eq!(jobs(db, Some(bob), find).await.len(), 0, "{find}");
        }
        let change = JobChange { name: Some("resnet".to_owned()), ..JobChange::default() };
        assert!(db.change_job(job, &change).await.unwrap());
        assert_eq!((jobs(db, None, "strasse").await.len(), jobs(db, None, "sne").await.len()), (0, 1));

        // More than are looked up by their parts.
        let id = "'01a00000-0000-7000-8000-' || (100000000000 + i)";
        let changes = [("id", id), ("name", "'train-' || i"), ("folded_name", "'train-' || i")];
        copy(db, "jobs", &format!("id = '{job}'"), 1500, &changes).await;
        let many = jobs(db, None, "rain").await;
        assert!(many.len() == 20 && many[0] == "train-1500" && many[19] == "train-1481", "{many:?}");
        let few = jobs(db, Some(alice), "n-149").await;
        assert_eq!(
            few.iter().map(String::as_str).take(3).collect::<Vec<_>>(),
            ["train-1499", "train-1498", "train-1497"]
        );
        assert_eq!(few.len(), 11);

        db.delete_job(job, BY).await.unwrap();
        assert!(jobs(db, None, "resnet").await.is_empty());

        let named = |display_name| UserChange { display_name: Some(display_name), ..UserChange::default() };
        assert!(db.change_user(bob, &named("Grace Hopper"), BY).await.unwrap());
        assert_eq!(
            (people(db, "E HOP").await, people(db, "lic").await),
            (vec!["bob".to_owned()], vec!["alice".to_owned()])
        );
        assert!(db.change_user(bob, &named("Ada"), BY).await.unwrap());
        assert_eq!(
            (people(db, "hop").await.len(), people(db, "ada").await.len(), people(db, "o").await.len()),
            (0, 1, 1)
        );
    })
    .await;
}
