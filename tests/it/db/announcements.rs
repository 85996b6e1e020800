//! Announcements, maintenance and what the database says of itself, on both databases: a change
//! expects what it saw, its row of the audit log comes with it, and what is over is forgotten.

use lyceum::{
    db::{Error, announcements::Filter, audit::Entry, idempotency::IdempotentRequest},
    model::{Announcement, AnnouncementId, Maintenance, Phase, Window, announcement::Level},
};

use super::{BY, NOTED, START, add_user, number, on_both};

fn announcement(from: i64, to: Option<i64>) -> Announcement {
    Announcement {
        id: AnnouncementId::new(),
        level: Level::Warning,
        text: "The disks are full ’ 磁盘".to_owned(),
        window: Window { from: START.plus_seconds(from), to: to.map(|to| START.plus_seconds(to)) },
        on_login: true,
        groups: Vec::new(),
        changed_by: "ada".to_owned(),
        changed_at: START,
    }
}

#[tokio::test]
async fn announcements_are_listed_by_phase_and_in_pages() {
    on_both(async |house| {
        let db = &house.db;
        let past = announcement(-100, Some(-50));
        let active = announcement(-100, Some(50));
        let open = announcement(0, None);
        let coming = announcement(10, None);
        for one in [&past, &active, &open, &coming] {
            db.add_announcement(one, None, &NOTED).await.unwrap();
        }
        let list = async |phase, before, limit| {
            let filter = Filter { phase, now: START, before, limit };
            db.list_announcements(&filter).await.unwrap().into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(list(None, None, 10).await, [coming.id, open.id, active.id, past.id]);
        assert_eq!(list(Some(Phase::Active), None, 10).await, [open.id, active.id]);
        assert_eq!(list(Some(Phase::Coming), None, 10).await, [coming.id]);
        assert_eq!(list(Some(Phase::Past), None, 10).await, [past.id]);
        assert_eq!(list(None, Some(open.id), 1).await, [active.id]);
        assert_eq!(db.current_announcements(START).await.unwrap(), [active.clone(), open, coming]);
        assert_eq!(db.find_announcement(active.id).await.unwrap().as_ref(), Some(&active));
        assert_eq!(db.find_announcement(AnnouncementId::new()).await.unwrap(), None);
        let of_groups =
            Announcement { groups: vec!["a \"b\"".to_owned(), "磁盘".to_owned()], ..announcement(0, None) };
        db.add_announcement(&of_groups, None, &NOTED).await.unwrap();
        assert_eq!(db.find_announcement(of_groups.id).await.unwrap().as_ref(), Some(&of_groups));
        assert_eq!(db.members_by_group_name("vision").await.unwrap(), []);
        let ada = super::quotas::member(db, "ada", &["vision", "audio"]).await;
        assert_eq!(db.members_by_group_name("vision").await.unwrap(), [ada]);
        assert_eq!(db.members_by_group_name("Vision").await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_change_expects_what_it_saw_and_news_are_seen_again() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let first = announcement(0, None);
        let once = IdempotentRequest { user: ada, key: "key", request_hash: "hash" };
        db.add_announcement(&first, Some(once), &NOTED).await.unwrap();
        let again = announcement(0, None);
        assert!(matches!(db.add_announcement(&again, Some(once), &NOTED).await, Err(Error::Unique)));
        assert_eq!(db.find_announcement(again.id).await.unwrap(), None, "nothing half-written");
        assert_eq!(db.find_idempotent(ada, "key").await.unwrap().unwrap().created_id, first.id.to_string());

        assert!(db.dismiss_announcement(first.id, ada).await.unwrap());
        assert!(db.dismiss_announcement(first.id, ada).await.unwrap(), "again is fine");
        assert!(db.dismiss_announcement(first.id, bob).await.unwrap());
        assert!(!db.dismiss_announcement(AnnouncementId::new(), bob).await.unwrap());
        assert_eq!(db.announcement_dismissals(START).await.unwrap().len(), 2);

        let rows = number(db, "SELECT COUNT(*) FROM audit").await;
        let longer =
            Announcement { window: Window { to: Some(START.plus_seconds(60)), ..first.window }, ..first.clone() };
        let entry = Entry { action: "announcement.change", ..NOTED };
        assert!(db.change_announcement(&first, &longer, &entry).await.unwrap());
        assert!(!db.change_announcement(&first, &first, &entry).await.unwrap(), "it is another one by now");
        assert_eq!(db.announcement_dismissals(START).await.unwrap().len(), 2, "they have read it");
        assert_eq!(db.announcement_dismissals(START.plus_seconds(60)).await.unwrap(), [], "it is over");
        let news = Announcement { text: "The disks are empty".to_owned(), ..longer.clone() };
        assert!(db.change_announcement(&longer, &news, &entry).await.unwrap());
        assert_eq!(db.announcement_dismissals(START).await.unwrap(), []);
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 2, "a row for each change, none for none");

        db.dismiss_announcement(first.id, bob).await.unwrap();
        assert!(db.remove_announcement(first.id, &NOTED).await.unwrap());
        assert!(!db.remove_announcement(first.id, &NOTED).await.unwrap());
        assert_eq!(number(db, "SELECT COUNT(*) FROM announcement_dismissals").await, 0);
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 3);
    })
    .await;
}

