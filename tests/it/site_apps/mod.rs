//! Apps that a site adds by configuration, as people meet them: the built portal as root,
//! real accounts, a stock nginx, programs in Python. What one table alone may say is tested
//! beside the code; here is what comes of it.

mod python;
mod world;

use lyceum::config::{Config, Environment};
use reqwest::StatusCode;
use serde_json::Value;
use world::{Somebody, World};

use crate::{needs, wait::eventually};

/// An nginx that tells what it was asked, and is not ready before a file `go` is there.
fn nginx_configuration(somebody: &Somebody) -> String {
    let home = somebody.home.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {home}/tmp-{what};"))
        .join("\n");
    format!(
        "daemon off; pid {home}/nginx.pid; error_log stderr; worker_processes 1;
         events {{ worker_connections 64; }}
         http {{
             access_log {home}/access.log; {temporary}
             server {{
                 listen unix:app.sock;
                 location ~ ^(.*)/ready$ {{ if (!-f {home}/go) {{ return 503; }} return 204; }}
                 location ~ ^(.*)/moved$ {{ return 302 $1/there; }}
                 location / {{ return 200 '$request_uri [$http_authorization] [$http_cookie]'; }}
             }}
         }}\n"
    )
}

#[tokio::test]
async fn a_stock_nginx_on_a_socket() {
    if !needs::root() || !needs::met("nginx", std::path::Path::new("/usr/sbin/nginx").exists()) {
        return;
    }
    // A relative socket lies where nginx starts; no file of nginx's can name the session's.
    let app = r#"command = ["/bin/sh", "-c", "cd ${LYCEUM_SOCKET%/*} && exec /usr/sbin/nginx -e stderr -c {home}/echo.conf"]"#;
    let configuration = format!(
        "[[apps]]\nname = \"echo\"\ntitle = \"Echo server\"\n{app}\nready_path = \"/ready\"
         [[apps]]\nname = \"echo-root\"\n{app}\nready_path = \"/ready\"\nstrip_prefix = true\n"
    );
    let mut world = World::start(&configuration);
    let ada = world.add("ada", &[]);
    let bob = world.add("bob", &[]);
    ada.write("echo.conf", &nginx_configuration(&ada));

    for (app, seen) in [("echo", "/s/{id}/a%20b?c=d"), ("echo-root", "/a%20b?c=d")] {
        let _ = std::fs::remove_file(ada.home.join("go"));
        let _ = std::fs::remove_file(ada.home.join("access.log"));
        let asked: Value = ada.ask_for(app).await.json().await.unwrap();
        let id = asked["id"].as_str().unwrap_or_else(|| panic!("{asked:#}"));
        let base = format!("/s/{id}");
        // It answers, and is not ready yet.
        let log = ada.home.join("access.log");
        eventually("it is asked", async || {
            let log = std::fs::read_to_string(&log).ok()?;
            (log.lines().filter(|line| line.contains(" 503 ")).count() > 2).then_some(())
        })
        .await;
        assert_eq!(ada.json(&format!("/api/v1/sessions/{id}")).await["state"], "starting");
        let early = ada.get(&format!("{base}/")).await;
        assert_eq!(
            (early.status(), early.headers().contains_key("retry-after")),
            (StatusCode::SERVICE_UNAVAILABLE, true)
        );
        ada.write("go", "");
        let session = ada.until_state(id, &["running", "ended"]).await;
        assert_eq!(session["state"], "running", "{session:#}");
        assert_eq!((&session["visible_on_node"], &session["app"]), (&false.into(), &app.into()));

        let answer = ada.request("GET", &format!("{base}/a%20b?c=d")).header("cookie", "mine=1").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        // The token and the login stay with the portal.
        let seen = seen.replace("{id}", id);
        assert_eq!(answer.text().await.unwrap(), format!("{seen} [] [mine=1]"));
        let moved = ada.get(&format!("{base}/moved")).await;
        let to = moved.headers()["location"].to_str().unwrap();
        assert_eq!((moved.status().as_u16(), to.ends_with(&format!("{base}/there"))), (302, true), "{to}");
        assert!(to.starts_with("/s/"), "{to}");
        assert_eq!(bob.get(&format!("{base}/")).await.status(), 404);

        assert_eq!(ada.request("DELETE", &format!("/api/v1/sessions/{id}")).send().await.unwrap().status(), 202);
        assert_eq!(ada.until_state(id, &["ended"]).await["end_reason"], "stopped_by_owner");
        assert_eq!(ada.get(&format!("{base}/")).await.status(), 410);
    }
}

