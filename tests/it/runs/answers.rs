//! What the API answers: a curve in buckets with its spike, smoothed, by time, as a table, with
//! versions; many at once; and what comes, as it comes, also after the portal was killed.

use std::time::Duration;

use futures_util::StreamExt;
use lyceum::curves::{
    Item, Store,
    log::{Decoder, Encoder, Entry},
};
use serde_json::{Value, json};

use super::{external, points, read, register, store, train, trained};
use crate::{files::World, life::eventually, portal::TestPortal};

#[tokio::test]
async fn curves_are_answered_as_the_contract_says() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", lyceum::model::Role::User).await;
    let ada = portal.sign_in("ada").await;
    let id = external(&portal, owner, "first").await;
    let mut all: Vec<(&str, &str, i64, f64)> = (0..5000).map(|step| (".", "train/loss", step, 1.0)).collect();
    all[3210].3 = 1e6;
    all[77].3 = f64::NAN;
    all.extend([
        ("b", "only", 3, 0.75),
        ("b", "only", 5, 0.25),
        ("b", "only", 3, 0.5),
        ("a", "only", 1, f64::INFINITY),
    ]);
    store(&portal, id, &all);
    let get = async |path: &str| -> (u16, Value) {
        let answer = ada.get(&format!("/api/v1/runs/{id}/metrics{path}")).await;
        (answer.status().as_u16(), answer.json().await.unwrap())
    };

    let (_, metrics) = get("").await;
    let loss = &metrics["runs"][0]["tags"][0];
    assert_eq!((&loss["tag"], &loss["count"], &loss["last"]), (&json!("train/loss"), &json!(5000), &json!(1.0)));
    assert_eq!((&loss["max"], &loss["max_step"], &loss["nonfinite"]), (&json!(1e6), &json!(3210), &json!(1)));
    assert_eq!((&metrics["complete"], &metrics["truncated"]), (&json!(false), &json!(false)));
    let infinite = &metrics["runs"][1]["tags"][0];
    assert_eq!((&infinite["last"], &infinite["min"], &infinite["nonfinite"]), (&Value::Null, &Value::Null, &json!(1)));

    let (_, curve) = get("/train%2Floss?points=10").await;
    let buckets = curve["buckets"].as_array().unwrap();
    assert_eq!((buckets.len(), &curve["count"]), (10, &json!(5000)));
    let expected = json!({"count": 500, "first_step": 3000, "last_step": 3499, "min": 1.0, "min_step": 3000,
        "max": 1e6, "max_step": 3210, "mean": (499.0 + 1e6) / 500.0});
    assert_eq!(buckets[6], expected, "the spike is there, and nothing else is in a bucket");
    let nonfinite = json!([{"step": 77, "wall_time": 77.0, "value": "NaN"}]);
    assert_eq!((&curve["nonfinite"], &curve["nonfinite_count"]), (&nonfinite, &json!(1)));
    assert!(curve.get("smoothed").is_none() && curve.get("attempts").is_none());

    // On a logarithmic axis: step 0 alone, then as many buckets for each power of ten as there are steps for.
    for x in ["step", "relative"] {
        let (_, curve) = get(&format!("/train%2Floss?points=100&log=true&x={x}")).await;
        let buckets = curve["buckets"].as_array().unwrap();
        let counts: Vec<u64> = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).collect();
        assert_eq!((counts[0], &buckets[0]["last_step"], counts.iter().sum()), (1, &json!(0), 5000), "{x}");
        assert!(counts[..8] == [1; 8] && counts[counts.len() - 1] > 300, "{x}: {counts:?}");
        assert!(buckets.iter().any(|bucket| bucket["max"] == 1e6), "{x}: the spike is there");
    }

    let (_, part) = get("/train%2Floss?from=3200&to=3219&smoothing=0.5&points=100").await;
    assert_eq!(part["buckets"].as_array().unwrap().len(), 20, "a bucket a step");
    let smoothed = part["smoothed"].as_array().unwrap();
    assert!(smoothed.len() == 20 && smoothed[9] == 1.0);
    // A step is 1000 ÷ 4999 of the unit in which a value counts √0.5 as much.
    let left = 0.5_f64.sqrt().powf(1000.0 / 4999.0);
    let expected = 1.0 + (1e6 - 1.0) * (1.0 - left);
    assert!((smoothed[10].as_f64().unwrap() - expected).abs() < 1.0, "{} {expected}", smoothed[10]);
    let (_, part) = get("/train%2Floss?x=relative&from=10&to=20&points=50").await;
    assert_eq!(
        part["buckets"].as_array().unwrap().iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum::<u64>(),
        11
    );
    assert_eq!((&part["x"], &part["buckets"][0]["first_x"]), (&json!("relative"), &json!(10.0)));

    // Without a word the first directory that has it; what a later attempt wrote again is past.
    let (_, curve) = get("/only").await;
    assert_eq!((&curve["run"], &curve["buckets"][0]["min"]), (&json!("a"), &Value::Null));
    let (_, curve) = get("/only?run=b").await;
    assert_eq!((&curve["count"], curve["attempts"].as_array().unwrap().len()), (&json!(1), 2));
    for (query, field) in [
        ("?points=0", "points"),
        ("?smoothing=1", "smoothing"),
        ("?x=epoch", "x"),
        ("?from=NaN", "from"),
        ("?format=xml", "format"),
        ("?log=true&x=wall", "log"),
        ("?colour=1", "colour"),
    ] {
        let (status, body) = get(&format!("/only{query}")).await;
        assert_eq!((status, &body["errors"][0]["field"]), (422, &json!(field)), "{query}: {body}");
    }
    assert_eq!(get("/only?run=c").await.0, 404);
    assert_eq!(get("/nothing").await.0, 404);

    let answer = ada.get(&format!("/api/v1/runs/{id}/metrics/only?run=b&format=csv")).await;
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/csv"));
    assert_eq!(answer.text().await.unwrap(), "step,wall_time,value,attempt\n3,3,0.75,0\n5,5,0.25,0\n3,3,0.5,1\n");
    for path in ["", "/train%2Floss", "/train%2Floss?format=csv"] {
        let path = format!("/api/v1/runs/{id}/metrics{path}");
        let version = ada.get(&path).await.headers()["etag"].clone();
        let known = ada.clone().with("if-none-match", version.to_str().unwrap());
        let again = known.get(&path).await;
        assert_eq!((again.status().as_u16(), again.headers().get("etag")), (304, Some(&version)), "{path}");
        store(&portal, external(&portal, owner, "other").await, &[(".", "x", 1, 1.0)]);
        assert_eq!(known.get(&path).await.status(), 304);
    }

    let body = json!({"runs": [id.to_string()], "tags": ["only", "train/loss", "nothing"], "points": 5});
    let many: Value = ada.post("/api/v1/curves", &body).await.json().await.unwrap();
    let found: Vec<_> = many["items"].as_array().unwrap().iter().map(|item| (&item["run"], &item["tag"])).collect();
    assert_eq!(
        found,
        [(&json!("."), &json!("train/loss")), (&json!("a"), &json!("only")), (&json!("b"), &json!("only"))]
    );
    assert_eq!(many["items"][0]["id"], id.to_string());
    let body = json!({"runs": [uuid::Uuid::now_v7().to_string()], "tags": ["only"]});
    assert_eq!(ada.post("/api/v1/curves", &body).await.status(), 404);
    let body = json!({"runs": vec![id.to_string(); 101], "tags": []});
    assert_eq!(ada.post("/api/v1/curves", &body).await.status(), 422);
}

