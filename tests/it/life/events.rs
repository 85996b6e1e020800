//! Events of a whole portal: read in pages, followed as they come, and delivered to webhooks: in their order, signed, again
//! after a receiver or the portal was away, and to each receiver whatever the others do.

use serde_json::{Value, json};

use super::{House, Person, eventually, jobs};
use crate::{needs, notifications::servers::Hook};

/// A portal that may call these receivers.
async fn house(hooks: &[&Hook]) -> Option<House> {
    if !needs::root() {
        return None;
    }
    let mut house = House::new(&[]);
    let hosts: Vec<String> = hooks.iter().map(|hook| format!("'127.0.0.1:{}'", hook.port)).collect();
    let hosts = hosts.join(", ");
    house.configure(&format!("[notifications]\nwebhook_hosts = [{hosts}]\nwebhook_networks = ['127.0.0.0/8']\n"));
    house.start().await;
    Some(house)
}

async fn add(house: &House, admin: &Person, hook: &Hook, types: &[&str]) -> Value {
    let (status, added) = admin.ask(house, "POST", "/webhooks", &json!({ "url": hook.url(), "types": types })).await;
    assert_eq!(status, 201, "{added}");
    added
}

/// What a receiver was sent: the types.
fn types(hook: &Hook) -> Vec<String> {
    let read = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["type"].as_str().unwrap().to_owned();
    hook.posts().iter().map(|post| read(&post.body)).collect()
}

fn work(code: i64) -> Value {
    let size = json!({ "cpus": 1, "memory_bytes": 64 << 20 });
    json!({ "command": ["/bin/sh", "-c", format!("exit {code}")], "resources": size })
}

#[tokio::test]
async fn events_are_read_in_pages_and_followed() {
    let Some(house) = house(&[]).await else { return };
    let (admin, ada) = (house.admin(), house.person());
    let request =
        admin.request(&house, "GET", "/api/v1/events?type=job.*,quota.*").header("accept", "text/event-stream");
    let mut stream = request.send().await.unwrap();
    let id = jobs::submit(&house, &ada, work(3)).await;
    jobs::ended(&house, &ada, &id, "exited").await;
    let mut told = String::new();
    while !told.contains("job.ended") {
        told += std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap();
    }
    let followed: Vec<Value> = told
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    let kinds: Vec<&str> = followed.iter().map(|event| event["type"].as_str().unwrap()).collect();
    // A program that ends at once may be over before it is seen to run.
    let told: Vec<&str> = kinds.into_iter().filter(|kind| !["job.running", "job.stopping"].contains(kind)).collect();
    assert_eq!(told, ["job.queued", "job.submit", "job.starting", "job.ended"]);
    let ended = followed.last().unwrap();
    assert_eq!(
        (&ended["job"], &ended["owner"], &ended["exit_code"]),
        (&json!(id), &json!(ada.name), &json!(3)),
        "{ended}"
    );
    assert_eq!(ended["end_reason"], "exited");

    // The same in pages of two, from the first of them on.
    let first = followed[0]["number"].as_i64().unwrap();
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&house, &format!("/events?type=job.*&limit=2&after={}{cursor}", first - 1)).await;
        let items = page["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2);
        pages.extend(items);
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, followed);
    // From the last one that a client has.
    let request = admin.request(&house, "GET", "/api/v1/events?after=0").header("accept", "text/event-stream");
    let last = ended["number"].as_i64().unwrap() - 1;
    let mut again = request.header("last-event-id", last.to_string()).send().await.unwrap();
    let told = again.chunk().await.unwrap().unwrap();
    assert!(std::str::from_utf8(&told).unwrap().contains(&format!("id: {}\n", last + 1)), "{told:?}");

    assert_eq!(ada.ask(&house, "GET", "/events", &Value::Null).await.0, 403);
    let (status, refused) = admin.ask(&house, "GET", "/events?after=-1", &Value::Null).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("after")));
    let (status, refused) = admin.ask(&house, "GET", "/events?type=job.ended,jobs.*", &Value::Null).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("type")), "no event has it: {refused}");
    let request = admin.request(&house, "GET", "/api/v1/events?limit=5").header("accept", "text/event-stream");
    assert_eq!(request.send().await.unwrap().status(), 422, "a stream has no pages");
}

