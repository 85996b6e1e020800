//! What homes hold, on both databases: who is due to be measured, and what is remembered.

use lyceum::{
    db::{limits::GroupFlags, logins::Login, quotas::Level, storage::HomeUsage},
    model::{LoginId, Timestamp, files::FolderSize, quota::Field},
};

use super::{NOTED, START, add_user, each, on_both, set_limits};

const DAY: i64 = 86_400;

#[tokio::test]
async fn whoever_was_here_lately_is_measured_in_turn() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob, old) = (add_user(db, "ada").await, add_user(db, "bob").await, add_user(db, "old").await);
        let at = |days: i64| START.plus_seconds(days * DAY);
        for (user, seen) in [(ada, 10), (bob, 10), (old, 1)] {
            let (id, at) = (LoginId::new(), at(seen));
            let (expires_at, address) = (at.plus_seconds(DAY), "::1".to_owned());
            let login = Login { id, user, created_at: at, last_seen_at: at, expires_at, address };
            db.add_login(&login, &id.to_string(), &NOTED).await.unwrap();
        }
        let due = async |now: Timestamp, limit| {
            db.storage_due(now.plus_seconds(-7 * DAY), now.plus_seconds(-6 * 3600), limit).await.unwrap()
        };
        assert_eq!(due(at(10), 9).await, [], "nobody limits storage");
        set_limits(db, Level::Default, &each([(Field::StorageBytes, Some(1 << 30))]), GroupFlags::default()).await;
        let mut all = due(at(10), 9).await;
        all.sort();
        let mut both = [ada, bob];
        both.sort();
        assert_eq!(all, both);
        assert_eq!(due(at(10), 1).await.len(), 1);

        assert_eq!(db.storage_of(ada).await.unwrap(), None);
        let measured = FolderSize { bytes: u64::try_from(i64::MAX).unwrap(), files: 7, unreadable: 1 };
        db.set_storage(ada, Some(&measured), at(10)).await.unwrap();
        assert_eq!(db.storage_of(ada).await.unwrap(), Some(HomeUsage { measured, at: at(10) }));
        db.set_storage(bob, None, at(10)).await.unwrap();
        assert_eq!(db.storage_of(bob).await.unwrap(), None, "it was tried only");
        assert_eq!(due(at(10), 9).await, [], "each has had their turn");

        // Once more: what is known stays where it cannot be measured again.
        db.set_storage(ada, None, at(11)).await.unwrap();
        assert_eq!(db.storage_of(ada).await.unwrap(), Some(HomeUsage { measured, at: at(10) }));
        assert_eq!(due(at(11), 9).await, [bob]);
        assert_eq!(due(at(12), 9).await, [bob, ada], "whoever waits longest comes first");
        assert_eq!(due(at(18), 9).await, [], "they have not been here");
    })
    .await;
}
