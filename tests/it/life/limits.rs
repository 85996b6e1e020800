//! Quotas and the machine's own size, with real sessions: GPUs are counted and numbered, what
//! does not fit waits with a sentence or is refused, and no crowd gets past a limit.

use std::collections::BTreeSet;

use lyceum::model::SessionId;
use serde_json::{Value, json};

use super::{House, Interval, Person, eventually, person};

fn terminal(gpus: i64) -> Value {
    json!({ "app": "terminal", "resources": { "gpus": gpus } })
}

fn indices(session: &Value) -> Vec<i64> {
    session["gpus"].as_array().unwrap().iter().map(|gpu| gpu["index"].as_i64().unwrap()).collect()
}

async fn live(house: &House, person: &Person) -> Vec<Value> {
    let all = person.get(house, "/sessions?limit=500").await;
    all["items"].as_array().unwrap().iter().filter(|session| session["state"] != "ended").cloned().collect()
}

#[tokio::test]
async fn gpus_are_counted_numbered_and_waited_for() {
    let Some(house) = House::open(&[]).await else { return };
    let (ada, bob, admin) = (house.person(), house.person(), house.admin());
    let outcome = async |who: &Person, request: Value| {
        let (status, answer) = who.ask(&house, "POST", "/admission", &request).await;
        assert_eq!(status, 200, "{answer}");
        (answer["outcome"].as_str().unwrap().to_owned(), answer["reasons"][0]["code"].clone())
    };

    // One GPU a person, unless somebody says otherwise; more than that never fits.
    assert_eq!(outcome(&ada, terminal(2)).await, ("refuse".to_owned(), json!("quota.gpus.user")));
    let (status, refused) = ada.ask(&house, "POST", "/sessions", &terminal(2)).await;
    assert_eq!((status, &refused["reasons"][0]["limit"]), (409, &json!(1)), "{refused}");
    assert!(live(&house, &ada).await.is_empty(), "nothing was created");
    admin.allow(&house, &ada, json!({ "gpus": 8, "sessions": -1 })).await;

    let mut held: Vec<SessionId> = Vec::new();
    for _ in 0..4 {
        assert_eq!(outcome(&ada, terminal(1)).await.0, "admit");
        held.push(ada.start(&house, terminal(1)).await);
    }
    let mut seen = BTreeSet::new();
    for id in &held {
        seen.extend(indices(&ada.state(&house, *id, "running").await));
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]), "each has another one");
    assert_eq!(outcome(&ada, terminal(1)).await, ("wait".to_owned(), json!("capacity.gpus")));
    let fifth = ada.start(&house, terminal(1)).await;
    let waiting = ada.session(&house, fifth).await;
    let hint = "All of the machine's 4 GPUs are in use. This starts when something ends.";
    assert_eq!((&waiting["state"], &waiting["reasons"][0]["hint"]), (&json!("queued"), &json!(hint)));
    assert_eq!(outcome(&ada, terminal(5)).await, ("refuse".to_owned(), json!("capacity.gpus")));
    let (status, refused) = ada.ask(&house, "POST", "/sessions", &terminal(5)).await;
    assert_eq!((status, &refused["reasons"][0]["code"]), (409, &json!("capacity.gpus")), "{refused}");

    let freed = indices(&ada.session(&house, held[2]).await);
    ada.end(&house, held.remove(2)).await;
    assert_eq!(indices(&ada.state(&house, fifth, "running").await), freed);
    held.push(fifth);

    // Lowering kills nothing, and who is over waits until the new limit has room.
    let bobs = bob.start(&house, terminal(1)).await;
    admin.allow(&house, &ada, json!({ "gpus": 2 })).await;
    assert_eq!(outcome(&ada, terminal(1)).await.1, "quota.gpus.user");
    let sixth = ada.start(&house, terminal(1)).await;
    ada.end(&house, held.remove(0)).await;
    bob.state(&house, bobs, "running").await;
    ada.end(&house, held.remove(0)).await;
    let waiting = ada.session(&house, sixth).await;
    assert_eq!((&waiting["state"], &waiting["reasons"][0]["limit"]), (&json!("queued"), &json!(2)), "{waiting}");
    for id in &held {
        assert_eq!(ada.session(&house, *id).await["state"], "running");
    }
    // Raising lets it in at once; a limit that it can never fit ends one that waits.
    admin.allow(&house, &ada, json!({ "gpus": 3 })).await;
    ada.state(&house, sixth, "running").await;
    let seventh = ada.start(&house, terminal(2)).await;
    assert_eq!(ada.session(&house, seventh).await["state"], "queued");
    admin.allow(&house, &ada, json!({ "gpus": 1 })).await;
    ada.ended(&house, seventh, "refused").await;
    admin.allow(&house, &ada, json!({ "gpus": null })).await;
    assert_never_over(&house.intervals().await, 4);
}

