//! The catalogue of container images and their digests: added, pulled again, in use, removed.

use lyceum::{
    db::{
        admit::{AdmissionMode, Verdict},
        images::{ImageDigest, ImageRow},
        registry_credentials::RegistryCredentials,
    },
    model::Clock,
};

use super::{NOTED, START, add_user, asking, exited, new_session, on_both};

const NAME: &str = "pytorch";

fn digest(of: &str) -> ImageDigest {
    let reference = "nvcr.io/nvidia/pytorch:26.10".to_owned();
    ImageDigest { name: NAME.to_owned(), reference, digest: format!("sha256:{of}"), pulled_at: START }
}

#[tokio::test]
async fn credentials_are_of_one_user_and_registry() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let of = |registry: &str, password: &str| RegistryCredentials {
            registry: registry.to_owned(),
            user_name: "$oauthtoken".to_owned(),
            password: password.to_owned(),
            saved_at: START,
        };
        for saved in [of("quay.io", "1"), of("nvcr.io", "2"), of("nvcr.io", "3")] {
            db.set_registry_credentials(ada, &saved, &NOTED).await.unwrap();
        }
        db.set_registry_credentials(bob, &of("nvcr.io", "4"), &NOTED).await.unwrap();
        assert_eq!(db.registry_credentials(ada).await.unwrap(), [of("nvcr.io", "3"), of("quay.io", "1")]);
        assert!(db.remove_registry_credentials(ada, "nvcr.io", &NOTED).await.unwrap());
        assert!(!db.remove_registry_credentials(ada, "nvcr.io", &NOTED).await.unwrap(), "they have gone");
        assert_eq!(db.registry_credentials(ada).await.unwrap(), [of("quay.io", "1")]);
        assert_eq!(db.registry_credentials(bob).await.unwrap(), [of("nvcr.io", "4")]);

        let private = ImageRow {
            name: "mine".to_owned(),
            title: String::new(),
            reference: "nvcr.io/org/private:1".to_owned(),
            groups: Vec::new(),
            owner: Some(ada),
            added_by: "ada".to_owned(),
            added_at: START,
        };
        db.add_image(&private, &NOTED).await.unwrap();
        assert_eq!(db.images().await.unwrap(), [private]);
    })
    .await;
}

#[tokio::test]
async fn an_image_that_is_in_use_is_not_removed() {
    on_both(async |house| {
        let db = &house.db;
        let image = ImageRow {
            name: NAME.to_owned(),
            title: "PyTorch".to_owned(),
            reference: "nvcr.io/nvidia/pytorch:26.10".to_owned(),
            groups: vec!["vision".to_owned()],
            owner: None,
            added_by: "root".to_owned(),
            added_at: START,
        };
        db.add_image(&image, &NOTED).await.unwrap();
        assert!(db.add_image(&image, &NOTED).await.is_err(), "a name is used once");
        assert_eq!(db.images().await.unwrap(), [image]);
        for pulled in [digest("1"), digest("2")] {
            db.set_image_digest(&pulled).await.unwrap();
            assert_eq!(db.image_digests().await.unwrap(), [pulled], "a later pull replaces the earlier");
        }
        assert!(!db.is_image_in_use(NAME).await.unwrap());

        let owner = add_user(db, "alice").await;
        let mut new = new_session(owner, 0);
        new.spec.image = Some(NAME.to_owned());
        let at = Clock::manual(START);
        let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
        db.admit(&asking(owner), AdmissionMode::Insert(&new), &at, admit).await.unwrap();
        db.set_session_image(new.id, "sha256:2").await.unwrap();
        assert!(db.is_image_in_use(NAME).await.unwrap());
        assert_eq!(db.image_digests_in_use().await.unwrap(), ["sha256:2"]);
        assert!(!db.remove_image(NAME, &NOTED).await.unwrap(), "a session waits for it");

        assert!(db.end_session(new.id, &exited(START)).await.unwrap());
        assert!(db.image_digests_in_use().await.unwrap().is_empty());
        assert!(db.remove_image(NAME, &NOTED).await.unwrap());
        assert!(!db.remove_image(NAME, &NOTED).await.unwrap(), "it has gone");
        assert!(db.images().await.unwrap().is_empty() && db.image_digests().await.unwrap().is_empty());
    })
    .await;
}
