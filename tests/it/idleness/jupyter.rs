//! A real JupyterLab: a cell that computes in silence is use, and so is a training that goes
//! on after its notebook was closed; a tab that is merely open is not.

use std::time::{Duration, Instant};

use futures_util::{FutureExt, SinkExt, StreamExt};
use lyceum::model::SessionId;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use super::{PATIENCE, runs, stopped};
use crate::{
    life::{House, Person},
    needs,
    wait::eventually,
};

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Sleeps without a word.
const SILENT: &str = "import time; time.sleep(600)";

/// Computes, and belongs to nobody's notebook any more.
const DETACHED: &str = "import subprocess\nfor _ in range(4):\n    \
     subprocess.Popen(['nohup', 'sh', '-c', 'while :; do :; done'], start_new_session=True)";

#[tokio::test]
async fn silent_cells_and_detached_trainings_are_use_and_open_tabs_are_not() {
    if !needs::root() {
        return;
    }
    let Some(python) = super::jupyters_python(needs::met) else { return };
    let mut house = House::new(&[]);
    house.configure(&format!("[[environments.list]]\nname = 'default'\ntitle = 'Tested'\npython = '{python}'\n"));
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    admin
        .allow(
            &house,
            &person,
            json!({ "idle_timeout_seconds": 40, "light": -1, "sessions": -1, "cpus": 64, "memory_bytes": -1 }),
        )
        .await;

    // Each is used as soon as it runs: the others' starts may take long.
    let silent = lab(&house, &person).await;
    let mut cell = kernel(&house, &person, silent).await;
    cell.execute(SILENT).await;
    drop(cell);
    let detached = lab(&house, &person).await;
    let mut notebook = kernel(&house, &person, detached).await;
    notebook.execute(DETACHED).await;
    notebook.until_idle().await;
    let closed = request(&house, &person, "DELETE", detached, &format!("/api/kernels/{}", notebook.id)).send().await;
    assert_eq!(closed.unwrap().status(), 204);
    drop(notebook);

    // The tab asks what there is, as JupyterLab does, and its socket pings and pongs.
    let open = lab(&house, &person).await;
    let mut tab = kernel(&house, &person, open).await;
    tab.execute("1 + 1").await;
    tab.until_idle().await;
    let mut asked = Instant::now();
    stopped(&house, &person, open, async || {
        // It may end between two of these.
        let _ = tab.socket.send(Message::Ping("lyceum".into())).await;
        while tab.socket.next().now_or_never().flatten().is_some_and(|message| message.is_ok()) {}
        if Duration::from_secs(5) < asked.elapsed() {
            asked = Instant::now();
            for list in ["kernels", "sessions", "terminals", "contents"] {
                let _ = request(&house, &person, "GET", open, &format!("/api/{list}")).send().await;
            }
        }
        runs(&house, &person, silent, "its cell computes in silence").await;
        runs(&house, &person, detached, "its training goes on").await;
    })
    .await;

    // An interrupted cell is use no more.
    let list = request(&house, &person, "GET", silent, "/api/kernels").send().await.unwrap();
    let list: Value = list.json().await.unwrap();
    let path = format!("/api/kernels/{}/interrupt", list[0]["id"].as_str().unwrap());
    assert_eq!(request(&house, &person, "POST", silent, &path).send().await.unwrap().status(), 204);
    stopped(&house, &person, silent, async || runs(&house, &person, detached, "its training goes on").await).await;
}

async fn lab(house: &House, person: &Person) -> SessionId {
    let resources = json!({ "cpus": 4, "memory_bytes": 2_i64 << 30 });
    let id = person.start(house, json!({ "app": "jupyter", "resources": resources })).await;
    eventually("it runs", async || {
        let session = person.session(house, id).await;
        assert_ne!(session["state"], "ended", "{session}");
        (session["state"] == "running").then_some(id)
    })
    .await
}

/// As a page asks for something by itself: no navigation.
pub fn request(house: &House, person: &Person, method: &str, id: SessionId, path: &str) -> reqwest::RequestBuilder {
    assert!(method.parse::<Method>().is_ok());
    person.request(house, method, &format!("/s/{id}{path}")).header("sec-fetch-mode", "cors")
}

pub struct Kernel {
    pub id: String,
    socket: Socket,
}

/// A new kernel, and a socket to it.
async fn kernel(house: &House, person: &Person, id: SessionId) -> Kernel {
    kernel_of(house, person, id, "python3").await
}

/// The same, of the kind with this name.
pub async fn kernel_of(house: &House, person: &Person, id: SessionId, name: &str) -> Kernel {
    let made = request(house, person, "POST", id, "/api/kernels").json(&json!({ "name": name })).send().await;
    let made: Value = made.unwrap().json().await.unwrap();
    let kernel = made["id"].as_str().unwrap_or_else(|| panic!("no kernel: {made}")).to_owned();
    let url = format!("{}/s/{id}/api/kernels/{kernel}/channels", house.url).replace("http://", "ws://");
    let mut upgrade = url.into_client_request().unwrap();
    upgrade.headers_mut().insert("authorization", person.authorization().parse().unwrap());
    upgrade.headers_mut().insert("sec-fetch-mode", "websocket".parse().unwrap());
    let (socket, _) = connect_async(upgrade).await.unwrap();
    Kernel { id: kernel, socket }
}

impl Kernel {
    /// Sends a cell and waits until the kernel says that it is busy with it.
    pub async fn execute(&mut self, code: &str) {
        let message = json!({
            "header": { "msg_id": "cell", "username": "", "session": "tab", "msg_type": "execute_request",
                        "version": "5.3", "date": "2030-01-01T00:00:00Z" },
            "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": { "code": code, "silent": false, "store_history": false, "user_expressions": {},
                         "allow_stdin": false, "stop_on_error": true },
        });
        self.socket.send(Message::Text(message.to_string().into())).await.unwrap();
        self.until("busy").await;
    }

    async fn until_idle(&mut self) {
        self.until("idle").await;
    }

    /// Runs a cell and returns what it prints, or the name of its error.
    pub async fn run(&mut self, code: &str) -> String {
        self.execute(code).await;
        self.until("idle").await
    }

    /// What the cell prints next.
    pub async fn until_printed(&mut self) -> String {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("the cell prints something");
            let Message::Text(text) = message.unwrap().unwrap() else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["parent_header"]["msg_id"] == "cell" && message["msg_type"] == "stream" {
                return message["content"]["text"].as_str().unwrap().to_owned();
            }
        }
    }

    /// What the kernel says of the cell, not of other requests; returns what the cell prints until then.
    pub async fn until(&mut self, state: &str) -> String {
        let mut printed = String::new();
        let told = async {
            loop {
                let Message::Text(text) = self.socket.next().await.unwrap().unwrap() else { continue };
                let message: Value = serde_json::from_str(&text).unwrap();
                let of_cell = message["parent_header"]["msg_id"] == "cell";
                let (kind, content) = (&message["msg_type"], &message["content"]);
                if of_cell && (kind == "stream" || kind == "error") {
                    let field = if kind == "stream" { "text" } else { "ename" };
                    printed.push_str(content[field].as_str().unwrap_or_default());
                }
                if of_cell && message["content"]["execution_state"] == state {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("the kernel is never {state}"));
        printed
    }
}
