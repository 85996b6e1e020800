//! Bad input against the running portal: the real routers behind the real accept loops, and
//! clients that speak bytes, so that no library tidies up what is said. Whatever comes, the
//! answer is a refusal that has one meaning, nothing is half done, and the portal goes on.

mod bodies;
mod framing;
mod fuzz;
mod heads;
mod named;
mod nodes;
mod proxied;
mod quotas;
mod secrets;
mod slow;
mod xss;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::portal::{Caller, dial};

/// Longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);

/// Says these bytes to a listener and reads until it closes. What is accepted must therefore
/// say `Connection: close`.
async fn say(url: &str, bytes: &[u8]) -> String {
    let mut stream = dial(url).await;
    let mut answer = Vec::new();
    let talk = async {
        // A portal that has heard enough stops reading, and a reset says "closed" as well.
        let (mut read, mut write) = stream.split();
        tokio::join!(
            async {
                write.write_all(bytes).await.ok();
            },
            async {
                read.read_to_end(&mut answer).await.ok();
            }
        );
    };
    let said = || String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    timeout(DEADLINE, talk).await.unwrap_or_else(|_| panic!("still open after {:?}", said()));
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of each answer in what came back.
fn statuses(answer: &str) -> Vec<u16> {
    let starts = answer.match_indices("HTTP/1.1 ").chain(answer.match_indices("HTTP/1.0 "));
    starts.filter_map(|(at, _)| answer[at + 9..].get(..3)?.parse().ok()).collect()
}

/// A fresh token's secret.
async fn secret(browser: &Caller) -> String {
    let made: Value = browser.post("/api/v1/tokens", &json!({ "name": "corpus" })).await.json().await.unwrap();
    made["secret"].as_str().unwrap().to_owned()
}

/// What somebody has by now, as the API tells it.
async fn belongings(caller: &Caller) -> [Value; 2] {
    let mut all = [Value::Null, Value::Null];
    for (place, path) in all.iter_mut().zip(["/api/v1/tokens?limit=500", "/api/v1/sessions?limit=500"]) {
        let mut list: Value = caller.get(path).await.json().await.unwrap();
        // When a token was last used changes by asking.
        for item in list["items"].as_array_mut().unwrap() {
            item.as_object_mut().unwrap().remove("last_used_at");
        }
        *place = list;
    }
    all
}

/// Says these bytes and that there are no more, and reads what comes back.
async fn say_and_leave(url: &str, bytes: &[u8]) -> String {
    let mut stream = dial(url).await;
    let mut answer = Vec::new();
    let talk = async {
        stream.write_all(bytes).await.ok();
        stream.shutdown().await.ok();
        stream.read_to_end(&mut answer).await.ok();
    };
    timeout(DEADLINE, talk).await.expect("it closes");
    String::from_utf8_lossy(&answer).into_owned()
}
