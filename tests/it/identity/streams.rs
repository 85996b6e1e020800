//! Event streams: each costs a look at its login every few seconds, so nobody has more than
//! they can have a use for, and who has too many is told so.

use lyceum::model::Role;
use serde_json::Value;

use crate::{portal::TestPortal, wait::eventually};

#[tokio::test]
async fn nobody_has_more_streams_than_they_may() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let mut open = Vec::new();
    let refused = loop {
        let answer = alice.get("/events").await;
        if answer.status() != 200 {
            break answer;
        }
        open.push(answer);
        assert!(open.len() <= 64, "there is no end");
    };
    assert_eq!((open.len(), refused.status().as_u16()), (64, 429));
    assert_eq!(refused.headers()["retry-after"], "5");
    let told: Value = refused.json().await.unwrap();
    assert!(told["detail"].as_str().unwrap().contains("Close some of them first"), "{told}");
    assert_eq!(alice.get("/api/v1/me").await.status(), 200, "everything else goes on");
    let bob = portal.sign_in("bob").await;
    assert_eq!(bob.get("/events").await.status(), 200, "one person's streams are nobody else's");

    open.pop();
    eventually("a closed stream makes room", async || {
        Some(alice.get("/events").await).filter(|answer| answer.status() == 200)
    })
    .await;
}