#[tokio::test]
async fn a_curve_is_answered_over_another() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", lyceum::model::Role::User).await;
    let ada = portal.sign_in("ada").await;
    let id = external(&portal, owner, "first").await;
    // The loss falls from 5000 on; the accuracy is measured at every hundredth step.
    let mut all: Vec<(&str, &str, i64, f64)> =
        (0..5000_i32).map(|step| (".", "train/loss", step.into(), f64::from(5000 - step))).collect();
    all.extend((5..50_i32).map(|epoch| (".", "val/accuracy", i64::from(epoch) * 100, f64::from(epoch) / 100.0)));
    all.extend([(".", "unsteady", 0, f64::NAN), (".", "unsteady", 300, 2.0), ("a", "elsewhere", 1, 7.0)]);
    store(&portal, id, &all);
    let get = async |path: &str| -> (u16, Value) {
        let answer = ada.get(&format!("/api/v1/runs/{id}/metrics{path}")).await;
        (answer.status().as_u16(), answer.json().await.unwrap())
    };
    let field = |curve: &Value, name: &str| -> Vec<f64> {
        curve["buckets"].as_array().unwrap().iter().map(|bucket| bucket[name].as_f64().unwrap()).collect()
    };
    let (_, curve) = get("/val%2Faccuracy?x=metric&by=train%2Floss&points=100").await;
    assert_eq!((&curve["x"], curve["buckets"].as_array().unwrap().len()), (&json!("metric"), 45), "a bucket a point");
    let (places, values) = (field(&curve, "first_x"), field(&curve, "mean"));
    assert!((places[0] - 100.0).abs() < 1e-9 && (values[0] - 0.49).abs() < 1e-9, "the least loss stands left: {curve}");
    assert!(places.is_sorted() && values.is_sorted_by(|one, other| one > other), "{places:?} {values:?}");
    let (_, part) = get("/val%2Faccuracy?x=metric&by=train%2Floss&from=1000&to=2000&points=100").await;
    assert_eq!(field(&part, "first_x"), (10..=20).map(|at| f64::from(at) * 100.0).collect::<Vec<_>>());
    let many =
        json!({"runs": [id.to_string()], "tags": ["val/accuracy"], "x": "metric", "by": "train/loss", "points": 100});
    let many: Value = ada.post("/api/v1/curves", &many).await.json().await.unwrap();
    assert_eq!(many["items"][0]["buckets"], curve["buckets"]);

    // Between two of its points the other curve stands where it was; before the first it has no place.
    let (_, curve) = get("/train%2Floss?x=metric&by=val%2Faccuracy&points=10&smoothing=0.5").await;
    let counts: f64 = field(&curve, "count").iter().sum();
    assert!((counts - 4500.0).abs() < 1e-9 && curve["buckets"].as_array().unwrap().len() == 10, "{curve}");
    assert_eq!((&curve["buckets"][0]["min"], &curve["buckets"][0]["max"]), (&json!(4001.0), &json!(4500.0)));
    assert!(curve.get("smoothed").is_none(), "there is no before and after");
    let (first, last) = (field(&curve, "first_x"), field(&curve, "last_x"));
    assert!(first.iter().zip(&last).all(|(first, last)| first <= last) && first.is_sorted(), "{curve}");
    let (_, curve) = get("/train%2Floss?x=metric&by=unsteady&points=10000").await;
    assert_eq!(field(&curve, "count").len(), 4700, "what is no number is no place");
    let (_, curve) = get("/train%2Floss?x=metric&by=elsewhere&points=10000").await;
    assert_eq!(field(&curve, "first_x").first(), Some(&7.0), "of another directory");
    for query in ["x=metric", "by=train%2Floss", "x=step&by=train%2Floss"] {
        let (status, body) = get(&format!("/val%2Faccuracy?{query}")).await;
        assert_eq!((status, &body["errors"][0]["field"]), (422, &json!("by")), "{query}");
    }
    assert_eq!(get("/val%2Faccuracy?x=metric&by=nothing").await.0, 404);
}

