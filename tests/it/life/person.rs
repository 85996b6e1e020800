//! Somebody with a token who speaks REST, and the few questions that the tests ask often.

use lyceum::model::SessionId;
use reqwest::{Client, RequestBuilder, Response, redirect};
use serde_json::{Value, json};

use super::{House, eventually};

#[derive(Clone)]
pub struct Person {
    pub name: String,
    token: String,
    client: Client,
}

impl Person {
    pub fn new(name: &str, token: &str) -> Self {
        // On a slow machine the portal may hang up just when an idle connection is used again.
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy().pool_max_idle_per_host(0);
        let client = client.build().unwrap();
        Self { name: name.to_owned(), token: token.to_owned(), client }
    }

    /// What proves to the portal who this is.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// A request to a path of the portal.
    pub fn request(&self, house: &House, method: &str, path: &str) -> RequestBuilder {
        self.request_at(&house.url, method, path)
    }

    /// The same, whoever has the house just now.
    pub fn request_at(&self, url: &str, method: &str, path: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{url}{path}")).bearer_auth(&self.token)
    }

    /// Status and body of an answer to a request below `/api/v1`.
    pub async fn ask(&self, house: &House, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut request = self.request(house, method, &format!("/api/v1{path}"));
        if !body.is_null() {
            request = request.json(body);
        }
        answer(request.send().await.unwrap()).await
    }

    pub async fn get(&self, house: &House, path: &str) -> Value {
        let (status, body) = self.ask(house, "GET", path, &Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Starts a session; it must be accepted.
    pub async fn start(&self, house: &House, request: Value) -> SessionId {
        let (status, body) = self.ask(house, "POST", "/sessions", &request).await;
        assert_eq!(status, 201, "{request}: {body}");
        id(&body)
    }

    /// Starts a session of an app and waits until it runs.
    pub async fn run(&self, house: &House, app: &str) -> SessionId {
        let id = self.start(house, json!({ "app": app })).await;
        self.state(house, id, "running").await;
        id
    }

    pub async fn session(&self, house: &House, id: SessionId) -> Value {
        self.get(house, &format!("/sessions/{id}")).await
    }

    /// Waits for a state; an end that nobody waits for fails at once.
    pub async fn state(&self, house: &House, id: SessionId, state: &str) -> Value {
        eventually(&format!("session {id} is {state}"), async || {
            let session = self.session(house, id).await;
            assert!(state == "ended" || session["state"] != "ended", "it ended: {session}");
            (session["state"] == state).then_some(session)
        })
        .await
    }

    pub async fn ended(&self, house: &House, id: SessionId, reason: &str) -> Value {
        let session = self.state(house, id, "ended").await;
        assert_eq!(session["end_reason"], reason, "{session}");
        session
    }

    pub async fn stop(&self, house: &House, id: SessionId) {
        let (status, body) = self.ask(house, "DELETE", &format!("/sessions/{id}"), &Value::Null).await;
        assert_eq!(status, 202, "{body}");
    }

    /// Stops a session and waits for its end.
    pub async fn end(&self, house: &House, id: SessionId) {
        self.stop(house, id).await;
        self.ended(house, id, "stopped_by_owner").await;
    }

    /// A GET that goes through the proxy to the app.
    pub async fn visit(&self, house: &House, id: SessionId, path: &str) -> (u16, Value) {
        answer(self.request(house, "GET", &format!("/s/{id}{path}")).send().await.unwrap()).await
    }

    /// Waits until the app is reached: a portal that begins anew looks round first.
    pub async fn is_reached(&self, house: &House, id: SessionId) -> Value {
        eventually("the app is reached", async || {
            let (status, body) = self.visit(house, id, "/").await;
            assert!(matches!(status, 200 | 503), "{status} {body}");
            (status == 200).then_some(body)
        })
        .await
    }

    /// The messages of the history, each as `state: message`, with their numbers.
    pub async fn history(&self, house: &House, id: SessionId, after: i64) -> Vec<(i64, String)> {
        let request = self.request(house, "GET", &format!("/api/v1/sessions/{id}/events"));
        let stream = request.header("last-event-id", after.to_string()).send().await.unwrap();
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        let text = stream.text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        data.map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let number = event["number"].as_i64().unwrap();
            (number, format!("{}: {}", event["state"].as_str().unwrap(), event["message"].as_str().unwrap()))
        })
        .collect()
    }

    /// Sets limits of somebody, as an administrator.
    pub async fn allow(&self, house: &House, whom: &Self, limits: Value) {
        let (status, body) = self.ask(house, "PATCH", &format!("/quotas/users/{}", whom.name), &limits).await;
        assert_eq!(status, 200, "{body}");
    }
}

pub async fn answer(answer: Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The id in a session's document.
pub fn id(session: &Value) -> SessionId {
    session["id"].as_str().unwrap().parse().unwrap()
}