/// Tells its arguments and environment over HTTP, on `LYCEUM_PORT` if there is one.
const SHOW: &str = r#"
import json, os, socket, socketserver, sys, http.server
class Show(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd(), "path": self.path})
        self.send_response(200); self.end_headers(); self.wfile.write(body.encode())
    def address_string(self): return "somebody"
if os.environ["LYCEUM_PORT"]:
    http.server.HTTPServer(("127.0.0.1", int(os.environ["LYCEUM_PORT"])), Show).serve_forever()
socketserver.UnixStreamServer(os.environ["LYCEUM_SOCKET"], Show).serve_forever()
"#;

#[tokio::test]
async fn six_names_are_replaced_and_nothing_else() {
    if !needs::root() {
        return;
    }
    let mut world = World::start(
        r#"
        [[apps]]
        name = "show"
        command = ["/usr/bin/python3", "{home}/show.py", "{socket}|{port}|{base_url}|{home}|{user}|{session}",
                   "{HOME} {home {sockets} {{user}} {\"a\": {}} ${HOME} $(id) `id` ; *"]
        environment = { WHERE = "{base_url}x", JSON = "{\"user\": \"{user}\"}", PYTHONUNBUFFERED = "1" }
        "#,
    );
    let ada = world.add("ada", &[]);
    ada.write("show.py", SHOW);
    let session = ada.start("show").await;
    let id = session["id"].as_str().unwrap();
    let base = format!("/s/{id}/");
    let told = ada.json(&base).await;
    let (environ, home, user) = (&told["environ"], ada.home.to_str().unwrap(), ada.unix_name.as_str());
    let socket = environ["LYCEUM_SOCKET"].as_str().unwrap();
    assert!(socket.ends_with("/app.sock"), "{socket}");
    assert_eq!(told["argv"][0], format!("{socket}||{base}|{home}|{user}|{id}"));
    let second = format!("{{HOME}} {{home {{sockets}} {{{user}}} {{\"a\": {{}}}} ${{HOME}} $(id) `id` ; *");
    assert_eq!(told["argv"][1], second);
    for (name, value) in [
        ("LYCEUM_PORT", ""),
        ("LYCEUM_BASE_URL", &base),
        ("LYCEUM_HOME", home),
        ("LYCEUM_USER", user),
        ("LYCEUM_SESSION", id),
        ("WHERE", &format!("{base}x")),
        ("JSON", &format!("{{\"user\": \"{user}\"}}")),
        ("HOME", home),
        ("USER", user),
        ("CUDA_VISIBLE_DEVICES", ""),
    ] {
        assert_eq!(environ[name], value, "{name}");
    }
    // Nothing of the portal's own surroundings comes along.
    assert!(environ["LYCEUM_CONFIG"].is_null() && environ["LYCEUM_DATA"].is_null(), "{environ:#}");
    assert_eq!(told["cwd"], home);
}

