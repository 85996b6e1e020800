//! Many that are posted at once: twenty jobs, an array of fifty and ten terminals. All of them run, none is left
//! in a state of its own, and each has its time limit.

use futures_util::future::join_all;
use lyceum::model::{SessionId, Timestamp};
use serde_json::{Value, json};

use super::{House, Person, eventually, jobs};

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn all_that_is_posted_at_once_runs() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    for id in post(&house, &person).await {
        person.end(&house, id).await;
    }
}

/// Posts everything at once, and waits until all jobs have ended well; the terminals still run.
pub async fn post(house: &House, person: &Person) -> Vec<SessionId> {
    let unlimited = json!({ "jobs": -1, "pending": -1, "sessions": -1, "light": -1 });
    house.admin().allow(house, person, unlimited).await;
    let size = json!({ "cpus": 1, "memory_bytes": 128 * MIB });
    let job = |number: usize| {
        // Each has a folder of its own, which is looked at before the answer.
        let log_directory = format!("~/runs-{number}");
        json!({
            "command": ["true"], "resources": size, "time_limit_seconds": 600, "log_directory": log_directory,
        })
    };
    let array = json!({ "command": ["true"], "resources": size, "time_limit_seconds": 600, "array": "0-49" });
    let terminal = json!({ "app": "terminal", "resources": size, "duration_seconds": 600 });
    let posts = (0..20)
        .map(|number| ("/jobs", job(number)))
        .chain([("/jobs", array)])
        .chain(std::iter::repeat_n(("/sessions", terminal), 10));
    let posts: Vec<(&str, Value)> = posts.collect();
    let answers = join_all(posts.iter().map(|(path, asked)| person.ask(house, "POST", path, asked))).await;
    let (mut ids, mut terminals) = (Vec::new(), Vec::new());
    for ((path, _), (status, body)) in posts.iter().zip(answers) {
        assert_eq!(status, 201, "{path}: {body}");
        match *path {
            "/sessions" => terminals.push(super::person::id(&body)),
            _ => ids.push((body["id"].as_str().unwrap().to_owned(), body["sweep"].as_str().map(str::to_owned))),
        }
    }
    for (id, sweep) in ids {
        match sweep {
            None => assert_eq!(jobs::ended(house, person, &id, "exited").await["exit_code"], 0),
            Some(sweep) => {
                let sweep = eventually("the array has ended", async || {
                    let sweep = person.get(house, &format!("/sweeps/{sweep}")).await;
                    (sweep["state"] == "ended").then_some(sweep)
                })
                .await;
                let tasks = sweep["items"].as_array().unwrap();
                assert!(tasks.len() == 50 && tasks.iter().all(|task| task["exit_code"] == 0), "{sweep}");
            }
        }
    }
    for id in &terminals {
        let terminal = person.state(house, *id, "running").await;
        let moment = |name: &str| serde_json::from_value::<Timestamp>(terminal[name].clone()).unwrap();
        // From its true start, of which the portal may hear a few seconds later.
        let granted = moment("expires_at").seconds_since(moment("started_at"));
        let to_ready = moment("ready_at").seconds_since(moment("started_at"));
        assert!((585..=602 + to_ready).contains(&granted), "{granted} s, ready after {to_ready} s: {terminal}");
    }
    terminals
}
