//! A real JupyterLab of a person who has set everything in `~/.jupyter` that could keep the portal
//! from it, and whose login shell is not there: it starts, accepts the portal's token, and its
//! terminals work.

use std::{fs, os::unix::fs::chown, path::Path};

use lyceum::helper::identity::Identity;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    accounts,
    life::{House, jobs},
    needs,
};

const SERVER: &str = r#"
c.ServerApp.port = 9999
c.ServerApp.ip = "0.0.0.0"
c.ServerApp.sock = "/tmp/elsewhere.sock"
c.ServerApp.base_url = "/elsewhere/"
c.ServerApp.certfile = "/nowhere/cert.pem"
c.ServerApp.keyfile = "/nowhere/key.pem"
c.ServerApp.ssl_options = {"certfile": "/nowhere/cert.pem"}
c.ServerApp.file_to_run = "/etc/passwd"
c.ServerApp.token = "theirs"
c.ServerApp.password_required = True
c.ServerApp.allow_remote_access = False
c.ServerApp.open_browser = True
c.ServerApp.identity_provider_class = "jupyter_server.auth.identity.LegacyIdentityProvider"
c.ServerApp.login_handler_class = "jupyter_server.auth.login.LegacyLoginHandler"
c.ServerApp.PasswordIdentityProvider.token = "theirs"
c.IdentityProvider.token = "theirs"
c.PasswordIdentityProvider.token = "theirs"
c.PasswordIdentityProvider.password_required = True
c.PasswordIdentityProvider.hashed_password = "argon2:theirs"
"#;

const LAB: &str = r#"
c.ServerApp.token = "of-lab"
c.IdentityProvider.token = "of-lab"
c.ServerApp.PasswordIdentityProvider.token = "of-lab"
c.ServerApp.port = 9998
"#;

const JSON: &str = r#"{"IdentityProvider": {"token": "json"}, "ServerApp": {"port": 9997,
    "PasswordIdentityProvider": {"token": "json"}}}"#;

#[tokio::test]
async fn nothing_in_a_home_keeps_the_portal_from_jupyterlab() {
    if !needs::root() {
        return;
    }
    let Some(python) = super::jupyters_python(needs::met) else { return };
    let mut house = House::new(&[]);
    house.configure(&format!("[[environments.list]]\nname = 'default'\ntitle = 'Tested'\npython = '{python}'\n"));
    house.start().await;
    let account = house.unix_account("odd");
    let identity = Identity::facts(&account).unwrap();
    let folder = identity.home.join(".jupyter");
    fs::create_dir_all(folder.join("jupyter_server_config.d")).unwrap();
    for (name, text) in [
        ("jupyter_server_config.py", SERVER),
        ("jupyter_server_config.json", JSON),
        ("jupyter_lab_config.py", LAB),
        ("jupyter_lab_config.json", JSON),
        ("jupyter_config.py", SERVER),
        ("jupyter_server_config.d/own.json", JSON),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    chown(&folder, Some(identity.uid), Some(identity.gid)).unwrap();
    accounts::change(&["usermod", "--shell", "/usr/bin/zsh-not-here", &account]);
    let person = house.person_as(&account);
    let resources = json!({ "cpus": 4, "memory_bytes": 2_i64 << 30 });
    let id = person.start(&house, json!({ "app": "jupyter", "resources": resources })).await;
    person.state(&house, id, "running").await;
    let ask = |method: Method, path: &str| {
        let request = person.request(&house, method.as_str(), &format!("/s/{id}{path}"));
        request.header("sec-fetch-mode", "cors")
    };
    for path in ["/api/kernels", "/api/terminals", "/lab"] {
        assert_eq!(ask(Method::GET, path).send().await.unwrap().status(), 200, "{path}");
    }
    let root: Value = ask(Method::GET, "/api/contents?content=0").send().await.unwrap().json().await.unwrap();
    assert_eq!(root["path"], "", "{root}");
    let made = ask(Method::POST, "/api/terminals").send().await.unwrap();
    assert_eq!(made.status(), 200, "{}", made.text().await.unwrap());
    let words = fs::read(format!("/proc/{}/cmdline", house.record(id).unwrap().placement.pid)).unwrap();
    assert!(!String::from_utf8_lossy(&words).contains("token"));

    let asked = json!({ "command": ["/usr/bin/env"], "resources": { "memory_bytes": 128 << 20 } });
    let job = jobs::submit(&house, &person, asked).await;
    jobs::ended(&house, &person, &job, "exited").await;
    let said = jobs::log(&house, &person, &format!("{job}/log")).await;
    assert!(said.lines().any(|line| line == "SHELL=/bin/bash"), "{said}");
    assert!(Path::new("/bin/bash").exists());
    person.end(&house, id).await;
}
