//! Another look at people who are in: one entry, or one question, that goes wrong costs nobody
//! else; a limit of the directory's is told as what it is.

use std::collections::HashSet;

use lyceum::{
    auth::ldap::{Settings, probe},
    model::Role,
    scheduler::{Account, PortalUser},
};
use serde_json::Value;

use super::{House, Slapd, portal, sign_in};
use crate::{
    directory::slapd::{BASE, password, person_dn},
    portal::{Caller, START, TestPortal},
};

async fn status(caller: &Caller) -> u16 {
    caller.get("/api/v1/me").await.status().as_u16()
}

async fn groups(caller: &Caller) -> usize {
    caller.get("/api/v1/me").await.json::<Value>().await.unwrap()["groups"].as_array().unwrap().len()
}

async fn look(portal: &TestPortal, ldap: &lyceum::auth::Ldap) {
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
}

#[tokio::test]
async fn somebody_in_many_groups_stops_nobody() {
    let slapd = Slapd::start();
    slapd.add_person("many", 20_100).await;
    let (portal, ldap) = portal(slapd.settings()).await;
    let (many, alice) = (sign_in(&portal, "many").await, sign_in(&portal, "alice").await);

    let mut root = slapd.root().await;
    let one = |value: String| HashSet::from([value]);
    for number in 0..700 {
        let attributes = vec![
            ("objectClass".to_owned(), one("groupOfNames".to_owned())),
            ("cn".to_owned(), one(format!("g{number}"))),
            ("member".to_owned(), one(person_dn("many"))),
        ];
        root.add(&format!("cn=g{number},ou=groups,{BASE}"), attributes).await.unwrap().success().unwrap();
    }
    // Another one of the same name must not be lost among them.
    let attributes = vec![
        ("objectClass".to_owned(), one("groupOfNames".to_owned())),
        ("cn".to_owned(), one("g0".to_owned())),
        ("member".to_owned(), one(person_dn("many"))),
    ];
    root.add(&format!("cn=g0,ou=services,{BASE}"), attributes).await.unwrap().success().unwrap();
    slapd.delete(&person_dn("alice")).await;
    look(&portal, &ldap).await;
    assert_eq!((status(&alice).await, status(&many).await), (401, 200));
    assert_eq!(groups(&many).await, 700, "all of them, beyond the directory's limit");
    assert_eq!(ldap.unjudged(), []);
    let both = portal.db().find_groups("g0").await.unwrap();
    assert_eq!(both.len(), 2, "namesakes");
    sign_in(&portal, "many").await;

    let steps = probe::steps(&slapd.settings(), START).await;
    let troubles: Vec<_> = steps.iter().filter_map(|step| step.outcome.as_ref().err()).collect();
    let limit = troubles.iter().find(|trouble| trouble.what.contains("sizeLimitExceeded")).expect("check warns");
    assert!(!limit.fatal && limit.what.contains("500"), "{limit:?}");
}

#[tokio::test]
async fn an_entry_that_cannot_be_judged_costs_nobody_else() {
    let slapd = Slapd::start();
    let (portal, ldap) = portal(slapd.settings()).await;
    let (alice, bob, carol) =
        (sign_in(&portal, "alice").await, sign_in(&portal, "bob").await, sign_in(&portal, "carol").await);
    slapd.replace(&person_dn("alice"), "uidNumber", "500").await;
    slapd.delete(&person_dn("bob")).await;
    slapd.replace(&format!("cn=admins,ou=groups,{BASE}"), "member", &person_dn("alice")).await;
    look(&portal, &ldap).await;
    assert_eq!((status(&alice).await, status(&bob).await, status(&carol).await), (200, 401, 200));
    assert_eq!(super::role(&carol).await, "user", "the others are judged as ever");
    let unjudged = ldap.unjudged();
    assert_eq!((unjudged.len(), unjudged[0].name.as_str()), (1, "alice"));
    assert!(unjudged[0].because.contains("uidNumber"), "{unjudged:?}");

    // What is clear all the same holds.
    slapd.replace(&person_dn("alice"), "pwdAccountLockedTime", "000001010000Z").await;
    look(&portal, &ldap).await;
    assert_eq!(status(&alice).await, 401, "she is locked, whatever else is wrong");
    assert_eq!(ldap.unjudged(), []);
}

#[tokio::test]
async fn a_second_name_in_an_entry_is_not_its_name() {
    let slapd = Slapd::start();
    let (portal, ldap) = portal(slapd.settings()).await;
    let alice = sign_in(&portal, "alice").await;
    for (whose, further) in [("alice", "aaa"), ("bob", "alice"), ("bob", "Not a name")] {
        slapd.add_value(&person_dn(whose), "uid", further).await;
    }
    look(&portal, &ldap).await;
    assert_eq!(status(&alice).await, 200);
    sign_in(&portal, "alice").await;
    sign_in(&portal, "bob").await;
    assert_eq!(portal.try_sign_in("aaa", &password("alice")).await.status(), 401);
    assert_eq!(portal.try_sign_in("alice", &password("bob")).await.status(), 401);
    assert_eq!(portal.db().count_users().await.unwrap(), 2);
}

/// A question that the directory refuses is told as that, and keeps those who are in.
#[tokio::test]
async fn an_answer_is_told_as_what_it_is() {
    let slapd = Slapd::start();
    let (portal, ldap) = portal(Settings { group_base: "no such form".to_owned(), ..slapd.settings() }).await;
    let answer = portal.try_sign_in("alice", &password("alice")).await;
    assert_eq!(answer.status(), 503);
    let text = answer.text().await.unwrap();
    assert!(text.contains("invalidDNSyntax") && !text.contains("does not respond"), "{text}");
    let row = portal.db().list_audit(1).await.unwrap().remove(0);
    assert!(row.detail.contains("invalidDNSyntax") && !row.detail.contains("is unavailable:"), "{}", row.detail);

    let house = House::new(slapd.settings()).await;
    let carol = house.enter("carol").await.unwrap();
    assert_eq!(carol.role, Role::Admin);
    drop(ldap);
}

/// Names as hosts have them: a digit first, and the Unix account as the directory spells it.
#[tokio::test]
async fn names_are_as_hosts_have_them() {
    let slapd = Slapd::start();
    for (name, uid) in [("2130509g", 20_200), ("MixedCase", 20_201), ("2130509", 20_202)] {
        slapd.add_person(name, uid).await;
    }
    let house = House::new(slapd.settings()).await;
    let digits = house.enter("2130509g").await.unwrap();
    assert_eq!((digits.name.as_str(), digits.directory_unix_name), ("2130509g", None));
    let mixed = house.enter_with("mixedcase", &password("MixedCase")).await.unwrap();
    assert_eq!((mixed.name.as_str(), mixed.directory_unix_name.as_deref()), ("mixedcase", Some("MixedCase")));
    let account = Account::Hosts { uid: Some(20_201), spelled: Some("MixedCase".to_owned()) };
    assert_eq!(PortalUser::from(&mixed).account, account);
    let owner = house.db.owner_of_account("MixedCase").await.unwrap();
    assert_eq!(owner.map(|(id, _)| id), Some(mixed.id));
    assert!(house.refused("2130509", &password("2130509")).await.contains("not only digits"));

    let steps = probe::steps(&slapd.settings(), START).await;
    let note = steps
        .iter()
        .find(|step| step.is_note && step.outcome.as_ref().is_ok_and(|what| what.contains("because of their name")));
    let note = note.expect("check counts them").outcome.as_ref().unwrap();
    assert!(note.starts_with("4 of "), "root, -rf, a/b and digits alone: {note}");
}