#[tokio::test]
async fn an_app_on_a_port() {
    if !needs::root() {
        return;
    }
    let mut world = World::start(
        r#"
        allow_port_apps = true
        [[apps]]
        name = "show"
        title = "Show"
        command = ["/usr/bin/python3", "{home}/show.py", "{port}"]
        listen = "port"
        strip_prefix = true
        "#,
    );
    let ada = world.add("ada", &[]);
    let bob = world.add("bob", &[]);
    ada.write("show.py", SHOW);
    let session = ada.start("show").await;
    assert_eq!(session["visible_on_node"], true);
    let id = session["id"].as_str().unwrap();
    let told = ada.json(&format!("/s/{id}/x/y?z")).await;
    assert_eq!(told["path"], "/x/y?z");
    let port = told["environ"]["LYCEUM_PORT"].as_str().unwrap();
    assert_eq!(told["argv"], Value::from(vec![port]));
    // That is what "visible" means, and why the pages say it.
    let direct = crate::portal::client().get(format!("http://127.0.0.1:{port}/")).send().await.unwrap();
    assert_eq!(direct.status(), 200);
    for page in [format!("/sessions/{id}"), "/sessions/new".to_owned(), "/".to_owned()] {
        let html = ada.get(&page).await.text().await.unwrap();
        assert!(html.to_lowercase().contains("visible on this node"), "{page}: {html}");
    }
    assert_eq!(bob.get(&format!("/s/{id}/")).await.status(), 404);

    // Another session has another port, and a portal that was restarted knows both again.
    let second = ada.start("show").await;
    let second = second["id"].as_str().unwrap();
    world.crash_and_restart().await;
    for id in [id, second] {
        ada.until_state(id, &["running"]).await;
        let answers = async || (ada.get(&format!("/s/{id}/")).await.status() == 200).then_some(());
        eventually("the route is back", answers).await;
    }
    assert_ne!(ada.json(&format!("/s/{second}/")).await["environ"]["LYCEUM_PORT"], port);
}