#[tokio::test]
async fn runs_from_a_shell() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", lyceum::model::Role::User).await;
    let ada = portal.sign_in("ada").await;
    let made: Value = ada.post("/api/v1/tokens", &json!({ "name": "shell" })).await.json().await.unwrap();
    let id = external(&portal, owner, "first").await;
    store(&portal, id, &[(".", "train/loss", 1, 0.5), (".", "train/loss", 2, 0.25), ("val", "a b%", 2, 1.0)]);
    let id = id.to_string();
    let run = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.arg("run").args(arguments).env("LYCEUM_URL", &portal.url);
        let output = command.env("LYCEUM_TOKEN", made["secret"].as_str().unwrap()).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, said, errors) = run(&["list"]).await;
    assert!(code == Some(0) && said.contains("first") && said.contains(&id[id.len() - 8..]), "{said} {errors}");
    let (_, said, errors) = run(&["show", &id[..30]]).await;
    assert!(said.contains("train/loss") && said.contains("0.25") && said.contains("val"), "{said} {errors}");
    let (_, said, errors) = run(&["csv", &id, "train/loss"]).await;
    assert_eq!(said, "step,wall_time,value,attempt\n1,1,0.5,0\n2,2,0.25,0\n", "{errors}");
    let (_, said, errors) = run(&["csv", &id, "a b%", "--run", "val"]).await;
    assert_eq!(said, "step,wall_time,value,attempt\n2,2,1,0\n", "{errors}");
    let (_, said, errors) = run(&["curve", &id, "a b%", "--x", "metric", "--by", "train/loss"]).await;
    let curve: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said} {errors}"));
    assert_eq!((&curve["count"], &curve["buckets"][0]["first_x"]), (&json!(1), &json!(0.25)));
    let (code, said, errors) = run(&["results", "--where", "name ~ first", "--sort", "-name"]).await;
    assert!(code == Some(0) && said.contains("first"), "{said} {errors}");
    assert!(run(&["results", "--where", "name ~ other"]).await.1.contains("no runs match"));
    let (code, said, errors) = run(&["change", &id, "--name", "second"]).await;
    assert!(code == Some(0) && said.contains("second"), "{said} {errors}");
    assert_eq!(run(&["change", &id]).await.0, Some(2), "nothing was said");
    let (code, said, errors) = run(&["forget", &id]).await;
    assert!(code == Some(0) && said.contains("was removed"), "{said} {errors}");
    assert_eq!(run(&["show", &id]).await.0, Some(66));
    assert!(run(&["list"]).await.1.starts_with("no runs"));
}

