//! Invitations in the database: one for a group and a person, answered once, and over in time.

use lyceum::{
    db::{
        Db,
        audit::ChangedBy,
        directory::{ArrivalOutcome, Person},
        invitations::InvitationOutcome,
        people::UserChange,
    },
    model::{
        GroupId, GroupName, Role, Timestamp, UserId, Username,
        group::{INVITATION_LIFETIME, REINVITATION_DELAY},
    },
};
use tokio::task::JoinSet;

use super::{BY, START, add_user, on_both};

const MIA: ChangedBy<'static> = ChangedBy { actor: "mia", at: START };

fn later(seconds: i64) -> ChangedBy<'static> {
    ChangedBy { at: START.plus_seconds(seconds), ..MIA }
}

async fn lab(db: &Db) -> (GroupId, UserId) {
    let group = db.add_group(&GroupName::parse("lab").unwrap(), None, BY).await.unwrap();
    (group, add_user(db, "ada").await)
}

async fn set_role(db: &Db, user: UserId, role: Role) {
    let change = UserChange { role: Some(role), ..UserChange::default() };
    assert!(db.change_user(user, &change, BY).await.unwrap());
}

async fn is_member(db: &Db, group: GroupId, user: UserId) -> bool {
    db.membership(user, group).await.unwrap().is_some()
}

async fn pending(db: &Db, group: GroupId, at: Timestamp) -> Vec<String> {
    db.invitations_into(group, at).await.unwrap().into_iter().map(|one| one.name).collect()
}