#[tokio::test]
async fn an_app_for_a_group() {
    if !needs::root() {
        return;
    }
    let mut world = World::start(
        r#"
        [[apps]]
        name = "secret-lab"
        title = "The laboratory's own"
        command = ["/usr/bin/python3", "{home}/show.py"]
        groups = ["laboratory"]
        [[apps]]
        name = "show"
        command = ["/usr/bin/python3", "{home}/show.py"]
        "#,
    );
    let ada = world.add("ada", &[]);
    let root = world.add("root-of-all", &["--admin"]);
    for (somebody, sees) in [(&ada, false), (&root, true)] {
        for page in ["/sessions/new", "/sessions/new?app=secret-lab"] {
            let form = somebody.get(page).await.text().await.unwrap();
            assert!(form.contains("value=\"show\""), "{form}");
            assert_eq!(form.contains("laboratory") || form.contains("secret-lab"), sees, "{}: {form}", somebody.name);
        }
    }
    for path in ["/api/v1/sessions", "/api/v1/admission"] {
        let refused = ada.request("POST", path).json(&serde_json::json!({ "app": "secret-lab" })).send().await.unwrap();
        assert_eq!(refused.status(), 422, "{path}");
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(
            (&problem["errors"][0]["field"], &problem["errors"][0]["code"]),
            (&"app".into(), &"unknown_app".into())
        );
        let message = problem["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains("show") && !message.contains("secret"), "{message}");
    }
    assert_eq!(ada.json("/api/v1/sessions").await["items"], serde_json::json!([]));
    root.write("show.py", SHOW);
    root.start("secret-lab").await;
}

#[tokio::test]
async fn every_fault_of_the_configuration_is_named() {
    if !needs::root() {
        return;
    }
    let (code, said) = World::refusal(
        r#"
        [server]
        apps_listen = "nonsense"
        [[apps]]
        name = "Echo Server"
        title = "<script>"
        command = ["sh -c", "a\u0000b"]
        groups = ["a;b"]
        ready_path = "no-slash"
        environment = { "A-B" = "x", LD_PRELOAD = "y" }
        [[apps]]
        name = "jupyter"
        command = []
        listen = "port"
        [[apps]]
        name = "web"
        command = ["serve", "--port={port}"]
        "#,
    );
    assert_eq!(code, Some(1), "{said}");
    for fault in [
        "server.apps_listen:",
        "apps[0].name:",
        "apps[0].title:",
        "apps[0].command: the program",
        "apps[0].command: each value must have at most 4096 bytes and no control characters",
        "apps[0].groups:",
        "apps[0].ready_path:",
        "apps[0].environment.A-B:",
        "apps[0].environment.LD_PRELOAD:",
        "apps[1].command: must not be empty",
        "apps[1].name: `jupyter` is a built-in app",
        "apps[1].listen:",
        "apps[2].command: contains {port}",
    ] {
        assert!(said.contains(fault), "{fault} is missing in:\n{said}");
    }
    for (text, named) in [
        ("[[apps]]\nname = \"x\"\ncommand = [\"y\"]\ncomand = 1", "comand"),
        ("[[apps]]\nname = \"x\"\ncommand = [\"y\"]\nidle = \"kernels\"", "idle"),
        ("[[apps]]\nname = \"x\"\ncommand = \"y -z\"", "command"),
    ] {
        let (code, said) = World::refusal(text);
        assert!(code == Some(1) && said.contains("apps[0]") && said.contains(named), "{named}: {said}");
    }
}

#[tokio::test]
async fn what_counts_as_use() {
    if !needs::root() {
        return;
    }
    let app = |name: &str, idle: &str| {
        format!(
            "[[apps]]\nname = \"{name}\"\nidle = \"{idle}\"\nstrip_prefix = true\n
             command = [\"/usr/bin/python3\", \"{{home}}/{name}.py\"]\n"
        )
    };
    let busy =
        "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()\n";
    let apps = [
        ("asked", "http", ""),
        ("quiet", "http", ""),
        ("still", "cpu", ""),
        ("busy", "cpu", busy),
        ("kept", "none", ""),
    ];
    let configuration: String = apps.iter().map(|(name, idle, _)| app(name, idle)).collect();
    let mut world = World::start(&configuration);
    let ada = world.add("ada", &[]);
    world.lyceum(&["admin", "quota", "set", "user", "ada", "idle_timeout_seconds=10s"]);
    let mut ids = Vec::new();
    for (name, _, extra) in apps {
        ada.write(&format!("{name}.py"), &format!("{extra}{SHOW}"));
        ids.push(ada.start(name).await["id"].as_str().unwrap().to_owned());
    }
    let [asked, quiet, still, busy, kept] = <[String; 5]>::try_from(ids).unwrap();
    // Requests are use for `http`; for `cpu` they are not.
    eventually("the idle ones are stopped", async || {
        for id in [&asked, &still] {
            ada.get(&format!("/s/{id}/")).await;
        }
        let ended = async |id: &String| ada.json(&format!("/api/v1/sessions/{id}")).await["state"] == "ended";
        (ended(&quiet).await && ended(&still).await).then_some(())
    })
    .await;
    for id in [&quiet, &still] {
        assert_eq!(ada.json(&format!("/api/v1/sessions/{id}")).await["end_reason"], "idle");
    }
    for id in [&asked, &busy, &kept] {
        assert_eq!(ada.json(&format!("/api/v1/sessions/{id}")).await["state"], "running");
    }
}

/// The blocks of docs/apps.md.
fn examples() -> Vec<String> {
    let page = std::fs::read_to_string("docs/apps.md").unwrap();
    let blocks = page.split("```toml\n").skip(1);
    blocks.map(|rest| rest.split_once("```").expect("a block ends").0.to_owned()).collect()
}

#[test]
fn the_examples_of_the_page_are_valid() {
    let examples = examples();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let config = Config::parse(&example, &Environment::default()).unwrap_or_else(|err| panic!("{err}\n{example}"));
        assert_eq!(config.apps.len(), 1, "{example}");
    }
    // The contract's own example, in the file with every setting, is a comment there.
    let settings = std::fs::read_to_string("lyceum.example.toml").unwrap();
    let from = settings.find("# [[apps]]").expect("it is shown");
    let shown: Vec<&str> = settings[from..].lines().map(|line| line.trim_start_matches("# ")).collect();
    assert_eq!(Config::parse(&shown.join("\n"), &Environment::default()).unwrap().apps[0].name, "echo");
}