#[tokio::test]
async fn a_clock_that_jumps_loses_nothing() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", lyceum::model::Role::User).await;
    let ada = portal.sign_in("ada").await;
    let id = external(&portal, owner, "first").await;
    // An hour back at step 400, no time at all at step 500, a century ahead at step 800.
    let clock = |step: i32| match step {
        500 => f64::NAN,
        ..400 => 1e9 + f64::from(step),
        400..800 => 1e9 - 3600.0 + f64::from(step),
        _ => 4e9 + f64::from(step),
    };
    let mut encoder = Encoder::default();
    for step in 0..1000_i32 {
        let item = Item::Scalar { tag: b"loss", step: step.into(), wall_time: clock(step), value: step.into() };
        encoder.entry(&Entry::Item { run: ".", item });
    }
    let path = portal.directory.path().join("curves").join(format!("{id}.points"));
    let mut store = Store::open(&path, u64::MAX).unwrap();
    store.add(&mut Decoder::default(), &encoder.take(), &mut |_| {}).unwrap();
    for x in ["step", "wall", "relative"] {
        for points in [10, 10_000] {
            let answer = ada.get(&format!("/api/v1/runs/{id}/metrics/loss?x={x}&points={points}")).await;
            let curve: Value = answer.json().await.unwrap();
            let buckets = curve["buckets"].as_array().unwrap();
            let count: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
            let expected = if x == "step" { 1000 } else { 999 };
            assert_eq!((count, &curve["count"]), (expected, &json!(1000)), "{x} {points}");
            let most = buckets.iter().filter_map(|bucket| bucket["max"].as_f64()).fold(0.0, f64::max);
            assert!((most - 999.0).abs() < 1e-9, "{x} {points}: {most}");
            let places: Vec<f64> = buckets.iter().filter_map(|bucket| bucket["first_x"].as_f64()).collect();
            assert!(points == 10 || places.is_sorted(), "{x}");
        }
    }
    let csv = ada.get(&format!("/api/v1/runs/{id}/metrics/loss?format=csv")).await.text().await.unwrap();
    assert_eq!(csv.lines().count(), 1001);
}

#[tokio::test]
async fn a_run_is_shared_and_named() {
    let Some(world) = World::open(&[]).await else { return };
    let (other, _) = world.neighbour().await;
    trained(&world.home().join("logs"), "--rate 0 --steps 10");
    let run = read(&world, "logs", 30).await;
    let path = format!("/runs/{run}");
    let ask = async |person: &crate::life::Person, method: &str, body: Value| {
        person.ask(&world.house, method, &path, &body).await
    };
    assert_eq!(ask(&other, "GET", Value::Null).await.0, 404);
    let (status, body) = ask(&world.person, "PATCH", json!({"visibility": "everybody", "name": "ours"})).await;
    assert_eq!((status, &body["name"], &body["visibility"]), (200, &json!("ours"), &json!("everybody")));
    let (status, body) = ask(&other, "GET", Value::Null).await;
    assert_eq!((status, &body["is_owner"]), (200, &json!(false)));
    assert_eq!(ask(&other, "PATCH", json!({"name": "mine"})).await.0, 403);
    let listed = other.get(&world.house, "/runs").await;
    assert_eq!(listed["items"][0]["id"], run.as_str());
    let (status, body) = ask(&world.person, "PATCH", json!({"visibility": "group", "group": "nobody"})).await;
    assert_eq!((status, &body["errors"][0]["code"]), (422, &json!("unknown_group")), "{body}");
    assert_eq!(ask(&world.person, "PATCH", json!({"visibility": "private"})).await.0, 200);
    assert_eq!(ask(&other, "GET", Value::Null).await.0, 404);
    for (request, field) in [
        (json!({"directory": "~/nowhere"}), "directory"),
        (json!({"directory": "a/../b"}), "directory"),
        (json!({"directory": "~/logs/checkpoint.json"}), "directory"),
        (json!({"directory": "~/logs", "session": uuid::Uuid::now_v7().to_string()}), "session"),
        (json!({"directory": "~/logs", "group": "x"}), "group"),
        (json!({"directory": "~/logs", "name": "x".repeat(201)}), "name"),
    ] {
        let (status, body) = world.person.ask(&world.house, "POST", "/runs", &request).await;
        assert_eq!((status, &body["errors"][0]["field"]), (422, &json!(field)), "{request}: {body}");
    }
    // Asked twice with one key it is one run.
    let post = || world.person.request(&world.house, "POST", "/api/v1/runs").header("idempotency-key", "once");
    let body = json!({"directory": "~/logs"});
    let first: Value = post().json(&body).send().await.unwrap().json().await.unwrap();
    let second: Value = post().json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(first["id"], second["id"]);
}

