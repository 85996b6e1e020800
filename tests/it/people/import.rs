//! Users from a CSV file, on the page: the preview changes nothing, exactly the plan that was shown is carried out, and
//! by one of those who confirm it together; faults are reported with their lines.

use futures_util::future::join_all;
use lyceum::model::Role;

use super::of_directory;
use crate::portal::{Caller, TestPortal};

const TABLE: &str =
    "User name;Full name;Role;Groups;E-mail\r\nada;Ada Lovelace;;vision speech;a@b.org\r\nbob;;operator;vision;\r\n";

async fn portal() -> (TestPortal, Caller) {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let boss = portal.sign_in("boss").await.with("accept", "text/html");
    (portal, boss)
}

/// Sends a table, with the version of a plan or none; the status and the page.
async fn send(boss: &Caller, table: &str, version: &str) -> (u16, String) {
    let answer = boss.post_form("/admin/import", &[("table", table), ("version", version)]).await;
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn version(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"version\" value=\"").unwrap_or_else(|| panic!("no plan: {page}"));
    rest.split_once('"').unwrap().0.to_owned()
}

async fn rows(portal: &TestPortal) -> i64 {
    portal.db().list_audit(1).await.unwrap()[0].number
}

#[tokio::test]
async fn a_table_is_shown_and_then_imported_once() {
    let (portal, boss) = portal().await;
    let before = rows(&portal).await;
    let (status, page) = send(&boss, TABLE, "").await;
    for shown in ["2 new users", "2 new groups", "3 new members of groups", "E-mail", "Ada Lovelace", "role=operator"] {
        assert!(page.contains(shown), "{status} {shown}: {page}");
    }
    assert_eq!((status, rows(&portal).await), (200, before), "a preview changes nothing");
    assert!(!page.contains("/welcome#"));

    // A double click, and three more who confirm at the same moment.
    let version = version(&page);
    let answers = join_all((0..5).map(|_| send(&boss, TABLE, &version))).await;
    let links = answers.iter().filter(|(_, page)| page.contains("/welcome#")).count();
    assert_eq!(links, 1, "{answers:?}");
    for (status, page) in &answers {
        assert!(*status == 200 && page.contains("/welcome#") != page.contains("have changed since"), "{page}");
    }
    let (_, done) = answers.iter().find(|(_, page)| page.contains("/welcome#")).unwrap();
    assert!(done.contains(&format!("ada,{}/welcome#", portal.url)), "the whole address: {done}");
    let ada = portal.db().find_user_by_name("ada").await.unwrap().unwrap().user;
    assert_eq!(
        (ada.display_name.as_str(), ada.groups.as_slice()),
        ("Ada Lovelace", &["speech".into(), "vision".into()][..])
    );
    assert_eq!(portal.db().find_user_by_name("bob").await.unwrap().unwrap().user.role, Role::Operator);

    let (_, again) = send(&boss, TABLE, "").await;
    assert!(again.contains("Nothing to import") && !again.contains("name=\"version\""), "{again}");
    // Nobody leaves a group because a later table does not list them.
    let (_, later) = send(&boss, "name,groups,expires_at\nada,vision,2099-01-31\n", "").await;
    assert!(later.contains("1 changed user") && !later.contains("member"), "{later}");
}

#[tokio::test]
async fn faults_are_told_by_their_lines_and_nothing_is_changed() {
    let (portal, boss) = portal().await;
    of_directory(&portal, "lea", Role::User, &["staff"]).await;
    let before = rows(&portal).await;
    let table =
        "name,role,groups\nada,boss,vision\nA b,user,vision\nada,user,\nlea,,staff\nboss,user,\ncyd,,Bad/Group\n";
    let (status, page) = send(&boss, table, "").await;
    assert_eq!((status, rows(&portal).await), (422, before));
    for fault in [
        "Line 2, role: A role is",
        "Line 3, name: ",
        "Line 4, name: ",
        "Line 5, groups: ",
        "Line 6, role: ",
        "Line 7, groups: ",
    ] {
        assert!(page.contains(fault), "{fault}: {page}");
    }
    assert!(
        page.contains("ada,boss,vision") && !page.contains("name=\"version\""),
        "the table is there to be corrected"
    );

    // What was confirmed is judged again: another table, and a site that has changed.
    let good = "name,groups\nada,vision\n";
    let plan = version(&send(&boss, good, "").await.1);
    portal.add_user("ada", Role::User).await;
    let (status, page) = send(&boss, good, &plan).await;
    assert!(status == 200 && page.contains("have changed since") && version(&page) != plan, "{page}");
    assert!(!page.contains("1 new user") && page.contains("1 new group"), "{page}");
    portal.add_user("omar", Role::Operator).await;
    let omar = portal.sign_in("omar").await;
    assert_eq!(omar.post_form("/admin/import", &[("table", good), ("version", &plan)]).await.status(), 403);
    assert!(portal.db().find_groups("vision").await.unwrap().is_empty());
}
