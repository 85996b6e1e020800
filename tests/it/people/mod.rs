//! People and groups over the running portal: what administrators change and who may not, what
//! managers of groups see, how fast access ends, and that each change is in the audit table.

mod access;
mod accounts;
mod dormant;
mod expiry;
mod groups;
mod import;
mod invitations;
mod service;

use lyceum::{
    db::directory::{ArrivalOutcome, Group, Person},
    model::{Role, UserId, Username},
};
use reqwest::Response;
use serde_json::Value;

use crate::portal::TestPortal;

/// The status, and the first field with its code where there is one.
async fn outcome(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap_or_default();
    let error = &body["errors"][0];
    (status, format!("{} {}", error["field"].as_str().unwrap_or(""), error["code"].as_str().unwrap_or("")))
}

/// The last rows of the audit table, newest first: who, what, whom, how.
async fn audit(portal: &TestPortal, count: i64) -> Vec<String> {
    let rows = portal.db().list_audit(count).await.unwrap();
    rows.into_iter().map(|row| format!("{} {} {} {}", row.actor, row.action, row.subject, row.detail)).collect()
}

/// Somebody whom a directory has sent, in these groups.
pub async fn of_directory(portal: &TestPortal, name: &str, role: Role, groups: &[&str]) -> UserId {
    let groups: Vec<Group> =
        groups.iter().map(|name| Group { subject: format!("cn={name}"), name: (*name).to_owned() }).collect();
    let person = Person {
        source: "ldap",
        subject: &format!("entryUUID={name}"),
        name: &Username::parse(name).unwrap(),
        display_name: "",
        mail: None,
        uid_number: None,
        unix_name: None,
        role: Some(role),
        groups: &groups,
    };
    match portal.db().arrive(&person, portal.clock.now()).await.unwrap() {
        ArrivalOutcome::Known(id) => id,
        other => panic!("{name}: {other:?}"),
    }
}
