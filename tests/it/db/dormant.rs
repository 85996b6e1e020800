//! Accounts that nobody uses, on both databases: what is use, who is left alone, what is written once, and the way back.

use lyceum::{
    db::{Db, audit::ChangedBy, people::UserChange},
    model::{Role, Timestamp, UserId, user::State},
};

use super::{BY, add_user, ended_job, execute, on_both, running};

const DAY: i64 = 86_400;

async fn state(db: &Db, id: UserId) -> State {
    db.find_user(id).await.unwrap().unwrap().user.state()
}

#[tokio::test]
async fn what_is_not_used_is_found_and_disabled_once() {
    on_both(async |house| {
        let db = &house.db;
        let mut ids = Vec::new();
        for name in ["ada", "bob", "cleo", "dora", "eve", "chief"] {
            ids.push(add_user(db, name).await);
        }
        let [ada, bob, cleo, dora, eve, chief] = ids[..] else { panic!() };
        let raised = UserChange { role: Some(Role::Admin), ..UserChange::default() };
        assert!(db.change_user(chief, &raised, BY).await.unwrap());
        let created = db.find_user(ada).await.unwrap().unwrap().user.created_at;
        // Bob works, a sweep of Cleo's submits tasks, a job of Dora's has ended just now, and Eve has been seen.
        running(db, bob).await;
        super::sweeps::added(db, cleo, "lr").await;
        let ended = ended_job(db, dora, "done").await;
        let seen = created.plus_seconds(30 * DAY).0;
        execute(db, &format!("UPDATE users SET last_seen_at = {seen} WHERE id = '{eve}'")).await;
        execute(db, &format!("UPDATE sessions SET ended_at = {seen} WHERE job_id = '{}'", ended.job)).await;

        assert_eq!(db.unused_accounts(created.plus_seconds(-1)).await.unwrap(), []);
        let since = created.plus_seconds(29 * DAY);
        assert_eq!(db.unused_accounts(since).await.unwrap(), [ada]);
        let now = since.plus_seconds(30 * DAY);
        assert!(!db.make_dormant(eve, since, now).await.unwrap(), "used meanwhile");
        assert!(db.make_dormant(ada, since, now).await.unwrap());
        assert!(!db.make_dormant(ada, since, now).await.unwrap(), "already");
        assert_eq!((state(db, ada).await, db.unused_accounts(since).await.unwrap()), (State::Dormant, vec![]));
        let row = db.list_audit(1).await.unwrap().remove(0);
        assert_eq!(
            (row.actor.as_str(), row.action.as_str(), row.detail.as_str()),
            ("portal", "user.dormant", "never used")
        );
        let later = created.plus_seconds(31 * DAY);
        assert_eq!(db.unused_accounts(later).await.unwrap(), [dora, eve], "not for ever");

        // Enabled again, its time counts from then on.
        let (enables, enabled_at) =
            (UserChange { disabled: Some(false), ..UserChange::default() }, now.plus_seconds(1));
        assert!(db.change_user(ada, &enables, ChangedBy { at: enabled_at, ..BY }).await.unwrap());
        assert_eq!(state(db, ada).await, State::Active);
        let unused = async |since: Timestamp| db.unused_accounts(since).await.unwrap().contains(&ada);
        assert!(!unused(now).await && unused(enabled_at).await);
    })
    .await;
}
