//! Python of one's own on the real program: packages over the shared environment, installed
//! in a terminal, seen by the next session, listed with their size and reset; and
//! environments of one's own by their path, with every way in which they will not do.
//! JupyterLab's kernels are for `tests/browser/packages.test.mjs`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use futures_util::{SinkExt, StreamExt};
use lyceum::{helper::identity::Identity, model::SessionId};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

use super::{House, Person, person};
use crate::{helper::house::system, needs, wait::PATIENCE};

/// A wheel of one module.
const WHEEL: &str = "
import sys, zipfile
info = 'ly_demo-1.0.dist-info/'
files = {
    'ly_demo.py': 'ANSWER = 42',
    info + 'METADATA': 'Metadata-Version: 2.1\\nName: ly_demo\\nVersion: 1.0\\n',
    info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
    info + 'RECORD': 'ly_demo.py,,\\n',
}
with zipfile.ZipFile(sys.argv[1] + '/ly_demo-1.0-py3-none-any.whl', 'w') as wheel:
    for path, contents in files.items():
        wheel.writestr(path, contents)
";

/// A portal whose default environment is a small one, and a folder with a wheel.
async fn house() -> Option<(House, PathBuf)> {
    if !needs::root() {
        return None;
    }
    let mut house = House::new(&[]);
    let (environment, wheels) = (house.base.path().join("env"), house.base.path().join("wheels"));
    system(&["/usr/bin/python3", "-m", "venv", environment.to_str().unwrap()]);
    let python = environment.join("bin/python").display().to_string();
    let words = ["[[environments.list]]\nname = 'default'\ntitle = 'Small'\npython = '", &python, "'\n"];
    house.config.extend(words);
    fs::create_dir(&wheels).unwrap();
    system(&["/usr/bin/python3", "-c", WHEEL, wheels.to_str().unwrap()]);
    house.start().await;
    Some((house, wheels))
}