/// A command that follows goes on after the last event that it has printed, whatever happens to the portal.
#[tokio::test]
async fn a_shell_follows_across_a_crash() {
    let Some(mut house) = house(&[]).await else { return };
    let port = house.url.rsplit(':').next().unwrap().parse().unwrap();
    house.listen_on(port);
    let (admin, ada) = (house.admin(), house.person());
    let first = jobs::submit(&house, &ada, work(0)).await;
    jobs::ended(&house, &ada, &first, "exited").await;
    let token = admin.authorization().trim_start_matches("Bearer ").to_owned();
    let printed = house.file("followed");
    let mut shell = std::process::Command::new(env!("CARGO_BIN_EXE_lyceum"))
        .args(["events", "--follow", "--from", "1", "--type", "job.*", "-o", "json"])
        .env("LYCEUM_URL", &house.url)
        .env("LYCEUM_TOKEN", token)
        .stdout(std::fs::File::create(&printed).unwrap())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let ended_of = async |id: &str| {
        eventually(&format!("the end of {id} is printed"), async || {
            let text = std::fs::read_to_string(&printed).unwrap();
            let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.any(|event| event["type"] == "job.ended" && event["job"] == *id).then_some(())
        })
        .await;
    };
    ended_of(&first).await;
    house.kill();
    house.start().await;
    let second = jobs::submit(&house, &ada, work(0)).await;
    ended_of(&second).await;
    shell.kill().unwrap();
    shell.wait().unwrap();
    let text = std::fs::read_to_string(&printed).unwrap();
    let followed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let all = admin.get(&house, "/events?type=job.*&limit=500").await;
    assert_eq!(json!(followed), all["items"], "each once, in order");
}

#[tokio::test]
async fn each_receiver_gets_its_events_in_order() {
    let (steady, late, refusing) = (Hook::start().await, Hook::start().await, Hook::start().await);
    let Some(mut house) = house(&[&steady, &late, &refusing]).await else { return };
    let (admin, ada) = (house.admin(), house.person());
    // One is away for a moment, and one refuses the first event.
    late.answer(503);
    refusing.answer(400);
    let hook = add(&house, &admin, &steady, &["job.*", "quota.*", "user.*"]).await;
    let id_of_late = add(&house, &admin, &late, &["job.ended"]).await["id"].as_str().unwrap().to_owned();
    let id_of_refusing = add(&house, &admin, &refusing, &["job.ended"]).await["id"].as_str().unwrap().to_owned();
    // Twenty jobs that start together, a user and a limit.
    let submitted = futures_util::future::join_all((0..20).map(|_| jobs::submit(&house, &ada, work(0)))).await;
    let new = json!({ "name": "newcomer", "password": "correct horse battery", "role": "user" });
    assert_eq!(admin.ask(&house, "POST", "/users", &new).await.0, 201);
    admin.allow(&house, &ada, json!({ "gpus": 1 })).await;
    for id in &submitted {
        jobs::ended(&house, &ada, id, "exited").await;
    }
    let wanted = |kind: &str| ["job.", "quota.", "user."].iter().any(|family| kind.starts_with(family));
    let page = admin.get(&house, "/events?limit=500").await;
    let begin = hook["position"].as_i64().unwrap();
    let items = page["items"].as_array().unwrap();
    let expected: Vec<i64> = items
        .iter()
        .filter(|one| wanted(one["type"].as_str().unwrap()))
        .filter_map(|one| one["number"].as_i64())
        .filter(|number| begin < *number)
        .collect();
    let numbers = |hook: &Hook| -> Vec<i64> {
        hook.posts()
            .iter()
            .map(|post| serde_json::from_slice::<Value>(&post.body).unwrap()["number"].as_i64().unwrap())
            .collect()
    };
    eventually("it has them all", async || (numbers(&steady).len() >= expected.len()).then_some(())).await;
    assert_eq!(numbers(&steady), expected, "each once, in order, beside one that is away");
    eventually("the one that was away has them too", async || (types(&late).len() == 21).then_some(())).await;
    let got = numbers(&late);
    assert_eq!(got[0], got[1], "the first one again, before the others");
    assert!(got[1..].is_sorted());
    eventually("the one that refused has the others", async || (types(&refusing).len() == 20).then_some(())).await;
    let state = eventually("that is stored", async || {
        let state = admin.get(&house, &format!("/webhooks/{id_of_refusing}")).await;
        state["delivered_at"].is_string().then_some(state)
    })
    .await;
    assert_eq!((&state["refused"], &state["attempts"]), (&json!(1), &json!(0)), "{state}");

    // As anybody can check it.
    let post = steady.posts().remove(0);
    let signature = post.headers["lyceum-signature"].to_str().unwrap().to_owned();
    let (time, mac) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let text = [format!("{time}.").as_bytes(), &post.body].concat();
    assert_eq!(mac, crate::notifications::signed(hook["secret"].as_str().unwrap(), &text));
    assert_eq!(post.headers["lyceum-event"], "job.queued");

    // What happens while the receiver and the portal are away comes when both are back.
    late.answer(500);
    let id = jobs::submit(&house, &ada, work(0)).await;
    jobs::ended(&house, &ada, &id, "exited").await;
    eventually("it was tried", async || (types(&late).len() == 22).then_some(())).await;
    eventually("that is stored", async || {
        let state = admin.get(&house, &format!("/webhooks/{id_of_late}")).await;
        (state["attempts"] == 1 && state["retry_at"].is_string() && state["error"].as_str()?.contains("500"))
            .then_some(())
    })
    .await;
    house.kill();
    house.start().await;
    eventually("it comes again", async || (types(&late).len() == 23).then_some(())).await;
    assert_eq!(numbers(&late)[21], numbers(&late)[22]);
}