#[tokio::test]
async fn an_invitation_is_one_and_is_answered_once() {
    on_both(async |house| {
        let db = &house.db;
        let (group, ada) = lab(db).await;
        let InvitationOutcome::Made(made) = db.invite(group, "ada", false, MIA).await.unwrap() else {
            panic!("it is new")
        };
        assert_eq!((made.name.as_str(), made.invited_by.as_str(), made.group), ("ada", "mia", group));
        assert_eq!(made.expires_at, START.plus_seconds(INVITATION_LIFETIME));
        assert_eq!(db.invite(group, "ada", false, later(60)).await.unwrap(), InvitationOutcome::Pending(made.clone()));
        assert_eq!(db.invitations_into(group, START).await.unwrap(), std::slice::from_ref(&made));
        assert_eq!(db.invitations_of(ada, START).await.unwrap(), [made]);
        assert!(!is_member(db, group, ada).await, "nothing holds before it is accepted");
        assert!(db.answer_invitation(group, ada, true, later(60)).await.unwrap());
        assert!(is_member(db, group, ada).await);
        assert!(!db.answer_invitation(group, ada, true, later(60)).await.unwrap(), "once");
        assert_eq!(db.invite(group, "ada", false, later(60)).await.unwrap(), InvitationOutcome::IsMember);
        assert!(db.leave_group(group, ada, later(90)).await.unwrap());
        assert!(!db.leave_group(group, ada, later(90)).await.unwrap());

        // An administrator's word makes an invitation superfluous.
        db.invite(group, "ada", false, later(100)).await.unwrap();
        assert!(db.set_member(group, ada, true, BY).await.unwrap());
        assert_eq!(pending(db, group, START).await, [""; 0]);
        for (name, group) in [("nobody", group), ("ada\0", group), ("ada", GroupId::new())] {
            assert_eq!(db.invite(group, name, true, MIA).await.unwrap(), InvitationOutcome::Nobody, "{name}");
        }
        // A group goes with what is pending.
        add_user(db, "bob").await;
        db.invite(group, "bob", false, MIA).await.unwrap();
        assert!(db.remove_group(group, BY).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn who_declined_is_left_alone_for_a_week() {
    on_both(async |house| {
        let db = &house.db;
        let (group, ada) = lab(db).await;
        db.invite(group, "ada", false, MIA).await.unwrap();
        assert!(db.answer_invitation(group, ada, false, later(60)).await.unwrap());
        assert!(!db.answer_invitation(group, ada, true, later(60)).await.unwrap(), "it was answered");
        assert_eq!(pending(db, group, START).await, [""; 0]);
        let until = START.plus_seconds(60 + REINVITATION_DELAY);
        assert_eq!(db.invite(group, "ada", false, later(120)).await.unwrap(), InvitationOutcome::Declined { until });
        // A manager does not get round it by withdrawing; an administrator lifts it.
        assert!(!db.withdraw_invitation(group, "ada", false, later(120)).await.unwrap());
        assert_eq!(db.invite(group, "ada", false, later(180)).await.unwrap(), InvitationOutcome::Declined { until });
        assert!(db.withdraw_invitation(group, "ada", true, later(180)).await.unwrap());
        assert!(matches!(db.invite(group, "ada", false, later(180)).await.unwrap(), InvitationOutcome::Made(_)));
        assert!(db.answer_invitation(group, ada, false, later(240)).await.unwrap());
        assert!(matches!(db.invite(group, "ada", true, later(300)).await.unwrap(), InvitationOutcome::Made(_)));
        assert!(db.answer_invitation(group, ada, false, later(360)).await.unwrap());
        let week = 360 + REINVITATION_DELAY;
        assert!(matches!(
            db.invite(group, "ada", false, later(week - 1)).await.unwrap(),
            InvitationOutcome::Declined { .. }
        ));
        assert!(matches!(db.invite(group, "ada", false, later(week)).await.unwrap(), InvitationOutcome::Made(_)));

        // What nobody answered is over in two weeks, and can be made anew.
        let over = later(week + INVITATION_LIFETIME);
        assert!(!db.answer_invitation(group, ada, true, over).await.unwrap());
        assert_eq!(pending(db, group, over.at).await, [""; 0]);
        assert!(matches!(db.invite(group, "ada", false, over).await.unwrap(), InvitationOutcome::Made(_)));
    })
    .await;
}

#[tokio::test]
async fn staff_are_never_invited() {
    on_both(async |house| {
        let db = &house.db;
        let (group, ada) = lab(db).await;
        db.invite(group, "ada", false, MIA).await.unwrap();
        // Somebody becomes staff, here or in the directory, with an invitation pending.
        set_role(db, ada, Role::Operator).await;
        assert_eq!(pending(db, group, START).await, [""; 0]);
        assert!(!db.answer_invitation(group, ada, true, MIA).await.unwrap());
        assert_eq!(db.invite(group, "ada", true, MIA).await.unwrap(), InvitationOutcome::Nobody);
        set_role(db, ada, Role::User).await;
        assert_eq!(pending(db, group, START).await, ["ada"]);
        let person = Person {
            source: "ldap",
            subject: "cn=dora",
            name: &Username::parse("dora").unwrap(),
            display_name: "",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: Some(Role::Admin),
            groups: &[],
        };
        let ArrivalOutcome::Known(dora) = db.arrive(&person, START).await.unwrap() else { panic!("she is new") };
        assert_eq!(db.invite(group, "dora", false, MIA).await.unwrap(), InvitationOutcome::Nobody);
        assert!(!is_member(db, group, dora).await);
    })
    .await;
}

/// Twenty invitations at once are one; and accepting races with withdrawing, of which one wins.
#[tokio::test]
async fn races_have_one_winner() {
    on_both(async |house| {
        let (group, ada) = lab(&house.db).await;
        let mut inviting = JoinSet::new();
        for db in house.three().await.into_iter().cycle().take(20) {
            inviting.spawn(async move {
                let invited = db.invite(group, "ada", false, MIA).await.unwrap();
                usize::from(matches!(invited, InvitationOutcome::Made(_)))
            });
        }
        assert_eq!(inviting.join_all().await.into_iter().sum::<usize>(), 1);
        for round in 0..8 {
            house.db.invite(group, "ada", false, MIA).await.unwrap();
            let [one, two, _] = house.three().await;
            let accepting = tokio::spawn(async move { one.answer_invitation(group, ada, true, MIA).await.unwrap() });
            let withdrawing =
                tokio::spawn(async move { two.withdraw_invitation(group, "ada", false, MIA).await.unwrap() });
            let (accepted, withdrawn) = (accepting.await.unwrap(), withdrawing.await.unwrap());
            assert!(accepted != withdrawn, "round {round}: {accepted} {withdrawn}");
            assert_eq!(is_member(&house.db, group, ada).await, accepted);
            house.db.set_member(group, ada, false, BY).await.unwrap();
        }
    })
    .await;
}