/// Types a line into a session's terminal and reads until its end has come.
async fn types(house: &House, person: &Person, id: SessionId, line: &str) -> String {
    let url = format!("{}/s/{id}/pty", house.url.replace("http", "ws"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", person.authorization().parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    socket.send(Message::text(r#"{"resize": {"cols": 400, "rows": 50}}"#)).await.unwrap();
    // A mark of its own each time, for the replay holds earlier ones; the echo does not hold the sum.
    let mark = SessionId::new().short()[8..].to_owned();
    let typed = format!("{line}; echo {mark}-$((40 + 2))-$?\n");
    socket.send(Message::binary(typed.into_bytes())).await.unwrap();
    let mut seen = String::new();
    while !seen.contains(&format!("{mark}-42-")) {
        let message = tokio::time::timeout(2 * PATIENCE, socket.next()).await;
        match message.unwrap_or_else(|_| panic!("{line}: nothing more after {seen:?}")) {
            Some(Ok(Message::Binary(bytes))) => seen += &String::from_utf8_lossy(&bytes),
            Some(Ok(_)) => {}
            other => panic!("{line}: {other:?} after {seen:?}"),
        }
    }
    let begin = seen.find(&format!("{mark}-$((")).unwrap_or(0);
    seen.split_off(begin)
}

#[tokio::test]
async fn installed_once_and_seen_until_it_is_reset() {
    let Some((house, wheels)) = house().await else { return };
    let person = house.person();
    assert_eq!(person.get(&house, "/me/environments").await["items"], json!([]), "no account is made for a look");
    let first = person.run(&house, "terminal").await;
    let account = Identity::look_up(&format!("ly-{}", person.name)).unwrap();
    // As /etc/profile and a long life on other machines leave it.
    let profile = "PATH=/usr/bin:/bin; export PIP_USER=1 PYTHONPATH=/nonexistent\n";
    fs::write(account.home.join(".profile"), profile).unwrap();

    let install = format!("pip install --quiet --no-index --find-links {} ly_demo", wheels.display());
    let said = types(&house, &person, first, &install).await;
    assert!(said.contains("-42-0"), "{said}");
    let second = person.run(&house, "terminal").await;
    let ask = "python -c 'import ly_demo, os, sys; print(ly_demo.ANSWER, sys.prefix, \"PYTHONPATH\" in os.environ)'";
    let said = types(&house, &person, second, ask).await;
    let overlays = account.home.join(".local/share/lyceum/environments");
    assert!(said.contains(&format!("42 {}", overlays.display())) && said.contains(" False"), "{said}");

    let listed = person.get(&house, "/me/environments").await["items"][0].clone();
    assert_eq!((&listed["environment"], &listed["current"]), (&json!("default"), &json!(true)), "{listed}");
    assert_eq!(listed["packages"], json!([{ "name": "ly_demo", "version": "1.0", "instead_of": null }]));
    assert!(listed["size_bytes"].as_i64().unwrap() > 0, "{listed}");
    let users: Vec<&Value> = listed["used_by"].as_array().unwrap().iter().map(|session| &session["id"]).collect();
    assert!(users.len() == 2 && users.contains(&&json!(first.to_string())), "{listed}");
    let name = listed["name"].as_str().unwrap();
    assert_eq!(fs::metadata(overlays.join(name)).unwrap().uid(), account.uid);

    let other = house.person();
    let path = format!("/me/environments/{name}");
    assert_eq!(other.ask(&house, "DELETE", &path, &Value::Null).await.0, 404, "it is not theirs");
    assert_eq!(person.ask(&house, "DELETE", &path, &Value::Null).await.0, 204);
    let said = types(&house, &person, second, ask).await;
    assert!(said.contains("No module named 'ly_demo'"), "{said}");
    let listed = person.get(&house, "/me/environments").await;
    assert_eq!(listed["items"][0]["package_count"], 0, "{listed}");
    let said = types(&house, &person, second, &install).await;
    assert!(said.contains("-42-0"), "a running session can install anew: {said}");
    for id in [first, second] {
        person.end(&house, id).await;
    }
}

/// Folders that somebody may call an environment, below `~/envs`: `good` alone will do.
fn environments(account: &Identity) {
    let envs = account.home.join("envs");
    let make = |name: &str| {
        system(&["/usr/bin/python3", "-m", "venv", "--without-pip", envs.join(name).to_str().unwrap()]);
        envs.join(name)
    };
    let give_kernel = |folder: &Path, text: &str| {
        let library = fs::read_dir(folder.join("lib")).unwrap().next().unwrap().unwrap().path();
        let package = library.join("site-packages/ipykernel");
        fs::create_dir(&package).unwrap();
        fs::write(package.join("__init__.py"), text).unwrap();
    };
    give_kernel(&make("good"), "");
    give_kernel(&make("broken"), "import ly_nowhere");
    let gone = make("gone");
    fs::remove_file(gone.join("bin/python")).unwrap();
    symlink("/usr/bin/python3.2", gone.join("bin/python")).unwrap();
    // Laid out as conda does, which cannot be had everywhere.
    let conda = make("conda");
    fs::create_dir(conda.join("conda-meta")).unwrap();
    fs::remove_file(conda.join("pyvenv.cfg")).unwrap();
    let old = make("old");
    let settings = fs::read_to_string(old.join("pyvenv.cfg")).unwrap();
    fs::write(old.join("pyvenv.cfg"), settings.replace("version = 3.", "version = 2.")).unwrap();
    make("bare");
    fs::create_dir(envs.join("empty")).unwrap();
    fs::write(envs.join("file"), "").unwrap();
    system(&["chown", "-R", &format!("{}:{}", account.uid, account.gid), envs.to_str().unwrap()]);
}

#[tokio::test]
async fn an_environment_of_ones_own() {
    let Some((house, _)) = house().await else { return };
    let person = house.person();
    // The first session makes the account.
    let id = person.run(&house, "terminal").await;
    person.end(&house, id).await;
    let account = Identity::look_up(&format!("ly-{}", person.name)).unwrap();
    environments(&account);
    let closed = house.base.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();

    let start = async |app: &str, path: &str| {
        person.ask(&house, "POST", "/sessions", &json!({ "app": app, "environment": path })).await
    };
    for (path, code, mends) in [
        ("~/envs/none", "not_found", "python3 -m venv"),
        ("~/envs/file", "not_a_directory", "`bin/python`"),
        (closed.to_str().unwrap(), "not_allowed", "chmod"),
        ("~/envs/empty", "no_python", "python3 -m venv"),
        ("~/envs/gone", "no_python", "/usr/bin/python3.2"),
        ("~/envs/old", "python_too_old", "3.8 or later"),
        ("~/envs/bare", "package_missing", "uv pip install -p"),
        ("~/envs/conda", "package_missing", "conda install -p"),
        ("~/envs/../x", "dot_dot", "write the full path"),
    ] {
        let (status, body) = start("jupyter", path).await;
        let error = &body["errors"][0];
        let told = (status, &error["field"], &error["code"]);
        assert_eq!(told, (422, &json!("environment"), &json!(code)), "{path}: {body}");
        assert!(error["message"].as_str().unwrap().contains(mends), "{path}: {body}");
    }

    // What only its Python knows is found out in the session.
    let (status, session) = start("jupyter", "~/envs/broken").await;
    assert_eq!(status, 201, "{session}");
    let ended = person.ended(&house, person::id(&session), "launch_failed").await;
    let detail = ended["detail"].as_str().unwrap();
    assert!(detail.contains("pip install -U ipykernel") && detail.contains("ly_nowhere"), "{detail}");

    let good = account.home.join("envs/good");
    let good = good.to_str().unwrap();
    let (status, session) = start("terminal", &format!("{good}/bin/python")).await;
    assert_eq!((status, &session["environment"]), (201, &json!(good)), "{session}");
    let id = person::id(&session);
    person.state(&house, id, "running").await;
    let said = types(&house, &person, id, "python -c 'import sys; print(sys.prefix)'").await;
    assert!(said.contains(good), "{said}");
    person.end(&house, id).await;
}