#[tokio::test]
async fn webhooks_are_checked_tested_changed_and_removed() {
    let hook = Hook::start().await;
    let Some(house) = house(&[&hook]).await else { return };
    let admin = house.admin();
    for (request, field) in [
        (json!({ "url": "https://elsewhere.example.org/", "types": ["*"] }), "url"),
        (json!({ "url": hook.url(), "types": [] }), "types"),
        (json!({ "url": hook.url(), "types": ["jobs.*"] }), "types"),
        (json!({ "url": hook.url(), "types": ["job.finished"] }), "types"),
    ] {
        let (status, refused) = admin.ask(&house, "POST", "/webhooks", &request).await;
        assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!(field)), "{refused}");
    }
    let added = add(&house, &admin, &hook, &["user.add", "user.add"]).await;
    assert_eq!((&added["types"], &added["active"]), (&json!(["user.add"]), &json!(true)), "{added}");
    let path = format!("/webhooks/{}", added["id"].as_str().unwrap());
    let (_, tested) = admin.ask(&house, "POST", &format!("{path}/test"), &Value::Null).await;
    assert_eq!(tested, json!({ "delivered": true, "error": null }));
    assert_eq!(types(&hook), ["webhook.test"]);
    hook.answer(404);
    let (_, tested) = admin.ask(&house, "POST", &format!("{path}/test"), &Value::Null).await;
    assert_eq!(tested, json!({ "delivered": false, "error": "The webhook returned status 404." }));

    // One that is not active gets nothing; with another address it has another secret.
    let change = json!({ "url": format!("{}/other", hook.url()), "types": ["user.*"], "active": false });
    let (status, changed) = admin.ask(&house, "PUT", &path, &change).await;
    assert_eq!((status, &changed["active"]), (200, &json!(false)), "{changed}");
    assert_ne!(changed["secret"], added["secret"]);
    let new = |name: &str| json!({ "name": name, "password": "correct horse battery", "role": "user" });
    assert_eq!(admin.ask(&house, "POST", "/users", &new("missed")).await.0, 201);
    let active = json!({ "url": change["url"], "types": ["user.*"] });
    let (_, again) = admin.ask(&house, "PUT", &path, &active).await;
    assert_eq!(again["secret"], changed["secret"]);
    assert_eq!(admin.ask(&house, "POST", "/users", &new("told")).await.0, 201);
    eventually("it gets what comes now", async || (hook.posts().len() == 3).then_some(())).await;
    let told: Value = serde_json::from_slice(&hook.posts()[2].body).unwrap();
    assert_eq!((&told["type"], &told["subject"]), (&json!("user.add"), &json!("told")), "{told}");

    assert_eq!(admin.ask(&house, "DELETE", &path, &Value::Null).await.0, 204);
    assert_eq!(admin.ask(&house, "DELETE", &path, &Value::Null).await.0, 404);
    let second = json!({ "url": format!("{}/second", hook.url()), "types": ["user.add"] });
    assert_eq!(admin.ask(&house, "POST", "/webhooks", &second).await.0, 201);
    assert_eq!(admin.ask(&house, "POST", "/users", &new("late")).await.0, 201);
    eventually("another one is called", async || (hook.posts().len() == 4).then_some(())).await;
    assert!(hook.posts()[3].path.ends_with("/second"), "and not the one that was removed");
}