#[tokio::test]
async fn one_key_is_one_session_and_a_crowd_stays_within_limits() {
    let Some(house) = House::open(&[]).await else { return };
    let (ada, bob, admin) = (house.person(), house.person(), house.admin());
    let with_key = async |who: &Person, key: &str, body: Value| {
        let request = who.request(&house, "POST", "/api/v1/sessions").header("idempotency-key", key).json(&body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let crowd = (0..20).map(|_| with_key(&ada, "one", terminal(0)));
    let answers = futures_util::future::join_all(crowd).await;
    let ids: BTreeSet<_> = answers.iter().map(|(status, body)| (*status, person::id(body).to_string())).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(live(&house, &ada).await.len(), 1);
    let (status, body) = with_key(&ada, "one", terminal(1)).await;
    assert!(status == 409 && body["detail"].as_str().unwrap().contains("idempotency key"), "{body}");
    assert_eq!(with_key(&bob, "one", terminal(0)).await.0, 201, "another person's key is another key");

    // Two people, 100 requests each, for four GPUs: three may be Ada's, two Bob's.
    let limits = |gpus: i64| json!({ "gpus": gpus, "sessions": -1, "light": -1, "pending": 4 });
    admin.allow(&house, &ada, limits(3)).await;
    admin.allow(&house, &bob, limits(2)).await;
    let crowd = (0..200).map(|n| {
        let who = if n % 2 == 0 { ada.clone() } else { bob.clone() };
        let house = &house;
        async move { who.ask(house, "POST", "/sessions", &terminal(1)).await }
    });
    let mut statuses = [0, 0];
    for (status, body) in futures_util::future::join_all(crowd).await {
        match status {
            201 => statuses[0] += 1,
            409 if body["reasons"][0]["code"] == "quota.pending.user" => statuses[1] += 1,
            _ => panic!("{status}: {body}"),
        }
    }
    assert_eq!(statuses, [4 + 8, 188], "what fits the machine, and four that wait each");

    // They come and go until all had their turn.
    eventually("all had their turn", async || {
        let mut left = 0;
        for who in [&ada, &bob] {
            for session in live(&house, who).await {
                if session["resources"]["gpus"] == 1 {
                    left += 1;
                    if session["state"] == "running" {
                        who.stop(&house, person::id(&session)).await;
                    }
                }
            }
        }
        (left == 0).then_some(())
    })
    .await;
    let intervals = house.intervals().await;
    assert_eq!(intervals.iter().filter(|interval| interval.gpus == 1).count(), 12);
    assert_never_over(&intervals, 4);
}

/// At no moment more GPUs than there are, and no GPU held twice.
fn assert_never_over(intervals: &[Interval], gpus: i64) {
    for at in intervals {
        let now: Vec<&Interval> = intervals.iter().filter(|one| one.from <= at.from && at.from < one.to).collect();
        let held: Vec<i64> = now.iter().flat_map(|one| one.indices.iter().copied()).collect();
        assert!(now.iter().map(|one| one.gpus).sum::<i64>() <= gpus, "{now:?}");
        assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), held.len(), "{now:?}");
    }
}