#[tokio::test]
async fn announcements_that_are_over_are_forgotten_and_people_with_theirs() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        // Somebody else has to be left who can sign in as an administrator.
        let (old, young, open) =
            (announcement(-100, Some(-50)), announcement(-100, Some(-10)), announcement(-100, None));
        for one in [&old, &young, &open] {
            db.add_announcement(one, None, &NOTED).await.unwrap();
            db.dismiss_announcement(one.id, ada).await.unwrap();
        }
        assert_eq!(db.forget_announcements(START.plus_seconds(-20)).await.unwrap(), 1);
        assert_eq!(db.forget_announcements(START.plus_seconds(-20)).await.unwrap(), 0);
        assert!(db.find_announcement(old.id).await.unwrap().is_none());
        assert!(db.find_announcement(young.id).await.unwrap().is_some());
        assert!(db.find_announcement(open.id).await.unwrap().is_some(), "what has no end is never over");
        assert_eq!(number(db, "SELECT COUNT(*) FROM announcement_dismissals").await, 2);
    })
    .await;
}

#[tokio::test]
async fn maintenance_is_ordered_once() {
    on_both(async |house| {
        let db = &house.db;
        assert_eq!(db.maintenance().await.unwrap(), None);
        let set = Maintenance {
            message: "New disks ’".to_owned(),
            window: Window { from: START, to: Some(START.plus_seconds(3600)) },
            drain_at: Some(START.plus_seconds(60)),
            admins_may_start: false,
        };
        assert!(db.set_maintenance(None, Some(&set), &NOTED).await.unwrap());
        assert_eq!(house.again().await.maintenance().await.unwrap().as_ref(), Some(&set));
        let rows = number(db, "SELECT COUNT(*) FROM audit").await;
        assert!(!db.set_maintenance(None, Some(&set), &NOTED).await.unwrap(), "somebody was faster");
        let longer = Maintenance { window: Window { to: None, ..set.window }, ..set.clone() };
        assert!(db.set_maintenance(Some(&set), Some(&longer), &NOTED).await.unwrap());
        assert!(db.set_maintenance(Some(&longer), None, &NOTED).await.unwrap());
        assert_eq!(db.maintenance().await.unwrap(), None);
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 2);
    })
    .await;
}

#[tokio::test]
async fn the_database_says_how_it_is() {
    on_both(async |house| {
        let health = house.db.health().await.unwrap();
        assert_eq!(health.kind, if house.is_sqlite() { "SQLite" } else { "PostgreSQL" });
        assert!(health.bytes > 10_000 && health.schema >= 10 && health.last_backup.is_none(), "{health:?}");
        house.db.note_backup(BY).await.unwrap();
        assert_eq!(house.db.health().await.unwrap().last_backup, Some(BY.at));
    })
    .await;
}