/// Events of a run: id, name, data.
async fn events(
    world: &World,
    run: &str,
    since: Option<&str>,
    mut enough: impl FnMut(&[(String, String, Value)]) -> bool,
) -> Vec<(String, String, Value)> {
    let mut request = world.person.request(&world.house, "GET", &format!("/api/v1/runs/{run}/events"));
    if let Some(since) = since {
        request = request.header("last-event-id", since);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut stream = answer.bytes_stream();
    let (mut text, mut found) = (String::new(), Vec::new());
    while !enough(&found) {
        let piece = tokio::time::timeout(Duration::from_mins(2), stream.next()).await.expect("something comes");
        text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        while let Some((event, rest)) = text.split_once("\n\n") {
            let field = |name: &str| {
                let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.unwrap_or_default().trim().to_owned()
            };
            let (id, name, data) = (field("id"), field("event"), field("data"));
            if !name.is_empty() {
                found.push((id, name, serde_json::from_str(&data).unwrap()));
            }
            text = rest.to_owned();
        }
    }
    found
}

/// The steps of a curve that events told.
fn told(events: &[(String, String, Value)], tag: &str) -> Vec<i64> {
    let curves =
        events.iter().filter(|(_, name, _)| name == "points").flat_map(|(.., data)| data["curves"].as_array().unwrap());
    let points = curves.filter(|curve| curve["tag"] == tag).flat_map(|curve| curve["points"].as_array().unwrap());
    points.map(|point| point[0].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn what_comes_is_told_and_nothing_twice() {
    let Some(mut world) = World::open(&[]).await else { return };
    let session = world.person.run(&world.house, "web").await;
    let run = register(&world, &world.person, json!({"directory": "~/live", "session": session})).await;
    let mut trainer = train(&world.home().join("live"), "--rate 50 --steps 700 --steps-per-epoch 10");
    let first = events(&world, &run, Some("0"), |events| told(events, "train/loss").len() > 50).await;
    let last = first.iter().rev().find(|(_, name, _)| name == "points").unwrap().0.clone();
    let heard = told(&first, "train/loss");
    // The portal dies; whoever listened comes back with what they heard last.
    world.house.restart().await;
    let rest = events(&world, &run, Some(&last), |events| told(events, "train/loss").last() == Some(&699)).await;
    assert!(trainer.wait().unwrap().success());
    let all: Vec<i64> = heard.into_iter().chain(told(&rest, "train/loss")).collect();
    assert_eq!(all, (0..700).collect::<Vec<_>>());
    assert_eq!(points(&world, &world.person, &run, "train%2Floss").await.len(), 700);
    // A writer that begins anew takes points back.
    let run_now = world.person.get(&world.house, &format!("/runs/{run}/metrics")).await["revision"].to_string();
    trained(&world.home().join("live"), "--rate 0 --steps 705 --resume");
    let taken_back =
        events(&world, &run, Some(&run_now), |events| events.iter().any(|(_, name, _)| name == "reset")).await;
    assert!(told(&taken_back, "train/loss").is_empty());
    // The end is told too.
    world.person.stop(&world.house, session).await;
    let end = events(&world, &run, None, |events| events.iter().any(|(.., data)| data["complete"] == true)).await;
    assert_eq!(end.last().unwrap().1, "state");
    let answer = world.person.request(&world.house, "GET", &format!("/api/v1/runs/{run}/events"));
    assert_eq!(answer.header("last-event-id", "x").send().await.unwrap().status(), 422);
    eventually("its curve is whole", async || {
        (points(&world, &world.person, &run, "train%2Floss").await.len() == 705).then_some(())
    })
    .await;
}
