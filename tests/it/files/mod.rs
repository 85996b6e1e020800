//! People's files through the whole portal: a real helper, real accounts, files agents that
//! run as them. A [`World`] is a house with one person in it whose home the tests fill.

mod code;
mod command;
mod corpus;
mod folders;
mod hanging;
mod live;
mod several;
mod storage;
mod uploads;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use lyceum::helper::identity::Identity;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::life::{House, Person};

/// A portal and somebody with a home.
pub struct World {
    pub house: House,
    pub person: Person,
    pub account: Identity,
}

impl World {
    /// `None` where we are not root.
    pub async fn open(variables: &[(&str, &str)]) -> Option<Self> {
        Self::configured(variables, "").await
    }

    pub async fn configured(variables: &[(&str, &str)], config: &str) -> Option<Self> {
        if !crate::needs::root() {
            return None;
        }
        let mut house = House::new(variables).configured(config);
        house.start().await;
        let person = house.person();
        // The first question makes the account.
        let (account, _) = settle(&house, &person).await;
        Some(Self { house, person, account })
    }

    /// Another person, and their home.
    pub async fn neighbour(&self) -> (Person, Identity) {
        let person = self.house.person();
        let (account, _) = settle(&self.house, &person).await;
        (person, account)
    }

    pub fn home(&self) -> &Path {
        &self.account.home
    }

    /// A file of the person's, with the folders above it.
    pub fn put(&self, path: &str, content: &[u8]) -> PathBuf {
        let file = self.home().join(path);
        let mut above = self.home().to_owned();
        for part in Path::new(path).parent().unwrap().components() {
            above.push(part);
            if fs::create_dir(&above).is_ok() {
                self.give(&above);
            }
        }
        fs::write(&file, content).unwrap();
        self.give(&file);
        file
    }

    pub fn give(&self, path: &Path) {
        chown(path, Some(self.account.uid), Some(self.account.gid)).unwrap();
    }

    /// A request below `/api/v1/files`.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.person.request(&self.house, method, &format!("/api/v1/files{path}"))
    }

    pub async fn send(&self, method: &str, path: &str) -> Response {
        self.request(method, path).send().await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.person.ask(&self.house, method, &format!("/files{path}"), &body).await
    }

    /// The names in a folder.
    pub async fn names(&self, query: &str) -> Vec<String> {
        let listed = self.get(query).await;
        listed["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Begins an upload; it must be accepted.
    pub async fn begin(&self, request: Value) -> String {
        let (status, body) = self.ask("POST", "/uploads", request).await;
        assert_eq!(status, 201, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    pub async fn write(&self, id: &str, offset: u64, piece: impl Into<reqwest::Body>) -> (u16, Value) {
        let request = self.request("PATCH", &format!("/uploads/{id}")).header("upload-offset", offset.to_string());
        let answer = request.header("content-type", "application/octet-stream").body(piece).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    pub async fn offset(&self, id: &str) -> u64 {
        self.get(&format!("/uploads/{id}")).await["offset_bytes"].as_u64().unwrap()
    }

    pub async fn finish(&self, id: &str) -> (u16, Value) {
        self.ask("POST", &format!("/uploads/{id}/finish"), Value::Null).await
    }

    /// The person's files agents that live.
    pub fn agents(&self) -> Vec<i32> {
        Self::agents_of(self.account.uid)
    }

    pub fn agents_of(owner: u32) -> Vec<i32> {
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let is_one = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with(b"agent\0files\0") && uid(*pid) == Some(owner)
        };
        pids.filter(is_one).collect()
    }
}

/// Nothing of an upload is left in a folder.
pub fn assert_no_partial_files(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with(".lyceum-upload-"), "{} is left", name.display());
    }
}

async fn settle(house: &House, person: &Person) -> (Identity, Value) {
    let roots = person.get(house, "/files/roots").await;
    let account = Identity::look_up(&format!("ly-{}", person.name)).unwrap();
    assert_eq!(roots["items"][0]["path"], json!(account.home));
    (account, roots)
}

fn uid(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// An upload's id as a client might forge it.
pub fn upload_id(folder: &str, name: &str, size: u64) -> String {
    let upload = json!({
        "folder": { "root": 0, "path": folder }, "name": name, "nonce": "0123456789abcdef0123456789abcdef",
        "size_bytes": size, "replace": false, "sha256": null,
    });
    BASE64_URL_SAFE_NO_PAD.encode(upload.to_string())
}

/// Lets everybody in.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}
