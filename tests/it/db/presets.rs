//! Presets: of users and of groups, bounded in number, changed by one at a time, and gone with their holder.

use futures_util::future::join_all;
use lyceum::{
    db::{Error, presets::SaveOutcome},
    model::{
        GroupName, PresetId, UserId,
        preset::{Preset, PresetHolder, PresetKind},
    },
};

use super::{BY, NOTED, START, add_user, on_both};

/// A preset of a user, that starts a terminal.
pub fn preset(owner: UserId, name: &str) -> Preset {
    Preset {
        id: PresetId::new(),
        holder: PresetHolder::User(owner),
        kind: PresetKind::Session,
        name: name.to_owned(),
        request: r#"{"app": "terminal"}"#.to_owned(),
        saved_by: "ada".to_owned(),
        created_at: START,
        changed_at: START,
    }
}

fn names(presets: &[Preset]) -> Vec<&str> {
    presets.iter().map(|preset| preset.name.as_str()).collect()
}

#[tokio::test]
async fn a_preset_is_seen_by_its_owner_or_its_group() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob, cleo) = (add_user(db, "ada").await, add_user(db, "bob").await, add_user(db, "cleo").await);
        let vision = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        db.set_member(vision, bob, true, BY).await.unwrap();
        let own = preset(ada, "b");
        let shared = Preset { holder: PresetHolder::Group(vision, "vision".to_owned()), ..preset(ada, "a") };
        for new in [&own, &shared] {
            assert_eq!(db.add_preset(new, 2, &NOTED).await.unwrap(), SaveOutcome::Saved);
        }
        assert_eq!(db.presets(ada, false).await.unwrap(), std::slice::from_ref(&own));
        assert_eq!(db.presets(bob, false).await.unwrap(), std::slice::from_ref(&shared));
        assert!(db.presets(cleo, false).await.unwrap().is_empty());
        assert_eq!(names(&db.presets(cleo, true).await.unwrap()), ["a"], "an administrator does not see users' own");

        let twice = db.add_preset(&Preset { id: PresetId::new(), ..own.clone() }, 9, &NOTED).await;
        assert!(matches!(twice, Err(Error::Unique)), "{twice:?}");
        let job = Preset { id: PresetId::new(), kind: PresetKind::Job, ..own.clone() };
        assert_eq!(db.add_preset(&job, 9, &NOTED).await.unwrap(), SaveOutcome::Saved, "a job may have the same name");

        let renamed = Preset { name: "c".to_owned(), changed_at: START.plus_seconds(1), ..own.clone() };
        assert_eq!(db.change_preset(&own, &renamed, 9, &NOTED).await.unwrap(), SaveOutcome::Saved);
        assert_eq!(db.change_preset(&own, &renamed, 9, &NOTED).await.unwrap(), SaveOutcome::Stale);
        let moved = Preset { holder: shared.holder.clone(), ..renamed.clone() };
        assert_eq!(db.change_preset(&renamed, &moved, 1, &NOTED).await.unwrap(), SaveOutcome::Full);
        assert_eq!(db.change_preset(&renamed, &moved, 2, &NOTED).await.unwrap(), SaveOutcome::Saved);
        assert_eq!(names(&db.presets(bob, false).await.unwrap()), ["a", "c"]);

        assert!(db.remove_preset(moved.id, &NOTED).await.unwrap());
        assert!(!db.remove_preset(moved.id, &NOTED).await.unwrap());
        assert!(db.remove_group(vision, BY).await.unwrap());
        assert!(db.presets(cleo, true).await.unwrap().is_empty(), "a group's presets go with the group");
        super::people::admin(house, "chief").await;
        assert!(db.remove_user(ada, BY).await.unwrap(), "a user's presets go with the user");
    })
    .await;
}

#[tokio::test]
async fn twenty_at_once_do_not_exceed_the_bound() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let new: Vec<Preset> = (0..20).map(|number| preset(ada, &format!("preset {number}"))).collect();
        let outcomes = join_all(new.iter().map(|new| db.add_preset(new, 5, &NOTED))).await;
        let saved = outcomes.iter().filter(|outcome| matches!(outcome, Ok(SaveOutcome::Saved))).count();
        assert_eq!((saved, db.presets(ada, false).await.unwrap().len()), (5, 5), "{outcomes:?}");
    })
    .await;
}
